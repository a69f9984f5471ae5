//! Writes a generated stream to standard output, a pipe, in one of the ways in which that can be done.
//!
//! `pipe_source [--bytes N] [--pipe N] [--write | --vmsplice] [--huge] [--spin] [--same]`
//!
//! Sizes are in bytes, or in K, M and G. With `--same` the memory is filled once: what the way itself costs. Its
//! counterpart is `pipe_sink`; `docs/pipes.md` has the figures, and the hazard of `vmsplice`.

use std::error::Error;
use std::io;
use std::os::fd::AsFd;

use blockring::HugePages;
use blockring::pipe::{self, DoubleBuffer, Wait};

/// Fills memory with something that is nowhere the same: what a far end gets tells where it comes from.
fn fill(buffer: &mut [u8], counter: &mut u64) {
    for word in buffer.chunks_mut(8) {
        word.copy_from_slice(&counter.to_le_bytes()[..word.len()]);
        *counter += 1;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut bytes, mut pipe_bytes) = (1 << 30, pipe::BYTES_MAX);
    let (mut write, mut huge, mut same, mut wait) = (false, false, false, Wait::Sleep);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--bytes" => bytes = size(args.next())?,
            "--pipe" => pipe_bytes = size(args.next())?,
            "--write" => write = true,
            "--vmsplice" => write = false,
            "--huge" => huge = true,
            "--spin" => wait = Wait::Spin,
            "--same" => same = true,
            other => return Err(format!("{other}: see the top of this file").into()),
        }
    }
    let stdout = io::stdout();
    let pipe = stdout.as_fd();
    rustix::pipe::fcntl_setpipe_size(pipe, pipe_bytes)
        .map_err(|error| format!("standard output, as a pipe of {pipe_bytes} bytes: {error}"))?;
    let pages = if huge { HugePages::Advise } else { HugePages::Off };
    let mut memory = DoubleBuffer::new(pipe, pages)?;
    let mut counter = 0;
    let mut fresh = 2;
    while bytes > 0 {
        let half = memory.to_fill()?;
        let len = half.len().min(bytes);
        if !same || fresh > 0 {
            fill(&mut half[..len], &mut counter);
            fresh -= i32::from(fresh > 0);
        }
        match write {
            true => pipe::put_by_write(pipe, &half[..len])?,
            false => memory.send(len, wait)?,
        }
        bytes -= len;
    }
    Ok(())
}

fn size(text: Option<String>) -> Result<usize, Box<dyn Error>> {
    let text = text.ok_or("a size is missing")?;
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, 10 * (1 + "KMG".find(&text[digits.len()..]).unwrap_or(0))),
        None => (&text[..], 0),
    };
    Ok(digits.parse::<usize>()?.checked_mul(1 << shift).ok_or("too large")?)
}
