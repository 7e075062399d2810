//! `db token`, `db space` and `db audit`: permissions, quotas and the audit log of a store in a
//! database. Every change is recorded in the audit log.

use anyhow::Result;
use axum::http::StatusCode;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use icecore_engine::clock::{Clock as _, SystemClock};
use icecore_store::Error as StoreError;
use icecore_store::postgres::{AuditEvent, QuotaLimit};
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::GlobalArgs;
use super::output::Output;
use crate::access::{self, Actor, DatabaseStore, IssuedToken, TokenRequest};
use crate::api::access as told;
use crate::api::call::{no_such_user, parse_user_name};
use crate::bootstrap;
use crate::error::{AppError, Exit, http_status_of};
use crate::permissions::Permission;
use crate::store_location::StoreLocation;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Add a token; its secret is printed only once
    #[command(
        after_help = "Examples:\n  icecore db token add --user ann --scope read,write --expires 90d --label \"her phone\"\n  icecore db token add --user ann --scope proxy      # for chats only\n  icecore db token add --scope admin                 # for the whole store\n\nScopes: read reads memory, write changes it, proxy talks to the model, admin does everything."
    )]
    Add(AddTokenArgs),
    /// List tokens, without their secrets
    #[command(
        after_help = "Examples:\n  icecore db token list\n  icecore db token list --user ann --json"
    )]
    List(ListTokensArgs),
    /// Replace a token by a new one; the old one stays valid for a while
    #[command(
        after_help = "Examples:\n  icecore db token rotate 00c0ffee00c0ffee\n  icecore db token rotate 00c0ffee00c0ffee --grace 0    # the old one expires at once"
    )]
    Rotate(RotateTokenArgs),
    /// Revoke a token; every server refuses it within five seconds
    #[command(after_help = "Example:\n  icecore db token revoke 00c0ffee00c0ffee")]
    Revoke(RevokeTokenArgs),
}

#[derive(Debug, Args)]
pub struct AddTokenArgs {
    /// The end user whose space it is bound to; without it, the whole store
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// What it may do: read, write, proxy, admin; several with commas
    #[arg(long, value_name = "SCOPES", required = true, value_delimiter = ',', value_parser = parse_right)]
    scope: Vec<Permission>,
    /// How long it is valid, such as 90d or 12h; without it, until it is revoked
    #[arg(long, value_name = "TIME", value_parser = access::parse_duration)]
    expires: Option<SignedDuration>,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
}

#[derive(Debug, Args)]
pub struct ListTokensArgs {
    /// Only tokens bound to this end user's space
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// At most this many, the newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = told::DEFAULT_LIST_LEN)]
    limit: usize,
}

#[derive(Debug, Args)]
pub struct RotateTokenArgs {
    /// The token
    #[arg(value_name = "ID")]
    id: String,
    /// How long the old token stays valid; 0 ends it at once
    #[arg(long, value_name = "TIME", default_value = told::DEFAULT_GRACE, value_parser = access::parse_duration)]
    grace: SignedDuration,
}

#[derive(Debug, Args)]
pub struct RevokeTokenArgs {
    /// The token
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Debug, Subcommand)]
pub enum SpaceCommand {
    /// List the end users who have a space
    #[command(after_help = "Example:\n  icecore db space list")]
    List(ListSpacesArgs),
    /// Show the usage and limits of a space
    #[command(after_help = "Example:\n  icecore db space show ann")]
    Show(ShowSpaceArgs),
    /// Erase a space with everything in it, including its tokens; only the audit log remembers it
    #[command(
        after_help = "Examples:\n  icecore db space erase ann --yes\n  icecore db space erase --whole-store --yes --space chat    # the store with all its end users"
    )]
    Erase(EraseSpaceArgs),
    /// Show or set the limits of a space, or the defaults of all spaces
    #[command(
        after_help = "Examples:\n  icecore db space quota                                  # the defaults\n  icecore db space quota ann --requests-per-minute 60 --bytes 50000000\n  icecore db space quota ann --bytes none --messages-per-day default"
    )]
    Quota(QuotaArgs),
}

#[derive(Debug, Args)]
pub struct ListSpacesArgs {
    /// Only names after this one
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    after: String,
    /// At most this many
    #[arg(long, short = 'n', value_name = "N", default_value_t = told::DEFAULT_LIST_LEN)]
    limit: usize,
}

