//! The rules of the secret filter, parsed once from `formats.txt` and `words.txt`, and the lookup
//! table for scanning. The parent module applies the rules; this module only parses and indexes
//! them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use icecore_text::scripts::{is_han_or_kana, is_hangul};

use super::{CLASSES, DIGIT, HEX, LOWER, UPPER};

/// A string at which the scan stops, and the rule that applies there.
pub(super) struct Anchor {
    pub text: Cow<'static, str>,
    /// The offset of the three bytes of `text` that the scan looks for: the rarest ones in prose.
    pub at: usize,
    pub sign: AnchorRule,
}

#[derive(Clone)]
pub(super) enum AnchorRule {
    /// A vendor's prefix, followed by at least `least` bytes of the classes `body`.
    Vendor {
        kind: &'static str,
        body: u16,
        least: usize,
        /// The prefix is short enough to occur by chance: it must begin a word, and the body must
        /// look random.
        wary: bool,
    },
    /// A prefix followed by parts of fixed length: classes and count, or a literal text.
    Exact { kind: &'static str, parts: Vec<KeyPart> },
    /// A keyword after which a secret may follow.
    Word {
        kind: &'static str,
        class: KeywordClass,
        /// Matches inside a longer word as well (`authtoken`).
        loose: bool,
        /// Words of its own language that introduce the value.
        own_is: &'static [&'static str],
    },
    /// A string in the middle of a key that has no other mark: at least `before` bytes precede it,
    /// `after` follow it.
    Middle { kind: &'static str, body: u16, before: usize, after: usize },
    /// A rule implemented in code.
    Shape(ProgramRule),
}

/// One part of a key of fixed length.
#[derive(Clone)]
pub(super) enum KeyPart {
    Literal(&'static str),
    Run(u16, usize),
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum ProgramRule {
    /// A program with options that take a password.
    Command,
    /// `Cookie: name=value; …`
    Cookie,
    /// `seed phrase: …` and the words of a wallet.
    Seed,
    /// `host:5432:database:user:password`
    Pgpass,
    /// The lines of a PuTTY key.
    Putty,
    /// `log in as user / password`
    Login,
    Url,
    Block,
    Jwt,
    Telegram,
    Bearer,
    Basic,
}

/// What kind of value a keyword announces.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum KeywordClass {
    /// A password, which may be short.
    Password,
    /// A token, which must look random.
    Token,
    /// A key, which may also be one of a table or cache: the word before decides.
    Key,
    /// A short number.
    Pin,
    /// Base64 of `user:password`.
    Pair,
}

/// Phrases around passwords, in all languages together.
#[derive(Default)]
pub(super) struct PasswordPhrases {
    /// Words that introduce the value, between blanks.
    pub is: Vec<&'static str>,
    /// The same in scripts without blanks.
    pub is_glued: Vec<&'static str>,
    pub now: Vec<&'static str>,
    pub of: Vec<&'static str>,
    pub set_to: Vec<&'static str>,
    pub setting: HashSet<&'static str>,
    pub and: HashSet<&'static str>,
    /// What may follow a value without a blank, in scripts without blanks.
    pub and_glued: Vec<&'static str>,
    pub before: HashSet<&'static str>,
    pub not: HashSet<&'static str>,
    pub endings: Vec<&'static str>,
    /// Endings of words that describe a password.
    pub endings_of_prose: Vec<&'static str>,
    /// The words for a password.
    pub passwords: Vec<&'static str>,
}

pub(super) struct SecretRules {
    pub anchors: Vec<Anchor>,
    /// Vendor keys and JWTs, by their first byte.
    pub known: Vec<Vec<usize>>,
    table: AnchorTable,
}

/// The rules of this program.
pub(super) static RULES: LazyLock<SecretRules> = LazyLock::new(|| {
    let (rules, faults) =
        SecretRules::parse(include_str!("formats.txt"), include_str!("words.txt"));
    debug_assert!(faults.is_empty(), "{faults:?}");
    rules
});

/// The phrases around passwords. Separate from the rules, because parsing them takes longest and
/// only a text with a password needs them.
pub(super) static PHRASES: LazyLock<PasswordPhrases> =
    LazyLock::new(|| PasswordPhrases::parse(include_str!("words.txt")));

impl SecretRules {
    /// Parses the rules; invalid lines are skipped and reported.
    pub fn parse(formats: &'static str, words: &'static str) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let mut anchors = Vec::with_capacity(512);
        for (at, line) in formats
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        {
            match parse_format_line(line) {
                Some(anchor) => anchors.push(anchor),
                None => faults.push(format!("formats.txt:{}: {line}", at + 1)),
            }
        }
        add_word_anchors(words, &mut anchors, &mut faults);
        for anchor in &anchors {
            if anchor.text.len() < anchor.at + 3 && !(anchor.text.len() == 2 && anchor.at == 0) {
                faults.push(format!("`{}` has no three bytes at {}", anchor.text, anchor.at));
            }
        }
        anchors.retain(|anchor| {
            anchor.text.len() >= anchor.at + 3 || anchor.text.len() == 2 && anchor.at == 0
        });
        let mut known = vec![Vec::new(); 256];
        for (at, anchor) in anchors.iter().enumerate() {
            if matches!(
                anchor.sign,
                AnchorRule::Vendor { .. }
                    | AnchorRule::Exact { .. }
                    | AnchorRule::Shape(ProgramRule::Jwt)
            ) {
                known[usize::from(anchor.text.as_bytes()[0])].push(at);
            }
        }
        let table = AnchorTable::build(&anchors);
        (Self { anchors, known, table }, faults)
    }
}

/// Parses a line of `formats.txt`.
fn parse_format_line(line: &'static str) -> Option<Anchor> {
    let mut fields: Vec<&'static str> = line.split(" | ").collect();
    let at = match fields.last()?.strip_prefix('@') {
        Some(at) => {
            fields.pop();
            at.parse().ok()?
        }
        None => 0,
    };
    let anchor = |text: &'static str, sign| {
        let text = if text.contains('␣') {
            Cow::Owned(text.replace('␣', " "))
        } else {
            Cow::Borrowed(text)
        };
        Some(Anchor { text, at, sign })
    };
    match fields.as_slice() {
        [rule @ ("key" | "wary"), text, kind, body, least] => anchor(
            text,
            AnchorRule::Vendor {
                kind,
                body: parse_classes(body)?,
                least: least.parse().ok()?,
                wary: *rule == "wary",
            },
        ),
        ["exact", text, kind] => {
            let (prefix, rest) = text.split_once('<')?;
            anchor(prefix, AnchorRule::Exact { kind, parts: parse_key_parts(rest)? })
        }
        ["middle", text, kind, body, around] => {
            let (before, after) = around.split_once(' ')?;
            anchor(
                text,
                AnchorRule::Middle {
                    kind,
                    body: parse_classes(body)?,
                    before: before.parse().ok()?,
                    after: after.parse().ok()?,
                },
            )
        }
        ["shape", text, shape] => anchor(text, AnchorRule::Shape(parse_program_rule(shape)?)),
        [rule @ ("part" | "word"), text, kind, class] => {
            let class = match *class {
                "password" => KeywordClass::Password,
                "token" => KeywordClass::Token,
                "key" => KeywordClass::Key,
                "pair" => KeywordClass::Pair,
                _ => return None,
            };
            anchor(text, AnchorRule::Word { kind, class, loose: *rule == "part", own_is: &[] })
        }
        _ => None,
    }
}

