//! The engine contract, and the engine of each kind.
//!
//! An engine transfers requests and reports raw results, nothing else. Short reads, interruptions,
//! the end of a file and limits are handled once for all engines, in `core`.
#![allow(unsafe_code)]

pub(crate) mod copy_or_map;
#[cfg(any(test, fuzzing))]
pub(crate) mod fake;
pub(crate) mod io_uring;
pub(crate) mod libaio;
mod mmap;
mod null;
mod pool;
pub(crate) mod pread;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFlags, eventfd};

use self::copy_or_map::{CopyOrMap, CopyOrMapEngine};
use self::mmap::{MmapEngine, Windows};
use crate::config::{EngineKind, Uring};
use crate::pipe::wait_for;

/// How long to wait if the kernel cannot accept a request, and how often in a row before that is an
/// error: one second in total.
const STALL: Duration = Duration::from_millis(1);
const STALLS_MAX: u32 = 1000;

/// One read: `len` bytes at `offset` of `fd` into `buffer`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read<'fd> {
    /// Returned in the completion.
    pub(crate) slot: u32,
    pub(crate) fd: BorrowedFd<'fd>,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Null for an engine with its own memory.
    pub(crate) buffer: *mut u8,
    /// `RWF_*` of `preadv2`.
    pub(crate) flags: i32,
    /// Length of the file at its opening, in bytes.
    pub(crate) file_bytes: u64,
}

/// The completion of a read.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) slot: u32,
    /// Bytes read, 0 at the end of the file; or the kernel's error. An engine with its own memory
    /// reads everything requested, or nothing.
    pub(crate) result: io::Result<u32>,
}

/// Wakes a pump that is waiting in its engine, from another thread.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// A mechanism for passing requests to the kernel. Used only by the thread that created it.
pub(crate) trait Engine {
    /// Starts a read, or performs it and returns its completion.
    ///
    /// # Safety
    ///
    /// `read.buffer` must be valid for writes of `read.len` bytes until the completion has been
    /// returned or the engine has been dropped after a successful [`drain`](Engine::drain), and
    /// nothing else may use it until then.
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>>;

    /// Passes submitted requests to the kernel and appends completions to `done`. With `sleeps` it
    /// sleeps until there is a completion, a wake-up or a signal; it may return early without
    /// completions. An engine whose `submit` performs every read has nothing to wait for.
    fn wait(&mut self, _sleeps: bool, _done: &mut Vec<Completion>) -> io::Result<()> {
        Ok(())
    }

    /// Returns the bytes of `slot` if they are not in the slab but in the engine's own memory.
    fn block(&self, _slot: u32) -> Option<*const u8> {
        None
    }

    /// Returns what tells, once the block in `slot` has been consumed, that its bytes became invalid
    /// meanwhile; `None` if they cannot.
    fn damage(&self, _slot: u32) -> Option<&'static AtomicBool> {
        None
    }

    /// Releases the consumed block in `slot`.
    fn release(&mut self, _slot: u32) {}

    /// Cancels requests if possible and waits for the rest, at most `patience`. Returns whether
    /// none is left in flight.
    fn drain(&mut self, _in_flight: u32, _patience: Duration) -> bool {
        true
    }

    /// A function that wakes [`wait`](Engine::wait) from another thread, if that sleeps.
    fn waker(&self) -> Option<Waker> {
        None
    }
}

/// Parameters of an engine.
pub(crate) struct Setup<'a> {
    /// Most requests in flight.
    pub(crate) depth: u32,
    pub(crate) slots: u32,
    /// Memory of the slots, which outlives the engine; `None` for an engine with its own memory.
    pub(crate) slab: Option<libc::iovec>,
    /// The file that all reads are of, if it is a single file.
    pub(crate) file: Option<BorrowedFd<'a>>,
    /// Whether another thread returns slots, so that a sleeping [`Engine::wait`] must be woken by
    /// [`Engine::waker`].
    pub(crate) wakes: bool,
    pub(crate) pool_threads: u32,
    pub(crate) uring: Uring,
    /// For the engine `pread`: what decides whether a block is mapped instead.
    pub(crate) copy_or_map: Option<&'a Arc<CopyOrMap>>,
}

/// Creates an engine of this kind. The error says why it is not available, and how to fix that.
pub(crate) fn build(kind: EngineKind, setup: &Setup<'_>) -> Result<Box<dyn Engine>, String> {
    Ok(match kind {
        EngineKind::IoUring => Box::new(io_uring::IoUringEngine::new(setup)?),
        EngineKind::Libaio => Box::new(libaio::LibaioEngine::new(setup)?),
        EngineKind::Pool => Box::new(pool::PoolEngine::new(setup)?),
        // (The supply of a stream reads while it claims: its engine gets no request.)
        EngineKind::Pread | EngineKind::Stream => match CopyOrMapEngine::new(setup) {
            Some(engine) => Box::new(engine),
            None => Box::new(pread::PreadEngine),
        },
        EngineKind::Mmap => Box::new(MmapEngine::new(setup, Windows::Block)?),
        EngineKind::Null => Box::new(null::NullEngine),
    })
}

/// Creates an eventfd to wake the thread that polls it.
fn event() -> Result<Arc<OwnedFd>, String> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    eventfd(0, flags).map(Arc::new).map_err(|error| format!("eventfd: {error}"))
}

/// Returns a function that signals `event`.
fn waker_of(event: &Arc<OwnedFd>) -> Waker {
    let event = Arc::clone(event);
    Arc::new(move || {
        // It fails only if the counter is full, which means that the pump is already being woken.
        let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
    })
}

/// Sleeps until `event` is signaled, and resets it. A signal interrupts it.
fn sleep_on(event: &OwnedFd) -> io::Result<()> {
    wait_for(event.as_fd(), PollFlags::IN)?;
    // Reset it, so that the next sleep waits for the next event.
    let _ = rustix::io::read(event, &mut [0; 8]);
    Ok(())
}
