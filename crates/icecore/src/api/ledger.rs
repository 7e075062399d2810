//! The ledger: reading events and their provenance, and writing events.

use icecore_domain::event::{Act, EntityKind, Kind, Origin, Priority, Scope};
use icecore_domain::id::EventId;
use icecore_domain::ledger::query::{EventQuery, Wanted};
use icecore_domain::ledger::revise::Refusal;
use icecore_domain::plain;
use icecore_engine::{EventStatus, Forget, Held, Remember};
use jiff::civil::Date;

use super::call::{Answer, Call, Given, wrong};
use super::route::{Body, Doing, Field, Form, READ, Route, WRITE, Whose};
use crate::told;

const GROUP: &str = "Ledger";
const KIND: Form = Form::Word(|| Kind::ALL.iter().map(|kind| kind.word()).collect());
const PRIORITY: Form =
    Form::Word(|| Priority::ALL.iter().map(|priority| priority.word()).collect());
const ENTITY_KIND: Form = Form::Word(|| EntityKind::ALL.iter().map(|kind| kind.word()).collect());
/// The origins of an event.
pub const ORIGIN: Form = Form::Word(|| Origin::ALL.iter().map(|origin| origin.word()).collect());

const STATUS: Form =
    Form::Word(|| vec!["active", "superseded", "closed", "retracted", "quarantined", "any"]);
/// The default page size.
const EVENTS: usize = 50;
/// The largest page.
const MOST_EVENTS: usize = 1_000;
/// The default number of graph nodes.
const NODES: usize = 100;
/// The most graph nodes.
const MOST_NODES: usize = 1_000;

const ON_AN_EVENT: Body = Body::One(&[
    Field::text("note", "The reason"),
    Field::text("session", "The session it happened in"),
    Field::new("origin", ORIGIN, "The origin of the statement; default user"),
]);

const NOTED: Body = Body::One(&[Field::text("note", "The reason")]);

