//! `ringbench report` as a command, and its page in a browser.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/every-chart.json");

fn report(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
    command.arg("report").args(args).output().unwrap()
}

/// Writes the page of the fixture.
fn page(folder: &Path) -> PathBuf {
    let page = folder.join("page.html");
    let output = report(&[FIXTURE, "-o", page.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    page
}

/// Writes a run like the fixture in which everything takes `factor` times as long, with four times as many
/// samples.
fn later(folder: &Path, factor: f64) -> PathBuf {
    let mut run: serde_json::Value = serde_json::from_slice(&fs::read(FIXTURE).unwrap()).unwrap();
    for group in run["groups"].as_array_mut().unwrap() {
        for case in group["cases"].as_array_mut().unwrap() {
            let samples = case["samples"].as_array_mut().unwrap();
            *samples = [&samples[..]; 4].concat();
            for sample in samples {
                let wall_s = sample["wall_s"].as_f64().unwrap() * factor;
                sample["wall_s"] = wall_s.into();
            }
        }
    }
    let path = folder.join(format!("{factor}.json"));
    fs::write(&path, run.to_string()).unwrap();
    path
}

#[test]
fn each_format_is_written_and_never_over_another_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, start) in [
        ("a.html", "<!DOCTYPE html>"),
        ("a.md", "# ringbench"),
        ("a.csv", "run,"),
        ("a.svg", "<svg xmlns="),
    ] {
        let path = folder.path().join(name);
        let path = path.to_str().unwrap();
        assert!(report(&[FIXTURE, "-o", path]).status.success());
        let written = fs::read_to_string(path).unwrap();
        assert!(written.starts_with(start) && written.ends_with('\n'), "{written}");
        fs::write(path, "mine").unwrap();
        let refused = report(&[FIXTURE, "-o", path]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("--overwrite"), "{refused:?}");
        assert_eq!(fs::read_to_string(path).unwrap(), "mine");
        assert!(report(&[FIXTURE, "-o", path, "--overwrite"]).status.success());
        assert_eq!(fs::read_to_string(path).unwrap(), written);
        let format =
            ["html", "markdown", "csv", "svg"].into_iter().find(|f| f.starts_with(&name[2..3]));
        let printed = report(&[FIXTURE, "--format", format.unwrap()]);
        assert_eq!(String::from_utf8_lossy(&printed.stdout), written);
    }
}

#[test]
fn other_files_than_runs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (other, page) = (folder.path().join("other.json"), folder.path().join("page.html"));
    let newer = r#"{"format": "ringbench-run", "version": 99, "what": "ever"}"#;
    for (text, why) in [("{}", "not a run file"), ("no", "not a run file"), (newer, "version 99")] {
        fs::write(&other, text).unwrap();
        let output = report(&[FIXTURE, other.to_str().unwrap(), "-o", page.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
        assert!(output.stdout.is_empty() && !page.exists());
    }
}

#[test]
fn a_report_does_not_overwrite_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run.json");
    fs::copy(FIXTURE, &run).unwrap();
    let run = run.to_str().unwrap();
    assert_eq!(report(&[run, "-o", run, "--overwrite"]).status.code(), Some(1));
    assert_eq!(fs::read(run).unwrap(), fs::read(FIXTURE).unwrap());
}

