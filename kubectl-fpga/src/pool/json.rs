//! The pool as JSON, for programs.

use fpga_pool_api::v1;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// All that the broker told.
pub(crate) fn pool(pool: &v1::Pool) -> Value {
    let v1::Pool { term, classes, boards, tenants, jobs, waiting, groups } = pool;
    let class = |class: &v1::SlotClass| {
        let v1::SlotClass { kind, region, slots, jobs, groups } = class;
        json!({"kind": kind, "region": region, "slots": slots, "jobs": jobs, "groups": groups})
    };
    let tenant = |of: &v1::TenantUse| json!({"namespace": of.tenant, "waiting": of.waiting, "held": of.held});
    json!({
        "term": term,
        "classes": classes.iter().map(class).collect::<Vec<_>>(),
        "slots": boards.iter().flat_map(slots).collect::<Vec<_>>(),
        "namespaces": tenants.iter().map(tenant).collect::<Vec<_>>(),
        "jobs": jobs.iter().map(job).collect::<Vec<_>>(),
        "waiting": waiting,
        "groups": groups.iter().map(group).collect::<Vec<_>>(),
    })
}

/// The digits of an id.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn slots(board: &v1::LentBoard) -> Vec<Value> {
    let v1::Board { name, kind, shell, node } = board.board.clone().unwrap_or_default();
    let slot = |(index, slot): (usize, &v1::SlotView)| {
        json!({
            "node": node, "board": name, "kind": kind, "shell": shell, "slot": index, "state": slot.state,
            "namespace": slot.tenant, "job": hex(&slot.job), "accelerator": slot.accelerator,
            "work": slot.work.as_ref().map(work),
        })
    };
    board.slots.iter().enumerate().map(slot).collect()
}

fn job(job: &v1::WaitingJob) -> Value {
    json!({
        "job": hex(&job.job), "namespace": job.tenant, "accelerator": job.accelerator,
        "work": job.work.as_ref().map(work), "node": job.home, "firstArrivalMs": job.first_arrival_ms,
        "ahead": job.ahead, "reason": job.reason,
    })
}

fn group(group: &v1::GroupView) -> Value {
    let forecast = match group.forecast.as_ref().and_then(|forecast| forecast.kind.as_ref()) {
        Some(v1::forecast::Kind::DoneInMs(millis)) => json!({"doneInMs": millis}),
        Some(v1::forecast::Kind::ActionsPerHour(rate)) => json!({"actionsPerHour": rate}),
        None => Value::Null,
    };
    let outlook = match group.outlook() {
        v1::Outlook::Kept => "kept",
        v1::Outlook::Missed => "missed",
        v1::Outlook::Unspecified => "unknown",
    };
    json!({
        "group": hex(&group.group), "namespace": group.tenant, "kind": group.kind,
        "goal": group.goal.as_ref().map(goal), "held": group.held, "given": group.given,
        "waiting": group.waiting, "done": group.done, "forecast": forecast, "outlook": outlook,
        "leftMs": group.left_ms,
    })
}

fn work(work: &v1::JobWork) -> Value {
    match &work.kind {
        Some(v1::job_work::Kind::RunBytes(bytes)) => json!({"bytes": bytes}),
        Some(v1::job_work::Kind::Group(group)) => json!({"group": hex(&group.id)}),
        None => Value::Null,
    }
}

fn goal(goal: &v1::Goal) -> Value {
    match &goal.kind {
        Some(v1::goal::Kind::Deadline(v1::Deadline { actions, within_ms })) => {
            json!({"actions": actions, "withinMs": within_ms})
        }
        Some(v1::goal::Kind::ActionsPerHour(rate)) => json!({"actionsPerHour": rate}),
        None => Value::Null,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A pool of two slots, with a job in one of them, a waiting job, and a group.
    pub(in super::super) fn pool() -> v1::Pool {
        let run = |bytes| Some(v1::JobWork { kind: Some(v1::job_work::Kind::RunBytes(bytes)) });
        let busy = v1::SlotView {
            state: "busy".into(),
            tenant: "team-a".into(),
            job: vec![0; 16],
            accelerator: "aes-256-ctr".into(),
            work: run(24_000_000),
        };
        let free = v1::SlotView { state: "free".into(), ..v1::SlotView::default() };
        let board =
            v1::Board { name: "u250-0".into(), kind: "u250".into(), shell: String::new(), node: "n1".into() };
        let tenant = |name: &str, waiting, held| v1::TenantUse { tenant: name.into(), waiting, held };
        let deadline = v1::goal::Kind::Deadline(v1::Deadline { actions: 40, within_ms: 60_000 });
        v1::Pool {
            term: 3,
            classes: vec![v1::SlotClass {
                kind: "u250".into(),
                region: String::new(),
                slots: 2,
                jobs: 1,
                groups: 0,
            }],
            boards: vec![v1::LentBoard { board: Some(board), slots: vec![busy, free] }],
            tenants: vec![tenant("team-a", 0, 1), tenant("team-b", 4, 0)],
            jobs: vec![v1::WaitingJob {
                job: vec![0; 16],
                tenant: "team-b".into(),
                accelerator: "sha-256".into(),
                work: run(500_000),
                home: "n2".into(),
                first_arrival_ms: 1_000,
                ahead: 3,
                reason: "all fitting slots are taken".into(),
            }],
            waiting: 4,
            groups: vec![v1::GroupView {
                group: vec![0; 16],
                tenant: "team-a".into(),
                kind: "u250".into(),
                goal: Some(v1::Goal { kind: Some(deadline) }),
                held: 1,
                given: 2,
                done: 10,
                forecast: Some(v1::Forecast { kind: Some(v1::forecast::Kind::DoneInMs(90_000)) }),
                outlook: v1::Outlook::Missed.into(),
                left_ms: 30_000,
                ..v1::GroupView::default()
            }],
        }
    }

    #[test]
    fn programs_get_all_that_the_broker_told() {
        let json = super::pool(&pool());
        assert_eq!(json["term"], 3);
        assert_eq!(json["slots"][0]["work"]["bytes"], 24_000_000);
        assert_eq!(json["slots"][1]["state"], "free");
        assert_eq!(json["jobs"][0]["reason"], "all fitting slots are taken");
        assert_eq!(json["groups"][0]["outlook"], "missed");
        assert_eq!(json["groups"][0]["goal"]["withinMs"], 60_000);
    }
}
