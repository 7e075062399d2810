//! Due dates: the days that a sentence names, relative to the day it was said.
//!
//! Promises are about the future, while searches are about the past: `friday` is the next one here,
//! `march 15` the first that is not over. A day before the sentence was said is never returned.

use icecore_text::lexicon::{self, NumberedName};
use jiff::ToSpan;
use jiff::civil::{Date, Weekday};

use crate::calendar::{Month, Week, parse_day};
use crate::natural_date::{self, NaturalDate};

/// Maximum number of words of a text that are searched for days.
const MAX_WORDS: usize = 20_000;
/// Maximum number of days returned for one text.
const MAX_DAYS: usize = 500;
/// Maximum number of units in `in 3 weeks`.
const MAX_RELATIVE_UNITS: i32 = 500;

/// Words before a day that make it recurring or past.
#[rustfmt::skip]
const NOT_FUTURE_WORDS: &[&str] =
&[
    "last", "past", "previous", "every", "each", "since", "letzten", "letzte", "letzter", "jeden", "jeder", "vorigen", "seit",
];
/// Words before a due date.
const DUE_WORDS: &[&str] =
    &["by", "until", "till", "due", "on", "before", "for", "bis", "zum", "am", "vor", "deadline"];
/// Whether a word is the name of a month, in full or abbreviated.
pub(crate) fn is_month(word: &str) -> bool {
    let lower = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    lexicon::month(&lower).is_some()
}

/// The index of the weekday a word names, also in the plural.
pub(crate) fn weekday_of(word: &str) -> Option<usize> {
    let lower = word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let one = lower
        .strip_suffix('s')
        .filter(|one| one.ends_with('y') || one.ends_with('g'))
        .unwrap_or(&lower);
    exact_weekday(one)
}

/// The due date in this sentence: the first day after `by` or the like, otherwise the first day.
pub(crate) fn due_date(sentence: &str, said: Date) -> Option<Date> {
    let all = named_days(sentence, said);
    all.iter().find(|named| named.due).or_else(|| all.first()).map(|named| named.day)
}

/// A day that a text names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedDay {
    pub day: Date,
    /// Whether a word before it marks it as a due date.
    pub due: bool,
}

/// All days from `said` on that the text names.
pub(crate) fn named_days(text: &str, said: Date) -> Vec<NamedDay> {
    let raw: Vec<&str> = text.split_whitespace().take(MAX_WORDS).collect();
    let words: Vec<String> = raw
        .iter()
        .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() && found.len() < MAX_DAYS {
        let before = at.checked_sub(1).and_then(|at| words.get(at)).copied().unwrap_or_default();
        match parse_due_day(&words[at..], raw[at], before, said) {
            Some((day, length)) => {
                let earlier =
                    at.checked_sub(2).and_then(|at| words.get(at)).copied().unwrap_or_default();
                let due = DUE_WORDS.contains(&before)
                    || (["the", "next", "this"].contains(&before) && DUE_WORDS.contains(&earlier));
                found.extend(day.filter(|day| *day >= said).map(|day| NamedDay { day, due }));
                at += length;
            }
            None => at += 1,
        }
    }
    found
}

