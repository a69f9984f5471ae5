//! The format of a sidecar: its head, its catalogue and the places of everything. Pure.
//!
//! `docs/guard-format.md` specifies it to the byte. Nothing that is read is believed before it was
//! checked, and no size is used before it was compared with the length of the sidecar.

use std::collections::HashSet;

use anyhow::{Context, Result, bail, ensure};

use crate::code;
use crate::geometry::Geometry;

/// The first bytes of a head. (A transfer as text changes them, and they are not UTF-8.)
pub(crate) const MAGIC: [u8; 12] = *b"\x89ringguard\r\n";
const VERSION: u32 = 1;
/// Bytes of a head, and the alignment of every section.
pub(crate) const HEAD_BYTES: u64 = 4096;
/// Bytes of the hash of a piece.
pub(crate) const PIECE_HASH_BYTES: u64 = 16;
/// Where the hashes of the catalogue's pieces stand in a head, and the hash of the head.
const CATALOGUE_HASHES_AT: usize = 192;
const HEAD_HASH_AT: usize = 4064;
/// A catalogue of at most this many bytes is one piece, and its parity a copy.
const SMALL_CATALOGUE_BYTES: u64 = 64 << 10;
/// Pieces of a larger catalogue, and of its parity.
const CATALOGUE_PIECES: u16 = 128;
const CATALOGUE_PARITY: u16 = 32;
/// Largest catalogue, in bytes: some 60 million files.
const CATALOGUE_BYTES_MAX: u64 = 4 << 30;
/// Fewest bytes of a file in a catalogue.
const ENTRY_BYTES_MIN: u64 = 41;
/// Longest name, in bytes: that of a path.
pub(crate) const NAME_BYTES_MAX: u64 = 4096;

pub(crate) type PieceHash = [u8; PIECE_HASH_BYTES as usize];

/// Returns the hash of a piece that is no subtree.
pub(crate) fn piece_hash(bytes: &[u8]) -> PieceHash {
    truncated(blake3::hash(bytes).as_bytes())
}

pub(crate) fn truncated(hash: &[u8; 32]) -> PieceHash {
    std::array::from_fn(|i| hash[i])
}

/// One protected file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct File {
    /// Relative to the directory of the sidecar.
    pub(crate) name: Vec<u8>,
    pub(crate) len: u64,
    /// Offset of its first byte in the data.
    pub(crate) start: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime_s: i64,
    pub(crate) mtime_ns: u32,
    pub(crate) root: [u8; 32],
}

impl File {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len
    }

    fn rights(&self) -> [u32; 3] {
        [self.mode, self.uid, self.gid]
    }
}

/// The fixed part of the description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) geometry: Geometry,
    pub(crate) is_set: bool,
    pub(crate) file_count: u64,
    pub(crate) group_bytes: u32,
    /// The requested redundancy, in millionths.
    pub(crate) redundancy: u32,
    pub(crate) nodes_bytes: u64,
    pub(crate) catalogue: CatalogueCode,
    pub(crate) nodes_hash: [u8; 32],
    pub(crate) hashes_hash: [u8; 32],
    /// Of the pieces of the catalogue, and of its parity.
    pub(crate) catalogue_hashes: Vec<PieceHash>,
}

/// How the catalogue is cut into pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CatalogueCode {
    pub(crate) bytes: u64,
    pub(crate) piece_bytes: u32,
    pub(crate) pieces: u16,
    pub(crate) parity: u16,
}

impl CatalogueCode {
    pub(crate) fn of(bytes: u64) -> CatalogueCode {
        let (pieces, parity) = match bytes <= SMALL_CATALOGUE_BYTES {
            true => (1, 1),
            false => (CATALOGUE_PIECES, CATALOGUE_PARITY),
        };
        let piece_bytes = bytes.div_ceil(pieces.into()).next_multiple_of(64).max(64) as u32;
        CatalogueCode { bytes, piece_bytes, pieces, parity }
    }

