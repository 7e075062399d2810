//! `search`: one query, or a file of queries.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use icecore_domain::calendar::Moment;
use icecore_domain::plain;
use icecore_domain::rank::passage::{Passage, PassageKind};
use icecore_domain::rank::terms::{self, Reader};
use icecore_engine::{Answer, Finder, Hit, Looking};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::out::{BOLD, CYAN, DIM, Out, YELLOW, moves};
use super::read;
use crate::error::{Exit, Stop};
use crate::told;
use crate::wire::{self, Open};

const MOST_HITS: usize = 1_000;
/// At most this many unknown query words are listed.
const SHOWN_WORDS: usize = 8;
/// At most this many characters of a passage are printed.
const SHOWN_CHARS: usize = 400;

#[derive(Debug, Args)]
pub struct Search {
    /// A question or a few words; "in quotes" for an exact phrase
    #[arg(value_name = "QUERY", required_unless_present = "queries")]
    query: Vec<String>,
    /// Only of this time: yesterday, last month, 2026-W07, feb 2026 …
    #[arg(long, value_name = "WHEN")]
    when: Option<String>,
    /// Only what is older than this day or moment
    #[arg(long, value_name = "WHEN")]
    before: Option<String>,
    /// Only this kind: message, state, event, summary, page, memory, log, artifact; may be given
    /// more than once
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Vec<PassageKind>,
    /// Only of this conversation
    #[arg(long, value_name = "NAME")]
    conversation: Option<String>,
    /// At most this many hits
    #[arg(long, value_name = "N", default_value = "10", value_parser = read::amount)]
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

fn kind(text: &str) -> std::result::Result<PassageKind, String> {
    text.parse().map_err(|error: icecore_domain::words::NotAWord| error.to_string())
}

/// A line of a query file; unknown fields are ignored.
#[derive(Debug, Deserialize)]
struct Line {
    id: Value,
    query: String,
    limit: Option<usize>,
    when: Option<String>,
    before: Option<String>,
    now: Option<String>,
    conversation: Option<String>,
}

/// A moment or the beginning of a day.
fn before(open: &Open, text: &str, now: Moment) -> Result<Timestamp> {
    if let Some(read) = Moment::read(text) {
        return Ok(read.moment.at());
    }
    let when = read::when(text, now.day())?;
    Ok(open.memory.start_of(when.span().first))
}

impl Search {
    fn looking(&self, open: &Open) -> Result<Looking> {
        let now = open.memory.now();
        Ok(Looking {
            text: self.query.join(" "),
            limit: self.limit.min(MOST_HITS),
            when: self
                .when
                .as_deref()
                .map(|text| read::when(text, now.day()))
                .transpose()?
                .map(|when| when.span()),
            before: self.before.as_deref().map(|text| before(open, text, now)).transpose()?,
            now: None,
            kinds: self.kind.clone(),
            conversation: self.conversation.clone(),
            context: self.context,
            rerank: self.rerank,
        })
    }
}

pub async fn search(open: &Open, search: &Search, out: &mut Out) -> Result<()> {
    let looking = search.looking(open)?;
    // Without a usable model keyword search still works.
    let embed = match if search.words { Ok(None) } else { wire::embedder() } {
        Ok(embed) => embed,
        Err(error) => {
            out.warn(error.to_string());
            None
        }
    };
    let bar = out.bar("Reading memory");
    let finder = open.memory.finder(embed.as_ref().map(|model| model as _), &moves(&bar)).await?;
    bar.finish_and_clear();
    if let Some(file) = &search.queries {
        return in_bulk(open, &finder, &looking, file, out).await;
    }
    let answer = finder.search(&looking).await?;
    if answer.question.is_empty() {
        return Err(Stop::new(
            Exit::Usage,
            "the query has no searchable word; ask a question or give a few words",
        )
        .into());
    }
    if out.is_json() {
        return out.json(&told::answer(&answer, search.explain));
    }
    if !answer.unknown.is_empty() && !answer.hits.is_empty() {
        let words = answer
            .unknown
            .iter()
            .take(SHOWN_WORDS)
            .map(|word| icecore_domain::budget::shortened(&plain::one_line(word), 40));
        let more = answer.unknown.len().saturating_sub(SHOWN_WORDS);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        out.say(format!(
            "{DIM}not in memory: {}{more}{DIM:#}",
            words.collect::<Vec<_>>().join(", ")
        ));
    }
    if finder.is_empty() {
        let how = "memory is empty; `icecore remember`, `icecore session add` and `icecore import` fill it";
        return Err(Stop::new(Exit::NotFound, how).into());
    }
    if answer.hits.is_empty() {
        return Err(Stop::new(
            Exit::NotFound,
            "nothing was found; try fewer or other words, or a wider time span",
        )
        .into());
    }
    let marked = Marked::of(&answer);
    for hit in &answer.hits {
        show(hit, &marked, search.explain, out)?;
    }
    if !answer.by_meaning && !search.words {
        let how = if embed.is_some() {
            "run `icecore vault reindex` for semantic search"
        } else {
            "run `icecore model fetch` for semantic search"
        };
        out.say(format!("{DIM}keyword search only; {how}{DIM:#}"));
    }
    Ok(())
}

async fn in_bulk(
    open: &Open,
    finder: &Finder<'_>,
    common: &Looking,
    file: &Path,
    out: &mut Out,
) -> Result<()> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| {
        Stop::new(Exit::Failure, format!("{} cannot be read: {error}", file.display()))
    })?;
    let bar = out.steps("Searching");
    bar.set_length(text.lines().filter(|line| !line.trim().is_empty()).count() as u64);
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let wrong = |why: String| {
            Stop::new(Exit::Usage, format!("{}, line {}: {why}", file.display(), at + 1))
        };
        let line: Line = serde_json::from_str(line).map_err(|error| {
            wrong(format!("this is not a JSON object with `id` and `query`: {error}"))
        })?;
        let now = match &line.now {
            Some(text) => Some(
                Moment::read(text)
                    .ok_or_else(|| {
                        wrong(format!("`now` is not a timestamp: {}", plain::one_line(text)))
                    })?
                    .moment,
            ),
            None => None,
        };
        let today = now.unwrap_or_else(|| open.memory.now());
        let wish = |error: anyhow::Error| wrong(error.to_string());
        let looking = Looking {
            text: line.query,
            limit: line.limit.unwrap_or(common.limit).min(MOST_HITS),
            when: match &line.when {
                Some(text) => Some(read::when(text, today.day()).map_err(wish)?.span()),
                None => common.when,
            },
            before: match &line.before {
                Some(text) => Some(before(open, text, today).map_err(wish)?),
                None => common.before,
            },
            now,
            conversation: line.conversation.or_else(|| common.conversation.clone()),
            ..common.clone()
        };
        let answer = finder.search(&looking).await?;
        let hits: Vec<Value> = answer.hits.iter().map(|hit| told::hit(hit, false)).collect();
        out.json(&json!({ "id": line.id, "hits": hits }))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Highlights the words of a query in a text.
