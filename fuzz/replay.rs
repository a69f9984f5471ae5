//! Runs what fuzzing kept (`fuzz/corpus`) through the function that was fuzzed: on any toolchain, as a test.

use std::path::Path;

/// Gives each file of the corpus of a target to `check`.
pub(crate) fn corpus(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty(), "the corpus of {target} is empty");
    files.sort();
    // Miri takes some thousand times as long.
    let step = if cfg!(miri) { 20 } else { 1 };
    for file in files.into_iter().step_by(step) {
        // Shown when the test fails.
        println!("{}", file.display());
        check(&std::fs::read(file).unwrap());
    }
}
