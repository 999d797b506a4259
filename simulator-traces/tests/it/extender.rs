//! Checks that the simulator and the live extender choose the same node for the same states. The simulator's placer
//! is compared with the extender's answers; the extender gets states as collectors publish them, and pods as the API
//! server shows them. The test adds up scores and breaks ties as kube-scheduler does.
use bytes::Bytes;
use fpga_core::bitstream::BitstreamId;
use fpga_core::expected_load::PlacedPod;
use fpga_core::node_state::{ANNOTATION, encode};
use fpga_core::signals::AskedKind;
use fpga_core::staleness::Knowledge;
use fpga_core::units::{Millis, MonotonicTime, WallTime};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::{Clock, Moment};
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::metrics::Verb;
use fpga_scheduler_extender::verbs;
use fpga_sim::placement::Scenario;
use fpga_sim::placement::collector::{Collector, clock, digest};
use fpga_sim::placement::jobs::Job;
use fpga_sim::placement::node::Node;
use fpga_sim::placement::placer::Placer;
use fpga_sim::time::{Micros, SimTime};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most pods per node, the default of kubelets.
const PODS: u32 = 110;
/// Interval at which the extender learns the usage of pods.
const LEARN: Micros = Micros(5_000_000);

#[derive(Debug, Clone)]
struct Setting {
    nodes: u32,
    slots: u32,
    weights: &'static str,
    max_score: u32,
    anti_herd: &'static str,
    others: &'static str,
    ties: &'static str,
    interval_s: u32,
    /// Time from publication to receipt, in milliseconds; neither side counts it towards a state's age.
    delay_ms: u32,
}

#[derive(Debug, Clone)]
enum Event {
    /// A request begins on a node, or waits if all slots are in use.
    Begins { node: u32, bitstream: u32 },
    /// The request that has run the longest on a node ends.
    Ends { node: u32 },
    /// A pod that uses this bitstream is to be placed.
    Placed { bitstream: u32 },
    /// The oldest pod is deleted.
    Gone,
}

struct Running {
    node: usize,
    slot: u32,
    bitstream: u32,
    since: SimTime,
}

