//! Measured constants: the best sizes, and the cost of reading.
//!
//! There is one built-in profile; `choose.rs` takes its numbers from the [`Profile`] it is given.
//! If a single source is read without the page cache, measurements of its device replace some of
//! them (`tuning.rs`).

/// The numbers a plan is made with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Profile {
    /// Bytes of a block of direct reads, and of reads that fill the page cache.
    pub(crate) block_bytes: u32,
    /// Bytes of a block that is in the page cache.
    pub(crate) cached_block_bytes: u32,
    /// Bytes of a block if each has a fixed cost: a disk's seek, a mapping, or a `dontcache` read.
    pub(crate) long_block_bytes: u32,
    /// Bytes in flight per thread.
    pub(crate) in_flight_bytes: u32,
    /// Most requests in flight per thread, if blocks are small.
    pub(crate) depth_max: u32,
    /// Threads of the engine `pool`.
    pub(crate) pool_threads: u32,
    /// Seconds per GiB: only the ratios matter, for files that are partly resident.
    pub(crate) cost: Cost,
}

/// Seconds per GiB.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cost {
    /// Reading from the page cache and hashing, on two cores.
    pub(crate) cached: f64,
    /// Reading directly from the device.
    pub(crate) direct: f64,
    /// Reading from the device through the page cache.
    pub(crate) fill: f64,
}

/// Measured on two cores of a virtual AMD EPYC, Linux 6.18, ext4 on virtio; medians for 1 GiB.
pub(crate) const BUILT_IN: Profile = Profile {
    // 256 KiB, 512 KiB and 1 MiB were within 5 % of each other, 128 KiB took 10 % longer. An
    // article on io_uring and BLAKE3 also found 512 KiB best on NVMe.
    block_bytes: 512 << 10,
    // A block is still in the core's own cache when it is consumed. 128 KiB to 1 MiB were within 4
    // % for 1 GiB; for 16 MiB, shared by two threads, 256 KiB took 4.7 ms and 512 KiB 5.4.
    cached_block_bytes: 256 << 10,
    // `dontcache` drops a whole read-ahead folio after the first read that touches it, and the rest is
    // read again: 128 KiB took 1.16 s per GiB and read it 1.5 times, 512 KiB 0.90 s, 4 MiB 0.42 s.
    long_block_bytes: 4 << 20,
    // In blocks of 512 KiB: 2 MiB in flight took 0.337 s, 4 MiB 0.307, 8 MiB 0.292, 16 MiB 0.309,
    // 32 MiB 0.316. Memory beyond what keeps the device busy only costs its first touch.
    in_flight_bytes: 8 << 20,
    depth_max: 128,
    pool_threads: 8,
    cost: Cost { cached: 0.09, direct: 0.29, fill: 0.60 },
};
