//! Commands that append to the ledger and read it.

use std::io::Read;

use anyhow::Result;
use clap::Args;
use icecore_domain::calendar::parse_day;
use icecore_domain::event::{Act, EntityKind, EventType, Origin, Priority, Scope};
use icecore_domain::id::EventId;
use icecore_domain::ledger::LedgerEntry;
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::sanitize;
use icecore_engine::{
    EventProvenance, LogScanReport, OriginalSource, Provenance, SummaryProvenance,
};
use jiff::civil::Date;

use super::output::{BOLD, CYAN, DIM, GREEN, Output, YELLOW};
use super::{event_format, parse};
use crate::bootstrap::OpenMemory;
use crate::error::{AppError, Exit};
use crate::json_output;

const MAX_INPUT_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Debug, Args)]
pub struct LogArgs {
    /// The text; `-` reads standard input
    #[arg(required = true, value_name = "TEXT")]
    text: Vec<String>,
}

#[derive(Debug, Args)]
pub struct RememberArgs {
    /// The statement; `-` reads standard input
    #[arg(required = true, value_name = "TEXT")]
    text: Vec<String>,
    /// fact, decision, preference, commitment, constraint, procedure or relationship
    #[arg(long = "type", short = 't', value_name = "TYPE", value_parser = parse::kind)]
    kind: Option<EventType>,
    /// P0 permanent, P1 important, P2 for a quarter, P3 for a month
    #[arg(long, short, value_name = "P0-P3", value_parser = parse::priority)]
    priority: Option<Priority>,
    /// What it is about
    #[arg(long, short, value_name = "NAME")]
    entity: Option<String>,
    /// person, company, project, account or tool
    #[arg(long, value_name = "KIND", value_parser = parse::entity_kind, requires = "entity")]
    entity_kind: Option<EntityKind>,
    /// A label; may be given several times
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The event it replaces; may be given several times
    #[arg(long, value_name = "ID", value_parser = parse::id)]
    supersedes: Vec<EventId>,
    /// An event it belongs with; may be given several times
    #[arg(long, value_name = "ID", value_parser = parse::id)]
    related: Vec<EventId>,
    /// When it is due: 2026-02-20, tomorrow, friday, +3d, +2w
    #[arg(long, value_name = "DAY", allow_hyphen_values = true)]
    due: Option<String>,
    /// The person or thing it waits for
    #[arg(long, value_name = "WHOM")]
    waiting_on: Option<String>,
    /// Its source: a path in the vault, a name; `live` if not given
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// The session it was learnt in
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Where it holds: everywhere, project:NAME, conversation:ID
    #[arg(long, value_name = "SCOPE", value_parser = parse::scope)]
    scope: Option<Scope>,
    /// The origin of the words: user, assistant, tool, import or file
    #[arg(long, value_name = "WHO", value_parser = parse::origin)]
    origin: Option<Origin>,
}

#[derive(Debug, Args)]
pub struct EventIdsArgs {
    /// The events, e.g. EVT-20260213-001 or 20260213-1
    #[arg(required = true, value_name = "ID", value_parser = parse::id)]
    ids: Vec<EventId>,
    /// The reason
    #[arg(long, short, value_name = "TEXT")]
    note: Option<String>,
    /// The session it happened in
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// The origin of the words: user, assistant, tool, import or file
    #[arg(long, value_name = "WHO", value_parser = parse::origin, default_value = "user", hide_default_value = true)]
    origin: Origin,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The event, e.g. EVT-20260213-001 or 20260213-1
    #[arg(value_name = "ID", value_parser = parse::id)]
    id: EventId,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// An event, a period, a page's path, [mem:NAME], or a line of a pack
    #[arg(required = true, value_name = "WHAT")]
    what: Vec<String>,
}

