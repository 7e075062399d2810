//! The extractive summarizer: a summary from the sources' own sentences, without a model (K7).
//!
//! Sentences are ranked by LexRank over TF-IDF vectors and weighted by content (decisions,
//! commitments, figures, names) and position. Redundant sentences are skipped. The limits are never
//! exceeded, no text is invented, and the same sources give the same bytes on every machine: sums
//! run in a fixed order, ties go to the earlier sentence, and no floating-point function with
//! platform-dependent rounding is used.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use icecore_text::lexicon::WordList;
use icecore_text::markdown::{self, FenceLine};
use icecore_text::scripts::{is_han_or_kana, is_southeast_asian};
use unicode_segmentation::UnicodeSegmentation;

/// A source text: a message, a log line, or a group of lines of a child summary.
#[derive(Debug, Clone, Copy)]
pub struct SourceText<'a> {
    /// The text.
    pub text: &'a str,
    /// The weight; 1.0 is ordinary.
    pub weight: f32,
    /// The speaker, if known. Only `tool` matters: tool output weighs less.
    pub speaker: Option<&'a str>,
}

/// The size limits of the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtractLimits {
    /// The most bytes of the headline.
    pub headline_bytes: usize,
    /// The most bytes of all lines together, including [`LINE_MARK_BYTES`] for each.
    pub body_bytes: usize,
    /// The most lines.
    pub lines: usize,
}

/// The overhead of a line: a list mark, a blank and a line break.
pub const LINE_MARK_BYTES: usize = 3;
/// A longer sentence is treated as a dump.
pub const MAX_SENTENCE_CHARS: usize = 400;

/// The resulting summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtractiveSummary {
    /// The most significant sentences, in source order.
    pub headline: String,
    /// Whole sentences of the sources as plain text; the most important first.
    pub lines: Vec<ExtractedSentence>,
    /// The number of distinct sentences that were considered and not selected.
    pub left_out: usize,
}

/// A selected sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedSentence {
    /// The sentence, without list marks or line breaks.
    pub text: String,
    /// The index of the source in which it appears first.
    pub source: usize,
    /// The kind, by its wording.
    pub kind: SentenceKind,
}

/// The kind of a sentence, by its wording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SentenceKind {
    /// A decision.
    Decision,
    /// Something to do, promised, awaited or blocked.
    Commitment,
    /// A rule or prohibition.
    Constraint,
    /// A release, an incident, a milestone.
    Event,
    /// None of these.
    Other,
}

/// Summarizes the sources within the limits.
pub fn summarize(sources: &[SourceText<'_>], room: ExtractLimits) -> ExtractiveSummary {
    let SentenceSet { mut said, too_long } = collect_sentences(sources);
    let considered = said.len() + too_long;
    let only_courtesies = said.iter().all(|sentence| sentence.courtesy);
    if only_courtesies {
        said.truncate(1);
    } else {
        said.retain(|sentence| !sentence.courtesy);
    }
    keep_strongest(&mut said, room);
    let order = rank_sentences(&mut said);
    let lines = select_lines(&said, &order, room);
    ExtractiveSummary {
        headline: compose_headline(&said, &order, room.headline_bytes),
        left_out: considered - lines.len(),
        lines,
    }
}

/// The kind of a sentence by its wording; `Other` if nothing matches.
pub fn classify_sentence(sentence: &str) -> SentenceKind {
    let bare = strip_line_marks(sentence);
    let text = strip_emphasis(bare.text);
    let lower = normalize_lowercase(&text);
    let words = classify_words(&lower);
    sentence_kind(&text, &words, &find_cues(&words), bare.open)
}

/// Whether a line is labelled as a decision or as a fact to keep: `Decision:`, `Decided:`,
/// `[decision]`, `[P0]`, `[P1]`, `[P1 decision]`, in any case, after list marks, bold or not.
pub fn is_marked_to_keep(line: &str) -> bool {
    let text = strip_line_marks(line).text.trim_start_matches(['*', '_', ' ']);
    match parse_label(text) {
        Some((LabelForm::Brackets, words)) => {
            match words.iter().map(String::as_str).collect::<Vec<&str>>().as_slice() {
                ["p0" | "p1", ..] => true,
                ["p2" | "p3" | "p4", kind, ..] | [kind, ..] => is_decision_label(kind),
                [] => false,
            }
        }
        Some((LabelForm::Colon, words)) => {
            matches!(words.as_slice(), [word] if is_decision_label(word))
        }
        None => false,
    }
}

/// The sentences of a text as plain text. List items, headings and table rows stand alone; code
/// blocks are skipped.
pub fn plain_sentences(text: &str) -> Vec<String> {
    split_units(text).kept.into_iter().map(|unit| unit.text).collect()
}

// From a text to its units.

/// The form of a unit in its text, which decides how well it stands alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitShape {
    Prose,
    Item,
    Heading,
    Row,
    Code,
}

struct TextUnit {
    text: String,
    shape: UnitShape,
    /// It has an unchecked check box.
    open: bool,
}

#[derive(Default)]
struct TextUnits {
    kept: Vec<TextUnit>,
    /// The number of skipped dumps.
    too_long: usize,
}

/// A line without its list and heading marks.
struct StrippedLine<'a> {
    text: &'a str,
    shape: UnitShape,
    open: bool,
}

fn strip_line_marks(line: &str) -> StrippedLine<'_> {
    let mut found = StrippedLine { text: line.trim(), shape: UnitShape::Prose, open: false };
    loop {
        let text = found.text;
        let hashes = text.bytes().take_while(|&b| b == b'#').count();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let after_blank = |rest: Option<&'_ str>| {
            rest.filter(|rest| rest.starts_with(char::is_whitespace)).map(str::len)
        };
        let rest = if let Some(rest) = text.strip_prefix('>') {
            rest.len()
        } else if (1..=6).contains(&hashes)
            && let Some(rest) = after_blank(Some(&text[hashes..]))
        {
            found.shape = UnitShape::Heading;
            rest
        } else if let Some(rest) =
            after_blank(text.strip_prefix(['-', '*', '+', '•', '‣', '◦', '·', '–']))
        {
            found.shape = UnitShape::Item;
            rest
        } else if (1..=3).contains(&digits)
            && let Some(rest) = after_blank(text[digits..].strip_prefix(['.', ')']))
            && !is_month(text[text.len() - rest..].trim_start())
        {
            found.shape = UnitShape::Item;
            rest
        } else if let Some(rest) = after_blank(text.strip_prefix("[ ]")) {
            (found.shape, found.open) = (UnitShape::Item, true);
            rest
        } else if let Some(rest) =
            after_blank(["[x]", "[X]"].iter().find_map(|tick| text.strip_prefix(tick)))
        {
            found.shape = UnitShape::Item;
            rest
        } else {
            break;
        };
        found.text = text[text.len() - rest..].trim_start();
    }
    if found.shape == UnitShape::Heading {
        found.text = found.text.trim_end_matches('#').trim_end();
    } else if found.text.starts_with('|') && found.text.len() > 1 {
        found.text = found.text.trim_matches(['|', ' ', '\t']);
        found.shape = UnitShape::Row;
    }
    found
}

/// An item up to this length stays whole even if it has several sentences: the first is often just
/// a label.
const MAX_WHOLE_ITEM_CHARS: usize = 200;
/// The shortest line that the next line can continue; shorter lines were ended on purpose.
const MIN_WRAPPED_LINE_BYTES: usize = 50;

