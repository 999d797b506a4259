//! The sharing of a node's boards among its pods: a pod runs on the boards of its kind, in proportion to their slots.

use crate::signals::{AskedKind, BoardMix, Signals};

/// The number of pods on the boards of each kind.
#[derive(Debug)]
pub(super) struct Claims<'s> {
    signals: &'s Signals,
    all: f64,
    /// Number of pods per kind of boards; empty if all boards are alike.
    on_kind: Vec<f64>,
}

impl<'s> Claims<'s> {
    /// The claims of `pods`: the kind that each requests and the number that it counts as.
    pub(super) fn of<'p>(signals: &'s Signals, pods: impl Iterator<Item = (&'p AskedKind, f64)>) -> Self {
        let is_uniform = matches!(signals.board_mix(), BoardMix::Uniform | BoardMix::None);
        let mut on_kind = vec![0.0; if is_uniform { 0 } else { signals.kinds() }];
        let mut all = 0.0;
        for (asked, count) in pods {
            all += count;
            if is_uniform {
                continue;
            }
            let slots = slots(signals.kinds_under(asked));
            for (kind, of_kind) in signals.kinds_under(asked) {
                on_kind[kind] += count * f64::from(of_kind) / slots;
            }
        }
        Self { signals, all, on_kind }
    }

    /// The number of pods on the boards that a pod with the kind `asked` runs on.
    pub(super) fn under(&self, asked: &AskedKind) -> f64 {
        if self.on_kind.is_empty() {
            return self.all;
        }
        self.signals.kinds_under(asked).filter_map(|(kind, _)| self.on_kind.get(kind)).sum()
    }
}

/// The share, 0 to 1, of the usage of a pod with the kind `its_kind` that falls on boards of the kind `asked`.
pub(super) fn overlap(signals: &Signals, its_kind: &AskedKind, asked: &AskedKind) -> f64 {
    if matches!(signals.board_mix(), BoardMix::Uniform | BoardMix::None) || its_kind == asked {
        return 1.0;
    }
    let asked: Vec<usize> = signals.kinds_under(asked).map(|(kind, _)| kind).collect();
    let both = signals.kinds_under(its_kind).filter(|(kind, _)| asked.binary_search(kind).is_ok());
    both.map(|(_, slots)| f64::from(slots)).sum::<f64>() / slots(signals.kinds_under(its_kind))
}

fn slots(kinds: impl Iterator<Item = (usize, u32)>) -> f64 {
    kinds.map(|(_, slots)| f64::from(slots)).sum::<f64>().max(1.0)
}
