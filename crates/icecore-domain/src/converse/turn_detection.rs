//! Turn detection: which conversation a request belongs to, and which part of it is new.
//!
//! Most clients resend the whole history with every request. Only the messages after the last reply
//! are new. A request that ends with the same words after as many messages as the previous one
//! repeats the same turn.

use icecore_text::normalize::collapse_spaces;

use crate::capture_filter;
use crate::hash::Hash;
use crate::sanitize;

/// Maximum length of a conversation name, in bytes.
pub const MAX_CONVERSATION_NAME_BYTES: usize = 200;

/// A message of a client's request, reduced to what turn detection needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientMessage<'a> {
    /// `user`, `assistant`, `system`, `developer`, `tool` or something else.
    pub role: &'a str,
    pub text: &'a str,
    /// Whether it calls tools or carries tool results.
    pub has_tools: bool,
}

impl ClientMessage<'_> {
    fn is_instruction(&self) -> bool {
        matches!(self.role, "system" | "developer")
    }

    /// Whether it is an assistant reply that ends a turn.
    fn is_final_reply(&self) -> bool {
        self.role == "assistant" && !self.has_tools
    }

    /// Whether it is text from a person.
    fn is_user_message(&self) -> bool {
        self.role == "user" && !self.has_tools
    }
}

/// The new part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTurn {
    /// Index of its first message.
    pub from: usize,
    /// How many messages before it are not instructions.
    pub before: usize,
    /// The person's text in it.
    pub asked: String,
    /// Whether it already contains tool calls.
    pub has_tool_calls: bool,
}

impl NewTurn {
    /// Whether the request includes earlier messages. A client that sends only the newest message
    /// may repeat the same text intentionally.
    pub fn has_history(&self) -> bool {
        self.before > 0 || self.has_tool_calls
    }

    /// Whether the request repeats the exchange in which this text was asked after as many
    /// messages: tools were used in between, or the client asks for the reply again.
    pub fn is_repeat_of(&self, before: usize, asked: &str) -> bool {
        self.has_history() && self.before == before && self.asked == asked
    }
}

/// Finds the new part of a request: everything after the last reply that ended a turn.
pub fn detect_new_turn(messages: &[ClientMessage<'_>]) -> NewTurn {
    let mut from = without_prefill(messages)
        .iter()
        .rposition(ClientMessage::is_final_reply)
        .map_or(0, |at| at + 1);
    while from < messages.len() && messages[from].is_instruction() {
        from += 1;
    }
    let new = &messages[from..];
    NewTurn {
        from,
        before: messages[..from].iter().filter(|sent| !sent.is_instruction()).count(),
        asked: user_text(new.iter()),
        has_tool_calls: new.iter().any(|sent| sent.has_tools),
    }
}

/// The text that people wrote in these messages.
pub fn user_text<'a, 'b: 'a>(messages: impl Iterator<Item = &'a ClientMessage<'b>>) -> String {
    messages
        .filter(|sent| sent.is_user_message())
        .map(|sent| strip_injected(sent.text))
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// The messages without a trailing assistant prefill. A prefill is the start of an answer that the
/// client supplies; it is not a reply.
fn without_prefill<'a, 'b>(messages: &'a [ClientMessage<'b>]) -> &'a [ClientMessage<'b>] {
    &messages
        [..messages.len() - usize::from(messages.last().is_some_and(ClientMessage::is_final_reply))]
}

/// A client's text without the context that icecore injected.
fn strip_injected(text: &str) -> String {
    capture_filter::strip_blocks(text).text.trim().to_owned()
}

/// A conversation name that is safe to store; `None` if nothing usable remains.
pub fn conversation_name(text: &str) -> Option<String> {
    let line = sanitize::one_line(&sanitize::clean(text).text);
    let cut = line[..line.floor_char_boundary(MAX_CONVERSATION_NAME_BYTES)].trim();
    (!cut.is_empty()).then(|| cut.to_owned())
}

/// One exchange of a client's history: the question and the reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentExchange {
    /// How many messages before it are not instructions.
    pub before: usize,
    pub asked: String,
    pub replied: String,
}

