//! A walkthrough for each client: its settings name icecore, it calls icecore as they say, the next
//! session knows what the first one decided, and uninstalling leaves nothing behind.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::hooks::{context, line, object, wait_until_settled};
use crate::mcp::StdioServer;
use crate::program::{Vault, command_output, program};
use crate::test_user::Person;

const DECIDED: &str = "We decided that the relay service listens on port 7431.";
const KNOWN: &str = "port 7431";

/// A client: its settings files with their content, and whether it has hooks.
struct Client {
    name: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// The file with the hooks.
    hooks: Option<&'static str>,
    /// The file with the MCP server.
    server: &'static str,
}

const CLIENTS: [Client; 5] = [
    Client {
        name: "claude-code",
        files: &[
            (
                ".claude/settings.json",
                "{\n  // mine\n  \"model\": \"opus\",\n  \"hooks\": {\n    \"Stop\": [{ \"hooks\": [{ \"type\": \"command\", \"command\": \"say done\" }] }]\n  }\n}\n",
            ),
            (".claude.json", "{\n  \"numStartups\": 7\n}\n"),
        ],
        hooks: Some(".claude/settings.json"),
        server: ".claude.json",
    },
    Client {
        name: "codex",
        files: &[
            (".codex/hooks.json", "{ \"description\": \"mine\" }\n"),
            (".codex/config.toml", "model = \"x\" # mine\n"),
        ],
        hooks: Some(".codex/hooks.json"),
        server: ".codex/config.toml",
    },
    Client {
        name: "claude-desktop",
        files: &[(".config/Claude/claude_desktop_config.json", "{\"globalShortcut\": \"\"}")],
        hooks: None,
        server: ".config/Claude/claude_desktop_config.json",
    },
    Client {
        name: "cursor",
        files: &[(
            ".cursor/mcp.json",
            "{\r\n\t\"mcpServers\": {\r\n\t\t\"other\": { \"command\": \"other\" }, // kept\r\n\t}\r\n}\r\n",
        )],
        hooks: None,
        server: ".cursor/mcp.json",
    },
    Client {
        name: "vscode",
        files: &[(".config/Code/User/mcp.json", "{\n    \"inputs\": []\n}\n")],
        hooks: None,
        server: ".config/Code/User/mcp.json",
    },
];

/// JSON with comments and trailing commas removed, as the clients' own readers parse it.
fn lenient(text: &str) -> Value {
    let bare: String = text
        .lines()
        .map(|line| line.split(" // ").next().unwrap().split("  //").next().unwrap())
        .collect::<Vec<_>>()
        .join("\n");
    let mut out = String::new();
    for (at, c) in bare.char_indices() {
        let next = bare[at + c.len_utf8()..].trim_start().chars().next();
        if !(c == ',' && matches!(next, Some('}' | ']'))) {
            out.push(c);
        }
    }
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

impl Client {
    /// The commands that the installed settings run for an event of this client.
    fn hooks_of(&self, person: &Person, event: &str) -> Vec<Command> {
        let settings = lenient(&person.read(self.hooks.unwrap()));
        let groups = settings["hooks"][event].as_array().cloned().unwrap_or_default();
        let handlers = groups.iter().flat_map(|group| group["hooks"].as_array().unwrap().clone());
        let ours = handlers.filter(|handler| handler.to_string().contains("icecore"));
        let command = |handler: Value| {
            let mut command = person.start("sh");
            command.args(["-c", handler["command"].as_str().unwrap()]);
            command
        };
        ours.map(command).collect()
    }

    fn hook(&self, person: &Person, event: &str, input: &Value) -> Value {
        let mut commands = self.hooks_of(person, event);
        assert_eq!(commands.len(), 1, "{} {event}", self.name);
        let mut child = commands
            .remove(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.to_string().as_bytes()).unwrap();
        object(&command_output(child.wait_with_output().unwrap()))
    }

    /// What this client sends at an event of a session.
    fn event(&self, person: &Person, session: &str, event: &str, more: Value) -> Value {
        let transcript = person.at(&format!("{}/{session}.jsonl", self.transcripts()));
        let mut fields = json!({
            "session_id": session, "transcript_path": transcript, "cwd": person.at("project/src"), "hook_event_name": event,
        });
        let own = if self.name == "codex" {
            json!({ "model": "gpt-x", "turn_id": "t1" })
        } else {
            json!({ "permission_mode": "default" })
        };
        fields.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    }

    fn transcripts(&self) -> &'static str {
        if self.name == "codex" {
            ".codex/sessions/2026/11/02"
        } else {
            ".claude/projects/project-src"
        }
    }

    /// The transcript that this client writes of the first session.
    fn transcript(&self, person: &Person) -> String {
        if self.name == "codex" {
            let item = |role: &str, kind: &str, text: &str| {
                let content = json!([{ "type": kind, "text": text }]);
                json!({ "timestamp": "2026-02-13T08:30:00.000Z", "type": "response_item", "payload": { "type": "message", "role": role, "content": content } })
            };
            let meta = json!({ "timestamp": "2026-02-13T08:30:00.000Z", "type": "session_meta", "payload": { "id": "s1", "cwd": person.at("project/src") } });
            return [
                meta,
                item("user", "input_text", DECIDED),
                item("assistant", "output_text", "Noted."),
            ]
            .map(|line| format!("{line}\n"))
            .concat();
        }
        let folder = person.at("project/src");
        line("s1", &folder, "08:30:00", "u1", "user", json!(DECIDED))
            + &line(
                "s1",
                &folder,
                "08:30:04",
                "u2",
                "assistant",
                json!([{ "type": "text", "text": "Noted." }]),
            )
    }

    /// Starts the server that the installed settings name.
    fn server(&self, person: &Person) -> Command {
        let text = person.read(self.server);
        let server = if self.server.ends_with(".toml") {
            let table: toml::Table = text.parse().unwrap();
            serde_json::to_value(&table["mcp_servers"]["icecore"]).unwrap()
        } else {
            let settings = lenient(&text);
            let top = if self.name == "vscode" { "servers" } else { "mcpServers" };
            settings[top]["icecore"].clone()
        };
        let mut command = person.start(server["command"].as_str().unwrap());
        command.args(server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()));
        for (name, value) in server["env"].as_object().into_iter().flatten() {
            command.env(name, value.as_str().unwrap());
        }
        command
    }
}

