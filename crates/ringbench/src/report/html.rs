//! Runs as one self-contained page of HTML: style, script and charts are in it, and its policy forbids it
//! to load anything. All text from runs goes through [`escape`].

use std::fmt::{Result, Write};

use super::escape::html as escape;
use super::outline::{self, CONCLUSIONS_SHOWN};
use super::table::{self, Cell, Table};
use super::{NamedRun, chart};
use crate::model::case::Group;
use crate::model::run_file::Run;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Longer names of cases may be broken into lines.
const NAME_CHARS_UNBROKEN: usize = 32;

pub(crate) fn of_runs(runs: &[NamedRun]) -> String {
    let mut page = String::new();
    // Writing to a string does not fail.
    let _ = write_page(&mut page, runs);
    page
}

fn write_page(page: &mut String, runs: &[NamedRun]) -> Result {
    let names: Vec<_> = runs.iter().map(|run| escape(&run.run.workload)).collect();
    write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>ringbench: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        names.join(", ")
    )?;
    if runs.len() > 1 {
        page.push_str("<nav aria-label=\"Contents\"><ul>");
        for (number, NamedRun { name, .. }) in runs.iter().enumerate() {
            // (Without the folder, in which all of them usually are.)
            let name = name.rsplit('/').next().unwrap_or(name);
            write!(page, "<li><a href=\"#r{number}\">{}</a></li>", escape(name))?;
        }
        page.push_str("</ul></nav>\n");
    }
    for (number, NamedRun { run, .. }) in runs.iter().enumerate() {
        write_run(page, number, run)?;
    }
    write!(page, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
}

/// What a reader wants to know is open: conclusions, one chart, the model. The rest is folded.
fn write_run(page: &mut String, number: usize, run: &Run) -> Result {
    let (workload, title) = (escape(&run.workload), escape(outline::title(run)));
    writeln!(
        page,
        "<header id=\"r{number}\"><p class=\"brand\">ringbench {workload}</p><h1>{title}</h1>"
    )?;
    let facts = outline::facts(run);
    let facts = facts.iter().map(|fact| format!("<li>{}</li>", escape(fact))).collect::<String>();
    let command = escape(&super::command_line(run));
    writeln!(page, "<ul class=\"about\">{facts}</ul><p><code>{command}</code></p></header>")?;
    if let Some(why) = outline::incomplete(run) {
        writeln!(page, "<p class=\"incomplete\" role=\"note\">{why}</p>")?;
    }
    let shown = run.conclusions.len().min(CONCLUSIONS_SHOWN);
    if shown > 0 {
        page.push_str("<section class=\"conclusions\">\n");
        write_items(page, &run.conclusions[..shown])?;
        page.push_str("</section>\n");
    }
    if let Some(group) = outline::main_group(run) {
        writeln!(page, "<h2>{}</h2>", escape(&group.name))?;
        writeln!(page, "<p class=\"lead\">{}</p>", escape(&group.about))?;
        write_chart(page, group)?;
    }
    let model = outline::model(run);
    if !model.rows.is_empty() {
        page.push_str("<h2>Measured and predicted</h2>\n<p class=\"lead\">");
        page.push_str(
            "Rates that the best tenth of the samples reach. The lowest term is predicted.</p>\n",
        );
        write_table(page, &model, "facts model", "Predictions")?;
    }
    write_folded(page, "More conclusions", &run.conclusions[shown..])?;
    write_folded(page, "Notes about these numbers", &outline::notes(run))?;
    write_folded(page, "Not measured", &outline::not_measured(run))?;
    for group in &run.groups {
        write_group(page, group)?;
    }
    if !run.results.is_empty() {
        page.push_str("<details><summary>All results</summary><dl class=\"results\">\n");
        for (name, value) in &run.results {
            let (name, value) = table::quantity(name, *value);
            writeln!(page, "<div><dt>{}</dt><dd>{}</dd></div>", escape(&name), escape(&value))?;
        }
        page.push_str("</dl></details>\n");
    }
    page.push_str("<details><summary>Environment</summary>\n");
    for table in outline::environment(run) {
        write_table(page, &table, "facts", "Facts")?;
    }
    page.push_str("</details>\n");
    Ok(())
}

fn write_group(page: &mut String, group: &Group) -> Result {
    let best = group.best().map_or(String::new(), |(case, median)| {
        format!(": {}, {}", escape(&case.name), group.metric.show(median).trim_end())
    });
    writeln!(
        page,
        "<details class=\"group\"><summary><b>{}</b>{best}</summary>",
        escape(&group.name)
    )?;
    writeln!(page, "<p class=\"lead\">{}</p>", escape(&group.about))?;
    write_chart(page, group)?;
    write_table(page, &table::of_group(group), "cases", group.metric.name())?;
    page.push_str("</details>\n");
    Ok(())
}

fn write_items(page: &mut String, items: &[String]) -> Result {
    page.push_str("<ul>\n");
    items.iter().try_for_each(|item| writeln!(page, "<li>{}</li>", escape(item)))?;
    writeln!(page, "</ul>")
}

/// Writes a list that is folded, unless it is empty.
fn write_folded(page: &mut String, title: &str, items: &[String]) -> Result {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(page, "<details><summary>{title} ({})</summary>", items.len())?;
    write_items(page, items)?;
    writeln!(page, "</details>")
}

fn write_chart(page: &mut String, group: &Group) -> Result {
    let Some(drawing) = chart::draw(group) else { return Ok(()) };
    writeln!(page, "<figure data-chart=\"{}\">", chart::kind(&group.chart))?;
    write_scrolling(page, "Chart", &drawing)?;
    writeln!(page, "<figcaption>{}</figcaption></figure>", chart::legend(group))
}

/// A box that scrolls can be focused, for the keyboard.
fn write_scrolling(page: &mut String, label: &str, content: &str) -> Result {
    let attributes =
        format!("class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{label}\"");
    writeln!(page, "<div {attributes}>{content}</div>")
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
            "<p class=\"brand\">ringbench compare</p><h1>/data/a b</h1>",
            "<code>ringbench compare &#39;/data/a b&#39;</code>",
            "<li>A &amp; B &lt;9000&gt;</li>",
            "<li>ringsum is 2.00 times as fast as `b3sum | &lt;script&gt;`</li>",
            "<dt>limit</dt><dd>3.81 GB/s</dd>",
            "<p class=\"lead\">How long each takes for a file that is in the page cache.</p>",
            "<tr class=\"best\"><th scope=\"row\">ringsum</th><td data-value=\"1\">1.00 ± 0.03 s</td>",
            "<li>unavailable: it is not installed (cksum)</li>",
            "<li>warm: some samples are far from the others</li>",
            "<summary>Notes about these numbers (2)</summary>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("class=\"incomplete\""));
    }

    #[test]
    fn several_runs_have_the_names_of_their_files() {
        let page = page(vec![fixture::run(), fixture::run_after()]);
        for part in ["<a href=\"#r1\">run &lt;1&gt;.json</a>", "This run was interrupted"] {
            assert!(page.contains(part), "{part}\n{page}");
        }
    }

    #[test]
    fn only_conclusions_that_a_reader_needs_first_are_open() {
        let mut run = fixture::run();
        run.conclusions = (1..=5).map(|number| format!("conclusion {number}")).collect();
        let page = page(vec![run]);
        let (open, folded) = page.split_once("<summary>More conclusions (2)</summary>").unwrap();
        assert!(open.contains("conclusion 3") && !open.contains("conclusion 4"), "{open}");
        assert!(folded.contains("conclusion 5"));
    }
}
