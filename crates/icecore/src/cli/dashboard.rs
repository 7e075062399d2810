//! `dashboard`: asks a running server for a login link.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::output::Output;
use crate::bootstrap;
use crate::error::{AppError, Exit};
use crate::http::ServerToken;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub struct DashboardArgs {
    /// Where the server listens; `[server] addr` of your config.toml if not given
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<SocketAddr>,
}

/// Runs `icecore dashboard`.
pub async fn print_login_link(dashboard: &DashboardArgs, out: &mut Output) -> Result<()> {
    icecore_engine::llm::install_crypto();
    let addr = match dashboard.addr {
        Some(addr) => addr,
        None => bootstrap::open_models()?.settings.server.addr,
    };
    if !addr.ip().is_loopback() {
        // The token is sent in plain text.
        let message = format!(
            "{addr} is another machine; run `icecore dashboard` there, or log in with its token"
        );
        return Err(AppError::new(Exit::NotAllowed, message).into());
    }
    let token =
        ServerToken::read_secret(&|name: &str| std::env::var(name).ok(), &bootstrap::token_path())?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .timeout(REQUEST_TIMEOUT)
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
        return Err(AppError::new(Exit::NotFound, message).into());
    };
    let status = answer.status();
    let told: Value = answer.json().await.unwrap_or_default();
    let Some(code) = told["code"].as_str().filter(|_| status.is_success()) else {
        let said = told["error"]["message"]
            .as_str()
            .unwrap_or("it is not an icecore server, or an older one");
        return Err(AppError::new(
            Exit::NotAllowed,
            format!("{addr} refused to give a link: {}", icecore_domain::sanitize::one_line(said)),
        )
        .into());
    };
    let url = format!("http://{addr}/#code={code}");
    if out.is_json() {
        return out.json(&json!({ "url": url, "expires_in_seconds": told["expires_in_seconds"] }));
    }
    out.line(&url)?;
    out.info("Open it in a browser. It works once, within ten minutes.");
    Ok(())
}
