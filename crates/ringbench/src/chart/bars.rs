//! Horizontal bars: a median for each case, and the range of its samples.

use plotters::element::{PathElement, Rectangle};
use plotters::style::{Color, RGBColor};

use crate::case::{Case, Group, Metric};
use crate::summary::Summary;

use super::axis::Axis;
use super::svg::{self, Area, TEXT_PX, ink, shorten};
use super::{Drawing, Side};

const WIDTH: i32 = 860;
const TOP: i32 = 6;
/// The axis below the bars.
const BOTTOM: i32 = 26;
/// Behind the end of the axis, for the value of the longest bar.
const VALUE: i32 = 92;
const BAR: i32 = 16;
const GAP: i32 = 10;

/// What a chart of bars is made of.
struct Bars<'a> {
    sides: &'a [Side<'a>],
    metric: Metric,
    cases: Vec<&'a str>,
    axis: Axis,
    /// Where the bars begin.
    left: i32,
}

pub(super) fn draw(sides: &[Side<'_>]) -> anyhow::Result<Vec<Drawing>> {
    let mut cases: Vec<&str> = Vec::new();
    for case in sides.iter().flat_map(|side| &side.group.cases) {
        if !cases.contains(&&case.name[..]) {
            cases.push(&case.name);
        }
    }
    let metric = sides[0].group.metric;
    let summaries = sides
        .iter()
        .flat_map(|side| side.group.cases.iter().filter_map(|case| summary(side.group, case)));
    let highest: Vec<f64> = summaries.map(|summary| summary.max).collect();
    if highest.is_empty() {
        return Ok(Vec::new());
    }
    let name_px = cases.iter().map(|name| svg::width(&shorten(name), TEXT_PX)).max();
    let left = name_px.unwrap_or(0) + 14;
    let highest = highest.into_iter().fold(0.0, f64::max);
    let axis = Axis::from_zero("", highest, |value| metric.show(value));
    let bars = Bars { sides, metric, cases, axis, left };
    let height = bars.bottom() + BOTTOM + if sides.len() > 1 { 24 } else { 0 };
    let label = super::label(&Side { name: "", group: sides[0].group });
    let svg = svg::draw((WIDTH as u32, height as u32), &label, |area| bars.draw(area))?;
    Ok(vec![Drawing { side: String::new(), svg }])
}

/// Of what can be drawn.
fn summary(group: &Group, case: &Case) -> Option<Summary> {
    Summary::of(&group.values(case)).filter(|summary| summary.max.is_finite())
}

impl Bars<'_> {
    fn row(&self) -> i32 {
        BAR * self.sides.len() as i32 + GAP
    }

    fn bottom(&self) -> i32 {
        TOP + self.row() * self.cases.len() as i32
    }

    fn x(&self, value: f64) -> i32 {
        let part = self.axis.at(value) / self.axis.range.end;
        self.left + (part * f64::from(WIDTH - self.left - VALUE)).round() as i32
    }

    fn draw(&self, area: &Area<'_>) -> anyhow::Result<()> {
        let bottom = self.bottom();
        for (at, text) in &self.axis.ticks {
            let x = self.x(*at);
            let strength = if *at == 0.0 { 0.5 } else { 0.13 };
            area.draw(&PathElement::new([(x, TOP), (x, bottom)], ink(strength)))?;
            let style = svg::text(TEXT_PX - 1.0, ink(0.7)).pos(svg::MIDDLE);
            area.draw_text(text, &style, (x, bottom + 12))?;
        }
        for (index, name) in self.cases.iter().enumerate() {
            let top = TOP + self.row() * index as i32 + GAP / 2;
            let middle = top + BAR * self.sides.len() as i32 / 2;
            let style = svg::text(TEXT_PX, ink(1.0)).pos(svg::RIGHT);
            area.draw_text(&shorten(name), &style, (self.left - 8, middle))?;
            for (number, side) in self.sides.iter().enumerate() {
                let top = top + BAR * number as i32;
                if let Some(case) = side.group.case(name) {
                    self.bar(area, side.group, case, (top, svg::SERIES[number % 8]))?;
                }
            }
        }
        if self.sides.len() > 1 {
            self.legend(area, bottom + BOTTOM + 10)?;
        }
        Ok(())
    }

    fn bar(
        &self,
        area: &Area<'_>,
        group: &Group,
        case: &Case,
        (top, color): (i32, RGBColor),
    ) -> anyhow::Result<()> {
        let middle = top + BAR / 2;
        let Some(Summary { min, median, max, count, .. }) = summary(group, case) else {
            let why = case.missing.as_ref().map_or("not measured", |missing| missing.why());
            let style = svg::text(TEXT_PX - 1.0, ink(0.6)).pos(svg::LEFT);
            let room = (WIDTH - self.left - 16) / 7;
            area.draw_text(&cut(why, room as usize), &style, (self.left + 8, middle))?;
            return Ok(());
        };
        let is_best = self.sides.len() > 1 || group.best().is_some_and(|(best, _)| best == case);
        let fill = color.mix(if is_best { 1.0 } else { 0.5 }).filled();
        let end = self.x(median).max(self.left + 1);
        area.draw(&Rectangle::new([(self.left, top + 1), (end, top + BAR - 1)], fill))?;
        if count > 1 {
            let (low, high) = (self.x(min), self.x(max));
            let line = |from, to| PathElement::new([from, to], ink(0.85));
            area.draw(&line((low, middle), (high, middle)))?;
            area.draw(&line((low, middle - 4), (low, middle + 4)))?;
            area.draw(&line((high, middle - 4), (high, middle + 4)))?;
        }
        let style = match is_best && self.sides.len() == 1 {
            true => svg::bold(TEXT_PX, ink(1.0)),
            false => svg::text(TEXT_PX, ink(0.9)),
        };
        let at = (self.x(max).max(end) + 8, middle);
        area.draw_text(&self.metric.show(median), &style.pos(svg::LEFT), at)?;
        Ok(())
    }

    fn legend(&self, area: &Area<'_>, middle: i32) -> anyhow::Result<()> {
        let mut x = self.left;
        for (number, side) in self.sides.iter().enumerate() {
            let fill = svg::SERIES[number % 8].filled();
            area.draw(&Rectangle::new([(x, middle - 5), (x + 10, middle + 5)], fill))?;
            let name = shorten(side.name);
            area.draw_text(&name, &svg::text(TEXT_PX, ink(1.0)).pos(svg::LEFT), (x + 16, middle))?;
            x += 16 + svg::width(&name, TEXT_PX) + 20;
        }
        Ok(())
    }
}

/// A reason in one line of so many characters.
fn cut(why: &str, chars_max: usize) -> String {
    let line: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.chars().count() > chars_max {
        true => line.chars().take(chars_max.saturating_sub(1)).chain(['…']).collect(),
        false => line,
    }
}
