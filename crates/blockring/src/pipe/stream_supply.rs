//! The supply of a stream: claiming a block reads it into the claiming thread's slot.
//!
//! Threads take turns to read, and each consumes the block it has read while the next thread reads. So
//! bytes that were copied out of a pipe are consumed while they are in that core's cache, and nothing
//! moves between cores.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{SeekFrom, seek};

use super::packets::PacketReader;
use super::tee::Tee;
use crate::core::extents::{Extent, Extents};
use crate::core::request::Request;
use crate::core::supply::{Claim, FreeSlot, Supply};
use crate::error::ErrorKind;
use crate::observe::stats::ReadOutcome;
use crate::sys;

/// After this many blocks in a row that each came in one read, the writer is ahead. (4 MiB with the
/// default block; starting a thread takes 0.1 ms.)
const AHEAD_BLOCKS: u32 = 16;

/// Another thread then joins if this many processors have been idle for this long. With two of them,
/// `cat` at the other end of the pipe needs the second: a second thread here only took it away (1 GiB
/// in 0.30 s, and 0.38 with it). A program that gives its pages away leaves it idle (nine tenths).
const IDLE_PROCESSORS_MIN: f64 = 0.75;
const IDLE_TIME_MIN: Duration = Duration::from_millis(80);

/// How a stream is read.
pub(crate) enum Stream<'t> {
    /// From where it is to its end, which only reading finds. Bytes may go to a tee as well.
    ToEnd(Option<&'t mut Tee>),
    /// A file of known length by `read`, at a file position of its own.
    Positioned {
        /// Length of the file, in bytes.
        len: u64,
        /// `RWF_*` of each read.
        flags: i32,
        /// Offsets and lengths of reads are multiples of this, in bytes.
        align: u32,
    },
}

/// The blocks of one stream.
pub(crate) struct StreamSupply<'t> {
    fd: BorrowedFd<'t>,
    /// A read that returns this many bytes, or a whole block, has found as much as there can be.
    full_bytes: u32,
    turn: Mutex<Turn<'t>>,
    /// The run was given up. Seen by the thread that has the turn, before its next read.
    is_stopped: AtomicBool,
    /// Threads that may still join.
    helpers_left: AtomicU32,
    needs_help: AtomicBool,
}

/// What the thread that reads may use.
struct Turn<'t> {
    extents: Extents,
    stream: Stream<'t>,
    packets: PacketReader,
    /// The file position, as far as it is known.
    position: Option<u64>,
    /// Blocks in a row that came in one read each.
    ahead: u32,
    /// Since when the writer has been ahead, and the idle time of processors until then.
    ahead_since: Option<(Instant, Duration)>,
    /// Nothing more is read: the end came, or an error.
    is_over: bool,
}

