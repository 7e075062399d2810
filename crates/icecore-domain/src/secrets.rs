//! The secret filter: hides secrets before anything is stored.
//!
//! Invariants: - A secret is replaced by `[secret:kind:code]`. Equal secrets get equal marks, so a
//! reader still   sees that two messages are about the same key. - The code is an HMAC under the
//! memory's own key, so a mark cannot be used to test a guess. - A mark is never hidden again. A
//! text without secrets is returned unchanged and borrowed. - An ambiguous string is a secret only
//! after a keyword: a bare hash, id or path is none.
//!
//! What secrets look like is data: `formats.txt` has the formats of vendors, `words.txt` the
//! keywords of each language. Payment card and bank account numbers with valid check digits are
//! hidden, too.
//!
//! Bulk imports pass through here. One pass over the bytes only asks whether three of them belong
//! to an anchor (a vendor's prefix, a keyword, `://`). Everything more expensive runs at an anchor
//! and inspects a bounded stretch.

mod first_look;
mod marker;
mod rules;
mod view;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use memchr::memmem;

use self::marker::{MARK_PREFIX, mark_around};
pub use self::marker::{MarkerKey, UnkeyedMarks, strip_mark_codes};
use self::rules::{
    Anchor, AnchorRule, KeyPart, KeywordClass, PHRASES, ProgramRule, RULES, is_unspaced_script,
};
use crate::id::EventId;

/// A secret that was hidden.
#[derive(Clone, PartialEq, Eq)]
pub struct HiddenSecret {
    /// The kind: `github-token`, `password`, `private-key` …
    pub kind: &'static str,
    /// The replacement: `[secret:kind:code]`.
    pub mark: String,
    /// The mark that version 0.1 wrote for it. It can be tested against a guess, so it must never be
    /// stored or shown; ids of that version were derived from it.
    pub unkeyed_mark: String,
}

impl fmt::Debug for HiddenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HiddenSecret").field(&self.mark).finish()
    }
}

/// A text with its secrets hidden.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedactedText<'a> {
    /// The text; borrowed if nothing was hidden.
    pub text: Cow<'a, str>,
    pub hidden: Vec<HiddenSecret>,
}

/// Replaces every secret in `text` by its mark.
pub fn redact<'a>(text: &'a str, key: &MarkerKey) -> RedactedText<'a> {
    let mut redacted = RedactedText { text: Cow::Borrowed(text), hidden: Vec::new() };
    let mut unkeyed = UnkeyedMarks::default();
    // A mark is shorter than most secrets, so hiding one can move a keyword next to another value.
    // Repeating until nothing is found makes the function idempotent. It terminates because each
    // round leaves fewer bytes outside of marks.
    loop {
        let found = find_all(&redacted.text);
        if found.is_empty() {
            return redacted;
        }
        let mut out = String::with_capacity(redacted.text.len());
        let mut kept = 0;
        for SecretSpan { span, kind } in found {
            let secret = &redacted.text[span.clone()];
            let mark = key.mark(kind, secret.as_bytes());
            let unkeyed_mark = marker::unkeyed_mark(kind, unkeyed.apply(secret).as_bytes());
            out.push_str(&redacted.text[kept..span.start]);
            out.push_str(&mark);
            unkeyed.insert(&mark, &unkeyed_mark);
            redacted.hidden.push(HiddenSecret { kind, mark, unkeyed_mark });
            kept = span.end;
        }
        out.push_str(&redacted.text[kept..]);
        redacted.text = Cow::Owned(out);
    }
}

/// Hides secrets for display only: the marks contain the kind and no code.
pub fn redact_for_display(text: &str) -> String {
    strip_mark_codes(&redact(text, &MarkerKey::new([0; 32])).text).into_owned()
}

/// A longer value is not a key but a file.
const MAX_VALUE_BYTES: usize = 512;
/// The maximum distance of a key block's END line.
const MAX_KEY_BLOCK_BYTES: usize = 32 * 1024;

#[derive(Clone)]
struct SecretSpan {
    span: Range<usize>,
    kind: &'static str,
}

/// Every secret in order, in the text as written and in its decoded view.
fn find_all(text: &str) -> Vec<SecretSpan> {
    let mut found = add_check_digit_numbers(find_secrets(text), text);
    let plain = found.len();
    for view in view::find_views(text) {
        found.extend(
            find_secrets(&view.text)
                .into_iter()
                .map(|one| SecretSpan { span: view.source_range(&one.span), ..one }),
        );
    }
    if found.len() == plain {
        return found;
    }
    // A secret found in both is hidden once, with the union of both spans.
    found.sort_by_key(|one| (one.span.start, std::cmp::Reverse(one.span.end)));
    let mut apart: Vec<SecretSpan> = Vec::with_capacity(found.len());
    for one in found {
        match apart.last_mut().filter(|last| one.span.start < last.span.end) {
            Some(last) => last.span.end = last.span.end.max(one.span.end),
            None => apart.push(one),
        }
    }
    apart
}

fn find_secrets(text: &str) -> Vec<SecretSpan> {
    if !first_look::may_contain_anchor(text) {
        return Vec::new();
    }
    let (rules, bytes) = (&*RULES, text.as_bytes());
    let mut found: Vec<SecretSpan> = Vec::new();
    let (mut at, mut free) = (0, 0);
    while let Some((hit, mut link)) = rules.next_anchor(bytes, at) {
        at = hit + 1;
        while link != 0 {
            let (anchor, next) = rules.chain_entry(link);
            link = next;
            let Some(start) = hit.checked_sub(anchor.at).filter(|start| *start >= free) else {
                continue;
            };
            if !anchor.matches_at(bytes, start) {
                continue;
            }
            if let Some(end) = mark_around(bytes, start) {
                (at, free) = (end, end);
                break;
            }
            if let Some(secret) =
                anchor.find_secret(text, start).filter(|secret| secret.span.start >= free)
            {
                let end = end_with_glued_keys(bytes, &secret.span);
                (at, free) = (end, end);
                found.push(SecretSpan { span: secret.span.start..end, ..secret });
                break;
            }
        }
    }
    found
}

/// The end of a secret, extended over a vendor key that begins within it: hiding only the beginning
/// of that key would leave the rest without its recognizable prefix.
fn end_with_glued_keys(bytes: &[u8], span: &Range<usize>) -> usize {
    const MAX_PREFIX_BYTES: usize = 32;
    let rules = &*RULES;
    // A key never ends with these characters.
    let past = |end: usize| end + run_length(bytes, end, DASH | DOT, usize::MAX);
    let (mut at, mut end, mut next_byte) = (span.start + 1, span.end, past(span.end));
    while let Some((hit, mut link)) =
        rules.next_anchor(&bytes[..bytes.len().min(end + MAX_PREFIX_BYTES)], at)
    {
        at = hit + 1;
        while link != 0 {
            let (anchor, next) = rules.chain_entry(link);
            link = next;
            let start = hit.saturating_sub(anchor.at);
            let goes_on = matches!(anchor.sign, AnchorRule::Vendor { body, .. } if bytes.get(next_byte).is_some_and(|byte| is_in_class(*byte, body)));
            let may_pass = goes_on || start + anchor.text.len() > end;
            if may_pass
                && (span.start..end).contains(&start)
                && anchor.matches_at(bytes, start)
                && let Some(key) = anchor.vendor_key(bytes, start).filter(|key| key.span.end > end)
            {
                end = key.span.end;
                next_byte = past(end);
            }
        }
    }
    end
}

// ---- Character classes ----

const UPPER: u16 = 1;
const LOWER: u16 = 1 << 1;
const DIGIT: u16 = 1 << 2;
const DASH: u16 = 1 << 3;
const UNDER: u16 = 1 << 4;
const DOT: u16 = 1 << 5;
const PLUS: u16 = 1 << 6;
const SLASH: u16 = 1 << 7;
const EQUAL: u16 = 1 << 8;
const TILDE: u16 = 1 << 9;
const HEX: u16 = 1 << 10;
const AT: u16 = 1 << 11;
const DOLLAR: u16 = 1 << 12;
const COMMA: u16 = 1 << 13;
const PERCENT: u16 = 1 << 14;
const ALNUM: u16 = UPPER | LOWER | DIGIT;
const WORD: u16 = ALNUM | UNDER;
const URLSAFE: u16 = WORD | DASH;
const BASE64: u16 = ALNUM | PLUS | SLASH | EQUAL;

static CLASSES: [u16; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' => UPPER,
            b'a'..=b'f' => LOWER | HEX,
            b'g'..=b'z' => LOWER,
            b'0'..=b'9' => DIGIT | HEX,
            b'-' => DASH,
            b'_' => UNDER,
            b'.' => DOT,
            b'+' => PLUS,
            b'/' => SLASH,
            b'=' => EQUAL,
            b'~' => TILDE,
            b'@' => AT,
            b'$' => DOLLAR,
            b',' => COMMA,
            b'%' => PERCENT,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

fn is_in_class(byte: u8, classes: u16) -> bool {
    CLASSES[byte as usize] & classes != 0
}

/// The number of bytes of `classes` at `from`, at most `most`.
fn run_length(bytes: &[u8], from: usize, classes: u16, most: usize) -> usize {
    bytes.iter().skip(from).take(most).take_while(|byte| is_in_class(**byte, classes)).count()
}

// ---- Anchors ----

impl Anchor {
    fn matches_at(&self, bytes: &[u8], start: usize) -> bool {
        let Some(there) = bytes.get(start..start + self.text.len()) else { return false };
        match self.sign {
            AnchorRule::Vendor { .. }
            | AnchorRule::Exact { .. }
            | AnchorRule::Middle { .. }
            | AnchorRule::Shape(
                ProgramRule::Jwt | ProgramRule::Block | ProgramRule::Telegram | ProgramRule::Putty,
            ) => there == self.text.as_bytes(),
            _ => there.eq_ignore_ascii_case(self.text.as_bytes()),
        }
    }

    /// The secret at this anchor.
    fn find_secret(&self, text: &str, start: usize) -> Option<SecretSpan> {
        let bytes = text.as_bytes();
        let end = start + self.text.len();
        match &self.sign {
            AnchorRule::Vendor { .. } => self.vendor_key(bytes, start),
            AnchorRule::Exact { kind, parts } => exact_key(bytes, start, end, kind, parts),
            AnchorRule::Middle { kind, body, before, after } => {
                key_around(bytes, start..end, kind, *body, (*before, *after))
            }
            AnchorRule::Word { kind, class, loose, own_is } => secret_after_keyword(
                text,
                start,
                end,
                SecretKeyword { kind, class: *class, loose: *loose, own_is },
            ),
            AnchorRule::Shape(shape) => match shape {
                ProgramRule::Command => command_password(text, start, end),
                ProgramRule::Cookie => cookie_value(text, start, end),
                ProgramRule::Seed => seed_phrase(text, end),
                ProgramRule::Pgpass => pgpass_password(text, start, end),
                ProgramRule::Putty => unclosed_block(bytes, end + run_length(bytes, end, DIGIT, 4))
                    .map(|until| putty_key(bytes, end, until)),
                ProgramRule::Login => login_password(text, start, end),
                ProgramRule::Jwt => jwt(bytes, start),
                ProgramRule::Block => key_block(bytes, start, end),
                ProgramRule::Url => url_password(text, start, end),
                ProgramRule::Telegram => telegram_token(bytes, start),
                ProgramRule::Bearer => authorization(text, start, end, "bearer"),
                ProgramRule::Basic => authorization(text, start, end, "basic-auth"),
            },
        }
    }

    fn vendor_key(&self, bytes: &[u8], start: usize) -> Option<SecretSpan> {
        let AnchorRule::Vendor { kind, body, least, wary } = self.sign else { return None };
        let from = start + self.text.len();
        // A rejection reads no more than needed, so that a text full of prefixes stays cheap.
        let sample = bytes.get(from..from + run_length(bytes, from, body, least.max(64)))?;
        if sample.len() < least {
            return broken_key(bytes, start, from..from + sample.len(), kind, body, least)
                .filter(|_| !wary || is_word_start(bytes, start));
        }
        if distinct_bytes(sample) < 6
            || wary && !(is_word_start(bytes, start) && jumbled_length(sample) >= 8)
        {
            return None;
        }
        let length = run_length(bytes, from, body, usize::MAX);
        // Periods and dashes mostly belong to the sentence, unless the key is too short without
        // them.
        let closing = bytes[from..from + length]
            .iter()
            .rev()
            .take_while(|byte| matches!(byte, b'.' | b'-'))
            .count();
        let end = from + (length - closing).max(least);
        let end = rest_on_next_line(bytes, end, body).unwrap_or(end);
        Some(SecretSpan { span: start..end, kind })
    }
}

/// The start of the next line, if a line break is at `at`: a real one, or an escaped one in JSON.
fn next_line(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let breaks: [&[u8]; 4] = [b"\r\n", b"\n", b"\\r\\n", b"\\n"];
    let from = at + breaks.iter().find(|sign| rest.starts_with(sign))?.len();
    // Line prefixes of terminals and mails.
    Some(
        from + bytes[from..]
            .iter()
            .take(8)
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'>'))
            .count(),
    )
}

