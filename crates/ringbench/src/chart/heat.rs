//! Heat maps: a cell for each case, at the values of two of its parameters.

use plotters::element::{PathElement, Rectangle};
use plotters::style::colors::colormaps::ViridisRGB;
use plotters::style::{Color, RGBColor};

use crate::case::{Group, Metric};
use crate::grid::Grid;

use super::svg::{self, Area, TEXT_PX, ink, shorten};
use super::{Drawing, Side};

const ROW: i32 = 30;
/// A cell is as wide as the room allows, within these.
const COLUMN_MIN: i32 = 58;
const COLUMN_MAX: i32 = 104;
const ROOM: i32 = 860;
/// The values of the columns, above the cells.
const TOP: i32 = 44;
/// The scale of colours, below them.
const BOTTOM: i32 = 46;

/// Values whose ends are further apart than this have the colours of their logarithms.
const LOG_SPAN: f64 = 30.0;

/// From the worst value of all sides, at 0, to the best, at 1.
struct Colors {
    metric: Metric,
    min: f64,
    max: f64,
}

impl Colors {
    fn of(metric: Metric, values: impl Iterator<Item = f64>) -> Option<Colors> {
        let values: Vec<f64> = values.collect();
        let min = values.iter().copied().reduce(f64::min)?;
        Some(Colors { metric, min, max: values.iter().copied().fold(min, f64::max) })
    }

    fn place(&self, value: f64) -> f64 {
        let (value, min, max) = match self.min > 0.0 && self.max / self.min > LOG_SPAN {
            true => (value.ln(), self.min.ln(), self.max.ln()),
            false => (value, self.min, self.max),
        };
        let place = if max > min { (value - min) / (max - min) } else { 1.0 };
        if self.metric.more_is_better() || max == min { place } else { 1.0 - place }
    }

    fn cell(place: f64) -> RGBColor {
        ViridisRGB::get_color(place.clamp(0.0, 1.0) as f32)
    }

    /// Black or white, whichever is more legible on a cell.
    fn text(cell: RGBColor) -> RGBColor {
        let (black, white) = (RGBColor(0, 0, 0), RGBColor(255, 255, 255));
        match svg::contrast(cell, black) > svg::contrast(cell, white) {
            true => black,
            false => white,
        }
    }
}

/// One heat map.
struct Heat<'a> {
    grid: Grid,
    x: &'a str,
    y: &'a str,
    colors: &'a Colors,
    left: i32,
    column: i32,
}

