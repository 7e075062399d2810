//! Fact matching: which known fact an update, a removal or a new statement refers to (C5).
//!
//! Destroying the wrong fact is the worst possible outcome; a duplicate is only a blemish. A text
//! therefore refers to a fact only if it names the fact's key, its frame or all of its content
//! words, and only if no other fact could be meant as well.

use std::collections::BTreeSet;

use super::reading::{self, Class, Key, Reading, Token, same_place};
use crate::plain;

/// What an entry of a diff does with the fact it refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The fact gets new wording.
    Update,
    /// The fact is removed.
    Remove,
    /// The statement is added, unless it contradicts a known fact.
    Add,
}

/// The fact that a text refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// The index of the fact.
    One(usize),
    /// No known fact.
    None,
    /// Any of these indexes.
    Ambiguous(Vec<usize>),
}

/// How confidently a text refers to a fact, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sure {
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
pub fn meant<T: AsRef<str>>(facts: &[T], text: &str, way: Way) -> Meant {
    meant_surely(facts, text, way).0
}

/// Like [`match_fact`], with the confidence of the match.
pub fn meant_surely<T: AsRef<str>>(facts: &[T], text: &str, way: Way) -> (Meant, Option<Sure>) {
    let wanted = Reading::of(text);
    if !wanted.tokens.iter().any(|token| token.class != Class::Filler) {
        return (Meant::None, None);
    }
    let mut best: Vec<usize> = Vec::new();
    let mut surest = None;
    let known: Vec<Reading> = facts.iter().map(|fact| Reading::of(fact.as_ref())).collect();
    for (at, fact) in facts.iter().enumerate() {
        let Some(sure) = how(fact.as_ref(), &known, at, text, &wanted, way) else { continue };
        if Some(sure) > surest {
            surest = Some(sure);
            best.clear();
        }
        if Some(sure) == surest {
            best.push(at);
        }
    }
    match best.as_slice() {
        [] => (Meant::None, None),
        [one] => (Meant::One(*one), surest),
        // Of two identical facts, either will do.
        [first, ..] if surest == Some(Sure::Verbatim) => (Meant::One(*first), surest),
        _ => (Meant::Ambiguous(best), surest),
    }
}

/// Whether two statements have the same key, so that only one of them can hold.
pub fn same_key(one: &str, other: &str) -> bool {
    let (one, other) = (Reading::of(one), Reading::of(other));
    let explicit =
        |reading: &Reading| reading.key.as_ref().is_some_and(|key| key.head == reading::Head::Key);
    explicit(&one) && explicit(&other) && same_place(&one, &other)
}

fn how(
    fact: &str,
    known: &[Reading],
    at: usize,
    text: &str,
    wanted: &Reading,
    way: Way,
) -> Option<Sure> {
    if plain::sameness_key(fact) == plain::sameness_key(text) {
        return Some(Sure::Verbatim);
    }
    let reading = known.get(at)?;
    if alike(reading, wanted) {
        return Some(Sure::Clearly);
    }
    match way {
        Way::Update | Way::Add => updates(reading, wanted, way),
        Way::Remove => removes(known, at, wanted, text),
    }
}

