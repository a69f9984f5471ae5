//! Signals during a run, and an unusable standard output.

use std::fs::File;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::fuse;
use crate::mounting::{Setup, noise};
use crate::run::{Case, Ends, GOOD, Must};
use crate::support::Scratch;
use crate::table::{ENGINES, Fault, Group, Trial};

pub(crate) const GROUP: Group = Group {
    name: "Signals, and standard output",
    faults: &[
        Fault {
            name: "SIGINT in the middle",
            run: |trial| {
                signalled(trial, Must::Whatever, Some(Ends::Interrupted), |child| {
                    send(child, Signal::INT)
                })
            },
        },
        Fault {
            name: "SIGTERM in the middle",
            run: |trial| {
                let ends = Some(Ends::Signal(libc::SIGTERM));
                signalled(trial, Must::Whatever, ends, |child| send(child, Signal::TERM))
            },
        },
        Fault {
            name: "SIGSTOP in the middle, and SIGCONT",
            run: |trial| signalled(trial, Must::Hash, None, stop_and_go),
        },
        Fault {
            name: "SIGSTOP in the middle and SIGCONT, again and again",
            run: |trial| {
                signalled(trial, Must::Hash, None, |child| (0..10).for_each(|_| stop_and_go(child)))
            },
        },
        Fault {
            name: "a signal with a handler every millisecond, to each thread: EINTR",
            run: stormed,
        },
        Fault {
            name: "SIGSTOP and SIGCONT every millisecond",
            run: |trial| {
                signalled(trial, Must::Hash, None, |child| {
                    every_ms(|| {
                        send(child, Signal::STOP);
                        send(child, Signal::CONT);
                    });
                })
            },
        },
        Fault {
            name: "SIGWINCH, SIGCHLD and SIGURG every millisecond",
            run: |trial| {
                signalled(trial, Must::Hash, None, |child| {
                    let signals = [Signal::WINCH, Signal::CHILD, Signal::URG];
                    every_ms(|| signals.into_iter().for_each(|signal| send(child, signal)));
                })
            },
        },
        Fault {
            name: "SIGINT while a file system takes a second for each read",
            run: |trial| slow_and_interrupted(trial),
        },
        Fault {
            name: "standard output is full (/dev/full)",
            run: |trial| {
                output(trial, Ends::Code(1), || {
                    File::options().write(true).open("/dev/full").unwrap().into()
                })
            },
        },
        Fault { name: "standard output is closed", run: closed },
        Fault { name: "standard input is closed", run: |trial| no_input(trial, "file") },
        Fault {
            name: "standard input is closed, and is what is to be read",
            run: |trial| no_input(trial, "-"),
        },
        Fault {
            name: "the reader of standard output has left",
            run: |trial| output(trial, Ends::Code(0), || std::io::pipe().unwrap().1.into()),
        },
    ],
};

fn send(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

fn stop_and_go(child: &mut Child) {
    send(child, Signal::STOP);
    sleep(Duration::from_millis(20));
    send(child, Signal::CONT);
    sleep(Duration::from_millis(10));
}

/// Repeats it until most of a run of half a second is over.
fn every_ms(act: impl Fn()) {
    for _ in 0..300 {
        act();
        sleep(Duration::from_millis(1));
    }
}

/// Has the shell install a no-op handler for the signal.
const HANDLER: &str = "\
#include <signal.h>
static void nothing(int signal) { (void)signal; }
__attribute__((constructor)) static void install(void) {
    struct sigaction action = {0};
    action.sa_handler = nothing; /* Without SA_RESTART: calls that wait end with EINTR. */
    sigaction(SIGUSR1, &action, 0);
}
";

fn stormed(trial: &Trial<'_>) -> Result<(), String> {
    let setup = Setup { scratch: Scratch::new(), undo: Vec::new() };
    let scratch = &setup.scratch;
    scratch.write(GOOD.0, GOOD.1);
    scratch.write("handler.c", HANDLER);
    setup.tool("cc -shared -fPIC -o handler.so handler.c")?;
    let content = noise(4 << 20);
    scratch.write("file", &content);
    trial.each(|engine| {
        let mut case = Case::new(scratch, engine, "file", &[&content], Must::Hash)
            .args(&["--limit-rate=8M"])
            .act(|child| {
                until(|| catches(child.id(), libc::SIGUSR1));
                every_ms(|| {
                    for thread in threads(child.id()) {
                        crate::limits::signal_thread(child.id(), thread, libc::SIGUSR1);
                    }
                });
            });
        case.command.env("LD_PRELOAD", scratch.join("handler.so"));
        case
    });
    Ok(())
}

/// Whether a process has a handler for a signal.
fn catches(process: u32, signal: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok());
    caught.is_some_and(|caught| caught >> (signal - 1) & 1 == 1)
}

