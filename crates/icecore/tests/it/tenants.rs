//! Many users in one database, as their programs see it: the real server, real tokens, and nothing
//! of other users.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use icecore_store::testing::cluster::{Durability, TestCluster};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::{Answer, TOKEN, model, operation, unlike};
use crate::program::{bare, command_output, program};

/// A word that occurs only in this user's memory.
const PEOPLE: [(&str, &str); 3] =
    [("ann", "quokkazebra"), ("ben", "narwhaltulip"), ("cid", "wombatsaffron")];
/// How long a revoked token may still be accepted, and a little more.
const BELIEVED: Duration = Duration::from_secs(6);
const SCOPES: [&str; 4] = ["read", "write", "proxy", "admin"];

/// A database, and a server on it.
struct TenantServer {
    cluster: TestCluster,
    folder: TempDir,
    child: Child,
    address: SocketAddr,
}

impl Drop for TenantServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TenantServer {
    fn open(environment: &[(&str, &str)]) -> Self {
        let cluster = TestCluster::start(Durability::Unflushed);
        let folder = TempDir::new().unwrap();
        let settings = folder.path().join(".config/icecore");
        std::fs::create_dir_all(&settings).unwrap();
        let chat = model("The harbour is quiet. I will remember that.");
        let text = format!(
            "[chat]\nprovider = \"openai\"\nbase_url = \"http://{chat}/v1\"\nmodel = \"stub\"\n"
        );
        std::fs::write(settings.join("config.toml"), text).unwrap();
        let run = |arguments: &[&str]| {
            let done = command_output(
                bare(program())
                    .env("HOME", folder.path())
                    .env("ICECORE_STORE", cluster.url())
                    .args(arguments)
                    .output()
                    .unwrap(),
            );
            assert_eq!(done.code, Some(0), "{done:?}");
        };
        run(&["init", "--tz", "UTC", "-q"]);
        let mut child = bare(program())
            .env("HOME", folder.path())
            .env("ICECORE_STORE", cluster.url())
            .env("ICECORE_TOKEN", TOKEN)
            .envs(environment.iter().copied())
            .args(["serve", "--addr", "127.0.0.1:0", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let address = told["addr"].as_str().unwrap().parse().unwrap();
        Self { cluster, folder, child, address }
    }

    /// Without a rate limit, which is not what is tested.
    fn without_rate_limit() -> Self {
        Self::open(&[("ICECORE_SERVER_REQUESTS_PER_MINUTE", "0")])
    }

    /// The output of a command, as JSON.
    fn command(&self, arguments: &[&str]) -> Value {
        let mut command = bare(program());
        command
            .env("HOME", self.folder.path())
            .env("ICECORE_STORE", self.cluster.url())
            .arg("--json")
            .args(arguments);
        let done = command_output(command.output().unwrap());
        assert_eq!(done.code, Some(0), "{arguments:?}: {done:?}");
        done.json()
    }

    /// Creates a token; returns its id and its secret.
    fn token(&self, user: Option<&str>, scopes: &str, more: &[&str]) -> (String, String) {
        let mut arguments = vec!["db", "token", "add", "--scope", scopes];
        arguments.extend(user.iter().flat_map(|user| ["--user", user]));
        let made = self.command(&[&arguments, more].concat());
        (
            made["token"]["id"].as_str().unwrap().to_owned(),
            made["secret"].as_str().unwrap().to_owned(),
        )
    }

    fn begin(&self, method: &str, target: &str, head: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut request = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        head.iter().for_each(|(name, value)| request.push_str(&format!("{name}: {value}\r\n")));
        stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
        stream
    }

    fn send(&self, method: &str, target: &str, head: &[(&str, &str)], body: &str) -> Answer {
        let mut bytes = Vec::new();
        let mut stream = self.begin(method, target, head, body);
        if target == "/api/live" {
            // It never ends by itself.
            let mut piece = [0; 4096];
            let many = stream.read(&mut piece).unwrap();
            bytes.extend_from_slice(&piece[..many]);
        } else {
            stream.read_to_end(&mut bytes).unwrap();
        }
        let text = String::from_utf8(bytes).unwrap();
        let (head, text) =
            text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {target}: {text}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), text: text.to_owned() }
    }

    /// Sends a request with this token, about this user if one is named.
    fn ask(
        &self,
        token: &str,
        user: Option<&str>,
        method: &str,
        target: &str,
        body: &str,
    ) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut head = vec![("Authorization", bearer.as_str())];
        head.extend(user.map(|user| ("X-Icecore-User", user)));
        for _ in 0..100 {
            let answer = self.send(method, target, &head, body);
            // The process that used it before may still be running.
            if answer.status != 503 || !answer.text.contains("another run") {
                return answer;
            }
            thread::sleep(Duration::from_millis(50));
        }
        panic!("{method} {target}: somebody is at it for ever");
    }

    fn ok(&self, token: &str, method: &str, target: &str, body: &str) -> Value {
        let answer = self.ask(token, None, method, target, body);
        assert_eq!(answer.status, 200, "{method} {target}: {answer:?}");
        let told = answer.json();
        if ["/api/tokens", "/api/spaces", "/api/quota", "/api/audit"]
            .iter()
            .any(|begins| target.starts_with(begins))
        {
            let document = self.send("GET", "/api/openapi.json", &[], "").json();
            let (_, operation) = operation(&document, method, target);
            let mut found = Vec::new();
            unlike(
                &document,
                &operation["responses"]["200"]["content"]["application/json"]["schema"],
                &told,
                "answer",
                &mut found,
            );
            assert!(found.is_empty(), "{method} {target}: {found:?}");
        }
        told
    }

    fn chat(&self, token: &str, user: Option<&str>, conversation: &str, text: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut head =
            vec![("Authorization", bearer.as_str()), ("X-Icecore-Conversation", conversation)];
        head.extend(user.map(|user| ("X-Icecore-User", user)));
        let body = json!({ "model": "stub", "messages": [{ "role": "user", "content": text }] })
            .to_string();
        self.send("POST", "/v1/chat/completions", &head, &body)
    }

    /// A request of an assistant.
    fn mcp(&self, token: &str, user: Option<&str>, method: &str, params: Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let named = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
        let mut params = params;
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body =
            json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let mut head = vec![
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        head.extend(named.as_deref().map(|named| ("Mcp-Name", named)));
        head.extend(user.map(|user| ("X-Icecore-User", user)));
        self.send("POST", "/mcp", &head, &body)
    }

    /// Every route of the API, with a sample request.
    fn routes(&self) -> Vec<RouteProbe> {
        let document = self.send("GET", "/api/openapi.json", &[], "").json();
        let mut found = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let example = &operation["x-icecore-example"];
                let body = match &example["body"] {
                    Value::Null => String::new(),
                    body => body.to_string(),
                };
                let target = example["target"].as_str().unwrap().to_owned();
                let of_user = operation["parameters"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|one| one["name"] == "X-Icecore-User"));
                found.push(RouteProbe {
                    method: method.to_uppercase(),
                    path: path.clone(),
                    target,
                    body,
                    of_user,
                });
            }
        }
        assert!(found.len() > 100, "{} routes", found.len());
        found
    }
}

