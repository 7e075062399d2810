//! The turn log: a short summary of the question and answer of each turn (C1, C2, C8).
//!
//! One JSON line per turn, append-only. The last line of a turn counts: a turn that was first
//! logged raw is summarized later by a second line. The raw exchange is stored elsewhere; nothing
//! in this module can lose it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::conversation_facts::{FactDiff, MAX_ENTRY_BYTES};
use crate::calendar::Moment;
use crate::ledger::raw_lines;
use crate::sanitize;
use crate::string_enum::string_enum;

/// Maximum number of words in the summary of the question.
pub const MAX_USER_SUMMARY_WORDS: usize = 25;
/// Maximum number of words in the summary of the answer.
pub const MAX_ASSISTANT_SUMMARY_WORDS: usize = 30;
/// Maximum number of entries per list that the summarizer is asked for.
pub const MAX_REQUESTED_ENTRIES: usize = 12;
/// The field that marks a turn the conversation continued without. It is never written to the log.
pub const WITHDRAWN_FIELD: &str = "withdrawn";
/// Maximum length of a summary in bytes, whatever its words are.
const MAX_SUMMARY_BYTES: usize = 600;

string_enum! {
    /// How a turn was summarized.
    TurnState: "a state of a turn" {
        /// By the summarizer.
        Summarized = "summarized",
        /// By the first words of the exchange; a summary is still pending.
        Raw = "raw",
        /// Not at all: the turn is so short that it is its own summary.
        Short = "short",
    }
}

/// A turn in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnLine {
    /// Counted from 1.
    pub turn: u64,
    pub ts: Moment,
    pub user_summary: String,
    pub assistant_summary: String,
    pub state: TurnState,
    /// Why the turn is raw, if it is.
    pub why: Option<String>,
    /// Summary depth as a word.
    pub depth: String,
    /// Whether the raw exchange is kept longer.
    pub long: bool,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub model: Option<String>,
    /// Rejected entries of its diff, each with the reason.
    pub refused: Vec<String>,
    /// Unknown fields of other programs, preserved unchanged.
    pub extra: Map<String, Value>,
}

const FIELDS: &[&str] = &[
    "turn",
    "ts",
    "user_summary",
    "assistant_summary",
    "state",
    "why",
    "depth",
    "long",
    "tokens_in",
    "tokens_out",
    "model",
    "refused",
];

impl TurnLine {
    /// A turn whose summaries are truncated to their limits.
    pub fn new(turn: u64, ts: Moment, state: TurnState, user: &str, assistant: &str) -> Self {
        Self {
            turn,
            ts,
            user_summary: limit_words(user, MAX_USER_SUMMARY_WORDS),
            assistant_summary: limit_words(assistant, MAX_ASSISTANT_SUMMARY_WORDS),
            state,
            why: None,
            depth: String::new(),
            long: false,
            tokens_in: 0,
            tokens_out: 0,
            model: None,
            refused: Vec::new(),
            extra: Map::new(),
        }
    }

    /// A turn that could not be summarized; its first words stand in.
    pub fn raw(turn: u64, ts: Moment, user: &str, assistant: &str, why: impl Into<String>) -> Self {
        Self {
            why: Some(why.into()),
            ..Self::new(
                turn,
                ts,
                TurnState::Raw,
                &fallback_summary(user, MAX_USER_SUMMARY_WORDS),
                &fallback_summary(assistant, MAX_ASSISTANT_SUMMARY_WORDS),
            )
        }
    }

    /// A turn without content: its request failed while a later one succeeded.
    pub fn empty(turn: u64, ts: Moment) -> Self {
        Self {
            why: Some("no content: its request failed".into()),
            ..Self::new(turn, ts, TurnState::Short, "", "")
        }
    }

    /// Whether both summaries are empty.
    pub fn is_empty(&self) -> bool {
        self.user_summary.is_empty() && self.assistant_summary.is_empty()
    }

