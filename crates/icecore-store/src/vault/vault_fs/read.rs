//! Reads files and folders and their metadata.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::Hasher as _;
use std::hash::{DefaultHasher, Hash as _};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use icecore_domain::hash::Hash;
use icecore_domain::layout::{CONFIG, DocPath};
use rustix::fs::{AtFlags, FileType};

use super::super::events::CALL_COST_BYTES;
use super::{VaultFs, io_error, nonblock, refuse_link};
use crate::{DiskUsage, Error, Result};

/// The most bytes to read at once for several pieces.
const MAX_READ_SPAN_BYTES: u64 = 1024 * 1024;

/// The file system's metadata of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStat {
    pub len: u64,
    pub(super) mtime: (i64, i64),
    inode: u64,
}

impl FileStat {
    /// A text that changes whenever the file changes.
    pub fn stamp(&self) -> String {
        format!("{}:{}.{:09}:{}", self.len, self.mtime.0, self.mtime.1, self.inode)
    }

    /// The time of the last write.
    pub fn modified_at(&self) -> jiff::Timestamp {
        jiff::Timestamp::new(self.mtime.0, i32::try_from(self.mtime.1).unwrap_or(0))
            .unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }

    /// [`FileStat::stamp`] as a number.
    pub fn as_number(&self) -> u64 {
        let hash = Hash::of(self.stamp().as_bytes());
        hash.as_bytes()[..8].iter().fold(0, |mark, &byte| mark << 8 | u64::from(byte))
    }
}

/// How many of these sorted pieces to read at once, and where the last of them ends.
fn read_span(pieces: impl Iterator<Item = (u64, usize)>) -> (usize, u64) {
    let (mut many, mut start, mut end) = (0, 0_u64, 0_u64);
    for (offset, len) in pieces {
        let last = offset.saturating_add(len as u64);
        if many == 0 {
            start = offset;
        } else if offset > end.saturating_add(CALL_COST_BYTES)
            || last.saturating_sub(start) > MAX_READ_SPAN_BYTES
        {
            break;
        }
        (many, end) = (many + 1, last.max(end));
    }
    (many, end)
}

pub(super) fn stat_path(place: PathBuf) -> Result<Option<FileStat>> {
    match fs::symlink_metadata(&place) {
        Ok(found) if found.file_type().is_symlink() => Err(Error::link(place)),
        Ok(found) => Ok(Some(file_stat(&found))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("reading the metadata of", &place, error)),
    }
}

/// The stat of a file in an open folder; the error is `None` for a link.
fn stat_within(
    folder: &File,
    name: &str,
) -> std::result::Result<Option<FileStat>, Option<io::Error>> {
    // The fields have other types on other systems.
    fn number<T: TryInto<i64>>(field: T) -> i64 {
        field.try_into().unwrap_or(0)
    }
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => Err(None),
        Ok(found) => Ok(Some(FileStat {
            len: u64::try_from(number(found.st_size)).unwrap_or(0),
            mtime: (number(found.st_mtime), number(found.st_mtime_nsec)),
            inode: found.st_ino,
        })),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(Some(error.into())),
    }
}

pub(super) fn file_stat(found: &fs::Metadata) -> FileStat {
    FileStat { len: found.len(), mtime: (found.mtime(), found.mtime_nsec()), inode: found.ino() }
}

impl VaultFs {
    /// Opens a document for reading; `None` if it does not exist.
    pub(super) fn open(&self, path: &DocPath) -> Result<Option<File>> {
        let place = self.checked_path(path)?;
        match OpenOptions::new().read(true).custom_flags(nonblock()).open(&place) {
            Ok(file) if file.metadata().is_ok_and(|found| !found.is_file()) => {
                Err(Error::not_a_file(place))
            }
            Ok(file) => Ok(Some(file)),
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    || error.kind() == ErrorKind::NotADirectory =>
            {
                Ok(None)
            }
            Err(error) => Err(io_error("reading", &place, error)),
        }
    }

