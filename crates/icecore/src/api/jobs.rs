//! Jobs: when they run, running them, and what they made.

use icecore_domain::summary::{Importance, Period};
use icecore_engine::{EMBED_IN_A_NIGHT, Settle};
use serde_json::json;

use super::call::{Answer, Call, wrong};
use super::route::{Body, Doing, Field, Form, Route};
use crate::told;

const GROUP: &str = "Jobs";
const SETTLE: Form = Form::Word(|| vec!["accept", "edit", "retry"]);
const MARK: Form = Form::Word(|| vec!["important", "dull", "none"]);
const JOB: Form = Form::Word(|| vec!["rollup", "consolidate"]);
/// Runs of one answer, if nobody says how many.
const RUNS: usize = 20;
/// The most runs of one answer.
const MOST_RUNS: usize = 10_000;

/// The routes of jobs.
pub const ROUTES: &[Route] = &[
    Route::get("/api/jobs", GROUP, "When each job runs and what is due", "Jobs", jobs),
    Route::post("/api/jobs/run", GROUP, "Press what is due, or consolidate; the answer comes when it is done", "Ran", run)
        .body(Body::One(&[Field::new("job", JOB, "rollup: press what is due; consolidate: do a night's work now").must()]))
        .example("/api/jobs/run", Some(r#"{"job":"rollup"}"#)),
    Route::get("/api/runs", GROUP, "What was pressed, with its cost", "Runs", runs)
        .query(&[Field::new("limit", Form::Number, "How many; 20 if not given")])
        .example("/api/runs?limit=5", None),
    Route::get("/api/reviews", GROUP, "Drafts of summaries that were refused and wait for a person", "Reviews", reviews),
    Route::post("/api/reviews/{period}", GROUP, "Settle a refused draft: let it stand, write another, or ask again", "Settled", settle)
        .body(Body::One(&[
            Field::new("settle", SETTLE, "accept: let it stand; edit: put `text` in its place; retry: ask the model again").must(),
            Field::text("text", "A few sentences, a blank line, the rest"),
        ]))
        .example("/api/reviews/2026-W07", Some(r#"{"settle":"retry"}"#)),
    Route::post("/api/marks", GROUP, "Mark a day as important or dull, so that it is pressed accordingly", "Marked", mark)
        .body(Body::One(&[Field::new("date", Form::When, "The day").must(), Field::new("mark", MARK, "none takes a mark back").must()]))
        .example("/api/marks", Some(r#"{"date":"yesterday","mark":"important"}"#)),
    Route::post("/api/verify", GROUP, "Check everything: ids, references, the index, what was verified before", "Verdict", verify)
        .body(Body::One(&[]))
        .example("/api/verify", Some("{}")),
];

fn jobs(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&told::jobs(&told::plan(call.memory().await?.as_ref()).await?)) })
}

fn run(call: Call) -> Doing {
    Box::pin(async move {
        let job = call.body()?.text("job").unwrap_or_default();
        let models = call.api.spaces.models();
        let (asking, watch) = (models.asking(), |_: &str, _: usize, _: usize| {});
        let ran = match job.as_str() {
            "rollup" => call.memory().await?.run_due(asking.as_ref(), &watch).await?,
            "consolidate" => call.memory().await?.consolidate(asking.as_ref(), &watch).await?,
            _ => return Err(wrong("`job`: choose rollup or consolidate")),
        };
        // The work is done; that this fails must not make it look undone.
        if let Some(model) = call.api.embedder()
            && let Err(error) = call.memory().await?.embed_passages(model, EMBED_IN_A_NIGHT, &|_, _| {}).await
        {
            (call.api.log)(&format!("new words could not be compared by meaning: {error}"));
        }
        Answer::of(&ran)
    })
}

fn runs(call: Call) -> Doing {
    Box::pin(async move {
        let limit = call.query.number("limit").unwrap_or(RUNS);
        if limit > MOST_RUNS {
            return Err(wrong(format!("`limit`: choose at most {MOST_RUNS}")));
        }
        let ceiling = call.api.spaces.models().settings.spend.tokens_per_day;
        Answer::of(&told::runs(call.memory().await?.as_ref(), limit, ceiling).await?)
    })
}

fn reviews(call: Call) -> Doing {
    Box::pin(async move { Answer::named("reviews", &call.memory().await?.reviews().await?) })
}

fn settle(call: Call) -> Doing {
    Box::pin(async move {
        let (period, said) = (call.path("period").parse::<Period>().map_err(|error| wrong(error.to_string()))?, call.body()?);
        let settle = match (said.one("settle"), said.text("text")) {
            (Some("accept"), None) => Settle::Accept,
            (Some("retry"), None) => Settle::Retry,
            (Some("edit"), Some(text)) => Settle::Edit(text),
            (Some("edit"), None) => return Err(wrong("`text` is missing: what is to stand instead")),
            (Some("accept" | "retry"), Some(_)) => return Err(wrong("`text` goes with `edit` alone; leave it out")),
            _ => return Err(wrong("`settle`: choose accept, edit or retry")),
        };
        let kept = call.memory().await?.settle_review(period, settle).await?;
        Answer::of(&json!({ "period": period, "version": kept.map(|summary| summary.version) }))
    })
}

fn mark(call: Call) -> Doing {
    Box::pin(async move {
        let (memory, said) = (call.memory().await?, call.body()?);
        let importance = said.read("mark", |text| match text {
            "none" => Ok(None),
            "important" => Ok(Some(Importance::Important)),
            "dull" => Ok(Some(Importance::Dull)),
            _ => Err("choose important, dull or none"),
        })?;
        let (Some(day), Some(importance)) = (said.one_day("date", memory.now().day())?, importance) else {
            return Err(wrong("`date` and `mark` are needed"));
        };
        memory.mark(day, importance).await?;
        Answer::of(&json!({ "days": [day.to_string()], "mark": importance.map_or("none", Importance::word) }))
    })
}

fn verify(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&told::verdict(&call.memory().await?.verify().await?)) })
}
