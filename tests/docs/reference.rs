//! docs/reference/: the page about the configuration lists every key with its default, and the page about the
//! command line is what the code gives. After a change that is meant, write it with
//! `INSTA_UPDATE=always cargo test --test main docs::reference::`.

use clap::{Arg, ArgAction, Command};
use ringreel::config::KEYS;
use std::fmt::Write;
use std::{env, fs};
use testkit::workspace;

const COMMAND_LINE: &str = "\
# Command line

`ringreel COMMAND --help` prints the same text. Results go to stdout, everything else to stderr. Exit status: 0 on success, 1 if
damage was found or something failed, 2 if the arguments make no sense. This page is generated from the definitions of the
command.
";

/// Compares a page with what the code gives, or writes it.
fn check(path: &str, expected: &str) {
    let file = workspace().join(path);
    if env::var("INSTA_UPDATE").as_deref() == Ok("always") {
        fs::write(&file, expected).unwrap();
    }
    let found = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is out of date: run INSTA_UPDATE=always cargo test --test main docs::reference::"
    );
}

/// Text in the cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ").replace('<', "&lt;")
}

#[test]
fn configuration_page_lists_each_key_with_its_default() {
    let page = fs::read_to_string(workspace().join("docs/reference/configuration.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let found: Vec<_> = rows
        .map(|(key, rest)| {
            let (default, meaning) = rest.split_once(" | ").unwrap();
            assert!(meaning.trim_end_matches('|').trim().len() > 10, "{key} has no meaning");
            (key, default.to_owned())
        })
        .collect();
    assert_eq!(found, KEYS.map(|(key, default)| (key, cell(default))));
}

/// An option or argument as `--help` shows it: names, value, and meaning with default and possible values.
fn row(arg: &Arg) -> (String, String) {
    let value = arg.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let mut name = Vec::new();
    name.extend(arg.get_short().map(|short| format!("-{short}")));
    name.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut name = name.join(", ");
    if takes_value {
        let value = if arg.is_positional() { format!("<{value}>") } else { format!(" <{value}>") };
        name.push_str(&value);
    }
    let mut help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if takes_value && !defaults.is_empty() {
        write!(help, " [default: {}]", defaults.join(" ")).unwrap();
    }
    if takes_value {
        let possible: Vec<_> =
            arg.get_possible_values().iter().filter(|value| !value.is_hide_set()).map(choice).collect();
        if !possible.is_empty() {
            write!(help, " [possible values: {}]", possible.join(", ")).unwrap();
        }
    }
    (name, help)
}

/// A possible value, and its meaning where it has one.
fn choice(value: &clap::builder::PossibleValue) -> String {
    match value.get_help() {
        Some(help) => format!("{} ({help})", value.get_name()),
        None => value.get_name().to_owned(),
    }
}

fn write_command(page: &mut String, name: &str, command: &mut Command) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.render_usage().to_string();
    write!(page, "\n## {name}\n\n{about}.\n\n```text\n{usage}\n```\n\n| | |\n|---|---|\n").unwrap();
    for arg in
        command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "verbose" && arg.get_id() != "help")
    {
        let (option, help) = row(arg);
        assert!(!help.is_empty(), "{name} {option} has no help");
        writeln!(page, "| `{option}` | {} |", cell(&help)).unwrap();
    }
    if let Some(text) = command.get_after_help() {
        write!(page, "\n```text\n{}\n```\n", text.to_string().trim_end()).unwrap();
    }
    let nested: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for inner in nested {
        let command = command.find_subcommand_mut(&inner).unwrap();
        write_command(page, &format!("{name} {inner}"), command);
    }
}

#[test]
fn command_line_page_is_what_the_command_defines() {
    let mut command = ringreel_cli::command();
    command.build();
    let mut page = COMMAND_LINE.to_owned();
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    for name in names.iter().filter(|name| *name != "help") {
        let command = command.find_subcommand_mut(name).unwrap();
        write_command(&mut page, &format!("ringreel {name}"), command);
    }
    check("docs/reference/command-line.md", &page);
}
