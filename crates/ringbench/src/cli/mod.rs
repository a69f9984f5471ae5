//! The command line: the options of each subcommand as plain values. Nothing here measures or draws.

pub(crate) mod args;
pub(crate) mod values;
