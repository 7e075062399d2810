//! The way to the model's server: what of a request goes there, and what of its answer comes back.
//!
//! The address comes from the person's settings and from nowhere else. No redirect is followed. The
//! client's own token is ours and never goes on; the key that was set for the model's server takes
//! its place.

use std::time::Duration;

use axum::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName,
    ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use icecore_engine::llm;
use icecore_engine::settings::{Model, Provider};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

const CONNECT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);
/// The header in which a client sends its own key for the model's server, where the settings allow
/// that.
const OWN_KEY: &str = "x-icecore-upstream-authorization";

/// The model's server.
pub struct Upstream {
    client: Client,
    base: String,
    provider: Provider,
    key: Option<SecretString>,
    forward_auth: bool,
    silence: Duration,
}

/// Why a request got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsent {
    /// A path that leads elsewhere.
    #[error("the path is not one below /v1; leave `.` and `..` out of it")]
    Path,
    /// No connection, or it broke off.
    #[error(
        "the model's server at {place} cannot be reached ({said}); is it running, and is base_url of [chat] right?"
    )]
    Unreachable {
        /// Where it should be.
        place: String,
        /// What failed.
        said: String,
    },
    /// It said nothing.
    #[error("the model's server at {place} said nothing for {} s; try again, or a smaller request", after.as_secs())]
    Silent {
        /// Where it is.
        place: String,
        /// For how long.
        after: Duration,
    },
}

impl Upstream {
    /// The way to the server of `chat`; `None` if no server is set.
    pub fn open(
        chat: &Model,
        forward_auth: bool,
        silence: Duration,
    ) -> anyhow::Result<Option<Self>> {
        if !matches!(chat.provider, Provider::OpenAi | Provider::Anthropic) {
            return Ok(None);
        }
        llm::install_crypto();
        let url = chat.endpoint()?;
        let here = is_loopback(&url);
        if forward_auth && url.scheme() == "http" && !here {
            anyhow::bail!(
                "chat.base_url is http:// to another machine, so the clients' keys could be read on the way; use https://"
            );
        }
        let mut client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .pool_idle_timeout(IDLE)
            .connect_timeout(CONNECT.min(silence));
        if here {
            client = client.no_proxy();
        }
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok(Some(Self {
            client: client.build()?,
            base,
            provider: chat.provider,
            key: chat.api_key.clone(),
            forward_auth,
            silence,
        }))
    }

    /// How long it may say nothing.
    pub fn silence(&self) -> Duration {
        self.silence
    }

