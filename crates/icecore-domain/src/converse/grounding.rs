//! Grounding: whether an exchange supports an entry of a diff (C8).
//!
//! The summarizer is untrusted. Its claim is accepted only if the exchange contains the claim's
//! numbers, its names and most of its content words, and does not say the opposite. The check
//! compares words, not meaning: an entry in another language than the exchange is refused.

use std::collections::BTreeSet;

use crate::extraction::equivalence::mentions_change;
use icecore_text::normalize::fold_word;
use icecore_text::phrase::{find_phrase, has_phrase, normalize_sentence, strip_phrase};

use super::statement::{self, KeyHead, ParsedStatement, StatementToken, WordClass};

/// Minimum share of an entry's content words that the exchange must contain, in percent.
const MIN_SUPPORTED_PERCENT: usize = 60;
/// Maximum number of missing words that an error lists.
const MAX_LISTED_WORDS: usize = 6;

/// Words a summarizer uses to report; they do not occur in the exchange itself.
#[rustfmt::skip]
const REPORTING_WORDS: &[&str] = &[
    "user", "prefers", "prefer", "preferred", "preference", "preferences", "likes", "wants", "want", "decided", "decision", "now", "asked",
    "asks", "requested", "requires", "requirement", "required", "constraint", "rule", "stated", "mentioned", "confirmed", "agreed", "chose",
    "chosen", "plans", "planned", "plan", "goal", "current", "currently", "project", "assistant", "fact", "uses", "use", "used", "using",
    "needs", "need", "has", "have", "working", "interested", "named", "called", "will", "should", "must", "always", "instead", "over",
    "set", "changed", "updated", "switched", "provided", "version", "name", "type", "to", "for", "with", "by", "from", "or", "based",
    "client", "location", "language", "status", "value", "key", "about", "into", "than", "be", "was", "were", "it", "me", "he", "she",
    "nutzer", "möchte", "bevorzugt", "will", "entschieden", "entscheidung", "nutzt", "verwendet", "hat", "braucht", "soll", "muss", "mit",
    "für", "zu", "utilisateur", "préfère", "veut", "décidé", "utilise", "doit", "avec", "pour", "usuario", "prefiere", "quiere", "decidió",
    "usa", "debe", "con", "para", "lives", "wohnt", "habite", "vive", "works", "allowed", "lieu", "statt", "vez", "lugar",
    "dislikes", "dislike", "avoids", "avoid",
];
/// Words that negate by themselves, whatever word the exchange uses.
#[rustfmt::skip]
const NEGATIVE_WORDS: &[&str] = &[
    "dislikes", "dislike", "hates", "hate", "avoid", "avoids", "refuses", "against", "without", "stop", "stopped", "forbidden",
    "prohibited", "disabled", "removed", "dropped", "excludes", "exclude", "excluded", "instead", "rather", "over", "only", "unable", "lacks",
    "rejects", "rejected", "vermeidet", "gegen", "ohne", "verboten", "statt", "évite", "sans", "interdit", "évitar", "evita", "sin",
    "prohibido", "free", "vegetarian", "vegan", "allergic", "but", "except", "unless", "no-go", "nur",
];
/// Words that say something was decided.
const DECISION_WORDS: &[&str] = &[
    "decided",
    "decision",
    "chose",
    "agreed",
    "settled",
    "confirmed",
    "entschieden",
    "beschlossen",
    "décidé",
    "decidió",
];

/// Words that withdraw or end something, in addition to the words for a change.
#[rustfmt::skip]
const ENDING_WORDS: &[&str] = &[
    "forget", "forgot", "drop", "dropped", "dropping", "remove", "removed", "delete", "deleted", "cancel", "cancelled", "canceled", "scrap",
    "scrapped", "ignore", "stop", "stopped", "ended", "is over", "obsolete", "outdated", "deprecated", "retired", "expired", "wrong",
    "mistake", "gone", "abandoned", "abandon", "moved", "changed", "switched", "switch", "migrated", "left", "quit", "sold", "cut to",
    "raised", "lowered", "increased", "reduced", "becomes", "became", "done", "finished", "solved", "fixed", "resolved", "used to",
    "previously", "formerly", "no need", "unnecessary", "skip", "instead", "used to be", "postponed", "rescheduled",
    "vergiss", "vergesst", "vergessen", "streiche", "streich", "streichen", "gestrichen", "entfällt", "entfallen", "abgesagt", "aufgehoben",
    "hinfällig", "veraltet", "erledigt", "falsch", "lösche", "löschen", "gelöscht", "entferne", "entfernt", "ignoriere", "umgezogen",
    "gewechselt", "geändert", "verschoben", "umgestellt", "abgelöst", "ersetzt", "beendet", "verkauft", "gekündigt", "früher", "vorbei",
    "wechseln", "steigen um", "umsteigen", "weg",
];
/// Words that permit what was forbidden.
#[rustfmt::skip]
const PERMISSION_WORDS: &[&str] = &[
    "again", "allowed", "may", "okay", "ok", "fine", "permitted", "can", "lifted", "allow", "wieder", "erlaubt", "darfst", "dürfen", "darf",
    "in ordnung", "kannst", "können",
];

