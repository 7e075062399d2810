//! Hybrid search (Y9, K9) over all messages, states, events, summaries, pages and logs: keywords
//! and embeddings.
//!
//! Invariants: results never contain text newer than the moment that is asked about, retracted
//! events, or a client's system messages. Unconfirmed text is marked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::id::EventId;
use icecore_domain::ledger::{Entry, Ledger, Standing};
use icecore_domain::rank::corpus::{Corpus, Row};
use icecore_domain::rank::passage::{Passage, PassageKind};
use icecore_domain::rank::question::{self, Question};
use icecore_domain::rank::score::{self, BY_MEANING, BY_WORDS, Candidate, Side, Sought, Times};
use icecore_domain::rank::terms::Reader;
use icecore_domain::rank::update::{self, Told};
use icecore_domain::rank::vector::{self, DIMENSIONS, Packed, Signs};
use icecore_domain::record::Role;
use icecore_store::Progress;
use icecore_store::passages::{Embedded, Placed, TakenIn as PassagesTaken};
use jiff::Timestamp;

use crate::embed::Embed;
use crate::{Memory, Result};

/// How many of the nearest passages by binary signature are candidates, whatever their words.
const NEAREST: usize = 100;
/// How many of the best candidates are scored in full.
const COMPARED: usize = 300;
/// How many of the best candidates are embedded on demand.
const ON_DEMAND: usize = 100;
/// How many more hits than requested are scored, since some are dropped later.
const SPARE: usize = 40;
/// How many passages are embedded before the batch is stored.
const EMBED_BATCH: usize = 256;
/// Below this cosine similarity a passage is unrelated to a word that occurs nowhere.
const FAR: f32 = 0.45;
/// How many passages one round of the daemon embeds.
pub const EMBED_IN_A_ROUND: usize = 500;
/// How many passages a consolidation embeds when a user waits for it.
pub const EMBED_IN_A_NIGHT: usize = 2_000;
/// Only texts with at least so many words are merged as duplicates.
const TELLING_WORDS: usize = 4;
/// How many longer terms may stand in for a word without any passage.
const PARTS_OF: usize = 12;

/// A search request.
#[derive(Debug, Clone, Default)]
pub struct Looking {
    pub text: String,
    pub limit: usize,
    /// Only passages of these days.
    pub when: Option<Days>,
    /// Only passages older than this; the search is then as of this moment.
    pub before: Option<Timestamp>,
    /// The moment that words like `yesterday` are relative to.
    pub now: Option<Moment>,
    /// Only these kinds; all if empty.
    pub kinds: Vec<PassageKind>,
    /// Only this conversation.
    pub conversation: Option<String>,
    /// How many neighbouring passages to return on each side of a hit.
    pub context: usize,
    /// Whether to embed the best candidates that have no vector yet.
    pub rerank: bool,
}

/// A passage that matches a search.
#[derive(Debug, Clone)]
pub struct Hit {
    /// Comparable only within one search.
    pub score: f32,
    /// The passage and its source.
    pub placed: Placed,
    /// Why it is ranked where it is.
    pub why: Vec<Side>,
    /// The event that superseded it, if any.
    pub replaced_by: Option<EventId>,
    /// Whether it is an event that waits for confirmation, or comes from a record of low trust.
    /// Such text may be quoted, but not believed. Every interface shows this.
    pub unconfirmed: bool,
    /// Whether it is a message that was edited or deleted later.
    pub withdrawn: bool,
    /// Duplicates with the same words, which are no hits of their own.
    pub also: Vec<String>,
    /// The neighbouring passages in order, including this one; empty if none were requested.
    pub around: Vec<Passage>,
}

/// The results of a search.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Best first.
    pub hits: Vec<Hit>,
    /// How the question was understood.
    pub question: Question,
    /// Words that occur nowhere.
    pub unknown: Vec<String>,
    /// Whether embeddings were used; otherwise it was a keyword search only.
    pub by_meaning: bool,
}

