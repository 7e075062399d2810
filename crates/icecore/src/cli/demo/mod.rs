//! `demo`: a sample vault under a fixed clock: a day with the ledger, then ninety days of sessions
//! summarized.
//!
//! It runs the real commands; only the person is invented.

mod core_chart;
mod day_scenes;
mod sample_life;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::event::{Act, Origin};
use icecore_domain::id::EventId;
use icecore_domain::record::IncomingMessage;
use icecore_domain::summary::{SummaryHead, SummaryQuery, Tier};
use icecore_engine::{CaptureDefaults, RememberRequest, RollupRequest};
use jiff::ToSpan;
use jiff::civil::{Date, DateTime, time};
use serde::Serialize;

use self::sample_life::{DemoSession, SessionStep};
use super::output::{BOLD, CYAN, DIM, Output};
use super::{Cli, GlobalArgs};
use crate::bootstrap::{self, OpenMemory};

/// The contents of the finished demo vault.
#[derive(Debug, Serialize)]
struct DemoReport {
    vault: PathBuf,
    days: usize,
    sessions: usize,
    messages: usize,
    bytes: usize,
    summaries: BTreeMap<Tier, usize>,
    upload_bytes: usize,
    #[serde(skip)]
    heads: Vec<SummaryHead>,
    #[serde(skip)]
    upload: String,
    #[serde(skip)]
    primer: String,
}

/// The time zone of the sample life.
const DEMO_ZONE: &str = "Europe/Berlin";
/// The time at which the results are shown.
const VIEWED_AT: DateTime = DateTime::constant(2026, 5, 17, 9, 0, 0, 0);
/// The day that `zoom` shows.
const SHOWN_DAY: &str = "2026-04-24";
/// The primer of its week.
const SHOWN_PRIMER: &str = "primers/weekly/2026-W17.md";
/// Printed lines of the upload pack, and of the primer.
const UPLOAD_LINES: usize = 12;
const PRIMER_LINES: usize = 30;

/// Runs both parts; with --json silently, printing the contents of the vault.
pub async fn run_demo(global: &GlobalArgs, out: &mut Output) -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("icecore-demo-")
        .tempdir()
        .context("making a temporary folder")?
        .keep();
    let stage = DemoVault { global: global.clone(), root: folder.join("vault") };
    if out.is_json() {
        let counts = stage.run_all(&mut Output::silent(global)).await?;
        return out.json(&counts);
    }
    stage.run_all(out).await?;
    Ok(())
}

/// The demo vault and the global options.
struct DemoVault {
    global: GlobalArgs,
    root: PathBuf,
}

impl DemoVault {
    async fn run_all(&self, out: &mut Output) -> Result<DemoReport> {
        self.play_day(out).await?;
        let counts = self.play_ninety_days(out).await?;
        self.show_results(&counts, out).await?;
        self.print_next_steps(out)?;
        Ok(counts)
    }

    async fn play_day(&self, out: &mut Output) -> Result<()> {
        out.line(format!(
            "{BOLD}A day with icecore{BOLD:#}, in a sample vault under a fixed clock."
        ))?;
        self.run_command(out, "2026-02-02T09:00:00+01:00", &["init", "--tz", DEMO_ZONE]).await?;
        for scene in day_scenes::DAY_SCENES {
            if !scene.why.is_empty() {
                print_title(out, scene.why, &scene.at[..16].replace('T', " "))?;
            }
            if scene.command.is_empty() {
                self.write_by_hand(out).await?;
            } else {
                self.run_command(out, scene.at, scene.command).await?;
            }
        }
        Ok(())
    }

    async fn write_by_hand(&self, out: &mut Output) -> Result<()> {
        let (log, open) = ("memory/2026-02-13.md".parse()?, self.open().await?);
        open.memory
            .store()
            .append_to_document(&log, day_scenes::PRIORITY_EXTRACTS.as_bytes())
            .await?;
        day_scenes::PRIORITY_EXTRACTS
            .trim()
            .lines()
            .try_for_each(|line| out.line(format!("{DIM}memory/2026-02-13.md |{DIM:#} {line}")))
    }

