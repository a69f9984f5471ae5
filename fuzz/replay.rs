//! Runs what fuzzing kept (`fuzz/corpus`) through the function that was fuzzed: on any toolchain, as a test.
//!
//! Each crate has a link to this file, which becomes a copy in its package. The corpus does not: it is 2 MiB of
//! files that only the repository needs.

use std::io::Write;
use std::path::Path;

/// Gives each file of the corpus of a target to `check`.
pub(crate) fn corpus(target: &str, check: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    if !fuzz.join("replay.rs").exists() {
        // (Not `eprintln!`, which tests that pass keep for themselves.)
        let _ = writeln!(std::io::stderr(), "SKIP the corpus of {target}: not in the package");
        return;
    }
    let folder = fuzz.join("corpus").join(target);
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
