//! Progress on standard error, if it is a terminal: the current case, and the remaining time.

use std::fmt::Write;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// A bar whose length is the estimated time of the run, in milliseconds.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new(is_wanted: bool) -> Progress {
        let bar = match is_wanted {
            // It draws on terminals only.
            true => ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()),
            false => ProgressBar::hidden(),
        };
        // (The crate's own estimate follows the last seconds, in which rounds may have been skipped.)
        let left = |state: &ProgressState, out: &mut dyn Write| {
            if let Some(left) = left(state.elapsed(), state.pos(), state.len().unwrap_or(0)) {
                let _ = write!(out, ", at most {:#} left", HumanDuration(left));
            }
        };
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {msg}{left}") {
            bar.set_style(style.with_key("left", left).progress_chars("=> "));
        }
        Progress { bar }
    }

    /// Starts the clock of a run that is estimated to take this long.
    pub(crate) fn start(&self, estimate_s: f64) {
        self.bar.set_length((estimate_s * 1e3) as u64);
        self.bar.reset_elapsed();
    }

    pub(crate) fn set_message(&self, message: String) {
        self.bar.set_message(message);
        self.bar.tick();
    }

    /// A part of the run is done that was estimated to take this long.
    pub(crate) fn advance(&self, estimate_s: f64) {
        self.bar.inc((estimate_s * 1e3) as u64);
    }

    /// The part of the estimate that is done, in seconds.
    pub(crate) fn done_s(&self) -> f64 {
        self.bar.position() as f64 / 1e3
    }

    /// Sets it, whatever was counted.
    pub(crate) fn set_done_s(&self, estimate_s: f64) {
        self.bar.set_position((estimate_s * 1e3) as u64);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The remaining time, if the rest is as much slower or faster than estimated as the part that is done.
fn left(elapsed: Duration, done: u64, estimate: u64) -> Option<Duration> {
    let rest = estimate.checked_sub(done).filter(|rest| *rest > 0 && done > 0)?;
    Duration::try_from_secs_f64(elapsed.as_secs_f64() / done as f64 * rest as f64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_the_part_that_is_done() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(10), 5, 20), Some(seconds(30)));
        assert_eq!(left(seconds(10), 0, 20), None, "nothing is known yet");
        assert_eq!(left(seconds(10), 20, 20), None);
    }
}
