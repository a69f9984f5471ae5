//! BLAKE3 of many short inputs at once: each SIMD lane holds a chunk of a different input.
//!
//! BLAKE3 is fast because it hashes 8 or 16 chunks of 1 KiB in parallel; a shorter input leaves
//! most lanes idle. Here chunks of different inputs share a register ("multi-buffer hashing"), and
//! so do the parent nodes of their trees.
//!
//! Owns the assignment of chunks and parents to lanes; the arithmetic is in `multi_buffer/x86.rs`.
//! On other processors each input is hashed on its own. (BLAKE3's NEON kernel hashes four chunks at once, which would
//! do for arm64, but its crate exports it as "undocumented and unstable" only.)

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

use blake3::{BLOCK_LEN, CHUNK_LEN, Hash, KEY_LEN, OUT_LEN};

use crate::Mode;

/// Initial chaining value of each chunk without a key (BLAKE3 paper, table 1).
const IV: [u32; 8] = [
    0x6A09_E667,
    0xBB67_AE85,
    0x3C6E_F372,
    0xA54F_F53A,
    0x510E_527F,
    0x9B05_688C,
    0x1F83_D9AB,
    0x5BE0_CD19,
];

/// Domain separation flags (BLAKE3 paper, table 3).
const CHUNK_START: u32 = 1 << 0;
const CHUNK_END: u32 = 1 << 1;
const PARENT: u32 = 1 << 2;
const ROOT: u32 = 1 << 3;
const KEYED_HASH: u32 = 1 << 4;
const DERIVE_KEY_MATERIAL: u32 = 1 << 6;

/// Blocks of a full chunk.
const CHUNK_BLOCKS: usize = CHUNK_LEN / BLOCK_LEN;

/// Most lanes of any kernel.
const LANES_MAX: usize = 16;

/// A chaining value, or a hash.
type ChainingValue = [u8; OUT_LEN];

/// Input of one SIMD lane: one chunk, or the two child values of a parent node.
#[derive(Clone, Copy)]
struct SimdLane<'a> {
    /// At most 1024 bytes; no bytes are one empty block.
    bytes: &'a [u8],
    /// Index of the chunk in its input.
    counter: u64,
    /// Flags of the first and of the last block, besides those of all blocks.
    first: u32,
    last: u32,
}

impl SimdLane<'_> {
    const IDLE: SimdLane<'static> = SimdLane { bytes: &[], counter: 0, first: 0, last: 0 };
}

/// A SIMD implementation.
#[derive(Debug, Clone, Copy)]
#[cfg_attr(not(all(target_arch = "x86_64", not(miri))), allow(dead_code))]
struct Kernel {
    lanes: usize,
    /// The longest input that is faster here than hashed on its own, in bytes;
    /// `examples/short_inputs.rs` shows the difference.
    input_bytes_max: usize,
    /// Returns the values of the given lanes; the rest of the array is meaningless.
    compress: fn(&[u32; 8], u32, &[SimdLane<'_>]) -> [ChainingValue; LANES_MAX],
}

impl Kernel {
    /// Kernels that this processor supports, the best first.
    fn all() -> impl Iterator<Item = Kernel> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        return [
            // (Alone and here, 3.9 and 6.0 GB/s at 30,000 bytes, equal at 60,000.)
            std::is_x86_feature_detected!("avx512f").then_some(Kernel {
                lanes: 16,
                input_bytes_max: 48 << 10,
                compress: x86::avx512::compress,
            }),
            // (Alone and here, 2.0 and 2.5 GB/s at 10,000 bytes.)
            std::is_x86_feature_detected!("avx2").then_some(Kernel {
                lanes: 8,
                input_bytes_max: 12 << 10,
                compress: x86::avx2::compress,
            }),
        ]
        .into_iter()
        .flatten();
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        std::iter::empty()
    }
}

/// A chunk of one of several inputs.
#[derive(Clone, Copy, Default)]
struct Chunk {
    input: u32,
    /// Index in its input.
    number: u32,
    /// Index of its chaining value.
    value: u32,
}

/// The values of one level of an input's tree, which are contiguous.
#[derive(Clone, Copy)]
struct Nodes {
    start: usize,
    count: usize,
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
    key: [u32; KEY_LEN / 4],
    /// Flags of all blocks.
    flags: u32,
}

impl MultiBuffer {
    /// Creates a hasher for one mode.
    pub fn new(mode: &Mode) -> MultiBuffer {
        MultiBuffer::with(mode, Kernel::all().next())
    }

    fn with(mode: &Mode, kernel: Option<Kernel>) -> MultiBuffer {
        let words = |key: &[u8; KEY_LEN]| {
            let (words, _) = key.as_chunks();
            std::array::from_fn(|i| u32::from_le_bytes(words[i]))
        };
        let (key, flags) = match mode {
            Mode::Hash => (IV, 0),
            Mode::Keyed(key) => (words(key), KEYED_HASH),
            Mode::DeriveKey(key) => (words(key), DERIVE_KEY_MATERIAL),
        };
        MultiBuffer { kernel, mode: mode.clone(), key, flags }
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
        let Some(kernel) = self.kernel else {
            let hash = |input: &&[u8]| self.mode.hasher().update(input).finalize();
            return inputs.iter().map(hash).collect();
        };
        let (chunks, mut trees) = lay_out(inputs);
        let mut values = vec![[0; OUT_LEN]; chunks.len()];
        self.hash_chunks(kernel, inputs, &chunks, &trees, &mut values);
        while trees.iter().any(|tree| tree.count > 1) {
            self.merge_level(kernel, &mut trees, &mut values);
        }
        trees.iter().map(|tree| values[tree.start].into()).collect()
    }

