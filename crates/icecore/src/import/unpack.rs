//! Unpacking archives as streams, never to disk.
//!
//! An archive is untrusted: names that lead out of it, overlapping parts and unreasonable
//! compression ratios refuse the whole archive, and nested archives are not opened.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use icecore_domain::sanitize;
use ruzstd::decoding::StreamingDecoder;
use zip::ZipArchive;

use crate::error::{AppError, Exit};

/// Text compresses to a twentieth at most; a zip bomb to a thousandth.
pub const MAX_RATIO: u64 = 100;
/// Smaller output is not checked against the ratio.
const UNCHECKED_BYTES: u64 = 1024 * 1024;
/// The largest output of one file or part.
pub const MAX_UNPACKED_BYTES: u64 = 16 * 1024 * 1024 * 1024;
pub const MAX_ENTRIES: usize = 200_000;

/// An archive that was checked.
pub type Archive = ZipArchive<BufReader<File>>;

/// A part of an archive that may be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveEntry {
    pub index: usize,
    /// Its name, for display and as identity; never used as a path.
    pub name: String,
    pub packed: u64,
    /// Its unpacked size, as the archive claims.
    pub bytes: u64,
}

fn refusal(place: &str, why: impl std::fmt::Display) -> AppError {
    AppError::new(Exit::NotAllowed, format!("{place} was not opened: {why}"))
}

/// Opens an archive and lists its files.
pub fn open_archive(path: &Path) -> Result<(Archive, Vec<ArchiveEntry>), AppError> {
    let place = super::source::display_path(path);
    let broken = |error: zip::result::ZipError| {
        AppError::new(
            Exit::Failure,
            format!(
                "{place} is not a complete zip archive: {}. Download it again",
                sanitize::one_line(&error.to_string())
            ),
        )
    };
    let file = File::open(path).map_err(|error| {
        AppError::new(Exit::Failure, format!("{place} cannot be read: {error}"))
    })?;
    let mut archive = ZipArchive::new(BufReader::new(file)).map_err(broken)?;
    if archive.len() > MAX_ENTRIES {
        return Err(refusal(
            &place,
            format!("it has {} entries; at most {MAX_ENTRIES} are read", archive.len()),
        ));
    }
    if archive.has_overlapping_files().map_err(broken)? {
        return Err(refusal(&place, "its entries overlap, as in a zip bomb"));
    }
    let mut entries = Vec::new();
    for index in 0..archive.len() {
        let part = archive.by_index_raw(index).map_err(broken)?;
        let written = part.name().map_err(broken)?.into_owned();
        let name = sanitize::one_line(&written);
        if part.enclosed_name().is_none()
            || written.starts_with('/')
            || written.contains(['\\', '\0'])
        {
            return Err(refusal(&place, format!("the name `{name}` in it leads out of it")));
        }
        if part.is_symlink() {
            return Err(refusal(&place, format!("`{name}` in it is a link")));
        }
        if part.is_file() {
            entries.push(ArchiveEntry {
                index,
                name,
                packed: part.compressed_size(),
                bytes: part.size(),
            });
        }
    }
    Ok((archive, entries))
}

/// A part of an archive as a stream that fails if it exceeds its limit.
pub fn entry_stream<'a>(
    archive: &'a mut Archive,
    entry: &ArchiveEntry,
    place: &str,
) -> Result<Box<dyn Read + 'a>, AppError> {
    if entry.bytes > MAX_UNPACKED_BYTES
        || (entry.bytes > UNCHECKED_BYTES && entry.bytes / entry.packed.max(1) > MAX_RATIO)
    {
        return Err(refusal(
            place,
            format!(
                "`{}` would unpack from {} to {} bytes, as a zip bomb does",
                entry.name, entry.packed, entry.bytes
            ),
        ));
    }
    let part = archive.by_index(entry.index).map_err(|error| {
        AppError::new(
            Exit::Failure,
            format!("{place}: `{}` cannot be unpacked: {error}", entry.name),
        )
    })?;
    Ok(Box::new(BoundedReader { inner: part, left: max_unpacked_bytes(entry.packed) }))
}

fn max_unpacked_bytes(packed: u64) -> u64 {
    packed.saturating_mul(MAX_RATIO).saturating_add(UNCHECKED_BYTES).min(MAX_UNPACKED_BYTES)
}

/// A file of zstd frames as a stream that fails if it exceeds its limit.
pub fn zstd_stream(file: File) -> io::Result<Box<dyn Read>> {
    let packed = file.metadata()?.len();
    Ok(Box::new(BoundedReader {
        inner: ZstdFrames { now: None, rest: Some(BufReader::new(file)) },
        left: max_unpacked_bytes(packed),
    }))
}

/// A stream that fails after a number of bytes.
struct BoundedReader<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::other(format!(
                "it unpacks to more than {MAX_RATIO} times its size, as a bomb does"
            ))
        })?;
        Ok(read)
    }
}

/// Decodes the zstd frames of a file one after the other.
struct ZstdFrames {
    now: Option<StreamingDecoder<BufReader<File>, ruzstd::decoding::FrameDecoder>>,
    rest: Option<BufReader<File>>,
}

impl Read for ZstdFrames {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.now {
                let read = frame.read(into)?;
                if read > 0 || into.is_empty() {
                    return Ok(read);
                }
                self.rest = self.now.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut rest) = self.rest.take() else { return Ok(0) };
            if io::BufRead::fill_buf(&mut rest)?.is_empty() {
                return Ok(0);
            }
            self.now = Some(
                StreamingDecoder::new(rest)
                    .map_err(|error| io::Error::other(format!("it is not zstd: {error}")))?,
            );
        }
    }
}
