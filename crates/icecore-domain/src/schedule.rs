//! The schedule of the jobs, and its export to iCalendar, cron and systemd (P12, Y4, K5).
//!
//! A job runs for a local *date*, at the first opportunity at or after its time on that date. The
//! state is the date it last ran for. So a job runs at most once per date, however clocks change
//! and however long the machine slept, and a single run makes up for all missed ones.
//!
//! If clocks skip the time, the run is later by the same amount; if they repeat it, the first
//! occurrence counts. The runs of a day that a zone omitted move to the next day, and coincide with
//! that day's own runs.

use std::cmp::Reverse;

use jiff::civil::{Date, Time};
use jiff::{Timestamp, ToSpan};

use crate::calendar::{Moment, Zone};
use crate::hash::Hash;
use crate::sanitize;
use crate::string_enum::string_enum;

/// How far back a missed run is looked for: a year and a month.
pub const LOOK_BACK_DAYS: u16 = 400;
/// How far ahead the next run is looked for: across the eight years without a February 29.
const LOOK_AHEAD_DAYS: u16 = 3_000;
/// How far in the future the date of a job's last run may be.
///
/// A clock set back by less than two days, across an omitted date, reaches three. A later date
/// comes from a wrong clock; believing it would keep the job from running until that date.
const MAX_CLOCK_ERROR_DAYS: u16 = 3;

string_enum! {
    /// The scheduled jobs; a job comes before the coarser ones that build on it.
    Job: "a job" {
        /// Nightly: extracts events from the logs and records since the checkpoint.
        Consolidation = "consolidation",
        /// Summarizes the previous day.
        Day = "day",
        /// Summarizes the week.
        Week = "week",
        /// Summarizes the month whose weeks are all closed.
        Month = "month",
        /// Archives what the month's summary covers.
        Archive = "archive",
        /// Summarizes the previous year.
        Year = "year",
        /// Compacts finished chains into one event each.
        Compact = "compact",
        /// Removes expired events from the ledger.
        Prune = "prune",
        /// Rebuilds everything derived and verifies everything.
        Check = "check",
    }
}

/// The default timetable of a vault. Consolidation has a second time in case the first run failed.
pub const DEFAULT_TIMETABLE: &[(Job, &str)] = &[
    (Job::Consolidation, "0 3,5 * * *"),
    (Job::Day, "0 0 * * *"),
    (Job::Week, "15 22 * * SUN"),
    (Job::Month, "30 22 1 * *"),
    (Job::Archive, "45 22 1 * *"),
    (Job::Year, "0 23 1 1 *"),
    (Job::Compact, "0 3 1 * *"),
    (Job::Prune, "0 3 1 1,4,7,10 *"),
    (Job::Check, "0 4 * * SUN"),
];

/// Why a text is not a schedule for a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no schedule for the job {job}: {why}. Write minute, hour, day, month and weekday, such as `15 22 * * SUN` for \
     Sundays at 22:15 or `30 22 1 * *` for the 1st at 22:30"
)]
pub struct ScheduleError {
    job: Job,
    text: String,
    why: String,
}

/// The five fields of a cron expression, each as a set of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CronPattern {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Day and weekday are both restricted: in cron either of them may match.
    either_day: bool,
}

/// One of the five fields: its noun, its range and the names of its numbers.
struct CronField {
    noun: &'static str,
    least: u8,
    most: u8,
    names: &'static [&'static str],
}

const CRON_FIELDS: [CronField; 5] = [
    CronField { noun: "minute", least: 0, most: 59, names: &[] },
    CronField { noun: "hour", least: 0, most: 23, names: &[] },
    CronField { noun: "day of the month", least: 1, most: 31, names: &[] },
    CronField {
        noun: "month",
        least: 1,
        most: 12,
        names: &[
            "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
        ],
    },
    // Sunday is 0 and 7.
    CronField {
        noun: "weekday",
        least: 0,
        most: 7,
        names: &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"],
    },
];

impl CronField {
    fn parse_number(&self, text: &str) -> Result<u8, String> {
        let named = self
            .names
            .iter()
            .position(|name| name.eq_ignore_ascii_case(text))
            .and_then(|at| u8::try_from(at).ok());
        let number = named.map(|at| at + self.least).or_else(|| parse_u8(text));
        let example =
            self.names.first().map_or(String::new(), |name| format!(", or a name such as {name}"));
        number.filter(|number| (self.least..=self.most).contains(number)).ok_or_else(|| {
            format!("`{text}` is no {} ({} to {}{example})", self.noun, self.least, self.most)
        })
    }

    fn parse_set(&self, text: &str) -> Result<u64, String> {
        let mut set = 0;
        for part in text.split(',') {
            let (range, step) = match part.split_once('/') {
                Some((range, step)) => match parse_u8(step).filter(|step| *step > 0) {
                    Some(step) => (range, Some(step)),
                    None => return Err(format!("`{step}` is no step for a {}", self.noun)),
                },
                None => (part, None),
            };
            let (first, last) = match range.split_once('-') {
                _ if range == "*" => (self.least, self.most),
                Some((first, last)) => {
                    match (self.parse_number(first)?, self.parse_number(last)?) {
                        (first, 0) if self.most == 7 => (first, 7),
                        ends => ends,
                    }
                }
                None if step.is_some() => (self.parse_number(range)?, self.most),
                None => (self.parse_number(range)?, self.parse_number(range)?),
            };
            if first > last {
                return Err(format!("the {} range `{range}` runs backwards", self.noun));
            }
            set |= (first..=last)
                .step_by(usize::from(step.unwrap_or(1)))
                .fold(0, |set, number| set | 1 << number);
        }
        Ok(set)
    }
}

fn quote_input(text: &str) -> String {
    sanitize::one_line(text).chars().take(80).collect()
}

