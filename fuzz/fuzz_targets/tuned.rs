//! Files of settings, read and written.
#![no_main]

#[path = "../checks/ringsum.rs"]
#[allow(dead_code)]
mod checks;

libfuzzer_sys::fuzz_target!(|data: &[u8]| checks::tuned(data));
