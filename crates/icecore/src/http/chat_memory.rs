//! The interface between the chat proxy and memory: prepare a request, persist the exchange.
//!
//! The proxy knows nothing of facts, turns or windows; memory knows nothing of HTTP. The trait has
//! two implementations: the spaces of a store, and a script in the tests.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use icecore_engine::config::{ChatMode, MemoryPlacement};
use icecore_engine::converse::ClientHistory;
use icecore_store::postgres::PoolStats;
use icecore_store::postgres::jobs::JobBacklog;

/// Memory, as the chat proxy uses it.
#[async_trait]
pub trait ChatMemory: Send + Sync {
    /// Prepares a request before it is forwarded. After an error the request is forwarded
    /// unchanged, and a header and the log say so.
    async fn begin_turn(&self, request: TurnRequest) -> Result<PreparedTurn, String>;

    /// Persists the exchange after the reply. When this returns, the exchange is on disk; only then
    /// the last bytes go to the client.
    ///
    /// Called once for every successful `begin_turn`, even if the client disconnected, but not if
    /// the upstream failed: then there was no exchange. After a retryable error it is called again
    /// with the same arguments.
    async fn persist_reply(
        &self,
        turn: &PreparedTurn,
        reply: AssistantReply,
    ) -> Result<(), PersistError>;
}

/// Why an exchange was not persisted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistError {
    /// For the log.
    pub message: String,
    /// Whether a retry may succeed.
    pub is_retryable: bool,
}

impl PersistError {
    /// An error after which a retry may succeed.
    pub fn retryable(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), is_retryable: true }
    }

    /// An error that no retry can fix.
    pub fn permanent(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), is_retryable: false }
    }
}

/// The readiness check of the server.
#[async_trait]
pub trait ReadinessCheck: Send + Sync {
    /// Fails with what is missing.
    async fn check_ready(&self) -> Result<(), NotReady>;

    /// The connection pool's figures, if memory is in a database.
    fn database_figures(&self) -> Option<PoolStats> {
        None
    }

    /// The job backlog of the database as of the last query; empty if unknown.
    async fn job_backlog(&self) -> Vec<JobBacklog> {
        Vec::new()
    }
}

/// Why the server is not ready.
#[derive(Debug)]
pub struct NotReady {
    /// For the response, which anyone can read.
    pub brief: &'static str,
    /// For the log only.
    pub message: String,
}

impl NotReady {
    /// Creates the error with a public summary and a log message.
    pub fn new(brief: &'static str, message: impl fmt::Display) -> Self {
        Self { brief, message: message.to_string() }
    }
}

/// The chat API that a request uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChatDialect {
    /// `/v1/chat/completions` and all other routes.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
}

/// A chat request, as memory sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    /// The end user, if the request names one.
    pub user: Option<String>,
    /// The conversation, if the request names one.
    pub conversation: Option<String>,
    /// How much of its history the client is known to send.
    pub history: ClientHistory,
    /// A key that several conversations may share.
    pub shared_key: Option<String>,
    pub dialect: ChatDialect,
    pub model: String,
    /// How the client wants its history treated, if it says so.
    pub mode: Option<ChatMode>,
    /// The body's `messages`, one to one and in order. Anthropic's `system` is separate and not
    /// included.
    pub messages: Vec<RequestMessage>,
}

/// One message of a chat request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMessage {
    /// The role, unchanged.
    pub role: String,
    /// The speaker's name, if the message has one.
    pub name: Option<String>,
    /// The text parts, joined by line breaks.
    pub text: String,
    /// The message as received, JSON.
    pub raw: String,
    /// Whether it contains tool calls or tool results.
    pub has_tools: bool,
}

/// What memory prepared for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedTurn {
    pub conversation: String,
    /// The number of this turn in it.
    pub turn: u64,
    /// The memory block to insert, already marked as ours.
    pub memory: Option<String>,
    /// Where to insert it.
    pub placement: MemoryPlacement,
    /// How to treat the client's history.
    pub mode: ChatMode,
    /// Recent turns as (role, text), to insert after the leading system messages. Every role but
    /// the assistant's counts as the user's.
    pub window: Vec<(String, String)>,
    /// The index of the new turn in the request's messages. In `replace` mode the earlier messages,
    /// except system messages, are replaced by the window. In `augment` mode they stay, and there
    /// is a window only if nothing precedes the new turn.
    pub new_from: usize,
    /// The ids of the injected items.
    pub injected: Vec<String>,
    pub injected_tokens: usize,
    /// How many items did not fit.
    pub left_out: usize,
    /// The model tokens spent on this conversation's memory so far.
    pub cost_tokens: u64,
    /// Identifies the turn for `persist_reply`.
    pub handle: TurnHandle,
}

/// An opaque value of memory that the proxy only carries.
#[derive(Clone, Default)]
pub struct TurnHandle(pub Option<Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for TurnHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl PartialEq for TurnHandle {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for TurnHandle {}

/// The reply of the model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssistantReply {
    pub text: String,
    /// Tool calls and other blocks that are not text, as a JSON array.
    pub parts: Option<String>,
    /// The stop reason, in the dialect's word.
    pub finish: Option<String>,
    /// Tokens in and out.
    pub usage: Option<(u64, u64)>,
    /// False if the stream broke, the client disconnected, or the reply could not be read in full.
    pub complete: bool,
    /// The HTTP status; 499 if the client disconnected before there was one.
    pub status: u16,
}
