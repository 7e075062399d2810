//! Reads the user's own settings (`config.toml`): models, keys, spending limits, the server's
//! address, the database connections.
//!
//! Invariants:
//!
//! - No setting comes from a vault, because a vault may come from a stranger.
//!
//! - An environment variable (`ICECORE_SUMMARIZER_MODEL`) overrides the key of the file.
//!
//! - A key is bound to the address it was set for: an address from the environment never gets the
//!   key of the file.
//!
//! - No secret is ever shown.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};
use toml::{Table, Value};

use crate::config;

const OPENAI_URL: &str = "https://api.openai.com/v1";
const ANTHROPIC_URL: &str = "https://api.anthropic.com";
/// Longer texts are rejected as API keys.
const MAX_KEY_BYTES: usize = 4096;
/// One day: longer waits make no sense, and sums of waits cannot overflow.
const MAX_SECS: u64 = 86_400;
/// Creating the tables needs two connections. No database is configured for more than the maximum.
const MIN_CONNECTIONS: u64 = 2;
const MAX_CONNECTIONS: u64 = 1_000;

/// The user's settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The better model: rollups and extraction.
    pub summarizer: ModelSettings,
    pub chat: ModelSettings,
    pub spend: SpendSettings,
    pub server: ServerSettings,
    /// How a PostgreSQL store is used.
    pub store: StoreSettings,
    /// Keys that were renamed, one warning for each.
    pub warnings: Vec<String>,
}

/// The settings of one model.
#[derive(Debug, Clone)]
pub struct ModelSettings {
    /// `summarizer` or `chat`: the section of the file.
    pub role: &'static str,
    pub provider: Provider,
    /// Empty for a command.
    pub base_url: String,
    /// Empty for a command.
    pub model: String,
    /// Never shown.
    pub api_key: Option<SecretString>,
    pub command: Vec<String>,
    /// The deadline of the first request.
    pub timeout: Duration,
    pub max_input_tokens: u32,
    /// Fields that are added to the request's body, and override ours.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// A longer wait before a retry is not waited for.
    pub max_retry_wait: Duration,
}

/// The kind of endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    None,
    /// A server with OpenAI's chat completions API.
    OpenAi,
    /// A server with Anthropic's messages API.
    Anthropic,
    /// A program that reads the prompt and prints the answer.
    Command,
}

/// Spending limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendSettings {
    /// Input and output tokens of all models together.
    pub tokens_per_day: u64,
}

/// The server's address and request limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerSettings {
    pub addr: SocketAddr,
    /// The limit of each space of a database that has no own quota; 0 means no limit.
    pub requests_per_minute: u64,
}

/// How a PostgreSQL store is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreSettings {
    /// The maximum of one process.
    pub max_connections: usize,
    /// How long a caller waits for a connection.
    pub connection_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
}

/// An error in the user's settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("config.toml is not valid TOML in line {line}: {said}")]
    Syntax {
        line: usize,
        /// The parser's message, without the line's text, which may hold a key.
        said: String,
    },
    /// An unknown key.
    #[error("config.toml sets `{key}`, which does not exist{suggestion}")]
    Unknown { key: String, suggestion: String },
    /// A value that cannot be used.
    #[error("{key} {said}")]
    Value {
        /// The key, or the variable it came from.
        key: String,
        said: String,
    },
    /// A setting that the provider needs is missing.
    #[error(
        "{role}.provider is {provider}{said_by}, which needs {needs}; set it in config.toml or as {variable}"
    )]
    Missing {
        role: &'static str,
        provider: &'static str,
        /// The variable that sets the provider, if it is not the file.
        said_by: String,
        needs: &'static str,
        variable: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Text,
    Count,
    List,
    Table,
}

const MODEL_KEYS: [(&str, ValueKind); 10] = [
    ("provider", ValueKind::Text),
    ("base_url", ValueKind::Text),
    ("model", ValueKind::Text),
    ("api_key", ValueKind::Text),
    ("api_key_file", ValueKind::Text),
    ("command", ValueKind::List),
    ("timeout_secs", ValueKind::Count),
    ("max_input_tokens", ValueKind::Count),
    ("extra", ValueKind::Table),
    ("max_retry_wait_secs", ValueKind::Count),
];
const STORE_KEYS: [(&str, ValueKind); 3] = [
    ("max_connections", ValueKind::Count),
    ("connection_timeout_secs", ValueKind::Count),
    ("statement_timeout_secs", ValueKind::Count),
];
const SECTIONS: [(&str, &[(&str, ValueKind)]); 5] = [
    ("summarizer", &MODEL_KEYS),
    ("chat", &MODEL_KEYS),
    ("spend", &[("tokens_per_day", ValueKind::Count)]),
    ("server", &[("addr", ValueKind::Text), ("requests_per_minute", ValueKind::Count)]),
    ("store", &STORE_KEYS),
];
/// The keys that were renamed: the old name and the new one. An old key is still read, also from
/// the environment, with a warning in [`Settings::warnings`].
const RENAMED_KEYS: &[(&str, &str)] = &[
    ("summarizer.retry_cap_secs", "summarizer.max_retry_wait_secs"),
    ("chat.retry_cap_secs", "chat.max_retry_wait_secs"),
    ("store.connections", "store.max_connections"),
    ("store.patience_seconds", "store.connection_timeout_secs"),
    ("store.statement_seconds", "store.statement_timeout_secs"),
];

