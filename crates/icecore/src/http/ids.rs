//! The ids that clients send: the conversation and the end user of a request.
//!
//! Each has one table in order of precedence: the first row found in a request decides. For a token
//! bound to a space, the guard sets `X-Icecore-User`, which comes first.

use axum::http::HeaderMap;
use icecore_engine::converse::ClientHistory;

use super::body::{self, Body, Object};
use super::messages::{self, is_name};
use super::mind::Dialect;
use crate::api::call::USER;

/// Where a request carries an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Header(&'static str),
    Body(&'static str),
    /// In a field of the body's `metadata`.
    Metadata(&'static str),
}

/// The header that names a conversation.
pub const CONVERSATION: &str = "x-icecore-conversation";

/// The field of `metadata` that names an end user.
const USER_ID: &str = "user_id";

/// The field of the Responses API that names a conversation, as text or as the `id` of an object.
const OBJECT: &str = "conversation";

/// The ids of conversations, and how much history the client that sends each one includes.
pub const CONVERSATIONS: &[(Place, ClientHistory)] = &[
    (Place::Header(CONVERSATION), ClientHistory::Unknown),
    // Open WebUI, with ENABLE_FORWARD_USER_INFO_HEADERS.
    (Place::Header("x-openwebui-chat-id"), ClientHistory::Whole),
    // LibreChat, with `X-Conversation-Id: '{{LIBRECHAT_BODY_CONVERSATIONID}}'` among the headers of
    // an endpoint.
    (Place::Header("x-conversation-id"), ClientHistory::Whole),
    // LiteLLM.
    (Place::Header("x-litellm-session-id"), ClientHistory::Unknown),
    (Place::Metadata("conversation"), ClientHistory::Unknown),
    (Place::Metadata("conversation_id"), ClientHistory::Unknown),
    (Place::Metadata("chat_id"), ClientHistory::Unknown),
    (Place::Metadata("thread_id"), ClientHistory::Unknown),
    (Place::Metadata("session_id"), ClientHistory::Unknown),
    (Place::Metadata("litellm_session_id"), ClientHistory::Unknown),
    (Place::Body(OBJECT), ClientHistory::Unknown),
    (Place::Body("conversationId"), ClientHistory::Unknown),
    (Place::Body("litellm_session_id"), ClientHistory::Unknown),
    (Place::Header("x-claude-code-session-id"), ClientHistory::Whole),
];

/// The ids of end users; each user has a space.
pub const USERS: &[(Place, &[Dialect])] = &[
    (Place::Header(USER), BOTH),
    (Place::Header("x-openwebui-user-id"), BOTH),
    (Place::Header("x-openwebui-user-email"), BOTH),
    (Place::Header("x-litellm-customer-id"), BOTH),
    (Place::Header("x-litellm-end-user-id"), BOTH),
    (Place::Body("user"), &[Dialect::OpenAi]),
    (Place::Body("safety_identifier"), &[Dialect::OpenAi]),
    (Place::Metadata(USER_ID), BOTH),
];

const BOTH: &[Dialect] = &[Dialect::OpenAi, Dialect::Anthropic];

/// Requests with the same key share a beginning; often a whole application has one key. Different
/// keys separate conversations; equal keys do not join them.
pub const SHARED_KEY: Place = Place::Body("prompt_cache_key");

/// What Claude Code writes into `metadata.user_id`: `user_HASH_account_UUID_session_UUID`, or a
/// JSON object. The session changes with every start, so it must not be part of the user.
#[derive(Debug, PartialEq, Eq)]
struct ClaudeCodeId {
    user: Option<String>,
    session: Option<String>,
}

impl ClaudeCodeId {
    /// Parses an id; `None` if it is not Claude Code's.
    fn read(id: &str) -> Option<Self> {
        if id.starts_with('{') {
            let fields: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(id).ok()?;
            let field = |key: &str| {
                fields
                    .get(key)?
                    .as_str()
                    .map(str::trim)
                    .filter(|text| is_name(text))
                    .map(str::to_owned)
            };
            let (user, session) =
                (field("account_uuid").or_else(|| field("device_id")), field("session_id"));
            return (user.is_some() || session.is_some()).then_some(Self { user, session });
        }
        let (user, session) = id.strip_prefix("user_")?.rsplit_once("_session_")?;
        let named = |text: String| Some(text).filter(|text| is_name(text));
        Some(Self { user: named(format!("user_{user}")), session: named(session.to_owned()) })
    }
}

/// Finds the ids in a request.
pub struct Ids<'a> {
    headers: &'a HeaderMap,
    body: &'a Object<'a>,
    metadata: Option<Object<'a>>,
}

