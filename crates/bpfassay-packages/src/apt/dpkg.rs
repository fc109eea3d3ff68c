// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out which packages this host has installed.

use super::cannot_start;
use crate::error::Result;

/// Returns those of `packages` (Debian package names) that this host has not installed, in order.
///
/// # Errors
/// [`crate::error::PackagesError::Program`] if there is no `dpkg-query`: the host is not a Debian
/// system then.
pub fn missing_host_packages(packages: &[&str]) -> Result<Vec<String>> {
    let output = bpfassay_child::command("dpkg-query", &[])
        .args(["--show", "--showformat=${Package} ${db:Status-Status}\n", "--"])
        .args(packages)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .map_err(|source| cannot_start("dpkg-query", source))?;
    // dpkg-query fails if one package is unknown, but still lists the others.
    Ok(missing_among(packages, &String::from_utf8_lossy(&output.stdout)))
}

pub(crate) fn missing_among(packages: &[&str], listing: &str) -> Vec<String> {
    let installed: Vec<&str> = listing.lines().filter_map(|line| line.strip_suffix(" installed")).collect();
    packages.iter().filter(|name| !installed.contains(name)).map(|&name| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::error::PackagesError;

    #[test]
    fn packages_that_are_not_fully_installed_are_missing() {
        let listing = "tar installed\nzstd config-files\nxz-utils not-installed\nmount installed\n";
        assert_eq!(
            missing_among(&["tar", "xz-utils", "zstd", "unknown", "mount"], listing),
            ["xz-utils", "zstd", "unknown"]
        );
    }

    #[test]
    fn dpkg_is_asked_even_where_it_has_no_entry_of_a_package() {
        if !Path::new("/var/lib/dpkg/status").exists() {
            println!("skipped: dpkg has no database here");
            return;
        }
        match missing_host_packages(&["dpkg", "no-such-package-bpfassay"]) {
            Ok(missing) => assert_eq!(missing, ["no-such-package-bpfassay"]),
            Err(PackagesError::Program { .. }) => println!("skipped: no dpkg-query"),
            Err(error) => panic!("{error}"),
        }
    }
}
