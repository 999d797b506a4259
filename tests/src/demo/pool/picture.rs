//! The live picture: who has which slot, how far each job is and why it waits, and what is forecast of goals. Pure.

use super::jobs::{DemoJob, WITHOUT_BOARD};
use super::run::{JobLine, JobState};
use fpga_pool_api::v1;
use std::fmt::Write as _;
use std::time::Duration;

const BAR: u64 = 20;

/// The pool at one moment.
#[derive(Debug)]
pub(super) struct View {
    slots: Vec<SlotLine>,
    jobs: Vec<JobLine>,
    goals: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SlotLine {
    node: String,
    slot: usize,
    /// What the broker says of the slot, such as `free` or `busy`.
    state: String,
    tenant: String,
    accelerator: String,
}

impl View {
    /// What the broker says of the slots and the library of the jobs.
    pub fn of(pool: &v1::Pool, jobs: Vec<JobLine>) -> Self {
        let slots = pool.boards.iter().flat_map(|board| {
            let node = board.board.as_ref().map(|board| board.node.clone()).unwrap_or_default();
            board.slots.iter().enumerate().map(move |(slot, view)| SlotLine {
                node: node.clone(),
                slot,
                state: view.state.clone(),
                tenant: view.tenant.clone(),
                accelerator: view.accelerator.clone(),
            })
        });
        let mut slots: Vec<SlotLine> = slots.collect();
        slots.sort_by(|a, b| (&a.node, a.slot).cmp(&(&b.node, b.slot)));
        Self { slots, jobs, goals: pool.groups.iter().map(goal_line).collect() }
    }

    /// The node whose slot a job has.
    fn node_of(&self, job: &DemoJob) -> Option<&str> {
        let has = |slot: &&SlotLine| slot.tenant == job.tenant && slot.accelerator == job.accelerator.name();
        self.slots.iter().find(has).map(|slot| slot.node.as_str())
    }
}

/// Draws the pool.
pub(super) fn draw(view: &View) -> String {
    let mut text = String::new();
    // Writing to a string can't fail.
    let _ = draw_into(&mut text, view);
    text
}

fn draw_into(out: &mut String, view: &View) -> std::fmt::Result {
    writeln!(out, "  {:<8} {:<5} {:<10} holder", "node", "slot", "is")?;
    for SlotLine { node, slot, state, tenant, accelerator } in &view.slots {
        let holder = if tenant.is_empty() { "-".to_owned() } else { format!("{accelerator} of {tenant}") };
        writeln!(out, "  {node:<8} {slot:<5} {state:<10} {holder}")?;
    }
    writeln!(out, "\n  {:<7} {:<14} {:<9} {:<32} how it is", "tenant", "job", "from", "done")?;
    for line in &view.jobs {
        let JobLine { job, done_bytes, state } = line;
        let filled = usize::try_from(done_bytes * BAR / job.bytes().max(1)).unwrap_or(0);
        let empty = usize::try_from(BAR).unwrap_or(0).saturating_sub(filled);
        let bar = "█".repeat(filled) + &"·".repeat(empty);
        writeln!(
            out,
            "  {:<7} {:<14} {:<9} {bar} {:>2} of {:>2} MB  {}",
            job.tenant,
            job.accelerator.name(),
            if job.home == WITHOUT_BOARD { "no board" } else { job.home },
            done_bytes / 1_000_000,
            job.megabytes,
            how(view, job, state),
        )?;
    }
    for goal in &view.goals {
        writeln!(out, "\n  {goal}")?;
    }
    Ok(())
}

fn how(view: &View, job: &DemoJob, state: &JobState) -> String {
    match state {
        JobState::ToCome => "comes soon".to_owned(),
        JobState::Waits(why) => format!("waits: {why}"),
        JobState::HasSlot => match view.node_of(job) {
            Some(node) => format!("runs on {node}"),
            None => "runs".to_owned(),
        },
        JobState::IsVerified => "its result is verified".to_owned(),
        JobState::Verified => "verified".to_owned(),
        JobState::Failed(why) => format!("FAILED: {why}"),
    }
}

/// A group's goal beside what is forecast of it.
fn goal_line(group: &v1::GroupView) -> String {
    let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
    let goal = match group.goal.as_ref().and_then(|goal| goal.kind.as_ref()) {
        Some(v1::goal::Kind::Deadline(goal)) => {
            format!("{} of {} actions, {:.0} s left", group.done, goal.actions, seconds(group.left_ms))
        }
        Some(v1::goal::Kind::ActionsPerHour(rate)) => format!("{rate} actions an hour"),
        None => "no goal".to_owned(),
    };
    let forecast = match group.forecast.as_ref().and_then(|forecast| forecast.kind.as_ref()) {
        Some(v1::forecast::Kind::DoneInMs(millis)) => format!("done in {:.0} s", seconds(*millis)),
        Some(v1::forecast::Kind::ActionsPerHour(rate)) => format!("{rate} actions an hour"),
        None => "unknown as yet".to_owned(),
    };
    let v1::GroupView { tenant, held, given, .. } = group;
    format!("goal of {tenant}: {goal}; forecast: {forecast}; {held} slots, may have {given}")
}

#[cfg(test)]
mod tests {
    use super::super::jobs::JOBS;
    use super::*;

    fn pool() -> v1::Pool {
        let slot = |state: &str, tenant: &str, accelerator: &str| v1::SlotView {
            state: state.to_owned(),
            tenant: tenant.to_owned(),
            accelerator: accelerator.to_owned(),
            ..v1::SlotView::default()
        };
        let board = |node: &str, slot| v1::LentBoard {
            board: Some(v1::Board { node: node.to_owned(), ..v1::Board::default() }),
            slots: vec![slot],
        };
        let deadline = v1::Deadline { actions: 40, within_ms: 60_000 };
        let group = v1::GroupView {
            tenant: "mill".to_owned(),
            goal: Some(v1::Goal { kind: Some(v1::goal::Kind::Deadline(deadline)) }),
            forecast: Some(v1::Forecast { kind: Some(v1::forecast::Kind::DoneInMs(20_000)) }),
            left_ms: 30_000,
            done: 10,
            held: 1,
            given: 2,
            ..v1::GroupView::default()
        };
        v1::Pool {
            boards: vec![
                board("node-1", slot("free", "", "")),
                board("node-0", slot("busy", "mill", "aes-256-ctr")),
            ],
            groups: vec![group],
            ..v1::Pool::default()
        }
    }

    #[test]
    fn the_picture_says_who_has_which_slot_and_who_waits_and_why() {
        let line = |at: usize, done_bytes, state| JobLine { job: JOBS[at], done_bytes, state };
        let jobs = vec![
            line(0, 12_000_000, JobState::HasSlot),
            line(1, 0, JobState::Waits("all fitting slots are taken".to_owned())),
            line(2, 0, JobState::ToCome),
        ];
        let text = draw(&View::of(&pool(), jobs));
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(lines[1], "  node-0   0     busy       aes-256-ctr of mill");
        assert_eq!(lines[2], "  node-1   0     free       -");
        let bar = "█".repeat(10) + &"·".repeat(10);
        assert_eq!(lines[5], format!("  mill    aes-256-ctr    node-0    {bar} 12 of 24 MB  runs on node-0"));
        assert!(lines[6].ends_with("waits: all fitting slots are taken"), "{text}");
        assert!(lines[7].contains("no board") && lines[7].ends_with("comes soon"), "{text}");
        let goal = "goal of mill: 10 of 40 actions, 30 s left; forecast: done in 20 s; 1 slots, may have 2";
        assert!(lines[9].ends_with(goal), "{text}");
    }
}
