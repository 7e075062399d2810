//! The MCP server in Codex' `config.toml`, changed without touching anything else.
//!
//! `toml_edit` parses the text and gives spans; a change is a splice of the text, so that line
//! ends, comments and order stay byte for byte. The result is parsed again before it is accepted.

use std::ops::Range;

use toml_edit::{Document, Item, TableLike, Value};

use super::hooks::is_our_program;
use super::json::SettingsSyntaxError;
use super::servers::{SERVER_NAME, VAULT_VARIABLE};
use super::{Invocation, SettingsError};

const SERVERS_TABLE: &str = "mcp_servers";
const BOM: &str = "\u{FEFF}";

fn parse(text: &str) -> Result<Document<&str>, SettingsError> {
    Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let what = error.message().lines().collect::<Vec<_>>().join("; ");
        SettingsError::Malformed(SettingsSyntaxError::at(text, at, what))
    })
}

fn line_end(text: &str) -> &'static str {
    match text.find('\n') {
        Some(at) if text[..at].ends_with('\r') => "\r\n",
        _ => "\n",
    }
}

fn toml_quote(text: &str) -> String {
    Value::from(text).to_string()
}

fn server_tables<'a>(document: &'a Document<&str>) -> Result<Option<&'a Item>, SettingsError> {
    match document.as_table().get(SERVERS_TABLE) {
        Some(item) if item.as_table_like().is_none() => {
            Err(SettingsError::Unlike("`mcp_servers`", "a table"))
        }
        item => Ok(item),
    }
}

fn is_ours(entry: &Item) -> bool {
    let runs_us = entry.get("command").and_then(Item::as_str).is_some_and(is_our_program);
    let args = entry.get("args").and_then(Item::as_array);
    runs_us && args.is_some_and(|args| args.iter().any(|word| word.as_str() == Some("mcp")))
}

/// The vault that our server entry names.
pub fn bound_vault(text: &str) -> Option<String> {
    let document = parse(text.trim_start_matches(BOM)).ok()?;
    let entry = server_tables(&document).ok()??.get(SERVER_NAME).filter(|entry| is_ours(entry))?;
    entry.get("env")?.get(VAULT_VARIABLE)?.as_str().map(str::to_owned)
}

/// Whether our server entry is up to date.
fn is_connected(text: &str, caller: &Invocation) -> bool {
    let Ok(document) = parse(text) else { return false };
    let Some(entry) =
        server_tables(&document).ok().flatten().and_then(|servers| servers.get(SERVER_NAME))
    else {
        return false;
    };
    let args: Option<Vec<&str>> = entry
        .get("args")
        .and_then(Item::as_array)
        .map(|args| args.iter().filter_map(Value::as_str).collect());
    entry.get("command").and_then(Item::as_str) == Some(&caller.command)
        && args.as_deref() == Some(&["mcp"])
        && caller.vault.as_deref().is_none_or(|vault| {
            entry.get("env").and_then(|env| env.get(VAULT_VARIABLE)?.as_str()) == Some(vault)
        })
}

/// The settings with our server entry.
pub fn connect(text: &str, caller: &Invocation) -> Result<String, SettingsError> {
    let bom = if text.starts_with(BOM) { BOM } else { "" };
    let body = &text[bom.len()..];
    let document = parse(body)?;
    if is_connected(body, caller) {
        return Ok(text.to_owned());
    }
    let mut out = body.to_owned();
    match server_tables(&document)?.and_then(|servers| servers.get(SERVER_NAME)) {
        Some(entry) if !is_ours(entry) => return Err(SettingsError::ForeignServer),
        Some(_) => {
            out = with_value(
                &out,
                &[SERVERS_TABLE, SERVER_NAME],
                "command",
                &toml_quote(&caller.command),
            )?;
            out = with_value(&out, &[SERVERS_TABLE, SERVER_NAME], "args", "[\"mcp\"]")?;
            if let Some(vault) = &caller.vault {
                out = with_vault(&out, vault)?;
            }
        }
        None => {
            let vault = caller.vault.as_ref().map(|vault| (VAULT_VARIABLE, toml_quote(vault)));
            let inline = server_tables(&document)?
                .is_some_and(|servers| servers.as_inline_table().is_some());
            if inline {
                let env = vault.map_or(String::new(), |(name, vault)| {
                    format!(", env = {{ {name} = {vault} }}")
                });
                let entry = format!(
                    "{{ command = {}, args = [\"mcp\"]{env} }}",
                    toml_quote(&caller.command)
                );
                out = with_value(&out, &[SERVERS_TABLE], SERVER_NAME, &entry)?;
            } else {
                let end = line_end(body);
                let gap = match (body.is_empty(), body.ends_with('\n')) {
                    (true, _) => String::new(),
                    (false, true) => end.to_owned(),
                    (false, false) => end.repeat(2),
                };
                let env = vault.map_or(String::new(), |(name, vault)| {
                    format!("env = {{ {name} = {vault} }}{end}")
                });
                let command = toml_quote(&caller.command);
                out.push_str(&format!(
                    "{gap}[{SERVERS_TABLE}.{SERVER_NAME}]{end}command = {command}{end}args = [\"mcp\"]{end}{env}"
                ));
            }
        }
    }
    if !is_connected(&out, caller) {
        return Err(SettingsError::Unlike(
            "`mcp_servers.icecore`",
            "a table under a heading of its own",
        ));
    }
    Ok(format!("{bom}{out}"))
}

