//! The command `ringsum`. Its `main` is in `cli/start.rs`.
#![cfg_attr(not(test), no_main)]

mod cli;
#[cfg(test)]
mod replay;
