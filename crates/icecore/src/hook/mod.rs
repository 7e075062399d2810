//! Hooks, which Claude Code and Codex call while they work. `icecore hook EVENT` reads one JSON
//! object and prints one.
//!
//! A hook must never block a client: exit code 2 means "stop this", a slow hook delays the client,
//! and everything printed counts as an answer. Whatever the input (arguments, bytes, environment, a
//! vault that is missing, locked or broken, a panic), a hook exits with 0 and one JSON object, in
//! time. Failures are recorded for `icecore status` and `icecore doctor`; if even that fails, the
//! object says so, because clients show it.

mod call;
mod payload;
mod session_reader;
mod transcript;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use icecore_engine::{
    Error as EngineError, InjectedContext, LiveSession, PackBudget, SessionStart, SubagentReport,
};
use icecore_store::{Error as StoreError, ErrorKind as StoreErrorKind};
use pollster::block_on;
use serde_json::{Value, json};

pub use self::call::is_hook_call;
use self::call::{HookCall, HookClient, HookEvent};
use self::payload::HookPayload;
use crate::bootstrap::{self, OpenMemory};

/// Longer input is refused, but read to its end, so that the client can finish writing.
const MAX_INPUT_BYTES: usize = 16 * 1024 * 1024;
/// The longest injected text; Claude Code moves more than 10,000 characters into a file.
const MAX_INJECTED_CHARS: usize = 9_000;
/// The limit of Codex for injected text.
const MAX_CODEX_TOKENS: usize = 2_400;
/// How long recording a failure may take.
const NOTE_TIMEOUT: Duration = Duration::from_millis(300);
/// How long to wait at exit for leases to be released.
const SHUTDOWN_WAIT: Duration = Duration::from_millis(300);

/// What a hook prints, and the failures to record.
#[derive(Default)]
struct HookAnswer {
    context: Option<String>,
    message: Option<String>,
    complaints: Vec<String>,
    /// Why the text of the event could not be stored, if it could not.
    unsaved: Option<String>,
}

/// Answers a client, whatever its input.
pub fn run_hook(words: &[OsString]) -> ExitCode {
    // A panic is caught below; its message must not reach the client.
    std::panic::set_hook(Box::new(|_| {}));
    let call = HookCall::parse(words);
    if call.finish {
        session_reader::run_reader(&call);
        bootstrap::release_leases(SHUTDOWN_WAIT);
        return ExitCode::SUCCESS;
    }
    let answer = answer_within_timeout(&call);
    let mut out = std::io::stdout().lock();
    // The client may be gone.
    let _ = writeln!(out, "{}", answer.to_json(&call)).and_then(|()| out.flush());
    bootstrap::release_leases(SHUTDOWN_WAIT);
    ExitCode::SUCCESS
}

/// Handles the event, but answers before the client would give up.
fn answer_within_timeout(call: &HookCall) -> HookAnswer {
    let (send, receive) = mpsc::channel();
    let own = call.clone();
    let work = move || {
        let answer = catch_unwind(AssertUnwindSafe(|| handle_hook(&own)));
        let _ = send.send(answer);
    };
    if let Err(error) = thread::Builder::new().spawn(work) {
        return HookAnswer {
            message: Some(not_recorded_message(&error.to_string())),
            ..HookAnswer::default()
        };
    }
    let mut answer = match receive.recv_timeout(call.event.timeout()) {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => HookAnswer::after_interruption(
            call,
            format!("a defect of icecore: {}", panic_message(panic.as_ref())),
        ),
        Err(_) => HookAnswer::after_interruption(
            call,
            format!("not done within {} ms", call.event.timeout().as_millis()),
        ),
    };
    if let Some(why) = answer.unsaved.take() {
        answer.message = Some(not_recorded_message(&why));
        answer.complaints.push(format!("nothing was stored: {why}"));
    }
    let complaints: Vec<String> = answer.complaints.drain(..).collect();
    if !complaints.is_empty() {
        let (send, receive) = mpsc::channel();
        let (own, first) = (call.clone(), complaints[0].clone());
        let noting = move || {
            let noted = catch_unwind(AssertUnwindSafe(|| record_troubles(&own, &complaints)))
                .unwrap_or(false);
            let _ = send.send(noted);
        };
        let noted = thread::Builder::new().spawn(noting).is_ok()
            && receive.recv_timeout(NOTE_TIMEOUT).unwrap_or(false);
        if !noted && answer.message.is_none() {
            answer.message = Some(not_recorded_message(&first));
        }
    }
    answer
}

fn not_recorded_message(why: &str) -> String {
    format!("icecore: nothing can be stored: {why}")
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it panicked".into())
}

