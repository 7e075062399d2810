//! Capture: messages, transcripts, imports, log lines and saved states.

use anyhow::Result;
use icecore_domain::calendar::Moment;
use icecore_domain::event::{NotAWord, Origin};
use icecore_domain::import::Format;
use icecore_domain::record::{Role, Said};
use icecore_domain::transcript::Shape;
use icecore_engine::{Gaps, OldFile};
use serde::Deserialize;

use super::call::{Answer, Call, Given, wrong};
use super::ledger::ORIGIN;
use super::route::{Body, Doing, Field, Form, Route, WRITE, Whose};
use crate::import::Run;
use crate::wire;

const GROUP: &str = "Capture";
const ROLE: Form = Form::Word(|| Role::ALL.iter().map(|role| role.word()).collect());
const SHAPE: Form = Form::Word(|| Shape::ALL.iter().map(|shape| shape.word()).collect());
const FORMAT: Form = Form::Word(|| Format::ALL.iter().map(|format| format.word()).collect());
const STATE: Body = Body::One(&[
    Field::text("text", "The state").must(),
    Field::text("title", "The title"),
    Field::new("origin", ORIGIN, "The origin of the text; default assistant"),
]);
const STATE_EXAMPLE: Option<&str> =
    Some(r##"{"title":"the parser","text":"# State\nThe parser is done, the tests are next."}"##);

/// The routes of capture.
pub const ROUTES: &[Route] = &[
    Route::post(WRITE, "/api/messages", GROUP, "Store a message, or a list of them; the same conversation and id twice is one message", "TakenIn", messages)
        .of(Whose::TheirsOrNew)
        .body(Body::OneOrMany(&[
            Field::text("text", "The text").must(),
            Field::text("conversation", "The conversation it belongs to"),
            Field::text("session", "The session within the conversation"),
            Field::text("id", "The id within the conversation; derived from the text if omitted"),
            Field::new("role", ROLE, "The speaker's role; default user"),
            Field::text("name", "The speaker's name"),
            Field::new("ts", Form::Moment, "The timestamp; default now"),
            Field::new("parts", Form::Json, "Tool uses and files of the message"),
        ]))
        .example("/api/messages", Some(r#"[{"conversation":"app","id":"m1","text":"we use port 7431"},{"conversation":"app","id":"m2","role":"assistant","text":"noted"}]"#)),
    Route::post(
        WRITE, "/api/sessions",
        GROUP,
        "Store a transcript; sending a longer version adds what is new, and its primer is written by the next rollup",
        "SessionTaken",
        session,
    )
    .of(Whose::TheirsOrNew)
    .body(Body::One(&[
        Field::text("text", "The transcript: plain text, Markdown or JSONL").must(),
        Field::text("session", "The session's name").must(),
        Field::text("conversation", "The conversation it belongs to"),
        Field::new("format", SHAPE, "The format; detected if omitted"),
        Field::new("at", Form::Moment, "The timestamp of turns that have none; default now"),
    ]))
    .example("/api/sessions", Some(r##"{"session":"kickoff","conversation":"app","text":"User: which port?\nAssistant: 7431"}"##)),
    Route::post(WRITE, "/api/import", GROUP, "Import another program's history, sent in the body; no files of the server are read", "Imported", import)
        .of(Whose::TheirsOrNew)
        .body(Body::One(&[
            Field::text("text", "The history: JSONL, JSON or Markdown, unpacked").must(),
            Field::new("format", FORMAT, "The format; detected if omitted"),
            Field::text("conversation", "The conversation of messages that name none"),
            Field::new("dry_run", Form::Yes, "Report what would be imported and write nothing"),
        ]))
        .example("/api/import", Some(r#"{"text":"{\"ts\":\"2026-02-13T09:30:00Z\",\"conversation\":\"app\",\"text\":\"we use port 7431\"}\n","format":"jsonl","dry_run":true}"#)),
    Route::post(WRITE, "/api/migrate", GROUP, "Migrate an old memory folder, sent as files in the body; nothing in it is lost", "Migrated", migrate)
        .body(Body::One(&[
            Field::new("files", Form::Files, "The files").many().must(),
            Field::new("dry_run", Form::Yes, "Report what would be done and write nothing"),
        ]))
        .example("/api/migrate", Some(r##"{"files":[{"path":"MEMORY.md","text":"# Memory\n- We use port 7431\n"}],"dry_run":true}"##)),
    Route::post(WRITE, "/api/log", GROUP, "Add a line with the current time to today's log", "Logged", log)
        .of(Whose::TheirsOrNew)
        .body(Body::One(&[Field::text("text", "What happened").must()]))
        .example("/api/log", Some(r#"{"text":"Met Client X, they want two more weeks"}"#)),
    Route::post(WRITE, "/api/state", GROUP, "Save the assistant's state for the next session", "Saved", state)
        .of(Whose::TheirsOrNew)
        .body(STATE)
        .example("/api/state", STATE_EXAMPLE),
    Route::post(WRITE, "/state/append-log", GROUP, "The same as POST /api/state", "Saved", state)
        .of(Whose::TheirsOrNew)
        .body(STATE)
        .example("/state/append-log", STATE_EXAMPLE),
];

fn moment(text: &str) -> Result<Moment, &'static str> {
    match Moment::read(text) {
        Some(read) if !read.offset_assumed => Ok(read.moment),
        _ => Err("write a timestamp like 2026-02-13T09:30:00+01:00"),
    }
}

fn read(given: &Given) -> Result<Said> {
    let role = |text: &str| Role::meant(text).map_or_else(|| text.parse(), Ok::<Role, NotAWord>);
    let said = Said {
        ts: given.read("ts", moment)?,
        conversation: given.text("conversation"),
        session: given.text("session"),
        id: given.text("id"),
        role: Some(given.read("role", role)?.unwrap_or(Role::User)),
        name: given.text("name"),
        text: given.text("text").unwrap_or_default(),
        parts: given.text("parts"),
        ..Said::default()
    };
    if said.text.trim().is_empty() && said.parts.is_none() {
        return Err(wrong("nothing to store: the text is empty"));
    }
    Ok(said)
}

fn messages(call: Call) -> Doing {
    Box::pin(async move {
        let many = call.bodies.len() > 1;
        let numbered = |at: usize, error: anyhow::Error| {
            if many { wrong(format!("item {} of the list: {error}", at + 1)) } else { error }
        };
        let said: Result<Vec<Said>> = call
            .bodies
            .iter()
            .enumerate()
            .map(|(at, given)| read(given).map_err(|error| numbered(at, error)))
            .collect();
        let said = said?;
        if said.is_empty() {
            return Err(wrong("nothing to store: the list is empty"));
        }
        let taken = call.memory().await?.add_messages(said, &Gaps::default()).await?;
        match taken.complaints.first() {
            Some(complaint) if taken.new + taken.same + taken.revised.len() == 0 => {
                Err(wrong(format!("nothing was stored: {complaint}")))
            }
            _ => Answer::named("taken", &taken),
        }
    })
}

fn session(call: Call) -> Doing {
    Box::pin(async move {
        let said = call.body()?;
        let (shape, at) = (said.read("format", str::parse::<Shape>)?, said.read("at", moment)?);
        let (text, name) =
            (said.text("text").unwrap_or_default(), said.text("session").unwrap_or_default());
        if text.trim().is_empty() {
            return Err(wrong("nothing to store: the transcript is empty"));
        }
        let gaps = Gaps {
            conversation: said.text("conversation"),
            session: None,
            origin: None,
            ..Gaps::default()
        };
        Answer::named(
            "session",
            &call.memory().await?.add_session(&text, &name, shape, at, &gaps).await?,
        )
    })
}

fn log(call: Call) -> Doing {
    Box::pin(async move {
        let text = call.body()?.text("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(wrong("nothing to log: the text is empty"));
        }
        Answer::of(&call.memory().await?.log(&text).await?)
    })
}

fn state(call: Call) -> Doing {
    Box::pin(async move {
        let said = call.body()?;
        let origin = said.read("origin", str::parse::<Origin>)?.unwrap_or(Origin::Assistant);
        let text = said.text("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(wrong("nothing to save: the state is empty"));
        }
        let saved = call.memory().await?.save_state(&text, said.one("title"), origin).await?;
        Answer::named("saved", &saved)
    })
}

fn import(call: Call) -> Doing {
    Box::pin(async move {
        let (begun, said) = (wire::stopwatch(), call.body()?);
        let format = said.read("format", str::parse::<Format>)?;
        let text = said.text("text").unwrap_or_default();
        if text.trim().is_empty() {
            return Err(wrong("nothing to import: the text is empty"));
        }
        let gaps = Gaps { conversation: said.text("conversation"), ..Gaps::default() };
        let memory = call.memory().await?;
        let mut run = Run::new(&memory, gaps, Default::default(), said.yes("dry_run"), &|_| {});
        run.piped(&mut text.as_bytes(), "what was sent", format).await?;
        run.flush(None).await?;
        let mut report = run.report;
        report.seconds = begun.seconds();
        if report.is_idle() && report.broken > 0 {
            let why = report.taken.complaints.first().cloned().unwrap_or_default();
            return Err(wrong(format!("nothing was imported: {why}")));
        }
        Answer::of(&report)
    })
}

/// A file of an old folder, as it is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    path: String,
    text: String,
    modified: Option<String>,
}

fn old_file(raw: &str) -> Result<OldFile, String> {
    let sent: Sent = serde_json::from_str(raw).map_err(|error| error.to_string())?;
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
    let modified = sent.modified.as_deref().map(moment).transpose()?.map(Moment::at);
    Ok(OldFile { path: sent.path, bytes: sent.text.into_bytes(), modified })
}

fn migrate(call: Call) -> Doing {
    Box::pin(async move {
        let said = call.body()?;
        let files = said.read_all("files", old_file)?;
        if files.is_empty() {
            return Err(wrong("`files` is missing: the files of the old folder"));
        }
        Answer::of(
            &call.memory().await?.migrate(files, Vec::new(), false, said.yes("dry_run")).await?,
        )
    })
}
