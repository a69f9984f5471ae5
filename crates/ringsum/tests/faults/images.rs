//! Devices that fail, and file systems of every kind, made on the spot on loop devices.

use std::fs::{self, File, OpenOptions};

use crate::mounting::{Setup, noise};
use crate::run::{Case, GOOD, Must};
use crate::support::Scratch;
use crate::table::{Fault, Group, Trial};

pub(crate) const DEVICES: Group = Group {
    name: "Devices that fail",
    faults: &[
        Fault { name: "a device whose second half is gone", run: |trial| cut_device(trial, "off") },
        Fault {
            name: "a device whose second half is gone, past the page cache of its file",
            run: |trial| cut_device(trial, "on"),
        },
        Fault { name: "a file on ext4, whose second half is gone below", run: cut_file },
        Fault { name: "a file on btrfs, of which one byte is another below", run: corrupted },
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
        Fault { name: "XFS", run: |trial| on(trial, "mkfs.xfs -q", 320) },
        Fault { name: "btrfs", run: |trial| on(trial, "mkfs.btrfs -q", 128) },
        Fault {
            name: "tmpfs",
            run: |trial| mounted(trial, |setup| setup.mount("mount -t tmpfs none")),
        },
        Fault {
            name: "overlayfs",
            run: |trial| {
                mounted(trial, |setup| {
                    setup.tool("mkdir below above work")?;
                    setup.mount(
                        "mount -t overlay -o lowerdir=below,upperdir=above,workdir=work none",
                    )
                })
            },
        },
        Fault { name: "SquashFS", run: squashed },
    ],
};

const LEN: usize = 3_000_001;

fn setup() -> Setup {
    let setup = Setup { scratch: Scratch::new(), undo: Vec::new() };
    setup.scratch.write(GOOD.0, GOOD.1);
    setup
}

/// Tries what is at `path` with each engine, each time from the device.
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

/// What the kernel cannot read ends where the file of the loop device does.
fn cut_device(trial: &Trial<'_>, dio: &str) -> Result<(), String> {
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
    each(trial, &setup, &device, &content, Must::Fail, Some(0..4 << 20));
    setup.take_down()
}

/// Where `mark` lies in `backing`.
fn place_of(setup: &Setup, mark: &[u8]) -> Result<u64, String> {
    let image = fs::read(setup.scratch.join("backing")).unwrap();
    let at = (0..image.len()).step_by(512).find(|at| image[*at..].starts_with(mark));
    at.map(|at| at as u64).ok_or_else(|| "the content is not in the image as it is".to_owned())
}

fn cut_file(trial: &Trial<'_>) -> Result<(), String> {
    let mut setup = setup();
    let content = noise(LEN);
    // All that the file system says of itself is before the content.
    let device = setup.make("mkfs.ext4 -q -F -O ^has_journal", 32, "rw", "off")?;
    setup.write("on/file", &content);
    setup.tool("umount on")?;
    setup.tool(&format!("mount -o ro {device} on"))?;
    let middle = LEN / 2 / 4096 * 4096;
    let place = place_of(&setup, &content[middle..middle + 512])?;
    let backing = OpenOptions::new().write(true).open(setup.scratch.join("backing")).unwrap();
    backing.set_len(place).unwrap();
    setup.tool(&format!("blockdev --flushbufs {device}"))?;
    each(trial, &setup, "on/file", &content, Must::Fail, Some(0..LEN as u64));
    setup.take_down()
}

fn corrupted(trial: &Trial<'_>) -> Result<(), String> {
    let mut setup = setup();
    let content = noise(LEN);
    let device = setup.make("mkfs.btrfs -q", 128, "rw", "off")?;
    setup.write("on/file", &content);
    setup.tool("umount on")?;
    setup.change(&content);
    setup.tool(&format!("blockdev --flushbufs {device}; mount {device} on"))?;
    each(trial, &setup, "on/file", &content, Must::Fail, Some(0..LEN as u64));
    setup.take_down()
}

/// A name for the device mapper, where there is one.
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
    setup.take_down()
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
    setup.take_down()
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
    setup.take_down()
}

fn squashed(trial: &Trial<'_>) -> Result<(), String> {
    let mut setup = setup();
    let content = [noise(LEN), b"compress me ".repeat(90_000)].concat();
    setup.scratch.make_dir("below");
    setup.write("below/file", &content);
    setup.tool("mksquashfs below backing -quiet -no-progress")?;
    let device = setup.attach("backing", "off")?;
    setup.mount(&format!("mount -o ro {device}"))?;
    each(trial, &setup, "on/file", &content, Must::Hash, None);
    setup.take_down()
}
