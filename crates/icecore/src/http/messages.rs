//! What both dialects share: the list of messages, and inserting memory and the window into it.

use serde_json::value::RawValue;

use icecore_engine::config::{ChatMode, MemoryPlacement};

use super::body::{self, BodyEdits, BodyError, RawObject, RequestBody};
use super::chat_memory::{ChatDialect, PreparedTurn, RequestMessage};
use super::{anthropic, openai};

/// The messages of a body.
pub struct MessageList<'a> {
    /// The whole list.
    pub list: &'a RawValue,
    /// Each message.
    pub raw: Vec<&'a RawValue>,
    /// The role of each.
    kinds: Vec<MessageRole>,
}

/// The role of a message, and whether it contains tool calls or results.
struct MessageRole {
    role: String,
    has_tools: bool,
}

impl<'a> MessageList<'a> {
    /// Parses the messages; `None` if there are none, which the upstream judges.
    pub fn parse(
        body: &RequestBody<'a>,
        dialect: ChatDialect,
    ) -> Result<Option<(Self, Vec<RequestMessage>)>, BodyError> {
        let Some(list) = body.object.get("messages") else { return Ok(None) };
        let Some(raw) = body::parse_array(list).filter(|raw| !raw.is_empty()) else {
            return Ok(None);
        };
        let mut told = Vec::with_capacity(raw.len());
        for (at, message) in raw.iter().enumerate() {
            let object = body::parse_object(message.get(), &format!("messages[{at}]"))?;
            let role = object.text("role").unwrap_or_default().into_owned();
            let (text, has_tools) = match dialect {
                ChatDialect::OpenAi => openai::message_text(&object, &role),
                ChatDialect::Anthropic => anthropic::message_text(&object),
            };
            told.push(RequestMessage {
                role,
                name: name_field(&object, "name"),
                text,
                raw: message.get().to_owned(),
                has_tools,
            });
        }
        let kinds = told
            .iter()
            .map(|told: &RequestMessage| MessageRole {
                role: told.role.clone(),
                has_tools: told.has_tools,
            })
            .collect();
        Ok(Some((Self { list, raw, kinds }, told)))
    }
}

/// The texts of a message's parts, and the kinds of its parts.
pub fn text_parts(content: Option<&RawValue>) -> (Vec<String>, Vec<String>) {
    let Some(content) = content else { return Default::default() };
    if let Some(text) = body::parse_string(content) {
        return (vec![text.into_owned()], Vec::new());
    }
    let (mut texts, mut kinds) = (Vec::new(), Vec::new());
    for part in body::parse_array(content).unwrap_or_default() {
        let Ok(part) = body::parse_object(part.get(), "a part") else { continue };
        let kind = part.text("type").unwrap_or_default().into_owned();
        let text = match kind.as_str() {
            "text" | "input_text" | "output_text" => part.text("text"),
            "refusal" => part.text("refusal"),
            _ => None,
        };
        texts.extend(text.map(|text| text.into_owned()));
        kinds.push(kind);
    }
    (texts, kinds)
}

/// The changes to a body's messages.
#[derive(Default)]
struct MessageChanges {
    /// A message with changed content.
    changed: Option<(usize, String)>,
    /// A message before all others.
    lead: Option<String>,
    /// Messages after the leading ones.
    window: Vec<String>,
    /// How many messages stay before the window.
    leading: usize,
    /// Messages that are removed.
    gone: Vec<usize>,
}

