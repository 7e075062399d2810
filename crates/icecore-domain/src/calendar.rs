//! Days, weeks, months and moments. Zones and the current time are arguments; nothing here reads a
//! clock.
//!
//! Every day is in exactly one week and every week in exactly one month, so summaries cover each
//! day once. At the limits of the calendar (the years -9999 and 9999) results saturate at the last
//! valid day.

use std::fmt;
use std::str::FromStr;

use icecore_text::lexicon;
use jiff::civil::{Date, ISOWeekDate, Time, Weekday};
use jiff::fmt::temporal::{DateTimeParser, PiecesOffset};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp, ToSpan};
use serde::{Serialize, Serializer};

/// An instant with the offset it was written in, which determines its local day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    at: Timestamp,
    offset: Offset,
}

/// A moment parsed from foreign input, with the assumptions made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsedMoment {
    pub moment: Moment,
    /// No offset was given, and UTC was assumed.
    pub offset_assumed: bool,
}

impl Moment {
    /// `at` with that offset. Fractions of a second are dropped: the written form has none.
    pub fn new(at: Timestamp, offset: Offset) -> Self {
        let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
        // RFC 3339 offsets have no seconds; some zones had them before standard time.
        let offset = if offset.seconds() % 60 == 0 { offset } else { Offset::UTC };
        Self { at: whole, offset }
    }

    /// The instant.
    pub fn timestamp(self) -> Timestamp {
        self.at
    }

    /// The offset of local time from UTC.
    pub fn offset(self) -> Offset {
        self.offset
    }

    /// The local day.
    pub fn day(self) -> Date {
        self.offset.to_datetime(self.at).date()
    }

    /// Local time as `HH:MM`.
    pub fn clock_time(self) -> String {
        let time = self.offset.to_datetime(self.at).time();
        format!("{:02}:{:02}", time.hour(), time.minute())
    }

    /// Minutes since the start of the local day.
    pub fn minute_of_day(self) -> u16 {
        let time = self.offset.to_datetime(self.at).time();
        u16::try_from(i16::from(time.hour()) * 60 + i16::from(time.minute())).unwrap_or(0)
    }

    /// Parses RFC 3339 and its common variations: `Z` or an offset, `T` or a blank, any number of
    /// fractional digits, a leap second, a bare date.
    pub fn parse(text: &str) -> Option<ParsedMoment> {
        if let Some(moment) = Self::parse_canonical(text.as_bytes()) {
            return Some(ParsedMoment { moment, offset_assumed: false });
        }
        let text = shorten_fraction(text.trim());
        let pieces = DateTimeParser::new().parse_pieces(text.as_ref()).ok()?;
        let civil = pieces.date().to_datetime(pieces.time().unwrap_or_default());
        let offset = match pieces.offset() {
            Some(PiecesOffset::Numeric(offset)) => Some(offset.offset()),
            Some(PiecesOffset::Zulu) => Some(Offset::UTC),
            Some(_) | None => None,
        };
        let at = offset.unwrap_or(Offset::UTC).to_timestamp(civil).ok()?;
        let moment = Self::new(at, offset.unwrap_or(Offset::UTC));
        Some(ParsedMoment { moment, offset_assumed: offset.is_none() })
    }
}

impl Moment {
    /// A fast path for the form that icecore writes.
    fn parse_canonical(text: &[u8]) -> Option<Self> {
        let shape = text.len() == 25
            && text[4] == b'-'
            && text[7] == b'-'
            && text[10] == b'T'
            && text[13] == b':'
            && text[16] == b':'
            && text[22] == b':';
        if !shape {
            return None;
        }
        let number = |from: usize, digits: usize| {
            text[from..from + digits].iter().try_fold(0_i16, |sum, byte| {
                byte.is_ascii_digit().then(|| sum * 10 + i16::from(byte - b'0'))
            })
        };
        let small = |from| number(from, 2).and_then(|number| i8::try_from(number).ok());
        let date = Date::new(number(0, 4)?, small(5)?, small(8)?).ok()?;
        let time = Time::new(small(11)?, small(14)?, small(17)?, 0).ok()?;
        let seconds = i32::from(small(20)?) * 3_600
            + i32::from(small(23).filter(|minutes| *minutes < 60)?) * 60;
        let offset = match text[19] {
            b'+' => Offset::from_seconds(seconds),
            b'-' => Offset::from_seconds(-seconds),
            _ => return None,
        }
        .ok()?;
        Some(Self { at: offset.to_timestamp(date.to_datetime(time)).ok()?, offset })
    }
}

