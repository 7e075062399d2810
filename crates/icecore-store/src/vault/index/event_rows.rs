//! Writes the rows of events: line by line, or all of them again.

use super::connection::damage_error;
use super::files;
use rusqlite::OptionalExtension;
use std::collections::HashMap;

use icecore_domain::event::{Effect, Event};
use icecore_domain::format::line;
use icecore_domain::format::line::Severity;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::ledger::conflict::{self, Claim};
use icecore_domain::ledger::{EventState, Ledger, LedgerEntry};
use icecore_domain::record::Trust;
use icecore_domain::{ledger, sanitize};
use rusqlite::{Transaction, params};

use super::{
    CoveredPart, CurrentLedger, SqlResult, complete_lines, is_covered_unchanged, put_covered,
    put_spent, read_covered,
};
use crate::Progress;

/// From this many new lines on, a rebuild is faster than single steps.
const MIN_REBUILD_LINES: usize = 2_000;

pub(super) fn bring_up_to_date(
    transaction: Transaction<'_>,
    current: &CurrentLedger,
) -> SqlResult<()> {
    let (text, look) = (current.text.as_slice(), current.look);
    let mut covered = read_covered(&transaction)?;
    for (path, now) in &current.archives {
        files::fill_file(&transaction, path, now)?;
    }
    let known = usize::try_from(covered.bytes).unwrap_or(usize::MAX);
    let unchanged = is_covered_unchanged(&covered, text);
    let tail = if unchanged { &text[known..] } else { text };
    if !unchanged {
        // The ledger was replaced: everything seen against it must be checked again.
        transaction.execute_batch("DELETE FROM document;")?;
    }
    if !unchanged || memchr::memchr_iter(b'\n', tail).count() > MIN_REBUILD_LINES {
        covered = fill_tables(&transaction, text, &|_, _| {})?;
    } else {
        add_lines(&transaction, text, &mut covered)?;
    }
    covered.stamp =
        look.filter(|look| look.len == covered.bytes).map_or(String::new(), |look| look.stamp());
    put_spent(&transaction, &current.spent)?;
    put_covered(&transaction, &covered)?;
    transaction.commit()
}

/// Indexes the lines beyond the covered part, one by one.
pub(super) fn add_lines(
    transaction: &Transaction<'_>,
    text: &[u8],
    covered: &mut CoveredPart,
) -> SqlResult<()> {
    let text = complete_lines(text);
    let start = usize::try_from(covered.bytes).unwrap_or(0).min(text.len());
    let mut retracts = false;
    for raw in ledger::raw_lines(&text[start..], covered.lines + 1) {
        retracts |= add_line(transaction, raw, (start + raw.offset) as u64)?;
        covered.running = covered.running.chain(raw.bytes);
        covered.lines += 1;
    }
    covered.bytes = text.len() as u64;
    if retracts {
        recompute_states(transaction, text)?;
    }
    Ok(())
}

/// Indexes one line; true if it is a retraction, whose effect only the whole ledger tells.
pub(super) fn add_line(
    transaction: &Transaction<'_>,
    raw: ledger::RawLine<'_>,
    offset: u64,
) -> SqlResult<bool> {
    let mut retracts = false;
    let parsed = line::parse_line(raw.bytes);
    for fault in parsed.faults.iter().filter(|fault| fault.severity == Severity::Bad) {
        put_fault(transaction, raw.number, &fault.what)?;
    }
    for event in parsed.events {
        let entry = LedgerEntry::from_event(event, raw.number);
        let Some(seq) = put_event(transaction, &entry, offset, raw.bytes.len())? else {
            put_fault(transaction, raw.number, &ledger::duplicate_id_fault(entry.event.id).what)?;
            continue;
        };
        let id = entry.event.id.to_string();
        transaction.prepare_cached("DELETE FROM lost WHERE id = ?1")?.execute([&id])?;
        transaction
            .prepare_cached("INSERT OR IGNORE INTO twice SELECT id FROM archive WHERE id = ?1")?
            .execute([&id])?;
        for claim in conflict::claims(&entry.event) {
            let mut other = transaction.prepare_cached(
                "SELECT 1 FROM claim WHERE attribute = ?1 AND value <> ?2 LIMIT 1",
            )?;
            if other.exists(params![claim.attribute, claim.value])? {
                transaction
                    .prepare_cached("INSERT OR IGNORE INTO contested VALUES (?1)")?
                    .execute([&claim.attribute])?;
            }
            put_claim(transaction, seq, &claim)?;
        }
        for (target, effect) in entry.event.effects() {
            retracts |= effect == Effect::Retract;
            apply_effect(transaction, &entry.event, target, effect)?;
        }
    }
    Ok(retracts)
}

