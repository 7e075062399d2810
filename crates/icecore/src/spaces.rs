//! Spaces: every end user's memory, opened when it is needed, as the chat server sees it.
//!
//! Who names no user speaks to the home itself; everybody else has a space of their own beneath it,
//! so nothing that is remembered of one ever reaches another. In a database other processes change,
//! make and take away spaces as well: what is held of one in memory is believed for a moment only.

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

/// So many spaces stay open; what is not in use is opened again when it is needed.
const OPEN_SPACES: usize = 256;
/// So many turns are remembered at once: mostly they wait for a model.
const REMEMBERING: usize = 8;
/// So many threads begin and end turns at least, and as many for each core: some wait for the disk
/// while others compute.
const LEAST_HANDS: usize = 4;
const HANDS_PER_CORE: usize = 2;
/// Likewise for remembering, and how much they stand back where there is more to do than the
/// processor can.
const REMEMBERING_HANDS: usize = 2;
const STANDING_BACK: i32 = 5;
/// How often it is looked for turns that could not be remembered.
const AGAIN: Duration = Duration::from_secs(60);
/// Likewise, where it costs only a look into a table.
const AGAIN_SHARED: Duration = Duration::from_secs(10);
/// The longest name of a user that is taken, in bytes.
pub const MAX_USER_BYTES: usize = 256;
/// So many conversations that nobody sees to are taken up at once.
const TAKEN_UP: i64 = 64;
/// So long a database is waited for by whoever only wants to know whether it answers.
const ANSWERING: Duration = Duration::from_secs(3);
/// How much there is to do is looked up so often at most, and holds up whoever asks for so long at
/// most.
const LOOKED_UP: Duration = Duration::from_secs(5);
const HELD_UP: Duration = Duration::from_secs(1);

/// The memories behind one server.
pub struct Spaces {
    home: Place,
    models: Arc<Models>,
    /// By where they are.
    open: Mutex<HashMap<Place, Known>>,
    at_once: Arc<Semaphore>,
    remembering: watch::Sender<usize>,
    /// Likewise.
    gates: Mutex<HashMap<Place, Arc<RwLock<()>>>>,
    runtime: Runtime,
    /// Those that begin and end turns.
    turning: Hands,
    /// Those that remember them afterwards, apart: however much there is to remember, no turn waits
    /// for it.
    reflecting: Hands,
    /// When it was last looked how much there is to do, and what was found.
    backlog: tokio::sync::Mutex<Option<tokio::time::Instant>>,
    known_backlog: Mutex<Vec<Backlog>>,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A space that is open.
#[derive(Clone)]
struct Known {
    chats: Arc<Chats>,
    /// What it looked like when it was opened.
    seen: Seen,
}

/// A turn that memory has begun.
struct Turn {
    place: Place,
    known: Known,
    begun: converse::Begun,
}

/// A few threads for work that touches the disk.
///
/// Few, because every thread that ever allocates keeps a share of memory for itself. What waits
/// without touching the disk (for the last turn to be remembered, for a conversation that somebody
/// else is in, for the one who writes for all, for a model, for a user's gate) holds none of them,
/// so whoever is waited for always finds one, and a single one would do. A thread is held only
/// across calls of the store: these wait for locks of files and of the index, which are given back
/// within the call that took them.
struct Hands(Option<tokio::runtime::Runtime>);

impl Hands {
    fn new(many: usize, name: &str, standing_back: i32) -> Result<Self> {
        let mut threads = tokio::runtime::Builder::new_multi_thread();
        threads.worker_threads(many).thread_name(name).enable_all();
        // Elsewhere this would be about the whole process. Who may not stand back works as before.
        if cfg!(target_os = "linux") && standing_back > 0 {
            threads.on_thread_start(move || {
                let _ = rustix::process::nice(standing_back);
            });
        }
        let threads = threads.build();
        Ok(Self(Some(
            threads.with_context(|| format!("the threads for {name} cannot be started"))?,
        )))
    }

