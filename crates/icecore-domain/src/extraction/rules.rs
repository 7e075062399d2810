//! Proposals without a model: only sentences with the marks of [`markers`](super::markers) that
//! show they are meant to last.
//!
//! A wrong memory costs trust, and a missing one can be repeated. Doubtful sentences therefore
//! yield nothing: questions, conditions, hearsay, stories, quotations, code. Tool output yields
//! nothing at all, and an assistant's notes only where they have an explicit marker. Proposals from
//! imported documents and other speakers wait for the owner's confirmation.

use icecore_text::normalize::collapse_spaces;
use jiff::civil::Date;

use super::markers::{self, IdentityValue};
use super::sentences::{Sentence, split_sentences};
use super::{MAX_CONTENT_BYTES, MAX_FIELD_BYTES, Proposal, SourcePassage, due_dates};
use crate::budget;
use crate::event::{EntityKind, EventType, Origin, Priority, guess_event_type};
use crate::sanitize;
use icecore_text::phrase::{find_phrase, has_phrase, normalize_sentence, strip_phrase};

/// Maximum length of a sentence, in bytes: longer ones are machine output.
const MAX_SENTENCE_BYTES: usize = 2_000;
/// Maximum number of words of `waiting_on`.
const MAX_WAITING_WORDS: usize = 6;

/// Proposes events from the marked sentences of these passages, in order.
pub fn propose(pieces: &[SourcePassage<'_>]) -> Vec<Proposal> {
    let mut found = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        if piece.origin == Origin::Tool {
            continue;
        }
        let all = split_sentences(piece.text);
        found.extend(all.iter().filter_map(|sentence| propose_from_sentence(sentence, piece, at)));
    }
    found
}

/// The event type a sentence is marked as, and its statement.
struct MarkedStatement<'a> {
    kind: EventType,
    priority: Priority,
    text: &'a str,
    tag: Option<&'static str>,
}

fn propose_from_sentence(
    sentence: &Sentence<'_>,
    piece: &SourcePassage<'_>,
    at: usize,
) -> Option<Proposal> {
    if sentence.text.len() > MAX_SENTENCE_BYTES {
        return None;
    }
    let marked = explicit_marker(sentence).or_else(|| {
        if piece.origin == Origin::Assistant {
            None
        } else {
            implicit_marker(sentence, piece.said_at.day())
        }
    })?;
    let cleaned = sanitize::clean(marked.text).text;
    let content = collapse_spaces(&cleaned);
    let content = budget::truncate_at_word(content.trim_matches('*').trim(), MAX_CONTENT_BYTES);
    if content.split_whitespace().count() < 2 && !content.contains(':') {
        return None;
    }
    let owed = marked.kind == EventType::Commitment;
    let entity = find_entity(marked.text, marked.kind, piece.text);
    Some(Proposal {
        kind: marked.kind,
        priority: marked.priority,
        content,
        entity_kind: entity
            .as_deref()
            .filter(|name| name.starts_with("Client "))
            .map(|_| EntityKind::Company),
        entity,
        tags: marked.tag.map(str::to_owned).into_iter().collect(),
        quote: sentence.text.to_owned(),
        passage: at,
        due: if owed { due_dates::due_date(marked.text, piece.said_at.day()) } else { None },
        waiting_on: if owed { waiting_on(marked.text) } else { None },
        supersedes: Vec::new(),
    })
}

