//! The server as its clients see it: a scripted upstream behind it, a scripted memory beside it,
//! real connections.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use icecore_engine::clock::SystemClock;
use icecore_engine::settings::Provider;
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use icecore_engine::config::{ChatMode, MemoryPlacement};

use super::chat_memory::{AssistantReply, ChatDialect, PersistError, PreparedTurn, TurnRequest};
use super::ids::IdLocation;
use super::*;

const SECRET: &str = "a-token-of-some-length";
const KEY: &str = "sk-upstream-key";
const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"big":12345678901234567890.10,"z":1e5}"#;
const CHAT_WITH_MEMORY: &str = r#"{"model":"m","messages":[{"role":"system","content":"MEMORY"},{"role":"user","content":"hi"}],"big":12345678901234567890.10,"z":1e5}"#;
const STREAM: [&str; 4] = [
    ": processing\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"he\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"llo\"},\"finish_reason\":\"stop\"}]}\n\n",
    "data: [DONE]\n\n",
];

/// What the upstream does after the head of its response.
#[derive(Clone)]
enum Does {
    Sends(Vec<u8>),
    Waits(Arc<Notify>),
    /// Sends nothing more until the other side disconnects.
    Hangs,
    /// Disconnects in the middle.
    Breaks,
}

#[derive(Clone)]
struct Answer {
    head: String,
    does: Vec<Does>,
}

fn stream(pieces: &[&str]) -> Answer {
    let does = pieces.iter().map(|piece| Does::Sends(piece.as_bytes().to_vec())).collect();
    Answer {
        head: "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nx-request-id: r1".into(),
        does,
    }
}

fn whole(status: &str, headers: &str, body: &str) -> Answer {
    Answer { head: format!("HTTP/1.1 {status}\r\n{headers}"), does: vec![Does::Sends(body.into())] }
}

/// A request as it arrived at the upstream.
#[derive(Clone, Debug)]
struct Arrived {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Arrived {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A scripted upstream on a raw socket.
struct Fake {
    addr: SocketAddr,
    arrived: Arc<Mutex<Vec<Arrived>>>,
    hung_up: Arc<Notify>,
}

async fn request_of(socket: &mut TcpStream) -> Option<Arrived> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if socket.read_buf(&mut bytes).await.unwrap() == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap().to_owned();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name == "content-length")
        .map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length {
        assert!(socket.read_buf(&mut body).await.unwrap() > 0);
    }
    Some(Arrived { line, headers, body: String::from_utf8(body).unwrap() })
}

impl Fake {
    async fn new(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (arrived, hung_up) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (seen, gone) = (arrived.clone(), hung_up.clone());
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (answer, seen, gone) = (answer.clone(), seen.clone(), gone.clone());
                tokio::spawn(async move {
                    let Some(request) = request_of(&mut socket).await else { return };
                    seen.lock().unwrap().push(request);
                    let _ = Self::answer(&mut socket, &answer, &gone).await;
                });
            }
        });
        Self { addr, arrived, hung_up }
    }

    async fn answer(socket: &mut TcpStream, answer: &Answer, gone: &Notify) -> std::io::Result<()> {
        let counted = answer.head.contains("content-length");
        let chunked = if counted { "" } else { "transfer-encoding: chunked\r\n" };
        if !answer.head.is_empty() {
            let head = format!(
                "{}\r\n{chunked}connection: close, x-private\r\nx-private: 1\r\n\r\n",
                answer.head
            );
            socket.write_all(head.as_bytes()).await?;
        }
        for doing in &answer.does {
            match doing {
                Does::Sends(bytes) if counted => socket.write_all(bytes).await?,
                Does::Sends(bytes) => {
                    socket.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
                    socket.write_all(bytes).await?;
                    socket.write_all(b"\r\n").await?;
                }
                Does::Waits(until) => until.notified().await,
                Does::Hangs => {
                    let mut rest = Vec::new();
                    let _ = socket.read_to_end(&mut rest).await;
                    gone.notify_one();
                    return Ok(());
                }
                Does::Breaks => return Ok(()),
            }
            socket.flush().await?;
        }
        if counted { Ok(()) } else { socket.write_all(b"0\r\n\r\n").await }
    }

    fn first(&self) -> Arrived {
        self.arrived.lock().unwrap().first().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.arrived.lock().unwrap().len()
    }
}

/// A scripted memory.
struct Script {
    begins: Box<dyn Fn() -> Result<PreparedTurn, String> + Send + Sync>,
    /// The results of persisting an exchange, in order; afterwards it succeeds.
    unkept: Mutex<Vec<PersistError>>,
    /// As many exchanges may be persisted as there are permits.
    keeps: Semaphore,
    slow: Option<Duration>,
    heard: Mutex<Vec<TurnRequest>>,
    replies: Mutex<Vec<AssistantReply>>,
    told: Notify,
}

fn prepared_turn() -> PreparedTurn {
    PreparedTurn {
        conversation: "talk".into(),
        turn: 3,
        memory: Some("MEMORY".into()),
        placement: MemoryPlacement::System,
        mode: ChatMode::Augment,
        window: Vec::new(),
        new_from: 0,
        injected: vec!["EVT-1".into(), "EVT-2".into()],
        injected_tokens: 17,
        left_out: 2,
        cost_tokens: 5,
        handle: Default::default(),
    }
}

impl Default for Script {
    fn default() -> Self {
        Self {
            begins: Box::new(|| Ok(prepared_turn())),
            unkept: Mutex::default(),
            keeps: Semaphore::new(1_000),
            slow: None,
            heard: Mutex::default(),
            replies: Mutex::default(),
            told: Notify::new(),
        }
    }
}

#[async_trait]
impl ChatMemory for Script {
    async fn begin_turn(&self, request: TurnRequest) -> Result<PreparedTurn, String> {
        self.heard.lock().unwrap().push(request);
        if let Some(slow) = self.slow {
            tokio::time::sleep(slow).await;
        }
        (self.begins)()
    }

    async fn persist_reply(
        &self,
        turn: &PreparedTurn,
        reply: AssistantReply,
    ) -> Result<(), PersistError> {
        assert_eq!(turn.conversation, "talk");
        self.replies.lock().unwrap().push(reply);
        self.told.notify_one();
        self.keeps.acquire().await.unwrap().forget();
        self.unkept.lock().unwrap().pop().map_or(Ok(()), Err)
    }
}

struct IsReady(bool);

#[async_trait]
impl ReadinessCheck for IsReady {
    async fn check_ready(&self) -> Result<(), NotReady> {
        if self.0 {
            Ok(())
        } else {
            Err(NotReady::new("memory cannot be opened", "the vault is away"))
        }
    }
}

struct Scene {
    running: RunningServer,
    mind: Arc<Script>,
    log: Arc<Mutex<Vec<String>>>,
    client: reqwest::Client,
}

