//! The capture filter for everything but messages: events, notes, pages and files.
//!
//! The `capture` module has the filter itself. Other input passes it here, field by field. The
//! calling operation reports what was hidden.

use std::collections::BTreeMap;

use icecore_domain::event::{EventDraft, Scope};
use icecore_domain::layout::DocPath;
use icecore_domain::secrets::{self, MarkerKey};
use icecore_store::{
    ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind, Snapshot, Store,
};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::capture::FilteredText;
use crate::{CaptureReport, Error, Memory, Result};

/// The number of hidden secrets, by kind.
pub type SecretCounts = BTreeMap<String, usize>;

/// A new random key for the marks of hidden secrets.
pub(crate) fn new_marker_key() -> Result<MarkerKey> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::NoRandom(error.to_string()))?;
    Ok(MarkerKey::new(bytes))
}

/// The store's key for the marks of hidden secrets, created if it has none. Where it cannot be
/// stored, as on a read-only disk, this process uses a key of its own: marks are safe under any
/// key, and equal marks are only a convenience.
pub(crate) async fn load_marker_key(store: &dyn Store) -> Result<MarkerKey> {
    let known = store.marker_key().await;
    if let Ok(Some(key)) = known {
        return Ok(key);
    }
    let is_broken = matches!(known, Err(StoreError { kind: StoreErrorKind::InvalidMarkerKey, .. }));
    let fresh = new_marker_key()?;
    Ok(store.set_marker_key(&fresh, is_broken).await.unwrap_or(fresh))
}

/// Applies a function to every string of a JSON text, without the JSON escapes; `None` if the text
/// is not JSON or nothing changed.
pub(crate) fn map_json_strings(
    text: &str,
    pass: &mut dyn FnMut(String) -> String,
) -> Option<String> {
    let mut value = text
        .starts_with(['{', '[', '"'])
        .then(|| serde_json::from_str::<Value>(text).ok())
        .flatten()?;
    map_strings(&mut value, pass).then(|| value.to_string())
}

/// Applies a function to every string of a JSON value, and to JSON within strings. Returns whether
/// anything changed.
fn map_strings(value: &mut Value, pass: &mut dyn FnMut(String) -> String) -> bool {
    match value {
        Value::String(text) => {
            let passed = map_json_strings(text, pass).unwrap_or_else(|| pass(text.clone()));
            let is_changed = passed != *text;
            *text = passed;
            is_changed
        }
        Value::Array(values) => {
            values.iter_mut().map(|value| usize::from(map_strings(value, pass))).sum::<usize>() > 0
        }
        Value::Object(fields) => {
            fields.values_mut().map(|value| usize::from(map_strings(value, pass))).sum::<usize>()
                > 0
        }
        _ => false,
    }
}

impl Memory {
    /// Filters a text and adds what was hidden to the counts. For interfaces that write their own
    /// files.
    pub fn filter_and_count(&self, text: &str, hidden: &mut SecretCounts) -> String {
        let mut taken = CaptureReport::default();
        let text = self.filter_text(text, &mut taken).text;
        for (kind, count) in taken.secrets {
            *hidden.entry(kind).or_default() += count;
        }
        self.scrub_text(text)
    }

    /// Filters a message together with its speaker's name: in a transcript, `Authorization:` may be
    /// taken for a name.
    pub(crate) fn filter_spoken(
        &self,
        name: &str,
        text: &str,
        report: &mut CaptureReport,
    ) -> FilteredText {
        let label = format!("{name}: ");
        let mut seen = CaptureReport::default();
        let passed = self.filter_text(&format!("{label}{text}"), &mut seen);
        match passed.text.strip_prefix(&label) {
            Some(rest) => {
                report.merge(seen);
                let rest = if passed.own_bytes > 0 { rest.trim() } else { rest };
                FilteredText { text: rest.to_owned(), own_bytes: passed.own_bytes }
            }
            None => self.filter_text(text, report),
        }
    }