/// Words that do not distinguish one rule from another, in addition to the reporting words.
#[rustfmt::skip]
const GENERIC_WORDS: &[&str] = &[
    "code", "file", "files", "text", "write", "writing", "writes", "written", "wrote", "make", "making", "makes", "made", "create",
    "creating", "do", "doing", "done", "give", "get", "put", "add", "include", "including", "keep", "run", "take", "show", "tell", "say",
    "answer", "answers", "reply", "thing", "things", "something", "anything", "everything", "way", "ever", "any", "every", "each", "all", "if", "when", "can",
    "may", "not", "so", "too", "very", "okay", "ok", "yes", "well", "hey", "hi", "thanks", "thank", "think", "guess", "believe", "find",
    "actually", "really", "again", "from", "like", "want", "let", "go", "here", "there", "us", "them",
    "verwenden", "verwende", "benutzen", "benutze", "nutzen", "nutze", "schreiben", "schreibe", "schreib", "machen", "mache", "mach",
    "erstellen", "erstelle", "datei", "dateien", "etwas", "alles", "jede", "jeden", "jedes", "jedem", "jeder", "alle", "allen", "ja", "gern", "gerne",
    "danke", "glaube", "denke", "finde", "ab", "sofort", "wieder", "auch", "doch", "mal", "immer", "stets", "toujours", "siempre", "dir", "mir", "für", "in", "bei", "antworte", "antworten",
];
/// Nouns for the rule itself.
#[rustfmt::skip]
const RULE_NAMES: &[&str] = &[
    "rule", "ban", "constraint", "restriction", "instruction", "requirement", "regel", "verbot", "vorgabe", "einschränkung", "anweisung",
];
/// Verbs that revoke a rule or what it demands. Negated, they confirm the rule.
#[rustfmt::skip]
const REVOKING_VERBS: &[&str] = &[
    "forget", "drop", "dropped", "remove", "removed", "delete", "cancel", "cancelled", "canceled", "scrap", "scrapped", "ignore", "skip",
    "stop", "leave out", "abandon", "abandoned", "lift", "lifted", "raised", "lowered", "increased", "reduced", "changed", "switched from",
    "moved", "postponed", "is over", "obsolete", "outdated", "unnecessary", "optional", "vergiss", "vergesst", "streiche", "streich",
    "gestrichen", "lösche", "gelöscht", "entferne", "entfernt", "ignoriere", "lass", "aufgehoben", "hinfällig", "entfällt", "geändert",
    "verschoben", "abgeschafft", "unnötig", "überflüssig",
];
/// Phrases that say a rule, or what it demands, no longer applies.
#[rustfmt::skip]
const EXPIRY_PHRASES: &[&str] = &[
    "no longer", "not anymore", "any more", "anymore", "not apply", "not hold", "need not", "not need", "no need", "not have to",
    "not necessary", "not required", "nicht mehr", "gilt nicht", "musst nicht", "müssen nicht", "muss nicht", "nicht nötig", "brauchst",
    "brauchen",
];
/// Phrases that say something is no longer forbidden.
#[rustfmt::skip]
const UNBAN_PHRASES: &[&str] = &[
    "no longer forbidden", "not forbidden", "no longer prohibited", "not prohibited", "no longer banned", "not banned",
    "need to avoid", "have to avoid", "need not avoid", "nicht mehr verboten", "nicht verboten", "nicht mehr untersagt", "nicht mehr vermeiden",
];
/// Permissions stated about a thing: `recursion is fine`.
const GRANTING_PHRASES: &[&str] = &[
    "allowed",
    "okay",
    "ok",
    "fine",
    "permitted",
    "acceptable",
    "erlaubt",
    "in ordnung",
    "zulässig",
];
/// Permissions addressed to a person: `you may use recursion`.
const PERMISSION_MODALS: &[&str] = &[
    "may",
    "can",
    "are free to",
    "feel free to",
    "allow",
    "darfst",
    "dürfen",
    "darf",
    "kannst",
    "können",
    "dürft",
    "könnt",
];
/// Whom a permission addresses, or the form in which it is said about a task.
const ADDRESSEES: &[&str] =
    &["you", "we", "free", "be", "i", "du", "ihr", "sie", "wir", "man", "werden"];
/// First words of a question, with or without a question mark.
#[rustfmt::skip]
const QUESTION_STARTS: &[&str] = &[
    "can", "could", "may", "might", "shall", "should", "would", "will", "is", "are", "was", "does", "did", "what", "why", "how", "where",
    "who", "which", "kannst", "können", "darf", "darfst", "dürfen", "soll", "sollen", "ist", "sind", "was", "warum", "wie", "wo", "wer",
];
/// Words that make a statement conditional.
const CONDITIONS: &[&str] =
    &["if", "whether", "unless", "when", "only", "wenn", "falls", "ob", "nur"];
/// Phrases that put one thing in the place of the thing that follows.
const IN_PLACE_OF: &[&str] =
    &["instead of", "rather than", "in place of", "statt", "anstatt", "anstelle von"];

/// A rule, prepared for comparison with the person's words.
struct FactRule {
    /// The words that distinguish it from other rules.
    own: Vec<StatementToken>,
    /// Whether it forbids.
    forbids: bool,
}

impl FactRule {
    fn parse(text: &str) -> Self {
        const TURNS: &[&str] =
            &["only", "nur", "but", "instead", "rather", "over", "free", "statt"];
        let mut own: Vec<StatementToken> = statement::tokenize(text);
        let forbids = own.iter().any(|token| {
            let word = token.lower.as_str();
            token.class == WordClass::Negation
                || (NEGATIVE_WORDS.contains(&word) && !TURNS.contains(&word))
        });
        own.retain(|token| {
            matches!(token.class, WordClass::Content | WordClass::Number | WordClass::Day)
                && !REPORTING_WORDS.contains(&token.lower.as_str())
        });
        let distinct: Vec<StatementToken> =
            own.iter().filter(|token| !is_generic(token)).cloned().collect();
        // If one word is not distinctive, another may be: `Always answer in German` is about
        // answers, too.
        Self { own: if distinct.is_empty() { own } else { distinct }, forbids }
    }

    fn is_distinctive(&self, token: &StatementToken) -> bool {
        let clause = Clause::from_texts([token.lower.as_str()]);
        self.own.iter().any(|own| own.stem == token.stem || clause.has(own))
    }

    /// Whether a clause is about this rule: it has at least half of the rule's words, or all of
    /// them if there are only one or two.
    fn is_mentioned_in(&self, clause: &Clause) -> bool {
        let there = self.own.iter().filter(|token| clause.has_any(token)).count();
        there > 0
            && if self.own.len() <= 2 {
                there == self.own.len()
            } else {
                there * 2 >= self.own.len()
            }
    }