    /// Sends a request on. `path` begins with `/v1/`, `query` comes without its mark.
    pub async fn send(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response, Unsent> {
        let url = self.url(path, query).ok_or(Unsent::Path)?;
        let mut sent = requested(headers);
        sent.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some((name, value)) = self.authorization(path, headers) {
            sent.insert(name, value);
        }
        let request = self.client.request(method.clone(), url).headers(sent);
        let request = if body.is_empty() && !headers.contains_key(CONTENT_LENGTH) {
            request
        } else {
            request.body(body)
        };
        match timeout(self.silence, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    /// That it said nothing for too long.
    pub fn silent(&self) -> Unsent {
        Unsent::Silent { place: self.base.clone(), after: self.silence }
    }

    /// What a failed connection is to be told as; the address is told already.
    pub fn broken(&self, error: &reqwest::Error) -> Unsent {
        Unsent::Unreachable { place: self.base.clone(), said: causes(error) }
    }

    fn url(&self, path: &str, query: Option<&str>) -> Option<Url> {
        let rest = path.strip_prefix("/v1/").filter(|rest| stays_below(rest))?;
        // Bases of OpenAI's kind end in /v1 or in whatever a server has instead; those of
        // Anthropic's kind end before it.
        let base = match self.provider {
            Provider::Anthropic => {
                format!("{}/v1", self.base.strip_suffix("/v1").unwrap_or(&self.base))
            }
            _ => self.base.clone(),
        };
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        Url::parse(&format!("{base}/{rest}{query}")).ok()
    }

    fn authorization(&self, path: &str, headers: &HeaderMap) -> Option<(HeaderName, HeaderValue)> {
        let Some(key) = &self.key else {
            let own = self.forward_auth.then(|| headers.get(OWN_KEY)).flatten()?;
            let mut own = own.clone();
            own.set_sensitive(true);
            return Some((AUTHORIZATION, own));
        };
        let key = key.expose_secret();
        let (name, value) = match self.provider {
            Provider::Anthropic if !path.starts_with("/v1/chat/") => {
                (HeaderName::from_static("x-api-key"), key.to_owned())
            }
            _ => (AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    }
}

/// Whether a path leads nowhere but below where it begins, however it is spelt.
fn stays_below(path: &str) -> bool {
    let mut plain = path.to_ascii_lowercase();
    // Twice, because some servers read a path twice.
    for _ in 0..2 {
        plain =
            plain.replace("%25", "%").replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    }
    !plain.split(['/', '\\']).any(|step| step == "." || step == "..")
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn causes(error: &reqwest::Error) -> String {
    let mut said = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        said.push(error.to_string());
        cause = error.source();
    }
    if said.is_empty() { "no reason is given".into() } else { said.join(": ") }
}

/// Whether a header is about one connection and not about the message.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE]
        .contains(name)
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// The headers without those of the connection, also those that it names itself, and without ours.
fn without_connection(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let stays = |name: &HeaderName| {
        !is_hop_by_hop(name)
            && !named.iter().any(|gone| gone == name.as_str())
            && !name.as_str().starts_with("x-icecore-")
    };
    headers
        .iter()
        .filter(|(name, _)| stays(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// What of a request's headers goes on: all but those of the connection, those that speak of this
/// server, and its secrets.
fn requested(headers: &HeaderMap) -> HeaderMap {
    let mut sent = without_connection(headers);
    for gone in [
        HOST,
        CONTENT_LENGTH,
        AUTHORIZATION,
        COOKIE,
        ORIGIN,
        REFERER,
        EXPECT,
        HeaderName::from_static("x-api-key"),
    ] {
        sent.remove(gone);
    }
    sent
}

/// What of an answer's headers comes back: all but those of the connection, and those that would
/// open this server to web pages or send clients past it.
pub fn answered(headers: &HeaderMap) -> HeaderMap {
    let mut back = without_connection(headers);
    let opens = |name: &HeaderName| {
        name.as_str().starts_with("access-control-") || name.as_str() == "alt-svc"
    };
    let gone: Vec<HeaderName> = back.keys().filter(|name| opens(name)).cloned().collect();
    for name in gone {
        back.remove(name);
    }
    back
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(base: &str, provider: Provider) -> Upstream {
        let chat =
            Model { provider, base_url: base.into(), model: "m".into(), ..Model::none("chat") };
        Upstream::open(&chat, false, Duration::from_secs(1)).unwrap().unwrap()
    }

    // C3
    #[test]
    fn a_path_leads_where_the_settings_say_and_nowhere_else() {
        for (base, provider, path, query, url) in [
            (
                "https://a/v1",
                Provider::OpenAi,
                "/v1/chat/completions",
                None,
                Some("https://a/v1/chat/completions"),
            ),
            (
                "https://a/api/v3/",
                Provider::OpenAi,
                "/v1/models",
                Some("limit=1000"),
                Some("https://a/api/v3/models?limit=1000"),
            ),
            (
                "https://a",
                Provider::Anthropic,
                "/v1/messages",
                Some("beta=true"),
                Some("https://a/v1/messages?beta=true"),
            ),
            (
                "https://a/v1",
                Provider::Anthropic,
                "/v1/messages",
                None,
                Some("https://a/v1/messages"),
            ),
            (
                "http://localhost:11434/v1",
                Provider::OpenAi,
                "/v1/messages",
                None,
                Some("http://localhost:11434/v1/messages"),
            ),
            (
                "https://a/v1",
                Provider::OpenAi,
                "/v1/models/org%2Fname",
                None,
                Some("https://a/v1/models/org%2Fname"),
            ),
            ("https://a/v1", Provider::OpenAi, "/v1/../admin", None, None),
            ("https://a/v1", Provider::OpenAi, "/v1/%2e%2E/admin", None, None),
            ("https://a/v1", Provider::OpenAi, "/v1/x/.%2e/..%2fadmin", None, None),
            ("https://a/v1", Provider::OpenAi, "/v1/..\\admin", None, None),
            ("https://a/v1", Provider::OpenAi, "/v1/%252e%252e/admin", None, None),
            ("https://a/v1", Provider::OpenAi, "/admin", None, None),
            // An address in the path or the query is text.
            (
                "https://a/v1",
                Provider::OpenAi,
                "/v1/@evil.example/x",
                None,
                Some("https://a/v1/@evil.example/x"),
            ),
            (
                "https://a/v1",
                Provider::OpenAi,
                "/v1//evil.example/x",
                None,
                Some("https://a/v1//evil.example/x"),
            ),
            (
                "https://a/v1",
                Provider::OpenAi,
                "/v1/x",
                Some("u=http://evil"),
                Some("https://a/v1/x?u=http://evil"),
            ),
        ] {
            let found = upstream(base, provider).url(path, query);
            assert_eq!(found.as_ref().map(Url::as_str), url, "{base} {path}");
        }
    }

    // C3
    #[test]
    fn keys_of_clients_do_not_go_over_the_open_net() {
        let chat = Model {
            provider: Provider::OpenAi,
            base_url: "http://example.org/v1".into(),
            ..Model::none("chat")
        };
        assert!(Upstream::open(&chat, true, IDLE).is_err());
        assert!(Upstream::open(&chat, false, IDLE).is_ok());
        assert!(Upstream::open(&Model::none("chat"), true, IDLE).unwrap().is_none());
    }
}
