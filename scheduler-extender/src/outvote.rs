//! The weight of the extender's score against the scores of kube-scheduler's own plugins, in kube-scheduler's points.
//!
//! Every plugin gives a node 0 to 100 points times its weight, an extender its score × its weight × 10. The sum
//! decides.

use crate::settings::Policy;
use serde::Serialize;

/// Most points that kube-scheduler's default plugins can give a node together: 100 × (TaintToleration 3 +
/// NodeAffinity 2 + PodTopologySpread 2 + InterPodAffinity 2 + NodeResourcesFit 1 + BalancedAllocation 1 +
/// ImageLocality 1).
pub const DEFAULT_PLUGINS: u64 = 1200;

/// Points per unit of score and weight: the greatest score of plugins (100) divided by that of extenders (10).
const SCALE: u64 = 10;

/// The points of the extender and of the default plugins in a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Votes {
    /// The extender's weight in kube-scheduler's configuration, as the settings have it.
    pub scheduler_weight: u32,
    /// Points per unit of the extender's score.
    pub points_per_score: u64,
    /// Points of the extender's greatest score.
    pub ours_at_most: u64,
    /// The most points that the default plugins can give together.
    pub plugins_at_most: u64,
    /// The points by which all default plugins together can exceed the extender's.
    pub plugins_can_outvote_by: u64,
    /// Points between the extender's best score and the next; `None` if all are equal. Plugins whose points differ by
    /// more decide instead.
    pub lead: Option<u64>,
}

impl Votes {
    /// The points in a decision with these scores.
    #[must_use]
    pub fn of(policy: &Policy, scores: impl Iterator<Item = u32> + Clone) -> Self {
        let per_score = u64::from(policy.scheduler_weight.get()) * SCALE;
        let ours = per_score * u64::from(policy.rules.max_score.get());
        let best = scores.clone().max();
        let next = scores.filter(|score| Some(*score) != best).max();
        let lead = best.zip(next).map(|(best, next)| u64::from(best - next) * per_score);
        Self {
            scheduler_weight: policy.scheduler_weight.get(),
            points_per_score: per_score,
            ours_at_most: ours,
            plugins_at_most: DEFAULT_PLUGINS,
            plugins_can_outvote_by: DEFAULT_PLUGINS.saturating_sub(ours),
            lead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{SchedulerWeight, Settings};

    fn votes(weight: u32, max_score: u32, scores: &[u32]) -> Votes {
        let settings = Settings {
            scheduler_weight: Some(SchedulerWeight::new(weight).unwrap()),
            max_score: Some(fpga_core::score::MaxScore::new(max_score).unwrap()),
            ..Settings::default()
        };
        Votes::of(&settings.policy().unwrap(), scores.iter().copied())
    }

    #[test]
    fn a_score_is_worth_ten_times_the_weight() {
        let shipped = votes(10, 10, &[8, 8, 5, 0]);
        assert_eq!((shipped.ours_at_most, shipped.plugins_can_outvote_by), (1000, 200));
        assert_eq!((shipped.points_per_score, shipped.lead), (100, Some(300)));
        assert_eq!(votes(1, 10, &[]).plugins_can_outvote_by, 1100);
        assert_eq!((votes(12, 10, &[3, 3]).plugins_can_outvote_by, votes(12, 10, &[3, 3]).lead), (0, None));
        assert_eq!(votes(10, 100, &[51, 50]).lead, Some(100));
    }
}
