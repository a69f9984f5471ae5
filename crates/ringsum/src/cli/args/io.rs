//! `--io KEY=VALUE[,KEY=VALUE]...`: the options about reading, by the names of `blockring`'s table.

use std::ffi::OsStr;

use blockring::{Config, KNOBS};
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};

use super::help::io_help;
use super::values::did_you_mean;

/// Settings with valid names and values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IoOptions(Vec<(&'static str, String)>);

impl IoOptions {
    pub(super) fn apply(&self, config: &mut Config) {
        for (key, value) in &self.0 {
            config.set(key, value).expect("the parser has set it once");
        }
    }

    /// Returns the first of these keys that is set.
    pub(super) fn first_of(&self, keys: &[&str]) -> Option<&'static str> {
        self.0.iter().map(|(key, _)| *key).find(|key| keys.contains(key))
    }
}

/// Parses the value of `--io`; `help` prints the table.
#[derive(Clone)]
pub(crate) struct IoParser;

impl TypedValueParser for IoParser {
    type Value = IoOptions;

    fn parse_ref(
        &self,
        command: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<IoOptions, Error> {
        let text = value.to_string_lossy();
        if text == "help" {
            return Err(Error::raw(ErrorKind::DisplayHelp, io_help()));
        }
        let settings = text.split(',').map(parse_setting).collect::<Result<_, String>>();
        settings.map(IoOptions).map_err(|what| {
            command.clone().error(ErrorKind::ValueValidation, format!("--io {what}"))
        })
    }
}

fn parse_setting(text: &str) -> Result<(&'static str, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    let Some(knob) = KNOBS.iter().find(|knob| knob.key == key) else {
        let hint = did_you_mean(key, KNOBS.iter().map(|knob| knob.key));
        return Err(format!("{text}: there is no such key{hint}; --io help lists all"));
    };
    if Config::default().set(key, value).is_err() {
        let hint = did_you_mean(value, knob.values.split('|'));
        return Err(format!("{key}={value}: the values are {}{hint}", knob.values));
    }
    Ok((knob.key, value.to_owned()))
}
