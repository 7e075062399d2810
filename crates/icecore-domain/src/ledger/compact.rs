//! Plans which lines leave the ledger and which summaries replace them (L14, L15).
//!
//! Pruning removes expired events. Compaction also removes events that another event stands for,
//! and more if the ledger is too long. Both are planned from stored data only: the next run
//! finishes a run that died, and a second run on the same day has nothing to do.
//!
//! The invariant: **compaction never changes the state of a retained event.** Every event that
//! determines its state is retained too. All steps are linear in the number of events; shrinking to
//! the limit adds a logarithmic factor.

use std::collections::{HashMap, HashSet};

use icecore_text::normalize::collapse_spaces;
use jiff::civil::Date;

use crate::calendar::{Moment, days_between};
use crate::event::{
    Act, COMPACTS_FIELD, Effect, Event, EventDraft, EventType, LoopStatus, Priority,
};
use crate::format::line::{self, Severity};
use crate::id::EventId;
use crate::ledger::archive::{self, ArchiveReason};
use crate::ledger::decay::{self, DecayLimits, Freshness};
use crate::ledger::{EventState, Ledger, LedgerEntry, raw_lines};
use crate::record::Trust;
use crate::sanitize;

/// An event that ended on the same local day stays, so that undo needs no archive.
const UNDO_DAYS: i64 = 1;
/// Retracted events stay this many days.
const RETRACTED_DAYS: i64 = 7;
/// Longer chains are not summarized: their summary would be too long to read.
const MAX_CHAIN_EVENTS: usize = 10_000;
/// Removals can enable more removals; after this many rounds the rest waits for the next run.
const MAX_ROUNDS: usize = 8;
/// The longest text of a commitment in a summary; the archive has all of it.
const MAX_WORDING_CHARS: usize = 1_000;
/// The longest closing note in a summary.
const MAX_NOTE_CHARS: usize = 500;
/// The most commitments of one chain that a summary quotes; it counts the others.
const MAX_WORDINGS: usize = 5;

/// Limits of a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionLimits {
    /// The most events after a compaction.
    pub max_events: usize,
    /// When events become stale, dropped and expired.
    pub ages: DecayLimits,
    /// Events recorded or confirmed within this many days are not removed to shrink the ledger.
    pub spare_days: u16,
}

impl CompactionLimits {
    /// The defaults of a vault policy.
    pub const DEFAULT: Self = Self { max_events: 150, ages: DecayLimits::DEFAULT, spare_days: 7 };
}

/// The kind of run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompactionMode {
    /// Removes expired events.
    Prune,
    /// Also removes events that others stand for, and shrinks the ledger to its limit.
    Compact,
}

/// A ledger that exceeds its limit although everything removable was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerOverflow {
    pub events: usize,
    /// The number of P0, P1 and open commitments among them.
    pub permanent: usize,
}

/// The events to remove, in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Events for the compaction archive.
    pub compacted: Vec<EventId>,
    /// Expired events.
    pub pruned: Vec<EventId>,
    /// Set if the ledger still exceeds its limit.
    pub over: Option<LedgerOverflow>,
}

impl CompactionPlan {
    /// All ids.
    pub fn ids(&self) -> HashSet<EventId> {
        self.compacted.iter().chain(&self.pruned).copied().collect()
    }
}

/// Step one: the missing summary events of closed chains, oldest chain first.
pub fn chain_summaries(ledger: &Ledger, now: Moment) -> Vec<EventDraft> {
    let web = EventGraph::from_ledger(ledger);
    let chains = web.chains();
    let covered = web.summarized_ids();
    let mut drafts = Vec::new();
    for members in &chains {
        let waits = web.is_closed_chain(members)
            && !members.iter().all(|&at| covered.contains(&web.entry(at).event.id));
        if waits && web.is_settled(members, now.day()) {
            drafts.extend(web.summary_draft(members, now));
        }
    }
    drafts
}

/// Step two: plans which events leave the ledger on `today`.
pub fn plan_compaction(
    ledger: &Ledger,
    today: Date,
    limits: CompactionLimits,
    what: CompactionMode,
) -> CompactionPlan {
    let mut web = EventGraph::from_ledger(ledger);
    let mut gone: Vec<Option<ArchiveReason>> = vec![None; ledger.entries().len()];
    web.remove_until_stable(today, limits, what, &mut gone);
    let mut over = None;
    if what == CompactionMode::Compact && web.remaining_count() > limits.max_events {
        if web.shrink_to_limit(today, limits, &mut gone) {
            web.remove_until_stable(today, limits, what, &mut gone);
        }
        let events = web.remaining_count();
        over = (events > limits.max_events).then(|| LedgerOverflow {
            events,
            permanent: web.remaining_entries().filter(|entry| is_permanent(entry)).count(),
        });
    }
    let ids = |why| {
        let these = ledger.entries().iter().zip(&gone).filter(move |(_, gone)| **gone == Some(why));
        these.map(|(entry, _)| entry.event.id).collect()
    };
    CompactionPlan {
        compacted: ids(ArchiveReason::Compaction),
        pruned: ids(ArchiveReason::Pruning),
        over,
    }
}

/// The new text of the ledger, and the removed lines byte for byte, without line breaks. A line
/// goes only if all its events leave; lines that are not events stay in place.
pub fn split_ledger<'a>(text: &'a [u8], leaving: &HashSet<EventId>) -> (Vec<u8>, Vec<&'a [u8]>) {
    let mut kept = Vec::with_capacity(text.len());
    let mut gone = Vec::new();
    for raw in raw_lines(text, 1) {
        let parsed = line::parse_line(raw.bytes);
        if !parsed.events.is_empty()
            && parsed.is_sound()
            && parsed.events.iter().all(|event| leaving.contains(&event.id))
        {
            gone.push(raw.bytes);
            continue;
        }
        kept.extend_from_slice(raw.bytes);
        if raw.ended {
            kept.push(b'\n');
        }
    }
    (kept, gone)
}

fn is_permanent(entry: &LedgerEntry) -> bool {
    entry.event.priority <= Priority::P1 || entry.is_open_loop()
}

