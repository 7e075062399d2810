//! Prompts that the user typed while Claude Code was working. A transcript contains such a prompt
//! several times: when it enters the queue (`enqueue`), when it leaves it (`dequeue`, `remove`,
//! `popAll`), and, if it was delivered, as an ordinary message or as a `queued_command` attachment.
//! The queue is first in, first out; only the words link these lines.
//!
//! Each prompt becomes one turn: the delivered message if there is one. Most prompts are absorbed
//! into the running turn; older versions write no attachment for those, so the `enqueue` line is
//! the only source. A prompt that the user took back into the input box (`popAll`) was never sent
//! to the assistant.

use std::collections::VecDeque;

use icecore_text::normalize::collapse_spaces;

use crate::record::IncomingMessage;

/// The most prompts in the queue.
const MAX_QUEUED_PROMPTS: usize = 1_000;
/// The number of absorbed prompts to remember, in case an attachment comes after the line that
/// removes its prompt from the queue.
const MAX_ABSORBED_PROMPTS: usize = 16;

/// A prompt in the queue.
struct QueuedPrompt {
    line: usize,
    said: IncomingMessage,
    /// A person typed it; otherwise it is a program's notice, which only holds its position in the
    /// queue.
    is_typed: bool,
    /// It has left the queue and is about to be delivered as a message.
    is_sent: bool,
}

/// The queue as of the last line.
#[derive(Default)]
pub(super) struct PromptQueue {
    waiting: VecDeque<QueuedPrompt>,
    absorbed: VecDeque<String>,
}

impl PromptQueue {
    /// The line of the oldest prompt that may still be delivered.
    pub(super) fn oldest_line(&self) -> Option<usize> {
        self.waiting.iter().find(|queued| queued.is_typed).map(|queued| queued.line)
    }

    /// Adds a prompt; returns the oldest one if the queue is full.
    pub(super) fn enqueue(
        &mut self,
        line: usize,
        message: IncomingMessage,
    ) -> Option<IncomingMessage> {
        let is_typed = is_typed(&message.text);
        self.waiting.push_back(QueuedPrompt { line, said: message, is_typed, is_sent: false });
        if self.waiting.len() <= MAX_QUEUED_PROMPTS {
            return None;
        }
        self.waiting.pop_front().filter(|queued| queued.is_typed).map(|queued| queued.said)
    }

    /// The first prompt is about to be delivered as a message.
    pub(super) fn dequeue(&mut self) {
        if let Some(first) = self.waiting.iter_mut().find(|queued| !queued.is_sent) {
            first.is_sent = true;
        }
    }

    /// A prompt is absorbed into the running turn; returns it, unless its attachment was read
    /// already.
    pub(super) fn remove(&mut self, text: &str) -> Option<IncomingMessage> {
        let queued = self.take_matching(text)?;
        if !queued.is_typed {
            return None;
        }
        self.absorbed.push_back(collapse_spaces(text));
        if self.absorbed.len() > MAX_ABSORBED_PROMPTS {
            self.absorbed.pop_front();
        }
        Some(queued.said)
    }

    /// The user takes back what is queued; returns the number of prompts.
    pub(super) fn pop_all(&mut self) -> usize {
        let typed = self.waiting.iter().filter(|queued| queued.is_typed && !queued.is_sent).count();
        self.waiting.retain(|queued| queued.is_sent);
        typed
    }

    /// An attachment delivers a prompt; false if that prompt already was a turn.
    pub(super) fn attach(&mut self, text: &str) -> bool {
        if self.take_matching(text).is_some() {
            return true;
        }
        let words = collapse_spaces(text);
        let known = self.absorbed.iter().position(|absorbed| *absorbed == words);
        known.is_none_or(|at| self.absorbed.remove(at).is_none())
    }

    /// A message delivers prompts: one, or several as lines of one message.
    pub(super) fn deliver(&mut self, text: &str) {
        if is_command(text) {
            // The recorded form of a command does not tell how it was typed.
            let sent = self.waiting.iter().position(|queued| queued.is_sent);
            sent.and_then(|at| self.waiting.remove(at));
            return;
        }
        let whole = collapse_spaces(text);
        let lines = normalize_lines(text);
        self.waiting.retain(|queued| {
            let is_part = || lines.contains(&normalize_lines(&queued.said.text));
            !(collapse_spaces(&queued.said.text) == whole || (queued.is_sent && is_part()))
        });
    }

    /// Ends the file; returns the prompts that were typed and never delivered.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = IncomingMessage> {
        std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|queued| queued.is_typed)
            .map(|queued| queued.said)
    }

    fn take_matching(&mut self, text: &str) -> Option<QueuedPrompt> {
        let words = collapse_spaces(text);
        let same = |queued: &QueuedPrompt| collapse_spaces(&queued.said.text) == words;
        // Without words it is the first one.
        let at = self
            .waiting
            .iter()
            .position(|queued| !queued.is_sent && (words.is_empty() || same(queued)))?;
        self.waiting.remove(at)
    }
}

