// SPDX-License-Identifier: MIT OR Apache-2.0
//! All program types and map types in libbpf's headers.

use bpfassay_protocol::feature::FeatureKind;

use super::{probe_env::ProbeEnv, sys};

pub(super) fn try_all(env: &mut ProbeEnv) {
    for kind in 1..libbpf_sys::__MAX_BPF_PROG_TYPE {
        let name = sys::program_type_name(kind).map_or_else(|| kind.to_string(), str::to_owned);
        env.tried(FeatureKind::ProgramType, name, sys::program_type(kind));
    }
    for kind in 1..libbpf_sys::__MAX_BPF_MAP_TYPE {
        let name = sys::map_type_name(kind).map_or_else(|| kind.to_string(), str::to_owned);
        let tried =
            if kind == libbpf_sys::BPF_MAP_TYPE_STRUCT_OPS { sys::struct_ops_map() } else { sys::map_type(kind) };
        env.tried(FeatureKind::MapType, name, tried);
    }
}
