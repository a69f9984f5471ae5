//! What was measured on: the machine, and for each path the file system, the device and the layout of
//! the file. Only facts that the system reports, each under its name.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) type Facts = BTreeMap<String, String>;

/// The facts of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Environment {
    pub(crate) machine: Facts,
    pub(crate) targets: Vec<TargetFacts>,
}

/// The facts of a file, folder or device that is measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TargetFacts {
    pub(crate) path: String,
    pub(crate) facts: Facts,
}

impl Environment {
    /// Gathers the facts. Those that the system does not report are left out.
    pub(crate) fn capture(targets: &[PathBuf]) -> Environment {
        Environment {
            machine: machine(),
            targets: targets.iter().map(|path| target(path)).collect(),
        }
    }
}

/// The words of a file in `/proc` or `/sys`; `None` if there are none.
fn text(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then_some(text)
}

fn put(facts: &mut Facts, name: &str, value: Option<String>) {
    if let Some(value) = value {
        facts.insert(name.to_owned(), value);
    }
}

fn machine() -> Facts {
    let mut facts = Facts::new();
    let name = rustix::system::uname();
    let words = [name.sysname(), name.release(), name.machine()];
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    put(&mut facts, "kernel", Some(words.join(" ")));
    put(&mut facts, "host", Some(name.nodename().to_string_lossy().into_owned()));
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |wanted: &str| {
        let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(name, _)| name.trim() == wanted);
        found.next().map(|(_, value)| value.trim().to_owned())
    };
    put(&mut facts, "cpu", field("model name"));
    let flags = field("flags").unwrap_or_default();
    let has = |flag: &str| flags.split(' ').any(|it| it == flag);
    let widest = ["avx512f", "avx2", "sse4_1"].into_iter().find(|flag| has(flag));
    put(&mut facts, "simd", widest.map(str::to_owned));
    put(&mut facts, "virtual machine", has("hypervisor").then(|| "yes".to_owned()));
    put(&mut facts, "processors", Some(processors().to_string()));
    let cpufreq = "/sys/devices/system/cpu/cpu0/cpufreq";
    for (name, path) in [
        ("governor", &*format!("{cpufreq}/scaling_governor")),
        ("frequency driver", &format!("{cpufreq}/scaling_driver")),
        ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
        ("reserved huge pages", "/proc/sys/vm/nr_hugepages"),
        ("io_uring disabled", "/proc/sys/kernel/io_uring_disabled"),
        ("load", "/proc/loadavg"),
    ] {
        put(&mut facts, name, text(path));
    }
    put(&mut facts, "mitigations", mitigations());
    let memory = |field| memory_bytes(field).map(|bytes| format!("{} MiB", bytes >> 20));
    put(&mut facts, "memory", memory("MemTotal:"));
    put(&mut facts, "memory available", memory("MemAvailable:"));
    put(&mut facts, "ringbench", Some(env!("CARGO_PKG_VERSION").to_owned()));
    facts
}

/// A field of `/proc/meminfo`, in bytes.
fn memory_bytes(field: &str) -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// The processors that this process may use.
pub(crate) fn processors() -> u32 {
    std::thread::available_parallelism().map_or(1, |processors| processors.get() as u32)
}

pub(crate) fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Memory that programs can still allocate, in bytes (`MemAvailable`); 0 if the kernel does not report
/// it.
pub(crate) fn available_bytes() -> u64 {
    memory_bytes("MemAvailable:").unwrap_or(0)
}

pub(crate) fn fits_into_memory(bytes: u64) -> bool {
    bytes <= available_bytes() / 2
}

/// The mitigations of processor flaws that are active: each of them slows down system calls.
fn mitigations() -> Option<String> {
    let folder = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?;
    let mut on: Vec<String> = folder
        .filter_map(Result::ok)
        .filter(|entry| text(entry.path()).is_some_and(|text| text.starts_with("Mitigation")))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    on.sort();
    Some(if on.is_empty() { "none".to_owned() } else { on.join(", ") })
}

fn target(path: &Path) -> TargetFacts {
    let mut facts = Facts::new();
    if let Ok(metadata) = fs::metadata(path) {
        let kind = metadata.file_type();
        let kind_name = match kind.is_block_device() {
            true => "block device",
            false if kind.is_dir() => "folder",
            false => "file",
        };
        put(&mut facts, "kind", Some(kind_name.to_owned()));
        if kind.is_file() {
            put(&mut facts, "length", Some(format!("{} bytes", metadata.len())));
            put(&mut facts, "allocated", Some(format!("{} bytes", metadata.st_blocks() * 512)));
            put(&mut facts, "extents", extents(path));
        }
        mount(path, &mut facts);
        describe_device(device_of(&metadata), &mut facts);
    }
    TargetFacts { path: path.display().to_string(), facts }
}

