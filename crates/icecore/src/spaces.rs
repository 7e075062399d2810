//! Spaces: the memories of end users, opened on demand for the servers.
//!
//! A request that names no user uses the main space. Each user has a space of their own below it,
//! so nothing remembered of one user reaches another. In a database other processes also change,
//! create and delete spaces, so an open space is checked before each use.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use icecore_domain::layout::DocPath;
use icecore_domain::plain;
use icecore_engine::converse::{self, Chats};
use icecore_store::Error as StoreError;
use icecore_store::postgres::Figures;
use icecore_store::postgres::jobs::Backlog;
use tokio::runtime::Handle as Runtime;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, Semaphore, watch};

use crate::access::{self, By, Home};
use crate::http::mind::{Begun, Handle, Heard, Mind, NotReady, Ready, Reply, Unkept};
use crate::place::{NAMED, Named, Place, Seen};
use crate::wire::{self, Models};

/// The most open spaces; idle ones are closed and opened again on demand.
const OPEN_SPACES: usize = 256;
/// The most reflections at once; mostly they wait for a model.
const REMEMBERING: usize = 8;
/// The threads that begin and end turns: a minimum, and a number per core, because some wait for
/// the disk while others compute.
const LEAST_HANDS: usize = 4;
const HANDS_PER_CORE: usize = 2;
/// The threads for reflection, and their niceness: turns go first when the processor is busy.
const REMEMBERING_HANDS: usize = 2;
const STANDING_BACK: i32 = 5;
/// How often a folder is scanned for turns that are not reflected yet.
const AGAIN: Duration = Duration::from_secs(60);
/// The same for a database, where it is one query.
const AGAIN_SHARED: Duration = Duration::from_secs(10);
/// The longest user name, in bytes.
pub const MAX_USER_BYTES: usize = 256;
/// The most pending conversations that one scan takes over.
const TAKEN_UP: i64 = 64;
/// The timeout of the readiness check.
const ANSWERING: Duration = Duration::from_secs(3);
/// How often the job backlog is queried at most, and the timeout of the query.
const LOOKED_UP: Duration = Duration::from_secs(5);
const HELD_UP: Duration = Duration::from_secs(1);

/// The memories behind one server.
pub struct Spaces {
    home: Place,
    models: Arc<Models>,
    /// By location.
    open: Mutex<HashMap<Place, Known>>,
    at_once: Arc<Semaphore>,
    remembering: watch::Sender<usize>,
    /// By location; a writer deletes the space.
    gates: Mutex<HashMap<Place, Arc<RwLock<()>>>>,
    runtime: Runtime,
    /// The threads that begin and end turns.
    turning: Hands,
    /// Separate threads for reflection, so that no turn waits for it.
    reflecting: Hands,
    /// When the job backlog was last queried; the result is in `known_backlog`.
    backlog: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    known_backlog: Mutex<Vec<Backlog>>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A space that is open.
#[derive(Clone)]
struct Known {
    chats: Arc<Chats>,
    /// The state of the location when the space was opened.
    seen: Seen,
}

/// A turn in progress.
struct Turn {
    place: Place,
    known: Known,
    begun: converse::Begun,
}

/// A small thread pool for work that uses the disk.
///
/// It is small because every thread that ever allocates keeps memory of its own. Waiting without
/// disk access (for the reflection of the last turn, for another turn of the same conversation, for
/// the writer of the store, for a model, for the lock of a space) holds no thread, so the pool
/// cannot deadlock: even a single thread would do. A thread is held only across calls of the store,
/// which release their locks before they return.
struct Hands(Option<tokio::runtime::Runtime>);

impl Hands {
    fn new(many: usize, name: &str, standing_back: i32) -> Result<Self> {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        threads.worker_threads(many).thread_name(name).enable_all();
        // On other systems this would change the whole process. If it fails, work goes on as
        // before.
        if cfg!(target_os = "linux") && standing_back > 0 {
            threads.on_thread_start(move || {
                let _ = rustix::process::nice(standing_back);
            });
        }
        let threads = threads.build();
        Ok(Self(Some(threads.with_context(|| format!("cannot start the threads for {name}"))?)))
    }

