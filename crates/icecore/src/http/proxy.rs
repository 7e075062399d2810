//! The chat proxy: requests are forwarded with memory inserted, replies come back byte for byte.
//!
//! When memory fails, the chat goes on without it. The last bytes of a reply are held until the
//! exchange is persisted. If that takes too long, the reply ends anyway and says so, and persisting
//! is retried in the background.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{FutureExt as _, stream};
use icecore_engine::config::ChatMode;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::AppState;
use super::auth::{self, AuditSubject, RequestCaller};
use super::body::{self, BodyError};
use super::chat_memory::{
    AssistantReply, ChatDialect, PersistError, PreparedTurn, RequestMessage, TurnRequest,
};
use super::http_error::{self, HttpError};
use super::ids::{self, RequestIds};
use super::messages::{self, MessageList};
use super::stream_tap::{ReplyCollector, StreamTap};
use super::upstream::{self, Upstream, UpstreamError};
use crate::access::{AccessControl, QuotaClass};
use crate::api::call::USER_HEADER;
use crate::permissions;

/// How long an event that may be the last is held while nothing follows.
const LAST_EVENT_HOLD: Duration = Duration::from_millis(500);
/// How long the upstream may take to close the connection after its last event.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How a failed `persist_reply` is retried: after a first pause, then at growing intervals, for a
/// limited time, and with a bound on the text held in all. The replies are in memory only and are
/// lost when the server stops; their clients were told.
const FIRST_RETRY_PAUSE: Duration = Duration::from_secs(1);
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(15);
const MAX_RETRY_DURATION: Duration = Duration::from_secs(15 * 60);
pub(super) const MAX_RETRY_BYTES: usize = 64 << 20;
const MIN_RETRY_BYTES: u32 = 64 << 10;
/// The comment in a streamed reply before its last event if the exchange is not persisted. Clients
/// ignore comments.
const NOT_PERSISTED_COMMENT: &[u8] = b": icecore: this exchange is not stored yet\n";
/// The longest reply that is held as a whole.
const MAX_WHOLE_BYTES: usize = 64 << 20;
/// The header in which a client selects the memory mode.
const MEMORY_HEADER: &str = "x-icecore-memory";
/// The longest list of ids in a header.
const MAX_IDS_BYTES: usize = 2_000;

/// Handles everything below `/v1`.
pub(super) async fn handle_v1(State(app): State<Arc<AppState>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let dialect = http_error::dialect_of(head.uri.path(), &head.headers);
    match proxy_request(&app, &head, body, dialect).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(dialect),
    }
}

async fn proxy_request(
    app: &Arc<AppState>,
    head: &Parts,
    body: Body,
    dialect: ChatDialect,
) -> Result<Response, HttpError> {
    let Some(upstream) = app.upstream.clone() else {
        let said = "no upstream model is configured; set provider, base_url and model of [chat] in config.toml and restart";
        return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "no_upstream", said));
    };
    let call = ProxyCall { app: app.clone(), upstream, head, dialect };
    let is_chat =
        matches!(http_error::route_label(&head.method, head.uri.path()), "chat" | "messages");
    let bytes = auth::read_body(body, &head.headers, &app.limits).await?;
    if !is_chat {
        return call.forward(bytes, None).await;
    }
    match MemoryMode::from_headers(&head.headers)? {
        MemoryMode::Off => call.forward(bytes, Some("off")).await,
        MemoryMode::On(mode) => call.chat(bytes, mode).await,
    }
}

/// The bytes counted as one token where the model reports no usage.
const BYTES_PER_TOKEN: usize = 4;

/// Counts the tokens between a client and the model against the space's quota.
struct TokenCounter {
    access: Option<Arc<AccessControl>>,
    user: Option<String>,
    bytes: usize,
}

impl Drop for TokenCounter {
    fn drop(&mut self) {
        if let Some(access) = self.access.take() {
            access.record_spend(
                self.user.as_deref(),
                u64::try_from(self.bytes / BYTES_PER_TOKEN).unwrap_or(u64::MAX),
            );
        }
    }
}

/// The memory mode that a client requests.
enum MemoryMode {
    Off,
    On(Option<ChatMode>),
}

