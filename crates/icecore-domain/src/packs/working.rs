//! The working state of a session (K1): the prompts, the last reply, the touched files and the open
//! tasks, derived from its records if no state was saved. A session continues with it after its
//! context was compacted.

use std::collections::HashSet;

use serde_json::Value;

use crate::budget;
use crate::record::{Record, RecordKind, Role};
use crate::sanitize;

/// The first line of such a state.
pub const STATE_TITLE: &str = "# State before compaction";
/// The most characters of a state.
const MAX_STATE_CHARS: usize = 4_000;
/// The number of last prompts that are included.
const MAX_PROMPTS: usize = 6;
/// The most bytes of one prompt, and of the last reply.
const MAX_PROMPT_BYTES: usize = 400;
const MAX_REPLY_BYTES: usize = 900;
/// The most files that are listed, the last touched first.
const MAX_FILES: usize = 20;
/// The most open tasks that are listed.
const MAX_TODOS: usize = 15;

/// The context of the session besides its records.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkingContext<'a> {
    pub session: &'a str,
    /// The project of the session.
    pub project: Option<&'a str>,
    /// What the user asked the summary to keep, verbatim.
    pub instructions: Option<&'a str>,
}

/// The working state that the records give; `None` if they give nothing.
pub fn working_state(records: &[Record], context: &WorkingContext<'_>) -> Option<String> {
    let said: Vec<&Record> = records
        .iter()
        .filter(|record| record.kind == RecordKind::Message && record.name.is_none())
        .collect();
    let words = |record: &Record, bytes: usize| {
        budget::truncate_at_word(&sanitize::one_line(record.text.trim()), bytes)
    };
    let prompts: Vec<&&Record> = said
        .iter()
        .filter(|record| record.role == Role::User && !record.text.trim().is_empty())
        .collect();
    let reply = said.iter().rev().find(|record| {
        record.role == Role::Assistant && record.parts.is_none() && !record.text.trim().is_empty()
    });
    let mut sections: Vec<(&str, Vec<String>)> = Vec::new();
    if let Some(instructions) =
        context.instructions.map(str::trim).filter(|instructions| !instructions.is_empty())
    {
        sections.push((
            "To be kept",
            vec![budget::truncate_at_word(&sanitize::one_line(instructions), MAX_PROMPT_BYTES)],
        ));
    }
    // The first prompt gives the topic, the last ones the current status.
    let from = prompts.len().saturating_sub(MAX_PROMPTS);
    let mut asked: Vec<String> = prompts
        .first()
        .filter(|_| from > 0)
        .iter()
        .map(|first| words(first, MAX_PROMPT_BYTES))
        .collect();
    asked.extend(prompts[from..].iter().map(|prompt| words(prompt, MAX_PROMPT_BYTES)));
    sections.push(("Asked", asked));
    sections.push((
        "Said last",
        reply.map(|reply| words(reply, MAX_REPLY_BYTES)).into_iter().collect(),
    ));
    let (files, left) = files_and_todos(&said);
    sections.push(("Left to do", left));
    sections.push(("Files touched", files));
    sections.retain(|(_, lines)| !lines.is_empty());
    if sections.is_empty() {
        return None;
    }
    let project = context
        .project
        .map_or(String::new(), |name| format!(" in project {}", sanitize::one_line(name)));
    let mut text =
        format!("{STATE_TITLE}\n\nSession {}{project}.\n", sanitize::one_line(context.session));
    for (title, lines) in sections {
        text.push_str(&format!("\n## {title}\n"));
        lines.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
    }
    let (shown, _) = budget::fitting_lines(&text, |text| text.chars().count() <= MAX_STATE_CHARS);
    Some(shown.trim_end().to_owned())
}

/// The project in which such a state was made: `None` if it is not such a state, `Some(None)` if it
/// was in no project.
pub fn state_project(state: &str) -> Option<Option<&str>> {
    let rest = state.trim_start().strip_prefix(STATE_TITLE)?;
    let line = rest.trim_start().lines().next().unwrap_or_default();
    Some(line.split_once(" in project ").map(|(_, name)| name.trim_end_matches('.')))
}