fn walk(name: &str) {
    let client = CLIENTS.iter().find(|client| client.name == name).unwrap();
    let person = Person::new();
    person.ok(&["init", "-q", "--tz", "Europe/Berlin"]);
    for (file, text) in client.files {
        person.write(file, text);
    }
    if client.hooks.is_some() {
        person.write(&format!("{}/s1.jsonl", client.transcripts()), &client.transcript(&person));
    }
    let before = person.everything();
    person.ok(&["install", name, "--yes"]);

    let mut shown = String::new();
    for (file, text) in client.files {
        let visible = |text: &str| text.replace('\t', "<TAB>").replace("\r\n", "<CR>\n");
        shown += &format!(
            "=== {file} before\n{}\n=== {file} after\n{}\n",
            visible(text).trim_end(),
            visible(&person.read(file)).trim_end()
        );
    }
    let shown = shown
        .replace(program(), "[ICECORE]")
        .replace(person.home_dir().to_str().unwrap(), "[HOME]");
    insta::assert_snapshot!(format!("walk_{}", name.replace('-', "_")), shown);

    if client.hooks.is_some() {
        let say = |session: &str, event: &str, more: Value| {
            client.hook(&person, event, &client.event(&person, session, event, more))
        };
        say("s1", "SessionStart", json!({ "source": "startup" }));
        say("s1", "UserPromptSubmit", json!({ "prompt": DECIDED }));
        say("s1", "Stop", json!({ "stop_hook_active": false, "last_assistant_message": "Noted." }));
        say("s1", "PreCompact", json!({ "trigger": "auto", "custom_instructions": "" }));
        say(
            "s1",
            "PostCompact",
            json!({ "trigger": "auto", "compact_summary": "The relay service was talked about." }),
        );
        say("s1", "SessionEnd", json!({ "reason": "other" }));
        wait_until_settled(&Vault::at_root(person.vault()));
        let next = say("s2", "SessionStart", json!({ "source": "startup" }));
        assert!(context(&next).contains(KNOWN), "{name}: {next}");
        let said: Vec<String> = fs::read_dir(person.vault().join("memory/messages"))
            .unwrap()
            .flatten()
            .flat_map(|file| {
                fs::read_to_string(file.path())
                    .unwrap()
                    .lines()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .filter(|line| line.contains(KNOWN))
            .collect();
        assert_eq!(said.len(), 1, "{name}: by the hook and in the transcript, kept once: {said:?}");
    }
    // The server: a decision in one session is known in the next one.
    let mut first = StdioServer::with_handshake(client.server(&person));
    let tools = first.gets("tools/list", json!({}));
    assert!(
        tools["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "remember"),
        "{name}: {tools}"
    );
    first.call_tool(
        "remember",
        json!({ "text": "We decided that the beacon is painted green", "type": "decision" }),
    );
    first.ends();
    let mut second = StdioServer::with_handshake(client.server(&person));
    let pack = second.call_tool("pack", json!({}));
    assert!(
        pack["text"].as_str().unwrap().contains("the beacon is painted green"),
        "{name}: {pack}"
    );
    second.ends();

    person.ok(&["uninstall", name, "--yes"]);
    assert_eq!(person.everything(), before, "{name}: left as it was");
}

#[test]
fn a_walk_with_claude_code() {
    walk("claude-code");
}

#[test]
fn a_walk_with_codex() {
    walk("codex");
}

#[test]
fn a_walk_with_claude_desktop() {
    walk("claude-desktop");
}

#[test]
fn a_walk_with_cursor() {
    walk("cursor");
}

#[test]
fn a_walk_with_vscode() {
    walk("vscode");
}
