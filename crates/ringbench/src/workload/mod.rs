//! What can be measured: each workload plans its groups, and says what came of them.

pub(crate) mod batch;
pub(crate) mod compare;
mod fio;
pub(crate) mod limits;
mod peers;
pub(crate) mod pipe;
pub(crate) mod pool;
pub(crate) mod random;
mod reading;
pub(crate) mod sweep;
mod target;
pub(crate) mod tune;
mod ways;

use blockring::{CacheMode, EngineKind};

/// An engine by its name.
fn parse_engine(text: &str) -> Result<EngineKind, String> {
    let names: Vec<_> = EngineKind::ALL.iter().map(|engine| engine.name()).collect();
    let found = EngineKind::ALL.into_iter().find(|engine| engine.name() == text);
    found.ok_or_else(|| format!("one of {}", names.join(", ")))
}

/// A cache mode by its name.
fn parse_cache(text: &str) -> Result<CacheMode, String> {
    let names: Vec<_> = CacheMode::ALL.iter().map(|cache| cache.name()).collect();
    let found = CacheMode::ALL.into_iter().find(|cache| cache.name() == text);
    found.ok_or_else(|| format!("one of {}", names.join(", ")))
}
