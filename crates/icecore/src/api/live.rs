//! Live changes as server-sent events.
//!
//! One task per space polls for changes, and only while a client is subscribed. Events name what
//! changed; clients read it again from its own route. A client that falls behind is told that
//! everything may have changed.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use futures_util::stream;
use icecore_engine::change_feed::{self, ChangedPart, Fingerprints};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::call::{USER_HEADER, no_such_user, parse_user_name, usage_error};
use crate::error;
use crate::http;
use crate::spaces::{self, SpaceRegistry};
use crate::store_location::StoreLocation;

/// The route of the stream.
pub const PATH: &str = "/api/live";
/// How often a space is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The longest silence before a keep-alive comment.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// The most subscribers.
const MAX_SUBSCRIBERS: usize = 64;
/// The most changes queued for a slow subscriber.
const EVENT_QUEUE_LEN: usize = 256;

/// The subscribers of each space.
pub struct LiveUpdates {
    spaces: Arc<SpaceRegistry>,
    watched: Mutex<HashMap<StoreLocation, broadcast::Sender<ChangedPart>>>,
    places: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl LiveUpdates {
    /// Starts without subscribers.
    pub fn new(spaces: Arc<SpaceRegistry>) -> Arc<Self> {
        let (watched, places) = (Mutex::default(), Arc::new(Semaphore::new(MAX_SUBSCRIBERS)));
        Arc::new(Self { spaces, watched, places, closing: watch::Sender::new(false) })
    }

    /// Ends every stream when the server stops.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Subscribes to the changes of a space.
    async fn subscribe(
        self: &Arc<Self>,
        user: Option<String>,
    ) -> anyhow::Result<broadcast::Receiver<ChangedPart>> {
        let place = self.spaces.location_of(user.as_deref());
        let known = |live: &Self| {
            let watched = live.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.get(&place).map(broadcast::Sender::subscribe)
        };
        if let Some(changes) = known(self) {
            return Ok(changes);
        }
        let first = self.read_state(user.clone()).await?;
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        // If another request was faster, use its poller.
        if let Some(sender) = watched.get(&place) {
            return Ok(sender.subscribe());
        }
        let (sender, changes) = broadcast::channel(EVENT_QUEUE_LEN);
        watched.insert(place.clone(), sender);
        drop(watched);
        tokio::spawn(self.clone().poll_changes(place, user, first));
        Ok(changes)
    }

    async fn read_state(&self, user: Option<String>) -> anyhow::Result<Fingerprints> {
        let spaces = self.spaces.clone();
        let look = move || async move {
            let _held = spaces.acquire_shared(user.as_deref()).await;
            if let Some(user) = user.as_deref()
                && !spaces.has_space(Some(user)).await?
            {
                return Err(no_such_user(user));
            }
            Ok(spaces.chats(user.as_deref()).await?.memory().compute_fingerprints().await?)
        };
        spaces::run_blocking(look).await.map_err(anyhow::Error::msg)?
    }

    /// Polls a space until it has no subscribers.
    async fn poll_changes(
        self: Arc<Self>,
        place: StoreLocation,
        user: Option<String>,
        mut before: Fingerprints,
    ) {
        let (mut ticks, mut closing) = (interval(POLL_INTERVAL), self.closing.subscribe());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                _ = closing.wait_for(|closing| *closing) => break,
            }
            // A file that is being replaced may be missing for a moment; a deleted user has no
            // subscribers for long.
            let after = self.read_state(user.clone()).await;
            // A database that does not answer for a moment ends no stream.
            let is_there =
                after.is_ok() || self.spaces.has_space(user.as_deref()).await.unwrap_or(true);
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            let listened = watched.get(&place).is_some_and(|sender| sender.receiver_count() > 0);
            let Some(sender) = watched.get(&place).filter(|_| listened && is_there) else {
                watched.remove(&place);
                return;
            };
            if let Ok(after) = after {
                for thing in change_feed::changed_parts(&before, &after) {
                    // A missing receiver is noticed above.
                    let _ = sender.send(thing);
                }
                before = after;
            }
        }
        self.watched.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
    }
}

/// One subscriber.
struct LiveStream {
    changes: broadcast::Receiver<ChangedPart>,
    closing: watch::Receiver<bool>,
    greeted: bool,
    _place: OwnedSemaphorePermit,
}

fn event_text(what: &str, name: Option<&str>) -> String {
    format!("event: changed\ndata: {}\n\n", json!({ "what": what, "name": name }))
}

impl LiveStream {
    /// The next event; `None` if the stream ends.
    async fn next_event(&mut self) -> Option<String> {
        if !std::mem::replace(&mut self.greeted, true) {
            // A reconnecting client has missed changes.
            return Some(format!("retry: 2000\n{}", event_text("everything", None)));
        }
        let heard = tokio::select! {
            heard = timeout(KEEP_ALIVE_INTERVAL, self.changes.recv()) => heard,
            _ = self.closing.wait_for(|closing| *closing) => return None,
        };
        match heard {
            Err(_) => Some(": still here\n\n".to_owned()),
            Ok(Ok(thing)) => Some(event_text(thing.what, thing.name.as_deref())),
            Ok(Err(RecvError::Lagged(_))) => Some(event_text("everything", None)),
            Ok(Err(RecvError::Closed)) => None,
        }
    }
}

async fn open_stream(
    live: &Arc<LiveUpdates>,
    uri: &Uri,
    headers: &HeaderMap,
) -> anyhow::Result<LiveStream> {
    if uri.query().is_some_and(|query| !query.is_empty()) {
        return Err(usage_error("this route takes no parameters"));
    }
    let user = match headers.get(USER_HEADER).filter(|value| !value.is_empty()) {
        None => None,
        Some(value) => Some(parse_user_name(
            std::str::from_utf8(value.as_bytes())
                .map_err(|_| usage_error("X-Icecore-User is not UTF-8"))?,
        )?),
    };
    let busy = || {
        error::AppError::new(
            error::Exit::TryLater,
            format!("there are already {MAX_SUBSCRIBERS} subscribers; retry later"),
        )
    };
    let place = live.places.clone().try_acquire_owned().map_err(|_| busy())?;
    let changes = live.subscribe(user).await?;
    Ok(LiveStream { changes, closing: live.closing.subscribe(), greeted: false, _place: place })
}

/// Answers with a stream of changes.
pub async fn live_response(live: Arc<LiveUpdates>, uri: Uri, headers: HeaderMap) -> Response {
    let line = match open_stream(&live, &uri, &headers).await {
        Ok(line) => line,
        Err(error) => {
            let (status, kind, message) = error::http_status_of(&error);
            return http::own_refusal(status, kind, &message);
        }
    };
    let told = stream::unfold(line, |mut line| async move {
        let text = line.next_event().await?;
        Some((Ok::<Bytes, Infallible>(Bytes::from(text)), line))
    });
    let mut response = Response::new(Body::from_stream(told));
    *response.status_mut() = StatusCode::OK;
    let head = response.headers_mut();
    head.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    head.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    head.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
