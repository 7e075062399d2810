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
use icecore_domain::sanitize;
use icecore_engine::converse::{self, Chats};
use icecore_store::postgres::PoolStats;
use icecore_store::postgres::jobs::JobBacklog;
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, Semaphore, watch};

use crate::access::{self, Actor, DatabaseStore};
use crate::bootstrap::{self, Models};
use crate::http::chat_memory::{
    AssistantReply, ChatMemory, NotReady, PersistError, PreparedTurn, ReadinessCheck, TurnHandle,
    TurnRequest,
};
use crate::store_location::{LocationState, SpaceOwner, StoreLocation, USER_NAME_FILE};

/// The most open spaces; idle ones are closed and opened again on demand.
const MAX_OPEN_SPACES: usize = 256;
/// The most reflections at once; mostly they wait for a model.
const MAX_REFLECTIONS: usize = 8;
/// The threads that begin and end turns: a minimum, and a number per core, because some wait for
/// the disk while others compute.
const MIN_TURN_THREADS: usize = 4;
const TURN_THREADS_PER_CORE: usize = 2;
/// The threads for reflection, and their niceness: turns go first when the processor is busy.
const REFLECTION_THREADS: usize = 2;
const REFLECTION_NICENESS: i32 = 5;
/// How often a folder is scanned for turns that are not reflected yet.
const FOLDER_SCAN_INTERVAL: Duration = Duration::from_secs(60);
/// The same for a database, where it is one query.
const DATABASE_SCAN_INTERVAL: Duration = Duration::from_secs(10);
/// The longest user name, in bytes.
pub const MAX_USER_BYTES: usize = 256;
/// The most pending conversations that one scan takes over.
const MAX_RESUMED_CONVERSATIONS: i64 = 64;
/// The timeout of the readiness check.
const READY_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the job backlog is queried at most, and the timeout of the query.
const BACKLOG_QUERY_INTERVAL: Duration = Duration::from_secs(5);
const BACKLOG_QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The memories behind one server.
pub struct SpaceRegistry {
    home: StoreLocation,
    models: Arc<Models>,
    /// By location.
    open: Mutex<HashMap<StoreLocation, OpenSpace>>,
    at_once: Arc<Semaphore>,
    remembering: watch::Sender<usize>,
    /// By location; a writer deletes the space.
    gates: Mutex<HashMap<StoreLocation, Arc<RwLock<()>>>>,
    runtime: Runtime,
    /// The threads that begin and end turns.
    turning: WorkerPool,
    /// Separate threads for reflection, so that no turn waits for it.
    reflecting: WorkerPool,
    /// When the job backlog was last queried; the result is in `known_backlog`.
    backlog: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    known_backlog: Mutex<Vec<JobBacklog>>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A space that is open.
#[derive(Clone)]
struct OpenSpace {
    chats: Arc<Chats>,
    /// The state of the location when the space was opened.
    seen: LocationState,
}

/// A turn in progress.
struct ActiveTurn {
    place: StoreLocation,
    known: OpenSpace,
    begun: converse::PreparedChatTurn,
}

/// A small thread pool for work that uses the disk.
///
/// It is small because every thread that ever allocates keeps memory of its own. Waiting without
/// disk access (for the reflection of the last turn, for another turn of the same conversation, for
/// the writer of the store, for a model, for the lock of a space) holds no thread, so the pool
/// cannot deadlock: even a single thread would do. A thread is held only across calls of the store,
/// which release their locks before they return.
struct WorkerPool(Option<tokio::runtime::Runtime>);

impl WorkerPool {
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
    async fn run<T: Send + 'static, E: fmt::Display + Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, String> {
        let Some(threads) = &self.0 else { return Err("the server is shutting down".into()) };
        match threads.spawn(work).await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(error) => Err(join_error_message(&error)),
        }
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        // Dropping must not block: it may happen on an async task.
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

fn join_error_message(error: &tokio::task::JoinError) -> String {
    format!("the task panicked or was cancelled: {error}")
}

/// Decrements a counter on drop.
struct CountGuard(watch::Sender<usize>);

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.send_modify(|many| *many -= 1);
    }
}

