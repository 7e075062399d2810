//! `demo`: a sample vault under a fixed clock: a day with the ledger, then ninety days of sessions
//! summarized.
//!
//! It runs the real commands; only the person is invented.

mod core;
mod day;
mod life;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use icecore_domain::calendar::{Moment, Zone};
use icecore_domain::event::{Act, Origin};
use icecore_domain::id::EventId;
use icecore_domain::record::Said;
use icecore_domain::summary::{Head, SummaryQuery, Tier};
use icecore_engine::{Gaps, Remember, Wish};
use jiff::ToSpan;
use jiff::civil::{Date, DateTime, time};
use serde::Serialize;

use self::life::{Session, Step};
use super::out::{BOLD, CYAN, DIM, Out};
use super::{Cli, Global};
use crate::wire::{self, Open};

/// The contents of the finished demo vault.
#[derive(Debug, Serialize)]
struct Counts {
    vault: PathBuf,
    days: usize,
    sessions: usize,
    messages: usize,
    bytes: usize,
    summaries: BTreeMap<Tier, usize>,
    upload_bytes: usize,
    #[serde(skip)]
    heads: Vec<Head>,
    #[serde(skip)]
    upload: String,
    #[serde(skip)]
    primer: String,
}

/// The time zone of the sample life.
const ZONE: &str = "Europe/Berlin";
/// The time at which the results are shown.
const AFTERWARDS: DateTime = DateTime::constant(2026, 5, 17, 9, 0, 0, 0);
/// The day that `zoom` shows.
const THAT_FRIDAY: &str = "2026-04-24";
/// The primer of its week.
const ITS_PRIMER: &str = "primers/weekly/2026-W17.md";
/// Printed lines of the upload pack, and of the primer.
const UPLOAD_LINES: usize = 12;
const PRIMER_LINES: usize = 30;

/// Runs both parts; with --json silently, printing the contents of the vault.
pub async fn run(global: &Global, out: &mut Out) -> Result<()> {
    let folder = tempfile::Builder::new()
        .prefix("icecore-demo-")
        .tempdir()
        .context("making a temporary folder")?
        .keep();
    let stage = Stage { global: global.clone(), root: folder.join("vault") };
    if out.is_json() {
        let counts = stage.perform(&mut Out::muted(global)).await?;
        return out.json(&counts);
    }
    stage.perform(out).await?;
    Ok(())
}

/// The demo vault and the global options.
struct Stage {
    global: Global,
    root: PathBuf,
}

impl Stage {
    async fn perform(&self, out: &mut Out) -> Result<Counts> {
        self.a_day(out).await?;
        let counts = self.ninety_days(out).await?;
        self.look_back(&counts, out).await?;
        self.farewell(out)?;
        Ok(counts)
    }

    async fn a_day(&self, out: &mut Out) -> Result<()> {
        out.line(format!(
            "{BOLD}A day with icecore{BOLD:#}, in a sample vault under a fixed clock."
        ))?;
        self.play(out, "2026-02-02T09:00:00+01:00", &["init", "--tz", ZONE]).await?;
        for scene in day::DAY {
            if !scene.why.is_empty() {
                title(out, scene.why, &scene.at[..16].replace('T', " "))?;
            }
            if scene.command.is_empty() {
                self.write_by_hand(out).await?;
            } else {
                self.play(out, scene.at, scene.command).await?;
            }
        }
        Ok(())
    }

    async fn write_by_hand(&self, out: &mut Out) -> Result<()> {
        let (log, open) = ("memory/2026-02-13.md".parse()?, self.open().await?);
        open.memory.store().extend(&log, day::EXTRACTS.as_bytes()).await?;
        day::EXTRACTS
            .trim()
            .lines()
            .try_for_each(|line| out.line(format!("{DIM}memory/2026-02-13.md |{DIM:#} {line}")))
    }

