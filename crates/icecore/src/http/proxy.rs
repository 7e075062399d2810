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
use icecore_engine::config::Mode;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::House;
use super::body::{self, Unfit};
use super::guard::{self, Caller, Named};
use super::ids::{self, Ids};
use super::messages::{self, Messages};
use super::mind::{Begun, Dialect, Heard, Reply, Told, Unkept};
use super::refuse::{self, Refusal};
use super::tap::{Gather, Tap};
use super::upstream::{self, Unsent, Upstream};
use crate::access::{Access, Takes};
use crate::api::call::USER;
use crate::rights;

/// How long an event that may be the last is held while nothing follows.
const HOLD: Duration = Duration::from_millis(500);
/// How long the upstream may take to close the connection after its last event.
const AFTER: Duration = Duration::from_secs(5);
/// How a failed `persist_reply` is retried: after a first pause, then at growing intervals, for a
/// limited time, and with a bound on the text held in all. The replies are in memory only and are
/// lost when the server stops; their clients were told.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const TRIED_FOR: Duration = Duration::from_secs(15 * 60);
pub(super) const UNKEPT_BYTES: usize = 64 << 20;
const LEAST_UNKEPT_BYTES: u32 = 64 << 10;
/// The comment in a streamed reply before its last event if the exchange is not persisted. Clients
/// ignore comments.
const NOT_KEPT: &[u8] = b": icecore: this exchange is not kept yet\n";
/// The longest reply that is held as a whole.
const MOST_WHOLE_BYTES: usize = 64 << 20;
/// The header in which a client selects the memory mode.
const MEMORY: &str = "x-icecore-memory";
/// The longest list of ids in a header.
const MOST_IDS_BYTES: usize = 2_000;

/// Handles everything below `/v1`.
pub(super) async fn v1(State(house): State<Arc<House>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let dialect = refuse::dialect(head.uri.path(), &head.headers);
    match answer(&house, &head, body, dialect).await {
        Ok(response) => response,
        Err(refusal) => refusal.response(dialect),
    }
}

async fn answer(
    house: &Arc<House>,
    head: &Parts,
    body: Body,
    dialect: Dialect,
) -> Result<Response, Refusal> {
    let Some(upstream) = house.upstream.clone() else {
        let said = "no upstream model is configured; set provider, base_url and model of [chat] in config.toml and restart";
        return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "no_upstream", said));
    };
    let call = Call { house: house.clone(), upstream, head, dialect };
    let is_chat = matches!(refuse::route(&head.method, head.uri.path()), "chat" | "messages");
    let bytes = guard::read(body, &head.headers, &house.limits).await?;
    if !is_chat {
        return call.pass(bytes, None).await;
    }
    match Wish::of(&head.headers)? {
        Wish::Off => call.pass(bytes, Some("off")).await,
        Wish::On(mode) => call.chat(bytes, mode).await,
    }
}

/// The bytes counted as one token where the model reports no usage.
const TOKEN_BYTES: usize = 4;

/// Counts the tokens between a client and the model against the space's quota.
struct Counting {
    access: Option<Arc<Access>>,
    user: Option<String>,
    bytes: usize,
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Some(access) = self.access.take() {
            access.spent(
                self.user.as_deref(),
                u64::try_from(self.bytes / TOKEN_BYTES).unwrap_or(u64::MAX),
            );
        }
    }
}

/// The memory mode that a client requests.
enum Wish {
    Off,
    On(Option<Mode>),
}

impl Wish {
    fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        match named(headers, MEMORY)?.map(|word| word.to_ascii_lowercase()).as_deref() {
            None | Some("on") => Ok(Self::On(None)),
            Some("off") => Ok(Self::Off),
            Some(word) => match Mode::of(word) {
                None => Err(bad(
                    "X-Icecore-Memory must be off, augment or replace; omit it to use the configured mode"
                        .into(),
                )),
                mode => Ok(Self::On(mode)),
            },
        }
    }
}

