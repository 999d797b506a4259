//! Live and simulated measures side by side.

use super::machines::Machines;
use super::policy::Policy;
use fpga_sim::pool::measures::{Estimate, Measures};
use std::fmt;

/// Differences within which live and simulated figures agree: parts of ACT and TCT, and of all bytes for DLR.
const ACT: f64 = 0.08;
const TCT: f64 = 0.10;
const DLR: f64 = 0.03;

/// A seed under a policy.
#[derive(Debug, Clone)]
pub(super) struct Compared {
    /// What the live pool did.
    pub live: Measures,
    /// What the simulator did with the same jobs.
    pub simulated: Measures,
    /// Whether the run shows nothing, since the machine was too slow for the model.
    pub void: bool,
    /// How exact the model's times were kept.
    pub told: String,
}

/// The comparison of all policies.
#[derive(Debug)]
pub(super) struct Report {
    machines: Machines,
    of: Vec<(Policy, Vec<Compared>)>,
}

impl Report {
    pub fn new(machines: &Machines) -> Self {
        Self { machines: *machines, of: Vec::new() }
    }

    /// What is compared.
    pub fn head(&self) -> String {
        let Machines { nodes, boards, slots, jobs, load, smaller, slower, .. } = self.machines;
        format!(
            "Modelled boards: times of boards and network are those of a model, none is measured on a board.\n\
             {boards} nodes with a board of {slots} slots and {} without one; {jobs} jobs of each node, exponential \
             sizes, load {load}.\n\
             Sizes are 1/{smaller} of the paper's, rates 1/{slower}; pieces of {} bytes.",
            nodes - boards,
            self.machines.piece(),
        )
    }

    /// A seed, for people who wait.
    pub fn line(&self, policy: Policy, seed: u64, compared: &Compared) -> String {
        let Compared { live, simulated, void, told } = compared;
        let void = if *void { "VOID: " } else { "" };
        format!(
            "seed {seed} {policy}: ACT {:.2} s (fpga-sim {:.2}), TCT {:.2} s ({:.2}), DLR {:.3} ({:.3}); {void}{told}",
            live.act, simulated.act, live.tct, simulated.tct, live.dlr, simulated.dlr
        )
    }

    pub fn add(&mut self, policy: Policy, compared: Compared) {
        match self.of.iter_mut().find(|(of, _)| *of == policy) {
            Some((_, all)) => all.push(compared),
            None => self.of.push((policy, vec![compared])),
        }
    }

    /// How many times a policy's figure FIFO's is, seed by seed.
    fn gain(&self, policy: Policy, figure: impl Fn(&Compared) -> f64) -> String {
        let of = |wanted: Policy| self.of.iter().find(|(of, _)| *of == wanted).map(|(_, all)| all);
        let (Some(fifo), Some(own)) = (of(Policy::Fifo), of(policy)) else { return "-".to_owned() };
        let ratios: Vec<f64> = fifo.iter().zip(own).map(|(fifo, own)| figure(fifo) / figure(own)).collect();
        Estimate::of(&ratios).text(2)
    }
}

/// An estimate of a difference in hundredths, and whether its interval is within a tolerance.
fn difference(all: &[Compared], tolerance: f64, of: impl Fn(&Compared) -> f64) -> String {
    let estimate = Estimate::of(&all.iter().map(|compared| of(compared) * 100.0).collect::<Vec<_>>());
    let reach = estimate.mean.abs() + estimate.half.unwrap_or(0.0);
    let verdict = if reach <= tolerance * 100.0 { "agrees" } else { "differs" };
    format!("{} {verdict}", estimate.text(1))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = |all: &[Compared], of: &dyn Fn(&Compared) -> f64| {
            Estimate::of(&all.iter().map(of).collect::<Vec<_>>()).text(2)
        };
        writeln!(
            f,
            "| policy | ACT live, s | ACT fpga-sim, s | ACT, % | TCT live, s | TCT fpga-sim, s | TCT, % | DLR live | \
             DLR fpga-sim | DLR, points | FIFO's ACT live, × | fpga-sim, × | void runs |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")?;
        for (policy, all) in &self.of {
            let part = |of: fn(&Measures) -> f64| {
                move |compared: &Compared| of(&compared.live) / of(&compared.simulated) - 1.0
            };
            writeln!(
                f,
                "| {policy} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} of {} |",
                mean(all, &|compared| compared.live.act),
                mean(all, &|compared| compared.simulated.act),
                difference(all, ACT, part(|measures| measures.act)),
                mean(all, &|compared| compared.live.tct),
                mean(all, &|compared| compared.simulated.tct),
                difference(all, TCT, part(|measures| measures.tct)),
                mean(all, &|compared| compared.live.dlr),
                mean(all, &|compared| compared.simulated.dlr),
                difference(all, DLR, |compared| compared.live.dlr - compared.simulated.dlr),
                self.gain(*policy, |compared| compared.live.act),
                self.gain(*policy, |compared| compared.simulated.act),
                all.iter().filter(|compared| compared.void).count(),
                all.len(),
            )?;
        }
        write!(
            f,
            "\n± is half of the 95 % interval over seeds; the difference is live against fpga-sim for the same jobs. It \
             agrees if the whole interval is within {:.0} % of ACT, {:.0} % of TCT, and {:.0} points of DLR.",
            ACT * 100.0,
            TCT * 100.0,
            DLR * 100.0
        )
    }
}
