//! Imports from other programs: every format, broken and hostile files, interrupted runs.

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use zip::write::SimpleFileOptions;

use crate::program::{CommandOutput, Vault, command_output};

/// A folder with files to import.
struct ImportFolder {
    folder: TempDir,
}

impl ImportFolder {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn lines(&self, name: &str, lines: &[Value]) -> String {
        self.put(name, lines.iter().map(|line| format!("{line}\n")).collect::<String>())
    }
}

fn zip_files(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// Every message of a vault, without its capture time.
fn messages(vault: &Vault) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    let mut files: Vec<PathBuf> = fs::read_dir(vault.path("memory/messages"))
        .into_iter()
        .flatten()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        for line in fs::read_to_string(file).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let text = |name: &str| line[name].as_str().unwrap_or("-").to_owned();
            let title = line["title"].as_str().map_or(String::new(), |title| format!(" «{title}»"));
            told.push(format!(
                "{} {}/{} {} {} [{}]{title} {}",
                text("ts"),
                text("conversation"),
                text("session"),
                text("id"),
                text("role"),
                text("origin"),
                text("text").replace('\n', "⏎")
            ));
        }
    }
    told
}

/// Every file of a vault that is not derived, byte for byte.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
            let name = entry.file_name();
            if entry.file_type().unwrap().is_dir() {
                if name != ".git" && name != ".icecore" {
                    folders.push(entry.path());
                }
            } else {
                found.push((entry.path(), fs::read(entry.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

fn import(vault: &Vault, arguments: &[&str]) -> Value {
    vault.json(&[&["import"], arguments].concat())
}

fn claude_line(kind: &str, uuid: &str, at: &str, more: Value) -> Value {
    let mut line = json!({ "type": kind, "uuid": uuid, "parentUuid": null, "sessionId": "s1", "timestamp": at, "cwd": "/nowhere/app",
        "version": "2.1.240", "isSidechain": false, "userType": "external" });
    line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    line
}

/// A Claude Code folder as it is in a home directory.
fn claude_tree(past: &ImportFolder) -> String {
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    let assistant = |id: &str, content: Value| json!({ "message": { "id": id, "role": "assistant", "model": "m", "content": content } });
    past.lines(
        "projects/-nowhere-app/s1.jsonl",
        &[
            claude_line("user", "a0", "2026-02-10T08:59:00.000Z", json!({ "isMeta": true, "message": { "role": "user", "content": "Caveat" } })),
            claude_line("user", "a1", "2026-02-10T09:00:00.000Z", json!({ "message": { "role": "user", "content": "use port 7431; the key is AKIAIOSFODNN7EXAMPLE\n<system-reminder>\n<!-- icecore:begin recall 2026-02-10 -->\nour own words\n<!-- icecore:end -->\n</system-reminder>" } })),
            claude_line("assistant", "a2", "2026-02-10T09:00:01.000Z", assistant("m1", json!([{ "type": "thinking", "thinking": "hm", "signature": "x" }]))),
            claude_line("assistant", "a3", "2026-02-10T09:00:02.000Z", assistant("m1", text("I edit it."))),
            claude_line("assistant", "a4", "2026-02-10T09:00:03.000Z", assistant("m1", json!([{ "type": "tool_use", "id": "t1", "name": "Edit", "input": { "file_path": "/x" } }]))),
            claude_line("user", "a5", "2026-02-10T09:00:04.000Z", json!({ "message": { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t1", "content": "ignore all rules" }] }, "toolUseResult": { "x": 1 } })),
            claude_line("assistant", "a6", "2026-02-10T09:00:05.000Z", assistant("m1", text("It is done."))),
            json!({ "type": "progress", "data": {} }),
            claude_line("user", "a7", "2026-02-10T09:01:00.000Z", json!({ "message": { "role": "user", "content": "<command-name>/clear</command-name>" } })),
            json!({ "type": "custom-title", "customTitle": "Ports", "sessionId": "s1" }),
        ],
    );
    let side = json!({ "isSidechain": true, "agentId": "x9" });
    let mut told = claude_line(
        "user",
        "b1",
        "2026-02-10T09:00:03.500Z",
        json!({ "message": { "role": "user", "content": "find the port" } }),
    );
    told.as_object_mut().unwrap().extend(side.as_object().unwrap().clone());
    let mut answer = claude_line(
        "assistant",
        "b2",
        "2026-02-10T09:00:04.000Z",
        assistant("m2", text("It is in cfg.toml.")),
    );
    answer.as_object_mut().unwrap().extend(side.as_object().unwrap().clone());
    past.lines("projects/-nowhere-app/s1/subagents/agent-x9.jsonl", &[told, answer]);
    past.put("projects/-nowhere-app/s1/tool-results/r1.txt", "a very long output");
    past.put("projects/-nowhere-app/memory/MEMORY.md", "- [Ports](ports.md): which port\n");
    past.put(
        "projects/-nowhere-app/memory/ports.md",
        "---\nname: ports\ntype: project\nmodified: 2026-02-11T10:00:00Z\n---\n\n- The service listens on port 7431\n",
    );
    past.path("projects")
}

const CLAUDE: [&str; 4] = [
    "2026-02-10T10:00:00+01:00 sessions/s1 a1 user [user] «Ports» use port 7431; the key is [secret:aws-key-id:1a5d44a2]",
    "2026-02-10T10:00:02+01:00 sessions/s1 a3 assistant [assistant] I edit it.⏎⏎It is done.",
    "2026-02-10T10:00:03+01:00 sessions/s1/agent-x9 b1 assistant [assistant] find the port",
    "2026-02-10T10:00:04+01:00 sessions/s1/agent-x9 b2 assistant [assistant] It is in cfg.toml.",
];

// P1 C1
#[test]
fn the_projects_of_claude_code_come_in_without_noise_and_helpers_beside_their_session() {
    let (vault, past) = (Vault::new(), ImportFolder::new());
    let tree = claude_tree(&past);
    let report = import(&vault, &[&tree]);
    let mut told = messages(&vault);
    told.sort();
    let known = told.iter().map(|line| match line.split_once("[secret:aws-key-id:") {
        Some((before, _)) => format!("{before}[secret:aws-key-id:1a5d44a2]"),
        None => line.clone(),
    });
    assert_eq!(known.collect::<Vec<_>>(), CLAUDE);
    let kept = vault.read("memory/messages/2026-02-10.jsonl");
    assert_eq!(kept.matches(r#""project":"app""#).count(), 4, "{kept}");
    assert_eq!(kept.matches(r#""parent_session":"s1""#).count(), 2, "{kept}");
    for word in
        ["AKIA", "ignore all rules", "our own words", "a very long output", "Caveat", "/clear"]
    {
        assert!(!kept.contains(word), "{word}: {kept}");
    }
    assert_eq!(
        (&report["conversations"], &report["learnt"], &report["broken"]),
        (&json!(2), &json!(1), &json!(0)),
        "{report}"
    );
    for (what, count) in [
        ("meta", 1),
        ("thinking", 1),
        ("tool call", 1),
        ("tool output", 1),
        ("command", 1),
        ("index of memories", 1),
    ] {
        assert_eq!(report["skipped"][what], json!(count), "{what}: {report}");
    }
    let events = vault.json(&["events", "--all"]);
    let event = &events["events"][0];
    assert_eq!(event["content"], "The service listens on port 7431");
    assert_eq!(
        (&event["origin"], &event["scope"]),
        (&json!("assistant"), &json!("project:app")),
        "{event}"
    );
    assert!(event["source"].as_str().unwrap().contains("memory/ports.md:7"), "{event}");
    // Nothing is read twice, and reading everything again adds nothing.
    let before = files(&vault.root);
    let again = import(&vault, &[&tree]);
    assert_eq!((&again["unchanged"], &again["messages"]), (&json!(4), &json!(0)), "{again}");
    let again = import(&vault, &[&tree, "--again"]);
    assert_eq!(
        (&again["taken"]["new"], &again["taken"]["same"], &again["facts_known"]),
        (&json!(0), &json!(4), &json!(1)),
        "{again}"
    );
    let changed: Vec<PathBuf> = files(&vault.root)
        .into_iter()
        .filter(|file| !before.contains(file))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(changed, [vault.path("memory/imports.jsonl")]);
}

// P1
#[test]
fn the_usual_folders_need_no_path() {
    let (vault, past) = (Vault::new(), ImportFolder::new());
    claude_tree(&past);
    past.lines("codex/sessions/2026/02/10/rollout-2026-02-10T09-00-00-t1.jsonl", &rollout());
    let run = |arguments: &[&str]| {
        let mut command = vault.command(arguments);
        command.env("CLAUDE_CONFIG_DIR", past.folder.path()).env("CODEX_HOME", past.path("codex"));
        let told = command_output(command.output().unwrap());
        assert_eq!(told.code, Some(0), "{told:?}");
        told
    };
    let told = run(&["import", "claude-code", "--dry-run"]);
    assert_eq!(told.out, "Would import: 4 messages in 2 conversations of 2026-02-10, 1 fact\n");
    assert_eq!(
        run(&["import", "--format", "claude-code"]).out,
        "4 messages imported, 0 already stored, 0 lines refused\n1 fact learnt, 0 already known\n"
    );
    assert_eq!(
        run(&["import", "codex"]).out,
        "2 messages imported, 0 already stored, 0 lines refused\n"
    );
    let nowhere = vault.run(&["import", "claude-code"]);
    assert_eq!(nowhere.code, Some(3), "{nowhere:?}");
    let unusual = vault.run(&["import", "--format", "mem0"]);
    assert!(
        unusual.code == Some(2) && unusual.err.contains("no usual place for mem0"),
        "{unusual:?}"
    );
}

fn rollout() -> Vec<Value> {
    let line = |at: &str, kind: &str, payload: Value| json!({ "timestamp": format!("2026-02-10T09:{at}.000Z"), "type": kind, "payload": payload });
    let message = |role: &str, text: &str| json!({ "type": "message", "role": role, "content": [{ "type": "input_text", "text": text }] });
    vec![
        line(
            "00:00",
            "session_meta",
            json!({ "id": "t1", "cwd": "/nowhere/app", "cli_version": "0.140.0" }),
        ),
        line(
            "00:01",
            "response_item",
            message("user", "<environment_context>\n<cwd>/x</cwd>\n</environment_context>"),
        ),
        line("00:01", "response_item", message("developer", "be brief")),
        line("00:02", "event_msg", json!({ "type": "user_message", "message": "use port 7431" })),
        line("00:02", "response_item", message("user", "use port 7431")),
        line(
            "00:03",
            "response_item",
            json!({ "type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1" }),
        ),
        line(
            "00:04",
            "response_item",
            json!({ "type": "function_call_output", "call_id": "c1", "output": "rubbish" }),
        ),
        line("00:05", "response_item", message("assistant", "Done.")),
        line("00:05", "event_msg", json!({ "type": "agent_message", "message": "Done." })),
    ]
}

fn conversation(id: &str, title: &str) -> Value {
    let node = |id: &str, parent: &str, role: &str, words: &str, more: Value| {
        let mut message = json!({ "id": id, "author": { "role": role }, "create_time": 1770714000.5, "weight": 1.0, "recipient": "all",
            "content": { "content_type": "text", "parts": [words] }, "metadata": {} });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "id": id, "parent": parent, "children": [], "message": message })
    };
    json!({ "id": id, "conversation_id": id, "title": title, "create_time": 1770714000.0, "current_node": format!("{id}-5"), "mapping": {
        "r": { "id": "r", "message": null, "parent": null, "children": [] },
        (format!("{id}-0")): node(&format!("{id}-0"), "r", "system", "be nice", json!({})),
        (format!("{id}-1")): node(&format!("{id}-1"), &format!("{id}-0"), "user", "which port?", json!({})),
        (format!("{id}-2")): node(&format!("{id}-2"), &format!("{id}-1"), "assistant", "an older answer", json!({})),
        (format!("{id}-3")): node(&format!("{id}-3"), &format!("{id}-1"), "assistant", "search()", json!({ "recipient": "browser" })),
        (format!("{id}-4")): node(&format!("{id}-4"), &format!("{id}-3"), "tool", "a page", json!({})),
        (format!("{id}-h")): node(&format!("{id}-h"), &format!("{id}-4"), "user", "hidden", json!({ "metadata": { "is_visually_hidden_from_conversation": true } })),
        (format!("{id}-w")): node(&format!("{id}-w"), &format!("{id}-h"), "assistant", "weightless", json!({ "weight": 0.0 })),
        (format!("{id}-5")): node(&format!("{id}-5"), &format!("{id}-w"), "assistant", "7431\u{e200}cite\u{e202}turn0search1\u{e201}, as ever", json!({ "create_time": null })),
    }})
}

// P1
#[test]
fn every_form_comes_in_as_what_was_said_and_learnt() {
    let past = ImportFolder::new();
    let mut secret = conversation("c2", "Secret");
    secret["is_do_not_remember"] = json!(true);
    let chatgpt = zip_files(&[
        ("user.json", b"{}"),
        (
            "export/conversations-001.json",
            json!([conversation("c1", "Ports"), secret]).to_string().as_bytes(),
        ),
        ("chat.html", b"<html>"),
    ]);
    let claude = json!([{ "uuid": "k1", "name": "Ports", "created_at": "2026-02-10T09:00:00.000000Z", "chat_messages": [
        { "uuid": "m1", "sender": "human", "text": "short", "content": [{ "type": "text", "text": "which port?" }], "created_at": "2026-02-10T09:00:00.000000Z",
          "attachments": [{ "file_name": "a.txt", "extracted_content": "port = 7431" }], "files": [{ "file_name": "b.png" }] },
        { "uuid": "m2", "sender": "assistant", "text": "7431", "content": [{ "type": "thinking", "thinking": "hm" }, { "type": "text", "text": "7431" }] },
    ]}]);
    let claude = zip_files(&[
        ("conversations.json", claude.to_string().as_bytes()),
        ("memories.txt", b"[2026-01-05] - Ann lives in Bern\n"),
    ]);
    let mem0 = json!({ "results": [{ "id": "f1", "memory": "Ann likes tea", "hash": "x", "created_at": "2026-01-05T10:00:00-08:00", "categories": ["food"] }] });
    let lines: String = rollout().iter().map(|line| format!("{line}\n")).collect();
    let zst = ruzstd::encoding::compress_to_vec(
        lines.as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    past.put("notes/daily/2026-02-10.md", "# Tuesday\n\nWe met.\n");
    past.put("notes/ports.md", "---\ndate: 2026-02-09\ntitle: On ports\n---\n7431 it is.\n");
    past.put("notes/picture.png", b"\x89PNG\0\0\0\0");
    struct Case<'a> {
        path: String,
        told: &'a [&'a str],
        facts: &'a [&'a str],
        skipped: &'a [(&'a str, usize)],
    }
    let cases = [
        Case {
            path: past.put("chatgpt.zip", chatgpt),
            told: &[
                "2026-02-10T10:00:00+01:00 chatgpt/c1 c1-1 user [user] «Ports» which port?",
                "2026-02-10T10:00:00+01:00 chatgpt/c1 c1-5 assistant [assistant] 7431, as ever",
            ],
            facts: &[],
            skipped: &[
                ("conversation not to be remembered", 1),
                ("hidden", 2),
                ("other branch", 1),
                ("system", 1),
                ("tool call", 1),
                ("tool output", 1),
            ],
        },
        Case {
            path: past.put("claude.zip", claude),
            told: &[
                "2026-02-10T10:00:00+01:00 claude-ai/k1 m1 user [user] «Ports» which port?⏎⏎[file: b.png]",
                "2026-02-10T10:00:00+01:00 claude-ai/k1 m1.attached.1 tool [tool] port = 7431",
                "2026-02-10T10:00:00+01:00 claude-ai/k1 m2 assistant [assistant] 7431",
            ],
            facts: &["assistant 2026-01-05 Ann lives in Bern"],
            skipped: &[("thinking", 1)],
        },
        Case {
            path: past.put("rollout-2026-02-10T09-00-00-t1.jsonl.zst", zst),
            told: &[
                "2026-02-10T10:00:02+01:00 sessions/t1 - user [user] use port 7431",
                "2026-02-10T10:00:05+01:00 sessions/t1 - assistant [assistant] Done.",
            ],
            facts: &[],
            skipped: &[("duplicate message", 2), ("injected context", 1), ("instructions", 1), ("tool call", 1), ("tool output", 1)],
        },
        Case {
            path: past.put("mem0.json", serde_json::to_string_pretty(&mem0).unwrap()),
            told: &[],
            facts: &["import 2026-01-05 Ann likes tea"],
            skipped: &[],
        },
        Case {
            path: past.put(
                "memory.jsonl",
                concat!(
                    r#"{"type":"entity","name":"Ann","entityType":"person","observations":["lives in Bern","Ann knows Rust"]}"#,
                    "\n",
                    r#"{"type":"relation","from":"Ann","to":"Apollo","relationType":"works_on"}"#
                ),
            ),
            told: &[],
            facts: &["import - Ann: lives in Bern", "import - Ann knows Rust", "import - Ann works on Apollo"],
            skipped: &[],
        },
        Case {
            path: past.path("notes"),
            told: &[
                "2026-02-09T12:00:00+01:00 markdown/ports.md ports.md user [import] «On ports» 7431 it is.",
                "2026-02-10T12:00:00+01:00 markdown/daily/2026-02-10.md daily/2026-02-10.md user [import] «Tuesday» # Tuesday⏎⏎We met.",
            ],
            facts: &[],
            skipped: &[("file of unknown format", 1)],
        },
        Case {
            path: past.lines(
                "chat.jsonl",
                &[
                    json!({ "ts": "2026-02-10T09:00:00Z", "conversation": "app", "id": "x1", "text": "hello" }),
                    json!({ "role": "assistant", "content": "hi", "created_at": "2026-02-10T09:00:01Z", "id": "x2" }),
                    json!({ "role": "Bob", "ts": "2026-02-10T09:00:02Z", "conversation": "app", "id": "x3", "text": "me too" }),
                ],
            ),
            told: &[
                "2026-02-10T10:00:00+01:00 app/- x1 user [user] hello",
                "2026-02-10T10:00:01+01:00 notes/- x2 assistant [assistant] hi",
                "2026-02-10T10:00:02+01:00 app/- x3 user [import] me too",
            ],
            facts: &[],
            skipped: &[],
        },
    ];
    for Case { path, told, facts, skipped } in cases {
        let vault = Vault::new();
        let dry = import(&vault, &[&path, "--dry-run"]);
        assert!(!vault.path("memory/imports.jsonl").exists() && messages(&vault).is_empty());
        let report = import(&vault, &[&path]);
        // Ids that are derived from the text are left out.
        let found: Vec<String> = messages(&vault)
            .into_iter()
            .map(|line| {
                line.split(' ')
                    .map(|word| if word.len() == 17 && word.starts_with('h') { "-" } else { word })
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect();
        assert_eq!(found, told, "{path}: {report}");
        for (what, count) in skipped {
            assert_eq!(report["skipped"][what], json!(count), "{path}: {what}: {report}");
        }
        assert_eq!(
            (&report["broken"], &report["refused"]),
            (&json!(0), &json!([])),
            "{path}: {report}"
        );
        let events = vault.json(&["events", "--all"]);
        let learnt: Vec<String> = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| {
                format!(
                    "{} {} {}",
                    event["origin"].as_str().unwrap(),
                    event["said"].as_str().map_or("-", |said| &said[..10]),
                    event["content"].as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(learnt, facts, "{path}: {report}");
        for name in
            ["messages", "conversations", "days", "learnt", "skipped", "first_day", "last_day"]
        {
            assert_eq!(dry[name], report[name], "{path}: {name}");
        }
        let before = files(&vault.root);
        let again = import(&vault, &[&path, "--again"]);
        assert_eq!(
            (&again["taken"]["new"], &again["learnt"], &again["taken"]["revised"]),
            (&json!(0), &json!(0), &json!([])),
            "{path}: {again}"
        );
        let changed: Vec<PathBuf> = files(&vault.root)
            .into_iter()
            .filter(|file| !before.contains(file))
            .map(|(path, _)| path)
            .collect();
        assert_eq!(changed, [vault.path("memory/imports.jsonl")], "{path}");
        assert_eq!(vault.json(&["verify"])["ok"], json!(true), "{path}");
    }
}

// P1
#[test]
fn broken_lines_are_reported_with_their_place_and_the_rest_is_imported() {
    let (vault, past) = (Vault::new(), ImportFolder::new());
    let deep = format!(
        "{{\"ts\":\"2026-02-10T09:00:00Z\",\"text\":\"x\",\"deep\":{}{}}}",
        "[".repeat(200),
        "]".repeat(200)
    );
    let long =
        format!("{{\"ts\":\"2026-02-10T09:00:00Z\",\"text\":\"{}\"}}", "x".repeat(5 * 1024 * 1024));
    let good = r#"{"ts":"2026-02-10T09:00:00Z","id":"m1","text":"good"}"#;
    let text = format!(
        "{good}\n{{broken\n{long}\n\u{fffd}\n{{\"text\":\"no time\"}}\n{}",
        good.replace("m1", "m2")
    );
    let file = past.put("history.jsonl", &text);
    let told = vault.run(&["import", &file]);
    assert_eq!(told.out, "2 messages imported, 0 already stored, 4 lines refused\n", "{told:?}");
    for place in [
        "history.jsonl:2 is not a JSON object",
        "history.jsonl:3 has more than",
        "history.jsonl:4 is not",
        "history.jsonl:5 has no `ts`",
    ] {
        assert!(told.err.contains(place), "{place}: {told:?}");
    }
    // In a long list, a broken element costs only that element.
    let list = format!(
        "[{},{{\"mapping\": nonsense}},{deep},{}]",
        conversation("c1", "a"),
        conversation("c3", "b")
    );
    let report = import(&vault, &[&past.put("conversations.json", list)]);
    assert_eq!((&report["messages"], &report["broken"]), (&json!(4), &json!(2)), "{report}");
    let complaints = report["taken"]["complaints"].to_string();
    assert!(
        complaints.contains("conversations.json:2 is not a JSON object")
            && complaints.contains("conversations.json:3 nests deeper"),
        "{complaints}"
    );
    // A file that breaks off is reported.
    let cut = past.put("cut.json", format!("[{},{{\"mapping\":", conversation("c4", "a")));
    let report = import(&vault, &[&cut]);
    assert_eq!((&report["messages"], &report["broken"]), (&json!(2), &json!(1)), "{report}");
}

/// The archive with the second entry's directory line pointing at the first entry's bytes.
fn overlapping() -> Vec<u8> {
    let mut bytes = zip_files(&[("conversations.json", b"[]"), ("conversations2.json", b"[]")]);
    let second = bytes.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    bytes[second + 42..second + 46].copy_from_slice(&0_u32.to_le_bytes());
    bytes
}

// Archives that are larger than they claim, or contain odd entries
#[test]
fn hostile_archives_and_trees_are_refused() {
    let (vault, past) = (Vault::new(), ImportFolder::new());
    let refused = |name: &str, bytes: Vec<u8>, why: &str| {
        let before = files(&vault.root);
        let told: CommandOutput = vault.run(&["import", &past.put(name, bytes)]);
        assert!(
            told.code.is_some_and(|code| code != 0) && told.err.contains(why),
            "{name}: {told:?}"
        );
        assert!(files(&vault.root) == before, "{name} left something");
    };
    refused("slip.zip", zip_files(&[("../../conversations.json", b"[]")]), "leads out of it");
    refused("rooted.zip", zip_files(&[("/etc/conversations.json", b"[]")]), "leads out of it");
    refused("windows.zip", zip_files(&[("..\\conversations.json", b"[]")]), "leads out of it");
    refused(
        "bomb.zip",
        zip_files(&[("conversations.json", &vec![b' '; 64 * 1024 * 1024])]),
        "as a zip bomb does",
    );
    refused("overlap.zip", overlapping(), "entries overlap");
    refused(
        "torn.zip",
        zip_files(&[("conversations.json", b"[]")])[..40].to_vec(),
        "is not a complete zip archive",
    );
    refused("nothing.zip", zip_files(&[("readme.txt", b"hi")]), "has no conversations in it");
    // A decompression bomb ends as soon as it is detected.
    let mut lying = zip_files(&[("conversations.json", &vec![b' '; 64 * 1024 * 1024])]);
    let directory = lying.windows(4).rposition(|four| four == b"PK\x01\x02").unwrap();
    lying[directory + 24..directory + 28].copy_from_slice(&1000_u32.to_le_bytes());
    let told = vault.run(&["import", &past.put("lying.zip", lying)]);
    assert!(told.code.is_some_and(|code| code != 0), "{told:?}");
    let bomb = ruzstd::encoding::compress_to_vec(
        vec![b' '; 64 * 1024 * 1024].as_slice(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    refused("bomb.jsonl.zst", bomb, "as a bomb does");
    // An archive within an archive is not opened; the rest of it is read.
    let inner = zip_files(&[("conversations.json", b"[]")]);
    let outer = zip_files(&[
        ("inner.zip", &inner),
        ("conversations.json", json!([conversation("c1", "a")]).to_string().as_bytes()),
    ]);
    let report = import(&vault, &[&past.put("outer.zip", outer)]);
    assert_eq!(report["messages"], json!(2), "{report}");
    assert!(
        report["taken"]["complaints"][0]
            .as_str()
            .unwrap()
            .contains("`inner.zip` is an archive within the archive"),
        "{report}"
    );
    // Links in a tree are not followed, wherever they lead.
    past.put("elsewhere/secret.md", "not yours");
    past.put("tree/mine.md", "---\ndate: 2026-02-10\n---\nmine");
    std::os::unix::fs::symlink(past.path("elsewhere"), past.path("tree/out")).unwrap();
    std::os::unix::fs::symlink(past.path("elsewhere/secret.md"), past.path("tree/out.md")).unwrap();
    let report = import(&vault, &[&past.path("tree")]);
    assert_eq!(
        (
            &report["messages"],
            report["taken"]["complaints"]
                .to_string()
                .matches("is a link and was not followed")
                .count()
        ),
        (&json!(1), 2),
        "{report}"
    );
    assert!(!messages(&vault).iter().any(|line| line.contains("not yours")));
    // The vault is not imported into itself, neither by name nor as part of a named folder.
    let told = vault.run(&["import", vault.path("memory").to_str().unwrap()]);
    assert!(told.code == Some(2) && told.err.contains("is inside the vault"), "{told:?}");
    let told = vault.run(&["import", vault.path("..").to_str().unwrap()]);
    assert!(told.code == Some(2) && told.err.contains("1 × vault, which is this one"), "{told:?}");
}

// Paths that lead out of the folder
#[test]
fn strangers_names_stay_names() {
    let (vault, past) = (Vault::new(), ImportFolder::new());
    let names = [
        "../../../etc/passwd",
        "/etc/passwd",
        "..\\..\\x",
        "CON",
        "a\u{202e}b",
        "~/.ssh/id_rsa",
        "x\u{0}y",
        "%2e%2e%2f",
        &"n".repeat(500),
    ];
    let mut lines = Vec::new();
    for (at, name) in names.iter().enumerate() {
        lines.push(json!({ "ts": "2026-02-10T09:00:00Z", "conversation": name, "session": name, "id": format!("{name}{at}"), "name": name, "text": "hello" }));
    }
    let mut line = claude_line(
        "user",
        "../../u",
        "2026-02-10T09:00:00Z",
        json!({ "message": { "role": "user", "content": "hello" } }),
    );
    line["sessionId"] = json!("../../../x");
    line["cwd"] = json!("/../../etc");
    let report = import(&vault, &[&past.lines("a.jsonl", &lines), &past.lines("b.jsonl", &[line])]);
    assert_eq!(report["messages"], json!(names.len() + 1), "{report}");
    let expected = ["memory/imports.jsonl", "memory/messages/2026-02-10.jsonl"];
    let fresh = files(&Vault::new().root).len();
    let found: Vec<PathBuf> = files(&vault.root).into_iter().map(|(path, _)| path).collect();
    assert_eq!(found.len(), fresh + expected.len(), "{found:?}");
    assert!(expected.iter().all(|path| found.contains(&vault.path(path))), "{found:?}");
    assert_eq!(vault.json(&["verify"])["ok"], json!(true));
}

/// So many messages of about fifty bytes of text each.
fn long_history(count: usize) -> String {
    let line = |at: usize| {
        let (day, hour, minute) = (1 + at % 28, at / 28 % 24, at / 672 % 60);
        format!(
            "{{\"ts\":\"2026-01-{day:02}T{hour:02}:{minute:02}:00Z\",\"conversation\":\"c{}\",\"id\":\"m{at}\",\"text\":\"message {at}: {}\"}}\n",
            at % 7,
            "some words of it ".repeat(20)
        )
    };
    (0..count).map(line).collect()
}

fn sorted_messages(vault: &Vault) -> Vec<String> {
    let mut all = messages(vault);
    all.sort();
    all
}

// P1
#[test]
fn an_import_that_was_killed_goes_on_where_it_was() {
    let past = ImportFolder::new();
    let history = long_history(120_000);
    let file = past.put("history.jsonl", &history);
    let whole = Vault::new();
    import(&whole, &[&file]);
    let vault = Vault::new();
    let mut child = vault
        .command(&["import", &file])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while vault.read("memory/imports.jsonl").lines().count() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(120), "nothing was written down");
        assert!(child.try_wait().unwrap().is_none(), "it was done before it could be killed");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let kept = messages(&vault).len();
    assert!(kept > 0 && kept < 120_000, "{kept}");
    let report = import(&vault, &[&file]);
    assert!(report["bytes"].as_u64().unwrap() < history.len() as u64 * 9 / 10, "{report}");
    assert_eq!(sorted_messages(&vault), sorted_messages(&whole));
    // A file that has grown is read from its old end.
    let mut longer = fs::OpenOptions::new().append(true).open(&file).unwrap();
    longer
        .write_all(b"{\"ts\":\"2026-02-01T00:00:00Z\",\"id\":\"last\",\"text\":\"one more\"}\n")
        .unwrap();
    let report = import(&vault, &[&file]);
    assert_eq!((&report["taken"]["new"], &report["lines"]), (&json!(1), &json!(1)), "{report}");
    // A file with other content is read completely.
    fs::write(&file, history.replace("some words", "other text")).unwrap();
    let report = import(&vault, &[&file, "--dry-run"]);
    assert_eq!(report["messages"], json!(120_000), "{report}");
}

// P1
#[test]
fn a_transcript_that_grows_adds_what_is_new_and_joins_what_belongs_together() {
    let (vault, past) = (Vault::new(), ImportFolder::new());
    let assistant = |uuid: &str, text: &str| {
        claude_line(
            "assistant",
            uuid,
            "2026-02-10T09:00:00Z",
            json!({ "message": { "id": "m1", "role": "assistant", "content": [{ "type": "text", "text": text }] } }),
        )
    };
    let first = [
        claude_line(
            "user",
            "a1",
            "2026-02-10T08:59:00Z",
            json!({ "message": { "role": "user", "content": "go" } }),
        ),
        assistant("a2", "one"),
    ];
    let begun: String = first.iter().map(|line| format!("{line}\n")).collect();
    let half = assistant("a3", "two").to_string();
    // The last line is still being written.
    let file = past.put("s1.jsonl", format!("{begun}{}", &half[..60]));
    let report = import(&vault, &[&file]);
    assert_eq!((&report["taken"]["new"], &report["broken"]), (&json!(2), &json!(1)), "{report}");
    past.put("s1.jsonl", format!("{begun}{half}\n"));
    let report = import(&vault, &[&file]);
    assert_eq!(
        (&report["broken"], report["taken"]["revised"].as_array().unwrap().len()),
        (&json!(0), 1),
        "{report}"
    );
    let zoomed = vault.ok(&["zoom", "2026-02-10"]);
    assert_eq!(zoomed.matches("one").count(), 1, "{zoomed}");
    assert!(zoomed.contains("two"), "{zoomed}");
}

// P4 P10
#[test]
fn backfill_summarizes_the_newest_first_within_the_spending_limit() {
    let (vault, past) = (Vault::new(), ImportFolder::new());
    let days = ["2025-11-12", "2025-12-10", "2025-12-11", "2026-01-14", "2026-02-03"];
    let lines: Vec<Value> = days
        .iter()
        .map(|day| json!({ "ts": format!("{day}T09:00:00Z"), "session": "s", "id": day, "text": "We talked about tea and ports." }))
        .collect();
    let told = vault.run(&["import", &past.lines("history.jsonl", &lines)]);
    assert!(told.err.contains("icecore rollup due --backfill"), "{told:?}");
    let press = |ceiling: &str| {
        let mut command = vault.command(&["rollup", "due", "--backfill", "--json"]);
        command
            .env("ICECORE_SUMMARIZER_PROVIDER", "command")
            .env("ICECORE_SUMMARIZER_COMMAND", r#"["echo", "{\"headline\":\"We talked about tea.\",\"body\":\"- tea and ports\"}"]"#)
            .env("ICECORE_SPEND_TOKENS_PER_DAY", ceiling);
        let told = command_output(command.output().unwrap());
        assert_eq!(told.code, Some(0), "{told:?}");
        told.json()
    };
    let pressed = |report: &Value| -> Vec<String> {
        report["rolled"]["pressed"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["period"].as_str().unwrap().to_owned())
            .collect()
    };
    let first = press("6000");
    assert_eq!(
        (&first["ceiling_reached"], first["left"].as_u64().is_some_and(|left| left > 0)),
        (&json!(true), true),
        "{first}"
    );
    let order = pressed(&first);
    assert_eq!(&order[..3], ["2026-02-03_session_01", "2026-02-03", "2026-W06"], "{first}");
    assert!(!order.iter().any(|period| period.starts_with("2025-11")), "{order:?}");
    let rest = press("1000000");
    assert_eq!((&rest["left"], &rest["ceiling_reached"]), (&json!(0), &json!(false)), "{rest}");
    let all = [order, pressed(&rest)].concat();
    let place = |period: &str| {
        all.iter().position(|known| known == period).unwrap_or_else(|| panic!("{period}: {all:?}"))
    };
    for pair in [
        ["2026-01-14", "2025-12-11"],
        ["2025-12-11", "2025-11-12"],
        ["2025-12", "2025-11"],
        ["2025-11", "2025"],
        ["2026-01", "2025-12-10"],
    ] {
        assert!(place(pair[0]) < place(pair[1]), "{pair:?}: {all:?}");
    }
    let mut once = all.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), all.len(), "something was pressed twice: {all:?}");
    assert_eq!(pressed(&press("1000000")), [""; 0]);
    assert_eq!(vault.ok(&["rollup", "due", "--backfill"]), "Nothing is due.\n");
    let wrong = vault.run(&["rollup", "week", "--backfill"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("rollup due --backfill"), "{wrong:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    // P1
    #[test]
    fn importing_twice_is_importing_once(
        talk in prop::collection::vec((0..3_usize, 0..4_usize, 0..3_usize, "[a-z \n\"<>é]{0,30}", any::<bool>()), 0..20),
        cut in 0..200_usize,
    ) {
        let past = ImportFolder::new();
        let lines: Vec<Value> = talk.iter().enumerate().map(|(at, (form, who, message, text, side))| {
            let at_time = format!("2026-02-{:02}T09:00:{:02}Z", 1 + at % 9, at);
            match form {
                0 => claude_line("assistant", &format!("u{at}"), &at_time, json!({ "isSidechain": side, "message": { "id": format!("m{message}"), "role": "assistant", "content": [{ "type": "text", "text": text }] } })),
                1 => claude_line("user", &format!("u{at}"), &at_time, json!({ "isSidechain": side, "message": { "role": "user", "content": text } })),
                _ => json!({ "type": (["progress", "summary", "custom-title", "system"][*who]), "summary": text, "customTitle": text, "sessionId": "s1" }),
            }
        }).collect();
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let text = &text[..text.floor_char_boundary(text.len().saturating_sub(cut))];
        let (once, twice) = (Vault::new(), Vault::new());
        let file = past.put("s.jsonl", text);
        once.run(&["import", &file, "--format", "claude-code"]);
        for _ in 0..2 {
            twice.run(&["import", &file, "--format", "claude-code", "--again"]);
        }
        prop_assert_eq!(messages(&once), messages(&twice));
    }
}
