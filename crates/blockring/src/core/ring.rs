//! Slot states, the free list and, in order only, the sequence. Pure: no I/O, no threads.
//!
//! A slot goes `Free -> Requested -> Ready -> Free`. The tests explore every interleaving of
//! completions and returns for small rings and check that each slot is in one place only, that at
//! most `depth` are requested, and that some step is always possible while extents remain.

use std::collections::VecDeque;

use crate::config::Order;

/// The state of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum SlotState {
    /// On the free list.
    Free,
    /// The kernel may write into it.
    Requested,
    /// It holds a block that waits to be delivered in order, or that the consumer holds.
    Ready,
}

/// The ring: `slots` slots, at most `depth` of them requested.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ring {
    states: Vec<SlotState>,
    free: Vec<u32>,
    /// In order: every slot that is requested or ready, in the order of the requests.
    /// Any order: the ready slots, in the order of their completion.
    waiting: VecDeque<u32>,
    order: Order,
    depth: u32,
    in_flight: u32,
    held: u32,
}

impl Ring {
    pub(crate) fn new(slots: u32, depth: u32, order: Order) -> Ring {
        assert!(slots > 0 && depth > 0, "a ring of nothing never moves");
        Ring {
            states: vec![SlotState::Free; slots as usize],
            // Popped from the back, so that slot 0 comes first.
            free: (0..slots).rev().collect(),
            waiting: VecDeque::with_capacity(slots as usize),
            order,
            depth,
            in_flight: 0,
            held: 0,
        }
    }

    /// Returns the slot that [`request`](Ring::request) would take.
    pub(crate) fn next_free(&self) -> Option<u32> {
        self.free.last().copied().filter(|_| self.in_flight < self.depth)
    }

    /// Takes a free slot for a new request. Must be called in the order of the extents.
    pub(crate) fn request(&mut self) -> Option<u32> {
        let slot = self.next_free()?;
        self.free.pop();
        self.set(slot, SlotState::Free, SlotState::Requested);
        self.in_flight += 1;
        if self.order == Order::InOrder {
            self.waiting.push_back(slot);
        }
        Some(slot)
    }

    /// Records that the request in `slot` has completed.
    pub(crate) fn complete(&mut self, slot: u32) {
        self.set(slot, SlotState::Requested, SlotState::Ready);
        self.in_flight -= 1;
        if self.order == Order::AnyOrder {
            self.waiting.push_back(slot);
        }
    }

    /// Whether [`deliver`](Ring::deliver) would return a slot.
    pub(crate) fn can_deliver(&self) -> bool {
        self.waiting.front().is_some_and(|&slot| self.states[slot as usize] == SlotState::Ready)
    }

    /// Returns the next block that may be consumed.
    pub(crate) fn deliver(&mut self) -> Option<u32> {
        if !self.can_deliver() {
            return None;
        }
        self.held += 1;
        self.waiting.pop_front()
    }

    /// Records that the consumer no longer needs `slot`.
    pub(crate) fn give_back(&mut self, slot: u32) {
        assert!(self.held > 0, "slot {slot} was not delivered");
        debug_assert!(!self.waiting.contains(&slot), "slot {slot} was not delivered");
        self.set(slot, SlotState::Ready, SlotState::Free);
        self.held -= 1;
        self.free.push(slot);
    }

    /// Changes the most slots that the kernel may write into. More may already be.
    pub(crate) fn set_depth(&mut self, depth: u32) {
        assert!(depth > 0, "a ring of nothing never moves");
        self.depth = depth;
    }

    /// Returns the most slots that the kernel may write into.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the number of slots that the kernel may write into.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of slots that the consumer holds.
    pub(crate) fn held(&self) -> u32 {
        self.held
    }

    pub(crate) fn is_free(&self, slot: u32) -> bool {
        self.states[slot as usize] == SlotState::Free
    }

    /// Returns the number of ready blocks that the consumer does not hold yet.
    pub(crate) fn backlog(&self) -> u32 {
        self.states.len() as u32 - self.free.len() as u32 - self.in_flight - self.held
    }

