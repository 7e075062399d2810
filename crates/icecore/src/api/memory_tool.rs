//! Anthropic's memory tool, for programs that run a model's tools.

use serde_json::json;

use super::call::{Answer, Call};
use super::route::{Body, Doing, Field, Form, READ, Route, WRITE, Whose};

const GROUP: &str = "Memory tool";

/// The routes of the memory tool.
pub const ROUTES: &[Route] = &[
    Route::post(
        WRITE,
        "/api/memory-tool",
        GROUP,
        "Execute a call of Anthropic's memory tool (memory_20250818); the body is the tool's input, unchanged",
        "ToolAnswer",
        memory_tool,
    )
    .of(Whose::TheirsOrNew)
    .body(Body::Open(&[
        Field::text("command", "view, create, str_replace, insert, delete or rename"),
        Field::text("path", "The file or folder: /memories or something below it"),
        Field::new("view_range", Form::Json, "The first and the last line to view; -1 is the end"),
        Field::text("file_text", "The content of a new file"),
        Field::text("old_str", "The text to replace; it must occur exactly once"),
        Field::text("new_str", "The replacement; empty if omitted"),
        Field::new("insert_line", Form::Json, "The line to insert after; 0 is the beginning"),
        Field::text("insert_text", "The text to insert"),
        Field::text("old_path", "The path to rename"),
        Field::text("new_path", "The new path"),
    ]))
    .example("/api/memory-tool", Some(r#"{"command":"view","path":"/memories"}"#)),
    Route::get(READ, "/api/memory-tool/versions", GROUP, "Earlier versions of a file of the memory tool, oldest first", "ToolVersions", versions)
        .query(&[Field::text("path", "The file, such as /memories/plan.md").must()])
        .example("/api/memory-tool/versions?path=/memories/plan.md", None),
];

fn memory_tool(call: Call) -> Doing {
    Box::pin(async move { Answer::of(&call.memory().await?.memory_tool(&call.raw).await?) })
}

fn versions(call: Call) -> Doing {
    Box::pin(async move {
        let path = call.query.text("path").unwrap_or_default();
        let all = call.memory().await?.memory_tool_versions(&path).await?;
        Answer::of(&json!({ "path": path, "versions": all }))
    })
}
