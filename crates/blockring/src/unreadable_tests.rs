//! A device of so many units, some of them bad: what is found of them, and what it takes.

use super::*;

/// What is read: `bad` are unit numbers.
struct Device<'a> {
    len: u64,
    unit: u64,
    bad: &'a [u64],
    /// Reads until everything can be read.
    fails: u32,
    /// Gives what comes before a bad unit, as the page cache does, or nothing.
    is_short: bool,
    reads: u32,
    failed: u32,
}

impl Device<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        let end = (offset + buffer.len() as u64).min(self.len);
        if offset >= end {
            return Ok(0);
        }
        let is_in = |bad: &&u64| (**bad + 1) * self.unit > offset && **bad * self.unit < end;
        match self.bad.iter().find(is_in) {
            Some(bad) if self.failed < self.fails => {
                let start = bad * self.unit;
                if self.is_short && start > offset {
                    return Ok((start - offset) as usize);
                }
                self.failed += 1;
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            _ => {
                let n = (end - offset) as usize;
                for (i, byte) in buffer[..n].iter_mut().enumerate() {
                    *byte = ((offset + i as u64) % 251) as u8;
                }
                Ok(n)
            }
        }
    }
}

fn device(len: u64, unit: u64, bad: &[u64], is_short: bool) -> Device<'_> {
    Device { len, unit, bad, fails: u32::MAX, is_short, reads: 0, failed: 0 }
}