    /// Cuts the catalogue into pieces, and appends their parity.
    pub(crate) fn encode(&self, catalogue: &[u8]) -> Vec<Vec<u8>> {
        let mut pieces: Vec<_> =
            catalogue.chunks(self.piece_bytes as usize).map(<[u8]>::to_vec).collect();
        pieces.resize(self.pieces.into(), Vec::new());
        pieces.iter_mut().for_each(|piece| piece.resize(self.piece_bytes as usize, 0));
        let parity = code::encode(&pieces, self.parity.into());
        pieces.extend(parity);
        pieces
    }
}

/// The places of the sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Places {
    pub(crate) head: u64,
    pub(crate) catalogue: u64,
    pub(crate) hashes: u64,
    pub(crate) parity: u64,
    pub(crate) hashes_copy: u64,
    pub(crate) catalogue_parity: u64,
    pub(crate) head_copy: u64,
    pub(crate) len: u64,
}

fn aligned(at: u64) -> Option<u64> {
    at.checked_next_multiple_of(HEAD_BYTES)
}

impl Head {
    /// Returns the number of pieces with a hash: those of the data and of the parity.
    pub(crate) fn hash_count(&self) -> u64 {
        match self.geometry.m {
            0 => 0,
            _ => self.geometry.pieces + self.geometry.parity_pieces(),
        }
    }

    pub(crate) fn places(&self) -> Places {
        self.checked_places().expect("the sizes were checked")
    }

