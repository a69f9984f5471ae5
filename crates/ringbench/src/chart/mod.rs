//! Groups as SVG that stands inside a page: it has no background, and its text has the colour and the font
//! of the text around it.

mod axis;
mod bars;
mod heat;
mod lines;
mod series;
mod svg;

use crate::case::{Chart, Group};

pub(crate) use svg::escape;

/// A group of one run, beside those of others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    /// Empty where there is only one.
    pub(crate) name: &'a str,
    pub(crate) group: &'a Group,
}

/// One chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawing {
    /// The side that it shows; empty if it shows all of them.
    pub(crate) side: String,
    pub(crate) svg: String,
}

/// Draws the sides of a group: bars next to each other, everything else one chart for each, with the same
/// scales and colours. None at all where nothing was measured that could be drawn.
///
/// # Errors
///
/// Those of the drawing itself, which a string does not have.
pub(crate) fn draw(sides: &[Side<'_>]) -> anyhow::Result<Vec<Drawing>> {
    let Some(first) = sides.first() else { return Ok(Vec::new()) };
    match &first.group.chart {
        Chart::Bars => bars::draw(sides),
        Chart::Heat { x, y } => heat::draw(sides, x, y),
        Chart::Lines { x, by } => lines::over_parameter(sides, x, by),
        Chart::Latency => lines::latency(sides),
        Chart::InFlight => lines::in_flight(sides),
    }
}

/// What kind of chart it is.
pub(crate) fn name(chart: &Chart) -> &'static str {
    match chart {
        Chart::Bars => "bars",
        Chart::Heat { .. } => "heat",
        Chart::Lines { .. } => "lines",
        Chart::Latency => "latency",
        Chart::InFlight => "in-flight",
    }
}

/// How a chart is to be read, in one sentence.
pub(crate) fn legend(chart: &Chart) -> &'static str {
    match chart {
        Chart::Bars => {
            "Bars are medians, the thin lines reach from the lowest to the highest sample."
        }
        Chart::Heat { .. } => {
            "Each cell is the median of a case, the brighter the better; the framed one is the best, and a \
             hatched one was not measured."
        }
        Chart::Lines { .. } => {
            "Points are medians, the thin lines reach from the lowest to the highest sample."
        }
        Chart::Latency => {
            "Each point is the median of what the samples of a case have at this percentile."
        }
        Chart::InFlight => "Of each case, the sample whose result is the middle one.",
    }
}

/// Why there is no chart.
pub(crate) fn why_none(chart: &Chart) -> &'static str {
    match chart {
        Chart::Bars => "There is no chart: no case was measured.",
        Chart::Heat { .. } | Chart::Lines { .. } => {
            "There is no chart: no case was measured that has its parameters."
        }
        Chart::Latency => "There is no chart: no latencies were recorded.",
        Chart::InFlight => "There is no chart: how many requests are in flight was not recorded.",
    }
}

/// What a chart is called by programs that read it out.
fn label(side: &Side<'_>) -> String {
    let Group { name, about, .. } = side.group;
    match side.name {
        "" => format!("{name}: {about}"),
        side => format!("{name}, {side}: {about}"),
    }
}

#[cfg(test)]
mod tests;
