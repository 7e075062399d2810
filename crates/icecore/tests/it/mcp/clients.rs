//! Through the official packages: Python's `mcp`, and npm's `@modelcontextprotocol/sdk` and
//! `@modelcontextprotocol/client`.
//!
//! `tests/clients` holds a small program for each. They are told by lines what to do and print what
//! they saw; what it has to be stands here. Each lists the tools, calls every one of them, reads
//! resources, gets prompts and makes mistakes, over both ways in and in both eras.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use super::{HttpServer, LEGACY, MODERN, NOW, READ_TOKEN, TOKEN, check_tool_result, tools, vault};
use crate::model::repository_root;
use crate::program::{bare, program};

/// An official package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Package {
    Python,
    NpmSdk,
    NpmClient,
}

impl Package {
    /// How it connects, and the protocol version it uses.
    fn modes(self) -> Vec<(&'static str, &'static str)> {
        match self {
            Self::NpmSdk => vec![("legacy", LEGACY[0])],
            Self::Python | Self::NpmClient => {
                vec![("legacy", LEGACY[0]), ("auto", MODERN), (MODERN, MODERN)]
            }
        }
    }

    /// Starts the program that drives it.
    fn start(self) -> Client {
        let (python, npm) = (
            repository_root().join("target/clients-venv/bin/python"),
            repository_root().join("target/clients-npm"),
        );
        let script = |name: &str| repository_root().join("tests/clients").join(name);
        let (program, arguments) = match self {
            Self::Python => (python, vec![script("mcp_client.py")]),
            Self::NpmSdk => (
                PathBuf::from("node"),
                vec![script("mcp_client.mjs"), npm.clone(), "@modelcontextprotocol/sdk".into()],
            ),
            Self::NpmClient => (
                PathBuf::from("node"),
                vec![script("mcp_client.mjs"), npm.clone(), "@modelcontextprotocol/client".into()],
            ),
        };
        let there = if self == Self::Python { program.clone() } else { npm.join("installed.json") };
        assert!(
            there.exists(),
            "there is no client to test with: {} is missing. `./test` installs it, which needs a network; `./tests/clients/install` \
             does only that",
            there.display()
        );
        let mut child = bare(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (told, lines) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Client { package: self, child, told, lines }
    }
}

/// A running program of `tests/clients`; it ends when its standard input closes, at the latest with
/// this process.
struct Client {
    package: Package,
    child: Child,
    told: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
}

impl Client {
    /// Runs these steps on one connection and returns what the client saw.
    fn does(&mut self, connection: &Value, mode: &str, steps: Value) -> Value {
        let mut told = connection.clone();
        (told["mode"], told["steps"]) = (mode.into(), steps);
        writeln!(self.told.as_mut().unwrap(), "{told}").unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        let seen: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("{:?}: {error}: {line}", self.package));
        assert!(seen["failed"].is_null(), "{:?} {mode}: {seen}", self.package);
        seen
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.told.take());
        let _ = self.child.wait();
    }
}

fn call(name: &str, arguments: Value) -> Value {
    json!({ "do": "call", "name": name, "arguments": arguments })
}

