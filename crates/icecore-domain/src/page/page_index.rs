//! Assigns the events of a ledger to pages.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{PageKey, PageKind, page_keys_with};
use crate::id::EventId;
use crate::ledger::{Ledger, LedgerEntry};

/// The event ids at the end of a page's lines, in order and without duplicates.
pub fn referenced_ids(text: &str) -> Vec<EventId> {
    let mut seen = BTreeSet::new();
    let marks = text.split('[').skip(1).filter_map(|rest| rest.split(']').next());
    marks.filter_map(|mark| mark.parse().ok()).filter(|id| seen.insert(*id)).collect()
}

/// All pages of these events, each with everything shown on it: its statements in any state, and
/// the acts on them.
pub fn entries_by_page(ledger: &Ledger) -> BTreeMap<PageKey, Vec<LedgerEntry>> {
    group_by_page(page_keys_of_ledger(ledger, PageKind::ALL), ledger.entries().iter().cloned())
}

/// Like [`entries_by_page`], but only the pages asked for. It consumes the ledger.
pub fn into_entries_by_page(
    ledger: Ledger,
    asked_for: &BTreeSet<PageKey>,
) -> BTreeMap<PageKey, Vec<LedgerEntry>> {
    let kinds: Vec<PageKind> = PageKind::ALL
        .iter()
        .copied()
        .filter(|kind| asked_for.iter().any(|key| key.kind == *kind))
        .collect();
    let mut keys = page_keys_of_ledger(&ledger, &kinds);
    keys.iter_mut().for_each(|keys| keys.retain(|key| asked_for.contains(key)));
    group_by_page(keys, ledger.into_entries())
}

fn group_by_page(
    keys: Vec<Vec<PageKey>>,
    entries: impl IntoIterator<Item = LedgerEntry>,
) -> BTreeMap<PageKey, Vec<LedgerEntry>> {
    let mut pages: BTreeMap<PageKey, Vec<LedgerEntry>> = BTreeMap::new();
    for (mut keys, entry) in keys.into_iter().zip(entries) {
        // Most events are on one page only.
        let Some(last) = keys.pop() else { continue };
        for key in keys {
            pages.entry(key).or_default().push(entry.clone());
        }
        pages.entry(last).or_default().push(entry);
    }
    pages
}

/// The pages of each entry, at least those of these kinds, in ledger order.
fn page_keys_of_ledger(ledger: &Ledger, kinds: &[PageKind]) -> Vec<Vec<PageKey>> {
    let mut roots: HashMap<EventId, EventId> = HashMap::new();
    let mut at: HashMap<EventId, usize> = HashMap::new();
    let mut keys: Vec<Vec<PageKey>> = Vec::with_capacity(ledger.entries().len());
    let mut things: HashMap<String, PageKey> = HashMap::new();
    let mut named = |thing: &str| match things.get(thing) {
        Some(known) => known.clone(),
        None => {
            things.entry(thing.to_owned()).or_insert(PageKey::new(PageKind::Entity, thing)).clone()
        }
    };
    // Events refer only to earlier ones, so every target has been visited.
    for entry in ledger.entries() {
        let event = &entry.event;
        let own = if event.is_statement() {
            let root = event
                .supersedes
                .iter()
                .filter_map(|replaced| roots.get(replaced))
                .min()
                .copied()
                .unwrap_or(event.id);
            roots.insert(event.id, root);
            ledger
                .get(root)
                .map_or_else(Vec::new, |root| page_keys_with(event, &root.event, kinds, &mut named))
        } else {
            let targets = event.effects().filter_map(|(target, _)| keys.get(*at.get(&target)?));
            targets.flatten().cloned().collect::<BTreeSet<_>>().into_iter().collect()
        };
        at.insert(event.id, keys.len());
        keys.push(own);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Moment;
    use crate::event::{Act, EventDraft, EventType, Priority};

    // L4
    #[test]
    fn a_page_has_its_statements_and_what_was_done_to_them() {
        let ts = Moment::parse("2026-02-13T09:30:00+01:00").unwrap().moment;
        let id = |n| EventId::new(ts.day(), n);
        let about = |content: &str, n| {
            EventDraft {
                entity: Some("apollo".into()),
                ..EventDraft::new(ts, EventType::Fact, Priority::P2, content)
            }
            .with_id(id(n))
        };
        let first = about("The budget is 500 EUR", 1);
        let other =
            EventDraft::new(ts, EventType::Constraint, Priority::P0, "Never deploy on Fridays")
                .with_id(id(2));
        let mut second = about("The budget is 600 EUR", 3);
        second.draft.supersedes = vec![id(1)];
        let act = EventDraft::new_act(&second, Act::Confirm, ts, "still so").with_id(id(4));
        let mut rule =
            EventDraft::new(ts, EventType::Constraint, Priority::P0, "Deploy on no day but Monday")
                .with_id(id(5));
        rule.draft.supersedes = vec![id(2)];
        let pages = entries_by_page(&Ledger::from_events([first, other, second, act, rule]));
        let seen: Vec<(String, Vec<u32>)> = pages
            .iter()
            .map(|(key, entries)| {
                (
                    key.path().to_string(),
                    entries.iter().map(|entry| entry.event.id.number()).collect(),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                ("knowledge/entities/apollo.md".to_owned(), vec![1, 3, 4]),
                ("knowledge/principles/never-deploy-on-fridays.md".to_owned(), vec![2, 5]),
            ]
        );
    }

    #[test]
    fn the_ids_of_a_page_are_found_once() {
        let text = "- x [source: live] [verified: 2026-02-13] [EVT-20260213-001]\n[EVT-20260213-002]\n- y [EVT-20260213-001]\n[EVT-1]\n";
        assert_eq!(referenced_ids(text).iter().map(|id| id.number()).collect::<Vec<_>>(), [1, 2]);
    }
}
