//! A progress bar on the terminal for work that takes its time; nothing anywhere else.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::When;

/// Bytes hashed so far, and the bar that shows them.
pub(crate) struct Progress {
    /// When the bar appears; `None`: never.
    from: Option<Instant>,
    started: Instant,
    done: AtomicU64,
    total: Option<u64>,
    bar: OnceLock<ProgressBar>,
}

impl Progress {
    /// A bar is for a terminal only: into a pipe or a file goes nothing, whatever `when` says.
    pub(crate) fn new(when: When) -> Progress {
        let started = Instant::now();
        let is_terminal = || rustix::termios::isatty(rustix::stdio::stderr());
        let from = match when {
            When::Never => None,
            When::Auto => is_terminal().then(|| started + Duration::from_secs(1)),
            When::Always => is_terminal().then_some(started),
        };
        Progress { from, started, done: AtomicU64::new(0), total: None, bar: OnceLock::new() }
    }

    /// Says how many bytes there are to do, if that is known. Not asked for without a bar.
    pub(crate) fn expect(&mut self, total: impl FnOnce() -> Option<u64>) {
        if self.from.is_some() {
            self.total = total();
        }
    }

    /// Counts bytes that are done; from any thread.
    pub(crate) fn add(&self, bytes: u64) {
        let Some(from) = self.from else { return };
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if Instant::now() >= from {
            self.bar.get_or_init(|| self.draw()).set_position(done);
        }
    }

    fn draw(&self) -> ProgressBar {
        let template = match self.total {
            Some(_) => "{bytes} of {total_bytes} [{bar:30}] {bytes_per_sec}, {eta} left",
            None => "{bytes}, {bytes_per_sec}, for {elapsed}",
        };
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // At most 10 times a second: what is drawn more often nobody reads.
        ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr_with_hz(10))
            .with_elapsed(self.started.elapsed())
            .with_style(style.progress_chars("=> "))
    }

    /// Prints something without the bar in the way.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match self.bar.get() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
