//! Validation: whether a proposal may become an event.
//!
//! The proposer is untrusted. A proposal is accepted only if its quote is in the source, the source
//! supports it, it is not text that icecore injected, and it gives no instructions without the
//! owner's authority. Low-trust sources get low priority. Every change and every rejection is
//! reported.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeSet;

use icecore_text::lexicon::WordList;
use icecore_text::normalize::collapse_spaces;
use icecore_text::normalize::compose;
use jiff::civil::Date;
use unicode_segmentation::UnicodeSegmentation;

use super::equivalence::{
    Equivalence, KnownStatements, SimilarityFn, StatementIndex, StatementProfile, mentions_change,
};
use super::sentences::{enclosing_sentence, is_question};
use super::{
    MAX_CONTENT_BYTES, MAX_FIELD_BYTES, MAX_TAGS, NormalizedText, Proposal, SourcePassage,
    due_dates, markers,
};
use crate::budget;
use crate::calendar::{Days, Moment};
use crate::capture_filter;
use crate::cascade::judge::{DraftCriteria, SourceIndex, find_invented_in};
use crate::event::{EntityKind, EventType, Origin, Priority};
use crate::id::EventId;
use crate::record::Trust;
use crate::sanitize;
use icecore_text::phrase::{has_listed_phrase, has_phrase, normalize_sentence, strip_phrase};

/// Maximum number of proposals validated at once; more is a flood, not a conversation.
pub const MAX_VALIDATED_PROPOSALS: usize = 5_000;
/// Maximum length of a quote that is searched for, in bytes: a statement is based on a few
/// sentences.
const MAX_SEARCHED_QUOTE_BYTES: usize = 4_000;
/// Minimum share of a statement's content words that its source must contain, in percent.
const MIN_SUPPORTED_PERCENT: usize = 60;
/// The tag of a rule that came from someone other than the owner.
pub const UNCONFIRMED_TAG: &str = "unconfirmed";

/// The result of validating a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalVerdict {
    /// Accepted, in this form, with the changes that were made and why.
    Keep(Proposal, Vec<String>),
    /// Rejected, with the reason.
    Refused(String),
    /// Already known as this event.
    Duplicate(EventId),
    /// Equal to an earlier proposal of the same batch, by its index.
    DuplicateInBatch(usize),
}

