//! Several threads that start at the same moment, and are measured from there to the end of the last.

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use super::stopwatch::Stopwatch;
use crate::model::case::{Missing, Sample};

/// Runs `work` on a thread for each of `inputs`, all at once. Each thread prepares first; neither that
/// nor dropping what it has prepared is measured. Returns the results in the order of the threads, and a
/// sample of nothing but their time. If a thread cannot be started, panics or returns an error, none of the
/// results counts.
pub(crate) fn together<I: Send, P, R: Send>(
    inputs: impl IntoIterator<Item = I>,
    prepare: impl Fn(I) -> Result<P, Missing> + Sync,
    work: impl Fn(&mut P, Instant) -> Result<R, Missing> + Sync,
) -> Result<(Vec<R>, Sample), Missing> {
    let run = |input, unready: mpsc::Sender<()>, start: mpsc::Receiver<Instant>| {
        let mut prepared = prepare(input)?;
        drop(unready);
        let stopped = || Missing::Failed("another thread could not be started".to_owned());
        let result = work(&mut prepared, start.recv().map_err(|_| stopped())?)?;
        Ok::<_, Missing>((result, Instant::now()))
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
                let number = handles.len() + 1;
                Missing::Unavailable(format!("thread {number} could not be started: {error}"))
            })?);
            starts.push(start);
        }
        drop(unready);
        let _ = all_ready.recv();
        let clock = Stopwatch::start();
        for sender in starts {
            // A thread that has ended is reported below.
            let _ = sender.send(clock.start);
        }
        let (mut results, mut end) = (Vec::new(), clock.start);
        for handle in handles {
            let panicked = |_| Missing::Failed("a thread panicked".to_owned());
            let (result, ended) = handle.join().map_err(panicked)??;
            results.push(result);
            end = end.max(ended);
        }
        Ok((results, clock.sample_of(end - clock.start, 0, 0)))
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
                Ok(number * 10)
            },
            |number, start| {
                assert_eq!(*prepared.lock().unwrap(), 4, "a thread started before all were ready");
                Ok((*number, start))
            },
        );
        let (results, _) = together.unwrap();
        assert!(results.windows(2).all(|pair| pair[0].1 == pair[1].1));
        let numbers: Vec<_> = results.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [0, 10, 20, 30]);
    }

    #[test]
    fn a_thread_that_panics_or_fails_is_an_error_and_no_hang() {
        let panics = |number: u32| {
            assert_ne!(number, 1);
            Ok(())
        };
        let missing = together(0..3, panics, |(), _| Ok(())).unwrap_err();
        assert_eq!(missing.why(), "a thread panicked");
        let fails = |number: u32| match number {
            1 => Err(Missing::Unavailable("no file".to_owned())),
            _ => Ok(()),
        };
        assert_eq!(together(0..3, fails, |(), _| Ok(())).unwrap_err().why(), "no file");
    }

    #[test]
    fn threads_that_wait_end_if_another_is_not_started() {
        let inputs = (0..2).inspect(|number| assert_ne!(*number, 1));
        let work = |(): &mut (), _| -> Result<(), Missing> { panic!("started") };
        let run = panic::AssertUnwindSafe(|| together(inputs, |_| Ok(()), work));
        panic::catch_unwind(run).unwrap_err();
    }
}
