//! Forgetting: removes text from memory together with everything derived from it, and keeps it from
//! being imported again.
//!
//! It plans first, in rounds: words lead to records and events, records to the events extracted
//! from them. Then it writes a tombstone, so that the next run finishes an interrupted one. Then it
//! scrubs every file, rebuilds derived data and summarizes again.
//!
//! Invariant: text of a tombstone is never stored, restored or shown again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use icecore_domain::calendar::Moment;
use icecore_domain::event::{Act, COMPACTS, Draft, Event, Origin, QUOTE};
use icecore_domain::forget::{
    self, FEWEST_LETTERS, FEWEST_WORDS, FORGOTTEN, Fate, Scrub, Tombstone, Tombstones,
};
use icecore_domain::format::line;
use icecore_domain::hash::Hash;
use icecore_domain::id::EventId;
use icecore_domain::layout::{self, DocPath};
use icecore_domain::ledger::integrity::Prefix;
use icecore_domain::ledger::revise::Refusal;
use icecore_domain::ledger::{Ledger, Standing};
use icecore_domain::page::PageKey;
use icecore_domain::record::{self, Record, SessionKey};
use icecore_domain::summary::{Cost, Maker, Period, Summary, SummaryQuery, Tier};
use icecore_domain::{memo, plain};
use icecore_store::{Became, ContentVersion, Error as StoreError, Rewritten, Scrubbed};
use jiff::civil::Date;
use serde::Serialize;

use crate::capture::Taken;
use crate::converse::folder_of;
use crate::curate::Curated;
use crate::rollup::{Asking, Rolled, Watch, Wish};
use crate::{Error, Memory, Result};

/// The prefix of an id that names a whole conversation.
const CONVERSATION: &str = "conversation/";
/// The note that a forgetting also has to rewrite every snapshot, with its tombstone. It belongs to
/// this machine: snapshots on other machines are not rewritten because of it.
const HISTORY: &str = "forgetting-history.txt";
/// The warning while that note exists.
pub(crate) const HISTORY_OWED: &str = "forgetting was interrupted before every snapshot was rewritten; run `icecore forget --unfinished` to finish it";
const MOST_NOTE_BYTES: u64 = 64 * 1024;

/// How many rounds follow from one find to the next.
const MOST_ROUNDS: usize = 8;

/// What to forget. What an interrupted run left unfinished is always added.
#[derive(Debug, Clone, Default)]
pub struct Forget {
    /// Ids of events, records or memories, or `conversation/NAME`.
    pub ids: Vec<String>,
    /// Words, wherever they occur.
    pub matching: Vec<String>,
    /// Rewrite every snapshot too.
    pub history: bool,
    pub reason: Option<String>,
    pub by: String,
}

impl Forget {
    /// Whether it names nothing: the run only finishes what others began.
    fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.matching.is_empty()
    }
}

/// A file in which text is forgotten.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    pub path: String,
    /// How many of its lines; `None` if the whole file is removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines: Option<usize>,
}

/// What a forgetting removes, or would remove.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Forgetting {
    /// Events of the ledger and its archives.
    pub events: Vec<EventId>,
    /// The number of messages and states.
    pub records: usize,
    /// Summaries of the days concerned.
    pub summaries: Vec<String>,
    /// The number of turns of conversations.
    pub turns: usize,
    /// The files that contain it.
    pub places: Vec<Place>,
    /// Files with the text that icecore must not change.
    pub left: Vec<String>,
    /// Events with too few words to search for their text elsewhere.
    pub by_id_only: Vec<EventId>,
}