impl Settings {
    /// Reads `text` (the file's, if there is one), overridden by the environment.
    pub fn read(
        text: Option<&str>,
        environment: &dyn Fn(&str) -> Option<String>,
        read_file: &dyn Fn(&str) -> io::Result<String>,
    ) -> Result<Self, SettingsError> {
        let mut file = parse(text.unwrap_or_default())?;
        // An empty variable counts as not set.
        let environment = |name: &str| environment(name).filter(|value| !value.trim().is_empty());
        let renamed = config::rename_old_keys(&mut file, RENAMED_KEYS);
        let mut warnings = config::warnings_of_old_keys("config.toml", &renamed);
        warnings.extend(old_variables(&environment));
        Self::from_sources(&file, &environment, read_file, warnings).map_err(
            |mistake| match mistake {
                SettingsError::Value { key, said } => {
                    // The user looks for the name that the file or the environment uses.
                    let in_file =
                        |renamed: &&config::RenamedKey| renamed.new == key && !renamed.has_both;
                    let old = renamed.iter().find(in_file).map(|renamed| renamed.old.to_owned());
                    let old = old.or_else(|| variable_in_use(&key, &environment));
                    SettingsError::Value { key: old.unwrap_or(key), said }
                }
                other => other,
            },
        )
    }

    fn from_sources(
        file: &Table,
        environment: &dyn Fn(&str) -> Option<String>,
        read_file: &dyn Fn(&str) -> io::Result<String>,
        warnings: Vec<String>,
    ) -> Result<Self, SettingsError> {
        check_keys(file)?;
        let from = SettingSources { file, environment, read_file };
        let addr = from.text("server", "addr")?.unwrap_or_else(|| "127.0.0.1:7431".into());
        let addr = addr.trim().parse().map_err(|_| SettingsError::Value {
            key: "server.addr".into(),
            said: "is not an address and a port; write it like 127.0.0.1:7431".into(),
        })?;
        Ok(Self {
            summarizer: from.model("summarizer")?,
            chat: from.model("chat")?,
            spend: SpendSettings {
                tokens_per_day: from.count("spend", "tokens_per_day")?.unwrap_or(2_000_000),
            },
            server: ServerSettings {
                addr,
                requests_per_minute: from.count("server", "requests_per_minute")?.unwrap_or(600),
            },
            store: from.store()?,
            warnings,
        })
    }

    /// Whether the file itself holds a key, so that others must not be able to read it.
    pub fn contains_key(text: &str) -> bool {
        parse(text).is_ok_and(|file| file.values().any(|section| section.get("api_key").is_some()))
    }

    /// Every setting in force as TOML, with `(set)` in place of keys.
    pub fn to_toml(&self) -> String {
        let mut shown = Table::new();
        for model in [&self.summarizer, &self.chat] {
            shown.insert(model.role.into(), model.to_table().into());
        }
        let tokens_per_day = i64::try_from(self.spend.tokens_per_day).unwrap_or(i64::MAX);
        shown.insert(
            "spend".into(),
            Table::from_iter([("tokens_per_day".into(), tokens_per_day.into())]).into(),
        );
        let per_minute = i64::try_from(self.server.requests_per_minute).unwrap_or(i64::MAX);
        let server = [
            ("addr".to_owned(), self.server.addr.to_string().into()),
            ("requests_per_minute".to_owned(), per_minute.into()),
        ];
        shown.insert("server".into(), Table::from_iter(server).into());
        let connections = i64::try_from(self.store.max_connections).unwrap_or(i64::MAX);
        let store = [
            ("max_connections", connections.into()),
            ("connection_timeout_secs", secs_value(self.store.connection_timeout)),
            ("statement_timeout_secs", secs_value(self.store.statement_timeout)),
        ];
        shown.insert(
            "store".into(),
            Table::from_iter(store.map(|(key, value)| (key.to_owned(), value))).into(),
        );
        toml::to_string(&shown).unwrap_or_default()
    }
}

