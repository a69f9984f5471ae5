//! The command. All of it is in `lib.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    ringbench::main()
}
