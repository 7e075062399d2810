//! `merge`: merges the changes of another machine; and the merge driver that git calls for each
//! file changed on both.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use icecore_domain::forget::{FileFate, Tombstones};
use icecore_domain::merge::{self, MergeInput, MergedFile};
use icecore_domain::{layout, sanitize};
use icecore_store::foreign_files;
use icecore_store::vault::merge_lines;

use super::output::{CYAN, GREEN, Output, YELLOW};
use crate::bootstrap::{self, OpenMemory};
use crate::error::{AppError, Exit};
use crate::json_output;
use crate::store_location::folder_required;

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// What to merge, such as origin/main; the upstream of this vault if not given
    #[arg(value_name = "NAME")]
    other: Option<String>,
}

#[derive(Debug, Args)]
pub struct MergeDriverArgs {
    /// The common base (%O)
    base: PathBuf,
    /// Our version, replaced by the result (%A)
    ours: PathBuf,
    /// Their version (%B)
    theirs: PathBuf,
    /// The path of the file in the vault (%P)
    path: String,
}

/// Runs `icecore merge`.
pub async fn merge(open: &OpenMemory, merge: &MergeArgs, out: &mut Output) -> Result<()> {
    if open.place.folder().is_none() {
        return Err(folder_required(
            "merging",
            "every machine uses the same database, so there is nothing to merge",
        ));
    }
    let models = bootstrap::open_models()?;
    let bar = out.byte_bar("Merging");
    let watch = |what: &str, done: usize, all: usize| {
        bar.set_message(what.to_owned());
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    };
    let merged = open
        .memory
        .merge_from(merge.other.as_deref(), models.model_budget().as_ref(), &watch)
        .await;
    bar.finish_and_clear();
    let merged = merged?;
    let whole = merged.verdict.as_ref().is_none_or(|verdict| verdict.ok);
    if out.is_json() {
        out.json(&json_output::merge_report(&merged))?;
    } else {
        let name = sanitize::one_line(&merged.from);
        if merged.new {
            out.line(format!("{GREEN}Merged{GREEN:#} {CYAN}{name}{CYAN:#}"))?;
        } else {
            out.line(format!("{CYAN}{name}{CYAN:#} has nothing new"))?;
        }
        for (old, new) in &merged.renumbered {
            out.line(format!("  {old} of this machine is {CYAN}{new}{CYAN:#} now, because the other machine used that id too"))?;
        }
        if !merged.forgotten.is_empty() {
            out.line(format!(
                "  {YELLOW}forgotten{YELLOW:#} here too: {}",
                merged.forgotten.join(", ")
            ))?;
        }
        if let Some(verdict) = merged.verdict.as_ref().filter(|verdict| !verdict.ok) {
            super::vault::print_verdict(verdict, out)?;
            out.info("`icecore doctor --fix` repairs what can be repaired without data loss.");
        } else if merged.verdict.is_some() {
            out.info("The vault is undamaged. `git push` sends the merge to the other machine.");
        }
    }
    if whole { Ok(()) } else { Err(AppError::silent(Exit::Damaged).into()) }
}

/// Answers git: 0 if the file is merged, 1 if it needs a person; then the file is unchanged.
pub fn answer_git(driver: &MergeDriverArgs) -> ExitCode {
    match merge_file(driver) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(
                std::io::stderr(),
                "icecore: {}: {}",
                sanitize::one_line(&driver.path),
                sanitize::one_line(&why)
            );
            ExitCode::from(1)
        }
    }
}

fn merge_file(driver: &MergeDriverArgs) -> Result<(), String> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))
    };
    let (base, ours, theirs) = (read(&driver.base)?, read(&driver.ours)?, read(&driver.theirs)?);
    let sides = MergeInput { base: &base, ours: &ours, theirs: &theirs };
    let bytes =
        match merge::merge_file(&driver.path, sides, false).map_err(|clash| clash.to_string())? {
            MergedFile::Whole(bytes) => bytes,
            MergedFile::ByLines => merge_lines(&driver.base, &driver.ours, &driver.theirs)
                .map_err(|error| error.to_string())?
                .ok_or("the same lines were changed on both machines")?,
        };
    // git runs the driver in the root of the vault. Lines of the other side must not bring back
    // what was forgotten there.
    let stones = Tombstones::parse(&std::fs::read(layout::FORGOTTEN).unwrap_or_default());
    let bytes = match stones.scrub().fate(&driver.path, &bytes) {
        FileFate::Changed { bytes, .. } => bytes,
        FileFate::Same | FileFate::Gone => bytes,
    };
    foreign_files::overwrite_in_place(&driver.ours, &bytes).map_err(|error| error.to_string())
}
