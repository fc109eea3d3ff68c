// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::instruction::{EXIT, JUMP};

/// Ids of maps: two shared hashes, per-CPU hash, shared array.
const HASH: i32 = 7;
const OTHER: i32 = 6;
const PER_CPU: i32 = 8;
const ARRAY: i32 = 9;

/// Immediate values of calls, and the functions that they call.
const FUNCTIONS: &[(i32, &str)] = &[
    (1, "__htab_map_lookup_elem"),
    (2, "htab_map_update_elem"),
    (3, "bpf_get_current_pid_tgid"),
    (4, "bpf_spin_lock"),
    (5, "bpf_spin_unlock"),
    (6, "bpf_get_current_comm"),
    (7, "array_map_lookup_elem"),
];
const LOOKUP: i32 = 1;
const UPDATE: i32 = 2;
const PID_TGID: i32 = 3;
const LOCK: i32 = 4;
const UNLOCK: i32 = 5;
const COMM: i32 = 6;

/// `BPF_ALU64 | BPF_AND | BPF_X`.
const AND: u8 = 0x5f;

struct Guest;

impl Kernel for Guest {
    fn map(&self, id: u32) -> Option<SharedMap> {
        let is_shared = matches!(id.cast_signed(), HASH | OTHER | ARRAY);
        Some(SharedMap { key_size: 16, value_size: 16, is_shared })
    }

    fn function(&self, immediate: i32) -> Option<&str> {
        FUNCTIONS.iter().find(|(call, _)| *call == immediate).map(|(_, name)| *name)
    }
}

type Word = (u8, u8, u8, i16, i32);

fn code(words: &[Word]) -> Vec<Instruction> {
    let instruction =
        |&(code, target, source, offset, immediate): &Word| Instruction { code, target, source, offset, immediate };
    words.iter().map(instruction).collect()
}

fn updates(parts: &[&[Word]]) -> Vec<RacyUpdate> {
    let words = [&parts.concat()[..], &[(EXIT, 0, 0, 0, 0)]].concat();
    racy_updates(&code(&words), &Guest).unwrap()
}

/// Returns the instructions of racy updates in a program.
fn found(parts: &[&[Word]]) -> Vec<u32> {
    updates(parts).into_iter().map(|update| update.instruction).collect()
}

/// A load of 8 bytes from register 0 to register 1, an addition of 1, a store back.
const PLUS_ONE: &[Word] = &[(0x79, 1, 0, 8, 0), (ADD_CONSTANT, 1, 0, 0, 1), (0x7b, 0, 1, 8, 0)];

/// A lookup of the key at stack offset -16, which the kernel inlined, and the test for no value.
const fn lookup(map: i32) -> [Word; 8] {
    lookup_before(3, map)
}

/// The same before `rest` instructions that need the value.
const fn lookup_before(rest: i16, map: i32) -> [Word; 8] {
    [
        (MOVE, 2, 10, 0, 0),
        (ADD_CONSTANT, 2, 0, 0, -16),
        (LOAD_WIDE, 1, MAP, 0, map),
        (0, 0, 0, 0, 0),
        (CALL, 0, 0, 0, LOOKUP),
        (IF_EQUAL, 0, 0, 1, 0),
        (ADD_CONSTANT, 0, 0, 0, 56),
        (IF_EQUAL, 0, 0, rest, 0),
    ]
}

#[test]
fn what_is_added_to_a_shared_value_without_an_atomic_instruction_is_racy() {
    assert_eq!(found(&[&lookup(HASH), PLUS_ONE]), [10]);
    assert_eq!(found(&[&lookup(PER_CPU), PLUS_ONE]), [0_u32; 0]);
    // `lock *(u64 *)(r0 + 8) += r1`
    let atomic: &[Word] = &[(MOVE_CONSTANT, 1, 0, 0, 1), (0xdb, 0, 1, 8, 0), (MOVE_CONSTANT, 0, 0, 0, 0)];
    assert_eq!(found(&[&lookup(HASH), atomic]), [0_u32; 0]);
    // A store of another number does not depend on what was there.
    let set: &[Word] = &[(0x79, 1, 0, 0, 0), (MOVE_CONSTANT, 1, 0, 0, 1), (0x7b, 0, 1, 8, 0)];
    assert_eq!(found(&[&lookup(HASH), set]), [0_u32; 0]);
    // The sum goes to another place of the value.
    let moved: &[Word] = &[(0x79, 1, 0, 0, 0), (ADD_CONSTANT, 1, 0, 0, 1), (0x7b, 0, 1, 8, 0)];
    assert_eq!(found(&[&lookup(HASH), moved]), [0_u32; 0]);
}

/// `if (r6) first += 1; else second += 1;`, where both branches share the addition.
fn merged(first: i32, second: i32) -> Vec<Word> {
    let branch: &[Word] = &[(0x15, 6, 0, 9, 0)];
    let over: &[Word] = &[(JUMP, 0, 0, 8, 0)];
    [branch, &lookup_before(12, first), over, &lookup_before(3, second), PLUS_ONE].concat()
}

