// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

#[test]
fn the_host_comes_first_among_the_architectures() {
    for &host in Arch::ALL {
        let all = architectures(host);
        assert_eq!(all[0], host);
        assert_eq!(all.len(), Arch::ALL.len());
    }
}
