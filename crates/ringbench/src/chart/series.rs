//! Lines in a frame of two axes, with what they are called below.

use plotters::chart::ChartBuilder;
use plotters::element::{Circle, PathElement};
use plotters::series::{DashedLineSeries, LineSeries};
use plotters::style::{Color, RGBColor, ShapeStyle};

use super::axis::Axis;
use super::svg::{self, Area, TEXT_PX, ink, shorten};

const WIDTH: i32 = 860;
const PLOT: i32 = 320;
const TOP: i32 = 30;
const LEFT: i32 = 72;
const RIGHT: i32 = 18;
const BOTTOM: i32 = 54;
const LEGEND_ROW: i32 = 20;
/// Lines with more corners are thin.
const CORNERS_WIDE_MAX: usize = 400;

/// Pixels between the axes.
pub(super) const WIDTH_PX: i32 = WIDTH - LEFT - RIGHT;

/// One line, at positions of its axes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    /// Which colour it has: the same number, the same colour, in each chart of a group.
    pub(super) number: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// From the lowest to the highest sample, at a position of x.
    pub(super) ranges: Vec<(f64, f64, f64)>,
    /// Whether the points are measured one by one.
    pub(super) has_markers: bool,
}

pub(super) fn draw(label: &str, x: &Axis, y: &Axis, series: &[Series]) -> anyhow::Result<String> {
    let names: Vec<String> = series.iter().map(|series| shorten(&series.name)).collect();
    let places = flow(&names);
    let rows = places.last().map_or(0, |(_, row)| row + 1);
    let height = TOP + PLOT + BOTTOM + rows * LEGEND_ROW + 6;
    svg::draw((WIDTH as u32, height as u32), label, |area| {
        let (plot, legend) = area.split_vertically(TOP + PLOT + BOTTOM);
        frame(&plot, x, y, series)?;
        for ((series, name), (left, row)) in series.iter().zip(&names).zip(&places) {
            let middle = row * LEGEND_ROW + LEGEND_ROW / 2;
            let line = [(*left, middle), (left + 20, middle)];
            match dash(series.number) {
                0 => legend.draw(&PathElement::new(line, stroke(series)))?,
                _ => {
                    let (a, b) = ((left + 8, middle), (left + 12, middle));
                    legend.draw(&PathElement::new([line[0], a], stroke(series)))?;
                    legend.draw(&PathElement::new([b, line[1]], stroke(series)))?;
                }
            }
            let style = svg::text(TEXT_PX, ink(1.0)).pos(svg::LEFT);
            legend.draw_text(name, &style, (left + 26, middle))?;
        }
        Ok(())
    })
}

/// Where the names of the legend are, in columns: pixels from the left, and row.
fn flow(names: &[String]) -> Vec<(i32, i32)> {
    let widths = names.iter().map(|name| 26 + svg::width(name, TEXT_PX) + 22);
    let width = widths.max().unwrap_or(1);
    let columns = (WIDTH_PX / width).clamp(1, names.len().max(1) as i32);
    let place = |index: i32| (LEFT + index % columns * width, index / columns);
    (0..names.len() as i32).map(place).collect()
}

fn color(number: usize) -> RGBColor {
    svg::SERIES[number % svg::SERIES.len()]
}

fn stroke(series: &Series) -> ShapeStyle {
    // So many corners would be one block of colour.
    let width = if series.points.len() > CORNERS_WIDE_MAX { 1 } else { 2 };
    color(series.number).stroke_width(width)
}

/// After eight lines the colours begin again, and the lines are dashed: pixels of a dash, 0 for none.
fn dash(number: usize) -> u32 {
    [0, 7, 3][number / svg::SERIES.len() % 3]
}

fn frame(area: &Area<'_>, x: &Axis, y: &Axis, series: &[Series]) -> anyhow::Result<()> {
    let mut chart = ChartBuilder::on(area)
        .margin_top(TOP)
        .margin_right(RIGHT)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(x.clone(), y.clone())?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(ink(0.13))
        .light_line_style(ink(0.0))
        .axis_style(ink(0.5))
        .set_all_tick_mark_size(4)
        .label_style(svg::text(TEXT_PX, ink(0.85)))
        .draw()?;
    let style = svg::text(TEXT_PX, ink(0.65));
    area.draw_text(&shorten(&y.name), &style.pos(svg::LEFT), (10, 12))?;
    let below = (LEFT + WIDTH_PX / 2, TOP + PLOT + BOTTOM - 16);
    area.draw_text(&shorten(&x.name), &style.pos(svg::MIDDLE), below)?;
    for series in series {
        let color = color(series.number);
        for (at, low, high) in &series.ranges {
            let line = PathElement::new([(*at, *low), (*at, *high)], color.mix(0.6));
            chart.draw_series([line])?;
        }
        let points = series.points.iter().copied();
        match dash(series.number) {
            0 => drop(chart.draw_series(LineSeries::new(points, stroke(series)))?),
            px => {
                let stroke = stroke(series);
                chart.draw_series(DashedLineSeries::new(points, px, 4, stroke))?;
            }
        }
        if series.has_markers {
            let marker = |at: &(f64, f64)| Circle::new(*at, 3, color.filled());
            chart.draw_series(series.points.iter().map(marker))?;
        }
    }
    Ok(())
}
