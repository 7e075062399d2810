//! The server as people's own clients see it: the official packages of `OpenAI` and Anthropic drive
//! the real program, before a real small model and before a scripted one.
//!
//! `tests/clients` holds a small program for each package. The programs are told by lines what to
//! do and print what they saw; what it has to be stands here.

mod assistants;
mod branches;
mod memory;
mod real;
mod sixty;
mod wire;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::model::repository_root;
use crate::program::{CommandOutput, bare, command_output, program};

const TOKEN: &str = "a-token-of-the-tests";
/// Nothing here takes this long; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// The content of a golden stream.
fn golden(name: &str) -> Vec<u8> {
    std::fs::read(repository_root().join("tests/clients/golden").join(name)).unwrap()
}

/// Polls until there is a value, with a time limit.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what} did not come");
        thread::sleep(Duration::from_millis(50));
    }
}

/// The lines that a process prints, read by a thread so that reading has a time limit.
fn lines_of(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, receive) = channel();
    thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    receive
}

/// An official client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Package {
    OpenAiPython,
    AnthropicPython,
    OpenAiNpm,
}

/// A running program of `tests/clients`; it ends when its standard input closes, at the latest with
/// this process.
struct Client {
    package: Package,
    child: Child,
    told: Option<ChildStdin>,
    seen: Receiver<String>,
}

impl Client {
    fn start(package: Package) -> Self {
        let (python, npm) = (
            repository_root().join("target/clients-venv/bin/python"),
            repository_root().join("target/clients-npm"),
        );
        let (program, arguments) = match package {
            Package::OpenAiPython => {
                (python, vec![repository_root().join("tests/clients/openai_client.py")])
            }
            Package::AnthropicPython => {
                (python, vec![repository_root().join("tests/clients/anthropic_client.py")])
            }
            Package::OpenAiNpm => (
                PathBuf::from("node"),
                vec![repository_root().join("tests/clients/openai_client.mjs"), npm.clone()],
            ),
        };
        let there = if package == Package::OpenAiNpm {
            npm.join("installed.json")
        } else {
            program.clone()
        };
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
        let (told, seen) = (child.stdin.take(), lines_of(child.stdout.take().unwrap()));
        Self { package, child, told, seen }
    }

    /// Runs a scenario against a server and returns what the client saw.
    fn does(&mut self, server: &Server, scenario: &str, more: &Value) -> Value {
        let mut line = json!({ "base_url": format!("http://{}", server.addr), "token": TOKEN, "scenario": scenario });
        for (key, value) in more.as_object().unwrap() {
            line[key] = value.clone();
        }
        let told = self.told.as_mut().unwrap();
        writeln!(told, "{line}").unwrap();
        told.flush().unwrap();
        let seen = self.seen.recv_timeout(PATIENCE);
        let seen = seen.unwrap_or_else(|error| {
            panic!("{:?} says nothing to {scenario}: {error}\n{}", self.package, server.log())
        });
        serde_json::from_str(&seen).unwrap()
    }

    /// Like `run`, for a scenario that must succeed.
    fn gets(&mut self, server: &Server, scenario: &str, more: &Value) -> Value {
        let seen = self.does(server, scenario, more);
        assert!(
            seen["error"].is_null(),
            "{:?} {scenario} {more}: {seen}\n{}",
            self.package,
            server.log()
        );
        seen
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.told.take());
        let _ = self.child.wait();
    }
}

/// The vault and the environment of a server.
struct TestHome {
    folder: TempDir,
    environment: Vec<(String, String)>,
}