fn parse_u8(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn set_contains(set: u64, number: i8) -> bool {
    set >> number & 1 == 1
}

/// The numbers in a set, ascending.
fn set_numbers(set: u64) -> impl Iterator<Item = i8> {
    let rest = std::iter::successors(Some(set), |rest| Some(rest & rest.wrapping_sub(1)));
    rest.take_while(|rest| *rest != 0).filter_map(|rest| i8::try_from(rest.trailing_zeros()).ok())
}

impl CronPattern {
    fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = parts.as_slice() else {
            return Err(format!("it has {} fields instead of five", parts.len()));
        };
        let [minutes, hours, days, months, weekdays] = &CRON_FIELDS;
        let weekdays = weekdays.parse_set(weekday)?;
        let pattern = Self {
            minutes: minutes.parse_set(minute)?,
            hours: hours.parse_set(hour)?,
            days: days.parse_set(day)?,
            months: months.parse_set(month)?,
            weekdays: weekdays | weekdays >> 7,
            either_day: !day.starts_with('*') && !weekday.starts_with('*'),
        };
        // The calendar repeats every 28 years.
        let (first, last) = (Date::constant(2000, 1, 1), Date::constant(2027, 12, 31));
        pattern.next_match(first, last).map(|_| pattern).ok_or_else(|| "no such date exists".into())
    }

    fn matches(&self, date: Date) -> bool {
        let day = set_contains(self.days, date.day());
        let weekday = || set_contains(self.weekdays, date.weekday().to_sunday_zero_offset());
        set_contains(self.months, date.month())
            && if self.either_day { day || weekday() } else { day && weekday() }
    }

    /// The candidate days of that month, so that a yearly job does not scan a year of days each
    /// time.
    fn days_in(&self, date: Date) -> u64 {
        match set_contains(self.months, date.month()) {
            false => 0,
            true if self.either_day => u64::MAX << 1,
            true => self.days,
        }
    }

    /// The first matching date from `date` to `last`.
    fn next_match(&self, mut date: Date, last: Date) -> Option<Date> {
        while date <= last {
            if self.matches(date) {
                return Some(date);
            }
            let later = set_numbers(self.days_in(date) & u64::MAX << (date.day() + 1)).next();
            let later = later.and_then(|day| Date::new(date.year(), date.month(), day).ok());
            date = later.or_else(|| date.last_of_month().tomorrow().ok())?;
        }
        None
    }

    /// The last matching date from `first` to `date`.
    fn previous_match(&self, mut date: Date, first: Date) -> Option<Date> {
        while date >= first {
            if self.matches(date) {
                return Some(date);
            }
            let earlier = (self.days_in(date) & !(u64::MAX << date.day()))
                .checked_ilog2()
                .and_then(|day| i8::try_from(day).ok());
            let earlier = earlier.and_then(|day| Date::new(date.year(), date.month(), day).ok());
            date = earlier.or_else(|| date.first_of_month().yesterday().ok())?;
        }
        None
    }

    /// The instants on a matching date, in the order of local clock time.
    fn instants(&self, date: Date, zone: &Zone) -> impl Iterator<Item = Timestamp> {
        let times = set_numbers(self.hours).flat_map(|hour| {
            set_numbers(self.minutes).filter_map(move |minute| Time::new(hour, minute, 0, 0).ok())
        });
        times.map(move |time| zone.instant_at(date, time))
    }
}

/// A run of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Occurrence {
    pub job: Job,
    /// The local date it runs for; a job never runs twice for one.
    pub date: Date,
    /// The time at or after which it runs.
    pub at: Moment,
}

/// The times of all jobs. A job may have several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timetable {
    entries: Vec<(Job, CronPattern)>,
}

impl Timetable {
    /// Parses a timetable of cron expressions; a job without an entry never runs.
    pub fn parse(entries: &[(Job, &str)]) -> Result<Self, ScheduleError> {
        let read =
            |&(job, text): &(Job, &str)| {
                CronPattern::parse(text).map(|pattern| (job, pattern)).map_err(|why| {
                    ScheduleError { job, text: quote_input(text), why: quote_input(&why) }
                })
            };
        Ok(Self { entries: entries.iter().map(read).collect::<Result<_, _>>()? })
    }

    fn patterns(&self, job: Job) -> impl Iterator<Item = &CronPattern> {
        self.entries.iter().filter(move |(of, _)| *of == job).map(|(_, pattern)| pattern)
    }

    /// The latest time at or before `now` at which the job was due, within [`LOOK_BACK_DAYS`].
    pub fn last_due(&self, job: Job, now: Timestamp, zone: &Zone) -> Option<Occurrence> {
        let today = zone.day_of(now);
        let earliest = today.saturating_sub(i32::from(LOOK_BACK_DAYS).days());
        let last = |pattern: &CronPattern| {
            // Start with tomorrow: if clocks go back over midnight, tomorrow's first minutes have
            // already passed.
            let mut day = today.saturating_add(1.day());
            while let Some(date) = pattern.previous_match(day, earliest) {
                if let Some(at) = pattern.instants(date, zone).filter(|at| *at <= now).max() {
                    return Some((date, at));
                }
                day = date.yesterday().ok()?;
            }
            None
        };
        let (date, at) = self.patterns(job).filter_map(last).max()?;
        Some(Occurrence { job, date, at: zone.moment(at) })
    }