/// Matches `[P1 decision] ...`, `**Decision**: ...`, `TODO ...`, an empty check box.
fn explicit_marker<'a>(sentence: &Sentence<'a>) -> Option<MarkedStatement<'a>> {
    let text = sentence.text.trim_start_matches("**");
    if let Some((label, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let mut words = label.split([' ', ':', ',', '/']).filter(|word| !word.is_empty());
        if let Some(priority) = words.next().and_then(|word| word.parse::<Priority>().ok()) {
            let text = rest.trim_start_matches("**").trim_start_matches(':').trim();
            let kind = words
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or_else(|| guess_event_type(text));
            return (!text.is_empty()).then_some(MarkedStatement {
                kind,
                priority,
                text,
                tag: None,
            });
        }
    }
    if let Some((label, rest)) = text.split_once(':') {
        // Both `**Decision**:` and `**Decision:**`.
        let rest = rest.trim_start_matches("**").trim();
        let label = label.trim_end_matches("**").trim().to_lowercase();
        let found = markers::LABELS.iter().find(|(word, ..)| *word == label);
        if let Some((_, kind, priority)) = found.filter(|_| !rest.is_empty()) {
            return Some(MarkedStatement {
                kind: *kind,
                priority: *priority,
                text: rest,
                tag: None,
            });
        }
    }
    if let Some(rest) =
        text.strip_prefix("TODO").filter(|rest| rest.starts_with(char::is_whitespace))
    {
        return Some(MarkedStatement {
            kind: EventType::Commitment,
            priority: Priority::P2,
            text: rest.trim(),
            tag: None,
        });
    }
    sentence.open_box.then_some(MarkedStatement {
        kind: EventType::Commitment,
        priority: Priority::P2,
        text: sentence.text,
        tag: None,
    })
}

/// Matches statements in running text.
fn implicit_marker<'a>(sentence: &Sentence<'a>, said: Date) -> Option<MarkedStatement<'a>> {
    let text = sentence.text;
    let flat = normalize_sentence(text);
    if sentence.is_question()
        || text.starts_with(['"', '“', '„', '«'])
        || has_phrase(&flat, markers::HYPOTHETICAL)
        || strip_phrase(&flat, markers::CONDITIONAL_STARTS).is_some()
        || has_phrase(&flat, markers::REPORTED_SPEECH)
    {
        return None;
    }
    let mark = |kind, priority, tag| Some(MarkedStatement { kind, priority, text, tag });
    let conditional = has_phrase(&flat, markers::CONDITIONS);
    if is_identity(text, &flat) {
        return mark(EventType::Fact, Priority::P1, Some("identity"));
    }
    if is_relationship(text, &flat) {
        return mark(EventType::Relationship, Priority::P2, None);
    }
    if is_preference(&flat) {
        return mark(EventType::Preference, Priority::P2, None);
    }
    if is_decision(&flat) && !conditional {
        return mark(EventType::Decision, Priority::P1, None);
    }
    if is_commitment(text, &flat, said) && !conditional {
        return mark(EventType::Commitment, Priority::P2, None);
    }
    if is_english_rule(&flat) || is_german_rule(text, &flat) {
        return mark(EventType::Constraint, Priority::P1, None);
    }
    if is_procedure(text, &flat) {
        return mark(EventType::Procedure, Priority::P2, None);
    }
    None
}

fn first_word(flat: &str) -> &str {
    flat.split_whitespace().next().unwrap_or_default()
}

fn is_verb(word: &str) -> bool {
    markers::ACTION_VERBS.contains(&word)
}

fn is_capitalized(word: &str) -> bool {
    word.trim_start_matches(|c: char| !c.is_alphanumeric()).starts_with(char::is_uppercase)
}

fn is_calendar_word(word: &str) -> bool {
    due_dates::weekday_of(word).is_some() || due_dates::is_month(word)
}

/// Matches `my name is`, `I live in` and the like, at the start or after a greeting.
fn is_identity(text: &str, flat: &str) -> bool {
    let Some((at, phrase, needs)) = markers::IDENTITY
        .iter()
        .find_map(|(phrase, needs)| Some((find_phrase(flat, phrase)?, phrase, *needs)))
    else {
        return false;
    };
    if flat[..at].split_whitespace().count() > 3 || flat[..at].contains(" not ") {
        return false;
    }
    let rest = &flat[at + phrase.len()..];
    let next = first_word(rest);
    // The original words, for capitals and punctuation.
    let written: Vec<&str> = text.split_whitespace().collect();
    let value = |fits: &dyn Fn(&str) -> bool| {
        written.iter().rev().take(rest.split_whitespace().count()).any(|word| fits(word))
    };
    let digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    match needs {
        IdentityValue::Word => next.chars().count() > 1 && !markers::NON_NAMES.contains(&next),
        IdentityValue::Name => {
            let first = written.iter().rev().nth(rest.split_whitespace().count().saturating_sub(1));
            let second =
                written.iter().rev().nth(rest.split_whitespace().count().saturating_sub(2));
            first.is_some_and(|word| {
                (is_capitalized(word) || digit(word)) && !is_calendar_word(word)
            }) || (first_word(rest) == "the"
                && second.is_some_and(|word| is_capitalized(word) && !is_calendar_word(word)))
        }
        IdentityValue::Day => value(&|word| digit(word) || due_dates::is_month(word)),
        IdentityValue::Address => value(&|word| digit(word) || word.contains('@')),
    }
}