/// The canonical name of a user, if one is named.
fn canonical_user(user: Option<&str>) -> Result<Option<String>> {
    match user.map(|user| sanitize::one_line(user.trim())).filter(|user| !user.is_empty()) {
        Some(user) if user.len() > MAX_USER_BYTES => {
            anyhow::bail!(
                "the user name has {} bytes; at most {MAX_USER_BYTES} are allowed",
                user.len()
            )
        }
        user => Ok(user),
    }
}

impl SpaceRegistry {
    /// The spaces below a main space.
    pub fn new(
        location: StoreLocation,
        models: Arc<Models>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Arc<Self>> {
        location.check_can_have_users()?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self::with_threads(
            (TURN_THREADS_PER_CORE * cores).max(MIN_TURN_THREADS),
            location,
            models,
            log,
        )
    }

    fn with_threads(
        hands: usize,
        location: StoreLocation,
        models: Arc<Models>,
        log: Arc<dyn Fn(&str) + Send + Sync>,
    ) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            home: location,
            models,
            open: Mutex::default(),
            at_once: Arc::new(Semaphore::new(MAX_REFLECTIONS)),
            remembering: watch::Sender::new(0),
            gates: Mutex::default(),
            runtime: Runtime::current(),
            turning: WorkerPool::new(hands, "turns", 0)?,
            reflecting: WorkerPool::new(REFLECTION_THREADS, "remembering", REFLECTION_NICENESS)?,
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
    pub fn location_of(&self, user: Option<&str>) -> StoreLocation {
        user.map_or_else(|| self.home.clone(), |user| self.home.user_location(user))
    }

    /// Opens the conversations of a user; creates the space if it is missing.
    pub async fn chats(&self, user: Option<&str>) -> Result<Arc<Chats>> {
        let user = canonical_user(user)?;
        Ok(self.open_space(&self.location_of(user.as_deref()), user.as_deref()).await?.chats)
    }

    fn cached_backlog(&self) -> Vec<JobBacklog> {
        self.known_backlog.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock_open(&self) -> MutexGuard<'_, HashMap<StoreLocation, OpenSpace>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an open space, opening it if needed. Every space is opened here. A missing space is
    /// created if a user is named.
    async fn open_space(&self, place: &StoreLocation, user: Option<&str>) -> Result<OpenSpace> {
        if let Some(known) = self.current_space(place).await? {
            return Ok(known);
        }
        // Read the state before opening: a change in between is noticed next time.
        let before = place.read_state().await?;
        let chats =
            Arc::new(bootstrap::open_chats(place, user.is_some().then_some(&self.home)).await?);
        chats.set_wait_for_summary(self.models.summarizer.is_some());
        if let Some(user) = user {
            store_user_name(&chats, user).await?;
        }
        let seen = match before {
            Some(seen) => seen,
            None => place.read_state().await?.ok_or(StoreError::space_erased())?,
        };
        let mut open = self.lock_open();
        if open.len() >= MAX_OPEN_SPACES {
            open.retain(|_, known| Arc::strong_count(&known.chats) > 1);
        }
        // If another task was faster, use its space.
        Ok(open.entry(place.clone()).or_insert(OpenSpace { chats, seen }).clone())
    }

    /// Returns a space that is open and unchanged: not deleted, created again or given other
    /// settings by this or another process.
    async fn current_space(&self, place: &StoreLocation) -> Result<Option<OpenSpace>> {
        let Some(known) = self.lock_open().get(place).cloned() else { return Ok(None) };
        let is_same = place.read_state().await?.is_some_and(|seen| seen == known.seen);
        let mut open = self.lock_open();
        let current =
            open.get(place).filter(|current| Arc::ptr_eq(&current.chats, &known.chats)).cloned();
        if current.is_some() && !is_same {
            open.remove(place);
        }
        Ok(current.filter(|_| is_same))
    }

    /// Whether the open space still exists: false if the user was forgotten meanwhile.
    async fn is_current(&self, place: &StoreLocation, known: &OpenSpace) -> Result<bool> {
        let Some(seen) = place.read_state().await? else { return Ok(false) };
        // A folder does not tell a deleted and recreated space apart; the cache does.
        let is_open = || {
            self.lock_open()
                .get(place)
                .is_some_and(|current| Arc::ptr_eq(&current.chats, &known.chats))
        };
        Ok(seen.is_same_incarnation(&known.seen).unwrap_or_else(is_open))
    }

    /// Whether a user has a space.
    pub async fn has_space(&self, user: Option<&str>) -> Result<bool> {
        let place = self.location_of(user);
        Ok(self.current_space(&place).await?.is_some() || place.read_state().await?.is_some())
    }

    /// Lists every space: its user, if known, and its name.
    pub async fn list_spaces(&self) -> Result<Vec<(Option<String>, String)>> {
        let mut all: Vec<_> = self
            .home
            .list_users()
            .await?
            .into_iter()
            .map(|(user, place)| (user, place.title()))
            .collect();
        all.sort();
        Ok(all)
    }

    /// Closes a space; the next request opens it again.
    pub fn evict(&self, user: Option<&str>) {
        self.lock_open().remove(&self.location_of(user));
    }

    /// Deletes an end user's space while no one works in it. In a database the audit log records
    /// who did it.
    pub async fn forget_user(&self, user: &str, by: &Actor) -> Result<bool> {
        let place = self.location_of(Some(user));
        let gate = self.space_lock(&place);
        let _alone = gate.write().await;
        // Only once: what the user writes afterwards starts a new space, which stays.
        let gone = match DatabaseStore::from_location(&self.home) {
            Ok(home) => access::erase_user_space(&home, user, by).await,
            Err(_) => place.erase().await,
        };
        self.lock_open().remove(&place);
        gone
    }

    fn space_lock(&self, place: &StoreLocation) -> Arc<RwLock<()>> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= MAX_OPEN_SPACES {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        gates.entry(place.clone()).or_default().clone()
    }

    /// Takes the shared lock of a space. Every operation in the space holds it; deleting the space
    /// takes it exclusively.
    pub async fn acquire_shared(&self, user: Option<&str>) -> OwnedRwLockReadGuard<()> {
        self.space_lock(&self.location_of(user)).read_owned().await
    }

    /// Schedules the reflection of a conversation's pending turns in the background.
    fn schedule_reflection(
        self: &Arc<Self>,
        place: StoreLocation,
        known: OpenSpace,
        conversation: String,
    ) {
        let spaces = self.clone();
        spaces.remembering.send_modify(|many| *many += 1);
        let counted = CountGuard(spaces.remembering.clone());
        self.runtime.spawn(async move {
            let _counted = counted;
            let _place = spaces.at_once.clone().acquire_owned().await;
            // Boxed late: thousands of these tasks may wait, and each would reserve its full size.
            Box::pin(spaces.reflect_conversation(&place, &known, &conversation)).await;
        });
    }

    async fn reflect_conversation(
        self: &Arc<Self>,
        place: &StoreLocation,
        known: &OpenSpace,
        conversation: &str,
    ) {
        let _held = self.space_lock(place).read_owned().await;
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
            .run(async move { chats.reflect(&name, models.model_budget().as_ref(), false).await })
            .await;
        match done {
            Ok(reflected) => {
                for (turn, why) in reflected.raw.iter().filter(|_| self.models.summarizer.is_some())
                {
                    (self.log)(&format!(
                        "turn {turn} stays unsummarized for now: {}",
                        sanitize::one_line(why)
                    ));
                }
            }
            // The exchange itself is stored; the next scan finds the pending turn.
            Err(error) => (self.log)(&format!("a turn could not be reflected yet: {error}")),
        }
    }

    /// Starts the periodic scan for pending turns, including those of earlier runs.
    pub fn start_reflection_loop(self: &Arc<Self>) {
        let spaces = self.clone();
        self.runtime.spawn(async move {
            loop {
                if let Err(error) = spaces.reflect_pending().await {
                    (spaces.log)(&format!("the scan for pending turns failed: {error}"));
                }
                tokio::time::sleep(if spaces.home.database().is_some() {
                    DATABASE_SCAN_INTERVAL
                } else {
                    FOLDER_SCAN_INTERVAL
                })
                .await;
            }
        });
    }

    async fn reflect_pending(self: &Arc<Self>) -> Result<()> {
        if let StoreLocation::Space { database, name } = &self.home {
            // The database lists pending conversations of every process and leases each to one.
            for (name, conversation) in database
                .acquire_abandoned(name, MAX_RESUMED_CONVERSATIONS, converse::LEASE_DURATION)
                .await?
            {
                let place = StoreLocation::Space { database: database.clone(), name };
                // A space that cannot be opened does not block the others.
                match self.open_space(&place, None).await {
                    Ok(known) => self.schedule_reflection(place, known, conversation),
                    Err(error) => {
                        (self.log)(&format!("a turn could not be reflected yet: {error}"))
                    }
                }
            }
            return Ok(());
        }
        let users = self.home.list_users().await?.into_iter().map(|(_, place)| place);
        for place in std::iter::once(self.home.clone()).chain(users) {
            let held = self.space_lock(&place).read_owned().await;
            let Ok(known) = self.open_space(&place, None).await else { continue };
            let (looking, has_model) = (known.chats.clone(), self.models.summarizer.is_some());
            let looking = self.reflecting.run(async move {
                looking.pending_conversations(converse::REFLECTION_DAYS, has_model).await
            });
            let waiting = looking.await.unwrap_or_default();
            drop(held);
            for conversation in waiting {
                self.reflect_conversation(&place, &known, &conversation).await;
            }
        }
        Ok(())
    }

    /// Waits for running reflections, at most `most`. Unfinished ones stay pending.
    pub async fn wait_for_reflections(&self, most: Duration) -> bool {
        let mut remembering = self.remembering.subscribe();
        tokio::time::timeout(most, remembering.wait_for(|many| *many == 0)).await.is_ok()
    }
}

/// Stores the user's name in their space, if it is not there yet.
async fn store_user_name(chats: &Chats, user: &str) -> Result<()> {
    let (store, place) = (chats.memory().store(), USER_NAME_FILE.parse::<DocPath>()?);
    if store.document(&place).await?.is_none() {
        store.put(&place, &serde_json::to_vec(&SpaceOwner { user: user.to_owned() })?).await?;
    }
    Ok(())
}

/// Runs long work on a blocking thread, away from turns; an error if it panics.
pub async fn run_blocking<T: Send + 'static, F: Future<Output = T>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, String> {
    let runtime = Runtime::current();
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work())).await;
    done.map_err(|error| join_error_message(&error))
}

