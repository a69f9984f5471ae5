//! The cases of a group by the values of two of their parameters, and the order of such values.

use crate::model::case::Group;
use crate::model::units::parse_number;

/// Medians in rows and columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Grid {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<String>,
    /// By row, then by column. Where several cases share a place, the best of them.
    pub(crate) cells: Vec<Vec<Option<f64>>>,
    /// Row and column of the best cell.
    pub(crate) best: Option<(usize, usize)>,
    /// Whether there are places that several cases share.
    pub(crate) shared: bool,
}

impl Grid {
    /// Cases that lack one of the parameters are left out.
    pub(crate) fn of(group: &Group, x: &str, y: &str) -> Grid {
        let values = |name: &str| {
            let having = group
                .cases
                .iter()
                .filter(|case| case.parameters.contains_key(x) && case.parameters.contains_key(y));
            in_order(having.filter_map(|case| case.parameters.get(name)))
        };
        let (columns, rows) = (values(x), values(y));
        let mut cells = vec![vec![None; columns.len()]; rows.len()];
        let better = |a: f64, b: f64| if group.metric.more_is_better() { a > b } else { a < b };
        let (mut best, mut shared) = (None::<(f64, usize, usize)>, false);
        for case in &group.cases {
            let place = |values: &[String], name: &str| {
                let value = case.parameters.get(name)?;
                values.iter().position(|other| other == value)
            };
            let (Some(column), Some(row)) = (place(&columns, x), place(&rows, y)) else { continue };
            let Some(median) = group.median(case).filter(|median| median.is_finite()) else {
                continue;
            };
            let cell: &mut Option<f64> = &mut cells[row][column];
            shared |= cell.is_some();
            if cell.is_none_or(|before| better(median, before)) {
                *cell = Some(median);
            }
            if best.is_none_or(|(value, ..)| better(median, value)) {
                best = Some((median, row, column));
            }
        }
        Grid { columns, rows, cells, best: best.map(|(_, row, column)| (row, column)), shared }
    }

    /// The values of all cells that have one.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.cells.iter().flatten().copied().flatten()
    }
}

/// Each value once: numbers and sizes by their amount, then everything else in the order of occurrence.
pub(super) fn in_order<'a>(values: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut unique: Vec<String> = super::unique(values).into_iter().cloned().collect();
    unique.sort_by(|a, b| match (parse_number(a), parse_number(b)) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    unique
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::{Case, Chart, Metric, Sample};

    #[test]
    fn sizes_are_in_the_order_of_their_amount() {
        let typed = ["16M", "off", "1K", "512K", "2", "auto", "1K", "10", "0.5", "1.5K"];
        let typed: Vec<String> = typed.iter().map(|&text| text.to_owned()).collect();
        let ordered = ["0.5", "2", "10", "1K", "1.5K", "512K", "16M", "off", "auto"];
        assert_eq!(in_order(typed.iter()), ordered);
    }

    #[test]
    fn a_shared_place_shows_the_best_case() {
        let mut group = Group::new("g", "", Metric::BytesPerS, Chart::Bars);
        for (block, depth, engine, bytes) in [
            ("1M", "2", "a", 10),
            ("64K", "2", "a", 30),
            ("64K", "2", "b", 40),
            ("64K", "1", "a", 5),
        ] {
            let sample = Sample { wall_s: 1.0, bytes, ..Sample::default() };
            let case = Case::new(format!("{block} {depth} {engine}"));
            let case = case.with("block", block).with("depth", depth).with("engine", engine);
            group.cases.push(Case { samples: vec![sample], ..case });
        }
        group.cases.push(Case::new("peer").with("block", "2M"));
        let grid = Grid::of(&group, "depth", "block");
        assert_eq!(
            (&grid.rows[..], &grid.columns[..]),
            (&["64K", "1M"].map(String::from)[..], &["1", "2"].map(String::from)[..])
        );
        assert_eq!(grid.cells, [[Some(5.0), Some(40.0)], [None, Some(10.0)]]);
        assert_eq!((grid.best, grid.shared), (Some((0, 1)), true));
    }
}
