//! The server: memory behind the interfaces that chat clients know.
//!
//! `mind` is the border to memory. `guard` decides who comes in, `proxy` carries requests and
//! replies, `upstream` is the way to the model's server, `ids` says whose a request is, `body`,
//! `messages`, `openai` and `anthropic` read and change what is said, `tap` reads a stream along.

mod anthropic;
mod body;
mod guard;
mod ids;
pub mod logins;
mod messages;
mod metrics;
pub mod mind;
mod openai;
mod proxy;
mod refuse;
mod tap;
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
use icecore_engine::settings::Model;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

pub use guard::{Caller, Held, Keys, Named, Source, Token};
use mind::{Mind, NotReady, Ready};
use refuse::Refusal;
pub use refuse::own as own_refusal;

use crate::dashboard;

/// The answer to somebody who may not do what they ask for.
pub fn denied(denied: &crate::rights::Denied) -> Response {
    Refusal::of(denied).answer(crate::mcp::PATH, mind::Dialect::OpenAi)
}

/// The answer to a request that its space may not make now.
pub fn not_admitted(refused: &crate::access::NotAdmitted) -> Response {
    Refusal::not_admitted(refused).answer(crate::mcp::PATH, mind::Dialect::OpenAi)
}

/// What a server is told.
pub struct Serving {
    /// Where it listens; port 0 takes a free one.
    pub addr: SocketAddr,
    /// The model's server.
    pub chat: Model,
    /// Whether, if no key is set for the model's server, a client may send its own in
    /// `X-Icecore-Upstream-Authorization`.
    pub forward_auth: bool,
    /// What lets a client in.
    pub keys: Arc<Keys>,
    /// Browsers that are logged in, where there is something for them.
    pub logins: Option<Arc<logins::Logins>>,
    /// Whether it may listen where other machines reach it; the token must then be a person's own.
    pub allow_remote: bool,
    /// Names under which it may be asked, beside this machine's.
    pub allowed_hosts: Vec<String>,
    /// Web pages that may ask, beside its own, like `http://localhost:5173`.
    pub allowed_origins: Vec<String>,
    /// Its limits.
    pub limits: Limits,
    /// What measures how long things take.
    pub clock: Arc<dyn Clock>,
    /// Where it says what went wrong. No secret and nothing of what anybody wrote is ever told.
    pub log: Log,
    /// Who says whether it can work.
    pub ready: Arc<dyn Ready>,
}

/// Where lines for a person go.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// How much, how many and how long.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The largest body.
    pub body_bytes: usize,
    /// The longest pause within a body.
    pub body_silence: Duration,
    /// The longest time for a body.
    pub body_whole: Duration,
    /// The longest time for the head of a request, and between requests of a connection.
    pub head: Duration,
    /// Connections at once; more wait.
    pub connections: usize,
    /// Requests at once; more are told to come again.
    pub requests: usize,
    /// The longest time that memory may take before a request goes on without it.
    pub begin: Duration,
    /// The longest time that the last bytes of a reply wait for memory.
    pub end: Duration,
    /// The longest silence of the model's server.
    pub silence: Duration,
    /// How long open replies may go on after the server was told to stop.
    pub drain: Duration,
}

impl Default for Limits {
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
struct House {
    mind: Arc<dyn Mind>,
    ready: Arc<dyn Ready>,
    upstream: Option<Arc<upstream::Upstream>>,
    door: guard::Door,
    metrics: metrics::Metrics,
    limits: Limits,
    requests: Arc<Semaphore>,
    /// Bytes of exchanges that may wait to be kept after all.
    unkept: Semaphore,
    clock: Arc<dyn Clock>,
    log: Log,
    ends: Ends,
    is_stopping: AtomicBool,
}

impl House {
    /// Counts and tells that memory failed.
    fn failed(&self, phase: &'static str, said: &str) {
        self.metrics.memory_failed(phase);
        (self.log)(&format!("memory failed ({phase}): {said}"));
    }
}

/// How many exchanges are being kept right now.
struct Ends(watch::Sender<usize>);

/// One exchange that is being kept.
struct Ending(watch::Sender<usize>);

impl Ends {
    fn enter(&self) -> Ending {
        self.0.send_modify(|open| *open += 1);
        Ending(self.0.clone())
    }