impl Provider {
    /// The provider's name in the settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OpenAi => "openai",
            Self::Anthropic => "anthropic",
            Self::Command => "command",
        }
    }

    fn default_url(self) -> &'static str {
        match self {
            Self::OpenAi => OPENAI_URL,
            Self::Anthropic => ANTHROPIC_URL,
            Self::None | Self::Command => "",
        }
    }
}

impl ModelSettings {
    /// The settings of no model.
    pub fn none(role: &'static str) -> Self {
        Self {
            role,
            provider: Provider::None,
            base_url: String::new(),
            model: String::new(),
            api_key: None,
            command: Vec::new(),
            timeout: Duration::from_secs(120),
            max_input_tokens: 24_000,
            extra: serde_json::Map::new(),
            max_retry_wait: Duration::from_secs(30),
        }
    }

    /// Parses and checks the base URL: the key may only be sent to it safely.
    pub fn endpoint(&self) -> Result<Url, SettingsError> {
        let wrong = |said: &str| SettingsError::Value {
            key: format!("{}.base_url", self.role),
            said: said.into(),
        };
        let url = Url::parse(self.base_url.trim()).map_err(|error| {
            wrong(&format!("is not an address ({error}); write it like {OPENAI_URL}"))
        })?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("is neither http:// nor https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong(
                "holds a name or a password, which would show in every log; use api_key or api_key_file",
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong(
                "goes on after its path (`?` or `#`); leave that out, and put a key into api_key",
            ));
        }
        if url.scheme() == "http" && !is_loopback(&url) && self.api_key.is_some() {
            return Err(wrong(
                "is http:// to another machine, so the key could be read on the way; use https://, or no key",
            ));
        }
        Ok(url)
    }

    fn to_table(&self) -> Table {
        let mut table = Table::new();
        let mut set = |key: &str, value: Value| table.insert(key.into(), value);
        set("provider", self.provider.word().into());
        match self.provider {
            Provider::None => {}
            Provider::OpenAi | Provider::Anthropic => {
                set("base_url", self.base_url.as_str().into());
                set("model", self.model.as_str().into());
                if self.api_key.is_some() {
                    set("api_key", "(set)".into());
                }
                set("max_retry_wait_secs", secs_value(self.max_retry_wait));
            }
            Provider::Command => {
                set("command", self.command.clone().into());
            }
        }
        set("timeout_secs", secs_value(self.timeout));
        set("max_input_tokens", i64::from(self.max_input_tokens).into());
        if let Ok(extra) = Value::try_from(&self.extra)
            && !self.extra.is_empty()
        {
            set("extra", extra);
        }
        table
    }
}

/// Whether the URL points to this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn secs_value(duration: Duration) -> Value {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX).into()
}

fn parse(text: &str) -> Result<Table, SettingsError> {
    let text = text.trim_start_matches('\u{feff}');
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        SettingsError::Syntax {
            line: before.matches('\n').count() + 1,
            said: error.message().to_owned(),
        }
    })
}

fn check_keys(file: &Table) -> Result<(), SettingsError> {
    for (section, values) in file {
        let Some((_, keys)) = SECTIONS.iter().find(|(name, _)| name == section) else {
            let suggestion =
                config::nearest_key_hint(section, "", SECTIONS.iter().map(|(name, _)| *name));
            return Err(SettingsError::Unknown { key: section.clone(), suggestion });
        };
        let Value::Table(values) = values else {
            return Err(SettingsError::Value {
                key: section.clone(),
                said: format!("is a section; write [{section}] and its settings below"),
            });
        };
        for (key, value) in values {
            let name = format!("{section}.{key}");
            let Some((_, kind)) = keys.iter().find(|(known, _)| known == key) else {
                let suggestion = config::nearest_key_hint(
                    key,
                    &format!("{section}."),
                    keys.iter().map(|(known, _)| *known),
                );
                return Err(SettingsError::Unknown { key: name, suggestion });
            };
            let fits = match kind {
                ValueKind::Text => value.is_str(),
                ValueKind::Count => value.is_integer(),
                ValueKind::List => {
                    value.as_array().is_some_and(|words| words.iter().all(Value::is_str))
                }
                ValueKind::Table => value.is_table(),
            };
            if !fits {
                let kind = match kind {
                    ValueKind::Text => "a text in quotes",
                    ValueKind::Count => "a whole number",
                    ValueKind::List => "a list of texts, like [\"claude\", \"-p\"]",
                    ValueKind::Table => "a table, like { temperature = 0.2 }",
                };
                return Err(SettingsError::Value { key: name, said: format!("must be {kind}") });
            }
        }
    }
    Ok(())
}

