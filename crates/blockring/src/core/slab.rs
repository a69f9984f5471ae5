//! The memory of the slots: one aligned allocation, in huge pages if available.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::config::{HugePages, SLOT_ALIGN_BYTES as SLOT_ALIGN};
use crate::error::ErrorKind;

/// A huge page on x86-64 and on arm64 with 4 KiB pages, in bytes.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Slabs of at least this size, in bytes, use huge pages. Reads of cached files use one slot of 256
/// KiB, for which zeroing 2 MiB would be too expensive.
const HUGE_FROM_BYTES: usize = 512 << 10;

const SLOT_ALIGN_BYTES: usize = SLOT_ALIGN as usize;

/// Reserve no swap space, because the memory is read again rather than swapped. (Miri supports
/// neither this flag nor any advice.)
const NORESERVE: MapFlags = if cfg!(miri) { MapFlags::empty() } else { MapFlags::NORESERVE };

/// `slots` blocks of memory. Freed on drop, unless [`leak`](Slab::leak) was called.
///
/// Always a mapping of its own, even where the heap would be faster (by 0.6 % of the time in which a process
/// hashes one small file): a page that a pipe still holds after `vmsplice` keeps its content when it is
/// unmapped, while memory of the heap would be written to again.
pub(crate) struct Slab {
    map: NonNull<u8>,
    map_bytes: usize,
    base: NonNull<u8>,
    stride_bytes: usize,
    slots: u32,
    leaked: AtomicBool,
}

// SAFETY: a Slab hands out raw pointers only; the ring decides who may use which slot.
unsafe impl Send for Slab {}
// SAFETY: as above; the one mutable field is atomic.
unsafe impl Sync for Slab {}

impl Slab {
    /// Maps memory for `slots` blocks of `block_bytes` each. Pages are allocated at first use;
    /// those of hugetlbfs are reserved immediately.
    pub(crate) fn new(slots: u32, block_bytes: u32, pages: HugePages) -> Result<Slab, ErrorKind> {
        let too_much = || refused(false, usize::MAX, io::ErrorKind::OutOfMemory.into());
        let stride_bytes = (block_bytes as usize).checked_next_multiple_of(SLOT_ALIGN_BYTES);
        let stride_bytes = stride_bytes.ok_or_else(too_much)?;
        // With room to round up twice: on 32 bits, a product that wraps around would make the slab
        // smaller than its slots.
        let bytes = stride_bytes.checked_mul(slots as usize);
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as usize - 2 * HUGE_PAGE_BYTES);
        let bytes = bytes.ok_or_else(too_much)?;
        let reserved = pages == HugePages::Hugetlb;
        let huge = reserved || (pages == HugePages::Advise && bytes >= HUGE_FROM_BYTES);
        let (align, bytes) = match huge {
            // A huge page backs only an aligned range of its own size.
            true => (HUGE_PAGE_BYTES, bytes.next_multiple_of(HUGE_PAGE_BYTES)),
            false => (SLOT_ALIGN_BYTES, bytes.max(SLOT_ALIGN_BYTES)),
        };
        let (map_bytes, flags) = match (reserved, huge) {
            (true, _) => (bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB),
            (false, true) => (bytes + align, NORESERVE),
            (false, false) => (bytes, NORESERVE),
        };
        // SAFETY: a new anonymous mapping overlaps nothing.
        let map = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                map_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | flags,
            )
        };
        let map = map.map_err(|error| refused(reserved, bytes, error.into()))?.cast::<u8>();
        let base = map.wrapping_add(map.align_offset(align));
        let advice = match pages {
            // (A smaller mapping holds no huge page, as a rule.)
            HugePages::Off if bytes < HUGE_PAGE_BYTES => None,
            HugePages::Off => Some(Advice::LinuxNoHugepage),
            // Measured with fio and with this library: 2.0-2.5 GB/s with 4 KiB pages, 3.8 GB/s (the
            // device's limit) with huge pages, because small pages need a scatter entry each.
            HugePages::Advise if huge => Some(Advice::LinuxHugepage),
            HugePages::Advise | HugePages::Hugetlb => None,
        };
        if let (Some(advice), false) = (advice, cfg!(miri)) {
            // A kernel without transparent huge pages refuses; reads work nevertheless.
            // SAFETY: the range lies inside the mapping made above.
            let _ = unsafe { madvise(base.cast(), bytes, advice) };
        }
        let [Some(map), Some(base)] = [map, base].map(NonNull::new) else {
            return Err(refused(reserved, bytes, io::ErrorKind::OutOfMemory.into()));
        };
        let leaked = AtomicBool::new(false);
        Ok(Slab { map, map_bytes, base, stride_bytes, slots, leaked })
    }

    /// All slots, for the kernel to register.
    pub(crate) fn as_iovec(&self) -> libc::iovec {
        let iov_len = self.stride_bytes * self.slots as usize;
        libc::iovec { iov_base: self.base.as_ptr().cast(), iov_len }
    }

    /// Returns the start of the block in `slot`. Panics if there is no such slot.
    pub(crate) fn slot(&self, slot: u32) -> *mut u8 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.base.as_ptr().wrapping_add(slot as usize * self.stride_bytes)
    }

    /// Returns the start of `len` bytes of `slot`, beginning at byte `skip`. Panics if the slot is
    /// shorter: a read would write into another slot, or past the end of the slab.
    pub(crate) fn part(&self, slot: u32, skip: u32, len: u32) -> *mut u8 {
        let end = u64::from(skip) + u64::from(len);
        assert!(end <= self.stride_bytes as u64, "{skip} + {len} bytes of {}", self.stride_bytes);
        self.slot(slot).wrapping_add(skip as usize)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn is_leaked(&self) -> bool {
        self.leaked.load(Ordering::Relaxed)
    }

    /// Undoes a leak: in tests, no kernel writes into the slab.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn take_back(&self) {
        self.leaked.store(false, Ordering::Relaxed);
    }

    /// Leaks the memory, because the kernel may still write into it.
    pub(crate) fn leak(&self) {
        self.leaked.store(true, Ordering::Relaxed);
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        if !self.leaked.load(Ordering::Relaxed) {
            // SAFETY: the mapping is ours and whole; requests into it were drained, or it leaked.
            let _ = unsafe { munmap(self.map.as_ptr().cast(), self.map_bytes) };
        }
    }
}

