//! `insights`: recurring topics, anniversaries, and periods similar to one.

use anyhow::Result;
use clap::Args;
use comfy_table::{Cell, CellAlignment, Color};
use icecore_domain::insights::lookback::Lookback;
use icecore_domain::insights::trend::{Topic, sparkline};
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::sanitize;
use icecore_domain::summary::Period;
use icecore_engine::{LookbackReport, SimilarSummaries, TrendReport};

use super::output::{BOLD, CYAN, DIM, Output, YELLOW};
use super::{event_format, parse};
use crate::bootstrap::OpenMemory;
use crate::error::{AppError, Exit};
use crate::json_output;

#[derive(Debug, Args)]
pub struct TrendsArgs {
    /// From this time: 2026, last year, "last 90 days", since march … [default: the last twelve
    /// months]
    #[arg(long, value_name = "SPAN")]
    when: Option<String>,
    /// At most this many topics
    #[arg(long, value_name = "N", default_value = "20", value_parser = parse::amount)]
    limit: usize,
    /// Only what comes up together with this
    #[arg(long, value_name = "WORD")]
    about: Option<String>,
    /// Draw with plain characters
    #[arg(long)]
    ascii: bool,
}

#[derive(Debug, Args)]
pub struct LookbackArgs {
    /// From this day: 2026-02-13, yesterday … [default: today]
    #[arg(value_name = "DATE")]
    date: Vec<String>,
}

#[derive(Debug, Args)]
pub struct SimilarArgs {
    /// Similar to this session, day, week, month or year [default: the latest week, else the latest
    /// month]
    #[arg(value_name = "PERIOD", value_parser = parse::period)]
    period: Option<Period>,
    /// Print one text of it and the similar ones, each line once
    #[arg(long)]
    merge: bool,
    /// At most this many bytes of it
    #[arg(long, value_name = "BYTES", default_value = "8192", value_parser = parse::amount, requires = "merge")]
    budget: usize,
}

const MAX_TOPICS: usize = 1_000;
/// Below this size a merged text has no room for content.
const MIN_MERGED_BYTES: usize = 512;
/// A sparkline with more months merges neighbouring ones.
const MAX_SPARKLINE_BARS: usize = 36;

/// Runs `icecore insights trends`.
pub async fn trends(open: &OpenMemory, asked: &TrendsArgs, out: &mut Output) -> Result<()> {
    if asked.limit > MAX_TOPICS {
        return Err(
            AppError::new(Exit::Usage, format!("--limit: choose at most {MAX_TOPICS}")).into()
        );
    }
    let today = open.memory.now().day();
    let days = match &asked.when {
        Some(text) => Some(parse::when(text, today)?.days()),
        None => None,
    };
    if let Some(days) = days.filter(|days| days.first > today) {
        return Err(AppError::new(Exit::Usage, format!("--when: {days} has not come yet")).into());
    }
    super::ledger::scan_logs(open, out).await;
    let bar = out.step_bar("reading");
    let watch = |name: &str, done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(name.to_owned());
    };
    let trended =
        open.memory.compute_trends(days, asked.limit, asked.about.as_deref(), &watch).await;
    bar.finish_and_clear();
    let trended = trended?;
    if out.is_json() {
        return out.json(&json_output::trends(&trended));
    }
    let trends = &trended.trends;
    if trends.topics.is_empty() {
        return print_no_topics(&trended, asked, out);
    }
    out.line(format!(
        "{BOLD}{}{BOLD:#}  {DIM}{}{DIM:#}",
        trended.days,
        pluralize(trends.occasions, "occasion")
    ))?;
    let rows = trends.topics.iter().map(|topic| topic_row(topic, asked.ascii)).collect();
    out.table(&["TOPIC", "OCCASIONS", "FIRST", "LAST", "BY MONTH"], rows)?;
    if trends.left_out > 0 {
        out.info(format!("{} more; --limit shows them", pluralize(trends.left_out, "topic")));
    }
    if let Some(place) = trends.topics.first().and_then(|topic| topic.places.last()) {
        out.info(format!(
            "{DIM}`icecore zoom {}` shows what was said when {} came up last{DIM:#}",
            place.day(),
            event_format::one_line_excerpt(&trends.topics[0].name)
        ));
    }
    Ok(())
}

