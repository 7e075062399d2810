//! Judges summary drafts.
//!
//! A model's text is untrusted. It is accepted only if it is not empty, fits, is plain text, keeps
//! the required items, and names no date, number or proper name that its sources lack. Complaints
//! are specific, so that the next attempt or a person can correct the draft.

use std::collections::HashSet;
use std::fmt;

use icecore_text::lexicon;
use icecore_text::normalize::collapse_spaces;
use jiff::civil::Date;
use serde::Serialize;
use unicode_segmentation::UnicodeSegmentation;

use crate::budget;
use crate::calendar::{Days, Week};
use crate::sanitize;

/// A drafted summary.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SummaryDraft {
    /// The period in a few sentences.
    pub headline: String,
    /// The details, most important lines first.
    pub body: String,
}

impl SummaryDraft {
    /// Sanitizes and normalizes the draft: a one-paragraph headline, a trimmed body.
    pub fn normalize(&self) -> Self {
        let headline = sanitize::strip_ornaments(&self.headline);
        let headline = collapse_spaces(&headline);
        let headline = headline.trim_start_matches(['#', ' ', '-', '*', '>']).trim().to_owned();
        Self { headline, body: sanitize::strip_ornaments(&self.body).trim().to_owned() }
    }

    fn text(&self) -> String {
        format!("{}\n{}", self.headline, self.body)
    }
}

/// Something that the summary must contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredItem {
    /// The event's id, if it is one; naming the id is enough.
    pub id: Option<String>,
    /// The label, such as `P1 decision`.
    pub label: String,
    pub text: String,
    /// A minor decision: may be omitted with a note.
    pub is_optional: bool,
}

impl RequiredItem {
    /// The line in a summary.
    pub fn to_line(&self) -> String {
        let text = collapse_spaces(&self.text);
        match &self.id {
            Some(id) => format!("- [{}] {text} ({id})", self.label),
            None => format!("- [{}] {text}", self.label),
        }
    }
}

/// The criteria for a draft.
#[derive(Debug, Clone)]
pub struct DraftCriteria<'a> {
    /// The days covered; dates within them may be named without a source.
    pub days: Days,
    /// The most bytes of headline and body together.
    pub bytes: usize,
    /// The most tokens.
    pub tokens: usize,
    /// The required items.
    pub required: &'a [RequiredItem],
    /// The full text of the sources.
    pub sources: &'a str,
    /// The number of sources; counts up to it may be named.
    pub count: usize,
}

/// A fault of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftComplaint {
    /// It is empty, or has no headline.
    Empty,
    /// It is too long.
    TooLong { bytes: usize, tokens: usize, most_bytes: usize, most_tokens: usize },
    /// It contains markup.
    NotPlain(Vec<String>),
    /// It lacks these required items.
    Missing(Vec<String>),
    /// It names these without a source.
    Invented(Vec<String>),
    /// It was truncated, or does not answer the request.
    NoAnswer(String),
}

impl fmt::Display for DraftComplaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty"),
            Self::TooLong { bytes, tokens, most_bytes, most_tokens } => {
                write!(
                    f,
                    "it has {bytes} bytes and about {tokens} tokens; at most {most_bytes} bytes and {most_tokens} tokens fit"
                )
            }
            Self::NotPlain(what) => write!(f, "it is not plain text: {}", what.join(", ")),
            Self::Missing(what) => write!(f, "it lacks: {}", what.join("; ")),
            Self::Invented(what) => write!(f, "no source says: {}", what.join(", ")),
            Self::NoAnswer(why) => write!(f, "it is not an answer: {why}"),
        }
    }
}

/// The most missing or invented items that are named; the rest are counted.
const MAX_NAMED_ITEMS: usize = 12;