/// A key that a line break split before it reached its minimum length.
fn broken_key(
    bytes: &[u8],
    start: usize,
    first: Range<usize>,
    kind: &'static str,
    body: u16,
    least: usize,
) -> Option<SecretSpan> {
    const MIN_FIRST_BYTES: usize = 4;
    if first.len() < MIN_FIRST_BYTES {
        return None;
    }
    let from = next_line(bytes, first.end)?;
    let length = run_length(bytes, from, body, 512);
    let closing = bytes[from..from + length]
        .iter()
        .rev()
        .take_while(|byte| matches!(byte, b'.' | b'-'))
        .count();
    let end = from + length - closing;
    let whole = [&bytes[first.clone()], &bytes[from..end]].concat();
    let alone = !bytes.get(from + length).is_some_and(|byte| is_in_class(*byte, URLSAFE));
    (alone && whole.len() >= least && distinct_bytes(&whole) >= 6 && jumbled_length(&whole) >= 8)
        .then_some(SecretSpan { span: start..end, kind })
}

/// The end of a key that continues on the next line: that line must contain nothing else, and look
/// like the key.
fn rest_on_next_line(bytes: &[u8], end: usize, body: u16) -> Option<usize> {
    const MIN_REST_BYTES: usize = 6;
    let from = next_line(bytes, end)?;
    let length = run_length(bytes, from, body, MAX_VALUE_BYTES);
    let rest = &bytes[from..from + length];
    let over = matches!(
        bytes.get(from + length),
        None | Some(b'\n' | b'\r' | b'\\' | b'"' | b'\'' | b'`')
    );
    (over && length >= MIN_REST_BYTES && is_jumbled(rest) && !has_vendor_prefix(bytes, from))
        .then_some(from + length)
}

/// A key whose parts all have a fixed length.
fn exact_key(
    bytes: &[u8],
    start: usize,
    from: usize,
    kind: &'static str,
    parts: &[KeyPart],
) -> Option<SecretSpan> {
    let mut at = from;
    for part in parts {
        at += match part {
            KeyPart::Literal(text) => {
                bytes[at..].starts_with(text.as_bytes()).then_some(text.len())?
            }
            KeyPart::Run(classes, length) => {
                (run_length(bytes, at, *classes, *length) == *length).then_some(*length)?
            }
        };
    }
    let alone =
        is_word_start(bytes, start) && !bytes.get(at).is_some_and(|byte| is_in_class(*byte, ALNUM));
    (alone && distinct_bytes(&bytes[from..at]) >= 6).then_some(SecretSpan { span: start..at, kind })
}

/// Whether a vendor's prefix is at `start`.
fn has_vendor_prefix(bytes: &[u8], start: usize) -> bool {
    let rules = &*RULES;
    let known = bytes.get(start).map_or(&[][..], |byte| &rules.known[usize::from(*byte)]);
    known.iter().any(|at| rules.anchors[*at].matches_at(bytes, start))
}

/// A vendor key or a JWT at `start`: its own kind is more precise than the keyword's.
fn vendor_key_at(bytes: &[u8], start: usize) -> Option<SecretSpan> {
    let rules = &*RULES;
    let known = &rules.known[usize::from(*bytes.get(start)?)];
    known
        .iter()
        .map(|at| &rules.anchors[*at])
        .filter(|anchor| anchor.matches_at(bytes, start))
        .find_map(|anchor| match &anchor.sign {
            AnchorRule::Shape(_) => jwt(bytes, start),
            AnchorRule::Exact { kind, parts } => {
                exact_key(bytes, start, start + anchor.text.len(), kind, parts)
            }
            _ => anchor.vendor_key(bytes, start),
        })
}

/// Whether a word begins at `start`. Escapes of JSON, URLs and terminals are not letters.
fn is_word_start(bytes: &[u8], start: usize) -> bool {
    let before = &bytes[..start];
    match before {
        [] | [.., b'\\', b'n' | b'r' | b't' | b'b' | b'f'] => true,
        [.., b'%', a, b] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => true,
        [.., b'\\', b'u', a, b, c, d]
            if [a, b, c, d].iter().all(|digit| digit.is_ascii_hexdigit()) =>
        {
            true
        }
        [rest @ .., b'm'] => {
            let digits = rest
                .iter()
                .rev()
                .take(8)
                .take_while(|byte| byte.is_ascii_digit() || **byte == b';')
                .count();
            rest[..rest.len() - digits].ends_with(b"[")
        }
        [.., last] => !is_in_class(*last, URLSAFE),
    }
}

// ---- Self-describing formats ----

fn jwt(bytes: &[u8], start: usize) -> Option<SecretSpan> {
    if start.checked_sub(1).is_some_and(|before| is_in_class(bytes[before], ALNUM))
        && !is_word_start(bytes, start)
    {
        return None;
    }
    // Signed tokens have three parts, encrypted ones five.
    let mut end = start;
    for part in 0..5 {
        let most = [2048, 16 * 1024, usize::MAX, usize::MAX, usize::MAX][part];
        let dot = usize::from(part > 0);
        if part > 0 && bytes.get(end) != Some(&b'.') {
            return (part >= 3).then_some(SecretSpan { span: start..end, kind: "jwt" });
        }
        let length = run_length(bytes, end + dot, URLSAFE, most);
        if length < 10 {
            return (part >= 3).then_some(SecretSpan { span: start..end, kind: "jwt" });
        }
        end += dot + length;
    }
    Some(SecretSpan { span: start..end, kind: "jwt" })
}

/// A key that is recognized by a string in its middle.
fn key_around(
    bytes: &[u8],
    mark: Range<usize>,
    kind: &'static str,
    body: u16,
    (before, after): (usize, usize),
) -> Option<SecretSpan> {
    const MAX_LEFT_BYTES: usize = 128;
    let left = bytes[..mark.start]
        .iter()
        .rev()
        .take(MAX_LEFT_BYTES)
        .take_while(|byte| is_in_class(**byte, body))
        .count();
    let right = run_length(bytes, mark.end, body, MAX_VALUE_BYTES);
    if left < before || left == MAX_LEFT_BYTES || right < after {
        return None;
    }
    let span = mark.start - left..mark.end + right;
    let whole = jumbled_length(&bytes[span.clone()]) >= 8
        && !bytes.get(span.end).is_some_and(|byte| is_in_class(*byte, ALNUM));
    // A hash followed by a datacenter, not a word: `…-us14`.
    let datacentre = kind != "mailchimp-key"
        || bytes[mark.end..span.end].iter().all(u8::is_ascii_digit) && right <= 2;
    // Base64 of a text that names a password.
    let says = kind != "password"
        || decode_base64(&bytes[span.clone()])
            .is_some_and(|plain| !find_secrets(&plain).is_empty());
    (whole && datacentre && says).then_some(SecretSpan { span, kind })
}

/// The key between the header lines of a PuTTY file.
fn putty_key(bytes: &[u8], from: usize, until: usize) -> SecretSpan {
    let start = from + run_length(bytes, from, DIGIT, 4);
    let start =
        start + bytes[start..until].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    SecretSpan { span: start..until, kind: "private-key" }
}

/// A password on a command line: `curl -u user:password`, `mysql -ppassword`, `sshpass -p
/// password`.
fn command_password(text: &str, start: usize, end: usize) -> Option<SecretSpan> {
    const USERS: [&str; 4] = [" -u ", " --user ", " -U ", " --proxy-user "];
    let bytes = text.as_bytes();
    let limit = bytes.len().min(end + MAX_VALUE_BYTES);
    let line = memchr::memchr2(b'\n', b'|', &bytes[end..limit]).map_or(limit, |at| end + at);
    if start.checked_sub(1).is_some_and(|before| is_in_class(bytes[before], ALNUM))
        && !is_word_start(bytes, start)
    {
        return None;
    }
    // From the blank before the first option, wherever the name of the program ends.
    let rest = text.get(end.saturating_sub(1)..text.floor_char_boundary(line))?;
    let from = end.saturating_sub(1);
    let named = &text[start..end];
    let (options, with_user): (&[&str], bool) = match named.as_bytes()[0] | 0x20 {
        b'c' => (&USERS, true),
        b'm' => (&[" -p", " --password="], false),
        b's' => (&[" -p ", " -p"], false),
        _ => (&[" -a ", " --pass "], false),
    };
    for option in options {
        let Some(at) = memmem::find(rest.as_bytes(), option.as_bytes()) else { continue };
        let mut value = from + at + option.len();
        value += bytes[value..line].iter().take_while(|byte| **byte == b'\\').count();
        let quote = matches!(bytes.get(value), Some(b'"' | b'\'')).then(|| bytes[value]);
        value += usize::from(quote.is_some());
        let length = bytes[value..line]
            .iter()
            .take_while(|byte| {
                **byte != b'\\'
                    && quote.map_or(
                        !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b'`'),
                        |quote| **byte != quote,
                    )
            })
            .count();
        let whole = text.get(value..value + length)?;
        let span = if with_user {
            value + whole.find(':')? + 1..value + length
        } else {
            value..value + length
        };
        let password = &text[span.clone()];
        let known = vendor_key_at(bytes, span.start).is_some_and(|known| known.span == span);
        if !password.contains(MARK_PREFIX)
            && !is_placeholder(password)
            && (known || with_user && password.len() >= 4 || looks_like_password(password))
        {
            let kind = vendor_key_at(bytes, span.start)
                .filter(|found| found.span == span)
                .map_or("password", |found| found.kind);
            return Some(SecretSpan { span, kind });
        }
    }
    None
}

/// The pairs of a cookie, if one of them has a random-looking value. In `Set-Cookie` only the first
/// pair is the cookie.
fn cookie_value(text: &str, start: usize, end: usize) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    let mut cursor = Cursor { text, at: end };
    cursor.skip(1, |c| c == 's' || c == 'S');
    cursor.skip(3, |c| matches!(c, '"' | '\'' | '\\'));
    cursor.skip(2, is_blank);
    if !(cursor.eat(":") || cursor.eat("=")) {
        return None;
    }
    cursor.skip(2, is_blank);
    cursor.skip(3, |c| matches!(c, '"' | '\'' | '`' | '\\'));
    let (from, sets) =
        (cursor.at, start >= 4 && bytes[start - 4..start].eq_ignore_ascii_case(b"set-"));
    let (mut until, mut telling) = (from, false);
    for _ in 0..64 {
        let name = run_length(bytes, cursor.at, URLSAFE | DOT, 64);
        if name == 0 || bytes.get(cursor.at + name) != Some(&b'=') {
            break;
        }
        let value = cursor.at + name + 1;
        let ends = |byte: &u8| {
            *byte <= b' '
                || matches!(byte, b';' | b',' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | b'[')
                || *byte >= 0x7F
        };
        let length = bytes[value..].iter().take(4096).take_while(|byte| !ends(byte)).count();
        let said = &text[value..value + length];
        let sample = &said[..said.floor_char_boundary(256)];
        telling |= vendor_key_at(bytes, value).is_some() || looks_like_token(sample, true);
        until = value + length;
        cursor.at = until;
        if sets || !cursor.eat(";") {
            break;
        }
        cursor.skip(2, is_blank);
    }
    (telling && until > from).then_some(SecretSpan { span: from..until, kind: "cookie" })
}

