//! Memory in a database, as users and administrators see it: a temporary PostgreSQL, the real
//! program.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use icecore_store::testing::cluster::{Durability, TestCluster};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::{Answer, Server, TOKEN, answering};
use crate::program::{CommandOutput, NOW, bare, command_output, program};

/// Is part of every address, and must never be printed.
const PASSWORD: &str = "s3cret-of-the-house";
/// A prompt long enough to be worth a summary with facts.
const PADDING: &str = "Please keep that in mind for everything that we do here together, also when I write to you in a hurry later on. ";

/// A database, and a user's settings.
pub struct TestDatabase {
    pub cluster: TestCluster,
    pub folder: TempDir,
}

impl TestDatabase {
    pub fn new() -> Self {
        Self::with(Durability::Unflushed)
    }

    pub fn with(flush: Durability) -> Self {
        Self { cluster: TestCluster::start(flush), folder: TempDir::new().unwrap() }
    }

    fn address(&self) -> String {
        self.cluster.url().replace("postgres@", &format!("postgres:{PASSWORD}@"))
    }

    pub fn settings(&self, text: &str) {
        let folder = self.folder.path().join(".config/icecore");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), text).unwrap();
    }

    /// The program at the fixed moment, in the user's folder.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(program());
        command
            .env("HOME", self.folder.path())
            .env("ICECORE_STORE", self.address())
            .current_dir(self.folder.path());
        command.args(["--now", NOW]).args(arguments);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        let said = command_output(self.command(arguments).output().unwrap());
        assert!(
            !said.out.contains(PASSWORD) && !said.err.contains(PASSWORD),
            "{arguments:?} shows the password: {said:?}"
        );
        said
    }

    pub fn feed(&self, arguments: &[&str], input: &str) -> CommandOutput {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        command_output(child.wait_with_output().unwrap())
    }

    pub fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.out
    }

    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[arguments, &["--json"]].concat())).unwrap()
    }

    pub fn serve(&self) -> Server {
        self.serve_as("default")
    }

    fn serve_as(&self, space: &str) -> Server {
        let mut child = bare(program())
            .env("HOME", self.folder.path())
            .env("ICECORE_TOKEN", TOKEN)
            .env("ICECORE_STORE", self.address())
            .args(["serve", "--addr", "127.0.0.1:0", "--json", "--space", space])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.contains(PASSWORD));
        let told: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (address, link) = (
            told["addr"].as_str().unwrap().parse().unwrap(),
            told["login"].as_str().unwrap().to_owned(),
        );
        Server { child, address, link }
    }
}

pub fn model_settings(role: &str, address: SocketAddr) -> String {
    format!(
        "[{role}]\nprovider = \"openai\"\nbase_url = \"http://{address}/v1\"\nmodel = \"stub\"\n\n"
    )
}

/// One turn of a chat; the client sends only its newest message.
fn turn(server: &Server, user: Option<&str>, conversation: &str, words: &str) -> u16 {
    send_chat(server, user, conversation, words).status
}

pub fn send_chat(server: &Server, user: Option<&str>, conversation: &str, words: &str) -> Answer {
    let bearer = format!("Bearer {TOKEN}");
    let mut head = vec![
        ("Authorization", bearer.as_str()),
        ("X-Icecore-Conversation", conversation),
        ("Content-Type", "application/json"),
    ];
    head.extend(user.map(|user| ("X-Icecore-User", user)));
    let said =
        json!({ "model": "stub", "messages": [{ "role": "user", "content": words }] }).to_string();
    server.send("POST", "/v1/chat/completions", &head, &said)
}

fn within<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..400 {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(25));
    }
    panic!("in ten seconds there was not: {what}")
}

/// All commands, from the program's own help.
fn leaves() -> BTreeSet<String> {
    fn walk(command: &Value, before: &str, found: &mut BTreeSet<String>) {
        let name = format!("{before}{}", command["name"].as_str().unwrap());
        // It takes an event, or a subcommand.
        if name == "hook" {
            found.insert(name.clone());
        }
        match command["commands"].as_array() {
            Some(beneath) => beneath.iter().for_each(|one| walk(one, &format!("{name} "), found)),
            None => drop(found.insert(name)),
        }
    }
    let told =
        command_output(bare(program()).args(["help", "--all", "--json"]).output().unwrap()).json();
    let mut found = BTreeSet::new();
    for group in told["groups"].as_array().unwrap() {
        group["commands"].as_array().unwrap().iter().for_each(|one| walk(one, "", &mut found));
    }
    found
}

