//! Ninety invented days: the story of `life.txt`, filled up with ordinary sessions. The result is
//! the same on every machine.

use std::collections::{BTreeMap, HashMap};

use icecore_domain::calendar::{Days, days_between};
use icecore_domain::event::{EventType, Priority};
use icecore_domain::record::Role;
use icecore_domain::summary::Importance;
use jiff::civil::{Date, Time, Weekday, date};

const STORY_TEXT: &str = include_str!("life.txt");
/// From a Monday to a Saturday.
pub const DAYS: Days = Days { first: date(2026, 2, 16), last: date(2026, 5, 16) };
/// Work rests on Good Friday, Easter Monday and the first of May.
const HOLIDAYS: &[Date] = &[date(2026, 4, 3), date(2026, 4, 6), date(2026, 5, 1)];
/// Sessions' size on working days, by week: one with the flu, one before a release.
const MESSAGES_PER_WEEKDAY: [usize; 13] = [5, 4, 5, 1, 5, 6, 3, 5, 5, 4, 5, 4, 4];
/// The commitment that the first part leaves open: its key in the story, and its id.
pub const OPEN_COMMITMENT: (&str, &str) = ("deadline", "EVT-20260213-003");
const MAX_SESSIONS_PER_DAY: usize = 3;

/// Longer sessions are not extended.
const SHORT_SESSION_MESSAGES: usize = 5;
/// Topics of desk sessions, in rotation.
const DESK_TOPICS: &[&str] = &["shop", "client-x", "talk", "work"];

/// One session with the assistant.
#[derive(Debug, Clone)]
pub struct DemoSession {
    pub conversation: String,
    /// When it begins.
    pub begins: Time,
    /// What happens in it.
    pub steps: Vec<SessionStep>,
}

/// One step of a session.
#[derive(Debug, Clone)]
pub enum SessionStep {
    Says(Role, String),
    Learns(DemoEvent),
    /// Closes the commitment with this key.
    Closes {
        key: String,
        note: String,
    },
    Saves {
        title: String,
        text: String,
    },
    Marks(Importance),
    /// The clock advances to this time.
    Waits(Time),
}

/// An event for the ledger.
#[derive(Debug, Clone)]
pub struct DemoEvent {
    /// How much it matters.
    pub priority: Priority,
    /// What it is.
    pub kind: EventType,
    /// What it is about.
    pub entity: String,
    /// When it is due.
    pub due: Option<Date>,
    /// What a later step calls it.
    pub key: Option<String>,
    /// The words.
    pub text: String,
}

/// A template with gaps, for ordinary sessions.
struct SessionTemplate {
    conversation: String,
    weeks: (i64, i64),
    times: Vec<Time>,
    steps: Vec<SessionStep>,
}

#[derive(Default)]
struct DemoStory {
    told: BTreeMap<Date, Vec<DemoSession>>,
    ordinary: Vec<SessionTemplate>,
    words: HashMap<String, Vec<String>>,
    /// Lines that say nothing we understand.
    complaints: Vec<String>,
}

/// Every day with its sessions, in order; a day without any is quiet.
pub fn days() -> Vec<(Date, Vec<DemoSession>)> {
    let mut filler = DayFiller {
        story: DemoStory::read(STORY_TEXT),
        used: HashMap::new(),
        filled: HashMap::new(),
    };
    DAYS.iter().map(|day| (day, filler.sessions(day))).collect()
}

fn count_messages(sessions: &[DemoSession]) -> usize {
    sessions
        .iter()
        .flat_map(|session| &session.steps)
        .filter(|step| matches!(step, SessionStep::Says(..)))
        .count()
}

impl DemoStory {
    fn read(text: &str) -> Self {
        let mut story = Self::default();
        // The target of the next steps: a day of the story, else the last template.
        let mut day = None;
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let read = match line.split_once(' ') {
                Some(("=", rest)) => story.read_session(rest).map(|begun| day = Some(begun)),
                Some(("@", rest)) => story.read_ordinary(rest).map(|()| day = None),
                Some((name, rest)) if name.starts_with('{') => {
                    story
                        .words
                        .insert(name.to_owned(), rest.split(", ").map(str::to_owned).collect());
                    Some(())
                }
                _ => story.read_step(line, day),
            };
            if read.is_none() {
                story.complaints.push(line.to_owned());
            }
        }
        story
    }

    fn read_session(&mut self, text: &str) -> Option<Date> {
        let [day, conversation, begins] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let (day, begins) = (read_day(day)?, begins.parse().ok()?);
        self.told.entry(day).or_default().push(DemoSession {
            conversation: conversation.to_owned(),
            begins,
            steps: Vec::new(),
        });
        Some(day)
    }

    fn read_ordinary(&mut self, text: &str) -> Option<()> {
        let mut parts = text.split(' ');
        let conversation = parts.next()?.to_owned();
        let (first, last) = parts.next()?.split_once('-')?;
        let weeks = (first.parse().ok()?, last.parse().ok()?);
        let times: Vec<Time> = parts.map(|time| time.parse().ok()).collect::<Option<_>>()?;
        self.ordinary.push(SessionTemplate { conversation, weeks, times, steps: Vec::new() });
        Some(())
    }

    fn read_step(&mut self, line: &str, day: Option<Date>) -> Option<()> {
        let (sign, rest) = line.split_once(' ')?;
        let step = match sign {
            ">" => SessionStep::Says(Role::User, rest.to_owned()),
            "<" => SessionStep::Says(Role::Assistant, rest.to_owned()),
            "+" => SessionStep::Learns(read_learnt(rest)?),
            "x" => rest.split_once(" | ").map(|(key, note)| SessionStep::Closes {
                key: key.to_owned(),
                note: note.to_owned(),
            })?,
            "~" => rest.split_once(" | ").map(|(title, text)| SessionStep::Saves {
                title: title.to_owned(),
                text: text.to_owned(),
            })?,
            "!" => SessionStep::Marks(rest.parse().ok()?),
            "." => SessionStep::Waits(rest.parse().ok()?),
            _ => return None,
        };
        let steps = match day {
            Some(day) => &mut self.told.get_mut(&day)?.last_mut()?.steps,
            None => &mut self.ordinary.last_mut()?.steps,
        };
        steps.push(step);
        Some(())
    }
}

