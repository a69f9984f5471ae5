//! The output for each file: a line for users and checksum files, or a JSON object for programs.

use std::borrow::Cow;
use std::io;

use blockring::ErrorKind;
use ringsum::checkfile::{self, LineEnd, Style};
use ringsum::files::{Failure, Hashed};
use ringsum::{Algorithm, Digest, Digests};

use crate::cli::args::Args;
use crate::cli::output::{OutputError, json};
use crate::cli::session::Session;

/// Bytes of extended output written at once, which bounds the memory for any length.
const OUTPUT_BYTES: usize = 32 << 10;

impl Session<'_> {
    /// Prints the digests of a file.
    pub(crate) fn print_hash(&self, name: &[u8], hashed: &Hashed) -> Result<(), OutputError> {
        self.progress.suspend(|| {
            if self.args.json {
                return self.object(name, "ok", Some(hashed), None);
            }
            // Only tags distinguish the digests of several algorithms.
            let style = if hashed.digests.len() > 1 { Style::Tag } else { self.style() };
            hashed.digests.iter().try_for_each(|digest| self.line(name, digest, style))
        })
    }

    /// Prints the digest of a tree.
    pub(crate) fn print_tree(&self, root: &[u8], hash: blake3::Hash) -> Result<(), OutputError> {
        self.progress.suspend(|| match self.args.json {
            true => {
                let object = json::object(root, "ok").with("tree_digest", hash.to_hex().as_str());
                self.output.write(object.line().as_bytes())
            }
            false => self.short_line(root, hash.as_bytes(), self.style()),
        })
    }

    /// Reports why a file has no hash.
    pub(crate) fn print_failure(&self, name: &[u8], failure: &Failure) -> Result<(), OutputError> {
        match self.args.json {
            true => {
                let object = json::object(name, json::status_of(failure, "error"));
                let line = object.with_failure(failure).line();
                self.progress.suspend(|| self.output.write(line.as_bytes()))
            }
            false => self.problem(name, "error", None, &self.describe(failure)),
        }
    }

    /// Describes a failure, and how to avoid it if that is simple.
    pub(crate) fn describe(&self, failure: &Failure) -> String {
        let (Failure::Open(error) | Failure::Read(ErrorKind::Open(error))) = failure else {
            return failure.to_string();
        };
        let has_hint = self.args.applet.is_none() && !self.args.recursive && !self.args.copies();
        match error.kind() {
            io::ErrorKind::IsADirectory if has_hint => {
                "is a directory: use -r to hash the files in it".to_owned()
            }
            _ => failure.to_string(),
        }
    }

    /// Reports an entry that was not read.
    pub(crate) fn print_error(&self, name: &[u8], why: &str) -> Result<(), OutputError> {
        self.problem(name, "error", None, why)
    }

    /// Reports an entry of a tree that is not a regular file.
    pub(crate) fn print_skipped(&self, name: &[u8], what: &str) -> Result<(), OutputError> {
        match self.args.json {
            true => self.problem(name, "skipped", None, what),
            false => self.problem(name, "skipped", None, &format!("skipped: it is {what}")),
        }
    }

    /// Reports a problem of an entry. With `--json`, `status` and the digests are in the object.
    pub(crate) fn problem(
        &self,
        name: &[u8],
        status: &str,
        hashed: Option<&Hashed>,
        why: &str,
    ) -> Result<(), OutputError> {
        match self.args.json {
            true => self.progress.suspend(|| self.object(name, status, hashed, Some(why))),
            false => {
                self.say_of(name, &why);
                Ok(())
            }
        }
    }

    fn object(
        &self,
        name: &[u8],
        status: &str,
        hashed: Option<&Hashed>,
        error: Option<&str>,
    ) -> Result<(), OutputError> {
        let mut object = json::object(name, status);
        if let Some(hashed) = hashed {
            object = self.with_digests(object, &hashed.digests);
            object = object.with_fingerprint(hashed.fingerprint.as_ref());
        }
        if let Some(error) = error {
            object = object.with("error", error);
        }
        self.output.write(object.line().as_bytes())
    }

    /// Adds BLAKE3 as `hash`, and all digests by name if others are requested.
    fn with_digests(&self, mut object: json::Object, digests: &Digests) -> json::Object {
        let args = self.args;
        let len = usize::try_from(args.blake3_bytes()).unwrap_or(usize::MAX);
        let (mut all, mut has_others) = (serde_json::Map::new(), false);
        for digest in digests.iter() {
            let algorithm = digest.algorithm();
            let bytes = digest.output(args.seek, len).unwrap_or_else(|| digest.to_vec());
            let digits = hex::encode(bytes);
            match algorithm {
                Algorithm::Blake3 => object = object.with("hash", digits.clone()),
                _ => has_others = true,
            }
            all.insert(algorithm.name().to_owned(), digits.into());
        }
        if has_others { object.with("digests", all) } else { object }
    }

    fn style(&self) -> Style {
        match self.args {
            Args { tag: true, .. } => Style::Tag,
            Args { applet: Some(_), binary: true, .. } => Style::Binary,
            _ => Style::Plain,
        }
    }

    /// Returns the parts of a line before and after the digits, including the line ending.
    fn around(&self, name: &[u8], algorithm: Algorithm, style: Style) -> (Vec<u8>, Vec<u8>) {
        let args = self.args;
        let end = if args.zero { LineEnd::Nul } else { LineEnd::Newline };
        let (before, mut after) = match args.no_names || args.raw {
            true => (Vec::new(), Vec::new()),
            false => checkfile::line_around(name, style, algorithm, end),
        };
        let before = match args.applet {
            Some(applet) if applet.is_little_endian && style == Style::Tag => {
                let tag = algorithm.to_string();
                let (slash, rest) = before.split_at(usize::from(before.starts_with(b"\\")));
                [slash, tag.as_bytes(), b"_LE", &rest[tag.len()..]].concat()
            }
            _ => before,
        };
        let before = self.output.name(&before).into_owned();
        after = self.output.name(&after).into_owned();
        if !args.raw {
            after.push(end as u8);
        }
        (before, after)
    }

    fn short_line(&self, name: &[u8], hash: &[u8; 32], style: Style) -> Result<(), OutputError> {
        let mut digits = [0; 64];
        // (32 bytes are 64 digits.)
        let _ = hex::encode_to_slice(hash, &mut digits);
        let (args, output) = (self.args, &self.output);
        let escaped = checkfile::escape(name);
        if matches!(escaped, Cow::Borrowed(_))
            && !(args.no_names || args.zero)
            && style == Style::Plain
        {
            // The fast path for most lines: there may be millions.
            return output.write_parts(&[&digits, b"  ", &output.name(name), b"\n"]);
        }
        let (before, after) = self.around(name, Algorithm::Blake3, style);
        output.write_parts(&[&before, &digits, &after])
    }

    fn line(&self, name: &[u8], digest: &Digest, style: Style) -> Result<(), OutputError> {
        let args = self.args;
        match digest.hash() {
            Some(hash) if !args.needs_extended_output() => {
                self.short_line(name, hash.as_bytes(), style)
            }
            Some(_) => self.extended_line(name, digest, style),
            None => {
                let (before, after) = self.around(name, digest.algorithm(), style);
                let mut bytes = digest.to_vec();
                if args.applet.is_some_and(|applet| applet.is_little_endian) {
                    bytes.reverse();
                }
                match args.raw {
                    true => self.output.write(&bytes),
                    false => {
                        let digits = hex::encode(bytes);
                        self.output.write_parts(&[&before, digits.as_bytes(), &after])
                    }
                }
            }
        }
    }

    /// Prints a line with output of BLAKE3 other than the first 32 bytes.
    fn extended_line(&self, name: &[u8], digest: &Digest, style: Style) -> Result<(), OutputError> {
        let (args, output) = (self.args, &self.output);
        let (mut line, after) = self.around(name, Algorithm::Blake3, style);
        let (mut seek, mut left) = (args.seek, args.blake3_bytes());
        while left > 0 {
            let len = left.min(OUTPUT_BYTES as u64);
            let bytes = digest.output(seek, len as usize).unwrap_or_default();
            match args.raw {
                true => line.extend_from_slice(&bytes),
                false => line.extend_from_slice(hex::encode(bytes).as_bytes()),
            }
            (seek, left) = (seek.wrapping_add(len), left - len);
            if left > 0 {
                output.write(&line)?;
                line.clear();
            }
        }
        line.extend_from_slice(&after);
        output.write(&line)
    }
}
