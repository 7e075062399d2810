//! The ids that clients send: which conversation a request belongs to, and which end user.
//!
//! One table each, in order of precedence: the first row that a request has decides. Whoever shows a token that is bound
//! to a space speaks for that space alone: the guard sets `X-Icecore-User`, which stands first.

use axum::http::HeaderMap;
use icecore_engine::converse::ClientHistory;

use super::body::{self, Body, Object};
use super::messages::{self, is_name};
use super::mind::Dialect;
use crate::api::call::USER;

/// Where an id stands in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In a header.
    Header(&'static str),
    /// In a field of the body.
    Body(&'static str),
    /// In a field of the body's `metadata`.
    Metadata(&'static str),
}

/// The header that names a conversation.
pub const CONVERSATION: &str = "x-icecore-conversation";

/// The field of the Responses API that names a conversation, as text or as the `id` of an object.
const OBJECT: &str = "conversation";

/// What names a conversation, and what whoever sends it is known to send with every request.
pub const CONVERSATIONS: &[(Place, ClientHistory)] = &[
    (Place::Header(CONVERSATION), ClientHistory::Unknown),
    // Open WebUI, with ENABLE_FORWARD_USER_INFO_HEADERS.
    (Place::Header("x-openwebui-chat-id"), ClientHistory::Whole),
    // LibreChat, with `X-Conversation-Id: '{{LIBRECHAT_BODY_CONVERSATIONID}}'` among the headers of an endpoint.
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

/// What names an end user; each has a space of their own.
pub const USERS: &[(Place, &[Dialect])] = &[
    (Place::Header(USER), BOTH),
    (Place::Header("x-openwebui-user-id"), BOTH),
    (Place::Header("x-openwebui-user-email"), BOTH),
    (Place::Header("x-litellm-customer-id"), BOTH),
    (Place::Header("x-litellm-end-user-id"), BOTH),
    (Place::Body("user"), &[Dialect::OpenAi]),
    (Place::Body("safety_identifier"), &[Dialect::OpenAi]),
    (Place::Metadata("user_id"), BOTH),
];

const BOTH: &[Dialect] = &[Dialect::OpenAi, Dialect::Anthropic];

/// Requests with the same key share a beginning; often a whole application has one key. It tells apart conversations that
/// have another key, and joins none.
pub const SHARED_KEY: Place = Place::Body("prompt_cache_key");

/// What a request says about whose it is.
pub struct Ids<'a> {
    headers: &'a HeaderMap,
    body: &'a Object<'a>,
    metadata: Option<Object<'a>>,
}

impl<'a> Ids<'a> {
    /// Reads a request.
    pub fn of(headers: &'a HeaderMap, body: &'a Body<'a>) -> Self {
        let metadata = body.object.get("metadata").and_then(|metadata| body::object(metadata.get(), "metadata").ok());
        Self { headers, body: &body.object, metadata }
    }

    /// What stands at a place: nothing, a name, or an error if it is there and no name.
    fn at(&self, place: Place) -> Result<Option<String>, &'static str> {
        match place {
            Place::Header(header) => {
                let mut sent = self.headers.get_all(header).into_iter();
                let Some(value) = sent.next() else { return Ok(None) };
                let name = std::str::from_utf8(value.as_bytes()).map(str::trim).unwrap_or_default();
                if sent.next().is_none() && is_name(name) { Ok(Some(name.to_owned())) } else { Err(header) }
            }
            Place::Body(key) => {
                let object = self.body.get(key).filter(|_| key == OBJECT).and_then(|value| body::object(value.get(), key).ok());
                match object.and_then(|object| messages::name(&object, "id")) {
                    Some(id) => Ok(Some(id)),
                    None => messages::only_name(self.body, &[key]),
                }
            }
            Place::Metadata(key) => self.metadata.as_ref().map_or(Ok(None), |metadata| messages::only_name(metadata, &[key])),
        }
    }

    /// The conversation. What is no name says nothing.
    pub fn conversation(&self) -> Option<(String, ClientHistory)> {
        CONVERSATIONS.iter().find_map(|(place, history)| Some((self.at(*place).ok()??, *history)))
    }

    /// The end user. An error names the field that should say it and is no name: somebody who is named in a way that
    /// cannot be understood must not get the memory that belongs to no user.
    pub fn user(&self, dialect: Dialect) -> Result<Option<String>, &'static str> {
        for (place, _) in USERS.iter().filter(|(_, dialects)| dialects.contains(&dialect)) {
            if let Some(user) = self.at(*place)? {
                return Ok(Some(user));
            }
        }
        Ok(None)
    }

    /// The key that several conversations may share.
    pub fn shared_key(&self) -> Option<String> {
        self.at(SHARED_KEY).ok().flatten()
    }
}