fn parse_program_rule(name: &str) -> Option<ProgramRule> {
    Some(match name {
        "command" => ProgramRule::Command,
        "cookie" => ProgramRule::Cookie,
        "seed" => ProgramRule::Seed,
        "pgpass" => ProgramRule::Pgpass,
        "putty" => ProgramRule::Putty,
        "login" => ProgramRule::Login,
        "url" => ProgramRule::Url,
        "block" => ProgramRule::Block,
        "jwt" => ProgramRule::Jwt,
        "telegram" => ProgramRule::Telegram,
        "bearer" => ProgramRule::Bearer,
        "basic" => ProgramRule::Basic,
        _ => return None,
    })
}

fn parse_classes(body: &str) -> Option<u16> {
    body.bytes().try_fold(0, |all, byte| {
        let class = match byte {
            b'U' => UPPER,
            b'L' => LOWER,
            b'D' => DIGIT,
            b'h' => HEX,
            other => CLASSES[usize::from(other)],
        };
        (class != 0).then_some(all | class)
    })
}

/// `a14>.<h64>`: runs and the text between them.
fn parse_key_parts(text: &'static str) -> Option<Vec<KeyPart>> {
    let mut parts = Vec::new();
    for piece in text.split('<') {
        let (run, literal) = piece.split_once('>')?;
        let class = match run.as_bytes().first()? {
            b'a' => UPPER | LOWER | DIGIT,
            b'h' => HEX,
            b'd' => DIGIT,
            _ => return None,
        };
        parts.push(KeyPart::Run(class, run[1..].parse().ok()?));
        if !literal.is_empty() {
            parts.push(KeyPart::Literal(literal));
        }
    }
    Some(parts)
}

