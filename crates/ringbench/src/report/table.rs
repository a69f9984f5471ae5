//! The tables of groups, with columns only for what was measured.

use std::collections::BTreeSet;

use super::grid::Grid;
use crate::model::case::{Chart, Group, Metric, Sample};
use crate::model::disturbance;
use crate::model::summary::Summary;
use crate::model::units::{show_scaled, show_seconds};

/// Groups of more cases, by the values of two parameters, have a grid instead of a list.
const LIST_MAX: usize = 16;

/// Rows and columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Vec<Cell>>,
    /// The row of the best case.
    pub(super) best: Option<usize>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) is_number: bool,
}

/// Text, and the value that it is sorted by.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) value: Option<f64>,
}

impl Column {
    pub(super) fn text(name: &str) -> Column {
        Column { name: Cell::text(name).text, is_number: false }
    }

    pub(super) fn number(name: impl AsRef<str>) -> Column {
        Column { is_number: true, ..Column::text(name.as_ref()) }
    }
}

impl Cell {
    /// Text in one line: a name from a run file may have control characters.
    pub(super) fn text(text: &str) -> Cell {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        Cell { text: text.chars().map(clean).collect(), ..Cell::default() }
    }

    pub(super) fn number(text: String, value: f64) -> Cell {
        Cell { text: text.trim_end().to_owned(), value: Some(value) }
    }

    /// The median of samples, and their range if there are several.
    pub(super) fn median_and_range(metric: Metric, summary: Option<&Summary>) -> [Cell; 2] {
        let median = summary.map(|it| Cell::number(metric.show_summary(it), it.median));
        let several = summary.filter(|summary| summary.count > 1);
        let range = several.map(|it| Cell::number(show_range(metric, it), it.max - it.min));
        [median.unwrap_or_default(), range.unwrap_or_default()]
    }
}

/// `3.70..3.90 GB/s`, or with two units if they differ.
fn show_range(metric: Metric, summary: &Summary) -> String {
    let (min, max) = (metric.show(summary.min), metric.show(summary.max));
    match (min.split_once(' '), max.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}..{max}"),
        _ => format!("{min}..{max}"),
    }
}

type Show = fn(f64) -> String;

