//! Turn leases between processes (C8): a turn begins when the last one is summarized, by whichever
//! process, and one process at a time works on a conversation.

use std::pin::pin;
use std::time::Duration;

use icecore_store::Order;

use super::Chats;
use crate::{Error, Result};

/// A pending turn whose process has neither finished nor renewed its lease for this long is no
/// longer waited for.
pub const LEASE: Duration = Duration::from_secs(60);
/// The interval of lease renewals.
const RENEWED: Duration = Duration::from_secs(20);
/// The delay after a failure before a conversation is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// The poll interval while another process holds the lease: short at first, then longer.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(80);

/// A growing delay.
struct Pauses(Duration);

impl Pauses {
    async fn next(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

impl Chats {
    /// Waits until no other process is about to summarize the conversation. The caller sets the
    /// timeout.
    pub(super) async fn remembered_elsewhere(&self, conversation: &str) {
        let Some(order) = self.memory.store.order() else { return };
        let mut pauses = Pauses(FIRST_PAUSE);
        // If the store gives no answer, nothing is waited for.
        while order.is_awaited(conversation).await.unwrap_or(false) {
            pauses.next().await;
        }
    }

    /// Runs work that only one process may do at a time in a conversation. The work returns whether
    /// something is left for later.
    pub(super) async fn in_order<T>(
        &self,
        conversation: &str,
        work: impl Future<Output = Result<(T, bool)>>,
    ) -> Result<T> {
        let Some(order) = self.memory.store.order() else {
            return work.await.map(|(done, _)| done);
        };
        let known = self.take(order, conversation).await?;
        let done = self.renewing(order, conversation, work).await;
        let is_left = done.as_ref().map_or(true, |(_, is_left)| *is_left);
        let released =
            order.release(conversation, &self.who, known, is_left.then_some(AGAIN)).await;
        let (done, _) = done?;
        // A lease that is not released expires; the work is done all the same.
        let _ = released;
        Ok(done)
    }

    async fn take(&self, order: &dyn Order, conversation: &str) -> Result<i64> {
        let taking = async {
            let mut pauses = Pauses(FIRST_PAUSE);
            loop {
                if let Some(known) = order.take(conversation, &self.who, LEASE).await? {
                    return Ok(known);
                }
                pauses.next().await;
            }
        };
        match tokio::time::timeout(LEASE, taking).await {
            Ok(taken) => taken,
            Err(_) => Err(Error::Busy(
                "another process is summarizing this conversation; try again later".into(),
            )),
        }
    }

    async fn renewing<T>(
        &self,
        order: &dyn Order,
        conversation: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(RENEWED) => {}
            }
            // A process that renewed too late may have lost its lease; then the other process goes
            // on.
            if matches!(order.take(conversation, &self.who, LEASE).await, Ok(None)) {
                return Err(Error::Busy("another process has taken over this conversation".into()));
            }
        }
    }
}
