//! What the library and the command do, on real files: one binary, a file for each subject.

mod bad_input;
mod check;
mod command;
mod hashing;
mod looking;
mod medium;
mod refusals;
mod support;
mod terminal;