/// Commands that do not depend on the store.
const ELSEWHERE: &[(&str, &str)] = &[
    ("dashboard", "it asks a server that runs"),
    ("model check", "it is about the person's models"),
    ("model fetch", "it is about the machine's model"),
    ("uninstall", "it changes clients' settings back"),
    ("demo", "it makes a vault of its own"),
    ("help", "it tells of the program"),
    ("self completions", "it tells of the program"),
    ("self man", "it tells of the program"),
];

/// Commands that need a folder, with the advice they print instead.
const REFUSED: &[(&[&str], &str)] = &[
    (&["merge"], "every machine uses the same database"),
    (&["jobs", "schedule", "--systemd"], "ICECORE_STORE_FILE"),
    (&["jobs", "schedule", "--crontab"], "ICECORE_STORE_FILE"),
];

/// Runs commands and records which ones.
struct CommandWalk<'a> {
    house: &'a TestDatabase,
    walked: BTreeSet<String>,
}

impl CommandWalk<'_> {
    fn note(&mut self, arguments: &[&str]) {
        let groups = [
            "quarantine",
            "message",
            "session",
            "pack",
            "conversation",
            "model",
            "db",
            "insights",
            "jobs",
            "summary",
            "vault",
        ];
        let deep = ["token", "space", "backup", "config"];
        let words = match arguments {
            ["db" | "vault", beneath, ..] if deep.contains(beneath) => 3,
            ["hook", "log", ..] => 2,
            [first, ..] if groups.contains(first) => 2,
            _ => 1,
        };
        self.walked.insert(arguments[..words].join(" "));
    }

    fn ok(&mut self, arguments: &[&str]) -> String {
        self.note(arguments);
        self.house.ok(arguments)
    }

    fn json(&mut self, arguments: &[&str]) -> Value {
        self.note(arguments);
        self.house.json(arguments)
    }

    fn remembers(&mut self, arguments: &[&str]) -> String {
        self.json(&[&["remember"], arguments].concat())["event"]["id"].as_str().unwrap().to_owned()
    }
}

