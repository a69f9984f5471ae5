//! What must hold for any bytes in a run file, and in the values of options. `fuzz/` tries random ones, and
//! the tests repeat those that it kept.

use crate::cli::values;
use crate::model::run_file::Run;
use crate::model::units;
use crate::report::{NamedRun, csv, diff, html, text};

/// A run is refused, or can be written in every format, alone and compared with itself, and saved and read
/// again.
pub fn run_file(data: &[u8]) {
    let Ok(run) = Run::parse(data) else { return };
    let text = serde_json::to_vec(&run).unwrap();
    Run::parse(&text).unwrap();
    text::for_terminal(&run);
    diff::of_runs(&run, &run);
    let named = |name: &str| NamedRun { name: name.to_owned(), run: run.clone() };
    for runs in [vec![named("a")], vec![named("a"), named("b")]] {
        let page = html::of_runs(&runs);
        assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
        text::as_markdown(&runs);
        csv::of_runs(&runs);
    }
}

/// A size is parsed to the same bytes after it was printed.
pub fn value(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = values::parse_time(text);
    if let Ok(bytes) = values::parse_block(text) {
        assert_eq!(units::parse_size(text), Ok(bytes.into()));
    }
    if let Ok(bytes) = units::parse_size(text) {
        assert_eq!(units::parse_size(&units::show_size(bytes)), Ok(bytes), "{text:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn runs_that_fuzzing_kept() {
        crate::replay::corpus("run_file", super::run_file);
    }

    #[test]
    fn values_that_fuzzing_kept() {
        crate::replay::corpus("value", super::value);
    }
}
