//! The session reader: a detached process that imports the transcripts of ended sessions, extracts
//! their decisions, writes their primers and runs due jobs. A client grants 1.5 s to all its hooks,
//! so this cannot run in the hook itself. A lease allows one reader per store.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use icecore_domain::record::{SessionKey, parent_session};
use icecore_domain::summary::Tier;
use icecore_engine::{
    EndedSession, Error as EngineError, LiveSession, ModelBudget, RollupRequest, SubagentReport,
};
use secrecy::ExposeSecret as _;
use tokio::runtime::Builder;

use super::call::HookCall;
use super::transcript::{self, TranscriptError};
use crate::bootstrap::{self, OpenMemory};
use crate::store_location::StoreLocation;

/// The name of the lease.
const SESSION_END_JOB: &str = "session-end";

/// Starts the reader, unless one is running, which will find this session, too. Returns a problem,
/// if any.
pub async fn spawn_reader(call: &HookCall, open: &OpenMemory) -> Option<String> {
    match open.memory.store().acquire_lease(SESSION_END_JOB).await {
        Ok(Some(free)) => drop(free),
        Ok(None) => return None,
        Err(error) => return Some(error.to_string()),
    }
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => {
            return Some(format!("the path of this program cannot be determined: {error}"));
        }
    };
    let mut command = Command::new(program);
    command.args(["hook", "session-end", "--finish"]);
    match (&open.place, bootstrap::database_address(&call.store_selection())) {
        (StoreLocation::Folder(root), _) => {
            command.arg("--vault").arg(root).current_dir(root);
        }
        // Through the environment: other users can read command lines.
        (StoreLocation::Space { name, .. }, Ok(Some(address))) => {
            command
                .args(["--space", name])
                .env(bootstrap::STORE_VAR, address.expose_secret())
                .current_dir("/");
        }
        (StoreLocation::Space { .. }, Ok(None)) => {}
        (StoreLocation::Space { .. }, Err(error)) => return Some(error.to_string()),
    }
    if let Some(now) = &call.now {
        command.args(["--now", now]);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    match command.spawn() {
        Err(error) => Some(format!("the session reader cannot be started: {error}")),
        // A client may kill this process group as soon as it has its answer, so wait until the
        // reader has left the group. Its work is not waited for.
        Ok(child) => {
            let _ = child.stdout.map(|mut out| out.read(&mut [0]));
            None
        }
    }
}

/// Runs the reader.
pub fn run_reader(call: &HookCall) {
    // Leave the client's session, so that it cannot kill the reader; then release the parent, which
    // waits for this line.
    let _ = rustix::process::setsid();
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(b"\n").and_then(|()| out.flush());
    drop(out);
    let Ok(runtime) = Builder::new_current_thread().enable_all().build() else { return };
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        runtime.block_on(read_ended_sessions(call))
    }));
}

async fn read_ended_sessions(call: &HookCall) {
    let Ok(open) = bootstrap::own_location(&call.store_selection())
        .and_then(|place| bootstrap::open_location(place, call.now.as_deref()))
    else {
        return;
    };
    loop {
        let Ok(Some(alone)) = open.memory.store().acquire_lease(SESSION_END_JOB).await else {
            return;
        };
        if let Err(error) = read_sessions_once(&open).await {
            let _ = open
                .memory
                .record_hook_failure("session-end", &crate::error::http_status_of(&error).2)
                .await;
            return;
        }
        drop(alone);
        // A session that ended just now found this reader running and did not start one.
        match open.memory.ended_sessions(false).await {
            Ok(left) if !left.is_empty() => {}
            _ => return,
        }
    }
}

