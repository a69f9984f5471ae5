//! A simulated device for tests, driven by a seed: it reorders, reads short, interrupts and fails,
//! and its file may be shorter than reported. It checks what only an engine can observe: the number
//! of requests in flight, and that no two of them, and no delivered block, share memory.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use super::{Completion, Engine, Read};

/// Faults to inject, each in one of this many reads; 0 for never.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) short_one_in: u32,
    pub(crate) interrupted_one_in: u32,
    /// `EAGAIN`.
    pub(crate) again_one_in: u32,
    /// A read that is short or fails breaks the chain: later requests that are still in flight end
    /// with `ECANCELED`.
    pub(crate) chained: bool,
    /// `EIO` for every read that touches this byte.
    pub(crate) bad_byte: Option<u64>,
    /// The n-th `submit` fails.
    pub(crate) refuse_submit: Option<u32>,
    /// The n-th `wait` fails, after it has taken completions.
    pub(crate) fail_wait: Option<u32>,
    /// Requests in flight never end, as with a dead server.
    pub(crate) never_drains: bool,
}

/// The engine's observations, shared with the test that owns the pump.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) in_flight_max: u32,
    pub(crate) submitted: u32,
    pub(crate) waits: u32,
    /// Slots that the kernel may write into.
    pub(crate) requested: BTreeSet<u32>,
    /// Waits with nothing in flight, which would hang.
    pub(crate) hopeless_waits: u32,
}

/// The source of decisions.
#[derive(Debug, Clone)]
pub(crate) struct Chance {
    /// Predetermined decisions, used first.
    chosen: VecDeque<u8>,
    random: u64,
}

impl Chance {
    pub(crate) fn of_seed(seed: u64) -> Chance {
        Chance { chosen: VecDeque::new(), random: seed | 1 }
    }

    /// Uses the decisions of a fuzzer; after its last byte, random ones, so that faults end.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Chance {
        Chance { chosen: bytes.iter().copied().collect(), ..Chance::of_seed(1) }
    }

    fn next(&mut self) -> u32 {
        if let Some(chosen) = self.chosen.pop_front() {
            return chosen.into();
        }
        // xorshift64*: sufficient for shuffling.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as u32
    }
}

/// The simulated engine.
pub(crate) struct FakeEngine {
    content: Rc<Vec<u8>>,
    faults: Faults,
    chance: Chance,
    in_flight: Vec<(u32, u64, u32, *mut u8)>,
    depth: u32,
    seen: Rc<RefCell<Seen>>,
    /// Offsets and lengths must be multiples of this.
    align: u32,
    /// Completes half of the reads within `submit`, as a synchronous engine does.
    synchronous: bool,
}

impl FakeEngine {
    pub(crate) fn new(
        content: Rc<Vec<u8>>,
        faults: Faults,
        chance: Chance,
        depth: u32,
        align: u32,
        synchronous: bool,
    ) -> (FakeEngine, Rc<RefCell<Seen>>) {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let engine = FakeEngine {
            content,
            faults,
            chance,
            in_flight: Vec::new(),
            depth,
            seen: Rc::clone(&seen),
            align,
            synchronous,
        };
        (engine, seen)
    }

    fn random(&mut self, below: u32) -> u32 {
        self.chance.next() % below.max(1)
    }

    fn one_in(&mut self, n: u32) -> bool {
        n > 0 && self.random(n) == 0
    }

    fn carry_out(&mut self, slot: u32, offset: u64, len: u32, buffer: *mut u8) -> Completion {
        let result = self.result(offset, len);
        if let Ok(n @ 1..) = result {
            let from = &self.content[offset as usize..][..n as usize];
            // SAFETY: the pump guarantees `len` bytes of buffer, and n is at most len.
            unsafe { ptr::copy_nonoverlapping(from.as_ptr(), buffer, n as usize) };
        }
        self.seen.borrow_mut().requested.remove(&slot);
        Completion { slot, result }
    }

