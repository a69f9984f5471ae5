//! Measured constants: the best sizes, and when direct reads are faster.
//!
//! Measured on two cores of a virtual AMD EPYC, Linux 6.18, ext4 on virtio; medians for 1 GiB. If a
//! single source is read without the page cache, measurements of its device replace some of them
//! (`tuning.rs`).

/// Bytes of a block of direct reads, and of reads that fill the page cache. 256 KiB, 512 KiB and
/// 1 MiB were within 5 % of each other, 128 KiB took 10 % longer. An article on io_uring and BLAKE3
/// also found 512 KiB best on NVMe.
pub(crate) const BLOCK_BYTES: u32 = 512 << 10;

/// Bytes of a block that is in the page cache: it is still in the core's own cache when it is
/// consumed. 128 KiB to 1 MiB were within 4 % for 1 GiB; for 16 MiB, shared by two threads, 256 KiB
/// took 4.7 ms and 512 KiB 5.4.
pub(crate) const CACHED_BLOCK_BYTES: u32 = 256 << 10;

/// Bytes of a block if each has a fixed cost: a disk's seek, a mapping, or a `dontcache` read, which
/// drops a whole read-ahead folio after the first read that touches it, and the rest is read again:
/// 128 KiB took 1.16 s per GiB and read it 1.5 times, 512 KiB 0.90 s, 4 MiB 0.42 s.
pub(super) const LONG_BLOCK_BYTES: u32 = 4 << 20;

/// Bytes in flight per thread. In blocks of 512 KiB: 2 MiB in flight took 0.337 s, 4 MiB 0.307,
/// 8 MiB 0.292, 16 MiB 0.309, 32 MiB 0.316. Memory beyond what keeps the device busy only costs its
/// first touch.
pub(super) const IN_FLIGHT_BYTES: u32 = 8 << 20;

/// Most requests in flight per thread, if blocks are small.
pub(super) const DEPTH_MAX: u32 = 128;

/// Threads of the engine `pool`.
pub(super) const POOL_THREADS: u32 = 8;

/// Whether direct reads of a file are expected to take no longer than reads through the page cache,
/// which has this share of the file.
pub(crate) fn direct_is_faster(resident: f64) -> bool {
    // Seconds per GiB, of which only the ratios matter: from the page cache with hashing on two
    // cores, directly from the device, and from the device through the page cache.
    const CACHED: f64 = 0.09;
    const DIRECT: f64 = 0.29;
    const FILL: f64 = 0.60;
    resident * CACHED + (1.0 - resident) * FILL >= DIRECT
}
