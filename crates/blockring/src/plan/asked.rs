//! What was asked for that a stream cannot have: refused, but only when there is something to read.

use std::sync::{Mutex, PoisonError};

use crate::config::{CacheMode, EngineKind};
use crate::error::{BoxError, ErrorKind};
use crate::source::{Source, SourceKind};

/// What a stream cannot have.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) engine: Option<EngineKind>,
    pub(super) cache: Option<CacheMode>,
    pub(super) medium: bool,
}

impl Asked {
    /// Runs `read`, whose consumers check first whether they may.
    pub(super) fn or_refuse(
        &self,
        source: &Source,
        read: impl FnOnce(&Refusal<'_>) -> Result<(), ErrorKind>,
    ) -> Result<(), ErrorKind> {
        let refusal = Refusal { asked: self, source, refused: Mutex::default() };
        let result = read(&refusal);
        let refused = refusal.refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        refused.map_or(result, Err)
    }

    pub(super) fn refuse_for(&self, source: &Source) -> Result<(), ErrorKind> {
        let what = what_stream(source);
        if self.medium {
            return Err(ErrorKind::Medium(format!("{what} is read as it comes")));
        }
        if let Some(engine) = self.engine.filter(|engine| *engine != EngineKind::Stream) {
            let why = format!(
                "it reads regular files and block devices from their start, and this is {what}; name \
                 no engine, or stream"
            );
            return Err(ErrorKind::Engine { engine, why });
        }
        if let Some(cache @ (CacheMode::Direct | CacheMode::Dontcache)) = self.cache {
            let why = format!("{what} is read as it comes; name no cache mode");
            return Err(ErrorKind::Cache { cache, why });
        }
        Ok(())
    }
}

/// Refuses what was asked for when the first bytes come.
pub(super) struct Refusal<'a> {
    asked: &'a Asked,
    source: &'a Source,
    refused: Mutex<Option<ErrorKind>>,
}

impl Refusal<'_> {
    pub(super) fn check(&self) -> Result<(), BoxError> {
        self.asked.refuse_for(self.source).map_err(|kind| {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(kind);
            "refused".into()
        })
    }
}

fn what_stream(source: &Source) -> &'static str {
    match source.kind() {
        SourceKind::File if source.is_begun() => "a file that is read as it comes",
        SourceKind::File => "a file that does not say how long it is",
        kind => kind.name(),
    }
}
