//! Reads 10,000 random records of 4 KiB, as a database does for a list of keys, and prints the rate:
//! `records FILE [auto|loop|io_uring|libaio|pool|pread] [DEPTH]`. `loop` is a loop of `pread`, for
//! comparison.

use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use blockring::{BatchReader, Config, EngineKind, Extent, Source};

const RECORDS: u64 = 10_000;
const RECORD_BYTES: u32 = 4096;

/// Random records of a file of `len` bytes, the same each time (xorshift64*).
fn records(len: u64) -> Vec<Extent> {
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    let count = (len / u64::from(RECORD_BYTES)).max(1);
    let next = |_| {
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        let record = random.wrapping_mul(0x2545_F491_4F6C_DD1D) % count;
        let len = len.min(RECORD_BYTES.into()) as u32;
        Extent { offset: record * u64::from(RECORD_BYTES), len }
    };
    (0..RECORDS).map(next).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = env::args().skip(1);
    let path = args.next().unwrap_or("/proc/self/exe".to_owned());
    let engine = args.next().unwrap_or("auto".to_owned());
    let depth = args.next().map(|depth| depth.parse()).transpose()?;
    let source = Source::open(&path)?;
    let records = records(source.len().ok_or("it is not seekable")?);
    let start = Instant::now();
    let mut sum = 0_u64;
    if engine == "loop" {
        let file = File::open(&path)?;
        let mut record = vec![0; RECORD_BYTES as usize];
        for Extent { offset, len } in records {
            file.read_exact_at(&mut record[..len as usize], offset)?;
            sum += u64::from(record[0]);
        }
    } else {
        let kind = EngineKind::ALL.into_iter().find(|kind| kind.name() == engine);
        if kind.is_none() && engine != "auto" {
            return Err(format!("there is no engine {engine}").into());
        }
        let mut config = Config::default();
        (config.io.engine, config.io.queue_depth) = (kind, depth);
        let batch = BatchReader::new(&source, &config)?.read_batch(&records)?;
        for record in batch.iter() {
            sum += u64::from(record.map_err(|error| format!("a record: {error}"))?[0]);
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let rate = RECORDS as f64 / seconds;
    println!("{engine}: {RECORDS} records in {seconds:.4} s, {rate:.0} a second (sum {sum})");
    Ok(())
}
