// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of the trials: the kernel's types, and the program types of tracers.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use bpfassay_bpf::{MapSpec, ProgramSpec};
use bpfassay_protocol::kernel_feature::{Feature, FeatureKind, Support};
use libbpf_sys as bpf;

use super::{
    insn::{Code, Reg},
    trial_calls::{self, Result, TrialFailure},
};
use crate::kernel::btf::ids::{BtfKind, Ids};

/// The types of the running kernel, by name.
#[derive(Debug)]
pub(super) struct KernelTypes(Ids);

impl KernelTypes {
    pub(super) fn types(&self) -> u32 {
        self.0.count()
    }

    /// Returns the id of a function.
    ///
    /// # Errors
    /// There is no such function.
    pub(super) fn function(&self, name: &str) -> Result<u32> {
        self.find(name, BtfKind::Function, "function")
    }

    /// Returns the id of a structure. The errors are the errors of [`Self::function`].
    pub(super) fn structure(&self, name: &str) -> Result<u32> {
        self.find(name, BtfKind::Struct, "structure")
    }

    /// Returns the id of a typedef. The errors are those of [`Self::function`].
    pub(super) fn typedef(&self, name: &str) -> Result<u32> {
        self.find(name, BtfKind::Typedef, "typedef")
    }

    fn find(&self, name: &str, kind: BtfKind, what: &str) -> Result<u32> {
        self.0.find(name, kind).ok_or_else(|| TrialFailure::missing(format!("no {what} `{name}` in the kernel's BTF")))
    }
}

/// The function that trampolines hook in trials. It is not inlined, rarely called, and in the list
/// of functions in which `bpf_d_path` is allowed (kernel/trace/bpf_trace.c, `btf_allowlist_d_path`,
/// since 5.10).
pub(super) const FUNCTION: &str = "filp_close";

/// A program type, with its target if the verifier needs one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Kprobe,
    /// A kprobe that runs at entry and return and keeps a value of 64 bits in between (Linux 6.10).
    KprobeSession,
    RawTracepoint,
    /// Trampoline at the exit of [`FUNCTION`].
    Fexit,
    /// Hook of the LSM `bpf`, sleepable.
    Lsm,
    /// A sleepable program that user space calls.
    Syscall,
}

impl Context {
    /// Returns the part of a feature's name before the slash.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::KprobeSession => "kprobe.session",
            Self::RawTracepoint => "raw_tracepoint",
            Self::Fexit => "fexit",
            Self::Lsm => "lsm.s",
            Self::Syscall => "syscall",
        }
    }
}

/// The environment of the trials.
#[derive(Debug)]
pub(super) struct ProbeEnv {
    kernel: Result<KernelTypes>,
    features: Vec<Feature>,
}

impl ProbeEnv {
    pub(super) fn new() -> Self {
        let kernel = Ids::read().map(KernelTypes).map_err(|error| TrialFailure::kernel("BTF of the kernel", &error));
        Self { kernel, features: Vec::new() }
    }

    /// Returns the kernel's types.
    ///
    /// # Errors
    /// The kernel has no types.
    pub(super) fn kernel(&self) -> Result<&KernelTypes> {
        self.kernel.as_ref().map_err(Clone::clone)
    }

    /// Returns the specification of a program of this type.
    ///
    /// # Errors
    /// The kernel does not have the program's target.
    pub(super) fn program(&self, context: Context) -> Result<ProgramSpec<'static>> {
        let plain = ProgramSpec::new;
        Ok(match context {
            Context::Kprobe => plain(bpf::BPF_PROG_TYPE_KPROBE),
            Context::KprobeSession => {
                ProgramSpec { attach: bpf::BPF_TRACE_KPROBE_SESSION, ..plain(bpf::BPF_PROG_TYPE_KPROBE) }
            }
            Context::RawTracepoint => plain(bpf::BPF_PROG_TYPE_RAW_TRACEPOINT),
            Context::Fexit => ProgramSpec {
                attach: bpf::BPF_TRACE_FEXIT,
                target: self.kernel()?.function(FUNCTION)?,
                ..plain(bpf::BPF_PROG_TYPE_TRACING)
            },
            Context::Lsm => ProgramSpec {
                attach: bpf::BPF_LSM_MAC,
                target: self.kernel()?.function("bpf_lsm_file_open")?,
                flags: bpf::BPF_F_SLEEPABLE,
                ..plain(bpf::BPF_PROG_TYPE_LSM)
            },
            Context::Syscall => ProgramSpec { flags: bpf::BPF_F_SLEEPABLE, ..plain(bpf::BPF_PROG_TYPE_SYSCALL) },
        })
    }

    /// Records the outcome of a trial.
    pub(super) fn record(&mut self, kind: FeatureKind, name: impl Into<String>, support: Support) {
        self.features.push(Feature { kind, name: name.into(), support });
    }

    /// Records whether something worked.
    pub(super) fn tried<T>(&mut self, kind: FeatureKind, name: impl Into<String>, tried: Result<T>) {
        self.record(kind, name, trial_calls::support(tried));
    }

    /// Returns everything that was recorded.
    pub(super) fn into_features(self) -> Vec<Feature> {
        self.features
    }
}

