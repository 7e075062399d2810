//! Equivalence: whether two statements say the same in other words (K8).
//!
//! Dropping a statement as known loses it; storing it twice is only a blemish. Two statements are
//! therefore equivalent only if no distinguishing part differs: no number, day, name, negation or
//! limit, and no content word that is replaced by another. The same subject and attribute with
//! another value is an update.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::LazyLock;

use icecore_text::lexicon::{self, EN_DE, WordList};
use icecore_text::phrase::{expand_contraction, has_listed_phrase};
use jiff::Timestamp;
use jiff::tz::Offset;

use super::due_dates;
use crate::calendar::Moment;
use crate::event::{EventDraft, EventType, Priority};
use crate::id::EventId;
use crate::ledger::conflict;
use crate::sanitize;

/// The relation between two statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equivalence {
    Same,
    /// The same attribute of the same thing, with another value.
    Update,
    Different,
}

/// Minimum share of common content words if each statement has a word that the other lacks and the
/// two are spelled almost alike.
const MIN_SHARED_RATIO: f64 = 0.8;
/// Minimum share of the longer statement's content words in the shorter one, if the shorter has no
/// others.
const MIN_CONTAINED_RATIO: f64 = 0.75;
/// Minimum number of common content words in that case.
const MIN_SHARED_WORDS: usize = 3;
/// Minimum similarity of two spellings of a word.
const MIN_SPELLING_SIMILARITY: f64 = 0.85;
/// Minimum semantic similarity of two statements that say the same, if no distinguishing part
/// differs.
const MIN_MEANING_SIMILARITY: f32 = 0.92;
/// Maximum number of known statements compared with a new one.
const MAX_CANDIDATES: usize = 256;
/// Maximum number of bytes of a statement that are compared.
const MAX_COMPARED_BYTES: usize = 4_000;

/// Words and their canonical synonyms.
const SYNONYMS: &[(&str, &str)] = &[
    ("decid", "decide"),
    ("decision", "decide"),
    ("chose", "decide"),
    ("choos", "decide"),
    ("chosen", "decide"),
    ("pick", "decide"),
    ("picked", "decide"),
    ("settl", "decide"),
    ("agre", "decide"),
    ("select", "decide"),
    ("opt", "decide"),
    ("entschied", "decide"),
    ("entscheidung", "decide"),
    ("beschloss", "decide"),
    ("used", "us"),
    ("using", "us"),
    ("utilis", "us"),
    ("utiliz", "us"),
    ("employ", "us"),
    ("prefer", "prefer"),
    ("preferr", "prefer"),
    ("preference", "prefer"),
    ("preferenc", "prefer"),
    ("favour", "prefer"),
    ("email", "mail"),
    ("e-mail", "mail"),
    ("purchas", "buy"),
    ("bought", "buy"),
    ("sent", "send"),
    ("wrote", "writ"),
    ("written", "writ"),
    ("ran", "run"),
    ("runn", "run"),
    ("begin", "start"),
    ("began", "start"),
    ("begun", "start"),
    ("begins", "start"),
    ("euro", "eur"),
    ("dollar", "usd"),
    ("deployment", "deploy"),
    ("db", "databas"),
    ("repo", "repository"),
    ("repositori", "repository"),
    ("favorit", "favourit"),
    ("colour", "color"),
    ("phon", "phone"),
    ("telephone", "phone"),
    ("telephon", "phone"),
    ("kept", "keep"),
    ("paid", "pay"),
    ("meet", "meet"),
    ("met", "meet"),
    ("liv", "live"),
    ("resid", "live"),
];
/// Stems of attributes that have one value at a time.
#[rustfmt::skip]
const ATTRIBUTES: &[&str] = &[
    "budget", "pric", "version", "deadlin", "limit", "port", "meet", "appointment", "releas", "launch", "cost", "rate", "rat", "salary",
    "address", "phone", "number", "capacity", "siz", "quota", "timeout", "kickoff", "demo", "review", "birthday", "start", "ag", "rent",
    "fee", "discount", "termin", "preis", "frist", "miete", "miet", "deadline", "call", "interview", "workshop", "pilot",
];
/// Words that only say something changed or was decided, not what.
#[rustfmt::skip]
const CHANGE_WORDS: &[&str] =
&[
    "decide", "mov", "chang", "reschedul", "postpon", "updat", "rais", "lower", "switch", "set", "verschob", "geändert",
];
/// Words that make the order of the words around them significant.
#[rustfmt::skip]
const DIRECTIONAL_WORDS: &[&str] = &[
    "from", "over", "than", "before", "after", "instead", "into", "against", "rather", "report", "reports", "talks", "sends", "owes",
    "pays", "sells", "copy", "move", "replace", "replaces", "replaced", "depends", "calls", "owns", "belongs", "von", "nach", "vor",
    "statt", "an",
];
static SYNONYM_OF: LazyLock<HashMap<&'static str, &'static str>> =
    LazyLock::new(|| SYNONYMS.iter().copied().collect());

