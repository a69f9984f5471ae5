//! `ringbench report`: reads runs, and writes one report about all of them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::{NamedRun, chart, csv, html, outline, text};
use crate::cli::args::{Format, ReportArgs};
use crate::model::case::Group;
use crate::model::output_file::OutputFile;
use crate::model::run_file::Run;

/// The format by the extension of a path; HTML if that does not tell.
fn format_of(path: Option<&Path>) -> Format {
    let extension = path.and_then(Path::extension).map(|end| end.to_ascii_lowercase());
    match extension.as_ref().and_then(|end| end.to_str()) {
        Some("md" | "markdown") => Format::Markdown,
        Some("csv") => Format::Csv,
        Some("svg") => Format::Svg,
        _ => Format::Html,
    }
}

pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<()> {
    let named =
        |path: &PathBuf| Ok(NamedRun { name: path.display().to_string(), run: Run::read(path)? });
    let runs = args.runs.iter().map(named).collect::<anyhow::Result<Vec<_>>>()?;
    let report = match args.format.unwrap_or_else(|| format_of(args.output.as_deref())) {
        Format::Html => html::of_runs(&runs),
        Format::Markdown => text::as_markdown(&runs),
        Format::Csv => csv::of_runs(&runs),
        Format::Svg => picture(&runs, args)?,
    };
    match &args.output {
        Some(path) => write(path, args, &report),
        None => super::write_to_stdout(&report),
    }
}

/// The main chart of each run, or those of a group.
fn picture(runs: &[NamedRun], args: &ReportArgs) -> anyhow::Result<String> {
    let wanted = args.group.as_deref();
    let groups: Vec<_> =
        runs.iter().map(|run| group(run, wanted)).collect::<anyhow::Result<_>>()?;
    let facts = match runs {
        [one] => outline::facts(&one.run),
        // Not the file, which differs.
        _ => outline::machine(&runs[0].run),
    };
    let picture = chart::picture(&groups, &facts.join(", "));
    picture.with_context(|| format!("{}: nothing was measured", runs[0].name))
}

/// The group with a name, or the main one.
fn group<'a>(
    NamedRun { name, run }: &'a NamedRun,
    wanted: Option<&str>,
) -> anyhow::Result<&'a Group> {
    let Some(wanted) = wanted else {
        return outline::main_group(run).with_context(|| format!("{name}: nothing to draw"));
    };
    let found = run.groups.iter().find(|group| group.name == wanted);
    let names = || run.groups.iter().map(|group| &group.name[..]).collect::<Vec<_>>().join(", ");
    found.with_context(|| format!("{name}: no group {wanted}; its groups are: {}", names()))
}

fn write(path: &Path, args: &ReportArgs, report: &str) -> anyhow::Result<()> {
    let whole = |path: &Path| path.canonicalize().ok();
    if whole(path).is_some_and(|path| args.runs.iter().any(|run| whole(run) == Some(path.clone())))
    {
        bail!("{}: this is one of the runs: use another output file", path.display());
    }
    let file = OutputFile::create(path, args.overwrite)?;
    file.replace(|file| file.write_all(report.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_decides_the_format() {
        let of = |name: &str| format_of(Some(Path::new(name)));
        assert_eq!(of("a.md"), Format::Markdown);
        assert_eq!(of("a.CSV"), Format::Csv);
        for name in ["a.html", "a.htm", "page", "a.txt"] {
            assert_eq!(of(name), Format::Html);
        }
        assert_eq!(format_of(None), Format::Html);
    }
}
