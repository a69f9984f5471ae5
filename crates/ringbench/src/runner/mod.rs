//! Carries out what a workload plans: checks the plan against the limits, orders the samples in
//! interleaved rounds, prepares the page cache, runs other programs and threads, writes every sample down,
//! and reports caveats. Knows how to measure, not what.

mod advice;
mod cache;
pub(crate) mod interrupt;
mod live;
pub(crate) mod plan;
pub(crate) mod process;
mod progress;
mod schedule;
pub(crate) mod scratch;
mod session;
mod stopwatch;
mod together;

pub(crate) use self::cache::each_file;
pub(crate) use self::plan::{Cache, Cost, GroupPlan};
#[cfg(test)]
pub(crate) use self::schedule::ERROR_ENOUGH;
pub(crate) use self::schedule::{ROUNDS, Rounds};
pub(crate) use self::session::Session;
pub(crate) use self::stopwatch::Stopwatch;
pub(crate) use self::together::together;
