//! A run for the terminal: tables, then what it comes to.

use std::fmt::Write;

use crate::model::run_file::Run;

use super::table::{self, Cell, Table};

/// All of a run.
pub(super) fn of_run(run: &Run) -> String {
    let mut text = String::new();
    for group in &run.groups {
        let _ = writeln!(text, "{}", Cell::text(&group.name).text);
        let _ = writeln!(text, "{}\n", Cell::text(&group.about).text);
        match table::grid(group) {
            Some(grid) => {
                write_table(&mut text, &grid);
                let _ = writeln!(text, "  {}", table::about_grid(group));
            }
            None if group.cases.is_empty() => {}
            None => write_table(&mut text, &table::of_group(group)),
        }
        for missing in table::missing(group) {
            let _ = writeln!(text, "  {} {}: {}", missing.what(), missing.names, missing.why);
        }
        text.push('\n');
    }
    if let Some(why) = super::incomplete(run) {
        let _ = writeln!(text, "{why}\n");
    }
    write_list(&mut text, "Conclusions", &run.conclusions);
    write_list(&mut text, "Before you believe the numbers", &super::advice(run));
    text
}

/// Columns that are as wide as what is in them, numbers to the right.
fn write_table(text: &mut String, table: &Table) {
    let chars = |text: &str| text.chars().count();
    let widths: Vec<usize> = table
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let cells = table.rows.iter().map(|row| chars(&row[index].text));
            cells.fold(chars(&column.name), usize::max)
        })
        .collect();
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

fn write_list(text: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = writeln!(text, "{title}:");
        for item in items {
            let _ = writeln!(text, "  - {}", Cell::text(item).text);
        }
        text.push('\n');
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
        assert_eq!(of_run(&fixture::run()), include_str!("expected/compare.txt"));
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
        assert!(text.contains("\n  not here 1M x 16: too little memory\n"), "{text}");
        assert!(text.contains("cut short by its limit on time"), "{text}");
    }
}