impl MemoryMode {
    fn from_headers(headers: &HeaderMap) -> Result<Self, HttpError> {
        match name_header(headers, MEMORY_HEADER)?.map(|word| word.to_ascii_lowercase()).as_deref() {
            None | Some("on") => Ok(Self::On(None)),
            Some("off") => Ok(Self::Off),
            Some(word) => match ChatMode::from_word(word) {
                None => Err(bad_request(
                    "X-Icecore-Memory must be off, augment or replace; omit it to use the configured mode"
                        .into(),
                )),
                mode => Ok(Self::On(mode)),
            },
        }
    }
}

fn bad_request(said: String) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, "invalid_request", said)
}

/// The value of one of our headers, as a name.
fn name_header(headers: &HeaderMap, header: &str) -> Result<Option<String>, HttpError> {
    let mut sent = headers.get_all(header).into_iter();
    let Some(value) = sent.next() else { return Ok(None) };
    if sent.next().is_some() {
        // Ambiguous: a proxy in between may have added its own.
        return Err(bad_request(format!(
            "{header} was sent more than once; send it once or omit it"
        )));
    }
    let name = std::str::from_utf8(value.as_bytes()).map(str::trim).unwrap_or_default();
    match name {
        // An empty name is an error: an empty user would mean the shared memory, an empty
        // conversation any.
        "" if value.is_empty() && header == MEMORY_HEADER => Ok(None),
        name if messages::is_valid_name(name) => Ok(Some(name.to_owned())),
        _ => Err(bad_request(format!(
            "{header} is not a valid name; send up to 512 bytes of UTF-8 without control characters, or omit it"
        ))),
    }
}

/// One request being proxied.
struct ProxyCall<'a> {
    app: Arc<AppState>,
    upstream: Arc<Upstream>,
    head: &'a Parts,
    dialect: ChatDialect,
}

