//! The identity of a device across reboots, from sysfs.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{DeviceId, TunedError};

/// Unique attributes, best first: NVMe, SCSI, device mapper, MD, NVMe again, MMC, loop devices. The
/// `serial` of virtio disks is not used: the hypervisor invents it, sometimes the same for several
/// disks, and reading it sends a request to the device (77 us; the others take 22).
const UNIQUE: [&str; 7] = [
    "wwid",
    "device/wwid",
    "dm/uuid",
    "md/uuid",
    "device/serial",
    "device/cid",
    "loop/backing_file",
];

/// Attributes that contain the model: most drivers, device mapper, MMC.
const MODELS: [&str; 3] = ["device/model", "dm/name", "device/name"];

/// Longest attribute, in bytes: sysfs returns at most a page.
const ATTRIBUTE_BYTES_MAX: usize = 4096;

impl DeviceId {
    /// Returns the identity of the device with this number, as returned by
    /// [`Source::device`](blockring::Source::device) for a file on it or for itself.
    ///
    /// # Errors
    ///
    /// [`TunedError::NoDevice`] for numbers made up by btrfs, overlayfs, tmpfs and the like.
    pub fn of(device: u64) -> Result<DeviceId, TunedError> {
        DeviceId::in_sysfs(Path::new("/sys"), device)
    }

    pub(super) fn in_sysfs(root: &Path, device: u64) -> Result<DeviceId, TunedError> {
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let unknown = |why| TunedError::NoDevice { number: number.clone(), why };
        if rustix::fs::major(device) == 0 {
            return Err(unknown("btrfs, overlayfs, tmpfs and network file systems make it up"));
        }
        let mut disk = root.join("dev/block").join(&number);
        let mut disk_number = Some(number.clone());
        if attribute(&disk, "partition").is_some() {
            // The folder of a partition is in its disk's; the kernel resolves links before "..".
            disk.push("..");
            disk_number = attribute(&disk, "dev");
        }
        let sectors = attribute(&disk, "size").and_then(|sectors| sectors.parse().ok());
        let (Some(number), Some(sectors)) = (disk_number, sectors) else {
            return Err(unknown("sysfs does not report its size"));
        };
        let first = |names: &[&str]| names.iter().find_map(|name| attribute(&disk, name));
        Ok(DeviceId { number, model: first(&MODELS), sectors, unique: first(&UNIQUE) })
    }

    /// The position of this device in `devices`: the one with its number, unless both have a unique
    /// attribute and these differ; otherwise one with another number, if it has a unique attribute
    /// and everything else is the same.
    pub(super) fn position<'d>(
        &self,
        devices: impl Iterator<Item = &'d DeviceId> + Clone,
    ) -> Option<usize> {
        let may_be_same = |other: &DeviceId| match (&self.unique, &other.unique) {
            (Some(unique), Some(others)) => unique == others,
            _ => true,
        };
        let moved = |other: &DeviceId| self.unique.is_some() && self.difference(other).is_none();
        let same_number = |other: &DeviceId| self.has_number_of(other) && may_be_same(other);
        devices.clone().position(same_number).or_else(|| devices.clone().position(moved))
    }

    pub(super) fn has_number_of(&self, other: &DeviceId) -> bool {
        self.number == other.number
    }

    /// The first difference between the measured device and the current one, except the number.
    pub(super) fn difference(&self, now: &DeviceId) -> Option<String> {
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".to_owned());
        let properties = [
            ("model", text(&self.model), text(&now.model)),
            ("identity", text(&self.unique), text(&now.unique)),
            ("sectors", self.sectors.to_string(), now.sectors.to_string()),
        ];
        let (what, then, now) = properties.into_iter().find(|(_, then, now)| then != now)?;
        Some(format!("{then} then, {now} ({what}) now"))
    }
}

/// Returns the text of an attribute; `None` if it is missing or empty.
fn attribute(disk: &Path, name: &str) -> Option<String> {
    let mut bytes = [0; ATTRIBUTE_BYTES_MAX];
    let len = File::open(disk.join(name)).ok()?.read(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes[..len]);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
