//! Heat maps: a cell for each case, by the values of two of its parameters.

use super::svg::{self, Anchor, Canvas, shorten};
use super::{Drawing, Side};
use crate::model::case::Metric;
use crate::report::grid::Grid;

const ROW: i32 = 30;
/// Cells are as wide as the room allows, within these limits.
const COLUMN_MIN: i32 = 58;
const COLUMN_MAX: i32 = 104;
const ROOM: i32 = 860;
/// Room for the values of the columns, above the cells.
const TOP: i32 = 44;
/// Room for the scale of colors, below the cells.
const BOTTOM: i32 = 46;

/// Values that span a larger factor have logarithmic colors.
const LOG_SPAN: f64 = 30.0;

/// Five colors of the map viridis, at equal distances: its lightness grows evenly.
const VIRIDIS: [[f64; 3]; 5] = [
    [68.0, 1.0, 84.0],
    [59.0, 82.0, 139.0],
    [33.0, 145.0, 140.0],
    [94.0, 201.0, 98.0],
    [253.0, 231.0, 37.0],
];

/// The place from which on black text is more legible than white text.
const BLACK_FROM: f64 = 0.43;

/// The color at a place from 0, the worst, to 1, the best.
fn color(place: f64) -> String {
    let at = place.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let index = (at as usize).min(VIRIDIS.len() - 2);
    let mix = |part: usize| {
        let (from, to) = (VIRIDIS[index][part], VIRIDIS[index + 1][part]);
        (from + (to - from) * (at - index as f64)).round() as u8
    };
    format!("#{:02x}{:02x}{:02x}", mix(0), mix(1), mix(2))
}

fn text_color(place: f64) -> &'static str {
    if place < BLACK_FROM { "#ffffff" } else { "#000000" }
}

/// The range of the values of all sides.
struct Colors {
    metric: Metric,
    min: f64,
    max: f64,
}

impl Colors {
    fn of(metric: Metric, values: impl Iterator<Item = f64> + Clone) -> Option<Colors> {
        let min = values.clone().reduce(f64::min)?;
        Some(Colors { metric, min, max: values.fold(min, f64::max) })
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

/// One heat map.
struct Heat<'a> {
    grid: &'a Grid,
    colors: &'a Colors,
    left: i32,
    column: i32,
}

pub(super) fn draw(sides: &[Side<'_>], x: &str, y: &str) -> Vec<Drawing> {
    let grids: Vec<Grid> = sides.iter().map(|side| Grid::of(side.group, x, y)).collect();
    let values = grids.iter().flat_map(Grid::values);
    let Some(colors) = Colors::of(sides[0].group.metric, values) else { return Vec::new() };
    let mut drawings = Vec::new();
    for (side, grid) in sides.iter().zip(&grids).filter(|(_, grid)| grid.best.is_some()) {
        let left = svg::width_max(&grid.rows).max(svg::width_max(&[y]) + 14) + 12;
        let column = ((ROOM - left) / grid.columns.len() as i32).clamp(COLUMN_MIN, COLUMN_MAX);
        let column = column.max(svg::width_max(&grid.columns) + 10);
        let heat = Heat { grid, colors: &colors, left, column };
        let (right, bottom) = heat.corner(grid.rows.len(), grid.columns.len());
        let mut canvas = Canvas::new((right.max(left + 300) + 2, bottom + BOTTOM));
        let (across, down) = (format!("{} →", shorten(x)), format!("{} ↓", shorten(y)));
        canvas.text((left + 4, 10), Anchor::Start, "class=\"soft\"", &across);
        canvas.text((left - 8, TOP - 14), Anchor::End, "class=\"soft\"", &down);
        heat.draw_cells(&mut canvas);
        heat.draw_scale(&mut canvas, bottom + 18);
        let svg = canvas.finish(&super::label(side));
        drawings.push(Drawing { side: side.name.clone(), svg });
    }
    drawings
}

impl Heat<'_> {
    fn corner(&self, row: usize, column: usize) -> (i32, i32) {
        (self.left + self.column * column as i32, TOP + ROW * row as i32)
    }

    fn draw_cells(&self, canvas: &mut Canvas) {
        let (width, height) = (self.column - 2, ROW - 2);
        for (column, name) in self.grid.columns.iter().enumerate() {
            let (x, _) = self.corner(0, column);
            canvas.text((x + width / 2, TOP - 14), Anchor::Middle, "", &shorten(name));
        }
        for (row, name) in self.grid.rows.iter().enumerate() {
            let (_, y) = self.corner(row, 0);
            canvas.text((self.left - 8, y + height / 2), Anchor::End, "", &shorten(name));
            for (column, value) in self.grid.cells[row].iter().enumerate() {
                let (x, y) = self.corner(row, column);
                let Some(value) = *value else {
                    canvas.rect((x, y), (width, height), "class=\"frame\" stroke-opacity=\".25\"");
                    continue;
                };
                let place = self.colors.place(value);
                let fill = format!("fill=\"{}\"", color(place));
                canvas.rect((x, y), (width, height), &fill);
                let (middle, fill) =
                    ((x + width / 2, y + height / 2), format!("fill=\"{}\"", text_color(place)));
                canvas.text(middle, Anchor::Middle, &fill, &short(self.colors.metric, value));
            }
        }
        if let Some((row, column)) = self.grid.best {
            let (x, y) = self.corner(row, column);
            canvas.rect(
                (x - 1, y - 1),
                (width + 2, height + 2),
                "class=\"frame\" stroke-width=\"2\"",
            );
            let inner = "fill=\"none\" stroke=\"#000000\"";
            canvas.rect((x + 2, y + 2), (width - 4, height - 4), inner);
        }
    }

    /// The colors from the worst to the best.
    fn draw_scale(&self, canvas: &mut Canvas, top: i32) {
        const STEPS: i32 = 48;
        const STEP: i32 = 3;
        let Colors { metric, min, max } = *self.colors;
        let (worst, best) = if metric.more_is_better() { (min, max) } else { (max, min) };
        let worst = metric.show(worst);
        canvas.text((self.left, top + 6), Anchor::Start, "class=\"soft\"", &worst);
        let left = self.left + svg::width(&worst) + 8;
        for step in 0..STEPS {
            let fill = color(f64::from(step) / f64::from(STEPS - 1));
            canvas.rect((left + step * STEP, top), (STEP, 12), &format!("fill=\"{fill}\""));
        }
        let at = (left + STEPS * STEP + 8, top + 6);
        canvas.text(at, Anchor::Start, "class=\"soft\"", &metric.show(best));
    }
}

/// A value in a cell: `3.81G`, `81.3 ms`.
fn short(metric: Metric, value: f64) -> String {
    let shown = metric.show(value);
    let scaled = shown.strip_suffix("B/s").or_else(|| shown.strip_suffix("/s"));
    scaled.map_or(shown.clone(), |scaled| scaled.replace(' ', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bright_is_good_for_any_metric() {
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
            let contrast = svg::contrast(&color(place), text_color(place));
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
