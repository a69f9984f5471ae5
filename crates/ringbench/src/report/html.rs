//! Runs as one self-contained page of HTML: style, script and charts are in it, and its policy forbids it
//! to load anything. All text from runs goes through [`escape`].

use std::fmt::{Result, Write};

use super::NamedRun;
use super::chart;
use super::document::{self, Block, Level};
use super::escape::html as escape;
use super::table::{self, Cell, Table};
use crate::model::case::Group;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Longer tables are folded, in rows.
const ROWS_OPEN_MAX: usize = 24;

/// Longer names of cases may be broken into lines.
const NAME_CHARS_UNBROKEN: usize = 32;

/// Shorter pages have no table of contents, in groups.
const GROUPS_LISTED_MIN: usize = 3;

pub(crate) fn of_runs(runs: &[NamedRun]) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, &document::of_runs(runs));
    page
}

fn write_page(page: &mut String, mut blocks: &[Block<'_>]) -> Result {
    let headings = |wanted| {
        let headings = blocks.iter().filter_map(move |block| match block {
            Block::Heading(level, name) if *level == wanted => Some(escape(name)),
            _ => None,
        });
        headings.collect::<Vec<_>>()
    };
    let workloads = headings(Level::Workload);
    let title = match &workloads[..] {
        [workload] => workload.clone(),
        _ => format!("{} workloads", workloads.len()),
    };
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>ringbench: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <p class=\"brand\">ringbench</p>\n<h1>{title}</h1>\n",
        workloads.join(", ")
    )?;
    let has_contents = headings(Level::Group).len() >= GROUPS_LISTED_MIN;
    if workloads.len() == 1 {
        // Its heading, the first block, is the title.
        blocks = &blocks[1..];
    }
    if has_contents {
        write_contents(page, blocks)?;
    }
    for (number, block) in blocks.iter().enumerate() {
        write_block(page, number, block)?;
    }
    write!(page, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
}

/// Links to all workloads and groups; headings have the numbers of their blocks.
fn write_contents(page: &mut String, blocks: &[Block<'_>]) -> Result {
    page.push_str("<nav aria-label=\"Contents\">\n<ul>");
    for (number, block) in blocks.iter().enumerate() {
        let (class, name) = match block {
            Block::Heading(Level::Workload, name) => (" class=\"workload\"", name),
            Block::Heading(Level::Group, name) => ("", name),
            _ => continue,
        };
        write!(page, "<li{class}><a href=\"#b{number}\">{}</a></li>", escape(name))?;
    }
    page.push_str("</ul>\n</nav>\n");
    Ok(())
}

fn write_block(page: &mut String, number: usize, block: &Block<'_>) -> Result {
    match block {
        Block::Heading(level, name) => {
            let (tag, class) = match level {
                Level::Workload => ("h2", "workload"),
                Level::Run => ("h3", "run"),
                Level::Group => ("h3", "group"),
            };
            writeln!(page, "<{tag} class=\"{class}\" id=\"b{number}\">{}</{tag}>", escape(name))
        }
        Block::Started(run) => {
            let (started, command) = (escape(&run.started), escape(&super::command_line(run)));
            let shown = started.replace('T', " ").replace('Z', " UTC");
            writeln!(
                page,
                "<p class=\"about\"><time datetime=\"{started}\">{shown}</time> <code>{command}</code><br>{}</p>",
                escape(&document::machine(run))
            )
        }
        Block::Warning(why) => writeln!(page, "<p class=\"incomplete\" role=\"note\">{why}</p>"),
        Block::Paragraph(text) => writeln!(page, "<p class=\"lead\">{}</p>", escape(text)),
        Block::Conclusions(items) => {
            write_list(page, "section class=\"conclusions\"", "Conclusions", items)
        }
        Block::Caveats(items) => write_list(page, "aside class=\"advice\"", "Caveats", items),
        Block::Results(results) if results.is_empty() => Ok(()),
        Block::Results(results) => {
            page.push_str("<dl class=\"results\" aria-label=\"Results\">\n");
            for (name, value) in results {
                let (name, value) = (escape(name), escape(value));
                writeln!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
            }
            writeln!(page, "</dl>")
        }
        Block::Chart(group) => write_chart(page, group),
        Block::Cases(group) => write_cases(page, group),
        Block::Missing(reasons) => {
            write_list(page, "section class=\"missing\"", "Not measured", reasons)
        }
        Block::Environment(tables) => {
            writeln!(page, "<details class=\"environment\"><summary>Environment</summary>")?;
            for table in tables {
                write_table(page, table, "facts", "Facts")?;
            }
            writeln!(page, "</details>")
        }
    }
}

/// Writes a list, unless it is empty.
fn write_list(page: &mut String, element: &str, title: &str, items: &[String]) -> Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(page, "<{element}><h4>{title}</h4>\n<ul>")?;
    for item in items {
        writeln!(page, "<li>{}</li>", escape(item))?;
    }
    let tag = element.split(' ').next().unwrap_or_default();
    writeln!(page, "</ul></{tag}>")
}

fn write_chart(page: &mut String, group: &Group) -> Result {
    let Some(drawing) = chart::draw(group) else { return Ok(()) };
    writeln!(page, "<figure data-chart=\"{}\">", chart::kind(&group.chart))?;
    write_scrolling(page, "Chart", &drawing)?;
    writeln!(page, "<figcaption>{}</figcaption></figure>", chart::legend(&group.chart))
}

/// A box that scrolls can be focused, for the keyboard.
fn write_scrolling(page: &mut String, label: &str, content: &str) -> Result {
    let attributes =
        format!("class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{label}\"");
    writeln!(page, "<div {attributes}>{content}</div>")
}

fn write_cases(page: &mut String, group: &Group) -> Result {
    let (table, caption) = (table::of_group(group), group.metric.name());
    if table.rows.len() <= ROWS_OPEN_MAX {
        return write_table(page, &table, "cases", caption);
    }
    writeln!(page, "<details><summary>All {} cases</summary>", table.rows.len())?;
    write_table(page, &table, "cases", caption)?;
    writeln!(page, "</details>")
}

/// Writes a table. The script makes those of the class `cases` sortable, by the values of the cells.
fn write_table(page: &mut String, table: &Table, class: &str, caption: &str) -> Result {
    if table.rows.is_empty() {
        return Ok(());
    }
    let longest = table.rows.iter().map(|row| row[0].text.chars().count()).max().unwrap_or(0);
    let name_chars = longest.min(NAME_CHARS_UNBROKEN);
    let mut content = format!(
        "<table class=\"{class}\" style=\"--name:{name_chars}ch\"><caption>{}</caption>\n<thead><tr>",
        escape(caption)
    );
    for column in &table.columns {
        let class = if column.is_number { " class=\"number\"" } else { "" };
        write!(content, "<th scope=\"col\"{class}>{}</th>", escape(&column.name))?;
    }
    content.push_str("</tr></thead>\n<tbody>\n");
    for (index, row) in table.rows.iter().enumerate() {
        let class = if table.best == Some(index) { " class=\"best\"" } else { "" };
        write!(content, "<tr{class}><th scope=\"row\">{}</th>", escape(&row[0].text))?;
        row[1..].iter().try_for_each(|cell| write_cell(&mut content, cell))?;
        content.push_str("</tr>\n");
    }
    content.push_str("</tbody></table>");
    write_scrolling(page, "Table", &content)
}

fn write_cell(page: &mut String, cell: &Cell) -> Result {
    let text = escape(&cell.text);
    match cell.value.filter(|value| value.is_finite()) {
        Some(value) => write!(page, "<td data-value=\"{value}\">{text}</td>"),
        None => write!(page, "<td>{text}</td>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::Missing;
    use crate::model::run_file::Run;
    use crate::report::fixture;

    fn page(runs: Vec<Run>) -> String {
        let named = |(number, run)| NamedRun { name: format!("run <{number}>.json"), run };
        of_runs(&runs.into_iter().enumerate().map(named).collect::<Vec<_>>())
    }

    #[test]
    fn nothing_from_a_run_is_markup() {
        let mut run = fixture::run();
        let evil = "</script></style><script>alert('\"x\"')</script>&";
        run.workload = evil.into();
        run.started = evil.into();
        run.command.push(evil.into());
        run.environment.machine.insert(evil.into(), evil.into());
        run.environment.targets[0].path = evil.into();
        run.results.insert(evil.into(), 1.0);
        run.conclusions.push(evil.into());
        run.advice.push(evil.into());
        let group = &mut run.groups[0];
        (group.name, group.about) = (evil.into(), evil.into());
        group.advice.push(evil.into());
        group.cases[0].name = evil.into();
        group.cases[2].missing = Some(Missing::Failed(evil.into()));
        group.cases[0].samples[0].more.insert(evil.into(), 1.0);
        for page in [page(vec![run.clone()]), page(vec![run.clone(), run])] {
            assert_eq!(page.matches("<script>").count(), 1, "{page}");
            assert_eq!(page.matches("</script>").count(), 1);
            assert_eq!(page.matches("</style>").count(), 1);
            assert!(!page.contains("alert('"), "{page}");
        }
    }

    #[test]
    fn a_page_has_everything_of_a_run() {
        let page = page(vec![fixture::run()]);
        for part in [
            "<h1>compare</h1>",
            "<code>ringbench compare &#39;/data/a b&#39;</code>",
            "<br>Linux 6.12 x86_64, A &amp; B &lt;9000&gt;</p>",
            "<li>ringsum is 2.00 times as fast as `b3sum | &lt;script&gt;`</li>",
            "<dt>limit</dt><dd>3.81 GB/s</dd>",
            "<p class=\"lead\">How long each takes for a file that is in the page cache.</p>",
            "<tr class=\"best\"><th scope=\"row\">ringsum</th><td data-value=\"1\">1.00 s</td>",
            "<li>unavailable: cksum: it is not installed</li>",
            "<h4>Caveats</h4>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("class=\"incomplete\""));
    }

    #[test]
    fn several_runs_have_the_names_of_their_files() {
        let page = page(vec![fixture::run(), fixture::run_after()]);
        for part in [">run &lt;1&gt;.json</h3>", "This run was interrupted"] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert_eq!(page.matches("<table class=\"bars\"").count(), 2);
    }
}
