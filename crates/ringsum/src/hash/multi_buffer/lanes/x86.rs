//! BLAKE3's compression function on vector lanes, each with a block of a different chunk: 16 lanes
//! with AVX-512, 8 with AVX2.
//!
//! Register `i` holds word `i` of all lanes. Unlike in BLAKE3's own SIMD code, lanes are
//! independent: each has its own counter, flags and length.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use blake3::{BLOCK_LEN, OUT_LEN};

use super::{ChainingValue, IV, LANES_MAX, SimdLane};

/// Message word schedule of each round: the permutation of table 2 of the BLAKE3 paper, iterated.
const SCHEDULE: [[usize; 16]; 7] = {
    const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
    let mut schedule = [[0; 16]; 7];
    let mut round = 0;
    while round < 7 {
        let mut i = 0;
        while i < 16 {
            schedule[round][i] = if round == 0 { i } else { schedule[round - 1][PERMUTATION[i]] };
            i += 1;
        }
        round += 1;
    }
    schedule
};

/// The quarter rounds of all columns, or of all diagonals, interleaved step by step. `$x` and `$y`
/// are the indices of their first and second message words.
macro_rules! quarter_rounds {
    ($v:ident, $m:ident, $x:expr, $y:expr, $(($a:literal, $b:literal, $c:literal, $d:literal, $k:literal)),*) => {
        $( $v[$a] = add(add($v[$a], $m[$x[$k]]), $v[$b]); )*
        $( $v[$d] = rotate_16(xor($v[$d], $v[$a])); )*
        $( $v[$c] = add($v[$c], $v[$d]); )*
        $( $v[$b] = rotate_12(xor($v[$b], $v[$c])); )*
        $( $v[$a] = add(add($v[$a], $m[$y[$k]]), $v[$b]); )*
        $( $v[$d] = rotate_8(xor($v[$d], $v[$a])); )*
        $( $v[$c] = add($v[$c], $v[$d]); )*
        $( $v[$b] = rotate_7(xor($v[$b], $v[$c])); )*
    };
}

/// One round. (Macros, because a function of this size is not inlined, and then all words go
/// through memory: a quarter of the speed.)
macro_rules! round {
    ($v:ident, $m:ident, $round:literal) => {{
        const S: [usize; 16] = SCHEDULE[$round];
        const COLUMNS: [[usize; 4]; 2] = [[S[0], S[2], S[4], S[6]], [S[1], S[3], S[5], S[7]]];
        const DIAGONALS: [[usize; 4]; 2] =
            [[S[8], S[10], S[12], S[14]], [S[9], S[11], S[13], S[15]]];
        quarter_rounds!(
            $v,
            $m,
            COLUMNS[0],
            COLUMNS[1],
            (0, 4, 8, 12, 0),
            (1, 5, 9, 13, 1),
            (2, 6, 10, 14, 2),
            (3, 7, 11, 15, 3)
        );
        quarter_rounds!(
            $v,
            $m,
            DIAGONALS[0],
            DIAGONALS[1],
            (0, 5, 10, 15, 0),
            (1, 6, 11, 12, 1),
            (2, 7, 8, 13, 2),
            (3, 4, 9, 14, 3)
        );
    }};
}

