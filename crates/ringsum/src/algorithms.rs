//! `--algorithm list`: which digests there are, and how fast one core makes them here.

use std::hint::black_box;
use std::time::{Duration, Instant};

use ringsum::Algorithm;

use crate::output::{Output, OutputError};

/// What is hashed to measure: it stays in the core's cache, as blocks do.
const SAMPLE_BYTES: usize = 128 << 10;

/// How long each is measured, at least: the slowest makes some dozen samples in it.
const SAMPLE_TIME: Duration = Duration::from_millis(15);

/// Prints a line for each.
pub(crate) fn print(output: &Output) -> Result<(), OutputError> {
    output.write(b"name      bits  GB/s  resists forgery\n")?;
    let sample: Vec<_> = (0..SAMPLE_BYTES).map(|i| (i % 251) as u8).collect();
    for algorithm in Algorithm::ALL {
        let bits = match algorithm {
            Algorithm::Blake3 => "any".to_owned(),
            Algorithm::Blake2b(_) => "8-512".to_owned(),
            other => (other.bytes() * 8).to_string(),
        };
        let rate = rate(algorithm, &sample) / 1e9;
        let resists = if algorithm.resists_forgery() { "yes" } else { "no" };
        let digits = if rate < 10.0 { 1 } else { 0 };
        let line = format!("{:8} {bits:>5} {rate:5.digits$}  {resists}\n", algorithm.name());
        output.write(line.as_bytes())?;
    }
    Ok(())
}

/// Bytes per second on one core.
fn rate(algorithm: Algorithm, sample: &[u8]) -> f64 {
    let mut digest = algorithm.hasher();
    // Once for what is found out on first use.
    digest.update(sample);
    let (start, mut bytes) = (Instant::now(), 0);
    while start.elapsed() < SAMPLE_TIME {
        digest.update(black_box(sample));
        bytes += sample.len();
    }
    bytes as f64 / start.elapsed().as_secs_f64()
}
