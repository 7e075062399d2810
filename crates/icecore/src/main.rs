//! The doors of icecore: how memory is reached. One binary.

mod api;
mod cli;
mod error;
mod http;
mod import;
mod spaces;
mod told;
mod wire;

use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

use crate::cli::Cli;
use crate::cli::out::Out;

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(cli::arguments()) {
        Ok(cli) => cli,
        Err(usage) => return cli::usage(&usage),
    };
    let mut out = Out::new(&cli.global);
    let mut runtime = if cli.serves_many() { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    let outcome = match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(cli::run(&cli, &mut out)),
        Err(error) => Err(error.into()),
    };
    error::finish(outcome, out)
}
