//! Trends: recurring topics in a span of days, with the number of occasions and their dates.
//!
//! An occasion is a session, or a day with activity outside any session. Words are counted by stem
//! and shown in their most frequent form. Two significant words close together are counted in
//! either order, so `refactored the auth` and `auth was refactored` count as the same topic.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use jiff::civil::Date;
use serde::Serialize;

use super::lexicon::{Lexicon, LexiconToken, TermClass};
use crate::calendar::{Days, Month};
use crate::id::EventId;
use crate::rank::language::Language;
use crate::record::SessionKey;
use crate::summary::Period;

/// The most words between the two words of a pair.
const MAX_PAIR_GAP_WORDS: u32 = 3;
/// The fewest occasions of a topic.
const MIN_OCCASIONS: usize = 3;
/// With fewer occasions in all, two suffice.
const FEW_OCCASIONS: usize = 8;
/// A topic on a larger share of all occasions is too general.
const MAX_SHARE: f64 = 0.4;
/// With few occasions the share may be this large,
const MAX_SHARE_OF_FEW: f64 = 0.8;
/// but on at most this many occasions.
const MAX_OCCASIONS_OF_FEW: f64 = 32.0;
/// The share limit applies from this many occasions on.
const MIN_OCCASIONS_FOR_SHARE: usize = 8;
/// The smallest share of the rarer word's mentions that a pair must account for.
const MIN_PAIR_SHARE: f64 = 0.2;
/// The same share if one of the words is common.
const MIN_PAIR_SHARE_WITH_COMMON: f64 = 0.25;
/// A pair must be this many times as frequent as expected by chance,
const MIN_LIFT: f64 = 3.0;
/// if at least this many words were counted.
const MIN_WORDS_FOR_LIFT: f64 = 5_000.0;
/// A word that shares this part of its occasions with a pair is shown only within the pair.
const ABSORBED_WORD_SHARE: f64 = 0.67;
/// A pair that shares this part of its occasions with a stronger pair is not shown.
const ABSORBED_PAIR_SHARE: f64 = 0.6;
/// The most occasions that are named per topic.
const MAX_NAMED_OCCASIONS: usize = 3;
/// Beyond this many pairs, those seen on one occasion only are discarded.
const MAX_PAIRS: usize = 1 << 20;
/// The mention weight from which a word counts: one by the user, or two by an assistant.
const MIN_MENTION_WEIGHT: u32 = 2;
/// In an occasion with this many significant words, a single mention is incidental.
const LONG_OCCASION_WORDS: usize = 80;
/// There, a word must have this mention weight.
const MIN_MENTION_WEIGHT_IN_LONG: u32 = 3;

/// Who says something, which decides the weight of a mention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MentionVoice {
    /// A person, a log, a saved state, an event.
    Own,
    Assistant,
}

/// An occasion on which a topic was mentioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occasion {
    Session(SessionKey),
    /// An event about this day.
    Event(Date, EventId),
    /// The log of a day.
    Log(Date),
    /// The summary of a period.
    Summary(Period),
}

impl Occasion {
    /// The local day.
    pub fn day(&self) -> Date {
        match self {
            Self::Session(key) => key.day,
            Self::Event(day, _) | Self::Log(day) => *day,
            Self::Summary(period) => period.days().first,
        }
    }
}

impl fmt::Display for Occasion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(SessionKey { day, conversation, session: Some(session) }) => {
                write!(f, "{day} {conversation} {session}")
            }
            Self::Session(SessionKey { day, conversation, session: None }) => {
                write!(f, "{day} {conversation}")
            }
            Self::Event(_, id) => write!(f, "{id}"),
            Self::Log(day) => write!(f, "log of {day}"),
            Self::Summary(period) => write!(f, "{period}"),
        }
    }
}

/// The kind of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicKind {
    /// An entity of events.
    Entity,
    /// A word that is mostly capitalized within sentences.
    Name,
    Word,
    /// A pair of words.
    Phrase,
}

/// A recurring topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its most frequent form.
    pub name: String,
    pub shape: TopicKind,
    /// The number of occasions.
    pub occasions: usize,
    /// The number of days.
    pub days: usize,
    /// The number of mentions.
    pub mentions: usize,
    /// The first day in the span.
    pub first: Date,
    /// The last day in the span.
    pub last: Date,
    /// The number of occasions in each month of the span.
    pub months: Vec<usize>,
    /// The first and the latest occasions.
    pub places: Vec<Occasion>,
}