/// A wallet's seed phrase: twelve to twenty-four short words in a row.
fn seed_phrase(text: &str, end: usize) -> Option<SecretSpan> {
    let mut cursor = Cursor { text, at: end };
    cursor.skip(24, |c| {
        matches!(c, ' ' | ':' | '=' | '-' | '"' | '\'' | '`' | '*' | '(' | ')' | '\\' | '\n')
            || c.is_ascii_digit()
    });
    if cursor.eat_word(&["is", "was", "ist", "lautet"]) {
        cursor.skip(8, |c| matches!(c, ' ' | ':' | '"' | '\'' | '`' | '\\' | '\n'));
    }
    let from = cursor.at;
    let (mut words, mut until, mut between) = (0, from, None);
    loop {
        let length = run_length(text.as_bytes(), cursor.at, LOWER, 9);
        if !(3..=8).contains(&length) || words > 24 {
            break;
        }
        (words, until) = (words + 1, cursor.at + length);
        cursor.at = until;
        // On one line, or one per line.
        let gap = *between.get_or_insert(if cursor.peek() == Some('\n') { '\n' } else { ' ' });
        if cursor.skip(1, |c| c == gap) == 0 {
            break;
        }
    }
    let rest = &text[until..];
    // A mark is the beginning of something longer.
    let over = !rest.starts_with(|c: char| c.is_alphanumeric() || c == ',' || c == '\'')
        && !rest.starts_with(MARK_PREFIX)
        && !rest.get(1..).is_some_and(|rest| rest.starts_with(MARK_PREFIX));
    (matches!(words, 12 | 15 | 18 | 21 | 24) && over)
        .then_some(SecretSpan { span: from..until, kind: "seed-phrase" })
}

/// The last field of a line of a PostgreSQL password file.
fn pgpass_password(text: &str, start: usize, end: usize) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    let host = start
        .checked_sub(1)
        .is_some_and(|before| is_in_class(bytes[before], ALNUM) || bytes[before] == b'*');
    let limit = bytes.len().min(end + MAX_VALUE_BYTES);
    let line = bytes[end..limit]
        .iter()
        .take_while(|byte| **byte > b' ' && !matches!(byte, b'"' | b'\'' | b'`' | b'\\'))
        .count();
    let fields = text.get(end..end + line)?;
    let (database, rest) = fields.split_once(':')?;
    let (user, password) = rest.split_once(':')?;
    let names = [database, user].iter().all(|name| {
        !name.is_empty()
            && name.bytes().all(|byte| is_in_class(byte, URLSAFE | DOT) || byte == b'*')
    });
    let span = end + line - password.len()..end + line;
    (host
        && names
        && !password.is_empty()
        && !password.contains(MARK_PREFIX)
        && !is_placeholder(password))
    .then_some(SecretSpan { span, kind: "pgpass" })
}

fn telegram_token(bytes: &[u8], start: usize) -> Option<SecretSpan> {
    let digits =
        bytes[..start].iter().rev().take(11).take_while(|byte| byte.is_ascii_digit()).count();
    let length = run_length(bytes, start + 1, URLSAFE, usize::MAX);
    ((8..=10).contains(&digits) && length >= 33)
        .then(|| SecretSpan { span: start - digits..start + 1 + length, kind: "telegram-token" })
}

/// The password in `scheme://user:password@host`.
fn url_password(text: &str, start: usize, end: usize) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    if !start.checked_sub(1).is_some_and(|before| is_in_class(bytes[before], ALNUM)) {
        return None;
    }
    let ends = |byte: &u8| {
        *byte <= b' '
            || matches!(byte, b'/' | b'?' | b'#' | b'"' | b'\'' | b'`' | b'<' | b'>' | b'\\' | 0x7F)
    };
    let authority =
        bytes[end..].iter().take(MAX_VALUE_BYTES).take_while(|byte| !ends(byte)).count();
    let host = memchr::memrchr(b'@', &bytes[end..end + authority])?;
    let colon = memchr::memchr(b':', &bytes[end..end + host])?;
    let span = end + colon + 1..end + host;
    let password = &text[span.clone()];
    let hide = !password.is_empty()
        && !text[end..end + host].contains(MARK_PREFIX)
        && !is_placeholder(password);
    hide.then(|| {
        vendor_key_at(bytes, span.start)
            .filter(|known| known.span == span)
            .unwrap_or(SecretSpan { span, kind: "url-password" })
    })
}

/// A PEM or PGP private key block, even if its end is missing.
fn key_block(bytes: &[u8], start: usize, end: usize) -> Option<SecretSpan> {
    let title = memmem::find(&bytes[end..bytes.len().min(end + 64)], b"-----")?;
    memmem::find(&bytes[end..end + title], b"PRIVATE KEY")?;
    let dashes = bytes[..start].iter().rev().take(4).take_while(|byte| **byte == b'-').count();
    let (start, body) = (start - dashes, end + title + 5);
    let within = &bytes[body..bytes.len().min(body + MAX_KEY_BLOCK_BYTES)];
    let closed = || {
        let length = memmem::find(within, b"-----END ")?;
        let close = memmem::find(&within[length + 9..], b"-----").filter(|title| *title <= 64)?;
        let inner = &within[..length];
        let key = inner.split(|byte| !is_in_class(*byte, BASE64)).any(|piece| piece.len() >= 16);
        let whole = memmem::find(inner, b"-----BEGIN").is_none()
            && memmem::find(inner, MARK_PREFIX.as_bytes()).is_none();
        (key && whole).then_some(body + length + 9 + close + 5)
    };
    let end = closed().or_else(|| unclosed_block(bytes, body))?;
    Some(SecretSpan { span: start..end, kind: "private-key" })
}

/// The length of an unclosed key block from `body`.
fn unclosed_block(bytes: &[u8], body: usize) -> Option<usize> {
    const HEADERS: [&str; 4] = ["Proc-Type:", "DEK-Info:", "Version:", "Comment:"];
    let (mut at, mut end) = (body, None);
    loop {
        at += bytes[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        if let [b'\\', b'n' | b'r' | b't' | b'\\', ..] = bytes[at..] {
            at += 2;
            continue;
        }
        let length = run_length(bytes, at, BASE64, MAX_KEY_BLOCK_BYTES);
        let line = &bytes[at..at + length];
        let header = HEADERS.iter().find(|name| bytes[at..].starts_with(name.as_bytes()));
        if let Some(name) = header {
            at += name.len()
                + bytes[at + name.len()..]
                    .iter()
                    .take_while(|byte| !matches!(byte, b'\n' | b'\\'))
                    .count();
        } else if length >= 16
            || (end.is_some()
                && length > 0
                && line.iter().any(|byte| !is_in_class(*byte, UPPER | LOWER)))
        {
            at += length;
            end = Some(at);
        } else {
            return end;
        }
    }
}

/// `Bearer …` and `Basic …`: in a header anything that is not a plain word, elsewhere only what
/// looks like a credential.
fn authorization(text: &str, start: usize, end: usize, kind: &'static str) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    let blanks = bytes[end..].iter().take(4).take_while(|byte| **byte == b' ').count();
    if blanks == 0
        || start.checked_sub(1).is_some_and(|before| is_in_class(bytes[before], WORD))
            && !is_word_start(bytes, start)
    {
        return None;
    }
    let from = end + blanks;
    let length =
        run_length(bytes, from, URLSAFE | DOT | PLUS | SLASH | EQUAL | TILDE | PERCENT, usize::MAX);
    let closing = bytes[from..from + length].iter().rev().take_while(|byte| **byte == b'.').count();
    let span = from..from + length - closing;
    let value = &text[span.clone()];
    let header = bytes[start.saturating_sub(24)..start].to_ascii_lowercase();
    let header = memmem::find(&header, b"authorization").is_some();
    let hide = match kind {
        "basic-auth" => {
            is_user_password_pair(value)
                || (header
                    && value.len() >= 8
                    && value.bytes().any(|byte| is_in_class(byte, DIGIT | EQUAL)))
        }
        _ => {
            vendor_key_at(bytes, from).is_some()
                || (header && looks_like_password(value))
                || looks_like_token(value, header)
        }
    };
    hide.then(|| {
        vendor_key_at(bytes, from)
            .filter(|known| known.span == span)
            .unwrap_or(SecretSpan { span, kind })
    })
}

/// The text that base64 encodes, if it is printable.
fn decode_base64(base64: &[u8]) -> Option<String> {
    let letters = base64.len() - base64.iter().rev().take_while(|byte| **byte == b'=').count();
    let (mut bits, mut held, mut plain) = (0_u32, 0, Vec::with_capacity(letters));
    for byte in &base64[..letters] {
        let six = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = (bits << 6 | u32::from(six)) & 0xFFFF;
        held += 6;
        if held >= 8 {
            held -= 8;
            plain.push((bits >> held) as u8);
        }
    }
    String::from_utf8(plain)
        .ok()
        .filter(|plain| !plain.contains(|c: char| c.is_control() && !c.is_whitespace()))
}

/// Whether the value is base64 of `user:password`.
fn is_user_password_pair(value: &str) -> bool {
    const MAX_PAIR_BYTES: usize = 256;
    if value.len() < 8 || value.len() > MAX_PAIR_BYTES || !value.len().is_multiple_of(4) {
        return false;
    }
    let plain = decode_base64(value.as_bytes());
    plain.is_some_and(|plain| {
        let (user, rest) = plain.split_once(':').unwrap_or_default();
        !user.is_empty()
            && !user.contains(char::is_whitespace)
            && !rest.is_empty()
            && !rest.starts_with([' ', '/'])
    })
}

// ---- Numbers with check digits ----

/// Adds the card and account numbers outside of `found`, in order.
fn add_check_digit_numbers(mut found: Vec<SecretSpan>, text: &str) -> Vec<SecretSpan> {
    let words = found.len();
    for number in find_numbers(text) {
        if !found[..words]
            .iter()
            .any(|other| other.span.start < number.span.end && number.span.start < other.span.end)
        {
            found.push(number);
        }
    }
    if found.len() > words {
        found.sort_by_key(|found| found.span.start);
    }
    found
}

/// Only every fourth byte is inspected, since the numbers have longer runs of digits.
fn find_numbers(text: &str) -> Vec<SecretSpan> {
    const MAX_SIDE_BYTES: usize = 48;
    let bytes = text.as_bytes();
    let mut found: Vec<SecretSpan> = Vec::new();
    let mut at = 3;
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let joins = |at: usize| matches!(bytes.get(at), Some(b' ' | b'-'));
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 4;
            continue;
        }
        let (mut start, mut end) = (at, at + 1);
        while start > 0
            && at - start < MAX_SIDE_BYTES
            && (digit(start - 1) || start > 1 && joins(start - 1) && digit(start - 2))
        {
            start -= 1;
        }
        while end - at < MAX_SIDE_BYTES && (digit(end) || joins(end) && digit(end + 1)) {
            end += 1;
        }
        if end - start < 8 {
            at = end + 3;
            continue;
        }
        let taken = found.last().map_or(0, |last| last.span.end);
        if let Some(span) = iban_around(bytes, start).filter(|span| span.start >= taken) {
            end = end.max(span.end);
            found.push(SecretSpan { span, kind: "iban" });
        } else if is_card(bytes, start, end) && start >= taken {
            found.push(SecretSpan { span: start..end, kind: "card" });
        }
        at = end + 3;
    }
    found
}

/// A payment card number, alone, in one piece or in its printed groups.
fn is_card(bytes: &[u8], start: usize, end: usize) -> bool {
    if !(14..=19).contains(&(end - start)) || !matches!(bytes[start], b'2'..=b'6') {
        return false;
    }
    let digits: Vec<u32> = bytes[start..end]
        .iter()
        .filter(|byte| byte.is_ascii_digit())
        .map(|byte| u32::from(byte - b'0'))
        .collect();
    if !(14..=16).contains(&digits.len()) {
        return false;
    }
    let groups: Vec<usize> =
        bytes[start..end].split(|byte| !byte.is_ascii_digit()).map(<[u8]>::len).collect();
    let first = |many: usize| digits[..many].iter().fold(0, |number, digit| number * 10 + digit);
    let brand = match digits.len() {
        16 => {
            first(1) == 4
                || (51..=55).contains(&first(2))
                || (2221..=2720).contains(&first(4))
                || matches!(first(2), 65 | 35)
                || first(4) == 6011
        }
        15 => matches!(first(2), 34 | 37),
        _ => matches!(first(2), 36 | 38 | 30),
    };
    let grouped = matches!(groups.as_slice(), [_] | [4, 4, 4, 4] | [4, 6, 5] | [4, 6, 4]);
    let alone = |byte: Option<&u8>| {
        byte.is_none_or(|byte| {
            !is_in_class(*byte, WORD | DOT | DASH | SLASH | PLUS | EQUAL | PERCENT)
        })
    };
    let before = start.checked_sub(1).and_then(|before| bytes.get(before));
    // A sentence may end after it; a decimal number may not continue.
    let after = match bytes.get(end) {
        Some(b'.') => !bytes.get(end + 1).is_some_and(u8::is_ascii_digit),
        other => alone(other),
    };
    let doubled = |digit: u32| if digit > 4 { digit * 2 - 9 } else { digit * 2 };
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| if at % 2 == 1 { doubled(*digit) } else { *digit })
        .sum();
    brand
        && grouped
        && before.is_none_or(|byte| alone(Some(byte)) || *byte == b'=')
        && after
        && sum.is_multiple_of(10)
        && distinct_bytes(&bytes[start..end]) > 2
}

