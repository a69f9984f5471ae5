//! The command: arguments in, one job, an exit status out.

mod args;
mod check;
mod hash;
mod inherited;
mod inputs;
mod output;
mod progress;
mod session;

use std::ffi::OsString;
use std::process::ExitCode;

use args::Args;
use output::{Messages, Output, OutputError};
use session::Session;

/// The command line could not be understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let line: Vec<OsString> = std::env::args_os().collect();
    let messages = Messages::new(line.first().map_or("".as_ref(), |name| name));
    match run(line, &messages) {
        Ok(status) => status,
        // Whoever read our output has seen enough: `ringsum * | head` is no failure.
        Err(error) if error.downcast_ref().is_some_and(OutputError::reader_left) => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            messages.say(&error);
            ExitCode::FAILURE
        }
    }
}

fn run(line: Vec<OsString>, messages: &Messages) -> anyhow::Result<ExitCode> {
    let args = match Args::parse_from_line(line) {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            messages.say(&text.strip_prefix("error: ").unwrap_or(&text).trim_end());
            return Ok(ExitCode::from(USAGE));
        }
        Err(help_or_version) => {
            Output::new()?.write(help_or_version.to_string().as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let session = Session::new(&args, messages)?;
    match args.check {
        true => check::run(session),
        false => hash::run(session),
    }
}