/// The routes of the ledger.
pub const ROUTES: &[Route] = &[
    Route::get(
        READ,
        "/api/status",
        GROUP,
        "The status: contents, open commitments, due jobs and problems",
        "Status",
        status,
    ),
    Route::get(READ, "/api/events", GROUP, "List events", "Events", events)
        .query(&[
            Field::text("text", "Only events that contain this text"),
            Field::new(
                "all",
                Form::Yes,
                "Include superseded, closed and retracted events, and the acts that did it",
            ),
            Field::new("type", KIND, "Only events of these types").many(),
            Field::new("priority", PRIORITY, "Only events of these priorities").many(),
            Field::text("entity", "Only events about this entity"),
            Field::text("tag", "Only events with this tag; repeated: with all of them").many(),
            Field::text("session", "Only events from this session"),
            Field::text("source", "Only events from this source"),
            Field::text(
                "scope",
                "Only events with this scope: everywhere, project:NAME, conversation:ID",
            ),
            Field::new("since", Form::Day, "Only events recorded on or after this date"),
            Field::new("until", Form::Day, "Only events recorded on or before this date"),
            Field::new(
                "quarantined",
                Form::Yes,
                "Only quarantined events, which wait for confirmation",
            ),
            Field::new("limit", Form::Number, "Maximum number, newest first"),
        ])
        .example("/api/events?type=commitment&since=-7d", None),
    Route::post(
        WRITE,
        "/api/events",
        GROUP,
        "Record a fact, decision, commitment, preference, constraint, procedure or relationship",
        "Remembered",
        remember,
    )
    .of(Whose::TheirsOrNew)
    .body(Body::One(&[
        Field::text("text", "The statement to remember").must(),
        Field::new("type", KIND, "The event type; guessed from the text if omitted"),
        Field::new(
            "priority",
            PRIORITY,
            "P0 permanent, P1 important, P2 for a quarter, P3 for a month",
        ),
        Field::text("entity", "The entity it is about"),
        Field::new("entity_kind", ENTITY_KIND, "The kind of that entity"),
        Field::text("tags", "Tags").many(),
        Field::new("supersedes", Form::Id, "The events that this one replaces").many(),
        Field::new("related", Form::Id, "Related events").many(),
        Field::new("due", Form::Day, "The due date"),
        Field::text("waiting_on", "The person or thing it waits for"),
        Field::text("source", "The source; default `live`"),
        Field::text("session", "The session it comes from"),
        Field::text("scope", "The scope: everywhere, project:NAME, conversation:ID"),
        Field::new("origin", ORIGIN, "The origin of the statement; default user"),
    ]))
    .example("/api/events", Some(r#"{"text":"Send the offer to Client X","due":"friday"}"#)),
    Route::get(
        READ,
        "/api/ledger",
        GROUP,
        "Events page by page, newest first, with totals by type and status",
        "LedgerPage",
        page,
    )
    .query(&[
        Field::new("status", STATUS, "Only events in this state; default active"),
        Field::new("acts", Form::Yes, "Include close, confirm and retract acts"),
        Field::text("text", "Only events that contain this text"),
        Field::new("type", KIND, "Only events of these types").many(),
        Field::new("priority", PRIORITY, "Only events of these priorities").many(),
        Field::text("entity", "Only events about this entity"),
        Field::text("tag", "Only events with this tag; repeated: with all of them").many(),
        Field::text("session", "Only events from this session"),
        Field::text("source", "Only events from this source"),
        Field::text(
            "scope",
            "Only events with this scope: everywhere, project:NAME, conversation:ID",
        ),
        Field::new("since", Form::Day, "Only events recorded on or after this date"),
        Field::new("until", Form::Day, "Only events recorded on or before this date"),
        Field::new("offset", Form::Number, "Number to skip; default 0"),
        Field::new("limit", Form::Between(1, MOST_EVENTS), "Maximum number; default 50"),
    ])
    .example("/api/ledger?type=decision&status=any&offset=50", None),
    Route::get(
        READ,
        "/api/events/{id}/graph",
        GROUP,
        "An event and its related events, as a graph of nodes and edges",
        "Graph",
        graph,
    )
    .query(&[Field::new(
        "limit",
        Form::Between(1, MOST_NODES),
        "Maximum number of nodes, nearest first; default 100",
    )])
    .example("/api/events/20260213-1/graph", None),
    Route::get(READ, "/api/events/{id}", GROUP, "One event with its chain", "Story", show)
        .example("/api/events/20260213-1", None),
    Route::post(WRITE, "/api/events/{id}/close", GROUP, "Close a commitment", "Acts", close)
        .body(ON_AN_EVENT)
        .example("/api/events/20260213-1/close", Some(r#"{"note":"sent"}"#)),
    Route::post(
        WRITE,
        "/api/events/{id}/confirm",
        GROUP,
        "Confirm that an event is still true",
        "Acts",
        confirm,
    )
    .body(ON_AN_EVENT)
    .example("/api/events/20260213-1/confirm", Some("{}")),
    Route::post(WRITE, "/api/events/{id}/retract", GROUP, "Retract an event", "Acts", retract)
        .body(ON_AN_EVENT)
        .example("/api/events/20260213-1/retract", Some(r#"{"note":"a misunderstanding"}"#)),
    Route::post(
        WRITE,
        "/api/forget",
        GROUP,
        "Delete something permanently, with everything derived from it; `dry_run` only reports",
        "Forgot",
        forget,
    )
    .body(Body::One(&[
        Field::text("ids", "Event ids, message ids, names of memory files, or conversation/NAME")
            .many(),
        Field::text("matching", "Every line that contains these words, anywhere").many(),
        Field::new("dry_run", Form::Yes, "Only report what would be deleted"),
        Field::new("history", Form::Yes, "Also delete from every snapshot; snapshot ids change"),
        Field::text("reason", "The reason; stored with the tombstone"),
    ]))
    .example("/api/forget", Some(r#"{"matching":["the door code is 4711"],"dry_run":true}"#)),
    Route::get(
        READ,
        "/api/quarantine",
        GROUP,
        "Quarantined events: from tools and strangers, not yet confirmed, quoted",
        "Quarantine",
        quarantine,
    )
    .query(&[
        Field::new("origin", ORIGIN, "Only events of this origin"),
        Field::text("session", "Only events from this session"),
        Field::new("since", Form::Day, "Only events recorded on or after this date"),
        Field::new("limit", Form::Number, "Maximum number, newest first"),
    ])
    .example("/api/quarantine?since=-7d", None),
    Route::post(
        WRITE,
        "/api/quarantine/{id}/confirm",
        GROUP,
        "Confirm a quarantined event",
        "Acts",
        confirm_held,
    )
    .body(NOTED)
    .example("/api/quarantine/20260213-1/confirm", Some(r#"{"note":"checked on their site"}"#)),
    Route::post(
        WRITE,
        "/api/quarantine/{id}/drop",
        GROUP,
        "Drop a quarantined event",
        "Acts",
        drop_held,
    )
    .body(NOTED)
    .example("/api/quarantine/20260213-1/drop", Some("{}")),
    Route::get(
        READ,
        "/api/commitments",
        GROUP,
        "Open commitments, oldest first",
        "Commitments",
        commitments,
    ),
    Route::get(
        READ,
        "/api/conflicts",
        GROUP,
        "Contradicting statements, and the commands that resolve them",
        "Conflicts",
        conflicts,
    ),
    Route::get(READ, "/api/why", GROUP, "Trace something back to its source messages", "Why", why)
        .query(
            &[Field::text("of", "An event, a period, a page's path, or a line of a pack").must()],
        )
        .example("/api/why?of=20260213-1", None),
];

fn status(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        memory.notice().await;
        let status = memory.status().await?;
        Answer::of(&told::status(&call.api.spaces.place(call.user.as_deref()), &status))
    })
}

/// The event filter of a request, except for the state.
fn asked_for(asked: &Given, today: Date) -> anyhow::Result<EventQuery> {
    Ok(EventQuery {
        kinds: asked.read_all("type", str::parse::<Kind>)?,
        priorities: asked.read_all("priority", str::parse::<Priority>)?,
        entity: asked.one("entity").map(plain::entity_key),
        tags: asked.all("tag").iter().map(|tag| tag.trim().to_lowercase()).collect(),
        source: asked.text("source"),
        session: asked.text("session"),
        scope: asked.read("scope", str::parse::<Scope>)?,
        since: asked.day("since", today)?,
        until: asked.day("until", today)?,
        text: asked.text("text"),
        ..EventQuery::default()
    })
}

fn events(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let asked = &call.query;
        let query = EventQuery {
            standing: if asked.yes("all") { Wanted::Any } else { Wanted::Active },
            limit: asked.number("limit"),
            quarantined: asked.yes("quarantined").then_some(true),
            ..asked_for(asked, memory.now().day())?
        };
        memory.notice().await;
        Answer::named("events", &memory.events(&query).await?)
    })
}

fn page(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let asked = &call.query;
        let status = asked.read("status", |word| match word {
            "active" => Ok(EventStatus::Active),
            "superseded" => Ok(EventStatus::Is("superseded")),
            "closed" => Ok(EventStatus::Is("closed")),
            "retracted" => Ok(EventStatus::Is("retracted")),
            "quarantined" => Ok(EventStatus::Quarantined),
            "any" => Ok(EventStatus::Any),
            _ => Err("choose active, superseded, closed, retracted, quarantined or any"),
        })?;
        let query = asked_for(asked, memory.now().day())?;
        memory.notice().await;
        let (offset, limit) =
            (asked.number("offset").unwrap_or(0), asked.number("limit").unwrap_or(EVENTS));
        Answer::of(
            &memory
                .ledger_page(query, status.unwrap_or_default(), asked.yes("acts"), offset, limit)
                .await?,
        )
    })
}

fn graph(call: Call) -> Doing {
    Box::pin(async move {
        let (id, most) = (call.id()?, call.query.number("limit").unwrap_or(NODES));
        Answer::of(&call.memory().await?.graph(id, most).await?)
    })
}

fn remember(call: Call) -> Doing {
    Box::pin(async move {
        let said = call.body()?;
        // Parse the body before a space is created: an invalid request must not create one.
        if said.one("text").is_none_or(|text| text.trim().is_empty()) {
            return Err(wrong("nothing to remember: the text is empty"));
        }
        said.day("due", call.api.spaces.of(None).await?.memory().now().day())?;
        let (supersedes, related) = (
            said.read_all("supersedes", EventId::from_hand)?,
            said.read_all("related", EventId::from_hand)?,
        );
        let mut remember = Remember {
            text: said.text("text").unwrap_or_default(),
            kind: said.read("type", str::parse::<Kind>)?,
            priority: said.read("priority", str::parse::<Priority>)?,
            entity: said.text("entity"),
            entity_kind: said.read("entity_kind", str::parse::<EntityKind>)?,
            tags: said.all("tags").to_vec(),
            supersedes,
            related,
            due: None,
            waiting_on: said.text("waiting_on"),
            source: said.text("source"),
            session: said.text("session"),
            scope: said.read("scope", str::parse::<Scope>)?,
            origin: said.read("origin", str::parse::<Origin>)?,
        };
        if let Some(&id) = remember.supersedes.iter().chain(&remember.related).next()
            && !call.has_space().await?
        {
            return Err(icecore_engine::Error::from(Refusal::Unknown(id)).into());
        }
        let memory = call.memory().await?;
        remember.due = said.day("due", memory.now().day())?;
        Answer::of(&memory.remember(remember).await?)
    })
}

fn show(call: Call) -> Doing {
    Box::pin(async move {
        let id = call.id()?;
        Answer::of(&call.memory().await?.show(id).await?)
    })
}

fn close(call: Call) -> Doing {
    act(call, Act::Close)
}

fn confirm(call: Call) -> Doing {
    act(call, Act::Confirm)
}

fn retract(call: Call) -> Doing {
    act(call, Act::Retract)
}

fn act(call: Call, act: Act) -> Doing {
    Box::pin(async move {
        let (id, said) = (call.id()?, call.body()?);
        let origin = said.read("origin", str::parse::<Origin>)?.unwrap_or(Origin::User);
        let acted = call
            .memory()
            .await?
            .act(act, vec![id], said.text("note"), origin, said.text("session"))
            .await?;
        Answer::named("acts", &acted)
    })
}

fn forget(call: Call) -> Doing {
    Box::pin(async move {
        let said = call.body()?;
        let wish = Forget {
            ids: said.all("ids").to_vec(),
            matching: said.all("matching").to_vec(),
            history: said.yes("history"),
            reason: said.text("reason"),
            by: "api".into(),
        };
        if wish.ids.is_empty() && wish.matching.is_empty() {
            return Err(wrong("`ids` or `matching` is missing: what to forget"));
        }
        let memory = call.memory().await?;
        if said.yes("dry_run") {
            return Answer::of(&memory.would_forget(&wish).await?);
        }
        let forgot =
            memory.forget(&wish, call.api.spaces.models().asking().as_ref(), &|_, _, _| {}).await?;
        // Open conversations cache their last turns; reopening reads what is left.
        call.api.spaces.close(call.user.as_deref());
        Answer::of(&forgot)
    })
}

fn quarantine(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        let asked = &call.query;
        let held = Held {
            origin: asked.read("origin", str::parse::<Origin>)?,
            session: asked.text("session"),
            since: asked.day("since", memory.now().day())?,
            limit: asked.number("limit"),
        };
        memory.notice().await;
        Answer::of(&told::quarantined(&memory.quarantine(&held).await?))
    })
}

fn confirm_held(call: Call) -> Doing {
    Box::pin(async move {
        let (id, said) = (call.id()?, call.body()?);
        Answer::named(
            "acts",
            &call.memory().await?.confirm_held(vec![id], said.text("note")).await?,
        )
    })
}

fn drop_held(call: Call) -> Doing {
    Box::pin(async move {
        let (id, said) = (call.id()?, call.body()?);
        Answer::named("acts", &call.memory().await?.drop_held(vec![id], said.text("note")).await?)
    })
}

fn commitments(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        memory.notice().await;
        Answer::named("commitments", &memory.commitments().await?)
    })
}

fn conflicts(call: Call) -> Doing {
    Box::pin(async move {
        let memory = call.memory().await?;
        memory.notice().await;
        Answer::named("conflicts", &told::conflicts(&memory.conflicts().await?))
    })
}

fn why(call: Call) -> Doing {
    Box::pin(async move {
        let what = call.query.text("of").unwrap_or_default();
        Answer::of(&told::why(&what, &call.memory().await?.because(&what).await?))
    })
}