fn settings(base: &str, provider: Provider, log: &Arc<Mutex<Vec<String>>>) -> HttpServerConfig {
    let lines = log.clone();
    HttpServerConfig {
        addr: "127.0.0.1:0".parse().unwrap(),
        chat: ModelSettings {
            provider,
            base_url: base.into(),
            api_key: Some(SecretString::from(KEY.to_owned())),
            ..ModelSettings::none("chat")
        },
        forward_auth: false,
        keys: TokenVerifier::new(
            ServerToken::parse(SECRET, TokenSource::Set("ICECORE_TOKEN")).unwrap(),
            None,
            None,
        ),
        logins: None,
        allow_remote: false,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        limits: ServerLimits { drain: Duration::from_millis(500), ..ServerLimits::default() },
        clock: Arc::new(SystemClock),
        log: Arc::new(move |line| lines.lock().unwrap().push(line.to_owned())),
        ready: Arc::new(IsReady(true)),
    }
}

impl Scene {
    async fn with(base: &str, mind: Script, change: impl FnOnce(&mut HttpServerConfig)) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut serving = settings(base, Provider::OpenAi, &log);
        change(&mut serving);
        let mind = Arc::new(mind);
        let running = serve(serving, mind.clone(), Router::new()).await.unwrap();
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        Self { running, mind, log, client }
    }

    async fn over(fake: &Fake, mind: Script) -> Self {
        Self::with(&format!("http://{}/v1", fake.addr), mind, |_| {}).await
    }

    fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        let url = format!("http://{}{path}", self.running.addr());
        self.client
            .post(url)
            .bearer_auth(SECRET)
            .header("content-type", "application/json")
            .body(body)
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("http://{}{path}", self.running.addr())).bearer_auth(SECRET)
    }

    fn replies(&self) -> Vec<AssistantReply> {
        self.mind.replies.lock().unwrap().clone()
    }

    fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    async fn metrics(&self) -> String {
        self.get("/metrics").send().await.unwrap().text().await.unwrap()
    }
}

fn header<'a>(response: &'a reqwest::Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

fn install() {
    icecore_engine::llm::install_crypto();
}

// C3
#[tokio::test]
async fn a_stream_comes_back_byte_for_byte_with_memory_in_its_request() {
    install();
    let text = STREAM.concat();
    let single: Vec<String> = text.chars().map(String::from).collect();
    let crlf = text.replace('\n', "\r\n");
    let cuts: Vec<Vec<&str>> = vec![
        STREAM.to_vec(),
        single.iter().map(String::as_str).collect(),
        vec![&text],
        vec![&crlf],
    ];
    for pieces in cuts {
        let fake = Fake::new(stream(&pieces)).await;
        let scene = Scene::over(&fake, Script::default()).await;
        let response = scene.post("/v1/chat/completions?x=1&y=%20", CHAT).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let expected = [
            ("x-icecore-memory", "on"),
            ("x-icecore-conversation", "talk"),
            ("x-icecore-turn", "3"),
            ("x-icecore-injected", "EVT-1,EVT-2"),
            ("x-icecore-injected-tokens", "17"),
            ("x-icecore-left-out", "2"),
            ("x-icecore-cost-tokens", "5"),
            ("x-request-id", "r1"),
            ("content-type", "text/event-stream"),
            ("x-private", ""),
            ("connection", ""),
        ];
        for (name, value) in expected {
            assert_eq!(header(&response, name), value, "{name}");
        }
        assert_eq!(response.bytes().await.unwrap(), pieces.concat());
        let arrived = fake.first();
        assert_eq!(
            (arrived.line.as_str(), arrived.body.as_str()),
            ("POST /v1/chat/completions?x=1&y=%20 HTTP/1.1", CHAT_WITH_MEMORY)
        );
        let said = AssistantReply {
            text: "hello".into(),
            finish: Some("stop".into()),
            complete: true,
            status: 200,
            ..AssistantReply::default()
        };
        assert_eq!(scene.replies(), [said]);
        let heard = scene.mind.heard.lock().unwrap().remove(0);
        assert_eq!(
            (heard.model.as_str(), heard.messages.len(), heard.dialect, heard.mode),
            ("m", 1, ChatDialect::OpenAi, None)
        );
        assert_eq!(heard.messages[0].raw, r#"{"role":"user","content":"hi"}"#);
        scene.running.stop().await.unwrap();
    }
}

// C3
#[tokio::test]
async fn anthropics_stream_comes_back_byte_for_byte() {
    install();
    let pieces = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
        "event: ping\ndata: {\"type\": \"ping\"}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"7431\"}}\n\n",
        "event: brand_new\ndata: {\"type\":\"brand_new\",\"n\":1.0}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    let fake = Fake::new(stream(&pieces)).await;
    let scene = Scene::with(&format!("http://{}", fake.addr), Script::default(), |serving| {
        serving.chat.provider = Provider::Anthropic;
    })
    .await;
    let body = r#"{"model":"c","system":[{"type":"text","text":"x-anthropic-billing-header: 1"}],"messages":[{"role":"user","content":"hi"}],"metadata":{"user_id":"ada"},"thinking":{"budget_tokens":1024}}"#;
    let request = scene
        .post("/v1/messages?beta=true", body)
        .header("anthropic-beta", "a,b")
        .header("anthropic-version", "2023-06-01");
    let response = request.header("x-claude-code-session-id", "s-1").send().await.unwrap();
    assert_eq!(response.bytes().await.unwrap(), pieces.concat());
    let arrived = fake.first();
    assert_eq!(arrived.line, "POST /v1/messages?beta=true HTTP/1.1");
    assert_eq!(arrived.header("anthropic-beta"), Some("a,b"));
    assert_eq!(arrived.header("x-api-key"), Some(KEY));
    assert_eq!(arrived.header("authorization"), None);
    let with =
        body.replace("header: 1\"}]", "header: 1\"},{\"type\":\"text\",\"text\":\"MEMORY\"}]");
    assert_eq!(arrived.body, with);
    let heard = scene.mind.heard.lock().unwrap().remove(0);
    assert_eq!((heard.user.as_deref(), heard.conversation.as_deref()), (Some("ada"), Some("s-1")));
    assert_eq!(scene.replies()[0].usage, Some((3, 2)));
    scene.running.stop().await.unwrap();
}

// C3 C8
#[tokio::test]
async fn the_last_event_waits_until_the_exchange_is_kept_and_nothing_else_does() {
    install();
    let between = Arc::new(Notify::new());
    let mut answer = stream(&STREAM);
    answer.does.insert(2, Does::Waits(between.clone()));
    let fake = Fake::new(answer).await;
    let scene = Scene::over(&fake, Script { keeps: Semaphore::new(0), ..Script::default() }).await;
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let mut sofar = Vec::new();
    // What was sent arrives although the upstream has not finished.
    while sofar.len() < STREAM[..2].concat().len() {
        sofar.extend(response.chunk().await.unwrap().unwrap());
    }
    assert_eq!(sofar, STREAM[..2].concat().as_bytes());
    between.notify_one();
    while sofar.len() < STREAM[..3].concat().len() {
        sofar.extend(response.chunk().await.unwrap().unwrap());
    }
    assert_eq!(sofar, STREAM[..3].concat().as_bytes());
    scene.mind.told.notified().await;
    assert!(
        timeout(Duration::from_millis(300), response.chunk()).await.is_err(),
        "the last event must wait"
    );
    scene.mind.keeps.add_permits(1);
    assert_eq!(response.chunk().await.unwrap().unwrap(), STREAM[3]);
    assert_eq!(response.chunk().await.unwrap(), None);
    scene.running.stop().await.unwrap();
}

// C3
#[tokio::test]
async fn without_a_closing_event_the_last_piece_waits() {
    install();
    let fake = Fake::new(stream(&STREAM[..3])).await;
    let scene = Scene::over(&fake, Script { keeps: Semaphore::new(0), ..Script::default() }).await;
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let mut sofar = Vec::new();
    while sofar.len() < STREAM[..2].concat().len() {
        sofar.extend(response.chunk().await.unwrap().unwrap());
    }
    scene.mind.told.notified().await;
    assert!(
        timeout(Duration::from_millis(700), response.chunk()).await.is_err(),
        "the last piece must wait"
    );
    scene.mind.keeps.add_permits(1);
    assert_eq!(response.chunk().await.unwrap().unwrap(), STREAM[2]);
    assert_eq!(response.chunk().await.unwrap(), None);
    assert!(scene.replies()[0].complete);
    scene.running.stop().await.unwrap();
}

// C3
#[tokio::test]
async fn an_event_that_may_be_the_last_does_not_wait_for_a_server_that_dawdles() {
    install();
    let later = Arc::new(Notify::new());
    let mut answer = stream(&STREAM);
    answer.does.insert(3, Does::Waits(later.clone()));
    let fake = Fake::new(answer).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let mut sofar = Vec::new();
    while sofar.len() < STREAM[..3].concat().len() {
        sofar.extend(
            timeout(Duration::from_secs(5), response.chunk()).await.unwrap().unwrap().unwrap(),
        );
    }
    assert!(scene.replies().is_empty());
    later.notify_one();
    assert_eq!(response.chunk().await.unwrap().unwrap(), STREAM[3]);
    assert_eq!(scene.replies().len(), 1);
    scene.running.stop().await.unwrap();
}

// C3 C8
#[tokio::test]
async fn a_whole_reply_waits_until_the_exchange_is_kept() {
    install();
    let body = r#"{"id":"1","choices":[{"index":0,"message":{"role":"assistant","content":"7431"},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":2},"n":1.50}"#;
    let fake = Fake::new(whole("200 OK", "content-type: application/json", body)).await;
    let scene = Scene::over(&fake, Script { keeps: Semaphore::new(0), ..Script::default() }).await;
    let sending = tokio::spawn(scene.post("/v1/chat/completions", CHAT).send());
    scene.mind.told.notified().await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!sending.is_finished());
    scene.mind.keeps.add_permits(1);
    let response = sending.await.unwrap().unwrap();
    assert_eq!(response.text().await.unwrap(), body);
    let reply = scene.replies().remove(0);
    assert_eq!((reply.text.as_str(), reply.usage, reply.complete), ("7431", Some((12, 2)), true));
    scene.running.stop().await.unwrap();
}

