//! The settings that `ringbench tune` measured: the file that keeps them, and which of them still hold.
//!
//! The file has an entry for each device. An entry counts for the device and the kernel that it was
//! measured with, and for no other. Nothing here looks at the environment; what a plan makes of a setting is
//! `blockring`'s business ([`Tunings`]).

mod device;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use blockring::{BLOCK_BYTES_MAX, QUEUE_DEPTH_MAX, EngineKind, POOL_THREADS_MAX, Tuning, Tunings};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde_json::{Map, Value, json};

pub use device::DeviceId;

use crate::hash::tree::is_subtree_size;

/// What the file says that it is.
const FORMAT: &str = "ringsum-tuned";

/// The one version that there is.
const VERSION: u64 = 1;

/// Largest file that is read, in bytes: an entry has some 400.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The setting that was measured best on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The device.
    pub device: DeviceId,
    /// The kernel, as `uname -r` has it: see [`kernel_release`].
    pub kernel: String,
    /// The day, as YYYY-MM-DD.
    pub date: String,
    /// The file system that the measured file was on, or "a block device".
    pub file_system: String,
    /// [`EngineKind::IoUring`], [`EngineKind::Libaio`] or [`EngineKind::Pool`].
    pub engine: EngineKind,
    /// Threads of the engine `pool`, where they were measured.
    pub pool_threads: Option<u32>,
    /// Bytes of a block: 2^k, at least 1 KiB and at most [`BLOCK_BYTES_MAX`].
    pub block_bytes: u32,
    /// Requests in flight.
    pub depth: u32,
    /// Bytes per second with this setting.
    pub bytes_per_s: f64,
    /// Bytes per second with what is built in, measured beside it.
    pub built_in_bytes_per_s: f64,
}

/// Why settings cannot be had or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunedError {
    /// There is no device whose setting it could be.
    #[error(
        "number {major}:{minor} is that of no block device: {why}; settings are kept for devices, so name \
         one, or a file on a file system that has one to itself"
    )]
    NoDevice {
        /// Its number.
        major: u32,
        /// The other half of it.
        minor: u32,
        /// How that is known.
        why: String,
    },
    /// The file or its folder.
    #[error("{}: {doing}: {error}", .path.display())]
    Io {
        /// What it is about.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
    /// The file is not what this module writes.
    #[error("{}: it has no settings that can be read: {what}; repair it, or remove it", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The file was written by another version.
    #[error("{}: it is of version {version}, and this program knows version 1", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        version: u64,
    },
    /// An entry that no reader would take.
    #[error("such a setting cannot be kept: {0}")]
    Entry(String),
}

/// Where the settings of a user are: `$XDG_CONFIG_HOME/ringsum/tuned.json`, or `~/.config/ringsum/tuned.json`.
/// A value that is no absolute path counts as none, as the XDG specification has it. `None`: there is
/// neither.
pub fn default_path(xdg_config_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    let absolute = |value: &&OsStr| Path::new(value).is_absolute();
    let config = match xdg_config_home.filter(absolute) {
        Some(config) => PathBuf::from(config),
        None => Path::new(home.filter(absolute)?).join(".config"),
    };
    Some(config.join("ringsum/tuned.json"))
}

/// The kernel that runs, as `uname -r` has it.
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// All entries of a file; none where there is no such file.
///
/// # Errors
///
/// It cannot be read, or is no file of settings of this version.
pub fn load(path: &Path) -> Result<Vec<Entry>, TunedError> {
    match read(path)? {
        Some((_, entries)) => Ok(entries),
        None => Ok(Vec::new()),
    }
}

/// Puts `entry` in the place of that of the same device, and leaves those of others as they are. The file
/// is replaced as a whole, or not at all; folders are made as needed.
///
/// # Errors
///
/// As for [`load`]: a file that cannot be understood is never written over. It cannot be written; or no
/// reader would take the entry.
pub fn save(path: &Path, entry: &Entry) -> Result<(), TunedError> {
    entry.check().map_err(TunedError::Entry)?;
    change(path, &entry.device, Some(entry.to_json()))
}

/// Takes away the entry of a device, if there is one.
///
/// # Errors
///
/// As for [`save`].
pub fn remove(path: &Path, device: &DeviceId) -> Result<(), TunedError> {
    match load(path)? {
        entries if device.position(entries.iter().map(|entry| &entry.device)).is_some() => {
            change(path, device, None)
        }
        _ => Ok(()),
    }
}

