// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of a run and its tool in a guest: of directories, files and cgroups.

/// Maximum number of characters of an id in a name.
const MOST_OF_ID: usize = 120;

/// Returns the name for files of the run `id` and for the workload's cgroup. Characters that file
/// names must not have are replaced, above all `@`, at which IOR splits a list of test files. Two
/// ids can give the same name, but only one run has files at a time.
///
/// The name does not begin with a dot, is not empty, and does not exceed the limit of file names.
///
/// ```
/// assert_eq!(
///     bpfassay_protocol::run_name::of("x86_64_6.12_1_r1_fexit@aya"),
///     "run-x86_64_6.12_1_r1_fexit_aya"
/// );
/// ```
#[must_use]
pub fn of(id: &str) -> String {
    let kept = |character: char| {
        if character.is_ascii_alphanumeric() || "._-".contains(character) { character } else { '_' }
    };
    "run-".chars().chain(id.chars().take(MOST_OF_ID).map(kept)).collect()
}

/// Returns the name of the cgroup for the tool under test in the run `id`.
#[must_use]
pub fn of_tool(id: &str) -> String {
    format!("{}-tool", of(id))
}

/// Returns the name of the cgroup for the bystander of the run `id`.
#[must_use]
pub fn of_bystander(id: &str) -> String {
    format!("{}-bystander", of(id))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_keep_the_plain_characters_of_an_id() {
        let id = "x86_64-6.1_posix-1m_nfs4.2_1_r1_fexit+percpu@aya";
        assert_eq!(of(id), "run-x86_64-6.1_posix-1m_nfs4.2_1_r1_fexit_percpu_aya");
        assert_eq!(of_tool(id), "run-x86_64-6.1_posix-1m_nfs4.2_1_r1_fexit_percpu_aya-tool");
    }

    proptest! {
        #[test]
        fn ids_never_lead_elsewhere_nor_split_a_list_of_files(id in ".{0,300}") {
            let name = of(&id);
            prop_assert!((4..=124).contains(&name.len()));
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)), "{name}");
            prop_assert!(!name.starts_with('.'));
        }
    }
}
