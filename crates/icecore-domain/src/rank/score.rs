//! Scoring: how well each passage answers a question.
//!
//! The first pass walks the postings of the search terms and scores every passage by BM25, alone
//! and within its group. The best passages and their context become candidates. The second pass
//! scores the candidates by all features: context window, speaker, time and embedding similarity.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::corpus::{Corpus, NO_GROUP, NO_VOICE, PassageRow};
use super::posting::Posting;
use super::question::Question;
use super::vector::{DIMENSIONS, PackedVector, SignVector, dot_product, pack_vector};
use crate::record::Role;

/// The BM25 parameters for term saturation and length normalization, at their usual values.
const BM25_K1: f32 = 1.2;
const BM25_B: f32 = 0.75;
/// This many passages go into the second pass, with their context.
const MAX_FIRST_PASS: usize = 400;
/// The number of passages on each side that form a passage's context window.
const WINDOW_RADIUS: i32 = 2;
/// After this many days the recency of a passage is halved.
const HALF_LIFE_DAYS: f32 = 10.0;
/// This many hits are placed by score alone; this many are the best in whatever order; from there
/// up to this many, each hit comes from a new group.
const TOP_SCORE_HITS: usize = 5;
const TOP_HITS: usize = 10;
const DIVERSE_HITS: usize = 20;
/// This many of the best hits define the direction that `likeness` compares with.
const LIKENESS_SEEDS: usize = 3;
const DAY_SECONDS: f32 = 86_400.0;

/// The features of a passage, each from 0 to about 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ScoreFeatures {
    /// BM25 of the passage.
    pub words: f32,
    /// BM25 of the context window.
    pub window: f32,
    /// BM25 of the session, page or log.
    pub group: f32,
    /// BM25 of a question that the passage directly follows.
    pub answers: f32,
    /// Length: a long passage can answer more.
    pub fullness: f32,
    /// Whether the person who was asked about speaks.
    pub voice: f32,
    /// Whether the user speaks and the question asks for a fact about them.
    pub own: f32,
    /// Whether the assistant speaks and the question asks for its words.
    pub assistant: f32,
    /// Whether it falls into a time that the question names.
    pub time: f32,
    /// Recency.
    pub recent: f32,
    /// Embedding similarity.
    pub meaning: f32,
    /// Embedding similarity of the whole group.
    pub group_meaning: f32,
    /// Similarity to the best hits, where that decided the position.
    pub likeness: f32,
}

/// A passage that may be a result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The number of the passage.
    pub passage: u32,
    pub features: ScoreFeatures,
    /// Which of the first search terms it contains, one bit per term.
    pub matched: u64,
}

/// A search term with its postings and weight.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchTerm {
    pub postings: Vec<Posting>,
    /// Derived from its count in the question.
    pub weight: f32,
}

fn idf(all: f32, with: f32) -> f32 {
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

fn bm25(count: f32, length: f32, average: f32) -> f32 {
    count * (BM25_K1 + 1.0)
        / (count + BM25_K1 * (1.0 - BM25_B + BM25_B * length / average.max(1.0)))
}

impl SearchTerm {
    /// A term that occurs in several forms; merges their postings.
    pub fn from_forms(mut forms: Vec<Vec<Posting>>, asked: u32, corpus: &Corpus) -> Self {
        let mut postings = forms.pop().unwrap_or_default();
        for other in forms {
            postings.extend(other);
        }
        postings.retain(|posting| corpus.row(posting.passage).kind.is_some());
        if !postings.is_sorted_by_key(|posting| posting.passage) {
            postings.sort_by_key(|posting| posting.passage);
        }
        postings.dedup_by(|later, first| {
            let same = later.passage == first.passage;
            first.count += if same { later.count } else { 0 };
            same
        });
        Self { postings, weight: 1.0 + (asked.max(1) as f32).ln() }
    }
}

/// The counts of each search term in a few passages.
struct TermCounts<'a> {
    /// Ascending.
    passages: &'a [u32],
    /// One row per passage, one column per term.
    counts: Vec<f32>,
    words: usize,
}

