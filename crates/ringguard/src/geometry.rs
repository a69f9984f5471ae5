//! Geometry: how the pieces of the data form the columns of the code. Pure.
//!
//! The data are cut into pieces, and the pieces into windows of `k x C`. In a window, each of `k`
//! shards is a run of `C` adjacent pieces; column `c` has the piece `c` of every shard, and `m`
//! pieces of parity. A burst of damage up to `m x C` pieces long therefore takes at most `m` pieces
//! (and one at either end) from any column.

use anyhow::{Result, ensure};

/// Largest piece, in bytes. Larger pieces would not be read faster, because adjacent ones are read
/// together, and would lose more to each flipped bit.
pub(crate) const PIECE_BYTES_MAX: u32 = 64 << 10;
/// Smallest piece, in bytes: a chunk of BLAKE3.
pub(crate) const PIECE_BYTES_MIN: u32 = 1 << 10;
/// Most pieces of parity in a column of a new sidecar: a transform of 16 pieces. (One core, 64 KiB
/// pieces: m = 16 encodes 3.8 GB/s of data, m = 26 2.7, m = 50 2.0.)
const PARITY_MAX: u32 = 16;
/// Bytes of a chunk of the code that are always allowed.
const CHUNK_BYTES_MAX: u64 = 64 << 20;
/// Most redundancy, in millionths.
pub(crate) const MILLION: u64 = 1_000_000;

/// How pieces form columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Number of pieces of data.
    pub(crate) pieces: u64,
    pub(crate) piece_bytes: u32,
    /// Shards of data: pieces of data in a column.
    pub(crate) k: u32,
    /// Pieces of parity in a column; 0: no parity.
    pub(crate) m: u32,
    /// Columns of each window but the last.
    pub(crate) columns: u64,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Column {
    pub(crate) window: u64,
    pub(crate) column: u64,
}

/// Adjacent columns of a window that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Step {
    pub(crate) window: u64,
    /// The first column.
    pub(crate) column: u64,
    /// Number of columns.
    pub(crate) count: u32,
}

/// Adjacent pieces of a shard that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) step: Step,
    pub(crate) shard: u32,
    pub(crate) first: u64,
    pub(crate) count: u32,
}

impl Geometry {
    /// Chooses the geometry for `pieces` pieces with `data_bytes` of data, and a redundancy of these
    /// in millionths. (Pieces of sets are not full.) `window_bytes`: most bytes of parity and of pieces that wait for it, if the data are read in order.
    pub(crate) fn choose(
        pieces: u64,
        piece_bytes: u32,
        data_bytes: u64,
        redundancy: u64,
        window_bytes: Option<u64>,
    ) -> Geometry {
        if redundancy == 0 || pieces == 0 {
            return Geometry { pieces, piece_bytes, k: 1, m: 0, columns: pieces.max(1) };
        }
        let parity = |m: u32| {
            let all = u128::from(data_bytes) * u128::from(redundancy);
            all.div_ceil(u128::from(MILLION * u64::from(piece_bytes)) * u128::from(m)) as u64
        };
        // As little parity as the redundancy allows; of equals, the most in a column.
        let best =
            (PARITY_MAX * 3 / 4..=PARITY_MAX).rev().min_by_key(|&m| parity(m) * u64::from(m));
        let (mut m, mut columns) = best.map_or((1, 1), |m| (m, parity(m)));
        if columns == 1 {
            m = parity(1) as u32;
        }
        let most = 65_536 - u64::from(m.next_power_of_two());
        let mut k = pieces.div_ceil(columns).min(most);
        columns = pieces.div_ceil(k);
        // (A shard of which nothing is left need not be.)
        k = pieces.div_ceil(columns);
        if let Some(bytes) = window_bytes {
            let column_bytes = 2 * u64::from(m.next_power_of_two()) * u64::from(piece_bytes);
            columns = columns.min((bytes / column_bytes).max(1));
        }
        Geometry { pieces, piece_bytes, k: k as u32, m, columns }
    }

    /// Whether the values of a sidecar fit together.
    pub(crate) fn is_valid(&self) -> bool {
        let Geometry { pieces, piece_bytes, k, m, columns } = *self;
        piece_bytes.is_power_of_two()
            && (PIECE_BYTES_MIN..=1 << 24).contains(&piece_bytes)
            && k >= 1
            && u64::from(k) + u64::from(m.max(1).next_power_of_two()) <= 65_536
            && m <= 32_768
            && columns >= 1
            && columns <= pieces.max(1)
            && pieces <= 1 << 48
    }

    fn window_pieces(&self) -> u64 {
        u64::from(self.k).saturating_mul(self.columns)
    }

    pub(crate) fn windows(&self) -> u64 {
        self.pieces.div_ceil(self.window_pieces())
    }

    /// Returns the number of columns of a window.
    pub(crate) fn columns_of(&self, window: u64) -> u64 {
        let left = self.pieces - window * self.window_pieces();
        self.columns.min(left.div_ceil(self.k.into()))
    }

    /// Returns the number of pieces of parity.
    pub(crate) fn parity_pieces(&self) -> u64 {
        if self.m == 0 || self.pieces == 0 {
            return 0;
        }
        let last = self.windows() - 1;
        u64::from(self.m) * (last * self.columns + self.columns_of(last))
    }

