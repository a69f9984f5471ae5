//! The facts that a plan depends on: file system, device, direct I/O, residency.
//!
//! Gathering them never fails: a fact that is not available is `None` or contains the reason.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use super::bypass;
use super::device::{Queue, SEEK_MIN, seek_between, seek_within};
use super::direct::{direct_read, open_direct};
use super::file_system::{Storage, file_system};
use super::residency::resident;
use super::{Source, SourceKind};
use crate::config::{CacheMode, Config};
use crate::sys;

/// The facts of a seekable source with content.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) len: u64,
    pub(crate) kind: SourceKind,
    pub(crate) file_system: &'static str,
    pub(crate) storage: Storage,
    /// Share of the bytes in the page cache, 0 to 1; `None` if unknown.
    pub(crate) resident: Option<f64>,
    /// Alignment of direct reads in bytes, or why they are not available.
    pub(crate) direct: Result<u32, String>,
    /// Value of `queue/rotational`; `None` if it is missing or meaningless.
    pub(crate) rotational: Option<bool>,
    /// Time of scattered direct reads of 4 KiB, the second shortest of several. Measured only if
    /// the device is reported as rotational.
    pub(crate) seek: Option<Duration>,
    /// Why `RWF_DONTCACHE` cannot be used. Determined only if it may be needed.
    pub(crate) dontcache: Result<(), String>,
    /// Why direct reads might not reach the device. Determined only if that is required.
    pub(crate) bypass: Result<(), String>,
    /// Why the device cannot be polled. Determined only if that is required.
    pub(crate) poll_queues: Result<(), String>,
}

/// Length assumed for each of many files, in bytes.
const MANY_BYTES: u64 = 1 << 30;

impl Facts {
    /// Gathers the facts of one source. Takes about 20 system calls, and three small reads of the
    /// device if it is reported as rotational. An explicit cache mode is always examined;
    /// `dontcache` otherwise only if there is no direct I/O, because examining it may read a page.
    pub(crate) fn of(source: &Source, len: u64, config: &Config) -> Facts {
        let (file_system, storage) = match source.kind() {
            SourceKind::BlockDevice => ("a block device", Storage::Local),
            _ => file_system(source.file()),
        };
        let resident = resident(source.file(), len);
        let mut facts = Facts::new(source, len, (file_system, storage), resident);
        let is_resident = facts.resident.is_some_and(|part| part >= 1.0);
        if is_resident && matches!(config.explicit_cache(), None | Some(CacheMode::Buffered)) {
            // The device will not be read; to examine it takes longer (0.3 ms) than a small file.
            facts.direct = Err("not needed, since all of it is in the page cache".to_owned());
            return facts;
        }
        facts.examine_device(source, config, |file, align, rotational| match rotational {
            true => seek_within(file, len),
            false => direct_read(file, 0, align).map(|_| None),
        });
        if let Ok(align) = facts.direct
            && !source.start().is_multiple_of(align.into())
        {
            facts.misalign(source, &format!("it is read from byte {}", source.start()), align);
        }
        facts
    }

    /// Gathers the facts of a device for many of its files, as if each were long and not in the
    /// page cache. `samples`: some of the files, none of them empty, and far from each other, which
    /// best shows whether the device is rotational.
    pub(crate) fn of_many(samples: &[Source], config: &Config) -> Facts {
        let source = &samples[0];
        let mut facts = Facts::new(source, MANY_BYTES, file_system(source.file()), Some(0.0));
        facts.examine_device(source, config, |file, align, rotational| {
            let first = direct_read(file, 0, align);
            match rotational && samples.len() >= 3 {
                true => first.and_then(|_| seek_between(samples, align)),
                false => first.map(|_| None),
            }
        });
        facts
    }

    fn new(
        source: &Source,
        len: u64,
        (file_system, storage): (&'static str, Storage),
        resident: Option<f64>,
    ) -> Facts {
        Facts {
            len,
            kind: source.kind(),
            file_system,
            storage,
            resident,
            direct: Err(format!("{file_system} has no direct I/O")),
            rotational: None,
            seek: None,
            dontcache: Ok(()),
            bypass: Ok(()),
            poll_queues: Ok(()),
        }
    }

    /// `first_reads`: performs the first direct reads, given their alignment, and returns their
    /// duration on a device that is reported as rotational. That a file could be opened for direct
    /// reads proves little (overlayfs may refuse the read instead).
    fn examine_device(
        &mut self,
        source: &Source,
        config: &Config,
        first_reads: impl Fn(&File, u32, bool) -> io::Result<Option<Duration>>,
    ) {
        let explicit = config.explicit_cache();
        if self.storage == Storage::Local || explicit == Some(CacheMode::Direct) {
            let queue = Queue::of(source.device());
            self.rotational = queue.read("rotational").map(|value| value != 0);
            self.direct = open_direct(source, &queue).and_then(|(file, align)| {
                let seek = first_reads(&file, align, self.rotational == Some(true));
                match seek.as_ref().map_err(io::Error::raw_os_error) {
                    Err(Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                        Err("direct I/O refused at the first read".to_owned())
                    }
                    // Any other failure will be reported by the run.
                    _ => {
                        self.seek = seek.ok().flatten();
                        Ok(align)
                    }
                }
            });
        }
        if self.seek.is_none() && !Queue::is_plain_disk(source.device()) {
            self.rotational = self.rotational.filter(|rotational| !rotational);
        }
        let falls_back = self.storage == Storage::Local && self.direct.is_err();
        if explicit == Some(CacheMode::Dontcache) || falls_back {
            self.dontcache = dontcache(source.file());
        }
        if config.io.bypass_cache {
            self.bypass = bypass::check(source, self.storage, self.file_system);
        }
        if config.uring.iopoll {
            self.poll_queues = Queue::of(source.device()).has_poll_queues();
        }
    }

    /// Records that direct reads do not suit the bytes to be read.
    pub(crate) fn misalign(&mut self, source: &Source, what: &str, align: u32) {
        self.direct = Err(format!("{what}, which is no multiple of {align}"));
        self.dontcache = dontcache(source.file());
    }

    /// Whether seeking is expensive on this device.
    pub(crate) fn is_rotational(&self) -> bool {
        self.rotational == Some(true) && self.seek.is_none_or(|seek| seek >= SEEK_MIN)
    }
}

/// Checks for `RWF_DONTCACHE` by requesting one byte without waiting: a kernel or file system
/// without the flag refuses it before it looks for the byte.
pub(crate) fn dontcache(file: &File) -> Result<(), String> {
    let flags = sys::RWF_DONTCACHE | libc::RWF_NOWAIT;
    match sys::pread_into(file.as_fd(), &mut [0], 0, flags) {
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Err("the file system or the kernel has no RWF_DONTCACHE (it needs Linux 6.14)"
                .to_owned())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn facts_of_a_plain_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        let source = Source::open(file.path()).unwrap();
        let facts = Facts::of(&source, 100_000, &Config::default());
        assert_eq!((facts.len, facts.kind), (100_000, SourceKind::File));
        if let Ok(align) = facts.direct {
            assert!(align.is_power_of_two() && align <= 65536, "{align}");
        }
    }
}