/// The day that these words begin with, and the number of words that name it. Words that name a
/// past or recurring day are skipped as a whole.
fn parse_due_day(
    words: &[&str],
    raw: &str,
    before: &str,
    said: Date,
) -> Option<(Option<Date>, usize)> {
    let plus = |days: i32| said.checked_add(days.days()).ok();
    let friday = |week: Week| week.day(Weekday::Friday);
    let this_week = || Some(friday(Week::containing(said)).max(said));
    let passed = NOT_FUTURE_WORDS.contains(&before);
    match words {
        ["day", "after", "tomorrow", ..] => return Some((plus(2), 3)),
        ["end", "of", "the" | "this", "week", ..] => return Some((this_week(), 4)),
        ["end", "of", "the" | "this", "month", ..] => {
            return Some((Some(Month::containing(said).last()), 4));
        }
        ["end", "of", "next", "week", ..] => {
            return Some((Some(friday(Week::containing(said).next())), 4));
        }
        ["end", "of", "next", "month", ..] => {
            return Some((Some(Month::containing(said).next().last()), 4));
        }
        ["end" | "ende", "of" | "der" | "dieser", "week" | "woche", ..] => {
            return Some((this_week(), 3));
        }
        ["ende", "des" | "dieses", "monats", ..] => {
            return Some((Some(Month::containing(said).last()), 3));
        }
        ["end", "of", month, ..] if is_month(month) && *month != "may" => {
            return Some((month_end(month, said), 3));
        }
        ["in" | "within" | "binnen", count, unit, ..] => {
            if let Some(day) = relative_date(count, unit, said) {
                return Some((Some(day), 3));
            }
        }
        _ => {}
    }
    match words {
        ["today" | "tonight" | "heute" | "eod", ..] if !passed => Some((Some(said), 1)),
        ["tomorrow" | "tmrw", ..] => Some((plus(1), 1)),
        ["übermorgen", ..] => Some((plus(2), 1)),
        // "Guten Morgen", "am Morgen": the time of day.
        ["morgen", ..]
            if !["guten", "am", "jeden", "heute", "gestern", "der", "den", "diesen", "einen"]
                .contains(&before) =>
        {
            Some((plus(1), 1))
        }
        ["eow", ..] => Some((this_week(), 1)),
        ["next" | "nächste" | "nächster" | "kommende" | "kommender", "week" | "woche", ..] => {
            Some((Some(friday(Week::containing(said).next())), 2))
        }
        ["next" | "nächsten" | "kommenden", "month" | "monat", ..] => {
            Some((Some(Month::containing(said).next().last()), 2))
        }
        ["this" | "diese" | "dieser", "week" | "woche", ..] => Some((this_week(), 2)),
        ["next" | "nächsten" | "kommenden" | "this" | "diesen", name, ..]
            if exact_weekday(name).is_some() =>
        {
            Some((next_date(name, said), 2))
        }
        [name, rest @ ..] if exact_weekday(name).is_some() => {
            // "Friday, March 13": the date decides.
            let dated = rest.first().and_then(|_| parse_date(rest, raw, said));
            match dated {
                Some((day, length)) => Some((Some(day), length + 1)),
                None => Some((next_date(name, said).filter(|_| !passed), 1)),
            }
        }
        _ => {
            let (day, length) = parse_date(words, raw, said)
                .or_else(|| parse_short_date(words, raw, before, said))?;
            Some((Some(day), length))
        }
    }
}

fn exact_weekday(word: &str) -> Option<usize> {
    lexicon::weekday(word).filter(|day| !day.is_short).map(NumberedName::index)
}

fn next_date(name: &str, said: Date) -> Option<Date> {
    exact_weekday(name).and_then(|_| parse_day(name, said))
}

fn month_end(month: &str, said: Date) -> Option<Date> {
    (0..2).find_map(|ahead| {
        match natural_date::parse(&format!("{month} {:04}", said.year().checked_add(ahead)?), said)
        {
            Ok(NaturalDate::Month(month)) => Some(month.last()).filter(|day| *day >= said),
            _ => None,
        }
    })
}

