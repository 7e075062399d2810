//! The policy of a vault: built-in defaults, overridden value by value by the vault's
//! `icecore.toml`.
//!
//! A vault may come from a stranger, so there is nothing in it that names a program, an endpoint or
//! a key.

use icecore_domain::calendar::{NotAZone, Zone};
use icecore_domain::cascade::retain::Retention;
use icecore_domain::event::{NotAWord, Priority};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::compact::Limits;
use icecore_domain::ledger::decay::Ages;
use icecore_domain::packs::pyramid::Reach;
use icecore_domain::packs::recall::Words;
use icecore_domain::packs::states::Span;
use icecore_domain::schedule::{Job, Timetable};
use icecore_domain::speaker::OwnerNames;
use icecore_domain::summary::{Importance, Tier};
use icecore_store::Store;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

const DEFAULTS: &str = include_str!("../defaults.toml");
/// The newest format of a vault that this program understands.
const FORMAT: i64 = 1;

/// The policy in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The format of the vault's files.
    pub format: i64,
    zone: String,
    ledger: LedgerPolicy,
    /// How the daily logs are looked at.
    pub log: LogPolicy,
    /// What the first screen shows.
    pub status: StatusPolicy,
    /// Who the owner of this memory is.
    pub person: PersonPolicy,
    /// What happens to what is captured.
    pub capture: CapturePolicy,
    /// How summaries are made.
    cascade: CascadePolicy,
    /// How long summaries and packs may be.
    pub budget: BudgetPolicy,
    /// How long files stay.
    pub retention: RetentionPolicy,
    /// How far the pyramid's steps reach.
    pub pyramid: PyramidPolicy,
    /// How statements age.
    pub decay: DecayPolicy,
    /// How long the recall pack may be.
    pub recall: RecallPolicy,
    /// What is distilled.
    pub distil: DistilPolicy,
    /// What chats are told, and how they are remembered.
    pub chat: ChatPolicy,
    /// When jobs run.
    pub schedule: SchedulePolicy,
    /// What `icecore.toml` says that this version does not understand.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// What chats are told, and how they are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatPolicy {
    /// So many of the last turns stand word for word.
    pub window_turns: usize,
    /// A long reply stays so many turns longer.
    pub long_extra_turns: usize,
    /// The most tokens of memory in a request.
    pub memory_tokens: usize,
    /// Where memory stands: `system` or `last_user`.
    placement: String,
    /// Whether memory is added, or the window stands in for what the client sent: `augment` or
    /// `replace`.
    mode: String,
    /// How long the next turn waits for the last one to be remembered.
    pub wait_ms: u64,
    /// How long the summarizer has for one exchange.
    pub summarizer_secs: u64,
    /// Below so many words on both sides, an exchange is short.
    pub short_words: usize,
    /// Above so many words it is long.
    pub long_words: usize,
    /// After so many turns the facts are made fewer.
    pub consolidate_turns: u64,
    /// Every so many turns the facts are kept as a file.
    pub snapshot_turns: u64,
}

/// Where memory stands in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Among the instructions.
    System,
    /// In the last thing the user said.
    LastUser,
}

/// What becomes of the history that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It stays, and memory is added.
    Augment,
    /// The last turns that we kept stand in its place.
    Replace,
}

impl Mode {
    /// The mode of that word.
    pub fn of(word: &str) -> Option<Self> {
        match word {
            "augment" => Some(Self::Augment),
            "replace" => Some(Self::Replace),
            _ => None,
        }
    }
}

impl ChatPolicy {
    /// Where memory stands.
    pub fn placement(&self) -> Placement {
        if self.placement == "last_user" { Placement::LastUser } else { Placement::System }
    }

    /// What becomes of the client's history.
    pub fn mode(&self) -> Mode {
        Mode::of(&self.mode).unwrap_or(Mode::Augment)
    }

