//! The vault's own state files: the integrity report and the consolidation checkpoint.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::MergeInput;
use crate::calendar::Moment;
use crate::ledger::integrity;

fn to_pretty_json(value: &Value) -> Vec<u8> {
    format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_default()).into_bytes()
}

fn json_object(bytes: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// Ids lost on either side are lost; the merged ledger has still to be verified.
pub(super) fn merge_integrity(sides: MergeInput<'_>) -> Vec<u8> {
    let gaps: BTreeSet<_> =
        [sides.ours, sides.theirs].into_iter().flat_map(integrity::parse_known_gaps).collect();
    to_pretty_json(&json!({ "known_gaps": gaps }))
}

/// Merges the checkpoints: the earlier run counts, and sessions or logs that the two sides
/// distilled in different states are distilled again.
pub(super) fn merge_checkpoint(sides: MergeInput<'_>) -> Vec<u8> {
    let (ours, theirs) = (json_object(sides.ours), json_object(sides.theirs));
    let mut merged = Map::new();
    let run = |side: &Map<String, Value>| {
        side.get("last_run_ts")
            .and_then(Value::as_str)
            .and_then(Moment::parse)
            .map(|read| read.moment)
    };
    if let (Some(one), Some(other)) = (run(&ours), run(&theirs)) {
        merged.insert("last_run_ts".into(), one.min(other).to_string().into());
    }
    merged.insert("events_processed".into(), 0.into());
    let mut distilled = Map::new();
    for part in ["sessions", "logs"] {
        let of = |side: &Map<String, Value>| -> Map<String, Value> {
            side.get("distilled")
                .and_then(|distilled| distilled.get(part))
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default()
        };
        let (ours, theirs) = (of(&ours), of(&theirs));
        let differs = |name: &String| matches!((ours.get(name), theirs.get(name)), (Some(one), Some(other)) if one != other);
        let all: Map<String, Value> = ours
            .clone()
            .into_iter()
            .chain(theirs.clone())
            .filter(|(name, _)| !differs(name))
            .collect();
        distilled.insert(part.into(), all.into());
    }
    merged.insert("distilled".into(), distilled.into());
    to_pretty_json(&merged.into())
}
