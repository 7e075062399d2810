//! Over HTTP, byte by byte.

use std::collections::HashSet;
use std::thread;

use serde_json::{Value, json};

use super::{HttpServer, LEGACY, MODERN, READ_TOKEN, TOKEN, meta, request, tools};

const JSON: (&str, &str) = ("Content-Type", "application/json");
const BOTH: (&str, &str) = ("Accept", "application/json, text/event-stream");
const BEARER: (&str, &str) = ("Authorization", "Bearer a-token-for-these-tests-only");

fn body(method: &str, params: Value) -> Vec<u8> {
    request(1, method, params, true).to_string().into_bytes()
}

#[test]
fn the_headers_of_the_newest_era_must_be_there_and_agree_with_the_body() {
    let served = HttpServer::start();
    let (version, name) = (("MCP-Protocol-Version", MODERN), ("Mcp-Name", "commitments"));
    let call = body("tools/call", json!({ "name": "commitments", "arguments": {} }));
    let (calls, lists) = (("Mcp-Method", "tools/call"), ("Mcp-Method", "tools/list"));
    for (head, status, code) in [
        (vec![version, calls, name], 200, None),
        // A value may be written as base64.
        (vec![version, calls, ("Mcp-Name", "=?base64?Y29tbWl0bWVudHM=?=")], 200, None),
        (vec![version, calls], 400, Some(-32020)),
        (vec![version, name], 400, Some(-32020)),
        (vec![version, lists, name], 400, Some(-32020)),
        (vec![version, calls, ("Mcp-Name", "forget")], 400, Some(-32020)),
        (vec![calls, name], 400, Some(-32020)),
        (vec![("MCP-Protocol-Version", LEGACY[0]), calls, name], 400, Some(-32020)),
    ] {
        let answer = served.send("POST", &[vec![BEARER, JSON, BOTH], head.clone()].concat(), &call);
        assert_eq!(answer.status, status, "{head:?}: {answer:?}");
        if let Some(code) = code {
            assert_eq!(answer.json()["error"]["code"], code, "{head:?}: {answer:?}");
        } else {
            assert_eq!(answer.json()["result"]["resultType"], "complete", "{head:?}: {answer:?}");
        }
    }
    // An address that is not ASCII.
    let read = body("resources/read", json!({ "uri": "icecore://page/é.md" }));
    let head = [
        BEARER,
        JSON,
        BOTH,
        version,
        ("Mcp-Method", "resources/read"),
        ("Mcp-Name", "=?base64?aWNlY29yZTovL3BhZ2Uvw6kubWQ=?="),
    ];
    let answer = served.send("POST", &head, &read);
    assert_eq!(answer.json()["error"]["code"], -32602, "{answer:?}");
}

#[test]
fn statuses_are_those_of_the_protocol() {
    let served = HttpServer::start();
    let found = served.gets(None, "server/discover", json!({}));
    assert_eq!(
        (&found["resultType"], &found["supportedVersions"][0]),
        (&json!("complete"), &json!(MODERN)),
        "{found}"
    );
    // A method that does not exist.
    let answer = served.ask(TOKEN, None, "nothing/such", json!({}));
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (404, &json!(-32601)),
        "{answer:?}"
    );
    let answer = served.ask(TOKEN, None, "ping", json!({}));
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (404, &json!(-32601)),
        "{answer:?}"
    );
    // An unsupported version.
    let old = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta("1900-01-01") } }).to_string();
    let head =
        [BEARER, JSON, BOTH, ("MCP-Protocol-Version", "1900-01-01"), ("Mcp-Method", "tools/list")];
    let answer = served.send("POST", &head, old.as_bytes());
    let error = answer.json()["error"].clone();
    assert_eq!(
        (answer.status, &error["code"], &error["data"]["requested"]),
        (400, &json!(-32022), &json!("1900-01-01")),
        "{answer:?}"
    );
    assert_eq!(error["data"]["supported"][0], MODERN);
    // Missing fields of `_meta`.
    let bare =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} }).to_string();
    let head = [BEARER, JSON, BOTH, ("MCP-Protocol-Version", MODERN), ("Mcp-Method", "tools/list")];
    let answer = served.send("POST", &head, bare.as_bytes());
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (400, &json!(-32602)),
        "{answer:?}"
    );
    // Unknown resources and tools are answered like other requests.
    let answer =
        served.ask(TOKEN, None, "resources/read", json!({ "uri": "icecore://day/1999-01-01" }));
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (200, &json!(-32602)),
        "{answer:?}"
    );
    let answer = served.ask(TOKEN, None, "tools/call", json!({ "name": "nothing" }));
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (200, &json!(-32602)),
        "{answer:?}"
    );
    // Other HTTP methods, and messages that need no response.
    for method in ["GET", "DELETE", "PUT"] {
        let answer = served.send(method, &[BEARER, BOTH], b"");
        assert!(
            answer.status == 405 && answer.head.contains("allow: post"),
            "{method}: {answer:?}"
        );
    }
    let note = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    let answer = served.send("POST", &[BEARER, JSON, BOTH], note);
    assert_eq!((answer.status, answer.text.as_str()), (202, ""), "{answer:?}");
    // Bodies that are not messages.
    let deep = "[".repeat(100_000);
    for (said, code, id) in [
        ("{", -32700, json!(null)),
        (deep.as_str(), -32700, json!(null)),
        ("{\"id\":7,", -32700, json!(7)),
        ("[]", -32600, json!(null)),
        ("42", -32600, json!(null)),
        ("{\"id\":\"a\"}", -32600, json!("a")),
    ] {
        let answer = served.send("POST", &[BEARER, JSON, BOTH], said.as_bytes());
        let told = answer.json();
        assert_eq!(
            (answer.status, &told["error"]["code"], &told["id"]),
            (400, &json!(code), &id),
            "{}",
            &said[..said.len().min(10)]
        );
    }
    // Half of a surrogate pair is not a character.
    let half = String::from_utf8(body(
        "tools/call",
        json!({ "name": "remember", "arguments": { "text": "The ferry leaves at ten @@" } }),
    ));
    let head = [
        BEARER,
        JSON,
        BOTH,
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "remember"),
    ];
    let answer = served.send("POST", &head, half.unwrap().replace("@@", "\\ud83d").as_bytes());
    assert!(answer.status == 200 && answer.json()["result"]["isError"] != true, "{answer:?}");
    let answer = served.send("POST", &[BEARER, JSON, BOTH], &vec![b' '; 5 << 20]);
    assert_eq!(answer.status, 413, "{answer:?}");
    let answer = served.send(
        "POST",
        &[BEARER, BOTH, ("Content-Type", "text/plain")],
        &body("tools/list", json!({})),
    );
    assert_eq!(answer.status, 415, "{answer:?}");
    assert!(served.gets(None, "tools/list", json!({}))["tools"].is_array());
}

