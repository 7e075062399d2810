//! Similarity of summaries: finds periods about the same topics, and merges their summaries.
//!
//! Similarity is the cosine of the texts' TF-IDF vectors: a word weighs more the fewer summaries of
//! the tier contain it. Common words, dates and ids do not count; names and other numbers do.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use icecore_text::lexicon::{EN_DE, WordList};
use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use super::lexicon::{Lexicon, LexiconToken, TermClass};
use crate::budget;
use crate::cascade::extractive;
use crate::summary::{Period, SimilarSummary, Summary};

/// The similarity from which two summaries are about the same topics.
pub const MIN_SIMILARITY: f32 = 0.3;
/// The furthest reference to an earlier summary, in years.
const MAX_REFERENCE_YEARS: i32 = 10;
/// The most shared words that are shown.
const MAX_SHARED_WORDS: usize = 3;
/// Longer words are not shown.
const MAX_SHARED_WORD_BYTES: usize = 24;
/// Fewer shared words are coincidence.
const MIN_SHARED_WORDS: usize = 3;
/// The share of common significant words from which two lines are the same.
const SAME_LINE_SHARE: f64 = 0.7;
/// A line with at least this many significant words, all of them in a longer line, repeats that
/// line,
const MIN_CONTAINED_WORDS: usize = 4;
/// if the longer line is at most this many times as long.
const MAX_CONTAINING_LENGTH_RATIO: usize = 2;
/// Lines with fewer significant words are the same only if they are identical.
const MIN_COMPARABLE_WORDS: usize = 3;

/// A summary that is similar to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimilarityMatch {
    pub period: Period,
    /// The similarity, from 0 to 1.
    pub likeness: f32,
    /// The shared words, most significant first.
    pub shared: Vec<String>,
}

/// The terms of a text, each with its count and written form.
type WordBag = BTreeMap<u32, (u32, Box<str>)>;

/// The term vectors of summaries, for comparison.
#[derive(Default)]
pub struct SimilarityIndex {
    lexicon: Lexicon,
    bags: BTreeMap<Period, WordBag>,
    tokens: Vec<LexiconToken>,
}

impl SimilarityIndex {
    /// Indexes these summaries.
    pub fn from_summaries<'a>(summaries: impl IntoIterator<Item = &'a Summary>) -> Self {
        let mut shelf = Self::default();
        summaries.into_iter().for_each(|summary| shelf.insert(summary));
        shelf
    }

    /// Adds a summary, replacing an earlier one of the same period.
    pub fn insert(&mut self, summary: &Summary) {
        let mut bag = WordBag::new();
        for line in std::iter::once(summary.headline.as_str()).chain(summary.body.lines()) {
            // Headings are the same in all summaries.
            if line.starts_with('#') {
                continue;
            }
            let line = strip_references(line);
            self.lexicon.tokenize(&line, &mut None, &mut self.tokens);
            for token in
                self.tokens.iter().filter(|token| token.worth != TermClass::Common || token.capital)
            {
                let form = line.get(token.from..token.to).unwrap_or_default();
                let (count, shown) = bag.entry(token.term).or_insert_with(|| (0, form.into()));
                *count += 1;
                // The first word of a sentence may be capitalized only for that reason.
                if shown.starts_with(char::is_uppercase) && form.starts_with(char::is_lowercase) {
                    *shown = form.into();
                }
            }
        }
        self.bags.insert(summary.period, bag);
    }

    /// The summaries of the same tier that satisfy `among` and have at least this similarity, most
    /// similar first.
    pub fn find_similar(
        &self,
        of: Period,
        among: impl Fn(Period) -> bool,
        at_least: f32,
    ) -> Vec<SimilarityMatch> {
        let Some(own) = self.bags.get(&of) else { return Vec::new() };
        let others: Vec<(Period, &WordBag)> = self
            .bags
            .iter()
            .filter(|(period, _)| period.tier() == of.tier() && **period != of && among(**period))
            .map(|(period, bag)| (*period, bag))
            .collect();
        let mut holders: HashMap<u32, u32> = HashMap::new();
        for term in others.iter().flat_map(|(_, bag)| bag.keys()).chain(own.keys()) {
            *holders.entry(*term).or_default() += 1;
        }
        let all = u32::try_from(others.len() + 1).unwrap_or(u32::MAX);
        let weight = |term: u32, count: u32| {
            let holders = holders.get(&term).copied().unwrap_or(1);
            (1.0 + f64::from(count).ln()) * (1.0 + f64::from(all) / f64::from(holders)).ln()
        };
        let length = |bag: &WordBag| {
            bag.iter().map(|(term, (count, _))| weight(*term, *count).powi(2)).sum::<f64>().sqrt()
        };
        let own_length = length(own);
        let mut found = Vec::new();
        for (period, bag) in others {
            let mut shared: Vec<(f64, &str)> = Vec::new();
            for (term, (here, shown)) in own {
                if let Some((there, _)) = bag.get(term) {
                    shared.push((weight(*term, *here) * weight(*term, *there), shown));
                }
            }
            let product: f64 = shared.iter().map(|(weight, _)| weight).sum();
            let likeness =
                round_similarity(product / (own_length * length(bag)).max(f64::MIN_POSITIVE));
            if likeness >= at_least && shared.len() >= MIN_SHARED_WORDS {
                found.push(SimilarityMatch {
                    period,
                    likeness,
                    shared: most_significant_words(shared),
                });
            }
        }
        found.sort_by(|a, b| {
            b.likeness
                .partial_cmp(&a.likeness)
                .unwrap_or(Ordering::Equal)
                .then(b.period.cmp(&a.period))
        });
        found
    }

    /// The earlier summary that this one refers to: the most similar, except the one right before
    /// it.
    pub fn find_reference(&self, of: Period) -> Option<SimilarSummary> {
        let (before, earliest) = (preceding_period(of), earliest_reference_day(of));
        let earlier = |period: Period| {
            let first = period.days().first;
            earliest <= first && first < of.days().first && Some(period) != before
        };
        let like = self.find_similar(of, earlier, MIN_SIMILARITY).into_iter().next()?;
        (!like.shared.is_empty())
            .then_some(SimilarSummary { period: like.period, shared: like.shared })
    }
}

