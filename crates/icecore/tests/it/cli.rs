//! The command line: what a user types and what is printed.

use std::fs;
use std::process::Stdio;

use crate::program::{NOW, Vault, bare, command_output, program};

// L9, L3: a newcomer's first two minutes
#[test]
fn a_newcomer_gets_from_nothing_to_a_closed_commitment() {
    let home = tempfile::TempDir::new().unwrap();
    let call = |arguments: &[&str]| {
        let said = command_output(
            bare(program())
                .env("HOME", home.path())
                .current_dir(home.path())
                .args(arguments)
                .output()
                .unwrap(),
        );
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
    assert!(call(&["verify"]).contains("no damage"));
    assert!(home.path().join(".local/share/icecore/memory/ledger.jsonl").exists());
}

/// Runs a command in a filled vault and compares the exit code and the error.
fn check(vault: &Vault, arguments: &[&str], code: i32, complaint: &str) {
    let said = vault.run(arguments);
    assert_eq!(said.code, Some(code), "{arguments:?}: {said:?}");
    assert!(said.err.contains(complaint), "{arguments:?}: {said:?} has no {complaint}");
    // Nothing was written, and with --json the error is one JSON object on standard error.
    assert_eq!(vault.contents().len(), 4, "{arguments:?}");
    let json = vault.run(&[arguments, &["--json"]].concat());
    assert_eq!((json.code, json.out.as_str()), (Some(code), ""), "{arguments:?}");
    let error: serde_json::Value =
        serde_json::from_str(&json.err).unwrap_or_else(|error| panic!("{error}: {json:?}"));
    assert_eq!(error["error"]["exit"], code);
}

fn create_filled_vault() -> Vault {
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
    let vault = create_filled_vault();
    check(&vault, &["show", "EVT-20260213-099"], 3, "there is no event EVT-20260213-099");
    check(&vault, &["show", "rubbish"], 2, "ids look like EVT-20260213-001");
    check(&vault, &["close", "20260213-1"], 4, "was already replaced by EVT-20260213-002");
    check(&vault, &["close", "20260213-2"], 4, "only commitments can be closed");
    check(&vault, &["close", "20260213-3"], 4, "was already closed by EVT-20260213-004");
    check(&vault, &["confirm", "20260213-4"], 4, "is not a statement");
    check(&vault, &["confirm", "20260213-99"], 3, "there is no event");
    check(
        &vault,
        &["remember", "x", "--supersedes", "20260213-1"],
        4,
        "use EVT-20260213-002 instead",
    );
    check(&vault, &["remember", "x", "--supersedes", "20260213-5"], 3, "there is no event");
    check(&vault, &["remember", "x", "--related", "20260213-5"], 3, "there is no event");
    check(&vault, &["remember", ""], 2, "the text is empty");
    check(&vault, &["remember", " \t\n"], 2, "the text is empty");
    check(&vault, &["remember", "x", "--type", "insight"], 2, "choose one of fact, decision");
    check(&vault, &["remember", "x", "--priority", "P9"], 2, "choose one of P0, P1, P2, P3");
    check(&vault, &["remember", "x", "--due", "someday"], 2, "is not a day");
    check(
        &vault,
        &["remember", "x", "--type", "fact", "--due", "friday"],
        2,
        "only a commitment has a due date",
    );
    check(&vault, &["remember", "x", "--scope", "galaxy"], 2, "everywhere, project:NAME");
    check(&vault, &["remember", "x", "--entity", "???"], 2, "no letter and no digit");
    check(&vault, &["remember", "x", "-"], 2, "must be the only word");
    check(&vault, &["events", "--since", "rubbish"], 2, "is not a day");
    check(&vault, &["events", "--now", "yesterday"], 2, "is not a moment");
    check(&vault, &["events", "--now=-000001-01-01T00:00:00Z"], 2, "is not a moment");
    check(&vault, &["undo", "--to", "00000000"], 3, "there is no snapshot");
    check(&vault, &["self", "man", "nonsense"], 3, "there is no command");
    check(&vault, &["log", " "], 2, "the text is empty");
}

// Invalid input for every command that captures, summarizes and exports
#[test]
fn invalid_capture_rollup_and_search_requests_are_refused_with_a_reason() {
    let vault = create_filled_vault();
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        fs::write(folder.path().join(name), bytes).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let (binary, wide) = (
        file("picture.png", b"\x89PNG\r\n\0\0\0\rIHDR\0"),
        file("wide.txt", b"U\0s\0e\0r\0:\0 \0h\0i\0"),
    );
    let (empty, prose) =
        (file("empty.md", b" \n\n"), file("prose.txt", b"no line of this is JSON\n"));
    let missing = folder.path().join("missing.md").to_str().unwrap().to_owned();
    let here = folder.path().to_str().unwrap();

    check(&vault, &["message", "add", ""], 2, "the text is empty");
    check(&vault, &["message", "add", " \t"], 2, "the text is empty");
    check(&vault, &["message", "add", "x", "-"], 2, "must be the only word");
    check(&vault, &["message", "add", "x", "--parts", "{bad"], 2, "this is not JSON");
    check(&vault, &["message", "add", "x", "--role", "ghost"], 2, "choose one of user, assistant");
    check(&vault, &["message", "add", "x", "--ts", "2026-02-13"], 2, "write a moment like");
    for command in [&["session", "add"][..], &["save-state"]] {
        check(&vault, &[command, &[&missing]].concat(), 3, "missing.md does not exist");
        check(&vault, &[command, &[here]].concat(), 2, "is a folder; name a file");
    }
    for command in [&["session", "add"][..], &["save-state"]] {
        check(&vault, &[command, &[&binary]].concat(), 2, "is not a text file");
        check(&vault, &[command, &[&wide]].concat(), 2, "is not a text file");
    }
    check(&vault, &["session", "add", &empty], 3, "no messages found in empty");
    check(
        &vault,
        &["session", "add", &prose, "--format", "tape"],
        2,
        "choose one of jsonl, markdown, text",
    );
    check(&vault, &["session", "add", &prose, "--at", "monday"], 2, "write a moment like");
    check(&vault, &["save-state", &empty], 2, "the state is empty");
    check(
        &vault,
        &["save-state", &prose, "--origin", "nobody"],
        2,
        "choose one of user, assistant",
    );
    check(&vault, &["import", &binary], 2, "nothing was imported from");
    check(&vault, &["import", &missing], 3, "missing.md does not exist");
    check(&vault, &["import", &prose], 2, "its format is unknown; name one with --format");
    check(&vault, &["import", &prose, "--format", "jsonl"], 2, "prose.txt:1 is not a JSON object");
    check(&vault, &["import", &prose, "--format", "csv"], 2, "choose one of claude-code, codex");

    check(&vault, &["rollup", "century"], 2, "choose one of session, day, week, month, year");
    check(&vault, &["rollup", "--period", "2026-02-30"], 2, "is not a period");
    check(&vault, &["rollup", "week", "--period", "2026-02"], 2, "2026-02 is a month, not a week");
    check(&vault, &["rollup", "--period", "2026-W50"], 3, "there are no messages in 2026-W50");
    check(&vault, &["summary", "review", "2026-W07"], 3, "no draft of 2026-W07 to review");
    check(
        &vault,
        &["summary", "review", "2026-W07", "--accept"],
        3,
        "no draft of 2026-W07 to review",
    );
    check(
        &vault,
        &["summary", "review", "2026-W07", "--retry"],
        3,
        "no draft of 2026-W07 to review",
    );
    check(
        &vault,
        &["summary", "review", "2026-W07", "--edit", &missing],
        3,
        "missing.md does not exist",
    );
    check(&vault, &["summary", "review", "--accept"], 2, "<PERIOD>");
    check(
        &vault,
        &["summary", "review", "2026-W07", "--accept", "--retry"],
        2,
        "cannot be used with",
    );
    check(&vault, &["summary", "review", "sometime"], 2, "is not a period");
    check(&vault, &["jobs", "runs", "--limit", "0"], 2, "write a number");
    check(&vault, &["summary", "mark", "someday", "dull"], 2, "is not a date");
    check(&vault, &["summary", "mark", "2026-02-13", "great"], 2, "choose important, dull or none");
    check(&vault, &["summary", "mark", "2026", "dull"], 2, "at most a month");

    check(&vault, &["insights", "trends", "--when", "nonsense"], 2, "is not a date");
    check(&vault, &["insights", "trends", "--when", "2027"], 2, "has not come yet");
    check(&vault, &["insights", "trends", "--limit", "0"], 2, "write a number");
    check(&vault, &["insights", "trends", "--limit", "1001"], 2, "choose at most 1000");
    check(
        &vault,
        &["insights", "trends", "--about", "the"],
        2,
        "needs a word with a meaning of its own",
    );
    check(&vault, &["search", " "], 2, "the query has no searchable word");
    check(&vault, &["search", "()*\"", "--json"], 2, "the query has no searchable word");
    check(&vault, &["search", "x", "--kind", "nothing"], 2, "is not a kind of passage");
    check(&vault, &["search", "x", "--when", "31 february"], 2, "is not a date");
    check(&vault, &["search", "x", "--before", "never"], 2, "is not a date");
    check(&vault, &["search", "--queries", "nowhere.jsonl"], 1, "cannot be read");
    check(&vault, &["model", "fetch", "nowhere"], 1, "nowhere cannot be read");
    check(&vault, &["insights", "lookback", "nonsense"], 2, "is not a date");
    check(&vault, &["insights", "lookback", "last", "week"], 2, "`last week` is more than one day");
    check(&vault, &["insights", "lookback", "tomorrow"], 3, "is in the future");
    check(&vault, &["insights", "similar", "sometime"], 2, "is not a period");
    check(&vault, &["insights", "similar", "2026-W07"], 3, "there is no summary of 2026-W07");
    check(&vault, &["insights", "similar", "--merge", "--budget", "100"], 2, "at least 512 bytes");
    check(&vault, &["insights", "similar", "--budget", "1000"], 2, "--merge");
    check(&vault, &["zoom", "nonsense"], 2, "is not a date");
    check(&vault, &["zoom", "2020-01-01"], 3, "there are no messages");
    check(&vault, &["zoom", "today", "--conversation", "app"], 3, "there are no messages in app");
    check(&vault, &["zoom", "today", "--summary"], 3, "it is not summarized yet");
    check(&vault, &["zoom"], 2, "<WHEN>");
    for kind in ["upload", "pyramid"] {
        check(&vault, &["pack", kind, "--date", "2027-01-01"], 3, "is in the future");
        check(&vault, &["pack", kind, "--date", "nonsense"], 2, "is not a date");
        check(&vault, &["pack", kind, "--date", "last week"], 2, "more than one day");
        check(&vault, &["pack", kind, "--budget", "many"], 2, "write a number");
        check(&vault, &["pack", kind, "--budget", "3"], 2, "choose between");
        check(&vault, &["pack", kind, "--budget", "900k"], 2, "choose between");
    }
    check(&vault, &["pack", "pyramid", "--system", &missing], 3, "missing.md does not exist");
    check(&vault, &["pack", "pyramid", "--system", here], 2, "is a folder");
    check(&vault, &["pack", "pyramid", "--project", &missing], 3, "is not a folder");

    check(&vault, &["jobs", "schedule", "--systemd", "--crontab"], 2, "cannot be used with");
    check(&vault, &["jobs", "calendar", "--days", "0"], 2, "is not in 1..=400");
    check(&vault, &["daemon"], 2, "uses the real clock");
    check(&vault, &["daemon", "--every", "0"], 2, "is not in 1..=3600");
    check(&vault, &["model"], 2, "Usage: icecore model");
}

// Two concurrent rollups would write two versions of the same summary
#[test]
fn a_rollup_is_refused_while_another_one_runs() {
    let vault = create_filled_vault();
    vault.ok(&["message", "add", "Decision: one price for all"]);
    vault.ok(&["rollup"]);
    let claim = fs::File::open(vault.path(".icecore/pressing.lock")).unwrap();
    claim.lock().unwrap();
    for command in
        [&["rollup"][..], &["rollup", "day"], &["daemon", "--once"], &["rollup", "--json"]]
    {
        let said = vault.run(command);
        assert_eq!(said.code, Some(75), "{command:?}: {said:?}");
        assert!(said.err.contains("another run is summarizing"), "{said:?}");
    }
    // Recording and reading need no lease.
    for command in [
        &["message", "add", "meanwhile"][..],
        &["zoom", "today"],
        &["pack", "upload"],
        &["rollup", "--dry-run"],
    ] {
        assert_eq!(vault.run(command).code, Some(0), "{command:?}");
    }
    claim.unlock().unwrap();
    vault.ok(&["rollup"]);
}

// A broken settings file is named once, with its error; commands without a model still run
#[test]
fn a_mistake_in_the_user_settings_is_reported_by_commands_that_need_a_model() {
    let vault = create_filled_vault();
    let home = tempfile::TempDir::new().unwrap();
    let place = home.path().join(".config/icecore/config.toml");
    fs::create_dir_all(place.parent().unwrap()).unwrap();
    let call = |text: &str, arguments: &[&str]| {
        fs::write(&place, text).unwrap();
        command_output(vault.command(arguments).env("HOME", home.path()).output().unwrap())
    };
    let wrong = call("[summarizer]\nprovidr = \"openai\"\n", &["model", "check"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert_eq!(wrong.err.matches("config.toml").count(), 1, "{wrong:?}");
    assert!(wrong.err.contains("did you mean `summarizer.provider`?"), "{wrong:?}");
    assert_eq!(call("[summarizer]\nprovidr = 1\n", &["rollup"]).code, Some(2));
    assert_eq!(call("[summarizer]\nprovidr = 1\n", &["status"]).code, Some(0));
    assert_eq!(call("[summarizer]\nprovidr = 1\n", &["message", "add", "x"]).code, Some(0));
    let open = call(
        "[summarizer]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key = \"k\"\n",
        &["model", "check"],
    );
    assert_eq!(open.code, Some(5), "{open:?}");
    assert!(open.err.contains("chmod 600"), "{open:?}");
    let silent = call(
        "[summarizer]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:9/v1\"\n",
        &["model", "check", "--json"],
    );
    assert_eq!((silent.code, silent.json()["ok"].as_bool()), (Some(1), Some(false)), "{silent:?}");
}

#[test]
fn a_repeated_statement_is_stored_once_and_reported() {
    let vault = Vault::new();
    let talk = "User: Which port?\nAssistant: 7431, as ever.\n";
    vault.write("../talk.txt", talk);
    let file = vault.path("../talk.txt").to_str().unwrap().to_owned();
    assert!(
        vault
            .ok(&["session", "add", &file])
            .contains("2 turns read as text: 2 new, 0 already stored\nsummary")
    );
    let again = vault.ok(&["session", "add", &file]);
    assert_eq!(again, "2 turns read as text: 0 new, 2 already stored\n");
    let later = vault.feed(
        &["session", "add", "-", "--no-primer"],
        format!("{talk}User: And the host?\n").as_bytes(),
    );
    assert_eq!(later.code, Some(0), "{later:?}");
    assert!(later.err.contains("the next `icecore rollup` writes its primer"), "{later:?}");
    for (text, told) in [
        ("we use port 7431", "stored"),
        ("we use port 7431", "already stored"),
        ("we use port 7432", "stored as a revision"),
    ] {
        assert_eq!(
            vault.ok(&["message", "add", "--conversation", "app", "--id", "m1", text]),
            format!("{told}\n")
        );
    }
    vault.ok(&["message", "add", "", "--parts", "[{\"tool\":\"ls\"}]", "--conversation", "app"]);
    let zoomed = vault.ok(&["zoom", "today", "--conversation", "app"]);
    assert_eq!(
        zoomed,
        "Friday 2026-02-13\n09:30 user: we use port 7432\n09:30 user:\n      with [{\"tool\":\"ls\"}]\n"
    );
    vault.write(
        "../history.jsonl",
        "{\"ts\":\"2026-02-12T10:00:00+01:00\",\"text\":\"hello\"}\nrubbish\n",
    );
    let history = vault.path("../history.jsonl").to_str().unwrap().to_owned();
    assert_eq!(
        vault.ok(&["import", &history]),
        "1 message imported, 0 already stored, 1 line refused\n"
    );
    let known = vault.run(&["import", &history, "--again"]);
    assert_eq!(known.out, "0 messages imported, 1 already stored, 1 line refused\n");
    let unchanged = vault.run(&["import", &history]);
    assert_eq!(unchanged.out, "0 messages imported, 0 already stored, 0 lines refused\n");
    assert!(unchanged.err.contains("1 file read before and unchanged"), "{unchanged:?}");
    assert!(!known.err.contains("summarizes them"), "{known:?}");
    // A requested period is summarized from its lowest tier up.
    let day = vault.json(&["rollup", "day", "--period", "2026-02-12"]);
    let pressed: Vec<&str> = day["rolled"]["pressed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["period"].as_str().unwrap())
        .collect();
    assert_eq!(pressed, ["2026-02-12_session_01", "2026-02-12"]);
    assert_eq!(
        vault.ok(&["rollup", "day", "--period", "2026-02-12"]),
        "2026-02-12 is up to date.\n"
    );
    // The yearly job has a time too, however far away.
    let schedule = vault.json(&["jobs", "schedule"]);
    assert!(
        schedule["jobs"].as_array().unwrap().iter().all(|job| job["next"].is_string()),
        "{schedule}"
    );
}

// L2
#[test]
fn long_and_odd_texts_have_a_defined_result() {
    let vault = Vault::new();
    let megabyte = vec![b'x'; 1 << 20];
    let refused = vault.feed(&["remember", "-"], &megabyte);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("the limit is 65536"), "{refused:?}");
    assert_eq!(vault.feed(&["remember", "-"], b"\xff\xfe").code, Some(2));
    assert_eq!(vault.feed(&["remember", "-"], &vec![b'x'; 9 << 20]).code, Some(2));
    assert_eq!(vault.feed(&["log", "-"], &vec![b'x'; 2 << 20]).code, Some(2));
    assert!(vault.contents().is_empty());
    assert_eq!(vault.feed(&["remember", "-"], &vec![b'x'; 65_536]).code, Some(0));
    assert_eq!(vault.feed(&["log", "-"], &megabyte).code, Some(0));

    let odd = vault.run(&["remember", "a\u{1b}[31mred\u{7} \u{202e}txt.exe"]);
    assert_eq!(odd.code, Some(0));
    assert!(odd.err.contains("3 control characters were removed"), "{odd:?}");
    for text in ["🎯 ünïcode 漢字", "\"quotes\" and \\ back", "שלום", "line\nbreak", "-5 degrees"]
    {
        vault.ok(&["remember", "--", text]);
        assert_eq!(vault.contents().last().unwrap(), text);
    }
    let shown = vault.ok(&["events", "--color", "always"]);
    assert!(!shown.contains('\u{202e}') && !shown.contains("\u{1b}[31mred"), "{shown:?}");
    // Text that another program wrote into the file cannot send control codes to a terminal either.
    let ledger = vault.read("memory/ledger.jsonl");
    vault.write("memory/ledger.jsonl", ledger.replace("-5 degrees", "\\u001b]0;owned\\u0007"));
    assert!(vault.ok(&["events"]).contains("\\u{1b}]0;owned\\u{7}"));
}

#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_one_is() {
    let vault = create_filled_vault();
    for command in [
        "events --all",
        "status",
        "verify",
        "events --json",
        "--help",
        "self man",
        "self completions bash",
        "demo",
    ] {
        let script = format!(
            "'{}' --vault '{}' --now {NOW} {command} | head -1",
            program(),
            vault.root.display()
        );
        let said = command_output(
            bare("sh")
                .env("TMPDIR", vault.root.parent().unwrap())
                .args(["-c", &script])
                .output()
                .unwrap(),
        );
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{command}: {said:?}");
        assert_eq!(said.out.lines().count(), 1, "{command}: {said:?}");
    }
    let script = format!(
        "'{}' --vault '{}' --now {NOW} events > /dev/full",
        program(),
        vault.root.display()
    );
    let said = command_output(bare("sh").args(["-c", &script]).output().unwrap());
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.err.contains("the output could not be written"), "{said:?}");
}

#[test]
fn global_options_stand_before_or_after_the_command() {
    let vault = create_filled_vault();
    let root = vault.root.to_str().unwrap();
    let call =
        |arguments: &[&str]| command_output(bare(program()).args(arguments).output().unwrap());
    let before = call(&["--vault", root, "--json", "events"]);
    let after = call(&["events", "--json", "--vault", root]);
    let environment = command_output(
        bare(program()).env("ICECORE_VAULT", root).args(["events", "--json"]).output().unwrap(),
    );
    let inside = command_output(
        bare(program())
            .current_dir(vault.path("memory"))
            .args(["events", "--json"])
            .output()
            .unwrap(),
    );
    assert_eq!(before.code, Some(0), "{before:?}");
    for other in [after, environment, inside] {
        assert_eq!(other.out, before.out);
    }
    let nowhere =
        command_output(bare(program()).current_dir("/").args(["events"]).output().unwrap());
    assert_eq!(nowhere.code, Some(3), "{nowhere:?}");
    assert!(nowhere.err.contains("`icecore init` creates one"), "{nowhere:?}");
    // A vault without its settings is not skipped for another one.
    fs::remove_file(vault.path("icecore.toml")).unwrap();
    let headless = command_output(
        bare(program()).current_dir(vault.path("memory")).args(["remember", "x"]).output().unwrap(),
    );
    assert_eq!(headless.code, Some(6), "{headless:?}");
    let again =
        command_output(bare(program()).args(["init", root, "--tz", "UTC"]).output().unwrap());
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(vault.contents().len(), 4);
}

#[test]
fn init_respects_what_is_there() {
    let vault = create_filled_vault();
    let again = vault.run(&["init"]);
    assert_eq!(again.code, Some(4), "{again:?}");
    assert!(again.err.contains("is a vault already"), "{again:?}");
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("thesis.tex"), "mine").unwrap();
    fs::write(folder.path().join(".gitignore"), "mine too\n").unwrap();
    let made = command_output(
        bare(program())
            .args(["init", folder.path().to_str().unwrap(), "--tz", "Asia/Kathmandu", "--json"])
            .output()
            .unwrap(),
    );
    assert_eq!(made.json()["zone"], "Asia/Kathmandu", "{made:?}");
    assert_eq!(fs::read_to_string(folder.path().join(".gitignore")).unwrap(), "mine too\n");
    let tracked = bare("git").current_dir(folder.path()).args(["ls-files"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&tracked.stdout).contains("thesis.tex"));
    let bad = command_output(
        bare(program()).args(["init", "/tmp/never", "--tz", "Mars/Olympus"]).output().unwrap(),
    );
    assert_eq!(bad.code, Some(2), "{bad:?}");
    // TZ is how the system names it.
    let folder = tempfile::TempDir::new().unwrap();
    let zoned = command_output(
        bare(program())
            .env("TZ", "America/New_York")
            .args(["init", folder.path().to_str().unwrap(), "--json"])
            .output()
            .unwrap(),
    );
    assert_eq!(zoned.json()["zone"], "America/New_York", "{zoned:?}");
}

