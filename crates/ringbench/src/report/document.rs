//! A report without a format: its parts, in their order. A format only writes them down.

use std::collections::BTreeSet;

use super::NamedRun;
use super::chart::Side;
use super::compare::{self, Section, Shared};
use super::table::{self, Cell, Column, Mark, NotMeasured, Table};
use crate::model::case::Group;
use crate::model::environment::Facts;
use crate::model::run_file::{Run, RunState};

/// A part of a report.
pub(super) enum Block<'a> {
    Heading(Level, String),
    /// The start, the command line and the machine of a run.
    Started(&'a Run),
    /// Why a run is not complete.
    Warning(&'static str),
    Paragraph(&'a str),
    List {
        kind: ListKind,
        title: String,
        items: Vec<String>,
    },
    /// Names and values.
    Results(Vec<(String, String)>),
    Chart(Vec<Side<'a>>),
    /// The cases of a group, which belong to the run with this letter if there are several.
    Cases(&'a Group, Option<String>),
    /// The cases of several runs.
    Comparison(Table),
    Missing(Vec<NotMeasured>),
    /// The facts of machines and targets.
    Environment(Vec<Table>),
}

/// What a heading is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Workload,
    Run,
    Group,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Conclusions,
    Caveats,
}

/// One run, for a terminal: the conclusions are at the end, where a reader is.
pub(super) fn of_terminal(run: &Run) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for group in &run.groups {
        blocks.extend(of_group(&vec![(0, group)], false));
    }
    blocks.extend(incomplete(run).map(Block::Warning));
    blocks.extend(summary(run, None));
    blocks
}

/// All runs, by workload.
pub(super) fn of_runs(runs: &[NamedRun]) -> Vec<Block<'_>> {
    compare::sections(runs).iter().flat_map(of_section).collect()
}

fn of_section<'a>(section: &Section<'a>) -> Vec<Block<'a>> {
    let mut blocks = vec![Block::Heading(Level::Workload, section.workload.to_owned())];
    let several = section.runs.len() > 1;
    let letter = |number| several.then(|| compare::letter(number));
    for (number, named) in section.runs.iter().enumerate() {
        if let Some(letter) = letter(number) {
            blocks.push(Block::Heading(Level::Run, format!("{letter}: {}", named.name)));
        }
        blocks.push(Block::Started(&named.run));
        blocks.extend(incomplete(&named.run).map(Block::Warning));
    }
    if several {
        let (title, items) = ("Comparison".to_owned(), compare::tally(section));
        blocks.push(Block::List { kind: ListKind::Conclusions, title, items });
    }
    for (number, named) in section.runs.iter().enumerate() {
        blocks.extend(summary(&named.run, letter(number)));
    }
    blocks.extend(section.groups().iter().flat_map(|shared| of_group(shared, several)));
    blocks.push(environment(section));
    blocks
}

/// The results of a run, in words and numbers.
fn summary(run: &Run, letter: Option<String>) -> Vec<Block<'_>> {
    let title = |title: &str| title_of(title, letter.as_deref());
    let list = |kind, name, items: &Vec<String>| {
        let (title, items) = (title(name), items.clone());
        (!items.is_empty()).then_some(Block::List { kind, title, items })
    };
    let result = |(name, value): (&String, &f64)| table::quantity(name, *value);
    let results: Vec<_> = run.results.iter().map(result).collect();
    let results = (!results.is_empty()).then_some(Block::Results(results));
    let conclusions = list(ListKind::Conclusions, "Conclusions", &run.conclusions);
    let caveats = list(ListKind::Caveats, "Caveats", &run.advice);
    [conclusions, results, caveats].into_iter().flatten().collect()
}

/// A title, with the letter of its run if there are several.
pub(super) fn title_of(title: &str, letter: Option<&str>) -> String {
    letter.map_or_else(|| title.to_owned(), |letter| format!("{title} of {letter}"))
}

/// One group, of as many runs as have it.
fn of_group<'a>(shared: &Shared<'a>, several: bool) -> Vec<Block<'a>> {
    let first = shared[0].1;
    let letter = |number| several.then(|| compare::letter(number));
    let mut blocks = vec![
        Block::Heading(Level::Group, first.name.clone()),
        Block::Paragraph(&first.about),
        Block::Chart(
            shared
                .iter()
                .map(|(run, group)| Side { name: letter(*run).unwrap_or_default(), group })
                .collect(),
        ),
    ];
    if shared.len() > 1 {
        blocks.push(Block::Comparison(compare::table(shared)));
    }
    for (run, group) in shared {
        blocks.push(Block::Cases(group, letter(*run)));
        blocks.push(Block::Missing(table::missing(group)));
        if !group.advice.is_empty() {
            let title = title_of("Caveats", letter(*run).as_deref());
            let items = group.advice.clone();
            blocks.push(Block::List { kind: ListKind::Caveats, title, items });
        }
    }
    blocks
}

/// Why a run is not complete, if it is not.
fn incomplete(run: &Run) -> Option<&'static str> {
    match run.state {
        RunState::Finished => None,
        RunState::Running => Some(
            "This run did not end, or had not ended when its file was read: some samples are missing.",
        ),
        RunState::CutShort => {
            Some("The time limit ended this run: some samples or groups are missing.")
        }
        RunState::Interrupted => {
            Some("This run was interrupted: some samples or groups are missing.")
        }
    }
}

/// The machine of a run in short.
pub(super) fn machine(run: &Run) -> String {
    let facts = &run.environment.machine;
    let known = ["kernel", "cpu", "memory"].into_iter().filter_map(|name| facts.get(name));
    known.cloned().collect::<Vec<_>>().join(", ")
}

/// The facts of all runs: a column for each run.
fn environment<'a>(section: &Section<'_>) -> Block<'a> {
    let of_runs = |part: &dyn Fn(&Run) -> Option<Facts>| -> Vec<Facts> {
        section.runs.iter().map(|named| part(&named.run).unwrap_or_default()).collect()
    };
    let machines = of_runs(&|run| Some(run.environment.machine.clone()));
    let mut tables = vec![facts_table("machine", &machines)];
    let targets = section.runs.iter().flat_map(|named| &named.run.environment.targets);
    for path in super::unique(targets.map(|target| &target.path)) {
        let of_path = |run: &Run| {
            let target = run.environment.targets.iter().find(|target| target.path == *path)?;
            Some(target.facts.clone())
        };
        tables.push(facts_table(path, &of_runs(&of_path)));
    }
    Block::Environment(tables)
}

/// A row for each fact; values that differ between runs are marked.
fn facts_table(title: &str, runs: &[Facts]) -> Table {
    let mut table = Table::default();
    table.columns.push(Column::text(title));
    for number in 0..runs.len() {
        let letter = if runs.len() > 1 { compare::letter(number) } else { String::new() };
        table.columns.push(Column::text(&letter));
    }
    let names: BTreeSet<&String> = runs.iter().flat_map(|facts| facts.keys()).collect();
    for name in names {
        let values: Vec<_> = runs.iter().map(|facts| facts.get(name).map_or("", |v| v)).collect();
        let differs = values.iter().any(|value| *value != values[0]);
        let mark = if differs { Mark::Differs } else { Mark::None };
        let cell = |value: &&str| Cell { mark, ..Cell::text(value) };
        let cells = values.iter().map(cell);
        table.rows.push([Cell::text(name)].into_iter().chain(cells).collect());
    }
    table
}
