// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output of QEMU's plugin, with the functions that a guest reports.

use bpfassay_plugin::{Coverage, DirectPhase, Functions, Window, Windows, direct};
use bpfassay_protocol::{
    source::{Destination, LineRecord, LineTable, ProgramSource, SourceLines, Transfer},
    symbols::{ProgramCode, Symbols, UserCode},
};
use bpfassay_results::{Figure, Misses};

/// Windows, cut anywhere. Every instruction must belong to something, whatever functions there are.
pub(super) fn windows(bytes: &[u8]) {
    let whole = read(&[bytes]);
    let (first, second) = bytes.split_at(bytes.len() / 3);
    assert_eq!(whole, read(&[first, second]));
    let mut functions = Functions::default();
    let start = whole.first().and_then(|window| window.blocks.first()).map_or(0, |block| block.address);
    functions.add(&Symbols {
        functions: String::from_utf8_lossy(bytes).into_owned(),
        programs: vec![ProgramCode {
            id: 1,
            name: "on_call".to_owned(),
            functions: vec![(start, 64), (start, 8)],
            is_under_test: true,
        }],
        user: UserCode { under_test: vec![(start, u64::MAX), (8, 1 << 20)], others: vec![(1 << 16, start)] },
    });
    let mut phases = Vec::new();
    for (window, is_baseline) in whole.iter().zip([true, false].into_iter().cycle()) {
        let profile = functions.profile(window);
        let sum = profile.values().fold(0_u64, |sum, count| sum.saturating_add(count.instructions));
        assert_eq!(sum, window.instructions());
        phases.push(DirectPhase {
            run: is_baseline.to_string(),
            cell: is_baseline.to_string(),
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
        let found = count.direct.iter().filter_map(|part| part.misses);
        let found = found.fold(Misses::default(), Misses::saturating_add);
        let all = count.misses.map(|misses| misses.all).unwrap_or_default();
        assert!(found.l1i <= all.l1i && found.l2 <= all.l2 && found.mispredicted <= all.mispredicted, "{count:?}");
    }
    covered(bytes, start, &whole);
}

/// Evaluates a line table that is made of the same bytes. Any table is processed in bounded time.
fn covered(bytes: &[u8], start: u64, windows: &[Window]) {
    let mut numbers = bytes.iter().map(|byte| u32::from(*byte));
    let mut number = || numbers.next().unwrap_or_default();
    let mut record = || LineRecord {
        instruction: number(),
        address: start.wrapping_add(u64::from(number())),
        file: number() % 2,
        line: number(),
        column: number(),
        text: number() % 2,
    };
    let records = (0..8).map(|_| record()).collect();
    let mut transfer = || Transfer {
        at: number(),
        to: match number() % 5 {
            0 => Destination::Branch(number()),
            1 => Destination::Jump(number()),
            2 => Destination::Exit,
            3 => Destination::TailCall,
            _ => Destination::Indirect,
        },
    };
    let transfers = (0..8).map(|_| transfer()).collect();
    let texts = vec![String::from_utf8_lossy(bytes).into_owned()];
    let table = LineTable { files: vec!["a.c".to_owned()], texts, records, transfers, instructions: number() };
    let mut coverage = Coverage::default();
    coverage.source(ProgramSource { id: 1, lines: SourceLines::Known(table) });
    let functions = vec![(start, 64)];
    let program = ProgramCode { id: 1, name: "on_call".to_owned(), functions, is_under_test: true };
    coverage.symbols(&Symbols { programs: vec![program], ..Symbols::default() });
    coverage.run("one", Ok(windows));
    let boot = coverage.finish();
    assert_eq!((boot.programs.len(), boot.runs.len()), (1, 1));
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
