//! Hybrid search (Y9, K9) over all messages, states, events, summaries, pages and logs: keywords
//! and embeddings.
//!
//! Invariants: results never contain text newer than the moment that is asked about, retracted
//! events, or a client's system messages. Unconfirmed text is marked.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use icecore_domain::calendar::{Days, Moment};
use icecore_domain::id::EventId;
use icecore_domain::ledger::{EventState, Ledger, LedgerEntry};
use icecore_domain::rank::corpus::{Corpus, PassageRow};
use icecore_domain::rank::passage::{Passage, PassageKind};
use icecore_domain::rank::question::{self, Question};
use icecore_domain::rank::score::{
    self, Candidate, KEYWORD_WEIGHTS, QuestionTimes, SEMANTIC_WEIGHTS, ScorePart, SearchTerm,
};
use icecore_domain::rank::terms::Analyzer;
use icecore_domain::rank::updates::{self, RankedHit};
use icecore_domain::rank::vector::{self, DIMENSIONS, PackedVector, SignVector};
use icecore_domain::record::Role;
use icecore_store::Progress;
use icecore_store::{EmbeddingCoverage, IndexReport as PassagesTaken, LocatedPassage};
use jiff::Timestamp;

use crate::embed::Embedder;
use crate::{Memory, Result};

/// How many of the nearest passages by binary signature are candidates, whatever their words.
const MAX_SIGNATURE_CANDIDATES: usize = 100;
/// How many of the best candidates are scored in full.
const MAX_SCORED_CANDIDATES: usize = 300;
/// How many of the best candidates are embedded on demand.
const MAX_ON_DEMAND_PASSAGES: usize = 100;
/// How many more hits than requested are scored, since some are dropped later.
const EXTRA_HITS: usize = 40;
/// How many passages are embedded before the batch is stored.
const EMBED_BATCH_PASSAGES: usize = 256;
/// Below this cosine similarity a passage is unrelated to a word that occurs nowhere.
const MIN_SIMILARITY: f32 = 0.45;
/// How many passages one round of the daemon embeds.
pub const EMBED_ROUND_PASSAGES: usize = 500;
/// How many passages a consolidation embeds when a user waits for it.
pub const EMBED_NIGHTLY_PASSAGES: usize = 2_000;
/// Only texts with at least so many words are merged as duplicates.
const MIN_DUPLICATE_WORDS: usize = 4;
/// How many longer terms may stand in for a word without any passage.
const MAX_CONTAINING_TERMS: usize = 12;

/// A search request.
#[derive(Debug, Clone, Default)]
pub struct SearchRequest {
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
pub struct SearchHit {
    /// Comparable only within one search.
    pub score: f32,
    /// The passage and its source.
    pub placed: LocatedPassage,
    /// Why it is ranked where it is.
    pub why: Vec<ScorePart>,
    /// The event that superseded it, if any.
    pub replaced_by: Option<EventId>,
    /// Whether it is an event that waits for confirmation, or comes from a record of low trust.
    /// Such text may be quoted, but not believed. Every interface shows this.
    pub unconfirmed: bool,
    /// Whether it is a message that was edited or deleted later.
    pub withdrawn: bool,
    /// Duplicates with the same words, which are not hits of their own.
    pub also: Vec<String>,
    /// The neighbouring passages in order, including this one; empty if none were requested.
    pub around: Vec<Passage>,
}

/// The results of a search.
#[derive(Debug, Clone)]
pub struct SearchResults {
    /// Best first.
    pub hits: Vec<SearchHit>,
    /// How the question was understood.
    pub question: Question,
    /// Words that occur nowhere.
    pub unknown: Vec<String>,
    /// Whether embeddings were used; otherwise it was a keyword search only.
    pub by_meaning: bool,
}

/// A memory with its search index loaded, for one or many searches.
pub struct Searcher<'a> {
    memory: &'a Memory,
    embed: Option<&'a dyn Embedder>,
    reader: Analyzer,
    voices: Vec<(u16, String)>,
    corpus: Arc<Corpus>,
    signs: LoadedSignatures,
}

/// The binary signatures of the vectors, as far as they are loaded.
enum LoadedSignatures {
    /// Of every passage, by its number.
    All(Arc<Vec<SignVector>>),
    /// There are too many: the store compares them.
    InStore,
    /// Of some passages.
    Some(HashMap<u32, SignVector>),
}

impl LoadedSignatures {
    fn get(&self, number: u32) -> Option<SignVector> {
        match self {
            Self::All(all) => all.get(number as usize).copied(),
            Self::Some(some) => some.get(&number).copied(),
            Self::InStore => None,
        }
    }
}

