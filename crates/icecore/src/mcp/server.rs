//! The MCP server behind both transports. It answers each request with the caller's permissions and
//! memory.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::http::StatusCode;
use axum::http::request::Parts;
use icecore_engine::Memory;
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
    CompleteResult, CompletionInfo, ContentBlock, CustomRequest, CustomResult, DiscoverResult,
    ErrorCode, ErrorData, GetPromptRequestParams, GetPromptResponse, Implementation,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, Reference, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use tokio::sync::{Semaphore, watch};

use super::resources::ResourcePage;
use super::tools::{self, ToolCall};
use super::{prompts, resources, tool_output};
use crate::access::{AccessControl, AdmissionError, QuotaClass};
use crate::api::call::{self, ParsedInput, quote_input};
use crate::bootstrap::LazyEmbedder;
use crate::error;
use crate::http::{self, LogFn};
use crate::permissions::{self, AccessDenied, Operation, Permissions};
use crate::spaces::{self, SpaceRegistry};

/// The server instructions for the model.
const INSTRUCTIONS: &str = include_str!("../../prompts/instructions.md");
/// The most concurrent calls; further ones wait.
const MAX_CONCURRENT_CALLS: usize = 16;
/// How long clients may cache fixed content, in milliseconds.
const FIXED_CACHE_MS: u64 = 3_600_000;
/// How long clients may cache lists that memory adds to, in milliseconds.
const LIST_CACHE_MS: u64 = 60_000;
/// The supported protocol versions, newest first.
const PROTOCOL_VERSIONS: &[ProtocolVersion] = &[
    ProtocolVersion::V_2026_07_28,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2024_11_05,
];
/// Known methods: an error in one of them is an error in its parameters.
const KNOWN_METHODS: &[&str] = &[
    "initialize",
    "server/discover",
    "ping",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
];
/// A method that needs a long-lived connection.
const LISTEN_METHOD: &str = "subscriptions/listen";
/// How often the resource list is checked for changes while a client is subscribed.
const LIST_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The memories a server serves.
#[derive(Clone)]
pub enum ServedMemories {
    /// One vault.
    One(Arc<Memory>),
    /// The main space and a space for every end user.
    Spaces(Arc<SpaceRegistry>),
}

/// The MCP server.
#[derive(Clone)]
pub struct McpServer {
    memories: ServedMemories,
    meanings: Arc<LazyEmbedder>,
    rights: Permissions,
    at_once: Arc<Semaphore>,
    log: LogFn,
    lasting: Option<ConnectionState>,
}

/// The state of a long-lived connection.
#[derive(Clone)]
struct ConnectionState {
    /// Whether it has ended.
    ended: watch::Receiver<bool>,
    /// The hash of the resource list that the client knows.
    known: Arc<Mutex<Option<u64>>>,
}

impl ConnectionState {
    fn lock_known(&self) -> MutexGuard<'_, Option<u64>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the list differs from what the client knows; records it as known.
    fn update_known(&self, mark: u64) -> bool {
        self.lock_known().replace(mark).is_some_and(|known| known != mark)
    }
}

/// What a tool call over HTTP reports to the transport: which tool was called, and whether it was
/// denied. Only the call itself decides, so a request that is parsed differently elsewhere cannot
/// bypass the check.
#[derive(Debug, Default)]
pub struct ToolCallReport {
    tool: OnceLock<&'static str>,
    refused: OnceLock<CallDenial>,
}

/// Why a tool call was denied.
#[derive(Debug)]
pub enum CallDenial {
    /// The caller lacks a permission.
    Denied(AccessDenied),
    /// The space exceeded a quota.
    NotAdmitted(AdmissionError),
}

impl ToolCallReport {
    /// The tool that was called, if any.
    pub fn tool(&self) -> Option<&'static str> {
        self.tool.get().copied()
    }

    /// Why the call was denied, if it was.
    pub fn denial(&self) -> Option<&CallDenial> {
        self.refused.get()
    }
}

/// The permissions and end user of a request.
struct CallerContext {
    rights: Permissions,
    user: Option<String>,
}

