// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Compiled by clang 19 from reads.bpf.c in the same directory.
const OBJECT: &[u8] = include_bytes!("../../tests/data/reads.bpf.o");
/// Made from kernel.c in the same directory.
const KERNEL: &[u8] = include_bytes!("../../tests/data/kernel.btf");

fn checked(arch: Arch) -> BTreeMap<String, Checked> {
    let checked = check(OBJECT, KERNEL, arch).unwrap();
    checked.into_iter().map(|checked| (checked.program.clone(), checked)).collect()
}

#[test]
fn programs_that_read_the_wrong_argument_are_named() {
    let found = checked(Arch::X86_64);
    let differs = |program: &str| found[program].differs.join("; ");
    for right in ["right", "right_of_five", "asks", "first", "right_of_pointer", "mode", "mode_before"] {
        assert_eq!((differs(right), &found[right].unchecked), (String::new(), &None), "{right}");
    }
    let readv = "ssize_t vfs_readv(struct file *, const struct iovec *, unsigned long, loff_t *, rwf_t)";
    let read = "ssize_t vfs_read(struct file *, char *, size_t, loff_t *)";
    assert_eq!(
        differs("flags_for_return"),
        format!(
            "takes argument 5 for a number of 64 bits, where the return value would be with one argument less: {readv}"
        )
    );
    assert_eq!(differs("too_many"), format!("reads argument 6 of 4: {read}"));
    assert_eq!(differs("no_return_yet"), format!("reads argument 5 of 4: {read}"));
    assert_eq!(differs("of_nothing"), "reads argument 2 of 1: void put(struct file *)");
    for (wrong, what) in [
        ("pointer_for_error", "what is returned"),
        ("pointer_stored", "what is returned"),
        ("pointer_for_truth", "what is returned"),
        ("argument_for_error", "argument 3 of 4"),
    ] {
        let mkdir = "struct dentry *vfs_mkdir(struct mnt_idmap *, struct inode *, struct dentry *, unsigned short)";
        let expected = format!("takes {what}, a pointer, for a number of 32 bits: {mkdir}");
        assert_eq!(differs(wrong), expected, "{wrong}");
    }
    assert!(!found.contains_key("other"));
}

#[test]
fn what_cannot_be_followed_is_not_checked() {
    let found = checked(Arch::X86_64);
    assert_eq!(found["gone"].unchecked.as_deref(), Some("the kernel's BTF has no function gone"));
    assert_eq!(found["hands_on"].unchecked.as_deref(), Some("it hands its context to a function"));
    assert!(matches!(check(b"\x7fELF", KERNEL, Arch::X86_64), Err(PrototypeError::Object(_))));
    assert!(matches!(check(OBJECT, b"no BTF", Arch::X86_64), Err(PrototypeError::Btf(_))));
}

#[test]
fn registers_of_kprobes_are_those_of_the_architecture() {
    for (arch, wrong) in [
        (Arch::X86_64, vec!["fifth_on_x86_64"]),
        (Arch::Aarch64, vec!["fifth_on_aarch64"]),
        // On riscv64, offsets 72 and 32 are s1 and t0.
        (Arch::Riscv64, vec![]),
    ] {
        let of_kprobes = checked(arch).into_values().filter(|one| one.section.starts_with("kprobe"));
        let found: Vec<_> = of_kprobes.filter(|one| !one.differs.is_empty()).map(|one| one.program).collect();
        assert_eq!(found, wrong, "{arch}");
    }
    assert_eq!(argument_register(Arch::Riscv64, 112), Some(4));
    assert_eq!(argument_register(Arch::X86_64, 112), Some(0));
    assert_eq!(argument_register(Arch::X86_64, 80), None);
}

