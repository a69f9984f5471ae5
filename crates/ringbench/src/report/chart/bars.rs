//! Horizontal bars: the median of each case, and the range of its samples.

use super::axis::Axis;
use super::svg::{self, Anchor, Canvas, shorten};
use super::{Drawing, Side};
use crate::model::case::{Case, Group};
use crate::model::summary::Summary;

const WIDTH: i32 = 860;
const TOP: i32 = 6;
/// Room for the axis below the bars.
const BOTTOM: i32 = 26;
/// Room for the value of the longest bar.
const VALUE: i32 = 92;
const BAR: i32 = 16;
const GAP: i32 = 10;

/// A chart of bars.
struct Bars<'a> {
    sides: &'a [Side<'a>],
    axis: Axis,
    /// Start of the bars, in pixels.
    left: i32,
}

pub(super) fn draw(sides: &[Side<'_>]) -> Vec<Drawing> {
    let cases = super::case_names(sides);
    let metric = sides[0].group.metric;
    let summaries = sides
        .iter()
        .flat_map(|side| side.group.cases.iter().filter_map(|case| summary(side.group, case)));
    let Some(highest) = summaries.map(|summary| summary.max).reduce(f64::max) else {
        return Vec::new();
    };
    let axis = Axis::from_zero("", highest, |value| metric.show(value));
    let bars = Bars { sides, axis, left: svg::width_max(&cases) + 14 };
    let row = BAR * sides.len() as i32 + GAP;
    let bottom = TOP + row * cases.len() as i32;
    let legend = if sides.len() > 1 { 24 } else { 0 };
    let mut canvas = Canvas::new((WIDTH, bottom + BOTTOM + legend));
    for (at, text) in &bars.axis.ticks {
        let x = bars.x(*at);
        let class = if *at == 0.0 { "class=\"axis\"" } else { "class=\"grid\"" };
        canvas.line((x, TOP), (x, bottom), class);
        canvas.text((x, bottom + 12), Anchor::Middle, "class=\"soft\"", text);
    }
    for (index, name) in cases.iter().enumerate() {
        let top = TOP + row * index as i32 + GAP / 2;
        let middle = top + (row - GAP) / 2;
        canvas.text((bars.left - 8, middle), Anchor::End, "", &shorten(name));
        for (number, side) in sides.iter().enumerate() {
            if let Some(case) = side.group.case(name) {
                bars.draw(&mut canvas, (number, side), case, top + BAR * number as i32);
            }
        }
    }
    if sides.len() > 1 {
        bars.draw_legend(&mut canvas, bottom + BOTTOM + 10);
    }
    let svg = canvas.finish(&super::label(&Side { name: String::new(), group: sides[0].group }));
    vec![Drawing { side: String::new(), svg }]
}

/// The summary of a case that can be drawn.
fn summary(group: &Group, case: &Case) -> Option<Summary> {
    group.summary(case).filter(|summary| summary.max.is_finite())
}

impl Bars<'_> {
    fn x(&self, value: f64) -> i32 {
        self.axis.px(value, self.left, WIDTH - VALUE)
    }

    fn draw(&self, canvas: &mut Canvas, (number, side): (usize, &Side<'_>), case: &Case, top: i32) {
        let (group, middle) = (side.group, top + BAR / 2);
        let Some(Summary { min, median, max, count, .. }) = summary(group, case) else {
            let why = case.missing.as_ref().map_or("not measured", |missing| missing.why());
            let why = svg::cut(why, ((WIDTH - self.left - 16) / 7) as usize);
            canvas.text((self.left + 8, middle), Anchor::Start, "class=\"soft\"", &why);
            return;
        };
        let is_alone = self.sides.len() == 1;
        let is_best = is_alone && group.best().is_some_and(|(best, _)| best == case);
        let opacity = if is_alone && !is_best { " fill-opacity=\".5\"" } else { "" };
        let fill = format!("fill=\"{}\"{opacity}", svg::color(number));
        let end = self.x(median).max(self.left + 1);
        canvas.rect((self.left, top + 1), (end - self.left, BAR - 2), &fill);
        if count > 1 {
            let (low, high) = (self.x(min), self.x(max));
            canvas.line((low, middle), (high, middle), "class=\"range\"");
            for x in [low, high] {
                canvas.line((x, middle - 4), (x, middle + 4), "class=\"range\"");
            }
        }
        let weight = if is_best { "font-weight=\"bold\"" } else { "" };
        let at = (self.x(max).max(end) + 8, middle);
        canvas.text(at, Anchor::Start, weight, &group.metric.show(median));
    }

    fn draw_legend(&self, canvas: &mut Canvas, middle: i32) {
        let mut x = self.left;
        for (number, side) in self.sides.iter().enumerate() {
            let fill = format!("fill=\"{}\"", svg::color(number));
            canvas.rect((x, middle - 5), (10, 10), &fill);
            canvas.text((x + 16, middle), Anchor::Start, "", &shorten(&side.name));
            x += 36 + svg::width(&shorten(&side.name));
        }
    }
}