/// The IBAN that contains these digits.
fn iban_around(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    const LENGTHS: &str = "AD24 AE23 AT20 BE16 BG22 CH21 CY28 CZ24 DE22 DK18 EE20 ES24 FI18 FR27 GB22 GR27 HR21 HU28 IE22 IL23 IS26 IT27 LI21 \
        LT20 LU20 LV21 MC27 MT31 NL18 NO15 PL28 PT25 RO24 SA24 SE24 SI19 SK24 TR26";
    // The letters right before the digits are the country's or the bank's.
    let capital =
        |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_uppercase);
    let blank = start.checked_sub(1).is_some_and(|before| bytes[before] == b' ');
    if !capital(start.checked_sub(1 + usize::from(blank))) {
        return None;
    }
    let from = (start.saturating_sub(12)..=start.saturating_sub(2)).find(|at| {
        let [a, b, c, d] =
            [0, 1, 2, 3].map(|step| bytes.get(at + step).copied().unwrap_or_default());
        let alone = at.checked_sub(1).is_none_or(|before| !is_in_class(bytes[before], WORD));
        alone
            && a.is_ascii_uppercase()
            && b.is_ascii_uppercase()
            && c.is_ascii_digit()
            && d.is_ascii_digit()
    })?;
    let country = std::str::from_utf8(&bytes[from..from + 2]).ok()?;
    let length: usize =
        LENGTHS.split_whitespace().find_map(|entry| entry.strip_prefix(country)?.parse().ok())?;
    let (mut at, mut letters) = (from, Vec::with_capacity(34));
    while letters.len() < length {
        match bytes.get(at)? {
            byte if byte.is_ascii_uppercase() || byte.is_ascii_digit() => letters.push(*byte),
            b' ' if letters.len().is_multiple_of(4) && bytes[at - 1] != b' ' => {}
            _ => return None,
        }
        at += 1;
    }
    if bytes.get(at).is_some_and(|byte| is_in_class(*byte, WORD)) {
        return None;
    }
    letters.rotate_left(4);
    let value = |byte: u8| {
        if byte.is_ascii_digit() { u32::from(byte - b'0') } else { u32::from(byte - b'A') + 10 }
    };
    let rest = letters.iter().fold(0, |rest, byte| {
        (rest * if byte.is_ascii_digit() { 10 } else { 100 } + value(*byte)) % 97
    });
    (rest == 1).then_some(from..at)
}

// ---- Keywords and the values after them ----

/// A keyword that may precede a secret.
struct SecretKeyword<'a> {
    kind: &'static str,
    class: KeywordClass,
    loose: bool,
    own_is: &'a [&'a str],
}

fn secret_after_keyword(
    text: &str,
    start: usize,
    end: usize,
    word: SecretKeyword<'_>,
) -> Option<SecretSpan> {
    let bytes = text.as_bytes();
    let SecretKeyword { kind, class, loose, own_is } = word;
    let (kind, class) =
        if class == KeywordClass::Key { classify_key_word(bytes, start)? } else { (kind, class) };
    let inside = text[..start]
        .chars()
        .next_back()
        .is_some_and(|before| before.is_alphabetic() && !is_unspaced_script(before));
    if !loose && inside && !is_word_start(bytes, start) && !is_camel_case_boundary(bytes, start) {
        return None;
    }
    let mut link = find_link(text, start, end, own_is)?;
    // `Authorization: SCHEME value`
    if link.has_separator() && text[start..end].eq_ignore_ascii_case("authorization") {
        let scheme = run_length(bytes, link.value, UPPER | LOWER | DASH | DIGIT, 24);
        let own = ["bearer", "basic"]
            .iter()
            .any(|known| text[link.value..link.value + scheme].eq_ignore_ascii_case(known));
        if scheme >= 3 && !own && bytes.get(link.value + scheme) == Some(&b' ') {
            link.value += scheme + 1;
        }
    }
    // A line of .netrc needs no separator.
    let line = &bytes[start.saturating_sub(160)..start];
    if class == KeywordClass::Password
        && memmem::find(line, b" login ").is_some()
        && memmem::find(line, b"machine ").is_some()
    {
        link.tie = Separator::Glued;
    }
    if let Some(known) = vendor_key_at(bytes, link.value) {
        return Some(known);
    }
    let value = link_value(text, &link)?;
    let span = link.value..link.value + value.len();
    if value.is_empty()
        || value.contains(MARK_PREFIX)
        || is_placeholder(value)
        || (link.quote.is_none() && is_expression(value))
    {
        return None;
    }
    let token = matches!(class, KeywordClass::Token | KeywordClass::Key);
    if token
        && link.has_separator()
        && is_aws_secret(value)
        && names_aws(&bytes[start.saturating_sub(24)..link.value])
    {
        return Some(SecretSpan { span, kind: "aws-secret-key" });
    }
    // "set the password to …", not "send the password to …".
    let near = link.has_separator()
        && !link.far
        && (link.tie != Separator::To || is_being_set(text, start));
    let hide = match class {
        KeywordClass::Password => {
            (near && looks_like_password(value))
                || looks_like_token(value, near)
                || (link.has_separator()
                    && link.far
                    && is_whole_line(text, &span)
                    && looks_like_password(value))
                || (near && is_letters_only_password(text, start, &link, &span))
        }
        KeywordClass::Token => {
            looks_like_token(value, near) || (near && is_user_password_pair(value))
        }
        KeywordClass::Key => {
            near && value.len() >= 20
                && !is_hex(value)
                && !is_uuid(value)
                && !value.contains(['/', '.', ':'])
                && is_random(value)
        }
        KeywordClass::Pin => near && is_pin(text, start, &span),
        KeywordClass::Pair => near && is_user_password_pair(value),
    };
    hide.then_some(SecretSpan { span, kind })
}

/// Whether the value is the only content of its line.
fn is_whole_line(text: &str, span: &Range<usize>) -> bool {
    let bytes = text.as_bytes();
    let before = bytes[..span.start]
        .iter()
        .rev()
        .take(24)
        .find(|byte| !matches!(byte, b' ' | b'\t' | b'`' | b'"' | b'\''));
    let after = bytes[span.end..]
        .iter()
        .take(24)
        .find(|byte| !matches!(byte, b' ' | b'\t' | b'`' | b'"' | b'\'' | b'.'));
    before.is_none_or(|byte| matches!(byte, b'\n' | b'n'))
        && after.is_none_or(|byte| matches!(byte, b'\n' | b'\r' | b'\\'))
}

/// Four to eight digits that are a PIN, and not a phone number, a place or a version.
fn is_pin(text: &str, start: usize, span: &Range<usize>) -> bool {
    const OTHER_NUMBER_WORDS: [&str; 20] = [
        "gpio",
        "board",
        "header",
        "arduino",
        "esp32",
        "bcm",
        "chip",
        "connector",
        "pinout",
        "package",
        "version",
        "jumper",
        "solder",
        "npm",
        "postal",
        "address",
        "city",
        "street",
        "district",
        "ohm",
    ];
    const PIN_CONTEXT_WORDS: [&str; 14] = [
        "my ", "card", "sim", "bank", "phone", "atm", "account", "door", "safe", "alarm", "unlock",
        "karte", "carte", "tarjeta",
    ];
    let value = &text[span.clone()];
    if !(4..=8).contains(&value.len()) || !value.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    let around = text[text.floor_char_boundary(start.saturating_sub(64))
        ..text.ceil_char_boundary((span.end + 40).min(text.len()))]
        .to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| around.contains(word));
    // A six-digit "PIN code" is mostly a postal code.
    let named_code =
        text[start..span.start].to_ascii_lowercase().contains("code") && value.len() == 6;
    let counted = next_word(text, span.end).is_some_and(|next| {
        ["digits", "ziffern", "stellen", "chiffres", "times", "mm", "mil"].contains(&next)
    });
    !counted && !has(&OTHER_NUMBER_WORDS) && (!named_code || has(&PIN_CONTEXT_WORDS))
}

/// The next word after a blank, in lower case if it is ASCII.
fn next_word(text: &str, from: usize) -> Option<&str> {
    let rest = text[from..].strip_prefix([' ', '\u{a0}'])?;
    let length = rest.find(|c: char| !c.is_alphanumeric() && c != '\'').unwrap_or(rest.len());
    Some(&rest[..length]).filter(|word| !word.is_empty())
}

/// The word before `start` on its line.
fn word_before(text: &str, start: usize) -> &str {
    let reach = text.floor_char_boundary(start.saturating_sub(48));
    let before = text[reach..start].trim_end_matches([' ', '"', '\'', '`', '*']);
    before.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default()
}

/// Whether a letters-only value after a keyword is a password. Prose about passwords is recognized
/// by the separator, by what follows the value, and by word lists.
fn is_letters_only_password(
    text: &str,
    start: usize,
    link: &ValueLink,
    span: &Range<usize>,
) -> bool {
    const MAX_PHRASE_BYTES: usize = 64;
    let (phrases, value) = (&*PHRASES, &text[span.clone()]);
    let letters = value.chars().filter(|c| c.is_alphabetic()).count();
    let dashes = value.chars().filter(|c| matches!(c, '-' | '_')).count();
    let spelled = value
        .chars()
        .all(|c| (c.is_alphabetic() && !is_unspaced_script(c)) || matches!(c, '-' | '_'));
    // `correct-horse-battery` is a password, `case-sensitive` describes one.
    if !spelled
        || link.named_on
        || value.len() > MAX_PHRASE_BYTES
        || !(dashes == 0 || dashes >= 2 && !value.contains('_'))
    {
        return false;
    }
    let firm = link.quote.is_some() || link.tie == Separator::Glued;
    let in_prose = link.quote.is_none() && link.tie == Separator::Is;
    if letters < if firm { 4 } else { 5 }
        || describes_passwords(value)
        || in_prose && has_ending(value, &phrases.endings_of_prose)
    {
        return false;
    }
    let rest = &text[span.end..];
    if let Some(close) = link.quote {
        // A quoted value is a password if its quote closes it, and it is not part of an
        // expression.
        return rest.trim_start_matches('\\').starts_with(close)
            && !phrases.before.contains(word_before(text, start).to_lowercase().as_str());
    }
    if text[..link.value].ends_with('>') {
        return rest.starts_with("</");
    }
    if is_in_brackets(text, start) {
        return false;
    }
    let ends = rest.chars().next().is_none_or(|c| {
        matches!(c, '\n' | '\r' | '\t' | '&' | '|' | '"' | '\'' | '`' | '\\' | '<')
    }) || rest.starts_with(['.', ',', ';', '!', '?', ')', '，', '。', '；', '！', '」'])
        && rest.chars().nth(1).is_none_or(|c| {
            c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ')') || is_unspaced_script(c)
        });
    match link.tie {
        Separator::Loose => false,
        Separator::Glued => {
            // "use the --password switch with care" is about an option.
            let told = text[..link.value].ends_with(is_blank)
                && next_word(text, span.end).is_some_and(is_prose);
            (ends || rest.starts_with([' ', ';'])) && !told && !is_computed(rest)
        }
        Separator::Sign | Separator::Is | Separator::To => {
            if phrases.before.contains(word_before(text, start).to_lowercase().as_str())
                || is_computed(rest)
                || is_assigned(text, start, link)
            {
                return false;
            }
            let goes_on = next_word(text, span.end).is_some_and(|next| {
                phrases.and.contains(next.to_lowercase().as_str()) || is_field(text, span.end)
            });
            let glued = phrases
                .and_glued
                .iter()
                .any(|ending| rest.trim_start_matches(is_blank).starts_with(ending));
            ends || glued
                || goes_on
                || rest.starts_with("  ")
                || rest.starts_with(" (")
                || rest.starts_with(" |")
                || has_no_vowels(value)
        }
    }
}

/// Words that describe or name a password and are none.
fn describes_passwords(value: &str) -> bool {
    const NAMES: [&str; 12] = [
        "pass",
        "pwd",
        "secret",
        "token",
        "cred",
        "hash",
        "crypt",
        "your",
        "auth",
        "xxxx",
        "redact",
        "placeholder",
    ];
    let phrases = &*PHRASES;
    let lower = value.to_lowercase();
    phrases.not.contains(lower.as_str())
        || NAMES.iter().any(|name| lower.contains(name))
        || phrases.passwords.iter().any(|word| lower.contains(word))
        || has_ending(value, &phrases.endings)
}

