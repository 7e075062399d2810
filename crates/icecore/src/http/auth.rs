//! Authentication and limits of the HTTP server.
//!
//! By default the server listens on loopback only, needs a token for every operation, and answers
//! no web pages but its own. Requests are bounded in size, time and number.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, stream};
use hyper::body::{Frame, SizeHint};
use icecore_store::postgres::AuditEvent;
use icecore_store::staged_dir::StagedDir;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::http_error::{self, HttpError};
use super::logins::{self, LoginStore};
use super::{AppState, ServerLimits};
use crate::access::{self, AccessControl, QuotaClass};
use crate::api::call::USER_HEADER;
use crate::permissions::{self, AccessDenied, Grant, Operation, OperationTarget, Permission};

/// The length of a token that a user may set.
const MIN_TOKEN_BYTES: usize = 16;
const MAX_TOKEN_BYTES: usize = 4_096;
/// How many times the body limit is read and dropped, so that the client gets the error.
const MAX_DROPPED_FACTOR: usize = 4;
/// The most bytes of the subject in the audit log.
const MAX_SUBJECT_BYTES: usize = 300;
/// How often the token behind an event stream is checked again.
const TOKEN_RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// A token of the server. Only its hash is stored.
#[derive(Clone)]
pub struct ServerToken {
    hash: [u8; 32],
    pub source: TokenSource,
}

/// Where a token came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// The user set it, in this variable.
    Set(&'static str),
    /// It is in this file, which icecore created.
    File(PathBuf),
    /// The same, and it was created just now.
    Made(PathBuf),
}

