//! What both dialects have in common: the list of messages, and putting memory and the window into it.

use serde_json::value::RawValue;

use super::body::{self, Body, Edits, Object, Unfit};
use super::mind::{Begun, Dialect, Mode, Placement, Told};
use super::{anthropic, openai};

/// The messages of a body, by their places in it.
pub struct Messages<'a> {
    /// The whole list.
    pub list: &'a RawValue,
    /// Each message.
    pub raw: Vec<&'a RawValue>,
    /// What each says.
    pub told: Vec<Told>,
}

impl<'a> Messages<'a> {
    /// Reads the messages; `None` if there are none, which is the other side's to judge.
    pub fn read(body: &Body<'a>, dialect: Dialect) -> Result<Option<Self>, Unfit> {
        let Some(list) = body.object.get("messages") else { return Ok(None) };
        let Some(raw) = body::items(list).filter(|raw| !raw.is_empty()) else { return Ok(None) };
        let mut told = Vec::with_capacity(raw.len());
        for (at, message) in raw.iter().enumerate() {
            let object = body::object(message.get(), &format!("messages[{at}]"))?;
            let role = object.text("role").unwrap_or_default().into_owned();
            let (text, has_tools) = match dialect {
                Dialect::OpenAi => openai::said(&object, &role),
                Dialect::Anthropic => anthropic::said(&object),
            };
            told.push(Told { role, text, raw: message.get().to_owned(), has_tools });
        }
        Ok(Some(Self { list, raw, told }))
    }
}

/// The texts of a message's parts, and what kinds of parts it has.
pub fn parts(content: Option<&RawValue>) -> (Vec<String>, Vec<String>) {
    let Some(content) = content else { return Default::default() };
    if let Some(text) = body::text(content) {
        return (vec![text.into_owned()], Vec::new());
    }
    let (mut texts, mut kinds) = (Vec::new(), Vec::new());
    for part in body::items(content).unwrap_or_default() {
        let Ok(part) = body::object(part.get(), "a part") else { continue };
        let kind = part.text("type").unwrap_or_default().into_owned();
        let text = match kind.as_str() {
            "text" | "input_text" | "output_text" => part.text("text"),
            "refusal" => part.text("refusal"),
            _ => None,
        };
        texts.extend(text.map(|text| text.into_owned()));
        kinds.push(kind);
    }
    (texts, kinds)
}

/// What is to become of the messages of a body.
#[derive(Default)]
struct Wanted {
    /// A message in other words.
    changed: Option<(usize, String)>,
    /// A message before all others.
    lead: Option<String>,
    /// Messages after the leading ones.
    window: Vec<String>,
    /// How many messages stay before the window.
    leading: usize,
    /// Messages that give way.
    gone: Vec<usize>,
}

/// The body with memory in it. Nothing but what memory adds is written anew.
pub fn with_memory(body: &Body<'_>, messages: &Messages<'_>, begun: &Begun, dialect: Dialect) -> String {
    let mut edits = Edits::default();
    // Anthropic's system messages have their places between turns, so the history around one cannot be exchanged.
    let is_fixed = dialect == Dialect::Anthropic && messages.told.iter().take(begun.new_from).any(|told| is_system(&told.role));
    let mut wanted = if is_fixed { Wanted::default() } else { Wanted::history(messages, begun, dialect) };
    if let Some(memory) = begun.memory.as_deref().filter(|memory| !memory.is_empty()) {
        let user = (begun.placement == Placement::LastUser).then(|| last_user(messages, begun.new_from)).flatten();
        let placed = user.and_then(|at| {
            let object = body::object(messages.raw.get(at)?.get(), "").ok()?;
            let changed = match dialect {
                Dialect::OpenAi => openai::with_text(messages.raw[at].get(), &object, memory),
                Dialect::Anthropic => anthropic::with_text(messages.raw[at].get(), &object, memory),
            };
            changed.map(|changed| (at, changed))
        });
        match (placed, dialect) {
            (Some(placed), _) => wanted.changed = Some(placed),
            (None, Dialect::Anthropic) => anthropic::into_system(body, &mut edits, memory),
            (None, Dialect::OpenAi) => {
                let system = messages.told.iter().enumerate().filter(|(_, told)| is_system(&told.role));
                let changed = system.into_iter().find_map(|(at, _)| {
                    let object = body::object(messages.raw[at].get(), "").ok()?;
                    openai::with_text(messages.raw[at].get(), &object, memory).map(|changed| (at, changed))
                });
                match changed {
                    Some(changed) => wanted.changed = Some(changed),
                    None => wanted.lead = Some(openai::message("system", memory)),
                }
            }
        }
    }
    wanted.write(body, messages, &mut edits);
    edits.apply(body.whole)
}

