//! What `icecore --help`, `icecore help` and a wrong call print.
//!
//! The groups and the first screen name commands only. Their descriptions are those of clap, so a
//! list can never differ from the help of the command itself.

use std::ffi::OsString;

use anyhow::Result;
use clap::builder::StyledStr;
use clap::error::ErrorKind;
use clap::{Args, Command, CommandFactory as _};
use serde_json::{Value, json};

use super::Cli;
use super::output::{BOLD, CYAN, DIM, Output};
use crate::error::{AppError, Exit};

/// The exit codes, as `icecore help --all` and the manual page list them.
pub const EXIT_CODES: &str = "\
Exit codes: 0 ok, 1 failure, 2 usage, 3 not found, 4 conflict, 5 not allowed, 6 damaged vault,
75 try later.";

/// The commands of the first screen: those of a normal day.
const DAILY: &[&str] = &[
    "init",
    "install",
    "import",
    "status",
    "remember",
    "log",
    "search",
    "why",
    "events",
    "commitments",
    "close",
    "doctor",
];

const EXAMPLES: &[&str] =
    &["icecore remember \"Send the offer to Client X\" --due friday", "icecore search the offer"];

/// Every command, in the group under which `icecore help --all` lists it.
pub const GROUPS: &[(&str, &[&str])] = &[
    (
        "Memory",
        &[
            "status",
            "remember",
            "log",
            "events",
            "commitments",
            "conflicts",
            "show",
            "close",
            "confirm",
            "retract",
            "quarantine",
        ],
    ),
    (
        "Conversations and capture",
        &["import", "message", "session", "save-state", "conversation", "pause", "resume"],
    ),
    ("Search and history", &["search", "zoom", "why", "insights"]),
    (
        "Summaries and packs",
        &["rollup", "consolidate", "summary", "pack", "triggers", "jobs", "daemon"],
    ),
    (
        "Clients",
        &[
            "install",
            "uninstall",
            "mcp",
            "hook",
            "memory-tool",
            "serve",
            "dashboard",
            "chat",
            "model",
        ],
    ),
    (
        "Vault maintenance",
        &[
            "init", "verify", "doctor", "snapshot", "undo", "forget", "compact", "prune",
            "migrate", "merge", "vault",
        ],
    ),
    ("Database", &["db"]),
    ("Program", &["demo", "self", "help"]),
];

/// Where commands went that were at the top level once.
const MOVED: &[(&str, &str)] = &[
    ("token", "db token"),
    ("space", "db space"),
    ("audit", "db audit"),
    ("trends", "insights trends"),
    ("lookback", "insights lookback"),
    ("similar", "insights similar"),
    ("schedule", "jobs schedule"),
    ("calendar", "jobs calendar"),
    ("runs", "jobs runs"),
    ("reindex", "vault reindex"),
    ("export", "vault export"),
    ("backup", "vault backup"),
    ("config", "vault config"),
    ("review", "summary review"),
    ("mark", "summary mark"),
    ("completions", "self completions"),
    ("man", "self man"),
    ("injected", "hook log"),
];

