//! Captured messages and saved states.

use async_trait::async_trait;
use icecore_domain::calendar::Days;
use icecore_domain::layout::DocPath;
use icecore_domain::record::{BadRecordLine, Record, RecordKey, RecordSetDigest, SessionStats};
use jiff::civil::Date;

use crate::Result;

/// What happened to the records of one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddReport {
    /// Records stored for the first time.
    pub new: usize,
    /// Duplicates with equal text.
    pub same: usize,
    /// Ids of records whose text differs from the stored one.
    pub revised: Vec<String>,
}

/// Records by day and conversation.
#[async_trait]
pub trait RecordStore: Send + Sync {
    /// Stores records. A record with a known key and equal text is a duplicate; one with other text
    /// is stored as a revision, at the time of the first.
    async fn add_records(&self, records: Vec<Record>) -> Result<AddReport>;

    /// Which of these keys are stored, as far as the store knows without reading all files.
    async fn contains_records(&self, keys: &[RecordKey]) -> Result<Vec<bool>>;

    /// The records of these local days, each key once in its latest revision, in the order they
    /// were spoken.
    async fn records(&self, days: Days) -> Result<Vec<Record>>;

    /// The last records of a conversation, at most `most`, each key once in its latest revision, in
    /// the order they were spoken.
    async fn recent_records(&self, conversation: &str, most: usize) -> Result<Vec<Record>>;

    /// A digest of the records of a conversation on these local days. Cheap. A caller that has read
    /// the records compares digests to learn whether other processes added to them since.
    async fn conversation_digest(&self, conversation: &str, days: Days) -> Result<RecordSetDigest>;

    /// All sessions with records, or those of `days`, by day, conversation and name.
    async fn sessions(&self, days: Option<Days>) -> Result<Vec<SessionStats>>;

    /// The local days that have records.
    async fn record_days(&self) -> Result<Vec<Date>>;

    /// Invalid lines of the record files.
    async fn bad_records(&self) -> Result<Vec<(DocPath, BadRecordLine)>>;

    /// Removes all revisions of a conversation's records on these local days and returns their
    /// number. The one exception to keeping every record, for requests to forget.
    async fn forget_records(&self, days: Days, conversation: &str) -> Result<usize>;
}
