//! What raw results of reads mean: how far the reading of one extent is, and what to ask for next.
//!
//! Pure. The pump and the reading of small files in one go share it.

use std::io;

use crate::error::{Change, ErrorKind};
use crate::extents::Extent;

/// Times that one request may move nothing (`EINTR`, `EAGAIN`) before that is an error.
const RETRIES_MAX: u32 = 1000;

/// Times that a direct read, which starts again at its last whole sector, may bring no more than is there already.
/// A server that answers in parts of any length does that at random; at the end of a file that shrank, each does.
const STALE_MAX: u32 = 32;

/// One extent that is being read, by as many reads as it takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) extent: Extent,
    /// Bytes of the extent that are there, from its start.
    done: u32,
    retries: u32,
}

/// The part of an extent to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// Bytes of the extent, and of its memory, before this part.
    pub(crate) skip: u32,
    /// Place in the source.
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

impl Request {
    pub(crate) fn new(extent: Extent) -> Request {
        Request { extent, done: 0, retries: 0 }
    }

    /// What is missing. `align`: offsets and lengths must be multiples of it; 1 unless direct.
    pub(crate) fn missing(&self, align: u32) -> Part {
        // What came of a sector that did not come whole is asked for again.
        let skip = self.done / align * align;
        // Round up, but no further: asked for a whole block at the end of a file, the kernel zeroes
        // what the file does not have (13 % of all CPU time on a tree of small files).
        let len = (self.extent.len - skip).next_multiple_of(align);
        Part { skip, offset: self.extent.offset + u64::from(skip), len }
    }

    /// Takes down the result of reading [`missing`](Request::missing). Returns whether the extent is
    /// whole now; if not, ask again. `source_len`: bytes of the source, for the message; `None` if only
    /// its end tells: then the extent is cut off there.
    ///
    /// # Errors
    ///
    /// The read failed, or a source of known length ended before the extent does.
    pub(crate) fn complete(
        &mut self,
        result: io::Result<u32>,
        align: u32,
        source_len: Option<u64>,
    ) -> Result<bool, ErrorKind> {
        let Part { skip, offset, .. } = self.missing(align);
        match result {
            Ok(n) => {
                let done = skip.saturating_add(n).min(self.extent.len);
                if done <= self.done && n > 0 && align > 1 && self.retries < STALE_MAX {
                    self.retries += 1;
                    return Ok(false);
                }
                if done <= self.done {
                    // Nothing moved: the source ends here, whatever it said at the opening.
                    let Some(source_len) = source_len else {
                        self.extent.len = self.done;
                        return Ok(true);
                    };
                    let to = self.extent.offset + u64::from(self.done);
                    return Err(ErrorKind::Changed(Change::Shrank { from: source_len, to }));
                }
                (self.done, self.retries) = (done, 0);
                Ok(done == self.extent.len)
            }
            Err(error) if is_transient(&error) && self.retries < RETRIES_MAX => {
                self.retries += 1;
                Ok(false)
            }
            Err(error) => {
                let len = (self.extent.len - skip).into();
                Err(ErrorKind::read(offset, len, error))
            }
        }
    }
}

/// Whether asking again may help: an interruption, a want of memory, or a chain of linked requests
/// that broke before this one.
fn is_transient(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(len: u32) -> Request {
        Request::new(Extent { index: 0, offset: 4096, len })
    }

    #[test]
    fn a_direct_read_asks_for_whole_sectors_and_no_more() {
        let mut r = request(5000);
        assert_eq!(r.missing(4096), Part { skip: 0, offset: 4096, len: 8192 });
        // A short read in the middle: go on from the last whole sector.
        assert!(!r.complete(Ok(4500), 4096, Some(9096)).unwrap());
        assert_eq!(r.missing(4096), Part { skip: 4096, offset: 8192, len: 4096 });
        // The tail is short since the file ends there.
        assert!(r.complete(Ok(904), 4096, Some(9096)).unwrap());
    }

    #[test]
    fn bytes_past_the_extent_do_not_count() {
        let mut r = request(100);
        assert!(r.complete(Ok(512), 512, Some(100)).unwrap());
    }

    #[test]
    fn an_early_end_is_a_change_not_a_hang() {
        for align in [1, 512] {
            let mut r = request(5000);
            assert!(!r.complete(Ok(700), align, Some(9096)).unwrap());
            let rest = if align == 1 { 0 } else { 700 % 512 };
            let stale = if align == 1 { 0 } else { STALE_MAX };
            assert!((0..stale).all(|_| !r.complete(Ok(rest), align, Some(9096)).unwrap()));
            match r.complete(Ok(rest), align, Some(9096)).unwrap_err() {
                ErrorKind::Changed(Change::Shrank { from: 9096, to: 4796 }) => {}
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn a_part_that_brings_less_than_the_last_one_is_no_end() {
        let mut r = request(1000);
        assert!(!r.complete(Ok(700), 512, Some(9096)).unwrap());
        assert!(!r.complete(Ok(100), 512, Some(9096)).unwrap());
        assert!(r.complete(Ok(488), 512, Some(9096)).unwrap());
    }

    #[test]
    fn where_only_the_end_tells_it_cuts_the_extent_off() {
        let mut r = request(5000);
        assert!(!r.complete(Ok(700), 1, None).unwrap());
        assert!(r.complete(Ok(0), 1, None).unwrap());
        assert_eq!(r.extent.len, 700);
        let mut r = request(5000);
        assert!(r.complete(Ok(0), 1, None).unwrap());
        assert_eq!(r.extent.len, 0);
    }

    #[test]
    fn interruptions_are_retried_but_not_for_ever() {
        let mut r = request(10);
        let interrupted = || Err(io::Error::from_raw_os_error(libc::EINTR));
        for _ in 0..RETRIES_MAX {
            assert!(!r.complete(interrupted(), 1, Some(10)).unwrap());
        }
        assert!(r.complete(interrupted(), 1, Some(10)).is_err());
    }
}