    /// Does some work there; an error if it broke off. It is done to its end also if nobody waits
    /// for it any more.
    async fn take<T: Send + 'static, E: fmt::Display + Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, String> {
        let Some(threads) = &self.0 else { return Err("the server is stopping".into()) };
        match threads.spawn(work).await {
            Ok(done) => done.map_err(|error| error.to_string()),
            Err(error) => Err(broken_off(&error)),
        }
    }
}

impl Drop for Hands {
    fn drop(&mut self) {
        // Whoever drops this may be somebody who must not be held up.
        if let Some(threads) = self.0.take() {
            threads.shutdown_background();
        }
    }
}

fn broken_off(error: &tokio::task::JoinError) -> String {
    format!("the work broke off: {error}")
}

/// Counts itself as long as it lives.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|many| *many -= 1);
    }
}

/// The name of a user as their space is known by, if anybody is named.
fn known_as(user: Option<&str>) -> Result<Option<String>> {
    match user.map(|user| plain::one_line(user.trim())).filter(|user| !user.is_empty()) {
        Some(user) if user.len() > MAX_USER_BYTES => {
            anyhow::bail!(
                "the name of the user has {} bytes, at most {MAX_USER_BYTES} are taken",
                user.len()
            )
        }
        user => Ok(user),
    }
}

impl Spaces {
    /// The spaces of a home.
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

    /// The models behind them.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    /// Where a user's space is, or would be.
    pub fn place(&self, user: Option<&str>) -> Place {
        user.map_or_else(|| self.home.clone(), |user| self.home.of_user(user))
    }

    /// The conversations of a user; a space that does not exist yet is made.
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

    /// A place as it is open: the one way in which a space is opened. One that does not exist is
    /// made if a user is named.
    async fn at(&self, place: &Place, user: Option<&str>) -> Result<Known> {
        if let Some(known) = self.still(place).await? {
            return Ok(known);
        }
        // Looked at before it is opened: what changes in between is seen the next time.
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
        // Somebody may have been faster; then theirs is the one.
        Ok(open.entry(place.clone()).or_insert(Known { chats, seen }).clone())
    }

    /// A place as it is open, if it is and nothing has become of the space since: it was not taken
    /// away, made anew or given other settings, by us or by another process.
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

