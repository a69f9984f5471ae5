//! `include=` and `exclude=` of a tree: globs with the meaning that the command gives them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use ringsum::files::walk::Select;

/// Longest glob, in bytes.
const GLOB_BYTES_MAX: usize = 4096;

/// The globs of one argument: some match names, others paths relative to the root of the tree.
#[derive(Debug)]
struct Globs {
    names: GlobSet,
    paths: GlobSet,
}

impl Globs {
    fn of(patterns: &[String]) -> PyResult<Globs> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        let refuse = |error: globset::Error| PyValueError::new_err(error.to_string());
        for text in patterns {
            if text.len() > GLOB_BYTES_MAX {
                let why = format!("a glob has at most {GLOB_BYTES_MAX} bytes");
                return Err(PyValueError::new_err(why));
            }
            // (A trailing slash denotes a directory.)
            let body = text.strip_suffix('/').unwrap_or(text);
            let body = body.strip_prefix('.').filter(|rest| rest.starts_with('/')).unwrap_or(body);
            let is_path = body.contains('/');
            let body = body.strip_prefix('/').unwrap_or(body);
            let glob = GlobBuilder::new(body).literal_separator(true).build().map_err(refuse)?;
            if is_path { &mut paths } else { &mut names }.add(glob);
        }
        let [names, paths] = [names, paths].map(|set| set.build().map_err(refuse));
        Ok(Globs { names: names?, paths: paths? })
    }

    fn matches(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        self.names.is_match(OsStr::from_bytes(name)) || self.paths.is_match(OsStr::from_bytes(path))
    }
}

/// Which files of a tree are hashed.
#[derive(Debug)]
pub(crate) struct Selection {
    include: Option<Globs>,
    exclude: Option<Globs>,
    /// Most components of the path of a file.
    max_depth: Option<u32>,
}

impl Selection {
    /// `None` if everything is selected.
    pub(crate) fn of(
        include: Option<&[String]>,
        exclude: Option<&[String]>,
        max_depth: Option<u32>,
    ) -> PyResult<Option<Arc<dyn Select>>> {
        if max_depth == Some(0) {
            return Err(PyValueError::new_err("max_depth is at least 1"));
        }
        let globs = |patterns: Option<&[String]>| patterns.map(Globs::of).transpose();
        let (include, exclude) = (globs(include)?, globs(exclude)?);
        if include.is_none() && exclude.is_none() && max_depth.is_none() {
            return Ok(None);
        }
        Ok(Some(Arc::new(Selection { include, exclude, max_depth })))
    }

    fn leaves_out(&self, path: &[u8]) -> bool {
        self.exclude.as_ref().is_some_and(|globs| globs.matches(path))
    }
}

impl Select for Selection {
    fn selects(&self, path: &[u8]) -> bool {
        !self.leaves_out(path) && self.include.as_ref().is_none_or(|globs| globs.matches(path))
    }

    fn descends(&self, path: &[u8]) -> bool {
        let components = || 1 + path.iter().filter(|&&byte| byte == b'/').count();
        let is_deep = self.max_depth.is_some_and(|most| components() >= most as usize);
        !is_deep && !self.leaves_out(path)
    }
}
