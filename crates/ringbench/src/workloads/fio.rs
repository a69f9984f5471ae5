//! fio on the same settings, where it is installed: what others measure.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::case::{LatencyNs, Missing, Sample};
use crate::process::{self, Pipeline};
use crate::workload::target::failed;

/// One job of fio's.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub(crate) path: &'a Path,
    pub(crate) random: bool,
    /// As fio calls it: `io_uring`, `libaio`, `psync`.
    pub(crate) engine: &'a str,
    pub(crate) direct: bool,
    pub(crate) block_bytes: u32,
    pub(crate) depth: u32,
    /// Threads.
    pub(crate) jobs: u32,
    pub(crate) time: Option<Duration>,
    /// In reserved huge pages; otherwise in those of the usual size.
    pub(crate) huge_pages: bool,
    /// Of the file.
    pub(crate) range_bytes: u64,
    /// So much in all on each thread, where there is no time.
    pub(crate) bytes: u64,
}

/// Why fio cannot run here; `None` if it can.
pub(crate) fn unavailable() -> Option<String> {
    process::find("fio").is_none().then(|| "fio is not installed".to_owned())
}

impl Job<'_> {
    /// The whole command.
    pub(crate) fn pipeline(&self) -> Pipeline {
        let mut argv = vec![
            "fio".to_owned(),
            "--name=ringbench".to_owned(),
            format!("--rw={}", if self.random { "randread" } else { "read" }),
            format!("--ioengine={}", self.engine),
            format!("--direct={}", u32::from(self.direct)),
            format!("--bs={}", self.block_bytes),
            format!("--iodepth={}", self.depth),
            format!("--numjobs={}", self.jobs),
            format!("--size={}", self.range_bytes),
            "--group_reporting".to_owned(),
            "--thread".to_owned(),
            "--readonly".to_owned(),
            "--invalidate=0".to_owned(),
            format!("--mem={}", if self.huge_pages { "mmaphuge" } else { "mmap" }),
            "--percentile_list=50:99:99.5:99.9:99.99".to_owned(),
            "--output-format=json".to_owned(),
        ];
        match self.time {
            Some(time) => {
                argv.push("--time_based".to_owned());
                argv.push(format!("--runtime={}ms", time.as_millis()));
            }
            None => argv.push(format!("--io_size={}", self.bytes)),
        }
        if self.random {
            argv.push("--norandommap".to_owned());
        }
        // A colon would end the name.
        let mut filename = b"--filename=".to_vec();
        for byte in self.path.as_os_str().as_bytes() {
            if *byte == b':' {
                filename.push(b'\\');
            }
            filename.push(*byte);
        }
        let argv = argv.into_iter().map(OsString::from).chain([OsString::from_vec(filename)]);
        Pipeline::new(argv).capturing()
    }

    pub(crate) fn run(&self) -> Result<Sample, Missing> {
        let took = self.pipeline().run().map_err(failed)?;
        parse(&took.output).map_err(failed)
    }
}

/// What fio's own clock says, in whole milliseconds: without its start, and without what sets up memory and
/// the ring, which counts for ours.
fn parse(output: &[u8]) -> anyhow::Result<Sample> {
    // Before it, fio may say this and that.
    let start = output.iter().position(|byte| *byte == b'{').context("fio printed no JSON")?;
    let json: Value = serde_json::from_slice(&output[start..]).context("what fio printed")?;
    let job = &json["jobs"][0];
    let read = &job["read"];
    let number = |value: &Value| value.as_f64().context("fio printed something else than expected");
    let bytes = number(&read["io_bytes"])?;
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
        bytes: bytes as u64,
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
