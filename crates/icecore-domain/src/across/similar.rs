//! Similarity of summaries: finds periods about the same topics, and merges their summaries.
//!
//! Similarity is the cosine of the texts' TF-IDF vectors: a word weighs more the fewer summaries of
//! the tier contain it. Common words, dates and ids do not count; names and other numbers do.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use jiff::ToSpan;
use jiff::civil::Date;
use serde::Serialize;

use super::lexicon::{Lexicon, Token, Worth};
use crate::budget;
use crate::cascade::press;
use crate::summary::{Period, Similar, Summary};

/// The similarity from which two summaries are about the same topics.
pub const ALIKE: f32 = 0.3;
/// The furthest reference to an earlier summary, in years.
const REFERENCE_YEARS: i32 = 10;
/// The most shared words that are shown.
const NAMED: usize = 3;
/// Longer words are not shown.
const LONGEST_BYTES: usize = 24;
/// Fewer shared words are coincidence.
const LEAST_SHARED: usize = 3;
/// The share of common significant words from which two lines are the same.
const SAME: f64 = 0.7;
/// A line with at least this many significant words, all of them in a longer line, repeats that
/// line,
const CONTAINED: usize = 4;
/// if the longer line is at most this many times as long.
const LONGER: usize = 2;
/// Lines with fewer significant words are the same only if they are identical.
const LEAST_TO_COMPARE: usize = 3;

/// A summary that is similar to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Like {
    pub period: Period,
    /// The similarity, from 0 to 1.
    pub likeness: f32,
    /// The shared words, most significant first.
    pub shared: Vec<String>,
}

/// The terms of a text, each with its count and written form.
type Bag = BTreeMap<u32, (u32, Box<str>)>;

/// The term vectors of summaries, for comparison.
#[derive(Default)]
pub struct Shelf {
    lexicon: Lexicon,
    bags: BTreeMap<Period, Bag>,
    tokens: Vec<Token>,
}

