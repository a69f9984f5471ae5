//! BLAKE3 and other digests of files, trees, block devices and pipes: at full disk bandwidth, on all
//! cores, with bounded memory and strictly sequential reads.
//!
//! ```
//! # fn main() -> Result<(), ringsum::Error> {
//! println!("{}", ringsum::hash_file("/proc/self/exe")?);
//! # Ok(())
//! # }
//! ```
//!
//! [`digest_file`] computes several digests in one pass, and [`update_from_file`] your own:
//! `examples/crc64.rs` is one. [`files`] walks trees and hashes many files in parallel, and [`checkfile`]
//! reads and writes the lines of checksum files.
//!
//! A digest is returned only for bytes that were all read from one file, unchanged meanwhile as far as
//! size, mtime and ctime show; otherwise there is an error.
//!
//! Parts can be hashed elsewhere, or earlier: [`hash_range`] returns the chaining value of an aligned
//! range, and [`Tree`] merges such values to the hash of the whole.

pub mod checkfile;
pub mod files;
mod hash;
#[cfg(feature = "tuned")]
pub mod tuned;

pub use blockring::{self, Config};
pub use hash::{
    BadRanges, Error, Mode, Options,
    algorithm::{Algorithm, Algorithms},
    digest::{Digest, Digests},
    digest_bytes, digest_file, digest_planned, digest_scan, digest_source, digest_tee, hash_file, hash_range,
    multi_buffer::MultiBuffer,
    plan,
    tree::{Subtree, Tree, TreeError},
    update_from_file,
};
