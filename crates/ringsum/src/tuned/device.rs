//! What a device is known by from one day to the next: what sysfs says of it.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::TunedError;

/// Where sysfs says what no other device has, the best first: NVMe, SCSI, device mapper, MD, NVMe again, MMC,
/// loop devices. Not `serial` of virtio disks: whoever runs the machine makes it up, the same for several at
/// times, and to read it asks the device (77 us where others take 22).
const UNIQUE: [&str; 7] = [
    "wwid",
    "device/wwid",
    "dm/uuid",
    "md/uuid",
    "device/serial",
    "device/cid",
    "loop/backing_file",
];

/// Where it says which model it is: most drivers, device mapper, MMC.
const MODELS: [&str; 3] = ["device/model", "dm/name", "device/name"];

/// Longest of these that is read, in bytes: sysfs gives no more at once.
const ATTRIBUTE_BYTES_MAX: usize = 4096;

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
    /// What no other device has (wwid, UUID or the like), where there is such a thing.
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
        let mut disk = root.join(format!("dev/block/{major}:{minor}"));
        let mut number = Some((major, minor));
        if attribute(&disk, "partition").is_some() {
            // Its folder lies in that of its disk, to which the kernel follows this.
            disk.push("..");
            number = attribute(&disk, "dev").and_then(|number| parse_number(&number));
        }
        let sectors = attribute(&disk, "size").and_then(|sectors| sectors.parse().ok());
        let (Some((major, minor)), Some(sectors)) = (number, sectors) else {
            return Err(unknown("sysfs does not say how large it is".to_owned()));
        };
        let first = |names: &[&str]| names.iter().find_map(|name| attribute(&disk, name));
        Ok(DeviceId { major, minor, model: first(&MODELS), sectors, unique: first(&UNIQUE) })
    }

    /// `MAJOR:MINOR`.
    pub fn number(&self) -> String {
        format!("{}:{}", self.major, self.minor)
    }

    /// The place of this device among `others`: under its number, unless both say what no other device has,
    /// and differ; or else under another number, if there is such a thing and all else is the same.
    pub(super) fn position<'d>(
        &self,
        others: impl Iterator<Item = &'d DeviceId> + Clone,
    ) -> Option<usize> {
        let may_be = |other: &DeviceId| match (&self.unique, &other.unique) {
            (Some(unique), Some(others)) => unique == others,
            _ => true,
        };
        let moved = |other: &DeviceId| self.unique.is_some() && self.difference(other).is_none();
        let place = others.clone().position(|other| self.has_number_of(other) && may_be(other));
        place.or_else(|| others.clone().position(moved))
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
    let mut bytes = [0; ATTRIBUTE_BYTES_MAX];
    let len = File::open(disk.join(name)).ok()?.read(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes[..len]);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
