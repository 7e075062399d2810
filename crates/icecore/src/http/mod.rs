//! The HTTP server: memory behind the chat APIs that clients already speak.
//!
//! `guard` authenticates and authorizes requests, `ids` finds the conversation and end user,
//! `body`, `messages`, `openai` and `anthropic` read and edit requests, `proxy` and `upstream`
//! carry them to the model, `tap` copies the reply stream as it passes. `chat_memory` is the only
//! interface to memory.

mod anthropic;
mod auth;
mod body;
pub mod chat_memory;
mod http_error;
mod ids;
pub mod logins;
mod messages;
mod metrics;
mod openai;
mod proxy;
mod stream_tap;
#[cfg(test)]
mod tests;
mod upstream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{any, get};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use icecore_engine::clock::Clock;
use icecore_engine::settings::ModelSettings;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

pub use auth::{AuditSubject, Credential, RequestCaller, ServerToken, TokenSource, TokenVerifier};
use chat_memory::{ChatMemory, NotReady, ReadinessCheck};
use http_error::HttpError;
pub use http_error::api_error as own_refusal;

use crate::dashboard;

/// The response to a denied operation.
pub fn denied_response(denied: &crate::permissions::AccessDenied) -> Response {
    HttpError::from_denied(denied)
        .response_for_path(crate::mcp::PATH, chat_memory::ChatDialect::OpenAi)
}

/// The response to a request that exceeds a quota.
pub fn quota_response(refused: &crate::access::AdmissionError) -> Response {
    HttpError::from_admission_error(refused)
        .response_for_path(crate::mcp::PATH, chat_memory::ChatDialect::OpenAi)
}

/// The settings of a server.
pub struct HttpServerConfig {
    /// The address to listen on; port 0 picks a free one.
    pub addr: SocketAddr,
    /// The upstream model.
    pub chat: ModelSettings,
    /// Whether a client may send its own upstream key in `X-Icecore-Upstream-Authorization` if none
    /// is configured.
    pub forward_auth: bool,
    /// The tokens that are accepted.
    pub keys: Arc<TokenVerifier>,
    /// Browser sessions, if the dashboard is served.
    pub logins: Option<Arc<logins::LoginStore>>,
    /// Whether it may listen on other addresses than loopback; this needs a token set by the user.
    pub allow_remote: bool,
    /// Host names accepted besides those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages accepted besides its own, like `http://localhost:5173`.
    pub allowed_origins: Vec<String>,
    pub limits: ServerLimits,
    /// Measures durations.
    pub clock: Arc<dyn Clock>,
    /// The log. It never receives secrets or anything a user wrote.
    pub log: LogFn,
    /// The readiness check.
    pub ready: Arc<dyn ReadinessCheck>,
}

/// Receives log lines.
pub type LogFn = Arc<dyn Fn(&str) + Send + Sync>;

/// Limits on sizes, counts and durations.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    pub body_bytes: usize,
    /// The longest pause within a body.
    pub body_silence: Duration,
    pub body_whole: Duration,
    /// The longest time for the head of a request, and between requests of a connection.
    pub head: Duration,
    /// Open connections; further ones wait.
    pub connections: usize,
    /// Open requests; further ones are rejected with 503.
    pub requests: usize,
    /// The longest time for memory before a request is forwarded without it.
    pub begin: Duration,
    /// The longest time that the last bytes of a reply wait for memory.
    pub end: Duration,
    /// The longest silence of the upstream.
    pub silence: Duration,
    /// How long open replies may go on during shutdown.
    pub drain: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            body_bytes: 32 << 20,
            body_silence: Duration::from_secs(30),
            body_whole: Duration::from_secs(300),
            head: Duration::from_secs(30),
            connections: 4_096,
            requests: 2_048,
            begin: Duration::from_secs(10),
            end: Duration::from_secs(10),
            silence: Duration::from_secs(600),
            drain: Duration::from_secs(30),
        }
    }
}

/// Everything that answering a request needs.
struct AppState {
    memory: Arc<dyn ChatMemory>,
    ready: Arc<dyn ReadinessCheck>,
    upstream: Option<Arc<upstream::Upstream>>,
    guard: auth::RequestGuard,
    metrics: metrics::ServerMetrics,
    limits: ServerLimits,
    requests: Arc<Semaphore>,
    /// Bounds the bytes of replies that wait for a retry of `persist_reply`.
    retry_bytes: Semaphore,
    clock: Arc<dyn Clock>,
    log: LogFn,
    persisting: PersistCounter,
    is_stopping: AtomicBool,
}

impl AppState {
    /// Counts and logs a failure of memory.
    fn report_memory_failure(&self, phase: &'static str, said: &str) {
        self.metrics.count_memory_failure(phase);
        (self.log)(&format!("memory failed ({phase}): {said}"));
    }
}

/// Counts the replies that are being persisted.
struct PersistCounter(watch::Sender<usize>);

/// One reply that is being persisted.
struct PersistGuard(watch::Sender<usize>);

impl PersistCounter {
    fn start(&self) -> PersistGuard {
        self.0.send_modify(|open| *open += 1);
        PersistGuard(self.0.clone())
    }

    async fn wait_until_zero(&self) {
        // The sender lives as long as `self`, so this cannot fail.
        let _ = self.0.subscribe().wait_for(|open| *open == 0).await;
    }
}

