//! Memory for assistants: the duration of a tool call in a running server, over standard input and
//! output.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use icecore_engine::Memory;
use icecore_store::vault::Vault;
use jiff::civil::date;
use pollster::block_on;
use serde_json::{Value, json};

use super::{SeededRandom, hour, memory, model_folder, row, talkative, vectors_by_chance};

const MESSAGES: usize = 100_000;
const ROUNDS: usize = 200;

/// A client of the server, in the newest era.
struct Client {
    child: Child,
    told: ChildStdin,
    lines: BufReader<ChildStdout>,
    next: usize,
}

impl Client {
    fn start(vault: &Vault, model: Option<&Path>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_icecore"));
        command
            .arg("--vault")
            .arg(vault.root())
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // Without a model of its own, none of this machine's is used.
        command.env("ICECORE_MODEL_DIR", model.unwrap_or(Path::new("/nonexistent")));
        let mut child = command.spawn().unwrap();
        let (told, lines) =
            (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, told, lines, next: 0 }
    }

    /// Calls a tool, which must succeed, and returns the duration.
    fn call(&mut self, name: &str, arguments: &Value) -> Duration {
        self.next += 1;
        let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
        let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        let request =
            json!({ "jsonrpc": "2.0", "id": self.next, "method": "tools/call", "params": params });
        let (line, mut answer) = (format!("{request}\n"), String::new());
        let start = Instant::now();
        self.told.write_all(line.as_bytes()).unwrap();
        self.lines.read_line(&mut answer).unwrap();
        let took = start.elapsed();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert!(answer["id"] == self.next && answer["result"]["isError"] == false, "{answer}");
        took
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let p95 = times[times.len() * 95 / 100].as_secs_f64() * 1e3;
    row(&format!("{what}, p50"), times[times.len() / 2], &format!("p95 {p95:.2} ms"));
}

fn questions(client: &mut Client, what: &str) {
    let mut chance = SeededRandom(99);
    let questions: Vec<Value> = (0..ROUNDS)
        .map(|_| json!({ "query": (0..6).map(|_| chance.word()).collect::<Vec<_>>().join(" ") }))
        .collect();
    let first = client.call("recall", &questions[0]);
    row(&format!("first `recall` after the start, {what}, {MESSAGES} messages"), first, "");
    print_times(
        &format!("`recall` over stdio, warm, {what}, {MESSAGES} messages"),
        questions.iter().map(|one| client.call("recall", one)).collect(),
    );
}

pub fn assistants(folder: &Path) {
    let vault = talkative(folder, MESSAGES);
    let open: Memory = memory(&vault, hour(date(2026, 2, 13), 23));
    block_on(open.rebuild_passages(&|_, _| {})).unwrap();
    let mut client = Client::start(&vault, None);
    questions(&mut client, "words");
    drop(client);
    vectors_by_chance(&vault, MESSAGES);
    let mut client = Client::start(&vault, Some(&model_folder()));
    questions(&mut client, "vectors");
    let remembered = (0..50).map(|n| {
        client.call("remember", &json!({ "text": format!("The {n}th thing that was learnt") }))
    });
    print_times("`remember` over stdio, warm", remembered.collect());
    // A search that has to index what was written meanwhile.
    let mut chance = SeededRandom(5);
    let after = (0..50).map(|n| {
        client.call("remember", &json!({ "text": format!("Another thing, number {n}") }));
        client.call(
            "recall",
            &json!({ "query": (0..6).map(|_| chance.word()).collect::<Vec<_>>().join(" ") }),
        )
    });
    print_times(
        &format!("`recall` right after `remember`, vectors, {MESSAGES} messages"),
        after.collect(),
    );
    print_times(
        "`commitments` over stdio, warm",
        (0..50).map(|_| client.call("commitments", &json!({}))).collect(),
    );
    print_times(
        "`pack` over stdio, warm",
        (0..50).map(|_| client.call("pack", &json!({}))).collect(),
    );
}
