//! The readings that the paper's text allows, each as changes of a scenario's options.

/// A reading of the paper's text.
pub(super) struct Reading {
    pub(super) name: &'static str,
    pub(super) means: &'static str,
    /// Changes `PATH=VALUE` of [`CENTRAL`].
    pub(super) changes: &'static [&'static str],
    /// The weights and numbers of nodes for which the reading is shown.
    pub(super) detail: Detail,
}

/// The weights and numbers of nodes for which a reading is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// 0-0-0 and 1-2-2 on 10, 20 and 40 nodes.
    Main,
    /// The same, and all other weights and numbers of nodes of the paper.
    All,
}

/// The central reading: applications are placed once, requests are served one after the other, bitstreams stay, each
/// request draws whether it uses a board, each function has a bitstream, the score by processor usage is added to the
/// extender's score, nodes are sampled every 30 minutes.
pub(super) const CENTRAL: &str = "kind = \"placement\"\n[placement]\nunit = \"application\"\n\
                                  [slots]\nrequests = \"serial\"\n[measure]\nsample_s = 1800\n";

pub(super) const READINGS: [Reading; 16] = [
    Reading { name: "central", means: "as described above", changes: &[], detail: Detail::All },
    Reading {
        name: "functions",
        means: "functions are placed, not applications",
        changes: &["placement.unit=function"],
        detail: Detail::All,
    },
    Reading {
        name: "each request",
        means: "every request is placed anew",
        changes: &["placement.lifetime=request"],
        detail: Detail::All,
    },
    Reading {
        name: "each request, boards alone",
        means: "the same, the processor's score only tells equal nodes apart",
        changes: &["placement.lifetime=request", "placement.others=cpu-usage-in-ties"],
        detail: Detail::Main,
    },
    Reading {
        name: "each request, concurrent",
        means: "every request is placed anew; requests overlap and wait for slots",
        changes: &["placement.lifetime=request", "slots.requests=concurrent"],
        detail: Detail::Main,
    },
    Reading {
        name: "each request, processor thrice",
        means: "every request is placed anew; the processor's score counts three times the extender's",
        changes: &["placement.lifetime=request", "placement.others_weight=3"],
        detail: Detail::Main,
    },
    Reading {
        name: "idle 10 min",
        means: "an application is placed anew after 10 idle minutes",
        changes: &["placement.lifetime=idle"],
        detail: Detail::Main,
    },
    Reading {
        name: "idle 1 min",
        means: "an application is placed anew after one idle minute",
        changes: &["placement.lifetime=idle", "placement.idle_s=60"],
        detail: Detail::All,
    },
    Reading {
        name: "idle 10 s",
        means: "an application is placed anew after ten idle seconds",
        changes: &["placement.lifetime=idle", "placement.idle_s=10"],
        detail: Detail::Main,
    },
    Reading {
        name: "boards alone",
        means: "the processor's score only tells equal nodes apart",
        changes: &["placement.others=cpu-usage-in-ties"],
        detail: Detail::Main,
    },
    Reading {
        name: "slots are emptied",
        means: "a bitstream goes when its request ends",
        changes: &["slots.after_use=goes"],
        detail: Detail::Main,
    },
    Reading {
        name: "concurrent",
        means: "requests overlap and wait for slots",
        changes: &["slots.requests=concurrent"],
        detail: Detail::Main,
    },
    Reading {
        name: "p of functions",
        means: "a function uses boards always or never",
        changes: &["workload.p_of=functions"],
        detail: Detail::Main,
    },
    Reading {
        name: "p of applications",
        means: "an application uses boards always or never",
        changes: &["workload.p_of=applications"],
        detail: Detail::Main,
    },
    Reading {
        name: "shared bitstreams",
        means: "four functions share a bitstream on average",
        changes: &["workload.functions_per_bitstream=4"],
        detail: Detail::Main,
    },
    Reading {
        name: "bitstream per application",
        means: "all functions of an application share one",
        changes: &["workload.bitstream_of=application"],
        detail: Detail::Main,
    },
];

/// Number of seeds of each run.
pub(super) struct Seeds {
    pub(super) all: u64,
    /// Seeds of runs in which each request is placed anew; they take ten times as long.
    pub(super) slow: u64,
}

impl Seeds {
    pub(super) fn of(&self, changes: &[String]) -> u64 {
        let is = |name: &str| changes.iter().any(|change| change.starts_with(name));
        match () {
            // The tables over p and r have one seed, because the paper's have one trace.
            () if is("workload.m_ms=") => 1,
            () if is("placement.lifetime=request") => self.slow,
            () => self.all,
        }
    }
}

impl Reading {
    /// The changes of the reading for this number of nodes and these weights.
    pub(super) fn with(&self, nodes: u32, weights: &str) -> Vec<String> {
        let mut changes: Vec<String> = self.changes.iter().map(|change| (*change).to_owned()).collect();
        changes.push(format!("cluster.nodes={nodes}"));
        changes.push(format!("placement.weights={weights}"));
        changes
    }
}
