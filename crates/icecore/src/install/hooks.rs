//! The hooks: which events of a client call icecore, and their settings.
//!
//! One table serves Claude Code, Codex and the plugin. It was tested with the clients themselves:
//! Claude Code before 2.1.101 ignores a whole settings file that names an unknown event, and before
//! 2.1.139 it ignores `args`. So a hook is one shell line, and only events that the installed
//! version supports are named.

use super::json::{self, Node, Step, Tree};
use super::version::Version;
use super::{Caller, Refused};

/// The assumed version of a Claude Code that does not report one: the first with every event but
/// `PostCompact`.
pub const ASSUMED_CLAUDE_CODE: Version = Version(1, 0, 85);
/// The limit of Codex for `SessionEnd` hooks; it warns at every start about more.
const CODEX_SESSION_END_SECS: u64 = 3;

/// One event that calls icecore.
pub struct Hook {
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
) -> Hook {
    Hook { event, matcher: None, name, since, timeout_secs }
}

/// Every event that calls icecore.
pub const HOOKS: &[Hook] = &[
    Hook {
        matcher: Some("startup|resume|clear|compact|fork"),
        ..hook("SessionStart", "session-start", Version(1, 0, 62), Some(10))
    },
    hook("UserPromptSubmit", "user-prompt-submit", Version(1, 0, 53), Some(5)),
    Hook {
        matcher: Some("manual|auto"),
        ..hook("PreCompact", "pre-compact", Version(1, 0, 48), Some(10))
    },
    Hook {
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
const OURS: &[&str] = &["type", "command", "args", "async", "timeout"];

/// The client whose settings hold the hooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    ClaudeCode,
    Codex,
    /// The plugin for Claude Code, where a timeout does not extend the end of a session.
    Plugin,
}

impl Dialect {
    /// The events that this version of the client does not support.
    pub fn unknown_events(self, version: Option<Version>) -> impl Iterator<Item = &'static Hook> {
        HOOKS.iter().filter(move |hook| !self.knows(hook, version))
    }

    fn knows(self, hook: &Hook, version: Option<Version>) -> bool {
        // Codex ignores unknown events; a plugin may be read by any version.
        self != Self::ClaudeCode || hook.since <= version.unwrap_or(ASSUMED_CLAUDE_CODE)
    }

    fn events(self, version: Option<Version>) -> impl Iterator<Item = &'static Hook> {
        HOOKS.iter().filter(move |hook| self.knows(hook, version))
    }
}

impl Hook {
    fn handler(&self, dialect: Dialect, caller: &Caller) -> Vec<(&'static str, Tree)> {
        let vault = caller.vault.iter().flat_map(|vault| ["--vault", vault.as_str()]);
        let line: Vec<String> = [caller.command.as_str(), "hook", self.name]
            .into_iter()
            .chain(vault)
            .map(quoted)
            .collect();
        let mut fields =
            vec![("type", Tree::text("command")), ("command", Tree::text(line.join(" ")))];
        let timeout_secs = if self.event != "SessionEnd" {
            self.timeout_secs
        } else if dialect == Dialect::Plugin {
            // For a plugin a timeout does not extend the end of a session.
            None
        } else if dialect == Dialect::Codex {
            Some(CODEX_SESSION_END_SECS)
        } else {
            self.timeout_secs
        };
        fields.extend(timeout_secs.map(|seconds| ("timeout", Tree::Number(seconds))));
        fields
    }

    fn group(&self, dialect: Dialect, caller: &Caller) -> Tree {
        let matcher = self.matcher.map(|matcher| ("matcher", Tree::text(matcher)));
        let handlers = ("hooks", Tree::List(vec![Tree::Object(self.handler(dialect, caller))]));
        Tree::Object(matcher.into_iter().chain([handlers]).collect())
    }
}

/// All hooks, as an object by event.
pub fn all(dialect: Dialect, caller: &Caller) -> Tree {
    Tree::Object(
        dialect
            .events(caller.version)
            .map(|hook| (hook.event, Tree::List(vec![hook.group(dialect, caller)])))
            .collect(),
    )
}

