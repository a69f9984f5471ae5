//! Caveats about a run's numbers, with advice on what to do about them.

use std::collections::BTreeSet;

use super::schedule::{ERROR_ENOUGH, Ended};
use crate::model::case::{Case, Group};
use crate::model::disturbance;
use crate::model::environment::Environment;
use crate::model::summary;

/// The smallest change of level that is reported, as a factor.
const STEP_MIN: f64 = 1.15;

/// Caveats that the environment puts on any measurement.
pub(crate) fn of_environment(environment: &Environment) -> Vec<String> {
    let mut advice = Vec::new();
    let machine = |name: &str| environment.machine.get(name).map(String::as_str);
    if let Some(governor @ ("powersave" | "schedutil" | "ondemand" | "conservative")) =
        machine("governor")
    {
        advice.push(format!(
            "the CPU frequency governor is {governor}, which follows the load, so short runs are measured \
             at a lower frequency; set a fixed one with `cpupower frequency-set -g performance`"
        ));
    }
    let load: Option<f64> =
        machine("load").and_then(|load| load.split(' ').next()).and_then(|load| load.parse().ok());
    if let Some(load) = load.filter(|load| *load > 1.0) {
        advice.push(format!(
            "the load was {load:.1} at the start, so other processes run or ran just before; measure when \
             the machine is idle"
        ));
    }
    for target in &environment.targets {
        let bytes = |name: &str| target.facts.get(name)?.split(' ').next()?.parse::<u64>().ok();
        if let (Some(length), Some(allocated)) = (bytes("length"), bytes("allocated"))
            && allocated < length / 10 * 9
        {
            advice.push(format!(
                "{} has holes or is compressed: only {allocated} of its {length} bytes are on the disk, and \
                 the others read faster",
                target.path
            ));
        }
    }
    if machine("virtual machine").is_some() {
        advice.push(
            "this is a virtual machine: caches of the host are invisible, and times drift with the load of \
             its other guests; compare only numbers of one run"
                .to_owned(),
        );
    }
    advice
}

/// Caveats about the samples of a group.
pub(crate) fn of_group(group: &Group, ended: Ended) -> Vec<String> {
    let unsettled = (ended == Ended::Unsettled).then(|| unsettled(group));
    [disturbed(group), outliers(group), level(group), unsettled].into_iter().flatten().collect()
}

/// The cases for which `note` has something to say, with that; the first few, if there are many.
fn list(group: &Group, note: impl Fn(&Case) -> Option<String>) -> Option<String> {
    const SHOWN: usize = 4;
    let noted = |case: &Case| Some(format!("{} ({})", case.name, note(case)?));
    let found: Vec<_> = group.cases.iter().filter_map(noted).collect();
    let shown = found[..found.len().min(SHOWN)].join(", ");
    match found.len() {
        0 => None,
        1..=SHOWN => Some(shown),
        count => Some(format!("{shown} and {} more", count - SHOWN)),
    }
}

fn unsettled(group: &Group) -> String {
    let noisy = list(group, |case| {
        let noise = group.summary(case)?.relative_noise();
        (noise > ERROR_ENOUGH).then(|| format!("±{:.0} %", noise * 100.0))
    });
    format!(
        "some medians are still uncertain by more than {:.0} % after the maximum number of rounds: {}; use \
         more --runs, or a quieter machine",
        ERROR_ENOUGH * 100.0,
        noisy.unwrap_or_default()
    )
}

fn outliers(group: &Group) -> Option<String> {
    let found = list(group, |case| {
        let values = group.values(case);
        let summary = group.summary(case).filter(|summary| summary.count >= 4)?;
        let count = values.iter().filter(|value| summary.is_outlier(**value)).count();
        (count > 0).then(|| format!("{count} of {}", summary.count))
    });
    found
        .map(|found| format!("some samples are outliers: {found}; medians are robust against them"))
}

/// Finds a change of level in all samples in the order of time, each relative to the median of its case:
/// such a change comes from the machine, not from a case.
fn level(group: &Group) -> Option<String> {
    let mut samples: Vec<(f64, f64)> = Vec::new();
    for case in group.cases.iter().filter(|case| case.samples.len() >= 2) {
        let median = group.median(case)?;
        let value = |sample| group.metric.of(sample) / median;
        samples.extend(case.samples.iter().map(|sample| (sample.at_s, value(sample))));
    }
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    let values: Vec<f64> = samples.iter().map(|(_, value)| *value).collect();
    let (at, ratio) = summary::step(&values)?;
    let (change, why) = match (ratio > 1.0) == group.metric.more_is_better() {
        true => ("faster", "another process ended, or a cache filled up"),
        false => ("slower", "a burst allowance is used up, or the device or its host throttles"),
    };
    let factor = ratio.max(1.0 / ratio);
    (factor >= STEP_MIN).then(|| {
        format!(
            "everything was {factor:.2} times {change} from second {:.0} on: {why}; compare within a \
             round, and look at the minima",
            samples[at].0
        )
    })
}