/// The exchanges of a client's history, oldest first: everything before the new turn.
pub fn sent_exchanges(messages: &[ClientMessage<'_>]) -> Vec<SentExchange> {
    let mut found = Vec::new();
    let (mut at, mut before, mut asked) = (0, 0, Vec::new());
    for sent in messages.iter().filter(|sent| !sent.is_instruction()) {
        at += 1;
        if sent.is_user_message() {
            asked.extend(Some(strip_injected(sent.text)).filter(|text| !text.is_empty()));
        } else if sent.is_final_reply() {
            found.push(SentExchange {
                before,
                asked: std::mem::take(&mut asked).join("\n\n"),
                replied: strip_injected(sent.text),
            });
            before = at;
        }
    }
    found
}

/// The hash by which message texts are compared. It ignores white space and a model's thinking
/// block, which many clients do not send back.
pub fn message_hash(text: &str) -> Hash {
    let stripped = capture_filter::strip_blocks(text).text;
    let spoken = without_thoughts(&stripped);
    Hash::of(b"said").chain(collapse_spaces(spoken).as_bytes())
}

/// A text without a marked thinking block at its start.
fn without_thoughts(text: &str) -> &str {
    let start = text.trim_start();
    let marks = [
        ("<think>", "</think>"),
        ("<thinking>", "</thinking>"),
        ("<details type=\"reasoning\"", "</details>"),
    ];
    let rest = marks.iter().find_map(|(open, close)| start.strip_prefix(open)?.split_once(close));
    rest.map_or(text, |(_, spoken)| spoken)
}

/// Whether a front end asks on its own behalf: for a title, tags or a search query. Open WebUI's
/// prompts begin like this. A document placed before a person's question begins with the same
/// words, but is the person's question.
pub fn is_background_task(asked: &str) -> bool {
    asked.starts_with("### Task:")
        && (asked.contains("<chat_history>") || asked.contains("### Chat History:"))
}

/// The fingerprint that finds a conversation without an id: its first exchanges and an optional
/// client key. Other conversations may share it.
pub fn opening_fingerprint(first: &[SentExchange], key: Option<&str>) -> String {
    let mut hash = Hash::of(b"opening");
    if let Some(key) = key {
        hash = hash.chain(b"key").chain(key.as_bytes());
    }
    for exchange in first {
        hash = hash
            .chain(message_hash(&exchange.asked).as_bytes())
            .chain(message_hash(&exchange.replied).as_bytes());
    }
    hash.to_string()[..16].to_owned()
}

/// The first exchange of a request whose first turn is still running: the assistant has called a
/// tool.
pub fn first_tool_call(messages: &[ClientMessage<'_>]) -> Option<SentExchange> {
    let call = without_prefill(messages).iter().find(|sent| sent.role == "assistant")?;
    let first = messages
        .iter()
        .find(|sent| sent.is_user_message())
        .map_or_else(String::new, |sent| strip_injected(sent.text));
    Some(SentExchange { before: 0, asked: first, replied: strip_injected(call.text) })
}

/// The hash of a reply, by which its conversation is recognized.
pub fn reply_hash(text: &str) -> String {
    Hash::of(b"reply").chain(strip_injected(text).as_bytes()).short_hex()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds messages from `u`ser, `a`ssistant and `s`ystem, and with tools `c`all and `r`esult,
    /// each followed by its text.
    fn client_messages<'a>(lines: &[&'a str]) -> Vec<ClientMessage<'a>> {
        let one = |line: &&'a str| {
            let (role, has_tools) = match &line[..1] {
                "u" => ("user", false),
                "a" => ("assistant", false),
                "s" => ("system", false),
                "c" => ("assistant", true),
                _ => ("tool", true),
            };
            ClientMessage { role, text: line[1..].trim(), has_tools }
        };
        lines.iter().map(one).collect()
    }

    // C1
    #[test]
    fn what_comes_after_the_last_reply_is_new() {
        for (lines, from, before, asked, goes_on) in [
            (&["u hi"][..], 0, 0, "hi", false),
            (&["s be kind", "u hi"], 1, 0, "hi", false),
            (&["s be kind", "u hi", "a hello", "u how are you?"], 3, 2, "how are you?", false),
            (&["u hi", "a hello", "u one", "u two"], 2, 2, "one\n\ntwo", false),
            (&["u hi", "a hello", "s now rhyme", "u go"], 3, 2, "go", false),
            (&["u weather?", "c call", "r 12 degrees"], 0, 0, "weather?", true),
            (
                &["u hi", "a hello", "u weather?", "c call", "r 12", "c call", "r 13"],
                2,
                2,
                "weather?",
                true,
            ),
            // The client prefills the answer.
            (&["u hi", "a hello", "u list", "a {"], 2, 2, "list", false),
            (&["a hello"], 0, 0, "", false),
            (&[], 0, 0, "", false),
            (&["s only this"], 1, 0, "", false),
        ] {
            let new = detect_new_turn(&client_messages(lines));
            assert_eq!(
                (new.from, new.before, new.asked.as_str(), new.has_tool_calls),
                (from, before, asked, goes_on),
                "{lines:?}"
            );
        }
    }

    // C1
    #[test]
    fn the_same_turn_is_known_again() {
        let asks = |before, asked: &str, goes_on| NewTurn {
            from: 0,
            before,
            asked: asked.into(),
            has_tool_calls: goes_on,
        };
        for (new, before, is_again) in [
            (asks(6, "go on", false), 6, true),
            (asks(8, "go on", false), 6, false),
            (asks(6, "go on, please", false), 6, false),
            (asks(0, "go on", false), 6, false),
            (asks(6, "go on", true), 6, true),
            (asks(0, "go on", false), 0, false),
            (asks(0, "go on", true), 0, true),
        ] {
            assert_eq!(new.is_repeat_of(before, "go on"), is_again, "{new:?}");
        }
    }

    // C1, C3
    #[test]
    fn our_own_words_are_not_the_clients() {
        let block = capture_filter::wrap_block(
            "chat",
            jiff::civil::date(2026, 2, 13),
            "- The user likes tea",
        );
        let text = format!("hi\n\n{block}");
        let messages = [ClientMessage { role: "user", text: &text, has_tools: false }];
        assert_eq!(detect_new_turn(&messages).asked, "hi");
        assert_eq!(message_hash(&text), message_hash("hi"));
    }

    // C1, C3
    #[test]
    fn a_history_is_read_exchange_by_exchange() {
        let exchanges = |lines: &[&str]| -> Vec<(usize, String, String)> {
            let all = client_messages(lines);
            let found = sent_exchanges(&all[..detect_new_turn(&all).from]);
            found.into_iter().map(|one| (one.before, one.asked, one.replied)).collect()
        };
        let one =
            |before, asked: &str, replied: &str| (before, asked.to_owned(), replied.to_owned());
        for (lines, expected) in [
            (&["u hi"][..], vec![]),
            (&["s be kind", "u hi", "a hello", "u go"], vec![one(0, "hi", "hello")]),
            (
                &["u a", "u b", "a c", "s now rhyme", "u d", "c call", "r 12", "a e", "u f"],
                vec![one(0, "a\n\nb", "c"), one(3, "d", "e")],
            ),
            // A reply without a question.
            (
                &["a welcome", "u hi", "a hello", "u go"],
                vec![one(0, "", "welcome"), one(1, "hi", "hello")],
            ),
            (&["u weather?", "c call", "r 12"], vec![]),
        ] {
            assert_eq!(exchanges(lines), expected, "{lines:?}");
        }
        let call = first_tool_call(&client_messages(&["u weather?", "c looking", "r 12"])).unwrap();
        assert_eq!((call.asked.as_str(), call.replied.as_str()), ("weather?", "looking"));
        assert_eq!(first_tool_call(&client_messages(&["u a", "a {"])), None);
    }

    // C1
    #[test]
    fn words_are_compared_without_thoughts_and_white_space() {
        assert_eq!(
            message_hash("<think>\nhm\n</think>\n\nIt is  12."),
            message_hash("It is 12.\n")
        );
        assert_eq!(
            message_hash("<details type=\"reasoning\" done=\"true\">hm</details>Yes"),
            message_hash("Yes")
        );
        assert_ne!(message_hash("<think>hm"), message_hash("hm"));
        let exchange = |asked: &str, replied: &str| SentExchange {
            before: 0,
            asked: asked.into(),
            replied: replied.into(),
        };
        let alike = [exchange("hi", "Hello!")];
        assert_eq!(
            opening_fingerprint(&alike, None),
            opening_fingerprint(&[exchange("hi ", " Hello!")], None)
        );
        assert_ne!(
            opening_fingerprint(&alike, None),
            opening_fingerprint(&[exchange("hi", "Hello.")], None)
        );
        assert_ne!(opening_fingerprint(&alike, None), opening_fingerprint(&alike, Some("key")));
        assert_ne!(
            opening_fingerprint(&alike, None),
            opening_fingerprint(&[alike[0].clone(), alike[0].clone()], None)
        );
    }

    // C1
    #[test]
    fn tasks_of_front_ends_are_distinguished_from_questions() {
        assert!(is_background_task(
            "### Task:\nGenerate a concise title.\n### Chat History:\n<chat_history>\nUSER: hi\n</chat_history>"
        ));
        assert!(!is_background_task(
            "### Task:\nRespond to the user query using the provided context.\n<context>x</context>\nhow tall is it?"
        ));
        assert!(!is_background_task("what does ### Task: <chat_history> mean?"));
    }

    #[test]
    fn a_name_is_made_fit() {
        assert_eq!(conversation_name("  my\nchat\u{202e} ").as_deref(), Some("my chat"));
        assert_eq!(conversation_name("\u{0}\n"), None);
        assert_eq!(conversation_name(&"é".repeat(500)).map(|name| name.len()), Some(200));
    }
}
