//! Runs in the formats that people and programs read. `table` decides what is in a table, `compare` what
//! several runs of one workload have in common, `chart` draws; each format only writes it down.

mod chart;
pub(crate) mod command;
mod compare;
pub(crate) mod csv;
mod grid;
pub(crate) mod html;
pub(crate) mod markdown;
mod table;
mod text;

#[cfg(test)]
mod fixture;

use std::io::Write;

use crate::model::run_file::{Run, RunState};

/// Each value once, in the order of its first occurrence.
fn unique<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for value in values {
        if !unique.contains(&value) {
            unique.push(value);
        }
    }
    unique
}

/// A run, and the name of its file.
#[derive(Debug, Clone)]
pub(crate) struct NamedRun {
    pub(crate) name: String,
    pub(crate) run: Run,
}

/// Prints what came of a run.
///
/// # Errors
///
/// The output cannot be written.
pub(crate) fn print(run: &Run) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(printed(run).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// What is printed.
pub(crate) fn printed(run: &Run) -> String {
    text::of_run(run)
}

/// What is to be said of a run that is not complete.
fn incomplete(run: &Run) -> Option<&'static str> {
    match run.state {
        RunState::Finished => None,
        RunState::Running => Some(
            "This run did not end, or has not yet: what is here is what had been measured when it was read.",
        ),
        RunState::CutShort => Some(
            "This run was cut short by its limit on time: there are fewer samples, or groups are missing.",
        ),
        RunState::Interrupted => {
            Some("This run was interrupted: what is here is what had been measured until then.")
        }
    }
}

/// The command as it was typed, quoted where a shell would need it.
fn command_line(run: &Run) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+./,:@%^".contains(c);
    let quote = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    run.command.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// The advice of a run: its own, then that of its groups, with their names.
fn advice(run: &Run) -> Vec<String> {
    let of_groups = run.groups.iter().flat_map(|group| {
        group.advice.iter().map(move |advice| format!("{}: {advice}", group.name))
    });
    run.advice.iter().cloned().chain(of_groups).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let mut run = fixture::run();
        run.command =
            ["ringbench", "limits", "a b", "it's", "", "--runs=3"].map(String::from).to_vec();
        assert_eq!(command_line(&run), "ringbench limits 'a b' 'it'\\''s' '' --runs=3");
    }
}
