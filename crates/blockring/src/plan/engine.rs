//! The choice of the engine, and the next best one if it is not available.

use super::choose::{Chooser, EXPLICIT};
use crate::config::{CacheMode, EngineKind, Uring};
use crate::error::ErrorKind;
use crate::source::file_system::Storage;

const PINNED_ONLY: &str = "btrfs reliably bypasses the page cache only into pinned memory";

impl Chooser<'_> {
    pub(super) fn engine(&mut self, cache: CacheMode) -> Result<EngineKind, ErrorKind> {
        let (engine, why) = match self.config.explicit_engine() {
            None if self.must_pin() => {
                let engine = EngineKind::IoUring;
                self.usable(engine).map_err(|why| ErrorKind::Engine { engine, why })?;
                (engine, PINNED_ONLY.to_owned())
            }
            Some(engine) if self.must_pin() && engine != EngineKind::IoUring => {
                return Err(ErrorKind::BypassCache(format!(
                    "{PINNED_ONLY}, and {engine} has none; use the engine io_uring"
                )));
            }
            Some(engine) => {
                self.usable(engine).map_err(|why| ErrorKind::Engine { engine, why })?;
                (engine, EXPLICIT.to_owned())
            }
            None if self.waits_for_device(cache) => match &self.tuning {
                Some(tuning) => self.tuned_engine(tuning, cache),
                None => self.asynchronous(cache),
            },
            None if cache == CacheMode::Direct || self.fills(cache) => {
                let why =
                    format!("{}: each read in flight has a thread that waits for it", self.facts.file_system);
                (EngineKind::Pool, why)
            }
            None if self.may_map() => (
                EngineKind::Pread,
                "no device to wait for: each thread copies a block into its CPU cache, or maps it, \
                 whichever is faster for the first blocks"
                    .to_owned(),
            ),
            None => (
                EngineKind::Pread,
                "no device to wait for: each thread copies a block into its CPU cache and consumes it there".to_owned(),
            ),
        };
        self.note("engine", engine.name(), why);
        Ok(engine)
    }

    /// Whether the slots must be pinned: if a page of memory does not exist yet, btrfs silently
    /// reads the rest through the page cache (`btrfs_direct_read` of Linux 6.18).
    fn must_pin(&self) -> bool {
        self.config.io.bypass_cache && self.facts.file_system == "btrfs"
    }

    /// Returns the options of io_uring.
    pub(super) fn uring(&self) -> Uring {
        let explicit = self.config.uring;
        Uring { fixed_buffers: explicit.fixed_buffers || self.must_pin(), ..explicit }
    }

    /// Checks that an engine is available with the explicit options.
    pub(super) fn usable(&self, engine: EngineKind) -> Result<(), String> {
        match engine {
            EngineKind::IoUring => {
                // Without the page cache, reads that a FUSE server answers partially are reported
                // as complete (Linux 6.18, six of 512 KiB answered with 100 KB each): a wrong hash.
                let on = match self.facts.storage {
                    Storage::Fuse => Some("on FUSE"),
                    Storage::Unknown => Some("the layer below is unknown, and on FUSE"),
                    _ => None,
                };
                if let Some(on) = on {
                    return Err(format!(
                        "{on} the kernel does not report short reads to it; use the engine pool"
                    ));
                }
                if self.config.uring.iopoll {
                    self.facts.poll_queues.clone()?;
                }
                (self.system.io_uring)(&self.config.uring)
            }
            EngineKind::Libaio => (self.system.libaio)(),
            EngineKind::Pool | EngineKind::Pread | EngineKind::Stream => Ok(()),
            EngineKind::Mmap | EngineKind::Null => Ok(()),
        }
    }

    /// Returns the first available engine that keeps a device busy from one thread.
    pub(super) fn asynchronous(&self, cache: CacheMode) -> (EngineKind, String) {
        let no_uring = match self.usable(EngineKind::IoUring) {
            Ok(()) => {
                let why = "many reads in flight keep the device busy";
                return (EngineKind::IoUring, why.to_owned());
            }
            Err(why) => why,
        };
        match cache {
            // Through the page cache libaio is not asynchronous.
            CacheMode::Direct => match self.usable(EngineKind::Libaio) {
                Ok(()) => (EngineKind::Libaio, format!("no io_uring: {no_uring}")),
                Err(why) => {
                    (EngineKind::Pool, format!("no io_uring: {no_uring}; no libaio: {why}"))
                }
            },
            _ => (EngineKind::Pool, format!("no io_uring: {no_uring}")),
        }
    }
}

/// Returns the engine to use instead of one that turns out not to be available.
pub(super) fn next_best(engine: EngineKind, cache: CacheMode) -> Option<EngineKind> {
    match engine {
        EngineKind::IoUring if cache == CacheMode::Direct => Some(EngineKind::Libaio),
        EngineKind::IoUring | EngineKind::Libaio => Some(EngineKind::Pool),
        EngineKind::Pool => Some(EngineKind::Pread),
        EngineKind::Pread | EngineKind::Stream | EngineKind::Mmap | EngineKind::Null => None,
    }
}