impl Memory {
    /// Updates the search index and loads it.
    pub async fn open_searcher<'a>(
        &'a self,
        embed: Option<&'a dyn Embedder>,
        progress: Progress<'_>,
    ) -> Result<Searcher<'a>> {
        self.store.update_index(false, progress).await?;
        let corpus = self.store.corpus().await?;
        let signs = match embed {
            Some(_) if self.store.prefers_nearest_query(corpus.passages) => {
                LoadedSignatures::InStore
            }
            Some(_) => LoadedSignatures::All(self.store.vector_signs().await?),
            None => LoadedSignatures::All(Arc::default()),
        };
        Ok(Searcher {
            memory: self,
            embed,
            reader: Analyzer::default(),
            voices: self.store.speakers().await?,
            corpus,
            signs,
        })
    }

    /// Rebuilds the search index.
    pub async fn rebuild_passages(&self, progress: Progress<'_>) -> Result<PassagesTaken> {
        Ok(self.store.update_index(true, progress).await?)
    }

    /// How many passages have a vector.
    pub async fn count_embedded(&self) -> Result<EmbeddingCoverage> {
        Ok(self.store.embedding_coverage().await?)
    }

    /// Embeds at most `most` passages, the newest first. Each batch is stored as soon as it is
    /// done.
    pub async fn embed_passages(
        &self,
        embed: &dyn Embedder,
        most: usize,
        progress: Progress<'_>,
    ) -> Result<EmbeddingCoverage> {
        self.store.update_index(false, &|_, _| {}).await?;
        let mut waiting = self.store.passages_without_vector(most).await?;
        let all = waiting.len();
        while !waiting.is_empty() {
            let batch: Vec<u32> =
                waiting.drain(..waiting.len().min(EMBED_BATCH_PASSAGES)).collect();
            self.embed_and_store(embed, &batch).await?;
            progress((all - waiting.len()) as u64, all as u64);
        }
        Ok(self.store.embedding_coverage().await?)
    }

    /// Embeds these passages and stores the vectors.
    async fn embed_and_store(
        &self,
        embed: &dyn Embedder,
        numbers: &[u32],
    ) -> Result<HashMap<u32, PackedVector>> {
        let known = self.store.vectors(numbers).await?;
        let mut vectors: HashMap<u32, PackedVector> = numbers
            .iter()
            .zip(known)
            .filter_map(|(&number, packed)| Some((number, packed?)))
            .collect();
        let missing: Vec<u32> =
            numbers.iter().copied().filter(|number| !vectors.contains_key(number)).collect();
        let corpus = self.store.corpus().await?;
        // An answer is embedded together with its question, which makes its meaning clearer.
        let asked = |number: u32| {
            corpus.neighbor_in_group(number, -1).filter(|&before| corpus.row(before).asks)
        };
        let questions: Vec<u32> = missing.iter().filter_map(|&number| asked(number)).collect();
        let questions: HashMap<u32, String> = questions
            .iter()
            .copied()
            .zip(self.store.locate_passages(&questions).await?)
            .filter_map(|(number, placed)| {
                Some((number, question::last_question(&placed?.passage.text)?.to_owned()))
            })
            .collect();
        let texts: Vec<(u32, String)> = missing
            .iter()
            .copied()
            .zip(self.store.locate_passages(&missing).await?)
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
            vectors.insert(*number, vector::pack_vector(vector.numbers()));
        }
        let kept: Vec<(u32, PackedVector)> =
            vectors.iter().map(|(&number, &packed)| (number, packed)).collect();
        self.store.store_vectors(&kept).await?;
        Ok(vectors)
    }
}

