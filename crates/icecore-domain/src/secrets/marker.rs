//! The marks that replace hidden secrets, and the key under which they are computed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use hmac::{Hmac, KeyInit as _, Mac as _};
use memchr::memmem;
use sha2::Sha256;

use super::{DASH, DIGIT, HEX, LOWER, run_length};
use crate::hash::Hash;

/// The beginning of every mark.
pub(super) const MARK_PREFIX: &str = "[secret:";
/// The length of a key.
const KEY_BYTES: usize = 32;

/// A memory's key for the marks of hidden secrets. Without it a mark cannot be tested against a
/// guess.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct MarkerKey([u8; KEY_BYTES]);

impl MarkerKey {
    /// A key of these bytes, which must be random.
    pub const fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Parses a key as written by [`MarkerKey::to_hex`]; surrounding white space is ignored.
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim();
        if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
            return None;
        }
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// The key as text, for storing and transferring it.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The mark of a secret: its kind, and the first 32 bits of an HMAC-SHA256 of it.
    pub fn mark(&self, kind: &str, secret: &[u8]) -> String {
        let mut mac = match Hmac::<Sha256>::new_from_slice(&self.0) {
            Ok(mac) => mac,
            // HMAC takes keys of any length.
            Err(_) => return format!("{MARK_PREFIX}{kind}:00000000]"),
        };
        mac.update(secret);
        let code = mac.finalize().into_bytes();
        format!("{MARK_PREFIX}{kind}:{:02x}{:02x}{:02x}{:02x}]", code[0], code[1], code[2], code[3])
    }
}

impl fmt::Debug for MarkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MarkerKey(…)")
    }
}

/// The mark of a secret as version 0.1 wrote it: its kind, and the first 32 bits of its SHA-256.
pub(super) fn unkeyed_mark(kind: &str, secret: &[u8]) -> String {
    format!("{MARK_PREFIX}{kind}:{}]", Hash::of(secret).short_hex())
}

/// The marks of version 0.1, by the marks under today's key. They recognize what that version
/// stored, and must never be stored or shown themselves.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UnkeyedMarks(BTreeMap<String, String>);

impl UnkeyedMarks {
    /// Adds the two marks of a secret.
    pub fn insert(&mut self, mark: &str, unkeyed: &str) {
        self.0.insert(mark.to_owned(), unkeyed.to_owned());
    }

    /// Adds the marks of another text.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// A text as version 0.1 stored it; borrowed if it has none of these marks.
    pub fn apply<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let mut copied = 0;
        if self.0.is_empty() {
            return Cow::Borrowed(text);
        }
        for open in memmem::find_iter(text.as_bytes(), MARK_PREFIX.as_bytes()) {
            let Some((length, _)) = mark_at(&text.as_bytes()[open..]) else { continue };
            let Some(unkeyed) = self.0.get(&text[open..open + length]) else { continue };
            out.push_str(&text[copied..open]);
            out.push_str(unkeyed);
            copied = open + length;
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[copied..]);
        Cow::Owned(out)
    }
}

impl fmt::Debug for UnkeyedMarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnkeyedMarks(…)")
    }
}

/// The length of the mark at the start of `bytes`, and that of its kind.
fn mark_at(bytes: &[u8]) -> Option<(usize, usize)> {
    let rest = bytes.strip_prefix(MARK_PREFIX.as_bytes())?;
    let kind = run_length(rest, 0, LOWER | DIGIT | DASH, 40);
    let code = run_length(rest, kind + 1, HEX, 9);
    (kind > 0 && rest.get(kind) == Some(&b':') && code == 8 && rest.get(kind + 9) == Some(&b']'))
        .then_some((MARK_PREFIX.len() + kind + 10, kind))
}

/// The end of the mark whose word `secret` begins at `start`.
pub(super) fn mark_around(bytes: &[u8], start: usize) -> Option<usize> {
    let open = start.checked_sub(1)?;
    mark_at(bytes.get(open..)?).map(|(length, _)| open + length)
}

/// The mark that a cut at `at` would split.
pub(super) fn mark_over(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    const MAX_MARK_BYTES: usize = MARK_PREFIX.len() + 50;
    let from = at.saturating_sub(MAX_MARK_BYTES);
    let open = from + memchr::memrchr(b'[', bytes.get(from..at)?)?;
    let (length, _) = mark_at(&bytes[open..])?;
    (open + length > at).then_some(open..open + length)
}

/// The text for identity comparison: every mark reduced to its kind. A secret hidden under another
/// key, or by the plain hash that marks once had, makes no difference.
pub fn strip_mark_codes(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut copied = 0;
    for open in memmem::find_iter(bytes, MARK_PREFIX.as_bytes()) {
        if let Some((length, kind)) = mark_at(&bytes[open..]) {
            out.push_str(&text[copied..open + MARK_PREFIX.len() + kind]);
            out.push(']');
            copied = open + length;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}