/// Whether the event acts on others and has no meaning without them. A promotion is not such an
/// act: it names events of a conversation, whose ids only look like ids of this ledger.
fn is_act(event: &Event) -> bool {
    !event.is_statement() && event.act != Act::Promote
}

/// Whether the event is a compaction summary.
fn is_summary(event: &Event) -> bool {
    event.is_statement() && event.extra.iter().any(|(name, _)| name == COMPACTS_FIELD)
}

/// The decision about an event by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetentionVerdict {
    /// It stays, with every event that determines its state.
    Stays,
    /// An act: it leaves if all its targets leave.
    WithTargets,
    /// It leaves, unless a retained event needs it.
    Leaves(ArchiveReason),
}

/// The events and their links, by index in the ledger.
struct EventGraph<'a> {
    ledger: &'a Ledger,
    /// The targets of each event.
    targets: Vec<Vec<(usize, Effect)>>,
    /// The events that act on each event.
    upon: Vec<Vec<(usize, Effect)>>,
    /// The events that determine each event's state: the one that ended it, and the confirmation
    /// that counts.
    needs: Vec<Vec<usize>>,
    /// The other events on the same line.
    mates: HashMap<usize, Vec<usize>>,
    /// Events on faulty lines; only a person may change those.
    pinned: HashSet<usize>,
    /// Whether each event has not left yet.
    here: Vec<bool>,
}

impl<'a> EventGraph<'a> {
    fn from_ledger(ledger: &'a Ledger) -> Self {
        let count = ledger.entries.len();
        let mut targets: Vec<Vec<(usize, Effect)>> = vec![Vec::new(); count];
        let mut upon: Vec<Vec<(usize, Effect)>> = vec![Vec::new(); count];
        for (at, named) in targets.iter_mut().enumerate() {
            *named = ledger.earlier_targets(at, |effect| effect != Effect::None);
            for &(target, effect) in named.iter() {
                upon[target].push((at, effect));
            }
        }
        let mut needs: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (at, entry) in ledger.entries.iter().enumerate() {
            let by = entry
                .state
                .ended_by()
                .and_then(|by| ledger.by_id.get(&by).copied())
                .filter(|by| *by != at);
            let stands =
                |by: usize| !matches!(ledger.entries[by].state, EventState::Retracted { .. });
            let confirmations =
                upon[at].iter().filter(|(by, effect)| *effect == Effect::Confirm && stands(*by));
            let newest = confirmations
                .clone()
                .map(|&(by, _)| by)
                .max_by_key(|&by| (ledger.entries[by].event.ts, by));
            // The first trusted confirmation also lifts the quarantine, so it is needed too.
            let trusted =
                |by: &usize| Trust::from_origin(ledger.entries[*by].event.origin) != Trust::Low;
            let vouching = confirmations
                .map(|&(by, _)| by)
                .filter(trusted)
                .max_by_key(|&by| (ledger.entries[by].event.ts, by));
            needs[at].extend(by.into_iter().chain(newest).chain(vouching));
        }
        let (mates, pinned) = Self::find_shared_lines(ledger);
        Self { ledger, targets, upon, needs, mates, pinned, here: vec![true; count] }
    }

    /// Finds the events that share a line, and those on lines that are faulty or repeat an id.
    fn find_shared_lines(ledger: &Ledger) -> (HashMap<usize, Vec<usize>>, HashSet<usize>) {
        let mut on_line: HashMap<usize, Vec<usize>> = HashMap::with_capacity(ledger.entries.len());
        for (at, entry) in ledger.entries.iter().enumerate() {
            on_line.entry(entry.line).or_default().push(at);
        }
        let mut pinned = HashSet::new();
        for (line, id, same) in &ledger.duplicates {
            if let Some(&at) = ledger.by_id.get(id) {
                on_line.entry(*line).or_default().push(at);
                // If the first left, the repeated id would become visible.
                if !same {
                    pinned.insert(at);
                }
            }
        }
        for fault in ledger.faults.iter().filter(|fault| fault.fault.severity == Severity::Bad) {
            pinned.extend(on_line.get(&fault.line).into_iter().flatten());
        }
        let mut mates: HashMap<usize, Vec<usize>> = HashMap::new();
        for shared in on_line.into_values().filter(|shared| shared.len() > 1) {
            // A ring is enough: each retained event retains the next.
            for (at, next) in shared.iter().zip(shared.iter().cycle().skip(1)) {
                mates.entry(*at).or_default().push(*next);
            }
        }
        (mates, pinned)
    }