fn print_no_topics(trended: &TrendReport, asked: &TrendsArgs, out: &mut Output) -> Result<()> {
    let about = asked
        .about
        .as_ref()
        .map_or(String::new(), |word| format!(" about {}", sanitize::one_line(word)));
    out.line(format!("No recurring topic{about} in {}.", trended.days))?;
    match trended.memory {
        None => out.info("Nothing was captured yet: `icecore import`, `icecore session add` and `icecore log` store what is said."),
        Some(memory) if asked.about.is_some() => out.info(format!("`icecore insights trends --when {memory}` covers all of memory.")),
        Some(memory) if memory.first < trended.days.first || memory.last > trended.days.last => {
            out.info(format!("Memory covers {} to {}: `icecore insights trends --when {memory}`.", memory.first, memory.last));
        }
        Some(_) => out.info("A topic needs three occasions; there have not been enough yet."),
    }
    Ok(())
}

fn topic_row(topic: &Topic, ascii: bool) -> Vec<Cell> {
    vec![
        Cell::new(event_format::one_line_excerpt(&topic.name)).fg(Color::Cyan),
        Cell::new(topic.occasions).set_alignment(CellAlignment::Right),
        Cell::new(topic.first),
        Cell::new(topic.last),
        Cell::new(sparkline(&merge_months(&topic.months), ascii)),
    ]
}

/// The counts by month; neighbouring months are merged if there are too many for a line.
fn merge_months(months: &[usize]) -> Vec<usize> {
    let each = months.len().div_ceil(MAX_SPARKLINE_BARS).max(1);
    months.chunks(each).map(|some| some.iter().sum()).collect()
}

/// Runs `icecore insights lookback`.
pub async fn lookback(open: &OpenMemory, asked: &LookbackArgs, out: &mut Output) -> Result<()> {
    let date = match asked.date.join(" ") {
        text if text.is_empty() => None,
        text => {
            let days = parse::when(&text, open.memory.now().day())?.days();
            if days.first != days.last {
                return Err(AppError::new(
                    Exit::Usage,
                    format!("`{}` is more than one day", sanitize::one_line(&text)),
                )
                .into());
            }
            Some(days.first)
        }
    };
    super::ledger::scan_logs(open, out).await;
    let looked = open.memory.compute_lookback(date).await?;
    if out.is_json() {
        return out.json(&json_output::lookback(&looked));
    }
    if looked.looks.is_empty() {
        return print_no_lookback(&looked, out);
    }
    for (at, look) in looked.looks.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        print_lookback_window(look, out)?;
    }
    Ok(())
}

fn print_no_lookback(report: &LookbackReport, out: &mut Output) -> Result<()> {
    out.line(format!("Nothing was recorded a month, half a year or years before {}.", report.day))?;
    match report.first_day {
        None => out.info("Nothing was captured yet: `icecore import` imports a history, `icecore log` records what happens today."),
        Some(begun) => out.info(format!("Memory begins on {begun}: `icecore zoom {begun}`.")),
    }
    Ok(())
}

