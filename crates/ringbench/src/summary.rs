//! What many values come to: their middle, their spread, and whether there are enough of them.

/// Several values in short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
    /// Median of the distances from the median.
    pub(crate) mad: f64,
}

/// The MAD of a normal distribution is this part of its standard deviation: the 0.75 quantile.
const MAD_OF_NORMAL: f64 = 0.6745;

/// A value whose distance from the median is this many times `MAD / 0.6745` is an outlier: Iglewicz and
/// Hoaglin, "How to Detect and Handle Outliers", 1993.
const OUTLIER_SCORE: f64 = 3.5;

/// The standard error of a median is this many times that of a mean, for a normal distribution: the square
/// root of pi/2.
const ERROR_OF_MEDIAN: f64 = 1.2533;

impl Summary {
    /// `None` for no values.
    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let sorted = sorted(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let median = middle(&sorted)?;
        let distances: Vec<f64> = sorted.iter().map(|value| (value - median).abs()).collect();
        let mad = middle(&self::sorted(&distances))?;
        Some(Summary { count: sorted.len(), min, median, max, mad })
    }

    /// Standard error of the median, as a part of the median.
    pub(crate) fn relative_error(&self) -> f64 {
        let error = ERROR_OF_MEDIAN * self.mad / MAD_OF_NORMAL / (self.count as f64).sqrt();
        if self.median == 0.0 { 0.0 } else { error / self.median.abs() }
    }

    /// How far the median may be off, in the unit of the values: two standard errors.
    pub(crate) fn noise(&self) -> f64 {
        2.0 * self.relative_error() * self.median.abs()
    }

    /// Whether `value` is far from what the others are. Where more than half of the values are the same,
    /// only one that is 10 % off counts.
    pub(crate) fn is_outlier(&self, value: f64) -> bool {
        let distance = (value - self.median).abs();
        let sigma = self.mad / MAD_OF_NORMAL;
        match sigma > 0.0 {
            true => distance > OUTLIER_SCORE * sigma && distance > 0.05 * self.median.abs(),
            false => distance > 0.1 * self.median.abs(),
        }
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> Option<f64> {
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// Where a sequence is best cut into two levels, and by how much they differ: `(index, level after / level
/// before)`. Levels are medians, and the best cut leaves the least distances from them. `None` for fewer
/// than three values on either side.
pub(crate) fn step(values: &[f64]) -> Option<(usize, f64)> {
    const SIDE_MIN: usize = 3;
    let level = |part: &[f64]| {
        let median = middle(&sorted(part)).filter(|median| *median > 0.0)?;
        Some((median, part.iter().map(|value| (value - median).abs()).sum::<f64>()))
    };
    let cuts = (SIDE_MIN..=values.len().checked_sub(SIDE_MIN)?).filter_map(|at| {
        let (before, after) = (level(&values[..at])?, level(&values[at..])?);
        Some((at, after.0 / before.0, before.1 + after.1))
    });
    cuts.min_by(|a, b| a.2.total_cmp(&b.2)).map(|(at, ratio, _)| (at, ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_spreads() {
        let cases: [(&[f64], [f64; 4]); 4] = [
            (&[3.0], [3.0, 3.0, 3.0, 0.0]),
            (&[4.0, 1.0], [1.0, 2.5, 4.0, 1.5]),
            (&[5.0, 1.0, 3.0], [1.0, 3.0, 5.0, 2.0]),
            (&[1.0, 1.0, 2.0, 9.0], [1.0, 1.5, 9.0, 0.5]),
        ];
        for (values, [min, median, max, mad]) in cases {
            let expected = Summary { count: values.len(), min, median, max, mad };
            assert_eq!(Summary::of(values), Some(expected));
        }
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn the_error_falls_with_the_root_of_the_count() {
        let few = Summary::of(&[9.0, 10.0, 11.0]).unwrap();
        let many = Summary::of(&[9.0, 10.0, 11.0].repeat(4)).unwrap();
        assert!((few.relative_error() / many.relative_error() - 2.0).abs() < 1e-9);
        // 1.2533 x 1 / 0.6745 / sqrt(3) / 10
        assert!((few.relative_error() - 0.10728).abs() < 1e-4, "{}", few.relative_error());
        assert_eq!(Summary::of(&[0.0, 0.0]).unwrap().relative_error(), 0.0);
        assert!((few.noise() - 20.0 * few.relative_error()).abs() < 1e-9);
    }

    #[test]
    fn outliers_are_far_from_the_middle() {
        let summary = Summary::of(&[1.0, 1.1, 0.9, 1.05, 0.95]).unwrap();
        assert!(summary.is_outlier(2.0) && summary.is_outlier(0.1));
        assert!(!summary.is_outlier(1.2));
        let even = Summary::of(&[1.0, 1.0, 1.0, 1.5]).unwrap();
        assert!(even.is_outlier(1.5) && !even.is_outlier(1.05));
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let throttled = [1.0, 1.01, 0.99, 1.0, 2.0, 2.1, 1.9, 2.0];
        let (at, ratio) = step(&throttled).unwrap();
        assert_eq!(at, 4);
        assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
        assert!((step(&[1.0; 8]).unwrap().1 - 1.0).abs() < 1e-9);
        assert_eq!(step(&[1.0; 5]), None);
    }
}
