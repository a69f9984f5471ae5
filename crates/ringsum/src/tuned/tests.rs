//! Entries written and read back, damaged files, and invented devices.

use std::os::unix::fs::symlink;

use super::*;

fn device(minor: u32, unique: Option<&str>) -> DeviceId {
    DeviceId {
        number: format!("8:{minor}"),
        model: Some("FAST 9000".to_owned()),
        sectors: 1000,
        unique: unique.map(str::to_owned),
    }
}

fn entry(device: DeviceId) -> TunedEntry {
    TunedEntry {
        device,
        kernel: "6.18.0".to_owned(),
        date: "2026-11-21".to_owned(),
        file_system: "ext4".to_owned(),
        engine: EngineKind::Pool,
        pool_threads: Some(16),
        block_bytes: 1 << 20,
        depth: 24,
        bytes_per_s: 3.5e9,
        built_in_bytes_per_s: 2.75e9,
    }
}

fn save(path: &Path, entry: &TunedEntry) -> Result<(), TunedError> {
    update(path, &entry.device, Some(entry)).map(|is_changed| assert!(is_changed))
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Whatever the umask.
#[test]
fn a_new_file_is_private_and_an_old_one_keeps_its_mode() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a/b/tuned.json");
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let before = rustix::process::umask(rustix::fs::Mode::empty());
    save(&path, &entry(device(0, None))).expect("saved");
    rustix::process::umask(before);
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    save(&path, &entry(device(0, None))).expect("saved");
    assert_eq!(mode(&path), 0o644);
}

#[test]
fn a_saved_entry_is_loaded_and_others_stay() {
    let folder = folder();
    let path = folder.path().join("a/b/tuned.json");
    assert_eq!(load(&path).expect("no file"), []);
    let first = entry(device(0, None));
    let uring = TunedEntry { engine: EngineKind::IoUring, pool_threads: None, ..first.clone() };
    let second = TunedEntry { device: device(16, Some("W2")), ..uring };
    for entry in [&first, &second] {
        save(&path, entry).expect("saved");
    }
    assert_eq!(load(&path).expect("both"), [first.clone(), second.clone()]);
    // The same device, larger; and with another number.
    for (minor, sectors) in [(16, 2000), (32, 2000)] {
        let now = DeviceId { number: format!("8:{minor}"), sectors, ..second.device.clone() };
        let now = TunedEntry { device: now, depth: minor, ..second.clone() };
        save(&path, &now).expect("saved");
        assert_eq!(load(&path).expect("both"), [first.clone(), now]);
    }
    // Another device with that number.
    let other = TunedEntry { device: device(32, Some("W3")), ..first.clone() };
    save(&path, &other).expect("saved");
    let entries = load(&path).expect("three");
    assert_eq!((entries.len(), &entries[0], &entries[2]), (3, &first, &other));
    let names: Vec<_> = fs::read_dir(path.parent().expect("a folder")).expect("it").collect();
    assert_eq!(names.len(), 1, "nothing is left beside it: {names:?}");
}

#[test]
fn a_removed_entry_is_gone_and_others_stay() {
    let folder = folder();
    let path = folder.path().join("tuned.json");
    update(&path, &device(1, None), None).unwrap();
    assert!(!path.exists(), "there was nothing to remove");
    for minor in [1, 2] {
        save(&path, &entry(device(minor, None))).unwrap();
    }
    update(&path, &device(3, None), None).unwrap();
    assert_eq!(load(&path).unwrap().len(), 2);
    update(&path, &device(1, None), None).unwrap();
    assert_eq!(load(&path).unwrap(), [entry(device(2, None))]);
}

#[test]
fn unknown_keys_and_a_symbolic_link_stay() {
    let folder = folder();
    let path = folder.path().join("tuned.json");
    save(&path, &entry(device(0, None))).expect("saved");
    let text = fs::read_to_string(&path).expect("text");
    fs::write(&path, text.replace("\"queue-depth\"", "\"note\": \"mine\",\n\"queue-depth\""))
        .expect("it");
    // Through a symbolic link.
    let link = folder.path().join("link");
    symlink(&path, &link).expect("a link");
    save(&link, &entry(device(1, None))).expect("saved");
    assert!(fs::read_to_string(&path).expect("text").contains("mine"));
    assert_eq!(load(&path).expect("both").len(), 2);
    assert!(link.symlink_metadata().expect("it").is_symlink());
}

