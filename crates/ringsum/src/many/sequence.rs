//! From the tasks, as they come, to the lanes of their devices: numbered, and sorted some thousand at a
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::{self, Scope};

use super::lane::{self, Lane, Ticket};
use super::order::{Order, Stop};
use super::{ManyOptions, Outcome, Task, Watch};

/// Most files that are sorted together. A tree that was written in one go lies in the order of its names,
/// and is read as fast in that; sorting is for those that were not.
const WINDOW: usize = 4096;

/// Most files of a batch, which one thread opens and reads together.
const BATCH: usize = 64;

/// One run over all tasks.
pub(super) struct Run<'a, T> {
    pub(super) options: &'a ManyOptions<'a, T>,
    order: Order<'a, T>,
}

/// The files of a lane that are not sorted into batches yet.
struct Window<T> {
    lane: Arc<Lane<T>>,
    tickets: Vec<Ticket<T>>,
}

impl<'a, T: Send> Run<'a, T> {
    pub(super) fn new(
        options: &'a ManyOptions<'a, T>,
        deliver: &'a (dyn Fn(Outcome<T>) -> bool + Sync),
    ) -> Run<'a, T> {
        Run { options, order: Order::new(options.unordered, deliver) }
    }

    /// Works until every task is told of.
    pub(super) fn run(&self, tasks: impl Iterator<Item = Task<T>>, watch: Option<&dyn Watch>) {
        thread::scope(|scope| {
            if let Some(watch) = watch {
                scope.spawn(|| watch.watch(&Stop::of(&self.order)));
            }
            thread::scope(|scope| self.deal_out(tasks, scope));
            if let Some(watch) = watch {
                watch.end();
            }
        });
    }

    /// Gives each task its number, and each file to the lane of its device.
    fn deal_out<'s>(&'s self, tasks: impl Iterator<Item = Task<T>>, scope: &'s Scope<'s, '_>) {
        let mut windows: Vec<Window<T>> = Vec::new();
        let mut by_device = HashMap::new();
        for (number, task) in (0_u64..).zip(tasks) {
            if !self.order.has_room(number) {
                // What is to make room is in there.
                windows.iter_mut().for_each(Window::cut);
            }
            if !self.order.wait_for_room(number) {
                break;
            }
            let Some(file) = &task.file else {
                self.finish(number, Outcome { task: Box::new(task), result: None });
                continue;
            };
            let device = file.is_regular.then_some(file.device);
            let place = *by_device.entry(device).or_insert_with(|| {
                let lane = Arc::new(Lane::default());
                windows.push(Window { lane: Arc::clone(&lane), tickets: Vec::new() });
                scope.spawn(move || match device {
                    Some(_) => lane::work(self, &lane),
                    None => lane::work_alone(self, &lane),
                });
                windows.len() - 1
            });
            let window = &mut windows[place];
            window.tickets.push(Ticket { number, task: Box::new(task) });
            let is_full = match window.lane.is_hungry() {
                true => device.is_none() || window.tickets.len() >= BATCH,
                false => window.tickets.len() >= WINDOW,
            };
            if is_full {
                window.cut();
            }
        }
        for window in &mut windows {
            window.cut();
            window.lane.close();
        }
    }

    /// Task `number` is done.
    pub(super) fn finish(&self, number: u64, outcome: Outcome<T>) {
        self.order.finish(number, outcome);
    }

    /// Whether nobody wants to be told any more.
    pub(super) fn is_stopped(&self) -> bool {
        self.order.is_stopped()
    }
}

impl<T> Window<T> {
    /// Sorts the files by where they are, as far as that is known, and gives them to the lane.
    fn cut(&mut self) {
        // The sort is stable: where inodes say nothing, the order of the names stays.
        self.tickets.sort_by_key(Ticket::inode);
        let mut tickets = std::mem::take(&mut self.tickets).into_iter();
        loop {
            let batch: Vec<_> = tickets.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return;
            }
            self.lane.push(batch);
        }
    }
}
