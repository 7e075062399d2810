//! The durability contract, literally: the process is killed, or a system call fails, at every call
//! that touches the vault, for every writing command. Afterwards nothing acknowledged is missing or
//! doubled, `verify` is clean, and the command can be given again.
//!
//! `./test` runs a sample of the points; `just sweep` runs all of them (`ICECORE_SWEEP=full`).

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::hooks::{is_settled_within, line};
use crate::program::{CommandOutput, NOW, Vault, bare, command_output, copy, program};

/// The system calls that can change a file, or open one.
const CALLS: &str = "write,pwrite64,fsync,fdatasync,syncfs,ftruncate,rename,renameat,renameat2,unlink,unlinkat,link,mkdir,mkdirat,openat";

/// One writing command and the vault it runs in.
struct Scenario {
    /// Sets the vault up.
    furnish: fn(&Vault),
    /// Creates the rest: the home directory of a user, next to the vault.
    home: fn(&Path),
    /// Runs right before the command, in the same vault.
    before: &'static [&'static str],
    /// `{HOME}` is replaced by that home directory.
    command: &'static [&'static str],
    /// Its standard input.
    input: &'static str,
    /// Whether other threads and processes do the work.
    helped: bool,
    /// A text that the command adds to the ledger: at most once, and exactly once if it was
    /// acknowledged.
    adds: Option<&'static str>,
    /// The files it may change; all others must stay as they were.
    touches: &'static [&'static str],
    /// Whether the ledger is rewritten rather than appended to; its content stays nevertheless.
    reorders: bool,
    /// Words that are to be removed; lines that contain them may be removed with them.
    loses: Option<&'static str>,
    /// The codes that a second call may end with.
    again: &'static [i32],
    /// What must hold once the command was acknowledged.
    done: fn(&Path) -> bool,
    /// Whether an interrupted and repeated run leaves the same bytes as an undisturbed one.
    same: bool,
}

fn text(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

fn set_aside(root: &Path, bytes: &str) -> bool {
    fs::read_dir(root.join(".icecore/quarantine"))
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text == bytes))
}

