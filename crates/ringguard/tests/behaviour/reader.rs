//! A reader of sidecars that was written from `docs/guard-format.md` alone: slow, and without any
//! code of the command.

use std::collections::BTreeMap;

pub(crate) struct File {
    pub(crate) name: Vec<u8>,
    pub(crate) len: u64,
    pub(crate) start: u64,
    pub(crate) root: [u8; 32],
}

pub(crate) struct Guard<'a> {
    bytes: &'a [u8],
    pub(crate) is_set: bool,
    pub(crate) catalogue: std::ops::Range<u64>,
    pub(crate) hashes_bytes: u64,
    pub(crate) pieces: u64,
    pub(crate) piece_bytes: u64,
    pub(crate) k: u64,
    pub(crate) m: u64,
    pub(crate) columns: u64,
    pub(crate) parity_pieces: u64,
    pub(crate) nodes_bytes: u64,
    pub(crate) hashes_at: u64,
    pub(crate) parity_at: u64,
    pub(crate) files: Vec<File>,
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn aligned(at: u64) -> u64 {
    at.div_ceil(4096) * 4096
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            break;
        }
    }
    value
}

impl<'a> Guard<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Guard<'a> {
        let head = &bytes[bytes.len() - 4096..];
        assert_eq!(&head[..12], b"\x89ringguard\r\n");
        assert_eq!(head[4064..], blake3::hash(&head[..4064]).as_bytes()[..]);
        let at = |offset: usize, len: usize| number(&head[offset..offset + len]);
        assert_eq!((at(12, 4), at(16, 8)), (1, bytes.len() as u64));
        let (nodes_bytes, catalogue_bytes, catalogue_piece) = (at(24, 8), at(32, 8), at(40, 4));
        let (catalogue_pieces, catalogue_parity) = (at(44, 2), at(46, 2));
        let (pieces, piece_bytes, k, m) = (at(48, 8), at(56, 4), at(60, 4), at(64, 4));
        let columns = at(72, 8);
        let windows = pieces.div_ceil(k * columns);
        let parity_pieces = (0..windows)
            .map(|window| m * columns.min((pieces - window * k * columns).div_ceil(k)))
            .sum();
        let head_at = aligned(nodes_bytes);
        assert_eq!(bytes[head_at as usize..][..4096], *head);
        let catalogue_at = head_at + 4096;
        let hashes_bytes = if m == 0 { 0 } else { 16 * (pieces + parity_pieces) };
        let hashes_at = aligned(catalogue_at + catalogue_pieces * catalogue_piece);
        let parity_at = aligned(hashes_at + hashes_bytes);
        let copy_at = aligned(parity_at + parity_pieces * piece_bytes);
        let catalogue_parity_at = aligned(copy_at + hashes_bytes);
        let last = aligned(catalogue_parity_at + catalogue_parity * catalogue_piece);
        assert_eq!(last + 4096, bytes.len() as u64);
        let section = |start: u64, len: u64| &bytes[start as usize..(start + len) as usize];
        assert_eq!(head[96..128], blake3::hash(section(0, nodes_bytes)).as_bytes()[..]);
        assert_eq!(head[128..160], blake3::hash(section(hashes_at, hashes_bytes)).as_bytes()[..]);
        assert_eq!(section(hashes_at, hashes_bytes), section(copy_at, hashes_bytes));
        let catalogue = section(catalogue_at, catalogue_pieces * catalogue_piece);
        let parity = section(catalogue_parity_at, catalogue_parity * catalogue_piece);
        let all: Vec<_> = catalogue
            .chunks(catalogue_piece as usize)
            .chain(parity.chunks(catalogue_piece as usize))
            .collect();
        for (i, piece) in all.iter().enumerate() {
            let hash = &head[192 + 16 * i..][..16];
            assert_eq!(hash, &blake3::hash(piece).as_bytes()[..16]);
        }
        let count = at(80, 8);
        let files = Guard::files(&catalogue[..catalogue_bytes as usize], count);
        Guard {
            bytes,
            is_set: at(68, 4) == 1,
            catalogue: catalogue_at..catalogue_at + catalogue_pieces * catalogue_piece,
            hashes_bytes,
            pieces,
            piece_bytes,
            k,
            m,
            columns,
            parity_pieces,
            nodes_bytes,
            hashes_at,
            parity_at,
            files,
        }
    }

    fn files(bytes: &[u8], count: u64) -> Vec<File> {
        let (mut at, mut end, mut mtime, mut name) = (0, 0, 0_i64, Vec::new());
        let mut rights = [0; 3];
        let mut files = Vec::new();
        for _ in 0..count {
            let common = varint(bytes, &mut at) as usize;
            let rest = varint(bytes, &mut at) as usize;
            name.truncate(common);
            name.extend_from_slice(&bytes[at..at + rest]);
            at += rest;
            let len = varint(bytes, &mut at);
            let start = end + varint(bytes, &mut at);
            rights = rights.map(|before| before ^ varint(bytes, &mut at));
            assert_eq!(rights[0] & 0o7400, 0o400, "these files can be read");
            let delta = varint(bytes, &mut at);
            mtime += (delta >> 1) as i64 ^ -((delta & 1) as i64);
            assert!(mtime > 1_600_000_000, "these files are new");
            let _nanoseconds = varint(bytes, &mut at);
            let root = bytes[at..at + 32].try_into().unwrap();
            at += 32;
            files.push(File { name: name.clone(), len, start, root });
            end = start + len;
        }
        assert_eq!(at, bytes.len());
        files
    }

    /// The data of files with these contents.
    pub(crate) fn data(&self, contents: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
        let mut data = vec![0; (self.pieces * self.piece_bytes) as usize];
        for file in &self.files {
            let content = &contents[&file.name];
            assert_eq!(content.len() as u64, file.len);
            assert_eq!(blake3::hash(content).as_bytes(), &file.root);
            data[file.start as usize..][..content.len()].copy_from_slice(content);
        }
        data
    }

    /// Window, column and shard of a piece; columns of its window.
    pub(crate) fn place(&self, piece: u64) -> (u64, u64, u64, u64) {
        let window = piece / (self.k * self.columns);
        let place = piece % (self.k * self.columns);
        let columns = self.columns_of(window);
        (window, place % columns, place / columns, columns)
    }

    pub(crate) fn columns_of(&self, window: u64) -> u64 {
        let left = self.pieces - window * self.k * self.columns;
        self.columns.min(left.div_ceil(self.k))
    }

    /// The index of a piece of parity.
    pub(crate) fn parity_index(&self, window: u64, column: u64, parity: u64) -> u64 {
        window * self.columns * self.m + parity * self.columns_of(window) + column
    }

    pub(crate) fn parity(&self, index: u64) -> &[u8] {
        &self.bytes[(self.parity_at + index * self.piece_bytes) as usize..]
            [..self.piece_bytes as usize]
    }

    pub(crate) fn hash(&self, index: u64) -> &[u8] {
        &self.bytes[(self.hashes_at + 16 * index) as usize..][..16]
    }

    /// Checks hashes and parity against the data.
    pub(crate) fn check(&self, data: &[u8]) {
        use blake3::hazmat::HasherExt;
        let size = self.piece_bytes as usize;
        for (i, piece) in data.chunks(size).enumerate() {
            let start = i as u64 * self.piece_bytes;
            let owner = self.files.iter().find(|file| {
                let is_large = !self.is_set || file.len >= self.piece_bytes;
                is_large && file.start <= start && start < file.start + file.len
            });
            let hash = match owner {
                Some(file) => {
                    let offset = start - file.start;
                    let mut hasher = blake3::Hasher::new();
                    hasher.set_input_offset(offset);
                    hasher.update(&piece[..size.min((file.len - offset) as usize)]);
                    hasher.finalize_non_root()
                }
                None => *blake3::hash(piece).as_bytes(),
            };
            assert_eq!(self.hash(i as u64), &hash[..16], "piece {i}");
        }
        for index in 0..self.parity_pieces {
            let hash = blake3::hash(self.parity(index));
            assert_eq!(self.hash(self.pieces + index), &hash.as_bytes()[..16]);
        }
        let field = Field::new();
        for window in 0..self.pieces.div_ceil(self.k * self.columns) {
            for column in 0..self.columns_of(window) {
                self.check_column(&field, data, window, column);
            }
        }
    }

    fn check_column(&self, field: &Field, data: &[u8], window: u64, column: u64) {
        let (columns, size) = (self.columns_of(window), self.piece_bytes);
        for parity in 0..self.m {
            let found = self.parity(self.parity_index(window, column, parity));
            // One element of each unit; which one differs from unit to unit.
            for unit in (0..size / 64).step_by(5) {
                let e = unit % 32;
                let element = |piece: &[u8]| {
                    let at = (unit * 64 + e) as usize;
                    u16::from_le_bytes([piece[at], piece[at + 32]])
                };
                let mut sum = 0;
                for shard in 0..self.k {
                    let place = shard * columns + column;
                    let piece = window * self.k * self.columns + place;
                    if piece < self.pieces {
                        let bytes = &data[(piece * size) as usize..][..size as usize];
                        sum ^= field.product(field.factor(self.m, parity, shard), element(bytes));
                    }
                }
                assert_eq!(element(found), sum, "parity {parity} of column {column}, unit {unit}");
            }
        }
    }
}

