// SPDX-License-Identifier: MIT OR Apache-2.0
//! The signature that `sign-file` appends to a module (`CONFIG_MODULE_SIG`).
//!
//! A guest boots faster if its modules have no signature: the kernel neither hashes the module nor
//! checks the signature, which under emulation is a large part of loading. The kernel still loads
//! the module, with the taint flag `E` and one line in its log, unless it enforces signatures.
//! [`enforced`] tells from the configuration whether it does.

/// The end of a signed module (`MODULE_SIG_STRING` in include/linux/module_signature.h).
const MARKER: &[u8] = b"~Module signature appended~\n";

/// Length of `struct module_signature`, which precedes the marker. It has the kinds of algorithm,
/// hash and identifier, the lengths of two unused parts, three bytes of padding, and the length of
/// the signature, big-endian.
const TRAILER: usize = 12;

/// The only kind of identifier that a kernel accepts, `PKEY_ID_PKCS7`.
const PKCS7: u8 = 2;

/// Returns the module without its signature. Returns all of it if there is no signature, or only
/// one that a kernel rejects (`mod_check_sig` in kernel/module_signature.c). The kernel then
/// reports it.
#[must_use]
pub fn cut(module: &[u8]) -> &[u8] {
    unsigned(module).unwrap_or(module)
}

fn unsigned(module: &[u8]) -> Option<&[u8]> {
    let (rest, trailer) = module.strip_suffix(MARKER)?.split_last_chunk::<TRAILER>()?;
    let [0, 0, PKCS7, 0, 0, 0, 0, 0, length @ ..] = trailer else { return None };
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    // A signature as long as the whole module is not a signature.
    rest.len().checked_sub(length).filter(|&at| at > 0).map(|at| &rest[..at])
}

/// Returns whether a kernel with this configuration refuses unsigned modules from the start.
#[must_use]
pub fn enforced(config: &str) -> bool {
    config.lines().any(|line| {
        matches!(
            line.trim_end(),
            "CONFIG_MODULE_SIG_FORCE=y"
                | "CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY=y"
                | "CONFIG_LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY=y"
        )
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Appends a signature of this length to a module, as `sign-file` does.
    pub(crate) fn signed(module: &[u8], length: u32) -> Vec<u8> {
        let signature = vec![0x30; length as usize];
        [module, &signature, &[0, 0, PKCS7, 0, 0, 0, 0, 0], &length.to_be_bytes(), MARKER].concat()
    }

    #[test]
    fn the_signature_goes_and_the_module_stays() {
        for length in [0, 1, 395, 70_000] {
            assert_eq!(cut(&signed(b"module", length)), b"module", "{length}");
        }
    }

    #[test]
    fn only_the_last_signature_goes() {
        let once = signed(b"module", 7);
        assert_eq!(cut(&signed(&once, 9)), once);
    }

    #[test]
    fn what_carries_no_signature_is_left_alone() {
        for module in [&b""[..], b"module", MARKER, b"module~Module signature appended~", &[MARKER, b"more"].concat()] {
            assert_eq!(cut(module), module);
        }
    }

    #[test]
    fn lengths_and_kinds_that_make_no_sense_are_left_alone() {
        // "module" and 5 bytes of signature. The trailer claims 11 bytes or more, or another kind.
        let module = signed(b"module", 5);
        let trailer = module.len() - MARKER.len() - TRAILER;
        for (at, value) in [(11, 11), (11, 12), (8, 0xff), (0, 1), (1, 4), (2, 0), (2, 1), (3, 1), (4, 1), (7, 1)] {
            let mut damaged = module.clone();
            damaged[trailer + at] = value;
            assert_eq!(cut(&damaged), damaged, "{at} {value}");
        }
        // The trailer itself is cut short.
        let short = &module[trailer + 1..];
        assert_eq!(cut(short), short);
    }

    #[test]
    fn a_kernel_that_enforces_signatures_is_known_by_its_configuration() {
        assert!(enforced("CONFIG_MODULE_SIG=y\nCONFIG_MODULE_SIG_FORCE=y\n"));
        assert!(enforced("CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY=y"));
        assert!(enforced("CONFIG_LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY=y\n"));
        let debian =
            "CONFIG_MODULE_SIG=y\n# CONFIG_MODULE_SIG_FORCE is not set\nCONFIG_LOCK_DOWN_KERNEL_FORCE_NONE=y\n";
        assert!(!enforced(debian));
        assert!(!enforced(""));
    }

    proptest! {
        #[test]
        fn what_is_left_is_a_beginning(module: Vec<u8>, signature in 0u32..100, at in 0usize..200, value: u8) {
            let mut module = signed(&module, signature);
            if let Some(byte) = module.get_mut(at) {
                *byte = value;
            }
            prop_assert!(module.starts_with(cut(&module)));
        }
    }
}
