//! A request to stop, shared by runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop. It is shared by its clones, and by all runs whose [`Config`](crate::Config)
/// holds one of them.
///
/// Once it is [made](Stop::stop), running and later runs end with
/// [`ErrorKind::Stopped`](crate::ErrorKind::Stopped) before their next read. A run that waits for
/// the bytes of a pipe, or for a rate limit, notices it within 50 ms.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Stops all runs that share it, for good.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`stop`](Stop::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
