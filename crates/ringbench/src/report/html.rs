//! Runs as one page of HTML that needs nothing else: style, script and charts are in it, and its policy
//! forbids it to load anything. All text from runs goes through [`escape`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::model::case::Group;
use crate::model::run_file::Run;
use crate::report::chart::{self, Side, escape};

use super::NamedRun;
use super::compare::{self, Section, Shared};
use super::table::{self, Cell, Mark, Table};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Tables of more rows are folded.
const ROWS_OPEN_MAX: usize = 24;

/// Longer names of cases may be broken into lines.
const NAME_CHARS_UNBROKEN: usize = 32;

/// One page for all runs.
///
/// # Errors
///
/// A chart cannot be drawn.
pub(crate) fn of_runs(runs: &[NamedRun]) -> anyhow::Result<String> {
    let sections = compare::sections(runs);
    let workloads: Vec<&str> = sections.iter().map(|section| section.workload).collect();
    let title = escape(&format!("ringbench: {}", workloads.join(", ")));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <header class=\"page\"><p class=\"brand\">ringbench</p>\n"
    );
    match &sections[..] {
        [one] => writeln!(page, "<h1>{}</h1></header>", escape(one.workload))?,
        _ => writeln!(page, "<h1>{} workloads</h1></header>", sections.len())?,
    }
    contents(&mut page, &sections)?;
    for (number, section) in sections.iter().enumerate() {
        write_section(&mut page, section, number, sections.len() > 1)?;
    }
    write!(page, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n")?;
    Ok(page)
}

