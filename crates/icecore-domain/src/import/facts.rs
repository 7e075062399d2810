//! Facts of other memory systems: mem0, and the MCP memory server.
//!
//! A model has processed them and their origin is unknown. So they have the origin `import` and
//! need confirmation.

use jiff::tz::Offset;

use super::{Fact, Harvest, time};
use crate::event::{EntityKind, Kind, Origin};
use crate::hash::Hash;
use crate::transcript::{Object, text};

/// Reads a memory of mem0.
pub(super) fn mem0(number: usize, object: &Object<'_>, offset: Offset, into: &mut Harvest) {
    let Some(words) = object.first(&["memory", "text", "data", "content"]) else {
        return into.complain(number, "has no `memory`");
    };
    let id = object.first(&["id"]).unwrap_or_else(|| Hash::of(words.as_bytes()).short());
    let tags = object.list("categories").unwrap_or_default();
    into.facts.push(Fact {
        was: format!("mem0:{id}"),
        kind: None,
        entity: None,
        entity_kind: None,
        tags: tags
            .iter()
            .filter_map(|tag| text(tag.get()))
            .map(|tag| tag.into_owned())
            .take(8)
            .collect(),
        said: time(object, &["updated_at", "created_at"], offset),
        source: format!("mem0:{id}"),
        project: None,
        origin: Origin::Import,
        text: words,
    });
}

/// Reads an entity or a relation of the MCP memory server.
pub(super) fn mcp_memory(number: usize, object: &Object<'_>, offset: Offset, into: &mut Harvest) {
    let kind = object.text("type").unwrap_or_default();
    if kind == "relation" || object.raw("relationType").is_some() {
        let (from, to, how) =
            (object.first(&["from"]), object.first(&["to"]), object.first(&["relationType"]));
        let (Some(from), Some(to), Some(how)) = (from, to, how) else {
            return into.complain(number, "is a relation without `from`, `to` and `relationType`");
        };
        let words = format!("{from} {} {to}", how.replace('_', " "));
        return into.facts.push(fact(&from, None, Some(Kind::Relationship), words, None));
    }
    if kind != "entity" && object.raw("observations").is_none() {
        return match kind.is_empty() {
            true => into.complain(number, "is neither an entity nor a relation"),
            false => into.skip(&kind, 1),
        };
    }
    let Some(name) = object.first(&["name"]) else {
        return into.complain(number, "is an entity without a `name`");
    };
    let sort = object.first(&["entityType"]);
    let known =
        sort.as_deref().and_then(|sort| sort.to_ascii_lowercase().parse::<EntityKind>().ok());
    let observations = object.list("observations").unwrap_or_default();
    if observations.is_empty()
        && let Some(sort) = &sort
    {
        into.facts.push(fact(
            &name,
            known,
            Some(Kind::Fact),
            format!("{name} is a {}", sort.replace('_', " ")),
            None,
        ));
    }
    for observation in observations {
        let inner = Object::read(observation.get()).ok();
        let said = inner
            .as_ref()
            .and_then(|inner| time(inner, &["timestamp", "created_at", "createdAt"], offset));
        let words = text(observation.get())
            .map(|words| words.into_owned())
            .or_else(|| inner.and_then(|inner| inner.first(&["content", "text"])));
        match words.filter(|words| !words.trim().is_empty()) {
            Some(words) => {
                let named = words.to_lowercase().contains(&name.to_lowercase().replace('_', " "))
                    || words.contains(&name);
                let words = if named { words } else { format!("{name}: {words}") };
                into.facts.push(fact(&name, known, None, words, said));
            }
            None => into.complain(number, "has an observation without words"),
        }
    }
}

fn fact(
    name: &str,
    entity_kind: Option<EntityKind>,
    kind: Option<Kind>,
    words: String,
    said: Option<crate::calendar::Moment>,
) -> Fact {
    Fact {
        // An observation has no id; its entity and its words identify it.
        was: format!("mcp-memory:{}", Hash::of(format!("{name}\0{words}").as_bytes()).short()),
        kind,
        entity: Some(name.to_owned()),
        entity_kind,
        tags: Vec::new(),
        said,
        source: format!("mcp-memory:{}", name.chars().take(200).collect::<String>()),
        project: None,
        origin: Origin::Import,
        text: words,
    }
}