    /// Whether a clause about this rule withdraws it. `now`, `can` or `again` next to a word of the
    /// rule are not enough: the clause must be about nothing else. Stopping, removing or replacing
    /// what a rule forbids obeys the rule.
    fn is_withdrawn_by(&self, part: &str, clause: &Clause) -> bool {
        let words = normalize_sentence(part);
        if clause.asks
            || strip_phrase(&words, QUESTION_STARTS).is_some()
            || has_phrase(&words, CONDITIONS)
        {
            return false;
        }
        let is_revoked = REVOKING_VERBS
            .iter()
            .filter_map(|word| find_phrase(&words, word))
            .any(|at| !has_phrase(&words[..at], DENIALS) && !has_phrase(&words, &["nicht", "nie"]));
        if has_phrase(&words, RULE_NAMES)
            || words.split(' ').any(|word| word.ends_with("regel") || word.ends_with("verbot"))
        {
            return is_revoked || has_phrase(&words, EXPIRY_PHRASES);
        }
        let (foreign_before, foreign) = self.foreign_words(part);
        if self.forbids {
            let is_granted =
                !clause.denies && has_phrase(&words, GRANTING_PHRASES) && !foreign_before;
            let may = !clause.denies
                && has_phrase(&words, PERMISSION_MODALS)
                && has_phrase(&words, ADDRESSEES)
                && !foreign;
            let is_forgotten = is_revoked
                && has_phrase(&words, &["i said", "my mind", "was ich gesagt", "meine meinung"]);
            return is_granted || may || is_forgotten || has_phrase(&words, UNBAN_PHRASES);
        }
        let begins_denied = strip_phrase(
            &words,
            &["do not", "please do not", "bitte keine", "bitte kein", "keine", "kein"],
        )
        .is_some();
        let is_replaced = IN_PLACE_OF
            .iter()
            .filter_map(|phrase| find_phrase(&words, phrase))
            .any(|at| self.is_mentioned_in(&Clause::from_texts([&words[at..]])));
        is_replaced
            || (!foreign_before && (is_revoked || has_phrase(&words, EXPIRY_PHRASES)))
            || (begins_denied && !foreign && !has_phrase(&words, REVOKING_VERBS))
    }

    /// Whether the clause mentions something else before its last relevant word, and whether it
    /// does so at all.
    fn foreign_words(&self, part: &str) -> (bool, bool) {
        let phrases =
            [PERMISSION_WORDS, GRANTING_PHRASES, PERMISSION_MODALS, REVOKING_VERBS, EXPIRY_PHRASES]
                .concat();
        // A word that obeys a prohibition does not withdraw it.
        let marks: BTreeSet<&str> = phrases.iter().flat_map(|phrase| phrase.split(' ')).collect();
        let is_mark =
            |word: &str| marks.contains(word) && !(self.forbids && REVOKING_VERBS.contains(&word));
        let tokens = statement::tokenize(part);
        let is_foreign = |token: &StatementToken| {
            let word = token.lower.as_str();
            let is_said = REPORTING_WORDS.contains(&word) && !NEGATIVE_WORDS.contains(&word);
            token.class == WordClass::Content
                && !self.is_distinctive(token)
                && !is_said
                && !is_generic(token)
                && !is_mark(word)
        };
        let ends_at = tokens
            .iter()
            .rposition(|token| {
                self.is_distinctive(token) || GRANTING_PHRASES.contains(&token.lower.as_str())
            })
            .unwrap_or(0);
        (tokens[..ends_at].iter().any(is_foreign), tokens.iter().any(is_foreign))
    }
}

/// Words that negate what follows.
const DENIALS: &[&str] =
    &["not", "never", "no", "nobody", "cannot", "nicht", "nie", "niemals", "kein", "keine"];

fn is_generic(token: &StatementToken) -> bool {
    GENERIC_WORDS.contains(&token.lower.as_str())
}

/// Why the person's words do not withdraw a rule; `None` if they do.
fn unsupported_withdrawal(rule: &str, asked: &str) -> Option<String> {
    let rule = FactRule::parse(rule);
    let sentences = split_sentences(asked);
    let clauses: Vec<(&str, Clause)> = sentences
        .iter()
        .flat_map(|sentence| split_clauses(sentence))
        .map(|part| (part, Clause::from_texts([part])))
        .filter(|(_, clause)| rule.is_mentioned_in(clause))
        .collect();
    if clauses.iter().any(|(part, clause)| rule.is_withdrawn_by(part, clause)) {
        return None;
    }
    let what = if clauses.is_empty() { "mention it" } else { "say that it no longer holds" };
    Some(format!("the person does not {what}"))
}

/// Why a rule may not get new wording; `None` if the person's own words withdraw it or state the
/// new wording. A clause states it if it is not a question, has the words of the new rule, and says
/// that it holds from now on or always.
pub fn unsupported_replacement(rule: &str, new: &str, asked: &str) -> Option<String> {
    let why = unsupported_withdrawal(rule, asked)?;
    // Adding a value to a rule's list removes nothing from it.
    let more = new
        .strip_prefix(rule.trim().trim_end_matches(['.', ',', ';']))
        .and_then(|more| more.strip_prefix(", "));
    if let Some(more) = more.filter(|_| statement::extended_list(rule, new).is_some()) {
        return unsupported_entry(more, &[asked]);
    }
    if FactRule::parse(rule).forbids != FactRule::parse(new).forbids {
        return Some(why);
    }
    let stated = FactRule { own: content_tokens(new), forbids: false };
    const FROM_NOW: &[&str] = &[
        "from now on",
        "always",
        "never",
        "instead of",
        "in future",
        "ab sofort",
        "ab jetzt",
        "immer",
        "nie",
        "niemals",
        "künftig",
    ];
    let sentences = split_sentences(asked);
    let is_stated = sentences.iter().flat_map(|sentence| split_clauses(sentence)).any(|part| {
        let (clause, words) = (Clause::from_texts([part]), normalize_sentence(part));
        let says_all = stated.own.iter().all(|token| {
            !(token.name || token.class != WordClass::Content) || clause.has_any(token)
        });
        let asks = clause.asks
            || strip_phrase(&words, QUESTION_STARTS).is_some()
            || has_phrase(&words, CONDITIONS);
        !asks && says_all && stated.is_mentioned_in(&clause) && has_phrase(&words, FROM_NOW)
    });
    if is_stated { None } else { Some(why) }
}

