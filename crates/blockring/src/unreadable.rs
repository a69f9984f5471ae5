//! Places that cannot be read: which ones exactly, by smaller reads once a larger one has failed.
//!
//! Engines know nothing of it. After a run has failed, [`narrow`] looks for the first and the last bad unit
//! of the one block that failed; [`Map`] goes through all of a source and finds every one. Both read on the
//! calling thread, one read after another, in the way in which the run read (directly, through the page
//! cache or beside it), and throw away what comes but for what a map is asked to give.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use crate::buffer::Buffer;
use crate::config::HugePages;
use crate::error::{BoxError, Change, ErrorKind, Narrowed};
use crate::pump::Target;
use crate::rate::RateLimit;
use crate::sys;
use crate::workers::Block;

/// How long one failed block is looked at more closely. A drive with its own error recovery takes up to 30 s
/// for one bad sector (7 s where that is limited), and the kernel may try five times: so two reads that
/// fail at worst, and all that it takes (20 of them, from 512 KiB down to 512 bytes) on a drive that gives
/// up within 3 s.
const BLOCK_TIME_MAX: Duration = Duration::from_secs(60);

/// Most reads for that. A block of 64 MiB takes 128 to be read twice, and 34 to be halved twice.
const BLOCK_READS_MAX: u32 = 256;

/// Longest read, in bytes: of sequential direct reads without any in flight beside them, longer ones are
/// hardly faster, and it is what is read again where one fails.
const READ_BYTES_MAX: u32 = 1 << 20;

/// Places of a block that are looked at where all of the block before it was bad: if none can be read, all
/// of it counts as bad. To try each sector of an area of gigabytes would take a drive years.
const SAMPLES: u64 = 16;

/// Times that a read may move nothing (`EINTR`, `EAGAIN`), as in `request.rs`.
const RETRIES_MAX: u32 = 1000;

/// A part of a source that cannot be read.
#[derive(Debug)]
pub struct BadRange {
    /// Where it starts, in bytes from the start of the source.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
    /// What the kernel said of its first bytes.
    pub error: io::Error,
}

/// What a map has come to.
#[derive(Debug)]
pub enum Mapped<'a> {
    /// The next block that could be read whole.
    Block(Block<'a>),
    /// The next place that could not be read. Those that touch, and fail alike, are one.
    Bad(BadRange),
}

/// Whether an error is about the place that was read, so that another place may do: the medium, the link to
/// it for one request, or a checksum. Not where the device is gone (`ENODEV`, `ENXIO`, `ENOLINK`), the
/// server is (`ESTALE`, `ENOTCONN`), or the request itself was wrong: then no place is better than another.
pub(crate) fn is_of_place(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            // Most of them: what the block layer does not say more exactly, btrfs' checksums, fs-verity.
            libc::EIO
            // The block layer: "critical medium", "critical target", "protection" and "timeout" error.
            | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ | libc::ETIMEDOUT
            // File systems: a bad checksum, and metadata of the file that makes no sense.
            | libc::EBADMSG | libc::EUCLEAN
        )
    )
}

/// What the least part is that can be read in some way, in bytes.
fn unit_bytes(align: u32) -> u64 {
    match align {
        // The page cache reads no less than a page.
        1 => rustix::param::page_size() as u64,
        align => align.into(),
    }
}

/// Looks more closely at the place where a run failed, if it is one: the error then names its first and its
/// last bad unit.
pub(crate) fn narrow(target: &Target<'_>, error: ErrorKind) -> ErrorKind {
    let ErrorKind::Read { offset, len, narrowed: Narrowed::Request, error } = error else {
        return error;
    };
    let as_it_was = |error| ErrorKind::read(offset, len, error);
    if !target.seekable || len == 0 || !is_of_place(&error) {
        return as_it_was(error);
    }
    let piece = READ_BYTES_MAX.min(len.next_multiple_of(4096).min(u64::from(u32::MAX)) as u32);
    // Without memory for it, it is said as it is.
    let Ok(mut buffer) = buffer_of(piece) else { return as_it_was(error) };
    let mut read =
        |offset, buffer: &mut [u8]| sys::pread_into(target.fd, buffer, offset, target.flags);
    let mut probe = Probe::new(&mut read, &mut buffer, target.align);
    probe.narrow(offset..offset.saturating_add(len), error)
}

