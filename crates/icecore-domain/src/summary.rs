//! Summaries of periods: sessions, days, weeks, months and years.
//!
//! Every accepted version is an immutable line; the Markdown file is a view of the newest version.
//! A summary stores a hash of its sources. While the sources have that hash, it is up to date.

use std::fmt;
use std::str::FromStr;

use icecore_text::normalize::collapse_spaces;
use jiff::civil::{Date, date};
use serde::{Deserialize, Serialize};

use crate::budget::Omission;
use crate::calendar::{Days, Moment, Month, Week};
use crate::hash::Hash;
use crate::layout::DocPath;
use crate::record::SessionKey;
use crate::string_enum::string_enum;

string_enum! {
    /// The length of the period that a summary covers.
    Tier: "a tier" {
        /// One session.
        Session = "session",
        /// One local day.
        Day = "day",
        /// One ISO week.
        Week = "week",
        /// The weeks whose Thursdays lie in one month.
        Month = "month",
        /// The months of one year.
        Year = "year",
    }
}

string_enum! {
    /// How much detail the summary of a day deserves.
    Importance: "an importance" {
        /// One line is enough.
        Dull = "dull",
        /// The default.
        Ordinary = "ordinary",
        /// Keeps more detail.
        Important = "important",
    }
}

/// The period that a summary covers, which is also its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    /// The `number`-th summarized session of that day.
    Session {
        /// The local day.
        day: Date,
        /// The number within the day, from 1.
        number: u32,
    },
    /// A local day.
    Day(Date),
    /// An ISO week.
    Week(Week),
    /// A month, by its weeks' Thursdays.
    Month(Month),
    /// A year, by its weeks' Thursdays.
    Year(i16),
}

/// The error for a text that is not a period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a period; write a session as 2026-02-13_session_01, a day as 2026-02-13, a week as 2026-W07, a month as 2026-02 or a year as 2026"
)]
pub struct ParsePeriodError(pub String);

impl Period {
    /// The tier of this period.
    pub fn tier(self) -> Tier {
        match self {
            Self::Session { .. } => Tier::Session,
            Self::Day(_) => Tier::Day,
            Self::Week(_) => Tier::Week,
            Self::Month(_) => Tier::Month,
            Self::Year(_) => Tier::Year,
        }
    }

    /// The local days it covers. A month and a year are made of whole weeks.
    pub fn days(self) -> Days {
        match self {
            Self::Session { day, .. } | Self::Day(day) => Days { first: day, last: day },
            Self::Week(week) => Days { first: week.monday(), last: week.sunday() },
            Self::Month(month) => month.week_span(),
            Self::Year(year) => Days {
                first: month_of(year, 1).week_span().first,
                last: month_of(year, 12).week_span().last,
            },
        }
    }

    /// The period of `tier` that covers `day`; none for sessions.
    pub fn covering(tier: Tier, day: Date) -> Option<Self> {
        let week = Week::containing(day);
        match tier {
            Tier::Session => None,
            Tier::Day => Some(Self::Day(day)),
            Tier::Week => Some(Self::Week(week)),
            Tier::Month => Some(Self::Month(week.month())),
            Tier::Year => Some(Self::Year(week.month().first().year())),
        }
    }

    /// The path of its Markdown file before archiving.
    pub fn path(self) -> DocPath {
        self.path_in(
            "primers/",
            match self.tier() {
                Tier::Session | Tier::Day => "daily/",
                Tier::Week => "weekly/",
                Tier::Month => "monthly/",
                Tier::Year => "yearly/",
            },
        )
    }

    /// The path of its Markdown file after archiving: in the folder of its quarter (P6).
    pub fn archive_path(self) -> DocPath {
        // The Thursday of a week decides its quarter, as it decides its month.
        let day = match self {
            Self::Week(week) => week.thursday(),
            other => other.days().first,
        };
        let quarter = (day.month() - 1) / 3 + 1;
        self.path_in("primers/archive/", &format!("{:04}-Q{quarter}/", day.year()))
    }

