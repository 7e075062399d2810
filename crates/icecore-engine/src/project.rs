//! Which project a folder belongs to: the git repository it lies in, by the name of its main
//! folder. git itself is not run.
//!
//! Worktrees of one repository have one name, because they share one. What a repository says about
//! itself is a stranger's word: a folder counts as somebody's worktree only if that repository
//! knows it as one.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// More of one of git's small files is not read.
const MOST_BYTES: u64 = 4_096;
/// The longest name of a project, in bytes.
const MOST_NAME_BYTES: usize = 100;

/// The project of a folder; none if it lies in no repository. Of a folder that is not there any
/// more only its name is known.
pub fn of(folder: &Path) -> Option<String> {
    if !folder.is_absolute() {
        return None;
    }
    if !folder.is_dir() {
        return name(folder);
    }
    let root = folder.ancestors().find(|above| above.join(".git").exists())?;
    let git = root.join(".git");
    if git.is_dir() {
        return name(root);
    }
    match shared(&git) {
        Some(shared) => name(&main_folder(&shared)),
        None => name(root),
    }
}

/// The repository that a worktree's `.git` file leads to, if that repository knows of the worktree.
fn shared(git: &Path) -> Option<PathBuf> {
    let own = pointed(git, "gitdir:")?;
    let back = pointed(&own.join("gitdir"), "")?;
    if back.canonicalize().ok()? != git.canonicalize().ok()? {
        return None;
    }
    pointed(&own.join("commondir"), "")?.canonicalize().ok()
}

/// The path that one of git's small files holds, seen from where the file is.
fn pointed(file: &Path, after: &str) -> Option<PathBuf> {
    if !file.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    File::open(file).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let path = text.lines().next()?.strip_prefix(after)?.trim();
    (!path.is_empty())
        .then(|| file.parent().map_or_else(|| PathBuf::from(path), |folder| folder.join(path)))
}

/// The folder that people know a repository by: the one above `.git`, or a bare one's own.
fn main_folder(shared: &Path) -> PathBuf {
    match (shared.file_name().and_then(|name| name.to_str()), shared.parent()) {
        (Some(".git" | ".bare"), Some(above)) => above.to_owned(),
        (Some(name), _) => shared.with_file_name(
            name.strip_suffix(".git").filter(|name| !name.is_empty()).unwrap_or(name),
        ),
        _ => shared.to_owned(),
    }
}

fn name(root: &Path) -> Option<String> {
    let name = icecore_domain::plain::one_line(root.file_name()?.to_string_lossy().trim());
    let name = &name[..name.floor_char_boundary(MOST_NAME_BYTES)];
    (!name.is_empty()).then(|| name.to_owned())
}
