//! The command line's manners: what a person types and what comes back.

use std::fs;
use std::process::Stdio;

use crate::program::{NOW, Vault, bare, program, said};

// L9, L3: a newcomer's first two minutes
#[test]
fn a_newcomer_gets_from_nothing_to_a_closed_commitment() {
    let home = tempfile::TempDir::new().unwrap();
    let call = |arguments: &[&str]| {
        let said = said(bare(program()).env("HOME", home.path()).current_dir(home.path()).args(arguments).output().unwrap());
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.out
    };
    assert!(call(&["init"]).contains(".local/share/icecore"));
    let remembered = call(&["remember", "Send the offer to Client X", "--due", "friday"]);
    let id = remembered.split_whitespace().next().unwrap().to_owned();
    assert!(id.starts_with("EVT-"), "{remembered}");
    assert!(call(&["status"]).contains("Send the offer to Client X"));
    assert!(call(&["commitments"]).contains(&id));
    assert!(call(&["close", &id]).contains("closed"));
    assert!(!call(&["commitments"]).contains(&id));
    assert!(call(&["verify"]).contains("everything whole"));
    assert!(home.path().join(".local/share/icecore/memory/ledger.jsonl").exists());
}

/// Runs a command in a furnished vault and compares code and complaint.
fn check(arguments: &[&str], code: i32, complaint: &str) {
    let vault = furnished();
    let said = vault.run(arguments);
    assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
    assert!(said.err.contains(complaint), "{arguments:?}: {said:?} has no {complaint}");
    // Nothing was written, and the same with --json is one JSON object on standard error.
    assert_eq!(vault.contents().len(), 4, "{arguments:?}");
    let json = vault.run(&[arguments, &["--json"]].concat());
    assert_eq!((json.code, json.out.as_str()), (Some(code), ""), "{arguments:?}");
    let error: serde_json::Value = serde_json::from_str(&json.err).unwrap_or_else(|error| panic!("{error}: {json:?}"));
    assert_eq!(error["error"]["exit"], code);
}

fn furnished() -> Vault {
    let vault = Vault::new();
    vault.remember(&["The budget is 500 EUR", "--entity", "apollo"]);
    vault.remember(&["The budget is 600 EUR", "--entity", "apollo", "--supersedes", "20260213-1"]);
    let offer = vault.remember(&["Send the offer"]);
    vault.ok(&["close", &offer]);
    vault
}

// L2, L3: each a clear error
#[test]
fn what_cannot_be_done_is_refused_with_a_reason() {
    check(&["show", "EVT-20260213-099"], 3, "there is no event EVT-20260213-099");
    check(&["show", "rubbish"], 2, "ids look like EVT-20260213-001");
    check(&["close", "20260213-1"], 4, "was already replaced by EVT-20260213-002");
    check(&["close", "20260213-2"], 4, "only commitments are closed");
    check(&["close", "20260213-3"], 4, "was already closed by EVT-20260213-004");
    check(&["confirm", "20260213-4"], 4, "is not a statement");
    check(&["confirm", "20260213-99"], 3, "there is no event");
    check(&["remember", "x", "--supersedes", "20260213-1"], 4, "act on EVT-20260213-002 instead");
    check(&["remember", "x", "--supersedes", "20260213-5"], 3, "there is no event");
    check(&["remember", "x", "--related", "20260213-5"], 3, "there is no event");
    check(&["remember", ""], 2, "the text is empty");
    check(&["remember", " \t\n"], 2, "the text is empty");
    check(&["remember", "x", "--type", "insight"], 2, "choose one of fact, decision");
    check(&["remember", "x", "--priority", "P9"], 2, "choose one of P0, P1, P2, P3");
    check(&["remember", "x", "--due", "someday"], 2, "is not a day");
    check(&["remember", "x", "--type", "fact", "--due", "friday"], 2, "only a commitment is due");
    check(&["remember", "x", "--scope", "galaxy"], 2, "everywhere, project:NAME");
    check(&["remember", "x", "--entity", "???"], 2, "no letter and no digit");
    check(&["remember", "x", "-"], 2, "stands alone");
    check(&["events", "--since", "rubbish"], 2, "is not a day");
    check(&["events", "--now", "yesterday"], 2, "is not a moment");
    check(&["events", "--now=-000001-01-01T00:00:00Z"], 2, "is not a moment");
    check(&["undo", "--to", "00000000"], 3, "there is no snapshot");
    check(&["man", "nonsense"], 3, "there is no command");
    check(&["log", " "], 2, "the text is empty");
}

