//! Model spending: token counts of each day, and the daily limit.
//!
//! Invariant: the limit is never exceeded. The maximum cost of a request is reserved in the day's
//! file before the request; afterwards the actual cost is recorded. A request without an answer
//! stays reserved, since it may have been charged.

use std::collections::HashMap;
use std::sync::PoisonError;

use icecore_domain::layout::DocPath;
use icecore_store::{ContentVersion, Error as StoreError, ErrorKind as StoreErrorKind};
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use crate::{MAX_ATTEMPTS, Memory, Result};

/// One line of a day's file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SpendLine {
    ts: String,
    id: String,
    job: String,
    model: String,
    state: SpendState,
    tokens_in: u64,
    tokens_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SpendState {
    Reserved,
    Spent,
}

/// The spending of a day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DailySpend {
    pub tokens_in: u64,
    pub tokens_out: u64,
    /// Tokens that are reserved for requests without an answer.
    pub reserved: u64,
    /// The number of requests.
    pub asked: usize,
    /// By job.
    pub jobs: Vec<(String, u64)>,
}

impl DailySpend {
    /// Everything that counts against the limit.
    pub fn total(&self) -> u64 {
        self.tokens_in + self.tokens_out + self.reserved
    }
}

/// Tokens that are reserved for one request.
#[derive(Debug, Clone)]
pub(crate) struct TokenReservation {
    id: String,
    job: String,
    model: String,
    day: Date,
}

fn spend_path(day: Date) -> Result<DocPath> {
    Ok(format!("memory/spend/{day}.jsonl").parse().map_err(StoreError::from)?)
}

/// The day's file as far as it was read. It grows by two lines per request, and is read before
/// each.
#[derive(Default)]
pub(crate) struct SpendTally {
    read: Vec<u8>,
    /// By request; the last line of a request counts.
    lines: HashMap<String, SpendLine>,
}

impl SpendTally {
    /// Reads the new lines; the whole file if it is another day's, or was rewritten.
    fn read_new_lines(&mut self, text: &[u8]) {
        if !text.starts_with(&self.read) {
            *self = Self::default();
        }
        let whole = memchr::memrchr(b'\n', text).map_or(0, |end| end + 1);
        let new = text.get(self.read.len()..).unwrap_or_default();
        for line in new
            .split(|&byte| byte == b'\n')
            .filter_map(|line| serde_json::from_slice::<SpendLine>(line).ok())
        {
            self.lines.insert(line.id.clone(), line);
        }
        // An incomplete last line is read again.
        self.read.extend_from_slice(text.get(self.read.len()..whole).unwrap_or_default());
    }

    fn to_daily_spend(&self) -> DailySpend {
        let mut spent = DailySpend::default();
        let mut jobs: std::collections::BTreeMap<String, u64> = std::collections::BTreeMap::new();
        for line in self.lines.values() {
            spent.asked += 1;
            let tokens = line.tokens_in + line.tokens_out;
            *jobs.entry(line.job.clone()).or_default() += tokens;
            match line.state {
                SpendState::Reserved => spent.reserved += tokens,
                SpendState::Spent => {
                    spent.tokens_in += line.tokens_in;
                    spent.tokens_out += line.tokens_out;
                }
            }
        }
        spent.jobs = jobs.into_iter().collect();
        spent
    }
}

impl Memory {
    /// The spending of a day.
    pub async fn load_daily_spend(&self, day: Date) -> Result<DailySpend> {
        let mut tally = SpendTally::default();
        tally.read_new_lines(&self.store.document(&spend_path(day)?).await?.unwrap_or_default());
        Ok(tally.to_daily_spend())
    }

    /// Reserves tokens if the day's limit allows it; otherwise returns how many are left.
    pub(crate) async fn reserve_tokens(
        &self,
        job: &str,
        model: &str,
        tokens_in: u64,
        tokens_out: u64,
        ceiling: u64,
    ) -> Result<Result<TokenReservation, u64>> {
        let now = self.now();
        let path = spend_path(now.day())?;
        let mut last = StoreError::conflict(path.to_string());
        for _ in 0..MAX_ATTEMPTS {
            let so_far = self.store.document(&path).await?;
            let spent = {
                let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.read_new_lines(so_far.as_deref().unwrap_or_default());
                tally.to_daily_spend()
            };
            let left = ceiling.saturating_sub(spent.total());
            if tokens_in + tokens_out > left {
                return Ok(Err(left));
            }
            let reservation = TokenReservation {
                id: format!("{}", spent.asked + 1),
                job: job.into(),
                model: model.into(),
                day: now.day(),
            };
            let line =
                reservation.to_line(now.to_string(), SpendState::Reserved, tokens_in, tokens_out);
            match self
                .store
                .append_if_unchanged(&path, line.as_bytes(), ContentVersion::of(so_far.as_deref()))
                .await
            {
                Err(moved @ StoreError { kind: StoreErrorKind::Conflict, .. }) => last = moved,
                other => {
                    other?;
                    return Ok(Ok(reservation));
                }
            }
        }
        Err(last.into())
    }

    /// Records the actual cost of a request.
    pub(crate) async fn settle_spend(
        &self,
        reservation: &TokenReservation,
        tokens_in: u64,
        tokens_out: u64,
    ) -> Result<()> {
        let path = spend_path(reservation.day)?;
        let line =
            reservation.to_line(self.now().to_string(), SpendState::Spent, tokens_in, tokens_out);
        Ok(self.store.append_to_document(&path, line.as_bytes()).await?)
    }
}

impl TokenReservation {
    fn to_line(&self, ts: String, state: SpendState, tokens_in: u64, tokens_out: u64) -> String {
        let line = SpendLine {
            ts,
            id: self.id.clone(),
            job: self.job.clone(),
            model: self.model.clone(),
            state,
            tokens_in,
            tokens_out,
        };
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    }
}
