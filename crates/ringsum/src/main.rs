//! The command: arguments in, one job, an exit status out.
#![cfg_attr(not(test), no_main)]

mod ahead;
mod args;
mod check;
mod ends;
mod extra;
#[cfg(test)]
mod fuzzed_command;
mod hash;
mod index;
mod inputs;
mod interrupt;
mod json;
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
#[cfg_attr(test, expect(dead_code))]
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
    let args = match Args::parse_from_line(line) {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            // The first paragraph says what is wrong; one line is enough for it.
            let text = error.to_string();
            let what = text.split("\n\n").next().unwrap_or_default();
            let what: Vec<_> = what.lines().map(str::trim).collect();
            let what = what.join(" ");
            messages.say(&format_args!("{}; see --help", what.trim_start_matches("error: ")));
            return Ok(Status::Usage);
        }
        Err(help_or_version) => {
            Output::new(To::Stdout)?.write(help_or_version.to_string().as_bytes())?;
            return Ok(Status::Success);
        }
    };
    let session = Session::new(&args, messages)?;
    match (args.check, args.passes_on()) {
        (true, _) => check::run(&session),
        (false, true) => pass::run(&session),
        (false, false) => hash::run(&session),
    }
}
