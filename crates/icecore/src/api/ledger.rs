//! The ledger: reading events and their provenance, and writing events.

use icecore_domain::event::{Act, EntityKind, EventType, Origin, Priority, Scope};
use icecore_domain::id::EventId;
use icecore_domain::ledger::query::{EventQuery, EventStateFilter};
use icecore_domain::ledger::revise::RevisionError;
use icecore_domain::sanitize;
use icecore_engine::{EventStatus, ForgetRequest, QuarantineFilter, RememberRequest};
use jiff::civil::Date;

use super::call::{ApiAnswer, ApiCall, ParsedInput, usage_error};
use super::route::{
    BodySpec, HandlerFuture, InputField, READ, RouteSpec, SCOPE_TYPE, SpaceTarget, ValueType, WRITE,
};
use crate::json_output;

const GROUP: &str = "Ledger";
const EVENT_TYPE_TYPE: ValueType =
    ValueType::Word(|| EventType::ALL.iter().map(|kind| kind.word()).collect());
const PRIORITY_TYPE: ValueType =
    ValueType::Word(|| Priority::ALL.iter().map(|priority| priority.word()).collect());
const ENTITY_KIND_TYPE: ValueType =
    ValueType::Word(|| EntityKind::ALL.iter().map(|kind| kind.word()).collect());
/// The origins of an event.
pub const ORIGIN_TYPE: ValueType =
    ValueType::Word(|| Origin::ALL.iter().map(|origin| origin.word()).collect());

const STATUS_TYPE: ValueType =
    ValueType::Word(|| vec!["active", "superseded", "closed", "retracted", "quarantined", "any"]);
/// The default page size.
const DEFAULT_PAGE_EVENTS: usize = 50;
/// The largest page.
const MAX_PAGE_EVENTS: usize = 1_000;
/// The default number of graph nodes.
const DEFAULT_NODES: usize = 100;
/// The most graph nodes.
const MAX_NODES: usize = 1_000;

const ACT_BODY: BodySpec = BodySpec::One(&[
    InputField::text("note", "The reason"),
    InputField::text("session", "The session it happened in"),
    InputField::new("origin", ORIGIN_TYPE, "The origin of the statement; default user"),
]);

const NOTE_BODY: BodySpec = BodySpec::One(&[InputField::text("note", "The reason")]);

