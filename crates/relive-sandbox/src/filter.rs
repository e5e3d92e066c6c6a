//! The filter of system calls.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use crate::plan::Filter;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Mounts, the keys of the kernel, other processes, and parts of the kernel with a history of holes.
const FORBIDDEN: [c_long; 34] = [
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_bpf,
    libc::SYS_userfaultfd,
    libc::SYS_perf_event_open,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
];

/// Programs do without these if they seem to be missing. The flags of `clone3` are in memory, where a filter cannot read
/// them; with `EPERM` instead, threads of Python, node and Java fail.
const MISSING: [c_long; 4] =
    [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// The protocol of netlink sockets that `getifaddrs` uses.
const NETLINK_ROUTE: u64 = 0;
/// The bit of system calls in the other convention of x86-64, which have other numbers.
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// Returns the programs for the kernel, one for each error that they answer with.
pub(crate) fn compile(filter: Filter) -> Result<Vec<BpfProgram>, BackendError> {
    let tracing: &[c_long] = match filter {
        Filter::Unused => return Ok(Vec::new()),
        Filter::WithTracing => &[],
        Filter::WithoutTracing => &[libc::SYS_ptrace],
    };
    let mut forbidden: Rules = FORBIDDEN.iter().chain(tracing).map(|number| (*number, Vec::new())).collect();
    let user_namespace = libc::CLONE_NEWUSER as u64;
    let has_flag = || all([(0, SeccompCmpOp::MaskedEq(user_namespace), user_namespace)]);
    forbidden.insert(libc::SYS_clone, vec![has_flag()?]);
    forbidden.insert(libc::SYS_unshare, vec![has_flag()?]);
    let input = |request: u64| all([(1, SeccompCmpOp::Eq, request)]);
    forbidden.insert(libc::SYS_ioctl, vec![input(libc::TIOCSTI)?, input(libc::TIOCLINUX)?]);
    // Landlock does not keep a program from changing the limits of others.
    forbidden.insert(libc::SYS_prlimit64, vec![all([(0, SeccompCmpOp::Ne, 0)])?]);

    let other_family = all([libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
        .map(|family| (0, SeccompCmpOp::Ne, family as u64)))?;
    let other_netlink = all([(0, SeccompCmpOp::Eq, libc::AF_NETLINK as u64), (2, SeccompCmpOp::Ne, NETLINK_ROUTE)])?;
    let families = Rules::from([(libc::SYS_socket, vec![other_family, other_netlink])]);

    let missing: Rules = MISSING.iter().map(|number| (*number, Vec::new())).collect();
    let mut programs =
        vec![program(forbidden, libc::EPERM)?, program(families, libc::EAFNOSUPPORT)?, program(missing, libc::ENOSYS)?];
    if let Some(last) = programs.last_mut() {
        last.splice(0..0, other_convention());
    }
    Ok(programs)
}

/// Returns a rule that applies if all of these arguments are so. All of them are numbers of 32 bits, and the kernel
/// ignores what is above.
fn all<const N: usize>(conditions: [(u8, SeccompCmpOp, u64); N]) -> Result<SeccompRule, BackendError> {
    let condition =
        |(argument, compare, value)| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, compare, value);
    SeccompRule::new(conditions.into_iter().map(condition).collect::<Result<_, _>>()?)
}

fn program(rules: Rules, errno: libc::c_int) -> Result<BpfProgram, BackendError> {
    let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno as u32), architecture)?.try_into()
}

/// Refuses the calls of the other convention, whose numbers the programs do not know.
#[cfg(target_arch = "x86_64")]
fn other_convention() -> Vec<sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jf, k| sock_filter { code, jt: 0, jf, k };
    let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    vec![step(LOAD, 0, 0), step(AT_LEAST, 1, X32_BIT), step(RETURN, 0, refused)]
}

#[cfg(not(target_arch = "x86_64"))]
fn other_convention() -> Vec<sock_filter> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_compiles_and_none_is_empty() {
        for filter in [Filter::WithTracing, Filter::WithoutTracing] {
            let programs = compile(filter).unwrap();
            assert_eq!(programs.len(), 3);
            assert!(programs.iter().all(|program| !program.is_empty()));
        }
        assert!(compile(Filter::Unused).unwrap().is_empty());
    }
}
