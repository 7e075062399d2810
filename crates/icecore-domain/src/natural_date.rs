//! Natural-language dates: `yesterday`, `last tuesday`, `2026-W07`, `feb 2026`, `last month` (Y6).
//!
//! Questions to a memory are about the past, so a bare name is always the latest one that has
//! begun: on the 13th of February `february` is this month, `feb 20` last year's, and `tuesday` the
//! one before today. Only `this`, `next`, `tomorrow` and dates with a year reach into the future.
//! `Display` writes a form that parses back to the same value.
//!
//! Conventions:
//! - Seasons are the meteorological ones of the northern hemisphere: spring begins on March 1. A
//!   winter has the year it begins in; `last winter` is the latest that is over.
//! - `last 7 days` and `past two weeks` end today and include it; `last week` is the week before
//!   this one.
//! - `two weeks ago` is that whole week, `three months ago` that whole month.
//! - `a few` is three, `a couple` is two.
//! - `this week last year` is the week that contains the day a year ago.

use std::fmt;

use icecore_text::lexicon;
use jiff::civil::{Date, Weekday};
use jiff::{Span, ToSpan};

use crate::calendar::{Days, Month, Week, weekday_name};
use crate::sanitize;

/// The longest text that is parsed.
const MAX_TEXT_BYTES: usize = 300;
/// The largest count in `3 days ago` or `last 7 days`.
const MAX_COUNT: i32 = 9_999;

/// A date, a period or a span of days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NaturalDate {
    /// One day.
    Day(Date),
    /// An ISO week.
    Week(Week),
    /// A calendar month.
    Month(Month),
    /// A calendar year.
    Year(i16),
    /// Any other span of days.
    Days(Days),
}

impl NaturalDate {
    /// The days it covers.
    pub fn days(self) -> Days {
        match self {
            Self::Day(day) => Days { first: day, last: day },
            Self::Week(week) => week.days(),
            Self::Month(month) => month.days(),
            Self::Year(year) => Days {
                first: Date::new(year, 1, 1).unwrap_or(Date::MIN),
                last: Date::new(year, 12, 31).unwrap_or(Date::MAX),
            },
            Self::Days(days) => days,
        }
    }
}

impl fmt::Display for NaturalDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day(day) => write!(f, "{day}"),
            Self::Week(week) => write!(f, "{week}"),
            Self::Month(month) => write!(f, "{month}"),
            Self::Year(year) => write!(f, "{year:04}"),
            Self::Days(days) => write!(f, "{days}"),
        }
    }
}

/// Why a text is not a date.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DateError {
    /// The text cannot be parsed.
    #[error(
        "`{text}` is not a date; write a day (2026-02-13, feb 13, yesterday, last tuesday, 3 days ago), a week (2026-W07, last week, \
         two weeks ago), a month (2026-02, feb 2026, last month), a year, a season (last summer) or a span (2026-02-01..2026-02-10, \
         from feb 3 to feb 9, last 7 days, since monday)"
    )]
    Unknown {
        /// The input.
        text: String,
    },
    /// Day and month may be in either order.
    #[error("`{text}` may be {month_first} or {day_first}; write it in that form")]
    Ambiguous {
        /// The input.
        text: String,
        /// The date if the month comes first.
        month_first: Date,
        /// The date if the day comes first.
        day_first: Date,
    },
    /// The date has another weekday.
    #[error("`{text}` has the wrong weekday: {day} is a {}; correct or omit it", weekday_name(*.day))]
    WrongWeekday {
        /// The input.
        text: String,
        /// The date.
        day: Date,
    },
    /// The span ends before it begins.
    #[error(
        "`{text}` ends before it begins ({first} to {last}); write the earlier day first, such as 2026-02-01..2026-02-10"
    )]
    Backwards {
        /// The input.
        text: String,
        /// The first day.
        first: Date,
        /// The last day.
        last: Date,
    },
}

