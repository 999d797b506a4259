//! The group of a round: actions with a goal, which are submitted one after the other until the fault is mended, and whose
//! outputs are known.
//!
//! The group has one guaranteed slot, so that actions run although jobs wait. If the fault hits that slot, actions wait
//! until it is back, or for another one.

use super::super::text::{COUNTER, KEY, Text};
use super::{draw, reference};
use anyhow::{Context as _, Result, ensure};
use fpga_acc::{Action, Goal, Group, GroupRequest, Pool};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::time::Instant;
use tokio::sync::watch;

/// Slots that the group's tenant needs a guarantee of: the group's minimum.
pub(super) const GUARANTEED_SLOTS: u32 = 1;
/// Slots that the group may have.
const SLOTS: RangeInclusive<u32> = GUARANTEED_SLOTS..=2;
/// An action a second, which a slot does in at most 40 ms.
const GOAL: Goal = Goal::Throughput { actions_per_hour: 3600 };
/// Actions of a group, if the fault is mended before so many are submitted.
const LEAST_ACTIONS: usize = 20;
/// Actions that wait or run at the same time.
const AT_ONCE: usize = 2;
/// Bytes of an action.
const LEAST_BYTES: f64 = 1e5;
const MOST_BYTES: f64 = 4e5;

/// When an action was in the group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    /// When the action was submitted.
    pub submitted: Instant,
    /// When its output came.
    pub ended: Instant,
}

/// An action without its output.
#[derive(Debug)]
struct UnderWay {
    action: Action,
    text: Text,
    submitted: Instant,
}

/// Opens a group, submits actions until the fault is mended, and closes the group. Returns the spans of all actions, each of
/// which has had the right output once.
pub(super) async fn run(
    pool: Pool,
    text: Text,
    drawn: (u64, u64),
    mended: watch::Receiver<bool>,
) -> Result<Vec<Span>> {
    let request = GroupRequest::new("aes-256-ctr", GOAL, SLOTS);
    let group = pool.open_group(request.argument("key", &KEY).argument("counter", &COUNTER))?;
    let (mut under_way, mut spans) = (VecDeque::new(), Vec::new());
    let (mut actions, mut bytes) = (0, 0);
    loop {
        let goes_on = actions < LEAST_ACTIONS || !*mended.borrow();
        while goes_on && under_way.len() < AT_ONCE {
            let text = text_of(&text, drawn, actions);
            actions += 1;
            bytes += text.plain.len() as u64;
            under_way.push_back(UnderWay::submit(&group, text).await?);
        }
        let Some(first) = under_way.pop_front() else { break };
        spans.push(first.ends().await.with_context(|| format!("action {} of the group", spans.len()))?);
    }
    let statistics = group.close().await.context("the group does not close")?;
    ensure!(
        statistics.done == actions as u64 && statistics.failed == 0 && statistics.output_bytes == bytes,
        "{actions} actions of {bytes} bytes became {} bytes: {statistics}",
        statistics.output_bytes
    );
    Ok(spans)
}

/// The text of an action: no two actions have the same.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "places in a text of 32 MB")]
fn text_of(text: &Text, (seed, round): (u64, u64), action: usize) -> Text {
    let of = |what: &str| draw(&(seed, round, action, what));
    let bytes = LEAST_BYTES + (MOST_BYTES - LEAST_BYTES) * of("bytes of the action");
    let from = (text.plain.len() as f64 - bytes) * of("place of the action");
    reference::part(text, from as usize, bytes as usize)
}

impl UnderWay {
    async fn submit(group: &Group, text: Text) -> Result<Self> {
        let submitted = Instant::now();
        let action = group.submit(text.plain.clone()).await?;
        Ok(Self { action, text, submitted })
    }

    /// Waits for the output, which must be right.
    async fn ends(self) -> Result<Span> {
        let output = self.action.await?;
        let ended = Instant::now();
        reference::check(&output, &self.text.secret)?;
        Ok(Span { submitted: self.submitted, ended })
    }
}

impl Span {
    /// Whether the action was in the group at some time from `began` to `ended`.
    pub fn meets(&self, began: Instant, ended: Instant) -> bool {
        self.submitted <= ended && self.ended >= began
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_action_meets_a_fault_that_has_begun_before_its_end() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let span = Span { submitted: at(4), ended: at(6) };
        for (began, ended) in [(1, 4), (5, 5), (6, 9), (1, 9)] {
            assert!(span.meets(at(began), at(ended)), "{began} {ended}");
        }
        assert!(!span.meets(at(1), at(3)) && !span.meets(at(7), at(9)));
    }
}