// L2
#[test]
fn long_and_odd_texts_have_a_defined_result() {
    let vault = Vault::new();
    let megabyte = vec![b'x'; 1 << 20];
    let refused = vault.feed(&["remember", "-"], &megabyte);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("an event at most 65536"), "{refused:?}");
    assert_eq!(vault.feed(&["remember", "-"], b"\xff\xfe").code, Some(2));
    assert_eq!(vault.feed(&["remember", "-"], &vec![b'x'; 9 << 20]).code, Some(2));
    assert_eq!(vault.feed(&["log", "-"], &vec![b'x'; 2 << 20]).code, Some(2));
    assert!(vault.contents().is_empty());
    assert_eq!(vault.feed(&["remember", "-"], &vec![b'x'; 65_536]).code, Some(0));
    assert_eq!(vault.feed(&["log", "-"], &megabyte).code, Some(0));

    let odd = vault.run(&["remember", "a\u{1b}[31mred\u{7} \u{202e}txt.exe"]);
    assert_eq!(odd.code, Some(0));
    assert!(odd.err.contains("3 control characters were taken out"), "{odd:?}");
    for text in ["🎯 ünïcode 漢字", "\"quotes\" and \\ back", "שלום", "line\nbreak", "-5 degrees"] {
        vault.ok(&["remember", "--", text]);
        assert_eq!(vault.contents().last().unwrap(), text);
    }
    let shown = vault.ok(&["events", "--color", "always"]);
    assert!(!shown.contains('\u{202e}') && !shown.contains("\u{1b}[31mred"), "{shown:?}");
    // What a stranger wrote into the file by hand cannot steer a terminal either.
    let ledger = vault.read("memory/ledger.jsonl");
    vault.write("memory/ledger.jsonl", ledger.replace("-5 degrees", "\\u001b]0;owned\\u0007"));
    assert!(vault.ok(&["events"]).contains("\\u{1b}]0;owned\\u{7}"));
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_one_is() {
    let vault = furnished();
    for command in ["events --all", "status", "verify", "events --json", "--help", "man", "completions bash", "demo"] {
        let script = format!("'{}' --vault '{}' --now {NOW} {command} | head -1", program(), vault.root.display());
        let said = said(bare("sh").env("TMPDIR", vault.root.parent().unwrap()).args(["-c", &script]).output().unwrap());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{command}: {said:?}");
        assert_eq!(said.out.lines().count(), 1, "{command}: {said:?}");
    }
    let script = format!("'{}' --vault '{}' --now {NOW} events > /dev/full", program(), vault.root.display());
    let said = said(bare("sh").args(["-c", &script]).output().unwrap());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("the output could not be written"), "{said:?}");
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    let vault = furnished();
    let root = vault.root.to_str().unwrap();
    let call = |arguments: &[&str]| said(bare(program()).args(arguments).output().unwrap());
    let before = call(&["--vault", root, "--json", "events"]);
    let after = call(&["events", "--json", "--vault", root]);
    let environment = said(bare(program()).env("ICECORE_VAULT", root).args(["events", "--json"]).output().unwrap());
    let inside = said(bare(program()).current_dir(vault.path("memory")).args(["events", "--json"]).output().unwrap());
    assert_eq!(before.code, Some(0), "{before:?}");
    for other in [after, environment, inside] {
        assert_eq!(other.out, before.out);
    }
    let nowhere = said(bare(program()).current_dir("/").args(["events"]).output().unwrap());
    assert_eq!(nowhere.code, Some(3), "{nowhere:?}");
    assert!(nowhere.err.contains("`icecore init` makes one"), "{nowhere:?}");
    // A vault that lost its settings is not passed over for another one.
    fs::remove_file(vault.path("icecore.toml")).unwrap();
    let headless = said(bare(program()).current_dir(vault.path("memory")).args(["remember", "x"]).output().unwrap());
    assert_eq!(headless.code, Some(6), "{headless:?}");
    let again = said(bare(program()).args(["init", root, "--tz", "UTC"]).output().unwrap());
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(vault.contents().len(), 4);
}