    /// Returns the index of a piece of parity: in a window, all of the first come first.
    pub(crate) fn parity_index(&self, column: Column, parity: u32) -> u64 {
        let before = column.window * self.columns * u64::from(self.m);
        before + u64::from(parity) * self.columns_of(column.window) + column.column
    }

    /// Returns the column of a piece.
    pub(crate) fn column_of(&self, piece: u64) -> (Column, u32) {
        let (window, place) = (piece / self.window_pieces(), piece % self.window_pieces());
        let columns = self.columns_of(window);
        (Column { window, column: place % columns }, (place / columns) as u32)
    }

    /// Returns the piece of a shard in a column, if there is one.
    pub(crate) fn piece(&self, column: Column, shard: u32) -> Option<u64> {
        let place = u64::from(shard) * self.columns_of(column.window) + column.column;
        let piece = column.window * self.window_pieces() + place;
        (piece < self.pieces && shard < self.k).then_some(piece)
    }

    /// Returns all steps of at most `count` columns.
    pub(crate) fn steps(&self, count: u32) -> impl Iterator<Item = Step> + '_ {
        (0..self.windows()).flat_map(move |window| {
            let columns = self.columns_of(window);
            (0..columns).step_by(count as usize).map(move |column| Step {
                window,
                column,
                count: u64::from(count).min(columns - column) as u32,
            })
        })
    }

    /// Returns the number of columns that are read together, so that runs are as long as they should
    /// be: fewer if columns have so much parity that their sums would take more memory than usual.
    pub(crate) fn columns_at_once(&self, run_bytes: u32) -> Result<u32> {
        let shards = u64::from(self.m.max(1)).next_power_of_two();
        let usual = u64::from(PARITY_MAX.next_power_of_two()) * u64::from(run_bytes);
        let piece_bytes = u64::from(self.piece_bytes);
        let bytes = shards * piece_bytes;
        ensure!(
            bytes <= usual.max(CHUNK_BYTES_MAX),
            "{} pieces of parity of {piece_bytes} bytes in a column need more memory than is used here",
            self.m
        );
        let columns = u64::from(run_bytes).min(usual / shards) / piece_bytes;
        Ok(columns.clamp(1, self.columns) as u32)
    }

    /// Returns the runs of a step, one for each shard.
    pub(crate) fn runs(&self, step: Step) -> impl Iterator<Item = Run> + '_ {
        (0..self.k).map_while(move |shard| {
            let first = self.piece(Column { window: step.window, column: step.column }, shard)?;
            let count = u64::from(step.count).min(self.pieces - first) as u32;
            Some(Run { step, shard, first, count })
        })
    }

    /// Returns the bytes of the longest burst that is always repairable.
    pub(crate) fn burst_bytes(&self) -> u64 {
        if self.m == 0 || self.pieces == 0 {
            return 0;
        }
        // A burst of n pieces' length can touch n + 1 of them.
        let columns = self.columns_of(0).min(self.columns_of(self.windows() - 1));
        (columns * u64::from(self.m)).saturating_sub(1) * u64::from(self.piece_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_in_one_place() {
        for pieces in [1, 2, 3, 19, 20, 21, 320, 321, 1000, 5003, 16_384] {
            for redundancy in [1, 10_000, 50_000, 100_000, 1_000_000] {
                for window in [None, Some(1 << 20), Some(64 << 20)] {
                    let geometry =
                        Geometry::choose(pieces, 1024, pieces * 1024, redundancy, window);
                    assert!(geometry.is_valid(), "{geometry:?}");
                    let parity = u128::from(geometry.parity_pieces()) * 1_000_000;
                    let asked = u128::from(pieces) * u128::from(redundancy);
                    assert!(parity >= asked, "{geometry:?}");
                    let mut seen = vec![false; pieces as usize];
                    let mut parities = vec![false; geometry.parity_pieces() as usize];
                    for step in geometry.steps(7) {
                        for run in geometry.runs(step) {
                            for i in 0..u64::from(run.count) {
                                let (column, shard) = geometry.column_of(run.first + i);
                                assert_eq!(shard, run.shard);
                                assert_eq!(column.column, step.column + i);
                                assert_eq!(geometry.piece(column, shard), Some(run.first + i));
                                assert!(!std::mem::replace(
                                    &mut seen[(run.first + i) as usize],
                                    true
                                ));
                            }
                        }
                        for i in 0..step.count.into() {
                            let column = Column { window: step.window, column: step.column + i };
                            for j in 0..geometry.m {
                                let index = geometry.parity_index(column, j) as usize;
                                assert!(!std::mem::replace(&mut parities[index], true));
                            }
                        }
                    }
                    assert!(seen.iter().all(|seen| *seen) && parities.iter().all(|seen| *seen));
                }
            }
        }
    }

    #[test]
    fn little_more_parity_than_asked_for() {
        let geometry = Geometry::choose(16_384, 65_536, 1 << 30, 50_000, None);
        let parity = geometry.parity_pieces() as f64 / 16_384.0;
        assert!((0.05..0.0507).contains(&parity), "{geometry:?}: {parity}");
        assert!(geometry.burst_bytes() as f64 > 0.0495 * (1_u64 << 30) as f64);
    }
}