impl ServerToken {
    /// The token from the environment, else from `file`, which is created if it is missing.
    pub fn find_or_create(
        environment: &dyn Fn(&str) -> Option<String>,
        file: &Path,
    ) -> anyhow::Result<Self> {
        let set = |name: &str| {
            environment(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        match (set("ICECORE_TOKEN"), set("ICECORE_TOKEN_FILE")) {
            (Some(_), Some(_)) => {
                bail!("ICECORE_TOKEN and ICECORE_TOKEN_FILE are both set; keep one")
            }
            (Some(token), None) => {
                Self::parse(&token, TokenSource::Set("ICECORE_TOKEN")).context("ICECORE_TOKEN")
            }
            (None, Some(path)) => Self::parse(
                &read_token_file(Path::new(&path))?,
                TokenSource::Set("ICECORE_TOKEN_FILE"),
            )
            .context("ICECORE_TOKEN_FILE"),
            (None, None) if file.exists() => {
                Self::parse(&read_private_file(file)?, TokenSource::File(file.to_owned()))
                    .with_context(|| file.display().to_string())
            }
            (None, None) => Self::create_file(file),
        }
    }

    /// The token itself, for a client on this machine; an error if there is none.
    pub fn read_secret(
        environment: &dyn Fn(&str) -> Option<String>,
        file: &Path,
    ) -> anyhow::Result<String> {
        let set = |name: &str| {
            environment(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        match (set("ICECORE_TOKEN"), set("ICECORE_TOKEN_FILE")) {
            (Some(token), _) => Ok(token),
            (None, Some(path)) => read_token_file(Path::new(&path)),
            (None, None) if file.exists() => read_private_file(file),
            (None, None) => bail!("there is no token yet; `icecore serve` creates one"),
        }
    }

    /// A token that already exists.
    pub fn parse(token: &str, source: TokenSource) -> anyhow::Result<Self> {
        if token.len() < MIN_TOKEN_BYTES
            || token.len() > MAX_TOKEN_BYTES
            || !token.bytes().all(|byte| byte.is_ascii_graphic())
        {
            bail!(
                "a token needs at least {MIN_TOKEN_BYTES} visible ASCII characters without blanks; create one with `openssl rand -hex 32`"
            );
        }
        Ok(Self { hash: Sha256::digest(token).into(), source })
    }

    fn create_file(file: &Path) -> anyhow::Result<Self> {
        let mut random = [0_u8; 32];
        getrandom::fill(&mut random)
            .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
        let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let token = format!("icecore_{hex}");
        let (Some(folder), Some(name)) =
            (file.parent(), file.file_name().and_then(|name| name.to_str()))
        else {
            bail!("{} is not a valid path for the token file", file.display());
        };
        let stage = StagedDir::create(folder)?;
        // Another process was faster.
        if file.exists() {
            return Self::parse(&read_private_file(file)?, TokenSource::File(file.to_owned()));
        }
        writeln!(stage.create_file(name)?, "{token}")
            .with_context(|| format!("{} cannot be written", file.display()))?;
        stage.commit(name)?;
        Self::parse(&token, TokenSource::Made(file.to_owned()))
    }

    /// The read-only token, if one is set.
    pub fn find_read_only(
        environment: &dyn Fn(&str) -> Option<String>,
        other: &Self,
    ) -> anyhow::Result<Option<Self>> {
        const READ_TOKEN_VAR: &str = "ICECORE_READ_TOKEN";
        let Some(set) = environment(READ_TOKEN_VAR)
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
        else {
            return Ok(None);
        };
        let token = Self::parse(&set, TokenSource::Set(READ_TOKEN_VAR)).context(READ_TOKEN_VAR)?;
        if token.hash == other.hash {
            bail!("{READ_TOKEN_VAR} equals the token that may also write; choose another");
        }
        Ok(Some(token))
    }

    /// Whether the user chose it.
    pub fn is_set(&self) -> bool {
        matches!(self.source, TokenSource::Set(_))
    }

    /// Compares in constant time, by hash, so that timing reveals nothing.
    pub(super) fn matches(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        shown.iter().zip(self.hash).fold(0_u8, |differs, (one, other)| differs | (one ^ other)) == 0
    }
}

/// The token in the file that icecore created; if others can read it, it is not a secret any more.
fn read_private_file(file: &Path) -> anyhow::Result<String> {
    let found =
        std::fs::metadata(file).with_context(|| format!("{} cannot be read", file.display()))?;
    if found.permissions().mode() & 0o077 != 0 {
        bail!(
            "{} contains a token and other users can read it; run `chmod 600 {}`",
            file.display(),
            file.display()
        );
    }
    read_token_file(file)
}

/// The token in a file that the user named. Its permissions are not checked: mounted secrets are
/// often readable by all.
fn read_token_file(file: &Path) -> anyhow::Result<String> {
    let token = std::fs::read_to_string(file)
        .with_context(|| format!("{} cannot be read", file.display()))?;
    Ok(token.trim().to_owned())
}

/// Accepted tokens: the server's own, and those issued in a database.
pub struct TokenVerifier {
    token: ServerToken,
    /// The read-only token.
    read_token: Option<ServerToken>,
    /// Looks up issued tokens, if memory is in a database.
    access: Option<Arc<AccessControl>>,
}

/// What an authenticated caller is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credential {
    pub grant: Arc<Grant>,
    /// The hash of the token, if it was issued and may be revoked.
    pub looked_up: Option<[u8; 32]>,
}

impl Credential {
    /// The credential of the server's own token.
    pub fn owner() -> Self {
        Self { grant: Arc::new(Grant::owner()), looked_up: None }
    }

    fn anonymous() -> Self {
        Self { grant: Arc::new(Grant::anonymous()), looked_up: None }
    }
}

impl TokenVerifier {
    /// Combines the server's tokens with issued ones.
    pub fn new(
        token: ServerToken,
        read_token: Option<ServerToken>,
        access: Option<Arc<AccessControl>>,
    ) -> Arc<Self> {
        Arc::new(Self { token, read_token, access })
    }

    /// The access control of the database, if there is one.
    pub fn access_control(&self) -> Option<&Arc<AccessControl>> {
        self.access.as_ref()
    }

    /// Checks a token. An error means that the lookup failed.
    pub async fn verify(&self, shown: &[u8]) -> anyhow::Result<Option<Credential>> {
        if self.token.matches(shown) {
            return Ok(Some(Credential::owner()));
        }
        if self.read_token.as_ref().is_some_and(|token| token.matches(shown)) {
            return Ok(Some(Credential { grant: Arc::new(Grant::read_only()), looked_up: None }));
        }
        // Skip the lookup for strings that cannot be a token: anyone could send them.
        if !access::is_token_format(shown) {
            return Ok(None);
        }
        self.verify_hash(Sha256::digest(shown).into()).await
    }

    /// Looks up an issued token by its hash.
    async fn verify_hash(&self, hash: [u8; 32]) -> anyhow::Result<Option<Credential>> {
        let Some(access) = &self.access else { return Ok(None) };
        Ok(access
            .lookup_grant(hash)
            .await?
            .map(|grant| Credential { grant, looked_up: Some(hash) }))
    }

    /// Checks a credential again; `None` if the token was revoked.
    pub async fn recheck(&self, held: Credential) -> anyhow::Result<Option<Credential>> {
        match held.looked_up {
            None => Ok(Some(held)),
            Some(hash) => self.verify_hash(hash).await,
        }
    }
}

/// Checks the host, the origin and the credentials of a request.
pub struct RequestGuard {
    keys: Arc<TokenVerifier>,
    /// The accepted host names, in lower case, without ports.
    hosts: Vec<String>,
    /// Accepted origins besides its own.
    origins: Vec<String>,
    /// Listens on every address, so any IP address is accepted as host; names could be rebound.
    any_address: bool,
    /// Browser sessions.
    logins: Option<Arc<LoginStore>>,
}

/// The authenticated caller of a request, and whose memory it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestCaller {
    pub held: Credential,
    /// Whether a cookie authenticated the caller.
    pub by_cookie: bool,
    /// The end user whose memory it is about, if it is one's.
    pub user: Option<String>,
    /// Whether the space's quota was checked. A chat may name its user only in the body.
    pub admitted: bool,
}

/// A rejected request, with the caller as far as known.
pub struct RejectedRequest {
    refusal: HttpError,
    by: Option<Credential>,
}

impl From<HttpError> for RejectedRequest {
    fn from(refusal: HttpError) -> Self {
        Self { refusal, by: None }
    }
}

/// The error for a failed token lookup. Only the log says why: the caller is not authenticated.
fn lookup_failed() -> HttpError {
    let said = "your token cannot be checked now; retry in a moment";
    HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "try_later", said)
}

impl RequestGuard {
    /// Creates the guard of a server at `addr`; an error if it may not listen there.
    pub fn new(
        addr: SocketAddr,
        keys: Arc<TokenVerifier>,
        allow_remote: bool,
        allowed_hosts: &[String],
        allowed_origins: &[String],
    ) -> anyhow::Result<Self> {
        if !addr.ip().is_loopback() {
            if !allow_remote {
                bail!(
                    "{addr} can be reached from other machines; listen on 127.0.0.1 or pass --allow-remote"
                );
            }
            if !keys.token.is_set() {
                bail!(
                    "{addr} can be reached from other machines, so set a token of your own: ICECORE_TOKEN or ICECORE_TOKEN_FILE"
                );
            }
        }
        let mut hosts = vec!["localhost".to_owned(), addr.ip().to_string()];
        hosts.extend(allowed_hosts.iter().map(|host| host.trim().to_ascii_lowercase()));
        let origins = allowed_origins
            .iter()
            .map(|origin| origin.trim().trim_end_matches('/').to_ascii_lowercase())
            .collect();
        Ok(Self { keys, hosts, origins, any_address: addr.ip().is_unspecified(), logins: None })
    }