/// The routes of the ledger.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/status",
        GROUP,
        "The status: contents, open commitments, due jobs and problems",
        "Status",
        show_status,
    ),
    RouteSpec::get(READ, "/api/events", GROUP, "List events", "Events", list_events)
        .query(&[
            InputField::text("text", "Only events that contain this text"),
            InputField::new(
                "all",
                ValueType::Yes,
                "Include superseded, closed and retracted events, and the acts that did it",
            ),
            InputField::new("type", EVENT_TYPE_TYPE, "Only events of these types").many(),
            InputField::new("priority", PRIORITY_TYPE, "Only events of these priorities").many(),
            InputField::text("entity", "Only events about this entity"),
            InputField::text("tag", "Only events with this tag; repeated: with all of them").many(),
            InputField::text("session", "Only events from this session"),
            InputField::text("source", "Only events from this source"),
            InputField::new(
                "scope",
                SCOPE_TYPE,
                "Only events with this scope: everywhere, project:NAME, conversation:ID",
            ),
            InputField::new("since", ValueType::Day, "Only events recorded on or after this date"),
            InputField::new("until", ValueType::Day, "Only events recorded on or before this date"),
            InputField::new(
                "quarantined",
                ValueType::Yes,
                "Only quarantined events, which wait for confirmation",
            ),
            InputField::new("limit", ValueType::Number, "Maximum number, newest first"),
        ])
        .example("/api/events?type=commitment&since=-7d", None),
    RouteSpec::post(
        WRITE,
        "/api/events",
        GROUP,
        "Record a fact, decision, commitment, preference, constraint, procedure or relationship",
        "RememberResult",
        remember,
    )
    .space(SpaceTarget::TheirsOrNew)
    .body(BodySpec::One(&[
        InputField::text("text", "The statement to remember").require(),
        InputField::new(
            "type",
            EVENT_TYPE_TYPE,
            "The event type; guessed from the text if omitted",
        ),
        InputField::new(
            "priority",
            PRIORITY_TYPE,
            "P0 permanent, P1 important, P2 for a quarter, P3 for a month",
        ),
        InputField::text("entity", "The entity it is about"),
        InputField::new("entity_kind", ENTITY_KIND_TYPE, "The kind of that entity"),
        InputField::text("tags", "Tags").many(),
        InputField::new("supersedes", ValueType::Id, "The events that this one replaces").many(),
        InputField::new("related", ValueType::Id, "Related events").many(),
        InputField::new("due", ValueType::Day, "The due date"),
        InputField::text("waiting_on", "The person or thing it waits for"),
        InputField::text("source", "The source; default `live`"),
        InputField::text("session", "The session it comes from"),
        InputField::new(
            "scope",
            SCOPE_TYPE,
            "The scope: everywhere, project:NAME, conversation:ID",
        ),
        InputField::new("origin", ORIGIN_TYPE, "The origin of the statement; default user"),
    ]))
    .example("/api/events", Some(r#"{"text":"Send the offer to Client X","due":"friday"}"#)),
    RouteSpec::get(
        READ,
        "/api/ledger",
        GROUP,
        "Events page by page, newest first, with totals by type and status",
        "LedgerPage",
        ledger_page,
    )
    .query(&[
        InputField::new("status", STATUS_TYPE, "Only events in this state; default active"),
        InputField::new("acts", ValueType::Yes, "Include close, confirm and retract acts"),
        InputField::text("text", "Only events that contain this text"),
        InputField::new("type", EVENT_TYPE_TYPE, "Only events of these types").many(),
        InputField::new("priority", PRIORITY_TYPE, "Only events of these priorities").many(),
        InputField::text("entity", "Only events about this entity"),
        InputField::text("tag", "Only events with this tag; repeated: with all of them").many(),
        InputField::text("session", "Only events from this session"),
        InputField::text("source", "Only events from this source"),
        InputField::new(
            "scope",
            SCOPE_TYPE,
            "Only events with this scope: everywhere, project:NAME, conversation:ID",
        ),
        InputField::new("since", ValueType::Day, "Only events recorded on or after this date"),
        InputField::new("until", ValueType::Day, "Only events recorded on or before this date"),
        InputField::new("offset", ValueType::Number, "Number to skip; default 0"),
        InputField::new(
            "limit",
            ValueType::Between(1, MAX_PAGE_EVENTS),
            "Maximum number; default 50",
        ),
    ])
    .example("/api/ledger?type=decision&status=any&offset=50", None),
    RouteSpec::get(
        READ,
        "/api/events/{id}/graph",
        GROUP,
        "An event and its related events, as a graph of nodes and edges",
        "Graph",
        event_graph,
    )
    .query(&[InputField::new(
        "limit",
        ValueType::Between(1, MAX_NODES),
        "Maximum number of nodes, nearest first; default 100",
    )])
    .example("/api/events/20260213-1/graph", None),
    RouteSpec::get(
        READ,
        "/api/events/{id}",
        GROUP,
        "One event with its chain",
        "EventDetails",
        show,
    )
    .example("/api/events/20260213-1", None),
    RouteSpec::post(
        WRITE,
        "/api/events/{id}/close",
        GROUP,
        "Close a commitment",
        "ActResults",
        close,
    )
    .body(ACT_BODY)
    .example("/api/events/20260213-1/close", Some(r#"{"note":"sent"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/events/{id}/confirm",
        GROUP,
        "Confirm that an event is still true",
        "ActResults",
        confirm,
    )
    .body(ACT_BODY)
    .example("/api/events/20260213-1/confirm", Some("{}")),
    RouteSpec::post(
        WRITE,
        "/api/events/{id}/retract",
        GROUP,
        "Retract an event",
        "ActResults",
        retract,
    )
    .body(ACT_BODY)
    .example("/api/events/20260213-1/retract", Some(r#"{"note":"a misunderstanding"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/forget",
        GROUP,
        "Delete something permanently, with everything derived from it; `dry_run` only reports",
        "ForgetReport",
        forget,
    )
    .body(BodySpec::One(&[
        InputField::text(
            "ids",
            "Event ids, message ids, names of memory files, or conversation/NAME",
        )
        .many(),
        InputField::text("matching", "Every line that contains these words, anywhere").many(),
        InputField::new("dry_run", ValueType::Yes, "Only report what would be deleted"),
        InputField::new(
            "history",
            ValueType::Yes,
            "Also delete from every snapshot; snapshot ids change",
        ),
        InputField::text("reason", "The reason; stored with the tombstone"),
    ]))
    .example("/api/forget", Some(r#"{"matching":["the door code is 4711"],"dry_run":true}"#)),
    RouteSpec::get(
        READ,
        "/api/quarantine",
        GROUP,
        "Quarantined events: from tools and strangers, not yet confirmed, quoted",
        "Quarantine",
        list_quarantine,
    )
    .query(&[
        InputField::new("origin", ORIGIN_TYPE, "Only events of this origin"),
        InputField::text("session", "Only events from this session"),
        InputField::new("since", ValueType::Day, "Only events recorded on or after this date"),
        InputField::new("limit", ValueType::Number, "Maximum number, newest first"),
    ])
    .example("/api/quarantine?since=-7d", None),
    RouteSpec::post(
        WRITE,
        "/api/quarantine/{id}/confirm",
        GROUP,
        "Confirm a quarantined event",
        "ActResults",
        confirm_quarantined,
    )
    .body(NOTE_BODY)
    .example("/api/quarantine/20260213-1/confirm", Some(r#"{"note":"checked on their site"}"#)),
    RouteSpec::post(
        WRITE,
        "/api/quarantine/{id}/drop",
        GROUP,
        "Drop a quarantined event",
        "ActResults",
        drop_quarantined,
    )
    .body(NOTE_BODY)
    .example("/api/quarantine/20260213-1/drop", Some("{}")),
    RouteSpec::get(
        READ,
        "/api/commitments",
        GROUP,
        "Open commitments, oldest first",
        "Commitments",
        list_commitments,
    ),
    RouteSpec::get(
        READ,
        "/api/conflicts",
        GROUP,
        "Contradicting statements, and the commands that resolve them",
        "Conflicts",
        list_conflicts,
    ),
    RouteSpec::get(
        READ,
        "/api/why",
        GROUP,
        "Trace something back to its source messages",
        "ProvenanceResult",
        trace_source,
    )
    .query(&[
        InputField::text("of", "An event, a period, a page's path, or a line of a pack").require()
    ])
    .example("/api/why?of=20260213-1", None),
];

fn show_status(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        memory.scan_recent_logs().await;
        let status = memory.load_status().await?;
        ApiAnswer::from_value(&json_output::status(
            &call.api.spaces.location_of(call.user.as_deref()),
            &status,
        ))
    })
}

/// The event filter of a request, except for the state.
fn event_filter(asked: &ParsedInput, today: Date) -> anyhow::Result<EventQuery> {
    Ok(EventQuery {
        kinds: asked.parse_all("type", str::parse::<EventType>)?,
        priorities: asked.parse_all("priority", str::parse::<Priority>)?,
        entity: asked.get("entity").map(sanitize::entity_key),
        tags: asked.get_all("tag").iter().map(|tag| tag.trim().to_lowercase()).collect(),
        source: asked.get_owned("source"),
        session: asked.get_owned("session"),
        scope: asked.parse_field("scope", str::parse::<Scope>)?,
        since: asked.get_date("since", today)?,
        until: asked.get_date("until", today)?,
        text: asked.get_owned("text"),
        ..EventQuery::default()
    })
}

fn list_events(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let asked = &call.query;
        let query = EventQuery {
            state: if asked.is_true("all") {
                EventStateFilter::Any
            } else {
                EventStateFilter::Active
            },
            limit: asked.get_number("limit"),
            quarantined: asked.is_true("quarantined").then_some(true),
            ..event_filter(asked, memory.now().day())?
        };
        memory.scan_recent_logs().await;
        ApiAnswer::with_key("events", &memory.query_events(&query).await?)
    })
}

fn ledger_page(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let asked = &call.query;
        let status = asked.parse_field("status", |word| match word {
            "active" => Ok(EventStatus::Active),
            "superseded" => Ok(EventStatus::Is("superseded")),
            "closed" => Ok(EventStatus::Is("closed")),
            "retracted" => Ok(EventStatus::Is("retracted")),
            "quarantined" => Ok(EventStatus::Quarantined),
            "any" => Ok(EventStatus::Any),
            _ => Err("choose active, superseded, closed, retracted, quarantined or any"),
        })?;
        let query = event_filter(asked, memory.now().day())?;
        memory.scan_recent_logs().await;
        let (offset, limit) = (
            asked.get_number("offset").unwrap_or(0),
            asked.get_number("limit").unwrap_or(DEFAULT_PAGE_EVENTS),
        );
        ApiAnswer::from_value(
            &memory
                .load_ledger_page(
                    query,
                    status.unwrap_or_default(),
                    asked.is_true("acts"),
                    offset,
                    limit,
                )
                .await?,
        )
    })
}

fn event_graph(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (id, most) =
            (call.event_id()?, call.query.get_number("limit").unwrap_or(DEFAULT_NODES));
        ApiAnswer::from_value(&call.open_memory().await?.load_event_graph(id, most).await?)
    })
}

