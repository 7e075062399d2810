//! Copies a stream of server-sent events as it passes and collects the reply.
//!
//! An event is forwarded as soon as it is complete. Only the last one is held until it is released:
//! `[DONE]` or `message_stop`, or, without these, the newest event after the finish reason.

use serde_json::Value;

use super::chat_memory::{AssistantReply, ChatDialect};
use super::{anthropic, openai};

/// The longest event that is read; a longer one passes unread.
const MAX_EVENT_BYTES: usize = 8 << 20;
/// The longest reply that is collected.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// The position of an event in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventPosition {
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
pub struct ReplyCollector {
    tongue: DialectReply,
    /// Something was too long or could not be parsed.
    lacking: bool,
    full: bool,
    /// The status of the response.
    pub status: u16,
}

#[derive(Debug)]
enum DialectReply {
    OpenAi(openai::OpenAiReply),
    Anthropic(anthropic::AnthropicReply),
}

impl ReplyCollector {
    /// Starts an empty reply.
    pub fn new(dialect: ChatDialect) -> Self {
        let tongue = match dialect {
            ChatDialect::OpenAi => DialectReply::OpenAi(openai::OpenAiReply::default()),
            ChatDialect::Anthropic => DialectReply::Anthropic(anthropic::AnthropicReply::default()),
        };
        Self { tongue, lacking: false, full: false, status: 499 }
    }

    fn read_event(&mut self, data: &str) -> EventPosition {
        if self.full {
            // The end must still be recognized.
            let mut rest = Self::new(match self.tongue {
                DialectReply::OpenAi(_) => ChatDialect::OpenAi,
                DialectReply::Anthropic(_) => ChatDialect::Anthropic,
            });
            return rest.tongue.read_event(data);
        }
        let beat = self.tongue.read_event(data);
        self.lacking |= beat == EventPosition::Unread;
        if self.tongue.collected_bytes() > MAX_REPLY_BYTES {
            (self.full, self.lacking) = (true, true);
        }
        beat
    }

    /// Reads a reply that was not streamed.
    pub fn read_complete(&mut self, reply: &[u8]) {
        let Ok(reply) = std::str::from_utf8(reply) else {
            self.lacking = true;
            return;
        };
        match &mut self.tongue {
            DialectReply::OpenAi(gather) => gather.read_complete(reply),
            DialectReply::Anthropic(gather) => gather.read_complete(reply),
        }
    }

    /// Marks the reply as incomplete.
    pub fn mark_incomplete(&mut self) {
        self.lacking = true;
    }

    /// The reply so far.
    pub fn to_reply(&self) -> AssistantReply {
        let reply = match &self.tongue {
            DialectReply::OpenAi(gather) => gather.to_reply(),
            DialectReply::Anthropic(gather) => gather.to_reply(),
        };
        AssistantReply { complete: reply.complete && !self.lacking, status: self.status, ..reply }
    }
}

impl DialectReply {
    fn read_event(&mut self, data: &str) -> EventPosition {
        match self {
            Self::OpenAi(gather) => gather.read_event(data),
            Self::Anthropic(gather) => gather.read_event(data),
        }
    }

    fn collected_bytes(&self) -> usize {
        match self {
            Self::OpenAi(gather) => gather.collected_bytes(),
            Self::Anthropic(gather) => gather.collected_bytes(),
        }
    }
}

/// Parses JSON for reading only. Lone surrogates, which some servers send across two events, become
/// �.
pub fn parse_lenient(data: &str) -> Option<Value> {
    serde_json::from_str(data)
        .ok()
        .or_else(|| serde_json::from_str(&replace_lone_surrogates(data)?).ok())
}

/// The text with every lone surrogate escape replaced by `\uFFFD`; `None` if there is none.
fn replace_lone_surrogates(data: &str) -> Option<String> {
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
enum StreamPhase {
    Open,
    Tail,
    Closed,
}

/// Splits a stream into events and holds the last one back.
#[derive(Debug)]
pub struct StreamTap {
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
    course: StreamPhase,
}

impl Default for StreamTap {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            line: Vec::new(),
            after_return: false,
            data: None,
            blind: false,
            at_start: true,
            held: Vec::new(),
            course: StreamPhase::Open,
        }
    }
}