/// The spaces as the chat server's memory. A separate type, because its tasks hold the `Arc`.
pub struct SpacesChatMemory(pub Arc<SpaceRegistry>);

#[async_trait]
impl ChatMemory for SpacesChatMemory {
    async fn begin_turn(&self, request: TurnRequest) -> Result<PreparedTurn, String> {
        let spaces = self.0.clone();
        let user = canonical_user(request.user.as_deref()).map_err(|error| error.to_string())?;
        let held = spaces.acquire_shared(user.as_deref()).await;
        self.0
            .turning
            .run(async move {
                let _held = held;
                let place = spaces.location_of(user.as_deref());
                let known = spaces.open_space(&place, user.as_deref()).await?;
                let messages = request.messages.into_iter().map(|told| converse::ChatMessage {
                    role: told.role,
                    name: told.name,
                    text: told.text,
                    raw: told.raw,
                    has_tools: told.has_tools,
                });
                let request = converse::ChatRequest {
                    conversation: request.conversation,
                    history: request.history,
                    shared_key: request.shared_key,
                    mode: request.mode,
                    messages: messages.collect(),
                };
                let begun = known.chats.prepare_turn(request).await?;
                anyhow::Ok(PreparedTurn {
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
                    handle: TurnHandle(Some(Arc::new(ActiveTurn { place, known, begun }))),
                })
            })
            .await
    }