/// The stem of a word, with synonyms mapped to one word.
pub(crate) fn stem(word: &str) -> String {
    let word = word.strip_suffix("'s").or_else(|| word.strip_suffix('\'')).unwrap_or(word);
    let cut = |ending: &str, least: usize| {
        word.strip_suffix(ending).filter(|rest| rest.chars().count() >= least)
    };
    let stem = cut("ing", 3)
        .or_else(|| cut("ies", 3))
        .or_else(|| cut("ied", 3))
        .or_else(|| cut("ed", 3).filter(|_| !word.ends_with("eed")))
        .or_else(|| {
            cut("es", 3)
                .filter(|rest| rest.ends_with(['s', 'x', 'z', 'h', 'i', 'o', 'v', 'c', 'g']))
        })
        .or_else(|| cut("s", 3).filter(|rest| !rest.ends_with(['s', 'u', 'i'])))
        .or_else(|| cut("en", 5))
        .unwrap_or(word);
    let stem = stem.strip_suffix('e').filter(|rest| rest.chars().count() >= 2).unwrap_or(stem);
    let stem =
        stem.strip_suffix('y').filter(|rest| rest.chars().count() >= 4).map_or(stem, |rest| rest);
    SYNONYM_OF.get(stem).or_else(|| SYNONYM_OF.get(word)).copied().unwrap_or(stem).to_owned()
}

/// The features by which a statement is compared.
#[derive(Debug, Clone)]
pub(crate) struct StatementProfile {
    key: String,
    /// The content words in order, with repetitions.
    order: Vec<String>,
    /// The content words without repetitions.
    pub(crate) stems: BTreeSet<String>,
    names: BTreeSet<String>,
    numbers: Vec<String>,
    dates: Vec<String>,
    marks: Vec<&'static str>,
    directed: bool,
    claims: Vec<(String, String)>,
}

impl StatementProfile {
    pub(crate) fn new(text: &str) -> Self {
        let text = super::truncate_at_char(text, MAX_COMPARED_BYTES);
        let mut profile = Self {
            key: sanitize::sameness_key(text),
            order: Vec::new(),
            stems: BTreeSet::new(),
            names: BTreeSet::new(),
            numbers: Vec::new(),
            dates: Vec::new(),
            marks: Vec::new(),
            directed: false,
            claims: claims(text),
        };
        let mut begins = true;
        for raw in text.split(|c: char| {
            c.is_whitespace() || matches!(c, '—' | '–' | ';' | '|' | '(' | ')' | '"')
        }) {
            profile.add_word(raw, begins);
            if raw.contains(char::is_alphanumeric) {
                begins = raw.ends_with(['.', ':', '!', '?']);
            }
        }
        profile.stems = profile.order.iter().cloned().collect();
        profile.marks.sort_unstable();
        profile.marks.dedup();
        profile
    }