    /// Plays the days one after the other: messages are stored, and every night due summaries are
    /// made.
    async fn ninety_days(&self, out: &mut Out) -> Result<Counts> {
        out.line("")?;
        out.line(format!(
            "{BOLD}Ninety days with icecore{BOLD:#}: Mira Holt rebuilds a tea shop, has a client,"
        ))?;
        out.line("a talk to give, a garden and a family. Her sessions are kept word for word;")?;
        out.line("every night at three they are summarized: sessions into days and weeks,")?;
        out.line("weeks into months. No model is asked.")?;
        out.flush()?;
        let (bar, begun) = (out.steps("summarizing"), wire::stopwatch());
        let vault = self.open().await?;
        let (key, id) = life::PROMISED;
        let (days, mut keys) = (life::days(), HashMap::from([(key.to_owned(), id.parse()?)]));
        bar.set_length(days.len() as u64);
        for (day, sessions) in &days {
            bar.set_message(day.to_string());
            for session in sessions {
                self.live(&vault, *day, session, &mut keys).await?;
            }
            self.night(&vault, *day).await?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let open = self.at(&vault, AFTERWARDS).await?;
        open.memory.verify().await?;
        let counts = count(&open, days.len()).await?;
        out.line("")?;
        out.line(format!(
            "{} days summarized in {:.1} s: {BOLD}{} sessions, {} messages, {:.0} kB of words{BOLD:#}.",
            counts.days,
            begun.seconds(),
            counts.sessions,
            counts.messages,
            kilo(counts.bytes)
        ))?;
        Ok(counts)
    }

    /// Stores one session, as a client does when it ends.
    async fn live(
        &self,
        vault: &Open,
        day: Date,
        session: &Session,
        keys: &mut HashMap<String, EventId>,
    ) -> Result<()> {
        let mut at = day.to_datetime(session.begins);
        let mut said = Vec::new();
        for (number, step) in session.steps.iter().enumerate() {
            match step {
                Step::Waits(until) => at = day.to_datetime(*until),
                Step::Says(role, text) => {
                    said.push(Said {
                        ts: Some(moment(at)?),
                        role: Some(*role),
                        text: text.clone(),
                        ..Said::default()
                    });
                    at = at.saturating_add(life::pause(day, number).minutes());
                }
                _ => {}
            }
        }
        let open = self.at(vault, at).await?;
        let name = format!("{} {}", session.conversation, session.begins.strftime("%H:%M"));
        let gaps = Gaps {
            conversation: Some(session.conversation.clone()),
            session: Some(name),
            origin: None,
            ..Gaps::default()
        };
        open.memory.add_messages(said, &gaps).await?;
        for step in &session.steps {
            match step {
                Step::Says(..) | Step::Waits(_) => {}
                Step::Learns(learnt) => {
                    let remember = Remember {
                        text: learnt.text.clone(),
                        kind: Some(learnt.kind),
                        priority: Some(learnt.priority),
                        entity: Some(learnt.entity.clone()),
                        due: learnt.due,
                        session: gaps.session.clone(),
                        ..Remember::default()
                    };
                    let remembered = open.memory.remember(remember).await?;
                    keys.extend(learnt.key.clone().map(|key| (key, remembered.event.id)));
                }
                Step::Closes { key, note } => {
                    let id = keys.remove(key).with_context(|| {
                        format!("the sample life closes {key}, which is not open")
                    })?;
                    open.memory
                        .act(
                            Act::Close,
                            vec![id],
                            Some(note.clone()),
                            Origin::User,
                            gaps.session.clone(),
                        )
                        .await?;
                }
                Step::Saves { title, text } => {
                    open.memory.save_state(text, Some(title), Origin::Assistant).await?;
                }
                Step::Marks(importance) => open.memory.mark(day, Some(*importance)).await?,
            }
        }
        Ok(())
    }

    /// The nightly rollup after a day, without its snapshot: ninety git commits would take longer
    /// than everything else.
    async fn night(&self, vault: &Open, day: Date) -> Result<()> {
        let open = self.at(vault, day.tomorrow()?.to_datetime(time(3, 0, 0, 0))).await?;
        open.memory.roll(&Wish::default(), None, &|_, _, _| {}).await?;
        Ok(())
    }

    async fn look_back(&self, counts: &Counts, out: &mut Out) -> Result<()> {
        let now = moment(AFTERWARDS)?.to_string();
        title(out, "The timeline: the newest week on top, as wide as its number of messages", "")?;
        let (lines, per_column) = core::draw(&counts.heads);
        lines.into_iter().try_for_each(|line| out.line(line))?;
        let messages =
            if per_column == 1 { "a message".into() } else { format!("{per_column} messages") };
        out.line(format!(
            "{DIM}  = {messages} of a day, # of an important one, . of a dull one{DIM:#}"
        ))?;

        title(out, "What a new session begins with", "")?;
        excerpt(
            out,
            &format!("icecore pack upload | head -n {UPLOAD_LINES}"),
            &counts.upload,
            UPLOAD_LINES,
        )?;
        out.line(format!(
            "{BOLD}{} sessions, {} messages, {:.0} kB of words → one package of {} bytes{BOLD:#}",
            counts.sessions,
            counts.messages,
            kilo(counts.bytes),
            counts.upload_bytes
        ))?;

        title(out, "What was said on that Friday? Every word is still there", "")?;
        self.play(out, &now, &["zoom", THAT_FRIDAY]).await?;
        title(out, "And the summary of its week?", "")?;
        excerpt(
            out,
            &format!("head -n {PRIMER_LINES} {ITS_PRIMER}"),
            &counts.primer,
            PRIMER_LINES,
        )?;
        title(out, "The screen to look at first", "")?;
        self.play(out, &now, &["status"]).await
    }

    fn farewell(&self, out: &mut Out) -> Result<()> {
        let root = self.root.display();
        out.line("")?;
        out.line(format!("All of it is plain files in {BOLD}{root}{BOLD:#}. Look around:"))?;
        out.line(format!("  {CYAN}export ICECORE_VAULT={root}{CYAN:#}"))?;
        for command in ["pack pyramid", "zoom apr 2026 --summary", "zoom 2026-05-08", "commitments"]
        {
            out.line(format!("  {CYAN}icecore --now {} {command}{CYAN:#}", moment(AFTERWARDS)?))?;
        }
        out.line(format!("then {CYAN}unset ICECORE_VAULT{CYAN:#} and create your own memory with {CYAN}icecore init{CYAN:#}."))
    }

    async fn open(&self) -> Result<Open> {
        wire::open(&self.global.about(self.root.clone())).await
    }

    async fn at(&self, vault: &Open, at: DateTime) -> Result<Open> {
        vault.at(&Global { now: Some(moment(at)?.to_string()), ..self.global.clone() }).await
    }

    async fn play(&self, out: &mut Out, at: &str, command: &[&str]) -> Result<()> {
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
        let mut cli = Cli::read(words)?;
        (cli.global.color, cli.global.quiet, cli.global.verbose) =
            (self.global.color, self.global.quiet, self.global.verbose);
        let mut scene = out.together(&cli.global);
        Box::pin(super::run(&cli, &mut scene)).await?;
        scene.flush()
    }
}

async fn count(open: &Open, days: usize) -> Result<Counts> {
    let store = open.memory.store();
    let records = store.records(life::DAYS).await?;
    let heads = store.heads(&SummaryQuery::default()).await?.0;
    let pack = open.memory.pack_upload(None, None).await?;
    let mut summaries = BTreeMap::new();
    for head in &heads {
        *summaries.entry(head.period.tier()).or_default() += 1;
    }
    Ok(Counts {
        vault: open.place.folder().unwrap_or(Path::new("")).to_owned(),
        days,
        sessions: store.sessions(Some(life::DAYS)).await?.len(),
        messages: records.len(),
        bytes: records.iter().map(|record| record.text.len()).sum(),
        summaries,
        upload_bytes: pack.bytes,
        heads,
        upload: pack.text,
        primer: String::from_utf8_lossy(
            &store.document(&ITS_PRIMER.parse()?).await?.unwrap_or_default(),
        )
        .into_owned(),
    })
}

/// The moment at which the clocks in Berlin show that time.
fn moment(at: DateTime) -> Result<Moment> {
    let zone = Zone::named(ZONE)?;
    Ok(zone.moment(zone.at(at.date(), at.time())))
}

fn title(out: &mut Out, text: &str, when: &str) -> Result<()> {
    out.line("")?;
    let when = if when.is_empty() { String::new() } else { format!("  {DIM}{when}{DIM:#}") };
    out.line(format!("{BOLD}# {text}{BOLD:#}{when}"))
}

fn excerpt(out: &mut Out, command: &str, text: &str, lines: usize) -> Result<()> {
    out.line(format!("{CYAN}$ {command}{CYAN:#}"))?;
    text.lines().take(lines).try_for_each(|line| out.line(line))
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn kilo(bytes: usize) -> f64 {
    bytes as f64 / 1_000.0
}