    /// The job's first time after that instant, including a second time on the same date.
    pub fn next(&self, job: Job, after: Timestamp, zone: &Zone) -> Option<Occurrence> {
        let today = zone.day_of(after);
        let latest = today.saturating_add(i32::from(LOOK_AHEAD_DAYS).days());
        let next = |pattern: &CronPattern| {
            // Start with yesterday: if clocks skip midnight, yesterday's last times are still in
            // the future.
            let first = pattern.next_match(today.saturating_sub(1.day()), latest)?;
            let dates = std::iter::successors(Some(first), |date| {
                pattern.next_match(date.tomorrow().ok()?, latest)
            });
            let times = dates
                .map(|date| (date, pattern.instants(date, zone).filter(|at| *at > after).min()));
            // Of two dates at one instant the later counts, so the date after the first match is
            // checked too.
            let hits = times.skip_while(|(_, at)| at.is_none()).take(2);
            hits.filter_map(|(date, at)| Some((at?, Reverse(date)))).min()
        };
        let (at, Reverse(date)) = self.patterns(job).filter_map(next).min()?;
        Some(Occurrence { job, date, at: zone.moment(at) })
    }

    /// The jobs to run now: those whose latest due date is after the date they last ran for.
    ///
    /// `ran` returns that date. Each job occurs once, finer ones first, however often it was
    /// missed. A job that never ran is due for its latest time. A last run more than
    /// [`MAX_CLOCK_ERROR_DAYS`] in the future comes from a wrong clock and is ignored.
    pub fn due_jobs(
        &self,
        ran: &dyn Fn(Job) -> Option<Date>,
        now: Timestamp,
        zone: &Zone,
    ) -> Vec<Occurrence> {
        let believed = zone.day_of(now).saturating_add(i32::from(MAX_CLOCK_ERROR_DAYS).days());
        let last_times = Job::ALL.iter().filter_map(|job| self.last_due(*job, now, zone));
        last_times
            .filter(|last| ran(last.job).is_none_or(|ran| last.date > ran || ran > believed))
            .collect()
    }

    /// The runs from that instant to the end of `days` local days, including today, in order of
    /// time.
    ///
    /// Each date has one run; a second time on it only matters after a failed run.
    pub fn upcoming(&self, from: Timestamp, days: u16, zone: &Zone) -> Vec<Occurrence> {
        let today = zone.day_of(from);
        let end = today.saturating_add(i32::from(days).days());
        let span = from..zone.day_start(end);
        let mut runs: Vec<(Timestamp, Job, Reverse<Date>)> = Vec::new();
        for job in Job::ALL {
            let mut dates: Vec<(Date, Timestamp)> = Vec::new();
            for pattern in self.patterns(*job) {
                let first = pattern.next_match(today.saturating_sub(1.day()), end);
                let fitting = std::iter::successors(first, |date| {
                    pattern.next_match(date.tomorrow().ok()?, end)
                });
                dates.extend(
                    fitting.filter_map(|date| Some((date, pattern.instants(date, zone).min()?))),
                );
            }
            dates.sort_unstable();
            dates.dedup_by_key(|(date, _)| *date);
            runs.extend(
                dates
                    .into_iter()
                    .filter(|(_, at)| span.contains(at))
                    .map(|(date, at)| (at, *job, Reverse(date))),
            );
        }
        runs.sort_unstable();
        runs.dedup_by_key(|(at, job, _)| (*at, *job));
        runs.into_iter()
            .map(|(at, job, Reverse(date))| Occurrence { job, date, at: zone.moment(at) })
            .collect()
    }
}

/// The title and description of a job in a calendar.
fn calendar_entry(job: Job) -> (&'static str, &'static str) {
    match job {
        Job::Consolidation => (
            "Nightly consolidation",
            "Extracts events from the day's log and records. Other jobs wait while it runs.",
        ),
        Job::Day => ("Day summary", "Summarizes the previous day."),
        Job::Week => ("Week summary", "Summarizes the week's sessions."),
        Job::Month => ("Month summary", "Summarizes the closed weeks of the month."),
        Job::Archive => ("Archive clean-up", "Archives what the month's summary covers."),
        Job::Year => ("Year summary", "Summarizes the months of the previous year."),
        Job::Compact => ("Ledger compaction", "Compacts finished chains into one event each."),
        Job::Prune => ("Ledger pruning", "Moves expired events to the archive."),
        Job::Check => ("Weekly check", "Rebuilds everything derived and verifies the whole vault."),
    }
}

/// Renders the runs as an iCalendar file (RFC 5545), for the vault of that name, created at
/// `stamp`.
///
/// One event in UTC per run, since a recurrence rule would need the zone's whole history in the
/// file. A run keeps its UID, so that a calendar that reads the file again moves the event instead
/// of duplicating it.
pub fn render_ics(vault: &str, runs: &[Occurrence], stamp: Timestamp) -> String {
    let vault = sanitize::one_line(vault);
    let mark = Hash::of(vault.as_bytes()).short_hex();
    let mut text = String::new();
    let mut line = |content: &str| fold_line(&mut text, content);
    for content in
        ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//icecore//schedule//EN", "CALSCALE:GREGORIAN"]
    {
        line(content);
    }
    line(&format!("NAME:{}", escape_ics_text(&format!("icecore {vault}"))));
    for run in runs {
        let (summary, description) = calendar_entry(run.job);
        // Only consolidation blocks other jobs, so only it shows as busy.
        let (length, shown) = if run.job == Job::Consolidation {
            ("PT15M", "OPAQUE")
        } else {
            ("PT5M", "TRANSPARENT")
        };
        line("BEGIN:VEVENT");
        line(&format!("UID:{}-{}-{mark}@icecore", run.job, run.date));
        line(&format!("DTSTAMP:{}", format_utc(stamp)));
        line(&format!("DTSTART:{}", format_utc(run.at.timestamp())));
        line(&format!("DURATION:{length}"));
        line(&format!("SUMMARY:{}", escape_ics_text(&format!("icecore: {summary}"))));
        line(&format!(
            "DESCRIPTION:{}",
            escape_ics_text(&format!("{description}\nVault: {vault}\nFor: {}", run.date))
        ));
        line(&format!("TRANSP:{shown}"));
        line("END:VEVENT");
    }
    line("END:VCALENDAR");
    text
}

