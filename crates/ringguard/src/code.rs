//! The code: parity of columns while their pieces arrive in any order, and lost pieces from parity.
//!
//! Reed-Solomon over GF(2^16) as `reed-solomon-simd` computes it at its "high rate": the data are
//! cut into chunks of M shards (M is m rounded up to a power of two), the inverse transforms of the
//! chunks are added, and the transform of the sum is the parity. So a chunk is all that is needed at
//! once, not a column, and memory does not depend on the number of shards.
//!
//! Lost pieces are found by computing the parity of what is left. Its difference to the stored
//! parity is a linear combination of the lost pieces, with as many equations as pieces are lost:
//! that takes as long as encoding and a few multiplications, where the general decoder of the crate
//! took four to seven times as long.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Result, anyhow};
use blockring::{Buffer, HugePages};
use reed_solomon_simd::engine::tables::{get_exp_log, mul};
use reed_solomon_simd::engine::{DefaultEngine, Engine, GF_MODULUS, ShardsRefMut, utils};

use crate::geometry::{Column, Geometry, Run, Step};
use crate::lock;
use crate::transform::{Transform, add_product};

/// Bytes of each shard in a strip. 16 of them are 256 KiB, so that a transform stays in the cache of
/// a core.
const STRIP_BYTES: usize = 16 << 10;

/// Elements of the code in a unit of 64 bytes.
pub(crate) type Unit = [u8; 64];

thread_local! {
    static ENGINE: DefaultEngine = DefaultEngine::new();
}

/// Fills the tables for parity of `m` pieces, which takes some 10 ms, before they are needed.
pub(crate) fn prepare(m: u32) {
    // (The parity of one piece is the sum of all.)
    if m > 1 && Transform::new(m.next_power_of_two() as usize, 0).is_none() {
        ENGINE.with(|engine| engine.mul(&mut [[0; 64]], 1));
    }
}

/// The same part of each of M shards, one behind the other. (Not on the heap: the allocator would
/// keep areas of each thread, 40 MiB after 16 GiB.)
struct Strip {
    /// Units of each shard that are in use.
    units: usize,
    memory: Buffer,
}

impl Strip {
    fn used(&mut self, shards: usize) -> &mut [Unit] {
        &mut self.memory.as_chunks_mut().0[..shards * self.units]
    }

    fn read(&self, shard: usize) -> &[u8] {
        &self.memory[shard * self.units * 64..][..self.units * 64]
    }
}

/// Strips that together hold M runs.
struct Area {
    strips: Vec<Mutex<Strip>>,
}

/// Computes the parity of steps.
pub(crate) struct Coder<'a> {
    geometry: Geometry,
    /// Longest run, in bytes.
    run_bytes: usize,
    /// Shards of a chunk: `m` rounded up to a power of two.
    shards: usize,
    /// By where their factors begin, in chunks: 0 for the sums, and from 1 on for the chunks.
    transforms: Vec<OnceLock<Option<Box<Transform>>>>,
    steps: Mutex<HashMap<Step, Arc<Open>>>,
    free: Mutex<Vec<Area>>,
    finished: Box<Finished<'a>>,
}

type Finished<'a> = dyn Fn(Step, Sums<'_>) -> Result<()> + Send + Sync + 'a;

/// A step some of whose runs have not arrived.
struct Open {
    chunks: Mutex<HashMap<u32, Arc<Chunk>>>,
    chunks_left: AtomicU32,
    sums: Area,
}

struct Chunk {
    area: Area,
    left: AtomicU32,
}

/// The parity of a step.
pub(crate) struct Sums<'a> {
    open: &'a Open,
    piece_bytes: usize,
}

impl<'a> Coder<'a> {
    /// Steps have at most `columns` columns. `finished` gets the parity of each step, on the thread that passed its last run.
    pub(crate) fn new(
        geometry: Geometry,
        columns: u32,
        finished: impl Fn(Step, Sums<'_>) -> Result<()> + Send + Sync + 'a,
    ) -> Coder<'a> {
        let shards = geometry.m.next_power_of_two() as usize;
        let finished = Box::new(finished);
        let run_bytes = columns as usize * geometry.piece_bytes as usize;
        let chunks = (geometry.k as usize).div_ceil(shards);
        Coder {
            geometry,
            run_bytes,
            shards,
            transforms: (0..=chunks).map(|_| OnceLock::new()).collect(),
            steps: Mutex::default(),
            free: Mutex::default(),
            finished,
        }
    }

    /// Returns the transform whose factors begin at this chunk, if this processor has it.
    fn transform(&self, at: usize) -> Option<&Transform> {
        let make = || Transform::new(self.shards, at * self.shards).map(Box::new);
        self.transforms[at].get_or_init(make).as_deref()
    }

