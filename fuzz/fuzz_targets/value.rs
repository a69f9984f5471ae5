//! Values of options: sizes, rates, priorities, globs, times.
#![no_main]

/// The command is a binary without a library: these parts are compiled from its sources.
#[path = "../../crates/ringsum/src/cli"]
#[allow(dead_code)]
mod cli {
    pub(crate) mod fuzzed;
    mod args {
        pub(crate) mod values;
    }
    mod cache {
        mod index;
        pub(crate) use index::{Index, Metadata, Record};
    }
    mod lock;
    use lock::lock;
    mod inputs {
        pub(crate) mod lines;
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    cli::fuzzed::value(data);
    ringbench::fuzzed::value(data);
});
