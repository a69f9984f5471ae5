//! Failing devices, and file systems of every kind, created on loop devices.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::mounting::{Setup, noise};
use crate::run::{Case, GOOD, Must};
use crate::support::Scratch;
use crate::table::{Fault, Group, Trial};

pub(crate) const DEVICES: Group = Group {
    name: "Devices that fail",
    faults: &[
        Fault {
            name: "a device whose second half is gone",
            run: |trial| cut_device(trial, "off", Must::Fail),
        },
        Fault {
            name: "a device whose second half is gone, past the page cache of its file",
            run: |trial| cut_device(trial, "on", Must::Fail),
        },
        Fault {
            name: "a device whose second half is gone, with --list-bad-ranges",
            run: |trial| cut_device(trial, "off", Must::Map),
        },
        Fault { name: "a file on ext4, whose second half is gone below", run: cut_file },
        Fault { name: "a file on btrfs, of which one byte is another below", run: corrupted },
        Fault {
            name: "a file on SquashFS, of which 4 KiB are others below",
            run: |trial| squashed(trial, Packed::Broken, Must::Fail),
        },
        Fault {
            name: "a file on overlayfs on SquashFS, of which 4 KiB are others below",
            run: |trial| squashed(trial, Packed::BrokenBelowOverlay, Must::Fail),
        },
        Fault { name: "a device with an unreadable range (dm-error)", run: mapped_to_errors },
        Fault { name: "an encrypted device (dm-crypt)", run: encrypted },
    ],
};

pub(crate) const FILE_SYSTEMS: Group = Group {
    name: "File systems that are well",
    faults: &[
        Fault {
            name: "ext4 with blocks of 1 KiB",
            run: |trial| on(trial, "mkfs.ext4 -q -F -b 1024", 16),
        },
        Fault {
            name: "ext4 with its data in the journal",
            run: |trial| {
                mounted(trial, |setup| {
                    setup.make("mkfs.ext4 -q -F", 64, "rw,data=journal", "off").map(drop)
                })
            },
        },
        Fault { name: "XFS", run: |trial| on(trial, "mkfs.xfs -q", 320) },
        Fault { name: "btrfs", run: |trial| on(trial, "mkfs.btrfs -q", 128) },
        Fault {
            name: "btrfs that compresses",
            run: |trial| {
                mounted(trial, |setup| {
                    setup.make("mkfs.btrfs -q", 128, "rw,compress-force=zlib", "off").map(drop)
                })
            },
        },
        Fault {
            name: "tmpfs",
            run: |trial| mounted(trial, |setup| setup.mount("mount -t tmpfs none")),
        },
        Fault {
            name: "overlayfs, a file of its upper layer",
            run: |trial| {
                mounted(trial, |setup| {
                    setup.tool("mkdir below")?;
                    overlay(setup, "on", "below")
                })
            },
        },
        Fault { name: "overlayfs, a file of its lower layer", run: |trial| lower(trial, None) },
        Fault {
            name: "overlayfs, a file of its lower layer, which is on tmpfs",
            run: |trial| lower(trial, Some("mount -t tmpfs none")),
        },
        Fault { name: "SquashFS", run: |trial| squashed(trial, Packed::Well, Must::Hash) },
        Fault {
            name: "overlayfs on SquashFS",
            run: |trial| squashed(trial, Packed::WellBelowOverlay, Must::Hash),
        },
    ],
};

const LEN: usize = 3_000_001;

fn setup() -> Setup {
    let setup = Setup { scratch: Scratch::new(), undo: Vec::new() };
    setup.scratch.write(GOOD.0, GOOD.1);
    setup
}

/// Reads the file at `path` with each engine, each time from the device.
fn each(
    trial: &Trial<'_>,
    setup: &Setup,
    path: &str,
    content: &[u8],
    must: Must,
    at: Option<std::ops::Range<u64>>,
) {
    trial.each(|engine| {
        if let Ok(file) = File::open(setup.scratch.join(path)) {
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
        }
        let mut case = Case::new(&setup.scratch, engine, path, &[content], must);
        case.at = at.clone();
        case
    });
}

/// The device ends where its backing file was truncated.
fn cut_device(trial: &Trial<'_>, dio: &str, must: Must) -> Result<(), String> {
    const CUT: u64 = 2 << 20;
    let mut setup = setup();
    let content = noise(4 << 20);
    setup.write("backing", &content);
    let device = setup.attach("backing", dio)?;
    OpenOptions::new()
        .write(true)
        .open(setup.scratch.join("backing"))
        .unwrap()
        .set_len(CUT)
        .unwrap();
    let at = if must == Must::Map { CUT } else { 0 }..4 << 20;
    each(trial, &setup, &device, &content, must, Some(at));
    setup.undo_all()
}

/// The offset of `mark` in `backing`.
fn place_of(setup: &Setup, mark: &[u8]) -> Result<u64, String> {
    let image = fs::read(setup.scratch.join("backing")).unwrap();
    let at = (0..image.len()).step_by(512).find(|at| image[*at..].starts_with(mark));
    at.map(|at| at as u64).ok_or_else(|| "the content is not in the image as it is".to_owned())
}

fn cut_file(trial: &Trial<'_>) -> Result<(), String> {
    let mut setup = setup();
    let content = noise(LEN);
    // All metadata lies before the content.
    let device = setup.make("mkfs.ext4 -q -F -O ^has_journal", 32, "rw", "off")?;
    setup.write("on/file", &content);
    setup.unmount()?;
    setup.tool(&format!("mount -o ro {device} on"))?;
    let middle = LEN / 2 / 4096 * 4096;
    let place = place_of(&setup, &content[middle..middle + 512])?;
    let backing = OpenOptions::new().write(true).open(setup.scratch.join("backing")).unwrap();
    backing.set_len(place).unwrap();
    setup.tool(&format!("blockdev --flushbufs {device}"))?;
    each(trial, &setup, "on/file", &content, Must::Fail, Some(0..LEN as u64));
    setup.undo_all()
}