// C3
#[tokio::test]
async fn a_reply_of_known_length_and_a_compressed_one_pass() {
    install();
    let body = r#"{"choices":[{"message":{"content":"7431"},"finish_reason":"stop"}]}"#;
    for (path, headers, complete) in [
        ("/v1/chat/completions", "content-type: application/json", Some(true)),
        (
            "/v1/chat/completions",
            "content-type: text/event-stream\r\ncontent-encoding: br",
            Some(false),
        ),
        ("/v1/embeddings", "content-type: application/json", None),
    ] {
        let fake = Fake::new(whole(
            "200 OK",
            &format!("{headers}\r\ncontent-length: {}", body.len()),
            body,
        ))
        .await;
        let scene = Scene::over(&fake, Script::default()).await;
        let response = scene.post(path, CHAT).send().await.unwrap();
        let length = if complete == Some(false) { String::new() } else { body.len().to_string() };
        assert_eq!(header(&response, "content-length"), length);
        assert_eq!(response.text().await.unwrap(), body);
        assert_eq!(scene.replies().first().map(|reply| reply.complete), complete, "{headers}");
        scene.running.stop().await.unwrap();
    }
}

// C3 C8
#[tokio::test]
async fn errors_of_the_models_server_come_back_byte_for_byte_and_are_no_exchange() {
    install();
    for (status, code, body) in [
        (
            "400 Bad Request",
            400,
            r#"{"error": {"message":"context_length_exceeded",  "param":"messages"}}"#,
        ),
        ("401 Unauthorized", 401, r#"{"error":{"code":"invalid_api_key"}}"#),
        ("429 Too Many Requests", 429, "slow down\n"),
        (
            "529 Overloaded",
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}"#,
        ),
        ("302 Found", 302, "elsewhere"),
        ("500 Oops", 500, ""),
    ] {
        let headers = "content-type: application/json\r\nretry-after: 7\r\nx-ratelimit-remaining-tokens: 0\r\nanthropic-ratelimit-requests-reset: z\r\nrequest-id: req_1\r\naccess-control-allow-origin: *\r\nx-icecore-turn: 99\r\nlocation: http://127.0.0.1:1/";
        let mut answer = whole(status, headers, body);
        if body.is_empty() {
            answer.does.clear();
        }
        let fake = Fake::new(answer).await;
        let scene = Scene::over(&fake, Script::default()).await;
        let response = scene.post("/v1/messages", CHAT).send().await.unwrap();
        assert_eq!(response.status(), code);
        let kept = [
            "retry-after",
            "x-ratelimit-remaining-tokens",
            "anthropic-ratelimit-requests-reset",
            "request-id",
        ];
        assert_eq!(kept.map(|name| header(&response, name)), ["7", "0", "z", "req_1"]);
        assert_eq!(
            (header(&response, "access-control-allow-origin"), header(&response, "x-icecore-turn")),
            ("", "3")
        );
        assert_eq!(response.text().await.unwrap(), body);
        assert_eq!(fake.count(), 1, "nothing is followed or tried again");
        scene.running.stop().await.unwrap();
        assert!(scene.mind.replies.lock().unwrap().is_empty());
    }
}

