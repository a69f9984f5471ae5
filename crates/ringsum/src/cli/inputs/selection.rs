//! Selection of the files of a tree: globs, and the rules of `.gitignore`.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use ringsum::files::walk::Select;
use rustix::fs::{Mode, OFlags, openat};

use crate::cli::args::Args;
use crate::cli::args::values::{GLOB_BYTES_MAX, Pattern};

/// The globs of one option: some match names, others paths relative to the root of the tree.
#[derive(Debug)]
struct Globs {
    names: GlobSet,
    paths: GlobSet,
}

impl Globs {
    fn of(patterns: &[Pattern]) -> anyhow::Result<Globs> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for Pattern(text) in patterns {
            // (A trailing slash denotes a directory, as in rsync.)
            let body = text.strip_suffix('/').unwrap_or(text);
            let body = body.strip_prefix('.').filter(|rest| rest.starts_with('/')).unwrap_or(body);
            let is_path = body.contains('/');
            let body = body.strip_prefix('/').unwrap_or(body);
            let glob = GlobBuilder::new(body).literal_separator(true).build()?;
            if is_path { &mut paths } else { &mut names }.add(glob);
        }
        Ok(Globs { names: names.build()?, paths: paths.build()? })
    }

    fn matches(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        self.names.is_match(OsStr::from_bytes(name)) || self.paths.is_match(OsStr::from_bytes(path))
    }
}

/// `--include`, `--exclude`, `--gitignore` and `--max-depth`, for one tree.
#[derive(Debug)]
pub(crate) struct Selection {
    include: Option<Globs>,
    exclude: Option<Globs>,
    gitignore: Option<Rules>,
    /// Most components of the path of a file.
    max_depth: Option<u32>,
}

impl Selection {
    /// `None` if everything is selected.
    pub(crate) fn of(args: &Args) -> anyhow::Result<Option<Arc<dyn Select>>> {
        let globs = |patterns: &[Pattern]| match patterns {
            [] => Ok(None),
            patterns => Globs::of(patterns).map(Some),
        };
        let (include, exclude) = (globs(&args.include)?, globs(&args.exclude)?);
        let gitignore = args.gitignore.then(Rules::default);
        let max_depth = args.max_depth;
        let is_all = include.is_none() && exclude.is_none() && gitignore.is_none();
        if is_all && max_depth.is_none() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Selection { include, exclude, gitignore, max_depth })))
    }

    /// Whether `--exclude` or a `.gitignore` leaves out a path.
    fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        self.exclude.as_ref().is_some_and(|globs| globs.matches(path))
            || self.gitignore.as_ref().is_some_and(|rules| rules.ignores(path, is_directory))
    }
}

impl Select for Selection {
    fn selects(&self, path: &[u8]) -> bool {
        !self.leaves_out(path, false)
            && self.include.as_ref().is_none_or(|globs| globs.matches(path))
    }

    fn descends(&self, path: &[u8]) -> bool {
        let components = || 1 + path.iter().filter(|&&byte| byte == b'/').count();
        let is_deep = self.max_depth.is_some_and(|most| components() >= most as usize);
        !is_deep && !self.leaves_out(path, true)
    }

    fn enter(&self, path: &[u8], directory: BorrowedFd<'_>) -> io::Result<()> {
        self.gitignore.as_ref().map_or(Ok(()), |rules| rules.read(path, directory))
    }
}

/// Longest `.gitignore` that is accepted, in bytes: its rules are kept until the end of the tree.
const RULES_BYTES_MAX: u64 = 1 << 20;

/// The `.gitignore` rules of a tree, by directory.
#[derive(Debug, Default)]
struct Rules(RwLock<HashMap<Vec<u8>, Arc<Gitignore>>>);

