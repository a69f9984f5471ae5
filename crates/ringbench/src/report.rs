//! Draws runs.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    pub(crate) runs: Vec<std::path::PathBuf>,
}
pub(crate) fn run(_args: &Args) -> anyhow::Result<()> {
    Ok(())
}
