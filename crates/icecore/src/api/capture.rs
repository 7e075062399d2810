//! Capture: messages, transcripts, imports, log lines and saved states.

use std::collections::HashSet;

use anyhow::Result;
use icecore_domain::calendar::Moment;
use icecore_domain::event::{Origin, ParseEnumError};
use icecore_domain::import::ImportFormat;
use icecore_domain::record::{IncomingMessage, Role};
use icecore_domain::transcript::TranscriptFormat;
use icecore_engine::{CaptureDefaults, OldFolderFile};
use serde::Deserialize;

use super::call::{ApiAnswer, ApiCall, ParsedInput, usage_error};
use super::ledger::ORIGIN_TYPE;
use super::route::{BodySpec, HandlerFuture, InputField, RouteSpec, SpaceTarget, ValueType, WRITE};
use crate::bootstrap;
use crate::import::ImportRun;

const GROUP: &str = "Capture";
const ROLE_TYPE: ValueType = ValueType::Word(|| Role::ALL.iter().map(|role| role.word()).collect());
const TRANSCRIPT_TYPE: ValueType =
    ValueType::Word(|| TranscriptFormat::ALL.iter().map(|shape| shape.word()).collect());
const IMPORT_FORMAT_TYPE: ValueType =
    ValueType::Word(|| ImportFormat::ALL.iter().map(|format| format.word()).collect());