    /// Whether this is still the space in that place: not if the user was forgotten meanwhile.
    async fn is_current(&self, place: &Place, known: &Known) -> Result<bool> {
        let Some(seen) = place.look().await? else { return Ok(false) };
        // In a folder one life of a space is told from the next by who has it open.
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

    /// Every space there is: whose it is, if that is known, and what it is called where it lies.
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

    /// Lets go of what is held of a space in memory; whoever comes next opens it again.
    pub fn close(&self, user: Option<&str>) {
        self.known().remove(&self.place(user));
    }

    /// Forgets everything of an end user: their whole space, while nobody works in it. In a
    /// database it is noted who did that, with it.
    pub async fn forget(&self, user: &str, by: &By) -> Result<bool> {
        let place = self.place(Some(user));
        let gate = self.gate(&place);
        let _alone = gate.write().await;
        // Once: whoever writes in their name afterwards begins anew, and that stays.
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

    /// Held by whoever works in a user's space, by all together; nobody holds it while the space is
    /// taken away.
    pub async fn held(&self, user: Option<&str>) -> OwnedRwLockReadGuard<()> {
        self.gate(&self.place(user)).read_owned().await
    }

    /// Remembers what waits in a conversation, soon and in the background.
    fn remember_soon(self: &Arc<Self>, place: Place, known: Known, conversation: String) {
        let spaces = self.clone();
        spaces.remembering.send_modify(|many| *many += 1);
        let counted = Counted(spaces.remembering.clone());
        self.runtime.spawn(async move {
            let _counted = counted;
            let _place = spaces.at_once.clone().acquire_owned().await;
            // Boxed only now: thousands may wait, and a task has room for all it will ever need
            // from the start.
            Box::pin(spaces.remember(&place, &known, &conversation)).await;
        });
    }

    async fn remember(self: &Arc<Self>, place: &Place, known: &Known, conversation: &str) {
        let _held = self.gate(place).read_owned().await;
        match self.is_current(place, known).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                return (self.log)(&format!("a turn could not be remembered yet: {error}"));
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
                        "turn {turn} is kept raw for now: {}",
                        plain::one_line(why)
                    ));
                }
            }
            // The exchange itself is kept; the next look finds what is missing.
            Err(error) => (self.log)(&format!("a turn could not be remembered yet: {error}")),
        }
    }

    /// Looks again and again for turns that could not be remembered, those of an earlier run
    /// included.
    pub fn keep_remembering(self: &Arc<Self>) {
        let spaces = self.clone();
        self.runtime.spawn(async move {
            loop {
                if let Err(error) = spaces.remember_all().await {
                    (spaces.log)(&format!(
                        "what waits to be remembered could not be looked for: {error}"
                    ));
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
            // What waits is written down there, whoever announced it; each is given to one process.
            for (name, conversation) in
                database.unremembered(name, TAKEN_UP, converse::LEASE).await?
            {
                let place = Place::Space { database: database.clone(), name };
                // One that cannot be opened does not keep the others waiting.
                match self.at(&place, None).await {
                    Ok(known) => self.remember_soon(place, known, conversation),
                    Err(error) => {
                        (self.log)(&format!("a turn could not be remembered yet: {error}"))
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

    /// Waits until everything that is being remembered is done, at most so long. What is not stays
    /// to be done.
    pub async fn settle(&self, most: Duration) -> bool {
        let mut remembering = self.remembering.subscribe();
        tokio::time::timeout(most, remembering.wait_for(|many| *many == 0)).await.is_ok()
    }
}

/// Keeps the name of the user with their space, if it is not there yet.
async fn note_name(chats: &Chats, user: &str) -> Result<()> {
    let (store, place) = (chats.memory().store(), NAMED.parse::<DocPath>()?);
    if store.document(&place).await?.is_none() {
        store.put(&place, &serde_json::to_vec(&Named { user: user.to_owned() })?).await?;
    }
    Ok(())
}

/// Runs work that may take long where it holds nobody up, least of all turns; an error if it broke
/// off.
pub async fn aside<T: Send + 'static, F: Future<Output = T>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, String> {
    let runtime = Runtime::current();
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work())).await;
    done.map_err(|error| broken_off(&error))
}

/// The spaces as the chat server's memory: a type of its own, because its tasks need to hold on to
/// the spaces.
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
            return Err(Unkept::for_good("this turn was not begun here"));
        };
        let held = self.0.gate(&turn.place).read_owned().await;
        if !self.0.is_current(&turn.place, &turn.known).await.map_err(Unkept::for_now)? {
            return Err(Unkept::for_good(
                "the user was forgotten while the reply came, so this exchange is not kept",
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
            (self.0.log)(&format!("an exchange is not kept whole: {what}"));
        }
        // Of the turn only its place: there may be many that wait, and the exchange is kept.
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
                    return Err(NotReady::new("the database has other tables", error));
                }
                Ok(Err(error @ StoreError::ReadOnly { is_standby: true, .. })) => {
                    return Err(NotReady::new(
                        "the database is a standby, which takes no writes",
                        error,
                    ));
                }
                Ok(Err(error @ StoreError::ReadOnly { .. })) => {
                    return Err(NotReady::new(
                        "the database is set to read only, so it takes no writes",
                        error,
                    ));
                }
                Ok(Err(error @ StoreError::Unwelcome { .. })) => {
                    return Err(NotReady::new("the database does not let us in", error));
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
        // Whoever comes while somebody looks has what was known before.
        let Ok(mut looked) = self.backlog.try_lock() else { return self.known_backlog() };
        if looked.is_none_or(|then| then.elapsed() >= LOOKED_UP) {
            *looked = Some(tokio::time::Instant::now());
            let found = tokio::time::timeout(HELD_UP, database.backlog()).await;
            // What was known while the database answered is nothing to go by when it does not.
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
        assert!(broken.unwrap_err().contains("broke off"));
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
        // Whoever comes while a space is being taken away waits until it is gone, and begins anew.
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
        // Nor does what was to be remembered bring anything back.
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
