//! The chat server under load: the latency that it adds to the first byte of a reply, its turns per
//! second, and its memory use.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TOKEN: &str = "bench-0123456789abcdef0123456789abcdef";
/// How long a model thinks before its first word: like a fast commercial one.
const THINKING: Duration = Duration::from_millis(300);
/// Hardly at all, to measure the turns per second of the server.
pub const AT_ONCE: Duration = Duration::from_millis(20);

/// A model server that thinks for a fixed time and then sends twenty words, piece by piece.
pub fn stub(thinking: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::Builder::new()
                .stack_size(128 << 10)
                .spawn(move || answer(stream, thinking))
                .unwrap();
        }
    });
    address
}

fn answer(stream: TcpStream, thinking: Duration) {
    let _ = stream.set_nodelay(true);
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone().unwrap()), stream);
    while request(&mut reader).is_some() {
        thread::sleep(thinking);
        let mut text = String::from(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        let mut event = |data: &str| {
            let line = format!("data: {data}\n\n");
            text.push_str(&format!("{:x}\r\n{line}\r\n", line.len()));
        };
        for n in 0..20 {
            event(&format!(
                r#"{{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{"content":"word{n} "}},"finish_reason":null}}]}}"#
            ));
        }
        event(
            r#"{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
        );
        event("[DONE]");
        text.push_str("0\r\n\r\n");
        if writer.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads one request; `None` when the client is gone.
fn request(reader: &mut impl BufRead) -> Option<()> {
    let (mut length, mut line) = (0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()
}

/// One connection of a client.
pub struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    user: String,
}

impl Client {
    pub fn to(address: SocketAddr) -> Self {
        let writer = TcpStream::connect(address).unwrap();
        writer.set_nodelay(true).unwrap();
        writer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { reader: BufReader::new(writer.try_clone().unwrap()), writer, user: String::new() }
    }

    /// For an end user.
    pub fn of(self, user: &str) -> Self {
        Self { user: format!("X-Icecore-User: {user}\r\n"), ..self }
    }

    /// One turn: the time to the first byte of the reply; `None` if the reply was incomplete.
    pub fn turn(&mut self, conversation: &str, text: &str) -> Option<Duration> {
        let body = format!(
            r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"{text}"}}]}}"#
        );
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nX-Icecore-Conversation: {conversation}\r\n{}Content-Length: {}\r\n\r\n",
            self.user,
            body.len()
        );
        let start = Instant::now();
        self.writer.write_all(format!("{head}{body}").as_bytes()).ok()?;
        let mut line = String::new();
        loop {
            line.clear();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut first = None;
        let mut done = false;
        loop {
            line.clear();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            first.get_or_insert_with(|| start.elapsed());
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).ok()?;
            done |= chunk.windows(6).any(|window| window == b"[DONE]");
            if size == 0 {
                return first.filter(|_| done);
            }
        }
    }
}

