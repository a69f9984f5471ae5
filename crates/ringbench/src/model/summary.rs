//! Statistics of samples: location, spread, noise and changes of level.

/// Several values in short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) max: f64,
    /// Median absolute deviation from the median.
    pub(crate) mad: f64,
    /// Standard deviation of a sample.
    pub(crate) sd: f64,
}

/// MAD of a normal distribution, as a part of its standard deviation: the 0.75 quantile.
const MAD_OF_NORMAL: f64 = 0.6745;

/// Distance from the median, in units of `MAD / 0.6745`, from which a value is an outlier: Iglewicz and
/// Hoaglin, "How to Detect and Handle Outliers", 1993.
const OUTLIER_SCORE: f64 = 3.5;

/// Standard error of a median, as a multiple of that of a mean, for a normal distribution: the root of
/// pi/2.
const ERROR_OF_MEDIAN: f64 = 1.2533;

/// 97.5 % quantile of Student's t distribution for 1 to 10 degrees of freedom: NIST/SEMATECH,
/// "e-Handbook of Statistical Methods", 1.3.6.7.2.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// The same for more degrees of freedom, as upper bounds: up to 20, up to 40, and beyond.
const STUDENT_BEYOND: [(usize, f64); 3] = [(20, 2.201), (40, 2.086), (usize::MAX, 2.021)];

fn student(degrees: usize) -> f64 {
    let beyond = || STUDENT_BEYOND.iter().find(|(most, _)| degrees <= *most).map(|(_, t)| *t);
    let listed = degrees.checked_sub(1).and_then(|index| STUDENT.get(index).copied());
    listed.or_else(beyond).unwrap_or(f64::INFINITY)
}

impl Summary {
    /// The rate that the best tenth of the values reach: what can be sustained, without a lucky sample. Of
    /// few values, the largest.
    pub(crate) fn sustained(values: &[f64]) -> Option<f64> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        Some(sorted[(last as f64 * 0.9).round() as usize])
    }

    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let median = median(values)?;
        let distances: Vec<f64> = values.iter().map(|value| (value - median).abs()).collect();
        let mad = self::median(&distances)?;
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let sd = if count > 1 { (squares / (count as f64 - 1.0)).sqrt() } else { 0.0 };
        let min = values.iter().copied().reduce(f64::min)?;
        let max = values.iter().copied().reduce(f64::max)?;
        Some(Summary { count, min, median, max, mad, sd })
    }

    /// Half of the median's 95 % confidence interval, in the unit of the values; infinite for a single
    /// value. (Equal values may be equal because the clock is coarse: at least a thousandth.)
    pub(crate) fn noise(&self) -> f64 {
        match self.count {
            0 | 1 => f64::INFINITY,
            count => {
                let half = ERROR_OF_MEDIAN * student(count - 1) * self.sd / (count as f64).sqrt();
                half.max(self.median.abs() / 1000.0)
            }
        }
    }

    pub(crate) fn relative_noise(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { self.noise() / self.median.abs() }
    }

    /// Whether `value` is far from the others. If more than half of the values are equal, that is 10 %.
    pub(crate) fn is_outlier(&self, value: f64) -> bool {
        let distance = (value - self.median).abs();
        let sigma = self.mad / MAD_OF_NORMAL;
        match sigma > 0.0 {
            true => distance > OUTLIER_SCORE * sigma && distance > 0.05 * self.median.abs(),
            false => distance > 0.1 * self.median.abs(),
        }
    }
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[last / 2].midpoint(sorted[sorted.len() / 2]))
}

/// Finds a change of level beyond the noise: `(index, level after / level before)`. Levels are medians.
/// The cut minimizes the distances from them, with at least four values on either side.
pub(crate) fn step(values: &[f64]) -> Option<(usize, f64)> {
    const SIDE_MIN: usize = 4;
    let distances = |part: &[f64]| {
        let median = median(part)?;
        Some(part.iter().map(|value| (value - median).abs()).sum::<f64>())
    };
    let cuts = (SIDE_MIN..=values.len().checked_sub(SIDE_MIN)?)
        .filter_map(|at| Some((at, distances(&values[..at])? + distances(&values[at..])?)));
    let (at, _) = cuts.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let (before, after) = (Summary::of(&values[..at])?, Summary::of(&values[at..])?);
    // Twice the noise, since this is the best-looking of many cuts.
    let is_real = (after.median - before.median).abs() > 2.0 * (before.noise() + after.noise());
    (is_real && before.median > 0.0).then(|| (at, after.median / before.median))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middles_and_spreads() {
        let cases: [(&[f64], [f64; 5]); 4] = [
            (&[3.0], [3.0, 3.0, 3.0, 0.0, 0.0]),
            (&[4.0, 1.0], [1.0, 2.5, 4.0, 1.5, 4.5_f64.sqrt()]),
            (&[5.0, 1.0, 3.0], [1.0, 3.0, 5.0, 2.0, 2.0]),
            (&[1.0, 1.0, 2.0, 8.0], [1.0, 1.5, 8.0, 0.5, (34.0_f64 / 3.0).sqrt()]),
        ];
        for (values, [min, median, max, mad, sd]) in cases {
            let expected = Summary { count: values.len(), min, median, max, mad, sd };
            assert_eq!(Summary::of(values), Some(expected));
        }
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn the_noise_is_half_of_the_confidence_interval() {
        // 1.2533 x 4.303 x 1 / sqrt(3)
        let three = Summary::of(&[9.0, 10.0, 11.0]).unwrap();
        assert!((three.noise() - 3.1136).abs() < 1e-4, "{}", three.noise());
        assert!((three.relative_noise() - 0.31136).abs() < 1e-5);
        assert_eq!(Summary::of(&[1.0]).unwrap().noise(), f64::INFINITY);
        assert_eq!(Summary::of(&[5.0; 9]).unwrap().noise(), 0.005);
        let quantiles: Vec<_> = [1, 10, 11, 20, 21, 1000].map(student).to_vec();
        assert_eq!(quantiles, [12.706, 2.228, 2.201, 2.201, 2.086, 2.021]);
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
        assert_eq!((step(&[1.0; 12]), step(&[1.0; 5])), (None, None));
    }

    /// Normal values around 1 (Box and Muller's method).
    fn normal(count: usize, sd: f64, random: &mut fastrand::Rng) -> Vec<f64> {
        let mut next = || {
            let (u, v) = (1.0 - random.f64(), random.f64());
            1.0 + sd * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn noise_alone_is_hardly_ever_a_step() {
        let mut random = fastrand::Rng::with_seed(1);
        for count in [4, 6, 10, 22, 60] {
            let steps = (0..2000).filter(|_| step(&normal(count, 0.1, &mut random)).is_some());
            let found = steps.count();
            assert!(found < 30, "{found} of 2000, {count} values");
        }
    }
}
