//! Byte for byte: the official clients receive exactly what a scripted model server sends.

use serde_json::{Value, json};

use super::{
    Answer, Client, Package, ReceivedRequest, Scripted, Server, TestHome, Then, golden, raw,
};

const OPENAI: &str = "/v1/chat/completions";
const ANTHROPIC: &str = "/v1/messages";

/// The scripted answers, by the requested model.
fn play(request: &ReceivedRequest) -> Answer {
    let anthropic = request.path.starts_with("/v1/messages");
    let named = |kind: &str| {
        golden(&format!("{}-{kind}.sse", if anthropic { "anthropic" } else { "openai" }))
    };
    let body = request.json();
    let failed = |status: &str, kind: &str, headers: &str| {
        let said = format!("upstream says {status}");
        let error = if anthropic {
            json!({ "type": "error", "error": { "type": kind, "message": said }, "request_id": "req_failed" })
        } else {
            json!({ "error": { "message": said, "type": kind, "param": null, "code": kind } })
        };
        Answer::error(
            status,
            &format!("x-request-id: req_failed\r\nrequest-id: req_failed\r\n{headers}"),
            &error,
        )
    };
    if request.path.starts_with("/v1/models") {
        let model = json!({ "id": "golden", "object": "model", "created": 1, "owned_by": "us", "type": "model", "display_name": "Golden" });
        return Answer::json(
            &json!({ "object": "list", "data": [model], "has_more": false, "first_id": "golden", "last_id": "golden" }),
        );
    }
    match request.model().as_str() {
        "tools" if answers_a_tool(&request.messages()) => Answer::stream(named("text")),
        "tools" => Answer::stream(named("tools")),
        "half" => Answer::stream(named("half")),
        "breaks" => {
            let whole = named("half");
            // After the event with the first words, so that only the closed connection shows the
            // end.
            let said = whole.windows(6).position(|six| six == b"Half a").unwrap();
            let end = said + whole[said..].windows(2).position(|two| two == b"\n\n").unwrap() + 2;
            Answer { then: Then::Breaks, ..Answer::stream(&whole[..end]) }
        }
        "400" => failed("400 Bad Request", "invalid_request_error", "x-odd: 1"),
        "401" => failed("401 Unauthorized", "authentication_error", "x-odd: 1"),
        "404" => failed("404 Not Found", "not_found_error", "x-odd: 1"),
        "429" => failed(
            "429 Too Many Requests",
            "rate_limit_error",
            "retry-after: 7\r\nx-ratelimit-remaining-requests: 0",
        ),
        "529" => failed("529 Overloaded", "overloaded_error", "x-odd: 1"),
        "whole" if anthropic => Answer::json(&message()),
        _ if body["stream"] == true => Answer::stream(named("text")),
        _ => Answer::says(&body, "It is 12 °C."),
    }
}

fn answers_a_tool(messages: &[Value]) -> bool {
    let last = messages.last().unwrap();
    last["role"] == "tool" || last["content"][0]["type"] == "tool_result"
}

fn message() -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "golden",
        "content": [
            { "type": "thinking", "thinking": "Zürich.", "signature": "EqQB/+==" },
            { "type": "text", "text": "I look it up." },
            { "type": "tool_use", "id": "toolu_a", "name": "weather", "input": { "city": "Zürich" } },
        ],
        "stop_reason": "tool_use", "stop_sequence": null,
        "usage": { "input_tokens": 25, "output_tokens": 57 },
    })
}

fn serving(script: &Scripted, provider: &str) -> (TestHome, Server) {
    let base =
        if provider == "anthropic" { format!("http://{}", script.address) } else { script.base() };
    let home = TestHome::new("").with_model("chat", provider, &base, "golden");
    let server = Server::start(&home);
    (home, server)
}

