// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often each conditional jump of a program was taken, from how often its straight pieces ran.
//!
//! A program is a graph of pieces that are executed from beginning to end. What flows into a piece,
//! and what flows out of it, is how often it ran. Counts of pieces are known, those of the edges
//! between them follow where a piece has one edge left that is not known (Knuth, The Art of
//! Computer Programming, 2.3.4.1; gcov does the same). What does not follow is not reported.

use std::collections::BTreeSet;

use bpfassay_protocol::source::{Destination, LineRecord, LineTable};

/// The graph of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flow {
    pieces: Vec<Piece>,
    /// From where, and to where.
    edges: Vec<[usize; 2]>,
}

/// Instructions that are executed one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Piece {
    /// The first instruction.
    start: u32,
    /// The line record whose executions are its own.
    record: Option<usize>,
    into: Vec<usize>,
    out: Vec<usize>,
    /// Whether all that flows in is in `into`, and all that flows out in `out`.
    is_whole: [bool; 2],
}

/// A conditional jump: the edges for what jumps and for what does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Conditional {
    jumps: usize,
    falls: usize,
}

/// Executions that contradict each other: some instruction was left early, by a fault for instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contradiction;

impl Flow {
    /// The graph of a program whose functions begin at the records that `is_entry` holds of. Of
    /// `table` is required what
    /// [`crate::coverage`] checks: records and transfers in order and within the instructions.
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

    /// The piece that has this instruction.
    fn piece(&self, instruction: u32) -> usize {
        self.pieces.partition_point(|piece| piece.start <= instruction).saturating_sub(1)
    }

    fn edge(&mut self, from: usize, target: u32) {
        let to = self.piece(target);
        // Behind the last instruction there is none: the verifier accepts no such program.
        if self.pieces.get(to).is_none_or(|piece| piece.start != target) {
            self.pieces[from].is_whole[1] = false;
            return;
        }
        let edge = self.edges.len();
        self.edges.push([from, to]);
        self.pieces[from].out.push(edge);
        self.pieces[to].into.push(edge);
    }

    /// The conditional jump at this instruction; `None` where both outcomes lead to one place, or
    /// none is there.
    pub(crate) fn conditional(&self, at: u32) -> Option<Conditional> {
        let [jumps, falls] = self.pieces[self.piece(at)].out.as_slice() else { return None };
        let (jumps, falls) = (*jumps, *falls);
        (self.edges[jumps][1] != self.edges[falls][1]).then_some(Conditional { jumps, falls })
    }

    /// How often each edge was taken, where that follows from the `executions` of records.
    ///
    /// # Errors
    /// [`Contradiction`]; nothing follows from such executions.
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

/// How often edges were taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Solved(Vec<Option<u64>>);

impl Solved {
    /// How often a conditional jump jumped, and how often it did not, where both follow.
    pub(crate) fn outcomes(&self, conditional: Conditional) -> Option<[u64; 2]> {
        let of = |edge: usize| self.0.get(edge).copied().flatten();
        Some([of(conditional.jumps)?, of(conditional.falls)?])
    }
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::source::Transfer;

    use super::*;

    /// A program with a record at each of `records`, of which the first is the only entry.
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

    /// `0: if … goto 3; 1: …; 2: …; 3: exit`: both ways meet at 3, so that what does not jump says
    /// it all.
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
        // Without one nobody knows how often the second was reached.
        let without = flow(4, &[0, 2, 3], &transfers);
        assert_eq!((outcomes(&without, &[10, 2, 10], 0), outcomes(&without, &[10, 2, 10], 1)), (None, None));
    }

    /// `0: …; 1: …; 2: if … goto 1; 3: exit`: a loop that the program enters once.
    #[test]
    fn a_loop_jumps_as_often_as_it_runs_again() {
        let flow = flow(4, &[0, 1, 3], &[(2, Branch(1)), (3, Exit)]);
        assert_eq!(outcomes(&flow, &[2, 20, 2], 2), Some([18, 2]));
    }

    /// `0: if … goto 3; 1: …; 2: goto 4; 3: …; 4: exit`: no record in the alternative, but one
    /// behind.
    #[test]
    fn what_flows_through_a_piece_without_a_record_follows() {
        let flow = flow(5, &[0, 1, 4], &[(0, Branch(3)), (2, Jump(4)), (4, Exit)]);
        assert_eq!(outcomes(&flow, &[9, 5, 9], 0), Some([4, 5]));
    }

    #[test]
    fn what_is_left_open_stays_open() {
        // A tail call may not come back.
        let left = flow(4, &[0, 1, 3], &[(0, Branch(3)), (1, TailCall), (3, Exit)]);
        assert_eq!(outcomes(&left, &[10, 4, 7], 0), Some([6, 4]));
        // Somebody may come from anywhere.
        let from_anywhere = flow(5, &[0, 1, 4], &[(0, Branch(4)), (2, Indirect), (4, Exit)]);
        assert_eq!(outcomes(&from_anywhere, &[10, 4, 10], 0), None);
        // Both outcomes lead to one place.
        assert_eq!(flow(2, &[0], &[(0, Branch(1)), (1, Exit)]).conditional(0), None);
        // A loop around the entry: nobody counts who enters.
        let around = flow(3, &[0, 1], &[(1, Branch(0)), (2, Exit)]);
        assert_eq!(outcomes(&around, &[10, 10], 1), None);
        // Nothing at all.
        assert_eq!(flow(0, &[], &[]).solve(&[]), Ok(Solved(Vec::new())));
    }
}
