//! Anthropic's memory tool, for whoever runs a model's tools.

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
        "Do what a model asks by Anthropic's memory tool (memory_20250818); the body is the tool's input as it came",
        "ToolAnswer",
        memory_tool,
    )
    .of(Whose::TheirsOrNew)
    .body(Body::Open(&[
        Field::text("command", "view, create, str_replace, insert, delete or rename"),
        Field::text("path", "The file or folder: /memories or something below it"),
        Field::new("view_range", Form::Json, "The first and the last line to be seen; -1 is the end"),
        Field::text("file_text", "What a new file has in it"),
        Field::text("old_str", "What is to be replaced; it must be there once"),
        Field::text("new_str", "What stands there then; nothing if not given"),
        Field::new("insert_line", Form::Json, "After which line; 0 is the beginning"),
        Field::text("insert_text", "What is put in there"),
        Field::text("old_path", "What is to get another name"),
        Field::text("new_path", "The other name"),
    ]))
    .example("/api/memory-tool", Some(r#"{"command":"view","path":"/memories"}"#)),
    Route::get(READ, "/api/memory-tool/versions", GROUP, "What a file of the memory tool once was, oldest first", "ToolVersions", versions)
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