impl<'a> TermCounts<'a> {
    /// Walks the postings of each term once; looking up every passage in each list takes several
    /// times as long.
    fn collect(passages: &'a [u32], sought: &[SearchTerm]) -> Self {
        let words = sought.len();
        let mut counts = vec![0.0; passages.len() * words];
        for (word, one) in sought.iter().enumerate() {
            let mut postings = one.postings.as_slice();
            for (at, &passage) in passages.iter().enumerate() {
                // The next posting is mostly near; otherwise gallop (exponential search).
                let mut step = 1;
                while postings.get(step).is_some_and(|posting| posting.passage < passage) {
                    step *= 2;
                }
                let within = &postings[..postings.len().min(step + 1)];
                postings = &postings[within.partition_point(|posting| posting.passage < passage)..];
                if let Some(posting) = postings.first().filter(|posting| posting.passage == passage)
                {
                    counts[at * words + word] = posting.count as f32;
                }
            }
        }
        Self { passages, counts, words }
    }

    fn row(&self, passage: u32) -> &[f32] {
        self.passages
            .binary_search(&passage)
            .map_or(&[], |at| &self.counts[at * self.words..][..self.words])
    }
}

/// The candidates for a question.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CandidatePool {
    /// Unordered.
    pub candidates: Vec<Candidate>,
}

/// When a question is asked, and the times it names, in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QuestionTimes {
    /// When it is asked.
    pub now: i64,
    /// The times it names.
    pub named: Vec<Range<i64>>,
}