fn split_units(text: &str) -> TextUnits {
    let mut units = TextUnits::default();
    let mut block: Option<TextUnit> = None;
    let (mut long, mut code, mut symbols): (Option<String>, Option<&str>, Option<&str>) =
        (None, None, None);

    let mut flush = |block: Option<TextUnit>| {
        let Some(block) = block else { return };
        let whole = match block.shape {
            UnitShape::Prose => {
                is_marked_to_keep(&block.text) && !exceeds_chars(&block.text, MAX_SENTENCE_CHARS)
            }
            UnitShape::Item => !exceeds_chars(
                &block.text,
                if is_marked_to_keep(&block.text) {
                    MAX_SENTENCE_CHARS
                } else {
                    MAX_WHOLE_ITEM_CHARS
                },
            ),
            UnitShape::Heading | UnitShape::Row | UnitShape::Code => true,
        };
        let parts = if whole { vec![block.text.as_str()] } else { split_sentences(&block.text) };
        for part in parts.into_iter().filter(|part| has_word(part)) {
            if !exceeds_chars(part, MAX_SENTENCE_CHARS) {
                units.kept.push(TextUnit { text: part.to_owned(), ..block });
            } else if is_marked_to_keep(part) {
                units.kept.push(TextUnit { text: truncate_chars(part), ..block });
            } else {
                units.too_long += 1;
                long.get_or_insert_with(|| truncate_chars(part));
            }
        }
    };

    let lines: Vec<&str> = text.split(['\n', '\u{2028}', '\u{2029}']).collect();
    let mut comment_ends = text.matches("-->").count();
    let (mut fenced_until, mut commented) = (0, false);
    // The width from which no fence below closes a fence of backticks or tildes: computed once, not
    // per opening fence.
    let mut never_closed = [usize::MAX; 2];
    for (at, &line) in lines.iter().enumerate() {
        let trimmed = line.trim();
        let closing = line.matches("-->").count();
        comment_ends -= closing;
        if at < fenced_until {
            if code.is_none() && has_word(trimmed) {
                code = Some(trimmed);
            }
            continue;
        }
        if commented || (trimmed.starts_with("<!--") && comment_ends + closing > 0) {
            commented = closing == 0;
            flush(block.take());
            continue;
        }
        if let Some(fence) = markdown::fence_line(trimmed).filter(FenceLine::opens) {
            flush(block.take());
            let closes = |line: &&str| {
                markdown::fence_line(line)
                    .is_some_and(|below| below.closes(fence.mark, fence.width))
            };
            let never = &mut never_closed[usize::from(fence.mark == '~')];
            if fence.width < *never {
                match lines[at + 1..].iter().position(closes) {
                    Some(length) => fenced_until = at + length + 2,
                    // Unclosed: as a fence it would hide all text after it, so it is not treated as
                    // one.
                    None => *never = fence.width,
                }
            }
            continue;
        }
        let bare = strip_line_marks(line);
        if !has_word(bare.text) {
            if symbols.is_none()
                && trimmed.chars().any(|c| !c.is_ascii() && !c.is_whitespace() && !c.is_control())
            {
                symbols = Some(trimmed);
            }
            flush(block.take());
            continue;
        }
        let text = strip_emphasis(bare.text);
        match &mut block {
            Some(above)
                if bare.shape == UnitShape::Prose
                    && is_continuation(&above.text, &text, above.shape, line) =>
            {
                above.text.push(' ');
                above.text.push_str(&text);
            }
            _ => {
                let next = TextUnit { text, shape: bare.shape, open: bare.open };
                flush(block.replace(next));
            }
        }
    }
    flush(block);

    // Dumps are used only if there is nothing else.
    if units.kept.is_empty() {
        if let Some(text) = long {
            units.too_long -= 1;
            units.kept.push(TextUnit { text, shape: UnitShape::Prose, open: false });
        } else if let Some((line, shape)) = code
            .map(|line| (line, UnitShape::Code))
            .or(symbols.map(|line| (line, UnitShape::Prose)))
        {
            units.kept.push(TextUnit {
                text: truncate_chars(&strip_emphasis(line)),
                shape,
                open: false,
            });
        }
    }
    units
}

/// Whether a plain line continues the wrapped line above.
fn is_continuation(above: &str, text: &str, shape: UnitShape, line: &str) -> bool {
    if !matches!(shape, UnitShape::Prose | UnitShape::Item)
        || above.ends_with(['.', '!', '?', ':', ';', '…', '。'])
    {
        return false;
    }
    let indented = shape == UnitShape::Item && line.starts_with([' ', '\t']);
    let small = text.starts_with(char::is_lowercase);
    let hangs = || {
        above.ends_with(',')
            || above.rsplit(' ').next().is_some_and(|word| {
                WORD_CLASSES.get(word).is_some_and(|natures| natures & word_class::STOP != 0)
            })
    };
    indented || (above.len() >= MIN_WRAPPED_LINE_BYTES && (small || hangs()))
}

fn has_word(text: &str) -> bool {
    text.chars().any(char::is_alphanumeric)
}

fn exceeds_chars(text: &str, chars: usize) -> bool {
    text.len() > chars && text.chars().nth(chars).is_some()
}

/// One line without emphasis marks, with white space collapsed.
fn strip_emphasis(text: &str) -> String {
    let mut flat = String::with_capacity(text.len());
    for word in
        text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty())
    {
        if !flat.is_empty() {
            flat.push(' ');
        }
        flat.push_str(word);
    }
    for sign in ["**", "__"] {
        if flat.contains(sign) {
            flat = strip_paired_sign(&flat, sign);
        }
    }
    if flat
        .strip_prefix("**")
        .is_some_and(|rest| rest.starts_with(|c: char| c == '[' || c.is_alphanumeric()))
    {
        flat.drain(..2);
    }
    flat
}

