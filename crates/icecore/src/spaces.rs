//! Spaces: every end user's memory, opened when it is needed, as the chat server sees it.
//!
//! Who names no user speaks to the home vault itself; everybody else has a vault of their own beneath it, so nothing that is
//! remembered of one ever reaches another.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use icecore_domain::hash::Hash;
use icecore_domain::layout::DocPath;
use icecore_domain::{page, plain};
use icecore_engine::config;
use icecore_engine::converse::{self, Chats};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle as Runtime;
use tokio::sync::{RwLock, Semaphore, watch};

use crate::http::mind::{Begun, Handle, Heard, Mind, Mode, Placement, Ready, Reply};
use crate::wire::{self, Models};

/// Where the spaces of end users are, beneath the home vault.
const SPACES: &str = "spaces";
/// So many spaces stay open; what is not in use is opened again when it is needed.
const OPEN_SPACES: usize = 256;
/// So many turns are remembered at once.
const REMEMBERING: usize = 8;
/// How often it is looked for turns that could not be remembered.
const AGAIN: Duration = Duration::from_secs(60);
/// Turns of so many days are looked for.
const REACH_DAYS: u16 = 14;
/// The longest name of a user that is taken, in bytes.
pub const MAX_USER_BYTES: usize = 256;
/// What keeps the name of the end user a space belongs to: its folder cannot be read back.
const NAMED: &str = "space.json";

/// The memories behind one server.
pub struct Spaces {
    home: PathBuf,
    models: Arc<Models>,
    open: Mutex<HashMap<Option<String>, Arc<Chats>>>,
    at_once: Arc<Semaphore>,
    remembering: watch::Sender<usize>,
    gates: Mutex<HashMap<String, Arc<RwLock<()>>>>,
    runtime: Runtime,
    log: Arc<dyn Fn(&str) + Send + Sync>,
}

/// A turn that memory has begun.
struct Turn {
    chats: Arc<Chats>,
    begun: converse::Begun,
}

/// Counts itself as long as it lives.
struct Counted(watch::Sender<usize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|many| *many -= 1);
    }
}

/// The folder of an end user's space beneath a home.
pub fn folder(home: &Path, user: &str) -> PathBuf {
    let slug = page::slug(user);
    let short = slug[..slug.floor_char_boundary(40)].trim_matches('-');
    home.join(SPACES).join(format!("{short}-{}", Hash::of(user.as_bytes()).short()))
}

impl Spaces {
    /// The spaces of a home vault.
    pub fn new(home: PathBuf, models: Arc<Models>, log: Arc<dyn Fn(&str) + Send + Sync>) -> Arc<Self> {
        Arc::new(Self {
            home,
            models,
            open: Mutex::default(),
            at_once: Arc::new(Semaphore::new(REMEMBERING)),
            remembering: watch::Sender::new(0),
            gates: Mutex::default(),
            runtime: Runtime::current(),
            log,
        })
    }

    /// The models behind them.
    pub fn models(&self) -> &Arc<Models> {
        &self.models
    }

    /// Where a user's space is, or would be.
    pub fn folder(&self, user: Option<&str>) -> PathBuf {
        user.map_or_else(|| self.home.clone(), |user| folder(&self.home, user))
    }

    /// The conversations of a user; a space that does not exist yet is made.
    pub async fn of(&self, user: Option<&str>) -> Result<Arc<Chats>> {
        let user = match user.map(|user| plain::one_line(user.trim())).filter(|user| !user.is_empty()) {
            Some(user) if user.len() > MAX_USER_BYTES => {
                anyhow::bail!("the name of the user has {} bytes, at most {MAX_USER_BYTES} are taken", user.len())
            }
            user => user,
        };
        let there = self.has(user.as_deref());
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            match open.get(&user) {
                Some(known) if there => return Ok(known.clone()),
                // Its folder is gone: it was forgotten, by us or by another process.
                Some(_) => drop(open.remove(&user)),
                None => {}
            }
        }
        let folder = self.folder(user.as_deref());
        let chats = Arc::new(wire::chats(&folder, user.is_some().then_some(self.home.as_path())).await?);
        chats.wait_for_memory(self.models.summarizer.is_some());
        if let Some(user) = &user {
            note_name(&chats, user).await?;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= OPEN_SPACES {
            open.retain(|_, chats| Arc::strong_count(chats) > 1);
        }
        // Somebody may have been faster; then theirs is the one.
        Ok(open.entry(user).or_insert(chats).clone())
    }