    /// Adds browser sessions.
    pub fn with_logins(self, logins: Option<Arc<LoginStore>>) -> Self {
        Self { logins, ..self }
    }

    /// Authorizes a request and finds whose memory it is about. `route` is the route that the
    /// router matched, if any.
    pub async fn authorize(
        &self,
        now: Timestamp,
        method: &Method,
        uri: &Uri,
        route: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<RequestCaller, RejectedRequest> {
        let host = self.check_host(uri, headers)?;
        self.check_origin(&host, headers)?;
        let asks = method == Method::GET || method == Method::HEAD;
        let is_open = asks && permissions::is_public(uri.path());
        // A login sends its credential in the body and checks it itself.
        if is_open || (*method == Method::POST && uri.path() == "/api/login") {
            return Ok(RequestCaller {
                held: Credential::anonymous(),
                by_cookie: false,
                user: None,
                admitted: false,
            });
        }
        let (held, by_cookie) = match self.authenticate_token(headers).await? {
            Some(held) => (Some(held), false),
            None => (self.authenticate_cookie(&host, asks, uri.path(), headers).await?, true),
        };
        let wanted = Operation::Request(method, uri.path());
        if headers.get_all(USER_HEADER).iter().nth(1).is_some() {
            // Ambiguous: a proxy in between may have added its own.
            let said = "X-Icecore-User was sent more than once; send it once or omit it";
            return Err(HttpError::new(StatusCode::BAD_REQUEST, "invalid_request", said).into());
        }
        if headers.get(USER_HEADER).is_some_and(|value| value.as_bytes().trim_ascii().is_empty()) {
            // A front end that sends an empty name for a guest would show the operator's memory.
            let said = "X-Icecore-User is empty; name the end user, or omit the header to use the server's own memory";
            return Err(HttpError::new(StatusCode::BAD_REQUEST, "invalid_request", said).into());
        }
        let asked = headers.get(USER_HEADER).map(|value| String::from_utf8_lossy(value.as_bytes()));
        let grant = held.as_ref().map(|held| &*held.grant);
        let allowed = match permissions::authorise(grant, now, wanted, asked.as_deref()) {
            // If the router and the permission table match different routes, the permission of one
            // says nothing about the other.
            Ok(_) if permissions::route_of(uri.path()) != route => Err(AccessDenied::Undeclared),
            allowed => allowed,
        };
        match allowed {
            // No route answers this path.
            Err(AccessDenied::Undeclared) if route.is_none() => {
                Err(RejectedRequest { refusal: super::no_such_route(), by: held })
            }
            Ok(user) => Ok(RequestCaller {
                held: held.unwrap_or_else(Credential::anonymous),
                by_cookie,
                user,
                admitted: false,
            }),
            Err(AccessDenied::Unknown) => {
                Err(unauthorized_error(headers, self.keys.access.is_some()).into())
            }
            Err(denied) => {
                Err(RejectedRequest { refusal: HttpError::from_denied(&denied), by: held })
            }
        }
    }

    /// Authenticates a browser by its cookie. The cookie works only on this server's own routes and
    /// pages, and a write also needs a header that other sites' pages cannot send.
    async fn authenticate_cookie(
        &self,
        host: &Authority,
        asks: bool,
        path: &str,
        headers: &HeaderMap,
    ) -> Result<Option<Credential>, HttpError> {
        let Some(logins) = self.logins.as_ref().filter(|_| path.starts_with("/api/")) else {
            return Ok(None);
        };
        let Some(held) = logins.session_of(host, headers) else { return Ok(None) };
        let from = headers
            .get(HeaderName::from_static("sec-fetch-site"))
            .map(|value| value.as_bytes().to_ascii_lowercase());
        let from_own = match from.as_deref() {
            None | Some(b"same-origin") => true,
            Some(b"none") => asks,
            Some(_) => false,
        };
        let own_origin = headers.get_all(ORIGIN).iter().all(|origin| {
            let origin = origin.as_bytes().to_ascii_lowercase();
            ["http", "https"].iter().any(|scheme| {
                origin == format!("{scheme}://{host}").to_ascii_lowercase().into_bytes()
            })
        });
        if !from_own || !own_origin {
            let said = "the session cookie works only on this server's own pages; send a token";
            return Err(HttpError::new(StatusCode::FORBIDDEN, "origin_not_allowed", said));
        }
        if !asks && !logins::has_csrf_header(headers) {
            let said = "a write with a session cookie needs the header X-Icecore-Csrf: 1";
            return Err(HttpError::new(StatusCode::FORBIDDEN, "csrf", said));
        }
        let still = self.keys.recheck(held).await.map_err(|_| lookup_failed())?;
        if still.is_none() {
            logins.end_session(host, headers);
        }
        Ok(still)
    }

    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<Authority, HttpError> {
        let refused = || {
            let said = "host name not allowed; use http://127.0.0.1 and the port, or add the name with --allowed-host";
            HttpError::new(StatusCode::FORBIDDEN, "host_not_allowed", said)
        };
        let mut given = headers.get_all(HOST).iter();
        let (Some(host), None) = (given.next(), given.next()) else { return Err(refused()) };
        let host: Authority =
            host.to_str().ok().and_then(|host| host.parse().ok()).ok_or_else(refused)?;
        let knows = |authority: &Authority| {
            !authority.as_str().contains('@') && self.is_allowed_host(authority.host())
        };
        if knows(&host) && uri.authority().is_none_or(knows) { Ok(host) } else { Err(refused()) }
    }

    fn is_allowed_host(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let address = bare.parse::<IpAddr>().ok();
        address.is_some_and(|address| address.is_loopback() || self.any_address)
            || self.hosts.contains(&bare)
    }

    fn check_origin(&self, host: &Authority, headers: &HeaderMap) -> Result<(), HttpError> {
        let refused = || {
            let said = "origin not allowed; the server answers only its own pages and programs, or add the origin with --allowed-origin";
            HttpError::new(StatusCode::FORBIDDEN, "origin_not_allowed", said)
        };
        let mut allowed = false;
        for origin in headers.get_all(ORIGIN) {
            let origin = origin.to_str().map_err(|_| refused())?.to_ascii_lowercase();
            let own = ["http", "https"]
                .iter()
                .any(|scheme| origin == format!("{scheme}://{host}").to_ascii_lowercase());
            if !own && !self.origins.contains(&origin) {
                return Err(refused());
            }
            allowed = true;
        }
        let from = headers
            .get(HeaderName::from_static("sec-fetch-site"))
            .map(|value| value.as_bytes().to_ascii_lowercase());
        match from.as_deref() {
            Some(b"cross-site" | b"same-site") if !allowed => Err(refused()),
            _ => Ok(()),
        }
    }

    /// Authenticates a request by its token, if it has a valid one.
    async fn authenticate_token(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<Credential>, HttpError> {
        for shown in sent_credentials(headers).into_iter().flatten() {
            if let Some(held) = self.keys.verify(shown).await.map_err(|_| lookup_failed())? {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }
}

/// The credentials a request sends: a bearer token, an API key.
fn sent_credentials(headers: &HeaderMap) -> [Option<&[u8]>; 2] {
    let bearer = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).and_then(|value| {
        let (scheme, token) = value.split_at_checked("bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
    });
    [bearer, headers.get(HeaderName::from_static("x-api-key")).map(|value| value.as_bytes())]
}

/// The error for a missing or invalid token. Wrong, expired and revoked look the same to the
/// caller.
fn unauthorized_error(headers: &HeaderMap, has_tokens: bool) -> HttpError {
    let said = match sent_credentials(headers) {
        [None, None] => {
            "no token was sent; send the server's token as `Authorization: Bearer …` or as the API key of your client"
        }
        _ if has_tokens => {
            "the token is invalid, expired or revoked; create another with `icecore db token add`"
        }
        _ => {
            "the token is not this server's; use the one in ICECORE_TOKEN or in the file that the server prints at startup"
        }
    };
    HttpError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", said)
}

/// The quotas that a request counts against.
fn quota_class(method: &Method, path: &str) -> QuotaClass {
    match Operation::Request(method, path).required_permission() {
        Some(Permission::Proxy) if *method == Method::POST => QuotaClass::Model,
        // Deleting frees storage.
        Some(Permission::Write)
            if *method != Method::DELETE
                && !matches!(path, "/api/forget" | "/api/undo" | "/api/prune") =>
        {
            QuotaClass::Storage
        }
        _ => QuotaClass::Compute,
    }
}

/// What the audit log records about a request, besides its path.
#[derive(Debug, Clone, Default)]
pub struct AuditSubject {
    /// The subject: the tool or the conversation.
    pub what: String,
    /// The end user, if only the body names one.
    pub user: Option<String>,
}

/// Admits or rejects a request, counts it and writes the audit log.
pub(super) async fn guard_request(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let (route, dialect) =
        (http_error::route_label(&method, &path), http_error::dialect_of(&path, request.headers()));
    let by;
    // A token lookup costs something too, so the request limit is checked first; health checks are
    // exempt.
    let permit = app.requests.clone().try_acquire_owned().ok();
    let busy = || {
        HttpError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "too_busy",
            "too many concurrent requests; retry in a moment",
        )
    };
    let asked = if permit.is_none() && route != "health" {
        Err(busy().into())
    } else {
        authenticate(&app, &method, &path, &mut request).await
    };
    let entered = match asked {
        Ok(caller) => {
            by = Some((caller.held.clone(), caller.user.clone()));
            permit.map(|permit| (caller, permit)).ok_or_else(busy)
        }
        Err(RejectedRequest { refusal, by: held }) => {
            by = held.map(|held| (held.clone(), held.grant.space.clone()));
            Err(refusal)
        }
    };
    let mut response = match entered {
        // Health checks are answered however busy the server is.
        Err(refusal)
            if route == "health" && refusal.status() == StatusCode::SERVICE_UNAVAILABLE =>
        {
            next.run(request).await
        }
        Err(refusal) => refusal.response_for_path(&path, dialect),
        Ok((caller, permit)) => {
            let looked_up = caller.held.looked_up.map(|_| caller.held.clone());
            request.extensions_mut().insert(caller);
            app.metrics.open.inc();
            let open = OpenRequest { app: app.clone(), _permit: permit };
            let response = next.run(request).await;
            let lasts = response
                .headers()
                .get(CONTENT_TYPE)
                .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
            let response = match looked_up.filter(|_| lasts && path.starts_with("/api/")) {
                Some(held) => response.map(|body| until_revoked(app.clone(), held, body)),
                None => response,
            };
            response.map(|body| Body::new(CountedBody { body, _open: open }))
        }
    };
    app.metrics.count_request(route, response.status().as_u16());
    if let (Some(access), Some((held, user))) = (app.guard.keys.access_control(), by)
        && !held.grant.id.is_empty()
    {
        let named = response.extensions_mut().remove::<AuditSubject>().unwrap_or_default();
        let (user, what) = (user.or(named.user), format!("{path} {}", named.what));
        let door = match route {
            "mcp" => "mcp",
            "api" | "metrics" => "api",
            "other" | "dashboard" | "health" => "other",
            _ => "chat",
        };
        access.record_event(AuditEvent {
            at: app.clock.now(),
            who: user.clone().unwrap_or_default(),
            space: access.store().space_name(user.as_deref()),
            token: held.grant.id.clone(),
            interface: door.into(),
            action: method.to_string(),
            target: icecore_domain::budget::truncate_at_word(
                icecore_domain::sanitize::one_line(&what).trim(),
                MAX_SUBJECT_BYTES,
            ),
            status: response.status().as_u16(),
        });
    }
    response
}

/// Authenticates the request. For a token bound to a space, sets the user header to that space,
/// whatever the request says.
async fn authenticate(
    app: &AppState,
    method: &Method,
    path: &str,
    request: &mut Request,
) -> Result<RequestCaller, RejectedRequest> {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map(MatchedPath::as_str);
    let mut caller = app
        .guard
        .authorize(app.clock.now(), method, request.uri(), route, request.headers())
        .await?;
    check_declared_length(request.headers(), &app.limits)?;
    let grant = &caller.held.grant;
    if let Some(own) = grant
        .space
        .as_deref()
        .filter(|_| Operation::Request(method, path).target() == Some(OperationTarget::Asked))
    {
        let own = HeaderValue::from_bytes(own.as_bytes()).map_err(|_| lookup_failed())?;
        request.headers_mut().insert(HeaderName::from_static(USER_HEADER), own);
    }
    if let Some(access) = app.guard.keys.access_control().filter(|_| !grant.id.is_empty()) {
        let (takes, is_asked) = (
            quota_class(method, path),
            Operation::Request(method, path).target() == Some(OperationTarget::Asked),
        );
        let may_be_named_later = takes == QuotaClass::Model && caller.user.is_none();
        if (is_asked && !may_be_named_later) || caller.user.is_some() {
            if let Err(refused) = access.admit(caller.user.as_deref(), takes).await {
                return Err(RejectedRequest {
                    refusal: HttpError::from_admission_error(&refused),
                    by: Some(caller.held.clone()),
                });
            }
            caller.admitted = true;
        }
        request.extensions_mut().insert(access.clone());
    }
    Ok(caller)
}

/// The declared length of a body.
fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok())
}

fn too_large(limits: &ServerLimits) -> HttpError {
    let said = format!("the body is larger than {} bytes; send less", limits.body_bytes);
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", said)
}

/// Rejects a body at once whose declared length exceeds what would be read and dropped.
fn check_declared_length(headers: &HeaderMap, limits: &ServerLimits) -> Result<(), HttpError> {
    let most =
        u64::try_from(limits.body_bytes.saturating_mul(MAX_DROPPED_FACTOR)).unwrap_or(u64::MAX);
    if declared_length(headers).is_some_and(|bytes| bytes > most) {
        Err(too_large(limits))
    } else {
        Ok(())
    }
}

/// A body that ends when the caller's token expires or is revoked.
fn until_revoked(app: Arc<AppState>, held: Credential, body: Body) -> Body {
    let gone = async move {
        loop {
            tokio::time::sleep(TOKEN_RECHECK_INTERVAL).await;
            let expired = held.grant.expires.is_some_and(|end| end <= app.clock.now());
            if expired || matches!(app.guard.keys.recheck(held.clone()).await, Ok(None)) {
                return;
            }
        }
    };
    Body::from_stream(body.into_data_stream().take_until(Box::pin(gone)))
}

/// Counts a request as open while it lives.
struct OpenRequest {
    app: Arc<AppState>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.app.metrics.open.dec();
    }
}

/// A body that counts as open until it is sent.
struct CountedBody {
    body: Body,
    _open: OpenRequest,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Reads a request's body within the limits.
pub(super) async fn read_body(
    body: Body,
    headers: &HeaderMap,
    limits: &ServerLimits,
) -> Result<Bytes, HttpError> {
    let too_large = || too_large(limits);
    let announced = declared_length(headers);
    // A client that waits for `100 Continue` gets the error before it sends the body.
    if announced.is_some_and(|bytes| bytes > limits.body_bytes as u64)
        && headers.contains_key(EXPECT)
    {
        return Err(too_large());
    }
    let slow = || {
        let said = "the body did not arrive in time; send it without pauses";
        HttpError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", said)
    };
    let reading = async {
        let (mut pieces, mut whole, mut dropped) =
            (body.into_data_stream(), BytesMut::new(), 0_usize);
        loop {
            match timeout(limits.body_silence, pieces.next()).await {
                Err(_) => return Err(slow()),
                Ok(None) if dropped > 0 => return Err(too_large()),
                Ok(None) => return Ok(whole.freeze()),
                Ok(Some(Err(_))) => {
                    return Err(HttpError::new(
                        StatusCode::BAD_REQUEST,
                        "incomplete_body",
                        "the request body ended early; send it again",
                    ));
                }
                Ok(Some(Ok(piece)))
                    if dropped > 0 || whole.len() + piece.len() > limits.body_bytes =>
                {
                    dropped += piece.len() + std::mem::take(&mut whole).len();
                    if dropped > limits.body_bytes.saturating_mul(MAX_DROPPED_FACTOR) {
                        return Err(too_large());
                    }
                }
                Ok(Some(Ok(piece))) => whole.extend_from_slice(&piece),
            }
        }
    };
    timeout(limits.body_whole, reading).await.unwrap_or_else(|_| Err(slow()))
}

/// Applies the time limit to bodies that a route reads by itself.
pub(super) async fn limit_body_time(
    State(app): State<Arc<AppState>>,
    request: Request,
    next: Next,
) -> Response {
    let silence = app.limits.body_silence;
    next.run(request.map(|body| {
        Body::from_stream(stream::unfold(Some(body.into_data_stream()), move |pieces| async move {
            let mut pieces = pieces?;
            match timeout(silence, pieces.next()).await {
                Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
                Ok(Some(Err(error))) => Some((Err(std::io::Error::other(error)), None)),
                Ok(None) => None,
                Err(_) => Some((Err(std::io::ErrorKind::TimedOut.into()), None)),
            }
        }))
    }))
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-token-of-some-length";
    const READ_SECRET: &str = "a-token-for-reading-only";

    fn guard_for(addr: &str) -> RequestGuard {
        let token = ServerToken::parse(SECRET, TokenSource::Set("ICECORE_TOKEN")).unwrap();
        let (hosts, origins) = (["Memory.Local".to_owned()], ["http://localhost:5173/".to_owned()]);
        let read_token =
            ServerToken::parse(READ_SECRET, TokenSource::Set("ICECORE_READ_TOKEN")).unwrap();
        RequestGuard::new(
            addr.parse().unwrap(),
            TokenVerifier::new(token, Some(read_token), None),
            true,
            &hosts,
            &origins,
        )
        .unwrap()
    }

    fn check(door: &RequestGuard, path: &str, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let method = if path.starts_with("POST ") { Method::POST } else { Method::GET };
        let uri: Uri = path.trim_start_matches("POST ").parse().unwrap();
        let route = permissions::route_of(uri.path()).or(Some("/undeclared"));
        let checked =
            pollster::block_on(door.authorize(Timestamp::UNIX_EPOCH, &method, &uri, route, &map));
        checked.err().map_or(200, |turned| turned.refusal.status().as_u16())
    }

    #[test]
    fn only_who_belongs_here_comes_in() {
        let door = guard_for("127.0.0.1:7431");
        let host = ("host", "127.0.0.1:7431");
        let bearer = format!("Bearer {SECRET}");
        let token = ("authorization", bearer.as_str());
        for (path, headers, status) in [
            // The token, in either place.
            ("/v1/models", vec![host, token], 200),
            ("/v1/models", vec![host, ("authorization", "bearer  a-token-of-some-length")], 200),
            ("/v1/models", vec![host, ("x-api-key", SECRET)], 200),
            (
                "/v1/models",
                vec![host, ("authorization", "Bearer wrong"), ("x-api-key", SECRET)],
                200,
            ),
            ("/v1/models", vec![host], 401),
            ("/v1/models", vec![host, ("authorization", SECRET)], 401),
            ("/v1/models", vec![host, ("authorization", "Bearer ")], 401),
            ("/v1/models", vec![host, ("authorization", "Bearer a-token-of-some-lengtH")], 401),
            ("/v1/models", vec![host, ("authorization", "Basic a-token-of-some-length")], 401),
            ("/v1/models", vec![host, ("x-api-key", "a-token-of-some-lengt")], 401),
            // Routes that need no token, for reading only.
            ("/livez", vec![host], 200),
            ("/readyz", vec![host], 200),
            ("/", vec![host], 200),
            ("/app.js", vec![host], 200),
            ("/app.js/x", vec![host], 401),
            ("POST /app.js", vec![host], 401),
            ("/api", vec![host], 200),
            ("/api/openapi.json", vec![host], 200),
            ("/api/", vec![host], 401),
            ("/api/status", vec![host], 401),
            ("POST /api", vec![host], 401),
            ("POST /", vec![host], 401),
            ("/livez/x", vec![host], 401),
            ("//livez", vec![host], 401),
            ("/metrics", vec![host], 401),
            ("/unknown", vec![host], 401),
            // The host name; it stops DNS rebinding.
            ("/v1/x", vec![("host", "localhost"), token], 200),
            ("/v1/x", vec![("host", "LOCALHOST:1"), token], 200),
            ("/v1/x", vec![("host", "[::1]:7431"), token], 200),
            ("/v1/x", vec![("host", "127.1.2.3"), token], 200),
            ("/v1/x", vec![("host", "memory.local:7431"), token], 200),
            ("/v1/x", vec![("host", "evil.example"), token], 403),
            ("/livez", vec![("host", "evil.example")], 403),
            ("/v1/x", vec![("host", "localhost.evil.example"), token], 403),
            ("/v1/x", vec![("host", "127.0.0.1.evil.example"), token], 403),
            ("/v1/x", vec![("host", "localhost@evil.example"), token], 403),
            ("/v1/x", vec![("host", "evil.example@localhost"), token], 403),
            ("/v1/x", vec![("host", "192.168.0.7"), token], 403),
            ("/v1/x", vec![("host", ""), token], 403),
            ("/v1/x", vec![token], 403),
            ("/v1/x", vec![host, ("host", "evil.example"), token], 403),
            ("http://evil.example/v1/x", vec![host, token], 403),
            ("http://127.0.0.1:7431/v1/x", vec![host, token], 200),
            // The origin.
            ("/v1/x", vec![host, token, ("origin", "http://127.0.0.1:7431")], 200),
            ("/v1/x", vec![host, token, ("origin", "http://localhost:5173")], 200),
            ("/v1/x", vec![host, token, ("origin", "http://localhost:7431")], 403),
            ("/v1/x", vec![host, token, ("origin", "http://127.0.0.1:1")], 403),
            ("/v1/x", vec![host, token, ("origin", "null")], 403),
            ("/v1/x", vec![host, token, ("origin", "")], 403),
            ("/v1/x", vec![host, token, ("origin", "https://evil.example")], 403),
            ("/livez", vec![host, ("origin", "https://evil.example")], 403),
            (
                "/v1/x",
                vec![
                    host,
                    token,
                    ("origin", "http://127.0.0.1:7431"),
                    ("origin", "https://evil.example"),
                ],
                403,
            ),
            ("/v1/x", vec![host, token, ("sec-fetch-site", "cross-site")], 403),
            ("/v1/x", vec![host, token, ("sec-fetch-site", "same-site")], 403),
            ("/v1/x", vec![host, token, ("sec-fetch-site", "same-origin")], 200),
            ("/v1/x", vec![host, token, ("sec-fetch-site", "none")], 200),
            (
                "/v1/x",
                vec![
                    host,
                    token,
                    ("sec-fetch-site", "same-site"),
                    ("origin", "http://localhost:5173"),
                ],
                200,
            ),
        ] {
            assert_eq!(check(&door, path, &headers), status, "{path} {headers:?}");
        }
        // When listening on all addresses, any address is accepted, but no name.
        let wide = guard_for("0.0.0.0:7431");
        assert_eq!(check(&wide, "/v1/x", &[("host", "192.168.0.7:7431"), token]), 200);
        assert_eq!(check(&wide, "/v1/x", &[("host", "evil.example"), token]), 403);
    }

    #[test]
    fn other_machines_get_in_only_if_a_person_wants_it_and_has_set_a_token() {
        let own = ServerToken::parse(SECRET, TokenSource::Set("ICECORE_TOKEN")).unwrap();
        let made = ServerToken::parse(SECRET, TokenSource::File("/x".into())).unwrap();
        for (addr, token, allow, fine) in [
            ("127.0.0.1:0", &made, false, true),
            ("127.5.0.1:0", &made, false, true),
            ("[::1]:0", &made, false, true),
            ("0.0.0.0:0", &own, false, false),
            ("0.0.0.0:0", &made, true, false),
            ("0.0.0.0:0", &own, true, true),
            ("[::]:0", &own, false, false),
            ("192.168.0.7:0", &own, false, false),
            ("[::ffff:127.0.0.1]:0", &own, false, false),
        ] {
            assert_eq!(
                RequestGuard::new(
                    addr.parse().unwrap(),
                    TokenVerifier::new(token.clone(), None, None),
                    allow,
                    &[],
                    &[]
                )
                .is_ok(),
                fine,
                "{addr} {allow}"
            );
        }
    }

    #[test]
    fn who_may_only_read_writes_through_no_route() {
        let door = guard_for("127.0.0.1:7431");
        let (host, token) = (("host", "127.0.0.1:7431"), ("x-api-key", READ_SECRET));
        for (path, status) in [
            ("/api/status", 200),
            ("/api/search?q=x", 200),
            ("/metrics", 200),
            ("POST /api/events", 403),
            ("POST /api/messages", 403),
            ("POST /state/append-log", 403),
            ("/v1/models", 403),
            ("POST /v1/chat/completions", 403),
            ("POST /unknown", 403),
            // For MCP each tool is checked by itself.
            ("POST /mcp", 200),
            ("POST /mcp/x", 403),
        ] {
            assert_eq!(check(&door, path, &[host, token]), status, "{path}");
        }
        let both = |name: &str| (name == "ICECORE_READ_TOKEN").then(|| SECRET.to_owned());
        let own = ServerToken::parse(SECRET, TokenSource::Set("ICECORE_TOKEN")).unwrap();
        assert!(
            ServerToken::find_read_only(&both, &own).is_err()
                && ServerToken::find_read_only(&|_| None, &own).unwrap().is_none()
        );
        assert!(ServerToken::find_read_only(&|_| Some("short".into()), &own).is_err());
    }

    #[test]
    fn a_token_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("icecore").join("token");
        let nothing = |_: &str| None;
        let made = ServerToken::find_or_create(&nothing, &file).unwrap();
        assert_eq!(made.source, TokenSource::Made(file.clone()));
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(made.matches(text.trim().as_bytes()) && text.trim().len() == 72);
        let again = ServerToken::find_or_create(&nothing, &file).unwrap();
        assert_eq!(
            (again.hash, again.source.clone(), again.is_set()),
            (made.hash, TokenSource::File(file.clone()), false)
        );
        // A token set by the user wins.
        let set = |name: &str| (name == "ICECORE_TOKEN").then(|| SECRET.to_owned());
        assert!(ServerToken::find_or_create(&set, &file).unwrap().is_set());
        let path = file.to_str().unwrap().to_owned();
        let from_file = move |name: &str| (name == "ICECORE_TOKEN_FILE").then(|| path.clone());
        assert!(
            ServerToken::find_or_create(&from_file, Path::new("/nowhere/token")).unwrap().is_set()
        );
        assert!(
            ServerToken::find_or_create(&|_| Some("both-of-them-are-set".into()), &file).is_err()
        );
        for wrong in ["short", "with blanks in between it", "with-ümlauts-in-between-it"] {
            assert!(
                ServerToken::find_or_create(
                    &|name| (name == "ICECORE_TOKEN").then(|| wrong.to_owned()),
                    &file
                )
                .is_err(),
                "{wrong}"
            );
        }
        // A file that others can read is not secret.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let said = ServerToken::find_or_create(&nothing, &file).err().unwrap().to_string();
        assert!(said.contains("chmod 600") && !said.contains(text.trim()), "{said}");
    }
}
