//! Places units by the extender's decision (S-1, S-2), made by `fpga-core`. Scores of kube-scheduler's other plugins
//! are added as kube-scheduler adds them.

use super::collector::{clock, digest};
use super::node::Node;
use super::options::{Others, Placement, Ties};
use crate::error::ScenarioError;
use crate::random::Random;
use crate::time::{Micros, SimTime};
use fpga_core::bitstream::BitstreamId;
use fpga_core::decide::{AntiHerd, Candidate, DecisionRules, Ranking, filter, prioritize_ranking};
use fpga_core::expected_load::{Expected, ExpectedLoads, PlacedPod};
use fpga_core::requirement::Requirement;
use fpga_core::score::{MaxScore, Weights};
use fpga_core::signals::AskedKind;
use fpga_core::units::Millis;

/// Most pods per node, the default of kubelets.
const PODS: u32 = 110;
/// Interval at which the usage of pods is learnt; the extender's.
const LEARN: Micros = Micros(5_000_000);

/// Places units on nodes.
#[derive(Debug)]
pub struct Placer {
    rules: DecisionRules,
    ranking: Ranking,
    others: Others,
    others_weight: f64,
    ties: Ties,
    random: Random,
    expected: ExpectedLoads,
    learnt: SimTime,
    names: Vec<String>,
    placed: Vec<u32>,
    placements: u64,
}

impl Placer {
    /// The placer of a scenario.
    ///
    /// # Errors
    /// [`ScenarioError::Invalid`] if a setting of the extender is invalid.
    pub fn new(placement: &Placement, nodes: usize, seed: u64) -> Result<Self, ScenarioError> {
        let invalid = |name: &str, error: &dyn std::error::Error| {
            ScenarioError::Invalid(format!("placement.{name}: {error}"))
        };
        let weights: Weights = placement.weights.parse().map_err(|error| invalid("weights", &error))?;
        let max_score: MaxScore =
            placement.max_score.to_string().parse().map_err(|error| invalid("max_score", &error))?;
        let anti_herd: AntiHerd =
            placement.anti_herd.parse().map_err(|error| invalid("anti_herd", &error))?;
        let rules = DecisionRules { weights, max_score, anti_herd, ..DecisionRules::default() };
        Ok(Self {
            rules,
            ranking: placement.ranking,
            others: placement.others,
            others_weight: placement.others_weight,
            ties: placement.ties,
            random: Random::new(seed, 30),
            expected: ExpectedLoads::default(),
            learnt: SimTime::BEGIN,
            names: (0..nodes).map(|node| format!("node-{node}")).collect(),
            placed: vec![0; nodes],
            placements: 0,
        })
    }

    /// Number of placements so far.
    #[must_use]
    pub fn placements(&self) -> u64 {
        self.placements
    }

    /// Chooses nodes for `replicas` pods of a unit that uses a bitstream, the best first. `cpu` is the processor time
    /// of each node in the window, in microseconds.
    pub fn place(
        &mut self,
        unit: u32,
        bitstream: u32,
        replicas: u32,
        nodes: &mut [Node],
        cpu: &[u64],
        now: SimTime,
    ) -> Vec<u32> {
        let mut chosen = Vec::new();
        self.extend(unit, bitstream, &mut chosen, replicas, nodes, cpu, now);
        chosen
    }

    /// Like [`Self::place`] for a unit that already is on the nodes `chosen`: adds nodes until there are `replicas`.
    #[expect(clippy::too_many_arguments, reason = "what a decision depends on")]
    pub fn extend(
        &mut self,
        unit: u32,
        bitstream: u32,
        chosen: &mut Vec<u32>,
        replicas: u32,
        nodes: &mut [Node],
        cpu: &[u64],
        now: SimTime,
    ) {
        for replica in u32::try_from(chosen.len()).unwrap_or(u32::MAX)..replicas {
            let totals = self.totals(bitstream, nodes, cpu, now);
            let free = |node: &u32| !chosen.contains(node);
            let best = (0_u32..)
                .zip(&totals)
                .filter_map(|(node, total)| total.map(|total| (node, total)))
                .filter(|(node, _)| free(node))
                .fold((Vec::new(), f64::NEG_INFINITY), |(mut best, most), (node, total)| {
                    if total > most {
                        (vec![node], total)
                    } else {
                        if total >= most {
                            best.push(node);
                        }
                        (best, most)
                    }
                })
                .0;
            let index = match self.ties {
                Ties::Random if best.len() > 1 => self.random.below(best.len()),
                _ => 0,
            };
            let Some(&node) = best.get(index) else { break };
            chosen.push(node);
            self.count(unit, replica, bitstream, node, now);
        }
    }

