//! Fault injection: every fault with every engine of the real command, as a table of outcomes.
//!
//! README.md beside this file has the table, the rules, and the command that regenerates it: the environment
//! variable `WRITE_FAULTS` names the page to write, relative to the root of the workspace. A fault
//! whose setup fails (without root, FUSE, loop devices or the tools that make file systems) is
//! skipped with a message.

mod changes;
#[expect(dead_code, reason = "shared with an example")]
mod fuse;
mod images;
mod kinds;
mod lengths;
mod limits;
#[path = "../behaviour/mounting.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod mounting;
mod run;
#[path = "../behaviour/seccomp.rs"]
mod seccomp;
mod signals;
#[path = "../behaviour/support.rs"]
#[expect(dead_code, reason = "shared with other tests")]
mod support;
mod table;

use std::fs;
use std::path::Path;

use table::Group;

const GROUPS: [Group; 7] = [
    kinds::GROUP,
    kinds::BELOW_OVERLAY,
    images::DEVICES,
    images::FILE_SYSTEMS,
    changes::GROUP,
    limits::GROUP,
    signals::GROUP,
];

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/README.md");

#[test]
fn every_fault_with_every_engine() {
    let rows = table::try_all(&GROUPS);
    let before = fs::read_to_string(PAGE).unwrap_or_default();
    let page = table::page(&GROUPS, &rows, &before);
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults.md");
    if let Err(error) = fs::write(&copy, &page) {
        // (Perhaps it belongs to another user.)
        support::skip(&format!("writing {}: {error}", copy.display()));
    }
    let broken = table::broken(&GROUPS, &rows);
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
    if let Some(path) = std::env::var_os("WRITE_FAULTS") {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::write(root.join(path), &page).unwrap();
    }
}
