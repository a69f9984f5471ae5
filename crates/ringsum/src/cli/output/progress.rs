//! The progress bar on a terminal, for runs that take more than a moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar as Bar, ProgressDrawTarget, ProgressStyle};

use super::harmless;
use crate::cli::args::values::When;
use crate::cli::lock;

/// Longest name that is shown, in bytes.
const NAME_BYTES_MAX: usize = 60;

/// Bytes hashed so far, and the bar that shows them.
pub(crate) struct ProgressBar {
    /// When the bar appears; `None` for never.
    from: Option<Instant>,
    started: Instant,
    bytes: AtomicU64,
    /// Number of bytes to hash, for one or a few inputs.
    total: OnceLock<u64>,
    /// For many files: the number of finished ones, and of those found so far.
    finished: AtomicU64,
    found: AtomicU64,
    /// Whether all files have been found.
    is_complete: AtomicBool,
    is_of_files: AtomicBool,
    /// The name of the file that was reported last.
    current: Mutex<Vec<u8>>,
    bar: OnceLock<Bar>,
}

impl ProgressBar {
    /// Creates the bar. Progress is never written to a pipe or a file, whatever `when` is.
    pub(crate) fn new(when: When) -> ProgressBar {
        let started = Instant::now();
        let is_terminal = || rustix::termios::isatty(rustix::stdio::stderr());
        let from = match when {
            When::Never => None,
            When::Auto => is_terminal().then(|| started + Duration::from_secs(1)),
            When::Always => is_terminal().then_some(started),
        };
        ProgressBar {
            from,
            started,
            bytes: AtomicU64::new(0),
            total: OnceLock::new(),
            finished: AtomicU64::new(0),
            found: AtomicU64::new(0),
            is_complete: AtomicBool::new(false),
            is_of_files: AtomicBool::new(false),
            current: Mutex::default(),
            bar: OnceLock::new(),
        }
    }

    /// Sets the number of bytes to hash, if known. `total` is only called if there will be a bar.
    pub(crate) fn expect(&self, total: impl FnOnce() -> Option<u64>) {
        if self.from.is_some()
            && let Some(total) = total()
        {
            let _ = self.total.set(total);
        }
    }

    /// Shows files instead of bytes to hash.
    pub(crate) fn expect_files(&self) {
        self.is_of_files.store(true, Ordering::Relaxed);
    }

    /// Counts a file found by a walk or in a list.
    pub(crate) fn add_found(&self) {
        self.found.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that all files have been found.
    pub(crate) fn set_complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }

    /// Counts hashed bytes. Callable from any thread.
    pub(crate) fn add(&self, bytes: u64) {
        let Some(from) = self.from else { return };
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if Instant::now() < from {
            return;
        }
        let bar = self.bar.get_or_init(|| self.draw());
        bar.set_position(bytes);
        if self.is_of_files.load(Ordering::Relaxed) {
            bar.set_message(self.message());
        }
    }

    /// Counts a finished file, with the number of its bytes that were cached.
    pub(crate) fn add_file(&self, cached_bytes: u64) {
        if self.from.is_some() {
            self.finished.fetch_add(1, Ordering::Relaxed);
            self.add(cached_bytes);
        }
    }

    /// Sets the name of the file that was reported last.
    pub(crate) fn show(&self, name: &[u8]) {
        if self.from.is_some() {
            let mut current = lock(&self.current);
            current.clear();
            current.extend(name);
        }
    }

    /// `1200 of 3400 files: NAME`
    fn message(&self) -> String {
        let current = lock(&self.current);
        let name = String::from_utf8_lossy(&harmless(&current)).into_owned();
        let cut = name.char_indices().rev().nth(NAME_BYTES_MAX).map_or(0, |(at, _)| at);
        let finished = self.finished.load(Ordering::Relaxed);
        let found = self.found.load(Ordering::Relaxed).max(finished);
        let more = if self.is_complete.load(Ordering::Relaxed) { "" } else { "+" };
        format!("{finished} of {found}{more} files: {}", &name[cut..])
    }

    fn draw(&self) -> Bar {
        let template = match (self.is_of_files.load(Ordering::Relaxed), self.total.get()) {
            (true, _) => "{bytes}, {bytes_per_sec}, {elapsed}; {wide_msg}",
            (false, Some(_)) => "{bytes} of {total_bytes} [{bar:30}] {bytes_per_sec}, {eta} left",
            (false, None) => "{bytes}, {bytes_per_sec}, {elapsed}",
        };
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // Users cannot read faster than ten updates a second.
        Bar::with_draw_target(self.total.get().copied(), ProgressDrawTarget::stderr_with_hz(10))
            .with_elapsed(self.started.elapsed())
            .with_style(style.progress_chars("=> "))
    }

    /// Prints something else with the bar hidden.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match self.bar.get() {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