fn commits(root: &Path) -> usize {
    let output =
        bare("git").current_dir(root).args(["rev-list", "--count", "HEAD"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().parse().unwrap_or(0)
}

fn one_open_loop(root: &Path) -> bool {
    text(root, LOOPS).split_whitespace().collect::<String>() == "[\"EVT-20260213-002\"]"
}

const LEDGER: &str = "memory/ledger.jsonl";
const LOOPS: &str = "memory/index/open-loops.json";
const INTEGRITY: &[&str] = &["memory/integrity.json", "memory/integrity-log.md", LOOPS];

fn some_events(vault: &Vault) {
    vault.remember(&["The budget is 500 EUR", "--entity", "apollo"]);
    vault.remember(&["Send the offer", "--due", "friday"]);
    vault.remember(&["Never deploy on Fridays", "--priority", "P0"]);
    vault.ok(&["log", "first line"]);
}

fn with_extracts(vault: &Vault) {
    some_events(vault);
    let log = vault.read("memory/2026-02-13.md");
    vault.write(
        "memory/2026-02-13.md",
        format!("{log}\n## Priority Extracts\n- [P1] taken from the log\n"),
    );
}

fn with_damaged_ledger(vault: &Vault) {
    some_events(vault);
    let text = vault.read(LEDGER);
    let (first, rest) = text.split_once('\n').unwrap();
    vault.write(LEDGER, format!("{first}\nnot an event\n{rest}{first}\n"));
}

fn with_torn_ledger(vault: &Vault) {
    some_events(vault);
    let text = vault.read(LEDGER);
    vault.write(LEDGER, format!("{text}{{\"ts\":\"2026-02-13T09:3"));
}

fn with_snapshot(vault: &Vault) {
    some_events(vault);
    fs::create_dir_all(vault.path("recall")).unwrap();
    vault.write("recall/pack.md", "as it was\n");
    vault.ok(&["snapshot", "-q"]);
    vault.write("recall/pack.md", "changed\n");
    vault.write("recall/new.md", "new\n");
    vault.remember(&["after the snapshot"]);
}

fn with_messages(vault: &Vault) {
    some_events(vault);
    for (id, at, said) in [
        ("m1", "2026-02-03T10:00:00+01:00", "Decision: the boat is painted"),
        ("m2", "2026-02-13T08:00:00+01:00", "first of the day"),
    ] {
        vault.ok(&["message", "add", said, "--conversation", "harbour", "--id", id, "--ts", at]);
    }
}

/// What a nightly run writes.
const CONSOLIDATED: &[&str] = &["memory/*", "primers/*", "knowledge/*", "recall/*"];

/// Half a year ago: a fact that was replaced, a promise that was fulfilled, and a rule that stays.
fn with_chains(vault: &Vault) {
    let line = |n: u8, rest: &str| {
        format!(
            "{{\"ts\":\"2025-08-01T09:0{n}:00+02:00\",\"id\":\"EVT-20250801-00{n}\",{rest},\"source\":\"live\"}}\n"
        )
    };
    let lines = [
        line(1, r#""type":"fact","priority":"P2","content":"The budget is 500 EUR""#),
        line(
            2,
            r#""type":"fact","priority":"P1","content":"The budget is 600 EUR","supersedes":["EVT-20250801-001"]"#,
        ),
        line(
            3,
            r#""type":"commitment","priority":"P1","content":"Send the offer","status":"open""#,
        ),
        line(
            4,
            r#""type":"commitment","priority":"P1","content":"sent","act":"close","related":["EVT-20250801-003"],"status":"closed""#,
        ),
        line(5, r#""type":"constraint","priority":"P0","content":"Never deploy on Fridays""#),
    ];
    vault.write(LEDGER, lines.concat());
}

/// What a rollup writes.
const PRESSED: &[&str] = &[
    "memory/messages/*",
    "memory/summaries.jsonl",
    "memory/summaries/*",
    "memory/runs.jsonl",
    "memory/review.jsonl",
    "primers/*",
    LOOPS,
];

fn scenario(name: &str) -> Scenario {
    let plain = Scenario {
        furnish: some_events,
        home: |_| {},
        before: &[],
        command: &[],
        input: "",
        helped: false,
        adds: None,
        touches: &[LEDGER],
        reorders: false,
        loses: None,
        again: &[0],
        done: |_| true,
        same: false,
    };
    match name {
        "init" => Scenario {
            furnish: |vault| fs::remove_dir_all(&vault.root).unwrap(),
            command: &["init", "--tz", "Europe/Berlin"],
            touches: &["*"],
            again: &[0, 4],
            done: |root| root.join(LEDGER).exists() && root.join("icecore.toml").exists(),
            ..plain
        },
        "remember_first" => Scenario {
            furnish: |_| {},
            command: &["remember", "a new fact"],
            adds: Some("a new fact"),
            ..plain
        },
        "remember" => {
            Scenario { command: &["remember", "a new fact"], adds: Some("a new fact"), ..plain }
        }
        "remember_torn" => Scenario {
            furnish: with_torn_ledger,
            command: &["remember", "a new fact"],
            adds: Some("a new fact"),
            done: |root| set_aside(root, "{\"ts\":\"2026-02-13T09:3"),
            ..plain
        },
        "supersede" => Scenario {
            command: &["remember", "a new budget", "--supersedes", "20260213-1"],
            adds: Some("a new budget"),
            again: &[0, 4],
            ..plain
        },
        "close" => Scenario {
            command: &["close", "20260213-2", "--note", "all done"],
            adds: Some("all done"),
            again: &[0, 4],
            ..plain
        },
        "confirm" => Scenario {
            command: &["confirm", "20260213-1", "--note", "still so"],
            adds: Some("still so"),
            ..plain
        },
        "retract" => Scenario {
            command: &["retract", "20260213-3", "--note", "not so"],
            adds: Some("not so"),
            again: &[0, 4],
            ..plain
        },
        "log" => Scenario {
            command: &["log", "second line"],
            touches: &["memory/2026-02-13.md"],
            done: |root| {
                text(root, "memory/2026-02-13.md")
                    == "# 2026-02-13 Friday, 2026-W07\n\n- 09:30 first line\n- 09:30 second line\n"
            },
            ..plain
        },
        "extracts" => Scenario {
            furnish: with_extracts,
            command: &["events"],
            adds: Some("taken from the log"),
            ..plain
        },
        "log_first" => Scenario {
            furnish: |_| {},
            command: &["log", "second line"],
            touches: &["memory/2026-02-13.md"],
            done: |root| {
                text(root, "memory/2026-02-13.md")
                    == "# 2026-02-13 Friday, 2026-W07\n\n- 09:30 second line\n"
            },
            ..plain
        },
        "commitments" => {
            Scenario { command: &["commitments"], touches: &[LOOPS], done: one_open_loop, ..plain }
        }
        "verify" => Scenario {
            furnish: with_extracts,
            command: &["verify"],
            adds: Some("taken from the log"),
            touches: &["*integrity", LEDGER],
            ..plain
        },
        "doctor" => Scenario {
            furnish: with_damaged_ledger,
            command: &["doctor", "--fix"],
            touches: &["*integrity", LEDGER],
            done: |root| {
                set_aside(root, "not an event")
                    && ["500 EUR", "Send the offer", "Never deploy"]
                        .iter()
                        .all(|said| text(root, LEDGER).matches(said).count() == 1)
            },
            ..plain
        },
        "reindex" => Scenario {
            command: &["vault", "reindex"],
            touches: &[LOOPS],
            done: one_open_loop,
            ..plain
        },
        "snapshot" => Scenario {
            command: &["snapshot"],
            touches: &[LOOPS],
            done: |root| commits(root) >= 2,
            ..plain
        },
        "undo" => Scenario {
            furnish: with_snapshot,
            command: &["undo"],
            touches: &[LEDGER, LOOPS, "recall/pack.md", "recall/new.md"],
            done: |root| {
                text(root, "recall/pack.md") == "as it was\n"
                    && !root.join("recall/new.md").exists()
                    && text(root, LEDGER).contains("Undone")
            },
            ..plain
        },
        "message" => Scenario {
            furnish: with_messages,
            command: &[
                "message",
                "add",
                "the boat is green",
                "--conversation",
                "harbour",
                "--id",
                "m9",
            ],
            touches: &["memory/messages/2026-02-13.jsonl"],
            done: |root| {
                let kept = text(root, "memory/messages/2026-02-13.jsonl");
                kept.matches("the boat is green").count() == 1
                    && kept.matches("first of the day").count() == 1
            },
            ..plain
        },
        "state" => Scenario {
            command: &["save-state", "icecore.toml", "--title", "t"],
            touches: &[
                "memory/state/assistant-state.md",
                "memory/snapshots/2026-02-13.jsonl",
                "memory/summaries/24hr.md",
            ],
            done: |root| {
                text(root, "memory/state/assistant-state.md").contains("zone")
                    && text(root, "memory/snapshots/2026-02-13.jsonl").lines().count() == 1
                    && text(root, "memory/summaries/24hr.md")
                        .matches("### 2026-02-13 09:30")
                        .count()
                        == 1
            },
            ..plain
        },
        "session_add" => Scenario {
            command: &["session", "add", "icecore.toml", "--session", "s"],
            touches: PRESSED,
            done: |root| {
                text(root, "memory/messages/2026-02-13.jsonl").lines().count() == 1
                    && root.join("primers/daily/2026-02-13_session_01.md").exists()
            },
            ..plain
        },
        "rollup" => Scenario {
            furnish: with_messages,
            command: &["rollup", "due"],
            touches: CONSOLIDATED,
            done: |root| {
                let kept = text(root, "memory/summaries.jsonl");
                ["2026-02-03_session_01", "2026-02-03", "2026-W06"].iter().all(|node| {
                    kept.matches(&format!("\"id\":\"{node}#1\"")).count() == 1
                        && !kept.contains(&format!("{node}#2"))
                }) && root.join("primers/weekly/2026-W06.md").exists()
                    && root.join("primers/upload/UPLOAD_PACKAGE.md").exists()
            },
            ..plain
        },
        "import" => Scenario {
            furnish: |vault| {
                some_events(vault);
                let line = |day: u8| {
                    format!(
                        "{{\"ts\":\"2026-02-0{day}T10:00:00+01:00\",\"id\":\"m{day}\",\"text\":\"told on {day}\"}}\n"
                    )
                };
                vault.write("history.jsonl", (1..=6).map(line).collect::<String>());
            },
            command: &["import", "history.jsonl"],
            touches: &["memory/messages/*", "memory/imports.jsonl"],
            done: |root| {
                (1..=6).all(|day| {
                    text(root, &format!("memory/messages/2026-02-0{day}.jsonl"))
                        .matches("told on")
                        .count()
                        == 1
                })
            },
            ..plain
        },
        "consolidate" => Scenario {
            furnish: |vault| {
                with_messages(vault);
                let log = vault.read("memory/2026-02-13.md");
                vault.write(
                    "memory/2026-02-13.md",
                    format!("{log}\n## Priority Extracts\n- [P1] taken from the log\n"),
                );
            },
            command: &["consolidate"],
            adds: Some("taken from the log"),
            touches: CONSOLIDATED,
            done: |root| {
                let ledger = text(root, LEDGER);
                ledger.matches("the boat is painted").count() == 2
                    && text(root, "knowledge/entities/apollo.md")
                        .contains("- The budget is 500 EUR")
                    && text(root, "recall/pack.md")
                        .contains("- Never deploy on Fridays (EVT-20260213-003)")
                    && text(root, "knowledge/consolidation-reports/2026-02-13.md")
                        .contains("## Run 2026-02-13T09:30:00+01:00")
            },
            ..plain
        },
        "compact" => Scenario {
            furnish: with_chains,
            command: &["compact"],
            touches: &[
                LEDGER,
                "memory/ledger-archive-2026.jsonl",
                "memory/archive/*",
                "memory/integrity.json",
                "memory/checkpoint.json",
            ],
            done: |root| {
                let (ledger, archive) =
                    (text(root, LEDGER), text(root, "memory/ledger-archive-2026.jsonl"));
                !ledger.contains("The budget is 500 EUR")
                    // A run that died after it archived the line archives it again; it counts once.
                    && archive.contains("The budget is 500 EUR")
                    && ledger.contains("Never deploy")
                    && ledger.matches("Done: Send the offer").count() == 1
            },
            ..plain
        },
        "migrate" => Scenario {
            furnish: |vault| {
                some_events(vault);
                vault.write("memory.md", "- Never send mail on Sundays\n");
                vault.write("briefing.md", "stale\n");
            },
            command: &["migrate", "."],
            adds: Some("Never send mail on Sundays"),
            touches: &[LEDGER, "memory.md", "briefing.md", "memory/archive/*"],
            done: |root| {
                !root.join("memory.md").exists()
                    && text(root, "memory/archive/migrated/memory.md").contains("Never send mail")
                    && text(root, "memory/archive/migrated/briefing.md") == "stale\n"
            },
            ..plain
        },
        "mark" => Scenario {
            command: &["summary", "mark", "2026-02-12", "important"],
            touches: &["memory/marks.jsonl"],
            done: |root| text(root, "memory/marks.jsonl").contains("\"date\":\"2026-02-12\""),
            ..plain
        },
        "hook_stop" => Scenario {
            command: &["hook", "stop"],
            input: r#"{"session_id":"s1","cwd":"{HOME}","last_assistant_message":"the boat is green"}"#,
            helped: true,
            touches: &["memory/messages/2026-02-13.jsonl"],
            done: |root| {
                text(root, "memory/messages/2026-02-13.jsonl").matches("the boat is green").count()
                    == 1
            },
            ..plain
        },
        "hook_subagent_stop" => Scenario {
            home: transcripts,
            command: &["hook", "subagent-stop"],
            input: r#"{"session_id":"s1","cwd":"{HOME}","agent_id":"x9","agent_transcript_path":"{HOME}/projects/-app/s1/subagents/agent-x9.jsonl","last_assistant_message":"four doors"}"#,
            helped: true,
            touches: &["memory/messages/2026-02-13.jsonl"],
            done: |root| {
                let kept = text(root, "memory/messages/2026-02-13.jsonl");
                ["four doors", "count the doors"].iter().all(|said| kept.matches(said).count() == 1)
            },
            ..plain
        },
        "hook_pre_compact" => Scenario {
            home: transcripts,
            command: &["hook", "pre-compact"],
            input: TOLD,
            helped: true,
            touches: &[
                "memory/messages/2026-02-13.jsonl",
                "memory/state/*",
                "memory/snapshots/*",
                "memory/summaries/24hr.md",
            ],
            done: |root| {
                let kept = text(root, "memory/messages/2026-02-13.jsonl");
                ["paint the boat", "it is painted"]
                    .iter()
                    .all(|said| kept.matches(said).count() == 1)
                    && text(root, "memory/state/assistant-state.md").contains("paint the boat")
            },
            ..plain
        },
        "hook_session_end" => Scenario {
            home: transcripts,
            command: &["hook", "session-end"],
            input: TOLD,
            helped: true,
            touches: CONSOLIDATED,
            // The guarantee is that the session will be read: by the process that was started, or
            // by that of the next session.
            done: |root| {
                let ended = fs::read_dir(root.join(".icecore/notes/hooks/ended"))
                    .map_or(0, Iterator::count)
                    > 0;
                let noted = fs::read_dir(root.join(".icecore/notes/hooks/sessions"))
                    .into_iter()
                    .flatten()
                    .flatten();
                let unread = noted
                    .map(|note| fs::read_to_string(note.path()).unwrap())
                    .any(|note| note.contains("\"finished\":false"));
                ended || unread || all_of_the_session(root)
            },
            ..plain
        },
        "import_claude" => Scenario {
            home: transcripts,
            command: &["import", "{HOME}/projects"],
            touches: &["memory/messages/*", "memory/imports.jsonl"],
            done: all_of_the_session,
            ..plain
        },
        "install" => Scenario {
            home: settings,
            command: &["install", "claude-code", "--yes"],
            touches: &[],
            done: |root| {
                let home = home_of(root);
                [".claude/settings.json", ".claude.json"]
                    .iter()
                    .all(|file| text(&home, file).contains("icecore"))
                    && text(&home, ".claude/settings.json").contains("// mine")
            },
            ..plain
        },
        "uninstall" => Scenario {
            home: settings,
            before: &["install", "claude-code", "--yes"],
            command: &["uninstall", "claude-code", "--yes"],
            touches: &[],
            done: |root| {
                text(&home_of(root), ".claude/settings.json") == SETTINGS
                    && !home_of(root).join(".claude.json").exists()
            },
            ..plain
        },
        "memory_tool" => Scenario {
            furnish: |vault| {
                some_events(vault);
                let first = r#"{"command":"create","path":"/memories/boat.md","file_text":"the boat is red"}"#;
                assert_eq!(vault.feed(&["memory-tool"], first.as_bytes()).code, Some(0));
            },
            command: &["memory-tool"],
            input: r#"{"command":"create","path":"/memories/green.md","file_text":"the boat is green"}"#,
            touches: &["memory/tool/*", "memory/tool-versions/*"],
            done: |root| {
                fs::read_to_string(root.join("memory/tool/green.md"))
                    .is_ok_and(|text| text.trim_end() == "the boat is green")
            },
            ..plain
        },
        "forget" => Scenario {
            furnish: |vault| {
                with_messages(vault);
                vault.remember(&["The boat is painted, and that is a secret", "--entity", "boat"]);
                vault.ok(&["rollup", "due"]);
                vault.ok(&["search", "boat"]);
            },
            command: &["forget", "--matching", "the boat is painted", "--yes"],
            touches: &["*"],
            loses: Some("the boat is painted"),
            done: |root| {
                let found = bare("grep")
                    .args(["-rli", "--exclude-dir=.git", "the boat is painted"])
                    .arg(root)
                    .output()
                    .unwrap();
                found.stdout.is_empty()
            },
            ..plain
        },
        "quarantine_confirm" => Scenario {
            furnish: |vault| {
                some_events(vault);
                vault.remember(&["The page says that the boat is green", "--origin", "tool"]);
            },
            command: &["quarantine", "confirm", "20260213-4", "--note", "seen by me"],
            adds: Some("seen by me"),
            again: &[0, 3, 4],
            ..plain
        },
        "quarantine_drop" => Scenario {
            furnish: |vault| {
                some_events(vault);
                vault.remember(&["The page says that the boat is green", "--origin", "tool"]);
            },
            command: &["quarantine", "drop", "20260213-4", "--note", "not so"],
            adds: Some("not so"),
            again: &[0, 3, 4],
            ..plain
        },
        "pause" => Scenario {
            command: &["pause", "--for", "1h"],
            touches: &["memory/pauses.jsonl"],
            done: |root| {
                text(root, "memory/pauses.jsonl")
                    .contains("\"until\":\"2026-02-13T10:30:00+01:00\"")
            },
            ..plain
        },
        "merge" => Scenario {
            furnish: from_two_machines,
            command: &["merge"],
            touches: &["*"],
            reorders: true,
            done: |root| {
                let ledger = text(root, LEDGER);
                ["said here", "said there", "said on both", "500 EUR"]
                    .iter()
                    .all(|said| ledger.matches(said).count() == 1)
            },
            ..plain
        },
        // git's own processes included, with ids that both machines assigned and text that one of
        // them has forgotten.
        "merge_clash" => Scenario {
            furnish: |vault| two_machines(vault, true),
            command: &["merge"],
            helped: true,
            touches: &["*"],
            reorders: true,
            loses: Some("first line"),
            done: |root| {
                let ledger = text(root, LEDGER);
                let log = text(root, "memory/2026-02-13.md");
                ["said here", "said there", "said on both", "500 EUR"]
                    .iter()
                    .all(|said| ledger.matches(said).count() == 1)
                    && ["bought a map", "bought a lamp"]
                        .iter()
                        .all(|said| log.matches(said).count() == 1)
                    && !log.contains("first line")
            },
            same: true,
            ..plain
        },
        "forget_history" => Scenario {
            furnish: |vault| {
                some_events(vault);
                vault.remember(&["The boat is painted, and that is a secret", "--entity", "boat"]);
                vault.ok(&["snapshot"]);
                vault.ok(&["log", "second line"]);
                vault.ok(&["snapshot"]);
            },
            command: &["forget", "--matching", "the boat is painted", "--history", "--yes"],
            helped: true,
            touches: &["*"],
            loses: Some("the boat is painted"),
            done: |root| {
                let past =
                    bare("git").current_dir(root).args(["log", "--all", "-p"]).output().unwrap();
                let found =
                    bare("grep").args(["-rliq", "the boat is painted"]).arg(root).status().unwrap();
                !String::from_utf8_lossy(&past.stdout).contains("boat is painted")
                    && !found.success()
                    && commits(root) >= 3
            },
            same: true,
            ..plain
        },
        "prune" => Scenario {
            furnish: with_chains,
            command: &["prune"],
            touches: &[
                LEDGER,
                "memory/archive/*",
                "memory/integrity.json",
                "memory/checkpoint.json",
            ],
            done: |root| {
                let (ledger, archive) =
                    (text(root, LEDGER), text(root, "memory/archive/2026-Q1.jsonl"));
                !ledger.contains("The budget is 500 EUR")
                    && archive.matches("The budget is 500 EUR").count() == 1
                    && archive.matches("\"archived\"").count() == 1
            },
            same: true,
            ..plain
        },
        other => panic!("no scenario {other}"),
    }
}

/// A client's payload for a session whose transcript is in that home directory.
const TOLD: &str = r#"{"session_id":"s1","cwd":"{HOME}","transcript_path":"{HOME}/projects/-app/s1.jsonl","trigger":"auto","reason":"other"}"#;

/// A session of Claude Code with a subagent.
fn transcripts(home: &Path) {
    let folder = Path::new("/nowhere/app");
    let said = |text: &str| serde_json::json!([{ "type": "text", "text": text }]);
    let side = |line: String| {
        line.replace("\"isSidechain\":false", "\"isSidechain\":true,\"agentId\":\"x9\"")
    };
    let project = home.join("projects/-app");
    fs::create_dir_all(project.join("s1/subagents")).unwrap();
    let talk = line("s1", folder, "08:00:00", "u1", "user", "paint the boat".into())
        + &line("s1", folder, "08:01:00", "a1", "assistant", said("it is painted"));
    fs::write(project.join("s1.jsonl"), talk).unwrap();
    let helper = side(line("s1", folder, "08:00:30", "h1", "user", "count the doors".into()))
        + &side(line("s1", folder, "08:00:40", "h2", "assistant", said("four doors")));
    fs::write(project.join("s1/subagents/agent-x9.jsonl"), helper).unwrap();
}

/// Whether all of its messages were recorded, each once.
fn all_of_the_session(root: &Path) -> bool {
    let kept = text(root, "memory/messages/2026-02-13.jsonl");
    ["paint the boat", "it is painted", "count the doors", "four doors"]
        .iter()
        .all(|said| kept.matches(said).count() == 1)
}

/// A user's own settings.
const SETTINGS: &str = "{\n  // mine\n  \"model\": \"opus\",\n  \"hooks\": {}\n}\n";

fn settings(home: &Path) {
    fs::create_dir_all(home.join(".claude")).unwrap();
    fs::write(home.join(".claude/settings.json"), SETTINGS).unwrap();
}

/// A vault that has diverged from another machine's, and knows it.
fn from_two_machines(vault: &Vault) {
    two_machines(vault, false);
}

/// Like the vault above; with `forgets`, the other machine has forgotten something, and both have
/// logged.
fn two_machines(vault: &Vault, forgets: bool) {
    let git = |folder: &Path, arguments: &[&str]| {
        let own = [
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.com",
            "-c",
            "init.defaultBranch=main",
        ];
        let said = command_output(
            bare("git").current_dir(folder).args(own).args(arguments).output().unwrap(),
        );
        assert_eq!(said.code, Some(0), "git {arguments:?}: {said:?}");
    };
    some_events(vault);
    vault.ok(&["snapshot"]);
    let folder = TempDir::new().unwrap();
    let between = folder.path().join("between.git");
    git(folder.path(), &["init", "-q", "--bare", "between.git"]);
    git(&vault.root, &["remote", "add", "origin", between.to_str().unwrap()]);
    git(&vault.root, &["push", "-q", "-u", "origin", "main"]);
    git(folder.path(), &["clone", "-q", "between.git", "two"]);
    let two = Vault::at_root(folder.path().join("two"));
    assert_eq!(
        command_output(
            bare(program()).args(["init", two.root.to_str().unwrap()]).output().unwrap()
        )
        .code,
        Some(0)
    );
    // The same ids for different events, the same event on both, and lines of the same day.
    two.remember(&["said there", "--entity", "pier"]);
    two.remember(&["said on both"]);
    two.ok(&["log", "bought a map"]);
    two.ok(&["message", "add", "a message from there", "--id", "t1"]);
    if forgets {
        two.ok(&["forget", "--matching", "first line", "--yes"]);
        two.ok(&["consolidate"]);
        vault.ok(&["log", "bought a lamp"]);
    }
    two.ok(&["snapshot"]);
    git(&two.root, &["push", "-q"]);
    vault.remember(&["said here", "--entity", "harbour"]);
    vault.ok(&["message", "add", "a message from here", "--id", "h1"]);
    git(&vault.root, &["fetch", "-q"]);
}

/// The home directory next to a vault.
fn home_of(root: &Path) -> PathBuf {
    root.parent().unwrap().join("home")
}

/// The program in a vault, with that home directory.
fn start(command: &mut Command, root: &Path, arguments: &[&str]) {
    let home = home_of(root).to_str().unwrap().to_owned();
    command.args(["--vault", root.to_str().unwrap(), "--now", NOW, "--json"]);
    command.args(arguments.iter().map(|argument| argument.replace("{HOME}", &home)));
    // Files that a command imports are named relative to the vault.
    command.env("HOME", &home).current_dir(if root.is_dir() { root } else { Path::new("/") });
}

/// Runs a command with standard input.
fn run_with_input(mut command: Command, root: &Path, input: &str) -> CommandOutput {
    let input = input.replace("{HOME}", home_of(root).to_str().unwrap());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("./test installs strace");
    // A program that is killed early does not read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    command_output(child.wait_with_output().unwrap())
}

/// A run of the program under strace.
fn strace(root: &Path, scenario: &Scenario, options: &[String], log: &Path) -> CommandOutput {
    let mut command = bare("strace");
    command
        .args(["-qq", "-y", "-o"])
        .arg(log)
        .arg("-e")
        .arg(format!("trace={CALLS}"))
        .args(options);
    if scenario.helped {
        command.arg("-f");
    }
    command.arg("--").arg(program());
    start(&mut command, root, scenario.command);
    run_with_input(command, root, scenario.input)
}

/// One system call of a run: its name, and its number among the calls of that name, which is how
/// strace counts.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Point {
    call: String,
    ordinal: usize,
}

/// The traced calls that touch the vault or the home directory next to it, in order. Several
/// threads and processes count separately, and a fault hits the one that gets there first.
fn points(log: &Path, folder: &Path) -> Vec<Point> {
    let text = fs::read(log).unwrap();
    let text = String::from_utf8_lossy(&text);
    let folder = format!("{}/", folder.to_str().unwrap());
    let mut seen: HashMap<(String, String), usize> = HashMap::new();
    let mut found = Vec::new();
    for line in text.lines() {
        // With several, a line begins with the process id.
        let who: String = line.chars().take_while(char::is_ascii_digit).collect();
        let line = line[who.len()..].trim_start();
        if line.starts_with("---") || line.starts_with("+++") || line.starts_with("<...") {
            continue;
        }
        let Some((call, _)) = line.split_once('(') else { continue };
        let ordinal = seen.entry((who, call.to_owned())).or_default();
        *ordinal += 1;
        let point = Point { call: call.to_owned(), ordinal: *ordinal };
        if line.contains(&folder) && !found.contains(&point) {
            found.push(point);
        }
    }
    found
}

/// Whether strace made a write to that descriptor fail.
fn is_failed_write(log: &Path, descriptor: u8) -> bool {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    // Whose write to it has begun: with several threads, its end may be a line of its own.
    let mut begun: Vec<&str> = Vec::new();
    for line in text.lines() {
        let call = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let who = &line[..line.len() - call.len()];
        let call = call.trim_start();
        let is_its_end = call.starts_with("<... write resumed") && begun.contains(&who);
        begun.retain(|other| *other != who);
        if call.starts_with(&format!("write({descriptor}<")) || is_its_end {
            if call.contains("(INJECTED)") {
                return true;
            }
            begun.push(who);
        }
    }
    false
}

/// What is wrong with the files of a home: each is what it was, or what it is after the command,
/// and never anything between.
fn torn_at_home(before: &Path, after: &Path, now: &Path) -> Vec<String> {
    let (before, after, now): (HashMap<_, _>, HashMap<_, _>, HashMap<_, _>) = (
        files(before).into_iter().collect(),
        files(after).into_iter().collect(),
        files(now).into_iter().collect(),
    );
    let mut wrong = Vec::new();
    for (path, bytes) in &now {
        // A file that was not renamed into place yet is next to it under another name.
        let known = before.contains_key(path) || after.contains_key(path);
        if known && before.get(path) != Some(bytes) && after.get(path) != Some(bytes) {
            wrong.push(format!(
                "{path} is neither what it was nor what it is to be: {}",
                String::from_utf8_lossy(bytes)
            ));
        }
    }
    for path in before.keys().filter(|path| after.contains_key(*path) && !now.contains_key(*path)) {
        wrong.push(format!("{path} is gone"));
    }
    wrong
}

fn full() -> bool {
    std::env::var("ICECORE_SWEEP").is_ok_and(|mode| mode == "full")
}

/// Every point in a full sweep; in a sample, a handful spread over all of them.
fn sample(points: &[Point], most: usize) -> Vec<Point> {
    if full() || points.len() <= most {
        return points.to_vec();
    }
    (0..most).map(|at| points[at * points.len() / most].clone()).collect()
}

/// The files of a vault with their bytes, except derived, private and git files.
fn files(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if name == ".git" || name == ".icecore" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((
                    path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(),
                    fs::read(&path).unwrap(),
                ));
            }
        }
    }
    found.sort();
    found
}

