//! Charts of groups, for a page: bars and heat maps as HTML tables, which the browser lays out, and lines
//! as SVG.

mod axis;
mod colors;
mod dots;
mod heat;
mod lines;
mod plot;

use crate::model::case::{Chart, Group};

/// Draws a group. Returns `None` if nothing suitable was measured.
pub(super) fn draw(group: &Group) -> Option<String> {
    match &group.chart {
        Chart::Bars => dots::as_html(group),
        Chart::Lines { .. } if !has_lines(group) => dots::as_html(group),
        Chart::Heat { x, y } => heat::draw(group, x, y),
        Chart::Lines { x, by } => lines::over_parameter(group, x, by),
        Chart::Latency => lines::latency(group),
        Chart::InFlight => lines::in_flight(group),
    }
}

pub(super) fn kind(chart: &Chart) -> &'static str {
    match chart {
        Chart::Bars => "bars",
        Chart::Heat { .. } => "heat",
        Chart::Lines { .. } => "lines",
        Chart::Latency => "latency",
        Chart::InFlight => "in-flight",
    }
}

/// Fewest points of a line.
const POINTS_MIN: usize = 3;

/// Whether a group that is drawn as lines has enough points for one: two are none.
fn has_lines(group: &Group) -> bool {
    let Chart::Lines { x, .. } = &group.chart else { return false };
    let measured = group.cases.iter().filter(|case| !case.samples.is_empty());
    super::unique(measured.filter_map(|case| case.parameters.get(x))).len() >= POINTS_MIN
}

/// A picture of groups for other documents; `None` if nothing was measured.
pub(super) fn picture(groups: &[&Group], facts: &str) -> Option<String> {
    dots::as_svg(groups, facts)
}

/// How to read a chart, in one sentence.
pub(super) fn legend(group: &Group) -> &'static str {
    match &group.chart {
        // The chart has its own.
        Chart::Bars => "",
        Chart::Lines { .. } if !has_lines(group) => "",
        Chart::Heat { .. } => {
            "Each cell is the median of a case; brighter is better. The best cell is framed, and an empty \
             one was not measured."
        }
        Chart::Lines { .. } => {
            "Points are medians; thin lines extend from the lowest to the highest sample."
        }
        Chart::Latency => "Each point is the median of a percentile over the samples of a case.",
        Chart::InFlight => "Each line is the sample of a case with the median result.",
    }
}

#[cfg(test)]
mod tests;