#[test]
fn a_closed_pipe_is_no_failure() {
    use std::process::Stdio;
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
    let mut child = command.args(["report", FIXTURE]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn two_runs_of_one_workload_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let [old, later] = [1.0, 2.0].map(|factor| later(folder.path(), factor));
    let (old, later) = (old.to_str().unwrap(), later.to_str().unwrap());
    let diff = |old: &str, new: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringbench"));
        let output = command.args(["diff", old, new]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = diff(old, later);
    assert!(text.contains(") slower") && text.contains(" 0 faster,"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let text = diff(old, old);
    assert!(text.contains(") the same") && text.contains(" 0 faster, 0 slower,"), "{text}");
    assert!(diff(FIXTURE, later).contains("too few samples"));
}

/// Runs of earlier versions stay readable.
#[test]
fn every_run_that_was_kept_is_drawn() {
    let runs = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/runs"));
    if !runs.with_file_name("RESULTS.md").exists() {
        let _ = writeln!(std::io::stderr(), "SKIP every run that was kept: not in the package");
        return;
    }
    let folders = fs::read_dir(runs).unwrap().map(|folder| folder.unwrap().path());
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let files: Vec<PathBuf> = files
        .map(|file| file.unwrap().path())
        .filter(|file| file.extension().is_some_and(|end| end == "json"))
        // Other measurements have files of their own kind.
        .filter(|file| fs::read_to_string(file).unwrap().contains("\"groups\""))
        .collect();
    assert!(files.len() >= 15, "{files:?}");
    for file in files {
        for (format, mark) in
            [("html", "<figure"), ("markdown", "\n| --- |"), ("svg", "class=\"median\"")]
        {
            let output = report(&[file.to_str().unwrap(), "--format", format]);
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains(mark), "{file:?}, {format}: no {mark}");
        }
    }
}

/// Elements and attributes that load something.
const LOADING: [&str; 10] = [
    "src=", "srcset=", "<link", "<img", "<iframe", "<object", "@import", "url(", "fetch(", "xmlns",
];

#[test]
fn the_page_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(page(folder.path())).unwrap();
    for loading in LOADING {
        assert!(!page.contains(loading), "{loading}");
    }
    let links = page.match_indices("href=\"").map(|(at, found)| &page[at + found.len()..]);
    assert!(links.into_iter().all(|link| link.starts_with('#')));
    assert!(page.contains("default-src 'none'"));
}

/// Runs after the script of the page, in a copy of it, and stores its findings in an attribute of the outer
/// page.
const SELF_CHECK: &str = r##"<script>
const found = [];
const check = (name, holds) => found.push((holds ? "ok " : "BROKEN ") + name);
const root = document.documentElement;
check("fits into " + innerWidth + " px, takes " + root.scrollWidth, root.scrollWidth <= innerWidth);
document.querySelectorAll("details").forEach((details) => (details.open = true));
// A picture shrinks its text.
const shown = (it) => it.getClientRects().length;
const scale = (it) => (it.tagName === "text" ? it.getScreenCTM().a : 1);
const small = [...document.querySelectorAll("main *")].filter((it) => it.textContent.trim()
  && shown(it) && it.tagName !== "svg" && parseFloat(getComputedStyle(it).fontSize) * scale(it) < 11.99);
check("text of 12 px and more: " + small.map((it) => it.textContent.trim()), !small.length);
for (const kind of ["bars", "heat", "lines", "latency", "in-flight"]) {
  const charts = document.querySelectorAll(`figure[data-chart="${kind}"] :is([role="img"], table)`);
  const chart = [...charts].find(shown);
  const box = chart && chart.getBoundingClientRect();
  check("chart " + kind, chart && box.width > 200 && box.height > 50);
  const texts = chart ? [...chart.querySelectorAll("text, th, td, .name, .value, .axis i")] : [];
  const cut = texts.filter((text) => {
    const it = text.getBoundingClientRect();
    return it.left < box.left - 1 || it.right > box.right + 1 || it.bottom > box.bottom + 1;
  });
  check("text in " + kind + ": " + cut.map((text) => text.textContent.trim()), texts.length && !cut.length);
}
for (const table of document.querySelectorAll("table.cases")) {
  const header = table.querySelectorAll("thead th")[1];
  const values = () => [...table.tBodies[0].rows].map((row) => row.cells[1].dataset.value);
  const known = () => values().filter((value) => value !== undefined).map(Number);
  const count = known().length;
  const sorted = (sign) => known().every((value, i, all) => !i || sign * (value - all[i - 1]) >= 0);
  const last = () => values().slice(0, count).every((value) => value !== undefined);
  header.querySelector("button").click();
  check("ascending", sorted(1) && last() && header.getAttribute("aria-sort") === "ascending");
  header.querySelector("button").click();
  check("descending", sorted(-1) && last() && header.getAttribute("aria-sort") === "descending");
  header.previousElementSibling.querySelector("button").click();
  check("by name", header.getAttribute("aria-sort") === "none");
}
dispatchEvent(new Event("beforeprint"));
check("unfolded for print", !document.querySelector("details:not([open])"));
parent.document.documentElement.dataset.found = found.join(";");
</script>
</body>"##;

fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&str| std::env::split_paths(&folders).any(|f| f.join(name).is_file());
    names.into_iter().find(is_there)
}

#[test]
fn the_page_works_in_a_browser() {
    let Some(browser) = browser() else {
        assert_ne!(std::env::var("STRICT").as_deref(), Ok("1"), "there is no chromium");
        eprintln!("SKIP the page in a browser: there is no chromium");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let checked = fs::read_to_string(page(folder.path())).unwrap().replace("</body>", SELF_CHECK);
    let checked = checked.replace('&', "&amp;").replace('"', "&quot;");
    for width_px in [360, 400, 1280] {
        // A window cannot be as narrow as a phone, a frame can.
        let outer = folder.path().join("outer.html");
        let frame =
            format!("<iframe width=\"{width_px}\" height=\"800\" srcdoc=\"{checked}\"></iframe>");
        fs::write(&outer, format!("<!DOCTYPE html>{frame}")).unwrap();
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--timeout=8000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", outer.display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout);
        let found =
            dom.split_once("data-found=\"").map(|(_, rest)| rest.split_once('"').unwrap().0);
        let found = found.unwrap_or_else(|| panic!("the check did not run: {output:?}"));
        assert!(found.contains(&format!("fits into {width_px} px")), "{found}");
        assert!(!found.contains("BROKEN"), "{width_px} px: {found}");
        assert!(found.matches("ok descending").count() >= 4, "{found}");
    }
}