/// The parser accepts at most nine fractional digits; more are dropped.
fn shorten_fraction(text: &str) -> std::borrow::Cow<'_, str> {
    let Some(dot) = text.find('.') else { return text.into() };
    let digits = text[dot + 1..].bytes().take_while(u8::is_ascii_digit).count();
    if digits <= 9 {
        return text.into();
    }
    format!("{}{}", &text[..dot + 10], &text[dot + 1 + digits..]).into()
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let civil = self.offset.to_datetime(self.at);
        let minutes = self.offset.seconds() / 60;
        let sign = if minutes < 0 { '-' } else { '+' };
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}{sign}{:02}:{:02}",
            civil.year(),
            civil.month(),
            civil.day(),
            civil.hour(),
            civil.minute(),
            civil.second(),
            minutes.abs() / 60,
            minutes.abs() % 60
        )
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An IANA time zone, from the database embedded in the binary.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

/// The name is not a time zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time zone; use an IANA name such as Europe/Berlin or UTC")]
pub struct NotAZone(pub String);

impl Zone {
    /// The zone of that IANA name.
    pub fn from_name(name: &str) -> Result<Self, NotAZone> {
        TimeZoneDatabase::bundled().get(name.trim()).map(Self).map_err(|_| NotAZone(name.into()))
    }

    /// The canonical name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// The offset of local time from UTC at that moment.
    pub fn offset(&self, at: Timestamp) -> Offset {
        self.0.to_offset(at)
    }

    /// `at` in this zone's local time.
    pub fn moment(&self, at: Timestamp) -> Moment {
        Moment::new(at, self.0.to_offset(at))
    }

    /// The local day at that instant.
    pub fn day_of(&self, at: Timestamp) -> Date {
        self.0.to_datetime(at).date()
    }

    /// The first instant of the local day, also if clocks skip midnight.
    ///
    /// A day that the zone omitted (Apia had no 2011-12-30) is empty: it starts where the next one
    /// does.
    pub fn day_start(&self, day: Date) -> Timestamp {
        let midnight = self.0.to_ambiguous_timestamp(day.to_datetime(Time::midnight()));
        let AmbiguousOffset::Gap { after, .. } = midnight.offset() else {
            return midnight.compatible().unwrap_or_else(|_| nearest_limit(day));
        };
        // The gap may have begun before midnight: the day starts at its end, not an hour after
        // 00:00.
        let Ok(before_gap) = midnight.earlier() else { return nearest_limit(day) };
        let change = self.0.following(before_gap).find(|change| change.offset() == after);
        change.map_or(before_gap, |change| change.timestamp())
    }

    /// The instant at which local clocks show `time` on `day`: the first of two, or, if clocks skip
    /// it, later by the length of the gap.
    pub fn instant_at(&self, day: Date, time: Time) -> Timestamp {
        self.0
            .to_ambiguous_timestamp(day.to_datetime(time))
            .compatible()
            .unwrap_or_else(|_| nearest_limit(day))
    }
}

/// The limit of time nearest to a day that has no instant.
fn nearest_limit(day: Date) -> Timestamp {
    if day.year() < 0 { Timestamp::MIN } else { Timestamp::MAX }
}

/// An ISO week, by its ISO week-year.
///
/// The year may differ from the calendar year: 2027-01-01 is in 2026-W53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Week {
    year: i16,
    number: i8,
}

/// The text is not a week.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a week; write the ISO year and week, such as 2026-W07")]
pub struct NotAWeek(String);

impl Week {
    /// The week that contains `day`.
    pub fn containing(day: Date) -> Self {
        let iso = day.iso_week_date();
        Self { year: iso.year(), number: iso.week() }
    }

    /// That week of that ISO year, if it exists.
    pub fn new(year: i16, number: i8) -> Option<Self> {
        ISOWeekDate::new(year, number, Weekday::Thursday).ok().map(|_| Self { year, number })
    }

