//! The weight of the extender's scores in kube-scheduler's sum.

use serde::{Deserialize, Serialize};

/// The points of the extender and of the default plugins in kube-scheduler's sum for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScoreInfluence {
    /// The extender's `weight` in kube-scheduler's configuration, as the extender was told.
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

impl ScoreInfluence {
    /// The extender's `weight` in the configuration that is shipped.
    pub const SHIPPED_WEIGHT: u32 = 10;
    /// Most points that kube-scheduler's default plugins can give a node together: 100 × (TaintToleration 3 +
    /// NodeAffinity 2 + PodTopologySpread 2 + InterPodAffinity 2 + NodeResourcesFit 1 + BalancedAllocation 1 +
    /// ImageLocality 1).
    pub const DEFAULT_PLUGINS: u64 = 1200;
    /// Points per unit of score and weight: the greatest score of plugins (100) divided by that of extenders (10).
    pub const POINTS_PER_SCORE_AND_WEIGHT: u64 = 10;

    /// The points in a decision with these scores of at most `max_score`, where the extender has `scheduler_weight`.
    #[must_use]
    pub fn of(scheduler_weight: u32, max_score: u32, scores: impl Iterator<Item = u32> + Clone) -> Self {
        let per_score = u64::from(scheduler_weight) * Self::POINTS_PER_SCORE_AND_WEIGHT;
        let ours = per_score * u64::from(max_score);
        let best = scores.clone().max();
        let next = scores.filter(|score| Some(*score) != best).max();
        let lead = best.zip(next).map(|(best, next)| u64::from(best - next) * per_score);
        Self {
            scheduler_weight,
            points_per_score: per_score,
            ours_at_most: ours,
            plugins_at_most: Self::DEFAULT_PLUGINS,
            plugins_can_outvote_by: Self::DEFAULT_PLUGINS.saturating_sub(ours),
            lead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_worth_ten_times_the_weight() {
        let influence = |weight: u32, max_score: u32, scores: &[u32]| {
            ScoreInfluence::of(weight, max_score, scores.iter().copied())
        };
        let shipped = influence(ScoreInfluence::SHIPPED_WEIGHT, 10, &[8, 8, 5, 0]);
        assert_eq!((shipped.ours_at_most, shipped.plugins_can_outvote_by), (1000, 200));
        assert_eq!((shipped.points_per_score, shipped.lead), (100, Some(300)));
        assert_eq!(influence(1, 10, &[]).plugins_can_outvote_by, 1100);
        let heavy = influence(12, 10, &[3, 3]);
        assert_eq!((heavy.plugins_can_outvote_by, heavy.lead), (0, None));
        assert_eq!(influence(10, 100, &[51, 50]).lead, Some(100));
    }
}