fn may_touch(scenario: &Scenario, path: &str) -> bool {
    scenario.touches.iter().any(|touched| match *touched {
        "*" => true,
        "*integrity" => INTEGRITY.contains(&path),
        other => other.strip_suffix('*').map_or(other == path, |folder| path.starts_with(folder)),
    })
}

/// Looks at a vault after something happened to it, and gives every violation of the contract a
/// line.
///
/// `fault` is what strace wrote of a run in which a call failed.
fn violations(
    scenario: &Scenario,
    golden: &Path,
    root: &Path,
    first: &CommandOutput,
    fault: Option<&Path>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let is_silenced = fault.is_some_and(|log| is_failed_write(log, 2));
    let fault = fault.is_some();
    let call = |arguments: &[&str]| {
        let mut command = bare(program());
        start(&mut command, root, arguments);
        run_with_input(command, root, scenario.input)
    };
    let is_hook = scenario.command[0] == "hook";
    if is_hook && first.code == Some(2) {
        wrong.push(format!("a client would take that for an order: {first:?}"));
    }
    // A hook never fails, but it notes what it could not do, or says it in its answer. Where the
    // answer itself could not be written, nobody was told that it is done. What a client hands over
    // is there or waits in a note, unless the answer says that it is lost: a trouble is no excuse.
    let told = first.out.contains("systemMessage") || fault && !first.out.contains('{');
    let hands_over = matches!(scenario.command, ["hook", "stop" | "subagent-stop"]);
    let troubles =
        fs::read_to_string(root.join(".icecore/notes/hooks/troubles.jsonl")).unwrap_or_default();
    let noted = is_hook && (told || !hands_over && !troubles.is_empty());
    // A reader that could not take something in says so; that is no acknowledgement of it.
    let acknowledged = first.code == Some(0)
        && !noted
        && !first.err.contains("warning:")
        && !first.out.contains("\"complaints\":[\"");
    let is_error = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).is_ok_and(|told| told["error"].is_object())
    };
    // Where several threads are followed, the fault may hit the very line that tells of it too.
    let says_error = first.err.lines().any(is_error) || is_silenced;
    if fault && first.code.is_some_and(|code| code != 0) && !says_error {
        // The dynamic loader fails before the program begins; it has words of its own.
        if !first.err.contains("shared libraries") && !first.out.contains("\"ok\":false") {
            wrong.push(format!("it failed without an error: {first:?}"));
        }
    }
    if scenario.command[0] == "init" && !root.join("icecore.toml").exists() {
        if acknowledged {
            wrong.push("acknowledged, and there is no vault".into());
        }
    } else {
        // Existing files are unchanged, byte for byte.
        for (path, bytes) in
            files(golden).into_iter().filter(|(path, _)| !may_touch(scenario, path))
        {
            if fs::read(root.join(&path)).ok().as_ref() != Some(&bytes) {
                wrong.push(format!("{path} changed"));
            }
        }
        let text = fs::read(root.join(LEDGER)).unwrap_or_default();
        let before = fs::read(golden.join(LEDGER)).unwrap_or_default();
        let whole = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        if acknowledged && is_hook && !(scenario.done)(root) {
            // What could not be written waits in a note for the next hook, of any session.
            let mut command = bare(program());
            start(&mut command, root, &["hook", "session-start"]);
            run_with_input(
                command,
                root,
                r#"{"session_id":"another","cwd":"{HOME}","source":"startup"}"#,
            );
        }
        if acknowledged
            && hands_over
            && !(scenario.done)(root)
            && troubles.contains("transcript")
            && troubles.contains("was not read")
        {
            // A transcript that could not be read is read when its session ends.
            let mut command = bare(program());
            start(&mut command, root, &["hook", "session-end"]);
            run_with_input(command, root, TOLD);
            is_settled_within(&Vault::at_root(root.to_owned()), 200);
        }
        if acknowledged && !(scenario.done)(root) {
            wrong.push("acknowledged, and not done".into());
        }
        // A log only grows.
        let log = "memory/2026-02-13.md";
        let grew = fs::read(root.join(log))
            .unwrap_or_default()
            .starts_with(&fs::read(golden.join(log)).unwrap_or_default());
        let stays =
            |line: &&str| !scenario.loses.is_some_and(|words| line.to_lowercase().contains(words));
        let now = self::text(root, log);
        let kept = self::text(golden, log)
            .lines()
            .filter(stays)
            .all(|line| now.lines().any(|known| known == line));
        if !(grew || scenario.reorders && kept) {
            wrong.push("the log lost what it had".into());
        }
        let said = |text: &[u8]| String::from_utf8_lossy(text).matches("\"content\"").count();
        if scenario.command[0] == "doctor" && said(&text) + 1 < said(&before) {
            wrong.push("doctor lost an event".into());
        }
        // Lines that leave the ledger are in the archive, unchanged.
        let kept = String::from_utf8_lossy(&text).into_owned()
            + &self::text(root, "memory/ledger-archive-2026.jsonl");
        let lines = String::from_utf8_lossy(&before[..whole]).into_owned();
        let goes =
            |line: &str| scenario.loses.is_some_and(|words| line.to_lowercase().contains(words));
        let content = |line: &str| {
            serde_json::from_str::<serde_json::Value>(line)
                .map_or(String::new(), |line| line["content"].to_string())
        };
        let lost = match scenario.command[0] {
            "doctor" => false,
            "compact" | "prune" => {
                let kept = kept.clone() + &self::text(root, "memory/archive/2026-Q1.jsonl");
                !lines.lines().all(|line| kept.contains(line))
            }
            _ if scenario.reorders => {
                !lines.lines().all(|line| goes(line) || kept.matches(&content(line)).count() == 1)
            }
            _ if scenario.loses.is_some() => {
                !lines.lines().all(|line| goes(line) || kept.contains(line))
            }
            _ => !text.starts_with(&before[..whole]),
        };
        if lost {
            wrong.push("the ledger lost what it had".into());
        }
        let added = |text: &[u8]| {
            scenario.adds.map(|adds| String::from_utf8_lossy(text).matches(adds).count())
        };
        match added(&text) {
            Some(0) if acknowledged => wrong.push("acknowledged, and not there".into()),
            Some(many) if many > 1 => wrong.push(format!("there {many} times")),
            Some(1)
                if fault
                    && first.code.is_some_and(|code| code != 0)
                    && fs::read(root.join(LEDGER)).is_ok_and(|text| text.ends_with(b"\n"))
                    && scenario.command[0] == "remember" =>
            {
                wrong.push("refused, and there all the same".into());
            }
            _ => {}
        }
        if scenario.command[0] != "doctor" {
            let verified = call(&["verify"]);
            // What was begun and not finished, and says so; a repair finishes it. In a copy: the
            // command itself must finish it too.
            if matches!(scenario.command[0], "merge" | "forget") && verified.code != Some(0) {
                let other = root.parent().unwrap().join("other");
                let _ = fs::remove_dir_all(&other);
                fs::create_dir(&other).unwrap();
                let (mended, home) = (other.join("vault"), other.join("home"));
                copy(root, &mended);
                fs::create_dir(&home).unwrap();
                let mut command = bare(program());
                start(&mut command, &mended, &["doctor", "--fix"]);
                let said = run_with_input(command, &mended, "");
                if said.code != Some(0)
                    || !(scenario.done)(&mended) && scenario.command[0] == "merge"
                {
                    wrong.push(format!("doctor: {said:?}"));
                }
            }
            let known = matches!(scenario.command[0], "forget" | "merge")
                && !acknowledged
                && verified.out.contains(scenario.command[0]);
            if verified.code != Some(0) && !known {
                wrong.push(format!("verify: {verified:?}"));
            }
        }
    }
    let again = call(scenario.command);
    if scenario.command.ends_with(&["session-end"]) {
        // A hook has one second; on a busy machine the next session's end does it.
        let vault = Vault::at_root(root.to_owned());
        let _ = (0..5)
            .any(|_| is_settled_within(&vault, 200) || call(scenario.command).code != Some(0));
        if !all_of_the_session(root) {
            wrong.push(format!(
                "given again, and not read: {}",
                text(root, "memory/messages/2026-02-13.jsonl")
            ));
        }
    }
    // An undo that was acknowledged is undone by the second one; a log line is there twice.
    let unheard = first.code.is_none_or(|code| code == 0)
        || first.err.contains("the output could not be written");
    let repeats = acknowledged || unheard && scenario.command[0] == "log";
    if again.code == Some(0)
        && !(repeats && matches!(scenario.command[0], "undo" | "log" | "save-state"))
        && !(scenario.done)(root)
    {
        wrong.push("given again, and not done".into());
    }
    if !again.code.is_some_and(|code| scenario.again.contains(&code)) {
        wrong.push(format!("given again: {again:?}"));
    }
    let verified = call(&["verify"]);
    if verified.code != Some(0) {
        wrong.push(format!("verify after giving it again: {verified:?}"));
    }
    if scenario.command[0] != "remember" && scenario.command[0] != "confirm" {
        let text = fs::read(root.join(LEDGER)).unwrap_or_default();
        if let Some(adds) = scenario.adds
            && String::from_utf8_lossy(&text).matches(adds).count() != 1
        {
            wrong.push("given again, it is not there exactly once".into());
        }
    }
    wrong
}

