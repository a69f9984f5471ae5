//! Diagnostics: `--stats` and `--trace` report on standard error and to a file, and change nothing
//! else.

use std::fs;
use std::time::Instant;

use serde_json::{Value, json};

use crate::support::{Scratch, content, hex};

/// The objects on standard error, one a line.
fn objects(stderr: &str) -> Vec<Value> {
    stderr.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

/// Checks what `docs/formats.md` promises for every object.
const FIELDS: [&str; 15] = [
    "bytes",
    "wall_ns",
    "cpu_ns",
    "bytes_per_s",
    "threads",
    "requests",
    "short_reads",
    "retries",
    "in_flight",
    "latency_ns",
    "device_wait_ns",
    "consumer_wait_ns",
    "limit_wait_ns",
    "consuming_ns",
    "bottleneck",
];

#[test]
fn stats_are_one_object_for_each_input_and_one_for_all() {
    let scratch = Scratch::new();
    let data = content(3_000_000);
    scratch.write("large", &data);
    scratch.write("small", "hi");
    let engines = ["io_uring", "libaio", "pool", "pread", "stream", "mmap"];
    for engine in engines {
        let io = format!("engine={engine},block-size=64K,queue-depth=8");
        let options = ["--stats=json", "--io", &io];
        let output = scratch.run(&[&options[..], &["large", "missing", "small"]].concat());
        let hashes = format!("{}  large\n{}  small\n", hex(&data), hex(b"hi"));
        assert_eq!((output.code, output.stdout()), (1, &*hashes), "{}", output.stderr);
        let lines: Vec<_> = output.stderr.lines().filter(|line| line.starts_with('{')).collect();
        let objects = objects(&lines.join("\n"));
        let [large, small, total] = &objects[..] else { panic!("{}", output.stderr) };
        for object in &objects {
            for field in FIELDS {
                assert!(!object[field].is_null(), "{engine}: {field} in {object}");
            }
        }
        assert_eq!((&large["path"], &small["path"]), (&"large".into(), &"small".into()));
        assert_eq!(large["plan"]["engine"]["value"], engine);
        assert_eq!(
            (large["bytes"].as_u64(), large["requests"].as_u64()),
            (Some(3_000_000), Some(46))
        );
        assert_eq!((&total["total"], &total["inputs"]), (&true.into(), &2.into()));
        assert_eq!(total["bytes"], 3_000_002);
        let samples: u64 =
            large["in_flight"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(samples, 46, "one for each block: {large}");
        for quantile in ["avg", "p50", "p99", "p99_5", "p99_9", "p99_99", "max"] {
            assert!(large["latency_ns"][quantile].as_f64().unwrap() > 0.0, "{large}");
        }
    }
}

#[test]
fn stats_of_what_has_no_ring() {
    let scratch = Scratch::new();
    scratch.write("small", "hi");
    scratch.write("empty", "");
    let output = scratch.run_with(&["--stats=json", "small", "-", "empty"], b"from a pipe");
    let objects = objects(&output.stderr);
    let bytes: Vec<_> = objects.iter().map(|object| object["bytes"].as_u64().unwrap()).collect();
    assert_eq!(bytes, [2, 11, 0, 13], "{}", output.stderr);
    assert_eq!(objects[1]["plan"]["engine"]["value"], "stream");
    // Nothing was read of the empty file.
    assert!(objects[0]["latency_ns"].is_object() && objects[2]["latency_ns"].is_null());
    assert_eq!((&objects[2]["requests"], &objects[2]["in_flight"]), (&0.into(), &json!({})));
}

#[test]
fn stats_for_people_name_the_bottleneck() {
    let scratch = Scratch::new();
    scratch.write("a", content(3_000_000));
    scratch.write("b", content(2_000_000));
    for options in [&["--stats"][..], &["--stats=text", "--io", "workers=1", "--io=order=in-order"]]
    {
        let output = scratch.run(&[options, &["a", "b"]].concat());
        assert_eq!(output.code, 0);
        for part in [
            "ringsum: a: statistics\n",
            "statistics of 2 inputs",
            "bottleneck",
            "latency",
            "p99.99",
        ] {
            assert!(output.stderr.contains(part), "{part:?} in {}", output.stderr);
        }
    }
    // A check reads files together, and reports their total.
    scratch.write("list", format!("{}  a\n", hex(&content(3_000_000))));
    let output = scratch.run(&["--check", "--stats", "list"]);
    assert_eq!((output.code, output.stdout()), (0, "a: OK\n"));
    assert!(output.stderr.contains("ringsum: statistics of 1 input\n"), "{}", output.stderr);
}

#[test]
fn a_trace_has_every_read_and_every_block() {
    let scratch = Scratch::new();
    scratch.write("a", content(1_000_000));
    scratch.write("b", "bbb");
    for options in [&[][..], &["--io", "workers=2"], &["--io", "workers=1", "--io=order=in-order"]]
    {
        let fixed = ["--trace", "trace.json", "--io", "engine=pool", "--io", "block-size=64K"];
        let output = scratch.run(&[&fixed[..], options, &["a", "b"]].concat());
        assert_eq!((output.code, &*output.stderr), (0, ""), "{options:?}");
        let text = fs::read_to_string(scratch.join("trace.json")).unwrap();
        let events: Vec<Value> = serde_json::from_str(&text).expect(&text);
        let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
        assert_eq!((count("read"), count("consume")), (17, 17), "{options:?}");
        assert_eq!((count("a"), count("b")), (1, 1), "a span for each file");
        for event in events.iter().filter(|event| event["ph"] == "X") {
            assert!(
                event["ts"].is_f64() && event["dur"].is_f64() && event["tid"].is_u64(),
                "{event}"
            );
        }
    }
    let output = scratch.run(&["--trace", "no/such/folder", "b"]);
    assert_eq!((output.code, output.stdout()), (1, ""));
    assert!(output.stderr.contains("no/such/folder: No such file"), "{}", output.stderr);
    // Only a trace is overwritten.
    for (line, why) in [
        (&["--trace", "a", "b"][..], "is not a trace"),
        (&["--trace", "b", "b"], "b: the same file is named twice"),
        (&["--trace", "a"], "is not a trace"),
    ] {
        let output = scratch.run(line);
        assert_eq!((output.code, output.stdout()), (1, ""), "{line:?}");
        assert!(output.stderr.contains(why), "{}", output.stderr);
    }
    let unharmed = format!("{}  a\n{}  b\n", hex(&content(1_000_000)), hex(b"bbb"));
    scratch.run(&["--trace", "trace.json", "a", "b"]).expect(0, &unharmed, "");
    let output = scratch.run(&["--trace", "trace.json", "missing"]);
    assert_eq!(output.code, 1);
    let text = fs::read_to_string(scratch.join("trace.json")).unwrap();
    serde_json::from_str::<Value>(&text).expect("a trace of nothing is one");
    scratch.run(&["--trace", "trace.json", "b"]).expect(0, &format!("{}  b\n", hex(b"bbb")), "");
    let output = scratch.shell("$R --trace /dev/full b");
    assert_eq!(output.code, 1, "a trace that could not be written is no success");
}

/// The lower bound that the rate limit implies; there is no upper one, since the machine may be
/// busy.
#[test]
fn a_limit_is_kept_over_all_files() {
    let scratch = Scratch::new();
    let data = content(200_000);
    scratch.write("a", &data);
    let names = ["a", "a", "a", "a"];
    let start = Instant::now();
    let output = scratch.run(&[&["--limit-rate", "1M/s"][..], &names].concat());
    output.expect(0, &format!("{}  a\n", hex(&data)).repeat(4), "");
    // The last block has no delay after it.
    assert!(start.elapsed().as_secs_f64() >= 600_000.0 / f64::from(1 << 20), "too fast");
    for options in
        [&["--io", "engine=io_uring"][..], &["--io", "workers=3", "--io", "engine=pread"]]
    {
        let start = Instant::now();
        let fixed = ["--limit-rate", "1M", "--io", "block-size=64K", "a", "a"];
        scratch.run(&[options, &fixed].concat()).expect(
            0,
            &format!("{}  a\n", hex(&data)).repeat(2),
            "",
        );
        assert!(start.elapsed().as_secs_f64() >= 300_000.0 / f64::from(1 << 20), "too fast");
    }
    let output =
        scratch.run(&["--limit-rate", "1M", "--stats", "--io", "engine=io_uring", "a", "a"]);
    assert!(output.stderr.contains("bottleneck: the rate limit"), "{}", output.stderr);
    let output = scratch.run(&["--limit-rate", "1M", "--io", "block-size=2M", "a"]);
    assert_eq!(output.code, 2);
    assert!(output.stderr.contains("larger than the rate limit per second"), "{}", output.stderr);
    let output = scratch.run_with(&["--limit-rate", "100000", "-"], &data[..50_000]);
    output.expect(0, &format!("{}  -\n", hex(&data[..50_000])), "");
}