/// The name of the environment variable for a key of the file.
fn variable_name(section: &str, key: &str) -> String {
    format!("ICECORE_{section}_{key}").to_ascii_uppercase()
}

/// The variable of the old name of a key that was renamed.
fn old_variable(section: &str, key: &str) -> Option<String> {
    let is_new = |new: &str| new.split_once('.') == Some((section, key));
    let (old, _) = RENAMED_KEYS.iter().find(|(_, new)| is_new(new))?;
    old.split_once('.').map(|(section, key)| variable_name(section, key))
}

/// The old name of the variable `name`, if only the old one is set.
fn variable_in_use(name: &str, environment: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let old = RENAMED_KEYS.iter().find_map(|(_, new)| {
        let (section, key) = new.split_once('.')?;
        (variable_name(section, key) == name).then(|| old_variable(section, key))?
    })?;
    (environment(name).is_none() && environment(&old).is_some()).then_some(old)
}

/// One warning for each environment variable with an old name that is set.
fn old_variables(environment: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let warning = |(_, new): &(&str, &str)| {
        let (section, key) = new.split_once('.')?;
        let (old, new) = (old_variable(section, key)?, variable_name(section, key));
        environment(&old)?;
        Some(if environment(&new).is_some() {
            format!("{old}, the old name of {new}, is set too; {new} is used, unset {old}")
        } else {
            format!("{old} is now called {new}; rename it")
        })
    };
    RENAMED_KEYS.iter().filter_map(warning).collect()
}

/// Where settings come from.
struct SettingSources<'a> {
    file: &'a Table,
    environment: &'a dyn Fn(&str) -> Option<String>,
    read_file: &'a dyn Fn(&str) -> io::Result<String>,
}

