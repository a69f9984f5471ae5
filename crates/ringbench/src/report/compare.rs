//! Several runs of one workload: the groups and cases that they share, and the differences beyond the noise.

use super::NamedRun;
use super::table::{Cell, Column, Mark, Table};
use crate::model::case::{Group, Metric};
use crate::model::summary::Summary;

/// All runs of one workload, in the order in which they were named.
pub(super) struct Section<'a> {
    pub(super) workload: &'a str,
    pub(super) runs: Vec<&'a NamedRun>,
}

/// The runs by workload, in the order of the first run of each.
pub(super) fn sections(runs: &[NamedRun]) -> Vec<Section<'_>> {
    let workloads = super::unique(runs.iter().map(|run| &run.run.workload[..]));
    let of = |workload| runs.iter().filter(|run| run.run.workload == workload).collect();
    workloads.into_iter().map(|workload| Section { workload, runs: of(workload) }).collect()
}

/// A group in the runs that have it: the number of the run, and its group.
pub(super) type Shared<'a> = Vec<(usize, &'a Group)>;

impl<'a> Section<'a> {
    /// The groups of all runs, each name once.
    pub(super) fn groups(&self) -> Vec<Shared<'a>> {
        let mut shared: Vec<Shared<'a>> = Vec::new();
        for (number, run) in self.runs.iter().enumerate() {
            for group in &run.run.groups {
                // A group of this name with another metric is another group.
                let kind = |group: &Group| (group.name.clone(), group.metric, group.chart.clone());
                match shared.iter_mut().find(|other| kind(other[0].1) == kind(group)) {
                    Some(groups) => groups.push((number, group)),
                    None => shared.push(vec![(number, group)]),
                }
            }
        }
        shared
    }
}

/// The short name of a run in a comparison: `A`, `B`, ...
pub(super) fn letter(number: usize) -> String {
    match u8::try_from(number) {
        Ok(number @ 0..26) => char::from(b'A' + number).to_string(),
        _ => format!("R{}", number + 1),
    }
}

/// A case of one run compared with that of the first run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// By this factor.
    Faster(f64),
    Slower(f64),
    WithinNoise,
    /// With one sample, the noise is unknown.
    OneSample,
    /// One of the two runs does not have it.
    Alone,
}

impl Verdict {
    pub(super) fn of(metric: Metric, a: &[f64], b: &[f64]) -> Verdict {
        match (a.len(), b.len()) {
            (0, _) | (_, 0) => Verdict::Alone,
            (1, _) | (_, 1) => Verdict::OneSample,
            _ => match metric.gain(a, b) {
                Some(ratio) if ratio > 1.0 => Verdict::Faster(ratio),
                Some(ratio) => Verdict::Slower(1.0 / ratio),
                None => Verdict::WithinNoise,
            },
        }
    }

    fn cell(self) -> Cell {
        let (text, value, mark) = match self {
            Verdict::Faster(by) => (format!("{by:.2} times faster"), Some(by), Mark::Better),
            Verdict::Slower(by) => (format!("{by:.2} times slower"), Some(1.0 / by), Mark::Worse),
            Verdict::WithinNoise => ("within the noise".to_owned(), Some(1.0), Mark::Faint),
            Verdict::OneSample => ("unknown: one sample".to_owned(), None, Mark::Faint),
            Verdict::Alone => return Cell::default(),
        };
        Cell { text, value, mark }
    }
}

