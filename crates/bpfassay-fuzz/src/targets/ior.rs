// SPDX-License-Identifier: MIT OR Apache-2.0
//! IOR: options, scripts, summaries.

use bpfassay_ior::{Invocation, IorPlan, IorSummary};

/// A command line of IOR, with arguments separated by blanks.
pub(super) fn options(text: &str) {
    let Ok(invocation) = Invocation::parse(text.split_whitespace()) else { return };
    if let Ok(plan) = invocation.plan(Some("IOR START\nIOR STOP\n")) {
        comes_back(&plan);
    }
}

/// An IOR script.
pub(super) fn script(text: &str) {
    let Ok(invocation) = Invocation::parse(["-f", "s.ior"]) else { return };
    if let Ok(plan) = invocation.plan(Some(text)) {
        assert!(!plan.tests.is_empty());
        comes_back(&plan);
    }
}

/// The arguments of each test must parse as the same test, unless an argument has a blank.
fn comes_back(plan: &IorPlan) {
    for test in &plan.tests {
        let args = test.to_args();
        let again = Invocation::parse(args.iter().map(String::as_str));
        let again = again.and_then(|again| again.plan(None));
        assert!(matches!(&again, Ok(again) if again.tests == [test.clone()]), "{test:?} became {again:?}");
    }
}

/// The summary that IOR writes as JSON.
pub(super) fn summary(text: &[u8]) {
    let Ok(summary) = IorSummary::parse(text) else { return };
    for test in &summary.tests {
        let moved = test.results.iter().filter_map(|result| result.moved);
        moved.for_each(|moved| assert_eq!(moved.bytes % test.transfer_size, 0));
    }
}