/// Compilers for version 3 of the instruction set compare halves of registers. For version 4, they
/// extend signs with one move.
#[test]
fn a_value_is_followed_to_what_it_is_taken_for() {
    let load = instruction(0x79, 6, 1, 32, 0); // r6 = *(u64 *)(r1 + 32)
    let taken = |load: [u8; 8], rest: &[[u8; 8]]| {
        let code = [&[load], rest, &[instruction(0x95, 0, 0, 0, 0)]].concat();
        let found = accesses(&code.concat(), Some(32)).unwrap();
        (found.narrows, found.keeps_whole)
    };
    let wide = |low: i32, high: i32| [instruction(0x18, 2, 0, 0, low), instruction(0, 0, 0, 0, high)];
    let and = instruction(0x5f, 6, 2, 0, 0); // r6 &= r2
    let spill = instruction(0x7b, 10, 6, -8, 0); // *(u64 *)(r10 - 8) = r6
    let half_back = instruction(0x61, 3, 10, -8, 0); // r3 = *(u32 *)(r10 - 8)
    let back = instruction(0x79, 3, 10, -8, 0); // r3 = *(u64 *)(r10 - 8)
    for half in [
        vec![instruction(0x16, 6, 0, 0, 0)], // if w6 == 0 goto +0
        vec![instruction(0xbc, 3, 6, 0, 0), instruction(0xc6, 3, 0, 0, 0)], // w3 = w6; if w3 s< 0 goto +0
        vec![instruction(0x1e, 3, 6, 0, 0)], // if w3 == w6 goto +0
        vec![instruction(0xbf, 3, 6, 32, 0)], // r3 = (s32)r6
        vec![instruction(0x67, 6, 0, 0, 32)], // r6 <<= 32
        vec![instruction(0x63, 7, 6, 0, 0)], // *(u32 *)(r7 + 0) = r6
        [&wide(i32::MIN, 0)[..], &[and]].concat(),
        [&wide(-1, 0)[..], &[and]].concat(),
        vec![spill, half_back],
    ] {
        assert_eq!(taken(load, &half), (true, false), "{half:x?}");
    }
    for whole in [
        vec![instruction(0x15, 6, 0, 0, 0)],              // if r6 == 0 goto +0
        vec![instruction(0x0f, 3, 6, 0, 0)],              // r3 += r6
        vec![instruction(0x7b, 7, 6, 0, 0)],              // *(u64 *)(r7 + 0) = r6
        vec![instruction(0x67, 6, 0, 0, 3)],              // r6 <<= 3
        vec![spill, back, instruction(0x65, 3, 0, 0, 0)], // if r3 s> 0 goto +0
        [&wide(-1, -1)[..], &[and]].concat(),
        [&wide(-1, 0)[..], &[instruction(0xb7, 2, 0, 0, 8), and]].concat(), // r2 = 8; r6 &= r2
        // The mask exists only on one of two paths.
        [&[instruction(0x15, 7, 0, 2, 0)][..], &wide(-1, 0), &[and]].concat(),
    ] {
        assert_eq!(taken(load, &whole), (false, true), "{whole:x?}");
    }
    for neither in [
        vec![instruction(0x16, 7, 0, 0, 0), instruction(0x15, 7, 0, 0, 0)], // of another register
        vec![instruction(0xb7, 6, 0, 0, 0), instruction(0x16, 6, 0, 0, 0)], // r6 = 0; if w6 == 0 goto +0
        vec![instruction(0x57, 6, 0, 0, 7), instruction(0x15, 6, 0, 0, 0)], // r6 &= 7; if r6 == 0 goto +0
        vec![instruction(0xbf, 2, 6, 0, 0), instruction(0x85, 0, 0, 0, 5)], // r2 = r6; call 5
        vec![spill, instruction(0x62, 10, 0, -8, 0), half_back],            // *(u32 *)(r10 - 8) = 0
    ] {
        assert_eq!(taken(load, &neither), (false, false), "{neither:x?}");
    }
    let elsewhere = instruction(0x79, 6, 1, 24, 0);
    assert_eq!(taken(elsewhere, &[instruction(0x16, 6, 0, 0, 0)]), (false, false));
}

/// Encodes an instruction from its five parts.
fn instruction(code: u8, target: u8, source: u8, offset: i16, immediate: i32) -> [u8; 8] {
    let [o0, o1] = offset.to_le_bytes();
    let [i0, i1, i2, i3] = immediate.to_le_bytes();
    [code, source << 4 | target, o0, o1, i0, i1, i2, i3]
}

#[test]
fn the_context_is_followed_through_copies_stack_and_branches() {
    let code = [
        instruction(0xbf, 6, 1, 0, 0),    // r6 = r1
        instruction(0x7b, 10, 6, -16, 0), // *(u64 *)(r10 - 16) = r6
        instruction(0x85, 0, 0, 0, 5),    // call 5
        instruction(0x15, 0, 0, 1, 0),    // if r0 == 0 goto +1
        instruction(0x79, 2, 6, 8, 0),    // r2 = *(u64 *)(r6 + 8)
        instruction(0x79, 3, 10, -16, 0), // r3 = *(u64 *)(r10 - 16)
        instruction(0x79, 4, 3, 24, 0),   // r4 = *(u64 *)(r3 + 24)
        instruction(0x79, 4, 1, 40, 0),   // r1 was lost in the call
        instruction(0x05, 0, 0, -5, 0),   // goto -5: a loop
    ]
    .concat();
    let found = accesses(&code, None).unwrap();
    assert_eq!((found.offsets, found.escapes), (BTreeSet::from([8, 24]), None));
    // r1 += 8
    let added = [instruction(0x07, 1, 0, 0, 8), instruction(0x95, 0, 0, 0, 0)].concat();
    assert_eq!(accesses(&added, None).unwrap().escapes, Some("it reckons with the address of its context"));
    // Jumps out of the program, and programs without an exit.
    assert_eq!(accesses(&instruction(0x05, 0, 0, 9, 0), None), None);
    assert_eq!(accesses(&instruction(0xbf, 6, 1, 0, 0), None), None);
    assert_eq!(accesses(&code[..7], None), None);
}

proptest! {
    #[test]
    fn any_instructions_are_followed_to_an_end(code in proptest::collection::vec(any::<[u8; 8]>(), 0..60)) {
        let _ = accesses(&code.concat(), None);
    }

    #[test]
    fn damaged_objects_and_kernels_end_in_an_answer(at in 0..OBJECT.len(), byte: u8) {
        let (mut object, mut kernel) = (OBJECT.to_vec(), KERNEL.to_vec());
        object[at] = byte;
        kernel[at % KERNEL.len()] = byte;
        let _ = check(&object, KERNEL, Arch::X86_64);
        let _ = check(OBJECT, &kernel, Arch::Riscv64);
    }
}
