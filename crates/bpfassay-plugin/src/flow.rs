// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds how often each conditional jump of a program was taken, from the executions of straight
//! pieces.
//!
//! A program is a graph of pieces, each executed from beginning to end. A piece runs as often as
//! its incoming edges are taken, and as often as its outgoing ones. The counts of pieces with a
//! line record are known. An edge follows if it is the only unknown one on a side of a piece
//! (Knuth, The Art of Computer Programming, 2.3.4.1; gcov does the same). Other edges are not
//! reported.

use std::collections::BTreeSet;

use bpfassay_protocol::source::{Destination, LineRecord, LineTable};

/// The graph of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pieces: Vec<Piece>,
    /// Source and target piece of each edge.
    edges: Vec<[usize; 2]>,
}

/// A straight piece of instructions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Piece {
    /// The first instruction.
    start: u32,
    /// The line record whose executions are those of the piece.
    record: Option<usize>,
    into: Vec<usize>,
    out: Vec<usize>,
    /// Whether `into` has all incoming edges, and `out` all outgoing ones.
    is_whole: [bool; 2],
}

/// A conditional jump: the edges for a jump and for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conditional {
    jumps: usize,
    falls: usize,
}

/// Executions that contradict each other, for instance because a fault left an instruction early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contradiction;

impl Flow {
    /// Builds the graph of a program. Its functions begin at the records for which `is_entry` is
    /// true. The caller has checked `table` (see [`crate::coverage`]): records and transfers are in
    /// order and within the instructions.
    pub(crate) fn of(table: &LineTable, is_entry: impl Fn(&LineRecord) -> bool) -> Self {
        let entries: BTreeSet<u32> =
            table.records.iter().filter(|record| is_entry(record)).map(|record| record.instruction).collect();
        let mut starts = BTreeSet::from([0]);
        starts.extend(&entries);
        for transfer in &table.transfers {
            starts.insert(transfer.at + 1);
            if let Destination::Branch(target) | Destination::Jump(target) = transfer.to {
                starts.insert(target);
            }
        }
        starts.retain(|start| *start < table.instructions);
        let is_known = !table.transfers.iter().any(|transfer| transfer.to == Destination::Indirect);
        let piece = |&start: &u32| Piece {
            start,
            is_whole: [is_known && start != 0 && !entries.contains(&start), true],
            ..Piece::default()
        };
        let mut flow = Self { pieces: starts.iter().map(piece).collect(), edges: Vec::new() };
        for (index, record) in table.records.iter().enumerate() {
            let at = flow.piece(record.instruction);
            flow.pieces[at].record.get_or_insert(index);
        }
        for index in 0..flow.pieces.len() {
            let end = flow.pieces.get(index + 1).map_or(table.instructions, |next| next.start);
            let last = end.saturating_sub(1);
            let transfer = table.transfers.binary_search_by_key(&last, |transfer| transfer.at);
            match transfer.ok().and_then(|at| table.transfers.get(at)).map(|transfer| transfer.to) {
                None => flow.edge(index, end),
                Some(Destination::Jump(target)) => flow.edge(index, target),
                Some(Destination::Branch(target)) => {
                    flow.edge(index, target);
                    flow.edge(index, end);
                }
                Some(Destination::TailCall) => {
                    flow.edge(index, end);
                    flow.pieces[index].is_whole[1] = false;
                }
                Some(Destination::Exit | Destination::Indirect) => flow.pieces[index].is_whole[1] = false,
            }
        }
        flow
    }

    /// Returns the piece that contains `instruction`.
    fn piece(&self, instruction: u32) -> usize {
        self.pieces.partition_point(|piece| piece.start <= instruction).saturating_sub(1)
    }

    fn edge(&mut self, from: usize, target: u32) {
        let to = self.piece(target);
        // The target lies beyond the last instruction. The verifier accepts no such program.
        if self.pieces.get(to).is_none_or(|piece| piece.start != target) {
            self.pieces[from].is_whole[1] = false;
            return;
        }
        let edge = self.edges.len();
        self.edges.push([from, to]);
        self.pieces[from].out.push(edge);
        self.pieces[to].into.push(edge);
    }

    /// Returns the conditional jump at the instruction `at`; `None` if there is none, or both
    /// outcomes lead to the same piece.
    pub(crate) fn conditional(&self, at: u32) -> Option<Conditional> {
        let [jumps, falls] = self.pieces[self.piece(at)].out.as_slice() else { return None };
        let (jumps, falls) = (*jumps, *falls);
        (self.edges[jumps][1] != self.edges[falls][1]).then_some(Conditional { jumps, falls })
    }

    /// Computes how often each edge was taken, as far as that follows from the `executions` of
    /// records.
    ///
    /// # Errors
    /// [`Contradiction`] if the executions contradict each other.
    pub(crate) fn solve(&self, executions: &[u64]) -> Result<Solved, Contradiction> {
        let mut counts: Vec<Option<u64>> =
            self.pieces.iter().map(|piece| executions.get(piece.record?).copied()).collect();
        let mut edges: Vec<Option<u64>> = vec![None; self.edges.len()];
        let mut due: Vec<usize> = (0..self.pieces.len()).collect();
        while let Some(index) = due.pop() {
            let piece = &self.pieces[index];
            for (of_piece, _) in [&piece.into, &piece.out].into_iter().zip(piece.is_whole).filter(|(_, whole)| *whole) {
                let mut unknown = of_piece.iter().copied().filter(|edge| edges[*edge].is_none());
                let (first, more) = (unknown.next(), unknown.next().is_some());
                let sum = of_piece.iter().filter_map(|edge| edges[*edge]).fold(0_u64, u64::saturating_add);
                match (counts[index], first) {
                    (None, None) => {
                        counts[index] = Some(sum);
                        due.push(index);
                    }
                    (Some(count), None) if count != sum => return Err(Contradiction),
                    (Some(count), Some(_)) if count < sum => return Err(Contradiction),
                    (Some(count), Some(edge)) if !more => {
                        edges[edge] = Some(count - sum);
                        due.extend(self.edges[edge]);
                    }
                    _ => {}
                }
            }
        }
        Ok(Solved(edges))
    }
}

