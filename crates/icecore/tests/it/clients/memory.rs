//! The official package's own memory tool, stored in the vault: its runner asks the model, the
//! model calls the tool, and the results go back to it, all through the real server.

use serde_json::{Value, json};

use super::{Answer, Client, Package, ReceivedRequest, Scripted, Server, TestHome};

/// The calls of the model, one after the other, and the expected results.
fn calls() -> Vec<(Value, &'static str, bool)> {
    const LISTED: &str = "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and node_modules:\n";
    vec![
        (
            json!({ "command": "view", "path": "/memories" }),
            "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and node_modules:\n0B\t/memories",
            false,
        ),
        (
            json!({ "command": "create", "path": "/memories/port.md", "file_text": "# Ports\nAPI: 1\n" }),
            "File created successfully at: /memories/port.md",
            false,
        ),
        (
            json!({ "command": "create", "path": "/memories/port.md", "file_text": "again" }),
            "Error: File /memories/port.md already exists",
            true,
        ),
        (
            json!({ "command": "str_replace", "path": "/memories/port.md", "old_str": "API: 1", "new_str": "API: 7431" }),
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n     1\t# Ports\n     2\tAPI: 7431",
            false,
        ),
        (
            json!({ "command": "insert", "path": "/memories/port.md", "insert_line": 2, "insert_text": "DB: 5432\n" }),
            "The file /memories/port.md has been edited.",
            false,
        ),
        (
            json!({ "command": "view", "path": "/memories/port.md", "view_range": [2, 3] }),
            "Here's the content of /memories/port.md with line numbers:\n     2\tAPI: 7431\n     3\tDB: 5432",
            false,
        ),
        (
            json!({ "command": "rename", "old_path": "/memories/port.md", "new_path": "/memories/net/ports.md" }),
            "Successfully renamed /memories/port.md to /memories/net/ports.md",
            false,
        ),
        (
            json!({ "command": "view", "path": "/memories/../../icecore.toml" }),
            "Error: The path /memories/../../icecore.toml is not allowed: every name in it has to be a plain one, without `..` and without \\ : * ? \" < > |",
            true,
        ),
        (
            json!({ "command": "create", "path": "/memories/old.md", "file_text": "x" }),
            "File created successfully at: /memories/old.md",
            false,
        ),
        (
            json!({ "command": "delete", "path": "/memories/old.md" }),
            "Successfully deleted /memories/old.md",
            false,
        ),
        (
            json!({ "command": "view", "path": "/memories" }),
            Box::leak(
                format!("{LISTED}27B\t/memories\n27B\t/memories/net\n27B\t/memories/net/ports.md")
                    .into_boxed_str(),
            ),
            false,
        ),
    ]
}

fn play(request: &ReceivedRequest) -> Answer {
    let done = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    let (content, stop) = match calls().get(done) {
        Some((input, ..)) => (
            json!({ "type": "tool_use", "id": format!("toolu_{done}"), "name": "memory", "input": input }),
            "tool_use",
        ),
        None => (json!({ "type": "text", "text": "Noted." }), "end_turn"),
    };
    Answer::json(&json!({
        "id": format!("msg_{done}"), "type": "message", "role": "assistant", "model": "golden", "content": [content],
        "stop_reason": stop, "stop_sequence": null, "usage": { "input_tokens": 5, "output_tokens": 5 },
    }))
}

#[test]
fn the_official_memory_tool_is_kept_in_the_vault() {
    let script = Scripted::start(play);
    let home = TestHome::new("").with_model(
        "chat",
        "anthropic",
        &format!("http://{}", script.address),
        "golden",
    );
    let server = Server::start(&home);
    let mut client = Client::start(Package::AnthropicPython);
    let body = json!({ "model": "golden", "max_tokens": 100, "messages": [{ "role": "user", "content": "Remember the ports." }] });
    let seen = client.gets(&server, "memory", &json!({ "body": body }));
    assert_eq!(
        seen["replies"].as_array().unwrap().last().unwrap()["content"][0]["text"],
        "Noted.",
        "{seen}"
    );
    // The tool is declared in the model's format, and every result reached the model as documented.
    assert_eq!(
        script.all()[0].json()["tools"],
        json!([{ "type": "memory_20250818", "name": "memory" }])
    );
    let messages = script.last().messages();
    let results: Vec<&Value> = messages
        .iter()
        .filter_map(|message| message["content"].as_array())
        .flatten()
        .filter(|part| part["type"] == "tool_result")
        .collect();
    let expected = calls();
    assert_eq!(results.len(), expected.len(), "{messages:?}");
    for (result, (input, content, is_error)) in results.iter().zip(&expected) {
        let told = result["content"]
            .as_str()
            .or_else(|| result["content"][0]["text"].as_str())
            .unwrap_or_default();
        assert_eq!((told, result["is_error"] == true), (*content, *is_error), "{input}");
    }
    assert_eq!(
        std::fs::read_to_string(home.vault().join("memory/tool/net/ports.md")).unwrap(),
        "# Ports\nAPI: 7431\nDB: 5432\n"
    );
    // Search finds the text, and every version can be restored.
    assert_eq!(
        home.json(&["search", "7431", "--kind", "memory"])["hits"][0]["source"],
        "memory/tool/net/ports.md"
    );
    let versions = home.json(&["memory-tool", "--versions", "/memories/net/ports.md"]);
    let texts: Vec<&str> = versions["versions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| version["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        ["# Ports\nAPI: 1\n", "# Ports\nAPI: 7431\n", "# Ports\nAPI: 7431\nDB: 5432\n"]
    );
    assert_eq!(
        home.ok(&["memory-tool", "--versions", "/memories/old.md", "--version", "1"]).out,
        "x"
    );
}