const STATE_BODY: BodySpec = BodySpec::One(&[
    InputField::text("text", "The state").require(),
    InputField::text("title", "The title"),
    InputField::new("origin", ORIGIN_TYPE, "The origin of the text; default assistant"),
]);
const STATE_EXAMPLE: Option<&str> =
    Some(r##"{"title":"the parser","text":"# State\nThe parser is done, the tests are next."}"##);

/// The routes of capture.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::post(WRITE, "/api/messages", GROUP, "Store a message, or a list of them; the same conversation and id twice is one message", "CaptureResult", add_messages)
        .space(SpaceTarget::TheirsOrNew)
        .body(BodySpec::OneOrMany(&[
            InputField::text("text", "The text").require(),
            InputField::text("conversation", "The conversation it belongs to"),
            InputField::text("session", "The session within the conversation"),
            InputField::text("id", "The id within the conversation; derived from the text if omitted"),
            InputField::new("role", ROLE_TYPE, "The speaker's role; default user"),
            InputField::text("name", "The speaker's name"),
            InputField::new("ts", ValueType::Moment, "The timestamp; default now"),
            InputField::new("parts", ValueType::Json, "Tool uses and files of the message"),
        ]))
        .example("/api/messages", Some(r#"[{"conversation":"app","id":"m1","text":"we use port 7431"},{"conversation":"app","id":"m2","role":"assistant","text":"noted"}]"#)),
    RouteSpec::post(
        WRITE, "/api/sessions",
        GROUP,
        "Store a transcript; sending a longer version adds what is new, and its primer is written by the next rollup",
        "SessionReport",
        add_session,
    )
    .space(SpaceTarget::TheirsOrNew)
    .body(BodySpec::One(&[
        InputField::text("text", "The transcript: plain text, Markdown or JSONL").require(),
        InputField::text("session", "The session's name").require(),
        InputField::text("conversation", "The conversation it belongs to"),
        InputField::new("format", TRANSCRIPT_TYPE, "The format; detected if omitted"),
        InputField::new("at", ValueType::Moment, "The timestamp of turns that have none; default now"),
    ]))
    .example("/api/sessions", Some(r##"{"session":"kickoff","conversation":"app","text":"User: which port?\nAssistant: 7431"}"##)),
    RouteSpec::post(WRITE, "/api/import", GROUP, "Import another program's history, sent in the body; no files of the server are read", "ImportReport", import)
        .space(SpaceTarget::TheirsOrNew)
        .body(BodySpec::One(&[
            InputField::text("text", "The history: JSONL, JSON or Markdown, unpacked").require(),
            InputField::new("format", IMPORT_FORMAT_TYPE, "The format; detected if omitted"),
            InputField::text("conversation", "The conversation of messages that name none"),
            InputField::new("dry_run", ValueType::Yes, "Report what would be imported and write nothing"),
        ]))
        .example("/api/import", Some(r#"{"text":"{\"ts\":\"2026-02-13T09:30:00Z\",\"conversation\":\"app\",\"text\":\"we use port 7431\"}\n","format":"jsonl","dry_run":true}"#)),
    RouteSpec::post(WRITE, "/api/migrate", GROUP, "Migrate an old memory folder, sent as files in the body; nothing in it is lost", "MigrationReport", migrate)
        .body(BodySpec::One(&[
            InputField::new("files", ValueType::Files, "The files").many().require(),
            InputField::new("dry_run", ValueType::Yes, "Report what would be done and write nothing"),
        ]))
        .example("/api/migrate", Some(r##"{"files":[{"path":"MEMORY.md","text":"# Memory\n- We use port 7431\n"}],"dry_run":true}"##)),
    RouteSpec::post(WRITE, "/api/log", GROUP, "Add a line with the current time to today's log", "LogResult", add_log_line)
        .space(SpaceTarget::TheirsOrNew)
        .body(BodySpec::One(&[InputField::text("text", "What happened").require()]))
        .example("/api/log", Some(r#"{"text":"Met Client X, they want two more weeks"}"#)),
    RouteSpec::post(WRITE, "/api/state", GROUP, "Save the assistant's state for the next session", "SavedState", save_state)
        .space(SpaceTarget::TheirsOrNew)
        .body(STATE_BODY)
        .example("/api/state", STATE_EXAMPLE),
    RouteSpec::post(WRITE, "/state/append-log", GROUP, "The same as POST /api/state", "SavedState", save_state)
        .space(SpaceTarget::TheirsOrNew)
        .body(STATE_BODY)
        .example("/state/append-log", STATE_EXAMPLE),
];

fn parse_timestamp(text: &str) -> Result<Moment, &'static str> {
    match Moment::parse(text) {
        Some(read) if !read.offset_assumed => Ok(read.moment),
        _ => Err("write a timestamp like 2026-02-13T09:30:00+01:00"),
    }
}

fn parse_message(input: &ParsedInput) -> Result<IncomingMessage> {
    let role = |text: &str| {
        Role::from_alias(text).map_or_else(|| text.parse(), Ok::<Role, ParseEnumError>)
    };
    let said = IncomingMessage {
        ts: input.parse_field("ts", parse_timestamp)?,
        conversation: input.get_owned("conversation"),
        session: input.get_owned("session"),
        id: input.get_owned("id"),
        role: Some(input.parse_field("role", role)?.unwrap_or(Role::User)),
        name: input.get_owned("name"),
        text: input.get_owned("text").unwrap_or_default(),
        parts: input.get_owned("parts"),
        ..IncomingMessage::default()
    };
    if said.text.trim().is_empty() && said.parts.is_none() {
        return Err(usage_error("nothing to store: the text is empty"));
    }
    Ok(said)
}

fn add_messages(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let many = call.bodies.len() > 1;
        let numbered = |at: usize, error: anyhow::Error| {
            if many { usage_error(format!("item {} of the list: {error}", at + 1)) } else { error }
        };
        let said: Result<Vec<IncomingMessage>> = call
            .bodies
            .iter()
            .enumerate()
            .map(|(at, given)| parse_message(given).map_err(|error| numbered(at, error)))
            .collect();
        let said = said?;
        if said.is_empty() {
            return Err(usage_error("nothing to store: the list is empty"));
        }
        let taken =
            call.open_memory().await?.add_messages(said, &CaptureDefaults::default()).await?;
        match taken.complaints.first() {
            Some(complaint) if taken.new + taken.same + taken.revised.len() == 0 => {
                Err(usage_error(format!("nothing was stored: {complaint}")))
            }
            _ => ApiAnswer::with_key("taken", &taken),
        }
    })
}

fn add_session(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let said = call.body()?;
        let (shape, at) = (
            said.parse_field("format", str::parse::<TranscriptFormat>)?,
            said.parse_field("at", parse_timestamp)?,
        );
        let (text, name) = (
            said.get_owned("text").unwrap_or_default(),
            said.get_owned("session").unwrap_or_default(),
        );
        if text.trim().is_empty() {
            return Err(usage_error("nothing to store: the transcript is empty"));
        }
        let gaps = CaptureDefaults {
            conversation: said.get_owned("conversation"),
            session: None,
            origin: None,
            ..CaptureDefaults::default()
        };
        ApiAnswer::with_key(
            "session",
            &call.open_memory().await?.import_session(&text, &name, shape, at, &gaps).await?,
        )
    })
}

fn add_log_line(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let text = call.body()?.get_owned("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(usage_error("nothing to log: the text is empty"));
        }
        ApiAnswer::from_value(&call.open_memory().await?.append_to_log(&text).await?)
    })
}

fn save_state(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let said = call.body()?;
        let origin = said.parse_field("origin", str::parse::<Origin>)?.unwrap_or(Origin::Assistant);
        let text = said.get_owned("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(usage_error("nothing to save: the state is empty"));
        }
        let saved = call.open_memory().await?.save_state(&text, said.get("title"), origin).await?;
        ApiAnswer::with_key("saved", &saved)
    })
}

fn import(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (begun, said) = (bootstrap::start_stopwatch(), call.body()?);
        let format = said.parse_field("format", str::parse::<ImportFormat>)?;
        let text = said.get_owned("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(usage_error("nothing to import: the text is empty"));
        }
        let gaps = CaptureDefaults {
            conversation: said.get_owned("conversation"),
            ..CaptureDefaults::default()
        };
        let memory = call.open_memory().await?;
        let mut run =
            ImportRun::new(&memory, gaps, Default::default(), said.is_true("dry_run"), &|_| {});
        run.import_stream(&mut text.as_bytes(), "what was sent", format).await?;
        run.flush(None).await?;
        let mut report = run.report;
        report.seconds = begun.seconds();
        if report.is_empty() && report.broken > 0 {
            let why = report.capture.complaints.first().cloned().unwrap_or_default();
            return Err(usage_error(format!("nothing was imported: {why}")));
        }
        ApiAnswer::from_value(&report)
    })
}