#[derive(Debug, Args)]
pub struct EventsArgs {
    /// Only with this text
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
    /// Also what was replaced, closed or retracted, and the acts that did it
    #[arg(long, short)]
    all: bool,
    /// Only of this type; may be given several times
    #[arg(long = "type", short = 't', value_name = "TYPE", value_parser = parse::kind)]
    kinds: Vec<EventType>,
    /// Only of this priority; may be given several times
    #[arg(long = "priority", short, value_name = "P0-P3", value_parser = parse::priority)]
    priorities: Vec<Priority>,
    /// Only about this
    #[arg(long, short, value_name = "NAME")]
    entity: Option<String>,
    /// Only with this label; several: with all of them
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Only from this session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only from this source
    #[arg(long, value_name = "SOURCE")]
    source: Option<String>,
    /// Only with this scope
    #[arg(long, value_name = "SCOPE", value_parser = parse::scope)]
    scope: Option<Scope>,
    /// Only recorded on this day or later: 2026-02-13, yesterday, -7d, -2w
    #[arg(long, value_name = "DAY", allow_hyphen_values = true)]
    since: Option<String>,
    /// Only recorded on this day or earlier
    #[arg(long, value_name = "DAY", allow_hyphen_values = true)]
    until: Option<String>,
    /// Only events in quarantine: from tools or strangers, not yet confirmed
    #[arg(long)]
    quarantined: bool,
    /// At most this many, the newest ones
    #[arg(long, short = 'n', value_name = "N")]
    limit: Option<usize>,
}

/// The words of the command line, or standard input for a lone `-`.
pub fn read_text(words: &[String]) -> Result<String> {
    if words != ["-"] {
        if words.last().is_some_and(|word| word == "-") {
            return Err(AppError::new(
                Exit::Usage,
                "`-` reads standard input and must be the only word; leave out the other words or the `-`",
            )
            .into());
        }
        return Ok(words.join(" "));
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(AppError::new(
            Exit::Usage,
            format!("standard input has more than {MAX_INPUT_BYTES} bytes"),
        )
        .into());
    }
    String::from_utf8(bytes).map_err(|error| {
        AppError::new(
            Exit::Usage,
            format!(
                "standard input is not UTF-8 from byte {} on",
                error.utf8_error().valid_up_to() + 1
            ),
        )
        .into()
    })
}

/// Parses the value of an option that takes a day.
pub fn parse_day_option(option: &str, text: Option<&str>, today: Date) -> Result<Option<Date>> {
    let Some(text) = text else { return Ok(None) };
    match parse_day(text, today) {
        Some(day) => Ok(Some(day)),
        None => Err(AppError::new(
            Exit::Usage,
            format!("{option}: `{text}` is not a day; write 2026-02-20, today, tomorrow, yesterday, friday, +3d or -2w"),
        )
        .into()),
    }
}

/// Warns about secrets that were replaced.
pub fn warn_hidden_secrets(secrets: &icecore_engine::SecretCounts, out: &mut Output) {
    for (kind, count) in secrets {
        out.warn(format!("{count} × a secret ({kind}) was replaced before anything was written"));
    }
}

fn warn_removed_characters(removed: usize, out: &mut Output) {
    if removed > 0 {
        out.warn(format!(
            "{removed} control character{} removed from the text",
            if removed == 1 { " was" } else { "s were" }
        ));
    }
}

/// Runs `icecore log`.
pub async fn log(open: &OpenMemory, log: &LogArgs, out: &mut Output) -> Result<()> {
    let logged = open.memory.append_to_log(&read_text(&log.text)?).await?;
    warn_removed_characters(logged.characters_removed, out);
    warn_hidden_secrets(&logged.secrets, out);
    if out.is_json() {
        return out.json(&logged);
    }
    let last = logged.appended.trim_start_matches('\n');
    let line = last.split_once("\n- ").map_or(last, |(_, line)| line).trim_start_matches("- ");
    out.line(format!(
        "{CYAN}{}{CYAN:#}  {}",
        logged.path,
        event_format::one_line_excerpt(line.trim_end())
    ))
}