fn narrowed(device: &mut Device<'_>, failed: Range<u64>, align: u32) -> (u64, u64, Narrowed) {
    let mut buffer = vec![0; 64 << 10];
    let mut read = |offset, buffer: &mut [u8]| device.read(offset, buffer);
    let mut probe = Probe::new(&mut read, &mut buffer, align);
    match probe.narrow(failed, io::Error::from_raw_os_error(libc::EIO)) {
        ErrorKind::Read { offset, len, narrowed, error } => {
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            (offset, offset + len, narrowed)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_first_and_the_last_bad_unit_are_found() {
    const BLOCK: u64 = 512 << 10;
    for (align, unit) in [(512, 512), (4096, 4096), (1, 4096)] {
        let units = BLOCK / unit;
        let (a, b) = (units / 3, units / 3 + 1);
        let all: Vec<_> = (units..2 * units).collect();
        let cases: [&[u64]; 7] = [
            &[units],
            &[2 * units - 1],
            &[units + a],
            &[units + a, units + b],
            &[units, 2 * units - 1],
            // Those of other blocks are none of ours.
            &[units - 1, units + a, 2 * units],
            &all,
        ];
        for bad in cases {
            for is_short in [false, true] {
                let of_block = |unit: &&u64| (units..2 * units).contains(*unit);
                let first = bad.iter().find(of_block).unwrap() * unit;
                let last = (bad.iter().rfind(of_block).unwrap() + 1) * unit;
                let mut device = device(4 * BLOCK, unit, bad, is_short);
                let found = narrowed(&mut device, BLOCK..2 * BLOCK, align);
                assert_eq!(found, (first, last, Narrowed::Units), "{align} {bad:?} {is_short}");
                assert!(device.failed <= 24, "{} reads failed", device.failed);
            }
        }
    }
}

#[test]
fn the_end_of_a_source_and_the_middle_of_a_unit() {
    // A source that ends within its last unit, and requests that start within one.
    for (len, failed, bad, expected) in [
        (10_000, 0..10_000, 2, 8192..10_000),
        (10_000, 5000..10_000, 1, 5000..8192),
        (10_000, 8192..10_000, 2, 8192..10_000),
        (100, 0..100, 0, 0..100),
    ] {
        let (bad, mut found) = ([bad], (0, 0, Narrowed::Units));
        for align in [1, 4096] {
            // (Direct requests do not start there.)
            if failed.start % u64::from(align) == 0 {
                found = narrowed(&mut device(len, 4096, &bad, false), failed.clone(), align);
                assert_eq!(found, (expected.start, expected.end, Narrowed::Units), "{align}");
            }
        }
        assert_eq!(found.2, Narrowed::Units);
    }
}

#[test]
fn what_passes_is_said_to_and_what_takes_too_long_is_given_up() {
    let failed = 0..512 << 10;
    let all = (failed.start, failed.end);
    let mut passing = Device { fails: 0, ..device(1 << 20, 512, &[7], false) };
    assert_eq!(narrowed(&mut passing, failed.clone(), 512), (all.0, all.1, Narrowed::Passing));
    // It gives up the half that it was at.
    let bad = [700];
    let mut device = device(1 << 20, 512, &bad, false);
    let mut buffer = vec![0; 64 << 10];
    let mut read = |offset, buffer: &mut [u8]| device.read(offset, buffer);
    let mut probe = Probe::new(&mut read, &mut buffer, 512);
    probe.reads_left = 4;
    match probe.narrow(failed, io::Error::from_raw_os_error(libc::EIO)) {
        ErrorKind::Read { offset: 0x40000, len: 0x40000, narrowed, .. } => {
            assert_eq!(narrowed, Narrowed::OutOfTime);
        }
        other => panic!("{other}"),
    }
    // A source that is shorter now: what it is, another look at it tells.
    let ended = narrowed(&mut self::device(1000, 512, &[], false), 0..4096, 512);
    assert_eq!(ended, (0, 4096, Narrowed::Request));
}

#[test]
fn errors_that_are_not_of_a_place_are_left_alone() {
    let of = |errno| is_of_place(&io::Error::from_raw_os_error(errno));
    let places = [libc::EIO, libc::ENODATA, libc::EREMOTEIO, libc::EILSEQ, libc::EBADMSG];
    assert!(places.into_iter().all(of));
    let others = [libc::EINVAL, libc::ENODEV, libc::ENXIO, libc::ESTALE, libc::EFAULT, libc::EINTR];
    assert!(!others.into_iter().any(of));
}

/// Everything that a map says, joined: bytes of blocks, and bad ranges.
fn mapped(device: &mut Device<'_>, align: u32) -> (Vec<Range<u64>>, Vec<Range<u64>>, u64) {
    let len = device.len;
    let mut buffer = vec![0; READ_BYTES_MAX as usize];
    let mut read = |offset, buffer: &mut [u8]| device.read(offset, buffer);
    let mut probe = Probe::new(&mut read, &mut buffer, align);
    let (mut blocks, mut bad) = (Vec::new(), Vec::new());
    let mut each = |mapped: Mapped<'_>| {
        match mapped {
            Mapped::Block(block) => {
                let expected = |i: usize| ((block.offset + i as u64) % 251) as u8;
                assert!(block.bytes.iter().enumerate().all(|(i, byte)| *byte == expected(i)));
                blocks.push(block.offset..block.offset + block.bytes.len() as u64);
            }
            Mapped::Bad(BadRange { offset, len, error }) => {
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
                bad.push(offset..offset + len);
            }
        }
        Ok(())
    };
    let file = tempfile::tempfile().unwrap();
    let target = Target {
        fd: std::os::fd::AsFd::as_fd(&file),
        seekable: true,
        flags: 0,
        align,
        source_len: Some(len),
    };
    let done = std::cell::Cell::new(0);
    let observe = |bytes| done.set(done.get() + bytes);
    let map = Map { target, rate_limit: None, observe: &observe };
    let bytes = map.run_with(&mut probe, 0..len, len, &mut each).unwrap();
    assert_eq!(done.get(), len);
    assert_eq!(bytes, bad.iter().map(|range| range.end - range.start).sum::<u64>());
    (blocks, bad, bytes)
}

#[test]
fn a_map_has_every_bad_range_and_no_other() {
    const BLOCK: u64 = READ_BYTES_MAX as u64;
    for (align, unit) in [(512, 512), (4096, 4096), (1, 4096)] {
        let units = BLOCK / unit;
        let wide: Vec<_> = (units - 3..5 * units + 2).collect();
        let odd: Vec<_> = (0..units / 2).map(|i| 2 * i + 1).collect();
        #[expect(clippy::single_range_in_vec_init, reason = "one range is meant")]
        let cases: [(&[u64], &[Range<u64>]); 6] = [
            (&[], &[]),
            (&[0], &[0..1]),
            (&[5, 6, 9], &[5..7, 9..10]),
            (&[units - 1, units, 3 * units], &[units - 1..units + 1, 3 * units..3 * units + 1]),
            (&wide, &[units - 3..5 * units + 2]),
            (&odd, &odd.iter().map(|i| *i..i + 1).collect::<Vec<_>>()),
        ];
        for (bad, ranges) in cases {
            for is_short in [false, true] {
                let mut device = device(7 * BLOCK + 1000, unit, bad, is_short);
                let (blocks, found, _) = mapped(&mut device, align);
                let expected: Vec<_> =
                    ranges.iter().map(|r| r.start * unit..r.end * unit).collect();
                assert_eq!(found, expected, "{align} {is_short}");
                // What was read whole is given, before bad places and after them.
                let whole = blocks.iter().all(|block| {
                    expected.iter().all(|bad| bad.end <= block.start || block.end <= bad.start)
                });
                assert!(whole && blocks.last().unwrap().end == device.len);
            }
        }
        // The second bad block in a row is not tried sector by sector.
        let mut device = device(8 * BLOCK, unit, &wide, false);
        mapped(&mut device, align);
        let of_one_block = 2 * units as u32;
        assert!(device.reads < 3 * of_one_block, "{} reads", device.reads);
    }
}

#[test]
fn what_fails_once_is_no_bad_range() {
    let mut device = Device { fails: 1, ..device(3 << 20, 512, &[77], false) };
    assert_eq!(mapped(&mut device, 512).1, []);
}