    /// Serializes the turn as one log line, with its line break.
    pub fn to_line(&self) -> String {
        #[derive(Serialize)]
        struct SerializedTurn<'a> {
            turn: u64,
            ts: Moment,
            user_summary: &'a str,
            assistant_summary: &'a str,
            state: TurnState,
            #[serde(skip_serializing_if = "Option::is_none")]
            why: &'a Option<String>,
            #[serde(skip_serializing_if = "str::is_empty")]
            depth: &'a str,
            #[serde(skip_serializing_if = "is_false")]
            long: bool,
            #[serde(skip_serializing_if = "is_zero")]
            tokens_in: u64,
            #[serde(skip_serializing_if = "is_zero")]
            tokens_out: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            model: &'a Option<String>,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            refused: &'a [String],
            #[serde(flatten)]
            extra: Map<String, Value>,
        }
        // A duplicate field name would make the JSON invalid.
        let foreign = |(name, value): (&String, &Value)| {
            (!FIELDS.contains(&name.as_str())).then(|| (name.clone(), value.clone()))
        };
        let line = SerializedTurn {
            turn: self.turn,
            ts: self.ts,
            user_summary: &self.user_summary,
            assistant_summary: &self.assistant_summary,
            state: self.state,
            why: &self.why,
            depth: &self.depth,
            long: self.long,
            tokens_in: self.tokens_in,
            tokens_out: self.tokens_out,
            model: &self.model,
            refused: &self.refused,
            extra: self.extra.iter().filter_map(foreign).collect(),
        };
        let mut text = serde_json::to_string(&line).unwrap_or_default();
        text.push('\n');
        text
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|why| why.to_string())?;
        let Value::Object(mut fields) = value else { return Err("it is not an object".into()) };
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        let turn = fields.get("turn").and_then(Value::as_u64).ok_or("it has no turn number")?;
        let ts = text("ts").and_then(|ts| Moment::parse(&ts)).ok_or("it has no valid time")?.moment;
        let state = text("state")
            .unwrap_or_default()
            .parse::<TurnState>()
            .map_err(|why| why.to_string())?;
        let count = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or_default();
        let line = Self {
            turn,
            ts,
            user_summary: text("user_summary").unwrap_or_default(),
            assistant_summary: text("assistant_summary").unwrap_or_default(),
            state,
            why: text("why"),
            depth: text("depth").unwrap_or_default(),
            long: fields.get("long").and_then(Value::as_bool).unwrap_or_default(),
            tokens_in: count("tokens_in"),
            tokens_out: count("tokens_out"),
            model: text("model"),
            refused: fields
                .get("refused")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|one| Some(one.as_str()?.to_owned()))
                .collect(),
            extra: Map::new(),
        };
        fields.retain(|name, _| !FIELDS.contains(&name.as_str()));
        Ok(Self { extra: fields, ..line })
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// A log line that is not a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadTurnLine {
    /// Counted from 1.
    pub line: usize,
    /// The parse error.
    pub why: String,
}

/// A parsed turn log.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnLog {
    /// Each turn as its last line has it.
    pub turns: BTreeMap<u64, TurnLine>,
    /// The lines that could not be parsed.
    pub bad: Vec<BadTurnLine>,
}

/// Parses a turn log. Malformed lines are reported and skipped.
pub fn parse_turn_log(bytes: &[u8]) -> TurnLog {
    let mut log = TurnLog::default();
    for raw in raw_lines(bytes, 1) {
        if raw.bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match TurnLine::parse(raw.bytes) {
            Ok(line) => {
                log.turns.insert(line.turn, line);
            }
            Err(why) => log.bad.push(BadTurnLine { line: raw.number, why }),
        }
    }
    log
}

/// The turns up to `last_turn` without a summary: missing or raw.
pub fn unsummarized_turns(log: &TurnLog, last_turn: u64) -> Vec<u64> {
    // A wrong number in a file must not cause an unbounded loop.
    const MAX_TURNS: usize = 10_000;
    let told = |turn: &u64| log.turns.get(turn).is_some_and(|line| line.state != TurnState::Raw);
    (1..=last_turn).filter(|turn| !told(turn)).take(MAX_TURNS).collect()
}

/// The text on one line, truncated to `most` words. It is cut at the end of a clause if one is
/// near, and marked with `…`.
pub fn limit_words(text: &str, most: usize) -> String {
    let cleaned = sanitize::clean(text).text;
    let all: Vec<&str> = cleaned.split_whitespace().collect();
    let mut kept = all.get(..most.min(all.len())).unwrap_or_default().to_vec();
    let mut cut = kept.len() < all.len();
    // Scripts without spaces and very long URLs exceed the byte limit before the word limit.
    while kept.len() > 1
        && kept.iter().map(|word| word.len() + 1).sum::<usize>() > MAX_SUMMARY_BYTES
    {
        kept.pop();
        cut = true;
    }
    let whole = kept.join(" ");
    let short = whole.get(..whole.floor_char_boundary(MAX_SUMMARY_BYTES)).unwrap_or_default();
    cut |= short.len() < whole.len();
    if !cut {
        return whole;
    }
    // In the last third, ending at a clause is worth losing a few words.
    let near = kept.len() * 2 / 3;
    let clause = kept
        .iter()
        .enumerate()
        .skip(near)
        .filter(|(_, word)| word.ends_with([',', ';', '.', ':', '!', '?']))
        .map(|(at, _)| at + 1)
        .next_back();
    let end = match clause {
        Some(at) if short.len() == whole.len() => kept.get(..at).unwrap_or_default().join(" "),
        _ => short.to_owned(),
    };
    format!("{}…", end.trim_end_matches([',', ';', ':', '.', ' ']))
}

