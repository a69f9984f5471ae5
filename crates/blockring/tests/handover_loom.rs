//! The hand-over between pump and consumers, over every interleaving that loom finds.
//!
//! The file under test is the library's own, compiled over loom's locks instead of std's.

#[path = "../src/handover.rs"]
mod handover;

mod sync {
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use loom::thread::yield_now;

    /// Both ways of waiting, and no more turns than that takes.
    pub(crate) const LOOKS_MAX: u32 = 1;
}

use handover::Handover;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

/// What an engine that sleeps in the kernel looks like from here: an eventfd.
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

    /// Sleeps until it is raised, and takes it down.
    fn sleep(&self) {
        let mut raised = self.raised.lock().unwrap();
        while !*raised {
            raised = self.changed.wait(raised).unwrap();
        }
        *raised = false;
    }
}

struct World {
    handover: Handover<u32>,
    eventfd: Eventfd,
}

/// Runs the model with threads that sleep, and with threads that spin; `threads`: of each queue.
fn model(threads: &'static [u32], test: fn(Arc<World>)) {
    for spin in [false, true] {
        let is_large = threads.iter().sum::<u32>() > 1;
        if is_large && spin {
            // More interleavings than loom goes through, of loops that look again.
            continue;
        }
        let mut builder = loom::model::Builder::new();
        // Threads that spin have ever more interleavings: all with up to so many preemptions. (And so have more
        // than two threads.)
        builder.preemption_bound = (spin || is_large).then_some(2);
        builder.check(move || {
            test(Arc::new(World {
                handover: Handover::new(spin, threads),
                eventfd: Eventfd::new(),
            }));
        });
    }
}

/// The consumer's side, as `fan_out.rs` has it: one that fails at its n-th block ends without giving
/// that back. Returns what it consumed.
fn consume(world: &World, consumer: usize, fails_at: usize) -> Vec<u32> {
    let (mut consumed, mut failed) = (Vec::new(), false);
    while let Some(block) = world.handover.next(consumer) {
        if consumed.len() == fails_at {
            failed = true;
            break;
        }
        consumed.push(block);
        if world.handover.give_back(consumer) {
            world.eventfd.raise();
        }
    }
    if world.handover.end(consumer, failed) {
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
                world.handover.wait_returned();
                assert!(world.handover.take_returned(&mut free));
            }
            let slot = free.pop().unwrap();
            assert!(world.handover.push(slot, slot));
        }
        world.handover.close(false);
        world.handover.wait_idle();
        assert_eq!(consumer.join().unwrap(), [0, 0]);
        world.handover.take_returned(&mut free);
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
        assert!(world.handover.push(7, 7));
        let mut returned = Vec::new();
        while returned.is_empty() {
            // No read is in flight that could wake the engine: only the hand-over does.
            match world.handover.may_sleep() {
                true => world.eventfd.sleep(),
                false => loom::hint::spin_loop(),
            }
            world.handover.take_returned(&mut returned);
        }
        assert_eq!(returned, [7]);
        world.handover.close(false);
        assert_eq!(consumer.join().unwrap(), [7]);
    });
}

#[test]
fn a_consumer_that_ends_early_wakes_the_pump_wherever_it_is() {
    model(&[1], |world| {
        let consumer = thread::spawn({
            let world = Arc::clone(&world);
            move || consume(&world, 0, 1)
        });
        let mut returned = Vec::new();
        let mut pushed = 0;
        while world.handover.push(pushed, pushed) {
            pushed += 1;
            if pushed == 2 {
                break;
            }
        }
        // Either way of waiting ends, though the second block is never given back.
        while world.handover.take_returned(&mut returned) {
            match world.handover.may_sleep() {
                true => world.eventfd.sleep(),
                false => world.handover.wait_returned(),
            }
            returned.clear();
        }
        world.handover.close(true);
        world.handover.wait_idle();
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
        assert!(world.handover.push(0, 0));
        assert!(world.handover.push(1, 1));
        world.handover.close(true);
        // After this the memory goes: the consumer must hold nothing.
        world.handover.wait_idle();
        let mut returned = Vec::new();
        world.handover.take_returned(&mut returned);
        returned.sort();
        assert_eq!(returned, [0, 1]);
        assert!(consumer.join().unwrap().len() <= 2);
    });
}

/// Two consumers, each of which sees every block; and a slot that comes back only when both are done with it.
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
                world.handover.wait_returned();
                assert!(world.handover.take_returned(&mut free));
            }
            assert!(world.handover.push(free.pop().unwrap(), block));
        }
        world.handover.close(false);
        world.handover.wait_idle();
        for consumer in consumers {
            assert_eq!(consumer.join().unwrap(), [10, 11]);
        }
        world.handover.take_returned(&mut free);
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
        assert!(world.handover.push(0, 0));
        assert!(world.handover.push(1, 1));
        world.handover.close(false);
        world.handover.wait_idle();
        let mut consumed: Vec<_> =
            consumers.into_iter().flat_map(|consumer| consumer.join().unwrap()).collect();
        consumed.sort();
        assert_eq!(consumed, [0, 1]);
    });
}

/// One of two fails: the other ends, the pump hears of it, and nobody holds anything afterwards.
#[test]
fn one_consumer_that_fails_ends_the_others() {
    model(&[1, 1], |world| {
        let consumers = [(0, 0), (1, usize::MAX)].map(|(consumer, fails_at)| {
            let world = Arc::clone(&world);
            thread::spawn(move || consume(&world, consumer, fails_at))
        });
        let pushed = world.handover.push(0, 0);
        let mut returned = Vec::new();
        while pushed && world.handover.take_returned(&mut returned) {
            world.handover.wait_returned();
            returned.clear();
        }
        world.handover.close(true);
        world.handover.wait_idle();
        for consumer in consumers {
            assert!(consumer.join().unwrap().len() <= 1);
        }
    });
}
