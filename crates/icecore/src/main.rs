//! The doors of icecore: how memory is reached. One binary.

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

/// How long a program that ends waits until what it has let go is free for others.
const PARTING: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    // Before anything else reads the command line: a client takes exit 2, which a wrong option ends
    // with, for an order.
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
            // Whoever waits for the program to end does not wait for what it still made ready in
            // the background.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    let code = error::finish(outcome, out);
    wire::part(PARTING);
    code
}
