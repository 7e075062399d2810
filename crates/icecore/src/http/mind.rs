//! What the server asks of memory in a chat: what to put into a request, and to keep the exchange.
//!
//! The server knows nothing of facts, turns or windows; memory knows nothing of HTTP. A trait
//! stands here because both sides are real: the vault behind it, and a script in the tests.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use icecore_engine::config::{Mode, Placement};
use icecore_engine::converse::ClientHistory;
use icecore_store::postgres::Figures;
use icecore_store::postgres::jobs::Backlog;

/// Memory, as a chat sees it.
#[async_trait]
pub trait Mind: Send + Sync {
    /// Before the request goes out. An error means: it passes through as it came, and a header and
    /// the log say so.
    async fn begin(&self, heard: Heard) -> Result<Begun, String>;

    /// After the reply: the exchange is on disk when this returns, and only then the last bytes go
    /// to the client.
    ///
    /// It is called for every `begin` that went well, also if the client went away, but not if the
    /// model's server could not be reached or answered with an error: then there was no exchange.
    /// After an error that may pass it is called again with the same.
    async fn end(&self, begun: &Begun, reply: Reply) -> Result<(), Unkept>;
}

/// Why an exchange was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unkept {
    /// For the log.
    pub said: String,
    /// Whether it may be kept when it is tried again.
    pub may_pass: bool,
}

impl Unkept {
    /// It could not be kept now.
    pub fn for_now(said: impl fmt::Display) -> Self {
        Self { said: said.to_string(), may_pass: true }
    }

    /// It is not to be kept, however often it is tried.
    pub fn for_good(said: impl fmt::Display) -> Self {
        Self { said: said.to_string(), may_pass: false }
    }
}

/// Whether the server can do its work now.
#[async_trait]
pub trait Ready: Send + Sync {
    /// An error says what is missing.
    async fn ready(&self) -> Result<(), NotReady>;

    /// How the connections to a database are used, where memory is in one.
    fn figures(&self) -> Option<Figures> {
        None
    }

    /// How much there is to do in the database, as it was found a moment ago; nothing where that is
    /// not known.
    async fn backlog(&self) -> Vec<Backlog> {
        Vec::new()
    }
}

/// Why the server cannot do its work.
#[derive(Debug)]
pub struct NotReady {
    /// For whoever asks, who may be anybody.
    pub brief: &'static str,
    /// For the log alone.
    pub said: String,
}

impl NotReady {
    /// In brief, and with everything that is known.
    pub fn new(brief: &'static str, said: impl fmt::Display) -> Self {
        Self { brief, said: said.to_string() }
    }
}

/// Which of the two ways of speaking to a model a request uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// `/v1/chat/completions` and everything beside it.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
}

/// A request, as far as memory cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Who speaks, if anything says so.
    pub user: Option<String>,
    /// Which conversation, if anything says so.
    pub conversation: Option<String>,
    /// What the client is known to send with every request.
    pub history: ClientHistory,
    /// A key that several conversations may share.
    pub shared_key: Option<String>,
    /// How the request is written.
    pub dialect: Dialect,
    /// The model that is asked.
    pub model: String,
    /// What the client wants done with its history, if it says so.
    pub mode: Option<Mode>,
    /// The body's `messages`, one for one and in order. Anthropic's `system` stands beside them and
    /// is not among these.
    pub messages: Vec<Told>,
}

/// One message of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// Its role, as it came.
    pub role: String,
    /// The name of who speaks, if the message says so.
    pub name: Option<String>,
    /// Its text parts, joined by line breaks.
    pub text: String,
    /// The message as it came, JSON.
    pub raw: String,
    /// Whether tool calls or tool results are in it.
    pub has_tools: bool,
}

/// What memory makes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The conversation.
    pub conversation: String,
    /// The number of this turn in it.
    pub turn: u64,
    /// The block to put in, already marked as ours.
    pub memory: Option<String>,
    /// Where it goes.
    pub placement: Placement,
    /// What becomes of the client's history.
    pub mode: Mode,
    /// Raw turns, as role and text, to put in after the leading system messages. Whatever is not
    /// the assistant's is the user's.
    pub window: Vec<(String, String)>,
    /// Where the new turn begins in [`Heard::messages`]. When replacing, the messages before it,
    /// but for system ones, give way to the window; when augmenting they stay, and there is a
    /// window only if nothing stands before the new turn.
    pub new_from: usize,
    /// The ids of what the block says.
    pub injected: Vec<String>,
    /// How long the block is.
    pub injected_tokens: usize,
    /// How much there was no room for.
    pub left_out: usize,
    /// What remembering this conversation has cost so far.
    pub cost_tokens: u64,
    /// Whatever memory needs to find its way back when the turn ends.
    pub handle: Handle,
}

/// Something of memory's that the server only carries.
#[derive(Clone, Default)]
pub struct Handle(pub Option<Arc<dyn Any + Send + Sync>>);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle")
    }
}

impl PartialEq for Handle {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Handle {}

/// What the model answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// Tool calls and other blocks that are not text, as a JSON array.
    pub parts: Option<String>,
    /// Why it ended, in the dialect's word.
    pub finish: Option<String>,
    /// Tokens in and out.
    pub usage: Option<(u64, u64)>,
    /// False if the stream broke, the client went away, or the reply could not be read in full.
    pub complete: bool,
    /// The status of the answer; 499 if the client went away before there was one.
    pub status: u16,
}
