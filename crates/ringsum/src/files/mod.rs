//! Many files: walking trees, hashing files in parallel, and digests of whole trees.

mod address_space;
mod descriptors;
mod long_path;
mod scheduler;
mod tree_digest;
pub mod walk;

pub use self::{
    scheduler::{
        Failure, FilesOptions, Hashed, Job, Outcome, Progress, Watch, hash_files,
        input::{InputFile, Location},
        memory_shares::small_threads_max,
        supports_sharing,
    },
    tree_digest::{Node, TreeDigest},
};
