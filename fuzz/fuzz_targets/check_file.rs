//! Lines of check files, read and written.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringsum::fuzzed::check_file(data));