impl McpServer {
    /// Creates a server. Over HTTP the guard sets a caller's permissions; otherwise `rights`
    /// applies.
    pub fn new(
        memories: ServedMemories,
        meanings: Arc<LazyEmbedder>,
        rights: Permissions,
        log: LogFn,
    ) -> Self {
        Self {
            memories,
            meanings,
            rights,
            at_once: Arc::new(Semaphore::new(MAX_CONCURRENT_CALLS)),
            log,
            lasting: None,
        }
    }

    /// The same server for one client on a long-lived connection, which can receive change
    /// notifications.
    pub fn for_connection(self, ended: watch::Receiver<bool>) -> Self {
        Self { lasting: Some(ConnectionState { ended, known: Arc::default() }), ..self }
    }

    /// Notifies the client of resource list changes until the connection ends or a notification
    /// fails.
    async fn notify_changes<F: Future<Output = bool>>(&self, tell: impl Fn() -> F) {
        let Some(lasting) = self.lasting.clone() else { return };
        let mut ended = lasting.ended.clone();
        let telling = async {
            loop {
                // If the list cannot be read now, try again next time.
                let listed = self
                    .with_memory(None, false, |memory| async move {
                        resources::list_hash(&memory).await
                    })
                    .await;
                if listed.is_ok_and(|mark| lasting.update_known(mark)) && !tell().await {
                    return;
                }
                tokio::time::sleep(LIST_CHECK_INTERVAL).await;
            }
        };
        // After the end of the connection no notification may be reported as sent.
        tokio::select! {
            _ = ended.wait_for(|ended| *ended) => {}
            () = telling => {}
        }
    }

    /// Loads what the first search would wait for.
    pub async fn preload_search(&self) {
        let server = self.clone();
        let warmed = self.with_memory(None, false, move |memory| async move {
            let embed =
                server.meanings.get().map(|model| model as &dyn icecore_engine::embed::Embedder);
            memory.open_searcher(embed, &|_, _| {}).await?;
            anyhow::Ok(())
        });
        if let Err(error) = warmed.await {
            (self.log)(&format!("search could not be prepared: {error}"));
        }
    }