#[test]
fn a_damaged_file_is_reported_and_left_alone() {
    let folder = folder();
    let path = folder.path().join("tuned.json");
    save(&path, &entry(device(0, None))).expect("saved");
    let good = fs::read_to_string(&path).expect("text");
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{from} in {good}");
        good.replace(from, to)
    };
    let cases = [
        (String::new(), "EOF"),
        ("[]".to_owned(), "invalid length 0"),
        ("{}".to_owned(), "missing field `format`"),
        (good[..good.len() / 2].to_owned(), "EOF"),
        (changed("ringsum-tuned", "other"), "format is not"),
        (changed("\"version\": 1", "\"version\": 2"), "its version is 2, and this program reads"),
        (changed("\"version\": 1", "\"version\": \"1\""), "invalid type: string"),
        (changed("\"devices\"", "\"disks\""), "missing field `devices`"),
        (
            changed("\"queue-depth\": 24", "\"queue-depth\": 0"),
            "device 0: queue-depth is 0, and must be",
        ),
        (changed("\"queue-depth\": 24", "\"queue-depth\": 4294967297"), "invalid value"),
        (changed("\"queue-depth\": 24", "\"deep\": 24"), "device 0: missing field `queue-depth`"),
        (changed("1048576", "1048577"), "block-size is not a power of two"),
        (changed("1048576", "512"), "block-size is not a power of two"),
        (changed("1048576", "134217728"), "block-size is 134217728, and must be"),
        (changed("\"pool\"", "\"mmap\""), "the engine mmap is never measured"),
        (changed("\"pool\"", "\"aio\""), "no engine \"aio\""),
        (changed("\"pool-threads\": 16", "\"pool-threads\": 0"), "pool-threads is 0"),
        (changed("2026-11-21", "last\\u001b[2J"), "control characters"),
        (" ".repeat(FILE_BYTES_MAX as usize + 1), "longer than 1 MiB"),
    ];
    for (content, part) in cases {
        fs::write(&path, &content).expect("written");
        for error in [load(&path).err(), save(&path, &entry(device(1, None))).err()] {
            let text = error.expect(part).to_string();
            assert!(text.contains(part) && text.contains("tuned.json"), "{part}: {text}");
        }
        assert!(fs::read_to_string(&path).expect("text") == content, "written over: {part}");
        let Some(Err(why)) = tunings(path.clone())(1) else { panic!("{part}") };
        assert!(why.contains(part), "{why}");
    }
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a folder in its place");
    let text = save(&path, &entry(device(1, None))).expect_err("a folder").to_string();
    assert!(text.contains("not a regular file"), "{text}");
}

#[test]
fn an_invalid_entry_is_not_written() {
    let folder = folder();
    let path = folder.path().join("tuned.json");
    let good = || entry(device(0, None));
    let cases = [
        (TunedEntry { block_bytes: 3 << 10, ..good() }, "block-size"),
        (TunedEntry { bytes_per_s: f64::NAN, ..good() }, "a rate"),
        (TunedEntry { engine: EngineKind::Pread, ..good() }, "engine"),
        (TunedEntry { kernel: "6\n".to_owned(), ..good() }, "control characters"),
    ];
    for (entry, part) in cases {
        let text = save(&path, &entry).expect_err(part).to_string();
        assert!(text.contains(part), "{text}");
    }
    assert!(!path.exists());
}

#[test]
fn an_entry_applies_to_its_device_and_kernel_only() {
    let plain = device(0, None);
    let unique = device(0, Some("W1"));
    let cases = [
        ("the same", &plain, plain.clone(), "6.18.0", Ok(true)),
        ("another number", &plain, device(16, None), "6.18.0", Ok(false)),
        ("another number, but unique", &unique, device(16, Some("W1")), "6.18.0", Ok(true)),
        ("another kernel", &plain, plain.clone(), "6.19.0", Err("under Linux 6.18.0, and this is")),
        (
            "another size",
            &plain,
            DeviceId { sectors: 2000, ..plain.clone() },
            "6.18.0",
            Err("on another device (1000 then, 2000 (sectors) now)"),
        ),
        (
            "another model",
            &plain,
            DeviceId { model: Some("SLOW 1".to_owned()), ..plain.clone() },
            "6.18.0",
            Err("(FAST 9000 then, SLOW 1 (model) now)"),
        ),
        ("another one", &unique, device(0, Some("W2")), "6.18.0", Err("W2 (identity) now")),
        ("one with an identity now", &plain, unique.clone(), "6.18.0", Err("none then, W1")),
    ];
    for (what, measured, now, kernel, expected) in cases {
        // After the entry of another device.
        let entries = [entry(device(99, Some("W9"))), entry(measured.clone())];
        match (applicable(&entries, kernel, &now), expected) {
            (Some(Ok(found)), Ok(true)) => assert_eq!(found, &entries[1], "{what}"),
            (None, Ok(false)) => {}
            (Some(Err(why)), Err(part)) => {
                assert!(why.contains(part) && why.contains("2026-11-21"), "{what}: {why}");
            }
            (found, _) => panic!("{what}: {found:?}"),
        }
    }
    // Two disks that swapped numbers, and two with the same identity.
    for (first, second, now, place) in [("A", "B", 0, 1), ("B", "A", 16, 0), ("B", "B", 16, 1)] {
        let entries = [entry(device(0, Some(first))), entry(device(16, Some(second)))];
        let found = applicable(&entries, "6.18.0", &device(now, Some("B")));
        assert_eq!(found, Some(Ok(&entries[place])), "{first} {second} {now}");
    }
}

