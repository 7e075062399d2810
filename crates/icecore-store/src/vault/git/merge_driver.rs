//! Sets up the merge driver for a person's own `git pull`, and says what a clone lacks.
//!
//! The driver is assigned in `.git/info/attributes`, not in the `.gitattributes` that a clone gets:
//! where a file names a driver that is not set up, git merges line by line, which would damage a
//! ledger. A clone without the setup refuses to merge instead.

use std::path::{Path, PathBuf};

use icecore_domain::{layout, sanitize};

use super::super::vault_fs::VaultFs;
use super::{OWNERSHIP_SETTING, git_output, run_git, vet_settings};
use crate::{Error, Result};

/// git's name of the driver.
const DRIVER_SETTING: &str = "merge.icecore.driver";

const DRIVER_NAME_SETTING: &str = "merge.icecore.name";

/// The line that assigns all files to the driver.
const ATTRIBUTES_LINE: &str = "* merge=icecore";

/// The driver command, which git runs in a shell.
pub(super) fn driver_command() -> String {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| path.to_str().map(str::to_owned))
        .unwrap_or_else(|| "icecore".into());
    format!("'{}' merge-driver %O %A %B %P", program.replace('\'', r"'\''"))
}

/// Registers the driver in the repository at `folder`; whether anything was missing.
pub fn register_driver(vault_fs: &VaultFs, folder: &Path) -> Result<bool> {
    let config = folder.join("config");
    let path = config.to_string_lossy().into_owned();
    let mut changed = false;
    for (key, value) in [
        (
            DRIVER_NAME_SETTING,
            "icecore: every line once, what was forgotten stays forgotten".to_owned(),
        ),
        (DRIVER_SETTING, driver_command()),
    ] {
        let file = ["config", "--file", path.as_str(), "--no-includes"];
        let known = git_output(
            super::git_command(vault_fs.root())
                .env("GIT_DIR", "/dev/null")
                .args(file)
                .args(["--get", key]),
            &file,
        )?;
        if known.status.success() && String::from_utf8_lossy(&known.stdout).trim_end() == value {
            continue;
        }
        let set = git_output(
            super::git_command(vault_fs.root()).env("GIT_DIR", "/dev/null").args(file).args([
                "--replace-all",
                key,
                &value,
            ]),
            &file,
        )?;
        if !set.status.success() {
            return Err(Error::git(
                "config".into(),
                sanitize::one_line(String::from_utf8_lossy(&set.stderr).trim()),
            ));
        }
        changed = true;
    }
    let place = attributes_path(folder);
    let known = std::fs::read_to_string(&place).unwrap_or_default();
    if !known.lines().any(|line| line.trim() == ATTRIBUTES_LINE) {
        let ended =
            if known.is_empty() || known.ends_with('\n') { known } else { format!("{known}\n") };
        vault_fs.write_git_file(&place, format!("{ended}{ATTRIBUTES_LINE}\n").as_bytes())?;
        changed = true;
    }
    Ok(changed)
}

pub(super) fn attributes_path(folder: &Path) -> PathBuf {
    folder.join("info").join("attributes")
}

/// Copies the remotes of a repository to the one that replaces it.
pub fn copy_remotes(root: &Path, folder: &Path) -> Result<()> {
    let (old, new) = (root.join(".git/config"), folder.join("config"));
    let (old, new) = (old.to_string_lossy().into_owned(), new.to_string_lossy().into_owned());
    let list = ["config", "--file", old.as_str(), "--no-includes", "--list", "-z"];
    let listed =
        git_output(super::git_command(root).env("GIT_DIR", "/dev/null").args(list), &list)?;
    for entry in String::from_utf8_lossy(&listed.stdout).split('\0') {
        let Some((key, value)) = entry.split_once('\n') else { continue };
        if key.starts_with("remote.") || key.starts_with("branch.") {
            let add = ["config", "--file", new.as_str(), "--no-includes", "--add", key, value];
            git_output(super::git_command(root).env("GIT_DIR", "/dev/null").args(add), &add)?;
        }
    }
    Ok(())
}