/// Whether a word of at least six letters has one of these endings.
fn has_ending(value: &str, endings: &[&str]) -> bool {
    let lower = value.to_lowercase();
    lower.chars().count() >= 6 && endings.iter().any(|ending| lower.ends_with(ending))
}

fn is_prose(word: &str) -> bool {
    let lower = word.to_lowercase();
    PHRASES.and.contains(lower.as_str()) || PHRASES.not.contains(lower.as_str())
}

/// Whether source code continues after the value.
fn is_computed(rest: &str) -> bool {
    let rest = rest.trim_start_matches(is_blank);
    ["(", "[", "+", "||", "&&", "??", "?.", "=", "*", "{", "->", "::"]
        .iter()
        .any(|sign| rest.starts_with(sign))
}

/// Whether an unquoted value is inside open brackets on its line: then it is source code.
fn is_in_brackets(text: &str, start: usize) -> bool {
    const MAX_BRACKET_BYTES: usize = 200;
    let bytes = text.as_bytes();
    let mut depth = 0;
    for byte in
        bytes[..start].iter().rev().take(MAX_BRACKET_BYTES).take_while(|byte| **byte != b'\n')
    {
        match byte {
            b')' | b']' | b'}' => depth += 1,
            b'(' | b'[' | b'{' if depth == 0 => return true,
            b'(' | b'[' | b'{' => depth -= 1,
            _ => {}
        }
    }
    false
}

/// `let password = value`: with blanks around the sign it is source code, unless the name alone
/// begins the line, as in an INI file.
fn is_assigned(text: &str, start: usize, link: &ValueLink) -> bool {
    if !text[start..link.value].trim_end().ends_with('=') {
        return false;
    }
    let line = &text[text[..start].rfind('\n').map_or(0, |at| at + 1)..start];
    let ended =
        text[link.value..].lines().next().is_some_and(|line| line.trim_end().ends_with(';'));
    ended || line.trim_start().contains([' ', '.', '$', '('])
}

/// "set the password to …", not "send the password to …".
fn is_being_set(text: &str, start: usize) -> bool {
    const MAX_VERB_BYTES: usize = 96;
    let ends = ['.', '\n', ';'];
    let before =
        text[text.floor_char_boundary(start.saturating_sub(MAX_VERB_BYTES))..start].to_lowercase();
    let after = text[start..text.ceil_char_boundary((start + MAX_VERB_BYTES).min(text.len()))]
        .to_lowercase();
    // Some languages put the verb at the end.
    let sentence = [before.rsplit(ends).next(), after.split(ends).next()];
    let mut words =
        sentence.iter().flatten().flat_map(|part| part.split(|c: char| !c.is_alphanumeric()));
    words.any(|word| PHRASES.setting.contains(word))
}

/// Whether another field follows: `user: bob`.
fn is_field(text: &str, from: usize) -> bool {
    let rest = text[from..].trim_start_matches(is_blank);
    let name = rest.bytes().take(24).take_while(|byte| is_in_class(*byte, URLSAFE)).count();
    name > 0 && matches!(rest.as_bytes().get(name), Some(b':' | b'='))
}

/// Whether the letters are unpronounceable.
fn has_no_vowels(value: &str) -> bool {
    const MIN_VOWEL_TEST_BYTES: usize = 8;
    let vowels = value.chars().filter(|c| "aeiouyAEIOUY".contains(*c)).count();
    value.is_ascii() && value.len() >= MIN_VOWEL_TEST_BYTES && vowels * 6 < value.len()
}

/// `log in as user / password`, `credentials: user:password`.
fn login_password(text: &str, start: usize, end: usize) -> Option<SecretSpan> {
    const ROLES: [&str; 24] = [
        "user",
        "users",
        "root",
        "admin",
        "guest",
        "editor",
        "viewer",
        "moderator",
        "owner",
        "member",
        "manager",
        "google",
        "github",
        "apple",
        "facebook",
        "microsoft",
        "email",
        "passkey",
        "sso",
        "saml",
        "oauth",
        "ldap",
        "author",
        "operator",
    ];
    let bytes = text.as_bytes();
    if start.checked_sub(1).is_some_and(|before| is_in_class(bytes[before], WORD))
        && !is_word_start(bytes, start)
    {
        return None;
    }
    let mut cursor = Cursor { text, at: end };
    let listed = !text[..end].ends_with(' ');
    if listed {
        cursor.skip(3, |c| matches!(c, '*' | '"' | '`'));
        if !(cursor.eat(":") || cursor.eat(" are ") || cursor.eat(" -")) {
            return None;
        }
        cursor.skip(4, |c| is_blank(c) || c == '*');
    }
    cursor.skip(2, |c| matches!(c, '"' | '`' | '\''));
    let user = cursor.at;
    let length = run_length(bytes, user, URLSAFE | DOT | PLUS | AT, 64);
    if length < 2 {
        return None;
    }
    cursor.at += length;
    cursor.skip(2, |c| matches!(c, '"' | '`' | '\''));
    let spaced = cursor.skip(2, is_blank) > 0;
    let slash = cursor.eat("/");
    if !slash && !cursor.eat(":") {
        return None;
    }
    let spaced = cursor.skip(2, is_blank) > 0 && spaced;
    let quote = cursor.peek().and_then(closing_quote);
    if let Some(open) = cursor.peek().filter(|_| quote.is_some()) {
        cursor.skip(1, |c| c == open);
    }
    let link =
        ValueLink { value: cursor.at, quote, tie: Separator::Glued, far: false, named_on: false };
    let value = link_value(text, &link)?;
    let span = link.value..link.value + value.len();
    let lower = value.to_ascii_lowercase();
    if value.contains(MARK_PREFIX)
        || is_placeholder(value)
        || is_expression(value)
        || ROLES.contains(&lower.as_str())
        || value.contains('/')
    {
        return None;
    }
    // A letters-only password needs more evidence: "as", blanks around the slash, and the end of
    // the sentence.
    let named = text[..end].ends_with("as ") || listed;
    let over = text[span.end..]
        .chars()
        .next()
        .is_none_or(|c| matches!(c, '\n' | '\r' | '.' | ',' | ';' | ')' | '"' | '`' | '\''));
    let chosen = named
        && spaced
        && slash
        && over
        && value.len() >= 5
        && value.bytes().all(|byte| is_in_class(byte, LOWER | UPPER))
        && !describes_passwords(value);
    (looks_like_password(value) || chosen).then_some(SecretSpan { span, kind: "password" })
}

/// Whether a capital follows a lower-case letter, as in `accessToken`.
fn is_camel_case_boundary(bytes: &[u8], start: usize) -> bool {
    bytes[start].is_ascii_uppercase() && bytes[start - 1].is_ascii_lowercase()
}

/// The kind of key by the word before `key`; `None` if it is not a credential.
fn classify_key_word(bytes: &[u8], start: usize) -> Option<(&'static str, KeywordClass)> {
    const NAMED: [(&str, &str); 4] = [
        ("api", "api-key"),
        ("access", "access-key"),
        ("private", "private-key"),
        ("secret", "secret-key"),
    ];
    const CREDENTIAL_KEY_WORDS: &str = "encryption signing master auth license account service deploy app client admin webhook jwt hmac aes";
    const OTHER_KEY_WORDS: &str = "public pub primary foreign cache sort partition object idempotency unique composite host row";
    let gap = start
        .checked_sub(1)
        .is_some_and(|before| matches!(bytes[before], b' ' | b'_' | b'-' | b'.'));
    let until = start - usize::from(gap);
    let length =
        bytes[..until].iter().rev().take(16).take_while(|byte| byte.is_ascii_alphabetic()).count();
    let before = bytes[until - length..until].to_ascii_lowercase();
    let any_of = |words: &str| words.split(' ').any(|word| before.ends_with(word.as_bytes()));
    if let Some((_, kind)) = NAMED.iter().find(|(word, _)| before.ends_with(word.as_bytes())) {
        return Some((kind, KeywordClass::Token));
    }
    if any_of(CREDENTIAL_KEY_WORDS) {
        return Some(("key", KeywordClass::Token));
    }
    // An environment variable is a credential, unless its name says otherwise.
    let variable = gap && bytes[start - 1] == b'_' && bytes[start..].starts_with(b"KEY");
    let other = any_of(OTHER_KEY_WORDS);
    if variable && !other {
        return Some(("key", KeywordClass::Token));
    }
    let glued =
        !gap && length > 0 && !is_camel_case_boundary(bytes, start) && !is_word_start(bytes, start);
    (!other && !glued).then_some(("key", KeywordClass::Key))
}

/// The link between a keyword and its value.
struct ValueLink {
    /// The start of the value.
    value: usize,
    /// The closing quote, if the value is quoted.
    quote: Option<char>,
    /// The separator.
    tie: Separator,
    /// The value is on another line.
    far: bool,
    /// The name continues after the keyword: `pass_by_value`.
    named_on: bool,
}

impl ValueLink {
    /// Whether there is an explicit separator.
    fn has_separator(&self) -> bool {
        self.tie != Separator::Loose
    }
}

/// The separator between a keyword and its value.
#[derive(Clone, Copy, PartialEq)]
enum Separator {
    /// None.
    Loose,
    /// `name=value` without a blank, or an option of a command.
    Glued,
    /// `:`, `=`, a dash or an arrow.
    Sign,
    /// "is".
    Is,
    /// "to", as in "set the password to …".
    To,
}

/// A position in a text that moves by whole characters.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl Cursor<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips at most `most` characters that match; returns the number of bytes.
    fn skip(&mut self, most: usize, wanted: impl Fn(char) -> bool) -> usize {
        let length =
            self.rest().chars().take(most).take_while(|c| wanted(*c)).map(char::len_utf8).sum();
        self.at += length;
        length
    }

    fn eat(&mut self, word: &str) -> bool {
        let there = self.text.as_bytes()[self.at..]
            .get(..word.len())
            .is_some_and(|there| there.eq_ignore_ascii_case(word.as_bytes()));
        self.at += if there { word.len() } else { 0 };
        there
    }

    /// Consumes a whole word out of `words`.
    fn eat_word(&mut self, words: &[&str]) -> bool {
        let from = self.at;
        for word in words {
            if self.eat(word) && !self.peek().is_some_and(char::is_alphanumeric) {
                return true;
            }
            self.at = from;
        }
        false
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\u{a0}')
}

fn find_link(text: &str, start: usize, end: usize, own_is: &[&str]) -> Option<ValueLink> {
    let mut cursor = Cursor { text, at: end };
    // `sig=` and `pw:` include their separator.
    let brought = text[..end].ends_with(['=', ':']);
    let glued = !text[end..].starts_with(|next: char| next.is_whitespace());
    let mut tie = if !brought {
        Separator::Loose
    } else if glued {
        Separator::Glued
    } else {
        Separator::Sign
    };
    let mut named_on = false;
    if tie == Separator::Loose {
        skip_rest_of_name(&mut cursor)?;
        named_on = cursor.at > end + 1;
        let option = text.as_bytes()[..start]
            .iter()
            .rev()
            .take(32)
            .take_while(|byte| is_in_class(**byte, LOWER | DASH))
            .count();
        let option = text[start - option..].starts_with("--");
        cursor.skip(6, |c| matches!(c, '\\' | '"' | '\'' | '`' | '*' | ']' | ')'));
        let blanks = cursor.skip(8, is_blank);
        let from = cursor.at;
        tie = skip_separator(&mut cursor, blanks > 0, own_is)?;
        if tie == Separator::Loose && (blanks == 0 || cursor.at != from) {
            return None;
        }
        let blank_next = cursor.peek().is_some_and(|next| next.is_whitespace() || next == '*');
        if tie == Separator::Sign && blanks == 0 && !blank_next || tie == Separator::Loose && option
        {
            tie = Separator::Glued;
        }
    }
    let firm = tie != Separator::Loose;
    cursor.skip(2, |c| c == '*');
    let mut lines = 0;
    loop {
        cursor.skip(16, is_blank);
        if !(cursor.eat("\r\n") || cursor.eat("\n") || cursor.eat("\\r\\n") || cursor.eat("\\n")) {
            break;
        }
        lines += 1;
    }
    if lines > 2 || (lines > 0 && !firm) {
        return None;
    }
    // The letter of `b"…"` or the backslashes of `\"…\"` belong to the quote, if one follows.
    let from = cursor.at;
    if cursor.skip(1, |c| matches!(c, 'b' | 'B' | 'r' | 'u' | 'f')) + cursor.skip(4, |c| c == '\\')
        > 0
        && cursor.peek().and_then(closing_quote).is_none()
    {
        cursor.at = from;
    }
    let quote = cursor.peek().and_then(closing_quote);
    if let Some(open) = cursor.peek().filter(|_| quote.is_some()) {
        cursor.skip(3, |c| c == open);
    }
    Some(ValueLink { value: cursor.at, quote, tie, far: lines > 0, named_on })
}

