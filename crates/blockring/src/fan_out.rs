//! Blocks handed to consumers on threads of their own, while this thread reads: each of them sees every block, and
//! most want them in order.
//!
//! That is for consumers that cannot share a source among them, as digests that take one byte after another: there
//! are as many threads as such consumers, and the slowest of them says how long it takes.
#![allow(unsafe_code)]

use std::io;
use std::panic;
use std::thread::{self, Scope, ScopedJoinHandle};

use crate::choose::RingPlan;
use crate::config::Order;
use crate::engine::Waker;
use crate::error::{BoxError, ErrorKind};
use crate::handover::Handover;
use crate::pump::{Deliver, Finished, Job};
use crate::workers::{Block, ConsumeAnyOrder, ConsumeInOrder, Reader, STARTING};

/// One of those to whom all blocks of a source are given.
pub enum Taker<'a> {
    /// One block after another, in the order of the source, on one thread.
    InOrder(ConsumeInOrder<'a>),
    /// On so many threads at once: at least 1.
    AnyOrder(u32, ConsumeAnyOrder<'a>),
}

impl Taker<'_> {
    /// Threads that it takes to have one for each block that it consumes at once.
    fn threads(&self) -> u32 {
        match self {
            Taker::InOrder(_) => 1,
            Taker::AnyOrder(threads, _) => (*threads).max(1),
        }
    }

    /// On this thread.
    pub(crate) fn take(&mut self, block: Block<'_>) -> Result<(), BoxError> {
        match self {
            Taker::InOrder(consume) => consume(block),
            Taker::AnyOrder(_, consume) => consume(block),
        }
    }
}

/// Why not all was handed over.
pub(crate) enum NotDone {
    /// Not all threads could be had. Nothing was read yet.
    Threads(ErrorKind),
    Failed(ErrorKind),
}

impl From<ErrorKind> for NotDone {
    fn from(error: ErrorKind) -> NotDone {
        NotDone::Failed(error)
    }
}

/// Gives every block of `job` to each of `takers`, on threads of theirs, if `check` has nothing against it.
pub(crate) fn hand_to_each(
    job: &Job<'_>,
    plan: &RingPlan,
    takers: &mut [Taker<'_>],
    check: &(dyn Fn() -> Result<(), BoxError> + Sync),
) -> Result<(), NotDone> {
    let mut reader = Reader::new(job, plan, plan.slots, true)?;
    let waker = reader.waker();
    let threads: Vec<_> = takers.iter().map(Taker::threads).collect();
    let handover = Handover::new(plan.spin, &threads);
    let station = Station { job, handover: &handover, waker: waker.as_ref(), check };
    station.hand_over(takers, |lender| reader.pump(job, plan, Order::InOrder, || lender))
}

impl<'a> Station<'a> {
    /// Starts the threads of `takers`, and has `pump` lend them what it reads, on this thread.
    fn hand_over(
        self,
        takers: &mut [Taker<'_>],
        pump: impl FnOnce(Lender<'a>) -> Result<(), ErrorKind>,
    ) -> Result<(), NotDone> {
        thread::scope(|scope| {
            let mut consumers = Vec::new();
            let started = takers.iter_mut().try_for_each(|taker| match taker {
                Taker::InOrder(consume) => {
                    consumers.push(self.start(scope, consumers.len(), &mut **consume)?);
                    Ok(())
                }
                Taker::AnyOrder(threads, consume) => (0..(*threads).max(1)).try_for_each(|_| {
                    let consume: ConsumeAnyOrder<'_> = *consume;
                    consumers.push(self.start(scope, consumers.len(), consume)?);
                    Ok(())
                }),
            });
            let read = match started {
                Ok(()) => {
                    pump(Lender { handover: self.handover, discard: true }).map_err(NotDone::Failed)
                }
                Err(error) => {
                    self.handover.close(true);
                    Err(NotDone::Threads(ErrorKind::Resource { what: STARTING.to_owned(), error }))
                }
            };
            let mut consumed = Ok(());
            for consumer in consumers {
                match consumer.join() {
                    Ok(result) => consumed = consumed.and(result),
                    Err(payload) => panic::resume_unwind(payload),
                }
            }
            // What a consumer said comes first: it is why the pump was told that nobody is there.
            consumed.map_err(|error| NotDone::Failed(ErrorKind::Consumer(error))).and(read)
        })
    }
}

/// Gives blocks to the hand-over. Its drop waits until nobody holds one, so that the memory may go.
struct Lender<'a> {
    handover: &'a Handover<Finished>,
    discard: bool,
}

impl Deliver for Lender<'_> {
    fn consumes_here(&self) -> bool {
        false
    }

    fn deliver(&mut self, finished: Finished) -> Result<bool, ErrorKind> {
        match self.handover.push(finished.slot, finished) {
            true => Ok(false),
            false => Err(consumer_ended()),
        }
    }

    fn take_returned(&mut self, slots: &mut Vec<u32>) -> Result<(), ErrorKind> {
        match self.handover.take_returned(slots) {
            true => Ok(()),
            false => Err(consumer_ended()),
        }
    }

    fn wait_returned(&mut self) {
        self.handover.wait_returned();
    }

    fn may_sleep(&mut self) -> bool {
        self.handover.may_sleep()
    }

    fn finish(&mut self, complete: bool) {
        self.discard = !complete;
    }
}

impl Drop for Lender<'_> {
    fn drop(&mut self) {
        self.handover.close(self.discard);
        self.handover.wait_idle();
    }
}

/// Never seen by a caller: the consumer's own error, or its panic, goes before it.
fn consumer_ended() -> ErrorKind {
    ErrorKind::Consumer("the consumer ended early".into())
}

/// Where consumers get their blocks.
#[derive(Clone, Copy)]
struct Station<'a> {
    job: &'a Job<'a>,
    handover: &'a Handover<Finished>,
    waker: Option<&'a Waker>,
    check: &'a (dyn Fn() -> Result<(), BoxError> + Sync),
}

impl<'a> Station<'a> {
    /// Starts the thread of a consumer.
    fn start<'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        number: usize,
        consume: impl FnMut(Block<'_>) -> Result<(), BoxError> + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, Result<(), BoxError>>>
    where
        'a: 'scope,
    {
        let builder = thread::Builder::new().name("blockring".to_owned());
        builder.spawn_scoped(scope, move || self.consume(number, consume))
    }

    fn consume(
        self,
        number: usize,
        mut consume: impl FnMut(Block<'_>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let mut end = End { station: self, number, failed: true };
        let mut recorder = self.job.recording.recorder("consumes", 0);
        loop {
            let start = recorder.start();
            let Some(finished) = self.handover.next(number) else { break };
            recorder.waited_for_device(start);
            let start = recorder.start();
            (self.check)()?;
            // SAFETY: the pump handed it to us, until we give it back.
            consume(unsafe { finished.block() })?;
            // Bytes count once, however many see them.
            let counted = if number == 0 { finished.extent.len } else { 0 };
            recorder.consumed(start, counted, false);
            if self.handover.give_back(number) {
                self.wake();
            }
        }
        end.failed = false;
        Ok(())
    }

    fn wake(self) {
        if let Some(wake) = self.waker {
            wake();
        }
    }
}

/// Tells the pump that a consumer takes no more, on every way out.
struct End<'a> {
    station: Station<'a>,
    number: usize,
    failed: bool,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if self.failed {
            self.station.job.work.stop();
        }
        if self.station.handover.end(self.number, self.failed) {
            self.station.wake();
        }
    }
}

#[cfg(test)]
#[path = "fan_out_tests.rs"]
mod tests;
