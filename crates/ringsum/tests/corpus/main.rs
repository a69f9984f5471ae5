//! The inputs that fuzzing kept, once more.

mod checks;
#[path = "../../src/replay.rs"]
mod replay;

#[test]
fn checksum_files() {
    replay::corpus("check_file", checks::check_file);
}

#[test]
fn tuned_settings() {
    replay::corpus("tuned", checks::tuned);
}