/// Matches `Mira works for Northwind`, `my boss is Carol`.
fn is_relationship(text: &str, flat: &str) -> bool {
    let written: Vec<&str> = text.split_whitespace().collect();
    let name = |word: &&str| {
        is_capitalized(word)
            && !is_calendar_word(word)
            && !is_opener(word)
            && word.chars().any(char::is_alphabetic)
    };
    if let Some((at, tie)) =
        markers::RELATIONSHIPS.iter().find_map(|tie| Some((find_phrase(flat, tie)?, tie)))
    {
        let before = flat[..at].split_whitespace().count();
        let after = before + tie.split(' ').count();
        let subject = (1..=3).contains(&before) && written.iter().take(before).all(&name);
        let mut object =
            written.iter().skip(after).filter(|word| !["the", "our", "my"].contains(*word));
        return subject && object.next().is_some_and(&name);
    }
    let Some(rest) = strip_phrase(flat, &["my", "our", "mein", "meine"]) else { return false };
    let words: Vec<&str> = rest.split_whitespace().collect();
    let told = match words.as_slice() {
        [kin, "is" | "ist" | "heißt", "called" | "named", ..]
            if markers::KINSHIP_WORDS.contains(kin) =>
        {
            4
        }
        [kin, "is" | "ist" | "heißt", ..] if markers::KINSHIP_WORDS.contains(kin) => 3,
        [kin, "name", "is" | "ist", ..]
            if kin.strip_suffix("'s").is_some_and(|kin| markers::KINSHIP_WORDS.contains(&kin)) =>
        {
            4
        }
        _ => return false,
    };
    written.get(told).is_some_and(name)
}

/// Words that begin a sentence with a capital letter but are not names.
fn is_opener(word: &str) -> bool {
    #[rustfmt::skip]
    const OPENERS: &[&str] = &[
        "everything", "nothing", "it", "this", "that", "what", "he", "she", "they", "we", "i", "you", "who", "which", "nobody",
        "everyone", "someone", "all", "also", "so", "and", "but", "the", "a", "an", "my", "our", "your", "his", "her", "there", "here",
        "yes", "no", "es", "das", "er", "sie", "wir", "ich", "alles", "nichts", "today", "tomorrow", "yesterday",
    ];
    OPENERS.contains(&word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase().as_str())
}

fn is_preference(flat: &str) -> bool {
    if has_phrase(flat, markers::MOMENTARY_PREFERENCES) {
        return false;
    }
    let better = find_phrase(flat, "i like")
        .is_some_and(|at| has_phrase(&flat[at..], &["better", "better than"]))
        || find_phrase(flat, "ich mag").is_some_and(|at| has_phrase(&flat[at..], &["lieber"]))
        || (find_phrase(flat, "mir ist").is_some() && has_phrase(flat, &["lieber"]));
    let favourite = markers::FAVOURITES.iter().any(|start| {
        let rest = flat.strip_prefix(' ').and_then(|flat| flat.strip_prefix(start));
        rest.is_some_and(|rest| {
            has_phrase(rest, &["is", "are", "ist"])
                && !has_phrase(rest, &["part", "so far", "thing about"])
        })
    });
    let better = better
        && !has_phrase(
            flat,
            &[
                "i like it",
                "i like that",
                "i like this",
                "i like yours",
                "i like the first",
                "i like the second",
            ],
        );
    better || favourite || has_phrase(flat, markers::PREFERENCES)
}

