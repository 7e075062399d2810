//! The policy of a vault: built-in defaults, overridden value by value by the vault's `icecore.toml`.
//!
//! A vault may come from a stranger, so there is nothing in it that names a program, an endpoint or a key.

use icecore_domain::calendar::{NotAZone, Zone};
use icecore_domain::event::{NotAWord, Priority};
use icecore_domain::layout::{self, DocPath};
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
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LedgerPolicy {
    default_priority: String,
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
    /// A setting nobody reads.
    #[error("icecore.toml sets `{key}`, which does not exist{suggestion}. `icecore config show` lists every setting")]
    Unknown {
        /// The setting.
        key: String,
        /// What may have been meant.
        suggestion: String,
    },
    /// A value of the wrong kind.
    #[error("icecore.toml: {0}")]
    Value(String),
    /// A format from the future.
    #[error("this vault has format {found}, and this program knows formats up to {FORMAT}; install a newer icecore")]
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

    /// What `remember` assumes.
    pub fn default_priority(&self) -> Result<Priority, Mistake> {
        Ok(self.ledger.default_priority.parse()?)
    }

    /// The defaults with the vault's own values over them.
    pub fn read(own: &str) -> Result<Self, Mistake> {
        let mut values: Table = DEFAULTS.parse().map_err(|error: toml::de::Error| Mistake::Syntax(error.to_string()))?;
        let own: Table = own.parse().map_err(|error: toml::de::Error| Mistake::Syntax(error.to_string().trim().to_owned()))?;
        if let Some(&Value::Integer(found)) = own.get("format")
            && found > FORMAT
        {
            return Err(Mistake::Newer { found });
        }
        overlay(&mut values, own, "")?;
        let policy: Self = Value::Table(values).try_into().map_err(|error: toml::de::Error| Mistake::Value(error.message().to_owned()))?;
        policy.zone()?;
        policy.default_priority()?;
        Ok(policy)
    }

    /// Every setting in force, as TOML.
    pub fn show(&self) -> String {
        toml::to_string(self).unwrap_or_default()
    }
}

fn overlay(values: &mut Table, own: Table, within: &str) -> Result<(), Mistake> {
    for (key, value) in own {
        let name = format!("{within}{key}");
        match (values.get_mut(&key), value) {
            (None, _) => {
                let nearest = values.keys().map(|known| (strsim::jaro_winkler(known, &key), known)).max_by(|a, b| a.0.total_cmp(&b.0));
                let suggestion = nearest
                    .filter(|(likeness, _)| *likeness > 0.75)
                    .map_or(String::new(), |(_, known)| format!("; did you mean `{within}{known}`?"));
                return Err(Mistake::Unknown { key: name, suggestion });
            }
            (Some(Value::Table(inner)), Value::Table(own)) => overlay(inner, own, &format!("{name}."))?,
            (Some(known), value) if known.same_type(&value) => *known = value,
            (Some(known), value) => {
                return Err(Mistake::Value(format!("`{name}` is a {}, it should be a {}", value.type_str(), known.type_str())));
            }
        }
    }
    Ok(())
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
        "# The policy of this memory. `icecore config show` lists every setting; put here what is to differ.\n\
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
            (Ok(_), None) => {}
            (Err(mistake), Some(part)) => assert!(mistake.to_string().contains(part), "{mistake} has no {part}"),
            (found, _) => panic!("{own}: {found:?}"),
        }
    }

    // K10
    #[test]
    fn a_wrong_setting_says_what_is_wrong_and_what_was_meant() {
        check("", None);
        check("zone = \"Europe/Berlin\"\n[status]\ncommitments_shown = 9\n", None);
        check("zon = \"UTC\"", Some("did you mean `zone`?"));
        check("[status]\ncommitment_shown = 9", Some("did you mean `status.commitments_shown`?"));
        check("command = \"rm\"", Some("sets `command`, which does not exist"));
        check("zone = 7", Some("`zone` is a integer, it should be a string"));
        check("zone = \"Mars\"", Some("not a time zone"));
        check("[ledger]\ndefault_priority = \"P9\"", Some("choose one of P0, P1, P2, P3"));
        check("format = 99", Some("install a newer icecore"));
        check("zone = ", Some("not valid TOML"));
        check("[status]\ncommitments_shown = -1", Some("invalid value"));
    }

    #[test]
    fn a_new_vaults_settings_are_the_defaults_in_its_zone() {
        let zone = Zone::named("Europe/Berlin").unwrap();
        let policy = Policy::read(&first(&zone)).unwrap();
        assert_eq!(policy.zone().unwrap().name(), "Europe/Berlin");
        assert_eq!(Policy::read(&policy.show()).unwrap(), policy);
    }
}