    /// Reads a document.
    pub fn read(&self, path: &DocPath) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(
            file.metadata().map_or(0, |found| usize::try_from(found.len()).unwrap_or(0) + 1),
        );
        file.read_to_end(&mut bytes)
            .map_err(|error| io_error("reading", &self.root.join(path.as_str()), error))?;
        Ok(Some(bytes))
    }

    /// The metadata of a document.
    pub fn stat(&self, path: &DocPath) -> Result<Option<FileStat>> {
        stat_path(self.checked_path(path)?)
    }

    /// The metadata of many documents. Opens the folder of consecutive ones only once.
    pub fn stat_all(&self, paths: &[DocPath]) -> Result<Vec<Option<FileStat>>> {
        let mut looks = Vec::with_capacity(paths.len());
        for beside in paths.chunk_by(|a, b| a.folders().last() == b.folders().last()) {
            let place = self.checked_path(&beside[0])?;
            // Relative to the open folder, which avoids resolving the whole path for each file.
            let folder = place.parent().and_then(|folder| File::open(folder).ok());
            for path in beside {
                looks.push(match &folder {
                    Some(folder) => {
                        stat_within(folder, path.name()).map_err(|error| match error {
                            Some(error) => io_error(
                                "reading the metadata of",
                                &self.root.join(path.as_str()),
                                error,
                            ),
                            None => Error::link(self.root.join(path.as_str())),
                        })?
                    }
                    None => stat_path(self.root.join(path.as_str()))?,
                });
            }
        }
        Ok(looks)
    }

    /// The documents directly in a folder, with their metadata.
    pub fn list_folder(&self, folder: &str) -> Result<Vec<(DocPath, FileStat)>> {
        let place = self.root.join(folder);
        refuse_link(&place)?;
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error("reading", &place, error)),
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| io_error("reading", &place, error))?;
            let Some(path) = entry
                .file_name()
                .to_str()
                .and_then(|name| format!("{folder}/{name}").parse::<DocPath>().ok())
            else {
                continue;
            };
            match entry.metadata() {
                Ok(metadata) if metadata.is_file() => found.push((path, file_stat(&metadata))),
                _ => {}
            }
        }
        Ok(found)
    }

    /// A number that changes whenever a file in these folders is changed, added or removed; with
    /// `true`, also below them.
    pub fn fingerprint(&self, folders: &[(&str, bool)]) -> Result<u64> {
        let mut seen = DefaultHasher::new();
        let mut open: Vec<(PathBuf, bool)> =
            folders.iter().map(|(folder, deep)| (self.root.join(folder), *deep)).collect();
        while let Some((place, deep)) = open.pop() {
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("reading", &place, error)),
            };
            place.hash(&mut seen);
            for entry in entries {
                let entry = entry.map_err(|error| io_error("reading", &place, error))?;
                entry.file_name().hash(&mut seen);
                match entry.metadata() {
                    Ok(found) if found.is_file() => file_stat(&found).hash(&mut seen),
                    Ok(found) if found.is_dir() && deep => open.push((entry.path(), true)),
                    _ => {}
                }
            }
        }
        Ok(seen.finish())
    }

    /// Disk usage by part. Links are counted themselves, not followed.
    pub fn disk_usage(&self) -> Result<Vec<DiskUsage>> {
        let mut parts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let mut folders: Vec<(PathBuf, String)> = vec![(self.root.clone(), String::new())];
        while let Some((folder, part)) = folders.pop() {
            // A folder that disappears meanwhile counts as empty.
            let Ok(entries) = fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let Ok(found) = entry.metadata() else { continue };
                // Parts of `memory` are listed one by one, because most of a vault is there. The
                // logs, one per day, are one part.
                let part = match part.as_str() {
                    "" if found.is_dir() => name,
                    "" => "settings".to_owned(),
                    "memory" if name.ends_with(".md") => "memory/logs".to_owned(),
                    "memory" => format!("memory/{name}"),
                    known => known.to_owned(),
                };
                match found.is_dir() {
                    true => folders.push((entry.path(), part)),
                    false => {
                        let (files, bytes) = parts.entry(part).or_default();
                        (*files, *bytes) = (*files + 1, *bytes + found.len());
                    }
                }
            }
        }
        Ok(parts
            .into_iter()
            .map(|(part, (files, bytes))| DiskUsage { part, files, bytes })
            .collect())
    }

    /// The pieces of a document at these offsets, in their order. Reads neighboring pieces at once.
    pub fn read_pieces(&self, path: &DocPath, pieces: &[(u64, usize)]) -> Result<Vec<Vec<u8>>> {
        let place = self.root.join(path.as_str());
        let Some(file) = self.open(path)? else {
            return Err(io_error("reading", &place, ErrorKind::NotFound.into()));
        };
        let mut order: Vec<usize> = (0..pieces.len()).collect();
        order.sort_by_key(|&at| pieces[at].0);
        let mut found = vec![Vec::new(); pieces.len()];
        let mut stretch = Vec::new();
        let mut rest = order.as_slice();
        while let Some(&first) = rest.first() {
            let start = pieces[first].0;
            let (many, end) = read_span(rest.iter().map(|&at| pieces[at]));
            stretch.resize(usize::try_from(end - start).unwrap_or(usize::MAX), 0);
            file.read_exact_at(&mut stretch, start)
                .map_err(|error| io_error("reading", &place, error))?;
            let (near, further) = rest.split_at(many);
            if let [only] = near {
                found[*only] = std::mem::take(&mut stretch);
            } else {
                for &at in near {
                    let (offset, len) = pieces[at];
                    let from = usize::try_from(offset - start).unwrap_or(usize::MAX);
                    found[at].extend_from_slice(&stretch[from..from + len]);
                }
            }
            rest = further;
        }
        Ok(found)
    }

    /// The documents below a folder, sorted. Skips hidden files and folders and names that no
    /// document path can have.
    pub fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut found = Vec::new();
        if let Ok(folder) = under.trim_end_matches('/').parse::<DocPath>() {
            refuse_link(&self.checked_path(&folder)?)?;
        }
        let mut folders = vec![under.trim_end_matches('/').to_owned()];
        while let Some(folder) = folders.pop() {
            let place = self.root.join(&folder);
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("reading", &place, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| io_error("reading", &place, error))?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let Ok(document) = path.parse::<DocPath>() else { continue };
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => folders.push(path),
                    Ok(kind) if kind.is_file() => found.push(document),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// All files of the vault with their paths, hidden and private ones included, sorted. Does not
    /// follow links and skips nested vaults and repositories.
    pub fn all_files(&self) -> Result<Vec<(String, PathBuf)>> {
        let mut found = Vec::new();
        let mut folders = vec![(String::new(), self.root.clone())];
        while let Some((name, place)) = folders.pop() {
            let entries = match fs::read_dir(&place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(io_error("reading", &place, error)),
            };
            for entry in entries {
                let entry = entry.map_err(|error| io_error("reading", &place, error))?;
                let file = entry.file_name().to_string_lossy().into_owned();
                let path = if name.is_empty() { file.clone() } else { format!("{name}/{file}") };
                match entry.file_type() {
                    Ok(kind)
                        if kind.is_dir()
                            && file != ".git"
                            && !entry.path().join(CONFIG).exists() =>
                    {
                        folders.push((path, entry.path()))
                    }
                    Ok(kind) if kind.is_file() => found.push((path, entry.path())),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The bytes of a file from `all_files`; `None` if it is gone.
    pub fn read_path(&self, place: &Path) -> Result<Option<Vec<u8>>> {
        match fs::read(place) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some).map_err(|error| io_error("reading", place, error)),
        }
    }
}