/// A file of an old folder, as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SentFile {
    path: String,
    text: String,
    modified: Option<String>,
}

fn parse_old_file(raw: &str) -> Result<OldFolderFile, String> {
    let sent: SentFile = serde_json::from_str(raw).map_err(|error| error.to_string())?;
    // The constraints of a folder on disk: paths only go down.
    let goes_down = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && !part.contains(['\\', '\0'])
    };
    if !sent.path.split('/').all(goes_down) {
        return Err(
            "a file path must be relative and stay in its folder: no `..`, no leading slash, no backslash"
                .into(),
        );
    }
    let modified =
        sent.modified.as_deref().map(parse_timestamp).transpose()?.map(Moment::timestamp);
    Ok(OldFolderFile { path: sent.path, bytes: sent.text.into_bytes(), modified })
}

/// Refuses a list in which one path is a file and the folder of another file.
fn refuse_files_as_folders(files: &[OldFolderFile]) -> Result<()> {
    let paths: HashSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for file in files {
        let folders = file.path.match_indices('/').map(|(at, _)| &file.path[..at]);
        if let Some(folder) = folders.into_iter().find(|folder| paths.contains(folder)) {
            return Err(usage_error(format!(
                "`files`: {folder} is a file and the folder of {}; send one of the two",
                file.path
            )));
        }
    }
    Ok(())
}

fn migrate(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let said = call.body()?;
        let files = said.parse_all("files", parse_old_file)?;
        if files.is_empty() {
            return Err(usage_error("`files` is missing: the files of the old folder"));
        }
        refuse_files_as_folders(&files)?;
        ApiAnswer::from_value(
            &call
                .open_memory()
                .await?
                .migrate(files, Vec::new(), false, said.is_true("dry_run"))
                .await?,
        )
    })
}
