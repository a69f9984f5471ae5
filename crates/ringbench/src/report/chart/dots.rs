//! A row for each case: a dot for each sample, and the interval of the median. As HTML, which reflows, and
//! as a picture of its own.

use std::fmt::Write;

use super::axis::Axis;
use crate::model::case::{Case, Group};
use crate::model::summary::Summary;
use crate::report::escape;

/// Samples beyond the axis are at its end if the axis would otherwise be longer by this factor: one of them
/// would squeeze all others.
const SQUEEZE_MAX: f64 = 1.5;

/// More samples than this are one cloud, in dots of a row.
const DOTS_MAX: usize = 60;

/// A case, with places from 0 to 1 along the axis.
struct Row<'a> {
    case: &'a Case,
    summary: Summary,
    /// Samples, and whether they are beyond the axis.
    dots: Vec<(f64, bool)>,
    median: f64,
    interval: (f64, f64),
    is_best: bool,
}

struct Dots<'a> {
    axis: Axis,
    rows: Vec<Row<'a>>,
    /// The cases with samples beyond the axis, and the farthest of them.
    beyond: Vec<String>,
}

impl<'a> Dots<'a> {
    fn of(group: &'a Group) -> Option<Dots<'a>> {
        let measured: Vec<(&Case, Vec<f64>, Summary)> = group
            .cases
            .iter()
            .filter_map(|case| {
                let values = group.values(case);
                let summary = Summary::of(&values).filter(|it| it.max.is_finite())?;
                Some((case, values, summary))
            })
            .collect();
        let ends = |it: &Summary| match it.count {
            1 => (it.median, it.median),
            _ => (it.median - it.noise(), it.median + it.noise()),
        };
        let is_far = |it: &Summary, value: f64| it.count >= 4 && it.is_outlier(value);
        let shown = measured
            .iter()
            .flat_map(|(_, values, it)| values.iter().copied().filter(|value| !is_far(it, *value)));
        let near = shown.fold(0.0, f64::max);
        let far = measured.iter().map(|(.., it)| it.max).reduce(f64::max)?;
        let most = if far > near * SQUEEZE_MAX { near } else { far };
        let all = measured.iter().flat_map(|(_, values, _)| values).copied();
        let axis = Axis::of_metric(group.metric, all.filter(|value| *value <= most));
        let place = |value: f64| axis.part(axis.at(value)).clamp(0.0, 1.0);
        let best = group.best().map(|(best, _)| best);
        let rows = measured.iter().map(|(case, values, summary)| {
            let (low, high) = ends(summary);
            let each = values.len().div_ceil(DOTS_MAX);
            Row {
                case,
                summary: *summary,
                dots: values.iter().step_by(each).map(|it| (place(*it), *it > most)).collect(),
                median: place(summary.median),
                interval: (place(low), place(high)),
                is_best: best == Some(case),
            }
        });
        let rows = rows.collect();
        let beyond = measured.iter().filter(|(.., it)| it.max > most);
        let beyond = beyond.map(|(case, values, it)| {
            let count = values.iter().filter(|value| **value > most).count();
            format!("{count} of {}, up to {}", case.name, group.metric.show(it.max))
        });
        let beyond = beyond.collect();
        Some(Dots { rows, beyond, axis })
    }
}

/// How to read the dots, and what is beyond an axis.
fn legend(beyond: &[String]) -> String {
    let mut legend = "Dots are samples; a bar is the 95 % interval of a median.".to_owned();
    if !beyond.is_empty() {
        let _ = write!(legend, " Beyond the axis (\u{25b8}): {}.", beyond.join("; "));
    }
    legend
}

/// Rows that the browser lays out: at any width, no text is smaller than the others of the page.
pub(super) fn as_html(group: &Group) -> Option<String> {
    let dots = Dots::of(group)?;
    let mut html = String::from("<div class=\"dots\" role=\"img\" aria-label=\"Samples\">\n");
    for row in &dots.rows {
        let class = if row.is_best { "row best" } else { "row" };
        let name = escape::html(&row.case.name);
        let value = group.metric.show_summary(&row.summary);
        let ((low, high), median) = (row.interval, row.median);
        let _ = write!(
            html,
            "<div class=\"{class}\"><span class=\"name\">{name}</span>\
             <span class=\"value\">{value}</span><span class=\"track\">\
             <i class=\"interval\" style=\"left:{:.2}%;width:{:.2}%\"></i>\
             <i class=\"median\" style=\"left:{:.2}%\"></i>",
            low * 100.0,
            (high - low) * 100.0,
            median * 100.0
        );
        for (place, is_beyond) in &row.dots {
            let class = if *is_beyond { "beyond" } else { "dot" };
            let _ = write!(html, "<i class=\"{class}\" style=\"left:{:.2}%\"></i>", place * 100.0);
        }
        html.push_str("</span></div>\n");
    }
    html.push_str("<div class=\"row axis\"><span class=\"track\">");
    for (place, text) in dots.axis.few_ticks() {
        let _ = write!(html, "<i style=\"left:{:.2}%\">{}</i>", place * 100.0, escape::html(&text));
    }
    let legend = escape::html(&legend(&dots.beyond));
    let _ = write!(html, "</span></div></div><p class=\"legend\">{legend}</p>");
    Some(html)
}

const WIDTH: usize = 860;
const HEAD: usize = 62;
const ROW: usize = 28;
const LEFT: usize = 300;
const RIGHT: usize = 830;

const STYLE: &str = "svg { font: 13px system-ui, sans-serif; --back: #ffffff; --text: #1b1f24; --soft: #5b636d; \
    --line: #e2e5e9; --accent: #1768a6 } @media (prefers-color-scheme: dark) { svg { --back: #15181c; \
    --text: #e4e7eb; --soft: #9aa3ad; --line: #2d3239; --accent: #6db3ea } } text { fill: var(--text) } \
    .soft { fill: var(--soft) } .end { text-anchor: end } .middle { text-anchor: middle } \
    .best { font-weight: 650 } circle { fill: var(--soft); fill-opacity: .55 } .grid { stroke: \
    var(--line) } .interval { fill: var(--accent); fill-opacity: .45 } .median { stroke: var(--accent); \
    stroke-width: 2 }";

/// A picture of groups, one below the other, that follows the color scheme of the page that shows it.
/// `None` if nothing was measured.
pub(super) fn as_svg(groups: &[&Group], facts: &str) -> Option<String> {
    let mut panels = String::new();
    let (mut top, mut beyond) = (0, Vec::new());
    for group in groups {
        let Some(mut dots) = Dots::of(group) else { continue };
        top = panel(&mut panels, group, &dots, top);
        beyond.append(&mut dots.beyond);
    }
    if top == 0 {
        return None;
    }
    let height = top + 46;
    let (legend, facts) = (escape::html(&legend(&beyond)), escape::html(facts));
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{facts}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"var(--back)\"/>\n{panels}\
         <text x=\"16\" y=\"{}\" class=\"soft\" font-size=\"12\">{legend}</text>\
         <text x=\"16\" y=\"{}\" class=\"soft\" font-size=\"12\">{facts}</text>\n</svg>\n",
        top + 20,
        top + 37
    ))
}

