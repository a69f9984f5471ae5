//! The read core: one loop (`pump`) over slots of memory (`slab`) and their states (`ring`), from a
//! supply of extents to a sink of blocks.

pub(crate) mod buffer;
pub(crate) mod extents;
pub(crate) mod pump;
pub(crate) mod rate_limit;
pub(crate) mod request;
mod ring;
pub(crate) mod slab;
pub(crate) mod supply;
