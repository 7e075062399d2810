//! Appends to files: whole lines, flushed, or nothing of them.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use icecore_domain::layout::DocPath;

use super::MAX_WRITE_ATTEMPTS;
use super::lock::WriteLock;
use super::read::{FileStat, file_stat};
use super::replace::Expected;
use super::{VaultFs, io_error, nonblock};
use crate::{ContentVersion, Error, Result};

/// Up to this many files are flushed one by one; more are flushed together.
pub(super) const MAX_SINGLE_FLUSHES: usize = 4;
/// The number of files open at once.
const MAX_OPEN_FILES: usize = 200;

/// The offset of appended bytes, and the file's metadata if no other program wrote to it meanwhile.
type AppendedBytes = (u64, Option<FileStat>);

/// One append to a file that programs without our lock may append to as well.
struct PendingAppend<'a> {
    place: PathBuf,
    /// Whether this append created the file.
    is_new: bool,
    /// The length of the file before the write.
    before: u64,
    /// Whether the last line was incomplete, so that the bytes start with a line break.
    is_unended: bool,
    bytes: Cow<'a, [u8]>,
    /// The number of bytes that the system accepted.
    written: usize,
    /// Offset and length of each accepted part.
    parts: Vec<(u64, usize)>,
}

impl PendingAppend<'_> {
    /// Writes with one call, unless the system accepts only a part; then the rest follows. Only an
    /// interrupted call is tried again.
    fn write(&mut self, file: &mut File) -> io::Result<()> {
        while self.written < self.bytes.len() {
            match file.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    let written = written.min(self.bytes.len() - self.written);
                    self.written += written;
                    // After an appending write the position is right behind the written bytes,
                    // whatever others append.
                    let end = file.stream_position()?;
                    self.parts.push((end.saturating_sub(written as u64), written));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The offset of the text, and the file's metadata if nothing else was written meanwhile. A
    /// longer file is not a failed write: another program appended too, before or behind our bytes.
    /// `None` if the write must be undone and tried again: another program's line is in the middle
    /// of it or lies unterminated before it, or the file was replaced since it was opened.
    fn locate(&self, file: &File) -> io::Result<Option<AppendedBytes>> {
        let after = file.metadata()?;
        if after.nlink() == 0 {
            return Ok(None);
        }
        let text = |start: u64| start + u64::from(self.is_unended);
        if after.len() == self.before + self.bytes.len() as u64 {
            return Ok(Some((text(self.before), Some(file_stat(&after)))));
        }
        let Some(&(start, _)) = self.parts.first() else { return Ok(Some((after.len(), None))) };
        let mut at = 0;
        for &(part, length) in &self.parts {
            if self.is_before(file, part, length)?
                || !has_bytes_at(file, part, &self.bytes[at..at + length])?
            {
                return Err(io::Error::new(
                    ErrorKind::WriteZero,
                    "only a part of the line reached the file",
                ));
            }
            if part != start + at as u64 {
                return Ok(None);
            }
            at += length;
        }
        let is_glued =
            start > 0 && !self.bytes.starts_with(b"\n") && last_byte(file, start)? != b'\n';
        Ok((!is_glued).then_some((text(start), None)))
    }

    /// Whether these bytes were in the file before the write: the system accepted bytes and wrote
    /// none. Not so if the file was truncated since: then it is shorter, or ends with what was
    /// written.
    fn is_before(&self, file: &File, start: u64, length: usize) -> io::Result<bool> {
        let len = file.metadata()?.len();
        let is_cut_short = len < self.before || len > self.before && start + length as u64 == len;
        Ok(start < self.before && !is_cut_short)
    }

    /// Removes the bytes of the append. Truncates where they are the end of the file, and blanks
    /// them where another program's lines follow.
    fn erase(&self, file: &File) {
        let mut at = self.written;
        for &(start, length) in self.parts.iter().rev() {
            at -= length;
            let own = &self.bytes[at..at + length];
            if self.is_before(file, start, length).unwrap_or(true) {
                continue;
            }
            if ends_with(file, start, own).unwrap_or(false) {
                let _ = file.set_len(start);
            } else if has_bytes_at(file, start, own).unwrap_or(false) {
                let mut blank = vec![b' '; length];
                // The text before and behind stays separate lines.
                blank[0] = b'\n';
                blank[length - 1] = b'\n';
                let _ = file.write_all_at(&blank, start);
            }
        }
    }
}

fn last_byte(file: &File, len: u64) -> io::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, len - 1)?;
    Ok(byte[0])
}

