//! Reading on this thread, one `pread` after another: what is in the page cache, and files so small
//! that there is nothing to do meanwhile.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;

use crate::error::{BoxError, ErrorKind};
use crate::extents::{Extent, Extents};
use crate::rate::RateLimit;
use crate::request::Request;
use crate::source::Source;
use crate::stats::{Brought, Recorder};
use crate::sys;
use crate::workers::Block;

/// What is read so, and how.
pub(crate) struct Sequential<'a> {
    pub(crate) source: &'a Source,
    /// `RWF_*` of each read.
    pub(crate) flags: i32,
    pub(crate) rate_limit: Option<&'a RateLimit>,
}

impl Sequential<'_> {
    /// Reads `range`, of which nothing is past the end, in blocks of the length of `buffer`. Of a
    /// source that does not say how long it is, reads all, whatever the range. `recorder` has one slot.
    pub(crate) fn read(
        &self,
        range: Range<u64>,
        buffer: &mut [u8],
        recorder: &mut Recorder<'_>,
        consume: &mut dyn FnMut(Block<'_>) -> Result<(), BoxError>,
    ) -> Result<(), ErrorKind> {
        let range = if self.source.len().is_some() { range } else { 0..u64::MAX };
        let extents = Extents::new(range, buffer.len() as u32);
        while let Some(extent) = extents.claim() {
            self.wait_for_limit(extent.len, recorder);
            let len = self.bring(extent, buffer, recorder)?;
            if len > 0 {
                recorder.lends(0, extent.offset, 0);
                let start = recorder.start();
                let bytes = &buffer[..len as usize];
                let consumed = consume(Block { index: extent.index, offset: extent.offset, bytes });
                recorder.consumed(start, len, false);
                consumed.map_err(ErrorKind::Consumer)?;
            }
            if len < extent.len {
                break;
            }
        }
        Ok(())
    }

    fn wait_for_limit(&self, bytes: u32, recorder: &mut Recorder<'_>) {
        let Some(limit) = self.rate_limit else { return };
        let start = recorder.start();
        while !limit.due_in().is_zero() {
            limit.nap();
        }
        recorder.waited_for_limit(start);
        limit.charge(bytes.into());
    }

    /// Reads one extent. Returns its length, which is less than was asked for where the source ends.
    fn bring(
        &self,
        extent: Extent,
        buffer: &mut [u8],
        recorder: &mut Recorder<'_>,
    ) -> Result<u32, ErrorKind> {
        let source_len = self.source.len();
        let mut request = Request::new(extent);
        let mut flags = self.flags;
        loop {
            let part = request.missing(1);
            let rest = &mut buffer[part.skip as usize..][..part.len as usize];
            recorder.requested(0, 1);
            let start = recorder.start();
            let read = sys::pread_into(self.source.as_fd(), rest, part.offset, flags);
            recorder.waited_for_device(start);
            if flags != 0 && read.as_ref().is_err_and(is_refusal) {
                // Another file system, in the midst of one that has the flags: a file of its own is
                // mounted there.
                flags = 0;
                continue;
            }
            let moved = read.is_ok();
            let complete = request.complete(read.map(|n| n as u32), 1, source_len);
            recorder.completed(0, extent.offset, Brought::by(&complete, moved));
            match complete {
                Ok(false) => {}
                Ok(true) => return Ok(request.extent.len),
                // Files of sysfs say 4096 bytes whatever they hold. If nothing changed, the file did
                // not shrink: it never had that length, and this is all of it.
                Err(ErrorKind::Changed(_)) if self.source.unchanged().is_ok() => {
                    return Ok(part.skip);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether an error means that a file cannot be read so, though another one could: it lies elsewhere,
/// or its file system has something against direct or uncached reads of it.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP))
}