fn is_decision(flat: &str) -> bool {
    let said = markers::DECISIONS.iter().find_map(|phrase| {
        find_phrase(flat, phrase).map(|at| (&flat[..at], &flat[at + phrase.len()..]))
    });
    let (before, after) = match said
        .or_else(|| strip_phrase(flat, markers::DECISION_STARTS).map(|rest| (" ", rest)))
    {
        Some((before, after)) => (format!("{before} "), after),
        // In German the verb is at the end.
        None if has_phrase(flat, markers::GERMAN_SPLIT_DECISIONS)
            && has_phrase(flat, &["entschieden", "geeinigt", "festgelegt"]) =>
        {
            (String::new(), flat)
        }
        None => return false,
    };
    let empty = ["", "it", "that", "this", "the", "you"].contains(&after.trim());
    !empty
        && !has_phrase(&before, markers::NOT_BEFORE_DECISIONS)
        && !has_phrase(flat, markers::UNDECIDED)
}

fn is_commitment(text: &str, flat: &str, said: Date) -> bool {
    if has_phrase(flat, markers::PROMISES)
        && !has_phrase(flat, &["do not remind me", "you remind me"])
    {
        return true;
    }
    let Some(_) = due_dates::due_date(text, said) else { return false };
    // Statements about the past have no future day, but may contain "by" and a weekday.
    if has_phrase(flat, &["was", "were", "had", "did", "used to", "no longer"]) {
        return false;
    }
    let acts = |rest: &str| {
        let words: Vec<&str> = rest
            .split_whitespace()
            .filter(|word| !["also", "then", "definitely", "please", "just"].contains(word))
            .collect();
        match words.as_slice() {
            [verb, "you" | "it" | "that" | "this", ..] => {
                is_verb(verb) && !markers::POLITE_PHRASES.contains(verb) && words.len() > 4
            }
            [verb, ..] => is_verb(verb),
            [] => false,
        }
    };
    let owed = markers::OBLIGATION_PHRASES
        .iter()
        .any(|phrase| find_phrase(flat, phrase).is_some_and(|at| acts(&flat[at + phrase.len()..])));
    // "Anna will send ...": a named person.
    let named = {
        let written: Vec<&str> = text.split_whitespace().collect();
        let words: Vec<&str> = flat.split_whitespace().collect();
        let first = words.first().is_some_and(|word| !is_opener(word) && !is_calendar_word(word));
        let person = first && written.first().is_some_and(|word| is_capitalized(word));
        person && words.get(1) == Some(&"will") && words.get(2).is_some_and(|verb| is_verb(verb))
    };
    let deadline = has_phrase(flat, markers::DEADLINES)
        && !has_phrase(flat, &["no deadline", "missed"])
        && flat.split_whitespace().count() >= 3;
    // An instruction with a day: "Send the offer to Anna by Friday".
    let ordered = acts(flat)
        && has_phrase(
            flat,
            &["by", "until", "till", "before", "due", "tomorrow", "on", "next", "today", "bis"],
        );
    let german = {
        let infinitive = flat.split_whitespace().next_back().is_some_and(is_infinitive);
        let owes =
            markers::GERMAN_OBLIGATION_PHRASES.iter().any(|phrase| has_phrase(flat, &[phrase]));
        let ends = |words: &[&str]| {
            flat.split_whitespace().next_back().is_some_and(|last| words.contains(&last))
        };
        (infinitive && (owes || has_phrase(flat, &["bis"])))
            || (owes && has_phrase(flat, &["bis"]) && ends(&["sein", "fertig", "weg"]))
    };
    owed || named || deadline || ordered || german
}

/// Whether it is a German infinitive, as at the end of an instruction.
fn is_infinitive(word: &str) -> bool {
    let ending = ["en", "ern", "eln"].iter().any(|ending| word.ends_with(ending));
    ending
        && word.chars().count() > 4
        && !word.starts_with("ge")
        && !markers::GREETINGS.contains(&word)
}

