//! Interprets raw results (short reads, interruptions, the end of the source), and determines what
//! to request next.
//!
//! Pure. Every read of a source is handled here.

use std::io;

use super::extents::IndexedExtent;
use crate::error::{Change, ErrorKind};
use crate::observe::stats::ReadOutcome;

/// Times that one request may transfer nothing (`EINTR`, `EAGAIN`) before that is an error.
const RETRIES_MAX: u32 = 1000;

/// Times that a direct read, which restarts at its last whole sector, may return no more than was
/// already read. A server that answers in parts of any length does so occasionally; at the end of a
/// file that shrank, every read does.
const STALE_MAX: u32 = 32;

/// One extent that is being read, by as many reads as it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) extent: IndexedExtent,
    /// Bytes of the extent that have been read, from its start.
    done: u32,
    retries: u32,
}

/// The part of an extent to request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes of the extent, and of its memory, before this part.
    pub(crate) skip: u32,
    /// Offset in the source.
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Request {
    pub(crate) fn new(extent: IndexedExtent) -> Request {
        Request { extent, done: 0, retries: 0 }
    }

    /// The missing part. `align`: offsets and lengths must be multiples of it; 1 unless direct.
    pub(crate) fn missing(&self, align: u32) -> Part {
        // A sector that was read in part is requested again.
        let skip = self.done / align * align;
        // Round up, but no further: if a whole block is requested at the end of a file, the kernel
        // zeroes the part beyond it (13 % of all CPU time on a tree of small files).
        let len = (self.extent.len - skip).next_multiple_of(align);
        Part { skip, offset: self.extent.offset + u64::from(skip), len }
    }

    /// Processes the result of reading [`missing`](Request::missing). `source_len`: length of the
    /// source in bytes; `None` if it is unknown, so that its end truncates the extent. Otherwise it
    /// is an error if the source ends before the extent.
    pub(crate) fn complete(
        &mut self,
        result: io::Result<u32>,
        align: u32,
        source_len: Option<u64>,
    ) -> Result<ReadOutcome, ErrorKind> {
        let Part { skip, offset, .. } = self.missing(align);
        match result {
            Ok(n) => {
                let done = skip.saturating_add(n).min(self.extent.len);
                if done <= self.done && n > 0 && align > 1 && self.retries < STALE_MAX {
                    self.retries += 1;
                    return Ok(ReadOutcome::Short);
                }
                if done <= self.done {
                    // No progress: the source ends here, whatever length it reported.
                    let Some(source_len) = source_len else {
                        self.extent.len = self.done;
                        return Ok(ReadOutcome::Over);
                    };
                    let to = self.extent.offset + u64::from(self.done);
                    return Err(ErrorKind::Changed(Change::Shrank { from: source_len, to }));
                }
                (self.done, self.retries) = (done, 0);
                Ok(if done == self.extent.len { ReadOutcome::Over } else { ReadOutcome::Short })
            }
            Err(error) if is_transient(&error) && self.retries < RETRIES_MAX => {
                self.retries += 1;
                Ok(ReadOutcome::Retry)
            }
            Err(error) => Err(ErrorKind::read(offset, (self.extent.len - skip).into(), error)),
        }
    }
}

/// Whether the same request may succeed next time: an interruption, a lack of memory, or a chain of
/// linked requests that broke before this one.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ReadOutcome::{Over, Retry, Short};

    fn request(len: u32) -> Request {
        Request::new(IndexedExtent { index: 0, offset: 4096, len })
    }

    #[test]
    fn a_direct_read_requests_whole_sectors_and_no_more() {
        let mut r = request(5000);
        assert_eq!(r.missing(4096), Part { skip: 0, offset: 4096, len: 8192 });
        // A short read in the middle: go on from the last whole sector.
        assert_eq!(r.complete(Ok(4500), 4096, Some(9096)).unwrap(), Short);
        assert_eq!(r.missing(4096), Part { skip: 4096, offset: 8192, len: 4096 });
        // The tail is short because the file ends there.
        assert_eq!(r.complete(Ok(904), 4096, Some(9096)).unwrap(), Over);
    }

    #[test]
    fn bytes_past_the_extent_do_not_count() {
        let mut r = request(100);
        assert_eq!(r.complete(Ok(512), 512, Some(100)).unwrap(), Over);
    }

    #[test]
    fn an_early_end_is_a_change_not_a_hang() {
        for align in [1, 512] {
            let mut r = request(5000);
            assert_eq!(r.complete(Ok(700), align, Some(9096)).unwrap(), Short);
            let rest = if align == 1 { 0 } else { 700 % 512 };
            let stale = if align == 1 { 0 } else { STALE_MAX };
            assert!((0..stale).all(|_| r.complete(Ok(rest), align, Some(9096)).unwrap() == Short));
            match r.complete(Ok(rest), align, Some(9096)).unwrap_err() {
                ErrorKind::Changed(Change::Shrank { from: 9096, to: 4796 }) => {}
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_read_that_returns_less_than_the_last_one_is_not_the_end() {
        let mut r = request(1000);
        assert_eq!(r.complete(Ok(700), 512, Some(9096)).unwrap(), Short);
        assert_eq!(r.complete(Ok(100), 512, Some(9096)).unwrap(), Short);
        assert_eq!(r.complete(Ok(488), 512, Some(9096)).unwrap(), Over);
    }

    #[test]
    fn the_end_of_a_stream_cuts_the_extent_off() {
        let mut r = request(5000);
        assert_eq!(r.complete(Ok(700), 1, None).unwrap(), Short);
        assert_eq!(r.complete(Ok(0), 1, None).unwrap(), Over);
        assert_eq!(r.extent.len, 700);
        let mut r = request(5000);
        assert_eq!(r.complete(Ok(0), 1, None).unwrap(), Over);
        assert_eq!(r.extent.len, 0);
    }

    #[test]
    fn interruptions_are_retried_but_not_for_ever() {
        let mut r = request(10);
        let interrupted = || Err(io::Error::from_raw_os_error(libc::EINTR));
        for _ in 0..RETRIES_MAX {
            assert_eq!(r.complete(interrupted(), 1, Some(10)).unwrap(), Retry);
        }
        assert!(r.complete(interrupted(), 1, Some(10)).is_err());
    }
}
