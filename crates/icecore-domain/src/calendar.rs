//! Days, weeks and moments. Zones and "now" are arguments; nothing here asks what time it is.

use std::fmt;

use jiff::civil::{Date, Time, Weekday};
use jiff::fmt::temporal::{DateTimeParser, PiecesOffset};
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp, ToSpan};
use serde::{Serialize, Serializer};

/// An instant together with the offset it was written in, so that its local day is never in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    at: Timestamp,
    offset: Offset,
}

/// A moment as read from somebody's file, and what had to be assumed to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadMoment {
    /// The moment.
    pub moment: Moment,
    /// No offset was given, and UTC was assumed.
    pub offset_assumed: bool,
}

impl Moment {
    /// `at`, told in `offset`. Fractions of a second are dropped: the written form has none.
    pub fn new(at: Timestamp, offset: Offset) -> Self {
        let whole = Timestamp::from_second(at.as_second()).unwrap_or(at);
        // RFC 3339 has no seconds in an offset; before standard time there were some.
        let offset = if offset.seconds() % 60 == 0 { offset } else { Offset::UTC };
        Self { at: whole, offset }
    }

    /// The instant.
    pub fn at(self) -> Timestamp {
        self.at
    }

    /// The local day at that moment.
    pub fn day(self) -> Date {
        self.offset.to_datetime(self.at).date()
    }

    /// Local time as `HH:MM`.
    pub fn clock(self) -> String {
        let time = self.offset.to_datetime(self.at).time();
        format!("{:02}:{:02}", time.hour(), time.minute())
    }

    /// Reads RFC 3339 as people and programs really write it: `Z` or an offset, `T` or a blank, any
    /// number of fractional digits, a leap second, a bare date.
    pub fn read(text: &str) -> Option<ReadMoment> {
        if let Some(moment) = Self::read_canonical(text.as_bytes()) {
            return Some(ReadMoment { moment, offset_assumed: false });
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
        Some(ReadMoment { moment, offset_assumed: offset.is_none() })
    }
}

impl Moment {
    /// The form we write, read without the detours that the others need.
    fn read_canonical(text: &[u8]) -> Option<Self> {
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
            text[from..from + digits].iter().try_fold(0_i16, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + i16::from(byte - b'0')))
        };
        let small = |from| number(from, 2).and_then(|number| i8::try_from(number).ok());
        let date = Date::new(number(0, 4)?, small(5)?, small(8)?).ok()?;
        let time = Time::new(small(11)?, small(14)?, small(17)?, 0).ok()?;
        let seconds = i32::from(small(20)?) * 3_600 + i32::from(small(23).filter(|minutes| *minutes < 60)?) * 60;
        let offset = match text[19] {
            b'+' => Offset::from_seconds(seconds),
            b'-' => Offset::from_seconds(-seconds),
            _ => return None,
        }
        .ok()?;
        Some(Self { at: offset.to_timestamp(date.to_datetime(time)).ok()?, offset })
    }
}

/// Nine fractional digits are all the parser takes; more carry no meaning here.
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

/// A time zone by its IANA name, from the database the binary carries.
#[derive(Debug, Clone)]
pub struct Zone(TimeZone);

/// Why a text names no zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time zone; use an IANA name such as Europe/Berlin or UTC")]
pub struct NotAZone(pub String);

impl Zone {
    /// The zone of that IANA name.
    pub fn named(name: &str) -> Result<Self, NotAZone> {
        TimeZoneDatabase::bundled().get(name.trim()).map(Self).map_err(|_| NotAZone(name.into()))
    }

    /// Its canonical name.
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// `at` as told by the clocks of this zone.
    pub fn moment(&self, at: Timestamp) -> Moment {
        Moment::new(at, self.0.to_offset(at))
    }
}

/// An ISO week, by its own week-year.
///
/// The year is not the calendar's: 2027-01-01 lies in 2026-W53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Week {
    year: i16,
    number: i8,
}

impl Week {
    /// The week that holds `day`.
    pub fn of(day: Date) -> Self {
        let iso = day.iso_week_date();
        Self { year: iso.year(), number: iso.week() }
    }
}

impl fmt::Display for Week {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-W{:02}", self.year, self.number)
    }
}

/// The weekday's English name.
pub fn weekday(day: Date) -> &'static str {
    match day.weekday() {
        Weekday::Monday => "Monday",
        Weekday::Tuesday => "Tuesday",
        Weekday::Wednesday => "Wednesday",
        Weekday::Thursday => "Thursday",
        Weekday::Friday => "Friday",
        Weekday::Saturday => "Saturday",
        Weekday::Sunday => "Sunday",
    }
}

/// Days from `earlier` to `later`, negative if the order is the other way round.
pub fn days_between(earlier: Date, later: Date) -> i64 {
    earlier.until(later).map_or(0, |span: Span| i64::from(span.get_days()))
}

/// Reads a day the way a person gives one: `2026-02-13`, `today`, `tomorrow`, `yesterday`, `friday` (the next
/// one after today), `+3d`, `-2w`.
pub fn read_day(text: &str, today: Date) -> Option<Date> {
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
    let names = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    if let Some(index) = names.iter().position(|name| text.len() >= 3 && name.starts_with(&text)) {
        let wanted = i8::try_from(index).ok()? + 1;
        let ahead = (wanted - today.weekday().to_monday_one_offset()).rem_euclid(7);
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
        assert_eq!(Moment::read(text).map(|read| read.moment.to_string()).as_deref(), written, "{text}");
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
        for bad in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-28T25:00:00Z", "\u{0}", "99999-01-01T00:00:00Z"] {
            check(bad, None);
        }
        assert!(Moment::read("2026-01-28T14:03:11").is_some_and(|read| read.offset_assumed));
    }

    // L2
    #[test]
    fn the_local_day_is_that_of_the_offset() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        let at: Timestamp = "2026-02-12T23:30:00Z".parse().unwrap();
        assert_eq!(berlin.moment(at).day(), date(2026, 2, 13));
        assert_eq!(berlin.moment(at).clock(), "00:30");
        assert!(Zone::named("Mars/Olympus").is_err());
    }

    /// ISO 8601 by its definition, not by the library under test: a week belongs to the year of its
    /// Thursday and is numbered by how many Thursdays that year has had.
    fn reference_week(day: Date) -> String {
        let thursday = day.checked_add((4 - i32::from(day.weekday().to_monday_one_offset())).days()).unwrap();
        format!("{:04}-W{:02}", thursday.year(), (thursday.day_of_year() - 1) / 7 + 1)
    }

    // P2
    #[test]
    fn every_day_of_a_century_lies_in_the_right_iso_week() {
        let mut day = date(2000, 1, 1);
        while day <= date(2100, 12, 31) {
            assert_eq!(Week::of(day).to_string(), reference_week(day), "{day}");
            day = day.tomorrow().unwrap();
        }
        for day in [date(2026, 12, 28), date(2026, 12, 31), date(2027, 1, 1), date(2027, 1, 3)] {
            assert_eq!(Week::of(day).to_string(), "2026-W53");
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
            assert_eq!(read_day(text, friday), day, "{text}");
        }
    }
}