fn relative_date(count: &str, unit: &str, said: Date) -> Option<Date> {
    const COUNTS: &[&str] =
        &["a", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"];
    const GERMAN: &[&str] =
        &["einer", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"];
    let spelt = || {
        COUNTS
            .iter()
            .position(|word| *word == count)
            .or_else(|| GERMAN.iter().position(|word| *word == count))
    };
    let one = matches!(count, "an" | "one" | "ein" | "einem");
    let number: i32 = match count.parse() {
        Ok(number) => number,
        Err(_) if one => 1,
        Err(_) => i32::try_from(spelt()? + 1).ok()?,
    };
    if !(1..=MAX_RELATIVE_UNITS).contains(&number) {
        return None;
    }
    let span = match unit {
        "day" | "days" | "tag" | "tagen" => number.days(),
        "week" | "weeks" | "woche" | "wochen" => number.weeks(),
        "month" | "months" | "monat" | "monaten" => number.months(),
        _ => return None,
    };
    said.checked_add(span).ok()
}

/// Parses a date with its month: `2026-03-01`, `13.02.2026`, `March 15`, `15th of March 2027`.
fn parse_date(words: &[&str], raw: &str, said: Date) -> Option<(Date, usize)> {
    let first = words.first()?;
    let digits = |word: &str| word.bytes().filter(u8::is_ascii_digit).count();
    if digits(first) >= 6 && first.contains(['-', '.', '/']) {
        return match natural_date::parse(first, said) {
            Ok(NaturalDate::Day(day)) => Some((day, 1)),
            _ => None,
        };
    }
    let (other, length) = match words {
        [_, "of", other, ..] => (*other, 3),
        [_, other, ..] => (*other, 2),
        _ => return None,
    };
    // "may 3 people": a month that is also a verb must be capitalized.
    let month = is_month(first) && (*first != "may" || raw.starts_with('M'));
    let (month, day) = match (month, is_month(other)) {
        (true, false) => (*first, other),
        (false, true) => (other, *first),
        _ => return None,
    };
    if !(1..=2).contains(&digits(day)) || day.len() > 4 {
        return None;
    }
    let in_year = |year: i16| match natural_date::parse(&format!("{month} {day} {year:04}"), said) {
        Ok(NaturalDate::Day(day)) => Some(day),
        _ => None,
    };
    if let Some(year) =
        words.get(length).filter(|year| year.len() == 4).and_then(|year| year.parse::<i16>().ok())
    {
        return in_year(year).map(|day| (day, length + 1));
    }
    // Nine years, because the 29th of February is not in every one.
    let day = (0..9)
        .filter_map(|ahead| in_year(said.year().checked_add(ahead)?))
        .find(|day| *day >= said)?;
    Some((day, length))
}

/// Parses a date without its month or year: `by the 15th`, `bis 24.12.`
fn parse_short_date(words: &[&str], raw: &str, before: &str, said: Date) -> Option<(Date, usize)> {
    let first = words.first()?;
    if before == "the"
        && let Some(number) = ["st", "nd", "rd", "th"]
            .iter()
            .find_map(|ending| first.strip_suffix(ending)?.parse::<i8>().ok())
        && words.get(1).is_none_or(|next| !["time", "of", "century", "floor", "one"].contains(next))
    {
        let months =
            std::iter::successors(Some(Month::containing(said)), |month| Some(month.next()));
        let mut days =
            months.take(3).filter_map(|month| Date::new(month.year(), month.number(), number).ok());
        return days.find(|day| *day >= said).map(|day| (day, 1));
    }
    // Elsewhere 3.11 is a version.
    if raw.ends_with('.') && ["bis", "am", "zum", "vom", "den", "dem"].contains(&before) {
        let (day, month) = first.split_once('.')?;
        let (day, month) = (day.parse().ok()?, month.parse().ok()?);
        let mut days =
            (0..9).filter_map(|ahead| Date::new(said.year().checked_add(ahead)?, month, day).ok());
        return days.find(|day| *day >= said).map(|day| (day, 1));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, day: &str) {
        let said = jiff::civil::date(2026, 2, 13);
        assert_eq!(
            due_date(text, said).map(|day| day.to_string()).unwrap_or_default(),
            day,
            "{text}"
        );
    }

    // L13
    #[test]
    fn days_ahead_are_read_from_sentences() {
        for (text, day) in [
            ("Send it by Friday", "2026-02-20"),
            ("Send it by tomorrow evening", "2026-02-14"),
            ("until March 15", "2026-03-15"),
            ("until the 15th of March, 2027.", "2027-03-15"),
            ("on 2026-03-01 at noon", "2026-03-01"),
            ("next week", "2026-02-20"),
            ("next Tuesday", "2026-02-17"),
            ("this Sunday", "2026-02-15"),
            ("by Monday, February 16", "2026-02-16"),
            ("in 3 days", "2026-02-16"),
            ("within two weeks", "2026-02-27"),
            ("by the end of the month", "2026-02-28"),
            ("end of March", "2026-03-31"),
            ("the day after tomorrow", "2026-02-15"),
            ("by the 1st", "2026-03-01"),
            ("by Feb 10", "2027-02-10"),
            ("bis Freitag", "2026-02-20"),
            ("bis übermorgen", "2026-02-15"),
            ("bis morgen", "2026-02-14"),
            ("bis zum 15. März", "2026-03-15"),
            ("bis 24.12. fertig", "2026-12-24"),
            ("nächste Woche", "2026-02-20"),
            ("in zwei Wochen", "2026-02-27"),
            ("on Tuesday send the report due on Friday", "2026-02-17"),
        ] {
            check(text, day);
        }
    }

    // L13
    #[test]
    fn what_is_over_or_recurs_names_no_day() {
        for text in [
            "",
            "last Friday",
            "every Friday",
            "on Fridays",
            "yesterday",
            "on 2026-02-12",
            "3 days ago",
            "Guten Morgen",
            "am Morgen",
            "jeden Montag",
            "on Python 3.11.",
            "we may 3 times",
            "in 2019",
            "01/02/2026",
            "99999999-99-99",
            "the 99th time",
        ] {
            check(text, "");
        }
    }

    proptest! {
        #[test]
        fn no_text_names_a_day_that_is_over(text in "((by|on|next|in|the|friday|march|15|31st|2026-02-01|29|feb|9999|end|of|month|\\PC{0,4}) ){0,12}", year in 1_i16..=9999) {
            let said = jiff::civil::date(year, 12, 31);
            prop_assert!(named_days(&text, said).iter().all(|named| named.day >= said));
        }
    }
}