/// Parses a date in natural language, in any case and with common filler words.
pub fn parse(text: &str, today: Date) -> Result<NaturalDate, DateError> {
    let shown: String = sanitize::one_line(text.trim()).chars().take(80).collect();
    if text.len() > MAX_TEXT_BYTES {
        return Err(DateError::Unknown { text: shown });
    }
    let folded = sanitize::sameness_key(text)
        .replace('\u{2010}', "-")
        .replace("...", "..")
        .replace("..", " .. ");
    let folded = folded.replace(['–', '—'], " .. ");
    let words: Vec<&str> = folded
        .split_whitespace()
        .map(|word| {
            if word == ".." {
                word
            } else {
                word.trim_matches(['?', '!', ',', ';', ':', '.', '"', '\'', '(', ')'])
            }
        })
        .filter(|word| !word.is_empty() && !FILLER_WORDS.contains(word))
        .map(common_word)
        .collect();
    let reader = DateParser { text: &shown, today };
    let when = reader.parse_span(&words)?;
    // Outside these years the written form has a sign, and no memory has content.
    let span = when.days();
    if span.first.year() < 1 || span.is_empty() { Err(reader.unknown_error()) } else { Ok(when) }
}

/// Words around a date that carry no meaning.
const FILLER_WORDS: &[&str] = &[
    "what",
    "what's",
    "did",
    "do",
    "done",
    "was",
    "were",
    "is",
    "have",
    "had",
    "we",
    "i",
    "me",
    "my",
    "our",
    "you",
    "happened",
    "happen",
    "worked",
    "talked",
    "on",
    "in",
    "at",
    "the",
    "during",
    "back",
    "over",
    "within",
    "of",
    "for",
    "about",
    "show",
    "tell",
    "please",
    "all",
    "everything",
    "am",
    "im",
    "der",
    "die",
    "das",
    "den",
    "dem",
    "haben",
    "habe",
    "ich",
    "wir",
    "gemacht",
    "war",
    "passiert",
];

/// Maps inflections, numbers and German words to one English word each.
fn common_word(word: &str) -> &str {
    match word {
        "days" | "tag" | "tage" => "day",
        "weeks" | "woche" | "wochen" | "kw" => "week",
        "weekends" | "wochenende" => "weekend",
        "months" | "monat" | "monate" => "month",
        "quarters" | "quartal" => "quarter",
        "years" | "jahr" | "jahre" => "year",
        "previous" | "letzte" | "letzten" | "letzter" | "letztes" | "letztem" => "last",
        "current" | "diese" | "diesen" | "dieser" | "dieses" | "diesem" => "this",
        "heute" => "today",
        "gestern" => "yesterday",
        "seit" => "since",
        "von" => "from",
        "bis" | "until" | "till" | "through" | "-" => "to",
        "zwischen" => "between",
        "und" => "and",
        "fall" | "herbst" => "autumn",
        "frühling" | "frühjahr" => "spring",
        "sommer" => "summer",
        "a" | "an" | "one" => "1",
        "two" | "couple" | "zwei" => "2",
        "three" | "few" | "drei" => "3",
        "four" => "4",
        "five" => "5",
        "six" => "6",
        "seven" => "7",
        "eight" => "8",
        "nine" => "9",
        "ten" => "10",
        "eleven" => "11",
        "twelve" => "12",
        other => other,
    }
}

struct DateParser<'a> {
    text: &'a str,
    today: Date,
}