/// The body with memory inserted. Everything else stays byte for byte.
pub fn insert_memory(
    body: &RequestBody<'_>,
    messages: &MessageList<'_>,
    turn: &PreparedTurn,
    dialect: ChatDialect,
) -> String {
    let mut edits = BodyEdits::default();
    // Anthropic's system messages have fixed positions between turns, so the history around one
    // cannot be replaced.
    let is_fixed = dialect == ChatDialect::Anthropic
        && messages.kinds.iter().take(turn.new_from).any(|kind| is_system(&kind.role));
    let mut wanted = if is_fixed {
        MessageChanges::default()
    } else {
        MessageChanges::plan_history(messages, turn, dialect)
    };
    if let Some(memory) = turn.memory.as_deref().filter(|memory| !memory.is_empty()) {
        let user = (turn.placement == MemoryPlacement::LastUser)
            .then(|| last_user_index(messages, turn, &wanted.gone))
            .flatten();
        let placed = user.and_then(|at| {
            let object = body::parse_object(messages.raw.get(at)?.get(), "").ok()?;
            let changed = match dialect {
                ChatDialect::OpenAi => openai::with_text(messages.raw[at].get(), &object, memory),
                ChatDialect::Anthropic => {
                    anthropic::with_text(messages.raw[at].get(), &object, memory)
                }
            };
            changed.map(|changed| (at, changed))
        });
        match (placed, dialect) {
            (Some(placed), _) => wanted.changed = Some(placed),
            (None, ChatDialect::Anthropic) => anthropic::append_to_system(body, &mut edits, memory),
            (None, ChatDialect::OpenAi) => {
                let system =
                    messages.kinds.iter().enumerate().filter(|(_, kind)| is_system(&kind.role));
                let changed = system.into_iter().find_map(|(at, _)| {
                    let object = body::parse_object(messages.raw[at].get(), "").ok()?;
                    openai::with_text(messages.raw[at].get(), &object, memory)
                        .map(|changed| (at, changed))
                });
                match changed {
                    Some(changed) => wanted.changed = Some(changed),
                    None => wanted.lead = Some(openai::text_message("system", memory)),
                }
            }
        }
    }
    wanted.apply(body, messages, &mut edits);
    edits.apply(body.whole)
}

/// Whether the role is the operator's.
fn is_system(role: &str) -> bool {
    matches!(role, "system" | "developer")
}

/// Where the new turn begins; a tool result is never separated from its call.
fn new_turn_index(messages: &MessageList<'_>, turn: &PreparedTurn) -> usize {
    let mut from = turn.new_from.min(messages.kinds.len());
    while from > 0
        && messages.kinds.get(from).is_some_and(|kind| kind.has_tools && kind.role != "assistant")
    {
        from -= 1;
    }
    from
}

/// The window as messages.
fn window_messages(turn: &PreparedTurn, dialect: ChatDialect) -> impl Iterator<Item = String> + '_ {
    let said = turn.window.iter().filter(|(_, text)| !text.trim().is_empty());
    said.map(|(role, text)| (if role == "assistant" { "assistant" } else { "user" }, text))
        // Anthropic's conversations begin with the user.
        .skip_while(move |(role, _)| dialect == ChatDialect::Anthropic && *role == "assistant")
        .map(|(role, text)| openai::text_message(role, text))
}

/// The message that receives the memory: the user's last one in this turn. Tool results also have
/// the user's role; memory stays before the tool call, so that the provider's prompt cache remains
/// valid.
fn last_user_index(
    messages: &MessageList<'_>,
    turn: &PreparedTurn,
    gone: &[usize],
) -> Option<usize> {
    let from = turn.new_from;
    let last = |from: usize, tools: bool| {
        let takes = |at: usize| {
            messages.kinds[at].role == "user"
                && (tools || !messages.kinds[at].has_tools)
                && !gone.contains(&at)
        };
        (from..messages.kinds.len()).rev().find(|at| takes(*at))
    };
    last(from, false)
        .or_else(|| last(from, true))
        .or_else(|| last(0, false))
        .or_else(|| last(0, true))
}

impl MessageChanges {
    fn plan_history(messages: &MessageList<'_>, turn: &PreparedTurn, dialect: ChatDialect) -> Self {
        let leading = match dialect {
            ChatDialect::OpenAi => {
                messages.kinds.iter().take_while(|kind| is_system(&kind.role)).count()
            }
            ChatDialect::Anthropic => 0,
        };
        let gone = match turn.mode {
            ChatMode::Augment => Vec::new(),
            ChatMode::Replace => (0..new_turn_index(messages, turn))
                .filter(|at| !is_system(&messages.kinds[*at].role))
                .collect(),
        };
        Self { leading, gone, window: window_messages(turn, dialect).collect(), ..Self::default() }
    }