    fn area(&self, step: Step) -> Result<Area> {
        let bytes = step.count as usize * self.geometry.piece_bytes as usize;
        let mut area = lock(&self.free).pop().unwrap_or(Area { strips: Vec::new() });
        // All have memory for a full strip, so that they fit every step.
        let full = (self.shards * STRIP_BYTES.min(self.run_bytes)) as u32;
        area.strips.truncate(bytes.div_ceil(STRIP_BYTES));
        while area.strips.len() < bytes.div_ceil(STRIP_BYTES) {
            let memory = Buffer::new(full, HugePages::Off)
                .map_err(|error| anyhow!("{full} bytes of memory for the code: {error}"))?;
            area.strips.push(Mutex::new(Strip { units: 0, memory }));
        }
        for (i, strip) in area.strips.iter().enumerate() {
            lock(strip).units = STRIP_BYTES.min(bytes - i * STRIP_BYTES) / 64;
        }
        Ok(area)
    }

    fn open(&self, step: Step) -> Result<Arc<Open>> {
        let mut steps = lock(&self.steps);
        if let Some(open) = steps.get(&step) {
            return Ok(Arc::clone(open));
        }
        let shards = self.geometry.runs(step).count();
        let sums = self.area(step)?;
        for strip in &sums.strips {
            lock(strip).used(self.shards).fill([0; 64]);
        }
        let chunks_left = AtomicU32::new(shards.div_ceil(self.shards) as u32);
        let open = Arc::new(Open { chunks: Mutex::default(), chunks_left, sums });
        steps.insert(step, Arc::clone(&open));
        Ok(open)
    }

    /// Adds the bytes of a run. Missing bytes at its end are zeros. Each run of a step is added once.
    pub(crate) fn add(&self, run: &Run, bytes: &[u8]) -> Result<()> {
        let open = self.open(run.step)?;
        let number = run.shard / self.shards as u32;
        let first = number * self.shards as u32;
        let expected = || {
            let column = Column { window: run.step.window, column: run.step.column };
            let last = first + self.shards as u32;
            (first..last).take_while(|shard| self.geometry.piece(column, *shard).is_some()).count()
        };
        let mut chunks = lock(&open.chunks);
        let chunk = match chunks.get(&number) {
            Some(chunk) => Arc::clone(chunk),
            None => {
                let left = AtomicU32::new(expected() as u32);
                let chunk = Arc::new(Chunk { area: self.area(run.step)?, left });
                chunks.insert(number, Arc::clone(&chunk));
                chunk
            }
        };
        drop(chunks);
        let place = (run.shard - first) as usize;
        for (i, strip) in chunk.area.strips.iter().enumerate() {
            let mut strip = lock(strip);
            let units = strip.units;
            let target =
                strip.used(self.shards)[place * units..(place + 1) * units].as_flattened_mut();
            let rest = bytes.get(i * STRIP_BYTES..).unwrap_or_default();
            let have = rest.len().min(target.len());
            target[..have].copy_from_slice(&rest[..have]);
            target[have..].fill(0);
        }
        if chunk.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            lock(&open.chunks).remove(&number);
            self.add_chunk(&open, &chunk, number as usize, expected());
            if let Some(chunk) = Arc::into_inner(chunk) {
                lock(&self.free).push(chunk.area);
            }
            if open.chunks_left.fetch_sub(1, Ordering::AcqRel) == 1 {
                return self.finish(run.step, open);
            }
        }
        Ok(())
    }

    fn add_chunk(&self, open: &Open, chunk: &Chunk, number: usize, count: usize) {
        let skew = (number + 1) * self.shards;
        let transform = self.transform(number + 1);
        for (strip, sums) in chunk.area.strips.iter().zip(&open.sums.strips) {
            let (mut strip, mut sums) = (lock(strip), lock(sums));
            let units = strip.units;
            let (strip, sums) = (strip.used(self.shards), sums.used(self.shards));
            strip[count * units..].fill([0; 64]);
            match transform {
                Some(transform) => transform.add_inverse(strip, sums),
                None if self.shards == 1 => utils::xor(sums, strip),
                None => ENGINE.with(|engine| {
                    let mut shards = ShardsRefMut::new(self.shards, units, strip);
                    engine.ifft(&mut shards, 0, self.shards, count, skew);
                    utils::xor(sums, strip);
                }),
            }
        }
    }

    fn finish(&self, step: Step, open: Arc<Open>) -> Result<()> {
        lock(&self.steps).remove(&step);
        let transform = self.transform(0);
        for sums in &open.sums.strips {
            let mut sums = lock(sums);
            let units = sums.units;
            let sums = sums.used(self.shards);
            match transform {
                Some(transform) => transform.forward(sums),
                None if self.shards == 1 => {}
                None => ENGINE.with(|engine| {
                    let mut shards = ShardsRefMut::new(self.shards, units, sums);
                    engine.fft(&mut shards, 0, self.shards, self.geometry.m as usize, 0);
                }),
            }
        }
        let piece_bytes = self.geometry.piece_bytes as usize;
        (self.finished)(step, Sums { open: &open, piece_bytes })?;
        if let Some(open) = Arc::into_inner(open) {
            lock(&self.free).push(open.sums);
        }
        Ok(())
    }
}

