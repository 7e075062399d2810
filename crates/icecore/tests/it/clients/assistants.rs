//! `icecore install` with the assistants themselves, as npm has them: after it their settings are
//! still valid, a prompt reaches the model, and memory has it. The model is a script on this
//! machine.
//!
//! `ICECORE_LONG` adds the versions that `just long` installs.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Answer, ReceivedRequest, Scripted};
use crate::hooks::wait_until_settled;
use crate::model::repository_root;
use crate::program::{CommandOutput, Vault, command_output};
use crate::test_user::Person;

const DECIDED: &str = "We decided that the relay service listens on port 7431.";
const KNOWN: &str = "listens on port 7431";
/// A client that takes longer than this hangs.
const RUN_SECS: &str = "120";

/// A version of a client, its folder in `target`, and its program there.
struct Assistant {
    version: &'static str,
    folder: &'static str,
    program: &'static str,
}

const CLAUDE_CODE: [Assistant; 4] = [
    Assistant { version: "2.1.39", folder: "assistants", program: "claude-code-2.1.39/cli.js" },
    Assistant {
        version: "2.1.327",
        folder: "assistants",
        program: "claude-code-2.1.327/cli-wrapper.cjs",
    },
    Assistant {
        version: "1.0.85",
        folder: "assistants-long",
        program: "claude-code-1.0.85/cli.js",
    },
    Assistant {
        version: "2.1.138",
        folder: "assistants-long",
        program: "claude-code-2.1.138/cli-wrapper.cjs",
    },
];
const CODEX: [Assistant; 2] = [
    Assistant {
        version: "0.169.0",
        folder: "assistants-long",
        program: "codex-0.169.0/bin/codex.js",
    },
    Assistant {
        version: "0.147.0",
        folder: "assistants-long",
        program: "codex-0.147.0/bin/codex.js",
    },
];

impl Assistant {
    fn is_wanted(&self) -> bool {
        self.folder == "assistants" || std::env::var_os("ICECORE_LONG").is_some()
    }

    /// A user with the client on the search path.
    fn of_person(&self, name: &str) -> Person {
        let program: PathBuf = repository_root()
            .join("target")
            .join(self.folder)
            .join("node_modules")
            .join(self.program);
        assert!(
            program.exists(),
            "there is no assistant to test with: {} is missing. `./tests/clients/install` installs it, with --long what `just long` \
             needs; both need a network",
            program.display()
        );
        let person = Person::new();
        person.put_program(name, &format!("exec node '{}' \"$@\"", program.display()));
        person
    }
}

/// A command that runs only with the user's permission.
const OWN_TOOL: &str = "own-tool";

/// An Anthropic model: it requests that command once, then answers.
fn anthropic_model() -> Scripted {
    Scripted::start(|request| {
        if !is_prompt(request) {
            return Answer::json(&json!({ "input_tokens": 10 }));
        }
        let body = request.json();
        let has_bash = body["tools"]
            .as_array()
            .is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "Bash"));
        let first = has_bash && !body["messages"].to_string().contains("tool_result");
        let (block, delta, reason) = if first {
            let input = json!({ "command": OWN_TOOL, "description": "Makes a file" }).to_string();
            let block = json!({ "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {} });
            (block, json!({ "type": "input_json_delta", "partial_json": input }), "tool_use")
        } else {
            (
                json!({ "type": "text", "text": "" }),
                json!({ "type": "text_delta", "text": "Noted." }),
                "end_turn",
            )
        };
        let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
        let message = json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage,
        });
        if body["stream"] != true {
            let mut message = message;
            message["content"] = json!([{ "type": "text", "text": "Noted." }]);
            message["stop_reason"] = json!("end_turn");
            return Answer::json(&message);
        }
        let events = [
            json!({ "type": "message_start", "message": message }),
            json!({ "type": "content_block_start", "index": 0, "content_block": block }),
            json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": reason, "stop_sequence": null }, "usage": usage }),
            json!({ "type": "message_stop" }),
        ];
        Answer::stream(events.map(|event| sse(&event)).concat())
    })
}