    /// The profile of a text of any length; it has only the content words.
    pub(crate) fn of_long_text(text: &str) -> Self {
        let mut profile = Self::new("");
        for raw in text.split(|c: char| {
            c.is_whitespace() || matches!(c, '—' | '–' | ';' | '|' | '(' | ')' | '"')
        }) {
            profile.add_word(raw, true);
        }
        profile.stems = profile.order.iter().cloned().collect();
        profile
    }

    fn add_word(&mut self, raw: &str, begins: bool) {
        for (sign, word) in [('€', "eur"), ('$', "usd"), ('%', "percent"), ('£', "gbp")] {
            if raw.contains(sign) {
                self.order.push(word.into());
            }
        }
        let word = raw
            .trim_start_matches(|c: char| !c.is_alphanumeric())
            .trim_end_matches(|c: char| !c.is_alphanumeric() && !"+#".contains(c));
        let lower = word.to_lowercase().replace('’', "'");
        let (first, rest) = expand_contraction(&lower);
        let first = if first == "can" && rest == "not" { "cannot" } else { first };
        if rest.ends_with("not") && first != "cannot" {
            self.marks.push("not");
        }
        if first.is_empty() {
            return;
        }
        self.directed |= DIRECTIONAL_WORDS.contains(&first);
        if let Some(number) = lexicon::number(first) {
            self.numbers.push(number.to_string());
        } else if first.contains(|c: char| c.is_ascii_digit()) {
            // "15th" is 15, "1,500" is 1500.
            let number = ["st", "nd", "rd", "th"]
                .iter()
                .find_map(|ending| first.strip_suffix(ending))
                .unwrap_or(first);
            self.numbers.push(number.replace([',', '_'], ""));
        } else if let Some(day) = due_dates::weekday_of(first) {
            self.dates.push(format!("day {day}"));
        } else if let Some(month) =
            lexicon::month(first).filter(|_| first != "may" || word.starts_with('M'))
        {
            self.dates.push(format!("month {}", month.number));
        } else if WordList::Day.has(EN_DE, first) {
            self.dates.push(first.to_owned());
        } else if let Some(limit) = WordList::Limit.find(EN_DE, first) {
            self.marks.push(limit);
        } else if WordList::Negation.has(EN_DE, first) || WordList::Reversal.has(EN_DE, first) {
            self.marks.push("not");
        } else if !WordList::StatementStop.contains(first) {
            let stem = stem(first);
            if word.starts_with(char::is_uppercase) && !begins {
                self.names.insert(stem.clone());
            }
            self.order.push(stem);
        }
    }

    pub(crate) fn is_negated(&self) -> bool {
        self.marks.contains(&"not")
    }

    /// Whether everything that must be equal is equal: numbers, days, names, negations, limits.
    fn agrees_on_details(&self, other: &Self) -> bool {
        self.numbers == other.numbers
            && self.dates == other.dates
            && self.marks == other.marks
            && self.agrees_on_names(other)
    }

    /// Whether every name of either statement is a word of the other, in the same order: who
    /// reports to whom.
    fn agrees_on_names(&self, other: &Self) -> bool {
        let names: BTreeSet<&String> = self.names.union(&other.names).collect();
        let sequence = |profile: &'_ Self| -> Vec<String> {
            let mut all: Vec<String> =
                profile.order.iter().filter(|stem| names.contains(stem)).cloned().collect();
            all.dedup();
            all
        };
        sequence(self) == sequence(other)
    }

    fn hard_stems(&self) -> BTreeSet<&String> {
        self.stems.iter().filter(|stem| !CHANGE_WORDS.contains(&stem.as_str())).collect()
    }
}

