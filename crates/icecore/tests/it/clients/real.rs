//! The official clients with a real model: a very small one, so its text is not checked, only that
//! it arrives.

use serde_json::{Value, json};

use super::{Client, Package, Server, TOKEN, TestHome, raw};
use crate::model::SmallModel;

fn reply_text(seen: &Value, package: Package) -> String {
    let message = if package == Package::AnthropicPython {
        &seen["reply"]["content"][0]["text"]
    } else {
        &seen["reply"]["choices"][0]["message"]["content"]
    };
    let text = message.as_str().unwrap_or_default().to_owned();
    assert!(!text.trim().is_empty(), "{package:?} got no words: {seen}");
    text
}

fn turn(seen: &Value) -> u64 {
    seen["headers"]["x-icecore-turn"]
        .as_str()
        .unwrap_or_else(|| panic!("no turn: {seen}"))
        .parse()
        .unwrap()
}

fn body(messages: &[Value]) -> Value {
    json!({ "model": "smollm2", "max_tokens": 12, "messages": messages })
}

fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// Chats, streams and structured output in the format of `package`.
fn talks(client: &mut Client, server: &Server) {
    let package = client.package;
    let off = json!({ "X-Icecore-Memory": "off" });
    assert!(
        client.gets(server, "models", &json!({}))["models"].to_string().contains("smollm2"),
        "{package:?}"
    );
    let asked = [user("What colour is grass?")];
    let seen = client.gets(server, "chat", &json!({ "headers": off, "body": body(&asked) }));
    reply_text(&seen, package);
    assert_eq!(seen["headers"]["x-icecore-memory"], "off", "{seen}");
    if package == Package::AnthropicPython {
        let seen = client.gets(server, "stream", &json!({ "headers": off, "body": body(&asked) }));
        reply_text(&seen, package);
        return;
    }
    assert!(
        seen["reply"]["usage"]["completion_tokens"].as_u64().is_some_and(|tokens| tokens > 0),
        "{seen}"
    );

    let mut streamed = body(&asked);
    streamed["stream_options"] = json!({ "include_usage": true });
    let seen = client.gets(server, "chunks", &json!({ "body": streamed }));
    let chunks = seen["chunks"].as_array().unwrap();
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert!(chunks.len() > 3 && !text.trim().is_empty(), "{package:?}: {seen}");
    assert!(chunks.last().unwrap()["usage"]["total_tokens"].is_u64(), "{package:?}: {seen}");
    assert_eq!(turn(&seen), 1);

    let colour = if package == Package::OpenAiPython {
        let asked = json!({ "model": "smollm2", "max_tokens": 60, "messages": asked });
        client.gets(server, "parse", &json!({ "body": asked }))["parsed"].take()
    } else {
        let names = json!({ "type": "string", "enum": ["red", "green", "blue"] });
        let schema = json!({ "type": "object", "properties": { "name": names, "warm": { "type": "boolean" } },
            "required": ["name", "warm"], "additionalProperties": false });
        let format = json!({ "type": "json_schema", "json_schema": { "name": "colour", "strict": true, "schema": schema } });
        let asked = json!({ "model": "smollm2", "max_tokens": 60, "messages": asked, "response_format": format });
        let seen = client.gets(server, "chat", &json!({ "body": asked }));
        serde_json::from_str(&reply_text(&seen, package)).unwrap()
    };
    assert!(
        ["red", "green", "blue"].contains(&colour["name"].as_str().unwrap_or_default())
            && colour["warm"].is_boolean(),
        "{colour}"
    );

    // Errors of the model server and of icecore are both the client's own error types.
    let wrong =
        json!({ "model": "smollm2", "messages": asked, "response_format": { "type": "nonsense" } });
    let seen = client.does(server, "chat", &json!({ "body": wrong }));
    assert_eq!(
        (&seen["error"]["class"], &seen["error"]["status_code"]),
        (&json!("BadRequestError"), &json!(400)),
        "{package:?}: {seen}"
    );
    let seen = client.does(
        server,
        "chat",
        &json!({ "headers": { "X-Icecore-Memory": "sometimes" }, "body": body(&asked) }),
    );
    assert_eq!(
        (&seen["error"]["class"], &seen["error"]["code"]),
        (&json!("BadRequestError"), &json!("invalid_request")),
        "{seen}"
    );
}

/// A client that sends its whole history needs no conversation id to be recognized.
fn sends_everything(client: &mut Client, server: &Server) -> String {
    let package = client.package;
    let mut messages = Vec::new();
    let mut known: Option<String> = None;
    for number in 1..=4 {
        messages.push(user(&format!("{package:?} tells story {number}: a boat came home.")));
        let seen = client.gets(server, "chat", &json!({ "body": body(&messages) }));
        messages.push(json!({ "role": "assistant", "content": reply_text(&seen, package) }));
        assert_eq!(turn(&seen), number, "{package:?}: {seen}");
        let conversation = seen["headers"]["x-icecore-conversation"].as_str().unwrap().to_owned();
        assert_eq!(*known.get_or_insert_with(|| conversation.clone()), conversation, "{package:?}");
    }
    known.unwrap()
}