impl Sums<'_> {
    /// Appends pieces `first..first + count` of the parity `parity` to `bytes`.
    pub(crate) fn read(&self, parity: u32, first: u32, count: u32, bytes: &mut Vec<u8>) {
        let mut start = first as usize * self.piece_bytes;
        let end = start + count as usize * self.piece_bytes;
        while start < end {
            let strip = lock(&self.open.sums.strips[start / STRIP_BYTES]);
            let shard = strip.read(parity as usize);
            let from = start % STRIP_BYTES;
            let take = (shard.len() - from).min(end - start);
            bytes.extend_from_slice(&shard[from..from + take]);
            start += take;
        }
    }
}

/// Multiplies two elements.
fn product(a: u16, b: u16) -> u16 {
    let tables = get_exp_log();
    match b {
        0 => 0,
        b => mul(a, tables.log[b as usize], &tables.exp, &tables.log),
    }
}

fn inverse(a: u16) -> u16 {
    let tables = get_exp_log();
    tables.exp[(GF_MODULUS - tables.log[a as usize]) as usize]
}

/// Returns the factors with which shard `shard` of the data is part of each of the `m` parities.
fn factors(m: u32, shard: u32) -> Vec<u16> {
    let shards = m.next_power_of_two() as usize;
    let mut units = vec![[0; 64]; shards];
    // The first element is the one of the field: its low byte is first, its high byte 32 behind it.
    units[shard as usize % shards][0] = 1;
    ENGINE.with(|engine| {
        let mut all = ShardsRefMut::new(shards, 1, &mut units);
        engine.ifft(&mut all, 0, shards, shards, (shard as usize / shards + 1) * shards);
        engine.fft(&mut all, 0, shards, m as usize, 0);
    });
    units[..m as usize].iter().map(|unit| u16::from_le_bytes([unit[0], unit[32]])).collect()
}

/// The equations for the pieces that a column lost.
#[derive(Debug)]
pub(crate) struct Solver {
    /// For each lost piece, the factors of the differences of the parities used.
    rows: Vec<Vec<u16>>,
}

impl Solver {
    /// `lost`: shards of data; `parities`: as many parities that are there.
    pub(crate) fn new(m: u32, lost: &[u32], parities: &[u32]) -> Option<Solver> {
        let n = lost.len();
        let columns: Vec<_> = lost.iter().map(|shard| factors(m, *shard)).collect();
        // Gauss-Jordan on the matrix beside the unit matrix.
        let mut matrix: Vec<Vec<u16>> = parities
            .iter()
            .take(n)
            .enumerate()
            .map(|(i, parity)| {
                let left = columns.iter().map(|column| column[*parity as usize]);
                left.chain((0..n).map(|j| u16::from(i == j))).collect()
            })
            .collect();
        for i in 0..n {
            let pivot = (i..matrix.len()).find(|row| matrix[*row][i] != 0)?;
            matrix.swap(i, pivot);
            let scale = inverse(matrix[i][i]);
            matrix[i].iter_mut().for_each(|x| *x = product(*x, scale));
            let row = matrix[i].clone();
            for (_, other) in matrix.iter_mut().enumerate().filter(|(j, _)| *j != i) {
                let factor = other[i];
                other.iter_mut().zip(&row).for_each(|(x, y)| *x ^= product(*y, factor));
            }
        }
        let rows = matrix.into_iter().map(|row| row[n..].to_vec()).collect();
        Some(Solver { rows })
    }

    /// Returns the lost piece with this place in `lost`, from the differences of the parities.
    pub(crate) fn solve(&self, place: usize, differences: &[Vec<Unit>]) -> Vec<u8> {
        let mut piece = vec![[0; 64]; differences[0].len()];
        let tables = get_exp_log();
        let mut term = Vec::new();
        ENGINE.with(|engine| {
            for (factor, difference) in self.rows[place].iter().zip(differences) {
                let log = tables.log[*factor as usize];
                if *factor == 0 || add_product(log, difference, &mut piece) {
                    continue;
                }
                term.clear();
                term.extend_from_slice(difference);
                engine.mul(&mut term, log);
                utils::xor(&mut piece, &term);
            }
        });
        piece.into_flattened()
    }
}

