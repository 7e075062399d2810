//! The HTTP client of a model server: sends a request, retries while no answer has begun, and reads
//! the answer as a stream.
//!
//! - A line, an error and a whole reply each have a size limit.
//! - Redirects are not followed, and requests to this machine use no proxy, so a key only goes to
//!   the configured server.

use std::error::Error as _;
use std::time::Duration;

use icecore_domain::sanitize;
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, DATE, HeaderMap, HeaderName, HeaderValue, LOCATION,
    RETRY_AFTER,
};
use reqwest::{Client, RequestBuilder, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    FinishReason, ModelAnswer, ModelCheck, ModelError, ModelRequest, RequestTimeouts,
    estimate_tokens, max_answer_bytes, retry, truncate,
};
use crate::settings::{ModelSettings, SettingsError, is_loopback};

/// The longest event of a stream.
const MAX_EVENT_BYTES: usize = 1 << 20;
/// The part of an error that is read, and the part that is shown.
const MAX_ERROR_BYTES: usize = 8 << 10;
const MAX_SHOWN_ERROR_BYTES: usize = 600;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REACHABLE_CHECK: &str = "reachable";
const LISTED_CHECK: &str = "model is listed";

/// The connection to a model server.
pub(super) struct ModelHttpClient {
    client: Client,
    base: String,
    key: Option<SecretString>,
    timeout: Duration,
    retry_cap: Duration,
}

/// The parsers of a provider's events and whole replies. `Err` has the provider's error message.
pub(super) struct ReplyParser {
    pub event: fn(&Value, &mut PartialAnswer) -> Result<(), String>,
    pub whole: fn(&Value, &mut PartialAnswer) -> Result<(), String>,
}

/// An answer as far as it was received.
#[derive(Default)]
pub(super) struct PartialAnswer {
    pub text: String,
    /// Thinking is not stored, only counted: it is paid for too.
    pub thought_bytes: usize,
    pub tokens_in: Option<u64>,
    pub tokens_out: Option<u64>,
    pub finish: Option<FinishReason>,
    /// The provider marked the end of the answer.
    pub closed: bool,
}

/// The attempts of one request.
#[derive(Default)]
pub(super) struct RequestAttempts {
    pub requests: u32,
    setbacks: u32,
}

