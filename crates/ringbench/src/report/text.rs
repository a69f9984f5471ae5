//! Runs as text: in short for a terminal, and in full as Markdown with tables as GitHub reads them.

use std::fmt::Write;

use super::NamedRun;
use super::escape::markdown as escape;
use super::outline;
use super::table::{self, Cell, Table};
use crate::model::case::Group;
use crate::model::run_file::{Run, RunState};

/// Columns of a terminal: nothing is longer, except a word.
pub(super) const COLUMNS: usize = 80;

/// Cases that a terminal compares with the best one.
const COMPARED_MAX: usize = 6;

// (Writing to a string does not fail.)

/// The conclusions are at the end, where a reader is.
pub(crate) fn for_terminal(run: &Run) -> String {
    let mut text = String::new();
    for group in &run.groups {
        let _ = writeln!(text, "{}", Cell::text(&group.name).text);
        wrap(&mut text, "  ", &group.about);
        write_aligned(&mut text, &table::brief(group, COLUMNS));
        text.push('\n');
    }
    let is_whole = run.state != RunState::Interrupted;
    if let Some(group) = outline::main_group(run).filter(|_| is_whole) {
        write_summary(&mut text, group);
    }
    if let Some(why) = outline::incomplete(run) {
        wrap(&mut text, "", why);
    }
    for (title, items) in [
        ("Not measured", outline::not_measured(run)),
        ("Notes", outline::notes(run)),
        ("Conclusions", run.conclusions.clone()),
    ] {
        let title = if items.is_empty() { String::new() } else { format!("\n{title}:\n") };
        text.push_str(&title);
        items.iter().for_each(|item| wrap(&mut text, "  - ", item));
    }
    text.replace("\n\n\n", "\n\n")
}

/// The best case of a group, and how many times as long the others take.
fn write_summary(text: &mut String, group: &Group) {
    let Some((best, _)) = group.best().filter(|_| group.cases.len() > 1) else { return };
    let value = group.summary(best).map(|summary| group.metric.show_summary(&summary));
    let mut others: Vec<_> = group
        .cases
        .iter()
        .filter(|case| *case != best)
        .filter_map(|case| Some((case, group.compare(&best.name, &case.name)?)))
        .collect();
    others.sort_by(|a, b| a.1.value.total_cmp(&b.1.value));
    if others.is_empty() {
        return;
    }
    wrap(
        text,
        "",
        &format!(
            "{}: the best median is that of {} ({})",
            group.name,
            best.name,
            value.unwrap_or_default()
        ),
    );
    for (case, ratio) in others.iter().take(COMPARED_MAX) {
        wrap(text, "    ", &format!("{} {}", case.name, ratio.in_words()));
    }
    text.push('\n');
}

/// Writes a paragraph in lines of [`COLUMNS`], the first after `lead` and the others below it.
pub(super) fn wrap(text: &mut String, lead: &str, paragraph: &str) {
    let mut line = lead.to_owned();
    let mut is_empty = true;
    for word in Cell::text(paragraph).text.split_whitespace() {
        let chars = line.chars().count() + 1 + word.chars().count();
        if !is_empty && chars > COLUMNS {
            let _ = writeln!(text, "{line}");
            line = " ".repeat(lead.chars().count());
            is_empty = true;
        }
        line.push_str(if is_empty { "" } else { " " });
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(text, "{line}");
}

/// Columns that are as wide as their cells, with numbers on the right.
pub(super) fn write_aligned(text: &mut String, table: &Table) {
    if table.rows.is_empty() {
        return;
    }
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::from(" ");
        for ((cell, width), column) in cells.zip(table.widths()).zip(&table.columns) {
            let _ = match column.is_number {
                true => write!(line, " {cell:>width$} "),
                false => write!(line, " {cell:width$} "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    };
    line(&mut table.columns.iter().map(|column| &column.name[..]));
    table.rows.iter().for_each(|row| line(&mut row.iter().map(|cell| &cell.text[..])));
}

pub(crate) fn as_markdown(runs: &[NamedRun]) -> String {
    let mut text = String::from("# ringbench\n");
    for NamedRun { name, run } in runs {
        let (workload, title) = (escape(&run.workload), escape(outline::title(run)));
        let _ = writeln!(text, "\n## {workload}: {title}\n\n{}: {}", escape(name), {
            escape(&outline::facts(run).join(", "))
        });
        let _ = writeln!(text, "\n    {}", Cell::text(&super::command_line(run)).text);
        if let Some(why) = outline::incomplete(run) {
            let _ = writeln!(text, "\n**{why}**");
        }
        write_list(&mut text, "Conclusions", &run.conclusions);
        let result = |(name, value): (&String, &f64)| table::quantity(name, *value);
        let results =
            run.results.iter().map(result).map(|(name, value)| format!("{name}: {value}"));
        write_list(&mut text, "Results", &results.collect::<Vec<_>>());
        write_table(&mut text, &outline::model(run));
        write_list(&mut text, "Notes", &outline::notes(run));
        write_list(&mut text, "Not measured", &outline::not_measured(run));
        for group in &run.groups {
            let (name, about) = (escape(&group.name), escape(&group.about));
            let _ = writeln!(text, "\n### {name}\n\n{about}");
            let (table, note) = table::compact(group);
            write_table(&mut text, &table);
            if let Some(note) = note {
                let _ = writeln!(text, "\n{}", escape(&note));
            }
        }
        let _ = writeln!(text, "\n### Environment");
        outline::environment(run).iter().for_each(|table| write_table(&mut text, table));
    }
    text
}

/// Writes a list, unless it is empty.
fn write_list(text: &mut String, title: &str, items: &[String]) {
    if !items.is_empty() {
        let _ = writeln!(text, "\n#### {title}\n");
        items.iter().for_each(|item| _ = writeln!(text, "- {}", escape(item)));
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
    use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
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
  block \\ depth      1      2      4      8     16
  4K             *156M   152M   144M   128M  96.0M
  16K            78.0M  76.0M  72.0M  64.0M  48.0M
  512K            117M   114M   108M  96.0M  72.0M
  1M             39.0M  38.0M  36.0M  32.0M
";
        assert!(text.starts_with(grid), "{text}");
        assert!(text.contains("  - unavailable: too little memory (1M x 16)\n"), "{text}");
        assert!(text.contains("The time limit ended this run"), "{text}");
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let fixture = include_bytes!("../../tests/fixtures/every-chart.json");
        let run = Run::parse(fixture).unwrap();
        for line in for_terminal(&run).lines() {
            assert!(line.chars().count() <= COLUMNS, "{} columns: {line}", line.chars().count());
        }
        let mut text = String::new();
        wrap(&mut text, "  - ", &"word ".repeat(40));
        assert!(text.lines().count() == 3 && text.lines().nth(1).unwrap().starts_with("    word"));
    }
}
