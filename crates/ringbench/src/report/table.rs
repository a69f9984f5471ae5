//! What a group's table has in it: columns only for what was measured.

use std::collections::BTreeSet;

use super::grid::Grid;
use crate::model::case::{Case, Chart, Group, LatencyNs, Metric, Missing, Sample};
use crate::model::summary::Summary;
use crate::model::units::{show_scaled, show_seconds};

/// Groups of more cases than this, at the values of two parameters, are printed as a grid.
const LIST_MAX: usize = 16;

/// Rows and columns, as text and as what they are sorted by.
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

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) value: Option<f64>,
    pub(super) mark: Mark,
}

/// What a reader should see in a cell at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Mark {
    #[default]
    None,
    Better,
    Worse,
    /// Of no consequence.
    Faint,
}

impl Column {
    pub(super) fn text(name: &str) -> Column {
        Column { name: name.to_owned(), is_number: false }
    }

    pub(super) fn number(name: impl Into<String>) -> Column {
        Column { name: name.into(), is_number: true }
    }
}

impl Cell {
    /// Text in one line: a name from a run may have anything in it.
    pub(super) fn text(text: &str) -> Cell {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        Cell { text: text.chars().map(clean).collect(), ..Cell::default() }
    }

    pub(super) fn number(text: String, value: f64) -> Cell {
        Cell { text: text.trim_end().to_owned(), value: Some(value), mark: Mark::None }
    }

    pub(super) fn median(metric: Metric, summary: Option<&Summary>) -> Cell {
        summary.map_or_else(Cell::default, |summary| {
            Cell::number(metric.show(summary.median), summary.median)
        })
    }

    /// From the lowest to the highest of several samples.
    pub(super) fn range(metric: Metric, summary: Option<&Summary>) -> Cell {
        summary.filter(|summary| summary.count > 1).map_or_else(Cell::default, |summary| {
            Cell::number(show_range(metric, summary), summary.max - summary.min)
        })
    }
}

/// `3.70..3.90 GB/s`, or with two units where they are different.
fn show_range(metric: Metric, summary: &Summary) -> String {
    let (min, max) = (metric.show(summary.min), metric.show(summary.max));
    match (min.split_once(' '), max.split_once(' ')) {
        (Some((number, unit)), Some((_, other))) if unit == other => format!("{number}..{max}"),
        _ => format!("{min}..{max}"),
    }
}

type OfSample = dyn Fn(&Sample) -> Option<f64>;

/// A part of a sample that is not its metric, and how it is shown.
struct Part {
    name: String,
    of: Box<OfSample>,
    show: Box<dyn Fn(f64) -> String>,
}

impl Part {
    fn seconds(name: &str, of: impl Fn(&Sample) -> Option<f64> + 'static) -> Part {
        Part { name: name.to_owned(), of: Box::new(of), show: Box::new(show_seconds) }
    }

    fn rate(name: &str, of: impl Fn(&Sample) -> Option<f64> + 'static) -> Part {
        let show = |value| Metric::BytesPerS.show(value);
        Part { name: name.to_owned(), of: Box::new(of), show: Box::new(show) }
    }

    fn bytes(name: &str, of: impl Fn(&Sample) -> Option<u64> + 'static) -> Part {
        let show = |value| format!("{}B", show_scaled(value));
        let of = move |sample: &Sample| of(sample).map(|bytes| bytes as f64);
        Part { name: name.to_owned(), of: Box::new(of), show: Box::new(show) }
    }

    fn latency(name: &str, ns: impl Fn(&LatencyNs) -> f64 + 'static) -> Part {
        Part::seconds(name, move |sample| sample.latency_ns.as_ref().map(|it| ns(it) / 1e9))
    }

    fn more(key: &str) -> Part {
        let (name, _) = quantity(key, 0.0);
        let (of_key, show_key) = (key.to_owned(), key.to_owned());
        Part {
            name,
            of: Box::new(move |sample| sample.more.get(&of_key).copied()),
            show: Box::new(move |value| quantity(&show_key, value).1),
        }
    }
}

/// The parts that any sample of a group may have.
fn parts(group: &Group) -> Vec<Part> {
    let metric = group.metric;
    let mut parts = vec![
        Part::seconds("CPU", |sample| sample.cpu_s),
        // Of one operation it says nothing new.
        Part::seconds("CPU/operation", |sample| {
            (sample.operations > 1).then_some(sample.cpu_s? / sample.operations as f64)
        }),
        Part::rate("bandwidth", move |sample| {
            let is_new = metric == Metric::OperationsPerS && sample.bytes > 0;
            is_new.then(|| Metric::BytesPerS.of(sample))
        }),
        Part::bytes("memory", |sample| sample.rss_bytes),
        Part::bytes("from disk", |sample| sample.disk_read_bytes),
        Part::latency("latency avg", |latency| latency.avg),
        Part::latency("99 %", |latency| latency.p99 as f64),
        Part::latency("99.5 %", |latency| latency.p99_5 as f64),
        Part::latency("99.9 %", |latency| latency.p99_9 as f64),
        Part::latency("99.99 %", |latency| latency.p99_99 as f64),
        Part::latency("max", |latency| latency.max as f64),
    ];
    let samples = group.cases.iter().flat_map(|case| &case.samples);
    let more: BTreeSet<&String> = samples.flat_map(|sample| sample.more.keys()).collect();
    parts.extend(more.into_iter().map(|key| Part::more(key)));
    parts
}

