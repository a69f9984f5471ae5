//! Runs of one workload compare each other: which groups and cases they share, and which differences are
//! more than noise.

use crate::model::case::{Group, Metric};
use crate::model::summary::Summary;

use super::NamedRun;
use super::table::{Cell, Column, Mark, Table};

/// All runs of one workload, in the order in which they were named.
pub(super) struct Section<'a> {
    pub(super) workload: &'a str,
    pub(super) runs: Vec<&'a NamedRun>,
}

/// The runs by their workload, in the order of the first of each.
pub(super) fn sections(runs: &[NamedRun]) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for run in runs {
        let workload = &run.run.workload[..];
        match sections.iter_mut().find(|section| section.workload == workload) {
            Some(section) => section.runs.push(run),
            None => sections.push(Section { workload, runs: vec![run] }),
        }
    }
    sections
}

/// What the groups of one name are, in the runs that have it: number of the run, and group.
pub(super) type Shared<'a> = Vec<(usize, &'a Group)>;

impl Section<'_> {
    /// The groups of all runs, each name once.
    pub(super) fn groups(&self) -> Vec<Shared<'_>> {
        let mut shared: Vec<Shared<'_>> = Vec::new();
        for (number, run) in self.runs.iter().enumerate() {
            for group in &run.run.groups {
                // One of another metric under the same name is not the same.
                let same = |other: &&mut Shared<'_>| {
                    let first = other[0].1;
                    first.name == group.name
                        && first.metric == group.metric
                        && first.chart == group.chart
                };
                match shared.iter_mut().find(same) {
                    Some(groups) => groups.push((number, group)),
                    None => shared.push(vec![(number, group)]),
                }
            }
        }
        shared
    }
}

/// What a run is called compare others: `A`, `B`, ...
pub(super) fn letter(number: usize) -> String {
    match u8::try_from(number) {
        Ok(number @ 0..26) => char::from(b'A' + number).to_string(),
        _ => format!("R{}", number + 1),
    }
}

/// What a case is in one run, against the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// By this factor.
    Faster(f64),
    Slower(f64),
    WithinNoise,
    /// There is one sample, and nothing to know the noise by.
    OneSample,
    /// One of the two does not have it.
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
        let marked = |text: String, value, mark| Cell { text, value: Some(value), mark };
        match self {
            Verdict::Faster(by) => marked(format!("{by:.2} times faster"), by, Mark::Better),
            Verdict::Slower(by) => marked(format!("{by:.2} times slower"), 1.0 / by, Mark::Worse),
            Verdict::WithinNoise => marked("within the noise".to_owned(), 1.0, Mark::Faint),
            Verdict::OneSample => Cell { mark: Mark::Faint, ..Cell::text("one sample: not known") },
            Verdict::Alone => Cell::default(),
        }
    }
}

/// A row for each case of any run: each median and range, and from the second run on, what that is to the
/// first.
pub(super) fn table(groups: &Shared<'_>) -> Table {
    let metric = groups[0].1.metric;
    let mut table = Table::default();
    table.columns.push(Column::text("case"));
    for (number, _) in groups {
        let letter = letter(*number);
        table.columns.push(Column::number(format!("{letter}: {}", metric.name())));
        table.columns.push(Column::number(format!("{letter}: range")));
    }
    let first = letter(groups[0].0);
    for (number, _) in &groups[1..] {
        table.columns.push(Column::number(format!("{} to {first}", letter(*number))));
    }
    for name in case_names(groups) {
        let values: Vec<Vec<f64>> = groups
            .iter()
            .map(|(_, group)| group.case(name).map_or_else(Vec::new, |case| group.values(case)))
            .collect();
        let mut row = vec![Cell::text(name)];
        for values in &values {
            let summary = Summary::of(values);
            row.push(Cell::median(metric, summary.as_ref()));
            row.push(Cell::range(metric, summary.as_ref()));
        }
        let verdict = |other: &Vec<f64>| Verdict::of(metric, &values[0], other).cell();
        row.extend(values[1..].iter().map(verdict));
        table.rows.push(row);
    }
    table
}

fn case_names<'a>(groups: &Shared<'a>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for case in groups.iter().flat_map(|(_, group)| &group.cases) {
        if !names.contains(&&case.name[..]) {
            names.push(&case.name);
        }
    }
    names
}

/// How many cases of how many are faster, slower or the same in each run after the first.
pub(super) fn tally(section: &Section<'_>) -> Vec<String> {
    let shared = section.groups();
    let mut words = Vec::new();
    for number in 1..section.runs.len() {
        let (mut faster, mut slower, mut same, mut unknown) = (0, 0, 0, 0);
        for groups in &shared {
            let of = |number| groups.iter().find(|(n, _)| *n == number).map(|(_, group)| *group);
            let Some((a, b)) = of(0).zip(of(number)) else { continue };
            for (x, y) in a.cases.iter().filter_map(|case| Some((case, b.case(&case.name)?))) {
                match Verdict::of(a.metric, &a.values(x), &b.values(y)) {
                    Verdict::Faster(_) => faster += 1,
                    Verdict::Slower(_) => slower += 1,
                    Verdict::WithinNoise => same += 1,
                    Verdict::OneSample => unknown += 1,
                    Verdict::Alone => {}
                }
            }
        }
        let all = faster + slower + same + unknown;
        let unknown = match unknown {
            0 => String::new(),
            unknown => format!(", and {unknown} not known, of one sample"),
        };
        words.push(format!(
            "{} to A: of {all} cases that both have, {faster} faster, {slower} slower, {same} within the \
             noise{unknown}",
            letter(number)
        ));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn only_what_exceeds_the_noise_is_a_difference() {
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
            ["B to A: of 2 cases that both have, 1 faster, 0 slower, 1 within the noise"]
        );
    }

    #[test]
    fn many_runs_have_names() {
        assert_eq!([0, 25, 26].map(letter), ["A", "Z", "R27"]);
    }
}