/// The content words, numbers and days of a text.
fn content_tokens(text: &str) -> Vec<StatementToken> {
    let mut tokens = statement::tokenize(text);
    tokens.retain(|token| match token.class {
        WordClass::Content => !REPORTING_WORDS.contains(&token.lower.as_str()),
        WordClass::Number | WordClass::Day => true,
        _ => false,
    });
    tokens
}

/// Why the exchange does not say that a fact no longer holds; `None` if it does. A clause that is
/// not a question must mention the fact and say that something changed or ended, or negate what the
/// fact affirms. A rule belongs to the person: only the person's words count against it.
pub fn unsupported_removal(
    fact: &str,
    is_rule: bool,
    asked: &str,
    replied: &str,
) -> Option<String> {
    if is_rule {
        return unsupported_withdrawal(fact, asked);
    }
    let own = content_tokens(fact);
    let denies = statement::tokenize(fact).iter().any(|token| {
        token.class == WordClass::Negation || NEGATIVE_WORDS.contains(&token.lower.as_str())
    });
    let takes_back = |part: &str, clause: &Clause| {
        let words = normalize_sentence(part);
        if mentions_change(&words) || has_phrase(&words, ENDING_WORDS) {
            return true;
        }
        // Denying again what a fact denies confirms it.
        if denies { has_phrase(&words, PERMISSION_WORDS) && !clause.denies } else { clause.denies }
    };
    let mut is_named = false;
    let sentences: Vec<String> =
        [asked, replied].iter().flat_map(|text| split_sentences(text)).collect();
    for part in sentences.iter().flat_map(|sentence| split_clauses(sentence)) {
        let clause = Clause::from_texts([part]);
        if clause.asks || !own.iter().any(|token| clause.has_any(token)) {
            continue;
        }
        is_named = true;
        if takes_back(part, &clause) {
            return None;
        }
    }
    Some(format!(
        "the exchange does not {}",
        if is_named { "say that it no longer holds" } else { "mention it" }
    ))
}

/// Splits a text into sentences; the period of `2. April` does not end one.
fn split_sentences(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in split_lines(text) {
        let is_ordinal = |last: &&mut String| {
            last.strip_suffix(". ")
                .is_some_and(|before| before.ends_with(|c: char| c.is_ascii_digit()))
        };
        match found.last_mut().filter(is_ordinal) {
            Some(last) => last.push_str(line),
            None => found.push(line.to_owned()),
        }
    }
    found
}

/// The parts of a sentence that make a statement of their own.
fn split_clauses(line: &str) -> Vec<&str> {
    let marks = line.split([',', ':', '(', ')', '–', '—']);
    let joined = marks
        .flat_map(|part| part.split(" but "))
        .flat_map(|part| part.split(" aber "))
        .flat_map(|part| part.split(" sondern "));
    joined.filter(|part| !part.trim().is_empty()).collect()
}

/// Why the exchange does not support an entry; `None` if it does.
pub fn unsupported_entry(entry: &str, exchange: &[&str]) -> Option<String> {
    let tokens = statement::tokenize(entry);
    let telling = |token: &&StatementToken| {
        token.class == WordClass::Content && !REPORTING_WORDS.contains(&token.lower.as_str())
    };
    if !tokens.iter().any(|token| token.class != WordClass::StopWord) {
        return Some("it has no content words".into());
    }
    let said: Vec<Clause> = exchange.iter().flat_map(|text| clauses(text)).collect();
    let all = Clause::from_texts(exchange.iter().flat_map(|text| split_lines(text)));
    let mut missing: Vec<String> = Vec::new();
    for token in &tokens {
        let known = match token.class {
            WordClass::Number => all.has_number(&token.word),
            WordClass::Day => all.stems.contains(&token.stem) || all.has_date_of(&token.word),
            WordClass::Content
                if token.name && !REPORTING_WORDS.contains(&token.lower.as_str()) =>
            {
                all.has(token)
            }
            _ => true,
        };
        if !known && !missing.contains(&token.lower) {
            missing.push(token.lower.clone());
        }
    }
    if let Some(first) = leading_name(entry, &tokens).filter(|first| !all.has(first)) {
        missing.push(first.lower.clone());
    }
    if !missing.is_empty() {
        missing.truncate(MAX_LISTED_WORDS);
        return Some(format!("the exchange does not contain: {}", missing.join(", ")));
    }
    let wanted: Vec<&StatementToken> = tokens.iter().filter(telling).collect();
    let together = |at: usize| -> bool {
        let joined = |one: Option<&&StatementToken>, other: Option<&&StatementToken>| matches!((one, other), (Some(one), Some(other)) if all.words.contains(&format!("{}{}", one.word, other.word)));
        joined(wanted.get(at), wanted.get(at + 1))
            || at.checked_sub(1).is_some_and(|before| joined(wanted.get(before), wanted.get(at)))
    };
    let there =
        wanted.iter().enumerate().filter(|(at, token)| all.has(token) || together(*at)).count();
    if there * 100 < wanted.len() * MIN_SUPPORTED_PERCENT && !is_only_label_new(entry, &all) {
        return Some(format!(
            "only {there} of its {} content words are in the exchange",
            wanted.len()
        ));
    }
    // A preference or decision without words of its own comes from the summarizer alone.
    if wanted.is_empty()
        && !tokens.iter().any(|token| matches!(token.class, WordClass::Number | WordClass::Day))
    {
        let own: Vec<&StatementToken> =
            tokens.iter().filter(|token| token.class == WordClass::Content).collect();
        if !own.is_empty() && !own.iter().any(|token| all.has(token)) {
            return Some("none of its words are in the exchange".into());
        }
    }
    polarity_conflict(&tokens, &wanted, &said)
}

/// Whether only the label was added by the summarizer: `Database: Postgres` where the exchange
/// mentions Postgres. A number under a different label is a different claim.
fn is_only_label_new(entry: &str, all: &Clause) -> bool {
    let reading = ParsedStatement::parse(entry);
    let label =
        reading.key.as_ref().is_some_and(|key| key.head == KeyHead::Key && key.words.len() <= 2);
    let value: Vec<&StatementToken> =
        reading.value.iter().filter(|token| token.class != WordClass::StopWord).collect();
    label
        && !value.is_empty()
        && value.iter().all(|token| token.class == WordClass::Content && all.has(token))
}

