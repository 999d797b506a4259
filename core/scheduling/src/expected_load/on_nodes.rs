//! What decisions ask: the load that is expected on each of thousands of nodes.

use super::claims::overlap;
use super::forecast::{LinearForecast, inputs};
use super::{ASSUMED_POD_TTL, ArenaKey, AssumedShare, Expected, ExpectedLoads, NodePods, whole};
use crate::node_facts::KnownNode;
use crate::signals::{AskedKind, BoardMix};
use crate::staleness::{Brief, Received};
use crate::units::MonotonicTime;

/// A decision, with what is the same on all nodes.
struct Decision<'d> {
    loads: &'d ExpectedLoads,
    /// UID of the pod. Its own assumption does not count.
    pod: &'d str,
    kind: &'d AskedKind,
    now: MonotonicTime,
    /// Hashes of the inputs that all forecasts share: for boards of the kind, and for boards of any kind.
    of_kind: u64,
    of_any: u64,
}

impl ExpectedLoads {
    /// The usage that is still expected on the boards of the kind `kind` of a node with the given state.
    #[must_use]
    pub fn on(&self, node: &str, received: &Received, kind: &AskedKind, now: MonotonicTime) -> Expected {
        let Some((index, pods)) = self.nodes.get(node) else { return Expected::default() };
        let decision = Decision::of(self, "", kind, now);
        let known = self.forecasts.read().get(index).copied();
        let forecast = known.filter(|forecast| decision.may_use(forecast, received)).unwrap_or_else(|| {
            let forecast = decision.forecast(pods, received);
            self.forecasts.put(&[(index, forecast)]);
            forecast
        });
        decision.expected(pods, received, &forecast)
    }

    /// The usage that is still expected on the boards of the kind `kind` of each node, for a decision about the pod
    /// with the UID `asking`, whose own assumption does not count. On nodes without fresh state nothing is expected.
    /// The result is empty if nothing is expected anywhere.
    ///
    /// The keys cache the lookups of the names; the caller must use a key for one name only.
    #[must_use]
    pub fn on_nodes<'n>(
        &self,
        asking: &str,
        nodes: impl Iterator<Item = Option<(&'n str, &'n ArenaKey, KnownNode<'n>)>>,
        kind: &AskedKind,
        now: MonotonicTime,
    ) -> Vec<Expected> {
        if self.pods() == 0 && self.assumed_pods() == 0 {
            return Vec::new();
        }
        let decision = Decision::of(self, asking, kind, now);
        let forecasts = self.forecasts.read();
        let mut renewed = Vec::new();
        let mut on = |(name, key, node): (&str, &ArenaKey, KnownNode<'n>)| {
            let brief = node.fresh(now)?;
            let (index, pods) = self.nodes.at(key, name)?;
            let known = forecasts.get(index).filter(|forecast| decision.may_use(forecast, brief));
            if let Some(forecast) = known {
                return Some(decision.expected(pods, brief, forecast));
            }
            let forecast = decision.forecast(pods, node.facts.knowledge.received()?);
            renewed.push((index, forecast));
            Some(decision.expected(pods, brief, &forecast))
        };
        let expected = nodes.map(|node| node.and_then(&mut on).unwrap_or_default()).collect();
        drop(forecasts);
        if !renewed.is_empty() {
            self.forecasts.put(&renewed);
        }
        expected
    }
}

impl<'d> Decision<'d> {
    fn of(loads: &'d ExpectedLoads, pod: &'d str, kind: &'d AskedKind, now: MonotonicTime) -> Self {
        let of = |kind: &AskedKind| inputs(&loads.means, kind);
        Self { loads, pod, kind, now, of_kind: of(kind), of_any: of(&AskedKind::ANY) }
    }

    /// The kind of the boards that the pod runs on, and the hash of the inputs of their forecast. If all boards are alike,
    /// all pods run on all of them, and one forecast serves every requested kind.
    fn on_boards(&self, brief: &Brief) -> (&AskedKind, u64) {
        match brief.signals().board_mix() {
            BoardMix::Uniform => (&AskedKind::ANY, self.of_any ^ brief.fingerprint()),
            BoardMix::Alike | BoardMix::Mixed | BoardMix::None => {
                (self.kind, self.of_kind ^ brief.fingerprint())
            }
        }
    }

    fn may_use(&self, forecast: &LinearForecast, brief: &Brief) -> bool {
        forecast.is_valid(self.on_boards(brief).1, self.now)
    }

    fn forecast(&self, pods: &NodePods, received: &Received) -> LinearForecast {
        let (kind, inputs) = self.on_boards(received);
        LinearForecast::of(&pods.pods, received, &self.loads.means, (kind, inputs), self.now)
    }

    /// The usage of the bound pods by their forecast, and of the assumed pods.
    fn expected(&self, pods: &NodePods, brief: &Brief, forecast: &LinearForecast) -> Expected {
        let (mut usage, unknown) = forecast.at(self.now);
        let mut expected =
            Expected { unknown, shown: forecast.shown, pods: forecast.pods, ..Expected::default() };
        let counts = |pod: &&AssumedShare| self.now - pod.since < ASSUMED_POD_TTL && *pod.uid != *self.pod;
        for pod in pods.assumed.iter().filter(counts) {
            let share = pod.share * overlap(brief.signals(), &pod.kind, self.on_boards(brief).0);
            expected.pods += share;
            match self.loads.means.expected(pod.owner.as_deref()) {
                Some(mean) => usage += mean * share,
                None => expected.unknown += share,
            }
        }
        expected.usage = whole(usage);
        expected
    }
}
