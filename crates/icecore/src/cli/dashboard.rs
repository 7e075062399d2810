//! `dashboard`: asks a running server for a login link.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::out::Out;
use crate::error::{Exit, Stop};
use crate::http::Token;
use crate::wire;

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub struct Dashboard {
    /// Where the server listens; `[server] addr` of your config.toml if not given
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<SocketAddr>,
}

pub async fn dashboard(dashboard: &Dashboard, out: &mut Out) -> Result<()> {
    icecore_engine::llm::install_crypto();
    let addr = match dashboard.addr {
        Some(addr) => addr,
        None => wire::models()?.settings.server.addr,
    };
    if !addr.ip().is_loopback() {
        // The token is sent in plain text.
        let message = format!(
            "{addr} is another machine; run `icecore dashboard` there, or log in with its token"
        );
        return Err(Stop::new(Exit::NotAllowed, message).into());
    }
    let token = Token::shown(&|name: &str| std::env::var(name).ok(), &wire::token_file())?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let asked = client
        .post(format!("http://{addr}/api/login/code"))
        .bearer_auth(token)
        .body("{}")
        .send()
        .await;
    let Ok(answer) = asked else {
        let message = format!(
            "no server answers at {addr}; `icecore serve` starts one and prints a link, --addr names another"
        );
        return Err(Stop::new(Exit::NotFound, message).into());
    };
    let status = answer.status();
    let told: Value = answer.json().await.unwrap_or_default();
    let Some(code) = told["code"].as_str().filter(|_| status.is_success()) else {
        let said = told["error"]["message"]
            .as_str()
            .unwrap_or("it is not an icecore server, or an older one");
        return Err(Stop::new(
            Exit::NotAllowed,
            format!("{addr} refused to give a link: {}", icecore_domain::plain::one_line(said)),
        )
        .into());
    };
    let url = format!("http://{addr}/#code={code}");
    if out.is_json() {
        return out.json(&json!({ "url": url, "expires_in_seconds": told["expires_in_seconds"] }));
    }
    out.line(&url)?;
    out.say("Open it in a browser. It works once, within ten minutes.");
    Ok(())
}