/// The files that tools wrote, the last first, and the open tasks of the last task list.
fn files_and_todos(said: &[&Record]) -> (Vec<String>, Vec<String>) {
    let (mut files, mut left, mut seen) = (Vec::new(), None, HashSet::new());
    for record in said.iter().rev().filter(|record| record.role == Role::Assistant) {
        let Some(Value::Array(parts)) =
            record.parts.as_deref().and_then(|parts| serde_json::from_str(parts).ok())
        else {
            continue;
        };
        for part in parts.iter().rev() {
            let name = part["name"].as_str().unwrap_or_default();
            let input = &part["input"];
            let writes = ["Edit", "MultiEdit", "Write", "NotebookEdit"].contains(&name);
            if let Some(path) = ["file_path", "notebook_path"]
                .iter()
                .find_map(|field| input[field].as_str())
                .filter(|_| writes)
                && files.len() < MAX_FILES
                && seen.insert(path.to_owned())
            {
                files.push(budget::truncate_at_word(&sanitize::one_line(path), 200));
            }
            if name == "TodoWrite" && left.is_none() {
                let todos = input["todos"].as_array().map(Vec::as_slice).unwrap_or_default();
                let open = todos.iter().filter(|todo| todo["status"] != "completed");
                let line = |todo: &Value| {
                    let mark = if todo["status"] == "in_progress" { " (begun)" } else { "" };
                    format!(
                        "{}{mark}",
                        budget::truncate_at_word(
                            &sanitize::one_line(todo["content"].as_str().unwrap_or_default()),
                            200
                        )
                    )
                };
                left = Some(open.map(line).take(MAX_TODOS).collect());
            }
        }
    }
    (files, left.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::Origin;
    use proptest::prelude::*;

    fn record(role: Role, text: &str, parts: Option<&str>) -> Record {
        let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
        Record {
            ts,
            conversation: "sessions".into(),
            session: Some("s1".into()),
            id: text.into(),
            role,
            name: None,
            other_speaker: None,
            kind: RecordKind::Message,
            title: None,
            text: text.into(),
            parts: parts.map(str::to_owned),
            origin: Origin::User,
            captured: ts,
            extra: Vec::new(),
            withdrawn: false,
        }
    }

    // K1
    #[test]
    fn a_state_tells_what_was_asked_said_touched_and_left() {
        let todo = r#"[{"type":"tool_use","name":"TodoWrite","input":{"todos":[{"content":"write tests","status":"in_progress"},{"content":"done","status":"completed"}]}}]"#;
        let edit = r#"[{"type":"tool_use","name":"Edit","input":{"file_path":"/a/b.rs"}}]"#;
        let records = [
            record(Role::User, "use port 7431", None),
            record(Role::Assistant, "[tool: TodoWrite]", Some(todo)),
            record(Role::Assistant, "[tool: Edit]", Some(edit)),
            record(Role::Assistant, "The port is 7431 now.", None),
        ];
        let around =
            WorkingContext { session: "s1", project: Some("app"), instructions: Some("the port") };
        let state = working_state(&records, &around).unwrap();
        let expected = "# State before compaction\n\nSession s1 in project app.\n\n## To be kept\n- the port\n\n## Asked\n- use port 7431\n\n\
            ## Said last\n- The port is 7431 now.\n\n## Left to do\n- write tests (begun)\n\n## Files touched\n- /a/b.rs";
        assert_eq!(state, expected);
        assert_eq!(
            (state_project(&state), state_project("my own state")),
            (Some(Some("app")), None)
        );
        assert_eq!(working_state(&[], &WorkingContext { instructions: None, ..around }), None);
    }

    proptest! {
        // K1
        #[test]
        fn a_state_is_never_longer_than_it_may_be(texts in prop::collection::vec("(?s).{0,2000}", 0..20), parts in "(?s).{0,60}") {
            let records: Vec<Record> = texts.iter().map(|text| record(Role::User, text, Some(&parts))).collect();
            if let Some(state) = working_state(&records, &WorkingContext { session: "s", ..WorkingContext::default() }) {
                prop_assert!(state.chars().count() <= MAX_STATE_CHARS && state.starts_with(STATE_TITLE));
            }
        }
    }
}
