//! What a device is known by from one day to the next: what sysfs says of it.

use std::fs;
use std::path::{Path, PathBuf};

use super::TunedError;

/// Where sysfs says which identity a device has that no other one has, the best first: NVMe, SCSI, device
/// mapper, MD, virtio, NVMe again, MMC, loop devices.
const UNIQUE: [&str; 8] = [
    "wwid",
    "device/wwid",
    "dm/uuid",
    "md/uuid",
    "serial",
    "device/serial",
    "device/cid",
    "loop/backing_file",
];

/// Where it says which model it is: most drivers, device mapper, MMC.
const MODELS: [&str; 3] = ["device/model", "dm/name", "device/name"];

/// A disk, and what tells whether it is still the same one. A partition has that of its disk: it is the disk
/// that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceId {
    /// Its number, which may be another one after the next start of the machine.
    pub major: u32,
    /// The other half of it.
    pub minor: u32,
    /// What it calls itself, where it does.
    pub model: Option<String>,
    /// Its size, in sectors of 512 bytes.
    pub sectors: u64,
    /// What no other device has (wwid, UUID or serial number), where there is such a thing.
    pub unique: Option<String>,
}

impl DeviceId {
    /// The identity of the device with this number, as [`Source::device`](blockring::Source::device)
    /// gives it for a file on it and for the device itself.
    ///
    /// # Errors
    ///
    /// [`TunedError::NoDevice`] where the number stands for no device: btrfs, overlayfs, tmpfs and network
    /// file systems make one up.
    pub fn of(device: u64) -> Result<DeviceId, TunedError> {
        DeviceId::in_sysfs(Path::new("/sys"), device)
    }

    pub(super) fn in_sysfs(root: &Path, device: u64) -> Result<DeviceId, TunedError> {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let unknown = |why: String| TunedError::NoDevice { major, minor, why };
        if major == 0 {
            let why = "btrfs, overlayfs, tmpfs and network file systems make such numbers up";
            return Err(unknown(why.to_owned()));
        }
        let folder = fs::canonicalize(root.join(format!("dev/block/{major}:{minor}")))
            .map_err(|error| unknown(format!("sysfs has none of it: {error}")))?;
        // A partition's folder lies in that of its disk.
        let disk = match (folder.join("partition").exists(), folder.parent()) {
            (true, Some(disk)) => disk.to_owned(),
            _ => folder,
        };
        let [number, size] = ["dev", "size"].map(|name| attribute(&disk, name));
        let number = number.and_then(|number| parse_number(&number));
        let (Some((major, minor)), Some(sectors)) = (number, size.and_then(|s| s.parse().ok()))
        else {
            return Err(unknown("sysfs does not say how large it is".to_owned()));
        };
        let first = |names: &[&str]| names.iter().find_map(|name| attribute(&disk, name));
        Ok(DeviceId { major, minor, model: first(&MODELS), sectors, unique: first(&UNIQUE) })
    }

    /// `MAJOR:MINOR`.
    pub fn number(&self) -> String {
        format!("{}:{}", self.major, self.minor)
    }

    /// Whether both are of one device, which may have grown, or got another number: where both say what no
    /// other device has, that decides; elsewhere the number.
    pub(super) fn is_same_device(&self, other: &DeviceId) -> bool {
        match (&self.unique, &other.unique) {
            (Some(unique), Some(others)) => unique == others && self.model == other.model,
            _ => self.has_number_of(other),
        }
    }

    pub(super) fn has_number_of(&self, other: &DeviceId) -> bool {
        (self.major, self.minor) == (other.major, other.minor)
    }

    /// What is different now, in words.
    pub(super) fn difference(&self, now: &DeviceId) -> Option<String> {
        let words = |text: &Option<String>| text.as_deref().unwrap_or("none").to_owned();
        let (then, now) = match () {
            () if self.model != now.model => {
                (words(&self.model), format!("{} (model)", words(&now.model)))
            }
            () if self.unique != now.unique => {
                (words(&self.unique), format!("{} (identity)", words(&now.unique)))
            }
            () if self.sectors != now.sectors => {
                (self.sectors.to_string(), format!("{} (sectors)", now.sectors))
            }
            () => return None,
        };
        Some(format!("{then} then, {now} now"))
    }
}

/// `MAJOR:MINOR`, as sysfs writes it.
pub(super) fn parse_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// What a file of sysfs says, if it says anything.
fn attribute(disk: &Path, name: &str) -> Option<String> {
    let path: PathBuf = disk.join(name);
    let bytes = fs::read(path).ok()?;
    let text: String =
        String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control()).collect();
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
