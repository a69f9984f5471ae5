//! A trace of every event in the JSON format of Chrome's trace viewer, which Perfetto also reads:
//! one row per thread, and one per slot.
//!
//! Format: "Trace Event Format", chromium.org; the events `X` (a span), `C` (a counter) and `M`
//! (the name of a row). Times are in microseconds.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock;

/// The destination of a trace. It is shared by its clones, and by all runs that use one of them.
#[derive(Clone)]
pub struct Trace(Arc<TraceOutput>);

struct TraceOutput {
    start: Instant,
    /// Number of rings so far, one per thread of each run: their slots have rows of their own.
    rings: AtomicU32,
    to: Mutex<To>,
}

struct To {
    writer: Box<dyn Write + Send>,
    failed: Option<io::Error>,
}

/// Least size of the pieces in which events are written, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Number of the first row for slots, and of rows per ring; threads have smaller numbers.
const SLOT_ROWS: u64 = 10_000_000;
const SLOT_ROWS_OF_RING: u64 = 100_000;

impl Trace {
    /// Starts a trace to `writer`; [`finish`](Trace::finish) ends it. Every trace begins with `[`,
    /// a newline and `{"pid":`.
    pub fn new(mut writer: impl Write + Send + 'static) -> Trace {
        // Later events begin with a comma, and a trace without any is valid.
        let first = r#""ph":"M","name":"process_name","args":{"name":"blockring"}"#;
        let failed = write!(writer, "[\n{{\"pid\":{},{first}}}", std::process::id()).err();
        let to = To { writer: Box::new(writer), failed };
        let start = Instant::now();
        Trace(Arc::new(TraceOutput { start, rings: AtomicU32::new(0), to: Mutex::new(to) }))
    }

    /// Completes the trace. Later events are dropped.
    ///
    /// # Errors
    ///
    /// The first error of the writer, now or earlier: the trace ends there.
    pub fn finish(&self) -> io::Result<()> {
        let to = &mut *lock(&self.0.to);
        let written = match to.failed.take() {
            Some(error) => Err(error),
            None => to.writer.write_all(b"\n]\n").and_then(|()| to.writer.flush()),
        };
        to.failed = Some(io::ErrorKind::BrokenPipe.into());
        written
    }

    fn write(&self, events: &str) {
        let to = &mut *lock(&self.0.to);
        if to.failed.is_none() {
            to.failed = to.writer.write_all(events.as_bytes()).err();
        }
    }
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace").finish_non_exhaustive()
    }
}

/// Buffered events of one thread. Dropping it writes the rest.
pub(crate) struct Events {
    trace: Trace,
    thread: u64,
    ring: u64,
    /// Number of slots whose rows have a name.
    named: u32,
    /// Events, each after a comma and a newline.
    text: String,
}

impl Events {
    /// `what`: the name of this thread's row.
    pub(crate) fn new(trace: &Trace, what: &str) -> Events {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u64;
        let ring = trace.0.rings.fetch_add(1, Ordering::Relaxed).into();
        let trace = trace.clone();
        let mut events = Events { trace, thread, ring, named: 0, text: String::new() };
        events.name_row(thread, what);
        events
    }

    /// Records a span of this thread.
    pub(crate) fn span(&mut self, what: &str, start: Instant, time: Duration) {
        let (start, row) = (self.micros(start), self.thread);
        let time = time.as_nanos() as f64 / 1e3;
        self.event(format_args!(
            r#""ph":"X","name":{},"ts":{start:.3},"dur":{time:.3},"tid":{row}"#,
            Quoted(what)
        ));
    }

    /// Records a span of the block at `offset` in its slot.
    pub(crate) fn slot_span(&mut self, what: &str, slot: u32, offset: u64, from: Instant) {
        let row = SLOT_ROWS + self.ring * SLOT_ROWS_OF_RING + u64::from(slot);
        while self.named <= slot {
            let row = SLOT_ROWS + self.ring * SLOT_ROWS_OF_RING + u64::from(self.named);
            let name = format!("slot {} of thread {}", self.named, self.thread);
            self.name_row(row, &name);
            self.named += 1;
        }
        let start = self.micros(from);
        let time = from.elapsed().as_nanos() as f64 / 1e3;
        self.event(format_args!(
            r#""ph":"X","name":"{what}","ts":{start:.3},"dur":{time:.3},"tid":{row},"args":{{"offset":{offset}}}"#
        ));
    }

    /// Records how many requests are in flight from now on.
    pub(crate) fn in_flight(&mut self, requests: u32) {
        let (now, row) = (self.micros(Instant::now()), self.thread);
        self.event(format_args!(
            r#""ph":"C","name":"in flight of thread {row}","ts":{now:.3},"tid":{row},"args":{{"requests":{requests}}}"#
        ));
    }

    fn name_row(&mut self, row: u64, name: &str) {
        self.event(format_args!(
            r#""ph":"M","name":"thread_name","tid":{row},"args":{{"name":{}}}"#,
            Quoted(name)
        ));
    }

    fn micros(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.trace.0.start).as_nanos() as f64 / 1e3
    }

    fn event(&mut self, fields: std::fmt::Arguments<'_>) {
        let pid = std::process::id();
        // Writing to a string does not fail.
        let _ = write!(self.text, ",\n{{\"pid\":{pid},{fields}}}");
        if self.text.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    fn flush(&mut self) {
        self.trace.write(&self.text);
        self.text.clear();
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Displays a string as a JSON string.
struct Quoted<'a>(&'a str);

impl std::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
