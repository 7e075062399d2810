//! Jobs: when they run, running them, and what they made.

use icecore_engine::EMBED_IN_A_NIGHT;

use super::call::{Answer, Call, wrong};
use super::route::{Body, Doing, Field, Form, Route};
use crate::told;

const GROUP: &str = "Jobs";
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