/// Matches rules in English.
fn is_english_rule(flat: &str) -> bool {
    if has_phrase(flat, markers::IDIOMS) {
        return false;
    }
    let mut rest = flat;
    while let Some(next) = strip_phrase(rest, markers::LEAD_INS) {
        rest = next;
    }
    let orders = |rest: &str| {
        let words: Vec<&str> = rest.split_whitespace().take(2).collect();
        words.first().is_some_and(|verb| is_verb(verb))
            && words.get(1).is_some_and(|next| !markers::NARRATIVE_WORDS.contains(next))
    };
    // "Never deploy on Fridays", "Do not ever push to main".
    let ordered = strip_phrase(
        rest,
        &[
            "never ever",
            "never",
            "always",
            "do not ever",
            "you should never",
            "you should always",
            "we should never",
        ],
    );
    if ordered.is_some_and(orders) {
        return true;
    }
    if strip_phrase(rest, &["do not"])
        .is_some_and(|rest| orders(rest) && has_phrase(rest, &["ever", "under any circumstances"]))
    {
        return true;
    }
    is_modal_rule(rest) || is_ban(rest) || is_limit(rest)
}

/// Matches a subject that must, cannot, always or never does something.
fn is_modal_rule(flat: &str) -> bool {
    const MODALS: &[&str] =
        &["must", "cannot", "may not", "may never", "never", "always", "shall", "shall not"];
    let Some((at, modal)) =
        MODALS.iter().filter_map(|modal| Some((find_phrase(flat, modal)?, modal))).min()
    else {
        return false;
    };
    let subject: Vec<&str> = flat[..at].split_whitespace().collect();
    let Some(first) = subject.first() else { return false };
    let alone = subject.len() == 1;
    if subject.len() > 6
        || markers::NON_RULE_SUBJECTS.contains(first)
        || !markers::RULE_SUBJECTS.contains(first)
    {
        return false;
    }
    let rest: Vec<&str> = flat[at + modal.len()..]
        .split_whitespace()
        .skip_while(|word| ["not", "never", "always", "only", "also"].contains(word))
        .collect();
    let tail = flat[at..].to_owned();
    let verb = rest.first().copied().unwrap_or_default();
    let next = rest.get(1).copied().unwrap_or_default();
    match *modal {
        "never" | "always" => {
            *first == "we"
                && alone
                && is_verb(verb)
                && !markers::NARRATIVE_WORDS.contains(&next)
                && verb != "run"
                && verb != "take"
        }
        "cannot" => {
            is_verb(verb)
                && has_phrase(&tail, markers::RULE_LIMITS)
                && !markers::NARRATIVE_WORDS.contains(&next)
                || (verb == "be" && is_rule_state(&rest, alone))
        }
        _ if verb == "be" => is_rule_state(&rest, alone),
        _ if *first == "you" => {
            is_verb(verb)
                && !markers::POLITE_PHRASES.contains(&verb)
                && !markers::NARRATIVE_WORDS.contains(&next)
        }
        _ => is_verb(verb) && !next.is_empty() && !["it", "that", "this"].contains(&next),
    }
}

/// Matches `be below 500`, `be signed by two people`; not `be tired`, and not with "you" or "we".
fn is_rule_state(rest: &[&str], alone: bool) -> bool {
    let Some(state) = rest.get(1) else { return false };
    let participle =
        (state.ends_with("ed") && state.len() > 4) || markers::RULE_STATES.contains(state);
    !alone
        && participle
        && !markers::FEELINGS.contains(state)
        && (rest.len() > 2 || state.ends_with("ed") || state.len() > 5)
        || (alone
            && participle
            && !markers::FEELINGS.contains(state)
            && rest.len() > 2
            && state.ends_with("ed"))
}

/// Matches `no X allowed`, `X is not allowed`, `nobody may`.
fn is_ban(flat: &str) -> bool {
    let pronoun = |at: usize| {
        flat[..at]
            .split_whitespace()
            .next()
            .is_none_or(|first| markers::NON_RULE_SUBJECTS.contains(&first))
    };
    let not_allowed = [
        "is not allowed",
        "are not allowed",
        "is forbidden",
        "are forbidden",
        "is never allowed",
        "are never allowed",
    ]
    .iter()
    .find_map(|phrase| find_phrase(flat, phrase))
    .is_some_and(|at| !pronoun(at));
    let none_allowed = strip_phrase(flat, &["no"])
        .is_some_and(|rest| has_phrase(rest, &["allowed"]) && rest.split_whitespace().count() <= 8);
    let nobody = strip_phrase(
        flat,
        &["nobody may", "no one may", "nobody is allowed to", "no one is allowed to"],
    )
    .is_some();
    let only = strip_phrase(flat, &["only"]).is_some_and(|rest| {
        find_phrase(rest, "may").is_some_and(|at| is_verb(first_word(&rest[at + 3..])))
    });
    not_allowed || none_allowed || nobody || only
}

