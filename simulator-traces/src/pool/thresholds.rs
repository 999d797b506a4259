//! The policies that a scenario names, with thresholds from the scenario or from the model (P-5).

use super::Scenario;
use super::options::{
    AgingName, FormulaName, IdleName, PolicyName, PreferenceName, QueueOptions, RuleOptions,
};
use crate::error::ScenarioError;
use fpga_cluster::pool::model::{Best, Formula, Linear, Search, ServerLoad};
use fpga_cluster::pool::policy::{
    Aging, Contention, Fit, IdleChoice, NothingFits, Order, Patience, PoolPolicy, Preference,
    ResourceAwareRules,
};
use fpga_cluster::pool::thresholds::{Shape, Thresholds};
use std::num::NonZeroU32;

impl Scenario {
    /// The load in the model: one board at the scenario's load, at most 95 %.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if the sizes are.
    pub fn model_load(&self) -> Result<ServerLoad, ScenarioError> {
        let sizes = self.sizes()?;
        let bytes_per_second = self.board_speed();
        let jobs_per_second = self.jobs.load.min(0.95) * bytes_per_second / sizes.mean();
        Ok(ServerLoad { jobs_per_second, bytes_per_second, sizes })
    }

    /// The formula that the model uses.
    #[must_use]
    pub fn formula(&self) -> Formula {
        match self.queues.formula {
            FormulaName::Paper => Formula::Paper,
            FormulaName::Exact => Formula::Exact,
        }
    }

    /// The candidates of the model's search. Given parameters have one candidate.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if the sizes are, or only one of `linear_from` and `linear_to` is given.
    pub fn search(&self) -> Result<Search, ScenarioError> {
        let sizes = self.sizes()?;
        let QueueOptions { count, first_of_mean, growth, linear_from, linear_to, .. } = self.queues;
        let linear = match (linear_from, linear_to) {
            (None, None) => Linear::Any,
            (Some(from), Some(to)) => Linear::Between { from, to },
            _ => {
                return Err(ScenarioError::invalid(
                    "`queues` needs both `linear_from` and `linear_to`, or neither",
                ));
            }
        };
        let lowest = sizes.quantile(0.005).max(1.0);
        let highest = sizes.quantile(0.9).max(lowest);
        let steps = 24_u32;
        let step = libm::pow(highest / lowest, 1.0 / f64::from(steps - 1));
        let firsts = std::iter::successors(Some(lowest), |first| Some(first * step)).take(24);
        Ok(Search {
            queues: count,
            first: first_of_mean.map_or_else(|| firsts.collect(), |share| vec![share * sizes.mean()]),
            growth: growth.map_or_else(
                || vec![1.05, 1.1, 1.15, 1.2, 1.3, 1.41, 1.5, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0],
                |growth| vec![growth],
            ),
            linear,
        })
    }

    /// The thresholds that the model chooses.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if no candidate is valid.
    pub fn best(&self) -> Result<Best, ScenarioError> {
        let search = self.search()?;
        let shape = Shape {
            first: search.first.first().copied().unwrap_or(0.0),
            growth: search.growth.first().copied().unwrap_or(0.0),
            linear_from: self.queues.linear_from.unwrap_or(1),
            linear_to: self.queues.linear_to.unwrap_or(1),
            queues: search.queues,
        };
        let best = self.model_load()?.best(&search, self.formula());
        best.ok_or_else(|| match shape.bounds() {
            Err(error) => ScenarioError::invalid(error.to_string()),
            Ok(_) => ScenarioError::invalid("the model finds no thresholds"),
        })
    }

    /// The policy with this name; policies with queues use `thresholds`.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if `rules` are out of range.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "not negative; `as` saturates"
    )]
    pub fn policy(&self, name: PolicyName, thresholds: &Thresholds) -> Result<PoolPolicy, ScenarioError> {
        let RuleOptions { contention, skips, patience_ms_per_mb, preference, idle, aging } = self.rules;
        let Some(contention) = NonZeroU32::new(contention) else {
            return Err(ScenarioError::invalid("`rules.contention` must be at least 1"));
        };
        if !(patience_ms_per_mb.is_finite() && patience_ms_per_mb >= 0.0) {
            return Err(ScenarioError::invalid("`rules.patience_ms_per_mb` must be a number of at least 0"));
        }
        let preference = match preference {
            PreferenceName::Order => Preference::Order,
            PreferenceName::LocalFirst => Preference::LocalFirst,
        };
        let patience = Patience((patience_ms_per_mb * 1e6) as u64);
        let nothing_fits = NothingFits::KeepIdle;
        let rules = ResourceAwareRules {
            contention: Contention::Jobs(contention),
            skips,
            patience,
            preference,
            nothing_fits,
        };
        let anyone = Fit::Anyone(match idle {
            IdleName::LongestIdle => IdleChoice::LongestIdle,
            IdleName::HomeFirst => IdleChoice::HomeFirst,
        });
        let policy = match name {
            PolicyName::Fifo => PoolPolicy { fit: anyone, ..PoolPolicy::fifo() },
            PolicyName::Sjf => PoolPolicy { fit: anyone, ..PoolPolicy::shortest_first() },
            PolicyName::Ra => PoolPolicy::resource_aware(rules),
            PolicyName::Wa => PoolPolicy { fit: anyone, ..PoolPolicy::workload_aware(thresholds.clone()) },
            PolicyName::Wra => PoolPolicy::workload_and_resource_aware(thresholds.clone(), rules),
            PolicyName::WraIdle => {
                PoolPolicy { order: Order::Queues(thresholds.clone()), ..PoolPolicy::resource_aware(rules) }
            }
            PolicyName::Sra => PoolPolicy {
                order: Order::Size,
                ..PoolPolicy::workload_and_resource_aware(thresholds.clone(), rules)
            },
            PolicyName::LocalFifo => {
                PoolPolicy { order: Order::Arrival, ..PoolPolicy::local_shortest_first() }
            }
            PolicyName::LocalSjf => PoolPolicy::local_shortest_first(),
        };
        let aging = match aging {
            AgingName::Never => Aging::Never,
            AgingName::Pool => Aging::DEFAULT,
        };
        Ok(PoolPolicy { aging, ..policy })
    }
}
