//! What the command says about itself: `-h`, the end of `--help`, `--io help`, the man page and
//! completions, and suggestions for misspelt words.

use std::ffi::OsStr;
use std::fmt::Write;

use blockring::KNOBS;
use clap::builder::TypedValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error, ValueEnum};
use clap_complete::Shell;

use super::Args;

/// `-h`: what people use. Checked against the definitions by a test.
const SHORT_HELP: &str = "\
Print or check BLAKE3 and other digests of files, trees, devices and pipes

Usage: ringsum [OPTIONS] [FILE]...      (without FILE: standard input)
       ringsum -r [OPTIONS] [DIR]...
       ringsum -c [OPTIONS] CHECKFILE...

  -a, --algorithm NAME      blake3 (default), sha256, md5, ...; several: a,b
      --list-algorithms     all algorithms, and their speed here
  -r, --recursive           hash all files in directories
      --include GLOB        with -r, only files that match
      --exclude GLOB        with -r, skip what matches
  -x, --one-file-system     with -r, stay on one file system
      --files-from FILE     hash the files that FILE names (-0: ended by NUL)
  -c, --check               check the digests in the FILEs
      --quiet               with -c, do not print OK
      --status              with -c, print no verdicts; the exit status tells
      --ignore-missing      with -c, skip files that do not exist
      --report-unlisted DIR with -c, report new and renamed files in DIR
      --tag                 BSD-style lines: BLAKE3 (FILE) = HASH
      --json                one JSON object per line
  -z, --zero                end lines with NUL, and do not escape names
  -o, --output FILE         write digests to FILE
  -p, --pass-through        copy input to stdout; its digest to stderr, or -o
      --tee FILE            copy the input to FILE as well
      --index FILE          keep digests, and read only what changed
      --limit-rate BYTES    read at most BYTES per second: 50M is 50 MiB
      --memory SIZE         use at most SIZE of memory: 64M
      --io KEY=VALUE,...    how to read; `--io help` lists the keys
      --explain             show how each input is read, and why
      --stats               show where the time went, and what limited it
  -h, --help                this summary; --help describes all options
  -V, --version

Examples:
  ringsum -r photos > photos.b3                    hash a tree
  ringsum -c --quiet photos.b3                     check it
  ringsum -c --quiet --report-unlisted photos photos.b3  and find what is new
  curl -L URL | ringsum -p -o image.b3 > image.iso hash while storing
  ringsum -a sha256,md5 --limit-rate 50M image.iso two digests, one slow read
  ringsum --generate man|complete-bash|complete-zsh|complete-fish > FILE
";

/// The end of `--help`.
pub(super) const AFTER_HELP: &str = "\
Also accepted: --seek SEEK (first output byte of BLAKE3), --retry-changed N (read files that \
change while they are read up to N times more, after 250 ms, 500 ms, ... up to 8 s), --strict and \
--lenient (malformed lines \
fail a check, as by default, or do not), -w/--warn (report every malformed line), --allow-special \
(read devices, FIFOs and sockets that are named in a list, or given as arguments with -r), --trace FILE (all \
events, for ui.perfetto.dev), --generate man|complete-bash|complete-zsh|complete-fish, --no-mmap (never map a file); and, without effect, -b/--binary and -t/--text.

SIZE and BYTES accept the suffixes k, K or KiB (1024), kB or KB (1000), and so on for M, G and T.

Exit status: 0 on success, 1 if a file could not be read, changed while it was read, or failed a \
check, 2 for a wrong command line.";

/// `-h`, which prints [`SHORT_HELP`] before anything else is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ShortHelp;

impl TypedValueParser for ShortHelp {
    type Value = ShortHelp;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, _: &OsStr) -> Result<ShortHelp, Error> {
        Err(Error::raw(ErrorKind::DisplayHelp, SHORT_HELP))
    }
}

/// What `--generate` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Generate {
    Man,
    CompleteBash,
    CompleteZsh,
    CompleteFish,
}

impl Generate {
    /// Returns the text.
    pub(crate) fn text(self) -> std::io::Result<Vec<u8>> {
        let shell = match self {
            Generate::Man => return man_page(),
            Generate::CompleteBash => Shell::Bash,
            Generate::CompleteZsh => Shell::Zsh,
            Generate::CompleteFish => Shell::Fish,
        };
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Args::command(), "ringsum", &mut text);
        Ok(text)
    }
}

/// Sections of the man page after the options, in roff.
const MAN_END: &str = r#".SH "EXIT STATUS"
.TP
.B 0
Every file was read whole and unchanged; with \fB\-\-check\fR, everything listed matches.
.TP
.B 1
A file could not be read, changed while it was read, or failed a check. The rest was done all the same.
.TP
.B 2
The command line is wrong; nothing was read.
.PP
Ctrl\-C prints finished lines and ends the process by SIGINT.
.SH ENVIRONMENT
.TP
.B NO_COLOR
If it is set and not empty, no color is used.
.TP
.B RAYON_NUM_THREADS
The maximum number of threads, as for b3sum, without \fB\-\-num\-threads\fR.
.SH FILES
.TP
.I ~/.config/ringsum/tuned.json
Settings that \fBringbench tune\fR measured on this machine.
.SH EXAMPLES
Hash a tree, check it, and find files that were added since:
.PP
.nf
    ringsum \-r photos > photos.b3
    ringsum \-c \-\-quiet \-\-report\-unlisted photos photos.b3
