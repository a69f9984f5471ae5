//! A rate that follows from other measurements, beside the measured one.

use serde::{Deserialize, Serialize};

use super::units::show_scaled;

/// A prediction that is off by more is reported as such.
const OFF_MAX: f64 = 0.1;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Prediction {
    pub(crate) name: String,
    pub(crate) measured_bytes_per_s: f64,
    /// The rates that bound it, by name: the lowest one is the prediction.
    pub(crate) terms: Vec<(String, f64)>,
}

impl Prediction {
    /// The term that binds.
    pub(crate) fn binding(&self) -> Option<&(String, f64)> {
        self.terms.iter().min_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// The measured rate relative to the predicted one, less 1.
    pub(crate) fn off(&self) -> f64 {
        self.binding().map_or(0.0, |(_, predicted)| self.measured_bytes_per_s / predicted - 1.0)
    }

    /// A sentence, which says so if the prediction does not hold.
    pub(crate) fn show(&self) -> String {
        let Some((term, predicted)) = self.binding() else { return self.name.clone() };
        let (measured, predicted) =
            (show_scaled(self.measured_bytes_per_s), show_scaled(*predicted));
        let (name, percent) = (&self.name, self.off() * 100.0);
        let off = match self.off().abs() > OFF_MAX {
            true => format!("; the prediction is off by {percent:+.0} %"),
            false => String::new(),
        };
        format!("{name}: {measured}B/s; {predicted}B/s are predicted, bound by {term}{off}")
    }
}

/// The rate of two steps that one after another handle the same bytes on the same processors.
pub(crate) fn in_turn(a: f64, b: f64) -> f64 {
    1.0 / (1.0 / a + 1.0 / b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_term_binds() {
        let terms = vec![
            ("reading".to_owned(), 4e9),
            ("copying and hashing".to_owned(), in_turn(1e10, 1e10)),
        ];
        let of = |measured_bytes_per_s| Prediction {
            name: "cold".to_owned(),
            measured_bytes_per_s,
            terms: terms.clone(),
        };
        let holds = "cold: 3.90 GB/s; 4.00 GB/s are predicted, bound by reading";
        assert_eq!(of(3.9e9).show(), holds);
        assert!(of(3e9).show().ends_with("; the prediction is off by -25 %"), "{}", of(3e9).show());
        assert_eq!(in_turn(1e10, 1e10), 5e9);
    }
}
