//! What to hash or check: trees, lists of names, checksum files.

pub(crate) mod lines;
pub(crate) mod lists;
mod selection;
pub(crate) mod stat_ahead;
pub(crate) mod trees;
