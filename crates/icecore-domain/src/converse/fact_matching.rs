//! Fact matching: which known fact an update, a removal or a new statement refers to (C5).
//!
//! Destroying the wrong fact is the worst possible outcome; a duplicate is only a blemish. A text
//! therefore refers to a fact only if it names the fact's key, its frame or all of its content
//! words, and only if no other fact could be meant as well.

use std::collections::BTreeSet;

use super::statement::{
    self, ParsedStatement, StatementKey, StatementToken, WordClass, has_same_slot,
};
use crate::sanitize;

/// What an entry of a diff does with the fact it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffOp {
    /// The fact gets new wording.
    Update,
    /// The fact is removed.
    Remove,
    /// The statement is added, unless it contradicts a known fact.
    Add,
}

/// The fact that a text refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FactMatch {
    /// The index of the fact.
    One(usize),
    /// No known fact.
    None,
    /// Any of these indexes.
    Ambiguous(Vec<usize>),
}

/// How confidently a text refers to a fact, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchConfidence {
    /// Most words agree, or the sentence has the same structure.
    Fairly,
    /// The keys agree.
    Key,
    /// The keys agree except for stop words, or all content words agree.
    Clearly,
    /// The keys agree literally.
    Exactly,
    /// The texts are identical.
    Verbatim,
}

/// Finds the fact that the text refers to.
pub fn match_fact<T: AsRef<str>>(facts: &[T], text: &str, way: DiffOp) -> FactMatch {
    match_fact_with_confidence(facts, text, way).0
}

/// Like [`match_fact`], with the confidence of the match.
pub fn match_fact_with_confidence<T: AsRef<str>>(
    facts: &[T],
    text: &str,
    way: DiffOp,
) -> (FactMatch, Option<MatchConfidence>) {
    let wanted = ParsedStatement::parse(text);
    if !wanted.tokens.iter().any(|token| token.class != WordClass::StopWord) {
        return (FactMatch::None, None);
    }
    let mut best: Vec<usize> = Vec::new();
    let mut surest = None;
    let known: Vec<ParsedStatement> =
        facts.iter().map(|fact| ParsedStatement::parse(fact.as_ref())).collect();
    for (at, fact) in facts.iter().enumerate() {
        let Some(sure) = match_confidence(fact.as_ref(), &known, at, text, &wanted, way) else {
            continue;
        };
        if Some(sure) > surest {
            surest = Some(sure);
            best.clear();
        }
        if Some(sure) == surest {
            best.push(at);
        }
    }
    match best.as_slice() {
        [] => (FactMatch::None, None),
        [one] => (FactMatch::One(*one), surest),
        // Of two identical facts, either will do.
        [first, ..] if surest == Some(MatchConfidence::Verbatim) => {
            (FactMatch::One(*first), surest)
        }
        _ => (FactMatch::Ambiguous(best), surest),
    }
}

/// Whether two statements have the same key, so that only one of them can hold.
pub fn have_same_key(one: &str, other: &str) -> bool {
    let (one, other) = (ParsedStatement::parse(one), ParsedStatement::parse(other));
    let explicit = |reading: &ParsedStatement| {
        reading.key.as_ref().is_some_and(|key| key.head == statement::KeyHead::Key)
    };
    explicit(&one) && explicit(&other) && has_same_slot(&one, &other)
}

fn match_confidence(
    fact: &str,
    known: &[ParsedStatement],
    at: usize,
    text: &str,
    wanted: &ParsedStatement,
    way: DiffOp,
) -> Option<MatchConfidence> {
    if sanitize::sameness_key(fact) == sanitize::sameness_key(text) {
        return Some(MatchConfidence::Verbatim);
    }
    let reading = known.get(at)?;
    if have_same_content(reading, wanted) {
        return Some(MatchConfidence::Clearly);
    }
    match way {
        DiffOp::Update | DiffOp::Add => update_confidence(reading, wanted, way),
        DiffOp::Remove => removal_confidence(known, at, wanted, text),
    }
}