/// The field of the code.
pub(crate) struct Field {
    basis: [u16; 16],
}

impl Field {
    fn new() -> Field {
        let basis = [
            0x0001, 0xACCA, 0x3C0E, 0x163E, 0xC582, 0xED2E, 0x914C, 0x4012, 0x6C98, 0x10D8, 0x6A72,
            0xB900, 0xFDB8, 0xFB34, 0xFF38, 0x991E,
        ];
        Field { basis }
    }

    fn polynomial(&self, number: u16) -> u16 {
        (0..16).filter(|i| number >> i & 1 == 1).fold(0, |sum, i| sum ^ self.basis[i])
    }

    fn number(&self, polynomial: u16) -> u16 {
        // Gaussian elimination, one bit after another.
        let mut rows: Vec<(u16, u16)> = (0..16).map(|i| (self.basis[i], 1 << i)).collect();
        let (mut left, mut number) = (polynomial, 0);
        for bit in (0..16).rev() {
            let Some(place) = rows.iter().position(|row| row.0 >> bit & 1 == 1) else { continue };
            let row = rows.remove(place);
            for other in rows.iter_mut().filter(|other| other.0 >> bit & 1 == 1) {
                *other = (other.0 ^ row.0, other.1 ^ row.1);
            }
            if left >> bit & 1 == 1 {
                (left, number) = (left ^ row.0, number ^ row.1);
            }
        }
        assert_eq!(left, 0);
        number
    }