impl ProxyCall<'_> {
    /// Forwards the request unchanged and streams the response back.
    async fn forward(
        &self,
        bytes: Bytes,
        memory: Option<&'static str>,
    ) -> Result<Response, HttpError> {
        let user = self.caller().and_then(|caller| caller.user.clone());
        self.check_quota(user.as_deref()).await?;
        self.forward_for(user, bytes, memory).await
    }

    /// The same, for a user whose quota was already checked.
    async fn forward_for(
        &self,
        user: Option<String>,
        bytes: Bytes,
        memory: Option<&'static str>,
    ) -> Result<Response, HttpError> {
        let access = self.access_control().filter(|_| self.head.method == Method::POST).cloned();
        let counting = TokenCounter { access, user, bytes: bytes.len() };
        let answered = self.send(bytes).await?;
        let mut response = self.start_response(&answered);
        if let Some(memory) = memory {
            response.headers_mut().insert("x-icecore-memory", HeaderValue::from_static(memory));
        }
        *response.body_mut() = stream_body(answered, self.upstream.clone(), Some(counting));
        Ok(response)
    }

    fn caller(&self) -> Option<&RequestCaller> {
        self.head.extensions.get()
    }

    fn access_control(&self) -> Option<&Arc<AccessControl>> {
        self.head.extensions.get()
    }

    /// Checks the quota of the user's space, if that has not happened yet.
    async fn check_quota(&self, user: Option<&str>) -> Result<(), HttpError> {
        let Some(access) =
            self.access_control().filter(|_| self.caller().is_some_and(|caller| !caller.admitted))
        else {
            return Ok(());
        };
        access
            .admit(user, QuotaClass::Model)
            .await
            .map_err(|refused| HttpError::from_admission_error(&refused))
    }

    async fn chat(&self, bytes: Bytes, mode: Option<ChatMode>) -> Result<Response, HttpError> {
        if self.head.headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            self.app.report_memory_failure(
                "read",
                "the request is compressed, so memory cannot read it",
            );
            return self.forward(bytes, Some("failed")).await;
        }
        let unfit = |unfit: BodyError| bad_request(unfit.to_string());
        let body = body::RequestBody::parse(&bytes).map_err(unfit)?;
        let Some((messages, told)) = MessageList::parse(&body, self.dialect).map_err(unfit)? else {
            // No messages: the upstream reports that better.
            return self.forward(bytes.clone(), Some("off")).await;
        };
        let heard = match self.turn_request(&body, told, mode)? {
            Ok(heard) => heard,
            Err(key) => {
                self.app.report_memory_failure(
                    "read",
                    &format!("`{key}` of the request is not a valid name, so the user is unknown"),
                );
                return self.forward(bytes.clone(), Some("failed")).await;
            }
        };
        let Ok(user) = heard.user.as_deref().map_or(Ok(None), permissions::parse_user_name) else {
            self.app.report_memory_failure(
                "read",
                "the user name in the request is too long, so the user is unknown",
            );
            return self.forward(bytes.clone(), Some("failed")).await;
        };
        self.check_quota(user.as_deref()).await?;
        let begun = match self.prepare_turn(heard).await {
            Ok(begun) => begun,
            Err(said) => {
                self.app.report_memory_failure("begin", &said);
                return self.forward_for(user, bytes.clone(), Some("failed")).await;
            }
        };
        let streamed = body.object.get("stream").is_some_and(|stream| stream.get() == "true");
        let changed = messages::insert_memory(&body, &messages, &begun, self.dialect);
        let named = AuditSubject { what: begun.conversation.clone(), user: user.clone() };
        let counting =
            TokenCounter { access: self.access_control().cloned(), user, bytes: changed.len() };
        let mut exchange = PendingExchange::new(self.app.clone(), begun, self.dialect, counting);
        let answered = match self.send(Bytes::from(changed)).await {
            Ok(answered) => answered,
            Err(refusal) => {
                exchange.discard();
                return Err(refusal);
            }
        };
        self.app.metrics.count_injection(exchange.begun.injected_tokens, exchange.begun.left_out);
        let mut response = self.start_response(&answered);
        set_memory_headers(&exchange.begun, response.headers_mut());
        response.extensions_mut().insert(named);
        if !answered.status().is_success() {
            exchange.discard();
            *response.body_mut() = stream_body(answered, self.upstream.clone(), None);
            return Ok(response);
        }
        exchange.gather.status = answered.status().as_u16();
        let body = self.relay_reply(answered, exchange, streamed, response.headers_mut()).await?;
        *response.body_mut() = body;
        Ok(response)
    }

    async fn relay_reply(
        &self,
        answered: reqwest::Response,
        mut exchange: PendingExchange,
        streamed: bool,
        headers: &mut HeaderMap,
    ) -> Result<Body, HttpError> {
        let kind = answered
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        let coded =
            answered.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
        let mut flow = ReplyStream {
            answered,
            upstream: self.upstream.clone(),
            tap: None,
            first: Bytes::new(),
            stage: ReplyStage::Reading,
            exchange,
        };
        if coded {
            self.app.report_memory_failure(
                "read",
                "the reply is compressed although that was not requested, so memory cannot read it",
            );
            flow.exchange.gather.mark_incomplete();
            // Only the end of the reply can be held back, and a Content-Length would give that
            // away.
            headers.remove(CONTENT_LENGTH);
            return Ok(flow.into_body());
        }
        if kind.starts_with("text/event-stream")
            || (streamed && !kind.starts_with("application/json"))
        {
            flow.tap = Some(StreamTap::default());
            return Ok(flow.into_body());
        }
        let mut whole = BytesMut::new();
        loop {
            match flow.read_chunk(self.upstream.max_silence()).await {
                UpstreamChunk::Some(piece) => whole.extend_from_slice(&piece),
                UpstreamChunk::End => break,
                UpstreamChunk::Broken(unsent) => {
                    flow.exchange.persist(false).await;
                    return Err(upstream_refusal(&self.app, &unsent));
                }
            }
            if whole.len() > MAX_WHOLE_BYTES {
                self.app.report_memory_failure("read", "the reply is too long to be stored");
                flow.exchange.gather.mark_incomplete();
                flow.first = whole.freeze();
                headers.remove(CONTENT_LENGTH);
                return Ok(flow.into_body());
            }
        }
        exchange = flow.exchange;
        exchange.gather.read_complete(&whole);
        if !exchange.persist(true).await {
            headers.insert("x-icecore-memory", HeaderValue::from_static("failed"));
        }
        Ok(Body::from(whole.freeze()))
    }

    async fn send(&self, bytes: Bytes) -> Result<reqwest::Response, HttpError> {
        let began = self.app.clock.elapsed_millis();
        let uri = &self.head.uri;
        let sent = self
            .upstream
            .send(&self.head.method, uri.path(), uri.query(), &self.head.headers, bytes)
            .await;
        self.app
            .metrics
            .observe_phase("upstream", self.app.clock.elapsed_millis().saturating_sub(began));
        sent.map_err(|unsent| upstream_refusal(&self.app, &unsent))
    }

    fn start_response(&self, answered: &reqwest::Response) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answered.status();
        *response.headers_mut() = upstream::response_headers(answered.headers());
        response
    }

    async fn prepare_turn(&self, request: TurnRequest) -> Result<PreparedTurn, String> {
        let (began, patience) = (self.app.clock.elapsed_millis(), self.app.limits.begin);
        let beginning = AssertUnwindSafe(self.app.memory.begin_turn(request)).catch_unwind();
        let begun = match timeout(patience, beginning).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(_)) => Err("memory panicked; this is a bug".into()),
            Err(_) => Err(format!("memory took longer than {} s", patience.as_secs_f32())),
        };
        self.app
            .metrics
            .observe_phase("begin", self.app.clock.elapsed_millis().saturating_sub(began));
        begun
    }

    /// Builds the request for memory. Returns the name of a field instead if it should name the
    /// user but is not a valid name.
    fn turn_request(
        &self,
        body: &body::RequestBody<'_>,
        told: Vec<RequestMessage>,
        mode: Option<ChatMode>,
    ) -> Result<Result<TurnRequest, &'static str>, HttpError> {
        let headers = &self.head.headers;
        // Our own headers must be valid; headers of other programs are read leniently.
        for own in [USER_HEADER, ids::CONVERSATION_HEADER] {
            name_header(headers, own)?;
        }
        let ids = RequestIds::new(headers, body);
        let (conversation, history) = ids.conversation().unzip();
        let user = match ids.user(self.dialect) {
            Ok(user) => user,
            Err(key) => return Ok(Err(key)),
        };
        Ok(Ok(TurnRequest {
            user,
            conversation,
            history: history.unwrap_or_default(),
            shared_key: ids.shared_key(),
            dialect: self.dialect,
            model: body.object.text("model").unwrap_or_default().into_owned(),
            mode,
            messages: told,
        }))
    }
}