/// Whether both have the same content words, in the same order where order matters.
pub(crate) fn have_same_content(one: &ParsedStatement, other: &ParsedStatement) -> bool {
    let (mine, theirs) = (one.content_words(), other.content_words());
    if mine.is_empty()
        || mine != theirs
        || one.numbers() != other.numbers()
        || one.is_negated() != other.is_negated()
    {
        return false;
    }
    // A single word names a thing; it is not a statement.
    mine.len() + usize::from(one.has(SUBJECTS) && other.has(SUBJECTS)) >= 2
        && has_same_order(one, other)
}

/// Words for the person a statement is about, if it names nobody else.
const SUBJECTS: &[&str] = &[
    "user",
    "i",
    "we",
    "nutzer",
    "benutzer",
    "utilisateur",
    "usuario",
    "ich",
    "wir",
    "je",
    "nous",
];

/// Words that make the order of the words around them significant.
#[rustfmt::skip]
const DIRECTIONAL_WORDS: &[&str] = &[
    "from", "to", "over", "than", "before", "after", "instead", "into", "against", "rather", "via", "by", "for", "with", "report",
    "reports", "owes", "replaces", "replaced", "depends", "calls", "sends", "pays", "nach", "vor", "statt", "über", "avant", "après",
    "antes", "después", "que", "quam", "als", "but", "not", "aber", "sondern", "mais", "pero", "sino",
];

fn has_same_order(one: &ParsedStatement, other: &ParsedStatement) -> bool {
    if !(one.has(DIRECTIONAL_WORDS)
        || other.has(DIRECTIONAL_WORDS)
        || (one.is_negated() && one.content_words().len() > 3))
    {
        return true;
    }
    let words = |reading: &ParsedStatement| -> Vec<String> {
        reading
            .tokens
            .iter()
            .filter(|token| token.class != WordClass::StopWord)
            .map(|token| token.stem.clone())
            .collect()
    };
    words(one) == words(other)
}

fn update_confidence(
    fact: &ParsedStatement,
    wanted: &ParsedStatement,
    way: DiffOp,
) -> Option<MatchConfidence> {
    if let (Some(one), Some(other)) = (&fact.key, &wanted.key)
        && has_same_slot(fact, wanted)
    {
        let explicit = one.head == statement::KeyHead::Key && other.head == statement::KeyHead::Key;
        return Some(if explicit && one.whole == other.whole {
            MatchConfidence::Exactly
        } else if explicit && is_exact_key(one, other) {
            MatchConfidence::Clearly
        } else if explicit {
            MatchConfidence::Key
        } else {
            MatchConfidence::Fairly
        });
    }
    // Two explicit keys that differ are two things, whatever else they share.
    let keyed = |reading: &ParsedStatement| {
        reading.key.as_ref().is_some_and(|key| key.head == statement::KeyHead::Key)
    };
    if keyed(fact) || keyed(wanted) {
        return None;
    }
    match way {
        DiffOp::Update => value_change_confidence(fact, wanted, false)
            .or_else(|| explicit_replacement_confidence(fact, wanted)),
        DiffOp::Add => value_change_confidence(fact, wanted, true),
        DiffOp::Remove => None,
    }
}

fn is_exact_key(one: &StatementKey, other: &StatementKey) -> bool {
    one.whole == other.whole || one.words == other.words
}

/// Verbs that describe a state; two amounts of the same state cannot both hold.
#[rustfmt::skip]
const STATE_VERBS: &[&str] = &[
    "is", "are", "has", "have", "costs", "needs", "requires", "uses", "weighs", "takes", "lasts", "earns", "supports", "must", "never",
    "always", "cannot", "exceed", "allows", "contains", "ist", "hat", "kostet", "braucht", "verwendet", "nutzt", "wiegt", "dauert",
    "muss", "darf", "est", "a", "coûte", "utilise", "tiene", "cuesta", "usa", "pesa", "dura",
];
/// A bare number after one of these words is part of a name; another number names another thing.
#[rustfmt::skip]
const NAMED_BY_NUMBER: &[&str] = &[
    "invoice", "ticket", "issue", "room", "order", "pr", "line", "page", "chapter", "step", "phase", "gate", "table", "form", "section",
    "case", "build", "bus", "flight", "train", "route", "channel", "extension", "model", "sensor", "server", "node", "floor", "apartment",
    "level", "grade", "week", "day", "sprint", "milestone", "task", "user", "client", "account", "house", "player", "team", "section",
    "rechnung", "zimmer", "seite", "kapitel", "stufe", "phase", "etage", "facture", "chambre", "factura", "habitacion", "pagina", "part",
    "track", "lane", "pump", "engine", "version", "round", "stage", "block", "unit", "lot", "batch", "shard", "bug", "rfc", "question",
];