/// Everything that a client can do, with one of the packages.
fn whole_walk(client: &mut Client, connection: &Value, mode: &str, version: &str) {
    let package = client.package;
    let about = format!("{package:?} {mode}");
    let mut begin = |steps: Value| client.does(connection, mode, steps);
    // A client with a fixed version does not ask for the server's name.
    let asks = mode != MODERN || package != Package::Python;
    let fact = format!("The harbour office opens at nine for {package:?} in {mode}");
    let seen = begin(json!([
        { "do": "tools" },
        call("remember", json!({ "text": fact, "entity": "harbour office" })),
        call("remember", json!({ "text": format!("Send the offer, {about}"), "due": "tomorrow" })),
        call("recall", json!({ "query": fact })),
        call("commitments", json!({})),
        call("pack", json!({ "kind": "session-start" })),
    ]));
    // That package does not report it over standard input and output.
    assert!(
        seen["version"] == version || (package == Package::NpmSdk && seen["version"].is_null()),
        "{about}: {seen}"
    );
    if asks {
        assert_eq!(seen["server"]["name"], "icecore", "{about}");
        assert!(seen["instructions"].as_str().unwrap().contains("`recall`"), "{about}");
    }
    for offered in ["tools", "resources", "prompts", "completions"].iter().filter(|_| asks) {
        assert!(seen["capabilities"][offered].is_object(), "{about}: {seen}");
    }
    let steps = seen["steps"].as_array().unwrap();
    let listed: Vec<&str> = steps[0]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    let mut all: Vec<&str> = tools().iter().map(|(name, ..)| *name).collect();
    all.sort_unstable();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, all, "{about}");
    let (learnt, promised) = (
        check_tool_result("remember", &steps[1])["id"].clone(),
        check_tool_result("remember", &steps[2])["id"].clone(),
    );
    assert!(
        check_tool_result("recall", &steps[3])["hits"]
            .as_array()
            .unwrap()
            .iter()
            .any(|hit| hit["text"] == json!(fact)),
        "{about}: {}",
        steps[3]
    );
    assert!(
        check_tool_result("commitments", &steps[4])["commitments"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["id"] == promised),
        "{about}"
    );
    assert_eq!(check_tool_result("pack", &steps[5])["kind"], "session-start");

    let seen = begin(json!([
        call("close", json!({ "ids": [promised], "note": "sent" })),
        call("why", json!({ "of": learnt })),
        call("zoom", json!({ "when": "2026-02-12" })),
        call("forget", json!({ "ids": [learnt], "dry_run": true })),
        call("forget", json!({ "ids": [learnt], "reason": "a test" })),
        { "do": "resources" },
        { "do": "templates" },
        { "do": "read", "uri": "icecore://pack/recall" },
        { "do": "read", "uri": "icecore://day/2026-02-12" },
        { "do": "prompts" },
        { "do": "prompt", "name": "session_start" },
        { "do": "prompt", "name": "session_end" },
        { "do": "many", "name": "recall", "arguments": { "query": "harbour office" }, "times": 10 },
        { "do": "complete", "template": "icecore://day/{date}", "argument": "date", "value": "2026-02-1" },
        { "do": "complete", "template": "icecore://pack/{kind}", "argument": "kind", "value": "RE" },
        { "do": "complete", "prompt": "session_start", "argument": "project", "value": "" },
    ]));
    let steps = seen["steps"].as_array().unwrap();
    assert_eq!(check_tool_result("close", &steps[0])["closed"][0]["id"], promised, "{about}");
    assert_eq!(check_tool_result("why", &steps[1])["because"][0]["of"], "event", "{about}");
    assert_eq!(
        check_tool_result("zoom", &steps[2])["messages"].as_array().unwrap().len(),
        3,
        "{about}"
    );
    assert_eq!(check_tool_result("forget", &steps[3])["forgotten"], false, "{about}");
    assert_eq!(check_tool_result("forget", &steps[4])["forgotten"], true, "{about}");
    assert!(
        steps[5]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["uri"] == "icecore://day/2026-02-12"),
        "{about}: {}",
        steps[5]
    );
    assert_eq!(steps[6]["resourceTemplates"].as_array().unwrap().len(), 5, "{about}");
    assert!(
        steps[7]["contents"][0]["text"].as_str().unwrap().contains("icecore:begin recall"),
        "{about}"
    );
    assert!(
        steps[8]["contents"][0]["text"].as_str().unwrap().contains("harbour office open?"),
        "{about}: {}",
        steps[8]
    );
    assert_eq!(steps[9]["prompts"].as_array().unwrap().len(), 2, "{about}");
    assert_eq!(steps[10]["messages"][1]["content"]["type"], "resource", "{about}");
    assert_eq!(steps[11]["messages"].as_array().unwrap().len(), 1, "{about}");
    assert_eq!(steps[12]["results"].as_array().unwrap().len(), 10, "{about}");
    assert_eq!(steps[13]["completion"]["values"], json!(["2026-02-12"]), "{about}: {}", steps[13]);
    assert_eq!(steps[14]["completion"]["values"], json!(["recall"]), "{about}: {}", steps[14]);
    assert_eq!(steps[15]["completion"]["values"], json!([]), "{about}: {}", steps[15]);

    // Mistakes.
    let seen = begin(json!([
        call("nothing", json!({})),
        call("recall", json!({ "limit": 5 })),
        { "do": "read", "uri": "icecore://day/1999-01-01" },
        { "do": "prompt", "name": "nothing" },
        call("commitments", json!({})),
        { "do": "complete", "template": "icecore://year/{year}", "argument": "year", "value": "" },
        { "do": "complete", "prompt": "session_start", "argument": "nothing", "value": "" },
    ]));
    let steps = seen["steps"].as_array().unwrap();
    assert_eq!(steps[0]["error"]["code"], -32602, "{about}: {seen}");
    assert!(
        steps[1]["isError"] == true
            && steps[1]["content"][0]["text"].as_str().unwrap().contains("`query` is missing"),
        "{about}: {seen}"
    );
    assert_eq!(
        steps[2]["error"]["code"],
        if version == MODERN { -32602 } else { -32002 },
        "{about}: {seen}"
    );
    assert_eq!(steps[3]["error"]["code"], -32602, "{about}: {seen}");
    check_tool_result("commitments", &steps[4]);
    assert_eq!(
        (&steps[5]["error"]["code"], &steps[6]["error"]["code"]),
        (&json!(-32602), &json!(-32602)),
        "{about}: {seen}"
    );
}