/// Marked samples, and rounds that are left out.
fn disturbed(group: &Group) -> Option<String> {
    let marks = |case: &Case| {
        let marks = case.samples.iter().map(|sample| disturbance::of_sample(case, sample).0);
        marks.filter(|marks| !marks.is_empty()).collect::<Vec<_>>()
    };
    let names = |marks: &[Vec<&'static str>]| {
        let names: BTreeSet<&str> = marks.iter().flatten().copied().collect();
        names.into_iter().collect::<Vec<_>>().join(", ")
    };
    let (left_out, is_busy) = group.left_out();
    if is_busy {
        let all: Vec<_> = group.cases.iter().flat_map(marks).collect();
        return Some(format!(
            "more than a third of the rounds are disturbed ({}), so none is left out: the machine was busy, or \
             the page cache could not be emptied",
            names(&all)
        ));
    }
    let found = list(group, |case| {
        let marked = marks(case);
        let (count, all) = (marked.len(), case.samples.len());
        (count > 0).then(|| format!("{count} of {all}: {}", names(&marked)))
    })?;
    let rounds = match left_out.iter().filter(|left_out| **left_out).count() {
        0 => "no round is left out".to_owned(),
        count => format!("{count} of {} rounds are left out, with all cases", left_out.len()),
    };
    Some(format!("some samples are marked: {found}; {rounds}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::{Chart, Metric, Sample};

    fn group(walls: &[&[f64]]) -> Group {
        let mut group = Group::new("g", "", Metric::Seconds, Chart::Bars);
        let mut at_s = 0.0;
        group.cases = (0..walls.len()).map(|i| Case::new(format!("case {i}"))).collect();
        for round in 0..walls[0].len() {
            for (case, walls) in group.cases.iter_mut().zip(walls) {
                case.samples.push(Sample {
                    at_s,
                    wall_s: walls[round],
                    bytes: 100,
                    ..Sample::default()
                });
                at_s += 10.0;
            }
        }
        group
    }

    #[test]
    fn calm_samples_need_no_advice() {
        let calm = group(&[&[1.0, 1.01, 0.99, 1.0], &[5.0, 5.1, 5.0, 4.9]]);
        assert_eq!(of_group(&calm, Ended::Enough), [""; 0]);
    }

    #[test]
    fn each_disturbance_has_its_advice() {
        let outlier = group(&[&[1.0, 1.01, 0.99, 1.0, 3.0]]);
        assert!(of_group(&outlier, Ended::Enough)[0].contains("case 0 (1 of 5)"));
        let throttled =
            group(&[&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0], &[7.0, 7.0, 7.0, 14.0, 14.0, 14.0]]);
        let advice = of_group(&throttled, Ended::Enough).join("\n");
        assert!(advice.contains("everything was 2.00 times slower from second 60 on"), "{advice}");
        let noisy = group(&[&[1.0, 2.0, 3.0]]);
        let advice = of_group(&noisy, Ended::Unsettled).join("\n");
        assert!(advice.contains("case 0 (±") && advice.contains("more --runs"), "{advice}");
    }

    #[test]
    fn disturbed_samples_are_reported() {
        let mut cold = group(&[&[1.0; 4]]);
        cold.cases[0].parameters.insert("cache state".into(), "cold".into());
        cold.cases[0].samples.iter_mut().for_each(|sample| sample.disk_read_bytes = Some(100));
        assert!(of_group(&cold, Ended::Enough).is_empty());
        cold.cases[0].samples[1].disk_read_bytes = Some(10);
        let advice = of_group(&cold, Ended::Enough).join("\n");
        assert!(advice.contains("case 0 (1 of 4: not all from the disk)"), "{advice}");
        assert!(advice.contains("1 of 4 rounds are left out"), "{advice}");
        cold.cases[0].samples[2].disk_read_bytes = Some(10);
        let advice = of_group(&cold, Ended::Enough).join("\n");
        assert!(advice.contains("the machine was busy"), "{advice}");
    }

    #[test]
    fn only_some_of_many_cases_are_listed() {
        let many = group(&[&[1.0][..]; 6]);
        let found = list(&many, |_| Some("x".to_owned())).unwrap();
        assert!(found.ends_with("case 3 (x) and 2 more"), "{found}");
        assert_eq!(list(&many, |_| None), None);
    }
}
