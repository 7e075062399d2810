//! Copies a stream of server-sent events as it passes and collects the reply.
//!
//! An event is forwarded as soon as it is complete. Only the last one is held until it is released:
//! `[DONE]` or `message_stop`, or, without these, the newest event after the finish reason.

use serde_json::Value;

use super::mind::{Dialect, Reply};
use super::{anthropic, openai};

/// The longest event that is read; a longer one passes unread.
const MOST_EVENT_BYTES: usize = 8 << 20;
/// The longest reply that is collected.
const MOST_GATHERED_BYTES: usize = 16 << 20;

/// The position of an event in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// More follows.
    Middle,
    /// The model has finished or failed: this may be the last event.
    Finish,
    /// Nothing follows.
    Last,
    /// The event cannot be parsed.
    Unread,
}

/// Collects a reply.
#[derive(Debug)]
pub struct Gather {
    tongue: Tongue,
    /// Something was too long or could not be parsed.
    lacking: bool,
    full: bool,
    /// The status of the response.
    pub status: u16,
}

#[derive(Debug)]
enum Tongue {
    OpenAi(openai::Gather),
    Anthropic(anthropic::Gather),
}

impl Gather {
    /// Starts an empty reply.
    pub fn new(dialect: Dialect) -> Self {
        let tongue = match dialect {
            Dialect::OpenAi => Tongue::OpenAi(openai::Gather::default()),
            Dialect::Anthropic => Tongue::Anthropic(anthropic::Gather::default()),
        };
        Self { tongue, lacking: false, full: false, status: 499 }
    }

    fn event(&mut self, data: &str) -> Beat {
        if self.full {
            // The end must still be recognized.
            let mut rest = Self::new(match self.tongue {
                Tongue::OpenAi(_) => Dialect::OpenAi,
                Tongue::Anthropic(_) => Dialect::Anthropic,
            });
            return rest.tongue.event(data);
        }
        let beat = self.tongue.event(data);
        self.lacking |= beat == Beat::Unread;
        if self.tongue.bytes() > MOST_GATHERED_BYTES {
            (self.full, self.lacking) = (true, true);
        }
        beat
    }

    /// Reads a reply that was not streamed.
    pub fn whole(&mut self, reply: &[u8]) {
        let Ok(reply) = std::str::from_utf8(reply) else {
            self.lacking = true;
            return;
        };
        match &mut self.tongue {
            Tongue::OpenAi(gather) => gather.whole(reply),
            Tongue::Anthropic(gather) => gather.whole(reply),
        }
    }

    /// Marks the reply as incomplete.
    pub fn missed(&mut self) {
        self.lacking = true;
    }

    /// The reply so far.
    pub fn reply(&self) -> Reply {
        let reply = match &self.tongue {
            Tongue::OpenAi(gather) => gather.reply(),
            Tongue::Anthropic(gather) => gather.reply(),
        };
        Reply { complete: reply.complete && !self.lacking, status: self.status, ..reply }
    }
}

impl Tongue {
    fn event(&mut self, data: &str) -> Beat {
        match self {
            Self::OpenAi(gather) => gather.event(data),
            Self::Anthropic(gather) => gather.event(data),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::OpenAi(gather) => gather.bytes(),
            Self::Anthropic(gather) => gather.bytes(),
        }
    }
}

/// Parses JSON for reading only. Lone surrogates, which some servers send across two events, become
/// �.
pub fn value(data: &str) -> Option<Value> {
    serde_json::from_str(data).ok().or_else(|| serde_json::from_str(&mended(data)?).ok())
}

/// The text with every lone surrogate escape replaced by `\uFFFD`; `None` if there is none.
fn mended(data: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = data.get(at..at + 6)?.strip_prefix("\\u")?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_hexdigit())
            .then(|| u16::from_str_radix(digits, 16).ok())
            .flatten()
    };
    let (mut mended, mut at, mut halves) = (String::with_capacity(data.len()), 0, 0);
    while let Some(next) = data.get(at..).and_then(|rest| rest.find('\\')) {
        let escape = at + next;
        mended.push_str(data.get(at..escape)?);
        let length = match unit(escape) {
            Some(0xd800..=0xdbff) if matches!(unit(escape + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                mended.push_str("\\ufffd");
                halves += 1;
                at = escape + 6;
                continue;
            }
            _ => 1 + data.get(escape + 1..)?.chars().next()?.len_utf8(),
        };
        mended.push_str(data.get(escape..escape + length)?);
        at = escape + length;
    }
    mended.push_str(data.get(at..)?);
    (halves > 0).then_some(mended)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Open,
    Tail,
    Closed,
}

