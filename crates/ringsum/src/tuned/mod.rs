//! Settings measured by `ringbench tune`: the file that stores them, and which ones still apply.
//!
//! The file has one entry per device. An entry applies to the device and kernel that it was
//! measured with. This module does not read the environment; `blockring` decides whether a setting
//! suits a source.

mod device;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use blockring::{Config, EngineKind, Tuning};
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::hash::tree::is_subtree_size;
use crate::lock;

/// The value of the file's `format`.
const FORMAT: &str = "ringsum-tuned";

/// The only version of the format so far.
const VERSION: u64 = 1;

/// Largest file that is read, in bytes. An entry has about 400.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The identity of a disk. A partition has the identity of its disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceId {
    /// `MAJOR:MINOR`, which may change at a reboot.
    pub number: String,
    /// Its model, if it reports one.
    pub model: Option<String>,
    /// Its size, in sectors of 512 bytes.
    pub sectors: u64,
    /// Its unique attribute (wwid, UUID or the like), if it reports one.
    pub unique: Option<String>,
}

/// The best setting measured on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TunedEntry {
    /// The device.
    #[serde(flatten)]
    pub device: DeviceId,
    /// The kernel release, as `uname -r` prints it.
    pub kernel: String,
    /// The day, such as 2026-11-21.
    pub date: String,
    /// The file system of the measured file, or "a block device".
    pub file_system: String,
    /// [`EngineKind::IoUring`], [`EngineKind::Libaio`] or [`EngineKind::Pool`].
    #[serde(serialize_with = "engine_name", deserialize_with = "engine_of_name")]
    pub engine: EngineKind,
    /// Threads of the engine `pool`, if they were measured.
    #[serde(rename = "pool-threads")]
    pub pool_threads: Option<u32>,
    /// Bytes of a block: a power of two, at least 1 KiB.
    #[serde(rename = "block-size")]
    pub block_bytes: u32,
    /// Requests in flight.
    #[serde(rename = "queue-depth")]
    pub depth: u32,
    /// Bytes per second with this setting.
    pub bytes_per_s: f64,
    /// Bytes per second with the built-in setting, measured in the same session.
    pub built_in_bytes_per_s: f64,
}

/// Why settings cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunedError {
    /// The device number is not that of a block device.
    #[error(
        "{number} is not the number of a block device: {why}; settings are kept per device: name a device, \
         or a file on a file system that has a device of its own"
    )]
    NoDevice {
        /// `MAJOR:MINOR`.
        number: String,
        /// How that is known.
        why: &'static str,
    },
    /// A system call on the file or its folder failed.
    #[error("{}: {operation}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
    /// The file is damaged, or of another format or version.
    #[error("{}: {what}; repair the file or remove it", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The new entry is invalid.
    #[error("invalid setting: {0}")]
    TunedEntry(String),
}

/// Returns the path of the user's settings: `$XDG_CONFIG_HOME/ringsum/tuned.json`, or
/// `~/.config/ringsum/tuned.json`. As the XDG specification requires, a value that is not an
/// absolute path is ignored. `None` if both are.
pub fn default_path(xdg_config_home: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    let absolute = |value: &&OsStr| Path::new(value).is_absolute();
    let config = match xdg_config_home.filter(absolute) {
        Some(config) => PathBuf::from(config),
        None => Path::new(home.filter(absolute)?).join(".config"),
    };
    Some(config.join("ringsum/tuned.json"))
}

/// Returns all entries of a file; none if it does not exist.
///
/// # Errors
///
/// If the file cannot be read, or is not a settings file of this version.
pub fn load(path: &Path) -> Result<Vec<TunedEntry>, TunedError> {
    Ok(read(path)?.1)
}

