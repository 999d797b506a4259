//! The measurements of a run: waits and cold starts, usage of the window for each node, and the invariants of every
//! run.

use super::node::Node;
use crate::error::ScenarioError;
use crate::outcome::{Outcome, Table};
use crate::time::{Micros, SimTime};
use crate::trace::statistics::quantile;
use std::collections::VecDeque;

/// Number of looks at the nodes per window.
const LOOKS: u64 = 10;
/// Bins of the histogram of waits per factor of ten.
const BINS: f64 = 100.0;

/// A node's counters when the warm-up ended, with its slot time, loading time and processor time until then.
type Before = (super::node::Done, [u64; 3]);

/// The measurements of a run.
#[derive(Debug)]
pub struct Measures {
    look: Micros,
    window: Micros,
    looks_per_sample: u64,
    looks: u64,
    next_look: SimTime,
    /// End of the warm-up. Earlier events don't count.
    counts_from: SimTime,
    /// For each look in the window and each node: slot time, loading time and processor time so far, in microseconds.
    history: VecDeque<Vec<[u64; 3]>>,
    samples: Samples,
    /// The counters of each node when the warm-up ended; `None` before.
    before: Option<Vec<Before>>,
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that use a board.
    pub board_requests: u64,
    /// Number of requests whose unit got no board.
    pub refused: u64,
    /// Number of requests that had to load their bitstream.
    pub cold: u64,
    waits: Vec<u64>,
    wait_sum: Micros,
    wait_most: Micros,
    waited: u64,
    law: Law,
}

/// Samples of all nodes: medians, and sums of coefficients of variation with their counts.
#[derive(Debug, Default)]
struct Samples {
    usage_median: Vec<f64>,
    cpu_median: Vec<f64>,
    usage_variation: (f64, u64),
    reconfiguration_variation: (f64, u64),
}

/// Little's law in whole microseconds: the area under the number of requests in the system equals the sum of the
/// times that the requests spend in it.
#[derive(Debug, Default)]
struct Law {
    inside: u64,
    area: u128,
    since: SimTime,
    stays: u128,
    came: u64,
    left: u64,
}

impl Measures {
    /// Measurements before the first event.
    #[must_use]
    pub fn new(window: Micros, sample: Micros, warm_up: Micros, begin: SimTime) -> Self {
        let look = Micros((window.0 / LOOKS).max(1));
        Self {
            look,
            window,
            looks_per_sample: (sample.0 / look.0).max(1),
            looks: 0,
            next_look: begin + look,
            counts_from: begin + warm_up,
            history: VecDeque::new(),
            samples: Samples::default(),
            // Without a warm-up all counters start at zero.
            before: (warm_up == Micros::ZERO).then(Vec::new),
            requests: 0,
            board_requests: 0,
            refused: 0,
            cold: 0,
            waits: Vec::new(),
            wait_sum: Micros::ZERO,
            wait_most: Micros::ZERO,
            waited: 0,
            law: Law::default(),
        }
    }

    /// Time of the next look at the nodes.
    #[must_use]
    pub fn next_look(&self) -> SimTime {
        self.next_look
    }

    /// Whether events at `now` count.
    #[must_use]
    pub fn counts(&self, now: SimTime) -> bool {
        now >= self.counts_from
    }

    /// Samples the nodes. `serial` has the slot time of each node if requests don't occupy slots; it may exceed the
    /// time there is.
    ///
    /// # Errors
    /// [`ScenarioError::Invariant`] if a node was used for more slot time than it has, or its slots are inconsistent.
    pub fn look(&mut self, nodes: &[Node], serial: Option<&[Micros]>) -> Result<(), ScenarioError> {
        let now = self.next_look;
        self.next_look += self.look;
        self.looks += 1;
        let so_far: Vec<[u64; 3]> = nodes
            .iter()
            .enumerate()
            .map(|(index, node)| {
                let usage = match serial {
                    Some(usage) => usage[index],
                    None => node.busy_time(now),
                };
                [usage.0, node.done.reconfiguration.0, node.cpu.0]
            })
            .collect();
        let first = if self.history.len() >= usize::try_from(LOOKS).unwrap_or(0) {
            self.history.pop_front().unwrap_or_else(|| vec![[0; 3]; nodes.len()])
        } else {
            vec![[0; 3]; nodes.len()]
        };
        for ((node, now_is), was) in nodes.iter().zip(&so_far).zip(&first) {
            let used = now_is[0] - was[0];
            if serial.is_none() && used > self.window.0 * node.view.len() as u64 {
                return Err(ScenarioError::Invariant(format!(
                    "{} of slot time in a window of {} with {} slots",
                    Micros(used),
                    self.window,
                    node.view.len()
                )));
            }
            if node.busy as usize > node.view.len() || !node.is_consistent() {
                return Err(ScenarioError::Invariant("slots in use and slots taken differ".to_owned()));
            }
        }
        if now >= self.counts_from && self.before.is_none() {
            self.before =
                Some(nodes.iter().zip(&so_far).map(|(node, so_far)| (node.done, *so_far)).collect());
        }
        if now >= self.counts_from && self.looks.is_multiple_of(self.looks_per_sample) {
            let of = |which: usize| -> Vec<f64> {
                so_far.iter().zip(&first).map(|(is, was)| (is[which] - was[which]) as f64 / 1e6).collect()
            };
            self.samples.add(of(0), &of(1), of(2));
        }
        self.history.push_back(so_far);
        Ok(())
    }