/// Runs one scenario with one kind of fault at each of its points.
fn sweep(name: &str, kinds: &[&str], most: usize) {
    let scenario = scenario(name);
    let vault = Vault::new();
    (scenario.furnish)(&vault);
    let golden = vault.root.clone();
    let folder = TempDir::new().unwrap();
    let (root, log) = (folder.path().join("vault"), folder.path().join("log"));
    let (mut count, mut wrong) = (0, Vec::new());
    // The integrity record lists every run.
    let settled = |root: &Path| -> Vec<(String, Vec<u8>)> {
        files(root)
            .into_iter()
            .filter(|(path, _)| {
                !INTEGRITY.contains(&path.as_str()) && !path.ends_with("checkpoint.json")
            })
            .collect()
    };
    let (home, before, after) =
        (home_of(&root), folder.path().join("before"), folder.path().join("after"));
    let reset = || {
        let _ = fs::remove_dir_all(&root);
        let _ = fs::remove_dir_all(&home);
        fs::create_dir(&home).unwrap();
        (scenario.home)(&home);
        if golden.exists() {
            copy(&golden, &root);
            // The copy has other inodes; with the index up to date, the command takes its usual
            // path.
            let mut look = bare(program());
            look.args([
                "--vault",
                root.to_str().unwrap(),
                "--now",
                NOW,
                "show",
                "20260213-1",
                "-q",
            ]);
            let _ = look.output();
        }
        if !scenario.before.is_empty() {
            let mut first = bare(program());
            start(&mut first, &root, scenario.before);
            assert_eq!(run_with_input(first, &root, "").code, Some(0));
        }
    };
    reset();
    copy(&home, &before);
    let undisturbed = strace(&root, &scenario, &[], &log);
    assert_eq!(undisturbed.code, Some(0), "{name}: {undisturbed:?}");
    let all = points(&log, folder.path());
    assert_eq!(
        violations(&scenario, &golden, &root, &undisturbed, None),
        [] as [String; 0],
        "{name}, undisturbed"
    );
    let expected = settled(&root);
    copy(&home, &after);
    assert!(all.len() > 3, "{name} touches the vault {} times", all.len());
    for fault in kinds {
        for Point { call, ordinal } in sample(&all, most) {
            reset();
            let inject = format!("inject={call}:{fault}:when={ordinal}");
            let first = strace(&root, &scenario, &["-e".into(), inject], &log);
            count += 1;
            let mut found = torn_at_home(&before, &after, &home);
            found.extend(violations(
                &scenario,
                &golden,
                &root,
                &first,
                (!fault.starts_with("signal")).then_some(log.as_path()),
            ));
            // Repeated, it leaves the same as an undisturbed run.
            found.extend(torn_at_home(&after, &after, &home));
            if scenario.same {
                let now = settled(&root);
                let other = |(path, bytes): &&(String, Vec<u8>)| {
                    !now.iter().any(|(known, text)| known == path && text == bytes)
                };
                found.extend(expected.iter().filter(other).map(|(path, bytes)| {
                    let (now, then) =
                        (text(&root, path), String::from_utf8_lossy(bytes).into_owned());
                    format!("{path} is not what an undisturbed run leaves:\n{now}\nbut\n{then}")
                }));
            }
            wrong.extend(
                found
                    .into_iter()
                    .map(|found| format!("{name}, {fault} at {call} {ordinal}: {found}")),
            );
        }
    }
    if full() {
        let line = format!("{name}: {count} points, {} violations\n", wrong.len());
        let report = std::env::var_os("ICECORE_SWEEP_REPORT");
        if let Some(mut file) =
            report.and_then(|path| fs::OpenOptions::new().create(true).append(true).open(path).ok())
        {
            file.write_all(line.as_bytes()).unwrap();
        }
    }
    assert_eq!(wrong, [] as [String; 0], "{} violations at {count} points", wrong.len());
}