/// The faults of a normalized draft; empty if it is accepted.
pub fn judge_draft(case: &DraftCriteria<'_>, draft: &SummaryDraft) -> Vec<DraftComplaint> {
    let text = draft.text();
    if draft.headline.chars().filter(|c| c.is_alphanumeric()).count() < 2 {
        return vec![DraftComplaint::Empty];
    }
    let mut complaints = Vec::new();
    let (bytes, tokens) = (text.len(), budget::estimate_tokens(&text));
    if bytes > case.bytes || tokens > case.tokens {
        complaints.push(DraftComplaint::TooLong {
            bytes,
            tokens,
            most_bytes: case.bytes,
            most_tokens: case.tokens,
        });
    }
    let adorned = sanitize::ornament_complaints(&text);
    if !adorned.is_empty() {
        complaints.push(DraftComplaint::NotPlain(adorned));
    }
    let missing: Vec<String> = missing_items(case.required, &text)
        .into_iter()
        .map(|must| must.to_line()[2..].to_owned())
        .collect();
    if !missing.is_empty() {
        complaints.push(DraftComplaint::Missing(cap_items(missing)));
    }
    let invented = find_invented(case, &text);
    if !invented.is_empty() {
        complaints.push(DraftComplaint::Invented(cap_items(invented)));
    }
    complaints
}

fn cap_items(mut all: Vec<String>) -> Vec<String> {
    if all.len() > MAX_NAMED_ITEMS {
        let more = all.len() - MAX_NAMED_ITEMS;
        all.truncate(MAX_NAMED_ITEMS);
        all.push(format!("and {more} more"));
    }
    all
}

/// The required items that the text lacks.
pub fn missing_items<'a>(must: &'a [RequiredItem], text: &str) -> Vec<&'a RequiredItem> {
    let lines: Vec<HashSet<String>> = text.lines().map(stems).collect();
    let kept = |must: &RequiredItem| {
        if must.id.as_ref().is_some_and(|id| text.contains(id.as_str())) {
            return true;
        }
        let wanted = stems(&must.text);
        let numbers: Vec<&String> =
            wanted.iter().filter(|word| word.starts_with(|c: char| c.is_ascii_digit())).collect();
        lines.iter().any(|line| {
            let found = wanted.iter().filter(|word| line.contains(*word)).count();
            found * 10 >= wanted.len() * 6 && numbers.iter().all(|number| line.contains(*number))
        })
    };
    must.iter().filter(|must| !must.is_optional && !kept(must)).collect()
}

/// The content words, cut to a prefix so that `deploys` matches `deploy`.
fn stems(text: &str) -> HashSet<String> {
    let words: Vec<String> = text.unicode_words().map(str::to_lowercase).collect();
    let telling = |word: &str| {
        word.chars().count() > 3
            || word.starts_with(|c: char| c.is_ascii_digit())
            || !word.is_ascii()
    };
    let mut found: HashSet<String> = words
        .iter()
        .filter(|word| telling(word))
        .map(|word| word.chars().take(6).collect())
        .collect();
    if found.is_empty() {
        found = words.into_iter().collect();
    }
    found
}

/// The dates, numbers and proper names in the text that no source has.
fn find_invented(case: &DraftCriteria<'_>, text: &str) -> Vec<String> {
    find_invented_in(case, &SourceIndex::from_text(case.sources), text)
}

/// The same with indexed sources, for judging many texts against one source.
pub(crate) fn find_invented_in(
    case: &DraftCriteria<'_>,
    said: &SourceIndex,
    text: &str,
) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut note = |what: &str| {
        if !found.iter().any(|known| known == what) {
            found.push(what.to_owned());
        }
    };
    for line in text.lines() {
        let content = line.trim_start_matches(|c: char| c.is_whitespace() || "-*#>".contains(c));
        let heading = line.trim_start().starts_with('#');
        let words: Vec<DraftWord<'_>> = split_words(content);
        for (at, word) in words.iter().enumerate() {
            if word.text.contains(|c: char| c.is_ascii_digit()) {
                let near = [at.checked_sub(1), Some(at + 1), at.checked_sub(2)]
                    .into_iter()
                    .flatten()
                    .filter_map(|at| words.get(at));
                if !said.has_number(word.text)
                    && !is_allowed_number(case, word.text, near.map(|word| word.text))
                {
                    note(word.text);
                }
                continue;
            }
            let name = word.text;
            let capital =
                name.chars().next().is_some_and(char::is_uppercase) && name.chars().count() > 1;
            if !capital || heading || said.has_word(name) || is_calendar_word(name) {
                continue;
            }
            let acts = words.get(at + 1).is_some_and(|next| VERBS_AFTER_NAMES.contains(&next.text));
            if word.begins && (!acts || COMMON_STARTERS.contains(&name)) {
                continue;
            }
            // In languages that capitalize all nouns, a capital proves nothing.
            if said.capitals_everywhere && !word.begins {
                continue;
            }
            note(name);
        }
    }
    found
}