#[derive(Debug, Args)]
pub struct HelpArgs {
    /// List every command, in groups
    #[arg(long, conflicts_with = "command")]
    all: bool,
    /// The command, such as `remember` or `db token`
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// The command line with everything that help shows.
fn whole() -> Command {
    let command = Cli::command();
    let screen = first_screen(&command);
    command.override_help(StyledStr::from(screen))
}

/// The answer to a command line that could not be parsed, or that asks for help.
pub fn explain(words: &[OsString], error: clap::Error) -> clap::Error {
    let first = super::command_words(words).next();
    match (error.kind(), first) {
        (ErrorKind::InvalidSubcommand, Some(name)) => match moved_note(name) {
            Some(hint) => Cli::command().error(ErrorKind::InvalidSubcommand, hint),
            None => error,
        },
        (ErrorKind::MissingRequiredArgument | ErrorKind::UnknownArgument, Some("migrate")) => {
            let hint = "`icecore migrate DIR` takes over a memory folder; the tables of a database are now migrated by \
                        `icecore db migrate`";
            Cli::command().error(error.kind(), hint)
        }
        (ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, None) => {
            whole().try_get_matches_from(words).err().unwrap_or(error)
        }
        _ => error,
    }
}

/// Says where a command went, if it has moved.
fn moved_note(name: &str) -> Option<String> {
    let (_, place) = MOVED.iter().find(|(old, _)| *old == name)?;
    Some(format!("`icecore {name}` is now `icecore {place}`"))
}

fn about(command: &Command) -> String {
    command.get_about().map_or(String::new(), ToString::to_string)
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

/// The width of the names of commands in a list.
const NAME_WIDTH: usize = 12;

fn command_row(command: &Command, name: &str) -> String {
    let about = command.find_subcommand(name).map_or(String::new(), about);
    format!("  {CYAN}{name:<NAME_WIDTH$}{CYAN:#}  {about}\n")
}

/// What `icecore` and `icecore --help` print: one screen.
fn first_screen(command: &Command) -> String {
    let mut text = format!(
        "{}\n\n{BOLD}Usage:{BOLD:#} icecore [OPTIONS] COMMAND\n\n{BOLD}Commands:{BOLD:#}\n",
        about(command)
    );
    DAILY.iter().for_each(|name| text.push_str(&command_row(command, name)));
    text.push_str(&format!("\n{BOLD}Examples:{BOLD:#}\n"));
    EXAMPLES.iter().for_each(|example| text.push_str(&format!("  {example}\n")));
    text.push_str(&format!(
        "\n{CYAN}icecore help COMMAND{CYAN:#} explains one; {CYAN}icecore help --all{CYAN:#} lists all"
    ));
    text
}

/// What `icecore help --all` prints.
fn all_commands(command: &Command) -> String {
    let mut text =
        format!("{}\n\n{BOLD}Usage:{BOLD:#} icecore [OPTIONS] COMMAND\n", about(command));
    for (title, names) in GROUPS {
        text.push_str(&format!("\n{BOLD}{title}:{BOLD:#}\n"));
        for name in *names {
            text.push_str(&command_row(command, name));
            let beneath: Vec<&str> = command
                .find_subcommand(name)
                .into_iter()
                .flat_map(visible)
                .map(Command::get_name)
                .collect();
            if !beneath.is_empty() {
                text.push_str(&format!(
                    "  {:NAME_WIDTH$}  {DIM}{}{DIM:#}\n",
                    "",
                    beneath.join(", ")
                ));
            }
        }
    }
    text.push_str(&format!("\n{BOLD}Options of every command:{BOLD:#}\n"));
    for option in command.get_arguments().filter(|option| !option.is_positional()) {
        let short = option.get_short().map_or("    ".into(), |short| format!("-{short}, "));
        let mut name = format!("{short}--{}", option.get_long().unwrap_or_default());
        if option.get_action().takes_values()
            && let Some([value, ..]) = option.get_value_names()
        {
            name.push_str(&format!(" <{value}>"));
        }
        let help = option.get_help().map_or(String::new(), ToString::to_string);
        text.push_str(&format!("  {CYAN}{name:<19}{CYAN:#}  {help}\n"));
    }
    text.push_str(&format!("\n{EXIT_CODES}\n"));
    text
}

fn tree(command: &Command) -> Value {
    let mut told = json!({ "name": command.get_name(), "about": about(command) });
    let beneath: Vec<Value> = visible(command).map(tree).collect();
    if !beneath.is_empty() {
        told["commands"] = beneath.into();
    }
    told
}

fn groups(command: &Command) -> Value {
    let commands = |names: &[&str]| -> Vec<Value> {
        names.iter().filter_map(|name| command.find_subcommand(name)).map(tree).collect()
    };
    let groups: Vec<Value> = GROUPS
        .iter()
        .map(|(title, names)| json!({ "title": title, "commands": commands(names) }))
        .collect();
    json!({ "groups": groups })
}

/// The error for a command that does not exist.
pub fn no_command(names: &[String]) -> AppError {
    let hint = names.first().and_then(|name| moved_note(name)).unwrap_or_else(|| {
        format!(
            "there is no command `{}`; `icecore help --all` lists all of them",
            icecore_domain::sanitize::one_line(&names.join(" "))
        )
    });
    AppError::new(Exit::NotFound, hint)
}

/// Runs `icecore help`.
pub fn help(help: &HelpArgs, out: &mut Output) -> Result<()> {
    let mut command = whole();
    command.build();
    if help.all {
        if out.is_json() {
            return out.json(&groups(&command));
        }
        return out.raw(&all_commands(&command));
    }
    let mut at = &mut command;
    for name in &help.command {
        at = at.find_subcommand_mut(name).ok_or_else(|| no_command(&help.command))?;
    }
    let text = at.render_long_help().ansi().to_string();
    super::print_text(text.trim_end(), out)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn build_command() -> Command {
        let mut command = Cli::command();
        command.build();
        command
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = build_command();
        let mut known: BTreeMap<&str, usize> =
            visible(&command).map(|one| (one.get_name(), 0)).collect();
        for name in GROUPS.iter().flat_map(|(_, names)| *names) {
            *known.entry(name).or_insert(10) += 1;
        }
        let wrong: Vec<_> = known.iter().filter(|(_, times)| **times != 1).collect();
        assert!(wrong.is_empty(), "in no group, in several, or no command: {wrong:?}");
    }

    #[test]
    fn descriptions_fit_a_line_and_help_fits_a_screen() {
        let command = build_command();
        for one in visible(&command) {
            let about = about(one);
            assert!(!about.is_empty() && about.len() <= 64, "{}: {about}", one.get_name());
        }
        let screen = StyledStr::from(first_screen(&command)).to_string();
        assert!(screen.lines().count() <= 23, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
        assert!(DAILY.iter().all(|name| command.find_subcommand(name).is_some()));
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &Command, path: &str) {
            for one in visible(command) {
                let path = format!("{path} {}", one.get_name());
                let after = one.get_after_help().map_or(String::new(), ToString::to_string);
                if one.has_subcommands() && after.is_empty() {
                    check(one, &path);
                    continue;
                }
                assert!(after.contains("Example"), "`{path} --help` has no example");
                check(one, &path);
            }
        }
        check(&build_command(), "icecore");
    }

    /// The calls of icecore in a line of examples: without pipes, redirections and comments.
    fn calls(line: &str) -> Vec<Vec<String>> {
        let (mut calls, mut words, mut word) = (Vec::new(), Vec::new(), String::new());
        let (mut quote, mut blanks) = (None, 0);
        for c in line.trim().chars().chain([' ']) {
            blanks = if c == ' ' && quote.is_none() { blanks + 1 } else { 0 };
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                (None, ' ') if !word.is_empty() => words.push(std::mem::take(&mut word)),
                (None, ' ') if blanks > 1 && words.first().is_some_and(|word| word != "echo") => {
                    break;
                }
                (None, ' ') => {}
                (_, c) => word.push(c),
            }
        }
        for call in words.split(|word| ["|", "&&", ">", "--"].contains(&word.as_str())) {
            if call.first().is_some_and(|word| word == "icecore") {
                calls.push(call.to_vec());
            }
        }
        calls
    }

    #[test]
    fn every_example_is_a_call_that_is_understood() {
        fn check(command: &Command, seen: &mut usize) {
            let after = command.get_after_help().map_or(String::new(), ToString::to_string);
            for line in after.lines().filter(|line| line.starts_with("  ")) {
                for call in calls(line) {
                    *seen += 1;
                    let words = call.iter().map(OsString::from).collect();
                    let parsed = Cli::parse_words(super::super::strip_copied_bullets(words));
                    assert!(parsed.is_ok(), "{line}\n{call:?}\n{}", parsed.unwrap_err());
                }
            }
            command.get_subcommands().for_each(|one| check(one, seen));
        }
        let mut seen = 0;
        check(&build_command(), &mut seen);
        EXAMPLES.iter().for_each(|line| {
            calls(line).iter().for_each(|call| drop(Cli::parse_words(call).unwrap()))
        });
        assert!(seen > 150, "{seen}");
    }

    #[test]
    fn a_command_that_moved_is_named_with_its_place() {
        let command = build_command();
        for (old, new) in MOVED {
            assert!(command.find_subcommand(old).is_none(), "{old} is still there");
            let at = new.split(' ').try_fold(&command, |at, name| at.find_subcommand(name));
            assert!(at.is_some(), "there is no {new}");
            let words = ["icecore", "--json", old, "--limit", "20"];
            let error = Cli::parse_words(words).expect_err(old);
            assert_eq!(error.exit_code(), 2);
            let said = error.to_string();
            assert!(said.contains(&format!("`icecore {old}` is now `icecore {new}`")), "{said}");
        }
    }

    #[test]
    fn tables_of_a_database_are_migrated_elsewhere() {
        for words in [&["icecore", "migrate"][..], &["icecore", "migrate", "--create-login", "x"]] {
            let said = Cli::parse_words(words).expect_err("a folder is missing").to_string();
            assert!(said.contains("icecore db migrate"), "{said}");
        }
    }
}