impl Drop for PersistGuard {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// A running server.
pub struct RunningServer {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningServer {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Runs until a signal arrives, then stops. `closing` ends streams that would never end by
    /// themselves.
    pub async fn until_signal(mut self, closing: impl FnOnce()) -> Result<()> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut end = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = end.recv() => {}
            _ = interrupt.recv() => {}
            ended = &mut self.task => return ended.context("the server ended"),
        }
        closing();
        self.stop().await
    }

    /// Stops accepting connections, finishes open replies within their limit, and returns when all
    /// exchanges are persisted.
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(true);
        self.task.await.context("the server ended")
    }
}

/// Starts a server. `extra` holds more routes under the same guard; it must have no fallback.
pub async fn serve(
    settings: HttpServerConfig,
    chat_memory: Arc<dyn ChatMemory>,
    extra: Router,
) -> Result<RunningServer> {
    let HttpServerConfig {
        addr,
        chat,
        forward_auth,
        keys,
        logins,
        allow_remote,
        allowed_hosts,
        allowed_origins,
        limits,
        clock,
        log,
        ready,
    } = settings;
    let door = auth::RequestGuard::new(addr, keys, allow_remote, &allowed_hosts, &allowed_origins)?
        .with_logins(logins);
    let upstream = upstream::Upstream::open(&chat, forward_auth, limits.silence)?.map(Arc::new);
    let listener = TcpListener::bind(addr)
        .await
        .with_context(|| format!("cannot listen on {addr}; is another server running there?"))?;
    let addr = listener.local_addr()?;
    let requests = Arc::new(Semaphore::new(limits.requests));
    let app = Arc::new(AppState {
        memory: chat_memory,
        ready,
        upstream,
        guard: door,
        metrics: metrics::ServerMetrics::new(),
        limits,
        requests,
        retry_bytes: Semaphore::new(proxy::MAX_RETRY_BYTES),
        clock,
        log,
        persisting: PersistCounter(watch::Sender::new(0)),
        is_stopping: AtomicBool::new(false),
    });
    let router = router(&app, extra);
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(accept_connections(listener, router, app, stopped));
    Ok(RunningServer { addr, stop, task })
}

fn router(app: &Arc<AppState>, extra: Router) -> Router {
    let extra = extra
        .layer(from_fn_with_state(app.clone(), auth::limit_body_time))
        .layer(DefaultBodyLimit::max(app.limits.body_bytes));
    Router::new()
        .route("/v1/{*rest}", any(proxy::handle_v1))
        .route("/livez", get(|| async { text_response(StatusCode::OK, "ok\n") }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_response))
        .merge(dashboard::router())
        .with_state(app.clone())
        .merge(extra)
        .fallback(not_found)
        .layer(from_fn(strip_cors_headers))
        .layer(from_fn_with_state(app.clone(), auth::guard_request))
}

fn text_response(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn readyz(State(app): State<Arc<AppState>>) -> Response {
    const READY_TIMEOUT: Duration = Duration::from_secs(5);
    let ready = match timeout(READY_TIMEOUT, app.ready.check_ready()).await {
        _ if app.is_stopping.load(Ordering::Relaxed) => {
            Err(NotReady::new("the server is shutting down", ""))
        }
        Ok(ready) => ready,
        Err(_) => Err(NotReady::new("memory does not answer", "")),
    };
    match ready {
        Ok(()) => text_response(StatusCode::OK, "ready\n"),
        Err(NotReady { brief, message: said }) => {
            let more = if said.is_empty() { String::new() } else { format!(" ({said})") };
            (app.log)(&format!("not ready: {brief}{more}"));
            text_response(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {brief}\n"))
        }
    }
}

async fn metrics_response(State(app): State<Arc<AppState>>) -> Response {
    let backlog = app.ready.job_backlog().await;
    let mut response =
        text_response(StatusCode::OK, app.metrics.render(app.ready.database_figures(), &backlog));
    let kind =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn not_found(request: Request) -> Response {
    let path = request.uri().path();
    no_such_route().response_for_path(path, http_error::dialect_of(path, request.headers()))
}

/// The refusal where no route matches.
fn no_such_route() -> HttpError {
    let said = "no such route; the dashboard is at /, chat clients use /v1, and GET /api documents the memory API (write a slash within a name as %2F)";
    HttpError::new(StatusCode::NOT_FOUND, "not_found", said)
}

/// Removes CORS headers from every response, so that no other web page can read it.
async fn strip_cors_headers(request: Request, next: axum::middleware::Next) -> Response {
    let mut response = next.run(request).await;
    let opening: Vec<_> = response
        .headers()
        .keys()
        .filter(|name| name.as_str().starts_with("access-control-"))
        .cloned()
        .collect();
    for name in opening {
        response.headers_mut().remove(name);
    }
    response
}

async fn accept_connections(
    listener: TcpListener,
    router: Router,
    app: Arc<AppState>,
    mut stopped: watch::Receiver<bool>,
) {
    const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(app.limits.head).max_buf_size(128 << 10);
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    let places = Arc::new(Semaphore::new(app.limits.connections));
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            next = next => next,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = accepted else {
            // Too many open files, mostly; that passes.
            tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let connection = builder
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            // A client may disconnect at any time.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    app.is_stopping.store(true, Ordering::Relaxed);
    if timeout(app.limits.drain, graceful.shutdown()).await.is_err() {
        (app.log)("some replies were still open at shutdown and were cut off");
    }
    connections.shutdown().await;
    if timeout(app.limits.end, app.persisting.wait_until_zero()).await.is_err() {
        (app.log)("memory did not persist every exchange before shutdown");
    }
}
