//! `ringbench`: measures files, devices and pipes, says where the limit is, and draws it. A command, and a library
//! only so that `fuzz/` reaches what reads files.
//!
//! A workload (`workload/`) says what it wants to measure; the session plans it, checks it against the
//! limits, and has the runner measure it; what came of it is a run, which is written, printed and drawn.

mod advice;
mod args;
mod cache;
mod case;
mod chart;
mod environment;
mod export;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;
mod grid;
mod interrupt;
mod output_file;
mod process;
mod progress;
#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod report;
mod run_file;
mod runner;
mod scratch;
mod session;
mod summary;
mod together;
mod values;
mod workload;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
#[doc(hidden)]
pub use crate::workload::pipe_ends;

/// The command: arguments in, an exit status out.
pub fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Err(error) if reader_left(&error) => ExitCode::SUCCESS,
        _ if interrupt::is_interrupted() => ExitCode::from(130),
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ringbench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything that should have been measured was.
fn run(args: Args) -> anyhow::Result<bool> {
    interrupt::listen();
    match args.command {
        Command::Limits(args) => workload::limits::run(&args),
        Command::Sweep(args) => workload::sweep::run(&args),
        Command::Compare(args) => workload::compare::run(&args),
        Command::Random(args) => workload::random::run(&args),
        Command::Pool(args) => workload::pool::run(&args),
        Command::Batch(args) => workload::batch::run(&args),
        Command::Pipe(args) => workload::pipe::run(&args),
        Command::Tune(args) => workload::tune::run(&args),
        Command::Report(args) => report::run(&args).map(|()| true),
    }
}

/// Whoever read our output does not want more of it.
fn reader_left(error: &anyhow::Error) -> bool {
    let error = error.root_cause().downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