    fn path_in(self, folder: &str, inner: &str) -> DocPath {
        // Digits, dashes and fixed words always form a valid path.
        let path = format!("{folder}{inner}{self}.md");
        path.parse().unwrap_or_else(|_| DocPath::log(self.days().first))
    }

    /// A title for display.
    pub fn title(self) -> String {
        match self {
            Self::Session { day, number } => format!("Session {number} of {day}"),
            Self::Day(day) => format!("{} {day}", crate::calendar::weekday_name(day)),
            Self::Week(week) => format!("Week {week}"),
            Self::Month(month) => format!("Month {month}"),
            Self::Year(year) => format!("Year {year:04}"),
        }
    }
}

fn month_of(year: i16, number: i8) -> Month {
    Month::containing(date(year.clamp(1, 9998), number, 1))
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { day, number } => write!(f, "{day}_session_{number:02}"),
            Self::Day(day) => write!(f, "{day}"),
            Self::Week(week) => write!(f, "{week}"),
            Self::Month(month) => write!(f, "{month}"),
            Self::Year(year) => write!(f, "{year:04}"),
        }
    }
}

impl FromStr for Period {
    type Err = ParsePeriodError;

    fn from_str(text: &str) -> Result<Self, ParsePeriodError> {
        let wrong = || ParsePeriodError(crate::sanitize::one_line(text).chars().take(60).collect());
        let text = text.trim();
        if let Some((day, number)) = text.split_once("_session_") {
            let digits =
                (2..=6).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
            let number = if digits { number.parse().unwrap_or(0) } else { 0 };
            let day = read_date(day).filter(|_| number > 0).ok_or_else(wrong)?;
            return Ok(Self::Session { day, number });
        }
        if let Some(day) = read_date(text) {
            return Ok(Self::Day(day));
        }
        if text.len() == 4 && text.bytes().all(|b| b.is_ascii_digit()) {
            return text
                .parse()
                .ok()
                .filter(|year| (1..=9998).contains(year))
                .map(Self::Year)
                .ok_or_else(wrong);
        }
        text.parse().map(Self::Week).or_else(|_| text.parse().map(Self::Month)).map_err(|_| wrong())
    }
}

fn read_date(text: &str) -> Option<Date> {
    (text.len() == 10).then(|| text.parse().ok()).flatten()
}

impl Serialize for Period {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who wrote a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummaryAuthor {
    /// The extractive summarizer.
    Extract,
    /// A model, by its name.
    Model(String),
    /// A person, in an editor.
    Hand,
    /// A file that icecore did not write. It is overwritten only on request.
    File,
}

impl fmt::Display for SummaryAuthor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Extract => f.write_str("extract"),
            Self::Model(name) => write!(f, "model {name}"),
            Self::Hand => f.write_str("hand"),
            Self::File => f.write_str("file"),
        }
    }
}

/// What writing a summary cost (P10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SummaryCost {
    /// Number of model calls.
    pub attempts: u32,
    /// Tokens sent to the model.
    pub tokens_in: u64,
    /// Tokens received from the model.
    pub tokens_out: u64,
    /// Bytes of the sources.
    pub bytes_in: u64,
    pub millis: u64,
}

/// An earlier summary of the same tier with similar content (Y11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SimilarSummary {
    pub period: Period,
    /// The words that both share, most significant first.
    pub shared: Vec<String>,
}

impl fmt::Display for SimilarSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A foreign line may hold any text; the output stays short and on one line.
        let shared = crate::sanitize::one_line(&self.shared.join(", "));
        let shared = shared.get(..shared.floor_char_boundary(MAX_SHARED_BYTES)).unwrap_or_default();
        write!(f, "{}", self.period)?;
        if shared.is_empty() { Ok(()) } else { write!(f, " ({shared})") }
    }
}

/// The longest list of shared words that is shown, in bytes.
const MAX_SHARED_BYTES: usize = 76;

