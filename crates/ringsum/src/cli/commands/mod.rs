//! The operations of the command, one file each.

pub(crate) mod algorithms;
pub(crate) mod check;
pub(crate) mod hash;
mod print;
pub(crate) mod tee;
mod tree_digest;
mod unlisted;