    /// Processor time of each node in the window up to now, in microseconds.
    #[must_use]
    pub fn recent_cpu(&self, nodes: &[Node]) -> Vec<u64> {
        let was = self.history.front();
        let before = |index: usize| was.and_then(|was| was.get(index)).map_or(0, |was| was[2]);
        nodes.iter().enumerate().map(|(index, node)| node.cpu.0 - before(index)).collect()
    }

    /// Records the arrival of a request that uses a board.
    pub fn arrived(&mut self, now: SimTime) {
        self.law.step(now);
        self.law.inside += 1;
        self.law.came += 1;
    }

    /// Records that a request began after `wait`.
    pub fn began(&mut self, wait: Micros, counts: bool) {
        if !counts {
            return;
        }
        self.waited += 1;
        self.wait_sum += wait;
        self.wait_most = self.wait_most.max(wait);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let bin = if wait.0 == 0 { 0 } else { 1 + (libm::log10(wait.0 as f64) * BINS) as usize };
        if self.waits.len() <= bin {
            self.waits.resize(bin + 1, 0);
        }
        self.waits[bin] += 1;
    }

    /// Records that a request which arrived at `came` has left the board.
    pub fn left(&mut self, came: SimTime, now: SimTime) {
        self.law.step(now);
        self.law.inside -= 1;
        self.law.left += 1;
        self.law.stays += u128::from((now - came).0);
    }

    /// Ends the run: checks the invariants and computes the outcome.
    ///
    /// # Errors
    /// [`ScenarioError::Invariant`] if an invariant does not hold.
    pub fn finish(&mut self, nodes: &[Node], now: SimTime, serial: bool) -> Result<Outcome, ScenarioError> {
        self.law.check()?;
        let service: u64 = nodes.iter().map(|node| node.done.service.0).sum();
        let busy: u64 = nodes.iter().map(|node| node.busy_time(now).0).sum();
        if !serial && service != busy {
            return Err(ScenarioError::Invariant(format!(
                "requests asked for {} of slot time, slots were used for {}",
                Micros(service),
                Micros(busy)
            )));
        }
        if nodes.iter().map(|node| node.done.started).sum::<u64>() != self.law.came {
            return Err(ScenarioError::Invariant("not every request that came has begun".to_owned()));
        }
        Ok(self.outcome(nodes, now))
    }