    fn check(&self) -> Result<(), Mistake> {
        let wrong = |key: &str, said: &str| Err(Mistake::Value(format!("{key} {said}")));
        if !["system", "last_user"].contains(&self.placement.as_str()) {
            return wrong("chat.placement", "is neither `system` nor `last_user`");
        }
        if Mode::of(&self.mode).is_none() {
            return wrong("chat.mode", "is neither `augment` nor `replace`");
        }
        if !(1..=100).contains(&self.window_turns) {
            return wrong("chat.window_turns", "is not between 1 and 100");
        }
        if self.consolidate_turns == 0 || self.snapshot_turns == 0 || self.summarizer_secs == 0 {
            return wrong("chat", "has a number of turns or seconds that is 0; write 1 or more");
        }
        if self.short_words > self.long_words {
            return wrong("chat.short_words", "is more than chat.long_words");
        }
        Ok(())
    }
}

/// Who the owner of this memory is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersonPolicy {
    names: Vec<String>,
}

impl PersonPolicy {
    /// The names under which the owner speaks in transcripts.
    pub fn names(&self) -> OwnerNames {
        OwnerNames::new(self.names.iter().map(String::as_str))
    }
}

/// What happens to what is captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturePolicy {
    /// Replace secrets before anything is written.
    pub hide_secrets: bool,
    /// The least time between two entries of `24hr.md`.
    pub throttle_minutes: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CascadePolicy {
    without_model: String,
    session_idle_minutes: u16,
}

/// What to do where no model is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutModel {
    /// Make summaries from the sources' own sentences, until there is one.
    Extract,
    /// Wait.
    Defer,
}

/// How long summaries and packs may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetPolicy {
    session_bytes: usize,
    day_bytes: usize,
    week_bytes: usize,
    month_bytes: usize,
    year_bytes: usize,
    /// The upload package's.
    pub upload_bytes: usize,
    /// The pyramid's history.
    pub pyramid_tokens: usize,
}

/// The smallest budget of a summary that leaves room to say something.
const LEAST_BYTES: usize = 1_024;
/// The most words that a recall pack may have.
const MOST_RECALL_WORDS: usize = 3_000;
/// The most that a pyramid's history may have.
pub const MOST_PYRAMID_TOKENS: usize = 50_000;

impl BudgetPolicy {
    /// The most bytes of the file of a summary of that tier and importance.
    pub fn of(&self, tier: Tier, importance: Importance) -> usize {
        let bytes = match tier {
            Tier::Session => self.session_bytes,
            Tier::Day => self.day_bytes,
            Tier::Week => self.week_bytes,
            Tier::Month => self.month_bytes,
            Tier::Year => self.year_bytes,
        };
        if tier == Tier::Day && importance == Importance::Important { bytes * 2 } else { bytes }
    }
}

/// How long files stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionPolicy {
    daily_days: u16,
    important_days: u16,
    weekly_weeks: u16,
    states_days: u16,
    month_days: u16,
}

impl RetentionPolicy {
    /// Of the primers.
    pub fn primers(&self) -> Retention {
        Retention {
            daily_days: self.daily_days,
            important_days: self.important_days,
            weekly_weeks: self.weekly_weeks,
        }
    }

    /// Of the cascade files.
    pub fn states(&self) -> Span {
        Span { states_days: self.states_days, days: self.month_days }
    }
}

/// How far the pyramid's steps reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PyramidPolicy {
    days: u16,
    weeks_days: u16,
}

impl PyramidPolicy {
    /// As the domain takes it.
    pub fn reach(&self) -> Reach {
        Reach { days: self.days, weeks_days: self.weeks_days }
    }
}

/// When jobs run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SchedulePolicy {
    consolidation: String,
    day: String,
    week: String,
    month: String,
    archive: String,
    year: String,
    compact: String,
    prune: String,
    check: String,
}