/// The simulated cluster, and a live extender that gets the same states.
struct Twins {
    setting: Setting,
    placer: Placer,
    nodes: Vec<Node>,
    running: Vec<Running>,
    uses: u64,
    now: SimTime,
    live: App,
    live_now: Arc<AtomicU64>,
    learnt: SimTime,
    /// Unit and node of each pod, oldest first.
    pods: Vec<(u32, u32)>,
    units: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Filtered {
    node_names: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Priority {
    host: String,
    score: u32,
}

impl Twins {
    /// Both sides use the setting, but the extender has the weights `live_weights`.
    fn new(setting: Setting, live_weights: &str) -> Self {
        let Setting { slots, weights, max_score, anti_herd, others, ties, interval_s, delay_ms, .. } =
            &setting;
        let scenario: Scenario = toml::from_str(&format!(
            "kind = \"placement\"\n[placement]\nweights = \"{weights}\"\nmax_score = {max_score}\n\
             anti_herd = \"{anti_herd}\"\nothers = \"{others}\"\nties = \"{ties}\"\n\
             [freshness]\ninterval_s = {interval_s}\ndelay_ms = {delay_ms}\n"
        ))
        .unwrap();
        let node = |_| {
            let collector =
                Collector::new(&scenario.freshness, *slots, "board", scenario.cluster.reconfigures).unwrap();
            Node::new(NonZeroU32::new(*slots).unwrap(), collector, (Micros::from_millis(10.0), 0.0))
        };
        let rules = fpga_core::decide::DecisionRules {
            weights: live_weights.parse().unwrap(),
            max_score: max_score.to_string().parse().unwrap(),
            anti_herd: anti_herd.parse().unwrap(),
            ..fpga_core::decide::DecisionRules::default()
        };
        let live_now = Arc::new(AtomicU64::new(clock(SimTime::BEGIN).0));
        let read = {
            let now = Arc::clone(&live_now);
            move || {
                let now = now.load(Ordering::Relaxed);
                Moment { now: MonotonicTime(now), wall: WallTime(now) }
            }
        };
        let twins = Self {
            placer: Placer::new(&scenario.placement, setting.nodes as usize, 1).unwrap(),
            nodes: (0..setting.nodes).map(node).collect(),
            running: Vec::new(),
            uses: 0,
            now: SimTime::BEGIN,
            live: App::new(rules, Clock::new(read)),
            live_now,
            learnt: SimTime::BEGIN,
            pods: Vec::new(),
            units: 0,
            setting,
        };
        // The extender knows the nodes before their first states, so that states are seen as changes.
        for node in 0..twins.setting.nodes {
            twins.live.index.apply(object(node, None), Shown::Listed, twins.live.clock.read());
        }
        twins.live.index.listed(&(0..twins.setting.nodes).map(name).collect());
        twins.live.expectations.listed(&HashSet::new());
        twins
    }

    /// Applies an event, `gap` after the last one. Returns for a placement the simulator's choice and the extender's
    /// best nodes.
    fn step(&mut self, gap: Micros, event: &Event) -> Option<(u32, Vec<u32>)> {
        self.now += gap;
        self.live_now.store(clock(self.now).0, Ordering::Relaxed);
        match *event {
            Event::Begins { node, bitstream } => self.begin((node % self.setting.nodes) as usize, bitstream),
            Event::Ends { node } => self.end((node % self.setting.nodes) as usize),
            Event::Placed { bitstream } => return Some(self.place(bitstream)),
            Event::Gone if self.pods.is_empty() => {}
            Event::Gone => {
                let (unit, node) = self.pods.remove(0);
                self.placer.remove(unit, 0, node);
                self.live.expectations.gone(&uid(unit));
            }
        }
        None
    }

    fn begin(&mut self, index: usize, bitstream: u32) {
        let (node, now) = (&mut self.nodes[index], self.now);
        if !node.has_room() {
            let shown = node.shown();
            node.collector.before_change(now, || shown);
            let (function, unit) = (bitstream, bitstream);
            let job = Job {
                at: now,
                function,
                unit,
                bitstream,
                cpu: Micros::ZERO,
                board: Some(Micros::ZERO),
                picker: 0,
            };
            node.waiting.push_back(job);
            return;
        }
        let taken = node.take(bitstream, &mut self.uses, now, |_, _| 0).unwrap();
        if !taken.resident {
            node.collector.loaded(bitstream, Micros::from_millis(10.0), now);
        }
        self.running.push(Running { node: index, slot: taken.slot, bitstream, since: now });
    }

    fn end(&mut self, index: usize) {
        let Some(place) = self.running.iter().position(|running| running.node == index) else { return };
        let Running { slot, bitstream, since, .. } = self.running.remove(place);
        let node = &mut self.nodes[index];
        node.release(slot, &mut self.uses, self.now);
        node.collector.ran(bitstream, self.now - since, self.now);
        if let Some(job) = node.waiting.pop_front() {
            self.begin(index, job.bitstream);
        }
    }

    fn place(&mut self, bitstream: u32) -> (u32, Vec<u32>) {
        self.publish();
        let unit = self.units;
        self.units += 1;
        let best = self.live_best(unit, bitstream);
        let cpu = vec![0; self.nodes.len()];
        let chosen = self.placer.place(unit, bitstream, 1, &mut self.nodes, &cpu, self.now);
        let node = *chosen.first().unwrap();
        let pod = PlacedPod {
            uid: uid(unit),
            owner: Some(format!("unit-{unit}")),
            node: name(node),
            kind: AskedKind::ANY,
            bitstreams: vec![BitstreamId::Digest(digest(bitstream))],
        };
        self.live.expectations.bound(&pod, Millis::ZERO, clock(self.now));
        self.pods.push((unit, node));
        (node, best)
    }

    /// Gives the extender the states that collectors would have published by now: as annotations if the setting has
    /// an interval, else as streams.
    fn publish(&mut self) {
        let at = self.live.clock.read();
        for (number, node) in (0..).zip(&mut self.nodes) {
            let Knowledge::Known(received) = &node.facts(self.now).knowledge else { continue };
            let received_at = Moment { now: received.received_at(), ..at };
            let state = received.state().clone();
            if self.setting.interval_s == 0 {
                let taken = self.live.index.stream(&name(number), &name(number), state, received_at);
                assert!(taken.is_ok(), "{taken:?}");
            } else {
                let text = encode(&state).unwrap().text;
                self.live.index.apply(object(number, Some(text)), Shown::Changed, received_at);
            }
        }
        // The extender learns every few seconds; the test does so at the same times as the simulator.
        if !self.pods.is_empty() && self.now - self.learnt >= LEARN {
            self.live.expectations.learn(&self.live.index, at.now);
            self.learnt = self.now;
        }
    }

    /// The nodes among which kube-scheduler would choose: filter, prioritize, and the greatest sum with its own
    /// plugins' scores.
    fn live_best(&self, unit: u32, bitstream: u32) -> Vec<u32> {
        let names: Vec<String> = (0..self.setting.nodes).map(name).collect();
        let request = |names: &[String]| {
            json!({ "NodeNames": names, "Pod": { "metadata": {
                "name": uid(unit), "namespace": "default", "uid": uid(unit),
                "annotations": { "fpga-scheduling.io/bitstreams": digest(bitstream).to_string() },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r",
                    "uid": format!("unit-{unit}"), "controller": true }],
            }}})
            .to_string()
        };
        let ask = |verb, names: &[String]| -> Vec<u8> {
            verbs::answer(&self.live, verb, &Bytes::from(request(names))).unwrap().body.into()
        };
        let Filtered { node_names } = serde_json::from_slice(&ask(Verb::Filter, &names)).unwrap();
        let scores: Vec<Priority> = serde_json::from_slice(&ask(Verb::Prioritize, &node_names)).unwrap();
        let total = |priority: &Priority| {
            let node: u32 = priority.host.strip_prefix("node-").unwrap().parse().unwrap();
            let placed = u32::try_from(self.pods.iter().filter(|(_, on)| *on == node).count()).unwrap();
            let own = match self.setting.others {
                "placed" => (PODS - placed) * 100 / PODS,
                _ => 0,
            };
            // The division is exact: both greatest scores divide 100.
            (priority.score * (100 / self.setting.max_score) + own, node)
        };
        let totals: Vec<(u32, u32)> = scores.iter().map(total).collect();
        let most = totals.iter().map(|(total, _)| *total).max();
        totals.into_iter().filter(|(total, _)| Some(*total) == most).map(|(_, node)| node).collect()
    }
}

