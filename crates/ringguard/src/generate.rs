//! The man page and the completion scripts.

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;

/// What `--generate` prints.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Generate {
    Man,
    CompleteBash,
    CompleteZsh,
    CompleteFish,
}

impl Generate {
    /// Returns the text.
    pub(crate) fn text(self) -> Vec<u8> {
        let (mut text, mut command) = (Vec::new(), Cli::command());
        let shell = match self {
            Generate::Man => return man_page(command),
            Generate::CompleteBash => Shell::Bash,
            Generate::CompleteZsh => Shell::Zsh,
            Generate::CompleteFish => Shell::Fish,
        };
        clap_complete::generate(shell, &mut command, "ringguard", &mut text);
        text
    }
}

/// One page, with the options of all subcommands.
fn man_page(mut command: clap::Command) -> Vec<u8> {
    command.build();
    let mut page = Vec::new();
    // Writing to a vector does not fail.
    let _ = Man::new(command.clone()).render(&mut page);
    for subcommand in command.get_subcommands().filter(|it| it.get_name() != "help") {
        let mut part = Vec::new();
        let name = subcommand.get_name().to_uppercase();
        let man = Man::new(subcommand.clone());
        let _ = man.render_description_section(&mut part);
        let _ = man.render_options_section(&mut part);
        let part = String::from_utf8_lossy(&part);
        let part = part.replace(".SH DESCRIPTION", &format!(".SH {name}"));
        page.extend(part.replace(".SH OPTIONS", ".SS Options").into_bytes());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_generated() {
        for what in Generate::value_variants() {
            let text = String::from_utf8(what.text()).unwrap();
            // (A man page escapes hyphens.)
            let text = text.replace("\\-", "-");
            assert!(text.contains("bypass-cache"), "{what:?}");
            assert!(text.contains("ringguard"), "{what:?}");
        }
    }
}