/// An `OpenAI` model that answers.
fn openai_model() -> Scripted {
    Scripted::start(|_| {
        let item = json!({
            "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{ "type": "output_text", "text": "Noted.", "annotations": [] }],
        });
        let usage = json!({
            "input_tokens": 12, "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": 2, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 14,
        });
        let response = json!({ "id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [item], "usage": usage });
        let events = [
            json!({ "type": "response.created", "sequence_number": 0, "response": { "id": "resp_1", "object": "response", "status": "in_progress", "model": "m", "output": [] } }),
            json!({ "type": "response.output_item.done", "sequence_number": 1, "output_index": 0, "item": item }),
            json!({ "type": "response.completed", "sequence_number": 2, "response": response }),
        ];
        Answer::stream(events.map(|event| sse(&event)).concat())
    })
}

fn sse(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}

fn is_prompt(request: &ReceivedRequest) -> bool {
    (request.path.starts_with("/v1/messages") || request.path.starts_with("/v1/responses"))
        && !request.path.contains("count_tokens")
}

/// The bodies of the requests in which a prompt reached the model.
fn requests(model: &Scripted, prompt: &str) -> Vec<String> {
    let bodies =
        model.all().into_iter().filter(is_prompt).map(|request| request.json().to_string());
    bodies.filter(|body| body.contains(prompt)).collect()
}

/// Runs a client to its end.
fn run(person: &Person, model: &Scripted, words: &[&str]) -> CommandOutput {
    let mut command = person.start("timeout");
    command.arg(RUN_SECS).args(words).envs([
        ("ANTHROPIC_BASE_URL", format!("http://{}", model.address).as_str()),
        ("ANTHROPIC_API_KEY", "x"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
    ]);
    command_output(command.output().unwrap())
}

/// How many records contain the text.
fn count_records(person: &Person, text: &str) -> usize {
    let files =
        std::fs::read_dir(person.vault().join("memory/messages")).into_iter().flatten().flatten();
    files.map(|file| std::fs::read_to_string(file.path()).unwrap().matches(text).count()).sum()
}

/// A user's own settings of Claude Code: a hook and a permission, whose effects are visible.
fn own_settings(person: &Person) -> String {
    person.put_program(OWN_TOOL, &format!("touch {}", person.at("own-permission").display()));
    let hook = json!([{ "hooks": [{ "type": "command", "command": format!("touch {}", person.at("own-hook").display()) }] }]);
    let settings = json!({ "permissions": { "allow": [format!("Bash({OWN_TOOL}:*)")] }, "hooks": { "UserPromptSubmit": hook } });
    serde_json::to_string_pretty(&settings).unwrap()
}

fn check_claude_code(assistant: &Assistant) {
    let version = assistant.version;
    let person = assistant.of_person("claude");
    let settings = own_settings(&person);
    person.write(".claude/settings.json", &settings);
    let model = anthropic_model();
    let told = person.json(&["install", "claude-code", "--yes"]);
    assert_eq!(told["version"], version, "{told}");
    let first = run(&person, &model, &["claude", "-p", DECIDED]);
    assert_eq!((first.code, first.out.trim()), (Some(0), "Noted."), "{version}: {first:?}");
    // Newer versions report unreadable settings on standard error.
    assert!(!first.err.contains("settings"), "{version}: {first:?}");
    assert!(!requests(&model, DECIDED).is_empty(), "{version}: the prompt did not reach the model");
    assert!(person.at("own-hook").exists(), "{version}: the person's own hook did not run");
    let results = requests(&model, "tool_result");
    assert!(
        person.at("own-permission").exists(),
        "{version}: the person's own permission did not hold: {results:?}"
    );
    wait_until_settled(&Vault::at_root(person.vault()));
    assert_eq!(
        (count_records(&person, DECIDED), count_records(&person, "\"Noted.\"")),
        (1, 1),
        "{version}: in memory"
    );
    // The next session receives it.
    let second = run(&person, &model, &["claude", "-p", "Which port was it again?"]);
    assert_eq!(second.code, Some(0), "{version}: {second:?}");
    let asked = requests(&model, "Which port was it again?");
    assert!(asked.iter().any(|body| body.contains(KNOWN)), "{version}: {asked:?}");
    let servers = run(&person, &model, &["claude", "mcp", "list"]);
    assert!(
        servers.out.contains("icecore mcp") && servers.out.contains("Connected"),
        "{version}: {servers:?}"
    );
    wait_until_settled(&Vault::at_root(person.vault()));
    person.ok(&["uninstall", "claude-code", "--yes"]);
    assert_eq!(person.read(".claude/settings.json"), settings, "{version}");
}

/// Hooks in the form with `args`, which this version does not know, block no prompt.
fn check_old_form(assistant: &Assistant) {
    let person = assistant.of_person("claude");
    person.ok(&["init", "-q"]);
    let hook = json!([{ "hooks": [{ "type": "command", "command": "icecore", "args": ["hook", "user-prompt-submit"] }] }]);
    person.write(
        ".claude/settings.json",
        &json!({ "hooks": { "UserPromptSubmit": hook } }).to_string(),
    );
    let model = anthropic_model();
    let first = run(&person, &model, &["claude", "-p", DECIDED]);
    assert_eq!(
        (first.code, first.out.trim()),
        (Some(0), "Noted."),
        "{}: {first:?}",
        assistant.version
    );
    assert_eq!(
        requests(&model, "Long-term memory for LLM assistants").len(),
        0,
        "help became context"
    );
    person.ok(&["install", "claude-code", "--yes"]);
    run(&person, &model, &["claude", "-p", DECIDED]);
    wait_until_settled(&Vault::at_root(person.vault()));
    assert_eq!(count_records(&person, DECIDED), 1, "{}", assistant.version);
}

fn check_codex(assistant: &Assistant) {
    let version = assistant.version;
    let person = assistant.of_person("codex");
    let model = openai_model();
    let provider = format!(
        "[model_providers.script]\nname = \"script\"\nbase_url = \"{}\"\nwire_api = \"responses\"\n",
        model.base()
    );
    person.write(
        ".codex/config.toml",
        &format!("model = \"m\"\nmodel_provider = \"script\"\n{provider}"),
    );
    let told = person.json(&["install", "codex", "--yes"]);
    assert_eq!(told["version"], version, "{told}");
    let exec = ["codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-hook-trust"];
    let first = run(&person, &model, &[&exec[..], &[DECIDED]].concat());
    assert_eq!((first.code, first.out.trim()), (Some(0), "Noted."), "{version}: {first:?}");
    let hook_warnings: Vec<&str> =
        first.err.lines().filter(|line| line.contains("hooks.json")).collect();
    assert!(hook_warnings.is_empty() && !first.err.contains("Failed"), "{version}: {first:?}");
    assert!(!requests(&model, DECIDED).is_empty(), "{version}: the prompt did not reach the model");
    wait_until_settled(&Vault::at_root(person.vault()));
    assert_eq!(
        (count_records(&person, DECIDED), count_records(&person, "\"Noted.\"")),
        (1, 1),
        "{version}: in memory"
    );
    let second = run(&person, &model, &[&exec[..], &["Which port was it again?"]].concat());
    assert_eq!(second.code, Some(0), "{version}: {second:?}");
    let asked = requests(&model, "Which port was it again?");
    assert!(asked.iter().any(|body| body.contains(KNOWN)), "{version}: {asked:?}");
    wait_until_settled(&Vault::at_root(person.vault()));
}

#[test]
fn assistants_work_after_install() {
    CLAUDE_CODE.iter().filter(|assistant| assistant.is_wanted()).for_each(check_claude_code);
    // A version that does not know `args`: the oldest of ./test, and the last.
    CLAUDE_CODE
        .iter()
        .filter(|assistant| assistant.is_wanted() && assistant.version != "2.1.327")
        .for_each(check_old_form);
    CODEX.iter().filter(|assistant| assistant.is_wanted()).for_each(check_codex);
}