impl<'a> Ids<'a> {
    /// Reads a request.
    pub fn of(headers: &'a HeaderMap, body: &'a Body<'a>) -> Self {
        let metadata = body
            .object
            .get("metadata")
            .and_then(|metadata| body::object(metadata.get(), "metadata").ok());
        Self { headers, body: &body.object, metadata }
    }

    /// The id at a location: `None`, a name, or an error if it is there but not a valid name.
    fn at(&self, place: Place) -> Result<Option<String>, &'static str> {
        match place {
            Place::Header(header) => {
                let mut sent = self.headers.get_all(header).into_iter();
                let Some(value) = sent.next() else { return Ok(None) };
                let name = std::str::from_utf8(value.as_bytes()).map(str::trim).unwrap_or_default();
                if sent.next().is_none() && is_name(name) {
                    Ok(Some(name.to_owned()))
                } else {
                    Err(header)
                }
            }
            Place::Body(key) => {
                let object = self
                    .body
                    .get(key)
                    .filter(|_| key == OBJECT)
                    .and_then(|value| body::object(value.get(), key).ok());
                match object.and_then(|object| messages::name(&object, "id")) {
                    Some(id) => Ok(Some(id)),
                    None => messages::only_name(self.body, &[key]),
                }
            }
            Place::Metadata(key) => self
                .metadata
                .as_ref()
                .map_or(Ok(None), |metadata| messages::only_name(metadata, &[key])),
        }
    }

    /// The conversation. An invalid name counts as none.
    pub fn conversation(&self) -> Option<(String, ClientHistory)> {
        let named = CONVERSATIONS
            .iter()
            .find_map(|(place, history)| Some((self.at(*place).ok()??, *history)));
        let session = || ClaudeCodeId::read(&self.at(Place::Metadata(USER_ID)).ok()??)?.session;
        named.or_else(|| Some((session()?, ClientHistory::Whole)))
    }

    /// The end user. An error names the field whose value is not a valid name: such a request must
    /// not get the memory of requests without a user.
    pub fn user(&self, dialect: Dialect) -> Result<Option<String>, &'static str> {
        for (place, _) in USERS.iter().filter(|(_, dialects)| dialects.contains(&dialect)) {
            if let Some(user) = self.at(*place)? {
                let of_claude_code =
                    ClaudeCodeId::read(&user).filter(|_| *place == Place::Metadata(USER_ID));
                return Ok(of_claude_code.map_or(Some(user), |id| id.user));
            }
        }
        Ok(None)
    }

    /// The key that several conversations may share.
    pub fn shared_key(&self) -> Option<String> {
        self.at(SHARED_KEY).ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // C1
    #[test]
    fn the_sessions_of_claude_code_are_conversations_of_one_user() {
        let legacy = |session: &str| format!("user_ab12_account_11-22_session_{session}");
        for (id, user, conversation) in [
            (legacy("s1"), Some("user_ab12_account_11-22"), Some("s1")),
            (legacy("s2"), Some("user_ab12_account_11-22"), Some("s2")),
            (
                r#"{"device_id":"d","account_uuid":"a","session_id":"s"}"#.into(),
                Some("a"),
                Some("s"),
            ),
            (
                r#"{"device_id":"d","account_uuid":"","session_id":"s"}"#.into(),
                Some("d"),
                Some("s"),
            ),
            (r#"{"session_id":"s"}"#.into(), None, Some("s")),
            // Ids of other clients are used as they are.
            ("ann".into(), Some("ann"), None),
            ("my_session_7".into(), Some("my_session_7"), None),
            (r#"{"id":"ann"}"#.into(), Some(r#"{"id":"ann"}"#), None),
        ] {
            let whole = serde_json::json!({ "metadata": { "user_id": id } }).to_string();
            let (headers, body) = (HeaderMap::new(), Body::read(whole.as_bytes()).unwrap());
            let ids = Ids::of(&headers, &body);
            assert_eq!(ids.user(Dialect::Anthropic).unwrap().as_deref(), user, "{id}");
            let named = ids.conversation();
            assert_eq!(named.as_ref().map(|(name, _)| name.as_str()), conversation, "{id}");
            assert!(named.is_none_or(|(_, history)| history == ClientHistory::Whole));
        }
        let whole =
            serde_json::json!({ "metadata": { "user_id": legacy("s1"), "session_id": "own" } })
                .to_string();
        let (headers, body) = (HeaderMap::new(), Body::read(whole.as_bytes()).unwrap());
        assert_eq!(Ids::of(&headers, &body).conversation().unwrap().0, "own");
    }
}