/// The recurring topics of a span of days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trends {
    /// The months of the span.
    pub months: Vec<Month>,
    /// The number of all occasions.
    pub occasions: usize,
    /// The topics, by number of occasions.
    pub topics: Vec<Topic>,
    /// The number of topics beyond the limit.
    pub left_out: usize,
}

/// The counts of a term or pair.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    occasions: u32,
    mentions: u32,
    /// For a pair, the mentions in the order of the term numbers; for a single term, the
    /// capitalized ones.
    marked: u32,
    /// Its newest occasion, as an index into the list of links.
    newest: u32,
    /// The mentions of a pair with adjacent words.
    beside: u32,
    /// The most frequent form of a pair, and its lead in occasions.
    written: WrittenPair,
    lead: u32,
}

/// Two words as written: the numbers of their terms and forms, in order.
type WrittenPair = [(u32, u32); 2];

/// One occasion of a tally, linked to the previous one.
struct OccasionLink {
    occasion: u32,
    before: u32,
}

/// The end of a list of links.
const NO_LINK: u32 = u32::MAX;

/// The counts of the current occasion.
#[derive(Debug, Clone, Copy, Default)]
struct OccasionCounts {
    weight: u32,
    mentions: u32,
    marked: u32,
    beside: u32,
    written: WrittenPair,
}

/// A term, or a pair of terms with the lower number first.
type TermKey = (u32, u32);

/// The second number of a single term.
const NO_SECOND_TERM: u32 = u32::MAX;

/// Counts topics. Days must come in order, and within a day sessions before the rest.
pub struct TrendCounter {
    days: Days,
    lexicon: Lexicon,
    known: HashSet<TermKey>,
    speakers: HashSet<u32>,
    about: Vec<u32>,
    places: Vec<Occasion>,
    terms: HashMap<u32, Tally>,
    pairs: HashMap<TermKey, Tally>,
    links: Vec<OccasionLink>,
    common: HashSet<u32>,
    usual: Option<Language>,
    // Reused between occasions to avoid allocations.
    tokens: Vec<LexiconToken>,
    here: HashMap<TermKey, OccasionCounts>,
}

impl TrendCounter {
    /// A counter for these days. `entities` are known names; with `about`, only text near these
    /// words counts.
    pub fn new(days: Days, entities: &[String], about: Option<&str>) -> Self {
        let mut lexicon = Lexicon::default();
        let mut known = HashSet::new();
        for entity in entities {
            known.extend(term_key(&lexicon.significant_terms(entity)));
        }
        let about = about.map(|text| lexicon.significant_terms(text)).unwrap_or_default();
        known.extend(term_key(&about));
        Self {
            days,
            lexicon,
            known,
            speakers: HashSet::new(),
            about,
            places: Vec::new(),
            terms: HashMap::new(),
            pairs: HashMap::new(),
            links: Vec::new(),
            common: HashSet::new(),
            usual: None,
            tokens: Vec::new(),
            here: HashMap::new(),
        }
    }

    /// Whether the words of `about` hold a significant term.
    pub fn has_significant_filter(&self) -> bool {
        !self.about.is_empty()
    }

    /// Excludes a speaker's name: others use it to address them.
    pub fn ignore_speaker(&mut self, name: &str) {
        let terms = self.lexicon.significant_terms(name);
        self.speakers.extend(
            terms.into_iter().filter(|&term| !self.known.contains(&(term, NO_SECOND_TERM))),
        );
    }

    /// Counts the texts of one occasion.
    pub fn add_texts<'a>(
        &mut self,
        place: Occasion,
        said: impl IntoIterator<Item = (MentionVoice, &'a str)>,
    ) {
        if !self.days.contains(place.day()) {
            return;
        }
        self.here.clear();
        let mut length = 0;
        let mut tokens = std::mem::take(&mut self.tokens);
        for (voice, text) in said {
            self.lexicon.tokenize(text, &mut self.usual, &mut tokens);
            length += tokens.iter().filter(|token| token.worth == TermClass::Significant).count();
            if self.about.iter().all(|wanted| tokens.iter().any(|token| token.term == *wanted)) {
                self.count_tokens(
                    &tokens,
                    if voice == MentionVoice::Own { MIN_MENTION_WEIGHT } else { 1 },
                );
            }
        }
        self.tokens = tokens;
        self.finish_occasion(place, length > LONG_OCCASION_WORDS);
        if self.pairs.len() > MAX_PAIRS {
            let latest = u32::try_from(self.places.len()).unwrap_or(NO_LINK).saturating_sub(1);
            let links = &self.links;
            self.pairs.retain(|_, tally| {
                tally.occasions > 1
                    || links.get(tally.newest as usize).is_some_and(|link| link.occasion == latest)
            });
        }
    }

