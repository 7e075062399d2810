//! Recall: packs, transcripts of a time, summaries, search.

use icecore_domain::budget;
use icecore_domain::calendar::Moment;
use icecore_domain::event::Scope;
use icecore_domain::packs::Pack;
use icecore_domain::rank::highlight;
use icecore_domain::rank::passage::PassageKind;
use icecore_domain::rank::terms::Analyzer;
use icecore_domain::summary::{SummaryQuery, Tier};
use icecore_engine::config::{MAX_PYRAMID_TOKENS, MIN_PYRAMID_TOKENS};
use icecore_engine::converse::{ChatMessage, ChatRequest, ClientHistory};
use icecore_engine::embed::Embedder;
use icecore_engine::{PackPreamble, SearchRequest, SessionKind};

use serde_json::json;

use super::call::{ApiAnswer, ApiCall, MAX_NUMBER, usage_error};
use super::route::{HandlerFuture, InputField, READ, RouteSpec, SCOPE_TYPE, ValueType};
use crate::error::{AppError, Exit};
use crate::json_output;

const GROUP: &str = "Packs and search";
const SESSION_KIND_TYPE: ValueType = ValueType::Word(|| vec!["main", "side"]);
const TIER_TYPE: ValueType = ValueType::Word(|| Tier::ALL.iter().map(|tier| tier.word()).collect());
const PASSAGE_KIND_TYPE: ValueType =
    ValueType::Word(|| PassageKind::ALL.iter().map(|kind| kind.word()).collect());
const DATE_FIELD: InputField =
    InputField::new("date", ValueType::When, "As of this date; default today");

/// The smallest useful pack budget.
const MIN_PACK_BUDGET_BYTES: usize = 512;
/// The default size of a session start pack, in characters.
const DEFAULT_SESSION_START_CHARS: usize = 9_000;
/// The most hits of one search.
const MAX_HITS: usize = 1_000;
/// The default number of hits.
const DEFAULT_HITS: usize = 10;
/// The size of a marked excerpt, in bytes.
const MARKED_EXCERPT_BYTES: usize = 400;
/// The most summaries.
const MAX_SUMMARIES: usize = 1_000;
/// The default number of summaries.
const DEFAULT_SUMMARIES: usize = 100;

