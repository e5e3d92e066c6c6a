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

    #[cfg(target_arch = "x86_64")]
    const ARCHITECTURE: u32 = 0xc000_003e;
    #[cfg(target_arch = "aarch64")]
    const ARCHITECTURE: u32 = 0xc000_00b7;
    const OTHER_ARCHITECTURE: u32 = 0x4000_0003;

    /// What the kernel does with a call.
    #[derive(Debug, PartialEq, Eq)]
    enum Answer {
        Allowed,
        Refused(i32),
        Killed,
    }

    /// Runs a program as the kernel does, on a call.
    fn run(program: &BpfProgram, call: &[u32; 16]) -> u32 {
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
        let (mut at, mut value) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            at += 1;
            let mut jump = |is_so: bool| at += usize::from(if is_so { jt } else { jf });
            match code {
                RETURN => return k,
                LOAD => value = call[k as usize / 4],
                AND => value &= k,
                code if u32::from(code) & 0x07 == libc::BPF_JMP => match u32::from(code) & 0xf0 {
                    libc::BPF_JA => at += k as usize,
                    libc::BPF_JEQ => jump(value == k),
                    libc::BPF_JGT => jump(value > k),
                    libc::BPF_JGE => jump(value >= k),
                    libc::BPF_JSET => jump(value & k != 0),
                    other => panic!("jump {other:#x}"),
                },
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    /// Asks all programs: of their answers the kernel takes the sternest.
    fn ask(filter: Filter, architecture: u32, number: c_long, arguments: &[u64]) -> Answer {
        let mut call = [0; 16];
        (call[0], call[1]) = (number as u32, architecture);
        for (place, argument) in arguments.iter().enumerate() {
            (call[4 + 2 * place], call[5 + 2 * place]) = (*argument as u32, (*argument >> 32) as u32);
        }
        let mut answer = Answer::Allowed;
        for given in compile(filter).unwrap().iter().map(|program| run(program, &call)) {
            match given & 0xffff_0000 {
                libc::SECCOMP_RET_ALLOW => {}
                libc::SECCOMP_RET_ERRNO if answer == Answer::Allowed => {
                    answer = Answer::Refused((given & 0xffff) as i32)
                }
                libc::SECCOMP_RET_ERRNO => {}
                _ => answer = Answer::Killed,
            }
        }
        answer
    }

    #[test]
    fn every_call_is_answered_as_it_should_be() {
        let check = |number: c_long, arguments: &[u64], expect: Answer| {
            for filter in [Filter::WithTracing, Filter::WithoutTracing] {
                assert_eq!(ask(filter, ARCHITECTURE, number, arguments), expect, "{filter:?}: {number} {arguments:?}");
            }
        };
        let refused = Answer::Refused;
        // By name, and not by the lists: what is removed there is missed here.
        for number in [
            libc::SYS_mount,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_mount_setattr,
            libc::SYS_setns,
            libc::SYS_keyctl,
            libc::SYS_bpf,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_pidfd_getfd,
            libc::SYS_open_by_handle_at,
            libc::SYS_init_module,
        ] {
            check(number, &[], refused(libc::EPERM));
        }
        for number in [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter] {
            check(number, &[], refused(libc::ENOSYS));
        }
        for number in [libc::SYS_read, libc::SYS_execve, libc::SYS_kill, libc::SYS_setpriority, libc::SYS_socketpair] {
            check(number, &[], Answer::Allowed);
        }
        let user = libc::CLONE_NEWUSER as u64;
        for number in [libc::SYS_clone, libc::SYS_unshare] {
            check(number, &[user], refused(libc::EPERM));
            check(number, &[user | libc::CLONE_NEWPID as u64], refused(libc::EPERM));
            check(number, &[libc::CLONE_THREAD as u64], Answer::Allowed);
        }
        check(libc::SYS_ioctl, &[0, libc::TIOCSTI], refused(libc::EPERM));
        check(libc::SYS_ioctl, &[0, libc::TIOCSTI | 1 << 32], refused(libc::EPERM));
        check(libc::SYS_ioctl, &[0, libc::TIOCLINUX], refused(libc::EPERM));
        check(libc::SYS_ioctl, &[0, libc::TIOCGWINSZ], Answer::Allowed);
        check(libc::SYS_prlimit64, &[0], Answer::Allowed);
        check(libc::SYS_prlimit64, &[1], refused(libc::EPERM));
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
            check(libc::SYS_socket, &[family as u64, 1, 0], Answer::Allowed);
        }
        for family in [libc::AF_VSOCK, libc::AF_PACKET, libc::AF_ALG, libc::AF_BLUETOOTH] {
            check(libc::SYS_socket, &[family as u64, 1, 0], refused(libc::EAFNOSUPPORT));
        }
        check(libc::SYS_socket, &[libc::AF_NETLINK as u64, 3, 9], refused(libc::EAFNOSUPPORT));
        assert_eq!(ask(Filter::WithTracing, ARCHITECTURE, libc::SYS_ptrace, &[]), Answer::Allowed);
        assert_eq!(ask(Filter::WithoutTracing, ARCHITECTURE, libc::SYS_ptrace, &[]), refused(libc::EPERM));
        assert_eq!(compile(Filter::Unused).unwrap(), Vec::<BpfProgram>::new());
    }

    #[test]
    fn calls_of_other_conventions_are_not_known() {
        assert_eq!(ask(Filter::WithTracing, OTHER_ARCHITECTURE, libc::SYS_read, &[]), Answer::Killed);
        #[cfg(target_arch = "x86_64")]
        let other = ask(Filter::WithTracing, ARCHITECTURE, libc::SYS_read | c_long::from(X32_BIT), &[]);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(other, Answer::Refused(libc::ENOSYS));
    }
}