    fn entry(&self, at: usize) -> &'a LedgerEntry {
        &self.ledger.entries[at]
    }

    fn remaining_indices(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.here.len()).filter(|at| self.here[*at])
    }

    fn remaining_entries(&self) -> impl Iterator<Item = &'a LedgerEntry> + '_ {
        self.remaining_indices().map(|at| self.entry(at))
    }

    fn remaining_count(&self) -> usize {
        self.here.iter().filter(|here| **here).count()
    }

    /// Removes events until no more can leave.
    fn remove_until_stable(
        &mut self,
        today: Date,
        limits: CompactionLimits,
        what: CompactionMode,
        gone: &mut [Option<ArchiveReason>],
    ) {
        for _ in 0..MAX_ROUNDS {
            let verdicts = self.verdicts(today, limits, what);
            let stays = self.retained_events(&verdicts);
            if !self.remove_unretained(&verdicts, &stays, gone) {
                return;
            }
        }
    }

    /// Removes the events that are not retained; returns whether there were any.
    fn remove_unretained(
        &mut self,
        verdicts: &[RetentionVerdict],
        stays: &[bool],
        gone: &mut [Option<ArchiveReason>],
    ) -> bool {
        let mut any = false;
        for at in 0..stays.len() {
            if stays[at] || !self.here[at] {
                continue;
            }
            // An act goes to the archive of its first target; targets precede it.
            let with = || self.targets[at].iter().find_map(|&(target, _)| gone[target]);
            gone[at] = match verdicts[at] {
                RetentionVerdict::Leaves(why) => Some(why),
                RetentionVerdict::Stays | RetentionVerdict::WithTargets => {
                    with().or(Some(ArchiveReason::Compaction))
                }
            };
            self.here[at] = false;
            any = true;
        }
        any
    }

    /// The retained events: those that stay by themselves, and all they need.
    fn retained_events(&self, verdicts: &[RetentionVerdict]) -> Vec<bool> {
        let mut stays = vec![false; verdicts.len()];
        let mut open: Vec<usize> = self
            .remaining_indices()
            .filter(|at| verdicts[*at] == RetentionVerdict::Stays)
            .collect();
        while let Some(at) = open.pop() {
            if !self.here[at] || std::mem::replace(&mut stays[at], true) {
                continue;
            }
            open.extend(&self.needs[at]);
            open.extend(self.mates.get(&at).into_iter().flatten());
            open.extend(
                self.upon[at]
                    .iter()
                    .map(|(by, _)| *by)
                    .filter(|by| verdicts[*by] == RetentionVerdict::WithTargets),
            );
        }
        stays
    }

    fn verdicts(
        &self,
        today: Date,
        limits: CompactionLimits,
        what: CompactionMode,
    ) -> Vec<RetentionVerdict> {
        // For each event: whether its chain is closed, and whether a summary stands for all of it.
        let mut closed: Vec<(bool, bool)> = vec![(false, false); self.here.len()];
        if what == CompactionMode::Compact {
            let (chains, covered) = (self.chains(), self.summarized_ids());
            for members in chains.iter().filter(|members| self.is_closed_chain(members)) {
                let stood_for = self.is_settled(members, today)
                    && members.iter().all(|&at| covered.contains(&self.entry(at).event.id));
                members.iter().for_each(|&at| closed[at] = (true, stood_for));
            }
        }
        (0..self.here.len()).map(|at| self.verdict(at, closed[at], today, limits, what)).collect()
    }

    fn verdict(
        &self,
        at: usize,
        (closed, stood_for): (bool, bool),
        today: Date,
        limits: CompactionLimits,
        what: CompactionMode,
    ) -> RetentionVerdict {
        let entry = self.entry(at);
        let event = &entry.event;
        let never = match what {
            CompactionMode::Prune => event.priority <= Priority::P1,
            CompactionMode::Compact => event.priority == Priority::P0,
        };
        if never || entry.is_open_loop() || self.pinned.contains(&at) {
            return RetentionVerdict::Stays;
        }
        let compacts = what == CompactionMode::Compact;
        let expired = decay::has_expired(entry, today, limits.ages);
        let long_retracted = matches!(entry.state, EventState::Retracted { .. })
            && self.ended_days(entry, today) >= RETRACTED_DAYS;
        if is_act(event) {
            return if compacts && long_retracted {
                RetentionVerdict::Leaves(ArchiveReason::Compaction)
            } else if !self.targets[at].iter().any(|(target, _)| self.here[*target]) {
                if expired {
                    RetentionVerdict::Leaves(ArchiveReason::Pruning)
                } else {
                    RetentionVerdict::Stays
                }
            } else if compacts && self.is_old_confirmation(at, today) {
                RetentionVerdict::Leaves(ArchiveReason::Compaction)
            } else {
                RetentionVerdict::WithTargets
            };
        }
        if self.ended_days(entry, today) < UNDO_DAYS
            || (compacts && event.priority == Priority::P1 && event.kind == EventType::Constraint)
        {
            return RetentionVerdict::Stays;
        }
        // A closed chain leaves only as a whole, once its summary exists.
        let superseded = matches!(entry.state, EventState::Superseded { .. }) && !closed;
        if compacts && (stood_for || superseded || long_retracted) {
            RetentionVerdict::Leaves(ArchiveReason::Compaction)
        } else if expired {
            RetentionVerdict::Leaves(ArchiveReason::Pruning)
        } else {
            RetentionVerdict::Stays
        }
    }

    /// Days since the entry ended; `i64::MAX` if it did not, or was recorded as ended.
    fn ended_days(&self, entry: &LedgerEntry, today: Date) -> i64 {
        let by = entry
            .state
            .ended_by()
            .filter(|by| *by != entry.event.id)
            .and_then(|by| self.ledger.get(by));
        by.map_or(i64::MAX, |by| days_between(by.event.ts.day(), today))
    }

    /// Whether this is a confirmation that a later one supersedes.
    fn is_old_confirmation(&self, at: usize, today: Date) -> bool {
        let event = &self.entry(at).event;
        // A retracted event leaves together with its retraction.
        if matches!(self.entry(at).state, EventState::Retracted { .. }) {
            return false;
        }
        let counts = || {
            self.targets[at]
                .iter()
                .any(|&(target, _)| self.here[target] && self.needs[target].contains(&at))
        };
        event.act == Act::Confirm && days_between(event.ts.day(), today) >= UNDO_DAYS && !counts()
    }

    /// Removes the least valuable events until the ledger fits; returns whether there were any.
    fn shrink_to_limit(
        &mut self,
        today: Date,
        limits: CompactionLimits,
        gone: &mut [Option<ArchiveReason>],
    ) -> bool {
        let mut verdicts = self.verdicts(today, limits, CompactionMode::Compact);
        let mut spent: Vec<(u8, Moment, usize)> = Vec::new();
        for at in self
            .remaining_indices()
            .filter(|at| verdicts[*at] == RetentionVerdict::Stays && !self.pinned.contains(at))
        {
            let entry = self.entry(at);
            let days = days_between(entry.verified.day(), today).min(self.ended_days(entry, today));
            if is_permanent(entry) || days < i64::from(limits.spare_days).max(UNDO_DAYS) {
                continue;
            }
            let worth = match (decay::freshness(entry, today, limits.ages), entry.event.priority) {
                (Freshness::Dropped, _) => 0,
                (Freshness::Stale, _) => 1,
                (Freshness::Fresh, Priority::P3) => 2,
                (Freshness::Fresh, _) => 3,
            };
            spent.push((worth, entry.verified, at));
        }
        spent.sort_unstable();
        // The retained count falls with every removal, so a binary search finds the fewest
        // removals.
        let (mut few, mut many) = (0, spent.len());
        while few < many {
            let half = few + (many - few) / 2;
            if self.count_retained_without(&verdicts, &spent[..half]) <= limits.max_events {
                many = half;
            } else {
                few = half + 1;
            }
        }
        for (_, _, at) in &spent[..many] {
            verdicts[*at] = RetentionVerdict::Leaves(ArchiveReason::Compaction);
        }
        let stays = self.retained_events(&verdicts);
        self.remove_unretained(&verdicts, &stays, gone)
    }

    fn count_retained_without(
        &self,
        verdicts: &[RetentionVerdict],
        spent: &[(u8, Moment, usize)],
    ) -> usize {
        let mut verdicts = verdicts.to_vec();
        for (_, _, at) in spent {
            verdicts[*at] = RetentionVerdict::Leaves(ArchiveReason::Compaction);
        }
        self.retained_events(&verdicts).iter().filter(|stays| **stays).count()
    }

    /// The chains among the remaining events, in the order of their first events, each in file
    /// order.
    fn chains(&self) -> Vec<Vec<usize>> {
        let mut above: Vec<usize> = (0..self.here.len()).collect();
        for at in self.remaining_indices() {
            for &(target, _) in self.targets[at].iter().filter(|(target, _)| self.here[*target]) {
                let (one, other) = (find_root(&mut above, at), find_root(&mut above, target));
                above[one.max(other)] = one.min(other);
            }
        }
        let mut place: HashMap<usize, usize> = HashMap::new();
        let mut chains: Vec<Vec<usize>> = Vec::new();
        for at in self.remaining_indices() {
            let chain = *place.entry(find_root(&mut above, at)).or_insert(chains.len());
            match chains.get_mut(chain) {
                Some(members) => members.push(at),
                None => chains.push(vec![at]),
            }
        }
        chains
    }

    /// The ids of events that a summary stands for.
    fn summarized_ids(&self) -> HashSet<EventId> {
        let stands = |entry: &&LedgerEntry| {
            matches!(entry.state, EventState::Closed { .. }) && is_summary(&entry.event)
        };
        self.remaining_entries()
            .filter(stands)
            .flat_map(|entry| compacted_ids(&entry.event))
            .collect()
    }

    /// Whether a chain holds only closed commitments and may become one summary.
    fn is_closed_chain(&self, members: &[usize]) -> bool {
        let mut wordings = 0;
        for &at in members {
            let (entry, event) = (self.entry(at), &self.entry(at).event);
            let stays = event.priority == Priority::P0
                || (event.priority == Priority::P1 && event.kind == EventType::Constraint);
            if stays
                || is_summary(event)
                || self.pinned.contains(&at)
                || self.mates.contains_key(&at)
            {
                return false;
            }
            let head = event.is_statement()
                && !matches!(
                    entry.state,
                    EventState::Superseded { .. } | EventState::Retracted { .. }
                );
            if head
                && !(event.kind == EventType::Commitment
                    && matches!(entry.state, EventState::Closed { .. }))
            {
                return false;
            }
            wordings += usize::from(head && event.status != Some(LoopStatus::Closed));
        }
        wordings > 0 && members.len() <= MAX_CHAIN_EVENTS
    }

    /// Whether nothing happened to a chain since yesterday.
    fn is_settled(&self, members: &[usize], today: Date) -> bool {
        members.iter().all(|&at| days_between(self.entry(at).event.ts.day(), today) >= UNDO_DAYS)
    }

    /// The summary event of a closed chain.
    fn summary_draft(&self, members: &[usize], now: Moment) -> Option<EventDraft> {
        let entries: Vec<&LedgerEntry> = members.iter().map(|&at| self.entry(at)).collect();
        let done: Vec<&LedgerEntry> = entries
            .iter()
            .copied()
            .filter(|entry| {
                entry.event.is_statement() && entry.event.status != Some(LoopStatus::Closed)
            })
            .filter(|entry| matches!(entry.state, EventState::Closed { .. }))
            .collect();
        let head = &done.last()?.event;
        let closing = done
            .iter()
            .filter_map(|entry| self.ledger.get(entry.state.ended_by()?))
            .max_by_key(|by| (by.event.ts, by.event.id))?;
        // Replaced events may already have left; an id still gives its day.
        let statements = entries.iter().filter(|entry| entry.event.is_statement());
        let days = statements.flat_map(|entry| {
            entry.event.supersedes.iter().map(|id| id.day()).chain([entry.event.ts.day()])
        });
        let opened = days.min().unwrap_or(head.ts.day());
        let mut wordings: Vec<String> = done
            .iter()
            .rev()
            .take(MAX_WORDINGS)
            .map(|entry| truncate_one_line(&entry.event.content, MAX_WORDING_CHARS))
            .collect();
        wordings.reverse();
        wordings.dedup();
        let more = done.len().saturating_sub(MAX_WORDINGS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let note =
            closing_note(&closing.event, head).map(|note| format!(": {note}")).unwrap_or_default();
        let content = format!(
            "Done: {}{more} (opened {opened}, closed {}{note})",
            wordings.join("; "),
            closing.event.ts.day()
        );
        let passing = entries.iter().all(|entry| entry.event.priority == Priority::P3);
        let ids: Vec<EventId> = entries.iter().map(|entry| entry.event.id).collect();
        let draft = EventDraft {
            entity: head.entity.clone(),
            entity_kind: head.entity_kind,
            tags: head.tags.clone(),
            scope: head.scope.clone(),
            origin: head.origin,
            source: archive::archive_path(ArchiveReason::Compaction, now.day()).to_string(),
            status: Some(LoopStatus::Closed),
            ..EventDraft::new(
                now,
                EventType::Commitment,
                if passing { Priority::P3 } else { Priority::P2 },
                content,
            )
        };
        Some(draft.with_extra_field(COMPACTS_FIELD, &ids))
    }
}

