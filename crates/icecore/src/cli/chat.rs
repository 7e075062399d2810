//! `chat`: a terminal chat with memory. It starts a private server and talks to it as any client
//! does, so both use the same code path.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use clap::Args;
use futures_util::StreamExt as _;
use icecore_domain::converse::{artifact, turn_detection};
use icecore_domain::sanitize;
use icecore_engine::clock::SystemClock;
use icecore_engine::converse::Chats;
use icecore_engine::settings::Provider;
use serde_json::{Value, json};

use super::GlobalArgs;
use super::output::{BOLD, DIM, Output};
use crate::bootstrap;
use crate::error::{AppError, Exit};
use crate::http::{self, HttpServerConfig, ServerLimits, ServerToken, TokenSource, TokenVerifier};
use crate::spaces::{SpaceRegistry, SpacesChatMemory};

/// The conversation if none is named.
const DEFAULT_CONVERSATION: &str = "terminal";
/// Sent as the reply limit where a provider requires one.
const MAX_REPLY_TOKENS: u32 = 4_096;
/// Summarizing is announced only if it takes longer than this.
const QUIET_SETTLE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long summarizing may continue after the last message.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub struct ChatArgs {
    /// The conversation to continue
    #[arg(long, value_name = "NAME", default_value = DEFAULT_CONVERSATION)]
    conversation: String,
    /// In this end user's space
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// One message; without it, every line of standard input is a message
    #[arg(value_name = "MESSAGE")]
    message: Vec<String>,
}

/// The headers of a reply that describe its memory.
#[derive(Debug, Default, serde::Serialize)]
struct ReplyHeaders {
    turn: Option<String>,
    injected: Option<String>,
    tokens: Option<String>,
    left_out: Option<String>,
    memory: Option<String>,
}

/// Buffers a streamed reply to replace artifact markers by the artifact. Other clients get replies
/// unchanged.
#[derive(Default)]
struct MarkerBuffer(String);

/// Part of a reply.
#[derive(Debug, PartialEq, Eq)]
enum ReplyPiece {
    Words(String),
    Mark(String),
}

impl MarkerBuffer {
    /// Adds text and returns what can be shown now; the beginning of a possible marker is held
    /// back.
    fn push(&mut self, words: &str) -> Vec<ReplyPiece> {
        self.0.push_str(words);
        let mut pieces = Vec::new();
        loop {
            let held = std::mem::take(&mut self.0);
            let Some(at) = held.find("[[") else {
                let end = held.strip_suffix('[').map_or(held.len(), str::len);
                self.0 = held[end..].to_owned();
                pieces.extend((end > 0).then(|| ReplyPiece::Words(held[..end].to_owned())));
                return pieces;
            };
            pieces.extend((at > 0).then(|| ReplyPiece::Words(held[..at].to_owned())));
            let rest = &held[at..];
            if let Some((range, _)) =
                artifact::find_markers(rest).into_iter().find(|(range, _)| range.start == 0)
            {
                pieces.push(ReplyPiece::Mark(rest[range.clone()].to_owned()));
                self.0 = rest[range.end..].to_owned();
            } else if may_become_marker(rest) {
                self.0 = rest.to_owned();
                return pieces;
            } else {
                pieces.push(ReplyPiece::Words("[".to_owned()));
                self.0 = rest[1..].to_owned();
            }
        }
    }

    /// Returns the rest at the end of the stream.
    fn finish(&mut self) -> Vec<ReplyPiece> {
        let rest = std::mem::take(&mut self.0);
        if rest.is_empty() { Vec::new() } else { vec![ReplyPiece::Words(rest)] }
    }
}

/// Whether text that begins with `[[` may still become a marker.
fn may_become_marker(text: &str) -> bool {
    const MARKER_KEY: &str = "artifact:";
    const MAX_MARKER_BYTES: usize = 200;
    let inner = text[2..].trim_start().to_ascii_lowercase();
    let begins = inner.starts_with(MARKER_KEY) || MARKER_KEY.starts_with(inner.as_str());
    begins && text.len() < MAX_MARKER_BYTES && !text.contains("]]") && !text.contains('\n')
}

struct ChatClient {
    /// For looking up artifacts, once pending summaries are done.
    chats: Arc<Chats>,
    spaces: Arc<SpaceRegistry>,
    http: reqwest::Client,
    address: String,
    token: String,
    provider: Provider,
    model: String,
    extra: serde_json::Map<String, Value>,
}