/// Whether the statements agree except for one amount.
fn value_change_confidence(
    fact: &ParsedStatement,
    wanted: &ParsedStatement,
    state: bool,
) -> Option<MatchConfidence> {
    let words = |reading: &ParsedStatement| -> Vec<StatementToken> {
        reading.tokens.iter().filter(|token| token.class != WordClass::StopWord).cloned().collect()
    };
    let (one, other) = (words(fact), words(wanted));
    if one.len() != other.len()
        || one.len() < 2
        || (state && !(fact.has(STATE_VERBS) && wanted.has(STATE_VERBS)))
    {
        return None;
    }
    let apart: Vec<usize> = (0..one.len())
        .filter(|&at| one.get(at).map(|t| &t.stem) != other.get(at).map(|t| &t.stem))
        .collect();
    let [at] = apart.as_slice() else { return None };
    let (was, is) = (one.get(*at)?, other.get(*at)?);
    if was.class != WordClass::Number || is.class != WordClass::Number {
        return None;
    }
    // "Room 12" is a name; "Python 3.12", "port 8080" and "2 cats" are values.
    let versions = was.word.contains('.') && is.word.contains('.');
    let units = one.get(at + 1).is_some_and(|next| UNITS.contains(&next.word.as_str()));
    let before_all = |reading: &ParsedStatement| {
        let place = reading.tokens.iter().position(|token| {
            token.class == WordClass::Number && (token.word == was.word || token.word == is.word)
        })?;
        reading.tokens.get(place.checked_sub(1)?).cloned()
    };
    let before = before_all(fact)?;
    let named = NAMED_BY_NUMBER.contains(&before.word.as_str());
    let counted = before.class == WordClass::StopWord
        || COUNTERS.contains(&before.lower.as_str())
        || COUNTERS.contains(&before.word.as_str());
    let last = at + 1 == one.len();
    let ends = last && before.name && !named;
    ((!named && (versions || units)) || counted || ends).then_some(MatchConfidence::Clearly)
}

#[rustfmt::skip]
const UNITS: &[&str] = &[
    "eur", "euro", "usd", "dollar", "gbp", "chf", "percent", "day", "hour", "minute", "second", "week", "month", "year", "km", "m", "cm",
    "kg", "g", "lb", "mb", "gb", "tb", "kb", "ms", "s", "mg", "ml", "l", "word", "page", "line", "token", "tag", "tage", "stunde",
    "stunden", "jahr", "jahre", "minuten", "jour", "heure", "an", "dia", "hora", "ano", "people", "person",
];
#[rustfmt::skip]
const COUNTERS: &[&str] = &[
    "have", "has", "had", "is", "are", "costs", "cost", "needs", "requires", "uses", "use", "port", "most", "least", "than", "exceed",
    "to", "within", "under", "over", "below", "above", "about", "takes", "lasts", "weighs", "every", "only", "earns", "supports", "allows",
    "hat", "kostet", "wiegt", "braucht", "dauert", "coûte", "tiene", "cuesta", "pesa", "hochstens", "eur", "usd", "gbp", "by", "after",
    "up", "with", "contains", "budget", "limit",
];

