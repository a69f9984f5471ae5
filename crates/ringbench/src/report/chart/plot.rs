//! Lines in a frame of two axes, with a legend below.

use super::axis::Axis;
use super::svg::{self, Anchor, Canvas, shorten};

const WIDTH: i32 = 860;
const TOP: i32 = 30;
const BOTTOM: i32 = 350;
const LEFT: i32 = 72;
const RIGHT: i32 = 842;
/// Top of the legend.
const LEGEND: i32 = 404;
const LEGEND_ROW: i32 = 20;
/// Lines with more points are thin: they would be a block of color.
const POINTS_WIDE_MAX: usize = 400;

/// Pixels between the ends of the horizontal axis.
pub(super) const WIDTH_PX: i32 = RIGHT - LEFT;

/// One line, at positions of the axes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// Decides the color, which is the same in each chart of a group.
    pub(super) number: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// The lowest and the highest sample at a position of x.
    pub(super) ranges: Vec<(f64, f64, f64)>,
    /// Whether points are marked.
    pub(super) has_markers: bool,
}

impl Series {
    pub(super) fn new(name: &str, number: usize) -> Series {
        let (points, ranges) = (Vec::new(), Vec::new());
        Series { name: name.to_owned(), number, points, ranges, has_markers: true }
    }
}

pub(super) fn draw(label: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let widest = series.iter().map(|series| svg::width(&shorten(&series.name))).max();
    let column = 48 + widest.unwrap_or(0);
    let columns = (WIDTH_PX / column).max(1);
    let rows = (series.len() as i32 + columns - 1) / columns;
    let mut canvas = Canvas::new((WIDTH, LEGEND + rows * LEGEND_ROW + 6));
    draw_axes(&mut canvas, x, y);
    let at = |(a, b): (f64, f64)| (x.px(a, LEFT, RIGHT), y.px(b, BOTTOM, TOP));
    for (index, series) in (0..).zip(series) {
        let color = svg::color(series.number);
        for (a, low, high) in &series.ranges {
            let attributes = format!("stroke=\"{color}\" stroke-opacity=\".6\"");
            canvas.line(at((*a, *low)), at((*a, *high)), &attributes);
        }
        let width = if series.points.len() > POINTS_WIDE_MAX { 1 } else { 2 };
        let stroke = svg::stroke(series.number, width);
        let points: Vec<_> = series.points.iter().copied().map(at).collect();
        canvas.polyline(&points, &stroke);
        for point in points.iter().filter(|_| series.has_markers) {
            canvas.circle(*point, 3, &format!("fill=\"{color}\""));
        }
        let left = LEFT + index % columns * column;
        let middle = LEGEND + index / columns * LEGEND_ROW + LEGEND_ROW / 2;
        canvas.line((left, middle), (left + 20, middle), &stroke);
        canvas.text((left + 26, middle), Anchor::Start, "", &shorten(&series.name));
    }
    canvas.finish(label)
}

fn draw_axes(canvas: &mut Canvas, x: &Axis, y: &Axis) {
    canvas.text((10, 12), Anchor::Start, "class=\"soft\"", &shorten(&y.name));
    let below = (LEFT + WIDTH_PX / 2, LEGEND - 16);
    canvas.text(below, Anchor::Middle, "class=\"soft\"", &shorten(&x.name));
    for (at, text) in &y.ticks {
        let y = y.px(*at, BOTTOM, TOP);
        canvas.line((LEFT, y), (RIGHT, y), "class=\"grid\"");
        canvas.text((LEFT - 8, y), Anchor::End, "", text);
    }
    for (at, text) in &x.ticks {
        let x = x.px(*at, LEFT, RIGHT);
        canvas.line((x, BOTTOM), (x, BOTTOM + 4), "class=\"axis\"");
        canvas.text((x, BOTTOM + 14), Anchor::Middle, "", text);
    }
    canvas.line((LEFT, TOP), (LEFT, BOTTOM), "class=\"axis\"");
    canvas.line((LEFT, BOTTOM), (RIGHT, BOTTOM), "class=\"axis\"");
}