/// Removes the sign where it opens before a word and closes after one, so that `src/**/*.rs` and
/// `__init__.py` stay.
fn strip_paired_sign(text: &str, sign: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(sign) {
        let (before, after) = (&rest[..at], &rest[at + sign.len()..]);
        let edge =
            |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && !"/*_\\`".contains(c));
        let opens = edge(before.chars().next_back().or(out.chars().next_back()))
            && after.chars().next().is_some_and(|c| !c.is_whitespace() && !"/*_\\`".contains(c));
        let closes = |close: &usize| {
            let mut next = after[close + sign.len()..].chars();
            let ends = match next.next() {
                Some('.') => edge(next.next()),
                next => edge(next),
            };
            ends && *close > 0 && !after[..*close].ends_with([' ', '/', '\\'])
        };
        let close = opens.then(|| after.find(sign)).flatten().filter(closes);
        out.push_str(before);
        match close {
            Some(close) => {
                out.push_str(&after[..close]);
                rest = &after[close + sign.len()..];
            }
            None => {
                out.push_str(sign);
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out.trim().to_owned()
}

/// Splits flat text after sentence end marks.
fn split_sentences(text: &str) -> Vec<&str> {
    let wide = |c: char| matches!(c, '。' | '！' | '？' | '｡');
    let ends = |c: char| wide(c) || matches!(c, '.' | '!' | '?' | '…' | '।' | '؟' | '۔');
    let closes = |c: char| {
        matches!(c, '"' | '\'' | '”' | '’' | '“' | ')' | ']' | '}' | '»' | '」' | '』' | '*' | '_')
    };
    let (mut found, mut start) = (Vec::new(), 0);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !ends(c) {
            continue;
        }
        let mut end = at + c.len_utf8();
        while let Some((next, c)) = chars.next_if(|&(_, c)| ends(c) || closes(c)) {
            end = next + c.len_utf8();
        }
        let after = &text[end..];
        if (wide(c) || after.starts_with(' '))
            && is_sentence_end(&text[start..at], &text[at..end], after.trim_start())
        {
            found.push(text[start..end].trim());
            start = end;
        }
    }
    found.push(text[start..].trim());
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// Whether the mark between `before` and `after` ends a sentence.
fn is_sentence_end(before: &str, mark: &str, after: &str) -> bool {
    let Some(next) = after.chars().next() else { return true };
    if mark.starts_with("..") || mark.starts_with('…') {
        return !next.is_lowercase();
    }
    // `"Stop!" she said`: the end of a quotation does not end the sentence.
    if next.is_lowercase()
        && mark.chars().next_back().is_some_and(|c| !matches!(c, '.' | '!' | '?'))
        && !mark.starts_with(['。', '！', '？'])
    {
        return false;
    }
    if mark != "." {
        return true;
    }
    let word = before
        .rsplit(' ')
        .next()
        .unwrap_or_default()
        .trim_start_matches(['(', '[', '"', '\'', '“', '„', '«', '*']);
    if word.bytes().all(|b| b.is_ascii_digit()) {
        // `1. Do this` is a list mark, `3. März` and `2. quarter` are ordinals.
        return word.len() < before.trim_start().len()
            && !(word.len() <= 2 && (next.is_lowercase() || is_month(after)));
    }
    let lower = word.to_lowercase();
    if ABBREVIATIONS.contains(&lower.as_str())
        || (next.is_ascii_digit()
            && ["no", "nr", "fig", "abs", "art", "vol", "p", "s"].contains(&&*lower))
    {
        return false;
    }
    let initials = lower.split('.').all(|part| part.chars().count() == 1);
    if initials && !lower.contains('.') {
        return word == "I" || word.chars().all(|c| c.is_lowercase() || !c.is_alphabetic());
    }
    if initials || ABBREVIATIONS_THAT_MAY_END.contains(&lower.as_str()) {
        return next.is_uppercase();
    }
    true
}

const ABBREVIATIONS: &[&str] = &[
    "approx", "bzgl", "bzw", "ca", "cf", "d.h", "dr", "e.g", "eg", "evtl", "ggf", "hr", "i.d.r",
    "i.e", "ie", "inkl", "mr", "mrs", "ms", "o.ä", "prof", "resp", "sog", "st", "str", "u.a",
    "vgl", "viz", "vs", "z.b", "z.t", "zb", "zzgl",
];
const ABBREVIATIONS_THAT_MAY_END: &[&str] =
    &["al", "co", "corp", "etc", "inc", "jr", "ltd", "max", "min", "sr", "usw", "bspw", "tel"];

fn is_month(text: &str) -> bool {
    const MONTHS: &[&str] = &[
        "jan", "feb", "mär", "mar", "apr", "mai", "may", "jun", "jul", "aug", "sep", "okt", "oct",
        "nov", "dez", "dec", "quartal",
    ];
    let word: String =
        text.chars().take_while(|c| c.is_alphabetic()).flat_map(char::to_lowercase).collect();
    text.starts_with(char::is_uppercase)
        && word.len() <= 10
        && MONTHS.iter().any(|month| word.starts_with(month))
}

/// The text cut at a word boundary to at most `bytes` bytes, with `...`; empty if not one word
/// fits.
fn truncate_at_word(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let room = bytes.saturating_sub(3);
    let mut end = text
        .grapheme_indices(true)
        .map(|(at, _)| at)
        .take_while(|&at| at <= room)
        .last()
        .unwrap_or(0);
    if !text[end..].starts_with(' ')
        && !text[end..].starts_with(is_unspaced)
        && let Some(blank) = text[..end].rfind(' ')
    {
        end = blank;
    }
    // A truncated redaction mark would be neither a secret nor a mark.
    if let Some((secret, _)) = text.match_indices("[secret:").take_while(|(at, _)| *at < end).last()
        && text[secret..].find(']').is_none_or(|length| secret + length >= end)
    {
        end = secret;
    }
    match text[..end].trim_end() {
        "" => String::new(),
        head => format!("{head}..."),
    }
}

fn truncate_chars(text: &str) -> String {
    let bytes =
        text.char_indices().nth(MAX_SENTENCE_CHARS - 3).map_or(usize::MAX, |(at, _)| at + 3);
    if exceeds_chars(text, MAX_SENTENCE_CHARS) {
        truncate_at_word(text, bytes)
    } else {
        text.to_owned()
    }
}

// Cues in the words of a sentence.

enum LabelForm {
    Brackets,
    Colon,
}

/// The words of `[label] text` or `Label: text`, in lower case.
fn parse_label(text: &str) -> Option<(LabelForm, Vec<String>)> {
    let (kind, label) = match text.strip_prefix('[') {
        Some(rest) => (LabelForm::Brackets, rest.split_once(']')?.0),
        None => (LabelForm::Colon, text.split_once(':')?.0.trim_end_matches(['*', '_', ' '])),
    };
    let words =
        label.split([' ', ':', ',', '/']).filter(|word| !word.is_empty()).map(str::to_lowercase);
    (label.len() <= 30).then(|| (kind, words.collect()))
}

fn is_decision_label(word: &str) -> bool {
    ["decision", "decided", "entscheidung", "entschieden", "beschluss", "beschlossen"]
        .contains(&word)
}

/// The kind given by the label before a sentence.
fn label_kind(text: &str) -> Option<SentenceKind> {
    let (kind, words) = parse_label(text)?;
    let is_priority = |word: &String| word.len() == 2 && word.starts_with('p');
    let words = match kind {
        LabelForm::Brackets => {
            words.get(usize::from(words.first().is_some_and(is_priority))..).unwrap_or_default()
        }
        LabelForm::Colon => words.as_slice(),
    };
    match words.join(" ").as_str() {
        label if is_decision_label(label) => Some(SentenceKind::Decision),
        "final decision" | "decisions" => Some(SentenceKind::Decision),
        "todo" | "to do" | "commitment" | "action" | "action item" | "action items" | "next"
        | "next step" | "next steps" | "open" | "open question" | "open questions"
        | "open point" | "open points" | "blocked" | "blocker" | "pending" | "waiting"
        | "follow up" | "follow-up" | "offen" | "offene frage" | "offene fragen"
        | "offene punkte" | "blockiert" | "nächster schritt" | "nächste schritte" | "aufgabe" => {
            Some(SentenceKind::Commitment)
        }
        "constraint" | "rule" | "regel" | "vorgabe" => Some(SentenceKind::Constraint),
        "event" | "incident" | "release" | "released" | "shipped" | "fixed" | "milestone"
        | "störung" => Some(SentenceKind::Event),
        _ => None,
    }
}

/// The kind that a phrase indicates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cue {
    Marks(SentenceKind),
    /// A courtesy or a transition.
    Filler,
}

#[derive(Default)]
struct SentenceCues {
    marks: BTreeSet<SentenceKind>,
    filler: bool,
}

const DECISION_PHRASES: &str = "decided|decision is|decision was|we agreed|agreed to|agreed on|agreed that|chose|was chosen|have chosen|\
    settled on|we're going with|i'm going with|we go with|we'll go with|let's go with|we went with|we will use|we'll use|\
    switched to|switching to|signed off|approved|rejected|opted for|ruled out|final decision|entschieden|beschlossen|vereinbart|\
    geeinigt|entscheidung ist|genehmigt|abgelehnt|festgelegt|wir nehmen";
const COMMITMENT_PHRASES: &str = "todo|next step|next steps|action item|action items|follow up|following up|blocked|blocker|blocking|\
    waiting for|waiting on|waits for|waits on|still open|open question|pending|promised|is due|are due|due by|due on|due in|\
    due date|overdue|deadline|remind me|reminder|still need|still needs|owes|by monday|by tuesday|by wednesday|by thursday|\
    by friday|by saturday|by sunday|by tomorrow|by tonight|by eod|by end of|by the end of|by next|until monday|until friday|\
    on my list|takes over|offen|wartet auf|warten auf|warte auf|blockiert|bis montag|bis dienstag|bis mittwoch|bis donnerstag|\
    bis freitag|bis samstag|bis sonntag|bis morgen|bis ende|nächster schritt|nächste schritte|kümmert sich|kümmere mich|mache ich|\
    muss noch|müssen noch|fällig|frist|zugesagt|versprochen|ich schicke|schicke ich|übernimmt|übernehme";
const CONSTRAINT_PHRASES: &str = "must|must not|mustn't|not allowed|no more than|at most|required to|mandatory|forbidden|prohibited|\
    should never|should always|under no circumstances|do not ever|muss|müssen|darf nicht|dürfen nicht|darf kein|niemals|höchstens|\
    mindestens|verboten|verpflichtend|auf keinen fall";
const EVENT_PHRASES: &str = "released|shipped|deployed|launched|merged|fixed|resolved|incident|outage|downtime|crashed|went down|is down|\
    was down|went live|is live|now live|broke the|broke down|is broken|failed|rolled back|rollback|milestone|completed|migrated|root cause|postmortem|\
    data loss|breach|hired|joined|resigned|signed|cancelled|canceled|won|graduated|promoted|got engaged|got married|was born|\
    passed away|diagnosed|passed the|rolled out|upgraded|is back up|are back up|back online|reverted|veröffentlicht|ausgeliefert|\
    behoben|störung|ausfall|ausgefallen|abgestürzt|abgeschlossen|gelöst|gemergt|deployt|ausgerollt|zurückgerollt|meilenstein|\
    unterschrieben|ursache war|gekündigt|live gegangen|fertiggestellt|confirmed|is booked|bestätigt|gebucht";
const FILLER_PHRASES: &str = "let me know|feel free|hope this helps|hope that helps|hope you|happy to help|happy to assist|here is|\
    here are|here's|as an ai|don't hesitate|look forward|looking forward|good luck|take care|keep up|keep going|stay tuned|\
    great question|that's a great|that's a good|that sounds|sounds like|i'm glad|i'm so|so happy|can't wait|thanks for|\
    thank you for|it's great|glad to|proud of|you've got this|would you like|of course|i understand|feel like|good point|\
    makes sense|no problem|no worries|long time no see|talk soon|talk later|see you|how can i help|let's dive|i apologize|i'm sorry|\
    take a look|check it out|sag bescheid|melde dich|hier ist|hier sind|freut mich|freue mich|viel erfolg|viel glück|\
    schönes wochenende|alles klar|danke für|vielen dank";

type PhraseTable = HashMap<&'static str, Vec<(Vec<&'static str>, Cue)>>;

/// The phrases by their first word.
static PHRASES: LazyLock<PhraseTable> = LazyLock::new(|| {
    let mut phrases = PhraseTable::new();
    for (list, cue) in [
        (DECISION_PHRASES, Cue::Marks(SentenceKind::Decision)),
        (COMMITMENT_PHRASES, Cue::Marks(SentenceKind::Commitment)),
        (CONSTRAINT_PHRASES, Cue::Marks(SentenceKind::Constraint)),
        (EVENT_PHRASES, Cue::Marks(SentenceKind::Event)),
        (FILLER_PHRASES, Cue::Filler),
    ] {
        for phrase in list.split('|') {
            let mut words = phrase.split_whitespace();
            if let Some(first) = words.next() {
                phrases.entry(first).or_default().push((words.collect(), cue));
            }
        }
    }
    phrases
});

/// Classes of words, independent of context; a word may have several.
mod word_class {
    pub const STOP: u8 = 1;
    pub const COURTESY: u8 = 2;
    pub const OPENER: u8 = 4;
    pub const BEGINS_PHRASE: u8 = 8;
    pub const TASK_VERB: u8 = 16;
    pub const FIRST_PERSON: u8 = 32;
    pub const SECOND_PERSON: u8 = 64;
    pub const HEDGE: u8 = 128;
}

/// Greetings, thanks and agreement.
const COURTESY_WORDS: &str = "absolutely afternoon ah aha alright amazing anytime awesome bye certainly cheers congrats congratulations \
    cool course day dear definitely enjoy evening everyone exactly excellent fantastic fine folks friend glad good goodbye gotcha \
    great guys ha haha happy hear hello hey hi hiya hmm hope indeed k kk later lol lovely luck morgen morning nice night no nope \
    noted oh ok okay perfect please right see sharing soon sorry sounds sure thank thanks there thx to ty understood weekend \
    welcome well wonderful worries wow yeah yep yes yo yup abend alle alles bescheid bitte ciao danke dank einen entschuldigung \
    feierabend genau gern gerne grüß grüße gut gute guten hallo jo jup klar klasse leute liebe moin nacht nein passt perfekt prima \
    schön schöne schönen schönes servus super tag toll tschüss verstanden viele vielen wochenende";
/// Words that start a courtesy or an answer.
const OPENER_WORDS: &str = "hi hey hello dear thanks thank bye morning good welcome ok okay wow congrats sure yes great nice hallo moin \
    danke guten liebe servus tschüss ja klar";
