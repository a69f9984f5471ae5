//! What the library and the command do, on real files: one binary, a file for each subject.

mod bad_input;
mod changed;
mod check;
mod command;
mod exit_status;
mod formats;
mod guises;
mod hashing;
mod index;
mod limits;
mod lists;
mod looking;
mod medium;
mod mounting;
mod mounts;
mod pipes;
mod refusals;
mod seccomp;
mod selecting;
mod stopping;
mod support;
mod terminal;
mod tree_digest;
mod trees;
mod tuned;
mod unreadable;