fn refused(reserved: bool, bytes: usize, error: io::Error) -> ErrorKind {
    let what = match reserved {
        true => {
            let pages = bytes / HUGE_PAGE_BYTES;
            let plural = if pages == 1 { "" } else { "s" };
            format!(
                "{pages} reserved huge page{plural} of 2 MiB for the slots (HugePages_Free in \
                 /proc/meminfo is what is left; the sysctl vm.nr_hugepages reserves more)"
            )
        }
        false => format!(
            "{bytes} bytes of memory for the slots (use fewer slots or smaller blocks, or raise \
             ulimit -v)"
        ),
    };
    ErrorKind::Resource { what, error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_aligned_and_disjoint() {
        for (slots, block_bytes) in [(1, 512), (3, 1000), (7, 4096), (32, 512 << 10), (5, 1 << 20)]
        {
            let slab = Slab::new(slots, block_bytes, HugePages::Advise).unwrap();
            for slot in 0..slots {
                let start = slab.slot(slot);
                assert_eq!(start.addr() % SLOT_ALIGN_BYTES, 0);
                // SAFETY: the slot is ours and holds block_bytes.
                unsafe { ptr::write_bytes(start, slot as u8 + 1, block_bytes as usize) };
            }
            for slot in 0..slots {
                // SAFETY: written above.
                let block =
                    unsafe { std::slice::from_raw_parts(slab.slot(slot), block_bytes as usize) };
                assert!(block.iter().all(|&b| b == slot as u8 + 1), "slot {slot} was overwritten");
            }
        }
    }

    #[test]
    #[should_panic(expected = "4096 + 1 bytes of 4096")]
    fn a_read_past_the_end_of_a_slot_panics() {
        let slab = Slab::new(2, 4000, HugePages::Off).unwrap();
        // A direct read of whole sectors fits.
        assert_eq!(slab.part(1, 0, 4096), slab.slot(1));
        slab.part(0, 4096, 1);
    }

    #[test]
    fn more_memory_than_can_exist_is_refused() {
        assert!(Slab::new(u32::MAX, u32::MAX, HugePages::Advise).is_err());
        assert!(Slab::new(u32::MAX, u32::MAX, HugePages::Hugetlb).is_err());
    }

    #[test]
    #[should_panic(expected = "slot 2 of 2")]
    fn a_slot_that_does_not_exist_panics() {
        Slab::new(2, 4096, HugePages::Off).unwrap().slot(2);
    }
}