/// Puts `new` in the place of the entry of `device`.
fn change(path: &Path, device: &DeviceId, new: Option<Value>) -> Result<(), TunedError> {
    // What a link in its place leads to is what is kept.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let fail = |doing| move |error| TunedError::Io { path: path.clone(), doing, error };
    let folder = path.parent().filter(|folder| *folder != "").unwrap_or(Path::new("."));
    // As the XDG specification wants its folders.
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder).map_err(fail("making its folder"))?;
    let folder = File::open(folder).map_err(fail("opening its folder"))?;
    // Two at once would lose one of two entries. Where the file system has no locks, so be it.
    let _ = flock(&folder, FlockOperation::LockExclusive);
    let (mut document, entries) = read(path)?.unwrap_or_else(|| (empty(), Vec::new()));
    let place = device.position(entries.iter().map(|old| &old.device));
    if let Some(Value::Array(devices)) = document.get_mut("devices") {
        let old = place.filter(|place| *place < devices.len());
        match (old, new) {
            (Some(old), Some(new)) => devices[old] = new,
            (Some(old), None) => _ = devices.remove(old),
            (None, Some(new)) => devices.push(new),
            (None, None) => {}
        }
    }
    let text = format!("{:#}\n", Value::Object(document));
    replace(path, text.as_bytes(), &folder).map_err(fail("writing it"))
}

/// The entry that holds for `device` under `kernel`. `None`: there is none for it. An error: there is one, and
/// why it does not hold.
pub fn applicable<'e>(
    entries: &'e [Entry],
    kernel: &str,
    device: &DeviceId,
) -> Option<Result<&'e Entry, String>> {
    let of_device = device.position(entries.iter().map(|entry| &entry.device));
    let of_number = || entries.iter().position(|entry| entry.device.has_number_of(device));
    let entry = &entries[of_device.or_else(of_number)?];
    let why = match entry.device.difference(device) {
        Some(difference) => format!("on another device ({difference})"),
        None if entry.kernel != kernel => {
            format!("under Linux {}, and this is Linux {kernel}", entry.kernel)
        }
        None => return Some(Ok(entry)),
    };
    Some(Err(format!("measured on {} {why}: `ringbench tune` measures again", entry.date)))
}

/// The settings in the file at `path`, for [`Config::tuned`](blockring::Config::tuned). The file is read
/// once, when a plan first asks; that it cannot be, is a reason in the plan and no error.
pub fn tunings(path: PathBuf) -> Tunings {
    let entries = OnceLock::new();
    let kernel = OnceLock::new();
    let known = Mutex::new(BTreeMap::new());
    Tunings::new(move |device| {
        let entries = match entries.get_or_init(|| load(&path).map_err(|error| error.to_string())) {
            Ok(entries) if entries.is_empty() => return None,
            Ok(entries) => entries,
            Err(why) => return Some(Err(why.clone())),
        };
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let find = || {
            let kernel = kernel.get_or_init(kernel_release);
            let found = applicable(entries, kernel, &DeviceId::of(device).ok()?)?;
            Some(found.map(Entry::tuning))
        };
        known.entry(device).or_insert_with(find).clone()
    })
}

impl Entry {
    /// The setting as a plan takes it.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            engine: self.engine,
            pool_threads: self.pool_threads,
            block_bytes: self.block_bytes,
            depth: self.depth,
            why: format!("measured best on this device on {}, by `ringbench tune`", self.date),
        }
    }

    /// What is wrong with it, if anything: what is in a file may be shown on a terminal, and hashing relies
    /// on blocks that are subtrees.
    fn check(&self) -> Result<(), String> {
        let device = &self.device;
        let optional = [&device.model, &device.unique];
        let texts = [&self.kernel, &self.date, &self.file_system];
        let mut texts = texts.into_iter().chain(optional.into_iter().flatten());
        let rates = [self.bytes_per_s, self.built_in_bytes_per_s];
        let is_block =
            self.block_bytes <= BLOCK_BYTES_MAX && is_subtree_size(self.block_bytes.into());
        let rules = [
            (!texts.any(|text| text.chars().any(char::is_control)), "a control character"),
            (is_date(&self.date), "date"),
            (
                matches!(self.engine, EngineKind::IoUring | EngineKind::Libaio | EngineKind::Pool),
                "engine",
            ),
            (is_block, "block_bytes"),
            ((1..=QUEUE_DEPTH_MAX).contains(&self.depth), "depth"),
            (self.pool_threads.is_none_or(|n| (1..=POOL_THREADS_MAX).contains(&n)), "pool_threads"),
            (rates.iter().all(|rate| rate.is_finite() && *rate >= 0.0), "a rate"),
        ];
        match rules.into_iter().find(|(is_right, _)| !is_right) {
            Some((_, what)) => Err(format!("{what} is out of its range")),
            None => Ok(()),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "number": self.device.number(),
            "model": self.device.model,
            "sectors": self.device.sectors,
            "unique": self.device.unique,
            "kernel": self.kernel,
            "date": self.date,
            "file_system": self.file_system,
            "engine": self.engine.name(),
            "pool_threads": self.pool_threads,
            "block_bytes": self.block_bytes,
            "depth": self.depth,
            "bytes_per_s": self.bytes_per_s,
            "built_in_bytes_per_s": self.built_in_bytes_per_s,
        })
    }

    fn from_json(value: &Value) -> Result<Entry, String> {
        let wrong = |key: &str| format!("{key} is missing, or is not what it should be");
        let text = |key: &str| value[key].as_str().map(str::to_owned).ok_or_else(|| wrong(key));
        let number = |key: &str| value[key].as_u64().ok_or_else(|| wrong(key));
        let small = |key: &str| number(key).and_then(|n| n.try_into().map_err(|_| wrong(key)));
        let rate = |key: &str| value[key].as_f64().ok_or_else(|| wrong(key));
        let or_none = |key: &str| match &value[key] {
            Value::Null => Ok(None),
            _ => text(key).map(Some),
        };
        let (major, minor) =
            device::parse_number(&text("number")?).ok_or_else(|| wrong("number"))?;
        let engine = text("engine")?;
        let engine = EngineKind::ALL.into_iter().find(|kind| kind.name() == engine);
        let entry = Entry {
            device: DeviceId {
                major,
                minor,
                model: or_none("model")?,
                sectors: number("sectors")?,
                unique: or_none("unique")?,
            },
            kernel: text("kernel")?,
            date: text("date")?,
            file_system: text("file_system")?,
            engine: engine.ok_or_else(|| wrong("engine"))?,
            pool_threads: match &value["pool_threads"] {
                Value::Null => None,
                _ => Some(small("pool_threads")?),
            },
            block_bytes: small("block_bytes")?,
            depth: small("depth")?,
            bytes_per_s: rate("bytes_per_s")?,
            built_in_bytes_per_s: rate("built_in_bytes_per_s")?,
        };
        entry.check().map(|()| entry)
    }
}

