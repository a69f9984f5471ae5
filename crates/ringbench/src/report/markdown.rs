//! Runs as Markdown, with tables as GitHub reads them.

use std::fmt::Write;

use super::NamedRun;
use super::document::{self, Block, Level, title_of};
use super::escape::{markdown as escape, markdown_code as code};
use super::table::{self, Cell, Mark, Table};

/// One document for all runs.
pub(crate) fn of_runs(runs: &[NamedRun]) -> String {
    let mut text = String::from("# ringbench\n");
    for block in document::of_runs(runs) {
        write_block(&mut text, block);
    }
    text
}

// (Writing to a string does not fail.)

fn write_block(text: &mut String, block: Block<'_>) {
    match block {
        Block::Heading(level, name) => {
            let level = if level == Level::Workload { "##" } else { "###" };
            let _ = writeln!(text, "\n{level} {}", escape(&name));
        }
        Block::Started(run) => {
            let (start, command) = (escape(&run.started), code(&super::command_line(run)));
            let machine = escape(&document::machine(run));
            let _ = writeln!(text, "\nStarted {start} by {command} on {machine}");
        }
        Block::Warning(why) => _ = writeln!(text, "\n**{why}**"),
        Block::Paragraph(paragraph) => _ = writeln!(text, "\n{}", escape(paragraph)),
        Block::List { title, items, .. } => {
            let _ = writeln!(text, "\n#### {title}");
            write_list(text, &items);
        }
        Block::Results(results) => {
            text.push_str("\n#### Results\n");
            let result = |(name, value)| format!("{name}: {value}");
            write_list(text, &results.into_iter().map(result).collect::<Vec<_>>());
        }
        Block::Chart(_) => {}
        Block::Comparison(table) => write_table(text, &table),
        Block::Cases(group, letter) => {
            if letter.is_some() {
                let _ = writeln!(text, "\n{}:", title_of("Cases", letter.as_deref()));
            }
            let (table, note) = table::compact(group);
            write_table(text, &table);
            if let Some(note) = note {
                let _ = writeln!(text, "\n{}", escape(&note));
            }
        }
        Block::Missing(reasons) => {
            write_list(text, &reasons.iter().map(|reason| reason.show()).collect::<Vec<_>>());
        }
        Block::Environment(tables) => {
            let _ = writeln!(text, "\n### Environment");
            tables.iter().for_each(|table| write_table(text, table));
        }
    }
}

fn write_list(text: &mut String, items: &[String]) {
    for (number, item) in items.iter().enumerate() {
        let before = if number == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{before}- {}", escape(item));
    }
}

fn write_table(text: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = table.columns.iter().map(|column| escape(&column.name));
    let rule = table.columns.iter().map(|column| if column.is_number { "---:" } else { "---" });
    text.push('\n');
    text.push_str(&line(names.collect()));
    text.push_str(&line(rule.map(str::to_owned).collect()));
    for row in &table.rows {
        let cell = |cell: &Cell| match cell.mark {
            Mark::Better | Mark::Worse | Mark::Differs => format!("**{}**", escape(&cell.text)),
            Mark::None | Mark::Faint => escape(&cell.text),
        };
        text.push_str(&line(row.iter().map(cell).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_run_is_written_as_markdown() {
        let named = NamedRun { name: "a.json".into(), run: fixture::run() };
        assert_eq!(of_runs(&[named]), include_str!("expected/compare.md"));
    }

    #[test]
    fn differences_are_bold() {
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
}