impl ModelHttpClient {
    /// Creates a client for the endpoint of `model`. `own_headers` are the provider's headers,
    /// `key_header` makes the header with the API key.
    pub fn open(
        model: &ModelSettings,
        own_headers: &[(&'static str, &'static str)],
        key_header: fn(&str) -> (HeaderName, String),
    ) -> Result<Self, SettingsError> {
        super::install_crypto();
        let url = model.endpoint()?;
        let mut headers = HeaderMap::new();
        // An uncompressed body cannot expand beyond its limit.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.extend(
            own_headers.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            }),
        );
        if let Some(key) = &model.api_key {
            let (name, value) = key_header(key.expose_secret());
            let mut value = HeaderValue::from_str(&value).map_err(|_| SettingsError::Value {
                key: format!("{}.api_key", model.role),
                said: "contains characters that are not allowed in an HTTP header".into(),
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let mut client = Client::builder()
            .user_agent(concat!("icecore/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .referer(false)
            // A connection from the pool may be dead by the next request. Then nobody could tell
            // whether the server had received that request.
            .pool_max_idle_per_host(0)
            .connect_timeout(CONNECT_TIMEOUT.min(model.timeout));
        if is_loopback(&url) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| SettingsError::Value {
            key: format!("{}.base_url", model.role),
            said: format!(
                "cannot be used, because no client can be built: {}",
                error_chain(&error)
            ),
        })?;
        let base = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self {
            client,
            base,
            key: model.api_key.clone(),
            timeout: model.timeout,
            retry_cap: model.max_retry_wait,
        })
    }

    /// The endpoint for messages; it contains no secret.
    pub fn endpoint(&self) -> &str {
        &self.base
    }

    /// Sends a request, and retries while the server asks to before it begins to answer.
    pub async fn request_answer(
        &self,
        url: &str,
        body: &Value,
        ask: &ModelRequest,
        parser: &ReplyParser,
        tries: &mut RequestAttempts,
        progress: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<ModelAnswer, ModelError> {
        let patience = RequestTimeouts::new(self.timeout, ask.attempt);
        let seed = retry::jitter_seed(ask);
        loop {
            tries.requests += 1;
            let request = self.client.post(url).json(body);
            let trouble = match timeout(
                patience.whole,
                self.attempt(request, patience, max_answer_bytes(ask), parser, progress),
            )
            .await
            {
                Ok(Ok((heard, streamed))) => {
                    return self.finish_answer(heard, streamed, ask, tries.requests - 1);
                }
                Ok(Err(trouble)) => trouble,
                Err(_) => self.timeout_error("no whole answer", patience.whole),
            };
            tries.setbacks += 1;
            let Some(wait) = retry::retry_delay(&trouble, tries.setbacks, seed, self.retry_cap)
            else {
                return Err(trouble);
            };
            sleep(wait).await;
        }
    }

    fn finish_answer(
        &self,
        heard: PartialAnswer,
        streamed: bool,
        ask: &ModelRequest,
        retries: u32,
    ) -> Result<ModelAnswer, ModelError> {
        let PartialAnswer { mut text, thought_bytes, tokens_in, tokens_out, finish, .. } = heard;
        let long = truncate(&mut text, max_answer_bytes(ask));
        let finish = if long { FinishReason::CutOff } else { finish.unwrap_or(FinishReason::Done) };
        if text.trim().is_empty() {
            let said = match finish {
                FinishReason::Done => "it ended normally".into(),
                FinishReason::CutOff => "it was cut off".into(),
                FinishReason::Other(word) => sanitize::one_line(&word),
            };
            return Err(ModelError::Empty { place: self.base.clone(), said });
        }
        let measured = tokens_in.is_some() && tokens_out.is_some();
        let read_bytes = ask.system.len() + ask.user.len();
        Ok(ModelAnswer {
            tokens_in: tokens_in.unwrap_or_else(|| estimate_tokens(read_bytes)),
            tokens_out: tokens_out.unwrap_or_else(|| estimate_tokens(text.len() + thought_bytes)),
            text,
            measured,
            finish,
            retries,
            streamed,
        })
    }

    async fn attempt(
        &self,
        request: RequestBuilder,
        timeouts: RequestTimeouts,
        most_bytes: usize,
        parser: &ReplyParser,
        progress: &(dyn Fn(usize) + Send + Sync),
    ) -> Result<(PartialAnswer, bool), ModelError> {
        let mut response = self.send(request, timeouts).await?;
        let (mut heard, mut events) = (PartialAnswer::default(), SseParser::default());
        // The limit of a reply that is not a stream; JSON may encode one byte as six.
        let mut whole: Option<Vec<u8>> = None;
        let most_whole = most_bytes.saturating_mul(6).saturating_add(MAX_EVENT_BYTES);
        let mut begun = false;
        let mut wait = timeouts.first;
        loop {
            let piece = match timeout(wait, response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => break,
                // After the provider's end mark a broken connection does no harm.
                _ if heard.finish.is_some() => break,
                Ok(Err(error)) => {
                    return Err(
                        self.invalid_answer(&format!("it broke off ({})", error_chain(&error)))
                    );
                }
                Err(_) => {
                    return Err(self.timeout_error(
                        if begun { "no further piece of its answer" } else { "no answer" },
                        wait,
                    ));
                }
            };
            wait = timeouts.idle;
            if !begun {
                match piece.iter().find(|byte| !byte.is_ascii_whitespace()) {
                    None => continue,
                    Some(b'{' | b'[') => whole = Some(Vec::new()),
                    Some(b'<') => {
                        return Err(self.invalid_answer(
                            "it is a web page, so base_url leads to something else",
                        ));
                    }
                    Some(_) => {}
                }
                begun = true;
            }
            if let Some(whole) = &mut whole {
                if whole.len() + piece.len() > most_whole {
                    return Err(ModelError::TooLong {
                        place: self.base.clone(),
                        limit_bytes: most_whole,
                    });
                }
                whole.extend_from_slice(&piece);
                progress(whole.len());
                continue;
            }
            let found = events.push(&piece).ok_or_else(|| ModelError::TooLong {
                place: self.base.clone(),
                limit_bytes: MAX_EVENT_BYTES,
            })?;
            self.parse_events(&found, parser, &mut heard)?;
            progress(heard.text.len());
            if heard.text.len() > most_bytes {
                // Dropping the response ends the stream, however much more would come.
                heard.finish = Some(FinishReason::CutOff);
                return Ok((heard, true));
            }
            if heard.closed {
                return Ok((heard, true));
            }
        }
        if let Some(whole) = whole {
            let value: Value = serde_json::from_slice(&whole)
                .map_err(|_| self.invalid_answer("it is not whole JSON"))?;
            (parser.whole)(&value, &mut heard).map_err(|said| self.invalid_answer(&said))?;
            return Ok((heard, false));
        }
        self.parse_events(&events.remainder(), parser, &mut heard)?;
        match heard {
            PartialAnswer { finish: None, closed: false, .. } if events.seen => {
                Err(self.invalid_answer("it ended before it was finished"))
            }
            PartialAnswer { finish: None, closed: false, .. } => {
                Err(self.invalid_answer("it holds neither JSON nor events"))
            }
            _ => Ok((heard, true)),
        }
    }

    fn parse_events(
        &self,
        events: &[String],
        parser: &ReplyParser,
        heard: &mut PartialAnswer,
    ) -> Result<(), ModelError> {
        for event in events {
            if event.trim() == "[DONE]" {
                heard.closed = true;
                break;
            }
            let value: Value = serde_json::from_str(event)
                .map_err(|_| self.invalid_answer("one of its events is not JSON"))?;
            (parser.event)(&value, heard).map_err(|said| self.invalid_answer(&said))?;
        }
        Ok(())
    }

    /// Sends a request; every status but success is an error.
    async fn send(
        &self,
        request: RequestBuilder,
        timeouts: RequestTimeouts,
    ) -> Result<Response, ModelError> {
        let response = match timeout(timeouts.first, request.send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error.is_connect() => {
                return Err(ModelError::Unreachable {
                    place: self.base.clone(),
                    said: self.redact_key(&error_chain(&error)),
                });
            }
            Ok(Err(error)) => return Err(self.invalid_answer(&error_chain(&error))),
            Err(_) => return Err(self.timeout_error("no answer", timeouts.first)),
        };
        let status = response.status().as_u16();
        let header =
            |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        if (200..300).contains(&status) {
            return match header(CONTENT_ENCODING) {
                Some(coding) if !coding.eq_ignore_ascii_case("identity") => {
                    Err(self.invalid_answer("it is compressed, which was not asked for"))
                }
                _ => Ok(response),
            };
        }
        let retry_after =
            header(RETRY_AFTER).and_then(|value| retry::parse_retry_after(value, header(DATE)));
        let leads_to = header(LOCATION).map(|place| format!("it leads to {place}"));
        let said = match leads_to {
            Some(said) if status < 400 => self.redact_key(&said),
            _ => self.redact_key(&body_error(
                &self.limited_body(response, MAX_ERROR_BYTES, timeouts.idle).await,
            )),
        };
        let place = self.base.clone();
        Err(if status == 429 || (retry::is_retryable_status(status) && retry_after.is_some()) {
            ModelError::RateLimited { place, status, retry_after, said }
        } else {
            ModelError::Refused { place, status, said }
        })
    }

    /// The start of a body, as much as arrives in time and fits.
    async fn limited_body(
        &self,
        mut response: Response,
        most_bytes: usize,
        idle: Duration,
    ) -> String {
        let mut body = Vec::new();
        while let Ok(Ok(Some(piece))) = timeout(idle, response.chunk()).await {
            body.extend_from_slice(&piece[..piece.len().min(most_bytes - body.len())]);
            if body.len() == most_bytes {
                break;
            }
        }
        String::from_utf8_lossy(&body).into_owned()
    }

    /// Checks whether the server responds, and whether it lists the model.
    pub async fn check_endpoint(&self, url: &str, model: &str) -> Vec<ModelCheck> {
        let patience = RequestTimeouts::new(self.timeout, 0);
        let look = async {
            let response = self.send(self.client.get(url), patience).await?;
            Ok(self.limited_body(response, MAX_EVENT_BYTES, patience.idle).await)
        };
        let found = timeout(patience.whole, look)
            .await
            .unwrap_or_else(|_| Err(self.timeout_error("no answer", patience.whole)));
        let text = match found {
            Ok(text) => text,
            Err(trouble @ (ModelError::Refused { .. } | ModelError::RateLimited { .. })) => {
                return vec![
                    ModelCheck::new(REACHABLE_CHECK, true, &self.base),
                    ModelCheck::new(LISTED_CHECK, false, trouble.to_string()),
                ];
            }
            Err(trouble) => {
                return vec![ModelCheck::new(REACHABLE_CHECK, false, trouble.to_string())];
            }
        };
        let listed: Value = serde_json::from_str(&text).unwrap_or_default();
        let names: Vec<&str> = listed["data"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|listed| listed["id"].as_str())
            .collect();
        let known =
            names.iter().any(|name| *name == model || name.strip_suffix(":latest") == Some(model));
        let mut said = match (known, names.is_empty()) {
            (true, _) => model.to_owned(),
            (false, true) => "it lists no models".into(),
            (false, false) => sanitize::one_line(&format!(
                "{model} is not among its {}: {}",
                names.len(),
                names.join(", ")
            )),
        };
        truncate(&mut said, MAX_SHOWN_ERROR_BYTES);
        vec![
            ModelCheck::new(REACHABLE_CHECK, true, &self.base),
            ModelCheck::new(LISTED_CHECK, known, said),
        ]
    }

    fn timeout_error(&self, what: &'static str, after: Duration) -> ModelError {
        ModelError::TimedOut { place: self.base.clone(), what, after }
    }

    fn invalid_answer(&self, said: &str) -> ModelError {
        ModelError::InvalidAnswer { place: self.base.clone(), said: self.redact_key(said) }
    }

    /// Foreign text on one line, shortened, and without the API key, which some servers repeat.
    fn redact_key(&self, said: &str) -> String {
        let said = match &self.key {
            Some(key) => said.replace(key.expose_secret(), "(the key)"),
            None => said.to_owned(),
        };
        let mut said = sanitize::one_line(said.trim());
        if truncate(&mut said, MAX_SHOWN_ERROR_BYTES) {
            said.push('…');
        }
        said
    }
}

/// An error and its causes without the address, which the message already has.
pub(crate) fn error_chain(error: &reqwest::Error) -> String {
    let mut said = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push(error.to_string());
        cause = error.source();
    }
    if said.is_empty() { "no reason is given".into() } else { said.join(": ") }
}

/// The message in an error body, with the parameter it names.
fn body_error(body: &str) -> String {
    let value: Value = serde_json::from_str(body).unwrap_or_default();
    error_message(&value["error"]).unwrap_or_else(|| {
        if body.trim().is_empty() { "no reason is given".into() } else { body.to_owned() }
    })
}

/// The message of an error object, or an error that is just a text.
pub(super) fn error_message(error: &Value) -> Option<String> {
    let message = error["message"].as_str().or(error.as_str())?;
    Some(match error["param"].as_str() {
        Some(param) if !message.contains(param) => format!("{message} [{param}]"),
        _ => message.to_owned(),
    })
}

/// A parser of server-sent events. It reads only the data: both providers repeat the event's name
/// in it.
#[derive(Default)]
struct SseParser {
    line: Vec<u8>,
    after_return: bool,
    data: Option<String>,
    seen: bool,
}

impl SseParser {
    /// The data of the events that are complete now; `None` if one exceeds the size limit.
    fn push(&mut self, piece: &[u8]) -> Option<Vec<String>> {
        let mut found = Vec::new();
        for &byte in piece {
            let second_half = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            match byte {
                _ if second_half => {}
                b'\n' | b'\r' => found.extend(self.end_line()),
                _ if self.line.len() + self.data.as_ref().map_or(0, String::len)
                    >= MAX_EVENT_BYTES =>
                {
                    return None;
                }
                _ => self.line.push(byte),
            }
        }
        Some(found)
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&line);
        if line.is_empty() {
            return self.data.take();
        }
        let data = line.strip_prefix(b"data:")?;
        let data = String::from_utf8_lossy(data.strip_prefix(b" ").unwrap_or(data));
        self.seen = true;
        match &mut self.data {
            Some(sofar) => {
                sofar.push('\n');
                sofar.push_str(&data);
            }
            None => self.data = Some(data.into_owned()),
        }
        None
    }

    /// The data of an event without its final empty line.
    fn remainder(&mut self) -> Vec<String> {
        let last = self.end_line();
        last.or_else(|| self.data.take())
            .into_iter()
            .filter(|data| data.trim() == "[DONE]" || serde_json::from_str::<Value>(data).is_ok())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = SseParser::default();
        let mut found: Vec<String> =
            pieces.iter().flat_map(|piece| events.push(piece).unwrap()).collect();
        found.extend(events.remainder());
        found
    }

    #[test]
    fn events_are_read_in_every_spelling() {
        for text in [
            "data: 1\n\ndata:2\n\n",
            "data: 1\r\n\r\ndata: 2\r\n\r\n",
            "data: 1\r\rdata: 2\r\r",
            "\u{feff}data: 1\n\n\n: ping\ndata: 2",
        ] {
            assert_eq!(events(&[text.as_bytes()]), ["1", "2"], "{text:?}");
        }
        assert_eq!(
            events(&[b"event: x\nid: 3\nretry: soon\nodd\ndata: [1,\ndata: 2]\n\n"]),
            ["[1,\n2]"]
        );
        assert_eq!(events(&[b"data: {\"cut"]), [""; 0]);
        assert_eq!(events(&[b"data\n\n"]), [""; 0]);
    }

    #[test]
    fn an_event_without_an_end_is_not_kept() {
        let mut events = SseParser::default();
        let piece = vec![b'x'; MAX_EVENT_BYTES];
        assert!(events.push(&piece).is_some());
        assert!(events.push(b"x").is_none());
        let mut events = SseParser::default();
        let line = b"data: 0123456789\n".repeat(MAX_EVENT_BYTES / 10 + 1);
        assert!(events.push(&line).is_none());
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_stream_is_cut(at in 0_usize..40, ending in prop::sample::select(vec!["\n", "\r\n", "\r"])) {
            let text = ["data: \"h\u{e9}\"", "", "data: \"\u{1f642}\"", "", ""].join(ending);
            let at = at.min(text.len());
            prop_assert_eq!(events(&[&text.as_bytes()[..at], &text.as_bytes()[at..]]), ["\"h\u{e9}\"", "\"\u{1f642}\""]);
        }

        #[test]
        fn no_bytes_make_it_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6)) {
            let mut events = SseParser::default();
            for piece in &pieces {
                let _ = events.push(piece);
            }
            let _ = events.remainder();
        }
    }
}