fn tool(name: &str, field: &str, dialect: &str) -> Value {
    let schema = json!({ "type": "object", "properties": { field: { "type": "string" } }, "required": [field], "additionalProperties": false });
    match dialect {
        "anthropic" => json!({ "name": name, "description": name, "input_schema": schema }),
        _ => {
            json!({ "type": "function", "function": { "name": name, "strict": true, "parameters": schema } })
        }
    }
}

fn tools(dialect: &str) -> Value {
    json!([tool("weather", "city", dialect), tool("clock", "zone", dialect)])
}

/// The JSON of every event of a stream, in order.
fn events(stream: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stream).unwrap();
    let told = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    told.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

// C3
#[test]
fn openai_clients_put_the_streamed_tool_calls_together() {
    let script = Scripted::start(play);
    let (home, server) = serving(&script, "openai");
    for package in [Package::OpenAiPython, Package::OpenAiNpm] {
        let mut client = Client::start(package);
        let conversation = format!("{package:?}");
        let headers = json!({ "X-Icecore-Conversation": conversation });
        let mut messages =
            vec![json!({ "role": "user", "content": "What is it like in Zürich, and how late?" })];
        let ask = |messages: &[Value]| {
            json!({ "headers": headers, "body": { "model": "tools", "messages": messages, "tools": tools("openai"),
                    "stream_options": { "include_usage": true } } })
        };

        // Every chunk, the one with the usage included, is the script's.
        let seen = client.gets(&server, "chunks", &ask(&messages));
        assert_eq!(seen["chunks"], json!(events(&golden("openai-tools.sse"))), "{package:?}");
        assert_eq!(
            (&seen["headers"]["x-icecore-turn"], &seen["headers"]["x-request-id"]),
            (&json!("1"), &json!("req_golden"))
        );
        assert_eq!(seen["headers"]["x-icecore-conversation"], json!(conversation));
        assert_eq!(script.last().messages(), messages, "there is no memory yet");

        // The client's own helper turns them into the two calls. It uses its own conversation, or
        // this would be turn 2.
        let mut apart = ask(&messages);
        apart["headers"] = json!({ "X-Icecore-Memory": "off" });
        let reply = client.gets(&server, "stream", &apart)["reply"].take();
        let calls: Vec<(&Value, &Value, &Value)> = reply["choices"][0]["message"]["tool_calls"]
            .as_array()
            .unwrap()
            .iter()
            .map(|call| (&call["id"], &call["function"]["name"], &call["function"]["arguments"]))
            .collect();
        let (weather, clock) =
            (json!("{\"city\": \"Zürich\"}"), json!("{\"zone\": \"Europe/Zurich\"}"));
        let expected = [
            (&json!("call_a"), &json!("weather"), &weather),
            (&json!("call_b"), &json!("clock"), &clock),
        ];
        assert_eq!(calls, expected, "{package:?}: {reply}");
        assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");
        assert_eq!(reply["usage"]["total_tokens"], 46, "{reply}");

        // The results of the tools belong to the same turn, and reach the model unchanged.
        let call = |id: &str, name: &str, arguments: &Value| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call("call_a", "weather", &weather), call("call_b", "clock", &clock)] }));
        messages.push(json!({ "role": "tool", "tool_call_id": "call_a", "content": "12 °C" }));
        messages.push(json!({ "role": "tool", "tool_call_id": "call_b", "content": "nine" }));
        let seen = client.gets(&server, "chunks", &ask(&messages));
        assert_eq!(seen["chunks"], json!(events(&golden("openai-text.sse"))), "{package:?}");
        assert_eq!(seen["headers"]["x-icecore-turn"], "1", "{package:?}");
        assert_eq!(script.last().messages(), messages);

        messages.push(
            json!({ "role": "assistant", "content": "It is 12 °C in Zürich — and 𝟡 o’clock." }),
        );
        messages.push(json!({ "role": "user", "content": "Thank you." }));
        let seen = client.gets(
            &server,
            "chat",
            &json!({ "headers": headers, "body": { "model": "golden", "messages": messages } }),
        );
        assert_eq!(seen["headers"]["x-icecore-turn"], "2", "{package:?}");
        assert_eq!(seen["reply"]["choices"][0]["message"]["content"], "It is 12 °C.");

        assert_eq!(home.turns(&conversation, 2).len(), 2);
        let said = home.json(&["conversation", "show", &conversation, "--turn", "1"]).to_string();
        for word in [
            "What is it like in Zürich",
            "call_a",
            "Europe/Zurich",
            "12 °C in Zürich — and 𝟡 o’clock.",
        ] {
            assert!(said.contains(word), "{package:?}: no {word} in {said}");
        }
        assert_eq!(client.gets(&server, "models", &json!({}))["models"], json!(["golden"]));
    }
}