fn read_day(text: &str) -> Option<Date> {
    let (month, day) = text.split_once('-')?;
    Date::new(DAYS.first.year(), month.parse().ok()?, day.parse().ok()?).ok()
}

fn read_learnt(text: &str) -> Option<DemoEvent> {
    let (head, text) = text.split_once(" | ")?;
    let mut words = head.split(' ');
    let (priority, kind, entity) =
        (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?.to_owned());
    let mut learnt =
        DemoEvent { priority, kind, entity, due: None, key: None, text: text.to_owned() };
    while let Some(word) = words.next() {
        match word {
            "due" => learnt.due = Some(read_day(words.next()?)?),
            "key" => learnt.key = Some(words.next()?.to_owned()),
            _ => return None,
        }
    }
    Some(learnt)
}

/// Fills days with ordinary sessions: least used templates first, never with the same words twice.
struct DayFiller {
    story: DemoStory,
    used: HashMap<usize, usize>,
    filled: HashMap<String, usize>,
}

impl DayFiller {
    fn sessions(&mut self, day: Date) -> Vec<DemoSession> {
        let mut sessions = self.story.told.remove(&day).unwrap_or_default();
        let (least, topics) = target_messages(day);
        while count_messages(&sessions) < least {
            if !self.extend_session(day, &mut sessions)
                && !self.begin_session(day, topics, &mut sessions)
            {
                break;
            }
        }
        sessions.sort_by_key(|session| session.begins);
        sessions
    }

    /// Extends a desk session with ordinary steps, unless it is long or the day is special.
    fn extend_session(&mut self, day: Date, sessions: &mut [DemoSession]) -> bool {
        if sessions
            .iter()
            .flat_map(|session| &session.steps)
            .any(|step| matches!(step, SessionStep::Marks(_)))
        {
            return false;
        }
        for session in sessions.iter_mut() {
            let short = count_messages(std::slice::from_ref(session)) <= SHORT_SESSION_MESSAGES;
            if short
                && DESK_TOPICS.contains(&session.conversation.as_str())
                && let Some(at) =
                    self.least_used(day, |conversation| conversation == session.conversation)
            {
                session.steps.extend(self.hours(at).1);
                return true;
            }
        }
        false
    }

    /// Adds a session about a topic the day has not had yet.
    fn begin_session(
        &mut self,
        day: Date,
        topics: &[&str],
        sessions: &mut Vec<DemoSession>,
    ) -> bool {
        let fresh = |name: &str| {
            topics.contains(&name) && sessions.iter().all(|session| session.conversation != name)
        };
        let Some(at) =
            self.least_used(day, fresh).filter(|_| sessions.len() < MAX_SESSIONS_PER_DAY)
        else {
            return false;
        };
        let conversation = self.story.ordinary[at].conversation.clone();
        let (begins, steps) = self.hours(at);
        sessions.push(DemoSession { conversation, begins, steps });
        true
    }

    /// The template that was used least so far.
    fn least_used(&self, day: Date, wanted: impl Fn(&str) -> bool) -> Option<usize> {
        let week = week_of(day);
        let fits = |hours: &SessionTemplate| {
            (hours.weeks.0..=hours.weeks.1).contains(&week) && wanted(&hours.conversation)
        };
        let known = 0..self.story.ordinary.len();
        known
            .filter(|&at| fits(&self.story.ordinary[at]))
            .min_by_key(|&at| (self.used.get(&at).copied().unwrap_or(0), pseudo_random(day, at)))
    }

    fn hours(&mut self, at: usize) -> (Time, Vec<SessionStep>) {
        let used = self.used.entry(at).or_default();
        let hours = &self.story.ordinary[at];
        let begins = hours.times[*used % hours.times.len()];
        *used += 1;
        let steps = hours.steps.clone();
        (begins, self.fill(&steps))
    }

