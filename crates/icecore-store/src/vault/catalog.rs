//! Lists the documents of a vault and remembers in the index which were processed.

use std::collections::HashSet;

use async_trait::async_trait;
use icecore_domain::layout::{DocPath, FileKind};

use super::Vault;
use crate::{DiskUsage, DocumentCatalog, DocumentStat, Result, Stamp};

#[async_trait]
impl DocumentCatalog for Vault {
    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut found = self.fs.documents(under)?;
        found.retain(|path| path.file_kind() != FileKind::Ledger);
        Ok(found)
    }

    async fn document_sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        let size = |path: DocPath| Ok(self.fs.stat(&path)?.map(|look| (path, look.len)));
        self.documents(under).await?.into_iter().filter_map(|path| size(path).transpose()).collect()
    }

    async fn list(&self, under: &str) -> Result<Vec<DocumentStat>> {
        let mut found = Vec::new();
        for path in self.fs.documents(under)? {
            if let Some(look) = self.fs.stat(&path)? {
                found.push(DocumentStat {
                    bytes: look.len,
                    changed: look.modified_at(),
                    stamp: Stamp(look.stamp()),
                    path,
                });
            }
        }
        Ok(found)
    }

    async fn document_len(&self, path: &DocPath) -> Result<u64> {
        Ok(self.fs.stat(path)?.map_or(0, |look| look.len))
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        paths.iter().map(|path| Ok(self.fs.stat(path)?.map(|look| Stamp(look.stamp())))).collect()
    }

    async fn disk_usage(&self) -> Result<Vec<DiskUsage>> {
        self.fs.disk_usage()
    }

    async fn changed_since_seen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        let looks = self.fs.stat_all(paths)?;
        let there = paths
            .iter()
            .zip(looks)
            .filter_map(|(path, look)| Some((path.clone(), Stamp(look?.stamp()))));
        let mut found: Vec<(DocPath, Stamp)> = there.collect();
        if found.is_empty() {
            return Ok(found);
        }
        let paths: Vec<&DocPath> = found.iter().map(|(path, _)| path).collect();
        let seen = self.query_index(|index| index.seen_stamps(&paths))?;
        if let Some(seen) = seen {
            let mut seen = seen.into_iter();
            found.retain(|(_, stamp)| seen.next().flatten().as_ref() != Some(stamp));
        }
        Ok(found)
    }

    async fn removed_since_seen(&self, under: &str) -> Result<Vec<DocPath>> {
        let mut gone = Vec::new();
        let looked_at = self.query_index(|index| index.seen_documents(under))?.unwrap_or_default();
        // Listing a folder is cheaper than a stat of each file; only files missing in the list are
        // checked.
        let listed: HashSet<String> =
            self.fs.documents(under)?.into_iter().map(|path| path.to_string()).collect();
        for path in looked_at.iter().filter(|path| !listed.contains(*path)) {
            let path: DocPath = path.parse()?;
            if self.fs.stat(&path)?.is_none() {
                self.query_index(|index| index.forget_seen(&path))?;
                gone.push(path);
            }
        }
        Ok(gone)
    }

    async fn mark_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        if !seen.is_empty() {
            self.query_index(|index| index.put_seen(seen))?;
        }
        Ok(())
    }
}