    fn apply(self, body: &RequestBody<'_>, messages: &MessageList<'_>, edits: &mut BodyEdits) {
        let Self { changed, lead, window, leading, gone } = self;
        if lead.is_none() && window.is_empty() && gone.is_empty() {
            if let Some((at, text)) = changed {
                edits.replace(body.range_of(messages.raw[at]), text);
            }
            return;
        }
        let one = |at: usize| match &changed {
            Some((which, text)) if *which == at => text.as_str(),
            _ => messages.raw[at].get(),
        };
        let stay = |from: usize, to: usize| (from..to).filter(|at| !gone.contains(at)).map(one);
        let before = lead.as_deref().into_iter().chain(stay(0, leading));
        let all: Vec<&str> = before
            .chain(window.iter().map(String::as_str))
            .chain(stay(leading, messages.raw.len()))
            .collect();
        edits.replace(body.range_of(messages.list), format!("[{}]", all.join(",")));
    }
}

/// A field's text as a name; overlong ones and those with control characters are invalid.
pub fn name_field(object: &RawObject<'_>, key: &str) -> Option<String> {
    object.text(key).map(|name| name.trim().to_owned()).filter(|name| is_valid_name(name))
}

/// The name in the first of these keys that is present; an error if it is not a valid name. An
/// invalid name must not count as no name: memory without a user is shared by all.
pub fn first_name_field(
    object: &RawObject<'_>,
    keys: &[&'static str],
) -> Result<Option<String>, &'static str> {
    let said = |key: &&'static str| object.get(key).is_some_and(|value| value.get() != "null");
    let Some(key) = keys.iter().copied().find(said) else { return Ok(None) };
    name_field(object, key).map(Some).ok_or(key)
}