#[test]
fn an_instruction_that_updates_different_maps_is_merged() {
    let maps = |parts: &[&[Word]]| -> Vec<(i32, bool)> {
        updates(parts).into_iter().map(|update| (update.map.cast_signed(), update.is_merged)).collect()
    };
    assert_eq!(maps(&[&lookup(HASH), PLUS_ONE]), [(HASH, false)]);
    let of_two_maps = maps(&[&merged(HASH, OTHER)]);
    assert!(matches!(of_two_maps[..], [(HASH | OTHER, true)]), "{of_two_maps:?}");
    // A value is looked up again after its key was added.
    assert_eq!(maps(&[&merged(HASH, HASH)]), [(HASH, false)]);
}

#[test]
fn a_value_that_is_compared_and_then_set_is_racy() {
    // r1 = value; if r1 > r2 then leave it; value = r2
    let most: &[Word] = &[(0x79, 1, 0, 8, 0), (0x2d, 1, 2, 1, 0), (0x7b, 0, 2, 8, 0)];
    assert_eq!(found(&[&lookup(HASH), most]), [10]);
}

#[test]
fn what_goes_to_another_function_and_back_through_the_stack_is_followed() {
    // The value, or 0 if there is none, goes to the stack; the sum is the new value.
    let words: &[Word] = &[
        (MOVE, 2, 10, 0, 0),
        (ADD_CONSTANT, 2, 0, 0, -16),
        (LOAD_WIDE, 1, MAP, 0, HASH),
        (0, 0, 0, 0, 0),
        (CALL, 0, 0, 0, LOOKUP),
        (IF_EQUAL, 0, 0, 1, 0),
        (ADD_CONSTANT, 0, 0, 0, 56),
        (MOVE_CONSTANT, 6, 0, 0, 0),
        (IF_EQUAL, 0, 0, 1, 0),
        (0x79, 6, 0, 0, 0),
        (0x7b, 10, 6, -32, 0),
        (0x79, 3, 10, -32, 0),
        (ADD_CONSTANT, 3, 0, 0, 1),
        (0x7b, 10, 3, -40, 0),
        (MOVE, 2, 10, 0, 0),
        (ADD_CONSTANT, 2, 0, 0, -16),
        (MOVE, 3, 10, 0, 0),
        (ADD_CONSTANT, 3, 0, 0, -40),
        (LOAD_WIDE, 1, MAP, 0, HASH),
        (0, 0, 0, 0, 0),
        (CALL, 0, 0, 0, UPDATE),
    ];
    assert_eq!(found(&[words]), [20]);
    // A new value that does not depend on the old one.
    let mut other = words.to_vec();
    other[12] = (MOVE_CONSTANT, 3, 0, 0, 1);
    assert_eq!(found(&[&other]), [0_u32; 0]);
}

#[test]
fn keys_with_the_thread_do_not_meet_and_keys_with_the_process_do() {
    let key = |value: &[Word]| [value, &[(0x7b, 10, 0, -16, 0)]].concat();
    let thread: &[Word] = &[(CALL, 0, 0, 0, PID_TGID)];
    let process: &[Word] = &[(CALL, 0, 0, 0, PID_TGID), (SHIFT_RIGHT, 0, 0, 0, 32)];
    assert_eq!(found(&[&key(thread), &lookup(HASH), PLUS_ONE]), [0_u32; 0]);
    assert_eq!(found(&[&key(process), &lookup(HASH), PLUS_ONE]), [13]);
    // The number of the CPU, which newer kernels read without a call.
    let inlined: &[Word] = &[(MOVE_CONSTANT, 0, 0, 0, 512), (MOVE, 0, 0, OF_THIS_CPU, 0), (0x61, 0, 0, 0, 0)];
    assert_eq!(found(&[&key(inlined), &lookup(HASH), PLUS_ONE]), [0_u32; 0]);
    // A helper writes the name of the process over the key, or next to it.
    let comm = |at: i32| -> Vec<Word> {
        vec![(MOVE, 1, 10, 0, 0), (ADD_CONSTANT, 1, 0, 0, at), (MOVE_CONSTANT, 2, 0, 0, 8), (CALL, 0, 0, 0, COMM)]
    };
    assert_eq!(found(&[&key(thread), &comm(-16), &lookup(HASH), PLUS_ONE]).len(), 1);
    assert_eq!(found(&[&key(thread), &comm(-8), &lookup(HASH), PLUS_ONE]), [0_u32; 0]);
}

