//! `--list-algorithms`: all algorithms, and their speed on one core of this machine.

use std::hint::black_box;
use std::time::Duration;

use ringsum::{Algorithm, Options, digest_bytes};
use rustix::time::{ClockId, clock_gettime};

use crate::cli::output::{Output, OutputError};

/// Size of the sample in bytes: like a block, it stays in the core's cache.
const SAMPLE_BYTES: usize = 128 << 10;

/// Least measuring time per algorithm: the slowest one hashes a few dozen samples in it.
const SAMPLE_TIME: Duration = Duration::from_millis(15);

/// Prints a line for each algorithm.
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

/// Returns the bytes per second of processor time on one core.
fn rate(algorithm: Algorithm, sample: &[u8]) -> f64 {
    let options = Options { algorithms: algorithm.into(), ..Options::default() };
    // (Warms up.)
    black_box(digest_bytes(sample, &options));
    let (start, mut bytes) = (processor_time(), 0);
    loop {
        black_box(digest_bytes(black_box(sample), &options));
        bytes += sample.len();
        let time = processor_time().saturating_sub(start);
        if time >= SAMPLE_TIME {
            return bytes as f64 / time.as_secs_f64();
        }
    }
}

/// Returns the processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}
