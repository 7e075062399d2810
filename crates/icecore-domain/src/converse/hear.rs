//! Turn detection: which conversation a request belongs to, and which part of it is new.
//!
//! Most clients resend the whole history with every request. Only the messages after the last reply
//! are new. A request that ends with the same words after as many messages as the previous one
//! repeats the same turn.

use crate::gate;
use crate::hash::Hash;
use crate::plain;

/// Maximum length of a conversation name, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// A message of a client's request, reduced to what turn detection needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent<'a> {
    /// `user`, `assistant`, `system`, `developer`, `tool` or something else.
    pub role: &'a str,
    pub text: &'a str,
    /// Whether it calls tools or carries tool results.
    pub has_tools: bool,
}

impl Sent<'_> {
    fn instructs(&self) -> bool {
        matches!(self.role, "system" | "developer")
    }

    /// Whether it is an assistant reply that ends a turn.
    fn replies(&self) -> bool {
        self.role == "assistant" && !self.has_tools
    }

    /// Whether it is text from a person.
    fn asks(&self) -> bool {
        self.role == "user" && !self.has_tools
    }
}

/// The new part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// Index of its first message.
    pub from: usize,
    /// How many messages before it are not instructions.
    pub before: usize,
    /// The person's text in it.
    pub asked: String,
    /// Whether it already contains tool calls.
    pub goes_on: bool,
}

impl New {
    /// Whether the request includes earlier messages. A client that sends only the newest message
    /// may repeat the same text intentionally.
    pub fn tells_history(&self) -> bool {
        self.before > 0 || self.goes_on
    }

    /// Whether the request repeats the exchange in which this text was asked after as many
    /// messages: tools were used in between, or the client asks for the reply again.
    pub fn is_again(&self, before: usize, asked: &str) -> bool {
        self.tells_history() && self.before == before && self.asked == asked
    }
}

/// Finds the new part of a request: everything after the last reply that ended a turn.
pub fn new(messages: &[Sent<'_>]) -> New {
    let mut from = told(messages).iter().rposition(Sent::replies).map_or(0, |at| at + 1);
    while from < messages.len() && messages[from].instructs() {
        from += 1;
    }
    let new = &messages[from..];
    New {
        from,
        before: messages[..from].iter().filter(|sent| !sent.instructs()).count(),
        asked: asked(new.iter()),
        goes_on: new.iter().any(|sent| sent.has_tools),
    }
}

/// The text that people wrote in these messages.
pub fn asked<'a, 'b: 'a>(messages: impl Iterator<Item = &'a Sent<'b>>) -> String {
    messages
        .filter(|sent| sent.asks())
        .map(|sent| words(sent.text))
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// The messages without a trailing assistant prefill. A prefill is the start of an answer that the
/// client supplies; it is not a reply.
fn told<'a, 'b>(messages: &'a [Sent<'b>]) -> &'a [Sent<'b>] {
    &messages[..messages.len() - usize::from(messages.last().is_some_and(Sent::replies))]
}

/// A client's text without the context that icecore injected.
fn words(text: &str) -> String {
    gate::strip(text).text.trim().to_owned()
}

