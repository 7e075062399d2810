//! Event ids: `EVT-YYYYMMDD-NNN`, numbered within one local day (L2).

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use serde::{Serialize, Serializer};

/// The id of an event: the local day on which it was recorded and its number within that day.
///
/// Numbers have at least three digits. The thousandth event of a day is `EVT-20260213-1000`; the
/// highest number has six digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    day: Date,
    number: u32,
}

/// The highest number within a day. Larger numbers in foreign lines are rejected, so that they
/// cannot push the next number out of range.
pub const MAX_EVENT_NUMBER: u32 = 999_999;

/// The error for a text that is not an event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an event id; ids look like EVT-20260213-001")]
pub struct ParseEventIdError(pub String);

impl EventId {
    /// Builds the id of the `number`-th event of `day`. Numbers start at 1.
    pub fn new(day: Date, number: u32) -> Self {
        Self { day, number: number.max(1) }
    }

    /// The local day on which the event was recorded.
    pub fn day(self) -> Date {
        self.day
    }

    /// The number within the day.
    pub fn number(self) -> u32 {
        self.number
    }

    /// Parses an id as a person types it: any case, also the short form `20260213-1`.
    pub fn parse_lenient(text: &str) -> Result<Self, ParseEventIdError> {
        let upper = text.trim().to_ascii_uppercase();
        let rest = upper.strip_prefix("EVT-").unwrap_or(&upper);
        let Some((day, number)) = rest.split_once('-') else {
            return Err(ParseEventIdError(text.into()));
        };
        let digits =
            !number.is_empty() && number.len() <= 6 && number.bytes().all(|b| b.is_ascii_digit());
        match (parse_compact_day(day), digits.then(|| number.parse::<u32>())) {
            (Some(day), Some(Ok(number))) if number > 0 => Ok(Self { day, number }),
            _ => Err(ParseEventIdError(text.into())),
        }
    }
}

fn parse_compact_day(text: &str) -> Option<Date> {
    if text.len() != 8 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Date::new(text[0..4].parse().ok()?, text[4..6].parse().ok()?, text[6..8].parse().ok()?).ok()
}

impl FromStr for EventId {
    type Err = ParseEventIdError;

    /// Accepts only the canonical form, so that an id and its text map one to one.
    fn from_str(text: &str) -> Result<Self, ParseEventIdError> {
        let read = || {
            let (day, number) = text.strip_prefix("EVT-")?.split_once('-')?;
            let plain = number.bytes().all(|b| b.is_ascii_digit());
            let canonical =
                number.len() == 3 || ((4..=6).contains(&number.len()) && !number.starts_with('0'));
            let number: u32 = (plain && canonical).then(|| number.parse().ok()).flatten()?;
            (number > 0).then_some(Self { day: parse_compact_day(day)?, number })
        };
        read().ok_or_else(|| ParseEventIdError(text.into()))
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Page generation writes tens of thousands of ids, so this avoids the formatting machinery.
        fn write_digits(room: &mut [u8], mut number: u32) {
            for digit in room.iter_mut().rev() {
                *digit = b'0' + (number % 10) as u8;
                number /= 10;
            }
        }
        let mut text = *b"EVT-00000000-0000000000";
        let (year, month, day) = (self.day.year(), self.day.month(), self.day.day());
        write_digits(&mut text[4..8], u32::from(year.unsigned_abs()));
        write_digits(&mut text[8..10], u32::from(month.unsigned_abs()));
        write_digits(&mut text[10..12], u32::from(day.unsigned_abs()));
        let end = 13 + self.number.checked_ilog10().map_or(1, |more| more as usize + 1).max(3);
        write_digits(&mut text[13..end], self.number);
        f.write_str(std::str::from_utf8(&text[..end]).map_err(|_| fmt::Error)?)
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, canonical: Option<&str>) {
        assert_eq!(
            EventId::parse_lenient(text).ok().map(|id| id.to_string()).as_deref(),
            canonical,
            "{text}"
        );
    }

    // L2
    #[test]
    fn an_id_is_read_as_typed_and_written_in_one_form() {
        check("EVT-20260213-001", Some("EVT-20260213-001"));
        check("evt-20260213-7", Some("EVT-20260213-007"));
        check("20260213-1000", Some("EVT-20260213-1000"));
        for bad in [
            "",
            "EVT-",
            "EVT-20260213",
            "EVT-20261301-001",
            "EVT-20260213-000",
            "EVT-20260213-+1",
            "EVT-042",
            "EVT-20260213-1000000",
            "../x",
        ] {
            check(bad, None);
        }
    }

    // L2
    #[test]
    fn a_stored_id_has_exactly_one_spelling() {
        assert!("EVT-20260213-001".parse::<EventId>().is_ok());
        assert!("EVT-20260213-1000".parse::<EventId>().is_ok());
        for bad in ["EVT-20260213-1", "EVT-20260213-0001", "evt-20260213-001", "20260213-001"] {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }
}