/// Memory whose pages are there: btrfs reads into others through the page cache.
fn buffer_of(bytes: u32) -> Result<Buffer, ErrorKind> {
    let mut buffer = Buffer::new(bytes, HugePages::Off)?;
    buffer.fill(0);
    Ok(buffer)
}

/// One read: `pread`, but in tests.
type Read<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> io::Result<usize>;

/// Reads again what could not be read.
struct Probe<'a> {
    read: Read<'a>,
    buffer: &'a mut [u8],
    align: u32,
    unit: u64,
    /// Until when, and how often.
    until: Instant,
    reads_left: u32,
}

/// What came of reading a range.
enum Look {
    Good,
    /// A read of this part failed; what is before it was read.
    Bad(Range<u64>, io::Error),
    /// The source ends here.
    Ended(u64),
    /// There was no time for it.
    OutOfTime,
}

/// The middle of a range, at a multiple of `unit`; `None` for what is one unit.
fn middle(range: &Range<u64>, unit: u64) -> Option<u64> {
    let half = (range.start + (range.end - range.start) / 2) / unit * unit;
    let middle = if half > range.start { half } else { (range.start / unit + 1) * unit };
    (middle < range.end).then_some(middle)
}

impl<'a> Probe<'a> {
    fn new(read: Read<'a>, buffer: &'a mut [u8], align: u32) -> Probe<'a> {
        let unit = unit_bytes(align);
        let mut probe = Probe { read, buffer, align, unit, until: Instant::now(), reads_left: 0 };
        probe.start();
        probe
    }

    /// Another block: it has all the time of one.
    fn start(&mut self) {
        self.until = Instant::now() + BLOCK_TIME_MAX;
        self.reads_left = BLOCK_READS_MAX;
    }

    /// Reads a range, as long as there is time.
    fn look(&mut self, range: Range<u64>) -> Look {
        let mut at = range.start;
        while at < range.end {
            if self.reads_left == 0 || Instant::now() >= self.until {
                return Look::OutOfTime;
            }
            self.reads_left -= 1;
            let len = (range.end - at).min(self.buffer.len() as u64);
            match self.bring(at, len as usize) {
                Ok(n) if n == len => at += n,
                Ok(n) => return Look::Ended(at + n),
                Err((from, error)) => return Look::Bad(from..at + len, error),
            }
        }
        Look::Good
    }

    /// Brings `len` bytes to the start of the buffer. Returns how many there are: less where the source ends.
    ///
    /// # Errors
    ///
    /// Where a read failed, and why.
    fn bring(&mut self, offset: u64, len: usize) -> Result<u64, (u64, io::Error)> {
        let align = self.align as usize;
        let (mut done, mut retries) = (0, 0);
        loop {
            // What came of a sector that did not come whole is asked for again.
            let skip = done / align * align;
            let end = len.next_multiple_of(align).min(self.buffer.len());
            let at = offset + skip as u64;
            match (self.read)(at, &mut self.buffer[skip..end]) {
                Ok(n) if skip + n >= len => return Ok(len as u64),
                Ok(n) if skip + n <= done => return Ok(done as u64),
                Ok(n) => done = skip + n,
                Err(error) if retries < RETRIES_MAX && is_transient(&error) => retries += 1,
                Err(error) => return Err((at, error)),
            }
        }
    }

    /// The first and the last bad unit of `failed`, of which a read has failed.
    fn narrow(&mut self, failed: Range<u64>, error: io::Error) -> ErrorKind {
        let (mut error, end) = (error, failed.end);
        let mut first = failed.clone();
        // Whether a read of `first` has failed, and not only of more.
        let mut is_seen = true;
        let mut narrowed = Narrowed::Units;
        loop {
            let middle = middle(&first, self.unit);
            if middle.is_none() && is_seen {
                break;
            }
            match self.look(first.start..middle.unwrap_or(first.end)) {
                Look::Bad(part, why) => (first, error, is_seen) = (part, why, true),
                Look::Good if middle.is_some() => {
                    (first.start, is_seen) = (middle.unwrap_or(first.end), false);
                }
                Look::Good => {
                    // Not even the last that was left.
                    (first, narrowed) = (failed.clone(), Narrowed::Passing);
                    break;
                }
                Look::Ended(_) => (narrowed, is_seen) = (Narrowed::Request, false),
                Look::OutOfTime => (narrowed, is_seen) = (Narrowed::OutOfTime, false),
            }
            if matches!(narrowed, Narrowed::Request | Narrowed::OutOfTime) {
                break;
            }
        }
        let last = match narrowed {
            Narrowed::Units => match self.last(first.end..end) {
                Some(last) => last,
                None => {
                    narrowed = Narrowed::OutOfTime;
                    end
                }
            },
            _ => end,
        };
        let (offset, len) = (first.start, last - first.start);
        ErrorKind::Read { offset, len, narrowed, error }
    }

    /// The end of the last bad unit of a range, or its start if there is none; `None` if that took too long.
    fn last(&mut self, range: Range<u64>) -> Option<u64> {
        let (mut left, mut is_seen) = (range.clone(), false);
        while !left.is_empty() {
            let middle = middle(&left, self.unit);
            if middle.is_none() && is_seen {
                return Some(left.end);
            }
            match self.look(middle.unwrap_or(left.start)..left.end) {
                Look::Bad(part, _) => (left.start, is_seen) = (part.start, true),
                Look::Good => left.end = middle.unwrap_or(left.start),
                Look::Ended(_) | Look::OutOfTime => return None,
            }
        }
        Some(range.start)
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN))
}