/// Builds a program that calls kfuncs by name.
#[derive(Debug)]
pub(super) struct ProgramBuilder<'a> {
    kernel: &'a KernelTypes,
    code: Code,
    missing: Option<TrialFailure>,
    maps: Vec<OwnedFd>,
}

impl<'a> ProgramBuilder<'a> {
    pub(super) fn new(kernel: &'a KernelTypes) -> Self {
        Self { kernel, code: Code::default(), missing: None, maps: Vec::new() }
    }

    pub(super) fn with(mut self, add: impl FnOnce(Code) -> Code) -> Self {
        self.code = add(std::mem::take(&mut self.code));
        self
    }

    /// Calls the kfunc of this name.
    pub(super) fn kfunc(self, name: &str) -> Self {
        let found = self.kernel.function(name);
        self.with_found(found, |code, id| code.kernel_function(id as i32))
    }

    /// `register` = the id of one of the kernel's structures.
    pub(super) fn structure(self, register: Reg, name: &str) -> Self {
        let found = self.kernel.structure(name);
        self.with_found(found, |code, id| code.mov(register, id as i32))
    }

    /// `register` = a new map.
    pub(super) fn map(self, register: Reg, map: MapSpec<'_>) -> Self {
        self.with_map(trial_calls::create(map), |code, map| code.map(register, map))
    }

    /// `register` = the address of a string that the verifier knows to be constant.
    pub(super) fn constant_string(self, register: Reg, text: &str) -> Self {
        let bytes = [text.as_bytes(), b"\0"].concat();
        let map = MapSpec { flags: bpf::BPF_F_RDONLY_PROG, ..MapSpec::array(bytes.len() as u32) };
        self.with_map(trial_calls::constant(map, &bytes), |code, map| code.map_value(register, map))
    }

    /// Creates a dynptr to 64 bytes of an array's value. The dynptr occupies 16 bytes at `slot` of
    /// the stack. Uses R0 to R4, and the helper `bpf_dynptr_from_mem` (Linux 5.19).
    pub(super) fn dynptr(self, slot: i32) -> Self {
        self.with_map(trial_calls::create(MapSpec::array(64)), |code, map| {
            code.map_value(Reg::R1, map)
                .mov(Reg::R2, 64)
                .mov(Reg::R3, 0)
                .stack(Reg::R4, slot)
                .helper(bpf::BPF_FUNC_dynptr_from_mem)
        })
    }

    /// Adds instructions for what was found, or keeps the first failure.
    fn with_found<T>(mut self, found: Result<T>, add: impl FnOnce(Code, T) -> Code) -> Self {
        match found {
            Ok(found) => self.with(|code| add(code, found)),
            Err(failure) => {
                self.missing.get_or_insert(failure);
                self
            }
        }
    }

    /// Adds instructions for a map, which lives as long as the builder.
    fn with_map(self, made: Result<OwnedFd>, add: impl FnOnce(Code, BorrowedFd<'_>) -> Code) -> Self {
        let mut kept = None;
        let mut builder = self.with_found(made, |code, map| add(code, kept.insert(map).as_fd()));
        builder.maps.extend(kept);
        builder
    }

    /// Returns the builder if everything that it needs was found.
    ///
    /// # Errors
    /// The first thing that was not found.
    pub(super) fn complete(mut self) -> Result<Self> {
        match self.missing.take() {
            Some(failure) => Err(failure),
            None => Ok(self),
        }
    }

    /// Loads the program, with `return 0` at its end.
    ///
    /// # Errors
    /// Something that the program needs is missing, or the verifier's reason.
    pub(super) fn load(self, program: ProgramSpec<'_>) -> Result<OwnedFd> {
        let whole = self.complete()?;
        trial_calls::load(program, &whole.code.exit_zero())
    }
}
