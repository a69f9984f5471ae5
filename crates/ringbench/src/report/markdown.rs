//! Runs as Markdown, with tables as GitHub reads them.

use std::fmt::Write;

use crate::model::case::Group;
use crate::model::run_file::Run;

use super::NamedRun;
use super::compare::{self, Section};
use super::table::{self, Cell, Mark, Table};

/// One document for all runs.
pub(crate) fn of_runs(runs: &[NamedRun]) -> String {
    let mut text = String::from("# ringbench\n");
    for section in compare::sections(runs) {
        let _ = writeln!(text, "\n## {}", escape(section.workload));
        match &section.runs[..] {
            [run] => one(&mut text, &run.run),
            _ => several(&mut text, &section),
        }
    }
    text
}

fn one(text: &mut String, run: &Run) {
    about(text, run);
    words(text, run, "###");
    for group in &run.groups {
        heading(text, group, "###");
        write_group(text, group);
    }
    environment(text, run, "###");
}

fn several(text: &mut String, section: &Section<'_>) {
    for (number, named) in section.runs.iter().enumerate() {
        let _ = writeln!(text, "\n### {}: {}", compare::letter(number), escape(&named.name));
        about(text, &named.run);
        words(text, &named.run, "####");
        environment(text, &named.run, "####");
    }
    text.push_str("\n### Side by side\n");
    write_list(text, &compare::tally(section));
    for shared in section.groups() {
        heading(text, shared[0].1, "####");
        if let [_, _, ..] = &shared[..] {
            write_table(text, &compare::table(&shared));
        }
        for (number, group) in &shared {
            let _ = writeln!(text, "\n{}:", compare::letter(*number));
            write_group(text, group);
        }
    }
}

/// When and by what a run was made, and whether it is complete.
fn about(text: &mut String, run: &Run) {
    let command = super::command_line(run);
    let _ = writeln!(text, "\nStarted {} by {}", escape(&run.started), code(&command));
    if let Some(why) = super::incomplete(run) {
        let _ = writeln!(text, "\n**{why}**");
    }
}

/// What it comes to, in words and in numbers, and what is to be known before.
fn words(text: &mut String, run: &Run, level: &str) {
    if !run.conclusions.is_empty() {
        let _ = writeln!(text, "\n{level} Conclusions");
        write_list(text, &run.conclusions);
    }
    if !run.results.is_empty() {
        let _ = writeln!(text, "\n{level} Results");
        let result = |(name, value): (&String, &f64)| {
            let (name, value) = table::quantity(name, *value);
            format!("{name}: {value}")
        };
        write_list(text, &run.results.iter().map(result).collect::<Vec<_>>());
    }
    let advice = super::advice(run);
    if !advice.is_empty() {
        let _ = writeln!(text, "\n{level} Before you believe the numbers");
        write_list(text, &advice);
    }
}

fn heading(text: &mut String, group: &Group, level: &str) {
    let _ = writeln!(text, "\n{level} {}\n\n{}", escape(&group.name), escape(&group.about));
}

fn write_group(text: &mut String, group: &Group) {
    match table::grid(group) {
        Some(grid) => {
            write_table(text, &grid);
            let _ = writeln!(text, "\n{}", escape(&table::about_grid(group)));
        }
        None if group.cases.is_empty() => {}
        None => write_table(text, &table::of_group(group)),
    }
    let missing = table::missing(group);
    let missing = missing
        .iter()
        .map(|missing| format!("{} {}: {}", missing.what(), missing.names, missing.why));
    write_list(text, &missing.collect::<Vec<_>>());
}

fn environment(text: &mut String, run: &Run, level: &str) {
    let _ = writeln!(text, "\n{level} Measured on");
    let facts = |facts: &std::collections::BTreeMap<String, String>| {
        facts.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    write_list(text, &facts(&run.environment.machine));
    for target in &run.environment.targets {
        let _ = writeln!(text, "\n{}:", code(&target.path));
        write_list(text, &facts(&target.facts));
    }
}

fn write_list(text: &mut String, items: &[String]) {
    for (number, item) in items.iter().enumerate() {
        let before = if number == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{before}- {}", escape(item));
    }
}

fn write_table(text: &mut String, table: &Table) {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = table.columns.iter().map(|column| escape(&column.name));
    let rule = table.columns.iter().map(|column| if column.is_number { "---:" } else { "---" });
    text.push('\n');
    text.push_str(&line(names.collect()));
    text.push_str(&line(rule.map(str::to_owned).collect()));
    for row in &table.rows {
        let cell = |cell: &Cell| match cell.mark {
            Mark::Better | Mark::Worse => format!("**{}**", escape(&cell.text)),
            Mark::None | Mark::Faint => escape(&cell.text),
        };
        text.push_str(&line(row.iter().map(cell).collect()));
    }
}

/// Text in one line that stands for itself: nothing in it is markup, nor ends a cell.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' | '~' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Text as code, between more backquotes than there are in it.
fn code(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    match longest {
        0 => format!("{fence}{text}{fence}"),
        _ => format!("{fence} {text} {fence}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_run_is_written_as_markdown() {
        let named = NamedRun { name: "a.json".into(), run: fixture::run() };
        let expected = include_str!("expected/compare.md");
        assert_eq!(of_runs(&[named]), expected);
    }

    #[test]
    fn what_differs_is_bold() {
        let named = |name: &str, run| NamedRun { name: name.into(), run };
        let text =
            of_runs(&[named("a_1.json", fixture::run()), named("b.json", fixture::run_after())]);
        for part in [
            "### A: a\\_1.json\n",
            "| ringsum | 1.00 s | 990 ms..1.01 s | 800 ms | 790..810 ms | **1.25 times faster** |",
            "| within the noise |\n",
            "**This run was interrupted",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn nothing_in_a_name_is_markup() {
        assert_eq!(escape("<b>a|b*c_d`e\n[f]"), "&lt;b&gt;a\\|b\\*c\\_d\\`e \\[f\\]");
        assert_eq!(code("a ` b `` c"), "``` a ` b `` c ```");
        assert_eq!(code("ringbench limits"), "`ringbench limits`");
    }
}