    /// Removes a replica of a unit from a node.
    pub fn remove(&mut self, unit: u32, replica: u32, node: u32) {
        if let Some(placed) = self.placed.get_mut(node as usize) {
            *placed = placed.saturating_sub(1);
        }
        if self.rules.anti_herd == AntiHerd::On {
            self.expected.gone(&uid(unit, replica));
        }
    }

    /// Records that a replica of a unit is on a node, whoever chose the node.
    pub fn count(&mut self, unit: u32, replica: u32, bitstream: u32, node: u32, now: SimTime) {
        self.placements += 1;
        if let Some(placed) = self.placed.get_mut(node as usize) {
            *placed += 1;
        }
        if self.rules.anti_herd == AntiHerd::On {
            let pod = PlacedPod {
                uid: uid(unit, replica),
                owner: Some(format!("unit-{unit}")),
                node: self.names.get(node as usize).cloned().unwrap_or_default(),
                // Units of the simulator run on boards of any kind.
                kind: AskedKind::ANY,
                bitstreams: vec![BitstreamId::Digest(digest(bitstream))],
            };
            // A node that has the maximum number of tracked pods doesn't track this one; nothing here depends on
            // that.
            let _ = self.expected.bound(&pod, Millis::ZERO, clock(now));
        }
    }

    /// The sum of all plugins' scores for each node, each plugin from 0 to 100 times its weight; `None` where the pod
    /// doesn't fit.
    fn totals(&mut self, bitstream: u32, nodes: &mut [Node], cpu: &[u64], now: SimTime) -> Vec<Option<f64>> {
        for node in nodes.iter_mut() {
            node.facts(now);
        }
        let candidates: Vec<Candidate<'_>> = nodes.iter().map(|node| Some(node.known().known())).collect();
        let asked = Requirement {
            bitstreams: vec![BitstreamId::Digest(digest(bitstream))],
            ..Requirement::default()
        };
        let at = clock(now);
        let expected = self.expected(&candidates, now);
        let fits = filter(&asked, &candidates, &self.rules, at);
        let scores = prioritize_ranking(self.ranking, &asked, &candidates, &expected, &self.rules, at);
        let scale = 100.0 / f64::from(self.rules.max_score.get());
        let others = self.others(cpu);
        scores
            .scores()
            .iter()
            .zip(&fits.verdicts)
            .zip(others)
            .map(|((score, verdict), others)| verdict.ok().map(|()| f64::from(*score) * scale + others))
            .collect()
    }

    fn expected(&mut self, candidates: &[Candidate<'_>], now: SimTime) -> Vec<Expected> {
        if self.rules.anti_herd == AntiHerd::Off || self.expected.pods() == 0 {
            return Vec::new();
        }
        let at = clock(now);
        let received = |node: usize| candidates.get(node).copied().flatten()?.facts.knowledge.fresh(at);
        if now - self.learnt >= LEARN {
            let state = |name: &str| received(name.strip_prefix("node-")?.parse().ok()?);
            let learnt = self.expected.learnt(state, at);
            self.expected.expect(&learnt);
            self.learnt = now;
        }
        let names = self.names.iter().enumerate();
        names
            .map(|(node, name)| {
                let on = |received| self.expected.on(name, received, &AskedKind::ANY, at);
                received(node).map_or_else(Expected::default, on)
            })
            .collect()
    }

    fn others(&self, cpu: &[u64]) -> Vec<f64> {
        match self.others {
            Others::Nothing => vec![0.0; cpu.len()],
            Others::Placed => {
                let score = |placed: &u32| f64::from(PODS.saturating_sub(*placed) * 100 / PODS);
                self.placed.iter().map(|placed| score(placed) * self.others_weight).collect()
            }
            Others::CpuUsage | Others::CpuUsageInTies => {
                let weight = match self.others {
                    // Small enough that the sum over all ranks is less than one point of the extender's score.
                    Others::CpuUsageInTies => 1e-6,
                    _ => self.others_weight,
                };
                let ranks = fpga_core::rank::ranks(cpu);
                ranks.iter().map(|rank| (rank * 100.0).floor() * weight).collect()
            }
        }
    }
}

fn uid(unit: u32, replica: u32) -> String {
    format!("pod-{unit}-{replica}")
}
