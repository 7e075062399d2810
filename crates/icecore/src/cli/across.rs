//! `insights`: recurring topics, anniversaries, and periods similar to one.

use anyhow::Result;
use clap::Args;
use comfy_table::{Cell, CellAlignment, Color};
use icecore_domain::across::lookback::Look;
use icecore_domain::across::trend::{Topic, spark};
use icecore_domain::ledger::Entry;
use icecore_domain::plain;
use icecore_domain::summary::Period;
use icecore_engine::{Alike, LookedBack, Trended};

use super::out::{BOLD, CYAN, DIM, Out, YELLOW};
use super::{read, show};
use crate::error::{Exit, Stop};
use crate::told;
use crate::wire::Open;

#[derive(Debug, Args)]
pub struct Trends {
    /// Of this time: 2026, last year, "last 90 days", since march … [default: the last twelve
    /// months]
    #[arg(long, value_name = "SPAN")]
    when: Option<String>,
    /// At most this many topics
    #[arg(long, value_name = "N", default_value = "20", value_parser = read::amount)]
    limit: usize,
    /// Only what comes up together with this
    #[arg(long, value_name = "WORD")]
    about: Option<String>,
    /// Draw with plain characters
    #[arg(long)]
    ascii: bool,
}

#[derive(Debug, Args)]
pub struct Lookback {
    /// From this day: 2026-02-13, yesterday … [default: today]
    #[arg(value_name = "DATE")]
    date: Vec<String>,
}

#[derive(Debug, Args)]
pub struct SimilarTo {
    /// Similar to this session, day, week, month or year [default: the latest week, else the latest
    /// month]
    #[arg(value_name = "PERIOD", value_parser = read::period)]
    period: Option<Period>,
    /// Print one text of it and the similar ones, each line once
    #[arg(long)]
    merge: bool,
    /// At most this many bytes of it
    #[arg(long, value_name = "BYTES", default_value = "8192", value_parser = read::amount, requires = "merge")]
    budget: usize,
}

const MOST_TOPICS: usize = 1_000;
/// Below this size a merged text has no room for content.
const LEAST_BYTES: usize = 512;
/// A sparkline with more months merges neighbouring ones.
const MOST_BARS: usize = 36;

pub async fn trends(open: &Open, asked: &Trends, out: &mut Out) -> Result<()> {
    if asked.limit > MOST_TOPICS {
        return Err(Stop::new(Exit::Usage, format!("--limit: choose at most {MOST_TOPICS}")).into());
    }
    let today = open.memory.now().day();
    let days = match &asked.when {
        Some(text) => Some(read::when(text, today)?.span()),
        None => None,
    };
    if let Some(days) = days.filter(|days| days.first > today) {
        return Err(Stop::new(Exit::Usage, format!("--when: {days} has not come yet")).into());
    }
    super::ledger::notice(open, out).await;
    let bar = out.steps("reading");
    let watch = |name: &str, done: usize, all: usize| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
        bar.set_message(name.to_owned());
    };
    let trended = open.memory.trends(days, asked.limit, asked.about.as_deref(), &watch).await;
    bar.finish_and_clear();
    let trended = trended?;
    if out.is_json() {
        return out.json(&told::trends(&trended));
    }
    let trends = &trended.trends;
    if trends.topics.is_empty() {
        return nothing_came_up(&trended, asked, out);
    }
    out.line(format!(
        "{BOLD}{}{BOLD:#}  {DIM}{}{DIM:#}",
        trended.days,
        counted(trends.occasions, "occasion")
    ))?;
    let rows = trends.topics.iter().map(|topic| topic_row(topic, asked.ascii)).collect();
    out.table(&["TOPIC", "OCCASIONS", "FIRST", "LAST", "BY MONTH"], rows)?;
    if trends.left_out > 0 {
        out.say(format!("{} more; --limit shows them", counted(trends.left_out, "topic")));
    }
    if let Some(place) = trends.topics.first().and_then(|topic| topic.places.last()) {
        out.say(format!(
            "{DIM}`icecore zoom {}` shows what was said when {} came up last{DIM:#}",
            place.day(),
            show::gist(&trends.topics[0].name)
        ));
    }
    Ok(())
}

fn nothing_came_up(trended: &Trended, asked: &Trends, out: &mut Out) -> Result<()> {
    let about = asked
        .about
        .as_ref()
        .map_or(String::new(), |word| format!(" about {}", plain::one_line(word)));
    out.line(format!("No recurring topic{about} in {}.", trended.days))?;
    match trended.memory {
        None => out.say("Nothing was captured yet: `icecore import`, `icecore session add` and `icecore log` store what is said."),
        Some(memory) if asked.about.is_some() => out.say(format!("`icecore insights trends --when {memory}` covers all of memory.")),
        Some(memory) if memory.first < trended.days.first || memory.last > trended.days.last => {
            out.say(format!("Memory covers {} to {}: `icecore insights trends --when {memory}`.", memory.first, memory.last));
        }
        Some(_) => out.say("A topic needs three occasions; there have not been enough yet."),
    }
    Ok(())
}