    fn count_tokens(&mut self, tokens: &[LexiconToken], weight: u32) {
        let mut add = |key: TermKey, marked: bool, beside: bool, written: WrittenPair| {
            let here = self.here.entry(key).or_default();
            here.weight += weight;
            here.mentions += 1;
            here.marked += u32::from(marked);
            here.beside += u32::from(beside);
            here.written = written;
        };
        for (at, token) in tokens.iter().enumerate() {
            if token.worth == TermClass::Number {
                continue;
            }
            if token.worth == TermClass::Common {
                self.common.insert(token.term);
            }
            add((token.term, NO_SECOND_TERM), token.capital, false, WrittenPair::default());
            for other in &tokens[at + 1..] {
                if other.stretch != token.stretch || other.at - token.at > MAX_PAIR_GAP_WORDS + 1 {
                    break;
                }
                if other.worth == TermClass::Number || other.term == token.term {
                    continue;
                }
                // A common word joins a phrase only right beside a significant one, or within a
                // name.
                let both =
                    token.worth == TermClass::Significant && other.worth == TermClass::Significant;
                let either =
                    token.worth == TermClass::Significant || other.worth == TermClass::Significant;
                let beside = other.at - token.at == 1;
                let name = beside && token.capital && other.capital;
                if both || name || (either && beside) {
                    let forward = token.term < other.term;
                    let written = [(token.term, token.form), (other.term, other.form)];
                    add(
                        (token.term.min(other.term), token.term.max(other.term)),
                        forward,
                        beside,
                        written,
                    );
                }
            }
        }
    }

    fn finish_occasion(&mut self, place: Occasion, long: bool) {
        let aside = !matches!(place, Occasion::Session(_));
        let day = place.day();
        let occasion = u32::try_from(self.places.len()).unwrap_or(NO_LINK);
        self.places.push(place);
        for (&key, here) in &self.here {
            let tally = match key.1 {
                NO_SECOND_TERM => {
                    self.terms.entry(key.0).or_insert(Tally { newest: NO_LINK, ..Tally::default() })
                }
                _ => self.pairs.entry(key).or_insert(Tally { newest: NO_LINK, ..Tally::default() }),
            };
            tally.mentions += here.mentions;
            tally.marked += here.marked;
            tally.beside += here.beside;
            // Boyer-Moore majority vote: finds a form that more than half of the occasions have.
            match tally.lead {
                0 => (tally.written, tally.lead) = (here.written, 1),
                _ if tally.written == here.written => tally.lead += 1,
                _ => tally.lead -= 1,
            }
            // A name or a phrase is never incidental.
            let passing =
                long && key.1 == NO_SECOND_TERM && here.marked == 0 && !self.known.contains(&key);
            if here.weight < if passing { MIN_MENTION_WEIGHT_IN_LONG } else { MIN_MENTION_WEIGHT } {
                continue;
            }
            let newest = self
                .links
                .get(tally.newest as usize)
                .and_then(|link| self.places.get(link.occasion as usize));
            if aside && newest.is_some_and(|place| place.day() == day) {
                continue;
            }
            tally.occasions += 1;
            self.links.push(OccasionLink { occasion, before: tally.newest });
            tally.newest = u32::try_from(self.links.len() - 1).unwrap_or(NO_LINK);
        }
    }

