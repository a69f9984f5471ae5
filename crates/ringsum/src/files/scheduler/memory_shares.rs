//! How the memory limit of a run over many files
//! ([`Memory::limit_bytes`](blockring::Memory::limit_bytes)) is divided among its parts.
//!
//! | share | part |
//! |---|---|
//! | 1/4 | rings of the threads that read large files of the first device |
//! | 1/4 | rings and buffers of the threads that read its small files |
//! | 1/16 | the same for all other devices: each has half of the remainder, and at least 512 KiB |
//! | 1/16 | jobs that are dispatched but not yet reported |
//!
//! The rest is for the caller: [`FilesOptions::hash_one`](super::FilesOptions::hash_one), walks,
//! lists of names, and memory that is not counted (stacks, allocator overhead). `bench/RESULTS.md`
//! has measurements.

use blockring::Config;

use super::{SMALL_THREADS, SMALL_THREADS_MAX};

/// Default limit of the memory of jobs that are dispatched but not reported, in bytes. 16,384 jobs
/// take 6 MB with typical names, and would take 16 GiB with names of 1 MiB.
const UNREPORTED_BYTES: u64 = 64 << 20;

/// Default limit of the rings for large files of a device, in bytes.
const LARGE_BYTES: u64 = 1 << 30;

/// Least memory of a device for large files, in bytes: the minimum that a plan accepts.
const DEVICE_BYTES_MIN: u64 = 256 << 10;

/// Memory per thread that reads small files, in bytes: enough for full speed, and the minimum.
const SMALL_THREAD_BYTES: u64 = 768 << 10;
const SMALL_THREAD_BYTES_MIN: u64 = 128 << 10;

/// Most bytes of jobs that are dispatched but not reported.
pub(super) fn unreported_bytes(config: &Config) -> usize {
    let limit = config.memory.limit_bytes.map(|bytes| bytes / 16);
    limit.map_or(UNREPORTED_BYTES, |bytes| bytes.min(UNREPORTED_BYTES)) as usize
}

/// Returns the upper limit of [`FilesOptions::small_threads`](super::FilesOptions::small_threads)
/// with this memory limit; 1024 without one.
pub fn small_threads_max(config: &Config) -> usize {
    let threads = |bytes: u64| (bytes / 4 / SMALL_THREAD_BYTES_MIN).max(1) as usize;
    config.memory.limit_bytes.map_or(SMALL_THREADS_MAX, threads).min(SMALL_THREADS_MAX)
}

/// The share of one device.
pub(super) struct DeviceShare {
    /// Configuration for reading its files.
    pub(super) config: Config,
    /// Most bytes of the rings for large files, over all threads.
    pub(super) large_bytes: u64,
    /// Threads for small files.
    pub(super) small_threads: usize,
    /// Most bytes of each of them: half for its ring, a quarter each for a buffer and for files in
    /// the page cache. `None`: no limit.
    pub(super) small_bytes: Option<u64>,
}

impl DeviceShare {
    /// Returns the share of a device, numbered from 0. `small_threads`: an explicit number.
    pub(super) fn of(number: u32, small_threads: Option<usize>, config: &Config) -> DeviceShare {
        let Some(limit) = config.memory.limit_bytes else {
            return DeviceShare {
                config: config.clone(),
                large_bytes: LARGE_BYTES,
                small_threads: small_threads.unwrap_or(SMALL_THREADS),
                small_bytes: None,
            };
        };
        let bytes = match number {
            0 => limit / 4,
            n => (limit / 32).checked_shr(n).unwrap_or(0),
        };
        let bytes = bytes.max(DEVICE_BYTES_MIN);
        let fitting = (bytes / SMALL_THREAD_BYTES).clamp(1, SMALL_THREADS as u64) as usize;
        let most = (bytes / SMALL_THREAD_BYTES_MIN) as usize;
        let small_threads = small_threads.unwrap_or(fitting).min(most).max(1);
        DeviceShare {
            config: config.clone().with(|config| config.memory.limit_bytes = Some(bytes)),
            large_bytes: bytes,
            small_threads,
            small_bytes: Some(bytes / small_threads as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_no_more_than_their_part() {
        for mib in [4_u64, 11, 59, 500, 100_000] {
            let limit_bytes = mib << 20;
            let config =
                Config::default().with(|config| config.memory.limit_bytes = Some(limit_bytes));
            let mut all = unreported_bytes(&config) as u64;
            for number in 0..40 {
                let share = DeviceShare::of(number, None, &config);
                assert!(
                    share.small_threads as u64 * share.small_bytes.unwrap() <= share.large_bytes
                );
                // Each has at least that much, even if there are more devices than expected.
                all += 2 * (share.large_bytes - DEVICE_BYTES_MIN * u64::from(number > 0));
            }
            assert!(all <= limit_bytes / 16 * 11, "{mib} MiB: {all}");
            let most = small_threads_max(&config);
            assert_eq!(DeviceShare::of(0, Some(most), &config).small_threads, most);
        }
    }

    #[test]
    fn without_a_limit_all_get_as_much_as_is_useful() {
        let config = Config::default();
        let DeviceShare { large_bytes, small_threads, small_bytes, .. } =
            DeviceShare::of(7, None, &config);
        assert_eq!((small_threads, small_bytes, large_bytes), (SMALL_THREADS, None, LARGE_BYTES));
        assert_eq!(small_threads_max(&config), SMALL_THREADS_MAX);
    }
}