#[test]
fn init_respects_what_is_there() {
    let vault = furnished();
    let again = vault.run(&["init"]);
    assert_eq!(again.code, Some(4), "{again:?}");
    assert!(again.err.contains("is a vault already"), "{again:?}");
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("thesis.tex"), "mine").unwrap();
    fs::write(folder.path().join(".gitignore"), "mine too\n").unwrap();
    let made = said(bare(program()).args(["init", folder.path().to_str().unwrap(), "--tz", "Asia/Kathmandu", "--json"]).output().unwrap());
    assert_eq!(made.json()["zone"], "Asia/Kathmandu", "{made:?}");
    assert_eq!(fs::read_to_string(folder.path().join(".gitignore")).unwrap(), "mine too\n");
    let tracked = bare("git").current_dir(folder.path()).args(["ls-files"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&tracked.stdout).contains("thesis.tex"));
    let bad = said(bare(program()).args(["init", "/tmp/never", "--tz", "Mars/Olympus"]).output().unwrap());
    assert_eq!(bad.code, Some(2), "{bad:?}");
    // TZ is the system's word for it.
    let folder = tempfile::TempDir::new().unwrap();
    let zoned =
        said(bare(program()).env("TZ", "America/New_York").args(["init", folder.path().to_str().unwrap(), "--json"]).output().unwrap());
    assert_eq!(zoned.json()["zone"], "America/New_York", "{zoned:?}");
}