/// A route with a sample request.
#[derive(Debug, Clone)]
struct RouteProbe {
    method: String,
    path: String,
    target: String,
    body: String,
    /// Whether it is about an end user's space.
    of_user: bool,
}

impl RouteProbe {
    /// The target with this value for a parameter, if it has that parameter.
    fn with(&self, name: &str, value: &str) -> Option<String> {
        let hole = format!("{{{name}}}");
        let (path, query) = self
            .target
            .split_once('?')
            .map_or((self.target.as_str(), None), |(path, query)| (path, Some(query)));
        let mut parts: Vec<&str> = path.split('/').collect();
        let at = self.path.split('/').position(|part| part == hole)?;
        parts[at] = value;
        let path = parts.join("/");
        Some(query.map_or(path.clone(), |query| format!("{path}?{query}")))
    }
}

/// One of the users, with a complete memory and its ids.
struct Person {
    name: &'static str,
    canary: &'static str,
    admin: String,
    write: String,
    read: String,
    proxy: String,
    /// An event with a number that no other user has.
    event: String,
    /// Names that do not reveal the user.
    conversation: String,
    page: String,
    snapshot: String,
    file: String,
}

fn people(house: &TenantServer) -> Vec<Person> {
    let one = |(at, (name, canary)): (usize, (&'static str, &'static str))| {
        let [read, write, proxy, admin] = SCOPES.map(|scope| house.token(Some(name), scope, &[]).1);
        let tell = |target: &str, body: Value| house.ok(&write, "POST", target, &body.to_string());
        let letter = &name[..1];
        // The first user has the fewest events, so that the last numbers of the others do not exist
        // there.
        let mut event = String::new();
        for number in 0..=(at * 40) {
            let text = format!("The harbour office of {canary} has door number {number}");
            let told = tell(
                "/api/events",
                json!({ "text": text, "entity": format!("Harbour {letter}"), "tags": [canary] }),
            );
            event = told["event"]["id"].as_str().unwrap().to_owned();
        }
        tell(
            "/api/events",
            json!({ "text": format!("Send the harbour offer to {canary}"), "due": "+3d", "type": "commitment" }),
        );
        tell(
            "/api/events",
            json!({ "text": format!("A tool says the harbour of {canary} is closed"), "origin": "tool", "session": "s1" }),
        );
        let conversation = format!("room-{letter}");
        let message = |id: &str, role: &str, text: String| json!({ "conversation": conversation, "id": id, "role": role, "text": text });
        tell(
            "/api/messages",
            json!([
                message("m1", "user", format!("Is the harbour of {canary} open?")),
                message("m2", "assistant", format!("Ask {canary}."))
            ]),
        );
        tell("/api/log", json!({ "text": format!("Met {canary} at the harbour") }));
        tell(
            "/state/append-log",
            json!({ "text": format!("# State\nThe harbour of {canary} is done."), "title": canary }),
        );
        tell(
            "/api/sessions",
            json!({ "session": "kickoff", "text": format!("User: the harbour?\nAssistant: {canary} runs it"), "format": "text" }),
        );
        let file = format!("/memories/{letter}.md");
        tell(
            "/api/memory-tool",
            json!({ "command": "create", "path": file, "file_text": format!("harbour {canary}") }),
        );
        let chat = house.chat(
            &proxy,
            None,
            &conversation,
            &format!("My harbour is called {canary}; always say so."),
        );
        assert_eq!(chat.status, 200, "{chat:?}");
        tell("/api/jobs/run", json!({ "job": "consolidate" }));
        let snapshot = tell("/api/snapshots", json!({ "note": canary }))["snapshot"]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        Person {
            name,
            canary,
            admin,
            write,
            read,
            proxy,
            event,
            conversation,
            page: format!("harbour-{letter}"),
            snapshot,
            file,
        }
    };
    PEOPLE.into_iter().enumerate().map(one).collect()
}

/// No canary of another user.
fn clean(person: &Person, what: &str, answer: &Answer) {
    for (name, canary) in PEOPLE.into_iter().filter(|(name, _)| *name != person.name) {
        let leaks = answer.text.contains(canary) || answer.head.contains(canary);
        assert!(!leaks, "{} is told of {name} by {what}: {answer:?}", person.name);
    }
    // Another process may use it for a moment.
    assert!(answer.status < 500 || answer.status == 503, "{what}: {answer:?}");
}

/// The text without ids, numbers and hashes, which differ between spaces.
fn without_ids(text: &str) -> String {
    let plain = |word: &str| {
        let is_hash = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit());
        if is_hash { "#".to_owned() } else { word.replace(|c: char| c.is_ascii_digit(), "#") }
    };
    text.split(|c: char| !c.is_ascii_alphanumeric()).map(plain).collect::<Vec<_>>().join(" ")
}

/// Placeholders for names, so that answers about different users can be compared.
fn without(answer: &Answer, value: &str) -> (u16, String) {
    let decoded = value.replace("%20", " ").replace("%2F", "/");
    (answer.status, answer.text.replace(value, "IT").replace(&decoded, "IT"))
}