/// Whether a character is Chinese, Japanese or Korean: a key word may touch other letters.
pub(super) fn is_unspaced_script(c: char) -> bool {
    is_han_or_kana(c) || is_hangul(c)
}

/// The lists of `words.txt` by line: number, name and entries. `None` where a language begins.
fn word_lists(
    text: &'static str,
) -> impl Iterator<Item = (usize, Option<(&'static str, &'static str)>)> {
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| {
        (
            at + 1,
            if line.starts_with('[') {
                None
            } else {
                Some(line.split_once(": ").unwrap_or((line, "")))
            },
        )
    })
}

fn entries(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split(' ').filter(|entry| !entry.is_empty()).map(with_spaces)
}

/// The words of a line of anchors, each with the byte offset to look for.
fn anchor_words(list: &'static str) -> impl Iterator<Item = (&'static str, usize)> {
    entries(list).map(|entry| {
        entry
            .split_once('@')
            .map_or((entry, 0), |(word, at)| (word, at.parse().unwrap_or(usize::MAX / 2)))
    })
}

/// Adds the keywords of `words.txt` as anchors.
fn add_word_anchors(text: &'static str, anchors: &mut Vec<Anchor>, faults: &mut Vec<String>) {
    const PHRASES: [&str; 11] = [
        "is",
        "now",
        "for",
        "set-to",
        "setting",
        "and",
        "before",
        "not",
        "endings",
        "endings-of-prose",
        "own-is",
    ];
    let mut pending: Vec<(&'static str, usize, KeywordClass, bool)> = Vec::new();
    let mut own_is: Vec<&'static str> = Vec::new();
    for (number, line) in word_lists(text) {
        match line {
            None => add_language_anchors(&mut pending, &mut own_is, anchors),
            Some((name @ ("part" | "word" | "pin"), list)) => {
                let class = if name == "pin" { KeywordClass::Pin } else { KeywordClass::Password };
                pending
                    .extend(anchor_words(list).map(|(word, at)| (word, at, class, name == "part")));
            }
            Some(("own-is", list)) => own_is.extend(entries(list)),
            Some((name, "")) => faults.push(format!("words.txt:{number}: {name}")),
            Some((name, _)) if !PHRASES.contains(&name) => {
                faults.push(format!("words.txt:{number}: there is no list `{name}`"))
            }
            Some(_) => {}
        }
    }
    add_language_anchors(&mut pending, &mut own_is, anchors);
}

impl PasswordPhrases {
    /// Parses the password phrases of `words.txt`.
    fn parse(text: &'static str) -> Self {
        let mut phrases = Self::default();
        let unspaced = |word: &&'static str| word.chars().next().is_some_and(is_unspaced_script);
        for (name, list) in word_lists(text).filter_map(|(_, line)| line) {
            match name {
                "part" | "word" => {
                    phrases.passwords.extend(anchor_words(list).map(|(word, _)| word))
                }
                "is" => {
                    let (glued, spaced): (Vec<_>, Vec<_>) = entries(list).partition(unspaced);
                    phrases.is_glued.extend(glued);
                    phrases.is.extend(spaced);
                }
                "now" => phrases.now.extend(entries(list)),
                "for" => phrases.of.extend(entries(list)),
                "set-to" => phrases.set_to.extend(entries(list)),
                "setting" => phrases.setting.extend(entries(list)),
                "and" => {
                    let (glued, spaced): (Vec<_>, Vec<_>) = entries(list).partition(unspaced);
                    phrases.and_glued.extend(glued);
                    phrases.and.extend(spaced);
                }
                "before" => phrases.before.extend(entries(list)),
                "not" => phrases.not.extend(entries(list)),
                "endings" => phrases.endings.extend(entries(list)),
                "endings-of-prose" => phrases.endings_of_prose.extend(entries(list)),
                _ => {}
            }
        }
        phrases
    }
}

/// Adds the keywords of one language as anchors.
fn add_language_anchors(
    pending: &mut Vec<(&'static str, usize, KeywordClass, bool)>,
    own_is: &mut Vec<&'static str>,
    anchors: &mut Vec<Anchor>,
) {
    let own_is: &'static [&'static str] = Vec::leak(std::mem::take(own_is));
    for (word, at, class, loose) in pending.drain(..) {
        let kind = if class == KeywordClass::Pin { "pin" } else { "password" };
        let sign = AnchorRule::Word { kind, class, loose, own_is };
        // Beyond ASCII the scan is case-sensitive.
        if word.is_ascii() {
            anchors.push(Anchor { text: Cow::Borrowed(word), at, sign });
            continue;
        }
        let mut letters = word.chars();
        let title: String =
            letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
        let mut forms = vec![word.to_owned(), title, word.to_uppercase()];
        forms.dedup_by_key(|form| form.to_ascii_lowercase());
        let anchor = |text| Anchor { text: Cow::Owned(text), at, sign: sign.clone() };
        anchors.extend(forms.into_iter().map(anchor));
    }
}

/// An entry of several words, with its blanks.
fn with_spaces(entry: &'static str) -> &'static str {
    if entry.contains('_') { String::leak(entry.replace('_', " ")) } else { entry }
}

const SLOTS_LOG2: u32 = 12;
const FILTER_LOG2: u32 = 15;

/// Maps three folded bytes to the anchors that contain them. Slots hold a chain of links; 0 ends
/// it.
struct AnchorTable {
    /// A bit for each of many more slots: most of a text is rejected by this filter.
    any: Box<[u64; 1 << (FILTER_LOG2 - 6)]>,
    first: Box<[u16; 1 << SLOTS_LOG2]>,
    links: Vec<(u16, u16)>,
}

impl AnchorTable {
    fn build(anchors: &[Anchor]) -> Self {
        let mut table = Self {
            any: Box::new([0; 1 << (FILTER_LOG2 - 6)]),
            first: Box::new([0; 1 << SLOTS_LOG2]),
            links: vec![(0, 0)],
        };
        // From the last to the first, because each is prepended to its chain.
        for (anchor, rule) in anchors.iter().enumerate().rev() {
            let (text, at) = (rule.text.as_bytes(), rule.at);
            // A prefix of two bytes is indexed with each hex digit that can follow it.
            let thirds: &[u8] = text.get(at + 2..at + 3).unwrap_or(b"0123456789abcdef");
            for third in thirds {
                let trigram = fold_byte(fold_byte(fold_byte(0, text[at]), text[at + 1]), *third);
                let (bit, slot) = (filter_bit(trigram), slot_index(trigram));
                table.any[bit >> 6] |= 1 << (bit & 63);
                table.links.push((anchor as u16, table.first[slot]));
                table.first[slot] = (table.links.len() - 1) as u16;
            }
        }
        table
    }
}

/// The last three bytes, letters without their case.
pub(super) const fn fold_byte(trigram: u32, byte: u8) -> u32 {
    (trigram << 8 | (byte | 0x20) as u32) & 0x00FF_FFFF
}

fn slot_index(trigram: u32) -> usize {
    (trigram.wrapping_mul(0x9E37_79B1) >> (32 - SLOTS_LOG2)) as usize
}

fn filter_bit(trigram: u32) -> usize {
    (trigram.wrapping_mul(0x9E37_79B1) >> (32 - FILTER_LOG2)) as usize
}

impl SecretRules {
    /// The next position at or after `from` that may belong to an anchor, and its chain.
    pub fn next_anchor(&self, bytes: &[u8], from: usize) -> Option<(usize, u16)> {
        let [first, second, rest @ ..] = bytes.get(from..)? else { return None };
        let any = &*self.table.any;
        let mut trigram = fold_byte(fold_byte(0, *first), *second);
        for (at, byte) in rest.iter().enumerate() {
            trigram = fold_byte(trigram, *byte);
            let bit = filter_bit(trigram);
            if any[bit >> 6] >> (bit & 63) & 1 != 0 {
                return Some((from + at, self.table.first[slot_index(trigram)]));
            }
        }
        None
    }

    /// The anchor of a chain entry, and the next entry.
    pub fn chain_entry(&self, link: u16) -> (&Anchor, u16) {
        let (anchor, next) = self.table.links[usize::from(link)];
        (&self.anchors[usize::from(anchor)], next)
    }
}