/// Quotes a word for a POSIX shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,:@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Splits a POSIX shell line into words; handles quotes and backslashes only.
fn words(line: &str) -> Vec<String> {
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
fn call(handler: &Node) -> Option<Vec<String>> {
    let command = handler.get("command")?.text()?;
    match handler.get("args") {
        Some(args) => Some(
            std::iter::once(command.to_owned())
                .chain(args.items().iter().filter_map(Node::text).map(str::to_owned))
                .collect(),
        ),
        None => Some(words(command)),
    }
}

fn is_ours(handler: &Node) -> bool {
    let Some(call) = call(handler) else { return false };
    call.first().is_some_and(|program| is_our_program(program))
        && call.iter().skip(1).any(|word| word == "hook")
}

/// The position of one of our handlers.
struct Place {
    event: String,
    group: usize,
    handler: usize,
}

fn ours(root: &Node) -> Vec<Place> {
    let mut found = Vec::new();
    for event in root.get("hooks").map(Node::members).unwrap_or_default() {
        for (group, node) in event.value.items().iter().enumerate() {
            let handlers = node.get("hooks").map(Node::items).unwrap_or_default();
            let places = handlers.iter().enumerate().filter(|(_, handler)| is_ours(handler));
            found.extend(places.map(|(handler, _)| Place {
                event: event.name.clone(),
                group,
                handler,
            }));
        }
    }
    found
}

/// The vault that our hooks name.
pub fn pinned(text: &str) -> Option<String> {
    let root = json::read(text).ok()??;
    let place = ours(&root).into_iter().next()?;
    let handler = root
        .get("hooks")?
        .get(&place.event)?
        .items()
        .get(place.group)?
        .get("hooks")?
        .items()
        .get(place.handler)?;
    let call = call(handler)?;
    call.iter().skip_while(|word| *word != "--vault").nth(1).cloned()
}

/// Whether the settings disable all hooks.
pub fn are_off(text: &str) -> bool {
    let root = json::read(text).ok().flatten();
    root.is_some_and(|root| {
        root.get("disableAllHooks").is_some_and(|off| matches!(off.kind, json::Kind::Flag(true)))
    })
}

fn checked(root: &Node, dialect: Dialect) -> Result<(), Refused> {
    if !root.is_object() {
        return Err(Refused::Unlike("the whole of it", "an object"));
    }
    if dialect == Dialect::Codex
        && let Some(other) = root
            .members()
            .iter()
            .find(|member| !["description", "hooks"].contains(&member.name.as_str()))
    {
        return Err(Refused::Unknown(other.name.clone()));
    }
    super::once(root, "hooks")?;
    let Some(hooks) = root.get("hooks") else { return Ok(()) };
    if !hooks.is_object() {
        return Err(Refused::Unlike("`hooks`", "an object"));
    }
    for hook in HOOKS {
        super::once(hooks, hook.event)?;
        if hooks.get(hook.event).is_some_and(|event| !matches!(event.kind, json::Kind::List(_))) {
            return Err(Refused::Unlike(hook.event, "a list"));
        }
    }
    Ok(())
}

/// The settings with every supported hook.
pub fn connect(text: &str, dialect: Dialect, caller: &Caller) -> Result<String, Refused> {
    let root = json::read(text)?;
    if let Some(root) = &root {
        checked(root, dialect)?;
    }
    if dialect.events(caller.version).next().is_none() {
        return disconnect(text, None);
    }
    let Some(root) = root else {
        return Ok(super::begun(text, &Tree::Object(vec![("hooks", all(dialect, caller))])));
    };
    if root.get("hooks").is_none() {
        return Ok(json::added(text, &[], Some("hooks"), &all(dialect, caller))?);
    }
    let mut text = text.to_owned();
    for hook in dialect.events(caller.version) {
        text = with_hook(text, hook, dialect, caller)?;
    }
    // Remove handlers of another version of the program or of the client.
    let belongs =
        |place: &Place| dialect.events(caller.version).any(|hook| hook.event == place.event);
    taken_out(text, |place| !belongs(place), |_| false)
}

fn with_hook(
    mut text: String,
    hook: &Hook,
    dialect: Dialect,
    caller: &Caller,
) -> Result<String, Refused> {
    let (in_hooks, in_event) =
        ([Step::Field("hooks")], [Step::Field("hooks"), Step::Field(hook.event)]);
    loop {
        let Some(root) = json::read(&text)? else { return Ok(text) };
        let groups = root.get("hooks").and_then(|hooks| hooks.get(hook.event)).map(Node::items);
        let Some(groups) = groups else {
            let list = Tree::List(vec![hook.group(dialect, caller)]);
            return Ok(json::added(&text, &in_hooks, Some(hook.event), &list)?);
        };
        let mut places = ours(&root).into_iter().filter(|place| place.event == hook.event);
        let Some(place) = places.next() else {
            return Ok(json::added(&text, &in_event, None, &hook.group(dialect, caller))?);
        };
        if let Some(second) = places.next_back() {
            text = without(&text, &second, &|_| true)?;
            continue;
        }
        let group = &groups[place.group];
        let alone = group.get("hooks").map_or(0, |handlers| handlers.items().len()) == 1;
        let fits = match hook.matcher {
            Some(matcher) => group.get("matcher").and_then(Node::text) == Some(matcher),
            None => group.get("matcher").is_none(),
        };
        let own = [in_event[0], in_event[1], Step::Item(place.group)];
        match (fits, alone, hook.matcher) {
            (true, ..) => {
                let handler =
                    [own[0], own[1], own[2], Step::Field("hooks"), Step::Item(place.handler)];
                return upgraded(&text, &handler, &hook.handler(dialect, caller));
            }
            // In a group with other handlers: those stay, ours gets its own group.
            (false, false, _) => text = without(&text, &place, &|_| true)?,
            (false, true, Some(matcher)) => {
                let matcher = Tree::text(matcher);
                text = match group.get("matcher") {
                    Some(_) => json::replaced(
                        &text,
                        &[own[0], own[1], own[2], Step::Field("matcher")],
                        &matcher,
                    )?,
                    None => json::added(&text, &own, Some("matcher"), &matcher)?,
                };
            }
            (false, true, None) => {
                text = json::removed(&text, &[own[0], own[1], own[2], Step::Field("matcher")])?
            }
        }
    }
}

/// Updates the fields of a handler; fields that others added stay.
fn upgraded(
    text: &str,
    way: &[Step<'_>],
    wanted: &[(&'static str, Tree)],
) -> Result<String, Refused> {
    let mut text = super::with_fields(text, way, wanted)?;
    for name in OURS.iter().filter(|name| !wanted.iter().any(|(known, _)| known == *name)) {
        let field: Vec<Step<'_>> = way.iter().copied().chain([Step::Field(name)]).collect();
        text = json::removed(&text, &field)?;
    }
    Ok(text)
}

/// The settings without our hooks. Containers that existed before, as far as known, stay even if
/// they are empty now.
pub fn disconnect(text: &str, before: Option<&str>) -> Result<String, Refused> {
    let before = before.and_then(|before| json::read(before).ok()?);
    let was_there = |event: Option<&str>| {
        let hooks = before.as_ref().and_then(|before| before.get("hooks"));
        event.map_or_else(
            || hooks.is_some(),
            |event| hooks.is_some_and(|hooks| hooks.get(event).is_some()),
        )
    };
    taken_out(text.to_owned(), |_| true, was_there)
}

fn taken_out(
    mut text: String,
    which: impl Fn(&Place) -> bool,
    stays: impl Fn(Option<&str>) -> bool,
) -> Result<String, Refused> {
    loop {
        let Some(root) = json::read(&text)? else { return Ok(text) };
        let Some(place) = ours(&root).into_iter().rfind(|place| which(place)) else {
            return Ok(text);
        };
        text = without(&text, &place, &stays)?;
    }
}

/// The text without one handler, and without containers that this empties unless they `stays`.
fn without(
    text: &str,
    place: &Place,
    stays: &dyn Fn(Option<&str>) -> bool,
) -> Result<String, Refused> {
    let Some(root) = json::read(text)? else { return Ok(text.to_owned()) };
    let (hooks, event) = (Step::Field("hooks"), Step::Field(place.event.as_str()));
    let way = [hooks, event, Step::Item(place.group), hooks, Step::Item(place.handler)];
    let all = root.get("hooks");
    let groups = all.and_then(|all| all.get(&place.event)).map(Node::items).unwrap_or_default();
    let handlers = groups
        .get(place.group)
        .and_then(|group| group.get("hooks"))
        .map(Node::items)
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
    Ok(json::removed(text, &way[..depth])?)
}
