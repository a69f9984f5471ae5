//! What is to be known before numbers are believed, in words that say what to do.

use crate::case::{Group, Metric};
use crate::environment::Environment;
use crate::runner::{ERROR_ENOUGH, Ended};
use crate::summary::{self, Summary};

/// A change of level by this factor is said.
const STEP_MIN: f64 = 1.15;

/// Of what a cold run reads, this part must come from the disk.
const COLD_PART_MIN: f64 = 0.9;

/// What the environment does to any measurement.
pub(crate) fn of_environment(environment: &Environment) -> Vec<String> {
    let mut advice = Vec::new();
    let machine = |name: &str| environment.machine.get(name).map(String::as_str);
    if let Some(governor @ ("powersave" | "schedutil" | "ondemand" | "conservative")) =
        machine("governor")
    {
        advice.push(format!(
            "the processor's governor is {governor}, which follows the load: short runs are measured at \
             a lower frequency; `cpupower frequency-set -g performance` keeps it"
        ));
    }
    let load: Option<f64> =
        machine("load").and_then(|load| load.split(' ').next()).and_then(|load| load.parse().ok());
    if let Some(load) = load.filter(|load| *load > 1.0) {
        advice.push(format!(
            "the load was {load:.1} at the start: something else runs, or just did; measure when the \
             machine is idle"
        ));
    }
    for target in &environment.targets {
        let bytes = |name: &str| target.facts.get(name)?.split(' ').next()?.parse::<u64>().ok();
        if let (Some(length), Some(allocated)) = (bytes("length"), bytes("allocated"))
            && allocated < length / 10 * 9
        {
            advice.push(format!(
                "{} has holes, or is compressed: of {length} bytes {allocated} are on the disk, and the \
                 others are faster than it is",
                target.path
            ));
        }
    }
    if machine("virtual machine").is_some() {
        advice.push(
            "this is a virtual machine: what the host caches is not seen from here, and times drift with \
             what its neighbours do; compare only what was measured in one run"
                .to_owned(),
        );
    }
    advice
}

/// What the samples of a group look like.
pub(crate) fn of_group(group: &Group, ended: Ended) -> Vec<String> {
    let mut advice = Vec::new();
    advice.extend(outliers(group));
    advice.extend(level(group));
    advice.extend(warm_disk(group));
    if ended == Ended::Unsettled {
        let noisy: Vec<_> = group
            .cases
            .iter()
            .filter_map(|case| {
                let summary = Summary::of(&group.values(case))?;
                let noise = summary.relative_noise();
                (noise > ERROR_ENOUGH).then(|| format!("{} (±{:.0} %)", case.name, noise * 100.0))
            })
            .collect();
        advice.push(format!(
            "after the most rounds some are not known within {:.0} %: {}; take more --runs, or a quieter \
             machine",
            ERROR_ENOUGH * 100.0,
            shorten(&noisy)
        ));
    }
    advice
}

/// The first few, and how many more.
fn shorten(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn outliers(group: &Group) -> Option<String> {
    let mut found = Vec::new();
    for case in &group.cases {
        let values = group.values(case);
        let Some(summary) = Summary::of(&values).filter(|summary| summary.count >= 4) else {
            continue;
        };
        let count = values.iter().filter(|value| summary.is_outlier(**value)).count();
        if count > 0 {
            found.push(format!("{} ({count} of {})", case.name, summary.count));
        }
    }
    (!found.is_empty()).then(|| {
        format!(
            "some samples are far from the others: {}; medians bear that, but look at what else ran",
            shorten(&found)
        )
    })
}

/// All samples in the order of their time, each as a part of the median of its case: what changes there
/// is the machine, not the case.
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
    let faster = (ratio > 1.0) == group.metric.more_is_better();
    let factor = ratio.max(1.0 / ratio);
    (factor >= STEP_MIN).then(|| {
        let (what, how) = match faster {
            true => ("faster", "something else ended, or a cache filled"),
            false => ("slower", "a burst that was allowed is used up, or the device or its host throttles"),
        };
        format!(
            "from second {:.0} on everything was {factor:.2} times {what}: {how}; compare within a round, \
             and look at the minima",
            samples[at].0
        )
    })
}

/// Cold runs that the disk did not deliver.
fn warm_disk(group: &Group) -> Option<String> {
    let is_cold = |parameter: Option<&String>| parameter.is_some_and(|value| value == "cold");
    let mut found = Vec::new();
    for case in group.cases.iter().filter(|case| is_cold(case.parameters.get("cache state"))) {
        let part = case.median_of(|sample| {
            let disk = sample.disk_read_bytes?;
            (sample.bytes > 0).then(|| disk as f64 / sample.bytes as f64)
        });
        if let Some(part) = part.filter(|part| *part < COLD_PART_MIN) {
            found.push(format!("{} ({:.0} %)", case.name, part * 100.0));
        }
    }
    (!found.is_empty()).then(|| {
        format!(
            "these were to be cold, and the disk delivered only a part of what they read: {}; only root can \
             empty the page cache; holes of a file, and file systems that have no disk of this machine, \
             come from no disk",
            shorten(&found)
        )
    })
}

/// By what factor `b` is better than `a`, where their medians differ by more than the noise of both; one sample
/// cannot tell.
pub(crate) fn differ(metric: Metric, a: &[f64], b: &[f64]) -> Option<f64> {
    let (a, b) = (Summary::of(a)?, Summary::of(b)?);
    let ratio = match metric.more_is_better() {
        true => b.median / a.median,
        false => a.median / b.median,
    };
    ((a.median - b.median).abs() > a.noise() + b.noise()).then_some(ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, Chart, Sample};

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
        assert!(advice.contains("from second 60 on everything was 2.00 times slower"), "{advice}");
        let noisy = group(&[&[1.0, 2.0, 3.0]]);
        let advice = of_group(&noisy, Ended::Unsettled).join("\n");
        assert!(advice.contains("more --runs"), "{advice}");
    }

    #[test]
    fn a_cold_run_without_a_disk_is_not_believed() {
        let mut warm = group(&[&[1.0]]);
        warm.cases[0].parameters.insert("cache state".into(), "cold".into());
        warm.cases[0].samples[0].disk_read_bytes = Some(10);
        assert!(of_group(&warm, Ended::Enough)[0].contains("case 0 (10 %)"));
        warm.cases[0].samples[0].disk_read_bytes = Some(100);
        assert!(of_group(&warm, Ended::Enough).is_empty());
    }

    #[test]
    fn only_differences_beyond_the_noise_count() {
        let (even, faster, wide) = ([1.0; 5], [0.8; 5], [0.5, 0.7, 0.9, 1.2, 1.4]);
        assert_eq!(differ(Metric::Seconds, &even, &faster), Some(1.25));
        assert_eq!(differ(Metric::Seconds, &even, &wide), None);
        assert_eq!(differ(Metric::BytesPerS, &even, &faster), Some(0.8));
        assert_eq!(differ(Metric::Seconds, &even, &[0.5]), None);
    }
}
