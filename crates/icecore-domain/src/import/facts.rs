//! Facts of other memory systems: mem0, and the MCP memory server.
//!
//! A model has processed them and their origin is unknown. So they have the origin `import` and
//! need confirmation.

use jiff::tz::Offset;

use super::{ImportBatch, ImportedFact, parse_time};
use crate::event::{EntityKind, EventType, Origin};
use crate::hash::Hash;
use crate::transcript::{JsonObject, text_value};

/// Reads a memory of mem0.
pub(super) fn read_mem0(
    number: usize,
    object: &JsonObject<'_>,
    offset: Offset,
    into: &mut ImportBatch,
) {
    let Some(words) = object.first_text(&["memory", "text", "data", "content"]) else {
        return into.add_complaint(number, "has no `memory`");
    };
    let id = object.first_text(&["id"]).unwrap_or_else(|| Hash::of(words.as_bytes()).short_hex());
    let tags = object.list("categories").unwrap_or_default();
    into.facts.push(ImportedFact {
        external_id: format!("mem0:{id}"),
        kind: None,
        entity: None,
        entity_kind: None,
        tags: tags
            .iter()
            .filter_map(|tag| text_value(tag.get()))
            .map(|tag| tag.into_owned())
            .take(8)
            .collect(),
        learned_at: parse_time(object, &["updated_at", "created_at"], offset),
        source: format!("mem0:{id}"),
        project: None,
        origin: Origin::Import,
        text: words,
    });
}

/// Reads an entity or a relation of the MCP memory server.
pub(super) fn read_mcp_memory(
    number: usize,
    object: &JsonObject<'_>,
    offset: Offset,
    into: &mut ImportBatch,
) {
    let kind = object.text("type").unwrap_or_default();
    if kind == "relation" || object.raw("relationType").is_some() {
        let (from, to, how) = (
            object.first_text(&["from"]),
            object.first_text(&["to"]),
            object.first_text(&["relationType"]),
        );
        let (Some(from), Some(to), Some(how)) = (from, to, how) else {
            return into
                .add_complaint(number, "is a relation without `from`, `to` and `relationType`");
        };
        let words = format!("{from} {} {to}", how.replace('_', " "));
        return into.facts.push(new_fact(&from, None, Some(EventType::Relationship), words, None));
    }
    if kind != "entity" && object.raw("observations").is_none() {
        return match kind.is_empty() {
            true => into.add_complaint(number, "is neither an entity nor a relation"),
            false => into.count_skipped(&kind, 1),
        };
    }
    let Some(name) = object.first_text(&["name"]) else {
        return into.add_complaint(number, "is an entity without a `name`");
    };
    let sort = object.first_text(&["entityType"]);
    let known =
        sort.as_deref().and_then(|sort| sort.to_ascii_lowercase().parse::<EntityKind>().ok());
    let observations = object.list("observations").unwrap_or_default();
    if observations.is_empty()
        && let Some(sort) = &sort
    {
        into.facts.push(new_fact(
            &name,
            known,
            Some(EventType::Fact),
            format!("{name} is a {}", sort.replace('_', " ")),
            None,
        ));
    }
    for observation in observations {
        let inner = JsonObject::parse(observation.get()).ok();
        let said = inner
            .as_ref()
            .and_then(|inner| parse_time(inner, &["timestamp", "created_at", "createdAt"], offset));
        let words = text_value(observation.get())
            .map(|words| words.into_owned())
            .or_else(|| inner.and_then(|inner| inner.first_text(&["content", "text"])));
        match words.filter(|words| !words.trim().is_empty()) {
            Some(words) => {
                let named = words.to_lowercase().contains(&name.to_lowercase().replace('_', " "))
                    || words.contains(&name);
                let words = if named { words } else { format!("{name}: {words}") };
                into.facts.push(new_fact(&name, known, None, words, said));
            }
            None => into.add_complaint(number, "has an observation without words"),
        }
    }
}

fn new_fact(
    name: &str,
    entity_kind: Option<EntityKind>,
    kind: Option<EventType>,
    words: String,
    said: Option<crate::calendar::Moment>,
) -> ImportedFact {
    ImportedFact {
        // An observation has no id; its entity and its words identify it.
        external_id: format!(
            "mcp-memory:{}",
            Hash::of(format!("{name}\0{words}").as_bytes()).short_hex()
        ),
        kind,
        entity: Some(name.to_owned()),
        entity_kind,
        tags: Vec::new(),
        learned_at: said,
        source: format!("mcp-memory:{}", name.chars().take(200).collect::<String>()),
        project: None,
        origin: Origin::Import,
        text: words,
    }
}