pub fn percentile(sorted: &[Duration], share: f64) -> Duration {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// So many concurrent conversations with so many turns each: sorted times to the first byte, and
/// the total duration.
fn load(
    address: SocketAddr,
    conversations: usize,
    turns: usize,
    name: &str,
) -> (Vec<Duration>, Duration) {
    let times = Mutex::new(Vec::new());
    let start = Instant::now();
    thread::scope(|scope| {
        for at in 0..conversations {
            let times = &times;
            let run = move || {
                let mut client = Client::to(address);
                let own: Vec<Duration> = (0..turns)
                    .filter_map(|n| {
                        client.turn(
                            &format!("{name}-{at}"),
                            &format!("question {n} of {at}, what now?"),
                        )
                    })
                    .collect();
                times.lock().unwrap().extend(own);
            };
            thread::Builder::new().stack_size(128 << 10).spawn_scoped(scope, run).unwrap();
        }
    });
    let mut times = times.into_inner().unwrap();
    assert_eq!(times.len(), conversations * turns, "every turn is answered");
    times.sort();
    (times, start.elapsed())
}

fn serve(root: &Path, upstream: SocketAddr) -> (Child, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_icecore"));
    command
        .args(["serve", "--addr", "127.0.0.1:0", "--root"])
        .arg(root.join("vault"))
        .env("HOME", root)
        .env_remove("ICECORE_VAULT");
    serve_with(command, upstream)
}

/// Starts a server in front of a model server.
pub fn serve_with(mut command: Command, upstream: SocketAddr) -> (Child, SocketAddr) {
    let mut child = command
        .env("ICECORE_TOKEN", TOKEN)
        .env("ICECORE_CHAT_PROVIDER", "openai")
        .env("ICECORE_CHAT_MODEL", "m")
        .env("ICECORE_CHAT_BASE_URL", format!("http://{upstream}/v1"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().rsplit("http://").next().unwrap().parse().unwrap())
}

/// The resident memory of a process in kilobytes.
fn resident(child: &Child) -> f64 {
    let text = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}

pub fn chats(folder: &Path) {
    for (conversations, turns) in [(1, 40), (50, 20), (500, 4)] {
        measure_latency(folder, conversations, turns, THINKING);
    }
    // Every client sends its next turn as soon as the last one is answered, to measure turns per
    // second.
    measure_latency(folder, 50, 40, AT_ONCE);
    measure_latency(folder, 500, 8, AT_ONCE);
    let upstream = stub(AT_ONCE);
    idle(folder, upstream);
    check_after_kill(folder, upstream);
}

/// The latency that the server adds to the first byte of a reply, and the turns per second.
fn measure_latency(folder: &Path, conversations: usize, turns: usize, thinking: Duration) {
    let upstream = stub(thinking);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let root = folder.join(format!("chats-{conversations}-{}", thinking.as_millis()));
    fs::create_dir_all(&root).unwrap();
    let (mut child, address) = serve(&root, upstream);
    load(address, conversations, 1, "chat");
    let (direct, _) = load(upstream, conversations, turns, "direct");
    let (through, took) = load(address, conversations, turns, "chat");
    let added = |share| ms(percentile(&through, share)) - ms(percentile(&direct, share));
    println!(
        "| first byte of a reply, {conversations} conversations at once, a model that thinks {} ms | {:.2} ms | direct {:.2} ms; added p50 {:.2} ms, p99 {:.2} ms; {:.0} turns a second |",
        thinking.as_millis(),
        ms(percentile(&through, 0.5)),
        ms(percentile(&direct, 0.5)),
        added(0.5),
        added(0.99),
        (conversations * turns) as f64 / took.as_secs_f64()
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The memory used by ten thousand idle conversations.
fn idle(folder: &Path, upstream: SocketAddr) {
    const MANY: usize = 10_000;
    let root = folder.join("chats-idle");
    fs::create_dir_all(&root).unwrap();
    let (mut child, address) = serve(&root, upstream);
    load(address, 10, 1, "warm");
    let before = resident(&child);
    let (next, start) = (AtomicUsize::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut client = Client::to(address);
                loop {
                    let at = next.fetch_add(1, Ordering::SeqCst);
                    if at >= MANY {
                        return;
                    }
                    client
                        .turn(
                            &format!("idle-{at}"),
                            &format!("hello, this is number {at}, remember me"),
                        )
                        .unwrap();
                }
            });
        }
    });
    let took = start.elapsed();
    let busy = resident(&child);
    // Idle threads end after a while.
    thread::sleep(Duration::from_secs(15));
    let after = resident(&child);
    println!(
        "| {MANY} conversations of one turn, then idle | {:.0} MB | {:.0} MB before, {:.0} MB at the end of the work; {:.0} turns a second |",
        after / 1024.0,
        before / 1024.0,
        busy / 1024.0,
        MANY as f64 / took.as_secs_f64()
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

/// What was acknowledged before the process was killed is on the disk.
fn check_after_kill(folder: &Path, upstream: SocketAddr) {
    let root = folder.join("chats-killed");
    fs::create_dir_all(&root).unwrap();
    let (mut child, address) = serve(&root, upstream);
    let (acknowledged, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    thread::scope(|scope| {
        for at in 0..50 {
            let (acknowledged, over) = (&acknowledged, &over);
            scope.spawn(move || {
                let mut client = Client::to(address);
                for n in 0.. {
                    let text = format!("mark-{at}-{n}-end");
                    if over.load(Ordering::SeqCst)
                        || client.turn(&format!("killed-{at}"), &text).is_none()
                    {
                        return;
                    }
                    acknowledged.lock().unwrap().push(text);
                }
            });
        }
        thread::sleep(Duration::from_secs(3));
        child.kill().unwrap();
        child.wait().unwrap();
        over.store(true, Ordering::SeqCst);
    });
    let mut kept = String::new();
    for file in fs::read_dir(root.join("vault/memory/messages")).unwrap().flatten() {
        kept.push_str(&fs::read_to_string(file.path()).unwrap());
    }
    let marks: HashSet<&str> = kept.split('"').filter(|word| word.starts_with("mark-")).collect();
    let acknowledged = acknowledged.into_inner().unwrap();
    let missing = acknowledged.iter().filter(|mark| !marks.contains(mark.as_str())).count();
    println!(
        "| killed under 50 conversations at once | {missing} missing | of {} acknowledged turns |",
        acknowledged.len()
    );
    assert_eq!(missing, 0);
}
