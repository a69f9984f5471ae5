//! The engine of streams, which does nothing: a stream's supply reads while it claims
//! (`pipe/stream_supply.rs`).
#![allow(unsafe_code)]

use std::io;

use super::{Completion, Engine, Read};

/// An engine that never gets a request.
pub(crate) struct StreamEngine;

impl Engine for StreamEngine {
    unsafe fn submit(&mut self, _: Read<'_>) -> io::Result<Option<Completion>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "a stream has no extents to read"))
    }
}
