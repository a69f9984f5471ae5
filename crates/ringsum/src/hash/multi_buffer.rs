//! BLAKE3 of many short inputs at once: each SIMD lane holds a chunk of a different input.
//!
//! BLAKE3 is fast because it hashes 8 or 16 chunks of 1 KiB in parallel; a shorter input leaves
//! most lanes idle. Here chunks of different inputs share a register ("multi-buffer hashing"), and
//! so do the parent nodes of their trees.
//!
//! `multi_buffer/lanes.rs` does so with AVX-512 or AVX2. On other processors each input is hashed on its own. (BLAKE3's
//! NEON kernel hashes four chunks at once, which would do for arm64, but its crate exports it as "undocumented and
//! unstable" only.)

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod lanes;

use blake3::Hash;

use self::lanes::Kernel;
use crate::Mode;

/// Other processors have no kernel.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod lanes {
    use blake3::Hash;

    use crate::Mode;

    #[derive(Debug, Clone, Copy)]
    pub(super) struct Kernel {
        pub(super) input_bytes_max: usize,
        never: std::convert::Infallible,
    }

    impl Kernel {
        pub(super) fn all() -> impl Iterator<Item = Kernel> {
            std::iter::empty()
        }
    }

    pub(super) fn hash(kernel: Kernel, _: &Mode, _: &[&[u8]]) -> Vec<Hash> {
        match kernel.never {}
    }
}

/// Hashes short inputs in parallel. A few dozen at once keep all lanes of the processor busy.
///
/// ```
/// use ringsum::{Mode, MultiBuffer};
///
/// let inputs = [&b"one"[..], b"two", b"three"];
/// let hashes = MultiBuffer::new(&Mode::Hash).hash(&inputs);
/// assert_eq!(hashes[1], blake3::hash(b"two"));
/// ```
///
/// Needs AVX-512 or AVX2; on other processors it is no faster than hashing one input at a time.
pub struct MultiBuffer {
    kernel: Option<Kernel>,
    mode: Mode,
}

impl MultiBuffer {
    /// Creates a hasher for one mode.
    pub fn new(mode: &Mode) -> MultiBuffer {
        MultiBuffer::with(mode, Kernel::all().next())
    }

    fn with(mode: &Mode, kernel: Option<Kernel>) -> MultiBuffer {
        MultiBuffer { kernel, mode: mode.clone() }
    }

    /// The longest input that is faster here than hashed on its own, in bytes: 48 KiB with AVX-512,
    /// 12 KiB with AVX2, 0 without either.
    pub(crate) fn input_bytes_max(&self) -> usize {
        self.kernel.map_or(0, |kernel| kernel.input_bytes_max)
    }

    /// Returns the 32-byte hash of each input, in the order of `inputs`.
    ///
    /// # Panics
    ///
    /// If the inputs have 2^32 or more chunks (4 TiB).
    pub fn hash(&self, inputs: &[&[u8]]) -> Vec<Hash> {
        if let Some(kernel) = self.kernel {
            return lanes::hash(kernel, &self.mode, inputs);
        }
        let hash = |input: &&[u8]| self.mode.hasher().update(input).finalize();
        inputs.iter().map(hash).collect()
    }
}

#[cfg(test)]
mod tests {
    use blake3::{BLOCK_LEN, CHUNK_LEN};

    use super::*;

    /// Blocks of a full chunk.
    const CHUNK_BLOCKS: usize = CHUNK_LEN / BLOCK_LEN;

    /// Every kernel of this processor, and none.
    fn kernels() -> Vec<Option<Kernel>> {
        let all: Vec<_> = Kernel::all().collect();
        if all.len() < 2 {
            eprintln!("SKIP other kernels than {all:?}: this processor has none");
        }
        all.into_iter().map(Some).chain([None]).collect()
    }

    fn modes() -> [Mode; 3] {
        let key = std::array::from_fn(|i| i as u8 + 100);
        [Mode::Hash, Mode::Keyed(key), Mode::derive_key("ringsum tests 2026-11 multi-buffer")]
    }

    /// Bytes whose period is no power of two, so that blocks in each other's place change the hash.
    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i % 251) as u8).collect()
    }

    fn check(mode: &Mode, kernel: Option<Kernel>, inputs: &[&[u8]]) {
        let found = MultiBuffer::with(mode, kernel).hash(inputs);
        assert_eq!(found.len(), inputs.len());
        for (place, (input, found)) in inputs.iter().zip(found).enumerate() {
            let expected = mode.hasher().update(input).finalize();
            let (len, of) = (input.len(), inputs.len());
            assert_eq!(found, expected, "{kernel:?}: {len} bytes, {place} of {of}");
        }
    }

    #[test]
    fn lengths_around_every_boundary_alone_and_together() {
        let bytes = bytes(200 << 10);
        let chunks =
            [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 199];
        let around = |len: usize| [len - 1, len, len + 1];
        let mut lens: Vec<_> =
            chunks.iter().flat_map(|chunks| around(chunks * CHUNK_LEN)).collect();
        lens.extend((1..=CHUNK_BLOCKS).flat_map(|blocks| around(blocks * BLOCK_LEN)));
        lens.push(0);
        // Each starts elsewhere, so that none can stand for another.
        let inputs: Vec<_> = lens.iter().enumerate().map(|(i, len)| &bytes[i..i + len]).collect();
        for mode in &modes() {
            for kernel in kernels() {
                check(mode, kernel, &inputs);
                inputs.iter().for_each(|input| check(mode, kernel, &[input]));
            }
        }
    }

    #[test]
    fn any_number_of_inputs() {
        let bytes = bytes(4 << 10);
        for kernel in kernels() {
            check(&Mode::Hash, kernel, &[]);
            for count in 1..70 {
                let inputs: Vec<_> = (0..count).map(|i| &bytes[i..i * 37 % 3000 + i]).collect();
                check(&Mode::Hash, kernel, &inputs);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn inputs_of_any_lengths(lens in proptest::collection::vec(0_usize..6000, 0..50)) {
            let bytes = bytes(7000);
            let inputs: Vec<_> = lens.iter().enumerate().map(|(i, len)| &bytes[i..i + len]).collect();
            for kernel in kernels() {
                check(&Mode::Hash, kernel, &inputs);
            }
        }
    }
}
