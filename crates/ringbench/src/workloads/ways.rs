//! Ways of reading a file that are no engines of the library, since one of those is always better: they are
//! here to be measured beside them, and for nothing else.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use blockring::{Buffer, HugePages, SLAB_BYTES_MAX, Wait};
use io_uring::{IoUring, opcode, types};
use rustix::io::ReadWriteFlags;
use rustix::pipe::SpliceFlags;

use crate::case::{Missing, Sample};
use crate::interrupt;
use crate::process;
use crate::workload::limits::fits_into_memory;
use crate::workload::pipe_ends::splice_some;
use crate::workload::reading::Until;
use crate::workload::target::{failed, refused};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Read,
    Pread,
    Readv,
    Preadv,
    Preadv2,
    /// POSIX AIO, which the C library makes of threads.
    Aio,
    /// From the file into a pipe, and out of it into `/dev/null`: nobody sees the bytes.
    Splice,
    /// io_uring, with memory of its own for each request.
    BufferPerRequest {
        /// Whether it is freed when the request has ended, or only at the end of all.
        freed: bool,
    },
    /// io_uring, with memory for the whole file.
    OneBuffer,
}

impl Way {
    pub(crate) const ALL: [Way; 10] = [
        Way::Read,
        Way::Pread,
        Way::Readv,
        Way::Preadv,
        Way::Preadv2,
        Way::Aio,
        Way::Splice,
        Way::BufferPerRequest { freed: true },
        Way::BufferPerRequest { freed: false },
        Way::OneBuffer,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Read => "read",
            Way::Pread => "pread",
            Way::Readv => "readv",
            Way::Preadv => "preadv",
            Way::Preadv2 => "preadv2",
            Way::Aio => "POSIX AIO",
            Way::Splice => "splice",
            Way::BufferPerRequest { freed: true } => "io_uring, a buffer each, freed",
            Way::BufferPerRequest { freed: false } => "io_uring, a buffer each, kept",
            Way::OneBuffer => "io_uring, one buffer for all",
        }
    }

    /// Whether there is anything to have several of in flight.
    pub(crate) fn is_asynchronous(self) -> bool {
        matches!(self, Way::Aio | Way::BufferPerRequest { .. } | Way::OneBuffer)
    }
}

/// What is read, and in what pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pieces<'a> {
    pub(crate) path: &'a Path,
    pub(crate) direct: bool,
    pub(crate) block_bytes: u32,
    /// Where a way has several in flight.
    pub(crate) depth: u32,
    pub(crate) until: Until,
}

/// How far it has come.
struct Progress {
    start: Instant,
    until: Until,
    bytes: u64,
    blocks: u64,
}

impl Progress {
    fn goes_on(&self) -> bool {
        self.bytes < self.until.bytes
            && !interrupt::is_interrupted()
            && self.until.time.is_none_or(|time| self.start.elapsed() < time)
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.blocks += 1;
    }
}

/// A sample of reading from the start on.
pub(crate) fn read(way: Way, pieces: Pieces<'_>) -> Result<Sample, Missing> {
    let flags = if pieces.direct { libc::O_DIRECT } else { 0 };
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(pieces.path).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let memory = match way {
        Way::OneBuffer => len.min(pieces.until.bytes).next_multiple_of(pieces.block_bytes.into()),
        Way::BufferPerRequest { freed: false } => len.min(pieces.until.bytes),
        _ => 0,
    };
    if memory > SLAB_BYTES_MAX || !fits_into_memory(memory) {
        let why = "it would take more than 1 GiB of memory, or than half of what there is";
        return Err(Missing::Unavailable(why.to_owned()));
    }
    let cpu = process::own_cpu();
    let mut progress = Progress { start: Instant::now(), until: pieces.until, bytes: 0, blocks: 0 };
    match way {
        Way::Aio => aio(&file, pieces, &mut progress),
        Way::Splice => match splice(&file, pieces, &mut progress) {
            Err(error) if progress.blocks == 0 => {
                return Err(refused("a pipe that holds a block, or splicing into it", &error));
            }
            result => result,
        },
        Way::BufferPerRequest { .. } | Way::OneBuffer => {
            let ring = IoUring::new(pieces.depth).map_err(|error| refused("io_uring", &error))?;
            uring(way, ring, &file, len, memory as u32, pieces, &mut progress)
        }
        _ => one_by_one(way, &file, pieces, &mut progress),
    }
    .map_err(failed)?;
    Ok(Sample {
        wall_s: progress.start.elapsed().as_secs_f64(),
        cpu_s: Some((process::own_cpu() - cpu).as_secs_f64()),
        bytes: progress.bytes,
        operations: progress.blocks,
        ..Sample::default()
    })
}