#[test]
fn the_older_era_needs_no_session() {
    let served = HttpServer::start();
    for version in LEGACY {
        let hello = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let answer = served.send(
            "POST",
            &[BEARER, JSON, BOTH],
            request(1, "initialize", hello, false).to_string().as_bytes(),
        );
        assert_eq!(
            (answer.status, &answer.json()["result"]["protocolVersion"]),
            (200, &json!(version)),
            "{answer:?}"
        );
        assert!(!answer.head.contains("mcp-session-id"), "{answer:?}");
        let answer = served.send(
            "POST",
            &[BEARER, JSON, BOTH],
            br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        );
        assert_eq!(answer.status, 202, "{answer:?}");
        let head = [BEARER, JSON, BOTH, ("MCP-Protocol-Version", version)];
        let answer = served.send(
            "POST",
            &head,
            request(2, "tools/list", json!({}), false).to_string().as_bytes(),
        );
        assert!(
            answer.status == 200 && answer.json()["result"]["resultType"].is_null(),
            "{answer:?}"
        );
        let answer =
            served.send("POST", &head, request(3, "ping", json!({}), false).to_string().as_bytes());
        assert_eq!(answer.json()["result"], json!({}), "{answer:?}");
    }
    // Without a header it is the version without headers; an unknown version is refused.
    let list = request(2, "tools/list", json!({}), false).to_string();
    assert_eq!(served.send("POST", &[BEARER, JSON, BOTH], list.as_bytes()).status, 200);
    assert_eq!(
        served
            .send(
                "POST",
                &[BEARER, JSON, BOTH, ("MCP-Protocol-Version", "1999-01-01")],
                list.as_bytes()
            )
            .status,
        400
    );
}

#[test]
fn nobody_else_comes_in() {
    let served = HttpServer::start();
    let call = body("tools/call", json!({ "name": "commitments", "arguments": {} }));
    let host = served.addr.to_string();
    let own = format!("http://{host}");
    let modern = [
        JSON,
        BOTH,
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "commitments"),
    ];
    for (head, status) in [
        (vec![BEARER], 200),
        (vec![("X-Api-Key", TOKEN)], 200),
        (vec![BEARER, ("Origin", own.as_str())], 200),
        (vec![], 401),
        (vec![("Authorization", "Bearer wrong")], 401),
        (vec![BEARER, ("Origin", "https://evil.example")], 403),
        (vec![BEARER, ("Origin", "null")], 403),
        (vec![BEARER, ("Sec-Fetch-Site", "cross-site")], 403),
        (vec![BEARER, ("Host", "evil.example")], 403),
    ] {
        let answer = served.send("POST", &[head.clone(), modern.to_vec()].concat(), &call);
        assert_eq!(answer.status, status, "{head:?}: {answer:?}");
        assert_eq!(
            answer.head.contains("www-authenticate: bearer"),
            status == 401,
            "{head:?}: {answer:?}"
        );
        assert!(!answer.head.contains("access-control-"), "{answer:?}");
    }
    // GET as well.
    assert_eq!(served.send("GET", &[BOTH], b"").status, 401);
}

