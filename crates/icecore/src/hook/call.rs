//! The arguments of `icecore hook`, parsed without clap: no argument may cause an error.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use crate::bootstrap::StoreSelection;
use crate::cli::GLOBAL_OPTIONS_WITH_VALUE;

/// The event of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookEvent {
    SessionStart,
    UserPromptSubmit,
    PreCompact,
    PostCompact,
    Stop,
    SubagentStop,
    SessionEnd,
    /// Any other event; clients add more with every version.
    Other,
}

impl HookEvent {
    /// Parses our name of an event or a client's name.
    fn parse(word: &str) -> Self {
        let plain: String = word
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect::<String>()
            .to_ascii_lowercase();
        match plain.as_str() {
            "sessionstart" => Self::SessionStart,
            "userpromptsubmit" => Self::UserPromptSubmit,
            "precompact" => Self::PreCompact,
            "postcompact" => Self::PostCompact,
            "stop" => Self::Stop,
            "subagentstop" => Self::SubagentStop,
            "sessionend" => Self::SessionEnd,
            _ => Self::Other,
        }
    }

    /// Our name of the event.
    pub fn word(self) -> &'static str {
        match self {
            Self::SessionStart => "session-start",
            Self::UserPromptSubmit => "user-prompt-submit",
            Self::PreCompact => "pre-compact",
            Self::PostCompact => "post-compact",
            Self::Stop => "stop",
            Self::SubagentStop => "subagent-stop",
            Self::SessionEnd => "session-end",
            Self::Other => "other",
        }
    }

    /// The client's name of the event, if the client accepts text for it. At other events text
    /// would make the client continue, or is ignored.
    pub fn client_name(self) -> Option<&'static str> {
        match self {
            Self::SessionStart => Some("SessionStart"),
            Self::UserPromptSubmit => Some("UserPromptSubmit"),
            _ => None,
        }
    }

    /// Whether the event brings text to store.
    pub fn carries_text(self) -> bool {
        matches!(self, Self::UserPromptSubmit | Self::Stop | Self::SubagentStop | Self::PostCompact)
    }

    /// The time limit; shorter than the client's own.
    pub fn timeout(self) -> Duration {
        Duration::from_millis(match self {
            Self::SessionStart => 6_000,
            Self::UserPromptSubmit => 3_000,
            Self::PreCompact => 8_000,
            Self::PostCompact => 5_000,
            Self::Stop => 3_000,
            Self::SubagentStop => 6_000,
            // The client grants 1.5 s to all hooks together.
            Self::SessionEnd => 1_000,
            Self::Other => 2_000,
        })
    }
}

/// The client that calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookClient {
    ClaudeCode,
    Codex,
}

impl HookClient {
    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
        }
    }
}

/// A call of `icecore hook`.
#[derive(Clone, PartialEq, Eq)]
pub struct HookCall {
    pub event: HookEvent,
    pub vault: Option<PathBuf>,
    /// Whether the vault was given on the command line.
    pub vault_is_meant: bool,
    pub store: Option<String>,
    pub space: Option<String>,
    pub now: Option<String>,
    pub client: Option<HookClient>,
    /// Called by this program itself, to read sessions that have ended.
    pub finish: bool,
}

const HOOK_COMMAND: &str = "hook";
/// The command beneath it that shows what hooks injected.
const LOG: &str = "log";
/// The only option of `hook` that takes a value.
const CLIENT_OPTION: &str = "--client";

/// Whether an argument is an option with a value. Listed here because building the clap parser is
/// too slow for a hook.
fn takes_value(word: &str) -> bool {
    word == CLIENT_OPTION || GLOBAL_OPTIONS_WITH_VALUE.contains(&word)
}

/// Separates plain arguments from options with their values. With `spares_command` an option does
/// not consume the word `hook`, because its own value is missing.
fn split_options(
    words: &[OsString],
    spares_command: bool,
) -> (Vec<&OsStr>, Vec<(String, OsString)>) {
    let (mut plain, mut options) = (Vec::new(), Vec::new());
    let mut words = words.iter().skip(1).peekable();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        if let Some((name, value)) = text.split_once('=').filter(|(name, _)| takes_value(name)) {
            options.push((name.to_owned(), value.into()));
        } else if takes_value(&text) {
            let value = words.next_if(|word| !(spares_command && *word == HOOK_COMMAND));
            options.push((text.into_owned(), value.cloned().unwrap_or_default()));
        } else if text.starts_with('-') && text.len() > 1 {
            options.push((text.into_owned(), OsString::new()));
        } else {
            plain.push(word.as_os_str());
        }
    }
    (plain, options)
}

/// Whether the arguments call a hook: `hook` is the command, or would be without a mistake that
/// clap would answer with exit code 2, which clients obey.
pub fn is_hook_call(words: &[OsString], is_command: impl Fn(&str) -> bool) -> bool {
    let (plain, options) = split_options(words, false);
    // On a terminal --help prints the help.
    let asks = options.iter().any(|(name, _)| name == "--help" || name == "-h");
    if asks && std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        return false;
    }
    // `is_command` builds the parser; only calls with the word `hook` pay for it.
    if !plain.iter().any(|word| *word == HOOK_COMMAND)
        && !options.iter().any(|(_, value)| value == HOOK_COMMAND)
    {
        return false;
    }
    match plain.iter().position(|word| word.to_str().is_some_and(&is_command)) {
        // `icecore hook log` is not an event but a command for people.
        Some(at) => {
            plain[at] == HOOK_COMMAND && plain.get(at + 1).is_none_or(|event| *event != LOG)
        }
        // `--vault $UNSET hook stop`: the option consumed the command, and no other command is
        // left.
        None => options.iter().any(|(_, value)| value == HOOK_COMMAND),
    }
}

