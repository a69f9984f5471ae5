//! SHA-256 of a file, read through the ring and hashed in order: `sha256 FILE`

use blockring::{Config, Order, Plan, RunOptions, Source};
use sha2::{Digest, Sha256};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).unwrap_or("/proc/self/exe".into());
    let source = Source::open(&path)?;
    let mut hasher = Sha256::new();
    let run = RunOptions { order: Order::InOrder, ..RunOptions::default() };
    Plan::choose(&source, &Config::default(), &run)?.in_order(&source, |block| {
        hasher.update(block.bytes);
        Ok(())
    })?;
    let digest = hasher.finalize();
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{hex}  {}", path.display());
    Ok(())
}