/// Runs `icecore chat`.
pub async fn chat(global: &GlobalArgs, chat: &ChatArgs, out: &mut Output) -> Result<()> {
    if global.now.is_some() {
        return Err(
            AppError::new(Exit::Usage, "a chat uses the real clock; leave --now out").into()
        );
    }
    icecore_engine::llm::install_crypto();
    let models = Arc::new(bootstrap::open_models()?);
    let settings = models.settings.chat.clone();
    if !matches!(settings.provider, Provider::OpenAi | Provider::Anthropic) {
        let message =
            format!("there is no model to chat with: set [chat] in {}", models.place.display());
        return Err(AppError::new(Exit::NotFound, message).into());
    }
    let home = bootstrap::resolve_root(global, None).await?;
    let token = random_token()?;
    let spaces = SpaceRegistry::new(home, models.clone(), Arc::new(|_: &str| {}))?;
    let serving = HttpServerConfig {
        addr: ([127, 0, 0, 1], 0).into(),
        chat: settings.clone(),
        forward_auth: false,
        keys: TokenVerifier::new(ServerToken::parse(&token, TokenSource::Set("chat"))?, None, None),
        logins: None,
        allow_remote: false,
        allowed_hosts: Vec::new(),
        allowed_origins: Vec::new(),
        limits: ServerLimits::default(),
        clock: Arc::new(SystemClock),
        log: Arc::new(|_: &str| {}),
        ready: spaces.clone(),
    };
    let running =
        http::serve(serving, Arc::new(SpacesChatMemory(spaces.clone())), Router::new()).await?;
    let client = ChatClient {
        chats: spaces.chats(chat.user.as_deref()).await?,
        spaces: spaces.clone(),
        http: reqwest::Client::builder().no_proxy().build()?,
        address: format!("http://{}", running.addr()),
        token,
        provider: settings.provider,
        model: settings.model.clone(),
        extra: settings.extra.clone(),
    };
    let outcome = run_chat(&client, chat, out).await;
    running.stop().await?;
    if !spaces.wait_for_reflections(QUIET_SETTLE_TIMEOUT).await {
        out.info(format!("{DIM}summarizing the chat; Ctrl-C defers it{DIM:#}"));
    }
    if !spaces.wait_for_reflections(SETTLE_TIMEOUT).await {
        out.info("The last turns are not summarized yet; the server or your next chat does it");
    }
    outcome
}

async fn run_chat(client: &ChatClient, chat: &ChatArgs, out: &mut Output) -> Result<()> {
    if !chat.message.is_empty() {
        return client.send_turn(chat, &chat.message.join(" "), out).await;
    }
    let asks = std::io::stdin().is_terminal() && !out.is_json();
    if asks {
        out.info(format!(
            "Chatting with {} in `{}`. End with Ctrl-D",
            client.model,
            sanitize::one_line(&chat.conversation)
        ));
    }
    loop {
        if asks {
            let _ = write!(std::io::stderr(), "{BOLD}> {BOLD:#}");
            let _ = std::io::stderr().flush();
        }
        let line = tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            std::io::stdin().lock().read_line(&mut line).map(|read| (read > 0).then_some(line))
        });
        let Some(line) = line.await?? else { return Ok(()) };
        if line.trim().is_empty() {
            continue;
        }
        match client.send_turn(chat, line.trim(), out).await {
            // On a terminal one failed reply does not end the chat.
            Err(error) if asks => out.warn(error.to_string()),
            other => other?,
        }
    }
}

impl ChatClient {
    async fn send_turn(&self, chat: &ChatArgs, text: &str, out: &mut Output) -> Result<()> {
        let messages = json!([{ "role": "user", "content": text }]);
        let (path, body) = match self.provider {
            Provider::Anthropic => (
                "/v1/messages",
                json!({ "model": self.model, "max_tokens": MAX_REPLY_TOKENS, "stream": true, "messages": messages }),
            ),
            _ => (
                "/v1/chat/completions",
                json!({ "model": self.model, "stream": true, "messages": messages }),
            ),
        };
        // Extra request fields of the settings, such as max_tokens.
        let mut body = body;
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.extra.clone());
        }
        let mut request = self
            .http
            .post(format!("{}{path}", self.address))
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .header("anthropic-version", "2023-06-01")
            .header("x-icecore-conversation", header_value(&chat.conversation)?)
            .body(body.to_string());
        if let Some(user) = &chat.user {
            request = request.header("x-icecore-user", header_value(user)?);
        }
        let response = request.send().await.context("the model cannot be asked")?;
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let told = ReplyHeaders {
            turn: header("x-icecore-turn"),
            injected: header("x-icecore-injected"),
            tokens: header("x-icecore-injected-tokens"),
            left_out: header("x-icecore-left-out"),
            memory: header("x-icecore-memory"),
        };
        let status = response.status();
        if !status.is_success() {
            let said = response.text().await.unwrap_or_default();
            let said = serde_json::from_str::<Value>(&said)
                .ok()
                .and_then(|value| Some(value["error"]["message"].as_str()?.to_owned()))
                .unwrap_or(said);
            let message = format!(
                "the model's server answered {}: {}",
                status.as_u16(),
                sanitize::one_line(&said)
            );
            return Err(AppError::new(Exit::Failure, message).into());
        }
        let (mut reply, mut buffer, mut screen) =
            (String::new(), Vec::new(), MarkerBuffer::default());
        let mut stream = response.bytes_stream();
        while let Some(piece) = stream.next().await {
            buffer.extend_from_slice(&piece.context("the reply was interrupted")?);
            while let Some(end) = buffer.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let Some(words) = stream_text(&String::from_utf8_lossy(&line)) else { continue };
                reply.push_str(&words);
                if !out.is_json() {
                    self.print_pieces(screen.push(&words), chat, out).await?;
                }
            }
        }
        if out.is_json() {
            return out.json(&json!({ "reply": reply, "told": told }));
        }
        self.print_pieces(screen.finish(), chat, out).await?;
        out.line("")?;
        let injected = told
            .injected
            .as_deref()
            .unwrap_or_default()
            .split(',')
            .filter(|id| !id.is_empty())
            .count();
        let left =
            told.left_out.as_deref().filter(|left| *left != "0").map_or_else(String::new, |left| {
                format!(", {left} kinds of older context left out")
            });
        out.info(match told.memory.as_deref() {
            Some("on") => format!(
                "{DIM}turn {}; {injected} {} injected, {} tokens with the last turns{left}{DIM:#}",
                told.turn.as_deref().unwrap_or("?"),
                if injected == 1 { "memory" } else { "memories" },
                told.tokens.as_deref().unwrap_or("0")
            ),
            _ => format!("{DIM}memory could not be used for this turn{DIM:#}"),
        });
        Ok(())
    }
}

