//! Denying system calls to a child with a seccomp filter.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes these system calls of the command fail with an error number.
pub(crate) fn refuse(command: &mut Command, calls: &[libc::c_long], errno: i32) {
    let filter = filter(calls, errno);
    // SAFETY: only system calls, on memory that was made before the fork.
    unsafe {
        command.pre_exec(move || {
            let program =
                libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
            let installed = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0;
            if installed { Ok(()) } else { Err(io::Error::last_os_error()) }
        });
    }
}

fn filter(calls: &[libc::c_long], errno: i32) -> Vec<libc::sock_filter> {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    // The number of the call is the first field of `seccomp_data`.
    let mut filter = vec![statement(LOAD_WORD, 0)];
    for call in calls {
        filter.push(libc::sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: *call as u32 });
        filter.push(statement(RETURN, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    filter.push(statement(RETURN, libc::SECCOMP_RET_ALLOW));
    filter
}