    /// The day of the week with that weekday.
    pub fn day(self, weekday: Weekday) -> Date {
        // Only the very last week of the calendar is shorter.
        ISOWeekDate::new(self.year, self.number, weekday).map_or(Date::MAX, |iso| iso.date())
    }

    /// The first day.
    pub fn monday(self) -> Date {
        self.day(Weekday::Monday)
    }

    /// The day that decides to which month and year the week belongs.
    pub fn thursday(self) -> Date {
        self.day(Weekday::Thursday)
    }

    /// The last day.
    pub fn sunday(self) -> Date {
        self.day(Weekday::Sunday)
    }

    /// The seven days.
    pub fn days(self) -> Days {
        Days { first: self.monday(), last: self.sunday() }
    }

    /// The next week; saturates at the last of the calendar.
    pub fn next(self) -> Self {
        Self::containing(self.thursday().checked_add(7.days()).unwrap_or(Date::MAX))
    }

    /// The previous week; saturates at the first of the calendar.
    pub fn previous(self) -> Self {
        Self::containing(self.thursday().checked_sub(7.days()).unwrap_or(Date::MIN))
    }

    /// The month the week belongs to.
    pub fn month(self) -> Month {
        // That of its Thursday (P3); otherwise 2026-W53 would belong to two months.
        Month::containing(self.thursday())
    }
}

impl fmt::Display for Week {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-W{:02}", self.year, self.number)
    }
}

impl FromStr for Week {
    type Err = NotAWeek;

    fn from_str(text: &str) -> Result<Self, NotAWeek> {
        let parts = text
            .split_once("-W")
            .and_then(|(year, number)| Some((parse_digits(year, 4)?, parse_digits(number, 2)?)));
        let week = parts.and_then(|(year, number)| Self::new(year, i8::try_from(number).ok()?));
        week.ok_or_else(|| NotAWeek(quote_input(text)))
    }
}

impl Serialize for Week {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A calendar month.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month {
    year: i16,
    number: i8,
}

/// The text is not a month.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a month; write year and month, such as 2026-02")]
pub struct NotAMonth(String);

impl Month {
    /// The month that contains `day`.
    pub fn containing(day: Date) -> Self {
        Self { year: day.year(), number: day.month() }
    }

    /// That month, if the number is valid.
    pub fn new(year: i16, number: i8) -> Option<Self> {
        Date::new(year, number, 1).ok().map(Self::containing)
    }

    /// The year.
    pub fn year(self) -> i16 {
        self.year
    }

    /// The number, 1 to 12.
    pub fn number(self) -> i8 {
        self.number
    }

    /// The first day.
    pub fn first(self) -> Date {
        Date::new(self.year, self.number, 1).unwrap_or(Date::MIN)
    }

    /// The last day.
    pub fn last(self) -> Date {
        self.first().last_of_month()
    }

    /// The days.
    pub fn days(self) -> Days {
        Days { first: self.first(), last: self.last() }
    }

    /// The next month; saturates at the last of the calendar.
    pub fn next(self) -> Self {
        Self::containing(self.last().tomorrow().unwrap_or(Date::MAX))
    }

    /// The previous month; saturates at the first of the calendar.
    pub fn previous(self) -> Self {
        Self::containing(self.first().yesterday().unwrap_or(Date::MIN))
    }

    /// The weeks that belong to it: those whose Thursday is in it.
    pub fn weeks(self) -> Vec<Week> {
        let mut weeks: Vec<Week> =
            self.days().iter().step_by(7).chain([self.last()]).map(Week::containing).collect();
        weeks.dedup();
        weeks.retain(|week| week.month() == self);
        weeks
    }

    /// The days that its weeks cover, which its summary covers: Monday of the first to Sunday of
    /// the last.
    pub fn week_span(self) -> Days {
        let weeks = self.weeks();
        let first = weeks.first().map_or(self.first(), |week| week.monday());
        let last = weeks.last().map_or(self.last(), |week| week.sunday());
        Days { first, last }
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.number)
    }
}

impl FromStr for Month {
    type Err = NotAMonth;

    fn from_str(text: &str) -> Result<Self, NotAMonth> {
        let parts = text
            .split_once('-')
            .and_then(|(year, number)| Some((parse_digits(year, 4)?, parse_digits(number, 2)?)));
        let month = parts.and_then(|(year, number)| Self::new(year, i8::try_from(number).ok()?));
        month.ok_or_else(|| NotAMonth(quote_input(text)))
    }
}

