//! Deals out parts of many files to rings that share them, and looks after each file until its last part.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shared;
use crate::error::ErrorKind;
use crate::extents::Extent;
use crate::pump::{self, Target};
use crate::source::Source;

/// A file to be read, and what belongs to it.
#[derive(Debug)]
pub struct Member<T> {
    /// The file; it has content.
    pub source: Source,
    /// The caller's.
    pub state: T,
}

/// Where the rings that share it take their files from.
pub struct Feed<'s, T> {
    shared: &'s Shared,
    block_bytes: u32,
    next: Box<dyn Fn() -> Option<Member<T>> + Send + Sync + 's>,
    state: Mutex<State<T>>,
    /// Files that could not even be begun.
    pub(super) refused: Mutex<Vec<(Member<T>, ErrorKind)>>,
}

pub(super) struct State<T> {
    /// Files with parts that were not consumed yet, by the index of their extents.
    files: Vec<Option<Arc<InRing<T>>>>,
    free: Vec<usize>,
    /// The file that is being dealt out, and how far.
    current: Option<(usize, u64)>,
    /// Files that come after it.
    pending: VecDeque<usize>,
    /// There was none when we last asked.
    pub(super) is_dry: bool,
    is_stopped: bool,
}

/// A file of which parts are in the rings.
pub(super) struct InRing<T> {
    pub(super) member: Member<T>,
    len: u64,
    flags: i32,
    align: u32,
    /// Bytes that were not consumed yet, or given up.
    left: AtomicU64,
    pub(super) failed: Mutex<Option<ErrorKind>>,
}

pub(super) fn lock<X>(mutex: &Mutex<X>) -> MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'s, T> Feed<'s, T> {
    /// `next` gives the files, or nothing for now; it may open them. Their order is that of the reads.
    pub(super) fn new(
        shared: &'s Shared,
        block_bytes: u32,
        next: impl Fn() -> Option<Member<T>> + Send + Sync + 's,
    ) -> Feed<'s, T> {
        let state = State {
            files: Vec::new(),
            free: Vec::new(),
            current: None,
            pending: VecDeque::new(),
            is_dry: false,
            is_stopped: false,
        };
        Feed {
            shared,
            block_bytes,
            next: Box::new(next),
            state: Mutex::new(state),
            refused: Mutex::default(),
        }
    }

    /// Bytes of each block but the last of a file.
    pub(super) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State<T>> {
        lock(&self.state)
    }

    pub(super) fn file(&self, index: u64) -> Option<Arc<InRing<T>>> {
        self.state().files.get(index as usize).cloned().flatten()
    }

    /// Takes the next file in, which may have to be opened: others go on meanwhile. False: there is none
    /// for now.
    fn take_in(&self) -> bool {
        loop {
            let Some(member) = (self.next)() else {
                self.state().is_dry = true;
                return false;
            };
            match self.shared.target(&member.source) {
                Ok((flags, align)) => {
                    let len = member.source.len().unwrap_or(0);
                    if len == 0 {
                        let error = io::Error::new(io::ErrorKind::UnexpectedEof, "it is empty");
                        lock(&self.refused).push((member, ErrorKind::read(0, 0, error)));
                        continue;
                    }
                    let (left, failed) = (AtomicU64::new(len), Mutex::default());
                    let file = Arc::new(InRing { member, len, flags, align, left, failed });
                    let mut state = self.state();
                    let index = state.free.pop().unwrap_or(state.files.len());
                    match state.files.get_mut(index) {
                        Some(place) => *place = Some(file),
                        None => state.files.push(Some(file)),
                    }
                    state.pending.push_back(index);
                    return true;
                }
                Err(why) => lock(&self.refused).push((member, why)),
            }
        }
    }

    /// The smallest reads of a file that it can be read with.
    pub(super) fn smallest<'f>(&self, file: &'f InRing<T>) -> Target<'f> {
        let align = file.align.min(self.shared.sector_bytes);
        Target { flags: file.flags, align, ..Target::plain(&file.member.source) }
    }

    /// So many bytes of a file are done with. Returns whether they were the last.
    pub(super) fn finish_part(&self, index: u64, file: &InRing<T>, bytes: u64) -> bool {
        if file.left.fetch_sub(bytes, Ordering::AcqRel) != bytes {
            return false;
        }
        let mut state = self.state();
        state.files[index as usize] = None;
        state.free.push(index as usize);
        true
    }

    /// Reads no more of a file than is in flight already. Returns the bytes that are left out.
    pub(super) fn give_up(&self, index: u64) -> u64 {
        let mut state = self.state();
        match state.current {
            Some((current, offset)) if current as u64 == index => {
                state.current = None;
                state.files[current].as_ref().map_or(0, |file| file.len - offset)
            }
            _ => 0,
        }
    }
}

impl<T: Send + Sync> pump::Supply for Feed<'_, T> {
    fn claim(&self) -> Option<(Extent, Target<'_>)> {
        let mut state = self.state();
        let (index, offset) = loop {
            if state.is_stopped {
                return None;
            }
            if state.current.is_none() {
                state.current = state.pending.pop_front().map(|index| (index, 0));
            }
            if let Some(current) = state.current {
                break current;
            }
            drop(state);
            if !self.take_in() {
                return None;
            }
            state = self.state();
        };
        let file = state.files[index].as_ref()?;
        let len = (file.len - offset).min(self.block_bytes.into());
        let target = Target {
            // SAFETY: the file stays open until all of its bytes were consumed or given up, and those of
            // this extent are neither before its read has ended; this feed outlives the pumps that
            // read from it. (A pump keeps the number for longer, and does not look at it again.)
            fd: unsafe { BorrowedFd::borrow_raw(file.member.source.as_fd().as_raw_fd()) },
            seekable: true,
            flags: file.flags,
            align: file.align,
            source_len: Some(file.len),
        };
        let next = offset + len;
        state.current = (next < file.len).then_some((index, next));
        Some((Extent { index: index as u64, offset, len: len as u32 }, target))
    }

    fn stop(&self) {
        self.state().is_stopped = true;
    }

    fn left(&self) -> u64 {
        let state = self.state();
        match (state.is_stopped, state.current) {
            (false, Some((index, offset))) => {
                let len = state.files[index].as_ref().map_or(0, |file| file.len);
                (len - offset).div_ceil(self.block_bytes.into())
            }
            // How many there will be, is not known.
            (false, None) if !state.is_dry => 1,
            _ => 0,
        }
    }
}

impl<T> Feed<'_, T> {
    /// Takes back what no reader will finish any more.
    pub fn abandon(&mut self, mut each: impl FnMut(&T, &Source)) {
        let mut state = self.state();
        (state.current, state.pending) = (None, VecDeque::new());
        state.free.clear();
        let files = std::mem::take(&mut state.files);
        drop(state);
        for file in files.into_iter().flatten() {
            each(&file.member.state, &file.member.source);
        }
        for (member, _) in std::mem::take(&mut *lock(&self.refused)) {
            each(&member.state, &member.source);
        }
    }
}