fn closing_quote(open: char) -> Option<char> {
    match open {
        '"' | '\'' | '`' => Some(open),
        '“' | '‟' => Some('”'),
        '‘' | '‛' => Some('’'),
        '„' => Some('“'),
        '«' => Some('»'),
        '「' => Some('」'),
        '『' => Some('』'),
        _ => None,
    }
}

/// Skips to the end of a name like `token_value` or `SECRET_KEY_BASE`. `None` if it is another word
/// (`tokenizer`) or names a property of the secret (`token_count`).
fn skip_rest_of_name(cursor: &mut Cursor<'_>) -> Option<()> {
    const ABOUT: &str = "id ids name path file dir url uri endpoint type kind count budget limit length len size expiry expires at ttl min max policy \
        field label hint version arn fingerprint prefix index usage used total rate alg algorithm ref in out";
    let bytes = cursor.text.as_bytes();
    let plural = matches!(bytes.get(cursor.at), Some(b's' | b'S'))
        && !bytes.get(cursor.at + 1).is_some_and(u8::is_ascii_alphabetic);
    cursor.at += usize::from(plural);
    let from = cursor.at;
    let small_before = from.checked_sub(1).is_some_and(|before| bytes[before].is_ascii_lowercase());
    match cursor.peek() {
        Some('_' | '-' | '0'..='9') => {}
        Some('A'..='Z') if small_before => {}
        Some(c) if c.is_ascii_alphabetic() => return None,
        _ => return Some(()),
    }
    let length = cursor.skip(40, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = &bytes[from..from + length];
    let hump = |at: &usize| {
        matches!(name[*at], b'_' | b'-')
            || (name[*at].is_ascii_uppercase() && (*at == 0 || name[*at - 1].is_ascii_lowercase()))
    };
    let last = (0..name.len()).rev().find(hump).unwrap_or(0);
    let last = name[last..].to_ascii_lowercase();
    let last = last.strip_prefix(b"_").or_else(|| last.strip_prefix(b"-")).unwrap_or(&last);
    (!ABOUT.split(' ').any(|about| about.as_bytes() == last)).then_some(())
}

/// Skips the separator; `None` if something else follows.
fn skip_separator(
    cursor: &mut Cursor<'_>,
    after_blank: bool,
    own_is: &[&str],
) -> Option<Separator> {
    let phrases = &*PHRASES;
    if cursor.rest().starts_with("::") {
        return None;
    }
    for sign in ["?:", "!:", ":=", "=>", "===", "==", "=", ":", "：", "->", "→"] {
        if cursor.eat(sign) {
            return Some(Separator::Sign);
        }
    }
    if phrases.is_glued.iter().any(|is| cursor.eat(is)) {
        cursor.skip(2, is_blank);
        let _ = cursor.eat(":") || cursor.eat("：");
        return Some(Separator::Is);
    }
    if !after_blank {
        return Some(if cursor.eat(">") { Separator::Sign } else { Separator::Loose });
    }
    if ["- ", "– ", "— "].iter().any(|dash| cursor.eat(dash)) {
        // "пароль — это …"
        let from = cursor.at;
        if cursor.eat_word(own_is) && cursor.skip(2, is_blank) > 0 {
            return Some(Separator::Is);
        }
        cursor.at = from;
        return Some(Separator::Sign);
    }
    let says_is = |cursor: &mut Cursor<'_>| {
        let is = cursor.eat_word(&phrases.is) || cursor.eat_word(own_is);
        if is {
            cursor.skip(4, is_blank);
            cursor.eat_word(&phrases.now);
            let _ = cursor.eat(":") || cursor.eat("=");
        }
        is
    };
    if says_is(cursor) {
        return Some(Separator::Is);
    }
    let from = cursor.at;
    let parenthesis = cursor.peek() == Some('(');
    if !parenthesis && !cursor.eat_word(&phrases.of) && !cursor.eat_word(&phrases.set_to) {
        return Some(Separator::Loose);
    }
    // "password for the office network is …": a few words may come between, but no new
    // sentence.
    let first = cursor.at;
    while cursor.at - from < 48 {
        let Some(c) = cursor.peek() else { break };
        if is_blank(c) {
            cursor.skip(4, is_blank);
            if says_is(cursor) {
                return Some(Separator::Is);
            }
            continue;
        }
        cursor.at += c.len_utf8();
        let ends = cursor.peek().is_none_or(|next| {
            next.is_whitespace() || matches!(next, '"' | '\'' | '`' | '*' | '\\')
        });
        match c {
            '=' => return Some(Separator::Sign),
            ':' if ends => return Some(Separator::Sign),
            '.' if ends => break,
            ':' if cursor.peek().is_some_and(|next| next.is_ascii_digit()) => {}
            '-' | '_' | '(' | ')' | '@' | '.' | '\'' => {}
            c if c.is_alphanumeric() => {}
            _ => break,
        }
    }
    // "set the password to …" has no other separator.
    let to = phrases.set_to.iter().any(|to| cursor.text[from..first].eq_ignore_ascii_case(to));
    cursor.at = if to { first } else { from };
    Some(if to { Separator::To } else { Separator::Loose })
}

/// The value of a link, without closing quotes or the sentence around it. `None` if it is no single
/// word.
fn link_value<'a>(text: &'a str, link: &ValueLink) -> Option<&'a str> {
    let rest = &text[link.value..];
    let mut length = rest.len();
    for (at, c) in rest.char_indices() {
        if at > MAX_VALUE_BYTES {
            return None;
        }
        let after = &rest[at + c.len_utf8()..];
        let ends = match (link.quote, c) {
            (Some(_), c) if is_blank(c) => return None,
            (_, c) if c.is_whitespace() || c.is_control() => true,
            (Some(close), c) => c == close || c == '\\',
            (None, '"' | '\'' | '`' | '<' | '>' | '\\') => true,
            (None, ',' | ';' | '&') => starts_next_value(after),
            (None, c)
                if is_unspaced_script(c)
                    && rest.starts_with(|first: char| first.is_ascii_graphic()) =>
            {
                true
            }
            (None, c) => !c.is_ascii() && !c.is_alphanumeric(),
        };
        if ends {
            length = at;
            break;
        }
    }
    let value = &rest[..length];
    Some(if link.quote.is_some() {
        value
    } else {
        value.trim_end_matches(['.', ',', ';', ':', '?', ')', ']', '}', '*'])
    })
}

/// Whether what follows a comma is not part of the value: a blank, a quote, or the next `name=`.
fn starts_next_value(after: &str) -> bool {
    let name = after
        .bytes()
        .take(32)
        .take_while(|byte| is_in_class(*byte, URLSAFE | DOT) || *byte == b' ')
        .count();
    let next = after.chars().next();
    next.is_none_or(|next| next.is_whitespace() || matches!(next, '"' | '\'' | '`' | '\\'))
        || (name > 0 && matches!(after.as_bytes().get(name), Some(b'=' | b':')))
}

// ---- The look of values ----

/// Variables, templates and masked values: they contain no secret.
fn is_placeholder(value: &str) -> bool {
    let bytes = value.as_bytes();
    let named = |rest: &[u8]| rest.iter().all(|byte| is_in_class(*byte, WORD));
    match bytes {
        [b'$', rest @ ..] => matches!(rest.first(), Some(b'{' | b'(')) || named(rest),
        [b'<' | b'{' | b'[' | b'%' | b'&', ..] => true,
        [b'!' | b'@', rest @ ..] => {
            rest.iter().all(|byte| is_in_class(*byte, UPPER | LOWER | UNDER))
        }
        _ => {
            value.starts_with("://")
                || distinct_bytes(bytes) < 2
                || bytes.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"your"))
        }
    }
}

/// Source code for a computed value: a call, an index, a field.
fn is_expression(value: &str) -> bool {
    let name = value
        .bytes()
        .take_while(|byte| {
            is_in_class(*byte, WORD | DOT) || matches!(byte, b':' | b'>' | b'-' | b'?' | b'!')
        })
        .count();
    let dotted = value.split('.').count() > 1
        && value
            .split('.')
            .all(|part| part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'));
    (name > 0 && matches!(value.as_bytes().get(name), Some(b'(' | b'[')))
        || (dotted && name == value.len() && !is_random(value))
}

fn is_path(value: &str) -> bool {
    let file = value.rsplit_once('.').is_some_and(|(_, end)| {
        (1..=5).contains(&end.len()) && end.bytes().all(|byte| is_in_class(byte, LOWER))
    });
    let named = [
        ".json", ".pem", ".txt", ".yml", ".yaml", ".toml", ".env", ".py", ".js", ".ts", ".rs",
        ".go", ".md",
    ];
    ["/", "./", "../", "~/"].iter().any(|start| value.starts_with(start))
        || (file && value.contains('/'))
        || named.iter().any(|end| value.ends_with(end))
}

/// Short passwords as people choose them: letters with a digit or a symbol, or a number of some
/// length.
fn looks_like_password(value: &str) -> bool {
    const METHODS: [&str; 14] = [
        "sha1", "sha256", "sha512", "sha-256", "sha-512", "md5", "base64", "argon2", "argon2id",
        "pbkdf2", "utf8", "utf-8", "oauth2", "es256",
    ];
    let core = value.trim_end_matches(['!', '?', '.', ',']);
    let bytes = core.as_bytes();
    let letters = core.chars().filter(|c| c.is_alphabetic()).count();
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    if core.chars().count() < 4 || value.contains("://") || is_path(value) || is_placeholder(core) {
        return false;
    }
    if letters == 0 {
        return digits == core.len();
    }
    let symbol = bytes
        .iter()
        .skip(1)
        .take(bytes.len().saturating_sub(2))
        .any(|byte| b"@#$%^&*!+=~?".contains(byte));
    // `8-character`, `v1.2.3`, `__u32`, and names of methods and events describe passwords and are
    // none.
    let measure = core.split_once('-').is_some_and(|(a, b)| {
        a.bytes().all(|byte| is_in_class(byte, DIGIT))
            && b.bytes().all(|byte| is_in_class(byte, LOWER))
    });
    let version =
        core.starts_with('v') && core[1..].bytes().all(|byte| is_in_class(byte, DIGIT | DOT));
    let kind = core
        .trim_start_matches('_')
        .trim_end_matches("_t")
        .trim_end_matches(|c: char| c.is_ascii_digit());
    let type_name = ["u", "i", "s", "int", "uint", "float"].contains(&kind);
    let named = measure
        || version
        || type_name
        || METHODS.iter().any(|method| core.eq_ignore_ascii_case(method))
        || core.parse::<EventId>().is_ok();
    !named && (digits > 0 || symbol)
}

/// Generated keys and tokens. Directly after a keyword (`near`) less evidence is needed.
fn looks_like_token(value: &str, near: bool) -> bool {
    // The usual notation of secrets for one-time codes.
    let base32 = value.len() >= 16
        && value.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'2'..=b'7' | b'='))
        && value.bytes().any(|byte| is_in_class(byte, DIGIT));
    if is_uuid(value) || base32 {
        near
    } else if is_hex(value) {
        value.len() >= if near { 16 } else { 32 }
    } else {
        value.len() >= if near { 12 } else { 20 } && is_random(value)
    }
}

fn is_hex(value: &str) -> bool {
    let (lower, digits) = (
        value.bytes().all(|byte| is_in_class(byte, HEX)),
        value.bytes().any(|byte| is_in_class(byte, DIGIT)),
    );
    let upper = value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'));
    (lower || upper) && digits && value.bytes().any(|byte| !is_in_class(byte, DIGIT))
}

fn is_uuid(value: &str) -> bool {
    let dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
    value.len() == 36
        && value
            .bytes()
            .enumerate()
            .all(|(at, byte)| if dash(at) { byte == b'-' } else { byte.is_ascii_hexdigit() })
}

fn is_aws_secret(value: &str) -> bool {
    let has = |classes| value.bytes().any(|byte| is_in_class(byte, classes));
    value.len() == 40
        && value.bytes().all(|byte| is_in_class(byte, ALNUM | PLUS | SLASH))
        && has(UPPER)
        && has(LOWER)
        && has(DIGIT)
}

