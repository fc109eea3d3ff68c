// SPDX-License-Identifier: MIT OR Apache-2.0
//! The additional mounts of a study (`[[mounts]]`).

use bpfassay_input::document::{Field, Reported};
use bpfassay_protocol::job::{ExtraMount, MountOf};

/// Parent of all mounts. Guests need the other directories.
const BELOW: &str = "/mnt/";

/// Mount points of the file system under test.
const TAKEN: [&str; 2] = ["/mnt/nfs", "/mnt/tmpfs"];

/// Default size of a tmpfs in MiB.
const DEFAULT_SIZE_MIB: u32 = 16;

/// Longest name of a file (`NAME_MAX` of include/uapi/linux/limits.h).
const MAX_NAME: usize = 255;

/// Reads `[[mounts]]` of a study whose guests have `memory_mib` MiB of memory.
///
/// # Errors
/// [`Reported`] if there are too many mounts, or a key is invalid: a path is taken or outside
/// [`BELOW`], a size exceeds the memory, or `of` names no earlier mount. The complaint is in the
/// document.
pub(crate) fn read(field: &Field<'_, '_>, memory_mib: u32) -> Result<Vec<ExtraMount>, Reported> {
    let mut mounts: Vec<ExtraMount> = Vec::new();
    let all = field.each(|element| {
        let section = element.table()?;
        if mounts.len() >= ExtraMount::MOST {
            return Err(element.error(format!("a study may have {} mounts", ExtraMount::MOST)));
        }
        let path = section.need("path", |field| {
            let path = field.text()?;
            problem(path, &mounts).map_or_else(|| Ok(path.to_owned()), |problem| Err(field.error(problem)))
        });
        let private = section.or("private", false, Field::boolean);
        let is_tmpfs = section.need("type", |kind| kind.choice(&[("tmpfs", true), ("bind", false)]))?;
        let of = if is_tmpfs {
            section.only(&["path", "type", "private", "size_mib"]);
            let size_mib = section.or("size_mib", DEFAULT_SIZE_MIB, |size| match size.number(1..=1 << 20)? {
                value if value >= memory_mib => Err(size.error(format!(
                    "{value} MiB do not fit into the guest's memory of {memory_mib} MiB (`guest.memory_mib`)"
                ))),
                value => Ok(value),
            });
            MountOf::Tmpfs(size_mib?)
        } else {
            section.only(&["path", "type", "private", "of"]);
            let is_private = private.as_ref().is_ok_and(|private| *private);
            let of = section.optional("of", |field| {
                let of = field.text()?;
                match mounts.iter().find(|mount| mount.path == of) {
                    None => Err(field.error("name the `path` of a mount that stands before this one")),
                    Some(mount) if mount.private && !is_private => {
                        Err(field.error("that mount is private: only a mount that is private as well can be of it"))
                    }
                    Some(_) => Ok(of.to_owned()),
                }
            });
            MountOf::Bind(of?)
        };
        mounts.push(ExtraMount { path: path?, of, private: private? });
        Ok(())
    });
    all.map(|_| mounts)
}

