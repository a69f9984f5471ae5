//! Processes without some system calls, memory, descriptors or threads.
#![allow(unsafe_code)]

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::PoisonError;

use crate::mounting::noise;
use crate::run::{Case, GOOD, MACHINE, Must};
use crate::seccomp;
use crate::support::{Scratch, limit};
use crate::table::{ENGINES, Fault, Group, Trial};

pub(crate) const GROUP: Group = Group {
    name: "Refused system calls, and limits",
    faults: &[
        Fault {
            name: "no io_uring_setup (EPERM)",
            run: |trial| without(trial, &[libc::SYS_io_uring_setup], libc::EPERM),
        },
        Fault {
            name: "no io_uring_setup (ENOSYS)",
            run: |trial| without(trial, &[libc::SYS_io_uring_setup], libc::ENOSYS),
        },
        Fault {
            name: "no io_uring_register",
            run: |trial| without(trial, &[libc::SYS_io_uring_register], libc::EPERM),
        },
        Fault {
            name: "no io_uring_enter",
            run: |trial| without_or_fails(trial, &[libc::SYS_io_uring_enter], libc::EPERM),
        },
        Fault {
            name: "neither io_uring nor libaio",
            run: |trial| {
                without(trial, &[libc::SYS_io_uring_setup, libc::SYS_io_setup], libc::EPERM)
            },
        },
        Fault {
            name: "no preadv2 (ENOSYS)",
            run: |trial| without(trial, &[libc::SYS_preadv2], libc::ENOSYS),
        },
        Fault {
            name: "no statx (ENOSYS)",
            run: |trial| without(trial, &[libc::SYS_statx], libc::ENOSYS),
        },
        Fault {
            name: "no cachestat (ENOSYS)",
            run: |trial| without(trial, &[SYS_CACHESTAT], libc::ENOSYS),
        },
        Fault {
            name: "no fadvise64, madvise (EPERM)",
            run: |trial| {
                without_or_fails(trial, &[libc::SYS_fadvise64, libc::SYS_madvise], libc::EPERM)
            },
        },
        Fault {
            name: "no eventfd2 (EMFILE)",
            run: |trial| without_or_fails(trial, &[libc::SYS_eventfd2], libc::EMFILE),
        },
        Fault {
            name: "no thread can be started (EAGAIN)",
            run: |trial| {
                without_or_fails(trial, &[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN)
            },
        },
        Fault {
            name: "no prctl, ioprio_set, sched_getaffinity (EPERM)",
            run: |trial| {
                let calls = [libc::SYS_prctl, libc::SYS_ioprio_set, libc::SYS_sched_getaffinity];
                without(trial, &calls, libc::EPERM)
            },
        },
        Fault { name: "kernel.io_uring_disabled = 2", run: uring_disabled },
        Fault {
            name: "RLIMIT_MEMLOCK = 0, and no privilege",
            run: |trial| limited_without_privilege(trial, libc::RLIMIT_MEMLOCK, 0),
        },
        Fault {
            name: "RLIMIT_NPROC = 1, and no privilege",
            run: |trial| limited_without_privilege(trial, libc::RLIMIT_NPROC, 1),
        },
        Fault { name: "RLIMIT_NOFILE = 10", run: |trial| limited(trial, libc::RLIMIT_NOFILE, 10) },
        Fault { name: "RLIMIT_NOFILE = 6", run: |trial| limited(trial, libc::RLIMIT_NOFILE, 6) },
        Fault { name: "RLIMIT_NOFILE = 5, and 200 files", run: many_files },
        Fault { name: "RLIMIT_NOFILE = 4", run: |trial| limited(trial, libc::RLIMIT_NOFILE, 4) },
        Fault {
            name: "RLIMIT_AS = 256 MiB",
            run: |trial| limited(trial, libc::RLIMIT_AS, 256 << 20),
        },
        Fault {
            name: "RLIMIT_AS = 64 MiB",
            run: |trial| limited(trial, libc::RLIMIT_AS, 64 << 20),
        },
        Fault { name: "RLIMIT_AS: what it has as it starts, and 1 MiB", run: little_memory },
        Fault {
            name: "RLIMIT_STACK = 128 KiB",
            run: |trial| limited(trial, libc::RLIMIT_STACK, 128 << 10),
        },
        Fault {
            name: "a control group with 64 MiB of memory, and a file of 256 MiB",
            run: little_memory_for_a_group,
        },
    ],
};

/// The number of the call, which is the same on every architecture.
const SYS_CACHESTAT: libc::c_long = 451;

/// A directory with a file that is not in the page cache.
fn plant() -> (Scratch, Vec<u8>) {
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(3_000_001);
    scratch.write("file", &content);
    cool(&scratch);
    (scratch, content)
}

fn cool(scratch: &Scratch) {
    let file = fs::File::open(scratch.join("file")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
}

/// Reads the file with each engine, in a process restricted by `hinder`.
fn each(trial: &Trial<'_>, must: Must, hinder: impl Fn(&mut Command)) -> Result<(), String> {
    let (scratch, content) = plant();
    trial.each(|engine| {
        cool(&scratch);
        let mut case = Case::new(&scratch, engine, "file", &[&content], must);
        hinder(&mut case.command);
        case
    });
    Ok(())
}

/// There is a fallback for these calls.
fn without(trial: &Trial<'_>, calls: &[libc::c_long], errno: i32) -> Result<(), String> {
    each(trial, Must::HashWithAuto, |command| seccomp::refuse(command, calls, errno))
}

/// There may be no fallback for these calls.
fn without_or_fails(trial: &Trial<'_>, calls: &[libc::c_long], errno: i32) -> Result<(), String> {
    each(trial, Must::Either, |command| seccomp::refuse(command, calls, errno))
}

fn limited(trial: &Trial<'_>, what: libc::__rlimit_resource_t, most: u64) -> Result<(), String> {
    each(trial, Must::Either, |command| limit(command, what, most))
}

/// If each file waited for a descriptor without success, the run would hang.
fn many_files(trial: &Trial<'_>) -> Result<(), String> {
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(5000);
    scratch.write("file", &content);
    trial.each_at_once(|engine| {
        let case = Case::new(&scratch, engine, "file", &[&content], Must::Either);
        let mut case = case.times(200);
        limit(&mut case.command, libc::RLIMIT_NOFILE, 5);
        case
    });
    Ok(())
}

/// The same for a user that limits apply to.
fn limited_without_privilege(
    trial: &Trial<'_>,
    what: libc::__rlimit_resource_t,
    most: u64,
) -> Result<(), String> {
    let (scratch, content) = plant();
    let me = !rustix::process::geteuid().is_root();
    if !me
        && !Command::new(crate::support::RINGSUM)
            .arg("--version")
            .uid(65_533)
            .output()
            .is_ok_and(|output| output.status.success())
    {
        return Err("run as root, and other users cannot reach the build".to_owned());
    }
    trial.each(|engine| {
        cool(&scratch);
        let mut case = Case::new(&scratch, engine, "file", &[&content], Must::Either);
        limit(&mut case.command, what, most);
        if !me {
            case.command.uid(65_533).gid(65_533);
        }
        case
    });
    Ok(())
}

/// The address space that the program itself needs, found by trying, plus a little.
fn little_memory(trial: &Trial<'_>) -> Result<(), String> {
    let starts = |mib: &u64| {
        let mut command = Command::new(crate::support::RINGSUM);
        limit(command.arg("--version"), libc::RLIMIT_AS, mib << 20);
        command.output().is_ok_and(|output| output.status.success())
    };
    let least = (1..1024).find(starts).ok_or("it never starts")?;
    limited(trial, libc::RLIMIT_AS, (least + 1) << 20)
}

/// A setting of the whole machine, restored on drop.
struct Sysctl(&'static str, String);

impl Drop for Sysctl {
    fn drop(&mut self) {
        let _ = fs::write(self.0, &self.1);
    }
}

fn uring_disabled(trial: &Trial<'_>) -> Result<(), String> {
    if std::env::var_os("FAULTS_SYSTEM").is_none_or(|value| value != "1") {
        return Err("it is a setting of the whole machine; FAULTS_SYSTEM=1 allows it".to_owned());
    }
    let path = "/proc/sys/kernel/io_uring_disabled";
    let before = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let (scratch, content) = plant();
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    let _restore = Sysctl(path, before);
    fs::write(path, "2").map_err(|error| format!("{path}: {error}"))?;
    for engine in ENGINES {
        let case = Case::new(&scratch, engine, "file", &[&content], Must::HashWithAuto);
        trial.put(case.run_alone());
    }
    Ok(())
}

/// A control group, removed on drop.
struct ControlGroup(PathBuf);

impl ControlGroup {
    /// With a memory limit, in version 2, or in version 1 if that controls memory.
    fn new(bytes: u64) -> Result<ControlGroup, String> {
        let mounts = fs::read_to_string("/proc/self/mounts").map_err(|error| error.to_string())?;
        let ways = [("cgroup2", "rw", "memory.max"), ("cgroup", "memory", "memory.limit_in_bytes")];
        for (kind, option, file) in ways {
            for line in mounts.lines() {
                let fields: Vec<&str> = line.split(' ').collect();
                let [_, root, found, options, ..] = fields[..] else { continue };
                if found != kind || !options.split(',').any(|other| other == option) {
                    continue;
                }
                let root = Path::new(root);
                let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
                let group =
                    ControlGroup(root.join(format!("ringsum-faults-{}", std::process::id())));
                if fs::create_dir(&group.0).is_err() {
                    continue;
                }
                if fs::write(group.0.join(file), bytes.to_string()).is_ok() {
                    return Ok(group);
                }
            }
        }
        Err("no control group for memory can be made".to_owned())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn little_memory_for_a_group(trial: &Trial<'_>) -> Result<(), String> {
    let group = ControlGroup::new(64 << 20)?;
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(256 << 20);
    scratch.write("file", &content);
    trial.each(|engine| {
        cool(&scratch);
        let mut case = Case::new(&scratch, engine, "file", &[&content], Must::Hash);
        let procs = fs::OpenOptions::new().write(true).open(group.0.join("cgroup.procs")).unwrap();
        // SAFETY: one system call.
        unsafe {
            case.command
                .pre_exec(move || rustix::io::write(&procs, b"0").map(drop).map_err(Into::into));
        }
        case
    });
    Ok(())
}

/// Starts a command without one of its three standard streams.
pub(crate) fn close(command: &mut Command, stream: i32) {
    // SAFETY: one system call, of a descriptor that the child does not use.
    unsafe {
        command.pre_exec(move || {
            libc::close(stream);
            Ok(())
        });
    }
}

/// Sends a signal to one thread, if it still exists.
pub(crate) fn signal_thread(process: u32, thread: u32, signal: i32) {
    // SAFETY: one system call, which knows no memory.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
}

/// Overwrites a file through a mapping.
pub(crate) fn write_mapped(file: &fs::File, content: &[u8]) {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    let len = content.len();
    // SAFETY: a mapping of its own, as long as the file, and used only here.
    unsafe {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let at = mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0).unwrap();
        at.cast::<u8>().copy_from_nonoverlapping(content.as_ptr(), len);
        munmap(at, len).unwrap();
    }
}