/// Matches `at most 500 EUR`.
fn is_limit(flat: &str) -> bool {
    let Some((at, phrase)) = ["at most", "no more than"]
        .iter()
        .find_map(|phrase| Some((find_phrase(flat, phrase)?, phrase)))
    else {
        return false;
    };
    let numbered = first_word(&flat[at + phrase.len()..]).starts_with(|c: char| c.is_ascii_digit());
    let before: Vec<&str> = flat[..at].split_whitespace().collect();
    let subject = match before.as_slice() {
        [] => true,
        [verb, ..] if is_verb(verb) => true,
        [first, .., "is" | "are" | "be" | "use" | "spend"] => {
            !markers::NON_RULE_SUBJECTS.contains(first)
        }
        _ => false,
    };
    numbered && subject
}

fn is_german_rule(text: &str, flat: &str) -> bool {
    if has_phrase(flat, markers::IDIOMS) {
        return false;
    }
    let last = flat.split_whitespace().next_back().unwrap_or_default();
    let written_last = text.split_whitespace().next_back().unwrap_or_default();
    let infinitive = is_infinitive(last) && !is_capitalized(written_last);
    let words = flat.split_whitespace().count();
    if strip_phrase(flat, &["nie", "niemals", "immer"]).is_some() {
        return infinitive && words >= 3;
    }
    let first = first_word(flat);
    let second_noun = text.split_whitespace().nth(1).is_some_and(is_capitalized);
    let subject = match first {
        "wir" | "du" | "ihr" | "alle" | "jede" | "jeder" | "jedes" | "niemand" => true,
        "der" | "die" | "das" | "kein" | "keine" | "unsere" | "unser" => second_noun,
        _ => {
            is_capitalized(text)
                && has_phrase(flat, &["dürfen", "darf", "müssen"])
                && !is_opener(first)
                && first.chars().count() > 4
        }
    };
    let must =
        has_phrase(flat, &["muss", "müssen", "musst"]) && ["werden", "bleiben"].contains(&last);
    let may_not = has_phrase(
        flat,
        &[
            "darf nie",
            "darf niemals",
            "dürfen nie",
            "dürfen niemals",
            "darfst nie",
            "darfst niemals",
            "darf niemand",
        ],
    ) || (has_phrase(flat, &["darf nicht", "dürfen nicht", "darfst nicht"])
        && infinitive);
    subject && words >= 4 && (must || may_not) && !has_phrase(flat, &["wahr sein"])
}

/// Matches `To deploy, run ...`, `How to release: ...`.
fn is_procedure(text: &str, flat: &str) -> bool {
    let steps = |at: usize| flat[at..].split_whitespace().count() >= 3;
    if let Some(rest) = strip_phrase(flat, &["how to", "steps to"]) {
        let colon =
            text.split_once(':').is_some_and(|(_, steps)| steps.split_whitespace().count() >= 2);
        return is_verb(first_word(rest)) && colon;
    }
    let Some(rest) = strip_phrase(flat, &["to", "in order to"]) else { return false };
    let Some((aim, how)) = text.split_once(',') else { return false };
    let first = first_word(&normalize_sentence(how)).to_owned();
    is_verb(first_word(rest))
        && aim.split_whitespace().count() <= 8
        && steps(0)
        && (is_verb(&first) || ["first", "do"].contains(&first.as_str()))
}

