//! `serve`: the HTTP server: chat proxy, API, MCP and dashboard.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use icecore_engine::clock::SystemClock;
use icecore_engine::settings::Provider;

use super::Global;
use super::out::Out;
use crate::access::{self, Access};
use crate::api::{self, live::Live};
use crate::error::{Exit, Stop};
use crate::http::logins::Logins;
use crate::http::{self, Held, Keys, Limits, Serving, Source, Token};
use crate::mcp;
use crate::place::Place;
use crate::rights::{Right, Rights};
use crate::spaces::{Chatting, Spaces};
use crate::wire::{self, Meanings};

/// How long summarizing may continue after the server was asked to stop.
const SETTLING: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub struct Serve {
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

pub async fn serve(global: &Global, serve: &Serve, out: &mut Out) -> Result<()> {
    if global.now.is_some() {
        return Err(Stop::new(Exit::Usage, "a server uses the real clock; leave --now out").into());
    }
    icecore_engine::llm::install_crypto();
    let models = Arc::new(wire::models()?);
    let home = wire::home_of(global, serve.root.as_deref()).await?;
    let environment = |name: &str| std::env::var(name).ok();
    let token = Token::find(&environment, &wire::token_file())?;
    let read_token = Token::find_read(&environment, &token)?;
    let token_said = token.source.clone();
    let log: http::Log = Arc::new(|line: &str| {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "{line}");
    });
    let spaces = Spaces::new(home.clone(), models.clone(), log.clone())?;
    // Fail now if the store cannot be opened.
    spaces.of(None).await?;
    // A read-only database would accept reads and lose writes: `/readyz` reports it too, but the
    // administrator reads this first.
    if let Some(database) = home.database() {
        if let Err(error) = database.takes_writes().await {
            out.warn(error.to_string());
        }
        wire::warn_of_login(database, out).await;
    }
    let addr = serve.addr.unwrap_or(models.settings.server.addr);
    let clock = Arc::new(SystemClock);
    let per_minute = models.settings.server.requests_per_minute;
    let access = access::Home::at(&home)
        .ok()
        .map(|home| Access::new(home, per_minute, clock.clone(), log.clone()));
    let keys = Keys::new(token, read_token, access.clone());
    let logins = Logins::new(keys.clone(), clock.clone());
    let serving = Serving {
        addr,
        chat: models.settings.chat.clone(),
        forward_auth: serve.forward_auth,
        keys,
        logins: Some(logins.clone()),
        allow_remote: serve.allow_remote,
        allowed_hosts: serve.allowed_host.clone(),
        allowed_origins: serve.allowed_origin.clone(),
        limits: Limits::default(),
        clock,
        log: log.clone(),
        ready: spaces.clone(),
    };
    let meanings = Meanings::new(log.clone());
    let assistants = mcp::Server::new(
        mcp::Memories::Spaces(spaces.clone()),
        meanings.clone(),
        Rights::of([Right::Write]),
        log.clone(),
    );
    let live = Live::new(spaces.clone());
    let routes = api::router(
        spaces.clone(),
        meanings,
        Some(logins.clone()),
        access.clone(),
        live.clone(),
        log.clone(),
    )
    .merge(mcp::http::router(assistants));
    let running = http::serve(serving, Arc::new(Chatting(spaces.clone())), routes).await?;
    spaces.keep_remembering();
    // The link grants access, so it is not written to logs.
    let link = if out.is_json() || out.is_seen() {
        Some(format!("http://{}/#code={}", running.addr(), logins.code(Held::home())?.secret))
    } else {
        None
    };
    tell(out, &running.addr(), &home, &token_said, &models, link.as_deref())?;
    running.until_signal(|| live.close()).await?;
    if let Some(access) = access
        && !access.settle(SETTLING).await
    {
        out.say("Some entries could not be written to the audit log");
    }
    out.say("Finishing pending summaries");
    if !spaces.settle(SETTLING).await {
        out.say("Some turns are not summarized yet; the server does it when it runs again");
    }
    Ok(())
}

fn tell(
    out: &mut Out,
    addr: &SocketAddr,
    home: &Place,
    token: &Source,
    models: &wire::Models,
    link: Option<&str>,
) -> Result<()> {
    let token = match token {
        Source::Set(name) => format!("from {name}"),
        Source::File(file) => format!("in {}", file.display()),
        Source::Made(file) => format!("made just now, in {}", file.display()),
    };
    if out.is_json() {
        out.json(&serde_json::json!({ "addr": addr.to_string(), "home": home.to_string(), "token": token, "login": link }))?;
        return out.flush();
    }
    out.line(format!("Listening on http://{addr}"))?;
    out.flush()?;
    out.say(format!("  memory   {home}"));
    out.say(format!("  token    {token}"));
    let (chat, place) = (&models.settings.chat, models.place.display());
    match chat.provider {
        Provider::None | Provider::Command => {
            out.say(format!("  model    none: set [chat] in {place} and restart; without it chats cannot be forwarded"));
        }
        Provider::OpenAi | Provider::Anthropic => {
            out.say(format!("  model    {} at {}", chat.model, chat.base_url))
        }
    }
    if models.summarizer.is_none() {
        out.say(format!(
            "  memory works by rules alone: set [summarizer] in {place} to use a model for it"
        ));
    }
    match link {
        Some(link) => out.say(format!(
            "  browser  {link}  (works once, within ten minutes; `icecore dashboard` prints another)"
        )),
        None => out.say(format!(
            "  browser  `icecore dashboard --addr {addr}` prints a login link"
        )),
    }
    out.say(format!("  routes   http://{addr}/api lists them"));
    Ok(())
}
