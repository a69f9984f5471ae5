//! Links the unwinder of libgcc statically, where the C compiler has it: loading one more shared
//! library, which asks the processor for its features once more (each question is an exit to the
//! hypervisor in a virtual machine), took a tenth of the 0.9 ms that a process takes for a
//! 1,000-byte file. Nothing else depends on it: without the archive, or with a linker other than lld, the
//! command uses libgcc_s.so as any program does.
//!
//! Sets `in_repository` where the README of the repository is, so that its examples are tested.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rustc-check-cfg=cfg(in_repository)");
    if Path::new("../../README.md").exists() && Path::new("../../fuzz/replay.rs").exists() {
        println!("cargo::rustc-cfg=in_repository");
    }
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let is_static = env::var("CARGO_CFG_TARGET_FEATURE")
        .is_ok_and(|features| features.split(',').any(|feature| feature == "crt-static"));
    let is_native = env::var("HOST") == env::var("TARGET");
    if !is("PROFILE", "release") || !is("CARGO_CFG_TARGET_ENV", "gnu") || is_static || !is_native {
        return;
    }
    let compiler = env::var_os("CC").unwrap_or("cc".into());
    let output = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output();
    let Ok(output) = output else { return };
    let archive = String::from_utf8_lossy(&output.stdout);
    let archive = archive.trim();
    // (Of a file that it does not have, the compiler prints the bare name.)
    if Path::new(archive).is_absolute() && Path::new(archive).is_file() {
        for arg in ["-Wl,--push-state,--whole-archive", archive, "-Wl,--pop-state"] {
            println!("cargo::rustc-link-arg-bins={arg}");
        }
    }
}
