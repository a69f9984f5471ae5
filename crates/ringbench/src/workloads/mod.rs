//! What can be measured: each workload plans its groups, and says what came of them.

pub(crate) mod batch;
pub(crate) mod compare;
mod fio;
pub(crate) mod limits;
mod peers;
pub(crate) mod pipe;
pub mod pipe_ends;
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

/// Random numbers from `state`: splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
pub(crate) fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
