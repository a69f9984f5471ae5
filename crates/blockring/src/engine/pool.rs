//! Many reads in flight, each a blocking `preadv2` on one of several threads: for file systems
//! whose reads cannot be asynchronous, and for kernels without io_uring.
//!
//! A thread is started if there is a read and all others are busy. Idle threads sleep.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Completion, Engine, Read, Setup, Waker};
use crate::{lock, sys};

/// The engine with a pool of threads.
pub(crate) struct PoolEngine {
    shared: Arc<PoolQueues>,
    threads: Vec<JoinHandle<()>>,
    threads_max: u32,
}

#[derive(Default)]
struct PoolQueues {
    state: Mutex<Queues>,
    /// A read was submitted, or the pool was closed.
    submitted: Condvar,
    /// A read completed, or another thread wakes the pump.
    completed: Condvar,
}

#[derive(Default)]
struct Queues {
    reads: VecDeque<Task>,
    done: Vec<Completion>,
    /// Number of threads in a read.
    reading: u32,
    /// Number of threads waiting for a read.
    idle: u32,
    woken: bool,
    closed: bool,
}

/// A read for another thread. The submitter keeps its file open, unless a drain gives up.
struct Task(Read<'static>);

// SAFETY: until its completion, the memory of a read belongs to the thread that performs it.
unsafe impl Send for Task {}

impl PoolQueues {
    /// Body of each thread.
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if state.closed {
                return;
            }
            let Some(task) = state.reads.pop_front() else {
                state.idle += 1;
                state = self.submitted.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            state.reading += 1;
            drop(state);
            let Task(Read { slot, fd, offset, len, buffer, flags, .. }) = task;
            // SAFETY: the submitter keeps the memory valid until the completion, or leaks it. It
            // also keeps the file open, unless this thread is delayed between taking its task and
            // this call for longer than a drain waits: then whichever file has this descriptor is
            // read into leaked memory.
            let result = unsafe { sys::pread(fd, buffer, len as usize, offset, flags) };
            // It fits, because the requested length is a u32.
            let result = result.map(|n| n as u32);
            state = lock(&self.state);
            state.reading -= 1;
            state.done.push(Completion { slot, result });
            self.completed.notify_one();
        }
    }
}

impl PoolEngine {
    /// Starts the first thread; others are started on demand.
    pub(crate) fn new(setup: &Setup<'_>) -> Result<PoolEngine, String> {
        // More threads than requests would never all be busy.
        let threads_max = setup.pool_threads.min(setup.depth);
        let mut engine = PoolEngine { shared: Arc::default(), threads: Vec::new(), threads_max };
        engine.start_thread().map_err(|error| format!("no thread can be started: {error}"))?;
        Ok(engine)
    }

    fn start_thread(&mut self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let builder = thread::Builder::new().name("blockring-pool".to_owned());
        self.threads.push(builder.spawn(move || shared.work())?);
        Ok(())
    }
}

impl Engine for PoolEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        // SAFETY: the file stays open until the read is over, or a drain has given up: see `work`.
        let fd = unsafe { BorrowedFd::borrow_raw(read.fd.as_raw_fd()) };
        let mut state = lock(&self.shared.state);
        state.reads.push_back(Task(Read { fd, ..read }));
        let more_than_idle = state.reads.len() > state.idle as usize;
        drop(state);
        if more_than_idle && (self.threads.len() as u32) < self.threads_max {
            // If it cannot be started, the others do its work.
            let _ = self.start_thread();
        }
        self.shared.submitted.notify_one();
        Ok(None)
    }

    fn wait(&mut self, sleeps: bool, done: &mut Vec<Completion>) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        while sleeps && state.done.is_empty() && !state.woken {
            state = self.shared.completed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.woken = false;
        done.append(&mut state.done);
        Ok(())
    }

    fn drain(&mut self, _in_flight: u32, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = lock(&self.shared.state);
        // No thread has started on these.
        state.reads.clear();
        while state.reading > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.shared.completed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn waker(&self) -> Option<Waker> {
        let shared = Arc::clone(&self.shared);
        Some(Arc::new(move || {
            lock(&shared.state).woken = true;
            shared.completed.notify_one();
        }))
    }
}

impl Drop for PoolEngine {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        state.closed = true;
        state.reads.clear();
        let stuck = state.reading > 0;
        drop(state);
        self.shared.submitted.notify_all();
        if stuck {
            // The drain timed out. The threads end when their reads end, if ever.
            return;
        }
        for thread in self.threads.drain(..) {
            // It does not panic.
            let _ = thread.join();
        }
    }
}