/// Verbs that typically follow a person's name at the start of a sentence.
const VERBS_AFTER_NAMES: &[&str] = &[
    "said",
    "bought",
    "sold",
    "hired",
    "paid",
    "met",
    "sent",
    "wrote",
    "gave",
    "offered",
    "acquired",
    "founded",
    "visited",
    "invited",
    "thanked",
    "asked",
    "told",
    "decided",
    "agreed",
    "confirmed",
    "proposed",
    "approved",
    "joined",
    "wants",
    "wanted",
    "suggested",
    "reported",
    "signed",
    "promised",
    "called",
    "says",
    "asks",
    "agrees",
];
/// Other common words at the start of a sentence.
const COMMON_STARTERS: &[&str] = &[
    "We",
    "They",
    "He",
    "She",
    "It",
    "You",
    "Team",
    "User",
    "Users",
    "Assistant",
    "Client",
    "Nobody",
    "Everyone",
    "Someone",
    "Who",
    "This",
    "That",
    "Also",
    "Both",
    "All",
    "Management",
    "Customer",
    "Customers",
    "Finally",
    "Then",
    "Later",
];

fn is_calendar_word(word: &str) -> bool {
    let lower = word.to_lowercase();
    month_number(&lower).is_some() || lexicon::weekday(&lower).is_some_and(|day| !day.is_short)
}

fn month_number(lower: &str) -> Option<i8> {
    i8::try_from(lexicon::month(lower.trim_end_matches('.'))?.number).ok()
}

/// A word, and whether it starts a sentence.
struct DraftWord<'a> {
    text: &'a str,
    begins: bool,
}

/// Splits a line into words. Numbers stay whole: `2026-02-13`, `09:30`, `1.2.3`, `1,500`.
fn split_words(line: &str) -> Vec<DraftWord<'_>> {
    let mut found = Vec::new();
    let mut begins = true;
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < line.len() {
        let c = line[at..].chars().next().unwrap_or(' ');
        if !c.is_alphanumeric() {
            begins |= matches!(c, '.' | '!' | '?' | ':' | ';' | '"' | '(' | '[' | '\'' | '|');
            at += c.len_utf8();
            continue;
        }
        let start = at;
        while at < line.len() {
            let c = line[at..].chars().next().unwrap_or(' ');
            let inside = at > start && at + c.len_utf8() < line.len();
            let between_digits = inside
                && ".,:/-".contains(c)
                && bytes[at - 1].is_ascii_digit()
                && bytes
                    .get(at + 1)
                    .is_some_and(|next| next.is_ascii_digit() || (*next == b'W' && c == '-'));
            if c.is_alphanumeric() || between_digits || (c == '_' && inside) {
                at += c.len_utf8();
            } else {
                break;
            }
        }
        found.push(DraftWord { text: &line[start..at], begins });
        begins = false;
    }
    found
}

/// An index of the words and numbers in the sources.
pub(crate) struct SourceIndex {
    words: HashSet<String>,
    numbers: HashSet<String>,
    capitals_everywhere: bool,
}