    fn cancel_all(&mut self, done: &mut Vec<Completion>) {
        let mut seen = self.seen.borrow_mut();
        for (slot, ..) in self.in_flight.drain(..) {
            seen.requested.remove(&slot);
            let result = Err(io::Error::from_raw_os_error(libc::ECANCELED));
            done.push(Completion { slot, result });
        }
    }

    fn result(&mut self, offset: u64, len: u32) -> io::Result<u32> {
        let end = offset + u64::from(len);
        if self.faults.bad_byte.is_some_and(|bad| (offset..end).contains(&bad)) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        if self.one_in(self.faults.interrupted_one_in) {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        if self.one_in(self.faults.again_one_in) {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let there = (self.content.len() as u64).saturating_sub(offset).min(len.into()) as u32;
        match there > 1 && self.one_in(self.faults.short_one_in) {
            // A short direct read still transfers whole sectors, unless the file ends.
            true if self.align > 1 && there > self.align => {
                Ok((1 + self.random(there / self.align)) * self.align)
            }
            true if self.align == 1 => Ok(1 + self.random(there - 1)),
            _ => Ok(there),
        }
    }
}

impl Engine for FakeEngine {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        let align = u64::from(self.align);
        assert!(read.offset.is_multiple_of(align) && u64::from(read.len).is_multiple_of(align));
        assert!(read.len > 0, "a request for nothing");
        let mut seen = self.seen.borrow_mut();
        seen.submitted += 1;
        if self.faults.refuse_submit == Some(seen.submitted) {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        }
        assert!(seen.requested.insert(read.slot), "slot {} is requested twice", read.slot);
        seen.in_flight_max = seen.in_flight_max.max(seen.requested.len() as u32);
        assert!(seen.requested.len() as u32 <= self.depth, "more in flight than the depth");
        drop(seen);
        if self.synchronous && self.random(2) == 0 {
            return Ok(Some(self.carry_out(read.slot, read.offset, read.len, read.buffer)));
        }
        // The buffer's content is undefined until the read completes: overwrite it.
        // SAFETY: the pump guarantees that the buffer is valid.
        unsafe { ptr::write_bytes(read.buffer, 0xEE, read.len as usize) };
        self.in_flight.push((read.slot, read.offset, read.len, read.buffer));
        Ok(None)
    }

    fn wait(&mut self, sleeps: bool, done: &mut Vec<Completion>) -> io::Result<()> {
        if sleeps && self.in_flight.is_empty() {
            self.seen.borrow_mut().hopeless_waits += 1;
            panic!("waiting for a completion with nothing in flight");
        }
        let most = self.in_flight.len() as u32;
        let n = if sleeps { 1 + self.random(most) } else { self.random(most + 1) };
        for _ in 0..n {
            let i = self.random(self.in_flight.len() as u32) as usize;
            // A chain runs in order.
            let i = if self.faults.chained { 0 } else { i };
            if i >= self.in_flight.len() {
                break;
            }
            let (slot, offset, len, buffer) = self.in_flight.remove(i);
            let completion = self.carry_out(slot, offset, len, buffer);
            let broken = !matches!(completion.result, Ok(n) if n == len);
            done.push(completion);
            if broken && self.faults.chained {
                self.cancel_all(done);
            }
        }
        let mut seen = self.seen.borrow_mut();
        seen.waits += 1;
        match self.faults.fail_wait == Some(seen.waits) {
            true => Err(io::Error::from_raw_os_error(libc::EBADF)),
            false => Ok(()),
        }
    }

    fn drain(&mut self, in_flight: u32, _patience: Duration) -> bool {
        assert_eq!(in_flight as usize, self.in_flight.len(), "the pump lost count");
        if self.faults.never_drains {
            return false;
        }
        let mut done = Vec::new();
        while !self.in_flight.is_empty() {
            let _ = self.wait(true, &mut done);
        }
        true
    }
}
