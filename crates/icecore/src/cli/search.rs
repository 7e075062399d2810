//! `search`: one query, or a file of queries.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use icecore_domain::calendar::Moment;
use icecore_domain::rank::passage::{Passage, PassageKind};
use icecore_domain::rank::terms::{self, Analyzer};
use icecore_domain::sanitize;
use icecore_engine::{SearchHit, SearchRequest, SearchResults, Searcher};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::output::{BOLD, CYAN, DIM, Output, YELLOW, progress_updater};
use super::parse;
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};
use crate::json_output;

const MAX_HITS: usize = 1_000;
/// At most this many unknown query words are listed.
const MAX_SHOWN_WORDS: usize = 8;
/// At most this many characters of a passage are printed.
const MAX_SHOWN_CHARS: usize = 400;

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// A question or a few words; "in quotes" for an exact phrase
    #[arg(value_name = "QUERY", required_unless_present = "queries")]
    query: Vec<String>,
    /// Only from this time: yesterday, last month, 2026-W07, feb 2026 …
    #[arg(long, value_name = "WHEN")]
    when: Option<String>,
    /// Only what is older than this day or moment
    #[arg(long, value_name = "WHEN")]
    before: Option<String>,
    /// Only this kind: message, state, event, summary, page, memory, log, artifact; may be given
    /// more than once
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    kind: Vec<PassageKind>,
    /// Only from this conversation
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
    /// At most this many hits
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse::amount)]
    limit: usize,
    /// Show this many neighbouring passages on each side of a hit
    #[arg(long, value_name = "N", default_value = "0")]
    context: usize,
    /// Explain the score of each hit
    #[arg(long)]
    explain: bool,
    /// Rerank the best candidates by their vectors, which may take a moment
    #[arg(long)]
    rerank: bool,
    /// Keyword search only
    #[arg(long, conflicts_with = "rerank")]
    words: bool,
    /// Answer every line of a file:
    /// {"id","query","limit"?,"when"?,"before"?,"now"?,"conversation"?}; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "explain"])]
    queries: Option<PathBuf>,
}

fn parse_kind(text: &str) -> std::result::Result<PassageKind, String> {
    text.parse().map_err(|error: icecore_domain::string_enum::ParseEnumError| error.to_string())
}

/// A line of a query file; unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct BulkQuery {
    id: Value,
    query: String,
    limit: Option<usize>,
    when: Option<String>,
    before: Option<String>,
    now: Option<String>,
    conversation: Option<String>,
}

/// A moment or the beginning of a day.
fn parse_before(open: &OpenMemory, text: &str, now: Moment) -> Result<Timestamp> {
    if let Some(read) = Moment::parse(text) {
        return Ok(read.moment.timestamp());
    }
    let when = parse::when(text, now.day())?;
    Ok(open.memory.start_of_day(when.days().first))
}

impl SearchArgs {
    fn to_request(&self, open: &OpenMemory) -> Result<SearchRequest> {
        let now = open.memory.now();
        Ok(SearchRequest {
            text: self.query.join(" "),
            limit: self.limit.min(MAX_HITS),
            when: self
                .when
                .as_deref()
                .map(|text| parse::when(text, now.day()))
                .transpose()?
                .map(|when| when.days()),
            before: self.before.as_deref().map(|text| parse_before(open, text, now)).transpose()?,
            now: None,
            kinds: self.kind.clone(),
            conversation: self.conversation.clone(),
            context: self.context,
            rerank: self.rerank,
        })
    }
}

