//! Max-min fair sharing of the ports of network cards and DMA engines (P-6). The network is a fat tree, in which only
//! the nodes' ports limit rates.

/// A flow's use of a port.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    /// Index of the port.
    pub port: usize,
    /// Bytes through the port per byte of the flow, above 0.
    pub weight: f64,
}

/// Computes rates, and reuses its memory between computations.
#[derive(Debug, Default)]
pub struct Sharing {
    left: Vec<f64>,
    weight: Vec<f64>,
    open: Vec<u32>,
    active: Vec<usize>,
    flows_at: Vec<Vec<usize>>,
    frozen: Vec<bool>,
}

impl Sharing {
    /// Computes the max-min fair rate of each flow into `rates`: a higher rate of any flow would lower the rate of a
    /// flow that has no more. No rate exceeds `most`.
    pub fn rates<'a, F>(&mut self, capacity: &[f64], flows: F, most: f64, rates: &mut Vec<f64>)
    where
        F: Iterator<Item = &'a [Use]> + Clone,
    {
        let uses: Vec<&[Use]> = flows.collect();
        self.begin(capacity, &uses);
        rates.clear();
        rates.resize(uses.len(), most);
        let mut thawed = uses.len();
        while thawed > 0 {
            let level = |port: usize| self.left[port] / self.weight[port];
            let tightest = self
                .active
                .iter()
                .copied()
                .filter(|port| self.open[*port] > 0)
                .map(|port| (level(port), port))
                .min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((level, port)) = tightest.filter(|(level, _)| *level < most) else { break };
            for flow in std::mem::take(&mut self.flows_at[port]) {
                if std::mem::replace(&mut self.frozen[flow], true) {
                    continue;
                }
                rates[flow] = level;
                thawed -= 1;
                for crossed in uses[flow] {
                    self.left[crossed.port] = (self.left[crossed.port] - level * crossed.weight).max(0.0);
                    self.weight[crossed.port] -= crossed.weight;
                    self.open[crossed.port] -= 1;
                }
            }
        }
    }

    fn begin(&mut self, capacity: &[f64], uses: &[&[Use]]) {
        for port in self.active.drain(..) {
            self.flows_at[port].clear();
        }
        self.left.clear();
        self.left.extend_from_slice(capacity);
        self.weight.clear();
        self.weight.resize(capacity.len(), 0.0);
        self.open.clear();
        self.open.resize(capacity.len(), 0);
        self.flows_at.resize(capacity.len(), Vec::new());
        self.frozen.clear();
        self.frozen.resize(uses.len(), false);
        for (flow, crossed) in uses.iter().enumerate() {
            for Use { port, weight } in *crossed {
                if self.open[*port] == 0 {
                    self.active.push(*port);
                }
                self.open[*port] += 1;
                self.weight[*port] += weight;
                self.flows_at[*port].push(flow);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rates(capacity: &[f64], flows: &[Vec<Use>], most: f64) -> Vec<f64> {
        let mut rates = Vec::new();
        Sharing::default().rates(capacity, flows.iter().map(Vec::as_slice), most, &mut rates);
        rates
    }

    fn uses(ports: &[usize]) -> Vec<Use> {
        ports.iter().map(|port| Use { port: *port, weight: 1.0 }).collect()
    }

    #[test]
    fn the_textbook_line_is_shared_as_in_the_textbook() {
        // The three flows through port 0, of capacity 3, get 1 each; the fourth gets the remaining 9 of port 1.
        let flows = [uses(&[0]), uses(&[0]), uses(&[0, 1]), uses(&[1])];
        assert_eq!(rates(&[3.0, 10.0], &flows, f64::INFINITY), [1.0, 1.0, 1.0, 9.0]);
        assert_eq!(rates(&[3.0, 10.0], &flows, 2.0), [1.0, 1.0, 1.0, 2.0]);
        assert_eq!(rates(&[3.0, 10.0], &[uses(&[0])], f64::INFINITY), [3.0]);
    }

    #[test]
    fn a_flow_that_returns_less_takes_less_of_the_way_back() {
        let half = vec![Use { port: 0, weight: 0.5 }];
        assert_eq!(rates(&[3.0], &[half.clone(), half], f64::INFINITY), [3.0, 3.0]);
    }

    proptest! {
        #[test]
        fn no_port_is_overfull_and_every_flow_is_held_by_a_port_where_none_is_faster(
            capacity in prop::collection::vec(0.5_f64..10.0, 6),
            flows in prop::collection::vec(prop::collection::btree_set(0_usize..6, 1..4), 1..30),
        ) {
            let flows: Vec<Vec<Use>> =
                flows.into_iter().map(|ports| uses(&ports.into_iter().collect::<Vec<_>>())).collect();
            let rates = rates(&capacity, &flows, f64::INFINITY);
            let at = |port: usize| {
                let rates = &rates;
                flows.iter().zip(rates).filter(move |(flow, _)| flow.iter().any(|one| one.port == port))
            };
            for (port, capacity) in capacity.iter().enumerate() {
                prop_assert!(at(port).map(|(_, rate)| rate).sum::<f64>() <= capacity * (1.0 + 1e-9));
            }
            for (flow, rate) in flows.iter().zip(&rates) {
                prop_assert!(flow.iter().any(|one| {
                    let full = at(one.port).map(|(_, rate)| rate).sum::<f64>() >= capacity[one.port] * (1.0 - 1e-9);
                    full && at(one.port).all(|(_, other)| *other <= rate * (1.0 + 1e-9))
                }), "{rate} of {flow:?} could rise: {rates:?}");
            }
        }
    }
}