    fn multiply(a: u16, b: u16) -> u16 {
        let mut sum = 0_u32;
        for bit in (0..16).rev() {
            sum <<= 1;
            if sum & 0x1_0000 != 0 {
                sum ^= 0x1_002D;
            }
            if b >> bit & 1 == 1 {
                sum ^= u32::from(a);
            }
        }
        sum as u16
    }

    fn inverse(a: u16) -> u16 {
        // a^(2^16 - 2)
        let (mut power, mut product) = (a, 1);
        for _ in 1..16 {
            power = Field::multiply(power, power);
            product = Field::multiply(product, power);
        }
        product
    }

    fn product(&self, a: u16, b: u16) -> u16 {
        self.number(Field::multiply(self.polynomial(a), self.polynomial(b)))
    }

    fn factor(&self, m: u64, parity: u64, shard: u64) -> u16 {
        thread_local! {
            static KNOWN: std::cell::RefCell<BTreeMap<(u64, u64, u64), u16>> = Default::default();
        }
        if let Some(known) = KNOWN.with_borrow(|known| known.get(&(m, parity, shard)).copied()) {
            return known;
        }
        let wide = m.next_power_of_two();
        let (first, t) = (wide * (shard / wide + 1), shard % wide);
        let w = |number: u64| self.polynomial(number as u16);
        let (mut above, mut below) = (1, 1);
        for u in (0..wide).filter(|u| *u != t) {
            above = Field::multiply(above, w(parity) ^ w(first + u));
            below = Field::multiply(below, w(first + t) ^ w(first + u));
        }
        let factor = self.number(Field::multiply(above, Field::inverse(below)));
        KNOWN.with_borrow_mut(|known| known.insert((m, parity, shard), factor));
        factor
    }
}