/// One version of a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    pub period: Period,
    /// The version, from 1.
    pub version: u32,
    /// The session's records, for a session summary.
    pub session: Option<SessionKey>,
    /// The first moment covered.
    pub start: Moment,
    /// The last moment covered.
    pub end: Moment,
    /// The period in a few sentences.
    pub headline: String,
    /// The details, most important lines first.
    pub body: String,
    /// How many records it covers.
    pub messages: u64,
    /// How many of them are saved states.
    pub states: u64,
    pub recorded: Moment,
    /// A hash of the sources.
    pub source: Hash,
    /// A hash of the day's log, for a day that had one.
    pub log: Option<Hash>,
    /// The summaries that were its sources.
    pub sources: Vec<Period>,
    pub maker: SummaryAuthor,
    /// Replaced as soon as a model is available.
    pub provisional: bool,
    /// The importance of its day.
    pub importance: Importance,
    /// What was omitted.
    pub left_out: Vec<Omission>,
    pub cost: SummaryCost,
    /// A similar earlier summary. Not part of the content: no budget or hash includes it.
    pub similar: Option<SimilarSummary>,
}

/// A summary without its text, for planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryHead {
    pub period: Period,
    pub version: u32,
    /// The session's records, for a session summary.
    pub session: Option<SessionKey>,
    pub recorded: Moment,
    /// A hash of the sources.
    pub source: Hash,
    pub log: Option<Hash>,
    /// A hash of headline and body.
    pub content: Hash,
    /// How many records it covers.
    pub messages: u64,
    /// How many of them are saved states.
    pub states: u64,
    /// Written in a person's editor.
    pub by_hand: bool,
    /// Replaced as soon as a model is available.
    pub provisional: bool,
    /// The importance of its day.
    pub importance: Importance,
    pub headline_bytes: u64,
    pub body_bytes: u64,
}

impl SummaryHead {
    /// Whether its content was forgotten.
    pub fn is_forgotten(&self) -> bool {
        self.content == hash_content(crate::forget::FORGOTTEN_MARK, "")
    }
}

#[derive(Serialize, Deserialize)]
struct SummaryLine {
    id: String,
    tier: String,
    period: String,
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conversation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    start: String,
    end: String,
    headline: String,
    body: String,
    messages: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    states: u64,
    created_at: String,
    source_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<String>,
    made_by: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    provisional: bool,
    #[serde(default)]
    importance: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<(String, String)>,
    #[serde(default)]
    cost: SummaryCost,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    similar: Option<SimilarLine>,
}