/// Inserts an event's row; `None` if the id is in use.
pub(super) fn put_event(
    transaction: &Transaction<'_>,
    entry: &LedgerEntry,
    offset: u64,
    length: usize,
) -> SqlResult<Option<i64>> {
    let event = &entry.event;
    let mut put = transaction.prepare_cached(
        "INSERT OR IGNORE INTO event (id, day, number, told, line, line_offset, line_length, kind, priority, act, entity, source, standing, ended_by, verified, confirmed,
         verified_on, low_trust, saying)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    )?;
    let added = put.execute(params![
        event.id.to_string(),
        event.id.day().to_string(),
        event.id.number(),
        event.ts.day().to_string(),
        entry.line,
        offset,
        length,
        event.kind.word(),
        event.priority.word(),
        event.act.word(),
        event.entity,
        event.source,
        entry.state.word(),
        entry.state.ended_by().map(|by| by.to_string()),
        entry.verified.to_string(),
        entry.confirmed,
        entry.verified.day().to_string(),
        Trust::from_origin(event.origin) == Trust::Low,
        sameness_hash(&event.content),
    ])?;
    if added == 0 {
        return Ok(None);
    }
    let seq = transaction.last_insert_rowid();
    put_effects(transaction, event)?;
    for tag in &event.tags {
        transaction
            .prepare_cached("INSERT OR IGNORE INTO tag VALUES (?1, ?2)")?
            .execute(params![tag, seq])?;
    }
    Ok(Some(seq))
}

/// A short hash of a text, equal for texts that say the same.
pub(super) fn sameness_hash(text: &str) -> Vec<u8> {
    Hash::of(sanitize::sameness_key(text).as_bytes()).as_bytes()[..8].to_vec()
}

/// Stores the effects of an event on others.
pub(super) fn put_effects(transaction: &Transaction<'_>, event: &Event) -> SqlResult<()> {
    for (target, _) in event.effects() {
        let mut put = transaction.prepare_cached("INSERT OR IGNORE INTO effect VALUES (?1, ?2)")?;
        put.execute([event.id.to_string(), target.to_string()])?;
    }
    Ok(())
}

pub(super) fn put_fault(transaction: &Transaction<'_>, line: usize, what: &str) -> SqlResult<()> {
    transaction
        .prepare_cached("INSERT INTO fault VALUES (?1, ?2)")?
        .execute(params![line, what])?;
    Ok(())
}

pub(super) fn put_claim(transaction: &Transaction<'_>, seq: i64, claim: &Claim) -> SqlResult<()> {
    transaction.prepare_cached("INSERT INTO claim VALUES (?1, ?2, ?3)")?.execute(params![
        seq,
        claim.attribute,
        claim.value
    ])?;
    Ok(())
}

/// Applies the effect of an event to an earlier one, by the domain's rules.
pub(super) fn apply_effect(
    transaction: &Transaction<'_>,
    event: &Event,
    target: EventId,
    effect: Effect,
) -> SqlResult<()> {
    if target == event.id || matches!(effect, Effect::Retract | Effect::None) {
        return Ok(());
    }
    let mut query = transaction.prepare_cached(
        "SELECT standing, ended_by, verified, confirmed FROM event WHERE id = ?1",
    )?;
    let row = query
        .query_row([target.to_string()], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, Option<String>>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, bool>(3)?,
            ))
        })
        .optional()?;
    let Some((word, by, verified, confirmed)) = row else { return Ok(()) };
    let before = EventState::from_parts(&word, by.and_then(|id| id.parse().ok()))
        .ok_or_else(damage_error)?;
    let after = before.apply(effect, event.id);
    let mut renewed =
        icecore_domain::calendar::Moment::parse(&verified).ok_or_else(damage_error)?.moment;
    if effect == Effect::Confirm {
        renewed = renewed.max(event.ts);
    }
    let trusted = effect == Effect::Confirm && Trust::from_origin(event.origin) != Trust::Low;
    put_state(transaction, target, after, renewed, confirmed || trusted)
}

