//! Finds the project of a folder: the git repository that contains it, by the name of its main
//! folder. git itself is not run.
//!
//! Worktrees of one repository have one name. Invariant: a repository may come from a stranger, so
//! a folder counts as a worktree of another repository only if that repository lists it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The maximum size of git's small files; larger ones are not read.
const MAX_GIT_FILE_BYTES: u64 = 4_096;
const MAX_PROJECT_NAME_BYTES: usize = 100;

/// The project of a folder; `None` if it is in no repository. A folder that no longer exists is
/// known only by its name.
pub fn project_of(folder: &Path) -> Option<String> {
    if !folder.is_absolute() {
        return None;
    }
    if !folder.is_dir() {
        return project_name(folder);
    }
    let root = folder.ancestors().find(|above| above.join(".git").exists())?;
    let git = root.join(".git");
    if git.is_dir() {
        return project_name(root);
    }
    match shared_git_dir(&git) {
        Some(shared) => project_name(&main_folder_of(&shared)),
        None => project_name(root),
    }
}

/// The repository that a worktree's `.git` file points to, if that repository lists the worktree.
fn shared_git_dir(git: &Path) -> Option<PathBuf> {
    let own = read_git_path(git, "gitdir:")?;
    let back = read_git_path(&own.join("gitdir"), "")?;
    if back.canonicalize().ok()? != git.canonicalize().ok()? {
        return None;
    }
    read_git_path(&own.join("commondir"), "")?.canonicalize().ok()
}

/// The path in one of git's small files, relative to the file.
fn read_git_path(file: &Path, after: &str) -> Option<PathBuf> {
    if !file.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(file).ok()?.take(MAX_GIT_FILE_BYTES).read_to_string(&mut text).ok()?;
    let path = text.lines().next()?.strip_prefix(after)?.trim();
    (!path.is_empty())
        .then(|| file.parent().map_or_else(|| PathBuf::from(path), |folder| folder.join(path)))
}

/// The folder a repository is named after: the one above `.git`, or a bare repository's own.
fn main_folder_of(shared: &Path) -> PathBuf {
    match (shared.file_name().and_then(|name| name.to_str()), shared.parent()) {
        (Some(".git" | ".bare"), Some(above)) => above.to_owned(),
        (Some(name), _) => shared.with_file_name(
            name.strip_suffix(".git").filter(|name| !name.is_empty()).unwrap_or(name),
        ),
        _ => shared.to_owned(),
    }
}

fn project_name(root: &Path) -> Option<String> {
    let name = icecore_domain::sanitize::one_line(root.file_name()?.to_string_lossy().trim());
    let name = &name[..name.floor_char_boundary(MAX_PROJECT_NAME_BYTES)];
    (!name.is_empty()).then(|| name.to_owned())
}
