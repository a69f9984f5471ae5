//! Several threads that start at the same moment, and are measured from there to the end of the last.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::process;

/// The outcome of several threads.
#[derive(Debug)]
pub(crate) struct Together<R> {
    /// In the order of the threads.
    pub(crate) results: Vec<R>,
    /// From the common start to the end of the last.
    pub(crate) wall: Duration,
    /// Processor time of the whole process meanwhile.
    pub(crate) cpu: Duration,
}

/// Runs `work` on a thread for each of `inputs`, all at once. Each thread prepares first; neither that
/// nor dropping what it has prepared is measured.
///
/// # Errors
///
/// A thread could not be started, or panicked. Then none of the results counts.
pub(crate) fn together<I: Send, P, R: Send>(
    inputs: impl IntoIterator<Item = I>,
    prepare: impl Fn(I) -> P + Sync,
    work: impl Fn(&mut P, Instant) -> R + Sync,
) -> io::Result<Together<R>> {
    let run = |input, unready: mpsc::Sender<()>, start: mpsc::Receiver<Instant>| {
        let mut prepared = prepare(input);
        drop(unready);
        let start = start.recv().ok()?;
        let result = work(&mut prepared, start);
        Some((result, Instant::now()))
    };
    // Nothing is sent: receiving ends when every thread has dropped its sender.
    let (unready, all_ready) = mpsc::channel();
    thread::scope(|scope| {
        let (mut handles, mut starts) = (Vec::new(), Vec::new());
        for input in inputs {
            // (Threads that wait for a start end when its sender is dropped, on any error here.)
            let (run, unready, (start, wait)) = (&run, unready.clone(), mpsc::channel());
            let handle =
                thread::Builder::new().spawn_scoped(scope, move || run(input, unready, wait));
            handles.push(handle.map_err(|error| {
                let why = format!("thread {} could not be started: {error}", handles.len() + 1);
                io::Error::new(error.kind(), why)
            })?);
            starts.push(start);
        }
        drop(unready);
        let _ = all_ready.recv();
        let (start, cpu) = (Instant::now(), process::own_cpu());
        for sender in starts {
            // A thread that panicked is reported below.
            let _ = sender.send(start);
        }
        let (mut results, mut end) = (Vec::new(), start);
        for handle in handles {
            let joined = handle.join().ok().flatten();
            let (result, ended) = joined.ok_or_else(|| io::Error::other("a thread panicked"))?;
            results.push(result);
            end = end.max(ended);
        }
        Ok(Together { results, wall: end - start, cpu: process::own_cpu() - cpu })
    })
}

#[cfg(test)]
mod tests {
    use std::panic;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn all_start_at_one_moment() {
        let prepared = Mutex::new(0);
        let together = together(
            0..4,
            |number| {
                *prepared.lock().unwrap() += 1;
                number * 10
            },
            |number, start| {
                assert_eq!(*prepared.lock().unwrap(), 4, "a thread started before all were ready");
                (*number, start)
            },
        );
        let together = together.unwrap();
        let starts: Vec<_> = together.results.iter().map(|(_, start)| *start).collect();
        assert!(starts.windows(2).all(|pair| pair[0] == pair[1]));
        let numbers: Vec<_> = together.results.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 10, 20, 30]);
    }

    #[test]
    fn a_thread_that_panics_is_an_error_and_no_hang() {
        let prepare = |number: u32| assert_ne!(number, 1);
        let error = together(0..3, prepare, |(), _| ()).unwrap_err();
        assert_eq!(error.to_string(), "a thread panicked");
    }

    #[test]
    fn threads_that_wait_end_if_another_is_not_started() {
        let inputs = (0..2).inspect(|number| assert_ne!(*number, 1));
        let run = panic::AssertUnwindSafe(|| together(inputs, |_| (), |(), _| panic!("started")));
        panic::catch_unwind(run).unwrap_err();
    }
}
