//! Files of runs, read and drawn.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringbench::fuzzed::run_file(data));
