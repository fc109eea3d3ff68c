//! Findings from what the kernel and the guest saw.

use bpfassay_protocol::tracer::{Refusal, Step};

use super::{Detach, KernelFacts, Limits, Start, Verdict};

pub(super) fn load(start: Option<&Start>) -> Verdict {
    match start {
        None => Verdict::not_judged("nobody saw it start"),
        Some(Start::Refused(refusal)) if refusal.step != Step::Attach => Verdict::from_evidence(words(refusal)),
        Some(Start::Ready | Start::Refused(_)) => Verdict::Clear,
        Some(Start::NotReady { .. }) => {
            Verdict::not_judged("it did not become ready, and nothing tells whether it had loaded")
        }
    }
}

pub(super) fn attach(start: Option<&Start>) -> Verdict {
    match start {
        None => Verdict::not_judged("nobody saw it start"),
        Some(Start::Ready) => Verdict::Clear,
        Some(Start::Refused(refusal)) if refusal.step == Step::Attach => Verdict::from_evidence(words(refusal)),
        Some(Start::Refused(_)) => Verdict::not_judged("it did not load"),
        Some(Start::NotReady { message }) => Verdict::from_evidence(vec![format!("it never became ready: {message}")]),
    }
}

fn words(refusal: &Refusal) -> Vec<String> {
    let program = refusal.program.as_ref().map(|program| format!("{program}: ")).unwrap_or_default();
    let errno = refusal.errno.map(|errno| format!(" (error {errno})")).unwrap_or_default();
    let first = format!("{program}{}{errno}", refusal.message);
    std::iter::once(first).chain(refusal.verifier.as_ref().map(|line| format!("verifier: {line}"))).collect()
}

pub(super) fn missed(facts: Option<&KernelFacts>) -> Verdict {
    let of = |count: Option<u64>, what: &str| count.filter(|&count| count > 0).map(|count| format!("{count} {what}"));
    let Some(facts) = facts.filter(|facts| facts.missed_probes.is_some() || facts.recursion_misses.is_some()) else {
        return Verdict::not_judged("the kernel does not tell");
    };
    let evidence = [
        of(facts.missed_probes, "kprobe hits ran no handler"),
        of(facts.recursion_misses, "times a program was already running on its CPU"),
    ];
    Verdict::from_evidence(evidence.into_iter().flatten().collect())
}

pub(super) fn left_behind(facts: Option<&KernelFacts>) -> Verdict {
    match facts.and_then(|facts| facts.left_behind.as_ref()) {
        Some(left) => Verdict::from_evidence(left.clone()),
        None => Verdict::not_judged("what is in the kernel was not listed before and after"),
    }
}

pub(super) fn memory(facts: Option<&KernelFacts>, limits: &Limits) -> Verdict {
    match facts.and_then(|facts| facts.memory_bytes) {
        None => Verdict::not_judged("not measured"),
        Some(bytes) if bytes <= limits.memory_bytes => Verdict::Clear,
        Some(bytes) => Verdict::from_evidence(vec![format!("{bytes} bytes; limit {}", limits.memory_bytes)]),
    }
}

pub(super) fn idle(facts: Option<&KernelFacts>, limits: &Limits) -> Verdict {
    match facts.and_then(|facts| facts.idle_cpu) {
        None | Some((_, 0)) => Verdict::not_judged("not measured"),
        Some((used, lasted)) => {
            let ppm = u128::from(used) * 1_000_000 / u128::from(lasted);
            if ppm <= u128::from(limits.idle_cpu_ppm) {
                return Verdict::Clear;
            }
            Verdict::from_evidence(vec![format!(
                "{used} ns of CPU time in {lasted} ns: {ppm} millionths of a CPU; limit {}",
                limits.idle_cpu_ppm
            )])
        }
    }
}

pub(super) fn detach(facts: Option<&KernelFacts>, limits: &Limits) -> Verdict {
    match facts.and_then(|facts| facts.detach.as_ref()) {
        None => slow(None, limits.detach_ns, "to end"),
        Some(&Detach::After(took)) => slow(Some(took), limits.detach_ns, "to end"),
        Some(Detach::Killed(how)) => Verdict::from_evidence(vec![how.clone()]),
    }
}

pub(super) fn slow(took_ns: Option<u64>, limit_ns: u64, what: &str) -> Verdict {
    match took_ns {
        None => Verdict::not_judged("not measured"),
        Some(took) if took <= limit_ns => Verdict::Clear,
        Some(took) => Verdict::from_evidence(vec![format!("{took} ns {what}; limit {limit_ns} ns")]),
    }
}
