//! What disturbed a sample: bytes that should not, or should, have come from the disk, and processor time
//! that others took. Rounds with such samples are left out of all statistics.

use super::case::{Case, Group, Sample};

/// How much of a disturbance is marked, and how much leaves its round out.
struct Threshold {
    marked: f64,
    left_out: f64,
}

/// Parts of the bytes of a sample. Metadata and read-ahead of other files are below 1 %.
const DISK: Threshold = Threshold { marked: 0.02, left_out: 0.1 };

/// Parts of one processor. An undisturbed loop of 0.3 s appears to share its processor by up to 15 %: the
/// kernel counts its time exactly, and that of all processes by sampling.
const CPU: Threshold = Threshold { marked: 0.2, left_out: 0.4 };

/// It samples every 10 ms, on each processor.
const CPU_S_MIN: f64 = 0.05;

/// The bytes that a sample with a time limit reads, but does not count, are at most this part: the first
/// and the last in flight.
const UNCOUNTED_MAX: f64 = 0.25;

/// The disk delivers more than the bytes of a file: its last block to the end, and its inode.
const FILE_BYTES: f64 = 4096.0;

/// The disturbances of a sample that are marked, and whether they leave its round out.
pub(crate) fn of_sample(case: &Case, sample: &Sample) -> (Vec<&'static str>, bool) {
    let (mut marks, mut leaves_out) = (Vec::new(), false);
    let mut look = |name, part: Option<f64>, threshold: &Threshold| {
        let part = part.unwrap_or(0.0);
        if part > threshold.marked {
            marks.push(name);
        }
        leaves_out |= part > threshold.left_out;
    };
    let disk = || Some(sample.disk_read_bytes? as f64 / sample.bytes as f64);
    match case.parameters.get("cache state").map(String::as_str) {
        _ if sample.bytes == 0 => {}
        Some("warm") => look("read from the disk", disk(), &DISK),
        Some("cold") => {
            look("not all from the disk", disk().map(|disk| 1.0 - disk), &DISK);
            let files: Option<f64> = case.parameters.get("files").and_then(|it| it.parse().ok());
            let ends = files.unwrap_or(0.0) * FILE_BYTES / sample.bytes as f64;
            let more = disk().map(|disk| disk - 1.0 - UNCOUNTED_MAX - ends);
            look("more from the disk than it counts", more, &DISK);
        }
        _ => {}
    }
    let of_wall = |seconds: Option<f64>| {
        Some(seconds.filter(|seconds| *seconds >= CPU_S_MIN)? / sample.wall_s.max(1e-9))
    };
    look("steal", of_wall(sample.steal_s), &CPU);
    look("other processes", of_wall(sample.others_cpu_s), &CPU);
    (marks, leaves_out)
}

impl Group {
    /// Whether each round is left out, because one of its samples was disturbed; and whether none is, since
    /// that would be more than a third of them.
    pub(crate) fn left_out(&self) -> (Vec<bool>, bool) {
        let rounds = self.cases.iter().map(|case| case.samples.len()).max().unwrap_or(0);
        let mut left_out = vec![false; rounds];
        for case in &self.cases {
            for (round, sample) in case.samples.iter().enumerate() {
                left_out[round] |= of_sample(case, sample).1;
            }
        }
        let is_busy = left_out.iter().filter(|left_out| **left_out).count() * 3 > rounds;
        if is_busy {
            left_out.fill(false);
        }
        (left_out, is_busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::case::{Chart, Metric};

    fn case(state: &str, samples: &[Sample]) -> Case {
        Case { samples: samples.to_vec(), ..Case::new(state).with("cache state", state) }
    }

    fn sample() -> Sample {
        Sample { wall_s: 1.0, bytes: 1000, disk_read_bytes: Some(1000), ..Sample::default() }
    }

    #[test]
    fn each_disturbance_is_marked() {
        let of = |state: &str, sample: Sample| of_sample(&case(state, &[]), &sample);
        let disk = |bytes| Sample { disk_read_bytes: Some(bytes), ..sample() };
        assert_eq!(of("cold", sample()), (vec![], false));
        assert_eq!(of("cold", disk(950)), (vec!["not all from the disk"], false));
        assert_eq!(of("cold", disk(500)), (vec!["not all from the disk"], true));
        assert_eq!(of("cold", disk(2000)), (vec!["more from the disk than it counts"], true));
        let tree = Sample { bytes: 10_000, ..disk(40_000) };
        let of_files = |files| of_sample(&case("cold", &[]).with("files", files), &tree).1;
        assert!(of_files(1) && !of_files(10));
        assert_eq!(of("warm", disk(0)), (vec![], false));
        assert_eq!(of("warm", disk(200)), (vec!["read from the disk"], true));
        assert_eq!(of("any", Sample { steal_s: Some(0.3), ..sample() }), (vec!["steal"], false));
        let busy = Sample { others_cpu_s: Some(0.5), ..sample() };
        assert_eq!(of("any", busy.clone()), (vec!["other processes"], true));
        // One tick of a short sample.
        let short = Sample { others_cpu_s: Some(0.02), wall_s: 0.01, ..sample() };
        assert_eq!(of("any", short), (vec![], false));
    }

    #[test]
    fn a_disturbed_round_is_left_out_of_all_cases() {
        let busy = Sample { others_cpu_s: Some(2.7), wall_s: 9.0, ..sample() };
        let steal = Sample { steal_s: Some(5.0), wall_s: 9.0, ..sample() };
        let mut group = Group::new("g", "", Metric::Seconds, Chart::Bars);
        group.cases = vec![case("a", &vec![sample(); 6]), case("b", &vec![busy.clone(); 6])];
        assert_eq!(group.left_out(), (vec![false; 6], false), "marked only");
        group.cases[1].samples[4] = steal.clone();
        assert_eq!(group.left_out().0, [false, false, false, false, true, false]);
        assert_eq!(group.values(&group.cases[0]).len(), 5);
        group.cases[1].samples = vec![steal; 6];
        assert_eq!(group.left_out(), (vec![false; 6], true), "all of them: none");
        assert_eq!(group.values(&group.cases[0]).len(), 6);
    }
}