#[derive(Serialize, Deserialize)]
struct SimilarLine {
    period: String,
    #[serde(default)]
    shared: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Summary {
    /// A hash of headline and body.
    pub fn content_hash(&self) -> Hash {
        hash_content(&self.headline, &self.body)
    }

    /// This summary without its text.
    pub fn head(&self) -> SummaryHead {
        SummaryHead {
            period: self.period,
            version: self.version,
            session: self.session.clone(),
            recorded: self.recorded,
            source: self.source,
            log: self.log,
            content: self.content_hash(),
            messages: self.messages,
            states: self.states,
            by_hand: matches!(self.maker, SummaryAuthor::Hand | SummaryAuthor::File),
            provisional: self.provisional,
            importance: self.importance,
            headline_bytes: self.headline.len() as u64,
            body_bytes: self.body.len() as u64,
        }
    }

    /// The stored line, with the line break.
    pub fn to_line(&self) -> String {
        let line = SummaryLine {
            id: format!("{}#{}", self.period, self.version),
            tier: self.period.tier().word().into(),
            period: self.period.to_string(),
            version: self.version,
            conversation: self.session.as_ref().map(|key| key.conversation.clone()),
            session: self.session.as_ref().and_then(|key| key.session.clone()),
            start: self.start.to_string(),
            end: self.end.to_string(),
            headline: self.headline.clone(),
            body: self.body.clone(),
            messages: self.messages,
            states: self.states,
            created_at: self.recorded.to_string(),
            source_hash: self.source.to_string(),
            log_hash: self.log.map(|hash| hash.to_string()),
            sources: self.sources.iter().map(ToString::to_string).collect(),
            made_by: self.maker.to_string(),
            provisional: self.provisional,
            importance: (self.importance != Importance::Ordinary)
                .then(|| self.importance.word().into()),
            left_out: self
                .left_out
                .iter()
                .map(|left| (left.what.clone(), left.why.clone()))
                .collect(),
            cost: self.cost,
            similar: self.similar.as_ref().map(|similar| SimilarLine {
                period: similar.period.to_string(),
                shared: similar.shared.clone(),
            }),
        };
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }

    /// Parses a stored line. The error completes the sentence "this line …".
    pub fn parse_line(line: &[u8]) -> Result<Self, String> {
        let line: SummaryLine = serde_json::from_slice(line).map_err(|error| {
            format!(
                "is not a summary: {}",
                error.to_string().split(" at line ").next().unwrap_or_default()
            )
        })?;
        let moment = |name: &str, text: &str| {
            Moment::parse(text)
                .map(|read| read.moment)
                .ok_or_else(|| format!("has a `{name}` that is not a time"))
        };
        let period: Period =
            line.period.parse().map_err(|error: ParsePeriodError| error.to_string())?;
        let session = match (period, line.conversation) {
            (Period::Session { day, .. }, Some(conversation)) => {
                Some(SessionKey { day, conversation, session: line.session })
            }
            // A foreign primer names no conversation.
            (Period::Session { .. }, None) if line.made_by != "file" => {
                return Err("has no `conversation`".into());
            }
            _ => None,
        };
        Ok(Self {
            period,
            version: line.version,
            session,
            start: moment("start", &line.start)?,
            end: moment("end", &line.end)?,
            headline: line.headline,
            body: line.body,
            messages: line.messages,
            states: line.states,
            recorded: moment("created_at", &line.created_at)?,
            source: line.source_hash.parse().map_err(|()| "has an invalid `source_hash`")?,
            log: line.log_hash.and_then(|hash| hash.parse().ok()),
            sources: line.sources.iter().filter_map(|period| period.parse().ok()).collect(),
            maker: match line.made_by.as_str() {
                "extract" => SummaryAuthor::Extract,
                "hand" => SummaryAuthor::Hand,
                "file" => SummaryAuthor::File,
                other => {
                    SummaryAuthor::Model(other.strip_prefix("model ").unwrap_or(other).to_owned())
                }
            },
            provisional: line.provisional,
            importance: line
                .importance
                .and_then(|word| word.parse().ok())
                .unwrap_or(Importance::Ordinary),
            left_out: line.left_out.into_iter().map(|(what, why)| Omission { what, why }).collect(),
            cost: line.cost,
            similar: line.similar.and_then(|similar| {
                Some(SimilarSummary {
                    period: similar.period.parse().ok()?,
                    shared: similar.shared,
                })
            }),
        })
    }

    /// The Markdown file of this summary.
    pub fn to_markdown(&self) -> String {
        use fmt::Write;
        let mut text = String::from("---\n");
        let days = self.period.days();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "period: {}", self.period);
        let _ = writeln!(text, "tier: {}", self.period.tier());
        if days.first == days.last {
            let _ = writeln!(text, "day: {}", days.first);
        } else {
            let _ = writeln!(text, "span: {} to {}", days.first, days.last);
        }
        if let Some(key) = &self.session {
            let _ = writeln!(text, "conversation: {}", yaml_quote(&key.conversation));
            if let Some(session) = &key.session {
                let _ = writeln!(text, "session: {}", yaml_quote(session));
            }
        }
        let _ = writeln!(text, "messages: {}", self.messages);
        if !self.sources.is_empty() {
            let _ = writeln!(text, "sources: {}", self.sources.len());
        }
        if self.importance != Importance::Ordinary {
            let _ = writeln!(text, "importance: {}", self.importance);
        }
        let _ = writeln!(text, "made_by: {}", yaml_quote(&self.maker.to_string()));
        let _ = writeln!(text, "created_at: {}", self.recorded);
        let _ = writeln!(text, "version: {}", self.version);
        let _ = writeln!(text, "content: {}", self.content_hash().short_hex());
        if self.provisional {
            text.push_str("provisional: true\n");
        }
        if let Some(similar) = &self.similar {
            let _ = writeln!(text, "similar: {}", similar.period);
        }
        let _ = write!(text, "---\n# {}\n\n{}\n", self.period.title(), self.headline);
        if !self.body.is_empty() {
            let _ = write!(text, "\n{}\n", self.body.trim_end());
        }
        if let Some(similar) = &self.similar {
            let _ = write!(text, "\n{SIMILAR_PREFIX}{similar}\n");
        }
        text
    }
}