#[derive(Debug, Args)]
pub struct ShowSpaceArgs {
    /// The end user
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
pub struct EraseSpaceArgs {
    /// The end user
    #[arg(
        value_name = "NAME",
        required_unless_present = "whole_store",
        conflicts_with = "whole_store"
    )]
    name: Option<String>,
    /// The store itself, with the space of every end user
    #[arg(long)]
    whole_store: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Args)]
pub struct QuotaArgs {
    /// The end user; without it, the defaults of all spaces
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Requests per minute and server process: a number, none (or 0), or default
    #[arg(long, value_name = "N", value_parser = parse_request_limit)]
    requests_per_minute: Option<LimitChange>,
    /// Messages stored per UTC day: a number, none, or default; 0 allows none
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    messages_per_day: Option<LimitChange>,
    /// Bytes of documents: a number, none, or default
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    bytes: Option<LimitChange>,
    /// Model tokens read and written per UTC day: a number, none, or default
    #[arg(long, value_name = "N", value_parser = parse_limit)]
    model_tokens_per_day: Option<LimitChange>,
}

/// A new limit; `None` resets it to the default.
#[derive(Debug, Clone, Copy)]
pub struct LimitChange(Option<QuotaLimit>);

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Only in this end user's space
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Since this moment, or this long ago: 2026-02-13T09:30:00Z, 12h
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// At most this many, the newest first
    #[arg(long, short = 'n', value_name = "N", default_value_t = told::DEFAULT_LIST_LEN)]
    limit: usize,
}

fn parse_right(text: &str) -> Result<Permission, String> {
    text.parse::<Permission>().map_err(|error| error.to_string())
}

fn parse_limit(text: &str) -> Result<LimitChange, String> {
    access::parse_limit(text).map(LimitChange)
}

fn parse_request_limit(text: &str) -> Result<LimitChange, String> {
    access::parse_request_limit(text).map(LimitChange)
}

/// The store named by the options, whether it exists or not.
async fn target_store(global: &GlobalArgs) -> Result<DatabaseStore> {
    // The nearest vault does not count: a folder has no tokens.
    if bootstrap::database_address(&global.store_selection())?.is_none() {
        return Err(access::database_required());
    }
    let place = bootstrap::resolve_root(global, None).await?;
    place.check_can_have_users()?;
    DatabaseStore::from_location(&place)
}

/// The store named by the options, which must exist: tokens and limits of a mistyped store would
/// silently have no effect.
async fn existing_store(global: &GlobalArgs) -> Result<DatabaseStore> {
    let home = target_store(global).await?;
    match home.database.space_fingerprint(&home.name).await? {
        Some(_) => Ok(home),
        None => Err(missing_store_error(&home)),
    }
}

fn missing_store_error(database: &DatabaseStore) -> anyhow::Error {
    StoreError::not_a_space(database.name.clone()).into()
}