fn bad(said: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", said)
}

/// The value of one of our headers, as a name.
fn named(headers: &HeaderMap, header: &str) -> Result<Option<String>, Refusal> {
    let mut sent = headers.get_all(header).into_iter();
    let Some(value) = sent.next() else { return Ok(None) };
    if sent.next().is_some() {
        // Ambiguous: a proxy in between may have added its own.
        return Err(bad(format!("{header} was sent more than once; send it once or omit it")));
    }
    let name = std::str::from_utf8(value.as_bytes()).map(str::trim).unwrap_or_default();
    match name {
        // An empty name is an error: an empty user would mean the shared memory, an empty
        // conversation any.
        "" if value.is_empty() && header == MEMORY => Ok(None),
        name if messages::is_name(name) => Ok(Some(name.to_owned())),
        _ => Err(bad(format!(
            "{header} is not a valid name; send up to 512 bytes of UTF-8 without control characters, or omit it"
        ))),
    }
}

/// One request being proxied.
struct Call<'a> {
    house: Arc<House>,
    upstream: Arc<Upstream>,
    head: &'a Parts,
    dialect: Dialect,
}

impl Call<'_> {
    /// Forwards the request unchanged and streams the response back.
    async fn pass(&self, bytes: Bytes, memory: Option<&'static str>) -> Result<Response, Refusal> {
        let user = self.caller().and_then(|caller| caller.user.clone());
        self.admit(user.as_deref()).await?;
        self.pass_for(user, bytes, memory).await
    }

    /// The same, for a user whose quota was already checked.
    async fn pass_for(
        &self,
        user: Option<String>,
        bytes: Bytes,
        memory: Option<&'static str>,
    ) -> Result<Response, Refusal> {
        let access = self.access().filter(|_| self.head.method == Method::POST).cloned();
        let counting = Counting { access, user, bytes: bytes.len() };
        let answered = self.send(bytes).await?;
        let mut response = self.begin_response(&answered);
        if let Some(memory) = memory {
            response.headers_mut().insert("x-icecore-memory", HeaderValue::from_static(memory));
        }
        *response.body_mut() = passed(answered, self.upstream.clone(), Some(counting));
        Ok(response)
    }

    fn caller(&self) -> Option<&Caller> {
        self.head.extensions.get()
    }

    fn access(&self) -> Option<&Arc<Access>> {
        self.head.extensions.get()
    }

    /// Checks the quota of the user's space, if that has not happened yet.
    async fn admit(&self, user: Option<&str>) -> Result<(), Refusal> {
        let Some(access) =
            self.access().filter(|_| self.caller().is_some_and(|caller| !caller.admitted))
        else {
            return Ok(());
        };
        access.admit(user, Takes::Model).await.map_err(|refused| Refusal::not_admitted(&refused))
    }

    async fn chat(&self, bytes: Bytes, mode: Option<Mode>) -> Result<Response, Refusal> {
        if self.head.headers.get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity") {
            self.house.failed("read", "the request is compressed, so memory cannot read it");
            return self.pass(bytes, Some("failed")).await;
        }
        let unfit = |unfit: Unfit| bad(unfit.to_string());
        let body = body::Body::read(&bytes).map_err(unfit)?;
        let Some((messages, told)) = Messages::read(&body, self.dialect).map_err(unfit)? else {
            // No messages: the upstream reports that better.
            return self.pass(bytes.clone(), Some("off")).await;
        };
        let heard = match self.heard(&body, told, mode)? {
            Ok(heard) => heard,
            Err(key) => {
                self.house.failed(
                    "read",
                    &format!("`{key}` of the request is not a valid name, so the user is unknown"),
                );
                return self.pass(bytes.clone(), Some("failed")).await;
            }
        };
        let Ok(user) = heard.user.as_deref().map_or(Ok(None), rights::named) else {
            self.house
                .failed("read", "the user name in the request is too long, so the user is unknown");
            return self.pass(bytes.clone(), Some("failed")).await;
        };
        self.admit(user.as_deref()).await?;
        let begun = match self.begin(heard).await {
            Ok(begun) => begun,
            Err(said) => {
                self.house.failed("begin", &said);
                return self.pass_for(user, bytes.clone(), Some("failed")).await;
            }
        };
        let streamed = body.object.get("stream").is_some_and(|stream| stream.get() == "true");
        let changed = messages::with_memory(&body, &messages, &begun, self.dialect);
        let named = Named { what: begun.conversation.clone(), user: user.clone() };
        let counting = Counting { access: self.access().cloned(), user, bytes: changed.len() };
        let mut exchange = Exchange::new(self.house.clone(), begun, self.dialect, counting);
        let answered = match self.send(Bytes::from(changed)).await {
            Ok(answered) => answered,
            Err(refusal) => {
                exchange.forget();
                return Err(refusal);
            }
        };
        self.house.metrics.injected(exchange.begun.injected_tokens, exchange.begun.left_out);
        let mut response = self.begin_response(&answered);
        tell(&exchange.begun, response.headers_mut());
        response.extensions_mut().insert(named);
        if !answered.status().is_success() {
            exchange.forget();
            *response.body_mut() = passed(answered, self.upstream.clone(), None);
            return Ok(response);
        }
        exchange.gather.status = answered.status().as_u16();
        let body = self.reply(answered, exchange, streamed, response.headers_mut()).await?;
        *response.body_mut() = body;
        Ok(response)
    }

    async fn reply(
        &self,
        answered: reqwest::Response,
        mut exchange: Exchange,
        streamed: bool,
        headers: &mut HeaderMap,
    ) -> Result<Body, Refusal> {
        let kind = answered
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        let coded =
            answered.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
        let mut flow = Flow {
            answered,
            upstream: self.upstream.clone(),
            tap: None,
            first: Bytes::new(),
            stage: Stage::Reading,
            exchange,
        };
        if coded {
            self.house.failed(
                "read",
                "the reply is compressed although that was not requested, so memory cannot read it",
            );
            flow.exchange.gather.missed();
            // Only the end of the reply can be held back, and a Content-Length would give that
            // away.
            headers.remove(CONTENT_LENGTH);
            return Ok(flow.body());
        }
        if kind.starts_with("text/event-stream")
            || (streamed && !kind.starts_with("application/json"))
        {
            flow.tap = Some(Tap::default());
            return Ok(flow.body());
        }
        let mut whole = BytesMut::new();
        loop {
            match flow.piece(self.upstream.silence()).await {
                Piece::Some(piece) => whole.extend_from_slice(&piece),
                Piece::End => break,
                Piece::Broken(unsent) => {
                    flow.exchange.end(false).await;
                    return Err(unreached(&self.house, &unsent));
                }
            }
            if whole.len() > MOST_WHOLE_BYTES {
                self.house.failed("read", "the reply is too long to be stored");
                flow.exchange.gather.missed();
                flow.first = whole.freeze();
                headers.remove(CONTENT_LENGTH);
                return Ok(flow.body());
            }
        }
        exchange = flow.exchange;
        exchange.gather.whole(&whole);
        if !exchange.end(true).await {
            headers.insert("x-icecore-memory", HeaderValue::from_static("failed"));
        }
        Ok(Body::from(whole.freeze()))
    }

    async fn send(&self, bytes: Bytes) -> Result<reqwest::Response, Refusal> {
        let began = self.house.clock.millis();
        let uri = &self.head.uri;
        let sent = self
            .upstream
            .send(&self.head.method, uri.path(), uri.query(), &self.head.headers, bytes)
            .await;
        self.house.metrics.took("upstream", self.house.clock.millis().saturating_sub(began));
        sent.map_err(|unsent| unreached(&self.house, &unsent))
    }

    fn begin_response(&self, answered: &reqwest::Response) -> Response {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answered.status();
        *response.headers_mut() = upstream::answered(answered.headers());
        response
    }

    async fn begin(&self, heard: Heard) -> Result<Begun, String> {
        let (began, patience) = (self.house.clock.millis(), self.house.limits.begin);
        let beginning = AssertUnwindSafe(self.house.mind.begin(heard)).catch_unwind();
        let begun = match timeout(patience, beginning).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(_)) => Err("memory panicked; this is a bug".into()),
            Err(_) => Err(format!("memory took longer than {} s", patience.as_secs_f32())),
        };
        self.house.metrics.took("begin", self.house.clock.millis().saturating_sub(began));
        begun
    }

    /// Builds the request for memory. Returns the name of a field instead if it should name the
    /// user but is not a valid name.
    fn heard(
        &self,
        body: &body::Body<'_>,
        told: Vec<Told>,
        mode: Option<Mode>,
    ) -> Result<Result<Heard, &'static str>, Refusal> {
        let headers = &self.head.headers;
        // Our own headers must be valid; headers of other programs are read leniently.
        for own in [USER, ids::CONVERSATION] {
            named(headers, own)?;
        }
        let ids = Ids::of(headers, body);
        let (conversation, history) = ids.conversation().unzip();
        let user = match ids.user(self.dialect) {
            Ok(user) => user,
            Err(key) => return Ok(Err(key)),
        };
        Ok(Ok(Heard {
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

fn unreached(house: &House, unsent: &Unsent) -> Refusal {
    let (status, code) = match unsent {
        Unsent::Path => return bad(unsent.to_string()),
        Unsent::Unreachable { .. } => (StatusCode::BAD_GATEWAY, "upstream_unreachable"),
        Unsent::Silent { .. } => (StatusCode::GATEWAY_TIMEOUT, "upstream_timeout"),
    };
    house.metrics.upstream_failed(code);
    (house.log)(&unsent.to_string());
    Refusal::new(status, code, unsent.to_string())
}

/// Reports what memory did, in headers.
fn tell(begun: &Begun, headers: &mut HeaderMap) {
    let mut ids = String::new();
    for id in &begun.injected {
        if ids.len() + id.len() + 1 > MOST_IDS_BYTES {
            break;
        }
        if !ids.is_empty() {
            ids.push(',');
        }
        ids.push_str(id);
    }
    let mut told = vec![
        ("x-icecore-memory", "on".to_owned()),
        ("x-icecore-conversation", begun.conversation.clone()),
        ("x-icecore-turn", begun.turn.to_string()),
        ("x-icecore-injected-tokens", begun.injected_tokens.to_string()),
        ("x-icecore-left-out", begun.left_out.to_string()),
        ("x-icecore-cost-tokens", begun.cost_tokens.to_string()),
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
fn passed(
    answered: reqwest::Response,
    upstream: Arc<Upstream>,
    counting: Option<Counting>,
) -> Body {
    Body::from_stream(stream::unfold(Some((answered, counting)), move |answered| {
        let upstream = upstream.clone();
        async move {
            let (mut answered, mut counting) = answered?;
            match timeout(upstream.silence(), answered.chunk()).await {
                Ok(Ok(Some(piece))) => {
                    if let Some(counting) = &mut counting {
                        counting.bytes += piece.len();
                    }
                    Some((Ok(piece), Some((answered, counting))))
                }
                Ok(Ok(None)) => None,
                Ok(Err(error)) => Some((Err(std::io::Error::other(upstream.broken(&error))), None)),
                Err(_) => Some((Err(std::io::Error::other(upstream.silent())), None)),
            }
        }
    }))
}

/// An exchange that was prepared and must be persisted. Dropping it means that the client
/// disconnected.
struct Exchange {
    house: Arc<House>,
    begun: Arc<Begun>,
    gather: Gather,
    counting: Counting,
    is_over: bool,
}

impl Exchange {
    fn new(house: Arc<House>, begun: Begun, dialect: Dialect, counting: Counting) -> Self {
        Self {
            house,
            begun: Arc::new(begun),
            gather: Gather::new(dialect),
            counting,
            is_over: false,
        }
    }

    /// Discards the exchange: the upstream returned no reply.
    fn forget(&mut self) {
        self.counting.access = None;
        self.is_over = true;
    }

    /// Persists the exchange and waits until that succeeds, fails or takes too long. Returns
    /// whether it is persisted. Persisting continues even if the client disconnects.
    async fn end(&mut self, is_whole: bool) -> bool {
        let patience = self.house.limits.end;
        let Some(told) = self.told(is_whole) else { return true };
        match timeout(patience, told).await {
            Ok(kept) => kept.unwrap_or(false),
            Err(_) => {
                self.house.failed(
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
    fn told(&mut self, is_whole: bool) -> Option<oneshot::Receiver<bool>> {
        if std::mem::replace(&mut self.is_over, true) {
            return None;
        }
        let mut reply = self.gather.reply();
        reply.complete &= is_whole;
        // The usage reported by the model, else an estimate.
        self.counting.bytes = match reply.usage {
            Some((read, written)) => usize::try_from(read.saturating_add(written))
                .unwrap_or(usize::MAX)
                .saturating_mul(TOKEN_BYTES),
            None => self.counting.bytes + reply.text.len(),
        };
        if !reply.complete {
            self.house.metrics.cut();
        }
        let (house, begun) = (self.house.clone(), self.begun.clone());
        let open = self.house.ends.enter();
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        let (first, answer) = oneshot::channel();
        runtime.spawn(async move {
            let began = house.clock.millis();
            let kept = keep(&house, &begun, reply.clone()).await;
            house.metrics.took("end", house.clock.millis().saturating_sub(began));
            let _ = first.send(kept.is_ok());
            if let Err(unkept) = kept {
                house.failed("end", &unkept.said);
                if unkept.may_pass {
                    keep_trying(&house, &begun, reply).await;
                }
            }
            drop(open);
        });
        Some(answer)
    }
}

async fn keep(house: &House, begun: &Begun, reply: Reply) -> Result<(), Unkept> {
    let ended = AssertUnwindSafe(house.mind.end(begun, reply)).catch_unwind().await;
    ended.unwrap_or_else(|_| Err(Unkept::for_good("memory panicked; this is a bug")))
}

/// Retries persisting until it succeeds, fails permanently or takes too long.
async fn keep_trying(house: &House, begun: &Begun, reply: Reply) {
    let lost = |said: &str| {
        (house.log)(&format!(
            "an exchange is lost, and its client was told that it is not persisted: {said}"
        ))
    };
    let bytes = u32::try_from(reply.text.len() + reply.parts.as_ref().map_or(0, String::len))
        .unwrap_or(u32::MAX);
    let Ok(_room) = house.unkept.try_acquire_many(bytes.max(LEAST_UNKEPT_BYTES)) else {
        return lost("too many exchanges are already waiting for a retry");
    };
    let mut pause = FIRST_PAUSE;
    let until = tokio::time::Instant::now() + TRIED_FOR;
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        match keep(house, begun, reply.clone()).await {
            Ok(()) => {
                return (house.log)("an exchange was persisted after a retry");
            }
            Err(unkept) if !unkept.may_pass || tokio::time::Instant::now() > until => {
                return lost(&unkept.said);
            }
            Err(_) => {}
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let _ = self.told(false);
    }
}

/// A reply being streamed to the client.
struct Flow {
    answered: reqwest::Response,
    upstream: Arc<Upstream>,
    /// Reads the stream; `None` if it cannot be parsed.
    tap: Option<Tap>,
    /// Bytes to send first.
    first: Bytes,
    stage: Stage,
    exchange: Exchange,
}

enum Stage {
    /// More follows.
    Reading,
    /// The last event, or the end of the stream, was read.
    Last { is_end: bool },
    /// The exchange is persisted; the upstream has not closed the connection yet.
    After,
    /// The stream broke.
    Broken(Unsent),
    /// Everything was sent.
    Over,
}

enum Piece {
    Some(Bytes),
    End,
    Broken(Unsent),
}

impl Flow {
    fn body(self) -> Body {
        Body::from_stream(stream::unfold(self, |mut flow| async move {
            flow.next().await.map(|item| (item, flow))
        }))
    }

    async fn piece(&mut self, patience: Duration) -> Piece {
        match timeout(patience, self.answered.chunk()).await {
            Ok(Ok(Some(piece))) => Piece::Some(piece),
            Ok(Ok(None)) => Piece::End,
            Ok(Err(error)) => Piece::Broken(self.upstream.broken(&error)),
            Err(_) => Piece::Broken(self.upstream.silent()),
        }
    }

    async fn next(&mut self) -> Option<Result<Bytes, std::io::Error>> {
        if !self.first.is_empty() {
            return Some(Ok(std::mem::take(&mut self.first)));
        }
        loop {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Reading => {
                    self.stage = Stage::Reading;
                    if let Some(bytes) = self.read().await {
                        return Some(Ok(bytes));
                    }
                }
                Stage::Last { is_end } => {
                    let is_kept = self.exchange.end(true).await;
                    self.stage = if is_end { Stage::Over } else { Stage::After };
                    if let Some(held) = self.release() {
                        return Some(Ok(if is_kept {
                            held
                        } else {
                            [NOT_KEPT, &held].concat().into()
                        }));
                    }
                }
                Stage::After => match self.piece(AFTER.min(self.upstream.silence())).await {
                    Piece::Some(piece) => {
                        self.stage = Stage::After;
                        return Some(Ok(piece));
                    }
                    // An upstream that sent its last event need not close the connection cleanly.
                    Piece::End | Piece::Broken(_) => {}
                },
                Stage::Broken(unsent) => {
                    self.exchange.end(false).await;
                    if let Some(held) = self.release() {
                        self.stage = Stage::Broken(unsent);
                        return Some(Ok(held));
                    }
                    let _ = unreached(&self.exchange.house, &unsent);
                    return Some(Err(std::io::Error::other(unsent)));
                }
                Stage::Over => return None,
            }
        }
    }

    /// Reads from the upstream; returns bytes to forward and sets the stage.
    async fn read(&mut self) -> Option<Bytes> {
        let holds = self.tap.as_ref().is_some_and(Tap::is_holding);
        let patience = self.upstream.silence();
        let piece = if holds {
            // A separate timeout: expiry does not mean that the upstream is silent.
            match timeout(HOLD, self.piece(patience)).await {
                Ok(piece) => piece,
                Err(_) => return self.release(),
            }
        } else {
            self.piece(patience).await
        };
        let Self { tap, exchange, .. } = self;
        match (piece, tap) {
            (Piece::Some(piece), Some(tap)) => {
                let out = tap.take(&piece, &mut exchange.gather);
                if tap.is_closed() {
                    self.stage = Stage::Last { is_end: false };
                }
                (!out.is_empty()).then(|| out.into())
            }
            (Piece::Some(piece), None) => Some(piece),
            (Piece::End, tap) => {
                if let Some(tap) = tap {
                    tap.finish(&mut exchange.gather);
                }
                self.stage = Stage::Last { is_end: true };
                None
            }
            (Piece::Broken(unsent), tap) => {
                if let Some(tap) = tap {
                    tap.finish(&mut exchange.gather);
                }
                self.stage = Stage::Broken(unsent);
                None
            }
        }
    }

    fn release(&mut self) -> Option<Bytes> {
        self.tap.as_mut().map(Tap::release).filter(|held| !held.is_empty()).map(Into::into)
    }
}
