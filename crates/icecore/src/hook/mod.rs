//! Hooks, which Claude Code and Codex call while they work. `icecore hook EVENT` reads one JSON
//! object and prints one.
//!
//! A hook must never block a client: exit code 2 means "stop this", a slow hook delays the client,
//! and everything printed counts as an answer. Whatever the input (arguments, bytes, environment, a
//! vault that is missing, locked or broken, a panic), a hook exits with 0 and one JSON object, in
//! time. Failures are recorded for `icecore status` and `icecore doctor`; if even that fails, the
//! object says so, because clients show it.

mod call;
mod finish;
mod heard;
mod transcript;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use icecore_engine::{Attended, Begun, Error as EngineError, Given, Helper, Room};
use icecore_store::Error as StoreError;
use pollster::block_on;
use serde_json::{Value, json};

pub use self::call::is_meant;
use self::call::{Call, Client, Event};
use self::heard::Heard;
use crate::wire::{self, Open};

/// Longer input is refused, but read to its end, so that the client can finish writing.
const MOST_BYTES: usize = 16 * 1024 * 1024;
/// The longest injected text; Claude Code moves more than 10,000 characters into a file.
const MOST_CHARS: usize = 9_000;
/// The limit of Codex for injected text.
const CODEX_TOKENS: usize = 2_400;
/// How long recording a failure may take.
const NOTING: Duration = Duration::from_millis(300);
/// How long to wait at exit for leases to be released.
const PARTING: Duration = Duration::from_millis(300);

/// What a hook prints, and the failures to record.
#[derive(Default)]
struct Answer {
    context: Option<String>,
    message: Option<String>,
    complaints: Vec<String>,
    /// Why the text of the event could not be stored, if it could not.
    unsaved: Option<String>,
}

/// Answers a client, whatever its input.
pub fn answer(words: &[OsString]) -> ExitCode {
    // A panic is caught below; its message must not reach the client.
    std::panic::set_hook(Box::new(|_| {}));
    let call = Call::read(words);
    if call.finish {
        finish::run(&call);
        wire::part(PARTING);
        return ExitCode::SUCCESS;
    }
    let answer = in_time(&call);
    let mut out = std::io::stdout().lock();
    // The client may be gone.
    let _ = writeln!(out, "{}", answer.as_json(&call)).and_then(|()| out.flush());
    wire::part(PARTING);
    ExitCode::SUCCESS
}

/// Handles the event, but answers before the client would give up.
fn in_time(call: &Call) -> Answer {
    let (send, receive) = mpsc::channel();
    let own = call.clone();
    let work = move || {
        let answer = catch_unwind(AssertUnwindSafe(|| work(&own)));
        let _ = send.send(answer);
    };
    if let Err(error) = thread::Builder::new().spawn(work) {
        return Answer { message: Some(not_kept(&error.to_string())), ..Answer::default() };
    }
    let mut answer = match receive.recv_timeout(call.event.patience()) {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => {
            Answer::interrupted(call, format!("a defect of icecore: {}", said_by(panic.as_ref())))
        }
        Err(_) => Answer::interrupted(
            call,
            format!("not done within {} ms", call.event.patience().as_millis()),
        ),
    };
    if let Some(why) = answer.unsaved.take() {
        answer.message = Some(not_kept(&why));
        answer.complaints.push(format!("nothing was stored: {why}"));
    }
    let complaints: Vec<String> = answer.complaints.drain(..).collect();
    if !complaints.is_empty() {
        let (send, receive) = mpsc::channel();
        let (own, first) = (call.clone(), complaints[0].clone());
        let noting = move || {
            let noted = catch_unwind(AssertUnwindSafe(|| note(&own, &complaints))).unwrap_or(false);
            let _ = send.send(noted);
        };
        let noted = thread::Builder::new().spawn(noting).is_ok()
            && receive.recv_timeout(NOTING).unwrap_or(false);
        if !noted && answer.message.is_none() {
            answer.message = Some(not_kept(&first));
        }
    }
    answer
}