/// The statement's claims about attributes that have one value at a time, as the ledger reads them,
/// without the uncertain ones.
fn claims(text: &str) -> Vec<(String, String)> {
    // Most statements give no attribute a value; this check avoids parsing them.
    let stated = |word: &str| {
        let word = word.to_lowercase();
        word.ends_with(':')
            || ["is", "are", "lives", "works", "moved", "costs", "runs", "=", "equals"]
                .contains(&word.as_str())
    };
    if !text.split_whitespace().any(stated) {
        return Vec::new();
    }
    // "is now 500" and "is 500" make the same claim.
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| {
            !["now", "jetzt", "nun", "currently", "instead"]
                .contains(&word.to_lowercase().trim_matches([',', '.', '!']))
        })
        .collect();
    let moment = Moment::new(Timestamp::UNIX_EPOCH, Offset::UTC);
    let content = words.join(" ");
    let event = EventDraft::new(moment, EventType::Fact, Priority::P2, content)
        .with_id(EventId::new(moment.day(), 1));
    let named = |value: &str| {
        let first = value.split_whitespace().next().unwrap_or_default();
        words.iter().any(|word| {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            word.starts_with(char::is_uppercase) && word.to_lowercase() == first
        })
    };
    conflict::claims(&event)
        .into_iter()
        // A claim and its negation are neither the same nor an update.
        .filter(|claim| !claim.attribute.contains('±'))
        // A person or thing "is" many things at once, unless the value is a name or a number.
        .filter(|claim| {
            let bare = claim.attribute.ends_with(" is") || claim.attribute.ends_with(" are");
            !bare || named(&claim.value)
        })
        .map(|claim| {
            let attribute =
                claim.attribute.splitn(3, '|').nth(2).unwrap_or_default().trim().to_owned();
            (attribute.strip_prefix("the ").unwrap_or(&attribute).to_owned(), claim.value)
        })
        .collect()
}

/// Compares two statements.
pub fn compare_statements(one: &str, other: &str) -> Equivalence {
    compare_profiles(&StatementProfile::new(one), &StatementProfile::new(other))
}

fn compare_profiles(one: &StatementProfile, other: &StatementProfile) -> Equivalence {
    if one.key == other.key {
        return Equivalence::Same;
    }
    for (attribute, value) in &one.claims {
        if let Some((_, known)) = other.claims.iter().find(|(known, _)| known == attribute) {
            return if known == value { Equivalence::Same } else { Equivalence::Update };
        }
    }
    if one.agrees_on_details(other) {
        return if have_same_content(one, other) {
            Equivalence::Same
        } else {
            Equivalence::Different
        };
    }
    let revalued = (one.numbers != other.numbers || one.dates != other.dates)
        && one.numbers.len() + one.dates.len() > 0
        && other.numbers.len() + other.dates.len() > 0
        && one
            .marks
            .iter()
            .filter(|mark| **mark != "longer")
            .eq(other.marks.iter().filter(|mark| **mark != "longer"))
        && one.agrees_on_names(other);
    let hard = one.hard_stems();
    if revalued
        && hard == other.hard_stems()
        && hard.iter().any(|stem| ATTRIBUTES.contains(&stem.as_str()))
    {
        return Equivalence::Update;
    }
    Equivalence::Different
}

