//! Reads a file at full disk bandwidth, and counts the bytes:
//! `drain FILE [ENGINE [BLOCK_KIB [DEPTH [THREADS]]]]`

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use blockring::{Config, EngineKind, Plan, RunOptions, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args_os().nth(1).unwrap_or("/proc/self/exe".into());
    let args: Vec<String> = env::args().skip(2).collect();
    let number = |i: usize| args.get(i).map(|text| text.parse::<u32>()).transpose();
    let engine = |kind: &EngineKind| args.first().is_some_and(|name| name == kind.name());
    // Options that are not given are detected automatically.
    let mut config = Config::default();
    config.io.engine = EngineKind::ALL.into_iter().find(engine);
    config.io.block_bytes = number(1)?.map(|kib| kib << 10);
    config.io.queue_depth = number(2)?;
    config.io.workers = number(3)?.map(|threads| threads - 1);
    let source = Source::open(&path)?;
    let plan = Plan::choose(&source, &config, &RunOptions::default())?;
    let (bytes, start) = (AtomicU64::new(0), Instant::now());
    plan.any_order(&source, |block| {
        bytes.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    })?;
    let (bytes, seconds) = (bytes.into_inner(), start.elapsed().as_secs_f64());
    println!("{bytes} bytes of {} in {seconds:.4} s", path.display());
    Ok(())
}
