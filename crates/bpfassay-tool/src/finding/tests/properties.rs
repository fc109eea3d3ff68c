// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties that hold for every tool.

use super::super::process_identity::ProcessKey;
use proptest::prelude::*;

use super::*;

fn shares() -> impl Strategy<Value = Vec<CallShare>> {
    let one = (0..3_u8, 0..3_u8, 0..4_usize, 1..9_u64, 0..5000_u64, 0..5000_u64).prop_map(
        |(cgroup, mount, operation, calls, returned, more)| {
            share(
                &format!("c{cgroup}"),
                &format!("m{mount}"),
                Operation::ALL[operation],
                calls,
                returned,
                returned + more,
            )
        },
    );
    proptest::collection::vec(one, 1..8)
}

proptest! {
    #[test]
    fn an_exact_tool_has_no_finding(shares in shares(), scale in 1..3_u64, is_whole_system: bool) {
        let operations = &Operation::ALL[..4];
        let truth = Truth { is_whole_system, ..truth(shares) };
        let units = [CountedUnit::Calls, CountedUnit::Errors, CountedUnit::BytesReturned, CountedUnit::BytesRequested];
        let whose = [Whose::System, Whose::Cgroup, Whose::Mount, Whose::Process];
        let mut figures = Vec::new();
        let mut samples = Vec::new();
        for (unit, whose) in units.iter().flat_map(|unit| whose.iter().map(move |whose| (*unit, *whose))) {
            let mut one = figure(operations, unit, whose);
            one.scale = if unit == CountedUnit::BytesReturned { scale } else { 1 };
            for subject in truth.subjects(&one, ProcessKey::Id) {
                let total = subject.total(unit).unwrap();
                let std::borrow::Cow::Borrowed(names) = subject.names else { panic!("a tool united them") };
                let name = names.last().map(String::as_str);
                for (at, part) in [(50, total / 2), (100, total)] {
                    samples.push((at, figures.len(), name, part / one.scale * one.scale));
                }
            }
            figures.push(one);
        }
        let report = report(figures);
        let results = counts(&report, &readings(&samples), &truth);
        prop_assert_eq!(found(&results), [], "{:?}", results);
        if is_whole_system {
            prop_assert!(is_clear(&results, Kind::CountsTooLow) && is_clear(&results, Kind::OperationsNotSeen));
        }
    }

    #[test]
    fn a_tool_that_is_not_exact_has_a_finding(shares in shares(), wrong in 1..100_u64, more: bool) {
        let truth = truth(shares);
        let report = report(vec![figure(&Operation::ALL[..4], MOVED, Whose::System)]);
        let total: u64 = truth.shares.iter().filter_map(|share| share.bytes_returned).sum();
        let value = if more { total + wrong } else { total.saturating_sub(wrong) };
        let results = counts(&report, &readings(&[(100, 0, None, value)]), &truth);
        prop_assert_eq!(found(&results).len(), usize::from(value != total), "{:?}", results);
    }
}
