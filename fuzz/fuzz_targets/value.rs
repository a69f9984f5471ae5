//! Values of options: sizes, rates, priorities, globs, times.
#![no_main]

/// The command is a binary, and has no library to take these from: they are compiled from its sources.
#[path = "../../crates/ringsum/src"]
#[allow(dead_code)]
mod command {
    pub mod fuzzed_command;
    mod index;
    mod lines;
    mod values;
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    command::fuzzed_command::value(data);
    ringbench::fuzzed::value(data);
});
