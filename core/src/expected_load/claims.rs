//! How the pods of a node share its boards: each runs on those that suit it, in proportion to their slots.

use crate::signals::{AskedKind, Boards, Signals};

/// How many pods run on the boards of each kind.
#[derive(Debug)]
pub(super) struct Claims<'s> {
    signals: &'s Signals,
    all: f64,
    /// Per kind of boards; empty where all boards are alike.
    on_kind: Vec<f64>,
}

impl<'s> Claims<'s> {
    /// Of pods by what they ask for, each counted so much.
    pub(super) fn of<'p>(signals: &'s Signals, pods: impl Iterator<Item = (&'p AskedKind, f64)>) -> Self {
        let is_uniform = matches!(signals.boards(), Boards::Uniform | Boards::None);
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

    /// How many run on the boards that a pod which asks for this runs on.
    pub(super) fn under(&self, asked: &AskedKind) -> f64 {
        if self.on_kind.is_empty() {
            return self.all;
        }
        self.signals.kinds_under(asked).filter_map(|(kind, _)| self.on_kind.get(kind)).sum()
    }
}

/// The part, 0 to 1, of what a pod that asks for `its_kind` does on a node which boards of the kind `asked` bear.
pub(super) fn overlap(signals: &Signals, its_kind: &AskedKind, asked: &AskedKind) -> f64 {
    if matches!(signals.boards(), Boards::Uniform | Boards::None) || its_kind == asked {
        return 1.0;
    }
    let asked: Vec<usize> = signals.kinds_under(asked).map(|(kind, _)| kind).collect();
    let both = signals.kinds_under(its_kind).filter(|(kind, _)| asked.binary_search(kind).is_ok());
    both.map(|(_, slots)| f64::from(slots)).sum::<f64>() / slots(signals.kinds_under(its_kind))
}

fn slots(kinds: impl Iterator<Item = (usize, u32)>) -> f64 {
    kinds.map(|(_, slots)| f64::from(slots)).sum::<f64>().max(1.0)
}