/// Finds the candidates for a question. `admits` filters passages; `extra` passages are candidates
/// whatever their words.
pub fn find_candidates(
    corpus: &Corpus,
    question: &Question,
    sought: &[SearchTerm],
    admits: &dyn Fn(u32, &PassageRow) -> bool,
    times: &QuestionTimes,
    extra: &[u32],
) -> CandidatePool {
    let all = corpus.passages as f32;
    let average = corpus.length as f32 / all.max(1.0);
    let group_average = corpus.length as f32 / (corpus.groups.max(1)) as f32;
    let mut own = vec![0.0_f32; corpus.passage_end() as usize];
    let mut grouped = vec![0.0_f32; corpus.group_end()];
    let mut counts = vec![0_u32; corpus.group_end()];
    let mut touched: Vec<u32> = Vec::new();
    let mut weights = Vec::with_capacity(sought.len());
    for one in sought {
        let weight = one.weight * idf(all, one.postings.len() as f32);
        weights.push(weight);
        touched.clear();
        for posting in &one.postings {
            let row = corpus.row(posting.passage);
            own[posting.passage as usize] +=
                weight * bm25(posting.count as f32, f32::from(row.length), average);
            if row.group != NO_GROUP {
                let count = &mut counts[row.group as usize];
                if *count == 0 {
                    touched.push(row.group);
                }
                *count += posting.count;
            }
        }
        let weight = one.weight * idf(corpus.groups as f32, touched.len() as f32);
        for &group in &touched {
            let count = std::mem::take(&mut counts[group as usize]);
            grouped[group as usize] +=
                weight * bm25(count as f32, corpus.group_length(group) as f32, group_average);
        }
    }
    let mut found: Vec<u32> = Vec::new();
    let (mut best_own, mut best_group) = (f32::EPSILON, f32::EPSILON);
    for (number, score) in (0..).zip(&own) {
        if *score > 0.0 {
            let row = corpus.row(number);
            if admits(number, &row) {
                best_own = best_own.max(*score);
                best_group = best_group.max(grouped[row.group as usize]);
                found.push(number);
            }
        }
    }
    let rough = |number: u32| {
        let row = corpus.row(number);
        let voice =
            if question.voices.contains(&row.voice) && row.voice != NO_VOICE { 0.3 } else { 0.0 };
        own[number as usize] / best_own + 0.7 * grouped[row.group as usize] / best_group + voice
    };
    let mut rated: Vec<(f32, u32)> =
        found.into_iter().map(|number| (rough(number), number)).collect();
    if rated.len() > MAX_FIRST_PASS {
        rated.select_nth_unstable_by(MAX_FIRST_PASS, |a, b| b.0.total_cmp(&a.0));
        rated.truncate(MAX_FIRST_PASS);
    }
    let mut looked_at: Vec<u32> =
        rated.into_iter().map(|(_, number)| number).chain(extra.iter().copied()).collect();
    let beside = |number: u32| {
        (-WINDOW_RADIUS..=WINDOW_RADIUS).filter_map(move |steps| {
            if steps == 0 { Some(number) } else { corpus.neighbor_in_group(number, steps) }
        })
    };
    looked_at = looked_at.into_iter().flat_map(beside).collect();
    looked_at.sort_unstable();
    looked_at.dedup();
    looked_at.retain(|&number| admits(number, &corpus.row(number)));

    let mut around: Vec<u32> = looked_at.iter().flat_map(|&number| beside(number)).collect();
    around.sort_unstable();
    around.dedup();
    let counts = TermCounts::collect(&around, sought);
    let window_average = average * (2 * WINDOW_RADIUS + 1) as f32;
    let mut best_window = f32::EPSILON;
    let mut best_answer = f32::EPSILON;
    let mut pool = CandidatePool::default();
    for &number in &looked_at {
        let row = corpus.row(number);
        let near: Vec<&[f32]> = beside(number).map(|near| counts.row(near)).collect();
        let own_counts = counts.row(number);
        let length: f32 = beside(number).map(|near| f32::from(corpus.row(near).length)).sum();
        let mut features = ScoreFeatures {
            words: own[number as usize],
            group: grouped[row.group as usize],
            ..ScoreFeatures::default()
        };
        let mut matched = 0_u64;
        for (at, weight) in weights.iter().enumerate() {
            if at < 64 && own_counts[at] > 0.0 {
                matched |= 1 << at;
            }
            let count: f32 = near.iter().map(|near| near[at]).sum();
            features.window += weight * bm25(count, length, window_average);
        }
        if let Some(before) =
            corpus.neighbor_in_group(number, -1).filter(|&before| corpus.row(before).asks)
        {
            features.answers = own[before as usize];
        }
        best_window = best_window.max(features.window);
        best_answer = best_answer.max(features.answers);
        pool.candidates.push(Candidate { passage: number, features, matched });
    }
    for candidate in &mut pool.candidates {
        let row = corpus.row(candidate.passage);
        let features = &mut candidate.features;
        features.words /= best_own;
        features.group /= best_group;
        features.window /= best_window;
        features.answers /= best_answer;
        set_context_features(features, &row, question, times);
    }
    pool
}

/// Sets the features that depend on the speaker and the time.
fn set_context_features(
    features: &mut ScoreFeatures,
    row: &PassageRow,
    question: &Question,
    times: &QuestionTimes,
) {
    let flag = |is: bool| f32::from(u8::from(is));
    features.voice = flag(row.voice != NO_VOICE && question.voices.contains(&row.voice));
    // Where speakers have names, roles say nothing.
    let is = |role: Role| row.role == Some(role) && row.voice == NO_VOICE;
    features.own = flag(is(Role::User) && question.for_fact && !question.of_assistant);
    features.assistant = flag(is(Role::Assistant) && question.of_assistant);
    features.fullness = (f32::from(row.length).ln_1p() / 4.0).min(1.2);
    if row.at != i64::MIN {
        let age = (times.now.saturating_sub(row.at).max(0)) as f32 / DAY_SECONDS;
        features.recent = 0.5_f32.powf(age / HALF_LIFE_DAYS);
        features.time = flag(times.named.iter().any(|time| time.contains(&row.at)));
    }
}

/// The weight of each feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScoreWeights(ScoreFeatures);

