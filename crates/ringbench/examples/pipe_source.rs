//! Writes a generated stream to standard output, a pipe.
//!
//! `pipe_source [--bytes N] [--pipe N] [--write | --vmsplice] [--huge] [--spin] [--same]`
//!
//! Sizes are in bytes, or in K, M and G. `--same` fills the memory once, to measure the system calls
//! alone. The counterpart is `pipe_sink`; `docs/guide.md` has the measurements, and the hazard of
//! `vmsplice`.

use std::error::Error;
use std::io;

use blockring::{HugePages, Wait};
use ringbench::pipe_ends::{DoubleBuffer, write_all};

/// Fills memory with numbers, so that each byte that arrives tells its place in the stream.
fn fill(buffer: &mut [u8], counter: &mut u64) {
    for word in buffer.chunks_mut(8) {
        word.copy_from_slice(&counter.to_le_bytes()[..word.len()]);
        *counter += 1;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut bytes, mut pipe_bytes) = (1 << 30, 1 << 20);
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
            other => return Err(format!("{other}: unknown, see the top of this file").into()),
        }
    }
    let stdout = io::stdout();
    rustix::pipe::fcntl_setpipe_size(&stdout, pipe_bytes)
        .map_err(|error| format!("standard output, as a pipe of {pipe_bytes} bytes: {error}"))?;
    let pages = if huge { HugePages::Advise } else { HugePages::Off };
    let mut memory = DoubleBuffer::new(&stdout, pages)?;
    let (mut counter, mut unfilled) = (0, 2);
    while bytes > 0 {
        let half = memory.to_fill()?;
        let len = half.len().min(bytes);
        if !same || unfilled > 0 {
            fill(&mut half[..len], &mut counter);
            unfilled -= i32::from(unfilled > 0);
        }
        match write {
            true => write_all(&stdout, &half[..len])?,
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
