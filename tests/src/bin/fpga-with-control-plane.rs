//! Runs a command beside a control plane that its tests share: `fpga-with-control-plane COMMAND ARGUMENT ...`.

use fpga_tests::testbed::control_plane::run_beside;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let command: Vec<_> = std::env::args_os().skip(1).skip_while(|argument| argument == "--").collect();
    run_beside(&command).await.map_or_else(
        |error| {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        },
        ExitCode::from,
    )
}
