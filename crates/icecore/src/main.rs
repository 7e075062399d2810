//! The doors of icecore: how memory is reached. One binary.

mod cli;
mod error;
#[allow(dead_code, unused_imports, reason = "the command that starts the server comes with what it remembers")]
mod http;
mod wire;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::cli::out::Out;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(cli::arguments()) {
        Ok(cli) => cli,
        Err(usage) => return cli::usage(&usage),
    };
    let mut out = Out::new(&cli.global);
    let outcome = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(cli::run(&cli, &mut out)),
        Err(error) => Err(error.into()),
    };
    error::finish(outcome, out)
}