/// The number of the device that a path is or lies on.
pub(crate) fn device_of(metadata: &fs::Metadata) -> u64 {
    match metadata.file_type().is_block_device() {
        true => metadata.st_rdev(),
        false => metadata.st_dev(),
    }
}

/// The number of extents of a file on its device.
#[expect(unsafe_code)]
fn extents(path: &Path) -> Option<String> {
    // `struct fiemap` of linux/fiemap.h. Without room for extents, the kernel only counts them.
    #[repr(C)]
    #[derive(Default)]
    struct Fiemap {
        start: u64,
        length: u64,
        flags: u32,
        mapped_extents: u32,
        extent_count: u32,
        reserved: u32,
    }
    const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
    let file = fs::File::open(path).ok()?;
    let mut map = Fiemap { length: u64::MAX, ..Fiemap::default() };
    // SAFETY: the kernel reads and writes this structure, and with no room for extents nothing beyond.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) };
    (result == 0).then(|| map.mapped_extents.to_string())
}

/// The mount of a path: the longest mount point that is a prefix of it, and of several the last.
fn mount(path: &Path, facts: &mut Facts) {
    let Ok(path) = path.canonicalize() else { return };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // 36 35 98:0 /root /mnt rw,noatime - ext4 /dev/root rw: see proc_pid_mountinfo(5).
    let depth = |line: &&str| {
        let point = line.split(' ').nth(4).filter(|point| path.starts_with(point));
        point.map(|point| Path::new(point).components().count())
    };
    let deepest = mounts.lines().filter(|line| depth(line).is_some()).max_by_key(depth);
    let Some((mount, file_system)) = deepest.and_then(|line| line.split_once(" - ")) else {
        return;
    };
    let mut words = file_system.split(' ');
    put(facts, "file system", words.next().map(str::to_owned));
    put(facts, "mounted from", words.next().map(str::to_owned));
    let own = mount.split(' ').nth(5).unwrap_or_default();
    let options = format!("{own},{}", words.next().unwrap_or_default());
    put(facts, "mount options", Some(options));
}

/// The folder of a device in sysfs; of a partition, that of its disk.
fn sysfs(device: u64) -> Option<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    match folder.join("partition").exists() {
        true => folder.parent().map(Path::to_owned),
        false => Some(folder),
    }
}

fn describe_device(device: u64, facts: &mut Facts) {
    let Some(disk) = sysfs(device) else { return };
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    put(facts, "device", name(&disk));
    put(facts, "device model", text(disk.join("device/model")));
    let gib = |sectors: u64| format!("{} GiB", sectors >> 21);
    put(facts, "device size", text(disk.join("size")).and_then(|s| s.parse().ok()).map(gib));
    for setting in [
        "rotational",
        "scheduler",
        "nr_requests",
        "max_sectors_kb",
        "read_ahead_kb",
        "logical_block_size",
        "physical_block_size",
        "write_cache",
        "io_poll",
        "nomerges",
        "rq_affinity",
        "wbt_lat_usec",
    ] {
        put(facts, &format!("queue/{setting}"), text(disk.join("queue").join(setting)));
    }
    let mut layers = Vec::new();
    add_layers(&disk, &mut layers, 8);
    put(facts, "layers below", (!layers.is_empty()).then(|| layers.join(", ")));
}

/// Adds the devices that a stacked device consists of, and whether one of them encrypts.
fn add_layers(disk: &Path, layers: &mut Vec<String>, depth_max: u32) {
    if let Some(uuid) = text(disk.join("dm/uuid")) {
        let kind = uuid.split('-').next().unwrap_or_default().to_lowercase();
        let encrypted = if kind == "crypt" { " (encrypted)" } else { "" };
        let name = text(disk.join("dm/name")).unwrap_or_default();
        layers.push(format!("{name}: device mapper {kind}{encrypted}"));
    }
    if let Some(level) = text(disk.join("md/level")) {
        layers.push(format!("RAID {level}"));
    }
    if let Some(file) = text(disk.join("loop/backing_file")) {
        layers.push(format!("loop device of {file}"));
    }
    let below = fs::read_dir(disk.join("slaves")).into_iter().flatten().filter_map(Result::ok);
    for device in below.filter(|_| depth_max > 0) {
        layers.push(device.file_name().to_string_lossy().into_owned());
        if let Ok(disk) = device.path().canonicalize() {
            add_layers(&disk, layers, depth_max - 1);
        }
    }
}