/// Runs `icecore remember`.
pub async fn remember(open: &OpenMemory, args: &RememberArgs, out: &mut Output) -> Result<()> {
    let today = open.memory.now().day();
    let due = parse_day_option("--due", args.due.as_deref(), today)?;
    let remembered = open
        .memory
        .remember(icecore_engine::RememberRequest {
            text: read_text(&args.text)?,
            kind: args.kind,
            priority: args.priority,
            entity: args.entity.clone(),
            entity_kind: args.entity_kind,
            tags: args.tags.clone(),
            supersedes: args.supersedes.clone(),
            related: args.related.clone(),
            due,
            waiting_on: args.waiting_on.clone(),
            source: args.source.clone(),
            session: args.session.clone(),
            scope: args.scope.clone(),
            origin: args.origin,
        })
        .await?;
    warn_removed_characters(remembered.characters_removed, out);
    warn_hidden_secrets(&remembered.secrets, out);
    if out.is_json() {
        return out.json(&remembered);
    }
    let event = &remembered.event;
    let due = event.due.map_or(String::new(), |due| format!("  {YELLOW}due {due}{YELLOW:#}"));
    out.line(format!(
        "{CYAN}{}{CYAN:#}  {} {}  {}{due}",
        event.id,
        event.kind,
        event.priority,
        event_format::one_line_excerpt(&event.content)
    ))?;
    if icecore_domain::record::Trust::from_origin(event.origin)
        == icecore_domain::record::Trust::Low
    {
        out.info(format!(
            "{YELLOW}Its origin is {}, so it is quarantined until{YELLOW:#} `icecore confirm {}`; no pack shows it until then.",
            event.origin, event.id
        ));
    }
    if remembered.type_guessed {
        out.detail(format!(
            "The type was guessed. To change it: icecore remember … --type TYPE --supersedes {}",
            event.id
        ));
    }
    for id in &event.supersedes {
        out.info(format!("{DIM}It replaces {id}.{DIM:#}"));
    }
    for conflict in &remembered.conflicts {
        let others: Vec<String> =
            conflict.events.iter().filter(|id| **id != event.id).map(EventId::to_string).collect();
        out.info(format!(
            "{YELLOW}It contradicts {} about {}.{YELLOW:#} `icecore conflicts` shows how to settle it.",
            others.join(", "),
            event_format::one_line_excerpt(&conflict.about)
        ));
    }
    Ok(())
}

/// Runs a command that acts on events, such as `icecore close`.
pub async fn act_on_events(
    open: &OpenMemory,
    act: Act,
    on: &EventIdsArgs,
    out: &mut Output,
) -> Result<()> {
    warn_removed_characters(
        on.note.as_deref().map_or(0, |note| sanitize::clean(note).removed),
        out,
    );
    let acted = open
        .memory
        .append_act(act, on.ids.clone(), on.note.clone(), on.origin, on.session.clone())
        .await?;
    if let Some(first) = acted.first() {
        warn_hidden_secrets(&first.secrets, out);
    }
    print_acts(act, &acted, out)
}

/// Prints what happened to the events.
pub fn print_acts(act: Act, acted: &[icecore_engine::ActReport], out: &mut Output) -> Result<()> {
    if out.is_json() {
        return out.json_named("acts", &acted);
    }
    let word = match act {
        Act::Close => "closed",
        Act::Confirm => "confirmed",
        Act::Retract => "retracted",
        Act::Assert | Act::Promote => "noted",
    };
    for acted in acted {
        let target = &acted.target.event;
        out.line(format!(
            "{CYAN}{}{CYAN:#}  {GREEN}{word}{GREEN:#} {}  {}",
            acted.event.id,
            target.id,
            event_format::one_line_excerpt(&target.content)
        ))?;
        if act == Act::Retract {
            for (undone, effect) in target.effects().filter(|(undone, _)| *undone != target.id) {
                let what = match effect {
                    icecore_domain::event::Effect::Supersede => "is active again",
                    icecore_domain::event::Effect::Close => "is open again",
                    icecore_domain::event::Effect::Retract => "is back",
                    _ => continue,
                };
                out.info(format!("{DIM}{undone} {what}.{DIM:#}"));
            }
        }
    }
    Ok(())
}

