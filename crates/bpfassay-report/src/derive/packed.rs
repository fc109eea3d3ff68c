// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packs numbers into few bytes: unpacked counts of 200,000 runs would take gigabytes.

use std::iter;

use bpfassay_results::ProgramExecutions;

/// Packs `numbers`. Each byte has seven bits of a number, the lowest bits first, and the eighth bit
/// if more bytes follow. A zero is followed by the number of further zeros.
pub(super) fn pack(numbers: impl IntoIterator<Item = u64>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    let mut numbers = numbers.into_iter().peekable();
    while let Some(number) = numbers.next() {
        put(&mut bytes, number);
        if number == 0 {
            let more = iter::from_fn(|| numbers.next_if_eq(&0)).count();
            put(&mut bytes, more as u64);
        }
    }
    bytes.into()
}

/// Returns the numbers that [`pack`] put into `bytes`.
pub(super) fn unpack(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let mut rest = bytes.iter();
    let mut zeros = 0;
    iter::from_fn(move || {
        if zeros > 0 {
            zeros -= 1;
            return Some(0);
        }
        let number = next(&mut rest)?;
        if number == 0 {
            zeros = next(&mut rest)?;
        }
        Some(number)
    })
}

fn put(bytes: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads the next number that [`put`] wrote.
fn next<'a>(bytes: &mut impl Iterator<Item = &'a u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *bytes.next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    Some(number)
}

/// Packs the executions in a run. Each program has its index, the numbers of lines and branches,
/// and how often each line ran. Each branch has 0, how often it jumped and how often it did not, or
/// 1 if the outcomes are not known.
pub(super) fn packed(programs: &[ProgramExecutions]) -> Box<[u8]> {
    let of_branch =
        |&branch: &Option<[u64; 2]>| iter::once(u64::from(branch.is_none())).chain(branch.into_iter().flatten());
    pack(programs.iter().flat_map(|ProgramExecutions { program, lines, branches }| {
        let head = [u64::from(*program), lines.len() as u64, branches.len() as u64];
        head.into_iter().chain(lines.iter().copied()).chain(branches.iter().flat_map(of_branch))
    }))
}

/// Returns the programs that [`packed`] put into `bytes`.
pub(super) fn unpacked(bytes: &[u8]) -> impl Iterator<Item = ProgramExecutions> + '_ {
    let mut numbers = unpack(bytes);
    iter::from_fn(move || {
        let program = u32::try_from(numbers.next()?).ok()?;
        let (lines, branches) = (numbers.next()?, numbers.next()?);
        let lines = (0..lines).map_while(|_| numbers.next()).collect();
        let mut branch = || match numbers.next()? {
            0 => Some(Some([numbers.next()?, numbers.next()?])),
            _ => Some(None),
        };
        let branches = (0..branches).map_while(|_| branch()).collect();
        Some(ProgramExecutions { program, lines, branches })
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers() -> impl Strategy<Value = u64> {
        prop_oneof![Just(0), 0..300_u64, any::<u64>()]
    }

    fn executions() -> impl Strategy<Value = ProgramExecutions> {
        let branch = prop::option::of(prop::array::uniform2(numbers()));
        let (lines, branches) = (prop::collection::vec(numbers(), 0..9), prop::collection::vec(branch, 0..9));
        (any::<u32>(), lines, branches).prop_map(|(program, lines, branches)| ProgramExecutions {
            program,
            lines,
            branches,
        })
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(programs in prop::collection::vec(executions(), 0..4)) {
            let bytes = packed(&programs);
            prop_assert_eq!(unpacked(&bytes).collect::<Vec<_>>(), programs);
        }

        #[test]
        fn zeros_take_two_bytes_however_many_they_are(zeros in 1_usize..128) {
            let numbers = [0].repeat(zeros);
            let bytes = pack(numbers.iter().copied());
            prop_assert_eq!(bytes.len(), 2);
            prop_assert_eq!(unpack(&bytes).collect::<Vec<u64>>(), numbers);
        }
    }
}