/// The first day that references may reach, which bounds the cost over long histories.
pub fn earliest_reference_day(period: Period) -> Date {
    period.days().first.checked_sub(MAX_REFERENCE_YEARS.years()).unwrap_or(Date::MIN)
}

/// The previous period of the same tier.
fn preceding_period(period: Period) -> Option<Period> {
    match period {
        Period::Session { .. } => None,
        Period::Day(day) => day.yesterday().ok().map(Period::Day),
        Period::Week(week) => Some(Period::Week(week.previous())),
        Period::Month(month) => Some(Period::Month(month.previous())),
        Period::Year(year) => Some(Period::Year(year - 1)),
    }
}

/// A line without references: ids, dates, names of memories, labels in brackets.
fn strip_references(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    for word in line.split_whitespace() {
        let inner = word.trim_matches(|c: char| !c.is_alphanumeric());
        let refers = word.contains("[mem:")
            || inner.starts_with("EVT-")
            || inner.parse::<Period>().is_ok()
            || is_label(word);
        if !refers {
            kept.push_str(word);
            kept.push(' ');
        }
    }
    kept
}

/// Whether a word belongs to a label before a line, such as `[P1 decision]`.
fn is_label(word: &str) -> bool {
    let inner = word.trim_matches(['[', ']', ',', ':']);
    (word.starts_with('[') || word.ends_with(']'))
        && (inner.len() == 2 || inner.parse::<crate::event::EventType>().is_ok())
}

// Rounding hides differences that come from the order of summation.
#[expect(clippy::cast_possible_truncation, reason = "a likeness has a few places")]
fn round_similarity(likeness: f64) -> f32 {
    ((likeness.min(1.0) * 10_000.0).round() / 10_000.0) as f32
}

/// The most significant of the shared words, as written.
fn most_significant_words(mut shared: Vec<(f64, &str)>) -> Vec<String> {
    let key = |weight: f64| round_similarity(weight / 100.0);
    shared.sort_by(|a, b| {
        key(b.0).partial_cmp(&key(a.0)).unwrap_or(Ordering::Equal).then_with(|| a.1.cmp(b.1))
    });
    let words = shared
        .into_iter()
        .map(|(_, shown)| shown)
        .filter(|word| word.contains(char::is_alphabetic) && word.len() <= MAX_SHARED_WORD_BYTES);
    words.take(MAX_SHARED_WORDS).map(str::to_owned).collect()
}

/// One line of a merged text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MergedLine {
    /// The text.
    pub text: String,
    /// The periods that contain it, in order.
    pub periods: Vec<Period>,
}

impl MergedLine {
    fn to_line(&self) -> String {
        let periods: Vec<String> = self.periods.iter().map(ToString::to_string).collect();
        format!("- {} ({})\n", self.text, periods.join(", "))
    }
}