    /// Plays the days one after the other: messages are stored, and every night due summaries are
    /// made.
    async fn play_ninety_days(&self, out: &mut Output) -> Result<DemoReport> {
        out.line("")?;
        out.line(format!(
            "{BOLD}Ninety days with icecore{BOLD:#}: Mira Holt rebuilds a tea shop, has a client,"
        ))?;
        out.line("a talk to give, a garden and a family. Her sessions are kept word for word;")?;
        out.line("every night at three they are summarized: sessions into days and weeks,")?;
        out.line("weeks into months. No model is asked.")?;
        out.flush()?;
        let (bar, begun) = (out.step_bar("summarizing"), bootstrap::start_stopwatch());
        let vault = self.open().await?;
        let (key, id) = sample_life::OPEN_COMMITMENT;
        let (days, mut keys) =
            (sample_life::days(), HashMap::from([(key.to_owned(), id.parse()?)]));
        bar.set_length(days.len() as u64);
        for (day, sessions) in &days {
            bar.set_message(day.to_string());
            for session in sessions {
                self.play_session(&vault, *day, session, &mut keys).await?;
            }
            self.run_night(&vault, *day).await?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let open = self.open_at(&vault, VIEWED_AT).await?;
        open.memory.verify().await?;
        let counts = collect_report(&open, days.len()).await?;
        out.line("")?;
        out.line(format!(
            "{} days summarized in {:.1} s: {BOLD}{} sessions, {} messages, {:.0} kB of words{BOLD:#}.",
            counts.days,
            begun.seconds(),
            counts.sessions,
            counts.messages,
            kilobytes(counts.bytes)
        ))?;
        Ok(counts)
    }

    /// Stores one session, as a client does when it ends.
    async fn play_session(
        &self,
        vault: &OpenMemory,
        day: Date,
        session: &DemoSession,
        keys: &mut HashMap<String, EventId>,
    ) -> Result<()> {
        let mut at = day.to_datetime(session.begins);
        let mut said = Vec::new();
        for (number, step) in session.steps.iter().enumerate() {
            match step {
                SessionStep::Waits(until) => at = day.to_datetime(*until),
                SessionStep::Says(role, text) => {
                    said.push(IncomingMessage {
                        ts: Some(berlin_moment(at)?),
                        role: Some(*role),
                        text: text.clone(),
                        ..IncomingMessage::default()
                    });
                    at = at.saturating_add(sample_life::pause_minutes(day, number).minutes());
                }
                _ => {}
            }
        }
        let open = self.open_at(vault, at).await?;
        let name = format!("{} {}", session.conversation, session.begins.strftime("%H:%M"));
        let gaps = CaptureDefaults {
            conversation: Some(session.conversation.clone()),
            session: Some(name),
            origin: None,
            ..CaptureDefaults::default()
        };
        open.memory.add_messages(said, &gaps).await?;
        for step in &session.steps {
            match step {
                SessionStep::Says(..) | SessionStep::Waits(_) => {}
                SessionStep::Learns(learnt) => {
                    let remember = RememberRequest {
                        text: learnt.text.clone(),
                        kind: Some(learnt.kind),
                        priority: Some(learnt.priority),
                        entity: Some(learnt.entity.clone()),
                        due: learnt.due,
                        session: gaps.session.clone(),
                        ..RememberRequest::default()
                    };
                    let remembered = open.memory.remember(remember).await?;
                    keys.extend(learnt.key.clone().map(|key| (key, remembered.event.id)));
                }
                SessionStep::Closes { key, note } => {
                    let id = keys.remove(key).with_context(|| {
                        format!("the sample life closes {key}, which is not open")
                    })?;
                    open.memory
                        .append_act(
                            Act::Close,
                            vec![id],
                            Some(note.clone()),
                            Origin::User,
                            gaps.session.clone(),
                        )
                        .await?;
                }
                SessionStep::Saves { title, text } => {
                    open.memory.save_state(text, Some(title), Origin::Assistant).await?;
                }
                SessionStep::Marks(importance) => {
                    open.memory.set_importance(day, Some(*importance)).await?
                }
            }
        }
        Ok(())
    }

    /// The nightly rollup after a day, without its snapshot: ninety git commits would take longer
    /// than everything else.
    async fn run_night(&self, vault: &OpenMemory, day: Date) -> Result<()> {
        let open = self.open_at(vault, day.tomorrow()?.to_datetime(time(3, 0, 0, 0))).await?;
        open.memory.run_rollup(&RollupRequest::default(), None, &|_, _, _| {}).await?;
        Ok(())
    }

    async fn show_results(&self, counts: &DemoReport, out: &mut Output) -> Result<()> {
        let now = berlin_moment(VIEWED_AT)?.to_string();
        print_title(
            out,
            "The timeline: the newest week on top, as wide as its number of messages",
            "",
        )?;
        let (lines, per_column) = core_chart::draw(&counts.heads);
        lines.into_iter().try_for_each(|line| out.line(line))?;
        let messages =
            if per_column == 1 { "a message".into() } else { format!("{per_column} messages") };
        out.line(format!(
            "{DIM}  = {messages} of a day, # of an important one, . of a dull one{DIM:#}"
        ))?;

        print_title(out, "What a new session begins with", "")?;
        print_excerpt(
            out,
            &format!("icecore pack upload | head -n {UPLOAD_LINES}"),
            &counts.upload,
            UPLOAD_LINES,
        )?;
        out.line(format!(
            "{BOLD}{} sessions, {} messages, {:.0} kB of words → one package of {} bytes{BOLD:#}",
            counts.sessions,
            counts.messages,
            kilobytes(counts.bytes),
            counts.upload_bytes
        ))?;

        print_title(out, "What was said on that Friday? Every word is still there", "")?;
        self.run_command(out, &now, &["zoom", SHOWN_DAY]).await?;
        print_title(out, "And the summary of its week?", "")?;
        print_excerpt(
            out,
            &format!("head -n {PRIMER_LINES} {SHOWN_PRIMER}"),
            &counts.primer,
            PRIMER_LINES,
        )?;
        print_title(out, "The screen to look at first", "")?;
        self.run_command(out, &now, &["status"]).await
    }

    fn print_next_steps(&self, out: &mut Output) -> Result<()> {
        let root = self.root.display();
        out.line("")?;
        out.line(format!("All of it is plain files in {BOLD}{root}{BOLD:#}. Look around:"))?;
        out.line(format!("  {CYAN}export ICECORE_VAULT={root}{CYAN:#}"))?;
        for command in ["pack pyramid", "zoom apr 2026 --summary", "zoom 2026-05-08", "commitments"]
        {
            out.line(format!(
                "  {CYAN}icecore --now {} {command}{CYAN:#}",
                berlin_moment(VIEWED_AT)?
            ))?;
        }
        out.line(format!("then {CYAN}unset ICECORE_VAULT{CYAN:#} and create your own memory with {CYAN}icecore init{CYAN:#}."))
    }

    async fn open(&self) -> Result<OpenMemory> {
        bootstrap::open_memory(&self.global.with_vault(self.root.clone())).await
    }

    async fn open_at(&self, vault: &OpenMemory, at: DateTime) -> Result<OpenMemory> {
        vault
            .reopen_at(&GlobalArgs {
                now: Some(berlin_moment(at)?.to_string()),
                ..self.global.clone()
            })
            .await
    }

    async fn run_command(&self, out: &mut Output, at: &str, command: &[&str]) -> Result<()> {
        let shown: Vec<String> =
            command
                .iter()
                .map(|word| {
                    if word.contains([' ', '"']) {
                        format!("\"{word}\"")
                    } else {
                        (*word).to_owned()
                    }
                })
                .collect();
        out.line(format!("{CYAN}$ icecore {}{CYAN:#}", shown.join(" ")))?;
        out.flush()?;
        let root = self.root.to_string_lossy();
        let words =
            ["icecore", "--vault", &root, "--now", at].into_iter().chain(command.iter().copied());
        let mut cli = Cli::parse_words(words)?;
        (cli.global.color, cli.global.quiet, cli.global.verbose) =
            (self.global.color, self.global.quiet, self.global.verbose);
        let mut scene = out.with_merged_streams(&cli.global);
        Box::pin(super::run_command(&cli, &mut scene)).await?;
        scene.flush()
    }
}

async fn collect_report(open: &OpenMemory, days: usize) -> Result<DemoReport> {
    let store = open.memory.store();
    let records = store.records(sample_life::DAYS).await?;
    let heads = store.summary_heads(&SummaryQuery::default()).await?.0;
    let pack = open.memory.assemble_upload(None, None).await?;
    let mut summaries = BTreeMap::new();
    for head in &heads {
        *summaries.entry(head.period.tier()).or_default() += 1;
    }
    Ok(DemoReport {
        vault: open.place.folder().unwrap_or(Path::new("")).to_owned(),
        days,
        sessions: store.sessions(Some(sample_life::DAYS)).await?.len(),
        messages: records.len(),
        bytes: records.iter().map(|record| record.text.len()).sum(),
        summaries,
        upload_bytes: pack.bytes,
        heads,
        upload: pack.text,
        primer: String::from_utf8_lossy(
            &store.document(&SHOWN_PRIMER.parse()?).await?.unwrap_or_default(),
        )
        .into_owned(),
    })
}

/// The moment at which the clocks in Berlin show that time.
fn berlin_moment(at: DateTime) -> Result<Moment> {
    let zone = Zone::from_name(DEMO_ZONE)?;
    Ok(zone.moment(zone.instant_at(at.date(), at.time())))
}

fn print_title(out: &mut Output, text: &str, when: &str) -> Result<()> {
    out.line("")?;
    let when = if when.is_empty() { String::new() } else { format!("  {DIM}{when}{DIM:#}") };
    out.line(format!("{BOLD}# {text}{BOLD:#}{when}"))
}

fn print_excerpt(out: &mut Output, command: &str, text: &str, lines: usize) -> Result<()> {
    out.line(format!("{CYAN}$ {command}{CYAN:#}"))?;
    text.lines().take(lines).try_for_each(|line| out.line(line))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn kilobytes(bytes: usize) -> f64 {
    bytes as f64 / 1_000.0
}
