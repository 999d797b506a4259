//! Breadth-first search of a directed graph (T). Input: u32 nodes, u32 edges, u32 source, nodes + 1 offsets, the targets of
//! all edges by node. Output: the number of edges of the shortest way to each node.

use super::{Function, FunctionError, Numbers, take_u32};
use std::collections::VecDeque;

/// Name of the program and the bitstream.
pub const NAME: &str = "bfs";

/// The output for a node to which no way leads.
pub const UNREACHED: u32 = u32::MAX;

/// Most edges that leave a node of [`make_input`]; the least is 1.
const MOST_EDGES: u64 = 6;

/// A random graph. Edges lead to nodes of a near number, so that the search has many levels, and not to all nodes.
#[must_use]
pub fn make_input(nodes: u16, numbers: &mut Numbers) -> Vec<u8> {
    let nodes = u32::from(nodes);
    // A way of about 16 edges leads around the ring of all nodes.
    let farthest = u64::from(nodes / 16) + 1;
    let (mut offsets, mut targets) = (vec![0_u32], Vec::new());
    let mut edges = 0;
    for node in 0..nodes {
        for _ in 0..=numbers.bits() % MOST_EDGES {
            let ahead = u32::try_from(numbers.bits() % farthest + 1).unwrap_or(1);
            targets.push((node + ahead) % nodes);
            edges += 1;
        }
        offsets.push(edges);
    }
    let source = u32::try_from(numbers.bits() % u64::from(nodes)).unwrap_or(0);
    let words = [nodes, edges, source].into_iter().chain(offsets).chain(targets);
    words.flat_map(u32::to_le_bytes).collect()
}

/// Computes the output for an input.
///
/// # Errors
/// The input is no graph.
pub fn reference(input: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let malformed = |reason| FunctionError::Input { function: Function::Bfs, reason };
    let mut head = [0; 3];
    let mut rest = input;
    for number in &mut head {
        let (value, after) = take_u32(rest).ok_or_else(|| malformed("no nodes, edges and source"))?;
        *number = usize::try_from(value).map_err(|_| malformed("a number is too large"))?;
        rest = after;
    }
    let [nodes, edges, source] = head;
    if nodes == 0 || rest.len() as u64 != (nodes as u64 + 1 + edges as u64) * 4 {
        return Err(malformed("not nodes + 1 offsets and a target for each edge"));
    }
    let words: Vec<usize> =
        rest.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize).collect();
    let (offsets, targets) = words.split_at(nodes + 1);
    let rises = offsets.is_sorted() && offsets[0] == 0 && offsets[nodes] == edges;
    if !rises || source >= nodes || targets.iter().any(|target| *target >= nodes) {
        return Err(malformed("the graph has an edge or an offset that can't be"));
    }
    let mut levels = vec![UNREACHED; nodes];
    levels[source] = 0;
    let mut queue = VecDeque::from([source]);
    while let Some(node) = queue.pop_front() {
        for &target in &targets[offsets[node]..offsets[node + 1]] {
            if levels[target] == UNREACHED {
                levels[target] = levels[node] + 1;
                queue.push_back(target);
            }
        }
    }
    Ok(levels.into_iter().flat_map(u32::to_le_bytes).collect())
}
