//! What the past says once something is forgotten: contents and notes of snapshots, as they are
//! from then on.

use std::collections::BTreeSet;

use icecore_domain::forget::{FORGOTTEN, Fate, Scrub};

/// A content, wherever it stood; `None` if it stays as it is.
pub(crate) fn content(bytes: &[u8], paths: &BTreeSet<String>, scrub: &Scrub) -> Option<Vec<u8>> {
    let mut new: Option<Vec<u8>> = None;
    for path in paths {
        match scrub.fate(path, new.as_deref().unwrap_or(bytes)) {
            Fate::Same => {}
            Fate::Changed { bytes, .. } => new = Some(bytes),
            // It did stand there; that it said nothing is what is left to tell.
            Fate::Gone => return Some(format!("{FORGOTTEN}\n").into_bytes()),
        }
    }
    new
}

/// Why a snapshot was made; `None` if it stays as it is.
pub(crate) fn note(text: &str, scrub: &Scrub) -> Option<String> {
    scrub.needles.redact(text).map(|redacted| redacted.text)
}