/// Whether the content words are the same, given that everything else is.
fn have_same_content(one: &StatementProfile, other: &StatementProfile) -> bool {
    let (hard, other_hard) = (one.hard_stems(), other.hard_stems());
    let only: Vec<&String> = one.stems.difference(&other.stems).collect();
    let only_other: Vec<&String> = other.stems.difference(&one.stems).collect();
    let shared = one.stems.len() - only.len();
    let counted = shared + one.numbers.len() + one.dates.len();
    if (only.is_empty() && only_other.is_empty()) || (hard.len() >= 2 && hard == other_hard) {
        return counted >= 2 && have_same_order(one, other);
    }
    let share = |whole: usize| shared as f64 / whole.max(1) as f64;
    if only.is_empty() || only_other.is_empty() {
        let (extra, longer) = if only.is_empty() { (&only_other, other) } else { (&only, one) };
        let telling = extra.iter().any(|stem| longer.names.contains(*stem));
        return shared >= MIN_SHARED_WORDS
            && share(longer.stems.len()) >= MIN_CONTAINED_RATIO
            && !telling
            && have_same_order(one, other);
    }
    // A different word makes a different statement, unless it is a misspelling.
    let misspelt = only.len() == only_other.len()
        && only.iter().all(|word| {
            word.chars().count() >= 5
                && only_other.iter().any(|other| {
                    word.chars().next() == other.chars().next()
                        && strsim::normalized_levenshtein(word, other) >= MIN_SPELLING_SIMILARITY
                })
        });
    misspelt
        && share(shared + only.len() + only_other.len()) >= MIN_SHARED_RATIO
        && have_same_order(one, other)
}

/// Whether the common words are in the same order, where order matters.
fn have_same_order(one: &StatementProfile, other: &StatementProfile) -> bool {
    if !(one.directed && other.directed) {
        return true;
    }
    let shared = |profile: &StatementProfile, with: &StatementProfile| -> Vec<String> {
        profile
            .order
            .iter()
            .filter(|stem| with.stems.contains(*stem) && !CHANGE_WORDS.contains(&stem.as_str()))
            .cloned()
            .collect()
    };
    shared(one, other) == shared(other, one)
}

/// An index of known statements that makes a comparison with a hundred thousand of them fast.
#[derive(Debug, Clone)]
pub(crate) struct StatementIndex<K> {
    known: Vec<IndexedStatement<K>>,
    by_key: HashMap<String, Vec<u32>>,
    by_stem: HashMap<String, Vec<u32>>,
}

#[derive(Debug, Clone)]
struct IndexedStatement<K> {
    name: K,
    entity: String,
    content: String,
    profile: StatementProfile,
}

/// Semantic similarity of two texts, from 0 to 1.
pub type SimilarityFn<'a> = &'a dyn Fn(&str, &str) -> f32;

impl<K: Copy> StatementIndex<K> {
    pub(crate) fn new() -> Self {
        Self { known: Vec::new(), by_key: HashMap::new(), by_stem: HashMap::new() }
    }

    pub(crate) fn add(&mut self, name: K, entity: &str, content: &str) {
        let Ok(at) = u32::try_from(self.known.len()) else { return };
        let profile = StatementProfile::new(content);
        self.by_key.entry(profile.key.clone()).or_default().push(at);
        for stem in profile.stems.iter().chain(&profile.numbers).chain(&profile.dates) {
            self.by_stem.entry(stem.clone()).or_default().push(at);
        }
        self.known.push(IndexedStatement {
            name,
            entity: sanitize::entity_key(entity),
            content: content.to_owned(),
            profile,
        });
    }

