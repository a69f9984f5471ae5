//! Settings measured on the machine: used if they apply, ignored otherwise, as `--explain` reports.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use blockring::EngineKind;
use ringsum::tuned::{DeviceId, TunedEntry, update};

use crate::support::{Output, Scratch, content, hex, ringsum, run, skip};

const WHY: &str = "measured best on this device on 2026-11-21, by `ringbench tune`";

/// A little more than four times the bytes that the setting has in flight.
const BYTES: usize = 13_000_000;

/// A directory with a file `cold`, and one for settings.
struct Machine {
    scratch: Scratch,
    device: DeviceId,
    /// The output of `--explain` without settings.
    plain: String,
}

impl Machine {
    /// Prints a message and returns `None` if files here are not read past the page cache, or not
    /// from a device.
    fn new() -> Option<Machine> {
        let scratch = Scratch::new();
        let file = File::open(scratch.write("cold", content(BYTES))).unwrap();
        file.sync_all().unwrap();
        let device = match DeviceId::of(file.metadata().unwrap().dev()) {
            Ok(device) => device,
            Err(why) => {
                skip(&format!("measured settings: {why}"));
                return None;
            }
        };
        let mut machine = Machine { scratch, device, plain: String::new() };
        machine.plain = machine.plan(&[]);
        if !machine.plain.contains("\n  cache    direct ") {
            skip(&format!("measured settings: no direct I/O here: {}", machine.plain));
            return None;
        }
        Some(machine)
    }

    fn settings(&self) -> PathBuf {
        self.scratch.join("config/ringsum/tuned.json")
    }

    fn entry(&self) -> TunedEntry {
        TunedEntry {
            device: self.device.clone(),
            kernel: rustix::system::uname().release().to_str().unwrap().to_owned(),
            date: "2026-11-21".to_owned(),
            file_system: "ext4".to_owned(),
            engine: EngineKind::Pool,
            pool_threads: Some(5),
            block_bytes: 1 << 20,
            depth: 3,
            bytes_per_s: 2e9,
            built_in_bytes_per_s: 1e9,
        }
    }

    fn save(&self, entry: &TunedEntry) {
        update(&self.settings(), &entry.device, Some(entry)).unwrap();
    }

    /// Hashes the uncached file with these options. On a busy machine a disk may answer so late
    /// that it is taken for a rotational one: then this tries again.
    fn run(&self, options: &[&str]) -> Output {
        let mut output = self.run_once(options);
        for _ in 0..20 {
            if !output.stderr.contains("rotational device:") {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            output = self.run_once(options);
        }
        output
    }

    fn run_once(&self, options: &[&str]) -> Output {
        let file = File::open(self.scratch.join("cold")).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut command = ringsum();
        command
            .current_dir(self.scratch.path())
            .env("XDG_CONFIG_HOME", self.scratch.join("config"));
        let output = run(command.arg("--explain").args(options).arg("cold"), b"");
        let hash = format!("{}  cold\n", hex(&content(BYTES)));
        assert_eq!((output.code, output.stdout()), (0, &*hash), "{}", output.stderr);
        output
    }

    /// The plan without the facts, among them the latency of the device, which varies.
    fn plan(&self, options: &[&str]) -> String {
        let said = self.run(options).stderr;
        let lines = said.lines().filter(|line| !line.starts_with("  source "));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Checks that the plan is the one without settings, plus a line that says why.
    #[track_caller]
    fn ignores(&self, part: &str) {
        let said = self.plan(&[]);
        let is_why = |line: &&str| line.starts_with("  tuned    not used ");
        let why = said.lines().find(is_why).unwrap_or_else(|| panic!("no reason in {said}"));
        assert!(why.contains(part), "{why}");
        let rest: Vec<_> = said.lines().filter(|line| !is_why(line)).collect();
        assert_eq!(rest, self.plain.lines().collect::<Vec<_>>());
    }
}

fn line<'o>(output: &'o Output, what: &str) -> &'o str {
    let start = format!("  {what:8} ");
    let line = output.stderr.lines().find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("no {what} in {}", output.stderr))
}