    /// Whether a user has a space.
    pub fn has(&self, user: Option<&str>) -> bool {
        self.folder(user).join(icecore_domain::layout::CONFIG).is_file()
    }

    /// Every space there is: whose it is, if that is known, and the name of its folder.
    pub fn named(&self) -> Vec<(Option<String>, String)> {
        let name = |folder: PathBuf| {
            let named = std::fs::read(folder.join(NAMED)).ok().and_then(|text| serde_json::from_slice::<Named>(&text).ok());
            (named.map(|named| named.user), folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
        };
        let mut all: Vec<_> = self.users().into_iter().flatten().map(name).collect();
        all.sort();
        all
    }

    /// Lets go of what is held of a space in memory; whoever comes next opens it again.
    pub fn close(&self, user: Option<&str>) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&user.map(str::to_owned));
    }

    /// Forgets everything of an end user: their whole space.
    pub async fn forget(&self, user: &str) -> Result<bool> {
        let gate = self.gate(user);
        let _alone = gate.write().await;
        let gone = wire::forget_space(&self.folder(Some(user)));
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&Some(user.to_owned()));
        gone
    }

    /// Held by whoever works in a user's space, by all together; held alone while the space is taken away.
    pub fn gate(&self, user: &str) -> Arc<RwLock<()>> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        if gates.len() >= OPEN_SPACES {
            gates.retain(|_, gate| Arc::strong_count(gate) > 1);
        }
        gates.entry(user.to_owned()).or_default().clone()
    }

    /// Remembers what waits in a conversation, soon and in the background.
    fn remember_soon(self: &Arc<Self>, chats: Arc<Chats>, conversation: String) {
        let spaces = self.clone();
        spaces.remembering.send_modify(|many| *many += 1);
        let counted = Counted(spaces.remembering.clone());
        self.runtime.spawn(async move {
            let _counted = counted;
            let _place = spaces.at_once.clone().acquire_owned().await;
            spaces.remember(&chats, &conversation, false).await;
        });
    }

    async fn remember(self: &Arc<Self>, chats: &Arc<Chats>, conversation: &str, again: bool) {
        let (chats, name, models) = (chats.clone(), conversation.to_owned(), self.models.clone());
        let done = blocking(async move { chats.reflect(&name, models.asking().as_ref(), again).await }).await;
        match done {
            Ok(reflected) => {
                for (turn, why) in reflected.raw.iter().filter(|_| self.models.summarizer.is_some()) {
                    (self.log)(&format!("turn {turn} is kept raw for now: {}", plain::one_line(why)));
                }
            }
            // The exchange itself is kept; the next look finds what is missing.
            Err(error) => (self.log)(&format!("a turn could not be remembered yet: {error}")),
        }
    }

    /// Looks again and again for turns that could not be remembered, those of an earlier run included.
    pub fn keep_remembering(self: &Arc<Self>) {
        let spaces = self.clone();
        self.runtime.spawn(async move {
            loop {
                spaces.remember_all().await;
                tokio::time::sleep(AGAIN).await;
            }
        });
    }

    async fn remember_all(self: &Arc<Self>) {
        for user in self.users() {
            let chats = match user {
                None => self.of(None).await,
                Some(folder) => self.of_folder(&folder).await,
            };
            let Ok(chats) = chats else { continue };
            let (looking, has_model) = (chats.clone(), self.models.summarizer.is_some());
            let waiting = blocking(async move { looking.unremembered(REACH_DAYS, has_model).await }).await.unwrap_or_default();
            for conversation in waiting {
                self.remember(&chats, &conversation, false).await;
            }
        }
    }

    /// The home, and the folder of every space there is.
    fn users(&self) -> Vec<Option<PathBuf>> {
        // What is hidden is on its way out.
        let is_seen = |entry: &std::fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
        let folders = std::fs::read_dir(self.home.join(SPACES))
            .map_or_else(|_| Vec::new(), |found| found.flatten().filter(is_seen).map(|entry| entry.path()).collect());
        std::iter::once(None)
            .chain(folders.into_iter().filter(|folder: &PathBuf| folder.join(icecore_domain::layout::CONFIG).is_file()).map(Some))
            .collect()
    }

    async fn of_folder(&self, folder: &Path) -> Result<Arc<Chats>> {
        let known = |open: &HashMap<Option<String>, Arc<Chats>>| {
            open.iter().find(|(user, _)| user.is_some() && self.folder(user.as_deref()) == folder).map(|(_, chats)| chats.clone())
        };
        if let Some(chats) = known(&self.open.lock().unwrap_or_else(PoisonError::into_inner)) {
            return Ok(chats);
        }
        Ok(Arc::new(wire::chats(folder, None).await?))
    }

    /// Waits until everything that is being remembered is done, at most so long. What is not stays to be done.
    pub async fn settle(&self, most: Duration) -> bool {
        let mut remembering = self.remembering.subscribe();
        tokio::time::timeout(most, remembering.wait_for(|many| *many == 0)).await.is_ok()
    }
}

