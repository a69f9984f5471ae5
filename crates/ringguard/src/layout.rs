//! Where each file lies in the data, and the size of pieces.

use std::collections::VecDeque;

use blockring::Fingerprint;

use crate::create::{Input, Request};
use crate::format::File;
use crate::geometry::{Geometry, MILLION, PIECE_BYTES_MAX, PIECE_BYTES_MIN};

/// Pieces of 64 KiB that still take small files. A tree of 90,000 files of 4.4 KiB on average fills
/// 1.16 times its size with one (what follows a file is often too long for the rest of its piece),
/// 1.10 times with 16, and no less with 64.
const OPEN_PIECES: usize = 16;
/// Gives each file its place in the data: small files first, packed into pieces.
pub(crate) fn lay_out(
    request: &Request<'_>,
    inputs: Vec<Input>,
) -> (Vec<File>, Vec<Fingerprint>, Geometry) {
    let redundancy = u64::from(request.redundancy);
    let lens: Vec<_> = inputs.iter().map(|input| input.file.len).collect();
    let piece_bytes =
        choose_piece_bytes(&lens, request.is_set, redundancy, request.reading.run_bytes);
    let mut all: Vec<_> = inputs.into_iter().map(|input| (input.file, input.fingerprint)).collect();
    let size = u64::from(piece_bytes);
    let is_large = |len: u64| !request.is_set || len >= size;
    all.sort_by(|(a, _), (b, _)| (is_large(a.len), &a.name).cmp(&(is_large(b.len), &b.name)));
    let mut end = 0_u64;
    // What is free in pieces that small files share.
    let mut open: VecDeque<std::ops::Range<u64>> = VecDeque::new();
    for (file, _) in &mut all {
        if is_large(file.len) {
            file.start = end;
            end = (end + file.len).next_multiple_of(size);
            continue;
        }
        if file.len == 0 {
            // At the start: it must not open a piece that nothing else may fill.
            continue;
        }
        let place = open.iter().position(|free| file.len <= free.end - free.start);
        let place = place.unwrap_or_else(|| {
            if open.len() == OPEN_PIECES {
                open.pop_front();
            }
            open.push_back(end..end + size);
            end += size;
            open.len() - 1
        });
        file.start = open[place].start;
        open[place].start += file.len;
    }
    all.sort_by_key(|(file, _)| (file.start, file.len));
    let (files, fingerprints): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let pieces = files.last().map_or(0, |file| file.end().div_ceil(size));
    let window_bytes = request.in_order.then_some(request.memory_bytes / 2);
    let data_bytes = files.iter().map(|file| file.len).sum();
    let geometry = Geometry::choose(pieces, piece_bytes, data_bytes, redundancy, window_bytes);
    (files, fingerprints, geometry)
}

/// Returns the size of pieces that makes the sidecar smallest: larger ones have fewer hashes, but
/// leave more room empty behind each file, which costs parity, too.
fn choose_piece_bytes(lens: &[u64], is_set: bool, redundancy: u64, run_bytes: u32) -> u32 {
    let total: u64 = lens.iter().sum();
    // Sixteen pieces of parity make a column of the redundancy.
    let pieces_min = (16 * MILLION).checked_div(redundancy).unwrap_or(1);
    let mut best = (u128::MAX, PIECE_BYTES_MIN);
    let mut piece_bytes = PIECE_BYTES_MIN;
    while piece_bytes <= PIECE_BYTES_MAX.min(run_bytes) {
        let size = u64::from(piece_bytes);
        let room = |len: &u64| match is_set && *len < size {
            true => *len,
            false => len.next_multiple_of(size),
        };
        let data: u64 = lens.iter().map(room).sum();
        let hashes = u128::from(data.div_ceil(size)) * 32 * u128::from(MILLION);
        let cost = u128::from(data) * u128::from(redundancy) + hashes;
        // (A little more for larger pieces, which are fewer.)
        if total.div_ceil(size) >= pieces_min && cost <= best.0.saturating_add(best.0 / 500) {
            best = (cost.min(best.0), piece_bytes);
        }
        piece_bytes *= 2;
    }
    best.1
}