impl SettingSources<'_> {
    fn file_value(&self, section: &str, key: &str) -> Option<&Value> {
        self.file.get(section)?.get(key)
    }

    fn environment_value(&self, section: &str, key: &str) -> Option<String> {
        let new = (self.environment)(&variable_name(section, key));
        new.or_else(|| (self.environment)(&old_variable(section, key)?))
    }

    fn text(&self, section: &str, key: &str) -> Result<Option<String>, SettingsError> {
        let own = self.file_value(section, key).and_then(Value::as_str).map(str::to_owned);
        Ok(self.environment_value(section, key).or(own).filter(|text| !text.trim().is_empty()))
    }

    fn count(&self, section: &str, key: &str) -> Result<Option<u64>, SettingsError> {
        let (name, value) = match self.environment_value(section, key) {
            Some(value) => {
                (variable_name(section, key), value.trim().replace('_', "").parse().ok())
            }
            None => match self.file_value(section, key).and_then(Value::as_integer) {
                Some(value) => (format!("{section}.{key}"), u64::try_from(value).ok()),
                None => return Ok(None),
            },
        };
        value.map(Some).ok_or(SettingsError::Value {
            key: name,
            said: "must be a whole number, 0 or more".into(),
        })
    }

    fn secs(
        &self,
        section: &'static str,
        key: &str,
        default: Duration,
        least: u64,
    ) -> Result<Duration, SettingsError> {
        let Some(found) = self.count(section, key)? else { return Ok(default) };
        if !(least..=MAX_SECS).contains(&found) {
            return Err(SettingsError::Value {
                key: format!("{section}.{key}"),
                said: format!("must be from {least} to {MAX_SECS} seconds"),
            });
        }
        Ok(Duration::from_secs(found))
    }

    fn store(&self) -> Result<StoreSettings, SettingsError> {
        let connections = self.count("store", "max_connections")?.unwrap_or(16);
        if !(MIN_CONNECTIONS..=MAX_CONNECTIONS).contains(&connections) {
            let said = format!("must be from {MIN_CONNECTIONS} to {MAX_CONNECTIONS}");
            return Err(SettingsError::Value { key: "store.max_connections".into(), said });
        }
        Ok(StoreSettings {
            max_connections: usize::try_from(connections).unwrap_or(usize::MAX),
            connection_timeout: self.secs(
                "store",
                "connection_timeout_secs",
                Duration::from_secs(10),
                1,
            )?,
            statement_timeout: self.secs(
                "store",
                "statement_timeout_secs",
                Duration::from_secs(60),
                1,
            )?,
        })
    }

    fn command(&self, section: &str) -> Result<Vec<String>, SettingsError> {
        let name = variable_name(section, "command");
        let listed = match self.environment_value(section, "command") {
            // No shell splits it, so it is split at blanks; a list keeps blanks within a word.
            Some(text) if !text.trim_start().starts_with('[') => {
                return Ok(text.split_whitespace().map(str::to_owned).collect());
            }
            Some(text) => parse_inline_value(&text).filter(Value::is_array),
            None => self.file_value(section, "command").cloned().or(Some(Value::Array(Vec::new()))),
        };
        let words = listed.and_then(|list| list.try_into::<Vec<String>>().ok());
        words.ok_or(SettingsError::Value {
            key: name,
            said: "must be a list of texts, like [\"claude\", \"-p\"]".into(),
        })
    }

    fn extra(
        &self,
        section: &str,
    ) -> Result<serde_json::Map<String, serde_json::Value>, SettingsError> {
        let found = match self.environment_value(section, "extra") {
            Some(text) => serde_json::from_str(&text)
                .ok()
                .or_else(|| parse_inline_value(&text).and_then(|value| value.try_into().ok())),
            None => match self.file_value(section, "extra") {
                Some(value) => value.clone().try_into().ok(),
                None => return Ok(serde_json::Map::new()),
            },
        };
        let said = "must be a table, like { temperature = 0.2 } or {\"temperature\": 0.2}; dates are not allowed";
        found
            .ok_or(SettingsError::Value { key: variable_name(section, "extra"), said: said.into() })
    }

    fn model(&self, role: &'static str) -> Result<ModelSettings, SettingsError> {
        let named = self.text(role, "provider")?;
        let (base_url, model) = (self.text(role, "base_url")?, self.text(role, "model")?);
        let provider = match named.as_deref().map(str::trim) {
            Some("openai") => Provider::OpenAi,
            Some("anthropic") => Provider::Anthropic,
            Some("command") => Provider::Command,
            Some("none") => Provider::None,
            Some(other) => {
                let known = ["openai", "anthropic", "command", "none"];
                let said = format!(
                    "is {other:?}{}; choose openai, anthropic, command or none",
                    config::nearest_key_hint(other, "", known.into_iter())
                );
                return Err(SettingsError::Value { key: format!("{role}.provider"), said });
            }
            None if base_url.is_some() || model.is_some() => Provider::OpenAi,
            None => Provider::None,
        };
        let nothing = ModelSettings::none(role);
        let mut found = ModelSettings {
            provider,
            base_url: base_url.unwrap_or_else(|| provider.default_url().to_owned()),
            model: model.unwrap_or_default(),
            command: self.command(role)?,
            timeout: self.secs(role, "timeout_secs", nothing.timeout, 1)?,
            max_retry_wait: self.secs(role, "max_retry_wait_secs", nothing.max_retry_wait, 0)?,
            extra: self.extra(role)?,
            ..nothing
        };
        if let Some(most) = self.count(role, "max_input_tokens")? {
            found.max_input_tokens = u32::try_from(most).unwrap_or(u32::MAX);
        }
        // A provider that the environment sets needs no file.
        let said_by = match self.environment_value(role, "provider") {
            Some(_) => format!(" (set by {})", variable_name(role, "provider")),
            None => String::new(),
        };
        let missing = |needs, key| {
            let said_by = said_by.clone();
            SettingsError::Missing {
                role,
                provider: provider.word(),
                said_by,
                needs,
                variable: variable_name(role, key),
            }
        };
        match provider {
            Provider::None => {}
            Provider::Command if found.command.is_empty() => {
                return Err(missing("a command", "command"));
            }
            Provider::Command => {}
            Provider::OpenAi | Provider::Anthropic => {
                if found.model.is_empty() {
                    return Err(missing("a model", "model"));
                }
                let url = found.endpoint()?;
                found.api_key = self.key(role, &url, provider)?;
                let at_vendor = is_default_url(&url, provider);
                if found.api_key.is_none() && at_vendor && named.is_some() {
                    found.api_key = (self.environment)(&format!(
                        "{}_API_KEY",
                        provider.word().to_ascii_uppercase()
                    ))
                    .map(to_secret);
                }
                if found.api_key.is_none() && at_vendor {
                    return Err(missing("an api_key or api_key_file", "api_key"));
                }
                // Checked again, now that it is known whether there is a key to protect.
                found.endpoint()?;
            }
        }
        Ok(found)
    }

    /// The key for `url`. It is read from where the address was set, so that a caller who can set
    /// only the address never receives a key that was meant for another one.
    fn key(
        &self,
        role: &'static str,
        url: &Url,
        provider: Provider,
    ) -> Result<Option<SecretString>, SettingsError> {
        let both = |key: String| SettingsError::Value {
            key,
            said: "and its _file variant are both set; keep one".into(),
        };
        let wrong = |key: String, said: &str| SettingsError::Value { key, said: said.into() };
        let in_file = |key| {
            self.file_value(role, key)
                .and_then(Value::as_str)
                .map(str::to_owned)
                .filter(|text| !text.trim().is_empty())
        };
        let set_here =
            (self.environment_value(role, "api_key"), self.environment_value(role, "api_key_file"));
        let from_environment = set_here.0.is_some() || set_here.1.is_some();
        let (given, place) = if from_environment {
            (set_here, variable_name(role, "api_key"))
        } else {
            ((in_file("api_key"), in_file("api_key_file")), format!("{role}.api_key"))
        };
        let key = match given {
            (Some(_), Some(_)) => return Err(both(place)),
            (Some(key), None) => key,
            (None, Some(path)) => (self.read_file)(path.trim()).map_err(|error| {
                wrong(
                    format!("{place}_file"),
                    &format!("names {path}, which cannot be read: {error}"),
                )
            })?,
            (None, None) => return Ok(None),
        };
        if !from_environment && self.environment_value(role, "base_url").is_some() {
            let own = in_file("base_url").unwrap_or_else(|| provider.default_url().to_owned());
            if !Url::parse(own.trim()).is_ok_and(|own| own.origin() == url.origin()) {
                let said = format!(
                    "sends {role} to another server than config.toml does, and the key there was not set for that server; set {} too",
                    variable_name(role, "api_key")
                );
                return Err(wrong(variable_name(role, "base_url"), &said));
            }
        }
        let key = to_secret(key);
        let shown = key.expose_secret();
        if shown.is_empty()
            || shown.len() > MAX_KEY_BYTES
            || !shown.bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(wrong(
                place,
                "is not a key: a key is one line of visible ASCII without spaces",
            ));
        }
        Ok(Some(key))
    }
}