.fi
.PP
Hash a download while it is stored:
.PP
.nf
    curl \-L https://example.org/image.iso | ringsum \-p \-o image.b3 > image.iso
.fi
.PP
Two digests in one read, at no more than 50 MiB per second:
.PP
.nf
    ringsum \-a sha256,md5 \-\-limit\-rate 50M image.iso
.fi
.SH "SEE ALSO"
.BR b3sum (1),
.BR sha256sum (1),
.BR ringbench (1)
"#;

fn man_page() -> std::io::Result<Vec<u8>> {
    let command = Args::command().override_usage("ringsum [OPTION]... [FILE]...");
    let page = clap_mangen::Man::new(command);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    text.extend_from_slice(b".SH \"READING OPTIONS\"\nThe keys of \\fB\\-\\-io\\fR:\n");
    for knob in KNOBS {
        let escape = |text: &str| text.replace('\\', "\\\\").replace('-', "\\-");
        let (key, values, help) = (escape(knob.key), escape(knob.values), escape(knob.help));
        let default = escape(knob.default);
        let entry = format!(".TP\n\\fB{key}\\fR={values}\n{help} [default: {default}]\n");
        text.extend_from_slice(entry.as_bytes());
    }
    text.extend_from_slice(MAN_END.as_bytes());
    Ok(text)
}

/// `--io help`.
pub(super) fn io_help() -> String {
    let mut text =
        "Usage: --io KEY=VALUE[,KEY=VALUE]...\n\nAll of it is detected. `ringbench tune` \
                    finds what is better here; --explain tells what was chosen.\n\n"
            .to_owned();
    for knob in KNOBS {
        let _ = writeln!(text, "  {}={}  [default: {}]", knob.key, knob.values, knob.default);
        for line in wrap(knob.help, 72) {
            let _ = writeln!(text, "        {line}");
        }
    }
    text
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is at least one");
        match last.len() + 1 + word.len() {
            len if len > width => lines.push(word.to_owned()),
            _ if last.is_empty() => last.push_str(word),
            _ => last.extend([" ", word]),
        }
    }
    lines
}

/// Describes a wrong command line on one line, with a suggestion if there is one.
pub(crate) fn describe(error: &Error) -> String {
    let text = error.to_string();
    // (The first paragraph; the others are suggestions, the usage, and a reference to the help.)
    let what = text.split("\n\n").next().unwrap_or_default();
    let what: Vec<_> = what.lines().map(str::trim).collect();
    let mut what = what.join(" ").trim_start_matches("error: ").to_owned();
    let wrong = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(wrong)) => wrong.trim_start_matches('-'),
        _ => "",
    };
    if KNOBS.iter().any(|knob| knob.key == wrong) {
        return format!("{what}; did you mean --io {wrong}=VALUE?");
    }
    for kind in [ContextKind::SuggestedArg, ContextKind::SuggestedValue] {
        match error.get(kind) {
            Some(ContextValue::String(name)) => what.push_str(&format!("; did you mean {name}?")),
            Some(ContextValue::Strings(names)) if !names.is_empty() => {
                what.push_str(&format!("; did you mean {}?", names.join(" or ")));
            }
            _ => {}
        }
    }
    what
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_fits_a_terminal_and_names_real_options() {
        assert!(SHORT_HELP.lines().count() <= 45, "{}", SHORT_HELP.lines().count());
        let command = Args::command();
        for line in SHORT_HELP.lines() {
            assert!(line.chars().count() <= 80, "{line}");
            let Some(long) = line.get(6..).filter(|_| line.starts_with("  ")) else { continue };
            let Some(long) = long.strip_prefix("--") else { continue };
            let long = long.split(' ').next().unwrap();
            let found = command.get_arguments().find(|arg| arg.get_long() == Some(long));
            let arg = found.unwrap_or_else(|| panic!("--{long} is not an option"));
            if let Some(letter) = line[2..].strip_prefix('-').and_then(|line| line.chars().next())
                && letter != 'h'
            {
                assert_eq!(arg.get_short(), Some(letter), "{line}");
            }
            assert!(!arg.is_hide_set(), "{line}");
        }
    }

    #[test]
    fn at_most_45_options_are_visible() {
        let command = Args::command();
        let options = command.get_arguments().filter(|arg| !arg.is_positional());
        let visible = options.filter(|arg| !arg.is_hide_set()).count();
        assert!(visible <= 45, "{visible}");
    }
}
