// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features that do not concern programs: types, the JIT compiler, statistics, tokens, settings.

use std::{fs, io, os::fd::AsFd as _};

use bpfassay_bpf::{enable_statistics, program_info};
use bpfassay_protocol::kernel_feature::{FeatureKind, Support};

use super::{
    insn::Code,
    probe_env::{Context, ProbeEnv},
    token,
    trial_calls::{self, Result, TrialFailure},
};
use crate::kernel::jit;

/// Settings by their names as features.
const SETTINGS: [(&str, &str); 4] = [
    ("jit-harden", "/proc/sys/net/core/bpf_jit_harden"),
    ("jit-kallsyms", "/proc/sys/net/core/bpf_jit_kallsyms"),
    ("unprivileged-bpf-disabled", "/proc/sys/kernel/unprivileged_bpf_disabled"),
    ("statistics-setting", "/proc/sys/kernel/bpf_stats_enabled"),
];

const MODULES: &str = "/sys/kernel/btf";

pub(super) fn try_all(env: &mut ProbeEnv) {
    let types = env.kernel().map(|kernel| Some(kernel.types().to_string()));
    record(env, FeatureKind::Btf, "vmlinux", types);
    let modules = modules();
    record(env, FeatureKind::Btf, "modules", modules);
    let jit = compiler(env);
    record(env, FeatureKind::System, "jit", jit);
    for (name, path) in SETTINGS {
        let setting = read(path).map(Some);
        record(env, FeatureKind::System, name, setting);
    }
    let statistics = enable_statistics().map_err(|error| TrialFailure::kernel("BPF_ENABLE_STATS", &error));
    env.tried(FeatureKind::System, "statistics", statistics);
    env.tried(FeatureKind::System, "token", token::create());
    record(env, FeatureKind::System, "config", config());
}

fn record(env: &mut ProbeEnv, kind: FeatureKind, name: &str, tried: Result<Option<String>>) {
    let support = match tried {
        Ok(value) => Support::Works { value },
        Err(failure) => failure.into(),
    };
    env.record(kind, name, support);
}

/// Checks whether loaded modules have BTF.
fn modules() -> Result<Option<String>> {
    let list = fs::read_dir(MODULES).map_err(|error| TrialFailure::kernel(MODULES, &error))?;
    let names = list.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>();
    let count = names
        .map_err(|error| TrialFailure::NotTried(format!("{MODULES}: {error}")))?
        .iter()
        .filter(|name| *name != "vmlinux")
        .count();
    let loaded = fs::read_to_string("/proc/modules").unwrap_or_default().lines().count();
    match (count, loaded) {
        (0, 0) => Err(TrialFailure::NotTried("no module is loaded".to_owned())),
        (0, loaded) => Err(TrialFailure::missing(format!("none of the {loaded} loaded modules has BTF"))),
        (_, _) => Ok(None),
    }
}

/// Checks whether programs are JIT-compiled. Returns the setting.
fn compiler(env: &ProbeEnv) -> Result<Option<String>> {
    let program = trial_calls::load(env.program(Context::RawTracepoint)?, &Code::default().exit_zero())?;
    let info = program_info(program.as_fd()).map_err(|error| TrialFailure::kernel("program information", &error))?;
    match info.jited_bytes {
        0 => Err(TrialFailure::missing("programs are interpreted")),
        _ => Ok(jit::setting().ok()),
    }
}

fn read(path: &str) -> Result<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text.trim().to_owned()),
        Err(error) => Err(TrialFailure::kernel(path, &error)),
    }
}

/// Checks whether the kernel shows its configuration.
fn config() -> Result<Option<String>> {
    match fs::metadata("/proc/config.gz") {
        Ok(_) => Ok(None),
        Err(error) => {
            Err(TrialFailure::kernel("/proc/config.gz (CONFIG_IKCONFIG_PROC), the configuration is unknown", &error))
        }
    }
}