async fn read_sessions_once(open: &OpenMemory) -> anyhow::Result<()> {
    let memory = &open.memory;
    // No one waits for this process, and the client may still be writing.
    tokio::time::sleep(transcript::QUIET_PERIOD).await;
    memory.flush_pending().await?;
    let mut sessions = Vec::new();
    for (name, due) in memory.ended_sessions(true).await? {
        memory.begin_session_import(&name, &due).await?;
        match read_session(open, &due).await {
            Ok(read) => {
                sessions.extend(read);
                memory.finish_session_import(&due).await?;
            }
            Err(failure) => {
                memory.record_read_failure(&due, &failure.why, failure.is_hopeless).await?
            }
        }
    }
    let models = bootstrap::open_models()?;
    let asking: Option<ModelBudget<'_>> = models.model_budget();
    let quiet = |_: &str, _: usize, _: usize| {};
    // Decisions are extracted first, because summaries include them.
    match memory.extract_new_events(asking.as_ref(), &quiet).await {
        Err(error) if !matches!(error, EngineError::Busy(_)) => {
            memory.record_hook_failure("session-end", &error.to_string()).await?
        }
        _ => {}
    }
    let wish = RollupRequest { tier: Some(Tier::Session), days: None, sessions: Some(sessions) };
    match memory.run_rollup(&wish, asking.as_ref(), &quiet).await {
        Err(error) if !matches!(error, EngineError::Busy(_)) => {
            memory.record_hook_failure("session-end", &error.to_string()).await?
        }
        _ => {}
    }
    // A running daemon does the due jobs itself.
    if let Some(_no_daemon) = memory.store().acquire_lease("daemon").await? {
        match memory.run_due_jobs(asking.as_ref(), &quiet).await {
            Err(error) if !matches!(error, EngineError::Busy(_)) => {
                memory.record_hook_failure("session-end", &error.to_string()).await?
            }
            _ => {}
        }
    }
    // Index now, so that the next search is fast.
    memory.open_searcher(None, &|_, _| {}).await?;
    Ok(())
}

struct ReadFailure {
    why: String,
    /// A retry cannot succeed.
    is_hopeless: bool,
}

impl From<EngineError> for ReadFailure {
    fn from(error: EngineError) -> Self {
        Self { why: error.to_string(), is_hopeless: false }
    }
}

impl From<TranscriptError> for ReadFailure {
    fn from(refused: TranscriptError) -> Self {
        Self { why: refused.why, is_hopeless: refused.is_final }
    }
}

/// Imports a session to its end; returns the sessions to summarize.
async fn read_session(
    open: &OpenMemory,
    due: &EndedSession,
) -> Result<Vec<SessionKey>, ReadFailure> {
    let session = LiveSession {
        session: due.session.clone(),
        project: due.project.clone(),
        client: due.client.clone(),
        ..LiveSession::default()
    };
    if let Some(path) = &due.transcript {
        transcript::wait_until_quiet(path).await;
    }
    let mut sessions = read_helpers(open, &session, due).await?;
    if let Some(path) = &due.transcript
        && let Some(text) = transcript::read_transcript(path, transcript::MAX_TRANSCRIPT_BYTES)?
    {
        match open.memory.import_live_transcript(&session, &text).await {
            Ok(taken) if !taken.sessions.is_empty() => {
                sessions.extend(taken.sessions);
                return Ok(sessions);
            }
            Ok(_) | Err(EngineError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Without a transcript there are the messages that hooks stored.
    let today = open.memory.now().day();
    let days =
        icecore_domain::calendar::Days { first: today.yesterday().unwrap_or(today), last: today };
    let stats = open.memory.store().sessions(Some(days)).await.map_err(EngineError::Store)?;
    let is_own = |key: &SessionKey| {
        let name = key.session.as_deref();
        name == Some(&due.session) || name.and_then(parent_session) == Some(&due.session)
    };
    sessions.extend(stats.into_iter().map(|stat| stat.key).filter(is_own));
    Ok(sessions)
}

/// Imports the transcripts of subagents that were not stored when they ended; returns their
/// sessions.
async fn read_helpers(
    open: &OpenMemory,
    session: &LiveSession,
    due: &EndedSession,
) -> Result<Vec<SessionKey>, EngineError> {
    let Some(path) = &due.transcript else { return Ok(Vec::new()) };
    // Transcripts do not show which subagent worked in a private turn; hooks reported the others
    // one by one.
    if open.memory.has_withheld(&due.session).await? {
        return Ok(Vec::new());
    }
    let mut sessions = Vec::new();
    for (id, path) in transcript::helper_transcripts(path) {
        let Some(path) = path.to_str() else { continue };
        let why = match transcript::read_transcript(path, transcript::MAX_BYTES_WHILE_WAITING) {
            Ok(text) => {
                let helper = SubagentReport { id, transcript: text, ..SubagentReport::default() };
                match open.memory.import_subagent(session, &helper).await {
                    Ok(taken) => {
                        sessions.extend(taken.sessions);
                        continue;
                    }
                    // The session itself would fail too; both are read later.
                    Err(error @ (EngineError::Store(_) | EngineError::Busy(_))) => {
                        return Err(error);
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(refused) => refused.why,
        };
        // The session itself is read nevertheless.
        open.memory.record_hook_failure("session-end", &why).await?;
    }
    Ok(sessions)
}