impl Shelf {
    /// Indexes these summaries.
    pub fn of<'a>(summaries: impl IntoIterator<Item = &'a Summary>) -> Self {
        let mut shelf = Self::default();
        summaries.into_iter().for_each(|summary| shelf.put(summary));
        shelf
    }

    /// Adds a summary, replacing an earlier one of the same period.
    pub fn put(&mut self, summary: &Summary) {
        let mut bag = Bag::new();
        for line in std::iter::once(summary.headline.as_str()).chain(summary.body.lines()) {
            // Headings are the same in all summaries.
            if line.starts_with('#') {
                continue;
            }
            let line = bare(line);
            self.lexicon.read(&line, &mut None, &mut self.tokens);
            for token in
                self.tokens.iter().filter(|token| token.worth != Worth::Common || token.capital)
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
    pub fn like(&self, of: Period, among: impl Fn(Period) -> bool, at_least: f32) -> Vec<Like> {
        let Some(own) = self.bags.get(&of) else { return Vec::new() };
        let others: Vec<(Period, &Bag)> = self
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
        let length = |bag: &Bag| {
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
            let likeness = rounded(product / (own_length * length(bag)).max(f64::MIN_POSITIVE));
            if likeness >= at_least && shared.len() >= LEAST_SHARED {
                found.push(Like { period, likeness, shared: named(shared) });
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
    pub fn reference(&self, of: Period) -> Option<Similar> {
        let (before, earliest) = (preceding(of), earliest(of));
        let earlier = |period: Period| {
            let first = period.days().first;
            earliest <= first && first < of.days().first && Some(period) != before
        };
        let like = self.like(of, earlier, ALIKE).into_iter().next()?;
        (!like.shared.is_empty()).then_some(Similar { period: like.period, shared: like.shared })
    }
}

/// The first day that references may reach, which bounds the cost over long histories.
pub fn earliest(period: Period) -> Date {
    period.days().first.checked_sub(REFERENCE_YEARS.years()).unwrap_or(Date::MIN)
}

/// The previous period of the same tier.
fn preceding(period: Period) -> Option<Period> {
    match period {
        Period::Session { .. } => None,
        Period::Day(day) => day.yesterday().ok().map(Period::Day),
        Period::Week(week) => Some(Period::Week(week.previous())),
        Period::Month(month) => Some(Period::Month(month.previous())),
        Period::Year(year) => Some(Period::Year(year - 1)),
    }
}

/// A line without references: ids, dates, names of memories, labels in brackets.
fn bare(line: &str) -> String {
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
        && (inner.len() == 2 || inner.parse::<crate::event::Kind>().is_ok())
}

// Rounding hides differences that come from the order of summation.
#[expect(clippy::cast_possible_truncation, reason = "a likeness has a few places")]
fn rounded(likeness: f64) -> f32 {
    ((likeness.min(1.0) * 10_000.0).round() / 10_000.0) as f32
}

/// The most significant of the shared words, as written.
fn named(mut shared: Vec<(f64, &str)>) -> Vec<String> {
    let key = |weight: f64| rounded(weight / 100.0);
    shared.sort_by(|a, b| {
        key(b.0).partial_cmp(&key(a.0)).unwrap_or(Ordering::Equal).then_with(|| a.1.cmp(b.1))
    });
    let words = shared
        .into_iter()
        .map(|(_, shown)| shown)
        .filter(|word| word.contains(char::is_alphabetic) && word.len() <= LONGEST_BYTES);
    words.take(NAMED).map(str::to_owned).collect()
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
    fn line(&self) -> String {
        let periods: Vec<String> = self.periods.iter().map(ToString::to_string).collect();
        format!("- {} ({})\n", self.text, periods.join(", "))
    }
}

/// Several summaries merged, each statement once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Merged {
    /// The lines, in chronological order.
    pub lines: Vec<MergedLine>,
    /// The number of lines that repeated another.
    pub repeated: usize,
    /// The number of lines that did not fit.
    pub left_out: usize,
}

impl Merged {
    /// The merged text.
    pub fn text(&self) -> String {
        self.lines.iter().map(MergedLine::line).collect()
    }
}

struct Saying {
    text: String,
    periods: BTreeSet<Period>,
    words: HashSet<u32>,
    numbers: BTreeSet<u32>,
    /// Its index within its summary: the most important lines come first.
    rank: usize,
}

/// Merges the statements of summaries into at most `bytes` bytes.
pub fn merge(summaries: &[Summary], bytes: usize) -> Merged {
    let mut ordered: Vec<&Summary> = summaries.iter().collect();
    ordered.sort_by_key(|summary| (summary.period.days().first, summary.period));
    let mut lexicon = Lexicon::default();
    let mut sayings: Vec<Saying> = Vec::new();
    let mut repeated = 0;
    for summary in ordered {
        for (rank, text) in sayings_of(summary).into_iter().enumerate() {
            let one = saying(&mut lexicon, text, summary.period, rank);
            match sayings.iter_mut().find(|known| says_the_same(known, &one)) {
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
        let need = lines[at].line().len();
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
    Merged { lines, repeated, left_out }
}

/// The statements of a summary: the sentences of its headline, and the lines of its body.
fn sayings_of(summary: &Summary) -> Vec<String> {
    let mut found = press::sentences(&summary.headline);
    for line in summary.body.lines() {
        let text = line.trim().trim_start_matches(['-', '*', '>']).trim();
        if !text.is_empty() && !text.starts_with('#') {
            found.push(budget::shortened(text, press::SENTENCE_CHARS));
        }
    }
    found
}

fn saying(lexicon: &mut Lexicon, text: String, period: Period, rank: usize) -> Saying {
    let mut tokens = Vec::new();
    lexicon.read(&bare(&text), &mut None, &mut tokens);
    let of = |wanted: &dyn Fn(Worth) -> bool| {
        tokens
            .iter()
            .filter(|token| wanted(token.worth))
            .map(|token| token.term)
            .collect::<HashSet<u32>>()
    };
    Saying {
        words: of(&|worth| matches!(worth, Worth::Telling | Worth::Common)),
        numbers: of(&|worth| worth == Worth::Number).into_iter().collect(),
        periods: BTreeSet::from([period]),
        text,
        rank,
    }
}

fn says_the_same(one: &Saying, other: &Saying) -> bool {
    if one.text == other.text {
        return true;
    }
    let (fewer, more) =
        if one.words.len() <= other.words.len() { (one, other) } else { (other, one) };
    if fewer.words.len() < LEAST_TO_COMPARE
        || !fewer.numbers.is_subset(&more.numbers)
        || denies(&one.text) != denies(&other.text)
    {
        return false;
    }
    let shared = fewer.words.intersection(&more.words).count();
    let all = fewer.words.len() + more.words.len() - shared;
    let alike = share(shared, all) >= SAME && one.numbers == other.numbers;
    alike
        || (shared == fewer.words.len()
            && shared >= CONTAINED
            && more.words.len() <= shared * LONGER)
}

/// Whether a line negates something: it does not match a line without negation.
fn denies(text: &str) -> bool {
    const DENIALS: &[&str] =
        &["not", "no", "never", "without", "cannot", "nicht", "kein", "keine", "nie", "ohne"];
    let lower = text.to_lowercase();
    lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .any(|word| DENIALS.contains(&word) || word.ends_with("n't"))
}

#[expect(clippy::cast_precision_loss, reason = "a share")]
fn share(part: usize, whole: usize) -> f64 {
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
        let shelf = Shelf::of(&year);
        let like = shelf.like("2026-10".parse().unwrap(), |_| true, ALIKE);
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
            for like in shelf.like(one.period, |_| true, 0.0) {
                assert!(like.likeness < ALIKE * 0.7, "{} {like:?}", one.period);
            }
        }
        // Each is fully similar to itself under another period.
        let again = month("2027-01", &year[3].headline, &year[3].body);
        let all: Vec<&Summary> = year.iter().chain([&again]).collect();
        let like = Shelf::of(all).like(again.period, |_| true, ALIKE);
        assert_eq!((like[0].period.to_string().as_str(), like[0].likeness), ("2026-04", 1.0));
    }

    // Y11
    #[test]
    fn a_reference_goes_to_an_earlier_period_that_is_not_the_one_before() {
        let year = year();
        let shelf = Shelf::of(&year);
        let refers =
            |name: &str| shelf.reference(name.parse().unwrap()).map(|similar| similar.to_string());
        assert_eq!(refers("2026-10").as_deref(), Some("2026-01 (harbour, office, permits)"));
        assert_eq!(refers("2026-01"), None, "what comes later is not looked at");
        assert_eq!(refers("2026-07"), None);
        let next = Shelf::of(&[
            month("2026-09", &year[0].headline, &year[0].body),
            year[9].clone(),
            year[1].clone(),
        ]);
        assert_eq!(
            next.reference("2026-10".parse().unwrap()),
            None,
            "the month before is known anyway"
        );
        let old = Shelf::of(&[
            month("2016-09", &year[0].headline, &year[0].body),
            year[9].clone(),
            year[1].clone(),
        ]);
        assert_eq!(old.reference("2026-10".parse().unwrap()), None, "too long ago");
    }

    // Y11
    #[test]
    fn dates_ids_and_labels_make_nothing_alike() {
        let body = "- [P1 decision] Zebra (EVT-20260213-001) on 2026-02-13 [mem:20260213-0930-x]";
        let other = "- [P1 decision] Quartz (EVT-20260213-001) on 2026-02-13 [mem:20260213-0930-x]";
        let shelf = Shelf::of(&[month("2026-01", "One.", body), month("2026-03", "Two.", other)]);
        assert_eq!(shelf.like("2026-03".parse().unwrap(), |_| true, 0.0), []);
    }

    // Y11
    #[test]
    fn alike_summaries_become_one_text_that_says_each_thing_once() {
        let year = year();
        let merged = merge(&[year[9].clone(), year[0].clone()], 8_192);
        let lines: Vec<String> =
            merged.lines.iter().map(|line| line.line().trim_end().to_owned()).collect();
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
        let twice = merge(
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
            let merged = merge(&[month("2026-01", one, ""), month("2026-03", other, "")], 900);
            assert_eq!(merged.lines.len() == 1, same, "{one} / {other}: {merged:?}");
        }
    }

    proptest! {
        // Y11
        #[test]
        fn any_texts_are_compared_and_merged_within_bounds(texts in proptest::collection::vec(("(\\PC{0,9} ?|harbour |permit ){1,12}", "([- a-z0-9é\n]{0,40}|- harbour permits 5\n){0,5}"), 1..6), bytes in 0..2_000_usize) {
            let all: Vec<Summary> = texts.iter().enumerate().map(|(n, (headline, body))| month(&format!("2026-{:02}", n + 1), headline, body)).collect();
            let shelf = Shelf::of(&all);
            for one in &all {
                for like in shelf.like(one.period, |_| true, 0.0) {
                    prop_assert!((0.0..=1.0).contains(&like.likeness));
                    let back = shelf.like(like.period, |_| true, 0.0).into_iter().find(|back| back.period == one.period);
                    prop_assert_eq!(back.map(|back| back.likeness), Some(like.likeness));
                }
            }
            let merged = merge(&all, bytes);
            prop_assert!(merged.text().len() <= bytes);
            let said: usize = all.iter().map(|one| sayings_of(one).len()).sum();
            prop_assert_eq!(merged.lines.len() + merged.left_out + merged.repeated, said);
        }
    }
}
