// SPDX-License-Identifier: MIT OR Apache-2.0
//! All program types and map types in libbpf's headers.

use bpfassay_protocol::kernel_feature::FeatureKind;

use super::{probe_env::ProbeEnv, trial_calls};

pub(super) fn try_all(env: &mut ProbeEnv) {
    for kind in 1..libbpf_sys::__MAX_BPF_PROG_TYPE {
        let name = trial_calls::program_type_name(kind).map_or_else(|| kind.to_string(), str::to_owned);
        env.tried(FeatureKind::ProgramType, name, trial_calls::program_type(kind));
    }
    for kind in 1..libbpf_sys::__MAX_BPF_MAP_TYPE {
        let name = trial_calls::map_type_name(kind).map_or_else(|| kind.to_string(), str::to_owned);
        let tried = if kind == libbpf_sys::BPF_MAP_TYPE_STRUCT_OPS {
            trial_calls::struct_ops_map()
        } else {
            trial_calls::map_type(kind)
        };
        env.tried(FeatureKind::MapType, name, tried);
    }
}