/// The fallback when no summary could be made: the first words of the text itself.
pub fn fallback_summary(text: &str, most: usize) -> String {
    let mut told = limit_words(text, most);
    if told.is_empty() {
        told.push_str("(nothing)");
    }
    told
}

/// The summarizer's result for a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnSummary {
    /// Within the word limit.
    pub user_summary: String,
    /// Within the word limit.
    pub assistant_summary: String,
    /// The proposed changes of the facts.
    pub diff: FactDiff,
    /// What had to be truncated.
    pub notes: Vec<String>,
}

/// The JSON schema of the summarizer's answer, for models with structured output. Without `diff`,
/// it asks for the summaries only.
pub fn answer_schema(diff: bool) -> Value {
    let summary = |words: usize, what: &str| json!({"type": "string", "maxLength": MAX_SUMMARY_BYTES, "description": format!("{what}, at most {words} words")});
    let list = |what: &str| json!({"type": "array", "maxItems": MAX_REQUESTED_ENTRIES, "items": {"type": "string", "maxLength": MAX_ENTRY_BYTES}, "description": what});
    let mut properties = Map::new();
    properties.insert(
        "user_summary".into(),
        summary(MAX_USER_SUMMARY_WORDS, "what was asked, with its specifics"),
    );
    properties.insert(
        "assistant_summary".into(),
        summary(MAX_ASSISTANT_SUMMARY_WORDS, "what was decided or made"),
    );
    let mut required = vec!["user_summary", "assistant_summary"];
    if diff {
        required.push("base_truth_diff");
        properties.insert(
            "base_truth_diff".into(),
            json!({
                "type": "object",
                "additionalProperties": false,
                "required": ["add", "update", "remove"],
                "properties": {
                    "add": list("new facts, constraints, preferences, decisions"),
                    "update": list("known facts that changed, each as its whole replacement"),
                    "remove": list("known facts that no longer hold, in their own words"),
                },
            }),
        );
    }
    json!({"type": "object", "additionalProperties": false, "required": required, "properties": properties})
}

