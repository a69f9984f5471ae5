//! Many files: walking trees, hashing files in parallel, and digests of whole trees.

mod long_path;
mod scheduler;
mod threads;
mod tree_digest;
pub mod walk;

pub use self::scheduler::{
    BAD_RANGES_MAX, BadRanges, Cached, Failure, FilesOptions, HashOne, Hashed, InputFile, Job, Location,
    Outcome, Phase, Progress, Replacement, RetryAfter, SMALL_THREADS_MAX, StopHandle, Watch,
    hash_files, small_threads_max, supports_sharing,
};
pub use self::tree_digest::{Node, Special, TreeDigest};

/// File descriptors of the process that are neither files to hash nor directories: its standard streams,
/// eventfds, a list.
const OTHER_DESCRIPTORS: u64 = 8;