/// Whether a person typed it as words for the assistant: not a program's notice, not a command to
/// the client.
pub(super) fn is_typed(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && !super::is_command_output(text) && !is_slash_command(text)
}

/// `/name`, which runs a command of the client; a path has more slashes.
fn is_slash_command(text: &str) -> bool {
    let Some(name) = text.strip_prefix('/').and_then(|rest| rest.split_whitespace().next()) else {
        return false;
    };
    name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c))
}

/// Whether a message records a command that was run.
fn is_command(text: &str) -> bool {
    ["<command-name>", "<command-message>", "<bash-input>"]
        .iter()
        .any(|tag| text.trim_start().starts_with(tag))
}

/// The lines of a text, each between two line breaks.
fn normalize_lines(text: &str) -> String {
    text.trim().lines().fold("\n".to_owned(), |all, line| all + &collapse_spaces(line) + "\n")
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;
    use serde_json::{Value, json};

    use crate::import::{ImportBatch, ImportFormat, ImportPosition, ImportReader};
    use crate::transcript::{self, TranscriptFormat};

    fn operation(clock: &str, operation: &str, content: Option<&str>) -> Value {
        let mut line = json!({ "type": "queue-operation", "operation": operation, "sessionId": "s", "timestamp": format!("2026-02-13T{clock}Z") });
        if let Some(content) = content {
            line["content"] = content.into();
        }
        line
    }

    fn message(clock: &str, role: &str, text: &str) -> Value {
        json!({ "type": role, "uuid": format!("u{clock}"), "sessionId": "s", "timestamp": format!("2026-02-13T{clock}Z"), "message": { "role": role, "content": text } })
    }

    fn attachment(clock: &str, text: Value, more: Value) -> Value {
        let mut inner = json!({ "type": "queued_command", "prompt": text, "commandMode": "prompt", "origin": { "kind": "human" } });
        inner.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "type": "attachment", "uuid": format!("a{clock}"), "sessionId": "s", "timestamp": format!("2026-02-13T{clock}Z"), "attachment": inner })
    }

    /// The messages as read for hooks and `session add` and as read for imports; both must agree.
    fn read_texts(lines: &[Value]) -> Vec<String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let read = transcript::parse_transcript(
            &text,
            Some(TranscriptFormat::Jsonl),
            "2026-02-13".parse().unwrap(),
            Offset::UTC,
        );
        assert_eq!(read.complaints, []);
        let (mut reader, mut harvest) =
            (ImportReader::new(ImportFormat::ClaudeCode, Offset::UTC), ImportBatch::default());
        for (at, line) in text.lines().enumerate() {
            reader.read_piece(
                ImportPosition { number: at + 1, at: 0 },
                line,
                &|_| None,
                &mut harvest,
            );
        }
        reader.finish(&mut harvest);
        let shown = |said: &crate::record::IncomingMessage| {
            format!(
                "{} {}: {}",
                said.ts.unwrap().timestamp().to_string().get(11..16).unwrap(),
                said.role.unwrap(),
                said.text
            )
        };
        let imported: Vec<String> = harvest.messages.iter().map(|(_, said)| shown(said)).collect();
        let turns: Vec<String> = read.turns.iter().map(shown).collect();
        assert_eq!(imported, turns);
        turns
    }

    // P1: a prompt typed while the assistant works becomes one turn, however often the transcript
    // contains it.
    #[test]
    fn a_queued_prompt_is_one_turn_of_the_person() {
        let first = || message("09:00:00", "user", "begin");
        let working = || message("09:00:05", "assistant", "I am at it.");
        let put = |text: &str| operation("09:01:00", "enqueue", Some(text));
        let taken = |text: &str| operation("09:02:00", "remove", Some(text));
        let queued =
            ["09:00 user: begin", "09:00 assistant: I am at it.", "09:01 user: also the tests"];
        let human = || attachment("09:01:00", json!("also the tests"), json!({}));
        // Absorbed into the running turn: without an attachment, as older clients write it, and
        // with one before or after.
        assert_eq!(
            read_texts(&[first(), working(), put("also the tests"), taken("also the tests")]),
            queued
        );
        assert_eq!(
            read_texts(&[
                first(),
                working(),
                put("also the tests"),
                human(),
                taken("also the tests")
            ]),
            queued
        );
        assert_eq!(
            read_texts(&[
                first(),
                working(),
                put("also the tests"),
                taken("also the tests"),
                human()
            ]),
            queued
        );
        assert_eq!(read_texts(&[first(), working(), human()]), queued);
        let blocks = attachment(
            "09:01:00",
            json!([{ "type": "text", "text": "also the tests" }]),
            json!({}),
        );
        assert_eq!(read_texts(&[first(), working(), put("also the tests"), blocks]), queued);
        // Never delivered: the session ended before.
        assert_eq!(read_texts(&[first(), working(), put("also the tests")]), queued);
        // Delivered as an ordinary message.
        let sent = operation("09:02:00", "dequeue", None);
        let delivered = message("09:03:00", "user", "also  the tests");
        let later =
            ["09:00 user: begin", "09:00 assistant: I am at it.", "09:03 user: also  the tests"];
        assert_eq!(
            read_texts(&[
                first(),
                working(),
                put("also the tests"),
                sent.clone(),
                delivered.clone()
            ]),
            later
        );
        assert_eq!(
            read_texts(&[first(), working(), put("also the tests"), delivered, sent.clone()]),
            later
        );
        // Two of them in one message; the word `ok` within another word is not the prompt.
        let both = message("09:03:00", "user", "also the tests\nand look it up");
        let two = [
            first(),
            put("also the tests"),
            put("and look it up"),
            put("ok"),
            sent.clone(),
            sent.clone(),
            sent.clone(),
            both,
        ];
        assert_eq!(
            read_texts(&two),
            ["09:00 user: begin", "09:03 user: also the tests\nand look it up", "09:01 user: ok"]
        );
        // The same words twice are two prompts.
        let twice = [
            put("go on"),
            put("go on"),
            taken("go on"),
            taken("go on"),
            attachment("09:01:00", json!("go on"), json!({})),
        ];
        assert_eq!(read_texts(&twice), ["09:01 user: go on", "09:01 user: go on"]);
    }

    #[test]
    fn what_no_person_said_stays_out() {
        let put = |text: &str| operation("09:01:00", "enqueue", Some(text));
        let notice = "<task-notification>\n<task-id>b1</task-id>\n</task-notification>";
        // Taken back into the input box, where it becomes another prompt.
        let last = message("09:03:00", "user", "do that instead");
        let back = operation("09:02:00", "popAll", Some("do this"));
        assert_eq!(
            read_texts(&[put("do this"), put("and this"), back, last.clone()]),
            ["09:03 user: do that instead"]
        );
        // Notices of the program, commands, and other agents' words.
        assert_eq!(read_texts(&[put(notice), last.clone()]), ["09:03 user: do that instead"]);
        let command = message("09:02:30", "user", "<command-name>/compact</command-name>");
        let sent = operation("09:02:00", "dequeue", None);
        let lines = [put("/compact"), sent.clone(), command.clone(), last.clone()];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let read =
            transcript::parse_transcript(&text, None, "2026-02-13".parse().unwrap(), Offset::UTC);
        assert!(read.turns.iter().all(|said| said.text != "/compact"), "{read:?}");
        for more in [
            json!({ "origin": { "kind": "peer" } }),
            json!({ "commandMode": "task-notification" }),
            json!({ "isMeta": true }),
            json!({ "prompt": notice }),
        ] {
            let lines = [
                put("not mine"),
                attachment("09:01:00", json!("not mine"), more.clone()),
                last.clone(),
            ];
            let notices = read_texts(&lines);
            let expected: &[&str] = if more["prompt"].is_string() {
                &["09:03 user: do that instead", "09:01 user: not mine"]
            } else {
                &["09:03 user: do that instead"]
            };
            assert_eq!(notices, expected, "{more}");
        }
        // A path is not a command.
        assert_eq!(
            read_texts(&[put("/etc/hosts is wrong"), last]),
            ["09:03 user: do that instead", "09:01 user: /etc/hosts is wrong"]
        );
    }

    // A file that is read while a prompt is queued is read again from there.
    #[test]
    fn a_queued_prompt_is_waited_for() {
        let mut reader = ImportReader::new(ImportFormat::ClaudeCode, Offset::UTC);
        let mut harvest = ImportBatch::default();
        let lines = [
            message("09:00:00", "user", "begin"),
            operation("09:01:00", "enqueue", Some("one")),
            operation("09:01:01", "enqueue", Some("two")),
            operation("09:02:00", "remove", Some("one")),
        ];
        let numbers: Vec<Option<usize>> = lines
            .iter()
            .enumerate()
            .map(|(at, line)| {
                reader.read_piece(
                    ImportPosition { number: at + 1, at: at as u64 * 100 },
                    &line.to_string(),
                    &|_| None,
                    &mut harvest,
                );
                reader.resume_position().map(|place| place.number)
            })
            .collect();
        // The first message waits for more of its lines all the while.
        assert_eq!(numbers, [Some(1); 4]);
        for at in 5..20 {
            let line = message(&format!("09:03:{at:02}"), "assistant", "working").to_string();
            reader.read_piece(ImportPosition { number: at, at: 0 }, &line, &|_| None, &mut harvest);
        }
        assert_eq!(reader.resume_position().map(|place| place.number), Some(3));
    }
}
