//! What to hash or check: trees, lists of names, checksum files.

pub(crate) mod check_lists;
pub(crate) mod lines;
mod selection;
pub(crate) mod stat_ahead;
pub(crate) mod trees;