/// A memory with its search index loaded, for one or many searches.
pub struct Finder<'a> {
    memory: &'a Memory,
    embed: Option<&'a dyn Embed>,
    reader: Reader,
    voices: Vec<(u16, String)>,
    corpus: Arc<Corpus>,
    signs: Held,
}

/// The binary signatures of the vectors, as far as they are loaded.
enum Held {
    /// Of every passage, by its number.
    All(Arc<Vec<Signs>>),
    /// There are too many: the store compares them.
    AtHome,
    /// Of some passages.
    Some(HashMap<u32, Signs>),
}

impl Held {
    fn get(&self, number: u32) -> Option<Signs> {
        match self {
            Self::All(all) => all.get(number as usize).copied(),
            Self::Some(some) => some.get(&number).copied(),
            Self::AtHome => None,
        }
    }
}

impl Memory {
    /// Updates the search index and loads it.
    pub async fn finder<'a>(
        &'a self,
        embed: Option<&'a dyn Embed>,
        progress: Progress<'_>,
    ) -> Result<Finder<'a>> {
        self.store.take_in(false, progress).await?;
        let corpus = self.store.corpus().await?;
        let signs = match embed {
            Some(_) if self.store.finds_nearest(corpus.passages) => Held::AtHome,
            Some(_) => Held::All(self.store.signs().await?),
            None => Held::All(Arc::default()),
        };
        Ok(Finder {
            memory: self,
            embed,
            reader: Reader::default(),
            voices: self.store.voices().await?,
            corpus,
            signs,
        })
    }

    /// Rebuilds the search index.
    pub async fn renew_passages(&self, progress: Progress<'_>) -> Result<PassagesTaken> {
        Ok(self.store.take_in(true, progress).await?)
    }

    /// How many passages have a vector.
    pub async fn embedded(&self) -> Result<Embedded> {
        Ok(self.store.embedded().await?)
    }

    /// Embeds at most `most` passages, the newest first. Each batch is stored as soon as it is
    /// done.
    pub async fn embed_passages(
        &self,
        embed: &dyn Embed,
        most: usize,
        progress: Progress<'_>,
    ) -> Result<Embedded> {
        self.store.take_in(false, &|_, _| {}).await?;
        let mut waiting = self.store.without_vector(most).await?;
        let all = waiting.len();
        while !waiting.is_empty() {
            let batch: Vec<u32> = waiting.drain(..waiting.len().min(EMBED_BATCH)).collect();
            self.embed_these(embed, &batch).await?;
            progress((all - waiting.len()) as u64, all as u64);
        }
        Ok(self.store.embedded().await?)
    }

    /// Embeds these passages and stores the vectors.
    async fn embed_these(
        &self,
        embed: &dyn Embed,
        numbers: &[u32],
    ) -> Result<HashMap<u32, Packed>> {
        let known = self.store.vectors(numbers).await?;
        let mut vectors: HashMap<u32, Packed> = numbers
            .iter()
            .zip(known)
            .filter_map(|(&number, packed)| Some((number, packed?)))
            .collect();
        let missing: Vec<u32> =
            numbers.iter().copied().filter(|number| !vectors.contains_key(number)).collect();
        let corpus = self.store.corpus().await?;
        // An answer is embedded together with its question, which makes its meaning clearer.
        let asked =
            |number: u32| corpus.beside(number, -1).filter(|&before| corpus.row(before).asks);
        let questions: Vec<u32> = missing.iter().filter_map(|&number| asked(number)).collect();
        let questions: HashMap<u32, String> = questions
            .iter()
            .copied()
            .zip(self.store.passages(&questions).await?)
            .filter_map(|(number, placed)| {
                Some((number, question::last_asked(&placed?.passage.text)?.to_owned()))
            })
            .collect();
        let texts: Vec<(u32, String)> = missing
            .iter()
            .copied()
            .zip(self.store.passages(&missing).await?)
            .filter_map(|(number, placed)| {
                let text = placed?.passage.text;
                let question = asked(number).and_then(|before| questions.get(&before));
                Some((
                    number,
                    question.map_or_else(|| text.clone(), |question| format!("{question} {text}")),
                ))
            })
            .collect();
        let list: Vec<&str> = texts.iter().map(|(_, text)| text.as_str()).collect();
        for ((number, _), vector) in texts.iter().zip(embed.embed(&list)?) {
            vectors.insert(*number, vector::pack(vector.numbers()));
        }
        let kept: Vec<(u32, Packed)> =
            vectors.iter().map(|(&number, &packed)| (number, packed)).collect();
        self.store.keep_vectors(&kept).await?;
        Ok(vectors)
    }
}