impl ChatClient {
    async fn print_pieces(
        &self,
        pieces: Vec<ReplyPiece>,
        chat: &ChatArgs,
        out: &mut Output,
    ) -> Result<()> {
        for piece in pieces {
            let text = match piece {
                ReplyPiece::Words(words) => words,
                ReplyPiece::Mark(mark) => self.resolve_marker(&mark, chat).await.unwrap_or(mark),
            };
            out.raw(&sanitize::escape_for_terminal(&text))?;
        }
        out.flush()
    }

    /// The text of the artifact that a marker names, if there is one.
    async fn resolve_marker(&self, mark: &str, chat: &ChatArgs) -> Option<String> {
        let which = mark.strip_suffix("]]")?.split_once(':')?.1;
        let name = turn_detection::conversation_name(&chat.conversation)?;
        // The version may be of the turn before.
        self.spaces.wait_for_reflections(QUIET_SETTLE_TIMEOUT).await;
        self.chats
            .artifact(&name, which)
            .await
            .ok()
            .map(|(_, text)| text.trim_end_matches('\n').to_owned())
    }
}

/// The text in one line of a stream, from either kind of server.
fn stream_text(line: &str) -> Option<String> {
    let data: Value = serde_json::from_str(line.trim().strip_prefix("data:")?.trim()).ok()?;
    let openai = data["choices"][0]["delta"]["content"].as_str();
    openai.or_else(|| data["delta"]["text"].as_str()).map(str::to_owned)
}

fn header_value(text: &str) -> Result<reqwest::header::HeaderValue> {
    reqwest::header::HeaderValue::from_bytes(text.as_bytes()).map_err(|_| {
        AppError::new(Exit::Usage, format!("`{}` cannot be a name here", sanitize::one_line(text)))
            .into()
    })
}

fn random_token() -> Result<String> {
    let mut random = [0_u8; 24];
    getrandom::fill(&mut random)
        .map_err(|error| anyhow::anyhow!("the system returned no random numbers: {error}"))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // C11
    #[test]
    fn marks_are_found_however_a_reply_is_cut() {
        let text = "As in [[artifact:sort.py@turn-3]]: a[[0]] and [[Artifact: b.py@v2]]; [[artifact of nobody]] [[artifact:x\ny]] [";
        let words = |pieces: Vec<ReplyPiece>| {
            let shown = |piece| match piece {
                ReplyPiece::Words(words) => words,
                ReplyPiece::Mark(mark) => format!("<{mark}>"),
            };
            pieces.into_iter().map(shown).collect::<String>()
        };
        let whole = text
            .replace("[[artifact:sort.py@turn-3]]", "<[[artifact:sort.py@turn-3]]>")
            .replace("[[Artifact: b.py@v2]]", "<[[Artifact: b.py@v2]]>");
        for length in 1..=text.len() {
            let mut screen = MarkerBuffer::default();
            let mut shown = String::new();
            for piece in text.as_bytes().chunks(length) {
                shown.push_str(&words(screen.push(&String::from_utf8_lossy(piece))));
            }
            shown.push_str(&words(screen.finish()));
            assert_eq!(shown, whole, "in pieces of {length}");
        }
        // Text that cannot be a marker is not held back.
        assert_eq!(words(MarkerBuffer::default().push("see [[1, 2]")), "see [[1, 2]");
    }
}
