//! Reading what has no places, on several threads that take turns: each reads a block into memory of its
//! own, and consumes it while the next one reads.
//!
//! So what was copied out of a pipe is consumed where it is in the cache, and nothing is handed from one
//! core to another; a reader that hands blocks over would lose both. The first thread has others
//! join it as soon as whoever writes has been ahead of it for a while.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::panic;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::choose::{RingPlan, Spread};
use crate::error::ErrorKind;
use crate::extents::Extent;
use crate::onward::Onward;
use crate::rate::RateLimit;
use crate::request::Request;
use crate::slab::Slab;
use crate::stats::{Brought, Recorder, Recording};
use crate::sys;
use crate::workers::{Block, ConsumeAnyOrder, STARTING};

/// After so many blocks in a row that each came in one read, whoever writes is ahead. (4 MiB with the usual
/// block: a thread takes 0.1 ms to start.)
const AHEAD_BLOCKS: u32 = 16;

/// Then another thread joins in, if so many processors were idle for so long: on two of them, `cat` in front
/// of the pipe needs the other, and a second thread here only took it away (1 GiB: 0.30 s, and 0.38 with
/// it). A program that gives its pages away leaves it idle.
const IDLE_PROCESSORS_MIN: f64 = 0.5;
const IDLE_TIME_MIN: Duration = Duration::from_millis(50);

/// A stream, and what is needed to read it.
pub(crate) struct Stream<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) plan: &'a RingPlan,
    /// A read that brings so many bytes, or a whole block, has found as much as there can be.
    pub(crate) full_bytes: u32,
    pub(crate) rate_limit: Option<&'a RateLimit>,
    pub(crate) recording: &'a Recording,
}

/// What whoever has the turn may use.
struct Turn<'t> {
    next: Extent,
    /// Blocks in a row that came in one read each.
    ahead: u32,
    /// Since when the writer was ahead, and the time that processors had been idle until then.
    ahead_since: Option<(Instant, Duration)>,
    /// Nothing more is read: the end came, or an error.
    is_over: bool,
    onward: Option<&'t mut Onward>,
}

struct Turns<'t> {
    stream: &'t Stream<'t>,
    turn: Mutex<Turn<'t>>,
}

/// Gives each block of `stream` to `consume`; with `onward`, all bytes go there, too, in their order.
pub(crate) fn by_turns(
    stream: &Stream<'_>,
    onward: Option<&mut Onward>,
    consume: ConsumeAnyOrder<'_>,
) -> Result<(), ErrorKind> {
    let next = Extent { index: 0, offset: 0, len: stream.plan.block_bytes };
    let turn = Turn { next, ahead: 0, ahead_since: None, is_over: false, onward };
    let turns = Turns { stream, turn: Mutex::new(turn) };
    let first = Slab::new(1, stream.plan.block_bytes, stream.plan.huge_pages)?;
    let missed = Mutex::new(None);
    let miss = |error| *lock(&missed) = Some(error);
    thread::scope(|scope| {
        let mut joined = Vec::new();
        let mut join = || {
            if joined.len() as u32 == stream.plan.workers {
                return;
            }
            let work = || match Slab::new(1, stream.plan.block_bytes, stream.plan.huge_pages) {
                Ok(slab) => turns.work(&slab, consume, &mut || ()),
                // The others do it all.
                Err(error) => {
                    miss(error);
                    Ok(())
                }
            };
            match thread::Builder::new().name("blockring".to_owned()).spawn_scoped(scope, work) {
                Ok(thread) => joined.push(thread),
                Err(error) => miss(ErrorKind::Resource { what: STARTING.to_owned(), error }),
            }
        };
        if stream.plan.spread == Spread::Asked {
            (0..stream.plan.workers).for_each(|_| join());
        }
        let mut result = turns.work(&first, consume, &mut join);
        for thread in joined {
            match thread.join() {
                Ok(other) => result = result.and(other),
                Err(payload) => panic::resume_unwind(payload),
            }
        }
        result
    })?;
    match lock(&missed).take() {
        // They were asked for.
        Some(error) if stream.plan.spread == Spread::Asked => Err(error),
        _ => Ok(()),
    }
}

fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn<'_> {
    /// A block was read. Whether whoever writes has been ahead for a while, and a processor idle.
    fn is_behind(&mut self, was_full: bool) -> bool {
        self.ahead = if was_full { self.ahead + 1 } else { 0 };
        if self.ahead < AHEAD_BLOCKS {
            return false;
        }
        self.ahead = 0;
        let now = Instant::now();
        let time = self.ahead_since.map(|(since, _)| now - since);
        if time.is_some_and(|time| time < IDLE_TIME_MIN) {
            return false;
        }
        let Some(idle) = sys::idle_time() else { return false };
        let was = self.ahead_since.replace((now, idle));
        was.zip(time).is_some_and(|((_, was), time)| {
            idle.saturating_sub(was).as_secs_f64() >= IDLE_PROCESSORS_MIN * time.as_secs_f64()
        })
    }
}

