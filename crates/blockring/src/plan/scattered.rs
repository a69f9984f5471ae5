//! Carries out a plan for places that the caller names, instead of all from the start to the end.

use std::io;

use super::{Plan, Way};
use crate::advised;
use crate::batch::Extent;
use crate::config::Order;
use crate::error::{BoxError, Error, ErrorKind};
use crate::extents::{self, Extents};
use crate::workers::{self, Block};

impl Plan<'_> {
    /// Reads `extents`, each of them one block, with as many in flight as the plan says, and gives each to
    /// `consume` as it comes, on several threads at once. Nothing is joined or sorted: requests are made
    /// in the order of the list. For records of which each may fail alone, see
    /// [`BatchReader`](crate::BatchReader).
    ///
    /// The plan must be one for [`Order::AnyOrder`] of a source with places to read at. Each extent must
    /// start at a multiple of [`align`](Plan::align), be at most [`block_bytes`](Plan::block_bytes) long,
    /// and lie within the source; one of length 0 is left out.
    ///
    /// # Errors
    ///
    /// As for [`any_order`](Plan::any_order); `InvalidInput` for an extent that is not as said above, before
    /// anything is read.
    ///
    /// # Panics
    ///
    /// When `consume` does; what is in flight is ended first.
    pub fn extents_any_order(
        &self,
        extents: &[Extent],
        consume: impl Fn(Block<'_>) -> Result<(), BoxError> + Sync,
    ) -> Result<(), Error> {
        self.run(|| {
            extents.iter().try_for_each(|extent| self.check(extent))?;
            match &self.way {
                Way::Ring { .. } => {
                    let list = extents.iter().filter(|extent| extent.len > 0).enumerate();
                    let list = list.map(|(index, Extent { offset, len })| extents::Extent {
                        index: index as u64,
                        offset: *offset,
                        len: *len,
                    });
                    let list = Extents::of_list(list.collect());
                    self.with_extents(list, advised::for_places, |job, ring| {
                        workers::spread(job, ring, &consume)
                    })
                }
                _ => extents.iter().try_for_each(|Extent { offset, len }| {
                    self.read_whole(*offset..offset + u64::from(*len), &mut |block| consume(block))
                }),
            }
        })
    }

    fn check(&self, extent: &Extent) -> Result<(), ErrorKind> {
        let Extent { offset, len } = *extent;
        let end = offset.checked_add(len.into());
        let what = match self.places_len() {
            None => "the source has no places to read at",
            _ if self.order != Order::AnyOrder || self.engine().is_sequential() => {
                "the plan is for blocks in order"
            }
            Some(source_len) if end.is_none_or(|end| end > source_len) => {
                "the extent reaches past the end of the source"
            }
            _ if !offset.is_multiple_of(self.align()) => {
                "the extent does not start at a multiple of the alignment"
            }
            _ if u64::from(len) > self.block_bytes() => "the extent is longer than a block",
            _ => return Ok(()),
        };
        let error = io::Error::new(io::ErrorKind::InvalidInput, what);
        Err(ErrorKind::read(offset, 0, error))
    }
}
