//! From the tasks, as they come, to the lanes of their devices: numbered, and sorted some thousand at a
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};

use super::again::Later;
use super::budget::Budget;
use super::lane::{self, Lane};
use super::ticket::{self, Ticket};
use super::turns::{Stop, Turns};
use super::{ManyOptions, Outcome, Task, Watch};
use crate::Algorithms;

/// Most files that are sorted together. A tree that was written in one go lies in the order of its names,
/// and is read as fast in that; sorting is for those that were not.
const WINDOW: usize = 4096;

/// Most files of a batch, which one thread opens and reads together.
const BATCH: usize = 64;

/// One run over all tasks.
pub(super) struct Run<'a, T> {
    pub(super) options: &'a ManyOptions<'a, T>,
    budget: Budget,
    turns: Turns<'a, T>,
    /// Files that changed, and are read again.
    pub(super) later: Later<T>,
    /// There were too many open files for as long as anybody waits for fewer.
    starved: AtomicBool,
}

/// The files of a lane that are not sorted into batches yet.
struct Window<T> {
    lane: Arc<Lane<T>>,
    tickets: Vec<Ticket<T>>,
    /// Not where files are read one after another.
    sorts: bool,
    has_thread: bool,
}

impl<'a, T: Send> Run<'a, T> {
    pub(super) fn new(
        options: &'a ManyOptions<'a, T>,
        deliver: &'a (dyn Fn(Outcome<T>) -> bool + Sync),
    ) -> Run<'a, T> {
        let budget = Budget::of(&options.hash.config);
        Run {
            options,
            budget,
            turns: Turns::new(options.unordered, budget.waiting_bytes(), deliver),
            later: Later::default(),
            starved: AtomicBool::new(false),
        }
    }

    /// Whether a file has waited in vain for others to be closed, and none was opened since.
    pub(super) fn is_starved(&self) -> bool {
        self.starved.load(Ordering::Relaxed)
    }

    pub(super) fn set_starved(&self, is_starved: bool) {
        self.starved.store(is_starved, Ordering::Relaxed);
    }

    /// Works until every task is told of.
    pub(super) fn run(
        &self,
        tasks: impl Iterator<Item = Option<Task<T>>>,
        watch: Option<&dyn Watch>,
    ) {
        let mut dealt = 0;
        thread::scope(|scope| {
            let mut watched = None;
            if let Some(watch) = watch {
                let stop = Stop::of(&self.turns);
                let start = move || watch.watch(&stop);
                // Without it, an interrupt ends the process as it always does.
                watched = thread::Builder::new().spawn_scoped(scope, start).ok().map(|_| watch);
            }
            let reads_again = || self.later.work(self);
            if self.options.again.is_some() {
                // Without it, a file that changed has failed.
                let started = thread::Builder::new().spawn_scoped(scope, reads_again);
                self.later.is_there(started.is_ok());
            }
            dealt = thread::scope(|scope| self.deal_out(tasks, scope));
            self.later.close();
            if let Some(watch) = watched {
                watch.end();
            }
        });
        assert_eq!(self.turns.lost(dealt), 0, "tasks of {dealt} were lost");
    }

    /// Gives each task its number, and each file to the lane of its device. Returns how many there were.
    fn deal_out<'s>(
        &'s self,
        tasks: impl Iterator<Item = Option<Task<T>>>,
        scope: &'s Scope<'s, '_>,
    ) -> u64 {
        let mut windows: Vec<Window<T>> = Vec::new();
        let mut by_device = HashMap::new();
        let mut number = 0;
        for task in tasks {
            let Some(task) = task else {
                windows.iter_mut().for_each(|window| window.cut(self));
                continue;
            };
            if !self.turns.has_room(number) {
                // What is to make room is in there.
                windows.iter_mut().for_each(|window| window.cut(self));
            }
            let bytes = task.bytes(self.algorithms_of(&task)) + (self.options.weigh)(&task.tag);
            if !self.turns.wait_for_room(number, bytes) {
                break;
            }
            let ticket = Ticket::new(number, task, bytes);
            number += 1;
            let Some(file) = &ticket.task().file else {
                self.finish([ticket]);
                continue;
            };
            let device = (file.is_regular && !file.alone).then_some(file.device);
            let place = *by_device.entry(device).or_insert_with(|| {
                let lanes = windows.iter().filter(|window| window.sorts).count() as u32;
                windows.push(self.open_lane(device, lanes, scope));
                windows.len() - 1
            });
            windows[place].add(ticket, self);
        }
        for window in &mut windows {
            window.cut(self);
            window.lane.close();
        }
        number
    }

    /// Starts to work on another device; `None`: on what is read alone.
    /// `number`: of its lane among those of devices.
    fn open_lane<'s>(
        &'s self,
        device: Option<u64>,
        number: u32,
        scope: &'s Scope<'s, '_>,
    ) -> Window<T> {
        let options = self.options;
        let share = self.budget.lane(number, options.jobs, &options.hash.config);
        let lane = Arc::new(Lane::new(share));
        let work = {
            let lane = Arc::clone(&lane);
            move || match device {
                Some(_) => lane::work(self, &lane),
                None => lane::work_alone(self, &lane),
            }
        };
        let has_thread = thread::Builder::new().spawn_scoped(scope, work).is_ok();
        Window { lane, tickets: Vec::new(), sorts: device.is_some(), has_thread }
    }

    /// What to make of the file of a task.
    pub(super) fn algorithms_of<'t>(&'t self, task: &'t Task<T>) -> &'t Algorithms {
        let own = task.file.as_ref().and_then(|file| file.algorithms.as_ref());
        own.unwrap_or(&self.options.algorithms)
    }

    /// Tasks are done.
    pub(super) fn finish(&self, tickets: impl IntoIterator<Item = Ticket<T>>) {
        self.turns.finish(tickets);
    }

    /// Whether nobody wants to be told any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.turns.is_stopped()
    }
}

impl<T: Send> Window<T> {
    fn add(&mut self, ticket: Ticket<T>, run: &Run<'_, T>) {
        self.tickets.push(ticket);
        let enough = match (self.lane.is_hungry(), self.sorts) {
            (true, false) => 1,
            (true, true) => BATCH,
            (false, _) => WINDOW,
        };
        if self.tickets.len() >= enough {
            self.cut(run);
        }
    }

    /// Sorts the files by where they are, as far as that is known, and gives them to the lane.
    fn cut(&mut self, run: &Run<'_, T>) {
        if self.sorts {
            // The sort is stable: where inodes say nothing, the order of the names stays.
            self.tickets.sort_by_key(Ticket::inode);
        }
        let mut tickets = self.tickets.drain(..);
        loop {
            let batch: Vec<_> = tickets.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            match self.has_thread {
                true => self.lane.push(batch),
                // No thread could be had: then this one.
                false => batch.into_iter().for_each(|ticket| ticket::hash_alone(run, ticket)),
            }
        }
    }
}
