//! Parsers for the values of options.

use std::time::Duration;

use blockring::Config;
use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};

use crate::model::units::parse_size;

/// A parser of the names of `values`, which help and completions show.
pub(crate) fn one_of<T: Copy + Send + Sync + 'static, const N: usize>(
    values: [T; N],
    name: fn(T) -> &'static str,
) -> ValueParser {
    let names = PossibleValuesParser::new(values.map(name));
    let find = move |text: String| values.into_iter().find(|&value| name(value) == text);
    names.try_map(move |text| find(text).ok_or("not one of the values")).into()
}

/// Parses a block size.
pub(crate) fn parse_block(text: &str) -> Result<u32, String> {
    let size = u32::try_from(parse_size(text)?).unwrap_or(u32::MAX);
    let config = Config::default().with(|config| config.io.block_bytes = Some(size));
    config.validate().map(|()| size).map_err(|error| error.to_string())
}

/// Parses a size that pipes have: the kernel rounds others up.
pub(crate) fn parse_pipe_size(text: &str) -> Result<u64, String> {
    let is_one = |size: &u64| size.is_power_of_two() && (4096..=64 << 20).contains(size);
    let wrong = || "not a power of two from 4K to 64M".to_owned();
    parse_size(text).ok().filter(is_one).ok_or_else(wrong)
}

/// Parses a time with its unit.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let time: jiff::SignedDuration =
        text.parse().map_err(|_| "not a time such as 90s, 10m or 500ms".to_owned())?;
    let time = Duration::try_from(time).ok().filter(|time| !time.is_zero());
    time.ok_or_else(|| "a time must be longer than 0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_blocks_are_parsed() {
        assert_eq!(parse_time("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_time("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["0s", "soon", "-1s"] {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
        assert!(parse_block("256").is_err() && parse_block("1G").is_err());
    }
}