/// Imports hand-written extracts from the logs and reports them.
pub async fn scan_logs(open: &OpenMemory, out: &mut Output) {
    print_scan(&open.memory.scan_recent_logs().await, out);
}

/// Prints what a scan of the logs imported.
pub fn print_scan(report: &LogScanReport, out: &mut Output) {
    for imported in &report.imported {
        let replaces = imported.replaces.map_or(String::new(), |id| format!(", replacing {id}"));
        out.info(format!(
            "{DIM}Imported {} from {}{replaces}.{DIM:#}",
            imported.event.id, imported.place
        ));
    }
    for (kind, count) in &report.secrets {
        out.warn(format!("{count} × a secret ({kind}) in an edited log was replaced there"));
    }
    for complaint in &report.complaints {
        out.warn(complaint);
    }
}

/// Warns about unreadable or missing lines of the ledger; the output is then incomplete.
pub async fn warn_damage(open: &OpenMemory, out: &mut Output) -> Result<()> {
    const MAX_SHOWN_FAULTS: usize = 3;
    let faults = open.memory.store().line_faults().await?;
    for found in faults.iter().take(MAX_SHOWN_FAULTS) {
        out.warn(format!(
            "{}:{} {}. `icecore doctor` shows what to do.",
            icecore_domain::layout::LEDGER,
            found.line,
            found.fault.what
        ));
    }
    if faults.len() > MAX_SHOWN_FAULTS {
        out.warn(format!(
            "{} more lines of {} cannot be read",
            faults.len() - MAX_SHOWN_FAULTS,
            icecore_domain::layout::LEDGER
        ));
    }
    let lost = open.memory.store().lost_events().await?;
    if let Some(first) = lost.first() {
        let others =
            if lost.len() > 1 { format!(" and {} more", lost.len() - 1) } else { String::new() };
        out.warn(format!(
            "{first}{others} no longer in {}: lines were removed or damaged. `icecore doctor --fix` restores what a snapshot still has.",
            icecore_domain::layout::LEDGER
        ));
    }
    Ok(())
}

/// Runs `icecore events`.
pub async fn events(open: &OpenMemory, asked: &EventsArgs, out: &mut Output) -> Result<()> {
    scan_logs(open, out).await;
    let today = open.memory.now().day();
    let query = EventQuery {
        state: if asked.all { EventStateFilter::Any } else { EventStateFilter::Active },
        ids: Vec::new(),
        kinds: asked.kinds.clone(),
        priorities: asked.priorities.clone(),
        entity: asked.entity.as_deref().map(sanitize::entity_key),
        tags: asked.tags.iter().map(|tag| tag.trim().to_lowercase()).collect(),
        source: asked.source.clone(),
        session: asked.session.clone(),
        scope: asked.scope.clone(),
        since: parse_day_option("--since", asked.since.as_deref(), today)?,
        until: parse_day_option("--until", asked.until.as_deref(), today)?,
        text: (!asked.text.is_empty()).then(|| asked.text.join(" ")),
        limit: asked.limit,
        quarantined: asked.quarantined.then_some(true),
        ..EventQuery::default()
    };
    let found = open.memory.query_events(&query).await?;
    if out.is_json() {
        return out.json_named("events", &found);
    }
    if found.is_empty() {
        out.info("No matching events. `icecore events --all` lists every event.");
        return Ok(());
    }
    let narrow = out.is_narrow();
    let rows =
        found.iter().map(|entry| event_format::event_row(entry, asked.all, narrow)).collect();
    let header: &[&str] = match (narrow, asked.all) {
        (true, _) => &["ID", "TYPE", "P", "CONTENT"],
        (false, true) => &["ID", "TYPE", "P", "ENTITY", "STATE", "CONTENT"],
        (false, false) => &["ID", "TYPE", "P", "ENTITY", "CONTENT"],
    };
    out.table(header, rows)
}