/// The person or thing a commitment waits for.
fn waiting_on(text: &str) -> Option<String> {
    const WAITS: &[&str] = &[
        "waiting for ",
        "waiting on ",
        "as soon as ",
        "once ",
        "warte auf ",
        "warten auf ",
        "sobald ",
    ];
    const NOT_ONCE: &[&str] = &["a", "again", "more", "upon", "in", "per", "every", "or", "and"];
    let lower = text.to_lowercase();
    // A byte position is valid in both only if lowercasing did not change the length.
    let text = if lower.len() == text.len() { text } else { lower.as_str() };
    let at = WAITS.iter().find_map(|wait| {
        let at = lower.find(wait)?;
        let begins = lower[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric());
        begins.then_some(at + wait.len())
    })?;
    let rest = text.get(at..)?;
    let clause = rest.split([',', '.', ';', ':', '!', '?', '(']).next()?;
    let words: Vec<&str> = clause.split_whitespace().take(MAX_WAITING_WORDS).collect();
    let first = words.first()?.to_lowercase();
    let what = words.join(" ");
    (!NOT_ONCE.contains(&first.as_str()) && what.len() <= MAX_FIELD_BYTES).then_some(what)
}

/// Names of currencies, formats and the like; these are not entities.
#[rustfmt::skip]
const NON_ENTITIES: &[&str] =
&[
    "EUR", "USD", "GBP", "CHF", "TODO", "OK", "PR", "API", "URL", "JSON", "YAML", "CSV", "PDF", "UTC", "CET", "I",
];

/// The one name the sentence is about, if it is unambiguous.
fn find_entity(text: &str, kind: EventType, all: &str) -> Option<String> {
    let german = has_phrase(
        &normalize_sentence(text),
        &[
            "ich", "wir", "der", "das", "und", "ist", "nicht", "mit", "für", "auf", "bis", "muss",
            "nie", "immer",
        ],
    );
    let runs = capitalized_runs(text);
    if let Some(client) =
        runs.iter().find(|run| run.name.starts_with("Client ") || run.name.starts_with("Project "))
    {
        return Some(client.name.clone());
    }
    if kind == EventType::Relationship {
        // Of two names, the statement is about the first.
        return runs
            .first()
            .filter(|run| run.begins && !is_opener(&run.name))
            .map(|run| run.name.clone());
    }
    // Where every noun is capitalized, a capital letter does not indicate a name.
    if german {
        return None;
    }
    let inner = |run: &&CapitalizedRun| !run.begins || occurs_inside_sentence(all, &run.name);
    let mut found: Vec<&CapitalizedRun> = runs.iter().filter(inner).collect();
    found.dedup_by(|one, other| one.name == other.name);
    match found.as_slice() {
        [only] => Some(only.name.clone()),
        _ => None,
    }
}

/// Whether a name occurs in the text at a position where its capital letter is significant.
fn occurs_inside_sentence(text: &str, name: &str) -> bool {
    !is_opener(name)
        && text.match_indices(name).any(|(at, _)| {
            let before = text[..at].trim_end_matches([' ', '\t']);
            text[..at].ends_with(' ') && before.ends_with(|c: char| c.is_lowercase() || c == ',')
        })
}

/// A run of one to three capitalized words.
struct CapitalizedRun {
    name: String,
    begins: bool,
}

fn capitalized_runs(text: &str) -> Vec<CapitalizedRun> {
    let mut found: Vec<CapitalizedRun> = Vec::new();
    let mut run: Vec<&str> = Vec::new();
    let (mut began, mut first) = (false, true);
    let mut close = |run: &mut Vec<&str>, begins: bool| {
        if (1..=3).contains(&run.len()) {
            let name = run.join(" ");
            if name.chars().count() > 1
                && name.len() <= MAX_FIELD_BYTES
                && !NON_ENTITIES.contains(&name.as_str())
            {
                found.push(CapitalizedRun { name, begins });
            }
        }
        run.clear();
    };
    for raw in text.split_whitespace() {
        let word = raw
            .trim_matches(|c: char| !c.is_alphanumeric())
            .trim_end_matches("'s")
            .trim_end_matches("’s");
        let named = word.starts_with(char::is_uppercase)
            && !is_calendar_word(word)
            && word != "I"
            && !word.starts_with("I'")
            && !word.starts_with("I’");
        if named && !(first && is_opener(word)) {
            if run.is_empty() {
                began = first;
            }
            run.push(word);
        } else {
            close(&mut run, began);
        }
        if raw.ends_with([',', '.', ';', ':', '!', '?', ')']) {
            close(&mut run, began);
        }
        first = raw.ends_with([':', '.', '!', '?']);
    }
    close(&mut run, began);
    found
}

#[cfg(test)]
mod tests;