/// A column: its name, how its values are printed, and the value of a sample.
type Part = (&'static str, Show, fn(&Sample) -> Option<f64>);

/// The parts of a sample that are not the metric.
const PARTS: [Part; 11] = [
    ("CPU", show_seconds, |sample| sample.cpu_s),
    ("CPU/operation", show_seconds, |sample| {
        // Of one operation, it is the same again.
        (sample.operations > 1).then_some(sample.cpu_s? / sample.operations as f64)
    }),
    (BANDWIDTH, show_rate, |sample| (sample.bytes > 0).then(|| Metric::BytesPerS.of(sample))),
    ("memory", show_bytes, |sample| sample.rss_bytes.map(|bytes| bytes as f64)),
    ("from disk", show_bytes, |sample| sample.disk_read_bytes.map(|bytes| bytes as f64)),
    ("latency avg", show_ns, |sample| Some(sample.latency_ns?.avg)),
    ("99 %", show_ns, |sample| Some(sample.latency_ns?.p99 as f64)),
    ("99.5 %", show_ns, |sample| Some(sample.latency_ns?.p99_5 as f64)),
    ("99.9 %", show_ns, |sample| Some(sample.latency_ns?.p99_9 as f64)),
    ("99.99 %", show_ns, |sample| Some(sample.latency_ns?.p99_99 as f64)),
    ("max", show_ns, |sample| Some(sample.latency_ns?.max as f64)),
];

/// The name of a column that only groups with a rate of operations have.
const BANDWIDTH: &str = "bandwidth";

fn show_rate(bytes_per_s: f64) -> String {
    format!("{}B/s", show_scaled(bytes_per_s))
}

fn show_bytes(bytes: f64) -> String {
    format!("{}B", show_scaled(bytes))
}

fn show_ns(ns: f64) -> String {
    show_seconds(ns / 1e9)
}

/// A number whose unit is the last word of its name: the name without it, and the value with it.
pub(super) fn quantity(name: &str, value: f64) -> (String, String) {
    let words = name.replace('_', " ");
    let units: [(&str, Show); 7] = [
        (" ns per block", |ns| format!("{} a block", show_ns(ns))),
        (" bytes per s", show_rate),
        (" per s", |rate| format!("{}/s", show_scaled(rate))),
        (" bytes", show_bytes),
        (" percent", |percent| format!("{percent:.1} %")),
        (" ns", show_ns),
        (" s", show_seconds),
    ];
    let found = units.iter().find_map(|(unit, show)| Some((words.strip_suffix(unit)?, show)));
    if let Some((name, show)) = found {
        return (name.to_owned(), show(value));
    }
    let is_count = value.fract() == 0.0 && value.abs() < 1e4;
    let shown = if is_count { format!("{value}") } else { show_scaled(value) };
    (words, shown.trim_end().to_owned())
}

/// A row for each case, and a column for each part that any sample has.
pub(super) fn of_group(group: &Group) -> Table {
    let mut table = with_all_columns(group);
    for column in (0..table.columns.len()).rev() {
        if table.rows.iter().all(|row| row[column].text.is_empty()) {
            table.remove(column);
        }
    }
    table
}

fn with_all_columns(group: &Group) -> Table {
    let metric = group.metric;
    let best = group.best().filter(|(_, median)| median.is_finite());
    let mut table = Table::default();
    table.columns.push(Column::text("case"));
    table.columns.extend([metric.name(), "range", "to best", "samples"].map(Column::number));
    for case in &group.cases {
        let summary = group.summary(case);
        let ratio = summary.zip(best).map(|(summary, (_, best))| summary.median / best);
        if best.is_some_and(|(best, _)| best == case) {
            table.best = Some(table.rows.len());
        }
        let [median, range] = Cell::median_and_range(metric, summary.as_ref());
        let ratio = ratio.map(|ratio| Cell::number(format!("{} ×", show_ratio(ratio)), ratio));
        let count = case.samples.len();
        let count = Cell::number(count.to_string(), count as f64);
        let ratio = ratio.unwrap_or_default();
        table.rows.push(vec![Cell::text(&case.name), median, range, ratio, count]);
    }
    for (name, show, part) in PARTS {
        if name != BANDWIDTH || metric == Metric::OperationsPerS {
            table.add(group, name, &show, &part);
        }
    }
    let marked = |sample: &Sample, case| !disturbance::of_sample(case, sample).0.is_empty();
    let marked = group
        .cases
        .iter()
        .map(|case| case.samples.iter().filter(|sample| marked(sample, case)).count());
    let marked: Vec<usize> = marked.collect();
    if marked.iter().any(|count| *count > 0) {
        table.columns.push(Column::number("marked"));
        for (row, count) in table.rows.iter_mut().zip(marked) {
            row.push(Cell::number(count.to_string(), count as f64));
        }
    }
    let samples = group.cases.iter().flat_map(|case| &case.samples);
    let more: BTreeSet<&String> = samples.flat_map(|sample| sample.more.keys()).collect();
    for key in more {
        let show = |value| quantity(key, value).1;
        table.add(group, &quantity(key, 0.0).0, &show, &|sample| sample.more.get(key).copied());
    }
    table
}

/// Two digits, and more if it is small.
fn show_ratio(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => format!("{ratio:.0}"),
        r if r >= 0.095 => format!("{ratio:.2}"),
        _ => format!("{ratio:.4}"),
    }
}

impl Table {
    /// Adds a column of medians, if any case has one.
    fn add(
        &mut self,
        group: &Group,
        name: &str,
        show: &dyn Fn(f64) -> String,
        part: &dyn Fn(&Sample) -> Option<f64>,
    ) {
        let medians: Vec<_> = group.cases.iter().map(|case| case.median_of(part)).collect();
        if medians.iter().any(Option::is_some) {
            self.columns.push(Column::number(name));
            for (row, median) in self.rows.iter_mut().zip(medians) {
                row.push(median.map_or_else(Cell::default, |it| Cell::number(show(it), it)));
            }
        }
    }

    fn remove(&mut self, column: usize) {
        self.columns.remove(column);
        for row in &mut self.rows {
            row.remove(column);
        }
    }

    /// The width of each column, in characters.
    pub(super) fn widths(&self) -> Vec<usize> {
        let chars = |text: &str| text.chars().count();
        let width = |index: usize| {
            let cells = self.rows.iter().map(|row| chars(&row[index].text));
            cells.fold(chars(&self.columns[index].name), usize::max)
        };
        (0..self.columns.len()).map(width).collect()
    }

