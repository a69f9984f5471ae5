//! What can be measured: one file for each subcommand, which plans its groups and draws conclusions, and
//! below them what several share.

pub(crate) mod batch;
pub(crate) mod compare;
pub(crate) mod limits;
pub(crate) mod pipe;
pub(crate) mod pool;
pub(crate) mod random;
pub(crate) mod sweep;
pub(crate) mod tune;

mod fio;
mod methods;
mod peers;
pub mod pipe_ends;
mod reading;
mod target;