// C3
#[tokio::test]
async fn an_unreachable_upstream_is_reported_in_the_clients_format() {
    install();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", nobody.local_addr().unwrap());
    drop(nobody);
    let scene = Scene::with(&base, Script::default(), |_| {}).await;
    let response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    assert_eq!(response.status(), 502);
    let said: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(
        (&said["error"]["code"], &said["error"]["param"]),
        (&"upstream_unreachable".into(), &serde_json::Value::Null)
    );
    let response = scene.post("/v1/messages", CHAT).send().await.unwrap();
    assert_eq!(response.status(), 502);
    let said: serde_json::Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!((&said["type"], &said["error"]["type"]), (&"error".into(), &"api_error".into()));
    assert!(said["error"]["message"].as_str().unwrap().contains("is it running"));
    assert!(scene.replies().is_empty() && !scene.log().contains(KEY));
    scene.running.stop().await.unwrap();
    // None is set at all.
    let scene =
        Scene::with("", Script::default(), |serving| serving.chat = ModelSettings::none("chat"))
            .await;
    assert_eq!(scene.get("/v1/models").send().await.unwrap().status(), 503);
    scene.running.stop().await.unwrap();
    // It accepts connections and never answers.
    let mut answer = stream(&STREAM[..2]);
    answer.does.push(Does::Hangs);
    let fake = Fake::new(answer).await;
    let scene = Scene::with(&format!("http://{}", fake.addr), Script::default(), |serving| {
        serving.limits.silence = Duration::from_millis(300);
    })
    .await;
    let response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    assert!(response.bytes().await.is_err(), "a stream that fell silent does not look whole");
    assert_eq!((scene.replies()[0].text.as_str(), scene.replies()[0].complete), ("he", false));
    scene.running.stop().await.unwrap();
}

// C3 C8
#[tokio::test]
async fn where_memory_fails_the_request_goes_on_as_it_came() {
    install();
    // Blanks, unusual key order and unusual numbers must not change.
    let odd = "{ \"messages\" : [{\"content\":\"hi\",\"role\":\"user\"}],\n\t\"model\":\"m\", \"seed\":1.0e400 }\n";
    let cases: [(Script, &str); 3] = [
        (Script { begins: Box::new(|| Err("no room".into())), ..Script::default() }, "no room"),
        (Script { slow: Some(Duration::from_secs(60)), ..Script::default() }, "longer than"),
        (Script { begins: Box::new(|| panic!("on purpose")), ..Script::default() }, "a bug"),
    ];
    for (script, said) in cases {
        let fake = Fake::new(stream(&STREAM)).await;
        let base = format!("http://{}/v1", fake.addr);
        let scene =
            Scene::with(&base, script, |serving| serving.limits.begin = Duration::from_millis(100))
                .await;
        let response = scene.post("/v1/chat/completions", odd).send().await.unwrap();
        assert_eq!(
            (header(&response, "x-icecore-memory"), header(&response, "x-icecore-turn")),
            ("failed", "")
        );
        assert_eq!(response.bytes().await.unwrap(), STREAM.concat());
        assert_eq!(fake.first().body, odd);
        assert!(scene.log().contains(said), "{}", scene.log());
        assert!(scene.replies().is_empty());
        assert!(scene.metrics().await.contains("icecore_memory_failures_total{phase=\"begin\"} 1"));
        scene.running.stop().await.unwrap();
    }
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Scene::over(&fake, Script::default()).await;
    for (name, value, memory) in
        [("x-icecore-memory", "off", "off"), ("content-encoding", "br", "failed")]
    {
        let response =
            scene.post("/v1/chat/completions", odd).header(name, value).send().await.unwrap();
        assert_eq!(header(&response, "x-icecore-memory"), memory);
        assert_eq!(response.bytes().await.unwrap(), STREAM.concat());
        assert_eq!(fake.arrived.lock().unwrap().pop().unwrap().body, odd);
    }
    assert!(scene.mind.heard.lock().unwrap().is_empty());
    scene.running.stop().await.unwrap();
}

// C3 C8
#[tokio::test]
async fn a_reply_goes_out_although_it_could_not_be_kept() {
    install();
    for (script, said) in [
        (
            Script {
                unkept: Mutex::new(vec![PersistError::permanent("ada was forgotten")]),
                ..Script::default()
            },
            "ada was forgotten",
        ),
        (Script { keeps: Semaphore::new(0), ..Script::default() }, "longer than"),
    ] {
        let fake = Fake::new(stream(&STREAM)).await;
        let base = format!("http://{}/v1", fake.addr);
        let scene =
            Scene::with(&base, script, |serving| serving.limits.end = Duration::from_millis(100))
                .await;
        let response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
        let told =
            [&STREAM[..3].concat(), ": icecore: this exchange is not stored yet\n", STREAM[3]]
                .concat();
        assert_eq!(response.bytes().await.unwrap(), told);
        assert!(scene.log().contains(said), "{}", scene.log());
        assert!(scene.metrics().await.contains("icecore_memory_failures_total{phase=\"end\"} 1"));
        scene.running.stop().await.unwrap();
    }
}

// C8
#[tokio::test]
async fn an_exchange_that_could_not_be_persisted_is_reported_and_persisted_later() {
    const REPLY: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}]}"#;
    install();
    let full = || {
        Mutex::new(vec![
            PersistError::retryable("the disk is full"),
            PersistError::retryable("the disk is full"),
        ])
    };
    let whole = whole("200 OK", "content-type: application/json", REPLY);
    for (answer, body) in [(whole, REPLY.to_owned()), (stream(&STREAM), STREAM.concat())] {
        let fake = Fake::new(answer).await;
        let scene = Scene::over(&fake, Script { unkept: full(), ..Script::default() }).await;
        let response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
        let is_whole = body == REPLY;
        // A streamed reply has already sent its headers.
        assert_eq!(header(&response, "x-icecore-memory"), if is_whole { "failed" } else { "on" });
        let text = response.text().await.unwrap();
        assert_eq!(
            text.contains("\n: icecore: this exchange is not stored yet\ndata: "),
            !is_whole,
            "{text}"
        );
        assert_eq!(text.replace(": icecore: this exchange is not stored yet\n", ""), body);
        for _ in 0..3 {
            timeout(Duration::from_secs(10), scene.mind.told.notified())
                .await
                .expect("it must be tried again");
        }
        scene.running.stop().await.unwrap();
        let replies = scene.mind.replies.lock().unwrap();
        assert!(replies.len() == 3 && replies.iter().all(|reply| *reply == replies[0]));
        assert!(scene.log.lock().unwrap().join("\n").contains("persisted after a retry"));
    }
}

