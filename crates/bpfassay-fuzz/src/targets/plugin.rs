// SPDX-License-Identifier: MIT OR Apache-2.0
//! What QEMU's plugin writes, with the functions that a guest reports.

use bpfassay_plugin::{Functions, Phase, Window, Windows, direct};
use bpfassay_protocol::symbols::{ProgramCode, Symbols};
use bpfassay_results::Figure;

/// Windows, however they are cut; every instruction of them belongs to something, whatever functions there are.
pub(super) fn windows(bytes: &[u8]) {
    let whole = read(&[bytes]);
    let (first, second) = bytes.split_at(bytes.len() / 3);
    assert_eq!(whole, read(&[first, second]));
    let mut functions = Functions::default();
    let start = whole.first().and_then(|window| window.blocks.first()).map_or(0, |block| block.address);
    functions.add(&Symbols {
        functions: String::from_utf8_lossy(bytes).into_owned(),
        programs: vec![ProgramCode { id: 1, name: "on_call".to_owned(), functions: vec![(start, 64), (start, 8)] }],
    });
    let mut phases = Vec::new();
    for (window, is_baseline) in whole.iter().zip([true, false].into_iter().cycle()) {
        let profile = functions.profile(window);
        let sum = profile.values().fold(0_u64, |sum, count| sum.saturating_add(count.instructions));
        assert_eq!(sum, window.instructions());
        phases.push(Phase {
            run: is_baseline.to_string(),
            is_baseline,
            is_warm_up: window.number % 3 == 0,
            name: "write".to_owned(),
            test: 0,
            repetition: 0,
            calls: window.number % 5,
            profile: Figure::Value(profile),
        });
    }
    for count in direct(&phases).iter().flat_map(|run| &run.phases).filter_map(|phase| phase.count.value()) {
        let parts = count.direct.iter().fold(0_u64, |sum, part| sum.saturating_add(part.instructions));
        assert!(parts.saturating_add(count.unresolved).saturating_add(count.user) <= count.all, "{count:?}");
    }
}

fn read(parts: &[&[u8]]) -> Vec<Window> {
    let (mut windows, mut found) = (Windows::default(), Vec::new());
    for part in parts {
        windows.push(part);
        while let Ok(Some(window)) = windows.next_window() {
            found.push(window);
        }
    }
    found
}
