//! The `icecore` binary: command line, hooks, HTTP server, MCP server and workers.
//!
//! This crate parses input, checks permissions and formats output. What memory does is decided in
//! `icecore-engine`.

mod access;
mod api;
mod cli;
mod dashboard;
mod error;
mod hook;
mod http;
mod import;
mod install;
mod mcp;
mod place;
mod rights;
mod spaces;
mod told;
mod wire;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::cli::Cli;
use crate::cli::out::Out;

/// How long the exiting process waits until its leases are released in the database.
const PARTING: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    // First of all: a client that runs a hook treats exit 2, the code of a usage error, as an
    // instruction to block.
    if hook::is_meant(&words, cli::is_command) {
        return hook::answer(&words);
    }
    if let Some(code) = cli::refuse_bare_call(&words) {
        return code;
    }
    let cli = match Cli::read(cli::arguments()) {
        Ok(cli) => cli,
        Err(usage) => return cli::usage(&usage),
    };
    if let Some(answer) = cli.drives() {
        return answer;
    }
    let mut out = Out::new(&cli.global);
    let mut runtime =
        if cli.serves_many() { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let outcome = match runtime.enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(cli::run(&cli, &mut out));
            // A caller that waits for the exit must not wait for background preparation.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    let code = error::finish(outcome, out);
    wire::part(PARTING);
    code
}