const KILL: &[&str] = &["signal=SIGKILL"];
const FAULTS: &[&str] = &["error=EIO", "error=ENOSPC"];
const MORE_FAULTS: &[&str] =
    &["error=EIO", "error=ENOSPC", "error=EDQUOT", "error=EROFS", "error=EMFILE", "error=EINTR"];

fn faults() -> &'static [&'static str] {
    if full() { MORE_FAULTS } else { FAULTS }
}

/// Each scenario is two tests, so that they run in parallel.
macro_rules! scenarios {
    ($($name:ident)+; $($other:ident)+) => {
        // L2, L12
        mod killed {
            $(#[test] fn $name() { super::sweep(stringify!($name), super::KILL, 25); })+
            $(#[test] fn $other() { super::sweep(stringify!($other), super::KILL, 8); })+
        }
        // L2, L12
        mod faulty {
            $(#[test] fn $name() { super::sweep(stringify!($name), super::faults(), 8); })+
            $(#[test] fn $other() { super::sweep(stringify!($other), super::faults(), 3); })+
        }
    };
}

// Those after the semicolon have fewer points in a sample: they write by the same functions, and
// each takes longer.
scenarios! {
    init remember_first remember remember_torn supersede close confirm retract log log_first extracts commitments verify doctor reindex snapshot undo
    message state session_add import rollup mark consolidate compact migrate;
    hook_stop hook_subagent_stop hook_pre_compact hook_session_end import_claude install uninstall memory_tool forget quarantine_confirm
    quarantine_drop pause merge merge_clash forget_history prune
}

// L16: git itself dies, at each of the calls that a snapshot or an undo makes
#[test]
fn a_git_that_dies_leaves_a_vault_that_can_go_on() {
    let real =
        String::from_utf8(bare("sh").args(["-c", "command -v git"]).output().unwrap().stdout)
            .unwrap();
    let cases = [
        ("snapshot", false),
        ("snapshot", true),
        ("undo", false),
        ("undo", true),
        ("merge", false),
        ("merge", true),
    ];
    for (command, after_work) in cases {
        let golden = Vault::new();
        if command == "merge" {
            from_two_machines(&golden)
        } else {
            with_snapshot(&golden)
        };
        // A merge calls git many times.
        let step = if command == "merge" && !full() { 9 } else { 1 };
        for call in (1..200).step_by(step) {
            let folder = TempDir::new().unwrap();
            let vault = Vault::at_root(folder.path().join("vault"));
            copy(&golden.root, &vault.root);
            let count = folder.path().join("count");
            let script = format!(
                "#!/bin/sh\nn=$(($(cat '{0}' 2>/dev/null || echo 0) + 1)); echo $n > '{0}'\nif [ $n -eq {call} ]; then {1} kill -9 $$; fi\nexec {2} \"$@\"\n",
                count.display(),
                if after_work { format!("{} \"$@\";", real.trim()) } else { String::new() },
                real.trim()
            );
            fs::write(folder.path().join("git"), script).unwrap();
            assert!(
                Command::new("chmod")
                    .arg("+x")
                    .arg(folder.path().join("git"))
                    .status()
                    .unwrap()
                    .success()
            );
            let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
            let first =
                command_output(vault.command(&[command]).env("PATH", path).output().unwrap());
            let calls: usize = fs::read_to_string(&count).unwrap().trim().parse().unwrap();
            let verified = vault.run(&["verify"]);
            assert!(
                verified.code == Some(0) || command == "merge" && verified.out.contains("merge"),
                "{command} {call}: {first:?} {verified:?}"
            );
            let said = if command == "merge" { "said here" } else { "after the snapshot" };
            assert_eq!(vault.read(LEDGER).matches(said).count(), 1, "{command} {call}: {first:?}");
            let again = vault.run(&[command]);
            assert_eq!(again.code, Some(0), "{command} {call}: {again:?}");
            if command == "merge" {
                assert!(
                    (scenario("merge").done)(&vault.root),
                    "{call}: {first:?} {again:?}\n{}",
                    vault.read(LEDGER)
                );
                assert_eq!(
                    vault.run(&["verify"]).code,
                    Some(0),
                    "{call}: {:?}",
                    vault.run(&["verify"])
                );
            }
            if calls < call {
                assert_eq!(first.code, Some(0), "{command} {call}: {first:?}");
                break;
            }
        }
    }
}

// The system reports a partial write, and for `retval` not even that is true
#[test]
fn a_short_write_never_leaves_half_a_line() {
    for name in ["remember", "log", "commitments", "supersede"] {
        let scenario = scenario(name);
        let vault = Vault::new();
        (scenario.furnish)(&vault);
        let folder = TempDir::new().unwrap();
        let (root, log) = (folder.path().join("vault"), folder.path().join("log"));
        for point in 1..=4 {
            for taken in [0, 1, 7] {
                let _ = fs::remove_dir_all(&root);
                copy(&vault.root, &root);
                let first = strace(
                    &root,
                    &scenario,
                    &["-e".into(), format!("inject=write:retval={taken}:when={point}")],
                    &log,
                );
                let found = violations(&scenario, &vault.root, &root, &first, None);
                assert_eq!(found, [] as [String; 0], "{name}, {taken} bytes of write {point}");
            }
        }
    }
}

/// A command without a fault.
fn trace_run(root: &Path, command: &'static [&'static str], log: &Path) -> CommandOutput {
    strace(root, &Scenario { command, ..scenario("remember") }, &[], log)
}

// File, rename, folder, in that order
#[test]
fn a_file_is_flushed_before_it_is_renamed_and_its_folder_after() {
    let vault = Vault::new();
    some_events(&vault);
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    assert_eq!(trace_run(&vault.root, &["commitments"], &log).code, Some(0));
    let text = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = text.lines().collect();
    let at = |from: usize, wanted: &dyn Fn(&str) -> bool| {
        calls[from..]
            .iter()
            .position(|line| wanted(line))
            .map(|at| from + at)
            .unwrap_or_else(|| panic!("{text}"))
    };
    let rename = at(0, &|line| line.starts_with("rename") && line.contains("open-loops.json"));
    let temporary = calls[rename].split('"').nth(1).unwrap();
    let flush = at(0, &|line| line.starts_with("fsync(") && line.contains(temporary));
    let folder_flush =
        at(rename, &|line| line.starts_with("fsync(") && line.contains("/memory/index>"));
    assert!(flush < rename && rename < folder_flush);
    // A file that an append creates: its folder is flushed before anything is written into it.
    assert_eq!(
        trace_run(&vault.root, &["log", "x", "--now", "2026-03-01T09:00:00Z"], &log).code,
        Some(0)
    );
    let text = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = text.lines().collect();
    let first = |wanted: &dyn Fn(&str) -> bool| {
        calls.iter().position(|line| wanted(line)).unwrap_or_else(|| panic!("{text}"))
    };
    let made = first(&|line| {
        line.starts_with("openat") && line.contains("O_CREAT") && line.contains("2026-03-01.md")
    });
    let folder_flush = first(&|line| line.starts_with("fsync(") && line.contains("/memory>"));
    let written = first(&|line| line.starts_with("write(") && line.contains("2026-03-01.md"));
    let flushed = first(&|line| line.starts_with("fdatasync(") && line.contains("2026-03-01.md"));
    assert!(made < folder_flush && folder_flush < written && written < flushed, "{text}");
}

// L2: one line is one write, flushed before it is acknowledged
#[test]
fn a_remembered_line_is_one_write_and_one_flush_before_the_answer() {
    let vault = Vault::new();
    some_events(&vault);
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    assert_eq!(trace_run(&vault.root, &["remember", "x"], &log).code, Some(0));
    let text = fs::read_to_string(&log).unwrap();
    let calls: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("ledger.jsonl") || line.starts_with("write(1"))
        .collect();
    let names: Vec<&str> = calls
        .iter()
        .filter(|line| !line.starts_with("openat"))
        .map(|line| line.split('(').next().unwrap())
        .collect();
    assert_eq!(names, ["write", "fdatasync", "write"], "{calls:?}");
}

// What a client hands over does not depend on the note about its session
#[test]
fn a_subagents_words_are_kept_although_the_note_about_its_session_is_not() {
    let scenario = scenario("hook_subagent_stop");
    let vault = Vault::new();
    (scenario.furnish)(&vault);
    let folder = TempDir::new().unwrap();
    let (root, log) = (folder.path().join("vault"), folder.path().join("log"));
    for error in ["EIO", "ENOSPC"] {
        let _ = fs::remove_dir_all(&root);
        let _ = fs::remove_dir_all(home_of(&root));
        copy(&vault.root, &root);
        fs::create_dir(home_of(&root)).unwrap();
        (scenario.home)(&home_of(&root));
        let inject = format!("inject=rename:error={error}:when=1");
        let first = strace(&root, &scenario, &["-e".into(), inject], &log);
        let calls = fs::read_to_string(&log).unwrap();
        let failed = calls.lines().find(|line| line.contains("INJECTED"));
        assert!(failed.is_some_and(|call| call.contains("/hooks/sessions/")), "{calls}");
        assert!((scenario.done)(&root), "{error}: {first:?}");
        assert!(!first.out.contains("systemMessage"), "{error}: {first:?}");
    }
}

// Another process may replace the index at any moment
#[test]
fn an_index_that_cannot_be_read_once_is_opened_again() {
    let golden = Vault::new();
    some_events(&golden);
    let folder = TempDir::new().unwrap();
    let (root, log) = (folder.path().join("vault"), folder.path().join("log"));
    let verify = |options: &[&str]| {
        let _ = fs::remove_dir_all(&root);
        copy(&golden.root, &root);
        let mut command = bare("strace");
        command.args(["-qq", "-y", "-o"]).arg(&log).args(["-e", "trace=pread64"]).args(options);
        command.arg("--").arg(program());
        start(&mut command, &root, &["verify"]);
        run_with_input(command, &root, "")
    };
    assert_eq!(verify(&[]).code, Some(0));
    let calls = fs::read_to_string(&log).unwrap();
    let is_index = |call: &str| call.contains("/index.db>") || call.contains("/index.db-wal>");
    let reads: Vec<usize> =
        (1..).zip(calls.lines()).filter(|(_, call)| is_index(call)).map(|(at, _)| at).collect();
    assert!(reads.len() > 4, "{calls}");
    for at in reads.into_iter().take(if full() { 100 } else { 6 }) {
        let said = verify(&["-e", &format!("inject=pread64:error=EIO:when={at}")]);
        assert!(fs::read_to_string(&log).unwrap().contains("(INJECTED)"), "{at}");
        assert_eq!(said.code, Some(0), "{at}: {said:?}");
    }
}

// An error that is cut short is no error that a program can read
#[test]
fn an_error_is_one_write() {
    let vault = Vault::new();
    some_events(&vault);
    let folder = TempDir::new().unwrap();
    let log = folder.path().join("log");
    let first = trace_run(&vault.root, &["show", "20260213-99"], &log);
    assert_eq!(first.code, Some(3), "{first:?}");
    let error: serde_json::Value = serde_json::from_str(&first.err).unwrap();
    assert!(error["error"]["message"].is_string(), "{error}");
    let calls = fs::read_to_string(&log).unwrap();
    assert_eq!(calls.lines().filter(|call| call.starts_with("write(2<")).count(), 1, "{calls}");
}

// A disk that is really full
#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_recovers() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("script.sh");
    let body = r#"
set -eu
mount -t tmpfs -o size=4m,mode=700 none "$1"
V="$1/vault"; I="$2 --vault $V"
$2 init "$V" --tz UTC -q
head -c 2000000 /dev/zero > "$1/ballast"
n=0; code=0
text=$(head -c 3000 /dev/zero | tr '\0' x)
while [ $n -lt 2000 ]; do
  set +e; $I remember "$n $text" -q > "$1.out" 2> "$1.err"; code=$?; set -e
  [ $code -eq 0 ] || break
  n=$((n + 1))
done
echo "acknowledged $n"
echo "refused with $code"
cat "$1.err"
echo "readable: $($I events --json -q 2>/dev/null | tr '{' '\n' | grep -c '"content"')"
$I status -q > /dev/null; echo "status $?"
rm "$1/ballast"
$I remember "room again" -q > /dev/null; echo "recovered $?"
$I verify -q > /dev/null; echo "verified $?"
echo "now: $($I events --json -q | tr '{' '\n' | grep -c '"content"')"
"#;
    fs::write(&script, body).unwrap();
    let mount = folder.path().join("mount");
    fs::create_dir(&mount).unwrap();
    let root = Command::new("id").arg("-u").output().unwrap().stdout.starts_with(b"0\n");
    let mut command = bare("unshare");
    command.arg(if root { "-m" } else { "-rm" }).arg("sh").arg(&script).arg(&mount).arg(program());
    let said = command_output(command.output().unwrap());
    let number = |label: &str| -> usize {
        let line = said
            .out
            .lines()
            .find(|line| line.starts_with(label))
            .unwrap_or_else(|| panic!("no `{label}`: {said:?}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    assert!(number("acknowledged") > 50, "{said:?}");
    assert_eq!(number("refused with"), 75, "{said:?}");
    assert!(said.out.contains("the disk is full; nothing was written"), "{said:?}");
    assert_eq!(number("readable:"), number("acknowledged"), "{said:?}");
    assert_eq!((number("status"), number("recovered"), number("verified")), (0, 0, 0), "{said:?}");
    assert_eq!(number("now:"), number("acknowledged") + 1, "{said:?}");
}