    /// Runs work on the pool; an error if it fails or panics. The work is finished even if the
    /// caller stops waiting.
    async fn take<T: Send + 'static, E: fmt::Display + Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, String> {
        let Some(threads) = &self.0 else { return Err("the server is shutting down".into()) };
        match threads.spawn(work).await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(error) => Err(broken_off(&error)),
        }
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        // Dropping must not block: it may happen on an async task.
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

fn broken_off(error: &tokio::task::JoinError) -> String {
    format!("the task panicked or was cancelled: {error}")
}

/// Decrements a counter on drop.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|many| *many -= 1);
    }
}

/// The canonical name of a user, if one is named.
fn known_as(user: Option<&str>) -> Result<Option<String>> {
    match user.map(|user| plain::one_line(user.trim())).filter(|user| !user.is_empty()) {
        Some(user) if user.len() > MAX_USER_BYTES => {
            anyhow::bail!(
                "the user name has {} bytes; at most {MAX_USER_BYTES} are allowed",
                user.len()
            )
        }
        user => Ok(user),
    }
}

impl Spaces {
    /// The spaces below a main space.
    pub fn new(
        home: Place,
        models: Arc<Models>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Arc<Self>> {
        home.check_home()?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with_hands((HANDS_PER_CORE * cores).max(LEAST_HANDS), home, models, log)
    }

    fn with_hands(
        hands: usize,
        home: Place,
        models: Arc<Models>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            home,
            models,
            open: Mutex::default(),
            at_once: Arc::new(Semaphore::new(REMEMBERING)),
            remembering: watch::Sender::new(0),
            gates: Mutex::default(),
            runtime: Runtime::current(),
            turning: Hands::new(hands, "turns", 0)?,
            reflecting: Hands::new(REMEMBERING_HANDS, "remembering", STANDING_BACK)?,
            backlog: tokio::sync::Mutex::default(),
            known_backlog: Mutex::default(),
            log,
        }))
    }

    /// The models of the server.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    /// The location of a user's space, whether or not it exists.
    pub fn place(&self, user: Option<&str>) -> Place {
        user.map_or_else(|| self.home.clone(), |user| self.home.of_user(user))
    }

    /// Opens the conversations of a user; creates the space if it is missing.
    pub async fn of(&self, user: Option<&str>) -> Result<Arc<Chats>> {
        let user = known_as(user)?;
        Ok(self.at(&self.place(user.as_deref()), user.as_deref()).await?.chats)
    }

    fn known_backlog(&self) -> Vec<Backlog> {
        self.known_backlog.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Place, Known>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open space, opening it if needed. Every space is opened here. A missing space is
    /// created if a user is named.
    async fn at(&self, place: &Place, user: Option<&str>) -> Result<Known> {
        if let Some(known) = self.still(place).await? {
            return Ok(known);
        }
        // Read the state before opening: a change in between is noticed next time.
        let before = place.look().await?;
        let chats = Arc::new(wire::chats(place, user.is_some().then_some(&self.home)).await?);
        chats.wait_for_memory(self.models.summarizer.is_some());
        if let Some(user) = user {
            note_name(&chats, user).await?;
        }
        let seen = match before {
            Some(seen) => seen,
            None => place.look().await?.ok_or(StoreError::Gone)?,
        };
        let mut open = self.known();
        if open.len() >= OPEN_SPACES {
            open.retain(|_, known| Arc::strong_count(&known.chats) > 1);
        }
        // If another task was faster, use its space.
        Ok(open.entry(place.clone()).or_insert(Known { chats, seen }).clone())
    }

    /// Returns a space that is open and unchanged: not deleted, created again or given other
    /// settings by this or another process.
    async fn still(&self, place: &Place) -> Result<Option<Known>> {
        let Some(known) = self.known().get(place).cloned() else { return Ok(None) };
        let is_same = place.look().await?.is_some_and(|seen| seen == known.seen);
        let mut open = self.known();
        let current =
            open.get(place).filter(|current| Arc::ptr_eq(&current.chats, &known.chats)).cloned();
        if current.is_some() && !is_same {
            open.remove(place);
        }
        Ok(current.filter(|_| is_same))
    }

    /// Whether the open space still exists: false if the user was forgotten meanwhile.
    async fn is_current(&self, place: &Place, known: &Known) -> Result<bool> {
        let Some(seen) = place.look().await? else { return Ok(false) };
        // A folder does not tell a deleted and recreated space apart; the cache does.
        let is_open = || {
            self.known().get(place).is_some_and(|current| Arc::ptr_eq(&current.chats, &known.chats))
        };
        Ok(seen.is_same_life(&known.seen).unwrap_or_else(is_open))
    }

    /// Whether a user has a space.
    pub async fn has(&self, user: Option<&str>) -> Result<bool> {
        let place = self.place(user);
        Ok(self.still(&place).await?.is_some() || place.look().await?.is_some())
    }

    /// Lists every space: its user, if known, and its name.
    pub async fn named(&self) -> Result<Vec<(Option<String>, String)>> {
        let mut all: Vec<_> = self
            .home
            .users()
            .await?
            .into_iter()
            .map(|(user, place)| (user, place.title()))
            .collect();
        all.sort();
        Ok(all)
    }

    /// Closes a space; the next request opens it again.
    pub fn close(&self, user: Option<&str>) {
        self.known().remove(&self.place(user));
    }

    /// Deletes an end user's space while no one works in it. In a database the audit log records
    /// who did it.
    pub async fn forget(&self, user: &str, by: &By) -> Result<bool> {
        let place = self.place(Some(user));
        let gate = self.gate(&place);
        let _alone = gate.write().await;
        // Only once: what the user writes afterwards starts a new space, which stays.
        let gone = match Home::at(&self.home) {
            Ok(home) => access::erase(&home, user, by).await,
            Err(_) => place.erase().await,
        };
        self.known().remove(&place);
        gone
    }

    fn gate(&self, place: &Place) -> Arc<RwLock<()>> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= OPEN_SPACES {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        gates.entry(place.clone()).or_default().clone()
    }

    /// Takes the shared lock of a space. Every operation in the space holds it; deleting the space
    /// takes it exclusively.
    pub async fn held(&self, user: Option<&str>) -> OwnedRwLockReadGuard<()> {
        self.gate(&self.place(user)).read_owned().await
    }

    /// Schedules the reflection of a conversation's pending turns in the background.
    fn remember_soon(self: &Arc<Self>, place: Place, known: Known, conversation: String) {
        let spaces = self.clone();
        spaces.remembering.send_modify(|many| *many += 1);
        let counted = Counted(spaces.remembering.clone());
        self.runtime.spawn(async move {
            let _counted = counted;
            let _place = spaces.at_once.clone().acquire_owned().await;
            // Boxed late: thousands of these tasks may wait, and each would reserve its full size.
            Box::pin(spaces.remember(&place, &known, &conversation)).await;
        });
    }

    async fn remember(self: &Arc<Self>, place: &Place, known: &Known, conversation: &str) {
        let _held = self.gate(place).read_owned().await;
        match self.is_current(place, known).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                return (self.log)(&format!("a turn could not be reflected yet: {error}"));
            }
        }
        let (chats, name, models) =
            (known.chats.clone(), conversation.to_owned(), self.models.clone());
        let done = self
            .reflecting
            .take(async move { chats.reflect(&name, models.asking().as_ref(), false).await })
            .await;
        match done {
            Ok(reflected) => {
                for (turn, why) in reflected.raw.iter().filter(|_| self.models.summarizer.is_some())
                {
                    (self.log)(&format!(
                        "turn {turn} stays unsummarized for now: {}",
                        plain::one_line(why)
                    ));
                }
            }
            // The exchange itself is stored; the next scan finds the pending turn.
            Err(error) => (self.log)(&format!("a turn could not be reflected yet: {error}")),
        }
    }

    /// Starts the periodic scan for pending turns, including those of earlier runs.
    pub fn keep_remembering(self: &Arc<Self>) {
        let spaces = self.clone();
        self.runtime.spawn(async move {
            loop {
                if let Err(error) = spaces.remember_all().await {
                    (spaces.log)(&format!("the scan for pending turns failed: {error}"));
                }
                tokio::time::sleep(if spaces.home.database().is_some() {
                    AGAIN_SHARED
                } else {
                    AGAIN
                })
                .await;
            }
        });
    }

    async fn remember_all(self: &Arc<Self>) -> Result<()> {
        if let Place::Space { database, name } = &self.home {
            // The database lists pending conversations of every process and leases each to one.
            for (name, conversation) in
                database.unremembered(name, TAKEN_UP, converse::LEASE).await?
            {
                let place = Place::Space { database: database.clone(), name };
                // A space that cannot be opened does not block the others.
                match self.at(&place, None).await {
                    Ok(known) => self.remember_soon(place, known, conversation),
                    Err(error) => {
                        (self.log)(&format!("a turn could not be reflected yet: {error}"))
                    }
                }
            }
            return Ok(());
        }
        let users = self.home.users().await?.into_iter().map(|(_, place)| place);
        for place in std::iter::once(self.home.clone()).chain(users) {
            let held = self.gate(&place).read_owned().await;
            let Ok(known) = self.at(&place, None).await else { continue };
            let (looking, has_model) = (known.chats.clone(), self.models.summarizer.is_some());
            let looking = self
                .reflecting
                .take(async move { looking.unremembered(converse::REACH_DAYS, has_model).await });
            let waiting = looking.await.unwrap_or_default();
            drop(held);
            for conversation in waiting {
                self.remember(&place, &known, &conversation).await;
            }
        }
        Ok(())
    }

    /// Waits for running reflections, at most `most`. Unfinished ones stay pending.
    pub async fn settle(&self, most: Duration) -> bool {
        let mut remembering = self.remembering.subscribe();
        tokio::time::timeout(most, remembering.wait_for(|many| *many == 0)).await.is_ok()
    }
}

