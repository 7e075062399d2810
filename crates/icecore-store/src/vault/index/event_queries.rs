//! Queries of the index about events.

use rusqlite::params_from_iter;
use std::collections::BTreeSet;

use icecore_domain::event::{Act, EventType, Priority};
use icecore_domain::format::line::{ParseFault, Severity};
use icecore_domain::id::EventId;
use icecore_domain::ledger::conflict::Claim;
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::ledger::{EventState, LineFault};
use jiff::civil::Date;
use rusqlite::types::Value;

use super::connection::damage_error;
use super::event_rows::sameness_hash;
use super::{Index, SqlResult};
use crate::StatementCount;

/// A row of the index: the place of an event's line, and its state.
pub struct EventRow {
    pub seq: i64,
    pub id: EventId,
    pub line: usize,
    pub offset: u64,
    pub length: usize,
    pub standing: EventState,
    pub verified: String,
    pub confirmed: bool,
}

/// Linked events and the places of their lines.
pub struct LinkedPlaces {
    /// All ids, unknown ones included.
    pub ids: Vec<EventId>,
    /// Lines of the ledger, in order: offset and length.
    pub in_ledger: Vec<(u64, usize)>,
    /// Lines of archives, file by file: file, offset and length.
    pub in_archives: Vec<(String, u64, usize)>,
}

/// The place of a line: its number in the ledger or the number of its file, its offset and its
/// length.
type LinePlace = (i64, u64, usize);

