//! The plan of a workload: its groups and cases, how each is measured, and an estimate of the cost.

use std::path::PathBuf;

use super::schedule::Rounds;
use crate::model::case::{Case, Group, Missing, Sample};

pub(crate) struct GroupPlan<'a> {
    /// The group without cases, which come with the [`CasePlan`]s.
    pub(crate) group: Group,
    pub(crate) cases: Vec<CasePlan<'a>>,
    /// Files and folders whose pages are dropped or read before a sample, and whose disk is watched.
    pub(crate) paths: Vec<PathBuf>,
    /// The number of samples if the user sets none.
    pub(crate) rounds: Rounds,
    /// Whether the first rounds are slower because they are first, as with everything in memory.
    pub(crate) warms_up: bool,
}

pub(crate) struct CasePlan<'a> {
    pub(crate) case: Case,
    pub(crate) cache: Cache,
    pub(crate) cost: Cost,
    /// Measured twice in a row, and only the second sample counts.
    pub(crate) primed: bool,
    /// The last step before a sample, after the page cache was prepared. Not measured.
    pub(crate) prepare: Option<Box<dyn FnMut() + 'a>>,
    pub(crate) measure: Box<dyn FnMut() -> Result<Sample, Missing> + 'a>,
}

/// The files that are in the page cache when a sample starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cache {
    /// None.
    Cold,
    /// All.
    Warm,
    /// It does not matter: reads bypass it, or there are none.
    Any,
}

/// An estimate of the cost of one sample.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) seconds: f64,
}

/// Rate that is assumed before anything is measured, in bytes per second: that of a SATA SSD.
const ASSUMED_BYTES_PER_S: f64 = 5e8;

/// Highest rate of a single drive, in bytes per second: 16 lanes of PCI Express 4.0 have 32e9, and a drive
/// has 4 of them.
const FASTEST_BYTES_PER_S: f64 = 8e9;

impl Cost {
    /// The cost of reading these bytes once.
    pub(crate) fn read(bytes: u64) -> Cost {
        Cost { read_bytes: bytes, ..Cost::memory(bytes as f64 / ASSUMED_BYTES_PER_S + 0.5) }
    }

    /// The cost of reading for this long from the fastest device.
    pub(crate) fn time(seconds: f64) -> Cost {
        let read_bytes = (seconds * FASTEST_BYTES_PER_S) as u64;
        Cost { read_bytes, ..Cost::memory(seconds + 0.1) }
    }

    /// The cost of a sample that uses no device.
    pub(crate) fn memory(seconds: f64) -> Cost {
        Cost { seconds, ..Cost::default() }
    }

    pub(crate) fn add(&mut self, other: Cost, times: u32) {
        let add = |sum: u64, bytes: u64| sum.saturating_add(bytes.saturating_mul(times.into()));
        self.read_bytes = add(self.read_bytes, other.read_bytes);
        self.written_bytes = add(self.written_bytes, other.written_bytes);
        self.seconds += other.seconds * f64::from(times);
    }
}

impl CasePlan<'_> {
    /// How often it runs for one sample.
    pub(super) fn times(&self) -> u32 {
        if self.primed { 2 } else { 1 }
    }

    /// Estimated time of one sample, in seconds.
    pub(super) fn sample_s(&self) -> f64 {
        self.cost.seconds * f64::from(self.times())
    }
}

impl<'a> GroupPlan<'a> {
    pub(crate) fn new(group: Group, paths: &[PathBuf], rounds: Rounds) -> GroupPlan<'a> {
        let (paths, warms_up) = (paths.to_vec(), paths.is_empty());
        GroupPlan { group, cases: Vec::new(), paths, rounds, warms_up }
    }

    pub(crate) fn add(
        &mut self,
        case: Case,
        cache: Cache,
        cost: Cost,
        measure: impl FnMut() -> Result<Sample, Missing> + 'a,
    ) -> &mut CasePlan<'a> {
        let measure = Box::new(measure);
        self.cases.push(CasePlan { case, cache, cost, primed: false, prepare: None, measure });
        let last = self.cases.len() - 1;
        &mut self.cases[last]
    }

    pub(crate) fn add_missing(&mut self, case: Case, why: impl Into<String>) {
        let missing = Missing::Unavailable(why.into());
        let case = Case { missing: Some(missing.clone()), ..case };
        self.add(case, Cache::Any, Cost::default(), move || Err(missing.clone()));
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &CasePlan<'a>> {
        self.cases.iter().filter(|case| case.case.missing.is_none())
    }
}