/// The audit actor of the command line: the user of the operating system.
fn cli_actor() -> Actor {
    let who =
        ["USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok()).unwrap_or_default();
    Actor {
        token: "store".into(),
        interface: "cli",
        who: icecore_domain::sanitize::one_line(&who),
        now: SystemClock.now(),
    }
}

/// Records in the audit log that a command ran on a memory in a database: its name and status,
/// never its arguments.
pub async fn record_command(
    place: &StoreLocation,
    command: &str,
    outcome: &Result<()>,
) -> Result<()> {
    let StoreLocation::Space { database, name } = place else { return Ok(()) };
    let status =
        outcome.as_ref().err().map_or(StatusCode::OK, |error| http_status_of(error).0).as_u16();
    database
        .record_audit_events(&[AuditEvent { status, ..cli_actor().audit_event(name, command, "") }])
        .await?;
    Ok(())
}

fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn print_new_token(
    database: &DatabaseStore,
    made: &IssuedToken,
    by: &Actor,
    out: &mut Output,
) -> Result<()> {
    if out.is_json() {
        return out.json(&told::issued_token_json(database, made, by.now));
    }
    out.line(&made.secret)?;
    let until = made
        .token
        .expires
        .map_or_else(|| "until it is revoked".to_owned(), |end| format!("until {end}"));
    out.info(format!(
        "Token {} ({}), valid {until}. It is shown only once; store it like a password.",
        made.token.id,
        made.token.scopes.join(", ")
    ));
    Ok(())
}

/// Runs `icecore db token`.
pub async fn run_token(global: &GlobalArgs, token: &TokenCommand, out: &mut Output) -> Result<()> {
    let (home, by) = (existing_store(global).await?, cli_actor());
    match token {
        TokenCommand::Add(AddTokenArgs { user, scope, expires, label }) => {
            let wanted = TokenRequest {
                user: user.clone(),
                rights: scope.clone(),
                lasts: *expires,
                label: label.clone(),
            };
            let made = access::add_token(&home, wanted, &by).await?;
            print_new_token(&home, &made, &by, out)
        }
        TokenCommand::List(ListTokensArgs { user, limit }) => {
            let space = user
                .as_deref()
                .map(parse_user_name)
                .transpose()?
                .map(|user| home.space_name(Some(&user)));
            let tokens =
                home.database.list_tokens(&home.name, space.as_deref(), row_limit(*limit)).await?;
            let tokens: Vec<Value> =
                tokens.iter().map(|token| told::token_json(&home, token, by.now)).collect();
            if out.is_json() {
                return out.json_named("tokens", &tokens);
            }
            if tokens.is_empty() {
                return out.line("There are no tokens; `icecore db token add` makes one.");
            }
            let scopes = |token: &Value| {
                token["scopes"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect::<Vec<_>>()
                    .join(",")
            };
            let row = |token: &Value| {
                vec![
                    value_cell(&token["id"]),
                    Cell::new(token["user"].as_str().unwrap_or("(the whole store)")),
                    Cell::new(scopes(token)),
                    value_cell(&token["state"]),
                    value_cell(&token["expires"]),
                    value_cell(&token["used"]),
                    value_cell(&token["label"]),
                ]
            };
            out.table(
                &["id", "user", "scopes", "state", "expires", "used", "label"],
                tokens.iter().map(row).collect(),
            )
        }
        TokenCommand::Rotate(RotateTokenArgs { id, grace }) => {
            let made = access::rotate_token(&home, id, *grace, &by).await?;
            print_new_token(&home, &made, &by, out)
        }
        TokenCommand::Revoke(RevokeTokenArgs { id }) => {
            let token = access::revoke_token(&home, id, &by).await?;
            if out.is_json() {
                return out.json(&json!({ "id": token.id, "revoked": true }));
            }
            out.line(format!("Revoked {}; every server refuses it within five seconds", token.id))
        }
    }
}

/// A JSON value as a table cell.
fn value_cell(value: &Value) -> Cell {
    Cell::new(match value {
        Value::Null => String::new(),
        Value::String(text) => icecore_domain::sanitize::one_line(text),
        other => other.to_string(),
    })
}

/// Runs `icecore db space`.
pub async fn run_space(global: &GlobalArgs, space: &SpaceCommand, out: &mut Output) -> Result<()> {
    if let SpaceCommand::Erase(EraseSpaceArgs { whole_store: true, yes, .. }) = space {
        return erase_store(&target_store(global).await?, *yes, out).await;
    }
    let (home, by) = (existing_store(global).await?, cli_actor());
    match space {
        SpaceCommand::List(ListSpacesArgs { after, limit }) => {
            let users = home.list_users(after, *limit).await?;
            if out.is_json() {
                return out.json_named("users", &users);
            }
            users.iter().try_for_each(|user| out.line(user))
        }
        SpaceCommand::Show(ShowSpaceArgs { name }) => {
            let shown = told::space_json(&home, name).await?;
            if out.is_json() {
                return out.json(&shown);
            }
            out.line(format!(
                "{}: {}",
                value_cell(&shown["user"]).content(),
                pluralize(shown["tokens"].as_u64(), "valid token")
            ))?;
            let nothing = Value::Null;
            let used = [
                ("requests_per_minute", &nothing),
                ("messages_per_day", &shown["messages_today"]),
                ("bytes", &shown["bytes"]),
                ("model_tokens_per_day", &shown["model_tokens_today"]),
            ];
            let row = |(name, used): (&str, &Value)| {
                vec![Cell::new(name), value_cell(used), value_cell(&shown["limits"][name])]
            };
            out.table(&["", "used", "limit"], used.into_iter().map(row).collect())
        }
        SpaceCommand::Erase(EraseSpaceArgs { name, yes, .. }) => {
            let user = parse_user_name(name.as_deref().unwrap_or_default())?;
            let is_meant = *yes
                || (out.can_ask()
                    && out.ask(&format!("Erase everything of {user} permanently?"))?);
            if !is_meant {
                return Err(AppError::new(
                    Exit::Usage,
                    format!("this erases everything of {user} permanently; pass --yes to do it"),
                )
                .into());
            }
            if !access::erase_user_space(&home, &user, &by).await? {
                return Err(no_such_user(&user));
            }
            if out.is_json() {
                return out.json(&json!({ "user": user, "erased": true }));
            }
            out.line(format!(
                "Erased everything of {user}. Backups of the database are out of reach."
            ))
        }
        SpaceCommand::Quota(quota) => {
            let user = quota.name.as_deref().map(parse_user_name).transpose()?;
            let mut set = access::read_quota(&home, user.as_deref()).await?;
            let wanted = [
                (quota.requests_per_minute, &mut set.requests_per_minute),
                (quota.messages_per_day, &mut set.messages_per_day),
                (quota.bytes, &mut set.bytes),
                (quota.model_tokens_per_day, &mut set.model_tokens_per_day),
            ];
            let mut is_changed = false;
            for (wanted, place) in wanted {
                if let Some(LimitChange(limit)) = wanted {
                    (*place, is_changed) = (limit, true);
                }
            }
            if is_changed {
                access::set_quota(&home, user.as_deref(), &set, &by).await?;
            }
            let shown = told::quota_json(&set);
            if out.is_json() {
                return out.json(&json!({ "user": user, "quota": shown }));
            }
            print_limits(&shown, out)
        }
    }
}

/// At most this many end users are named before erasing a store is confirmed.
const MAX_NAMED_USERS: usize = 20;

async fn erase_store(postgres: &DatabaseStore, yes: bool, out: &mut Output) -> Result<()> {
    let mut users = postgres.list_users("", usize::MAX).await?;
    // An interrupted erasure may have left end users without their store.
    if users.is_empty() && postgres.database.space_fingerprint(&postgres.name).await?.is_none() {
        return Err(missing_store_error(postgres));
    }
    let many = users.len();
    let more = many.saturating_sub(MAX_NAMED_USERS);
    users.truncate(MAX_NAMED_USERS);
    let mut named: Vec<String> =
        users.iter().map(|user| icecore_domain::sanitize::one_line(user)).collect();
    if more > 0 {
        named.push(format!("{more} more"));
    }
    let named = if named.is_empty() { String::new() } else { format!(" ({})", named.join(", ")) };
    let what = format!(
        "the store `{}` with {}{named}",
        postgres.name,
        pluralize(u64::try_from(many).ok(), "end user")
    );
    let is_meant = yes || (out.can_ask() && out.ask(&format!("Erase {what} permanently?"))?);
    if !is_meant {
        return Err(AppError::new(
            Exit::Usage,
            format!("this erases {what} permanently; pass --yes to do it"),
        )
        .into());
    }
    if !out.is_json() {
        out.info(format!("Erasing {what}"));
    }
    let erased = access::erase_store(postgres, &cli_actor()).await?;
    if out.is_json() {
        return out.json(&json!({ "store": postgres.name, "users": erased, "erased": true }));
    }
    out.line(format!(
        "Erased the store `{}` and {}. Backups of the database are out of reach.",
        postgres.name,
        pluralize(u64::try_from(erased).ok(), "end user")
    ))
}

fn pluralize(many: Option<u64>, what: &str) -> String {
    let many = many.unwrap_or_default();
    format!("{many} {what}{}", if many == 1 { "" } else { "s" })
}

fn print_limits(limits: &Value, out: &mut Output) -> Result<()> {
    for (name, value) in limits.as_object().into_iter().flatten() {
        out.line(format!("{name}: {}", value_cell(value).content()))?;
    }
    Ok(())
}

/// Runs `icecore db audit`.
pub async fn print_audit(global: &GlobalArgs, audit: &AuditArgs, out: &mut Output) -> Result<()> {
    let home = target_store(global).await?;
    let as_of = bootstrap::parse_now(global)?;
    let deeds = told::audit_json(
        &home,
        audit.user.as_deref(),
        audit.since.as_deref(),
        as_of,
        row_limit(audit.limit),
    )
    .await?;
    // The log of an erased store can still be read.
    if deeds.is_empty() && home.database.space_fingerprint(&home.name).await?.is_none() {
        return Err(missing_store_error(&home));
    }
    if out.is_json() {
        return out.json_named("deeds", &deeds);
    }
    let row = |deed: &Value| {
        ["at", "space", "token", "door", "verb", "what", "status"]
            .iter()
            .map(|name| value_cell(&deed[name]))
            .collect()
    };
    out.table(
        &["at", "space", "token", "interface", "verb", "what", "status"],
        deeds.iter().map(row).collect(),
    )
}