    fn fill(&mut self, steps: &[SessionStep]) -> Vec<SessionStep> {
        let mut chosen: HashMap<String, String> = HashMap::new();
        let mut told = Vec::new();
        for step in steps {
            let SessionStep::Says(role, words) = step else { continue };
            let mut text = words.clone();
            while let Some(gap) = first_gap(&text) {
                let word =
                    chosen.entry(gap.clone()).or_insert_with_key(|gap| self.next_word(gap)).clone();
                text = text.replace(&gap, &word);
            }
            told.push(SessionStep::Says(*role, text));
        }
        told
    }

    fn next_word(&mut self, gap: &str) -> String {
        let turn = self.filled.entry(gap.to_owned()).or_default();
        *turn += 1;
        let turn = *turn;
        match (gap, self.story.words.get(gap)) {
            (_, Some(words)) => words[turn % words.len()].clone(),
            ("{number}", _) => (12 + turn * 37 % 85).to_string(),
            ("{tenth}", _) => format!("{}.{}", 3 + turn % 5, turn * 7 % 10),
            _ => (3 + turn * 5 % 11).to_string(),
        }
    }
}

fn first_gap(text: &str) -> Option<String> {
    let begin = text.find('{')?;
    let end = begin + text[begin..].find('}')?;
    Some(text[begin..=end].to_owned())
}

/// The minimum of messages on a day, and its topics: weeks differ, and Sundays are quiet.
fn target_messages(day: Date) -> (usize, &'static [&'static str]) {
    let week = usize::try_from(week_of(day) - 1).unwrap_or(0);
    match day.weekday() {
        Weekday::Sunday if pseudo_random(day, 0).is_multiple_of(3) => (1, &["family", "health"]),
        Weekday::Sunday => (0, &[]),
        _ if day.weekday() == Weekday::Saturday || HOLIDAYS.contains(&day) => {
            (1 + pseudo_random(day, 0) % 4, &["garden", "family", "health"])
        }
        _ => (
            MESSAGES_PER_WEEKDAY[week % MESSAGES_PER_WEEKDAY.len()] + pseudo_random(day, 0) % 4,
            &["shop", "client-x", "talk", "garden", "family", "work", "health"],
        ),
    }
}

/// Which of the weeks it is, from 1 on.
fn week_of(day: Date) -> i64 {
    days_between(DAYS.first, day) / 7 + 1
}

/// A deterministic pseudo-random number.
fn pseudo_random(day: Date, salt: usize) -> usize {
    let seed = day.day_of_year().unsigned_abs() as usize * 31 + salt;
    (seed.wrapping_mul(0x9E37_79B9) >> 7) % 997
}

/// The minutes before the next message of a session.
pub fn pause_minutes(day: Date, at: usize) -> i64 {
    1 + (pseudo_random(day, at) % 5) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_story_is_understood_and_every_key_is_known() {
        let story = DemoStory::read(STORY_TEXT);
        assert!(story.complaints.is_empty(), "{:#?}", story.complaints);
        assert!(story.told.keys().all(|day| DAYS.contains(*day)));
        let mut open = vec![OPEN_COMMITMENT.0.to_owned()];
        for (day, sessions) in &story.told {
            for step in sessions.iter().flat_map(|session| &session.steps) {
                match step {
                    SessionStep::Learns(DemoEvent { key: Some(key), .. }) => open.push(key.clone()),
                    SessionStep::Closes { key, .. } => {
                        let at = open.iter().position(|known| known == key);
                        open.swap_remove(at.unwrap_or_else(|| {
                            panic!("{day}: nothing is open by the name of {key}")
                        }));
                    }
                    _ => {}
                }
            }
        }
        assert!((2..8).contains(&open.len()), "{open:?}");
    }

    #[test]
    fn the_days_are_full_but_not_too_full_and_sundays_are_quiet() {
        let days = days();
        assert_eq!(days.len(), 90);
        for (day, sessions) in &days {
            let (said, many) = (count_messages(sessions), sessions.len());
            match day.weekday() {
                Weekday::Sunday => assert!(said <= 4, "{day}: {said}"),
                _ if HOLIDAYS.contains(day) || day.weekday() == Weekday::Saturday => {
                    assert!(
                        (1..=9).contains(&said) && many <= MAX_SESSIONS_PER_DAY,
                        "{day}: {said}"
                    )
                }
                _ => assert!(
                    (2..=14).contains(&said) && (1..=MAX_SESSIONS_PER_DAY).contains(&many),
                    "{day}: {said} in {many}"
                ),
            }
            for step in sessions.iter().flat_map(|session| &session.steps) {
                let SessionStep::Says(_, text) = step else { continue };
                assert!(!text.contains(['{', '}']), "{day}: {text}");
            }
        }
    }

    #[test]
    fn no_two_weeks_say_the_same() {
        let mut seen = HashMap::new();
        for (day, sessions) in days() {
            for step in sessions.into_iter().flat_map(|session| session.steps) {
                if let SessionStep::Says(Role::User, text) = step {
                    seen.entry(text).or_insert_with(Vec::new).push(day);
                }
            }
        }
        let often: Vec<_> = seen.iter().filter(|(_, days)| days.len() > 6).collect();
        assert!(often.is_empty(), "{often:#?}");
    }
}
