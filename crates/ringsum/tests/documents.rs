//! The commands in the documents: each is run, and its output compared with the one that is shown.
//!
//! A command is a line `$ ...` of a fenced `console` block, with the lines that a backslash
//! continues. All commands of one document run in order by bash, in a scratch directory with the
//! files of [`furnish`], with the built `ringsum` and `ringguard` in front of `PATH`. Lines below a command are what
//! it prints on standard output and standard error together: `...` as a line stands for any lines,
//! within a line for any text. Without such lines, the output is not compared. The exit status is
//! 0, or the N of a comment `# exit status N` behind the command.
//!
//! A block that cannot be run (it needs root, a network or minutes) is a `console no-run`, followed
//! by a comment `<!-- no-run: REASON -->`. Its commands are parsed by the real `ringsum`, beside
//! files that do not exist.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Documents outside of `docs`.
const OUTSIDE: [&str; 5] = [
    "README.md",
    "CONTRIBUTING.md",
    "bench/RESULTS.md",
    "crates/ringguard/README.md",
    "crates/ringsum/README.md",
];

/// The document of a command whose output is never the same.
const NOT_RUN: &str = "ringbench.md";

/// A command, with its place in the document.
struct Step {
    line: usize,
    command: String,
    status: i32,
    expected: Vec<String>,
}

/// A fenced block of commands.
struct Session {
    steps: Vec<Step>,
    is_run: bool,
}

/// The documents, as paths from the root.
fn documents() -> Vec<PathBuf> {
    let docs = fs::read_dir(Path::new(ROOT).join("docs")).unwrap();
    let docs = docs.map(|entry| Path::new("docs").join(entry.unwrap().file_name()));
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".md") && name != NOT_RUN
    };
    let mut all: Vec<_> = docs.filter(is_ours).collect();
    all.extend(OUTSIDE.map(PathBuf::from));
    all.sort();
    all
}

/// Returns the sessions of a document.
fn sessions(path: &Path) -> Vec<Session> {
    let text = fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut sessions = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let Some(kind) = lines[at].strip_prefix("```console") else {
            at += 1;
            continue;
        };
        let place = format!("{}:{}", path.display(), at + 1);
        let is_run = match kind.trim() {
            "" => true,
            "no-run" => false,
            other => panic!("{place}: a console block that is {other:?}"),
        };
        let mut steps: Vec<Step> = Vec::new();
        at += 1;
        while lines[at] != "```" {
            if let Some(command) = lines[at].strip_prefix("$ ") {
                let line = at + 1;
                let mut command = command.to_owned();
                while command.ends_with('\\') {
                    at += 1;
                    command.push('\n');
                    command.push_str(lines[at]);
                }
                let status = command.split_once("# exit status ").map(|(_, status)| status);
                let status = status.map_or(0, |status| status.trim().parse().expect(&place));
                steps.push(Step { line, command, status, expected: Vec::new() });
            } else {
                let step = steps.last_mut().unwrap_or_else(|| panic!("{place}: output first"));
                step.expected.push(lines[at].to_owned());
            }
            at += 1;
        }
        let reason = lines.get(at + 1).copied().unwrap_or_default();
        let has_reason = reason.starts_with("<!-- no-run: ") && reason.ends_with(" -->");
        assert_eq!(
            has_reason, !is_run,
            "{place}: a block is a no-run and has a reason, or neither"
        );
        sessions.push(Session { steps, is_run });
        at += 1;
    }
    sessions
}

/// Whether a text is the expected one, in which `...` stands for any text.
fn matches(text: &str, expected: &str) -> bool {
    let mut parts = expected.split("...");
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// Whether lines are the expected ones, among which `...` stands for any lines.
fn lines_match(lines: &[&str], expected: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, others)) if first == "..." => {
            (0..=lines.len()).any(|skipped| lines_match(&lines[skipped..], others))
        }
        Some((first, others)) => lines
            .split_first()
            .is_some_and(|(line, rest)| matches(line, first) && lines_match(rest, others)),
    }
}

/// The files that the documents use.
fn furnish(folder: &Path) {
    fs::create_dir_all(folder.join("photos/2024")).unwrap();
    let bytes =
        |len: usize, period: usize| (0..len).map(|i| (i % period) as u8).collect::<Vec<_>>();
    fs::write(folder.join("a.iso"), bytes(3 << 20, 251)).unwrap();
    fs::write(folder.join("b.iso"), bytes(1 << 20, 241)).unwrap();
    fs::write(folder.join("film.mkv"), bytes(16 << 20, 239)).unwrap();
    fs::write(folder.join("photos.tar"), bytes(1 << 20, 233)).unwrap();
    for (name, content) in
        [("2024/beach.jpg", "beach"), ("2024/city.jpg", "city"), ("notes.txt", "notes")]
    {
        fs::write(folder.join("photos").join(name), content).unwrap();
    }
}

/// The `ringguard` beside `ringsum`, which is there if tests of the workspace or of that crate were
/// built. (Cargo builds no command of another crate for a test.)
fn ringguard() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_ringsum")).with_file_name("ringguard");
    path.exists().then_some(path)
}

