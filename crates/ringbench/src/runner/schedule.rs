//! The order in which cases are measured, and when their samples suffice. Knows no clock and no device
//! but those of its [`Runner`], so that tests are exact.

use std::time::Duration;

use crate::model::case::{Group, Missing, Sample};
use crate::model::comparison::SAMPLES_MIN;

/// Measures the cases of one group.
pub(crate) trait Runner {
    /// Brings the machine into the state that the case starts from. Not measured.
    fn prepare(&mut self, case: usize) -> Result<(), Missing>;

    fn measure(&mut self, case: usize) -> Result<Sample, Missing>;

    fn now(&self) -> Duration;

    /// Whether the run is to end: the sample that is being taken does not count.
    fn is_interrupted(&self) -> bool;
}

/// A number of rounds: at most `max`, and fewer if `min` are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rounds {
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl Rounds {
    pub(crate) const fn fixed(rounds: u32) -> Rounds {
        Rounds { min: rounds, max: rounds }
    }

    fn is_fixed(self) -> bool {
        self.min == self.max
    }

    /// Rounds that may replace those that are left out, if their number is fixed and allows conclusions.
    pub(crate) fn spare(self) -> u32 {
        const REPLACED_MAX: u32 = 2;
        let concludes = self.is_fixed() && self.max as usize >= SAMPLES_MIN;
        if concludes { REPLACED_MAX } else { 0 }
    }
}

/// A median is known well enough if its 95 % confidence interval is within this part of it.
pub(crate) const ERROR_ENOUGH: f64 = 0.04;

/// The rounds of a group whose cases are compared: enough for a conclusion, and with a spread of 5 % enough to
/// find a difference of 10 %.
pub(crate) const ROUNDS: Rounds = Rounds { min: SAMPLES_MIN as u32, max: 15 };

/// Rounds before the first that counts: until one is less than 5 % faster than the one before it.
pub(crate) const WARM_UP: Rounds = Rounds { min: 1, max: 3 };
const WARM_UP_GAIN: f64 = 0.05;

/// How a group is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) rounds: Rounds,
    /// Rounds before the first that counts.
    pub(crate) warm_up: Rounds,
    /// No sample starts after it.
    pub(crate) deadline: Option<Duration>,
}

/// Why measuring ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Enough,
    /// After the most rounds, some medians are still uncertain.
    Unsettled,
    Deadline,
    Interrupted,
}

/// An event that observers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// This case is next.
    Starts { case: usize, round: u32, warms_up: bool },
    /// It has one more sample, or will never have one.
    Ended { case: usize },
}

/// Measures all cases of `group` in interleaved rounds, A B C, C B A, so that a drift of the machine
/// affects all alike. `observe` sees every step.
pub(crate) fn carry_out(
    group: &mut Group,
    schedule: &Schedule,
    runner: &mut dyn Runner,
    observe: &mut dyn FnMut(&Group, Step),
) -> Ended {
    let mut execution = Execution { group, deadline: schedule.deadline, runner, observe };
    execution.run(schedule).unwrap_or_else(|ended| ended)
}

struct Execution<'a> {
    group: &'a mut Group,
    deadline: Option<Duration>,
    runner: &'a mut dyn Runner,
    observe: &'a mut dyn FnMut(&Group, Step),
}

impl Execution<'_> {
    fn run(&mut self, schedule: &Schedule) -> Result<Ended, Ended> {
        let mut last_s = f64::INFINITY;
        for round in 0..schedule.warm_up.max {
            let round_s = self.round(round, true)?;
            if !schedule.warm_up.is_fixed() && round_s > last_s * (1.0 - WARM_UP_GAIN) {
                break;
            }
            last_s = round_s;
        }
        let rounds = schedule.rounds;
        for round in 0..rounds.max + rounds.spare() {
            self.round(round, false)?;
            let left_out = self.group.left_out().0.into_iter().filter(|left_out| *left_out);
            let enough = rounds.min + left_out.count() as u32;
            if round + 1 >= enough && (rounds.is_fixed() || self.is_settled()) {
                return Ok(Ended::Enough);
            }
        }
        Ok(if rounds.is_fixed() { Ended::Enough } else { Ended::Unsettled })
    }

    /// Measures each case once, every other time in reverse order, so that the state that one case leaves
    /// behind does not always affect the same one. Samples of a warm-up are not kept. Returns the time of
    /// all samples, in seconds, or why the round was not completed.
    fn round(&mut self, round: u32, warms_up: bool) -> Result<f64, Ended> {
        let mut round_s = 0.0;
        let count = self.group.cases.len();
        for place in 0..count {
            let case = if round.is_multiple_of(2) { place } else { count - 1 - place };
            if self.group.cases[case].missing.is_some() {
                continue;
            }
            self.check_end()?;
            (self.observe)(self.group, Step::Starts { case, round, warms_up });
            let sample = self.runner.prepare(case).and_then(|()| {
                let at_s = self.runner.now().as_secs_f64();
                self.runner.measure(case).map(|sample| Sample { at_s, ..sample })
            });
            // A command that Ctrl-C ended as well did not fail.
            if self.runner.is_interrupted() {
                return Err(Ended::Interrupted);
            }
            let measured = &mut self.group.cases[case];
            match sample {
                Ok(sample) => {
                    round_s += sample.wall_s;
                    if !warms_up {
                        measured.samples.push(sample);
                    }
                }
                Err(missing) => measured.missing = Some(missing),
            }
            (self.observe)(self.group, Step::Ended { case });
        }
        Ok(round_s)
    }

    fn check_end(&mut self) -> Result<(), Ended> {
        if self.runner.is_interrupted() {
            return Err(Ended::Interrupted);
        }
        if self.deadline.is_none_or(|deadline| self.runner.now() < deadline) {
            return Ok(());
        }
        for case in self.group.cases.iter_mut().filter(|case| case.samples.is_empty()) {
            let why = "the time limit was reached before its first sample";
            case.missing.get_or_insert(Missing::Unavailable(why.to_owned()));
        }
        Err(Ended::Deadline)
    }

    fn is_settled(&self) -> bool {
        let mut cases = self.group.cases.iter().filter(|case| case.missing.is_none());
        cases.all(|case| {
            let summary = self.group.summary(case);
            summary.is_none_or(|summary| summary.relative_noise() <= ERROR_ENOUGH)
        })
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