impl SchedulePolicy {
    /// The timetable.
    pub fn timetable(&self) -> Result<Timetable, Mistake> {
        let entries = [
            (Job::Day, self.day.as_str()),
            (Job::Consolidation, &self.consolidation),
            (Job::Week, &self.week),
            (Job::Month, &self.month),
            (Job::Archive, &self.archive),
            (Job::Year, &self.year),
            (Job::Compact, &self.compact),
            (Job::Prune, &self.prune),
            (Job::Check, &self.check),
        ];
        Timetable::read(&entries).map_err(|error| Mistake::Value(format!("schedule: {error}")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerPolicy {
    default_priority: String,
    most_events: usize,
    spare_days: u16,
}

/// How statements age.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecayPolicy {
    stale_days: u16,
    dropped_days: u16,
    p2_days: u16,
    p3_days: u16,
}

impl DecayPolicy {
    /// As the domain takes it.
    pub fn ages(&self) -> Ages {
        Ages {
            stale_days: self.stale_days,
            dropped_days: self.dropped_days,
            p2_days: self.p2_days,
            p3_days: self.p3_days,
        }
    }
}

/// How many words each section of the recall pack has, and how much a session or a prompt is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecallPolicy {
    p0_words: usize,
    mantra_words: usize,
    open_words: usize,
    waiting_words: usize,
    focus_words: usize,
    context_words: usize,
    procedures_words: usize,
    accounts_words: usize,
    buffer_words: usize,
    /// After so many days without a consolidation the pack says so.
    pub silent_days: u16,
    /// The most characters of what a prompt is given.
    pub delta_chars: usize,
}

impl RecallPolicy {
    /// As the domain takes it.
    pub fn words(&self) -> Words {
        Words {
            p0: self.p0_words,
            mantra: self.mantra_words,
            open: self.open_words,
            waiting: self.waiting_words,
            focus: self.focus_words,
            context: self.context_words,
            procedures: self.procedures_words,
            accounts: self.accounts_words,
            buffer: self.buffer_words,
        }
    }
}

/// What is distilled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DistilPolicy {
    /// What was said longer ago is left to the summaries.
    pub reach_days: u16,
    /// So many tokens of sources go into one question.
    pub question_tokens: usize,
}

/// How the daily logs are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogPolicy {
    /// How many days back every look at the ledger checks for extracts.
    pub notice_days: u16,
}

/// What the first screen shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusPolicy {
    /// How many open commitments.
    pub commitments_shown: u16,
    /// Within how many days something is due soon.
    pub due_soon_days: u16,
    /// After how many days a missing `verify` is mentioned.
    pub verify_days: u16,
}