// C3 C8
#[tokio::test]
async fn a_client_that_goes_away_ends_the_request_and_what_came_is_kept() {
    install();
    let mut answer = stream(&STREAM[..2]);
    answer.does.push(Does::Hangs);
    let fake = Fake::new(answer).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let mut sofar = Vec::new();
    while sofar.len() < STREAM[..2].concat().len() {
        sofar.extend(response.chunk().await.unwrap().unwrap());
    }
    drop(response);
    timeout(Duration::from_secs(5), fake.hung_up.notified())
        .await
        .expect("the model's server must be told");
    timeout(Duration::from_secs(5), scene.mind.told.notified()).await.expect("memory must be told");
    let reply = scene.replies().remove(0);
    assert_eq!((reply.text.as_str(), reply.complete, reply.status), ("he", false, 200));
    scene.running.stop().await.unwrap();
    // Before anything was answered.
    let fake = Fake::new(Answer { head: String::new(), does: vec![Does::Hangs] }).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let sending = tokio::spawn(scene.post("/v1/chat/completions", CHAT).send());
    while fake.count() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    sending.abort();
    timeout(Duration::from_secs(5), fake.hung_up.notified())
        .await
        .expect("the model's server must be told");
    timeout(Duration::from_secs(5), scene.mind.told.notified()).await.expect("memory must be told");
    assert_eq!(scene.replies(), [AssistantReply { status: 499, ..AssistantReply::default() }]);
    scene.running.stop().await.unwrap();
    // While the last event is held: the exchange is persisted once, and may finish.
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Scene::over(&fake, Script { keeps: Semaphore::new(0), ..Script::default() }).await;
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let _ = response.chunk().await.unwrap();
    scene.mind.told.notified().await;
    drop(response);
    tokio::time::sleep(Duration::from_millis(100)).await;
    scene.mind.keeps.add_permits(1);
    scene.running.stop().await.unwrap();
    let replies = scene.mind.replies.lock().unwrap().clone();
    assert_eq!((replies.len(), replies[0].complete), (1, true));
}

// C3 C8
#[tokio::test]
async fn a_stream_that_breaks_does_not_look_whole() {
    install();
    let mut answer = stream(&STREAM[..2]);
    answer.does.extend([Does::Sends(b"data: {\"choi".to_vec()), Does::Breaks]);
    let fake = Fake::new(answer).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let mut sofar = Vec::new();
    let broken = loop {
        match response.chunk().await {
            Ok(Some(piece)) => sofar.extend(piece),
            Ok(None) => break false,
            Err(_) => break true,
        }
    };
    assert!(broken && !scene.replies()[0].complete);
    assert!(
        STREAM[..2]
            .concat()
            .as_bytes()
            .starts_with(&sofar[..sofar.len().min(STREAM[..2].concat().len())])
    );
    // A complete reply whose connection breaks is reported as such.
    let answer = Answer {
        head: "HTTP/1.1 200 OK\r\ncontent-type: application/json".into(),
        does: vec![Does::Sends(b"{".to_vec()), Does::Breaks],
    };
    let fake = Fake::new(answer).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    assert_eq!(response.status(), 502);
    assert!(!scene.replies()[0].complete);
    scene.running.stop().await.unwrap();
}

// C3
#[tokio::test]
async fn headers_go_on_but_for_ours_the_connections_and_secrets() {
    install();
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let request = scene
        .post("/v1/chat/completions", CHAT)
        .header("x-api-key", SECRET)
        .header("cookie", "session=1")
        .header("x-icecore-conversation", "talk")
        .header("x-icecore-upstream-authorization", "Bearer mine")
        .header("openai-organization", "org")
        .header("x-unknown", "1")
        .header("connection", "close, x-hop")
        .header("x-hop", "1")
        .header("te", "trailers")
        .header("accept-encoding", "gzip, br")
        .header("user-agent", "sdk/1");
    assert_eq!(request.send().await.unwrap().status(), 200);
    let arrived = fake.first();
    let expected = [
        ("authorization", Some("Bearer sk-upstream-key")),
        ("accept-encoding", Some("identity")),
        ("openai-organization", Some("org")),
        ("x-unknown", Some("1")),
        ("user-agent", Some("sdk/1")),
        ("content-type", Some("application/json")),
        ("x-api-key", None),
        ("cookie", None),
        ("x-icecore-conversation", None),
        ("x-icecore-upstream-authorization", None),
        ("x-hop", None),
        ("te", None),
    ];
    for (name, value) in expected {
        assert_eq!(arrived.header(name), value, "{name}");
    }
    assert_eq!(arrived.header("host"), Some(fake.addr.to_string().as_str()));
    assert_eq!(arrived.header("content-length"), Some(CHAT_WITH_MEMORY.len().to_string().as_str()));
    assert!(!format!("{arrived:?}").contains(SECRET));
    scene.running.stop().await.unwrap();
    // Without a configured key, the client's own is forwarded only where allowed.
    for (allowed, expected) in [(true, Some("Bearer mine")), (false, None)] {
        let fake = Fake::new(stream(&STREAM)).await;
        let scene = Scene::with(&format!("http://{}", fake.addr), Script::default(), |serving| {
            serving.chat.api_key = None;
            serving.forward_auth = allowed;
        })
        .await;
        let request = scene
            .post("/v1/chat/completions", CHAT)
            .header("x-icecore-upstream-authorization", "Bearer mine");
        request.send().await.unwrap();
        assert_eq!(fake.first().header("authorization"), expected);
        scene.running.stop().await.unwrap();
    }
}

