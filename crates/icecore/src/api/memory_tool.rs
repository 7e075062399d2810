//! Anthropic's memory tool, for programs that run a model's tools.

use serde_json::json;

use super::call::{ApiAnswer, ApiCall};
use super::route::{
    BodySpec, HandlerFuture, InputField, READ, RouteSpec, SpaceTarget, ValueType, WRITE,
};

const GROUP: &str = "Memory tool";
const TOOL_PATH_TYPE: ValueType = ValueType::Shaped("^/memories(?:/.*)?$");

/// The routes of the memory tool.
pub const ROUTES: &[RouteSpec] = &[
    RouteSpec::post(
        WRITE,
        "/api/memory-tool",
        GROUP,
        "Execute a call of Anthropic's memory tool (memory_20250818); the body is the tool's input, unchanged",
        "MemoryToolResult",
        memory_tool,
    )
    .space(SpaceTarget::TheirsOrNew)
    .body(BodySpec::Open(&[
        InputField::text("command", "view, create, str_replace, insert, delete or rename"),
        InputField::text("path", "The file or folder: /memories or something below it"),
        InputField::new("view_range", ValueType::Json, "The first and the last line to view; -1 is the end"),
        InputField::text("file_text", "The content of a new file"),
        InputField::text("old_str", "The text to replace; it must occur exactly once"),
        InputField::text("new_str", "The replacement; empty if omitted"),
        InputField::new("insert_line", ValueType::Json, "The line to insert after; 0 is the beginning"),
        InputField::text("insert_text", "The text to insert"),
        InputField::text("old_path", "The path to rename"),
        InputField::text("new_path", "The new path"),
    ]))
    .example("/api/memory-tool", Some(r#"{"command":"view","path":"/memories"}"#)),
    RouteSpec::get(READ, "/api/memory-tool/versions", GROUP, "Earlier versions of a file of the memory tool, oldest first", "ToolVersions", list_versions)
        .query(&[InputField::new("path", TOOL_PATH_TYPE, "The file, such as /memories/plan.md")
            .require()])
        .example("/api/memory-tool/versions?path=/memories/plan.md", None),
];

fn memory_tool(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        ApiAnswer::from_value(&call.open_memory().await?.run_memory_tool(&call.raw).await?)
    })
}

fn list_versions(call: ApiCall) -> HandlerFuture {
    Box::pin(async move {
        let path = call.query.get_owned("path").unwrap_or_default();
        let all = call.open_memory().await?.list_memory_tool_versions(&path).await?;
        ApiAnswer::from_value(&json!({ "path": path, "versions": all }))
    })
}