/// What is wrong with a vault's settings.
#[derive(Debug, thiserror::Error)]
pub enum Mistake {
    /// Not TOML at all.
    #[error("icecore.toml is not valid TOML: {0}")]
    Syntax(String),
    /// A value of the wrong kind.
    #[error("icecore.toml: {0}")]
    Value(String),
    /// No format there ever was.
    #[error(
        "icecore.toml: format is {found}; the first format is 1. Write `format = {FORMAT}`, or leave the line out"
    )]
    NoFormat {
        /// What is there.
        found: i64,
    },
    /// A format from the future.
    #[error(
        "this vault has format {found}, and this program knows formats up to {FORMAT}; install a newer icecore"
    )]
    Newer {
        /// Its format.
        found: i64,
    },
    /// No such zone.
    #[error("icecore.toml: {0}")]
    Zone(#[from] NotAZone),
    /// No such priority.
    #[error("icecore.toml: ledger.default_priority: {0}")]
    Priority(#[from] NotAWord),
}

impl Policy {
    /// The zone whose days are the vault's days.
    pub fn zone(&self) -> Result<Zone, Mistake> {
        Ok(Zone::named(&self.zone)?)
    }

    /// What to do where no model is configured.
    pub fn without_model(&self) -> Result<WithoutModel, Mistake> {
        match self.cascade.without_model.as_str() {
            "extractive" => Ok(WithoutModel::Extract),
            "defer" => Ok(WithoutModel::Defer),
            other => Err(Mistake::Value(format!(
                "cascade.without_model is `{other}`; choose extractive or defer"
            ))),
        }
    }

    /// After so many quiet minutes a session is over.
    pub fn session_idle_minutes(&self) -> u16 {
        self.cascade.session_idle_minutes
    }

    /// How large the ledger may get.
    pub fn limits(&self) -> Limits {
        Limits {
            most: self.ledger.most_events,
            ages: self.decay.ages(),
            spare_days: self.ledger.spare_days,
        }
    }

    /// What `remember` assumes.
    pub fn default_priority(&self) -> Result<Priority, Mistake> {
        Ok(self.ledger.default_priority.parse()?)
    }

    /// The defaults with the vault's own values over them.
    pub fn read(own: &str) -> Result<Self, Mistake> {
        let mut values: Table = DEFAULTS
            .parse()
            .map_err(|error: toml::de::Error| Mistake::Syntax(error.to_string()))?;
        let own: Table = own.parse().map_err(|error: toml::de::Error| {
            Mistake::Syntax(error.to_string().trim().to_owned())
        })?;
        // Without a format it is the first one: whoever wrote the file by hand meant what there is.
        match own.get("format") {
            Some(&Value::Integer(found)) if found > FORMAT => return Err(Mistake::Newer { found }),
            Some(&Value::Integer(found)) if found < 1 => return Err(Mistake::NoFormat { found }),
            _ => {}
        }
        let mut warnings = Vec::new();
        overlay(&mut values, own, "", &mut warnings)?;
        let policy: Self = Value::Table(values)
            .try_into()
            .map_err(|error: toml::de::Error| Mistake::Value(error.message().to_owned()))?;
        let policy = Self { warnings, ..policy };
        policy.zone()?;
        policy.default_priority()?;
        policy.without_model()?;
        policy.schedule.timetable()?;
        policy.check_budgets()?;
        policy.chat.check()?;
        Ok(policy)
    }

    fn check_budgets(&self) -> Result<(), Mistake> {
        for &tier in Tier::ALL {
            let bytes = self.budget.of(tier, Importance::Ordinary);
            if !(LEAST_BYTES..=1024 * 1024).contains(&bytes) {
                return Err(Mistake::Value(format!(
                    "budget.{tier}_bytes is {bytes}; it has to lie between {LEAST_BYTES} and 1048576"
                )));
            }
        }
        if self.budget.upload_bytes < LEAST_BYTES
            || !(500..=MOST_PYRAMID_TOKENS).contains(&self.budget.pyramid_tokens)
        {
            return Err(Mistake::Value(format!(
                "budget.upload_bytes has to be at least {LEAST_BYTES}, budget.pyramid_tokens between 500 and {MOST_PYRAMID_TOKENS}"
            )));
        }
        let words = self.recall.words().most();
        if words > MOST_RECALL_WORDS {
            return Err(Mistake::Value(format!(
                "the sections of recall have {words} words together with the buffer; at most {MOST_RECALL_WORDS} are possible"
            )));
        }
        if self.recall.delta_chars < LEAST_BYTES || self.distil.question_tokens < 500 {
            return Err(Mistake::Value(format!(
                "recall.delta_chars has to be at least {LEAST_BYTES}, distil.question_tokens at least 500"
            )));
        }
        Ok(())
    }

    /// Every setting in force, as TOML.
    pub fn show(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

/// Puts the vault's own values over the defaults. A setting that this version does not have is
/// passed over and told: a newer version may have written it, and one wrong key must not lock
/// anybody out.
fn overlay(
    values: &mut Table,
    own: Table,
    within: &str,
    warnings: &mut Vec<String>,
) -> Result<(), Mistake> {
    for (key, value) in own {
        let name = format!("{within}{key}");
        match (values.get_mut(&key), value) {
            (None, _) => {
                let suggestion = suggestion(&key, within, values.keys().map(String::as_str));
                warnings.push(format!(
                    "icecore.toml sets `{name}`, which does not exist{suggestion}. It is passed over; `icecore vault config show` lists every setting"
                ));
            }
            (Some(Value::Table(inner)), Value::Table(own)) => {
                overlay(inner, own, &format!("{name}."), warnings)?
            }
            (Some(known), value) if known.same_type(&value) => *known = value,
            (Some(known), value) => {
                return Err(Mistake::Value(format!(
                    "`{name}` is a {}, it should be a {}",
                    value.type_str(),
                    known.type_str()
                )));
            }
        }
    }
    Ok(())
}

/// What may have been meant by a key that does not exist, as the end of a sentence; empty if
/// nothing is near.
pub(crate) fn suggestion<'a>(
    key: &str,
    within: &str,
    known: impl Iterator<Item = &'a str>,
) -> String {
    let nearest = known
        .map(|known| (strsim::jaro_winkler(known, key), known))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    nearest
        .filter(|(likeness, _)| *likeness > 0.75)
        .map_or(String::new(), |(_, known)| format!("; did you mean `{within}{known}`?"))
}

/// The policy of the vault in `store`.
pub async fn load(store: &dyn Store) -> crate::Result<Policy> {
    let path: DocPath = layout::CONFIG.parse().map_err(icecore_store::Error::Path)?;
    let own = store.document(&path).await?.unwrap_or_default();
    let own = String::from_utf8(own).map_err(|_| Mistake::Syntax("it is not UTF-8".into()))?;
    Ok(Policy::read(own.trim_start_matches('\u{feff}'))?)
}

/// The text of a new vault's `icecore.toml`.
pub fn first(zone: &Zone) -> String {
    format!(
        "# The policy of this memory. `icecore vault config show` lists every setting; put here what is to differ.\n\
         format = {FORMAT}\n\
         zone = \"{}\"\n",
        zone.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(own: &str, complaint: Option<&str>) {
        match (Policy::read(own), complaint) {
            (Ok(policy), None) => assert_eq!(policy.warnings, [] as [String; 0]),
            (Err(mistake), Some(part)) => {
                assert!(mistake.to_string().contains(part), "{mistake} has no {part}")
            }
            (found, _) => panic!("{own}: {found:?}"),
        }
    }

    // K10
    #[test]
    fn a_wrong_setting_says_what_is_wrong_and_what_was_meant() {
        check("", None);
        check("zone = \"Europe/Berlin\"\n[status]\ncommitments_shown = 9\n", None);
        check("zone = 7", Some("`zone` is a integer, it should be a string"));
        check("zone = \"Mars\"", Some("not a time zone"));
        check("[ledger]\ndefault_priority = \"P9\"", Some("choose one of P0, P1, P2, P3"));
        check("format = 99", Some("install a newer icecore"));
        check("format = 0", Some("the first format is 1"));
        check("format = -1", Some("the first format is 1"));
        check("format = \"1\"", Some("`format` is a string, it should be a integer"));
        check("zone = ", Some("not valid TOML"));
        check("[status]\ncommitments_shown = -1", Some("invalid value"));
    }

    // K10
    #[test]
    fn a_setting_that_does_not_exist_is_passed_over_and_told() {
        let zone = "zone = \"Europe/Berlin\"\n";
        for (own, warning) in [
            ("zon = \"UTC\"", "did you mean `zone`?"),
            ("[status]\ncommitment_shown = 9", "did you mean `status.commitments_shown`?"),
            ("command = \"rm\"", "sets `command`, which does not exist"),
            ("[future]\nx = 1", "sets `future`, which does not exist"),
        ] {
            let policy = Policy::read(&format!("{zone}{own}\n")).unwrap();
            assert!(
                policy.warnings.len() == 1 && policy.warnings[0].contains(warning),
                "{own}: {:?}",
                policy.warnings
            );
            assert_eq!(Policy { warnings: Vec::new(), ..policy }, Policy::read(zone).unwrap());
        }
    }

    #[test]
    fn a_new_vaults_settings_are_the_defaults_in_its_zone() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let policy = Policy::read(&first(&zone)).unwrap();
        assert_eq!(policy.zone().unwrap().name(), "Europe/Berlin");
        assert_eq!(Policy::read(&policy.show()).unwrap(), policy);
    }
}