/// The start of the line that refers to a similar summary.
const SIMILAR_PREFIX: &str = "Similar: ";

fn hash_content(headline: &str, body: &str) -> Hash {
    Hash::of(format!("{headline}\0{body}").as_bytes())
}

/// The state of a summary's Markdown file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummaryFileState {
    /// Unchanged since icecore wrote it, in this or an older version.
    Ours,
    /// Edited by a person.
    Edited { headline: String, body: String },
    /// A file that icecore did not write.
    Foreign {
        /// The first paragraph, else the first line.
        headline: String,
        body: String,
    },
    /// Unreadable: empty, or truncated within our header.
    Broken,
}

/// Determines the state of a file. Our header carries a hash of the file's own text.
pub fn classify_summary_file(text: &str) -> SummaryFileState {
    /// The start of every file that icecore writes; a truncated file may hold only a part of it.
    const HEADER_START: &str = "---\nperiod: ";
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let is_ours = text.starts_with(HEADER_START) || HEADER_START.starts_with(&text);
    let read = parse_summary_file(&text);
    if is_ours {
        let header = text.split("\n---").next().unwrap_or_default();
        let hash = header.lines().find_map(|line| line.trim().strip_prefix("content: "));
        return match read {
            Some((headline, body))
                if hash == Some(hash_content(&headline, &body).short_hex().as_str()) =>
            {
                SummaryFileState::Ours
            }
            Some((headline, body)) => SummaryFileState::Edited { headline, body },
            None => SummaryFileState::Broken,
        };
    }
    // Without a first paragraph, use the first line.
    let first_line = || match text.trim().split_once('\n').unwrap_or((text.trim(), "")) {
        ("", _) => None,
        (first, rest) => {
            Some((first.trim_start_matches('#').trim().to_owned(), rest.trim().to_owned()))
        }
    };
    match read.or_else(first_line) {
        Some((headline, body)) => SummaryFileState::Foreign { headline, body },
        None => SummaryFileState::Broken,
    }
}

/// Quotes foreign text as one YAML value, shortened for a header.
fn yaml_quote(text: &str) -> String {
    let short: String = crate::sanitize::escape_for_terminal(text).chars().take(80).collect();
    serde_json::to_string(&short).unwrap_or_default()
}

/// The upper bound of bytes in a summary's file beside headline and body.
pub fn max_header_bytes(session: Option<&SessionKey>) -> usize {
    // Dates, counts, a title, and the longest author name.
    const FIXED_HEADER_BYTES: usize = 560;
    let names = session.map_or(0, |key| {
        yaml_quote(&key.conversation).len()
            + key.session.as_deref().map_or(0, |name| yaml_quote(name).len())
            + 32
    });
    FIXED_HEADER_BYTES + names
}

/// Headline and body of a file as edited.
pub fn parse_summary_file(text: &str) -> Option<(String, String)> {
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let (header, rest) = match text.strip_prefix("---\n") {
        Some(inner) => inner.split_once("\n---\n")?,
        None => ("", text.as_str()),
    };
    let rest = strip_similar_reference(header, rest);
    let rest = rest.trim_start();
    let rest = match rest.split_once('\n') {
        Some((title, rest)) if title.starts_with("# ") => rest,
        None if rest.starts_with("# ") => "",
        _ => rest,
    };
    let rest = rest.trim();
    let (headline, body) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let headline = collapse_spaces(headline);
    (!headline.is_empty()).then(|| (headline, body.trim().to_owned()))
}