fn names_aws(context: &[u8]) -> bool {
    let context = context.to_ascii_lowercase();
    memmem::find(&context, b"aws").is_some() || memmem::find(&context, b"access").is_some()
}

fn is_random(value: &str) -> bool {
    let digest = ["sha256", "sha1", "sha512", "md5"].iter().any(|method| value.starts_with(method));
    let public_key = ["AAAAB3Nza", "AAAAC3Nza", "AAAAE2Vj", "AAAAGnNr"]
        .iter()
        .any(|start| value.starts_with(start));
    let time =
        value.bytes().all(|byte| !is_in_class(byte, UPPER | LOWER) || matches!(byte, b'T' | b'Z'));
    let ascii = value.bytes().all(|byte| byte.is_ascii_graphic());
    ascii
        && !digest
        && !public_key
        && !time
        && !is_path(value)
        && !value.contains("://")
        && distinct_bytes(value.as_bytes()) >= 7
        && jumbled_length(value.as_bytes()) >= 8
}

/// The number of different bytes.
fn distinct_bytes(bytes: &[u8]) -> u32 {
    let mut seen = [0_u64; 4];
    bytes.iter().for_each(|byte| seen[(byte >> 6) as usize] |= 1 << (byte & 63));
    seen.iter().map(|part| part.count_ones()).sum()
}

/// The number of bytes in unpronounceable words: digits amid letters, or random capitals.
fn jumbled_length(bytes: &[u8]) -> usize {
    bytes
        .split(|byte| !is_in_class(*byte, ALNUM))
        .filter(|word| is_jumbled(word))
        .map(<[u8]>::len)
        .sum()
}

fn is_jumbled(word: &[u8]) -> bool {
    let changes = |classes| {
        word.windows(2)
            .filter(|pair| is_in_class(pair[0], classes) != is_in_class(pair[1], classes))
            .count()
    };
    let (to_digit, to_capital) = (changes(DIGIT), changes(UPPER));
    let capitals = word.iter().filter(|byte| is_in_class(**byte, UPPER)).count();
    // `sha256sum` and `v2` are words; `a1b2` and `xK9p4Rt` are not. `CamelCase` has fewer capitals
    // than random text.
    let cased =
        word.len() >= 12 && to_capital * 5 >= word.len() * 2 && capitals * 10 >= word.len() * 3;
    to_digit >= 3 || (to_digit >= 2 && word.len() > 8) || cased
}