/// Verbs for tasks: `will send`, `need to fix`.
const TASK_VERBS: &str = "add ask book bring call check clean contact deliver deploy discuss draft file finish fix follow handle \
    investigate meet merge move open order own pay phone prepare present publish push raise release renew reply report review roll \
    schedule send set share ship sign start submit talk test update upload watch write";
const FIRST_PERSON_WORDS: &str = "i my i'm i've we our we've ich mein meine wir unser unsere";
const SECOND_PERSON_WORDS: &str = "you your you're you'll you've du dein deine dir dich";
const HEDGE_WORDS: &str = "maybe perhaps might vielleicht";

static WORD_CLASSES: LazyLock<HashMap<&str, u8>> = LazyLock::new(|| {
    let mut natures = HashMap::new();
    for (list, nature) in [
        (COURTESY_WORDS, word_class::COURTESY),
        (OPENER_WORDS, word_class::OPENER),
        (TASK_VERBS, word_class::TASK_VERB),
        (FIRST_PERSON_WORDS, word_class::FIRST_PERSON),
        (SECOND_PERSON_WORDS, word_class::SECOND_PERSON),
        (HEDGE_WORDS, word_class::HEDGE),
    ] {
        for word in list.split_whitespace() {
            *natures.entry(word).or_default() |= nature;
        }
    }
    for word in WordList::SummaryStop.iter() {
        *natures.entry(word).or_default() |= word_class::STOP;
    }
    for word in PHRASES.keys() {
        *natures.entry(*word).or_default() |= word_class::BEGINS_PHRASE;
    }
    natures
});

/// A word of a sentence in lower case.
#[derive(Clone, Copy)]
struct ClassifiedWord<'a> {
    at: usize,
    text: &'a str,
    natures: u8,
}

impl ClassifiedWord<'_> {
    fn has_class(&self, nature: u8) -> bool {
        self.natures & nature != 0
    }
}

fn classify_words(lower: &str) -> Vec<ClassifiedWord<'_>> {
    let word = |(at, text)| ClassifiedWord {
        at,
        text,
        natures: WORD_CLASSES.get(text).copied().unwrap_or_default(),
    };
    lower.unicode_word_indices().map(word).collect()
}

