//! Reads the policy of a vault: the built-in defaults, overridden value by value by the vault's
//! `icecore.toml`.
//!
//! Invariant: no setting names a program, an endpoint or a key, because a vault may come from a
//! stranger.

use icecore_domain::calendar::{NotAZone, Zone};
use icecore_domain::cascade::retain::Retention;
use icecore_domain::event::{ParseEnumError, Priority};
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::compact::CompactionLimits;
use icecore_domain::ledger::decay::DecayLimits;
use icecore_domain::packs::pyramid::PyramidReach;
use icecore_domain::packs::recall::SectionWords;
use icecore_domain::packs::states::HistorySpan;
use icecore_domain::schedule::{Job, Timetable};
use icecore_domain::speaker::OwnerNames;
use icecore_domain::summary::{Importance, Tier};
use icecore_store::Store;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

const DEFAULTS_TOML: &str = include_str!("../defaults.toml");
/// The newest format of a vault that this program understands.
const FORMAT_VERSION: i64 = 1;
/// The keys that were renamed: the old name and the new one. An old key is still read, with a
/// warning in [`Policy::warnings`].
const RENAMED_KEYS: &[(&str, &str)] = &[
    ("ledger.most_events", "ledger.max_events"),
    ("ledger.spare_days", "ledger.min_age_days_to_compact"),
    ("log.notice_days", "log.scan_days"),
    ("status.verify_days", "status.max_days_without_verify"),
    ("capture.throttle_minutes", "capture.min_minutes_between_state_entries"),
    ("retention.daily_days", "retention.daily_primer_days"),
    ("retention.important_days", "retention.important_primer_days"),
    ("retention.weekly_weeks", "retention.weekly_primer_weeks"),
    ("retention.states_days", "retention.states_file_days"),
    ("retention.month_days", "retention.month_file_days"),
    ("pyramid.days", "pyramid.daily_detail_days"),
    ("pyramid.weeks_days", "pyramid.weekly_detail_days"),
    ("decay.stale_days", "decay.stale_after_days"),
    ("decay.dropped_days", "decay.hidden_after_days"),
    ("decay.p2_days", "decay.p2_expires_after_days"),
    ("decay.p3_days", "decay.p3_expires_after_days"),
    ("recall.silent_days", "recall.max_days_without_consolidation"),
    ("recall.delta_chars", "recall.max_chars_per_prompt"),
    ("distil.reach_days", "extraction.max_age_days"),
    ("distil.question_tokens", "extraction.max_source_tokens"),
    ("chat.long_extra_turns", "chat.extra_turns_for_long_replies"),
    ("chat.memory_tokens", "chat.max_memory_tokens"),
    ("chat.wait_ms", "chat.max_wait_for_last_turn_ms"),
    ("chat.summarizer_secs", "chat.summarizer_timeout_secs"),
    ("chat.short_words", "chat.short_exchange_words"),
    ("chat.long_words", "chat.long_exchange_words"),
    ("chat.consolidate_turns", "chat.consolidate_every_turns"),
    ("chat.snapshot_turns", "chat.snapshot_every_turns"),
];

/// The policy in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The format version of the vault's files.
    pub format: i64,
    zone: String,
    ledger: LedgerPolicy,
    pub log: LogPolicy,
    pub status: StatusPolicy,
    pub person: PersonPolicy,
    pub capture: CapturePolicy,
    cascade: CascadePolicy,
    pub budget: BudgetPolicy,
    pub retention: RetentionPolicy,
    pub pyramid: PyramidPolicy,
    pub decay: DecayPolicy,
    pub recall: RecallPolicy,
    pub extraction: ExtractionPolicy,
    pub chat: ChatPolicy,
    pub schedule: SchedulePolicy,
    /// The settings of `icecore.toml` that are unknown to this version or have an old name.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