/// Parses the summarizer's answer. A summary that is too long is truncated; a missing one is an
/// error that names it.
pub fn parse_answer(answer: &Value) -> Result<TurnSummary, String> {
    let Some(fields) = answer.as_object() else {
        return Err("the answer is not a JSON object".into());
    };
    let mut notes = Vec::new();
    let mut summary = |name: &str, most: usize| -> Result<String, String> {
        let text = fields
            .get(name)
            .ok_or(format!("`{name}` is missing"))?
            .as_str()
            .ok_or(format!("`{name}` is not a string"))?;
        let kept = limit_words(text, most);
        if !kept.contains(char::is_alphanumeric) {
            return Err(format!("`{name}` is empty"));
        }
        if kept.ends_with('…') && !text.trim_end().ends_with('…') {
            notes.push(format!(
                "`{name}` has {} words and was cut to {most}",
                text.split_whitespace().count()
            ));
        }
        Ok(kept)
    };
    let user_summary = summary("user_summary", MAX_USER_SUMMARY_WORDS)?;
    let assistant_summary = summary("assistant_summary", MAX_ASSISTANT_SUMMARY_WORDS)?;
    let diff = fields.get("base_truth_diff").map(FactDiff::from_json).unwrap_or_default();
    Ok(TurnSummary { user_summary, assistant_summary, diff, notes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn moment() -> Moment {
        Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment
    }

    // C1
    #[test]
    fn the_last_line_of_a_turn_counts_and_bad_lines_are_reported() {
        let raw = TurnLine::raw(
            1,
            moment(),
            "Sort this list please",
            "Here it is",
            "no answer within 8 s",
        );
        let told = TurnLine {
            model: Some("m".into()),
            tokens_in: 5,
            refused: vec!["x: not said".into()],
            ..TurnLine::new(1, moment(), TurnState::Summarized, "Asked to sort", "Sorted")
        };
        let two = TurnLine::raw(2, moment(), "", "ok", "malformed twice");
        let text = format!(
            "{}not json\n{}\n{{\"turn\":3}}\n{}",
            raw.to_line(),
            two.to_line(),
            told.to_line()
        );
        let log = parse_turn_log(text.as_bytes());
        assert_eq!(log.turns.get(&1), Some(&told));
        assert_eq!(log.turns.get(&2).map(|line| line.user_summary.as_str()), Some("(nothing)"));
        assert_eq!(log.bad.iter().map(|bad| bad.line).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(unsummarized_turns(&log, 4), [2, 3, 4]);
        assert_eq!(unsummarized_turns(&log, 0), [0_u64; 0]);
    }

    // C1
    #[test]
    fn foreign_fields_come_through() {
        let line = r#"{"turn":7,"ts":"2026-02-13T09:30:00+01:00","user_summary":"a","assistant_summary":"b","state":"short","mood":{"x":[1,null]},"long":true}"#;
        let log = parse_turn_log(line.as_bytes());
        let turn = log.turns.get(&7).unwrap();
        assert!(turn.long && turn.state == TurnState::Short);
        assert_eq!(parse_turn_log(turn.to_line().as_bytes()).turns.get(&7), Some(turn));
        assert!(turn.to_line().contains(r#""mood":{"x":[1,null]}"#));
    }

    // C2
    #[test]
    fn word_limits_are_enforced() {
        let long = "one two three four five six seven, eight nine ten eleven twelve";
        assert_eq!(limit_words(long, 25), long);
        assert_eq!(limit_words(long, 9), "one two three four five six seven…");
        assert_eq!(limit_words(long, 5), "one two three four five…");
        assert_eq!(limit_words("  a \n b  ", 2), "a b");
        assert_eq!(limit_words("", 3), "");
    }

    // C2, C8
    #[test]
    fn an_answer_is_read_with_patience_or_refused_with_a_reason() {
        let answer = json!({
            "turn": 4, "user_summary": "Asked to refactor", "assistant_summary": vec!["word"; 60].join(" "),
            "base_truth_diff": {"add": ["a fact", 5, {"fact": "another"}, [], null], "update": null, "remove": "one", "why": "x"}
        });
        let read = parse_answer(&answer).unwrap();
        assert_eq!(read.assistant_summary.split_whitespace().count(), MAX_ASSISTANT_SUMMARY_WORDS);
        assert_eq!(read.notes.len(), 1);
        assert_eq!(read.diff.add, ["a fact", "5", "another"]);
        assert_eq!(
            (read.diff.update.len(), read.diff.remove.as_slice()),
            (0, ["one".to_owned()].as_slice())
        );
        assert_eq!(read.diff.notes.len(), 4);
        for (wrong, why) in [
            (json!([]), "the answer is not a JSON object"),
            (json!({}), "`user_summary` is missing"),
            (
                json!({"user_summary": 5, "assistant_summary": "x"}),
                "`user_summary` is not a string",
            ),
            (
                json!({"user_summary": "x", "assistant_summary": " … "}),
                "`assistant_summary` is empty",
            ),
        ] {
            assert_eq!(parse_answer(&wrong).unwrap_err(), why);
        }
    }

    // C2
    #[test]
    fn the_schema_is_strict() {
        fn strict(schema: &Value) {
            match schema.get("type").and_then(Value::as_str) {
                Some("object") => {
                    assert_eq!(schema.get("additionalProperties"), Some(&json!(false)));
                    let properties = schema.get("properties").and_then(Value::as_object).unwrap();
                    let mut required: Vec<&str> = schema
                        .get("required")
                        .and_then(Value::as_array)
                        .unwrap()
                        .iter()
                        .filter_map(Value::as_str)
                        .collect();
                    let mut names: Vec<&str> = properties.keys().map(String::as_str).collect();
                    required.sort_unstable();
                    names.sort_unstable();
                    assert_eq!(required, names);
                    properties.values().for_each(strict);
                }
                Some("array") => {
                    assert!(schema.get("maxItems").is_some());
                    strict(schema.get("items").unwrap());
                }
                _ => assert!(schema.get("maxLength").is_some(), "{schema}"),
            }
        }
        strict(&answer_schema(true));
        strict(&answer_schema(false));
        assert!(answer_schema(false).pointer("/properties/base_truth_diff").is_none());
    }

    proptest! {
        // C2
        #[test]
        fn no_summary_is_longer_than_its_limit(text in "(?s).{0,300}", most in 1_usize..40) {
            let kept = limit_words(&text, most);
            prop_assert!(kept.split_whitespace().count() <= most);
            prop_assert!(kept.len() <= MAX_SUMMARY_BYTES + '…'.len_utf8());
        }

        // C1
        #[test]
        fn any_bytes_can_be_read_and_any_line_comes_back(bytes in prop::collection::vec(any::<u8>(), 0..200), user in "\\PC{0,80}", turn in 0_u64..9_999) {
            let _ = parse_turn_log(&bytes);
            let line = TurnLine::new(turn, moment(), TurnState::Short, &user, &user);
            let log = parse_turn_log(line.to_line().as_bytes());
            prop_assert_eq!(log.turns.get(&turn), Some(&line));
        }
    }
}
