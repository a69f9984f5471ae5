//! The files that the command creates are readable and writable by their owner only, whatever the
//! umask is.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use crate::support::{Scratch, files_below, hex, skip};

/// A user that root can give files to.
const OTHER_USER: u32 = 65_534;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn small_tree() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_dir("t");
    scratch.write("t/a", "a");
    scratch
}

/// A new index has mode 0600.
#[test]
fn an_index_is_for_its_owner() {
    let scratch = small_tree();
    for umask in ["000", "022", "077"] {
        let _ = fs::remove_file(scratch.join("index"));
        scratch
            .shell(&format!("umask {umask}; $R -r --index index t > out{umask}"))
            .expect(0, "", "");
        assert_eq!(mode(&scratch.join("index")), 0o600, "{umask}");
    }
    // An existing index keeps its mode.
    fs::set_permissions(scratch.join("index"), Permissions::from_mode(0o640)).unwrap();
    scratch.shell("umask 000; $R -r --index index t > out").expect(0, "", "");
    assert_eq!(mode(&scratch.join("index")), 0o640);
}

/// The journal, which a killed run leaves behind, has the mode of the index.
#[test]
fn a_journal_is_for_the_owner_of_the_index() {
    let scratch = small_tree();
    for i in 0..300 {
        scratch.write(format!("t/{i}"), i.to_string());
    }
    let watched = scratch.shell(
        "umask 000; $R -r --index index t > out
         cat > hold.py <<END
import sqlite3, os
db = sqlite3.connect('index', isolation_level=None)
db.execute('begin immediate')
db.execute('delete from file')
print(oct(os.stat('index-journal').st_mode & 0o777))
db.execute('rollback')
END
         python3 hold.py",
    );
    if watched.code != 0 {
        return skip(&format!("no Python with SQLite: {}", watched.stderr.trim()));
    }
    assert_eq!(watched.stdout(), "0o600\n");
}

#[test]
fn a_link_to_nowhere_is_not_followed_to_make_an_index() {
    let scratch = small_tree();
    symlink("elsewhere", scratch.join("index")).unwrap();
    let output = scratch.run(&["-r", "--index", "index", "t"]);
    assert_eq!(output.code, 1);
    assert!(
        output.stderr.contains("cannot open index index: it is a dangling link"),
        "{}",
        output.stderr
    );
    assert!(!scratch.join("elsewhere").exists());
    // A link to an existing index is fine.
    scratch.run(&["-r", "--index", "elsewhere", "t"]).expect(0, &hashed(), "");
    scratch.run(&["-r", "--index", "index", "t"]).expect(0, &hashed(), "");
}

fn hashed() -> String {
    format!("{}  t/a\n", hex(b"a"))
}

const WARNING: &str = "warning: other users can hide changes of files by writing to the index";

#[test]
fn who_else_can_change_an_index_is_told() {
    let scratch = small_tree();
    scratch.make_dir("public");
    let run = |index: &str| scratch.run(&["-r", "--index", index, "t"]);
    run("public/index").expect(0, &hashed(), "");
    for permissions in [0o777, 0o1777] {
        fs::set_permissions(scratch.join("public"), Permissions::from_mode(permissions)).unwrap();
        let said = format!("ringsum: public/index: {WARNING}: its directory is world-writable\n");
        run("public/index").expect(0, &hashed(), &said);
        symlink("public/index", scratch.join("link")).unwrap();
        run("link").expect(0, &hashed(), &said.replace("public/index", "link"));
        fs::remove_file(scratch.join("link")).unwrap();
    }
    fs::set_permissions(scratch.join("public"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(scratch.join("public/index"), Permissions::from_mode(0o666)).unwrap();
    let said = format!("ringsum: public/index: {WARNING}: it is world-writable\n");
    run("public/index").expect(0, &hashed(), &said);
}

#[test]
fn what_somebody_else_has_put_where_everybody_may_is_refused() {
    let scratch = small_tree();
    let public = scratch.make_dir("public");
    let run = || scratch.run(&["-r", "--index", "public/index", "t"]);
    run().expect(0, &hashed(), "");
    let index = fs::read(public.join("index")).unwrap();
    if rustix::process::geteuid().as_raw() == OTHER_USER {
        return skip("files of another user: they would be this one's own");
    }
    if let Err(error) = chown(public.join("index"), Some(OTHER_USER), None) {
        return skip(&format!("files of another user: {error}"));
    }
    // In a directory of our own, only its owner can have put it there.
    let said = format!("ringsum: public/index: {WARNING}: it belongs to another user (65534)\n");
    run().expect(0, &hashed(), &said);
    fs::set_permissions(&public, Permissions::from_mode(0o1777)).unwrap();
    let refused = |name: &str| {
        let before = files_below(scratch.path());
        let output = run();
        let said = format!(
            "ringsum: public/{name} belongs to another user (65534) and is in a world-writable"
        );
        assert!(output.stderr.starts_with(&said) && output.code == 1, "{}", output.stderr);
        assert_eq!(output.stdout(), "");
        assert!(files_below(scratch.path()) == before, "something was changed");
        fs::remove_file(public.join(name)).unwrap();
    };
    refused("index");
    fs::write(public.join("index"), index).unwrap();
    for name in ["index-journal", "index-wal", "index-shm"] {
        fs::write(public.join(name), "what SQLite would take into the index").unwrap();
        chown(public.join(name), Some(OTHER_USER), None).unwrap();
        refused(name);
    }
    fs::remove_file(public.join("index")).unwrap();
    symlink("/etc/passwd", public.join("index")).unwrap();
    std::os::unix::fs::lchown(public.join("index"), Some(OTHER_USER), None).unwrap();
    refused("index");
}
