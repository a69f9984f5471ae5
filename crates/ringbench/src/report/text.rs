//! A report as text: for a terminal, or as Markdown with tables as GitHub reads them.

use std::fmt::Write;

use super::NamedRun;
use super::document::{self, Block, Level};
use super::escape::markdown as escape;
use super::table::{self, Cell, Table};
use crate::model::run_file::Run;

/// Text that is being written. (Writing to a string does not fail.)
#[derive(Default)]
pub(super) struct Text {
    pub(super) text: String,
    is_markdown: bool,
}

pub(crate) fn for_terminal(run: &Run) -> String {
    let mut text = Text::default();
    document::of_terminal(run).into_iter().for_each(|block| text.write_block(block));
    text.text.trim_start_matches('\n').to_owned() + "\n"
}

pub(crate) fn as_markdown(runs: &[NamedRun]) -> String {
    let mut text = Text { text: "# ringbench\n".to_owned(), is_markdown: true };
    document::of_runs(runs).into_iter().for_each(|block| text.write_block(block));
    text.text
}

impl Text {
    pub(super) fn line(&mut self, line: &str) {
        let line = self.escape(line);
        let _ = writeln!(self.text, "{line}");
    }

    fn escape(&self, text: &str) -> String {
        if self.is_markdown { escape(text) } else { Cell::text(text).text }
    }

    fn write_block(&mut self, block: Block<'_>) {
        match block {
            Block::Heading(level, name) => {
                let marks = match level {
                    _ if !self.is_markdown => "",
                    Level::Workload => "## ",
                    Level::Run | Level::Group => "### ",
                };
                let _ = write!(self.text, "\n{marks}");
                self.line(name);
            }
            Block::Started(run) => {
                let (start, machine) = (escape(&run.started), escape(&document::machine(run)));
                let command = Cell::text(&super::command_line(run)).text;
                let _ = writeln!(self.text, "\nStarted {start} on {machine}:\n\n    {command}");
            }
            Block::Warning(why) if self.is_markdown => _ = writeln!(self.text, "\n**{why}**"),
            Block::Warning(why) => _ = writeln!(self.text, "\n{why}"),
            Block::Paragraph(paragraph) => {
                self.text.push_str(if self.is_markdown { "\n" } else { "" });
                self.line(paragraph);
            }
            Block::Conclusions(items) => self.write_list("Conclusions", items),
            Block::Caveats(items) => self.write_list("Caveats", items),
            Block::Results(results) if self.is_markdown => {
                let result = |(name, value)| format!("{name}: {value}");
                let results: Vec<_> = results.into_iter().map(result).collect();
                self.write_list("Results", &results);
            }
            Block::Cases(group) => {
                let (table, note) = table::compact(group);
                self.write_table(&table);
                if let Some(note) = note {
                    self.text.push('\n');
                    self.line(&note);
                }
            }
            Block::Missing(reasons) => self.write_list("Not measured", &reasons),
            Block::Environment(tables) => {
                let _ = writeln!(self.text, "\n### Environment");
                tables.iter().for_each(|table| self.write_table(table));
            }
            // The rest is for a page.
            Block::Chart(_) | Block::Results(_) => {}
        }
    }

    /// Writes a list, unless it is empty.
    pub(super) fn write_list(&mut self, title: &str, items: &[String]) {
        match self.is_markdown {
            _ if items.is_empty() => {}
            true => _ = writeln!(self.text, "\n#### {title}\n"),
            false => _ = writeln!(self.text, "\n{title}:"),
        }
        for item in items {
            self.text.push_str(if self.is_markdown { "- " } else { "  - " });
            self.line(item);
        }
    }

    /// Writes a table, unless it is empty; for a terminal with columns that are as wide as their cells.
    pub(super) fn write_table(&mut self, table: &Table) {
        if table.rows.is_empty() {
            return;
        }
        let names = table.columns.iter().map(|column| self.escape(&column.name));
        let mut rows: Vec<Vec<String>> = vec![names.collect()];
        if self.is_markdown {
            let rule = |number| if number { "---:" } else { "---" }.to_owned();
            rows.push(table.columns.iter().map(|column| rule(column.is_number)).collect());
        }
        let cells = |row: &Vec<Cell>| row.iter().map(|cell| self.escape(&cell.text)).collect();
        rows.extend(table.rows.iter().map(cells));
        let chars = |cell: &String| cell.chars().count();
        let width = |index: usize| rows.iter().map(|row| chars(&row[index])).max().unwrap_or(0);
        let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
        self.text.push('\n');
        for row in &rows {
            if self.is_markdown {
                let _ = writeln!(self.text, "| {} |", row.join(" | "));
                continue;
            }
            let mut line = String::from(" ");
            for ((cell, width), column) in row.iter().zip(&widths).zip(&table.columns) {
                let _ = match column.is_number {
                    true => write!(line, " {cell:>width$} "),
                    false => write!(line, " {cell:width$} "),
                };
            }
            let _ = writeln!(self.text, "{}", line.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
    use crate::model::run_file::RunState;
    use crate::report::fixture;

    #[test]
    fn a_run_is_printed_in_aligned_columns() {
        assert_eq!(for_terminal(&fixture::run()), include_str!("tests/expected/compare.txt"));
    }

    #[test]
    fn a_run_is_written_as_markdown() {
        let named = NamedRun { name: "a.json".into(), run: fixture::run() };
        assert_eq!(as_markdown(&[named]), include_str!("tests/expected/compare.md"));
    }

    #[test]
    fn a_large_grid_is_printed_as_one() {
        let chart = Chart::Heat { x: "depth".into(), y: "block".into() };
        let mut group = Group::new("sweep", "Each with each.", Metric::BytesPerS, chart);
        for (row, block) in ["1M", "16K", "512K", "4K"].into_iter().enumerate() {
            for depth in [8, 1, 2, 16, 4] {
                let bytes = 1_000_000 * (row as u64 + 1) * (40 - depth);
                let case = Case::new(format!("{block} x {depth}"));
                let mut case = case.with("block", block).with("depth", depth);
                case.samples = vec![Sample { wall_s: 1.0, bytes, ..Sample::default() }];
                group.cases.push(case);
            }
        }
        group.cases[3].samples.clear();
        group.cases[3].missing = Some(Missing::Unavailable("too little memory".into()));
        let mut run = fixture::run();
        (run.state, run.groups) = (RunState::CutShort, vec![group]);
        let text = for_terminal(&run);
        let grid = "\
sweep
Each with each.

  block \\ depth          1          2          4          8         16
  4K             *156 MB/s   152 MB/s   144 MB/s   128 MB/s  96.0 MB/s
  16K            78.0 MB/s  76.0 MB/s  72.0 MB/s  64.0 MB/s  48.0 MB/s
  512K            117 MB/s   114 MB/s   108 MB/s  96.0 MB/s  72.0 MB/s
  1M             39.0 MB/s  38.0 MB/s  36.0 MB/s  32.0 MB/s
";
        assert!(text.starts_with(grid), "{text}");
        assert!(text.contains("\n* best: 4K x 1, 156 MB/s\n"), "{text}");
        assert!(text.contains("\n  - unavailable: 1M x 16: too little memory\n"), "{text}");
        assert!(text.contains("The time limit ended this run"), "{text}");
    }
}
