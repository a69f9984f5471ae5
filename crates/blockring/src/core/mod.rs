//! The read core: one loop (`pump`) over slots of memory (`slab`) and their states (`ring`), which
//! reads extents from a supply and passes blocks to a sink.

pub(crate) mod buffer;
pub(crate) mod depth;
pub(crate) mod extents;
pub(crate) mod pump;
pub(crate) mod read_result;
mod ring;
pub(crate) mod slab;
pub(crate) mod supply;
