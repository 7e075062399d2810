//! Format detection: which program wrote a file, by its beginning and, if that is not conclusive,
//! by its name.
use super::ImportFormat;
use crate::transcript::JsonObject;

/// The number of bytes at the beginning of a file that detection needs.
pub const HEAD_BYTES: usize = 256 * 1024;

/// Types of Claude Code lines that may come first in a file and are not messages.
const CLAUDE_CODE_LINE_TYPES: [&str; 16] = [
    "summary",
    "system",
    "progress",
    "attachment",
    "queue-operation",
    "file-history-snapshot",
    "last-prompt",
    "mode",
    "permission-mode",
    "custom-title",
    "ai-title",
    "agent-name",
    "agent-setting",
    "pr-link",
    "bridge-session",
    "started",
];
/// Types of Codex lines.
const CODEX_LINE_TYPES: [&str; 6] =
    ["session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"];

/// The format of a file. `head` is the beginning of the file, as far as it is text.
pub fn detect_format(name: &str, head: &str) -> Option<ImportFormat> {
    let start = head.trim_start_matches('\u{feff}').trim_start();
    let lower = name.to_ascii_lowercase();
    if !start.starts_with(['{', '[']) {
        let dated =
            start.lines().next().is_some_and(|line| line.starts_with('[') && line.contains("] - "));
        return match lower.rsplit_once('.').map(|(_, end)| end) {
            Some("md" | "markdown") => Some(ImportFormat::Markdown),
            Some("txt") if dated => Some(ImportFormat::ClaudeAi),
            // Whatever the file holds, its lines are counted and reported.
            Some("jsonl" | "ndjson") => Some(ImportFormat::Jsonl),
            _ => None,
        };
    }
    let lines = || start.lines().take(50).find_map(format_of_line);
    let whole = || format_of_fields(&first_object_fields(start));
    // The lines of a list or a multi-line object look like something else.
    let is_lines = start.lines().next().is_some_and(|line| JsonObject::parse(line.trim()).is_ok());
    if let Some(format) = if is_lines { lines().or_else(whole) } else { whole().or_else(lines) } {
        return Some(format);
    }
    // `[2026-01-05] - likes tea` begins like a list, too.
    if start.starts_with('[') && start.lines().next().is_some_and(|line| line.contains("] - ")) {
        return Some(if lower.ends_with(".md") {
            ImportFormat::Markdown
        } else {
            ImportFormat::ClaudeAi
        });
    }
    match lower.rsplit_once('.').map(|(_, end)| end) {
        Some("jsonl" | "ndjson") => Some(ImportFormat::Jsonl),
        Some("md" | "markdown") => Some(ImportFormat::Markdown),
        _ => None,
    }
}

/// The fields that may hold the list, if the document is an object around it.
pub fn list_fields(format: ImportFormat, head: &str) -> &'static [&'static str] {
    let start = head.trim_start_matches('\u{feff}').trim_start();
    let lists: &'static [&'static str] = match format {
        ImportFormat::ChatGpt | ImportFormat::ClaudeAi => &["conversations", "memories"],
        ImportFormat::Mem0 => &["results", "memories"],
        ImportFormat::McpMemory => &["entities", "relations"],
        _ => &[],
    };
    let names = first_object_fields(start);
    if start.starts_with('{') && names.iter().any(|name| lists.contains(&name.as_str())) {
        lists
    } else {
        &[]
    }
}

fn format_of_line(line: &str) -> Option<ImportFormat> {
    let object = JsonObject::parse(line.trim()).ok()?;
    let kind = object.text("type").unwrap_or_default();
    if object.raw("payload").is_some() && CODEX_LINE_TYPES.contains(&kind.as_ref()) {
        return Some(ImportFormat::Codex);
    }
    if matches!(kind.as_ref(), "entity" | "relation")
        && (object.raw("entityType").is_some() || object.raw("relationType").is_some())
    {
        return Some(ImportFormat::McpMemory);
    }
    let spoken = matches!(kind.as_ref(), "user" | "assistant")
        && object.raw("message").is_some_and(|message| message.starts_with('{'));
    let own = ["sessionId", "leafUuid", "parentUuid", "messageId"]
        .iter()
        .any(|name| object.raw(name).is_some());
    if (spoken && (own || object.raw("uuid").is_some()))
        || (own && CLAUDE_CODE_LINE_TYPES.contains(&kind.as_ref()))
    {
        return Some(ImportFormat::ClaudeCode);
    }
    if object.raw("text").is_some() && object.raw("ts").is_some() {
        return Some(ImportFormat::Jsonl);
    }
    format_of_fields(&object.fields().map(|(name, _)| name.to_owned()).collect::<Vec<_>>())
}

