//! Lines in a frame of two axes, as SVG, with a legend below. The text has the color and the font of the
//! page, which has the classes.

use std::fmt::{Result, Write};

use super::axis::{self, Axis};
use super::colors;
use crate::model::case::Group;
use crate::report::escape;

const HEIGHT: i32 = 400;
const TOP: i32 = 30;
const BOTTOM: i32 = 350;
const LEFT: i32 = 72;

/// The frame is drawn twice, since text would shrink with a picture; the page shows the one that fits.
const FRAMES: [Frame; 2] =
    [Frame { class: "wide", width: 860 }, Frame { class: "narrow", width: 340 }];

/// Lines with more points are thin: they would be a block of color.
const POINTS_WIDE_MAX: usize = 400;

#[derive(Debug, Clone, Copy)]
struct Frame {
    class: &'static str,
    width: i32,
}

impl Frame {
    /// The right end of the horizontal axis.
    fn right(self) -> i32 {
        self.width - 18
    }
}

/// One line, at positions of the axes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    /// The lowest and the highest sample at a position of x.
    pub(super) ranges: Vec<(f64, f64, f64)>,
    /// Whether points are marked.
    pub(super) has_markers: bool,
}

impl Series {
    pub(super) fn new(name: &str) -> Series {
        let (points, ranges) = (Vec::new(), Vec::new());
        Series { name: name.to_owned(), points, ranges, has_markers: true }
    }
}

/// Draws those lines that have points; `None` if there are none.
pub(super) fn draw(group: &Group, x: &Axis, y: &Axis, mut series: Vec<Series>) -> Option<String> {
    series.retain(|line| !line.points.is_empty());
    series.first()?;
    let (name, about) = (escape::html(&group.name), escape::html(&group.about));
    let mut html = String::new();
    for frame in FRAMES {
        // Writing to a string does not fail.
        let _ = writeln!(
            html,
            "<svg class=\"{}\" viewBox=\"0 0 {} {HEIGHT}\" role=\"img\" aria-label=\"{name}: {about}\">",
            frame.class, frame.width
        );
        let _ = write_axes(&mut html, frame, x, y);
        for (number, series) in series.iter().enumerate() {
            let _ = write_series(&mut html, frame, (x, y), number, series);
        }
        html.push_str("</svg>\n");
    }
    html.push_str("<ul class=\"legend\">\n");
    for (number, series) in series.iter().enumerate() {
        let (color, (style, _)) = (colors::of_series(number), colors::style_of_series(number));
        let name = escape::html(&series.name);
        let _ = writeln!(html, "<li><i style=\"border-top:2px {style} {color}\"></i> {name}</li>");
    }
    Some(html + "</ul>")
}

fn write_axes(html: &mut String, frame: Frame, x: &Axis, y: &Axis) -> Result {
    let right = frame.right();
    let (left_name, below) = (escape::html(&y.name), escape::html(&x.name));
    writeln!(html, "<text x=\"10\" y=\"12\" class=\"soft\">{left_name}</text>")?;
    let (middle, lowest) = (LEFT.midpoint(right), HEIGHT - 12);
    writeln!(html, "<text x=\"{middle}\" y=\"{lowest}\" class=\"soft middle\">{below}</text>")?;
    for (at, text) in &y.ticks {
        let (y, left, text) = (y.px(*at, BOTTOM, TOP), LEFT - 8, escape::html(text));
        writeln!(html, "<path class=\"grid\" d=\"M{LEFT} {y}H{right}\"/>")?;
        writeln!(html, "<text x=\"{left}\" y=\"{y}\" class=\"end\">{text}</text>")?;
    }
    for (at, text) in x.ticks_within(right - LEFT) {
        let (x, below) = (x.px(at, LEFT, right), BOTTOM + 14);
        writeln!(html, "<path class=\"axis\" d=\"M{x} {BOTTOM}v4\"/>")?;
        // A long label at the end of the axis ends with the picture.
        let is_beyond = f64::from(x) + axis::text_px(&text) / 2.0 > f64::from(frame.width);
        let (x, class) = if is_beyond { (frame.width, "end") } else { (x, "middle") };
        let text = escape::html(&text);
        writeln!(html, "<text x=\"{x}\" y=\"{below}\" class=\"{class}\">{text}</text>")?;
    }
    writeln!(html, "<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{right}\"/>")
}

fn write_series(
    html: &mut String,
    frame: Frame,
    (x, y): (&Axis, &Axis),
    number: usize,
    series: &Series,
) -> Result {
    let (color, (_, dashes)) = (colors::of_series(number), colors::style_of_series(number));
    let at = |(a, b): &(f64, f64)| (x.px(*a, LEFT, frame.right()), y.px(*b, BOTTOM, TOP));
    let width = if series.points.len() > POINTS_WIDE_MAX { 1 } else { 2 };
    writeln!(html, "<g stroke=\"{color}\" fill=\"{color}\">")?;
    for (a, low, high) in &series.ranges {
        let ((x, low), (_, high)) = (at(&(*a, *low)), at(&(*a, *high)));
        writeln!(html, "<path stroke-opacity=\".6\" d=\"M{x} {low}V{high}\"/>")?;
    }
    let points: Vec<(i32, i32)> = series.points.iter().map(at).collect();
    let list: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
    let attributes =
        format!("fill=\"none\" stroke-width=\"{width}\" stroke-dasharray=\"{dashes}\"");
    writeln!(html, "<polyline {attributes} points=\"{}\"/>", list.join(" "))?;
    for (x, y) in points.iter().filter(|_| series.has_markers) {
        writeln!(html, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\"/>")?;
    }
    writeln!(html, "</g>")
}