// L2 and K12: every command works on a space, or says why it does not
#[test]
fn every_command_works_on_a_space_or_says_why_not() {
    let house = TestDatabase::new();
    let chat = answering(Duration::ZERO, |_| {
        "I will.\n\n```python\n# greet.py\nprint('hello')\nprint('again')\nprint('and again')\n```"
            .into()
    });
    house.settings(&model_settings("chat", chat));
    let mut walk = CommandWalk { house: &house, walked: BTreeSet::new() };

    // A database without tables names the command that creates them; a dry run changes nothing.
    let bare_database = house.run(&["status"]);
    assert!(
        bare_database.code == Some(1) && bare_database.err.contains("icecore init --store"),
        "{bare_database:?}"
    );
    let steps = walk.json(&["db", "migrate", "--dry-run"])["steps"].as_array().unwrap().len();
    assert!(steps > 0 && walk.json(&["db", "migrate", "--dry-run"])["taken_before"] == 0);
    assert_eq!(house.run(&["init", "./folder"]).code, Some(2));
    assert_eq!(walk.json(&["init", "--tz", "Europe/Berlin"])["space"], "default");
    assert_eq!(house.run(&["init"]).code, Some(4));
    assert_eq!(walk.json(&["db", "migrate"])["steps"], json!([]));
    let nobody = house.run(&["status", "--space", "nobody"]);
    assert!(
        nobody.code == Some(3) && nobody.err.contains("icecore init --store … --space nobody"),
        "{nobody:?}"
    );

    // The ledger.
    let rule =
        walk.remembers(&["Never deploy on Fridays", "--priority", "P0", "--type", "constraint"]);
    let offer = walk.remembers(&["Send the offer to Client X", "--due", "friday"]);
    let misheard = walk.remembers(&["The budget is 500 EUR", "--entity", "budget"]);
    walk.remembers(&["The budget is 600 EUR", "--entity", "budget"]);
    walk.ok(&["log", "Met Client X, they want two more weeks"]);
    walk.ok(&["close", &offer, "--note", "sent"]);
    walk.ok(&["confirm", &rule]);
    walk.ok(&["retract", &misheard]);
    let strange = walk.remembers(&["A page says: the key is under the mat", "--origin", "tool"]);
    let stranger = walk.remembers(&["A page says: the door is open", "--origin", "tool"]);
    assert!(walk.ok(&["quarantine", "list"]).contains(&strange));
    walk.ok(&["quarantine", "confirm", &strange]);
    walk.ok(&["quarantine", "drop", &stranger]);
    assert!(walk.ok(&["events"]).contains("Never deploy"));
    walk.ok(&["commitments"]);
    walk.ok(&["conflicts"]);
    walk.ok(&["show", &rule]);
    walk.ok(&["why", &rule]);

    // Messages.
    walk.ok(&[
        "message",
        "add",
        "We keep the spare key with Kasimir",
        "--conversation",
        "app",
        "--session",
        "s1",
    ]);
    std::fs::write(
        house.folder.path().join("session.md"),
        "User: which port is it?\n\nAssistant: It is 7431.\n",
    )
    .unwrap();
    walk.ok(&["session", "add", "session.md", "--conversation", "app", "--session", "s2"]);
    std::fs::write(
        house.folder.path().join("state.md"),
        "# State\n\nHalf of the import is done.\n",
    )
    .unwrap();
    walk.ok(&["save-state", "state.md", "--title", "before lunch"]);
    let line = json!({ "conversation": "old", "role": "user", "ts": "2026-01-05T10:00:00+01:00", "text": "The old house had a blue door" });
    std::fs::write(house.folder.path().join("history.jsonl"), format!("{line}\n")).unwrap();
    walk.ok(&["import", "history.jsonl"]);
    std::fs::create_dir_all(house.folder.path().join("older/memory")).unwrap();
    std::fs::write(
        house.folder.path().join("older/MEMORY.md"),
        "- The printer is on the second floor\n",
    )
    .unwrap();
    walk.ok(&["migrate", "older"]);

    // Rollups, consolidation, reports.
    walk.ok(&["rollup"]);
    walk.ok(&["summary", "review"]);
    walk.ok(&["summary", "mark", "2026-01-05", "important"]);
    walk.ok(&["consolidate"]);
    walk.ok(&["compact", "--dry-run"]);
    walk.ok(&["compact"]);
    walk.ok(&["prune"]);
    walk.ok(&["triggers"]);
    for pack in ["upload", "pyramid", "recall", "session-start"] {
        walk.ok(&["pack", pack]);
    }
    walk.ok(&["pack", "delta", "may we deploy today?"]);
    assert!(walk.ok(&["zoom", "2026-01-05"]).contains("blue door"));
    assert!(walk.ok(&["search", "spare key"]).contains("Kasimir"));
    walk.ok(&["insights", "trends"]);
    walk.ok(&["insights", "lookback"]);
    walk.note(&["insights", "similar"]);
    assert!(matches!(house.run(&["insights", "similar"]).code, Some(0 | 3)));

    // Servers, and their conversations.
    walk.note(&["serve"]);
    {
        let server = house.serve();
        assert_eq!(server.get("/readyz").status, 200);
        assert_eq!(
            turn(&server, None, "trip", &format!("Never fly at night. {}", PADDING.repeat(3))),
            200
        );
        within("the turn remembered", || {
            let turns = server.get("/api/conversations/trip/turns");
            (turns.status == 200
                && turns.json()["turns"].as_array().is_some_and(|turns| !turns.is_empty()))
            .then_some(())
        });
        assert_eq!(turn(&server, Some("ann"), "hers", "hello"), 200);
    }
    walk.note(&["chat"]);
    let chatted = bare(program())
        .env("HOME", house.folder.path())
        .env("ICECORE_STORE", house.address())
        .args(["chat", "--conversation", "trip", "what now?"])
        .output()
        .unwrap();
    assert_eq!(command_output(chatted).code, Some(0));
    for what in ["show", "facts", "turns", "artifacts", "export"] {
        walk.ok(&["conversation", what, "trip"]);
    }
    walk.note(&["conversation", "retry"]);
    let summary = r#"{"user_summary":"Wants no flights at night.","assistant_summary":"Agreed.","base_truth_diff":{"add":["Never fly at night"],"update":[],"remove":[]}}"#;
    let summarizer = format!("http://{}/v1", answering(Duration::ZERO, |_| summary.into()));
    let named = [("PROVIDER", "openai"), ("BASE_URL", summarizer.as_str()), ("MODEL", "stub")];
    let mut retry = house.command(&["conversation", "retry", "trip"]);
    retry.envs(named.map(|(name, value)| (format!("ICECORE_SUMMARIZER_{name}"), value)));
    let retried = command_output(retry.output().unwrap());
    assert_eq!(retried.code, Some(0), "{retried:?}");
    assert!(walk.ok(&["conversation", "list"]).contains("trip"));
    assert!(house.ok(&["conversation", "list", "--user", "ann"]).contains("hers"));
    assert_eq!(house.run(&["conversation", "list", "--user", "ben"]).code, Some(3));
    walk.ok(&["conversation", "diff", "trip", "0", "1"]);
    let facts = walk.json(&["conversation", "facts", "trip"]);
    let fact = facts["facts"][0]["id"].as_str().unwrap_or_else(|| panic!("{facts}")).to_owned();
    walk.ok(&["conversation", "promote", "trip", &fact]);
    walk.ok(&["pack", "chat", "--conversation", "trip"]);
    walk.ok(&["conversation", "delete", "trip", "--yes"]);

    // Assistants.
    walk.note(&["mcp"]);
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params":
        { "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    let answered = house.feed(&["mcp"], &format!("{hello}\n"));
    assert!(answered.out.contains("icecore"), "{answered:?}");
    walk.note(&["memory-tool"]);
    let made = json!({ "command": "create", "path": "/memories/plan.md", "file_text": "first\n" })
        .to_string();
    assert_eq!(house.feed(&["memory-tool", "--json"], &made).code, Some(0));
    walk.ok(&["memory-tool", "--versions", "/memories/plan.md"]);
    walk.note(&["hook"]);
    for event in ["session-start", "user-prompt-submit", "stop", "session-end"] {
        let told = json!({ "session_id": "s9", "prompt": "may we deploy on Friday?", "last_assistant_message": "no" }).to_string();
        let answered = house.feed(&["hook", event], &told);
        assert!(
            answered.code == Some(0) && !answered.out.contains("not available"),
            "{event}: {answered:?}"
        );
    }
    within("the prompt that the hook kept", || {
        house.ok(&["zoom", "2026-02-13"]).contains("may we deploy").then_some(())
    });
    assert_eq!(house.json(&["status"])["wrong"], json!([]));
    walk.ok(&["pause", "--for", "1h"]);
    walk.ok(&["resume"]);
    walk.ok(&["hook", "log"]);
    // The address of a database does not belong in a client's settings; without it a client is
    // connected as usual.
    walk.note(&["install"]);
    let bound = house.run(&["install", "claude-code", "--yes", "--store", &house.address()]);
    assert!(bound.code == Some(2) && bound.err.contains("ICECORE_STORE_FILE"), "{bound:?}");
    assert_eq!(house.run(&["install", "claude-code", "--yes"]).code, Some(0));

    // Maintenance.
    walk.ok(&["jobs", "schedule"]);
    assert!(walk.ok(&["jobs", "calendar", "--ics"]).contains("icecore default"));
    within("the processes that the hooks began", || {
        (house.cluster.sql("SELECT count(*) FROM icecore.claim WHERE until >= now()") == "0")
            .then_some(())
    });
    walk.ok(&["daemon", "--once"]);
    walk.ok(&["jobs", "runs"]);
    walk.ok(&["vault", "config", "show"]);
    walk.ok(&["vault", "config", "check"]);
    std::fs::write(house.folder.path().join("policy.toml"), "zone = \"Asia/Tokyo\"\n").unwrap();
    std::fs::write(house.folder.path().join("broken.toml"), "zone = \"Nowhere/Town\"\n").unwrap();
    assert_eq!(house.run(&["vault", "config", "set", "broken.toml"]).code, Some(2));
    walk.ok(&["vault", "config", "set", "policy.toml"]);
    assert!(house.ok(&["vault", "config", "show"]).contains("Asia/Tokyo"));
    std::fs::write(house.folder.path().join("policy.toml"), "zone = \"Europe/Berlin\"\n").unwrap();
    house.ok(&["vault", "config", "set", "policy.toml"]);
    walk.ok(&["snapshot", "--note", "before"]);
    walk.remembers(&["The moon is made of cheese"]);
    walk.ok(&["undo"]);
    assert!(!house.ok(&["events"]).contains("cheese"));
    let forget = ["forget", "--matching", "blue door", "--yes"];
    walk.note(&forget);
    // The session that ended above may still be read, and due jobs may run.
    within("a moment to forget in", || {
        let forgot = house.run(&forget);
        assert!([Some(0), Some(75)].contains(&forgot.code), "{forgot:?}");
        (forgot.code == Some(0)).then_some(())
    });
    assert_eq!(house.run(&["search", "blue door"]).code, Some(3));
    walk.ok(&["vault", "reindex"]);
    walk.ok(&["doctor", "--fix"]);
    walk.ok(&["verify"]);
    let status = walk.json(&["status"]);
    assert!(
        status["space"] == "default"
            && status["vault"].as_str().unwrap().starts_with("postgres://127.0.0.1"),
        "{status}"
    );

    // Access control.
    let token = walk.json(&["db", "token", "add", "--scope", "read", "--label", "test"]);
    let id = token["id"]
        .as_str()
        .or(token["token"]["id"].as_str())
        .unwrap_or_else(|| panic!("{token}"))
        .to_owned();
    walk.ok(&["db", "token", "list"]);
    let rotated = walk.json(&["db", "token", "rotate", &id]);
    let id = rotated["id"]
        .as_str()
        .or(rotated["token"]["id"].as_str())
        .unwrap_or_else(|| panic!("{rotated}"))
        .to_owned();
    walk.ok(&["db", "token", "revoke", &id]);
    house.ok(&["init", "--space", "default/spare", "-q"]);
    assert!(walk.ok(&["db", "space", "list"]).contains("spare"));
    walk.ok(&["db", "space", "show", "spare"]);
    walk.ok(&["db", "space", "quota", "spare", "--messages-per-day", "100"]);
    walk.ok(&["db", "audit"]);
    walk.ok(&["db", "space", "erase", "spare", "--yes"]);
    assert_eq!(house.run(&["status", "--space", "default/spare"]).code, Some(3));

    // Export and backup.
    walk.ok(&["vault", "export", "taken"]);
    assert!(house.folder.path().join("taken/memory/ledger.jsonl").is_file());
    walk.ok(&["vault", "backup", "create", "whole.backup"]);
    walk.ok(&["vault", "backup", "verify", "whole.backup"]);
    walk.ok(&["vault", "backup", "restore", "whole.backup", "--space", "again"]);
    assert_eq!(
        house.json(&["events", "--all", "--space", "again"]),
        house.json(&["events", "--all"])
    );

    for (arguments, instead) in REFUSED {
        walk.note(arguments);
        let refused = house.run(arguments);
        assert!(
            refused.code == Some(2) && refused.err.contains(instead),
            "{arguments:?}: {refused:?}"
        );
    }
    let there = leaves();
    let elsewhere: BTreeSet<String> =
        ELSEWHERE.iter().map(|(name, _)| (*name).to_owned()).collect();
    let walked: BTreeSet<String> = walk.walked.union(&elsewhere).cloned().collect();
    assert_eq!(
        there.difference(&walked).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "commands that nobody tried on a space"
    );
    assert_eq!(
        walked.difference(&there).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "commands that are not there"
    );
}

// Which memory is used: options before the environment, a database before a vault
#[test]
fn a_database_is_named_by_an_option_a_variable_or_a_file() {
    let house = TestDatabase::new();
    house.ok(&["init", "--space", "team"]);
    let secret = house.folder.path().join("store");
    std::fs::write(&secret, format!("{}\n", house.address())).unwrap();
    let vault = house.folder.path().join("vault");
    let plain = |environment: &[(&str, &str)], arguments: &[&str]| {
        let mut command = bare(program());
        command
            .env("HOME", house.folder.path())
            .envs(environment.iter().copied())
            .args(arguments)
            .args(["status", "--json"]);
        let said = command_output(command.output().unwrap());
        assert!(!said.out.contains(PASSWORD) && !said.err.contains(PASSWORD), "{said:?}");
        said
    };
    let (address, vault, file) =
        (house.address(), vault.to_str().unwrap(), secret.to_str().unwrap());
    assert_eq!(
        command_output(bare(program()).args(["init", vault, "--tz", "UTC"]).output().unwrap()).code,
        Some(0)
    );
    let is_space = |said: &CommandOutput| said.code == Some(0) && said.json()["space"] == "team";
    let is_vault = |said: &CommandOutput| said.code == Some(0) && said.json()["vault"] == vault;
    assert!(is_space(&plain(&[], &["--store", &address, "--space", "team"])));
    assert!(is_space(&plain(
        &[("ICECORE_VAULT", vault)],
        &["--store", &address, "--space", "team"]
    )));
    assert!(is_space(&plain(
        &[("ICECORE_STORE", &address), ("ICECORE_SPACE", "team"), ("ICECORE_VAULT", vault)],
        &[]
    )));
    assert!(is_space(&plain(&[("ICECORE_STORE_FILE", file), ("ICECORE_SPACE", "team")], &[])));
    assert!(is_vault(&plain(&[("ICECORE_STORE", &address)], &["--vault", vault])));
    assert!(is_vault(&plain(&[("ICECORE_STORE", ""), ("ICECORE_VAULT", vault)], &[])));
    // An invalid selection is an error, never with the address in it.
    let check = |environment: &[(&str, &str)], arguments: &[&str], code: i32, words: &str| {
        let said = plain(environment, arguments);
        assert!(said.code == Some(code) && said.err.contains(words), "{arguments:?}: {said:?}");
    };
    check(&[], &["--space", "team"], 2, "--store");
    check(&[], &["--vault", vault, "--store", &address, "--space", "team"], 2, "give one of them");
    check(&[], &["--vault", vault, "--space", "team"], 2, "a folder has no spaces");
    check(&[("ICECORE_STORE", &address)], &["--space", ""], 2, "--space is empty");
    check(&[("ICECORE_STORE_FILE", "/nonexistent/store")], &[], 2, "ICECORE_STORE_FILE");
    check(&[], &["--store", &format!("nonsense:{PASSWORD}@@")], 2, "cannot be read");
    check(&[], &["--store", &address, "--space", " team"], 2, "cannot be the name of a space");
    house.settings("[store]\nconnection_timeout_secs = 1\n");
    check(
        &[],
        &["--store", &format!("postgres://postgres:{PASSWORD}@127.0.0.1:1/postgres")],
        75,
        "127.0.0.1:1/postgres",
    );
    house.settings("[store]\nmax_conections = 4\n");
    check(&[], &["--store", &address], 2, "store.max_connections");
}

// C8: a turn waits until the last one is summarized, by whichever server
#[test]
fn turns_of_a_conversation_alternate_between_two_servers_and_each_knows_the_last() {
    const TURNS: usize = 8;
    let house = TestDatabase::new();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = asked.clone();
    let number = |body: &str| {
        let numbers = body
            .split("code number ")
            .skip(1)
            .filter_map(|rest| rest.split(' ').next()?.parse::<usize>().ok());
        numbers.max().unwrap_or(0)
    };
    let chat = answering(Duration::ZERO, move |body| {
        let mut heard = heard.lock().unwrap();
        heard.push(body.to_owned());
        format!("Noted, that was reply number {}.", heard.len())
    });
    // The model takes longer than a turn.
    let summarizer = answering(Duration::from_millis(500), move |body| {
        let said = body.split("Exchange").last().unwrap_or(body);
        let fact = format!("The code number {} is in force", number(said));
        json!({ "user_summary": fact, "assistant_summary": "Noted it.", "base_truth_diff": { "add": [fact], "update": [], "remove": [] } })
            .to_string()
    });
    house.settings(&(model_settings("chat", chat) + &model_settings("summarizer", summarizer)));
    house.ok(&["init", "--tz", "UTC"]);
    let servers = [house.serve(), house.serve()];
    for n in 1..=TURNS {
        let words = format!("From now on code number {n} is in force. {}", PADDING.repeat(3));
        assert_eq!(turn(&servers[n % 2], Some("ann"), "codes", &words), 200);
    }
    let asked = asked.lock().unwrap().clone();
    assert_eq!(asked.len(), TURNS);
    for (n, body) in asked.iter().enumerate().skip(1) {
        // The exchange verbatim, and its facts: the model had half a second for it in the other
        // process.
        assert!(
            body.contains(&format!("reply number {n}.")),
            "turn {} does not know the exchange before it",
            n + 1
        );
        assert!(
            body.contains(&format!("The code number {n} is in force")),
            "turn {} began before the last was remembered: {body}",
            n + 1
        );
    }
    within("the last turn remembered", || {
        let turns = servers[0].ok(Some("ann"), "GET", "/api/conversations/codes/turns", "");
        (turns["turns"].as_array().unwrap().len() == TURNS).then_some(())
    });
    let kept = servers[1].ok(Some("ann"), "GET", "/api/conversations/codes/export", "");
    let messages = kept["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 2 * TURNS, "an exchange is lost or doubled: {kept}");
    for n in 1..=TURNS {
        let asks = |message: &&Value| {
            message["text"].as_str().unwrap().contains(&format!("code number {n} "))
        };
        assert_eq!(messages.iter().filter(asks).count(), 1);
    }
    assert_eq!(house.cluster.sql("SELECT count(*) FROM icecore.waiting"), "0");
}

// C8: concurrent turns of one conversation, at two servers, are all stored exactly once
#[test]
fn exchanges_that_end_at_once_at_two_servers_are_all_kept_once() {
    let house = TestDatabase::new();
    let chat = answering(Duration::from_millis(20), |_| "Noted.".into());
    house.settings(&model_settings("chat", chat));
    house.ok(&["init", "--tz", "UTC"]);
    let servers = [house.serve(), house.serve()];
    thread::scope(|scope| {
        for n in 0..40 {
            let server = &servers[n % 2];
            scope.spawn(move || {
                assert_eq!(turn(server, Some("ann"), "crowd", &format!("number {n} speaks")), 200)
            });
        }
    });
    let kept = servers[0].ok(Some("ann"), "GET", "/api/conversations/crowd/export", "");
    let messages = kept["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 80, "an exchange is lost or doubled");
    let said: BTreeSet<&str> = messages
        .iter()
        .filter_map(|message| message["text"].as_str())
        .filter(|text| text.starts_with("number"))
        .collect();
    assert_eq!(said.len(), 40);
    within("nothing left to remember", || {
        (house.cluster.sql("SELECT count(*) FROM icecore.waiting") == "0").then_some(())
    });
}

// C8: during an outage the reply arrives with a warning that it is not stored, and it is stored
// when the database is back
#[test]
fn an_exchange_during_a_database_outage_is_reported_and_persisted_afterwards() {
    let house = TestDatabase::with(Durability::Flushed);
    let (asked, gone) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let chat = answering(Duration::ZERO, {
        let (asked, gone) = (asked.clone(), gone.clone());
        move |body| {
            if body.contains("harbour") {
                asked.wait();
                gone.wait();
            }
            "Noted.".into()
        }
    });
    house.settings(&format!(
        "{}[store]\nconnection_timeout_secs = 1\n",
        model_settings("chat", chat)
    ));
    house.ok(&["init", "--tz", "UTC"]);
    let server = house.serve();
    assert!(
        send_chat(&server, Some("ann"), "talk", "hi there").head.contains("x-icecore-memory: on")
    );
    let answer = thread::scope(|scope| {
        let turn =
            scope.spawn(|| send_chat(&server, Some("ann"), "talk", "the harbour opens at six"));
        asked.wait();
        house.cluster.kill();
        gone.wait();
        turn.join().unwrap()
    });
    assert!(answer.status == 200 && answer.text.contains("Noted."), "{}", answer.text);
    assert!(answer.head.contains("x-icecore-memory: failed"), "{}", answer.head);
    house.cluster.start_again();
    let messages = within("the exchange", || {
        let kept = server.ask(Some("ann"), "GET", "/api/conversations/talk/export", "");
        let kept: Value = serde_json::from_str(&kept.text).ok()?;
        kept["messages"].as_array().filter(|messages| messages.len() > 2).cloned()
    });
    let texts: Vec<&str> = messages.iter().filter_map(|message| message["text"].as_str()).collect();
    assert_eq!(texts, ["hi there", "Noted.", "the harbour opens at six", "Noted."]);
}

// C14: a user who is forgotten at one server is gone at the other, permanently
#[test]
fn what_one_server_does_the_other_sees() {
    let house = TestDatabase::new();
    let chat = answering(Duration::ZERO, |_| "Hello.".into());
    house.settings(&model_settings("chat", chat));
    house.ok(&["init", "--tz", "UTC"]);
    let (one, other) = (house.serve(), house.serve());
    for user in ["ann", "a/b", "ben@example.org"] {
        assert_eq!(turn(&one, Some(user), "talk", "my cat is called Mimi"), 200);
    }
    let users = |server: &Server| {
        let told = server.ok(None, "GET", "/api/users", "");
        told["users"]
            .as_array()
            .unwrap()
            .iter()
            .map(|user| user["user"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(users(&other), ["a/b", "ann", "ben@example.org"]);
    assert_eq!(turn(&other, Some("ann"), "talk", "and my dog Bello"), 200);
    let messages =
        |server: &Server| server.ask(Some("ann"), "GET", "/api/conversations/talk/export", "");
    assert_eq!(messages(&one).json()["messages"].as_array().unwrap().len(), 4);
    assert_eq!(other.ask(None, "DELETE", "/api/users/ann", "").status, 200);
    assert_eq!(messages(&one).status, 404);
    assert_eq!(users(&one), ["a/b", "ben@example.org"]);
    // Nothing of the user is left anywhere in the database.
    for table in ["document", "chunk", "record", "session", "note", "waiting"] {
        let left =
            house.cluster.sql(&format!("SELECT count(*) FROM icecore.{table} WHERE space_id NOT IN (SELECT space_id FROM icecore.space)"));
        assert_eq!(left, "0", "{table}");
    }
    // A user who comes back starts with an empty memory, and both servers see it at once.
    assert_eq!(turn(&one, Some("ann"), "talk", "hello again"), 200);
    assert_eq!(messages(&other).json()["messages"].as_array().unwrap().len(), 2);
    // A space of a user has no users of its own.
    let said = house.run(&["conversation", "list", "--user", "b", "--space", "default/a"]);
    assert!(matches!(said.code, Some(2 | 3)), "{said:?}");
}

// K5: the next command is not refused because of a lease that has just ended
#[test]
fn a_process_that_has_ended_has_let_go_of_everything() {
    let house = TestDatabase::new();
    house.ok(&["init", "--tz", "UTC"]);
    let free = |what: &str| {
        let left = house.cluster.sql("SELECT string_agg(work, ' ') FROM icecore.claim");
        assert_eq!(left, "", "{what} left a claim");
    };
    for _ in 0..5 {
        for command in [&["consolidate"][..], &["rollup"], &["compact"], &["daemon", "--once"]] {
            house.ok(command);
            free(command[0]);
        }
        for event in ["session-start", "user-prompt-submit"] {
            let told =
                json!({ "session_id": "s9", "prompt": "may we deploy on Friday?" }).to_string();
            assert_eq!(house.feed(&["hook", event], &told).code, Some(0));
            free(event);
        }
    }
    // A process that is asked to end releases its lease too; a killed one is waited for only as
    // long as its lease.
    let daemon = || {
        let mut daemon = bare(program());
        daemon
            .env("HOME", house.folder.path())
            .env("ICECORE_STORE", house.cluster.url())
            .args(["daemon", "-q"]);
        daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let holds = || {
        house
            .cluster
            .sql("SELECT count(*) FROM icecore.claim WHERE work = 'daemon' AND until >= now()")
            == "1"
    };
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        let mut first = daemon();
        within("the first daemon", || holds().then_some(()));
        let mut second = daemon();
        assert_eq!(second.wait().unwrap().code(), Some(75));
        // When no job is due, it sleeps.
        thread::sleep(Duration::from_secs(2));
        within("a daemon that rests", || {
            (house.cluster.sql("SELECT string_agg(work, ' ') FROM icecore.claim") == "daemon")
                .then_some(())
        });
        let pid = rustix::process::Pid::from_raw(i32::try_from(first.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        first.wait().unwrap();
        if signal == rustix::process::Signal::TERM {
            free("the daemon");
        } else {
            thread::sleep(Duration::from_secs(8));
            within("the claim of the dead", || (!holds()).then_some(()));
        }
    }
}

// Readiness reports an unreachable database without ending the process
#[test]
fn a_server_says_whether_its_database_answers() {
    let house = TestDatabase::with(Durability::Flushed);
    house.ok(&["init", "--tz", "UTC"]);
    let server = house.serve();
    assert_eq!((server.get("/livez").status, server.get("/readyz").status), (200, 200));
    let metrics = server.get("/metrics").text;
    for line in [
        "icecore_database_connections{state=\"most\"} 16",
        "icecore_database_waits_total 0",
        "icecore_database_failures_total 0",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // Every server knows the job backlog, wherever the jobs run.
    let (waits, oldest) = (
        "icecore_jobs{kind=\"tend\",state=\"waiting\"} 1",
        "icecore_jobs_oldest_seconds{kind=\"tend\"}",
    );
    assert!(metrics.contains(waits) && metrics.contains(oldest), "{metrics}");
    assert_eq!(metrics.matches("# EOF").count(), 1);
    house.cluster.kill();
    let metrics = server.get("/metrics");
    assert!(
        metrics.status == 200 && metrics.text.contains("icecore_database_connections"),
        "{metrics:?}"
    );
    let away = server.get("/readyz");
    assert_eq!(
        (away.status, away.text.as_str()),
        (503, "not ready: the database does not answer\n")
    );
    assert_eq!(server.get("/livez").status, 200);
    house.cluster.start_again();
    within("ready again", || (server.get("/readyz").status == 200).then_some(()));
    // Tables of a later version that this one can use, and of one that it cannot.
    house.cluster.sql("INSERT INTO icecore.migration (number, name, fingerprint, least) VALUES (98, 'later', 'x', 6)");
    assert_eq!(server.get("/readyz").status, 200);
    house.ok(&["status"]);
    house.cluster.sql("INSERT INTO icecore.migration (number, name, fingerprint, least) VALUES (99, 'much later', 'x', 99)");
    let said = house.run(&["status"]);
    assert!(said.code == Some(5) && said.err.contains("its tables are newer"), "{said:?}");
    let other = server.get("/readyz");
    assert_eq!(
        (other.status, other.text.as_str()),
        (503, "not ready: the database has another schema version\n")
    );
}

// Tables are migrated on request only
#[test]
fn older_tables_are_changed_by_migrate_alone() {
    let house = TestDatabase::with(Durability::Unflushed);
    house.ok(&["init", "--tz", "UTC"]);
    house.ok(&["vault", "backup", "create", "kept.zip"]);
    house.ok(&["vault", "export", "vault"]);
    // As if this program had one more migration step than the database.
    house.cluster.sql("CREATE TABLE taken AS SELECT * FROM icecore.migration WHERE number = 7");
    house.cluster.sql("DELETE FROM icecore.migration WHERE number = 7");
    for args in [
        &["init", "--tz", "UTC", "--space", "another"] as &[&str],
        &["import", "--whole", "vault", "--space", "another"],
        &["vault", "backup", "restore", "kept.zip", "--space", "another"],
    ] {
        let said = house.run(args);
        assert!(
            said.code == Some(1) && said.err.contains("icecore db migrate"),
            "{args:?}: {said:?}"
        );
    }
    assert_eq!(house.cluster.sql("SELECT max(number) FROM icecore.migration"), "6");
    house.cluster.sql("INSERT INTO icecore.migration SELECT * FROM taken");
    house.ok(&["import", "--whole", "vault", "--space", "another"]);
}