struct Marked {
    terms: Vec<String>,
    reader: Reader,
}

impl Marked {
    fn of(answer: &Answer) -> Self {
        Self {
            terms: answer
                .question
                .asked
                .iter()
                .flat_map(|asked| asked.terms.iter().cloned())
                .collect(),
            reader: Reader::default(),
        }
    }

    /// An excerpt around the first query word, with the query words highlighted.
    fn within(&self, text: &str) -> String {
        let text = plain::visible(text);
        let words = terms::words(&text);
        let language = self
            .reader
            .terms(&text)
            .language
            .unwrap_or(icecore_domain::rank::language::Language::English);
        let asked: Vec<&terms::Word<'_>> = words
            .iter()
            .filter(|word| {
                self.reader.of_word(word, language).iter().any(|term| self.terms.contains(term))
            })
            .collect();
        let first = asked.first().map_or(0, |word| word.at);
        let mut start = 0;
        if text.chars().count() > SHOWN_CHARS && text[..first].chars().count() > SHOWN_CHARS / 2 {
            start = words
                .iter()
                .map(|word| word.at)
                .rfind(|&at| at <= first && text[at..first].chars().count() >= SHOWN_CHARS / 4)
                .unwrap_or(0);
        }
        let end =
            text[start..].char_indices().nth(SHOWN_CHARS).map_or(text.len(), |(at, _)| start + at);
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

fn show(hit: &Hit, marked: &Marked, explain: bool, out: &mut Out) -> Result<()> {
    let passage = &hit.placed.passage;
    let at = told::when(passage).map_or(String::new(), |when| {
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
        format!("  {DIM}{}{DIM:#}", plain::one_line(&place))
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
        plain::one_line(&passage.id)
    ))?;
    let lines: Vec<Passage> =
        if hit.around.is_empty() { vec![passage.clone()] } else { hit.around.clone() };
    for line in &lines {
        let is_hit = line.id == passage.id;
        let text = if is_hit {
            marked.within(line.text.trim())
        } else {
            icecore_domain::budget::shortened(&plain::visible(line.text.trim()), SHOWN_CHARS)
        };
        let name = line
            .name
            .clone()
            .or_else(|| line.role.map(|role| role.to_string()))
            .filter(|_| line.role.is_some());
        let name = name.map_or(String::new(), |name| format!("{}: ", plain::one_line(&name)));
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
            .take(SHOWN_WORDS)
            .map(|id| plain::one_line(id))
            .collect::<Vec<_>>()
            .join(", ");
        let more = hit.also.len().saturating_sub(SHOWN_WORDS);
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
        out.whisper(format!("icecore zoom {day} --conversation {}", plain::one_line(&quoted)));
    }
    out.line("")?;
    Ok(())
}