pub(super) fn put_state(
    transaction: &Transaction<'_>,
    id: EventId,
    standing: EventState,
    verified: icecore_domain::calendar::Moment,
    confirmed: bool,
) -> SqlResult<()> {
    let mut put = transaction
        .prepare_cached("UPDATE event SET standing = ?2, ended_by = ?3, verified = ?4, confirmed = ?5, verified_on = ?6 WHERE id = ?1")?;
    let ended_by = standing.ended_by().map(|by| by.to_string());
    put.execute(params![
        id.to_string(),
        standing.word(),
        ended_by,
        verified.to_string(),
        confirmed,
        verified.day().to_string()
    ])?;
    Ok(())
}

/// Computes the state of every event from the whole ledger.
pub(super) fn recompute_states(transaction: &Transaction<'_>, text: &[u8]) -> SqlResult<()> {
    let mut query =
        transaction.prepare("SELECT id, standing, ended_by, verified, confirmed FROM event")?;
    let known: HashMap<String, (String, Option<String>, String, bool)> = query
        .query_map([], |row| {
            Ok((row.get(0)?, (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))
        })?
        .collect::<SqlResult<_>>()?;
    for entry in Ledger::parse(text, None).entries() {
        let (standing, verified) = (entry.state, entry.verified);
        let now = (
            standing.word().to_owned(),
            standing.ended_by().map(|by| by.to_string()),
            verified.to_string(),
            entry.confirmed,
        );
        if known.get(&entry.event.id.to_string()) != Some(&now) {
            put_state(transaction, entry.event.id, standing, verified, entry.confirmed)?;
        }
    }
    Ok(())
}

/// Empties the tables and fills them from the whole ledger.
pub(super) fn fill_tables(
    transaction: &Transaction<'_>,
    text: &[u8],
    progress: Progress<'_>,
) -> SqlResult<CoveredPart> {
    let text = complete_lines(text);
    transaction.execute_batch(
        "CREATE TEMP TABLE before AS SELECT id, day, number FROM event;
         DELETE FROM event; DELETE FROM tag; DELETE FROM twice;
         DELETE FROM effect WHERE source NOT IN (SELECT id FROM archive); DELETE FROM claim; DELETE FROM contested; DELETE FROM fault;",
    )?;
    let ledger = Ledger::parse(text, None);
    for found in ledger.unreadable_lines() {
        put_fault(transaction, found.line, &found.fault.what)?;
    }
    let mut entries = ledger.entries().iter().peekable();
    let mut covered = CoveredPart::empty();
    for raw in ledger::raw_lines(text, 1) {
        while let Some(entry) = entries.next_if(|entry| entry.line == raw.number) {
            let Some(seq) = put_event(transaction, entry, raw.offset as u64, raw.bytes.len())?
            else {
                continue;
            };
            for claim in conflict::claims(&entry.event) {
                put_claim(transaction, seq, &claim)?;
            }
        }
        covered.running = covered.running.chain(raw.bytes);
        covered.lines += 1;
        if covered.lines.is_multiple_of(1_000) {
            progress(raw.offset as u64, text.len() as u64);
        }
    }
    transaction.execute_batch(
        "INSERT OR IGNORE INTO twice SELECT id FROM event CROSS JOIN archive USING (id);
         INSERT INTO contested SELECT attribute FROM claim GROUP BY attribute HAVING min(value) <> max(value);
         INSERT OR IGNORE INTO lost SELECT id, day, number FROM before WHERE id NOT IN (SELECT id FROM event);
         DELETE FROM lost WHERE id IN (SELECT id FROM event) OR id IN (SELECT id FROM archive);
         DROP TABLE before;",
    )?;
    covered.bytes = text.len() as u64;
    progress(covered.bytes, covered.bytes);
    Ok(covered)
}