/// The root of the chain of `at`, in a union-find forest with path halving.
fn find_root(above: &mut [usize], mut at: usize) -> usize {
    while above[at] != at {
        above[at] = above[above[at]];
        at = above[at];
    }
    at
}

/// The ids that a summary event lists.
fn compacted_ids(event: &Event) -> Vec<EventId> {
    let ids: Vec<String> = event.extra_field(COMPACTS_FIELD).unwrap_or_default();
    ids.iter().filter_map(|id| id.parse().ok()).collect()
}

/// A text on one line, truncated to `most` characters.
fn truncate_one_line(text: &str, most: usize) -> String {
    let line = collapse_spaces(text);
    let line = line.trim_end_matches('.');
    match line.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line.to_owned(),
    }
}

/// The words a commitment was closed with, if they add anything to its content.
fn closing_note(closing: &Event, head: &Event) -> Option<String> {
    let words = sanitize::sameness_key(&closing.content);
    let (mark, rest) = words.split_once(':').unwrap_or((words.as_str(), ""));
    let first = head.content.lines().next().unwrap_or_default();
    let known = |words: &str| {
        words.is_empty()
            || sanitize::sameness_key(&head.content) == words
            || sanitize::sameness_key(first).starts_with(words)
    };
    let says_nothing = known(&words) || (["closed", "done"].contains(&mark) && known(rest.trim()));
    (!says_nothing).then(|| truncate_one_line(&closing.content, MAX_NOTE_CHARS))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::event::Scope;
    use crate::ledger::tests::story;
    use jiff::ToSpan;
    use jiff::civil::date;
    use proptest::prelude::*;

    pub(crate) fn moment(day: Date, minute: usize) -> Moment {
        Moment::parse(&format!("{day}T{:02}:{:02}:00+01:00", minute / 60 % 24, minute % 60))
            .unwrap()
            .moment
    }

    /// One event of a generated history: its act, targets, importance, and the days since the
    /// previous event.
    pub(crate) type Step = (u8, (usize, usize), u8, u8, u8);

    pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
        let step = (
            0_u8..16,
            (0_usize..8, 0_usize..8),
            0_u8..12,
            0_u8..7,
            prop_oneof![3 => Just(0_u8), 2 => 0_u8..4, 1 => 0_u8..60],
        );
        prop::collection::vec(step, 1..most)
    }

    /// The event of a step, and the day it happens on.
    pub(crate) fn event(step: Step, before: &[Event], day: &mut Date) -> Event {
        let (act, (near, far), priority, kind, later) = step;
        *day = day.checked_add(i32::from(later).days()).unwrap();
        let today = before.iter().filter(|event| event.id.day() == *day).count();
        let ts = moment(*day, today);
        let priority = [Priority::P0, Priority::P1, Priority::P1, Priority::P2, Priority::P3]
            [usize::from(priority.min(4))];
        let kinds = [
            EventType::Fact,
            EventType::Commitment,
            EventType::Constraint,
            EventType::Fact,
            EventType::Commitment,
            EventType::Decision,
            EventType::Preference,
        ];
        let mut draft = EventDraft::new(
            ts,
            kinds[usize::from(kind)],
            priority,
            format!("thing {}", before.len()),
        );
        let back = |n: usize| before.len().checked_sub(n + 1).map(|at| before[at].id);
        let one: Vec<EventId> = back(near).into_iter().collect();
        let both: Vec<EventId> = back(near).into_iter().chain(back(far)).collect();
        let mut acts = |act, related: Vec<EventId>| {
            draft.act = act;
            draft.related = related;
            draft.status = (act == Act::Close).then_some(LoopStatus::Closed);
        };
        match act {
            0 | 1 => acts(Act::Close, one),
            2 => acts(Act::Close, both),
            3 | 4 => acts(Act::Confirm, one),
            5 => acts(Act::Confirm, both),
            6 | 7 => acts(Act::Retract, one),
            8 => acts(Act::Retract, both),
            9 => acts(Act::Promote, one),
            10 => draft.supersedes = one,
            11 => draft.supersedes = both,
            12 => {
                draft.supersedes = one;
                draft.status = Some(LoopStatus::Closed);
            }
            13 => {
                draft.status = Some(LoopStatus::Closed);
                draft = draft.with_extra_field(COMPACTS_FIELD, &both);
            }
            _ => {}
        }
        draft.with_id(EventId::new(*day, u32::try_from(today).unwrap() + 1))
    }

    pub(crate) fn life(steps: &[Step]) -> (Vec<Event>, Date) {
        let (mut events, mut day) = (Vec::new(), date(2026, 1, 1));
        for step in steps {
            let next = event(*step, &events, &mut day);
            events.push(next);
        }
        (events, day)
    }

    /// The state of each event.
    pub(crate) fn event_states(ledger: &Ledger) -> Vec<(Event, EventState, Moment, bool)> {
        ledger
            .entries()
            .iter()
            .map(|e| (e.event.clone(), e.state, e.verified, e.confirmed))
            .collect()
    }

    /// The ledger with summaries appended as the engine does.
    pub(crate) fn append(text: &mut Vec<u8>, drafts: Vec<EventDraft>) {
        for draft in drafts {
            let ledger = Ledger::parse(text, None);
            let taken = ledger
                .entries()
                .iter()
                .filter(|entry| entry.event.id.day() == draft.ts.day())
                .map(|entry| entry.event.id.number());
            let id = EventId::new(draft.ts.day(), taken.max().unwrap_or(0) + 1);
            let (draft, _) = draft.sanitize().unwrap();
            text.extend_from_slice(line::format_line(&draft.with_id(id)).as_bytes());
        }
    }

    fn check_split(
        text: &[u8],
        today: Date,
        limits: CompactionLimits,
        what: CompactionMode,
    ) -> Result<Vec<u8>, TestCaseError> {
        let before = Ledger::parse(text, None);
        let plan = plan_compaction(&before, today, limits, what);
        let ids = plan.ids();
        prop_assert_eq!(ids.len(), plan.compacted.len() + plan.pruned.len());
        let (kept, gone) = split_ledger(text, &ids);
        let after = Ledger::parse(&kept, None);
        let expected: Vec<_> = event_states(&before)
            .into_iter()
            .filter(|(event, ..)| !ids.contains(&event.id))
            .collect();
        prop_assert_eq!(event_states(&after), expected);
        for entry in before.entries().iter().filter(|entry| ids.contains(&entry.event.id)) {
            let active = entry.event.is_statement() && entry.state.is_active();
            prop_assert!(entry.event.priority != Priority::P0, "{}", entry.event.id);
            prop_assert!(!entry.is_open_loop(), "{}", entry.event.id);
            prop_assert!(!active || entry.event.priority >= Priority::P2, "{}", entry.event.id);
            prop_assert!(
                what == CompactionMode::Compact || entry.event.priority >= Priority::P2,
                "{}",
                entry.event.id
            );
        }
        // Every line is in exactly one of the two parts, in order; foreign lines stay.
        let mut left = gone.iter().copied().peekable();
        let mut stayed =
            raw_lines(&kept, 1).map(|raw| raw.bytes).collect::<Vec<_>>().into_iter().peekable();
        for raw in raw_lines(text, 1) {
            if stayed.next_if_eq(&raw.bytes).is_none() {
                prop_assert_eq!(left.next(), Some(raw.bytes));
            }
        }
        prop_assert!(left.next().is_none() && stayed.next().is_none());
        prop_assert_eq!(after.bad_lines().count(), before.bad_lines().count());
        let again = plan_compaction(&after, today, limits, what);
        prop_assert_eq!((again.compacted, again.pruned, again.over), (vec![], vec![], plan.over));
        if let Some(over) = plan.over {
            prop_assert!(
                what == CompactionMode::Compact
                    && over.events == after.entries().len()
                    && over.events > limits.max_events
            );
            prop_assert!(over.permanent <= over.events);
        } else {
            prop_assert!(
                what == CompactionMode::Prune || after.entries().len() <= limits.max_events
            );
        }
        Ok(kept)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        // L14, L15
        #[test]
        fn nothing_that_stays_changes(
            plan in steps(40),
            later in 0_i32..120,
            max_events in prop_oneof![Just(150_usize), 0_usize..30],
            odd in prop::collection::vec((0_usize..40, 0_u8..5), 0..4),
        ) {
            let (events, last) = life(&plan);
            let mut written: Vec<String> = events.iter().map(line::format_line).collect();
            for (at, what) in odd {
                let at = at % written.len();
                match what {
                    0 => written[at] = written[at].trim_end().to_owned(),
                    1 => written[at].insert_str(0, "not an event\r\n\n"),
                    2 => { let copy = written[at].clone(); written.push(copy); }
                    3 => { let other = written[at].replace("thing", "other thing"); written.push(other); }
                    _ => written[at] = written[at].replace('\n', "{\"torn\n"),
                }
            }
            let text = written.concat();
            let today = last.checked_add(later.days()).unwrap();
            let limits = CompactionLimits { max_events, ..CompactionLimits::DEFAULT };
            check_split(text.as_bytes(), today, limits, CompactionMode::Prune)?;
            let kept = check_split(text.as_bytes(), today, limits, CompactionMode::Compact)?;
            check_split(&kept, today, limits, CompactionMode::Prune)?;
            // With summaries, as in a complete run.
            let mut text = text.trim_end().as_bytes().to_vec();
            text.push(b'\n');
            let drafts = chain_summaries(&Ledger::parse(&text, None), moment(today, 600));
            append(&mut text, drafts);
            prop_assert_eq!(chain_summaries(&Ledger::parse(&text, None), moment(today, 601)), vec![]);
            check_split(&text, today, limits, CompactionMode::Compact)?;
        }

        #[test]
        fn any_bytes_can_be_split(text in any::<Vec<u8>>()) {
            let (kept, gone) = split_ledger(&text, &HashSet::new());
            prop_assert_eq!((kept, gone.len()), (text, 0));
        }
    }

    /// The numbers of the events that leave, for a story of 2026-02-13 seen that many days later.
    fn check(words: &str, days: i32, what: CompactionMode, leaves: &[u32]) {
        let ledger = Ledger::from_events(story(words));
        let today = date(2026, 2, 13).checked_add(days.days()).unwrap();
        let mut found: Vec<u32> = plan_compaction(&ledger, today, CompactionLimits::DEFAULT, what)
            .ids()
            .iter()
            .map(|id| id.number())
            .collect();
        found.sort_unstable();
        assert_eq!(found, leaves, "{words} after {days} days, {what:?}");
    }

    // L15
    #[test]
    fn compaction_keeps_the_heads() {
        use CompactionMode::Compact;
        check("f s1 s2", 1, Compact, &[1, 2]);
        check("f s1 s2", 0, Compact, &[]);
        check("f k1 s1", 1, Compact, &[1, 2]);
        check("f k1 k1 k1", 1, Compact, &[2, 3]);
        check("f k1 k1 r3", 1, Compact, &[]);
        check("f k1 k1 r3", 7, Compact, &[3, 4]);
        check("f r1", 6, Compact, &[]);
        check("f r1", 7, Compact, &[1, 2]);
        check("f s1 r2", 7, Compact, &[2, 3]);
        check("f r1 r2", 7, Compact, &[2, 3]);
        check("c x1", 20, Compact, &[]); // it waits for its summary
        check("c x1", 91, Compact, &[1, 2]);
        check("c s1", 80, Compact, &[1]); // a fact in place of a promise
    }

    // L14
    #[test]
    fn pruning_takes_what_has_expired_and_the_acts_upon_it() {
        check("f", 90, CompactionMode::Prune, &[]);
        check("f", 91, CompactionMode::Prune, &[1]);
        check("f k1 k1", 91, CompactionMode::Prune, &[1, 2, 3]);
        check("c", 900, CompactionMode::Prune, &[]);
        check("c k1", 900, CompactionMode::Prune, &[]);
        check("c x1", 91, CompactionMode::Prune, &[1, 2]);
        check("c x1 r2", 91, CompactionMode::Prune, &[]);
        check("f s1", 90, CompactionMode::Prune, &[]);
        check("f s1 r2 x9", 91, CompactionMode::Prune, &[1, 2, 3, 4]);
    }

    fn drafts(events: &[Event], day: Date) -> Vec<EventDraft> {
        chain_summaries(&Ledger::from_events(events.iter().cloned()), moment(day, 180))
    }

    // L15
    #[test]
    fn a_closed_chain_becomes_one_event() {
        let days = [date(2026, 1, 3), date(2026, 1, 20), date(2026, 2, 10)];
        let first = EventDraft::new(
            moment(days[0], 0),
            EventType::Commitment,
            Priority::P1,
            "Send the offer",
        )
        .with_id(EventId::new(days[0], 1));
        let mut second = EventDraft::new(
            moment(days[1], 0),
            EventType::Commitment,
            Priority::P1,
            "Send the offer\nto Client X.",
        )
        .with_id(EventId::new(days[1], 1));
        second.draft.supersedes = vec![first.id];
        second.draft.entity = Some("client_x".into());
        second.draft.scope = Scope::Project("sales".into());
        second.draft.tags = vec!["offer".into()];
        let close = |note: &str| {
            EventDraft::new_act(&second, Act::Close, moment(days[2], 0), note)
                .with_id(EventId::new(days[2], 1))
        };
        let all = |note: &str| [first.clone(), second.clone(), close(note)];
        let expected = "Done: Send the offer to Client X (opened 2026-01-03, closed 2026-02-10";
        let check = |note: &str, end: &str| {
            assert_eq!(drafts(&all(note), date(2026, 3, 1))[0].content, format!("{expected}{end}"))
        };
        check("Closed: Send the offer", ")");
        check("Closed", ")");
        check("They signed on the spot.", ": They signed on the spot)");
        let draft = &drafts(&all("x"), date(2026, 3, 1))[0];
        assert_eq!(
            (draft.kind, draft.priority, draft.status, draft.act),
            (EventType::Commitment, Priority::P2, Some(LoopStatus::Closed), Act::Assert)
        );
        assert_eq!(
            (draft.entity.as_deref(), draft.source.as_str()),
            (Some("client_x"), "memory/ledger-archive-2026.jsonl")
        );
        assert_eq!((&draft.scope, draft.tags.len(), draft.supersedes.len()), (&second.scope, 1, 0));
        let ids = all("x").map(|event| event.id.to_string());
        assert_eq!(draft.extra_field::<Vec<String>>(COMPACTS_FIELD).unwrap(), ids);
        // Not on the day of closing; replaced events may have left earlier.
        assert_eq!(drafts(&all("x"), days[2]), []);
        assert_eq!(drafts(&all("x")[1..], date(2026, 3, 1))[0].content, format!("{expected}: x)"));
        // P0 is never compacted, an open promise is not closed.
        let mut hard = all("x");
        hard[0].draft.priority = Priority::P0;
        assert_eq!(drafts(&hard, date(2026, 3, 1)), []);
        assert_eq!(drafts(&all("x")[..2], date(2026, 3, 1)), []);

        let mut text: Vec<u8> =
            all("x").iter().flat_map(|event| line::format_line(event).into_bytes()).collect();
        append(&mut text, drafts(&all("x"), date(2026, 3, 1)));
        let ledger = Ledger::parse(&text, None);
        assert_eq!(chain_summaries(&ledger, moment(date(2026, 3, 1), 181)), []);
        let plan = plan_compaction(
            &ledger,
            date(2026, 3, 1),
            CompactionLimits::DEFAULT,
            CompactionMode::Compact,
        );
        assert_eq!((plan.compacted.len(), plan.pruned.len()), (3, 0));
        let (kept, _) = split_ledger(&text, &plan.ids());
        let ledger = Ledger::parse(&kept, None);
        assert_eq!((ledger.entries().len(), ledger.open_loops().len()), (1, 0));
        assert_eq!(
            plan_compaction(
                &ledger,
                date(2026, 6, 1),
                CompactionLimits::DEFAULT,
                CompactionMode::Prune
            )
            .pruned
            .len(),
            1
        );
    }

    // L15
    #[test]
    fn a_chain_that_was_opened_again_does_not_leave() {
        let events = story("c x1");
        let mut text: Vec<u8> =
            events.iter().flat_map(|event| line::format_line(event).into_bytes()).collect();
        append(&mut text, drafts(&events, date(2026, 3, 1)));
        let undone =
            EventDraft::new_act(&events[1], Act::Retract, moment(date(2026, 3, 1), 200), "no")
                .with_id(EventId::new(date(2026, 3, 1), 2));
        text.extend_from_slice(line::format_line(&undone).as_bytes());
        let ledger = Ledger::parse(&text, None);
        assert_eq!(
            plan_compaction(
                &ledger,
                date(2026, 3, 5),
                CompactionLimits::DEFAULT,
                CompactionMode::Compact
            )
            .ids(),
            HashSet::new()
        );
    }

    #[test]
    fn a_very_long_promise_is_shortened() {
        let long = "ü".repeat(30_000);
        let mut events = story("c x1");
        events[0].draft.content = long.clone();
        events[1].draft.content = format!("because {long}");
        let draft = drafts(&events, date(2026, 3, 1)).remove(0);
        assert!(
            draft.content.chars().count() < 1_700 && draft.clone().sanitize().is_ok(),
            "{}",
            draft.content.len()
        );
    }

    // L15
    #[test]
    fn one_act_that_closes_many_is_one_chain() {
        let mut events = story("c c c c c c c x1");
        events[7].draft.related = events[..7].iter().map(|event| event.id).collect();
        let drafts = drafts(&events, date(2026, 3, 1));
        assert_eq!(drafts.len(), 1);
        assert!(drafts[0].content.starts_with(
            "Done: event 2; event 3; event 4; event 5; event 6 and 2 more (opened 2026-02-13"
        ));
    }

    // L15
    #[test]
    fn the_least_valuable_leave_first_until_it_fits() {
        let day = date(2026, 6, 1);
        let make = |n: u32, ago: i32, kind, priority| {
            let then = day.checked_sub(ago.days()).unwrap();
            EventDraft::new(moment(then, 0), kind, priority, format!("thing {n}"))
                .with_id(EventId::new(then, n))
        };
        let events = [
            make(1, 85, EventType::Preference, Priority::P2),
            make(2, 80, EventType::Commitment, Priority::P3),
            make(3, 70, EventType::Fact, Priority::P2),
            make(4, 69, EventType::Fact, Priority::P1),
            make(5, 68, EventType::Fact, Priority::P0),
            make(6, 40, EventType::Decision, Priority::P2),
            make(7, 20, EventType::Preference, Priority::P3),
            make(8, 10, EventType::Fact, Priority::P3),
            make(9, 6, EventType::Fact, Priority::P3),
        ];
        let order = [3, 6, 7, 8, 1];
        for most in 0..=9 {
            let ledger = Ledger::from_events(events.clone());
            let plan = plan_compaction(
                &ledger,
                day,
                CompactionLimits { max_events: most, ..CompactionLimits::DEFAULT },
                CompactionMode::Compact,
            );
            let count = (9 - most).min(5);
            let mut expected = order[..count].to_vec();
            expected.sort_unstable();
            let mut found: Vec<u32> = plan.compacted.iter().map(|id| id.number()).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "at most {most}");
            assert_eq!(
                plan.over,
                (most < 4).then_some(LedgerOverflow { events: 4, permanent: 3 }),
                "at most {most}"
            );
            assert!(plan.pruned.is_empty());
        }
    }

    #[test]
    fn a_line_goes_only_as_a_whole() {
        let events = story("f f f");
        let written: Vec<String> = events.iter().map(line::format_line).collect();
        let text =
            format!("{}{}? no event\n\n{}{{\"torn", written[0].trim_end(), written[1], written[2]);
        let check = |leaving: &[usize], kept: &str, gone: usize| {
            let ids = leaving.iter().map(|at| events[*at].id).collect();
            let (text, lines) = split_ledger(text.as_bytes(), &ids);
            assert_eq!((String::from_utf8(text).unwrap().as_str(), lines.len()), (kept, gone));
        };
        check(&[0], &text, 0);
        check(&[0, 1], &format!("? no event\n\n{}{{\"torn", written[2]), 1);
        check(&[0, 1, 2], "? no event\n\n{\"torn", 2);
        check(&[], &text, 0);
    }

    // L15: a year, 5 to 8 events a day
    #[test]
    fn a_year_stays_within_bounds() {
        let (mut text, mut day) = (Vec::new(), date(2026, 1, 1));
        let mut seed = 7_u64;
        let mut dice = |sides: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % sides
        };
        let (mut compactions, mut overs, mut fitted) = (0, 0, 0);
        for _ in 0..365 {
            let ledger = Ledger::parse(&text, None);
            let before: Vec<&LedgerEntry> =
                ledger.entries().iter().filter(|entry| entry.event.is_statement()).collect();
            let mut fresh: Vec<EventDraft> = Vec::new();
            for n in 0..5 + dice(4) {
                let ts = moment(day, usize::try_from(n).unwrap());
                let priority = match dice(100) {
                    0..2 => Priority::P0,
                    2..12 => Priority::P1,
                    12..60 => Priority::P2,
                    _ => Priority::P3,
                };
                let any = (!before.is_empty())
                    .then(|| before[usize::try_from(dice(before.len() as u64)).unwrap()]);
                let loops = ledger.open_loops();
                let draft = match (dice(10), any) {
                    (0..3, _) if loops.len() > 5 => {
                        EventDraft::new_act(&loops[0].event, Act::Close, ts, "Closed")
                    }
                    (3, Some(entry)) if entry.state.is_active() => {
                        EventDraft::new_act(&entry.event, Act::Confirm, ts, "still so")
                    }
                    (4 | 5, Some(entry)) if entry.state.is_active() => EventDraft {
                        supersedes: vec![entry.event.id],
                        ..EventDraft::new(
                            ts,
                            entry.event.kind,
                            entry.event.priority,
                            format!("changed on {day}"),
                        )
                    },
                    (6 | 7, _) => EventDraft::new(
                        ts,
                        EventType::Commitment,
                        priority.max(Priority::P2),
                        format!("promise {day}"),
                    ),
                    _ => EventDraft::new(
                        ts,
                        EventType::ALL[usize::try_from(dice(3)).unwrap()],
                        priority,
                        format!("thing {day}"),
                    ),
                };
                fresh.push(draft);
            }
            append(&mut text, fresh);
            day = day.tomorrow().unwrap();
            let events = Ledger::parse(&text, None).entries().len();
            if day.day() == 1 || events > 150 {
                compactions += 1;
                let drafts = chain_summaries(&Ledger::parse(&text, None), moment(day, 0));
                append(&mut text, drafts);
                let ledger = Ledger::parse(&text, None);
                let plan = plan_compaction(
                    &ledger,
                    day,
                    CompactionLimits::DEFAULT,
                    CompactionMode::Compact,
                );
                text = split_ledger(&text, &plan.ids()).0;
                let after = Ledger::parse(&text, None);
                let recent = |entry: &LedgerEntry| {
                    days_between(entry.event.ts.day(), day) < 7
                        || days_between(entry.verified.day(), day) < 7
                };
                let ended = |entry: &LedgerEntry| {
                    entry.state.ended_by().and_then(|by| after.get(by)).is_some_and(recent)
                };
                let spared =
                    |entry: &LedgerEntry| is_permanent(entry) || recent(entry) || ended(entry);
                // A confirmation of a retained event stays with it.
                let confirms = |entry: &LedgerEntry| {
                    entry.event.related.iter().any(|id| after.get(*id).is_some_and(spared))
                };
                let bound =
                    after.entries().iter().filter(|entry| spared(entry) || confirms(entry)).count();
                assert!(
                    after.entries().len() <= bound.max(150),
                    "{day}: {} of {bound}",
                    after.entries().len()
                );
                assert_eq!(plan.over.is_some(), after.entries().len() > 150, "{day}");
                overs += usize::from(plan.over.is_some());
                fitted += usize::from(plan.over.is_none());
            }
        }
        assert!(
            compactions >= 12 && fitted >= 6,
            "{compactions} compactions, {overs} over, {fitted} fitted"
        );
    }
}
