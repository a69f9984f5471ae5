//! Reads a file as fast as the device gives it, and counts the bytes: `drain FILE`

use std::sync::atomic::{AtomicU64, Ordering};

use blockring::{Source, any_order};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).unwrap_or("/proc/self/exe".into());
    let source = Source::open(&path)?;
    let bytes = AtomicU64::new(0);
    any_order(&source, |block| {
        bytes.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    })?;
    println!("{} bytes in {}", bytes.into_inner(), path.display());
    Ok(())
}
