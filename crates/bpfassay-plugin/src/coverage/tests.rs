// SPDX-License-Identifier: MIT OR Apache-2.0

use bpfassay_protocol::source::{LineRecord, Transfer};
use proptest::prelude::*;

use super::*;
use crate::BlockExecutions;

const CODE: u64 = 0xffff_ffff_c000_0000;
const OTHER: u64 = 0xffff_ffff_c000_1000;

/// Two functions:
///
/// ```text
/// 10      0: r6 = …
/// 11      1: if r6 == 0 goto 4
/// 12      2: call 7             // another function
/// 12      3: …
/// 14      4: map lookup, in which the verifier put 5: if … goto 6
/// 14      6: exit
/// 20      7: if … goto 9        // the macro of line 3 of another file, inlined
/// 3       8: …
/// 21      9: exit
/// ```
fn table() -> LineTable {
    let record =
        |instruction, address, file, line, column, text| LineRecord { instruction, address, file, line, column, text };
    let transfer = |(at, to)| Transfer { at, to };
    LineTable {
        files: ["b.c", "a.h"].map(str::to_owned).into(),
        texts: ["\tu64 a = ctx[2];", "\tif (a)", "\t\tadd(a);", "\tlookup();", "add()", "INLINED", "}"]
            .map(str::to_owned)
            .into(),
        records: vec![
            record(0, CODE, 0, 10, 2, 0),
            record(1, CODE + 0x10, 0, 11, 6, 1),
            record(2, CODE + 0x18, 0, 12, 3, 2),
            record(4, CODE + 0x28, 0, 14, 2, 3),
            record(7, OTHER, 0, 20, 5, 4),
            record(8, OTHER + 0x10, 1, 3, 1, 5),
            record(9, OTHER + 0x18, 0, 21, 1, 6),
        ],
        transfers: [
            (1, Destination::Branch(4)),
            (5, Destination::Branch(6)),
            (6, Destination::Exit),
            (7, Destination::Branch(9)),
            (9, Destination::Exit),
        ]
        .map(transfer)
        .into(),
        instructions: 10,
    }
}

fn code(id: u32, is_under_test: bool) -> ProgramCode {
    ProgramCode { id, name: "on_call".to_owned(), functions: vec![(CODE, 0x40), (OTHER, 0x20)], is_under_test }
}

fn symbols(programs: Vec<ProgramCode>) -> Symbols {
    Symbols { programs, ..Symbols::default() }
}

/// 10 calls. 4 of them take the branch that skips line 12. The other function skips the inlined
/// line in all calls but one.
fn window() -> Window {
    let block =
        |address, bytes, executions| BlockExecutions { address, instructions: 1, bytes, executions, misses: None };
    let blocks = vec![
        block(CODE, 0x18, 10),
        block(CODE + 0x18, 0x8, 6),
        block(CODE + 0x20, 0x8, 6),
        block(CODE + 0x28, 0x8, 10),
        block(CODE + 0x30, 0x10, 10),
        block(OTHER, 0x10, 6),
        block(OTHER + 0x10, 0x10, 1),
        block(OTHER + 0x18, 0x8, 5),
        block(0xffff_ffff_8100_0000, 0x40, 77),
    ];
    Window { number: 1, user: Vec::new(), user_misses: None, uncounted: 0, blocks }
}

fn known(id: u32, table: LineTable) -> Reported {
    Reported { id, lines: SourceLines::Known(table) }
}

fn lines(source: &ProgramSource) -> Vec<(&str, u32, &str)> {
    let lines = source.lines.value().unwrap();
    lines.lines.iter().map(|line| (lines.files[line.file as usize].as_str(), line.line, line.text.as_str())).collect()
}