fn upstream_refusal(app: &AppState, unsent: &UpstreamError) -> HttpError {
    let (status, code) = match unsent {
        UpstreamError::Path => return bad_request(unsent.to_string()),
        UpstreamError::Unreachable { .. } => (StatusCode::BAD_GATEWAY, "upstream_unreachable"),
        UpstreamError::Silent { .. } => (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout"),
    };
    app.metrics.count_upstream_failure(code);
    (app.log)(&unsent.to_string());
    HttpError::new(status, code, unsent.to_string())
}

/// Reports what memory did, in headers.
fn set_memory_headers(prepared: &PreparedTurn, headers: &mut HeaderMap) {
    let mut ids = String::new();
    for id in &prepared.injected {
        if ids.len() + id.len() + 1 > MAX_IDS_BYTES {
            break;
        }
        if !ids.is_empty() {
            ids.push(',');
        }
        ids.push_str(id);
    }
    let mut told = vec![
        ("x-icecore-memory", "on".to_owned()),
        ("x-icecore-conversation", prepared.conversation.clone()),
        ("x-icecore-turn", prepared.turn.to_string()),
        ("x-icecore-injected-tokens", prepared.injected_tokens.to_string()),
        ("x-icecore-left-out", prepared.left_out.to_string()),
        ("x-icecore-cost-tokens", prepared.cost_tokens.to_string()),
    ];
    if !ids.is_empty() {
        told.push(("x-icecore-injected", ids));
    }
    for (name, value) in told {
        let value: String = value.chars().filter(|c| !c.is_control()).collect();
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// A response body that is streamed unchanged.
fn stream_body(
    answered: reqwest::Response,
    upstream: Arc<Upstream>,
    counting: Option<TokenCounter>,
) -> Body {
    Body::from_stream(stream::unfold(Some((answered, counting)), move |answered| {
        let upstream = upstream.clone();
        async move {
            let (mut answered, mut counting) = answered?;
            match timeout(upstream.max_silence(), answered.chunk()).await {
                Ok(Ok(Some(piece))) => {
                    if let Some(counting) = &mut counting {
                        counting.bytes += piece.len();
                    }
                    Some((Ok(piece), Some((answered, counting))))
                }
                Ok(Ok(None)) => None,
                Ok(Err(error)) => {
                    Some((Err(std::io::Error::other(upstream.connection_error(&error))), None))
                }
                Err(_) => Some((Err(std::io::Error::other(upstream.silence_error())), None)),
            }
        }
    }))
}

/// An exchange that was prepared and must be persisted. Dropping it means that the client
/// disconnected.
struct PendingExchange {
    app: Arc<AppState>,
    begun: Arc<PreparedTurn>,
    gather: ReplyCollector,
    counting: TokenCounter,
    is_over: bool,
}

impl PendingExchange {
    fn new(
        app: Arc<AppState>,
        turn: PreparedTurn,
        dialect: ChatDialect,
        counting: TokenCounter,
    ) -> Self {
        Self {
            app,
            begun: Arc::new(turn),
            gather: ReplyCollector::new(dialect),
            counting,
            is_over: false,
        }
    }

    /// Discards the exchange: the upstream returned no reply.
    fn discard(&mut self) {
        self.counting.access = None;
        self.is_over = true;
    }

    /// Persists the exchange and waits until that succeeds, fails or takes too long. Returns
    /// whether it is persisted. Persisting continues even if the client disconnects.
    async fn persist(&mut self, is_whole: bool) -> bool {
        let patience = self.app.limits.end;
        let Some(told) = self.start_persisting(is_whole) else { return true };
        match timeout(patience, told).await {
            Ok(kept) => kept.unwrap_or(false),
            Err(_) => {
                self.app.report_memory_failure(
                    "end",
                    &format!(
                        "memory took longer than {} s to persist an exchange",
                        patience.as_secs_f32()
                    ),
                );
                false
            }
        }
    }

    /// Starts persisting in the background. The receiver yields whether the first attempt
    /// succeeded.
    fn start_persisting(&mut self, is_whole: bool) -> Option<oneshot::Receiver<bool>> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        let mut reply = self.gather.to_reply();
        reply.complete &= is_whole;
        // The usage reported by the model, else an estimate.
        self.counting.bytes = match reply.usage {
            Some((read, written)) => usize::try_from(read.saturating_add(written))
                .unwrap_or(usize::MAX)
                .saturating_mul(BYTES_PER_TOKEN),
            None => self.counting.bytes + reply.text.len(),
        };
        if !reply.complete {
            self.app.metrics.count_truncated_reply();
        }
        let (app, begun) = (self.app.clone(), self.begun.clone());
        let open = self.app.persisting.start();
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let (first, answer) = oneshot::channel();
        runtime.spawn(async move {
            let began = app.clock.elapsed_millis();
            let kept = persist_once(&app, &begun, reply.clone()).await;
            app.metrics.observe_phase("end", app.clock.elapsed_millis().saturating_sub(began));
            let _ = first.send(kept.is_ok());
            if let Err(unkept) = kept {
                app.report_memory_failure("end", &unkept.message);
                if unkept.is_retryable {
                    retry_persisting(&app, &begun, reply).await;
                }
            }
            drop(open);
        });
        Some(answer)
    }
}

async fn persist_once(
    app: &AppState,
    turn: &PreparedTurn,
    reply: AssistantReply,
) -> Result<(), PersistError> {
    let ended = AssertUnwindSafe(app.memory.persist_reply(turn, reply)).catch_unwind().await;
    ended.unwrap_or_else(|_| Err(PersistError::permanent("memory panicked; this is a bug")))
}

/// Retries persisting until it succeeds, fails permanently or takes too long.
async fn retry_persisting(app: &AppState, turn: &PreparedTurn, reply: AssistantReply) {
    let lost = |said: &str| {
        (app.log)(&format!(
            "an exchange is lost, and its client was told that it is not persisted: {said}"
        ))
    };
    let bytes = u32::try_from(reply.text.len() + reply.parts.as_ref().map_or(0, String::len))
        .unwrap_or(u32::MAX);
    let Ok(_room) = app.retry_bytes.try_acquire_many(bytes.max(MIN_RETRY_BYTES)) else {
        return lost("too many exchanges are already waiting for a retry");
    };
    let mut pause = FIRST_RETRY_PAUSE;
    let until = tokio::time::Instant::now() + MAX_RETRY_DURATION;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_RETRY_PAUSE);
        match persist_once(app, turn, reply.clone()).await {
            Ok(()) => {
                return (app.log)("an exchange was persisted after a retry");
            }
            Err(unkept) if !unkept.is_retryable || tokio::time::Instant::now() > until => {
                return lost(&unkept.message);
            }
            Err(_) => {}
        }
    }
}

