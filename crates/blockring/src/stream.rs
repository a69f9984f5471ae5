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
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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
/// it). A program that gives its pages away leaves it idle (nine tenths of it).
const IDLE_PROCESSORS_MIN: f64 = 0.75;
const IDLE_TIME_MIN: Duration = Duration::from_millis(80);

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
    inlet: Inlet,
    onward: Option<&'t mut Onward>,
}

struct Turns<'t> {
    stream: &'t Stream<'t>,
    turn: Mutex<Turn<'t>>,
    /// The run is given up: for who has the turn, and is about to read or to nap.
    is_stopped: AtomicBool,
    consumed_bytes: AtomicU64,
    /// Threads that have joined, or could not.
    joined: AtomicU32,
}

/// Gives each block of `stream` to `consume`; with `onward`, all bytes go there, too, in their order.
pub(crate) fn by_turns(
    stream: &Stream<'_>,
    onward: Option<&mut Onward>,
    consume: ConsumeAnyOrder<'_>,
) -> Result<(), ErrorKind> {
    let next = Extent { index: 0, offset: 0, len: stream.plan.block_bytes };
    let inlet = Inlet::new(stream.fd);
    let turn = Turn { next, ahead: 0, ahead_since: None, is_over: false, inlet, onward };
    let turns = Turns {
        stream,
        turn: Mutex::new(turn),
        is_stopped: AtomicBool::new(false),
        consumed_bytes: AtomicU64::new(0),
        joined: AtomicU32::new(0),
    };
    let first = Slab::new(1, stream.plan.block_bytes, stream.plan.pages(1))?;
    let missed = Mutex::new(None);
    // A thread that was asked for is missed; the work of others, those that there are do.
    let miss = |error| {
        if stream.plan.spread == Spread::Asked {
            turns.is_stopped.store(true, Ordering::Relaxed);
            lock(&missed).get_or_insert(error);
        }
    };
    let read = thread::scope(|scope| {
        let mut threads = Vec::new();
        let mut join = || {
            if turns.joined.fetch_add(1, Ordering::Relaxed) >= stream.plan.workers {
                return;
            }
            let slab = match Slab::new(1, stream.plan.block_bytes, stream.plan.pages(1)) {
                Ok(slab) => slab,
                Err(error) => return miss(error),
            };
            let work = || turns.work(slab, consume, &mut || ());
            match thread::Builder::new().name("blockring".to_owned()).spawn_scoped(scope, work) {
                Ok(thread) => threads.push(thread),
                Err(error) => miss(ErrorKind::Resource { what: STARTING.to_owned(), error }),
            }
        };
        if stream.plan.spread == Spread::Asked {
            (0..stream.plan.workers).for_each(|_| join());
        }
        let mut result = turns.work(first, consume, &mut join);
        for thread in threads {
            match thread.join() {
                Ok(other) => result = result.and(other),
                Err(payload) => panic::resume_unwind(payload),
            }
        }
        result
    });
    if let Some(error) = lock(&missed).take() {
        return Err(error);
    }
    read.map_err(|error| match error {
        // What went there and made no whole block was not consumed.
        ErrorKind::Onward { to, error, .. } => {
            let bytes = turns.consumed_bytes.load(Ordering::Relaxed);
            ErrorKind::Onward { to, bytes, error }
        }
        error => error,
    })
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
        slab: Slab,
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
            self.consumed_bytes.fetch_add(extent.len.into(), Ordering::Relaxed);
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
        if turn.is_over || self.is_stopped() {
            return Ok(None);
        }
        self.wait_for_limit(recorder);
        // Until it is known that there is more.
        turn.is_over = true;
        let mut request = Request::new(turn.next);
        let mut is_full = true;
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            let part = request.missing(1);
            let rest = &mut buffer[part.skip as usize..][..part.len as usize];
            recorder.requested(0, 1);
            let start = recorder.start();
            let Turn { inlet, onward, .. } = &mut *turn;
            let read = match onward {
                Some(onward) => onward.bring(self.stream.fd, inlet, rest)?,
                None => inlet.read(self.stream.fd, rest),
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
        let is_behind = self.may_join() && turn.is_behind(is_full);
        Ok((extent.len > 0).then_some((extent, is_behind)))
    }

    fn wait_for_limit(&self, recorder: &mut Recorder<'_>) {
        let Some(limit) = self.stream.rate_limit else { return };
        let start = recorder.start();
        while !limit.due_in().is_zero() && !self.is_stopped() {
            limit.nap();
        }
        recorder.waited_for_limit(start);
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Whether there may be more threads than there are.
    fn may_join(&self) -> bool {
        self.stream.plan.spread == Spread::WhenBehind
            && self.joined.load(Ordering::Relaxed) < self.stream.plan.workers
    }
}

/// A thread that goes takes the others with it: what it leaves is an end, an error or a panic.
struct End<'a, 't>(&'a Turns<'t>);

impl Drop for End<'_, '_> {
    fn drop(&mut self) {
        // First the flag: whoever has the turn may be waiting for the next bytes.
        self.0.is_stopped.store(true, Ordering::Relaxed);
    }
}

/// Least room that a read of a pipe must offer, in bytes: of a pipe in packet mode (`O_DIRECT`) the kernel throws
/// away what a packet has beyond that, and a packet is `PIPE_BUF` bytes at most. Whether a pipe is one,
/// the reading end cannot tell: a writer may have made it one.
const PACKET_BYTES_MAX: usize = 4096;

/// Reads a stream by its parts, whatever it comes in: of a packet that is longer than what is missing of a block, the
/// rest is kept for the next.
#[derive(Debug)]
pub(crate) struct Inlet {
    /// Of a socket of messages, each is read whole.
    has_messages: bool,
    kept: Vec<u8>,
    /// What of them was taken.
    taken: usize,
}

impl Inlet {
    pub(crate) fn new(fd: BorrowedFd<'_>) -> Inlet {
        let kind = rustix::net::sockopt::socket_type(fd);
        let has_messages = kind.is_ok_and(|kind| kind != rustix::net::SocketType::STREAM);
        Inlet { has_messages, kept: Vec::new(), taken: 0 }
    }

    /// Whether something is there without a read.
    pub(crate) fn has_some(&self) -> bool {
        self.taken < self.kept.len()
    }

    /// Reads what is there into `buffer`, waiting for some; 0 at the end.
    pub(crate) fn read(&mut self, fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_some() {
            let packet_bytes = match self.has_messages {
                true => {
                    wait_for(fd, PollFlags::IN)?;
                    // How long the next one is.
                    rustix::io::ioctl_fionread(fd).map_or(0, |n| n as usize).max(64 << 10)
                }
                false => PACKET_BYTES_MAX,
            };
            if buffer.len() >= packet_bytes {
                return read_some(fd, buffer);
            }
            self.taken = 0;
            self.kept.resize(packet_bytes, 0);
            let read = read_some(fd, &mut self.kept);
            self.kept.truncate(*read.as_ref().unwrap_or(&0));
            read?;
        }
        let n = buffer.len().min(self.kept.len() - self.taken);
        buffer[..n].copy_from_slice(&self.kept[self.taken..][..n]);
        self.taken += n;
        Ok(n)
    }
}

/// Reads what is there, waiting for some; 0 at the end.
pub(crate) fn read_some(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match sys::read_into(fd, buffer) {
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