/// Detects the format by the field names of the first object.
fn format_of_fields(names: &[String]) -> Option<ImportFormat> {
    let has = |name: &str| names.iter().any(|known| known == name);
    if has("mapping") {
        Some(ImportFormat::ChatGpt)
    } else if has("chat_messages") || has("conversations_memory") || has("project_memories") {
        Some(ImportFormat::ClaudeAi)
    } else if has("entities") && has("relations") || (has("name") && has("entityType")) {
        Some(ImportFormat::McpMemory)
    } else if has("memory") && (has("id") || has("hash") || has("created_at")) || has("results") {
        Some(ImportFormat::Mem0)
    } else if ["role", "sender", "author", "from"].iter().any(|name| has(name))
        && ["content", "text", "message"].iter().any(|name| has(name))
        || has("messages")
    {
        Some(ImportFormat::Jsonl)
    } else {
        None
    }
}

/// The field names of the first object, as far as the head goes.
fn first_object_fields(start: &str) -> Vec<String> {
    let mut found = Vec::new();
    let Some(open) = start.find('{') else { return found };
    let bytes = &start.as_bytes()[open..];
    let (mut depth, mut at, mut last): (usize, usize, Option<(usize, usize)>) = (0, 0, None);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let from = at + 1;
                at = from;
                while at < bytes.len() && bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                last = (depth == 1 && at < bytes.len()).then_some((from, at));
            }
            b':' => {
                if let Some((from, to)) = last.take()
                    && found.len() < 100
                {
                    found.push(String::from_utf8_lossy(&bytes[from..to]).into_owned());
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    break;
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // P1
    #[test]
    fn a_history_is_known_by_how_it_begins() {
        for (name, head, format) in [
            (
                "x",
                r#"{"type":"user","uuid":"a","sessionId":"s","message":{"role":"user","content":"hi"}}"#,
                Some(ImportFormat::ClaudeCode),
            ),
            (
                "x",
                "{broken\n{\"type\":\"file-history-snapshot\",\"messageId\":\"m\"}",
                Some(ImportFormat::ClaudeCode),
            ),
            (
                "x",
                r#"{"type":"summary","summary":"s","leafUuid":"l"}"#,
                Some(ImportFormat::ClaudeCode),
            ),
            (
                "x",
                r#"{"timestamp":"t","type":"session_meta","payload":{"id":"t1"}}"#,
                Some(ImportFormat::Codex),
            ),
            ("x", r#"[{"title":"t","mapping":{"a":{"mess"#, Some(ImportFormat::ChatGpt)),
            (
                "x",
                "[\n  {\n    \"uuid\": \"c\",\n    \"chat_messages\": [\n {\"sender\": \"human\", \"text\": \"x\"}\n",
                Some(ImportFormat::ClaudeAi),
            ),
            ("x", r#"[{"conversations_memory":"likes tea"}]"#, Some(ImportFormat::ClaudeAi)),
            ("memories.txt", "[2026-01-05] - likes tea", Some(ImportFormat::ClaudeAi)),
            ("x", r#"{"results":[{"id":"1","memory":"likes tea"}]}"#, Some(ImportFormat::Mem0)),
            ("x", r#"[{"id":"1","memory":"likes tea"}]"#, Some(ImportFormat::Mem0)),
            (
                "x",
                r#"{"type":"entity","name":"Ann","entityType":"person","observations":[]}"#,
                Some(ImportFormat::McpMemory),
            ),
            ("x", "{\n \"entities\": [],\n \"relations\": []}", Some(ImportFormat::McpMemory)),
            ("x", r#"{"ts":"2026-01-05","text":"hi"}"#, Some(ImportFormat::Jsonl)),
            ("x", r#"{"role":"user","content":"hi"}"#, Some(ImportFormat::Jsonl)),
            ("x.jsonl", "rubbish", Some(ImportFormat::Jsonl)),
            ("x.MD", "words", Some(ImportFormat::Markdown)),
            ("x.md", "[2026-01-05] - likes tea", Some(ImportFormat::Markdown)),
            ("x", "words", None),
            ("x.json", r#"{"a":1}"#, None),
            ("x", "", None),
        ] {
            assert_eq!(detect_format(name, head), format, "{name}: {head}");
        }
        assert_eq!(list_fields(ImportFormat::Mem0, r#"{"results":[]}"#), ["results", "memories"]);
        assert!(list_fields(ImportFormat::Mem0, r#"[{"results":1}]"#).is_empty());
        assert!(
            list_fields(ImportFormat::ChatGpt, r#"{"mapping":{"conversations":1}}"#).is_empty()
        );
    }

    proptest! {
        #[test]
        fn no_head_makes_it_fall(name in "[a-z.]{0,8}", head in "([\\[\\]{}:,\"a\\\\ \n]|\"mapping\"|\"type\"){0,40}") {
            if let Some(format) = detect_format(&name, &head) {
                list_fields(format, &head);
            }
        }
    }
}
