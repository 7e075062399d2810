//! A tap on a stream of events: the bytes go on as they came, while what they say is gathered.
//!
//! An event goes on as soon as it is whole. Only the last one stays here until it is called for: `[DONE]` or `message_stop`, or, where
//! neither comes, the newest event after the model has said that it is done.

use serde_json::Value;

use super::mind::{Dialect, Reply};
use super::{anthropic, openai};

/// The longest event that is looked at; a longer one passes unread.
const MOST_EVENT_BYTES: usize = 8 << 20;
/// The longest reply that is kept.
const MOST_GATHERED_BYTES: usize = 16 << 20;

/// What an event is in the course of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// More comes.
    Middle,
    /// The model is done, or something broke: this may be the last event.
    Finish,
    /// Nothing comes after it.
    Last,
    /// Nobody here can read it.
    Unread,
}

/// A reply, as far as it has been heard.
#[derive(Debug)]
pub struct Gather {
    tongue: Tongue,
    /// Something was too long or not readable.
    lacking: bool,
    full: bool,
    /// The status it came with.
    pub status: u16,
}

#[derive(Debug)]
enum Tongue {
    OpenAi(openai::Gather),
    Anthropic(anthropic::Gather),
}

impl Gather {
    /// Nothing heard yet.
    pub fn new(dialect: Dialect) -> Self {
        let tongue = match dialect {
            Dialect::OpenAi => Tongue::OpenAi(openai::Gather::default()),
            Dialect::Anthropic => Tongue::Anthropic(anthropic::Gather::default()),
        };
        Self { tongue, lacking: false, full: false, status: 499 }
    }

    fn event(&mut self, data: &str) -> Beat {
        if self.full {
            // The end must still be seen.
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

    /// Takes in a reply that came whole.
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

    /// Something of the reply was not heard.
    pub fn missed(&mut self) {
        self.lacking = true;
    }

    /// The reply as far as it was heard.
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

/// A JSON value for reading only. Halves of characters, which some servers send in two events, become �.
pub fn value(data: &str) -> Option<Value> {
    serde_json::from_str(data).ok().or_else(|| serde_json::from_str(&mended(data)?).ok())
}

/// The text with every `\uD800` to `\uDFFF` that has no other half written as `\uFFFD`; `None` if there is none.
fn mended(data: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = data.get(at..at + 6)?.strip_prefix("\\u")?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok()).flatten()
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

/// Cuts a stream into events and holds the last one back.
#[derive(Debug)]
pub struct Tap {
    /// The bytes of the event that is not whole yet.
    pending: Vec<u8>,
    /// Its newest line.
    line: Vec<u8>,
    after_return: bool,
    data: Option<String>,
    /// The event is too long to be kept, so it passes as it comes.
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
    /// Takes in a piece of the stream and returns what may go on.
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
                b'\n' | b'\r' => {
                    if self.end_line() {
                        self.end_event(gather, &mut out);
                    }
                }
                // Of an event that nobody reads, only whether its lines are empty counts.
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

    /// Ends a line; true if it was empty, and so the event is whole.
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
            // A comment, or a line for nobody: it goes with what is there.
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

    /// The stream is over: reads what has no empty line after it. Everything that is left is held.
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

    /// Whether the last event is here.
    pub fn is_closed(&self) -> bool {
        self.course == Course::Closed
    }

    /// Whether an event is here that may be the last.
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// What was held back.
    pub fn release(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }
}