    /// The first statement that says the same, otherwise the latest one that this updates.
    pub(crate) fn find(
        &self,
        content: &str,
        entity: &str,
        likeness: Option<SimilarityFn<'_>>,
    ) -> Option<(K, Equivalence)> {
        let profile = StatementProfile::new(content);
        let entity = sanitize::entity_key(entity);
        // A statement without an entity may be about any entity.
        let about = |known: &&IndexedStatement<K>| {
            entity.is_empty() || known.entity.is_empty() || known.entity == entity
        };
        let known = |at: &u32| self.known.get(usize::try_from(*at).ok()?);
        if let Some(same) =
            self.by_key.get(&profile.key).and_then(|all| all.iter().filter_map(known).find(about))
        {
            return Some((same.name, Equivalence::Same));
        }
        let mut update = None;
        for at in self.candidates(&profile) {
            let Some(candidate) = known(&at).filter(about) else { continue };
            match compare_profiles(&profile, &candidate.profile) {
                Equivalence::Same => return Some((candidate.name, Equivalence::Same)),
                Equivalence::Update => update = Some((candidate.name, Equivalence::Update)),
                Equivalence::Different => {
                    let means = |likeness: SimilarityFn<'_>| {
                        likeness(content, &candidate.content) >= MIN_MEANING_SIMILARITY
                    };
                    if profile.agrees_on_details(&candidate.profile) && likeness.is_some_and(means)
                    {
                        return Some((candidate.name, Equivalence::Same));
                    }
                }
            }
        }
        update
    }

    /// The statements that share the rarest words, in insertion order.
    fn candidates(&self, profile: &StatementProfile) -> Vec<u32> {
        let all: BTreeSet<&String> =
            profile.stems.iter().chain(&profile.numbers).chain(&profile.dates).collect();
        let mut lists: Vec<(&String, &Vec<u32>)> =
            all.into_iter().filter_map(|stem| Some((stem, self.by_stem.get(stem)?))).collect();
        lists.sort_by(|one, other| one.1.len().cmp(&other.1.len()).then(one.0.cmp(other.0)));
        let mut seen = HashSet::new();
        // Latest first: those are the likeliest to be updated.
        for at in lists.iter().flat_map(|(_, list)| list.iter().rev()) {
            if seen.len() >= MAX_CANDIDATES {
                break;
            }
            seen.insert(*at);
        }
        let mut found: Vec<u32> = seen.into_iter().collect();
        found.sort_unstable();
        found
    }
}

/// The active statements of the ledger.
#[derive(Debug, Clone)]
pub struct KnownStatements(StatementIndex<EventId>);

impl KnownStatements {
    /// Indexes statements, each with its entity (empty if none) and content. Pass only active ones:
    /// a match may be replaced.
    pub fn from_statements<'a>(all: impl IntoIterator<Item = (EventId, &'a str, &'a str)>) -> Self {
        let mut index = StatementIndex::new();
        for (id, entity, content) in all {
            index.add(id, entity, content);
        }
        Self(index)
    }

    /// Adds a statement.
    pub fn add(&mut self, id: EventId, entity: &str, content: &str) {
        self.0.add(id, entity, content);
    }

    /// The known statement that says the same, otherwise one that this updates. An empty entity
    /// matches any.
    pub fn find(&self, content: &str, entity: &str) -> Option<(EventId, Equivalence)> {
        self.find_with(content, entity, None)
    }

    /// Like [`Self::find`], with a semantic similarity: very similar statements are the same if no
    /// distinguishing part differs.
    pub fn find_with(
        &self,
        content: &str,
        entity: &str,
        likeness: Option<SimilarityFn<'_>>,
    ) -> Option<(EventId, Equivalence)> {
        self.0.find(content, entity, likeness)
    }
}