/// A folder in the form of sysfs, with these files.
fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = folder();
    for (path, content) in files {
        let path = root.path().join("devices").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, content).expect("written");
    }
    let numbers = root.path().join("dev/block");
    fs::create_dir_all(&numbers).expect("made");
    for (number, place) in [("8:0", "sda"), ("8:1", "sda/sda1"), ("8:16", "sdb")] {
        symlink(format!("../../devices/{place}"), numbers.join(number)).expect("a link");
    }
    root
}

#[test]
fn a_device_is_identified_by_sysfs() {
    let root = sysfs(&[
        ("sda/dev", "8:0\n"),
        ("sda/size", "1000\n"),
        ("sda/device/model", "FAST 9000       \n"),
        ("sda/device/wwid", "naa.5000\n"),
        ("sda/wwid", "\n"),
        ("sda/sda1/dev", "8:1\n"),
        ("sda/sda1/size", "900\n"),
        ("sda/sda1/partition", "1\n"),
        ("sdb/dev", "8:16\n"),
        ("sdb/device/serial", "S\x1b1\n"),
        ("sdb/size", "7\n"),
    ]);
    let of = |minor| DeviceId::in_sysfs(root.path(), rustix::fs::makedev(8, minor));
    let disk = of(0).expect("a disk");
    assert_eq!(disk, device(0, Some("naa.5000")));
    assert_eq!(of(1).expect("a partition"), disk);
    let other = of(16).expect("a disk");
    assert_eq!((other.model, other.unique.as_deref()), (None, Some("S1")));
    for (device, part) in [
        (rustix::fs::makedev(8, 99), "8:99 is not the number of a block device: sysfs does"),
        (rustix::fs::makedev(0, 31), "btrfs, overlayfs, tmpfs"),
    ] {
        let text = DeviceId::in_sysfs(root.path(), device).expect_err(part).to_string();
        assert!(text.contains(part), "{text}");
    }
    fs::remove_file(root.path().join("devices/sdb/size")).expect("removed");
    assert!(of(16).expect_err("no size").to_string().contains("its size"));
}

#[test]
fn the_path_follows_the_environment() {
    let cases = [
        (Some("/xdg"), Some("/home/a"), Some("/xdg/ringsum/tuned.json")),
        (None, Some("/home/a"), Some("/home/a/.config/ringsum/tuned.json")),
        (Some(""), Some("/home/a"), Some("/home/a/.config/ringsum/tuned.json")),
        (Some("relative"), Some("/home/a"), Some("/home/a/.config/ringsum/tuned.json")),
        (Some("relative"), Some("too"), None),
        (None, None, None),
    ];
    for (xdg, home, expected) in cases {
        let path = default_path(xdg.map(OsStr::new), home.map(OsStr::new));
        assert_eq!(path.as_deref(), expected.map(Path::new), "{xdg:?} {home:?}");
    }
}

proptest::proptest! {
    /// Any file is read or refused.
    #[test]
    fn any_content_is_read_or_refused(place in 0_usize..600, byte: u8) {
        let device = serde_json::to_value(entry(device(0, None))).unwrap();
        let document =
            Document { format: FORMAT.to_owned(), version: VERSION, devices: vec![device] };
        let mut bytes = format!("{:#}", serde_json::json!(document)).into_bytes();
        let place = place % bytes.len();
        bytes[place] = byte;
        let _ = parse(&bytes);
    }
}
