//! Horizontal bars: the median of each case, and the range of its samples.

use std::fmt::{Result, Write};

use super::{Drawing, Side, colors};
use crate::model::case::Case;
use crate::model::summary::Summary;
use crate::report::escape;

pub(super) fn draw(sides: &[Side<'_>]) -> Vec<Drawing> {
    let summaries = sides
        .iter()
        .flat_map(|side| side.group.cases.iter().filter_map(|case| summary(side, case)));
    let Some(highest) = summaries.map(|summary| summary.max).reduce(f64::max) else {
        return Vec::new();
    };
    let mut html = String::from("<table class=\"bars\"><tbody>\n");
    for name in super::case_names(sides) {
        let of_side = |(number, side)| {
            let side: &Side<'_> = side;
            Some((number, side, side.group.case(name)?))
        };
        for (index, (number, side, case)) in
            sides.iter().enumerate().filter_map(of_side).enumerate()
        {
            let name = if index == 0 { escape::html(name) } else { String::new() };
            // Writing to a string does not fail.
            let _ = write_row(&mut html, (&name, number), side, case, highest);
        }
    }
    html.push_str("</tbody></table>");
    vec![Drawing { side: String::new(), html }]
}

/// The summary of a case that can be drawn.
fn summary(side: &Side<'_>, case: &Case) -> Option<Summary> {
    side.group.summary(case).filter(|summary| summary.max.is_finite())
}

/// A bar of each side has its own color; if there is only one side, the best bar stands out.
fn write_row(
    html: &mut String,
    (name, number): (&str, usize),
    side: &Side<'_>,
    case: &Case,
    highest: f64,
) -> Result {
    let letter = escape::html(&side.name);
    let Some(Summary { min, median, max, .. }) = summary(side, case) else {
        let why = case.missing.as_ref().map_or("not measured", |missing| missing.why());
        let why = escape::html(why);
        return writeln!(
            html,
            "<tr><th scope=\"row\">{name}</th><td>{letter}</td><td class=\"soft\">{why}</td></tr>"
        );
    };
    let is_best = side.group.best().is_some_and(|(best, _)| best == case);
    let class = match side.name.is_empty() {
        true if is_best => "best",
        true => "",
        false => "solid",
    };
    let percent = |value: f64| if highest > 0.0 { value / highest * 100.0 } else { 0.0 };
    let (value, color) = (side.group.metric.show(median), colors::of_series(number));
    writeln!(
        html,
        "<tr class=\"{class}\"><th scope=\"row\">{name}</th><td>{letter} {value}</td>\
         <td class=\"track\"><i class=\"bar\" style=\"width:{:.2}%;background:{color}\"></i>\
         <i class=\"range\" style=\"left:{:.2}%;width:{:.2}%\"></i></td></tr>",
        percent(median),
        percent(min),
        percent(max - min)
    )
}