/// A row for each case of any run, with its medians and ranges, and from the second run on the comparison
/// with the first.
pub(super) fn table(groups: &Shared<'_>) -> Table {
    let metric = groups[0].1.metric;
    let letters: Vec<String> = groups.iter().map(|(number, _)| letter(*number)).collect();
    let mut table = Table::default();
    table.columns.push(Column::text("case"));
    for letter in &letters {
        table.columns.push(Column::number(format!("{letter}: {}", metric.name())));
        table.columns.push(Column::number(format!("{letter}: range")));
    }
    let first = &letters[0];
    table
        .columns
        .extend(letters[1..].iter().map(|other| Column::number(format!("{other} to {first}"))));
    let cases = groups.iter().flat_map(|(_, group)| &group.cases);
    for name in super::unique(cases.map(|case| &case.name)) {
        let of_run = |(_, group): &(usize, &Group)| {
            group.case(name).map_or_else(Vec::new, |case| group.values(case))
        };
        let values: Vec<Vec<f64>> = groups.iter().map(of_run).collect();
        let mut row = vec![Cell::text(name)];
        for values in &values {
            row.extend(Cell::median_and_range(metric, Summary::of(values).as_ref()));
        }
        let verdict = |other: &Vec<f64>| Verdict::of(metric, &values[0], other).cell();
        row.extend(values[1..].iter().map(verdict));
        table.rows.push(row);
    }
    table
}

/// The numbers of cases that are faster, slower or the same in each run after the first.
pub(super) fn tally(section: &Section<'_>) -> Vec<String> {
    let shared = section.groups();
    let tally = |number| {
        let mut verdicts = Vec::new();
        for groups in &shared {
            let of = |number| groups.iter().find(|(n, _)| *n == number).map(|(_, group)| *group);
            let Some((a, b)) = of(0).zip(of(number)) else { continue };
            for (x, y) in a.cases.iter().filter_map(|case| Some((case, b.case(&case.name)?))) {
                verdicts.push(Verdict::of(a.metric, &a.values(x), &b.values(y)));
            }
        }
        verdicts.retain(|verdict| *verdict != Verdict::Alone);
        let count =
            |is: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
        let unknown = match count(|verdict| *verdict == Verdict::OneSample) {
            0 => String::new(),
            unknown => format!(", {unknown} unknown, with one sample"),
        };
        format!(
            "{} to A: of {} cases in both, {} faster, {} slower, {} within the noise{unknown}",
            letter(number),
            verdicts.len(),
            count(|verdict| matches!(verdict, Verdict::Faster(_))),
            count(|verdict| matches!(verdict, Verdict::Slower(_))),
            count(|verdict| *verdict == Verdict::WithinNoise)
        )
    };
    (1..section.runs.len()).map(tally).collect()
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
        assert_eq!(seconds(&[], &even), Verdict::Alone);
        let rate = Verdict::of(Metric::BytesPerS, &even, &[2.0; 5]);
        assert_eq!(rate, Verdict::Faster(2.0));
    }

    #[test]
    fn runs_of_one_workload_are_side_by_side() {
        let (a, b) = (fixture::run(), fixture::run_after());
        let mut other = fixture::run();
        other.workload = "pipe".into();
        let named = |name: &str, run| NamedRun { name: name.into(), run };
        let runs = [named("a", a), named("p", other), named("b", b)];
        let sections = sections(&runs);
        let names: Vec<_> =
            sections.iter().map(|section| (section.workload, section.runs.len())).collect();
        assert_eq!(names, [("compare", 2), ("pipe", 1)]);
        let groups = sections[0].groups();
        let table = table(&groups[0]);
        let columns: Vec<_> = table.columns.iter().map(|column| &column.name[..]).collect();
        assert_eq!(columns, ["case", "A: time", "A: range", "B: time", "B: range", "B to A"]);
        let rows: Vec<_> =
            table.rows.iter().map(|row| (&row[0].text[..], &row[5].text[..])).collect();
        assert_eq!(
            rows,
            [
                ("ringsum", "1.25 times faster"),
                ("b3sum | <script>", "within the noise"),
                ("\"quoted\", in two lines", ""),
                ("cksum", ""),
            ]
        );
        assert_eq!(
            tally(&sections[0]),
            ["B to A: of 2 cases in both, 1 faster, 0 slower, 1 within the noise"]
        );
    }

    #[test]
    fn many_runs_have_names() {
        assert_eq!([0, 25, 26].map(letter), ["A", "Z", "R27"]);
    }
}