fn name(node: u32) -> String {
    format!("node-{node}")
}

fn uid(unit: u32) -> String {
    format!("pod-{unit}-0")
}

fn object(node: u32, state: Option<String>) -> ObjectMeta {
    ObjectMeta {
        name: Some(name(node)),
        uid: Some(name(node)),
        annotations: state.map(|text| [(ANNOTATION.to_owned(), text)].into()),
        ..ObjectMeta::default()
    }
}

prop_compose! {
    fn any_setting()(
        (nodes, slots) in (1_u32..7, 1_u32..4),
        weights in prop::sample::select(vec!["0-0-0", "1-2-2", "4-1-1", "1-0-0", "1-2-2-1-1-1", "0-1-0-2-3-1"]),
        max_score in prop::sample::select(vec![10, 100]),
        anti_herd in prop::sample::select(vec!["on", "off"]),
        others in prop::sample::select(vec!["nothing", "placed"]),
        ties in prop::sample::select(vec!["first", "random"]),
        (interval_s, delay_ms) in prop::sample::select(vec![(0, 0), (1, 0), (10, 0), (0, 1_500), (1, 300), (10, 7_000)]),
    ) -> Setting {
        Setting { nodes, slots, weights, max_score, anti_herd, others, ties, interval_s, delay_ms }
    }
}

fn any_events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        4 => (0_u32..7, 0_u32..6).prop_map(|(node, bitstream)| Event::Begins { node, bitstream }),
        4 => (0_u32..7).prop_map(|node| Event::Ends { node }),
        4 => (0_u32..6).prop_map(|bitstream| Event::Placed { bitstream }),
        1 => Just(Event::Gone),
    ];
    // Gaps range from zero to more than the time for which a state is fresh, in milliseconds.
    let gap = prop_oneof![Just(0_u64), 1_u64..2_000, 1_000_u64..20_000, Just(400_000)];
    prop::collection::vec((gap, event), 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn the_simulator_and_the_live_extender_choose_the_same_node(
        setting in any_setting(), events in any_events(),
    ) {
        let mut twins = Twins::new(setting.clone(), setting.weights);
        for (gap, event) in events {
            let Some((chosen, best)) = twins.step(Micros(gap * 1_000), &event) else { continue };
            match setting.ties {
                "first" => prop_assert_eq!(Some(&chosen), best.first(), "of {:?}", best),
                _ => prop_assert!(best.contains(&chosen), "{} is none of {:?}", chosen, best),
            }
        }
    }
}

#[test]
fn an_extender_with_other_weights_is_told_from_the_simulated_one() {
    let setting = Setting {
        nodes: 5,
        slots: 2,
        weights: "1-0-0",
        max_score: 100,
        anti_herd: "off",
        others: "nothing",
        ties: "first",
        interval_s: 1,
        delay_ms: 300,
    };
    let other_choices = |live_weights: &str| {
        let mut twins = Twins::new(setting.clone(), live_weights);
        let events = (0_u32..200).flat_map(|turn| {
            let (node, bitstream) = (turn * turn % 5, turn % 4);
            [Event::Begins { node, bitstream }, Event::Placed { bitstream }, Event::Ends { node }]
        });
        let choices = events.filter_map(|event| twins.step(Micros(700_000), &event));
        choices.filter(|(chosen, best)| best.first() != Some(chosen)).count()
    };
    assert_eq!(other_choices("1-0-0"), 0);
    assert!(other_choices("0-1-0") > 20, "{}", other_choices("0-1-0"));
}