// C3
#[test]
fn the_anthropic_client_puts_thinking_text_and_tool_use_together() {
    let script = Scripted::start(play);
    let (home, server) = serving(&script, "anthropic");
    let mut client = Client::start(Package::AnthropicPython);
    let headers = json!({ "X-Icecore-Conversation": "zürich" });
    let mut messages =
        vec![json!({ "role": "user", "content": "What is it like in Zürich, and how late?" })];
    let ask = |model: &str, messages: &[Value]| {
        json!({ "headers": headers, "body": { "model": model, "max_tokens": 2000, "messages": messages, "tools": tools("anthropic"),
                "thinking": { "type": "enabled", "budget_tokens": 1024 } } })
    };
    let seen = client.gets(&server, "stream", &ask("tools", &messages));
    let content = json!([
        { "type": "thinking", "thinking": "The city is Zürich.", "signature": "EqQBCgIYAhIM/+b64==" },
        { "type": "text", "text": "I look it up — 𝟡." },
        { "type": "tool_use", "id": "toolu_a", "name": "weather", "input": { "city": "Zürich" } },
        { "type": "tool_use", "id": "toolu_b", "name": "clock", "input": { "zone": "Europe/Zurich" } },
    ]);
    assert_eq!(seen["reply"]["content"], content, "{seen}");
    assert_eq!(
        (&seen["reply"]["stop_reason"], &seen["reply"]["usage"]["output_tokens"]),
        (&json!("tool_use"), &json!(57))
    );
    assert_eq!(
        (&seen["headers"]["x-icecore-turn"], &seen["headers"]["request-id"]),
        (&json!("1"), &json!("req_golden"))
    );
    assert_eq!(script.last().messages(), messages);
    assert!(
        script.last().header("anthropic-version").is_some_and(|version| version.starts_with("20"))
    );
    assert_eq!(
        (script.last().header("x-api-key"), script.last().header("authorization")),
        (None, None),
        "the token is ours alone"
    );

    // Thinking and its signature reach the model again unchanged.
    let result =
        |id: &str, text: &str| json!({ "type": "tool_result", "tool_use_id": id, "content": text });
    messages.push(json!({ "role": "assistant", "content": content }));
    messages.push(json!({ "role": "user", "content": [result("toolu_a", "12 °C"), result("toolu_b", "nine")] }));
    let seen = client.gets(&server, "stream", &ask("tools", &messages));
    assert_eq!(
        seen["reply"]["content"],
        json!([{ "type": "text", "text": "It is 12 °C in Zürich — and 𝟡 o’clock." }]),
        "{seen}"
    );
    assert_eq!(seen["headers"]["x-icecore-turn"], "1");
    assert_eq!(script.last().messages(), messages);

    let mut apart = ask("whole", &messages[..1]);
    apart["headers"] = json!({ "X-Icecore-Conversation": "whole" });
    let seen = client.gets(&server, "chat", &apart);
    assert_eq!(seen["reply"], message());
    assert_eq!(client.gets(&server, "models", &json!({}))["models"], json!(["golden"]));
    assert_eq!(home.turns("zürich", 1).len(), 1);
}