fn over_stdio(package: Package) {
    let vault = vault();
    let arguments = ["--vault", vault.root.to_str().unwrap(), "--now", NOW, "mcp"];
    let environment = json!({ "HOME": "/nonexistent", "PATH": std::env::var("PATH").unwrap() });
    let connection =
        json!({ "stdio": { "command": program(), "args": arguments, "env": environment } });
    let mut client = package.start();
    for (mode, version) in package.modes() {
        whole_walk(&mut client, &connection, mode, version);
        // A page is written while the client is connected.
        let page = vault.path(&format!("knowledge/topics/{}.md", mode.replace('-', "_")));
        let seen = client.does(
            &connection,
            mode,
            json!([{ "do": "changes", "file": page, "text": "# A page\n" }]),
        );
        assert!(!seen["steps"][0]["heard"].is_null(), "{package:?} {mode}: {seen}");
    }
    // A read-only client.
    let mut reading = connection;
    reading["stdio"]["args"] = json!([&arguments[..], &["--read-only"]].concat());
    let seen = client.does(
        &reading,
        package.modes()[0].0,
        json!([{ "do": "tools" }, call("remember", json!({ "text": "no" }))]),
    );
    assert_eq!(seen["steps"][0]["tools"].as_array().unwrap().len(), 5, "{seen}");
    assert_eq!(seen["steps"][1]["isError"], true, "{seen}");
}

fn over_http(package: Package) {
    let served = HttpServer::start();
    // The same day as in a vault of the other tests.
    let (from, home) = (vault(), served.folder.path().join("vault"));
    std::fs::create_dir_all(home.join("memory/messages")).unwrap();
    std::fs::copy(
        from.path("memory/messages/2026-02-12.jsonl"),
        home.join("memory/messages/2026-02-12.jsonl"),
    )
    .unwrap();
    let http = |token: &str| json!({ "http": { "url": format!("http://{}/mcp", served.addr), "headers": { "Authorization": format!("Bearer {token}") } } });
    let mut client = package.start();
    for (mode, version) in package.modes() {
        whole_walk(&mut client, &http(TOKEN), mode, version);
    }
    let seen = client.does(
        &http(READ_TOKEN),
        package.modes()[0].0,
        json!([{ "do": "tools" }, call("commitments", json!({}))]),
    );
    assert_eq!(seen["steps"][0]["tools"].as_array().unwrap().len(), 5, "{seen}");
    check_tool_result("commitments", &seen["steps"][1]);
}

#[test]
fn pythons_mcp_over_stdio() {
    over_stdio(Package::Python);
}

#[test]
fn pythons_mcp_over_http() {
    over_http(Package::Python);
}

#[test]
fn npms_sdk_over_stdio() {
    over_stdio(Package::NpmSdk);
}

#[test]
fn npms_sdk_over_http() {
    over_http(Package::NpmSdk);
}

#[test]
fn npms_client_over_stdio() {
    over_stdio(Package::NpmClient);
}

#[test]
fn npms_client_over_http() {
    over_http(Package::NpmClient);
}
