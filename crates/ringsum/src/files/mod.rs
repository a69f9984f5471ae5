//! Many files: walking trees, and hashing files in parallel.

mod address_space;
mod descriptors;
mod long_path;
mod scheduler;
pub mod walk;

pub use self::scheduler::{
    Failure, FilesOptions, Hashed, Job, Outcome, Progress, Watch, hash_files,
    input::{InputFile, Location},
    memory_shares::small_threads_max,
    supports_sharing,
};