/// How a client reports an error of the model server.
fn check_error(client: &mut Client, server: &Server, model: &str, class: &str) {
    let body = json!({ "model": model, "max_tokens": 10, "messages": [{ "role": "user", "content": "hi" }] });
    let headers = json!({ "X-Icecore-Conversation": "never" });
    let seen = client.does(server, "chat", &json!({ "headers": headers, "body": body }));
    let error = &seen["error"];
    assert_eq!(error["class"], class, "{model}: {seen}");
    assert_eq!(error["status_code"].to_string(), model, "{seen}");
    assert_eq!(error["request_id"], "req_failed", "{model}: {seen}");
    let body =
        if error["body"]["error"].is_object() { &error["body"]["error"] } else { &error["body"] };
    assert!(
        body["message"].as_str().unwrap().starts_with(&format!("upstream says {model}")),
        "{seen}"
    );
    if model == "429" {
        assert_eq!(error["headers"]["retry-after"], "7", "{seen}");
    }
}

// C3
#[test]
fn clients_see_the_upstream_errors_as_their_own() {
    let script = Scripted::start(play);
    for (package, provider, overloaded) in [
        (Package::OpenAiPython, "openai", "InternalServerError"),
        (Package::OpenAiNpm, "openai", "InternalServerError"),
        (Package::AnthropicPython, "anthropic", "OverloadedError"),
    ] {
        let (home, server) = serving(&script, provider);
        let mut client = Client::start(package);
        for (model, class) in [
            ("400", "BadRequestError"),
            ("401", "AuthenticationError"),
            ("404", "NotFoundError"),
            ("429", "RateLimitError"),
            ("529", overloaded),
        ] {
            check_error(&mut client, &server, model, class);
        }
        // A failed request is not an exchange.
        assert_ne!(home.run(&["conversation", "turns", "never", "--json"]).code, Some(0));

        // In the middle of a stream, as an event and as a broken connection: an error, and the
        // partial reply is stored.
        for model in ["half", "breaks"] {
            let body = json!({ "model": model, "max_tokens": 10, "messages": [{ "role": "user", "content": "Say it all." }] });
            let scenario = if package == Package::AnthropicPython { "stream" } else { "chunks" };
            let told = json!({ "headers": { "X-Icecore-Conversation": model }, "body": body });
            let seen = client.does(&server, scenario, &told);
            assert!(seen["error"].is_object(), "{package:?} {model}: {seen}");
            if model == "half" {
                assert!(
                    seen["error"].to_string().contains("The model lost its thread"),
                    "{package:?}: {seen}"
                );
            }
            home.turns(model, 1);
            let said = home.json(&["conversation", "show", model, "--turn", "1"]);
            assert!(said.to_string().contains("Half a"), "{package:?} {model}: {said}");
        }

        // A request without a valid token is refused, also as the client's own error type.
        let before = script.all().len();
        let body = json!({ "model": "golden", "max_tokens": 10, "messages": [{ "role": "user", "content": "hi" }] });
        let seen = client.does(
            &server,
            "chat",
            &json!({ "token": "not-the-token-of-the-tests", "body": body }),
        );
        assert_eq!(seen["error"]["class"], "AuthenticationError", "{seen}");
        assert_eq!(script.all().len(), before);
    }
}

// C1 C3
#[test]
fn a_client_that_tries_again_has_one_turn() {
    let busy = std::sync::atomic::AtomicBool::new(true);
    let script = Scripted::start(move |request| {
        if busy.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Answer::error(
                "429 Too Many Requests",
                "retry-after-ms: 10",
                &json!({ "error": { "message": "busy", "type": "x" } }),
            );
        }
        play(request)
    });
    let (home, server) = serving(&script, "openai");
    let mut client = Client::start(Package::OpenAiPython);
    let body = json!({ "model": "golden", "messages": [{ "role": "user", "content": "hi" }] });
    let seen = client.gets(
        &server,
        "chat",
        &json!({ "retries": 2, "headers": { "X-Icecore-Conversation": "again" }, "body": body }),
    );
    assert_eq!(seen["headers"]["x-icecore-turn"], "1");
    assert_eq!((script.all().len(), home.turns("again", 1).len()), (2, 1));
}

