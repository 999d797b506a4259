//! The system calls that a tenant process may make (seccomp). The filter holds from before the vendor's
//! runtime is loaded until the process ends.
//!
//! On a runtime that uses the processor, an OpenCL kernel is machine code in that process. It gets what
//! OpenCL runtimes use: files (as Landlock permits), memory, threads, existing descriptors. It gets no new
//! socket, no signal to another process, no access to another process or its settings, no namespace, no
//! io_uring (whose operations no filter sees), and no shared memory that would outlive the process. The
//! manager counts new threads and, where a runtime calls a linker, new processes, and answers each request
//! (`guard`): `RLIMIT_NPROC` counts all processes of a user together, so one tenant could use up the
//! share of the others.

use fpga_vendor::runtime::Runtime;
use libc::{c_long, sock_filter, sock_fprog};
use seccompiler::SeccompCmpArgLen::{Dword, Qword};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// The programs that a runtime starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// A linker during builds (PoCL). Unknown runtimes are treated alike.
    Linker,
    /// No program: Intel's runtimes build within the process.
    None,
}

/// The reason why there is no filter.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The rules can't be compiled.
    #[error("the rules for system calls can't be compiled: {0}")]
    Rules(#[from] seccompiler::Error),
    /// The kernel refuses the filter.
    #[error("the kernel takes no filter of system calls: {0}")]
    Kernel(#[from] io::Error),
}

/// Rules by system call. A call is allowed if one of its rules matches, or if its list is empty.
type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// Flag of `clone` for a thread.
const THREAD: u64 = 0x1_0000; // CLONE_THREAD
/// Mask of the flags of `clone` for new namespaces.
const NAMESPACES: u64 = 0x7E02_0000;
/// Flags of `clone` of the C library's `posix_spawn`: the caller waits until the child calls `execve` or ends.
const SPAWN: u64 = 0x4100; // CLONE_VM, CLONE_VFORK
/// Mask of the signal at the child's end, in the flags of `clone`.
const EXIT_SIGNAL: u64 = 0xFF;
/// Mask of the type of a socket, without its flags.
const SOCKET_TYPE: u64 = 0xF;

/// Operations of `fcntl` by which another process can be sent a signal.
const SIGNALLING_FCNTL: [u64; 3] = [8, 10, 15]; // F_SETOWN, F_SETSIG, F_SETOWN_EX
/// Operations of `ioctl` by which another process can be sent a signal, and the one that puts input into a
/// terminal.
const FOREIGN_IOCTL: [u64; 3] = [0x8901, 0x8902, 0x5412]; // FIOSETOWN, SIOCSPGRP, TIOCSTI

/// Operations of `prctl` that affect only the calling thread or process.
const OWN_PRCTL: &[libc::c_int] = &[
    libc::PR_GET_DUMPABLE,
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_TIMERSLACK,
    libc::PR_GET_TIMERSLACK,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_SET_THP_DISABLE,
    libc::PR_GET_THP_DISABLE,
    libc::PR_SET_VMA,
];

/// System calls that are allowed with any arguments.
const ALLOWED: &[c_long] = &[
    // Files and descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_tee,
    libc::SYS_copy_file_range,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    libc::SYS_umask,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_memfd_create,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_signalfd4,
    // Data over existing sockets.
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_recvfrom,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mlockall,
    libc::SYS_munlock,
    libc::SYS_munlockall,
    libc::SYS_membarrier,
    libc::SYS_pkey_alloc,
    libc::SYS_pkey_free,
    libc::SYS_pkey_mprotect,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_set_mempolicy,
    // Threads, time, and signals of the process itself.
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval,
    libc::SYS_getpriority,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_timer_create,
    libc::SYS_timer_settime,
    libc::SYS_timer_gettime,
    libc::SYS_timer_getoverrun,
    libc::SYS_timer_delete,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_wait4,
    libc::SYS_waitid,
    // A filter of its own answers this call, so that the C library falls back to `clone`, whose flags a
    // filter can see.
    libc::SYS_clone3,
    // The identity of the process, and the machine.
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_capget,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    // Builds drop more rights than the process has dropped.
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
];

/// System calls that newer architectures have in another form only.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_link,
    libc::SYS_symlink,
    libc::SYS_chmod,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_signalfd,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_arch_prctl,
    libc::SYS_time,
    libc::SYS_alarm,
    libc::SYS_pause,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[c_long] = &[];

impl Programs {
    /// The programs that `runtime` starts.
    #[must_use]
    pub fn of(runtime: &Runtime) -> Self {
        match runtime {
            Runtime::IntelFpga | Runtime::IntelCpu => Self::None,
            Runtime::Pocl | Runtime::Icd(_) => Self::Linker,
        }
    }
}

/// Whether this kernel has filters that ask another process.
///
/// # Errors
/// The kernel has no such filters.
pub fn is_there() -> io::Result<()> {
    let action: u32 = libc::SECCOMP_RET_USER_NOTIF;
    // SAFETY: the kernel reads the number during the call.
    let there =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0_u32, &raw const action) };
    if there == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts the calling thread and everything that it starts, for good. Returns the descriptor over which
