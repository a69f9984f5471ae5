//! Broadcast: each consumer gets every block, on its own threads, while this thread reads.
//!
//! This is for consumers that cannot divide a source among them, such as digests that need bytes in
//! order: there are as many threads as such consumers, and the slowest one determines the time.
#![allow(unsafe_code)]

use std::io;
use std::panic;
use std::thread::{self, Scope, ScopedJoinHandle};

use super::block_queue::BlockQueue;
use super::not_started;
use super::reader::Reader;
use super::threads::Block;
use crate::config::{Order, Wait};
use crate::core::pump::{Delivered, RawBlock, RunContext, Sink};
use crate::engine::Waker;
use crate::error::{BoxError, ErrorKind};
use crate::observe::stats::WaitFor;
use crate::plan::RingPlan;

/// A consumer of all blocks of a source.
pub enum Consumer<'a> {
    /// One block after another, in the order of the source, on one thread.
    InOrder(&'a mut (dyn FnMut(Block<'_>) -> Result<(), BoxError> + Send)),
    /// Blocks in any order, on this many threads at the same time: at least 1.
    AnyOrder(u32, &'a (dyn Fn(Block<'_>) -> Result<(), BoxError> + Sync)),
}

impl Consumer<'_> {
    fn threads(&self) -> u32 {
        match self {
            Consumer::InOrder(_) => 1,
            Consumer::AnyOrder(threads, _) => (*threads).max(1),
        }
    }

    /// Consumes a block on this thread.
    pub(super) fn consume(&mut self, block: Block<'_>) -> Result<(), BoxError> {
        match self {
            Consumer::InOrder(consume) => consume(block),
            Consumer::AnyOrder(_, consume) => consume(block),
        }
    }
}

/// Passes every block of `run` to each of `consumers`, on their own threads. If one of those cannot
/// be started, nothing is read.
pub(super) fn on_threads(
    run: &RunContext<'_>,
    ring: &RingPlan,
    consumers: &mut [Consumer<'_>],
) -> Result<(), ErrorKind> {
    let mut reader = Reader::new(run, ring, ring.slots, true)?;
    let waker = reader.waker();
    let threads: Vec<_> = consumers.iter().map(Consumer::threads).collect();
    let queue = BlockQueue::new(ring.wait == Wait::Spin, &threads);
    let context = ConsumerContext { run, queue: &queue, waker: waker.as_ref() };
    context.run(consumers, |sink| reader.pump(run, ring, Order::InOrder, || sink))
}

/// State shared by consumer threads.
#[derive(Clone, Copy)]
struct ConsumerContext<'a> {
    run: &'a RunContext<'a>,
    queue: &'a BlockQueue<RawBlock>,
    waker: Option<&'a Waker>,
}

impl<'a> ConsumerContext<'a> {
    /// Starts the threads of `consumers`, and pumps into their queues on this thread.
    fn run(
        self,
        consumers: &mut [Consumer<'_>],
        pump: impl FnOnce(QueueSink<'a>) -> Result<(), ErrorKind>,
    ) -> Result<(), ErrorKind> {
        thread::scope(|scope| {
            let mut threads = Vec::new();
            let started = consumers.iter_mut().try_for_each(|consumer| match consumer {
                Consumer::InOrder(consume) => {
                    threads.push(self.start(scope, threads.len(), &mut **consume)?);
                    Ok(())
                }
                Consumer::AnyOrder(count, consume) => (0..(*count).max(1)).try_for_each(|_| {
                    threads.push(self.start(scope, threads.len(), &**consume)?);
                    Ok(())
                }),
            });
            let read = match started {
                Ok(()) => pump(QueueSink { queue: self.queue, discard: true }),
                Err(error) => {
                    self.queue.close(true);
                    Err(not_started(error))
                }
            };
            let mut consumed = Ok(());
            for thread in threads {
                match thread.join() {
                    Ok(result) => consumed = consumed.and(result),
                    Err(payload) => panic::resume_unwind(payload),
                }
            }
            // The consumer's error takes precedence: it is why the pump found the queue ended.
            consumed.map_err(ErrorKind::Consumer).and(read)
        })
    }

    /// Starts a consumer thread.
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
        let mut end = EndGuard { context: self, number, failed: true };
        let mut recorder = self.run.recording.recorder("consumes", 0);
        loop {
            let start = recorder.start();
            let Some(block) = self.queue.next(number) else { break };
            recorder.waited(WaitFor::Read, start);
            let start = recorder.start();
            // SAFETY: the queue passed the block to this consumer, which has not returned it.
            consume(unsafe { block.block() })?;
            // Bytes are counted once, however many consumers process them.
            let counted = if number == 0 { block.extent.len } else { 0 };
            recorder.consumed(start, counted, false);
            if self.queue.give_back(number) {
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

/// Notifies the pump that a consumer has ended, on every exit path.
struct EndGuard<'a> {
    context: ConsumerContext<'a>,
    number: usize,
    failed: bool,
}

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        if self.failed {
            self.context.run.supply.stop();
        }
        if self.context.queue.end(self.number, self.failed) {
            self.context.wake();
        }
    }
}

/// Passes blocks to the queue. Its drop waits until no consumer holds one: memory may be freed.
struct QueueSink<'a> {
    queue: &'a BlockQueue<RawBlock>,
    discard: bool,
}

impl Sink for QueueSink<'_> {
    fn consumes_inline(&self) -> bool {
        false
    }

    fn deliver(&mut self, block: RawBlock) -> Result<Delivered, ErrorKind> {
        match self.queue.push(block.slot, block) {
            true => Ok(Delivered::Held),
            false => Err(consumer_ended()),
        }
    }

    fn take_returned(&mut self, slots: &mut Vec<u32>) -> Result<(), ErrorKind> {
        match self.queue.take_returned(slots) {
            true => Ok(()),
            false => Err(consumer_ended()),
        }
    }

    fn wait_returned(&mut self) {
        self.queue.wait_returned();
    }

    fn may_sleep(&mut self) -> bool {
        self.queue.may_sleep()
    }

    fn finish(&mut self, result: &Result<(), ErrorKind>) {
        self.discard = result.is_err();
    }
}

impl Drop for QueueSink<'_> {
    fn drop(&mut self) {
        self.queue.close(self.discard);
        self.queue.wait_idle();
    }
}

/// Never visible to callers: the consumer's own error, or its panic, takes precedence.
fn consumer_ended() -> ErrorKind {
    ErrorKind::Consumer("the consumer ended early".into())
}

#[cfg(test)]
#[path = "broadcast_tests.rs"]
mod tests;
