//! Schedules and faults of the pump, over the fake engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| blockring::fuzz_schedule(data));