/// the kernel asks for each new thread and process; the owner of the descriptor answers.
///
/// # Errors
/// [`FilterError`]; the process must not continue then.
pub fn restrict(programs: Programs) -> Result<OwnedFd, FilterError> {
    let refuse = |errno: libc::c_int| SeccompAction::Errno(errno.unsigned_abs());
    let no_struct =
        filter([(libc::SYS_clone3, Vec::new())].into(), SeccompAction::Allow, refuse(libc::ENOSYS))?;
    // Runtimes set the affinity of their own threads by ids that no filter can tell from those of other
    // processes. The call changes nothing and reports success.
    let of_others = vec![rule(&[(0, Dword, Ne, 0)])?];
    let unset = filter([(libc::SYS_sched_setaffinity, of_others)].into(), SeccompAction::Allow, refuse(0))?;
    let allowed = filter(allowed(programs)?, refuse(libc::EPERM), SeccompAction::Allow)?;
    let asked = asked()?;
    // Applying the first filter sets `no_new_privs`, which the kernel requires for the second.
    seccompiler::apply_filter(&no_struct)?;
    let listener = apply_with_listener(&asked)?;
    seccompiler::apply_filter(&unset)?;
    // The last one, since it allows no further filters.
    seccompiler::apply_filter(&allowed)?;
    Ok(listener)
}

/// The allowed system calls; all others are refused.
fn allowed(programs: Programs) -> Result<Rules, seccompiler::Error> {
    let mut rules: Rules = ALLOWED.iter().chain(OLD).map(|number| (*number, Vec::new())).collect();
    let own = u64::from(std::process::id());
    let mut clones = vec![rule(&[(0, Qword, MaskedEq(THREAD | NAMESPACES), THREAD)])?];
    if programs == Programs::Linker {
        clones.push(rule(&[(0, Qword, MaskedEq(!EXIT_SIGNAL), SPAWN)])?);
        rules.insert(libc::SYS_execve, Vec::new());
    }
    rules.insert(libc::SYS_clone, clones);
    let without = |numbers: &[u64]| {
        let conditions: Vec<_> = numbers.iter().map(|number| (1, Dword, Ne, *number)).collect();
        rule(&conditions)
    };
    rules.insert(libc::SYS_fcntl, vec![without(&SIGNALLING_FCNTL)?]);
    rules.insert(libc::SYS_ioctl, vec![without(&FOREIGN_IOCTL)?]);
    // A connected pair of stream sockets cannot reach anything else.
    let of_streams = (1, Dword, MaskedEq(SOCKET_TYPE), flag(libc::SOCK_STREAM));
    rules.insert(libc::SYS_socketpair, vec![rule(&[(0, Dword, Eq, flag(libc::AF_UNIX)), of_streams])?]);
    rules.insert(libc::SYS_sendto, vec![rule(&[(4, Qword, Eq, 0)])?]);
    rules.insert(libc::SYS_tgkill, vec![rule(&[(0, Dword, Eq, own)])?]);
    rules.insert(libc::SYS_kill, vec![rule(&[(0, Dword, Eq, own)])?]);
    rules.insert(libc::SYS_prlimit64, vec![rule(&[(0, Dword, Eq, 0)])?, rule(&[(0, Dword, Eq, own)])?]);
    rules.insert(libc::SYS_sched_setscheduler, vec![rule(&[(0, Dword, Eq, 0)])?]);
    rules.insert(libc::SYS_setpriority, vec![rule(&[(0, Dword, Eq, 0), (1, Dword, Eq, 0)])?]);
    let operations = OWN_PRCTL.iter().map(|operation| rule(&[(0, Dword, Eq, flag(*operation))]));
    rules.insert(libc::SYS_prctl, operations.collect::<Result<_, _>>()?);
    Ok(rules)
}

/// The filter by which the kernel asks for each `clone`.
fn asked() -> Result<BpfProgram, seccompiler::Error> {
    // The library has no such action: an action that is used for nothing else stands for it and is replaced
    // below.
    const STANDS_FOR: u16 = 1;
    let rules = [(libc::SYS_clone, Vec::new())].into();
    let mut program = filter(rules, SeccompAction::Allow, SeccompAction::Trace(STANDS_FOR.into()))?;
    for instruction in &mut program {
        if instruction.k == libc::SECCOMP_RET_TRACE | u32::from(STANDS_FOR) {
            instruction.k = libc::SECCOMP_RET_USER_NOTIF;
        }
    }
    Ok(program)
}

fn flag(value: libc::c_int) -> u64 {
    u64::from(value.unsigned_abs())
}

fn rule(conditions: &[(u8, SeccompCmpArgLen, SeccompCmpOp, u64)]) -> Result<SeccompRule, seccompiler::Error> {
    let conditions = conditions.iter().map(|(argument, length, operator, value)| {
        SeccompCondition::new(*argument, length.clone(), operator.clone(), *value)
    });
    Ok(SeccompRule::new(conditions.collect::<Result<_, _>>()?)?)
}

fn filter(
    rules: Rules,
    mismatch: SeccompAction,
    matching: SeccompAction,
) -> Result<BpfProgram, seccompiler::Error> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, mismatch, matching, architecture)?.try_into()?)
}

fn apply_with_listener(program: &BpfProgram) -> io::Result<OwnedFd> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    // The kernel only reads the program, so the mutable pointer is never written through.
    let program = sock_fprog { len: length, filter: program.as_ptr().cast::<sock_filter>().cast_mut() };
    // SAFETY: the structure and the instructions live during the call; their types have the kernel's layout.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    match i32::try_from(listener) {
        // SAFETY: the kernel has just made the descriptor, with close-on-exec, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
