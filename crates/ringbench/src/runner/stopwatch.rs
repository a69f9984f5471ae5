//! The clock of a sample: wall time, and processor time of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::model::case::Sample;

/// Runs from its creation on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    pub(crate) start: Instant,
    cpu: Duration,
}

impl Stopwatch {
    pub(crate) fn start() -> Stopwatch {
        Stopwatch { start: Instant::now(), cpu: own_cpu() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn sample(&self, bytes: u64, operations: u64) -> Sample {
        self.sample_of(self.elapsed(), bytes, operations)
    }

    /// A sample of `wall`, with all processor time from the start to now.
    pub(crate) fn sample_of(&self, wall: Duration, bytes: u64, operations: u64) -> Sample {
        let cpu_s = Some((own_cpu() - self.cpu).as_secs_f64());
        Sample { wall_s: wall.as_secs_f64(), cpu_s, bytes, operations, ..Sample::default() }
    }
}

/// Processor time of this process and all its threads, user and system.
fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