fn remember(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let said = call.body()?;
        // Parse the body before a space is created: an invalid request must not create one.
        if said.get("text").is_none_or(|text| text.trim().is_empty()) {
            return Err(usage_error("nothing to remember: the text is empty"));
        }
        said.get_date("due", call.api.spaces.chats(None).await?.memory().now().day())?;
        let (supersedes, related) = (
            said.parse_all("supersedes", EventId::parse_lenient)?,
            said.parse_all("related", EventId::parse_lenient)?,
        );
        let mut remember = RememberRequest {
            text: said.get_owned("text").unwrap_or_default(),
            kind: said.parse_field("type", str::parse::<EventType>)?,
            priority: said.parse_field("priority", str::parse::<Priority>)?,
            entity: said.get_owned("entity"),
            entity_kind: said.parse_field("entity_kind", str::parse::<EntityKind>)?,
            tags: said.get_all("tags").to_vec(),
            supersedes,
            related,
            due: None,
            waiting_on: said.get_owned("waiting_on"),
            source: said.get_owned("source"),
            session: said.get_owned("session"),
            scope: said.parse_field("scope", str::parse::<Scope>)?,
            origin: said.parse_field("origin", str::parse::<Origin>)?,
        };
        if let Some(&id) = remember.supersedes.iter().chain(&remember.related).next()
            && !call.has_space().await?
        {
            return Err(icecore_engine::Error::from(RevisionError::Unknown(id)).into());
        }
        let memory = call.open_memory().await?;
        remember.due = said.get_date("due", memory.now().day())?;
        ApiAnswer::from_value(&memory.remember(remember).await?)
    })
}