/// Validates proposals against their passages and against what is known. `now` separates future due
/// dates from past ones.
pub fn validate_proposals(
    proposals: Vec<Proposal>,
    pieces: &[SourcePassage<'_>],
    known: &KnownStatements,
    now: Moment,
) -> Vec<(Proposal, ProposalVerdict)> {
    validate_proposals_with(proposals, pieces, known, now, None)
}

/// Like [`validate_proposals`], with a semantic similarity for statements known in other words.
pub fn validate_proposals_with(
    proposals: Vec<Proposal>,
    pieces: &[SourcePassage<'_>],
    known: &KnownStatements,
    now: Moment,
    likeness: Option<SimilarityFn<'_>>,
) -> Vec<(Proposal, ProposalVerdict)> {
    let sources: Vec<ParsedPassage<'_>> = pieces.iter().map(ParsedPassage::new).collect();
    let mut batch = StatementIndex::new();
    let mut judged = Vec::with_capacity(proposals.len());
    for (at, proposal) in proposals.into_iter().enumerate() {
        let verdict = if at >= MAX_VALIDATED_PROPOSALS {
            ProposalVerdict::Refused(format!(
                "more than {MAX_VALIDATED_PROPOSALS} proposals at once"
            ))
        } else {
            match validate_one(&proposal, &sources, now) {
                Err(why) => ProposalVerdict::Refused(why),
                Ok((kept, changes, sentence)) => {
                    check_novelty(kept, changes, &sentence, &sources, known, &batch, likeness)
                }
            }
        };
        if let ProposalVerdict::Keep(kept, _) = &verdict {
            batch.add(at, kept.entity.as_deref().unwrap_or_default(), &kept.content);
        }
        judged.push((proposal, verdict));
    }
    judged
}

/// A passage with lazily computed views of it.
struct ParsedPassage<'a> {
    piece: &'a SourcePassage<'a>,
    /// Its text without injected blocks.
    text: Cow<'a, str>,
    folded: OnceCell<NormalizedText>,
    spoken: OnceCell<SourceIndex>,
    stems: OnceCell<BTreeSet<String>>,
    named: OnceCell<String>,
    days: OnceCell<BTreeSet<Date>>,
}

impl<'a> ParsedPassage<'a> {
    fn new(piece: &'a SourcePassage<'a>) -> Self {
        Self {
            piece,
            text: capture_filter::strip_blocks(piece.text).text,
            folded: OnceCell::new(),
            spoken: OnceCell::new(),
            stems: OnceCell::new(),
            named: OnceCell::new(),
            days: OnceCell::new(),
        }
    }

    fn normalized_text(&self) -> &NormalizedText {
        self.folded.get_or_init(|| NormalizedText::new(&self.text))
    }

    /// Its text, prefixed with the speaker's name if it is not the owner.
    fn text_with_speaker(&self) -> Cow<'_, str> {
        match self.piece.speaker {
            Some(speaker) => format!("{speaker}:\n{}", self.text).into(),
            None => Cow::Borrowed(self.text.as_ref()),
        }
    }

    fn speech_profile(&self) -> &SourceIndex {
        self.spoken.get_or_init(|| SourceIndex::from_text(&self.text_with_speaker()))
    }

    fn stems(&self) -> &BTreeSet<String> {
        // Line by line, because a profile covers only one statement.
        self.stems.get_or_init(|| {
            self.text_with_speaker()
                .lines()
                .flat_map(|line| StatementProfile::of_long_text(line).stems)
                .collect()
        })
    }

    fn days(&self) -> &BTreeSet<Date> {
        let said = self.piece.said_at.day();
        self.days.get_or_init(|| {
            due_dates::named_days(&self.text, said).into_iter().map(|named| named.day).collect()
        })
    }

    /// Whether a name occurs as whole words.
    fn contains_name(&self, name: &str) -> bool {
        let all = self
            .named
            .get_or_init(|| format!("_{}_", sanitize::entity_key(&self.text_with_speaker())));
        let key = sanitize::entity_key(name);
        !key.is_empty() && (all.contains(&format!("_{key}_")) || all.contains(&format!("_{key}s_")))
    }
}

