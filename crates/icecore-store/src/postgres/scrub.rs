//! Forgets text in a space: removes it from every document and from everything derived.
//!
//! All in one transaction, so readers see the earlier state until it is complete. PostgreSQL keeps
//! deleted rows until the next vacuum of their table, and its log until that is recycled.

use icecore_domain::forget::{self, FileFate, Scrub};
use icecore_domain::layout::{DocPath, PRIVATE};

use super::{Space, Tx};
use crate::{ContentVersion, Result, ScrubOutcome, ScrubbedFile};

/// Longer foreign documents are not read.
const MAX_FOREIGN_BYTES: usize = 64 * 1024 * 1024;

/// The tables of dispensable private data, each with its name column and the corresponding folder
/// of a vault.
const PRIVATE_TABLES: [(&str, &str, &str); 2] =
    [("note", "name", "notes"), ("aside", "place", "quarantine")];

/// For private data, whose versions nobody compares.
const UNKNOWN_VERSIONS: (ContentVersion, ContentVersion) =
    (ContentVersion::ABSENT, ContentVersion::ABSENT);

/// What happens to a document.
fn document_fate(scrub: &Scrub, path: &DocPath, bytes: &[u8]) -> FileFate {
    let is_ours = path.is_vault_file() || path.as_str().starts_with("conversations/");
    if is_ours { scrub.fate(path.as_str(), bytes) } else { FileFate::Same }
}

/// Whether a document is foreign and still contains the text.
fn is_untouched(scrub: &Scrub, path: &DocPath, bytes: &[u8]) -> bool {
    let is_ours = path.is_vault_file() || path.as_str().starts_with("conversations/");
    let is_theirs =
        if is_ours { forget::is_setting(path.as_str()) } else { bytes.len() <= MAX_FOREIGN_BYTES };
    is_theirs && scrub.affects_file(path.as_str(), bytes)
}

impl Space {
    pub(super) async fn scrub_documents(
        &self,
        scrub: &Scrub,
        dry: bool,
    ) -> Result<Vec<ScrubbedFile>> {
        let tx = if dry { self.begin_snapshot_read().await? } else { self.begin().await? };
        let mut found = self.scrub_private(&tx, scrub, dry).await?;
        for path in self.all_documents(&tx, dry).await? {
            let bytes = self.read_from(&tx, &path, 0).await?;
            let before = ContentVersion::of(Some(&bytes));
            let mut after = before;
            let what = match document_fate(scrub, &path, &bytes) {
                FileFate::Same if is_untouched(scrub, &path, &bytes) => ScrubOutcome::Untouched,
                FileFate::Same => continue,
                FileFate::Gone => {
                    if !dry {
                        self.delete_document(&tx, &path).await?;
                        self.derive_replaced(&tx, &path, b"").await?;
                    }
                    after = ContentVersion::ABSENT;
                    ScrubOutcome::Removed
                }
                FileFate::Changed { bytes, lines } => {
                    after = ContentVersion::of(Some(&bytes));
                    if !dry {
                        self.write_document(&tx, &path, &bytes).await?;
                        self.derive_replaced(&tx, &path, &bytes).await?;
                    }
                    ScrubOutcome::Changed(lines)
                }
            };
            found.push(ScrubbedFile {
                path: path.to_string(),
                outcome: what,
                versions: (before, after),
            });
        }
        if !dry {
            self.delete_search_index(&tx).await?;
        }
        tx.commit().await?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// Every document by path; locked, unless this is a dry run.
    async fn all_documents(&self, tx: &Tx, dry: bool) -> Result<Vec<DocPath>> {
        let held = if dry { "" } else { "FOR UPDATE" };
        let sql =
            format!("SELECT path FROM icecore.document WHERE space_id = $1 ORDER BY path {held}");
        tx.query(&sql, &[&self.id])
            .await?
            .iter()
            .map(|row| Ok(row.get::<_, String>(0).parse()?))
            .collect()
    }

    async fn scrub_private(&self, tx: &Tx, scrub: &Scrub, dry: bool) -> Result<Vec<ScrubbedFile>> {
        let mut found = Vec::new();
        let held = if dry { "" } else { "FOR UPDATE" };
        for (table, name, folder) in PRIVATE_TABLES {
            let sql = format!(
                "SELECT {name}, bytes FROM icecore.{table} WHERE space_id = $1 ORDER BY {name} {held}"
            );
            for row in tx.query(&sql, &[&self.id]).await? {
                let called: &str = row.get(0);
                let path = format!("{PRIVATE}/{folder}/{called}");
                let (bytes, what) = match scrub.fate(&path, row.get(1)) {
                    FileFate::Same => continue,
                    FileFate::Gone => (None, ScrubOutcome::Removed),
                    FileFate::Changed { bytes, lines } => {
                        (Some(bytes), ScrubOutcome::Changed(lines))
                    }
                };
                match bytes {
                    _ if dry => {}
                    None => {
                        let sql = format!(
                            "DELETE FROM icecore.{table} WHERE space_id = $1 AND {name} = $2"
                        );
                        tx.execute(&sql, &[&self.id, &called]).await?;
                    }
                    Some(bytes) => {
                        let sql = format!(
                            "UPDATE icecore.{table} SET bytes = $3 WHERE space_id = $1 AND {name} = $2"
                        );
                        tx.execute(&sql, &[&self.id, &called, &bytes]).await?;
                    }
                }
                found.push(ScrubbedFile { path, outcome: what, versions: UNKNOWN_VERSIONS });
            }
        }
        // Model answers may contain it in other words.
        let sql = format!(
            "SELECT encode(question, 'hex') FROM icecore.answer WHERE space_id = $1 {held}"
        );
        for row in tx.query(&sql, &[&self.id]).await? {
            found.push(ScrubbedFile {
                path: format!("{PRIVATE}/answers/{}", row.get::<_, &str>(0)),
                outcome: ScrubOutcome::Removed,
                versions: UNKNOWN_VERSIONS,
            });
        }
        if !dry {
            // The list of seen documents contains names.
            for table in ["answer", "seen"] {
                tx.execute(
                    &format!("DELETE FROM icecore.{table} WHERE space_id = $1"),
                    &[&self.id],
                )
                .await?;
            }
        }
        Ok(found)
    }
}