fn not_kept(why: &str) -> String {
    format!("icecore: nothing can be stored: {why}")
}

fn said_by(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it panicked".into())
}

/// Records failures for `icecore status` and `icecore doctor`; returns whether that worked.
fn note(call: &Call, complaints: &[String]) -> bool {
    let Ok(open) = wire::own_place(&call.named())
        .and_then(|place| wire::open_to_note(place, call.now.as_deref()))
    else {
        return false;
    };
    complaints
        .iter()
        .all(|complaint| block_on(open.memory.note_trouble(call.event.word(), complaint)).is_ok())
}

fn work(call: &Call) -> Answer {
    let input = match read_input() {
        Ok(input) => input,
        Err(why) if call.event.brings_words() => {
            return Answer { unsaved: Some(why), ..Answer::default() };
        }
        Err(why) => return Answer::complaining(why),
    };
    if call.event == Event::Other {
        return Answer::default();
    }
    let heard = match Heard::read(&input, call) {
        Ok(heard) => heard,
        Err(why) => return Answer::complaining(why),
    };
    let opened = wire::own_place(&call.named())
        .and_then(|place| wire::open_hurried(place, call.now.as_deref()));
    let answered = opened.and_then(|(open, mistake)| {
        block_on(async {
            let mut answer = attend(call, &heard, &open).await?;
            if let Some(mistake) = mistake {
                answer.warn(call, &heard, &open, &mistake).await;
            }
            Ok(answer)
        })
    });
    answered.unwrap_or_else(|error| Answer::unusable(call, &heard, &error))
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
        .take(MOST_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("standard input cannot be read: {error}"))?;
    if bytes.len() > MOST_BYTES {
        let _ = std::io::copy(&mut input, &mut std::io::sink());
        return Err(format!("the client sent more than {MOST_BYTES} bytes"));
    }
    Ok(bytes)
}

async fn attend(call: &Call, heard: &Heard, open: &Open) -> anyhow::Result<Answer> {
    let memory = &open.memory;
    let session = &heard.session;
    let room =
        Room { chars: MOST_CHARS, tokens: (heard.client == Client::Codex).then_some(CODEX_TOKENS) };
    let mut answer = Answer::default();
    match call.event {
        Event::SessionStart => {
            let begun = match heard.source.as_deref() {
                Some("compact") => Begun::Compacted,
                Some("resume" | "fork") => Begun::Again,
                _ => Begun::Anew,
            };
            let given = memory.attend_start(session, begun, room).await?;
            answer = Answer::giving(given);
            answer.message = daily(open).await;
            // Some clients never report the end of a session: the next session handles it.
            if !memory.is_provisional() && !memory.ended_sessions(true).await?.is_empty() {
                answer.complaints.extend(finish::begin(call, open).await);
            }
        }
        Event::UserPromptSubmit => {
            if let Some(prompt) = &heard.prompt {
                let most = Room {
                    chars: room.chars.min(memory.policy().recall.max_chars_per_prompt),
                    ..room
                };
                answer = Answer::giving(memory.attend_prompt(session, prompt, most).await?);
            }
        }
        Event::SubagentStop if heard.agent_id.is_some() => {
            let read = heard
                .agent_transcript
                .as_deref()
                .map(|path| transcript::read(path, transcript::MOST_AT_ONCE));
            let (text, complaint) = match read {
                Some(Ok(text)) => (text, None),
                Some(Err(refused)) => (None, Some(refused.why)),
                None => (None, None),
            };
            let id = heard.agent_id.clone().unwrap_or_default();
            let helper = Helper {
                id,
                kind: heard.agent.clone(),
                reply: heard.reply.clone(),
                transcript: text,
            };
            answer.complaints = memory.attend_helper(session, &helper).await?.complaints;
            answer.complaints.extend(complaint);
        }
        Event::Stop | Event::SubagentStop => {
            if let Some(reply) = &heard.reply {
                let name = (call.event == Event::SubagentStop)
                    .then(|| heard.agent.as_deref().unwrap_or("agent"));
                let taken = memory.attend_reply(session, reply, name).await?;
                answer.complaints = taken.complaints;
            }
        }
        // The session reader imports the transcript later.
        Event::PreCompact if memory.is_provisional() => {}
        Event::PreCompact => {
            // The state of the session is saved even if its transcript cannot be read now.
            match take_transcript(open, heard).await {
                Ok(complaint) => answer.complaints.extend(complaint),
                Err(error) => answer.complaints.push(crate::error::as_status(&error).2),
            }
            memory.attend_compaction(session, heard.wish.as_deref()).await?;
        }
        Event::PostCompact => {
            if let Some(summary) = &heard.summary {
                memory.attend_summary(session, summary).await?;
            }
        }
        Event::SessionEnd => {
            memory.attend_end(session).await?;
            if !memory.is_provisional() {
                answer.complaints.extend(finish::begin(call, open).await);
            }
        }
        Event::Other => {}
    }
    Ok(answer)
}

