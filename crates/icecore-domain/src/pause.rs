//! Pauses: periods in which nothing of an assistant's sessions is captured, at the user's request.
//!
//! They are lines of `memory/pauses.jsonl`, an append-only file: what was said during a pause is
//! not captured however late its transcript is read.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::calendar::Moment;
use crate::record::parent_session;

/// The sessions that a pause applies to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PauseScope {
    /// Every session.
    Everything,
    /// One session.
    Session(String),
    /// Every session in one project.
    Project(String),
}

impl std::fmt::Display for PauseScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Everything => f.write_str("everything"),
            Self::Session(id) => write!(f, "session {id}"),
            Self::Project(name) => write!(f, "project {name}"),
        }
    }
}

/// A pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    pub scope: PauseScope,
    /// The start.
    pub from: Moment,
    /// The end; `None` while it is open-ended.
    pub until: Option<Moment>,
}

impl Pause {
    /// Whether it is active at a moment.
    pub fn is_active_at(&self, at: Timestamp) -> bool {
        self.from.timestamp() <= at && self.until.is_none_or(|until| at < until.timestamp())
    }
}

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct PauseLine {
    ts: String,
    act: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

impl PauseLine {
    fn format_line(act: &str, now: Moment, reach: &PauseScope, until: Option<Moment>) -> String {
        let (session, project) = match reach {
            PauseScope::Everything => (None, None),
            PauseScope::Session(id) => (Some(id.clone()), None),
            PauseScope::Project(name) => (None, Some(name.clone())),
        };
        let line = Self {
            ts: now.to_string(),
            act: act.into(),
            session,
            project,
            until: until.map(|until| until.to_string()),
        };
        serde_json::to_string(&line).unwrap_or_default()
    }

    fn reach(&self) -> PauseScope {
        match (&self.session, &self.project) {
            (Some(id), _) => PauseScope::Session(id.clone()),
            (None, Some(name)) => PauseScope::Project(name.clone()),
            (None, None) => PauseScope::Everything,
        }
    }
}

/// The line that starts a pause.
pub fn pause_line(now: Moment, reach: &PauseScope, until: Option<Moment>) -> String {
    PauseLine::format_line("pause", now, reach, until)
}

/// The line that ends the pauses of that scope; the scope "everything" ends all of them.
pub fn resume_line(now: Moment, reach: &PauseScope) -> String {
    PauseLine::format_line("resume", now, reach, None)
}

/// All pauses, past and present.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pauses(Vec<Pause>);

impl Pauses {
    /// Parses the file. Invalid lines are skipped: they pause nothing.
    pub fn parse(text: &[u8]) -> Self {
        let mut pauses: Vec<Pause> = Vec::new();
        for line in text
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<PauseLine>(line).ok())
        {
            let Some(ts) = Moment::parse(&line.ts).map(|read| read.moment) else { continue };
            let reach = line.reach();
            match line.act.as_str() {
                "pause" => {
                    let until =
                        line.until.as_deref().and_then(Moment::parse).map(|read| read.moment);
                    pauses.push(Pause { scope: reach, from: ts, until });
                }
                "resume" => {
                    for pause in pauses
                        .iter_mut()
                        .filter(|pause| reach == PauseScope::Everything || pause.scope == reach)
                    {
                        if pause.is_active_at(ts.timestamp()) {
                            pause.until = Some(ts);
                        }
                    }
                }
                _ => {}
            }
        }
        Self(pauses)
    }

    /// Whether there never was one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The pause that applies to that session and project at that moment.
    pub fn covering(
        &self,
        session: Option<&str>,
        project: Option<&str>,
        at: Timestamp,
    ) -> Option<&Pause> {
        self.0.iter().find(|pause| {
            let meant = match &pause.scope {
                PauseScope::Everything => true,
                // A subagent's session is part of its parent.
                PauseScope::Session(id) => session
                    .is_some_and(|session| session == id || parent_session(session) == Some(id)),
                PauseScope::Project(name) => project == Some(name),
            };
            meant && pause.is_active_at(at)
        })
    }

    /// The pauses active at a moment, oldest first.
    pub fn active_at(&self, now: Timestamp) -> impl Iterator<Item = &Pause> {
        self.0.iter().filter(move |pause| pause.is_active_at(now))
    }
}

/// Parses a duration to seconds: `90s`, `30m`, `1h`, `2d`.
pub fn parse_duration_secs(text: &str) -> Result<i64, String> {
    const MAX_SECS: i64 = 366 * 24 * 3_600;
    let text = text.trim();
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit.trim() {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 24 * 3_600,
        _ => return Err("write a duration such as 30m, 1h or 2d".into()),
    };
    let number: i64 = number.parse().map_err(|_| "write a duration such as 30m, 1h or 2d")?;
    number
        .checked_mul(factor)
        .filter(|seconds| (1..=MAX_SECS).contains(seconds))
        .ok_or_else(|| "the duration must be between a second and a year".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(clock: &str) -> Moment {
        Moment::parse(&format!("2026-02-13T{clock}:00+01:00")).unwrap().moment
    }

    fn check(lines: &[String], session: &str, project: Option<&str>, clock: &str, paused: bool) {
        let pauses = Pauses::parse(lines.join("\n").as_bytes());
        assert_eq!(
            pauses.covering(Some(session), project, at(clock).timestamp()).is_some(),
            paused,
            "{lines:?} {session} {project:?} {clock}"
        );
    }

    #[test]
    fn a_pause_holds_for_what_it_is_about_and_as_long_as_it_says() {
        let session = PauseScope::Session("s1".into());
        let lines = [
            pause_line(at("09:00"), &session, None),
            "no line".into(),
            resume_line(at("10:00"), &session),
        ];
        check(&lines, "s1", None, "08:59", false);
        check(&lines, "s1", None, "09:00", true);
        check(&lines, "s1", Some("app"), "09:59", true);
        check(&lines, "s1", None, "10:00", false);
        check(&lines, "s2", None, "09:30", false);
        check(&lines, "s1/agent-x9", None, "09:30", true);
        check(&lines, "s11/agent-x9", None, "09:30", false);
        let helper = [pause_line(
            at("09:00"),
            &PauseScope::Session("s1/agent-x9".into()),
            Some(at("10:00")),
        )];
        check(&helper, "s1/agent-x9", None, "09:30", true);
        check(&helper, "s1", None, "09:30", false);
        let hour = [pause_line(at("09:00"), &PauseScope::Everything, Some(at("10:00")))];
        check(&hour, "s2", None, "09:59", true);
        check(&hour, "s2", None, "10:00", false);
        let project = [
            pause_line(at("09:00"), &PauseScope::Project("app".into()), None),
            resume_line(at("11:00"), &PauseScope::Everything),
        ];
        check(&project, "s2", Some("app"), "10:59", true);
        check(&project, "s2", Some("zeus"), "10:59", false);
        check(&project, "s2", None, "10:59", false);
        check(&project, "s2", Some("app"), "11:00", false);
        // A later pause is independent: ending the first does not end it in advance.
        let twice = [
            pause_line(at("09:00"), &session, None),
            resume_line(at("10:00"), &session),
            pause_line(at("11:00"), &session, None),
        ];
        check(&twice, "s1", None, "10:30", false);
        check(&twice, "s1", None, "11:30", true);
        assert_eq!(
            Pauses::parse(twice.join("\n").as_bytes()).active_at(at("12:00").timestamp()).count(),
            1
        );
    }
}