/// What is visible of a repository without running git: whether it is ours, has the driver, and is
/// shared with other machines.
pub(super) struct RepositoryState {
    pub ours: bool,
    pub driver: bool,
    pub shared: bool,
}

pub(super) fn read_repository_state(root: &Path) -> Option<RepositoryState> {
    let folder = root.join(".git");
    let config = std::fs::read_to_string(folder.join("config")).ok()?;
    let (mut section, mut seen) =
        (String::new(), RepositoryState { ours: false, driver: false, shared: false });
    let mine = OWNERSHIP_SETTING.rsplit_once('.');
    for line in config.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_ascii_lowercase();
            seen.shared |= section.starts_with("remote ");
        }
        let key = line.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        seen.ours |= mine.is_some_and(|(of, name)| section == of && key == name);
        seen.driver |= section == "merge \"icecore\"" && key == "driver";
    }
    // A fetch without a named remote also means another machine.
    seen.shared |= folder.join("FETCH_HEAD").exists();
    let given = std::fs::read_to_string(attributes_path(&folder)).unwrap_or_default();
    seen.driver &= given.lines().any(|line| line.trim() == ATTRIBUTES_LINE);
    Some(seen)
}

/// Whether the repository knows another machine's.
pub fn is_shared(root: &Path) -> bool {
    read_repository_state(root).is_some_and(|seen| seen.shared)
}

/// The missing setup of this clone, if any.
pub fn missing_setup(root: &Path) -> Option<String> {
    let seen = read_repository_state(root)?;
    (seen.shared && !seen.ours).then(|| {
        format!(
            "this clone is not set up: icecore keeps no snapshots here and git refuses to merge. Run `icecore init {}`, then merge again",
            root.display()
        )
    })
}

/// The steps a person must take before two machines can use the vault.
pub fn setup_hints(root: &Path) -> Vec<String> {
    let Some(seen) = read_repository_state(root) else { return Vec::new() };
    let mut wants: Vec<String> = missing_setup(root).into_iter().collect();
    if seen.shared && seen.ours && !seen.driver {
        wants
            .push("git has no merge driver for memory files here, so it refuses to merge. Run `icecore doctor --fix`, then merge again".into());
    }
    if root.join(".git/MERGE_HEAD").exists() {
        wants.push(
            "a merge is not completed. `icecore merge` completes it if it has no open conflicts; `git merge --abort` undoes it".into(),
        );
    }
    wants
}

/// Makes a clone of a vault one that icecore keeps snapshots in and merges; false if it already
/// was.
pub fn adopt_clone(vault_fs: &VaultFs) -> Result<bool> {
    let root = vault_fs.root();
    let folder = root.join(".git");
    let (before, _) = vet_settings(root)?;
    if !before {
        // A clone of a vault has the configuration in its history; other repositories stay as they
        // are.
        if !run_git(root, &["cat-file", "-e", &format!("HEAD:{}", layout::CONFIG)], None)?
            .status
            .success()
        {
            return Ok(false);
        }
        let config = folder.join("config");
        let path = config.to_string_lossy().into_owned();
        for (key, value) in [(OWNERSHIP_SETTING, "true"), ("core.fsync", "all")] {
            let arguments =
                ["config", "--file", path.as_str(), "--no-includes", "--replace-all", key, value];
            let set = git_output(
                super::git_command(root).env("GIT_DIR", "/dev/null").args(arguments),
                &arguments,
            )?;
            if !set.status.success() {
                return Err(Error::git(
                    "config".into(),
                    sanitize::one_line(String::from_utf8_lossy(&set.stderr).trim()),
                ));
            }
        }
    }
    Ok(register_driver(vault_fs, &folder)? || !before)
}
