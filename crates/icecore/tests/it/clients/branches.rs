//! Chats with the same beginning and edited messages, as the official packages send them through
//! the real server.

use serde_json::{Value, json};

use super::{Answer, Client, Package, ReceivedRequest, Scripted, Server, TestHome};

/// A model that always replies with the same greeting and repeats nothing.
fn play(request: &ReceivedRequest) -> Answer {
    let said = request.messages();
    let asked = said.last().map(|message| message["content"].to_string()).unwrap_or_default();
    let text = if asked.contains("hi") { "Hello! How can I help?" } else { "Noted." };
    if request.path.ends_with("/messages") {
        return Answer::json(&json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "golden", "content": [{ "type": "text", "text": text }],
            "stop_reason": "end_turn", "stop_sequence": null, "usage": { "input_tokens": 5, "output_tokens": 5 },
        }));
    }
    Answer::says(&request.json(), text)
}

fn messages(texts: &[&str]) -> Value {
    let message = |(at, text): (usize, &&str)| json!({ "role": if at % 2 == 0 { "user" } else { "assistant" }, "content": text });
    texts.iter().enumerate().map(message).collect()
}

// C1, C3
#[test]
fn chats_that_begin_alike_and_edited_messages_stay_apart() {
    for (package, provider, base) in
        [(Package::OpenAiPython, "openai", "/v1"), (Package::AnthropicPython, "anthropic", "")]
    {
        let script = Scripted::start(play);
        let home = TestHome::new("max_wait_for_last_turn_ms = 2000").with_model(
            "chat",
            provider,
            &format!("http://{}{base}", script.address),
            "m",
        );
        let server = Server::start(&home);
        let mut client = Client::start(package);
        let mut chat = |texts: &[&str], headers: Value| -> (String, String) {
            let body = json!({ "model": "m", "max_tokens": 50, "messages": messages(texts) });
            let seen = client.gets(&server, "chat", &json!({ "headers": headers, "body": body }));
            let sent =
                String::from_utf8(script.arrived.lock().unwrap().last().unwrap().body.clone())
                    .unwrap();
            (seen["headers"]["x-icecore-conversation"].as_str().unwrap().to_owned(), sent)
        };
        // Two chats with the same beginning, without any id.
        let hello = "Hello! How can I help?";
        let code = "Never use the door code 7731. I work for the Alpha project.";
        chat(&["hi"], json!({}));
        chat(&["hi"], json!({}));
        let (a, _) = chat(&["hi", hello, code], json!({}));
        let (b, sent) = chat(&["hi", hello, "I work for the Beta project."], json!({}));
        assert_ne!(a, b);
        assert!(!sent.contains("7731"), "{package:?}: {sent}");
        home.turns(&a, 2);
        let (again, sent) = chat(&["hi", hello, code, "Noted.", "Which door?"], json!({}));
        assert!(again == a && sent.contains("7731"), "{package:?}: {sent}");
        let (again, sent) = chat(
            &["hi", hello, "I work for the Beta project.", "Noted.", "Which door?"],
            json!({}),
        );
        assert!(
            again == b && !sent.contains("7731") && !sent.contains("Alpha"),
            "{package:?}: {sent}"
        );
        // An edited message of a chat with an id, as Open WebUI sends it, and a title request in
        // between.
        let id = json!({ "X-OpenWebUI-Chat-Id": "garden", "X-OpenWebUI-User-Id": "ada" });
        let garden = "I plan a garden.";
        chat(&[garden], id.clone());
        let (_, sent) = chat(
            &["### Task:\nGenerate a title.\n### Chat History:\n<chat_history>x</chat_history>"],
            id.clone(),
        );
        assert!(!sent.contains("garden"), "{package:?}: {sent}");
        chat(&[garden, "Noted.", "We must always use roses."], id.clone());
        let (name, sent) = chat(&[garden, "Noted.", "No. We must always use tulips."], id.clone());
        assert!(name == "garden" && !sent.contains("roses"), "{package:?}: {sent}");
        let history =
            [garden, "Noted.", "No. We must always use tulips.", "Noted.", "And the path?"];
        let (_, sent) = chat(&history, id);
        assert!(
            !sent.contains("roses") && sent.matches(garden).count() == 1,
            "{package:?}: {sent}"
        );
    }
}