// Every answer of every interface, to three users with the same data: nothing of another user is
// ever in it, and what belongs to another user is not found, in the same words as what does not
// exist.
#[test]
fn nobody_sees_what_is_anothers_through_any_door() {
    let house = TenantServer::without_rate_limit();
    let people = people(&house);
    let routes = house.routes();
    // Deletions are tried last.
    let order = |tried: &RouteProbe| {
        (
            tried.method != "GET",
            tried.path.contains("forget")
                || tried.path.contains("undo")
                || tried.method == "DELETE",
        )
    };
    let mut routes: Vec<RouteProbe> =
        routes.into_iter().filter(|tried| !tried.path.starts_with("/api/log")).collect();
    routes.sort_by_key(order);
    for person in &people {
        let other = people.iter().rfind(|other| other.name != person.name).unwrap();
        let listed = house.mcp(&person.read, None, "resources/list", json!({})).json();
        let uris: Vec<&str> = listed["result"]["resources"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["uri"].as_str())
            .collect();
        assert!(uris.iter().any(|uri| uri.contains(&person.page)), "{uris:?}");
        for (theirs, nobodys) in
            [(other.page.as_str(), "harbour-z"), (other.conversation.as_str(), "room-z")]
        {
            for uri in uris
                .iter()
                .filter(|uri| uri.contains(&person.page) || uri.contains(&person.conversation))
            {
                let forged = |name: &str| {
                    uri.replace(&person.page, name).replace(&person.conversation, name)
                };
                let there = house.mcp(
                    &person.read,
                    None,
                    "resources/read",
                    json!({ "uri": forged(theirs) }),
                );
                let nowhere = house.mcp(
                    &person.read,
                    None,
                    "resources/read",
                    json!({ "uri": forged(nobodys) }),
                );
                assert_eq!(without(&there, theirs), without(&nowhere, nobodys), "{uri}");
            }
        }
    }
    let mut asked = 0;
    let mut own_seen = 0;
    for round in 0..2 {
        for person in &people {
            let others: Vec<&Person> =
                people.iter().filter(|other| other.name != person.name).collect();
            for tried in &routes {
                let erases = tried.method == "DELETE"
                    && (tried.path.starts_with("/api/users")
                        || tried.path.starts_with("/api/spaces"));
                if tried.method != "GET" && round == 1 {
                    continue;
                }
                let what = format!("{} {}", tried.method, tried.target);
                if !erases {
                    let answer =
                        house.ask(&person.admin, None, &tried.method, &tried.target, &tried.body);
                    clean(person, &what, &answer);
                    own_seen += usize::from(answer.text.contains(person.canary));
                    asked += 1;
                }
                // The attempt with a name may have created something of that name.
                for (nobody, other) in ["x", "y"].into_iter().zip(&others).filter(|_| round == 0) {
                    // What belongs to another user, and what does not exist: the same answer.
                    for (name, theirs, nobodys) in [
                        (
                            "id",
                            other.event.clone(),
                            format!("{}999", &other.event[..other.event.len() - 3]),
                        ),
                        ("name", other.conversation.clone(), format!("room-{nobody}")),
                        ("name", other.name.to_owned(), "xyz".into()),
                        ("slug", other.page.clone(), format!("harbour-{nobody}")),
                        ("snapshot", other.snapshot.clone(), "0".repeat(other.snapshot.len())),
                    ] {
                        // An event of the same number may be the user's own.
                        if name == "id" && other.event < person.event {
                            continue;
                        }
                        let (Some(target), Some(absent)) =
                            (tried.with(name, &theirs), tried.with(name, &nobodys))
                        else {
                            continue;
                        };
                        let token =
                            if tried.path.starts_with("/api/spaces") || tried.method == "DELETE" {
                                &person.admin
                            } else {
                                &person.write
                            };
                        let there = house.ask(token, None, &tried.method, &target, &tried.body);
                        let nowhere = house.ask(token, None, &tried.method, &absent, &tried.body);
                        clean(person, &format!("{} {target}", tried.method), &there);
                        let (mut there, mut nowhere) =
                            (without(&there, &theirs), without(&nowhere, &nobodys));
                        if tried.method == "POST" && there.0 == 200 {
                            (there.1, nowhere.1) = (without_ids(&there.1), without_ids(&nowhere.1));
                        }
                        assert_eq!(there, nowhere, "{} {target}", tried.method);
                        asked += 2;
                    }
                    // Naming the other users directly.
                    if tried.of_user {
                        let there = house.ask(
                            &person.admin,
                            Some(other.name),
                            &tried.method,
                            &tried.target,
                            &tried.body,
                        );
                        let nowhere = house.ask(
                            &person.admin,
                            Some("xyz"),
                            &tried.method,
                            &tried.target,
                            &tried.body,
                        );
                        assert_eq!(
                            (there.status, without(&there, other.name)),
                            (404, without(&nowhere, "xyz")),
                            "{what}"
                        );
                        assert_eq!(
                            there.head.replace(other.name, "xyz").lines().count(),
                            nowhere.head.lines().count(),
                            "{what}"
                        );
                        asked += 2;
                    }
                }
            }
            for target in [
                "/api/search?q=harbour&limit=50&context=3&explain=true",
                "/api/search?q=%22harbour%22&words=true",
                "/api/events?all=true&text=harbour",
                "/api/ledger?status=any&acts=true",
                "/api/packs/upload",
                "/api/packs/recall",
                "/api/packs/delta?prompt=the%20harbour",
                "/api/packs/chat?conversation=room-a&prompt=harbour",
                "/api/zoom?when=today",
                "/api/why?of=harbour",
                "/api/trends?about=harbour",
                "/api/audit",
                "/metrics",
            ] {
                let answer = house.ask(&person.admin, None, "GET", target, "");
                clean(person, target, &answer);
                own_seen += usize::from(answer.text.contains(person.canary));
            }
            let export = house.ask(
                &person.read,
                None,
                "GET",
                &format!("/api/users/{}/export", person.name),
                "",
            );
            clean(person, "export", &export);
            assert!(export.status == 200 && export.text.contains(person.canary), "{export:?}");
            // Assistants.
            for (tool, arguments) in [
                ("recall", json!({ "query": "harbour", "limit": 50 })),
                ("zoom", json!({ "when": "today" })),
                ("pack", json!({})),
                ("commitments", json!({})),
                ("why", json!({ "of": person.event })),
                ("why", json!({ "of": others[1].event })),
                (
                    "remember",
                    json!({ "text": format!("The harbour of {} has a bell", person.canary) }),
                ),
            ] {
                let answer = house.mcp(
                    &person.write,
                    None,
                    "tools/call",
                    json!({ "name": tool, "arguments": arguments }),
                );
                clean(person, tool, &answer);
                own_seen += usize::from(answer.text.contains(person.canary));
                let there = house.mcp(
                    &person.write,
                    Some(others[0].name),
                    "tools/call",
                    json!({ "name": tool, "arguments": arguments }),
                );
                let nowhere = house.mcp(
                    &person.write,
                    Some("xyz"),
                    "tools/call",
                    json!({ "name": tool, "arguments": arguments }),
                );
                assert_eq!(
                    (there.status, without(&there, others[0].name)),
                    (404, without(&nowhere, "xyz")),
                    "{tool}"
                );
            }
            let listed = house.mcp(&person.read, None, "resources/list", json!({}));
            clean(person, "resources/list", &listed);
            let uris: Vec<String> = listed.json()["result"]["resources"]
                .as_array()
                .unwrap_or_else(|| panic!("{listed:?}"))
                .iter()
                .map(|one| one["uri"].as_str().unwrap().to_owned())
                .collect();
            for uri in &uris {
                clean(
                    person,
                    uri,
                    &house.mcp(&person.read, None, "resources/read", json!({ "uri": uri })),
                );
            }
            // Chats: the same conversation's name is another conversation.
            let spoken = house.chat(
                &person.proxy,
                None,
                &others[0].conversation,
                "What is my harbour called?",
            );
            clean(person, "chat", &spoken);
            let there = house.chat(
                &person.proxy,
                Some(others[0].name),
                "room-x",
                "What is my harbour called?",
            );
            let nowhere =
                house.chat(&person.proxy, Some("xyz"), "room-x", "What is my harbour called?");
            assert_eq!(
                (there.status, without(&there, others[0].name)),
                (404, without(&nowhere, "xyz"))
            );
            let file = json!({ "command": "view", "path": others[1].file }).to_string();
            clean(
                person,
                "memory-tool",
                &house.ask(&person.write, None, "POST", "/api/memory-tool", &file),
            );
        }
    }
    assert!(
        asked > 1_000 && own_seen > 100,
        "{asked} asked, {own_seen} with one's own words in them"
    );
    // A speaker in the body does not count either.
    let ann = &people[0];
    let body =
        json!({ "model": "stub", "user": "ben", "messages": [{ "role": "user", "content": "the harbour gate is green" }] }).to_string();
    assert_eq!(house.ask(&ann.proxy, None, "POST", "/v1/chat/completions", &body).status, 200);
    let search = |person: &Person| {
        house
            .ok(&person.read, "GET", "/api/search?q=%22harbour%20gate%20is%20green%22", "")
            .to_string()
    };
    assert!(search(ann).contains("green") && !search(&people[1]).contains("gate is green\""));
    // The log says who requested what, and never its content.
    let audit = house.ok(TOKEN, "GET", "/api/audit?limit=10000", "");
    let text = audit.to_string();
    assert!(audit["deeds"].as_array().unwrap().len() > 1_000);
    for (_, canary) in PEOPLE {
        assert!(!text.contains(canary), "{canary} is in the audit log");
    }
    assert_eq!(house.cluster.sql("SELECT count(*) FROM icecore.audit WHERE what LIKE '%?%'"), "0");
}

