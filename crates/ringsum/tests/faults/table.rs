//! The table: every fault with every engine, and its outcome.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::fuse::Mounted;
use crate::mounting::Setup;
use crate::run::{Case, GOOD};
use crate::support::{Scratch, skip};

/// The values for `--io engine=`; `auto`: without the option.
pub(crate) const ENGINES: [&str; 7] =
    ["auto", "io_uring", "libaio", "pool", "pread", "mmap", "stream"];

/// A fault, and how to provoke it for each engine.
pub(crate) struct Fault {
    pub(crate) name: &'static str,
    /// Returns an error if the setup fails here.
    pub(crate) run: fn(&Trial<'_>) -> Result<(), String>,
}

/// The faults of one kind.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) faults: &'static [Fault],
}

/// One fault during its runs.
pub(crate) struct Trial<'a> {
    fuse: &'a Result<Mounted, String>,
    /// Whether an overlayfs is mounted over it, at `over`, or why not.
    overlay: &'a Result<(), String>,
    /// Where the FUSE file system is mounted, at `fuse`.
    scratch: &'a Scratch,
    cells: Mutex<Vec<Result<String, String>>>,
}

impl Trial<'_> {
    pub(crate) fn fuse(&self) -> Result<(&Mounted, &Scratch), String> {
        self.fuse.as_ref().map(|fuse| (fuse, self.scratch)).map_err(String::clone)
    }

    /// Whether the files of [`fuse`](Trial::fuse) are also at `over`.
    pub(crate) fn overlay(&self) -> Result<(), String> {
        self.overlay.clone()
    }

    /// Runs one engine after another, in their order; `case` is called once for each.
    pub(crate) fn each<'c>(&self, mut case: impl FnMut(&'static str) -> Case<'c>) {
        ENGINES.into_iter().for_each(|engine| self.put(case(engine).run()));
    }

    /// The same with all engines at once, for a fault that mostly takes waiting.
    pub(crate) fn each_at_once<'c>(&self, case: impl Fn(&'static str) -> Case<'c> + Sync) {
        let case = &case;
        thread::scope(|scope| {
            let runs = ENGINES.map(|engine| scope.spawn(move || case(engine).run()));
            runs.into_iter().for_each(|run| self.put(run.join().expect("no panic")));
        });
    }

    /// Adds the outcome of the next engine.
    pub(crate) fn put(&self, outcome: Result<String, String>) {
        self.cells.lock().unwrap().push(outcome);
    }
}

/// Writes the healthy file.
pub(crate) fn plant(scratch: &Scratch) {
    scratch.write(GOOD.0, GOOD.1);
}

/// The outcomes of a fault by engine, or why it was skipped.
type Row = Result<Vec<Result<String, String>>, String>;

/// Tries all faults, several at a time; returns the rows of each group.
pub(crate) fn try_all(groups: &[Group]) -> Vec<Vec<Row>> {
    let mut setup = Setup { scratch: Scratch::new(), undo: Vec::new() };
    plant(&setup.scratch);
    let fuse = Mounted::new(&setup.scratch.make_dir("fuse"));
    let overlay = match &fuse {
        Ok(_) => crate::images::overlay(&mut setup, "over", "fuse"),
        Err(why) => Err(why.clone()),
    };
    let scratch = &setup.scratch;
    let faults: Vec<&Fault> = groups.iter().flat_map(|group| group.faults).collect();
    let rows: Vec<Mutex<Option<Row>>> = faults.iter().map(|_| Mutex::new(None)).collect();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        // Threads wait more than they work.
        for _ in 0..12 {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::SeqCst);
                    let Some(fault) = faults.get(i) else { break };
                    let (fuse, overlay, cells) = (&fuse, &overlay, Mutex::default());
                    let trial = Trial { fuse, overlay, scratch, cells };
                    let done = (fault.run)(&trial);
                    let row = done.map(|()| trial.cells.into_inner().unwrap());
                    *rows[i].lock().unwrap() = Some(row);
                }
            });
        }
    });
    setup.undo_all().expect("the overlay goes");
    let mut rows = rows.into_iter().map(|row| row.into_inner().unwrap().expect("tried"));
    groups.iter().map(|group| rows.by_ref().take(group.faults.len()).collect()).collect()
}

