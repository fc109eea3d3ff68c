// SPDX-License-Identifier: MIT OR Apache-2.0
//! The prototypes that the tracer's programs assume: one line for each supported shape of a
//! function.
//!
//! A kernel function's prototype is not a stable interface. It changes without notice, and a
//! program that reads the wrong argument counts wrongly without an error. Therefore the assumptions
//! are listed here and compared with the kernel's BTF.

use bpfassay_btf::{Prototype, ValueShape};

/// Prototypes in C. If a function has several lines, the programs distinguish its shapes by BTF.
const ASSUMED: &[&str] = &[
    // fs/read_write.c. These functions are static, but called from several places, so they have
    // symbols (5.10 to 7.3).
    "ssize_t vfs_read(struct file *, char *, size_t, loff_t *)",
    "ssize_t vfs_write(struct file *, const char *, size_t, loff_t *)",
    // The fifth argument arrived with preadv2 (Linux 4.6). A program without it reads the flags as
    // the returned value.
    "ssize_t vfs_readv(struct file *, const struct iovec *, unsigned long, loff_t *, rwf_t)",
    "ssize_t vfs_writev(struct file *, const struct iovec *, unsigned long, loff_t *, rwf_t)",
    // fs/sync.c, through the wrappers of system calls.
    "long sys_fsync(const struct pt_regs *)",
    "long sys_fdatasync(const struct pt_regs *)",
    // fs/namei.c. The structure of the last argument is private to fs/.
    "struct file *do_filp_open(int, struct filename *, const struct open_flags *)",
    // Each function in 5.10 and in later kernels. Number and positions of the arguments matter, and
    // nothing else.
    "long do_mkdirat(int, const char *, umode_t)",
    "int do_mkdirat(int, struct filename *, umode_t)",
    "long do_mknodat(int, const char *, umode_t, unsigned int)",
    "int do_mknodat(int, struct filename *, umode_t, unsigned int)",
    "long do_unlinkat(int, struct filename *)",
    "int do_unlinkat(int, struct filename *)",
    "long do_rmdir(int, struct filename *)",
    "int do_rmdir(int, struct filename *)",
    "int do_renameat2(int, struct filename *, int, struct filename *, unsigned int)",
    // fs/namespace.c.
    "int mnt_want_write(struct vfsmount *)",
    // vfs_create and similar functions are not listed: their arguments differ between kernels. The
    // loader determines from BTF where the programs find what they need.
];

/// Scalar types by their size in bytes on 64-bit kernels.
const SCALARS: &[(&str, u32)] = &[
    ("bool", 1),
    ("umode_t", 2),
    ("int", 4),
    ("unsigned int", 4),
    ("rwf_t", 4),
    ("dev_t", 4),
    ("long", 8),
    ("unsigned long", 8),
    ("size_t", 8),
    ("ssize_t", 8),
    ("loff_t", 8),
];

/// Returns the prototypes that the programs assume for `function`; empty if they assume none.
pub(super) fn of(function: &str) -> Vec<Prototype> {
    ASSUMED
        .iter()
        .filter_map(|line| parse(line))
        .filter(|(name, _)| *name == function)
        .map(|(_, found)| found)
        .collect()
}

/// Returns whether a program that assumes `expected` reads arguments and return value of `found`
/// correctly.
pub(super) fn fits(expected: &Prototype, found: &Prototype) -> bool {
    expected.returns == found.returns && expected.arguments == found.arguments
}

/// Parses name and prototype in a line of C.
fn parse(line: &'static str) -> Option<(&'static str, Prototype)> {
    let (head, list) = line.strip_suffix(')')?.split_once('(')?;
    let name_at = head.rfind([' ', '*'])? + 1;
    let (returns, name) = head.split_at(name_at);
    let arguments = match list {
        "void" => Vec::new(),
        list => list.split(", ").map(shape).collect::<Option<_>>()?,
    };
    Some((name, Prototype { text: line.to_owned(), returns: shape(returns)?, arguments }))
}

fn shape(text: &str) -> Option<ValueShape> {
    let text = text.trim();
    let text = text.strip_prefix("const ").unwrap_or(text);
    if let Some(target) = text.strip_suffix('*') {
        let target = target.trim();
        return Some(match target.strip_prefix("struct ").filter(|name| !name.contains('*')) {
            Some(name) => ValueShape::Pointer(name.to_owned()),
            None => ValueShape::Address,
        });
    }
    if text == "void" {
        return Some(ValueShape::Void);
    }
    SCALARS.iter().find(|(name, _)| *name == text).map(|&(_, size)| ValueShape::Integer(size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_parsed() {
        for line in ASSUMED {
            let (name, prototype) = parse(line).unwrap_or_else(|| panic!("{line}"));
            assert!(!name.is_empty() && of(name).contains(&prototype), "{line}");
        }
        assert!(of("nowhere").is_empty());
    }

    #[test]
    fn shapes_are_those_of_c() {
        let pointer = |name: &str| Some(ValueShape::Pointer(name.to_owned()));
        assert_eq!(shape("struct file *"), pointer("file"));
        assert_eq!(shape("const struct path *"), pointer("path"));
        assert_eq!(shape("struct inode **"), Some(ValueShape::Address));
        assert_eq!(shape("const char *"), Some(ValueShape::Address));
        assert_eq!(shape("umode_t"), Some(ValueShape::Integer(2)));
        assert_eq!(shape("__u128"), None);
        assert_eq!(parse("struct dentry *vfs_mkdir(void)").map(|(name, found)| (name, found.returns)), {
            Some(("vfs_mkdir", ValueShape::Pointer("dentry".to_owned())))
        });
    }

    #[test]
    fn one_argument_less_or_of_another_kind_does_not_fit() {
        let readv = &of("vfs_readv")[0];
        let mut short = readv.clone();
        short.arguments.pop();
        assert!(fits(readv, readv) && !fits(readv, &short));
        assert!(!fits(&of("vfs_read")[0], readv));
    }
}