/// Counts the bytes that disks have delivered since the system started: the disk of a path, or all whole
/// disks if its file system has no device of its own.
#[derive(Debug, Clone)]
pub(crate) struct DiskCounter {
    stats: Vec<PathBuf>,
}

impl DiskCounter {
    pub(crate) fn of(path: &Path) -> DiskCounter {
        let disk = fs::metadata(path).ok().and_then(|metadata| sysfs(device_of(&metadata)));
        let disks = disk.map_or_else(whole_disks, |disk| vec![disk]);
        DiskCounter { stats: disks.into_iter().map(|disk| disk.join("stat")).collect() }
    }

    /// Returns `None` if the kernel does not count.
    pub(crate) fn read_bytes(&self) -> Option<u64> {
        // The third number is sectors of 512 bytes: Documentation/admin-guide/iostats.rst.
        let sectors =
            self.stats.iter().filter_map(|stat| text(stat)?.split(' ').nth(2)?.parse::<u64>().ok());
        let all: Vec<u64> = sectors.collect();
        (!all.is_empty()).then(|| all.iter().sum::<u64>() * 512)
    }
}

/// Processor time since the system started, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuTimes {
    /// Of all processes; not of interrupts, which the devices of a sample cause.
    all_s: f64,
    /// Of this process, and of programs that it has waited for.
    own_s: f64,
    steal_s: f64,
}

impl CpuTimes {
    /// Returns `None` if the kernel does not count: `proc_stat(5)`, `proc_pid_stat(5)`.
    pub(crate) fn now() -> Option<CpuTimes> {
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        let seconds = |words: &str, places: &[usize]| -> Option<f64> {
            let words: Vec<&str> = words.split(' ').collect();
            let ticks = places.iter().map(|place| words.get(*place)?.parse::<f64>().ok());
            Some(ticks.sum::<Option<f64>>()? / ticks_per_s)
        };
        // cpu user nice system idle iowait irq softirq steal
        let all = text("/proc/stat")?;
        // The name in parentheses may have spaces. After it: state ... utime stime cutime cstime.
        let own = text("/proc/self/stat")?;
        let own = own.rsplit_once(") ")?.1;
        Some(CpuTimes {
            all_s: seconds(&all, &[1, 2, 3])?,
            own_s: seconds(own, &[11, 12, 13, 14])?,
            steal_s: seconds(&all, &[8])?,
        })
    }

    /// Steal, and the time of other processes, since `earlier`.
    pub(crate) fn since(self, earlier: CpuTimes) -> (f64, f64) {
        let others_s = (self.all_s - earlier.all_s) - (self.own_s - earlier.own_s);
        (self.steal_s - earlier.steal_s, others_s.max(0.0))
    }
}

/// Disks that are not part of another device and not stacked on one.
fn whole_disks() -> Vec<PathBuf> {
    let disks = fs::read_dir("/sys/block").into_iter().flatten().filter_map(Result::ok);
    let is_whole = |disk: &PathBuf| {
        let name = disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
        !["loop", "ram", "zram", "dm-", "md"].iter().any(|prefix| name.starts_with(prefix))
    };
    disks.map(|disk| disk.path()).filter(is_whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_and_a_file_are_described() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let environment = Environment::capture(&[file.path().to_owned(), "/proc".into()]);
        for name in ["kernel", "memory", "processors", "mitigations"] {
            assert!(environment.machine.contains_key(name), "{name}: {environment:?}");
        }
        let [file, proc] = &environment.targets[..] else { panic!("{environment:?}") };
        assert_eq!(file.facts["length"], "0 bytes");
        assert!(file.facts.contains_key("file system"), "{file:?}");
        assert_eq!(proc.facts["file system"], "proc");
        assert_eq!(proc.facts["kind"], "folder");
    }

    #[test]
    fn processor_time_of_this_process_is_not_that_of_others() {
        let before = CpuTimes::now().unwrap();
        let start = std::time::Instant::now();
        while start.elapsed().as_millis() < 300 {
            std::hint::black_box(blake3::hash(&[7; 4096]));
        }
        let now = CpuTimes::now().unwrap();
        assert!(now.own_s - before.own_s > 0.05, "{before:?} {now:?}");
        assert!(now.all_s - before.all_s >= now.own_s - before.own_s - 0.05, "{before:?} {now:?}");
        let (steal_s, others_s) = now.since(before);
        assert!(steal_s >= 0.0 && others_s >= 0.0);
    }

    #[test]
    fn disks_count_what_they_deliver() {
        let counter = DiskCounter::of(Path::new("/proc"));
        if let Some(bytes) = counter.read_bytes() {
            assert!(counter.read_bytes().is_some_and(|later| later >= bytes));
        }
    }
}