impl Forgetting {
    /// Whether nothing is to be forgotten.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

/// What was forgotten, and where it still is.
#[derive(Debug, Serialize)]
pub struct Forgot {
    /// `None` if there was nothing to forget.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tombstone: Option<String>,
    #[serde(flatten)]
    pub gone: Forgetting,
    /// Summaries that were rebuilt from what is left.
    pub pressed: Vec<String>,
    /// How many snapshots were rewritten, and how many of their files changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewritten: Option<(usize, usize)>,
    /// How many snapshots still contain it, and how many there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<(usize, usize)>,
    /// Further messages for the user.
    pub notes: Vec<String>,
}

/// What one pass over all files found.
#[derive(Default)]
struct Found {
    events: BTreeSet<EventId>,
    phrases: BTreeSet<String>,
    by_id_only: BTreeSet<EventId>,
    records: usize,
    days: BTreeSet<Date>,
    sessions: BTreeSet<SessionKey>,
    turns: BTreeMap<String, BTreeSet<u64>>,
    /// Conversations with this name.
    called: BTreeSet<String>,
}

fn path(text: &str) -> Result<DocPath> {
    Ok(text.parse().map_err(StoreError::Path)?)
}

fn turn_of(record: &Record) -> Option<u64> {
    let (_, raw) = record.extra.iter().find(|(name, _)| name == "turn")?;
    raw.trim_matches('"').parse().ok()
}

impl Memory {
    /// The tombstones, as last read.
    pub(crate) fn tombstones(&self) -> Arc<Tombstones> {
        self.stones.read().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Reads the tombstones again if the file changed.
    pub(crate) async fn renew_tombstones(&self) -> Result<()> {
        let text = self.store.document(&path(layout::FORGOTTEN)?).await?;
        let version = ContentVersion::of(text.as_deref());
        let known = self.stones.read().unwrap_or_else(PoisonError::into_inner).0;
        if version != known {
            let stones = Tombstones::read(text.as_deref().unwrap_or_default());
            *self.stones.write().unwrap_or_else(PoisonError::into_inner) =
                (version, Arc::new(stones));
        }
        Ok(())
    }

    /// Removes forgotten text from `text`.
    pub(crate) fn unless_forgotten(&self, text: String) -> String {
        let stones = self.tombstones();
        if stones.is_empty() {
            return text;
        }
        stones.needles().redact(&text).map_or(text, |redacted| redacted.text)
    }

    /// Removes forgotten text from a record; `None` if the record itself was forgotten.
    pub(crate) fn record_unless_forgotten(
        &self,
        record: Record,
        taken: &mut Taken,
    ) -> Option<Record> {
        let stones = self.tombstones();
        if stones.is_empty() {
            return Some(record);
        }
        if stones.has_record(&record.key()) {
            taken.forgotten += 1;
            return None;
        }
        match stones.needles().record(&record) {
            None => Some(record),
            Some(scrubbed) => {
                taken.forgotten += 1;
                Some(scrubbed)
            }
        }
    }

    /// Refuses text that consists of nothing but forgotten words.
    pub(crate) fn refuse_forgotten(&self, text: &str) -> Result<()> {
        if !forget::is_forgotten(text) {
            return Ok(());
        }
        Err(Error::Unclear(format!(
            "these words were forgotten, so nothing was saved. To save them anyway, remove their line from {}",
            layout::FORGOTTEN
        )))
    }

    /// A file of a snapshot without the text that was forgotten since; `None` if the file must not
    /// be touched.
    #[expect(
        clippy::option_option,
        reason = "a file that did not exist differs from one that must not be touched"
    )]
    pub(crate) fn then_without_forgotten(
        &self,
        path: &DocPath,
        then: Option<Vec<u8>>,
    ) -> Option<Option<Vec<u8>>> {
        let stones = self.tombstones();
        let Some(bytes) = &then else { return Some(then) };
        match stones.scrub().fate(path.as_str(), bytes) {
            Fate::Same => Some(then),
            // It is rendered again from what is left. Which of its entries are foreign is known
            // only for the current file.
            _ if forget::is_cascade_file(path.as_str()) => None,
            Fate::Changed { bytes, .. } => Some(Some(bytes)),
            Fate::Gone => None,
        }
    }

    /// Whether a forgetting that includes snapshots is unfinished.
    pub(crate) async fn owes_history(&self) -> Result<bool> {
        let Some(note) = self.store.note(&path(HISTORY)?).await? else { return Ok(false) };
        let stones = self.tombstones();
        // A run that died before it wrote its tombstone changed nothing.
        Ok(String::from_utf8_lossy(&note)
            .lines()
            .any(|id| stones.all().iter().any(|stone| stone.id == id)))
    }

    /// Notes that the text of this tombstone has to be removed from every snapshot too.
    async fn note_history(&self, stone: &str) -> Result<()> {
        Ok(self.store.add_note(&path(HISTORY)?, stone, MOST_NOTE_BYTES, true).await?)
    }