/// The routes of packs and search.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::get(
        READ,
        "/api/packs/recall",
        GROUP,
        "The recall pack: what a session needs to know, in eight sections",
        "Pack",
        recall_pack,
    )
    .query(&[
        DATE_FIELD,
        InputField::new(
            "scope",
            SCOPE_TYPE,
            "Also include what applies in this scope: project:NAME, conversation:ID",
        )
        .many(),
    ])
    .example("/api/packs/recall?date=yesterday", None),
    RouteSpec::get(
        READ,
        "/api/packs/upload",
        GROUP,
        "The upload pack: the latest month, this week, today's sessions",
        "Pack",
        upload_pack,
    )
    .query(&[
        DATE_FIELD,
        InputField::new(
            "budget",
            ValueType::Between(MIN_PACK_BUDGET_BYTES, MAX_NUMBER),
            "Maximum size in bytes",
        ),
    ])
    .example("/api/packs/upload?budget=20000", None),
    RouteSpec::get(
        READ,
        "/api/packs/pyramid",
        GROUP,
        "The pyramid pack: yesterday and today in full, then days, weeks, months, years",
        "Pack",
        pyramid_pack,
    )
    .query(&[
        DATE_FIELD,
        InputField::new(
            "budget",
            ValueType::Between(MIN_PYRAMID_TOKENS, MAX_PYRAMID_TOKENS),
            "Maximum size in tokens",
        ),
    ])
    .example("/api/packs/pyramid?budget=8000", None),
    RouteSpec::get(
        READ,
        "/api/packs/session-start",
        GROUP,
        "The session start pack: recall pack, saved state, last logs",
        "Pack",
        session_start_pack,
    )
    .query(&[
        DATE_FIELD,
        InputField::new(
            "kind",
            SESSION_KIND_TYPE,
            "The kind of session; a side session gets no MEMORY.md",
        ),
        InputField::new(
            "budget",
            ValueType::Between(MIN_PACK_BUDGET_BYTES, MAX_NUMBER),
            "Maximum size in characters; default 9000",
        ),
    ])
    .example("/api/packs/session-start?kind=side", None),
    RouteSpec::get(
        READ,
        "/api/packs/delta",
        GROUP,
        "The text injected into one prompt: the oldest commitments and the pages it triggers",
        "Pack",
        delta_pack,
    )
    .query(&[
        InputField::text("prompt", "The prompt").require(),
        DATE_FIELD,
        InputField::new(
            "budget",
            ValueType::Between(MIN_PACK_BUDGET_BYTES, MAX_NUMBER),
            "Maximum size in characters",
        ),
    ])
    .example("/api/packs/delta?prompt=how%20is%20the%20store%20doing", None),
    RouteSpec::get(
        READ,
        "/api/packs/chat",
        GROUP,
        "The memory given to a chat model before the next turn of a conversation",
        "Pack",
        chat_pack,
    )
    .query(&[
        InputField::text("conversation", "The conversation").require(),
        InputField::text("prompt", "The user's next message"),
    ])
    .example("/api/packs/chat?conversation=trip", None),
    RouteSpec::get(
        READ,
        "/api/zoom",
        GROUP,
        "The messages of a time range, or its summaries",
        "Zoom",
        read_time_range,
    )
    .query(&[
        InputField::new(
            "when",
            ValueType::When,
            "The time: yesterday, 2026-02-13, 2026-W07, feb 2026, last month",
        )
        .require(),
        InputField::text("conversation", "Only from this conversation"),
        InputField::new("summary", ValueType::Yes, "Return summaries instead of messages"),
    ])
    .example("/api/zoom?when=yesterday&summary=true", None),
    RouteSpec::get(
        READ,
        "/api/summaries",
        GROUP,
        "The summaries of sessions, days, weeks, months and years",
        "Summaries",
        list_summaries,
    )
    .query(&[
        InputField::new("tier", TIER_TYPE, "Only these tiers").many(),
        InputField::new("when", ValueType::When, "Only from this time"),
        InputField::new(
            "limit",
            ValueType::Between(0, MAX_SUMMARIES),
            "Maximum number, latest first; default 100",
        ),
    ])
    .example("/api/summaries?tier=week&when=this%20year", None),
    RouteSpec::get(
        READ,
        "/api/search",
        GROUP,
        "Search all messages, events, summaries, pages and logs",
        "SearchResults",
        search,
    )
    .query(&[
        InputField::text(
            "q",
            "The question, or a few key words; \"in quotes\" for the exact words",
        )
        .require(),
        InputField::new("when", ValueType::When, "Only from this time"),
        InputField::new(
            "before",
            ValueType::When,
            "Only what is older than this date or timestamp",
        ),
        InputField::new("kind", PASSAGE_KIND_TYPE, "Only these kinds").many(),
        InputField::text("conversation", "Only from this conversation"),
        InputField::new(
            "limit",
            ValueType::Between(1, MAX_HITS),
            "Maximum number of hits; default 10",
        ),
        InputField::new(
            "context",
            ValueType::Number,
            "Number of passages before and after each hit",
        ),
        InputField::new(
            "mark",
            ValueType::Yes,
            "Return the matching words of each hit as `marked`",
        ),
        InputField::new("explain", ValueType::Yes, "Explain the rank of each hit"),
        InputField::new(
            "rerank",
            ValueType::Yes,
            "Rerank the best candidates by embeddings, even if that takes a moment",
        ),
        InputField::new("words", ValueType::Yes, "Keyword search only"),
    ])
    .example("/api/search?q=which%20port%20do%20we%20use&limit=5", None),
];

fn recall_pack(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let date = call.query.get_single_day("date", memory.now().day())?;
        let scopes = call.query.parse_all("scope", str::parse::<Scope>)?;
        memory.scan_recent_logs().await;
        ApiAnswer::from_value(&memory.build_recall_pack(date, &scopes).await?)
    })
}

fn upload_pack(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let (date, most) = (
            call.query.get_single_day("date", memory.now().day())?,
            memory.policy().budget.upload_bytes,
        );
        let budget = call.query.get_number("budget");
        if budget.is_some_and(|budget| budget > most) {
            return Err(usage_error(format!(
                "`budget`: choose at most {most} bytes, the configured size"
            )));
        }
        ApiAnswer::from_value(&memory.assemble_upload(date, budget).await?)
    })
}

fn pyramid_pack(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let date = call.query.get_single_day("date", memory.now().day())?;
        ApiAnswer::from_value(
            &memory
                .assemble_pyramid(date, call.query.get_number("budget"), &PackPreamble::default())
                .await?,
        )
    })
}

fn session_start_pack(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let kind = call.query.parse_field("kind", |text| match text {
            "main" => Ok(SessionKind::Main),
            "side" => Ok(SessionKind::Side),
            _ => Err("choose main or side"),
        })?;
        let budget = call.query.get_number("budget").unwrap_or(DEFAULT_SESSION_START_CHARS);
        let memory = call.open_memory().await?;
        let date = call.query.get_single_day("date", memory.now().day())?;
        ApiAnswer::from_value(
            &memory.build_session_start(kind.unwrap_or(SessionKind::Main), budget, date).await?,
        )
    })
}