impl Turns<'_> {
    /// Reads and consumes until nothing more comes. `is_behind` is called each time another thread would help.
    fn work(
        &self,
        slab: &Slab,
        consume: ConsumeAnyOrder<'_>,
        is_behind: &mut dyn FnMut(),
    ) -> Result<(), ErrorKind> {
        let _end = End(self);
        let len = self.stream.plan.block_bytes as usize;
        // SAFETY: the slab is this thread's alone, and its one slot has so many bytes, which are zeros
        // until they are written.
        let buffer = unsafe { std::slice::from_raw_parts_mut(slab.slot(0), len) };
        let mut recorder = self.stream.recording.recorder("reads", 1);
        while let Some((extent, needs_help)) = self.next_block(buffer, &mut recorder)? {
            if needs_help {
                is_behind();
            }
            recorder.lends(0, extent.offset, 0);
            let start = recorder.start();
            let bytes = &buffer[..extent.len as usize];
            let consumed = consume(Block { index: extent.index, offset: extent.offset, bytes });
            recorder.consumed(start, extent.len, false);
            recorder.freed(0, extent.offset, start);
            consumed.map_err(ErrorKind::Consumer)?;
        }
        Ok(())
    }

    /// Waits for its turn, and reads the next block; and says whether another thread would help. `None`: there
    /// is none.
    fn next_block(
        &self,
        buffer: &mut [u8],
        recorder: &mut Recorder<'_>,
    ) -> Result<Option<(Extent, bool)>, ErrorKind> {
        let mut turn = lock(&self.turn);
        if turn.is_over {
            return Ok(None);
        }
        self.wait_for_limit(recorder);
        // Until it is known that there is more.
        turn.is_over = true;
        let mut request = Request::new(turn.next);
        let mut is_full = true;
        loop {
            let part = request.missing(1);
            let rest = &mut buffer[part.skip as usize..][..part.len as usize];
            recorder.requested(0, 1);
            let start = recorder.start();
            let read = match &mut turn.onward {
                Some(onward) => onward.bring(self.stream.fd, rest)?,
                None => read_some(self.stream.fd, rest),
            };
            recorder.waited_for_device(start);
            let moved = read.is_ok();
            is_full &=
                read.as_ref().is_ok_and(|n| *n as u32 >= self.stream.full_bytes.min(part.len));
            let complete = request.complete(read.map(|n| n as u32), 1, None);
            recorder.completed(0, part.offset, Brought::by(&complete, moved));
            if complete? {
                break;
            }
        }
        let extent = request.extent;
        if let Some(limit) = self.stream.rate_limit {
            limit.charge(extent.len.into());
        }
        turn.is_over = extent.len < turn.next.len;
        turn.next.index += 1;
        turn.next.offset += u64::from(turn.next.len);
        let is_behind = self.stream.plan.spread == Spread::WhenBehind && turn.is_behind(is_full);
        Ok((extent.len > 0).then_some((extent, is_behind)))
    }

    fn wait_for_limit(&self, recorder: &mut Recorder<'_>) {
        let Some(limit) = self.stream.rate_limit else { return };
        let start = recorder.start();
        while !limit.due_in().is_zero() {
            limit.nap();
        }
        recorder.waited_for_limit(start);
    }
}

/// A thread that goes takes the others with it: what it leaves is an end, an error or a panic.
struct End<'a, 't>(&'a Turns<'t>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        lock(&self.0.turn).is_over = true;
    }
}

/// Reads what is there, waiting for some; 0 at the end.
pub(crate) fn read_some(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as it says, and the call returns only when it is done with it.
    unsafe { read_some_at(fd, buffer.as_mut_ptr(), buffer.len(), 0) }
}

/// The same, to memory that may be somebody else's later.
///
/// # Safety
///
/// `buffer` must have room for `len` bytes.
pub(crate) unsafe fn read_some_at(
    fd: BorrowedFd<'_>,
    buffer: *mut u8,
    len: usize,
    flags: i32,
) -> io::Result<usize> {
    loop {
        // SAFETY: the caller vouches for the buffer, and the call returns only when it is done.
        match unsafe { sys::read(fd, buffer, len, flags) } {
            // Somebody made our standard input non-blocking: wait for it.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(fd, PollFlags::IN)?;
            }
            result => return result,
        }
    }
}

/// Waits until `fd` can be read or written, as `events` say.
pub(crate) fn wait_for(fd: BorrowedFd<'_>, events: PollFlags) -> io::Result<()> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, events)], None) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