/// `compress_lanes` with the vector type of the enclosing module.
macro_rules! compress_lanes {
    ($features:tt) => {
        /// Returns the values of the given lanes. Panics if the processor does not support the
        /// features, or with more than `WIDTH` lanes.
        pub(in super::super) fn compress(
            key: &[u32; 8],
            all_flags: u32,
            lanes: &[SimdLane<'_>],
        ) -> [ChainingValue; LANES_MAX] {
            assert!(std::is_x86_feature_detected!($features));
            // SAFETY: the processor supports the features.
            unsafe { compress_lanes(key, all_flags, lanes) }
        }

        #[target_feature(enable = $features)]
        fn compress_lanes(
            key: &[u32; 8],
            all_flags: u32,
            lanes: &[SimdLane<'_>],
        ) -> [ChainingValue; LANES_MAX] {
            let mut ends = [[0; BLOCK_LEN]; WIDTH];
            let (mut last, mut end_len) = ([0; WIDTH], [0; WIDTH]);
            let (mut counter, mut counter_high) = ([0; WIDTH], [0; WIDTH]);
            let (mut first_flags, mut last_flags) = ([0; WIDTH], [0; WIDTH]);
            for (i, lane) in lanes.iter().enumerate() {
                let blocks = lane.bytes.len().div_ceil(BLOCK_LEN).max(1);
                let end = &lane.bytes[(blocks - 1) * BLOCK_LEN..];
                ends[i][..end.len()].copy_from_slice(end);
                (last[i], end_len[i]) = (blocks as u32 - 1, end.len() as u32);
                counter[i] = lane.counter as u32;
                counter_high[i] = (lane.counter >> 32) as u32;
                (first_flags[i], last_flags[i]) = (lane.first, lane.last);
            }
            let most = last[..lanes.len()].iter().copied().max().unwrap_or(0);
            let (last, end_len) = (load(&last), load(&end_len));
            let (counter, counter_high) = (load(&counter), load(&counter_high));
            let (first_flags, last_flags) = (load(&first_flags), load(&last_flags));
            let mut value = key.map(|word| splat(word));
            for block in 0..=most {
                let start = block as usize * BLOCK_LEN;
                let mut blocks = [&ends[0]; WIDTH];
                for (i, lane) in lanes.iter().enumerate() {
                    // A lane that has ended gets any bytes: its result is ignored.
                    blocks[i] = match lane.bytes.get(start..start + BLOCK_LEN) {
                        Some(bytes) => bytes.try_into().expect("as long as a block"),
                        None => &ends[i],
                    };
                }
                let number = splat(block);
                let is_last = equal(number, last);
                let mut flags = or(splat(all_flags), pick(is_last, last_flags, splat(0)));
                if block == 0 {
                    flags = or(flags, first_flags);
                }
                let m = words(&blocks);
                let mut v = [
                    value[0],
                    value[1],
                    value[2],
                    value[3],
                    value[4],
                    value[5],
                    value[6],
                    value[7],
                    splat(IV[0]),
                    splat(IV[1]),
                    splat(IV[2]),
                    splat(IV[3]),
                    counter,
                    counter_high,
                    pick(is_last, end_len, splat(BLOCK_LEN as u32)),
                    flags,
                ];
                round!(v, m, 0);
                round!(v, m, 1);
                round!(v, m, 2);
                round!(v, m, 3);
                round!(v, m, 4);
                round!(v, m, 5);
                round!(v, m, 6);
                let has_ended = greater(number, last);
                for i in 0..8 {
                    value[i] = pick(has_ended, value[i], xor(v[i], v[i + 8]));
                }
            }
            let mut values = [[0; OUT_LEN]; LANES_MAX];
            values[..WIDTH].copy_from_slice(&bytes(value));
            values
        }
    };
}

/// Functions of one or a few instructions each.
macro_rules! instructions {
    ($features:literal, $($name:ident($($operand:ident: $type:ty),*) -> $result:ty { $body:expr })*) => { $(
        #[inline]
        #[target_feature(enable = $features)]
        fn $name($($operand: $type),*) -> $result {
            $body
        }
    )* };
}

pub(super) mod avx512 {
    use super::*;

    type Vector = __m512i;
    const WIDTH: usize = 16;

    compress_lanes!("avx512f");

    /// Transposes vectors of one lane each into vectors of one word of all lanes.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn transpose(rows: [Vector; 16]) -> [Vector; 16] {
        let mut twos = rows;
        for i in 0..8 {
            let (a, b) = (rows[2 * i], rows[2 * i + 1]);
            (twos[2 * i], twos[2 * i + 1]) =
                (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        }
        // Four rows: number 4 i + j has words j, j + 4, j + 8, j + 12 of rows 4 i to 4 i + 3.
        let mut fours = twos;
        for i in 0..4 {
            for half in 0..2 {
                let (a, b) = (twos[4 * i + half], twos[4 * i + 2 + half]);
                fours[4 * i + 2 * half] = _mm512_unpacklo_epi64(a, b);
                fours[4 * i + 2 * half + 1] = _mm512_unpackhi_epi64(a, b);
            }
        }
        let mut columns = fours;
        for j in 0..4 {
            let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
            let (low, high) =
                (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0xee>(a, b));
            let (low_2, high_2) =
                (_mm512_shuffle_i32x4::<0x44>(c, d), _mm512_shuffle_i32x4::<0xee>(c, d));
            columns[j] = _mm512_shuffle_i32x4::<0x88>(low, low_2);
            columns[4 + j] = _mm512_shuffle_i32x4::<0xdd>(low, low_2);
            columns[8 + j] = _mm512_shuffle_i32x4::<0x88>(high, high_2);
            columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(high, high_2);
        }
        columns
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn words(blocks: &[&[u8; BLOCK_LEN]; WIDTH]) -> [Vector; 16] {
        // SAFETY: a block is as long as a vector; an unaligned load is allowed.
        transpose(blocks.map(|block| unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }))
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn bytes(value: [Vector; 8]) -> [ChainingValue; WIDTH] {
        let mut rows = [splat(0); 16];
        rows[..8].copy_from_slice(&value);
        transpose(rows).map(|row| {
            let mut bytes = [0; OUT_LEN];
            // SAFETY: a value is as long as half a vector; an unaligned store is allowed.
            unsafe {
                _mm256_storeu_si256(bytes.as_mut_ptr().cast(), _mm512_castsi512_si256(row));
            }
            bytes
        })
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    fn load(lanes: &[u32; WIDTH]) -> Vector {
        // SAFETY: the array is as long as a vector; an unaligned load is allowed.
        unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
    }

    instructions! { "avx512f",
        splat(word: u32) -> Vector { _mm512_set1_epi32(word as i32) }
        add(a: Vector, b: Vector) -> Vector { _mm512_add_epi32(a, b) }
        xor(a: Vector, b: Vector) -> Vector { _mm512_xor_si512(a, b) }
        or(a: Vector, b: Vector) -> Vector { _mm512_or_si512(a, b) }
        rotate_16(a: Vector) -> Vector { _mm512_ror_epi32::<16>(a) }
        rotate_12(a: Vector) -> Vector { _mm512_ror_epi32::<12>(a) }
        rotate_8(a: Vector) -> Vector { _mm512_ror_epi32::<8>(a) }
        rotate_7(a: Vector) -> Vector { _mm512_ror_epi32::<7>(a) }
        equal(a: Vector, b: Vector) -> __mmask16 { _mm512_cmpeq_epi32_mask(a, b) }
        greater(a: Vector, b: Vector) -> __mmask16 { _mm512_cmpgt_epi32_mask(a, b) }
        pick(which: __mmask16, a: Vector, b: Vector) -> Vector { _mm512_mask_mov_epi32(b, which, a) }
    }
}

pub(super) mod avx2 {
    use super::*;

    type Vector = __m256i;
    const WIDTH: usize = 8;

    compress_lanes!("avx2");

    /// Transposes vectors of one lane each into vectors of one word of all lanes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose(rows: [Vector; 8]) -> [Vector; 8] {
        let mut twos = rows;
        for i in 0..4 {
            let (a, b) = (rows[2 * i], rows[2 * i + 1]);
            (twos[2 * i], twos[2 * i + 1]) =
                (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        }
        // Groups of four rows: number 4 i + j has words j and j + 4 of rows 4 i to 4 i + 3.
        let mut fours = twos;
        for i in 0..2 {
            for half in 0..2 {
                let (a, b) = (twos[4 * i + half], twos[4 * i + 2 + half]);
                fours[4 * i + 2 * half] = _mm256_unpacklo_epi64(a, b);
                fours[4 * i + 2 * half + 1] = _mm256_unpackhi_epi64(a, b);
            }
        }
        let mut columns = fours;
        for j in 0..4 {
            let (a, b) = (fours[j], fours[4 + j]);
            columns[j] = _mm256_permute2x128_si256::<0x20>(a, b);
            columns[4 + j] = _mm256_permute2x128_si256::<0x31>(a, b);
        }
        columns
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn words(blocks: &[&[u8; BLOCK_LEN]; WIDTH]) -> [Vector; 16] {
        // SAFETY: half a block is as long as a vector; an unaligned load is allowed.
        let low = blocks.map(|block| unsafe { _mm256_loadu_si256(block.as_ptr().cast()) });
        // SAFETY: the same, for the other half.
        let high = blocks.map(|block| unsafe { _mm256_loadu_si256(block[32..].as_ptr().cast()) });
        let mut words = [splat(0); 16];
        words[..8].copy_from_slice(&transpose(low));
        words[8..].copy_from_slice(&transpose(high));
        words
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn bytes(value: [Vector; 8]) -> [ChainingValue; WIDTH] {
        transpose(value).map(|row| {
            let mut bytes = [0; OUT_LEN];
            // SAFETY: a value is as long as a vector; an unaligned store is allowed.
            unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), row) };
            bytes
        })
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn load(lanes: &[u32; WIDTH]) -> Vector {
        // SAFETY: the array is as long as a vector; an unaligned load is allowed.
        unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) }
    }

    /// Rotates each word right by whole bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn rotate_bytes<const BYTES: i8>(a: Vector) -> Vector {
        let from = |word: i8, byte: i8| 4 * word + (byte + BYTES) % 4;
        let word = |word: i8| i32::from_le_bytes([0, 1, 2, 3].map(|byte| from(word, byte) as u8));
        let order = _mm_set_epi32(word(3), word(2), word(1), word(0));
        _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(order))
    }

    instructions! { "avx2",
        splat(word: u32) -> Vector { _mm256_set1_epi32(word as i32) }
        add(a: Vector, b: Vector) -> Vector { _mm256_add_epi32(a, b) }
        xor(a: Vector, b: Vector) -> Vector { _mm256_xor_si256(a, b) }
        or(a: Vector, b: Vector) -> Vector { _mm256_or_si256(a, b) }
        rotate_16(a: Vector) -> Vector { rotate_bytes::<2>(a) }
        rotate_12(a: Vector) -> Vector { or(_mm256_srli_epi32::<12>(a), _mm256_slli_epi32::<20>(a)) }
        rotate_8(a: Vector) -> Vector { rotate_bytes::<1>(a) }
        rotate_7(a: Vector) -> Vector { or(_mm256_srli_epi32::<7>(a), _mm256_slli_epi32::<25>(a)) }
        equal(a: Vector, b: Vector) -> Vector { _mm256_cmpeq_epi32(a, b) }
        greater(a: Vector, b: Vector) -> Vector { _mm256_cmpgt_epi32(a, b) }
        pick(which: Vector, a: Vector, b: Vector) -> Vector { _mm256_blendv_epi8(b, a, which) }
    }
}