/// Links to all groups, where there are several.
fn contents(page: &mut String, sections: &[Section<'_>]) -> std::fmt::Result {
    if sections.iter().map(|section| section.groups().len()).sum::<usize>() < 3 {
        return Ok(());
    }
    page.push_str("<nav aria-label=\"Contents\">\n");
    for (number, section) in sections.iter().enumerate() {
        page.push_str("<ul>");
        if sections.len() > 1 {
            let name = escape(section.workload);
            write!(page, "<li class=\"workload\"><a href=\"#s{number}\">{name}</a></li>")?;
        }
        for (index, shared) in section.groups().iter().enumerate() {
            let name = escape(&shared[0].1.name);
            write!(page, "<li><a href=\"#s{number}g{index}\">{name}</a></li>")?;
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</nav>\n");
    Ok(())
}

fn write_section(
    page: &mut String,
    section: &Section<'_>,
    number: usize,
    has_title: bool,
) -> anyhow::Result<()> {
    writeln!(page, "<section class=\"workload\" id=\"s{number}\">")?;
    if has_title {
        writeln!(page, "<h2 class=\"workload\">{}</h2>", escape(section.workload))?;
    }
    let several = section.runs.len() > 1;
    for (run, named) in section.runs.iter().enumerate() {
        if several {
            let letter = compare::letter(run);
            let name = escape(&named.name);
            writeln!(page, "<h3 class=\"run\"><b class=\"letter\">{letter}</b> {name}</h3>")?;
        }
        about(page, &named.run)?;
    }
    environment(page, section)?;
    if several {
        page.push_str("<h3>Side by side</h3>\n");
        list(page, "conclusions", &compare::tally(section))?;
    }
    for (run, named) in section.runs.iter().enumerate() {
        let of = if several { format!(" of {}", compare::letter(run)) } else { String::new() };
        words(page, &named.run, &of)?;
    }
    for (index, shared) in section.groups().iter().enumerate() {
        writeln!(page, "<section class=\"group\" id=\"s{number}g{index}\">")?;
        write_group(page, shared, several)?;
        page.push_str("</section>\n");
    }
    page.push_str("</section>\n");
    Ok(())
}

/// When and by what a run was made, and whether it is complete.
fn about(page: &mut String, run: &Run) -> std::fmt::Result {
    let (started, command) = (escape(&run.started), escape(&super::command_line(run)));
    writeln!(
        page,
        "<p class=\"about\"><time datetime=\"{started}\">{}</time> <code>{command}</code></p>",
        started.replace('T', " ").replace('Z', " UTC")
    )?;
    match super::incomplete(run) {
        Some(why) => writeln!(page, "<p class=\"incomplete\" role=\"note\">{why}</p>"),
        None => Ok(()),
    }
}

/// What a run comes to, and what is to be known before it is believed.
fn words(page: &mut String, run: &Run, of: &str) -> std::fmt::Result {
    if !run.conclusions.is_empty() {
        writeln!(page, "<h3>Conclusions{of}</h3>")?;
        list(page, "conclusions", &run.conclusions)?;
    }
    if !run.results.is_empty() {
        writeln!(page, "<dl class=\"results\" aria-label=\"Results{of}\">")?;
        for (name, value) in &run.results {
            let (name, value) = table::quantity(name, *value);
            let (name, value) = (escape(&name), escape(&value));
            writeln!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>")?;
        }
        page.push_str("</dl>\n");
    }
    advice(page, &run.advice, &format!("Before you believe the numbers{of}"))
}

fn advice(page: &mut String, advice: &[String], title: &str) -> std::fmt::Result {
    if advice.is_empty() {
        return Ok(());
    }
    writeln!(page, "<aside class=\"advice\"><p class=\"title\">{title}</p>")?;
    list(page, "", advice)?;
    page.push_str("</aside>\n");
    Ok(())
}

fn list(page: &mut String, class: &str, items: &[String]) -> std::fmt::Result {
    writeln!(page, "<ul class=\"{class}\">")?;
    for item in items {
        writeln!(page, "<li>{}</li>", escape(item))?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

/// The facts of all runs of a section: a column for each run, and what is not the same in all of them marked.
fn environment(page: &mut String, section: &Section<'_>) -> std::fmt::Result {
    let machines: Vec<_> = section.runs.iter().map(|run| &run.run.environment.machine).collect();
    let fact = |name: &str| machines[0].get(name).map(|value| escape(value));
    let short: Vec<String> = ["kernel", "cpu", "memory"].into_iter().filter_map(fact).collect();
    writeln!(
        page,
        "<details class=\"environment\"><summary>Measured on {}</summary>",
        short.join(", ")
    )?;
    facts(page, "machine", &machines)?;
    let mut paths: Vec<&String> = Vec::new();
    for target in section.runs.iter().flat_map(|run| &run.run.environment.targets) {
        if !paths.contains(&&target.path) {
            paths.push(&target.path);
        }
    }
    let none = BTreeMap::new();
    for path in paths {
        let of_run = |run: &&NamedRun| {
            let targets = &run.run.environment.targets;
            targets.iter().position(|target| target.path == *path)
        };
        let columns = section.runs.iter().map(|run| {
            of_run(run).map_or(&none, |index| &run.run.environment.targets[index].facts)
        });
        facts(page, path, &columns.collect::<Vec<_>>())?;
    }
    page.push_str("</details>\n");
    Ok(())
}

fn facts(page: &mut String, of: &str, runs: &[&BTreeMap<String, String>]) -> std::fmt::Result {
    let names: BTreeSet<&String> = runs.iter().flat_map(|facts| facts.keys()).collect();
    write!(page, "<div class=\"scroll\"><table class=\"facts\"><caption>{}</caption>", escape(of))?;
    if runs.len() > 1 {
        page.push_str("<thead><tr><td></td>");
        for number in 0..runs.len() {
            write!(page, "<th scope=\"col\">{}</th>", compare::letter(number))?;
        }
        page.push_str("</tr></thead>");
    }
    page.push_str("<tbody>\n");
    for name in names {
        let values: Vec<&str> =
            runs.iter().map(|facts| facts.get(name).map_or("", |value| &value[..])).collect();
        let differs = values.iter().any(|value| *value != values[0]);
        let class = if differs { " class=\"differs\"" } else { "" };
        write!(page, "<tr{class}><th scope=\"row\">{}</th>", escape(name))?;
        for value in values {
            write!(page, "<td>{}</td>", escape(value))?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    Ok(())
}

/// One group, of as many runs as have it.
fn write_group(page: &mut String, shared: &Shared<'_>, several: bool) -> anyhow::Result<()> {
    let first = shared[0].1;
    writeln!(page, "<h3>{}</h3>", escape(&first.name))?;
    let letters: Vec<String> = shared.iter().map(|(run, _)| compare::letter(*run)).collect();
    let sides = shared
        .iter()
        .zip(&letters)
        .map(|((_, group), letter)| Side { name: if several { letter } else { "" }, group });
    figure(page, first, &chart::draw(&sides.collect::<Vec<_>>()))?;
    if shared.len() > 1 {
        write_table(page, &compare::table(shared), "Side by side")?;
    }
    for ((_, group), letter) in shared.iter().zip(&letters) {
        let run = |word: &str| if several { format!(" {word} {letter}") } else { String::new() };
        let of = run("of");
        let table = table::of_group(group);
        let caption = format!("{}{of}", first.metric.name());
        match table.rows.len() > ROWS_OPEN_MAX || shared.len() > 1 {
            true => {
                let summary = format!("All {} cases{of}", table.rows.len());
                writeln!(page, "<details><summary>{summary}</summary>")?;
                write_table(page, &table, &caption)?;
                page.push_str("</details>\n");
            }
            false => write_table(page, &table, &caption)?,
        }
        missing(page, group, &run("in"))?;
        advice(page, &group.advice, &format!("About these numbers{of}"))?;
    }
    Ok(())
}

fn figure(page: &mut String, group: &Group, drawings: &[chart::Drawing]) -> std::fmt::Result {
    let kind = chart::kind(&group.chart);
    writeln!(
        page,
        "<figure data-chart=\"{kind}\"><figcaption>{}</figcaption>",
        escape(&group.about)
    )?;
    for drawing in drawings {
        if !drawing.side.is_empty() {
            let side = escape(&drawing.side);
            writeln!(page, "<p class=\"side\"><b class=\"letter\">{side}</b></p>")?;
        }
        // A box that scrolls is reached by the keyboard.
        writeln!(
            page,
            "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Chart\">{}</div>",
            drawing.svg.trim_end()
        )?;
    }
    let note = if drawings.is_empty() {
        chart::why_none(&group.chart)
    } else {
        chart::legend(&group.chart)
    };
    writeln!(page, "<p class=\"note\">{note}</p></figure>")
}

fn missing(page: &mut String, group: &Group, in_run: &str) -> std::fmt::Result {
    let reasons = table::missing(group);
    if reasons.is_empty() {
        return Ok(());
    }
    writeln!(page, "<ul class=\"missing\" aria-label=\"Not measured{in_run}\">")?;
    for reason in reasons {
        let class = if reason.has_failed { " class=\"failed\"" } else { "" };
        let (what, names, why) = (reason.what(), escape(&reason.names), escape(&reason.why));
        writeln!(page, "<li{class}><span>{what}{in_run}</span> <b>{names}</b>: {why}</li>")?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

/// A table that the script makes sortable: each cell says what it is sorted by.
fn write_table(page: &mut String, table: &Table, caption: &str) -> std::fmt::Result {
    if table.rows.is_empty() {
        return Ok(());
    }
    let longest = table.rows.iter().map(|row| row[0].text.chars().count()).max().unwrap_or(0);
    write!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Table\">\
         <table class=\"cases\" style=\"--name:{}ch\"><caption>{}</caption>\n<thead><tr>",
        longest.min(NAME_CHARS_UNBROKEN),
        escape(caption)
    )?;
    for column in &table.columns {
        let class = if column.is_number { " class=\"number\"" } else { "" };
        write!(page, "<th scope=\"col\"{class}>{}</th>", escape(&column.name))?;
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for (index, row) in table.rows.iter().enumerate() {
        page.push_str(if table.best == Some(index) { "<tr class=\"best\">" } else { "<tr>" });
        for (cell, column) in row.iter().zip(&table.columns) {
            write_cell(page, cell, column.is_number)?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    Ok(())
}

fn write_cell(page: &mut String, cell: &Cell, is_number: bool) -> std::fmt::Result {
    let text = escape(&cell.text);
    if !is_number {
        return write!(page, "<th scope=\"row\">{text}</th>");
    }
    let class = match cell.mark {
        Mark::None => "",
        Mark::Better => " class=\"better\"",
        Mark::Worse => " class=\"worse\"",
        Mark::Faint => " class=\"faint\"",
    };
    match cell.value.filter(|value| value.is_finite()) {
        Some(value) => write!(page, "<td{class} data-value=\"{value}\">{text}</td>"),
        None => write!(page, "<td{class}>{text}</td>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::Missing;
    use crate::report::fixture;

    fn page(runs: Vec<Run>) -> String {
        let named = |(number, run)| NamedRun { name: format!("run <{number}>.json"), run };
        of_runs(&runs.into_iter().enumerate().map(named).collect::<Vec<_>>()).unwrap()
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
        let mut later = run.clone();
        later.environment.machine.insert("cpu".into(), evil.into());
        for page in [page(vec![run.clone()]), page(vec![run, later])] {
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
            "<summary>Measured on Linux 6.12 x86_64, A &amp; B &lt;9000&gt;</summary>",
            "<li>ringsum is 2.00 times as fast as `b3sum | &lt;script&gt;`</li>",
            "<dt>limit</dt><dd>3.81 GB/s</dd>",
            "<figcaption>How long each takes for a file that is in the page cache.</figcaption>",
            "<tr class=\"best\"><th scope=\"row\">ringsum</th><td data-value=\"1\">1.00 s</td>",
            "<span>not here</span> <b>cksum</b>: it is not installed",
            "<p class=\"title\">About these numbers</p>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("class=\"incomplete\""));
    }

    #[test]
    fn runs_of_one_workload_share_a_section() {
        let page = page(vec![fixture::run(), fixture::run_after()]);
        for part in [
            "<b class=\"letter\">B</b> run &lt;1&gt;.json",
            "This run was interrupted",
            "<td class=\"better\" data-value=\"1.25\">1.25 times faster</td>",
            "<td class=\"faint\" data-value=\"1\">within the noise</td>",
            "<summary>All 3 cases of B</summary>",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert_eq!(page.matches("<svg ").count(), 1);
    }
}