#[test]
fn lines_and_branches_have_the_executions_of_their_code() {
    let mut coverage = Coverage::default();
    coverage.source(known(7, table()));
    coverage.symbols(&symbols(vec![code(6, false), code(7, true)]));
    coverage.run("one", Ok(&[window(), window()]));
    let boot = coverage.finish();
    let [program] = boot.programs.as_slice() else { panic!("{boot:?}") };
    let wanted = [
        ("a.h", 3, "INLINED"),
        ("b.c", 10, "\tu64 a = ctx[2];"),
        ("b.c", 11, "\tif (a)"),
        ("b.c", 12, "\t\tadd(a);"),
        ("b.c", 14, "\tlookup();"),
        ("b.c", 20, "add()"),
        ("b.c", 21, "}"),
    ];
    assert_eq!((program.program.as_str(), lines(program)), ("on_call", wanted.to_vec()));
    let branches = &program.lines.value().unwrap().branches;
    // The branch of the map lookup is not a branch of the source.
    let places: Vec<_> = branches.iter().map(|branch| (wanted[branch.line as usize].1, branch.column)).collect();
    assert_eq!(places, [(11, 6), (20, 5)]);
    let [run] = boot.runs.as_slice() else { panic!("{boot:?}") };
    let [executed] = run.programs.value().unwrap().as_slice() else { panic!("{boot:?}") };
    assert_eq!(executed.lines, [2, 20, 20, 12, 20, 12, 12]);
    assert_eq!(executed.branches, [Some([8, 12]), Some([10, 2])]);
}

#[test]
fn a_program_that_is_loaded_again_elsewhere_is_the_same() {
    let mut coverage = Coverage::default();
    let moved = LineTable {
        records: table()
            .records
            .into_iter()
            .map(|record| LineRecord { address: record.address + 0x10_0000, ..record })
            .collect(),
        ..table()
    };
    coverage.source(known(7, table()));
    coverage.symbols(&symbols(vec![code(7, true)]));
    coverage.run("one", Ok(&[window()]));
    coverage.source(known(8, moved));
    let elsewhere = code(8, true).functions.iter().map(|(start, length)| (start + 0x10_0000, *length)).collect();
    coverage.symbols(&symbols(vec![code(7, false), ProgramCode { functions: elsewhere, ..code(8, true) }]));
    coverage.run("two", Ok(&[window()]));
    let boot = coverage.finish();
    assert_eq!(boot.programs.len(), 1);
    let of = |run: usize| &boot.runs[run].programs.value().unwrap()[0];
    assert_eq!((of(0).program, of(1).program), (0, 0));
    // Nothing was executed where this code is.
    assert_eq!((of(0).lines[1], of(1).lines.as_slice()), (10, [0; 7].as_slice()));
    assert_eq!(of(1).branches, [Some([0, 0]), Some([0, 0])]);
}

#[test]
fn what_is_not_known_has_its_reason() {
    let mut coverage = Coverage::default();
    coverage.source(Reported { id: 1, lines: SourceLines::Unknown("interpreted".to_owned()) });
    coverage.source(known(2, LineTable { instructions: 8, ..table() }));
    coverage.symbols(&symbols([1, 2, 3].map(|id| code(id, true)).into()));
    coverage.run("one", Ok(&[window()]));
    coverage.run("two", Err("nothing was counted".to_owned()));
    let boot = coverage.finish();
    let reasons: Vec<_> = boot.programs.iter().map(|program| program.lines.reason().unwrap()).collect();
    assert_eq!(reasons[0], "interpreted");
    assert!(reasons[1].contains("contradicts itself") && reasons[2].contains("did not report"), "{reasons:?}");
    assert_eq!(boot.runs[0].programs.value().unwrap().len(), 3);
    assert_eq!(boot.runs[1].programs.reason(), Some("nothing was counted"));
}

#[test]
fn executions_that_contradict_each_other_tell_nothing_of_branches() {
    let mut window = window();
    // More executions than the function has entries.
    window.blocks[2].executions = 60;
    window.blocks[1].executions = 60;
    let mut coverage = Coverage::default();
    coverage.source(known(7, table()));
    coverage.symbols(&symbols(vec![code(7, true)]));
    coverage.run("one", Ok(&[window]));
    let boot = coverage.finish();
    let executed = &boot.runs[0].programs.value().unwrap()[0];
    assert_eq!((executed.lines[3], executed.branches.as_slice()), (60, [None, None].as_slice()));
}