/// Several summaries merged, each statement once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MergedSummaries {
    /// The lines, in chronological order.
    pub lines: Vec<MergedLine>,
    /// The number of lines that repeated another.
    pub repeated: usize,
    /// The number of lines that did not fit.
    pub left_out: usize,
}

impl MergedSummaries {
    /// The merged text.
    pub fn to_text(&self) -> String {
        self.lines.iter().map(MergedLine::to_line).collect()
    }
}

struct SummaryStatement {
    text: String,
    periods: BTreeSet<Period>,
    words: HashSet<u32>,
    numbers: BTreeSet<u32>,
    /// Its index within its summary: the most important lines come first.
    rank: usize,
}

/// Merges the statements of summaries into at most `bytes` bytes.
pub fn merge_summaries(summaries: &[Summary], bytes: usize) -> MergedSummaries {
    let mut ordered: Vec<&Summary> = summaries.iter().collect();
    ordered.sort_by_key(|summary| (summary.period.days().first, summary.period));
    let mut lexicon = Lexicon::default();
    let mut sayings: Vec<SummaryStatement> = Vec::new();
    let mut repeated = 0;
    for summary in ordered {
        for (rank, text) in summary_statements(summary).into_iter().enumerate() {
            let one = parse_statement(&mut lexicon, text, summary.period, rank);
            match sayings.iter_mut().find(|known| is_same_statement(known, &one)) {
                Some(known) => {
                    repeated += 1;
                    known.periods.insert(summary.period);
                    known.rank = known.rank.min(rank);
                    // The longer wording is used: it contains the words of the other.
                    if one.words.len() > known.words.len() {
                        (known.text, known.words, known.numbers) =
                            (one.text, one.words, one.numbers);
                    }
                }
                None => sayings.push(one),
            }
        }
    }
    // Statements of the most periods first, then by their index within the summary.
    let mut order: Vec<usize> = (0..sayings.len()).collect();
    order.sort_by_key(|&at| (std::cmp::Reverse(sayings[at].periods.len()), sayings[at].rank, at));
    let mut room = bytes;
    let mut kept = BTreeSet::new();
    let lines: Vec<MergedLine> = sayings
        .into_iter()
        .map(|saying| MergedLine {
            text: saying.text,
            periods: saying.periods.into_iter().collect(),
        })
        .collect();
    for at in order {
        let need = lines[at].to_line().len();
        if need <= room {
            room -= need;
            kept.insert(at);
        }
    }
    let left_out = lines.len() - kept.len();
    let lines = lines
        .into_iter()
        .enumerate()
        .filter(|(at, _)| kept.contains(at))
        .map(|(_, line)| line)
        .collect();
    MergedSummaries { lines, repeated, left_out }
}

/// The statements of a summary: the sentences of its headline, and the lines of its body.
fn summary_statements(summary: &Summary) -> Vec<String> {
    let mut found = extractive::plain_sentences(&summary.headline);
    for line in summary.body.lines() {
        let text = line.trim().trim_start_matches(['-', '*', '>']).trim();
        if !text.is_empty() && !text.starts_with('#') {
            found.push(budget::truncate_at_word(text, extractive::MAX_SENTENCE_CHARS));
        }
    }
    found
}

fn parse_statement(
    lexicon: &mut Lexicon,
    text: String,
    period: Period,
    rank: usize,
) -> SummaryStatement {
    let mut tokens = Vec::new();
    lexicon.tokenize(&strip_references(&text), &mut None, &mut tokens);
    let of = |wanted: &dyn Fn(TermClass) -> bool| {
        tokens
            .iter()
            .filter(|token| wanted(token.worth))
            .map(|token| token.term)
            .collect::<HashSet<u32>>()
    };
    SummaryStatement {
        words: of(&|worth| matches!(worth, TermClass::Significant | TermClass::Common)),
        numbers: of(&|worth| worth == TermClass::Number).into_iter().collect(),
        periods: BTreeSet::from([period]),
        text,
        rank,
    }
}

fn is_same_statement(one: &SummaryStatement, other: &SummaryStatement) -> bool {
    if one.text == other.text {
        return true;
    }
    let (fewer, more) =
        if one.words.len() <= other.words.len() { (one, other) } else { (other, one) };
    if fewer.words.len() < MIN_COMPARABLE_WORDS
        || !fewer.numbers.is_subset(&more.numbers)
        || is_negated(&one.text) != is_negated(&other.text)
    {
        return false;
    }
    let shared = fewer.words.intersection(&more.words).count();
    let all = fewer.words.len() + more.words.len() - shared;
    let alike = ratio(shared, all) >= SAME_LINE_SHARE && one.numbers == other.numbers;
    alike
        || (shared == fewer.words.len()
            && shared >= MIN_CONTAINED_WORDS
            && more.words.len() <= shared * MAX_CONTAINING_LENGTH_RATIO)
}