/// A number whose unit is the last word of its name: the name without it, and the value with it.
pub(super) fn quantity(name: &str, value: f64) -> (String, String) {
    let words = name.replace('_', " ");
    let scaled = |unit: &str| format!("{}{unit}", show_scaled(value));
    let units: [(&str, String); 10] = [
        (" ns per block", format!("{} a block", show_seconds(value / 1e9))),
        (" bytes per s", scaled("B/s")),
        (" per s", scaled("/s")),
        (" bytes", scaled("B")),
        (" percent", format!("{value:.1} %")),
        (" %", format!("{value:.1} %")),
        (" ns", show_seconds(value / 1e9)),
        (" us", show_seconds(value / 1e6)),
        (" ms", show_seconds(value / 1e3)),
        (" s", show_seconds(value)),
    ];
    for (unit, shown) in units {
        if let Some(name) = words.strip_suffix(unit) {
            return (name.to_owned(), shown);
        }
    }
    let is_count = value.fract() == 0.0 && value.abs() < 1e4;
    let shown = if is_count { format!("{value}") } else { show_scaled(value) };
    (words, shown.trim_end().to_owned())
}

/// A row for each case, the columns that any sample has.
pub(super) fn of_group(group: &Group) -> Table {
    let metric = group.metric;
    let best = group.best().filter(|(_, median)| median.is_finite());
    let mut table = Table::default();
    table.columns.push(Column::text("case"));
    let name = metric.name();
    table.columns.extend([name, "range", "to best", "samples"].map(Column::number));
    for case in &group.cases {
        let summary = Summary::of(&group.values(case));
        let ratio = summary.zip(best).map(|(summary, (_, best))| summary.median / best);
        if best.is_some_and(|(best, _)| best == case) {
            table.best = Some(table.rows.len());
        }
        table.rows.push(vec![
            Cell::text(&case.name),
            Cell::median(metric, summary.as_ref()),
            Cell::range(metric, summary.as_ref()),
            ratio.map_or_else(Cell::default, |ratio| {
                Cell::number(format!("{} ×", show_ratio(ratio)), ratio)
            }),
            Cell::number(case.samples.len().to_string(), case.samples.len() as f64),
        ]);
    }
    for part in parts(group) {
        table.add(group, &part);
    }
    table
}

/// Two digits, and more where it is small.
fn show_ratio(ratio: f64) -> String {
    match ratio {
        r if r >= 100.0 => format!("{ratio:.0}"),
        r if r >= 0.095 => format!("{ratio:.2}"),
        _ => format!("{ratio:.4}"),
    }
}

impl Table {
    /// A column, if any case has it.
    fn add(&mut self, group: &Group, part: &Part) {
        let median = |case: &Case| case.median_of(&part.of);
        let medians: Vec<Option<f64>> = group.cases.iter().map(median).collect();
        if medians.iter().all(Option::is_none) {
            return;
        }
        self.columns.push(Column::number(&*part.name));
        for (row, median) in self.rows.iter_mut().zip(medians) {
            let cell = |value| Cell::number((part.show)(value), value);
            row.push(median.map_or_else(Cell::default, cell));
        }
    }
}

/// Medians at the values of two parameters, for a group that has too many cases for a list.
pub(super) fn grid(group: &Group) -> Option<Table> {
    let Chart::Heat { x, y } = &group.chart else { return None };
    if group.cases.len() <= LIST_MAX {
        return None;
    }
    let grid = Grid::of(group, x, y);
    grid.best?;
    let mut table = Table::default();
    table.columns.push(Column::text(&Cell::text(&format!("{y} \\ {x}")).text));
    table.columns.extend(grid.columns.iter().map(|name| Column::number(Cell::text(name).text)));
    for (row, name) in grid.rows.iter().enumerate() {
        let cell = |(column, value): (usize, &Option<f64>)| {
            let star = if grid.best == Some((row, column)) { "*" } else { "" };
            value.map_or_else(Cell::default, |value| {
                Cell::number(format!("{star}{}", group.metric.show(value)), value)
            })
        };
        let cells = grid.cells[row].iter().enumerate().map(cell);
        table.rows.push([Cell::text(name)].into_iter().chain(cells).collect());
    }
    Some(table)
}

/// What a grid does not say by itself.
pub(super) fn about_grid(group: &Group) -> String {
    let Chart::Heat { x, y } = &group.chart else { return String::new() };
    let best = group.best().map_or_else(String::new, |(case, median)| {
        format!("* best: {}, {}", Cell::text(&case.name).text, group.metric.show(median))
    });
    match Grid::of(group, x, y).shared {
        true => format!("{best}; where several cases share a place, it shows the best of them"),
        false => best,
    }
}

/// Cases that were not measured, or not to the end, for one reason.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NotMeasured {
    /// The names of the cases.
    pub(super) names: String,
    pub(super) has_failed: bool,
    pub(super) why: String,
}

impl NotMeasured {
    pub(super) fn what(&self) -> &'static str {
        if self.has_failed { "failed" } else { "not here" }
    }
}

/// What was not measured, by its reason.
pub(super) fn missing(group: &Group) -> Vec<NotMeasured> {
    let mut reasons: Vec<NotMeasured> = Vec::new();
    for case in &group.cases {
        let Some(missing) = &case.missing else { continue };
        let has_failed = matches!(missing, Missing::Failed(_));
        let (name, why) = (&Cell::text(&case.name).text, Cell::text(missing.why()).text);
        let same = |other: &&mut NotMeasured| other.has_failed == has_failed && other.why == why;
        match reasons.iter_mut().find(same) {
            Some(other) => {
                other.names.push_str(", ");
                other.names.push_str(name);
            }
            None => reasons.push(NotMeasured { names: name.clone(), has_failed, why }),
        }
    }
    reasons
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