/// A conversation name that is safe to store; `None` if nothing usable remains.
pub fn name(text: &str) -> Option<String> {
    let line = plain::one_line(&plain::clean(text).text);
    let cut = line[..line.floor_char_boundary(MAX_NAME_BYTES)].trim();
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
pub fn history(messages: &[Sent<'_>]) -> Vec<SentExchange> {
    let mut found = Vec::new();
    let (mut at, mut before, mut asked) = (0, 0, Vec::new());
    for sent in messages.iter().filter(|sent| !sent.instructs()) {
        at += 1;
        if sent.asks() {
            asked.extend(Some(words(sent.text)).filter(|text| !text.is_empty()));
        } else if sent.replies() {
            found.push(SentExchange {
                before,
                asked: std::mem::take(&mut asked).join("\n\n"),
                replied: words(sent.text),
            });
            before = at;
        }
    }
    found
}

/// The hash by which message texts are compared. It ignores white space and a model's thinking
/// block, which many clients do not send back.
pub fn said_hash(text: &str) -> Hash {
    let stripped = gate::strip(text).text;
    let spoken = without_thoughts(&stripped);
    Hash::of(b"said").then(spoken.split_whitespace().collect::<Vec<_>>().join(" ").as_bytes())
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
pub fn opening(first: &[SentExchange], key: Option<&str>) -> String {
    let mut hash = Hash::of(b"opening");
    if let Some(key) = key {
        hash = hash.then(b"key").then(key.as_bytes());
    }
    for exchange in first {
        hash = hash
            .then(said_hash(&exchange.asked).bytes())
            .then(said_hash(&exchange.replied).bytes());
    }
    hash.to_string()[..16].to_owned()
}

/// The first exchange of a request whose first turn is still running: the assistant has called a
/// tool.
pub fn first_call(messages: &[Sent<'_>]) -> Option<SentExchange> {
    let call = told(messages).iter().find(|sent| sent.role == "assistant")?;
    let first =
        messages.iter().find(|sent| sent.asks()).map_or_else(String::new, |sent| words(sent.text));
    Some(SentExchange { before: 0, asked: first, replied: words(call.text) })
}

/// The hash of a reply, by which its conversation is recognized.
pub fn reply_hash(text: &str) -> String {
    Hash::of(b"reply").then(words(text).as_bytes()).short()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds messages from `u`ser, `a`ssistant and `s`ystem, and with tools `c`all and `r`esult,
    /// each followed by its text.
    fn sent<'a>(lines: &[&'a str]) -> Vec<Sent<'a>> {
        let one = |line: &&'a str| {
            let (role, has_tools) = match &line[..1] {
                "u" => ("user", false),
                "a" => ("assistant", false),
                "s" => ("system", false),
                "c" => ("assistant", true),
                _ => ("tool", true),
            };
            Sent { role, text: line[1..].trim(), has_tools }
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
            let new = new(&sent(lines));
            assert_eq!(
                (new.from, new.before, new.asked.as_str(), new.goes_on),
                (from, before, asked, goes_on),
                "{lines:?}"
            );
        }
    }

    // C1
    #[test]
    fn the_same_turn_is_known_again() {
        let asks =
            |before, asked: &str, goes_on| New { from: 0, before, asked: asked.into(), goes_on };
        for (new, before, is_again) in [
            (asks(6, "go on", false), 6, true),
            (asks(8, "go on", false), 6, false),
            (asks(6, "go on, please", false), 6, false),
            (asks(0, "go on", false), 6, false),
            (asks(6, "go on", true), 6, true),
            (asks(0, "go on", false), 0, false),
            (asks(0, "go on", true), 0, true),
        ] {
            assert_eq!(new.is_again(before, "go on"), is_again, "{new:?}");
        }
    }

    // C1, C3
    #[test]
    fn our_own_words_are_not_the_clients() {
        let block = gate::wrap("chat", jiff::civil::date(2026, 2, 13), "- The user likes tea");
        let text = format!("hi\n\n{block}");
        let messages = [Sent { role: "user", text: &text, has_tools: false }];
        assert_eq!(new(&messages).asked, "hi");
        assert_eq!(said_hash(&text), said_hash("hi"));
    }

    // C1, C3
    #[test]
    fn a_history_is_read_exchange_by_exchange() {
        let exchanges = |lines: &[&str]| -> Vec<(usize, String, String)> {
            let all = sent(lines);
            let found = history(&all[..new(&all).from]);
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
        let call = first_call(&sent(&["u weather?", "c looking", "r 12"])).unwrap();
        assert_eq!((call.asked.as_str(), call.replied.as_str()), ("weather?", "looking"));
        assert_eq!(first_call(&sent(&["u a", "a {"])), None);
    }

    // C1
    #[test]
    fn words_are_compared_without_thoughts_and_white_space() {
        assert_eq!(said_hash("<think>\nhm\n</think>\n\nIt is  12."), said_hash("It is 12.\n"));
        assert_eq!(
            said_hash("<details type=\"reasoning\" done=\"true\">hm</details>Yes"),
            said_hash("Yes")
        );
        assert_ne!(said_hash("<think>hm"), said_hash("hm"));
        let exchange = |asked: &str, replied: &str| SentExchange {
            before: 0,
            asked: asked.into(),
            replied: replied.into(),
        };
        let alike = [exchange("hi", "Hello!")];
        assert_eq!(opening(&alike, None), opening(&[exchange("hi ", " Hello!")], None));
        assert_ne!(opening(&alike, None), opening(&[exchange("hi", "Hello.")], None));
        assert_ne!(opening(&alike, None), opening(&alike, Some("key")));
        assert_ne!(opening(&alike, None), opening(&[alike[0].clone(), alike[0].clone()], None));
    }

    // C1
    #[test]
    fn tasks_of_front_ends_are_told_from_questions() {
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
        assert_eq!(name("  my\nchat\u{202e} ").as_deref(), Some("my chat"));
        assert_eq!(name("\u{0}\n"), None);
        assert_eq!(name(&"é".repeat(500)).map(|name| name.len()), Some(200));
    }
}