impl DateParser<'_> {
    fn unknown_error(&self) -> DateError {
        DateError::Unknown { text: self.text.into() }
    }

    /// Parses a span with two ends, or a single date.
    fn parse_span(&self, words: &[&str]) -> Result<NaturalDate, DateError> {
        if let ["since", from @ ..] = words {
            let from = self.parse_single(from)?;
            return self.range_between(from, NaturalDate::Day(self.today));
        }
        let (words, between) = match words {
            ["between", rest @ ..] => (rest, "and"),
            ["from", rest @ ..] => (rest, "to"),
            _ => (words, "to"),
        };
        let Some(middle) = words.iter().position(|word| *word == between || *word == "..") else {
            return self.parse_single(words);
        };
        let last = self.parse_single(&words[middle + 1..])?;
        let mut first = self.parse_single(&words[..middle])?;
        if first.days().first > last.days().last {
            // "from monday to friday", asked on a Saturday or on a Thursday: the Monday before that
            // Friday.
            let then = Self { text: self.text, today: last.days().last };
            first = then.parse_undated_name(&words[..middle]).unwrap_or(first);
        }
        self.range_between(first, last)
    }

    fn range_between(
        &self,
        first: NaturalDate,
        last: NaturalDate,
    ) -> Result<NaturalDate, DateError> {
        let (first, last) = (first.days().first, last.days().last);
        if first > last {
            Err(DateError::Backwards { text: self.text.into(), first, last })
        } else {
            Ok(NaturalDate::Days(Days { first, last }))
        }
    }

    /// Parses a date without explicit ends.
    fn parse_single(&self, words: &[&str]) -> Result<NaturalDate, DateError> {
        if let Some(when) = self.parse_relative(words).or_else(|| self.parse_named(words)) {
            return Ok(when);
        }
        match words {
            [name, rest @ ..] if parse_weekday(name).is_some() && !rest.is_empty() => {
                self.parse_weekday_in(name, rest)
            }
            ["week", rest @ ..] if !rest.is_empty() => match self.parse_single(rest)? {
                NaturalDate::Day(day) => Ok(NaturalDate::Week(Week::containing(day))),
                _ => Err(self.unknown_error()),
            },
            [rest @ .., which @ ("last" | "this"), "year"] if !rest.is_empty() => {
                let year = self.today.year().saturating_sub(i16::from(*which == "last"));
                let year = format!("{year:04}");
                let words: Vec<&str> = rest.iter().copied().chain([year.as_str()]).collect();
                self.parse_named(&words).ok_or_else(|| self.unknown_error())
            }
            [date] => self.parse_slashed(date),
            _ => Err(self.unknown_error()),
        }
    }

    /// Parses a name that depends on today only for its year, unlike `yesterday`.
    fn parse_undated_name(&self, words: &[&str]) -> Option<NaturalDate> {
        match words {
            [name] if parse_weekday(name).is_some() => self.parse_relative(words),
            _ => self.parse_named(words),
        }
    }

    /// `tuesday last week`, `friday feb 13`.
    fn parse_weekday_in(&self, name: &str, rest: &[&str]) -> Result<NaturalDate, DateError> {
        let wanted = parse_weekday(name).ok_or_else(|| self.unknown_error())?;
        match self.parse_single(rest)? {
            NaturalDate::Week(week) => Ok(NaturalDate::Day(week.day(wanted))),
            NaturalDate::Day(day) if day.weekday() == wanted => Ok(NaturalDate::Day(day)),
            NaturalDate::Day(day) => Err(DateError::WrongWeekday { text: self.text.into(), day }),
            _ => Err(self.unknown_error()),
        }
    }

    /// Parses dates relative to today.
    fn parse_relative(&self, words: &[&str]) -> Option<NaturalDate> {
        let today = self.today;
        let day = |step: i32| today.saturating_add(step.days());
        let year = |step: i16| NaturalDate::Year(today.year().saturating_add(step));
        let week = Week::containing(today);
        let month = Month::containing(today);
        Some(match words {
            ["today"] | ["this", "day"] => NaturalDate::Day(today),
            ["yesterday"] | ["last", "day"] => NaturalDate::Day(day(-1)),
            ["day", "before", "yesterday"] | ["vorgestern"] => NaturalDate::Day(day(-2)),
            ["tomorrow" | "morgen"] => NaturalDate::Day(day(1)),
            ["this", "week", "last", "year"] => {
                NaturalDate::Week(Week::containing(today.saturating_sub(1.year())))
            }
            ["this", "month", "last", "year"] => {
                NaturalDate::Month(Month::containing(today.saturating_sub(1.year())))
            }
            ["today", "last", "year"] | ["this", "day", "last", "year"] => {
                NaturalDate::Day(today.saturating_sub(1.year()))
            }
            ["this", "week"] => NaturalDate::Week(week),
            ["last", "week"] => NaturalDate::Week(week.previous()),
            ["next", "week"] => NaturalDate::Week(week.next()),
            ["this", "month"] => NaturalDate::Month(month),
            ["last", "month"] => NaturalDate::Month(month.previous()),
            ["next", "month"] => NaturalDate::Month(month.next()),
            ["this", "year"] => year(0),
            ["last", "year"] => year(-1),
            ["next", "year"] => year(1),
            [unit @ ("week" | "month" | "year"), "before", "last"] => period_ago(2, unit, today)?,
            [count, unit, "ago"] => period_ago(parse_number(count)?, unit, today)?,
            ["last" | "past", count, unit] => days_until_today(parse_number(count)?, unit, today)?,
            ["past", unit] => days_until_today(1, unit, today)?,
            ["weekend"] => self.latest_weekend(|weekend| weekend.first <= today),
            ["last", "weekend"] => self.latest_weekend(|weekend| weekend.last < today),
            ["this", "weekend"] => NaturalDate::Days(weekend(week)),
            ["next", "weekend"] => NaturalDate::Days(weekend(week.next())),
            ["this", "quarter"] => quarter(today.year(), quarter_of(today))?,
            ["last", "quarter"] => period_ago(1, "quarter", today)?,
            [name] | ["last", name] if parse_weekday(name).is_some() => {
                let wanted = parse_weekday(name)?;
                let back = today.weekday().since(wanted);
                NaturalDate::Day(day(-i32::from(if back == 0 { 7 } else { back })))
            }
            ["this", name] if parse_weekday(name).is_some() => {
                NaturalDate::Day(week.day(parse_weekday(name)?))
            }
            ["next", name] if parse_weekday(name).is_some() => {
                let ahead = parse_weekday(name)?.since(today.weekday());
                NaturalDate::Day(day(i32::from(if ahead == 0 { 7 } else { ahead })))
            }
            _ => return None,
        })
    }

    /// Parses dates with a name of their own; without a year, the latest that has begun.
    fn parse_named(&self, words: &[&str]) -> Option<NaturalDate> {
        let (words, over) = match words {
            ["last", rest @ ..] => (rest, true),
            _ => (words, false),
        };
        if let ["this", name] = words {
            let year = self.today.year();
            let running = yearly_name(name, year.saturating_sub(1))
                .filter(|when| when.days().contains(self.today));
            return running.or_else(|| yearly_name(name, year));
        }
        let (name, year) = match words {
            [single] if !over => match parse_iso(single) {
                Some(when) => return Some(when),
                None => (words, None),
            },
            [name @ .., year] if name.len() == 1 || name.len() == 2 => match parse_year(year) {
                Some(_) if over => return None,
                Some(year) => (name, Some(year)),
                None => (words, None),
            },
            _ => (words, None),
        };
        let in_year = |year: i16| match name {
            ["week", number] => {
                Some(NaturalDate::Week(Week::new(year, parse_small_number(number, 2)?)?))
            }
            [month, day] if parse_month(month).is_some() => parse_day_of_month(year, month, day),
            [day, month] if parse_month(month).is_some() => parse_day_of_month(year, month, day),
            [name] => yearly_name(name, year),
            _ => None,
        };
        if let Some(year) = year {
            return in_year(year);
        }
        if let [ordinal] = name
            && let Some(wanted) = parse_ordinal_day(ordinal)
        {
            let months = std::iter::successors(Some(Month::containing(self.today)), |month| {
                Some(month.previous())
            });
            let mut days = months
                .take(3)
                .filter_map(|month| Date::new(month.year(), month.number(), wanted).ok());
            return days
                .find(|day| if over { *day < self.today } else { *day <= self.today })
                .map(NaturalDate::Day);
        }
        let begun = |when: &NaturalDate| {
            if over { when.days().last < self.today } else { when.days().first <= self.today }
        };
        // Ten years, since not every year has a February 29 or a week 53.
        (0..10).filter_map(|back| in_year(self.today.year().saturating_sub(back))).find(begun)
    }

    fn latest_weekend(&self, fits: impl Fn(Days) -> bool) -> NaturalDate {
        let this = weekend(Week::containing(self.today));
        NaturalDate::Days(if fits(this) {
            this
        } else {
            weekend(Week::containing(self.today).previous())
        })
    }

    /// `02/13/2026`, where only one order of day and month is valid.
    fn parse_slashed(&self, text: &str) -> Result<NaturalDate, DateError> {
        let parts: Vec<&str> = text.split('/').collect();
        let [one, other, year] = parts.as_slice() else { return Err(self.unknown_error()) };
        if let Some(year) = parse_year(one) {
            let day = new_date(year, parse_small_number(other, 2), parse_small_number(parts[2], 2));
            return day.map(NaturalDate::Day).ok_or_else(|| self.unknown_error());
        }
        let year = parse_year(year).ok_or_else(|| self.unknown_error())?;
        let (one, other) = (parse_small_number(one, 2), parse_small_number(other, 2));
        match (new_date(year, one, other), new_date(year, other, one)) {
            (Some(month_first), Some(day_first)) if month_first != day_first => {
                Err(DateError::Ambiguous { text: self.text.into(), month_first, day_first })
            }
            (Some(day), _) | (None, Some(day)) => Ok(NaturalDate::Day(day)),
            (None, None) => Err(self.unknown_error()),
        }
    }
}