impl SourceIndex {
    pub(crate) fn from_text(sources: &str) -> Self {
        let (mut lower, mut numbers) = (HashSet::new(), HashSet::new());
        let (mut inner, mut capitals) = (0_usize, 0_usize);
        for line in sources.lines() {
            for word in split_words(line) {
                if word.text.contains(|c: char| c.is_ascii_digit()) {
                    numbers.insert(normalize_number(word.text));
                    numbers.extend(
                        word.text
                            .split(|c: char| !c.is_ascii_digit())
                            .filter(|run| !run.is_empty())
                            .map(normalize_number),
                    );
                }
                if !word.begins && word.text.chars().count() > 1 {
                    inner += 1;
                    capitals +=
                        usize::from(word.text.chars().next().is_some_and(char::is_uppercase));
                }
                lower.extend(word.text.split('_').map(str::to_lowercase));
            }
        }
        Self { words: lower, numbers, capitals_everywhere: inner >= 40 && capitals * 4 > inner }
    }

    pub(crate) fn has_word(&self, word: &str) -> bool {
        word.split('_').filter(|part| !part.is_empty()).all(|part| self.has_part(part))
    }

    fn has_part(&self, word: &str) -> bool {
        let lower = word.to_lowercase();
        let plural = lower.strip_suffix('s').unwrap_or(&lower);
        self.words.contains(&lower)
            || self.words.contains(plural)
            || self.words.contains(&format!("{lower}s"))
    }

    pub(crate) fn has_number(&self, number: &str) -> bool {
        let whole = normalize_number(number);
        // Parts of dates and times may be named separately; parts of versions or amounts may not.
        let apart = number.contains([':', '-', '/']);
        self.numbers.contains(&whole)
            || self.words.contains(&number.to_lowercase())
            || (apart
                && number
                    .split(|c: char| !c.is_ascii_digit())
                    .filter(|run| !run.is_empty())
                    .all(|run| self.numbers.contains(&normalize_number(run))))
    }
}

/// A number without thousands separators and leading zeros.
fn normalize_number(number: &str) -> String {
    let lower = number.to_lowercase();
    let digits: String = lower.chars().filter(|c| *c != ',' && *c != '_').collect();
    let trimmed = digits.trim_start_matches('0');
    if trimmed.is_empty() { "0".to_owned() } else { trimmed.to_owned() }
}