/// Records failures for `icecore status` and `icecore doctor`; returns whether that worked.
fn record_troubles(call: &HookCall, complaints: &[String]) -> bool {
    let Ok(open) = bootstrap::own_location(&call.store_selection())
        .and_then(|place| bootstrap::open_for_error_log(place, call.now.as_deref()))
    else {
        return false;
    };
    complaints.iter().all(|complaint| {
        block_on(open.memory.record_hook_failure(call.event.word(), complaint)).is_ok()
    })
}

fn handle_hook(call: &HookCall) -> HookAnswer {
    let input = match read_input() {
        Ok(input) => input,
        Err(why) if call.event.carries_text() => {
            return HookAnswer { unsaved: Some(why), ..HookAnswer::default() };
        }
        Err(why) => return HookAnswer::with_complaint(why),
    };
    if call.event == HookEvent::Other {
        return HookAnswer::default();
    }
    let heard = match HookPayload::parse(&input, call) {
        Ok(heard) => heard,
        Err(why) => return HookAnswer::with_complaint(why),
    };
    let opened = bootstrap::own_location(&call.store_selection())
        .and_then(|place| bootstrap::open_for_hook(place, call.now.as_deref()));
    let answered = opened.and_then(|(open, mistake)| {
        block_on(async {
            let mut answer = handle_event(call, &heard, &open).await?;
            if let Some(mistake) = mistake {
                answer.add_settings_warning(call, &heard, &open, &mistake).await;
            }
            Ok(answer)
        })
    });
    answered.unwrap_or_else(|error| HookAnswer::store_unavailable(call, &heard, &error))
}

/// Reads standard input up to the limit. A terminal counts as empty.
fn read_input() -> Result<Vec<u8>, String> {
    use std::io::IsTerminal;
    let mut input = std::io::stdin().lock();
    if std::io::stdin().is_terminal() {
        return Ok(Vec::new());
    }
    let mut bytes = Vec::new();
    (&mut input)
        .take(MAX_INPUT_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("standard input cannot be read: {error}"))?;
    if bytes.len() > MAX_INPUT_BYTES {
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        return Err(format!("the client sent more than {MAX_INPUT_BYTES} bytes"));
    }
    Ok(bytes)
}

async fn handle_event(
    call: &HookCall,
    payload: &HookPayload,
    open: &OpenMemory,
) -> anyhow::Result<HookAnswer> {
    let memory = &open.memory;
    let session = &payload.session;
    let room = PackBudget {
        chars: MAX_INJECTED_CHARS,
        tokens: (payload.client == HookClient::Codex).then_some(MAX_CODEX_TOKENS),
    };
    let mut answer = HookAnswer::default();
    match call.event {
        HookEvent::SessionStart => {
            let begun = match payload.source.as_deref() {
                Some("compact") => SessionStart::Compacted,
                Some("resume" | "fork") => SessionStart::Resumed,
                _ => SessionStart::New,
            };
            let given = memory.start_session(session, begun, room).await?;
            answer = HookAnswer::with_injected(given);
            answer.message = daily_message(open).await;
            // Some clients never report the end of a session: the next session handles it.
            if !memory.is_provisional() && !memory.ended_sessions(true).await?.is_empty() {
                answer.complaints.extend(session_reader::spawn_reader(call, open).await);
            }
        }
        HookEvent::UserPromptSubmit => {
            if let Some(prompt) = &payload.prompt {
                let most = PackBudget {
                    chars: room.chars.min(memory.policy().recall.max_chars_per_prompt),
                    ..room
                };
                answer =
                    HookAnswer::with_injected(memory.record_prompt(session, prompt, most).await?);
            }
        }
        HookEvent::SubagentStop if payload.agent_id.is_some() => {
            let read = payload
                .agent_transcript
                .as_deref()
                .map(|path| transcript::read_transcript(path, transcript::MAX_BYTES_WHILE_WAITING));
            let (text, complaint) = match read {
                Some(Ok(text)) => (text, None),
                Some(Err(refused)) => (None, Some(refused.why)),
                None => (None, None),
            };
            let id = payload.agent_id.clone().unwrap_or_default();
            let helper = SubagentReport {
                id,
                kind: payload.agent.clone(),
                reply: payload.reply.clone(),
                transcript: text,
            };
            answer.complaints = memory.record_subagent(session, &helper).await?.complaints;
            answer.complaints.extend(complaint);
        }
        HookEvent::Stop | HookEvent::SubagentStop => {
            if let Some(reply) = &payload.reply {
                let name = (call.event == HookEvent::SubagentStop)
                    .then(|| payload.agent.as_deref().unwrap_or("agent"));
                let taken = memory.record_reply(session, reply, name).await?;
                answer.complaints = taken.complaints;
            }
        }
        // The session reader imports the transcript later.
        HookEvent::PreCompact if memory.is_provisional() => {}
        HookEvent::PreCompact => {
            // The state of the session is saved even if its transcript cannot be read now.
            match import_transcript(open, payload).await {
                Ok(complaint) => answer.complaints.extend(complaint),
                Err(error) => answer.complaints.push(crate::error::http_status_of(&error).2),
            }
            memory.save_compaction_state(session, payload.instructions.as_deref()).await?;
        }
        HookEvent::PostCompact => {
            if let Some(summary) = &payload.summary {
                memory.save_compaction_summary(session, summary).await?;
            }
        }
        HookEvent::SessionEnd => {
            memory.end_session(session).await?;
            if !memory.is_provisional() {
                answer.complaints.extend(session_reader::spawn_reader(call, open).await);
            }
        }
        HookEvent::Other => {}
    }
    Ok(answer)
}

