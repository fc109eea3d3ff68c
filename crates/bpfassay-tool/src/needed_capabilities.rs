// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words for the capabilities that a tool needs.

use bpfassay_protocol::privileges::{CapabilitySearch, NeededCapability, Needs};

/// Lists the capabilities that a search found: `CAP_BPF, CAP_PERFMON`, `none`, or why they are not
/// known.
#[must_use]
pub fn needs(search: &CapabilitySearch) -> String {
    match &search.needs {
        Needs::Capabilities(needed) if needed.is_empty() => "none".to_owned(),
        Needs::Capabilities(needed) => names(needed).join(", "),
        Needs::Unknown(reason) => format!("not known: {reason}"),
    }
}

/// Says what a tool needs: `needs as user 1000 in addition: CAP_BPF`.
#[must_use]
pub fn needs_in_words(search: &CapabilitySearch) -> String {
    format!("needs{}{}: {}", as_user(search), in_addition(search), needs(search))
}

fn as_user(search: &CapabilitySearch) -> String {
    if search.user == 0 { String::new() } else { format!(" as user {}", search.user) }
}

const fn in_addition(search: &CapabilitySearch) -> &'static str {
    if search.had.is_empty() { "" } else { " in addition" }
}

/// Says with which capabilities a refused tool starts.
#[must_use]
pub fn starts_with(search: &CapabilitySearch) -> String {
    let (user, in_addition) = (as_user(search), in_addition(search));
    match &search.needs {
        Needs::Capabilities(needed) if needed.is_empty() => {
            format!("it started{user} in another attempt, with the same capabilities")
        }
        Needs::Capabilities(needed) => {
            format!("it starts{user} with {}{in_addition}, and with nothing less", names(needed).join(" and "))
        }
        Needs::Unknown(reason) => format!("the capabilities that it lacks{user} are not known: {reason}"),
    }
}

fn names(needed: &[NeededCapability]) -> Vec<&'static str> {
    needed.iter().map(|one| one.capability.name()).collect()
}

#[cfg(test)]
mod tests {
    use bpfassay_protocol::privileges::Capability;

    use super::*;

    #[test]
    fn what_is_needed_is_named_and_what_is_not_known_has_its_reason() {
        let of = |user, had: &[Capability], needs| CapabilitySearch { user, had: had.to_vec(), needs, starts: 9 };
        let needed = |capabilities: &[Capability]| {
            let one = |&capability| NeededCapability { capability, without: "ended".to_owned() };
            Needs::Capabilities(capabilities.iter().map(one).collect())
        };
        let both = of(1000, &[], needed(&[Capability::Perfmon, Capability::Bpf]));
        assert_eq!(needs(&both), "CAP_PERFMON, CAP_BPF");
        assert_eq!(starts_with(&both), "it starts as user 1000 with CAP_PERFMON and CAP_BPF, and with nothing less");
        let one = of(0, &[Capability::Bpf], needed(&[Capability::Perfmon]));
        assert_eq!(starts_with(&one), "it starts with CAP_PERFMON in addition, and with nothing less");
        let none = of(0, &[Capability::Bpf], needed(&[]));
        assert_eq!(needs(&none), "none");
        assert_eq!(starts_with(&none), "it started in another attempt, with the same capabilities");
        let unknown = of(0, &[], Needs::Unknown("with all capabilities, it ended".to_owned()));
        assert_eq!(needs(&unknown), "not known: with all capabilities, it ended");
        assert_eq!(
            starts_with(&unknown),
            "the capabilities that it lacks are not known: with all capabilities, it ended"
        );
    }
}
