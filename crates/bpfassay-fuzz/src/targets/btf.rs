// SPDX-License-Identifier: MIT OR Apache-2.0
//! BTF and eBPF objects.

use std::collections::BTreeSet;

use bpfassay_btf::{Btf, prototype};
use bpfassay_protocol::Arch;

const KERNEL: &[u8] = include_bytes!("../../../bpfassay-btf/tests/data/kernel.btf");

/// BTF of a kernel or an object.
pub(super) fn btf(bytes: &[u8]) {
    let Ok(btf) = Btf::new(bytes) else { return };
    let _ = btf.prototypes(&BTreeSet::from(["vfs_read", "vfs_write", "f"]));
    for map in ["counts", ".bss", ".maps"] {
        if let Some(layout) = btf.map(map) {
            assert!([layout.key, layout.value].into_iter().flatten().all(|layout| layout.fields.len() <= 512));
        }
    }
}

/// An object, whose programs are compared with a kernel's functions.
pub(super) fn object(object: &[u8]) {
    for &arch in Arch::ALL {
        let _ = prototype::check(object, KERNEL, arch);
    }
}

/// BTF of a kernel, with which an object's programs are compared.
pub(super) fn kernel(kernel: &[u8]) {
    const OBJECT: &[u8] = include_bytes!("../../../bpfassay-btf/tests/data/reads.bpf.o");
    let _ = prototype::check(OBJECT, kernel, Arch::X86_64);
}