/// Replaces the entry of `device`, or removes it if `entry` is `None`. Other entries are unchanged.
/// The file is replaced atomically; its folder is created if necessary. Returns whether the file has
/// changed: false if there was no entry to remove.
///
/// # Errors
///
/// Those of [`load`]: a file that cannot be parsed is never overwritten. Also if the file cannot be
/// written, or `entry` is invalid.
pub fn update(
    path: &Path,
    device: &DeviceId,
    entry: Option<&TunedEntry>,
) -> Result<bool, TunedError> {
    entry.map_or(Ok(()), TunedEntry::check).map_err(TunedError::TunedEntry)?;
    if entry.is_none() && position(&load(path)?, device).is_none() {
        return Ok(false);
    }
    // A symbolic link is kept; its target is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let fail = |operation| move |error| TunedError::Io { path: path.clone(), operation, error };
    let folder =
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The mode that the XDG specification requires.
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700).create(folder).map_err(fail("create folder"))?;
    let folder = File::open(folder).map_err(fail("open folder"))?;
    // Prevents a second writer from losing this entry. Some file systems have no locks.
    let _ = flock(&folder, FlockOperation::LockExclusive);
    let (mut document, entries) = read(path)?;
    let devices = &mut document.devices;
    let new = entry.map(serde_json::to_value).transpose();
    let new = new.map_err(|error| TunedError::TunedEntry(error.to_string()))?;
    match (position(&entries, device), new) {
        (Some(old), Some(new)) => devices[old] = new,
        (Some(old), None) => _ = devices.remove(old),
        (None, new) => devices.extend(new),
    }
    let text = format!("{:#}\n", serde_json::json!(document));
    replace(path, text.as_bytes(), &folder).map_err(fail("write"))?;
    Ok(true)
}

/// Returns the entry that applies to `device` under `kernel`; `None` if the device has no entry. If
/// it has one that does not apply, the error is the reason.
fn applicable<'e>(
    entries: &'e [TunedEntry],
    kernel: &str,
    device: &DeviceId,
) -> Option<Result<&'e TunedEntry, String>> {
    let same_number = || entries.iter().position(|entry| entry.device.has_number_of(device));
    let entry = &entries[position(entries, device).or_else(same_number)?];
    let why = match entry.device.difference(device) {
        Some(difference) => format!("on another device ({difference})"),
        None if entry.kernel != kernel => {
            format!("under Linux {}, and this is Linux {kernel}", entry.kernel)
        }
        None => return Some(Ok(entry)),
    };
    Some(Err(format!("measured on {} {why}: run `ringbench tune` again", entry.date)))
}

/// Returns the settings in the file at `path`, for
/// [`RunOptions::tuning`](blockring::RunOptions::tuning). The file is read at the first call; if
/// that fails, the plan shows the error as a reason and is not affected otherwise.
pub fn tunings(path: PathBuf) -> impl Fn(u64) -> Option<Result<Tuning, String>> + Send + Sync {
    let entries = OnceLock::new();
    let kernel = OnceLock::new();
    let known = Mutex::new(BTreeMap::new());
    move |device| {
        let entries = match entries.get_or_init(|| load(&path).map_err(|error| error.to_string())) {
            Ok(entries) if entries.is_empty() => return None,
            Ok(entries) => entries,
            Err(why) => return Some(Err(why.clone())),
        };
        let find = || {
            let uname = || rustix::system::uname().release().to_string_lossy().into_owned();
            let found =
                applicable(entries, kernel.get_or_init(uname), &DeviceId::of(device).ok()?)?;
            Some(found.map(TunedEntry::tuning))
        };
        let mut known = lock(&known);
        known.entry(device).or_insert_with(find).clone()
    }
}

impl TunedEntry {
    fn tuning(&self) -> Tuning {
        Tuning {
            engine: self.engine,
            pool_threads: self.pool_threads,
            block_bytes: self.block_bytes,
            depth: self.depth,
            why: format!("measured best on this device on {}, by `ringbench tune`", self.date),
        }
    }

