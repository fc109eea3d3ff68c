// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the parameters of a kernel command line. Studies refuse blanks and quotes in parameters.

/// Returns the parameters of `line` in order: names, and values if there are any. Words after `--`
/// belong to the first process and are left out.
pub fn parameters(line: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let words = line.split_ascii_whitespace().take_while(|word| *word != "--");
    words.map(|word| word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value))))
}

/// Returns the settings of /proc/sys that `line` sets (`sysctl.NAME=VALUE`), in order. The last
/// value of a name counts.
pub fn sysctls(line: &str) -> impl Iterator<Item = (&str, &str)> {
    parameters(line).filter_map(|(name, value)| Some((name.strip_prefix("sysctl")?.strip_prefix(['.', '/'])?, value?)))
}

/// Returns the Linux security modules that `line` names (`lsm=`), separated by commas; `None` if it
/// leaves them to the kernel.
#[must_use]
pub fn security_modules(line: &str) -> Option<&str> {
    parameters(line).filter(|(name, _)| *name == "lsm").last()?.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_as_the_kernel_reads_them() {
        let line =
            "quiet  a=b=c sysctl.vm.swappiness=1 sysctl/kernel/x=2 sysctl.none sysctls.y=3 lsm=a lsm=bpf,b -- lsm=c\n";
        assert_eq!(parameters(line).take(2).collect::<Vec<_>>(), [("quiet", None), ("a", Some("b=c"))]);
        assert_eq!(sysctls(line).collect::<Vec<_>>(), [("vm.swappiness", "1"), ("kernel/x", "2")]);
        assert_eq!(security_modules(line), Some("bpf,b"));
        assert_eq!(security_modules("a -- lsm=c"), None);
    }
}
