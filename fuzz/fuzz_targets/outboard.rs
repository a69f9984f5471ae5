//! Outboards with any bytes replaced.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringguard::fuzzed::outboard(data));