fn corrupted(trial: &Trial<'_>) -> Result<(), String> {
    let mut setup = setup();
    let content = noise(LEN);
    let device = setup.make("mkfs.btrfs -q", 128, "rw", "off")?;
    setup.write("on/file", &content);
    setup.unmount()?;
    setup.change(&content);
    setup.tool(&format!("blockdev --flushbufs {device}; mount {device} on"))?;
    each(trial, &setup, "on/file", &content, Must::Fail, Some(0..LEN as u64));
    setup.undo_all()
}

/// Makes a device-mapper device, if that is supported.
fn mapper(setup: &mut Setup, what: &str, table: &str) -> Result<String, String> {
    setup.tool("dmsetup version").map_err(|_| "no dmsetup, or no device mapper".to_owned())?;
    let name = format!("ringsum-{what}-{}", std::process::id());
    setup.tool(&format!("printf '{table}' | dmsetup create {name}"))?;
    setup.undo.push(format!("dmsetup remove {name}"));
    setup.tool("udevadm settle 2>/dev/null || dmsetup mknodes")?;
    Ok(format!("/dev/mapper/{name}"))
}

fn mapped_to_errors(trial: &Trial<'_>) -> Result<(), String> {
    let mut setup = setup();
    let content = noise(4 << 20);
    setup.write("backing", &content);
    let loop_device = setup.attach("backing", "off")?;
    let table = format!(
        "0 4096 linear {loop_device} 0\\n4096 8 error\\n4104 4088 linear {loop_device} 4104\\n"
    );
    let device = mapper(&mut setup, "error", &table)?;
    each(trial, &setup, &device, &content, Must::Fail, Some(0..(4104 * 512)));
    setup.undo_all()
}

fn encrypted(trial: &Trial<'_>) -> Result<(), String> {
    let mut setup = setup();
    setup.write("backing", &noise(4 << 20));
    let loop_device = setup.attach("backing", "off")?;
    let key = "0123456789abcdef".repeat(8);
    let device = mapper(
        &mut setup,
        "crypt",
        &format!("0 8192 crypt aes-xts-plain64 {key} 0 {loop_device} 0\\n"),
    )?;
    let content = fs::read(&device).map_err(|error| format!("{device}: {error}"))?;
    each(trial, &setup, &device, &content, Must::Hash, None);
    setup.undo_all()
}

fn on(trial: &Trial<'_>, mkfs: &str, mib: u64) -> Result<(), String> {
    mounted(trial, |setup| setup.make(mkfs, mib, "rw", "off").map(drop))
}

fn mounted(
    trial: &Trial<'_>,
    mount: impl Fn(&mut Setup) -> Result<(), String>,
) -> Result<(), String> {
    let mut setup = setup();
    mount(&mut setup)?;
    let content = noise(LEN);
    setup.write("on/file", &content);
    each(trial, &setup, "on/file", &content, Must::Hash, None);
    setup.undo_all()
}

fn lower(trial: &Trial<'_>, mount: Option<&str>) -> Result<(), String> {
    let mut setup = setup();
    let content = noise(LEN);
    setup.scratch.make_dir("below");
    mount.map(|line| setup.mount_at("below", line)).transpose()?;
    setup.write("below/file", &content);
    overlay(&mut setup, "on", "below")?;
    each(trial, &setup, "on/file", &content, Must::Hash, None);
    setup.undo_all()
}

/// Mounts an overlayfs at `place`, with `below` as its lower layer and `above` as its upper one.
pub(crate) fn overlay(setup: &mut Setup, place: &str, below: &str) -> Result<(), String> {
    setup.tool("mkdir -p above work")?;
    let options = format!("lowerdir={below},upperdir=above,workdir=work");
    setup.mount_at(place, &format!("mount -t overlay -o {options} none"))
}

/// The content of a SquashFS.
#[derive(Clone, Copy, PartialEq)]
enum Packed {
    Well,
    WellBelowOverlay,
    Broken,
    BrokenBelowOverlay,
}

fn squashed(trial: &Trial<'_>, packed: Packed, must: Must) -> Result<(), String> {
    setup().tool("mksquashfs -version").map_err(|_| "no mksquashfs".to_owned())?;
    let mut setup = setup();
    // Only half of it is random: incompressible data would be stored as it is, without a checksum.
    let letters = |byte: u8| [b'a' + byte % 16, b'a' + byte / 16];
    let content: Vec<u8> = noise(LEN).into_iter().flat_map(letters).collect();
    setup.scratch.make_dir("below");
    setup.write("below/file", &content);
    setup.tool("mksquashfs below backing -quiet -no-progress")?;
    let is_broken = matches!(packed, Packed::Broken | Packed::BrokenBelowOverlay);
    if is_broken {
        // The data starts after a superblock of 96 bytes.
        let backing = OpenOptions::new().write(true).open(setup.scratch.join("backing")).unwrap();
        backing.write_all_at(&[0xFF; 4096], 1 << 20).unwrap();
    }
    let device = setup.attach("backing", "off")?;
    setup.mount(&format!("mount -o ro {device}"))?;
    let path = match packed {
        Packed::Well | Packed::Broken => "on/file",
        Packed::WellBelowOverlay | Packed::BrokenBelowOverlay => {
            overlay(&mut setup, "over", "on")?;
            "over/file"
        }
    };
    // Only its tables tell which blocks these are.
    each(trial, &setup, path, &content, must, is_broken.then_some(0..content.len() as u64));
    setup.undo_all()
}
