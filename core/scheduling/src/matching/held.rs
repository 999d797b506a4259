//! Which boards of a node hold which of a pod's bitstreams. One pass over the slots finds them all, however many the
//! pod names.

use crate::bitstream::BitstreamId;
use crate::node_state::{DeviceState, DigestPrefix, NodeState};
use crate::steps;
use crate::ternary::Ternary;
use std::collections::HashMap;

/// A table with a row per board and a column per bitstream.
#[derive(Debug, Default)]
pub(super) struct Held<'a> {
    columns: HashMap<&'a BitstreamId, usize>,
    /// For each board, for each bitstream, whether the board holds the bitstream.
    on_board: Vec<Ternary>,
    /// For each board the number of its kind.
    kinds: Vec<usize>,
    /// For each kind, for each bitstream, whether a board of that kind holds the bitstream.
    on_kind: Vec<Ternary>,
    /// For each bitstream whether any board holds it.
    on_any: Vec<Ternary>,
}

impl<'a> Held<'a> {
    /// The table of the boards of `state` and the bitstreams `ids`.
    pub(super) fn of(ids: &[&'a BitstreamId], state: &NodeState) -> Self {
        if ids.is_empty() {
            return Self::default();
        }
        let mut held = Self::default();
        for id in ids {
            let next = held.columns.len();
            held.columns.entry(id).or_insert(next);
        }
        let width = held.columns.len();
        let (mut names, mut digests) = (HashMap::new(), HashMap::new());
        for (id, column) in &held.columns {
            match id {
                BitstreamId::Name(name) => names.insert(name.as_str(), *column).is_none(),
                BitstreamId::Digest(digest) => digests.insert(DigestPrefix::from(digest), *column).is_none(),
            };
        }
        let mut numbers = HashMap::new();
        for device in &state.devices {
            let next = numbers.len();
            let number = *numbers.entry(kind(device)).or_insert(next);
            held.kinds.push(number);
            held.on_kind.resize(numbers.len() * width, Ternary::No);

            let mut row = vec![Ternary::No; width];
            let (mut may_be_any, mut may_be_called_anything) = (false, false);
            for index in &device.loaded {
                steps::count(1);
                let Some(bitstream) = state.bitstreams.get(*index as usize) else {
                    may_be_any = true;
                    continue;
                };
                may_be_called_anything |= state.may_be_called(bitstream);
                let by_name = bitstream.name.as_deref().and_then(|name| names.get(name));
                let by_digest = bitstream.digest.and_then(|digest| digests.get(&digest));
                for column in by_name.into_iter().chain(by_digest) {
                    row[*column] = Ternary::Yes;
                }
            }
            steps::count(width);
            for column in names.values().filter(|_| may_be_called_anything) {
                row[*column] = row[*column].or(Ternary::Unknown);
            }
            for (cell, on_kind) in row.iter_mut().zip(&mut held.on_kind[number * width..]) {
                *cell = if may_be_any { cell.or(Ternary::Unknown) } else { *cell };
                *on_kind = on_kind.or(*cell);
            }
            held.on_board.append(&mut row);
        }
        let on_any = |column: usize| Ternary::any(held.on_kind.iter().skip(column).step_by(width).copied());
        held.on_any = (0..width).map(on_any).collect();
        held
    }

    /// Whether the board with the number `board` holds the bitstream.
    pub(super) fn on(&self, board: usize, id: &BitstreamId) -> Ternary {
        let width = self.columns.len();
        let cell = self.columns.get(id).and_then(|column| self.on_board.get(board * width + column));
        cell.copied().unwrap_or_default()
    }

    /// Whether the bitstream was built for the kind of `board`: a board of that kind holds it, or no board holds it.
    pub(super) fn is_made_for(&self, board: usize, id: &BitstreamId) -> Ternary {
        let width = self.columns.len();
        let (Some(column), Some(kind)) = (self.columns.get(id), self.kinds.get(board)) else {
            return Ternary::Yes;
        };
        match self.on_any.get(*column) {
            Some(Ternary::Yes) => self.on_kind.get(kind * width + column).copied().unwrap_or_default(),
            _ => Ternary::Yes,
        }
    }
}

/// Vendor, board and shell: a bitstream is built for boards that agree in all three.
fn kind(device: &DeviceState) -> [&str; 3] {
    [&device.vendor, &device.board, &device.shell]
}
