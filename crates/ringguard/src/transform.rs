//! Transforms of 16 shards in registers, with GFNI and AVX-512: to multiply a unit by a constant is to
//! multiply its bytes by four matrices over GF(2). A chunk is read once, and nothing but the sums is
//! written. (With the tables of `reed-solomon-simd`, chunks and sums took 0.21 of the 0.65 s of `create`
//! for 1 GiB on an AMD EPYC.)
#![allow(unsafe_code)]

use reed_solomon_simd::engine::GF_MODULUS;
use reed_solomon_simd::engine::tables::{get_exp_log, get_skew, mul};

use crate::code::Unit;

/// Shards that have registers: the parity of a column, as a rule.
const SHARDS: usize = 16;

/// The first and the second half of a unit times two matrices each, one for their own half of the
/// product and one for the other half.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Factor {
    own: [u64; 8],
    other: [u64; 8],
}

impl Factor {
    /// A factor by its logarithm; `GF_MODULUS` is that of zero.
    fn new(log: u16) -> Factor {
        let tables = get_exp_log();
        let product = |bit: u32| match log {
            GF_MODULUS => 0,
            log => mul(1 << bit, log, &tables.exp, &tables.log),
        };
        // Row i of a matrix is its byte 7 - i, and has the bits of the input that bit i depends on.
        let matrix = |input: u32, output: u32| {
            let mut rows = [0_u8; 8];
            for bit in 0..8 {
                let product = product(input * 8 + bit) >> (output * 8);
                for (row, place) in rows.iter_mut().rev().zip(0..) {
                    *row |= ((product >> place & 1) as u8) << bit;
                }
            }
            u64::from_le_bytes(rows)
        };
        let both = |low: u64, high: u64| [low, low, low, low, high, high, high, high];
        Factor { own: both(matrix(0, 0), matrix(1, 1)), other: both(matrix(1, 0), matrix(0, 1)) }
    }
}

/// A transform of 16 shards, if this processor has the instructions.
pub(crate) struct Transform {
    /// Of the butterflies at distance 1, 2, 4 and 8.
    factors: [Factor; SHARDS - 1],
}

impl Transform {
    /// `skew`: where the factors begin in the table of the code.
    pub(crate) fn new(shards: usize, skew: usize) -> Option<Transform> {
        if shards != SHARDS || !is_available() {
            return None;
        }
        let distances = [1, 2, 4, 8].into_iter();
        let mut places = distances
            .flat_map(|distance| (0..SHARDS).step_by(2 * distance).map(move |r| r + distance));
        let factor = |_| Factor::new(get_skew()[places.next().unwrap_or(1) + skew - 1]);
        Some(Transform { factors: std::array::from_fn(factor) })
    }

    /// Adds the inverse transform of 16 shards, one behind the other, to `sums`.
    pub(crate) fn add_inverse(&self, shards: &[Unit], sums: &mut [Unit]) {
        assert!(shards.len() == sums.len() && shards.len().is_multiple_of(SHARDS));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is a value only if the processor has these instructions.
        unsafe {
            x86::add_inverse(&self.factors, shards, sums);
        }
    }

    /// Transforms 16 shards, one behind the other.
    pub(crate) fn forward(&self, shards: &mut [Unit]) {
        assert!(shards.len().is_multiple_of(SHARDS));
        #[cfg(target_arch = "x86_64")]
        // SAFETY: there is a value only if the processor has these instructions.
        unsafe {
            x86::forward(&self.factors, shards);
        }
    }
}