    /// Finishes an interrupted forgetting, before a snapshot can store the text again.
    pub(crate) async fn finish_forgetting(
        &self,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<()> {
        self.renew_tombstones().await?;
        if !self.looks_back().await?
            && (self.tombstones().unfinished().next().is_some() || self.owes_history().await?)
        {
            self.forget(&Forget { by: "consolidation".into(), ..Forget::default() }, asking, watch)
                .await?;
        }
        Ok(())
    }

    /// Plans a forgetting; nothing is changed.
    pub async fn would_forget(&self, wish: &Forget) -> Result<Forgetting> {
        self.renew_tombstones().await?;
        let (scrub, found) = self.plan_forgetting(wish).await?;
        let touched = self.store.scrub(&scrub, true).await?;
        Ok(told(&scrub, &found, &touched))
    }

    /// Forgets, and reports what was removed and where it still is.
    pub async fn forget(
        &self,
        wish: &Forget,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Forgot> {
        if self.looks_back().await? {
            return Err(Error::Nothing(
                "the ledger has events after that moment; forget works only in the present, without --now".into(),
            ));
        }
        let _alone = self.claim_night().await?;
        // Manual page edits are imported first, so that they are forgotten with the rest, and the
        // remainder of them is kept.
        self.renew_tombstones().await?;
        self.notice_all().await?;
        let mut curated = Curated::default();
        self.adopt_edits(&mut curated).await?;

        let foreign = self.all_foreign_entries().await?;

        watch("searching", 0, 0);
        let (mut scrub, found) = self.plan_forgetting(wish).await?;
        scrub.foreign_entries.extend(foreign);
        let mut gone = told(&scrub, &found, &self.store.scrub(&scrub, true).await?);
        let mut forgot = Forgot {
            tombstone: None,
            gone: Forgetting::default(),
            pressed: Vec::new(),
            rewritten: None,
            snapshots: None,
            notes: Vec::new(),
        };
        // A run that died may have scrubbed the files without finishing the rest.
        let begun = self.tombstones().unfinished().next().map(|stone| stone.id.clone());
        let carried_in = self.carried_in().await?;
        let history = wish.history || self.owes_history().await?;
        if !gone.is_empty() || begun.is_some() {
            let stone = match (begun, carried_in.first()) {
                (Some(begun), _) if gone.is_empty() => begun,
                // Text that is known only by its hashes has a tombstone already.
                (None, Some(carried))
                    if wish.is_empty() && scrub.needles.phrases().next().is_none() =>
                {
                    carried.clone()
                }
                _ => self.set_tombstone(&scrub, wish, history).await?,
            };
            watch("forgetting", 0, 0);
            let before = self.store.ledger().await?.bytes;
            let after = match scrub.fate(layout::LEDGER, &before) {
                Fate::Changed { bytes, .. } => bytes,
                Fate::Same | Fate::Gone => before.clone(),
            };
            self.expect_ledger(&before, &after).await?;
            let taken_in = self.pages_taken_in(&scrub, &curated).await?;
            let touched = self.store.scrub(&scrub, false).await?;
            self.settle_ledger(Prefix::of(&after)).await?;
            gone = told(&scrub, &found, &touched);
            self.take_back(&scrub.events).await?;
            self.renew_views(&touched, &taken_in, &mut curated).await?;
            self.refresh_loops().await?;
            match self.press_again(&scrub, asking, watch).await {
                Ok(pressed) => forgot.pressed = pressed.iter().map(ToString::to_string).collect(),
                Err(Error::Busy(why)) => {
                    forgot.notes.push(format!("summaries are not rebuilt yet: {why}"))
                }
                Err(error) => return Err(error),
            }
            if touched.iter().any(|one| one.path == layout::RECALL) || gone.is_empty() {
                let pack = self.pack_recall(None, &[]).await?;
                self.write_recall(&pack).await?;
            }
            forgot.tombstone = Some(stone);
        }
        if let Some(last) = self.tombstones().all().last().filter(|_| history) {
            self.note_history(&last.id).await?;
        }
        self.look_at_snapshots(history, &scrub, &mut forgot).await?;
        for stone in self.tombstones().unfinished() {
            self.append_line(
                &path(layout::FORGOTTEN)?,
                &forget::done(&stone.id, &self.now().to_string()),
            )
            .await?;
        }
        self.store.remove_note(&path(HISTORY)?).await?;
        self.renew_tombstones().await?;
        if !self.tombstones().is_empty() {
            self.note_carried_out().await?;
        }
        for name in &found.called {
            let name = plain::one_line(name);
            forgot.notes.push(format!(
                "there is a conversation named `{name}`; `icecore forget conversation/{name}` removes it with all its messages"
            ));
        }
        if !gone.by_id_only.is_empty() {
            forgot.notes.push(format!(
                "events with fewer than {FEWEST_WORDS} words were forgotten by id only; use `forget --matching` to find their text elsewhere"
            ));
        }
        forgot.gone = gone;
        Ok(forgot)
    }

    async fn set_tombstone(&self, scrub: &Scrub, wish: &Forget, history: bool) -> Result<String> {
        let (stones, now) = (self.tombstones(), self.now().to_string());
        // A vault has one salt. It differs from other vaults by what the vault contains.
        let salt = match stones.salt() {
            Some(salt) => salt.to_owned(),
            None => Hash::of(&self.store.ledger().await?.bytes).then(now.as_bytes()).to_string()
                [..32]
                .to_owned(),
        };
        let reason = wish
            .reason
            .as_deref()
            .map(plain::one_line)
            .filter(|reason| !scrub.needles.is_in(reason));
        let stone = Tombstone::new(scrub, &now, &wish.by, reason.as_deref(), &salt);
        let known = stones.all().iter().any(|known| known.id == stone.id);
        if history {
            self.note_history(&stone.id).await?;
        }
        if !known {
            self.append_line(&path(layout::FORGOTTEN)?, &stone.line()).await?;
        }
        self.renew_tombstones().await?;
        Ok(stone.id)
    }

    /// The pages that are about to be scrubbed, as they were when manual edits were imported from
    /// them; a page that was saved since counts as absent.
    async fn pages_taken_in(
        &self,
        scrub: &Scrub,
        curated: &Curated,
    ) -> Result<HashMap<DocPath, ContentVersion>> {
        let mut pages = HashMap::new();
        for one in self
            .store
            .scrub(scrub, true)
            .await?
            .iter()
            .filter(|one| matches!(one.what, Became::Changed(_)))
        {
            if let Some(page) =
                one.path.parse::<DocPath>().ok().filter(|place| PageKey::of_path(place).is_some())
            {
                pages.insert(page, one.versions.0);
            }
        }
        // Read after the pages, so that later edits are not missed.
        let places: Vec<DocPath> = pages.keys().cloned().collect();
        for (place, _) in self
            .store
            .unseen(&places)
            .await?
            .into_iter()
            .filter(|(place, stamp)| !curated.has_taken(place, stamp))
        {
            pages.insert(place, ContentVersion::ABSENT);
        }
        Ok(pages)
    }

    /// Retracts the forgotten events.
    async fn take_back(&self, ids: &BTreeSet<EventId>) -> Result<()> {
        let ids: Vec<EventId> = ids.iter().copied().collect();
        let now = self.now();
        let entries = self.anywhere(&ids).await?;
        let holds = entries.iter().filter(|entry| {
            entry.event.is_statement() && !matches!(entry.standing, Standing::Retracted { .. })
        });
        let draft = |event: &Event| Draft {
            origin: Origin::User,
            ..Draft::upon(event, Act::Retract, now, FORGOTTEN)
        };
        let drafts: Vec<Draft> = holds.map(|entry| draft(&entry.event)).collect();
        if !drafts.is_empty() {
            self.store.append(drafts, None).await?;
        }
        Ok(())
    }

    /// Rebuilds the touched pages from the remaining events. A page that a user saved after its
    /// edits were imported keeps them for the next run.
    async fn renew_views(
        &self,
        touched: &[Scrubbed],
        taken_in: &HashMap<DocPath, ContentVersion>,
        curated: &mut Curated,
    ) -> Result<()> {
        for one in touched.iter().filter(|one| matches!(one.what, Became::Changed(_))) {
            let page =
                one.path.parse::<DocPath>().ok().filter(|place| {
                    PageKey::of_path(place).is_some() && !curated.held.contains(place)
                });
            let Some(page) = page else { continue };
            let (before, after) = one.versions;
            // What a run that died has scrubbed differs from what was imported, but had nothing
            // left to import.
            if taken_in.get(&page).is_some_and(|taken_in| *taken_in != before) {
                continue;
            }
            match self.store.remove_unchanged(&page, after).await {
                Err(StoreError::Moved { .. }) => {}
                other => other?,
            }
        }
        self.rebuild_views(curated).await
    }

    /// Rebuilds the summaries that were erased: those that are due, then those that had been
    /// requested before their time.
    async fn press_again(
        &self,
        scrub: &Scrub,
        asking: Option<&Asking<'_>>,
        watch: Watch<'_>,
    ) -> Result<Vec<Period>> {
        // If no summary was touched, nothing is rebuilt early: what is due waits for its time.
        if scrub.periods.is_empty() {
            return Ok(Vec::new());
        }
        let mut pressed: Vec<Period> = self
            .roll(&Wish::default(), asking, watch)
            .await?
            .pressed
            .iter()
            .map(|node| node.period)
            .collect();
        let (heads, _) = self.store.heads(&SummaryQuery::default()).await?;
        let mut erased: Vec<_> = heads
            .into_iter()
            .filter(|head| scrub.periods.contains_key(&head.period) && head.is_forgotten())
            .collect();
        erased.sort_by_key(|head| (head.period.tier(), head.period));
        for head in erased {
            let wish = Wish {
                tier: Some(head.period.tier()),
                days: Some(head.period.days()),
                sessions: head.session.map(|key| vec![key]),
            };
            pressed.extend(
                self.roll(&wish, asking, watch).await?.pressed.iter().map(|node| node.period),
            );
        }
        Ok(pressed)
    }

    /// Empties the summaries of a conversation on these days whose records were removed, and those
    /// of the days, weeks, months and years that have nothing else. Their earlier versions stay.
    pub(crate) async fn empty_summaries(
        &self,
        conversation: &str,
        days: &BTreeSet<Date>,
    ) -> Result<()> {
        let known = self.known(false).await?;
        let sessions: BTreeSet<&SessionKey> = known.sessions.iter().map(|stat| &stat.key).collect();
        let due: BTreeSet<Period> = known.overdue().into_iter().map(|(period, _)| period).collect();
        let is_of_days = |period: Period| {
            days.iter().any(|day| Period::covering(period.tier(), *day) == Some(period))
        };
        let has_records = |period: Period| {
            sessions.iter().any(|key| Period::covering(period.tier(), key.day) == Some(period))
        };
        let is_empty = |summary: &Summary| match &summary.session {
            Some(key) => key.conversation == conversation && !sessions.contains(key),
            None => {
                is_of_days(summary.period)
                    && !has_records(summary.period)
                    && !due.contains(&summary.period)
                    && summary.messages > 0
            }
        };
        let now = self.now();
        let all = self.store.summaries(&SummaryQuery::default()).await?.into_iter();
        let emptied: Vec<Summary> = all
            // A file that icecore did not write is not made from records.
            .filter(|summary| {
                summary.headline != FORGOTTEN && summary.maker != Maker::File && is_empty(summary)
            })
            .map(|summary| Summary {
                version: summary.version + 1,
                headline: FORGOTTEN.into(),
                body: String::new(),
                messages: 0,
                states: 0,
                recorded: now,
                source: Hash::of(FORGOTTEN.as_bytes()),
                sources: Vec::new(),
                maker: Maker::Extract,
                provisional: true,
                left_out: Vec::new(),
                cost: Cost::default(),
                similar: None,
                ..summary
            })
            .collect();
        if emptied.is_empty() {
            return Ok(());
        }
        self.store.add_summaries(&emptied, None).await?;
        self.write_views(&emptied, &mut Rolled::default()).await
    }

    async fn look_at_snapshots(
        &self,
        history: bool,
        scrub: &Scrub,
        forgot: &mut Forgot,
    ) -> Result<()> {
        if self.history.available().await.is_err() {
            return Ok(());
        }
        // By hashes as well as by words: an earlier run's text may still be there.
        let mut all = scrub.clone();
        all.merge(self.tombstones().scrub());
        if history {
            let Rewritten { snapshots, files } = self.history.rewrite(&all).await?;
            forgot.rewritten = Some((snapshots, files));
            return Ok(());
        }
        match self.history.stands_in(&all).await {
            Ok(standing) => forgot.snapshots = Some(standing),
            Err(error) => forgot.notes.push(format!("snapshots could not be searched: {error}")),
        }
        Ok(())
    }

    /// Collects everything that is to be removed.
    async fn plan_forgetting(&self, wish: &Forget) -> Result<(Scrub, Found)> {
        let stones = self.tombstones();
        let mut scrub = stones.left_to_do();
        let carried_in = self.carried_in().await?;
        stones
            .all()
            .iter()
            .filter(|stone| carried_in.contains(&stone.id))
            .for_each(|stone| stone.add_to(&mut scrub));
        if wish.is_empty() {
            self.add_come_back(&mut scrub).await?;
        }
        self.add_later_versions(&carried_in, &mut scrub).await?;
        for text in &wish.matching {
            let letters = text.chars().filter(|c| c.is_alphanumeric()).count();
            if letters < FEWEST_LETTERS {
                return Err(Error::Unclear(format!(
                    "`{}` is too short to search for; give at least {FEWEST_LETTERS} letters or digits",
                    plain::one_line(text)
                )));
            }
            scrub.needles.add(text);
        }
        let mut named = BTreeSet::new();
        for id in &wish.ids {
            self.name_what_goes(id.trim(), &mut scrub, &mut named).await?;
        }
        let mut by_id_only = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let found = self.look_for(&scrub).await?;
            by_id_only.extend(&found.by_id_only);
            let is_new = |(folder, turns): (&String, &BTreeSet<u64>)| {
                !scrub.turns.get(folder).is_some_and(|known| turns.is_subset(known))
            };
            let mut more = !found.events.is_subset(&scrub.events) || found.turns.iter().any(is_new);
            scrub.events.extend(&found.events);
            for phrase in &found.phrases {
                more |= scrub.needles.add(phrase);
            }
            for (folder, turns) in &found.turns {
                scrub.turns.entry(folder.clone()).or_default().extend(turns);
            }
            if !more {
                break;
            }
        }
        let mut found = self.look_for(&scrub).await?;
        found.by_id_only = by_id_only;
        self.periods_of(&found, &mut scrub).await?;
        let by_files = self
            .summary_versions()
            .await?
            .into_iter()
            .filter(|version| version.maker == Maker::File);
        scrub.foreign_entries =
            by_files.map(|version| (version.period, version.headline)).collect();
        Ok((scrub, found))
    }

    /// Adds forgotten text that exists again, by its words, events and records: a merge may have
    /// brought it back.
    async fn add_come_back(&self, scrub: &mut Scrub) -> Result<()> {
        let stones = self.tombstones();
        if stones.is_empty() {
            return Ok(());
        }
        scrub.needles.merge(stones.needles());
        scrub.records.extend(&stones.scrub().records);
        let erased = |event: &Event| event.content == FORGOTTEN;
        let back = self
            .every_event()
            .await?
            .into_iter()
            .filter(|event| stones.scrub().events.contains(&event.id) && !erased(event));
        scrub.events.extend(back.map(|event| event.id));
        Ok(())
    }

    /// Files that contain forgotten text again.
    pub(crate) async fn come_back(&self) -> Result<Vec<String>> {
        if self.tombstones().is_empty() || !self.history.is_shared().await {
            return Ok(Vec::new());
        }
        let mut scrub = Scrub::default();
        self.add_come_back(&mut scrub).await?;
        let touched = self.store.scrub(&scrub, true).await?;
        let is_remade =
            |path: &str| forget::is_view_of_many(path) || path.starts_with(".icecore/answers/");
        Ok(touched
            .into_iter()
            .filter(|one| one.what != Became::Left && !is_remade(&one.path))
            .map(|one| one.path)
            .collect())
    }

    /// Adds the summary versions that existed before another machine forgot their text, whatever
    /// those versions are called here.
    async fn add_later_versions(
        &self,
        carried_in: &BTreeSet<String>,
        scrub: &mut Scrub,
    ) -> Result<()> {
        let stones = self.tombstones();
        let carried: Vec<&Tombstone> =
            stones.all().iter().filter(|stone| carried_in.contains(&stone.id)).collect();
        if carried.is_empty() {
            return Ok(());
        }
        for summary in self.summary_versions().await? {
            let until = carried
                .iter()
                .filter(|stone| stone.names_period(summary.period))
                .filter_map(|stone| Moment::read(&stone.ts));
            if until.map(|read| read.moment).any(|until| summary.recorded <= until) {
                let upto = scrub.periods.entry(summary.period).or_default();
                *upto = summary.version.max(*upto);
            }
        }
        Ok(())
    }

    /// Resolves an id that the user gave.
    async fn name_what_goes(
        &self,
        id: &str,
        scrub: &mut Scrub,
        named: &mut BTreeSet<String>,
    ) -> Result<()> {
        if !named.insert(id.to_owned()) {
            return Ok(());
        }
        if let Ok(event) = EventId::from_hand(id) {
            if self.anywhere(&[event]).await?.is_empty() {
                return Err(Refusal::Unknown(event).into());
            }
            scrub.events.insert(event);
            return Ok(());
        }
        if let Some(name) = id.strip_prefix(CONVERSATION) {
            let records = self.store.last_said(name, usize::MAX).await?;
            let folder = folder_of(name);
            if records.is_empty() && self.store.documents(&folder).await?.is_empty() {
                let name = plain::one_line(name);
                return Err(Error::Nothing(format!(
                    "there is no conversation `{name}`; run `icecore conversation list` to see all"
                )));
            }
            scrub.records.extend(records.iter().map(Record::key));
            scrub.conversations.insert(name.to_owned());
            scrub.folders.insert(folder);
            return Ok(());
        }
        let name = id.trim_start_matches("[mem:").trim_end_matches(']').trim_end_matches(".md");
        let name =
            name.strip_prefix(layout::MEMORIES).map_or(name, |name| name.trim_start_matches('/'));
        if let Ok(place) = format!("{}/{name}.md", layout::MEMORIES).parse::<DocPath>()
            && let Some(bytes) = self.store.document(&place).await?
            && let Some(event) = memo::read(&String::from_utf8_lossy(&bytes)).event
        {
            scrub.events.insert(event);
            return Ok(());
        }
        // A record by its id, or by the source that an event names.
        let wanted = id.rsplit_once('#').map_or(id, |(_, id)| id);
        let mut known = false;
        self.each_record(|_, record| {
            if record.id == wanted {
                known = true;
                scrub.records.insert(record.key());
            }
        })
        .await?;
        if known {
            return Ok(());
        }
        Err(Error::Nothing(format!(
            "there is no event, record or memory `{}`; name an EVT-…, the id of a message, a memory's name or conversation/NAME",
            plain::one_line(id)
        )))
    }

    /// Calls `take` for every line of every record, with its file.
    async fn each_record(&self, mut take: impl FnMut(&DocPath, Record)) -> Result<()> {
        for folder in [layout::MESSAGES, layout::SNAPSHOTS] {
            for place in self
                .store
                .documents(folder)
                .await?
                .into_iter()
                .filter(|place| place.record_day().is_some())
            {
                let text = self.store.document(&place).await?.unwrap_or_default();
                for line in text
                    .split(|byte| *byte == b'\n')
                    .map(<[u8]>::trim_ascii)
                    .filter(|line| !line.is_empty())
                {
                    if let Ok(record) = record::read(line) {
                        take(&place, record);
                    }
                }
            }
        }
        Ok(())
    }

    /// One pass over all files: everything that goes with what is known so far.
    async fn look_for(&self, scrub: &Scrub) -> Result<Found> {
        let mut found = Found::default();
        // Sources that are removed as a whole.
        let mut sources: BTreeSet<String> = BTreeSet::new();
        let mut keys = std::collections::HashSet::new();
        self.each_record(|place, record| {
            let key = record.key();
            if !scrub.conversations.contains(&record.conversation)
                && scrub.needles.is_in(&record.conversation)
            {
                found.called.insert(record.conversation.clone());
            }
            let erased = scrub.records.contains(&key);
            if erased {
                sources.insert(format!("{place}#{}", record.id));
            }
            // Text that an interrupted run has scrubbed already leads to nothing new.
            if (erased && record.text == FORGOTTEN)
                || (!erased && scrub.needles.record(&record).is_none())
            {
                return;
            }
            if keys.insert(key) {
                found.records += 1;
            }
            found.days.insert(record.ts.day());
            found.sessions.insert(record.session_key());
            if let Some(turn) = turn_of(&record) {
                found.turns.entry(folder_of(&record.conversation)).or_default().insert(turn);
            }
        })
        .await?;
        for place in self.store.documents("conversations").await? {
            let Some(folder) = forget::conversation_folder(place.as_str())
                .filter(|_| place.name() == "events.jsonl")
            else {
                continue;
            };
            let whole = scrub.folders.contains(folder);
            let text = self.store.document(&place).await?.unwrap_or_default();
            for event in Ledger::read(&text, None).entries().iter().map(|entry| &entry.event) {
                let turn = event.field::<u64>("turn");
                let said = scrub.is_in_event(event);
                if said && let Some(turn) = turn {
                    found.turns.entry(folder.to_owned()).or_default().insert(turn);
                }
                if whole
                    || said
                    || turn.is_some_and(|turn| {
                        scrub.turns.get(folder).is_some_and(|turns| turns.contains(&turn))
                    })
                {
                    sources.insert(format!("{place}#{}", event.id));
                }
            }
        }
        found.turns.retain(|folder, _| !scrub.folders.contains(folder));
        for event in self.every_event().await? {
            let named = scrub.events.contains(&event.id);
            let said = scrub.is_in_event(&event);
            let learnt = sources.contains(&event.source);
            let compacts = || event.field::<Vec<String>>(COMPACTS).unwrap_or_default();
            let acts = event.act != Act::Assert
                && event.related.iter().any(|id| scrub.events.contains(id));
            let stands_for = compacts()
                .iter()
                .any(|id| id.parse().is_ok_and(|id: EventId| scrub.events.contains(&id)));
            if !(named || said || learnt || acts || stands_for) {
                continue;
            }
            // A scrubbed event is done.
            if event.content == FORGOTTEN {
                continue;
            }
            found.events.insert(event.id);
            found.days.insert(event.ts.day());
            // An event that was found only by its id leaves its words elsewhere; those are found by
            // text.
            if said || acts {
                continue;
            }
            for text in
                [Some(event.content.clone()), event.field::<String>(QUOTE)].into_iter().flatten()
            {
                if forget::count_words(&text) >= FEWEST_WORDS {
                    found.phrases.insert(text);
                } else {
                    found.by_id_only.insert(event.id);
                }
            }
        }
        for place in self.store.documents("memory").await? {
            let Some(day) = place.log_day() else { continue };
            let text = self.store.document(&place).await?.unwrap_or_default();
            if scrub.fate(place.as_str(), &text) != Fate::Same {
                found.days.insert(day);
            }
        }
        Ok(found)
    }

    /// The events of the ledger and of every archive, unfolded.
    async fn every_event(&self) -> Result<Vec<Event>> {
        let mut texts = vec![self.store.ledger().await?.bytes];
        texts.extend(self.archive_texts().await?);
        let lines = texts.iter().flat_map(|text| text.split(|byte| *byte == b'\n'));
        Ok(lines.flat_map(|line| line::parse(line).events).collect())
    }

    /// Adds the summaries of the days and sessions concerned: they are rebuilt, whatever words they
    /// used.
    async fn periods_of(&self, found: &Found, scrub: &mut Scrub) -> Result<()> {
        let (heads, _) = self.store.heads(&SummaryQuery::default()).await?;
        let mut days: BTreeSet<Date> = found.days.clone();
        // A summary that quotes the words leads to the summaries above it, too.
        let said: HashMap<Period, bool> = self
            .store
            .summaries(&SummaryQuery::default())
            .await?
            .into_iter()
            .map(|summary| {
                (
                    summary.period,
                    scrub.needles.is_in(&summary.headline) || scrub.needles.is_in(&summary.body),
                )
            })
            .collect();
        days.extend(said.iter().filter(|(_, said)| **said).map(|(period, _)| period.days().first));
        for head in heads {
            let tier = head.period.tier();
            let goes = match tier {
                Tier::Session => {
                    head.session.as_ref().is_some_and(|key| found.sessions.contains(key))
                }
                _ => days.iter().any(|day| Period::covering(tier, *day) == Some(head.period)),
            };
            if goes || said.get(&head.period) == Some(&true) {
                let upto = scrub.periods.entry(head.period).or_default();
                *upto = head.version.max(*upto);
            }
        }
        Ok(())
    }
}

fn told(scrub: &Scrub, found: &Found, touched: &[Scrubbed]) -> Forgetting {
    let is_remade =
        |path: &str| forget::is_view_of_many(path) || path.starts_with(".icecore/answers/");
    let kept: Vec<&Scrubbed> =
        touched.iter().filter(|one| one.what != Became::Left && !is_remade(&one.path)).collect();
    // Views of everything are always rebuilt; alone they are no reason to forget.
    let places = kept.iter().map(|one| Place {
        path: one.path.clone(),
        lines: if let Became::Changed(lines) = one.what { Some(lines) } else { None },
    });
    let places: Vec<Place> = places.collect();
    if places.is_empty() {
        let left = touched
            .iter()
            .filter(|one| one.what == Became::Left)
            .map(|one| one.path.clone())
            .collect();
        return Forgetting { left, ..Forgetting::default() };
    }
    Forgetting {
        events: scrub.events.iter().copied().collect(),
        records: found.records,
        summaries: scrub.periods.keys().map(ToString::to_string).collect(),
        turns: found.turns.values().map(BTreeSet::len).sum(),
        places,
        left: touched
            .iter()
            .filter(|one| one.what == Became::Left)
            .map(|one| one.path.clone())
            .collect(),
        by_id_only: found.by_id_only.iter().copied().collect(),
    }
}
