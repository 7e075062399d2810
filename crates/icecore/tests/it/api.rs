//! The memory API as an HTTP client sees it: the real server on loopback, with its own home
//! directory.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::program::{bare, copy, program};

pub(crate) const TOKEN: &str = "a-token-for-these-tests-only";

/// A running server; it is killed at the end.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// The printed link.
    pub(crate) link: String,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A home directory for servers and their settings.
pub(crate) struct TestHome {
    pub(crate) folder: TempDir,
}

impl TestHome {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().unwrap() }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("vault")
    }

    pub(crate) fn settings(&self, text: &str) {
        let folder = self.folder.path().join(".config/icecore");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.toml"), text).unwrap();
    }

    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[], Stdio::inherit())
    }

    pub(crate) fn serve_with(&self, environment: &[(&str, &str)], stderr: Stdio) -> Server {
        let mut child = bare(program())
            .env("HOME", self.folder.path())
            .env("ICECORE_TOKEN", TOKEN)
            .envs(environment.iter().copied())
            .args([
                "serve",
                "--addr",
                "127.0.0.1:0",
                "--json",
                "--root",
                self.root().to_str().unwrap(),
            ])
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let (address, link) = (
            told["addr"].as_str().unwrap().parse().unwrap(),
            told["login"].as_str().unwrap().to_owned(),
        );
        Server { child, address, link }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Sends a request with these header lines.
    pub(crate) fn send(
        &self,
        method: &str,
        target: &str,
        head: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        head.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8(bytes).unwrap();
        let (head, text) =
            text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {target}: {text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), text: text.to_owned() }
    }

    pub(crate) fn ask(&self, user: Option<&str>, method: &str, target: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {TOKEN}");
        let mut head = vec![("Authorization", bearer.as_str())];
        head.extend(user.map(|user| ("X-Icecore-User", user)));
        self.send(method, target, &head, body)
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.ask(None, "GET", target, "")
    }

    pub(crate) fn post(&self, target: &str, body: &str) -> Answer {
        self.ask(None, "POST", target, body)
    }

    /// The requested value, which must exist.
    pub(crate) fn ok(&self, user: Option<&str>, method: &str, target: &str, body: &str) -> Value {
        let answer = self.ask(user, method, target, body);
        assert_eq!(answer.status, 200, "{method} {target}: {answer:?}");
        answer.json()
    }

    pub(crate) fn remember(&self, user: Option<&str>, text: &str) -> String {
        let told = self.ok(user, "POST", "/api/events", &json!({ "text": text }).to_string());
        told["event"]["id"].as_str().unwrap().to_owned()
    }

    fn contents(&self, user: Option<&str>) -> Vec<String> {
        let told = self.ok(user, "GET", "/api/events?all=true", "");
        told["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["content"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// A slow model server that answers by request; several at once.
pub(crate) fn answering(
    pause: Duration,
    answer: impl Fn(&str) -> String + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    if let Some(number) = line.to_lowercase().strip_prefix("content-length:") {
                        length = number.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                let _ = reader.read_exact(&mut body);
                thread::sleep(pause);
                let says = answer(&String::from_utf8_lossy(&body));
                let message = json!({ "role": "assistant", "content": says });
                let told = json!({ "id": "c1", "object": "chat.completion", "choices": [{ "index": 0, "finish_reason": "stop", "message": message }] });
                let told = told.to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
                let mut stream = stream;
                let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{told}", told.len());
            });
        }
    });
    address
}

/// Like [`answering`], but it answers every chat with this text, at once.
pub(crate) fn model(says: &'static str) -> SocketAddr {
    answering(Duration::ZERO, move |_| says.into())
}

/// The parts of a value that violate a schema of the document.
pub(crate) fn unlike(
    document: &Value,
    schema: &Value,
    value: &Value,
    place: &str,
    found: &mut Vec<String>,
) {
    if let Some(reference) = schema["$ref"].as_str() {
        return unlike(
            document,
            document.pointer(reference.trim_start_matches('#')).unwrap(),
            value,
            place,
            found,
        );
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let fits = |choice: &Value| {
            let mut found = Vec::new();
            unlike(document, choice, value, place, &mut found);
            found.is_empty()
        };
        if !choices.iter().any(fits) {
            found.push(format!("{place} fits none of its choices: {value}"));
        }
        return;
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let wanted: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(some) => some.iter().filter_map(Value::as_str).collect(),
        _ => vec![kind],
    };
    if !wanted.contains(&if kind == "integer" && wanted.contains(&"number") {
        "number"
    } else {
        kind
    }) {
        found.push(format!("{place} is {kind}, not {wanted:?}"));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        found.push(format!("{place} is {value}, none of its words"));
    }
    if let (Some(list), true) = (value.as_array(), schema["items"].is_object()) {
        list.iter().enumerate().for_each(|(at, one)| {
            unlike(document, &schema["items"], one, &format!("{place}[{at}]"), found)
        });
    }
    let Some(fields) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            found.push(format!("{place}.{name} is missing"));
        }
    }
    for (name, one) in fields {
        match (&schema["properties"][name], &schema["additionalProperties"]) {
            (known @ Value::Object(_), _) => {
                unlike(document, known, one, &format!("{place}.{name}"), found)
            }
            (_, Value::Bool(false)) => found.push(format!("{place}.{name} is not in the document")),
            (_, other @ Value::Object(_)) => {
                unlike(document, other, one, &format!("{place}.{name}"), found)
            }
            _ => {}
        }
    }
}

/// The route of the document that a target matches.
pub(crate) fn operation<'a>(
    document: &'a Value,
    method: &str,
    target: &str,
) -> (&'a str, &'a Value) {
    let parts: Vec<&str> = target.split('?').next().unwrap().split('/').collect();
    let fits = |path: &str| {
        let named: Vec<&str> = path.split('/').collect();
        named.len() == parts.len()
            && named.iter().zip(&parts).all(|(name, part)| name.starts_with('{') || name == part)
    };
    let paths = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, methods)| fits(path) && methods.get(method.to_lowercase()).is_some());
    // Literal segments win over parameters.
    let (path, methods) = paths
        .min_by_key(|(path, _)| path.matches('{').count())
        .unwrap_or_else(|| panic!("{method} {target} is in no document"));
    (path, &methods[method.to_lowercase()])
}

