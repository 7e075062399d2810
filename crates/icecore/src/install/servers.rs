//! The MCP server entry in JSON settings: how a client starts `icecore mcp`.

use super::hooks::is_our_program;
use super::json::{self, JsonNode, JsonTree, PathStep};
use super::{Invocation, SettingsError};

/// The name of the server in every client.
pub const SERVER_NAME: &str = "icecore";
/// The environment variable that names the vault.
pub const VAULT_VARIABLE: &str = "ICECORE_VAULT";

/// How a client configures its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerFormat {
    /// The field that holds the servers.
    pub under: &'static str,
    /// Whether each entry has `"type": "stdio"`.
    pub typed: bool,
}

/// The format of most clients.
pub const COMMON_FORMAT: ServerFormat = ServerFormat { under: "mcpServers", typed: false };
/// The format of VS Code.
pub const VS_CODE_FORMAT: ServerFormat = ServerFormat { under: "servers", typed: true };

fn server_entry(shape: ServerFormat, caller: &Invocation) -> Vec<(&'static str, JsonTree)> {
    let kind = shape.typed.then(|| ("type", JsonTree::text("stdio")));
    let call = [("command", JsonTree::text(&caller.command)), ("args", JsonTree::texts(["mcp"]))];
    let vault = caller
        .vault
        .as_ref()
        .map(|vault| ("env", JsonTree::Object(vec![(VAULT_VARIABLE, JsonTree::text(vault))])));
    kind.into_iter().chain(call).chain(vault).collect()
}

/// Settings with our server alone.
pub fn all_servers(shape: ServerFormat, caller: &Invocation) -> JsonTree {
    JsonTree::Object(vec![(
        shape.under,
        JsonTree::Object(vec![(SERVER_NAME, JsonTree::Object(server_entry(shape, caller)))]),
    )])
}

fn is_ours(entry: &JsonNode) -> bool {
    let runs_us = entry.get("command").and_then(JsonNode::text).is_some_and(is_our_program);
    runs_us
        && entry
            .get("args")
            .is_some_and(|args| args.items().iter().any(|word| word.text() == Some("mcp")))
}

/// The vault that our server entry names.
pub fn bound_vault(text: &str, shape: ServerFormat) -> Option<String> {
    let root = json::parse(text).ok()??;
    let entry = root.get(shape.under)?.get(SERVER_NAME).filter(|entry| is_ours(entry))?;
    entry.get("env")?.get(VAULT_VARIABLE)?.text().map(str::to_owned)
}

fn check_servers(root: &JsonNode, shape: ServerFormat) -> Result<(), SettingsError> {
    if !root.is_object() {
        return Err(SettingsError::Unlike("the content", "an object"));
    }
    super::require_unique(root, shape.under)?;
    let Some(servers) = root.get(shape.under) else { return Ok(()) };
    if !servers.is_object() {
        return Err(SettingsError::Unlike(shape.under, "an object"));
    }
    super::require_unique(servers, SERVER_NAME)?;
    match servers.get(SERVER_NAME) {
        Some(entry) if !is_ours(entry) => Err(SettingsError::ForeignServer),
        _ => Ok(()),
    }
}

/// The settings with our server entry.
pub fn connect(
    text: &str,
    shape: ServerFormat,
    caller: &Invocation,
) -> Result<String, SettingsError> {
    let Some(root) = json::parse(text)? else {
        return Ok(super::with_root_value(text, &all_servers(shape, caller)));
    };
    check_servers(&root, shape)?;
    let (under, own) = (
        [PathStep::Field(shape.under)],
        [PathStep::Field(shape.under), PathStep::Field(SERVER_NAME)],
    );
    let Some(servers) = root.get(shape.under) else {
        let ours =
            JsonTree::Object(vec![(SERVER_NAME, JsonTree::Object(server_entry(shape, caller)))]);
        return Ok(json::insert_value(text, &[], Some(shape.under), &ours)?);
    };
    let Some(known) = servers.get(SERVER_NAME) else {
        return Ok(json::insert_value(
            text,
            &under,
            Some(SERVER_NAME),
            &JsonTree::Object(server_entry(shape, caller)),
        )?);
    };
    // Other variables of an existing environment stay.
    let (env, mut wanted): (Vec<_>, Vec<_>) =
        server_entry(shape, caller).into_iter().partition(|(name, _)| *name == "env");
    let has_env = known.get("env").is_some_and(JsonNode::is_object);
    if !has_env {
        wanted.extend(env.clone());
    }
    let mut text = super::with_fields(text, &own, &wanted)?;
    if let (true, Some((_, JsonTree::Object(variables)))) = (has_env, env.first()) {
        text = super::with_fields(&text, &[own[0], own[1], PathStep::Field("env")], variables)?;
    }
    Ok(text)
}

/// The settings without our server entry. A container that existed before, as far as known, stays
/// even if it is empty now.
pub fn disconnect(
    text: &str,
    shape: ServerFormat,
    before: Option<&str>,
) -> Result<String, SettingsError> {
    let Some(root) = json::parse(text)? else { return Ok(text.to_owned()) };
    let Some(servers) = root.get(shape.under) else { return Ok(text.to_owned()) };
    if !servers.get(SERVER_NAME).is_some_and(is_ours) {
        return Ok(text.to_owned());
    }
    let was_there = before
        .and_then(|before| json::parse(before).ok()?)
        .is_some_and(|before| before.get(shape.under).is_some());
    let way = [PathStep::Field(shape.under), PathStep::Field(SERVER_NAME)];
    let alone = servers.members().len() == 1 && !was_there;
    Ok(json::remove_value(text, if alone { &way[..1] } else { &way })?)
}
