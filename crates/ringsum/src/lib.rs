//! BLAKE3 and other digests of files, trees, block devices and pipes: at full disk bandwidth, on
//! all cores, with bounded memory and strictly sequential reads.
//!
//! ```
//! # fn main() -> Result<(), ringsum::Error> {
//! println!("{}", ringsum::hash_file("/proc/self/exe")?);
//! # Ok(())
//! # }
//! ```
//!
//! [`digest_file`] computes several digests in one pass, and [`update_from_file`] feeds your own:
//! `examples/crc64.rs` is an example. [`hash_reader`] and [`digest_bytes`] hash what is no file.
//! [`files`] walks trees and hashes many files in parallel, and [`checkfile`] reads and writes the
//! lines of checksum files.
//!
//! A digest is returned only if all bytes were read from one file that did not change meanwhile, as
//! far as size, mtime and ctime show; otherwise there is an error.
//!
//! Parts can be hashed separately, on several machines too: [`left_subtree_len`] says where to split,
//! [`hash_range`] returns the chaining value of a range, and [`Tree`] merges such values into the
//! hash of the whole. `examples/ranges.rs` is an example. An [`OutboardWriter`] keeps the
//! nodes of the tree, in the layout of the crate `bao`, and [`bad_ranges`] finds damaged bytes with
//! them.

pub mod checkfile;
pub mod files;
mod hash;
#[cfg(feature = "tuned")]
pub mod tuned;

pub use {
    blockring::{self, Config},
    hash::{
        BadRanges, Error, Mode, Options,
        algorithm::{Algorithm, Algorithms},
        damage::bad_ranges,
        digest::{Digest, Digests},
        digest_bytes, digest_file, digest_planned, digest_scan, digest_source, digest_tee,
        hash_file, hash_range,
        multi_buffer::MultiBuffer,
        outboard::{Outboard, OutboardWriter},
        plan,
        reader::{digest_reader, hash_reader},
        resume::Resume,
        tree::{Subtree, Tree, TreeError, left_subtree_len},
        update_from_file,
    },
};

/// Locks a mutex, even if a thread panicked while holding it.
fn lock<X>(mutex: &std::sync::Mutex<X>) -> std::sync::MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the repository's README, as tests. (The package does not have that file.)
#[cfg(all(doctest, in_repository))]
#[allow(rustdoc::invalid_codeblock_attributes)]
#[doc = include_str!("../../../README.md")]
struct FrontPage;
