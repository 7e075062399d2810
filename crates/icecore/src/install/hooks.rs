//! The hooks: which events of a client call icecore, and their settings.
//!
//! One table serves Claude Code, Codex and the plugin. It was tested with the clients themselves:
//! Claude Code before 2.1.101 ignores a whole settings file that names an unknown event, and before
//! 2.1.139 it ignores `args`. So a hook is one shell line, and only events that the installed
//! version supports are named.

use super::json::{self, JsonNode, JsonTree, PathStep};
use super::version::Version;
use super::{Invocation, SettingsError};

/// The assumed version of a Claude Code that does not report one: the first with every event but
/// `PostCompact`.
pub const ASSUMED_CLAUDE_CODE: Version = Version(1, 0, 85);
/// The limit of Codex for `SessionEnd` hooks; it warns at every start about more.
const CODEX_SESSION_END_SECS: u64 = 3;

/// One event that calls icecore.
pub struct ClientHook {
    /// The client's name of the event.
    pub event: &'static str,
    /// The matcher, for events with several kinds.
    pub matcher: Option<&'static str>,
    /// Our name of the event.
    pub name: &'static str,
    /// The first Claude Code that supports it.
    pub since: Version,
    /// The timeout, if not the client's default.
    pub timeout_secs: Option<u64>,
}

const fn hook(
    event: &'static str,
    name: &'static str,
    since: Version,
    timeout_secs: Option<u64>,
) -> ClientHook {
    ClientHook { event, matcher: None, name, since, timeout_secs }
}

/// Every event that calls icecore.
pub const HOOKS: &[ClientHook] = &[
    ClientHook {
        matcher: Some("startup|resume|clear|compact|fork"),
        ..hook("SessionStart", "session-start", Version(1, 0, 62), Some(10))
    },
    hook("UserPromptSubmit", "user-prompt-submit", Version(1, 0, 53), Some(5)),
    ClientHook {
        matcher: Some("manual|auto"),
        ..hook("PreCompact", "pre-compact", Version(1, 0, 48), Some(10))
    },
    ClientHook {
        matcher: Some("manual|auto"),
        ..hook("PostCompact", "post-compact", Version(2, 1, 76), Some(10))
    },
    // Not in the background: `claude -p` kills background hooks at its end, and the last reply
    // would be lost.
    hook("Stop", "stop", Version(1, 0, 38), Some(5)),
    hook("SubagentStop", "subagent-stop", Version(1, 0, 41), Some(10)),
    hook("SessionEnd", "session-end", Version(1, 0, 85), Some(5)),
];

/// The fields of a handler that icecore sets.
const OWN_FIELDS: &[&str] = &["type", "command", "args", "async", "timeout"];

/// The client whose settings hold the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookDialect {
    ClaudeCode,
    Codex,
    /// The plugin for Claude Code, where a timeout does not extend the end of a session.
    Plugin,
}

impl HookDialect {
    /// The events that this version of the client does not support.
    pub fn unsupported_hooks(
        self,
        version: Option<Version>,
    ) -> impl Iterator<Item = &'static ClientHook> {
        HOOKS.iter().filter(move |hook| !self.supports(hook, version))
    }

    fn supports(self, hook: &ClientHook, version: Option<Version>) -> bool {
        // Codex ignores unknown events; a plugin may be read by any version.
        self != Self::ClaudeCode || hook.since <= version.unwrap_or(ASSUMED_CLAUDE_CODE)
    }

    fn supported_hooks(
        self,
        version: Option<Version>,
    ) -> impl Iterator<Item = &'static ClientHook> {
        HOOKS.iter().filter(move |hook| self.supports(hook, version))
    }
}

