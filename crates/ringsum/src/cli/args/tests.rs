//! Parsing command lines.

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches};

use super::*;
use crate::cli::settings::Settings;

#[test]
fn the_definitions_are_sound() {
    Args::command().debug_assert();
}

/// The short way has to give what the parser gives, or leave the line to it.
#[test]
fn names_alone_are_parsed_as_by_the_parser() {
    let lines: [&[&str]; 8] =
        [&[], &["a"], &["a", "-", "b c"], &[""], &["a", ""], &["--"], &["-a"], &["a", "--tag"]];
    for names in lines {
        let line: Vec<_> = ["ringsum"].iter().chain(names).map(OsString::from).collect();
        let parsed = Args::command().try_get_matches_from(&line);
        let parsed = parsed.and_then(|matches| Args::from_arg_matches(&matches));
        match Args::of_names_alone(&line) {
            Some(args) => assert_eq!(args, parsed.expect("a line of names")),
            None => assert!(parsed.is_err() || names.iter().any(|name| name.starts_with('-'))),
        }
    }
    assert!(Args::of_names_alone(&["ringsum".into(), "a".into()]).is_some());
}

#[test]
fn legal_ranges_are_named() {
    let cases: [(&[&str], &str); 28] = [
        (&["--io", "engine=iouring"], "did you mean io_uring?"),
        (&["--io", "dept=4"], "--io help"),
        (&["--quiet", "a"], "--quiet"),
        (&["-x", "a"], "-x/--one-file-system"),
        (&["-a", "sah256"], "did you mean sha256?"),
        (&["--io", "block-size=0"], "from 512 to 67108864"),
        (&["--io", "block-size=64TiB"], "from 512 to 67108864"),
        (&["--io", "block-size=big"], "512 to 64MiB"),
        (&["--io", "queue-depth=0"], "must be from 1 to 32768"),
        (&["--io", "slots=99999"], "must be from 1 to 32768"),
        (&["--io", "slots=32768", "--io", "block-size=64M"], "at most 16 slots"),
        (&["--io", "engine=aio"], "io_uring|libaio|pool|pread|stream|mmap"),
        (&["--io", "engine=null"], "io_uring|libaio"),
        (&["--io", "pool-threads=0"], "must be from 1 to 1024"),
        (&["--io=sqpoll=60001"], "must be from 0 to 60000"),
        (&["--io", "sqpoll-cpu=1"], "add sqpoll=0"),
        (&["--limit-rate", "0"], "not a number of bytes"),
        (&["--io-priority", "best-effort:8"], "best-effort:N"),
        (&["--io", "engine=pread", "--io=link=on"], "of the engine io_uring"),
        (&["--bypass-cache", "--io", "page-cache=buffered"], "cache mode direct only"),
        (&["--io=link=on", "--io=drain=on"], "use one of them"),
        (&["--stats=xml"], "text, json"),
        (&["--io", "page-cache=none"], "direct|buffered|dontcache"),
        (&["--retry-changed", "-1"], "--retry-changed"),
        (&["--retry-changed", "1", "--tee", "x"], "cannot be used with"),
        (&["--list-bad-ranges", "--check"], "cannot be used with"),
        (&["--list-bad-ranges", "--io", "engine=pread"], "leave out --io engine"),
        (&["--list-bad-ranges", "--retry-changed", "1"], "cannot be used with"),
    ];
    for (options, part) in cases {
        let line = ["ringsum"].iter().chain(options).map(OsString::from).collect();
        let text = match Args::parse_from_line(line) {
            Ok(args) => match Settings::of(&args) {
                Err(text) => text,
                Ok(_) => panic!("{options:?} are accepted"),
            },
            Err(error) => {
                assert_eq!(error.exit_code(), 2);
                error.to_string()
            }
        };
        assert!(text.contains(part), "{text}");
    }
}
