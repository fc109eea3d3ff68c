// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often lines and branches ran, in few bytes: of 200,000 runs the numbers themselves would be
//! gigabytes.

use bpfassay_results::ProgramExecutions;

/// The executions of a program's lines and branches in one run.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) lines: usize,
    pub(super) branches: usize,
    bytes: Box<[u8]>,
}

impl Packed {
    pub(super) fn new(executed: &ProgramExecutions) -> Self {
        let mut bytes = Vec::new();
        for &line in &executed.lines {
            put(&mut bytes, line);
        }
        for branch in &executed.branches {
            put(&mut bytes, u64::from(branch.is_some()));
            branch.iter().flatten().for_each(|&count| put(&mut bytes, count));
        }
        Self { lines: executed.lines.len(), branches: executed.branches.len(), bytes: bytes.into() }
    }

    /// The executions of each line, and of each branch how often it jumped and how often it did
    /// not.
    pub(super) fn numbers(&self) -> (Vec<u64>, Vec<Option<[u64; 2]>>) {
        let mut rest = self.bytes.iter();
        let lines = (0..self.lines).map(|_| next(&mut rest)).collect();
        let branch = |_| (next(&mut rest) > 0).then(|| [next(&mut rest), next(&mut rest)]);
        (lines, (0..self.branches).map(branch).collect())
    }
}

/// Adds `number` to `bytes`: seven bits in each byte, the lowest first, and the eighth where more
/// follow.
fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The next number that [`put`] has added.
fn next<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> u64 {
    let mut number = 0;
    for (&byte, shift) in bytes.zip((0..u64::BITS).step_by(7)) {
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            lines in prop::collection::vec(any::<u64>(), 0..9),
            branches in prop::collection::vec(any::<Option<[u64; 2]>>(), 0..9),
        ) {
            let executed = ProgramExecutions { program: 0, lines, branches };
            let (lines, branches) = Packed::new(&executed).numbers();
            prop_assert_eq!((lines, branches), (executed.lines, executed.branches));
        }
    }
}