/// Settings of chats: what a request contains, and how exchanges are summarized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatPolicy {
    /// How many of the last turns a request repeats word for word.
    pub window_turns: usize,
    /// For how many more turns a long reply is repeated.
    pub extra_turns_for_long_replies: usize,
    pub max_memory_tokens: usize,
    /// `system` or `last_user`.
    placement: String,
    /// `augment` or `replace`.
    mode: String,
    /// How long the next turn waits until the last one is summarized.
    pub max_wait_for_last_turn_ms: u64,
    /// The summarizer's deadline for one exchange.
    pub summarizer_timeout_secs: u64,
    /// With fewer words on both sides, an exchange is short.
    pub short_exchange_words: usize,
    /// With more words on either side, an exchange is long.
    pub long_exchange_words: usize,
    /// How often, in turns, the facts are consolidated.
    pub consolidate_every_turns: u64,
    /// How often, in turns, the facts are saved as a file.
    pub snapshot_every_turns: u64,
}

/// Where memory is inserted into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPlacement {
    /// Into the instructions.
    System,
    /// Into the user's last message.
    LastUser,
}

/// What happens to the history that a client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatMode {
    /// It is kept, and memory is added.
    Augment,
    /// It is replaced by the last recorded turns.
    Replace,
}

impl ChatMode {
    /// Parses the value of `chat.mode`.
    pub fn from_word(word: &str) -> Option<Self> {
        match word {
            "augment" => Some(Self::Augment),
            "replace" => Some(Self::Replace),
            _ => None,
        }
    }
}

impl ChatPolicy {
    /// Where memory is inserted into a request.
    pub fn placement(&self) -> MemoryPlacement {
        if self.placement == "last_user" {
            MemoryPlacement::LastUser
        } else {
            MemoryPlacement::System
        }
    }

    /// What happens to the history that a client sends.
    pub fn mode(&self) -> ChatMode {
        ChatMode::from_word(&self.mode).unwrap_or(ChatMode::Augment)
    }

    fn check(&self) -> Result<(), PolicyError> {
        let wrong = |key: &str, said: &str| Err(PolicyError::Value(format!("{key} {said}")));
        if !["system", "last_user"].contains(&self.placement.as_str()) {
            return wrong("chat.placement", "is neither `system` nor `last_user`");
        }
        if ChatMode::from_word(&self.mode).is_none() {
            return wrong("chat.mode", "is neither `augment` nor `replace`");
        }
        if !(1..=100).contains(&self.window_turns) {
            return wrong("chat.window_turns", "is not between 1 and 100");
        }
        if self.consolidate_every_turns == 0
            || self.snapshot_every_turns == 0
            || self.summarizer_timeout_secs == 0
        {
            return wrong("chat", "has a number of turns or seconds that is 0; write 1 or more");
        }
        if self.short_exchange_words > self.long_exchange_words {
            return wrong("chat.short_exchange_words", "is more than chat.long_exchange_words");
        }
        Ok(())
    }
}

/// Settings about the owner of this memory.
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

/// Settings of capturing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapturePolicy {
    pub hide_secrets: bool,
    /// The minimum time between two entries of `24hr.md`.
    pub min_minutes_between_state_entries: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CascadePolicy {
    without_model: String,
    session_idle_minutes: u16,
}

/// What to do while no model is configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WithoutModel {
    /// Make extractive summaries, and replace them once there is a model.
    Extract,
    /// Wait for a model.
    Defer,
}

/// The maximum sizes of summaries and packs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetPolicy {
    session_bytes: usize,
    day_bytes: usize,
    week_bytes: usize,
    month_bytes: usize,
    year_bytes: usize,
    pub upload_bytes: usize,
    pub pyramid_tokens: usize,
}

/// The smallest budget that leaves room for a summary.
const MIN_SUMMARY_BYTES: usize = 1_024;
/// The maximum of all sections of a recall pack together.
const MAX_RECALL_WORDS: usize = 3_000;
/// The maximum of `budget.pyramid_tokens`.
pub const MAX_PYRAMID_TOKENS: usize = 50_000;
/// The minimum size of a pyramid pack.
pub const MIN_PYRAMID_TOKENS: usize = 200;

