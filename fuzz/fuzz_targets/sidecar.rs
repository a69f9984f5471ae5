//! Sidecars of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ringguard::fuzzed::sidecar(data));
