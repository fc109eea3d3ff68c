//! Findings from what the kernel and the guest saw.

use bpfassay_protocol::tracer::{Refusal, Step};

use super::{Detach, FindingStatus, KernelFacts, Limits, Start};

pub(super) fn load(start: Option<&Start>) -> FindingStatus {
    match start {
        None => FindingStatus::not_evaluated("nobody saw it start"),
        Some(Start::Refused(refusal)) if refusal.step != Step::Attach => FindingStatus::from_evidence(words(refusal)),
        Some(Start::Ready | Start::Refused(_)) => FindingStatus::Clear,
        Some(Start::NotReady { .. }) => {
            FindingStatus::not_evaluated("it did not become ready, and nothing tells whether it had loaded")
        }
    }
}

pub(super) fn attach(start: Option<&Start>) -> FindingStatus {
    match start {
        None => FindingStatus::not_evaluated("nobody saw it start"),
        Some(Start::Ready) => FindingStatus::Clear,
        Some(Start::Refused(refusal)) if refusal.step == Step::Attach => FindingStatus::from_evidence(words(refusal)),
        Some(Start::Refused(_)) => FindingStatus::not_evaluated("it did not load"),
        Some(Start::NotReady { message }) => {
            FindingStatus::from_evidence(vec![format!("it never became ready: {message}")])
        }
    }
}

fn words(refusal: &Refusal) -> Vec<String> {
    let program = refusal.program.as_ref().map(|program| format!("{program}: ")).unwrap_or_default();
    let errno = refusal.errno.map(|errno| format!(" (error {errno})")).unwrap_or_default();
    let first = format!("{program}{}{errno}", refusal.message);
    std::iter::once(first).chain(refusal.verifier.as_ref().map(|line| format!("verifier: {line}"))).collect()
}

pub(super) fn missed(facts: Option<&KernelFacts>) -> FindingStatus {
    let of = |count: Option<u64>, what: &str| count.filter(|&count| count > 0).map(|count| format!("{count} {what}"));
    let Some(facts) = facts.filter(|facts| facts.missed_probes.is_some() || facts.recursion_misses.is_some()) else {
        return FindingStatus::not_evaluated("the kernel does not tell");
    };
    let evidence = [
        of(facts.missed_probes, "kprobe hits ran no handler"),
        of(facts.recursion_misses, "times a program was already running on its CPU"),
    ];
    FindingStatus::from_evidence(evidence.into_iter().flatten().collect())
}

pub(super) fn left_behind(facts: Option<&KernelFacts>) -> FindingStatus {
    match facts.and_then(|facts| facts.left_behind.as_ref()) {
        Some(left) => FindingStatus::from_evidence(left.clone()),
        None => FindingStatus::not_evaluated("what is in the kernel was not listed before and after"),
    }
}

pub(super) fn memory(facts: Option<&KernelFacts>, limits: &Limits) -> FindingStatus {
    match facts.and_then(|facts| facts.memory_bytes) {
        None => FindingStatus::not_evaluated("not measured"),
        Some(bytes) if bytes <= limits.memory_bytes => FindingStatus::Clear,
        Some(bytes) => FindingStatus::from_evidence(vec![format!("{bytes} bytes; limit {}", limits.memory_bytes)]),
    }
}

pub(super) fn idle(facts: Option<&KernelFacts>, limits: &Limits) -> FindingStatus {
    match facts.and_then(|facts| facts.idle_cpu) {
        None | Some((_, 0)) => FindingStatus::not_evaluated("not measured"),
        Some((used, lasted)) => {
            let ppm = u128::from(used) * 1_000_000 / u128::from(lasted);
            if ppm <= u128::from(limits.idle_cpu_ppm) {
                return FindingStatus::Clear;
            }
            FindingStatus::from_evidence(vec![format!(
                "{used} ns of CPU time in {lasted} ns: {ppm} millionths of a CPU; limit {}",
                limits.idle_cpu_ppm
            )])
        }
    }
}

pub(super) fn detach(facts: Option<&KernelFacts>, limits: &Limits) -> FindingStatus {
    match facts.and_then(|facts| facts.detach.as_ref()) {
        None => slow(None, limits.detach_ns, "to end"),
        Some(&Detach::After(took)) => slow(Some(took), limits.detach_ns, "to end"),
        Some(Detach::Killed(how)) => FindingStatus::from_evidence(vec![how.clone()]),
    }
}

pub(super) fn slow(took_ns: Option<u64>, limit_ns: u64, what: &str) -> FindingStatus {
    match took_ns {
        None => FindingStatus::not_evaluated("not measured"),
        Some(took) if took <= limit_ns => FindingStatus::Clear,
        Some(took) => FindingStatus::from_evidence(vec![format!("{took} ns {what}; limit {limit_ns} ns")]),
    }
}