/// A folder with the commands in it, to be in front of `PATH`.
fn programs(folder: &Path) -> String {
    let programs = folder.join("programs");
    fs::create_dir_all(&programs).unwrap();
    symlink(env!("CARGO_BIN_EXE_ringsum"), programs.join("ringsum")).unwrap();
    if let Some(ringguard) = ringguard() {
        symlink(ringguard, programs.join("ringguard")).unwrap();
    }
    format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())
}

fn bash(folder: &Path, script: &str, path: &str) -> Command {
    let mut bash = Command::new("/bin/bash");
    bash.args(["-c", script]).current_dir(folder).env("PATH", path).stdin(Stdio::null());
    // Nothing of the user's settings.
    bash.env("HOME", folder).env_remove("XDG_CONFIG_HOME").env("LC_ALL", "C");
    bash
}

#[test]
fn commands_print_what_the_documents_show() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let has_ringguard = ringguard().is_some();
    if !has_ringguard {
        let text = b"SKIP commands of ringguard: it is not built (cargo build -p ringguard)\n";
        let _ = std::io::stderr().write_all(text);
        assert!(std::env::var_os("STRICT").is_none_or(|strict| strict != "1"));
    }
    for document in documents() {
        let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = programs(scratch.path());
        let folder = scratch.path().join("files");
        furnish(&folder);
        let sessions = sessions(&document).into_iter().filter(|session| session.is_run);
        // The commands of a session need each other.
        let uses =
            |session: &Session| session.steps.iter().any(|s| s.command.contains("ringguard"));
        let sessions = sessions.filter(|session| has_ringguard || !uses(session));
        for step in sessions.flat_map(|session| session.steps) {
            count += 1;
            let script = format!("set -o pipefail; exec 2>&1; {}", step.command);
            let output = bash(&folder, &script, &path).output().expect("bash");
            let text = String::from_utf8_lossy(&output.stdout);
            let lines: Vec<&str> = text.lines().collect();
            let is_shown = step.expected.is_empty() || lines_match(&lines, &step.expected);
            if output.status.code() != Some(step.status) || !is_shown {
                let place = format!("{}:{}", document.display(), step.line);
                let command = &step.command;
                wrong.push(format!("{place}: {command}\n{}\n{text}", output.status));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {count} commands:\n\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 30, "{count} commands found");
}

/// The stand-in for `ringsum` in blocks that are not run: it passes the options on, with files that
/// do not exist instead of absolute paths, and records a command line that is refused.
const PARSER: &str = r#"#!/bin/bash
arguments=()
for argument; do
    case $argument in
        /*) arguments+=("missing${argument//\//-}") ;;
        *) arguments+=("$argument") ;;
    esac
done
RINGSUM "${arguments[@]}" </dev/null >/dev/null 2>FOLDER/message
[ $? != 2 ] || cat FOLDER/message >>FOLDER/refused
"#;

#[test]
fn commands_that_are_not_run_have_valid_options() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let programs = scratch.path().join("programs");
    fs::create_dir_all(&programs).unwrap();
    symlink("/bin/cat", programs.join("cat")).unwrap();
    let parser = PARSER.replace("RINGSUM", env!("CARGO_BIN_EXE_ringsum"));
    let parser = parser.replace("FOLDER", scratch.path().to_str().unwrap());
    fs::write(programs.join("ringsum"), parser).unwrap();
    fs::set_permissions(programs.join("ringsum"), fs::Permissions::from_mode(0o755)).unwrap();
    let folder = scratch.path().join("files");
    fs::create_dir_all(folder.join("target")).unwrap();
    let refused = scratch.path().join("refused");
    let mut count = 0;
    for document in documents() {
        let sessions = sessions(&document).into_iter().filter(|session| !session.is_run);
        for step in sessions.flat_map(|session| session.steps) {
            count += 1;
            // Other programs do nothing, and `sudo` runs what follows it.
            let command = step.command.replace("target/release/ringsum", "ringsum");
            let script = format!(
                "command_not_found_handle() {{ :; }}; sudo() {{ \"$@\"; }}; exec 2>/dev/null; {command}"
            );
            let output = bash(&folder, &script, programs.to_str().unwrap()).output().expect("bash");
            drop(output);
            let message = fs::read_to_string(&refused).unwrap_or_default();
            assert!(message.is_empty(), "{}:{}: {message}", document.display(), step.line);
        }
    }
    assert!(count > 5, "{count} commands found");
}

#[test]
fn the_comparison_of_output_is_strict() {
    let expected = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert!(lines_match(&["a", "b", "c"], &expected(&["a", "...", "c"])));
    assert!(lines_match(&["a", "c"], &expected(&["a", "...", "c"])));
    assert!(!lines_match(&["a", "b", "c"], &expected(&["a", "c"])));
    assert!(!lines_match(&["a"], &expected(&["a", "b"])));
    assert!(matches("MD5 (a) = 12", "MD5 (...) = ...") && matches("a", "a"));
    assert!(!matches("MD5 (a) = 12", "MD5 (b) = ...") && !matches("ab", "a"));
    assert!(!matches("xab", "...b...c"));
}