/// What a token needs, by the documented routes: the scope, and whether it is about the whole
/// server.
fn needs(method: &str, path: &str) -> (Option<&'static str>, bool) {
    match (method, path) {
        (_, "/api" | "/api/openapi.json" | "/api/login") => (None, false),
        (_, "/api/logout" | "/api/session") => (Some("any"), false),
        ("GET", "/api/users") => (Some("read"), true),
        ("GET", "/api/users/{name}/export") => (Some("read"), false),
        ("DELETE", "/api/users/{name}") => (Some("admin"), false),
        ("POST", "/api/model/check") => (Some("write"), true),
        ("POST", "/api/spaces/{name}/quota") => (Some("admin"), true),
        (_, path) if path.starts_with("/api/spaces/") => (Some("admin"), false),
        (_, path)
            if ["/api/tokens", "/api/spaces", "/api/audit", "/api/quota"]
                .iter()
                .any(|begins| path.starts_with(begins)) =>
        {
            (Some("admin"), true)
        }
        ("GET", _) => (Some("read"), false),
        _ => (Some("write"), false),
    }
}

fn holds(scope: &str, needed: &str) -> bool {
    match needed {
        "any" => true,
        "read" => scope != "proxy",
        "write" => scope == "write" || scope == "admin",
        needed => scope == needed || scope == "admin",
    }
}