/// Runs `icecore commitments`.
pub async fn commitments(open: &OpenMemory, out: &mut Output) -> Result<()> {
    scan_logs(open, out).await;
    let found = open.memory.list_open_commitments().await?;
    if let Err(error) = open.memory.refresh_open_loops().await {
        out.warn(format!("open-loops.json was not updated: {error}"));
    }
    if out.is_json() {
        return out.json_named("commitments", &found);
    }
    if found.is_empty() {
        out.info("Nothing is open. `icecore remember \"Send the offer\" --due friday` records a commitment.");
        return Ok(());
    }
    let now = open.memory.now();
    let narrow = out.is_narrow();
    let rows = found.iter().map(|entry| event_format::commitment_row(entry, now, narrow)).collect();
    let header: &[&str] = if narrow {
        &["ID", "AGE", "DUE", "CONTENT"]
    } else {
        &["ID", "P", "AGE", "DUE", "WAITING ON", "CONTENT"]
    };
    out.table(header, rows)
}

/// Runs `icecore conflicts`.
pub async fn conflicts(open: &OpenMemory, out: &mut Output) -> Result<()> {
    scan_logs(open, out).await;
    let found = open.memory.list_conflicts().await?;
    if out.is_json() {
        return out.json_named("conflicts", &json_output::conflicts(&found));
    }
    if found.is_empty() {
        out.info("No statements contradict each other.");
    }
    for (conflict, entries) in &found {
        out.line(format!("{YELLOW}⚠ {}{YELLOW:#}", sanitize::one_line(&conflict.about)))?;
        for entry in entries {
            let waits = if entry.is_quarantined() {
                format!("  {DIM}(unconfirmed){DIM:#}")
            } else {
                String::new()
            };
            out.line(format!(
                "    {CYAN}{}{CYAN:#}  {}  {}{waits}",
                entry.event.id,
                entry.event.ts.day(),
                event_format::one_line_excerpt(&entry.event.content)
            ))?;
        }
        for (what, command) in json_output::resolution_commands(entries) {
            out.line(format!("    {DIM}{what:<24} {command}{DIM:#}"))?;
        }
    }
    Ok(())
}

/// Runs `icecore show`.
pub async fn show(open: &OpenMemory, one: &ShowArgs, out: &mut Output) -> Result<()> {
    let story = open.memory.load_event_details(one.id).await?;
    if out.is_json() {
        return out.json(&story);
    }
    event_format::print_event(&story.entry, out)?;
    event_format::print_chain(&story, out)
}

/// Runs `icecore why`.
pub async fn why(open: &OpenMemory, why: &WhyArgs, out: &mut Output) -> Result<()> {
    let what = why.what.join(" ");
    let found = open.memory.trace_provenance(&what).await?;
    if out.is_json() {
        return out.json(&json_output::provenance(&what, &found));
    }
    for (at, one) in found.iter().enumerate() {
        if at > 0 {
            out.line("")?;
        }
        match one {
            Provenance::Event(provenance) => print_event_provenance(provenance, out)?,
            Provenance::Summary(provenance) => print_summary_provenance(provenance, out)?,
            Provenance::Page { path, events } => {
                out.line(format!("{BOLD}{}{BOLD:#}", sanitize::one_line(path)))?;
                for entry in events {
                    out.line(format!(
                        "  {CYAN}{}{CYAN:#}  {}  {}",
                        entry.event.id,
                        entry.state.word(),
                        event_format::one_line_excerpt(&entry.event.content)
                    ))?;
                }
                out.info(format!(
                    "{DIM}`icecore why ID` traces each of them to its source.{DIM:#}"
                ));
            }
        }
    }
    Ok(())
}

