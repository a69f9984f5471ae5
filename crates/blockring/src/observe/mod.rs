//! Optional records of a run: statistics, and a trace of every event.

pub(crate) mod stats;
pub(crate) mod trace;