/// The weights without embeddings.
pub const KEYWORD_WEIGHTS: ScoreWeights = ScoreWeights(ScoreFeatures {
    words: 0.7,
    window: 1.0,
    group: 0.5,
    answers: 0.3,
    fullness: 0.7,
    voice: 1.0,
    own: 1.2,
    assistant: 0.6,
    time: 1.4,
    recent: 1.0,
    meaning: 0.0,
    group_meaning: 0.0,
    likeness: 0.0,
});

/// The weights with embeddings: the other context features count half as much again.
pub const SEMANTIC_WEIGHTS: ScoreWeights = ScoreWeights(ScoreFeatures {
    fullness: 1.05,
    voice: 1.5,
    own: 1.8,
    assistant: 0.9,
    time: 2.1,
    recent: 1.5,
    meaning: 2.5,
    group_meaning: 0.7,
    likeness: 2.0,
    ..KEYWORD_WEIGHTS.0
});

/// One feature's contribution to a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScorePart {
    pub name: &'static str,
    pub value: f32,
    /// The value times its weight.
    pub adds: f32,
}

impl ScoreFeatures {
    fn named_values(&self) -> [(&'static str, f32); 13] {
        [
            ("keywords", self.words),
            ("keywords nearby", self.window),
            ("keywords in the session", self.group),
            ("follows a matching question", self.answers),
            ("length", self.fullness),
            ("speaker is the person asked about", self.voice),
            ("speaker is the user", self.own),
            ("speaker is the assistant", self.assistant),
            ("in the time asked about", self.time),
            ("recency", self.recent),
            ("semantic similarity", self.meaning),
            ("semantic similarity of the session", self.group_meaning),
            ("similarity to the top hits", self.likeness),
        ]
    }

    /// Explains a score: every feature that contributes, the greatest contribution first.
    pub fn explain(&self, weights: &ScoreWeights) -> Vec<ScorePart> {
        let sides = self.named_values().into_iter().zip(weights.0.named_values());
        let mut sides: Vec<ScorePart> = sides
            .map(|((name, value), (_, weight))| ScorePart { name, value, adds: value * weight })
            .filter(|side| side.adds.abs() >= 0.005)
            .collect();
        sides.sort_by(|a, b| b.adds.total_cmp(&a.adds));
        sides
    }

    /// The weighted sum of the features.
    pub fn score(&self, weights: &ScoreWeights) -> f32 {
        self.named_values()
            .iter()
            .zip(weights.0.named_values())
            .map(|((_, value), (_, weight))| value * weight)
            .sum()
    }
}

impl CandidatePool {
    /// Sets the semantic features from the similarities of the candidates and of their groups.
    /// Both maps hold cosine similarities to the question.
    pub fn set_semantic_features(
        &mut self,
        corpus: &Corpus,
        nearness: &HashMap<u32, f32>,
        groups: &HashMap<u32, f32>,
    ) {
        // A passage without a vector counts as the least similar one.
        let known = self.candidates.iter().filter_map(|candidate| nearness.get(&candidate.passage));
        let least = known.copied().fold(1.0, f32::min).max(0.0);
        let own = |candidate: &Candidate| {
            nearness.get(&candidate.passage).copied().unwrap_or(least).max(0.0)
        };
        let most = self.candidates.iter().map(own).fold(f32::EPSILON, f32::max);
        let most_of_groups = groups.values().copied().fold(f32::EPSILON, f32::max);
        for candidate in &mut self.candidates {
            let meaning = own(candidate) / most;
            let group = corpus.row(candidate.passage).group;
            candidate.features.meaning = meaning;
            candidate.features.group_meaning = if group == NO_GROUP {
                meaning
            } else {
                groups.get(&group).copied().unwrap_or(0.0).max(0.0) / most_of_groups
            };
        }
    }

