//! `ringreel completions` and `ringreel man`, generated from the command's definitions.

use super::Cli;
use super::output::line;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};

/// Arguments of `ringreel completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel completions bash > ~/.local/share/bash-completion/completions/ringreel
  ringreel completions zsh  > ~/.zfunc/_ringreel  (with fpath+=~/.zfunc before compinit)
  ringreel completions fish > ~/.config/fish/completions/ringreel.fish")]
pub struct Completions {
    /// Shell to generate completions for
    shell: Shell,
}

/// Arguments of `ringreel man`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  ringreel man | man -l -                  read the main page
  ringreel man -o ~/.local/share/man/man1  install all pages; then: man ringreel-verify")]
pub struct ManPages {
    /// Write the pages of all subcommands to this directory
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints the completion script.
pub fn completions(options: &Completions) -> anyhow::Result<i32> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Cli::command(), "ringreel", &mut script);
    stdout().lock().write_all(&script)?;
    Ok(0)
}

/// Prints the main page, or writes all pages.
pub fn man(options: &ManPages) -> anyhow::Result<i32> {
    let mut command = crate::command();
    command.build();
    let Some(dir) = &options.output else {
        stdout().lock().write_all(page(&command)?.1.as_bytes())?;
        return Ok(0);
    };
    std::fs::create_dir_all(dir)?;
    write_pages(&command, dir)?;
    line(&format!("written to {}", dir.display()))?;
    Ok(0)
}

/// Returns the file name and the text of a command's page. Its examples keep their line breaks.
fn page(command: &clap::Command) -> io::Result<(String, String)> {
    let man = clap_mangen::Man::new(command.clone());
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let page = match text.split_once(".SH EXTRA\n") {
        None => text.into_owned(),
        Some((before, extra)) => {
            let (extra, after) = extra
                .split_once(".SH ")
                .map_or((extra, String::new()), |(extra, after)| (extra, format!(".SH {after}")));
            format!("{before}.SH EXAMPLES\n.nf\n{}\n.fi\n{after}", extra.trim_end().trim_start_matches("Examples:\n"))
        }
    };
    Ok((man.get_filename(), page))
}

fn write_pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    let (name, page) = page(command)?;
    std::fs::write(dir.join(name), page)?;
    command.get_subcommands().try_for_each(|command| write_pages(command, dir))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_subcommand_has_a_page_and_examples() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = crate::command();
        command.build();
        write_pages(&command, dir.path()).unwrap();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            let page = std::fs::read_to_string(dir.path().join(format!("ringreel-{name}.1"))).unwrap();
            assert!(page.contains(name) && page.contains(".SH EXAMPLES\n.nf\n"), "{name}");
            let help = subcommand.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("\n  ringreel {name}");
            assert!(help.starts_with("Examples:") && help.contains(&example), "{name} --help has no example");
        }
    }
}