    async fn persist_reply(
        &self,
        prepared: &PreparedTurn,
        reply: AssistantReply,
    ) -> Result<(), PersistError> {
        let Some(turn) =
            prepared.handle.0.clone().and_then(|handle| handle.downcast::<ActiveTurn>().ok())
        else {
            return Err(PersistError::permanent("this turn was not started by this server"));
        };
        let held = self.0.space_lock(&turn.place).read_owned().await;
        if !self.0.is_current(&turn.place, &turn.known).await.map_err(PersistError::retryable)? {
            return Err(PersistError::permanent(
                "the user was forgotten while the reply arrived, so this exchange is not stored",
            ));
        }
        let reply =
            converse::ChatReply { text: reply.text, parts: reply.parts, complete: reply.complete };
        let ending = turn.clone();
        let ended = self.0.turning.run(async move {
            let _held = held;
            ending.known.chats.record_exchange(&ending.begun, &reply).await
        });
        let cut = ended.await.map_err(PersistError::retryable)?;
        for what in cut {
            (self.0.log)(&format!("an exchange was truncated before it was stored: {what}"));
        }
        // Only the turn's location: many may wait, and the exchange is stored.
        self.0.schedule_reflection(
            turn.place.clone(),
            turn.known.clone(),
            turn.begun.conversation.clone(),
        );
        Ok(())
    }
}

