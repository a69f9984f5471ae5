//! Standard output and standard error: whole lines, names that cannot control a terminal, and write
//! errors that are reported.

pub(crate) mod json;
pub(crate) mod progress;
pub(crate) mod statistics;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use ringsum::checkfile;
use ringsum::files::walk::Entry;
use rustix::event::{PollFd, PollFlags, poll};

use super::args::applet::Applet;
use super::args::values::{StatsFormat, When};
use super::lock;
use super::own_file::OwnFile;
use super::standard_streams;

const STDOUT: &str = "standard output";

/// Why output could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("{0} is closed")]
    Closed(String),
    #[error("{0}: {1}")]
    Write(String, io::Error),
}

impl OutputError {
    /// Whether the reader of standard output has closed it, which is usually not an error.
    pub(crate) fn reader_left(&self) -> bool {
        matches!(self, OutputError::Write(to, error) if to == STDOUT && error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// Lines are buffered up to this many bytes, and for this long, because a program that reads them
/// may need them before the run ends.
const BUFFERED_BYTES: usize = 32 << 10;
const BUFFERED_TIME: Duration = Duration::from_millis(100);

/// Where checksums are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum To<'a> {
    Stdout,
    Stderr,
    File(&'a Path),
}

/// What a word means, for its color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Color {
    Good,
    Bad,
}

impl Color {
    /// Returns a text in bold green or bold red (ECMA-48, "Select Graphic Rendition").
    fn paint(self, text: &[u8]) -> Vec<u8> {
        let start: &[u8] = match self {
            Color::Good => b"\x1b[1;32m",
            Color::Bad => b"\x1b[1;31m",
        };
        [start, text, b"\x1b[0m"].concat()
    }
}

/// Whether to use color: as requested, or on a terminal unless `NO_COLOR` is set and not empty
/// (<https://no-color.org>).
fn uses_color(when: When, is_terminal: bool) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty()),
    }
}

/// The destination of checksums: usually standard output.
pub(crate) struct Output {
    /// `None`: standard output.
    file: Option<File>,
    /// Identity of the file that is written to, if it is a regular file.
    own: OnceLock<Option<OwnFile>>,
    name: String,
    is_terminal: bool,
    buffer: Mutex<Buffer>,
}

/// Lines that have not been written yet.
#[derive(Default)]
struct Buffer {
    /// Time of the last write; `None` if lines are not buffered.
    since: Option<Instant>,
    lines: Vec<u8>,
    /// A failure that the next write returns.
    failed: Option<io::Error>,
}

impl Output {
    /// Fails if standard output is closed, or the file cannot be created.
    pub(crate) fn new(to: To<'_>) -> Result<Output, OutputError> {
        let (name, is_closed) = match to {
            To::Stdout => (STDOUT.to_owned(), standard_streams::was_closed(libc::STDOUT_FILENO)),
            To::Stderr => {
                ("standard error".to_owned(), standard_streams::was_closed(libc::STDERR_FILENO))
            }
            To::File(path) => (path.display().to_string(), false),
        };
        if is_closed {
            return Err(OutputError::Closed(name));
        }
        let file = match to {
            To::Stdout => Ok(None),
            To::Stderr => rustix::stdio::stderr().try_clone_to_owned().map(|fd| Some(fd.into())),
            To::File(path) => File::create(path).map(Some),
        };
        let file = file.map_err(|error| OutputError::Write(name.clone(), error))?;
        let fd = file.as_ref().map_or(rustix::stdio::stdout(), AsFd::as_fd);
        let is_terminal = rustix::termios::isatty(fd);
        Ok(Output { file, own: OnceLock::new(), name, is_terminal, buffer: Mutex::default() })
    }

    /// Whether an entry of a tree is the output file.
    pub(crate) fn is_own(&self, entry: &Entry) -> bool {
        let own = self.own.get_or_init(|| OwnFile::of(self.fd()));
        own.as_ref().is_some_and(|own| own.is(entry))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_ref().map_or(rustix::stdio::stdout(), AsFd::as_fd)
    }

    /// Buffers lines until [`flush`](Output::flush), except on a terminal.
    pub(crate) fn start_buffering(&self) {
        if !self.is_terminal {
            let mut buffer = lock(&self.buffer);
            buffer.since = Some(Instant::now());
            // (Room for unusually long lines; even longer ones grow it.)
            buffer.lines.reserve(2 * BUFFERED_BYTES);
        }
    }