/// Runs `icecore search`.
pub async fn search(open: &OpenMemory, search: &SearchArgs, out: &mut Output) -> Result<()> {
    let looking = search.to_request(open)?;
    // Without a usable model keyword search still works.
    let embed = match if search.words { Ok(None) } else { bootstrap::load_embedder() } {
        Ok(embed) => embed,
        Err(error) => {
            out.warn(error.to_string());
            None
        }
    };
    let bar = out.byte_bar("Reading memory");
    let finder = open
        .memory
        .open_searcher(embed.as_ref().map(|model| model as _), &progress_updater(&bar))
        .await?;
    bar.finish_and_clear();
    if let Some(file) = &search.queries {
        return run_bulk(open, &finder, &looking, file, out).await;
    }
    let answer = finder.search(&looking).await?;
    if answer.question.is_empty() {
        return Err(AppError::new(
            Exit::Usage,
            "the query has no searchable word; ask a question or give a few words",
        )
        .into());
    }
    if out.is_json() {
        return out.json(&json_output::search_results(&answer, search.explain));
    }
    if !answer.unknown.is_empty() && !answer.hits.is_empty() {
        let words =
            answer.unknown.iter().take(MAX_SHOWN_WORDS).map(|word| {
                icecore_domain::budget::truncate_at_word(&sanitize::one_line(word), 40)
            });
        let more = answer.unknown.len().saturating_sub(MAX_SHOWN_WORDS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        out.info(format!(
            "{DIM}not in memory: {}{more}{DIM:#}",
            words.collect::<Vec<_>>().join(", ")
        ));
    }
    if finder.is_empty() {
        let how = "memory is empty; `icecore remember`, `icecore session add` and `icecore import` fill it";
        return Err(AppError::new(Exit::NotFound, how).into());
    }
    if answer.hits.is_empty() {
        return Err(AppError::new(
            Exit::NotFound,
            "nothing was found; try fewer or other words, or a wider time span",
        )
        .into());
    }
    let marked = TermHighlighter::for_answer(&answer);
    for hit in &answer.hits {
        print_hit(hit, &marked, search.explain, out)?;
    }
    if !answer.by_meaning && !search.words {
        let how = if embed.is_some() {
            "run `icecore vault reindex` for semantic search"
        } else {
            "run `icecore model fetch` for semantic search"
        };
        out.info(format!("{DIM}keyword search only; {how}{DIM:#}"));
    }
    Ok(())
}

async fn run_bulk(
    open: &OpenMemory,
    finder: &Searcher<'_>,
    common: &SearchRequest,
    file: &Path,
    out: &mut Output,
) -> Result<()> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| {
        AppError::new(Exit::Failure, format!("{} cannot be read: {error}", file.display()))
    })?;
    let bar = out.step_bar("Searching");
    bar.set_length(text.lines().filter(|line| !line.trim().is_empty()).count() as u64);
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| {
            AppError::new(Exit::Usage, format!("{}, line {}: {why}", file.display(), at + 1))
        };
        let line: BulkQuery = serde_json::from_str(line).map_err(|error| {
            wrong(format!("this is not a JSON object with `id` and `query`: {error}"))
        })?;
        let now = match &line.now {
            Some(text) => Some(
                Moment::parse(text)
                    .ok_or_else(|| {
                        wrong(format!("`now` is not a timestamp: {}", sanitize::one_line(text)))
                    })?
                    .moment,
            ),
            None => None,
        };
        let today = now.unwrap_or_else(|| open.memory.now());
        let wish = |error: anyhow::Error| wrong(error.to_string());
        let looking = SearchRequest {
            text: line.query,
            limit: line.limit.unwrap_or(common.limit).min(MAX_HITS),
            when: match &line.when {
                Some(text) => Some(parse::when(text, today.day()).map_err(wish)?.days()),
                None => common.when,
            },
            before: match &line.before {
                Some(text) => Some(parse_before(open, text, today).map_err(wish)?),
                None => common.before,
            },
            now,
            conversation: line.conversation.or_else(|| common.conversation.clone()),
            ..common.clone()
        };
        let answer = finder.search(&looking).await?;
        let hits: Vec<Value> = answer.hits.iter().map(|hit| json_output::hit(hit, false)).collect();
        out.json(&json!({ "id": line.id, "hits": hits }))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Highlights the words of a query in a text.
struct TermHighlighter {
    terms: Vec<String>,
    reader: Analyzer,
}

impl TermHighlighter {
    fn for_answer(answer: &SearchResults) -> Self {
        Self {
            terms: answer
                .question
                .terms
                .iter()
                .flat_map(|asked| asked.terms.iter().cloned())
                .collect(),
            reader: Analyzer::default(),
        }
    }