impl HookCall {
    /// The store that the arguments select.
    pub fn store_selection(&self) -> StoreSelection {
        let (vault, store, space) =
            (self.vault.clone(), self.store.as_deref().map(Into::into), self.space.clone());
        StoreSelection {
            vault,
            is_meant: self.vault_is_meant,
            store,
            space,
            is_hurried: !self.finish,
        }
    }

    /// Parses the arguments of a hook call. Never fails: a hook must not block its client.
    pub fn parse(words: &[OsString]) -> Self {
        let (mut plain, mut options) = split_options(words, false);
        if !plain.iter().any(|word| *word == HOOK_COMMAND) {
            (plain, options) = split_options(words, true);
        }
        let event = plain
            .iter()
            .skip_while(|word| **word != HOOK_COMMAND)
            .nth(1)
            .map_or_else(String::new, |word| word.to_string_lossy().into_owned());
        let last = |wanted: &str| {
            options.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value)
        };
        let meant = last("--vault").filter(|vault| !vault.is_empty()).cloned();
        let vault_is_meant = meant.is_some();
        let vault = meant.or_else(|| std::env::var_os("ICECORE_VAULT"));
        let text = |name: &str| {
            last(name)
                .map(|value| value.to_string_lossy().into_owned())
                .filter(|value| !value.is_empty())
        };
        Self {
            event: HookEvent::parse(&event),
            vault: vault.filter(|vault| !vault.is_empty()).map(PathBuf::from),
            vault_is_meant,
            store: text("--store"),
            space: text("--space")
                .or_else(|| std::env::var("ICECORE_SPACE").ok().filter(|name| !name.is_empty())),
            now: last("--now").map(|now| now.to_string_lossy().into_owned()),
            client: last(CLIENT_OPTION).and_then(|name| match name.to_str() {
                Some("codex") => Some(HookClient::Codex),
                Some("claude-code" | "claude") => Some(HookClient::ClaudeCode),
                _ => None,
            }),
            finish: options.iter().any(|(name, _)| name == "--finish"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        std::iter::once("icecore").chain(line.split_whitespace()).map(OsString::from).collect()
    }

    fn check(line: &str, meant: bool, event: HookEvent, vault: Option<&str>) {
        let words = words(line);
        let is_command = |word: &str| ["hook", "remember", "status", "help"].contains(&word);
        assert_eq!(is_hook_call(&words, is_command), meant, "{line}");
        if meant {
            let call = HookCall::parse(&words);
            assert_eq!((call.event, call.vault), (event, vault.map(PathBuf::from)), "{line}");
        }
    }

    #[test]
    fn a_hook_is_recognised_whatever_stands_around_it() {
        check("hook stop", true, HookEvent::Stop, None);
        check(
            "--vault /v hook session-start --client codex",
            true,
            HookEvent::SessionStart,
            Some("/v"),
        );
        check("hook SessionStart --vault=/v", true, HookEvent::SessionStart, Some("/v"));
        check(
            "hook user_prompt_submit --vault /a --vault /v",
            true,
            HookEvent::UserPromptSubmit,
            Some("/v"),
        );
        check("--bogus x hook pre-compact -x --y=z more", true, HookEvent::PreCompact, None);
        check("--json -q hook post-compact", true, HookEvent::PostCompact, None);
        check("hook", true, HookEvent::Other, None);
        check("hook some-later-event", true, HookEvent::Other, None);
        check("hook subagent-stop --vault", true, HookEvent::SubagentStop, None);
        check("--color always hook session-end", true, HookEvent::SessionEnd, None);
        // An option without its value, as when a shell's variable is not set.
        check("--vault hook stop", true, HookEvent::Stop, None);
        check(
            "--now hook user-prompt-submit --vault /v",
            true,
            HookEvent::UserPromptSubmit,
            Some("/v"),
        );
        check("--vault hook status", false, HookEvent::Other, None);
        check("--vault hook hook stop", true, HookEvent::Stop, Some("hook"));
        check("remember hook", false, HookEvent::Other, None);
        check("help hook", false, HookEvent::Other, None);
        check("hook log", false, HookEvent::Other, None);
        check("--vault /v hook log --last 20", false, HookEvent::Other, None);
        check("hook stop log", true, HookEvent::Stop, None);
        check("", false, HookEvent::Other, None);
    }

    // clap is the reference.
    #[test]
    fn the_options_with_values_are_those_of_the_parser() {
        let parser = crate::cli::command();
        let hook = parser.find_subcommand(HOOK_COMMAND).unwrap();
        let options = parser
            .get_arguments()
            .chain(hook.get_arguments())
            .filter(|option| option.get_action().takes_values());
        let mut known: Vec<String> =
            options.filter_map(|option| Some(format!("--{}", option.get_long()?))).collect();
        let mut listed: Vec<String> = GLOBAL_OPTIONS_WITH_VALUE
            .iter()
            .chain([&CLIENT_OPTION])
            .map(ToString::to_string)
            .collect();
        known.sort();
        // Options of every command are there again beneath `hook`.
        known.dedup();
        listed.sort();
        assert_eq!(listed, known);
    }

    #[test]
    fn words_that_are_no_text_are_no_reason_to_fail() {
        use std::os::unix::ffi::OsStringExt;
        let odd = || OsString::from_vec(vec![0xff, 0xfe]);
        let words = vec!["icecore".into(), odd(), "hook".into(), odd(), "--vault".into(), odd()];
        assert!(is_hook_call(&words, |word| word == "hook"));
        assert_eq!(HookCall::parse(&words).event, HookEvent::Other);
    }
}