fn topic_row(topic: &Topic, ascii: bool) -> Vec<Cell> {
    vec![
        Cell::new(show::gist(&topic.name)).fg(Color::Cyan),
        Cell::new(topic.occasions).set_alignment(CellAlignment::Right),
        Cell::new(topic.first),
        Cell::new(topic.last),
        Cell::new(spark(&bars(&topic.months), ascii)),
    ]
}

/// The counts by month; neighbouring months are merged if there are too many for a line.
fn bars(months: &[usize]) -> Vec<usize> {
    let each = months.len().div_ceil(MOST_BARS).max(1);
    months.chunks(each).map(|some| some.iter().sum()).collect()
}

pub async fn lookback(open: &Open, asked: &Lookback, out: &mut Out) -> Result<()> {
    let date = match asked.date.join(" ") {
        text if text.is_empty() => None,
        text => {
            let days = read::when(&text, open.memory.now().day())?.span();
            if days.first != days.last {
                return Err(Stop::new(
                    Exit::Usage,
                    format!("`{}` is more than one day", plain::one_line(&text)),
                )
                .into());
            }
            Some(days.first)
        }
    };
    super::ledger::notice(open, out).await;
    let looked = open.memory.lookback(date).await?;
    if out.is_json() {
        return out.json(&told::lookback(&looked));
    }
    if looked.looks.is_empty() {
        return nothing_back_then(&looked, out);
    }
    for (at, look) in looked.looks.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        tell_look(look, out)?;
    }
    Ok(())
}

fn nothing_back_then(looked: &LookedBack, out: &mut Out) -> Result<()> {
    out.line(format!("Nothing was recorded a month, half a year or years before {}.", looked.day))?;
    match looked.begun {
        None => out.say("Nothing was captured yet: `icecore import` imports a history, `icecore log` records what happens today."),
        Some(begun) => out.say(format!("Memory begins on {begun}: `icecore zoom {begun}`.")),
    }
    Ok(())
}

fn tell_look(look: &Look, out: &mut Out) -> Result<()> {
    let days = look.vista.days;
    let when = if days.first == days.last {
        days.first.to_string()
    } else {
        format!("{} to {}", days.first, days.last)
    };
    out.line(format!("{BOLD}{}{BOLD:#}  {DIM}{when}{DIM:#}", capitalised(&look.vista.name)))?;
    for told in &look.told {
        out.line(format!("  {CYAN}{}{CYAN:#}  {}", told.period, show::gist(&told.headline)))?;
    }
    let mut list = |title: &str, entries: &[Entry]| -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        out.line(format!("  {DIM}{title}{DIM:#}"))?;
        entries.iter().try_for_each(|entry| {
            let gone = if entry.standing.is_active() {
                String::new()
            } else {
                format!(" {DIM}[{}]{DIM:#}", entry.standing.word())
            };
            out.line(format!(
                "  {CYAN}{}{CYAN:#}  {}{gone}",
                entry.event.id,
                show::gist(&entry.event.content)
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

pub async fn similar(open: &Open, asked: &SimilarTo, out: &mut Out) -> Result<()> {
    if asked.merge && asked.budget < LEAST_BYTES {
        return Err(Stop::new(
            Exit::Usage,
            format!("--budget: at least {LEAST_BYTES} bytes are needed"),
        )
        .into());
    }
    let Some(alike) = open.memory.similar(asked.period).await? else {
        if out.is_json() {
            return out.json(&told::similar(None));
        }
        out.line("There are no summaries yet, so there is nothing to compare.")?;
        out.say("`icecore rollup` summarizes what is due.");
        return Ok(());
    };
    if asked.merge {
        return merge(open, &alike, asked.budget, out);
    }
    if out.is_json() {
        return out.json(&told::similar(Some(&alike)));
    }
    out.line(format!(
        "{BOLD}{}{BOLD:#}  {}",
        alike.summary.period,
        show::gist(&alike.summary.headline)
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
            Cell::new(show::gist(&summary.headline)),
        ]
    });
    out.table(&["PERIOD", "LIKE", "SHARED", "HEADLINE"], rows.collect())
}

fn merge(open: &Open, alike: &Alike, budget: usize, out: &mut Out) -> Result<()> {
    let (periods, merged, told) = told::alike_merged(&open.memory, alike, budget);
    if out.is_json() {
        return out.json(&told);
    }
    let names: Vec<String> = periods.iter().map(ToString::to_string).collect();
    out.line(format!("# {}", names.join(", ")))?;
    out.line("")?;
    out.raw(&plain::visible(&merged.text()))?;
    if alike.like.is_empty() {
        out.say(format!(
            "{YELLOW}nothing else is similar to {}; this is its own text{YELLOW:#}",
            alike.summary.period
        ));
    }
    if merged.repeated > 0 {
        out.say(format!("{} repeated another one", counted(merged.repeated, "line")));
    }
    if merged.left_out > 0 {
        out.say(format!("left out: {} (--budget {budget})", counted(merged.left_out, "line")));
    }
    Ok(())
}

pub fn counted(many: usize, what: &str) -> String {
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
