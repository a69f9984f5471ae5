//! `ringbench diff`: two runs of one command, the cases that they share, and those that changed beyond
//! doubt.

use anyhow::bail;

use super::table::{Cell, Column, Table};
use super::text;
use crate::cli::args::DiffArgs;
use crate::model::case::{Group, Metric};
use crate::model::comparison::Ratio;
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
    Faster(Ratio),
    Slower(Ratio),
    Indistinguishable(Ratio),
    TooFewSamples,
}

impl Verdict {
    fn of(metric: Metric, old: &[f64], new: &[f64]) -> Verdict {
        let Some(ratio) = Ratio::of_runs(old, new) else { return Verdict::TooFewSamples };
        // The ratio of times.
        let ratio = if metric.more_is_better() { ratio.inverse() } else { ratio };
        match ratio.differs() {
            true if ratio.value < 1.0 => Verdict::Faster(ratio),
            true => Verdict::Slower(ratio),
            false => Verdict::Indistinguishable(ratio),
        }
    }

    fn show(self) -> String {
        match self {
            Verdict::Faster(ratio) => format!("{} faster", ratio.show()),
            Verdict::Slower(ratio) => format!("{} slower", ratio.show()),
            Verdict::Indistinguishable(ratio) => format!("{} the same", ratio.show()),
            Verdict::TooFewSamples => "too few samples".to_owned(),
        }
    }
}

/// The groups that both runs have, the number of cases that changed, and the facts of the environment that
/// differ.
pub(crate) fn of_runs(old: &Run, new: &Run) -> String {
    let (mut text, mut verdicts) = (String::new(), Vec::new());
    for a in &old.groups {
        // A group of this name with another metric is another group.
        let is_same = |b: &&Group| (&b.name, b.metric) == (&a.name, a.metric);
        let Some(b) = new.groups.iter().find(is_same) else { continue };
        let mut table = compare(a, b, &mut verdicts);
        let only = [("old", only_in(a, b)), ("new", only_in(b, a))];
        if table.rows.is_empty() && only.iter().all(|(_, names)| names.is_empty()) {
            continue;
        }
        text::wrap(&mut text, "", &a.name);
        table.fit(text::COLUMNS);
        text::write_aligned(&mut text, &table);
        for (run, names) in only.iter().filter(|(_, names)| !names.is_empty()) {
            text::wrap(&mut text, "  ", &format!("only in the {run} run: {}", names.join("; ")));
        }
        text.push('\n');
    }
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    let tally = format!(
        "{} cases in both: {} faster, {} slower, {} indistinguishable, {} with too few samples",
        verdicts.len(),
        count(|verdict| matches!(verdict, Verdict::Faster(_))),
        count(|verdict| matches!(verdict, Verdict::Slower(_))),
        count(|verdict| matches!(verdict, Verdict::Indistinguishable(_))),
        count(|verdict| matches!(verdict, Verdict::TooFewSamples)),
    );
    text::wrap(&mut text, "", &tally);
    let facts = different_facts(&old.environment, &new.environment);
    if !facts.is_empty() {
        text.push_str("\nThe environment differs:\n");
    }
    facts.iter().for_each(|fact| text::wrap(&mut text, "  - ", fact));
    text
}

/// The names of the cases with samples of which `other` has none.
fn only_in<'a>(group: &'a Group, other: &Group) -> Vec<&'a str> {
    let has = |group: &Group, name: &str| group.case(name).is_some_and(|it| !it.samples.is_empty());
    let names = group.cases.iter().map(|case| &case.name[..]);
    names.filter(|name| has(group, name) && !has(other, name)).collect()
}

/// A row for each case of both groups; its verdict is added to `verdicts`.
fn compare(old: &Group, new: &Group, verdicts: &mut Vec<Verdict>) -> Table {
    let numbers = ["old", "new", "time, new to old"].map(Column::number);
    let columns = [Column::text("case")].into_iter().chain(numbers).collect();
    let mut table = Table { columns, ..Table::default() };
    for case in &old.cases {
        let Some(other) = new.case(&case.name) else { continue };
        let (a, b) = (old.values(case), new.values(other));
        let (Some(before), Some(after)) = (Summary::of(&a), Summary::of(&b)) else { continue };
        let verdict = Verdict::of(old.metric, &a, &b);
        let mut row = vec![Cell::text(&case.name)];
        row.extend([before, after].map(|it| Cell::text(&old.metric.show(it.median))));
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
    fn only_what_the_data_tell_apart_counts() {
        let even = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98, 1.0];
        let times = |old: &[f64], new: &[f64]| Verdict::of(Metric::Seconds, old, new);
        assert!(matches!(times(&even, &even.map(|it| it * 0.8)), Verdict::Faster(_)));
        assert!(matches!(times(&even, &even.map(|it| it * 1.1)), Verdict::Slower(_)));
        let noisy = [0.5, 0.7, 0.9, 1.2, 1.4, 1.1, 0.8];
        assert!(matches!(times(&even, &noisy), Verdict::Indistinguishable(_)));
        assert_eq!(times(&even, &[0.1; 6]), Verdict::TooFewSamples);
        let rates = Verdict::of(Metric::BytesPerS, &even, &even.map(|it| it * 2.0));
        assert!(matches!(rates, Verdict::Faster(_)), "{rates:?}");
    }

    #[test]
    fn cases_of_both_runs_are_compared() {
        let mut after = fixture::run_after();
        after.environment.machine.insert("kernel".into(), "Linux 6.18 x86_64".into());
        after.groups[0].cases[1].name = "another".into();
        let text = of_runs(&fixture::run(), &after);
        for part in [
            "only in the new run: another\n",
            "ringsum  1.00 s  800 ms   too few samples\n",
            "1 cases in both: 0 faster, 0 slower, 0 indistinguishable, 1 with too few samples\n",
            "kernel: Linux 6.12 x86_64, then Linux 6.18 x86_64\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