/// Splits a stream into events and holds the last one back.
#[derive(Debug)]
pub struct Tap {
    /// The bytes of the incomplete event.
    pending: Vec<u8>,
    /// Its newest line.
    line: Vec<u8>,
    after_return: bool,
    data: Option<String>,
    /// The event is too long, so it passes unread.
    blind: bool,
    at_start: bool,
    held: Vec<u8>,
    course: Course,
}

impl Default for Tap {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            line: Vec::new(),
            after_return: false,
            data: None,
            blind: false,
            at_start: true,
            held: Vec::new(),
            course: Course::Open,
        }
    }
}

impl Tap {
    /// Reads a piece of the stream and returns what may be forwarded.
    pub fn take(&mut self, piece: &[u8], gather: &mut Gather) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for (at, &byte) in piece.iter().enumerate() {
            if self.course == Course::Closed {
                self.held.extend_from_slice(piece.get(at..).unwrap_or_default());
                break;
            }
            let second_half = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            self.pending.push(byte);
            match byte {
                _ if second_half => {}
                b'\n' | b'\r' if self.end_line() => self.end_event(gather, &mut out),
                b'\n' | b'\r' => {}
                // In an unread event only empty lines matter.
                _ if !self.blind || self.line.is_empty() => self.line.push(byte),
                _ => {}
            }
        }
        if self.pending.len() > MOST_EVENT_BYTES && !self.blind {
            self.blind = true;
            (self.data, self.line) = (None, self.line.first().copied().into_iter().collect());
            gather.missed();
        }
        if self.blind {
            out.append(&mut self.held);
            out.append(&mut self.pending);
        }
        out
    }

    /// Ends a line; true if it was empty, which completes the event.
    fn end_line(&mut self) -> bool {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if std::mem::take(&mut self.at_start) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return true;
        }
        if let Some(data) = line.strip_prefix(b"data:")
            && !self.blind
        {
            let data = String::from_utf8_lossy(data.strip_prefix(b" ").unwrap_or(data));
            match &mut self.data {
                Some(sofar) => {
                    sofar.push('\n');
                    sofar.push_str(&data);
                }
                None => self.data = Some(data.into_owned()),
            }
        }
        false
    }

    fn end_event(&mut self, gather: &mut Gather, out: &mut Vec<u8>) {
        let mut event = std::mem::take(&mut self.pending);
        let data = self.data.take();
        self.blind = false;
        let Some(data) = data else {
            // A comment or a field without data: it stays with its neighbors.
            if self.course == Course::Tail { &mut self.held } else { out }.append(&mut event);
            return;
        };
        let beat = gather.event(&data);
        out.append(&mut self.held);
        if beat == Beat::Last {
            self.course = Course::Closed;
        } else if beat == Beat::Finish {
            self.course = Course::Tail;
        }
        if self.course == Course::Open { out } else { &mut self.held }.append(&mut event);
    }

    /// Reads an event without a final empty line at the end of the stream. The rest is held.
    pub fn finish(&mut self, gather: &mut Gather) {
        if !self.pending.is_empty() && self.course != Course::Closed {
            if !self.line.is_empty() {
                self.end_line();
            }
            if let Some(data) = self.data.take()
                && !data.trim().is_empty()
                && gather.event(&data) == Beat::Unread
            {
                gather.missed();
            }
        }
        let mut rest = std::mem::take(&mut self.pending);
        self.held.append(&mut rest);
        self.course = Course::Closed;
    }

    /// Whether the last event was read.
    pub fn is_closed(&self) -> bool {
        self.course == Course::Closed
    }

    /// Whether an event is held that may be the last.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes what was held.
    pub fn release(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams, each with what is held at their end and the collected reply.
    fn goldens() -> Vec<(Dialect, String, &'static str, Reply)> {
        let whole = |text: &str, finish: &str, usage| Reply {
            text: text.into(),
            finish: Some(finish.into()),
            usage,
            complete: true,
            status: 200,
            ..Reply::default()
        };
        let chat = concat!(
            ": OPENROUTER PROCESSING\n\n",
            "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null,\"obfuscation\":\"x9\"}\n\n",
            "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"h\u{e9}\"}}]}\n\n",
            "event: unknown\ndata: {\"what\":[1,2]}\n\n",
            ": ping\n\n",
            "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"llo\"}}]}\n\n",
            "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
            "data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":2,\"total_tokens\":14}}\n\n",
            "data: [DONE]\n\n",
        );
        let tools = concat!(
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"x\\\":\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"1}\"}}]}}]}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n",
            "data: [DONE]\n\n",
        );
        let calls = concat!(
            "[{\"function\":{\"arguments\":\"{\\\"x\\\":1}\",\"name\":\"f\"},\"id\":\"a\",\"type\":\"function\"},",
            "{\"function\":{\"arguments\":\"{}\",\"name\":\"g\"},\"id\":\"b\",\"type\":\"function\"}]"
        );
        let without_done = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n";
        let unended = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":\"length\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}";
        let failing = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{\"message\":\"overloaded\"}}\n\n";
        let two = concat!(
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"finish_reason\":\"stop\"},{\"index\":1,\"delta\":{\"content\":\"x\"}}]}\n\n",
            "data: {\"choices\":[{\"index\":1,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
        );
        let messages = concat!(
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}}\n\n",
            "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"EqQB+/=\"}}\n\n",
            "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"74\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"31\"}}\n\n",
            "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{}}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"b\\\":1.0,\"}}\n\n",
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\\\"a\\\":2}\"}}\n\n",
            "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"output_tokens\":15}}\n\n",
            "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        );
        let blocks = "[{\"signature\":\"EqQB+/=\",\"thinking\":\"hm\",\"type\":\"thinking\"},{\"id\":\"t\",\"name\":\"f\",\"type\":\"tool_use\",\"input\":{\"b\":1.0,\"a\":2}}]";
        let overloaded = concat!(
            "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n",
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"
        );
        let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        let error = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
        let cut = |text: &str| Reply { text: text.into(), status: 200, ..Reply::default() };
        let mut goldens = vec![
            (
                Dialect::OpenAi,
                chat.to_owned(),
                "data: [DONE]\n\n",
                whole("h\u{e9}llo", "stop", Some((12, 2))),
            ),
            (
                Dialect::OpenAi,
                tools.to_owned(),
                "data: [DONE]\n\n",
                Reply { parts: Some(calls.into()), ..whole("", "tool_calls", None) },
            ),
            (
                Dialect::OpenAi,
                without_done.to_owned(),
                "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n",
                whole("ab", "stop", None),
            ),
            (Dialect::OpenAi, unended.to_owned(), unended, whole("a", "length", Some((1, 1)))),
            (
                Dialect::OpenAi,
                failing.to_owned(),
                "data: {\"error\":{\"message\":\"overloaded\"}}\n\n",
                cut("a"),
            ),
            (Dialect::OpenAi, two.to_owned(), "data: [DONE]\n\n", whole("a", "stop", None)),
            (
                Dialect::Anthropic,
                messages.to_owned(),
                stop,
                Reply { parts: Some(blocks.into()), ..whole("7431", "tool_use", Some((7, 15))) },
            ),
            (
                Dialect::Anthropic,
                format!("{messages}: after\n\n"),
                "",
                Reply { parts: Some(blocks.into()), ..whole("7431", "tool_use", Some((7, 15))) },
            ),
            (Dialect::Anthropic, overloaded.to_owned(), error, cut("x")),
        ];
        let spelt: Vec<_> = goldens
            .iter()
            .map(|(dialect, text, _, reply)| (*dialect, text.clone(), reply.clone()))
            .collect();
        for (dialect, text, reply) in spelt {
            goldens.push((dialect, text.replace('\n', "\r\n"), "", reply.clone()));
            goldens.push((dialect, text.replace('\n', "\r"), "", reply.clone()));
            goldens.push((dialect, format!("\u{feff}{text}"), "", reply));
        }
        goldens
    }

    fn run(dialect: Dialect, pieces: &[&[u8]]) -> (Vec<u8>, Vec<u8>, Reply) {
        let (mut tap, mut gather, mut out) = (Tap::default(), Gather::new(dialect), Vec::new());
        gather.status = 200;
        for piece in pieces {
            out.extend(tap.take(piece, &mut gather));
        }
        tap.finish(&mut gather);
        (out, tap.release(), gather.reply())
    }

    // C3
    #[test]
    fn a_stream_passes_byte_for_byte_wherever_it_is_cut_and_its_last_event_is_held() {
        for (dialect, text, last, reply) in goldens() {
            let bytes = text.as_bytes();
            let whole = run(dialect, &[bytes]);
            assert_eq!([whole.0.as_slice(), &whole.1].concat(), bytes, "{text}");
            assert!(!whole.1.is_empty(), "something is held of {text}");
            assert!(
                last.is_empty() || whole.1 == last.as_bytes(),
                "{text}: {}",
                String::from_utf8_lossy(&whole.1)
            );
            assert_eq!(whole.2, reply, "{text}");
            for at in 0..=bytes.len() {
                let cut = run(dialect, &[&bytes[..at], &bytes[at..]]);
                assert_eq!([cut.0.as_slice(), &cut.1].concat(), bytes, "cut at {at} of {text}");
                assert_eq!(cut.2, whole.2, "cut at {at} of {text}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            let cut = run(dialect, &single);
            assert_eq!(
                (cut.0.len() + cut.1.len(), &cut.2),
                (bytes.len(), &whole.2),
                "byte by byte: {text}"
            );
        }
    }

    // C3
    #[test]
    fn what_is_whole_goes_on_at_once() {
        let (mut tap, mut gather) = (Tap::default(), Gather::new(Dialect::OpenAi));
        let event = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
        assert_eq!(tap.take(event, &mut gather), event);
        assert_eq!(tap.take(b": keep alive\n\n", &mut gather), b": keep alive\n\n");
        assert!(!tap.is_holding());
        assert_eq!(tap.take(b"data: [DO", &mut gather), b"");
        assert_eq!(tap.take(b"NE]\n\nrest", &mut gather), b"");
        assert!(tap.is_closed());
        assert_eq!(tap.release(), b"data: [DONE]\n\nrest");
    }

    #[test]
    fn an_event_without_an_end_passes_unread() {
        let (mut tap, mut gather, mut out) = (Tap::default(), Gather::new(Dialect::OpenAi), 0);
        let piece = vec![b'x'; 1 << 20];
        out += tap.take(b"data: ", &mut gather).len();
        for _ in 0..20 {
            out += tap.take(&piece, &mut gather).len();
        }
        assert_eq!(out, 6 + (20 << 20));
        assert_eq!(tap.take(b"\ndata: y\n\n", &mut gather), b"\ndata: y\n\n");
        assert_eq!(tap.take(b"data: [DONE]\n\n", &mut gather), b"");
        assert!(tap.is_closed() && !gather.reply().complete);
    }

    #[test]
    fn half_a_character_does_not_cost_the_event() {
        assert_eq!(value(r#"{"a":"x\ud83d"}"#).unwrap()["a"], "x\u{fffd}");
        assert_eq!(
            value(r#"{"a":"\\ud83d\ud83d\ude42\ude42"}"#).unwrap()["a"],
            "\\ud83d\u{1f642}\u{fffd}"
        );
        assert!(value("{\"a\":").is_none() && value("\\").is_none() && value("\\u").is_none());
    }

    // C3
    #[test]
    fn a_reply_that_came_whole_is_read() {
        for (dialect, text, said, parts, usage, complete) in [
            (
                Dialect::OpenAi,
                r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"7431","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":2}}"#,
                "7431",
                None,
                Some((12, 2)),
                true,
            ),
            (
                Dialect::OpenAi,
                r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","n":1.0e2}]},"finish_reason":"tool_calls"}]}"#,
                "",
                Some(r#"[{"id":"a","n":1.0e2}]"#),
                None,
                true,
            ),
            (Dialect::OpenAi, r#"{"error":"x"}"#, "", None, None, false),
            (Dialect::OpenAi, "<html>", "", None, None, false),
            (
                Dialect::Anthropic,
                r#"{"content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"a"},{"type":"tool_use","input":{"x":1.0}},{"type":"text","text":"b"}],"stop_reason":"tool_use","usage":{"input_tokens":1,"cache_creation_input_tokens":2,"output_tokens":3}}"#,
                "a\nb",
                Some(
                    r#"[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","input":{"x":1.0}}]"#,
                ),
                Some((3, 3)),
                true,
            ),
        ] {
            let mut gather = Gather::new(dialect);
            gather.whole(text.as_bytes());
            let reply = gather.reply();
            let found = (reply.text.as_str(), reply.parts.as_deref(), reply.usage, reply.complete);
            assert_eq!(found, (said, parts, usage, complete), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_lost_or_make_it_panic(pieces in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40), 0..6)) {
            let all: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let (out, held, _) = run(Dialect::Anthropic, &all);
            proptest::prop_assert_eq!([out, held].concat(), pieces.concat());
        }
    }
}