/// Stores the user's name in their space, if it is not there yet.
async fn note_name(chats: &Chats, user: &str) -> Result<()> {
    let (store, place) = (chats.memory().store(), NAMED.parse::<DocPath>()?);
    if store.document(&place).await?.is_none() {
        store.put(&place, &serde_json::to_vec(&Named { user: user.to_owned() })?).await?;
    }
    Ok(())
}

/// Runs long work on a blocking thread, away from turns; an error if it panics.
pub async fn aside<T: Send + 'static, F: Future<Output = T>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, String> {
    let runtime = Runtime::current();
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work())).await;
    done.map_err(|error| broken_off(&error))
}

/// The spaces as the chat server's memory. A separate type, because its tasks hold the `Arc`.
pub struct Chatting(pub Arc<Spaces>);

#[async_trait]
impl Mind for Chatting {
    async fn begin(&self, heard: Heard) -> Result<Begun, String> {
        let spaces = self.0.clone();
        let user = known_as(heard.user.as_deref()).map_err(|error| error.to_string())?;
        let held = spaces.held(user.as_deref()).await;
        self.0
            .turning
            .take(async move {
                let _held = held;
                let place = spaces.place(user.as_deref());
                let known = spaces.at(&place, user.as_deref()).await?;
                let messages = heard.messages.into_iter().map(|told| converse::Message {
                    role: told.role,
                    name: told.name,
                    text: told.text,
                    raw: told.raw,
                    has_tools: told.has_tools,
                });
                let heard = converse::Heard {
                    conversation: heard.conversation,
                    history: heard.history,
                    shared_key: heard.shared_key,
                    mode: heard.mode,
                    messages: messages.collect(),
                };
                let begun = known.chats.begin(heard).await?;
                anyhow::Ok(Begun {
                    conversation: begun.conversation.clone(),
                    turn: begun.turn,
                    memory: begun.memory.clone(),
                    placement: begun.placement,
                    mode: begun.mode,
                    window: begun
                        .window
                        .iter()
                        .map(|(role, text)| ((*role).to_owned(), text.clone()))
                        .collect(),
                    new_from: begun.new_from,
                    injected: begun.injected.clone(),
                    injected_tokens: begun.tokens,
                    left_out: begun.left_out.len(),
                    cost_tokens: begun.cost_tokens,
                    handle: Handle(Some(Arc::new(Turn { place, known, begun }))),
                })
            })
            .await
    }

