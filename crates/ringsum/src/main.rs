//! The command: arguments in, one job, an exit status out.
#![cfg_attr(not(test), no_main)]

mod ahead;
mod algorithms;
mod args;
mod check;
mod ends;
mod extra;
#[cfg(test)]
mod fuzzed_command;
mod guise;
mod hash;
mod index;
mod inputs;
mod interrupt;
mod json;
mod limits;
mod lines;
mod lists;
mod mapping;
mod math;
mod output;
mod pass;
mod print;
mod progress;
mod remember;
#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;
mod selection;
mod session;
mod start;
mod statistics;
mod trees;
mod values;

use std::ffi::OsString;

use args::Args;
use guise::{Guise, Parsed};
use output::{Messages, Output, OutputError, To};
use session::Session;

/// The exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    /// All is well.
    Success = 0,
    /// Something could not be read, or is not as it should be.
    Failure = 1,
    /// The command line could not be understood.
    Usage = 2,
}

/// Everything after the start of the process: `start.rs` has that.
fn command(line: Vec<OsString>) -> u8 {
    let messages = Messages::new(line.first().map_or("".as_ref(), |name| name));
    let status = match run(line, &messages) {
        Ok(status) => status,
        // Whoever read our output has seen enough: `ringsum * | head` is no failure.
        Err(error) if error.downcast_ref().is_some_and(OutputError::reader_left) => Status::Success,
        Err(error) => {
            messages.say(&error);
            Status::Failure
        }
    };
    status as u8
}

fn run(line: Vec<OsString>, messages: &Messages) -> anyhow::Result<Status> {
    if let Some(guise) = line.first().and_then(|program| Guise::of(program)) {
        return match guise.parse(line) {
            Parsed::Args(args) => run_with(&args, messages),
            Parsed::Text(text) => {
                Output::new(To::Stdout)?.write(text.as_bytes())?;
                Ok(Status::Success)
            }
            Parsed::Wrong(text) => {
                Output::new(To::Stderr)?.write(text.as_bytes())?;
                Ok(Status::Failure)
            }
        };
    }
    match Args::parse_from_line(line) {
        Ok(args) => run_with(&args, messages),
        Err(error) if error.use_stderr() => {
            // The first paragraph says what is wrong; one line is enough for it.
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or_default();
            let what: Vec<_> = what.lines().map(str::trim).collect();
            let what = what.join(" ");
            messages.say(&format_args!("{}; see --help", what.trim_start_matches("error: ")));
            Ok(Status::Usage)
        }
        Err(help_or_version) => {
            Output::new(To::Stdout)?.write(help_or_version.to_string().as_bytes())?;
            Ok(Status::Success)
        }
    }
}

fn run_with(args: &Args, messages: &Messages) -> anyhow::Result<Status> {
    if args.lists_algorithms() {
        algorithms::print(&Output::new(To::Stdout)?)?;
        return Ok(Status::Success);
    }
    let session = Session::new(args, messages)?;
    match (args.check, args.passes_on()) {
        (true, _) => check::run(&session),
        (false, true) => pass::run(&session),
        (false, false) => hash::run(&session),
    }
}