impl ClientHook {
    fn handler(&self, dialect: HookDialect, caller: &Invocation) -> Vec<(&'static str, JsonTree)> {
        let vault = caller.vault.iter().flat_map(|vault| ["--vault", vault.as_str()]);
        let line: Vec<String> = [caller.command.as_str(), "hook", self.name]
            .into_iter()
            .chain(vault)
            .map(shell_quote)
            .collect();
        let mut fields =
            vec![("type", JsonTree::text("command")), ("command", JsonTree::text(line.join(" ")))];
        let timeout_secs = if self.event != "SessionEnd" {
            self.timeout_secs
        } else if dialect == HookDialect::Plugin {
            // For a plugin a timeout does not extend the end of a session.
            None
        } else if dialect == HookDialect::Codex {
            Some(CODEX_SESSION_END_SECS)
        } else {
            self.timeout_secs
        };
        fields.extend(timeout_secs.map(|seconds| ("timeout", JsonTree::Number(seconds))));
        fields
    }

    fn group(&self, dialect: HookDialect, caller: &Invocation) -> JsonTree {
        let matcher = self.matcher.map(|matcher| ("matcher", JsonTree::text(matcher)));
        let handlers =
            ("hooks", JsonTree::List(vec![JsonTree::Object(self.handler(dialect, caller))]));
        JsonTree::Object(matcher.into_iter().chain([handlers]).collect())
    }
}

/// All hooks, as an object by event.
pub fn all_hooks(dialect: HookDialect, caller: &Invocation) -> JsonTree {
    JsonTree::Object(
        dialect
            .supported_hooks(caller.version)
            .map(|hook| (hook.event, JsonTree::List(vec![hook.group(dialect, caller)])))
            .collect(),
    )
}

/// Quotes a word for a POSIX shell.
fn shell_quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Splits a POSIX shell line into words; handles quotes and backslashes only.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut begun) = (Vec::new(), String::new(), false);
    let (mut quote, mut letters) = (None, line.chars());
    while let Some(c) = letters.next() {
        match (quote, c) {
            (None, ' ' | '\t') => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
                continue;
            }
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), c) if c == open => quote = None,
            (None | Some('"'), '\\') => word.extend(letters.next()),
            (_, c) => word.push(c),
        }
        begun = true;
    }
    if begun {
        words.push(word);
    }
    words
}

/// Whether a program is icecore, by its name.
pub fn is_our_program(command: &str) -> bool {
    let name = command.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.strip_suffix(".exe").or_else(|| name.strip_suffix(".EXE")).unwrap_or(name);
    name == "icecore"
}

/// The program and arguments of a handler.
fn handler_command(handler: &JsonNode) -> Option<Vec<String>> {
    let command = handler.get("command")?.text()?;
    match handler.get("args") {
        Some(args) => Some(
            std::iter::once(command.to_owned())
                .chain(args.items().iter().filter_map(JsonNode::text).map(str::to_owned))
                .collect(),
        ),
        None => Some(shell_words(command)),
    }
}

fn is_ours(handler: &JsonNode) -> bool {
    let Some(call) = handler_command(handler) else { return false };
    call.first().is_some_and(|program| is_our_program(program))
        && call.iter().skip(1).any(|word| word == "hook")
}

/// The position of one of our handlers.
struct HandlerPosition {
    event: String,
    group: usize,
    handler: usize,
}

fn own_handlers(root: &JsonNode) -> Vec<HandlerPosition> {
    let mut found = Vec::new();
    for event in root.get("hooks").map(JsonNode::members).unwrap_or_default() {
        for (group, node) in event.value.items().iter().enumerate() {
            let handlers = node.get("hooks").map(JsonNode::items).unwrap_or_default();
            let places = handlers.iter().enumerate().filter(|(_, handler)| is_ours(handler));
            found.extend(places.map(|(handler, _)| HandlerPosition {
                event: event.name.clone(),
                group,
                handler,
            }));
        }
    }
    found
}

/// The vault that our hooks name.
pub fn bound_vault(text: &str) -> Option<String> {
    let root = json::parse(text).ok()??;
    let place = own_handlers(&root).into_iter().next()?;
    let handler = root
        .get("hooks")?
        .get(&place.event)?
        .items()
        .get(place.group)?
        .get("hooks")?
        .items()
        .get(place.handler)?;
    let call = handler_command(handler)?;
    call.iter().skip_while(|word| *word != "--vault").nth(1).cloned()
}

