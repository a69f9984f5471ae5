//! Signals in the middle of a run, and standard output that takes nothing.

use std::fs::File;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::fuse;
use crate::mounting::noise;
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
        Fault {
            name: "nobody reads standard output",
            run: |trial| output(trial, Ends::Code(0), || std::io::pipe().unwrap().1.into()),
        },
    ],
};

fn send(child: &mut Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

fn stop_and_go(child: &mut Child) {
    send(child, Signal::STOP);
    sleep(Duration::from_millis(20));
    send(child, Signal::CONT);
    sleep(Duration::from_millis(10));
}

/// Waits until a run is at work: a run of few files has nothing to do for SIGINT, and leaves it to the kernel,
/// so that there is no handler to wait for.
fn wait_for_middle() {
    sleep(Duration::from_millis(200));
}

/// Tries a file that takes half a second, with something done in its middle.
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
    trial.each(|engine| {
        let case = Case::new(&scratch, engine, "file", &[&content], must)
            .args(&["--limit-rate=8M"])
            .act(move |child| {
                wait_for_middle();
                act(child);
            });
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

/// Tries standard output that takes nothing.
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

fn closed(trial: &Trial<'_>) -> Result<(), String> {
    let scratch = Scratch::new();
    scratch.write(GOOD.0, GOOD.1);
    let content = noise(3_000_001);
    scratch.write("file", &content);
    trial.each(|engine| {
        let mut case =
            Case::new(&scratch, engine, "file", &[&content], Must::Whatever).ends(Ends::Code(1));
        crate::limits::close_stdout(&mut case.command);
        case
    });
    Ok(())
}