// C3
#[test]
fn the_bytes_on_the_socket_are_the_scripts() {
    let script = Scripted::start(play);
    for provider in ["openai", "anthropic"] {
        let (_home, server) = serving(&script, provider);
        let path = if provider == "openai" { OPENAI } else { ANTHROPIC };
        for (model, name) in [("tools", "tools"), ("golden", "text"), ("half", "half")] {
            let body = format!(
                r#"{{"model":"{model}","stream":true,"max_tokens":9,"messages":[{{"role":"user","content":"hi"}}]}}"#
            );
            let (head, bytes) =
                raw(&server, path, &[("anthropic-version", "2023-06-01")], body.as_bytes());
            assert!(
                head.starts_with("http/1.1 200") && head.contains("x-icecore-memory: on"),
                "{head}"
            );
            let expected = golden(&format!("{provider}-{name}.sse"));
            assert_eq!(
                String::from_utf8_lossy(&bytes),
                String::from_utf8_lossy(&expected),
                "{provider} {model}"
            );
        }

        // With memory off the request, too, is forwarded unchanged, whatever its content; so is one
        // that memory adds nothing to.
        let odd = r#"{ "model" : "golden","stream":true, "messages":[ {"content":"\u00e9 \/ 😀","role":"user" } ],  "seed":12345678901234567890.1200, "model":"golden", "unknown":{"a":[1E+5,-0.0]}}"#;
        let (head, bytes) = raw(&server, path, &[("x-icecore-memory", "off")], odd.as_bytes());
        assert!(head.contains("x-icecore-memory: off"), "{head}");
        assert_eq!(bytes, golden(&format!("{provider}-text.sse")));
        assert_eq!(String::from_utf8(script.last().body).unwrap(), odd);
        let plain = r#"{ "model" : "golden","stream":true, "messages":[ {"content":"\u00e9 \/ 😀","role":"user" } ],  "seed":12345678901234567890.1200 }"#;
        let (head, _) = raw(&server, path, &[], plain.as_bytes());
        assert!(head.contains("x-icecore-memory: on"), "{head}");
        assert_eq!(String::from_utf8(script.last().body).unwrap(), plain);
    }
}

// C1 C3 C10
#[test]
fn memory_stands_behind_the_clients_own_words() {
    let script = Scripted::start(play);
    let rule = "We never deploy on Fridays";
    for (package, provider) in [
        (Package::OpenAiPython, "openai"),
        (Package::OpenAiNpm, "openai"),
        (Package::AnthropicPython, "anthropic"),
    ] {
        let (home, server) = serving(&script, provider);
        let mut client = Client::start(package);
        let headers = json!({ "X-Icecore-Conversation": "rules" });
        let told = json!({ "model": "golden", "max_tokens": 9, "messages": [{ "role": "user", "content": rule }] });
        let scenario = if provider == "anthropic" { "stream" } else { "chunks" };
        client.gets(&server, scenario, &json!({ "headers": headers, "body": told }));
        home.turns("rules", 1);

        let own = json!({ "type": "text", "text": "You are terse.", "cache_control": { "type": "ephemeral" } });
        let mut told = json!({ "model": "golden", "max_tokens": 9, "messages": [{ "role": "user", "content": "And on Monday?" }] });
        if provider == "anthropic" {
            told["system"] = json!([own]);
        } else {
            told["messages"]
                .as_array_mut()
                .unwrap()
                .insert(0, json!({ "role": "system", "content": "You are terse." }));
        }
        let seen = client.gets(&server, scenario, &json!({ "headers": headers, "body": told }));
        assert_eq!(seen["headers"]["x-icecore-turn"], "2");
        assert!(
            seen["headers"]["x-icecore-injected"].as_str().is_some_and(|ids| ids.contains("EVT-")),
            "{seen}"
        );
        let sent = script.last();
        let mut messages = sent.messages();
        let memory = if provider == "anthropic" {
            assert_eq!(sent.json()["system"][0], own, "{package:?}");
            sent.json()["system"][1]["text"].as_str().unwrap().to_owned()
        } else {
            let system = messages.remove(0)["content"].as_str().unwrap().to_owned();
            system.strip_prefix("You are terse.").unwrap().to_owned()
        };
        assert!(memory.contains(&format!("- {rule}")), "{package:?}: {memory}");
        let expected = [
            ("user", rule),
            ("assistant", "It is 12 °C in Zürich — and 𝟡 o’clock."),
            ("user", "And on Monday?"),
        ];
        assert_eq!(
            messages,
            expected.map(|(role, text)| json!({ "role": role, "content": text })),
            "{package:?}"
        );
    }
}