    fn set(&mut self, slot: u32, from: SlotState, to: SlotState) {
        let state = &mut self.states[slot as usize];
        assert_eq!(*state, from, "slot {slot} cannot become {to:?}");
        *state = to;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A ring together with the state of the world around it.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct World {
        ring: Ring,
        /// Extent that each slot was requested for.
        extent_of: Vec<Option<u32>>,
        extents_left: u32,
        next_extent: u32,
        consumed: Vec<u32>,
        held: Vec<u32>,
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Request,
        Complete(u32),
        Deliver,
        GiveBack(usize),
    }

    impl World {
        fn steps(&self, held_max: usize) -> Vec<Step> {
            let mut steps = Vec::new();
            if self.extents_left > 0 && self.ring.next_free().is_some() {
                steps.push(Step::Request);
            }
            for slot in 0..self.ring.states.len() as u32 {
                if self.ring.states[slot as usize] == SlotState::Requested {
                    steps.push(Step::Complete(slot));
                }
            }
            if self.ring.can_deliver() && self.held.len() < held_max {
                steps.push(Step::Deliver);
            }
            steps.extend((0..self.held.len()).map(Step::GiveBack));
            steps
        }

        fn take(&mut self, step: Step) {
            match step {
                Step::Request => {
                    let slot = self.ring.request().expect("a slot is free");
                    self.extent_of[slot as usize] = Some(self.next_extent);
                    self.next_extent += 1;
                    self.extents_left -= 1;
                }
                Step::Complete(slot) => self.ring.complete(slot),
                Step::Deliver => {
                    let slot = self.ring.deliver().expect("can_deliver said so");
                    let extent = self.extent_of[slot as usize].take().expect("requested");
                    // In any order, the order of completion makes no different world.
                    let at = match self.ring.order {
                        Order::InOrder => self.consumed.len(),
                        Order::AnyOrder => self.consumed.partition_point(|&e| e < extent),
                    };
                    self.consumed.insert(at, extent);
                    self.held.push(slot);
                }
                Step::GiveBack(i) => {
                    let slot = self.held.swap_remove(i);
                    self.ring.give_back(slot);
                }
            }
        }

        fn check(&self, depth: u32) {
            let ring = &self.ring;
            // 1: one owner each.
            for slot in 0..ring.states.len() as u32 {
                let on_free_list = ring.free.iter().filter(|&&s| s == slot).count();
                let waits = ring.waiting.iter().filter(|&&s| s == slot).count();
                let held = self.held.iter().filter(|&&s| s == slot).count();
                let expected = match ring.states[slot as usize] {
                    SlotState::Free => (1, 0, 0),
                    SlotState::Requested if ring.order == Order::InOrder => (0, 1, 0),
                    SlotState::Requested => (0, 0, 0),
                    SlotState::Ready if held == 1 => (0, 0, 1),
                    SlotState::Ready => (0, 1, 0),
                };
                assert_eq!((on_free_list, waits, held), expected, "slot {slot}: {ring:?}");
            }
            // 2: exactly once, and in order if that is the order.
            match ring.order {
                Order::InOrder => {
                    assert!(self.consumed.iter().copied().eq(0..self.consumed.len() as u32))
                }
                Order::AnyOrder => {
                    let distinct: HashSet<_> = self.consumed.iter().collect();
                    assert_eq!(distinct.len(), self.consumed.len(), "an extent came twice");
                }
            }
            // 3: the bound on requests.
            let requested =
                ring.states.iter().filter(|&&s| s == SlotState::Requested).count() as u32;
            assert_eq!(requested, ring.in_flight());
            assert!(requested <= depth);
            assert_eq!(ring.held() as usize, self.held.len());
        }
    }

    /// Every interleaving of requests, completions, deliveries and returns.
    fn explore(slots: u32, depth: u32, extents: u32, order: Order, held_max: usize) -> usize {
        let start = World {
            ring: Ring::new(slots, depth, order),
            extent_of: vec![None; slots as usize],
            extents_left: extents,
            next_extent: 0,
            consumed: Vec::new(),
            held: Vec::new(),
        };
        let mut seen = HashSet::from([start.clone()]);
        let mut open = vec![start];
        while let Some(world) = open.pop() {
            world.check(depth);
            let steps = world.steps(held_max);
            // 4: never stuck. The pump relies on this: with nothing in flight and nothing held,
            // either a block can be delivered, or a slot can be requested, or all is done.
            if steps.is_empty() {
                assert_eq!(world.consumed.len() as u32, extents, "stuck: {:?}", world.ring);
            }
            if world.ring.in_flight() == 0 && world.held.is_empty() && world.extents_left > 0 {
                assert!(
                    world.ring.can_deliver() || world.ring.next_free().is_some(),
                    "stuck: {:?}",
                    world.ring
                );
            }
            for step in steps {
                let mut next = world.clone();
                next.take(step);
                if seen.insert(next.clone()) {
                    open.push(next);
                }
            }
        }
        seen.len()
    }

    #[test]
    fn every_interleaving_of_small_rings_keeps_the_invariants() {
        let mut worlds = 0;
        for order in [Order::InOrder, Order::AnyOrder] {
            for slots in 1..=4 {
                for depth in 1..=slots + 1 {
                    for held_max in 1..=2 {
                        worlds += explore(slots, depth, 6, order, held_max);
                    }
                }
            }
        }
        assert!(worlds > 10_000, "the exploration was cut short: {worlds}");
    }

    #[test]
    #[should_panic(expected = "was not delivered")]
    fn a_block_that_was_not_delivered_cannot_be_given_back() {
        let mut ring = Ring::new(1, 1, Order::AnyOrder);
        let slot = ring.request().unwrap();
        ring.complete(slot);
        ring.give_back(slot);
    }
}