/// Prints what was skipped, and returns what is broken.
pub(crate) fn broken(groups: &[Group], rows: &[Vec<Row>]) -> Vec<String> {
    let mut broken = Vec::new();
    for (group, rows) in groups.iter().zip(rows) {
        for (fault, row) in group.faults.iter().zip(rows) {
            match row {
                Err(why) => skip(&format!("fault {}: {why}", fault.name)),
                Ok(cells) => {
                    assert_eq!(cells.len(), ENGINES.len(), "{}: engines", fault.name);
                    for (engine, cell) in ENGINES.iter().zip(cells) {
                        if let Err(why) = cell {
                            broken.push(format!("{}, {engine}: {why}", fault.name));
                        }
                    }
                }
            }
        }
    }
    broken
}

const HEAD: &str = "\
# Faults and their outcomes

Each row is a fault that is provoked in a run of the real command, each column an engine that the command is
given (`auto`: none). `crates/ringsum/tests/faults` generates this page: do not edit it, but run as root, on a
machine whose kernel supports as much of this as possible,

    WRITE_FAULTS=crates/ringsum/tests/faults/README.md FAULTS_SYSTEM=1 cargo test --package ringsum --test faults every

Without `WRITE_FAULTS` the same table goes to `faults.md` in the build's directory for temporary files.
`FAULTS_SYSTEM=1` allows tests that change a setting of the whole machine for a moment; without it, they are
skipped.

The test fails unless each cell is the hash of the bytes that the file really held (or held before or after its
change), or one error line with the path, and exit status 1; for a failed read, with the place. Another, healthy
file in the same run is hashed. Nothing hangs (60 s for each run), panics or is killed. In the table:

| cell | meaning |
|---|---|
| hash | the right hash, exit status 0 |
| error at N to M: WHAT | in the block that failed first, bytes N to M cannot be read: no hash, exit status 1 |
| error at N: WHAT | the read that starts at byte N failed, for a reason that is not its place: no hash, exit status 1 |
| error, error: WHAT | no hash, exit status 1; WHAT is the kernel's error, if there is one |
| shrank, grew, changed | the message names this change of the file while it was read: no hash, exit status 1 |
| unreadable: N to M | `--list-bad-ranges` lists these bytes: no hash, exit status 1; with an engine, the command line is refused: exit 2 |
| refused | the explicit engine is not available here: no hash, exit status 1 |
| said | a message says what is wrong with standard output, exit status 1 |
| ended | SIGINT ended it |
| exit N, signal N | how the run ended, as it must |
| not tried | the machine that generated this page lacks what the test needs |
";

/// The start of the section that `bench/soak` writes.
const SOAK: &str = "\n## A soak\n";

/// The page, with the soak section of `before`.
pub(crate) fn page(groups: &[Group], rows: &[Vec<Row>], before: &str) -> String {
    let mut page = HEAD.to_owned();
    for (group, rows) in groups.iter().zip(rows) {
        let dashes = "|---".repeat(ENGINES.len());
        write!(page, "\n## {}\n\n| fault | {} |\n|---{dashes}|\n", group.name, ENGINES.join(" | "))
            .expect("a string");
        for (fault, row) in group.faults.iter().zip(rows) {
            let cells = match row {
                Err(_) => vec!["not tried"; ENGINES.len()],
                Ok(cells) => {
                    cells.iter().map(|cell| cell.as_deref().unwrap_or("**BROKEN**")).collect()
                }
            };
            writeln!(page, "| {} | {} |", fault.name, cells.join(" | ")).expect("a string");
        }
    }
    page.push_str(before.find(SOAK).map_or("", |at| &before[at..]));
    page
}
