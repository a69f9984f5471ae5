//! The supply of a stream: claiming a block reads it into the claiming thread's slot.
//!
//! One thread at a time reads, and each thread consumes the block that it has read while the next
//! thread reads. So bytes that were copied out of a pipe are consumed while they are in that core's
//! cache, and no data moves between cores.
#![allow(unsafe_code)]

use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::fs::{SeekFrom, seek};
use rustix::io::{ReadWriteFlags, preadv2};

use super::is_ready;
use super::packets::PacketReader;
use super::tee::Tee;
use crate::core::extents::{Extents, IndexedExtent};
use crate::core::read_result::Request;
use crate::core::supply::{Claim, FreeSlot, Supply};
use crate::error::ErrorKind;
use crate::lock;
use crate::observe::stats::{ReadOutcome, WaitFor};
use crate::stop::Stop;
use crate::sys;

/// If this many blocks in a row are each filled by one read, the writer is ahead. (4 MiB with the
/// default block; starting a thread takes 0.1 ms.)
const AHEAD_BLOCKS: u32 = 16;

/// Another thread then joins if this many processors have been idle for this long. With two
/// processors, `cat` at the other end of the pipe needs the second one: a second thread here only
/// took it away (1 GiB in 0.30 s, and 0.38 s with it). A program that shares its pages leaves it
/// idle (nine tenths of the time).
const IDLE_PROCESSORS_MIN: f64 = 0.75;
const IDLE_TIME_MIN: Duration = Duration::from_millis(80);

/// How often a wait for bytes looks for a stop.
const STOP_TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How a stream is read.
pub(crate) enum Stream<'t> {
    /// From the current position to the end, which is only found by reading. Bytes may also be
    /// copied to a tee.
    ToEnd(Option<&'t mut Tee>),
    /// A file of known length by `read`, with its own file position.
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
    /// A read that returns this many bytes, or a whole block, counts as full.
    full_bytes: u32,
    reader: Mutex<SharedReader<'t>>,
    /// The run was stopped. Checked by the reading thread before each read.
    is_stopped: AtomicBool,
    /// Number of threads that may still join.
    helpers_left: AtomicU32,
    needs_help: AtomicBool,
    /// Ends a wait for bytes.
    stop: Option<&'t Stop>,
}

/// State of the thread that is reading.
struct SharedReader<'t> {
    extents: Extents,
    stream: Stream<'t>,
    packets: PacketReader,
    /// The file position, as far as it is known.
    position: Option<u64>,
    /// Number of consecutive blocks that were each filled by one read.
    ahead: u32,
    /// Since when the writer has been ahead, and the idle time of processors at that time.
    ahead_since: Option<(Instant, Duration)>,
    /// Nothing more is read: the stream has ended, or failed.
    is_over: bool,
}

impl<'t> StreamSupply<'t> {
    /// `extents`: the blocks; for a stream of unknown length, more than there will be. `helpers`:
    /// number of threads that may join when the writer is ahead.
    pub(crate) fn new(
        fd: BorrowedFd<'t>,
        stream: Stream<'t>,
        extents: Extents,
        full_bytes: u32,
        helpers: u32,
        stop: Option<&'t Stop>,
    ) -> StreamSupply<'t> {
        let reader = SharedReader {
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
            reader: Mutex::new(reader),
            is_stopped: AtomicBool::new(false),
            helpers_left: AtomicU32::new(helpers),
            needs_help: AtomicBool::new(false),
            stop,
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Reads one extent into `slot`. `None` if the run was stopped.
    fn read(
        &self,
        reader: &mut SharedReader<'t>,
        extent: IndexedExtent,
        slot: &mut FreeSlot<'_, '_>,
    ) -> Result<Option<IndexedExtent>, ErrorKind> {
        let (align, source_len) = match &reader.stream {
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
            // SAFETY: the slot is free, so that only this thread uses its memory, which holds a
            // whole block rounded up to the alignment. It has been zeroed or written before.
            let buffer = unsafe {
                let start = slot.memory.add(part.skip as usize);
                std::slice::from_raw_parts_mut(start, part.len as usize)
            };
            slot.recorder.requested(slot.number, 1);
            let start = slot.recorder.start();
            if let Some(stop) = self.stop {
                reader.wait_for_bytes(self.fd, stop)?;
            }
            let read = reader.read(self.fd, part.offset, buffer)?;
            if slot.consumes_inline {
                slot.recorder.waited(WaitFor::Read, start);
            }
            is_full &= read.as_ref().is_ok_and(|n| *n as u32 >= self.full_bytes.min(part.len));
            let outcome = request.complete(read.map(|n| n as u32), align, source_len);
            let recorded = *outcome.as_ref().unwrap_or(&ReadOutcome::Over);
            slot.recorder.completed(slot.number, part.offset, recorded);
            if outcome? == ReadOutcome::Over {
                break;
            }
        }
        if self.helpers_left.load(Ordering::Relaxed) > 0 && reader.is_behind(is_full) {
            self.needs_help.store(true, Ordering::Relaxed);
        }
        Ok(Some(request.extent))
    }
}

impl SharedReader<'_> {
    /// Waits until a read would not block, or until a stop: a blocked read could not be stopped.
    fn wait_for_bytes(&self, fd: BorrowedFd<'_>, stop: &Stop) -> Result<(), ErrorKind> {
        if self.packets.has_kept() {
            return Ok(());
        }
        while !stop.is_stopped() {
            if is_ready(fd, &STOP_TICK).map_err(ErrorKind::Wait)? {
                return Ok(());
            }
        }
        Err(ErrorKind::Stopped)
    }

    /// Reads at most once. The outer error is the tee's, the inner one the stream's.
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
                // A file needs no poll: `EAGAIN` is retried by the request.
                let read = match ReadWriteFlags::from_bits_retain(*flags as u32) {
                    // (`preadv2` is newer, and filters may refuse it.)
                    flags if flags.is_empty() => rustix::io::read(fd, buffer),
                    // (An offset of -1 is the file position.)
                    flags => preadv2(fd, &mut [IoSliceMut::new(buffer)], u64::MAX, flags),
                };
                self.position = read.ok().map(|n| offset + n as u64);
                Ok(read.map_err(Into::into))
            }
        }
    }

    /// Whether the writer has been ahead for a while, and processors are idle.
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
        let mut reader = lock(&self.reader);
        if reader.is_over || self.is_stopped() {
            return Ok(None);
        }
        let Some(extent) = reader.extents.claim() else { return Ok(None) };
        // Until this read shows that there is more.
        reader.is_over = true;
        let Some(read) = self.read(&mut reader, extent, slot)? else { return Ok(None) };
        reader.is_over = read.len < extent.len;
        Ok((read.len > 0).then_some(Claim::Filled(read)))
    }

    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    fn left(&self) -> u64 {
        // (Without waiting for the thread that is reading.)
        match self.reader.try_lock() {
            _ if self.is_stopped() => 0,
            Ok(reader) if reader.is_over => 0,
            Ok(reader) => reader.extents.left(),
            Err(_) => 1,
        }
    }

    fn is_untouched(&self) -> bool {
        self.reader.try_lock().is_ok_and(|reader| reader.extents.is_untouched())
            && !self.is_stopped()
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
