//! The progress bar on a terminal, for runs that take more than a moment.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, ProgressBar as Bar, ProgressDrawTarget, ProgressStyle};

use super::harmless;
use crate::cli::args::values::When;
use crate::cli::lock;

/// Time between two updates: users cannot read faster.
const UPDATE_EVERY: Duration = Duration::from_millis(100);

/// The speed is the average over this time: shorter, it follows single reads; longer, it lags behind
/// a pipe that changes its speed.
const SPEED_OVER: Duration = Duration::from_secs(5);

/// Columns of a terminal that does not report its size.
const COLUMNS: usize = 80;

/// Columns of the bar itself; less if the terminal is narrow.
const BAR_COLUMNS: usize = 30;

/// Bytes hashed so far, and the bar that shows them.
pub(crate) struct ProgressBar {
    /// When the bar appears; `None` for never.
    from: Option<Instant>,
    started: Instant,
    /// When it is updated next, in milliseconds after the start.
    next_ms: AtomicU64,
    bytes: AtomicU64,
    speed: Mutex<Speed>,
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
        let is_terminal = || rustix::termios::isatty(rustix::stdio::stderr());
        let after = match when {
            When::Never => None,
            When::Auto => is_terminal().then_some(Duration::from_secs(1)),
            When::Always => is_terminal().then_some(Duration::ZERO),
        };
        ProgressBar::after(after)
    }

    fn after(after: Option<Duration>) -> ProgressBar {
        let started = Instant::now();
        ProgressBar {
            from: after.map(|after| started + after),
            started,
            next_ms: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            speed: Mutex::default(),
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
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let elapsed = now.saturating_duration_since(self.started);
        let elapsed_ms = elapsed.as_millis() as u64;
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        let after_ms = elapsed_ms + UPDATE_EVERY.as_millis() as u64;
        // (One thread draws; the others go on.)
        if elapsed_ms < next_ms
            || self
                .next_ms
                .compare_exchange(next_ms, after_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let speed = lock(&self.speed).sample(elapsed, self.bytes.load(Ordering::Relaxed));
        if now >= from {
            let line = self.line(elapsed, speed, columns());
            self.bar.get_or_init(new_bar).set_message(line);
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

    /// Returns what is shown, in fewer than `columns` columns: at the last one, some terminals
    /// begin a new line. `speed`: in bytes per second.
    fn line(&self, elapsed: Duration, speed: f64, columns: usize) -> String {
        let most = columns.saturating_sub(1);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let (done, per_second) = (HumanBytes(bytes), HumanBytes(speed as u64));
        let line = if self.is_of_files.load(Ordering::Relaxed) {
            let finished = self.finished.load(Ordering::Relaxed);
            let found = self.found.load(Ordering::Relaxed).max(finished);
            let more = if self.is_complete.load(Ordering::Relaxed) { "" } else { "+" };
            let elapsed = short(elapsed);
            let line =
                format!("{done}, {per_second}/s, {elapsed}; {finished} of {found}{more} files: ");
            let current = lock(&self.current);
            let name = String::from_utf8_lossy(&harmless(&current)).into_owned();
            let name = end_of(&name, most.saturating_sub(line.len()));
            line + &name
        } else if let Some(&total) = self.total.get() {
            let left = total.saturating_sub(bytes) as f64 / speed;
            let left = Duration::try_from_secs_f64(left).map_or("?".to_owned(), short);
            let (start, end) = (
                format!("{done} of {} ", HumanBytes(total)),
                format!(" {per_second}/s, {left} left"),
            );
            let bar = most.saturating_sub(start.len() + end.len() + 2).min(BAR_COLUMNS);
            let part = bytes.min(total) as f64 / total.max(1) as f64;
            let full = (part * bar as f64) as usize;
            let head = if full < bar { ">" } else { "" };
            format!("{start}[{:bar$}]{end}", "=".repeat(full) + head)
        } else {
            format!("{done}, {per_second}/s, {}", short(elapsed))
        };
        // (Only a terminal of some 40 columns cuts it: all of it but the name is ASCII.)
        line.chars().take(most).collect()
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

fn new_bar() -> Bar {
    let style = ProgressStyle::with_template("{msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    Bar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(20)).with_style(style)
}

/// Returns the width of the terminal.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
    size.map_or(0, |size| usize::from(size.ws_col)).checked_sub(1).map_or(COLUMNS, |n| n + 1)
}

/// Returns the end of a name in at most `columns` columns, counting two for each character that
/// may be wide.
fn end_of(name: &str, columns: usize) -> String {
    let width = |c: char| if c.is_ascii() { 1 } else { 2 };
    if name.chars().map(width).sum::<usize>() <= columns {
        return name.to_owned();
    }
    let mut left = columns.saturating_sub("...".len());
    let fits = |(_, c): &(usize, char)| {
        let rest = left.checked_sub(width(*c));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let start = name.char_indices().rev().take_while(fits).last();
    start.map_or(String::new(), |(at, _)| format!("...{}", &name[at..]))
}

/// `7s`, `2m05s`, `3h00m`
fn short(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s => format!("{}h{:02}m", s / 3600, s / 60 % 60),
    }
}

/// The average speed over the last seconds.
#[derive(Default)]
struct Speed {
    /// Times since the start, and the bytes hashed until then.
    samples: VecDeque<(Duration, u64)>,
}

impl Speed {
    /// Adds a sample, and returns the speed in bytes per second.
    fn sample(&mut self, elapsed: Duration, bytes: u64) -> f64 {
        self.samples.push_back((elapsed, bytes));
        let start = elapsed.saturating_sub(SPEED_OVER);
        // (The first one kept is at least as old as the time that counts.)
        while self.samples.get(1).is_some_and(|(at, _)| *at <= start) {
            self.samples.pop_front();
        }
        // At first, since the start, when nothing was hashed.
        let (from, before) = match self.samples.front() {
            Some(first) if first.0 <= start => *first,
            _ => (Duration::ZERO, 0),
        };
        let time = elapsed.saturating_sub(from).as_secs_f64();
        if time > 0.0 { bytes.saturating_sub(before) as f64 / time } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Samples of a pipe with these speeds in MiB/s, one for each second, ten samples a second.
    fn speeds(per_second: &[u64]) -> Vec<u64> {
        let (mut speed, mut shown, mut bytes) = (Speed::default(), Vec::new(), 0);
        for i in 0..per_second.len() as u64 * 10 {
            bytes += per_second[i as usize / 10] * MIB / 10;
            let now = speed.sample(UPDATE_EVERY * (i as u32 + 1), bytes);
            shown.push((now / MIB as f64).round() as u64);
        }
        shown
    }

    #[test]
    fn a_steady_speed_is_shown_from_the_first_update_on() {
        assert_eq!(speeds(&[46; 20]), [46; 200]);
    }

    #[test]
    fn the_speed_is_that_of_the_last_seconds() {
        let shown = speeds(&[500, 100, 100, 100, 100, 100, 100, 100]);
        assert_eq!((shown[9], shown[19]), (500, 300));
        assert_eq!(shown[60..], [100; 20]);
        // A pause counts.
        let shown = speeds(&[100, 100, 100, 100, 100, 0, 0, 0, 0, 0, 0]);
        assert_eq!((shown[74], shown[109]), (50, 0));
        let mut late = Speed::default();
        assert_eq!(late.sample(Duration::from_secs(60), 60 * MIB), MIB as f64);
    }

    #[test]
    fn the_line_is_narrower_than_the_terminal() {
        let of_files = ProgressBar::after(Some(Duration::ZERO));
        of_files.expect_files();
        (0..3400).for_each(|_| of_files.add_found());
        of_files.finished.store(1200, Ordering::Relaxed);
        of_files.bytes.store(3 << 30, Ordering::Relaxed);
        of_files.show("some/long/directory/with/größe/日本/and/a/name/at/its/end.txt".as_bytes());
        let of_bytes = ProgressBar::after(Some(Duration::ZERO));
        of_bytes.expect(|| Some(4 << 30));
        of_bytes.bytes.store(3 << 30, Ordering::Relaxed);
        let of_a_pipe = ProgressBar::after(Some(Duration::ZERO));
        let time = Duration::from_secs(130);
        for columns in [0, 1, 20, 40, 60, 80, 120, 400] {
            for bar in [&of_files, &of_bytes, &of_a_pipe] {
                let line = bar.line(time, 46.5 * MIB as f64, columns);
                let width: usize = line.chars().map(|c| if c.is_ascii() { 1 } else { 2 }).sum();
                assert!(width < columns.max(1), "{columns}: {line}");
            }
        }
        let line = |bar: &ProgressBar, columns| bar.line(time, 46.5 * MIB as f64, columns);
        let expected = "3.00 GiB, 46.50 MiB/s, 2m10s; 1200 of 3400+ files: ...name/at/its/end.txt";
        assert!(line(&of_files, 80).starts_with(&expected[..50]), "{}", line(&of_files, 80));
        assert!(line(&of_files, 80).ends_with("at/its/end.txt"), "{}", line(&of_files, 80));
        assert!(line(&of_files, 400).contains("files: some/long/directory"));
        let expected =
            "3.00 GiB of 4.00 GiB [======================>       ] 46.50 MiB/s, 22s left";
        assert_eq!(line(&of_bytes, 80), expected);
        assert_eq!(line(&of_a_pipe, 80), "0 B, 46.50 MiB/s, 2m10s");
        // A speed of 0 leaves the time unknown.
        assert!(of_bytes.line(time, 0.0, 80).ends_with(" 0 B/s, ? left"));
    }
}
