//! Takes everything out of standard input, a pipe, and discards it.
//!
//! `pipe_sink [--read | --splice] [--buffer N] [--spin] [--check]`
//!
//! `--buffer` is the most bytes of one system call (default 256 KiB). `--check` reads, and fails unless
//! the bytes are those that `pipe_source` generates. Prints bytes and rate on standard error.

use std::error::Error;
use std::fs::File;
use std::io;
use std::time::Instant;

use blockring::Wait;
use ringbench::pipe_ends::{read_some, splice_some};

fn main() -> Result<(), Box<dyn Error>> {
    let (mut splice, mut check, mut wait, mut len) = (false, false, Wait::Sleep, 256 << 10);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--read" => splice = false,
            "--splice" => splice = true,
            "--buffer" => len = args.next().ok_or("--buffer needs a size")?.parse()?,
            "--spin" => wait = Wait::Spin,
            "--check" => check = true,
            other => return Err(format!("{other}: unknown, see the top of this file").into()),
        }
    }
    if len == 0 || (check && splice) {
        return Err("--buffer is at least 1, and --check needs --read".into());
    }
    let stdin = io::stdin();
    let null = File::options().write(true).open("/dev/null")?;
    let mut buffer = vec![0; len];
    let (mut bytes, start) = (0_u64, Instant::now());
    loop {
        let n = match splice {
            true => splice_some(&stdin, &null, len, wait)?,
            false => read_some(&stdin, &mut buffer, wait)?,
        };
        if n == 0 {
            break;
        }
        if check {
            check_generated(&buffer[..n], bytes)?;
        }
        bytes += n as u64;
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!("{bytes} bytes, {:.2} GiB/s", bytes as f64 / seconds / f64::from(1 << 30));
    Ok(())
}

/// `pipe_source` writes the numbers from 0 on, of 8 bytes each.
fn check_generated(part: &[u8], offset: u64) -> Result<(), Box<dyn Error>> {
    for (at, &byte) in (offset..).zip(part) {
        if byte != (at / 8).to_le_bytes()[(at % 8) as usize] {
            return Err(format!("byte {at} is not the one that was sent").into());
        }
    }
    Ok(())
}
