//! Reads a file as fast as the device gives it, and counts the bytes:
//! `drain FILE [ENGINE [BLOCK_KIB [DEPTH]]]`

use std::env;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use blockring::{Config, EngineKind, Order, Plan, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = env::args_os().nth(1).unwrap_or("/proc/self/exe".into());
    let args: Vec<String> = env::args().skip(2).collect();
    let number = |i: usize| args.get(i).map(|text| text.parse::<u32>()).transpose();
    // What is not given is chosen by the facts of the file.
    let config = Config {
        engine: EngineKind::ALL
            .into_iter()
            .find(|kind| args.first().is_some_and(|a| a == kind.name())),
        block_bytes: number(1)?.map(|kib| kib << 10),
        depth: number(2)?,
        ..Config::default()
    };
    let source = Source::open(&path)?;
    let plan = Plan::choose(&source, &config, Order::AnyOrder)?;
    let (bytes, start) = (AtomicU64::new(0), Instant::now());
    plan.any_order(|block| {
        bytes.fetch_add(block.bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    })?;
    let (bytes, seconds) = (bytes.into_inner(), start.elapsed().as_secs_f64());
    println!("{bytes} bytes of {} in {seconds:.4} s", path.display());
    Ok(())
}