/// A memory with everything in it, behind a model that answers with code.
pub(crate) fn start_filled_server(home: &TestHome) -> Server {
    let address = model(
        "Here it is.\n\n```python\n# sort.py\ndef sort(numbers):\n    result = sorted(numbers)\n    return result\n\nprint(sort([3, 1, 2]))\n```\n",
    );
    home.settings(&format!("[chat]\nprovider = \"openai\"\nbase_url = \"http://{address}/v1\"\nmodel = \"stub\"\napi_key = \"none\"\n"));
    std::fs::set_permissions(
        home.folder.path().join(".config/icecore/config.toml"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    let server = home.serve();
    server.remember(None, "The budget is 500 EUR");
    server.remember(None, "The budget is 600 EUR");
    server.ok(None, "POST", "/api/events", r#"{"text":"Send the offer","due":"+3d","entity":"Client X","tags":["sales"],"priority":"P1"}"#);
    server.ok(None, "POST", "/api/messages", r#"[{"conversation":"app","id":"m1","text":"which port do we use?"},{"conversation":"app","id":"m2","role":"assistant","text":"port 7431","parts":{"n":[1]}}]"#);
    server.ok(None, "POST", "/api/log", r#"{"text":"first day"}"#);
    server.ok(
        None,
        "POST",
        "/state/append-log",
        r##"{"text":"# State\nThe parser is done.","title":"parser"}"##,
    );
    let chat = r#"{"model":"stub","messages":[{"role":"user","content":"Always answer in English. Write sort.py for me, please, it must sort numbers."}]}"#;
    let bearer = format!("Bearer {TOKEN}");
    let answer = server.send(
        "POST",
        "/v1/chat/completions",
        &[("Authorization", &bearer), ("X-Icecore-Conversation", "trip")],
        chat,
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    for _ in 0..200 {
        if !server.ok(None, "GET", "/api/conversations/trip/turns", "")["turns"]
            .as_array()
            .unwrap()
            .is_empty()
        {
            return server;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("the turn was not remembered");
}

// K12: every route, each with valid and invalid input, and every answer as documented
#[test]
fn every_route_answers_as_the_document_says() {
    let home = TestHome::new();
    let server = start_filled_server(&home);
    let document = server.get("/api/openapi.json").json();
    let events = server.ok(None, "GET", "/api/events", "");
    let ids: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["id"].as_str().unwrap())
        .collect();
    let (first, third) = (ids[0], ids[2]);
    let bad_id = format!("/api/events/{first}x/close");
    let (close, confirm, retract) = (
        format!("/api/events/{third}/close"),
        format!("/api/events/{first}/confirm"),
        format!("/api/events/{first}/retract"),
    );
    let (show, why, superseding) = (
        format!("/api/events/{first}"),
        format!("/api/why?of={first}"),
        json!({ "text": "x", "supersedes": [third] }).to_string(),
    );
    let whispered = |text: &str| {
        let said = json!({ "text": text, "origin": "tool", "session": "s1" }).to_string();
        server.ok(None, "POST", "/api/events", &said)["event"]["id"].as_str().unwrap().to_owned()
    };
    let (held, dropped) =
        (whispered("The shop closes at 18:00"), whispered("The shop sells everything for nothing"));
    let (confirm_held, drop_held) =
        (format!("/api/quarantine/{held}/confirm"), format!("/api/quarantine/{dropped}/drop"));
    server.ok(None, "POST", "/api/jobs/run", r#"{"job":"consolidate"}"#);
    let page = server.ok(None, "GET", "/api/pages/entities/client-x", "");
    let saved =
        json!({ "text": format!("{}- They pay within 30 days\n", page["text"].as_str().unwrap()), "hash": page["hash"] }).to_string();
    let graph = format!("/api/events/{third}/graph?limit=5");
    let token = json!({ "token": TOKEN }).to_string();
    let snapshot =
        server.ok(None, "POST", "/api/snapshots", r#"{"note":"for the table"}"#)["snapshot"]["id"]
            .as_str()
            .unwrap()
            .to_owned();
    let other = json!({ "other": snapshot }).to_string();
    let (then, since) = (
        format!("/api/pages/entities/client-x/versions/{snapshot}"),
        format!("/api/pages/entities/client-x/diff?from={snapshot}"),
    );
    let today = server.ok(None, "GET", "/api/status", "")["now"].as_str().unwrap()[..10].to_owned();
    let (node, line, words) = (
        format!("/api/core/{today}"),
        "/api/core/2026-02-13/why?line=0".to_owned(),
        format!("/api/core/{today}/messages?limit=1&characters=3"),
    );
    let (report, no_line) =
        (format!("/api/reports/{today}"), "/api/core/2026-02-13/why?line=99".to_owned());
    let superseding_by_tool =
        json!({ "text": "x", "supersedes": [first], "origin": "tool" }).to_string();
    let cases: Vec<(&str, &str, &str, u16)> = vec![
        ("GET", "/api/status", "", 200),
        ("GET", "/api/status?x=1", "", 400),
        // Before anything else changes the page.
        ("POST", "/api/pages/entities/client-x", &saved, 200),
        ("POST", "/api/pages/entities/client-x", &saved, 409),
        ("POST", "/api/pages/entities/client-x", r#"{"text":"x"}"#, 409),
        ("GET", "/api/events", "", 200),
        (
            "GET",
            "/api/events?type=commitment&type=fact&priority=P1&entity=client%20x&tag=sales&since=-1d&until=today&limit=1&text=offer&all=1&scope=everywhere",
            "",
            200,
        ),
        ("GET", "/api/events?type=lie", "", 400),
        ("GET", "/api/events?since=someday", "", 400),
        ("GET", "/api/events?limit=many", "", 400),
        ("GET", "/api/events?kind=fact", "", 400),
        ("POST", "/api/events", r#"{"text":"The sky is blue","type":"fact"}"#, 200),
        ("POST", "/api/events", r#"{"text":""}"#, 400),
        ("POST", "/api/events", r#"{"text":"x","colour":"red"}"#, 400),
        ("POST", "/api/events", r#"{"text":"x","due":"someday"}"#, 400),
        ("POST", "/api/events", r#"{"text":"x","supersedes":["EVT-20200101-001"]}"#, 404),
        ("POST", "/api/events", "not json", 400),
        ("POST", "/api/events", "", 400),
        ("GET", &show, "", 200),
        ("GET", "/api/events/EVT-20200101-001", "", 404),
        ("GET", "/api/events/nonsense", "", 400),
        ("POST", &close, r#"{"note":"sent"}"#, 200),
        ("POST", &close, "", 409),
        ("POST", "/api/events", &superseding, 409),
        (
            "POST",
            "/api/memory-tool",
            r#"{"command":"create","path":"/memories/a.md","file_text":"x"}"#,
            200,
        ),
        ("POST", "/api/memory-tool", r#"{"command":"view","path":"/memories","later":true}"#, 200),
        ("POST", "/api/memory-tool", r#"{"command":"view","path":"/etc/passwd"}"#, 200),
        ("POST", "/api/memory-tool", "[]", 400),
        ("POST", &bad_id, "{}", 400),
        ("POST", "/api/events/20200101-1/close", "{}", 404),
        ("POST", "/api/events", &superseding_by_tool, 403),
        ("GET", "/api/quarantine?origin=tool&since=-1d&session=s1&limit=5", "", 200),
        ("GET", "/api/quarantine?origin=nobody", "", 400),
        ("POST", &confirm_held, r#"{"note":"checked"}"#, 200),
        ("POST", &confirm_held, "{}", 404),
        ("POST", &drop_held, "", 200),
        ("POST", &drop_held, "", 409),
        ("POST", &confirm, "", 200),
        ("POST", &confirm, r#"{"origin":"nobody"}"#, 400),
        ("GET", "/api/commitments", "", 200),
        ("GET", "/api/conflicts", "", 200),
        ("POST", &retract, r#"{"note":"wrong"}"#, 200),
        ("POST", &retract, r#"{"why":"wrong"}"#, 400),
        ("GET", &why, "", 200),
        ("GET", "/api/why", "", 400),
        ("GET", "/api/why?of=20200101-7", "", 404),
        (
            "POST",
            "/api/messages",
            r#"{"conversation":"app","id":"m1","text":"which port do we use?"}"#,
            200,
        ),
        (
            "POST",
            "/api/messages",
            r#"{"conversation":"app","text":"x","ts":"2026-02-13T09:30:00+01:00","role":"assistant","name":"Bo","session":"s"}"#,
            200,
        ),
        ("POST", "/api/messages", r#"[{"text":"fine"},{"text":"x","ts":"yesterday"}]"#, 400),
        ("POST", "/api/messages", "[]", 400),
        ("POST", "/api/messages", r#"{"role":"user"}"#, 400),
        ("POST", "/api/log", r#"{"text":"it rained"}"#, 200),
        ("POST", "/api/log", r#"{"text":"  "}"#, 400),
        ("POST", "/api/state", r#"{"text":"The tests are next"}"#, 200),
        ("POST", "/api/state", r#"{"title":"x"}"#, 400),
        ("POST", "/state/append-log", r#"{"text":"One more","title":"tests"}"#, 200),
        ("POST", "/state/append-log", r#"{"text":" "}"#, 400),
        ("GET", "/api/packs/recall?date=today&scope=project:app", "", 200),
        ("GET", "/api/packs/recall?date=last%20month", "", 400),
        ("GET", "/api/packs/upload?budget=4000", "", 200),
        ("GET", "/api/packs/upload?budget=1", "", 400),
        ("GET", "/api/packs/pyramid?budget=5000", "", 200),
        ("GET", "/api/packs/pyramid?budget=1", "", 400),
        ("GET", "/api/packs/session-start?kind=side&budget=4000", "", 200),
        ("GET", "/api/packs/session-start?kind=own", "", 400),
        ("GET", "/api/packs/delta?prompt=the%20offer", "", 200),
        ("GET", "/api/packs/delta", "", 400),
        ("GET", "/api/packs/chat?conversation=trip&prompt=show%20me%20sort.py@v1", "", 200),
        ("GET", "/api/packs/chat", "", 400),
        ("GET", "/api/packs/nothing", "", 404),
        ("GET", "/api/zoom?when=today", "", 200),
        ("GET", "/api/zoom?when=today&conversation=app", "", 200),
        ("GET", "/api/zoom?when=2001-01-01", "", 404),
        ("GET", "/api/zoom?when=whenever", "", 400),
        (
            "GET",
            "/api/search?q=port&explain=true&context=1&kind=message&when=today&limit=3",
            "",
            200,
        ),
        ("GET", "/api/search?q=port&before=2026-01-01&words=true&conversation=app", "", 200),
        ("GET", "/api/search?q=port&before=2026-01-01T00:00:00Z", "", 200),
        ("GET", "/api/search", "", 400),
        ("GET", "/api/search?q=port&kind=dream", "", 400),
        ("GET", "/api/search?q=port&limit=0", "", 400),
        ("GET", "/api/jobs", "", 200),
        ("POST", "/api/jobs/run", r#"{"job":"rollup"}"#, 200),
        ("POST", "/api/jobs/run", r#"{"job":"consolidate"}"#, 200),
        ("POST", "/api/jobs/run", r#"{"job":"everything"}"#, 400),
        ("POST", "/api/jobs/run", "", 400),
        ("GET", "/api/runs?limit=3", "", 200),
        ("GET", "/api/runs?limit=-3", "", 400),
        ("GET", "/api/summaries?limit=5", "", 200),
        ("GET", "/api/summaries?tier=session&tier=day&when=this%20year", "", 200),
        ("GET", "/api/summaries?tier=hour", "", 400),
        ("GET", "/api/zoom?when=2026-02-13&summary=true", "", 200),
        ("GET", "/api/trends?when=this%20year&about=port&limit=3", "", 200),
        ("GET", "/api/trends?limit=0", "", 400),
        ("GET", "/api/trends?when=2099", "", 400),
        ("GET", "/api/lookback?date=today", "", 200),
        ("GET", "/api/lookback?date=last%20week", "", 400),
        ("GET", "/api/similar", "", 200),
        ("GET", "/api/similar?period=soon", "", 400),
        (
            "POST",
            "/api/sessions",
            r#"{"session":"kickoff","conversation":"talk","text":"User: which port?\nAssistant: 7431","format":"text"}"#,
            200,
        ),
        ("POST", "/api/sessions", r#"{"session":"kickoff","text":" "}"#, 400),
        ("POST", "/api/sessions", r#"{"session":"kickoff","text":"x","format":"opera"}"#, 400),
        ("GET", "/api/reviews", "", 200),
        ("POST", "/api/reviews/2026-W07", r#"{"settle":"accept"}"#, 404),
        ("POST", "/api/reviews/2026-W07", r#"{"settle":"edit"}"#, 400),
        ("POST", "/api/reviews/someday", r#"{"settle":"accept"}"#, 400),
        ("POST", "/api/marks", r#"{"date":"yesterday","mark":"important"}"#, 200),
        ("POST", "/api/marks", r#"{"date":"last month","mark":"dull"}"#, 400),
        ("POST", "/api/marks", r#"{"date":"yesterday","mark":"odd"}"#, 400),
        ("POST", "/api/verify", "", 200),
        ("POST", "/api/verify", r#"{"fix":true}"#, 400),
        ("GET", "/api/home", "", 200),
        ("GET", "/api/home?x=1", "", 400),
        ("GET", "/api/health", "", 200),
        ("GET", "/api/health?x=1", "", 400),
        (
            "GET",
            "/api/ledger?status=any&acts=true&type=commitment&priority=P1&entity=client%20x&since=-1d&limit=1&offset=0",
            "",
            200,
        ),
        ("GET", "/api/ledger?status=quarantined", "", 200),
        ("GET", "/api/ledger?status=lost", "", 400),
        ("GET", "/api/ledger?limit=0", "", 400),
        ("GET", &graph, "", 200),
        ("GET", "/api/events/20200101-1/graph", "", 404),
        ("GET", "/api/events/x/graph", "", 400),
        ("GET", "/api/core", "", 200),
        ("GET", "/api/core?tier=day&tier=session&from=-30d&to=today", "", 200),
        ("GET", "/api/core?from=2020-01-01&to=2020-01-02", "", 200),
        ("GET", "/api/core?from=today&to=yesterday", "", 400),
        ("GET", "/api/core?tier=hour", "", 400),
        ("GET", "/api/core/headlines?tier=session&from=-30d&limit=3", "", 200),
        ("GET", "/api/core/headlines", "", 400),
        ("GET", &node, "", 200),
        ("GET", "/api/core/2001-01-01", "", 404),
        ("GET", "/api/core/someday", "", 400),
        ("GET", &line, "", 200),
        ("GET", &no_line, "", 404),
        ("GET", "/api/core/2001-W07/why?line=0", "", 404),
        ("GET", "/api/core/2001-W07/why", "", 400),
        ("GET", &words, "", 200),
        ("GET", "/api/core/2026/messages", "", 400),
        ("GET", "/api/core/2026-02-13/messages?limit=0", "", 400),
        ("GET", "/api/pages", "", 200),
        ("GET", "/api/pages?x=1", "", 400),
        ("GET", "/api/pages/entities/client-x", "", 200),
        ("GET", "/api/pages/entities/nobody", "", 404),
        ("GET", "/api/pages/people/ann", "", 400),
        ("GET", "/api/pages/entities/..%2F..%2Ficecore", "", 400),
        ("POST", "/api/pages/entities/client-x", r#"{"text":" "}"#, 400),
        ("POST", "/api/pages/entities/Client%20X", r#"{"text":"x"}"#, 400),
        ("GET", "/api/pages/entities/client-x/versions?limit=3", "", 200),
        ("GET", "/api/pages/entities/client-x/versions?limit=0", "", 400),
        ("GET", &then, "", 200),
        ("GET", "/api/pages/entities/client-x/versions/now", "", 200),
        ("GET", "/api/pages/entities/client-x/versions/--help", "", 404),
        ("GET", &since, "", 200),
        ("GET", "/api/pages/entities/client-x/diff", "", 400),
        ("GET", "/api/pages/entities/client-x/diff?from=HEAD", "", 404),
        ("GET", "/api/runs/days?from=-30d", "", 200),
        ("GET", "/api/runs/days?from=today&to=yesterday", "", 400),
        ("GET", "/api/jobs/log?limit=5", "", 200),
        ("GET", "/api/jobs/log?limit=0", "", 400),
        ("GET", "/api/reports", "", 200),
        ("GET", "/api/reports?x=1", "", 400),
        ("GET", &report, "", 200),
        ("GET", "/api/reports/2001-01-01", "", 404),
        ("GET", "/api/reports/yesterday", "", 400),
        ("GET", "/api/search?q=port&mark=true", "", 200),
        ("GET", "/api/snapshots?limit=3", "", 200),
        ("GET", "/api/snapshots?limit=0", "", 400),
        ("POST", "/api/snapshots", r#"{"note":"by hand"}"#, 200),
        ("POST", "/api/snapshots", "", 200),
        ("POST", "/api/snapshots", r#"{"why":"x"}"#, 400),
        ("POST", "/api/doctor", "", 200),
        ("POST", "/api/doctor", r#"{"fix":true}"#, 200),
        ("POST", "/api/doctor", r#"{"fix":"yes"}"#, 400),
        ("POST", "/api/reindex", r#"{"words":true}"#, 200),
        ("POST", "/api/reindex", r#"{"vectors":true}"#, 400),
        ("GET", "/api/config", "", 200),
        ("GET", "/api/config?x=1", "", 400),
        ("GET", "/api/config/check", "", 200),
        ("GET", "/api/config/check?x=1", "", 400),
        ("POST", "/api/pauses", r#"{"project":"app","for":"1h"}"#, 200),
        ("POST", "/api/pauses", r#"{"session":"s","project":"app"}"#, 400),
        ("POST", "/api/pauses", r#"{"session":"last"}"#, 404),
        ("POST", "/api/pauses", r#"{"for":"a while"}"#, 400),
        ("GET", "/api/pauses", "", 200),
        ("GET", "/api/pauses?x=1", "", 400),
        ("POST", "/api/resume", r#"{"project":"app"}"#, 200),
        ("POST", "/api/resume", r#"{"for":"1h"}"#, 400),
        ("GET", "/api/injected?last=3", "", 200),
        ("GET", "/api/injected?last=0", "", 400),
        ("GET", "/api/injected?session=last", "", 404),
        ("GET", "/api/triggers", "", 200),
        ("GET", "/api/triggers?x=1", "", 400),
        ("POST", "/api/triggers", "", 200),
        ("POST", "/api/triggers", r#"{"keep":true}"#, 400),
        ("GET", "/api/merge", "", 200),
        ("GET", "/api/merge?x=1", "", 400),
        ("POST", "/api/merge", &other, 200),
        ("POST", "/api/merge", r#"{"other":"--upload-pack=x"}"#, 404),
        ("POST", "/api/merge", r#"{"from":"x"}"#, 400),
        ("POST", "/api/model/check", "", 200),
        ("POST", "/api/model/check", r#"{"model":"x"}"#, 400),
        ("GET", "/api/calendar?days=2", "", 200),
        ("GET", "/api/calendar?days=401", "", 400),
        ("GET", "/api/calendar/ics", "", 200),
        ("GET", "/api/calendar/ics?days=0", "", 400),
        ("GET", "/api/rollup", "", 200),
        ("GET", "/api/rollup?tier=week&period=2026-02-13", "", 400),
        ("POST", "/api/rollup", r#"{"period":"2026-02-13"}"#, 200),
        ("POST", "/api/rollup", r#"{"period":"2001-02-13"}"#, 404),
        ("POST", "/api/rollup", "", 400),
        ("POST", "/api/backfill", "", 200),
        ("POST", "/api/backfill", r#"{"all":true}"#, 400),
        ("GET", "/api/consolidate", "", 200),
        ("GET", "/api/consolidate?x=1", "", 400),
        ("GET", "/api/compact", "", 200),
        ("GET", "/api/compact?x=1", "", 400),
        ("POST", "/api/compact", "", 200),
        ("POST", "/api/compact", r#"{"dry_run":true}"#, 400),
        ("GET", "/api/prune", "", 200),
        ("GET", "/api/prune?x=1", "", 400),
        ("POST", "/api/prune", "", 200),
        ("POST", "/api/prune", r#"{"dry_run":true}"#, 400),
        (
            "POST",
            "/api/import",
            r#"{"text":"{\"ts\":\"2026-02-13T09:30:00Z\",\"conversation\":\"old\",\"text\":\"we used port 7430\"}\n"}"#,
            200,
        ),
        ("POST", "/api/import", r#"{"text":"x","format":"diary"}"#, 400),
        ("POST", "/api/import", r#"{"text":"no json at all\n","format":"jsonl"}"#, 400),
        ("POST", "/api/import", r#"{"path":"/etc/passwd"}"#, 400),
        (
            "POST",
            "/api/migrate",
            r##"{"files":[{"path":"MEMORY.md","text":"# Memory\n- The old port was 7430\n"}],"dry_run":true}"##,
            200,
        ),
        (
            "POST",
            "/api/migrate",
            r##"{"files":[{"path":"MEMORY.md","text":"# Memory\n- The old port was 7430\n","modified":"2026-02-13T09:30:00Z"}]}"##,
            200,
        ),
        ("POST", "/api/migrate", r#"{"files":[{"path":"../../etc/passwd","text":"x"}]}"#, 400),
        ("POST", "/api/migrate", r#"{"files":[{"path":"/etc/passwd","text":"x"}]}"#, 400),
        ("POST", "/api/migrate", r#"{"files":[]}"#, 400),
        (
            "POST",
            "/api/migrate",
            r#"{"files":[{"path":"a","text":"x"},{"path":"a/b","text":"y"}]}"#,
            400,
        ),
        ("POST", "/api/migrate", r#"{"folder":"/etc"}"#, 400),
        ("GET", "/api/similar/merged", "", 200),
        ("GET", "/api/similar/merged?budget=1", "", 400),
        ("GET", "/api/memory-tool/versions?path=/memories/a.md", "", 200),
        ("GET", "/api/memory-tool/versions?path=/etc/passwd", "", 400),
        ("GET", "/api/memory-tool/versions", "", 400),
        ("GET", "/api/session", "", 200),
        ("GET", "/api/session?x=1", "", 400),
        ("POST", "/api/login/code", "", 200),
        ("POST", "/api/login/code", r#"{"for":"ever"}"#, 400),
        ("POST", "/api/login", &token, 200),
        ("POST", "/api/login", r#"{"token":"a-token-that-is-not-the-one"}"#, 401),
        ("POST", "/api/login", r#"{"code":"0000"}"#, 401),
        ("POST", "/api/login", "", 400),
        ("POST", "/api/logout", "", 200),
        ("POST", "/api/logout", r#"{"all":true}"#, 400),
        ("GET", "/api/live?x=1", "", 400),
        ("POST", "/api/undo", r#"{"to":"0000000000000000000000000000000000000000"}"#, 404),
        ("POST", "/api/undo", r#"{"to":"--help"}"#, 404),
        ("POST", "/api/undo", r#"{"back":1}"#, 400),
        ("GET", "/api/conversations", "", 200),
        ("GET", "/api/conversations/trip", "", 200),
        ("GET", "/api/conversations/nobody%2Fknows%3Fit", "", 404),
        ("GET", "/api/conversations/%ff", "", 400),
        ("GET", "/api/conversations/trip/facts", "", 200),
        ("GET", "/api/conversations/trip/facts?turn=1", "", 200),
        ("GET", "/api/conversations/trip/facts?turn=one", "", 400),
        ("GET", "/api/conversations/trip/turns?unsummarized=true", "", 200),
        ("GET", "/api/conversations/trip/turns?turn=1", "", 200),
        ("GET", "/api/conversations/trip/turns?turn=99", "", 404),
        ("GET", "/api/conversations/trip/turns?turn=1&unsummarized=true", "", 400),
        ("GET", "/api/conversations/trip/artifacts", "", 200),
        ("GET", "/api/conversations/trip/artifacts/sort.py@v1", "", 200),
        ("GET", "/api/conversations/trip/artifacts/none.py", "", 404),
        ("GET", "/api/conversations/trip/artifacts/sort.py@v1/diff?to=sort.py", "", 200),
        ("GET", "/api/conversations/trip/artifacts/sort.py@v1/diff?to=sort.py@v9", "", 404),
        ("GET", "/api/conversations/trip/artifacts/sort.py@v1/diff", "", 400),
        ("GET", "/api/conversations/trip/diff?from=0&to=1", "", 200),
        ("GET", "/api/conversations/trip/diff?from=0", "", 400),
        ("POST", "/api/conversations/trip/retry", "", 409),
        ("POST", "/api/conversations/nothing/retry", "", 404),
        ("POST", "/api/conversations/trip/promote", r#"{"id":"EVT-20200101-001"}"#, 404),
        ("POST", "/api/conversations/trip/promote", r#"{"id":"x"}"#, 400),
        ("GET", "/api/conversations/trip/export", "", 200),
        ("GET", "/api/conversations/trip/export?all=1", "", 400),
        ("POST", "/api/forget", r#"{"matching":["which port"],"dry_run":true}"#, 200),
        ("POST", "/api/forget", r#"{"matching":["which port"],"reason":"a test"}"#, 200),
        ("POST", "/api/forget", r#"{"ids":["EVT-20200101-001"]}"#, 404),
        ("POST", "/api/forget", r#"{"matching":["?"]}"#, 400),
        ("POST", "/api/forget", "{}", 400),
        ("DELETE", "/api/conversations/trip", "", 200),
        ("DELETE", "/api/conversations/trip", "", 404),
        ("GET", "/api/users", "", 200),
        ("GET", "/api/users/nobody/export", "", 404),
        ("DELETE", "/api/users/nobody", "", 404),
        ("DELETE", "/api/users/%20", "", 400),
        ("POST", "/api/undo", "", 200),
        ("PUT", "/api/events", "{}", 405),
        ("GET", "/api/nothing", "", 404),
        ("GET", "/state/append-log", "", 405),
        ("GET", "/api/openapi.json", "", 200),
    ];
    let (mut wrong, mut good, mut bad) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    for (method, target, body, status) in cases {
        let answer = server.ask(None, method, target, body);
        let place = format!("{method} {target} {body}");
        if answer.status != status {
            wrong.push(format!("{place}: {} instead of {status}: {}", answer.status, answer.text));
            continue;
        }
        let told = answer.json();
        if status != 200 {
            let error = &told["error"];
            let whole = error["status"] == status
                && error["kind"].is_string()
                && error["message"].as_str().is_some_and(|said| said.len() > 10);
            if !whole || error.as_object().unwrap().len() != 3 {
                wrong.push(format!("{place}: {told}"));
            }
        }
        if [404, 405].contains(&status)
            && (target.contains("/nothing") && !target.contains("retry") || status == 405)
        {
            continue;
        }
        let (path, operation) = operation(&document, method, target);
        if operation["responses"].get(status.to_string()).is_none() {
            wrong.push(format!("{place}: the document does not know of {status}"));
        }
        if status == 200 {
            good.insert((method, path.to_owned()));
            unlike(
                &document,
                &operation["responses"]["200"]["content"]["application/json"]["schema"],
                &told,
                &place,
                &mut wrong,
            );
        } else {
            bad.insert((method, path.to_owned()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    // No route is missing, except those with tests of their own. A flagged draft needs a model that
    // writes nonsense; that route is tried with invalid input only.
    let elsewhere = [
        "/api/live",
        "/api/reviews/{period}",
        "/api",
        "/api/openapi.json",
        "/api/conversations/{name}/retry",
        "/api/conversations/{name}/promote",
        "/api/users/{name}",
        "/api/users/{name}/export",
    ];
    let lacks_bad = [
        "/api",
        "/api/reviews",
        "/api/openapi.json",
        "/api/commitments",
        "/api/conflicts",
        "/api/jobs",
        "/api/conversations",
        "/api/users",
    ];
    for (path, methods) in document["paths"].as_object().unwrap() {
        // Routes that need a database are tested with one.
        let in_a_database = |method: &&String| methods[*method]["tags"][0] == "Access";
        for method in methods
            .as_object()
            .unwrap()
            .keys()
            .filter(|method| !in_a_database(method))
            .map(|method| method.to_uppercase())
        {
            let tried = |all: &BTreeSet<(&str, String)>| {
                all.iter().any(|(tried, of)| *tried == method && of == path)
            };
            assert!(
                tried(&good) || elsewhere.contains(&path.as_str()),
                "{method} {path} was not tried with good input"
            );
            assert!(
                tried(&bad)
                    || lacks_bad.contains(&path.as_str())
                    || path == "/api/conversations/{name}/artifacts",
                "{method} {path} was not tried with bad input"
            );
        }
    }
}

// One schema: the command line prints the same JSON that the API answers
#[test]
fn the_api_says_what_the_command_line_says() {
    let home = TestHome::new();
    let server = start_filled_server(&home);
    // Two weeks of history, so that there is something to compare.
    for day in ["2026-01-06", "2026-01-13"] {
        let said = json!({ "conversation": "app", "text": "We decided that the parser never loses a line.", "ts": format!("{day}T09:00:00Z") });
        server.ok(None, "POST", "/api/messages", &said.to_string());
    }
    server.post("/api/jobs/run", r#"{"job":"rollup"}"#);
    server.post("/api/snapshots", "{}");
    server.post("/api/pauses", r#"{"project":"app"}"#);
    server.post(
        "/api/memory-tool",
        r#"{"command":"create","path":"/memories/a.md","file_text":"x"}"#,
    );
    server.post(
        "/api/memory-tool",
        r#"{"command":"str_replace","path":"/memories/a.md","old_str":"x","new_str":"y"}"#,
    );
    let id =
        server.ok(None, "GET", "/api/events", "")["events"][0]["id"].as_str().unwrap().to_owned();
    let (show, why) = (format!("/api/events/{id}"), format!("/api/why?of={id}"));
    let cases: Vec<(&str, Vec<&str>)> = vec![
        ("/api/events?all=true", vec!["events", "--all"]),
        ("/api/events?type=fact&limit=1", vec!["events", "--type", "fact", "--limit", "1"]),
        ("/api/commitments", vec!["commitments"]),
        ("/api/conflicts", vec!["conflicts"]),
        (&show, vec!["show", &id]),
        (&why, vec!["why", &id]),
        ("/api/zoom?when=today", vec!["zoom", "today"]),
        ("/api/zoom?when=today&conversation=app", vec!["zoom", "today", "--conversation", "app"]),
        ("/api/search?q=port&explain=true", vec!["search", "port", "--explain"]),
        ("/api/packs/recall", vec!["pack", "recall"]),
        ("/api/packs/upload", vec!["pack", "upload"]),
        ("/api/packs/pyramid", vec!["pack", "pyramid"]),
        ("/api/packs/session-start", vec!["pack", "session-start"]),
        ("/api/packs/delta?prompt=the%20offer", vec!["pack", "delta", "the offer"]),
        ("/api/trends?when=this%20year", vec!["insights", "trends", "--when", "this year"]),
        ("/api/lookback", vec!["insights", "lookback"]),
        ("/api/similar", vec!["insights", "similar"]),
        ("/api/reviews", vec!["summary", "review"]),
        ("/api/jobs", vec!["jobs", "schedule"]),
        ("/api/runs", vec!["jobs", "runs"]),
        ("/api/snapshots", vec!["snapshot", "--list"]),
        ("/api/config", vec!["vault", "config", "show"]),
        ("/api/config/check", vec!["vault", "config", "check"]),
        ("/api/triggers", vec!["triggers"]),
        ("/api/pauses", vec!["pause", "--list"]),
        ("/api/injected", vec!["hook", "log"]),
        ("/api/calendar?days=3", vec!["jobs", "calendar", "--days", "3"]),
        ("/api/quarantine", vec!["quarantine", "list"]),
        ("/api/rollup", vec!["rollup", "--dry-run"]),
        ("/api/rollup?tier=week", vec!["rollup", "week", "--dry-run"]),
        ("/api/consolidate", vec!["consolidate", "--dry-run"]),
        ("/api/compact", vec!["compact", "--dry-run"]),
        ("/api/prune", vec!["prune", "--dry-run"]),
        ("/api/similar/merged", vec!["insights", "similar", "--merge"]),
        (
            "/api/memory-tool/versions?path=/memories/a.md",
            vec!["memory-tool", "--versions", "/memories/a.md"],
        ),
        (
            "/api/conversations/trip/artifacts/sort.py@v1/diff?to=sort.py",
            vec!["conversation", "artifacts", "trip", "sort.py@v1", "--diff", "sort.py"],
        ),
        ("/api/conversations", vec!["conversation", "list"]),
        ("/api/conversations/trip", vec!["conversation", "show", "trip"]),
        ("/api/conversations/trip/facts", vec!["conversation", "facts", "trip"]),
        ("/api/conversations/trip/turns", vec!["conversation", "turns", "trip"]),
        (
            "/api/conversations/trip/turns?turn=1",
            vec!["conversation", "show", "trip", "--turn", "1"],
        ),
        ("/api/conversations/trip/artifacts", vec!["conversation", "artifacts", "trip"]),
        (
            "/api/conversations/trip/artifacts/sort.py",
            vec!["conversation", "artifacts", "trip", "sort.py"],
        ),
        (
            "/api/conversations/trip/diff?from=0&to=1",
            vec!["conversation", "diff", "trip", "0", "1"],
        ),
        ("/api/conversations/trip/export", vec!["conversation", "export", "trip"]),
    ];
    for (target, words) in cases {
        // Some answers contain the time; if a second passed between the two, they are requested
        // again.
        let both = || {
            let mut command = bare(program());
            command
                .env("HOME", home.folder.path())
                .args(["--vault", home.root().to_str().unwrap(), "--json"])
                .args(&words);
            let printed = crate::program::command_output(command.output().unwrap());
            assert_eq!(printed.code, Some(0), "{words:?}: {printed:?}");
            (server.get(target).text, printed.out.trim_end().to_owned())
        };
        let (answered, printed) = (0..5)
            .map(|_| both())
            .find(|(answered, printed)| answered == printed)
            .unwrap_or_else(both);
        assert_eq!(answered, printed, "{target} and {words:?}");
    }
}

// C7, C8: with a summarizer, facts can be listed, promoted and consolidated
#[test]
fn facts_are_established_lifted_and_summarised_again() {
    let home = TestHome::new();
    let chat = model("I will.");
    let summarizer = model(
        r#"{"user_summary":"Wants answers in English.","assistant_summary":"Agreed.","base_truth_diff":{"add":["Always answer in English"],"update":[],"remove":[]}}"#,
    );
    home.settings(&format!(
        "[chat]\nprovider = \"openai\"\nbase_url = \"http://{chat}/v1\"\nmodel = \"stub\"\n\n[summarizer]\nprovider = \"openai\"\nbase_url = \"http://{summarizer}/v1\"\nmodel = \"stub\"\n"
    ));
    let server = home.serve();
    let document = server.get("/api/openapi.json").json();
    let words =
        "Always answer in English, please, also when I write to you in another language, as I often do when I am tired and in a hurry. "
            .repeat(3);
    let said =
        json!({ "model": "stub", "messages": [{ "role": "user", "content": words }] }).to_string();
    let bearer = format!("Bearer {TOKEN}");
    let head = [
        ("Authorization", bearer.as_str()),
        ("X-Icecore-Conversation", "a/b c"),
        ("X-Icecore-User", "ann"),
    ];
    assert_eq!(server.send("POST", "/v1/chat/completions", &head, &said).status, 200);
    let facts =
        || server.ok(Some("ann"), "GET", "/api/conversations/a%2Fb%20c/facts", "")["facts"].clone();
    for _ in 0..200 {
        if !facts().as_array().unwrap().is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let fact = facts()[0].clone();
    assert_eq!(fact["text"], "Always answer in English");
    let before = server.ok(Some("ann"), "GET", "/api/conversations/a%2Fb%20c/diff?from=0&to=1", "");
    assert_eq!(before["added"], json!(["Always answer in English"]));
    let lifted = server.ok(
        Some("ann"),
        "POST",
        "/api/conversations/a%2Fb%20c/promote",
        &json!({ "id": fact["id"] }).to_string(),
    );
    assert_eq!(lifted["content"], "Always answer in English");
    assert_eq!(server.contents(Some("ann")), ["Always answer in English"]);
    assert!(server.contents(None).is_empty());
    // Another conversation of the same user contains it; other users' conversations do not.
    let told = |user| {
        server.ok(user, "GET", "/api/packs/chat?conversation=new&prompt=hello", "")["text"]
            .to_string()
    };
    assert!(
        told(Some("ann")).contains("Always answer in English")
            && !told(None).contains("Always answer")
    );
    let again = server.ok(Some("ann"), "POST", "/api/conversations/a%2Fb%20c/retry", "");
    for (method, target, value) in [
        ("POST", "/api/conversations/x/promote", &lifted),
        ("POST", "/api/conversations/x/retry", &again),
    ] {
        let (mut wrong, (_, operation)) = (Vec::new(), operation(&document, method, target));
        unlike(
            &document,
            &operation["responses"]["200"]["content"]["application/json"]["schema"],
            value,
            target,
            &mut wrong,
        );
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

// A user who is forgotten while they write is forgotten; what is acknowledged afterwards is stored
#[test]
fn forgetting_and_writing_at_once_leaves_no_half_of_either() {
    let home = TestHome::new();
    let server = home.serve();
    for round in 0..3 {
        server.remember(Some("ann"), "the first");
        thread::scope(|scope| {
            for writer in 0..4 {
                let server = &server;
                scope.spawn(move || {
                    for n in 0..8 {
                        let body =
                            json!({ "text": format!("round {round} {writer}/{n}") }).to_string();
                        let answer = server.ask(Some("ann"), "POST", "/api/events", &body);
                        assert_eq!(answer.status, 200, "{answer:?}");
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..5 {
                    let answer = server.ask(None, "DELETE", "/api/users/ann", "");
                    assert!([200, 404].contains(&answer.status), "{answer:?}");
                }
            });
        });
        let text = format!("the last of {round}");
        server.remember(Some("ann"), &text);
        assert!(server.contents(Some("ann")).contains(&text));
    }
    server.ok(None, "DELETE", "/api/users/ann", "");
    assert_eq!(server.ask(Some("ann"), "GET", "/api/events", "").status, 404);
    // No folder is created either.
    let left: Vec<_> = std::fs::read_dir(home.root().join("spaces"))
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(
        left.is_empty() && !holds(&home.root(), "the last of") && !holds(&home.root(), "round"),
        "{left:?}"
    );
}

// The examples of the page are complete: each is accepted
#[test]
fn the_examples_of_the_document_are_understood_and_the_page_shows_them() {
    let home = TestHome::new();
    let server = home.serve();
    let document = server.get("/api/openapi.json").json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let example = &operation["x-icecore-example"];
            let body =
                if example["body"].is_null() { String::new() } else { example["body"].to_string() };
            // One is a stream that stays open, and one has no code to show.
            if ["/api/live", "/api/login"].contains(&path.as_str()) {
                continue;
            }
            let answer = server.ask(
                None,
                &method.to_uppercase(),
                example["target"].as_str().unwrap(),
                &body,
            );
            assert!([200, 404].contains(&answer.status), "{method} {path}: {answer:?}");
        }
    }
    // Both are readable without a token, because a browser has none.
    let page = server.send("GET", "/api", &[], "");
    assert_eq!(page.status, 200);
    assert!(
        page.head.contains("content-security-policy: default-src 'none'; style-src 'sha256-")
            && page.head.contains("nosniff"),
        "{}",
        page.head
    );
    assert!(
        page.text.contains("/api/conversations/{name}/export") && page.text.contains("curl -sS")
    );
    assert_eq!(server.send("GET", "/api/openapi.json", &[], "").status, 200);
}

#[test]
fn without_a_token_every_request_is_refused() {
    let home = TestHome::new();
    let server = home.serve();
    let document = server.get("/api/openapi.json").json();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let target = operation["x-icecore-example"]["target"].as_str().unwrap();
            if ["/api", "/api/openapi.json", "/api/login"].contains(&path.as_str()) {
                continue;
            }
            for head in [vec![], vec![("Authorization", "Bearer wrong")]] {
                let answer = server.send(&method.to_uppercase(), target, &head, "{}");
                assert_eq!(
                    (answer.status, &answer.json()["error"]["status"]),
                    (401, &json!(401)),
                    "{method} {path}"
                );
            }
            let bearer = format!("Bearer {TOKEN}");
            let answer = server.send(
                &method.to_uppercase(),
                target,
                &[("Authorization", &bearer), ("Origin", "https://evil.example")],
                "{}",
            );
            assert_eq!(answer.status, 403, "{method} {path}");
        }
    }
    assert!(server.contents(None).is_empty());
}

// Conversations and end users can be exported and deleted; other users' data is never visible
#[test]
fn three_users_never_see_each_other_and_can_be_taken_along_and_away() {
    let home = TestHome::new();
    let server = home.serve();
    let users = ["ann@example.org", "Ann", "b\u{fc}/..%2f../ann"];
    for (at, user) in users.iter().enumerate() {
        // A user without a space is not found, and reading creates none.
        for target in [
            "/api/events",
            "/api/status",
            "/api/search?q=secret",
            "/api/packs/recall",
            "/api/conversations",
            "/api/events/20260213-1",
        ] {
            assert_eq!(server.ask(Some(user), "GET", target, "").status, 404, "{user} {target}");
        }
        // Nor does an invalid request.
        for (target, body, status) in [
            ("/api/events", r#"{"text":" "}"#, 400),
            ("/api/events", r#"{"text":"x","due":"someday"}"#, 400),
            ("/api/events", r#"{"text":"x","type":"lie"}"#, 400),
            ("/api/events", r#"{"text":"x","supersedes":["EVT-20260213-001"]}"#, 404),
            ("/api/messages", r#"[{"text":"x"},{}]"#, 400),
            ("/api/log", r#"{"text":""}"#, 400),
            ("/state/append-log", r#"{"text":""}"#, 400),
            ("/api/events/20260213-1/close", "", 404),
            ("/api/jobs/run", r#"{"job":"rollup"}"#, 404),
        ] {
            assert_eq!(
                server.ask(Some(user), "POST", target, body).status,
                status,
                "{user} {target} {body}"
            );
        }
        assert_eq!(server.ok(None, "GET", "/api/users", "")["users"].as_array().unwrap().len(), at);
        server.remember(Some(user), &format!("secret {at} of a user"));
        server.ok(
            Some(user),
            "POST",
            "/api/messages",
            &json!({ "conversation": "c", "text": format!("secret word {at}") }).to_string(),
        );
    }
    server.remember(None, "secret 9 of the house");
    let ids: Vec<String> = users
        .iter()
        .map(|user| {
            server.ok(Some(user), "GET", "/api/events", "")["events"][0]["id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    for (at, user) in users.iter().enumerate() {
        assert_eq!(server.contents(Some(user)), [format!("secret {at} of a user")]);
        // An id means the user's own event, even if others have the same number; an id they do not
        // have is not found.
        let shown = server.ok(Some(user), "GET", &format!("/api/events/{}", ids[(at + 1) % 3]), "");
        assert_eq!(shown["entry"]["content"], format!("secret {at} of a user"));
        assert_eq!(
            server.ask(Some(user), "GET", &format!("/api/events/{}2", ids[at]), "").status,
            404
        );
        assert_eq!(
            server.ask(Some(user), "POST", &format!("/api/events/{}2/retract", ids[at]), "").status,
            404
        );
        for target in [
            "/api/search?q=secret&limit=100",
            "/api/packs/recall",
            "/api/packs/session-start",
            "/api/packs/chat?conversation=c",
            "/api/zoom?when=today",
            "/api/conversations/c/export",
            "/api/packs/pyramid",
        ] {
            let text = server.ok(Some(user), "GET", target, "").to_string();
            for other in [0, 1, 2, 9].into_iter().filter(|other| *other != at) {
                assert!(
                    !text.contains(&format!("secret {other}"))
                        && !text.contains(&format!("secret word {other}")),
                    "{user} {target}: {text}"
                );
            }
        }
    }
    let house = ["/api/search?q=secret&limit=100", "/api/events", "/api/packs/recall"]
        .map(|target| server.ok(None, "GET", target, "").to_string());
    assert!(
        house.iter().all(|text| !text.contains("of a user") && !text.contains("secret word")),
        "{house:?}"
    );

    let told = server.ok(None, "GET", "/api/users", "");
    let names: BTreeSet<&str> = told["users"]
        .as_array()
        .unwrap()
        .iter()
        .map(|user| user["user"].as_str().unwrap())
        .collect();
    assert_eq!(names, users.into_iter().collect());
    assert_eq!(server.ask(Some("Ann"), "GET", "/api/users", "").status, 400);
    let encoded: String = users[2].bytes().map(|byte| format!("%{byte:02X}")).collect();
    let export = server.ok(None, "GET", &format!("/api/users/{encoded}/export"), "");
    assert_eq!(export["user"], users[2]);
    let whole = export.to_string();
    assert!(
        whole.contains("secret 2 of a user")
            && whole.contains("secret word 2")
            && !whole.contains("secret 0")
            && !whole.contains("secret 9")
    );
    // One conversation is deleted, then the user; the others stay.
    assert_eq!(server.ok(Some(users[1]), "DELETE", "/api/conversations/c", "")["messages"], 1);
    assert!(
        server.ok(Some(users[1]), "GET", "/api/conversations", "")["conversations"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert_eq!(server.ok(None, "DELETE", &format!("/api/users/{encoded}"), "")["forgotten"], true);
    assert_eq!(server.ask(Some(users[2]), "GET", "/api/events", "").status, 404);
    assert_eq!(server.ask(None, "DELETE", &format!("/api/users/{encoded}"), "").status, 404);
    assert!(!holds(&home.root(), "secret 2 of a user"));
    assert_eq!(server.contents(Some(users[0])), ["secret 0 of a user"]);
    // A user who comes back starts with an empty memory.
    server.remember(Some(users[2]), "new");
    assert_eq!(server.contents(Some(users[2])), ["new"]);
    // A server that was not running at the time knows the names.
    drop(server);
    // A user whose deletion was interrupted by a crash is deleted.
    let space =
        std::fs::read_dir(home.root().join("spaces")).unwrap().flatten().next().unwrap().path();
    copy(
        &space,
        &space.with_file_name(format!(".{}.gone", space.file_name().unwrap().to_str().unwrap())),
    );
    let again = home.serve();
    assert_eq!(again.ok(None, "GET", "/api/users", "")["users"].as_array().unwrap().len(), 3);
    assert_eq!(again.contents(Some(users[0])), ["secret 0 of a user"]);
}

/// Whether any file of a folder contains the text.
fn holds(folder: &Path, words: &str) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| {
        let path = entry.path();
        if path.is_dir() {
            holds(&path, words)
        } else {
            std::fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(words))
        }
    })
}

// L2, K12: what was answered with 200 is stored even if the process is killed
#[test]
fn what_was_acknowledged_survives_a_kill() {
    let home = TestHome::new();
    for round in 0..4 {
        let server = home.serve();
        server.remember(None, &format!("event {round}"));
        server.remember(Some("ann"), &format!("hers {round}"));
        server.ok(
            None,
            "POST",
            "/api/messages",
            &json!({ "conversation": "c", "id": format!("m{round}"), "text": format!("said {round}") }).to_string(),
        );
        server.ok(
            None,
            "POST",
            "/api/log",
            &json!({ "text": format!("logged {round}") }).to_string(),
        );
        server.ok(
            None,
            "POST",
            "/state/append-log",
            &json!({ "text": format!("state {round}") }).to_string(),
        );
        drop(server);
    }
    let server = home.serve();
    assert_eq!(
        server.contents(None),
        (0..4).map(|round| format!("event {round}")).collect::<Vec<_>>()
    );
    assert_eq!(
        server.contents(Some("ann")),
        (0..4).map(|round| format!("hers {round}")).collect::<Vec<_>>()
    );
    let zoomed = server.ok(None, "GET", "/api/zoom?when=last%202%20days", "").to_string();
    let logs: String = std::fs::read_dir(home.root().join("memory"))
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .collect();
    for round in 0..4 {
        assert!(
            zoomed.contains(&format!("said {round}")) && zoomed.contains(&format!("state {round}")),
            "{zoomed}"
        );
        assert!(logs.contains(&format!("logged {round}")), "{logs}");
    }
}

// L2
#[test]
fn sixty_four_at_once_are_all_there_exactly_once() {
    let home = TestHome::new();
    let server = home.serve();
    let users = [None, Some("ann"), Some("bob"), Some("cem")];
    thread::scope(|scope| {
        for writer in 0..64 {
            let server = &server;
            scope.spawn(move || {
                let user = users[writer % 4];
                server.remember(user, &format!("event {writer}"));
                let message = json!({ "conversation": "c", "id": format!("m{writer}"), "text": format!("message {writer}") }).to_string();
                assert_eq!(server.ok(user, "POST", "/api/messages", &message)["taken"]["new"], 1);
                // A repetition is the same message.
                assert_eq!(server.ok(user, "POST", "/api/messages", &message)["taken"]["same"], 1);
            });
        }
    });
    for (at, user) in users.into_iter().enumerate() {
        let mut contents = server.contents(user);
        contents.sort();
        let mut expected: Vec<String> = (0..64)
            .filter(|writer| writer % 4 == at)
            .map(|writer| format!("event {writer}"))
            .collect();
        expected.sort();
        assert_eq!(contents, expected);
        assert_eq!(
            server.ok(user, "GET", "/api/conversations", "")["conversations"][0]["messages"],
            16
        );
    }
}

// One job at a time: other requests are answered with a retry time
#[test]
fn a_job_that_runs_already_is_said_so() {
    let home = TestHome::new();
    let server = home.serve();
    for day in 1..=28 {
        let message = |n: usize| json!({ "conversation": format!("c{n}"), "text": format!("We decided on day {day} that number {n} holds."), "ts": format!("2026-01-{day:02}T09:{n:02}:00Z") });
        server.ok(
            None,
            "POST",
            "/api/messages",
            &Value::from((0..6).map(message).collect::<Vec<_>>()).to_string(),
        );
    }
    let answers: Vec<Answer> = thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| server.post("/api/jobs/run", r#"{"job":"rollup"}"#)))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert!(answers.iter().any(|answer| answer.status == 200), "{answers:?}");
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(
            (refused.status, &refused.json()["error"]["kind"]),
            (503, &json!("try_later")),
            "{refused:?}"
        );
        assert!(refused.head.contains("retry-after"), "{refused:?}");
    }
    assert!(
        answers.iter().any(|answer| answer.status == 503),
        "they did not meet: {:?}",
        answers.iter().map(|answer| answer.status).collect::<Vec<_>>()
    );
    let pressed = server.ok(None, "GET", "/api/runs?limit=1000", "");
    let periods: Vec<&str> = pressed["runs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|run| run["version"] == 1)
        .map(|run| run["period"].as_str().unwrap())
        .collect();
    let distinct: BTreeSet<&&str> = periods.iter().collect();
    assert_eq!(distinct.len(), periods.len(), "a summary was made twice");
}