#[test]
fn a_spin_lock_protects_what_is_between_it_and_its_end() {
    let call = |function| -> Vec<Word> {
        vec![(MOVE, 6, 0, 0, 0), (MOVE, 1, 0, 0, 0), (CALL, 0, 0, 0, function), (MOVE, 0, 6, 0, 0)]
    };
    assert_eq!(found(&[&lookup_before(7, HASH), &call(LOCK), PLUS_ONE]), [0_u32; 0]);
    assert_eq!(found(&[&lookup_before(11, HASH), &call(LOCK), &call(UNLOCK), PLUS_ONE]).len(), 1);
}

#[test]
fn elements_of_arrays_and_global_variables_are_shared() {
    let inlined: &[Word] = &[
        (MOVE, 2, 10, 0, 0),
        (ADD_CONSTANT, 2, 0, 0, -16),
        (LOAD_WIDE, 1, MAP, 0, ARRAY),
        (0, 0, 0, 0, 0),
        (ADD_CONSTANT, 1, 0, 0, 272),
        (0x61, 0, 2, 0, 0),
        (0x35, 0, 0, 3, 16),
        (0x67, 0, 0, 0, 3),
        (ADD, 0, 1, 0, 0),
        (JUMP, 0, 0, 1, 0),
        (MOVE_CONSTANT, 0, 0, 0, 0),
        (IF_EQUAL, 0, 0, 3, 0),
    ];
    assert_eq!(found(&[inlined, PLUS_ONE]), [14]);
    let global: &[Word] = &[(LOAD_WIDE, 0, MAP_VALUE, 0, ARRAY), (0, 0, 0, 0, 24)];
    assert_eq!(found(&[global, PLUS_ONE]), [4]);
}

/// bpftrace counts lost events of each CPU in an array: `lost[cpu & most]`, where `most` is a
/// global variable.
#[test]
fn what_the_number_of_the_cpu_selects_is_not_shared() {
    let most: &[Word] = &[(LOAD_WIDE, 1, MAP_VALUE, 0, PER_CPU), (0, 0, 0, 0, 8), (0x79, 1, 1, 0, 0)];
    let address: &[Word] =
        &[(0x67, 0, 0, 0, 3), (LOAD_WIDE, 2, MAP_VALUE, 0, ARRAY), (0, 0, 0, 0, 0), (ADD, 2, 0, 0, 0)];
    let selected =
        |of: Word, masked: Word| found(&[&[of], most, &[masked], address, &[(MOVE, 0, 2, 0, 0)], PLUS_ONE]).len();
    let cpu = (CALL, 0, 0, 0, 8);
    assert_eq!(selected(cpu, (AND, 0, 1, 0, 0)), 0);
    assert_eq!(selected((MOVE_CONSTANT, 0, 0, 0, 5), (AND, 0, 1, 0, 0)), 1, "the same for all CPUs");
    // `most & cpu`, and a key with this number.
    assert_eq!(
        found(&[&[cpu], most, &[(AND, 1, 0, 0, 0), (0x7b, 10, 1, -16, 0)], &lookup(HASH), PLUS_ONE]),
        [0_u32; 0]
    );
    // A shared number with the CPU added to it is shared.
    let plus_cpu: &[Word] =
        &[(MOVE, 6, 0, 0, 0), (CALL, 0, 0, 0, 8), (0x79, 1, 6, 8, 0), (ADD, 1, 0, 0, 0), (0x7b, 6, 1, 8, 0)];
    assert_eq!(found(&[&lookup_before(5, HASH), plus_cpu]).len(), 1);
}

#[test]
fn without_the_names_of_functions_nothing_is_claimed() {
    let unnamed: &[Word] = &[(CALL, 0, 0, 0, 99)];
    let words = [unnamed, &lookup(HASH), PLUS_ONE, &[(EXIT, 0, 0, 0, 0)]].concat();
    assert!(racy_updates(&code(&words), &Guest).unwrap_err().contains("which functions it calls"));
    assert_eq!(racy_updates(&code(&[(CALL, 0, 0, 0, 99), (EXIT, 0, 0, 0, 0)]), &Guest), Ok(vec![]));
    assert!(racy_updates(&[], &Guest).is_err());
    assert!(racy_updates(&code(&[(JUMP, 0, 0, 99, 0)]), &Guest).is_err());
}

#[test]
fn helpers_that_a_jit_inlines_are_known_by_their_numbers() {
    let key = |helper| -> [Word; 2] { [(CALL, 0, 0, 0, helper), (0x7b, 10, 0, -16, 0)] };
    for helper in [8, 35, 158] {
        assert_eq!(found(&[&key(helper), &lookup(HASH), PLUS_ONE]), [0_u32; 0], "helper {helper}");
    }
    // The key does not depend on the task.
    let call: &[Word] = &[(CALL, 0, 0, 0, 35)];
    assert_eq!(found(&[call, &lookup(HASH), PLUS_ONE]), [11]);
}

proptest! {
    #[test]
    fn any_instructions_end_in_an_answer(words in prop::collection::vec(any::<(u8, u8, u8, i16, i32)>(), 0..40)) {
        let _ = racy_updates(&code(&words), &Guest);
    }
}