/// Imports the transcript of a session as far as it is written; returns a problem, if any.
async fn take_transcript(open: &Open, heard: &Heard) -> anyhow::Result<Option<String>> {
    let Some(path) = &heard.session.transcript else { return Ok(None) };
    let text = match transcript::read(path, transcript::MOST_AT_ONCE) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(refused) => return Ok(Some(refused.why)),
    };
    match open.memory.attend_transcript(&heard.session, &text).await {
        Ok(_) | Err(EngineError::Nothing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The message about hook failures, at most once a day.
async fn daily(open: &Open) -> Option<String> {
    let troubles = open.memory.hook_troubles().await.ok()?;
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

impl Answer {
    fn giving(given: Given) -> Self {
        Self {
            context: given.text,
            message: None,
            complaints: given.complaints,
            unsaved: given.unsaved,
        }
    }

    fn complaining(why: String) -> Self {
        Self { complaints: vec![why], ..Self::default() }
    }

    /// The work was interrupted; how far it got is unknown.
    fn interrupted(call: &Call, why: String) -> Self {
        let unsure = "the text is stored at the latest when the session's transcript is read";
        let message = call.event.brings_words().then(|| format!("icecore: {why}; {unsure}"));
        Self { message, complaints: vec![why], ..Self::default() }
    }

    /// The store cannot be used. The user is informed if text is lost, and at a session start,
    /// where it can still be fixed.
    fn unusable(call: &Call, heard: &Heard, error: &anyhow::Error) -> Self {
        let why = crate::error::as_status(error).2;
        if heard.has_words(call.event) {
            return Self { unsaved: Some(why), ..Self::default() };
        }
        let shown = call.event == Event::SessionStart && !is_passing(error);
        Self {
            message: shown.then(|| format!("icecore: memory is not available: {why}")),
            complaints: vec![why],
            ..Self::default()
        }
    }

    /// Reports invalid settings: at every session start, and once in a session.
    async fn warn(&mut self, call: &Call, heard: &Heard, open: &Open, mistake: &anyhow::Error) {
        let why = crate::error::as_status(mistake).2;
        let is_first = open.memory.warns_first(&heard.session, &why).await.unwrap_or(true);
        if is_first || call.event == Event::SessionStart {
            let until = "messages are queued in a note until that is fixed";
            self.message = Some(format!("icecore: memory is not available: {why}; {until}"));
            self.complaints.push(why);
        }
    }

    fn as_json(&self, call: &Call) -> Value {
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
fn is_passing(error: &anyhow::Error) -> bool {
    let busy = |error: &StoreError| {
        matches!(error, StoreError::Busy { .. } | StoreError::Moved { .. } | StoreError::Overrun(_))
    };
    error.downcast_ref::<StoreError>().is_some_and(busy)
        || matches!(error.downcast_ref::<EngineError>(), Some(EngineError::Store(error)) if busy(error))
}

/// The session of an event that names none.
fn unnamed() -> Attended {
    Attended { session: "unknown".into(), ..Attended::default() }
}
