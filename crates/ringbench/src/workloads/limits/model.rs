//! What the limits predict for ringsum, and what follows from the measurement.

use super::tree::{self, Tree};
use super::{
    COLD, COPIED, COPYING, FIO_PAGES, FIO_SHAPE, HASHED, HASHED_CACHED, HASHING, LOOP, Limits,
    MAPPED, PIPE, PIPE_ALONE, PIPE_HASHED, READING, TOGETHER, WARM, WARM_COPY, WARM_MAPPING,
    fio_case, shape_name, threads_name,
};
use crate::model::case::{Case, Group};
use crate::model::comparison::SAMPLES_MIN;
use crate::model::environment;
use crate::model::prediction::{Prediction, in_turn};
use crate::model::units::show_scaled;
use crate::runner::Session;

/// The cases that are predicted, by group and case, and their names in the predictions.
const PREDICTED: [(&str, &str, &str); 7] = [
    (TOGETHER, COLD, COLD),
    (TOGETHER, WARM, WARM),
    (tree::COLD, tree::RINGSUM, "ringsum -r, a cold tree"),
    (tree::WARM, tree::RINGSUM, "ringsum -r, a warm tree"),
    (PIPE, PIPE_HASHED, "ringsum, from a pipe"),
    (TOGETHER, WARM_COPY, WARM_COPY),
    (TOGETHER, WARM_MAPPING, WARM_MAPPING),
];

/// Rates of parts of the work, in bytes per second, and by name what binds.
type Terms = Vec<(&'static str, f64)>;

/// Reading without hashing.
#[derive(Debug, Clone, PartialEq)]
struct Reading {
    case: String,
    bytes_per_s: f64,
    cpu_s_per_byte: f64,
}

/// The best rates of parts of the work, in bytes per second.
struct Rates {
    read: Option<Reading>,
    /// On all processors.
    hash: Option<f64>,
    /// The same, of blocks that were just copied.
    hash_cached: Option<f64>,
    copy: Option<f64>,
    map: Option<f64>,
    pipe: Option<f64>,
    /// Of the files of a tree.
    tree_hash: Option<f64>,
    tree_cold: Option<Reading>,
    tree_warm: Option<Reading>,
}

impl Rates {
    fn of(session: &Session<'_>, tree: Option<&Tree>) -> Rates {
        let all = environment::processors();
        let of = |group: &str, case: &str| {
            let group = session.group(group)?;
            group.sustained_bytes_per_s(group.case(case)?)
        };
        let best = |group: &str, start: &str| fastest(session.group(group)?, start);
        Rates {
            read: best(READING, "ours"),
            hash: of(HASHING, &threads_name(all, HASHED)),
            hash_cached: of(HASHING, &threads_name(all, HASHED_CACHED)),
            copy: of(COPYING, &threads_name(all, COPIED)),
            map: of(COPYING, &threads_name(all, MAPPED)),
            pipe: of(PIPE, PIPE_ALONE),
            tree_hash: tree.and_then(|_| of(tree::WARM, tree::HASHED)),
            tree_cold: best(tree::COLD, tree::READ),
            tree_warm: best(tree::WARM, tree::READ),
        }
    }

    /// The rates that bound a case of ringsum.
    fn terms(&self, group: &str, case: &str) -> Option<Terms> {
        let cores = f64::from(environment::processors());
        let copy =
            || Some(("copying and hashing each byte", in_turn(self.copy?, self.hash_cached?)));
        let map =
            || Some(("faults of a mapping and hashing", in_turn(self.map?, self.hash_cached?)));
        let both = |what: &'static str, same: &'static str, read: &Reading, hash: f64| {
            // All processors hash, and reading takes processor time from them.
            let same_bytes_per_s = in_turn(cores / read.cpu_s_per_byte, hash);
            vec![(what, read.bytes_per_s), ("hashing", hash), (same, same_bytes_per_s)]
        };
        let of_tree = |read: &Option<Reading>| {
            let same = "walking, opening, reading and hashing on the same processors";
            Some(both("walking, opening and reading", same, read.as_ref()?, self.tree_hash?))
        };
        Some(match (group, case) {
            (tree::COLD, _) => of_tree(&self.tree_cold)?,
            (tree::WARM, _) => of_tree(&self.tree_warm)?,
            (_, COLD) => {
                let same = "reading and hashing on the same processors";
                both("reading", same, self.read.as_ref()?, self.hash?)
            }
            (_, WARM_COPY) => vec![copy()?],
            (_, WARM_MAPPING) => vec![map()?],
            // It finds out which of them is faster.
            (_, WARM) => vec![[copy()?, map()?].into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?],
            _ => vec![
                ("the pipe", self.pipe?),
                (
                    "the pipe's two ends and hashing on the same processors",
                    in_turn(self.pipe? * cores / 2.0, self.hash_cached?),
                ),
            ],
        })
    }
}

/// The fastest of the cases whose names start with `start`.
fn fastest(group: &Group, start: &str) -> Option<Reading> {
    let cpu_s = |case: &Case| case.median_of(|it| Some(it.cpu_s? / it.bytes.max(1) as f64));
    let cases = group.cases.iter().filter(|case| case.name.starts_with(start));
    let rates = cases.filter_map(|case| {
        let bytes_per_s = group.sustained_bytes_per_s(case)?;
        let cpu_s_per_byte = cpu_s(case).unwrap_or(0.0);
        Some(Reading { case: case.name.clone(), bytes_per_s, cpu_s_per_byte })
    });
    rates.max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
}

pub(super) fn conclude(limits: &Limits<'_>, session: &mut Session<'_>) {
    let tree = limits.tree.as_ref();
    let rates = Rates::of(session, tree);
    let pages = |(pages, _): &(&'static str, _)| {
        session.median(READING, &fio_case("fio", pages)).map(|fio| (*pages, fio))
    };
    // Reserved huge pages, if there are any: they do not slow the device down.
    let fio = FIO_PAGES.iter().rev().find_map(pages);
    let numbers = [
        ("read_bytes_per_s", rates.read.as_ref().map(|read| read.bytes_per_s)),
        ("hash_bytes_per_s", rates.hash),
        ("hash_1_thread_bytes_per_s", session.median(HASHING, &threads_name(1, HASHED))),
        ("copy_bytes_per_s", rates.copy),
        ("map_bytes_per_s", rates.map),
        ("pipe_bytes_per_s", rates.pipe),
        ("ringsum_cold_bytes_per_s", session.median(TOGETHER, COLD)),
        ("ringsum_warm_bytes_per_s", session.median(TOGETHER, WARM)),
        ("fio_bytes_per_s", fio.map(|(_, fio)| fio)),
        ("loop_ns_per_block", session.median(LOOP, "any order")),
        ("tree_walk_per_file_ns", session.median(tree::WARM, tree::WALKED)),
        ("tree_open_per_file_ns", session.median(tree::WARM, tree::OPENED)),
        ("tree_cold_per_file_ns", session.median(tree::COLD, tree::RINGSUM)),
        ("tree_warm_per_file_ns", session.median(tree::WARM, tree::RINGSUM)),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            session.result(name, value);
        }
    }
    predict(&rates, session);
    if let Some(ratio) = session.compare(TOGETHER, WARM_COPY, WARM_MAPPING) {
        session.conclude(format!("warm, compared with a copy, a mapping {}", ratio.in_words()));
    }
    if let Some(read) = rates.read.as_ref().filter(|_| !session.run.predictions.is_empty()) {
        let hash = rates.hash.map_or(String::new(), |hash| {
            format!(", hashing on all processors {}B/s", show_scaled(hash))
        });
        let (shape, rate) = (&read.case, show_scaled(read.bytes_per_s));
        session.conclude(format!(
            "the limits: reading {rate}B/s ({shape}){hash} (the rate that the best tenth of the samples reach)"
        ));
    }
    if let Some((pages, fio)) = fio
        && let Some(ratio) =
            session.compare(READING, &fio_case("ours", pages), &fio_case("fio", pages))
    {
        let shape = shape_name(FIO_SHAPE);
        session.conclude(format!(
            "with the same settings ({shape}, {pages}) fio reads {}B/s and {}",
            show_scaled(fio),
            ratio.in_words()
        ));
    }
}

