//! The order of turns between processes (C8): a turn begins when the last one is remembered,
//! wherever that is done, and a conversation is remembered by one process at a time.

use std::pin::pin;
use std::time::Duration;

use icecore_store::Order;

use super::Chats;
use crate::{Error, Result};

/// Whoever has not remembered an exchange within so long, or said that it is at it, is waited for
/// no longer.
pub const LEASE: Duration = Duration::from_secs(60);
/// How often whoever is at it says so.
const RENEWED: Duration = Duration::from_secs(20);
/// A conversation in which something failed is looked at again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// How often it is asked whether somebody else is done: soon at first, then less and less often.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(80);

/// Pauses that become longer.
struct Pauses(Duration);

impl Pauses {
    async fn next(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

impl Chats {
    /// Returns when no other process is about to remember the conversation. Whoever calls this
    /// bounds it.
    pub(super) async fn remembered_elsewhere(&self, conversation: &str) {
        let Some(order) = self.memory.store.order() else { return };
        let mut pauses = Pauses(FIRST_PAUSE);
        // A home that does not say it is not waited for.
        while order.is_awaited(conversation).await.unwrap_or(false) {
            pauses.next().await;
        }
    }

    /// Does something with a conversation that only one process does at a time. It says whether
    /// anything is left to be done later.
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
        // What is not given back ends by itself; the work is done all the same.
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
            Err(_) => Err(Error::Busy("another process is remembering this conversation".into())),
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
            // Who could not say so in time may have been replaced, and leaves it to the other.
            if matches!(order.take(conversation, &self.who, LEASE).await, Ok(None)) {
                return Err(Error::Busy("another process has taken this conversation over".into()));
            }
        }
    }
}