/// Whether a line negates something: it does not match a line without negation.
fn is_negated(text: &str) -> bool {
    let lower = text.to_lowercase();
    lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .any(|word| WordList::Negation.has(EN_DE, word) || word.ends_with("n't"))
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packs::upload::tests::summary;
    use proptest::prelude::*;

    fn month(name: &str, headline: &str, body: &str) -> Summary {
        summary(name.parse().unwrap(), headline, body)
    }

    /// A year of an office: the summary of each month.
    fn year() -> Vec<Summary> {
        [
            (
                "2026-01",
                "The harbour office asked for three permits; Mirabel drew the plans of the quay.",
                "- Permits for the quay were filed with the harbour office\n- The crane needs an inspection before spring",
            ),
            (
                "2026-02",
                "The shop moved to Postgres and the old server was shut down.",
                "- Migration of the orders took two nights\n- The image cache was moved as well",
            ),
            (
                "2026-03",
                "A quiet month: invoices, a newsletter, and two interviews.",
                "- The newsletter went to 4,000 readers\n- Interviews with two designers",
            ),
            (
                "2026-04",
                "The login was rewritten; sessions now live in Redis.",
                "- Auth tokens expire after an hour\n- Two outages of the login page",
            ),
            ("2026-05", "Holiday in Portugal, then the tax return.", "- The tax return was sent\n- Lisbon, Porto, and the sea"),
            (
                "2026-06",
                "The conference talk about search was written and given in Hamburg.",
                "- 200 people listened\n- Slides are on the site",
            ),
            (
                "2026-07",
                "The backup failed twice; restores are now tested every week.",
                "- Restore of the orders took four hours\n- A second disk was bought",
            ),
            ("2026-08", "The garden plan: beds, a pond and a fence.", "- The pond liner leaks\n- Oak posts for the fence"),
            ("2026-09", "Hiring: one designer starts in October.", "- Contract signed\n- The office needs a desk"),
            (
                "2026-10",
                "The harbour office granted the permits; building at the quay begins, says Mirabel.",
                "- All permits of the harbour office are there\n- The crane passed its inspection",
            ),
        ]
        .map(|(name, headline, body)| month(name, headline, body))
        .to_vec()
    }

    // Y11
    #[test]
    fn months_about_the_same_things_are_alike_and_others_are_not() {
        let year = year();
        let shelf = SimilarityIndex::from_summaries(&year);
        let like = shelf.find_similar("2026-10".parse().unwrap(), |_| true, MIN_SIMILARITY);
        assert_eq!(
            like.iter().map(|like| like.period.to_string()).collect::<Vec<_>>(),
            ["2026-01"],
            "{like:?}"
        );
        assert_eq!(
            like[0].shared,
            ["harbour", "permits", "office"].map(str::to_owned).to_vec(),
            "{like:?}"
        );
        // No other summary of the year comes close.
        for one in &year[1..9] {
            for like in shelf.find_similar(one.period, |_| true, 0.0) {
                assert!(like.likeness < MIN_SIMILARITY * 0.7, "{} {like:?}", one.period);
            }
        }
        // Each is fully similar to itself under another period.
        let again = month("2027-01", &year[3].headline, &year[3].body);
        let all: Vec<&Summary> = year.iter().chain([&again]).collect();
        let like = SimilarityIndex::from_summaries(all).find_similar(
            again.period,
            |_| true,
            MIN_SIMILARITY,
        );
        assert_eq!((like[0].period.to_string().as_str(), like[0].likeness), ("2026-04", 1.0));
    }

    // Y11
    #[test]
    fn a_reference_goes_to_an_earlier_period_that_is_not_the_one_before() {
        let year = year();
        let shelf = SimilarityIndex::from_summaries(&year);
        let refers = |name: &str| {
            shelf.find_reference(name.parse().unwrap()).map(|similar| similar.to_string())
        };
        assert_eq!(refers("2026-10").as_deref(), Some("2026-01 (harbour, office, permits)"));
        assert_eq!(refers("2026-01"), None, "what comes later is not looked at");
        assert_eq!(refers("2026-07"), None);
        let next = SimilarityIndex::from_summaries(&[
            month("2026-09", &year[0].headline, &year[0].body),
            year[9].clone(),
            year[1].clone(),
        ]);
        assert_eq!(
            next.find_reference("2026-10".parse().unwrap()),
            None,
            "the month before is known anyway"
        );
        let old = SimilarityIndex::from_summaries(&[
            month("2016-09", &year[0].headline, &year[0].body),
            year[9].clone(),
            year[1].clone(),
        ]);
        assert_eq!(old.find_reference("2026-10".parse().unwrap()), None, "too long ago");
    }

    // Y11
    #[test]
    fn dates_ids_and_labels_make_nothing_alike() {
        let body = "- [P1 decision] Zebra (EVT-20260213-001) on 2026-02-13 [mem:20260213-0930-x]";
        let other = "- [P1 decision] Quartz (EVT-20260213-001) on 2026-02-13 [mem:20260213-0930-x]";
        let shelf = SimilarityIndex::from_summaries(&[
            month("2026-01", "One.", body),
            month("2026-03", "Two.", other),
        ]);
        assert_eq!(shelf.find_similar("2026-03".parse().unwrap(), |_| true, 0.0), []);
    }

    // Y11
    #[test]
    fn alike_summaries_become_one_text_that_says_each_thing_once() {
        let year = year();
        let merged = merge_summaries(&[year[9].clone(), year[0].clone()], 8_192);
        let lines: Vec<String> =
            merged.lines.iter().map(|line| line.to_line().trim_end().to_owned()).collect();
        assert_eq!(
            lines,
            [
                "- The harbour office asked for three permits; Mirabel drew the plans of the quay. (2026-01)",
                "- Permits for the quay were filed with the harbour office (2026-01)",
                "- The crane needs an inspection before spring (2026-01)",
                "- The harbour office granted the permits; building at the quay begins, says Mirabel. (2026-10)",
                "- All permits of the harbour office are there (2026-10)",
                "- The crane passed its inspection (2026-10)",
            ]
        );
        let twice = merge_summaries(
            &[
                month("2026-01", "The crane passed its inspection in Hamburg.", ""),
                month("2026-04", "In Hamburg, the crane passed inspection.", ""),
            ],
            900,
        );
        assert_eq!((twice.lines.len(), twice.repeated, twice.left_out), (1, 1, 0), "{twice:?}");
        assert_eq!(twice.lines[0].periods.len(), 2);
    }

    // Y11
    #[test]
    fn a_number_or_a_denial_makes_another_line() {
        for (one, other, same) in [
            ("The budget of Apollo is 500 EUR", "The budget of Apollo is 600 EUR", false),
            ("We deploy the shop on Fridays", "We never deploy the shop on Fridays", false),
            (
                "The backup of the orders failed",
                "The backup of the orders failed twice in March",
                false,
            ),
            (
                "The backup of the orders failed in Hamburg",
                "In Hamburg the backup failed, that of the orders and the images",
                true,
            ),
            ("Lisbon", "Lisbon", true),
            ("Lisbon", "Lisbon and Porto by train", false),
        ] {
            let merged =
                merge_summaries(&[month("2026-01", one, ""), month("2026-03", other, "")], 900);
            assert_eq!(merged.lines.len() == 1, same, "{one} / {other}: {merged:?}");
        }
    }

    proptest! {
        // Y11
        #[test]
        fn any_texts_are_compared_and_merged_within_bounds(texts in proptest::collection::vec(("(\\PC{0,9} ?|harbour |permit ){1,12}", "([- a-z0-9é\n]{0,40}|- harbour permits 5\n){0,5}"), 1..6), bytes in 0..2_000_usize) {
            let all: Vec<Summary> = texts.iter().enumerate().map(|(n, (headline, body))| month(&format!("2026-{:02}", n + 1), headline, body)).collect();
            let shelf = SimilarityIndex::from_summaries(&all);
            for one in &all {
                for like in shelf.find_similar(one.period, |_| true, 0.0) {
                    prop_assert!((0.0..=1.0).contains(&like.likeness));
                    let back = shelf.find_similar(like.period, |_| true, 0.0).into_iter().find(|back| back.period == one.period);
                    prop_assert_eq!(back.map(|back| back.likeness), Some(like.likeness));
                }
            }
            let merged = merge_summaries(&all, bytes);
            prop_assert!(merged.to_text().len() <= bytes);
            let said: usize = all.iter().map(|one| summary_statements(one).len()).sum();
            prop_assert_eq!(merged.lines.len() + merged.left_out + merged.repeated, said);
        }
    }
}