    /// Writes bytes unchanged.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), OutputError> {
        self.write_parts(&[bytes])
    }

    /// Writes several parts unchanged, without other output between them.
    pub(crate) fn write_parts(&self, parts: &[&[u8]]) -> Result<(), OutputError> {
        let mut buffer = lock(&self.buffer);
        parts.iter().for_each(|part| buffer.lines.extend_from_slice(part));
        let Some(since) = buffer.since else {
            return self.write_out(&mut buffer);
        };
        if buffer.lines.len() >= BUFFERED_BYTES || since.elapsed() >= BUFFERED_TIME {
            return self.write_out(&mut buffer);
        }
        Ok(())
    }

    /// Writes buffered lines that are at least 100 ms old.
    pub(crate) fn flush_old(&self) -> Result<(), OutputError> {
        let mut buffer = lock(&self.buffer);
        match buffer.since {
            Some(since) if since.elapsed() >= BUFFERED_TIME && !buffer.lines.is_empty() => {
                self.write_out(&mut buffer)
            }
            _ => Ok(()),
        }
    }

    /// Writes buffered lines before a message, so that both are in order if they go to one file.
    /// An error is returned by the next write.
    pub(crate) fn flush_before_message(&self) {
        let mut buffer = lock(&self.buffer);
        if !buffer.lines.is_empty()
            && let Err(OutputError::Write(_, error)) = self.write_out(&mut buffer)
        {
            buffer.failed = Some(error);
        }
    }

    /// Writes buffered lines.
    pub(crate) fn flush(&self) -> Result<(), OutputError> {
        self.write_out(&mut lock(&self.buffer))
    }

    /// Writes buffered lines without allocating, unless another thread holds the buffer for longer
    /// than `patience`.
    pub(crate) fn flush_without_memory(&self, patience: Duration) {
        let step = patience / 50;
        for _ in 0..50 {
            if let Ok(mut buffer) = self.buffer.try_lock() {
                let _ = write_all(self.fd(), &buffer.lines);
                buffer.lines.clear();
                return;
            }
            std::thread::sleep(step);
        }
    }

    fn write_out(&self, buffer: &mut Buffer) -> Result<(), OutputError> {
        buffer.since = buffer.since.map(|_| Instant::now());
        let written = match buffer.failed.take() {
            Some(error) => Err(error),
            None => write_all(self.fd(), &buffer.lines),
        };
        // (Not retried: the run ends with the error.)
        buffer.lines.clear();
        written.map_err(|error| OutputError::Write(self.name.clone(), error))
    }

    /// Returns a verdict as written here: in color, if that is used.
    pub(crate) fn verdict<'a>(&self, when: When, color: Color, text: &'a [u8]) -> Cow<'a, [u8]> {
        let text = self.name(text);
        if uses_color(when, self.is_terminal) { color.paint(&text).into() } else { text }
    }

    /// Returns a name as written here: escaped by [`harmless`] on a terminal.
    pub(crate) fn name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_terminal { harmless(name) } else { Cow::Borrowed(name) }
    }
}

/// Standard error: one line per message, starting with the name of the program.
pub(crate) struct Messages {
    program: Vec<u8>,
    /// Set once the command line is parsed.
    color: OnceLock<When>,
    is_terminal: bool,
    /// Whether it was invoked as another tool; those omit the numbers of errors.
    is_applet: bool,
}

impl Messages {
    /// `program`: the name by which the command was invoked. GNU tools print all of it, other tools
    /// without its directory.
    pub(crate) fn new(program: &OsStr) -> Messages {
        let path = program.as_bytes();
        let applet = Applet::of(program);
        let name = match applet {
            Some(applet) if !applet.is_xxhsum => path,
            _ => path.rsplit(|&byte| byte == b'/').next().unwrap_or_default(),
        };
        Messages {
            program: if name.is_empty() { b"ringsum".to_vec() } else { name.to_vec() },
            color: OnceLock::new(),
            is_terminal: rustix::termios::isatty(rustix::stdio::stderr()),
            is_applet: applet.is_some(),
        }
    }

    /// Sets when errors are printed in color.
    pub(crate) fn set_color(&self, when: When) {
        let _ = self.color.set(when);
    }

    /// Prints `PROGRAM: TEXT` on one line: a text may contain a path, and a path anything.
    pub(crate) fn say(&self, text: &dyn std::fmt::Display) {
        self.line(Some(Color::Bad), &[one_line(text).as_bytes()]);
    }

    /// Prints `PROGRAM: NAME: TEXT` on one line.
    pub(crate) fn say_of(&self, name: &[u8], text: &dyn std::fmt::Display) {
        let text = text.to_string();
        let number = text.rfind(" (os error ").filter(|_| self.is_applet && text.ends_with(')'));
        let text = one_line(&&text[..number.unwrap_or(text.len())]);
        let name = if name.is_empty() { b"''".into() } else { checkfile::escape(name) };
        self.line(Some(Color::Bad), &[&name, b": ", text.as_bytes()]);
    }

    /// Prints a text with several lines, about one input or all of them.
    pub(crate) fn say_lines(&self, name: Option<&[u8]>, text: &str) {
        match name {
            Some(name) => self.line(None, &[&checkfile::escape(name), b": ", text.as_bytes()]),
            None => self.line(None, &[text.as_bytes()]),
        }
    }

