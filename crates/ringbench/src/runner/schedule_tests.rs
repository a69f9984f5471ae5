//! Order, end and losses of a schedule, with a mock runner.

use super::*;
use crate::model::case::{Case, Chart, Metric};

/// A time that a hypervisor gave to others.
const STOLEN_S: f64 = 99.0;

/// Returns given times, which pass on its own clock.
struct Mock {
    /// Seconds of each case, repeated cyclically.
    walls: Vec<Vec<f64>>,
    measured: Vec<usize>,
    now: Duration,
    interrupt_after: usize,
    failing: Option<usize>,
}

impl Mock {
    fn new(walls: &[&[f64]]) -> Mock {
        let walls = walls.iter().map(|walls| walls.to_vec()).collect();
        let now = Duration::ZERO;
        Mock { walls, measured: Vec::new(), now, interrupt_after: usize::MAX, failing: None }
    }

    fn group(&self) -> Group {
        let mut group = Group::new("mock", "", Metric::Seconds, Chart::Bars);
        group.cases = (0..self.walls.len()).map(|i| Case::new(format!("case {i}"))).collect();
        group
    }
}

impl Runner for Mock {
    fn prepare(&mut self, _case: usize) -> Result<(), Missing> {
        self.now += Duration::from_secs(1);
        Ok(())
    }

