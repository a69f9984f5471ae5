//! A progress bar on the terminal for work that takes its time; nothing anywhere else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::harmless;
use crate::values::When;

/// Longest name that is shown, in bytes.
const NAME_BYTES_MAX: usize = 60;

/// Bytes hashed so far, and the bar that shows them.
pub(crate) struct Progress {
    /// When the bar appears; `None`: never.
    from: Option<Instant>,
    started: Instant,
    done: AtomicU64,
    total: OnceLock<u64>,
    /// Of many files: how many are done, how many there are, and which was the last.
    files: AtomicU64,
    ahead: OnceLock<Arc<Ahead>>,
    current: Mutex<Vec<u8>>,
    bar: OnceLock<ProgressBar>,
}

/// What was found by counting ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    files: AtomicU64,
    bytes: AtomicU64,
    is_complete: AtomicBool,
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
        Progress {
            from,
            started,
            done: AtomicU64::new(0),
            total: OnceLock::new(),
            files: AtomicU64::new(0),
            ahead: OnceLock::new(),
            current: Mutex::default(),
            bar: OnceLock::new(),
        }
    }

    /// Says how many bytes there are to do, if that is known. Not asked for without a bar.
    pub(crate) fn expect(&self, total: impl FnOnce() -> Option<u64>) {
        if self.from.is_some()
            && let Some(total) = total()
        {
            let _ = self.total.set(total);
        }
    }

    /// Counts bytes that are done; from any thread.
    pub(crate) fn add(&self, bytes: u64) {
        let Some(from) = self.from else { return };
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if Instant::now() >= from {
            let bar = self.bar.get_or_init(|| self.draw());
            bar.set_position(done);
            if let Some(ahead) = self.ahead.get() {
                bar.set_length(ahead.bytes.load(Ordering::Relaxed).max(done));
                bar.set_message(self.message(ahead));
            }
        }
    }

    /// Lets `count` count what there is to do, unless no bar will ever be there: on a thread of its own, when
    /// it is time for the bar.
    pub(crate) fn count_ahead(&self, count: impl FnOnce(&Ahead) + Send + 'static) {
        let Some(from) = self.from else { return };
        let ahead = Arc::new(Ahead::default());
        let _ = self.ahead.set(Arc::clone(&ahead));
        let count = move || {
            thread::sleep(from.saturating_duration_since(Instant::now()));
            count(&ahead);
            ahead.is_complete.store(true, Ordering::Relaxed);
        };
        // Without it there is less to see.
        let _ = thread::Builder::new().name("counting".to_owned()).spawn(count);
    }

    /// Counts a file that is done, of so many bytes that did not have to be hashed.
    pub(crate) fn add_file(&self, known: u64) {
        if self.from.is_some() {
            self.files.fetch_add(1, Ordering::Relaxed);
            self.add(known);
        }
    }

    /// Takes down which file was last told of.
    pub(crate) fn show(&self, name: &[u8]) {
        if self.from.is_some() {
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.clear();
            current.extend(name);
        }
    }

    /// What there is to say of many files.
    fn message(&self, ahead: &Ahead) -> String {
        let done = self.files.load(Ordering::Relaxed);
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let name = String::from_utf8_lossy(&harmless(&current)).into_owned();
        let cut = name.char_indices().rev().nth(NAME_BYTES_MAX).map_or(0, |(at, _)| at);
        let name = &name[cut..];
        match (ahead.files.load(Ordering::Relaxed), ahead.is_complete.load(Ordering::Relaxed)) {
            (0, _) => format!("{done} files: {name}"),
            (files, true) => format!("{done} of {files} files: {name}"),
            (files, false) => format!("{done} of {files} files, and more: {name}"),
        }
    }

    fn draw(&self) -> ProgressBar {
        let template = match (self.total.get(), self.ahead.get()) {
            (_, Some(_)) => {
                "{bytes} of {total_bytes} [{bar:20}] {bytes_per_sec}, {eta} left; {wide_msg}"
            }
            (Some(_), _) => "{bytes} of {total_bytes} [{bar:30}] {bytes_per_sec}, {eta} left",
            (None, _) => "{bytes}, {bytes_per_sec}, for {elapsed}",
        };
        let style = ProgressStyle::with_template(template);
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        // At most 10 times a second: what is drawn more often nobody reads.
        ProgressBar::with_draw_target(
            self.total.get().copied(),
            ProgressDrawTarget::stderr_with_hz(10),
        )
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

impl Ahead {
    /// Counts a file of so many bytes.
    pub(crate) fn add(&self, bytes: u64) {
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