impl BudgetPolicy {
    /// The maximum size in bytes of a summary's file.
    pub fn max_summary_bytes(&self, tier: Tier, importance: Importance) -> usize {
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

/// How long files stay before they are archived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionPolicy {
    daily_primer_days: u16,
    important_primer_days: u16,
    weekly_primer_weeks: u16,
    states_file_days: u16,
    month_file_days: u16,
}

impl RetentionPolicy {
    /// The retention of primers.
    pub fn primer_retention(&self) -> Retention {
        Retention {
            daily_days: self.daily_primer_days,
            important_days: self.important_primer_days,
            weekly_weeks: self.weekly_primer_weeks,
        }
    }

    /// The retention of the files of states, `24hr.md` and `30day.md`.
    pub fn states_span(&self) -> HistorySpan {
        HistorySpan { states_days: self.states_file_days, days: self.month_file_days }
    }
}

/// How far back each level of detail of the pyramid reaches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PyramidPolicy {
    daily_detail_days: u16,
    weekly_detail_days: u16,
}

impl PyramidPolicy {
    /// The reach as the domain's type.
    pub fn pyramid_reach(&self) -> PyramidReach {
        PyramidReach { days: self.daily_detail_days, weeks_days: self.weekly_detail_days }
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
    /// Parses the schedule.
    pub fn timetable(&self) -> Result<Timetable, PolicyError> {
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
        Timetable::parse(&entries).map_err(|error| PolicyError::Value(format!("schedule: {error}")))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerPolicy {
    default_priority: String,
    max_events: usize,
    min_age_days_to_compact: u16,
}

/// After how many days statements are stale, hidden and expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecayPolicy {
    stale_after_days: u16,
    hidden_after_days: u16,
    p2_expires_after_days: u16,
    p3_expires_after_days: u16,
}

impl DecayPolicy {
    /// The ages as the domain's type.
    pub fn ages(&self) -> DecayLimits {
        DecayLimits {
            stale_days: self.stale_after_days,
            dropped_days: self.hidden_after_days,
            p2_days: self.p2_expires_after_days,
            p3_days: self.p3_expires_after_days,
        }
    }
}

/// The maximum sizes of the recall pack's sections, and of what is injected for one prompt.
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
    pub max_days_without_consolidation: u16,
    pub max_chars_per_prompt: usize,
}

impl RecallPolicy {
    /// The section sizes as the domain's type.
    pub fn section_words(&self) -> SectionWords {
        SectionWords {
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

/// Settings of the extraction of events from text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtractionPolicy {
    /// Older text is only summarized.
    pub max_age_days: u16,
    /// How many tokens of source text go into one request.
    pub max_source_tokens: usize,
}

/// Settings of the daily logs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogPolicy {
    /// How many days back every read of the ledger scans for extracts.
    pub scan_days: u16,
}

/// What `icecore` without a command shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusPolicy {
    pub commitments_shown: u16,
    pub due_soon_days: u16,
    /// After how many days without a `verify` a warning is shown.
    pub max_days_without_verify: u16,
}

/// An error in a vault's `icecore.toml`.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("icecore.toml is not valid TOML: {0}")]
    Syntax(String),
    #[error("icecore.toml: {0}")]
    Value(String),
    /// A format below the first one.
    #[error(
        "icecore.toml: format is {found}; the first format is 1. Write `format = {FORMAT_VERSION}`, or leave the line out"
    )]
    NoFormat { found: i64 },
    /// A format that only newer versions know.
    #[error(
        "this vault has format {found}, and this program knows formats up to {FORMAT_VERSION}; install a newer icecore"
    )]
    Newer { found: i64 },
    #[error("icecore.toml: {0}")]
    Zone(#[from] NotAZone),
    #[error("icecore.toml: ledger.default_priority: {0}")]
    Priority(#[from] ParseEnumError),
}

impl Policy {
    /// The time zone that decides where a day begins and ends.
    pub fn zone(&self) -> Result<Zone, PolicyError> {
        Ok(Zone::from_name(&self.zone)?)
    }

    /// What to do while no model is configured.
    pub fn without_model(&self) -> Result<WithoutModel, PolicyError> {
        match self.cascade.without_model.as_str() {
            "extractive" => Ok(WithoutModel::Extract),
            "defer" => Ok(WithoutModel::Defer),
            other => Err(PolicyError::Value(format!(
                "cascade.without_model is `{other}`; choose extractive or defer"
            ))),
        }
    }

    /// A session is over after this many minutes without a message.
    pub fn session_idle_minutes(&self) -> u16 {
        self.cascade.session_idle_minutes
    }

    /// The limits of the ledger's compaction.
    pub fn ledger_limits(&self) -> CompactionLimits {
        CompactionLimits {
            max_events: self.ledger.max_events,
            ages: self.decay.ages(),
            spare_days: self.ledger.min_age_days_to_compact,
        }
    }

    /// The priority that `remember` uses when none is given.
    pub fn default_priority(&self) -> Result<Priority, PolicyError> {
        Ok(self.ledger.default_priority.parse()?)
    }

    /// Reads `own`, the text of a vault's `icecore.toml`, over the defaults.
    pub fn read(own: &str) -> Result<Self, PolicyError> {
        let values: Table = DEFAULTS_TOML
            .parse()
            .map_err(|error: toml::de::Error| PolicyError::Syntax(error.to_string()))?;
        let mut own: Table = own.parse().map_err(|error: toml::de::Error| {
            PolicyError::Syntax(error.to_string().trim().to_owned())
        })?;
        // A file without a format was written by hand, and has the first one.
        match own.get("format") {
            Some(&Value::Integer(found)) if found > FORMAT_VERSION => {
                return Err(PolicyError::Newer { found });
            }
            Some(&Value::Integer(found)) if found < 1 => {
                return Err(PolicyError::NoFormat { found });
            }
            _ => {}
        }
        let renamed = rename_old_keys(&mut own, RENAMED_KEYS);
        Self::from_tables(values, own, warnings_of_old_keys("icecore.toml", &renamed)).map_err(
            |mistake| match mistake {
                PolicyError::Value(said) => PolicyError::Value(name_old_keys(said, &renamed)),
                other => other,
            },
        )
    }

    fn from_tables(
        mut values: Table,
        own: Table,
        mut warnings: Vec<String>,
    ) -> Result<Self, PolicyError> {
        apply_overrides(&mut values, own, "", &mut warnings)?;
        let policy: Self = Value::Table(values)
            .try_into()
            .map_err(|error: toml::de::Error| PolicyError::Value(error.message().to_owned()))?;
        let policy = Self { warnings, ..policy };
        policy.zone()?;
        policy.default_priority()?;
        policy.without_model()?;
        policy.schedule.timetable()?;
        policy.check_budgets()?;
        policy.chat.check()?;
        Ok(policy)
    }

    fn check_budgets(&self) -> Result<(), PolicyError> {
        for &tier in Tier::ALL {
            let bytes = self.budget.max_summary_bytes(tier, Importance::Ordinary);
            if !(MIN_SUMMARY_BYTES..=1024 * 1024).contains(&bytes) {
                return Err(PolicyError::Value(format!(
                    "budget.{tier}_bytes is {bytes}; it has to lie between {MIN_SUMMARY_BYTES} and 1048576"
                )));
            }
        }
        if self.budget.upload_bytes < MIN_SUMMARY_BYTES
            || !(500..=MAX_PYRAMID_TOKENS).contains(&self.budget.pyramid_tokens)
        {
            return Err(PolicyError::Value(format!(
                "budget.upload_bytes has to be at least {MIN_SUMMARY_BYTES}, budget.pyramid_tokens between 500 and {MAX_PYRAMID_TOKENS}"
            )));
        }
        let words = self.recall.section_words().total();
        if words > MAX_RECALL_WORDS {
            return Err(PolicyError::Value(format!(
                "the sections of recall have {words} words together with the buffer; at most {MAX_RECALL_WORDS} are possible"
            )));
        }
        if self.recall.max_chars_per_prompt < MIN_SUMMARY_BYTES
            || self.extraction.max_source_tokens < 500
        {
            return Err(PolicyError::Value(format!(
                "recall.max_chars_per_prompt has to be at least {MIN_SUMMARY_BYTES}, extraction.max_source_tokens at least 500"
            )));
        }
        Ok(())
    }

    /// Every setting in force, as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

/// A key of a settings file that was renamed.
pub(crate) struct RenamedKey {
    pub old: &'static str,
    pub new: &'static str,
    /// The file sets the new key too, whose value is used.
    pub has_both: bool,
}

/// Moves the values of renamed keys (`section.key`) to their new names, and returns the old keys
/// that `file` sets. A new key that is set too keeps its value.
pub(crate) fn rename_old_keys(
    file: &mut Table,
    renamed: &[(&'static str, &'static str)],
) -> Vec<RenamedKey> {
    let mut found = Vec::new();
    for &(old, new) in renamed {
        let (Some((old_section, old_key)), Some((section, key))) =
            (old.split_once('.'), new.split_once('.'))
        else {
            continue;
        };
        let Some(Value::Table(from)) = file.get_mut(old_section) else { continue };
        let Some(value) = from.remove(old_key) else { continue };
        if from.is_empty() {
            file.remove(old_section);
        }
        let to = file.entry(section).or_insert_with(|| Value::Table(Table::new()));
        // A new section that is not a table is reported when the file is read.
        let has_both = to.as_table().is_none_or(|to| to.contains_key(key));
        if let (Value::Table(to), false) = (to, has_both) {
            to.insert(key.to_owned(), value);
        }
        found.push(RenamedKey { old, new, has_both });
    }
    found
}

/// One warning for each renamed key that `file` sets.
pub(crate) fn warnings_of_old_keys(file: &str, renamed: &[RenamedKey]) -> Vec<String> {
    let warning = |RenamedKey { old, new, has_both }: &RenamedKey| {
        if *has_both {
            format!(
                "{file} sets `{old}`, the old name of `{new}`, and `{new}`, which is used; delete `{old}`"
            )
        } else {
            format!("{file} sets `{old}`, which is now called `{new}`; rename it")
        }
    };
    renamed.iter().map(warning).collect()
}

/// An error message in which new keys are followed by the old names that the file uses.
pub(crate) fn name_old_keys(said: String, renamed: &[RenamedKey]) -> String {
    let names: Vec<String> = renamed
        .iter()
        .filter(|key| !key.has_both && said.contains(key.new))
        .map(|key| format!("`{}`, the old name of `{}`", key.old, key.new))
        .collect();
    if names.is_empty() { said } else { format!("{said} (the file sets {})", names.join(" and ")) }
}

/// Puts the vault's own values over the defaults. An unknown setting is ignored with a warning: a
/// newer version may have written it, and one wrong key must not lock the user out of the vault.
fn apply_overrides(
    values: &mut Table,
    own: Table,
    within: &str,
    warnings: &mut Vec<String>,
) -> Result<(), PolicyError> {
    for (key, value) in own {
        let name = format!("{within}{key}");
        match (values.get_mut(&key), value) {
            (None, _) => {
                let suggestion = nearest_key_hint(&key, within, values.keys().map(String::as_str));
                warnings.push(format!(
                    "icecore.toml sets `{name}`, which does not exist{suggestion}. It is ignored; `icecore vault config show` lists every setting"
                ));
            }
            (Some(Value::Table(inner)), Value::Table(own)) => {
                apply_overrides(inner, own, &format!("{name}."), warnings)?
            }
            (Some(known), value) if known.same_type(&value) => *known = value,
            (Some(known), value) => {
                return Err(PolicyError::Value(format!(
                    "`{name}` is a {}, it should be a {}",
                    value.type_str(),
                    known.type_str()
                )));
            }
        }
    }
    Ok(())
}

/// The existing key that is most like an unknown one, as the end of a sentence; empty if none is
/// like it.
pub(crate) fn nearest_key_hint<'a>(
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

/// Reads the policy of the vault in `store`.
pub async fn load_policy(store: &dyn Store) -> crate::Result<Policy> {
    let path: DocPath = layout::CONFIG.parse().map_err(icecore_store::Error::from)?;
    let own = store.document(&path).await?.unwrap_or_default();
    let own = String::from_utf8(own).map_err(|_| PolicyError::Syntax("it is not UTF-8".into()))?;
    Ok(Policy::read(own.trim_start_matches('\u{feff}'))?)
}

/// The text of a new vault's `icecore.toml`.
pub fn initial_config(zone: &Zone) -> String {
    format!(
        "# The policy of this memory. `icecore vault config show` lists every setting; put the ones you change here.\n\
         format = {FORMAT_VERSION}\n\
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
    fn an_unknown_setting_is_ignored_with_a_warning() {
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
    fn an_old_key_is_read_with_a_warning_that_names_the_new_one() {
        let cases = [
            // own settings, the same with new keys, the warning
            (
                "[ledger]\nmost_events = 9",
                "[ledger]\nmax_events = 9",
                "`ledger.most_events`, which is now called `ledger.max_events`",
            ),
            (
                "[distil]\nreach_days = 3",
                "[extraction]\nmax_age_days = 3",
                "`distil.reach_days`, which is now called `extraction.max_age_days`",
            ),
            (
                "[chat]\nwait_ms = 5\nwindow_turns = 7",
                "[chat]\nmax_wait_for_last_turn_ms = 5\nwindow_turns = 7",
                "now called `chat.max_wait_for_last_turn_ms`",
            ),
            (
                "[ledger]\nmax_events = 9\nmost_events = 8",
                "[ledger]\nmax_events = 9",
                "and `ledger.max_events`, which is used; delete `ledger.most_events`",
            ),
            (
                "[distil]\nreach_days = 3\n[extraction]\nmax_age_days = 4",
                "[extraction]\nmax_age_days = 4",
                "delete `distil.reach_days`",
            ),
        ];
        for (own, new, warning) in cases {
            let policy = Policy::read(own).unwrap();
            assert!(
                policy.warnings.len() == 1 && policy.warnings[0].contains(warning),
                "{own}: {:?}",
                policy.warnings
            );
            assert_eq!(Policy { warnings: Vec::new(), ..policy }, Policy::read(new).unwrap());
        }
        let unknown = Policy::read("[distil]\nreach_days = 3\nspeed = 1").unwrap().warnings;
        assert!(unknown.len() == 2 && unknown[1].contains("`distil`"), "{unknown:?}");
        check(
            "[recall]\ndelta_chars = 1",
            Some("`recall.delta_chars`, the old name of `recall.max_chars_per_prompt`"),
        );
        check("[ledger]\nmost_events = \"x\"", Some("the file sets `ledger.most_events`"));
        check("extraction = 3\n[distil]\nreach_days = 3", Some("it should be a table"));
    }

    #[test]
    fn every_renamed_key_leads_to_a_setting() {
        let defaults: Table = DEFAULTS_TOML.parse().unwrap();
        for (old, new) in RENAMED_KEYS {
            let exists = |name: &str| {
                let (section, key) = name.split_once('.').unwrap();
                defaults.get(section).is_some_and(|section| section.get(key).is_some())
            };
            assert!(exists(new) && !exists(old), "{old} -> {new}");
        }
    }

    #[test]
    fn a_new_vaults_settings_are_the_defaults_in_its_zone() {
        let zone = Zone::from_name("Europe/Berlin").unwrap();
        let policy = Policy::read(&initial_config(&zone)).unwrap();
        assert_eq!(policy.zone().unwrap().name(), "Europe/Berlin");
        assert_eq!(Policy::read(&policy.to_toml()).unwrap(), policy);
    }
}
