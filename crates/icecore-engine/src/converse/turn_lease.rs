//! Turn leases between processes (C8): a turn begins when the last one is summarized, by whichever
//! process, and one process at a time works on a conversation.

use std::pin::pin;
use std::time::Duration;

use icecore_store::TurnLeases;

use super::Chats;
use crate::{Error, Result};

/// A pending turn whose process has neither finished nor renewed its lease for this long is no
/// longer waited for.
pub const LEASE_DURATION: Duration = Duration::from_secs(60);
/// The interval of lease renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// The delay after a failure before a conversation is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(60);
/// The poll interval while another process holds the lease: short at first, then longer.
const FIRST_POLL_DELAY: Duration = Duration::from_millis(5);
const MAX_POLL_DELAY: Duration = Duration::from_millis(80);

/// A growing delay.
struct PollDelay(Duration);

impl PollDelay {
    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(MAX_POLL_DELAY);
    }
}

impl Chats {
    /// Waits until no other process is about to summarize the conversation. The caller sets the
    /// timeout.
    pub(super) async fn wait_for_other_processes(&self, conversation: &str) {
        let Some(order) = self.memory.store.turn_lease() else { return };
        let mut pauses = PollDelay(FIRST_POLL_DELAY);
        // If the store gives no answer, nothing is waited for.
        while order.has_pending(conversation).await.unwrap_or(false) {
            pauses.wait().await;
        }
    }

    /// Runs work that only one process may do at a time in a conversation. The work returns whether
    /// something is left for later.
    pub(super) async fn with_turn_lease<T>(
        &self,
        conversation: &str,
        work: impl Future<Output = Result<(T, bool)>>,
    ) -> Result<T> {
        let Some(order) = self.memory.store.turn_lease() else {
            return work.await.map(|(done, _)| done);
        };
        let known = self.acquire_turn_lease(order, conversation).await?;
        let done = self.renew_while(order, conversation, work).await;
        let is_left = done.as_ref().map_or(true, |(_, is_left)| *is_left);
        let released =
            order.release(conversation, &self.who, known, is_left.then_some(RETRY_DELAY)).await;
        let (done, _) = done?;
        // A lease that is not released expires; the work is done all the same.
        let _ = released;
        Ok(done)
    }

    async fn acquire_turn_lease(&self, order: &dyn TurnLeases, conversation: &str) -> Result<i64> {
        let taking = async {
            let mut pauses = PollDelay(FIRST_POLL_DELAY);
            loop {
                if let Some(known) = order.acquire(conversation, &self.who, LEASE_DURATION).await? {
                    return Ok(known);
                }
                pauses.wait().await;
            }
        };
        match tokio::time::timeout(LEASE_DURATION, taking).await {
            Ok(taken) => taken,
            Err(_) => Err(Error::Busy(
                "another process is summarizing this conversation; try again later".into(),
            )),
        }
    }

    async fn renew_while<T>(
        &self,
        order: &dyn TurnLeases,
        conversation: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(RENEW_INTERVAL) => {}
            }
            // A process that renewed too late may have lost its lease; then the other process goes
            // on.
            if matches!(order.acquire(conversation, &self.who, LEASE_DURATION).await, Ok(None)) {
                return Err(Error::Busy("another process has taken over this conversation".into()));
            }
        }
    }
}