/// Whether the settings disable all hooks.
pub fn are_disabled(text: &str) -> bool {
    let root = json::parse(text).ok().flatten();
    root.is_some_and(|root| {
        root.get("disableAllHooks")
            .is_some_and(|off| matches!(off.kind, json::NodeKind::Flag(true)))
    })
}

fn check_hooks(root: &JsonNode, dialect: HookDialect) -> Result<(), SettingsError> {
    if !root.is_object() {
        return Err(SettingsError::Unlike("the content", "an object"));
    }
    if dialect == HookDialect::Codex
        && let Some(other) = root
            .members()
            .iter()
            .find(|member| !["description", "hooks"].contains(&member.name.as_str()))
    {
        return Err(SettingsError::Unknown(other.name.clone()));
    }
    super::require_unique(root, "hooks")?;
    let Some(hooks) = root.get("hooks") else { return Ok(()) };
    if !hooks.is_object() {
        return Err(SettingsError::Unlike("`hooks`", "an object"));
    }
    for hook in HOOKS {
        super::require_unique(hooks, hook.event)?;
        if hooks.get(hook.event).is_some_and(|event| !matches!(event.kind, json::NodeKind::List(_)))
        {
            return Err(SettingsError::Unlike(hook.event, "a list"));
        }
    }
    Ok(())
}

/// The settings with every supported hook.
pub fn connect(
    text: &str,
    dialect: HookDialect,
    caller: &Invocation,
) -> Result<String, SettingsError> {
    let root = json::parse(text)?;
    if let Some(root) = &root {
        check_hooks(root, dialect)?;
    }
    if dialect.supported_hooks(caller.version).next().is_none() {
        return disconnect(text, None);
    }
    let Some(root) = root else {
        return Ok(super::with_root_value(
            text,
            &JsonTree::Object(vec![("hooks", all_hooks(dialect, caller))]),
        ));
    };
    if root.get("hooks").is_none() {
        return Ok(json::insert_value(text, &[], Some("hooks"), &all_hooks(dialect, caller))?);
    }
    let mut text = text.to_owned();
    for hook in dialect.supported_hooks(caller.version) {
        text = with_hook(text, hook, dialect, caller)?;
    }
    // Remove handlers of another version of the program or of the client.
    let belongs = |place: &HandlerPosition| {
        dialect.supported_hooks(caller.version).any(|hook| hook.event == place.event)
    };
    without_handlers(text, |place| !belongs(place), |_| false)
}

fn with_hook(
    mut text: String,
    hook: &ClientHook,
    dialect: HookDialect,
    caller: &Invocation,
) -> Result<String, SettingsError> {
    let (in_hooks, in_event) =
        ([PathStep::Field("hooks")], [PathStep::Field("hooks"), PathStep::Field(hook.event)]);
    loop {
        let Some(root) = json::parse(&text)? else { return Ok(text) };
        let groups = root.get("hooks").and_then(|hooks| hooks.get(hook.event)).map(JsonNode::items);
        let Some(groups) = groups else {
            let list = JsonTree::List(vec![hook.group(dialect, caller)]);
            return Ok(json::insert_value(&text, &in_hooks, Some(hook.event), &list)?);
        };
        let mut places = own_handlers(&root).into_iter().filter(|place| place.event == hook.event);
        let Some(place) = places.next() else {
            return Ok(json::insert_value(&text, &in_event, None, &hook.group(dialect, caller))?);
        };
        if let Some(second) = places.next_back() {
            text = without_handler(&text, &second, &|_| true)?;
            continue;
        }
        let group = &groups[place.group];
        let alone = group.get("hooks").map_or(0, |handlers| handlers.items().len()) == 1;
        let fits = match hook.matcher {
            Some(matcher) => group.get("matcher").and_then(JsonNode::text) == Some(matcher),
            None => group.get("matcher").is_none(),
        };
        let own = [in_event[0], in_event[1], PathStep::Item(place.group)];
        match (fits, alone, hook.matcher) {
            (true, ..) => {
                let handler = [
                    own[0],
                    own[1],
                    own[2],
                    PathStep::Field("hooks"),
                    PathStep::Item(place.handler),
                ];
                return with_updated_handler(&text, &handler, &hook.handler(dialect, caller));
            }
            // In a group with other handlers: those stay, ours gets its own group.
            (false, false, _) => text = without_handler(&text, &place, &|_| true)?,
            (false, true, Some(matcher)) => {
                let matcher = JsonTree::text(matcher);
                text = match group.get("matcher") {
                    Some(_) => json::replace_value(
                        &text,
                        &[own[0], own[1], own[2], PathStep::Field("matcher")],
                        &matcher,
                    )?,
                    None => json::insert_value(&text, &own, Some("matcher"), &matcher)?,
                };
            }
            (false, true, None) => {
                text = json::remove_value(
                    &text,
                    &[own[0], own[1], own[2], PathStep::Field("matcher")],
                )?
            }
        }
    }
}