impl TestHome {
    fn new(policy: &str) -> Self {
        let home = Self { folder: TempDir::new().unwrap(), environment: Vec::new() };
        home.ok(&["init", "--tz", "Europe/Berlin", "-q"]);
        let config = home.vault().join("icecore.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(config, format!("{text}\n[chat]\n{policy}\n")).unwrap();
        home
    }

    /// Sets the model for a role: `chat` or `summarizer`.
    fn with_model(mut self, role: &str, provider: &str, base_url: &str, model: &str) -> Self {
        for (key, value) in [("PROVIDER", provider), ("BASE_URL", base_url), ("MODEL", model)] {
            self.environment
                .push((format!("ICECORE_{}_{key}", role.to_ascii_uppercase()), value.to_owned()));
        }
        self
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn vault(&self) -> PathBuf {
        self.folder.path().join("vault")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare(program());
        command
            .env("HOME", self.folder.path())
            .env("ICECORE_TOKEN", TOKEN)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .arg("--vault")
            .arg(self.vault())
            .args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> CommandOutput {
        command_output(self.command(arguments).output().unwrap())
    }

    fn ok(&self, arguments: &[&str]) -> CommandOutput {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said
    }

    fn json(&self, arguments: &[&str]) -> Value {
        self.ok(&[arguments, &["--json"]].concat()).json()
    }

    /// The turns of a conversation once there are so many; they are recorded after the reply.
    fn turns(&self, conversation: &str, many: usize) -> Vec<Value> {
        until(&format!("turn {many} of {conversation}"), || {
            let said = self.run(&["conversation", "turns", conversation, "--json"]);
            let turns = if said.code == Some(0) {
                said.json()["turns"].as_array().unwrap().clone()
            } else {
                Vec::new()
            };
            (turns.len() >= many).then_some(turns)
        })
    }
}

/// The program itself, as a server.
struct Server {
    child: Child,
    addr: SocketAddr,
    log: Arc<Mutex<String>>,
}

impl Server {
    fn start(home: &TestHome) -> Self {
        let mut command = home.command(&["serve", "--addr", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (errors, kept) = (child.stderr.take().unwrap(), log.clone());
        thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let listening = lines_of(child.stdout.take().unwrap()).recv_timeout(PATIENCE);
        let addr =
            listening.ok().and_then(|line| line.strip_prefix("Listening on http://")?.parse().ok());
        let Some(addr) = addr else {
            let _ = child.kill();
            panic!("the server did not start: {}", log.lock().unwrap());
        };
        Self { child, addr, log }
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for Server {
    /// Like `kill -9`: acknowledged data must be stored whenever it dies.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert!(thread::panicking() || !self.log().contains("panicked"), "{}", self.log());
    }
}

/// A request as a model server received it.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl ReceivedRequest {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The requested model, which selects the script.
    fn model(&self) -> String {
        self.json()["model"].as_str().unwrap_or_default().to_owned()
    }

    fn messages(&self) -> Vec<Value> {
        self.json()["messages"].as_array().cloned().unwrap_or_default()
    }
}

/// What a model server sends.
#[derive(Debug, Clone)]
struct Answer {
    head: String,
    body: Vec<u8>,
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Ends,
    /// Hangs up in the middle.
    Breaks,
    /// Sends nothing more until the other side gives up.
    Hangs,
}

impl Answer {
    fn stream(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            head: "200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: req_golden\r\nrequest-id: req_golden".into(),
            body: bytes.into(),
            then: Then::Ends,
        }
    }

    fn json(body: &Value) -> Self {
        Self {
            head: "200 OK\r\ncontent-type: application/json\r\nrequest-id: req_golden".into(),
            body: body.to_string().into(),
            then: Then::Ends,
        }
    }

    fn error(status: &str, headers: &str, body: &Value) -> Self {
        Self {
            head: format!("{status}\r\ncontent-type: application/json\r\n{headers}"),
            ..Self::json(body)
        }
    }

    /// A reply in `OpenAI`'s format, streamed or whole, as requested.
    fn says(request: &Value, text: &str) -> Self {
        let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
        if request["stream"] == true {
            let chunk = |delta: Value, finish: Value| {
                let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
                format!(
                    "data: {}\n\n",
                    json!({ "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice] })
                )
            };
            let last = json!({ "id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage });
            let begin = chunk(json!({ "role": "assistant", "content": text }), Value::Null);
            return Self::stream(format!(
                "{begin}{}data: {last}\n\ndata: [DONE]\n\n",
                chunk(json!({}), json!("stop"))
            ));
        }
        let choice = json!({ "index": 0, "message": { "role": "assistant", "content": text, "refusal": null }, "logprobs": null, "finish_reason": "stop" });
        Self::json(
            &json!({ "id": "c1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage }),
        )
    }

    fn hangs() -> Self {
        Self { then: Then::Hangs, ..Self::stream("") }
    }
}

/// A model server that plays a script and records its requests.
struct Scripted {
    address: SocketAddr,
    arrived: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Scripted {
    fn start(play: impl Fn(&ReceivedRequest) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let arrived = Arc::new(Mutex::new(Vec::new()));
        let (kept, play) = (arrived.clone(), Arc::new(play));
        thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let (kept, play) = (kept.clone(), play.clone());
                thread::spawn(move || {
                    let _ = socket.set_read_timeout(Some(PATIENCE));
                    let Some(request) = arrival(&socket) else { return };
                    kept.lock().unwrap().push(request.clone());
                    // The client may hang up early.
                    let _ = perform(&mut socket, &play(&request));
                });
            }
        });
        Self { address, arrived }
    }

    fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    fn all(&self) -> Vec<ReceivedRequest> {
        self.arrived.lock().unwrap().clone()
    }

    fn last(&self) -> ReceivedRequest {
        self.all().pop().unwrap()
    }
}

fn arrival(socket: &TcpStream) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(socket);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut arrived = ReceivedRequest { path, headers, body: Vec::new() };
    let bytes = arrived.header("content-length").map_or(0, |length| length.parse().unwrap());
    arrived.body = vec![0; bytes];
    reader.read_exact(&mut arrived.body).ok()?;
    Some(arrived)
}

fn perform(socket: &mut TcpStream, answer: &Answer) -> std::io::Result<()> {
    write!(
        socket,
        "HTTP/1.1 {}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        answer.head
    )?;
    // In arbitrary pieces, as on any network.
    for piece in answer.body.chunks(211) {
        write!(socket, "{:x}\r\n", piece.len())?;
        socket.write_all(piece)?;
        socket.write_all(b"\r\n")?;
        socket.flush()?;
    }
    match answer.then {
        Then::Ends => socket.write_all(b"0\r\n\r\n"),
        Then::Breaks => Ok(()),
        Then::Hangs => socket.read(&mut [0]).map(|_| ()),
    }
}

/// The raw response: the head, and the body without chunk marks.
fn raw(server: &Server, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (String, Vec<u8>) {
    let mut socket = TcpStream::connect(server.addr).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let more: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n{more}\
         content-length: {}\r\nconnection: close\r\n\r\n",
        server.addr,
        body.len()
    );
    socket.write_all(head.as_bytes()).unwrap();
    socket.write_all(body).unwrap();
    let mut all = Vec::new();
    socket.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap().to_ascii_lowercase();
    let body = all.split_off(end + 4);
    let body =
        if head.contains("transfer-encoding: chunked") { decode_chunks(&body) } else { body };
    (head, body)
}

fn decode_chunks(mut bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let line = bytes.windows(2).position(|two| two == b"\r\n").unwrap();
        let many = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        if many == 0 {
            return whole;
        }
        whole.extend_from_slice(&bytes[line + 2..line + 2 + many]);
        bytes = &bytes[line + 4 + many..];
    }
}