#[async_trait]
impl ReadinessCheck for SpaceRegistry {
    async fn check_ready(&self) -> Result<(), NotReady> {
        if let Some(database) = self.home.database() {
            match tokio::time::timeout(READY_TIMEOUT, database.check_ready()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    let what = match error.kind {
                        StoreErrorKind::Schema | StoreErrorKind::NewerSchema => {
                            "the database has another schema version"
                        }
                        StoreErrorKind::Standby => {
                            "the database is a standby and accepts no writes"
                        }
                        StoreErrorKind::ReadOnly => {
                            "the database is read-only and accepts no writes"
                        }
                        StoreErrorKind::AccessDenied => "the database rejects the login",
                        _ => "the database does not answer",
                    };
                    return Err(NotReady::new(what, error));
                }
                Err(_) => {
                    return Err(NotReady::new(
                        "the database does not answer",
                        format!("nothing within {READY_TIMEOUT:?}"),
                    ));
                }
            }
        }
        self.chats(None)
            .await
            .map(|_| ())
            .map_err(|error| NotReady::new("memory cannot be opened", error))
    }

    fn database_figures(&self) -> Option<PoolStats> {
        self.home.database().map(|database| database.pool_stats())
    }

    async fn job_backlog(&self) -> Vec<JobBacklog> {
        let Some(database) = self.home.database() else { return Vec::new() };
        // While one request queries, the others get the last result.
        let Ok(mut looked) = self.backlog.try_lock() else { return self.cached_backlog() };
        if looked.is_none_or(|then| then.elapsed() >= BACKLOG_QUERY_INTERVAL) {
            *looked = Some(tokio::time::Instant::now());
            let found = tokio::time::timeout(BACKLOG_QUERY_TIMEOUT, database.job_backlog()).await;
            // Old figures would mislead while the database does not answer.
            *self.known_backlog.lock().unwrap_or_else(PoisonError::into_inner) =
                found.ok().and_then(Result::ok).unwrap_or_default();
        }
        self.cached_backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::chat_memory::{ChatDialect, RequestMessage};
    use icecore_engine::settings::Settings;
    use icecore_store::postgres::{Postgres, PostgresOptions};
    use icecore_store::testing::cluster::{Durability, TestCluster};

    fn spaces(folder: &std::path::Path) -> Arc<SpaceRegistry> {
        with_hands(folder, MIN_TURN_THREADS)
    }

    fn with_hands(folder: &std::path::Path, hands: usize) -> Arc<SpaceRegistry> {
        let home = folder.join("home");
        icecore_store::vault::Vault::create(&home, "zone = \"UTC\"\n").unwrap();
        let settings =
            Settings::read(None, &|_| None, &|path| std::fs::read_to_string(path)).unwrap();
        let models = Arc::new(Models { settings, place: Default::default(), summarizer: None });
        SpaceRegistry::with_threads(
            hands,
            StoreLocation::Folder(home),
            models,
            Arc::new(|_: &str| {}),
        )
        .unwrap()
    }

    fn by() -> Actor {
        Actor {
            token: "home".into(),
            interface: "api",
            who: String::new(),
            now: jiff::Timestamp::UNIX_EPOCH,
        }
    }

    fn turn_request(user: &str) -> TurnRequest {
        let told = RequestMessage {
            role: "user".into(),
            name: None,
            text: "hi".into(),
            raw: r#"{"role":"user","content":"hi"}"#.into(),
            has_tools: false,
        };
        TurnRequest {
            user: Some(user.into()),
            conversation: Some("app".into()),
            history: converse::ClientHistory::Unknown,
            shared_key: None,
            dialect: ChatDialect::OpenAi,
            model: String::new(),
            mode: None,
            messages: vec![told],
        }
    }

    fn reply() -> AssistantReply {
        AssistantReply {
            text: "hello".into(),
            complete: true,
            status: 200,
            ..AssistantReply::default()
        }
    }

    // C8
    #[tokio::test]
    async fn a_space_is_opened_once_for_all_callers() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = spaces(folder.path());
        let chatting = SpacesChatMemory(spaces.clone());
        let begun = chatting.begin_turn(turn_request("ann")).await.unwrap();
        chatting.persist_reply(&begun, reply()).await.unwrap();
        assert!(spaces.wait_for_reflections(Duration::from_secs(10)).await);
        drop(begun);
        // As after a restart of the server.
        spaces.open.lock().unwrap().clear();
        spaces.reflect_pending().await.unwrap();
        let known =
            spaces.open.lock().unwrap().get(&spaces.location_of(Some("ann"))).cloned().unwrap();
        assert!(Arc::ptr_eq(&known.chats, &spaces.chats(Some(" ann ")).await.unwrap()));
    }

    fn turn_request_in(user: &str, conversation: &str, text: &str) -> TurnRequest {
        let raw = serde_json::json!({ "role": "user", "content": text }).to_string();
        let told = RequestMessage {
            role: "user".into(),
            name: None,
            text: text.into(),
            raw,
            has_tools: false,
        };
        TurnRequest {
            conversation: Some(conversation.into()),
            messages: vec![told],
            ..turn_request(user)
        }
    }

    // C8
    #[tokio::test]
    async fn who_waits_for_memory_holds_up_nobody_else_even_if_a_single_thread_does_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = with_hands(folder.path(), 1);
        let chatting = Arc::new(SpacesChatMemory(spaces.clone()));
        let chats = spaces.chats(Some("ann")).await.unwrap();
        chats.set_wait_for_summary(true);
        // Recording fails for now.
        let places = spaces
            .at_once
            .clone()
            .acquire_many_owned(u32::try_from(MAX_REFLECTIONS).unwrap())
            .await
            .unwrap();
        let begun = chatting.begin_turn(turn_request_in("ann", "slow", "hi")).await.unwrap();
        chatting.persist_reply(&begun, reply()).await.unwrap();
        let slow: Vec<_> = (0..20)
            .map(|n| {
                let chatting = chatting.clone();
                tokio::spawn(async move {
                    chatting
                        .begin_turn(turn_request_in("ann", "slow", &format!("what now, {n}?")))
                        .await
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(50)).await;
        for user in ["ann", "ben"] {
            let begun = chatting.begin_turn(turn_request_in(user, "quick", "hi")).await.unwrap();
            chatting.persist_reply(&begun, reply()).await.unwrap();
        }
        assert!(
            slow.iter().all(|turn| !turn.is_finished()),
            "they wait for what is not remembered yet"
        );
        drop(places);
        for turn in slow {
            assert!(turn.await.unwrap().unwrap().turn > 1);
        }
        assert!(spaces.wait_for_reflections(Duration::from_secs(10)).await);
    }

    // C8
    #[tokio::test]
    async fn many_turns_end_at_once_with_a_single_thread() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = with_hands(folder.path(), 1);
        let chatting = Arc::new(SpacesChatMemory(spaces.clone()));
        let turns: Vec<_> = (0..40)
            .map(|n| {
                let chatting = chatting.clone();
                // Some of them in the same conversation, some of the same user.
                let heard = turn_request_in(
                    if n % 2 == 0 { "ann" } else { "ben" },
                    &format!("c-{}", n % 5),
                    &format!("number {n}"),
                );
                tokio::spawn(async move {
                    let begun = chatting.begin_turn(heard).await?;
                    chatting
                        .persist_reply(&begun, reply())
                        .await
                        .map(|()| begun.conversation.clone())
                        .map_err(|unkept| unkept.message)
                })
            })
            .collect();
        for turn in turns {
            tokio::time::timeout(Duration::from_secs(60), turn).await.unwrap().unwrap().unwrap();
        }
        assert!(spaces.wait_for_reflections(Duration::from_secs(60)).await);
        let kept = spaces.chats(Some("ann")).await.unwrap().conversations().await.unwrap();
        assert_eq!(kept.iter().map(|one| one.messages).sum::<u64>(), 2 * 20);
    }

    // C8
    #[tokio::test]
    async fn work_that_panics_is_an_error_and_keeps_the_threads_alive() {
        let hands = WorkerPool::new(1, "test", REFLECTION_NICENESS).unwrap();
        let broken = hands.run(async { Ok::<u32, String>("no number".parse().unwrap()) }).await;
        assert!(broken.unwrap_err().contains("panicked"));
        assert_eq!(hands.run(async { Ok::<_, String>(7) }).await, Ok(7));
    }

    // C14
    #[tokio::test]
    async fn who_is_forgotten_while_a_reply_comes_stays_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let spaces = spaces(folder.path());
        let chatting = SpacesChatMemory(spaces.clone());
        let begun = chatting.begin_turn(turn_request("ann")).await.unwrap();
        assert!(spaces.forget_user("ann", &by()).await.unwrap());
        assert!(
            chatting
                .persist_reply(&begun, reply())
                .await
                .is_err_and(|unkept| !unkept.is_retryable && unkept.message.contains("forgotten"))
        );
        assert!(
            !spaces.has_space(Some("ann")).await.unwrap()
                && spaces.list_spaces().await.unwrap().is_empty()
        );
        // A request during the deletion of a space waits until it is gone, and starts a new one.
        let begun = chatting.begin_turn(turn_request("ann")).await.unwrap();
        chatting.persist_reply(&begun, reply()).await.unwrap();
        assert!(spaces.wait_for_reflections(Duration::from_secs(10)).await);
        let gate = spaces.space_lock(&spaces.location_of(Some("ann")));
        let taking_away = gate.write().await;
        let waiting = {
            let chatting = SpacesChatMemory(spaces.clone());
            tokio::spawn(async move { chatting.begin_turn(turn_request(" ann ")).await })
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!waiting.is_finished());
        spaces.location_of(Some("ann")).erase().await.unwrap();
        drop(taking_away);
        assert_eq!(waiting.await.unwrap().unwrap().turn, 1);
        // A pending reflection does not bring anything back.
        let place = spaces.location_of(Some("ann"));
        let known = spaces.open_space(&place, Some("ann")).await.unwrap();
        spaces.forget_user("ann", &by()).await.unwrap();
        spaces.reflect_conversation(&place, &known, "app").await;
        assert!(!spaces.has_space(Some("ann")).await.unwrap());
    }

    // C14: what is written before is erased with the rest, what is written after stays.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_space_in_a_database_is_taken_away_once_and_not_under_anybodys_hands() {
        let cluster = TestCluster::start(Durability::Unflushed);
        let database = Postgres::for_url(&cluster.url(), PostgresOptions::default()).unwrap();
        database.migrate().await.unwrap();
        database.create_space("h", "zone = \"UTC\"\n").await.unwrap();
        let settings =
            Settings::read(None, &|_| None, &|path| std::fs::read_to_string(path)).unwrap();
        let models = Arc::new(Models { settings, place: Default::default(), summarizer: None });
        let home = StoreLocation::Space { database: database.clone(), name: "h".into() };
        let spaces =
            SpaceRegistry::with_threads(MIN_TURN_THREADS, home, models, Arc::new(|_: &str| {}))
                .unwrap();
        spaces.chats(Some("ann")).await.unwrap();
        let at_work = spaces.acquire_shared(Some("ann")).await;
        let forgetting = {
            let spaces = spaces.clone();
            tokio::spawn(async move { spaces.forget_user("ann", &by()).await })
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(
            !forgetting.is_finished() && database.open_space("h/ann").await.unwrap().is_some(),
            "somebody works in it"
        );
        drop(at_work);
        assert!(forgetting.await.unwrap().unwrap());
        assert!(
            database.open_space("h/ann").await.unwrap().is_none()
                && !spaces.forget_user("ann", &by()).await.unwrap()
        );
        spaces.chats(Some("ann")).await.unwrap();
        let deeds = database.audit_log("h", Some("h/ann"), None, 10).await.unwrap();
        assert_eq!(
            deeds.iter().map(|noted| noted.event.action.as_str()).collect::<Vec<_>>(),
            ["space erase"]
        );
        assert!(spaces.has_space(Some("ann")).await.unwrap());
    }
}
