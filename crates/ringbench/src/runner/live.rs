//! The [`Runner`] of the machine itself: prepares the page cache, and watches the disk.

use std::time::{Duration, Instant};

use super::cache::{self, Dropping};
use super::interrupt;
use super::plan::{Cache, GroupPlan};
use super::schedule::Runner;
use crate::model::case::{Missing, Sample};
use crate::model::environment::{CpuTimes, DiskCounter};

pub(super) struct Live<'a, 'b> {
    plan: &'b mut GroupPlan<'a>,
    /// Start of the run.
    start: Instant,
    dropping: Dropping,
    disk: Option<DiskCounter>,
    disk_before: Option<u64>,
    cpu_before: Option<CpuTimes>,
    /// Why the page cache could not be emptied, the last time.
    pub(super) not_cold: Option<anyhow::Error>,
}

impl<'a, 'b> Live<'a, 'b> {
    pub(super) fn new(plan: &'b mut GroupPlan<'a>, start: Instant, dropping: Dropping) -> Self {
        let disk = plan.paths.first().map(|path| DiskCounter::of(path));
        let (disk_before, cpu_before, not_cold) = (None, None, None);
        Live { plan, start, dropping, disk, disk_before, cpu_before, not_cold }
    }

    fn prepare_cache(&mut self, case: usize) -> Result<(), Missing> {
        match self.plan.cases[case].cache {
            Cache::Any => {}
            Cache::Cold => {
                if let Err(why) = self.dropping.drop_pages(&self.plan.paths) {
                    self.not_cold = Some(why);
                }
            }
            // Each time: a kernel may reclaim pages that were not read for some seconds (DAMON).
            Cache::Warm => cache::fill(&self.plan.paths)?,
        }
        Ok(())
    }

    fn disk_bytes(&self) -> Option<u64> {
        self.disk.as_ref().and_then(DiskCounter::read_bytes)
    }
}

impl Runner for Live<'_, '_> {
    fn prepare(&mut self, case: usize) -> Result<(), Missing> {
        self.prepare_cache(case)?;
        if self.plan.cases[case].primed {
            (self.plan.cases[case].measure)()?;
            self.prepare_cache(case)?;
        }
        if let Some(prepare) = &mut self.plan.cases[case].prepare {
            prepare();
        }
        self.disk_before = self.disk_bytes();
        self.cpu_before = CpuTimes::now();
        Ok(())
    }

    fn measure(&mut self, case: usize) -> Result<Sample, Missing> {
        let sample = (self.plan.cases[case].measure)()?;
        let counts = self.disk_bytes().zip(self.disk_before);
        let delivered = counts.map(|(after, before)| after.saturating_sub(before));
        let others = CpuTimes::now().zip(self.cpu_before).map(|(now, before)| now.since(before));
        let (steal_s, others_cpu_s) = others.unzip();
        let disk_read_bytes = sample.disk_read_bytes.or(delivered);
        Ok(Sample { disk_read_bytes, steal_s, others_cpu_s, ..sample })
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_interrupted()
    }
}