fn print_event_provenance(provenance: &EventProvenance, out: &mut Output) -> Result<()> {
    event_format::print_event(&provenance.story.entry, out)?;
    out.line("")?;
    out.line(format!("{BOLD}Where it comes from{BOLD:#}"))?;
    out.line(format!("  ledger   {}", provenance.ledger))?;
    let who = |entry: &LedgerEntry| format!("said by {} at {}", entry.event.origin, entry.event.ts);
    match &provenance.source {
        OriginalSource::Live => out.line(format!(
            "  source   live: {}; the ledger line is its first record",
            who(&provenance.story.entry)
        ))?,
        OriginalSource::Gone { path } => out.line(format!(
            "  source   {}, {YELLOW}which no longer exists{YELLOW:#}; only the ledger line is left",
            sanitize::one_line(path)
        ))?,
        OriginalSource::Elsewhere { name } => out.line(format!(
            "  source   {}, which icecore does not store",
            sanitize::one_line(name)
        ))?,
        OriginalSource::File { path, line: None, .. } => {
            out.line(format!("  source   {path}, {YELLOW}where the line is not found any more{YELLOW:#}: it was edited or removed"))?;
        }
        file @ OriginalSource::File { .. } => print_source(file, out)?,
        record @ OriginalSource::Record { .. } => {
            print_record(record, provenance.quote.as_deref(), out)?
        }
    }
    event_format::print_chain(&provenance.story, out)
}

fn print_source(source: &OriginalSource, out: &mut Output) -> Result<()> {
    let OriginalSource::File { path, line: Some(line), context } = source else {
        return print_record(source, None, out);
    };
    out.line(format!("  source   {path}:{line}"))?;
    for (number, text) in context {
        let mark = if number == line { ">" } else { " " };
        out.line(format!(
            "           {mark} {DIM}{number:>4}{DIM:#}  {}",
            sanitize::one_line(text)
        ))?;
    }
    Ok(())
}

fn print_record(source: &OriginalSource, quote: Option<&str>, out: &mut Output) -> Result<()> {
    let OriginalSource::Record { path, id, conversation, ts, speaker, text, withdrawn, .. } =
        source
    else {
        return Ok(());
    };
    out.line(format!(
        "  source   {path}  {DIM}{} in {}{DIM:#}",
        sanitize::one_line(id),
        sanitize::one_line(conversation)
    ))?;
    if let Some(quote) = quote {
        out.line(format!("  words    \"{}\"", event_format::one_line_excerpt(quote)))?;
    }
    let (speaker, gist) = (sanitize::one_line(speaker), event_format::one_line_excerpt(text));
    let withdrawn =
        if *withdrawn { format!(" {YELLOW}(withdrawn){YELLOW:#}") } else { String::new() };
    out.line(format!(
        "           {DIM}{} {}{DIM:#} {CYAN}{speaker}{CYAN:#}{withdrawn}: {gist}",
        ts.day(),
        ts.clock_time()
    ))
}

fn print_summary_provenance(provenance: &SummaryProvenance, out: &mut Output) -> Result<()> {
    for (at, step) in provenance.steps.iter().enumerate() {
        let indent = "  ".repeat(at);
        out.line(format!(
            "{indent}{CYAN}{BOLD}{}{BOLD:#}{CYAN:#}  {DIM}version {} by {}, {}{DIM:#}",
            step.period,
            step.version,
            sanitize::one_line(&step.made_by),
            step.path
        ))?;
        out.line(format!("{indent}  {}", event_format::one_line_excerpt(&step.says)))?;
    }
    if !provenance.sources.is_empty() {
        out.line(format!("  made from {}", provenance.sources.join(", ")))?;
        out.info(format!(
            "{DIM}`icecore why {}` goes one step further.{DIM:#}",
            provenance.sources[0]
        ));
    }
    provenance.records.iter().try_for_each(|source| print_source(source, out))
}