/// Whether this processor has the instructions.
fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("gfni");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Adds the product of `units` and a factor, by its logarithm, to `sums`, if this processor has the
/// instructions. Returns whether it did.
pub(crate) fn add_product(log: u16, units: &[Unit], sums: &mut [Unit]) -> bool {
    if !is_available() {
        return false;
    }
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the processor has these instructions.
    unsafe {
        x86::add_product(&Factor::new(log), units, sums);
    }
    true
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_shuffle_i64x2,
        _mm512_storeu_si512, _mm512_xor_si512,
    };

    use super::{Factor, SHARDS, Unit};

    #[target_feature(enable = "avx512f")]
    fn load<X>(bytes: &X) -> __m512i {
        const { assert!(size_of::<X>() == 64) };
        // SAFETY: there are 64 bytes, and any bytes are a value.
        unsafe { _mm512_loadu_si512((&raw const *bytes).cast()) }
    }

    #[target_feature(enable = "avx512f")]
    fn store(unit: &mut Unit, value: __m512i) {
        // SAFETY: there are 64 bytes.
        unsafe { _mm512_storeu_si512((&raw mut *unit).cast(), value) }
    }

    #[target_feature(enable = "avx512f,gfni")]
    fn product(x: __m512i, factor: &Factor) -> __m512i {
        let swapped = _mm512_shuffle_i64x2::<0b01_00_11_10>(x, x);
        _mm512_xor_si512(
            _mm512_gf2p8affine_epi64_epi8::<0>(x, load(&factor.own)),
            _mm512_gf2p8affine_epi64_epi8::<0>(swapped, load(&factor.other)),
        )
    }

    #[target_feature(enable = "avx512f,gfni")]
    pub(super) fn add_product(factor: &Factor, units: &[Unit], sums: &mut [Unit]) {
        for (unit, sum) in units.iter().zip(sums) {
            let value = _mm512_xor_si512(load(sum), product(load(unit), factor));
            store(sum, value);
        }
    }

    #[target_feature(enable = "avx512f,gfni")]
    pub(super) fn add_inverse(factors: &[Factor; SHARDS - 1], shards: &[Unit], sums: &mut [Unit]) {
        let units = shards.len() / SHARDS;
        for unit in 0..units {
            let mut x: [_; SHARDS] =
                std::array::from_fn(|shard| load(&shards[shard * units + unit]));
            let mut factor = factors.iter();
            for distance in [1, 2, 4, 8] {
                for first in (0..SHARDS).step_by(2 * distance) {
                    let factor = factor.next().expect("one for each");
                    for a in first..first + distance {
                        let b = a + distance;
                        x[b] = _mm512_xor_si512(x[b], x[a]);
                        x[a] = _mm512_xor_si512(x[a], product(x[b], factor));
                    }
                }
            }
            for (shard, x) in x.into_iter().enumerate() {
                let sum = &mut sums[shard * units + unit];
                store(sum, _mm512_xor_si512(load(sum), x));
            }
        }
    }

    #[target_feature(enable = "avx512f,gfni")]
    pub(super) fn forward(factors: &[Factor; SHARDS - 1], shards: &mut [Unit]) {
        let units = shards.len() / SHARDS;
        for unit in 0..units {
            let mut x: [_; SHARDS] =
                std::array::from_fn(|shard| load(&shards[shard * units + unit]));
            let mut end = factors.len();
            for distance in [8, 4, 2, 1] {
                end -= SHARDS / 2 / distance;
                for (number, first) in (0..SHARDS).step_by(2 * distance).enumerate() {
                    let factor = &factors[end + number];
                    for a in first..first + distance {
                        let b = a + distance;
                        x[a] = _mm512_xor_si512(x[a], product(x[b], factor));
                        x[b] = _mm512_xor_si512(x[b], x[a]);
                    }
                }
            }
            for (shard, x) in x.into_iter().enumerate() {
                store(&mut shards[shard * units + unit], x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use reed_solomon_simd::engine::{Engine, Naive, ShardsRefMut, utils};

    use super::*;

    fn random(count: usize, mut state: u64) -> Vec<Unit> {
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 56) as u8
        };
        (0..count).map(|_| std::array::from_fn(|_| next())).collect()
    }

    #[test]
    fn products_are_those_of_the_crate() {
        for log in [0, 1, 255, 256, 4097, 32_768, 65_534] {
            let (units, sums) = (random(9, log.into()), random(9, 77));
            let mut found = sums.clone();
            if !add_product(log, &units, &mut found) {
                eprintln!("SKIP products: this processor has no AVX-512 or no GFNI");
                return;
            }
            let mut expected = units.clone();
            Naive::new().mul(&mut expected, log);
            utils::xor(&mut expected, &sums);
            assert!(found == expected, "{log}");
        }
    }

    #[test]
    fn transforms_are_those_of_the_crate() {
        let units = 3;
        for skew in [0, 16, 32, 48, 272, 4096, 65_504] {
            let Some(transform) = Transform::new(SHARDS, skew) else {
                eprintln!("SKIP transforms: this processor has no AVX-512 or no GFNI");
                return;
            };
            let (shards, sums) = (random(SHARDS * units, 5), random(SHARDS * units, 6));
            let mut found = sums.clone();
            transform.add_inverse(&shards, &mut found);
            let mut expected = shards.clone();
            let naive = Naive::new();
            naive.ifft(
                &mut ShardsRefMut::new(SHARDS, units, &mut expected),
                0,
                SHARDS,
                SHARDS,
                skew,
            );
            utils::xor(&mut expected, &sums);
            assert!(found == expected, "inverse at {skew}");
            transform.forward(&mut found);
            naive.fft(
                &mut ShardsRefMut::new(SHARDS, units, &mut expected),
                0,
                SHARDS,
                SHARDS,
                skew,
            );
            assert!(found == expected, "forward at {skew}");
        }
    }
}
