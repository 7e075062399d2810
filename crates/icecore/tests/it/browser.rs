//! The dashboard in a real browser: Debian's Chromium is driven through every view by the suites of
//! `tests/browser`.
//!
//! Each suite makes its own sample vault, starts this program before it, and says in sentences what
//! it saw. What must be true stands there; here it is only made sure that each runs, that all of it
//! passed, and that there was something to pass.

use std::path::PathBuf;
use std::process::Stdio;

use crate::model::repository_root;
use crate::program::{bare, command_output, program};

/// Runs a suite and fails with its output.
fn suite(name: &str, least: usize) {
    let npm = repository_root().join("target/browser-npm");
    for (there, what) in [
        (npm.join("installed.json"), "playwright-core"),
        (PathBuf::from("/usr/bin/chromium"), "Chromium"),
    ] {
        assert!(
            there.exists(),
            "there is no browser to test with: {what} is missing ({}). `./test` installs it, which needs a network; \
             `./tests/browser/install` does only that",
            there.display()
        );
    }
    let out = repository_root().join("target/browser");
    std::fs::create_dir_all(&out).unwrap();
    let file = repository_root().join(format!("tests/browser/{name}.test.mjs"));
    let mut command = bare("node");
    command
        .args(["--test", "--test-reporter=tap"])
        .arg(&file)
        .env("ICECORE_PROGRAM", program())
        .env("ICECORE_BROWSER_NPM", &npm)
        .env("ICECORE_BROWSER_OUT", &out)
        .env("HOME", std::env::temp_dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for passed_on in ["ICECORE_DIST", "ICECORE_LOOKS"] {
        if let Some(value) = std::env::var_os(passed_on) {
            command.env(passed_on, value);
        }
    }
    let seen = command_output(command.output().unwrap());
    // Prints the figures.
    std::fs::write(out.join(format!("{name}.txt")), &seen.out).unwrap();
    assert_eq!(seen.code, Some(0), "{name}:\n{}\n{}", seen.out, seen.err);
    // `# pass 12`, at the end of the output.
    let count = |what: &str| -> usize {
        let line = seen.out.lines().rev().find_map(|line| line.strip_prefix(what));
        line.and_then(|count| count.trim().parse().ok())
            .unwrap_or_else(|| panic!("{name} does not say `{what}`:\n{}", seen.out))
    };
    assert!(
        count("# pass ") >= least,
        "{name} has {} tests, and had {least}:\n{}",
        count("# pass "),
        seen.out
    );
    assert_eq!(
        (count("# fail "), count("# skipped "), count("# cancelled ")),
        (0, 0, 0),
        "{name}:\n{}",
        seen.out
    );
}

#[test]
fn a_browser_logs_in_and_out_and_the_token_is_nowhere() {
    suite("login", 4);
}

#[test]
fn a_browser_sees_in_every_view_what_is_in_the_vault() {
    suite("views", 13);
}

#[test]
fn a_browser_runs_nothing_that_strangers_wrote_and_asks_nobody() {
    suite("hostile", 5);
}

#[test]
fn a_browser_can_be_used_by_screen_reader_and_keyboard_alone() {
    suite("access", 5);
}

#[test]
fn a_browser_shows_every_view_well_at_every_width_in_both_themes() {
    suite("looks", 4);
}

#[test]
fn a_browser_does_what_a_person_asks_and_shows_what_others_do() {
    suite("doing", 22);
}

#[test]
fn a_browser_has_little_to_fetch_and_little_to_do() {
    suite("measures", 3);
}

#[test]
fn a_browser_before_an_empty_vault_or_none_says_what_now() {
    suite("alone", 20);
}