/// An update that names the old value itself: `prefers spaces over tabs` for `prefers tabs`.
fn explicit_replacement_confidence(
    fact: &ParsedStatement,
    wanted: &ParsedStatement,
) -> Option<MatchConfidence> {
    if fact.is_negated()
        || wanted.has(&[
            "if",
            "when",
            "for",
            "wenn",
            "si",
            "cuando",
            "sometimes",
            "morning",
            "evening",
        ])
    {
        return None;
    }
    let stems = |tokens: &[StatementToken]| -> BTreeSet<String> {
        tokens
            .iter()
            .filter(|token| token.class != WordClass::StopWord)
            .map(|token| token.stem.clone())
            .collect()
    };
    let lower: Vec<&str> = wanted.tokens.iter().map(|token| token.lower.as_str()).collect();
    let (turn, long) = lower.iter().enumerate().find_map(|(at, word)| match *word {
        "over" | "statt" | "anstatt" => Some((at, 1)),
        "instead" | "rather" => Some((at, 2)),
        "lieu" | "lugar" | "vez" | "plutot" | "plutôt" => Some((at, 2)),
        _ => None,
    })?;
    let old = wanted.tokens.get(turn + long..).or_else(|| wanted.tokens.get(turn + 1..))?;
    let (old, told, all) = (stems(old), stems(&fact.tokens), stems(&wanted.tokens));
    // The old value ends the fact, and the words before it also precede the new value.
    let value = !old.is_empty() && old.is_subset(&told);
    let frame: BTreeSet<&String> = told.difference(&old).collect();
    let first = stems(wanted.tokens.get(..turn)?);
    let names =
        fact.tokens.iter().filter(|token| token.name).all(|token| all.contains(&token.stem));
    (value
        && !frame.is_empty()
        && frame.iter().all(|stem| first.contains(*stem))
        && names
        && told.len() >= 2)
        .then_some(MatchConfidence::Fairly)
}

fn removal_confidence(
    known: &[ParsedStatement],
    at: usize,
    wanted: &ParsedStatement,
    text: &str,
) -> Option<MatchConfidence> {
    let fact = known.get(at)?;
    // "no longer X" removes X.
    let stale = strip_no_longer(text);
    if let Some(stale) = &stale {
        let bare = ParsedStatement::parse(stale);
        if !bare.is_negated() && have_same_content(fact, &bare) {
            return Some(MatchConfidence::Fairly);
        }
        return None;
    }
    let explicit = |reading: &ParsedStatement| {
        reading.key.clone().filter(|key| key.head == statement::KeyHead::Key)
    };
    let key = explicit(fact);
    if let (Some(one), Some(other)) = (&key, explicit(wanted)) {
        return (one.matches(&other)
            && (wanted.value.is_empty()
                || (!fact.several && names_value(&wanted.value, &fact.value))))
        .then(|| {
            if one.whole == other.whole {
                MatchConfidence::Exactly
            } else if is_exact_key(one, &other) {
                MatchConfidence::Clearly
            } else {
                MatchConfidence::Key
            }
        });
    }
    if let Some(one) = &key
        && wanted.key.is_none()
    {
        // Only the key. A single word that other facts share may mean any of them.
        let told: Vec<StatementToken> = ParsedStatement::parse(&format!("{text}:")).tokens;
        let other = explicit(&ParsedStatement::parse(&format!(
            "{}:",
            text.trim().trim_end_matches(['.', ':'])
        )))?;
        if one.matches(&other) {
            let word = told
                .iter()
                .find(|token| token.class != WordClass::StopWord)
                .map(|token| token.stem.clone())?;
            let elsewhere = known.iter().enumerate().any(|(other, reading)| {
                other != at && reading.content_words().contains(word.as_str())
            });
            let enough = one.words.len() >= 2 || (!elsewhere && word.chars().count() >= 4);
            return enough.then_some(if one.whole == other.whole {
                MatchConfidence::Exactly
            } else if is_exact_key(one, &other) {
                MatchConfidence::Clearly
            } else {
                MatchConfidence::Key
            });
        }
        return None;
    }
    if key.is_some() || explicit(wanted).is_some() {
        return None;
    }
    // Most words agree, and no missing word distinguishes this fact from another.
    let (mine, theirs) = (fact.content_words(), wanted.content_words());
    let missing: Vec<&str> = mine.difference(&theirs).copied().collect();
    let plain =
        fact.tokens.iter().filter(|token| missing.contains(&token.stem.as_str())).all(|token| {
            token.class == WordClass::Content
                && !token.name
                && !LIMITING_WORDS.contains(&token.lower.as_str())
        });
    let count = |stems: &BTreeSet<&str>| {
        stems.iter().filter(|stem| !["for", "with", "by", "to"].contains(stem)).count()
    };
    let most =
        theirs.is_subset(&mine) && count(&theirs) >= 2 && count(&theirs) * 3 >= count(&mine) * 2;
    // Only a closing remark may be missing: `green` and `and coffee` change the statement.
    let (last, led) = trailing_omission(fact, &theirs);
    (most
        && !fact.several
        && last
        && led
        && plain
        && fact.is_negated() == wanted.is_negated()
        && fact.numbers() == wanted.numbers()
        && is_subsequence(wanted, fact))
    .then_some(MatchConfidence::Fairly)
}

