//! What a run consists of: groups of cases and their samples, statistics over samples, the environment
//! in which they were taken, and the file that keeps all of it. Measures and draws nothing.

pub(crate) mod case;
pub(crate) mod comparison;
pub(crate) mod disturbance;
pub(crate) mod environment;
pub(crate) mod output_file;
pub(crate) mod prediction;
pub(crate) mod run_file;
pub(crate) mod summary;
pub(crate) mod units;