fn format_utc(at: Timestamp) -> String {
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

fn escape_ics_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace(';', "\\;").replace(',', "\\,").replace('\n', "\\n")
}

/// Writes a line folded to at most 75 octets, never splitting a character.
fn fold_line(text: &mut String, line: &str) {
    let mut rest = line;
    let mut room = 75;
    while rest.len() > room {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(room));
        text.push_str(piece);
        text.push_str("\r\n ");
        (rest, room) = (after, 74);
    }
    text.push_str(rest);
    text.push_str("\r\n");
}

/// A line for `crontab -e` that runs due jobs every 15 minutes.
///
/// A crontab cannot contain a line break; for a path with one, the line is an explanatory comment.
pub fn render_crontab(program: &str, vault: &str) -> String {
    if [program, vault].iter().any(|path| path.contains(['\n', '\r', '\0'])) {
        return "# icecore: cron cannot name a path with a line break in it; rename the folder first\n".into();
    }
    let command = format!("{} --vault {} rollup due -q", quote_sh(program), quote_sh(vault));
    // In a crontab an unescaped `%` is a line break, and the backslash before it must not itself be
    // escaped.
    let command = command.replace("\\%", "\\''%").replace('%', "\\%");
    format!("*/15 * * * * {command}\n")
}

fn quote_sh(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "_-+=:,./@".contains(c);
    if !text.is_empty() && text.chars().all(harmless) {
        text.into()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// A systemd user unit for the daemon, with write access to the vault only.
pub fn render_systemd_unit(program: &str, vault: &str) -> String {
    let (program, folder) = (quote_unit_word(program), quote_unit_word(vault));
    // A private /tmp would hide a vault that is there.
    let private_tmp =
        if vault.starts_with("/tmp/") || vault.starts_with("/var/tmp/") { "no" } else { "yes" };
    // The colon keeps `$` in a path from being expanded as a variable.
    format!(
        "# Save as ~/.config/systemd/user/icecore.service, then: systemctl --user enable --now icecore.service
[Unit]
Description=icecore memory daemon

[Service]
Type=exec
ExecStart=:{program} --vault {folder} daemon
Restart=on-failure
RestartSec=30
Nice=10
UMask=0077
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={folder}
PrivateTmp={private_tmp}
ProtectControlGroups=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=default.target
"
    )
}

fn quote_unit_word(text: &str) -> String {
    let mut word = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => word.extend(['\\', c]),
            '%' => word.push_str("%%"),
            c if c.is_ascii_control() => word.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => word.push(c),
        }
    }
    word.push('"');
    word
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use jiff::civil::{DateTime, date};
    use proptest::prelude::*;

    use super::*;
    use crate::calendar::Days;

    fn usual() -> Timetable {
        Timetable::parse(DEFAULT_TIMETABLE).unwrap()
    }

    fn zone(name: &str) -> Zone {
        Zone::from_name(name).unwrap()
    }

    fn civil(at: Timestamp, zone: &Zone) -> DateTime {
        let told = zone.moment(at).to_string();
        told[..19].parse().unwrap()
    }

    /// The default timetable, written out independently of the patterns.
    fn face(job: Job) -> Time {
        match job {
            Job::Consolidation => Time::constant(3, 0, 0, 0),
            Job::Day => Time::constant(0, 0, 0, 0),
            Job::Week => Time::constant(22, 15, 0, 0),
            Job::Month => Time::constant(22, 30, 0, 0),
            Job::Archive => Time::constant(22, 45, 0, 0),
            Job::Year => Time::constant(23, 0, 0, 0),
            Job::Compact | Job::Prune => Time::constant(3, 0, 0, 0),
            Job::Check => Time::constant(4, 0, 0, 0),
        }
    }

    fn runs_on(job: Job, date: Date) -> bool {
        match job {
            Job::Consolidation | Job::Day => true,
            Job::Week | Job::Check => date.weekday() == jiff::civil::Weekday::Sunday,
            Job::Month | Job::Archive | Job::Compact => date.day() == 1,
            Job::Prune => date.day() == 1 && date.month() % 3 == 1,
            Job::Year => date.day() == 1 && date.month() == 1,
        }
    }

    /// The local dates of which the clocks showed at least 15 minutes.
    fn dates_lived(zone: &Zone, years: Days) -> BTreeSet<Date> {
        let mut lived = BTreeSet::new();
        let mut at = zone.instant_at(years.first, Time::midnight());
        while zone.day_of(at) <= years.last {
            lived.insert(zone.day_of(at));
            at += 15.minutes();
        }
        lived
    }

    /// A daemon: its stored state, and every run.
    struct Daemon<'a> {
        timetable: &'a Timetable,
        zone: &'a Zone,
        marks: BTreeMap<Job, Date>,
        runs: Vec<(Job, Date, Timestamp)>,
    }

    impl<'a> Daemon<'a> {
        fn new(timetable: &'a Timetable, zone: &'a Zone, before: Date) -> Self {
            let marks = Job::ALL.iter().map(|job| (*job, before.yesterday().unwrap())).collect();
            Self { timetable, zone, marks, runs: Vec::new() }
        }

        fn wake(&mut self, now: Timestamp) {
            for run in self.timetable.due_jobs(&|job| self.marks.get(&job).copied(), now, self.zone)
            {
                assert!(run.at.timestamp() <= now);
                self.marks.insert(run.job, run.date);
                self.runs.push((run.job, run.date, now));
            }
        }

        fn dates(&self, job: Job) -> Vec<Date> {
            self.runs.iter().filter(|(of, ..)| *of == job).map(|(_, date, _)| *date).collect()
        }
    }

    fn three_years(from: i16) -> Days {
        Days { first: date(from, 1, 1), last: date(from + 2, 12, 31) }
    }

    fn check_awake(name: &str, from: i16) {
        let (zone, timetable, years) = (zone(name), usual(), three_years(from));
        let lived = dates_lived(&zone, years);
        let mut daemon = Daemon::new(&timetable, &zone, years.first);
        let mut now = zone.day_start(years.first);
        while zone.day_of(now) <= years.last {
            daemon.wake(now);
            now += 7.minutes();
        }
        for job in Job::ALL {
            let wanted: Vec<Date> =
                lived.iter().copied().filter(|date| runs_on(*job, *date)).collect();
            assert!(wanted.len() >= 3 && daemon.dates(*job) == wanted, "{name} {job}");
        }
        for (job, date, at) in &daemon.runs {
            let late = date
                .to_datetime(face(*job))
                .until(civil(*at, &zone))
                .unwrap()
                .total(jiff::Unit::Minute)
                .unwrap();
            assert!((0.0..=67.0).contains(&late), "{name} {job} {date}: {late} minutes late");
        }
    }

    // P12, Y4
    #[test]
    fn three_years_in_berlin_have_one_run_for_each_date() {
        check_awake("Europe/Berlin", 2026);
    }

    // P12, Y4
    #[test]
    fn three_years_in_new_york_have_one_run_for_each_date() {
        check_awake("America/New_York", 2026);
    }

    // P12, Y4
    #[test]
    fn three_years_where_midnight_is_skipped_have_one_run_for_each_date() {
        check_awake("America/Sao_Paulo", 2016);
    }

    // P12, Y4
    #[test]
    fn three_years_where_a_day_is_skipped_have_one_run_for_each_date_that_was() {
        assert!(
            !dates_lived(&zone("Pacific/Apia"), three_years(2011)).contains(&date(2011, 12, 30))
        );
        check_awake("Pacific/Apia", 2011);
    }

    // P12, Y4
    #[test]
    fn three_years_with_half_hours_of_summer_have_one_run_for_each_date() {
        check_awake("Australia/Lord_Howe", 2026);
    }

    // P12
    #[test]
    fn times_that_clocks_skip_or_show_twice_run_once() {
        for (name, from, pattern) in [
            ("Europe/Berlin", 2026, "30 2 * * *"),
            ("America/New_York", 2026, "0 2 * * *"),
            ("America/New_York", 2026, "59 1 * * *"),
            ("America/Sao_Paulo", 2016, "30 0 * * *"),
            ("America/Sao_Paulo", 2016, "30 23 * * *"),
            ("Australia/Lord_Howe", 2026, "10 2 * * *"),
            ("Australia/Lord_Howe", 2026, "45 1 * * *"),
            ("America/St_Johns", 2009, "0 0 * * *"),
            ("Europe/Berlin", 2026, "*/30 1-3 * * *"),
        ] {
            let (zone, timetable, years) =
                (zone(name), Timetable::parse(&[(Job::Day, pattern)]).unwrap(), three_years(from));
            let mut daemon = Daemon::new(&timetable, &zone, years.first);
            let mut now = zone.day_start(years.first);
            while zone.day_of(now) <= years.last {
                daemon.wake(now);
                now += 31.minutes();
            }
            assert_eq!(
                daemon.dates(Job::Day),
                years.iter().collect::<Vec<_>>(),
                "{name} {pattern}"
            );
        }
    }

    // P12
    #[test]
    fn a_weekly_run_is_not_lost_with_the_day_that_was_skipped() {
        let (apia, timetable) =
            (zone("Pacific/Apia"), Timetable::parse(&[(Job::Week, "15 22 * * FRI")]).unwrap());
        let run =
            timetable.next(Job::Week, "2011-12-29T12:00:00Z".parse().unwrap(), &apia).unwrap();
        assert_eq!(
            (run.date, run.at.to_string().as_str()),
            (date(2011, 12, 30), "2011-12-31T22:15:00+14:00")
        );
        assert_eq!(timetable.last_due(Job::Week, run.at.timestamp(), &apia), Some(run));
    }

    fn check_asleep(name: &str, from: i16, mut seed: u64) {
        let (zone, timetable, years) = (zone(name), usual(), three_years(from));
        let lived = dates_lived(&zone, years);
        let mut daemon = Daemon::new(&timetable, &zone, years.first);
        let mut now = zone.day_start(years.first);
        let mut wakes = 0;
        while zone.day_of(now) <= years.last {
            let before = daemon.runs.len();
            daemon.wake(now);
            let here = civil(now, &zone);
            for job in Job::ALL {
                let over = lived.range(..=here.date()).rev().filter(|date| runs_on(*job, **date));
                let wanted = over
                    .copied()
                    .find(|date| date.to_datetime(face(*job)) <= here)
                    .unwrap_or(years.first.yesterday().unwrap());
                assert_eq!(daemon.marks[job], wanted, "{name} {job} at {here}");
                assert!(daemon.runs[before..].iter().filter(|(of, ..)| of == job).count() <= 1);
            }
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let draw = i64::try_from(seed >> 40).unwrap();
            now += if draw % 8 == 0 { (draw % (20 * 24 * 60)).minutes() } else { 7.minutes() };
            wakes += 1;
        }
        assert!(wakes > 300);
        for job in Job::ALL {
            assert!(daemon.dates(*job).is_sorted_by(|one, other| one < other), "{name} {job}");
        }
    }

    // P12
    #[test]
    fn what_was_slept_through_is_made_up_once() {
        for (name, from) in [
            ("Europe/Berlin", 2026),
            ("America/New_York", 2026),
            ("America/Sao_Paulo", 2016),
            ("Pacific/Apia", 2011),
            ("Australia/Lord_Howe", 2026),
        ] {
            for seed in 1..=4 {
                check_asleep(name, from, seed);
            }
        }
    }

    // P12
    #[test]
    fn a_clock_that_is_put_back_two_hours_runs_nothing_twice() {
        let (berlin, timetable) = (zone("Europe/Berlin"), usual());
        let days = Days { first: date(2026, 10, 1), last: date(2027, 4, 15) };
        let mut daemon = Daemon::new(&timetable, &berlin, days.first);
        let mut now = berlin.day_start(days.first);
        let mut wakes = 0;
        while berlin.day_of(now) <= days.last {
            daemon.wake(now);
            wakes += 1;
            now += if wakes % 40 == 0 { -(2.hours()) } else { 7.minutes() };
        }
        for job in Job::ALL {
            assert_eq!(
                daemon.dates(*job),
                days.iter().filter(|date| runs_on(*job, *date)).collect::<Vec<_>>(),
                "{job}"
            );
        }
    }

    // P12
    #[test]
    fn a_date_from_a_wrong_clock_does_not_stop_a_job() {
        let (berlin, timetable) = (zone("Europe/Berlin"), usual());
        let now: Timestamp = "2026-02-13T12:00:00Z".parse().unwrap();
        let due = |ran: Date| {
            timetable
                .due_jobs(&|_| Some(ran), now, &berlin)
                .iter()
                .map(|run| (run.job, run.date))
                .collect::<Vec<_>>()
        };
        assert_eq!(due(date(2026, 2, 13)), []);
        assert_eq!(due(date(2026, 2, 16)), []);
        assert_eq!(due(date(2026, 2, 17)).len(), Job::ALL.len());
        assert_eq!(
            due(date(2099, 1, 1))[..2],
            [(Job::Consolidation, date(2026, 2, 13)), (Job::Day, date(2026, 2, 13))]
        );
        assert_eq!(
            due(date(2026, 2, 12)),
            [(Job::Consolidation, date(2026, 2, 13)), (Job::Day, date(2026, 2, 13))]
        );
        let never = timetable.due_jobs(&|_| None, now, &berlin);
        assert_eq!(never.iter().map(|run| run.job).collect::<Vec<_>>(), Job::ALL);
        assert_eq!(never[2].at.to_string(), "2026-02-08T22:15:00+01:00");
    }

    // P12
    #[test]
    fn the_second_time_of_a_night_is_for_a_run_that_failed() {
        let (berlin, timetable) = (zone("Europe/Berlin"), usual());
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let next =
            |after| timetable.next(Job::Consolidation, at(after), &berlin).unwrap().at.to_string();
        assert_eq!(next("2026-02-13T01:59:59Z"), "2026-02-13T03:00:00+01:00");
        assert_eq!(next("2026-02-13T02:00:00Z"), "2026-02-13T05:00:00+01:00");
        assert_eq!(next("2026-02-13T04:00:00Z"), "2026-02-14T03:00:00+01:00");
        let nights = timetable.upcoming(at("2026-02-13T02:30:00Z"), 2, &berlin);
        let nights: Vec<String> = nights
            .iter()
            .filter(|run| run.job == Job::Consolidation)
            .map(|run| run.at.to_string())
            .collect();
        assert_eq!(nights, ["2026-02-14T03:00:00+01:00"]);
    }

    #[test]
    fn what_is_upcoming_is_what_comes_next_again_and_again() {
        let timetable = usual();
        for (name, from) in
            [("Europe/Berlin", 2026), ("Pacific/Apia", 2011), ("America/Sao_Paulo", 2018)]
        {
            let zone = zone(name);
            let start = zone.day_start(date(from, 1, 1)) - 1.second();
            let upcoming = timetable.upcoming(start, 801, &zone);
            assert!(upcoming.is_sorted_by_key(|run| run.at.timestamp()));
            for job in Job::ALL {
                let after = |run: &Occurrence| timetable.next(*job, run.at.timestamp(), &zone);
                let mut steps: Vec<_> =
                    std::iter::successors(timetable.next(*job, start, &zone), after)
                        .take_while(|run| {
                            run.at.timestamp()
                                < zone.day_start(date(from, 1, 1).saturating_add(800.days()))
                        })
                        .collect();
                steps.dedup_by_key(|run| run.date);
                assert_eq!(
                    upcoming.iter().copied().filter(|run| run.job == *job).collect::<Vec<_>>(),
                    steps,
                    "{name} {job}"
                );
            }
        }
        assert_eq!(
            timetable.upcoming("2026-02-13T12:00:00Z".parse().unwrap(), 0, &zone("UTC")),
            []
        );
    }

    fn check_next(pattern: &str, after: &str, wanted: &str) {
        let timetable = Timetable::parse(&[(Job::Day, pattern)]).unwrap();
        let next = timetable.next(Job::Day, after.parse().unwrap(), &zone("UTC")).unwrap();
        assert_eq!(next.at.to_string()[..16], *wanted, "{pattern}");
    }

    #[test]
    fn patterns_mean_what_cron_means() {
        let friday = "2026-02-13T12:00:00Z";
        check_next("15 22 * * SUN", friday, "2026-02-15T22:15");
        check_next("15 22 * * 7", friday, "2026-02-15T22:15");
        check_next("15 22 * * 0", friday, "2026-02-15T22:15");
        check_next("30 22 1 * *", friday, "2026-03-01T22:30");
        check_next("*/15 * * * *", friday, "2026-02-13T12:15");
        check_next("5/20 12 * * *", friday, "2026-02-13T12:05");
        check_next("0 9-17/4 * * mon-fri", friday, "2026-02-13T13:00");
        check_next("0 0 * * fri-sun", friday, "2026-02-14T00:00");
        check_next("0 0 1 jan,JUL *", friday, "2026-07-01T00:00");
        check_next("0 0 16 * SUN", friday, "2026-02-15T00:00");
        check_next("0 0 16 * */2", friday, "2026-04-16T00:00");
        check_next("0 0 29 2 *", "2096-03-01T00:00:00Z", "2104-02-29T00:00");
    }

    #[test]
    fn an_invalid_schedule_is_reported_with_the_job_and_an_example() {
        for (text, why) in [
            ("", "0 fields"),
            ("@daily", "1 fields"),
            ("0 3 * *", "4 fields"),
            ("0 3 * * * *", "6 fields"),
            ("60 3 * * *", "`60` is no minute (0 to 59)"),
            ("0 24 * * *", "`24` is no hour"),
            ("0 0 0 * *", "no day of the month"),
            ("0 0 * 13 *", "or a name such as JAN"),
            ("0 0 * * 8", "no weekday"),
            ("0 0 * * FUNDAY", "no weekday"),
            ("0 5-3 * * *", "runs backwards"),
            ("*/0 * * * *", "no step"),
            ("0,, 3 * * *", "no minute"),
            ("-1 3 * * *", "no minute"),
            ("999999999999 3 * * *", "no minute"),
            ("0 0 30 2 *", "no such date exists"),
            ("\u{1b}[2J * * * *", "no minute"),
        ] {
            let error = Timetable::parse(&[(Job::Day, "0 0 * * *"), (Job::Week, text)])
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(why)
                    && error.contains("job week")
                    && error.contains("15 22 * * SUN"),
                "{error}"
            );
            assert!(!error.contains('\u{1b}'));
        }
        assert_eq!("Consolidation".parse(), Ok(Job::Consolidation));
    }

    /// An iCalendar parser that is as strict as the standard about the properties used here.
    fn read_ics(text: &str) -> Vec<BTreeMap<String, String>> {
        assert!(text.ends_with("\r\n"));
        for line in text.split_terminator("\r\n") {
            assert!(line.len() <= 75 && !line.contains(['\r', '\n']), "{line:?}");
        }
        let unfolded = text.replace("\r\n ", "");
        let (mut open, mut events) = (Vec::new(), Vec::new());
        for line in unfolded.split_terminator("\r\n") {
            let (name, value) = line.split_once(':').expect("a name and a value");
            assert!(name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-'), "{line}");
            match name {
                "BEGIN" => {
                    open.push(value.to_owned());
                    events.extend((value == "VEVENT").then(BTreeMap::new));
                }
                "END" => assert_eq!(open.pop().as_deref(), Some(value)),
                _ if open.len() == 1 => {
                    assert!(["VERSION", "PRODID", "CALSCALE", "NAME"].contains(&name), "{line}")
                }
                _ => assert_eq!(
                    events.last_mut().unwrap().insert(name.to_owned(), value.to_owned()),
                    None,
                    "{line}"
                ),
            }
        }
        assert!(open.is_empty());
        assert!(unfolded.starts_with("BEGIN:VCALENDAR\r\nVERSION:2.0\r\nPRODID:"));
        for event in &events {
            for name in
                ["UID", "DTSTAMP", "DTSTART", "DURATION", "SUMMARY", "DESCRIPTION", "TRANSP"]
            {
                assert!(event.contains_key(name), "{name}");
            }
        }
        events
    }

    // K5
    #[test]
    fn consolidation_stands_on_the_calendar_as_time_that_is_taken() {
        let (berlin, timetable) = (zone("Europe/Berlin"), usual());
        let runs = timetable.upcoming("2026-10-23T12:00:00Z".parse().unwrap(), 30, &berlin);
        let text = render_ics("Anna's, \\ notes;", &runs, "2026-10-23T12:00:00Z".parse().unwrap());
        let events = read_ics(&text);
        assert_eq!(events.len(), runs.len());
        let uids: BTreeSet<&String> = events.iter().map(|event| &event["UID"]).collect();
        assert_eq!(uids.len(), events.len());
        let nights: Vec<_> = events.iter().filter(|event| event["TRANSP"] == "OPAQUE").collect();
        assert_eq!(nights.len(), 29);
        assert_eq!(
            (nights[0]["DTSTART"].as_str(), nights[0]["DURATION"].as_str()),
            ("20261024T010000Z", "PT15M")
        );
        assert_eq!(nights[1]["DTSTART"], "20261025T020000Z");
        assert_eq!(nights[0]["DTSTAMP"], "20261023T120000Z");
        assert!(
            nights[0]["DESCRIPTION"]
                .contains("\\nVault: Anna's\\, \\\\ notes\\;\\nFor: 2026-10-24"),
            "{}",
            nights[0]["DESCRIPTION"]
        );
        let later = render_ics("Anna's, \\ notes;", &runs, "2026-10-24T12:00:00Z".parse().unwrap());
        assert_eq!(read_ics(&later)[0]["UID"], events[0]["UID"]);
        assert_ne!(
            read_ics(&render_ics("other", &runs, Timestamp::UNIX_EPOCH))[0]["UID"],
            events[0]["UID"]
        );
    }

    /// The words that sh gets from cron, by cron's rules for `%` and `\`.
    fn cron_and_sh(line: &str) -> Vec<String> {
        let command = line.strip_prefix("*/15 * * * * ").unwrap().strip_suffix('\n').unwrap();
        let mut passed = String::new();
        let mut escaped = false;
        for c in command.chars() {
            assert!(c != '%' || escaped, "a line break for cron: {line}");
            if c == '%' {
                passed.pop();
            }
            passed.push(c);
            escaped = c == '\\' && !escaped;
        }
        let (mut words, mut word, mut quoted, mut letters) =
            (Vec::new(), String::new(), false, passed.chars());
        while let Some(c) = letters.next() {
            match c {
                '\'' => quoted = !quoted,
                '\\' if !quoted => word.extend(letters.next()),
                ' ' if !quoted => words.push(std::mem::take(&mut word)),
                c => {
                    assert!(
                        quoted || c.is_ascii_alphanumeric() || "_-+=:,./@".contains(c),
                        "{c} means something to sh: {line}"
                    );
                    word.push(c);
                }
            }
        }
        words.push(word);
        words
    }

    #[test]
    fn a_crontab_line_can_be_pasted() {
        assert_eq!(
            render_crontab("/usr/bin/icecore", "/home/ana/vault"),
            "*/15 * * * * /usr/bin/icecore --vault /home/ana/vault rollup due -q\n"
        );
        assert_eq!(
            render_crontab("/opt/my tools/icecore", "/home/o'neil/100% $HOME"),
            "*/15 * * * * '/opt/my tools/icecore' --vault '/home/o'\\''neil/100\\% $HOME' rollup due -q\n"
        );
        let refused = render_crontab("/usr/bin/icecore", "/tmp/x\n* * * * * rm -r ~");
        assert!(refused.starts_with('#') && refused.lines().count() == 1);
    }

    fn directive<'a>(unit: &'a str, name: &str) -> &'a str {
        let mut found = unit.lines().filter_map(|line| line.strip_prefix(name));
        let value = found.next().unwrap();
        assert_eq!(found.next(), None);
        value
    }

    #[test]
    fn the_unit_writes_only_the_vault() {
        let unit = render_systemd_unit("/usr/bin/icecore", "/home/ana/my 100% \"vault\"");
        assert_eq!(
            directive(&unit, "ExecStart="),
            r#":"/usr/bin/icecore" --vault "/home/ana/my 100%% \"vault\"" daemon"#
        );
        assert_eq!(directive(&unit, "ReadWritePaths="), r#""/home/ana/my 100%% \"vault\"""#);
        for line in [
            "ProtectSystem=strict",
            "NoNewPrivileges=yes",
            "PrivateTmp=yes",
            "UMask=0077",
            "Restart=on-failure",
            "[Install]",
        ] {
            assert!(unit.lines().any(|own| own == line), "{line}");
        }
        assert_eq!(directive(&render_systemd_unit("icecore", "/tmp/vault"), "PrivateTmp="), "no");
    }

    fn any_pattern() -> impl Strategy<Value = String> {
        let small = "(\\*|\\*/[1-5]|[1-9]|[1-9],1[0-2]|[1-4]-[5-9]|1[0-2])";
        let weekday = "(\\*|[0-7]|[1-3]-[4-7]|SUN|mon-fri)";
        proptest::string::string_regex(&format!(
            "{small} {small} (29|30|31|{small}) {small} {weekday}"
        ))
        .unwrap()
    }

    proptest! {
        // P12
        #[test]
        fn no_date_has_two_runs_however_the_clock_jumps(
            name in prop::sample::select(vec!["Europe/Berlin", "Pacific/Apia", "America/Sao_Paulo", "Australia/Lord_Howe"]),
            jumps in prop::collection::vec(prop_oneof![-47_i64 * 60..0, 0_i64..600, 0_i64..60 * 24 * 60], 1..60),
        ) {
            let (zone, timetable) = (zone(name), usual());
            let mut now: Timestamp = "2011-12-27T00:00:00Z".parse().unwrap();
            let mut latest = now;
            let mut daemon = Daemon::new(&timetable, &zone, date(2011, 12, 27));
            for jump in jumps {
                // However often it is set back, the clock is within two days of its start.
                now = (now + jump.minutes()).max(latest - 47.hours());
                latest = latest.max(now);
                daemon.wake(now);
            }
            for job in Job::ALL {
                prop_assert!(daemon.dates(*job).is_sorted_by(|one, other| one < other), "{}", job);
            }
        }

        #[test]
        fn paths_reach_the_program_as_they_are(program in "/[^\n\r\0]{1,30}", vault in "/([\\\\%'\" $`a]|[^\n\r\0]){0,30}") {
            let wanted = [program.as_str(), "--vault", vault.as_str(), "rollup", "due", "-q"];
            prop_assert_eq!(cron_and_sh(&render_crontab(&program, &vault)), wanted);
        }

        #[test]
        fn no_path_adds_a_line_to_the_unit(vault in "(.|\n|\r|\0){0,30}") {
            prop_assert_eq!(render_systemd_unit("/icecore", &vault).lines().count(), render_systemd_unit("/icecore", "/vault").lines().count());
        }

        // K5
        #[test]
        fn a_calendar_is_well_formed_for_any_vault(vault in "(.|\n|\r){0,120}", days in 0_u16..8) {
            let runs = usual().upcoming("2026-10-23T12:00:00Z".parse().unwrap(), days, &zone("Europe/Berlin"));
            prop_assert_eq!(read_ics(&render_ics(&vault, &runs, Timestamp::UNIX_EPOCH)).len(), runs.len());
        }

        #[test]
        fn no_schedule_is_too_strange(text in prop_oneof![1 => ".*", 9 => any_pattern()], seconds in any::<i32>()) {
            if let Ok(timetable) = Timetable::parse(&[(Job::Day, &text)]) {
                let (now, zone) = (Timestamp::from_second(i64::from(seconds)).unwrap(), zone("Europe/Berlin"));
                let next = timetable.next(Job::Day, now, &zone).unwrap();
                prop_assert!(next.at.timestamp() > now);
                prop_assert_eq!(timetable.last_due(Job::Day, next.at.timestamp(), &zone), Some(next));
            }
        }
    }
}