/// Updates the fields of a handler; fields that others added stay.
fn with_updated_handler(
    text: &str,
    way: &[PathStep<'_>],
    wanted: &[(&'static str, JsonTree)],
) -> Result<String, SettingsError> {
    let mut text = super::with_fields(text, way, wanted)?;
    for name in OWN_FIELDS.iter().filter(|name| !wanted.iter().any(|(known, _)| known == *name)) {
        let field: Vec<PathStep<'_>> = way.iter().copied().chain([PathStep::Field(name)]).collect();
        text = json::remove_value(&text, &field)?;
    }
    Ok(text)
}

/// The settings without our hooks. Containers that existed before, as far as known, stay even if
/// they are empty now.
pub fn disconnect(text: &str, before: Option<&str>) -> Result<String, SettingsError> {
    let before = before.and_then(|before| json::parse(before).ok()?);
    let was_there = |event: Option<&str>| {
        let hooks = before.as_ref().and_then(|before| before.get("hooks"));
        event.map_or_else(
            || hooks.is_some(),
            |event| hooks.is_some_and(|hooks| hooks.get(event).is_some()),
        )
    };
    without_handlers(text.to_owned(), |_| true, was_there)
}

fn without_handlers(
    mut text: String,
    which: impl Fn(&HandlerPosition) -> bool,
    stays: impl Fn(Option<&str>) -> bool,
) -> Result<String, SettingsError> {
    loop {
        let Some(root) = json::parse(&text)? else { return Ok(text) };
        let Some(place) = own_handlers(&root).into_iter().rfind(|place| which(place)) else {
            return Ok(text);
        };
        text = without_handler(&text, &place, &stays)?;
    }
}

/// The text without one handler, and without containers that this empties unless they `stays`.
fn without_handler(
    text: &str,
    place: &HandlerPosition,
    stays: &dyn Fn(Option<&str>) -> bool,
) -> Result<String, SettingsError> {
    let Some(root) = json::parse(text)? else { return Ok(text.to_owned()) };
    let (hooks, event) = (PathStep::Field("hooks"), PathStep::Field(place.event.as_str()));
    let way = [hooks, event, PathStep::Item(place.group), hooks, PathStep::Item(place.handler)];
    let all = root.get("hooks");
    let groups = all.and_then(|all| all.get(&place.event)).map(JsonNode::items).unwrap_or_default();
    let handlers = groups
        .get(place.group)
        .and_then(|group| group.get("hooks"))
        .map(JsonNode::items)
        .unwrap_or_default();
    let mut depth = 5;
    if handlers.len() == 1 {
        depth = 3;
        if groups.len() == 1 && !stays(Some(&place.event)) {
            depth = 2;
            if all.is_some_and(|all| all.members().len() == 1) && !stays(None) {
                depth = 1;
            }
        }
    }
    Ok(json::remove_value(text, &way[..depth])?)
}