// C3
#[tokio::test]
async fn who_speaks_where_is_found_in_headers_and_in_the_body() {
    install();
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Scene::over(&fake, Script::default()).await;
    for (path, headers, body, user, conversation, mode) in [
        ("/v1/chat/completions", vec![], "", None, None, None),
        (
            "/v1/chat/completions",
            vec![
                ("x-icecore-conversation", "caf\u{e9}"),
                ("x-icecore-user", "ada"),
                ("x-icecore-memory", "Replace"),
            ],
            r#""user":"bob","metadata":{"conversation":"other"},"#,
            Some("ada"),
            Some("caf\u{e9}"),
            Some(ChatMode::Replace),
        ),
        (
            "/v1/chat/completions",
            vec![("x-icecore-memory", "augment")],
            r#""safety_identifier":"s","metadata":{"session_id":"3","conversation_id":"2"},"#,
            Some("s"),
            Some("2"),
            Some(ChatMode::Augment),
        ),
        (
            "/v1/chat/completions",
            vec![],
            r#""user":"bob","safety_identifier":"s","metadata":{"conversation":"1","conversation_id":"2"},"#,
            Some("bob"),
            Some("1"),
            None,
        ),
        (
            "/v1/chat/completions",
            vec![("x-claude-code-session-id", "cc")],
            r#""metadata":{"session_id":"3"},"#,
            None,
            Some("3"),
            None,
        ),
        (
            "/v1/messages",
            vec![("x-claude-code-session-id", "cc")],
            r#""user":"bob","metadata":{"user_id":"u"},"#,
            Some("u"),
            Some("cc"),
            None,
        ),
        ("/v1/messages", vec![], r#""metadata":{"user_id":null},"#, None, None, None),
        (
            "/v1/chat/completions",
            vec![],
            r#""user":null,"metadata":{"user_id":"u"},"#,
            Some("u"),
            None,
            None,
        ),
        (
            "/v1/chat/completions",
            vec![("x-icecore-user", "ada")],
            r#""user":17,"#,
            Some("ada"),
            None,
            None,
        ),
    ] {
        let text =
            format!(r#"{{{body}"model":"m","messages":[{{"role":"user","content":"hi"}}]}}"#);
        let mut request = scene.post(path, text);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        assert_eq!(request.send().await.unwrap().status(), 200);
        let heard = scene.mind.heard.lock().unwrap().pop().unwrap();
        assert_eq!(
            (heard.user.as_deref(), heard.conversation.as_deref(), heard.mode),
            (user, conversation, mode),
            "{body}"
        );
    }
    // A request with an invalid user name must not get the memory of requests without a user, which
    // all of them would share.
    for (path, body) in [
        ("/v1/messages", r#""metadata":{"user_id":7},"#),
        ("/v1/chat/completions", r#""user":17,"#),
        ("/v1/chat/completions", r#""user":"","#),
        ("/v1/chat/completions", r#""user":"  ","#),
        ("/v1/chat/completions", r#""user":["a"],"#),
        ("/v1/chat/completions", r#""user":"u\u0000v","#),
        ("/v1/chat/completions", r#""safety_identifier":{"a":1},"user":null,"#),
    ] {
        let text =
            format!(r#"{{{body}"model":"m","messages":[{{"role":"user","content":"hi"}}]}}"#);
        let response = scene.post(path, text.clone()).send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), header(&response, "x-icecore-memory")),
            (200, "failed"),
            "{body}"
        );
        assert_eq!(fake.arrived.lock().unwrap().pop().unwrap().body, text);
        assert!(scene.mind.heard.lock().unwrap().is_empty(), "{body}");
    }
    let twice = scene
        .post("/v1/chat/completions", CHAT)
        .header("x-icecore-user", "ada")
        .header("x-icecore-user", "ben");
    assert_eq!(twice.send().await.unwrap().status(), 400);
    for (name, value) in [
        ("x-icecore-user", String::new()),
        ("x-icecore-user", "  ".into()),
        ("x-icecore-conversation", String::new()),
        ("x-icecore-conversation", " ".into()),
        ("x-icecore-memory", "maybe".to_owned()),
        ("x-icecore-conversation", "x".repeat(600)),
        ("x-icecore-user", "a\tb".into()),
    ] {
        let response =
            scene.post("/v1/chat/completions", CHAT).header(name, value).send().await.unwrap();
        assert_eq!(response.status(), 400, "{name}");
        assert!(response.text().await.unwrap().to_lowercase().contains(name));
    }
    scene.running.stop().await.unwrap();
}

/// A request with an id at a place: its headers, and the fields of its body.
fn with_id(
    place: IdLocation,
    id: &str,
) -> (Vec<(&'static str, String)>, serde_json::Map<String, serde_json::Value>) {
    let mut fields = serde_json::Map::new();
    match place {
        IdLocation::Header(header) => return (vec![(header, id.to_owned())], fields),
        IdLocation::Body(key) => fields.insert(key.into(), id.into()),
        IdLocation::Metadata(key) => {
            fields.insert("metadata".into(), serde_json::json!({ key: id }))
        }
    };
    (Vec::new(), fields)
}

async fn received_request(
    scene: &Scene,
    path: &str,
    headers: &[(&str, String)],
    fields: &serde_json::Map<String, serde_json::Value>,
) -> TurnRequest {
    let mut body =
        serde_json::json!({ "model": "m", "messages": [{ "role": "user", "content": "hi" }] });
    body.as_object_mut().unwrap().extend(fields.clone());
    let mut request = scene.post(path, body.to_string());
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let response = request.send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), header(&response, "x-icecore-memory")),
        (200, "on"),
        "{headers:?} {fields:?}"
    );
    scene.mind.heard.lock().unwrap().pop().unwrap()
}

// C1, C3
#[tokio::test]
async fn every_id_that_front_ends_send_is_read() {
    install();
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Scene::over(&fake, Script::default()).await;
    for (place, history) in ids::CONVERSATION_IDS {
        let (headers, fields) = with_id(*place, "c 1");
        let heard = received_request(&scene, "/v1/chat/completions", &headers, &fields).await;
        assert_eq!(
            (heard.conversation.as_deref(), heard.history, heard.user),
            (Some("c 1"), *history, None),
            "{place:?}"
        );
        // Our header comes first; an empty one of another program counts as missing.
        let ours = [headers, vec![("x-icecore-conversation", "ours".to_owned())]].concat();
        if *place != IdLocation::Header("x-icecore-conversation") {
            assert_eq!(
                received_request(&scene, "/v1/messages", &ours, &fields)
                    .await
                    .conversation
                    .as_deref(),
                Some("ours"),
                "{place:?}"
            );
            let (headers, fields) = with_id(*place, "");
            assert_eq!(
                received_request(&scene, "/v1/messages", &headers, &fields).await.conversation,
                None,
                "{place:?}"
            );
        }
    }
    for (place, dialects) in ids::USER_IDS {
        for (path, dialect) in [
            ("/v1/chat/completions", ChatDialect::OpenAi),
            ("/v1/messages", ChatDialect::Anthropic),
        ] {
            let (headers, fields) = with_id(*place, "ada");
            let expected = dialects.contains(&dialect).then_some("ada");
            assert_eq!(
                received_request(&scene, path, &headers, &fields).await.user.as_deref(),
                expected,
                "{place:?}"
            );
            // For a token bound to a space, the server sets this header.
            let ours = [headers, vec![("x-icecore-user", "ours".to_owned())]].concat();
            if *place != IdLocation::Header("x-icecore-user") {
                assert_eq!(
                    received_request(&scene, path, &ours, &fields).await.user.as_deref(),
                    Some("ours"),
                    "{place:?}"
                );
            }
        }
    }
    let (headers, fields) = with_id(ids::SHARED_KEY, "k");
    let heard = received_request(&scene, "/v1/chat/completions", &headers, &fields).await;
    assert_eq!((heard.shared_key.as_deref(), heard.conversation), (Some("k"), None));
    // The conversation object of the Responses API.
    let fields = serde_json::json!({ "conversation": { "id": "conv_1" } });
    let heard =
        received_request(&scene, "/v1/chat/completions", &[], fields.as_object().unwrap()).await;
    assert_eq!(heard.conversation.as_deref(), Some("conv_1"));
    // A front end whose user name is not valid gets no memory.
    for header in ["x-openwebui-user-id", "x-litellm-end-user-id"] {
        let response =
            scene.post("/v1/chat/completions", CHAT).header(header, "").send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), self::header(&response, "x-icecore-memory")),
            (200, "failed"),
            "{header}"
        );
    }
    scene.running.stop().await.unwrap();
}

// C3
#[tokio::test]
async fn a_body_that_memory_cannot_read_is_refused_only_if_memory_is_wanted() {
    install();
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Scene::over(&fake, Script::default()).await;
    for body in [
        "{\"messages\":[],\"messages\":[]}",
        "[]",
        "{",
        "",
        &format!("{{\"a\":{}", "[".repeat(200)),
    ] {
        for (path, field) in [("/v1/chat/completions", "code"), ("/v1/messages", "type")] {
            let response = scene.post(path, body.to_owned()).send().await.unwrap();
            assert_eq!(response.status(), 400, "{body}");
            let said: serde_json::Value =
                serde_json::from_str(&response.text().await.unwrap()).unwrap();
            assert!(said["error"][field].is_string(), "{said}");
        }
        let response = scene
            .post("/v1/chat/completions", body.to_owned())
            .header("x-icecore-memory", "off")
            .send()
            .await
            .unwrap();
        assert_eq!(
            (response.status().as_u16(), fake.arrived.lock().unwrap().pop().unwrap().body),
            (200, body.to_owned())
        );
    }
    // No messages: the upstream judges.
    for body in ["{}", r#"{"messages":[]}"#, r#"{"messages":"x"}"#] {
        let response = scene.post("/v1/chat/completions", body).send().await.unwrap();
        assert_eq!(
            (
                header(&response, "x-icecore-memory"),
                fake.arrived.lock().unwrap().pop().unwrap().body.as_str()
            ),
            ("off", body)
        );
    }
    assert!(scene.mind.heard.lock().unwrap().is_empty());
    scene.running.stop().await.unwrap();
}

// C3
#[tokio::test]
async fn everything_else_below_v1_passes() {
    install();
    let fake =
        Fake::new(whole("200 OK", "content-type: application/json", r#"{"object":"list"}"#)).await;
    let scene = Scene::over(&fake, Script::default()).await;
    for (method, path) in [
        ("GET", "/v1/models"),
        ("GET", "/v1/models?limit=1000"),
        ("GET", "/v1/models/org%2Fm"),
        ("DELETE", "/v1/files/1"),
        ("POST", "/v1/messages/count_tokens?beta=true"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/responses"),
        ("GET", "/v1/chat/completions"),
    ] {
        let url = format!("http://{}{path}", scene.running.addr());
        let body = if method == "POST" { "{\"a\" : 1.0}" } else { "" };
        let request = scene
            .client
            .request(method.parse().unwrap(), url)
            .header("x-api-key", SECRET)
            .body(body);
        let response = request.send().await.unwrap();
        assert_eq!(header(&response, "x-icecore-memory"), "", "{path}");
        assert_eq!(
            (response.status().as_u16(), response.text().await.unwrap().as_str()),
            (200, r#"{"object":"list"}"#),
            "{path}"
        );
        let arrived = fake.arrived.lock().unwrap().pop().unwrap();
        assert_eq!(
            (arrived.line, arrived.body.as_str()),
            (format!("{method} {path} HTTP/1.1"), body)
        );
    }
    assert!(scene.mind.heard.lock().unwrap().is_empty());
    scene.running.stop().await.unwrap();
}

/// Sends raw bytes and returns the response.
async fn raw(addr: SocketAddr, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    socket.write_all(bytes).await.unwrap();
    let mut back = Vec::new();
    let _ = timeout(Duration::from_secs(5), socket.read_to_end(&mut back))
        .await
        .expect("the server must hang up");
    String::from_utf8_lossy(&back).into_owned()
}

#[tokio::test]
async fn the_door_is_shut_on_every_route() {
    install();
    let fake = Fake::new(whole("200 OK", "content-type: application/json", "{}")).await;
    let log = Arc::new(Mutex::new(Vec::new()));
    let serving = settings(&format!("http://{}/v1", fake.addr), Provider::OpenAi, &log);
    let answered = |what: &'static str| {
        get(move || async move { ([("access-control-allow-origin", "*")], what) })
    };
    // Without a declared permission every request is denied, whatever the route does.
    let extra = Router::new()
        .route("/api/status", answered("facts"))
        .route("/api/facts", answered("undeclared facts"));
    let running = serve(serving, Arc::new(Script::default()), extra).await.unwrap();
    let addr = running.addr();
    for (path, bare, with) in [
        ("/", 200, 200),
        ("/livez", 200, 200),
        ("/readyz", 200, 200),
        ("/metrics", 401, 200),
        ("/api/status", 401, 200),
        ("/api/facts", 401, 403),
        ("/v1/models", 401, 200),
        ("/v1/messages/count_tokens", 401, 200),
        ("/v1/../x", 401, 400),
        ("/nothing", 401, 404),
        ("/v1", 401, 404),
    ] {
        for (host, token, expected) in [
            (addr.to_string().as_str(), "", bare),
            (addr.to_string().as_str(), SECRET, with),
            (
                addr.to_string().as_str(),
                "another-token-of-length",
                if bare == 200 { 200 } else { 401 },
            ),
            ("evil.example", SECRET, 403),
        ] {
            let token = if token.is_empty() {
                String::new()
            } else {
                format!("authorization: Bearer {token}\r\n")
            };
            let back = raw(
                addr,
                format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{token}connection: close\r\n\r\n")
                    .as_bytes(),
            )
            .await;
            assert!(
                back.starts_with(&format!("HTTP/1.1 {expected} ")),
                "{path} {host} {token}: {back}"
            );
            assert!(
                !back.to_lowercase().contains("access-control")
                    && !back.contains("undeclared facts"),
                "{back}"
            );
        }
        let origin = format!(
            "GET {path} HTTP/1.1\r\nhost: {addr}\r\norigin: https://evil.example\r\nx-api-key: {SECRET}\r\nconnection: close\r\n\r\n"
        );
        assert!(raw(addr, origin.as_bytes()).await.starts_with("HTTP/1.1 403 "), "{path}");
    }
    // Routes without a token reveal nothing but health.
    let page = include_str!("../dashboard/dist/index.html");
    for (path, body) in [("/", page), ("/livez", "ok\n"), ("/readyz", "ready\n")] {
        let back = raw(
            addr,
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                .as_bytes(),
        )
        .await;
        assert_eq!(back.split_once("\r\n\r\n").unwrap().1, body);
        assert!(!back.contains(env!("CARGO_PKG_VERSION")));
    }
    // A wrong token is reported in the format of each dialect.
    let back =
        raw(addr, b"POST /v1/messages?beta=true HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    assert!(
        back.contains("\"type\":\"authentication_error\"") && back.contains("www-authenticate"),
        "{back}"
    );
    let back = raw(addr, b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    assert!(
        back.contains("\"code\":\"invalid_api_key\"") && back.contains("\"param\":null"),
        "{back}"
    );
    running.stop().await.unwrap();
    assert!(!log.lock().unwrap().join("").contains(SECRET));
}

#[tokio::test]
async fn what_is_too_large_too_slow_or_too_much_is_turned_away() {
    install();
    let mut answer = stream(&STREAM[..2]);
    answer.does.push(Does::Hangs);
    let fake = Fake::new(answer).await;
    let scene = Scene::with(&format!("http://{}/v1", fake.addr), Script::default(), |serving| {
        serving.limits.body_bytes = 1_000;
        serving.limits.body_silence = Duration::from_millis(200);
        serving.limits.head = Duration::from_millis(300);
        serving.limits.requests = 1;
    })
    .await;
    let addr = scene.running.addr();
    for (path, kind) in
        [("/v1/messages", "request_too_large"), ("/v1/chat/completions", "request_too_large")]
    {
        let response = scene.post(path, "x".repeat(1_001)).send().await.unwrap();
        assert_eq!(response.status(), 413);
        assert!(response.text().await.unwrap().contains(kind));
        // Also in chunks without a declared length.
        let pieces =
            futures_util::stream::iter((0..20).map(|_| Ok::<_, std::io::Error>("x".repeat(100))));
        let response = scene.post(path, reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
        assert_eq!(response.status(), 413);
    }
    // A declared length far beyond the limit is rejected before the body arrives.
    for path in ["/v1/messages", "/v1/chat/completions"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {SECRET}\r\ncontent-length: 1000000000000\r\n\r\n"
        );
        let answer = raw(addr, head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{path}: {answer}");
    }
    // A body that stops, a head that stops, and bytes that are not a request.
    let slow = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nx-api-key: {SECRET}\r\ncontent-length: 10\r\n\r\n{{"
    );
    assert!(raw(addr, slow.as_bytes()).await.starts_with("HTTP/1.1 408 "));
    assert!(!raw(addr, b"GET /livez HTTP/1.1\r\nhost: local").await.contains("200"));
    assert!(!raw(addr, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.contains("200"));
    // One at a time; health checks are still answered.
    let mut first = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let _ = first.chunk().await.unwrap();
    let second = scene.post("/v1/messages", CHAT).send().await.unwrap();
    assert_eq!((second.status().as_u16(), header(&second, "retry-after")), (503, "1"));
    assert_eq!(scene.get("/livez").send().await.unwrap().status(), 200);
    drop(first);
    timeout(Duration::from_secs(5), fake.hung_up.notified()).await.unwrap();
    let third = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    assert_eq!(third.status(), 200, "a request that ended makes room");
    drop(third);
    scene.running.stop().await.unwrap();
}

#[tokio::test]
async fn it_stops_when_open_replies_are_done_or_their_time_is_over() {
    install();
    let go_on = Arc::new(Notify::new());
    let mut answer = stream(&STREAM);
    answer.does.insert(2, Does::Waits(go_on.clone()));
    let fake = Fake::new(answer).await;
    let scene = Scene::with(&format!("http://{}/v1", fake.addr), Script::default(), |serving| {
        serving.limits.drain = Duration::from_secs(10);
    })
    .await;
    let addr = scene.running.addr();
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let mut sofar = response.chunk().await.unwrap().unwrap().to_vec();
    let stopping = tokio::spawn(scene.running.stop());
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(TcpStream::connect(addr).await.is_err(), "nobody else comes in");
    assert!(!stopping.is_finished());
    go_on.notify_one();
    while let Some(piece) = response.chunk().await.unwrap() {
        sofar.extend(piece);
    }
    assert_eq!(sofar, STREAM.concat().as_bytes());
    timeout(Duration::from_secs(5), stopping).await.unwrap().unwrap().unwrap();
    // An endless reply is cut off, and what arrived is persisted before the server stops.
    let mut answer = stream(&STREAM[..2]);
    answer.does.push(Does::Hangs);
    let fake = Fake::new(answer).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let mut response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
    let mut got = 0;
    while got < STREAM[..2].concat().len() {
        got += response.chunk().await.unwrap().unwrap().len();
    }
    scene.running.stop().await.unwrap();
    let replies = scene.mind.replies.lock().unwrap().clone();
    assert_eq!((replies.len(), replies[0].text.as_str(), replies[0].complete), (1, "he", false));
    assert!(scene.log.lock().unwrap().join("").contains("cut off"));
}

#[tokio::test]
async fn what_is_counted_says_nothing_of_what_was_said() {
    install();
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Scene::over(&fake, Script::default()).await;
    let secret = CHAT.replace("hi", "xyzzy-said-in-private");
    let request = scene
        .post("/v1/chat/completions?q=xyzzy", secret)
        .header("x-icecore-conversation", "xyzzy");
    request.send().await.unwrap().bytes().await.unwrap();
    scene.get("/v1/models/xyzzy").send().await.unwrap();
    scene.get("/xyzzy").send().await.unwrap();
    let text = scene.metrics().await;
    for line in [
        "icecore_requests_total{route=\"chat\",status=\"200\"} 1",
        "icecore_requests_total{route=\"models\",status=\"200\"} 1",
        "icecore_requests_total{route=\"other\",status=\"404\"} 1",
        "icecore_injected_tokens_total 17",
        "icecore_left_out_total 2",
        "icecore_phase_seconds_count{phase=\"begin\"} 1",
        "icecore_phase_seconds_count{phase=\"end\"} 1",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains("xyzzy") && !scene.log().contains("xyzzy"));
    scene.running.stop().await.unwrap();
}

#[tokio::test]
async fn it_says_whether_it_is_ready_and_not_why() {
    install();
    let scene = Scene::with("", Script::default(), |serving| {
        serving.chat = ModelSettings::none("chat");
        serving.ready = Arc::new(IsReady(false));
    })
    .await;
    let response = scene.get("/readyz").send().await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.text().await.unwrap().as_str()),
        (503, "not ready: memory cannot be opened\n")
    );
    assert!(scene.log().contains("the vault is away"));
    assert_eq!(scene.get("/livez").send().await.unwrap().status(), 200);
    scene.running.stop().await.unwrap();
}

// C8
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_talk_at_once() {
    install();
    let fake = Fake::new(stream(&STREAM)).await;
    let scene = Arc::new(Scene::over(&fake, Script::default()).await);
    let right = Arc::new(AtomicUsize::new(0));
    let mut all = JoinSet::new();
    for _ in 0..64 {
        let (scene, right) = (scene.clone(), right.clone());
        all.spawn(async move {
            let response = scene.post("/v1/chat/completions", CHAT).send().await.unwrap();
            if response.bytes().await.unwrap() == STREAM.concat() {
                right.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    all.join_all().await;
    assert_eq!((right.load(Ordering::Relaxed), scene.replies().len()), (64, 64));
    // None stays open, except the one that asks.
    let counted = async {
        while !scene.metrics().await.contains("icecore_requests_open 1\n") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(5), counted).await.expect("every request must be counted as done");
}