/// Whether the words missing from the removal stand at the fact's end, and whether they follow a
/// preposition.
fn trailing_omission(fact: &ParsedStatement, named: &BTreeSet<&str>) -> (bool, bool) {
    let known = |token: &StatementToken| {
        token.class == WordClass::StopWord || named.contains(token.stem.as_str())
    };
    let Some(first) = fact.tokens.iter().position(|token| !known(token)) else {
        return (true, true);
    };
    let rest = fact.tokens.get(first..).unwrap_or_default();
    let last = !rest.iter().any(|token| token.class != WordClass::StopWord && known(token));
    const PREPOSITIONS: &[&str] = &[
        "for", "in", "on", "at", "with", "by", "für", "mit", "im", "bei", "pour", "dans", "avec",
        "para", "con", "en",
    ];
    let before = first.checked_sub(1).and_then(|at| fact.tokens.get(at));
    let leads = |token: Option<&StatementToken>| {
        token.is_some_and(|token| PREPOSITIONS.contains(&token.lower.as_str()))
    };
    (last, leads(rest.first()) || leads(before))
}

/// Words without which a statement means something else.
#[rustfmt::skip]
const LIMITING_WORDS: &[&str] = &[
    "only", "except", "unless", "until", "before", "after", "if", "may", "can", "must", "always", "should", "instead", "over", "than",
    "nur", "außer", "wenn", "falls", "bis", "vor", "nach", "muss", "immer", "seulement", "sauf", "si", "avant", "après", "doit",
    "toujours", "solo", "sólo", "salvo", "antes", "después", "debe", "siempre", "was", "were", "former", "formerly", "old", "new",
];

fn is_subsequence(short: &ParsedStatement, long: &ParsedStatement) -> bool {
    if !(short.has(DIRECTIONAL_WORDS) || long.has(DIRECTIONAL_WORDS)) {
        return true;
    }
    let mut rest = long.tokens.iter();
    short
        .tokens
        .iter()
        .filter(|token| token.class != WordClass::StopWord)
        .all(|token| rest.any(|other| other.stem == token.stem))
}

/// Whether these words name a value: it contains all of them, with its numbers and negations.
fn names_value(wanted: &[StatementToken], value: &[StatementToken]) -> bool {
    let stems = |tokens: &[StatementToken]| -> BTreeSet<String> {
        tokens
            .iter()
            .filter(|token| token.class != WordClass::StopWord)
            .map(|token| token.stem.clone())
            .collect()
    };
    let strict = |tokens: &[StatementToken]| -> Vec<String> {
        tokens
            .iter()
            .filter(|token| !matches!(token.class, WordClass::StopWord | WordClass::Content))
            .map(|token| token.stem.clone())
            .collect()
    };
    let (wanted_stems, value_stems) = (stems(wanted), stems(value));
    wanted_stems.is_subset(&value_stems)
        && strict(wanted) == strict(value)
        && wanted_stems.len() * 2 >= value_stems.len()
}

/// The text without the words that say it no longer holds, if it has any.
fn strip_no_longer(text: &str) -> Option<String> {
    let lower = format!(" {} ", text.to_lowercase());
    for phrase in
        [" no longer ", " nicht mehr ", " ya no ", " not anymore ", " any longer ", " anymore "]
    {
        if lower.contains(phrase) {
            return Some(
                lower
                    .replacen(phrase, " ", 1)
                    .replace(" does not ", " ")
                    .replace(" doesn't ", " ")
                    .replace(" is not ", " is ")
                    .trim()
                    .to_owned(),
            );
        }
    }
    None
}

#[cfg(test)]
mod tests;