/// Memory that all requests share.
fn memory(len: u32) -> io::Result<Buffer> {
    Buffer::new(len, HugePages::Advise).map_err(io::Error::other)
}

/// Memory for one request: in pages of the usual size, since a huge one would have to be zeroed for each.
fn small_memory(len: u32) -> io::Result<Buffer> {
    Buffer::new(len, HugePages::Off).map_err(io::Error::other)
}

fn one_by_one(
    way: Way,
    mut file: &File,
    pieces: Pieces<'_>,
    progress: &mut Progress,
) -> io::Result<()> {
    let mut block = memory(pieces.block_bytes)?;
    while progress.goes_on() {
        let offset = progress.bytes;
        let read = match way {
            Way::Read => file.read(&mut block)?,
            Way::Readv => file.read_vectored(&mut [IoSliceMut::new(&mut block)])?,
            Way::Preadv => rustix::io::preadv(file, &mut [IoSliceMut::new(&mut block)], offset)?,
            Way::Preadv2 => {
                let flags = ReadWriteFlags::empty();
                rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut block)], offset, flags)?
            }
            _ => file.read_at(&mut block, offset)?,
        };
        if read == 0 {
            break;
        }
        progress.count(read);
    }
    Ok(())
}

fn splice(file: &File, pieces: Pieces<'_>, progress: &mut Progress) -> io::Result<()> {
    let (reader, writer) = io::pipe()?;
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    // A smaller one would cut the blocks.
    rustix::pipe::fcntl_setpipe_size(&writer, (pieces.block_bytes as usize).max(4096))?;
    while progress.goes_on() {
        let mut offset = progress.bytes;
        let (block, flags) = (pieces.block_bytes as usize, SpliceFlags::MOVE);
        let mut moved =
            rustix::pipe::splice(file, Some(&mut offset), writer.as_fd(), None, block, flags)?;
        if moved == 0 {
            break;
        }
        progress.count(moved);
        while moved > 0 {
            moved -= splice_some(&reader, &null, moved, Wait::Sleep)?;
        }
    }
    Ok(())
}

