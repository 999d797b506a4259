//! The pool as tables. Pure.

use super::json::hex;
use crate::output::{Cell, Style, Table, span};
use fpga_pool_api::v1;

/// Digits of a job's id that are shown.
const ID_DIGITS: usize = 8;

pub(super) fn classes(pool: &v1::Pool) -> Table {
    let mut table = Table::new(&["KIND", "REGION", "SLOTS", "JOBS", "GROUPS", "FREE"]);
    for class in &pool.classes {
        let v1::SlotClass { kind, region, slots, jobs, groups } = class;
        let free = slots.saturating_sub(jobs + groups);
        table.push(vec![
            kind.as_str().into(),
            or_dash(region).into(),
            slots.to_string().into(),
            jobs.to_string().into(),
            groups.to_string().into(),
            Cell::new(free.to_string(), if free == 0 { Style::Yellow } else { Style::Green }),
        ]);
    }
    table
}

pub(super) fn jobs(pool: &v1::Pool, now_ms: u64) -> Table {
    let mut table = Table::new(&["JOB", "NAMESPACE", "ACCELERATOR", "WORK", "NODE", "WAITS", "AHEAD", "WHY"]);
    for job in &pool.jobs {
        table.push(vec![
            id(&job.job).into(),
            job.tenant.as_str().into(),
            job.accelerator.as_str().into(),
            work(job.work.as_ref()).into(),
            or_dash(&job.home).into(),
            span(now_ms.saturating_sub(job.first_arrival_ms)).into(),
            job.ahead.to_string().into(),
            job.reason.as_str().into(),
        ]);
    }
    table
}

pub(super) fn slots(pool: &v1::Pool) -> Table {
    let mut table =
        Table::new(&["NODE", "BOARD", "KIND", "SLOT", "IS", "NAMESPACE", "JOB", "ACCELERATOR", "WORK"]);
    let mut boards: Vec<&v1::LentBoard> = pool.boards.iter().collect();
    boards.sort_by_key(|board| board.board.as_ref().map(|board| (&board.node, &board.name)));
    for v1::LentBoard { board, slots } in boards {
        let Some(board) = board else { continue };
        for (index, slot) in slots.iter().enumerate() {
            let style = match slot.state.as_str() {
                "free" => Style::Green,
                "bad" => Style::Red,
                "unknown" | "draining" => Style::Yellow,
                _ => Style::Plain,
            };
            table.push(vec![
                board.node.as_str().into(),
                board.name.as_str().into(),
                board.kind.as_str().into(),
                index.to_string().into(),
                Cell::new(slot.state.as_str(), style),
                or_dash(&slot.tenant).into(),
                or_dash(&id(&slot.job)).into(),
                or_dash(&slot.accelerator).into(),
                or_dash(&slot.work.as_ref().map_or_else(String::new, |of| work(Some(of)))).into(),
            ]);
        }
    }
    table
}

pub(super) fn tenants(pool: &v1::Pool) -> Table {
    let mut table = Table::new(&["NAMESPACE", "WAITING JOBS", "HELD SLOTS"]);
    for v1::TenantUse { tenant, waiting, held } in &pool.tenants {
        table.push(vec![tenant.as_str().into(), waiting.to_string().into(), held.to_string().into()]);
    }
    table
}

pub(super) fn groups(pool: &v1::Pool) -> Table {
    let mut table =
        Table::new(&["GROUP", "NAMESPACE", "KIND", "GOAL", "DONE", "LEFT", "FORECAST", "HOLDS", "MAY HAVE"]);
    for group in &pool.groups {
        let deadline = matches!(
            group.goal.as_ref().and_then(|goal| goal.kind.as_ref()),
            Some(v1::goal::Kind::Deadline(_))
        );
        let style = match group.outlook() {
            v1::Outlook::Kept => Style::Green,
            v1::Outlook::Missed => Style::Red,
            v1::Outlook::Unspecified => Style::Plain,
        };
        table.push(vec![
            id(&group.group).into(),
            group.tenant.as_str().into(),
            group.kind.as_str().into(),
            goal(group.goal.as_ref()).into(),
            group.done.to_string().into(),
            if deadline { span(group.left_ms) } else { "-".to_owned() }.into(),
            Cell::new(forecast(group), style),
            group.held.to_string().into(),
            group.given.to_string().into(),
        ]);
    }
    table
}

fn id(bytes: &[u8]) -> String {
    hex(bytes).chars().take(ID_DIGITS).collect()
}

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}

fn work(work: Option<&v1::JobWork>) -> String {
    match work.and_then(|work| work.kind.as_ref()) {
        Some(v1::job_work::Kind::RunBytes(bytes)) => megabytes(*bytes),
        Some(v1::job_work::Kind::Group(group)) => format!("group {}", id(&group.id)),
        None => String::new(),
    }
}

fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        1_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

fn goal(goal: Option<&v1::Goal>) -> String {
    match goal.and_then(|goal| goal.kind.as_ref()) {
        Some(v1::goal::Kind::Deadline(v1::Deadline { actions, within_ms })) => {
            format!("{actions} within {}", span(*within_ms))
        }
        Some(v1::goal::Kind::ActionsPerHour(rate)) => format!("{rate} an hour"),
        None => String::new(),
    }
}

fn forecast(group: &v1::GroupView) -> String {
    match group.forecast.as_ref().and_then(|forecast| forecast.kind.as_ref()) {
        Some(v1::forecast::Kind::DoneInMs(millis)) => format!("done in {}", span(*millis)),
        Some(v1::forecast::Kind::ActionsPerHour(rate)) => format!("{rate} an hour"),
        None if group.outlook() == v1::Outlook::Missed => "its time is over".to_owned(),
        None => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::tests::pool;
    use super::*;
    use crate::output::Colours;

    fn lines(table: &Table) -> Vec<String> {
        let text = table.render(Colours::Off);
        text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn slots_and_their_holders_waiting_jobs_and_goals_have_a_line_each() {
        let pool = pool();
        assert_eq!(lines(&classes(&pool)), ["u250 - 2 1 0 1"]);
        assert_eq!(
            lines(&slots(&pool)),
            ["n1 u250-0 u250 0 busy team-a 00000000 aes-256-ctr 24 MB", "n1 u250-0 u250 1 free - - - -",]
        );
        assert_eq!(
            lines(&jobs(&pool, 61_000)),
            ["00000000 team-b sha-256 500 kB n2 60s 3 all fitting slots are taken"]
        );
        assert_eq!(lines(&tenants(&pool)), ["team-a 0 1", "team-b 4 0"]);
        assert_eq!(lines(&groups(&pool)), ["00000000 team-a u250 40 within 60s 10 30s done in 90s 1 2"]);
    }
}