fn show(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let id = call.event_id()?;
        ApiAnswer::from_value(&call.open_memory().await?.load_event_details(id).await?)
    })
}

fn close(call: ApiCall) -> HandlerFuture {
    apply_act(call, Act::Close)
}

fn confirm(call: ApiCall) -> HandlerFuture {
    apply_act(call, Act::Confirm)
}

fn retract(call: ApiCall) -> HandlerFuture {
    apply_act(call, Act::Retract)
}

fn apply_act(call: ApiCall, act: Act) -> HandlerFuture {
    Box::pin(async move {
        let (id, said) = (call.event_id()?, call.body()?);
        let origin = said.parse_field("origin", str::parse::<Origin>)?.unwrap_or(Origin::User);
        let acted = call
            .open_memory()
            .await?
            .append_act(act, vec![id], said.get_owned("note"), origin, said.get_owned("session"))
            .await?;
        ApiAnswer::with_key("acts", &acted)
    })
}

fn forget(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let said = call.body()?;
        let wish = ForgetRequest {
            ids: said.get_all("ids").to_vec(),
            matching: said.get_all("matching").to_vec(),
            history: said.is_true("history"),
            reason: said.get_owned("reason"),
            by: "api".into(),
        };
        if wish.ids.is_empty() && wish.matching.is_empty() {
            return Err(usage_error("`ids` or `matching` is missing: what to forget"));
        }
        let memory = call.open_memory().await?;
        if said.is_true("dry_run") {
            return ApiAnswer::from_value(&memory.preview_forget(&wish).await?);
        }
        let forgot = memory
            .forget(&wish, call.api.spaces.models().model_budget().as_ref(), &|_, _, _| {})
            .await?;
        // Open conversations cache their last turns; reopening reads what is left.
        call.api.spaces.evict(call.user.as_deref());
        ApiAnswer::from_value(&forgot)
    })
}

fn list_quarantine(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let asked = &call.query;
        let held = QuarantineFilter {
            origin: asked.parse_field("origin", str::parse::<Origin>)?,
            session: asked.get_owned("session"),
            since: asked.get_date("since", memory.now().day())?,
            limit: asked.get_number("limit"),
        };
        memory.scan_recent_logs().await;
        ApiAnswer::from_value(&json_output::quarantine(&memory.list_quarantined(&held).await?))
    })
}

fn confirm_quarantined(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (id, said) = (call.event_id()?, call.body()?);
        ApiAnswer::with_key(
            "acts",
            &call
                .open_memory()
                .await?
                .confirm_quarantined(vec![id], said.get_owned("note"))
                .await?,
        )
    })
}

fn drop_quarantined(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let (id, said) = (call.event_id()?, call.body()?);
        ApiAnswer::with_key(
            "acts",
            &call.open_memory().await?.drop_quarantined(vec![id], said.get_owned("note")).await?,
        )
    })
}

fn list_commitments(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        memory.scan_recent_logs().await;
        ApiAnswer::with_key("commitments", &memory.list_open_commitments().await?)
    })
}

fn list_conflicts(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        memory.scan_recent_logs().await;
        ApiAnswer::with_key("conflicts", &json_output::conflicts(&memory.list_conflicts().await?))
    })
}

fn trace_source(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let what = call.query.get_owned("of").unwrap_or_default();
        ApiAnswer::from_value(&json_output::provenance(
            &what,
            &call.open_memory().await?.trace_provenance(&what).await?,
        ))
    })
}
