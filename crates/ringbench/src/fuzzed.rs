//! What must hold for any bytes in the file of a run, and in the values of options. `fuzz/` tries it, and the tests
//! try again what it kept.

use crate::export::{self, NamedRun, csv, html, markdown};
use crate::run_file::Run;
use crate::values;

/// A run is refused, or can be drawn in every form, alone and beside itself; and is the same when it was written
/// and read again.
pub fn run_file(data: &[u8]) {
    let Ok(run) = Run::parse(data) else { return };
    let text = serde_json::to_vec(&run).unwrap();
    Run::parse(&text).unwrap();
    let _ = export::printed(&run);
    let named = |name: &str| NamedRun { name: name.to_owned(), run: run.clone() };
    for runs in [vec![named("a")], vec![named("a"), named("b")]] {
        let page = html::of_runs(&runs).unwrap();
        assert_eq!(page.matches("<script").count(), page.matches("</script>").count());
        markdown::of_runs(&runs);
        csv::of_runs(&runs);
    }
}

/// What is shown as a size is read as that size.
pub fn value(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = values::parse_time(text);
    if let Ok(bytes) = values::parse_block(text) {
        assert_eq!(values::parse_size(text), Ok(bytes.into()));
    }
    if let Ok(bytes) = values::parse_size(text) {
        assert_eq!(values::parse_size(&values::show_size(bytes)), Ok(bytes), "{text:?}");
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