    /// The caller: over HTTP as the guard found it, else the user who started the program.
    fn caller_context(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallerContext, ErrorData> {
        let Some(parts) = context.extensions.get::<Parts>() else {
            return Ok(CallerContext { rights: self.rights, user: None });
        };
        let rights = parts
            .extensions
            .get::<http::RequestCaller>()
            .map_or(Permissions::NONE, |caller| caller.held.grant.rights);
        let user = match parts.headers.get(call::USER_HEADER).filter(|value| !value.is_empty()) {
            None => None,
            Some(value) => {
                let name = std::str::from_utf8(value.as_bytes())
                    .map_err(|_| ErrorData::invalid_params("X-Icecore-User is not UTF-8", None))?;
                Some(
                    call::parse_user_name(name)
                        .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?,
                )
            }
        };
        Ok(CallerContext { rights, user })
    }

    /// Runs work on a memory, on a blocking thread.
    async fn with_memory<T, F>(
        &self,
        user: Option<String>,
        makes_space: bool,
        work: impl FnOnce(Arc<Memory>) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>>,
    {
        let (memories, log) = (self.memories.clone(), self.log.clone());
        // The semaphore is never closed.
        let _place = self.at_once.acquire().await;
        let done = spaces::run_blocking(move || async move {
            let spaces = match memories {
                ServedMemories::One(memory) => return work(memory).await,
                ServedMemories::Spaces(spaces) => spaces,
            };
            // Hold the space's lock, so that it is not deleted meanwhile.
            let _held = spaces.acquire_shared(user.as_deref()).await;
            if let Some(user) = user.as_deref().filter(|_| !makes_space)
                && !spaces.has_space(Some(user)).await?
            {
                return Err(call::no_such_user(user));
            }
            let memory = spaces.chats(user.as_deref()).await?.memory().clone();
            work(memory).await
        });
        match done.await {
            Ok(done) => done,
            Err(broken) => {
                log(&format!("an MCP request failed: {broken}"));
                anyhow::bail!("internal error; see the server's log")
            }
        }
    }
}

/// The cache hints of a response, for clients that know them.
fn cache_hints(
    context: &RequestContext<RoleServer>,
    ms: u64,
    scope: CacheScope,
) -> (Option<u64>, Option<CacheScope>) {
    let knows = context.protocol_version().is_some_and(|version| !version.has_initialize());
    (knows.then_some(ms), knows.then_some(scope))
}

/// An error as the protocol represents it.
fn protocol_error(error: &anyhow::Error) -> ErrorData {
    let (status, _, message) = error::http_status_of(error);
    match status {
        StatusCode::NOT_FOUND => ErrorData::resource_not_found(message, None),
        StatusCode::BAD_REQUEST => ErrorData::invalid_params(message, None),
        _ => ErrorData::internal_error(message, None),
    }
}

/// A tool error that the model can fix or report to the user.
fn tool_error(message: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(message.into())])
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_prompts()
            .enable_resources()
            .enable_tools()
            .build();
        // Tools and prompts are fixed. Over HTTP there is no connection to notify.
        if let (Some(_), Some(resources)) = (&self.lasting, &mut capabilities.resources) {
            resources.list_changed = Some(true);
        }
        let own = Implementation::new("icecore", env!("CARGO_PKG_VERSION")).with_title("icecore");
        ServerConfig::new(capabilities)
            .with_server_info(own)
            .with_instructions(INSTRUCTIONS.trim_end())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(PROTOCOL_VERSIONS)
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut found =
            DiscoverResult::from_server_info(PROTOCOL_VERSIONS.to_vec(), self.get_info());
        (found.ttl_ms, found.cache_scope) = (FIXED_CACHE_MS, CacheScope::Public);
        Ok(found)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let rights = self.caller_context(&context)?.rights;
        let may = tools::TOOLS
            .iter()
            .filter(|tool| permissions::allows(rights, Operation::Tool(tool.name)));
        let mut listed =
            ListToolsResult::with_all_items(may.map(tools::ToolSpec::describe).collect());
        // A read-only caller sees fewer tools.
        (listed.ttl_ms, listed.cache_scope) =
            cache_hints(&context, FIXED_CACHE_MS, CacheScope::Private);
        Ok(listed)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::find_tool(name).map(tools::ToolSpec::describe)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = tools::find_tool(&request.name) else {
            return Err(ErrorData::invalid_params(
                format!("there is no tool {}; tools/list lists them", quote_input(&request.name)),
                None,
            ));
        };
        let caller = self.caller_context(&context)?;
        let parts = context.extensions.get::<Parts>();
        let called = parts.and_then(|parts| parts.extensions.get::<Arc<ToolCallReport>>());
        // There is one call per request, so nothing was set before.
        let tell = |refused: CallDenial| drop(called.map(|called| called.refused.set(refused)));
        let _ = called.map(|called| called.tool.set(tool.name));
        if !permissions::allows(caller.rights, Operation::Tool(tool.name)) {
            tell(CallDenial::Denied(AccessDenied::TooLittle {
                held: caller.rights,
                needed: tool.permission,
            }));
            let said = format!(
                "`{}` changes memory, but access is read-only here. Tell the user; do not retry.",
                tool.name
            );
            return Ok(tool_error(said).into());
        }
        let access = parts
            .and_then(|parts| parts.extensions.get::<Arc<AccessControl>>())
            .filter(|_| tool.uses_storage());
        if let Some(access) = access
            && let Err(not_admitted) =
                access.check_quota(caller.user.as_deref(), QuotaClass::Storage).await
        {
            let said = not_admitted.to_string();
            tell(CallDenial::NotAdmitted(not_admitted));
            return Ok(tool_error(said).into());
        }
        let given = serde_json::Value::Object(request.arguments.unwrap_or_default()).to_string();
        let given = match ParsedInput::from_object(tool.input, &given) {
            Ok(given) => given,
            Err(error) => return Ok(tool_error(error.to_string()).into()),
        };
        let meanings = self.meanings.clone();
        let done = self
            .with_memory(caller.user, tool.creates_space, move |memory| {
                (tool.handler)(ToolCall { memory, meanings, input: given })
            })
            .await;
        Ok(match done {
            Ok(told) => CallToolResult::structured(told).into(),
            Err(error) => {
                let (status, _, message) = error::http_status_of(&error);
                if status.is_server_error() {
                    (self.log)(&format!("`{}` failed: {message}", tool.name));
                }
                tool_error(message).into()
            }
        })
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let (user, cursor) =
            (self.caller_context(&context)?.user, request.and_then(|request| request.cursor));
        let listed = self
            .with_memory(user, false, move |memory| async move {
                resources::list_page(&memory, cursor.as_deref()).await
            })
            .await;
        let ResourcePage { part, next, mark } = listed.map_err(|error| protocol_error(&error))?;
        if let Some(lasting) = &self.lasting {
            *lasting.lock_known() = Some(mark);
        }
        let mut listed = ListResourcesResult::with_all_items(part);
        listed.next_cursor = next;
        (listed.ttl_ms, listed.cache_scope) =
            cache_hints(&context, LIST_CACHE_MS, CacheScope::Private);
        Ok(listed)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let mut listed = ListResourceTemplatesResult::with_all_items(resources::templates());
        (listed.ttl_ms, listed.cache_scope) =
            cache_hints(&context, FIXED_CACHE_MS, CacheScope::Public);
        Ok(listed)
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let user = self.caller_context(&context)?.user;
        let read = self
            .with_memory(user, false, move |memory| async move {
                resources::read_resource(&memory, &request.uri).await
            })
            .await;
        let mut read = ReadResourceResult::new(vec![read.map_err(|error| protocol_error(&error))?]);
        (read.ttl_ms, read.cache_scope) = cache_hints(&context, 0, CacheScope::Private);
        Ok(read.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let mut listed = ListPromptsResult::with_all_items(prompts::all_prompts());
        (listed.ttl_ms, listed.cache_scope) =
            cache_hints(&context, FIXED_CACHE_MS, CacheScope::Public);
        Ok(listed)
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let user = self.caller_context(&context)?.user;
        let GetPromptRequestParams { name, arguments, .. } = request;
        let got = self
            .with_memory(user, false, move |memory| async move {
                prompts::get_prompt(&memory, &name, arguments).await
            })
            .await;
        Ok(got.map_err(|error| protocol_error(&error))?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let user = self.caller_context(&context)?.user;
        let CompleteRequestParams { r#ref, argument, .. } = request;
        let found = self
            .with_memory(user, false, move |memory| async move {
                match r#ref {
                    Reference::Resource(template) => {
                        resources::complete_argument(&memory, &template.uri, &argument.name).await
                    }
                    Reference::Prompt(prompt) => {
                        prompts::complete_argument(&memory, &prompt.name, &argument.name).await
                    }
                    _ => Err(call::usage_error("`ref`: choose ref/resource or ref/prompt")),
                }
                .map(|all| tool_output::rank_completions(all, &argument.value))
            })
            .await;
        let (values, total) = found.map_err(|error| protocol_error(&error))?;
        let more = values.len() < total;
        let values = CompletionInfo::with_pagination(values, u32::try_from(total).ok(), more);
        values.map(CompleteResult::new).map_err(|error| ErrorData::internal_error(error, None))
    }

    /// A client with a handshake is initialized; from now on it may be notified.
    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let (server, peer) = (self.clone(), context.peer);
        tokio::spawn(async move {
            server
                .notify_changes(|| async { peer.notify_resource_list_changed().await.is_ok() })
                .await
        });
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.lasting.as_ref()?;
        let mut accepted = SubscriptionFilter::new();
        accepted.resources_list_changed = requested.resources_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let sink = context.sink();
        tokio::select! {
            () = context.cancelled() => {}
            () = self.notify_changes(|| async { sink.notify_resource_list_changed().await.is_ok() }) => {}
        }
        Ok(())
    }

    /// A request that `rmcp` could not parse: an unknown method, or wrong parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        if KNOWN_METHODS.contains(&request.method.as_str())
            || self.lasting.is_some() && request.method == LISTEN_METHOD
        {
            return Err(ErrorData::invalid_params(
                format!("invalid params for {}", request.method),
                None,
            ));
        }
        Err(ErrorData::new(
            ErrorCode::METHOD_NOT_FOUND,
            format!("there is no method {}", quote_input(&request.method)),
            None,
        ))
    }
}