impl Serialize for Month {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A number with exactly `count` digits.
fn parse_digits(text: &str, count: usize) -> Option<i16> {
    (text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Foreign input, shortened and sanitized for an error message.
fn quote_input(text: &str) -> String {
    crate::sanitize::one_line(text).chars().take(60).collect()
}

/// A span of days, both ends included; empty if the last is before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Days {
    pub first: Date,
    pub last: Date,
}

impl Days {
    /// Whether `day` is one of them.
    pub fn contains(self, day: Date) -> bool {
        (self.first..=self.last).contains(&day)
    }

    /// The number of days.
    pub fn len(self) -> usize {
        usize::try_from(days_between(self.first, self.last) + 1).unwrap_or(0)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.last < self.first
    }

    /// The days in order.
    pub fn iter(self) -> impl Iterator<Item = Date> {
        std::iter::successors(Some(self.first), |day| day.tomorrow().ok())
            .take_while(move |day| *day <= self.last)
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.last)
    }
}

/// The weekday's English name.
pub fn weekday_name(day: Date) -> String {
    day.strftime("%A").to_string()
}

/// Days from `earlier` to `later`; negative in the opposite order.
pub fn days_between(earlier: Date, later: Date) -> i64 {
    earlier.until(later).map_or(0, |span: Span| i64::from(span.get_days()))
}

/// Parses a day as a person writes it: `2026-02-13`, `today`, `tomorrow`, `yesterday`, `friday`
/// (the next one after today), `+3d`, `-2w`.
pub fn parse_day(text: &str, today: Date) -> Option<Date> {
    let text = text.trim().to_ascii_lowercase();
    match text.as_str() {
        "today" => return Some(today),
        "tomorrow" => return today.checked_add(1.day()).ok(),
        "yesterday" => return today.checked_sub(1.day()).ok(),
        _ => {}
    }
    if let Some(step) = text.strip_prefix(['+', '-']) {
        let back = text.starts_with('-');
        let (count, unit) = step.split_at_checked(step.len().checked_sub(1)?)?;
        let count: i32 = count.parse().ok().filter(|n| (0..=36_500).contains(n))?;
        let days = match unit {
            "d" => count,
            "w" => count * 7,
            _ => return None,
        };
        return today.checked_add(if back { -days } else { days }.days()).ok();
    }
    if let Some(wanted) = lexicon::weekday(&text) {
        let ahead = (i8::try_from(wanted.number).ok()? - today.weekday().to_monday_one_offset())
            .rem_euclid(7);
        let ahead = if ahead == 0 { 7 } else { ahead };
        return today.checked_add(i32::from(ahead).days()).ok();
    }
    (text.len() == 10).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    fn check(text: &str, written: Option<&str>) {
        assert_eq!(
            Moment::parse(text).map(|read| read.moment.to_string()).as_deref(),
            written,
            "{text}"
        );
    }

    // L2
    #[test]
    fn moments_are_read_leniently_and_written_in_one_form() {
        check("2026-01-28T14:03:11-05:00", Some("2026-01-28T14:03:11-05:00"));
        check("2026-01-28T14:03:11Z", Some("2026-01-28T14:03:11+00:00"));
        check("2026-01-28t14:03:11z", Some("2026-01-28T14:03:11+00:00"));
        check("2026-01-28 14:03:11+01:00", Some("2026-01-28T14:03:11+01:00"));
        check("2026-01-28T14:03:11.123456789012345Z", Some("2026-01-28T14:03:11+00:00"));
        check("2026-01-28T14:03:11.5+05:45", Some("2026-01-28T14:03:11+05:45"));
        check("2016-12-31T23:59:60Z", Some("2016-12-31T23:59:59+00:00"));
        check("1890-01-01T00:00:00+00:53:28", Some("1889-12-31T23:06:32+00:00"));
        check("2026-01-28", Some("2026-01-28T00:00:00+00:00"));
        for bad in [
            "",
            "yesterday",
            "2026-13-01T00:00:00Z",
            "2026-01-28T25:00:00Z",
            "\u{0}",
            "99999-01-01T00:00:00Z",
        ] {
            check(bad, None);
        }
        assert!(Moment::parse("2026-01-28T14:03:11").is_some_and(|read| read.offset_assumed));
    }

    // L2
    #[test]
    fn the_local_day_is_that_of_the_offset() {
        let berlin = Zone::from_name("Europe/Berlin").unwrap();
        let at: Timestamp = "2026-02-12T23:30:00Z".parse().unwrap();
        assert_eq!(berlin.moment(at).day(), date(2026, 2, 13));
        assert_eq!(berlin.moment(at).clock_time(), "00:30");
        assert!(Zone::from_name("Mars/Olympus").is_err());
    }

    /// ISO 8601 by its definition, not by the library under test: a week belongs to the year of its
    /// Thursday and is numbered by the count of that year's Thursdays.
    fn reference_week(day: Date) -> String {
        let thursday =
            day.checked_add((4 - i32::from(day.weekday().to_monday_one_offset())).days()).unwrap();
        format!("{:04}-W{:02}", thursday.year(), (thursday.day_of_year() - 1) / 7 + 1)
    }

    // P2
    #[test]
    fn every_day_of_a_century_lies_in_the_right_iso_week() {
        let mut day = date(2000, 1, 1);
        while day <= date(2100, 12, 31) {
            assert_eq!(Week::containing(day).to_string(), reference_week(day), "{day}");
            day = day.tomorrow().unwrap();
        }
        for day in [date(2026, 12, 28), date(2026, 12, 31), date(2027, 1, 1), date(2027, 1, 3)] {
            assert_eq!(Week::containing(day).to_string(), "2026-W53");
        }
    }

    #[test]
    fn deadlines_are_read_as_people_give_them() {
        let friday = date(2026, 2, 13);
        for (text, day) in [
            ("2026-03-01", Some(date(2026, 3, 1))),
            ("today", Some(friday)),
            ("Tomorrow", Some(date(2026, 2, 14))),
            ("friday", Some(date(2026, 2, 20))),
            ("mon", Some(date(2026, 2, 16))),
            ("+3d", Some(date(2026, 2, 16))),
            ("+2w", Some(date(2026, 2, 27))),
            ("yesterday", Some(date(2026, 2, 12))),
            ("-3d", Some(date(2026, 2, 10))),
            ("-", None),
            ("soon", None),
            ("+", None),
            ("+9999999999d", None),
            ("2026-02-30", None),
            ("+é", None),
        ] {
            assert_eq!(parse_day(text, friday), day, "{text}");
        }
    }

    // P3
    #[test]
    fn every_day_of_a_century_lies_in_one_week_and_every_week_in_one_month() {
        let century = Days { first: date(2000, 1, 1), last: date(2100, 12, 31) };
        for day in century.iter() {
            let week = Week::containing(day);
            assert!(week.days().contains(day) && week.days().len() == 7, "{day}");
            assert!(
                !week.next().days().contains(day) && !week.previous().days().contains(day),
                "{day}"
            );
            assert_eq!((week.next().previous(), week.to_string().parse()), (week, Ok(week)));
            assert_eq!(
                week.month().weeks().iter().filter(|other| **other == week).count(),
                1,
                "{week}"
            );
        }
        let mut month = Month::containing(century.first);
        let mut week = Week::containing(century.first).next();
        assert_eq!(Week::containing(century.first).to_string(), "1999-W52");
        while month <= Month::containing(century.last) {
            let span = month.week_span();
            assert_eq!(
                (span.first, span.first.weekday(), span.last.weekday()),
                (week.monday(), Weekday::Monday, Weekday::Sunday),
                "{month}"
            );
            for own in month.weeks() {
                assert_eq!(own, week, "{month}");
                assert!(month.days().contains(own.thursday()));
                week = week.next();
            }
            assert_eq!((month.next().previous(), month.to_string().parse()), (month, Ok(month)));
            assert_eq!(month.next().first(), month.last().tomorrow().unwrap());
            month = month.next();
        }
        let newyear = Week::containing(date(2027, 1, 1));
        assert_eq!(
            (newyear.to_string(), newyear.month().to_string()),
            ("2026-W53".into(), "2026-12".into())
        );
    }

    #[test]
    fn weeks_and_months_are_written_in_one_form_only() {
        for text in ["2026-W53", "2020-W53", "2026-W01", "9999-W52", "0000-W01"] {
            assert_eq!(text.parse::<Week>().unwrap().to_string(), text);
        }
        for text in [
            "2025-W53",
            "2026-W00",
            "2026-W54",
            "2026-W7",
            "26-W07",
            "2026-w07",
            "2026W07",
            " 2026-W07",
            "+026-W07",
            "2026-W+7",
            "é",
            "",
        ] {
            assert!(text.parse::<Week>().is_err(), "{text}");
        }
        for text in ["2026-02", "0000-01", "9999-12"] {
            assert_eq!(text.parse::<Month>().unwrap().to_string(), text);
        }
        for text in ["2026-13", "2026-00", "2026-2", "2026-02-01", "2026-+2", "-026-02", "", "é"] {
            assert!(text.parse::<Month>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_ends_of_the_calendar_hold() {
        for day in [Date::MIN, Date::MAX] {
            let (week, month) = (Week::containing(day), Month::containing(day));
            assert!(week.days().contains(day) && month.days().contains(day));
            assert!(
                week.next() >= week
                    && week.previous() <= week
                    && month.next() >= month
                    && month.previous() <= month
            );
            assert!(!month.weeks().is_empty());
            assert_eq!(Days { first: day, last: day }.iter().count(), 1);
            let zone = Zone::from_name("Europe/Berlin").unwrap();
            assert!(zone.day_start(day) <= zone.instant_at(day, Time::MAX));
        }
        let none = Days { first: Date::MAX, last: Date::MIN };
        assert!(
            (none.is_empty(), none.len()) == (true, 0)
                && none.iter().next().is_none()
                && !none.contains(Date::ZERO)
        );
    }

    fn check_start(zone: &str, day: Date, start: &str) {
        let zone = Zone::from_name(zone).unwrap();
        assert_eq!(zone.moment(zone.day_start(day)).to_string(), start, "{day}");
    }

    // P12
    #[test]
    fn a_day_starts_where_the_one_before_ends() {
        check_start("Europe/Berlin", date(2026, 10, 25), "2026-10-25T00:00:00+02:00");
        check_start("America/Sao_Paulo", date(2018, 11, 4), "2018-11-04T01:00:00-02:00");
        check_start("America/Toronto", date(1919, 3, 31), "1919-03-31T00:30:00-04:00");
        check_start("Pacific/Apia", date(2011, 12, 30), "2011-12-31T00:00:00+14:00");
        check_start("Pacific/Apia", date(2011, 12, 31), "2011-12-31T00:00:00+14:00");
        check_start("Australia/Lord_Howe", date(2026, 10, 4), "2026-10-04T00:00:00+10:30");
        for (name, missing) in [
            ("Europe/Berlin", None),
            ("America/Sao_Paulo", None),
            ("America/St_Johns", None),
            ("Pacific/Apia", Some(date(2011, 12, 30))),
            ("Australia/Lord_Howe", None),
            ("Asia/Beirut", None),
            ("UTC", None),
        ] {
            let zone = Zone::from_name(name).unwrap();
            for day in (Days { first: date(2005, 1, 1), last: date(2028, 12, 31) })
                .iter()
                .filter(|day| Some(*day) != missing)
            {
                let start = zone.day_start(day);
                assert_eq!(zone.day_of(start), day, "{name}");
                assert!(zone.day_of(start - 1.second()) < day, "{name} {day}");
            }
        }
    }

    // P12
    #[test]
    fn a_time_that_clocks_skip_or_show_twice_is_one_instant() {
        for (name, day, hour, minute, at) in [
            ("Europe/Berlin", date(2026, 10, 25), 2, 30, "2026-10-25T02:30:00+02:00"),
            ("Europe/Berlin", date(2027, 3, 28), 2, 30, "2027-03-28T03:30:00+02:00"),
            ("Australia/Lord_Howe", date(2026, 10, 4), 2, 15, "2026-10-04T02:45:00+11:00"),
            ("Pacific/Apia", date(2011, 12, 30), 3, 0, "2011-12-31T03:00:00+14:00"),
        ] {
            let zone = Zone::from_name(name).unwrap();
            assert_eq!(
                zone.moment(zone.instant_at(day, Time::new(hour, minute, 0, 0).unwrap()))
                    .to_string(),
                at
            );
        }
    }
}