fn print_lookback_window(look: &Lookback, out: &mut Output) -> Result<()> {
    let days = look.period.days;
    let when = if days.first == days.last {
        days.first.to_string()
    } else {
        format!("{} to {}", days.first, days.last)
    };
    out.line(format!("{BOLD}{}{BOLD:#}  {DIM}{when}{DIM:#}", capitalize(&look.period.name)))?;
    for told in &look.headlines {
        out.line(format!(
            "  {CYAN}{}{CYAN:#}  {}",
            told.period,
            event_format::one_line_excerpt(&told.headline)
        ))?;
    }
    let mut list = |title: &str, entries: &[LedgerEntry]| -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        out.line(format!("  {DIM}{title}{DIM:#}"))?;
        entries.iter().try_for_each(|entry| {
            let gone = if entry.state.is_active() {
                String::new()
            } else {
                format!(" {DIM}[{}]{DIM:#}", entry.state.word())
            };
            out.line(format!(
                "  {CYAN}{}{CYAN:#}  {}{gone}",
                entry.event.id,
                event_format::one_line_excerpt(&entry.event.content)
            ))
        })
    };
    list("decided and achieved", &look.decided)?;
    list("promised then and still open", &look.open)?;
    if look.left_out > 0 {
        out.line(format!(
            "  {DIM}{} more; `icecore zoom {days} --summary` shows all of it{DIM:#}",
            look.left_out
        ))?;
    }
    Ok(())
}

/// Runs `icecore insights similar`.
pub async fn similar(open: &OpenMemory, asked: &SimilarArgs, out: &mut Output) -> Result<()> {
    if asked.merge && asked.budget < MIN_MERGED_BYTES {
        return Err(AppError::new(
            Exit::Usage,
            format!("--budget: at least {MIN_MERGED_BYTES} bytes are needed"),
        )
        .into());
    }
    let Some(alike) = open.memory.find_similar_summaries(asked.period).await? else {
        if out.is_json() {
            return out.json(&json_output::similar(None));
        }
        out.line("There are no summaries yet, so there is nothing to compare.")?;
        out.info("`icecore rollup` summarizes what is due.");
        return Ok(());
    };
    if asked.merge {
        return print_merged(open, &alike, asked.budget, out);
    }
    if out.is_json() {
        return out.json(&json_output::similar(Some(&alike)));
    }
    out.line(format!(
        "{BOLD}{}{BOLD:#}  {}",
        alike.summary.period,
        event_format::one_line_excerpt(&alike.summary.headline)
    ))?;
    if alike.like.is_empty() {
        let others = match alike.others {
            0 => "There is no other period to compare it with yet.".to_owned(),
            1 => "The only other period is not similar.".to_owned(),
            others => format!("None of the {others} other periods is similar."),
        };
        return out.line(others);
    }
    let rows = alike.like.iter().map(|(like, summary)| {
        vec![
            Cell::new(like.period).fg(Color::Cyan),
            Cell::new(format!("{:.2}", like.likeness)),
            Cell::new(like.shared.join(", ")),
            Cell::new(event_format::one_line_excerpt(&summary.headline)),
        ]
    });
    out.table(&["PERIOD", "LIKE", "SHARED", "HEADLINE"], rows.collect())
}

fn print_merged(
    open: &OpenMemory,
    alike: &SimilarSummaries,
    budget: usize,
    out: &mut Output,
) -> Result<()> {
    let (periods, merged, told) = json_output::merge_similar(&open.memory, alike, budget);
    if out.is_json() {
        return out.json(&told);
    }
    let names: Vec<String> = periods.iter().map(ToString::to_string).collect();
    out.line(format!("# {}", names.join(", ")))?;
    out.line("")?;
    out.raw(&sanitize::escape_for_terminal(&merged.to_text()))?;
    if alike.like.is_empty() {
        out.info(format!(
            "{YELLOW}nothing else is similar to {}; this is its own text{YELLOW:#}",
            alike.summary.period
        ));
    }
    if merged.repeated > 0 {
        out.info(format!("{} repeated another one", pluralize(merged.repeated, "line")));
    }
    if merged.left_out > 0 {
        out.info(format!("left out: {} (--budget {budget})", pluralize(merged.left_out, "line")));
    }
    Ok(())
}

/// A count with its noun, such as `2 events`.
pub fn pluralize(many: usize, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}

fn capitalize(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
