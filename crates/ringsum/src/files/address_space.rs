//! Starting threads only if the address space has room for them.

use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// Stack of a thread, in bytes: the default of the standard library.
const STACK_BYTES: u64 = 2 << 20;

/// Address space that stays free for everything else, in bytes.
const HEADROOM_BYTES: u64 = 16 << 20;

/// Whether a thread that allocates `bytes` of its own may start. Always true unless `RLIMIT_AS` is
/// set: a thread that leaves too little address space for the others would abort the process.
///
/// (glibc reserves another 64 MiB for each thread that allocates, unless `mallopt` limits the
/// arenas. It works without them.)
pub(super) fn may_start(bytes: u64) -> bool {
    static LIMIT: OnceLock<Option<u64>> = OnceLock::new();
    let Some(limit) = *LIMIT.get_or_init(|| getrlimit(Resource::As).current) else { return true };
    // Unknown counts as full.
    let used = address_space_bytes().unwrap_or(u64::MAX);
    used.saturating_add(STACK_BYTES + bytes + HEADROOM_BYTES) <= limit
}

/// The size of the process's address space, in bytes.
fn address_space_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_space_is_known() {
        let before = address_space_bytes().unwrap();
        let mapping = vec![0_u8; 64 << 20];
        assert!(address_space_bytes().unwrap() >= before + (60 << 20));
        drop(mapping);
        assert!(may_start(0) && may_start(1 << 30), "no limit is set");
    }
}