fn to_secret(text: String) -> SecretString {
    SecretString::from(text.trim().to_owned())
}

fn parse_inline_value(text: &str) -> Option<Value> {
    format!("it = {}", text.trim()).parse::<Table>().ok()?.remove("it")
}

fn is_default_url(url: &Url, provider: Provider) -> bool {
    Url::parse(provider.default_url()).is_ok_and(|own| own.origin() == url.origin())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk-hush-4711";

    fn read(text: &str, environment: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let environment = |name: &str| {
            environment
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        let files = |path: &str| match path {
            "/run/key" => Ok(format!("{KEY}\n")),
            "/run/novel" => Ok("once upon\na time".into()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        Settings::read(Some(text), &environment, &files)
    }

    fn key(model: &ModelSettings) -> Option<&str> {
        model.api_key.as_ref().map(|key| key.expose_secret())
    }

    fn check(text: &str, environment: &[(&str, &str)], complaint: &str) {
        let mistake =
            read(text, environment).map(|settings| settings.to_toml()).unwrap_err().to_string();
        assert!(mistake.contains(complaint), "{mistake}\n has no\n{complaint}");
        assert!(!mistake.contains(KEY), "{mistake}");
    }

    #[test]
    fn nothing_set_is_no_model_and_the_defaults() {
        let settings = Settings::read(None, &|_| None, &|_| Ok(String::new())).unwrap();
        assert_eq!(
            (settings.summarizer.provider, settings.chat.provider),
            (Provider::None, Provider::None)
        );
        assert_eq!(settings.spend.tokens_per_day, 2_000_000);
        assert_eq!(settings.server.addr.to_string(), "127.0.0.1:7431");
        assert_eq!(
            (settings.chat.timeout.as_secs(), settings.chat.max_input_tokens),
            (120, 24_000)
        );
    }

    #[test]
    fn the_environment_wins_key_by_key() {
        let text = "[summarizer]\nbase_url = \"http://127.0.0.1:11434/v1\"\nmodel = \"a\"\ntimeout_secs = 7\nextra = { temperature = 0.2 }\n\
                    [chat]\nprovider = \"command\"\ncommand = [\"claude\", \"-p\"]\n[spend]\ntokens_per_day = 2_000\n";
        let settings = read(text, &[]).unwrap();
        assert_eq!(
            (settings.summarizer.provider, settings.summarizer.model.as_str()),
            (Provider::OpenAi, "a")
        );
        assert_eq!(settings.summarizer.extra["temperature"], 0.2);
        assert_eq!((settings.chat.command.len(), settings.spend.tokens_per_day), (2, 2000));
        let environment = [
            ("ICECORE_SUMMARIZER_MODEL", "b"),
            ("ICECORE_SUMMARIZER_TIMEOUT_SECS", "9"),
            ("ICECORE_SUMMARIZER_EXTRA", "{\"top_p\": 1}"),
            ("ICECORE_CHAT_COMMAND", "[\"my model\", \"x\", \"y\"]"),
            ("ICECORE_SPEND_TOKENS_PER_DAY", "5_000"),
            ("ICECORE_SERVER_ADDR", "[::1]:0"),
            ("ICECORE_SUMMARIZER_BASE_URL", " "),
        ];
        let settings = read(text, &environment).unwrap();
        assert_eq!(
            (settings.summarizer.model.as_str(), settings.summarizer.timeout.as_secs()),
            ("b", 9)
        );
        assert_eq!(settings.summarizer.base_url, "http://127.0.0.1:11434/v1");
        assert_eq!(
            (settings.summarizer.extra.len(), settings.chat.command[0].as_str()),
            (1, "my model")
        );
        assert_eq!((settings.spend.tokens_per_day, settings.server.addr.port()), (5000, 0));
        assert_eq!(
            read(
                "",
                &[("ICECORE_CHAT_COMMAND", "claude -p"), ("ICECORE_CHAT_PROVIDER", "command")]
            )
            .unwrap()
            .chat
            .command,
            ["claude", "-p"]
        );
    }

    #[test]
    fn a_mistake_says_what_is_wrong_and_what_was_meant() {
        check("[summarizr]\n", &[], "did you mean `summarizer`?");
        check("[summarizer]\nmodle = \"x\"\n", &[], "did you mean `summarizer.model`?");
        check("[summarizer]\nprovider = \"opnai\"\n", &[], "did you mean `openai`?");
        check(
            "[summarizer]\nprovider = \"openai\"\n",
            &[],
            "needs a model; set it in config.toml or as ICECORE_SUMMARIZER_MODEL",
        );
        let by_variable = [("ICECORE_CHAT_PROVIDER", "openai")];
        check(
            "",
            &by_variable,
            "(set by ICECORE_CHAT_PROVIDER), which needs a model; set it in config.toml or as ICECORE_CHAT_MODEL",
        );
        check("[chat]\nprovider = \"command\"\n", &[], "needs a command");
        check("[chat]\nprovider = \"anthropic\"\nmodel = \"c\"\n", &[], "needs an api_key");
        check("[chat]\ntimeout_secs = \"x\"\n", &[], "chat.timeout_secs must be a whole number");
        check("[chat]\ntimeout_secs = 0\n", &[], "from 1 to");
        check("[spend]\ntokens_per_day = -1\n", &[], "0 or more");
        check(
            "",
            &[("ICECORE_SPEND_TOKENS_PER_DAY", "many")],
            "ICECORE_SPEND_TOKENS_PER_DAY must be a whole number",
        );
        check("[server]\naddr = \"here\"\n", &[], "127.0.0.1:7431");
        check("chat = 3\n", &[], "write [chat]");
        check(&format!("[chat]\napi_key = \"{KEY}\nmodel = 3\n"), &[], "in line 2");
        check(
            &format!("[chat]\nmodel = \"m\"\napi_key = \"{KEY}\"\napi_key_file = \"/run/key\"\n"),
            &[],
            "both set",
        );
        check("[chat]\nmodel = \"m\"\napi_key_file = \"/nowhere\"\n", &[], "cannot be read");
        check("[chat]\nmodel = \"m\"\napi_key_file = \"/run/novel\"\n", &[], "is not a key");
    }

    #[test]
    fn an_address_that_would_give_the_key_away_is_refused() {
        let with = |url: &str| {
            format!("[chat]\nmodel = \"m\"\nbase_url = \"{url}\"\napi_key = \"{KEY}\"\n")
        };
        check(&with("http://example.org/v1"), &[], "use https://");
        check(&with("http://localhost.example.org/v1"), &[], "use https://");
        check(&with("http://0.0.0.0/v1"), &[], "use https://");
        check(&with("https://me:pw@example.org/v1"), &[], "name or a password");
        check(&with("https://example.org/v1?key=x"), &[], "leave that out");
        check(&with("ftp://example.org"), &[], "neither http://");
        check(&with("nonsense"), &[], "is not an address");
        for url in [
            "https://example.org/v1",
            "http://127.0.0.1:1/v1",
            "http://localhost/v1",
            "http://[::1]:3/v1",
            "http://127.1/v1",
        ] {
            assert_eq!(key(&read(&with(url), &[]).unwrap().chat), Some(KEY), "{url}");
        }
        assert_eq!(
            key(&read("[chat]\nmodel = \"m\"\nbase_url = \"http://192.168.0.2:11434/v1\"\n", &[])
                .unwrap()
                .chat),
            None
        );
    }

    #[test]
    fn a_key_goes_only_where_it_was_given_for() {
        let file = format!("[chat]\nprovider = \"openai\"\nmodel = \"m\"\napi_key = \"{KEY}\"\n");
        let elsewhere = ("ICECORE_CHAT_BASE_URL", "https://evil.example/v1");
        check(&file, &[elsewhere], "set ICECORE_CHAT_API_KEY too");
        assert_eq!(
            key(&read(&file, &[elsewhere, ("ICECORE_CHAT_API_KEY", "other")]).unwrap().chat),
            Some("other")
        );
        assert_eq!(
            key(&read(&file, &[("ICECORE_CHAT_BASE_URL", "https://api.openai.com/v2")])
                .unwrap()
                .chat),
            Some(KEY)
        );

        let vendor = "[chat]\nprovider = \"openai\"\nmodel = \"m\"\n";
        let keys = [("OPENAI_API_KEY", KEY), ("ANTHROPIC_API_KEY", "no")];
        assert_eq!(key(&read(vendor, &keys).unwrap().chat), Some(KEY));
        assert_eq!(
            key(&read(&format!("{vendor}base_url = \"https://example.org/v1\"\n"), &keys)
                .unwrap()
                .chat),
            None
        );
        check("[chat]\nmodel = \"m\"\n", &keys, "needs an api_key");
        assert_eq!(
            key(&read("[chat]\nprovider = \"anthropic\"\nmodel = \"m\"\n", &keys).unwrap().chat),
            Some("no")
        );
        assert_eq!(
            key(&read(&format!("{vendor}api_key_file = \"/run/key\"\n"), &[]).unwrap().chat),
            Some(KEY)
        );
        let by_variable = [("ICECORE_CHAT_API_KEY_FILE", "/run/key")];
        assert_eq!(
            key(&read(&format!("{vendor}api_key = \"old\"\n"), &by_variable).unwrap().chat),
            Some(KEY)
        );
    }

    #[test]
    fn an_old_key_is_read_with_a_warning_that_names_the_new_one() {
        let settings = read("[store]\npatience_seconds = 7\n", &[]).unwrap();
        assert_eq!(settings.store.connection_timeout.as_secs(), 7);
        assert_eq!(
            settings.warnings,
            [
                "config.toml sets `store.patience_seconds`, which is now called `store.connection_timeout_secs`; rename it"
            ]
        );
        let both = "[store]\npatience_seconds = 7\nconnection_timeout_secs = 8\n";
        let settings = read(both, &[]).unwrap();
        assert_eq!((settings.store.connection_timeout.as_secs(), settings.warnings.len()), (8, 1));
        let old = ("ICECORE_STORE_PATIENCE_SECONDS", "3");
        let settings = read("", &[old]).unwrap();
        assert_eq!(settings.store.connection_timeout.as_secs(), 3);
        assert_eq!(
            settings.warnings,
            [
                "ICECORE_STORE_PATIENCE_SECONDS is now called ICECORE_STORE_CONNECTION_TIMEOUT_SECS; rename it"
            ]
        );
        let new = ("ICECORE_STORE_CONNECTION_TIMEOUT_SECS", "4");
        let settings = read("", &[old, new]).unwrap();
        assert_eq!((settings.store.connection_timeout.as_secs(), settings.warnings.len()), (4, 1));
        let model =
            "[chat]\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"\nretry_cap_secs = 5\n";
        assert_eq!(read(model, &[]).unwrap().chat.max_retry_wait.as_secs(), 5);
        check("[store]\nconnections = 1\n", &[], "store.connections must be from");
        check("[store]\nconnections = \"x\"\n", &[], "store.connections must be a whole number");
        check(
            "",
            &[("ICECORE_STORE_PATIENCE_SECONDS", "x")],
            "ICECORE_STORE_PATIENCE_SECONDS must be a whole number",
        );
        assert!(read("", &[]).unwrap().warnings.is_empty());
    }

    #[test]
    fn what_is_shown_holds_no_key_and_reads_back() {
        let file = format!(
            "[chat]\nprovider = \"openai\"\nmodel = \"m\"\napi_key = \"{KEY}\"\nextra = {{ temperature = 0.2 }}\n"
        );
        let settings = read(&file, &[]).unwrap();
        assert!(settings.to_toml().contains("api_key = \"(set)\""), "{}", settings.to_toml());
        assert!(!settings.to_toml().contains(KEY) && !format!("{settings:?}").contains(KEY));
        assert_eq!(read(&settings.to_toml(), &[]).unwrap().to_toml(), settings.to_toml());
        assert!(
            Settings::contains_key(&file) && !Settings::contains_key("[chat]\nmodel = \"m\"\n")
        );
    }
}
