//! Reads and atomically replaces files of other programs.
//!
//! A file is written beside its target, flushed and renamed, so that its owner sees the old or the
//! new content. Mode and owner stay. A symbolic link is followed, because people keep settings
//! elsewhere; the target changes, not the link. A file that changed since it was read is not
//! overwritten.
#![expect(clippy::disallowed_methods, reason = "this module writes other programs' files")]

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown,
};
use std::path::{Path, PathBuf};

use crate::vault::vault_fs::io_error;
use crate::{Error, Result};

/// Limit of links to follow; more are a loop.
const MAX_LINKS: usize = 40;

/// The file that a path stands for after all links are followed. It need not exist.
pub fn resolve_links(path: &Path) -> Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&place) {
            Ok(link) => place = place.parent().unwrap_or(Path::new("")).join(link),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::InvalidInput | ErrorKind::NotFound | ErrorKind::NotADirectory
                ) =>
            {
                // Folders on the way may be links or missing. Canonicalize what exists, so that one
                // file always has one name.
                let known = place
                    .ancestors()
                    .skip(1)
                    .find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
                let settled = known
                    .and_then(|(above, found)| Some(found.join(place.strip_prefix(above).ok()?)));
                return Ok(settled.unwrap_or(place));
            }
            Err(error) => return Err(io_error("reading the link", &place, error)),
        }
    }
    Err(io_error("following the links of", path, ErrorKind::TimedOut.into()))
}

/// The bytes of a file; `None` if there is none.
pub fn read_file(place: &Path) -> Result<Option<Vec<u8>>> {
    match fs::metadata(place) {
        Ok(found) if !found.is_file() => return Err(Error::not_a_file(place.to_owned())),
        Ok(_) => {}
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(io_error("reading", place, error)),
    }
    fs::read(place).map(Some).map_err(|error| io_error("reading", place, error))
}

/// Replaces a file, if its content is still `read`. A new file gets `mode`. Returns the folders it
/// created, outermost first.
pub fn replace_file(
    place: &Path,
    bytes: &[u8],
    mode: u32,
    read: Option<&[u8]>,
) -> Result<Vec<PathBuf>> {
    let Some(name) = place.file_name() else {
        return Err(io_error("writing", place, ErrorKind::InvalidInput.into()));
    };
    let folder =
        place.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let made = create_folders(folder, if mode & 0o077 == 0 { 0o700 } else { 0o755 })?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".icecore-{}", std::process::id()));
    let temporary = folder.join(hidden);
    let written = (|| {
        let mut file =
            match OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary) {
                // Left by a process with the same pid that died.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    fs::remove_file(&temporary)?;
                    OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)
                }
                opened => opened,
            }?;
        if let Ok(found) = fs::metadata(place) {
            let own = file.metadata()?;
            if (own.uid(), own.gid()) != (found.uid(), found.gid()) {
                // Only root can do this. For other users the file is their own anyway.
                let _ = fchown(&file, Some(found.uid()), Some(found.gid()));
            }
            file.set_permissions(fs::Permissions::from_mode(found.mode() & 0o7777))?;
        }
        file.write_all(bytes)?;
        file.sync_all()
    })();
    let still = written.map_err(|error| io_error("writing", place, error)).and_then(|()| {
        if read_file(place)?.as_deref() != read {
            return Err(Error::conflict(place.display().to_string()));
        }
        fs::rename(&temporary, place).map_err(|error| io_error("writing", place, error))
    });
    if let Err(error) = still {
        let _ = fs::remove_file(&temporary);
        made.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
        return Err(error);
    }
    sync_folder(folder)?;
    Ok(made)
}

/// Overwrites a temporary file that another program will itself move into place.
pub fn overwrite_in_place(place: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(place, bytes).map_err(|error| io_error("writing", place, error))
}

/// Removes a file, if its content is still `read`.
pub fn remove_file(place: &Path, read: &[u8]) -> Result<()> {
    match read_file(place)? {
        None => return Ok(()),
        Some(now) if now != read => {
            return Err(Error::conflict(place.display().to_string()));
        }
        Some(_) => {}
    }
    fs::remove_file(place).map_err(|error| io_error("removing", place, error))?;
    sync_folder(place.parent().unwrap_or(Path::new(".")))
}

/// Removes empty folders, innermost first, and stops at the first that is not empty.
pub fn remove_empty_folders(folders: &[PathBuf]) {
    for folder in folders.iter().rev() {
        if fs::remove_dir(folder).is_err() {
            return;
        }
    }
}

fn create_folders(folder: &Path, mode: u32) -> Result<Vec<PathBuf>> {
    let missing: Vec<&Path> = folder
        .ancestors()
        .take_while(|above| !above.as_os_str().is_empty() && !above.exists())
        .collect();
    let mut made = Vec::new();
    for above in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(above) {
            Ok(()) => made.push(above.to_owned()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io_error("creating the folder", above, error)),
        }
        sync_folder(above.parent().unwrap_or(Path::new(".")))?;
    }
    Ok(made)
}

fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| io_error("flushing", folder, error))
}