/// Waits until a condition holds, or a time limit is over.
pub(crate) fn until(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() && Instant::now() < end {
        sleep(Duration::from_millis(1));
    }
}

/// The threads of a process.
fn threads(process: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    threads.flatten().filter_map(|thread| thread.file_name().to_str()?.parse().ok()).collect()
}

/// Waits until a run is reading: a run of few files does not handle SIGINT, so there is no handler
/// to wait for.
fn wait_for_middle() {
    sleep(Duration::from_millis(200));
}

/// Reads a file for half a second, or for ten if something should end it, and does that midway.
fn signalled(
    trial: &Trial<'_>,
    must: Must,
    ends: Option<Ends>,
    act: impl Fn(&mut Child) + Copy,
) -> Result<(), String> {
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(4 << 20);
    scratch.write("file", &content);
    let rate = if ends.is_some() { "--limit-rate=400K" } else { "--limit-rate=8M" };
    trial.each(|engine| {
        let case = Case::new(&scratch, engine, "file", &[&content], must).args(&[rate]).act(
            move |child| {
                wait_for_middle();
                act(child);
            },
        );
        match ends {
            Some(ends) => case.ends(ends),
            None => case,
        }
    });
    Ok(())
}

fn slow_and_interrupted(trial: &Trial<'_>) -> Result<(), String> {
    let (fuse, scratch) = trial.fuse()?;
    let content = noise(3_000_001);
    for engine in ENGINES {
        let added = fuse.add(fuse::File {
            content: content.clone(),
            trouble: fuse::Trouble::Slow(Duration::from_secs(1)),
            ..fuse::File::default()
        });
        let path = format!("fuse/{}", added.name());
        let case = Case::new(scratch, engine, &path, &[&content], Must::Whatever);
        let case = case.ends(Ends::Interrupted).act(|child| {
            wait_for_middle();
            send(child, Signal::INT);
        });
        trial.put(case.run());
    }
    Ok(())
}

/// Runs with an unusable standard output.
fn output(trial: &Trial<'_>, ends: Ends, stdout: impl Fn() -> Stdio) -> Result<(), String> {
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(3_000_001);
    scratch.write("file", &content);
    trial.each(|engine| {
        let mut case = Case::new(&scratch, engine, "file", &[&content], Must::Whatever).ends(ends);
        case.command.stdout(stdout());
        case
    });
    Ok(())
}

fn no_input(trial: &Trial<'_>, path: &str) -> Result<(), String> {
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(3_000_001);
    scratch.write("file", &content);
    let must = if path == "-" { Must::Fail } else { Must::Hash };
    trial.each(|engine| {
        let mut case = Case::new(&scratch, engine, path, &[&content], must);
        crate::limits::close(&mut case.command, 0);
        case
    });
    Ok(())
}

fn closed(trial: &Trial<'_>) -> Result<(), String> {
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(3_000_001);
    scratch.write("file", &content);
    trial.each(|engine| {
        let mut case =
            Case::new(&scratch, engine, "file", &[&content], Must::Whatever).ends(Ends::Code(1));
        crate::limits::close(&mut case.command, 1);
        case
    });
    Ok(())
}
