//! A small stack: the command works, or reports what is missing, and does not crash.

use crate::support::{Scratch, content, hex};

/// Limits for `ulimit -s`, in KiB. Below 100 the kernel itself may refuse to start a program.
const LIMITS: [u32; 3] = [128, 256, 1024];

#[test]
fn a_small_stack_is_enough() {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    scratch.write("t/a", content(700_000));
    let line = format!("{}  t/a\n", hex(&content(700_000)));
    scratch.write("list", &line);
    for limit in LIMITS {
        for (args, expected) in [
            ("t/a", &*line),
            ("--length 32 t/a", &line),
            ("-r t", &line),
            ("-r --index index t", &line),
            ("--io engine=io_uring --io workers=2 --io block-size=4k t/a", &line),
            ("--io engine=mmap t/a", &line),
            ("--check list", "t/a: OK\n"),
        ] {
            let output = scratch.shell(&format!("ulimit -s {limit}; $R {args}"));
            let refused = output.code == 1 && output.stderr.contains("engine io_uring");
            if !refused {
                output.expect(0, expected, "");
            }
        }
        let output = scratch.shell(&format!("ulimit -s {limit}; $R --help"));
        assert!(output.code == 0 && output.stdout().contains("Usage: ringsum"), "{limit}");
    }
}