    /// The strongest topics, at most `limit`.
    pub fn into_trends(mut self, limit: usize) -> Trends {
        self.lexicon.choose_display_forms();
        let months: Vec<Month> =
            std::iter::successors(Some(Month::containing(self.days.first)), |month| {
                Some(month.next())
            })
            .take_while(|month| month.first() <= self.days.last)
            .collect();
        let all = self.occasion_count();
        let least = if all < FEW_OCCASIONS { 2 } else { MIN_OCCASIONS };
        let mut phrases = self.frequent_phrases(least, all);
        let mut words = self.frequent_words(least, all);
        let swallowed: HashSet<u32> = phrases
            .iter()
            .flat_map(|found| [(found.key.0, found), (found.key.1, found)])
            .filter(|(term, found)| {
                let alone = self.terms.get(term).map_or(0, |tally| tally.occasions);
                ratio(found.occasions.len(), alone as usize) >= ABSORBED_WORD_SHARE
            })
            .map(|(term, _)| term)
            .collect();
        words.retain(|word| !swallowed.contains(&word.key.0));
        words.append(&mut phrases);
        words.sort_by(|a, b| {
            let weight = |found: &TopicCandidate| (found.occasions.len(), found.tally.mentions);
            weight(b)
                .cmp(&weight(a))
                .then_with(|| self.display_name(a).cmp(&self.display_name(b)))
                .then(a.key.cmp(&b.key))
        });
        let left_out = words.len().saturating_sub(limit);
        let topics = words.iter().take(limit).map(|found| self.to_topic(found, &months)).collect();
        Trends { months, occasions: all, topics, left_out }
    }

    /// The number of occasions: sessions, and days without one.
    fn occasion_count(&self) -> usize {
        let mut days: BTreeMap<Date, usize> = BTreeMap::new();
        for place in &self.places {
            *days.entry(place.day()).or_default() +=
                usize::from(matches!(place, Occasion::Session(_)));
        }
        days.values().map(|sessions| (*sessions).max(1)).sum()
    }

    fn frequent_words(&self, least: usize, all: usize) -> Vec<TopicCandidate> {
        let fits = |(&term, tally): (&u32, &Tally)| {
            let key = (term, NO_SECOND_TERM);
            let known = self.known.contains(&key);
            let telling = known
                || (!self.common.contains(&term)
                    && !self.speakers.contains(&term)
                    && !is_too_common(tally, all));
            (tally.occasions as usize >= least && telling)
                .then(|| self.topic_candidate(key, *tally))
        };
        self.terms.iter().filter_map(fits).collect()
    }

    fn frequent_phrases(&self, least: usize, all: usize) -> Vec<TopicCandidate> {
        let said: f64 = self.terms.values().map(|tally| f64::from(tally.mentions)).sum();
        // The number of phrases that each word belongs to.
        let beside = f64::from(2 * (MAX_PAIR_GAP_WORDS + 1));
        let fits = |(&key, tally): (&TermKey, &Tally)| {
            if (tally.occasions as usize) < least || is_too_common(tally, all) {
                return None;
            }
            let alone = |term: u32| self.terms.get(&term).copied().unwrap_or_default();
            let (one, other) = (alone(key.0), alone(key.1));
            let speaks = self.speakers.contains(&key.0) || self.speakers.contains(&key.1);
            let common = [key.0, key.1].map(|term| self.common.contains(&term));
            let together = match common {
                [false, false] => {
                    ratio(tally.mentions as usize, one.mentions.min(other.mentions) as usize)
                        >= MIN_PAIR_SHARE
                }
                [true, false] => {
                    ratio(tally.mentions as usize, other.mentions as usize)
                        >= MIN_PAIR_SHARE_WITH_COMMON
                }
                [false, true] => {
                    ratio(tally.mentions as usize, one.mentions as usize)
                        >= MIN_PAIR_SHARE_WITH_COMMON
                }
                [true, true] => {
                    ratio(tally.mentions as usize, one.mentions.min(other.mentions) as usize)
                        >= MIN_PAIR_SHARE
                }
            };
            // `Mirabel called` is about Mirabel; in `New York` both words are capitalized.
            let named = |tally: Tally| tally.marked * 2 > tally.mentions;
            let of_a_name = match common {
                [true, false] => named(other) && !self.is_capitalized_in(key.0, tally),
                [false, true] => named(one) && !self.is_capitalized_in(key.1, tally),
                _ => false,
            };
            let chance =
                f64::from(one.mentions) * f64::from(other.mentions) * beside / said.max(1.0);
            let by_chance =
                said >= MIN_WORDS_FOR_LIFT && f64::from(tally.mentions) < chance * MIN_LIFT;
            (self.known.contains(&key) || (together && !speaks && !of_a_name && !by_chance))
                .then(|| self.topic_candidate(key, *tally))
        };
        let mut found: Vec<TopicCandidate> = self.pairs.iter().filter_map(fits).collect();
        found.sort_by(|a, b| {
            let weight = |found: &TopicCandidate| {
                (
                    self.known.contains(&found.key),
                    found.occasions.len(),
                    found.tally.beside,
                    found.tally.mentions,
                )
            };
            weight(b)
                .cmp(&weight(a))
                .then_with(|| self.display_name(a).cmp(&self.display_name(b)))
                .then(a.key.cmp(&b.key))
        });
        // Of three adjacent words, one pair is enough.
        let mut kept: Vec<TopicCandidate> = Vec::new();
        let mut having: HashMap<u32, Vec<usize>> = HashMap::new();
        for one in found {
            let terms = [one.key.0, one.key.1];
            let mut others = terms.iter().filter_map(|term| having.get(term)).flatten();
            if others.any(|&at| {
                overlap_ratio(&one.occasions, &kept[at].occasions) >= ABSORBED_PAIR_SHARE
            }) {
                continue;
            }
            for term in terms {
                having.entry(term).or_default().push(kept.len());
            }
            kept.push(one);
        }
        kept
    }

