//! The candidates of a request among the known nodes.

use crate::app::App;
use crate::index::{Node, Nodes, Row, Source};
use crate::record::Kept;
use fpga_core::decide::Candidate;
use fpga_core::expected_load::ArenaKey;
use fpga_core::node_facts::KnownNode;
use std::sync::Arc;

/// The rows of a request's candidates; `None` for nodes that are not known.
pub(super) struct Found<'k> {
    known: &'k Nodes,
    rows: Vec<Option<Row>>,
}

/// Nodes that a decision sees otherwise than they are, with their places among the candidates, in order.
pub(super) type Changed = [(usize, Arc<Node>)];

impl<'k> Found<'k> {
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n [u8]>, known: &'k Nodes) -> Self {
        Self { known, rows: known.rows(names) }
    }

    /// The nodes with their names and the keys of their expected loads.
    pub(super) fn keyed(&self) -> impl Iterator<Item = Option<(&'k str, &'k ArenaKey, KnownNode<'k>)>> {
        self.rows.iter().map(|row| row.map(|row| self.known.keyed(row)))
    }

    /// The candidates, in the order of the request.
    pub(super) fn candidates(&self) -> Vec<Candidate<'k>> {
        self.rows.iter().map(|row| row.map(|row| self.known.known(row))).collect()
    }

    /// The node at a place among the candidates.
    pub(super) fn node(&self, place: usize) -> Option<&'k Arc<Node>> {
        self.rows.get(place).copied().flatten().map(|row| self.known.at(row))
    }

    /// As [`Self::node`], as the decision sees it.
    pub(super) fn with<'c>(&self, changed: &'c Changed, place: usize) -> Option<&'c Arc<Node>>
    where
        'k: 'c,
    {
        let otherwise = changed.binary_search_by_key(&place, |(place, _)| *place).ok();
        otherwise.and_then(|index| changed.get(index)).map(|(_, node)| node).or_else(|| self.node(place))
    }

    /// The origin of each candidate's state.
    pub(super) fn sources(&self) -> Vec<Source> {
        self.rows.iter().map(|row| row.map_or(Source::None, |row| self.known.source(row))).collect()
    }

    /// The candidates' nodes for the recording; `None` without `--record`.
    pub(super) fn kept(&self, app: &App, changed: &Changed) -> Option<Vec<Option<Kept>>> {
        app.recorder.as_ref()?;
        let places = 0..self.rows.len();
        Some(places.map(|place| self.with(changed, place).map(|node| Kept(Arc::clone(node)))).collect())
    }
}

/// The candidates of a decision that sees some of them otherwise.
pub(super) fn otherwise<'c>(mut candidates: Vec<Candidate<'c>>, changed: &'c Changed) -> Vec<Candidate<'c>> {
    for (place, node) in changed {
        if let Some(candidate) = candidates.get_mut(*place) {
            *candidate = Some(node.facts.known());
        }
    }
    candidates
}
