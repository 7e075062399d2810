//! The export of ChatGPT: conversations as trees, of which the branch that was viewed last is
//! imported.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use jiff::tz::Offset;

use super::{ImportBatch, ImportFormat, parse_time};
use crate::record::{IncomingMessage, Role};
use crate::transcript::{JsonObject, text_value, trim_blank_lines};

/// Reads a conversation.
pub(super) fn read_conversation(
    number: usize,
    object: &JsonObject<'_>,
    offset: Offset,
    into: &mut ImportBatch,
) {
    let Some(mapping) = object.object("mapping") else {
        return into.add_complaint(number, "has no `mapping`; not a ChatGPT conversation");
    };
    if object.is_true("is_do_not_remember") {
        return into.count_skipped("conversation not to be remembered", 1);
    }
    let session = object.first_text(&["conversation_id", "id"]);
    let mut title = object.first_text(&["title"]);
    let mut last = parse_time(object, &["create_time"], offset);
    let nodes: Vec<Node<'_>> =
        mapping.fields().filter_map(|(id, json)| Node::parse(id, json)).collect();
    let branch = current_branch(&nodes, object.text("current_node").as_deref());
    into.count_skipped(
        "other branch",
        nodes
            .iter()
            .filter(|node| node.message.is_some())
            .count()
            .saturating_sub(branch.iter().filter(|node| node.message.is_some()).count()),
    );
    for node in branch {
        let Some(message) = &node.message else { continue };
        last = parse_time(message, &["create_time"], offset).or(last);
        let (role, words) = match speaker_and_text(message) {
            Ok(said) => said,
            Err(why) => {
                into.count_skipped(&why, 1);
                continue;
            }
        };
        into.add_message(
            number,
            IncomingMessage {
                ts: last,
                conversation: ImportFormat::ChatGpt.default_conversation().map(str::to_owned),
                session: session.clone(),
                id: message.first_text(&["id"]).or_else(|| Some(node.id.to_string())),
                role: Some(role),
                text: words,
                title: title.take(),
                ..IncomingMessage::default()
            },
        );
    }
}

struct Node<'a> {
    id: Cow<'a, str>,
    parent: Option<Cow<'a, str>>,
    message: Option<JsonObject<'a>>,
}

impl<'a> Node<'a> {
    fn parse(id: &str, json: &'a str) -> Option<Self> {
        let object = JsonObject::parse(json).ok()?;
        Some(Self {
            id: Cow::Owned(id.to_owned()),
            parent: object.text("parent"),
            message: object.object("message"),
        })
    }
}

/// The nodes from the root to the current one. Without a current node, the last leaf counts;
/// without links between nodes, all nodes in file order.
fn current_branch<'n, 'a>(nodes: &'n [Node<'a>], current: Option<&str>) -> Vec<&'n Node<'a>> {
    if nodes.iter().all(|node| node.parent.is_none()) {
        return nodes.iter().collect();
    }
    let by_id: HashMap<&str, &Node<'a>> =
        nodes.iter().map(|node| (node.id.as_ref(), node)).collect();
    let parents: HashSet<&str> = nodes.iter().filter_map(|node| node.parent.as_deref()).collect();
    let leaf = || nodes.iter().rev().find(|node| !parents.contains(node.id.as_ref()));
    let mut at = current.and_then(|id| by_id.get(id).copied()).or_else(leaf);
    let mut branch = Vec::new();
    // A cycle of parents would not end.
    while let Some(node) = at.filter(|_| branch.len() < nodes.len()) {
        branch.push(node);
        at = node.parent.as_deref().and_then(|id| by_id.get(id).copied());
    }
    branch.reverse();
    branch
}

/// The speaker and text of a message, or why it is skipped.
fn speaker_and_text(message: &JsonObject<'_>) -> Result<(Role, String), String> {
    let word = message
        .object("author")
        .and_then(|author| author.first_text(&["role"]))
        .unwrap_or_default();
    let role = match word.as_str() {
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "system" => return Err("system".into()),
        "tool" => return Err("tool output".into()),
        other => return Err(format!("role {other}")),
    };
    let hidden = message
        .object("metadata")
        .is_some_and(|metadata| metadata.is_true("is_visually_hidden_from_conversation"));
    if hidden || message.text("weight").and_then(|weight| weight.parse::<f64>().ok()) == Some(0.0) {
        return Err("hidden".into());
    }
    if message.text("recipient").is_some_and(|recipient| recipient != "all") {
        return Err("tool call".into());
    }
    let Some(content) = message.object("content") else { return Err("empty".into()) };
    let kind = content.text("content_type").unwrap_or_default();
    let words = match kind.as_ref() {
        "text" | "multimodal_text" | "" => content_text(&content),
        "code" => content.first_text(&["text"]).unwrap_or_default(),
        "thoughts" | "reasoning_recap" => return Err("thinking".into()),
        "user_editable_context" | "model_editable_context" => {
            return Err("custom instructions".into());
        }
        "execution_output" => return Err("tool output".into()),
        kind if kind.starts_with("tether_") => return Err("browsing".into()),
        kind => return Err(format!("{kind} content")),
    };
    let words = trim_blank_lines(&strip_citations(&words)).to_owned();
    if words.trim().is_empty() { Err("empty".into()) } else { Ok((role, words)) }
}

/// The parts of a message as text; a picture becomes a placeholder.
fn content_text(content: &JsonObject<'_>) -> String {
    let mut said: Vec<String> = Vec::new();
    for part in content.list("parts").unwrap_or_default() {
        let part = part.get();
        if let Some(words) = text_value(part) {
            said.push(words.into_owned());
        } else if let Ok(part) = JsonObject::parse(part) {
            let kind = part.text("content_type").unwrap_or_default();
            match part.first_text(&["text"]) {
                Some(words) => said.push(words),
                None if kind.contains("image") => said.push("[image]".into()),
                None if kind.contains("audio") => said.push("[audio]".into()),
                None => said.push("[file]".into()),
            }
        }
    }
    said.retain(|words| !words.trim().is_empty());
    said.join("\n")
}

/// The text without citation marks.
fn strip_citations(words: &str) -> Cow<'_, str> {
    let marks = [('\u{e200}', '\u{e201}', None), ('【', '】', Some('†'))];
    let mut words = Cow::Borrowed(words);
    for (begin, end, within) in marks {
        if !words.contains(begin) {
            continue;
        }
        let mut kept = String::with_capacity(words.len());
        let mut rest = words.as_ref();
        while let Some(start) = rest.find(begin) {
            let (before, marked) = rest.split_at(start);
            kept.push_str(before);
            let inner = &marked[begin.len_utf8()..];
            let close = inner.find(end);
            let is_mark =
                within.is_none_or(|sign| close.is_some_and(|close| inner[..close].contains(sign)));
            rest = match close.filter(|_| is_mark) {
                Some(close) => &inner[close + end.len_utf8()..],
                None => {
                    if within.is_some() {
                        kept.push(begin);
                    }
                    inner
                }
            };
        }
        kept.push_str(rest);
        words = Cow::Owned(kept);
    }
    words
}