/// A way through a source from its start to its end, whatever fails.
pub(crate) struct Map<'a> {
    pub(crate) target: Target<'a>,
    pub(crate) rate_limit: Option<&'a RateLimit>,
    /// Told of bytes that were gone through.
    pub(crate) observe: &'a dyn Fn(u64),
}

/// What is done with what a map comes to.
type Each<'a> = &'a mut dyn FnMut(Mapped<'_>) -> Result<(), BoxError>;

impl Map<'_> {
    /// Goes through a range. Returns how many bytes of it cannot be read.
    pub(crate) fn run(&self, range: Range<u64>, each: Each<'_>) -> Result<u64, ErrorKind> {
        let Target { fd, flags, align, source_len, .. } = self.target;
        let mut buffer = buffer_of(READ_BYTES_MAX)?;
        let mut read = |offset, buffer: &mut [u8]| sys::pread_into(fd, buffer, offset, flags);
        let mut probe = Probe::new(&mut read, &mut buffer, align);
        self.run_with(&mut probe, range, source_len.unwrap_or(0), each)
    }

    fn run_with(
        &self,
        probe: &mut Probe<'_>,
        range: Range<u64>,
        source_len: u64,
        each: Each<'_>,
    ) -> Result<u64, ErrorKind> {
        let (mut at, mut index) = (range.start, 0);
        let mut list = List { each, open: None, bytes: 0 };
        let mut is_all_bad = false;
        while at < range.end {
            let len = (range.end - at).min(READ_BYTES_MAX.into());
            self.wait_for_limit(len);
            let ended = |to| ErrorKind::Changed(Change::Shrank { from: source_len, to });
            match probe.bring(at, len as usize) {
                Ok(n) if n < len => return Err(ended(at + n)),
                Ok(_) => {
                    let bytes = &probe.buffer[..len as usize];
                    list.close().map_err(ErrorKind::Consumer)?;
                    let block = Mapped::Block(Block { index, offset: at, bytes });
                    (list.each)(block).map_err(ErrorKind::Consumer)?;
                    is_all_bad = false;
                }
                Err((from, error)) if is_of_place(&error) => {
                    let before = list.bytes;
                    let failed = from..at + len;
                    probe.start();
                    if is_all_bad && from == at && probe.is_bad_wherever(&failed) {
                        list.add(failed, error).map_err(ErrorKind::Consumer)?;
                    } else {
                        probe.split(failed, error, &mut list, &ended)?;
                    }
                    is_all_bad = list.bytes - before == len;
                }
                Err((from, error)) => return Err(ErrorKind::read(from, at + len - from, error)),
            }
            (self.observe)(len);
            at += len;
            index += 1;
        }
        list.close().map_err(ErrorKind::Consumer)?;
        Ok(list.bytes)
    }

    fn wait_for_limit(&self, bytes: u64) {
        let Some(limit) = self.rate_limit else { return };
        while !limit.due_in().is_zero() {
            limit.nap();
        }
        limit.charge(bytes);
    }
}

