//! Long work beside the interpreter: without the GIL, and ended by Ctrl-C.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use blockring::Stop;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How often a call looks for a signal. A user takes Ctrl-C to work at once within 100 ms.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// How long a stopped run may take to end before its thread is left alone: the kernel cannot end a
/// read of a dead NFS server.
pub(crate) const PATIENCE: Duration = Duration::from_millis(80);

/// Runs `work` on a thread of its own and waits for it without the GIL. A Python signal handler that
/// raises, as that of Ctrl-C does, stops the run. `work` must then end at `stop`.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (send, result) = mpsc::sync_channel(1);
    let work = move || {
        // (The caller may have left.)
        let _ = send.send(work());
    };
    // Signal handlers run on the main thread, which is the one that calls: it cannot do the work.
    thread::Builder::new().name("ringsum".to_owned()).spawn(work)?;
    // `Receiver` is not `Sync`, which `detach` asks for.
    let result = std::sync::Mutex::new(result);
    let wait = |time| {
        py.detach(|| {
            result.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv_timeout(time)
        })
    };
    loop {
        match wait(TICK) {
            Ok(value) => return Ok(value),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a thread of ringsum panicked"));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(raised) = py.check_signals() {
                    stop.stop();
                    let _ = wait(PATIENCE);
                    return Err(raised);
                }
            }
        }
    }
}