/// A client that sends only new messages names the conversation, and the window adds the rest.
fn sends_the_new(client: &mut Client, server: &Server, numbers: std::ops::RangeInclusive<u64>) {
    let package = client.package;
    for number in numbers {
        let told = [user(&format!("Part {number}: the boat sails on."))];
        let headers = json!({ "X-Icecore-Conversation": format!("boat {package:?}") });
        let seen = client.gets(server, "chat", &json!({ "headers": headers, "body": body(&told) }));
        reply_text(&seen, package);
        assert_eq!(turn(&seen), number, "{package:?}: {seen}");
        let injected: u64 =
            seen["headers"]["x-icecore-injected-tokens"].as_str().unwrap().parse().unwrap();
        assert_eq!(injected > 0, number > 1, "{package:?}: {seen}");
    }
}

// C1 C3
#[test]
fn official_clients_talk_to_a_real_model() {
    let smol = SmallModel::start();
    let (home, base) = (TestHome::new(""), format!("http://{}/v1", smol.address));
    let home = home.with_model("chat", "openai", &base, "smollm2");
    let packages = [Package::OpenAiPython, Package::OpenAiNpm, Package::AnthropicPython];
    let mut clients = packages.map(Client::start);
    let server = Server::start(&home);
    let mut known = Vec::new();
    for client in &mut clients {
        talks(client, &server);
        known.push(sends_everything(client, &server));
        sends_the_new(client, &server, 1..=3);
    }
    // Killed without warning; acknowledged conversations continue.
    drop(server);
    let server = Server::start(&home);
    for client in &mut clients {
        sends_the_new(client, &server, 4..=5);
        let turns = home.turns(&format!("boat {:?}", client.package), 5);
        assert_eq!(
            turns.iter().map(|line| line["turn"].as_u64().unwrap()).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5]
        );
    }
    for conversation in &known {
        assert_eq!(home.turns(conversation, 4).len(), 4, "{conversation}");
    }
    let (head, _) = raw(
        &server,
        "/v1/chat/completions",
        &[("x-icecore-conversation", "boat OpenAiPython")],
        body(&[user("And?")]).to_string().as_bytes(),
    );
    assert!(head.contains("x-icecore-turn: 6") && !head.contains(TOKEN), "{head}");
}

/// What the real model makes of waiting turns: summaries, or the reason why there is none.
// C4 C8
#[test]
fn a_real_model_summarises_what_waited() {
    let smol = SmallModel::start();
    let base = format!("http://{}/v1", smol.address);
    let home = TestHome::new("summarizer_timeout_secs = 60\nshort_exchange_words = 4\n")
        .with_model("chat", "openai", &base, "smollm2");
    let mut client = Client::start(Package::OpenAiPython);
    let server = Server::start(&home);
    for number in 1..=2 {
        let told = [user(&format!(
            "The boat number {number} never sails at night, and its port is Bergen."
        ))];
        let seen = client.gets(
            &server,
            "chat",
            &json!({ "headers": { "X-Icecore-Conversation": "bergen" }, "body": body(&told) }),
        );
        assert_eq!(turn(&seen), number);
    }
    let raw: Vec<Value> = home.turns("bergen", 2);
    assert!(raw.iter().all(|line| line["state"] == "raw" && line["model"].is_null()), "{raw:?}");
    drop(server);
    let home = home
        .with_model("summarizer", "openai", &base, "smollm2")
        .with("ICECORE_SUMMARIZER_MAX_INPUT_TOKENS", "2000")
        .with(
            "ICECORE_SUMMARIZER_EXTRA",
            "{ max_tokens = 160, temperature = 0.0, repeat_penalty = 1.1 }",
        );
    let reflected = home.json(&["conversation", "retry", "bergen"]);
    let many = |name: &str| reflected[name].as_array().unwrap().len();
    assert_eq!(many("summarized") + many("raw"), 2, "{reflected}");
    for line in home.turns("bergen", 2) {
        assert_eq!(line["model"], "openai:smollm2", "{line}");
        assert!(line["tokens_in"].as_u64().is_some_and(|tokens| tokens > 0), "{line}");
        let told =
            line["state"] == "summarized" || !line["why"].as_str().unwrap_or_default().is_empty();
        assert!(told && !line["user_summary"].as_str().unwrap().is_empty(), "{line}");
    }
    // Whatever it proposed, the vault is intact.
    assert_eq!(home.run(&["verify"]).code, Some(0));
}