/// Absolute forms: `2026-02-13`, `13.02.2026`, `2026-W07`, `2026-02`, `2026`.
fn parse_iso(text: &str) -> Option<NaturalDate> {
    let upper = text.to_ascii_uppercase();
    if let Ok(week) = upper.parse() {
        return Some(NaturalDate::Week(week));
    }
    if let Ok(month) = text.parse() {
        return Some(NaturalDate::Month(month));
    }
    if let Some(year) = parse_year(text) {
        return Some(NaturalDate::Year(year));
    }
    let dashed: Vec<&str> = text.split('-').collect();
    let dotted: Vec<&str> = text.split('.').collect();
    match (dashed.as_slice(), dotted.as_slice()) {
        ([year, month, day], _) | (_, [day, month, year]) => Some(NaturalDate::Day(new_date(
            parse_year(year)?,
            parse_small_number(month, 2),
            parse_small_number(day, 2),
        )?)),
        _ => None,
    }
}

/// One-word names that every year has once.
fn yearly_name(name: &str, year: i16) -> Option<NaturalDate> {
    if let Some(month) = parse_month(name) {
        return Month::new(year, month).map(NaturalDate::Month);
    }
    if let Some(number) = name.strip_prefix('w').and_then(|number| parse_small_number(number, 2)) {
        return Week::new(year, number).map(NaturalDate::Week);
    }
    if let Some(number) = name.strip_prefix('q').and_then(|number| parse_small_number(number, 1)) {
        return quarter(year, number);
    }
    if let Some((day, month)) = name.split_once('.') {
        return new_date(year, parse_small_number(month, 2), parse_small_number(day, 2))
            .map(NaturalDate::Day);
    }
    let first = match name {
        "spring" => 3,
        "summer" => 6,
        "autumn" => 9,
        "winter" => 12,
        _ => return None,
    };
    quarter_from(Month::new(year, first)?)
}