impl Searcher<'_> {
    /// Whether the index is empty.
    pub fn is_empty(&self) -> bool {
        self.corpus.passages == 0
    }

    /// Whether any passage has a vector.
    async fn has_vectors(&self) -> Result<bool> {
        Ok(match &self.signs {
            LoadedSignatures::All(all) => all.iter().any(|signs| !signs.is_none()),
            _ => !self.memory.store.nearest_by_signs(&SignVector::NONE, 1).await?.is_empty(),
        })
    }

    /// The nearest passages by signature, among those that the filter admits.
    async fn find_nearest(
        &self,
        to: &SignVector,
        admits: &(dyn Fn(u32, &PassageRow) -> bool + Sync),
    ) -> Result<Vec<u32>> {
        let corpus = self.corpus.as_ref();
        if let LoadedSignatures::All(all) = &self.signs {
            let distances =
                icecore_kernels::hamming_distances(all.iter().map(|signs| signs.0), &to.0);
            return Ok(score::nearest(&distances, corpus, admits, MAX_SIGNATURE_CANDIDATES));
        }
        // The store does not know the filter, so it is asked for more until enough are admitted.
        let mut most = 4 * MAX_SIGNATURE_CANDIDATES;
        loop {
            let found = self.memory.store.nearest_by_signs(to, most).await?;
            let end = found.last().map_or(0, |(number, _)| number + 1).max(corpus.passage_end());
            let mut distances = vec![u32::MAX; end as usize];
            found.iter().for_each(|&(number, distance)| distances[number as usize] = distance);
            let near = score::nearest(&distances, corpus, admits, MAX_SIGNATURE_CANDIDATES);
            if near.len() >= MAX_SIGNATURE_CANDIDATES
                || found.len() < most
                || found.last().is_some_and(|(_, distance)| *distance >= DIMENSIONS as u32 / 2)
            {
                return Ok(near);
            }
            most *= 8;
        }
    }

    /// Loads the signatures of these passages and of everything in their groups, if not loaded.
    async fn load_signatures(&self, numbers: &[u32]) -> Result<Option<LoadedSignatures>> {
        if !matches!(self.signs, LoadedSignatures::InStore) {
            return Ok(None);
        }
        let mut all: Vec<u32> = numbers
            .iter()
            .flat_map(|&number| self.corpus.group_passages(number))
            .chain(numbers)
            .copied()
            .collect();
        all.sort_unstable();
        all.dedup();
        let signs = self.memory.store.vector_signs_of(&all).await?;
        Ok(Some(LoadedSignatures::Some(all.into_iter().zip(signs).collect())))
    }

    /// Runs a search.
    pub async fn search(&self, request: &SearchRequest) -> Result<SearchResults> {
        let (memory, corpus) = (self.memory, self.corpus.as_ref());
        // A request for older passages is answered as of that moment.
        let now = request
            .now
            .or_else(|| request.before.map(|before| memory.zone.moment(before)))
            .unwrap_or_else(|| memory.now());
        let question = Question::parse(&request.text, &self.voices, now.day(), &self.reader);
        let groups: Option<HashSet<u32>> = match &request.conversation {
            Some(conversation) => {
                Some(memory.store.conversation_groups(conversation).await?.into_iter().collect())
            }
            None => None,
        };
        // Passages that are newer than the moment must not be found.
        let as_of = memory.view_horizon().map(|horizon| horizon.as_second().saturating_add(1));
        let before = request.before.map(Timestamp::as_second);
        let seconds = |days: Days| {
            let end = days.last.tomorrow().unwrap_or(days.last);
            memory.zone.day_start(days.first).as_second()..memory.zone.day_start(end).as_second()
        };
        let when = request.when.map(seconds);
        let times = QuestionTimes {
            now: now.timestamp().as_second(),
            named: question.times.iter().copied().map(seconds).collect(),
        };
        let admits = |_: u32, row: &PassageRow| {
            row.kind.is_some_and(|kind| request.kinds.is_empty() || request.kinds.contains(&kind))
                // A client's system messages are not memory.
                && row.role != Some(Role::System)
                && as_of.is_none_or(|as_of| row.at < as_of)
                && before.is_none_or(|before| row.at != i64::MIN && row.at < before)
                && when.as_ref().is_none_or(|when| when.contains(&row.at))
                && groups.as_ref().is_none_or(|groups| groups.contains(&row.group))
        };
        let (sought, unknown) = self.look_up_terms(&question).await?;
        let vector = match self.embed {
            Some(embed)
                if !question.spoken.is_empty()
                    && (request.rerank || self.has_vectors().await?) =>
            {
                embed
                    .embed(&[&question.spoken])?
                    .pop()
                    .map(|vector| vector::pack_vector(vector.numbers()))
            }
            _ => None,
        };
        let mut near = Vec::new();
        if let Some(vector) = &vector {
            near = self.find_nearest(&vector.signs(), &admits).await?;
        }
        let mut pool = score::find_candidates(corpus, &question, &sought, &admits, &times, &near);
        let mut vectors: HashMap<u32, PackedVector> = HashMap::new();
        if let Some(vector) = &vector {
            if let (true, Some(embed)) = (request.rerank, self.embed) {
                let best = pool.clone().into_ranked(corpus, &KEYWORD_WEIGHTS);
                let best: Vec<u32> = best
                    .into_iter()
                    .take(MAX_ON_DEMAND_PASSAGES)
                    .map(|(_, candidate)| candidate.passage)
                    .collect();
                vectors = memory.embed_and_store(embed, &best).await?;
            }
            // Signatures are loaded already, and good enough to choose the candidates to score in
            // full.
            let made: HashMap<u32, SignVector> =
                vectors.iter().map(|(&number, packed)| (number, packed.signs())).collect();
            let all: Vec<u32> = pool.candidates.iter().map(|candidate| candidate.passage).collect();
            let around = self.load_signatures(&all).await?;
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
                .filter_map(|&number| Some((number, signs(number)?.estimated_cosine(&asked))))
                .collect();
            let groups = score::group_similarity(&all, corpus, vector, &signs);
            pool.set_semantic_features(corpus, &nearness, &groups);
            let best = pool.clone().into_ranked(corpus, &SEMANTIC_WEIGHTS);
            let best: Vec<u32> = best
                .into_iter()
                .take(MAX_SCORED_CANDIDATES)
                .map(|(_, candidate)| candidate.passage)
                .collect();
            let unread: Vec<u32> =
                best.into_iter().filter(|number| !vectors.contains_key(number)).collect();
            let read = memory.store.vectors(&unread).await?;
            vectors.extend(
                unread.into_iter().zip(read).filter_map(|(number, packed)| Some((number, packed?))),
            );
            nearness.extend(
                vectors
                    .iter()
                    .map(|(&number, packed)| (number, vector::dot_product(vector, packed))),
            );
            pool.set_semantic_features(corpus, &nearness, &groups);
        }
        // The question consists of one or two words that occur nowhere, and no passage is near.
        let is_near = |packed: &PackedVector| {
            vector
                .as_ref()
                .is_some_and(|vector| vector::dot_product(vector, packed) >= MIN_SIMILARITY)
        };
        if sought.is_empty()
            && question.is_bare
            && question.terms.len() <= 2
            && !vectors.values().any(is_near)
        {
            return Ok(SearchResults {
                hits: Vec::new(),
                question,
                unknown,
                by_meaning: vector.is_some(),
            });
        }
        let weights = if vector.is_some() { SEMANTIC_WEIGHTS } else { KEYWORD_WEIGHTS };
        let mut ranked = pool.into_ranked(corpus, &weights);
        score::set_likeness(&mut ranked, &vectors);
        let ranked = score::diversify(ranked, corpus, &weights, !question.for_fact);
        let has_phrases = |text: &str| {
            let said = question::normalize_phrase(text);
            question.phrases.iter().all(|phrase| said.contains(phrase.as_str()))
        };
        let mut hits: Vec<(Candidate, SearchHit)> = Vec::new();
        for chunk in ranked.chunks(request.limit + EXTRA_HITS) {
            let numbers: Vec<u32> = chunk.iter().map(|(_, candidate)| candidate.passage).collect();
            let placed = memory.store.locate_passages(&numbers).await?;
            for ((score, candidate), placed) in chunk.iter().zip(placed) {
                let Some(placed) = placed else { continue };
                if !question.is_exact || has_phrases(&placed.passage.text) {
                    hits.push((
                        *candidate,
                        SearchHit {
                            score: *score,
                            why: candidate.features.explain(&weights),
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
            if hits.len() >= request.limit || question.phrases.is_empty() || !question.is_exact {
                break;
            }
        }
        if !question.is_exact && !question.phrases.is_empty() {
            // Hits that contain the quoted phrases come first.
            hits.sort_by_key(|(_, hit)| !has_phrases(&hit.placed.passage.text));
        }
        if question.for_newest {
            hits = self.rank_successors_first(hits, &vectors);
        }
        let mut hits = merge_duplicates(self.apply_ledger(hits).await?);
        hits.truncate(request.limit);
        if request.context > 0 {
            for (candidate, hit) in &mut hits {
                hit.around = self.load_neighbours(candidate.passage, request.context).await?;
            }
        }
        let mut hits: Vec<SearchHit> = hits.into_iter().map(|(_, hit)| hit).collect();
        self.memory.mark_withdrawn_hits(&mut hits).await?;
        Ok(SearchResults { hits, question, unknown, by_meaning: vector.is_some() })
    }

    /// The words of the question with their postings, and the words that occur nowhere. A word that
    /// occurs nowhere is looked up as a part of longer terms.
    async fn look_up_terms(&self, question: &Question) -> Result<(Vec<SearchTerm>, Vec<String>)> {
        let store = &self.memory.store;
        let mut forms: Vec<Vec<String>> =
            question.terms.iter().map(|asked| asked.terms.clone()).collect();
        let terms: Vec<String> = forms.iter().flatten().cloned().collect();
        let mut found = store.postings(&terms).await?.into_iter();
        let mut unknown = Vec::new();
        let mut sought = Vec::new();
        for (asked, forms) in question.terms.iter().zip(&mut forms) {
            let mut postings: Vec<_> = found.by_ref().take(forms.len()).collect();
            if postings.iter().all(Vec::is_empty) {
                let longest = forms
                    .iter()
                    .max_by_key(|form| form.chars().count())
                    .cloned()
                    .unwrap_or_default();
                if longest.chars().count() >= 3 {
                    postings = store
                        .postings(&store.terms_containing(&longest, MAX_CONTAINING_TERMS).await?)
                        .await?;
                }
            }
            let one = SearchTerm::from_forms(postings, asked.count, &self.corpus);
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
    fn rank_successors_first(
        &self,
        hits: Vec<(Candidate, SearchHit)>,
        vectors: &HashMap<u32, PackedVector>,
    ) -> Vec<(Candidate, SearchHit)> {
        let told: Vec<RankedHit<'_>> = hits
            .iter()
            .map(|(candidate, hit)| {
                let row = self.corpus.row(candidate.passage);
                let text = hit.placed.passage.text.as_str();
                RankedHit {
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
        let order = updates::order_with_updates_first(&told);
        let mut hits: Vec<Option<(Candidate, SearchHit)>> = hits.into_iter().map(Some).collect();
        order.into_iter().filter_map(|at| hits[at].take()).collect()
    }

    /// Applies the ledger: drops retracted events, and puts a superseding event above its target.
    async fn apply_ledger(
        &self,
        hits: Vec<(Candidate, SearchHit)>,
    ) -> Result<Vec<(Candidate, SearchHit)>> {
        let ids: Vec<EventId> = hits
            .iter()
            .filter(|(_, hit)| hit.placed.passage.kind == PassageKind::Event)
            .filter_map(|(_, hit)| hit.placed.passage.id.parse().ok())
            .collect();
        if ids.is_empty() {
            return Ok(hits);
        }
        let mut events = self.memory.store.linked_events(&ids, &[]).await?;
        if let Some(horizon) = self.memory.view_horizon() {
            events.retain(|event| event.ts.timestamp() <= horizon);
        }
        let known = Ledger::from_events(events);
        let known: HashMap<String, &LedgerEntry> =
            known.entries().iter().map(|entry| (entry.event.id.to_string(), entry)).collect();
        let mut settled: Vec<(Candidate, SearchHit)> = Vec::with_capacity(hits.len());
        for (candidate, mut hit) in hits {
            let is_event = hit.placed.passage.kind == PassageKind::Event;
            let entry = known.get(&hit.placed.passage.id).filter(|_| is_event);
            if let Some(entry) = entry {
                hit.unconfirmed = entry.is_quarantined();
            }
            match entry.map(|entry| entry.state) {
                Some(EventState::Retracted { .. }) => continue,
                Some(EventState::Superseded { by, .. }) => hit.replaced_by = Some(by),
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

    async fn load_neighbours(&self, number: u32, many: usize) -> Result<Vec<Passage>> {
        let many = i32::try_from(many.min(100)).unwrap_or(100);
        let numbers: Vec<u32> = (-many..=many)
            .filter_map(|steps| {
                if steps == 0 { Some(number) } else { self.corpus.neighbor_in_group(number, steps) }
            })
            .collect();
        let found = self
            .memory
            .store
            .locate_passages(&numbers)
            .await?
            .into_iter()
            .flatten()
            .map(|placed| placed.passage);
        Ok(found.filter(|passage| passage.role != Some(Role::System)).collect())
    }
}

/// Merges hits with the same words into the best of them. Very short texts are kept apart, since
/// they may be equal by chance.
fn merge_duplicates(hits: Vec<(Candidate, SearchHit)>) -> Vec<(Candidate, SearchHit)> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut kept: Vec<(Candidate, SearchHit)> = Vec::with_capacity(hits.len());
    for (candidate, hit) in hits {
        let said = question::normalize_phrase(&hit.placed.passage.text);
        match places.get(&said) {
            Some(&at) => kept[at].1.also.push(hit.placed.passage.id),
            None => {
                if said.split(' ').count() >= MIN_DUPLICATE_WORDS {
                    places.insert(said, kept.len());
                }
                kept.push((candidate, hit));
            }
        }
    }
    kept
}