    /// Whether a word of a pair is mostly capitalized in it.
    fn is_capitalized_in(&self, term: u32, pair: &Tally) -> bool {
        pair.written.iter().any(|&(of, form)| {
            of == term && self.lexicon.form_text(form, term).starts_with(char::is_uppercase)
        })
    }

    fn topic_candidate(&self, key: TermKey, tally: Tally) -> TopicCandidate {
        let mut occasions = Vec::with_capacity(tally.occasions as usize);
        let mut at = tally.newest;
        while let Some(link) = self.links.get(at as usize) {
            occasions.push(link.occasion);
            at = link.before;
        }
        occasions.reverse();
        TopicCandidate { key, tally, occasions }
    }

    fn display_name(&self, found: &TopicCandidate) -> String {
        let shown = |term: u32| self.lexicon.display_form(term);
        match found.key {
            (term, NO_SECOND_TERM) => shown(term).to_owned(),
            _ if found.tally.lead > 1 => {
                found.tally.written.map(|(term, form)| self.lexicon.form_text(form, term)).join(" ")
            }
            (one, other) if found.tally.marked * 2 >= found.tally.mentions => {
                format!("{} {}", shown(one), shown(other))
            }
            (one, other) => format!("{} {}", shown(other), shown(one)),
        }
    }

    fn to_topic(&self, found: &TopicCandidate, months: &[Month]) -> Topic {
        let places: Vec<&Occasion> =
            found.occasions.iter().filter_map(|at| self.places.get(*at as usize)).collect();
        let mut counts = vec![0; months.len()];
        for place in &places {
            let month = Month::containing(place.day());
            if let Ok(at) = months.binary_search(&month) {
                counts[at] += 1;
            }
        }
        let mut days: Vec<Date> = places.iter().map(|place| place.day()).collect();
        days.dedup();
        let shape = match found.key {
            key if self.known.contains(&key) && !self.has_significant_filter() => TopicKind::Entity,
            (_, NO_SECOND_TERM) if found.tally.marked * 2 > found.tally.mentions => TopicKind::Name,
            (_, NO_SECOND_TERM) => TopicKind::Word,
            _ => TopicKind::Phrase,
        };
        let skip = places.len().saturating_sub(MAX_NAMED_OCCASIONS - 1).max(1);
        Topic {
            name: self.display_name(found),
            shape,
            occasions: places.len(),
            days: days.len(),
            mentions: found.tally.mentions as usize,
            first: days.first().copied().unwrap_or(self.days.first),
            last: days.last().copied().unwrap_or(self.days.last),
            months: counts,
            places: places
                .iter()
                .take(1)
                .chain(places.iter().skip(skip))
                .map(|place| (*place).clone())
                .collect(),
        }
    }
}

/// A candidate topic.
struct TopicCandidate {
    key: TermKey,
    tally: Tally,
    /// The numbers of its occasions, in order.
    occasions: Vec<u32>,
}

