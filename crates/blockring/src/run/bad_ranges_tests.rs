//! A device with some bad units: what a search finds, and how many reads it takes.

use std::cell::Cell;
use std::os::fd::AsFd;

use super::*;
use crate::engine::{Completion, Read};
use crate::sys::fake_page;

/// A device that is read through the pump. `bad` are unit numbers.
struct Device<'a> {
    len: u64,
    unit: u64,
    bad: &'a [u64],
    /// Failures until everything can be read.
    fails: u32,
    /// Returns the bytes before a bad unit, as the page cache does, or nothing.
    is_short: bool,
    reads: Cell<u32>,
    failed: Cell<u32>,
}

impl Device<'_> {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads.set(self.reads.get() + 1);
        let end = (offset + buffer.len() as u64).min(self.len);
        if offset >= end {
            return Ok(0);
        }
        let is_in = |bad: &&u64| (**bad + 1) * self.unit > offset && **bad * self.unit < end;
        match self.bad.iter().find(is_in) {
            Some(bad) if self.failed.get() < self.fails => {
                let start = bad * self.unit;
                if self.is_short && start > offset {
                    return Ok((start - offset) as usize);
                }
                self.failed.set(self.failed.get() + 1);
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

impl Engine for &Device<'_> {
    unsafe fn submit(&mut self, read: Read<'_>) -> io::Result<Option<Completion>> {
        // SAFETY: the pump guarantees that the buffer is valid.
        let buffer = unsafe { std::slice::from_raw_parts_mut(read.buffer, read.len as usize) };
        let result = self.read(read.offset, buffer).map(|n| n as u32);
        Ok(Some(Completion { slot: read.slot, result }))
    }
}

fn device(len: u64, unit: u64, bad: &[u64], is_short: bool) -> Device<'_> {
    let (reads, failed) = (Cell::new(0), Cell::new(0));
    Device { len, unit, bad, fails: u32::MAX, is_short, reads, failed }
}