/// Whether a text can be the name of a conversation or a user.
pub fn is_valid_name(name: &str) -> bool {
    const MAX_NAME_BYTES: usize = 512;
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared_turn(
        memory: Option<&str>,
        placement: MemoryPlacement,
        mode: ChatMode,
        window: &[(&str, &str)],
        new_from: usize,
    ) -> PreparedTurn {
        PreparedTurn {
            conversation: "c".into(),
            turn: 1,
            memory: memory.map(str::to_owned),
            placement,
            mode,
            window: window
                .iter()
                .map(|(role, text)| ((*role).to_owned(), (*text).to_owned()))
                .collect(),
            new_from,
            injected: Vec::new(),
            injected_tokens: 0,
            left_out: 0,
            cost_tokens: 0,
            handle: Default::default(),
        }
    }

    fn changed_body(dialect: ChatDialect, whole: &str, turn: &PreparedTurn) -> String {
        let body = RequestBody::parse(whole.as_bytes()).unwrap();
        let (messages, _) = MessageList::parse(&body, dialect).unwrap().unwrap();
        let changed = insert_memory(&body, &messages, turn, dialect);
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(&changed).is_ok(), "{changed}");
        changed
    }

    #[track_caller]
    fn check(dialect: ChatDialect, turn: &PreparedTurn, whole: &str, expected: &str) {
        assert_eq!(changed_body(dialect, whole, turn), expected, "{whole}");
    }

    // C3
    #[test]
    fn memory_goes_to_the_end_of_what_is_there_and_the_rest_stays_byte_for_byte() {
        use ChatDialect::{Anthropic, OpenAi};
        let system =
            prepared_turn(Some("M\"1"), MemoryPlacement::System, ChatMode::Augment, &[], 0);
        let user = prepared_turn(Some("M"), MemoryPlacement::LastUser, ChatMode::Augment, &[], 0);
        for (dialect, begun, whole, expected) in [
            // An existing system message, of either role, as text or as parts.
            (
                OpenAi,
                &system,
                r#"{ "seed":12345678901234567890123, "messages":[ {"role":"developer","content":"d\u0041"} , {"role":"user","content":"u"}],"t":1.0E2 }"#,
                r#"{ "seed":12345678901234567890123, "messages":[ {"role":"developer","content":"d\u0041\n\nM\"1"} , {"role":"user","content":"u"}],"t":1.0E2 }"#,
            ),
            (
                OpenAi,
                &system,
                r#"{"messages":[{"role":"system","content":[{"type":"text","text":"s","x":1}],"name":"n"},{"role":"user","content":"u"}]}"#,
                r#"{"messages":[{"role":"system","content":[{"type":"text","text":"s","x":1},{"type":"text","text":"M\"1"}],"name":"n"},{"role":"user","content":"u"}]}"#,
            ),
            // None, or none that can hold text.
            (
                OpenAi,
                &system,
                r#"{"messages":[{"role":"user","content":"u"}],"z":0}"#,
                r#"{"messages":[{"role":"system","content":"M\"1"},{"role":"user","content":"u"}],"z":0}"#,
            ),
            (
                OpenAi,
                &system,
                r#"{"messages":[{"role":"system","content":null}]}"#,
                r#"{"messages":[{"role":"system","content":"M\"1"},{"role":"system","content":null}]}"#,
            ),
            // The user's last message, not between a tool call and its result.
            (
                OpenAi,
                &user,
                r#"{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":"r"}]}"#,
                r#"{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b\n\nM"},{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","tool_call_id":"1","content":"r"}]}"#,
            ),
            (
                OpenAi,
                &user,
                r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}"#,
                r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}},{"type":"text","text":"M"}]}]}"#,
            ),
            // No user message.
            (
                OpenAi,
                &user,
                r#"{"messages":[{"role":"system","content":""}]}"#,
                r#"{"messages":[{"role":"system","content":"M"}]}"#,
            ),
            // Anthropic's system: missing, text, blocks with cache marks, an empty one, null.
            (
                Anthropic,
                &system,
                r#"{"messages":[{"role":"user","content":"u"}] }"#,
                r#"{"messages":[{"role":"user","content":"u"}] ,"system":[{"type":"text","text":"M\"1"}]}"#,
            ),
            (
                Anthropic,
                &system,
                r#"{"system":"s\u0041","messages":[{"role":"user","content":"u"}]}"#,
                r#"{"system":[{"type":"text","text":"s\u0041"},{"type":"text","text":"M\"1"}],"messages":[{"role":"user","content":"u"}]}"#,
            ),
            (
                Anthropic,
                &system,
                r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}],"messages":[{"role":"user","content":"u"}]}"#,
                r#"{"system":[{"type":"text","text":"x-anthropic-billing-header: 1"},{"type":"text","text":"s","cache_control":{"type":"ephemeral"}},{"type":"text","text":"M\"1"}],"messages":[{"role":"user","content":"u"}]}"#,
            ),
            (
                Anthropic,
                &system,
                r#"{"system":"","messages":[{"role":"user","content":"u"}]}"#,
                r#"{"system":[{"type":"text","text":"M\"1"}],"messages":[{"role":"user","content":"u"}]}"#,
            ),
            (
                Anthropic,
                &system,
                r#"{"system":null,"messages":[{"role":"user","content":"u"}]}"#,
                r#"{"system":[{"type":"text","text":"M\"1"}],"messages":[{"role":"user","content":"u"}]}"#,
            ),
            // Invalid input stays as it is; the upstream reports it.
            (
                Anthropic,
                &system,
                r#"{"system":7,"messages":[{"role":"user","content":"u"}]}"#,
                r#"{"system":7,"messages":[{"role":"user","content":"u"}]}"#,
            ),
            (
                Anthropic,
                &user,
                r#"{"messages":[{"role":"user","content":"u"}]}"#,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"u"},{"type":"text","text":"M"}]}]}"#,
            ),
            // In a tool loop memory stays where it was when the turn began, so that caches stay
            // valid.
            (
                Anthropic,
                &user,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s="},{"type":"tool_use","id":"1"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},{"type":"text","text":"reminder"}]}]}"#,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"u"},{"type":"text","text":"M"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s="},{"type":"tool_use","id":"1"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},{"type":"text","text":"reminder"}]}]}"#,
            ),
            // The turn begins with a tool result: after it.
            (
                Anthropic,
                &PreparedTurn { new_from: 1, ..user.clone() },
                r#"{"messages":[{"role":"user","content":"old"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"text","text":"new","cache_control":{"type":"ephemeral"}}]}]}"#,
                r#"{"messages":[{"role":"user","content":"old"},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"},{"type":"text","text":"new","cache_control":{"type":"ephemeral"}},{"type":"text","text":"M"}]}]}"#,
            ),
        ] {
            check(dialect, begun, whole, expected);
        }
        // Nothing to add: nothing changes, to the byte.
        let nothing = prepared_turn(None, MemoryPlacement::System, ChatMode::Augment, &[], 0);
        let whole = "{\n \"messages\" : [ {\"role\":\"user\",\"content\":\"\\ud800\"} ]\t}\n";
        for dialect in [OpenAi, Anthropic] {
            check(dialect, &nothing, whole, whole);
        }
    }

    // C3 C6
    #[test]
    fn the_window_goes_before_the_history_or_in_its_place() {
        let window = [("user", "q1"), ("assistant", "a1"), ("tool", "t"), ("user", " ")];
        let history = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"q2"},{"role":"assistant","content":"a2"},{"role":"system","content":"s2"},{"role":"user","content":"q3"}]}"#;
        let augment = prepared_turn(None, MemoryPlacement::System, ChatMode::Augment, &window, 4);
        let raw = r#"{"role":"user","content":"q1"},{"role":"assistant","content":"a1"},{"role":"user","content":"t"}"#;
        check(
            ChatDialect::OpenAi,
            &augment,
            history,
            &format!(
                r#"{{"messages":[{{"role":"system","content":"s"}},{raw},{{"role":"user","content":"q2"}},{{"role":"assistant","content":"a2"}},{{"role":"system","content":"s2"}},{{"role":"user","content":"q3"}}]}}"#
            ),
        );
        let replace =
            prepared_turn(Some("M"), MemoryPlacement::System, ChatMode::Replace, &window, 4);
        check(
            ChatDialect::OpenAi,
            &replace,
            history,
            &format!(
                r#"{{"messages":[{{"role":"system","content":"s\n\nM"}},{raw},{{"role":"system","content":"s2"}},{{"role":"user","content":"q3"}}]}}"#
            ),
        );
        // Anthropic's conversations begin with the user, and system messages have fixed positions.
        let late = prepared_turn(
            None,
            MemoryPlacement::System,
            ChatMode::Replace,
            &[("assistant", "a0"), ("user", "q1"), ("assistant", "a1")],
            2,
        );
        let history = r#"{"messages":[{"role":"user","content":"q2"},{"role":"assistant","content":"a2"},{"role":"user","content":"q3"}]}"#;
        let expected = r#"{"messages":[{"role":"user","content":"q1"},{"role":"assistant","content":"a1"},{"role":"user","content":"q3"}]}"#;
        check(ChatDialect::Anthropic, &late, history, expected);
        let placed = r#"{"messages":[{"role":"user","content":"q2"},{"role":"system","content":"s"},{"role":"user","content":"q3"}]}"#;
        check(ChatDialect::Anthropic, &late, placed, placed);
        // A result is never separated from its call, however the new turn is cut.
        let loops = r#"{"messages":[{"role":"user","content":"q2"},{"role":"assistant","tool_calls":[{"id":"1"},{"id":"2"}]},{"role":"tool","tool_call_id":"1","content":"r"},{"role":"tool","tool_call_id":"2","content":"r"}]}"#;
        let cut = prepared_turn(None, MemoryPlacement::System, ChatMode::Replace, &[], 3);
        check(
            ChatDialect::OpenAi,
            &cut,
            loops,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"1"},{"id":"2"}]},{"role":"tool","tool_call_id":"1","content":"r"},{"role":"tool","tool_call_id":"2","content":"r"}]}"#,
        );
        // Memory is never inserted into a message that is removed.
        let cut =
            PreparedTurn { memory: Some("M".into()), placement: MemoryPlacement::LastUser, ..cut };
        check(
            ChatDialect::OpenAi,
            &cut,
            loops,
            r#"{"messages":[{"role":"system","content":"M"},{"role":"assistant","tool_calls":[{"id":"1"},{"id":"2"}]},{"role":"tool","tool_call_id":"1","content":"r"},{"role":"tool","tool_call_id":"2","content":"r"}]}"#,
        );
        // A turn that begins past the end does not panic.
        let past = prepared_turn(
            Some("M"),
            MemoryPlacement::LastUser,
            ChatMode::Replace,
            &[("user", "q")],
            99,
        );
        changed_body(ChatDialect::OpenAi, loops, &past);
        changed_body(ChatDialect::Anthropic, loops, &past);
    }

    // C3
    #[test]
    fn messages_are_read_in_every_form() {
        let read = |dialect, message: &str| {
            let whole = format!("{{\"messages\":[{message}]}}");
            let body = RequestBody::parse(whole.as_bytes()).unwrap();
            let told = MessageList::parse(&body, dialect).unwrap().unwrap().1.remove(0);
            assert_eq!(told.raw, message);
            (told.role, told.text, told.has_tools)
        };
        for (dialect, message, role, text, has_tools) in [
            (ChatDialect::OpenAi, r#"{"role":"user","content":"a\nb"}"#, "user", "a\nb", false),
            (
                ChatDialect::OpenAi,
                r#"{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b"}]}"#,
                "user",
                "a\nb",
                false,
            ),
            (
                ChatDialect::OpenAi,
                r#"{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}"#,
                "assistant",
                "",
                true,
            ),
            (
                ChatDialect::OpenAi,
                r#"{"role":"assistant","content":"x","tool_calls":[]}"#,
                "assistant",
                "x",
                false,
            ),
            (
                ChatDialect::OpenAi,
                r#"{"role":"tool","tool_call_id":"1","content":"r"}"#,
                "tool",
                "r",
                true,
            ),
            (ChatDialect::OpenAi, r#"{"content":7}"#, "", "", false),
            (
                ChatDialect::Anthropic,
                r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":"r"},{"type":"text","text":"u"}]}"#,
                "user",
                "u",
                true,
            ),
            (
                ChatDialect::Anthropic,
                r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"server_tool_use"}]}"#,
                "assistant",
                "",
                true,
            ),
            (
                ChatDialect::Anthropic,
                r#"{"role":"user","content":[{"type":"image"},{"type":"text","text":"u"}]}"#,
                "user",
                "u",
                false,
            ),
        ] {
            assert_eq!(
                read(dialect, message),
                (role.to_owned(), text.to_owned(), has_tools),
                "{message}"
            );
        }
        for wrong in [r#"{"messages":[{"role":"user","role":"system"}]}"#, r#"{"messages":[1]}"#] {
            let body = RequestBody::parse(wrong.as_bytes()).unwrap();
            assert!(
                MessageList::parse(&body, ChatDialect::OpenAi)
                    .err()
                    .unwrap()
                    .to_string()
                    .contains("messages[0]")
            );
        }
        for nothing in ["{}", r#"{"messages":[]}"#, r#"{"messages":null}"#, r#"{"messages":"x"}"#] {
            let body = RequestBody::parse(nothing.as_bytes()).unwrap();
            assert!(MessageList::parse(&body, ChatDialect::OpenAi).unwrap().is_none());
        }
    }
}
