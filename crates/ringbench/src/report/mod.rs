//! Runs in the formats that people and programs read. `outline` decides what a report says, `table`
//! what a table has, and `chart` draws; each format only writes that down. `diff` compares two runs.

mod chart;
pub(crate) mod command;
pub(crate) mod csv;
pub(crate) mod diff;
mod escape;
mod grid;
pub(crate) mod html;
mod outline;
mod table;
pub(crate) mod text;

#[cfg(test)]
#[path = "tests/fixture.rs"]
mod fixture;

use std::io::Write;

use crate::model::run_file::Run;

/// A run, and the name of its file.
#[derive(Debug, Clone)]
pub(crate) struct NamedRun {
    pub(crate) name: String,
    pub(crate) run: Run,
}

pub(crate) fn print(run: &Run) -> anyhow::Result<()> {
    write_to_stdout(&text::for_terminal(run))
}

fn write_to_stdout(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// The command as it was typed, quoted as a shell needs it.
fn command_line(run: &Run) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_=+./,:@%^".contains(c);
    let quote = |word: &String| match !word.is_empty() && word.chars().all(plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    run.command.iter().map(quote).collect::<Vec<_>>().join(" ")
}

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
