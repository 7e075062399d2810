//! The coverage check: every record is in exactly one summary of each tier that should cover it.

use std::collections::{BTreeMap, HashMap};

use super::plan::PlanningInput;
use crate::ledger::integrity::{IntegrityCheck, IntegrityFinding};
use crate::record::SessionKey;
use crate::summary::{Period, SummaryHead, Tier};

/// Checks the coverage. No findings if every record is covered as required by now.
///
/// A missing summary is a warning: the next run writes it. A summary that counts other records than
/// exist, or two summaries over the same records, are failures.
pub fn check_coverage(known: &PlanningInput, heads: &[SummaryHead]) -> Vec<IntegrityFinding> {
    let mut found = Vec::new();
    let fail = |what: String| IntegrityFinding::failure(IntegrityCheck::Coverage, what);
    let mut nodes: HashMap<&SessionKey, Vec<Period>> = HashMap::new();
    let recorded: HashMap<&SessionKey, u64> =
        known.sessions.iter().map(|stat| (&stat.key, stat.digest.records)).collect();
    for head in heads {
        // A session whose records were all forgotten leaves only its number.
        if let Some(key) =
            head.session.as_ref().filter(|key| recorded.contains_key(key) || !head.is_forgotten())
        {
            nodes.entry(key).or_default().push(head.period);
        }
    }
    for (key, periods) in &nodes {
        if periods.len() > 1 {
            let names: Vec<String> = periods.iter().map(ToString::to_string).collect();
            found.push(fail(format!(
                "one session of {} is covered by {}",
                key.day,
                names.join(" and ")
            )));
        }
        if !recorded.contains_key(key) {
            found.push(fail(format!("{} covers a session that has no records", periods[0])));
        }
    }
    // Each day belongs to one week, each week to one month, each month to one year, so counting
    // per tier suffices.
    let due: BTreeMap<Period, String> = known.overdue().into_iter().collect();
    for &tier in &Tier::ALL[1..] {
        let mut counts: BTreeMap<Period, u64> = BTreeMap::new();
        for stat in &known.sessions {
            if let Some(period) = Period::covering(tier, stat.key.day) {
                *counts.entry(period).or_default() += stat.digest.records;
            }
        }
        for head in heads.iter().filter(|head| head.period.tier() == tier) {
            let records = counts.get(&head.period).copied().unwrap_or(0);
            if head.messages != records
                && !due.contains_key(&head.period)
                && !is_period_open(known, head.period)
            {
                found.push(fail(format!(
                    "{} covers {} records, and there are {records}",
                    head.period, head.messages
                )));
            }
        }
    }
    let missing: Vec<String> =
        due.iter().map(|(period, why)| format!("{period} ({why})")).collect();
    if !missing.is_empty() {
        let shown: Vec<&str> = missing.iter().take(5).map(String::as_str).collect();
        let more = if missing.len() > 5 {
            format!(" and {} more", missing.len() - 5)
        } else {
            String::new()
        };
        found.push(IntegrityFinding::warning(
            IntegrityCheck::Coverage,
            format!(
                "not summarized yet: {}{more}. `icecore rollup due` summarizes what is due",
                shown.join(", ")
            ),
        ));
    }
    found.sort_by(|a, b| a.what.cmp(&b.what));
    found
}

/// Whether the period is still open, so that its summary covers only a part.
fn is_period_open(known: &PlanningInput, period: Period) -> bool {
    period.days().last >= known.now.day()
}