pub(super) fn draw(sides: &[Side<'_>], x: &str, y: &str) -> anyhow::Result<Vec<Drawing>> {
    let grids: Vec<Grid> = sides.iter().map(|side| Grid::of(side.group, x, y)).collect();
    let metric = sides[0].group.metric;
    let Some(colors) = Colors::of(metric, grids.iter().flat_map(Grid::values)) else {
        return Ok(Vec::new());
    };
    let mut drawings = Vec::new();
    for (side, grid) in sides.iter().zip(grids) {
        if grid.best.is_none() {
            continue;
        }
        let rows = grid.rows.iter().map(|row| svg::width(&shorten(row), TEXT_PX)).max();
        let left = rows.unwrap_or(0).max(svg::width(y, TEXT_PX) + 14) + 12;
        let columns = grid.columns.iter().map(|name| svg::width(&shorten(name), TEXT_PX)).max();
        let fits = (ROOM - left) / grid.columns.len() as i32;
        let column = fits.clamp(COLUMN_MIN, COLUMN_MAX).max(columns.unwrap_or(0) + 10);
        let heat = Heat { grid, x, y, colors: &colors, left, column };
        let size = (heat.right().max(left + 300) + 2, heat.bottom() + BOTTOM);
        let size = (size.0 as u32, size.1 as u32);
        let svg = svg::draw(size, &super::label(side), |area| heat.draw(area, side.group))?;
        drawings.push(Drawing { side: side.name.to_owned(), svg });
    }
    Ok(drawings)
}

impl Heat<'_> {
    fn right(&self) -> i32 {
        self.left + self.column * self.grid.columns.len() as i32
    }

    fn bottom(&self) -> i32 {
        TOP + ROW * self.grid.rows.len() as i32
    }

    fn draw(&self, area: &Area<'_>, group: &Group) -> anyhow::Result<()> {
        let axis = svg::text(TEXT_PX, ink(0.65));
        let across = format!("{} →", shorten(self.x));
        area.draw_text(&across, &axis.pos(svg::LEFT), (self.left + 4, 10))?;
        let down = format!("{} ↓", shorten(self.y));
        area.draw_text(&down, &axis.pos(svg::RIGHT), (self.left - 8, TOP - 14))?;
        for (column, name) in self.grid.columns.iter().enumerate() {
            let at = (self.left + self.column * column as i32 + self.column / 2, TOP - 14);
            area.draw_text(&shorten(name), &svg::text(TEXT_PX, ink(1.0)).pos(svg::MIDDLE), at)?;
        }
        for (row, name) in self.grid.rows.iter().enumerate() {
            let at = (self.left - 8, TOP + ROW * row as i32 + ROW / 2);
            area.draw_text(&shorten(name), &svg::text(TEXT_PX, ink(1.0)).pos(svg::RIGHT), at)?;
            for column in 0..self.grid.columns.len() {
                self.cell(area, group.metric, row, column)?;
            }
        }
        if let Some((row, column)) = self.grid.best {
            let (x, y) = self.corner(row, column);
            let frame = [(x, y), (x + self.column - 1, y + ROW - 1)];
            area.draw(&Rectangle::new(frame, ink(1.0).stroke_width(2)))?;
            let inner = [(x + 2, y + 2), (x + self.column - 3, y + ROW - 3)];
            area.draw(&Rectangle::new(inner, RGBColor(0, 0, 0).stroke_width(1)))?;
        }
        self.scale(area, group.metric)
    }

    fn corner(&self, row: usize, column: usize) -> (i32, i32) {
        (self.left + self.column * column as i32, TOP + ROW * row as i32)
    }

    fn cell(
        &self,
        area: &Area<'_>,
        metric: Metric,
        row: usize,
        column: usize,
    ) -> anyhow::Result<()> {
        let (x, y) = self.corner(row, column);
        let (right, bottom) = (x + self.column - 2, y + ROW - 2);
        let Some(value) = self.grid.cells[row][column] else {
            return hatch(area, (x, y), (right, bottom));
        };
        let color = Colors::cell(self.colors.place(value));
        area.draw(&Rectangle::new([(x, y), (right, bottom)], color.filled()))?;
        let style = svg::text(TEXT_PX, Colors::text(color).mix(1.0)).pos(svg::MIDDLE);
        area.draw_text(&short(metric, value), &style, ((x + right) / 2, (y + bottom) / 2))?;
        Ok(())
    }

    /// The colours from the worst to the best.
    fn scale(&self, area: &Area<'_>, metric: Metric) -> anyhow::Result<()> {
        const STEPS: i32 = 48;
        const STEP: i32 = 3;
        let (worst, best) = match metric.more_is_better() {
            true => (self.colors.min, self.colors.max),
            false => (self.colors.max, self.colors.min),
        };
        let top = self.bottom() + 18;
        let style = svg::text(TEXT_PX - 1.0, ink(0.75));
        let worst = metric.show(worst);
        area.draw_text(&worst, &style.pos(svg::LEFT), (self.left, top + 6))?;
        let left = self.left + svg::width(&worst, TEXT_PX - 1.0) + 8;
        for step in 0..STEPS {
            let fill = Colors::cell(f64::from(step) / f64::from(STEPS - 1)).filled();
            let x = left + step * STEP;
            area.draw(&Rectangle::new([(x, top), (x + STEP, top + 12)], fill))?;
        }
        let at = (left + STEPS * STEP + 8, top + 6);
        area.draw_text(&metric.show(best), &style.pos(svg::LEFT), at)?;
        Ok(())
    }
}

/// A value in a cell: `3.81G`, `81.3 ms`.
fn short(metric: Metric, value: f64) -> String {
    let shown = metric.show(value);
    let scaled = shown.strip_suffix("B/s").or_else(|| shown.strip_suffix("/s"));
    scaled.map_or(shown.clone(), |scaled| scaled.replace(' ', ""))
}

/// Lines from the lower left to the upper right.
fn hatch(area: &Area<'_>, (x, y): (i32, i32), (right, bottom): (i32, i32)) -> anyhow::Result<()> {
    const STEP: i32 = 8;
    let (width, height) = (right - x, bottom - y);
    for offset in (STEP..width + height).step_by(STEP as usize) {
        let from = (x + (offset - height).max(0), y + offset.min(height));
        let to = (x + offset.min(width), y + (offset - width).max(0));
        area.draw(&PathElement::new([from, to], ink(0.18)))?;
    }
    area.draw(&Rectangle::new([(x, y), (right, bottom)], ink(0.25)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bright_is_good_whatever_the_metric() {
        let rate = Colors::of(Metric::BytesPerS, [1e9, 2e9, 3e9].into_iter()).unwrap();
        assert_eq!((rate.place(1e9), rate.place(2e9), rate.place(3e9)), (0.0, 0.5, 1.0));
        let time = Colors::of(Metric::Seconds, [1.0, 100.0].into_iter()).unwrap();
        assert_eq!((time.place(1.0), time.place(10.0), time.place(100.0)), (1.0, 0.5, 0.0));
        let even = Colors::of(Metric::Seconds, [1.0].into_iter()).unwrap();
        assert_eq!(even.place(1.0), 1.0);
        assert!(Colors::of(Metric::Seconds, [].into_iter()).is_none());
    }

    #[test]
    fn text_is_legible_on_every_cell() {
        for place in (0..=100).map(|place| f64::from(place) / 100.0) {
            let cell = Colors::cell(place);
            let contrast = svg::contrast(cell, Colors::text(cell));
            assert!(contrast >= 4.5, "{place}: {contrast:.2}");
        }
    }

    #[test]
    fn cells_have_short_values() {
        assert_eq!(short(Metric::BytesPerS, 3.81e9), "3.81G");
        assert_eq!(short(Metric::OperationsPerS, 12.0), "12.0");
        assert_eq!(short(Metric::Seconds, 0.0813), "81.3 ms");
    }
}
