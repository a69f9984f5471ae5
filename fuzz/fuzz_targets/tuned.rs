//! Files of settings, read and written.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringsum::fuzzed::tuned(data));