    fn outcome(&mut self, nodes: &[Node], now: SimTime) -> Outcome {
        let mut outcome = Outcome::default();
        let mut before = self.before.take().unwrap_or_default();
        before.resize(nodes.len(), Default::default());
        let per_node = |value: &dyn Fn(&Node, &Before) -> f64| -> Vec<f64> {
            nodes.iter().zip(&before).map(|(node, before)| value(node, before)).collect()
        };
        let loads = sorted(per_node(&|node, before| (node.done.cold - before.0.cold) as f64));
        let usage = per_node(&|node, before| (node.done.service.0 - before.0.service.0) as f64);
        let loading =
            per_node(&|node, before| (node.done.reconfiguration.0 - before.0.reconfiguration.0) as f64);
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { part as f64 / of as f64 };
        outcome.push("requests", self.requests as f64);
        outcome.push("board_requests", self.board_requests as f64);
        outcome.push("refused_requests", self.refused as f64);
        outcome.push("cold_starts", self.cold as f64);
        outcome.push("cold_share_of_all", share(self.cold, self.requests));
        outcome.push("cold_share_of_board_requests", share(self.cold, self.board_requests));
        outcome.push("reconfigurations_per_node_median", quantile(&loads, 0.5));
        outcome.push("reconfigurations_per_node_mean", loads.iter().sum::<f64>() / loads.len().max(1) as f64);
        outcome.push("wait_mean_ms", self.wait_sum.secs() * 1e3 / (self.waited.max(1)) as f64);
        outcome.push("wait_p99_ms", self.wait_quantile(0.99) * 1e3);
        outcome.push("wait_p999_ms", self.wait_quantile(0.999) * 1e3);
        outcome.push("wait_most_ms", self.wait_most.secs() * 1e3);
        outcome.series = vec![series_of_nodes(nodes, &before), self.series_of_samples()];
        let samples = &mut self.samples;
        samples.usage_median.sort_unstable_by(f64::total_cmp);
        samples.cpu_median.sort_unstable_by(f64::total_cmp);
        let medians = &samples.usage_median;
        for (name, at) in
            [("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("p95", 0.95), ("p99", 0.99), ("most", 1.0)]
        {
            outcome.push(&format!("usage_{name}_s"), quantile(medians, at));
        }
        outcome.push("usage_mean_s", mean(medians));
        outcome.push("usage_samples", medians.len() as f64);
        outcome.push("fpga_minus_cpu_median_s", quantile(medians, 0.5) - quantile(&samples.cpu_median, 0.5));
        outcome.push("fpga_minus_cpu_mean_s", mean(medians) - mean(&samples.cpu_median));
        let over = |(sum, count): (f64, u64)| if count == 0 { 0.0 } else { sum / count as f64 };
        outcome.push("usage_variation", over(samples.usage_variation));
        outcome.push("reconfiguration_variation", over(samples.reconfiguration_variation));
        outcome.push("usage_variation_of_totals", variation(&usage).unwrap_or(0.0));
        outcome.push("reconfiguration_variation_of_totals", variation(&loading).unwrap_or(0.0));
        let slots: usize = nodes.iter().map(|node| node.view.len()).sum();
        let time = (now - self.counts_from).0.max(1) as f64;
        outcome.push("utilisation", usage.iter().sum::<f64>() / (slots as f64 * time));
        outcome
    }

    /// The medians over the nodes at each sample.
    fn series_of_samples(&self) -> Table {
        let medians = self.samples.usage_median.iter().zip(&self.samples.cpu_median).enumerate();
        let rows = medians
            .map(|(number, (usage, cpu))| vec![number.to_string(), usage.to_string(), cpu.to_string()]);
        Table::series("samples", &["sample", "usage_median_s", "cpu_median_s"], rows.collect())
    }

    fn wait_quantile(&self, share: f64) -> f64 {
        let wanted = share * self.waited as f64;
        let mut seen = 0.0;
        for (bin, count) in self.waits.iter().enumerate() {
            seen += *count as f64;
            if seen >= wanted {
                return if bin == 0 { 0.0 } else { libm::pow(10.0, (bin as f64 - 0.5) / BINS) / 1e6 };
            }
        }
        0.0
    }
}

/// The totals of each node.
fn series_of_nodes(nodes: &[Node], before: &[Before]) -> Table {
    let rows = nodes.iter().zip(before).enumerate().map(|(number, (node, (before, _)))| {
        let secs = |is: Micros, was: Micros| (is - was).secs().to_string();
        vec![
            number.to_string(),
            secs(node.done.service, before.service),
            secs(node.done.reconfiguration, before.reconfiguration),
            (node.done.started - before.started).to_string(),
            (node.done.cold - before.cold).to_string(),
        ]
    });
    let columns = ["node", "usage_s", "reconfiguration_s", "board_requests", "cold_starts"];
    Table::series("nodes", &columns, rows.collect())
}

impl Samples {
    fn add(&mut self, usage: Vec<f64>, loading: &[f64], cpu: Vec<f64>) {
        for (sum, values) in
            [(&mut self.usage_variation, &usage[..]), (&mut self.reconfiguration_variation, loading)]
        {
            if let Some(variation) = variation(values) {
                *sum = (sum.0 + variation, sum.1 + 1);
            }
        }
        self.usage_median.push(quantile(&sorted(usage), 0.5));
        self.cpu_median.push(quantile(&sorted(cpu), 0.5));
    }
}

impl Law {
    fn step(&mut self, now: SimTime) {
        self.area += u128::from((now - self.since).0) * u128::from(self.inside);
        self.since = now;
    }

    fn check(&self) -> Result<(), ScenarioError> {
        if self.came != self.left || self.inside != 0 {
            return Err(ScenarioError::Invariant(format!("{} requests came, {} left", self.came, self.left)));
        }
        if self.area != self.stays {
            return Err(ScenarioError::Invariant(format!(
                "Little's law: area {} is not the sum of stays {}",
                self.area, self.stays
            )));
        }
        Ok(())
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn mean(values: &[f64]) -> f64 {
    if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
}

/// The coefficient of variation: standard deviation divided by mean; `None` if the mean is zero.
fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values);
    if mean <= 0.0 {
        return None;
    }
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    Some(libm::sqrt(squares / values.len() as f64) / mean)
}

#[cfg(test)]
mod tests;