/// Imports the transcript of a session as far as it is written; returns a problem, if any.
async fn import_transcript(
    open: &OpenMemory,
    payload: &HookPayload,
) -> anyhow::Result<Option<String>> {
    let Some(path) = &payload.session.transcript else { return Ok(None) };
    let text = match transcript::read_transcript(path, transcript::MAX_BYTES_WHILE_WAITING) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(refused) => return Ok(Some(refused.why)),
    };
    match open.memory.import_live_transcript(&payload.session, &text).await {
        Ok(_) | Err(EngineError::NotFound(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The message about hook failures, at most once a day.
async fn daily_message(open: &OpenMemory) -> Option<String> {
    let troubles = open.memory.hook_failures().await.ok()?;
    let today = open.memory.now().day().to_string();
    let last = troubles.iter().find(|trouble| trouble.ts.starts_with(&today))?;
    let name = "hooks/told.txt".parse().ok()?;
    if open.memory.store().note(&name).await.ok()?.as_deref() == Some(today.as_bytes()) {
        return None;
    }
    open.memory.store().put_note(&name, today.as_bytes()).await.ok()?;
    Some(format!(
        "icecore: a hook failed ({}: {}). `icecore doctor` lists the failures.",
        last.event, last.what
    ))
}

impl HookAnswer {
    fn with_injected(given: InjectedContext) -> Self {
        Self {
            context: given.text,
            message: None,
            complaints: given.complaints,
            unsaved: given.unsaved,
        }
    }

    fn with_complaint(why: String) -> Self {
        Self { complaints: vec![why], ..Self::default() }
    }

    /// The work was interrupted; how far it got is unknown.
    fn after_interruption(call: &HookCall, why: String) -> Self {
        let unsure = "the text is stored at the latest when the session's transcript is read";
        let message = call.event.carries_text().then(|| format!("icecore: {why}; {unsure}"));
        Self { message, complaints: vec![why], ..Self::default() }
    }

    /// The store cannot be used. The user is informed if text is lost, and at a session start,
    /// where it can still be fixed.
    fn store_unavailable(call: &HookCall, payload: &HookPayload, error: &anyhow::Error) -> Self {
        let why = crate::error::http_status_of(error).2;
        if payload.has_text(call.event) {
            return Self { unsaved: Some(why), ..Self::default() };
        }
        let shown = call.event == HookEvent::SessionStart && !is_temporary(error);
        Self {
            message: shown.then(|| format!("icecore: memory is not available: {why}")),
            complaints: vec![why],
            ..Self::default()
        }
    }

    /// Reports invalid settings: at every session start, and once in a session.
    async fn add_settings_warning(
        &mut self,
        call: &HookCall,
        payload: &HookPayload,
        open: &OpenMemory,
        mistake: &anyhow::Error,
    ) {
        let why = crate::error::http_status_of(mistake).2;
        let is_first = open.memory.record_warning(&payload.session, &why).await.unwrap_or(true);
        if is_first || call.event == HookEvent::SessionStart {
            let until = "messages are queued in a note until that is fixed";
            self.message = Some(format!("icecore: memory is not available: {why}; {until}"));
            self.complaints.push(why);
        }
    }

    fn to_json(&self, call: &HookCall) -> Value {
        let mut fields = serde_json::Map::new();
        if let (Some(context), Some(name)) = (&self.context, call.event.client_name()) {
            fields.insert(
                "hookSpecificOutput".into(),
                json!({ "hookEventName": name, "additionalContext": context }),
            );
        }
        if let Some(message) = &self.message {
            fields.insert("systemMessage".into(), message.as_str().into());
        }
        Value::Object(fields)
    }
}

/// Whether a retry may succeed without any change.
fn is_temporary(error: &anyhow::Error) -> bool {
    let busy = |error: &StoreError| {
        matches!(
            error,
            StoreError {
                kind: StoreErrorKind::Busy | StoreErrorKind::Conflict | StoreErrorKind::Overloaded,
                ..
            }
        )
    };
    error.downcast_ref::<StoreError>().is_some_and(busy)
        || matches!(error.downcast_ref::<EngineError>(), Some(EngineError::Store(error)) if busy(error))
}

/// The session of an event that names none.
fn unnamed_session() -> LiveSession {
    LiveSession { session: "unknown".into(), ..LiveSession::default() }
}