#[cfg(test)]
pub(crate) mod corpus;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Fake secrets are assembled from pieces, so that a code host's scanner does not report this
    // file.
    const KEY: MarkerKey = MarkerKey::new([7; 32]);
    const BODY: &str = "aB3dE5gH7jK9mN1pQ4sT6vW8yZ0bC2dF4hJ6kL8nP0rS2tV4xY6zA8cE1gI3kM5oQ7sU9wX1zB3dF5hJ7lN9pR1tV3xZ5";
    const HEXES: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";
    const CAPS: &str = "Q2W3E4R5T6Y7U2I3O4P5A6S7D2F3G4H5J6K7L2Z3X4C5V6B7N2M3Q4W5E6R7T2Y3";

    fn hides(before: &str, secret: &str, after: &str, kind: &str) {
        let text = format!("{before}{secret}{after}");
        let redacted = redact(&text, &KEY);
        let mark = KEY.mark(kind, secret.as_bytes());
        assert_eq!(redacted.text, format!("{before}{mark}{after}"), "in {text:?}");
        assert_eq!(
            redacted.hidden.iter().map(|hidden| hidden.mark.as_str()).collect::<Vec<_>>(),
            [mark],
            "in {text:?}"
        );
        assert_eq!(redact(&redacted.text, &KEY).hidden, [], "again in {}", redacted.text);
    }

    /// So many random characters of these classes.
    fn body_of(classes: u16, least: usize, turn: usize) -> String {
        let source = match classes {
            _ if classes & LOWER != 0 && classes & UPPER != 0 => BODY.to_owned(),
            _ if classes & LOWER != 0 => BODY.to_lowercase(),
            _ if classes & HEX != 0 => HEXES.to_owned(),
            _ => CAPS.to_owned(),
        };
        source.chars().cycle().skip(turn).take(least).collect()
    }

    /// A key of this anchor that looks real.
    fn sample_key(anchor: &Anchor) -> Option<String> {
        let AnchorRule::Vendor { body, least, .. } = anchor.sign else { return None };
        Some(format!("{}{}", anchor.text, body_of(body, least, 0)))
    }

    #[test]
    fn keys_of_vendors_are_hidden_wherever_they_stand() {
        for anchor in &RULES.anchors {
            let (Some(key), AnchorRule::Vendor { kind, .. }) = (sample_key(anchor), &anchor.sign)
            else {
                continue;
            };
            hides("", &key, "", kind);
            hides("Use ", &key, ".", kind);
            hides("Schlüssel „", &key, "“ für später", kind);
            hides("这是", &key, "，谢谢", kind);
            hides(r#"{"text":"see \""#, &key, r#"\" there"}"#, kind);
            hides(r#"{"text":"line\n"#, &key, r#"\nline"}"#, kind);
            hides("API_TOKEN=", &key, "\nDEBUG=1", kind);
            hides(r#""token": ""#, &key, r#"","#, kind);
        }
    }

    #[test]
    fn shapes_that_speak_for_themselves_are_hidden() {
        let jwt = format!("{}{BODY}.eyJ{BODY}.{BODY}", concat!("ey", "J"));
        hides("session ", &jwt, " expired", "jwt");
        hides("Authorization: Bearer ", &jwt, "", "jwt");
        let telegram = format!("123456789:{}{}", "AA", &BODY[..33]);
        hides("https://api.telegram.org/bot", &telegram, "/getMe", "telegram-token");
        hides("postgres://app:", "s3cret", "@db.internal:5432/app?sslmode=require", "url-password");
        hides("redis://:", "hunter", "@10.0.0.1", "url-password");
        hides("amqps://üser:", "p@ßw:rd", "@host/vhost", "url-password");
        hides(r#"{"dsn":"mysql:\/\/root:"#, "toor", r#"@localhost\/db"}"#, "url-password");
        hides("Authorization: Bearer ", "abc123", "", "bearer");
        hides("curl -H 'Authorization: Bearer ", &BODY[..40], "' https://example.com", "bearer");
        hides("it sent Bearer ", &BODY[..24], " in the header", "bearer");
        hides("Authorization: Basic ", "dXNlcjpwYXNz", "", "basic-auth");
        hides("use basic ", "YWRtaW46aHVudGVyMg==", " there", "basic-auth");
        let secret = concat!("hT4kq8Zr/Xn2Vb7+Lp0W", "cY5sDj3gFm9uQe1aRi6o");
        hides("aws_secret_access_key = ", secret, "", "aws-secret-key");
        hides("\"SecretAccessKey\": \"", secret, "\"", "aws-secret-key");
    }

    #[test]
    fn the_data_files_can_be_read_whole() {
        let (rules, faults) = rules::SecretRules::parse(
            include_str!("secrets/formats.txt"),
            include_str!("secrets/words.txt"),
        );
        assert_eq!(faults, Vec::<String>::new());
        for (at, anchor) in rules.anchors.iter().enumerate() {
            let AnchorRule::Vendor { kind, least, .. } = anchor.sign else { continue };
            assert!(
                least >= 12 && kind.bytes().all(|byte| is_in_class(byte, LOWER | DIGIT | DASH)),
                "{}",
                anchor.text
            );
            let shadowed = rules.anchors[..at].iter().find(|other| {
                matches!(other.sign, AnchorRule::Vendor { .. })
                    && anchor.text.starts_with(&*other.text)
                    && anchor.at == other.at
            });
            assert!(
                shadowed.is_none(),
                "{} stands behind {}",
                anchor.text,
                shadowed.map_or("", |other| &other.text)
            );
        }
        let (_, faults) = rules::SecretRules::parse(
            "key | ab\nshape | x | nothing",
            "[en]\nwords: a\npart: ab@7",
        );
        assert_eq!(faults.len(), 4, "{faults:?}");
    }

    // Y1
    #[test]
    fn nothing_is_hidden_in_what_only_looks_like_a_secret() {
        let lines = include_str!("secrets/harmless.txt")
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with("# "));
        let lines: Vec<String> = lines.map(|line| line.replace("\\n", "\n")).collect();
        assert!(lines.len() >= 500, "{}", lines.len());
        let hidden: Vec<_> = lines
            .iter()
            .map(|line| redact(line, &KEY).text)
            .filter(|text| text.contains(MARK_PREFIX))
            .collect();
        assert_eq!(hidden, Vec::<String>::new());
        // Nor within JSON.
        let json: Vec<_> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
        let hidden: Vec<_> = json
            .iter()
            .map(|line| redact(line, &KEY).text)
            .filter(|text| text.contains(MARK_PREFIX))
            .collect();
        assert_eq!(hidden, Vec::<String>::new());
    }

    #[test]
    fn a_mark_tells_nothing_without_the_key() {
        let text = "my PIN is 4829";
        let marked = |key: &MarkerKey| redact(text, key).text.into_owned();
        let (one, other) = (marked(&KEY), marked(&MarkerKey::new([8; 32])));
        assert_ne!(one, other);
        assert_eq!(strip_mark_codes(&one), strip_mark_codes(&other));
        assert_eq!(strip_mark_codes(&one), "my PIN is [secret:pin]");
        assert!(!one.contains(&crate::hash::Hash::of(b"4829").short_hex()));
        // RFC 4231, case 2, and the key as text.
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(b"Jefe");
        let key = MarkerKey::new(bytes);
        assert_eq!(key.mark("x", b"what do ya want for nothing?"), "[secret:x:5bdcc146]");
        assert_eq!(
            MarkerKey::from_hex(format!(" {}\n", key.to_hex()).as_bytes()),
            Some(key.clone())
        );
        assert_eq!((MarkerKey::from_hex(b"12"), MarkerKey::from_hex(&[b'x'; 64])), (None, None));
        assert_eq!(format!("{key:?}"), "MarkerKey(…)");
        for kept in ["[secret:]", "[secret:a:12]", "[secret:a:0123456g]", "no mark", ""] {
            assert!(matches!(strip_mark_codes(kept), Cow::Borrowed(same) if same == kept));
        }
    }

    #[test]
    fn every_format_of_the_corpus_is_hidden_where_it_stands_and_nothing_else() {
        let rows = corpus::rows();
        assert!(rows.len() >= 200, "{}", rows.len());
        for row in rows {
            let redacted = redact(&row.text(), &KEY).text.into_owned();
            let mark = redacted
                .strip_prefix(row.before.as_str())
                .and_then(|rest| rest.strip_suffix(row.after.as_str()));
            let mark = mark.unwrap_or_else(|| panic!("{}: {redacted:?}", row.name));
            assert_eq!(
                mark_around(mark.as_bytes(), 1),
                Some(mark.len()),
                "{}: {redacted:?}",
                row.name
            );
            assert!(
                !row.made.iter().any(|made| redacted.contains(made.as_str())),
                "{}: {redacted:?}",
                row.name
            );
            assert_eq!(redact(&redacted, &KEY).hidden, [], "{}: {redacted:?}", row.name);
            // Also within JSON, where a line break is escaped.
            let json = serde_json::to_string(&row.text()).unwrap();
            let hidden = redact(&json, &KEY).text.into_owned();
            assert!(
                !row.made.iter().any(|made| hidden.contains(made.as_str())),
                "{}: {hidden:?}",
                row.name
            );
            assert!(
                serde_json::from_str::<serde_json::Value>(&hidden).is_ok(),
                "{}: {hidden:?}",
                row.name
            );
        }
    }

    #[test]
    fn private_keys_are_hidden_as_a_block() {
        let (begin, end) = (
            concat!("-----BEGIN RSA PRIV", "ATE KEY-----"),
            concat!("-----END RSA PRIV", "ATE KEY-----"),
        );
        let (line, last) = (&BODY[..64], "x9Q=");
        hides(
            "my key:\n",
            &format!("{begin}\n{line}\n{line}\n{last}\n{end}"),
            "\nplease",
            "private-key",
        );
        hides(
            "{\"key\":\"",
            &format!("{begin}\\n{line}\\n{last}\\n{end}"),
            "\\n\"}",
            "private-key",
        );
        hides(
            "cut off: ",
            &format!("{begin}\n{line}\n{line}\n{last}"),
            "\n\nwhat is wrong with it?",
            "private-key",
        );
        hides("{\"key\":\"", &format!("{begin}\\n{line}\\n{line}"), "\"}", "private-key");
        hides(
            "",
            &format!("{begin}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0F1E\n\n{line}"),
            "",
            "private-key",
        );
        let ssh = concat!("-----BEGIN OPENSSH PRIV", "ATE KEY-----");
        hides(
            "> ",
            &format!("{ssh}\n> {line}\n> {}", concat!("-----END OPENSSH PRIV", "ATE KEY-----")),
            "\n> ok",
            "private-key",
        );
    }

    #[test]
    fn values_after_telling_words_are_hidden() {
        let long = "k7Gq2ZxW9vRt4LmP";
        hides("password: ", "hunter2", "", "password");
        hides("The password is ", "hunter2", ", ok?", "password");
        hides("password = '", "Tr0ub4dor&3", "'", "password");
        hides("PASSWORD=", "p@ssword", " ./run", "password");
        hides(r#"{"user": "bob", "password": ""#, "a;b,c1", r#""}"#, "password");
        hides(r#"{\"password\": \""#, "hunter2", r#"\"}"#, "password");
        hides("Passwort: ", "geheim99", "", "password");
        hides("Das Passwort lautet ", "geheim99", ".", "password");
        hides("la contraseña es ", "clave2024", "", "password");
        hides("le mot de passe est ", "soleil77", "", "password");
        hides("пароль: ", "qwerty12", "", "password");
        hides("密码：", "abc12345", "，谢谢", "password");
        hides("**Password:** ", "hunter2", "", "password");
        hides("Password - ", "hunter2", "", "password");
        hides("the password for the office wifi is ", "blue42sky", " by the way", "password");
        hides("I set the password to ", "blue42sky", " now", "password");
        hides("mysql --password ", "hunter2", " -u root", "password");
        hides("<password>", "hunter2", "</password>", "password");
        hides("Server=db;User=sa;Password=", "x9!yz", ";Encrypt=yes", "password");
        hides("https://x.test/?user=a&password=", "hunter2", "&next=/", "password");
        hides("DB_PASS=", "hunter2", "", "password");
        hides("my pin and password: ", "482913", "", "password");
        hides("token: ", long, "", "token");
        hides("auth_token = \"", long, "\"", "token");
        hides("accessToken: '", long, "',", "token");
        hides("https://x.test/cb?access_token=", long, "&state=1", "token");
        hides("the token ", "k7Gq2ZxW9vRt4LmP8sYb", " leaked", "token");
        hides("client_secret=", HEXES, "", "secret");
        hides("api key: ", &HEXES[..32], "", "api-key");
        hides("X-Api-Key: ", long, "", "api-key");
        hides("apiKey=", "550e8400-e29b-41d4-a716-446655440000", "", "api-key");
        hides("Our API key:\n\n`", "k7Gq2ZxW9vRt4LmP8sYb", "`", "api-key");
        hides("ENCRYPTION_KEY=", long, "", "key");
        hides("STRANGE_KEY=", "k7Gq2ZxW9vRt4LmP8sYb", "", "key");
        hides("AccountKey=", "k7Gq2ZxW9v/Rt4LmP8sYb+Q1==", ";EndpointSuffix=core", "key");
        hides("credentials: ", long, "", "credential");
    }

    fn check_kept(text: &str) {
        let redacted = redact(text, &KEY);
        assert_eq!(redacted.text, text);
        assert!(matches!(redacted.text, Cow::Borrowed(_)), "{text:?}");
        assert_eq!(redacted.hidden, []);
    }

    // Y1
    #[test]
    fn text_without_secrets_is_kept_exactly() {
        for text in [
            "",
            "password: required",
            "password is wrong!",
            "The password is 12 characters long, the passphrase is case-sensitive.",
            "password: string; token: Option<String>, secret: &'static str",
            "pub log_passwd: __u32, password: uint8_t",
            "password = getpass.getpass()",
            "password: z.string().min(8)",
            "let password = args[1];",
            "password: user.password2",
            "\"password\": \"must have at least 8 characters\"",
            "password: 8-16 characters, 2048-bit",
            "password: sha256",
            "Password:",
            "password=$DB_PASSWORD password=${DB_PASS1} password=<your-pw1> password: {{ pw1 }} password=%s",
            "password: ******** token: xxxxxxxxxxxxxxxx",
            "password_file: /run/secrets/db1",
            "password: /run/secrets/db1",
            "passwordless login2 and secretary: k7Gq2ZxW9vRt4LmP",
            "token budget: 20000",
            "tokens: 1500, max_tokens=4096, token_count: 128000",
            "tokenizer: cl100k_base",
            "token: EVT-20260213-001, password: EVT-20260213-001",
            "see EVT-20260213-001 and EVT-20260213-1000",
            "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904 fixes it",
            "id 550e8400-e29b-41d4-a716-446655440000",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  notes.txt",
            "primary key: 550e8400-e29b-41d4-a716-446655440000",
            "cache key: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "\"key\": \"uploads/2026/02/ab12cd34ef56ab78.png\"",
            "the key decision: ship v1.2.3 on 2026-02-13T10:15:00Z",
            "key=value, key: value2, monkey: k7Gq2ZxW9vRt4LmP8sYb",
            "secret: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "ssh key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0bC2dF4hJ6kL8nP0rS2tV4xY6z me@host",
            "https://example.com:8080/a/b?c=d#e and https://bob@example.com/@alice",
            "git@github.com:icecore/icecore.git, ssh://git@github.com:22/x",
            "postgres://app:$DB_PASSWORD@host and postgres://app:***@host",
            "bearer of good news, Bearer authentication, Authorization: Bearer $TOKEN",
            "basic understanding of Basic authentication, basic arithmetic1",
            "the task-runner and sk-learn-pipeline-version-2-of-the-old-one",
            "risk-0123456789012345678901234 disk-usage hf_transfer npm_config_registry",
            "ghp_ is GitHub's prefix, AKIA is Amazon's, sk-... is OpenAI's",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "ASIAPACIFICHEADQUARTERS",
            "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n-----END PUBLIC KEY-----",
            concat!("it starts with -----BEGIN PRIV", "ATE KEY----- and then comes base64"),
            "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
            "eyJhbGciOiJIUzI1NiJ9 alone is only a header",
            "/usr/lib/x86_64-linux-gnu/libssl.so.3 and C:\\Users\\bob\\token1.txt",
            "token::Kind1 and secrets.json: 4b825dc642cb",
            "tests pass: 1500, PASS: test_login_2, two-pass: 3x faster",
            "Das Passwort ist erforderlich. La contraseña es obligatoria. 密码是必填项。",
            "a mark [secret:token:0f1e2d3c] and password: [secret:password:0f1e2d3c]",
            "Wir haben „Token“ und «clés» besprochen — naïve café 🎯",
            "I keep my seed phrase in a drawer, and the recovery phrase is something that nobody else could ever guess from the outside.",
            "Cookies: chocolate chip. The cookie: name=value; theme=dark",
            "curl -u $USER:$TOKEN https://example.com and mysql -p shop, mysql --port 3306",
            "order 4111111111111112, at 1700000000000000 ns, call +49 30 901820 or 0049 30 9018 2000 11",
            "DE00 3704 0044 0532 0130 00 is no account; ISO 20022, RFC 9110, EN 60601-1-2",
            "the PRIMARY_KEY=users_pkey and CACHE_KEY=page:12 of row 5",
            "GOOGLE_CLOUD_SPEECH_CREDENTIALS = 'caramel-base-379922-9d9af53bf1a0.json'",
            "clients-us2 and non-us1 servers, localhost:5432:open",
            "La parola: casa. Das Kennwort, das Passwort, la contraseña",
        ] {
            check_kept(text);
        }
    }

    #[test]
    fn the_same_secret_has_the_same_mark() {
        let redacted = redact("password: hunter2\nPasswort=hunter2\npassword: hunter3", &KEY);
        let marks: Vec<_> = redacted.hidden.iter().map(|hidden| &hidden.mark).collect();
        assert_eq!(marks.len(), 3);
        assert_eq!(marks[0], marks[1]);
        assert_ne!(marks[0], marks[2]);
    }

    #[test]
    fn a_mark_stays_whole_wherever_a_view_begins_or_ends() {
        let mark = "[secret:password:48291234]";
        for length in 950..1100 {
            let between = "x ".repeat(length / 2) + &"x".repeat(length % 2);
            check_kept(&format!("{mark} {between}\\u00e9"));
            check_kept(&format!("\\u00e9{between} {mark}"));
        }
    }

    /// Text full of prefixes: random characters alone would hardly ever reach the rules.
    fn telling_text() -> impl Strategy<Value = String> {
        let pieces = RULES.anchors.iter().map(|anchor| &*anchor.text).chain([
            ": ",
            "=",
            " is ",
            "\"",
            "\\\"",
            "'",
            "\\n",
            "\n",
            " for the ",
            "hunter2",
            "k7Gq2ZxW9vRt4LmP8sYb",
            "[secret:token:0f1e2d3c]",
            "[secret:",
            "@",
            "/",
            "-----",
            " PRIVATE KEY-----",
            "-----END ",
            ".",
            "é",
            "，",
            "„",
            "“",
            " ",
            "A",
            "1",
            BODY,
            HEXES,
        ]);
        let piece = prop_oneof![3 => prop::sample::select(pieces.collect::<Vec<_>>()).prop_map(str::to_owned), 1 => "\\PC{0,3}"];
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nothing_is_hidden_twice(text in prop_oneof![telling_text(), any::<String>()]) {
            let once = redact(&text, &KEY);
            let twice = redact(&once.text, &KEY);
            prop_assert_eq!(&twice.text, &once.text);
            prop_assert_eq!(twice.hidden, []);
            prop_assert_eq!(once.hidden.is_empty(), once.text == text);
        }

        #[test]
        fn under_any_key_the_same_is_hidden(text in telling_text(), bytes in any::<[u8; 32]>()) {
            let (one, other) = (redact(&text, &KEY), redact(&text, &MarkerKey::new(bytes)));
            prop_assert_eq!(strip_mark_codes(&one.text), strip_mark_codes(&other.text));
        }

        // Y1
        #[test]
        fn words_and_numbers_are_borrowed(words in prop::collection::vec("[a-zäé]{1,9}|[0-9]{1,3}|[A-Z][a-z]{2,8}[.,]", 0..40)) {
            let text = words.join(" ");
            prop_assert!(matches!(redact(&text, &KEY).text, Cow::Borrowed(kept) if kept == text));
        }

        #[test]
        fn no_vendor_key_survives(
            before in "\\PC{0,40}", after in "\\PC{0,40}", anchor in prop::sample::select((0..RULES.anchors.len()).collect::<Vec<_>>()),
            turn in 0..BODY.len(), telling in telling_text(), json in any::<bool>(),
        ) {
            let anchor = &RULES.anchors[anchor];
            if let AnchorRule::Vendor { body: classes, least, wary, .. } = anchor.sign {
                let body = body_of(classes, least, if classes & LOWER != 0 { turn } else { 0 });
                let key = format!("{}{body}", anchor.text);
                let gap = if wary { " " } else { "" };
                // Its own body would be found again if it were there for another reason.
                let telling = telling.replace(BODY, "").replace(HEXES, "");
                let telling = if telling.to_lowercase().contains(&body.to_lowercase()) { String::new() } else { telling };
                for before in [&before, &telling] {
                    let text = format!("{before}{gap}{key}{after}");
                    let text = if json { serde_json::to_string(&text).unwrap() } else { text };
                    let redacted = redact(&text, &KEY);
                    prop_assert!(!redacted.text.contains(&body), "{} in {}", key, redacted.text);
                }
            }
        }
    }

    #[test]
    fn a_hostile_text_comes_back_soon() {
        let pieces = "glpat- sk- eyJ- eyJaaaaaaaaaa. password: password_for_ ://a: -----BEGIN_PRIVATE_KEY----- key_ Bearer_a. token=a, 12345678:AA cookie= cookie:_a=b; curl_-u_a: mysql_-p :5432:a:b: seed_phrase_abc_ mnemonic_ 4_1- DE89_ AZDO -us .atlasv1. Private-Lines:_1\n Authorization:_a_";
        for piece in pieces
            .split(' ')
            .map(|piece| piece.replace('_', " "))
            .chain(["ghp_".into(), "sk_live_".into()])
        {
            let once = redact(&piece.repeat(40_000 / piece.len()), &KEY).text.into_owned();
            assert_eq!(redact(&once, &KEY).hidden, [], "{piece}");
        }
    }
}