// L16
#[test]
fn without_git_everything_but_snapshots_works_and_says_so() {
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().join("vault");
    let call = |arguments: &[&str]| {
        said(
            bare(program())
                .env("PATH", "/nonexistent")
                .args(["--vault", root.to_str().unwrap(), "--now", NOW])
                .args(arguments)
                .output()
                .unwrap(),
        )
    };
    let made = call(&["init", "--tz", "UTC"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert!(made.err.contains("git is not installed"), "{made:?}");
    for command in [&["remember", "one"][..], &["status"], &["verify"], &["doctor", "--fix"], &["reindex"], &["events"]] {
        assert_eq!(call(command).code, Some(0), "{command:?}");
    }
    for command in ["snapshot", "undo"] {
        let said = call(&[command]);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(said.err.contains("snapshots"), "{said:?}");
    }
}

// A hook of another project runs us with its own git's environment
#[test]
fn the_environment_does_not_redirect_git() {
    let vault = furnished();
    let other = tempfile::TempDir::new().unwrap();
    assert!(bare("git").current_dir(other.path()).args(["init", "-q", "."]).status().unwrap().success());
    let git = other.path().join(".git");
    let said = said(
        vault
            .command(&["snapshot"])
            .env("GIT_DIR", &git)
            .env("GIT_WORK_TREE", other.path())
            .env("GIT_INDEX_FILE", git.join("index"))
            .env("GIT_EXTERNAL_DIFF", "false")
            .output()
            .unwrap(),
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(fs::read_dir(git.join("refs/heads")).unwrap().count(), 0);
    assert!(vault.ok(&["snapshot", "--list"]).lines().count() >= 2);
}

// L16
#[test]
fn undo_is_one_command_and_a_second_one_comes_back() {
    let vault = furnished();
    vault.ok(&["snapshot", "--note", "good"]);
    vault.remember(&["a mistake"]);
    assert!(vault.ok(&["undo"]).contains("retracted EVT-20260213-005"));
    assert!(!vault.ok(&["events"]).contains("a mistake"));
    vault.ok(&["undo"]);
    assert!(vault.ok(&["events"]).contains("a mistake"));
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

// L12: what an editor lost is missed, and comes back from a snapshot
#[test]
fn doctor_brings_lost_lines_back() {
    let vault = furnished();
    vault.ok(&["snapshot", "-q"]);
    let whole = vault.read("memory/ledger.jsonl");
    vault.write("memory/ledger.jsonl", whole.lines().take(2).map(|line| format!("{line}\n")).collect::<String>());
    let warned = vault.run(&["remember", "in between"]);
    assert_eq!(warned.code, Some(0));
    assert!(warned.err.contains("EVT-20260213-003 and 1 more no longer in memory/ledger.jsonl"), "{warned:?}");
    assert!(warned.out.starts_with("EVT-20260213-005"), "{warned:?}");
    assert_eq!(vault.run(&["verify"]).code, Some(6));
    assert!(vault.ok(&["status"]).contains("doctor --fix"));
    let fixed = vault.ok(&["doctor", "--fix"]);
    assert!(fixed.contains("brought EVT-20260213-003 back"), "{fixed}");
    assert_eq!(vault.contents().len(), 5);
    assert!(vault.read("memory/ledger.jsonl").starts_with(&whole));
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

// L12: bad lines are told by every reader, set aside by doctor, and never silently skipped
#[test]
fn a_broken_line_is_told_and_set_aside() {
    let vault = furnished();
    let text = vault.read("memory/ledger.jsonl");
    vault.write("memory/ledger.jsonl", text.replacen('\n', "\n{broken\n", 1));
    for command in ["events", "commitments", "remember x", "show 20260213-1"] {
        let said = vault.run(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.err.contains("memory/ledger.jsonl:2 is not a JSON object"), "{command}: {said:?}");
    }
    assert!(vault.ok(&["status"]).contains("line 2"));
    assert_eq!(vault.run(&["doctor"]).code, Some(6));
    let fixed = vault.ok(&["doctor", "--fix"]);
    assert!(fixed.contains("set line 2 of memory/ledger.jsonl aside in .icecore/quarantine/"), "{fixed}");
    assert_eq!(vault.run(&["events"]).err, "");
}

#[test]
fn settings_are_shown_checked_and_explained() {
    let vault = furnished();
    assert!(vault.ok(&["config", "show"]).contains("zone = \"Europe/Berlin\""));
    assert_eq!(vault.json(&["config", "check"])["ok"], true);
    let config = vault.read("icecore.toml");
    vault.write("icecore.toml", format!("{config}\n[status]\ncommitment_shown = 3\n"));
    let said = vault.run(&["config", "check"]);
    assert_eq!(said.code, Some(6), "{said:?}");
    assert!(said.err.contains("did you mean `status.commitments_shown`?"), "{said:?}");
    vault.write("icecore.toml", "format = 99\n");
    assert_eq!(vault.run(&["status"]).code, Some(5));
    vault.write("icecore.toml", "zone = ");
    assert_eq!(vault.run(&["status"]).code, Some(6));
    // What mends a vault works without its settings, and brings them back.
    let undone = vault.run(&["undo"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert!(undone.err.contains("The defaults are used"), "{undone:?}");
    assert!(vault.ok(&["config", "show"]).contains("Europe/Berlin"));
}

#[test]
fn colours_are_for_terminals_and_can_be_turned_off() {
    let vault = furnished();
    assert!(!vault.ok(&["events"]).contains('\u{1b}'));
    assert!(vault.ok(&["events", "--color", "always"]).contains('\u{1b}'));
    // On a terminal, as `script` makes one.
    let on_terminal = |variables: &[(&str, &str)]| {
        let command = format!("{} --vault {} --now {NOW} status", program(), vault.root.display());
        let mut script = bare("script");
        script.env("TERM", "xterm-256color").envs(variables.iter().copied()).args(["-qec", &command, "/dev/null"]).stdin(Stdio::null());
        String::from_utf8_lossy(&script.output().unwrap().stdout).into_owned()
    };
    assert!(on_terminal(&[]).contains("\u{1b}["));
    assert!(!on_terminal(&[("NO_COLOR", "1")]).contains("\u{1b}["));
}

#[test]
fn completions_and_manual_pages_are_there_for_every_shell_and_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = said(bare(program()).args(["completions", shell]).output().unwrap());
        assert!(said.out.contains("remember"), "{shell}");
    }
    let page = said(bare(program()).args(["man"]).output().unwrap()).out;
    assert!(page.contains(".TH icecore 1"), "{page}");
    assert!(said(bare(program()).args(["man", "remember"]).output().unwrap()).out.contains("supersedes"));
}

// `--json` on every command
#[test]
fn every_command_speaks_json() {
    let vault = furnished();
    vault.ok(&["snapshot", "-q"]);
    let folder = tempfile::TempDir::new().unwrap();
    for command in [
        "status",
        "log x",
        "remember x",
        "confirm 20260213-2",
        "retract 20260213-2",
        "events",
        "events --all",
        "commitments",
        "conflicts",
        "show 20260213-1",
        "why 20260213-1",
        "verify",
        "doctor",
        "doctor --fix",
        "reindex",
        "config show",
        "config check",
        "snapshot",
        "snapshot --list",
        "undo",
        "demo",
        "completions bash",
        "man",
        "man remember",
    ] {
        let mut call = vault.command(&[&command.split(' ').collect::<Vec<_>>()[..], &["--json"]].concat());
        let said = said(call.env("TMPDIR", folder.path()).output().unwrap());
        assert_eq!(said.code, Some(0), "{command}: {said:?}");
        assert!(said.json().is_object(), "{command}: {said:?}");
        assert_eq!(said.out.lines().count(), 1, "{command}");
    }
}

/// The texts a person reads first; a change in them is a change to look at.
#[test]
fn the_first_screens_are_as_reviewed() {
    let help = said(bare(program()).env("COLUMNS", "100").arg("--help").output().unwrap());
    insta::assert_snapshot!("help", help.out);
    let mut vault = Vault::new();
    insta::with_settings!({ filters => [(vault.root.to_str().unwrap(), "VAULT")] }, {
        insta::assert_snapshot!("status_empty", vault.ok(&["status"]));
        vault.at("2026-01-05T08:00:00+01:00");
        vault.remember(&["Never deploy on Fridays", "--priority", "P0"]);
        vault.remember(&["Renew the certificate", "--type", "commitment", "--due", "2026-02-10", "--waiting-on", "the registrar"]);
        vault.remember(&["The budget is 500 EUR", "--entity", "Apollo"]);
        vault.at(NOW);
        vault.remember(&["The budget is 600 EUR", "--entity", "Apollo"]);
        vault.remember(&["Send the offer", "--due", "friday"]);
        insta::assert_snapshot!("status", vault.ok(&["status"]));
        insta::assert_snapshot!("commitments", vault.ok(&["commitments"]));
        insta::assert_snapshot!("conflicts", vault.ok(&["conflicts"]));
        vault.ok(&["retract", "20260105-3", "--note", "raised"]);
        insta::assert_snapshot!("events_all", vault.ok(&["events", "--all"]));
        insta::assert_snapshot!("show", vault.ok(&["show", "20260105-3"]));
        insta::assert_snapshot!("why", vault.ok(&["why", "20260105-2"]));
        insta::assert_snapshot!("verify", vault.ok(&["verify"]));
        insta::assert_snapshot!("events_json", vault.ok(&["events", "--all", "--json"]));
    });
}

/// The README's first command, whole.
#[test]
fn the_demo_plays_to_its_end() {
    let folder = tempfile::TempDir::new().unwrap();
    let said = said(bare(program()).env("TMPDIR", folder.path()).arg("demo").output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    insta::with_settings!({ filters => [(r"\S*icecore-demo-\w+", "DEMO")] }, {
        insta::assert_snapshot!("demo", said.out);
    });
}