fn aio(file: &File, pieces: Pieces<'_>, progress: &mut Progress) -> io::Result<()> {
    let depth = pieces.depth as usize;
    // The C library carries out the requests of one descriptor one after another: each has its own.
    let files: Vec<File> = (0..depth).map(|_| file.try_clone()).collect::<io::Result<_>>()?;
    let mut blocks: Vec<Buffer> =
        (0..depth).map(|_| memory(pieces.block_bytes)).collect::<io::Result<_>>()?;
    // The C library writes into those that are in flight: nobody may hold a reference to them.
    // SAFETY: all of the structure may be zero.
    let requests: Vec<UnsafeCell<libc::aiocb>> =
        (0..depth).map(|_| UnsafeCell::new(unsafe { std::mem::zeroed() })).collect();
    let mut next = 0;
    let mut submit = |turn: usize, block: &mut Buffer| {
        let (start, len) = (block.as_mut_ptr(), block.len());
        let request = requests[turn].get();
        // SAFETY: it is not in flight; request and block live until all that were made were waited for,
        // below.
        let made = unsafe {
            (*request).aio_fildes = files[turn].as_raw_fd();
            (*request).aio_buf = start.cast();
            (*request).aio_nbytes = len;
            (*request).aio_offset = next;
            libc::aio_read(request)
        };
        next += len as i64;
        match made {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let (mut made, mut result) = (0, Ok(()));
    while made < depth && result.is_ok() {
        result = submit(made, &mut blocks[made]);
        made += usize::from(result.is_ok());
    }
    // In the order in which they were made. After the first that is not made again none is, so that each
    // of the rest is waited for once.
    let (mut in_flight, mut turn, mut ended) = (made, 0, false);
    while in_flight > 0 {
        match finish(requests[turn].get()) {
            Ok(0) => ended = true,
            Ok(read) => progress.count(read),
            Err(error) => result = Err(error),
        }
        in_flight -= 1;
        ended |= result.is_err() || !progress.goes_on();
        if !ended {
            result = submit(turn, &mut blocks[turn]);
            in_flight += usize::from(result.is_ok());
        }
        turn = (turn + 1) % made;
    }
    result
}

/// Waits for one request.
fn finish(request: *mut libc::aiocb) -> io::Result<usize> {
    let list = [request.cast_const()];
    loop {
        // SAFETY: the request was made, and lives.
        match unsafe { libc::aio_error(request) } {
            libc::EINPROGRESS => {
                // SAFETY: as above; without an end to the waiting.
                let _ = unsafe { libc::aio_suspend(list.as_ptr(), 1, std::ptr::null()) };
            }
            // SAFETY: it has ended, and is asked once.
            0 => return Ok(unsafe { libc::aio_return(request) } as usize),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

fn uring(
    way: Way,
    ring: IoUring,
    file: &File,
    len: u64,
    memory_bytes: u32,
    pieces: Pieces<'_>,
    progress: &mut Progress,
) -> io::Result<()> {
    let mut memory_of_all = match way {
        Way::OneBuffer => Some(memory(memory_bytes)?),
        _ => None,
    };
    let end = len.min(pieces.until.bytes);
    // Taken once: while reads are in flight, nobody may hold a reference to what they write into.
    let whole = memory_of_all.as_mut().map(|whole| {
        let blocks_bytes = end.next_multiple_of(pieces.block_bytes.into());
        assert!(blocks_bytes <= whole.len() as u64, "{blocks_bytes} bytes of {}", whole.len());
        whole.as_mut_ptr()
    });
    let fd = types::Fd(file.as_raw_fd());
    let mut buffers: Vec<Option<Buffer>> = Vec::new();
    let mut ring = ring;
    let (mut next, mut in_flight) = (0_u64, 0);
    let mut result = Ok(());
    loop {
        while in_flight < pieces.depth && next < end && result.is_ok() && progress.goes_on() {
            let start = match whole {
                // Of direct reads the last is as long as the others, and there is room for that.
                Some(start) => start.wrapping_add(next as usize),
                None => match small_memory(pieces.block_bytes) {
                    Ok(mut buffer) => {
                        let start = buffer.as_mut_ptr();
                        buffers.push(Some(buffer));
                        start
                    }
                    // What is in flight is waited for first.
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                },
            };
            let index = buffers.len().saturating_sub(1) as u64;
            let read = opcode::Read::new(fd, start, pieces.block_bytes).offset(next).build();
            // SAFETY: the memory lives until the request has ended: all of them are waited for.
            if unsafe { ring.submission().push(&read.user_data(index)) }.is_err() {
                break;
            }
            next += u64::from(pieces.block_bytes);
            in_flight += 1;
        }
        if in_flight == 0 {
            return result;
        }
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                // What is in flight cannot be waited for: its memory must stay.
                std::mem::forget((memory_of_all, buffers));
                return Err(error);
            }
            _ => {}
        }
        for entry in ring.completion() {
            in_flight -= 1;
            match entry.result() {
                read @ 0.. => progress.count(read as usize),
                error => result = Err(io::Error::from_raw_os_error(-error)),
            }
            if way == (Way::BufferPerRequest { freed: true }) {
                buffers[entry.user_data() as usize] = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn every_way_reads_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::with_random(folder.path(), (1 << 20) + 100).unwrap();
        for way in Way::ALL {
            let is_uring = matches!(way, Way::BufferPerRequest { .. } | Way::OneBuffer);
            let pieces = Pieces {
                path: scratch.path(),
                direct: false,
                block_bytes: 16 << 10,
                depth: 4,
                until: Until { bytes: u64::MAX, time: None },
            };
            match read(way, pieces) {
                Ok(sample) => assert_eq!(sample.bytes, (1 << 20) + 100, "{}", way.name()),
                // Where io_uring cannot be had.
                Err(missing @ Missing::Failed(_)) => panic!("{}: {missing:?}", way.name()),
                Err(missing) if !is_uring => panic!("{}: {missing:?}", way.name()),
                Err(missing) => eprintln!("SKIP {}: {}", way.name(), missing.why()),
            }
        }
    }
}