impl<'t> StreamSupply<'t> {
    /// `extents`: the blocks; of a stream without a length, more than there will be. `helpers`: threads
    /// that may join when the writer is ahead.
    pub(crate) fn new(
        fd: BorrowedFd<'t>,
        stream: Stream<'t>,
        extents: Extents,
        full_bytes: u32,
        helpers: u32,
    ) -> StreamSupply<'t> {
        let turn = Turn {
            extents,
            stream,
            packets: PacketReader::new(fd),
            position: None,
            ahead: 0,
            ahead_since: None,
            is_over: false,
        };
        StreamSupply {
            fd,
            full_bytes,
            turn: Mutex::new(turn),
            is_stopped: AtomicBool::new(false),
            helpers_left: AtomicU32::new(helpers),
            needs_help: AtomicBool::new(false),
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn<'t>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Reads one extent into `slot`. `None`: the run was stopped.
    fn read(
        &self,
        turn: &mut Turn<'t>,
        extent: Extent,
        slot: &mut FreeSlot<'_, '_>,
    ) -> Result<Option<Extent>, ErrorKind> {
        let (align, source_len) = match &turn.stream {
            Stream::ToEnd(_) => (1, None),
            Stream::Positioned { align, len, .. } => (*align, Some(*len)),
        };
        let mut request = Request::new(extent);
        let mut is_full = true;
        loop {
            if self.is_stopped() {
                return Ok(None);
            }
            let part = request.missing(align);
            // SAFETY: the slot is free, so that this thread alone uses its memory, which holds a whole
            // block rounded up to the alignment. It has been zeroed or written before.
            let buffer = unsafe {
                let start = slot.memory.add(part.skip as usize);
                std::slice::from_raw_parts_mut(start, part.len as usize)
            };
            slot.recorder.requested(slot.number, 1);
            let start = slot.recorder.start();
            let read = turn.read(self.fd, part.offset, buffer)?;
            if slot.consumes_inline {
                slot.recorder.waited_for_device(start);
            }
            is_full &= read.as_ref().is_ok_and(|n| *n as u32 >= self.full_bytes.min(part.len));
            let outcome = request.complete(read.map(|n| n as u32), align, source_len);
            let recorded = *outcome.as_ref().unwrap_or(&ReadOutcome::Over);
            slot.recorder.completed(slot.number, part.offset, recorded);
            if outcome? == ReadOutcome::Over {
                break;
            }
        }
        if self.helpers_left.load(Ordering::Relaxed) > 0 && turn.is_behind(is_full) {
            self.needs_help.store(true, Ordering::Relaxed);
        }
        Ok(Some(request.extent))
    }
}

impl Turn<'_> {
    /// Reads at most once. An error of the outer kind is the tee's, one of the inner kind the stream's.
    fn read(
        &mut self,
        fd: BorrowedFd<'_>,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<io::Result<usize>, ErrorKind> {
        match &mut self.stream {
            Stream::ToEnd(Some(tee)) => tee.read(fd, &mut self.packets, buffer),
            Stream::ToEnd(None) => Ok(self.packets.read(fd, buffer)),
            Stream::Positioned { flags, .. } => {
                if self.position != Some(offset)
                    && let Err(error) = seek(fd, SeekFrom::Start(offset))
                {
                    return Ok(Err(error.into()));
                }
                // A file has nothing to wait for: `EAGAIN` is retried by the request.
                let read = match *flags {
                    0 => sys::read_into(fd, buffer),
                    flags => sys::read_with(fd, buffer, flags),
                };
                self.position = read.as_ref().ok().map(|n| offset + *n as u64);
                Ok(read)
            }
        }
    }

    /// Whether the writer has been ahead for a while, and a processor idle.
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

impl Supply for StreamSupply<'_> {
    fn claim(&self, slot: &mut FreeSlot<'_, '_>) -> Result<Option<Claim<'_>>, ErrorKind> {
        let mut turn = self.turn();
        if turn.is_over || self.is_stopped() {
            return Ok(None);
        }
        let Some(extent) = turn.extents.claim() else { return Ok(None) };
        // Until it is known that there is more.
        turn.is_over = true;
        let Some(read) = self.read(&mut turn, extent, slot)? else { return Ok(None) };
        turn.is_over = read.len < extent.len;
        Ok((read.len > 0).then_some(Claim::Filled(read)))
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn left(&self) -> u64 {
        // (Without waiting for the thread that has the turn.)
        match self.turn.try_lock() {
            _ if self.is_stopped() => 0,
            Ok(turn) if turn.is_over => 0,
            Ok(turn) => turn.extents.left(),
            Err(_) => 1,
        }
    }

    fn is_untouched(&self) -> bool {
        self.turn.try_lock().is_ok_and(|turn| turn.extents.is_untouched()) && !self.is_stopped()
    }

    fn needs_help(&self) -> bool {
        let needs_help = self.needs_help.swap(false, Ordering::Relaxed);
        if needs_help {
            let less = |n: u32| n.checked_sub(1);
            let _ = self.helpers_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
        needs_help
    }
}
