//! Assignment of chunks and parents to SIMD lanes; the arithmetic is in `x86.rs`.

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
pub(super) struct Kernel {
    lanes: usize,
    /// The longest input that is faster here than hashed on its own, in bytes;
    /// `examples/short_inputs.rs` shows the difference.
    pub(super) input_bytes_max: usize,
    /// Returns the values of the given lanes; the rest of the array is meaningless.
    compress: fn(&[u32; 8], u32, &[SimdLane<'_>]) -> [ChainingValue; LANES_MAX],
}

impl Kernel {
    /// Kernels that this processor supports, the best first.
    pub(super) fn all() -> impl Iterator<Item = Kernel> {
        [
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
        .flatten()
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

/// A kernel with the key and the flags of a mode.
struct Hasher {
    kernel: Kernel,
    key: [u32; KEY_LEN / 4],
    /// Flags of all blocks.
    flags: u32,
}

/// Returns the 32-byte hash of each input, in the order of `inputs`.
///
/// # Panics
///
/// If the inputs have 2^32 or more chunks (4 TiB).
pub(super) fn hash(kernel: Kernel, mode: &Mode, inputs: &[&[u8]]) -> Vec<Hash> {
    let words = |key: &[u8; KEY_LEN]| {
        let (words, _) = key.as_chunks();
        std::array::from_fn(|i| u32::from_le_bytes(words[i]))
    };
    let (key, flags) = match mode {
        Mode::Hash => (IV, 0),
        Mode::Keyed(key) => (words(key), KEYED_HASH),
        Mode::DeriveKey(key) => (words(key), DERIVE_KEY_MATERIAL),
    };
    let hasher = Hasher { kernel, key, flags };
    let (chunks, mut trees) = lay_out(inputs);
    let mut values = vec![[0; OUT_LEN]; chunks.len()];
    hasher.hash_chunks(inputs, &chunks, &trees, &mut values);
    while trees.iter().any(|tree| tree.count > 1) {
        hasher.merge_level(&mut trees, &mut values);
    }
    trees.iter().map(|tree| values[tree.start].into()).collect()
}

impl Hasher {
    /// Computes the chaining value of each chunk; for an input of one chunk, its hash.
    fn hash_chunks(
        &self,
        inputs: &[&[u8]],
        chunks: &[Chunk],
        trees: &[Nodes],
        values: &mut [ChainingValue],
    ) {
        for group in chunks.chunks(self.kernel.lanes) {
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
            let found = (self.kernel.compress)(&self.key, self.flags, &lanes[..group.len()]);
            for (chunk, value) in group.iter().zip(found) {
                values[chunk.value as usize] = value;
            }
        }
    }

    /// Merges pairs of neighbors in each tree; an odd last one moves up unchanged. (This gives the
    /// left child the largest power of two of chunks: section 2.1 of the BLAKE3 paper.)
    fn merge_level(&self, trees: &mut [Nodes], values: &mut [ChainingValue]) {
        let mut pairs = Vec::with_capacity(values.len() / 2);
        for tree in &*trees {
            let root = if tree.count == 2 { ROOT } else { 0 };
            let pair = |i| (tree.start + 2 * i, tree.start + i, PARENT | root);
            pairs.extend((0..tree.count / 2).map(pair));
        }
        for group in pairs.chunks(self.kernel.lanes) {
            let mut blocks = [[0; BLOCK_LEN]; LANES_MAX];
            let mut lanes = [SimdLane::IDLE; LANES_MAX];
            for ((lane, block), (from, _, flags)) in lanes.iter_mut().zip(&mut blocks).zip(group) {
                block.copy_from_slice(values[*from..from + 2].as_flattened());
                *lane = SimdLane { bytes: block, counter: 0, first: 0, last: *flags };
            }
            let found = (self.kernel.compress)(&self.key, self.flags, &lanes[..group.len()]);
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
