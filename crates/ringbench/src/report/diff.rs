//! `ringbench diff`: two runs of one command, the cases that they share, and the differences beyond the
//! noise.

use anyhow::bail;

use super::table::{Cell, Column, Table};
use super::text::Text;
use crate::cli::args::DiffArgs;
use crate::model::case::{Group, Metric};
use crate::model::environment::{Environment, Facts};
use crate::model::run_file::Run;
use crate::model::summary::Summary;

pub(crate) fn run(args: &DiffArgs) -> anyhow::Result<()> {
    let (old, new) = (Run::read(&args.old)?, Run::read(&args.new)?);
    if old.workload != new.workload {
        bail!("a run of {} cannot be compared with one of {}", old.workload, new.workload);
    }
    super::write_to_stdout(&of_runs(&old, &new))
}

/// A case of the new run compared with that of the old one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// By this factor.
    Faster(f64),
    Slower(f64),
    WithinNoise,
    /// With one sample, the noise is unknown.
    OneSample,
}

impl Verdict {
    fn of(metric: Metric, old: &[f64], new: &[f64]) -> Verdict {
        match metric.gain(old, new) {
            _ if old.len() < 2 || new.len() < 2 => Verdict::OneSample,
            Some(ratio) if ratio > 1.0 => Verdict::Faster(ratio),
            Some(ratio) => Verdict::Slower(1.0 / ratio),
            None => Verdict::WithinNoise,
        }
    }

    fn show(self) -> String {
        match self {
            Verdict::Faster(by) => format!("{by:.2} times faster"),
            Verdict::Slower(by) => format!("{by:.2} times slower"),
            Verdict::WithinNoise => "within the noise".to_owned(),
            Verdict::OneSample => "unknown: one sample".to_owned(),
        }
    }
}

/// The groups that both runs have, the number of cases that changed, and the facts of the environment that
/// differ.
pub(crate) fn of_runs(old: &Run, new: &Run) -> String {
    let (mut text, mut verdicts) = (Text::default(), Vec::new());
    for a in &old.groups {
        // A group of this name with another metric is another group.
        let is_same = |b: &&Group| (&b.name, b.metric) == (&a.name, a.metric);
        let Some(b) = new.groups.iter().find(is_same) else { continue };
        let table = compare(a, b, &mut verdicts);
        if !table.rows.is_empty() {
            text.line(&a.name);
            text.write_table(&table);
            text.line("");
        }
    }
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    text.line(&format!(
        "{} cases in both: {} faster, {} slower, {} within the noise, {} with one sample",
        verdicts.len(),
        count(|verdict| matches!(verdict, Verdict::Faster(_))),
        count(|verdict| matches!(verdict, Verdict::Slower(_))),
        count(|verdict| *verdict == Verdict::WithinNoise),
        count(|verdict| *verdict == Verdict::OneSample),
    ));
    let facts = different_facts(&old.environment, &new.environment);
    text.write_list("The environment differs", &facts);
    text.text
}

/// A row for each case of both groups; its verdict is added to `verdicts`.
fn compare(old: &Group, new: &Group, verdicts: &mut Vec<Verdict>) -> Table {
    let numbers = ["old", "range", "new", "range", "change"].map(Column::number);
    let columns = [Column::text("case")].into_iter().chain(numbers).collect();
    let mut table = Table { columns, ..Table::default() };
    for case in &old.cases {
        let Some(other) = new.case(&case.name) else { continue };
        let (a, b) = (old.values(case), new.values(other));
        if a.is_empty() || b.is_empty() {
            continue;
        }
        let verdict = Verdict::of(old.metric, &a, &b);
        let cells = |values| Cell::median_and_range(old.metric, Summary::of(values).as_ref());
        let mut row = vec![Cell::text(&case.name)];
        row.extend(cells(&a).into_iter().chain(cells(&b)));
        row.push(Cell::text(&verdict.show()));
        table.rows.push(row);
        verdicts.push(verdict);
    }
    table
}

/// The facts of the machine, and of the first target, that are not the same.
fn different_facts(old: &Environment, new: &Environment) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |old: &Facts, new: &Facts| {
        for (name, value) in old {
            // The load, and the memory that is free, are never the same.
            let changes = matches!(&name[..], "load" | "memory available");
            if let Some(other) = new.get(name).filter(|other| *other != value && !changes) {
                found.push(format!("{name}: {value}, then {other}"));
            }
        }
    };
    compare(&old.machine, &new.machine);
    if let (Some(old), Some(new)) = (old.targets.first(), new.targets.first()) {
        compare(&old.facts, &new.facts);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn only_differences_beyond_the_noise_count() {
        let seconds = |a: &[f64], b: &[f64]| Verdict::of(Metric::Seconds, a, b);
        let (even, noisy) = ([1.0; 5], [0.5, 0.7, 0.9, 1.2, 1.4]);
        assert_eq!(seconds(&even, &[0.8; 5]), Verdict::Faster(1.25));
        assert_eq!(seconds(&even, &[2.0; 5]), Verdict::Slower(2.0));
        assert_eq!(seconds(&even, &noisy), Verdict::WithinNoise);
        assert_eq!(seconds(&even, &even), Verdict::WithinNoise);
        assert_eq!(seconds(&even, &[0.1]), Verdict::OneSample);
        let rate = Verdict::of(Metric::BytesPerS, &even, &[2.0; 5]);
        assert_eq!(rate, Verdict::Faster(2.0));
    }

    #[test]
    fn cases_of_both_runs_are_compared() {
        let mut after = fixture::run_after();
        after.environment.machine.insert("kernel".into(), "Linux 6.18 x86_64".into());
        let text = of_runs(&fixture::run(), &after);
        for part in [
            " 1.25 times faster\n",
            " within the noise\n",
            "2 cases in both: 1 faster, 0 slower, 1 within the noise, 0 with one sample\n",
            "kernel: Linux 6.12 x86_64, then Linux 6.18 x86_64\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
