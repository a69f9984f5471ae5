//! fio with the same settings, if it is installed: what others measure with.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::model::case::{Case, LatencyNs, Missing, Sample};
use crate::runner::process::{self, Pipeline};
use crate::runner::{Cache, Cost, GroupPlan};

/// One job of fio.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub(crate) path: &'a Path,
    pub(crate) random: bool,
    /// In fio's terms: `io_uring`, `libaio`, `psync`.
    pub(crate) engine: &'a str,
    pub(crate) direct: bool,
    pub(crate) block_bytes: u32,
    pub(crate) depth: u32,
    /// Threads.
    pub(crate) jobs: u32,
    /// The duration, if `io_bytes` does not end it.
    pub(crate) time: Option<Duration>,
    /// In reserved huge pages instead of those of the base size.
    pub(crate) huge_pages: bool,
    /// Of the file, from its start.
    pub(crate) range_bytes: u64,
    /// Bytes that each thread reads, if there is no duration.
    pub(crate) io_bytes: u64,
}

impl<'a> Job<'a> {
    /// Reads `bytes` from the start of a file once, directly, in 512 KiB x 32.
    pub(crate) fn of(path: &'a Path, bytes: u64) -> Job<'a> {
        Job {
            path,
            random: false,
            engine: "io_uring",
            direct: true,
            block_bytes: 512 << 10,
            depth: 32,
            jobs: 1,
            time: None,
            huge_pages: false,
            range_bytes: bytes,
            io_bytes: bytes,
        }
    }

    /// Adds this job to `plan`, or the reason why fio cannot run.
    pub(crate) fn add_to(self, plan: &mut GroupPlan<'a>, case: Case, cache: Cache, cost: Cost) {
        match process::find("fio") {
            None => plan.add_missing(case, "fio is not installed"),
            Some(_) => _ = plan.add(case, cache, cost, move || self.run()),
        }
    }

    fn pipeline(&self) -> Pipeline {
        let rw = if self.random { "randread --norandommap" } else { "read" };
        let memory = if self.huge_pages { "mmaphuge" } else { "mmap" };
        let end = match self.time {
            Some(time) => format!("--time_based --runtime={}ms", time.as_millis()),
            None => format!("--io_size={}", self.io_bytes),
        };
        let Job { engine, block_bytes, depth, jobs, range_bytes, .. } = self;
        let direct = u32::from(self.direct);
        let command = format!(
            "fio --name=ringbench --rw={rw} --ioengine={engine} --direct={direct} --bs={block_bytes} \
             --iodepth={depth} --numjobs={jobs} --size={range_bytes} {end} --mem={memory} --thread --readonly \
             --invalidate=0 --group_reporting --percentile_list=50:99:99.5:99.9:99.99 --output-format=json"
        );
        // A colon would end the name.
        let mut filename = b"--filename=".to_vec();
        for byte in self.path.as_os_str().as_bytes() {
            if *byte == b':' {
                filename.push(b'\\');
            }
            filename.push(*byte);
        }
        let words = command.split(' ').map(OsString::from);
        Pipeline::new(words.chain([OsString::from_vec(filename)])).capturing()
    }

    fn run(&self) -> Result<Sample, Missing> {
        match self.pipeline().run() {
            Ok((_, output)) => Ok(parse(&output)?),
            // Usually none are reserved.
            Err(error) if self.huge_pages => Err(Missing::Unavailable(format!("{error:#}"))),
            Err(error) => Err(error.into()),
        }
    }
}

/// Parses fio's results. Its clock has whole milliseconds; it leaves out setting up memory and ring, which
/// counts for ours.
fn parse(output: &[u8]) -> anyhow::Result<Sample> {
    // Notes may come first.
    let start = output.iter().position(|byte| *byte == b'{').context("fio printed no JSON")?;
    let json: Value = serde_json::from_slice(&output[start..]).context("fio's JSON")?;
    let job = &json["jobs"][0];
    let read = &job["read"];
    let number = |value: &Value| value.as_f64().context("a number is missing in fio's JSON");
    let wall_s = number(&read["runtime"])?.max(1.0) / 1e3;
    let at = |percentile: &str| read["clat_ns"]["percentile"][percentile].as_u64().unwrap_or(0);
    let latency = LatencyNs {
        avg: read["lat_ns"]["mean"].as_f64().unwrap_or(0.0),
        p50: at("50.000000"),
        p99: at("99.000000"),
        p99_5: at("99.500000"),
        p99_9: at("99.900000"),
        p99_99: at("99.990000"),
        max: read["lat_ns"]["max"].as_u64().unwrap_or(0),
    };
    let part = |name: &str| job[name].as_f64().unwrap_or(0.0) / 100.0;
    let runtime_s = number(&job["job_runtime"]).unwrap_or(wall_s * 1e3) / 1e3;
    Ok(Sample {
        wall_s,
        cpu_s: Some((part("usr_cpu") + part("sys_cpu")) * runtime_s),
        bytes: number(&read["io_bytes"])? as u64,
        operations: number(&read["total_ios"])? as u64,
        latency_ns: Some(latency),
        ..Sample::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fio_prints_is_understood() {
        let output = br#"note: both iodepth >= 1 and synchronous I/O engine are selected
            {"jobs":[{"job_runtime":2000,"usr_cpu":10.0,"sys_cpu":40.0,"read":{"io_bytes":8192000,
            "runtime":2000,"total_ios":2000,"lat_ns":{"mean":1500.5,"max":9000},
            "clat_ns":{"percentile":{"50.000000":1400,"99.000000":2000,"99.500000":2100,
            "99.900000":3000,"99.990000":4000}}}}]}"#;
        let sample = parse(output).unwrap();
        assert_eq!((sample.wall_s, sample.bytes, sample.operations), (2.0, 8_192_000, 2000));
        assert_eq!(sample.cpu_s, Some(1.0));
        let latency = sample.latency_ns.unwrap();
        assert_eq!((latency.avg, latency.p99_99, latency.max), (1500.5, 4000, 9000));
        assert!(parse(b"fio: failed").is_err());
        assert!(parse(b"{\"jobs\":[]}").is_err());
    }
}
