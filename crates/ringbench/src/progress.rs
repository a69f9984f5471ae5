//! What is being measured, and how long it will still take, on standard error where that is a terminal.

use std::cell::Cell;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(crate) struct Progress {
    bar: ProgressBar,
    start: Cell<Instant>,
    /// As it was estimated before, in seconds: all, and what is done of it.
    expected_s: Cell<f64>,
    done_s: Cell<f64>,
}

/// Steps of the bar.
const STEPS: u64 = 1000;

impl Progress {
    pub(crate) fn new(is_wanted: bool) -> Progress {
        let bar = match is_wanted {
            // On a terminal only.
            true => ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr()),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        let (expected_s, done_s) = (Cell::new(0.0), Cell::new(0.0));
        Progress { bar, start: Cell::new(Instant::now()), expected_s, done_s }
    }

    pub(crate) fn start(&self, expected_s: f64) {
        self.start.set(Instant::now());
        self.expected_s.set(expected_s);
    }

    pub(crate) fn say(&self, what: &str) {
        let left = left(self.start.get().elapsed(), self.done_s.get(), self.expected_s.get());
        let left = left.map_or(String::new(), |left| format!(", {} left at most", show(left)));
        self.bar.set_message(format!("{what}{left}"));
        self.bar.tick();
    }

    /// So much of what was expected is done.
    pub(crate) fn done(&self, expected_s: f64) {
        self.done_s.set(self.done_s.get() + expected_s);
        let part = self.done_s.get() / self.expected_s.get().max(1e-9);
        self.bar.set_position((part.min(1.0) * STEPS as f64) as u64);
    }

    pub(crate) fn done_s(&self) -> f64 {
        self.done_s.get()
    }

    /// So much is done, whatever was counted.
    pub(crate) fn done_up_to(&self, done_s: f64) {
        self.done(done_s - self.done_s.get());
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// How long it will take, if the rest is as much slower or faster than expected as what is done was.
fn left(elapsed: Duration, done_s: f64, expected_s: f64) -> Option<Duration> {
    if done_s <= 0.0 || expected_s <= done_s {
        return None;
    }
    Duration::try_from_secs_f64(elapsed.as_secs_f64() / done_s * (expected_s - done_s)).ok()
}

fn show(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_was_done() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(10), 5.0, 20.0), Some(seconds(30)));
        assert_eq!(left(seconds(10), 0.0, 20.0), None, "nothing is known yet");
        assert_eq!(left(seconds(10), 20.0, 20.0), None);
        assert_eq!((&*show(seconds(99)), &*show(seconds(121))), ("99 s", "3 min"));
    }
}