    /// Prints statistics: as a message for users, or an object for programs.
    pub(crate) fn report(&self, name: Option<&[u8]>, format: StatsFormat, text: String) {
        match format {
            StatsFormat::Json => {
                let line = harmless_json(text) + "\n";
                // (An error here cannot be reported.)
                let _ = write_all(rustix::stdio::stderr(), line.as_bytes());
            }
            StatsFormat::Text => self.say_lines(name, &text),
        }
    }

    /// `color`: of the program's name.
    fn line(&self, color: Option<Color>, parts: &[&[u8]]) {
        let text = parts.concat();
        let text = match self.is_terminal {
            // (A plan has several lines.)
            true => {
                text.split(|&byte| byte == b'\n').map(harmless).collect::<Vec<_>>().join(&b'\n')
            }
            false => text,
        };
        let when = self.color.get().copied().unwrap_or_default();
        let program = [&harmless(&self.program)[..], b":"].concat();
        let program = match color.filter(|_| uses_color(when, self.is_terminal)) {
            Some(color) => color.paint(&program),
            None => program,
        };
        let mut line = [&program[..], b" ", &text].concat();
        line.push(b'\n');
        // (An error here cannot be reported.)
        let _ = write_all(rustix::stdio::stderr(), &line);
    }
}

fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::io::Errno;
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Escapes everything that may control a terminal as `\xNN` or `\u{N}`: control characters, bytes
/// that are not UTF-8 (some terminals interpret 0x80 to 0x9f), and invisible characters.
pub(crate) fn harmless(bytes: &[u8]) -> Cow<'_, [u8]> {
    let plain = |c: char| !c.is_control() && !is_invisible(c);
    match std::str::from_utf8(bytes) {
        // The fast path for most names: there may be millions.
        Ok(text) if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) => Cow::Borrowed(bytes),
        Ok(text) if text.chars().all(plain) => Cow::Borrowed(bytes),
        _ => {
            let mut shown = String::with_capacity(2 * bytes.len());
            for chunk in bytes.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        c if plain(c) => shown.push(c),
                        c if c.is_ascii() => shown.push_str(&format!("\\x{:02x}", c as u32)),
                        c => shown.push_str(&c.escape_unicode().to_string()),
                    }
                }
                for byte in chunk.invalid() {
                    shown.push_str(&format!("\\x{byte:02x}"));
                }
            }
            Cow::Owned(shown.into_bytes())
        }
    }
}

/// Escapes the same characters in JSON as `\uNNNN`, which does not change the meaning. (Control
/// characters below 0x20 are already escaped.)
pub(crate) fn harmless_json(text: String) -> String {
    if text.bytes().all(|byte| byte < 0x7f) {
        return text;
    }
    let mut shown = String::with_capacity(2 * text.len());
    for c in text.chars() {
        match c {
            // (They occur only in strings.)
            c if c.is_control() || is_invisible(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    shown.push_str(&format!("\\u{unit:04x}"));
                }
            }
            c => shown.push(c),
        }
    }
    shown
}

fn one_line(text: &dyn std::fmt::Display) -> String {
    let text = text.to_string();
    if text.contains(['\n', '\r']) { text.replace('\n', "\\n").replace('\r', "\\r") } else { text }
}

/// Invisible characters that change how text is displayed, or make two names look the same:
/// bidirectional controls (UAX #9, section 2), joiners, fillers, variation selectors, tags and
/// everything else that a renderer may leave out (`Default_Ignorable_Code_Point` of Unicode 16),
/// line and paragraph separators, and annotation and hieroglyph format controls.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_no_controls() {
        let cases: [(&[u8], &str); 10] = [
            (b"plain name", "plain name"),
            ("größe, 日本".as_bytes(), "größe, 日本"),
            (b"\x1b[31mred\x07", "\\x1b[31mred\\x07"),
            (b"a\x9bm\xff", "a\\x9bm\\xff"),
            ("a\u{9b}b".as_bytes(), "a\\u{9b}b"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            ("a\u{200b}b\u{ad}".as_bytes(), "a\\u{200b}b\\u{ad}"),
            ("a\u{2028}b".as_bytes(), "a\\u{2028}b"),
            ("a\u{e0041}\u{7f}".as_bytes(), "a\\u{e0041}\\x7f"),
            (b"two\nlines", "two\\x0alines"),
        ];
        for (name, shown) in cases {
            assert_eq!(String::from_utf8_lossy(&harmless(name)), shown);
        }
    }

    #[test]
    fn json_gets_none_either_and_means_the_same() {
        let name = "a\u{1b}\u{7f}\u{9b}\u{202e}\u{200b}\u{e0041}größe\u{1f600}\n";
        let value = serde_json::json!({ name: name });
        let shown = harmless_json(value.to_string());
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        assert_eq!(harmless(shown.as_bytes()), shown.as_bytes());
        assert!(shown.contains("größe\u{1f600}"));
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(one_line(&"a\nringsum: b\r"), "a\\nringsum: b\\r");
    }
}
