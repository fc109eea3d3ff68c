// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/PID/stat`: the name of a process, and how the process is scheduled.

/// `PF_KTHREAD` (include/linux/sched.h).
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The fields of `/proc/PID/stat` that are used.
pub(crate) struct Stat<'a> {
    pub(crate) name: &'a str,
    flags: u64,
    pub(crate) nice: &'a str,
    pub(crate) priority: &'a str,
    pub(crate) policy: &'a str,
}

impl Stat<'_> {
    pub(crate) const fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }
}

/// Parses a line of `/proc/PID/stat` (proc(5)). A name can contain any character, parentheses too.
pub(crate) fn parse(text: &str) -> Option<Stat<'_>> {
    let (begin, end) = (text.find('(')?, text.rfind(')')?);
    // The first of these fields is the third of the line, the state.
    let fields: Vec<&str> = text.get(end + 1..)?.split_ascii_whitespace().collect();
    Some(Stat {
        name: text.get(begin + 1..end)?,
        flags: fields.get(6)?.parse().ok()?,
        nice: fields.get(16)?,
        priority: fields.get(37)?,
        policy: fields.get(38)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KTHREADD: &str = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 5 0 0 20 0 1 0 11 0 0 18446744073709551615 0 0 0 0 0 0 0 \
                            2147483647 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn kernel_threads_are_distinguished_from_programs() {
        let stat = parse(KTHREADD).unwrap();
        assert_eq!((stat.name, stat.is_kernel_thread()), ("kthreadd", true));
        let program = KTHREADD.replace("(kthreadd)", "(a) S 0 (b)").replace("2129984", "4194304");
        let stat = parse(&program).unwrap();
        assert_eq!((stat.name, stat.is_kernel_thread(), stat.nice, stat.policy), ("a) S 0 (b", false, "0", "0"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text: String) {
            let _ = parse(&text);
        }
    }
}