    async fn end(&self, begun: &Begun, reply: Reply) -> Result<(), Unkept> {
        let Some(turn) = begun.handle.0.clone().and_then(|handle| handle.downcast::<Turn>().ok())
        else {
            return Err(Unkept::for_good("this turn was not started by this server"));
        };
        let held = self.0.gate(&turn.place).read_owned().await;
        if !self.0.is_current(&turn.place, &turn.known).await.map_err(Unkept::for_now)? {
            return Err(Unkept::for_good(
                "the user was forgotten while the reply arrived, so this exchange is not stored",
            ));
        }
        let reply =
            converse::Reply { text: reply.text, parts: reply.parts, complete: reply.complete };
        let ending = turn.clone();
        let ended = self.0.turning.take(async move {
            let _held = held;
            ending.known.chats.end(&ending.begun, &reply).await
        });
        let cut = ended.await.map_err(Unkept::for_now)?;
        for what in cut {
            (self.0.log)(&format!("an exchange was truncated before it was stored: {what}"));
        }
        // Only the turn's location: many may wait, and the exchange is stored.
        self.0.remember_soon(
            turn.place.clone(),
            turn.known.clone(),
            turn.begun.conversation.clone(),
        );
        Ok(())
    }
}

#[async_trait]
impl Ready for Spaces {
    async fn ready(&self) -> Result<(), NotReady> {
        if let Some(database) = self.home.database() {
            match tokio::time::timeout(ANSWERING, database.ready()).await {
                Ok(Ok(())) => {}
                Ok(Err(error @ (StoreError::Schema(_) | StoreError::Newer(_)))) => {
                    return Err(NotReady::new("the database has another schema version", error));
                }
                Ok(Err(error @ StoreError::ReadOnly { is_standby: true, .. })) => {
                    return Err(NotReady::new(
                        "the database is a standby and accepts no writes",
                        error,
                    ));
                }
                Ok(Err(error @ StoreError::ReadOnly { .. })) => {
                    return Err(NotReady::new(
                        "the database is read-only and accepts no writes",
                        error,
                    ));
                }
                Ok(Err(error @ StoreError::Unwelcome { .. })) => {
                    return Err(NotReady::new("the database rejects the login", error));
                }
                Ok(Err(error)) => return Err(NotReady::new("the database does not answer", error)),
                Err(_) => {
                    return Err(NotReady::new(
                        "the database does not answer",
                        format!("nothing within {ANSWERING:?}"),
                    ));
                }
            }
        }
        self.of(None)
            .await
            .map(|_| ())
            .map_err(|error| NotReady::new("memory cannot be opened", error))
    }