impl StreamTap {
    /// Reads a piece of the stream and returns what may be forwarded.
    pub fn feed(&mut self, piece: &[u8], collector: &mut ReplyCollector) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len());
        for (at, &byte) in piece.iter().enumerate() {
            if self.course == StreamPhase::Closed {
                self.held.extend_from_slice(piece.get(at..).unwrap_or_default());
                break;
            }
            let second_half = byte == b'\n' && self.after_return;
            self.after_return = byte == b'\r';
            self.pending.push(byte);
            match byte {
                _ if second_half => {}
                b'\n' | b'\r' if self.end_line() => self.end_event(collector, &mut out),
                b'\n' | b'\r' => {}
                // In an unread event only empty lines matter.
                _ if !self.blind || self.line.is_empty() => self.line.push(byte),
                _ => {}
            }
        }
        if self.pending.len() > MAX_EVENT_BYTES && !self.blind {
            self.blind = true;
            (self.data, self.line) = (None, self.line.first().copied().into_iter().collect());
            collector.mark_incomplete();
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

    fn end_event(&mut self, collector: &mut ReplyCollector, out: &mut Vec<u8>) {
        let mut event = std::mem::take(&mut self.pending);
        let data = self.data.take();
        self.blind = false;
        let Some(data) = data else {
            // A comment or a field without data: it stays with its neighbors.
            if self.course == StreamPhase::Tail { &mut self.held } else { out }.append(&mut event);
            return;
        };
        let beat = collector.read_event(&data);
        out.append(&mut self.held);
        if beat == EventPosition::Last {
            self.course = StreamPhase::Closed;
        } else if beat == EventPosition::Finish {
            self.course = StreamPhase::Tail;
        }
        if self.course == StreamPhase::Open { out } else { &mut self.held }.append(&mut event);
    }

    /// Reads an event without a final empty line at the end of the stream. The rest is held.
    pub fn finish(&mut self, collector: &mut ReplyCollector) {
        if !self.pending.is_empty() && self.course != StreamPhase::Closed {
            if !self.line.is_empty() {
                self.end_line();
            }
            if let Some(data) = self.data.take()
                && !data.trim().is_empty()
                && collector.read_event(&data) == EventPosition::Unread
            {
                collector.mark_incomplete();
            }
        }
        let mut rest = std::mem::take(&mut self.pending);
        self.held.append(&mut rest);
        self.course = StreamPhase::Closed;
    }

    /// Whether the last event was read.
    pub fn is_closed(&self) -> bool {
        self.course == StreamPhase::Closed
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
    fn goldens() -> Vec<(ChatDialect, String, &'static str, AssistantReply)> {
        let whole = |text: &str, finish: &str, usage| AssistantReply {
            text: text.into(),
            finish: Some(finish.into()),
            usage,
            complete: true,
            status: 200,
            ..AssistantReply::default()
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
        let cut = |text: &str| AssistantReply {
            text: text.into(),
            status: 200,
            ..AssistantReply::default()
        };
        let mut goldens = vec![
            (
                ChatDialect::OpenAi,
                chat.to_owned(),
                "data: [DONE]\n\n",
                whole("h\u{e9}llo", "stop", Some((12, 2))),
            ),
            (
                ChatDialect::OpenAi,
                tools.to_owned(),
                "data: [DONE]\n\n",
                AssistantReply { parts: Some(calls.into()), ..whole("", "tool_calls", None) },
            ),
            (
                ChatDialect::OpenAi,
                without_done.to_owned(),
                "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\n",
                whole("ab", "stop", None),
            ),
            (ChatDialect::OpenAi, unended.to_owned(), unended, whole("a", "length", Some((1, 1)))),
            (
                ChatDialect::OpenAi,
                failing.to_owned(),
                "data: {\"error\":{\"message\":\"overloaded\"}}\n\n",
                cut("a"),
            ),
            (ChatDialect::OpenAi, two.to_owned(), "data: [DONE]\n\n", whole("a", "stop", None)),
            (
                ChatDialect::Anthropic,
                messages.to_owned(),
                stop,
                AssistantReply {
                    parts: Some(blocks.into()),
                    ..whole("7431", "tool_use", Some((7, 15)))
                },
            ),
            (
                ChatDialect::Anthropic,
                format!("{messages}: after\n\n"),
                "",
                AssistantReply {
                    parts: Some(blocks.into()),
                    ..whole("7431", "tool_use", Some((7, 15)))
                },
            ),
            (ChatDialect::Anthropic, overloaded.to_owned(), error, cut("x")),
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

    fn run(dialect: ChatDialect, pieces: &[&[u8]]) -> (Vec<u8>, Vec<u8>, AssistantReply) {
        let (mut tap, mut gather, mut out) =
            (StreamTap::default(), ReplyCollector::new(dialect), Vec::new());
        gather.status = 200;
        for piece in pieces {
            out.extend(tap.feed(piece, &mut gather));
        }
        tap.finish(&mut gather);
        (out, tap.release(), gather.to_reply())
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
        let (mut tap, mut gather) =
            (StreamTap::default(), ReplyCollector::new(ChatDialect::OpenAi));
        let event = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n";
        assert_eq!(tap.feed(event, &mut gather), event);
        assert_eq!(tap.feed(b": keep alive\n\n", &mut gather), b": keep alive\n\n");
        assert!(!tap.is_holding());
        assert_eq!(tap.feed(b"data: [DO", &mut gather), b"");
        assert_eq!(tap.feed(b"NE]\n\nrest", &mut gather), b"");
        assert!(tap.is_closed());
        assert_eq!(tap.release(), b"data: [DONE]\n\nrest");
    }

    #[test]
    fn an_event_without_an_end_passes_unread() {
        let (mut tap, mut gather, mut out) =
            (StreamTap::default(), ReplyCollector::new(ChatDialect::OpenAi), 0);
        let piece = vec![b'x'; 1 << 20];
        out += tap.feed(b"data: ", &mut gather).len();
        for _ in 0..20 {
            out += tap.feed(&piece, &mut gather).len();
        }
        assert_eq!(out, 6 + (20 << 20));
        assert_eq!(tap.feed(b"\ndata: y\n\n", &mut gather), b"\ndata: y\n\n");
        assert_eq!(tap.feed(b"data: [DONE]\n\n", &mut gather), b"");
        assert!(tap.is_closed() && !gather.to_reply().complete);
    }

    #[test]
    fn half_a_character_does_not_cost_the_event() {
        assert_eq!(parse_lenient(r#"{"a":"x\ud83d"}"#).unwrap()["a"], "x\u{fffd}");
        assert_eq!(
            parse_lenient(r#"{"a":"\\ud83d\ud83d\ude42\ude42"}"#).unwrap()["a"],
            "\\ud83d\u{1f642}\u{fffd}"
        );
        assert!(
            parse_lenient("{\"a\":").is_none()
                && parse_lenient("\\").is_none()
                && parse_lenient("\\u").is_none()
        );
    }

    // C3
    #[test]
    fn a_reply_that_came_whole_is_read() {
        for (dialect, text, said, parts, usage, complete) in [
            (
                ChatDialect::OpenAi,
                r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"7431","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":2}}"#,
                "7431",
                None,
                Some((12, 2)),
                true,
            ),
            (
                ChatDialect::OpenAi,
                r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a","n":1.0e2}]},"finish_reason":"tool_calls"}]}"#,
                "",
                Some(r#"[{"id":"a","n":1.0e2}]"#),
                None,
                true,
            ),
            (ChatDialect::OpenAi, r#"{"error":"x"}"#, "", None, None, false),
            (ChatDialect::OpenAi, "<html>", "", None, None, false),
            (
                ChatDialect::Anthropic,
                r#"{"content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"a"},{"type":"tool_use","input":{"x":1.0}},{"type":"text","text":"b"}],"stop_reason":"tool_use","usage":{"input_tokens":1,"cache_creation_input_tokens":2,"output_tokens":3}}"#,
                "a\nb",
                Some(
                    r#"[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","input":{"x":1.0}}]"#,
                ),
                Some((3, 3)),
                true,
            ),
        ] {
            let mut gather = ReplyCollector::new(dialect);
            gather.read_complete(text.as_bytes());
            let reply = gather.to_reply();
            let found = (reply.text.as_str(), reply.parts.as_deref(), reply.usage, reply.complete);
            assert_eq!(found, (said, parts, usage, complete), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_lost_or_make_it_panic(pieces in proptest::collection::vec(proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40), 0..6)) {
            let all: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let (out, held, _) = run(ChatDialect::Anthropic, &all);
            proptest::prop_assert_eq!([out, held].concat(), pieces.concat());
        }
    }
}