    /// Shortens the names in the first column until the table fits into so many columns of a terminal.
    pub(super) fn fit(&mut self, columns: usize) {
        let room = columns.saturating_sub(self.width() - self.widths()[0]);
        for row in &mut self.rows {
            let name = &mut row[0].text;
            if name.chars().count() > room {
                *name = name.chars().take(room.saturating_sub(1)).chain(['…']).collect();
            }
        }
    }

    /// The width of all columns, with two spaces between them.
    fn width(&self) -> usize {
        self.widths().into_iter().map(|width| width + 2).sum()
    }
}

/// The table of a group that fits into so many columns of a terminal: of a grid that is wider, and of many
/// cases, the best ones.
pub(super) fn brief(group: &Group, columns: usize) -> Table {
    const CASES_MAX: usize = 24;
    let (table, _) = compact(group);
    if table.columns[0].name != "case" && table.width() <= columns {
        return table;
    }
    let mut table = with_all_columns(group);
    // Case, value, ratio to the best, number of samples: the range is in a report.
    table.remove(2);
    table.columns.truncate(4);
    table.rows.iter_mut().for_each(|row| row.truncate(4));
    table.rows.retain(|row| row[1].value.is_some());
    if table.rows.len() > CASES_MAX {
        let ratio = |row: &Vec<Cell>| row[2].value.unwrap_or(f64::NAN).ln();
        let sign = if group.metric.more_is_better() { -1.0 } else { 1.0 };
        table.rows.sort_by(|a, b| (sign * ratio(a)).total_cmp(&(sign * ratio(b))));
        table.rows.truncate(CASES_MAX);
    }
    table.fit(columns);
    table
}

/// The table of a group, or a grid and a note about it if there are too many cases for a list.
pub(super) fn compact(group: &Group) -> (Table, Option<String>) {
    if let Chart::Heat { x, y } = &group.chart
        && group.cases.len() > LIST_MAX
        && let grid = Grid::of(group, x, y)
        && let (Some(place), Some((case, median))) = (grid.best, group.best())
    {
        let (name, median) = (Cell::text(&case.name).text, group.metric.show(median));
        let table = of_grid(group, &grid, place, &format!("{y} \\ {x}"));
        return (table, Some(format!("* best: {name}, {median}")));
    }
    (of_group(group), None)
}

fn of_grid(group: &Group, grid: &Grid, best: (usize, usize), corner: &str) -> Table {
    let mut table = Table::default();
    table.columns.push(Column::text(corner));
    table.columns.extend(grid.columns.iter().map(Column::number));
    for (row, name) in grid.rows.iter().enumerate() {
        let cell = |(column, value): (usize, &Option<f64>)| {
            let star = if best == (row, column) { "*" } else { "" };
            let show =
                |value| Cell::number(format!("{star}{}", group.metric.show_short(value)), value);
            value.map_or_else(Cell::default, show)
        };
        let cells = grid.cells[row].iter().enumerate().map(cell);
        table.rows.push([Cell::text(name)].into_iter().chain(cells).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_last_words_of_names() {
        let cases = [
            ("fsync_p99_ns", 28_000.0, "fsync p99", "28.0 µs"),
            ("disk_bytes_per_s", 3.81e9, "disk", "3.81 GB/s"),
            ("cached_percent", 97.25, "cached", "97.2 %"),
            ("fixed_buffers", 128.0, "fixed buffers", "128"),
            ("context switches", 13_500.0, "context switches", "13.5 k"),
            ("hash_s", 0.0813, "hash", "81.3 ms"),
            ("loop_ns_per_block", 75.0, "loop", "75.0 ns a block"),
        ];
        for (key, value, name, shown) in cases {
            assert_eq!(quantity(key, value), (name.to_owned(), shown.to_owned()));
        }
    }

    #[test]
    fn ranges_name_a_unit_once() {
        let range = |values: &[f64]| show_range(Metric::Seconds, &Summary::of(values).unwrap());
        assert_eq!(range(&[1.5, 2.5]), "1.50..2.50 s");
        assert_eq!(range(&[0.9, 1.1]), "900 ms..1.10 s");
    }
}