#[test]
fn the_first_line_of_a_function_that_a_tail_call_enters_behind_its_prologue_ran() {
    let mut window = window();
    window.blocks[0] = BlockExecutions { address: CODE + 8, bytes: 0x10, ..window.blocks[0] };
    let mut coverage = Coverage::default();
    coverage.source(known(7, table()));
    coverage.symbols(&symbols(vec![code(7, true)]));
    coverage.run("one", Ok(&[window]));
    assert_eq!(coverage.finish().runs[0].programs.value().unwrap()[0].lines[1], 10);
}

#[test]
fn a_boot_keeps_no_more_than_a_line_of_the_journal_holds() {
    const LINES: u32 = 4000;
    let record = |instruction| LineRecord { instruction, address: CODE, line: instruction + 1, ..table().records[0] };
    let long =
        LineTable { records: (0..LINES).map(record).collect(), transfers: Vec::new(), instructions: LINES, ..table() };
    let mut coverage = Coverage::default();
    coverage.source(known(7, long));
    for _ in 0..MAX_NUMBERS / LINES as usize + 1 {
        coverage.symbols(&symbols(vec![code(7, true)]));
        coverage.run("one", Ok(&[]));
    }
    let boot = coverage.finish();
    assert!(boot.runs[0].programs.value().is_some());
    assert!(boot.runs.last().unwrap().programs.reason().unwrap().contains("than a journal keeps"));
    let mut coverage = Coverage::default();
    for id in 0..40 {
        let text = format!("{}{id}", "x".repeat(MAX_TEXT / 200));
        coverage.source(known(id, LineTable { texts: vec![text; 7], ..table() }));
        coverage.symbols(&symbols(vec![code(id, true)]));
        coverage.run("one", Ok(&[]));
    }
    let boot = coverage.finish();
    assert!(boot.runs[0].programs.value().is_some());
    assert!(boot.runs[39].programs.reason().unwrap().contains("than a journal keeps"));
}

fn destination() -> impl Strategy<Value = Destination> {
    prop_oneof![
        (0..40_u32).prop_map(Destination::Branch),
        (0..40_u32).prop_map(Destination::Jump),
        Just(Destination::Exit),
        Just(Destination::TailCall),
        Just(Destination::Indirect),
    ]
}

proptest! {
    /// For any data, lines and branches match their numbers, and outcomes add up to executions.
    #[test]
    fn any_table_ends(
        records in prop::collection::btree_map(0..40_u32, (0..0x40_u64, 0..3_u32, 0..9_u32, 0..8_u32), 0..20),
        transfers in prop::collection::btree_map(0..40_u32, destination(), 0..20),
        instructions in 0..40_u32,
        blocks in prop::collection::vec((0..0x40_u64, 0..0x20_u64, any::<u64>()), 0..20),
    ) {
        let record = |(&instruction, &(address, file, line, text)): (&u32, &(u64, u32, u32, u32))| LineRecord {
            instruction,
            address: CODE + address,
            file,
            line,
            column: 0,
            text,
        };
        let table = LineTable {
            records: records.iter().map(record).collect(),
            transfers: transfers.iter().map(|(&at, &to)| Transfer { at, to }).collect(),
            instructions,
            ..table()
        };
        let block = |&(address, bytes, executions): &(u64, u64, u64)| BlockExecutions { address: CODE + address, instructions: 1, bytes, executions, misses: None };
        let blocks = blocks.iter().map(block).collect();
        let window = Window { number: 1, user: Vec::new(), user_misses: None, uncounted: 0, blocks };
        let mut coverage = Coverage::default();
        coverage.source(known(7, table));
        coverage.symbols(&symbols(vec![code(7, true)]));
        coverage.run("one", Ok(&[window]));
        let boot = coverage.finish();
        let executed = &boot.runs[0].programs.value().unwrap()[0];
        if let Some(lines) = boot.programs[0].lines.value() {
            prop_assert_eq!((lines.lines.len(), lines.branches.len()), (executed.lines.len(), executed.branches.len()));
            for (branch, outcomes) in lines.branches.iter().zip(&executed.branches) {
                prop_assert!((branch.line as usize) < lines.lines.len());
                if let Some([jumps, falls]) = outcomes {
                    prop_assert!(jumps.checked_add(*falls).is_some());
                }
            }
        }
    }
}
