//! Progress on standard error, if it is a terminal: the current case, and the remaining time.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar whose length is the estimated time of the run, in milliseconds.
pub(super) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new(is_wanted: bool) -> Progress {
        let bar = match is_wanted {
            // It draws on terminals only.
            true => ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {msg}, at most {eta} left") {
            bar.set_style(style.progress_chars("=> "));
        }
        Progress { bar }
    }

    /// Starts the clock of a run that is estimated to take this long.
    pub(super) fn start(&self, estimate_s: f64) {
        self.bar.set_length((estimate_s * 1e3) as u64);
        self.bar.reset_elapsed();
    }

    pub(super) fn set_message(&self, message: String) {
        self.bar.set_message(message);
        self.bar.tick();
    }

    /// The part of the estimate that is done, in seconds.
    pub(super) fn done_s(&self) -> f64 {
        self.bar.position() as f64 / 1e3
    }

    pub(super) fn set_done_s(&self, estimate_s: f64) {
        self.bar.set_position((estimate_s * 1e3) as u64);
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