/// Whether a role is the operator's.
fn is_system(role: &str) -> bool {
    matches!(role, "system" | "developer")
}

/// Where the new turn begins; a tool's result never loses the call it answers.
fn new_from(messages: &Messages<'_>, begun: &Begun) -> usize {
    let mut from = begun.new_from.min(messages.told.len());
    while from > 0 && messages.told.get(from).is_some_and(|told| told.has_tools && told.role != "assistant") {
        from -= 1;
    }
    from
}

/// The window as messages.
fn turns(begun: &Begun, dialect: Dialect) -> impl Iterator<Item = String> + '_ {
    let said = begun.window.iter().filter(|(_, text)| !text.trim().is_empty());
    said.map(|(role, text)| (if role == "assistant" { "assistant" } else { "user" }, text))
        // A conversation begins with the user there.
        .skip_while(move |(role, _)| dialect == Dialect::Anthropic && *role == "assistant")
        .map(|(role, text)| openai::message(role, text))
}

/// The message that takes the memory: the last one in which the user speaks in this turn. Results of tools are sent in the user's
/// name too; memory stays where it was before the tool was called, so that what a provider has cached stays true.
fn last_user(messages: &Messages<'_>, new_from: usize) -> Option<usize> {
    let last = |from: usize, tools: bool| {
        let told = messages.told.iter().enumerate().skip(from);
        told.filter(|(_, told)| told.role == "user" && (tools || !told.has_tools)).map(|(at, _)| at).last()
    };
    last(new_from, false).or_else(|| last(new_from, true)).or_else(|| last(0, false)).or_else(|| last(0, true))
}

impl Wanted {
    fn history(messages: &Messages<'_>, begun: &Begun, dialect: Dialect) -> Self {
        let leading = match dialect {
            Dialect::OpenAi => messages.told.iter().take_while(|told| is_system(&told.role)).count(),
            Dialect::Anthropic => 0,
        };
        let gone = match begun.mode {
            Mode::Augment => Vec::new(),
            Mode::Replace => (0..new_from(messages, begun)).filter(|at| !is_system(&messages.told[*at].role)).collect(),
        };
        Self { leading, gone, window: turns(begun, dialect).collect(), ..Self::default() }
    }

    fn write(self, body: &Body<'_>, messages: &Messages<'_>, edits: &mut Edits) {
        let Self { changed, lead, window, leading, gone } = self;
        if lead.is_none() && window.is_empty() && gone.is_empty() {
            if let Some((at, text)) = changed {
                edits.replace(body.place(messages.raw[at]), text);
            }
            return;
        }
        let one = |at: usize| match &changed {
            Some((which, text)) if *which == at => text.as_str(),
            _ => messages.raw[at].get(),
        };
        let stay = |from: usize, to: usize| (from..to).filter(|at| !gone.contains(at)).map(one);
        let before = lead.as_deref().into_iter().chain(stay(0, leading));
        let all: Vec<&str> = before.chain(window.iter().map(String::as_str)).chain(stay(leading, messages.raw.len())).collect();
        edits.replace(body.place(messages.list), format!("[{}]", all.join(",")));
    }
}

/// The text of an object's field, as the name of somebody or something; overlong ones and those with control characters are none.
pub fn name(object: &Object<'_>, key: &str) -> Option<String> {
    object.text(key).map(|name| name.trim().to_owned()).filter(|name| is_name(name))
}

/// Whether a text can be the name of a conversation or a person.
pub fn is_name(name: &str) -> bool {
    const MOST_NAME_BYTES: usize = 512;
    !name.is_empty() && name.len() <= MOST_NAME_BYTES && !name.chars().any(char::is_control)
}
