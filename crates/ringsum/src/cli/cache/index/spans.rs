//! The paths that were asked for or put, kept as few spans and not one by one.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};

/// Spans of seen paths that are held at most: some 16 MB for paths of 100 bytes.
pub(super) const SPANS_MAX: usize = 1 << 16;

/// The paths that were seen, as spans from a first to a last: all rows within one were seen.
#[derive(Debug, Default)]
pub(super) struct Spans(pub(super) BTreeMap<Vec<u8>, Vec<u8>>);

impl Spans {
    /// The end of the last span that starts at or before `path`.
    pub(super) fn end_before(&self, path: &[u8]) -> Option<&[u8]> {
        let before = self.0.range::<[u8], _>((Unbounded, Included(path))).next_back();
        before.map(|(_, end)| end.as_slice())
    }

    /// Adds a path that is in no span: to the one before it, or as one of its own.
    pub(super) fn add(&mut self, path: &[u8], is_joined: bool) {
        let is_full = self.0.len() >= SPANS_MAX;
        let before = self.0.range_mut::<[u8], _>((Unbounded, Excluded(path))).next_back();
        match before {
            // Full: what lies between counts as seen, and stays.
            Some((_, end)) if is_joined || is_full => {
                end.clear();
                end.extend_from_slice(path);
            }
            None if is_full => {
                if let Some((_, end)) = self.0.pop_first() {
                    self.0.insert(path.to_vec(), end);
                }
            }
            _ => {
                self.0.insert(path.to_vec(), path.to_vec());
            }
        }
    }

    /// What lies between `low` and `high` and in no span, each without its ends.
    pub(super) fn gaps<'a>(&'a self, low: &'a [u8], high: &'a [u8]) -> Vec<(&'a [u8], &'a [u8])> {
        let mut gaps = Vec::new();
        let mut from = low;
        for (start, end) in self.0.iter().filter(|(_, end)| end.as_slice() >= low) {
            if start.as_slice() >= high {
                break;
            }
            if from < start.as_slice() {
                gaps.push((from, start.as_slice()));
            }
            from = from.max(end);
        }
        if from < high {
            gaps.push((from, high));
        }
        gaps
    }
}
