//! A digest of your own at full disk bandwidth: CRC-64/XZ, as in `xz --check=crc64`.
//!
//! `cargo run --release --package ringsum --example crc64 -- FILE...`

use std::path::Path;

use digest::Update;
use ringsum::{Config, update_from_file};

/// The polynomial of ECMA-182, the lowest power first, as bits come.
const POLYNOMIAL: u64 = 0xc96c_5795_d787_0f42;

/// The effect of eight bytes at once on the remainder, by their value and by the number of bytes that follow.
static TABLES: [[u64; 256]; 8] = tables();

const fn tables() -> [[u64; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut remainder = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut after = 1;
    while after < 8 {
        let mut byte = 0;
        while byte < 256 {
            // One more byte of zeros.
            let before = tables[after - 1][byte];
            tables[after][byte] = tables[0][before as usize & 0xff] ^ (before >> 8);
            byte += 1;
        }
        after += 1;
    }
    tables
}

/// CRC-64/XZ of the bytes until now, with all bits inverted.
struct Crc64(u64);

impl Crc64 {
    fn new() -> Crc64 {
        Crc64(!0)
    }

    fn finalize(&self) -> u64 {
        !self.0
    }
}

impl Update for Crc64 {
    fn update(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        for eight in eights {
            let word = (self.0 ^ u64::from_le_bytes(*eight)).to_le_bytes();
            let parts = word.iter().zip(TABLES.iter().rev());
            self.0 = parts.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)]);
        }
        for byte in rest {
            self.0 = TABLES[0][(self.0 as u8 ^ byte) as usize] ^ (self.0 >> 8);
        }
    }
}

fn crc64_of(path: &Path) -> Result<u64, ringsum::Error> {
    let mut crc = Crc64::new();
    // (Others could be computed in the same pass, each on a thread of its own.)
    update_from_file(path, &Config::default(), &mut [&mut crc])?;
    Ok(crc.finalize())
}

fn main() -> Result<(), ringsum::Error> {
    for path in std::env::args_os().skip(1) {
        let crc = crc64_of(Path::new(&path))?;
        println!("{crc:016x}  {}", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc64(pieces: &[&[u8]]) -> u64 {
        let mut crc = Crc64::new();
        pieces.iter().for_each(|piece| crc.update(piece));
        crc.finalize()
    }

    /// The check value of CRC-64/XZ in the "Catalogue of parametrised CRC algorithms".
    #[test]
    fn the_check_value_is_given() {
        assert_eq!(crc64(&[b"123456789"]), 0x995d_c9bb_df19_39fa);
        assert_eq!(crc64(&[b"1", b"", b"2345678", b"9"]), 0x995d_c9bb_df19_39fa);
        assert_eq!(crc64(&[]), 0);
    }

    #[test]
    fn a_file_gives_what_its_bytes_do() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<_> = (0..3_000_000).map(|i| (i % 251) as u8).collect();
        std::fs::write(file.path(), &bytes).unwrap();
        assert_eq!(crc64_of(file.path()).unwrap(), crc64(&[&bytes]));
    }
}
