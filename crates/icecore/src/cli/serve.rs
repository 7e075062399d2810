//! `serve`: the HTTP server: chat proxy, API, MCP and dashboard.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use icecore_engine::clock::SystemClock;
use icecore_engine::settings::Provider;

use super::GlobalArgs;
use super::output::Output;
use crate::access::{self, AccessControl};
use crate::api::{self, live::LiveUpdates};
use crate::bootstrap::{self, LazyEmbedder};
use crate::error::{AppError, Exit};
use crate::http::logins::LoginStore;
use crate::http::{
    self, Credential, HttpServerConfig, ServerLimits, ServerToken, TokenSource, TokenVerifier,
};
use crate::mcp;
use crate::permissions::{Permission, Permissions};
use crate::spaces::{SpaceRegistry, SpacesChatMemory};
use crate::store_location::StoreLocation;

/// How long summarizing may continue after the server was asked to stop.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub struct ServeArgs {
    /// The address to listen on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<SocketAddr>,
    /// The folder of this server's memory, created if missing; your vault if not given
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Listen on an address that other machines can reach; needs your own token in ICECORE_TOKEN or
    /// ICECORE_TOKEN_FILE
    #[arg(long)]
    allow_remote: bool,
    /// Another host name of this server; may be given more than once
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// A web origin that may call it, like http://localhost:5173; may be given more than once
    #[arg(long, value_name = "ORIGIN")]
    allowed_origin: Vec<String>,
    /// If [chat] has no key, let clients send their own in X-Icecore-Upstream-Authorization
    #[arg(long)]
    forward_auth: bool,
}

/// Runs `icecore serve`.
pub async fn serve(global: &GlobalArgs, serve: &ServeArgs, out: &mut Output) -> Result<()> {
    if global.now.is_some() {
        return Err(
            AppError::new(Exit::Usage, "a server uses the real clock; leave --now out").into()
        );
    }
    icecore_engine::llm::install_crypto();
    let models = Arc::new(bootstrap::open_models()?);
    let home = bootstrap::resolve_root(global, serve.root.as_deref()).await?;
    let environment = |name: &str| std::env::var(name).ok();
    let token = ServerToken::find_or_create(&environment, &bootstrap::token_path())?;
    let read_token = ServerToken::find_read_only(&environment, &token)?;
    let token_said = token.source.clone();
    let log: http::LogFn = Arc::new(|line: &str| {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{line}");
    });
    let spaces = SpaceRegistry::new(home.clone(), models.clone(), log.clone())?;
    // Fail now if the store cannot be opened.
    spaces.chats(None).await?;
    // A read-only database would accept reads and lose writes: `/readyz` reports it too, but the
    // administrator reads this first.
    if let Some(database) = home.database() {
        if let Err(error) = database.check_writable().await {
            out.warn(error.to_string());
        }
        bootstrap::warn_of_login(database, out).await;
    }
    let addr = serve.addr.unwrap_or(models.settings.server.addr);
    let clock = Arc::new(SystemClock);
    let per_minute = models.settings.server.requests_per_minute;
    let access = access::DatabaseStore::from_location(&home)
        .ok()
        .map(|home| AccessControl::new(home, per_minute, clock.clone(), log.clone()));
    let keys = TokenVerifier::new(token, read_token, access.clone());
    let logins = LoginStore::new(keys.clone(), clock.clone());
    let serving = HttpServerConfig {
        addr,
        chat: models.settings.chat.clone(),
        forward_auth: serve.forward_auth,
        keys,
        logins: Some(logins.clone()),
        allow_remote: serve.allow_remote,
        allowed_hosts: serve.allowed_host.clone(),
        allowed_origins: serve.allowed_origin.clone(),
        limits: ServerLimits::default(),
        clock,
        log: log.clone(),
        ready: spaces.clone(),
    };
    let meanings = LazyEmbedder::new(log.clone());
    let assistants = mcp::McpServer::new(
        mcp::ServedMemories::Spaces(spaces.clone()),
        meanings.clone(),
        Permissions::of([Permission::Write]),
        log.clone(),
    );
    let live = LiveUpdates::new(spaces.clone());
    let routes = api::router(
        spaces.clone(),
        meanings,
        Some(logins.clone()),
        access.clone(),
        live.clone(),
        log.clone(),
    )
    .merge(mcp::http::router(assistants));
    let running = http::serve(serving, Arc::new(SpacesChatMemory(spaces.clone())), routes).await?;
    spaces.start_reflection_loop();
    // The link grants access, so it is not written to logs.
    let link = if out.is_json() || out.is_on_terminal() {
        Some(format!(
            "http://{}/#code={}",
            running.addr(),
            logins.create_code(Credential::owner())?.secret
        ))
    } else {
        None
    };
    print_startup(out, &running.addr(), &home, &token_said, &models, link.as_deref())?;
    running.until_signal(|| live.close()).await?;
    if let Some(access) = access
        && !access.flush(SETTLE_TIMEOUT).await
    {
        out.info("Some entries could not be written to the audit log");
    }
    out.info("Finishing pending summaries");
    if !spaces.wait_for_reflections(SETTLE_TIMEOUT).await {
        out.info("Some turns are not summarized yet; the server does it when it runs again");
    }
    Ok(())
}

fn print_startup(
    out: &mut Output,
    addr: &SocketAddr,
    location: &StoreLocation,
    token: &TokenSource,
    models: &bootstrap::Models,
    link: Option<&str>,
) -> Result<()> {
    let token = match token {
        TokenSource::Set(name) => format!("from {name}"),
        TokenSource::File(file) => format!("in {}", file.display()),
        TokenSource::Made(file) => format!("created now, in {}", file.display()),
    };
    if out.is_json() {
        out.json(&serde_json::json!({ "addr": addr.to_string(), "home": location.to_string(), "token": token, "login": link }))?;
        return out.flush();
    }
    out.line(format!("Listening on http://{addr}"))?;
    out.flush()?;
    out.info(format!("  memory   {location}"));
    out.info(format!("  token    {token}"));
    let (chat, place) = (&models.settings.chat, models.place.display());
    match chat.provider {
        Provider::None | Provider::Command => {
            out.info(format!("  model    none: set [chat] in {place} and restart; without it chats cannot be forwarded"));
        }
        Provider::OpenAi | Provider::Anthropic => {
            out.info(format!("  model    {} at {}", chat.model, chat.base_url))
        }
    }
    if models.summarizer.is_none() {
        out.info(format!(
            "  memory works by rules alone: set [summarizer] in {place} to use a model for it"
        ));
    }
    match link {
        Some(link) => out.info(format!(
            "  browser  {link}  (works once, within ten minutes; `icecore dashboard` prints another)"
        )),
        None => out.info(format!(
            "  browser  `icecore dashboard --addr {addr}` prints a login link"
        )),
    }
    out.info(format!("  routes   http://{addr}/api lists them"));
    Ok(())
}
