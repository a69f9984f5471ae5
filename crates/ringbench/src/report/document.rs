//! A report without a format: its parts, in their order. A format only writes them down.

use super::NamedRun;
use super::table::{self, Cell, Column, Table};
use crate::model::case::Group;
use crate::model::environment::Facts;
use crate::model::run_file::{Run, RunState};

pub(super) enum Block<'a> {
    Heading(Level, &'a str),
    /// The start, the command line and the machine of a run.
    Started(&'a Run),
    /// Why a run is not complete.
    Warning(&'static str),
    Paragraph(&'a str),
    Conclusions(&'a [String]),
    Caveats(&'a [String]),
    /// Names and values.
    Results(Vec<(String, String)>),
    Chart(&'a Group),
    Cases(&'a Group),
    Missing(Vec<String>),
    /// The facts of the machine and of the targets.
    Environment(Vec<Table>),
}

/// What a heading is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Workload,
    /// The file of a run, if there are several.
    Run,
    Group,
}

/// One run, for a terminal: the conclusions are at the end, where a reader is.
pub(super) fn of_terminal(run: &Run) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = run.groups.iter().flat_map(of_group).collect();
    blocks.extend(incomplete(run).map(Block::Warning));
    blocks.extend(summary(run));
    blocks
}

/// All runs, one after another.
pub(super) fn of_runs(runs: &[NamedRun]) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for NamedRun { name, run } in runs {
        blocks.push(Block::Heading(Level::Workload, &run.workload));
        blocks.extend((runs.len() > 1).then_some(Block::Heading(Level::Run, name)));
        blocks.push(Block::Started(run));
        blocks.extend(incomplete(run).map(Block::Warning));
        blocks.extend(summary(run));
        blocks.extend(run.groups.iter().flat_map(of_group));
        let targets = run.environment.targets.iter();
        let targets = targets.map(|target| facts_table(&target.path, &target.facts));
        let machine = facts_table("machine", &run.environment.machine);
        blocks.push(Block::Environment([machine].into_iter().chain(targets).collect()));
    }
    blocks
}

/// The results of a run, in words and numbers.
fn summary(run: &Run) -> Vec<Block<'_>> {
    let results = run.results.iter().map(|(name, value)| table::quantity(name, *value));
    vec![
        Block::Conclusions(&run.conclusions),
        Block::Results(results.collect()),
        Block::Caveats(&run.advice),
    ]
}

fn of_group(group: &Group) -> [Block<'_>; 6] {
    [
        Block::Heading(Level::Group, &group.name),
        Block::Paragraph(&group.about),
        Block::Chart(group),
        Block::Cases(group),
        Block::Missing(table::missing(group)),
        Block::Caveats(&group.advice),
    ]
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

fn facts_table(title: &str, facts: &Facts) -> Table {
    let columns = vec![Column::text(title), Column::text("")];
    let rows = facts.iter().map(|(name, value)| vec![Cell::text(name), Cell::text(value)]);
    Table { columns, rows: rows.collect(), best: None }
}