// One table, every tool, every token.
#[test]
fn a_token_that_may_only_read_calls_nothing_that_writes() {
    let served = HttpServer::start();
    let home = served.folder.path().join("vault/memory/ledger.jsonl");
    served.call_tool(None, "remember", json!({ "text": "Anna runs the harbour office" }));
    let id = served.call_tool(
        None,
        "remember",
        json!({ "text": "Send the offer to Anna", "due": "tomorrow" }),
    )["id"]
        .clone();
    let before = std::fs::read(&home).unwrap();
    for (name, mut arguments, writes) in tools() {
        if arguments.get("ids").is_some() {
            arguments["ids"] = json!([id]);
        }
        if arguments.get("of").is_some() {
            arguments["of"] = id.clone();
        }
        let params = json!({ "name": name, "arguments": arguments });
        let answer = served.ask(READ_TOKEN, None, "tools/call", params.clone());
        if writes {
            assert_eq!(answer.status, 403, "{name}: {answer:?}");
            let wanted = r#"www-authenticate: bearer error="insufficient_scope", scope="write""#;
            assert!(answer.head.contains(wanted), "{name}: {answer:?}");
            // An obfuscated value is still detected by the check.
            let call = request(1, "tools/call", params, false).to_string();
            let twice = call.replacen(
                "\"method\":\"tools/call\"",
                "\"method\":\"x\",\"method\":\"tools/call\"",
                1,
            );
            assert_ne!(call, twice);
            let answer = served.send(
                "POST",
                &[("Authorization", &format!("Bearer {READ_TOKEN}")), JSON, BOTH],
                twice.as_bytes(),
            );
            let refused = answer.status >= 400
                || answer.json()["result"]["isError"] == true
                || answer.json()["error"].is_object();
            assert!(refused, "{name}: {answer:?}");
        } else {
            assert_eq!(answer.status, 200, "{name}: {answer:?}");
        }
        assert_eq!(std::fs::read(&home).unwrap(), before, "{name}");
    }
    let listed = served.ask(READ_TOKEN, None, "tools/list", json!({})).json();
    let names: HashSet<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        tools().iter().filter(|(_, _, writes)| !writes).map(|(name, ..)| *name).collect()
    );
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "icecore://pack/recall" })),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "session_start" })),
        ("server/discover", json!({})),
    ] {
        assert_eq!(served.ask(READ_TOKEN, None, method, params).status, 200, "{method}");
    }
    assert_eq!(std::fs::read(&home).unwrap(), before);
    // And a writer may.
    for (name, mut arguments, _) in tools() {
        if arguments.get("ids").is_some() {
            arguments["ids"] = json!([id]);
        }
        if arguments.get("of").is_some() {
            arguments["of"] = id.clone();
        }
        if name == "zoom" {
            continue;
        }
        served.call_tool(None, name, arguments);
    }
}

#[test]
fn every_user_has_a_memory_of_their_own() {
    let served = HttpServer::start();
    served.call_tool(None, "remember", json!({ "text": "The home vault likes granite" }));
    served.call_tool(Some("anna"), "remember", json!({ "text": "Anna likes granite" }));
    served.call_tool(Some("bärbel"), "remember", json!({ "text": "Bärbel likes granite" }));
    for (user, own) in [
        (None, "The home vault likes granite"),
        (Some("anna"), "Anna likes granite"),
        (Some("bärbel"), "Bärbel likes granite"),
    ] {
        let found = served.call_tool(user, "recall", json!({ "query": "who likes granite" }));
        let texts: Vec<&str> = found["hits"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hit| hit["text"].as_str().unwrap())
            .collect();
        assert_eq!(texts, [own], "{user:?}");
        let pack = served.gets(user, "resources/read", json!({ "uri": "icecore://pack/recall" }));
        assert!(pack["contents"][0]["text"].as_str().unwrap().contains(own), "{pack}");
    }
    // A request creates no space.
    let refused = served.gets(
        Some("carl"),
        "tools/call",
        json!({ "name": "recall", "arguments": { "query": "granite" } }),
    );
    assert!(
        refused["isError"] == true
            && refused["content"][0]["text"].as_str().unwrap().contains("there is no user `carl`"),
        "{refused}"
    );
    assert_eq!(std::fs::read_dir(served.folder.path().join("vault/spaces")).unwrap().count(), 2);
}

#[test]
fn many_at_once_are_all_answered() {
    let served = HttpServer::start();
    thread::scope(|scope| {
        for at in 0..8 {
            let served = &served;
            scope.spawn(move || {
                for n in 0..10 {
                    served.call_tool(
                        None,
                        "remember",
                        json!({ "text": format!("Berth {at}-{n} is taken") }),
                    );
                    served.call_tool(None, "recall", json!({ "query": "berth" }));
                }
            });
        }
    });
    let ledger =
        std::fs::read_to_string(served.folder.path().join("vault/memory/ledger.jsonl")).unwrap();
    assert_eq!(ledger.lines().filter(|line| line.contains("Berth")).count(), 80);
}
