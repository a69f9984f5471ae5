//! `ringguard`: finds damaged bytes of files, and repairs them. It is a command; the library exists
//! so that `fuzz/` and the tests reach what they use.
//!
//! `create` reads the files once, column by column of a Reed-Solomon code, and writes a sidecar:
//! digests, tree nodes, hashes of pieces, parity. `verify` compares the files with it, `repair`
//! makes them what they were. `docs/guard-format.md` specifies the sidecar.
//!
//! ```text
//! geometry ◀─ code ◀─ format ◀─ sidecar ◀─ diagnosis ◀─ repair
//!     ▲                  ▲                                  │
//!     └───── data ◀──────┴───────────── create ◀────────────┘
//! ```

mod checkpoint;
mod cli;
mod code;
mod commands;
mod create;
mod data;
mod device_lock;
mod diagnosis;
mod direct_file;
mod fault;
mod format;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;
mod generate;
mod geometry;
mod in_place;
mod inputs;
mod layout;
mod one_pass;
mod output;
mod partial;
mod pass;
mod read_back;
mod recover;
mod repair;
#[cfg(test)]
mod replay;
mod run_reader;
mod scrub;
mod sidecar;
mod small_writes;
mod stamps;
mod transform;
mod tree;
mod undo;

use std::process::ExitCode;

use clap::Parser;

pub(crate) use commands::Status;

/// Runs the command, and returns its exit status.
pub fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { Status::Usage as u8 } else { 0 });
        }
    };
    match commands::run(&cli) {
        Ok(status) => ExitCode::from(status as u8),
        Err(error) => {
            eprintln!("ringguard: {error:#}");
            ExitCode::from(commands::status_of(&error) as u8)
        }
    }
}

/// Locks a mutex, even if a thread panicked while holding it.
fn lock<X>(mutex: &std::sync::Mutex<X>) -> std::sync::MutexGuard<'_, X> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
