//! Runs as Markdown, with tables as GitHub reads them.

use std::fmt::Write;

use super::NamedRun;
use super::document::{self, Block, Level};
use super::escape::{markdown as escape, markdown_code as code};
use super::table::{self, Table};

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
            let _ = writeln!(text, "\n{level} {}", escape(name));
        }
        Block::Started(run) => {
            let (start, command) = (escape(&run.started), code(&super::command_line(run)));
            let machine = escape(&document::machine(run));
            let _ = writeln!(text, "\nStarted {start} by {command} on {machine}");
        }
        Block::Warning(why) => _ = writeln!(text, "\n**{why}**"),
        Block::Paragraph(paragraph) => _ = writeln!(text, "\n{}", escape(paragraph)),
        Block::Conclusions(items) => write_list(text, "\n#### Conclusions\n", items),
        Block::Caveats(items) => write_list(text, "\n#### Caveats\n", items),
        Block::Results(results) => {
            let result = |(name, value)| format!("{name}: {value}");
            let results: Vec<_> = results.into_iter().map(result).collect();
            write_list(text, "\n#### Results\n", &results);
        }
        Block::Chart(_) => {}
        Block::Cases(group) => {
            let (table, note) = table::compact(group);
            write_table(text, &table);
            if let Some(note) = note {
                let _ = writeln!(text, "\n{}", escape(&note));
            }
        }
        Block::Missing(reasons) => {
            write_list(text, "", &reasons);
        }
        Block::Environment(tables) => {
            let _ = writeln!(text, "\n### Environment");
            tables.iter().for_each(|table| write_table(text, table));
        }
    }
}

/// Writes a list, unless it is empty.
fn write_list(text: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = writeln!(text, "{title}");
    }
    for item in items {
        let _ = writeln!(text, "- {}", escape(item));
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
        text.push_str(&line(row.iter().map(|cell| escape(&cell.text)).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn a_run_is_written_as_markdown() {
        let named = NamedRun { name: "a.json".into(), run: fixture::run() };
        assert_eq!(of_runs(&[named]), include_str!("tests/expected/compare.md"));
    }
}
