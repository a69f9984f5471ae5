//! The command: parses the arguments, runs one operation, and returns an exit status.

mod allocator;
mod args;
mod cache;
mod commands;
#[cfg(test)]
mod fuzzed;
mod inputs;
mod interrupt;
mod lock;
mod math;
mod memory;
mod open;
mod output;
mod own_file;
mod session;
mod settings;
mod standard_streams;
mod start;

use std::ffi::OsString;

use self::args::Args;
use self::args::applet::{Applet, Parsed};
use self::args::help;
use self::lock::lock;
use self::output::{Messages, Output, OutputError, To};
use self::session::Session;
use self::settings::Settings;

/// The exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Success = 0,
    /// A file could not be read, or failed a check.
    Failure = 1,
    /// The command line is wrong.
    Usage = 2,
}

/// Runs the command line. Returns the exit status.
fn command(line: Vec<OsString>) -> u8 {
    let messages = Messages::new(line.first().map_or("".as_ref(), |name| name));
    let status = match run(line, &messages) {
        Ok(status) => status,
        // The reader of our output has closed it: `ringsum * | head` is not an error.
        Err(error) if error.downcast_ref().is_some_and(OutputError::reader_left) => Status::Success,
        Err(error) => {
            messages.say(&error);
            Status::Failure
        }
    };
    status as u8
}

fn run(line: Vec<OsString>, messages: &Messages) -> anyhow::Result<Status> {
    if let Some(applet) = line.first().and_then(|program| Applet::of(program)) {
        return match applet.parse(line) {
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
        Err(error) if error.use_stderr() => Ok(usage(messages, &help::describe(&error))),
        Err(help_or_version) => {
            let text = help_or_version.to_string();
            // (The prefix comes with a text of our own.)
            let text = text.trim_start_matches("error: ");
            Output::new(To::Stdout)?.write(text.as_bytes())?;
            Ok(Status::Success)
        }
    }
}

fn usage(messages: &Messages, what: &str) -> Status {
    let names_help = what.contains("--list-algorithms") || what.contains("--io help");
    let help = if names_help { "" } else { " (see --help)" };
    messages.say(&format_args!("{what}{help}"));
    Status::Usage
}

fn run_with(args: &Args, messages: &Messages) -> anyhow::Result<Status> {
    messages.set_color(args.color);
    if args.list_algorithms {
        commands::algorithms::print(&Output::new(To::Stdout)?)?;
        return Ok(Status::Success);
    }
    if let Some(what) = args.generate {
        Output::new(To::Stdout)?.write(&what.text()?)?;
        return Ok(Status::Success);
    }
    let settings = match Settings::of(args) {
        Ok(settings) => settings,
        Err(what) => return Ok(usage(messages, &what)),
    };
    let session = Session::new(args, settings, messages)?;
    match (args.check, args.copies()) {
        (true, _) => commands::check::run(&session),
        (false, true) => commands::tee::run(&session),
        (false, false) => commands::hash::run(&session),
    }
}