/// Validates one proposal. Returns its final form, the changes, and the whole sentence it is based
/// on.
fn validate_one(
    proposal: &Proposal,
    sources: &[ParsedPassage<'_>],
    now: Moment,
) -> Result<(Proposal, Vec<String>, String), String> {
    let mut kept = proposal.clone();
    let mut changes = Vec::new();
    let sentence = locate_quote(&mut kept, sources, &mut changes)?;
    let source = sources.get(kept.passage).ok_or("it names no source")?;
    normalize_content(&mut kept, &mut changes);
    check_is_statement(&kept, &sentence)?;
    check_not_injected(&kept)?;
    check_no_instructions(&mut kept, source.piece.origin, &sentence, &mut changes)?;
    check_supported(&kept, source, &sentence)?;
    check_details(&mut kept, source, now, &mut changes);
    limit_type_and_priority(&mut kept, source.piece, &sentence, &mut changes);
    attribute_to_speaker(&mut kept, source.piece, &mut changes);
    Ok((kept, changes, sentence))
}

/// Finds the proposal's quote in its passage, or in the only other passage that contains it.
fn locate_quote(
    proposal: &mut Proposal,
    sources: &[ParsedPassage<'_>],
    changes: &mut Vec<String>,
) -> Result<String, String> {
    let wanted = NormalizedText::new(&proposal.quote);
    let wanted = wanted.text.trim();
    let within = |source: &ParsedPassage<'_>| {
        source
            .normalized_text()
            .find_normalized(wanted)
            .map(|span| enclosing_sentence(&source.text, span).to_owned())
    };
    if wanted.chars().filter(|c| c.is_alphanumeric()).count() < 2 {
        return Err("it has no quote".into());
    }
    if wanted.len() > MAX_SEARCHED_QUOTE_BYTES {
        return Err(format!("its quote is longer than {MAX_SEARCHED_QUOTE_BYTES} bytes"));
    }
    if let Some(sentence) = sources.get(proposal.passage).and_then(within) {
        return Ok(sentence);
    }
    let mut others =
        sources.iter().enumerate().filter_map(|(at, source)| Some((at, within(source)?)));
    match (others.next(), others.next()) {
        (Some((at, sentence)), None) => {
            changes.push(format!(
                "its quote is in source {}, not in {}",
                at + 1,
                proposal.passage.saturating_add(1)
            ));
            proposal.passage = at;
            Ok(sentence)
        }
        _ => Err("its quote is not in the source".into()),
    }
}

/// Normalizes the content to one sanitized paragraph of limited length.
fn normalize_content(proposal: &mut Proposal, changes: &mut Vec<String>) {
    let cleaned = sanitize::clean(&proposal.content);
    let content = collapse_spaces(&cleaned.text);
    if cleaned.removed > 0 {
        changes.push(format!("{} control characters removed", cleaned.removed));
    }
    if content.len() > MAX_CONTENT_BYTES {
        changes.push(format!("shortened from {} bytes to {MAX_CONTENT_BYTES}", content.len()));
    }
    proposal.content = budget::truncate_at_word(&content, MAX_CONTENT_BYTES);
    let tags = proposal.tags.len();
    let mut own: Vec<String> =
        proposal.tags.iter().map(|tag| sanitize::one_line(tag.trim()).to_lowercase()).collect();
    own.retain(|tag| !tag.is_empty() && tag.len() <= MAX_FIELD_BYTES);
    own.sort();
    own.dedup();
    own.truncate(MAX_TAGS);
    if own.len() < tags {
        changes.push(format!("{} tags dropped: duplicate, too long or too many", tags - own.len()));
    }
    proposal.tags = own;
    if !proposal.supersedes.is_empty() {
        changes.push("ignored what it replaces: a proposal may not decide that".into());
        proposal.supersedes.clear();
    }
}

fn check_is_statement(proposal: &Proposal, sentence: &str) -> Result<(), String> {
    let words = proposal.content.unicode_words().count();
    let pair = proposal
        .content
        .split_once(':')
        .is_some_and(|(key, value)| !key.trim().is_empty() && !value.trim().is_empty());
    if words == 0 {
        return Err("it has no words".into());
    }
    if words < 3 && !(pair && words >= 2) {
        return Err("it is too short to be understood later".into());
    }
    if is_question(&proposal.content) {
        return Err("it is a question".into());
    }
    let flat_content = normalize_sentence(&proposal.content);
    if strip_phrase(&flat_content, markers::GREETINGS)
        .is_some_and(|rest| rest.split_whitespace().count() <= 3)
    {
        return Err("it is a greeting".into());
    }
    // A request to be reminded may be a question; otherwise a question states nothing.
    let requested = matches!(proposal.kind, EventType::Commitment | EventType::Preference);
    if is_question(sentence) && !requested {
        return Err("its source is a question".into());
    }
    let flat_sentence = normalize_sentence(sentence);
    let conditional =
        has_phrase(
            &flat_sentence,
            &[
                "if we decided",
                "if we decide",
                "what if",
                "should we",
                "maybe",
                "perhaps",
                "might",
                "vielleicht",
            ],
        ) || strip_phrase(&flat_sentence, &["if", "even if", "suppose", "wenn", "falls"]).is_some();
    if proposal.kind == EventType::Decision
        && conditional
        && !has_phrase(
            &flat_content,
            &["if", "maybe", "perhaps", "might", "wenn", "falls", "vielleicht"],
        )
    {
        return Err("its source is hypothetical".into());
    }
    Ok(())
}

/// Rejects injected text that comes back in transcripts; it is not new.
fn check_not_injected(proposal: &Proposal) -> Result<(), String> {
    let ours = |text: &str| {
        text.match_indices("EVT-").any(|(at, _)| {
            let id = text[at + 4..]
                .bytes()
                .take_while(|byte| byte.is_ascii_digit() || *byte == b'-')
                .count();
            let end = text[at + 4 + id..].trim_end_matches(['.', ' ']);
            let marked = text[..at].ends_with(['[', '(']) && end.starts_with([']', ')']);
            id >= 12 && marked && (text[..at].ends_with('[') || end.len() == 1)
        })
    };
    let marked = [&proposal.content, &proposal.quote]
        .into_iter()
        .any(|text| ours(text) || capture_filter::strip_blocks(text).blocks > 0);
    if marked { Err("it is text that icecore injected".into()) } else { Ok(()) }
}

/// Only the owner may tell an assistant how to behave.
fn check_no_instructions(
    proposal: &mut Proposal,
    origin: Origin,
    sentence: &str,
    changes: &mut Vec<String>,
) -> Result<(), String> {
    let orders =
        [proposal.content.as_str(), proposal.quote.as_str(), sentence].into_iter().any(|text| {
            // Quotation marks do not make an instruction harmless here.
            let bare: String = text
                .chars()
                .filter(|c| {
                    !matches!(
                        c,
                        '"' | '“' | '”' | '„' | '«' | '»' | '`' | '*' | '_' | '\u{200b}'
                            ..='\u{200f}'
                    )
                })
                .collect();
            let folded: String = compose(&bare).collect();
            let words = normalize_sentence(&folded);
            has_phrase(&words, markers::INSTRUCTION_PHRASES)
                || (Trust::from_origin(origin) == Trust::Low
                    && has_phrase(&words, markers::PERSUASION_PHRASES))
        });
    if !orders {
        return Ok(());
    }
    match origin {
        Origin::Tool | Origin::Import | Origin::Assistant => {
            Err("it tells the assistant how to behave, but is not from the owner".into())
        }
        Origin::User | Origin::File => {
            if proposal.kind == EventType::Fact
                && has_phrase(
                    &normalize_sentence(&proposal.content),
                    &["you must", "from now on", "you should always", "you should never"],
                )
            {
                changes
                    .push("changed to a preference: it tells the assistant how to behave".into());
                proposal.kind = EventType::Preference;
            }
            Ok(())
        }
    }
}

/// Words a summarizer uses to report; they do not occur in the source itself.
#[rustfmt::skip]
const REPORTING_WORDS: &[&str] = &[
    "want", "wants", "decide", "prefer", "lik", "ask", "plan", "stat", "said", "mention", "request", "own", "person", "assistant",
    "client", "team", "project", "call", "rule", "hous",
];

/// Checks that the source supports the proposal.
fn check_supported(
    proposal: &Proposal,
    source: &ParsedPassage<'_>,
    sentence: &str,
) -> Result<(), String> {
    let said = source.piece.said_at.day();
    let day = Days { first: said, last: said };
    let case = DraftCriteria {
        days: day,
        bytes: usize::MAX,
        tokens: usize::MAX,
        required: &[],
        sources: "",
        count: 0,
    };
    let mut made_up = find_invented_in(&case, source.speech_profile(), &proposal.content);
    // The proposal may write out a date that the source gives in other words.
    made_up.retain(|word| !word.parse::<Date>().is_ok_and(|day| source.days().contains(&day)));
    made_up.extend(unsupported_leading_name(&proposal.content, source));
    if !made_up.is_empty() {
        made_up.truncate(6);
        return Err(format!("its source does not contain: {}", made_up.join(", ")));
    }
    let profile = StatementProfile::new(&proposal.content);
    let telling: Vec<&String> =
        profile.stems.iter().filter(|stem| !REPORTING_WORDS.contains(&stem.as_str())).collect();
    let there = telling.iter().filter(|stem| source.stems().contains(**stem)).count();
    if there * 100 < telling.len() * MIN_SUPPORTED_PERCENT {
        return Err(format!(
            "only {there} of its {} content words are in the source",
            telling.len()
        ));
    }
    if has_negation(&proposal.content) != has_negation_about(sentence, &profile) {
        return Err("it contradicts its source".into());
    }
    Ok(())
}

/// A name at the start of the content that the source lacks; a capital letter alone is not evidence
/// there.
fn unsupported_leading_name(content: &str, source: &ParsedPassage<'_>) -> Option<String> {
    let mut words = content.split_whitespace();
    let first = words.next()?.trim_matches(|c: char| !c.is_alphanumeric());
    let next = words.next()?.trim_matches(|c: char| !c.is_alphanumeric());
    let bare = first.trim_end_matches("'s").trim_end_matches("’s");
    let capital = bare.starts_with(char::is_uppercase) && bare.chars().count() > 1;
    const ACTS: &[&str] =
        &["is", "was", "has", "will", "must", "can", "ist", "hat", "wird", "and", "or"];
    #[rustfmt::skip]
    const NON_NAMES: &[&str] =
&[
        "the", "this", "that", "user", "they", "everyone", "he", "she", "it", "client", "assistant", "project", "team",
    ];
    // "Decision: ..." is a label.
    if content.split_whitespace().next().is_some_and(|word| word.ends_with(':')) {
        return None;
    }
    let acts = ACTS.contains(&next)
        || (next.ends_with('s') && next.len() > 3)
        || next.ends_with("ed")
        || next.starts_with(char::is_uppercase);
    let lower = bare.to_lowercase();
    let owner = bare.len() < first.len();
    let known = source.speech_profile().has_word(bare)
        || StatementProfile::new(&lower).stems.iter().all(|stem| source.stems().contains(stem));
    (capital && (acts || owner) && !known && !NON_NAMES.contains(&lower.as_str()))
        .then(|| first.to_owned())
}

/// Whether a text negates something; idioms do not count.
fn has_negation(text: &str) -> bool {
    let mut flat = normalize_sentence(text);
    for harmless in [
        " no more than ",
        " no later than ",
        " not only ",
        " do not forget ",
        " not just ",
        " no problem ",
        " no doubt ",
        " no longer than ",
    ] {
        flat = flat.replace(harmless, " ");
    }
    StatementProfile::new(&flat).is_negated()
}

/// Whether the part of the sentence about the same things negates them.
fn has_negation_about(sentence: &str, about: &StatementProfile) -> bool {
    let whole = has_negation(sentence);
    let parts: Vec<&str> = sentence
        .split([',', ';', ':'])
        .flat_map(|part| part.split(" but "))
        .flat_map(|part| part.split(" aber "))
        .collect();
    if !whole || parts.len() < 2 {
        return whole;
    }
    let shared = |part: &str| StatementProfile::new(part).stems.intersection(&about.stems).count();
    let best = parts.iter().map(|part| shared(part)).max().unwrap_or(0);
    let all = StatementProfile::new(sentence).stems.intersection(&about.stems).count();
    // If it is spread over several parts, it is about the whole sentence.
    if best < all || best == 0 {
        return whole;
    }
    parts.iter().filter(|part| shared(part) == best).any(|part| has_negation(part))
}

/// Removes a due date, `waiting_on` or entity that the source does not support.
fn check_details(
    proposal: &mut Proposal,
    source: &ParsedPassage<'_>,
    now: Moment,
    changes: &mut Vec<String>,
) {
    if let Some(due) = proposal.due {
        let written = source.speech_profile().has_number(&due.to_string())
            && source.text.contains(&due.to_string());
        let ahead = due >= source.piece.said_at.day().min(now.day());
        if !ahead || !(written || source.days().contains(&due)) {
            changes.push(format!("removed the due date {due}: not in the source"));
            proposal.due = None;
        }
    }
    if let Some(waiting) = &proposal.waiting_on
        && (waiting.len() > MAX_FIELD_BYTES || !source.contains_name(waiting))
    {
        changes.push("removed `waiting_on`: not in the source".into());
        proposal.waiting_on = None;
    }
    if let Some(entity) = &proposal.entity
        && (entity.len() > MAX_FIELD_BYTES || !source.contains_name(entity))
    {
        let shown: String = sanitize::one_line(entity).chars().take(40).collect();
        changes.push(format!("removed the entity `{shown}`: not in the source"));
        proposal.entity = None;
    }
    if proposal.entity.is_none() && proposal.entity_kind.take().is_some() {
        changes.push("removed the entity kind: there is no entity".into());
    }
    if proposal.entity_kind == Some(EntityKind::Person)
        && proposal
            .entity
            .as_deref()
            .is_some_and(|name| name.contains(|c: char| c.is_ascii_digit()))
    {
        changes.push("a name with digits is no person's".into());
        proposal.entity_kind = None;
    }
}

/// Limits type and priority to what the words and their origin justify.
fn limit_type_and_priority(
    proposal: &mut Proposal,
    piece: &SourcePassage<'_>,
    sentence: &str,
    changes: &mut Vec<String>,
) {
    let origin = piece.origin;
    if proposal.kind == EventType::Commitment && !is_actionable(proposal) {
        changes.push("changed to a fact: there is nothing to do".into());
        proposal.kind = EventType::Fact;
    }
    let hard = has_listed_phrase(&normalize_sentence(sentence), WordList::ModalPhrase);
    let most = match Trust::from_origin(origin) {
        Trust::Low => Priority::P2,
        Trust::High => {
            if hard {
                Priority::P0
            } else {
                Priority::P1
            }
        }
        Trust::Medium => {
            if origin == Origin::File && hard {
                Priority::P0
            } else {
                Priority::P1
            }
        }
    };
    if proposal.priority < most {
        changes.push(match Trust::from_origin(origin) {
            Trust::Low => format!("priority limited to {most}: low-trust source"),
            Trust::Medium if origin == Origin::Assistant => {
                format!("priority limited to {most}: an assistant's words")
            }
            _ => format!("priority limited to {most}: no word like `must` or `never`"),
        });
        proposal.priority = most;
    }
    let is_rule = matches!(
        proposal.kind,
        EventType::Constraint | EventType::Preference | EventType::Procedure
    );
    // What another person promises is not the owner's commitment.
    let is_theirs = piece.speaker.is_some() && proposal.kind == EventType::Commitment;
    if Trust::from_origin(origin) == Trust::Low && (is_rule || is_theirs) {
        changes.push(format!(
            "a {} from a low-trust source becomes a fact to be confirmed",
            proposal.kind
        ));
        proposal.kind = EventType::Fact;
        proposal.tags.retain(|tag| tag != UNCONFIRMED_TAG);
        proposal.tags.truncate(MAX_TAGS - 1);
        proposal.tags.push(UNCONFIRMED_TAG.into());
        proposal.tags.sort();
    }
    if proposal.kind != EventType::Commitment
        && (proposal.due.take().is_some() | proposal.waiting_on.take().is_some())
    {
        changes.push("removed the due date and `waiting_on`: only commitments have them".into());
    }
}

/// Attributes another person's words to that person, even if they are confirmed later.
fn attribute_to_speaker(
    proposal: &mut Proposal,
    piece: &SourcePassage<'_>,
    changes: &mut Vec<String>,
) {
    let Some(speaker) = piece.speaker else { return };
    if !proposal.content.to_lowercase().starts_with(&format!("{} ", speaker.to_lowercase())) {
        changes
            .push(format!("attributed to {}, who is not the owner", sanitize::one_line(speaker)));
        proposal.content = budget::truncate_at_word(
            &format!("{speaker} said: {}", proposal.content),
            MAX_CONTENT_BYTES,
        );
    }
}

/// Whether it is something to do.
fn is_actionable(proposal: &Proposal) -> bool {
    let words = normalize_sentence(&proposal.content);
    let stems = StatementProfile::new(&proposal.content).stems;
    #[rustfmt::skip]
    const OWED: &[&str] = &[
        "to", "will", "must", "need", "needs", "promise", "promised", "owe", "owes", "due", "deadline", "todo", "remind", "waiting",
        "follow up", "werde", "werden", "muss", "müssen", "bis", "soll",
    ];
    proposal.due.is_some()
        || has_phrase(&words, OWED)
        || markers::ACTION_VERBS
            .iter()
            .any(|verb| has_phrase(&words, &[verb]) || stems.contains(*verb))
        || words
            .split_whitespace()
            .next_back()
            .is_some_and(|last| last.ends_with("en") && last.chars().count() > 4)
}

/// Checks whether the proposal is new, and which event it replaces.
fn check_novelty(
    mut proposal: Proposal,
    mut changes: Vec<String>,
    sentence: &str,
    sources: &[ParsedPassage<'_>],
    known: &KnownStatements,
    batch: &StatementIndex<usize>,
    likeness: Option<SimilarityFn<'_>>,
) -> ProposalVerdict {
    let entity = proposal.entity.clone().unwrap_or_default();
    if let Some((earlier, Equivalence::Same)) = batch.find(&proposal.content, &entity, likeness) {
        return ProposalVerdict::DuplicateInBatch(earlier);
    }
    match known.find_with(&proposal.content, &entity, likeness) {
        Some((id, Equivalence::Same)) => return ProposalVerdict::Duplicate(id),
        Some((id, Equivalence::Update)) => {
            let origin = sources.get(proposal.passage).map(|source| source.piece.origin);
            let trusted = matches!(origin, Some(Origin::User | Origin::File));
            // Otherwise both stay, and the conflict is shown.
            if trusted && mentions_change(&normalize_sentence(sentence)) {
                changes.push(format!("its quote says that {id} has changed"));
                proposal.supersedes = vec![id];
            }
        }
        _ => {}
    }
    ProposalVerdict::Keep(proposal, changes)
}

#[cfg(test)]
mod tests;