/// Whether a file ends with these bytes, from `at` on.
fn ends_with(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    Ok(has_bytes_at(file, at, bytes)? && file.metadata()?.len() == at + bytes.len() as u64)
}

/// Whether the file has these bytes at `at`.
fn has_bytes_at(file: &File, at: u64, bytes: &[u8]) -> io::Result<bool> {
    let mut found = vec![0; bytes.len()];
    match file.read_exact_at(&mut found, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        other => other.map(|()| found == bytes),
    }
}

/// Writes all bytes. Only an interrupted call is tried again.
pub(super) fn write_whole(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written.min(bytes.len())..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl VaultFs {
    /// Appends `bytes` in one write and flushes. Ends an incomplete last line first. Returns the
    /// offset of `bytes` and the file's metadata; no metadata if another program, which does not
    /// know our lock, appended at the same time. Then the index reads the file again instead of
    /// trusting this write.
    pub fn append(&self, lock: &WriteLock, path: &DocPath, bytes: &[u8]) -> Result<AppendedBytes> {
        for _ in 0..MAX_WRITE_ATTEMPTS {
            if let Some(placed) = self.try_append(lock, path, bytes)? {
                return Ok(placed);
            }
        }
        Err(Error::conflict(path.to_string()))
    }

    /// One attempt to append; `None` if another program's write interfered. Then nothing remains of
    /// it.
    pub fn try_append(
        &self,
        lock: &WriteLock,
        path: &DocPath,
        bytes: &[u8],
    ) -> Result<Option<AppendedBytes>> {
        Ok(self.try_append_all(lock, &[(path, bytes)], true)?.pop().flatten())
    }

    /// Appends to many documents and flushes them together. On failure nothing remains of any
    /// append, with two exceptions: after a crash in the middle, or when one text must be written
    /// again because of another program's write and that fails, some documents have their text and
    /// others do not. Returns the same as [`Self::append`] for each text.
    pub fn append_many(
        &self,
        lock: &WriteLock,
        texts: &[(DocPath, Vec<u8>)],
    ) -> Result<Vec<AppendedBytes>> {
        let borrowed: Vec<(&DocPath, &[u8])> =
            texts.iter().map(|(path, text)| (path, text.as_slice())).collect();
        let placed = self.try_append_all(lock, &borrowed, texts.len() <= MAX_SINGLE_FLUSHES)?;
        let again = |((path, text), placed): (&(DocPath, Vec<u8>), Option<_>)| {
            placed.map_or_else(|| self.append(lock, path, text), Ok)
        };
        texts.iter().zip(placed).map(again).collect()
    }

    fn try_append_all(
        &self,
        _held: &WriteLock,
        texts: &[(&DocPath, &[u8])],
        one_by_one: bool,
    ) -> Result<Vec<Option<AppendedBytes>>> {
        let mut appends: Vec<PendingAppend<'_>> = Vec::with_capacity(texts.len());
        let mut placed = Vec::with_capacity(texts.len());
        let mut write_all = || -> Result<()> {
            // There may be more files than a process may have open.
            for some in texts.chunks(MAX_OPEN_FILES) {
                let mut files = Vec::with_capacity(some.len());
                for (path, text) in some {
                    let (file, append) = self.open_to_append(path, text, one_by_one)?;
                    appends.push(append);
                    files.push(file);
                    let (Some(append), Some(file)) = (appends.last_mut(), files.last_mut()) else {
                        continue;
                    };
                    append
                        .write(file)
                        .map_err(|error| io_error("writing", &append.place, error))?;
                }
                let own = &appends[appends.len() - files.len()..];
                if one_by_one {
                    own.iter().zip(&files).try_for_each(|(append, file)| {
                        file.sync_data().map_err(|error| io_error("writing", &append.place, error))
                    })?;
                } else {
                    self.flush_all(own, &files)?;
                }
                for (append, file) in own.iter().zip(&files) {
                    placed.push(
                        append
                            .locate(file)
                            .map_err(|error| io_error("writing", &append.place, error))?,
                    );
                }
            }
            Ok(())
        };
        let outcome = write_all();
        for (at, append) in appends.iter().enumerate() {
            // A failed append must not appear later.
            if outcome.is_err() || placed.get(at).is_some_and(Option::is_none) {
                self.roll_back(append);
            }
        }
        outcome.map(|()| placed)
    }

    /// Opens a document for an append. Flushes the folders of a new one first, unless everything is
    /// flushed together.
    fn open_to_append<'a>(
        &self,
        path: &DocPath,
        bytes: &'a [u8],
        with_folders: bool,
    ) -> Result<(File, PendingAppend<'a>)> {
        let place = self.checked_path(path)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(0o600).custom_flags(nonblock());
        let mut is_new = false;
        let opened = match options.open(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                is_new = true;
                self.make_folders(path)?;
                options.create(true).open(&place)
            }
            other => other,
        };
        let file = opened.map_err(|error| io_error("opening", &place, error))?;
        let failed = |error| io_error("writing", &place, error);
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(Error::not_a_file(place));
        }
        let before = found.len();
        if before == 0 {
            // New, or created by a process that died before it flushed the folders. Nothing is
            // written to the file before that, so a file with content has durable folders.
            if let Err(error) = if with_folders { self.flush_folders(path) } else { Ok(()) } {
                if is_new {
                    self.remove_empty_file(&place);
                }
                return Err(error);
            }
        }
        let is_unended = before > 0 && last_byte(&file, before).map_err(failed)? != b'\n';
        let whole =
            if is_unended { Cow::Owned([b"\n", bytes].concat()) } else { Cow::Borrowed(bytes) };
        Ok((
            file,
            PendingAppend {
                place,
                is_new,
                before,
                is_unended,
                bytes: whole,
                written: 0,
                parts: Vec::new(),
            },
        ))
    }

    /// Removes the bytes of a failed append. If that fails too, they remain as a torn tail, which
    /// the next opening moves to quarantine.
    fn roll_back(&self, append: &PendingAppend<'_>) {
        let opened =
            OpenOptions::new().read(true).write(true).custom_flags(nonblock()).open(&append.place);
        if let Ok(file) = opened {
            append.erase(&file);
        }
        if append.is_new {
            self.remove_empty_file(&append.place);
        }
    }

    /// Removes a file that this process created and left empty, unless another program wrote to it.
    fn remove_empty_file(&self, place: &Path) {
        let _ = self.remove_path_if(place, &Expected::Content(ContentVersion::of(Some(b""))));
    }

    /// Flushes files and their folders, with one call for the whole file system where one exists.
    fn flush_all(&self, appends: &[PendingAppend<'_>], files: &[File]) -> Result<()> {
        #[cfg(target_os = "linux")]
        {
            let _ = (appends, files);
            self.flush_file_system()
        }
        #[cfg(not(target_os = "linux"))]
        {
            for (append, file) in appends.iter().zip(files) {
                file.sync_all().map_err(|error| io_error("writing", &append.place, error))?;
                flush_folder(append.place.parent().unwrap_or(&self.root))?;
            }
            Ok(())
        }
    }

    #[cfg(target_os = "linux")]
    pub(super) fn flush_file_system(&self) -> Result<()> {
        let root =
            File::open(&self.root).map_err(|error| io_error("flushing", &self.root, error))?;
        rustix::fs::syncfs(&root).map_err(|error| io_error("flushing", &self.root, error.into()))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn flush_file_system(&self) -> Result<()> {
        Ok(())
    }

    /// Cuts off the end of a document, if it is still `tail` at offset `at`; false if another
    /// program wrote meanwhile.
    pub fn cut_tail(
        &self,
        _held: &WriteLock,
        path: &DocPath,
        at: u64,
        tail: &[u8],
    ) -> Result<bool> {
        let place = self.checked_path(path)?;
        let cut = || {
            let file =
                OpenOptions::new().read(true).write(true).custom_flags(nonblock()).open(&place)?;
            if !ends_with(&file, at, tail)? {
                return Ok(false);
            }
            file.set_len(at)?;
            file.sync_all()?;
            Ok(true)
        };
        cut().map_err(|error| io_error("mending", &place, error))
    }

    /// The unterminated last line, once no program writes it any more: a program that appends in
    /// pieces, without our lock, gets half a second before its line counts as torn.
    pub fn torn_line(&self, lock: &WriteLock, path: &DocPath) -> Result<Option<(u64, Vec<u8>)>> {
        const MAX_WAITS: u32 = 5;
        for _ in 0..MAX_WAITS {
            let rested = match (self.stat(path)?, lock.file_system_time()) {
                (Some(look), Some(now)) => now.0 - look.mtime.0 > 1,
                _ => false,
            };
            if rested {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.unterminated_line(path)
    }

    /// The bytes after the last line break, and their offset. The last line must not be longer than
    /// a few megabytes.
    pub fn unterminated_line(&self, path: &DocPath) -> Result<Option<(u64, Vec<u8>)>> {
        let Some(mut file) = self.open(path)? else { return Ok(None) };
        let place = self.root.join(path.as_str());
        let failed = |error| io_error("reading", &place, error);
        let len = file.metadata().map_err(failed)?.len();
        if len == 0 || last_byte(&file, len).map_err(failed)? == b'\n' {
            return Ok(None);
        }
        let mut span = 64 * 1024;
        loop {
            let from = len.saturating_sub(span);
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(from)).map_err(failed)?;
            (&file).take(len - from).read_to_end(&mut bytes).map_err(failed)?;
            match memchr::memrchr(b'\n', &bytes) {
                Some(at) => return Ok(Some((from + at as u64 + 1, bytes.split_off(at + 1)))),
                None if from == 0 => return Ok(Some((0, bytes))),
                None => span *= 8,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A file with this text, and a pending append of these bytes.
    fn prepare<'a>(folder: &Path, text: &str, bytes: &'a [u8]) -> (File, PendingAppend<'a>) {
        let place = folder.join("file");
        fs::write(&place, text).unwrap();
        let file = OpenOptions::new().read(true).append(true).open(&place).unwrap();
        let append = PendingAppend {
            place,
            is_new: false,
            before: text.len() as u64,
            is_unended: false,
            bytes: Cow::Borrowed(bytes),
            written: 0,
            parts: Vec::new(),
        };
        (file, append)
    }

    /// Writes only the next `length` bytes, like a system that accepts a part of a write.
    fn write_part(append: &mut PendingAppend<'_>, file: &mut File, length: usize) {
        let part = append.bytes[..append.written + length].to_vec();
        let whole = std::mem::replace(&mut append.bytes, Cow::Owned(part));
        append.write(file).unwrap();
        append.bytes = whole;
    }

    fn foreign(folder: &Path, text: &str) {
        OpenOptions::new()
            .append(true)
            .open(folder.join("file"))
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    #[test]
    fn a_refused_append_is_erased_and_nothing_else() {
        // What another program appends before, in the middle of and behind our bytes, and what is
        // left when these are erased.
        for (before, middle, behind, left) in [
            ("", "", "", "old\n"),
            ("before\n", "", "", "old\nbefore\n"),
            ("", "middle\n", "", "old\n\n  \nmiddle\n"),
            ("", "", "behind\n", "old\n\n  \n\n  \nbehind\n"),
            ("unended", "", "behind\n", "old\nunended\n  \n\n  \nbehind\n"),
        ] {
            let folder = tempfile::TempDir::new().unwrap();
            let (mut file, mut append) = prepare(folder.path(), "old\n", b"own-own\n");
            foreign(folder.path(), before);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), middle);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), behind);
            let file =
                OpenOptions::new().read(true).write(true).open(folder.path().join("file")).unwrap();
            append.erase(&file);
            assert_eq!(
                fs::read_to_string(folder.path().join("file")).unwrap(),
                left,
                "{before:?} {middle:?} {behind:?}"
            );
        }
        // An editor truncated the file between the check and the write: the bytes count if they are
        // in the file, or are erased.
        for (left, after) in [("", ""), ("ol", "ol"), ("old\nxxxx", "old\nxxxx")] {
            let folder = tempfile::TempDir::new().unwrap();
            let (mut file, mut append) =
                prepare(folder.path(), &format!("old\n{}", "x".repeat(9)), b"own-own\n");
            fs::write(folder.path().join("file"), left).unwrap();
            append.write(&mut file).unwrap();
            let located = append.locate(&file);
            assert_eq!(
                located.unwrap().map(|(start, _)| start),
                left.is_empty().then_some(0),
                "{left}"
            );
            append.erase(
                &OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(folder.path().join("file"))
                    .unwrap(),
            );
            assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), after);
        }
        // A system that accepts bytes and writes none: the beginning of the file looks like our
        // bytes.
        let folder = tempfile::TempDir::new().unwrap();
        let (file, mut append) = prepare(folder.path(), "own-old\n", b"own-own\n");
        (append.written, append.parts) = (4, vec![(0, 4)]);
        assert!(append.locate(&file).is_err());
        append.erase(
            &OpenOptions::new().read(true).write(true).open(folder.path().join("file")).unwrap(),
        );
        assert_eq!(fs::read_to_string(folder.path().join("file")).unwrap(), "own-old\n");
    }

    #[test]
    fn an_append_finds_its_own_bytes() {
        // What another program appends before, in the middle of and behind our bytes, and the
        // resulting offset of ours.
        for (before, middle, behind, start) in [
            ("", "", "", Some(4)),
            ("before\n", "", "", Some(11)),
            ("", "", "behind\n", Some(4)),
            ("own-own\n", "", "own-own\n", Some(12)),
            ("", "middle\n", "", None),
            ("unended", "", "", None),
        ] {
            let folder = tempfile::TempDir::new().unwrap();
            let (mut file, mut append) = prepare(folder.path(), "old\n", b"own-own\n");
            foreign(folder.path(), before);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), middle);
            write_part(&mut append, &mut file, 4);
            foreign(folder.path(), behind);
            let located = append.locate(&file).unwrap();
            assert_eq!(located.map(|(start, _)| start), start, "{before:?} {middle:?} {behind:?}");
            // Only a file that nothing else was written to is known without reading it again.
            let is_alone = before.is_empty() && middle.is_empty() && behind.is_empty();
            assert_eq!(located.is_some_and(|(_, look)| look.is_some()), is_alone);
            // A file that was replaced since it was opened.
            fs::write(folder.path().join("new"), "saved\n").unwrap();
            fs::rename(folder.path().join("new"), folder.path().join("file")).unwrap();
            assert_eq!(append.locate(&file).unwrap().map(|(start, _)| start), None);
        }
    }

    // A failed write to several files leaves nothing in any of them and no empty file, for few and
    // many files.
    #[test]
    fn a_refused_write_to_many_files_leaves_none_of_it() {
        for many in [3, 15, MAX_OPEN_FILES + 5] {
            let folder = tempfile::TempDir::new().unwrap();
            let vault_fs = VaultFs::new(folder.path().join("vault"));
            vault_fs.make_root().unwrap();
            let held = vault_fs.lock().unwrap();
            let texts: Vec<(DocPath, Vec<u8>)> = (0..many)
                .map(|n| {
                    (format!("memory/messages/{n:04}.jsonl").parse().unwrap(), b"line\n".to_vec())
                })
                .collect();
            vault_fs.append(&held, &texts[0].0, b"known\n").unwrap();
            // The last file cannot be written.
            fs::create_dir(vault_fs.root().join(texts[many - 1].0.as_str())).unwrap();
            assert!(matches!(
                vault_fs.append_many(&held, &texts),
                Err(Error { kind: crate::ErrorKind::NotAFile, .. })
            ));
            let files = vault_fs.list_folder("memory/messages").unwrap();
            assert_eq!(
                files.iter().map(|(path, _)| path).collect::<Vec<_>>(),
                [&texts[0].0],
                "{many}"
            );
            assert_eq!(vault_fs.read(&texts[0].0).unwrap().unwrap(), b"known\n");
        }
    }
}