    /// The candidates by score, best first; ties go to the newer passage.
    pub fn into_ranked(mut self, corpus: &Corpus, weights: &ScoreWeights) -> Vec<(f32, Candidate)> {
        let mut ranked: Vec<(f32, Candidate)> = self
            .candidates
            .drain(..)
            .map(|candidate| (candidate.features.score(weights), candidate))
            .collect();
        ranked.sort_by(|a, b| {
            let at = |candidate: &Candidate| corpus.row(candidate.passage).at;
            b.0.total_cmp(&a.0)
                .then_with(|| at(&b.1).cmp(&at(&a.1)))
                .then_with(|| b.1.passage.cmp(&a.1.passage))
        });
        ranked
    }
}

/// The similarity of the question to the groups of these passages: a group's vector is the sum of
/// the sign vectors of all its passages.
pub fn group_similarity(
    passages: &[u32],
    corpus: &Corpus,
    to: &PackedVector,
    signs: &dyn Fn(u32) -> Option<SignVector>,
) -> HashMap<u32, f32> {
    let to = to.unpack();
    let mut near = HashMap::new();
    for &passage in passages {
        let group = corpus.row(passage).group;
        if group == NO_GROUP || near.contains_key(&group) {
            continue;
        }
        let sum = SignVector::sum_directions(
            corpus.group_passages(passage).iter().filter_map(|&passage| signs(passage)),
        );
        let dot: f32 = sum.iter().zip(to).map(|(sum, to)| *sum as f32 * to).sum();
        let length = sum.iter().map(|sum| (sum * sum) as f32).sum::<f32>().sqrt();
        if length > 0.0 {
            near.insert(group, dot / length);
        }
    }
    near
}

/// At most `most` passages with the smallest distances, nearest first. `distances` holds the
/// Hamming distance of every passage's sign vector, by number; a passage without a vector has a
/// distance greater than any.
pub fn nearest(
    distances: &[u32],
    corpus: &Corpus,
    admits: &dyn Fn(u32, &PassageRow) -> bool,
    most: usize,
) -> Vec<u32> {
    // There are few possible distances, so counting them gives the cut-off without sorting.
    let mut counts = [0_usize; DIMENSIONS + 1];
    let mut near: Vec<(u32, u32)> = Vec::new();
    let mut limit = DIMENSIONS as u32 / 2;
    for (number, &distance) in (0..).zip(distances) {
        if distance >= limit || !admits(number, &corpus.row(number)) {
            continue;
        }
        near.push((distance, number));
        counts[distance as usize] += 1;
        if near.len() >= 4 * most {
            let mut sum = 0;
            limit = counts
                .iter()
                .position(|count| {
                    sum += count;
                    sum > most
                })
                .unwrap_or(DIMENSIONS) as u32
                + 1;
            near.retain(|(distance, _)| *distance < limit);
            counts[limit as usize..].fill(0);
            if near.len() >= 4 * most {
                near.sort_unstable();
                near.truncate(most);
                counts.fill(0);
                near.iter().for_each(|(distance, _)| counts[*distance as usize] += 1);
            }
        }
    }
    near.sort_unstable();
    near.truncate(most);
    near.into_iter().map(|(_, number)| number).collect()
}

/// Sets each hit's similarity to the best few. An answer in other words than the question often
/// resembles the hits that were already found.
pub fn set_likeness(ranked: &mut [(f32, Candidate)], vectors: &HashMap<u32, PackedVector>) {
    let mut best = [0.0_f32; DIMENSIONS];
    for vector in ranked
        .iter()
        .take(LIKENESS_SEEDS)
        .filter_map(|(_, candidate)| vectors.get(&candidate.passage))
    {
        best.iter_mut().zip(vector.unpack()).for_each(|(best, x)| *best += x);
    }
    let best = pack_vector(&best);
    let like = |candidate: &Candidate| {
        vectors.get(&candidate.passage).map_or(0.0, |vector| dot_product(vector, &best).max(0.0))
    };
    let most = ranked.iter().map(|(_, candidate)| like(candidate)).fold(f32::EPSILON, f32::max);
    for (_, candidate) in ranked {
        candidate.features.likeness = like(candidate) / most;
    }
}

/// Puts the hits into the order in which they are shown, so that no long session crowds out others.
/// The first few are placed by score alone. Among the next few, hits of new groups come first. Then
/// the best hit of each group that is not shown yet follows. Hits of new groups are ordered by
/// score plus likeness; for a question that asks for a fact, likeness does not count for the last
/// of them.
pub fn diversify(
    ranked: Vec<(f32, Candidate)>,
    corpus: &Corpus,
    weights: &ScoreWeights,
    goes_on: bool,
) -> Vec<(f32, Candidate)> {
    let group = |(_, candidate): &(f32, Candidate)| match corpus.row(candidate.passage).group {
        // A passage without a group is a group of its own.
        NO_GROUP => (NO_GROUP, candidate.passage),
        group => (group, 0),
    };
    let mut standing: HashMap<(u32, u32), f32> = HashMap::new();
    for one in &ranked {
        let placed = one.0 + weights.0.likeness * one.1.features.likeness;
        let best = standing.entry(group(one)).or_insert(placed);
        *best = best.max(placed);
    }
    let mut shown: HashSet<(u32, u32)> = ranked.iter().take(TOP_SCORE_HITS).map(group).collect();
    let (mut early, mut middle, mut beside, mut late, mut rest) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (at, mut one) in ranked.into_iter().enumerate() {
        let is_new = at >= TOP_SCORE_HITS && shown.insert(group(&one));
        if !is_new || at >= TOP_HITS && !goes_on {
            // Likeness did not decide its position.
            one.1.features.likeness = 0.0;
        }
        match (at < TOP_SCORE_HITS, at < TOP_HITS, is_new) {
            (true, ..) => early.push(one),
            (_, true, true) => middle.push(one),
            (_, true, false) => beside.push(one),
            (_, false, true) => late.push(one),
            (_, false, false) => rest.push(one),
        }
    }
    let by_standing = |some: &mut Vec<(f32, Candidate)>| {
        let of = |one: &(f32, Candidate)| standing.get(&group(one)).copied().unwrap_or(0.0);
        some.sort_by(|a, b| of(b).total_cmp(&of(a)));
    };
    by_standing(&mut middle);
    if goes_on {
        by_standing(&mut late);
    }
    early.append(&mut middle);
    early.append(&mut beside);
    let after = late.split_off(late.len().min(DIVERSE_HITS.saturating_sub(early.len())));
    early.append(&mut late);
    // The others by score.
    rest.extend(after);
    rest.sort_by(|a, b| b.0.total_cmp(&a.0));
    early.append(&mut rest);
    early
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::passage::PassageKind;

    // Y9
    #[test]
    fn a_group_means_what_its_passages_mean_together() {
        let row = |group, at| PassageRow {
            at,
            group,
            kind: Some(PassageKind::Message),
            ..PassageRow::DELETED
        };
        let rows =
            [PassageRow::DELETED, row(1, 1), row(1, 2), row(2, 3), row(NO_GROUP, 4), row(3, 5)];
        let corpus =
            Corpus::from_bytes(&rows.iter().flat_map(PassageRow::to_bytes).collect::<Vec<u8>>());
        // The first half of all directions, every second one, and none.
        let halves: [f32; DIMENSIONS] =
            std::array::from_fn(|at| if at < DIMENSIONS / 2 { 0.05 } else { -0.05 });
        let others: [f32; DIMENSIONS] =
            std::array::from_fn(|at| if at % 2 == 0 { 0.05 } else { -0.05 });
        let signs = |passage: u32| match passage {
            1 | 4 => Some(SignVector::from_numbers(&halves)),
            2 | 3 => Some(SignVector::from_numbers(&others)),
            _ => None,
        };
        let near = group_similarity(&[2, 1, 3, 4, 5], &corpus, &pack_vector(&halves), &signs);
        let mut groups: Vec<u32> = near.keys().copied().collect();
        groups.sort_unstable();
        assert_eq!(
            groups,
            [1, 2],
            "what stands alone, and what has no vector, is no group that means something"
        );
        assert!((near[&1] - 0.707 * 0.98).abs() < 0.03 && near[&2].abs() < 0.01, "{near:?}");
    }

    // Y9
    #[test]
    fn what_is_like_the_best_brings_its_session_forward() {
        let row = |group, at| PassageRow {
            at,
            group,
            kind: Some(PassageKind::Message),
            ..PassageRow::DELETED
        };
        // Passages 1 to 12 by score: ten of the first session and of others, then one of each
        // session.
        let groups = [1, 1, 1, 1, 1, 1, 2, 3, 1, 1, 4, 5];
        let rows: Vec<PassageRow> = std::iter::once(PassageRow::DELETED)
            .chain(groups.iter().map(|&group| row(group, 1)))
            .collect();
        let corpus =
            Corpus::from_bytes(&rows.iter().flat_map(PassageRow::to_bytes).collect::<Vec<u8>>());
        let ranked: Vec<(f32, Candidate)> = (1..=12_u32)
            .map(|passage| {
                (
                    10.0 - 0.1 * passage as f32,
                    Candidate { passage, features: ScoreFeatures::default(), matched: 0 },
                )
            })
            .collect();
        let near: [f32; DIMENSIONS] = std::array::from_fn(|at| if at < 9 { 0.3 } else { 0.0 });
        let far: [f32; DIMENSIONS] = std::array::from_fn(|at| if at < 9 { 0.0 } else { 0.05 });
        let vectors: HashMap<u32, PackedVector> = (1..=12)
            .map(|passage| {
                (passage, pack_vector(if [7, 11].contains(&passage) { &far } else { &near }))
            })
            .collect();
        let order = |goes_on: bool| -> Vec<u32> {
            let mut ranked = ranked.clone();
            set_likeness(&mut ranked, &vectors);
            assert!(
                (ranked[0].1.features.likeness - 1.0).abs() < 0.01
                    && ranked[6].1.features.likeness < 0.01
            );
            diversify(ranked, &corpus, &SEMANTIC_WEIGHTS, goes_on)
                .into_iter()
                .map(|(_, candidate)| candidate.passage)
                .collect()
        };
        assert_eq!(order(false), [1, 2, 3, 4, 5, 8, 7, 6, 9, 10, 11, 12]);
        assert_eq!(order(true), [1, 2, 3, 4, 5, 8, 7, 6, 9, 10, 12, 11]);
        // Without vectors only other sessions move up.
        let plain: Vec<u32> = diversify(ranked.clone(), &corpus, &KEYWORD_WEIGHTS, true)
            .into_iter()
            .map(|(_, candidate)| candidate.passage)
            .collect();
        assert_eq!(plain, [1, 2, 3, 4, 5, 7, 8, 6, 9, 10, 11, 12]);
    }

    #[test]
    fn the_nearest_are_taken() {
        let row =
            PassageRow { at: 1, group: 1, kind: Some(PassageKind::Message), ..PassageRow::DELETED };
        let distances: Vec<u32> =
            (0..2_000).map(|at| if at == 0 { u32::MAX } else { (at * 7919) % 300 }).collect();
        let rows: Vec<PassageRow> = distances.iter().map(|_| row).collect();
        let corpus =
            Corpus::from_bytes(&rows.iter().flat_map(PassageRow::to_bytes).collect::<Vec<u8>>());
        let admits = |number: u32, _: &PassageRow| !number.is_multiple_of(3);
        let mut right: Vec<(u32, u32)> = (0..)
            .zip(&distances)
            .filter(|(number, _)| admits(*number, &row))
            .map(|(number, &far)| (far, number))
            .collect();
        right.sort_unstable();
        for most in [1, 10, 100, 400] {
            let right: Vec<u32> = right.iter().take(most).map(|(_, number)| *number).collect();
            assert_eq!(nearest(&distances, &corpus, &admits, most), right, "{most}");
        }
    }
}
