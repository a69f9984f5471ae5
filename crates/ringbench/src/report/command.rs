//! `ringbench report`: reads runs, and writes one page about all of them.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::ValueEnum;

use crate::export::{NamedRun, csv, html, markdown};
use crate::output_file::OutputFile;
use crate::run_file::Run;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files that were written with -o; several of one workload are put side by side
    #[arg(required = true, value_name = "RUN.json")]
    pub(crate) runs: Vec<PathBuf>,
    /// Write the page to this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// What to write [default: by the name of FILE, or html]
    #[arg(long, value_enum)]
    pub(crate) format: Option<Format>,
    /// Write even if the file exists
    #[arg(long, requires = "output")]
    pub(crate) overwrite: bool,
}

/// What runs can be written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A page with charts, that needs nothing else
    Html,
    /// Tables in text
    #[value(alias = "md")]
    Markdown,
    /// A row for each sample
    Csv,
}

impl Format {
    /// By the end of the name of a file; HTML where that says nothing.
    fn of(path: Option<&Path>) -> Format {
        let end = path.and_then(Path::extension).map(|end| end.to_ascii_lowercase());
        match end.as_ref().and_then(|end| end.to_str()) {
            Some("md" | "markdown") => Format::Markdown,
            Some("csv") => Format::Csv,
            _ => Format::Html,
        }
    }
}

/// # Errors
///
/// A run cannot be read, or the page cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut runs = Vec::new();
    for path in &args.runs {
        runs.push(NamedRun { name: name(path, &args.runs), run: Run::read(path)? });
    }
    let page = match args.format.unwrap_or_else(|| Format::of(args.output.as_deref())) {
        Format::Html => html::of_runs(&runs)?,
        Format::Markdown => markdown::of_runs(&runs),
        Format::Csv => csv::of_runs(&runs),
    };
    match &args.output {
        Some(path) => write(path, args, &page),
        None => {
            let mut out = std::io::stdout().lock();
            out.write_all(page.as_bytes())?;
            Ok(out.flush()?)
        }
    }
}

/// The name of a file, and where another one has the same, its whole path.
fn name(path: &Path, all: &[PathBuf]) -> String {
    let alike = all.iter().filter(|other| other.file_name() == path.file_name()).count();
    match path.file_name() {
        Some(name) if alike == 1 => name.to_string_lossy().into_owned(),
        _ => path.to_string_lossy().into_owned(),
    }
}

fn write(path: &Path, args: &Args, page: &str) -> anyhow::Result<()> {
    let whole = |path: &Path| path.canonicalize().ok();
    if whole(path).is_some_and(|path| args.runs.iter().any(|run| whole(run) == Some(path.clone())))
    {
        bail!("{}: it is one of the runs, which would be lost: name another file", path.display());
    }
    let file = OutputFile::create(path, args.overwrite)?;
    let written = file.replace(|file| file.write_all(page.as_bytes()));
    if written.is_err() {
        file.discard_if_empty();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_file_says_the_format() {
        let of = |name: &str| Format::of(Some(Path::new(name)));
        assert_eq!(of("a.md"), Format::Markdown);
        assert_eq!(of("a.CSV"), Format::Csv);
        for name in ["a.html", "a.htm", "page", "a.txt"] {
            assert_eq!(of(name), Format::Html);
        }
        assert_eq!(Format::of(None), Format::Html);
    }

    #[test]
    fn runs_are_told_apart_by_their_names() {
        let all = ["a/limits.json", "b/limits.json", "b/pipe.json"].map(PathBuf::from);
        let names = all.each_ref().map(|path| name(path, &all));
        assert_eq!(names, ["a/limits.json", "b/limits.json", "pipe.json"]);
    }
}