    fn checked_places(&self) -> Option<Places> {
        let code = &self.catalogue;
        let hashes_bytes = self.hash_count().checked_mul(PIECE_HASH_BYTES)?;
        let parity_bytes =
            self.geometry.parity_pieces().checked_mul(self.geometry.piece_bytes.into())?;
        let piece_bytes = u64::from(code.piece_bytes);
        let head = aligned(self.nodes_bytes)?;
        let catalogue = head.checked_add(HEAD_BYTES)?;
        let hashes = aligned(catalogue.checked_add(piece_bytes * u64::from(code.pieces))?)?;
        let parity = aligned(hashes.checked_add(hashes_bytes)?)?;
        let hashes_copy = aligned(parity.checked_add(parity_bytes)?)?;
        let catalogue_parity = aligned(hashes_copy.checked_add(hashes_bytes)?)?;
        let head_copy = aligned(catalogue_parity + piece_bytes * u64::from(code.parity))?;
        let len = head_copy.checked_add(HEAD_BYTES)?;
        Some(Places {
            head,
            catalogue,
            hashes,
            parity,
            hashes_copy,
            catalogue_parity,
            head_copy,
            len,
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut head = vec![0; HEAD_BYTES as usize];
        let mut put = |at: usize, bytes: &[u8]| head[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(12, &VERSION.to_le_bytes());
        put(16, &self.places().len.to_le_bytes());
        put(24, &self.nodes_bytes.to_le_bytes());
        put(32, &self.catalogue.bytes.to_le_bytes());
        put(40, &self.catalogue.piece_bytes.to_le_bytes());
        put(44, &self.catalogue.pieces.to_le_bytes());
        put(46, &self.catalogue.parity.to_le_bytes());
        put(48, &self.geometry.pieces.to_le_bytes());
        put(56, &self.geometry.piece_bytes.to_le_bytes());
        put(60, &self.geometry.k.to_le_bytes());
        put(64, &self.geometry.m.to_le_bytes());
        put(68, &u32::from(self.is_set).to_le_bytes());
        put(72, &self.geometry.columns.to_le_bytes());
        put(80, &self.file_count.to_le_bytes());
        put(88, &self.group_bytes.to_le_bytes());
        put(92, &self.redundancy.to_le_bytes());
        put(96, &self.nodes_hash);
        put(128, &self.hashes_hash);
        put(CATALOGUE_HASHES_AT, self.catalogue_hashes.as_flattened());
        let hash = blake3::hash(&head[..HEAD_HASH_AT]);
        head[HEAD_HASH_AT..].copy_from_slice(hash.as_bytes());
        head
    }

    /// Parses a head of a sidecar of `sidecar_bytes`, which may have been cut off.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Head> {
        ensure!(bytes.len() as u64 == HEAD_BYTES && bytes[..12] == MAGIC, "no head of a sidecar");
        ensure!(
            blake3::hash(&bytes[..HEAD_HASH_AT]).as_bytes()[..] == bytes[HEAD_HASH_AT..],
            "the head is damaged"
        );
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let version = u32_at(12);
        ensure!(
            version == VERSION,
            "version {version} of the format is not supported; update ringguard"
        );
        let code = CatalogueCode {
            bytes: u64_at(32),
            piece_bytes: u32_at(40),
            pieces: u16_at(44),
            parity: u16_at(46),
        };
        let hashes = usize::from(code.pieces) + usize::from(code.parity);
        let hash_at = |i: usize| std::array::from_fn(|j| bytes[CATALOGUE_HASHES_AT + 16 * i + j]);
        ensure!(
            code.pieces > 0
                && code.parity > 0
                && CATALOGUE_HASHES_AT + 16 * hashes <= HEAD_HASH_AT
                && code.bytes <= CATALOGUE_BYTES_MAX
                && code.piece_bytes.is_multiple_of(64)
                && code.piece_bytes > 0
                && code.bytes <= u64::from(code.piece_bytes) * u64::from(code.pieces),
            "the head contradicts itself (catalogue)"
        );
        let head = Head {
            geometry: Geometry {
                pieces: u64_at(48),
                piece_bytes: u32_at(56),
                k: u32_at(60),
                m: u32_at(64),
                columns: u64_at(72),
            },
            is_set: u32_at(68) & 1 != 0,
            file_count: u64_at(80),
            group_bytes: u32_at(88),
            redundancy: u32_at(92),
            nodes_bytes: u64_at(24),
            catalogue: code,
            nodes_hash: std::array::from_fn(|i| bytes[96 + i]),
            hashes_hash: std::array::from_fn(|i| bytes[128 + i]),
            catalogue_hashes: (0..hashes).map(hash_at).collect(),
        };
        ensure!(u32_at(68) <= 1, "the head has flags that are not supported; update ringguard");
        ensure!(
            head.group_bytes.is_power_of_two() && (1 << 10..=1 << 20).contains(&head.group_bytes),
            "the head contradicts itself (groups)"
        );
        ensure!(head.geometry.is_valid(), "the head contradicts itself (geometry)");
        ensure!(
            head.file_count <= code.bytes / ENTRY_BYTES_MIN
                && (head.is_set || head.file_count == 1),
            "the head contradicts itself (files)"
        );
        let places = head.checked_places();
        ensure!(
            places.is_some_and(|places| places.len == u64_at(16)),
            "the head contradicts itself (lengths)"
        );
        Ok(head)
    }
}

/// Returns the bytes of the outboard of a file, which a set has only for files of several groups.
pub(crate) fn outboard_bytes(len: u64, group_bytes: u32, is_set: bool) -> u64 {
    let groups = len.div_ceil(group_bytes.into()).max(1);
    match groups {
        1 if is_set => 0,
        _ => 8 + 64 * (groups - 1),
    }
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn put_signed(bytes: &mut Vec<u8>, value: i64) {
    put_varint(bytes, ((value << 1) ^ (value >> 63)) as u64);
}

/// Encodes the files, in the order of the data.
pub(crate) fn encode_catalogue(files: &[File]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (mut name, mut end, mut mtime): (&[u8], u64, i64) = (&[], 0, 0);
    let mut rights = [0; 3];
    for file in files {
        let common = name.iter().zip(&file.name).take_while(|(a, b)| a == b).count();
        put_varint(&mut bytes, common as u64);
        put_varint(&mut bytes, (file.name.len() - common) as u64);
        bytes.extend_from_slice(&file.name[common..]);
        put_varint(&mut bytes, file.len);
        put_varint(&mut bytes, file.start - end);
        let rights_before = std::mem::replace(&mut rights, file.rights());
        for (now, before) in rights.into_iter().zip(rights_before) {
            put_varint(&mut bytes, (now ^ before).into());
        }
        put_signed(&mut bytes, file.mtime_s.wrapping_sub(mtime));
        put_varint(&mut bytes, file.mtime_ns.into());
        bytes.extend_from_slice(&file.root);
        (name, end, mtime) = (&file.name, file.end(), file.mtime_s);
    }
    bytes
}

struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(count).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn file(&mut self, before: Option<&File>) -> Option<File> {
        let common = usize::try_from(self.varint()?).ok()?;
        let suffix = self.varint()?;
        let suffix = self.take(suffix)?;
        let prefix = before.map_or(&[][..], |file| &file.name).get(..common)?;
        if (prefix.len() + suffix.len()) as u64 > NAME_BYTES_MAX {
            return None;
        }
        let name = [prefix, suffix].concat();
        let len = self.varint()?;
        let start = before.map_or(0, File::end).checked_add(self.varint()?)?;
        start.checked_add(len)?;
        let [mode, uid, gid] = before.map_or([0; 3], File::rights);
        let (mode, uid, gid) = (mode ^ self.small()?, uid ^ self.small()?, gid ^ self.small()?);
        let mtime_s = before.map_or(0, |file| file.mtime_s).wrapping_add(self.signed()?);
        let mtime_ns = self.small().filter(|ns| *ns < 1_000_000_000)?;
        let root = self.take(32)?.try_into().ok()?;
        Some(File { name, len, start, mode, uid, gid, mtime_s, mtime_ns, root })
    }
}

/// Parses the files, and checks that they lie in the data as they should.
pub(crate) fn decode_catalogue(bytes: &[u8], head: &Head) -> Result<Vec<File>> {
    let mut cursor = Cursor(bytes);
    let mut files: Vec<File> = Vec::new();
    for number in 0..head.file_count {
        let file = cursor.file(files.last());
        let file = file.with_context(|| format!("file {number} of the catalogue is malformed"))?;
        check_name(&file.name)?;
        files.push(file);
    }
    ensure!(cursor.0.is_empty(), "the catalogue has bytes behind its last file");
    check_files(&files, head)?;
    Ok(files)
}

/// Refuses names that lead out of the directory.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    ensure!(
        name.len() as u64 <= NAME_BYTES_MAX,
        "a name of {} bytes is longer than {NAME_BYTES_MAX}",
        name.len()
    );
    let is_inside = !name.is_empty()
        && !name.contains(&0)
        && name.split(|byte| *byte == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
    if !is_inside {
        bail!(
            "the name {:?} leads out of the directory of the sidecar",
            String::from_utf8_lossy(name)
        );
    }
    Ok(())
}

fn check_files(files: &[File], head: &Head) -> Result<()> {
    let piece_bytes = u64::from(head.geometry.piece_bytes);
    let total = head.geometry.pieces.checked_mul(piece_bytes).context("too many pieces")?;
    let mut nodes_bytes = 0_u64;
    let mut names = HashSet::with_capacity(files.len());
    for file in files {
        let is_large = !head.is_set || file.len >= piece_bytes;
        let last = file.start % piece_bytes + file.len;
        let fits = match is_large {
            true => file.start.is_multiple_of(piece_bytes),
            false => last <= piece_bytes,
        };
        ensure!(fits && file.end() <= total, "a file of the catalogue is not where it can be");
        ensure!(names.insert(&file.name), "a name of the catalogue is there twice");
        let bytes = outboard_bytes(file.len, head.group_bytes, head.is_set);
        nodes_bytes = nodes_bytes.checked_add(bytes).context("too many nodes")?;
    }
    for (one, next) in files.iter().zip(files.iter().skip(1)) {
        // The last piece of a large file has nothing else.
        let is_large = one.len >= piece_bytes;
        let end = if is_large { one.end().next_multiple_of(piece_bytes) } else { one.end() };
        ensure!(next.start >= end, "two files of the catalogue overlap");
    }
    ensure!(nodes_bytes == head.nodes_bytes, "the nodes of the catalogue have another length");
    let needed = files.last().map_or(0, |file| file.end().div_ceil(piece_bytes));
    ensure!(needed == head.geometry.pieces, "the files of the catalogue have another length");
    Ok(())
}
