//! The queue between pump and consumers, over every interleaving that loom finds.
//!
//! The file under test is the library's own, compiled over loom's locks instead of std's.

#[path = "../src/run/block_queue.rs"]
mod block_queue;

mod sync {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    /// Spins once and yields once.
    pub(crate) const LOOKS_MAX: u32 = 1;
}

use block_queue::BlockQueue;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// An engine that sleeps in the kernel, as an eventfd.
struct Eventfd {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Eventfd {
    fn new() -> Eventfd {
        Eventfd { raised: Mutex::new(false), changed: Condvar::new() }
    }

    fn raise(&self) {
        *self.raised.lock().unwrap() = true;
        self.changed.notify_one();
    }

    /// Sleeps until it is raised, and resets it.
    fn sleep(&self) {
        let mut raised = self.raised.lock().unwrap();
        while !*raised {
            raised = self.changed.wait(raised).unwrap();
        }
        *raised = false;
    }
}

struct World {
    queue: BlockQueue<u32>,
    eventfd: Eventfd,
}

/// Runs the model with threads that sleep, and with threads that spin. `threads`: of each queue.
fn model(threads: &'static [u32], test: fn(Arc<World>)) {
    for spin in [false, true] {
        let is_large = threads.iter().sum::<u32>() > 1;
        if is_large && spin {
            // Too many interleavings of loops that spin.
            continue;
        }
        let mut builder = loom::model::Builder::new();
        // Spinning threads, and more than two threads, have too many interleavings: all those with up to
        // two preemptions.
        builder.preemption_bound = (spin || is_large).then_some(2);
        builder.check(move || {
            test(Arc::new(World {
                queue: BlockQueue::new(spin, threads),
                eventfd: Eventfd::new(),
            }));
        });
    }
}

/// The consumer's side, as in `broadcast.rs`: one that fails at its n-th block ends without giving it
/// back. Returns what it consumed.
fn consume(world: &World, consumer: usize, fails_at: usize) -> Vec<u32> {
    let (mut consumed, mut failed) = (Vec::new(), false);
    while let Some(block) = world.queue.next(consumer) {
        if consumed.len() == fails_at {
            failed = true;
            break;
        }
        consumed.push(block);
        if world.queue.give_back(consumer) {
            world.eventfd.raise();
        }
    }
    if world.queue.end(consumer, failed) {
        world.eventfd.raise();
    }
    consumed
}

/// A deadlock (a lost wake-up) fails the model: loom reports it.
#[test]
fn every_block_is_consumed_and_every_slot_comes_back() {
    model(&[1], |world| {
        let consumer = thread::spawn({
            let world = Arc::clone(&world);
            move || consume(&world, 0, usize::MAX)
        });
        // One slot, two blocks: the second waits for the slot to come back.
        let mut free = vec![0];
        for _ in 0..2 {
            while free.is_empty() {
                world.queue.wait_returned();
                assert!(world.queue.take_returned(&mut free));
            }
            let slot = free.pop().unwrap();
            assert!(world.queue.push(slot, slot));
        }
        world.queue.close(false);
        world.queue.wait_idle();
        assert_eq!(consumer.join().unwrap(), [0, 0]);
        world.queue.take_returned(&mut free);
        assert_eq!(free, [0]);
    });
}

#[test]
fn a_pump_asleep_in_its_engine_is_woken_by_a_returned_slot() {
    model(&[1], |world| {
        let consumer = thread::spawn({
            let world = Arc::clone(&world);
            move || consume(&world, 0, usize::MAX)
        });
        assert!(world.queue.push(7, 7));
        let mut returned = Vec::new();
        while returned.is_empty() {
            // No read is in flight that could wake the engine: only the queue does.
            match world.queue.may_sleep() {
                true => world.eventfd.sleep(),
                false => loom::hint::spin_loop(),
            }
            world.queue.take_returned(&mut returned);
        }
        assert_eq!(returned, [7]);
        world.queue.close(false);
        assert_eq!(consumer.join().unwrap(), [7]);
    });
}

#[test]
fn a_consumer_that_ends_early_wakes_the_pump() {
    model(&[1], |world| {
        let consumer = thread::spawn({
            let world = Arc::clone(&world);
            move || consume(&world, 0, 1)
        });
        let mut returned = Vec::new();
        let mut pushed = 0;
        while world.queue.push(pushed, pushed) {
            pushed += 1;
            if pushed == 2 {
                break;
            }
        }
        // Both waits end, though the second block is never given back.
        while world.queue.take_returned(&mut returned) {
            match world.queue.may_sleep() {
                true => world.eventfd.sleep(),
                false => world.queue.wait_returned(),
            }
            returned.clear();
        }
        world.queue.close(true);
        world.queue.wait_idle();
        assert_eq!(consumer.join().unwrap(), [0]);
    });
}

#[test]
fn a_close_that_discards_leaves_the_consumer_nothing() {
    model(&[1], |world| {
        let consumer = thread::spawn({
            let world = Arc::clone(&world);
            move || consume(&world, 0, usize::MAX)
        });
        assert!(world.queue.push(0, 0));
        assert!(world.queue.push(1, 1));
        world.queue.close(true);
        // After this the memory may go: the consumer must hold nothing.
        world.queue.wait_idle();
        let mut returned = Vec::new();
        world.queue.take_returned(&mut returned);
        returned.sort();
        assert_eq!(returned, [0, 1]);
        assert!(consumer.join().unwrap().len() <= 2);
    });
}

/// Two consumers, each of which sees every block, and a slot that comes back when both are done with it.
#[test]
fn every_queue_gets_every_block() {
    model(&[1, 1], |world| {
        let consumers = [0, 1].map(|consumer| {
            let world = Arc::clone(&world);
            thread::spawn(move || consume(&world, consumer, usize::MAX))
        });
        let mut free = vec![0];
        for block in [10, 11] {
            while free.is_empty() {
                world.queue.wait_returned();
                assert!(world.queue.take_returned(&mut free));
            }
            assert!(world.queue.push(free.pop().unwrap(), block));
        }
        world.queue.close(false);
        world.queue.wait_idle();
        for consumer in consumers {
            assert_eq!(consumer.join().unwrap(), [10, 11]);
        }
        world.queue.take_returned(&mut free);
        assert_eq!(free, [0]);
    });
}

/// Two consumers that share the blocks of one queue.
#[test]
fn one_queue_may_have_several_consumers() {
    model(&[2], |world| {
        let consumers = [0, 1].map(|consumer| {
            let world = Arc::clone(&world);
            thread::spawn(move || consume(&world, consumer, usize::MAX))
        });
        assert!(world.queue.push(0, 0));
        assert!(world.queue.push(1, 1));
        world.queue.close(false);
        world.queue.wait_idle();
        let mut consumed: Vec<_> =
            consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect();
        consumed.sort();
        assert_eq!(consumed, [0, 1]);
    });
}

/// One of two fails: the other ends, the pump is notified, and no block is held afterwards.
#[test]
fn one_consumer_that_fails_ends_the_others() {
    model(&[1, 1], |world| {
        let consumers = [(0, 0), (1, usize::MAX)].map(|(consumer, fails_at)| {
            let world = Arc::clone(&world);
            thread::spawn(move || consume(&world, consumer, fails_at))
        });
        let pushed = world.queue.push(0, 0);
        let mut returned = Vec::new();
        while pushed && world.queue.take_returned(&mut returned) {
            world.queue.wait_returned();
            returned.clear();
        }
        world.queue.close(true);
        world.queue.wait_idle();
        for consumer in consumers {
            assert!(consumer.join().unwrap().len() <= 1);
        }
    });
}
