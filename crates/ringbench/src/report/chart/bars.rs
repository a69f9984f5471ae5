//! Horizontal bars: the median of each case, and the range of its samples.

use std::fmt::{Result, Write};

use super::colors;
use crate::model::case::{Case, Group};
use crate::model::summary::Summary;
use crate::report::escape;

pub(super) fn draw(group: &Group) -> Option<String> {
    let summaries = group.cases.iter().filter_map(|case| summary(group, case));
    let highest = summaries.map(|summary| summary.max).reduce(f64::max)?;
    let mut html = String::from("<table class=\"bars\"><tbody>\n");
    for case in &group.cases {
        // Writing to a string does not fail.
        let _ = write_row(&mut html, group, case, highest);
    }
    Some(html + "</tbody></table>")
}

fn summary(group: &Group, case: &Case) -> Option<Summary> {
    group.summary(case).filter(|summary| summary.max.is_finite())
}

fn write_row(html: &mut String, group: &Group, case: &Case, highest: f64) -> Result {
    let name = escape::html(&case.name);
    let Some(Summary { min, median, max, .. }) = summary(group, case) else {
        let why = case.missing.as_ref().map_or("not measured", |missing| missing.why());
        let why = escape::html(why);
        return writeln!(
            html,
            "<tr><th scope=\"row\">{name}</th><td></td><td class=\"soft\">{why}</td></tr>"
        );
    };
    let class = if group.best().is_some_and(|(best, _)| best == case) { "best" } else { "" };
    let percent = |value: f64| if highest > 0.0 { value / highest * 100.0 } else { 0.0 };
    let (value, color) = (group.metric.show(median), colors::of_series(0));
    writeln!(
        html,
        "<tr class=\"{class}\"><th scope=\"row\">{name}</th><td>{value}</td>\
         <td class=\"track\"><i class=\"bar\" style=\"width:{:.2}%;background:{color}\"></i>\
         <i class=\"range\" style=\"left:{:.2}%;width:{:.2}%\"></i></td></tr>",
        percent(median),
        percent(min),
        percent(max - min)
    )
}