/// Counts up to the number of sources, and dates within the span, need no source.
fn is_allowed_number<'a>(
    case: &DraftCriteria<'_>,
    number: &str,
    near: impl Iterator<Item = &'a str>,
) -> bool {
    let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
    let ending = number[digits.len()..].to_lowercase();
    let value: Option<usize> =
        digits.parse().ok().filter(|_| matches!(ending.as_str(), "" | "st" | "nd" | "rd" | "th"));
    if value.is_some_and(|value| value <= case.count) {
        return true;
    }
    if let Ok(day) = number.parse::<Date>() {
        return case.days.contains(day);
    }
    if let Ok(week) = number.parse::<Week>() {
        return week.monday() <= case.days.last && case.days.first <= week.sunday();
    }
    let Some(value) = value else { return false };
    if (case.days.first.year()..=case.days.last.year())
        .any(|year| usize::try_from(year) == Ok(value))
    {
        return true;
    }
    let mut months = near.filter_map(|word| month_number(&word.to_lowercase()));
    let Ok(value) = i8::try_from(value) else { return false };
    months.any(|month| {
        (case.days.first.year()..=case.days.last.year())
            .filter_map(|year| Date::new(year, month, value).ok())
            .any(|day| case.days.contains(day))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    const SOURCES: &str = "user: we chose Postgres 15.2 over MySQL for the shop\n\
         assistant: noted, Anna will migrate 1,500 rows on 13 Feb at 09:30 and write to Client X\n\
         the PR is #482, see api_v2/users";

    fn case(must: &[RequiredItem]) -> DraftCriteria<'_> {
        let days = Days { first: date(2026, 2, 9), last: date(2026, 2, 15) };
        DraftCriteria { days, bytes: 400, tokens: 100, required: must, sources: SOURCES, count: 3 }
    }

    fn draft(headline: &str, body: &str) -> SummaryDraft {
        SummaryDraft { headline: headline.into(), body: body.into() }.normalize()
    }

    fn check(text: &str, complaint: Option<&str>) {
        let found: Vec<String> =
            judge_draft(&case(&[]), &draft(text, "")).iter().map(ToString::to_string).collect();
        match complaint {
            None => assert!(found.is_empty(), "{text}: {found:?}"),
            Some(part) => assert!(
                found.iter().any(|one| one.contains(part)),
                "{text}: {found:?} has no {part}"
            ),
        }
    }

    // P5
    #[test]
    fn what_the_sources_say_may_be_said() {
        check("Postgres 15.2 was chosen over MySQL.", None);
        check("Anna migrates 1500 rows on 2026-02-13 at 9:30.", None);
        check("Anna will write to Client X; PR 482 touches api_v2.", None);
        check("Two of 3 sessions were about Postgres, in week 2026-W07 of 2026.", None);
        check("On Friday, February 13th, the rows moved.", None);
        check("The shops moved to postgres - finally.", None);
    }

    // P5
    #[test]
    fn what_no_source_says_is_named() {
        check("Postgres 16 was chosen.", Some("no source says: 16"));
        check("Postgres 15.3 was chosen.", Some("15.3"));
        check("They chose Oracle for the shop.", Some("Oracle"));
        check("Bob decided on Postgres.", Some("Bob"));
        check("Globex bought the shop.", Some("Globex"));
        check("Postgres for the shop of Globex Inc was chosen.", Some("Globex"));
        check("It happened on 2026-03-13.", Some("2026-03-13"));
        check("It happened on March 4.", Some("4"));
        check("It moved 9,500 rows.", Some("9,500"));
        check("", Some("it is empty"));
        check("- .", Some("it is empty"));
        check(&"Postgres ".repeat(60), Some("at most 400 bytes"));
    }

    // P11
    #[test]
    fn a_draft_is_made_plain_before_it_is_judged() {
        let tidy = draft(
            "\u{1f680} Postgres \u{2014} it \u{201c}won\u{201d}",
            "### Decisions\n- Postgres\u{2026}",
        );
        assert_eq!(
            tidy,
            SummaryDraft {
                headline: "Postgres - it \"won\"".into(),
                body: "## Decisions\n- Postgres...".into()
            }
        );
        assert_eq!(judge_draft(&case(&[]), &tidy), []);
    }

    // P5
    #[test]
    fn what_must_be_kept_is_kept_by_id_or_by_its_words() {
        let must = |id: Option<&str>, text: &str, may_go| RequiredItem {
            id: id.map(Into::into),
            label: "P1 decision".into(),
            text: text.into(),
            is_optional: may_go,
        };
        let musts = [
            must(Some("EVT-20260213-001"), "Use Postgres 15.2 for the shop", false),
            must(None, "Anna migrates the rows", false),
            must(None, "Tea", true),
        ];
        let missing = |text: &str| missing_items(&musts, text).len();
        assert_eq!(missing("EVT-20260213-001 stands\n- Anna migrated all rows"), 0);
        assert_eq!(missing("- the shop uses Postgres 15.2\n- Anna will migrate rows"), 0);
        assert_eq!(missing("- the shop uses Postgres\n- Anna will migrate rows"), 1);
        assert_eq!(missing("nothing"), 2);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_judge_fall(sources in "(?s).{0,120}", text in "(?s).{0,120}") {
            let case = DraftCriteria { sources: &sources, ..case(&[]) };
            let _ = judge_draft(&case, &draft(&text, &text));
        }

        // Text copied verbatim from a source is never called invented.
        #[test]
        fn a_source_may_be_quoted(source in "[A-Za-z0-9 .,:/_#-]{2,80}") {
            let case = DraftCriteria { sources: &source, bytes: 10_000, tokens: 10_000, ..case(&[]) };
            proptest::prop_assert_eq!(find_invented(&case, &source), Vec::<String>::new());
        }
    }
}
