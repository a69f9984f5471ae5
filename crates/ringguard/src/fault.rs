//! Fault points: a build with debug assertions kills itself at the point whose number
//! `RINGGUARD_FAULT` has, so that tests can show that the next run completes what was begun.

/// A point before or after a write, an fsync or a rename.
pub(crate) fn point() {
    #[cfg(debug_assertions)]
    debug::point();
}

/// Most bytes that are read between two checkpoints, if a test wants fewer than there should be.
pub(crate) fn batch_bytes() -> Option<u64> {
    #[cfg(debug_assertions)]
    return std::env::var("RINGGUARD_BATCH").ok()?.parse().ok();
    #[cfg(not(debug_assertions))]
    None
}

/// A partial sidecar was opened and locked. `RINGGUARD_TAKEN`: another process completed it before.
pub(crate) fn opened(path: &std::path::Path) {
    #[cfg(debug_assertions)]
    if let Some(name) = std::env::var_os("RINGGUARD_TAKEN")
        && !std::path::Path::new(&name).exists()
    {
        let _ = std::fs::rename(path, &name);
    }
    #[cfg(not(debug_assertions))]
    let _ = path;
}

/// Replaces a byte that was just written, if a test wants a device that fails: that at the offset
/// `RINGGUARD_SPOIL` of a file.
pub(crate) fn spoil(file: &std::fs::File, offset: u64, len: usize) -> std::io::Result<()> {
    #[cfg(debug_assertions)]
    if let Some(at) = std::env::var("RINGGUARD_SPOIL").ok().and_then(|text| text.parse().ok())
        && (offset..offset + len as u64).contains(&at)
    {
        use std::os::unix::fs::FileExt;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        file.write_all_at(&[!byte[0]], at)?;
    }
    #[cfg(not(debug_assertions))]
    let _ = (file, offset, len);
    Ok(())
}

/// Whether a test wants the disk to be rotational.
pub(crate) fn is_rotational() -> bool {
    cfg!(debug_assertions) && std::env::var_os("RINGGUARD_ROTATIONAL").is_some()
}

#[cfg(debug_assertions)]
mod debug {
    use std::sync::atomic::{AtomicU64, Ordering};

    static PASSED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn point() {
        let number = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
        let wanted = std::env::var("RINGGUARD_FAULT").ok().and_then(|text| text.parse().ok());
        if wanted == Some(number) {
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
            loop {
                std::thread::park();
            }
        }
    }
}
