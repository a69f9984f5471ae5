//! The operations of the command, one file each.

pub(crate) mod algorithms;
pub(crate) mod bad_ranges;
pub(crate) mod check;
pub(crate) mod hash;
pub(crate) mod tee;
mod unlisted;