/// Draws a group below `top`. Returns its lower end.
fn panel(svg: &mut String, group: &Group, dots: &Dots<'_>, top: usize) -> usize {
    let (name, about) = (escape::html(&group.name), escape::html(&group.about));
    let first = top + HEAD;
    let bottom = first + ROW * dots.rows.len();
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"{}\" class=\"best\" font-size=\"16\">{name}</text>\
         <text x=\"16\" y=\"{}\" class=\"soft\">{about}</text>",
        top + 26,
        top + 46
    );
    let px = |place: f64| LEFT as f64 + place * (RIGHT - LEFT) as f64;
    for (place, text) in dots.axis.few_ticks() {
        let (x, y, text) = (px(place), bottom + 18, escape::html(&text));
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{x:.1} {first}V{bottom}\"/>\
             <text x=\"{x:.1}\" y=\"{y}\" class=\"soft middle\">{text}</text>"
        );
    }
    for (number, row) in dots.rows.iter().enumerate() {
        let y = first + ROW * number + ROW / 2;
        let class = if row.is_best { "best" } else { "" };
        let name = escape::html(&shorten(&row.case.name));
        let value = group.metric.show_summary(&row.summary);
        let ((low, high), median) = ((px(row.interval.0), px(row.interval.1)), px(row.median));
        let _ = write!(
            svg,
            "<text x=\"16\" y=\"{}\" class=\"{class}\">{name}</text>\
             <text x=\"{}\" y=\"{}\" class=\"{class} end\">{value}</text>\
             <rect class=\"interval\" x=\"{low:.1}\" y=\"{}\" width=\"{:.1}\" height=\"12\" rx=\"2\"/>\
             <path class=\"median\" d=\"M{median:.1} {}v16\"/>",
            y + 4,
            LEFT - 14,
            y + 4,
            y - 6,
            (high - low).max(1.0),
            y - 8
        );
        for (place, is_beyond) in &row.dots {
            let x = px(*place);
            let _ = match is_beyond {
                true => write!(svg, "<text x=\"{x:.1}\" y=\"{}\">\u{25b8}</text>", y + 4),
                false => write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"3\"/>"),
            };
        }
        svg.push('\n');
    }
    bottom + 26
}

/// A name that leaves room for the value beside it: both ends, since commands may differ in either.
fn shorten(name: &str) -> String {
    const CHARS_MAX: usize = 26;
    const START: usize = 8;
    let count = name.chars().count();
    match count <= CHARS_MAX {
        true => name.to_owned(),
        false => {
            let end = name.chars().skip(count - (CHARS_MAX - START - 1));
            name.chars().take(START).chain(['…']).chain(end).collect()
        }
    }
}
