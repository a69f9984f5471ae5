//! Charts of groups, for a page: bars and heat maps as HTML tables, which the browser lays out, and lines
//! as SVG.

mod axis;
mod bars;
mod colors;
mod heat;
mod lines;
mod plot;

use crate::model::case::{Chart, Group};

/// A group of one run, next to those of other runs.
#[derive(Debug, Clone)]
pub(super) struct Side<'a> {
    /// The letter of the run; empty if there is only one.
    pub(super) name: String,
    pub(super) group: &'a Group,
}

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drawing {
    /// The side that it shows; empty if it shows all of them.
    pub(super) side: String,
    pub(super) html: String,
}

/// Draws the sides of a group: bars in one chart, everything else in one chart for each side, with the
/// same scales and colors. Draws nothing if nothing suitable was measured.
pub(super) fn draw(sides: &[Side<'_>]) -> Vec<Drawing> {
    let Some(first) = sides.first() else { return Vec::new() };
    match &first.group.chart {
        Chart::Bars => bars::draw(sides),
        Chart::Heat { x, y } => heat::draw(sides, x, y),
        Chart::Lines { x, by } => lines::over_parameter(sides, x, by),
        Chart::Latency => lines::latency(sides),
        Chart::InFlight => lines::in_flight(sides),
    }
}

/// The kind of a chart.
pub(super) fn kind(chart: &Chart) -> &'static str {
    match chart {
        Chart::Bars => "bars",
        Chart::Heat { .. } => "heat",
        Chart::Lines { .. } => "lines",
        Chart::Latency => "latency",
        Chart::InFlight => "in-flight",
    }
}

/// How to read a chart, in one sentence.
pub(super) fn legend(chart: &Chart) -> &'static str {
    match chart {
        Chart::Bars => "Bars are medians; thin lines extend from the lowest to the highest sample.",
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

/// Why there is no chart.
pub(super) fn why_none(chart: &Chart) -> &'static str {
    match chart {
        Chart::Latency => "There is no chart: no latencies were recorded.",
        Chart::InFlight => "There is no chart: the number of requests in flight was not recorded.",
        _ => "There is no chart: no case with its parameters was measured.",
    }
}

/// The description of a chart for screen readers.
fn label(side: &Side<'_>) -> String {
    let Group { name, about, .. } = side.group;
    match &*side.name {
        "" => format!("{name}: {about}"),
        side => format!("{name}, {side}: {about}"),
    }
}

/// The names of all cases of all sides, each once. The index of a name decides its color.
fn case_names<'a>(sides: &[Side<'a>]) -> Vec<&'a str> {
    super::unique(sides.iter().flat_map(|side| &side.group.cases).map(|case| &case.name[..]))
}

#[cfg(test)]
mod tests;