/// Whether the clauses about the same things say the opposite, or only ask.
fn polarity_conflict(
    tokens: &[StatementToken],
    wanted: &[&StatementToken],
    said: &[Clause],
) -> Option<String> {
    let shared = |clause: &Clause| wanted.iter().filter(|token| clause.has(token)).count();
    let most = said.iter().map(shared).max().unwrap_or(0);
    if most == 0 {
        return None;
    }
    let near: Vec<&Clause> = said.iter().filter(|clause| shared(clause) == most).collect();
    let denies = tokens.iter().any(|token| token.class == WordClass::Negation);
    let averse = tokens.iter().any(|token| NEGATIVE_WORDS.contains(&token.lower.as_str()));
    if !averse && near.iter().all(|clause| clause.denies != denies && !clause.averse) {
        return Some("it contradicts the exchange".into());
    }
    let settled = tokens.iter().any(|token| DECISION_WORDS.contains(&token.lower.as_str()));
    if settled && near.iter().all(|clause| clause.asks) {
        return Some("the exchange only asks about it".into());
    }
    None
}

/// A name at the start of the entry, where its capital letter is not evidence.
fn leading_name<'a>(entry: &str, tokens: &'a [StatementToken]) -> Option<&'a StatementToken> {
    let first = tokens.first().filter(|token| {
        token.class == WordClass::Content && !REPORTING_WORDS.contains(&token.lower.as_str())
    })?;
    let raw = entry.split_whitespace().next()?;
    if raw.ends_with(':') || !raw.starts_with(char::is_uppercase) {
        return None;
    }
    const ACTS: &[&str] = &[
        "is", "was", "has", "will", "must", "can", "lives", "works", "likes", "prefers", "wants",
        "owns", "said", "ist", "hat", "wohnt", "arbeitet", "est", "habite", "es", "vive", "tiene",
    ];
    let next = tokens.get(1)?;
    (first.owner || ACTS.contains(&next.lower.as_str())).then_some(first)
}

/// A clause of the exchange, and what it states.
struct Clause {
    stems: BTreeSet<String>,
    words: BTreeSet<String>,
    /// Without spaces and punctuation, for names that are written as one word or as two.
    joined: String,
    denies: bool,
    averse: bool,
    asks: bool,
}

impl Clause {
    fn from_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut clause = Self {
            stems: BTreeSet::new(),
            words: BTreeSet::new(),
            joined: " ".into(),
            denies: false,
            averse: false,
            asks: false,
        };
        for text in texts {
            clause.asks |= text.trim_end().ends_with('?');
            for token in statement::tokenize(text) {
                clause.denies |= token.class == WordClass::Negation;
                clause.averse |= NEGATIVE_WORDS.contains(&token.lower.as_str());
                clause.joined.push_str(&fold_word(&token.lower));
                clause.words.insert(token.word);
                clause.words.insert(fold_word(&token.lower));
                clause.stems.insert(token.stem);
            }
        }
        clause
    }

    fn has(&self, token: &StatementToken) -> bool {
        if self.stems.contains(&token.stem) || self.words.contains(&token.word) {
            return true;
        }
        let long = token.stem.chars().count();
        // "recursion" and "recursive", "deploys" and "deployment": a common prefix makes them the
        // same word.
        let kin = long >= 5
            && !token.name
            && self.stems.iter().any(|stem| {
                let shared = stem
                    .chars()
                    .zip(token.stem.chars())
                    .take_while(|(one, other)| one == other)
                    .count();
                shared >= 5
                    && shared * 10 >= long.min(stem.chars().count()) * 8
                    && shared * 10 >= long * 6
            });
        kin || (long >= 5 && self.joined.contains(&token.word))
            || self.stems.iter().any(|stem| statement::is_misspelling(stem, &token.stem))
    }

    fn has_any(&self, token: &StatementToken) -> bool {
        if token.class == WordClass::Number {
            self.has_number(&token.word)
        } else {
            self.has(token)
        }
    }

    fn has_number(&self, number: &str) -> bool {
        let same = |known: &str| {
            known == number
                || known.trim_end_matches(".0") == number.trim_end_matches(".0")
                // "May 3, 2026" contains "2026-05-03" only in parts, so each part must be present.
                || known.strip_suffix(char::is_alphabetic).is_some_and(|bare| bare == number)
                || number.strip_suffix(char::is_alphabetic).is_some_and(|bare| bare == known)
        };
        // "2026-05-03" contains "3 May".
        let day = |word: &String| {
            word.parse::<jiff::civil::Date>().is_ok_and(|date| {
                date.day().to_string() == number || date.year().to_string() == number
            })
        };
        if self.words.iter().any(|word| same(word) || day(word)) {
            return true;
        }
        // A thousand may be written `1k` or `1.000`.
        let thousands = |text: &str| text.strip_suffix('k').map(|bare| format!("{bare}000"));
        let grouped = |text: &str| {
            let groups: Vec<&str> = text.split('.').collect();
            let whole = groups.len() > 1
                && groups.iter().skip(1).all(|group| {
                    group.len() == 3 && group.bytes().all(|byte| byte.is_ascii_digit())
                });
            whole.then(|| groups.concat())
        };
        let forms =
            |text: &str| [thousands(text), grouped(text)].into_iter().flatten().collect::<Vec<_>>();
        let mine = forms(number);
        if self.words.iter().any(|word| {
            mine.contains(word)
                || forms(word).iter().any(|form| form == number || mine.contains(form))
        }) {
            return true;
        }
        match number.parse::<jiff::civil::Date>() {
            Ok(day) => {
                let month = [
                    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov",
                    "dec",
                ];
                let month = usize::try_from(day.month() - 1)
                    .ok()
                    .and_then(|at| month.get(at))
                    .copied()
                    .unwrap_or_default();
                self.words.contains(&day.day().to_string()) && self.words.contains(month)
            }
            Err(_) => false,
        }
    }

    /// Whether the clause has a date in digits in this month.
    fn has_date_of(&self, month: &str) -> bool {
        let months =
            ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        let Some(at) = months.iter().position(|known| *known == month) else { return false };
        self.words
            .iter()
            .filter_map(|word| word.parse::<jiff::civil::Date>().ok())
            .any(|day| usize::try_from(day.month()).is_ok_and(|month| month == at + 1))
    }
}

