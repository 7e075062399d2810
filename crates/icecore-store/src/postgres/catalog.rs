//! Lists the documents of a space and remembers which were processed.

use std::collections::BTreeMap;

use async_trait::async_trait;
use icecore_domain::layout::DocPath;
use tokio_postgres::types::ToSql;

use super::documents::{DocumentMeta, path_prefix, prefix_end};
use super::{Space, Tx};
use crate::{DiskUsage, DocumentCatalog, DocumentStat, Result, Stamp};

#[async_trait]
impl DocumentCatalog for Space {
    async fn documents(&self, under: &str) -> Result<Vec<DocPath>> {
        Ok(self.paths_below(under).await?.into_iter().map(|(path, _)| path).collect())
    }

    async fn document_sizes(&self, under: &str) -> Result<Vec<(DocPath, u64)>> {
        self.paths_below(under).await
    }

    async fn list(&self, under: &str) -> Result<Vec<DocumentStat>> {
        self.stats_below(under).await
    }

    async fn document_len(&self, path: &DocPath) -> Result<u64> {
        let tx = self.begin_reading().await?;
        let found = self.document_meta(&tx, path).await?;
        tx.commit().await?;
        Ok(found.map_or(0, |look| look.length))
    }

    async fn stamps(&self, paths: &[DocPath]) -> Result<Vec<Option<Stamp>>> {
        let tx = self.begin_reading().await?;
        let names: Vec<&str> = paths.iter().map(DocPath::as_str).collect();
        let sql = "SELECT path, version::text FROM icecore.document WHERE space_id = $1 AND path = ANY($2)";
        let rows = tx.query(sql, &[&self.id, &names]).await?;
        tx.commit().await?;
        let found: std::collections::HashMap<String, String> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        Ok(paths.iter().map(|path| found.get(path.as_str()).cloned().map(Stamp)).collect())
    }

    async fn disk_usage(&self) -> Result<Vec<DiskUsage>> {
        let mut parts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for look in self.stats_below("").await? {
            let mut names = look.path.as_str().split('/');
            let part = match (names.next(), names.next(), names.next()) {
                (Some(_), None, _) => "settings".to_owned(),
                (Some("memory"), Some(name), None) if name.ends_with(".md") => {
                    "memory/logs".to_owned()
                }
                (Some("memory"), Some(name), _) => format!("memory/{name}"),
                (Some(folder), ..) => folder.to_owned(),
                (None, ..) => continue,
            };
            let (files, bytes) = parts.entry(part).or_default();
            (*files, *bytes) = (*files + 1, *bytes + look.bytes);
        }
        Ok(parts
            .into_iter()
            .map(|(part, (files, bytes))| DiskUsage { part, files, bytes })
            .collect())
    }

    async fn changed_since_seen(&self, paths: &[DocPath]) -> Result<Vec<(DocPath, Stamp)>> {
        let tx = self.begin_reading().await?;
        let sql = "SELECT path, version::text FROM icecore.document LEFT JOIN icecore.seen USING (space_id, path) \
            WHERE space_id = $1 AND path = ANY($2) AND stamp IS DISTINCT FROM version::text";
        let names: Vec<&str> = paths.iter().map(DocPath::as_str).collect();
        let rows = tx.query(sql, &[&self.id, &names]).await?;
        tx.commit().await?;
        let found: std::collections::HashMap<String, String> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let unseen = paths.iter().filter_map(|path| {
            found.get(path.as_str()).map(|stamp| (path.clone(), Stamp(stamp.clone())))
        });
        Ok(unseen.collect())
    }

    async fn removed_since_seen(&self, under: &str) -> Result<Vec<DocPath>> {
        let tx = self.begin().await?;
        let sql = "DELETE FROM icecore.seen WHERE space_id = $1 AND starts_with(path, $2) AND NOT EXISTS \
            (SELECT FROM icecore.document WHERE document.space_id = $1 AND document.path = seen.path) RETURNING path";
        let rows = tx.query(sql, &[&self.id, &under]).await?;
        tx.commit().await?;
        let mut gone = rows
            .iter()
            .map(|row| Ok(row.get::<_, String>(0).parse()?))
            .collect::<Result<Vec<DocPath>>>()?;
        gone.sort();
        Ok(gone)
    }

    async fn mark_seen(&self, seen: &[(DocPath, Stamp)]) -> Result<()> {
        if seen.is_empty() {
            return Ok(());
        }
        let tx = self.begin().await?;
        let (paths, stamps): (Vec<&str>, Vec<&str>) =
            seen.iter().map(|(path, stamp)| (path.as_str(), stamp.0.as_str())).unzip();
        let sql = "INSERT INTO icecore.seen (space_id, path, stamp) SELECT $1, * FROM unnest($2::text[], $3::text[]) \
            ON CONFLICT (space_id, path) DO UPDATE SET stamp = excluded.stamp";
        let params: [&(dyn ToSql + Sync); 3] = [&self.id, &paths, &stamps];
        tx.execute(sql, &params).await?;
        tx.commit().await
    }
}

impl Space {
    /// The documents below a folder by path, the ledger included.
    pub(super) async fn list_documents(
        &self,
        tx: &Tx,
        under: &str,
    ) -> Result<Vec<(DocPath, DocumentMeta)>> {
        const SQL: &str = "SELECT path, length, version, ended, changed FROM icecore.document \
            WHERE space_id = $1 AND path >= $2 AND path < $3 ORDER BY path";
        let from = path_prefix(under);
        let rows = tx.query(SQL, &[&self.id, &from, &prefix_end(&from)]).await?;
        rows.iter()
            .map(|row| Ok((row.get::<_, String>(0).parse()?, DocumentMeta::from_row(row, 1))))
            .collect()
    }

    pub(super) async fn stats_below(&self, under: &str) -> Result<Vec<DocumentStat>> {
        let tx = self.begin_reading().await?;
        let found = self.query_stats(&tx, under).await?;
        tx.commit().await?;
        Ok(found)
    }

    pub(super) async fn query_stats(&self, tx: &Tx, under: &str) -> Result<Vec<DocumentStat>> {
        let told = |(path, look): (DocPath, DocumentMeta)| DocumentStat {
            bytes: look.length,
            changed: look.changed,
            stamp: look.stamp(),
            path,
        };
        Ok(self.list_documents(tx, under).await?.into_iter().map(told).collect())
    }
}
