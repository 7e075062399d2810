//! The ids that clients send: the conversation and the end user of a request.
//!
//! Each has one table in order of precedence: the first row found in a request decides. For a token
//! bound to a space, the guard sets `X-Icecore-User`, which comes first.

use axum::http::HeaderMap;
use icecore_engine::converse::ClientHistory;

use super::body::{self, RawObject, RequestBody};
use super::chat_memory::ChatDialect;
use super::messages::{self, is_valid_name};
use crate::api::call::USER_HEADER;

/// Where a request carries an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdLocation {
    Header(&'static str),
    Body(&'static str),
    /// In a field of the body's `metadata`.
    Metadata(&'static str),
}

/// The header that names a conversation.
pub const CONVERSATION_HEADER: &str = "x-icecore-conversation";

/// The field of `metadata` that names an end user.
const USER_ID_FIELD: &str = "user_id";

/// The field of the Responses API that names a conversation, as text or as the `id` of an object.
const CONVERSATION_FIELD: &str = "conversation";

/// The ids of conversations, and how much history the client that sends each one includes.
pub const CONVERSATION_IDS: &[(IdLocation, ClientHistory)] = &[
    (IdLocation::Header(CONVERSATION_HEADER), ClientHistory::Unknown),
    // Open WebUI, with ENABLE_FORWARD_USER_INFO_HEADERS.
    (IdLocation::Header("x-openwebui-chat-id"), ClientHistory::Whole),
    // LibreChat, with `X-Conversation-Id: '{{LIBRECHAT_BODY_CONVERSATIONID}}'` among the headers of
    // an endpoint.
    (IdLocation::Header("x-conversation-id"), ClientHistory::Whole),
    // LiteLLM.
    (IdLocation::Header("x-litellm-session-id"), ClientHistory::Unknown),
    (IdLocation::Metadata("conversation"), ClientHistory::Unknown),
    (IdLocation::Metadata("conversation_id"), ClientHistory::Unknown),
    (IdLocation::Metadata("chat_id"), ClientHistory::Unknown),
    (IdLocation::Metadata("thread_id"), ClientHistory::Unknown),
    (IdLocation::Metadata("session_id"), ClientHistory::Unknown),
    (IdLocation::Metadata("litellm_session_id"), ClientHistory::Unknown),
    (IdLocation::Body(CONVERSATION_FIELD), ClientHistory::Unknown),
    (IdLocation::Body("conversationId"), ClientHistory::Unknown),
    (IdLocation::Body("thread_id"), ClientHistory::Unknown),
    (IdLocation::Body("chat_id"), ClientHistory::Unknown),
    // OpenRouter's clients.
    (IdLocation::Body("session_id"), ClientHistory::Unknown),
    (IdLocation::Body("litellm_session_id"), ClientHistory::Unknown),
    (IdLocation::Header("x-claude-code-session-id"), ClientHistory::Whole),
];

/// The ids of end users; each user has a space.
pub const USER_IDS: &[(IdLocation, &[ChatDialect])] = &[
    (IdLocation::Header(USER_HEADER), BOTH_DIALECTS),
    (IdLocation::Header("x-openwebui-user-id"), BOTH_DIALECTS),
    (IdLocation::Header("x-openwebui-user-email"), BOTH_DIALECTS),
    (IdLocation::Header("x-litellm-customer-id"), BOTH_DIALECTS),
    (IdLocation::Header("x-litellm-end-user-id"), BOTH_DIALECTS),
    (IdLocation::Body("user"), &[ChatDialect::OpenAi]),
    (IdLocation::Body("safety_identifier"), &[ChatDialect::OpenAi]),
    (IdLocation::Metadata(USER_ID_FIELD), BOTH_DIALECTS),
];

const BOTH_DIALECTS: &[ChatDialect] = &[ChatDialect::OpenAi, ChatDialect::Anthropic];

/// Requests with the same key share a beginning; often a whole application has one key. Different
/// keys separate conversations; equal keys do not join them.
pub const SHARED_KEY: IdLocation = IdLocation::Body("prompt_cache_key");

/// What Claude Code writes into `metadata.user_id`: `user_HASH_account_UUID_session_UUID`, or a
/// JSON object. The session changes with every start, so it must not be part of the user.
#[derive(Debug, PartialEq, Eq)]
struct ClaudeCodeId {
    user: Option<String>,
    session: Option<String>,
}

impl ClaudeCodeId {
    /// Parses an id; `None` if it is not Claude Code's.
    fn parse(id: &str) -> Option<Self> {
        if id.starts_with('{') {
            let fields: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(id).ok()?;
            let field = |key: &str| {
                fields
                    .get(key)?
                    .as_str()
                    .map(str::trim)
                    .filter(|text| is_valid_name(text))
                    .map(str::to_owned)
            };
            let (user, session) =
                (field("account_uuid").or_else(|| field("device_id")), field("session_id"));
            return (user.is_some() || session.is_some()).then_some(Self { user, session });
        }
        let (user, session) = id.strip_prefix("user_")?.rsplit_once("_session_")?;
        let named = |text: String| Some(text).filter(|text| is_valid_name(text));
        Some(Self { user: named(format!("user_{user}")), session: named(session.to_owned()) })
    }
}

/// Finds the ids in a request.
pub struct RequestIds<'a> {
    headers: &'a HeaderMap,
    body: &'a RawObject<'a>,
    metadata: Option<RawObject<'a>>,
}

impl<'a> RequestIds<'a> {
    /// Reads a request.
    pub fn new(headers: &'a HeaderMap, body: &'a RequestBody<'a>) -> Self {
        let metadata = body
            .object
            .get("metadata")
            .and_then(|metadata| body::parse_object(metadata.get(), "metadata").ok());
        Self { headers, body: &body.object, metadata }
    }

    /// The id at a location: `None`, a name, or an error if it is there but not a valid name.
    fn lookup(&self, place: IdLocation) -> Result<Option<String>, &'static str> {
        match place {
            IdLocation::Header(header) => {
                let mut sent = self.headers.get_all(header).into_iter();
                let Some(value) = sent.next() else { return Ok(None) };
                let name = std::str::from_utf8(value.as_bytes()).map(str::trim).unwrap_or_default();
                if sent.next().is_none() && is_valid_name(name) {
                    Ok(Some(name.to_owned()))
                } else {
                    Err(header)
                }
            }
            IdLocation::Body(key) => {
                let object = self
                    .body
                    .get(key)
                    .filter(|_| key == CONVERSATION_FIELD)
                    .and_then(|value| body::parse_object(value.get(), key).ok());
                match object.and_then(|object| messages::name_field(&object, "id")) {
                    Some(id) => Ok(Some(id)),
                    None => messages::first_name_field(self.body, &[key]),
                }
            }
            IdLocation::Metadata(key) => self
                .metadata
                .as_ref()
                .map_or(Ok(None), |metadata| messages::first_name_field(metadata, &[key])),
        }
    }

    /// The conversation. An invalid name counts as none.
    pub fn conversation(&self) -> Option<(String, ClientHistory)> {
        let named = CONVERSATION_IDS
            .iter()
            .find_map(|(place, history)| Some((self.lookup(*place).ok()??, *history)));
        let session = || {
            ClaudeCodeId::parse(&self.lookup(IdLocation::Metadata(USER_ID_FIELD)).ok()??)?.session
        };
        named.or_else(|| Some((session()?, ClientHistory::Whole)))
    }

    /// The end user. An error names the field whose value is not a valid name: such a request must
    /// not get the memory of requests without a user.
    pub fn user(&self, dialect: ChatDialect) -> Result<Option<String>, &'static str> {
        for (place, _) in USER_IDS.iter().filter(|(_, dialects)| dialects.contains(&dialect)) {
            if let Some(user) = self.lookup(*place)? {
                let of_claude_code = ClaudeCodeId::parse(&user)
                    .filter(|_| *place == IdLocation::Metadata(USER_ID_FIELD));
                return Ok(of_claude_code.map_or(Some(user), |id| id.user));
            }
        }
        Ok(None)
    }

    /// The key that several conversations may share.
    pub fn shared_key(&self) -> Option<String> {
        self.lookup(SHARED_KEY).ok().flatten()
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
            let (headers, body) = (HeaderMap::new(), RequestBody::parse(whole.as_bytes()).unwrap());
            let ids = RequestIds::new(&headers, &body);
            assert_eq!(ids.user(ChatDialect::Anthropic).unwrap().as_deref(), user, "{id}");
            let named = ids.conversation();
            assert_eq!(named.as_ref().map(|(name, _)| name.as_str()), conversation, "{id}");
            assert!(named.is_none_or(|(_, history)| history == ClientHistory::Whole));
        }
        let whole =
            serde_json::json!({ "metadata": { "user_id": legacy("s1"), "session_id": "own" } })
                .to_string();
        let (headers, body) = (HeaderMap::new(), RequestBody::parse(whole.as_bytes()).unwrap());
        assert_eq!(RequestIds::new(&headers, &body).conversation().unwrap().0, "own");
    }
}