    fn measure(&mut self, case: usize) -> Result<Sample, Missing> {
        if self.failing == Some(case) {
            return Err(Missing::Failed("by request".to_owned()));
        }
        let times = self.measured.iter().filter(|&&measured| measured == case).count();
        self.measured.push(case);
        let wall_s = self.walls[case][times % self.walls[case].len()];
        self.now += Duration::from_secs_f64(wall_s);
        let steal_s = (wall_s == STOLEN_S).then_some(wall_s);
        Ok(Sample { wall_s, bytes: 1, operations: 1, steal_s, ..Sample::default() })
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn is_interrupted(&self) -> bool {
        self.measured.len() >= self.interrupt_after
    }
}

fn schedule(rounds: Rounds) -> Schedule {
    Schedule { rounds, warm_up: Rounds::fixed(0), deadline: None }
}

fn run(mock: &mut Mock, schedule: &Schedule) -> (Group, Ended) {
    let mut group = mock.group();
    let ended = carry_out(&mut group, schedule, mock, &mut |_, _| ());
    (group, ended)
}

fn walls(group: &Group) -> Vec<Vec<f64>> {
    group.cases.iter().map(|case| group.values(case)).collect()
}

#[test]
fn cases_are_interleaved() {
    let mut mock = Mock::new(&[&[1.0, 2.0], &[3.0]]);
    let (group, ended) = run(&mut mock, &schedule(Rounds::fixed(3)));
    assert_eq!(mock.measured, [0, 1, 1, 0, 0, 1]);
    assert_eq!(walls(&group), [vec![1.0, 2.0, 1.0], vec![3.0; 3]]);
    assert_eq!(ended, Ended::Enough);
    let starts: Vec<_> = group.cases[1].samples.iter().map(|sample| sample.at_s).collect();
    assert_eq!(starts, [3.0, 7.0, 16.0]);
}

#[test]
fn the_spread_decides_the_number_of_samples() {
    let auto = schedule(Rounds { min: 3, max: 9 });
    let even = run(&mut Mock::new(&[&[1.0]]), &auto);
    assert_eq!((even.0.cases[0].samples.len(), even.1), (3, Ended::Enough));
    // 1.2533 x 2.447 x 0.0408 / sqrt(7) is 4.7 %, and of 10 values it is under 4 %.
    let noisy = run(&mut Mock::new(&[&[1.0, 0.95, 1.05]]), &schedule(Rounds { min: 3, max: 7 }));
    assert_eq!((noisy.0.cases[0].samples.len(), noisy.1), (7, Ended::Unsettled));
    let patient = schedule(Rounds { min: 3, max: 99 });
    let noisy = run(&mut Mock::new(&[&[1.0, 0.95, 1.05]]), &patient);
    assert_eq!((noisy.0.cases[0].samples.len(), noisy.1), (10, Ended::Enough));
}

#[test]
fn warm_up_ends_when_rounds_get_no_faster() {
    let auto = Schedule { warm_up: WARM_UP, ..schedule(Rounds::fixed(2)) };
    let (group, _) = run(&mut Mock::new(&[&[9.0, 2.0, 1.99, 5.0, 6.0]]), &auto);
    assert_eq!(walls(&group), [[5.0, 6.0]]);
    let (group, _) = run(&mut Mock::new(&[&[9.0, 5.0, 2.0, 1.0, 1.0]]), &auto);
    assert_eq!(walls(&group), [[1.0, 1.0]], "three rounds at most");
    let fixed = Schedule { warm_up: Rounds::fixed(1), ..schedule(Rounds::fixed(1)) };
    let (group, _) = run(&mut Mock::new(&[&[9.0, 5.0]]), &fixed);
    assert_eq!(walls(&group), [[5.0]]);
}

#[test]
fn a_warm_up_is_never_a_sample() {
    let warm = Schedule { warm_up: Rounds::fixed(2), ..schedule(Rounds::fixed(2)) };
    let mut mock = Mock { interrupt_after: 3, ..Mock::new(&[&[1.0], &[2.0]]) };
    let (group, ended) = run(&mut mock, &warm);
    assert_eq!((walls(&group), ended), (vec![vec![], vec![]], Ended::Interrupted));
    let deadline = Some(Duration::from_secs(4));
    let (group, ended) = run(&mut Mock::new(&[&[1.0], &[2.0]]), &Schedule { deadline, ..warm });
    assert_eq!((walls(&group), ended), (vec![vec![], vec![]], Ended::Deadline));
    assert!(group.cases.iter().all(|case| case.missing.is_some()));
}

#[test]
fn finished_samples_survive_an_interrupt() {
    let mut mock = Mock { interrupt_after: 4, ..Mock::new(&[&[1.0], &[2.0], &[3.0]]) };
    let (group, ended) = run(&mut mock, &schedule(Rounds::fixed(5)));
    assert_eq!(ended, Ended::Interrupted);
    // The fourth sample was interrupted.
    assert_eq!(walls(&group), [vec![1.0], vec![2.0], vec![3.0]]);
}

#[test]
fn no_sample_starts_after_the_deadline() {
    let mut mock = Mock::new(&[&[4.0], &[4.0], &[4.0]]);
    let deadline = Some(Duration::from_secs(10));
    let (group, ended) = run(&mut mock, &Schedule { deadline, ..schedule(Rounds::fixed(5)) });
    assert_eq!((ended, mock.measured.len()), (Ended::Deadline, 2));
    assert!(
        matches!(&group.cases[2].missing, Some(Missing::Unavailable(why)) if why.contains("time"))
    );
    assert_eq!(group.cases[0].missing, None, "it has a sample");
}

#[test]
fn a_failed_case_does_not_stop_the_others() {
    let mut mock = Mock { failing: Some(0), ..Mock::new(&[&[1.0], &[2.0]]) };
    let (group, ended) = run(&mut mock, &schedule(Rounds { min: 2, max: 4 }));
    assert_eq!((walls(&group), ended), (vec![vec![], vec![2.0, 2.0]], Ended::Enough));
    assert_eq!(group.cases[0].missing, Some(Missing::Failed("by request".to_owned())));
}

#[test]
fn every_step_is_observed() {
    let mut mock = Mock::new(&[&[1.0]]);
    let (mut group, mut steps) = (mock.group(), Vec::new());
    let schedule = Schedule { warm_up: Rounds::fixed(1), ..schedule(Rounds::fixed(2)) };
    carry_out(&mut group, &schedule, &mut mock, &mut |group, step| {
        steps.push((step, group.cases[0].samples.len()));
    });
    let starts = |round, warms_up| Step::Starts { case: 0, round, warms_up };
    let ended = Step::Ended { case: 0 };
    let expected = [
        (starts(0, true), 0),
        (ended, 0),
        (starts(0, false), 0),
        (ended, 1),
        (starts(1, false), 1),
        (ended, 2),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn rounds_that_are_left_out_are_replaced() {
    let walls: &[f64] = &[1.0, STOLEN_S, 1.0, 1.1, 0.9, 1.0, 1.0, 1.2];
    let (group, ended) = run(&mut Mock::new(&[walls]), &schedule(Rounds::fixed(7)));
    assert_eq!((group.cases[0].samples.len(), ended), (8, Ended::Enough));
    assert_eq!(group.values(&group.cases[0]).len(), 7);
    // Too few for a conclusion in any case.
    let (group, _) = run(&mut Mock::new(&[walls]), &schedule(Rounds::fixed(6)));
    assert_eq!(group.cases[0].samples.len(), 6);
}