/// The text without the similarity reference that icecore appended, if the header says so.
fn strip_similar_reference(header: &str, rest: &str) -> String {
    let referred = header.lines().find_map(|line| line.trim().strip_prefix("similar: "));
    let ours = referred.map(|period| format!("{SIMILAR_PREFIX}{}", period.trim()));
    let is_ours = |line: &str| {
        ours.as_ref()
            .is_some_and(|ours| line.trim_end() == ours || line.starts_with(&format!("{ours} (")))
    };
    // Text behind the reference stays, and so does an earlier line that only looks like it.
    let last = rest.lines().rev().position(is_ours);
    let skip = last.map(|back| rest.lines().count() - 1 - back);
    let kept: Vec<&str> = rest
        .lines()
        .enumerate()
        .filter(|(at, _)| Some(*at) != skip)
        .map(|(_, line)| line)
        .collect();
    kept.join("\n")
}

/// Selects summaries. An empty condition matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SummaryQuery {
    /// Only these tiers; empty for all.
    pub tiers: Vec<Tier>,
    /// Only periods whose first day lies in this span.
    pub days: Option<Days>,
    /// Only versions recorded until this moment.
    pub until: Option<jiff::Timestamp>,
    /// At most this many, of the latest periods.
    pub latest: Option<usize>,
}

impl SummaryQuery {
    /// Summaries of one tier.
    pub fn for_tier(tier: Tier) -> Self {
        Self { tiers: vec![tier], ..Self::default() }
    }

    /// Summaries of one tier within a span.
    pub fn for_tier_within(tier: Tier, days: Days) -> Self {
        Self { tiers: vec![tier], days: Some(days), ..Self::default() }
    }

    /// The same query as of a moment.
    pub fn as_of(self, until: Option<jiff::Timestamp>) -> Self {
        Self { until, ..self }
    }

    /// Whether a version with this period and recording time matches; the limit is not considered.
    pub fn matches(&self, period: Period, recorded: Moment) -> bool {
        (self.tiers.is_empty() || self.tiers.contains(&period.tier()))
            && self.days.is_none_or(|days| days.contains(period.days().first))
            && self.until.is_none_or(|until| recorded.timestamp() <= until)
    }