fn quarter(year: i16, number: i8) -> Option<NaturalDate> {
    (1..=4).contains(&number).then(|| quarter_from(Month::new(year, number * 3 - 2)?)).flatten()
}

fn quarter_of(day: Date) -> i8 {
    (day.month() - 1) / 3 + 1
}

fn quarter_from(first: Month) -> Option<NaturalDate> {
    Some(NaturalDate::Days(Days { first: first.first(), last: first.next().next().last() }))
}

fn weekend(week: Week) -> Days {
    Days { first: week.day(Weekday::Saturday), last: week.sunday() }
}

fn count_to_span(count: i32, unit: &str) -> Option<Span> {
    Some(match unit {
        "day" => count.days(),
        "week" => count.weeks(),
        "month" => count.months(),
        "quarter" => (count * 3).months(),
        "year" => count.years(),
        _ => return None,
    })
}

/// The day, week, month or year that long ago.
fn period_ago(count: i32, unit: &str, today: Date) -> Option<NaturalDate> {
    let then = today.checked_sub(count_to_span(count, unit)?).ok()?;
    Some(match unit {
        "day" => NaturalDate::Day(then),
        "week" => NaturalDate::Week(Week::containing(then)),
        "month" => NaturalDate::Month(Month::containing(then)),
        "quarter" => quarter(then.year(), quarter_of(then))?,
        _ => NaturalDate::Year(then.year()),
    })
}

/// The days from that long ago to today.
fn days_until_today(count: i32, unit: &str, today: Date) -> Option<NaturalDate> {
    let before = today.checked_sub(count_to_span(count, unit)?).ok()?;
    Some(NaturalDate::Days(Days { first: before.tomorrow().ok()?.min(today), last: today }))
}

fn parse_number(text: &str) -> Option<i32> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
        .filter(|count| (1..=MAX_COUNT).contains(count))
}

fn parse_small_number(text: &str, most_digits: usize) -> Option<i8> {
    (text.len() <= most_digits)
        .then(|| parse_number(text))
        .flatten()
        .and_then(|number| i8::try_from(number).ok())
}

