//! Many reads in flight with the kernel's older interface, `io_submit` and `io_getevents`.
//!
//! Only direct reads are asynchronous: through the page cache, `io_submit` reads before it returns.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::{Completion, Engine, Read, STALL, STALLS_MAX, Setup, Waker, event, sleep_on, waker_of};
use crate::sys::aio::{Context, Control, Event};

/// The engine with a kernel AIO context.
pub(crate) struct LibaioEngine {
    context: Context,
    /// Requests that have not been submitted. The kernel copies them on `io_submit`.
    queue: Vec<Control>,
    /// Requests that the kernel rejected individually.
    refused: Vec<Completion>,
    events: Vec<Event>,
    /// Present if another thread may have to wake this one; completions signal it as well.
    event: Option<Arc<OwnedFd>>,
}

impl LibaioEngine {
    /// Creates a context for `setup.depth` requests. An error says what is missing.
    pub(crate) fn new(setup: &Setup<'_>) -> Result<LibaioEngine, String> {
        let depth = setup.depth;
        Ok(LibaioEngine {
            context: Context::new(depth).map_err(|error| explain(&error))?,
            queue: Vec::with_capacity(depth as usize),
            refused: Vec::new(),
            events: vec![Event::default(); depth as usize],
            event: if setup.wakes { Some(event()?) } else { None },
        })
    }

    /// Submits the queue.
    fn flush(&mut self) -> io::Result<()> {
        let mut given = 0;
        let mut stalls = 0;
        let result = loop {
            if given == self.queue.len() {
                break Ok(());
            }
            // SAFETY: the callers of `submit` guarantee that the buffers are valid.
            match unsafe { self.context.submit(&mut self.queue[given..]) } {
                Ok(n) => given += n,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Its queue is full, or memory is short: completions make room.
                    Some(libc::EAGAIN) if stalls < STALLS_MAX => {
                        stalls += 1;
                        thread::sleep(STALL);
                    }
                    // Only this request is invalid: it is over, and the next one may be valid.
                    Some(_) if stalls < STALLS_MAX => {
                        let slot = self.queue[given].slot();
                        self.refused.push(Completion { slot, result: Err(error) });
                        given += 1;
                    }
                    _ => break Err(error),
                },
            }
        };
        self.queue.drain(..given);
        result
    }

    /// Takes completions; waits until there are at least `least`.
    fn harvest(&mut self, least: usize, done: &mut Vec<Completion>) -> io::Result<()> {
        done.append(&mut self.refused);
        let least = if done.is_empty() { least } else { 0 };
        match self.context.events(least, &mut self.events) {
            Ok(events) => {
                let completion =
                    |event: &Event| Completion { slot: event.slot(), result: event.result() };
                done.extend(events.iter().map(completion));
                Ok(())
            }
            // A signal: the caller tries again.
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl Engine for LibaioEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        let event = self.event.as_ref().map(|event| event.as_raw_fd());
        let Read { slot, fd, offset, len, buffer, flags, .. } = read;
        self.queue.push(Control::read(slot, fd, (offset, len), buffer, flags, event));
        Ok(None)
    }

    fn wait(&mut self, sleeps: bool, done: &mut Vec<Completion>) -> io::Result<()> {
        self.flush()?;
        match &self.event {
            Some(event) if sleeps && self.refused.is_empty() => {
                sleep_on(event)?;
                self.harvest(0, done)
            }
            _ => self.harvest(usize::from(sleeps), done),
        }
    }

    fn drain(&mut self, in_flight: u32, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        // Requests that were not submitted are dropped. Reads of files cannot be cancelled.
        let mut ended = self.queue.len() + self.refused.len();
        self.queue.clear();
        self.refused.clear();
        let mut done = Vec::new();
        while ended < in_flight as usize {
            if Instant::now() >= deadline || self.harvest(0, &mut done).is_err() {
                // Destroying the context would wait for them.
                self.context.leak();
                return false;
            }
            ended += done.len();
            if done.drain(..).next().is_none() {
                thread::sleep(Duration::from_micros(100));
            }
        }
        true
    }

    fn waker(&self) -> Option<Waker> {
        self.event.as_ref().map(waker_of)
    }
}

/// Checks that a context can be set up.
pub(crate) fn usable() -> Result<(), String> {
    Context::new(1).map(drop).map_err(|error| explain(&error))
}

/// Explains an error of `io_setup`, and how to fix it.
fn explain(error: &io::Error) -> String {
    let advice = match error.raw_os_error() {
        Some(libc::EAGAIN) => {
            "the system's requests are used up; raise the sysctl fs.aio-max-nr, or use a smaller queue \
             depth"
        }
        Some(libc::ENOSYS) => {
            "this kernel was built without it (CONFIG_AIO), or a seccomp filter hides it"
        }
        Some(libc::EPERM | libc::EACCES) => {
            "a seccomp filter or security module refuses it; allow io_setup, io_submit, io_getevents \
             and io_destroy"
        }
        Some(libc::ENOMEM) => "the kernel is out of memory for it",
        _ => "this kernel or sandbox refuses it",
    };
    format!("io_setup: {error}; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_says_what_to_change() {
        for (errno, part) in [(libc::EAGAIN, "fs.aio-max-nr"), (libc::ENOSYS, "CONFIG_AIO")] {
            let text = explain(&io::Error::from_raw_os_error(errno));
            assert!(text.contains(part), "{text}");
        }
    }
}
