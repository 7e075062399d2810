//! Redacts snapshots after a request to forget: their file contents and their notes.

use std::collections::BTreeSet;

use icecore_domain::forget::{FORGOTTEN_MARK, FileFate, Scrub};

/// A file content under all its paths, redacted; `None` if it stays unchanged.
pub(crate) fn redact_content(
    bytes: &[u8],
    paths: &BTreeSet<String>,
    scrub: &Scrub,
) -> Option<Vec<u8>> {
    let mut new: Option<Vec<u8>> = None;
    for path in paths {
        match scrub.fate(path, new.as_deref().unwrap_or(bytes)) {
            FileFate::Same => {}
            FileFate::Changed { bytes, .. } => new = Some(bytes),
            // The file existed; only that fact remains.
            FileFate::Gone => return Some(format!("{FORGOTTEN_MARK}\n").into_bytes()),
        }
    }
    new
}

/// The note of a snapshot, redacted; `None` if it stays unchanged.
pub(crate) fn redact_note(text: &str, scrub: &Scrub) -> Option<String> {
    scrub.needles.redact(text).map(|redacted| redacted.text)
}