/// How often edges were taken; `None` for unknown ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Solved(Vec<Option<u64>>);

impl Solved {
    /// Returns how often a conditional jump jumped and how often it did not, if both are known.
    pub(crate) fn outcomes(&self, conditional: Conditional) -> Option<[u64; 2]> {
        let of = |edge: usize| self.0.get(edge).copied().flatten();
        Some([of(conditional.jumps)?, of(conditional.falls)?])
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::source::Transfer;

    use super::*;

    /// A program with a record at each of `records`. The first one is the only entry.
    fn flow(instructions: u32, records: &[u32], transfers: &[(u32, Destination)]) -> Flow {
        let record = |&instruction: &u32| LineRecord { instruction, ..LineRecord::default() };
        let table = LineTable {
            records: records.iter().map(record).collect(),
            transfers: transfers.iter().map(|&(at, to)| Transfer { at, to }).collect(),
            instructions,
            ..LineTable::default()
        };
        Flow::of(&table, |record| record.instruction == 0)
    }

    fn outcomes(flow: &Flow, executions: &[u64], at: u32) -> Option<[u64; 2]> {
        flow.solve(executions).unwrap().outcomes(flow.conditional(at).unwrap())
    }

    use Destination::{Branch, Exit, Indirect, Jump, TailCall};

    /// `0: if … goto 3; 1: …; 2: …; 3: exit`: both ways meet at 3, so the path without the jump
    /// determines the rest.
    #[test]
    fn a_condition_without_an_alternative_follows_from_what_does_not_jump() {
        let flow = flow(4, &[0, 1, 3], &[(0, Branch(3)), (3, Exit)]);
        assert_eq!(outcomes(&flow, &[10, 4, 10], 0), Some([6, 4]));
        assert_eq!(outcomes(&flow, &[10, 0, 10], 0), Some([10, 0]));
        assert_eq!(flow.solve(&[10, 11, 10]), Err(Contradiction));
        assert_eq!(flow.solve(&[10, 4, 9]), Err(Contradiction));
    }

    /// `0: if … goto 3; 1: if … goto 3; 2: …; 3: exit`.
    #[test]
    fn conditions_of_one_line_are_told_apart_if_there_is_a_record_between_them() {
        let transfers = [(0, Branch(3)), (1, Branch(3)), (3, Exit)];
        let with = flow(4, &[0, 1, 2, 3], &transfers);
        assert_eq!(
            (outcomes(&with, &[10, 7, 2, 10], 0), outcomes(&with, &[10, 7, 2, 10], 1)),
            (Some([3, 7]), Some([5, 2]))
        );
        // Without a record, the executions of the second condition are unknown.
        let without = flow(4, &[0, 2, 3], &transfers);
        assert_eq!((outcomes(&without, &[10, 2, 10], 0), outcomes(&without, &[10, 2, 10], 1)), (None, None));
    }

    /// `0: …; 1: …; 2: if … goto 1; 3: exit`: a loop that the program enters once.
    #[test]
    fn a_loop_jumps_as_often_as_it_runs_again() {
        let flow = flow(4, &[0, 1, 3], &[(2, Branch(1)), (3, Exit)]);
        assert_eq!(outcomes(&flow, &[2, 20, 2], 2), Some([18, 2]));
    }

    /// `0: if … goto 3; 1: …; 2: goto 4; 3: …; 4: exit`: the alternative has no record, but the
    /// piece after it has one.
    #[test]
    fn what_flows_through_a_piece_without_a_record_follows() {
        let flow = flow(5, &[0, 1, 4], &[(0, Branch(3)), (2, Jump(4)), (4, Exit)]);
        assert_eq!(outcomes(&flow, &[9, 5, 9], 0), Some([4, 5]));
    }

    #[test]
    fn what_is_left_open_stays_open() {
        // A tail call may not return.
        let left = flow(4, &[0, 1, 3], &[(0, Branch(3)), (1, TailCall), (3, Exit)]);
        assert_eq!(outcomes(&left, &[10, 4, 7], 0), Some([6, 4]));
        // Any instruction may be the source of an indirect jump's target.
        let from_anywhere = flow(5, &[0, 1, 4], &[(0, Branch(4)), (2, Indirect), (4, Exit)]);
        assert_eq!(outcomes(&from_anywhere, &[10, 4, 10], 0), None);
        // Both outcomes lead to the same piece.
        assert_eq!(flow(2, &[0], &[(0, Branch(1)), (1, Exit)]).conditional(0), None);
        // A loop around the entry: entries are not counted.
        let around = flow(3, &[0, 1], &[(1, Branch(0)), (2, Exit)]);
        assert_eq!(outcomes(&around, &[10, 10], 1), None);
        // An empty program.
        assert_eq!(flow(0, &[], &[]).solve(&[]), Ok(Solved(Vec::new())));
    }
}
