//! `serve`: the server that chat clients point their base URL at.

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

/// How long remembering may go on after the server was told to stop.
const SETTLING: Duration = Duration::from_secs(20);

#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<SocketAddr>,
    /// The home of this server's memory, made if it is not there; else your vault
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Listen where other machines can reach it; needs a token of your own in ICECORE_TOKEN or
    /// ICECORE_TOKEN_FILE
    #[arg(long)]
    allow_remote: bool,
    /// Another name under which the server may be asked; may be given more than once
    #[arg(long, value_name = "NAME")]
    allowed_host: Vec<String>,
    /// A web page that may ask, like http://localhost:5173; may be given more than once
    #[arg(long, value_name = "ORIGIN")]
    allowed_origin: Vec<String>,
    /// If [chat] has no key, let clients send their own in X-Icecore-Upstream-Authorization
    #[arg(long)]
    forward_auth: bool,
}

pub async fn serve(global: &Global, serve: &Serve, out: &mut Out) -> Result<()> {
    if global.now.is_some() {
        return Err(Stop::new(Exit::Usage, "a server lives now; leave --now out").into());
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
    // A home that cannot be opened is better found now.
    spaces.of(None).await?;
    // Everything could be looked at and nothing be kept: `/readyz` says so too, but whoever starts
    // a server reads this first.
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
    // It lets in whoever reads it.
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
        out.say("Some of what was done could not be noted in the audit log");
    }
    out.say("Finishing what is being remembered");
    if !spaces.settle(SETTLING).await {
        out.say("Some turns are not remembered yet; they are when the server runs again");
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
            out.say(format!("  model    none: set [chat] in {place} and start again, or there is nothing to pass chats on to"));
        }
        Provider::OpenAi | Provider::Anthropic => {
            out.say(format!("  model    {} at {}", chat.model, chat.base_url))
        }
    }
    if models.summarizer.is_none() {
        out.say(format!("  memory is kept, and remembered by rules alone: [summarizer] in {place} names a model that does it better"));
    }
    match link {
        Some(link) => out.say(format!(
            "  browser  {link}  (good once, for ten minutes; `icecore dashboard` gives another)"
        )),
        None => out.say(format!(
            "  browser  `icecore dashboard --addr {addr}` gives a link that logs one in"
        )),
    }
    out.say(format!("  routes   http://{addr}/api shows them"));
    Ok(())
}
