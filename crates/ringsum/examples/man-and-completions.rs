//! Writes the man page and the shell completions of the command:
//! `cargo run --example man-and-completions -- DIRECTORY`

#[expect(dead_code, reason = "only the definitions are needed")]
#[path = "../src/cli"]
mod cli {
    pub(crate) mod args;
}

use std::path::PathBuf;
use std::{env, fs};

use clap::CommandFactory;
use clap_complete::{Shell, generate_to};

fn main() -> std::io::Result<()> {
    let directory = PathBuf::from(env::args_os().nth(1).unwrap_or("target/assets".into()));
    fs::create_dir_all(&directory)?;
    let mut command = cli::args::Args::command();
    clap_mangen::Man::new(command.clone())
        .render(&mut fs::File::create(directory.join("ringsum.1"))?)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
        generate_to(shell, &mut command, "ringsum", &directory)?;
    }
    println!("wrote ringsum.1 and completions to {}", directory.display());
    Ok(())
}
