//! A run, and a comparison of two, for a terminal.

use std::fmt::Write;

use super::document::{self, Block, Level};
use super::table::{self, Cell, Table};
use crate::model::run_file::Run;

/// All of a run.
pub(super) fn of_run(run: &Run) -> String {
    let mut text = String::new();
    for block in document::of_terminal(run) {
        write_block(&mut text, block);
    }
    text.trim_start_matches('\n').to_owned() + "\n"
}

// (Writing to a string does not fail.)

fn write_block(text: &mut String, block: Block<'_>) {
    match block {
        Block::Heading(Level::Group, name) => _ = writeln!(text, "\n{}", Cell::text(name).text),
        Block::Paragraph(paragraph) => _ = writeln!(text, "{}\n", Cell::text(paragraph).text),
        Block::Cases(group) => {
            let (table, note) = table::compact(group);
            write_table(text, &table);
            if let Some(note) = note {
                let _ = writeln!(text, "  {note}");
            }
        }
        Block::Missing(reasons) => {
            for reason in reasons {
                let _ = writeln!(text, "  {}", Cell::text(&reason).text);
            }
        }
        Block::Warning(why) => _ = writeln!(text, "\n{why}"),
        Block::Conclusions(items) => write_list(text, "Conclusions", items),
        Block::Caveats(items) => write_list(text, "Caveats", items),
        // The rest is for a page.
        _ => {}
    }
}

/// Writes a list, unless it is empty.
pub(super) fn write_list(text: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = writeln!(text, "\n{title}:");
    }
    for item in items {
        let _ = writeln!(text, "  - {}", Cell::text(item).text);
    }
}

/// Columns that are as wide as their cells, with numbers on the right.
pub(super) fn write_table(text: &mut String, table: &Table) {
    let chars = |text: &str| text.chars().count();
    let width = |index: usize| {
        let cells = table.rows.iter().map(|row| chars(&row[index].text));
        cells.fold(chars(&table.columns[index].name), usize::max)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::from(" ");
        for ((cell, width), column) in cells.zip(&widths).zip(&table.columns) {
            let _ = match column.is_number {
                true => write!(line, " {cell:>width$} "),
                false => write!(line, " {cell:width$} "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    };
    line(&mut table.columns.iter().map(|column| &column.name[..]));
    for row in &table.rows {
        line(&mut row.iter().map(|cell| &cell.text[..]));
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
        assert_eq!(of_run(&fixture::run()), include_str!("tests/expected/compare.txt"));
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
        let text = of_run(&run);
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
        assert!(text.contains("\n  * best: 4K x 1, 156 MB/s\n"), "{text}");
        assert!(text.contains("\n  unavailable: 1M x 16: too little memory\n"), "{text}");
        assert!(text.contains("The time limit ended this run"), "{text}");
    }
}