/// Two windows on one conversation, or a client that does not wait: every acknowledged message is
/// stored.
// C1
#[test]
fn requests_at_the_same_time_lose_nothing() {
    let script = Scripted::start(|request| {
        std::thread::sleep(std::time::Duration::from_millis(300));
        play(request)
    });
    let (home, server) = serving(&script, "openai");
    for round in 1..=3 {
        std::thread::scope(|scope| {
            for number in 1..=4 {
                let server = &server;
                scope.spawn(move || {
                    let body = json!({ "model": "golden", "messages": [{ "role": "user", "content": format!("word {round}.{number}") }] });
                    let (head, _) = raw(server, OPENAI, &[("x-icecore-conversation", "crowd")], body.to_string().as_bytes());
                    assert!(head.starts_with("http/1.1 200") && head.contains("x-icecore-memory: on"), "{head}");
                });
            }
        });
    }
    let exported = home.json(&["conversation", "export", "crowd"]);
    let said: Vec<&str> = exported["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["text"].as_str())
        .collect();
    for round in 1..=3 {
        for number in 1..=4 {
            let word = format!("word {round}.{number}");
            assert_eq!(
                said.iter().filter(|text| text.trim() == word).count(),
                1,
                "{word} in {said:?}"
            );
        }
    }
}

/// A repeated turn stays one turn, and the reply that the client received last counts.
// C1
#[test]
fn a_turn_that_is_asked_for_once_more_has_its_last_reply() {
    let count = std::sync::atomic::AtomicUsize::new(0);
    let script = Scripted::start(move |request| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Answer::says(&request.json(), &format!("Reply number {number}."))
    });
    let (home, server) = serving(&script, "openai");
    let mut client = Client::start(Package::OpenAiNpm);
    let said = |role: &str, text: &str| json!({ "role": role, "content": text });
    let mut messages = vec![said("user", "Begin.")];
    for (turn, next) in [("1", Some(["Reply number 0.", "Go on."])), ("2", None), ("2", None)] {
        let told = json!({ "headers": { "X-Icecore-Conversation": "more" }, "body": { "model": "m", "messages": messages } });
        let seen = client.gets(&server, "chat", &told);
        assert_eq!(seen["headers"]["x-icecore-turn"], turn);
        messages.extend(
            next.into_iter()
                .flat_map(|[reply, asked]| [said("assistant", reply), said("user", asked)]),
        );
    }
    assert_eq!(home.turns("more", 2).len(), 2);
    let exported = home.json(&["conversation", "export", "more"]);
    let texts: Vec<&str> = exported["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["text"].as_str())
        .collect();
    assert_eq!(texts, ["Begin.", "Reply number 0.", "Go on.", "Reply number 2."]);
}