    /// Filters all text of a draft.
    pub(crate) fn filter_draft(&self, draft: EventDraft, hidden: &mut SecretCounts) -> EventDraft {
        let mut pass = |text: String| self.filter_and_count(&text, hidden);
        EventDraft {
            content: pass(draft.content),
            entity: draft.entity.map(&mut pass),
            tags: draft.tags.into_iter().map(&mut pass).collect(),
            source: pass(draft.source),
            session: draft.session.map(&mut pass),
            waiting_on: draft.waiting_on.map(&mut pass),
            scope: match draft.scope {
                Scope::Everywhere => Scope::Everywhere,
                Scope::Project(name) => Scope::Project(pass(name)),
                Scope::Conversation(id) => Scope::Conversation(pass(id)),
            },
            extra: draft
                .extra
                .into_iter()
                .map(|(name, raw)| self.filter_field(name, raw, &mut |raw| pass(raw)))
                .collect(),
            ..draft
        }
    }

    /// Filters a foreign field; its name may show that its value is a secret.
    pub(crate) fn filter_field(
        &self,
        name: String,
        raw: String,
        pass: &mut dyn FnMut(String) -> String,
    ) -> (String, String) {
        let raw = map_json_strings(&raw, pass).unwrap_or(raw);
        let whole = format!("{{{}:{raw}}}", Value::from(name.as_str()));
        let passed = pass(whole.clone());
        if passed == whole {
            return (name, raw);
        }
        let read = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(&passed).ok();
        match read.and_then(|fields| fields.into_iter().next()) {
            Some((name, raw)) => (name, raw.get().to_owned()),
            // A value that is not valid JSON afterwards is hidden as a whole.
            None => (name, format!("\"{}\"", self.marker_key.mark("field", raw.as_bytes()))),
        }
    }

    /// Takes a snapshot of the vault. Secrets in edited files are replaced first, because the
    /// history is permanent.
    pub(crate) async fn snapshot_without_secrets(
        &self,
        note: &str,
        hidden: &mut SecretCounts,
    ) -> Result<Option<Snapshot>> {
        let mut places = self.store.documents("memory").await?;
        places.retain(|place| place.log_day().is_some());
        places.extend(self.pages_and_memories().await?);
        places.extend(self.recent_primers().await?);
        // An unreadable file does not prevent the snapshot.
        let unseen = self.store.changed_since_seen(&places).await.unwrap_or_default();
        self.hide_secrets_in_files(unseen.iter().map(|(place, _)| place), hidden).await?;
        Ok(self.history.create_snapshot(note, self.clock.now()).await?)
    }

    /// Replaces secrets in files of the vault, and removes forgotten text that was written again. A
    /// file that is saved at the same moment is left for the next run. Returns whether any file
    /// changed.
    pub(crate) async fn hide_secrets_in_files<'a>(
        &self,
        places: impl IntoIterator<Item = &'a DocPath>,
        hidden: &mut SecretCounts,
    ) -> Result<bool> {
        let mut any = false;
        self.refresh_tombstones().await?;
        let stones = self.tombstones();
        if !self.policy.capture.hide_secrets && stones.is_empty() {
            return Ok(any);
        }
        for place in places {
            // An unreadable file is reported by the operation that needs it.
            let Ok(Some(bytes)) = self.store.document(place).await else { continue };
            let Ok(text) = std::str::from_utf8(&bytes) else { continue };
            let mut found = Vec::new();
            let mut fit = std::borrow::Cow::Borrowed(text);
            if self.policy.capture.hide_secrets {
                let redacted = secrets::redact(text, &self.marker_key);
                (fit, found) = (redacted.text, redacted.hidden);
            }
            if let Some(rest) = stones.needles().redact(&fit) {
                fit = rest.text.into();
            }
            if fit == text {
                continue;
            }
            match self
                .store
                .compare_and_swap(place, fit.as_bytes(), ContentVersion::of(Some(&bytes)))
                .await
            {
                Err(StoreError {
                    kind:
                        StoreErrorKind::Conflict
                        | StoreErrorKind::PermissionDenied
                        | StoreErrorKind::Link,
                    ..
                }) => {
                    continue;
                }
                other => other?,
            }
            for found in found {
                *hidden.entry(found.kind.to_owned()).or_default() += 1;
            }
            any = true;
        }
        Ok(any)
    }
}
