//! The `icecore` binary: command line, hooks, HTTP server, MCP server and workers.
//!
//! This crate parses input, checks permissions and formats output. What memory does is decided in
//! `icecore-engine`.

mod access;
mod api;
mod bootstrap;
mod cli;
mod dashboard;
mod error;
mod hook;
mod http;
mod import;
mod install;
mod json_output;
mod mcp;
mod permissions;
mod spaces;
mod store_location;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::cli::Cli;
use crate::cli::output::Output;

/// How long the exiting process waits until its leases are released in the database.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    // First of all: a client that runs a hook treats exit 2, the code of a usage error, as an
    // instruction to block.
    if hook::is_hook_call(&words, cli::is_command) {
        return hook::run_hook(&words);
    }
    if let Some(code) = cli::refuse_bare_call(&words) {
        return code;
    }
    let cli = match Cli::parse_words(cli::arguments()) {
        Ok(cli) => cli,
        Err(usage) => return cli::report_usage_error(&usage),
    };
    if let Some(answer) = cli.run_merge_driver() {
        return answer;
    }
    let mut out = Output::new(&cli.global);
    let mut runtime = if cli.needs_threads() {
        Builder::new_multi_thread()
    } else {
        Builder::new_current_thread()
    };
    let outcome = match runtime.enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(cli::run_command(&cli, &mut out));
            // A caller that waits for the exit must not wait for background preparation.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    let code = error::report_outcome(outcome, out);
    bootstrap::release_leases(RELEASE_TIMEOUT);
    code
}