/// Explains what is wrong with `path`, given the other `mounts`.
fn problem(path: &str, mounts: &[ExtraMount]) -> Option<String> {
    let is_name = |name: &str| {
        (1..=MAX_NAME).contains(&name.len())
            && ![".", ".."].contains(&name)
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    let is_path = path.strip_prefix(BELOW).is_some_and(|rest| rest.split('/').all(is_name));
    if !is_path || path.len() > ExtraMount::MAX_PATH {
        return Some(format!(
            "give a path below {BELOW} of names made of letters, digits, `.`, `_` and `-`, {} bytes at most",
            ExtraMount::MAX_PATH
        ));
    }
    let meets = |other: &str| is_below(path, other) || is_below(other, path);
    let taken = TAKEN.into_iter().chain(mounts.iter().map(|mount| mount.path.as_str())).find(|other| meets(other));
    taken.map(|other| format!("another mount is at {other}: neither may be below the other"))
}

/// Whether `path` equals `other` or is below it.
fn is_below(path: &str, other: &str) -> bool {
    path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use bpfassay_input::document;

    use super::*;

    fn parsed(text: &str) -> Result<Vec<ExtraMount>, String> {
        let read = |root: &document::Section<'_, '_>| {
            root.only(&["mounts"]);
            root.need("mounts", |field| read(field, 1024))
        };
        document::read("s.toml", text, read).map_err(|error| error.to_string())
    }

    fn refusal(text: &str) -> String {
        parsed(text).unwrap_err()
    }

    #[test]
    fn mounts_are_read_in_their_order() {
        let long = format!("/mnt/{}", "long-name/".repeat(8)) + "data";
        let text = format!(
            "[[mounts]]\npath = '/mnt/a/data'\ntype = 'tmpfs'\n\
             [[mounts]]\npath = '{long}'\ntype = 'tmpfs'\nsize_mib = 8\nprivate = true\n\
             [[mounts]]\npath = '/mnt/b/data'\ntype = 'bind'\n\
             [[mounts]]\npath = '/mnt/c'\ntype = 'bind'\nof = '{long}'\nprivate = true\n"
        );
        let mount = |path: &str, of, private| ExtraMount { path: path.to_owned(), of, private };
        assert_eq!(
            parsed(&text).unwrap(),
            [
                mount("/mnt/a/data", MountOf::Tmpfs(16), false),
                mount(&long, MountOf::Tmpfs(8), true),
                mount("/mnt/b/data", MountOf::Bind(None), false),
                mount("/mnt/c", MountOf::Bind(Some(long.clone())), true),
            ]
        );
    }

    #[test]
    fn what_no_guest_could_mount_is_refused() {
        let of = |path: &str, rest: &str| format!("[[mounts]]\npath = '{path}'\n{rest}\n");
        for path in ["/srv/a", "/mnt", "/mnt/", "/mnt/a/", "/mnt/a//b", "/mnt/../etc", "/mnt/a b", "mnt/a", "/mnt/é"] {
            assert!(refusal(&of(path, "type = 'tmpfs'")).contains("give a path below /mnt/"), "{path}");
        }
        assert!(refusal(&of(&format!("/mnt/{}", "a".repeat(256)), "type = 'tmpfs'")).contains("give a path"));
        assert!(refusal(&of(&format!("/mnt{}", "/a".repeat(512)), "type = 'tmpfs'")).contains("1024 bytes at most"));
        for path in ["/mnt/nfs", "/mnt/nfs/a", "/mnt/tmpfs"] {
            assert!(refusal(&of(path, "type = 'tmpfs'")).contains("another mount is at"), "{path}");
        }
        let twice = of("/mnt/a", "type = 'tmpfs'") + &of("/mnt/a/b", "type = 'bind'");
        assert!(refusal(&twice).contains("another mount is at /mnt/a"), "{twice}");
        // Path components are compared whole.
        parsed(&(of("/mnt/a", "type = 'tmpfs'") + &of("/mnt/ab", "type = 'bind'"))).unwrap();
        let unknown = of("/mnt/a", "type = 'bind'\nof = '/mnt/b'");
        assert!(refusal(&unknown).contains("that stands before"), "{unknown}");
        let hidden = of("/mnt/a", "type = 'tmpfs'\nprivate = true") + &of("/mnt/b", "type = 'bind'\nof = '/mnt/a'");
        assert!(refusal(&hidden).contains("that mount is private"), "{hidden}");
        assert!(refusal(&of("/mnt/a", "type = 'tmpfs'\nsize_mib = 1024")).contains("do not fit"));
        assert!(refusal(&of("/mnt/a", "type = 'bind'\nsize_mib = 8")).contains("size_mib"));
        let many: String = (0..17).map(|number| of(&format!("/mnt/m{number}"), "type = 'bind'")).collect();
        assert!(refusal(&many).contains("may have 16 mounts"));
    }
}