fn with_vault(text: &str, vault: &str) -> Result<String, SettingsError> {
    let document = parse(text)?;
    let has_env = server_tables(&document)?
        .and_then(|servers| servers.get(SERVER_NAME)?.get("env"))
        .is_some();
    if has_env {
        return with_value(
            text,
            &[SERVERS_TABLE, SERVER_NAME, "env"],
            VAULT_VARIABLE,
            &toml_quote(vault),
        );
    }
    with_value(
        text,
        &[SERVERS_TABLE, SERVER_NAME],
        "env",
        &format!("{{ {VAULT_VARIABLE} = {} }}", toml_quote(vault)),
    )
}

/// Sets a value in the table at `way`: replaces the present one, or appends it.
fn with_value(text: &str, way: &[&str], name: &str, value: &str) -> Result<String, SettingsError> {
    let document = parse(text)?;
    let table = way.iter().try_fold(document.as_item(), |item, name| item.get(name));
    let Some(table) = table else { return Ok(text.to_owned()) };
    let mut out = text.to_owned();
    if let Some(span) = table.get(name).and_then(|item| item.as_value()?.span()) {
        // An equal value in another notation is left unchanged.
        let same = |value: &str| {
            value
                .parse::<Value>()
                .map(|value| value.decorated("", "").to_string())
                .unwrap_or_default()
        };
        if same(&text[span.clone()]) != same(value) {
            out.replace_range(span, value);
        }
        return Ok(out);
    }
    if let Some(inline) = table.as_inline_table() {
        let Some(span) = inline.span() else { return Ok(out) };
        let inner = text[span.start + 1..span.end - 1].trim_end();
        let place = span.start + 1 + inner.len()..span.end - 1;
        let comma = if inner.trim().is_empty() || inner.ends_with(',') { "" } else { "," };
        out.replace_range(place, &format!("{comma} {name} = {value} "));
        return Ok(out);
    }
    let Some(header) = table.as_table().and_then(toml_edit::Table::span) else { return Ok(out) };
    let last = table
        .as_table_like()
        .map_or(header.end, |table| last_value_end(table).unwrap_or(header.end).max(header.end));
    let end = text[last..].find('\n').map_or(text.len(), |at| last + at);
    let end = if text[..end].ends_with('\r') { end - 1 } else { end };
    out.insert_str(end, &format!("{}{name} = {value}", line_end(text)));
    Ok(out)
}

/// The end of the last value under a heading, without tables that have their own heading.
fn last_value_end(table: &dyn TableLike) -> Option<usize> {
    let ends = table.iter().filter_map(|(_, item)| match item {
        Item::Value(value) => value.span().map(|span| span.end),
        Item::Table(inner) if inner.is_dotted() => last_value_end(inner),
        _ => None,
    });
    ends.max()
}

/// Collects the ranges of a table and its subtables: each heading down to its last value.
fn collect_sections(table: &toml_edit::Table, found: &mut Vec<Range<usize>>) {
    if let Some(header) = table.span().filter(|span| !span.is_empty() && !table.is_dotted()) {
        found.push(header.start..last_value_end(table).unwrap_or(header.end).max(header.end));
    }
    for (name, item) in table.iter() {
        match item {
            Item::Table(inner) => collect_sections(inner, found),
            Item::Value(value) if table.is_dotted() => {
                let start = table.key(name).and_then(toml_edit::Key::span).map(|span| span.start);
                found.extend(start.zip(value.span()).map(|(start, span)| start..span.end));
            }
            _ => {}
        }
    }
}

/// The settings without our server entry.
pub fn disconnect(text: &str) -> Result<String, SettingsError> {
    let bom = if text.starts_with(BOM) { BOM } else { "" };
    let body = &text[bom.len()..];
    let document = parse(body)?;
    let Some(servers) = server_tables(&document)? else { return Ok(text.to_owned()) };
    let Some(entry) = servers.get(SERVER_NAME).filter(|entry| is_ours(entry)) else {
        return Ok(text.to_owned());
    };
    let mut out = body.to_owned();
    if let (Some(inline), Some(span)) =
        (servers.as_inline_table(), entry.as_value().and_then(Value::span))
    {
        let start = inline
            .key(SERVER_NAME)
            .and_then(toml_edit::Key::span)
            .map_or(span.start, |key| key.start);
        let before = body[..start].trim_end();
        let range = match (before.ends_with(','), body[span.end..].trim_start().strip_prefix(',')) {
            (true, _) => before.len() - 1..span.end,
            (false, Some(rest)) => start..body.len() - rest.trim_start_matches([' ', '\t']).len(),
            (false, None) => start..span.end,
        };
        out.replace_range(range, "");
    } else {
        let mut lines = Vec::new();
        match entry {
            Item::Table(table) => collect_sections(table, &mut lines),
            // One line in the table of all servers.
            Item::Value(value) => {
                let key = servers.as_table().and_then(|table| table.key(SERVER_NAME)?.span());
                lines.extend(key.zip(value.span()).map(|(key, value)| key.start..value.end));
            }
            _ => {}
        }
        lines.sort_by_key(|range| range.start);
        let headed = matches!(entry, Item::Table(table) if !table.is_dotted());
        for range in lines.into_iter().rev() {
            let start = body[..range.start].rfind('\n').map_or(0, |at| at + 1);
            let end = body[range.end..].find('\n').map_or(body.len(), |at| range.end + at + 1);
            // The empty line before a heading is removed with it.
            let above = &body[..start];
            let start = match above.strip_suffix("\r\n").or_else(|| above.strip_suffix('\n')) {
                Some(rest) if headed && rest.ends_with('\n') => rest.len(),
                _ => start,
            };
            out.replace_range(start..end, "");
        }
    }
    parse(&out)?;
    Ok(format!("{bom}{out}"))
}
