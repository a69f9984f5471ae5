//! What a report says of a run, in any format: its facts, main group, notes and tables.

use super::table::{Cell, Column, Table};
use crate::model::case::{Group, Missing};
use crate::model::environment::Facts;
use crate::model::run_file::{Run, RunState};
use crate::model::units::show_scaled;

/// Conclusions that stand above everything else; the others are folded.
pub(super) const CONCLUSIONS_SHOWN: usize = 3;

/// Names of cases that are listed with the reason why they were not measured.
const NAMES_SHOWN: usize = 3;

/// Why a run is not complete, if it is not.
pub(super) fn incomplete(run: &Run) -> Option<&'static str> {
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

/// The path that was measured; if there is none, the workload.
pub(super) fn title(run: &Run) -> &str {
    run.environment.targets.first().map_or(&run.workload, |target| &target.path)
}

/// What was measured, on what and when, in a few words each.
pub(super) fn facts(run: &Run) -> Vec<String> {
    let none = Facts::new();
    let target = run.environment.targets.first().map_or(&none, |target| &target.facts);
    let bytes = target.get("length").and_then(|length| length.split(' ').next()?.parse().ok());
    let device = target.get("device").map(|device| match target.get("device model") {
        Some(model) => format!("{device} ({model})"),
        None => device.clone(),
    });
    let length = bytes.map(|bytes: f64| format!("{}B", show_scaled(bytes)));
    let facts = [length, device, target.get("file system").cloned()];
    facts.into_iter().flatten().chain(machine(run)).collect()
}

/// On what machine, and when.
pub(super) fn machine(run: &Run) -> Vec<String> {
    let machine = &run.environment.machine;
    let facts = [
        machine.get("cpu").cloned(),
        machine.get("processors").map(|count| format!("{count} processors")),
        machine.get("kernel").cloned(),
        Some(run.started.replace('T', " ").replace('Z', " UTC")),
    ];
    facts.into_iter().flatten().collect()
}

/// The group that answers the question of a workload.
pub(super) fn main_group(run: &Run) -> Option<&Group> {
    const ANSWERS: [&str; 2] = ["reading and hashing", "5: the best against the built-in"];
    let measured = |group: &&Group| group.cases.iter().any(|case| !case.samples.is_empty());
    let groups = || run.groups.iter().filter(measured);
    groups().find(|group| ANSWERS.contains(&&group.name[..])).or_else(|| groups().next())
}

/// What is to be known of the numbers, with the groups that it is about: the same note once.
pub(super) fn notes(run: &Run) -> Vec<String> {
    let mut notes: Vec<(Vec<&str>, &str)> = Vec::new();
    for group in &run.groups {
        for note in &group.advice {
            match notes.iter_mut().find(|(_, other)| other == note) {
                Some((names, _)) => names.push(&group.name),
                None => notes.push((vec![&group.name], note)),
            }
        }
    }
    let notes = notes.into_iter().map(|(names, note)| format!("{}: {note}", names.join(", ")));
    run.advice.iter().cloned().chain(notes).collect()
}

/// The cases that were not measured, or not to the end: each reason once, with some of its cases.
pub(super) fn not_measured(run: &Run) -> Vec<String> {
    let mut reasons: Vec<(&Missing, Vec<&str>)> = Vec::new();
    for case in run.groups.iter().flat_map(|group| &group.cases) {
        let Some(missing) = &case.missing else { continue };
        match reasons.iter_mut().find(|(other, _)| *other == missing) {
            Some((_, names)) if names.contains(&&case.name[..]) => {}
            Some((_, names)) => names.push(&case.name),
            None => reasons.push((missing, vec![&case.name])),
        }
    }
    let line = |(missing, names): (&Missing, Vec<&str>)| {
        let what = if matches!(missing, Missing::Failed(_)) { "failed" } else { "unavailable" };
        let more = names.len().saturating_sub(NAMES_SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let names = names[..names.len().min(NAMES_SHOWN)].join("; ");
        Cell::text(&format!("{what}: {} ({names}{more})", missing.why())).text
    };
    reasons.into_iter().map(line).collect()
}

/// Predictions beside what was measured, with the terms; empty if the run has none.
pub(super) fn model(run: &Run) -> Table {
    let numbers = ["measured", "predicted", "off by"].map(Column::number);
    let columns = [Column::text("case")].into_iter().chain(numbers).chain([Column::text("terms")]);
    let mut table = Table { columns: columns.collect(), ..Table::default() };
    for prediction in &run.predictions {
        let Some((binding, predicted)) = prediction.binding() else { continue };
        let rate = |rate: f64| Cell::number(format!("{}B/s", show_scaled(rate)), rate);
        let off = prediction.off() * 100.0;
        let term = |(name, rate): &(String, f64)| {
            let binds = if name == binding { " (binds)" } else { "" };
            format!("{name} {}B/s{binds}", show_scaled(*rate))
        };
        let terms: Vec<_> = prediction.terms.iter().map(term).collect();
        table.rows.push(vec![
            Cell::text(&prediction.name),
            rate(prediction.measured_bytes_per_s),
            rate(*predicted),
            Cell::number(format!("{off:+.0} %"), off),
            Cell::text(&terms.join("; ")),
        ]);
    }
    table
}

/// The facts of the machine and of the targets.
pub(super) fn environment(run: &Run) -> Vec<Table> {
    let table = |title: &str, facts: &Facts| {
        let columns = vec![Column::text(title), Column::text("")];
        let rows = facts.iter().map(|(name, value)| vec![Cell::text(name), Cell::text(value)]);
        Table { columns, rows: rows.collect(), best: None }
    };
    let targets = run.environment.targets.iter().map(|it| table(&it.path, &it.facts));
    [table("machine", &run.environment.machine)].into_iter().chain(targets).collect()
}
