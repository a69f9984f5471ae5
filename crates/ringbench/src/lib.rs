//! `ringbench`: measures files, devices and pipes, says where the limit is, and draws it. It is a command;
//! the library exists so that `fuzz/`, the tests and the examples reach what they use.
//!
//! A workload plans what to measure; the runner checks the plan against the limits, and measures it; the
//! samples are a run, which is saved, printed and drawn. Each room imports only those before it:
//!
//! ```text
//! model ◀─ cli ◀─ report ◀─ runner ◀─ workloads
//! ```

mod cli;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzed;
mod model;
#[cfg(test)]
mod replay;
mod report;
mod runner;
mod workloads;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::args::{Cli, Command, Generate};
use crate::runner::interrupt;
#[doc(hidden)]
pub use crate::workloads::pipe_ends;

/// Runs the command, and returns its exit status.
pub fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        _ if interrupt::is_interrupted() => ExitCode::from(130),
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ringbench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything was measured that should have been.
fn run(cli: Cli) -> anyhow::Result<bool> {
    interrupt::listen();
    let Some(command) = cli.command else {
        let text = cli.generate.map(Generate::print).unwrap_or_default();
        std::io::stdout().write_all(&text)?;
        return Ok(true);
    };
    match command {
        Command::Limits(args) => workloads::limits::run(&args),
        Command::Sweep(args) => workloads::sweep::run(&args),
        Command::Compare(args) => workloads::compare::run(&args),
        Command::Random(args) => workloads::random::run(&args),
        Command::Pool(args) => workloads::pool::run(&args),
        Command::Batch(args) => workloads::batch::run(&args),
        Command::Pipe(args) => workloads::pipe::run(&args),
        Command::Tune(args) => workloads::tune::run(&args),
        Command::Report(args) => report::command::run(&args).map(|()| true),
        Command::Diff(args) => report::diff::run(&args).map(|()| true),
    }
}

/// Whether the reader of our output wants no more of it.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.root_cause().downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
