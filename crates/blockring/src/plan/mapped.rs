//! Carries out a plan for all of a source, whatever cannot be read of it.

use std::io;

use super::{Plan, Way};
use crate::error::{BoxError, Error, ErrorKind};
use crate::pump::Target;
use crate::unreadable::{Map, Mapped};

impl Plan<'_> {
    /// Goes through the whole source, one read after another on this thread, and tells `each` of every block
    /// that can be read and of every range that cannot be, in their order. A read is of 1 MiB; where one
    /// fails, it is halved down to the alignment of direct reads, or a page, until each bad unit is found.
    /// After a minute, what is left of such a block counts as bad; and so does a block that follows one
    /// of which nothing could be read, if none of 16 places in it can be. Memory is bounded: 1 MiB. `observe`
    /// is told of bytes that were gone through.
    ///
    /// Engine, depth and threads of the plan count for nothing, its cache mode does.
    ///
    /// Returns how many bytes cannot be read. If there are none, the blocks were all of a source that did not
    /// change meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`in_order`](Plan::in_order), but for errors that are of a place; `NotSeekable` for a source
    /// without places.
    pub fn map_errors(
        &self,
        observe: &dyn Fn(u64),
        mut each: impl FnMut(Mapped<'_>) -> Result<(), BoxError>,
    ) -> Result<u64, Error> {
        let target = match &self.way {
            Way::Ring { ring, .. } => self.target(ring),
            Way::Whole(_) => Target::plain(self.source),
            Way::Stream { .. } => {
                let what = "it has no places to go on from after a failed read";
                let error = io::Error::new(io::ErrorKind::NotSeekable, what);
                return Err(Error::new(self.source.path(), ErrorKind::read(0, 0, error)));
            }
        };
        let map = Map { target, rate_limit: self.rate_limit.as_ref(), observe };
        let mut bytes = 0;
        let result = self.timed(|| {
            bytes = map.run(self.all(), &mut each)?;
            Ok(())
        });
        self.finish(result).map(|()| bytes)
    }
}