fn narrowed(mut device: &Device<'_>, failed: Range<u64>, align: u32) -> (u64, u64, Precision) {
    let file = tempfile::tempfile().unwrap();
    let target = Target { fd: file.as_fd(), flags: 0, align, len: u64::MAX };
    match narrow_with(&mut device, &target, failed, io::Error::from_raw_os_error(libc::EIO)) {
        ErrorKind::Read { offset, len, precision, error } => {
            assert_eq!(error.raw_os_error(), Some(libc::EIO));
            (offset, offset + len, precision)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn the_first_and_the_last_bad_unit_are_found() {
    fake_page::each(|page_bytes| {
        for (align, unit) in [(512, 512), (4096, 4096), (1, page_bytes as u64)] {
            first_and_last(align, unit);
        }
    });
}

fn first_and_last(align: u32, unit: u64) {
    const BLOCK: u64 = 512 << 10;
    let units = BLOCK / unit;
    let (a, b) = (units / 3, units / 3 + 1);
    let all: Vec<_> = (units..2 * units).collect();
    let cases: [&[u64]; 7] = [
        &[units],
        &[2 * units - 1],
        &[units + a],
        &[units + a, units + b],
        &[units, 2 * units - 1],
        // Bad units of other blocks do not count.
        &[units - 1, units + a, 2 * units],
        &all,
    ];
    for bad in cases {
        for is_short in [false, true] {
            let in_block = |unit: &&u64| (units..2 * units).contains(*unit);
            let first = bad.iter().find(in_block).unwrap() * unit;
            let last = (bad.iter().rfind(in_block).unwrap() + 1) * unit;
            let device = device(4 * BLOCK, unit, bad, is_short);
            let found = narrowed(&device, BLOCK..2 * BLOCK, align);
            assert_eq!(found, (first, last, Precision::Units), "{align} {bad:?} {is_short}");
            assert!(device.failed.get() <= 24, "{} reads failed", device.failed.get());
        }
    }
}

#[test]
fn ranges_need_not_be_whole_units() {
    // A source that ends within its last unit, and requests that start within one.
    for (len, failed, bad, expected) in [
        (10_000, 0..10_000, 2, 8192..10_000),
        (10_000, 5000..10_000, 1, 5000..8192),
        (10_000, 8192..10_000, 2, 8192..10_000),
        (100, 0..100, 0, 0..100),
    ] {
        let bad = [bad];
        for align in [1, 4096] {
            // (Direct requests do not start there.)
            if failed.start % u64::from(align) == 0 {
                let found = narrowed(&device(len, 4096, &bad, false), failed.clone(), align);
                assert_eq!(found, (expected.start, expected.end, Precision::Units), "{align}");
            }
        }
    }
}

#[test]
fn a_transient_error_and_a_search_without_time_are_reported_as_such() {
    let failed = 0..512 << 10;
    let all = (failed.start, failed.end);
    let transient = Device { fails: 0, ..device(1 << 20, 512, &[7], false) };
    assert_eq!(narrowed(&transient, failed.clone(), 512), (all.0, all.1, Precision::Transient));
    // A source that is shorter now: the check of its length reports that.
    let ended = narrowed(&device(1000, 512, &[], false), 0..4096, 512);
    assert_eq!(ended, (0, 4096, Precision::Request));
    // Without time, a part counts as bad.
    let mut unread = &device(1 << 20, 512, &[], false);
    let file = tempfile::tempfile().unwrap();
    let next = NextPart::new(Target { fd: file.as_fd(), flags: 0, align: 512, len: u64::MAX });
    let recording = Recording::new(false, None);
    let context = RunContext::plain(&next, &recording);
    for goal in [Goal::All, Goal::First] {
        let (slab, mut ignore) = (slab(1 << 20).unwrap(), |_: Scanned<'_>| Ok(()));
        let pump = pump(&context, &mut unread, &slab, 1 << 20);
        let mut search = Search::new(pump, &next, 1 << 20, &mut ignore);
        search.goal = goal;
        search.deadline = Instant::now();
        assert!(search.bad(0..1 << 19).unwrap() && search.is_out_of_time);
        let open = search.open.as_ref().unwrap();
        assert_eq!((open.offset, open.len), (0, 1 << 19));
    }
    assert_eq!(unread.reads.get(), 0);
}

#[test]
fn errors_that_do_not_concern_a_place_are_not_examined() {
    let of_place = |errno| is_of_place(&io::Error::from_raw_os_error(errno));
    let places = [libc::EIO, libc::ENODATA, libc::EREMOTEIO, libc::EILSEQ, libc::EBADMSG];
    assert!(places.into_iter().all(of_place));
    let others = [libc::EINVAL, libc::ENODEV, libc::ENXIO, libc::ESTALE, libc::EFAULT, libc::EINTR];
    assert!(!others.into_iter().any(of_place));
}

/// All that a scan reports: ranges that can be read, joined, and ranges that cannot.
fn scanned(mut device: &Device<'_>, align: u32) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
    let (mut good, mut bad) = (Vec::<Range<u64>>::new(), Vec::new());
    let mut at = 0;
    let mut each = |scanned: Scanned<'_>| {
        let range = match scanned {
            Ok(block) => {
                let expected = |i: usize| ((block.offset + i as u64) % 251) as u8;
                assert!(block.bytes.iter().enumerate().all(|(i, byte)| *byte == expected(i)));
                let range = block.offset..block.offset + block.bytes.len() as u64;
                match good.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => good.push(range.clone()),
                }
                range
            }
            Err(BadRange { offset, len, error }) => {
                assert_eq!(error.raw_os_error(), Some(libc::EIO));
                bad.push(offset..offset + len);
                offset..offset + len
            }
        };
        assert_eq!(range.start, at, "in order, and nothing left out");
        at = range.end;
        Ok(())
    };
    let file = tempfile::tempfile().unwrap();
    let target = Target { fd: file.as_fd(), flags: 0, align, len: device.len };
    let next = NextPart::new(target);
    let recording = Recording::new(false, None);
    let context = RunContext::plain(&next, &recording);
    let (len, slab) = (device.len, slab(READ_BYTES_MAX).unwrap());
    let pump = pump(&context, &mut device, &slab, READ_BYTES_MAX);
    let mut search = Search::new(pump, &next, READ_BYTES_MAX, &mut each);
    assert!(search.run(Goal::All, 0..len).unwrap().is_none());
    let bad_bytes = search.bad_bytes;
    drop(search);
    assert_eq!(at, len);
    let bytes: u64 = bad.iter().map(|range: &Range<u64>| range.end - range.start).sum();
    assert_eq!(bad_bytes, bytes);
    (good, bad)
}

#[test]
fn a_scan_finds_every_bad_range_and_reads_all_else() {
    fake_page::each(|page_bytes| {
        for (align, unit) in [(512, 512), (4096, 4096), (1, page_bytes as u64)] {
            whole_scan(align, unit);
        }
    });
}

fn whole_scan(align: u32, unit: u64) {
    const BLOCK: u64 = READ_BYTES_MAX as u64;
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
            let device = device(7 * BLOCK + 1000, unit, bad, is_short);
            let (_, found) = scanned(&device, align);
            let expected: Vec<_> = ranges.iter().map(|r| r.start * unit..r.end * unit).collect();
            assert_eq!(found, expected, "{align} {is_short}");
        }
    }
    // The second bad block in a row is sampled, not searched unit by unit.
    let device = device(8 * BLOCK, unit, &wide, false);
    scanned(&device, align);
    let (one_block, samples) = (2 * units as u32, SAMPLES as u32 + 1);
    assert!(device.reads.get() < 3 * one_block + 8 * samples, "{} reads", device.reads.get());
}

#[test]
fn a_range_that_fails_once_is_not_bad() {
    let device = Device { fails: 1, ..device(3 << 20, 512, &[77], false) };
    assert_eq!(scanned(&device, 512).1, []);
}
