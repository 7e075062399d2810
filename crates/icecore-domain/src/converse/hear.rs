//! Hearing: which conversation a request belongs to, and what of it is new.
//!
//! Most clients send everything that was said so far with every request. Only what comes after the last reply is new; a
//! request that ends with the same words after as many messages as the last one asks for the same turn once more.

use crate::gate;
use crate::hash::Hash;
use crate::plain;

/// The longest name of a conversation, in bytes.
pub const MAX_NAME_BYTES: usize = 200;

/// A message of a request, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent<'a> {
    /// `user`, `assistant`, `system`, `developer`, `tool` or something else.
    pub role: &'a str,
    /// What it says.
    pub text: &'a str,
    /// Whether it calls tools or brings what they gave back.
    pub has_tools: bool,
}

impl Sent<'_> {
    fn instructs(&self) -> bool {
        matches!(self.role, "system" | "developer")
    }

    /// A reply that ends a turn.
    fn replies(&self) -> bool {
        self.role == "assistant" && !self.has_tools
    }

    /// What a person says.
    fn asks(&self) -> bool {
        self.role == "user" && !self.has_tools
    }
}

/// What is new in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct New {
    /// Where it begins among the messages.
    pub from: usize,
    /// How many messages that are not instructions stand before it.
    pub before: usize,
    /// What the person says in it.
    pub asked: String,
    /// Whether tools were used in it already.
    pub goes_on: bool,
}

impl New {
    /// Whether the request tells what came before. A client that sends only the newest words may say the same thing twice and
    /// mean it.
    pub fn tells_history(&self) -> bool {
        self.before > 0 || self.goes_on
    }

    /// Whether it is the exchange once more in which this was asked after so many messages: tools were used in it meanwhile, or
    /// its reply is asked for again.
    pub fn is_again(&self, before: usize, asked: &str) -> bool {
        self.tells_history() && self.before == before && self.asked == asked
    }
}

/// What is new in a request: everything after the last reply that ended a turn.
pub fn new(messages: &[Sent<'_>]) -> New {
    let mut from = told(messages).iter().rposition(Sent::replies).map_or(0, |at| at + 1);
    while from < messages.len() && messages[from].instructs() {
        from += 1;
    }
    let new = &messages[from..];
    let asked: Vec<String> = new.iter().filter(|sent| sent.asks()).map(|sent| words(sent.text)).filter(|text| !text.is_empty()).collect();
    New {
        from,
        before: messages[..from].iter().filter(|sent| !sent.instructs()).count(),
        asked: asked.join("\n\n"),
        goes_on: new.iter().any(|sent| sent.has_tools),
    }
}

/// The messages without the beginning of an answer that the client puts into the model's mouth: that is not a reply.
fn told<'a, 'b>(messages: &'a [Sent<'b>]) -> &'a [Sent<'b>] {
    &messages[..messages.len() - usize::from(messages.last().is_some_and(Sent::replies))]
}

/// A client's words without what we put among them.
fn words(text: &str) -> String {
    gate::strip(text).text.trim().to_owned()
}

/// The name of a conversation, fit to be kept; `None` if nothing of it is left.
pub fn name(text: &str) -> Option<String> {
    let line = plain::one_line(&plain::clean(text).text);
    let cut = line[..line.floor_char_boundary(MAX_NAME_BYTES)].trim();
    (!cut.is_empty()).then(|| cut.to_owned())
}

/// What a conversation without a name goes by: what the person said first. Several may have begun with the same words.
pub fn opening(messages: &[Sent<'_>]) -> String {
    let first = messages.iter().find(|sent| sent.asks()).map_or_else(String::new, |sent| words(sent.text));
    Hash::of(b"opening").then(first.as_bytes()).short()
}

/// What the assistant first said in a request, be it a call of a tool, as a hash.
pub fn first_reply(messages: &[Sent<'_>]) -> Option<String> {
    told(messages).iter().find(|sent| sent.role == "assistant").map(|sent| reply_hash(sent.text))
}

/// The hash of a reply, by which a conversation is known again.
pub fn reply_hash(text: &str) -> String {
    Hash::of(b"reply").then(words(text).as_bytes()).short()
}

/// Those of these raw turns that the client did not send itself, by what was asked in them.
pub fn unsent(asked: &[&str], messages: &[Sent<'_>]) -> Vec<bool> {
    let sent: std::collections::HashSet<String> = messages.iter().filter(|sent| sent.asks()).map(|sent| words(sent.text)).collect();
    asked.iter().map(|asked| !sent.contains(asked.trim())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages from `u`ser, `a`ssistant, `s`ystem, and with tools `c`all and `r`esult, each with its words.
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
            (&["u hi", "a hello", "u weather?", "c call", "r 12", "c call", "r 13"], 2, 2, "weather?", true),
            // The client begins the answer itself.
            (&["u hi", "a hello", "u list", "a {"], 2, 2, "list", false),
            (&["a hello"], 0, 0, "", false),
            (&[], 0, 0, "", false),
            (&["s only this"], 1, 0, "", false),
        ] {
            let new = new(&sent(lines));
            assert_eq!((new.from, new.before, new.asked.as_str(), new.goes_on), (from, before, asked, goes_on), "{lines:?}");
        }
    }

    // C1
    #[test]
    fn the_same_turn_is_known_again() {
        let asks = |before, asked: &str, goes_on| New { from: 0, before, asked: asked.into(), goes_on };
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
        assert_eq!(opening(&messages), opening(&sent(&["u hi"])));
        assert_ne!(opening(&messages), opening(&sent(&["u ho"])));
        assert_eq!(unsent(&["hi", "ho"], &messages), [false, true]);
        assert_eq!(first_reply(&sent(&["u a", "a b", "u c", "a d", "u e"])), Some(reply_hash("b ")));
        assert_eq!(first_reply(&sent(&["u a", "c", "r y", "a b", "u c"])), Some(reply_hash("")));
        assert_eq!(first_reply(&sent(&["u a", "a {"])), None);
    }

    #[test]
    fn a_name_is_made_fit() {
        assert_eq!(name("  my\nchat\u{202e} ").as_deref(), Some("my chat"));
        assert_eq!(name("\u{0}\n"), None);
        assert_eq!(name(&"é".repeat(500)).map(|name| name.len()), Some(200));
    }
}
