//! Opens private SQLite files and classifies their errors.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::SqlResult;

/// How long to wait for another process that writes to the index.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The error of an index whose content is damaged.
pub fn damage_error() -> rusqlite::Error {
    rusqlite::Error::InvalidQuery
}

/// Whether the file is damaged, so that a rebuild helps.
pub fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SchemaChanged, Unknown};
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            matches!(failure.code, DatabaseCorrupt | NotADatabase | SchemaChanged | Unknown)
        }
        rusqlite::Error::InvalidQuery
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::FromSqlConversionFailure(..) => true,
        // A SQLite file of another program.
        rusqlite::Error::QueryReturnedNoRows | rusqlite::Error::SqlInputError { .. } => true,
        _ => false,
    }
}

/// Whether another process may have replaced the file: opening it again may help.
pub fn is_replaced(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, ReadOnly, SystemIoFailure};
    matches!(error.sqlite_error_code(), Some(SystemIoFailure | ReadOnly | CannotOpen))
}

/// Write-ahead logging needs shared memory, which a network file system does not have.
pub fn journal_mode(path: &Path) -> &'static str {
    if is_on_network(path) { "TRUNCATE" } else { "WAL" }
}

/// Truncates a long write-ahead log, which slows the next opening. SQLite's own checkpoints happen
/// at the last close, which for short-lived processes is every close.
pub fn truncate_log(connection: &Connection, path: &Path) -> SqlResult<()> {
    const MAX_LOG_BYTES: u64 = 256 * 1024;
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    if std::fs::metadata(log).is_ok_and(|found| found.len() > MAX_LOG_BYTES) {
        // Without waiting for readers; the next writer tries again.
        connection.busy_timeout(Duration::ZERO)?;
        let emptied = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if !matches!(&emptied, Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy))
        {
            emptied?;
        }
    }
    Ok(())
}

/// Opens a private SQLite file, without following links.
pub fn connect(path: &Path) -> SqlResult<Connection> {
    connect_with(path, journal_mode(path), "NORMAL")
}

pub(super) fn connect_with(path: &Path, journal: &str, synchronous: &str) -> SqlResult<Connection> {
    // The folder's path may contain links, the file must not be one.
    let place = path
        .parent()
        .and_then(|folder| folder.canonicalize().ok())
        .map_or(path.to_owned(), |folder| folder.join(path.file_name().unwrap_or_default()));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(place, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    // Flushing at every close would double the cost of `remember`; [`truncate_log`] flushes a long
    // log.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = {journal}; PRAGMA synchronous = {synchronous}; PRAGMA mmap_size = 0; PRAGMA wal_autocheckpoint = 0;"
    ))?;
    Ok(connection)
}

pub(super) fn is_on_network(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        const NETWORK_FILE_SYSTEMS: &[u64] = &[0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42];
        let folder = path.parent().unwrap_or(path);
        rustix::fs::statfs(folder).is_ok_and(|found| {
            u64::try_from(found.f_type).is_ok_and(|kind| NETWORK_FILE_SYSTEMS.contains(&kind))
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        false
    }
}
