//! The connection to the upstream model: which headers are forwarded and which come back.
//!
//! The address comes only from the user's settings. No redirect is followed. The client's token for
//! icecore is never forwarded; the configured upstream key replaces it.

use std::time::Duration;

use axum::http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, HeaderName,
    ORIGIN, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE,
};
use axum::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use icecore_engine::llm;
use icecore_engine::settings::{ModelSettings, Provider};
use reqwest::{Client, Response, Url};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The header with a client's own upstream key, if the settings allow it.
const UPSTREAM_AUTH_HEADER: &str = "x-icecore-upstream-authorization";

/// The upstream model server.
pub struct Upstream {
    client: Client,
    base: String,
    provider: Provider,
    key: Option<SecretString>,
    forward_auth: bool,
    silence: Duration,
}

/// Why a request got no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// A path that leaves `/v1`.
    #[error("the path is not one below /v1; leave `.` and `..` out of it")]
    Path,
    /// No connection, or it broke.
    #[error(
        "the upstream model at {place} cannot be reached ({said}); is it running, and is base_url of [chat] correct?"
    )]
    Unreachable { place: String, said: String },
    /// No data within the limit.
    #[error("the upstream model at {place} sent nothing for {} s; retry, or send a smaller request", after.as_secs())]
    Silent { place: String, after: Duration },
}

impl Upstream {
    /// Opens the upstream of `chat`; `None` if none is configured.
    pub fn open(
        chat: &ModelSettings,
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
                "chat.base_url uses http:// to another machine, which would expose the clients' keys; use https://"
            );
        }
        let mut client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT.min(silence));
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

    /// The longest silence.
    pub fn max_silence(&self) -> Duration {
        self.silence
    }

    /// Forwards a request. `path` begins with `/v1/`; `query` has no question mark.
    pub async fn send(
        &self,
        method: &Method,
        path: &str,
        query: Option<&str>,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response, UpstreamError> {
        let url = self.url(path, query).ok_or(UpstreamError::Path)?;
        let mut sent = request_headers(headers);
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
            Ok(Err(error)) => Err(self.connection_error(&error)),
            Err(_) => Err(self.silence_error()),
        }
    }

    /// The error for too long a silence.
    pub fn silence_error(&self) -> UpstreamError {
        UpstreamError::Silent { place: self.base.clone(), after: self.silence }
    }

    /// The error for a failed connection, without repeating the address.
    pub fn connection_error(&self, error: &reqwest::Error) -> UpstreamError {
        UpstreamError::Unreachable { place: self.base.clone(), said: error_causes(error) }
    }

    fn url(&self, path: &str, query: Option<&str>) -> Option<Url> {
        let rest = path.strip_prefix("/v1/").filter(|rest| stays_below(rest))?;
        // OpenAI-style base URLs include `/v1` or the server's own prefix; Anthropic-style ones end
        // before it.
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
            let own = self.forward_auth.then(|| headers.get(UPSTREAM_AUTH_HEADER)).flatten()?;
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

/// Whether a path stays below its base, however it is encoded.
fn stays_below(path: &str) -> bool {
    let mut plain = path.to_ascii_lowercase();
    // Twice, because some servers decode a path twice.
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

fn error_causes(error: &reqwest::Error) -> String {
    let mut said = Vec::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        said.push(error.to_string());
        cause = error.source();
    }
    if said.is_empty() { "no reason given".into() } else { said.join(": ") }
}

/// Whether a header concerns one connection only.
fn is_hop_by_hop(name: &HeaderName) -> bool {
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE]
        .contains(name)
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}

/// The headers without hop-by-hop headers, those named in `Connection`, and ours.
fn without_hop_by_hop(headers: &HeaderMap) -> HeaderMap {
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

/// The request headers to forward: without hop-by-hop headers, headers about this server, and its
/// secrets.
fn request_headers(headers: &HeaderMap) -> HeaderMap {
    let mut sent = without_hop_by_hop(headers);
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

/// The response headers to return: without hop-by-hop headers, CORS headers and `Alt-Svc`.
pub fn response_headers(headers: &HeaderMap) -> HeaderMap {
    let mut back = without_hop_by_hop(headers);
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
        let chat = ModelSettings {
            provider,
            base_url: base.into(),
            model: "m".into(),
            ..ModelSettings::none("chat")
        };
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
            // An address in the path or the query is plain text.
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
        let chat = ModelSettings {
            provider: Provider::OpenAi,
            base_url: "http://example.org/v1".into(),
            ..ModelSettings::none("chat")
        };
        assert!(Upstream::open(&chat, true, POOL_IDLE_TIMEOUT).is_err());
        assert!(Upstream::open(&chat, false, POOL_IDLE_TIMEOUT).is_ok());
        assert!(
            Upstream::open(&ModelSettings::none("chat"), true, POOL_IDLE_TIMEOUT)
                .unwrap()
                .is_none()
        );
    }
}
