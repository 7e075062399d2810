//! Private data of a vault, in its private folder.

use async_trait::async_trait;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::secrets::MarkerKey;

use super::Vault;
use crate::{NoteStore, Result};

#[async_trait]
impl NoteStore for Vault {
    async fn note(&self, name: &DocPath) -> Result<Option<Vec<u8>>> {
        self.fs.read_note(name)
    }

    async fn put_note(&self, name: &DocPath, bytes: &[u8]) -> Result<()> {
        self.fs.put_note(name, bytes)
    }

    async fn append_note(
        &self,
        name: &DocPath,
        line: &str,
        most_bytes: u64,
        flush: bool,
    ) -> Result<()> {
        self.fs.append_note(name, line.as_bytes(), most_bytes, flush)
    }

    async fn notes(&self, folder: &DocPath) -> Result<Vec<(DocPath, i64)>> {
        self.fs.notes(folder)
    }

    async fn remove_note(&self, name: &DocPath) -> Result<()> {
        self.fs.remove_note(name)
    }

    async fn cached_answer(&self, question: Hash) -> Result<Option<Vec<u8>>> {
        self.fs.read_answer(question)
    }

    async fn cache_answer(&self, question: Hash, answer: &[u8]) -> Result<()> {
        let held = self.lock_and_repair()?;
        self.fs.write_answer(&held, question, answer)
    }

    async fn marker_key(&self) -> Result<Option<MarkerKey>> {
        self.fs.read_marker_key()
    }

    async fn set_marker_key(&self, key: &MarkerKey, replace: bool) -> Result<MarkerKey> {
        self.fs.set_marker_key(key, replace)
    }
}
