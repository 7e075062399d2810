//! Retention of summary files: how long they stay in the main folder before they are archived.
//! Nothing is deleted (P6).

use jiff::ToSpan;
use jiff::civil::Date;

use crate::layout::DocPath;
use crate::summary::{Importance, Period, Tier};

/// The retention times of summary files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For sessions and days, in days.
    pub daily_days: u16,
    /// For sessions and days of important days, in days.
    pub important_days: u16,
    /// For weeks, in weeks.
    pub weekly_weeks: u16,
}

/// The first day on which the file is archived; `None` if never.
pub fn archive_day(period: Period, importance: Importance, retention: Retention) -> Option<Date> {
    let last = period.days().last;
    let days = match (period.tier(), importance) {
        (Tier::Session | Tier::Day, Importance::Important) => i32::from(retention.important_days),
        (Tier::Session | Tier::Day, _) => i32::from(retention.daily_days),
        (Tier::Week, _) => i32::from(retention.weekly_weeks) * 7,
        (Tier::Month | Tier::Year, _) => return None,
    };
    last.checked_add((days + 1).days()).ok()
}

/// The path of a summary's file on that day.
pub fn summary_path(
    period: Period,
    importance: Importance,
    today: Date,
    retention: Retention,
) -> DocPath {
    match archive_day(period, importance, retention) {
        Some(until) if until <= today => period.archive_path(),
        _ => period.path(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::date;

    const RETENTION: Retention = Retention { daily_days: 30, important_days: 90, weekly_weeks: 12 };

    fn check(period: &str, importance: Importance, today: Date, path: &str) {
        assert_eq!(
            summary_path(period.parse().unwrap(), importance, today, RETENTION).as_str(),
            path
        );
    }

    // P6
    #[test]
    fn files_are_put_away_by_their_own_quarter_when_their_time_is_over() {
        use Importance::{Important, Ordinary};
        check(
            "2026-03-31_session_01",
            Ordinary,
            date(2026, 4, 30),
            "primers/daily/2026-03-31_session_01.md",
        );
        check(
            "2026-03-31_session_01",
            Ordinary,
            date(2026, 5, 1),
            "primers/archive/2026-Q1/2026-03-31_session_01.md",
        );
        check("2026-03-31", Important, date(2026, 5, 1), "primers/daily/2026-03-31.md");
        check("2026-03-31", Important, date(2026, 6, 30), "primers/archive/2026-Q1/2026-03-31.md");
        check("2026-W53", Ordinary, date(2027, 3, 28), "primers/weekly/2026-W53.md");
        check("2026-W53", Ordinary, date(2027, 3, 29), "primers/archive/2026-Q4/2026-W53.md");
        check("2026-02", Ordinary, date(2036, 1, 1), "primers/monthly/2026-02.md");
        check("2026", Ordinary, date(2036, 1, 1), "primers/yearly/2026.md");
    }
}