/// Returns the difference of two pieces.
pub(crate) fn difference(one: &[u8], other: &[u8]) -> Vec<Unit> {
    let mut all = one.as_chunks::<64>().0.to_vec();
    utils::xor(&mut all, other.as_chunks::<64>().0);
    all
}

/// Parity of pieces in memory: for the catalogue.
pub(crate) fn encode(pieces: &[Vec<u8>], m: u32) -> Vec<Vec<u8>> {
    let geometry = Geometry {
        pieces: pieces.len() as u64,
        piece_bytes: pieces[0].len() as u32,
        k: pieces.len() as u32,
        m,
        columns: 1,
    };
    let found = Mutex::new(Vec::new());
    let coder = Coder::new(geometry, 1, |_, sums| {
        let mut found = lock(&found);
        for parity in 0..m {
            let mut bytes = Vec::new();
            sums.read(parity, 0, 1, &mut bytes);
            found.push(bytes);
        }
        Ok(())
    });
    for step in geometry.steps(1) {
        for (run, piece) in geometry.runs(step).zip(pieces) {
            coder.add(&run, piece).expect("nothing here fails");
        }
    }
    drop(coder);
    found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Returns the lost pieces of `pieces`, in order, if there is enough parity.
pub(crate) fn decode(
    pieces: &[Option<Vec<u8>>],
    parities: &[Option<Vec<u8>>],
    piece_bytes: usize,
) -> Option<Vec<Vec<u8>>> {
    let lost: Vec<_> = (0..pieces.len() as u32).filter(|i| pieces[*i as usize].is_none()).collect();
    let good = (0..parities.len() as u32).filter(|i| parities[*i as usize].is_some());
    let good: Vec<_> = good.take(lost.len()).collect();
    if good.len() < lost.len() {
        return None;
    }
    if lost.is_empty() {
        return Some(Vec::new());
    }
    let zeros = vec![0; piece_bytes];
    let known: Vec<_> =
        pieces.iter().map(|piece| piece.clone().unwrap_or_else(|| zeros.clone())).collect();
    let sums = encode(&known, parities.len() as u32);
    let differences: Vec<_> = good
        .iter()
        .map(|i| difference(&sums[*i as usize], parities[*i as usize].as_ref().unwrap_or(&zeros)))
        .collect();
    let solver = Solver::new(parities.len() as u32, &lost, &good)?;
    Some((0..lost.len()).map(|place| solver.solve(place, &differences)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(count: usize, bytes: usize) -> Vec<Vec<u8>> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..count).map(|_| (0..bytes).map(|_| next()).collect()).collect()
    }

    #[test]
    fn parity_is_that_of_the_crate() {
        for (k, m, bytes) in
            [(1, 1, 64), (5, 3, 1024), (16, 16, 128), (33, 5, 40_960), (300, 15, 192)]
        {
            let data = pieces(k, bytes);
            let expected = reed_solomon_simd::encode(k, m, &data);
            // (The crate uses the other variant of the code if there is more parity than data.)
            if k >= m && k > m.next_power_of_two() / 2 {
                let found = encode(&data, m as u32);
                let mut encoder = reed_solomon_simd::rate::HighRateEncoder::new(
                    k,
                    m,
                    bytes,
                    DefaultEngine::new(),
                    None,
                )
                .unwrap();
                use reed_solomon_simd::rate::RateEncoder;
                data.iter().for_each(|piece| encoder.add_original_shard(piece).unwrap());
                let high = encoder.encode().unwrap();
                let high: Vec<_> = high.recovery_iter().map(<[u8]>::to_vec).collect();
                assert!(found == high, "k = {k}, m = {m}");
                assert_eq!(expected.unwrap().len(), m);
            }
        }
    }

    #[test]
    fn any_m_pieces_can_be_lost() {
        let data = pieces(40, 128);
        let parity = encode(&data, 6);
        for seed in 0..200_usize {
            let mut have: Vec<_> = data.iter().cloned().map(Some).collect();
            let mut parities: Vec<_> = parity.iter().cloned().map(Some).collect();
            for i in 0..6 {
                match (seed * 7 + i * (seed % 5 + 3)) % 46 {
                    place if place < 40 => have[place] = None,
                    place => parities[place - 40] = None,
                }
            }
            let lost: Vec<_> = (0..40).filter(|i| have[*i].is_none()).collect();
            let found = decode(&have, &parities, 128).expect("at most six are lost");
            assert!(lost.iter().zip(found).all(|(i, piece)| data[*i] == piece));
        }
        let mut have: Vec<_> = data.iter().cloned().map(Some).collect();
        have[3..10].fill(None);
        let parities: Vec<_> = parity.into_iter().map(Some).collect();
        assert_eq!(decode(&have, &parities, 128), None);
    }
}