impl Index {
    /// The highest number of an event of that day.
    pub fn highest_number(&self, day: Date) -> SqlResult<u32> {
        let mut query = self.connection.prepare_cached(
            "SELECT max((SELECT ifnull(max(number), 0) FROM event WHERE day = ?1),
                        (SELECT ifnull(max(number), 0) FROM lost WHERE day = ?1),
                        (SELECT ifnull(max(number), 0) FROM spent WHERE day = ?1),
                        (SELECT ifnull(max(number), 0) FROM archive WHERE day = ?1))",
        )?;
        query.query_row([day.to_string()], |row| row.get(0))
    }

    /// Rows that may match, newest first: a superset of the result, which the domain filters. With
    /// `page`, at most that many of the rows before that one.
    pub fn candidates(
        &self,
        which: &EventQuery,
        page: Option<(i64, usize)>,
    ) -> SqlResult<Vec<EventRow>> {
        // An entity, a source or a label has few events: find these first and filter them.
        let few = which.entity.is_some()
            || which.source.is_some()
            || which.saying.is_some()
            || !which.ids.is_empty()
            || !which.tags.is_empty()
            || which.quarantined == Some(true);
        // A time range has few events: find them by it and sort. Otherwise walk each type and
        // priority from its end.
        let many = which.weightiest && !few && which.state == EventStateFilter::Active;
        let weighed = many && which.verified_since.is_none();
        let by = match (many, weighed) {
            (true, true) => " INDEXED BY event_standing",
            (true, false) => " INDEXED BY event_verified",
            (false, _) => "",
        };
        let mut sql = format!(
            "SELECT id, line, line_offset, line_length, standing, ended_by, verified, seq, confirmed FROM event{by} WHERE 1"
        );
        // For a page of the newest, walking the rows backwards is faster than collecting and
        // sorting all matches.
        let passing = if page.is_some() || few { "+" } else { "" };
        let mut values: Vec<Value> = Vec::new();
        let mut among = |by: &str, column: &str, list: Vec<String>| {
            if !list.is_empty() {
                let marks = vec!["?"; list.len()].join(",");
                sql.push_str(&format!(" AND {by}{column} IN ({marks})"));
                values.extend(list.into_iter().map(Value::from));
            }
        };
        if which.state == EventStateFilter::Active {
            among(passing, "act", vec![Act::Assert.word().into()]);
            among(passing, "standing", vec![EventState::Active.word().into()]);
        }
        if !weighed {
            // Naming every type lets SQLite find a priority by the same index as a type.
            let any = if which.priorities.is_empty() { &[] } else { EventType::ALL };
            let kinds = if which.kinds.is_empty() { any } else { &which.kinds };
            among(passing, "kind", kinds.iter().map(|kind| kind.word().into()).collect());
            among(
                passing,
                "priority",
                which.priorities.iter().map(|priority| priority.word().into()).collect(),
            );
        }
        for (column, value) in [("entity", &which.entity), ("source", &which.source)] {
            if let Some(value) = value {
                sql.push_str(&format!(" AND {column} = ?"));
                values.push(Value::from(value.clone()));
            }
        }
        // The source `live` has no index of its own, and SQLite must be kept from choosing one for
        // it.
        if which.source.as_deref().is_some_and(|source| source != "live") {
            sql.push_str(" AND source <> 'live'");
        }
        for tag in &which.tags {
            sql.push_str(" AND seq IN (SELECT seq FROM tag WHERE tag = ?)");
            values.push(Value::from(tag.clone()));
        }
        if !which.ids.is_empty() {
            sql.push_str(" AND id IN (SELECT value FROM json_each(?))");
            values.push(Value::from(id_list(&which.ids)));
        }
        if let Some(text) = &which.saying {
            sql.push_str(" AND saying = ?");
            values.push(Value::from(sameness_hash(text)));
        }
        if let Some(after) = which.after {
            sql.push_str(" AND seq > ifnull((SELECT seq FROM event WHERE id = ?), 0)");
            values.push(Value::from(after.to_string()));
        }
        match which.quarantined {
            Some(true) => sql.push_str(" AND low_trust AND NOT confirmed"),
            Some(false) => sql.push_str(" AND NOT (low_trust AND NOT confirmed)"),
            None => {}
        }
        let bounds = [
            ("told >= ?", which.since),
            ("told <= ?", which.until),
            ("verified_on >= ?", which.verified_since),
            ("verified_on <= ?", which.verified_until),
        ];
        for (bound, day) in bounds {
            if let Some(day) = day {
                sql.push_str(&format!(" AND {bound}"));
                values.push(Value::from(day.to_string()));
            }
        }
        if let (true, Some(limit)) = (which.weightiest, which.limit) {
            // Rows that the domain filters out must not displace others.
            let enough = limit.saturating_mul(2);
            if weighed {
                return self.heaviest_rows(&sql, &values, which, enough);
            }
            sql.push_str(" ORDER BY priority, seq DESC LIMIT ?");
            values.push(Value::from(i64::try_from(enough).unwrap_or(i64::MAX)));
        } else if let Some((before, many)) = page {
            sql.push_str(" AND seq < ? ORDER BY seq DESC LIMIT ?");
            values.extend([
                Value::from(before),
                Value::from(i64::try_from(many).unwrap_or(i64::MAX)),
            ]);
        } else {
            sql.push_str(" ORDER BY seq DESC");
        }
        let mut query = self.connection.prepare_cached(&sql)?;
        query.query_map(params_from_iter(values), event_row)?.collect()
    }

    /// The rows of a query by priority, newest first, until there are enough.
    fn heaviest_rows(
        &self,
        sql: &str,
        values: &[Value],
        which: &EventQuery,
        enough: usize,
    ) -> SqlResult<Vec<EventRow>> {
        let sql = format!("{sql} AND kind = ? AND priority = ? ORDER BY seq DESC LIMIT ?");
        let mut query = self.connection.prepare_cached(&sql)?;
        let mut found: Vec<EventRow> = Vec::new();
        let kinds = if which.kinds.is_empty() { EventType::ALL } else { &which.kinds };
        let priorities =
            if which.priorities.is_empty() { Priority::ALL } else { &which.priorities };
        for priority in Priority::ALL.iter().filter(|priority| priorities.contains(priority)) {
            let room = enough.saturating_sub(found.len());
            let mut of_weight: Vec<EventRow> = Vec::new();
            for kind in kinds.iter().filter(|_| room > 0) {
                let limit = Value::from(i64::try_from(room).unwrap_or(i64::MAX));
                let more = [
                    Value::from(kind.word().to_owned()),
                    Value::from(priority.word().to_owned()),
                    limit,
                ];
                let rows = query
                    .query_map(params_from_iter(values.iter().cloned().chain(more)), event_row)?;
                of_weight.extend(rows.collect::<SqlResult<Vec<EventRow>>>()?);
            }
            of_weight.sort_by_key(|row| std::cmp::Reverse(row.seq));
            of_weight.truncate(room);
            found.extend(of_weight);
        }
        Ok(found)
    }

    /// The number of statements by type, priority and state.
    pub fn count_statements(&self) -> SqlResult<Vec<StatementCount>> {
        // Counting along the index for each combination is several times faster than one query with
        // GROUP BY.
        let state = self.connection.unchecked_transaction()?;
        let mut query =
            state.prepare("SELECT count(*) FROM event WHERE act = 'assert' AND standing = ?1 AND kind = ?2 AND priority = ?3")?;
        let mut counts = Vec::new();
        for standing in ["active", "superseded", "closed", "retracted"] {
            for &kind in EventType::ALL {
                for &priority in Priority::ALL {
                    let events: usize = query
                        .query_row([standing, kind.word(), priority.word()], |row| row.get(0))?;
                    if events > 0 {
                        counts.push(StatementCount { kind, priority, state: standing, events });
                    }
                }
            }
        }
        Ok(counts)
    }

    /// Claims of active events about attributes with more than one value.
    pub fn contested_claims(&self) -> SqlResult<Vec<(EventId, Claim)>> {
        let mut query = self.connection.prepare(
            // Fix this join order for the planner: contested attributes are few, events are many.
            "SELECT e.id, c.attribute, c.value FROM contested CROSS JOIN claim c USING (attribute) CROSS JOIN event e USING (seq)
             WHERE e.standing = 'active' ORDER BY e.seq",
        )?;
        query
            .query_map([], |row| {
                let id = row.get::<_, String>(0)?.parse().map_err(|_| damage_error())?;
                Ok((id, Claim { attribute: row.get(1)?, value: row.get(2)? }))
            })?
            .collect()
    }

    /// All events linked to these or to events about these entities, by any chain of effects.
    pub fn linked_places(&self, ids: &[EventId], about: &[&str]) -> SqlResult<LinkedPlaces> {
        const LEDGER_PLACES: &str = "SELECT id, seq, line_offset, line_length FROM event";
        const ARCHIVE_PLACES: &str = "SELECT id, file, line_offset, line_length FROM archive";
        const BY_ID: &str = "WHERE id IN (SELECT value FROM json_each(?1))";
        const BY_ENTITY: &str = "WHERE entity = ?1";
        let state = self.connection.unchecked_transaction()?;
        let (mut here, mut gone): (Vec<LinePlace>, Vec<LinePlace>) = Default::default();
        let mut met = Vec::new();
        for (from, lines) in [(LEDGER_PLACES, &mut here), (ARCHIVE_PLACES, &mut gone)] {
            let mut query = state.prepare_cached(&format!("{from} {BY_ENTITY}"))?;
            for thing in about {
                for line in query.query_map([thing], line_row)? {
                    let (id, line) = line?;
                    met.push(id);
                    lines.push(line);
                }
            }
        }
        met.sort_unstable();
        let mut known: BTreeSet<EventId> = met.iter().chain(ids).copied().collect();
        let mut beside = state.prepare_cached(
            "SELECT target FROM json_each(?1) CROSS JOIN effect ON source = value
             UNION SELECT source FROM json_each(?1) CROSS JOIN effect ON target = value",
        )?;
        let mut next: Vec<EventId> = known.iter().copied().collect();
        while !next.is_empty() {
            let from = id_list(&std::mem::take(&mut next));
            for found in beside.query_map([from], |row| row.get::<_, String>(0))? {
                let found: EventId = found?.parse().map_err(|_| damage_error())?;
                if known.insert(found) {
                    next.push(found);
                }
            }
        }
        let rest: Vec<EventId> =
            known.iter().copied().filter(|id| met.binary_search(id).is_err()).collect();
        let rest = id_list(&rest);
        for (from, lines) in [(LEDGER_PLACES, &mut here), (ARCHIVE_PLACES, &mut gone)] {
            let mut query = state.prepare_cached(&format!("{from} {BY_ID}"))?;
            for line in query.query_map([&rest], line_row)? {
                lines.push(line?.1);
            }
            lines.sort_unstable();
        }
        let mut files = state.prepare_cached("SELECT path FROM taken WHERE file = ?1")?;
        let mut placed = Vec::with_capacity(gone.len());
        for file in gone.chunk_by(|a, b| a.0 == b.0) {
            let path: String = files.query_row([file[0].0], |row| row.get(0))?;
            placed.extend(file.iter().map(|&(_, offset, length)| (path.clone(), offset, length)));
        }
        let here = here.into_iter().map(|(_, offset, length)| (offset, length)).collect();
        Ok(LinkedPlaces { ids: known.into_iter().collect(), in_ledger: here, in_archives: placed })
    }

    /// Names of all entities, archives included.
    pub fn entities(&self) -> SqlResult<Vec<String>> {
        let mut query = self.connection.prepare(
            "SELECT DISTINCT entity FROM event WHERE entity IS NOT NULL
             UNION SELECT DISTINCT entity FROM archive WHERE entity IS NOT NULL ORDER BY 1",
        )?;
        query.query_map([], |row| row.get(0))?.collect()
    }

    /// Lines that are not, or not completely, valid events.
    pub fn line_faults(&self) -> SqlResult<Vec<LineFault>> {
        let mut query = self.connection.prepare("SELECT line, what FROM fault ORDER BY line")?;
        query
            .query_map([], |row| {
                Ok(LineFault {
                    line: row.get(0)?,
                    fault: ParseFault { severity: Severity::Bad, what: row.get(1)? },
                })
            })?
            .collect()
    }

    /// Ids of events that are missing in the ledger.
    pub fn lost_ids(&self) -> SqlResult<Vec<EventId>> {
        let mut query =
            self.connection.prepare_cached("SELECT id FROM lost ORDER BY day, number")?;
        query
            .query_map([], |row| row.get::<_, String>(0)?.parse().map_err(|_| damage_error()))?
            .collect()
    }
}