/// Predicts each case, if it has enough samples.
fn predict(rates: &Rates, session: &mut Session<'_>) {
    let mut too_few = Vec::new();
    for (group_name, case, name) in PREDICTED {
        let Some(group) = session.group(group_name) else { continue };
        let Some(case) = group.case(case) else { continue };
        let count = group.values(case).len();
        if count > 0 && count < SAMPLES_MIN {
            too_few.push(name);
        }
        let measured = group.sustained_bytes_per_s(case).filter(|_| count >= SAMPLES_MIN);
        let Some((measured_bytes_per_s, terms)) = measured.zip(rates.terms(group_name, &case.name))
        else {
            continue;
        };
        let terms = terms.into_iter().map(|(name, rate)| (name.to_owned(), rate)).collect();
        let prediction = Prediction { name: name.to_owned(), measured_bytes_per_s, terms };
        session.conclude(prediction.show());
        session.run.predictions.push(prediction);
    }
    if !too_few.is_empty() {
        let names = too_few.join("; ");
        session.conclude(format!(
            "too few samples for conclusions, which need {SAMPLES_MIN} rounds: {names}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(bytes_per_s: f64, cpu_bytes_per_s: f64) -> Option<Reading> {
        let cpu_s_per_byte = f64::from(environment::processors()) / cpu_bytes_per_s;
        Some(Reading { case: "512K x 16".to_owned(), bytes_per_s, cpu_s_per_byte })
    }

    #[test]
    fn what_the_same_processors_do_adds_up() {
        let rates = Rates {
            read: reading(4e9, 1e10),
            hash: Some(1e10),
            hash_cached: Some(1e10),
            copy: Some(1e10),
            map: Some(4e10),
            pipe: Some(2e9),
            tree_hash: Some(3e9),
            tree_cold: reading(1e9, 1.5e9),
            tree_warm: reading(2e9, 1.5e9),
        };
        let lowest = |rates: &Rates, group, case| {
            let terms = rates.terms(group, case).unwrap().into_iter();
            terms.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap()
        };
        assert_eq!(lowest(&rates, TOGETHER, COLD), ("reading", 4e9));
        assert_eq!(lowest(&rates, TOGETHER, WARM_COPY).1.round(), 5e9);
        assert_eq!(lowest(&rates, TOGETHER, WARM_MAPPING).1.round(), 8e9);
        assert_eq!(lowest(&rates, TOGETHER, WARM).1.round(), 8e9);
        assert!(lowest(&rates, PIPE, PIPE_HASHED).1 <= 2e9);
        let tree = |group| lowest(&rates, group, tree::RINGSUM);
        assert_eq!(tree(tree::COLD), ("walking, opening and reading", 1e9));
        assert_eq!((tree(tree::WARM).1).round(), 1e9);
        let busy = Rates { read: reading(4e9, 2e9), ..rates };
        let (name, bytes_per_s) = lowest(&busy, TOGETHER, COLD);
        assert!(bytes_per_s < 2e9 && name.contains("same processors"), "{name}");
        let none = Rates { hash: None, ..busy };
        assert_eq!(none.terms(TOGETHER, COLD), None);
    }
}