#[test]
fn what_was_measured_is_followed_unless_something_is_named() {
    let Some(machine) = Machine::new() else { return };
    machine.save(&machine.entry());
    let output = machine.run(&[]);
    for (what, value) in [("engine", "pool"), ("block-size", "1 MiB"), ("queue-depth", "3")] {
        let line = line(&output, what);
        assert!(line.contains(value) && line.contains(WHY), "{line}");
    }
    assert!(line(&output, "knobs").contains("3 threads"), "{}", output.stderr);
    // The same file on standard input.
    let settings = machine.scratch.join("config");
    let script = format!("XDG_CONFIG_HOME='{}' $R --explain < cold", settings.display());
    let output = machine.scratch.shell(&script);
    assert_eq!(output.stdout(), format!("{}  -\n", hex(&content(BYTES))));
    assert!(line(&output, "block-size").contains(WHY), "{}", output.stderr);
    // An explicit option wins, and none of the measured settings is used.
    for options in [
        &["--io", "block-size=256K"][..],
        &["--io", "queue-depth=2"],
        &["--io", "slots=4"],
        &["--io", "engine=pread"],
        &["--io", "page-cache=direct"],
        &["--io", "pool-threads=2"],
        &["--io=fixed-file=on"],
        &["--io=tuned=off"],
    ] {
        let said = machine.run(options).stderr;
        assert!(!said.contains("ringbench") && !said.contains("  tuned"), "{options:?}: {said}");
    }
    assert_eq!(machine.plan(&["--io=tuned=off"]), machine.plain);
    let output = machine.run(&["--io", "block-size=256K"]);
    let line = line(&output, "block-size");
    assert!(line.contains("256 KiB") && line.ends_with("explicit"), "{line}");
}

#[test]
fn what_does_not_hold_any_more_is_left_and_said() {
    let Some(machine) = Machine::new() else { return };
    machine.save(&TunedEntry { kernel: "2.6.32".to_owned(), ..machine.entry() });
    machine.ignores("measured on 2026-11-21 under Linux 2.6.32, and this is Linux ");
    let sectors = machine.device.sectors + 8;
    let larger = DeviceId { sectors, ..machine.device.clone() };
    machine.save(&TunedEntry { device: larger, ..machine.entry() });
    machine.ignores("on another device (");
    // Settings of another device do not apply.
    fs::remove_file(machine.settings()).unwrap();
    let other = DeviceId {
        number: "4095:0".to_owned(),
        unique: Some("of another one".to_owned()),
        ..machine.device.clone()
    };
    machine.save(&TunedEntry { device: other, ..machine.entry() });
    assert_eq!(machine.plan(&[]), machine.plain);
}

#[test]
fn a_damaged_file_is_said_and_hashing_goes_on() {
    let Some(machine) = Machine::new() else { return };
    machine.save(&machine.entry());
    let text = fs::read_to_string(machine.settings()).unwrap();
    let later = text.replace("\"version\": 1", "\"version\": 7");
    for (content, part) in [
        (&text[..100], "not a file of settings"),
        ("", "not a file of settings"),
        (&later, "its version is 7"),
    ] {
        fs::write(machine.settings(), content).unwrap();
        machine.ignores(part);
        // They are not used for a cached file.
        let mut command = ringsum();
        command.current_dir(machine.scratch.path());
        command.env("XDG_CONFIG_HOME", machine.scratch.join("config"));
        machine.scratch.write("warm", b"warm".repeat(500_000));
        let output = run(command.args(["--explain", "warm"]), b"");
        assert!(output.code == 0 && !output.stderr.contains("tuned"), "{}", output.stderr);
    }
    // Without --explain nothing is printed.
    let output = run(
        ringsum()
            .current_dir(machine.scratch.path())
            .env("XDG_CONFIG_HOME", machine.scratch.join("config"))
            .args(["--io", "page-cache=direct", "cold"]),
        b"",
    );
    assert_eq!((output.code, &*output.stderr), (0, ""));
}