impl Finder<'_> {
    /// Whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.corpus.passages == 0
    }

    /// Whether any passage has a vector.
    async fn has_vectors(&self) -> Result<bool> {
        Ok(match &self.signs {
            Held::All(all) => all.iter().any(|signs| !signs.is_none()),
            _ => !self.memory.store.nearest(&Signs::NONE, 1).await?.is_empty(),
        })
    }

    /// The nearest passages by signature, among those that the filter admits.
    async fn nearest(
        &self,
        to: &Signs,
        admits: &(dyn Fn(u32, &Row) -> bool + Sync),
    ) -> Result<Vec<u32>> {
        let corpus = self.corpus.as_ref();
        if let Held::All(all) = &self.signs {
            let distances = icecore_kernels::differing(all.iter().map(|signs| signs.0), &to.0);
            return Ok(score::nearest(&distances, corpus, admits, NEAREST));
        }
        // The store does not know the filter, so it is asked for more until enough are admitted.
        let mut most = 4 * NEAREST;
        loop {
            let found = self.memory.store.nearest(to, most).await?;
            let end = found.last().map_or(0, |(number, _)| number + 1).max(corpus.end());
            let mut distances = vec![u32::MAX; end as usize];
            found.iter().for_each(|&(number, distance)| distances[number as usize] = distance);
            let near = score::nearest(&distances, corpus, admits, NEAREST);
            if near.len() >= NEAREST
                || found.len() < most
                || found.last().is_some_and(|(_, distance)| *distance >= DIMENSIONS as u32 / 2)
            {
                return Ok(near);
            }
            most *= 8;
        }
    }

    /// Loads the signatures of these passages and of everything in their groups, if not loaded.
    async fn signs_around(&self, numbers: &[u32]) -> Result<Option<Held>> {
        if !matches!(self.signs, Held::AtHome) {
            return Ok(None);
        }
        let mut all: Vec<u32> = numbers
            .iter()
            .flat_map(|&number| self.corpus.of_group(number))
            .chain(numbers)
            .copied()
            .collect();
        all.sort_unstable();
        all.dedup();
        let signs = self.memory.store.signs_of(&all).await?;
        Ok(Some(Held::Some(all.into_iter().zip(signs).collect())))
    }

    /// Runs a search.
    pub async fn search(&self, looking: &Looking) -> Result<Answer> {
        let (memory, corpus) = (self.memory, self.corpus.as_ref());
        // A request for older passages is answered as of that moment.
        let now = looking
            .now
            .or_else(|| looking.before.map(|before| memory.zone.moment(before)))
            .unwrap_or_else(|| memory.now());
        let question = Question::read(&looking.text, &self.voices, now.day(), &self.reader);
        let groups: Option<HashSet<u32>> = match &looking.conversation {
            Some(conversation) => {
                Some(memory.store.groups_of(conversation).await?.into_iter().collect())
            }
            None => None,
        };
        // Passages that are newer than the moment must not be found.
        let as_of = memory.horizon().map(|horizon| horizon.as_second().saturating_add(1));
        let before = looking.before.map(Timestamp::as_second);
        let seconds = |days: Days| {
            let end = days.last.tomorrow().unwrap_or(days.last);
            memory.zone.start_of(days.first).as_second()..memory.zone.start_of(end).as_second()
        };
        let when = looking.when.map(seconds);
        let times = Times {
            now: now.at().as_second(),
            named: question.times.iter().copied().map(seconds).collect(),
        };
        let admits = |_: u32, row: &Row| {
            row.kind.is_some_and(|kind| looking.kinds.is_empty() || looking.kinds.contains(&kind))
                // A client's system messages are not memory.
                && row.role != Some(Role::System)
                && as_of.is_none_or(|as_of| row.at < as_of)
                && before.is_none_or(|before| row.at != i64::MIN && row.at < before)
                && when.as_ref().is_none_or(|when| when.contains(&row.at))
                && groups.as_ref().is_none_or(|groups| groups.contains(&row.group))
        };
        let (sought, unknown) = self.sought(&question).await?;
        let vector = match self.embed {
            Some(embed)
                if !question.spoken.is_empty()
                    && (looking.rerank || self.has_vectors().await?) =>
            {
                embed.embed(&[&question.spoken])?.pop().map(|vector| vector::pack(vector.numbers()))
            }
            _ => None,
        };
        let mut near = Vec::new();
        if let Some(vector) = &vector {
            near = self.nearest(&vector.signs(), &admits).await?;
        }
        let mut pool = score::candidates(corpus, &question, &sought, &admits, &times, &near);
        let mut vectors: HashMap<u32, Packed> = HashMap::new();
        if let Some(vector) = &vector {
            if let (true, Some(embed)) = (looking.rerank, self.embed) {
                let best = pool.clone().ranked(corpus, &BY_WORDS);
                let best: Vec<u32> = best
                    .into_iter()
                    .take(ON_DEMAND)
                    .map(|(_, candidate)| candidate.passage)
                    .collect();
                vectors = memory.embed_these(embed, &best).await?;
            }
            // Signatures are loaded already, and good enough to choose the candidates to score in
            // full.
            let made: HashMap<u32, Signs> =
                vectors.iter().map(|(&number, packed)| (number, packed.signs())).collect();
            let all: Vec<u32> = pool.candidates.iter().map(|candidate| candidate.passage).collect();
            let around = self.signs_around(&all).await?;
            let held = around.as_ref().unwrap_or(&self.signs);
            let signs = |number: u32| {
                made.get(&number)
                    .copied()
                    .or_else(|| held.get(number))
                    .filter(|signs| !signs.is_none())
            };
            let asked = vector.signs();
            let mut nearness: HashMap<u32, f32> = all
                .iter()
                .filter_map(|&number| Some((number, signs(number)?.nearness(&asked))))
                .collect();
            let groups = score::group_nearness(&all, corpus, vector, &signs);
            pool.compare(corpus, &nearness, &groups);
            let best = pool.clone().ranked(corpus, &BY_MEANING);
            let best: Vec<u32> =
                best.into_iter().take(COMPARED).map(|(_, candidate)| candidate.passage).collect();
            let unread: Vec<u32> =
                best.into_iter().filter(|number| !vectors.contains_key(number)).collect();
            let read = memory.store.vectors(&unread).await?;
            vectors.extend(
                unread.into_iter().zip(read).filter_map(|(number, packed)| Some((number, packed?))),
            );
            nearness.extend(
                vectors.iter().map(|(&number, packed)| (number, vector::dot(vector, packed))),
            );
            pool.compare(corpus, &nearness, &groups);
        }
        // The question consists of one or two words that occur nowhere, and no passage is near.
        let is_near = |packed: &Packed| {
            vector.as_ref().is_some_and(|vector| vector::dot(vector, packed) >= FAR)
        };
        if sought.is_empty()
            && question.is_bare
            && question.asked.len() <= 2
            && !vectors.values().any(is_near)
        {
            return Ok(Answer {
                hits: Vec::new(),
                question,
                unknown,
                by_meaning: vector.is_some(),
            });
        }
        let weights = if vector.is_some() { BY_MEANING } else { BY_WORDS };
        let mut ranked = pool.ranked(corpus, &weights);
        score::liken(&mut ranked, &vectors);
        let ranked = score::spread(ranked, corpus, &weights, !question.for_fact);
        let has_phrases = |text: &str| {
            let said = question::sameness(text);
            question.phrases.iter().all(|phrase| said.contains(phrase.as_str()))
        };
        let mut hits: Vec<(Candidate, Hit)> = Vec::new();
        for chunk in ranked.chunks(looking.limit + SPARE) {
            let numbers: Vec<u32> = chunk.iter().map(|(_, candidate)| candidate.passage).collect();
            let placed = memory.store.passages(&numbers).await?;
            for ((score, candidate), placed) in chunk.iter().zip(placed) {
                let Some(placed) = placed else { continue };
                if !question.is_exact || has_phrases(&placed.passage.text) {
                    hits.push((
                        *candidate,
                        Hit {
                            score: *score,
                            why: candidate.features.explained(&weights),
                            // The state of an event is looked up later, in the ledger.
                            unconfirmed: placed.passage.is_of_low_trust(),
                            withdrawn: false,
                            placed,
                            replaced_by: None,
                            also: Vec::new(),
                            around: Vec::new(),
                        },
                    ));
                }
            }
            if hits.len() >= looking.limit || question.phrases.is_empty() || !question.is_exact {
                break;
            }
        }
        if !question.is_exact && !question.phrases.is_empty() {
            // Hits that contain the quoted phrases come first.
            hits.sort_by_key(|(_, hit)| !has_phrases(&hit.placed.passage.text));
        }
        if question.for_newest {
            hits = self.newest_first(hits, &vectors);
        }
        let mut hits = folded(self.settled(hits).await?);
        hits.truncate(looking.limit);
        if looking.context > 0 {
            for (candidate, hit) in &mut hits {
                hit.around = self.around(candidate.passage, looking.context).await?;
            }
        }
        let mut hits: Vec<Hit> = hits.into_iter().map(|(_, hit)| hit).collect();
        self.memory.mark_withdrawn_hits(&mut hits).await?;
        Ok(Answer { hits, question, unknown, by_meaning: vector.is_some() })
    }

    /// The words of the question with their postings, and the words that occur nowhere. A word that
    /// occurs nowhere is looked up as a part of longer terms.
    async fn sought(&self, question: &Question) -> Result<(Vec<Sought>, Vec<String>)> {
        let store = &self.memory.store;
        let mut forms: Vec<Vec<String>> =
            question.asked.iter().map(|asked| asked.terms.clone()).collect();
        let terms: Vec<String> = forms.iter().flatten().cloned().collect();
        let mut found = store.postings(&terms).await?.into_iter();
        let mut unknown = Vec::new();
        let mut sought = Vec::new();
        for (asked, forms) in question.asked.iter().zip(&mut forms) {
            let mut postings: Vec<_> = found.by_ref().take(forms.len()).collect();
            if postings.iter().all(Vec::is_empty) {
                let longest = forms
                    .iter()
                    .max_by_key(|form| form.chars().count())
                    .cloned()
                    .unwrap_or_default();
                if longest.chars().count() >= 3 {
                    postings = store.postings(&store.terms_with(&longest, PARTS_OF).await?).await?;
                }
            }
            let one = Sought::of(postings, asked.count, &self.corpus);
            if one.postings.is_empty() {
                if !unknown.contains(&asked.word) {
                    unknown.push(asked.word.clone());
                }
            } else {
                sought.push(one);
            }
        }
        Ok((sought, unknown))
    }

    /// Puts superseding events above those they changed.
    fn newest_first(
        &self,
        hits: Vec<(Candidate, Hit)>,
        vectors: &HashMap<u32, Packed>,
    ) -> Vec<(Candidate, Hit)> {
        let told: Vec<Told<'_>> = hits
            .iter()
            .map(|(candidate, hit)| {
                let row = self.corpus.row(candidate.passage);
                let text = hit.placed.passage.text.as_str();
                Told {
                    score: hit.score,
                    at: row.at,
                    speaker: (row.voice, row.role),
                    asks: row.asks,
                    matched: candidate.matched,
                    text,
                    vector: vectors.get(&candidate.passage).copied(),
                }
            })
            .collect();
        let order = update::order(&told);
        let mut hits: Vec<Option<(Candidate, Hit)>> = hits.into_iter().map(Some).collect();
        order.into_iter().filter_map(|at| hits[at].take()).collect()
    }

    /// Applies the ledger: drops retracted events, and puts a superseding event above its target.
    async fn settled(&self, hits: Vec<(Candidate, Hit)>) -> Result<Vec<(Candidate, Hit)>> {
        let ids: Vec<EventId> = hits
            .iter()
            .filter(|(_, hit)| hit.placed.passage.kind == PassageKind::Event)
            .filter_map(|(_, hit)| hit.placed.passage.id.parse().ok())
            .collect();
        if ids.is_empty() {
            return Ok(hits);
        }
        let mut events = self.memory.store.tied(&ids, &[]).await?;
        if let Some(horizon) = self.memory.horizon() {
            events.retain(|event| event.ts.at() <= horizon);
        }
        let known = Ledger::of(events);
        let known: HashMap<String, &Entry> =
            known.entries().iter().map(|entry| (entry.event.id.to_string(), entry)).collect();
        let mut settled: Vec<(Candidate, Hit)> = Vec::with_capacity(hits.len());
        for (candidate, mut hit) in hits {
            let is_event = hit.placed.passage.kind == PassageKind::Event;
            let entry = known.get(&hit.placed.passage.id).filter(|_| is_event);
            if let Some(entry) = entry {
                hit.unconfirmed = entry.is_quarantined();
            }
            match entry.map(|entry| entry.standing) {
                Some(Standing::Retracted { .. }) => continue,
                Some(Standing::Superseded { by, .. }) => hit.replaced_by = Some(by),
                _ => {}
            }
            settled.push((candidate, hit));
        }
        // A superseding event takes the better rank of the two. A chain needs several rounds.
        for _ in 0..settled.len().min(8) {
            let mut moved = false;
            for at in 0..settled.len() {
                let Some(by) = settled[at].1.replaced_by.map(|by| by.to_string()) else { continue };
                if let Some(later) =
                    (at + 1..settled.len()).find(|&later| settled[later].1.placed.passage.id == by)
                {
                    let hit = settled.remove(later);
                    settled.insert(at, hit);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        Ok(settled)
    }

    async fn around(&self, number: u32, many: usize) -> Result<Vec<Passage>> {
        let many = i32::try_from(many.min(100)).unwrap_or(100);
        let numbers: Vec<u32> = (-many..=many)
            .filter_map(
                |steps| if steps == 0 { Some(number) } else { self.corpus.beside(number, steps) },
            )
            .collect();
        let found = self
            .memory
            .store
            .passages(&numbers)
            .await?
            .into_iter()
            .flatten()
            .map(|placed| placed.passage);
        Ok(found.filter(|passage| passage.role != Some(Role::System)).collect())
    }
}

/// Merges hits with the same words into the best of them. Very short texts are kept apart, since
/// they may be equal by chance.
fn folded(hits: Vec<(Candidate, Hit)>) -> Vec<(Candidate, Hit)> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<(Candidate, Hit)> = Vec::with_capacity(hits.len());
    for (candidate, hit) in hits {
        let said = question::sameness(&hit.placed.passage.text);
        match places.get(&said) {
            Some(&at) => kept[at].1.also.push(hit.placed.passage.id),
            None => {
                if said.split(' ').count() >= TELLING_WORDS {
                    places.insert(said, kept.len());
                }
                kept.push((candidate, hit));
            }
        }
    }
    kept
}