fn term_key(terms: &[u32]) -> Option<TermKey> {
    match *terms {
        [] => None,
        [one] => Some((one, NO_SECOND_TERM)),
        [one, other, ..] => Some((one.min(other), one.max(other))),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn is_too_common(tally: &Tally, all: usize) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "a share")]
    let all_of_them = all as f64;
    let most =
        (all_of_them * MAX_SHARE).max((all_of_them * MAX_SHARE_OF_FEW).min(MAX_OCCASIONS_OF_FEW));
    all >= MIN_OCCASIONS_FOR_SHARE && f64::from(tally.occasions) > most
}

/// The share of the smaller set that is also in the other.
fn overlap_ratio(one: &[u32], other: &[u32]) -> f64 {
    let (fewer, more) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    ratio(fewer.iter().filter(|occasion| more.binary_search(occasion).is_ok()).count(), fewer.len())
}

/// A sparkline with one bar per count; with `plain` in ASCII.
pub fn sparkline(counts: &[usize], plain: bool) -> String {
    const UNICODE_BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII_BARS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let bars = if plain { ASCII_BARS } else { UNICODE_BARS };
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    // Zero is the lowest bar, and only zero.
    let height = |&count: &usize| (count * (bars.len() - 1)).div_ceil(most);
    counts.iter().map(|count| bars[height(count)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan;
    use jiff::civil::date;
    use proptest::prelude::*;

    const YEAR: Days = Days { first: date(2026, 1, 1), last: date(2026, 12, 31) };

    fn session(day: Date, name: &str) -> Occasion {
        Occasion::Session(SessionKey {
            day,
            conversation: "work".into(),
            session: Some(name.into()),
        })
    }

    /// One session a week, each with these words.
    fn weekly(said: &[&str]) -> TrendCounter {
        let mut counter = TrendCounter::new(YEAR, &[], None);
        for (week, text) in (0_i32..).zip(said) {
            counter.add_texts(
                session(date(2026, 1, 5).checked_add((week * 7).days()).unwrap(), "s"),
                [(MentionVoice::Own, *text)],
            );
        }
        counter
    }

    fn topic_counts(trends: &Trends) -> Vec<(&str, usize)> {
        trends.topics.iter().map(|topic| (topic.name.as_str(), topic.occasions)).collect()
    }

    fn occasions(trends: &Trends, name: &str) -> usize {
        trends.topics.iter().find(|topic| topic.name == name).map_or(0, |topic| topic.occasions)
    }

    // Y11
    #[test]
    fn the_same_deed_in_other_words_is_one_topic() {
        let trends = weekly(&[
            "We refactored auth today, it took hours.",
            "The invoices went out to every customer.",
            "Auth was refactored once more because of the tokens.",
            "Lunch with Mirabel at the harbour.",
            "The newsletter has a typo.",
            "I am refactoring the auth again.",
            "The printer is broken.",
            "Paid the electrician.",
        ])
        .into_trends(20);
        assert_eq!(topic_counts(&trends), [("refactored auth", 3)], "{trends:#?}");
        let topic = &trends.topics[0];
        assert_eq!(
            (topic.first, topic.last, topic.shape),
            (date(2026, 1, 5), date(2026, 2, 9), TopicKind::Phrase)
        );
        assert_eq!(topic.months, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(
            topic.places.iter().map(Occasion::day).collect::<Vec<_>>(),
            [date(2026, 1, 5), date(2026, 1, 19), date(2026, 2, 9)]
        );
    }

    // Y11
    #[test]
    fn what_is_said_of_everything_is_no_topic() {
        let trends = weekly(&[
            "Hello! Thanks for the great help yesterday, the harbour permits came.",
            "Good morning, I really want to make the kitchen nicer.",
            "Thanks! How are you today? The harbour permits are signed.",
            "Hi, great to hear from you. The printer again.",
            "Good morning! I want to think about the harbour and the permits.",
            "Thank you so much, that was really helpful.",
            "Great, let me know when you want to go.",
            "Hello, hello, I think things are going well.",
        ])
        .into_trends(20);
        assert_eq!(topic_counts(&trends), [("harbour permits", 3)]);
    }

    // Y11
    #[test]
    fn names_and_known_things_count_and_speakers_do_not() {
        let mut counter = TrendCounter::new(YEAR, &["apollo".into()], None);
        counter.ignore_speaker("Caroline");
        for week in 0..10 {
            let day = date(2026, 3, 2).checked_add((week * 7).days()).unwrap();
            let mut said = vec![(MentionVoice::Own, "Caroline, how is Apollo?")];
            if week % 3 == 0 {
                said.push((MentionVoice::Own, "I met Mirabel in New York"));
            }
            counter.add_texts(session(day, "s"), said);
        }
        let trends = counter.into_trends(20);
        assert_eq!(
            trends
                .topics
                .iter()
                .map(|topic| (topic.name.as_str(), topic.occasions, topic.shape))
                .collect::<Vec<_>>(),
            [
                ("Apollo", 10, TopicKind::Entity),
                ("Mirabel", 4, TopicKind::Name),
                ("New York", 4, TopicKind::Phrase),
            ]
        );
    }

    // Y11
    #[test]
    fn what_stands_on_almost_every_occasion_says_nothing() {
        let said: Vec<String> = (0..20)
            .map(|week| {
                format!(
                    "The ledger is fine{}.",
                    if week % 4 == 0 { ", and the sauna is hot" } else { "" }
                )
            })
            .collect();
        let trends = weekly(&said.iter().map(String::as_str).collect::<Vec<_>>()).into_trends(20);
        assert_eq!(topic_counts(&trends), [("sauna", 5)]);
    }

    // Y11
    #[test]
    fn an_assistant_counts_if_it_says_it_twice_and_an_event_once_a_day() {
        let mut counter = TrendCounter::new(YEAR, &[], None);
        let day = |n: i32| date(2026, 5, 1).checked_add(n.days()).unwrap();
        for n in 0..9 {
            counter.add_texts(
                session(day(n), "s"),
                [
                    (MentionVoice::Assistant, "You could buy a telescope."),
                    (MentionVoice::Assistant, "The compost, the compost!"),
                ],
            );
            for number in 1..4 {
                let id = EventId::new(day(n), number);
                counter.add_texts(
                    Occasion::Event(day(n), id),
                    [(
                        MentionVoice::Own,
                        if n < 5 { "Water the orchids" } else { "Turn the compost" },
                    )],
                );
            }
        }
        let trends = counter.into_trends(20);
        assert_eq!(occasions(&trends, "telescope"), 0);
        assert_eq!(
            occasions(&trends, "orchids") + occasions(&trends, "Water orchids"),
            5,
            "{trends:#?}"
        );
        assert_eq!(trends.occasions, 9);
    }

    // Y11
    #[test]
    fn in_a_long_session_a_word_said_once_is_said_in_passing() {
        let filler: String = (0..120).map(|n| format!("word{n} ")).collect();
        let mut counter = TrendCounter::new(YEAR, &[], None);
        for n in 0..10 {
            let text = format!(
                "{filler}. Zucchini. Beetroot, beetroot. {}",
                if n < 5 { "" } else { "Leek." }
            );
            counter.add_texts(
                session(date(2026, 5, 1).checked_add(n.days()).unwrap(), "s"),
                [(MentionVoice::Own, text.as_str())],
            );
            counter.add_texts(
                session(date(2026, 5, 1).checked_add(n.days()).unwrap(), "t"),
                [(MentionVoice::Own, "nothing much")],
            );
        }
        let trends = counter.into_trends(200);
        assert_eq!((occasions(&trends, "Zucchini"), occasions(&trends, "beetroot")), (0, 10));
    }

    // Y11
    #[test]
    fn about_a_word_only_what_is_said_with_it_counts() {
        let mut counter = TrendCounter::new(YEAR, &[], Some("auths"));
        assert!(counter.has_significant_filter());
        for n in 0..12 {
            let text =
                if n % 2 == 0 { "The auth tokens expire." } else { "The garden needs rain." };
            counter.add_texts(
                session(date(2026, 5, 1).checked_add(n.days()).unwrap(), "s"),
                [(MentionVoice::Own, text)],
            );
        }
        let trends = counter.into_trends(20);
        assert!(trends.topics.iter().all(|topic| !topic.name.contains("garden")), "{trends:#?}");
        assert_eq!(trends.topics[0].occasions, 6);
        assert!(!TrendCounter::new(YEAR, &[], Some("the")).has_significant_filter());
    }

    // Y11
    #[test]
    fn words_of_other_languages_are_counted_by_their_stems() {
        let trends = weekly(&[
            "Ich habe die Genehmigung für den Hafen bekommen.",
            "Wir brauchen noch zwei Genehmigungen vom Amt, das dauert.",
            "Die Genehmigungen sind da und alles ist gut.",
            "Heute war nichts los.",
        ])
        .into_trends(5);
        assert_eq!(topic_counts(&trends), [("Genehmigungen", 3)]);
    }

    // Y11
    #[test]
    fn what_stands_together_by_chance_is_no_phrase() {
        // Twelve words in every order, over and over, and two of them always together.
        let words = [
            "amber", "birch", "copper", "drum", "ember", "fjord", "gravel", "heron", "iris",
            "jasper", "kelp", "lantern",
        ];
        let said: Vec<String> = (0..60_usize)
            .map(|week| {
                let text = |n: usize| {
                    words[(n * 7 + n / 12 * 5 + week * 11) % 12].to_owned()
                        + if n.is_multiple_of(31) { ". Quartz quarry." } else { "" }
                };
                if week % 4 == 0 {
                    (0..400).map(text).collect::<Vec<_>>().join(" ")
                } else {
                    format!("Nothing {week}")
                }
            })
            .collect();
        let mut counter = TrendCounter::new(YEAR, &[], None);
        for (n, text) in (0_i32..).zip(&said) {
            counter.add_texts(
                session(date(2026, 1, 5).checked_add((n * 2).days()).unwrap(), "s"),
                [(MentionVoice::Own, text.as_str())],
            );
        }
        let trends = counter.into_trends(50);
        let phrases: Vec<&str> = trends
            .topics
            .iter()
            .filter(|topic| topic.shape == TopicKind::Phrase)
            .map(|topic| topic.name.as_str())
            .collect();
        assert_eq!(phrases, ["Quartz quarry"], "{:?}", topic_counts(&trends));
    }

    // Y11
    #[test]
    fn code_hashes_and_numbers_are_no_topics() {
        let said: Vec<String> = (0..10)
            .map(|n| format!("See {n}2026 at 7431\n```\nlet zebra = 1;\n```\ncommit a94f00d{n} and d41d8cd98f00b204e9800998ecf8427e"))
            .collect();
        let trends = weekly(&said.iter().map(String::as_str).collect::<Vec<_>>()).into_trends(20);
        assert_eq!(occasions(&trends, "zebra"), 0);
        assert!(
            trends.topics.iter().all(|topic| topic.name.contains(char::is_alphabetic)),
            "{trends:#?}"
        );
    }

    // Y11
    #[test]
    fn a_line_of_bars_shows_something_wherever_there_is_something() {
        assert_eq!(sparkline(&[0, 1, 2, 7, 14], false), "▁▂▂▅█");
        assert_eq!(sparkline(&[0, 1, 2, 7, 14], true), "_..=#");
        assert_eq!(sparkline(&[0, 0], false), "▁▁");
        assert_eq!(sparkline(&[], false), "");
    }

    proptest! {
        // Y11
        #[test]
        fn any_texts_are_counted_without_a_panic_and_always_alike(texts in proptest::collection::vec("(\\PC{0,12}|auth|refactor|harbour|\\.|\n){0,30}", 0..12), limit in 1..30_usize) {
            let count = || {
                let mut counter = TrendCounter::new(YEAR, &["harbour_office".into()], None);
                for (n, text) in (0_i32..).zip(&texts) {
                    counter.add_texts(session(date(2026, 2, 1).checked_add((n / 2).days()).unwrap(), &format!("{}", n % 2)), [(MentionVoice::Own, text.as_str())]);
                }
                counter.into_trends(limit)
            };
            let trends = count();
            prop_assert_eq!(&trends, &count());
            prop_assert!(trends.topics.len() <= limit);
            for topic in &trends.topics {
                prop_assert!(topic.occasions >= 2 && topic.occasions <= trends.occasions);
                prop_assert_eq!(topic.months.iter().sum::<usize>(), topic.occasions);
                prop_assert!(topic.first <= topic.last && topic.days <= topic.occasions && topic.mentions >= topic.occasions);
                prop_assert!(!topic.places.is_empty() && topic.places.len() <= MAX_NAMED_OCCASIONS);
            }
            let ordered = trends.topics.is_sorted_by(|a, b| a.occasions >= b.occasions);
            prop_assert!(ordered);
        }
    }
}
