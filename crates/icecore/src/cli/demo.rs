//! A day with icecore, in a sample vault under a fixed clock: the same commands a person types, for real.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser;

use super::out::{BOLD, CYAN, DIM, Out};
use super::{Cli, Global};
use crate::wire;

/// One thing that happens: when, what it shows, and the command; an empty command is a hand edit.
struct Scene {
    at: &'static str,
    why: &'static str,
    command: &'static [&'static str],
}

const DAY: &[Scene] = &[
    Scene {
        at: "2026-02-02T09:05:00+01:00",
        why: "A rule that must never be broken",
        command: &["remember", "Never deploy on Fridays", "--priority", "P0", "--entity", "shop"],
    },
    Scene {
        at: "2026-02-02T09:10:00+01:00",
        why: "A promise, with a day and somebody it waits for",
        command: &["remember", "Send the offer to Client X", "--due", "2026-02-12", "--waiting-on", "the lawyers", "--entity", "Client X"],
    },
    Scene {
        at: "2026-02-03T11:00:00+01:00",
        why: "A decision and a fact; the type is read from the words",
        command: &["remember", "Decided on one price for all", "--entity", "pricing"],
    },
    Scene {
        at: "2026-02-03T11:02:00+01:00",
        why: "",
        command: &["remember", "The marketing budget is 500 EUR", "--entity", "pricing", "--priority", "P1"],
    },
    Scene {
        at: "2026-02-13T09:30:00+01:00",
        why: "Ten days later the fact has changed, and somebody just writes down the new one",
        command: &["remember", "The marketing budget is 600 EUR", "--entity", "pricing", "--priority", "P1"],
    },
    Scene { at: "2026-02-13T09:31:00+01:00", why: "Nothing is resolved in silence", command: &["conflicts"] },
    Scene { at: "2026-02-13T09:32:00+01:00", why: "", command: &["retract", "EVT-20260203-002", "--note", "raised to 600"] },
    Scene {
        at: "2026-02-13T10:00:00+01:00",
        why: "The day's log, a line at a time",
        command: &["log", "Call with Client X: they want two more weeks"],
    },
    Scene {
        at: "2026-02-13T10:05:00+01:00",
        why: "An assistant ends its session with a section in the same file, in its own editor",
        command: &[],
    },
    Scene { at: "2026-02-13T10:06:00+01:00", why: "icecore notices", command: &["commitments"] },
    Scene {
        at: "2026-02-13T16:00:00+01:00",
        why: "Done",
        command: &["close", "EVT-20260202-002", "--note", "sent, with the lawyers' blessing"],
    },
    Scene { at: "2026-02-13T16:01:00+01:00", why: "Where does a line come from?", command: &["why", "EVT-20260213-004"] },
    Scene { at: "2026-02-13T17:00:00+01:00", why: "Is everything still there?", command: &["verify"] },
    Scene { at: "2026-02-13T17:01:00+01:00", why: "The screen to look at first", command: &["status"] },
    Scene { at: "2026-02-04T09:00:00+01:00", why: "And what did we know on the 4th?", command: &["events"] },
];

const EXTRACTS: &str =
    "\n## Priority Extracts\n- [P1 commitment] Move the deadline of Client X to 2026-02-27\n- [P2] Client X prefers calls in the morning\n";

/// Plays the day; for a machine, unseen, and says where the vault is.
pub async fn run(global: &Global, out: &mut Out) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("icecore-demo-").tempdir().context("making a temporary folder")?.keep();
    let root = folder.join("vault");
    if out.is_json() {
        perform(global, &mut Out::muted(global), &root).await?;
        return out.json_named("vault", &root);
    }
    perform(global, out, &root).await
}

async fn perform(global: &Global, out: &mut Out, root: &Path) -> Result<()> {
    out.line(format!("{BOLD}A day with icecore{BOLD:#}, in a sample vault under a fixed clock."))?;
    play(global, out, root, "2026-02-02T09:00:00+01:00", &["init", "--tz", "Europe/Berlin"]).await?;
    for scene in DAY {
        if !scene.why.is_empty() {
            out.line("")?;
            out.line(format!("{BOLD}# {}{BOLD:#}  {DIM}{}{DIM:#}", scene.why, &scene.at[..16].replace('T', " ")))?;
        }
        if scene.command.is_empty() {
            let log = "memory/2026-02-13.md".parse()?;
            let open = wire::open(&Global { vault: Some(root.to_owned()), ..global.clone() }).await?;
            let so_far = open.memory.store().document(&log).await?.unwrap_or_default();
            open.memory.store().grow(&log, EXTRACTS.as_bytes(), so_far.len() as u64).await?;
            for line in EXTRACTS.trim().lines() {
                out.line(format!("{DIM}memory/2026-02-13.md |{DIM:#} {line}"))?;
            }
            continue;
        }
        play(global, out, root, scene.at, scene.command).await?;
    }
    out.line("")?;
    out.line(format!("All of it is plain files in {BOLD}{}{BOLD:#}. Look at memory/ledger.jsonl, then try", root.display()))?;
    out.line(format!("  {CYAN}icecore --vault {} status{CYAN:#}", root.display()))?;
    out.line(format!("and begin your own memory with {CYAN}icecore init{CYAN:#}."))?;
    Ok(())
}

async fn play(global: &Global, out: &mut Out, root: &Path, at: &str, command: &[&str]) -> Result<()> {
    let shown: Vec<String> =
        command.iter().map(|word| if word.contains([' ', '"']) { format!("\"{word}\"") } else { (*word).to_owned() }).collect();
    out.line(format!("{CYAN}$ icecore {}{CYAN:#}", shown.join(" ")))?;
    out.flush()?;
    let root = root.to_string_lossy();
    let words = ["icecore", "--vault", &root, "--now", at].into_iter().chain(command.iter().copied());
    let mut cli = Cli::try_parse_from(words)?;
    (cli.global.color, cli.global.quiet, cli.global.verbose) = (global.color, global.quiet, global.verbose);
    let mut scene = out.together(&cli.global);
    Box::pin(super::run(&cli, &mut scene)).await?;
    scene.flush()
}
