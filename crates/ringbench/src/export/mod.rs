//! Runs in the formats that others read.
use crate::run_file::Run;
pub(crate) fn print(_run: &Run) -> anyhow::Result<()> {
    Ok(())
}