/// The lines of a text, in pieces that can be parsed separately.
fn split_lines(text: &str) -> Vec<&str> {
    text.split_inclusive(['\n', '!', '?', ';'])
        .flat_map(|line| line.split_inclusive(". "))
        .filter(|line| !line.trim().is_empty())
        .collect()
}

fn clauses(text: &str) -> Vec<Clause> {
    let mut found = Vec::new();
    for line in split_lines(text) {
        found.push(Clause::from_texts([line]));
        let parts: Vec<&str> = line
            .split([',', ':', '(', ')'])
            .flat_map(|part| part.split(" but "))
            .flat_map(|part| part.split(" aber "))
            .flat_map(|part| part.split(" and "))
            .collect();
        if parts.len() > 1 {
            found.extend(parts.into_iter().map(|part| Clause::from_texts([part])));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(supported: bool, rows: &[(&str, &[&str])]) {
        let wrong: Vec<String> = rows
            .iter()
            .filter_map(|(entry, exchange)| {
                let why = unsupported_entry(entry, exchange);
                (why.is_none() != supported).then(|| format!("{entry} / {exchange:?}: {why:?}"))
            })
            .collect();
        assert!(wrong.is_empty(), "should be supported: {supported}\n{}", wrong.join("\n"));
    }

    // C8
    #[test]
    fn an_honest_paraphrase_stands() {
        #[rustfmt::skip]
        check(true, &[
            ("User prefers iterative over recursive solutions", &["Please refactor it to be iterative, I don't like recursion", "Here is an iterative quicksort."]),
            ("Sorting function: now iterative quicksort, O(n log n)", &["make the sorting function iterative", "Done: iterative quicksort, still O(n log n) on average."]),
            ("Python version: 3.12", &["We are on Python v3.12 now", "Good."]),
            ("Budget: 1,000 EUR", &["our budget is 1000 €", "ok"]),
            ("Budget: 1000 EUR", &["our budget is 1,000 EUR", "ok"]),
            ("User lives in Rome", &["I live in Rome by the way", "Lovely city!"]),
            ("User dislikes cilantro", &["I don't like cilantro", "Noted."]),
            ("Never deploy on Fridays", &["we must never deploy on Fridays", "Understood."]),
            ("Do not use GPL libraries", &["We can't use GPL libraries.", "I will pick MIT ones."]),
            ("Database: Postgres", &["not MySQL, Postgres please", "Switching to Postgres."]),
            ("User decided on Postgres", &["Should we take Postgres? Yes, let's go with Postgres.", "Fine."]),
            ("Deadline: 2026-05-03", &["the deadline is May 3, 2026", "ok"]),
            ("Deadline: 3 May", &["it is due 2026-05-03", "The deadline is noted."]),
            ("The function returns Option<u32>", &["what does it return", "The function returns `Option<u32>`."]),
            ("User has two cats", &["my 2 cats keep me awake", "Poor you."]),
            ("API port: 8080", &["the API runs on port 8080", "ok"]),
            ("Anna works at Siemens", &["My colleague Anna is at Siemens", "ok"]),
            ("User is vegetarian", &["I don't eat meat, I'm vegetarian", "ok"]),
            ("Nutzer wohnt in Rom", &["Ich wohne in Rom", "Schön!"]),
            ("Nutzer mag keinen Kaffee", &["Ich mag keinen Kaffee", "Alles klar."]),
            ("L'utilisateur habite à Lyon", &["J'habite à Lyon", "D'accord."]),
            ("El usuario prefiere té", &["Prefiero el té", "Vale."]),
            ("User uses PostgreSQL 16", &["We run Postgres 16", "ok"]),
            ("Time zone: CET", &["my timezone is CET", "ok"]),
            ("Responses must be under 100 words", &["Keep all responses under 100 words", "Will do."]),
        ]);
    }

    // C8
    #[test]
    fn what_was_not_said_is_refused() {
        #[rustfmt::skip]
        check(false, &[
            ("User lives in Berlin", &["I live in Rome", "Lovely city!"]),
            ("Python version: 3.13", &["We are on Python 3.12", "ok"]),
            ("Budget: 2000 EUR", &["our budget is 1000 EUR", "ok"]),
            ("User has a dog named Rex", &["I have a dog", "Nice!"]),
            ("User prefers dark mode", &["Make the sorting function iterative", "Done."]),
            ("User likes cilantro", &["I don't like cilantro", "Noted."]),
            ("User does not like cilantro", &["I like cilantro", "Noted."]),
            ("Deploy on Fridays", &["never deploy on Fridays", "Understood."]),
            ("User decided on Postgres", &["Should we take Postgres?", "It depends on your load."]),
            ("Deadline: 2026-05-04", &["the deadline is May 3, 2026", "ok"]),
            ("Anna works at Bosch", &["My colleague Anna is at Siemens", "ok"]),
            ("Bert is the project lead", &["The project lead is on holiday", "ok"]),
            ("Carol owns the billing service", &["Who owns the billing service?", "I do not know."]),
            ("API port: 9090", &["the API runs on port 8080", "ok"]),
            ("User is a doctor in Hamburg", &["What time is it?", "It is noon."]),
            ("The library is licensed under MIT", &["which library is this", "It is serde."]),
            ("Meeting on Tuesday", &["the meeting is on Monday", "ok"]),
            ("Nutzer wohnt in Berlin", &["Ich wohne in Rom", "Schön!"]),
            ("Nutzer mag Kaffee", &["Ich mag keinen Kaffee", "Alles klar."]),
            ("L'utilisateur aime le café", &["Je n'aime pas le café", "D'accord."]),
            ("El usuario come carne", &["No como carne", "Vale."]),
            ("", &["hello", "hi"]),
            ("the", &["hello", "hi"]),
            ("User allocated 40 hours per week", &["I have some hours per week", "Good."]),
            ("Framework: React 18", &["we use React 17", "ok"]),
            ("Budget: 500 EUR", &["the rent is 500 EUR", "ok"]),
            ("Editor: Emacs", &["I do not use Emacs", "ok"]),
            ("Deadline: 4 May", &["it is due 2026-05-03", "The deadline is noted."]),
        ]);
    }

    /// Facts, whether they are hard, what the person said and what the model replied.
    fn check_removals(supported: bool, rows: &[(&str, &str, &str)]) {
        let wrong: Vec<String> = rows
            .iter()
            .filter_map(|(fact, asked, replied)| {
                let why = unsupported_removal(
                    fact,
                    crate::converse::conversation_facts::is_hard(fact),
                    asked,
                    replied,
                );
                (why.is_none() != supported)
                    .then(|| format!("{fact} / {asked} / {replied}: {why:?}"))
            })
            .collect();
        assert!(wrong.is_empty(), "should be supported: {supported}\n{}", wrong.join("\n"));
    }

    // C5, C8, C10
    #[test]
    fn what_the_exchange_takes_back_may_go() {
        #[rustfmt::skip]
        check_removals(true, &[
            ("Python version: 3.11", "We moved from Python 3.11 to 3.12", "ok"),
            ("Python version: 3.11", "we no longer use Python 3.11", "ok"),
            ("Postgres version: 15", "We dropped Postgres, MySQL it is", "ok"),
            ("Postgres version: 15", "make it run", "I removed Postgres, since SQLite is enough."),
            ("Deadline: 12 March 2027", "The deadline moved to 2 April", "Noted."),
            ("Deadline: 12 March 2027", "the deadline was postponed", "ok"),
            ("Budget: 1000 EUR", "The budget was cut to 500", "ok"),
            ("User lives in Rome", "I don't live in Rome any more", "Where to?"),
            ("User has a dog named Rex", "Rex was not my dog, I only walked him", "I see."),
            ("Meeting on Tuesday", "The Tuesday meeting is cancelled", "ok"),
            ("Framework: React 17", "we switched from React to Svelte", "ok"),
            ("Split the worker by carrier", "Forget about splitting the worker", "Fine."),
            ("Never use recursion", "You may use recursion again", "Good."),
            ("Never use recursion in any code you write for me", "Recursion is fine in tests", "ok"),
            ("Never use recursion", "the rule about recursion no longer holds", "ok"),
            ("Always include a rollback step", "you need not include a rollback step", "ok"),
            ("You must always use tabs", "Forget the tabs rule", "ok"),
            ("Never deploy on Fridays", "From now on deploys on Fridays are allowed", "ok"),
            ("Nutzer wohnt in Rom", "Ich wohne nicht mehr in Rom", "Oh!"),
            ("Frist: 12. März", "Die Frist ist auf den 2. April verschoben", "ok"),
            ("Datenbank: Postgres", "Postgres haben wir durch MySQL ersetzt", "ok"),
            ("Nie freitags ausliefern", "Freitags darfst du wieder ausliefern", "Gut."),
            ("Niemals Rekursion verwenden", "Rekursion ist jetzt erlaubt", "ok"),
            ("Termin am Dienstag", "Der Termin am Dienstag ist abgesagt", "ok"),
            // Rules.
            ("Never use recursion", "recursion is fine now", "ok"),
            ("Never use recursion in any code you write for me", "You may use recursion again", "ok"),
            ("Never use recursion", "I think recursion is okay from now on", "ok"),
            ("Never use recursion", "Recursion is no longer forbidden", "ok"),
            ("Never use recursion", "Forget the no-recursion rule", "ok"),
            ("Never use recursion", "The ban on recursion is lifted", "ok"),
            ("Never use recursion", "Recursion may be used again", "ok"),
            ("Never use recursion", "I changed my mind about recursion", "ok"),
            ("Niemals Rekursion verwenden", "Du darfst wieder Rekursion verwenden", "Gut."),
            ("Niemals Rekursion verwenden", "Rekursion ist ab sofort in Ordnung", "Gut."),
            ("Niemals Rekursion verwenden", "Das Rekursionsverbot gilt nicht mehr", "Gut."),
            ("Always include a rollback step", "Skip the rollback step", "ok"),
            ("You must always use tabs", "Use spaces instead of tabs", "ok"),
            ("You must always use tabs", "We switched from tabs to spaces", "ok"),
            ("Always answer in German", "You no longer have to answer in German", "ok"),
            ("Immer auf Deutsch antworten", "Du musst nicht mehr auf Deutsch antworten", "ok"),
            ("The budget must be at most 1000 EUR", "The budget was raised to 2000 EUR", "ok"),
        ]);
    }

    // C5, C8, C10
    #[test]
    fn what_the_exchange_does_not_take_back_stays() {
        #[rustfmt::skip]
        check_removals(false, &[
            // The fact was not mentioned.
            ("Never use recursion", "The deadline for the Kestrel beta is 12 March 2027", "Noted."),
            ("Python version: 3.11", "The deadline for the Kestrel beta is 12 March 2027", "Noted."),
            ("Postgres version: 15", "The deadline for the Kestrel beta is 12 March 2027", "Noted."),
            ("Python version: 3.12", "My colleague Jonas takes over the carrier adapters", "Welcome, Jonas."),
            ("dependencies: wheels for Python 3.12", "The deadline moved to 16 April 2027", "Noted."),
            ("Never use recursion", "Thanks for everything today. See you tomorrow.", "Bye!"),
            ("Never use recursion in any code you write for me", "lol ok", ":)"),
            ("User lives in Rome", "I no longer like coffee", "ok"),
            // It was mentioned, and nothing changed.
            ("Python version: 3.12", "Which wheels are there for Python 3.12?", "Most of them."),
            ("Postgres version: 15", "Write a query for Postgres 15", "Here it is."),
            ("Deadline: 12 March 2027", "The deadline is 12 March 2027", "Noted."),
            ("Database: Postgres", "Should we drop Postgres?", "It depends."),
            ("User likes tea", "I like tea, but I no longer drink coffee", "ok"),
            ("User dislikes cilantro", "I don't like cilantro", "Noted."),
            ("Framework: React 17", "We use React for the front end (not for the admin pages)", "ok"),
            // Repeating a rule confirms it; the model's words do not remove a rule.
            ("Never use recursion", "Remember: never use recursion!", "Understood."),
            ("Never deploy on Fridays", "Do not deploy on Fridays", "Never."),
            ("Never use recursion", "write a tree walk", "I use recursion here, since it is fine now."),
            ("You must always include a rollback step", "write the migration", "I dropped the rollback step, it is no longer needed."),
            ("Always answer in German", "What is the capital of Spain?", "Madrid. From now on I no longer answer in German."),
            ("Never use recursion", "Can you use recursion?", "No."),
            ("Nutzer wohnt in Rom", "Ich mag keinen Kaffee mehr", "Alles klar."),
            ("Nutzer wohnt in Rom", "In Rom ist es heute warm", "Schön!"),
            ("Nie freitags ausliefern", "Danke für alles, bis morgen", "Bis dann!"),
            ("Nie freitags ausliefern", "Denk daran: nie freitags ausliefern", "Klar."),
            ("Datenbank: Postgres", "Sollen wir Postgres ersetzen?", "Kommt darauf an."),
            ("Frist: 12. März", "Was ist bis zur Frist zu tun?", "Viel."),
            // A common word of a rule beside a common word of change.
            ("Never use recursion", "Now use pandas for it", "ok"),
            ("Never use recursion in any code you write for me", "You can write the code now", "ok"),
            ("Never use recursion in any code you write for me", "The code is fine now", "ok"),
            ("Never use recursion in any code you write for me", "Okay, write it again", "ok"),
            ("Never deploy on Fridays", "You can deploy now", "ok"),
            ("Never deploy on Fridays", "The deploy is done", "ok"),
            ("Never deploy on Fridays", "On Fridays I can work from home again", "ok"),
            ("Niemals Rekursion verwenden", "Jetzt pandas verwenden", "Gut."),
            ("Verwende in meinem Code niemals Rekursion", "Du kannst den Code jetzt schreiben", "Gut."),
            ("Nie freitags ausliefern", "Du kannst jetzt ausliefern", "Gut."),
            ("Nie freitags ausliefern", "Am Freitag kann ich wieder arbeiten", "Gut."),
            // Clauses that mention a rule's subject and obey it.
            ("Never use recursion", "Explain recursion to me now", "ok"),
            ("Never use recursion", "You used recursion again", "Sorry."),
            ("Never use recursion", "Stop using recursion", "ok"),
            ("Never use recursion", "Remove the recursion and use a loop instead", "ok"),
            ("Never use recursion", "Use a loop instead of recursion", "ok"),
            ("Never use recursion", "From now on never use recursion", "ok"),
            ("Never use recursion", "Do not use recursion any more", "ok"),
            ("Never use recursion", "Recursion can overflow the stack", "Yes."),
            ("Never use recursion", "My colleague says recursion is fine", "Hm."),
            ("Never use recursion", "can you use recursion", "No."),
            ("Never use recursion", "Do not forget the recursion rule", "No."),
            ("Niemals Rekursion verwenden", "Du hast wieder Rekursion verwendet", "Verzeihung."),
            ("Niemals Rekursion verwenden", "Vergiss die Regel zur Rekursion nicht", "Nein."),
            ("Niemals Rekursion verwenden", "Entferne jetzt die Rekursion", "Gut."),
            ("Always include a rollback step", "Do not forget the rollback step", "ok"),
            ("Always include a rollback step", "You did not include a rollback step", "Sorry."),
            ("You must always use tabs", "Use tabs instead of spaces", "ok"),
            ("Always answer in German", "Answer the question now", "ok"),
        ]);
    }

    // C8, C10
    #[test]
    fn only_the_persons_words_give_a_rule_other_words() {
        #[rustfmt::skip]
        let rows = [
            (true, "Answer language: always German", "Answer language: English", "From now on answer in English"),
            (true, "Never deploy on Fridays", "Never deploy on Fridays or Mondays", "Never deploy on Fridays or Mondays, please"),
            (true, "Never use recursion", "Recursion: allowed", "You may use recursion again"),
            (true, "Antworte immer auf Deutsch", "Antworte immer auf Englisch", "Antworte ab jetzt immer auf Englisch"),
            (true, "Forbidden libraries: never GPL", "Forbidden libraries: never GPL, AGPL", "AGPL is forbidden too"),
            (false, "Answer language: always German", "Answer language: English", "What is the capital of Spain?"),
            (false, "Answer language: always German", "Answer language: English", "Is English the answer to that?"),
            (false, "Never use recursion", "Recursion: allowed", "Explain recursion from now on"),
            (false, "Never deploy on Fridays", "Never deploy on Mondays", "Deploy it now"),
            (false, "Forbidden libraries: never GPL", "Forbidden libraries: never GPL, AGPL", "What is a library?"),
            (false, "Antworte immer auf Deutsch", "Antworte auf Englisch", "Wie heißt das auf Englisch?"),
        ];
        for (supported, rule, new, asked) in rows {
            let why = unsupported_replacement(rule, new, asked);
            assert_eq!(why.is_none(), supported, "{rule} / {new} / {asked}: {why:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_removal_can_be_held_against_anything(fact in "\\PC{0,80}", asked in "\\PC{0,200}") {
            let _ = unsupported_removal(&fact, true, &asked, "");
            let _ = unsupported_replacement(&fact, &asked, &fact);
        }

        // C8
        #[test]
        fn what_was_said_verbatim_is_supported(words in "[a-z]{4,8}( [a-z]{4,8}){1,6}", number in 1_u32..99_999) {
            let text = format!("{words} {number}");
            proptest::prop_assert_eq!(unsupported_entry(&text, &[&text]), None);
            let other = format!("{words} {}", number + 1);
            proptest::prop_assert!(unsupported_entry(&other, &[&text]).is_some());
        }

        #[test]
        fn anything_can_be_held_against_anything(entry in "\\PC{0,80}", exchange in "\\PC{0,200}") {
            let _ = unsupported_entry(&entry, &[&exchange, ""]);
        }
    }
}
