//! The order in which cases are measured, and when that is enough. Knows no clock and no device but those
//! of its [`Runner`], so that all of it can be tested exactly.

use std::time::Duration;

use crate::case::{Group, Missing, Sample};
use crate::summary::Summary;

/// What carries out the cases of one group.
pub(crate) trait Runner {
    /// Brings the machine into the state that the case starts from. Not measured.
    fn prepare(&mut self, case: usize) -> Result<(), Missing>;

    fn measure(&mut self, case: usize) -> Result<Sample, Missing>;

    /// Since the run began.
    fn now(&self) -> Duration;

    /// Whether somebody wants it to end: what is measured at that moment does not count.
    fn is_interrupted(&self) -> bool;
}

/// How often each case is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// So many times.
    Fixed(u32),
    /// Until the medians are known well enough, within these limits.
    Auto { min: u32, max: u32 },
}

impl Rounds {
    pub(crate) fn max(self) -> u32 {
        match self {
            Rounds::Fixed(rounds) | Rounds::Auto { max: rounds, .. } => rounds,
        }
    }
}

/// A value is known well enough when its 95 % confidence interval reaches this part of it to either side.
pub(crate) const ERROR_ENOUGH: f64 = 0.04;

/// Rounds that do not count, before the first that does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WarmUp {
    Fixed(u32),
    /// Until a round is not faster than the one before it by a twentieth any more, but at most three.
    Auto,
}

pub(crate) const WARM_UP_ROUNDS_MAX: u32 = 3;
const WARM_UP_GAIN: f64 = 0.05;

/// How a group is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) rounds: Rounds,
    pub(crate) warm_up: WarmUp,
    /// Nothing is begun after it.
    pub(crate) deadline: Option<Duration>,
}

/// Why measuring ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Enough,
    /// After the most rounds, some medians are still not known well.
    Unsettled,
    Deadline,
    Interrupted,
}

/// What can be seen of measuring while it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// This case is next.
    Begins { case: usize, round: u32, warms_up: bool },
    /// It has a sample more, or will never have one.
    Ended { case: usize },
}

/// Measures all cases of `group` in turn, A B C, C B A, so that a drift of the machine hits all alike.
///
/// # Errors
///
/// What `watch` says: it is told of every step, and ends it all.
pub(crate) fn carry_out(
    group: &mut Group,
    schedule: &Schedule,
    runner: &mut dyn Runner,
    watch: &mut dyn FnMut(&Group, Step) -> anyhow::Result<()>,
) -> anyhow::Result<Ended> {
    if let Some(ended) = warm_up(group, schedule, runner, watch)? {
        return Ok(ended);
    }
    for round in 0..schedule.rounds.max() {
        if let Round::Ended(ended) = go_round(group, round, false, schedule, runner, watch)? {
            return Ok(ended);
        }
        if let Rounds::Auto { min, .. } = schedule.rounds
            && round + 1 >= min
            && is_settled(group)
        {
            return Ok(Ended::Enough);
        }
    }
    match schedule.rounds {
        Rounds::Fixed(_) => Ok(Ended::Enough),
        Rounds::Auto { .. } if is_settled(group) => Ok(Ended::Enough),
        Rounds::Auto { .. } => Ok(Ended::Unsettled),
    }
}

fn warm_up(
    group: &mut Group,
    schedule: &Schedule,
    runner: &mut dyn Runner,
    watch: &mut dyn FnMut(&Group, Step) -> anyhow::Result<()>,
) -> anyhow::Result<Option<Ended>> {
    let mut last = f64::INFINITY;
    let rounds = match schedule.warm_up {
        WarmUp::Fixed(rounds) => rounds,
        WarmUp::Auto => WARM_UP_ROUNDS_MAX,
    };
    for round in 0..rounds {
        let took = match go_round(group, round, true, schedule, runner, watch)? {
            Round::Took(seconds) => seconds,
            Round::Ended(ended) => return Ok(Some(ended)),
        };
        if schedule.warm_up == WarmUp::Auto && took > last * (1.0 - WARM_UP_GAIN) {
            break;
        }
        last = took;
    }
    Ok(None)
}

/// What became of a round.
enum Round {
    /// All cases were measured, in so many seconds.
    Took(f64),
    /// It came to an end before the last.
    Ended(Ended),
}

/// Measures each case once; every other time from the last to the first, so that what one leaves behind for
/// the next does not always hit the same. What only warms up is not kept.
fn go_round(
    group: &mut Group,
    round: u32,
    warms_up: bool,
    schedule: &Schedule,
    runner: &mut dyn Runner,
    watch: &mut dyn FnMut(&Group, Step) -> anyhow::Result<()>,
) -> anyhow::Result<Round> {
    let mut took = 0.0;
    let count = group.cases.len();
    for place in 0..count {
        let case = if round.is_multiple_of(2) { place } else { count - 1 - place };
        if group.cases[case].missing.is_some() {
            continue;
        }
        if runner.is_interrupted() {
            return Ok(Round::Ended(Ended::Interrupted));
        }
        if schedule.deadline.is_some_and(|deadline| runner.now() >= deadline) {
            for case in group.cases.iter_mut().filter(|case| case.samples.is_empty()) {
                let why = "the limit on time was reached before it was its turn";
                case.missing.get_or_insert(Missing::Unavailable(why.to_owned()));
            }
            return Ok(Round::Ended(Ended::Deadline));
        }
        watch(group, Step::Begins { case, round, warms_up })?;
        let sample = runner.prepare(case).and_then(|()| {
            let at_s = runner.now().as_secs_f64();
            runner.measure(case).map(|sample| Sample { at_s, ..sample })
        });
        // A command that Ctrl-C has ended, too, did not fail.
        if runner.is_interrupted() {
            return Ok(Round::Ended(Ended::Interrupted));
        }
        match sample {
            Ok(sample) => {
                took += sample.wall_s;
                if !warms_up {
                    group.cases[case].samples.push(sample);
                }
            }
            Err(missing) => group.cases[case].missing = Some(missing),
        }
        watch(group, Step::Ended { case })?;
    }
    Ok(Round::Took(took))
}

fn is_settled(group: &Group) -> bool {
    let mut cases = group.cases.iter().filter(|case| case.missing.is_none());
    cases.all(|case| {
        Summary::of(&group.values(case))
            .is_none_or(|summary| summary.relative_noise() <= ERROR_ENOUGH)
    })
}

#[cfg(test)]
#[path = "runner_tests.rs"]
mod tests;