/// Whether both have the same content words, in the same order where order matters.
pub(crate) fn alike(one: &Reading, other: &Reading) -> bool {
    let (mine, theirs) = (one.telling(), other.telling());
    if mine.is_empty()
        || mine != theirs
        || one.numbers() != other.numbers()
        || one.denies() != other.denies()
    {
        return false;
    }
    // A single word names a thing; it is not a statement.
    mine.len() + usize::from(one.has(SUBJECTS) && other.has(SUBJECTS)) >= 2 && in_order(one, other)
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
const DIRECTED: &[&str] = &[
    "from", "to", "over", "than", "before", "after", "instead", "into", "against", "rather", "via", "by", "for", "with", "report",
    "reports", "owes", "replaces", "replaced", "depends", "calls", "sends", "pays", "nach", "vor", "statt", "über", "avant", "après",
    "antes", "después", "que", "quam", "als", "but", "not", "aber", "sondern", "mais", "pero", "sino",
];

fn in_order(one: &Reading, other: &Reading) -> bool {
    if !(one.has(DIRECTED) || other.has(DIRECTED) || (one.denies() && one.telling().len() > 3)) {
        return true;
    }
    let words = |reading: &Reading| -> Vec<String> {
        reading
            .tokens
            .iter()
            .filter(|token| token.class != Class::Filler)
            .map(|token| token.stem.clone())
            .collect()
    };
    words(one) == words(other)
}

fn updates(fact: &Reading, wanted: &Reading, way: Way) -> Option<Sure> {
    if let (Some(one), Some(other)) = (&fact.key, &wanted.key)
        && same_place(fact, wanted)
    {
        let explicit = one.head == reading::Head::Key && other.head == reading::Head::Key;
        return Some(if explicit && one.whole == other.whole {
            Sure::Exactly
        } else if explicit && exact(one, other) {
            Sure::Clearly
        } else if explicit {
            Sure::Key
        } else {
            Sure::Fairly
        });
    }
    // Two explicit keys that differ are two things, whatever else they share.
    let keyed =
        |reading: &Reading| reading.key.as_ref().is_some_and(|key| key.head == reading::Head::Key);
    if keyed(fact) || keyed(wanted) {
        return None;
    }
    match way {
        Way::Update => revalued(fact, wanted, false).or_else(|| turned(fact, wanted)),
        Way::Add => revalued(fact, wanted, true),
        Way::Remove => None,
    }
}

fn exact(one: &Key, other: &Key) -> bool {
    one.whole == other.whole || one.words == other.words
}

/// Verbs that describe a state; two amounts of the same state cannot both hold.
#[rustfmt::skip]
const STATES: &[&str] = &[
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
fn revalued(fact: &Reading, wanted: &Reading, state: bool) -> Option<Sure> {
    let words = |reading: &Reading| -> Vec<Token> {
        reading.tokens.iter().filter(|token| token.class != Class::Filler).cloned().collect()
    };
    let (one, other) = (words(fact), words(wanted));
    if one.len() != other.len()
        || one.len() < 2
        || (state && !(fact.has(STATES) && wanted.has(STATES)))
    {
        return None;
    }
    let apart: Vec<usize> = (0..one.len())
        .filter(|&at| one.get(at).map(|t| &t.stem) != other.get(at).map(|t| &t.stem))
        .collect();
    let [at] = apart.as_slice() else { return None };
    let (was, is) = (one.get(*at)?, other.get(*at)?);
    if was.class != Class::Number || is.class != Class::Number {
        return None;
    }
    // "Room 12" is a name; "Python 3.12", "port 8080" and "2 cats" are values.
    let versions = was.word.contains('.') && is.word.contains('.');
    let units = one.get(at + 1).is_some_and(|next| UNITS.contains(&next.word.as_str()));
    let before_all = |reading: &Reading| {
        let place = reading.tokens.iter().position(|token| {
            token.class == Class::Number && (token.word == was.word || token.word == is.word)
        })?;
        reading.tokens.get(place.checked_sub(1)?).cloned()
    };
    let before = before_all(fact)?;
    let named = NAMED_BY_NUMBER.contains(&before.word.as_str());
    let counted = before.class == Class::Filler
        || COUNTERS.contains(&before.lower.as_str())
        || COUNTERS.contains(&before.word.as_str());
    let last = at + 1 == one.len();
    let ends = last && before.name && !named;
    ((!named && (versions || units)) || counted || ends).then_some(Sure::Clearly)
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
fn turned(fact: &Reading, wanted: &Reading) -> Option<Sure> {
    if fact.denies()
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
    let stems = |tokens: &[Token]| -> BTreeSet<String> {
        tokens
            .iter()
            .filter(|token| token.class != Class::Filler)
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
        .then_some(Sure::Fairly)
}

fn removes(known: &[Reading], at: usize, wanted: &Reading, text: &str) -> Option<Sure> {
    let fact = known.get(at)?;
    // "no longer X" removes X.
    let stale = without_longer(text);
    if let Some(stale) = &stale {
        let bare = Reading::of(stale);
        if !bare.denies() && alike(fact, &bare) {
            return Some(Sure::Fairly);
        }
        return None;
    }
    let explicit =
        |reading: &Reading| reading.key.clone().filter(|key| key.head == reading::Head::Key);
    let key = explicit(fact);
    if let (Some(one), Some(other)) = (&key, explicit(wanted)) {
        return (one.meets(&other)
            && (wanted.value.is_empty() || (!fact.several && within(&wanted.value, &fact.value))))
        .then(|| {
            if one.whole == other.whole {
                Sure::Exactly
            } else if exact(one, &other) {
                Sure::Clearly
            } else {
                Sure::Key
            }
        });
    }
    if let Some(one) = &key
        && wanted.key.is_none()
    {
        // Only the key. A single word that other facts share may mean any of them.
        let told: Vec<Token> = Reading::of(&format!("{text}:")).tokens;
        let other =
            explicit(&Reading::of(&format!("{}:", text.trim().trim_end_matches(['.', ':']))))?;
        if one.meets(&other) {
            let word = told
                .iter()
                .find(|token| token.class != Class::Filler)
                .map(|token| token.stem.clone())?;
            let elsewhere = known
                .iter()
                .enumerate()
                .any(|(other, reading)| other != at && reading.telling().contains(word.as_str()));
            let enough = one.words.len() >= 2 || (!elsewhere && word.chars().count() >= 4);
            return enough.then_some(if one.whole == other.whole {
                Sure::Exactly
            } else if exact(one, &other) {
                Sure::Clearly
            } else {
                Sure::Key
            });
        }
        return None;
    }
    if key.is_some() || explicit(wanted).is_some() {
        return None;
    }
    // Most words agree, and no missing word distinguishes this fact from another.
    let (mine, theirs) = (fact.telling(), wanted.telling());
    let missing: Vec<&str> = mine.difference(&theirs).copied().collect();
    let plain =
        fact.tokens.iter().filter(|token| missing.contains(&token.stem.as_str())).all(|token| {
            token.class == Class::Telling
                && !token.name
                && !LIMITING.contains(&token.lower.as_str())
        });
    let count = |stems: &BTreeSet<&str>| {
        stems.iter().filter(|stem| !["for", "with", "by", "to"].contains(stem)).count()
    };
    let most =
        theirs.is_subset(&mine) && count(&theirs) >= 2 && count(&theirs) * 3 >= count(&mine) * 2;
    // Only a closing remark may be missing: `green` and `and coffee` change the statement.
    let (last, led) = trailing(fact, &theirs);
    (most
        && !fact.several
        && last
        && led
        && plain
        && fact.denies() == wanted.denies()
        && fact.numbers() == wanted.numbers()
        && subsequence(wanted, fact))
    .then_some(Sure::Fairly)
}

/// Whether the words missing from the removal stand at the fact's end, and whether they follow a
/// preposition.
fn trailing(fact: &Reading, named: &BTreeSet<&str>) -> (bool, bool) {
    let known = |token: &Token| token.class == Class::Filler || named.contains(token.stem.as_str());
    let Some(first) = fact.tokens.iter().position(|token| !known(token)) else {
        return (true, true);
    };
    let rest = fact.tokens.get(first..).unwrap_or_default();
    let last = !rest.iter().any(|token| token.class != Class::Filler && known(token));
    const LEADS: &[&str] = &[
        "for", "in", "on", "at", "with", "by", "für", "mit", "im", "bei", "pour", "dans", "avec",
        "para", "con", "en",
    ];
    let before = first.checked_sub(1).and_then(|at| fact.tokens.get(at));
    let leads =
        |token: Option<&Token>| token.is_some_and(|token| LEADS.contains(&token.lower.as_str()));
    (last, leads(rest.first()) || leads(before))
}

/// Words without which a statement means something else.
#[rustfmt::skip]
const LIMITING: &[&str] = &[
    "only", "except", "unless", "until", "before", "after", "if", "may", "can", "must", "always", "should", "instead", "over", "than",
    "nur", "außer", "wenn", "falls", "bis", "vor", "nach", "muss", "immer", "seulement", "sauf", "si", "avant", "après", "doit",
    "toujours", "solo", "sólo", "salvo", "antes", "después", "debe", "siempre", "was", "were", "former", "formerly", "old", "new",
];

fn subsequence(short: &Reading, long: &Reading) -> bool {
    if !(short.has(DIRECTED) || long.has(DIRECTED)) {
        return true;
    }
    let mut rest = long.tokens.iter();
    short
        .tokens
        .iter()
        .filter(|token| token.class != Class::Filler)
        .all(|token| rest.any(|other| other.stem == token.stem))
}

/// Whether these words name a value: it contains all of them, with its numbers and negations.
fn within(wanted: &[Token], value: &[Token]) -> bool {
    let stems = |tokens: &[Token]| -> BTreeSet<String> {
        tokens
            .iter()
            .filter(|token| token.class != Class::Filler)
            .map(|token| token.stem.clone())
            .collect()
    };
    let strict = |tokens: &[Token]| -> Vec<String> {
        tokens
            .iter()
            .filter(|token| !matches!(token.class, Class::Filler | Class::Telling))
            .map(|token| token.stem.clone())
            .collect()
    };
    let (wanted_stems, value_stems) = (stems(wanted), stems(value));
    wanted_stems.is_subset(&value_stems)
        && strict(wanted) == strict(value)
        && wanted_stems.len() * 2 >= value_stems.len()
}

/// The text without the words that say it no longer holds, if it has any.
fn without_longer(text: &str) -> Option<String> {
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