fn find_cues(words: &[ClassifiedWord<'_>]) -> SentenceCues {
    let mut cues = SentenceCues::default();
    for (at, word) in words.iter().enumerate() {
        let following = &words[at + 1..];
        let before = |back: usize| {
            at.checked_sub(back).and_then(|at| words.get(at)).map_or("", |word| word.text)
        };
        let phrases = if word.has_class(word_class::BEGINS_PHRASE) && before(1) != "never" {
            PHRASES.get(word.text)
        } else {
            None
        };
        for (rest, cue) in phrases.into_iter().flatten() {
            if following.len() >= rest.len()
                && following.iter().zip(rest).all(|(word, text)| word.text == *text)
            {
                match cue {
                    Cue::Marks(mark) => _ = cues.marks.insert(*mark),
                    Cue::Filler => cues.filler = true,
                }
            }
        }
        let undertakes = match word.text {
            "will" => before(1) != "you",
            "i'll" | "we'll" | "he'll" | "she'll" | "they'll" => true,
            "to" => {
                ["going", "need", "needs", "have", "has"].contains(&before(1)) && before(2) != "you"
            }
            _ => false,
        };
        if undertakes && following.first().is_some_and(|word| word.has_class(word_class::TASK_VERB))
        {
            cues.marks.insert(SentenceKind::Commitment);
        }
        if word.text == "due"
            && following
                .first()
                .is_some_and(|day| day.text.starts_with(|c: char| c.is_ascii_digit()))
        {
            cues.marks.insert(SentenceKind::Commitment);
        }
        // `I have always loved it` is not a rule; `Never deploy on Fridays` is.
        let imperative =
            at == 0 || ["must", "should", "shall", "please", "p0", "p1"].contains(&before(1));
        if imperative && ["never", "always", "nie", "immer"].contains(&word.text) {
            cues.marks.insert(SentenceKind::Constraint);
        }
    }
    cues
}

fn sentence_kind(
    text: &str,
    words: &[ClassifiedWord<'_>],
    cues: &SentenceCues,
    open: bool,
) -> SentenceKind {
    if let Some(mark) = label_kind(text) {
        return mark;
    }
    if open {
        return SentenceKind::Commitment;
    }
    // A question or a maybe decides and promises nothing.
    let unsure = words.first().is_none_or(|word| word.has_class(word_class::HEDGE));
    if unsure || is_question(text) {
        return SentenceKind::Other;
    }
    cues.marks.first().copied().unwrap_or(SentenceKind::Other)
}

fn is_question(text: &str) -> bool {
    text.trim_end_matches(|c: char| !c.is_alphanumeric() && !"?？؟".contains(c))
        .ends_with(['?', '？', '؟'])
}

fn normalize_lowercase(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars()
        .flat_map(char::to_lowercase)
        .map(|c| if c == '\u{2019}' { '\'' } else { c })
        .collect()
}

/// Whether a text is only greetings, thanks or agreement, with at most one name.
fn is_courtesy(text: &str, words: &[ClassifiedWord<'_>], filler: bool) -> bool {
    if words.is_empty() || words.len() > 10 || text.contains(|c: char| c.is_numeric()) {
        return false;
    }
    let empty_phrase =
        filler && words.len() <= 6 && !["here", "here's", "hier"].contains(&words[0].text);
    let mut others =
        words.iter().filter(|word| !word.has_class(word_class::COURTESY | word_class::STOP));
    match (others.next(), others.next()) {
        _ if empty_phrase => true,
        (None, _) => true,
        (Some(name), None) => {
            words[0].has_class(word_class::OPENER)
                && text.split(|c: char| !c.is_alphanumeric()).any(|word| {
                    word.starts_with(char::is_uppercase) && normalize_lowercase(word) == name.text
                })
        }
        _ => false,
    }
}

// From units to distinct, weighted sentences.

/// A distinct sentence of the sources.
struct CandidateSentence {
    text: String,
    source: usize,
    kind: SentenceKind,
    marked: bool,
    courtesy: bool,
    /// The factor for content and position.
    boost: f64,
    /// The terms in order with their TF-IDF weights; normalized by [`collect_sentences`].
    terms: Vec<(u32, f64)>,
    /// The terms that are figures.
    figures: Vec<u32>,
    /// The total significance of the terms, by their rarity.
    telling: f64,
    score: f64,
}

struct SentenceSet {
    said: Vec<CandidateSentence>,
    too_long: usize,
}

/// A piecewise linear binary logarithm: identical bits on every platform.
fn portable_log2(x: f64) -> f64 {
    let (mut whole, mut rest) = (0.0, x.max(1.0));
    while rest >= 2.0 {
        rest /= 2.0;
        whole += 1.0;
    }
    whole + (rest - 1.0)
}

#[derive(Default)]
struct Vocabulary {
    numbers: HashMap<String, u32>,
    /// The number of distinct sentences that contain each term.
    spread: Vec<u32>,
}

impl Vocabulary {
    fn intern(&mut self, term: &str) -> u32 {
        if let Some(&number) = self.numbers.get(term) {
            return number;
        }
        let number = u32::try_from(self.spread.len()).unwrap_or(u32::MAX);
        self.numbers.insert(term.to_owned(), number);
        self.spread.push(0);
        number
    }
}

/// Scripts without spaces: their terms are pairs of adjacent characters. Korean words have spaces.
fn is_unspaced(c: char) -> bool {
    is_han_or_kana(c) || is_southeast_asian(c)
}

/// A stem is the first letters of a word: `deploys`, `deployed` and `deployment` become equal.
const STEM_CHARS: usize = 7;

fn stem(word: &str) -> &str {
    let word = word.strip_suffix("'s").unwrap_or(word);
    if word.chars().any(char::is_numeric) {
        return word;
    }
    let word = if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
        &word[..word.len() - 1]
    } else {
        word
    };
    word.char_indices().nth(STEM_CHARS).map_or(word, |(end, _)| &word[..end])
}

fn collect_sentences(sources: &[SourceText<'_>]) -> SentenceSet {
    let mut said: Vec<CandidateSentence> = Vec::new();
    let mut vocabulary = Vocabulary::default();
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut too_long = 0;
    for (source, spoken) in sources.iter().enumerate() {
        let units = split_units(spoken.text);
        too_long += units.too_long;
        let recency =
            if sources.len() > 1 { source as f64 / (sources.len() - 1) as f64 } else { 0.0 };
        let mut place = 0;
        for unit in units.kept {
            let lower = normalize_lowercase(&unit.text);
            let words = classify_words(&lower);
            let cues = find_cues(&words);
            let kind = sentence_kind(&unit.text, &words, &cues, unit.open);
            let marked = is_marked_to_keep(&unit.text);
            let courtesy =
                kind == SentenceKind::Other && is_courtesy(&unit.text, &words, cues.filler);
            let mut terms = sentence_terms(&words, &mut vocabulary);
            let boost = source_weight(spoken)
                * sentence_boost(
                    &unit,
                    &SentenceContext {
                        kind,
                        marked,
                        filler: cues.filler,
                        words: &words,
                        terms: terms.len(),
                        place,
                        recency,
                    },
                );
            place += usize::from(!courtesy);

            let key = if words.is_empty() { lower.clone() } else { sameness_key(&words) };
            if let Some(&at) = known.get(&key) {
                // A repeated sentence keeps the highest weight and the first position.
                let first: &mut CandidateSentence = &mut said[at];
                first.boost = first.boost.max(boost);
                if marked && !first.marked {
                    (first.text, first.source, first.marked) = (unit.text, source, true);
                }
                if first.kind == SentenceKind::Other {
                    first.kind = kind;
                }
                continue;
            }
            known.insert(key, said.len());
            terms.sort_unstable();
            let mut figures: Vec<u32> =
                terms.iter().filter(|(_, figure)| *figure).map(|&(term, _)| term).collect();
            figures.dedup();
            let mut counted: Vec<(u32, f64)> = Vec::with_capacity(terms.len());
            for (term, _) in terms {
                match counted.last_mut() {
                    Some((last, count)) if *last == term => *count += 1.0,
                    _ => counted.push((term, 1.0)),
                }
            }
            for &(term, _) in &counted {
                vocabulary.spread[term as usize] += 1;
            }
            said.push(CandidateSentence {
                text: unit.text,
                source,
                kind,
                marked,
                courtesy,
                boost,
                terms: counted,
                figures,
                telling: 0.0,
                score: 0.0,
            });
        }
    }
    let total = said.len() as f64;
    for sentence in &mut said {
        let mut square = 0.0;
        for (term, weight) in &mut sentence.terms {
            *weight = (1.0 + portable_log2(*weight))
                * portable_log2(1.0 + total / f64::from(vocabulary.spread[*term as usize]));
            sentence.telling += *weight;
            square += *weight * *weight;
        }
        let length = square.sqrt();
        sentence.terms.iter_mut().for_each(|(_, weight)| *weight /= length);
        sentence.telling /= sentence.terms.len() as f64 + 5.0;
        sentence.score = sentence.boost * sentence.telling;
    }
    SentenceSet { said, too_long }
}

/// The same key for sentences that differ only in case, blanks and punctuation.
fn sameness_key(words: &[ClassifiedWord<'_>]) -> String {
    let mut key = String::new();
    for word in words {
        key.push_str(word.text);
        key.push(' ');
    }
    key
}

/// The terms of a sentence in order, each with whether it is a figure.
fn sentence_terms(words: &[ClassifiedWord<'_>], vocabulary: &mut Vocabulary) -> Vec<(u32, bool)> {
    let mut found = Vec::with_capacity(words.len());
    let unspaced = |at: usize| words.get(at).filter(|word| word.text.starts_with(is_unspaced));
    let joined = |left: usize| match (unspaced(left), unspaced(left + 1)) {
        (Some(left), Some(right)) if left.at + left.text.len() == right.at => {
            Some([left.text, right.text].concat())
        }
        _ => None,
    };
    for (at, word) in words.iter().enumerate() {
        if let Some(pair) = joined(at) {
            found.push((vocabulary.intern(&pair), false));
        } else if at > 0 && joined(at - 1).is_some() {
            // It is the second half of the previous pair.
        } else if !word.has_class(word_class::STOP) {
            let stem = stem(word.text);
            found.push((vocabulary.intern(stem), stem.starts_with(char::is_numeric)));
        }
    }
    found
}

fn source_weight(source: &SourceText<'_>) -> f64 {
    let weight =
        if source.weight.is_finite() { f64::from(source.weight).clamp(0.0, 1000.0) } else { 1.0 };
    // Tool output is long and repetitive, and the caller usually reports its result.
    if source.speaker.is_some_and(|speaker| speaker.eq_ignore_ascii_case("tool")) {
        weight * 0.25
    } else {
        weight
    }
}

/// The context of a sentence, before any comparison with others.
struct SentenceContext<'a> {
    kind: SentenceKind,
    marked: bool,
    filler: bool,
    words: &'a [ClassifiedWord<'a>],
    terms: usize,
    /// The number of sentences before it in its source, courtesies excluded.
    place: usize,
    /// From 0, the oldest source, to 1.
    recency: f64,
}

fn sentence_boost(unit: &TextUnit, standing: &SentenceContext<'_>) -> f64 {
    let text = unit.text.as_str();
    let kind = match standing.kind {
        SentenceKind::Decision => 2.0,
        SentenceKind::Commitment => 1.7,
        SentenceKind::Event => 1.7,
        SentenceKind::Constraint => 1.6,
        SentenceKind::Other => 1.0,
    };
    let shape = match unit.shape {
        UnitShape::Prose => 1.0,
        UnitShape::Item => 0.9,
        UnitShape::Row => 0.5,
        UnitShape::Heading => 0.4,
        UnitShape::Code => 0.2,
    };
    let place = match standing.place {
        0 => 1.25,
        1 => 1.1,
        2..=12 => 1.0,
        _ => 0.85,
    };
    let length = match standing.terms {
        0 => 0.1,
        1 => 0.3,
        2 => 0.55,
        3 => 0.75,
        4 => 0.9,
        5..=18 => 1.0,
        19..=26 => 0.85,
        _ => 0.7,
    };
    let mut boost = kind * shape * place * length * (1.0 + 0.15 * standing.recency);
    if standing.marked {
        boost *= 1.5;
    }
    if text.contains(|c: char| c.is_numeric()) {
        boost *= 1.2;
    }
    if contains_name(text) {
        boost *= 1.15;
    }
    let told = standing.kind == SentenceKind::Other;
    if is_question(text) && told {
        boost *= 0.4;
    } else if text.ends_with(':') {
        boost *= 0.35;
    } else if text.ends_with('!') {
        boost *= 0.8;
    }
    if standing.filler && told {
        boost *= 0.4;
    }
    // `[shares a photo]`, `(laughs)`: an action, not a statement.
    if !standing.marked && is_bracketed(text) {
        boost *= 0.35;
    }
    let has = |text: &str| standing.words.iter().any(|word| word.text == text);
    let first = standing.words.first().map_or("", |word| word.text);
    let natures = standing.words.iter().fold(0, |natures, word| natures | word.natures);
    // `This` and `it` refer to a sentence that may not be selected, `yes` to a question.
    let points_back =
        ["this", "that", "that's", "it", "it's", "these", "they", "das", "dies", "es"]
            .contains(&first);
    if points_back || standing.words.first().is_some_and(|word| word.has_class(word_class::OPENER))
    {
        boost *= 0.8;
    }
    if ["example", "instead", "or", "beispiel"].contains(&first)
        || (first == "for" && (has("example") || has("instance")))
    {
        boost *= 0.5;
    }
    if natures & word_class::HEDGE != 0 {
        boost *= 0.75;
    }
    // Statements about oneself are facts; statements to the other are advice or praise.
    if natures & word_class::FIRST_PERSON != 0 {
        boost *= 1.1;
    } else if natures & word_class::SECOND_PERSON != 0 && told {
        boost *= 0.7;
    }
    boost
}

fn is_bracketed(text: &str) -> bool {
    let within =
        |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    within('[', ']').or(within('(', ')')).is_some_and(|inner| !inner.contains(['[', '(']))
}

/// Whether a word within the sentence is capitalized like a name.
fn contains_name(text: &str) -> bool {
    let mut words = text.split(' ').skip(1);
    words.any(|word| {
        let mut chars = word.trim_start_matches(['"', '(', '[', '“', '„']).chars();
        chars.next().is_some_and(char::is_uppercase) && chars.next().is_some_and(char::is_lowercase)
    })
}

// From weighted sentences to the selected ones.

/// At most this many sentences are compared pairwise; the weakest of a long day are dropped first.
const MAX_COMPARED_SENTENCES: usize = 300;
/// The hard limit, even if more lines would fit.
const HARD_MAX_COMPARED_SENTENCES: usize = 1000;

/// Keeps the sentences with the highest individual weights, in source order.
fn keep_strongest(said: &mut Vec<CandidateSentence>, room: ExtractLimits) {
    let crowd = room
        .lines
        .min(room.body_bytes / 20)
        .clamp(MAX_COMPARED_SENTENCES, HARD_MAX_COMPARED_SENTENCES);
    if said.len() <= crowd {
        return;
    }
    let mut best: Vec<usize> = (0..said.len()).collect();
    best.sort_by(|&a, &b| {
        said[b]
            .marked
            .cmp(&said[a].marked)
            .then(said[b].score.total_cmp(&said[a].score))
            .then(a.cmp(&b))
    });
    let keep: HashSet<usize> = best.into_iter().take(crowd).collect();
    let mut at = 0;
    said.retain(|_| {
        at += 1;
        keep.contains(&(at - 1))
    });
}

fn cosine(a: &CandidateSentence, b: &CandidateSentence) -> f64 {
    let (mut left, mut right, mut sum) = (a.terms.as_slice(), b.terms.as_slice(), 0.0);
    while let (
        Some((&(term, weight), further_left)),
        Some((&(other, other_weight), further_right)),
    ) = (left.split_first(), right.split_first())
    {
        match term.cmp(&other) {
            std::cmp::Ordering::Less => left = further_left,
            std::cmp::Ordering::Greater => right = further_right,
            std::cmp::Ordering::Equal => {
                sum += weight * other_weight;
                (left, right) = (further_left, further_right);
            }
        }
    }
    sum
}

/// The pairwise similarity of sentences.
struct SimilarityMatrix {
    rows: Vec<f64>,
    width: usize,
}

impl SimilarityMatrix {
    fn from_sentences(said: &[CandidateSentence]) -> Self {
        let width = said.len();
        let mut rows = vec![0.0; width * width];
        for a in 0..width {
            for b in a + 1..width {
                let alike = cosine(&said[a], &said[b]);
                (rows[a * width + b], rows[b * width + a]) = (alike, alike);
            }
        }
        Self { rows, width }
    }

    fn row(&self, at: usize) -> &[f64] {
        &self.rows[at * self.width..(at + 1) * self.width]
    }
}

/// The lowest similarity that forms an edge.
const MIN_EDGE_SIMILARITY: f64 = 0.1;
const DAMPING: f64 = 0.85;
const MAX_ITERATIONS: usize = 30;

/// LexRank centrality: 1.0 for the most central sentence.
fn centrality(likeness: &SimilarityMatrix) -> Vec<f64> {
    let count = likeness.width;
    // Sparse adjacency lists: most pairs share nothing.
    let neighbours: Vec<Vec<(usize, f64)>> = (0..count)
        .map(|at| {
            let near: Vec<(usize, f64)> = likeness
                .row(at)
                .iter()
                .copied()
                .enumerate()
                .filter(|(_, alike)| *alike >= MIN_EDGE_SIMILARITY)
                .collect();
            let total: f64 = near.iter().map(|(_, alike)| alike).sum();
            near.into_iter().map(|(other, alike)| (other, alike / total)).collect()
        })
        .collect();
    let even = 1.0 / count.max(1) as f64;
    let mut rank = vec![even; count];
    for _ in 0..MAX_ITERATIONS {
        let mut next = vec![0.0; count];
        let mut loose = 0.0;
        for (at, near) in neighbours.iter().enumerate() {
            if near.is_empty() {
                loose += rank[at];
            }
            for &(other, share) in near {
                next[other] += rank[at] * share;
            }
        }
        let mut moved: f64 = 0.0;
        for (old, new) in rank.iter_mut().zip(next) {
            let new = (1.0 - DAMPING) * even + DAMPING * (new + loose * even);
            moved = moved.max((new - *old).abs());
            *old = new;
        }
        if moved < 1e-7 {
            break;
        }
    }
    let most = rank.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    rank.iter().map(|value| value / most).collect()
}

/// The penalty factor for similarity to sentences already selected.
const REDUNDANCY_PENALTY: f64 = 0.6;
/// The similarity from which a sentence without figures of its own is redundant.
const REPEAT_SIMILARITY: f64 = 0.7;
/// The similarity from which a sentence is redundant despite other figures, unless it is labelled.
const REPEAT_SIMILARITY_WITH_OTHER_FIGURES: f64 = 0.9;
/// A sentence with fewer terms is not considered contained in a longer one.
const MIN_CONTAINED_TERMS: usize = 3;

fn is_redundant(sentence: &CandidateSentence, taken: &CandidateSentence, alike: f64) -> bool {
    let same_figures =
        sentence.figures.iter().all(|figure| taken.figures.binary_search(figure).is_ok());
    if sentence.marked && taken.marked {
        return alike >= REPEAT_SIMILARITY_WITH_OTHER_FIGURES && same_figures;
    }
    let within = || {
        sentence.terms.len() >= MIN_CONTAINED_TERMS
            && sentence
                .terms
                .iter()
                .all(|(term, _)| taken.terms.binary_search_by_key(term, |(term, _)| *term).is_ok())
    };
    (same_figures && (alike >= REPEAT_SIMILARITY || (alike > 0.0 && within())))
        || (alike >= REPEAT_SIMILARITY_WITH_OTHER_FIGURES && !sentence.marked)
}

/// The selection order: labelled sentences first, then by score less redundancy. Redundant
/// sentences are excluded.
fn rank_sentences(said: &mut [CandidateSentence]) -> Vec<usize> {
    let likeness = SimilarityMatrix::from_sentences(said);
    let central = centrality(&likeness);
    let most_telling =
        said.iter().map(|sentence| sentence.telling).fold(f64::MIN_POSITIVE, f64::max);
    for (sentence, central) in said.iter_mut().zip(central) {
        sentence.score =
            sentence.boost * (0.6 + 0.4 * central) * (0.4 + 0.6 * sentence.telling / most_telling);
    }
    let mut order: Vec<usize> = Vec::new();
    let mut nearest = vec![0.0_f64; said.len()];
    let mut left: Vec<usize> = (0..said.len()).collect();
    loop {
        let worth = |at: usize| {
            (said[at].marked, said[at].score * (1.0 - REDUNDANCY_PENALTY * nearest[at]))
        };
        let best = left.iter().copied().reduce(|best, at| {
            let ((marked, value), (best_marked, best_value)) = (worth(at), worth(best));
            if marked.cmp(&best_marked).then(value.total_cmp(&best_value)).is_gt() {
                at
            } else {
                best
            }
        });
        let Some(best) = best else { return order };
        order.push(best);
        left.retain(|&at| {
            at != best && !is_redundant(&said[at], &said[best], likeness.row(best)[at])
        });
        for &at in &left {
            nearest[at] = nearest[at].max(likeness.row(best)[at].min(1.0));
        }
    }
}

fn select_lines(
    said: &[CandidateSentence],
    order: &[usize],
    room: ExtractLimits,
) -> Vec<ExtractedSentence> {
    let mut lines: Vec<ExtractedSentence> = Vec::new();
    let mut left = room.body_bytes;
    let shortened = |at: usize| {
        truncate_at_word(&said[at].text, room.body_bytes.saturating_sub(LINE_MARK_BYTES))
    };
    for &at in order {
        let CandidateSentence { text, source, kind, marked, .. } = &said[at];
        if lines.len() >= room.lines {
            break;
        }
        if text.len() + LINE_MARK_BYTES <= left {
            left -= text.len() + LINE_MARK_BYTES;
            lines.push(ExtractedSentence { text: text.clone(), source: *source, kind: *kind });
        } else if *marked && lines.is_empty() {
            // Longer than the whole body: shortened instead of skipped, if enough of it remains.
            let text = shortened(at);
            if text.len() >= room.body_bytes / 2 && !text.is_empty() {
                lines.push(ExtractedSentence { text, source: *source, kind: *kind });
                break;
            }
        }
    }
    if lines.is_empty()
        && room.lines > 0
        && let Some(&at) = order.first()
    {
        let line =
            ExtractedSentence { text: shortened(at), source: said[at].source, kind: said[at].kind };
        lines.extend(Some(line).filter(|line| !line.text.is_empty()));
    }
    lines
}

/// A headline has at most this many lines,
const MAX_HEADLINE_LINES: usize = 3;
/// with at most this many sentences of each item,
const MAX_HEADLINE_SENTENCES_EACH: usize = 2;
/// and at most this many in all.
const MAX_HEADLINE_SENTENCES: usize = 5;
/// Only this many of the best lines are candidates,
const MAX_HEADLINE_CANDIDATES: usize = 8;
/// and only with at least this share of the best score.
const MIN_HEADLINE_SCORE_SHARE: f64 = 0.45;

fn compose_headline(said: &[CandidateSentence], order: &[usize], bytes: usize) -> String {
    let Some(&best) = order.first() else { return String::new() };
    let (mut taken, mut used, mut sentences): (Vec<(usize, String)>, usize, usize) =
        (Vec::new(), 0, 0);
    for &at in order.iter().take(MAX_HEADLINE_CANDIDATES) {
        let parts: Vec<&str> = split_sentences(&said[at].text)
            .into_iter()
            .take(MAX_HEADLINE_SENTENCES_EACH.min(MAX_HEADLINE_SENTENCES - sentences))
            .collect();
        let text = parts.join(" ");
        let (blank, stop) = (usize::from(!taken.is_empty()), usize::from(lacks_full_stop(&text)));
        let telling =
            said[at].marked || said[at].score >= MIN_HEADLINE_SCORE_SHARE * said[best].score;
        // A single sentence needs no full stop; one that is followed by another does.
        if taken.len() < MAX_HEADLINE_LINES
            && !parts.is_empty()
            && telling
            && used + blank + text.len() + stop * blank <= bytes
        {
            used += blank + text.len() + stop;
            sentences += parts.len();
            taken.push((at, text));
        }
    }
    if taken.is_empty() {
        return truncate_at_word(
            split_sentences(&said[best].text).first().copied().unwrap_or_default(),
            bytes,
        );
    }
    taken.sort_unstable();
    if let [(_, text)] = taken.as_slice() {
        return text.clone();
    }
    let ended = |(_, text): (usize, String)| if lacks_full_stop(&text) { text + "." } else { text };
    taken.into_iter().map(ended).collect::<Vec<String>>().join(" ")
}

fn lacks_full_stop(text: &str) -> bool {
    text.ends_with(char::is_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ROOM: ExtractLimits = ExtractLimits { headline_bytes: 300, body_bytes: 1000, lines: 12 };

    fn source(text: &str) -> SourceText<'_> {
        SourceText { text, weight: 1.0, speaker: None }
    }

    fn summarize_texts(texts: &[&str], room: ExtractLimits) -> ExtractiveSummary {
        summarize(&texts.iter().copied().map(source).collect::<Vec<_>>(), room)
    }

    fn lines(texts: &[&str], room: ExtractLimits) -> Vec<String> {
        summarize_texts(texts, room).lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn sentences_end_where_a_reader_ends_them() {
        for (text, expected) in [
            ("One. Two! Three? Four", &["One.", "Two!", "Three?", "Four"][..]),
            ("all small. still two", &["all small.", "still two"]),
            (
                "See https://example.org/a.b?c=1.2 and src/main.rs now. Done.",
                &["See https://example.org/a.b?c=1.2 and src/main.rs now.", "Done."],
            ),
            ("Version 1.2.3 costs 4.50 EUR. Fine", &["Version 1.2.3 costs 4.50 EUR.", "Fine"]),
            (
                "Mr. Ito met Dr. J. Weber, e.g. on Monday. They agreed.",
                &["Mr. Ito met Dr. J. Weber, e.g. on Monday.", "They agreed."],
            ),
            ("Am 3. März kommt z.B. Ana. Gut so.", &["Am 3. März kommt z.B. Ana.", "Gut so."]),
            ("We sold 42. Then we left.", &["We sold 42.", "Then we left."]),
            (
                "Apples, pears etc. are in. Tea, etc. Then milk.",
                &["Apples, pears etc. are in.", "Tea, etc.", "Then milk."],
            ),
            (
                "\"Stop!\" she said. (He did.) Then \"Go.\" It went.",
                &["\"Stop!\" she said.", "(He did.)", "Then \"Go.\"", "It went."],
            ),
            ("Well... not yet. Wait... Now.", &["Well... not yet.", "Wait...", "Now."]),
            ("今日は雨です。明日は晴れ！本当？", &["今日は雨です。", "明日は晴れ！", "本当？"]),
            (
                "# Plan ##\n- one. two\n* [ ] three\n3) four\n> five",
                &["Plan", "one. two", "three", "four", "five"],
            ),
            ("3. März: Treffen", &["3. März: Treffen"]),
            (
                "**Bold:** text and __more__ of src/**/*.rs, __init__.py",
                &["Bold: text and more of src/**/*.rs, __init__.py"],
            ),
            ("**Never closed\n**/*.rs stays", &["Never closed", "**/*.rs stays"]),
            ("| a | 1 |\n|---|---|\n| b | 2 |", &["a | 1", "b | 2"]),
            ("before\n```rust\nlet x = 1;\n```\nafter", &["before", "after"]),
            ("```\nlet x = 1;\nlet y = 2;\n```", &["let x = 1;"]),
            ("```\nnever closed, yet said", &["never closed, yet said"]),
            ("<!-- hidden\nstill -->\nseen\n<!-- open", &["seen", "<!-- open"]),
            (
                "the line was wrapped by somebody's editor at a width of\nsome seventy. Next",
                &["the line was wrapped by somebody's editor at a width of some seventy.", "Next"],
            ),
            ("short\nlines stay", &["short", "lines stay"]),
            ("- an item\n  that goes on\n- another", &["an item that goes on", "another"]),
            (
                "key [secret:github:1a2b3c4d]. Rotate it.",
                &["key [secret:github:1a2b3c4d].", "Rotate it."],
            ),
            ("  much \t white\u{a0}\u{7}space \r\n", &["much white space"]),
            ("🎉🎉", &["🎉🎉"]),
            ("...\n---", &[]),
            ("", &[]),
        ] {
            assert_eq!(plain_sentences(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_dump_is_passed_over_unless_nothing_else_is_said() {
        let dump = "word ".repeat(200);
        assert_eq!(plain_sentences(&format!("Said.\n{dump}")), ["Said."]);
        assert_eq!(summarize_texts(&[&format!("Said something.\n{dump}")], ROOM).left_out, 1);
        let alone = plain_sentences(&dump);
        assert_eq!(alone.len(), 1);
        assert!(
            alone[0].ends_with("word...") && alone[0].chars().count() <= MAX_SENTENCE_CHARS,
            "{alone:?}"
        );
        let marked = plain_sentences(&format!("Said.\nDecision: {dump}"));
        assert!(
            marked[1].starts_with("Decision: word") && marked[1].ends_with("word..."),
            "{marked:?}"
        );
    }

    #[test]
    fn sentences_are_marked_by_their_own_words() {
        use SentenceKind::*;
        for (sentence, expected) in [
            ("We decided to keep the old logo.", Decision),
            ("**Decision:** one price for all", Decision),
            ("[P2 decision] one price for all", Decision),
            ("Wir haben beschlossen, früher zu starten.", Decision),
            ("Anna will send the contract.", Commitment),
            ("I'll fix the login by Friday", Commitment),
            ("- [ ] water the plants", Commitment),
            ("The export is blocked by Legal.", Commitment),
            ("Open question: who pays?", Commitment),
            ("Das Angebot muss bis Freitag raus.", Commitment),
            ("Never deploy on a Friday", Constraint),
            ("Backups must stay in the EU.", Constraint),
            ("Das darf nicht ins Log.", Constraint),
            ("Version 2.1 was released at noon.", Event),
            ("The payment service went down for ten minutes.", Event),
            ("Der Server ist ausgefallen.", Event),
            ("It never failed to amaze me.", Other),
            ("I have always loved the sea.", Other),
            ("Did we decide anything, was it released?", Other),
            ("Maybe we decided too early.", Other),
            ("You will see.", Other),
            ("The office is in Hamburg.", Other),
            ("", Other),
        ] {
            assert_eq!(classify_sentence(sentence), expected, "{sentence:?}");
        }
    }

    #[test]
    fn only_what_says_so_is_marked() {
        for line in [
            "Decision: x",
            "- **Decided:** x",
            "**Decision**: x",
            "* [decision] x",
            "1. [P0] x",
            "- [ ] **[p1]** x",
            "> [P1 decision] x",
            "DECISION: x",
            "Entscheidung: x",
        ] {
            assert!(is_marked_to_keep(line), "{line:?}");
        }
        for line in [
            "We decided x",
            "[P2] x",
            "[no decision yet] x",
            "P1 x",
            "[P1",
            "A decision: x",
            "[x] y",
            "",
            "indecision: x",
        ] {
            assert!(!is_marked_to_keep(line), "{line:?}");
        }
    }

    const DAY: &[&str] = &[
        "Good morning! How are you today?",
        "Morning! All well, thanks. Did you see the game last night?",
        "I did, what a finish. Anyway, I looked at the import queue first thing and it seems rather slow.",
        "Right. Could it be the new index? I can have a look after my coffee, the machine is finally repaired.",
        "The order service went down at 10:14 and was back at 10:37, because the disk of db-2 was full.",
        "Oh no. Poor customers. Was it the log files again? They grow like weeds in spring.",
        "Yes, the log files. 118 orders came in late, none was lost.",
        "After some back and forth with Priya we decided to move the logs to their own volume and to keep them for 14 days.",
        "Sounds good! I like it. What does it cost?",
        "About 40 euros a month. Marek will set up the volume by Thursday and tell Priya.",
        "Great, thanks for the update! By the way, lunch is pizza today.",
        "Ok, see you there!",
    ];

    // K7
    #[test]
    fn a_day_without_a_model_is_summarized_by_its_important_sentences() {
        let day = summarize_texts(DAY, ROOM);
        let first: Vec<(SentenceKind, usize)> =
            day.lines.iter().take(5).map(|line| (line.kind, line.source)).collect();
        for expected in
            [(SentenceKind::Decision, 7), (SentenceKind::Commitment, 9), (SentenceKind::Event, 4)]
        {
            assert!(first.contains(&expected), "{expected:?} is not in {:#?}", day.lines);
        }
        assert!(
            day.headline.contains("went down at 10:14")
                && day.headline.contains("we decided to move"),
            "{}",
            day.headline
        );
        let all = day.lines.iter().map(|line| line.text.as_str()).collect::<Vec<&str>>().join("\n");
        for courtesy in ["Good morning", "thanks", "see you", "Sounds good"] {
            assert!(
                !all.contains(courtesy) && !day.headline.contains(courtesy),
                "{courtesy}: {all}"
            );
        }
    }

    // K7
    #[test]
    fn the_same_day_gives_the_same_words_everywhere() {
        let room = ExtractLimits { headline_bytes: 130, body_bytes: 320, lines: 3 };
        let day = summarize_texts(DAY, room);
        assert_eq!(
            day.headline,
            "After some back and forth with Priya we decided to move the logs to their own volume and to keep them for 14 days."
        );
        assert_eq!(
            day.lines.iter().map(|line| line.text.as_str()).collect::<Vec<&str>>(),
            [
                "After some back and forth with Priya we decided to move the logs to their own volume and to keep them for 14 days.",
                "The order service went down at 10:14 and was back at 10:37, because the disk of db-2 was full.",
                "Marek will set up the volume by Thursday and tell Priya.",
            ]
        );
    }

    #[test]
    fn the_headline_tells_in_the_order_it_was_said() {
        let texts = [
            "The server crashed at 9:00 because of a full disk.",
            "We decided to buy a larger disk for 200 euros.",
        ];
        assert_eq!(summarize_texts(&texts, ROOM).headline, texts.join(" "));
        let narrow = summarize_texts(&texts[..1], ExtractLimits { headline_bytes: 30, ..ROOM });
        assert_eq!(narrow.headline, "The server crashed at 9:00...");
        assert_eq!(
            summarize_texts(&["- Use tea for Mira", "- Use rum for Ole"], ROOM).headline,
            "Use tea for Mira. Use rum for Ole."
        );
        let long_item = format!("- [P1] {}", "One more. ".repeat(12));
        assert_eq!(summarize_texts(&[&long_item], ROOM).headline, "[P1] One more. One more.");
    }

    #[test]
    fn marked_lines_come_first_and_are_not_displaced() {
        let mut texts =
            vec!["The release of version 3 shipped on 12 May with 40 fixes, says Anna."; 1];
        let told: Vec<String> = (0..40)
            .map(|day| {
                format!("Topic {day} was fixed and released by team number {day} on 1{day} May.")
            })
            .collect();
        texts.extend(told.iter().map(String::as_str));
        texts.extend(["- [P0] tea is free", "- Decision: no meetings"]);
        let taken = lines(&texts, ExtractLimits { body_bytes: 120, ..ROOM });
        assert_eq!(
            taken[..2].iter().collect::<HashSet<_>>(),
            HashSet::from([&"[P0] tea is free".into(), &"Decision: no meetings".into()])
        );
        let tight = lines(&texts, ExtractLimits { body_bytes: 24, ..ROOM });
        assert_eq!(tight.len(), 1);
        assert!(is_marked_to_keep(&tight[0]));
        let long = format!("[P1] {}", "very ".repeat(30));
        assert!(
            lines(&["ok then", &long], ExtractLimits { body_bytes: 40, ..ROOM })[0]
                .starts_with("[P1] very")
        );
        // Another figure is another fact.
        assert_eq!(lines(&["[P1] Budget is 500 EUR", "[P1] Budget is 600 EUR"], ROOM).len(), 2);
    }

    #[test]
    fn what_says_nothing_new_is_taken_once() {
        for (texts, expected) in [
            (&["The backup ran for two hours.", "the backup ran for two hours"][..], 1),
            (
                &[
                    "The nightly backup of the archive ran for two hours.",
                    "Nightly backup of the archive ran two hours.",
                ],
                1,
            ),
            (
                &[
                    "The nightly backup of the archive finally ran without any trouble.",
                    "The backup of the archive ran.",
                ],
                1,
            ),
            (&["[P1] Use Postgres for the event store", "Use Postgres for the event store"], 1),
            (&["P1 tea is free", "[P1] tea is free"], 1),
            (&["The backup ran for 2 hours.", "The backup ran for 9 hours."], 2),
            (&["The backup ran.", "The deploy failed."], 2),
            (&["Deploy on Friday.", "Do not deploy on Friday."], 2),
        ] {
            assert_eq!(lines(texts, ROOM).len(), expected, "{texts:?}");
        }
    }

    #[test]
    fn courtesies_alone_make_one_short_line() {
        for texts in [
            &["Hi Anna!", "Hello!", "How are you?", "Fine, thanks!"][..],
            &["ok", "danke", "Guten Morgen, Mira!"],
            &["Sure."],
        ] {
            let found = summarize_texts(texts, ROOM);
            assert_eq!(
                (found.headline.as_str(), found.lines.len()),
                (plain_sentences(texts[0])[0].as_str(), 1),
                "{texts:?}"
            );
            assert!(found.left_out > 0 || texts.len() == 1);
        }
        assert_eq!(summarize_texts(&["ok", "danke", "Rabat"], ROOM).headline, "Rabat");
    }

    #[test]
    fn odd_sources_are_summarized_too() {
        for (text, headline) in [
            ("Postgres", "Postgres"),
            ("🎉🎉", "🎉🎉"),
            ("```\nfn main() {}\n```", "fn main() {}"),
            (
                "サーバーが停止しました。原因はディスク不足です。",
                "サーバーが停止しました。 原因はディスク不足です。",
            ),
            ("the of and", "the of and"),
        ] {
            let found = summarize_texts(&[text], ROOM);
            assert_eq!(found.headline, headline);
            assert!(!found.lines.is_empty());
        }
        assert_eq!(summarize_texts(&[], ROOM), ExtractiveSummary::default());
        assert_eq!(summarize_texts(&["", "\n\n", "---"], ROOM), ExtractiveSummary::default());
        for weight in [f32::NAN, f32::INFINITY, -1.0, 0.0] {
            assert_eq!(
                summarize(&[SourceText { weight, ..source("One fact stands.") }], ROOM).headline,
                "One fact stands."
            );
        }
    }

    #[test]
    fn tool_output_scores_lower_and_weighted_sources_higher() {
        let report = "The nightly import of customer records read 4,211 rows.";
        let word = "The customer asked for a call about the nightly import.";
        let first = |sources: [SourceText<'_>; 2]| summarize(&sources, ROOM).lines[0].source;
        assert_eq!(
            first([SourceText { speaker: Some("tool"), ..source(report) }, source(word)]),
            1
        );
        assert_eq!(
            first([SourceText { speaker: Some("Anna"), ..source(report) }, source(word)]),
            0
        );
        assert_eq!(first([source(report), SourceText { weight: 3.0, ..source(word) }]), 1);
    }

    #[test]
    fn a_mark_of_a_secret_is_never_cut() {
        let text = format!("{}[secret:github:1a2b3c4d]", "x".repeat(20));
        for bytes in 0..text.len() {
            let shown = truncate_at_word(&text, bytes);
            assert!(
                shown.len() <= bytes
                    && (!shown.contains("[s") || shown.contains("[secret:github:1a2b3c4d]")),
                "{shown}"
            );
        }
        assert_eq!(truncate_at_word(&text, 30), format!("{}...", "x".repeat(20)));
    }

    #[test]
    fn ten_thousand_sentences_are_narrowed_and_counted() {
        let told: Vec<String> = (0..10_000)
            .map(|n| format!("Parcel {n} left hall {} for town {}.", n % 7, n % 311))
            .collect();
        let mut texts: Vec<&str> = told.iter().map(String::as_str).collect();
        texts.insert(5_000, "[P1] The depot closes in June.");
        let found = summarize_texts(&texts, ROOM);
        assert_eq!(found.lines[0].text, "[P1] The depot closes in June.");
        assert_eq!(found.lines.len() + found.left_out, 10_001);
    }

    /// The text without blanks and removed marks.
    fn without_blanks(text: &str) -> String {
        text.chars()
            .filter(|c| !c.is_whitespace() && !c.is_control() && !"*_>".contains(*c))
            .collect()
    }

    /// Fragments that make interesting texts for splitting.
    fn texts() -> impl Strategy<Value = Vec<String>> {
        let piece = prop_oneof![
            "[ -~]{0,30}",
            "\\PC{0,12}",
            "[a-zA-Zäß]{1,8}( [a-z0-9]{1,6}){0,9}[.!?:]?",
            Just("\n".to_owned()),
            Just("\n- [ ] ".to_owned()),
            Just("\n```\n".to_owned()),
            Just("**".to_owned()),
            Just("Decision: ".to_owned()),
            Just("\n[P1] ".to_owned()),
            Just(" [secret:github:1a2b3c4d] ".to_owned()),
            Just("今天。".to_owned()),
            Just("👩‍👩‍👧 ".to_owned()),
            Just("we decided. thanks! ".to_owned()),
        ];
        prop::collection::vec(
            prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat()),
            0..8,
        )
    }

    proptest! {
        // K7
        #[test]
        fn whatever_was_said_fits_and_was_said(texts in texts(), headline_bytes in 0_usize..400, body_bytes in 0_usize..1200, most in 0_usize..20) {
            let room = ExtractLimits { headline_bytes, body_bytes, lines: most };
            let sources: Vec<SourceText<'_>> = texts.iter().map(|text| source(text)).collect();
            let found = summarize(&sources, room);
            prop_assert_eq!(&found, &summarize(&sources, room));
            prop_assert!(found.headline.len() <= headline_bytes);
            prop_assert!(found.lines.len() <= most);
            prop_assert!(found.lines.iter().map(|line| line.text.len() + LINE_MARK_BYTES).sum::<usize>() <= body_bytes);
            let mut told = HashSet::new();
            let mut unmarked = false;
            for line in &found.lines {
                let said = line.text.strip_suffix("...").unwrap_or(&line.text);
                prop_assert!(without_blanks(&texts[line.source]).contains(&without_blanks(said)), "{:?} is not in {:?}", line, texts);
                prop_assert!(!line.text.contains(['\n', '\r', '\t']) && line.text.trim() == line.text && !line.text.is_empty());
                let lower = line.text.to_lowercase();
                let words: Vec<String> = lower.unicode_words().map(str::to_owned).collect();
                prop_assert!(words.is_empty() || told.insert(words), "{:?} is told twice", line.text);
                prop_assert!(!(unmarked && is_marked_to_keep(&line.text)), "{:?} comes late", line.text);
                unmarked |= !is_marked_to_keep(&line.text);
            }
            if headline_bytes >= 300 && texts.iter().any(|text| has_word(text)) {
                prop_assert!(!found.headline.is_empty());
            }
            if body_bytes >= 450 && most > 0 && texts.iter().any(|text| has_word(text)) {
                prop_assert!(!found.lines.is_empty());
            }
        }

        #[test]
        fn any_text_is_split_and_marked_without_trouble(text in "\\PC{0,300}|(\\PC|\n){0,200}", bytes in 0_usize..80) {
            for sentence in plain_sentences(&text) {
                prop_assert!(sentence.chars().count() <= MAX_SENTENCE_CHARS);
                prop_assert!(without_blanks(&text).contains(&without_blanks(sentence.strip_suffix("...").unwrap_or(&sentence))), "{}", sentence);
                prop_assert!(truncate_at_word(&sentence, bytes).len() <= bytes);
                _ = classify_sentence(&sentence);
            }
            _ = (classify_sentence(&text), is_marked_to_keep(&text));
        }
    }
}
