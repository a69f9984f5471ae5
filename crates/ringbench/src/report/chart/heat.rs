//! Heat maps: a cell for each case, by the values of two of its parameters.

use std::fmt::{Result, Write};

use super::colors;
use crate::model::case::{Group, Metric};
use crate::report::escape;
use crate::report::grid::Grid;

/// Values that span a larger factor have logarithmic colors.
const LOG_SPAN: f64 = 30.0;

/// Colors of the scale below a map.
const SCALE_STEPS: u32 = 5;

/// The range of all values.
struct Range {
    metric: Metric,
    min: f64,
    max: f64,
}

impl Range {
    fn of(metric: Metric, values: impl Iterator<Item = f64> + Clone) -> Option<Range> {
        let min = values.clone().reduce(f64::min)?;
        Some(Range { metric, min, max: values.fold(min, f64::max) })
    }

    /// The place of a value from 0, the worst, to 1, the best.
    fn place(&self, value: f64) -> f64 {
        let (value, min, max) = match self.min > 0.0 && self.max / self.min > LOG_SPAN {
            true => (value.ln(), self.min.ln(), self.max.ln()),
            false => (value, self.min, self.max),
        };
        let place = if max > min { (value - min) / (max - min) } else { 1.0 };
        if self.metric.more_is_better() || max == min { place } else { 1.0 - place }
    }
}

pub(super) fn draw(group: &Group, x: &str, y: &str) -> Option<String> {
    let grid = Grid::of(group, x, y);
    let range = Range::of(group.metric, grid.values())?;
    let mut html = String::new();
    // Writing to a string does not fail.
    let _ = write_map(&mut html, &grid, &range, (x, y));
    Some(html)
}

fn write_map(html: &mut String, grid: &Grid, range: &Range, (x, y): (&str, &str)) -> Result {
    let (x, y) = (escape::html(x), escape::html(y));
    write!(html, "<table class=\"heat\"><thead><tr><th>{y} \\ {x}</th>")?;
    for column in &grid.columns {
        write!(html, "<th scope=\"col\">{}</th>", escape::html(column))?;
    }
    html.push_str("</tr></thead><tbody>\n");
    for (row, name) in grid.rows.iter().enumerate() {
        write!(html, "<tr><th scope=\"row\">{}</th>", escape::html(name))?;
        for (column, value) in grid.cells[row].iter().enumerate() {
            let Some(value) = *value else {
                html.push_str("<td></td>");
                continue;
            };
            let class = if grid.best == Some((row, column)) { " class=\"best\"" } else { "" };
            let (color, text) = colors::of_place(range.place(value));
            let shown = range.metric.show_short(value);
            write!(html, "<td{class} style=\"background:{color};color:{text}\">{shown}</td>")?;
        }
        html.push_str("</tr>\n");
    }
    let (worst, best) = match range.metric.more_is_better() {
        true => (range.min, range.max),
        false => (range.max, range.min),
    };
    let (worst, best) = (range.metric.show(worst), range.metric.show(best));
    let step = |step| colors::of_place(f64::from(step) / f64::from(SCALE_STEPS - 1)).0;
    let scale: Vec<String> = (0..SCALE_STEPS).map(step).collect();
    write!(
        html,
        "</tbody></table><p class=\"scale\">{worst} \
         <i style=\"background:linear-gradient(to right,{})\"></i> {best}</p>",
        scale.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bright_is_good_for_any_metric() {
        let rate = Range::of(Metric::BytesPerS, [1e9, 2e9, 3e9].into_iter()).unwrap();
        assert_eq!((rate.place(1e9), rate.place(2e9), rate.place(3e9)), (0.0, 0.5, 1.0));
        let time = Range::of(Metric::Seconds, [1.0, 100.0].into_iter()).unwrap();
        assert_eq!((time.place(1.0), time.place(10.0), time.place(100.0)), (1.0, 0.5, 0.0));
        let even = Range::of(Metric::Seconds, [1.0].into_iter()).unwrap();
        assert_eq!(even.place(1.0), 1.0);
        assert!(Range::of(Metric::Seconds, [].into_iter()).is_none());
    }
}
