//! Explores the lease protocol as far as time and memory allow: `make pool-explore`.

use clap::{Parser, ValueEnum};
use fpga_pool_leases::exploration::world::{Clients, Jobs, Setup};
use fpga_pool_leases::exploration::{Limits, explore};
use fpga_pool_leases::rules::Rules;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Instant;

/// Explores the lease protocol breadth first: all orders of messages, timers, crashes and cuts.
#[derive(Parser)]
struct Args {
    /// Number of clients.
    #[arg(long, default_value_t = 2)]
    clients: usize,
    /// What their jobs are.
    #[arg(long, value_enum, default_value_t = JobsName::Groups)]
    jobs: JobsName,
    /// Number of slots.
    #[arg(long, default_value_t = 1)]
    slots: u32,
    /// Number of brokers.
    #[arg(long, default_value_t = 2)]
    brokers: usize,
    /// Number of steps of each job.
    #[arg(long, default_value_t = 1)]
    steps: u64,
    /// Number of faults.
    #[arg(long, default_value_t = 3)]
    faults: u32,
    /// Number of moves from a run without faults.
    #[arg(long, default_value_t = u32::MAX)]
    depth: u32,
    /// Number of states. Each million takes about 150 MiB, beside 1 GiB.
    #[arg(long, default_value_t = 20_000_000)]
    states: usize,
    /// Number of seconds.
    #[arg(long, default_value_t = 500)]
    seconds: u64,
    /// From one in so many states everything runs in true time to its end.
    #[arg(long, default_value_t = 100)]
    timed_one_in: u64,
}

/// What the clients' jobs are.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum JobsName {
    /// Each is a group of one job, with a deadline.
    Groups,
    /// Each processes bytes.
    Runs,
    /// The same, and all of them are one bundle.
    Bundle,
}

fn main() -> ExitCode {
    let Args { clients, jobs, slots, brokers, steps, faults, depth, states, seconds, timed_one_in } =
        Args::parse();
    let jobs = match jobs {
        JobsName::Groups => Jobs::Groups,
        JobsName::Runs => Jobs::Runs,
        JobsName::Bundle => Jobs::Bundle,
    };
    let (clients_are, rules) = (Clients::Waiting, Rules::ALL);
    let setup = Setup { clients, jobs, slots, brokers, steps, faults, clients_are, rules };
    let begin = Instant::now();
    let limits = Limits { depth, states, timed_one_in, only: |_| true, watched: None };
    let report = explore(&setup, &limits, |progress| {
        let elapsed = begin.elapsed().as_secs();
        let (depth, states, moves) = (progress.depth, progress.states, progress.moves);
        println!("{elapsed:4} s: all states of depth {depth}; {states:9} states, {moves:10} moves");
        if elapsed < seconds { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    println!(
        "{} states, {} moves, all of depth {}{}; {} runs in true time, the longest: dead client {}, recall {}, all outputs {}",
        report.states,
        report.moves,
        report.depth,
        if report.is_complete { ", and no others" } else { "" },
        report.timed_runs,
        report.longest.dead_client,
        report.longest.recall,
        report.longest.once_at_last
    );
    match report.broken {
        None => ExitCode::SUCCESS,
        Some(trace) => {
            println!("{trace}");
            ExitCode::FAILURE
        }
    }
}