    /// Computes the chaining value of each chunk; for an input of one chunk, its hash.
    fn hash_chunks(
        &self,
        kernel: Kernel,
        inputs: &[&[u8]],
        chunks: &[Chunk],
        trees: &[Nodes],
        values: &mut [ChainingValue],
    ) {
        for group in chunks.chunks(kernel.lanes) {
            let mut lanes = [SimdLane::IDLE; LANES_MAX];
            for (lane, chunk) in lanes.iter_mut().zip(group) {
                let (input, start) = (chunk.input as usize, chunk.number as usize * CHUNK_LEN);
                let bytes = &inputs[input][start..];
                let root = if trees[input].count == 1 { ROOT } else { 0 };
                *lane = SimdLane {
                    bytes: &bytes[..bytes.len().min(CHUNK_LEN)],
                    counter: chunk.number.into(),
                    first: CHUNK_START,
                    last: CHUNK_END | root,
                };
            }
            let found = (kernel.compress)(&self.key, self.flags, &lanes[..group.len()]);
            for (chunk, value) in group.iter().zip(found) {
                values[chunk.value as usize] = value;
            }
        }
    }

    /// Merges pairs of neighbors in each tree; an odd last one moves up unchanged. (This gives the
    /// left child the largest power of two of chunks: section 2.1 of the BLAKE3 paper.)
    fn merge_level(&self, kernel: Kernel, trees: &mut [Nodes], values: &mut [ChainingValue]) {
        let mut pairs = Vec::with_capacity(values.len() / 2);
        for tree in &*trees {
            let root = if tree.count == 2 { ROOT } else { 0 };
            let pair = |i| (tree.start + 2 * i, tree.start + i, PARENT | root);
            pairs.extend((0..tree.count / 2).map(pair));
        }
        for group in pairs.chunks(kernel.lanes) {
            let mut blocks = [[0; BLOCK_LEN]; LANES_MAX];
            let mut lanes = [SimdLane::IDLE; LANES_MAX];
            for ((lane, block), (from, _, flags)) in lanes.iter_mut().zip(&mut blocks).zip(group) {
                block.copy_from_slice(values[*from..from + 2].as_flattened());
                *lane = SimdLane { bytes: block, counter: 0, first: 0, last: *flags };
            }
            let found = (kernel.compress)(&self.key, self.flags, &lanes[..group.len()]);
            // Pairs of a tree are in order, so no value is overwritten before it is merged.
            for ((_, to, _), value) in group.iter().zip(found) {
                values[*to] = value;
            }
        }
        for tree in trees.iter_mut().filter(|tree| tree.count > 1) {
            if tree.count % 2 == 1 {
                values[tree.start + tree.count / 2] = values[tree.start + tree.count - 1];
            }
            tree.count = tree.count.div_ceil(2);
        }
    }
}

/// Number of chunks of an input; an empty input has one.
fn chunk_count(input: &[u8]) -> usize {
    input.len().div_ceil(CHUNK_LEN).max(1)
}

/// Lists the chunks of all inputs, those with the most blocks first so that neighboring lanes end
/// at about the same time, and the position of each input's values.
fn lay_out(inputs: &[&[u8]]) -> (Vec<Chunk>, Vec<Nodes>) {
    let last_blocks = |input: &[u8], count: usize| {
        (input.len() - (count - 1) * CHUNK_LEN).div_ceil(BLOCK_LEN).max(1)
    };
    // Number of chunks with this many blocks; then the index of the next such chunk.
    let mut places = [0; CHUNK_BLOCKS + 1];
    let mut trees = Vec::with_capacity(inputs.len());
    let mut start = 0;
    for input in inputs {
        let count = chunk_count(input);
        places[CHUNK_BLOCKS] += count - 1;
        places[last_blocks(input, count)] += 1;
        trees.push(Nodes { start, count });
        start += count;
    }
    assert!(u32::try_from(start).is_ok(), "{start} chunks at once");
    let mut place = 0;
    for blocks in (1..=CHUNK_BLOCKS).rev() {
        (places[blocks], place) = (place, place + places[blocks]);
    }
    let mut chunks = vec![Chunk::default(); start];
    for (number, (input, tree)) in inputs.iter().zip(&trees).enumerate() {
        let mut put = |chunk: usize, blocks: usize| {
            chunks[places[blocks]] = Chunk {
                input: number as u32,
                number: chunk as u32,
                value: (tree.start + chunk) as u32,
            };
            places[blocks] += 1;
        };
        (0..tree.count - 1).for_each(|chunk| put(chunk, CHUNK_BLOCKS));
        put(tree.count - 1, last_blocks(input, tree.count));
    }
    (chunks, trees)
}

#[cfg(test)]
mod tests {
    use super::*;

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