    /// Checks that texts may be printed on a terminal, and that blocks are subtrees, which hashing
    /// relies on. The error says what is wrong.
    fn check(&self) -> Result<(), String> {
        let device = &self.device;
        let texts = [&self.kernel, &self.date, &self.file_system].into_iter();
        let mut texts = texts.chain(device.model.iter()).chain(device.unique.iter());
        if texts.any(|text| text.chars().any(char::is_control)) {
            return Err("a text has control characters".to_owned());
        }
        if !matches!(self.engine, EngineKind::IoUring | EngineKind::Libaio | EngineKind::Pool) {
            return Err(format!("the engine {} is never measured", self.engine));
        }
        if !is_subtree_size(self.block_bytes.into()) {
            return Err("block-size is not a power of two of at least 1024".to_owned());
        }
        let is_rate = |rate: &f64| rate.is_finite() && *rate >= 0.0;
        if ![self.bytes_per_s, self.built_in_bytes_per_s].iter().all(is_rate) {
            return Err("a rate is negative or not a number".to_owned());
        }
        let config = Config::default().with(|config| {
            config.io.block_bytes = Some(self.block_bytes);
            config.io.queue_depth = Some(self.depth);
            config.io.pool_threads = self.pool_threads;
        });
        config.validate().map_err(|error| error.to_string())
    }
}

fn engine_name<S: Serializer>(engine: &EngineKind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(engine.name())
}

fn engine_of_name<'de, D: Deserializer<'de>>(from: D) -> Result<EngineKind, D::Error> {
    let name = String::deserialize(from)?;
    let engine = EngineKind::ALL.into_iter().find(|kind| kind.name() == name);
    engine.ok_or_else(|| serde::de::Error::custom(format!("no engine {name:?}")))
}

fn position(entries: &[TunedEntry], device: &DeviceId) -> Option<usize> {
    device.position(entries.iter().map(|entry| &entry.device))
}

/// The whole file. Entries are kept as they are, including keys unknown to this version.
#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    version: u64,
    devices: Vec<Value>,
}

/// Reads the file, and parses its entries in order. A missing file has none.
fn read(path: &Path) -> Result<(Document, Vec<TunedEntry>), TunedError> {
    use io::ErrorKind::{NotADirectory, NotFound};
    let bytes = match read_bytes(path) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), NotFound | NotADirectory) => {
            let format = FORMAT.to_owned();
            return Ok((Document { format, version: VERSION, devices: Vec::new() }, Vec::new()));
        }
        Err(error) => {
            return Err(TunedError::Io { path: path.to_owned(), operation: "read", error });
        }
    };
    parse(&bytes).map_err(|what| TunedError::Content { path: path.to_owned(), what })
}

fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    // A FIFO must not block the open.
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn parse(bytes: &[u8]) -> Result<(Document, Vec<TunedEntry>), String> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err("longer than 1 MiB".to_owned());
    }
    let damaged = |error| format!("not a file of settings: {error}");
    let document: Document = serde_json::from_slice(bytes).map_err(damaged)?;
    if document.format != FORMAT {
        return Err(format!("its format is not \"{FORMAT}\""));
    }
    if document.version != VERSION {
        let version = document.version;
        return Err(format!("its version is {version}, and this program reads version {VERSION}"));
    }
    let entry = |(i, value): (usize, &Value)| {
        let entry = TunedEntry::deserialize(value).map_err(|error| error.to_string());
        let checked = entry.and_then(|entry: TunedEntry| entry.check().map(|()| entry));
        checked.map_err(|what| format!("device {i}: {what}"))
    };
    let entries: Result<_, _> = document.devices.iter().enumerate().map(entry).collect();
    entries.map(|entries| (document, entries))
}

/// Replaces a file atomically. Its permissions are kept; a new file is its owner's only.
fn replace(path: &Path, bytes: &[u8], folder: &File) -> io::Result<()> {
    let new = path.with_extension(format!("json.{}.new", std::process::id()));
    // A killed process with this id may have left one.
    let _ = fs::remove_file(&new);
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
    let written = written.and_then(|mut file| {
        if let Ok(old) = path.metadata() {
            file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o777))?;
        }
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    // Some file systems cannot sync a folder.
    let _ = folder.sync_all();
    Ok(())
}

#[cfg(test)]
mod tests;
