// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of helpers that a kernel lacks, because its verifier prints only their numbers.

/// Number of the first helper that Linux 5.10 lacks, the oldest kernel of guests.
const FIRST: usize = 156;
/// Helpers from [`FIRST`] on, by the Linux version that introduced them. The source is
/// `___BPF_FUNC_MAPPER` in include/uapi/linux/bpf.h. Its last helper is from Linux 6.2; later
/// functions are kfuncs.
const HELPERS: &[(&str, &str)] = &[
    (
        "5.11",
        "task_storage_get task_storage_delete get_current_task_btf bprm_opts_set ktime_get_coarse_ns ima_inode_hash",
    ),
    ("5.12", "sock_from_file check_mtu"),
    ("5.13", "for_each_map_elem snprintf"),
    ("5.14", "sys_bpf btf_find_by_name_kind sys_close"),
    ("5.15", "timer_init timer_set_callback timer_start timer_cancel get_func_ip get_attach_cookie task_pt_regs"),
    ("5.16", "get_branch_snapshot trace_vprintk skc_to_unix_sock kallsyms_lookup_name"),
    ("5.17", "find_vma loop strncmp get_func_arg get_func_ret get_func_arg_cnt"),
    (
        "5.18",
        "get_retval set_retval xdp_get_buff_len xdp_load_bytes xdp_store_bytes copy_from_user_task skb_set_tstamp \
         ima_file_hash",
    ),
    (
        "5.19",
        "kptr_xchg map_lookup_percpu_elem skc_to_mptcp_sock dynptr_from_mem ringbuf_reserve_dynptr \
         ringbuf_submit_dynptr ringbuf_discard_dynptr dynptr_read dynptr_write dynptr_data",
    ),
    (
        "6.0",
        "tcp_raw_gen_syncookie_ipv4 tcp_raw_gen_syncookie_ipv6 tcp_raw_check_syncookie_ipv4 \
         tcp_raw_check_syncookie_ipv6",
    ),
    ("6.1", "ktime_get_tai_ns user_ringbuf_drain"),
    ("6.2", "cgrp_storage_get cgrp_storage_delete"),
];

/// Adds the helper's name to a verifier line that has only its number (`func_id_name` in
/// kernel/bpf/disasm.c returns `unknown`).
///
/// ```
/// let named = bpfassay_tool::helper::named("invalid func unknown#158");
/// assert_eq!(named, "invalid func unknown#158 (bpf_get_current_task_btf, since Linux 5.11)");
/// ```
#[must_use]
pub fn named(line: &str) -> String {
    let digits = line.split_once("unknown#").map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next());
    let number = digits.flatten().and_then(|digits| digits.parse::<usize>().ok());
    let all = HELPERS.iter().flat_map(|(version, names)| names.split_whitespace().map(move |name| (version, name)));
    match number.and_then(|number| number.checked_sub(FIRST)).and_then(|index| { all }.nth(index)) {
        Some((version, name)) => format!("{line} (bpf_{name}, since Linux {version})"),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_followed_by_the_name() {
        let last = "invalid func unknown#211 (bpf_cgrp_storage_delete, since Linux 6.2)";
        assert_eq!(named("invalid func unknown#211"), last);
        assert_eq!(named("invalid func unknown#186"), "invalid func unknown#186 (bpf_get_retval, since Linux 5.18)");
        for other in [
            "invalid func unknown#155",
            "invalid func unknown#212",
            "unknown func bpf_d_path#147",
            "invalid func unknown#",
            "invalid func unknown#99999999999999999999",
        ] {
            assert_eq!(named(other), other);
        }
    }
}
