//! The binary `fpga-images`. What it does is in the library.
#![forbid(unsafe_code)]

mod args;

use args::Args;
use clap::Parser as _;

fn main() -> anyhow::Result<()> {
    Args::parse().run()
}
