//! The cases of a group by the values of two of their parameters, and the order of such values.

use crate::model::case::{Case, Group};
use crate::model::units::parse_size;

/// Medians in rows and columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Grid {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<String>,
    /// By row, then by column.
    pub(super) cells: Vec<Vec<Option<f64>>>,
    /// Row and column of the best cell.
    pub(super) best: Option<(usize, usize)>,
}

impl Grid {
    /// Cases that lack one of the parameters are left out.
    pub(super) fn of(group: &Group, x: &str, y: &str) -> Grid {
        let place =
            |case: &Case| Some((case.parameters.get(y)?.clone(), case.parameters.get(x)?.clone()));
        let places: Vec<_> = group.cases.iter().filter_map(place).collect();
        let rows = in_order(places.iter().map(|(row, _)| row));
        let columns = in_order(places.iter().map(|(_, column)| column));
        let median = |row: &String, column: &String| {
            let is_there = |case: &&Case| place(case) == Some((row.clone(), column.clone()));
            let case = group.cases.iter().find(is_there)?;
            group.median(case).filter(|median| median.is_finite())
        };
        let cells =
            rows.iter().map(|row| columns.iter().map(|column| median(row, column)).collect());
        let cells: Vec<Vec<Option<f64>>> = cells.collect();
        let best = group.best().and_then(|(best, _)| place(best)).and_then(|(row, column)| {
            let row = rows.iter().position(|other| *other == row)?;
            Some((row, columns.iter().position(|other| *other == column)?))
        });
        Grid { columns, rows, cells, best }
    }

    /// The values of all cells that have one.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.cells.iter().flatten().copied().flatten()
    }
}

/// Each value once: numbers and sizes by their amount, then everything else in the order of occurrence.
pub(super) fn in_order<'a>(values: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut unique: Vec<String> = super::unique(values).into_iter().cloned().collect();
    unique.sort_by_key(|value| parse_size(value).unwrap_or(u64::MAX));
    unique
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::{Chart, Metric, Sample};

    #[test]
    fn sizes_are_in_the_order_of_their_amount() {
        let values = ["16M", "off", "1K", "512K", "2", "auto", "1K", "10"].map(str::to_owned);
        assert_eq!(in_order(values.iter()), ["2", "10", "1K", "512K", "16M", "off", "auto"]);
    }

    #[test]
    fn cells_are_at_the_values_of_their_parameters() {
        let mut group = Group::new("g", "", Metric::BytesPerS, Chart::Bars);
        for (block, depth, bytes) in [("1M", "2", 10), ("64K", "2", 40), ("64K", "1", 5)] {
            let sample = Sample { wall_s: 1.0, bytes, ..Sample::default() };
            let case = Case::new(format!("{block} {depth}"));
            let case = case.with("block", block).with("depth", depth);
            group.cases.push(Case { samples: vec![sample], ..case });
        }
        group.cases.push(Case::new("peer").with("block", "2M"));
        let grid = Grid::of(&group, "depth", "block");
        assert_eq!(
            (&*grid.rows, &*grid.columns),
            (&["64K", "1M"].map(String::from)[..], &["1", "2"].map(String::from)[..])
        );
        assert_eq!(grid.cells, [[Some(5.0), Some(40.0)], [None, Some(10.0)]]);
        assert_eq!(grid.best, Some((0, 1)));
    }
}