impl Probe<'_> {
    /// Whether none of some places in a range, its first and its last unit among them, can be read.
    fn is_bad_wherever(&mut self, range: &Range<u64>) -> bool {
        let last = (range.end - 1) / self.unit * self.unit;
        let step = (last.saturating_sub(range.start)) / (SAMPLES - 1) / self.unit * self.unit;
        (0..SAMPLES).all(|i| {
            let start = if i == SAMPLES - 1 { last } else { range.start + i * step };
            let end = (start + self.unit).min(range.end);
            matches!(self.look(start.max(range.start)..end), Look::Bad(_, why) if is_of_place(&why))
        })
    }

    /// Finds every bad unit of a range, of which a read has failed.
    fn split(
        &mut self,
        range: Range<u64>,
        error: io::Error,
        list: &mut List<'_>,
        ended: &dyn Fn(u64) -> ErrorKind,
    ) -> Result<(), ErrorKind> {
        // Every unit may be bad: then it takes twice as many reads. Time is the limit here.
        self.reads_left = u32::MAX;
        // What failed, the first last; and whether a read of just that has failed, not only of more.
        let mut stack = vec![(range, error, true)];
        while let Some((range, error, is_seen)) = stack.pop() {
            let middle = middle(&range, self.unit);
            if middle.is_none() && is_seen {
                list.add(range, error).map_err(ErrorKind::Consumer)?;
                continue;
            }
            let half = middle.unwrap_or(range.end);
            match self.look(range.start..half) {
                // It is in the other half, then.
                Look::Good if half < range.end => stack.push((half..range.end, error, false)),
                Look::Good => {}
                Look::Bad(part, why) => {
                    if half < range.end {
                        // Of this half nothing is known: it is read whole first.
                        match self.look(half..range.end) {
                            Look::Good => {}
                            Look::Bad(part, why) => stack.push((part, why, true)),
                            Look::OutOfTime => stack.push((half..range.end, error, true)),
                            Look::Ended(at) => return Err(ended(at)),
                        }
                    }
                    stack.push((part, why, true));
                }
                Look::Ended(at) => return Err(ended(at)),
                Look::OutOfTime => list.add(range, error).map_err(ErrorKind::Consumer)?,
            }
        }
        Ok(())
    }
}

/// The bad ranges, as they are found, joined where they touch.
struct List<'a> {
    each: Each<'a>,
    open: Option<BadRange>,
    /// All of them until now.
    bytes: u64,
}

impl List<'_> {
    fn add(&mut self, range: Range<u64>, error: io::Error) -> Result<(), BoxError> {
        let len = range.end - range.start;
        self.bytes += len;
        match &mut self.open {
            Some(open)
                if open.offset + open.len == range.start
                    && open.error.raw_os_error() == error.raw_os_error() =>
            {
                open.len += len;
                Ok(())
            }
            _ => {
                self.close()?;
                self.open = Some(BadRange { offset: range.start, len, error });
                Ok(())
            }
        }
    }

    fn close(&mut self) -> Result<(), BoxError> {
        self.open.take().map_or(Ok(()), |range| (self.each)(Mapped::Bad(range)))
    }
}

#[cfg(test)]
#[path = "unreadable_tests.rs"]
mod tests;