pub(super) fn event_row(row: &rusqlite::Row<'_>) -> SqlResult<EventRow> {
    let ended_by: Option<String> = row.get(5)?;
    let standing =
        EventState::from_parts(&row.get::<_, String>(4)?, ended_by.and_then(|id| id.parse().ok()));
    Ok(EventRow {
        id: row.get::<_, String>(0)?.parse().map_err(|_| damage_error())?,
        line: row.get(1)?,
        offset: row.get(2)?,
        length: row.get(3)?,
        standing: standing.ok_or_else(damage_error)?,
        verified: row.get(6)?,
        seq: row.get(7)?,
        confirmed: row.get(8)?,
    })
}

pub(super) fn line_row(row: &rusqlite::Row<'_>) -> SqlResult<(EventId, LinePlace)> {
    let id = row.get_ref(0)?.as_str()?.parse().map_err(|_| damage_error())?;
    Ok((id, (row.get(1)?, row.get(2)?, row.get(3)?)))
}

/// Ids as one JSON list, because SQLite limits the number of parameters.
pub(super) fn id_list(ids: &[EventId]) -> String {
    let mut list = String::with_capacity(2 + 20 * ids.len());
    for id in ids {
        list.push(if list.is_empty() { '[' } else { ',' });
        list.push_str(&format!("\"{id}\""));
    }
    if list.is_empty() { "[]".into() } else { list + "]" }
}