    fn figures(&self) -> Option<Figures> {
        self.home.database().map(|database| database.figures())
    }

    async fn backlog(&self) -> Vec<Backlog> {
        let Some(database) = self.home.database() else { return Vec::new() };
        // While one request queries, the others get the last result.
        let Ok(mut looked) = self.backlog.try_lock() else { return self.known_backlog() };
        if looked.is_none_or(|then| then.elapsed() >= LOOKED_UP) {
            *looked = Some(tokio::time::Instant::now());
            let found = tokio::time::timeout(HELD_UP, database.backlog()).await;
            // Old figures would mislead while the database does not answer.
            *self.known_backlog.lock().unwrap_or_else(PoisonError::into_inner) =
                found.ok().and_then(Result::ok).unwrap_or_default();
        }
        self.known_backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::mind::{Dialect, Told};
    use icecore_engine::settings::Settings;
    use icecore_store::postgres::{Options, Postgres};
    use icecore_store::testing::cluster::{Cluster, Flush};

    fn spaces(folder: &std::path::Path) -> Arc<Spaces> {
        with_hands(folder, LEAST_HANDS)
    }

    fn with_hands(folder: &std::path::Path, hands: usize) -> Arc<Spaces> {
        let home = folder.join("home");
        icecore_store::vault::Vault::create(&home, "zone = \"UTC\"\n").unwrap();
        let settings =
            Settings::read(None, &|_| None, &|path| std::fs::read_to_string(path)).unwrap();
        let models = Arc::new(Models { settings, place: Default::default(), summarizer: None });
        Spaces::with_hands(hands, Place::Folder(home), models, Arc::new(|_: &str| {})).unwrap()
    }

    fn by() -> By {
        By {
            token: "home".into(),
            door: "api",
            who: String::new(),
            now: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn heard(user: &str) -> Heard {
        let told = Told {
            role: "user".into(),
            name: None,
            text: "hi".into(),
            raw: r#"{"role":"user","content":"hi"}"#.into(),
            has_tools: false,
        };
        Heard {
            user: Some(user.into()),
            conversation: Some("app".into()),
            history: converse::ClientHistory::Unknown,
            shared_key: None,
            dialect: Dialect::OpenAi,
            model: String::new(),
            mode: None,
            messages: vec![told],
        }
    }

    fn reply() -> Reply {
        Reply { text: "hello".into(), complete: true, status: 200, ..Reply::default() }
    }

    // C8
    #[tokio::test]
    async fn a_space_is_opened_once_whoever_asks_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = spaces(folder.path());
        let chatting = Chatting(spaces.clone());
        let begun = chatting.begin(heard("ann")).await.unwrap();
        chatting.end(&begun, reply()).await.unwrap();
        assert!(spaces.settle(Duration::from_secs(10)).await);
        drop(begun);
        // As if the server had been started again.
        spaces.open.lock().unwrap().clear();
        spaces.remember_all().await.unwrap();
        let known = spaces.open.lock().unwrap().get(&spaces.place(Some("ann"))).cloned().unwrap();
        assert!(Arc::ptr_eq(&known.chats, &spaces.of(Some(" ann ")).await.unwrap()));
    }

    fn heard_in(user: &str, conversation: &str, text: &str) -> Heard {
        let raw = serde_json::json!({ "role": "user", "content": text }).to_string();
        let told =
            Told { role: "user".into(), name: None, text: text.into(), raw, has_tools: false };
        Heard { conversation: Some(conversation.into()), messages: vec![told], ..heard(user) }
    }

    // C8
    #[tokio::test]
    async fn who_waits_for_memory_holds_up_nobody_else_even_if_a_single_thread_does_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = with_hands(folder.path(), 1);
        let chatting = Arc::new(Chatting(spaces.clone()));
        let chats = spaces.of(Some("ann")).await.unwrap();
        chats.wait_for_memory(true);
        // Nothing is remembered for now.
        let places = spaces
            .at_once
            .clone()
            .acquire_many_owned(u32::try_from(REMEMBERING).unwrap())
            .await
            .unwrap();
        let begun = chatting.begin(heard_in("ann", "slow", "hi")).await.unwrap();
        chatting.end(&begun, reply()).await.unwrap();
        let slow: Vec<_> = (0..20)
            .map(|n| {
                let chatting = chatting.clone();
                tokio::spawn(async move {
                    chatting.begin(heard_in("ann", "slow", &format!("what now, {n}?"))).await
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        for user in ["ann", "ben"] {
            let begun = chatting.begin(heard_in(user, "quick", "hi")).await.unwrap();
            chatting.end(&begun, reply()).await.unwrap();
        }
        assert!(
            slow.iter().all(|turn| !turn.is_finished()),
            "they wait for what is not remembered yet"
        );
        drop(places);
        for turn in slow {
            assert!(turn.await.unwrap().unwrap().turn > 1);
        }
        assert!(spaces.settle(Duration::from_secs(10)).await);
    }

    // C8
    #[tokio::test]
    async fn many_turns_end_at_once_with_a_single_thread() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = with_hands(folder.path(), 1);
        let chatting = Arc::new(Chatting(spaces.clone()));
        let turns: Vec<_> = (0..40)
            .map(|n| {
                let chatting = chatting.clone();
                // Some of them in the same conversation, some of the same user.
                let heard = heard_in(
                    if n % 2 == 0 { "ann" } else { "ben" },
                    &format!("c-{}", n % 5),
                    &format!("number {n}"),
                );
                tokio::spawn(async move {
                    let begun = chatting.begin(heard).await?;
                    chatting
                        .end(&begun, reply())
                        .await
                        .map(|()| begun.conversation.clone())
                        .map_err(|unkept| unkept.said)
                })
            })
            .collect();
        for turn in turns {
            tokio::time::timeout(Duration::from_secs(60), turn).await.unwrap().unwrap().unwrap();
        }
        assert!(spaces.settle(Duration::from_secs(60)).await);
        let kept = spaces.of(Some("ann")).await.unwrap().conversations().await.unwrap();
        assert_eq!(kept.iter().map(|one| one.messages).sum::<u64>(), 2 * 20);
    }

    // C8
    #[tokio::test]
    async fn work_that_panics_is_told_and_leaves_the_threads_whole() {
        let hands = Hands::new(1, "test", STANDING_BACK).unwrap();
        let broken = hands.take(async { Ok::<u32, String>("no number".parse().unwrap()) }).await;
        assert!(broken.unwrap_err().contains("panicked"));
        assert_eq!(hands.take(async { Ok::<_, String>(7) }).await, Ok(7));
    }

    // C14
    #[tokio::test]
    async fn who_is_forgotten_while_a_reply_comes_stays_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = spaces(folder.path());
        let chatting = Chatting(spaces.clone());
        let begun = chatting.begin(heard("ann")).await.unwrap();
        assert!(spaces.forget("ann", &by()).await.unwrap());
        assert!(
            chatting
                .end(&begun, reply())
                .await
                .is_err_and(|unkept| !unkept.may_pass && unkept.said.contains("forgotten"))
        );
        assert!(
            !spaces.has(Some("ann")).await.unwrap() && spaces.named().await.unwrap().is_empty()
        );
        // A request during the deletion of a space waits until it is gone, and starts a new one.
        let begun = chatting.begin(heard("ann")).await.unwrap();
        chatting.end(&begun, reply()).await.unwrap();
        assert!(spaces.settle(Duration::from_secs(10)).await);
        let gate = spaces.gate(&spaces.place(Some("ann")));
        let taking_away = gate.write().await;
        let waiting = {
            let chatting = Chatting(spaces.clone());
            tokio::spawn(async move { chatting.begin(heard(" ann ")).await })
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!waiting.is_finished());
        spaces.place(Some("ann")).erase().await.unwrap();
        drop(taking_away);
        assert_eq!(waiting.await.unwrap().unwrap().turn, 1);
        // A pending reflection does not bring anything back.
        let place = spaces.place(Some("ann"));
        let known = spaces.at(&place, Some("ann")).await.unwrap();
        spaces.forget("ann", &by()).await.unwrap();
        spaces.remember(&place, &known, "app").await;
        assert!(!spaces.has(Some("ann")).await.unwrap());
    }

    // C14: what is written before is taken away with the rest, what is written after stays.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_space_in_a_database_is_taken_away_once_and_not_under_anybodys_hands() {
        let cluster = Cluster::start(Flush::No);
        let database = Postgres::at(&cluster.url(), Options::default()).unwrap();
        database.migrate().await.unwrap();
        database.create("h", "zone = \"UTC\"\n").await.unwrap();
        let settings =
            Settings::read(None, &|_| None, &|path| std::fs::read_to_string(path)).unwrap();
        let models = Arc::new(Models { settings, place: Default::default(), summarizer: None });
        let home = Place::Space { database: database.clone(), name: "h".into() };
        let spaces = Spaces::with_hands(LEAST_HANDS, home, models, Arc::new(|_: &str| {})).unwrap();
        spaces.of(Some("ann")).await.unwrap();
        let at_work = spaces.held(Some("ann")).await;
        let forgetting = {
            let spaces = spaces.clone();
            tokio::spawn(async move { spaces.forget("ann", &by()).await })
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(
            !forgetting.is_finished() && database.space("h/ann").await.unwrap().is_some(),
            "somebody works in it"
        );
        drop(at_work);
        assert!(forgetting.await.unwrap().unwrap());
        assert!(
            database.space("h/ann").await.unwrap().is_none()
                && !spaces.forget("ann", &by()).await.unwrap()
        );
        spaces.of(Some("ann")).await.unwrap();
        let deeds = database.deeds("h", Some("h/ann"), None, 10).await.unwrap();
        assert_eq!(
            deeds.iter().map(|noted| noted.deed.verb.as_str()).collect::<Vec<_>>(),
            ["space erase"]
        );
        assert!(spaces.has(Some("ann")).await.unwrap());
    }
}
