//! Several threads that begin at one moment, and are measured from there to the end of the last.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::process;

/// What several threads did.
#[derive(Debug)]
pub(crate) struct Together<R> {
    /// In the order of the threads.
    pub(crate) results: Vec<R>,
    /// From the common start to the end of the last.
    pub(crate) wall: Duration,
    /// Of the whole process meanwhile.
    pub(crate) cpu: Duration,
}

/// Where threads wait for each other.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ready: usize,
    opened: Opened,
}

#[derive(Debug, Clone, Copy, Default)]
enum Opened {
    #[default]
    NotYet,
    At(Instant),
    /// Not all of them could be had.
    Never,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a thread: waits until all have come. `None`: they will not.
    fn wait(&self) -> Option<Instant> {
        let mut state = self.lock();
        state.ready += 1;
        self.changed.notify_all();
        loop {
            match state.opened {
                Opened::NotYet => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Opened::At(start) => return Some(start),
                Opened::Never => return None,
            }
        }
    }

    /// Waits for so many, and lets them go.
    fn open(&self, threads: usize) -> Instant {
        let mut state = self.lock();
        while state.ready < threads {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let now = Instant::now();
        state.opened = Opened::At(now);
        self.changed.notify_all();
        now
    }

    fn cancel(&self) {
        self.lock().opened = Opened::Never;
        self.changed.notify_all();
    }
}

/// Runs `work` on so many threads at once. Each prepares first, which is not measured, nor is the end of
/// what it has prepared; both are given the number of the thread.
///
/// # Errors
///
/// A thread is refused, or panicked. Then nothing of it counts.
pub(crate) fn together<P, R: Send>(
    threads: usize,
    prepare: impl Fn(usize) -> P + Sync,
    work: impl Fn(usize, &mut P, Instant) -> R + Sync,
) -> io::Result<Together<R>> {
    let gate = Gate::default();
    let run = |number| {
        let mut prepared = prepare(number);
        let start = gate.wait()?;
        let result = work(number, &mut prepared, start);
        Some((result, Instant::now()))
    };
    thread::scope(|scope| {
        let mut handles = Vec::new();
        for number in 0..threads {
            let run = &run;
            match thread::Builder::new().spawn_scoped(scope, move || run(number)) {
                Ok(handle) => handles.push(handle),
                Err(error) => {
                    gate.cancel();
                    let why = format!("thread {} of {threads} is refused: {error}", number + 1);
                    return Err(io::Error::new(error.kind(), why));
                }
            }
        }
        let start = gate.open(threads);
        let cpu = process::own_cpu();
        let (mut results, mut end) = (Vec::new(), start);
        for handle in handles {
            let (result, ended) = handle
                .join()
                .ok()
                .flatten()
                .ok_or_else(|| io::Error::other("a thread panicked"))?;
            results.push(result);
            end = end.max(ended);
        }
        Ok(Together { results, wall: end - start, cpu: process::own_cpu() - cpu })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_begin_at_one_moment() {
        let prepared = Mutex::new(0);
        let together = together(
            4,
            |number| {
                *prepared.lock().unwrap() += 1;
                number * 10
            },
            |number, prepared_as, start| {
                assert_eq!(*prepared.lock().unwrap(), 4, "nobody begins before all are ready");
                (number, *prepared_as, start)
            },
        );
        let together = together.unwrap();
        let starts: Vec<_> = together.results.iter().map(|(.., start)| *start).collect();
        assert!(starts.windows(2).all(|pair| pair[0] == pair[1]));
        let numbers: Vec<_> = together.results.iter().map(|(i, p, _)| (*i, *p)).collect();
        assert_eq!(numbers, [(0, 0), (1, 10), (2, 20), (3, 30)]);
    }

    #[test]
    fn threads_that_wait_in_vain_are_let_go() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.wait());
            gate.cancel();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }
}