fn delta_pack(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let budget = call.query.get_number("budget");
        let prompt = call.query.get_owned("prompt").unwrap_or_default();
        let memory = call.open_memory().await?;
        let date = call.query.get_single_day("date", memory.now().day())?;
        ApiAnswer::from_value(&memory.build_prompt_pack(&prompt, budget, date).await?)
    })
}

fn chat_pack(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let chats = call.open_chats().await?;
        let asked = |text: &str| ChatMessage {
            role: "user".into(),
            name: None,
            text: text.to_owned(),
            raw: String::new(),
            has_tools: false,
        };
        let messages = call.query.get("prompt").map(asked).into_iter().collect();
        let conversation = call.query.get_owned("conversation");
        let begun = chats
            .prepare_turn(ChatRequest {
                conversation,
                history: ClientHistory::Newest,
                messages,
                ..ChatRequest::default()
            })
            .await?;
        let text = begun.memory.unwrap_or_default();
        ApiAnswer::from_value(&Pack {
            kind: "chat",
            date: chats.memory().now().day(),
            bytes: text.len(),
            words: budget::count_words(&text),
            tokens: budget::estimate_tokens(&text),
            sections: Vec::new(),
            left_out: begun.left_out,
            sources: begun.injected,
            text,
        })
    })
}

fn read_time_range(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let Some(when) = call.query.get_time("when", memory.now().day())? else {
            return Err(usage_error("`when` is missing"));
        };
        let summary = call.query.is_true("summary");
        let zoomed =
            memory.load_time_contents(when, call.query.get("conversation"), summary).await?;
        let nothing = match (summary, zoomed.summaries.is_empty(), zoomed.records.is_empty()) {
            (true, true, _) => {
                Some("nothing of it is summarized yet; omit `summary` to get the messages")
            }
            (false, _, true) => Some("there are no messages then"),
            _ => None,
        };
        match nothing {
            Some(why) => Err(AppError::new(Exit::NotFound, format!("{when}: {why}")).into()),
            None => ApiAnswer::from_value(&json_output::zoom(&zoomed, summary)),
        }
    })
}

fn list_summaries(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let limit = call.query.get_number("limit").unwrap_or(DEFAULT_SUMMARIES);
        let query = SummaryQuery {
            tiers: call.query.parse_all("tier", str::parse::<Tier>)?,
            days: call.query.get_time("when", memory.now().day())?.map(|when| when.days()),
            until: None,
            latest: Some(limit),
        };
        ApiAnswer::with_key(
            "summaries",
            &json_output::summaries(&memory.store().summaries(&query).await?),
        )
    })
}

fn search(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let memory = call.open_memory().await?;
        let (asked, now) = (&call.query, memory.now());
        let limit = asked.get_number("limit").unwrap_or(DEFAULT_HITS);
        let before = match asked.get("before").and_then(Moment::parse) {
            Some(read) => Some(read.moment.timestamp()),
            None => asked
                .get_time("before", now.day())?
                .map(|when| memory.start_of_day(when.days().first)),
        };
        let looking = SearchRequest {
            text: asked.get_owned("q").unwrap_or_default(),
            limit,
            when: asked.get_time("when", now.day())?.map(|when| when.days()),
            before,
            now: None,
            kinds: asked.parse_all("kind", str::parse::<PassageKind>)?,
            conversation: asked.get_owned("conversation"),
            context: asked.get_number("context").unwrap_or(0),
            rerank: asked.is_true("rerank"),
        };
        let embed = if asked.is_true("words") {
            None
        } else {
            call.api.embedder().map(|model| model as &dyn Embedder)
        };
        let finder = memory.open_searcher(embed, &|_, _| {}).await?;
        let answer = finder.search(&looking).await?;
        if answer.question.is_empty() {
            return Err(usage_error(
                "`q` contains no searchable word; ask a question or give a few key words",
            ));
        }
        let mut told = json_output::search_results(&answer, asked.is_true("explain"));
        if asked.is_true("mark") {
            let reader = Analyzer::default();
            for (hit, told) in
                answer.hits.iter().zip(told["hits"].as_array_mut().into_iter().flatten())
            {
                told["marked"] = json!(highlight::highlight(
                    &hit.placed.passage.text,
                    &answer.question,
                    &reader,
                    MARKED_EXCERPT_BYTES
                ));
            }
        }
        ApiAnswer::from_value(&told)
    })
}
