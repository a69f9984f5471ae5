//! One task on its way: opened, and done with; or to be done once more.

use std::thread;
use std::time::Duration;

use blockring::Source;

use super::known::known_hash;
use super::sequence::Run;
use super::{Failure, Hashed, Outcome, Step, Task};

/// How long to wait for a descriptor when there is none, and how often.
const SCARCE: Duration = Duration::from_millis(10);
const SCARCE_MAX: u32 = 500;

/// A task with its number, and room for what becomes of it. (Boxed: it goes through many hands.)
pub(super) struct Ticket<T> {
    pub(super) number: u64,
    pub(super) outcome: Box<Outcome<T>>,
    /// What it takes until it is told of, in bytes.
    pub(super) bytes: usize,
    /// How often it was read again.
    pub(super) again: u32,
}

impl<T> Ticket<T> {
    pub(super) fn new(number: u64, task: Task<T>, bytes: usize) -> Ticket<T> {
        Ticket { number, outcome: Box::new(Outcome { task, result: None }), bytes, again: 0 }
    }

    pub(super) fn task(&self) -> &Task<T> {
        &self.outcome.task
    }

    pub(super) fn inode(&self) -> u64 {
        self.task().file.as_ref().map_or(0, |file| file.inode)
    }
}

/// Hashes one file by itself, unless its hash is known; or nobody wants it any more.
pub(super) fn hash_alone<T: Send>(run: &Run<'_, T>, ticket: Ticket<T>) {
    if run.is_stopped() {
        return;
    }
    match known_hash(run, &ticket) {
        Some(hashed) => finish(run, ticket, Ok(hashed)),
        None => {
            let result = (run.options.alone)(ticket.task());
            finish(run, ticket, result);
        }
    }
}

/// A task is done.
pub(super) fn finish<T: Send>(
    run: &Run<'_, T>,
    mut ticket: Ticket<T>,
    result: Result<Hashed, Failure>,
) {
    if result.as_ref().is_err_and(|failure| failure.change().is_some()) {
        match run.later.take(run, ticket) {
            Some(back) => ticket = back,
            None => return,
        }
    }
    run.finish([with_result(run, ticket, result)]);
}

/// A ticket of a task that is done.
fn with_result<T: Send>(
    run: &Run<'_, T>,
    mut ticket: Ticket<T>,
    result: Result<Hashed, Failure>,
) -> Ticket<T> {
    if let Some(file) = &mut ticket.outcome.task.file {
        file.let_go();
    }
    let known = result.as_ref().ok().filter(|hashed| hashed.is_known());
    let known = known.and_then(|hashed| Some(hashed.stamp?.len)).unwrap_or(0);
    (run.options.progress)(Step::File { known });
    ticket.outcome.result = Some(result);
    ticket
}

/// Tasks are done, and have hashes.
pub(super) fn finish_all<T: Send>(
    run: &Run<'_, T>,
    hashed: impl IntoIterator<Item = (Ticket<T>, Hashed)>,
) {
    let hashed = hashed.into_iter();
    // (All of it is done before anybody else has to wait.)
    let tickets: Vec<_> =
        hashed.map(|(ticket, hashed)| with_result(run, ticket, Ok(hashed))).collect();
    run.finish(tickets);
}

/// Opens the file of a ticket. If that fails, the ticket is done.
pub(super) fn open<T: Send>(
    run: &Run<'_, T>,
    ticket: Ticket<T>,
    direct: bool,
) -> Option<(Ticket<T>, Source)> {
    let Some(file) = &ticket.task().file else { return None };
    let mut tries = 0;
    let opened = loop {
        match if direct { file.open_direct() } else { file.open() } {
            // Others will close theirs.
            Err(failure) if failure.is_scarcity() && tries < SCARCE_MAX && !run.is_starved() => {
                tries += 1;
                thread::sleep(SCARCE);
            }
            opened => break opened,
        }
    };
    match &opened {
        // Who waited so long in vain need not be followed by each file after it.
        Err(failure) if failure.is_scarcity() => run.set_starved(true),
        Ok(_) if run.is_starved() => run.set_starved(false),
        _ => {}
    }
    match opened {
        Ok(source) => Some((ticket, source)),
        Err(failure) => {
            finish(run, ticket, Err(failure));
            None
        }
    }
}

/// The same for a file that was opened: if it changed, its name may say more.
pub(super) fn finish_opened<T: Send>(
    run: &Run<'_, T>,
    ticket: Ticket<T>,
    source: &Source,
    result: Result<Hashed, Failure>,
) {
    let result = result.map_err(|failure| match &ticket.task().file {
        Some(file) => file.named(source, failure),
        None => failure,
    });
    finish(run, ticket, result);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use blockring::Config;

    use super::super::{Found, ManyOptions, found_in, hash_many, look_at};
    use super::*;
    use crate::{Algorithm, Algorithms, Mode, Options, Sum};

    #[test]
    fn what_nobody_wants_any_more_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "content").unwrap();
        let tasks = (0..100).map(|tag| Some(Task { tag, file: look_at(&path).unwrap() }));
        // No device can be read in such blocks: each file is read by itself.
        let config = Config { block_bytes: Some(1), ..Config::default() };
        let read = AtomicU32::new(0);
        let alone = |_: &Task<u32>| {
            read.fetch_add(1, Ordering::Relaxed);
            Err(Failure::Alone(String::new()))
        };
        let hash = Options { config, ..Options::default() };
        let options = ManyOptions::new(&hash, &alone);
        assert_eq!(hash_many(tasks, &options, |_| Err("enough"), None), Err("enough"));
        assert_eq!(read.into_inner(), 1);
    }

    #[test]
    fn digests_that_wait_for_their_turn_are_counted() {
        let mut all = Algorithms::default();
        for algorithm in Algorithm::ALL {
            all.add(algorithm);
        }
        let Found::Each(sums) = found_in(&Mode::Hash, &all, b"") else { panic!("not each") };
        let values = sums.iter().map(|sum| match sum {
            Sum::Blake3(_) => 0,
            Sum::Other(_, bytes) => bytes.len(),
        });
        let bytes = sums.len() * size_of::<Sum>() + values.sum::<usize>();
        let task = Task { tag: (), file: look_at("/dev/null".as_ref()).unwrap() };
        assert!(task.bytes(&all) >= task.bytes(&Algorithms::default()) + bytes);
    }
}
