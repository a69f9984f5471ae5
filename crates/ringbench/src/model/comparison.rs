//! Whether two cases differ, by how much, and how certain that is: bootstrap intervals of ratios.

use fastrand::Rng;

/// Fewest samples of each case for a conclusion. With fewer, the interval of two equal cases misses 1 too
/// often: of three samples, one in ten.
pub(crate) const SAMPLES_MIN: usize = 7;

/// Resamples of an interval (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13: at
/// least 1,000 for the ends of an interval).
const RESAMPLES: usize = 1000;

/// The part of the resamples beyond either end: the interval has 99 %.
const TAIL: f64 = 0.005;

/// The same quantile of the normal distribution.
const NORMAL: f64 = 2.576;

/// The same of Student's t distribution, for 6 and more degrees of freedom: NIST/SEMATECH, "e-Handbook of
/// Statistical Methods", 1.3.6.7.2.
const STUDENT: [f64; 15] = [
    3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921, 2.898, 2.878,
    2.861, 2.845,
];

/// The ratio of one case to another, with its 99 % interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    /// The ratio of `b` to `a`, whose values are pairs: those of one round, which a drift of the machine
    /// affects alike. `None` if there are too few for a conclusion.
    pub(crate) fn of_pairs(a: &[f64], b: &[f64]) -> Option<Ratio> {
        let logs: Vec<f64> = a.iter().zip(b).map(|(a, b)| (b / a).ln()).collect();
        Ratio::of(logs.len(), mean(&logs), |random| resampled_mean(&logs, random))
    }

    /// The same of values that were not measured in the same rounds.
    pub(crate) fn of_runs(a: &[f64], b: &[f64]) -> Option<Ratio> {
        let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<_>>();
        let (a, b) = (logs(a), logs(b));
        Ratio::of(a.len().min(b.len()), mean(&b) - mean(&a), |random| {
            resampled_mean(&b, random) - resampled_mean(&a, random)
        })
    }

    fn of(count: usize, log: f64, resample: impl Fn(&mut Rng) -> f64) -> Option<Ratio> {
        if count < SAMPLES_MIN || !log.is_finite() {
            return None;
        }
        // The same data give the same interval.
        let mut random = Rng::with_seed(1);
        let mut logs: Vec<f64> = (0..RESAMPLES).map(|_| resample(&mut random)).collect();
        logs.sort_unstable_by(f64::total_cmp);
        let beyond = (RESAMPLES as f64 * TAIL) as usize;
        // Resamples of few values spread too little. Hesterberg, "What Teachers Should Know About the
        // Bootstrap", 2015, section 5.3: the same widening as that of the t interval.
        let student = STUDENT[(count - SAMPLES_MIN).min(STUDENT.len() - 1)];
        let widen = (count as f64 / (count as f64 - 1.0)).sqrt() * student / NORMAL;
        let end = |resample: f64| (log + widen * (resample - log)).exp();
        let (low, high) = (end(logs[beyond]), end(logs[RESAMPLES - 1 - beyond]));
        Some(Ratio { value: log.exp(), low, high })
    }

    /// Whether the data tell the two apart.
    pub(crate) fn differs(self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }

    pub(crate) fn inverse(self) -> Ratio {
        Ratio { value: 1.0 / self.value, low: 1.0 / self.high, high: 1.0 / self.low }
    }

    /// What can be said of `b`, whose times were compared with others.
    pub(crate) fn in_words(self) -> String {
        match self.differs() {
            true => format!("takes {} times as long", self.show()),
            false => format!("is indistinguishable: {} times as long", self.show()),
        }
    }

    /// `1.62 (1.55 to 1.70)`
    pub(crate) fn show(self) -> String {
        let Ratio { value, low, high } = self;
        format!("{value:.2} ({low:.2} to {high:.2})")
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn resampled_mean(values: &[f64], random: &mut Rng) -> f64 {
    let drawn = (0..values.len()).map(|_| values[random.usize(0..values.len())]);
    drawn.sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::summary::Summary;
    use crate::runner::{ERROR_ENOUGH, ROUNDS};

    /// A value around 1 (Box and Muller's method).
    fn normal(sd: f64, random: &mut Rng) -> f64 {
        let (u, v) = (1.0 - random.f64(), random.f64());
        1.0 + sd * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// What happens to a machine while it measures: the factor of a sample at a part of the run.
    type Machine = fn(part: f64, random: &mut Rng) -> f64;

    const MACHINES: [(&str, Machine); 4] = [
        ("calm", |_, _| 1.0),
        ("slower and slower", |part, _| 1.0 + 0.3 * part),
        ("outliers", |_, random| if random.f64() < 0.1 { 2.0 } else { 1.0 }),
        ("steal", |_, random| 1.0 + if random.f64() < 0.3 { 0.3 * random.f64() } else { 0.0 }),
    ];

    /// Two cases with a spread of 5 %, measured as the default rounds measure them.
    fn measure(machine: Machine, factor: f64, random: &mut Rng) -> (Vec<f64>, Vec<f64>) {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let is_settled =
            |values: &[f64]| Summary::of(values).unwrap().relative_noise() <= ERROR_ENOUGH;
        for round in 0..ROUNDS.max {
            let part = f64::from(round) / f64::from(ROUNDS.max);
            let mut sample = |level| level * normal(0.05, random) * machine(part, random);
            a.push(sample(1.0));
            b.push(sample(factor));
            if round + 1 >= ROUNDS.min && is_settled(&a) && is_settled(&b) {
                break;
            }
        }
        (a, b)
    }

    /// The part of runs in which `b`, which takes `factor` times as long, is said to differ.
    fn claims(runs: u32, machine: Machine, factor: f64) -> f64 {
        let mut random = Rng::with_seed(7);
        let claim = |_: &u32| {
            let (a, b) = measure(machine, factor, &mut random);
            let ratio = Ratio::of_pairs(&a, &b).unwrap();
            ratio.differs() && (factor == 1.0 || ratio.low > 1.0)
        };
        f64::from((0..runs).filter(claim).count() as u32) / f64::from(runs)
    }

    #[test]
    fn equal_cases_are_hardly_ever_said_to_differ() {
        std::thread::scope(|scope| {
            for (name, machine) in MACHINES {
                scope.spawn(move || {
                    let claims = claims(10_000, machine, 1.0);
                    println!("{name}: {:.2} % false claims", claims * 100.0);
                    assert!(claims < 0.02, "{name}: {claims}");
                });
            }
        });
    }

    #[test]
    fn a_true_difference_is_found() {
        for (name, machine) in &MACHINES[..2] {
            let found = claims(10_000, *machine, 1.1);
            println!("{name}: found in {:.1} %", found * 100.0);
            assert!(found >= 0.95, "{name}: {found}");
        }
    }

    #[test]
    fn too_few_samples_conclude_nothing() {
        assert_eq!(Ratio::of_pairs(&[1.0; 6], &[2.0; 6]), None);
        assert_eq!(Ratio::of_runs(&[1.0; 6], &[2.0; 60]), None);
        assert_eq!(Ratio::of_pairs(&[0.0; 9], &[1.0; 9]), None);
        let exact = Ratio::of_pairs(&[1.0; 7], &[2.0; 7]).unwrap();
        assert!(exact.differs() && (exact.value - 2.0).abs() < 1e-9, "{exact:?}");
        assert_eq!(exact.inverse().show(), "0.50 (0.50 to 0.50)");
    }

    #[test]
    fn two_runs_without_pairs_are_compared() {
        let mut random = Rng::with_seed(3);
        let mut run = |level: f64, count| -> Vec<f64> {
            (0..count).map(|_| level * normal(0.02, &mut random)).collect()
        };
        let (old, same, slower) = (run(1.0, 9), run(1.0, 15), run(1.1, 12));
        assert!(!Ratio::of_runs(&old, &same).unwrap().differs());
        assert!(Ratio::of_runs(&old, &slower).unwrap().low > 1.0);
    }
}