/// Whose a space is, as it is kept.
#[derive(Serialize, Deserialize)]
struct Named {
    user: String,
}

/// Keeps the name of the user with their space, if it is not there yet.
async fn note_name(chats: &Chats, user: &str) -> Result<()> {
    let (store, place) = (chats.memory().store(), NAMED.parse::<DocPath>()?);
    if store.document(&place).await?.is_none() {
        store.put(&place, &serde_json::to_vec(&Named { user: user.to_owned() })?).await?;
    }
    Ok(())
}

/// Runs work that touches the disk where it holds nobody up; an error if it broke off.
pub async fn aside<T: Send + 'static, F: Future<Output = T>>(work: impl FnOnce() -> F + Send + 'static) -> Result<T, String> {
    let runtime = Runtime::current();
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work())).await;
    done.map_err(|error| format!("the work broke off: {error}"))
}

/// Likewise, for work that says by itself what went wrong.
pub async fn blocking<T: Send + 'static, E: std::fmt::Display + Send + 'static>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<T, String> {
    aside(move || work).await?.map_err(|error| error.to_string())
}

/// The spaces as the chat server's memory: a type of its own, because its tasks need to hold on to the spaces.
pub struct Chatting(pub Arc<Spaces>);

#[async_trait]
impl Mind for Chatting {
    async fn begin(&self, heard: Heard) -> Result<Begun, String> {
        let spaces = self.0.clone();
        blocking(async move {
            let chats = spaces.of(heard.user.as_deref()).await?;
            let messages = heard.messages.into_iter().map(|told| converse::Message {
                role: told.role,
                text: told.text,
                raw: told.raw,
                has_tools: told.has_tools,
            });
            let mode = heard.mode.map(|mode| match mode {
                Mode::Augment => config::Mode::Augment,
                Mode::Replace => config::Mode::Replace,
            });
            let heard = converse::Heard { conversation: heard.conversation, mode, messages: messages.collect() };
            let begun = chats.begin(heard).await?;
            anyhow::Ok(Begun {
                conversation: begun.conversation.clone(),
                turn: begun.turn,
                memory: begun.memory.clone(),
                placement: match begun.placement {
                    config::Placement::System => Placement::System,
                    config::Placement::LastUser => Placement::LastUser,
                },
                mode: match begun.mode {
                    config::Mode::Augment => Mode::Augment,
                    config::Mode::Replace => Mode::Replace,
                },
                window: begun.window.iter().map(|(role, text)| ((*role).to_owned(), text.clone())).collect(),
                new_from: begun.new_from,
                injected: begun.injected.clone(),
                injected_tokens: begun.tokens,
                left_out: begun.left_out.len(),
                cost_tokens: begun.cost_tokens,
                handle: Handle(Some(Arc::new(Turn { chats, begun }))),
            })
        })
        .await
    }

    async fn end(&self, begun: &Begun, reply: Reply) -> Result<(), String> {
        let Some(turn) = begun.handle.0.clone().and_then(|handle| handle.downcast::<Turn>().ok()) else {
            return Err("this turn was not begun here".into());
        };
        let reply = converse::Reply { text: reply.text, parts: reply.parts, complete: reply.complete };
        let ending = turn.clone();
        blocking(async move { ending.chats.end(&ending.begun, &reply).await }).await?;
        self.0.remember_soon(turn.chats.clone(), turn.begun.conversation.clone());
        Ok(())
    }
}

#[async_trait]
impl Ready for Spaces {
    async fn ready(&self) -> Result<(), String> {
        self.of(None).await.map(|_| ()).map_err(|error| error.to_string())
    }
}