impl Drop for PendingExchange {
    fn drop(&mut self) {
        let _ = self.start_persisting(false);
    }
}

/// A reply being streamed to the client.
struct ReplyStream {
    answered: reqwest::Response,
    upstream: Arc<Upstream>,
    /// Reads the stream; `None` if it cannot be parsed.
    tap: Option<StreamTap>,
    /// Bytes to send first.
    first: Bytes,
    stage: ReplyStage,
    exchange: PendingExchange,
}

enum ReplyStage {
    /// More follows.
    Reading,
    /// The last event, or the end of the stream, was read.
    Last { is_end: bool },
    /// The exchange is persisted; the upstream has not closed the connection yet.
    After,
    /// The stream broke.
    Broken(UpstreamError),
    /// Everything was sent.
    Over,
}

enum UpstreamChunk {
    Some(Bytes),
    End,
    Broken(UpstreamError),
}

impl ReplyStream {
    fn into_body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut flow| async move {
            flow.next_bytes().await.map(|item| (item, flow))
        }))
    }

    async fn read_chunk(&mut self, patience: Duration) -> UpstreamChunk {
        match timeout(patience, self.answered.chunk()).await {
            Ok(Ok(Some(piece))) => UpstreamChunk::Some(piece),
            Ok(Ok(None)) => UpstreamChunk::End,
            Ok(Err(error)) => UpstreamChunk::Broken(self.upstream.connection_error(&error)),
            Err(_) => UpstreamChunk::Broken(self.upstream.silence_error()),
        }
    }

    async fn next_bytes(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        if !self.first.is_empty() {
            return Some(Ok(std::mem::take(&mut self.first)));
        }
        loop {
            match std::mem::replace(&mut self.stage, ReplyStage::Over) {
                ReplyStage::Reading => {
                    self.stage = ReplyStage::Reading;
                    if let Some(bytes) = self.read_events().await {
                        return Some(Ok(bytes));
                    }
                }
                ReplyStage::Last { is_end } => {
                    let is_kept = self.exchange.persist(true).await;
                    self.stage = if is_end { ReplyStage::Over } else { ReplyStage::After };
                    if let Some(held) = self.release_held() {
                        return Some(Ok(if is_kept {
                            held
                        } else {
                            [NOT_PERSISTED_COMMENT, &held].concat().into()
                        }));
                    }
                }
                ReplyStage::After => {
                    match self.read_chunk(CLOSE_TIMEOUT.min(self.upstream.max_silence())).await {
                        UpstreamChunk::Some(piece) => {
                            self.stage = ReplyStage::After;
                            return Some(Ok(piece));
                        }
                        // An upstream that sent its last event need not close the connection cleanly.
                        UpstreamChunk::End | UpstreamChunk::Broken(_) => {}
                    }
                }
                ReplyStage::Broken(unsent) => {
                    self.exchange.persist(false).await;
                    if let Some(held) = self.release_held() {
                        self.stage = ReplyStage::Broken(unsent);
                        return Some(Ok(held));
                    }
                    let _ = upstream_refusal(&self.exchange.app, &unsent);
                    return Some(Err(std::io::Error::other(unsent)));
                }
                ReplyStage::Over => return None,
            }
        }
    }

    /// Reads from the upstream; returns bytes to forward and sets the stage.
    async fn read_events(&mut self) -> Option<Bytes> {
        let holds = self.tap.as_ref().is_some_and(StreamTap::is_holding);
        let patience = self.upstream.max_silence();
        let piece = if holds {
            // A separate timeout: expiry does not mean that the upstream is silent.
            match timeout(LAST_EVENT_HOLD, self.read_chunk(patience)).await {
                Ok(piece) => piece,
                Err(_) => return self.release_held(),
            }
        } else {
            self.read_chunk(patience).await
        };
        let Self { tap, exchange, .. } = self;
        match (piece, tap) {
            (UpstreamChunk::Some(piece), Some(tap)) => {
                let out = tap.feed(&piece, &mut exchange.gather);
                if tap.is_closed() {
                    self.stage = ReplyStage::Last { is_end: false };
                }
                (!out.is_empty()).then(|| out.into())
            }
            (UpstreamChunk::Some(piece), None) => Some(piece),
            (UpstreamChunk::End, tap) => {
                if let Some(tap) = tap {
                    tap.finish(&mut exchange.gather);
                }
                self.stage = ReplyStage::Last { is_end: true };
                None
            }
            (UpstreamChunk::Broken(unsent), tap) => {
                if let Some(tap) = tap {
                    tap.finish(&mut exchange.gather);
                }
                self.stage = ReplyStage::Broken(unsent);
                None
            }
        }
    }

    fn release_held(&mut self) -> Option<Bytes> {
        self.tap.as_mut().map(StreamTap::release).filter(|held| !held.is_empty()).map(Into::into)
    }
}