fn parse_year(text: &str) -> Option<i16> {
    (text.len() == 4)
        .then(|| parse_number(text))
        .flatten()
        .and_then(|year| i16::try_from(year).ok())
}

fn new_date(year: i16, month: Option<i8>, day: Option<i8>) -> Option<Date> {
    Date::new(year, month?, day?).ok()
}

fn parse_ordinal_day(text: &str) -> Option<i8> {
    ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|ending| parse_small_number(text.strip_suffix(ending)?, 2))
}

fn parse_day_of_month(year: i16, month: &str, day: &str) -> Option<NaturalDate> {
    new_date(
        year,
        parse_month(month),
        parse_ordinal_day(day).or_else(|| parse_small_number(day, 2)),
    )
    .map(NaturalDate::Day)
}

fn parse_month(text: &str) -> Option<i8> {
    i8::try_from(lexicon::month(text)?.number).ok()
}

fn parse_weekday(text: &str) -> Option<Weekday> {
    Weekday::from_monday_one_offset(i8::try_from(lexicon::weekday(text)?.number).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;
    use proptest::prelude::*;

    /// A Friday.
    const TODAY: Date = date(2026, 2, 13);

    fn check_on(today: Date, text: &str, written: &str) {
        assert_eq!(
            parse(text, today).map(|when| when.to_string()).map_err(|error| error.to_string()),
            Ok(written.to_owned()),
            "{text}"
        );
    }

    // Y6
    #[test]
    fn times_are_read_as_people_ask_for_them() {
        for (text, written) in [
            ("2026-02-13", "2026-02-13"),
            ("2026-2-3", "2026-02-03"),
            ("2027-05-01", "2027-05-01"),
            ("13.02.2026", "2026-02-13"),
            ("3.2.2026", "2026-02-03"),
            ("24.12.", "2025-12-24"),
            ("02/13/2026", "2026-02-13"),
            ("13/02/2026", "2026-02-13"),
            ("02/02/2026", "2026-02-02"),
            ("2026/02/13", "2026-02-13"),
            ("Feb 13", "2026-02-13"),
            ("feb 14", "2025-02-14"),
            ("13 Feb 2026", "2026-02-13"),
            ("February 13th", "2026-02-13"),
            ("the 3rd of March, 2024", "2024-03-03"),
            ("Feb 29", "2024-02-29"),
            ("on the 9th", "2026-02-09"),
            ("the 31st", "2026-01-31"),
            ("friday, february 13th 2026", "2026-02-13"),
            ("today", "2026-02-13"),
            ("  TODAY ?", "2026-02-13"),
            ("yesterday", "2026-02-12"),
            ("the day before yesterday", "2026-02-11"),
            ("tomorrow", "2026-02-14"),
            ("tuesday", "2026-02-10"),
            ("What did we do on Tuesday?", "2026-02-10"),
            ("last tuesday", "2026-02-10"),
            ("tues", "2026-02-10"),
            ("friday", "2026-02-06"),
            ("last friday", "2026-02-06"),
            ("saturday", "2026-02-07"),
            ("this saturday", "2026-02-14"),
            ("this tuesday", "2026-02-10"),
            ("next tuesday", "2026-02-17"),
            ("tuesday last week", "2026-02-03"),
            ("2026-W07", "2026-W07"),
            ("2026-w53", "2026-W53"),
            ("week 7", "2026-W07"),
            ("week 8", "2025-W08"),
            ("week 53", "2020-W53"),
            ("week 7 of 2024", "2024-W07"),
            ("W07", "2026-W07"),
            ("this week", "2026-W07"),
            ("during the last week", "2026-W06"),
            ("week of 2026-02-13", "2026-W07"),
            ("the week of jan 1", "2026-W01"),
            ("the week before last", "2026-W05"),
            ("two weeks ago", "2026-W05"),
            ("a week ago", "2026-W06"),
            ("3 days ago", "2026-02-10"),
            ("last 7 days", "2026-02-07..2026-02-13"),
            ("over the past two weeks", "2026-01-31..2026-02-13"),
            ("past week", "2026-02-07..2026-02-13"),
            ("past month", "2026-01-14..2026-02-13"),
            ("feb 2026", "2026-02"),
            ("February", "2026-02"),
            ("in february", "2026-02"),
            ("back in March", "2025-03"),
            ("last february", "2025-02"),
            ("february last year", "2025-02"),
            ("feb 20 last year", "2025-02-20"),
            ("may", "2025-05"),
            ("Sept", "2025-09"),
            ("2026-02", "2026-02"),
            ("this month", "2026-02"),
            ("last month", "2026-01"),
            ("What happened last month?", "2026-01"),
            ("three months ago", "2025-11"),
            ("2026", "2026"),
            ("in 2024", "2024"),
            ("this year", "2026"),
            ("last year", "2025"),
            ("2 years ago", "2024"),
            ("last spring", "2025-03-01..2025-05-31"),
            ("last summer", "2025-06-01..2025-08-31"),
            ("fall", "2025-09-01..2025-11-30"),
            ("winter", "2025-12-01..2026-02-28"),
            ("this winter", "2025-12-01..2026-02-28"),
            ("last winter", "2024-12-01..2025-02-28"),
            ("summer 2023", "2023-06-01..2023-08-31"),
            ("this week last year", "2025-W07"),
            ("today last year", "2025-02-13"),
            ("Q1 2026", "2026-01-01..2026-03-31"),
            ("q4", "2025-10-01..2025-12-31"),
            ("last quarter", "2025-10-01..2025-12-31"),
            ("weekend", "2026-02-07..2026-02-08"),
            ("last weekend", "2026-02-07..2026-02-08"),
            ("this weekend", "2026-02-14..2026-02-15"),
            ("2026-02-01..2026-02-10", "2026-02-01..2026-02-10"),
            ("2026-02-01 … 2026-02-10", "2026-02-01..2026-02-10"),
            ("feb 3 – feb 9", "2026-02-03..2026-02-09"),
            ("from feb 3 to feb 9", "2026-02-03..2026-02-09"),
            ("from feb 10 to feb 20", "2025-02-10..2025-02-20"),
            ("from dec 20 until jan 5", "2025-12-20..2026-01-05"),
            ("from monday to friday", "2026-02-02..2026-02-06"),
            ("between last week and yesterday", "2026-02-02..2026-02-12"),
            ("2025..2026-01", "2025-01-01..2026-01-31"),
            ("since monday", "2026-02-09..2026-02-13"),
            ("since last month", "2026-01-01..2026-02-13"),
            ("heute", "2026-02-13"),
            ("gestern", "2026-02-12"),
            ("vorgestern", "2026-02-11"),
            ("letzte Woche", "2026-W06"),
            ("letzten Monat", "2026-01"),
            ("Was haben wir am Dienstag gemacht?", "2026-02-10"),
            ("letzten Sonnabend", "2026-02-07"),
            ("im M\u{e4}rz", "2025-03"),
            ("im Ma\u{308}rz", "2025-03"),
            ("13. Februar", "2026-02-13"),
        ] {
            check_on(TODAY, text, written);
        }
    }

    // Y6
    #[test]
    fn the_same_words_move_with_the_day() {
        check_on(date(2026, 2, 15), "weekend", "2026-02-14..2026-02-15");
        check_on(date(2026, 2, 15), "last weekend", "2026-02-07..2026-02-08");
        check_on(date(2026, 1, 1), "last month", "2025-12");
        check_on(date(2026, 1, 1), "last week", "2025-W52");
        check_on(date(2027, 1, 1), "this week", "2026-W53");
        check_on(date(2027, 1, 1), "this week last year", "2026-W01");
        check_on(date(2026, 3, 31), "1 month ago", "2026-02");
        check_on(date(2024, 2, 29), "today last year", "2023-02-28");
        check_on(date(2026, 12, 5), "this winter", "2026-12-01..2027-02-28");
        check_on(date(2026, 5, 31), "last quarter", "2026-01-01..2026-03-31");
        check_on(date(2026, 2, 5), "from feb 3 to feb 9", "2025-02-03..2025-02-09");
    }

    // Y6
    #[test]
    fn an_unreadable_date_is_refused_with_valid_examples() {
        for text in [
            "",
            "soon",
            "2026-02-30",
            "feb 30",
            "2025-W53",
            "week 54",
            "week 0",
            "0000",
            "13",
            "32nd",
            "0 days ago",
            "99999 days ago",
            "9999 years ago",
            "from to",
            "since",
            "between",
            "..",
            "q5",
            "this",
            "last",
            "week",
            "W",
            "w\u{e9}",
            "31.02.2026",
            "1/2/3",
            "tuesday in february",
            "what did we do",
        ] {
            let error = parse(text, TODAY).expect_err(text);
            assert_eq!(error, DateError::Unknown { text: text.into() });
            for example in
                ["2026-02-13", "last tuesday", "2026-W07", "feb 2026", "last month", "since monday"]
            {
                assert!(error.to_string().contains(example), "{error}");
            }
        }
        let ambiguous = parse("on 02/03/2026", TODAY).unwrap_err();
        assert!(ambiguous.to_string().contains("2026-02-03 or 2026-03-02"), "{ambiguous}");
        let backwards = parse("2026-02-10..2026-02-01", TODAY).unwrap_err();
        assert!(backwards.to_string().contains("ends before it begins"), "{backwards}");
        assert!(matches!(
            parse("from yesterday to 2026-02-01", TODAY),
            Err(DateError::Backwards { .. })
        ));
        let contradiction = parse("tuesday 2026-02-13", TODAY).unwrap_err();
        assert!(contradiction.to_string().contains("2026-02-13 is a Friday"), "{contradiction}");
        let long = parse(&"tuesday ".repeat(1_000), TODAY).unwrap_err();
        assert!(long.to_string().len() < 600, "{long}");
    }

    /// Every example in an error message is valid.
    #[test]
    fn the_examples_of_the_error_are_read() {
        let help = parse("soon", TODAY).unwrap_err().to_string();
        let examples: Vec<&str> =
            help.split(['(', ')']).skip(1).step_by(2).flat_map(|list| list.split(", ")).collect();
        assert!(examples.len() > 12);
        for example in examples {
            assert!(parse(example, TODAY).is_ok(), "{example}");
        }
    }

    fn any_day() -> impl Strategy<Value = Date> {
        (1_i16..=9_999, 1_i8..=12, 1_i8..=28).prop_map(|(year, month, day)| date(year, month, day))
    }

    fn any_when() -> impl Strategy<Value = NaturalDate> {
        prop_oneof![
            any_day().prop_map(NaturalDate::Day),
            any_day().prop_map(|day| NaturalDate::Week(Week::containing(day))),
            any_day().prop_map(|day| NaturalDate::Month(Month::containing(day))),
            any_day().prop_map(|day| NaturalDate::Year(day.year())),
            (any_day(), any_day()).prop_map(|(one, other)| NaturalDate::Days(Days {
                first: one.min(other),
                last: one.max(other)
            })),
        ]
    }

    /// Sentences of the words that are recognized, to reach rare combinations of the grammar.
    fn word_soup() -> impl Strategy<Value = String> {
        let words = "last this next past week weekend month year quarter day days weeks ago before yesterday today since from to between and \
                     .. tuesday feb february may 13 29 13th 2026 1 0 9999 53 two a q1 w07 w53 2026-w07 2026-02 0001-01-01 9999-12-31 02/03/2026 \
                     13.02. spring winter of on ? - heute letzte woche \u{e4} vorgestern";
        let words: Vec<&'static str> = words.split_whitespace().collect();
        prop::collection::vec(prop::sample::select(words), 0..7).prop_map(|words| words.join(" "))
    }

    proptest! {
        // Y6
        #[test]
        fn what_is_written_reads_back_on_any_day(when in any_when(), today in any_day()) {
            prop_assert_eq!(parse(&when.to_string(), today), Ok(when));
        }

        // Y6
        #[test]
        fn no_text_is_too_strange(text in prop_oneof![".*", word_soup()], today in prop_oneof![any_day(), Just(Date::MIN), Just(Date::MAX)]) {
            if let Ok(when) = parse(&text, today) {
                prop_assert!(!when.days().is_empty());
                prop_assert_eq!(parse(&when.to_string(), TODAY), Ok(when), "{}", text);
            }
        }

        // Y6
        #[test]
        fn a_bare_name_has_always_begun(name in "(monday|tue|sunday|january|may|dec|feb 29|13 feb|the 31st|w53|week 7|q3|spring|winter|weekend)", today in any_day()) {
            prop_assume!(today.year() > 20);
            let span = parse(&name, today).unwrap().days();
            prop_assert!(span.first <= today, "{}", span);
        }
    }
}
