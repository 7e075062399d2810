//! The MCP server entry in JSON settings: how a client starts `icecore mcp`.

use super::hooks::is_our_program;
use super::json::{self, Node, Step, Tree};
use super::{Caller, Refused};

/// The name of the server in every client.
pub const NAME: &str = "icecore";
/// The environment variable that names the vault.
pub const VAULT: &str = "ICECORE_VAULT";

/// How a client configures its servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// The field that holds the servers.
    pub under: &'static str,
    /// Whether each entry has `"type": "stdio"`.
    pub typed: bool,
}

/// The format of most clients.
pub const COMMON: Shape = Shape { under: "mcpServers", typed: false };
/// The format of VS Code.
pub const VS_CODE: Shape = Shape { under: "servers", typed: true };

fn entry(shape: Shape, caller: &Caller) -> Vec<(&'static str, Tree)> {
    let kind = shape.typed.then(|| ("type", Tree::text("stdio")));
    let call = [("command", Tree::text(&caller.command)), ("args", Tree::texts(["mcp"]))];
    let vault =
        caller.vault.as_ref().map(|vault| ("env", Tree::Object(vec![(VAULT, Tree::text(vault))])));
    kind.into_iter().chain(call).chain(vault).collect()
}

/// Settings with our server alone.
pub fn all(shape: Shape, caller: &Caller) -> Tree {
    Tree::Object(vec![(
        shape.under,
        Tree::Object(vec![(NAME, Tree::Object(entry(shape, caller)))]),
    )])
}

fn is_ours(entry: &Node) -> bool {
    let runs_us = entry.get("command").and_then(Node::text).is_some_and(is_our_program);
    runs_us
        && entry
            .get("args")
            .is_some_and(|args| args.items().iter().any(|word| word.text() == Some("mcp")))
}

/// The vault that our server entry names.
pub fn pinned(text: &str, shape: Shape) -> Option<String> {
    let root = json::read(text).ok()??;
    let entry = root.get(shape.under)?.get(NAME).filter(|entry| is_ours(entry))?;
    entry.get("env")?.get(VAULT)?.text().map(str::to_owned)
}

fn checked(root: &Node, shape: Shape) -> Result<(), Refused> {
    if !root.is_object() {
        return Err(Refused::Unlike("the whole of it", "an object"));
    }
    super::once(root, shape.under)?;
    let Some(servers) = root.get(shape.under) else { return Ok(()) };
    if !servers.is_object() {
        return Err(Refused::Unlike(shape.under, "an object"));
    }
    super::once(servers, NAME)?;
    match servers.get(NAME) {
        Some(entry) if !is_ours(entry) => Err(Refused::Taken),
        _ => Ok(()),
    }
}

/// The settings with our server entry.
pub fn connect(text: &str, shape: Shape, caller: &Caller) -> Result<String, Refused> {
    let Some(root) = json::read(text)? else { return Ok(super::begun(text, &all(shape, caller))) };
    checked(&root, shape)?;
    let (under, own) = ([Step::Field(shape.under)], [Step::Field(shape.under), Step::Field(NAME)]);
    let Some(servers) = root.get(shape.under) else {
        let ours = Tree::Object(vec![(NAME, Tree::Object(entry(shape, caller)))]);
        return Ok(json::added(text, &[], Some(shape.under), &ours)?);
    };
    let Some(known) = servers.get(NAME) else {
        return Ok(json::added(text, &under, Some(NAME), &Tree::Object(entry(shape, caller)))?);
    };
    // Other variables of an existing environment stay.
    let (env, mut wanted): (Vec<_>, Vec<_>) =
        entry(shape, caller).into_iter().partition(|(name, _)| *name == "env");
    let has_env = known.get("env").is_some_and(Node::is_object);
    if !has_env {
        wanted.extend(env.clone());
    }
    let mut text = super::with_fields(text, &own, &wanted)?;
    if let (true, Some((_, Tree::Object(variables)))) = (has_env, env.first()) {
        text = super::with_fields(&text, &[own[0], own[1], Step::Field("env")], variables)?;
    }
    Ok(text)
}

/// The settings without our server entry. A container that existed before, as far as known, stays
/// even if it is empty now.
pub fn disconnect(text: &str, shape: Shape, before: Option<&str>) -> Result<String, Refused> {
    let Some(root) = json::read(text)? else { return Ok(text.to_owned()) };
    let Some(servers) = root.get(shape.under) else { return Ok(text.to_owned()) };
    if !servers.get(NAME).is_some_and(is_ours) {
        return Ok(text.to_owned());
    }
    let was_there = before
        .and_then(|before| json::read(before).ok()?)
        .is_some_and(|before| before.get(shape.under).is_some());
    let way = [Step::Field(shape.under), Step::Field(NAME)];
    let alone = servers.members().len() == 1 && !was_there;
    Ok(json::removed(text, if alone { &way[..1] } else { &way })?)
}