    async fn all_over(&self) {
        // The sender lives as long as this, so there is no error to tell.
        let _ = self.0.subscribe().wait_for(|open| *open == 0).await;
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// A server at work.
pub struct Running {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Running {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Works until the system or a person wants it to end, then stops; `closing` ends what would go
    /// on for ever by itself.
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

    /// Takes no more connections, finishes open replies within their bound, and returns when all
    /// exchanges are kept.
    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(true);
        self.task.await.context("the server ended")
    }
}

/// Starts a server. `extra` are more routes, which stand under the same guard; it must have no
/// fallback of its own.
pub async fn serve(settings: Serving, mind: Arc<dyn Mind>, extra: Router) -> Result<Running> {
    let Serving {
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
    let door =
        guard::Door::new(addr, keys, allow_remote, &allowed_hosts, &allowed_origins)?.with(logins);
    let upstream = upstream::Upstream::open(&chat, forward_auth, limits.silence)?.map(Arc::new);
    let listener = TcpListener::bind(addr)
        .await
        .with_context(|| format!("{addr} cannot be listened on; is another server there?"))?;
    let addr = listener.local_addr()?;
    let requests = Arc::new(Semaphore::new(limits.requests));
    let house = Arc::new(House {
        mind,
        ready,
        upstream,
        door,
        metrics: metrics::Metrics::new(),
        limits,
        requests,
        unkept: Semaphore::new(proxy::UNKEPT_BYTES),
        clock,
        log,
        ends: Ends(watch::Sender::new(0)),
        is_stopping: AtomicBool::new(false),
    });
    let router = router(&house, extra);
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(accept(listener, router, house, stopped));
    Ok(Running { addr, stop, task })
}

fn router(house: &Arc<House>, extra: Router) -> Router {
    let extra = extra
        .layer(from_fn_with_state(house.clone(), guard::bounded))
        .layer(DefaultBodyLimit::max(house.limits.body_bytes));
    Router::new()
        .route("/v1/{*rest}", any(proxy::v1))
        .route("/livez", get(|| async { plain(StatusCode::OK, "ok\n") }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(counted))
        .merge(dashboard::router())
        .with_state(house.clone())
        .merge(extra)
        .fallback(nowhere)
        .layer(from_fn(sealed))
        .layer(from_fn_with_state(house.clone(), guard::watch))
}

fn plain(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

async fn readyz(State(house): State<Arc<House>>) -> Response {
    const PATIENCE: Duration = Duration::from_secs(5);
    let ready = match timeout(PATIENCE, house.ready.ready()).await {
        _ if house.is_stopping.load(Ordering::Relaxed) => Err(NotReady::new("it is stopping", "")),
        Ok(ready) => ready,
        Err(_) => Err(NotReady::new("memory does not answer", "")),
    };
    match ready {
        Ok(()) => plain(StatusCode::OK, "ready\n"),
        Err(NotReady { brief, said }) => {
            let more = if said.is_empty() { String::new() } else { format!(" ({said})") };
            (house.log)(&format!("not ready: {brief}{more}"));
            plain(StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {brief}\n"))
        }
    }
}

async fn counted(State(house): State<Arc<House>>) -> Response {
    let backlog = house.ready.backlog().await;
    let mut response = plain(StatusCode::OK, house.metrics.text(house.ready.figures(), &backlog));
    let kind =
        HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn nowhere(request: Request) -> Response {
    let path = request.uri().path();
    nothing_here().answer(path, refuse::dialect(path, request.headers()))
}

/// That no route answers.
fn nothing_here() -> Refusal {
    let said = "there is nothing here; people look at / of this server, chat clients use its /v1, and GET /api shows its memory's routes (in a path, the slash of a name is %2F)";
    Refusal::new(StatusCode::NOT_FOUND, "not_found", said)
}

/// No answer, whoever wrote it, opens this server to web pages of others.
async fn sealed(request: Request, next: axum::middleware::Next) -> Response {
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

async fn accept(
    listener: TcpListener,
    router: Router,
    house: Arc<House>,
    mut stopped: watch::Receiver<bool>,
) {
    const AFTER_TROUBLE: Duration = Duration::from_millis(100);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(house.limits.head).max_buf_size(128 << 10);
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    let places = Arc::new(Semaphore::new(house.limits.connections));
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
            tokio::time::sleep(AFTER_TROUBLE).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let connection = builder
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            // That a client hangs up is its own affair.
            let _ = connection.await;
            drop(place);
        });
    }
    drop(listener);
    house.is_stopping.store(true, Ordering::Relaxed);
    if timeout(house.limits.drain, graceful.shutdown()).await.is_err() {
        (house.log)("some replies were still open and are cut off");
    }
    connections.shutdown().await;
    if timeout(house.limits.end, house.ends.all_over()).await.is_err() {
        (house.log)("memory did not keep every exchange in time");
    }
}
