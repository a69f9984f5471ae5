//! How fast short inputs are hashed, one after another and side by side: the numbers of `bench/RESULTS.md`.
//!
//! ```console
//! $ cargo run --release --example short_inputs
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringsum::{Mode, MultiBuffer};

/// Inputs that are hashed together, and how often all of them are.
const INPUTS: usize = 64;
const ROUNDS: usize = 2000;

/// Bytes that stay in a core's own cache.
const CACHED_BYTES: usize = 256 << 10;

/// The median of the times of one call.
fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..9)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let bytes: Vec<u8> = (0..CACHED_BYTES).map(|i| (i % 251) as u8).collect();
    let multi_buffer = MultiBuffer::new(&Mode::Hash);
    println!("Both are the same on a processor that has neither AVX-512 nor AVX2.\n");
    println!("| bytes | one after another, GB/s | side by side, GB/s | |\n|---|---|---|---|");
    for len in [100, 1000, 2000, 4000, 10_000, 30_000, 60_000, 100_000, 250_000] {
        let rounds = (ROUNDS * 1000 / len).clamp(50, ROUNDS);
        let most = CACHED_BYTES - len;
        let inputs: Vec<_> =
            (0..INPUTS).map(|i| i * len % most).map(|start| &bytes[start..][..len]).collect();
        let together = (CACHED_BYTES / len).clamp(1, INPUTS);
        let one_by_one = median(|| {
            for _ in 0..rounds {
                for input in &inputs {
                    black_box(blake3::hash(input));
                }
            }
        });
        let side_by_side = median(|| {
            for _ in 0..rounds {
                for inputs in inputs.chunks(together) {
                    black_box(multi_buffer.hash(inputs));
                }
            }
        });
        let speed = |time: Duration| (INPUTS * len * rounds) as f64 / time.as_secs_f64() / 1e9;
        let ratio = one_by_one.as_secs_f64() / side_by_side.as_secs_f64();
        let (one, many) = (speed(one_by_one), speed(side_by_side));
        println!("| {len} | {one:.2} | {many:.2} | {ratio:.1}x |");
    }
}
