//! Many files: walking trees, hashing files in parallel, and digests of whole trees.

mod long_path;
mod scheduler;
mod threads;
mod tree_digest;
pub mod walk;

pub use self::scheduler::{
    Failure, FilesOptions, Hashed, Job, Outcome, Phase, Progress, Replacement, Watch, hash_files,
    input::{InputFile, Location},
    shares::small_threads_max,
    supports_sharing,
};
pub use self::tree_digest::{Node, TreeDigest};

/// File descriptors of the process that are neither files to hash nor directories: its standard streams,
/// eventfds, a list.
const OTHER_DESCRIPTORS: u64 = 8;