// Every route with every kind of token: none, a wrong one, an expired one, a revoked one, one of
// each scope, bound to a space and unbound, and another user's.
#[test]
fn every_route_is_closed_to_who_may_not() {
    let house = TenantServer::without_rate_limit();
    for name in ["ann", "ben"] {
        let write = house.token(Some(name), "write", &[]).1;
        house.ok(&write, "POST", "/api/events", r#"{"text":"The sky is blue"}"#);
    }
    let bound = SCOPES.map(|scope| (scope, house.token(Some("ann"), scope, &[]).1));
    let whole = SCOPES.map(|scope| (scope, house.token(None, scope, &[]).1));
    let expired = house.token(Some("ann"), "admin", &["--expires", "1s"]).1;
    let (id, revoked) = house.token(Some("ann"), "admin", &[]);
    assert_eq!(house.ask(&revoked, None, "GET", "/api/status", "").status, 200);
    house.command(&["db", "token", "revoke", &id]);
    let wrong = format!("icecore_{}", "0".repeat(64));
    thread::sleep(BELIEVED);
    for (at, tried) in house.routes().into_iter().enumerate() {
        // So that no user is deleted who is still needed.
        let target = tried
            .with("name", "nobody-here")
            .filter(|_| !tried.of_user)
            .unwrap_or_else(|| tried.target.clone());
        let (needed, is_whole) = needs(&tried.method, &tried.path);
        let what = format!("{} {target}", tried.method);
        let ask = |token: &str, user: Option<&str>| {
            house.ask(token, user, &tried.method, &target, &tried.body)
        };
        let Some(needed) = needed else { continue };
        let nobody = house.send(&tried.method, &target, &[], &tried.body);
        assert_eq!(nobody.status, 401, "{what}: {nobody:?}");
        for (kind, token) in [("wrong", &wrong), ("expired", &expired), ("revoked", &revoked)] {
            let answer = ask(token, None);
            assert_eq!(answer.status, 401, "{what}, {kind}: {answer:?}");
            assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
        }
        let kind = |answer: &Answer| {
            serde_json::from_str::<Value>(&answer.text)
                .ok()
                .and_then(|told| told["error"]["kind"].as_str().map(str::to_owned))
        };
        for (scope, token) in &bound {
            let answer = ask(token, None);
            match (holds(scope, needed), is_whole) {
                (false, _) => assert_eq!(
                    (answer.status, kind(&answer).as_deref()),
                    (403, Some("insufficient_scope")),
                    "{what}, {scope}"
                ),
                (true, true) => assert_eq!(
                    (answer.status, kind(&answer).as_deref()),
                    (403, Some("bound_to_a_space")),
                    "{what}, {scope}"
                ),
                (true, false) => {
                    let refused = matches!(answer.status, 401 | 429)
                        || kind(&answer)
                            .is_some_and(|kind| kind.contains("scope") || kind.contains("bound"));
                    assert!(
                        !refused && (answer.status < 500 || answer.status == 503),
                        "{what}, {scope}: {answer:?}"
                    );
                }
            }
            // Another user's space, with any scope.
            if tried.of_user {
                let expected = if holds(scope, needed) { 404 } else { 403 };
                assert_eq!(ask(token, Some("ben")).status, expected, "{what}, {scope}, of ben");
            }
        }
        // The allowed requests were tried above; here it is enough that the others are refused, and
        // that some are not.
        for (scope, token) in &whole {
            if !holds(scope, needed) {
                assert_eq!(ask(token, None).status, 403, "{what}, {scope} of all");
            } else if at % 5 == 0 || is_whole {
                let answer = ask(token, None);
                assert!(
                    !matches!(answer.status, 401 | 403 | 429 | 500..=502),
                    "{what}, {scope} of all: {answer:?}"
                );
            }
        }
    }
    // The chat routes, in both dialects.
    let said = r#"{"model":"stub","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;
    for (method, target) in [
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/v1/models"),
        ("POST", "/v1/embeddings"),
    ] {
        assert_eq!(house.send(method, target, &[], said).status, 401, "{target}");
        for token in [&wrong, &expired, &revoked] {
            assert_eq!(house.ask(token, None, method, target, said).status, 401, "{target}");
        }
        for (scope, token) in bound.iter().chain(&whole) {
            let status = house.ask(token, None, method, target, said).status;
            assert_eq!(status == 403, !holds(scope, "proxy"), "{target}, {scope}: {status}");
            assert!(!matches!(status, 401 | 429), "{target}, {scope}: {status}");
        }
    }
    // A token bound to a space cannot read what the model server stores.
    for target in ["/v1/files", "/v1/responses/x", "/v1/batches"] {
        assert_eq!(house.ask(&bound[2].1, None, "GET", target, "").status, 403, "{target}");
        assert_ne!(house.ask(&whole[2].1, None, "GET", target, "").status, 403, "{target}");
    }
    // Assistants: every tool.
    for (scope, token) in &bound {
        let listed = house.mcp(token, None, "tools/list", json!({}));
        assert_eq!(listed.status == 403, *scope == "proxy", "{scope}: {listed:?}");
        for (tool, writes, arguments) in [
            ("recall", false, json!({ "query": "sky" })),
            ("remember", true, json!({ "text": "The sea is green" })),
            ("forget", true, json!({ "ids": ["EVT-20200101-001"] })),
        ] {
            let answer = house.mcp(
                token,
                None,
                "tools/call",
                json!({ "name": tool, "arguments": arguments }),
            );
            let may = holds(scope, if writes { "write" } else { "read" });
            assert_eq!(answer.status == 403, !may, "{tool}, {scope}: {answer:?}");
            if *scope != "proxy" {
                assert_eq!(
                    listed.text.contains(&format!("\"name\":\"{tool}\"")),
                    may,
                    "{tool}, {scope}"
                );
            }
        }
    }
    for token in [&wrong, &expired, &revoked] {
        assert_eq!(house.mcp(token, None, "tools/list", json!({})).status, 401);
    }
    // Browsers: a cookie has the permissions and the lifetime of its token.
    let login =
        |token: &str| house.send("POST", "/api/login", &[], &json!({ "token": token }).to_string());
    assert_eq!([&wrong, &expired, &revoked].map(|token| login(token).status), [401, 401, 401]);
    assert_eq!(login(&bound[2].1).status, 403);
    let (id, token) = house.token(Some("ann"), "read", &[]);
    let given = login(&token);
    let cookie = given
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let browse = |method: &str, target: &str, user: Option<&str>| {
        let mut head = vec![("Cookie", cookie.as_str()), ("X-Icecore-Csrf", "1")];
        head.extend(user.map(|user| ("X-Icecore-User", user)));
        house
            .send(method, target, &head, if method == "POST" { r#"{"text":"x"}"# } else { "" })
            .status
    };
    assert_eq!(browse("GET", "/api/events", None), 200);
    assert_eq!(browse("GET", "/api/events", Some("ben")), 404);
    assert_eq!(browse("POST", "/api/events", None), 403);
    assert_eq!(browse("GET", "/api/users", None), 403);
    let mut live =
        house.begin("GET", "/api/live", &[("Authorization", &format!("Bearer {token}"))], "");
    house.command(&["db", "token", "revoke", &id]);
    let began = Instant::now();
    thread::sleep(BELIEVED);
    assert_eq!(browse("GET", "/api/events", None), 401);
    // An open stream ends with its token.
    let mut heard = String::new();
    let _ = live.read_to_string(&mut heard);
    assert!(
        heard.contains("event: changed") && began.elapsed() < Duration::from_secs(20),
        "{:?}: {heard}",
        began.elapsed()
    );
}

#[test]
fn tokens_are_rotated_limits_hold_and_what_is_erased_is_gone() {
    let house = TenantServer::open(&[]);
    let all = house.token(None, "admin", &["--label", "backend"]).1;
    // Rotated: both are accepted for a while, then one.
    let (id, old) =
        house.token(Some("ann"), "write,proxy", &["--expires", "90d", "--label", "phone"]);
    let made = house.ok(&all, "POST", &format!("/api/tokens/{id}/rotate"), r#"{"grace":"1s"}"#);
    let new = made["secret"].as_str().unwrap().to_owned();
    assert_eq!(
        (&made["token"]["scopes"], &made["token"]["label"]),
        (&json!(["write", "proxy"]), &json!("phone"))
    );
    assert_eq!(
        house.ask(&new, None, "POST", "/api/events", r#"{"text":"The sky is blue"}"#).status,
        200
    );
    thread::sleep(BELIEVED);
    assert_eq!(
        (
            house.ask(&old, None, "GET", "/api/status", "").status,
            house.ask(&new, None, "GET", "/api/status", "").status
        ),
        (401, 200)
    );
    let listed = house.command(&["db", "token", "list", "--user", "ann"]);
    let states: Vec<&str> = listed["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["good", "expired"]);
    assert!(
        !listed.to_string().contains(&new)
            && !house.cluster.sql("SELECT * FROM icecore.token").contains(&new[8..])
    );
    assert_eq!(
        house.ask(&all, None, "POST", &format!("/api/tokens/{id}/rotate"), "{}").status,
        409
    );
    assert_eq!(house.ask(&all, None, "DELETE", "/api/tokens/nothing", "").status, 404);
    // An unbound token names the space of a request; a chat may name it in its body.
    assert_eq!(
        house
            .ask(&all, Some("ben"), "POST", "/api/events", r#"{"text":"The sea is green"}"#)
            .status,
        200
    );
    // Exactly as many requests as the quota allows; other users are not affected.
    house.ok(&all, "POST", "/api/spaces/ann/quota", r#"{"requests_per_minute":"5"}"#);
    let statuses: Vec<Answer> =
        (0..8).map(|_| house.ask(&new, None, "GET", "/api/status", "")).collect();
    assert_eq!(statuses.iter().filter(|answer| answer.status == 200).count(), 5, "{statuses:?}");
    let last = &statuses[7];
    assert!(
        last.status == 429
            && last.head.contains("retry-after: ")
            && last.json()["error"]["message"]
                .as_str()
                .unwrap()
                .contains("requests_per_minute is 5"),
        "{last:?}"
    );
    let chat = house.chat(&new, None, "a", "hi");
    assert!(chat.status == 429 && chat.json()["error"]["type"] == "rate_limit_error", "{chat:?}");
    assert_eq!(house.mcp(&new, None, "tools/list", json!({})).status, 429);
    assert_eq!(house.ask(&all, Some("ben"), "GET", "/api/status", "").status, 200);
    house.ok(
        &all,
        "POST",
        "/api/spaces/ann/quota",
        r#"{"requests_per_minute":"none","messages_per_day":"4"}"#,
    );
    // Messages of a day, through any interface.
    assert_eq!(house.chat(&new, None, "a", "hi").status, 200);
    assert_eq!(
        house
            .ask(
                &new,
                None,
                "POST",
                "/api/messages",
                r#"[{"id":"1","text":"one"},{"id":"2","text":"two"}]"#
            )
            .status,
        200
    );
    thread::sleep(BELIEVED);
    let shown = house.command(&["db", "space", "show", "ann"]);
    assert_eq!(
        (&shown["messages_today"], &shown["limits"]["messages_per_day"]),
        (&json!(4), &json!(4)),
        "{shown}"
    );
    assert!(shown["model_tokens_today"].as_u64().unwrap() > 0, "{shown}");
    let over = house.ask(&new, None, "POST", "/api/messages", r#"{"id":"3","text":"three"}"#);
    assert!(
        over.status == 429
            && over.text.contains("messages_per_day is 4")
            && over.head.contains("retry-after"),
        "{over:?}"
    );
    assert_eq!(house.chat(&new, None, "a", "hi").status, 429);
    assert_eq!(
        house
            .mcp(
                &new,
                None,
                "tools/call",
                json!({ "name": "remember", "arguments": { "text": "x" } })
            )
            .status,
        429
    );
    assert_eq!(house.ask(&new, None, "GET", "/api/status", "").status, 200);
    // Model tokens, and bytes.
    house.ok(
        &all,
        "POST",
        "/api/spaces/ann/quota",
        r#"{"messages_per_day":"default","model_tokens_per_day":"1"}"#,
    );
    let over = house.chat(&new, None, "a", "hi");
    assert!(over.status == 429 && over.text.contains("model_tokens_per_day"), "{over:?}");
    assert_eq!(
        house.ask(&new, None, "POST", "/api/events", r#"{"text":"The moon is pale"}"#).status,
        200
    );
    house.ok(&all, "POST", "/api/quota", r#"{"bytes":"10"}"#);
    let over = house.ask(&new, None, "POST", "/api/events", r#"{"text":"The sun is bright"}"#);
    assert!(
        over.status == 429
            && over.text.contains("bytes is 10")
            && !over.head.contains("retry-after"),
        "{over:?}"
    );
    assert_eq!(
        house.ask(&new, None, "POST", "/api/forget", r#"{"matching":["moon is pale"]}"#).status,
        200
    );
    house.command(&["db", "space", "quota", "ann", "--bytes", "none"]);
    thread::sleep(BELIEVED);
    assert_eq!(
        house.ask(&new, None, "POST", "/api/events", r#"{"text":"The sun is bright"}"#).status,
        200
    );
    house.ok(&all, "POST", "/api/quota", r#"{"bytes":"default"}"#);
    // A user's own admin token sees the usage, and erases everything; the audit log stays.
    let admin = house.token(Some("ann"), "admin", &[]).1;
    assert_eq!(house.ask(&admin, None, "GET", "/api/spaces/ann", "").status, 200);
    assert_eq!(house.ask(&admin, None, "GET", "/api/spaces/ben", "").status, 404);
    assert_eq!(house.command(&["db", "space", "list"])["users"], json!(["ann", "ben"]));
    assert_eq!(house.ask(&admin, None, "DELETE", "/api/spaces/ann", "").status, 200);
    assert_eq!(house.ask(&admin, None, "GET", "/api/spaces/ann", "").status, 401);
    assert_eq!(house.command(&["db", "space", "list"])["users"], json!(["ben"]));
    assert_eq!(house.ask(&all, Some("ann"), "GET", "/api/events", "").status, 404);
    let done = house.command(&["db", "audit", "--user", "ann", "--limit", "1000"]);
    let verbs: Vec<&str> = done["deeds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|deed| deed["verb"].as_str().unwrap())
        .collect();
    for verb in ["token add", "token rotate", "quota", "GET", "POST", "space erase"] {
        assert!(verbs.contains(&verb), "{verb}: {verbs:?}");
    }
    let left: String = house.cluster.sql(
        "SELECT string_agg(table_name, ' ') FROM information_schema.columns, LATERAL (SELECT (xpath('/row/c/text()', query_to_xml(format('SELECT count(*) AS c FROM icecore.%I WHERE space_id NOT IN (SELECT space_id FROM icecore.space)', table_name), false, true, '')))[1]::text::bigint AS many) AS lost WHERE table_schema = 'icecore' AND column_name = 'space_id' AND many > 0",
    );
    assert!(left.split(' ').all(|table| ["audit", "quota", "job_run"].contains(&table)), "{left}");
    // Errors are reported; successful answers match their documentation.
    for (method, target, body, status) in [
        ("GET", "/api/tokens?user=ben&limit=5", "", 200),
        ("GET", "/api/tokens?limit=0", "", 400),
        (
            "POST",
            "/api/tokens",
            r#"{"user":"ben","scopes":["read","proxy"],"expires":"12h","label":"x"}"#,
            200,
        ),
        ("POST", "/api/tokens", r#"{"scopes":["all"]}"#, 400),
        ("POST", "/api/tokens", r#"{"scopes":["read"],"expires":"soon"}"#, 400),
        ("POST", "/api/tokens", r#"{"user":"ben"}"#, 400),
        ("POST", "/api/tokens/x/rotate", r#"{"grace":"soon"}"#, 400),
        ("GET", "/api/spaces?after=a&limit=1", "", 200),
        ("GET", "/api/spaces?x=1", "", 400),
        ("GET", "/api/spaces/ben", "", 200),
        ("GET", "/api/spaces/nobody", "", 404),
        ("DELETE", "/api/spaces/nobody", "", 404),
        ("GET", "/api/spaces/ben/quota", "", 200),
        (
            "POST",
            "/api/spaces/ben/quota",
            r#"{"bytes":"1000000000","requests_per_minute":"none"}"#,
            200,
        ),
        ("POST", "/api/spaces/ben/quota", r#"{"bytes":"many"}"#, 400),
        ("GET", "/api/quota", "", 200),
        ("POST", "/api/quota", r#"{"messages_per_day":"-1"}"#, 400),
        ("GET", "/api/audit?user=ben&since=1h&limit=5", "", 200),
        ("GET", "/api/audit?since=yore", "", 400),
    ] {
        let answer = house.ask(&all, None, method, target, body);
        assert_eq!(answer.status, status, "{method} {target} {body}: {answer:?}");
        if status == 200 {
            house.ok(&all, method, target, body);
        }
    }
    // The command line asks before it erases, and there are no tokens in a folder.
    let mut refused = bare(program());
    refused
        .env("HOME", house.folder.path())
        .env("ICECORE_STORE", house.cluster.url())
        .args(["db", "space", "erase", "ben"]);
    let refused = command_output(refused.output().unwrap());
    assert!(refused.code == Some(2) && refused.err.contains("--yes"), "{refused:?}");
    house.command(&["db", "space", "erase", "ben", "--yes"]);
    let nowhere = command_output(
        bare(program())
            .env("HOME", house.folder.path())
            .args(["db", "token", "list"])
            .output()
            .unwrap(),
    );
    assert!(nowhere.code == Some(3) && nowhere.err.contains("--store"), "{nowhere:?}");
}

#[test]
fn a_name_that_nobody_can_have_spoils_nothing_for_the_others() {
    let house = TenantServer::without_rate_limit();
    let all = house.token(None, "admin", &[]).1;
    let own = house.token(Some("ann"), "admin", &[]).1;
    let long = "x".repeat(700);
    // Each of these is escaped as eight bytes.
    let hidden = "\u{202E}".repeat(60);
    for name in [&long, &hidden] {
        for (method, target, body) in [
            ("GET", "/api/status", ""),
            ("POST", "/api/events", r#"{"text":"x"}"#),
            ("GET", "/v1/models", ""),
            ("GET", "/api/events", ""),
        ] {
            assert_eq!(house.ask(&all, Some(name), method, target, body).status, 400, "{target}");
            assert_eq!(house.ask(&own, Some(name), method, target, body).status, 404, "{target}");
        }
        assert_eq!(house.chat(&all, Some(name), "a", "hi").status, 400);
        assert_eq!(house.mcp(&all, Some(name), "tools/list", json!({})).status, 400);
    }
    assert_eq!(house.ask(&all, None, "GET", &format!("/api/spaces/{long}"), "").status, 400);
    let body = |name: &str| {
        json!({ "model": "stub", "user": name, "messages": [{ "role": "user", "content": "hi" }] })
            .to_string()
    };
    // A user who is named only in a chat's body is unknown to memory, and the chat continues.
    let unknown = house.ask(&all, None, "POST", "/v1/chat/completions", &body(&hidden));
    assert!(
        unknown.status == 200 && unknown.head.contains("x-icecore-memory: failed"),
        "{unknown:?}"
    );
    // In any case, the other users' requests are logged and counted.
    assert_eq!(house.ask(&all, None, "POST", "/v1/chat/completions", &body("ben")).status, 200);
    assert_eq!(house.chat(&own, None, "a", "hi").status, 200);
    for user in ["ann", "ben"] {
        let deeds = house.ok(&all, "GET", &format!("/api/audit?user={user}"), "");
        assert!(
            deeds["deeds"]
                .as_array()
                .unwrap()
                .iter()
                .any(|deed| deed["what"].as_str().unwrap().contains("/v1/chat")),
            "{user}: {deeds}"
        );
        let shown = house.command(&["db", "space", "show", user]);
        assert!(shown["model_tokens_today"].as_u64().unwrap() > 0, "{user}: {shown}");
    }
}

#[test]
fn a_tool_is_limited_and_noted_however_its_request_is_written() {
    let house = TenantServer::without_rate_limit();
    let all = house.token(None, "admin", &[]).1;
    let own = house.token(Some("ann"), "write", &[]).1;
    let reads = house.token(Some("ann"), "read", &[]).1;
    let remember = |more: Value| {
        let mut params = json!({ "name": "remember", "arguments": { "text": "The sky is blue" } });
        more.as_object().unwrap().iter().for_each(|(name, value)| params[name] = value.clone());
        params
    };
    assert_eq!(house.mcp(&own, None, "tools/call", remember(json!({}))).status, 200);
    house.ok(&all, "POST", "/api/spaces/ann/quota", r#"{"bytes":"10"}"#);
    // A method that no tool uses does not bypass a quota.
    for more in [json!({}), json!({ "uri": 5 }), json!({ "uri": ["x"], "extra": {} })] {
        let over = house.mcp(&own, None, "tools/call", remember(more.clone()));
        assert!(over.status == 429 && over.text.contains("bytes is 10"), "{more}: {over:?}");
        assert_eq!(
            house.mcp(&reads, None, "tools/call", remember(more.clone())).status,
            403,
            "{more}"
        );
    }
    // Reading and deleting still work.
    for (name, arguments) in
        [("recall", json!({ "query": "sky" })), ("forget", json!({ "matching": "sky is blue" }))]
    {
        let params = json!({ "name": name, "arguments": arguments, "uri": 5 });
        assert_eq!(house.mcp(&own, None, "tools/call", params).status, 200, "{name}");
    }
    let audit = house.ok(&all, "GET", "/api/audit?user=ann", "");
    let told = |deed: &Value| {
        (deed["what"].as_str().unwrap().to_owned(), deed["status"].as_u64().unwrap())
    };
    let mut noted: Vec<(String, u64)> = audit["deeds"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|deed| deed["door"] == "mcp")
        .map(told)
        .collect();
    noted.sort_unstable();
    let mut expected = ["forget", "recall", "remember"]
        .map(|tool| (format!("/mcp tools/call {tool}"), 200))
        .to_vec();
    expected.extend(
        [403, 403, 403, 429, 429, 429]
            .map(|status| ("/mcp tools/call remember".to_owned(), status)),
    );
    assert_eq!(noted, expected);
}

#[test]
fn who_is_not_known_asks_nothing_of_the_database_and_hears_nothing_of_it() {
    let house = TenantServer::open(&[("ICECORE_STORE_CONNECTION_TIMEOUT_SECS", "1")]);
    let own = house.token(Some("ann"), "write", &[]).1;
    assert_eq!(house.ask(&own, None, "GET", "/api/status", "").status, 404, "nothing is there yet");
    // While the token table is locked, unknown tokens wait.
    let locked = thread::scope(|scope| {
        let holding = scope.spawn(|| {
            house.cluster.sql("BEGIN; LOCK TABLE icecore.token; SELECT pg_sleep(4); COMMIT")
        });
        thread::sleep(Duration::from_secs(1));
        let began = Instant::now();
        for wrong in [
            "x",
            "a-token-that-somebody-has-set",
            &own[..60],
            &own.to_uppercase(),
            &format!("{own}0"),
        ] {
            assert_eq!(house.ask(wrong, None, "GET", "/api/status", "").status, 401, "{wrong}");
            assert_eq!(
                house
                    .send("POST", "/api/login", &[], &json!({ "token": wrong }).to_string())
                    .status,
                401,
                "{wrong}"
            );
        }
        let took = began.elapsed();
        holding.join().unwrap();
        took
    });
    assert!(locked < Duration::from_secs(2), "what cannot be a token was looked up: {locked:?}");
    house.cluster.kill();
    let port = house.cluster.port().to_string();
    let invented = format!("icecore_{}", "0123456789abcdef".repeat(4));
    let by_token = house.ask(&invented, None, "GET", "/api/status", "");
    let by_login = house.send("POST", "/api/login", &[], &json!({ "token": invented }).to_string());
    let by_chat = house.chat(&invented, None, "a", "hi");
    for answer in [by_token, by_login, by_chat] {
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.text.contains("retry in a moment"), "{answer:?}");
        let said = format!("{}{}", answer.head, answer.text);
        assert!(
            !said.contains(&port)
                && !said.contains("postgres")
                && !said.contains(house.cluster.url().as_str()),
            "{answer:?}"
        );
    }
    house.cluster.start_again();
}

#[test]
fn who_is_forgotten_by_either_route_is_gone_with_their_tokens_and_it_is_noted_once() {
    let house = TenantServer::without_rate_limit();
    let all = house.token(None, "admin", &[]).1;
    for (user, target) in [("ann", "/api/spaces/ann"), ("ben", "/api/users/ben")] {
        let own = house.token(Some(user), "write", &[]).1;
        assert_eq!(
            house.ask(&own, None, "POST", "/api/events", r#"{"text":"The sky is blue"}"#).status,
            200
        );
        assert_eq!(house.ask(&all, None, "DELETE", target, "").status, 200);
        assert_eq!(
            house.ask(&own, None, "GET", "/api/status", "").status,
            401,
            "{user}'s token is good although their space is gone"
        );
        assert_eq!(house.ask(&all, None, "DELETE", target, "").status, 404);
        let audit = house.ok(&all, "GET", &format!("/api/audit?user={user}"), "");
        let erased = audit["deeds"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|deed| deed["verb"] == "space erase")
            .count();
        assert_eq!(erased, 1, "{audit}");
        // Writing in their name starts an empty memory, which stays.
        assert_eq!(
            house
                .ask(&all, Some(user), "POST", "/api/events", r#"{"text":"The sea is green"}"#)
                .status,
            200
        );
        assert_eq!(house.ask(&all, Some(user), "GET", "/api/events", "").status, 200);
    }
}

#[test]
fn what_is_typed_is_noted_like_what_is_asked() {
    let house = TenantServer::without_rate_limit();
    let run = |arguments: &[&str]| {
        let mut command = bare(program());
        command
            .env("HOME", house.folder.path())
            .env("ICECORE_STORE", house.cluster.url())
            .env("USER", "operator")
            .args(arguments);
        command_output(command.output().unwrap()).code
    };
    assert_eq!(run(&["remember", "The quokka is called Bo"]), Some(0));
    assert_eq!(run(&["search", "quokka"]), Some(0));
    assert_eq!(run(&["conversation", "show", "quokka"]), Some(3));
    let audit = house.command(&["db", "audit"]);
    let deeds = audit["deeds"].as_array().unwrap().iter().filter(|deed| deed["door"] == "cli");
    let told: Vec<_> = deeds
        .map(|deed| {
            (
                deed["verb"].as_str().unwrap(),
                deed["who"].as_str().unwrap(),
                deed["status"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("conversation show", "operator", 404),
            ("search", "operator", 200),
            ("remember", "operator", 200)
        ]
    );
    assert!(!audit.to_string().contains("quokka"), "{audit}");
}