/// Whether the words say that something changed.
pub(crate) fn mentions_change(flat: &str) -> bool {
    has_listed_phrase(flat, WordList::ChangePhrase)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    fn check(expected: Equivalence, pairs: &[(&str, &str)]) {
        let both = pairs.iter().flat_map(|(one, other)| [(*one, *other), (*other, *one)]);
        let wrong: Vec<String> = both
            .filter(|(one, other)| compare_statements(one, other) != expected)
            .map(|(one, other)| {
                format!(
                    "{one} / {other}: {:?}\n{:?}\n{:?}",
                    compare_statements(one, other),
                    StatementProfile::new(one),
                    StatementProfile::new(other)
                )
            })
            .collect();
        assert!(wrong.is_empty(), "not {expected:?}:\n{}", wrong.join("\n"));
    }

    // K8
    #[test]
    fn the_same_in_other_words_is_known() {
        check(
            Equivalence::Same,
            &[
                ("We use Postgres.", "we use  postgres"),
                ("We decided to use Postgres", "Decision: Postgres will be used"),
                ("We decided on Postgres", "We chose Postgres"),
                ("We picked Postgres for analytics", "For analytics we settled on Postgres"),
                ("We are using pytest for tests", "For tests we use pytest"),
                ("We will use Postgres in the shop", "We decided to use Postgres in the shop"),
                ("Never deploy on Fridays", "Do not deploy on Fridays"),
                ("Never deploy on Fridays", "Don't deploy on Friday"),
                ("The budget is 500 EUR", "The budget is 500 €"),
                ("The budget is €500", "Budget: 500 EUR"),
                ("I prefer tea over coffee", "User prefers tea over coffee"),
                ("Send the offer to Anna by Friday", "I will send the offer to Anna by Friday"),
                ("Two reviewers must approve a merge", "2 reviewers must approve every merge"),
                ("The pilot starts on March 15", "The pilot starts on 15 March"),
                ("Invoices are sent by email", "Send invoices by e-mail"),
                ("The server runs on port 8080", "Server is running on port 8080"),
                ("Alice lives in Berlin", "alice lives in Berlin!"),
                ("The backups are stored in Frankfurt", "We store the backups in Frankfurt"),
                ("Deployments need approval from Carol", "Deployment needs approval from Carol"),
                ("Wir haben uns für Postgres entschieden", "Entscheidung für Postgres"),
                ("Python version: 3.11", "The Python version: 3.11"),
                (
                    "Keep the changelog entries short and friendly",
                    "Please always keep changelog entries short and friendly",
                ),
            ],
        );
    }

    // K8
    #[test]
    fn another_value_of_the_same_attribute_is_an_update() {
        check(
            Equivalence::Update,
            &[
                ("budget 500", "budget 600"),
                ("The budget is 500 EUR", "The budget is 600 EUR"),
                ("The budget is 500 EUR", "The budget is now 600 EUR"),
                ("Python version: 3.11", "Python version: 3.12"),
                ("Alice lives in Berlin", "Alice lives in Hamburg"),
                ("The database is Postgres", "The database is now MySQL"),
                ("The meeting is on Monday", "The meeting was moved to Tuesday"),
                ("meeting on 13 Feb", "meeting on 14 Feb"),
                ("The release is on Monday", "The release is on Tuesday"),
                ("Mira works for Northwind", "Mira works for Contoso"),
                ("Rent: 900 EUR", "Rent: 950 EUR"),
                ("The deadline is March 15", "The deadline changed to March 20"),
            ],
        );
    }

    // K8
    #[test]
    fn what_differs_in_one_telling_thing_is_another_statement() {
        check(
            Equivalence::Different,
            &[
                ("Python version 3.11", "Python virtualenv .venv"),
                ("Send the offer to Anna", "Send the offer to Bert"),
                ("deploy on Fridays", "never deploy on Fridays"),
                ("Deploy on Fridays", "Deploy on Mondays"),
                ("Anna reports to Bert", "Bert reports to Anna"),
                ("anna reports to bert", "bert reports to anna"),
                (
                    "Move the files from staging to production",
                    "Move the files from production to staging",
                ),
                ("I prefer tea over coffee", "I prefer coffee over tea"),
                ("Anna prefers tea", "Bert prefers tea"),
                ("Paid invoice 1001", "Paid invoice 1002"),
                ("We decided on Postgres", "We decided against Postgres"),
                ("We use Postgres for analytics", "We use Postgres for billing"),
                ("You may deploy on Fridays", "You must deploy on Fridays"),
                ("Only admins may deploy", "Admins may deploy"),
                ("Deploy with approval", "Deploy without approval"),
                ("Call Anna before the meeting", "Call Anna after the meeting"),
                ("At least 2 reviewers are needed", "At most 2 reviewers are needed"),
                ("The API uses C++", "The API uses C#"),
                ("Tests run in CI", "Tests run in Docker"),
                (
                    "Increase the timeout of the gateway service",
                    "Decrease the timeout of the gateway service",
                ),
                (
                    "Encrypt the backup before the upload to the archive",
                    "Encrypt the backup after the upload to the archive",
                ),
                ("We use Postgres", "We use Postgres for the analytics of Client X"),
                ("Alice is tall", "Alice is happy"),
                ("The report is due Friday", "The slides are due Friday"),
                ("Ask Carol about the invoice", "Ask Carol about the contract"),
                ("I like tea", "I drink tea"),
                ("Client X wants a discount of 5 %", "Client Y wants a discount of 5 %"),
                (
                    "Send the signed contract and both invoices to the accountant",
                    "Send the signed contract and both invoices to the lawyer",
                ),
                ("Wir deployen freitags nicht", "Wir deployen freitags"),
                ("", "Postgres"),
                ("tea", "the tea of Anna"),
                ("Enable the cache", "Disable the cache"),
                ("The office is in Berlin", "The warehouse is in Berlin"),
            ],
        );
        assert_ne!(compare_statements("meeting on 13 Feb", "meeting on 14 Feb"), Equivalence::Same);
    }

    fn id(number: u32) -> EventId {
        EventId::new(date(2026, 2, 13), number)
    }

    // K8
    #[test]
    fn a_statement_is_found_among_a_hundred_thousand() {
        let texts: Vec<String> = (1..=100_000)
            .map(|n| format!("The customer order{n} uses plan q{} in the shop", n % 97))
            .collect();
        let mut known = KnownStatements::from_statements(
            texts.iter().zip(1..).map(|(text, n)| (id(n), "", text.as_str())),
        );
        known.add(id(200_000), "client_x", "The budget is 500 EUR");
        for n in (1..=100_000).step_by(997) {
            let text = format!("In the shop, customer order{n} is using plan q{}", n % 97);
            assert_eq!(known.find(&text, ""), Some((id(n), Equivalence::Same)), "{text}");
        }
        assert_eq!(
            known.find("The budget is now 600 EUR", "Client X"),
            Some((id(200_000), Equivalence::Update))
        );
        assert_eq!(known.find("The budget is now 600 EUR", "Client Y"), None);
        assert_eq!(known.find("The customer uses a plan in the shop", ""), None);
        assert!(
            known.0.candidates(&StatementProfile::new("The customer uses the shop")).len()
                <= MAX_CANDIDATES
        );
    }

    // K8
    #[test]
    fn meaning_counts_only_where_nothing_telling_differs() {
        let known = KnownStatements::from_statements([
            (id(1), "", "Never deploy the shop on Fridays"),
            (id(2), "", "The shop costs 500 EUR"),
        ]);
        let always = |_: &str, _: &str| 0.99;
        let hardly = |_: &str, _: &str| 0.91;
        assert_eq!(
            known.find_with("No rollouts of the shop on Fridays", "", Some(&always)),
            Some((id(1), Equivalence::Same))
        );
        assert_eq!(known.find_with("No rollouts of the shop on Fridays", "", Some(&hardly)), None);
        assert_eq!(known.find_with("Rollouts of the shop on Fridays", "", Some(&always)), None);
        assert_eq!(known.find_with("The shop is sold for 600 EUR", "", Some(&always)), None);
    }

    proptest! {
        #[test]
        fn every_text_is_the_same_as_itself_and_order_does_not_matter(one in "\\PC{0,60}", other in "\\PC{0,60}") {
            prop_assert_eq!(compare_statements(&one, &one), Equivalence::Same);
            prop_assert_eq!(compare_statements(&one, &other), compare_statements(&other, &one));
        }

        // K8
        #[test]
        fn another_number_or_negation_is_never_the_same(words in "[a-z]{4,9}( [a-z]{4,9}){2,8}", number in 10_u32..99_999) {
            let (one, other) = (format!("{words} {number}"), format!("{words} {}", number + 1));
            prop_assert_ne!(compare_statements(&one, &other), Equivalence::Same);
            prop_assert_ne!(compare_statements(&one, &format!("never {one}")), Equivalence::Same);
        }
    }
}
