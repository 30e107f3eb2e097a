//! `ringreel completions` and `ringreel man`: for a shell and for `man`, made of the command's own definitions.

use super::Cli;
use super::output::line;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::{Write, stdout};
use std::path::PathBuf;

/// What `completions` takes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel completions bash > ~/.local/share/bash-completion/completions/ringreel
  ringreel completions zsh  > ~/.zfunc/_ringreel         (with fpath+=~/.zfunc before compinit)
  ringreel completions fish > ~/.config/fish/completions/ringreel.fish")]
pub struct Completions {
    /// For which shell
    shell: Shell,
}

/// What `man` takes.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel man | man -l -                               the page about all of it
  ringreel man -o ~/.local/share/man/man1               every page; then: man ringreel-verify")]
pub struct Man {
    /// Write the pages of all subcommands into this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints what the shell is to read.
pub fn completions(options: &Completions) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "ringreel", &mut script);
    stdout().lock().write_all(&script)?;
    Ok(0)
}

/// Prints the page of the command, or writes all pages.
pub fn man(options: &Man) -> anyhow::Result<i32> {
    let command = Cli::command().disable_help_subcommand(true);
    let Some(dir) = &options.output else {
        clap_mangen::Man::new(command).render(&mut stdout().lock())?;
        return Ok(0);
    };
    std::fs::create_dir_all(dir)?;
    clap_mangen::generate_to(command, dir)?;
    line(&format!("written to {}", dir.display()))?;
    Ok(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_and_examples() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        clap_mangen::generate_to(command.clone(), dir.path()).unwrap();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            let page = std::fs::read_to_string(dir.path().join(format!("ringreel-{name}.1"))).unwrap();
            assert!(page.contains(name) && page.contains("Examples:"), "{name}");
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("\n  ringreel {name}");
            assert!(help.starts_with("Examples:") && help.contains(&example), "{name} --help has no example");
        }
    }
}