    /// Selects the newest matching version of each period, sorted by period. `all` must be in the
    /// order of writing.
    pub fn select_newest<T>(
        &self,
        all: impl IntoIterator<Item = T>,
        of: impl Fn(&T) -> (Period, Moment),
    ) -> Vec<T> {
        let mut newest = std::collections::BTreeMap::new();
        for one in all {
            let (period, recorded) = of(&one);
            if self.matches(period, recorded) {
                newest.insert((period.days().first, period), one);
            }
        }
        let skip = self.latest.map_or(0, |most| newest.len().saturating_sub(most));
        newest.into_values().skip(skip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn summary(headline: &str, body: &str) -> Summary {
        let at = Moment::parse("2026-02-15T22:15:00+01:00").unwrap().moment;
        Summary {
            period: "2026-W07".parse().unwrap(),
            version: 2,
            session: None,
            start: at,
            end: at,
            headline: headline.into(),
            body: body.into(),
            messages: 12,
            states: 0,
            recorded: at,
            source: Hash::of(b"x"),
            log: None,
            sources: vec!["2026-02-13_session_01".parse().unwrap()],
            maker: SummaryAuthor::Model("openai:m".into()),
            provisional: false,
            importance: Importance::Important,
            left_out: vec![Omission::new("2 lines", "room")],
            cost: SummaryCost {
                attempts: 1,
                tokens_in: 100,
                tokens_out: 20,
                bytes_in: 400,
                millis: 7,
            },
            similar: None,
        }
    }

    // P8
    #[test]
    fn periods_are_named_in_iso_dates_and_two_digit_numbers() {
        for (name, path, archived) in [
            (
                "2026-02-13_session_01",
                "primers/daily/2026-02-13_session_01.md",
                "primers/archive/2026-Q1/2026-02-13_session_01.md",
            ),
            (
                "2026-02-13_session_123",
                "primers/daily/2026-02-13_session_123.md",
                "primers/archive/2026-Q1/2026-02-13_session_123.md",
            ),
            ("2026-02-13", "primers/daily/2026-02-13.md", "primers/archive/2026-Q1/2026-02-13.md"),
            ("2026-W53", "primers/weekly/2026-W53.md", "primers/archive/2026-Q4/2026-W53.md"),
            ("2026-12", "primers/monthly/2026-12.md", "primers/archive/2026-Q4/2026-12.md"),
            ("2026", "primers/yearly/2026.md", "primers/archive/2025-Q4/2026.md"),
        ] {
            let period: Period = name.parse().unwrap();
            assert_eq!((period.to_string().as_str(), period.path().as_str()), (name, path));
            if name != "2026" && name != "2026-12" {
                assert_eq!(period.archive_path().as_str(), archived);
            }
        }
        for bad in [
            "",
            "2026-02-13_session_0",
            "2026-02-13_session_00",
            "2026-02-30",
            "2027-W53",
            "2026-13",
            "26",
            "../x",
            "2026-2-3",
        ] {
            assert!(bad.parse::<Period>().is_err(), "{bad}");
        }
    }

    // P2 P3
    #[test]
    fn a_week_belongs_to_the_month_and_year_of_its_thursday() {
        let name = |tier, day: Date| Period::covering(tier, day).unwrap().to_string();
        assert_eq!(name(Tier::Week, date(2027, 1, 2)), "2026-W53");
        assert_eq!(name(Tier::Month, date(2027, 1, 2)), "2026-12");
        assert_eq!(name(Tier::Year, date(2027, 1, 2)), "2026");
        assert_eq!(name(Tier::Month, date(2026, 3, 1)), "2026-02");
        let year: Period = "2026".parse().unwrap();
        assert_eq!(year.days(), Days { first: date(2025, 12, 29), last: date(2027, 1, 3) });
    }

    // Y7
    #[test]
    fn a_version_is_one_line_that_reads_back() {
        let one = summary("It went well.", "- a\n- b");
        assert_eq!(Summary::parse_line(one.to_line().trim_end().as_bytes()), Ok(one.clone()));
        for field in ["id", "tier", "start", "end", "headline", "body", "messages", "created_at"] {
            assert!(one.to_line().contains(&format!("\"{field}\":")), "{field}");
        }
        assert!(Summary::parse_line(b"{}").is_err());
    }

    fn refers() -> SimilarSummary {
        SimilarSummary {
            period: "2026-W01".parse().unwrap(),
            shared: vec!["harbour".into(), "permits".into()],
        }
    }

    // Y11
    #[test]
    fn a_reference_stands_in_the_line_and_behind_the_text_and_is_no_part_of_it() {
        let (without, one) = (
            summary("It went well.", "- a\n- b"),
            Summary { similar: Some(refers()), ..summary("It went well.", "- a\n- b") },
        );
        assert_eq!(Summary::parse_line(one.to_line().trim_end().as_bytes()), Ok(one.clone()));
        assert!(
            one.to_line()
                .contains(r#""similar":{"period":"2026-W01","shared":["harbour","permits"]}"#),
            "{}",
            one.to_line()
        );
        assert!(!without.to_line().contains("similar"), "older lines have none");
        assert_eq!((one.content_hash(), one.head()), (without.content_hash(), without.head()));
        assert!(
            one.to_markdown().ends_with("- b\n\nSimilar: 2026-W01 (harbour, permits)\n"),
            "{}",
            one.to_markdown()
        );
        // Changes around the reference are the person's edit.
        let edited = |text: &str| match classify_summary_file(text) {
            SummaryFileState::Edited { headline, body } => (headline, body),
            other => panic!("{other:?}: {text}"),
        };
        let mine = |body: &str| ("It went well.".to_owned(), body.to_owned());
        assert_eq!(edited(&one.to_markdown().replace("- b", "- c")), mine("- a\n- c"));
        assert_eq!(
            edited(&format!("{}My note.\n", one.to_markdown())),
            mine("- a\n- b\n\nMy note.")
        );
        assert_eq!(
            edited(&one.to_markdown().replace("- b", "- Similar: 2026-W01 (x)")),
            mine("- a\n- Similar: 2026-W01 (x)")
        );
        assert_eq!(
            edited(&one.to_markdown().replace("Similar: 2026-W01", "Not at all like 2026-W01")).1,
            "- a\n- b\n\nNot at all like 2026-W01 (harbour, permits)"
        );
        // Removing the reference does not change the content.
        // Without `similar:` in the header, such a line is text.
        assert_eq!(
            classify_summary_file(
                &one.to_markdown().replace("\nSimilar: 2026-W01 (harbour, permits)\n", "")
            ),
            SummaryFileState::Ours
        );
        assert_eq!(
            edited(&format!("{}\nSimilar: 2026-W01 (x)\n", without.to_markdown())).1,
            "- a\n- b\n\nSimilar: 2026-W01 (x)"
        );
        // A foreign line cannot break the file.
        let odd = Summary {
            similar: Some(SimilarSummary {
                shared: vec!["a\n---\n# b".into(), "ü".repeat(300)],
                ..refers()
            }),
            ..one
        };
        assert_eq!(
            classify_summary_file(&odd.to_markdown()),
            SummaryFileState::Ours,
            "{}",
            odd.to_markdown()
        );
        assert_eq!(odd.to_markdown().lines().filter(|line| *line == "---").count(), 2);
    }

    proptest! {
        // Y11 P1
        #[test]
        fn a_reference_is_within_what_is_counted_for_a_header(maker in "[ -~]{0,120}", words in proptest::collection::vec("\\PC{0,60}", 0..5), headline in "(Similar: 2026-W01 \\(|[a-z. ]){1,40}", body in "([ -~]{1,40}\n?|\nSimilar: 2026-W01 \\(x\\)\n){0,6}") {
            let headline = collapse_spaces(&headline);
            prop_assume!(!headline.is_empty());
            let similar = Some(SimilarSummary { shared: words, ..refers() });
            let one = Summary { maker: SummaryAuthor::Model(maker), version: u32::MAX, messages: u64::MAX, provisional: true, similar, ..summary(&headline, body.trim()) };
            prop_assert!(one.to_markdown().len() <= max_header_bytes(None) + headline.len() + body.trim().len(), "{}", one.to_markdown());
            prop_assert_eq!(parse_summary_file(&one.to_markdown()), Some((headline, body.trim().to_owned())));
        }

        #[test]
        fn a_view_reads_back_to_what_it_shows(headline in "[a-z .]{1,60}", body in "([ -~]{1,40}\n?){0,6}") {
            let headline = collapse_spaces(&headline);
            prop_assume!(!headline.is_empty());
            let one = summary(&headline, body.trim());
            prop_assert_eq!(parse_summary_file(&one.to_markdown()), Some((headline, body.trim().to_owned())));
            prop_assert_eq!(classify_summary_file(&one.to_markdown()), SummaryFileState::Ours);
            let edited = matches!(classify_summary_file(&one.to_markdown().replace("\n# Week", "\n# Week\nA new line.\n# Week")), SummaryFileState::Edited { .. });
            prop_assert!(edited);
        }

        // P1
        #[test]
        fn a_header_is_never_longer_than_is_counted_with(conversation in ".{0,200}", session in ".{0,200}", maker in ".{0,200}", messages in any::<u64>()) {
            let key = SessionKey { day: date(2026, 12, 28), conversation, session: Some(session) };
            let one = Summary {
                period: "2026-12-28_session_123456".parse().unwrap(),
                session: Some(key.clone()),
                maker: SummaryAuthor::Model(maker),
                version: u32::MAX,
                messages,
                provisional: true,
                ..summary("h", "b")
            };
            prop_assert!(one.to_markdown().len() <= max_header_bytes(Some(&key)) + 2, "{}", one.to_markdown());
        }

        #[test]
        fn no_file_makes_the_reader_fall(text in "(?s).{0,80}") {
            let _ = parse_summary_file(&text);
            let _ = Summary::parse_line(text.as_bytes());
        }
    }
}
