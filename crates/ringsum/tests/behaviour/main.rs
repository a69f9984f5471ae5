//! What the library and the command do, on real files: one binary, a file for each subject.

mod bad_input;
mod changed;
mod check;
mod command;
mod exit_status;
mod hostile;

mod hashing;
mod index;
mod lists;
mod looking;
mod medium;
mod mounting;
mod mounts;
mod pipes;
mod refusals;
mod seccomp;
mod selecting;
mod stack;
mod stopping;
mod support;
mod terminal;

mod tree_digest;
mod trees;
mod tuned;
mod unreadable;