/// Whether a text looks like YYYY-MM-DD.
fn is_date(text: &str) -> bool {
    let has = |(i, byte): (usize, u8)| match i {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    text.len() == 10 && text.bytes().enumerate().all(has)
}

fn empty() -> Map<String, Value> {
    let document = [
        ("format".to_owned(), FORMAT.into()),
        ("version".to_owned(), VERSION.into()),
        ("devices".to_owned(), Value::Array(Vec::new())),
    ];
    document.into_iter().collect()
}

/// A whole document, and its entries in their order.
type Parsed = (Map<String, Value>, Vec<Entry>);

/// What is in a file; `None` where there is none.
fn read(path: &Path) -> Result<Option<Parsed>, TunedError> {
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        // A file where a folder should be: nothing can be there.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(None),
        Err(error) => {
            return Err(TunedError::Io { path: path.to_owned(), doing: "reading it", error });
        }
    };
    parse(&bytes).map(Some).map_err(|fault| match fault {
        Fault::Version(version) => TunedError::Version { path: path.to_owned(), version },
        Fault::Damaged(what) => TunedError::Damaged { path: path.to_owned(), what },
    })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // A FIFO in its place must not hang us.
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(FILE_BYTES_MAX) as usize + 1);
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is wrong with the content of a file.
#[derive(Debug, PartialEq)]
enum Fault {
    Version(u64),
    Damaged(String),
}

fn parse(bytes: &[u8]) -> Result<Parsed, Fault> {
    let damaged = |what: &str| Fault::Damaged(what.to_owned());
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(damaged("it is longer than 1 MiB"));
    }
    let document: Map<String, Value> =
        serde_json::from_slice(bytes).map_err(|error| Fault::Damaged(error.to_string()))?;
    if document.get("format").and_then(Value::as_str) != Some(FORMAT) {
        return Err(damaged("its format is not \"ringsum-tuned\""));
    }
    match document.get("version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(version) => return Err(Fault::Version(version)),
        None => return Err(damaged("its version is no number")),
    }
    let devices = document.get("devices").and_then(Value::as_array);
    let entries = devices.ok_or_else(|| damaged("it has no list of devices"))?.iter();
    let entries: Result<_, _> = entries
        .enumerate()
        .map(|(i, entry)| {
            Entry::from_json(entry).map_err(|what| Fault::Damaged(format!("device {i}: {what}")))
        })
        .collect();
    entries.map(|entries| (document, entries))
}

/// Puts a new file in the place of the old one, with the permissions that the old one has, or for its owner
/// only: either is there, whole, whatever happens.
fn replace(path: &Path, bytes: &[u8], folder: &File) -> io::Result<()> {
    let new = path.with_extension(format!("json.{}.new", std::process::id()));
    // What a process of this number left behind when it was ended.
    let _ = fs::remove_file(&new);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = written.and_then(|mut file| {
        if let Ok(old) = path.metadata() {
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777))?;
        }
        file.write_all(bytes)?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
    }
    replaced?;
    // Where folders cannot be synced, the rename will be on the disk in its time.
    let _ = folder.sync_all();
    Ok(())
}

#[cfg(test)]
mod tests;