    /// An excerpt around the first query word, with the query words highlighted.
    fn excerpt(&self, text: &str) -> String {
        let text = sanitize::escape_for_terminal(text);
        let words = terms::tokenize(&text);
        let language = self
            .reader
            .terms(&text)
            .language
            .unwrap_or(icecore_domain::rank::language::Language::English);
        let asked: Vec<&terms::TextWord<'_>> = words
            .iter()
            .filter(|word| {
                self.reader.word_terms(word, language).iter().any(|term| self.terms.contains(term))
            })
            .collect();
        let first = asked.first().map_or(0, |word| word.at);
        let mut start = 0;
        if text.chars().count() > MAX_SHOWN_CHARS
            && text[..first].chars().count() > MAX_SHOWN_CHARS / 2
        {
            start = words
                .iter()
                .map(|word| word.at)
                .rfind(|&at| at <= first && text[at..first].chars().count() >= MAX_SHOWN_CHARS / 4)
                .unwrap_or(0);
        }
        let end = text[start..]
            .char_indices()
            .nth(MAX_SHOWN_CHARS)
            .map_or(text.len(), |(at, _)| start + at);
        let mut shown = String::from(if start > 0 { "… " } else { "" });
        let mut from = start;
        for word in
            asked.into_iter().filter(|word| word.at >= start && word.at + word.text.len() <= end)
        {
            shown.push_str(&text[from..word.at]);
            shown.push_str(&format!("{BOLD}{YELLOW}{}{YELLOW:#}{BOLD:#}", word.text));
            from = word.at + word.text.len();
        }
        shown.push_str(&text[from..end]);
        if end < text.len() {
            shown.push_str(" …");
        }
        shown
    }
}

fn print_hit(
    hit: &SearchHit,
    marked: &TermHighlighter,
    explain: bool,
    out: &mut Output,
) -> Result<()> {
    let passage = &hit.placed.passage;
    let at = json_output::passage_time(passage).map_or(String::new(), |when| {
        format!("{} ", when.get(..16).unwrap_or(&when).replace('T', " "))
    });
    let place = [passage.conversation.as_deref(), passage.session.as_deref()]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" / ");
    let place = if place.is_empty() {
        String::new()
    } else {
        format!("  {DIM}{}{DIM:#}", sanitize::one_line(&place))
    };
    let replaced =
        hit.replaced_by.map_or(String::new(), |by| format!("  {YELLOW}replaced by {by}{YELLOW:#}"));
    let unconfirmed =
        if hit.unconfirmed { format!("  {YELLOW}unconfirmed{YELLOW:#}") } else { String::new() };
    let withdrawn =
        if hit.withdrawn { format!("  {YELLOW}withdrawn{YELLOW:#}") } else { String::new() };
    out.line(format!(
        "{BOLD}{at}{BOLD:#}{CYAN}{} {}{CYAN:#}{place}{replaced}{unconfirmed}{withdrawn}",
        passage.kind,
        sanitize::one_line(&passage.id)
    ))?;
    let lines: Vec<Passage> =
        if hit.around.is_empty() { vec![passage.clone()] } else { hit.around.clone() };
    for line in &lines {
        let is_hit = line.id == passage.id;
        let text = if is_hit {
            marked.excerpt(line.text.trim())
        } else {
            icecore_domain::budget::truncate_at_word(
                &sanitize::escape_for_terminal(line.text.trim()),
                MAX_SHOWN_CHARS,
            )
        };
        let name = line
            .name
            .clone()
            .or_else(|| line.role.map(|role| role.to_string()))
            .filter(|_| line.role.is_some());
        let name = name.map_or(String::new(), |name| format!("{}: ", sanitize::one_line(&name)));
        let mark = if lines.len() > 1 && is_hit { "▸" } else { " " };
        let mut rows = text.lines();
        out.line(
            format!(" {mark} {DIM}{name}{DIM:#}{}", rows.next().unwrap_or_default()).trim_end(),
        )?;
        rows.try_for_each(|row| out.line(format!("   {row}").trim_end()))?;
    }
    if !hit.also.is_empty() {
        let ids = hit
            .also
            .iter()
            .take(MAX_SHOWN_WORDS)
            .map(|id| sanitize::one_line(id))
            .collect::<Vec<_>>()
            .join(", ");
        let more = hit.also.len().saturating_sub(MAX_SHOWN_WORDS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        out.line(format!("   {DIM}same text: {ids}{more}{DIM:#}"))?;
    }
    if explain {
        let sides: Vec<String> =
            hit.why.iter().map(|side| format!("{} {:.2}", side.name, side.adds)).collect();
        out.line(format!("   {DIM}{:.2} = {}{DIM:#}", hit.score, sides.join(" + ")))?;
    }
    if passage.kind == PassageKind::Message
        && let Some(day) = passage.day
    {
        let name = passage.conversation.as_deref().unwrap_or_default();
        let quoted = if name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c)) {
            name.to_owned()
        } else {
            format!("{name:?}")
        };
        out.detail(format!("icecore zoom {day} --conversation {}", sanitize::one_line(&quoted)));
    }
    out.line("")?;
    Ok(())
}