impl Rules {
    /// Reads the file of one directory, if there is one. Invalid lines are ignored, as in Git.
    fn read(&self, path: &[u8], directory: BorrowedFd<'_>) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Ok(fd) = openat(directory, ".gitignore", flags, Mode::empty()) else { return Ok(()) };
        let file = File::from(fd);
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Ok(());
        }
        let mut text = Vec::new();
        file.take(RULES_BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > RULES_BYTES_MAX {
            return Err(io::Error::other(
                "its .gitignore is longer than 1 MiB, and was not applied",
            ));
        }
        let mut builder = GitignoreBuilder::new("");
        for (number, line) in (1..).zip(text.split(|&byte| byte == b'\n')) {
            if line.len() > GLOB_BYTES_MAX {
                let why = "is longer than 4096 bytes, so it was not applied";
                return Err(io::Error::other(format!("line {number} of its .gitignore {why}")));
            }
            if let Ok(line) = std::str::from_utf8(line) {
                let _ = builder.add_line(None, line.trim_end_matches('\r'));
            }
        }
        let rules = builder.build();
        let rules = rules.map_err(|error| {
            io::Error::other(format!("its .gitignore cannot be applied: {error}"))
        })?;
        if !rules.is_empty() {
            let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
            all.insert(path.to_owned(), Arc::new(rules));
        }
        Ok(())
    }

    /// Whether a path is ignored. The nearest directory with a matching rule decides. (The walk
    /// does not descend into ignored directories.)
    fn ignores(&self, path: &[u8], is_directory: bool) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if all.is_empty() {
            return false;
        }
        let mut end = path.len();
        loop {
            let slash = path[..end].iter().rposition(|&byte| byte == b'/');
            let directory = slash.map_or(&path[..0], |slash| &path[..slash]);
            let within = slash.map_or(path, |slash| &path[slash + 1..]);
            if let Some(rules) = all.get(directory) {
                match rules.matched(Path::new(OsStr::from_bytes(within)), is_directory) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            match slash {
                Some(slash) => end = slash,
                None => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::values::parse_glob;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| parse_glob(text).unwrap()).collect()
    }

    #[test]
    fn a_glob_without_a_slash_matches_names() {
        let cases: [(&str, &[&str], &[&str]); 7] = [
            ("*.o", &["a.o", "x/y/a.o", ".o"], &["a.oo", "a.o/b"]),
            ("target", &["target", "x/target"], &["targets", "target/x"]),
            ("target/", &["target", "x/target"], &["targets"]),
            ("/target", &["target"], &["x/target"]),
            ("./target", &["target"], &["x/target"]),
            ("x/*.o", &["x/a.o"], &["x/y/a.o", "a.o", "z/x/a.o"]),
            ("**/x/*.o", &["x/a.o", "z/x/a.o"], &["a.o"]),
        ];
        for (glob, matches, others) in cases {
            let globs = Globs::of(&patterns(&[glob])).unwrap();
            for path in matches {
                assert!(globs.matches(path.as_bytes()), "{glob} {path}");
            }
            for path in others {
                assert!(!globs.matches(path.as_bytes()), "{glob} {path}");
            }
        }
        assert!(parse_glob("a[").is_err());
    }

    #[test]
    fn the_nearest_gitignore_decides() {
        let rules = Rules::default();
        for (directory, text) in [("", "*.log\n/top\nbuild/\n"), ("sub", "!keep.log\n*.tmp\n")] {
            let at = tempfile::tempdir().unwrap();
            std::fs::write(at.path().join(".gitignore"), text).unwrap();
            let opened = File::open(at.path()).unwrap();
            rules.read(directory.as_bytes(), std::os::fd::AsFd::as_fd(&opened)).unwrap();
        }
        let cases = [
            ("a.log", false, true),
            ("sub/a.log", false, true),
            ("sub/keep.log", false, false),
            ("keep.log", false, true),
            ("top", false, true),
            ("sub/top", false, false),
            ("build", true, true),
            ("build", false, false),
            ("sub/x/a.tmp", false, true),
            ("a.tmp", false, false),
        ];
        for (path, is_directory, is_ignored) in cases {
            assert_eq!(rules.ignores(path.as_bytes(), is_directory), is_ignored, "{path}");
        }
    }
}
