//! What happened in a run, if the caller wants to know: statistics, and a trace of every event.

pub(crate) mod stats;
pub(crate) mod trace;