// L16
#[test]
fn without_git_everything_but_snapshots_works_and_says_so() {
    let folder = tempfile::TempDir::new().unwrap();
    let root = folder.path().join("vault");
    let call = |arguments: &[&str]| {
        command_output(
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
    for command in [
        &["remember", "one"][..],
        &["status"],
        &["verify"],
        &["doctor", "--fix"],
        &["vault", "reindex"],
        &["events"],
    ] {
        assert_eq!(call(command).code, Some(0), "{command:?}");
    }
    for command in ["snapshot", "undo"] {
        let said = call(&[command]);
        assert_eq!(said.code, Some(3), "{said:?}");
        assert!(said.err.contains("snapshots"), "{said:?}");
    }
}

// A hook of another project runs icecore with its own git's environment
#[test]
fn the_environment_does_not_redirect_git() {
    let vault = create_filled_vault();
    let other = tempfile::TempDir::new().unwrap();
    assert!(
        bare("git").current_dir(other.path()).args(["init", "-q", "."]).status().unwrap().success()
    );
    let git = other.path().join(".git");
    let said = command_output(
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
    let vault = create_filled_vault();
    vault.ok(&["snapshot", "--note", "good"]);
    vault.remember(&["a mistake"]);
    assert!(vault.ok(&["undo"]).contains("retracted EVT-20260213-005"));
    assert!(!vault.ok(&["events"]).contains("a mistake"));
    vault.ok(&["undo"]);
    assert!(vault.ok(&["events"]).contains("a mistake"));
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

// L12: lines that an editor removed are reported, and come back from a snapshot
#[test]
fn doctor_brings_lost_lines_back() {
    let vault = create_filled_vault();
    vault.ok(&["snapshot", "-q"]);
    let whole = vault.read("memory/ledger.jsonl");
    vault.write(
        "memory/ledger.jsonl",
        whole.lines().take(2).map(|line| format!("{line}\n")).collect::<String>(),
    );
    let warned = vault.run(&["remember", "in between"]);
    assert_eq!(warned.code, Some(0));
    assert!(
        warned.err.contains("EVT-20260213-003 and 1 more no longer in memory/ledger.jsonl"),
        "{warned:?}"
    );
    assert!(warned.out.starts_with("EVT-20260213-005"), "{warned:?}");
    assert_eq!(vault.run(&["verify"]).code, Some(6));
    assert!(vault.ok(&["status"]).contains("doctor --fix"));
    let fixed = vault.ok(&["doctor", "--fix"]);
    assert!(fixed.contains("restored EVT-20260213-003"), "{fixed}");
    assert_eq!(vault.contents().len(), 5);
    assert!(vault.read("memory/ledger.jsonl").starts_with(&whole));
    assert_eq!(vault.run(&["verify"]).code, Some(0));
}

// L12: bad lines are reported by every reader, quarantined by doctor, and never silently skipped
#[test]
fn a_broken_line_is_reported_and_quarantined() {
    let vault = create_filled_vault();
    let text = vault.read("memory/ledger.jsonl");
    vault.write("memory/ledger.jsonl", text.replacen('\n', "\n{broken\n", 1));
    for command in ["events", "commitments", "remember x", "show 20260213-1"] {
        let said = vault.run(&command.split(' ').collect::<Vec<_>>());
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            said.err.contains("memory/ledger.jsonl:2 is not a JSON object"),
            "{command}: {said:?}"
        );
    }
    assert!(vault.ok(&["status"]).contains("line 2"));
    assert_eq!(vault.run(&["doctor"]).code, Some(6));
    let fixed = vault.ok(&["doctor", "--fix"]);
    assert!(
        fixed.contains("moved line 2 of memory/ledger.jsonl to .icecore/quarantine/"),
        "{fixed}"
    );
    assert_eq!(vault.run(&["events"]).err, "");
}

#[test]
fn settings_are_shown_checked_and_explained() {
    let vault = create_filled_vault();
    assert!(vault.ok(&["vault", "config", "show"]).contains("zone = \"Europe/Berlin\""));
    assert_eq!(vault.json(&["vault", "config", "check"])["ok"], true);
    let config = vault.read("icecore.toml");
    vault.write("icecore.toml", format!("{config}\n[status]\ncommitment_shown = 3\n"));
    // An unknown setting does not prevent any command.
    for command in [
        &["vault", "config", "check"][..],
        &["status"],
        &["remember", "still here"],
        &["verify"],
        &["doctor", "--fix"],
        &["snapshot"],
    ] {
        let said = vault.run(command);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(
            said.err.contains("warning:")
                && said.err.contains("did you mean `status.commitments_shown`?"),
            "{said:?}"
        );
    }
    assert_eq!(vault.json(&["vault", "config", "check"])["ok"], false);
    vault.write("icecore.toml", format!("{config}\n[status]\ncommitments_shown = \"3\"\n"));
    assert_eq!(vault.run(&["status"]).code, Some(6));
    for (format, code) in [("", 0), ("format = 0\n", 6), ("format = -1\n", 6)] {
        vault.write("icecore.toml", format!("{format}zone = \"Europe/Berlin\"\n"));
        let said = vault.run(&["status"]);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(code == 0 || said.err.contains("the first format is 1"), "{said:?}");
    }
    vault.write("icecore.toml", "zone = ");
    assert_eq!(vault.run(&["status"]).code, Some(6));
    // Repair commands work without the settings, and restore them.
    let undone = vault.run(&["undo"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert!(undone.err.contains("The defaults are used"), "{undone:?}");
    assert!(vault.ok(&["vault", "config", "show"]).contains("Europe/Berlin"));
}

/// A newer version's vault, opened by an older program.
#[test]
fn a_vault_of_a_newer_version_is_left_alone() {
    let vault = create_filled_vault();
    let ledger = vault.read("memory/ledger.jsonl");
    let (day, next) = ("EVT-20260213", ledger.lines().count() + 1);
    let newer = format!(
        "{{\"ts\":\"2026-02-13T09:20:00+01:00\",\"id\":\"{day}-{next:03}\",\"type\":\"hypothesis\",\"priority\":\"P1\",\"content\":\"It may rain\",\"source\":\"live\"}}\n"
    );
    vault.write("memory/ledger.jsonl", format!("{ledger}{newer}"));
    // An unknown type is a line like any other.
    let fixed = vault.run(&["doctor", "--fix"]);
    assert_eq!(fixed.code, Some(0), "{fixed:?}");
    assert!(fixed.out.contains("has an unknown type `hypothesis`"), "{fixed:?}");
    assert!(vault.read("memory/ledger.jsonl").contains(&newer), "{fixed:?}");
    assert!(!vault.path(".icecore/quarantine").exists());
    assert!(
        vault.ok(&["events", "rain"]).contains("unknown type"),
        "{}",
        vault.ok(&["events", "rain"])
    );
    assert_eq!(vault.json(&["events", "rain"])["events"][0]["type"], "hypothesis");
    assert_eq!(vault.remember(&["after it"]), format!("{day}-{:03}", next + 1));
    // A newer format is refused by every command, repair commands included, and nothing is changed.
    vault.write("icecore.toml", "format = 2\n");
    let before = vault.read("memory/ledger.jsonl");
    for command in
        [&["verify"][..], &["doctor"], &["doctor", "--fix"], &["undo"], &["status"], &["merge"]]
    {
        let said = vault.run(command);
        assert_eq!(said.code, Some(5), "{said:?}");
        assert!(said.err.contains("install a newer icecore"), "{said:?}");
    }
    assert_eq!(vault.read("memory/ledger.jsonl"), before);
}

/// A clock that jumps to 2038 and back.
#[test]
fn a_clock_that_jumps_leaves_no_damage() {
    let mut vault = create_filled_vault();
    vault.ok(&[
        "message",
        "add",
        "Decision: the boat is painted",
        "--conversation",
        "harbour",
        "--id",
        "m1",
    ]);
    vault.at("2038-01-20T09:00:00+01:00");
    vault.ok(&["message", "add", "said in the future", "--conversation", "harbour", "--id", "m2"]);
    vault.ok(&["consolidate"]);
    vault.at("2026-02-13T10:00:00+01:00");
    let said = vault.run(&["verify"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    vault.at("2038-01-20T09:10:00+01:00");
    vault.ok(&["verify"]);
}

/// A prune that died after the lines were archived and before they left the ledger.
#[test]
fn what_is_archived_is_not_archived_again() {
    for command in ["prune", "compact"] {
        let mut vault = Vault::new();
        vault.at("2025-08-01T09:00:00+02:00");
        vault.remember(&["The bus is late", "--priority", "P3"]);
        vault.remember(&["The boat is green", "--priority", "P2"]);
        vault.at("2026-02-13T09:30:00+01:00");
        vault.ok(&["verify"]);
        let (ledger, report) =
            (vault.read("memory/ledger.jsonl"), vault.read("memory/integrity.json"));
        vault.ok(&[command]);
        let archive = vault.read("memory/archive/2026-Q1.jsonl");
        assert!(archive.contains("The bus is late"), "{archive}");
        vault.write("memory/ledger.jsonl", &ledger);
        vault.write("memory/integrity.json", &report);
        vault.at("2026-02-13T09:40:00+01:00");
        vault.ok(&[command]);
        assert_eq!(vault.read("memory/archive/2026-Q1.jsonl"), archive, "{command}");
        assert!(!vault.read("memory/ledger.jsonl").contains("The bus is late"), "{command}");
        vault.ok(&["verify"]);
    }
}

#[test]
fn colours_are_for_terminals_and_can_be_turned_off() {
    let vault = create_filled_vault();
    assert!(!vault.ok(&["events"]).contains('\u{1b}'));
    assert!(vault.ok(&["events", "--color", "always"]).contains('\u{1b}'));
    // On a terminal, created by `script`.
    let on_terminal = |variables: &[(&str, &str)]| {
        let command = format!("{} --vault {} --now {NOW} status", program(), vault.root.display());
        let mut script = bare("script");
        script
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied())
            .args(["-qec", &command, "/dev/null"])
            .stdin(Stdio::null());
        String::from_utf8_lossy(&script.output().unwrap().stdout).into_owned()
    };
    assert!(on_terminal(&[]).contains("\u{1b}["));
    assert!(!on_terminal(&[("NO_COLOR", "1")]).contains("\u{1b}["));
}

#[test]
fn completions_and_manual_pages_are_there_for_every_shell_and_command() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said =
            command_output(bare(program()).args(["self", "completions", shell]).output().unwrap());
        assert!(said.out.contains("remember"), "{shell}");
    }
    let page = command_output(bare(program()).args(["self", "man"]).output().unwrap()).out;
    assert!(page.contains(".TH icecore 1"), "{page}");
    assert!(
        command_output(bare(program()).args(["self", "man", "remember"]).output().unwrap())
            .out
            .contains("supersedes")
    );
}

// `--json` on every command
#[test]
fn every_command_speaks_json() {
    let vault = create_filled_vault();
    vault.ok(&["snapshot", "-q"]);
    let folder = tempfile::TempDir::new().unwrap();
    fs::write(folder.path().join("talk.md"), "User: Which port?\n\nAssistant: Decision: 7431.\n")
        .unwrap();
    let note = br#"{"command":"create","path":"/memories/note.md","file_text":"x"}"#;
    assert_eq!(vault.feed(&["memory-tool", "--json"], note).json()["is_error"], false);
    fs::write(
        folder.path().join("history.jsonl"),
        "{\"ts\":\"2026-02-12T10:00:00+01:00\",\"text\":\"hello\"}\n",
    )
    .unwrap();
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
        "message add x --conversation app --id m1 --role assistant",
        "session add talk.md",
        "session add talk.md --no-primer",
        "save-state talk.md --title now",
        "import history.jsonl",
        "rollup --dry-run",
        "rollup session",
        "rollup",
        "rollup day --period 2026-02-12",
        "rollup week --period 2026-W07 --dry-run",
        "summary review",
        "jobs runs",
        "summary mark yesterday important",
        "pack upload",
        "pack upload --date yesterday",
        "pack pyramid --budget 8k --system talk.md",
        "zoom yesterday",
        "zoom yesterday --summary",
        "insights trends",
        "insights trends --when 2026 --about hello --limit 3 --ascii",
        "insights lookback",
        "insights lookback yesterday",
        "insights similar",
        "insights similar 2026-02-12",
        "insights similar --merge",
        "install",
        "install cursor --dry-run",
        "install cursor --yes",
        "uninstall cursor --yes",
        "memory-tool --versions /memories/note.md",
        "jobs schedule",
        "jobs schedule --systemd",
        "jobs schedule --crontab",
        "jobs calendar",
        "jobs calendar --ics",
        "daemon --once",
        "model check",
        "pause --for 1h",
        "pause --project app",
        "pause --list",
        "pause --off",
        "resume",
        "hook log",
        "hook nothing",
        "verify",
        "doctor",
        "doctor --fix",
        "vault reindex",
        "vault config show",
        "vault config check",
        "snapshot",
        "snapshot --list",
        "undo",
        "demo",
        "help",
        "help --all",
        "help db token",
        "self completions bash",
        "self man",
        "self man remember",
    ] {
        let mut call =
            vault.command(&[&command.split(' ').collect::<Vec<_>>()[..], &["--json"]].concat());
        let said = command_output(
            call.env("TMPDIR", folder.path())
                .env("HOME", folder.path())
                .current_dir(folder.path())
                .output()
                .unwrap(),
        );
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{command}: {said:?}");
        assert!(said.json().is_object(), "{command}: {said:?}");
        assert_eq!(said.out.lines().count(), 1, "{command}");
    }
}

/// The screens that a user sees first; review every change in them.
#[test]
fn the_first_screens_are_as_reviewed() {
    let help =
        command_output(bare(program()).env("COLUMNS", "100").arg("--help").output().unwrap());
    insta::assert_snapshot!("help", help.out);
    let all = command_output(bare(program()).args(["help", "--all"]).output().unwrap());
    insta::assert_snapshot!("help_all", all.out);
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

// Y11
#[test]
fn looking_across_time_is_as_reviewed() {
    let mut vault = Vault::new();
    for command in ["trends", "lookback", "similar"] {
        let said = vault.run(&["insights", command]);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert!(said.out.lines().count() == 1 && said.err.contains("`icecore "), "{said:?}");
    }
    let topics = [
        "the tax return",
        "the garden pond",
        "the newsletter",
        "the piano of Nora",
        "the choir concert",
        "the kitchen sink",
    ];
    let harbour =
        "The harbour office wants more permits for the quay; Mirabel called about the crane.";
    let mut lines = String::new();
    for n in 0..140_u32 {
        // Every third day from the first of January 2025 on.
        let day = jiff::civil::date(2025, 1, 1).checked_add(jiff::Span::new().days(n * 3)).unwrap();
        if day >= jiff::civil::date(2026, 2, 13) {
            break;
        }
        let is_harbour = [2, 11].contains(&day.month()) && day.year() == 2025;
        let text = if is_harbour {
            harbour.to_owned()
        } else {
            format!("A bit of {}, part {n}.", topics[(n / 3 % 6) as usize])
        };
        let auth = if [20, 60, 110].contains(&n) { " Refactored auth, again." } else { "" };
        lines.push_str(&format!("{{\"ts\":\"{day}T10:00:00+01:00\",\"conversation\":\"app\",\"session\":\"s{n}\",\"role\":\"user\",\"text\":\"{text}{auth}\"}}\n"));
    }
    vault.write("history.jsonl", &lines);
    vault.ok(&["import", vault.path("history.jsonl").to_str().unwrap(), "-q"]);
    fs::remove_file(vault.path("history.jsonl")).unwrap();
    vault.at("2025-02-12T10:00:00+01:00");
    vault.remember(&["Decided on oak for the quay", "--type", "decision"]);
    vault.remember(&["Send the plans to the harbour office", "--type", "commitment"]);
    vault.at(NOW);
    vault.ok(&["rollup", "-q"]);
    insta::assert_snapshot!("trends", vault.ok(&["insights", "trends", "--limit", "12"]));
    insta::assert_snapshot!(
        "trends_ascii",
        vault.ok(&["insights", "trends", "--when", "2025", "--limit", "3", "--ascii"])
    );
    insta::assert_snapshot!("lookback", vault.ok(&["insights", "lookback"]));
    insta::assert_snapshot!("similar", vault.ok(&["insights", "similar", "2025-11"]));
    insta::assert_snapshot!(
        "similar_merge",
        vault.ok(&["insights", "similar", "2025-11", "--merge", "--budget", "1k"])
    );
    assert!(vault.read("primers/monthly/2025-11.md").contains("\nSimilar: 2025-02 ("));
    // Long ago, and about nothing.
    let said = vault.run(&["insights", "trends", "--when", "2023"]);
    assert!(said.err.contains("icecore insights trends --when 2025-01-01..2026-02-1"), "{said:?}");
    let said = vault.run(&["insights", "trends", "--about", "zeppelins"]);
    assert!(said.out.contains("No recurring topic about zeppelins in"), "{said:?}");
    let months = vault.json(&["insights", "trends", "--when", "2025", "--limit", "3"])["topics"][0]
        ["months"]
        .clone();
    assert_eq!(months.as_object().unwrap().len(), 12);
}

/// The README's first command, in full.
#[test]
fn the_demo_plays_to_its_end() {
    let folder = tempfile::TempDir::new().unwrap();
    let said =
        command_output(bare(program()).env("TMPDIR", folder.path()).arg("demo").output().unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    // Its duration differs between machines.
    insta::with_settings!({ filters => [(r"/\S*icecore-demo-\w+", "DEMO"), (r"in \d+\.\d s:", "in SECONDS s:")] }, {
        insta::assert_snapshot!("demo", said.out);
    });
    // The suggested commands work, and the chart fits into any terminal.
    let vault = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path().join("vault");
    let invited: Vec<&str> =
        said.out.lines().filter_map(|line| line.strip_prefix("  icecore ")).collect();
    assert!(invited.len() >= 4, "{invited:?}");
    for command in invited {
        let tried = command_output(
            bare(program()).env("ICECORE_VAULT", &vault).args(command.split(' ')).output().unwrap(),
        );
        assert_eq!((tried.code, tried.out.is_empty()), (Some(0), false), "{command}: {tried:?}");
    }
    let core: Vec<&str> =
        said.out.lines().filter(|line| line.contains("- W") && line.contains('(')).collect();
    assert!(core.len() == 13 && core.iter().all(|line| line.chars().count() <= 80), "{core:#?}");
}

// Printing a pack writes nothing.
#[test]
fn a_recall_pack_is_printed_on_a_disk_that_cannot_be_written_to() {
    let vault = Vault::new();
    vault.remember(&["The API listens on port 7431", "--priority", "P0"]);
    let script = format!(
        "mount --bind -o ro {0} {0} && mount -o remount,ro,bind {0} && exec {1} --vault {0} --now {2} pack recall $0",
        vault.root.display(),
        program(),
        vault.now
    );
    for option in ["--quiet", "--json"] {
        let read_only = command_output(
            bare("unshare").args(["-rm", "sh", "-c", &script, option]).output().unwrap(),
        );
        assert_eq!(read_only.code, Some(0), "{read_only:?}");
        assert!(
            read_only.out.contains("7431")
                && read_only.err.contains("recall/pack.md was not written"),
            "{read_only:?}"
        );
    }
}
