//! What is printed of a file: a line for people and check files, or an object for programs.

use std::borrow::Cow;

use blockring::Stamp;
use ringsum::checkfile::{self, Style};
use ringsum::many::{Failure, Found, Hashed};
use ringsum::{Algorithm, Digest, Sum};

use crate::args::Args;
use crate::json;
use crate::output::OutputError;
use crate::session::Session;

/// Hexadecimal digits that are written at once: output of any length takes little memory.
const DIGITS_AT_ONCE: usize = 64 << 10;

/// Prints for one session.
pub(crate) struct Printer<'a> {
    session: &'a Session<'a>,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(session: &'a Session<'a>) -> Printer<'a> {
        Printer { session }
    }

    /// The hash of a file.
    pub(crate) fn hash(&self, name: &[u8], hashed: &Hashed) -> Result<(), OutputError> {
        self.session.progress.suspend(|| match (self.session.args.json, &hashed.found) {
            (true, _) => self.object(name, "ok", Some(hashed), None),
            (false, Found::Read(digest)) => self.line(name, digest, self.style()),
            (false, Found::Known(hash) | Found::Hash(hash)) => {
                self.short_line(name, hash.as_bytes(), self.style())
            }
            (false, Found::Each(sums)) => {
                // Nothing else would tell them apart.
                let style = if sums.len() > 1 { Style::Tag } else { self.style() };
                sums.iter().try_for_each(|sum| match sum {
                    Sum::Blake3(digest) => self.line(name, digest, style),
                    Sum::Other(algorithm, bytes) => self.other_line(name, *algorithm, bytes, style),
                })
            }
        })
    }

    /// The digest of a tree.
    pub(crate) fn tree(&self, root: &[u8], hash: blake3::Hash) -> Result<(), OutputError> {
        self.session.progress.suspend(|| match self.session.args.json {
            true => {
                let object = json::object(root, "ok").with("tree_digest", hash.to_hex().as_str());
                self.session.output.write(object.line().as_bytes())
            }
            false => self.short_line(root, hash.as_bytes(), self.style()),
        })
    }

    /// Why a file has no hash.
    pub(crate) fn failed(&self, name: &[u8], failure: &Failure) -> Result<(), OutputError> {
        match self.session.args.json {
            true => {
                let object = json::object(name, json::status_of(failure, "error"));
                let line = object.with_failure(failure).line();
                self.session.progress.suspend(|| self.session.output.write(line.as_bytes()))
            }
            false => self.failure(name, &failure.to_string()),
        }
    }

    /// What is wrong with something that was not even read.
    pub(crate) fn failure(&self, name: &[u8], why: &str) -> Result<(), OutputError> {
        self.session.progress.suspend(|| match self.session.args.json {
            true => self.object(name, "error", None, Some(why)),
            false => {
                self.session.messages.say_of(name, &why);
                Ok(())
            }
        })
    }

    /// A file whose bytes are not those that were remembered.
    pub(crate) fn corrupt(
        &self,
        name: &[u8],
        hashed: &Hashed,
        why: &str,
    ) -> Result<(), OutputError> {
        self.session.progress.suspend(|| match self.session.args.json {
            true => self.object(name, "corrupt", Some(hashed), Some(why)),
            false => {
                self.session.messages.say_of(name, &why);
                Ok(())
            }
        })
    }

    /// Something that is no regular file, in a tree.
    pub(crate) fn skipped(&self, name: &[u8], what: &str) -> Result<(), OutputError> {
        self.session.progress.suspend(|| match self.session.args.json {
            true => self.object(name, "skipped", None, Some(what)),
            false => {
                self.session.messages.say_of(name, &format_args!("skipped: it is {what}"));
                Ok(())
            }
        })
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
            object = match &hashed.found {
                Found::Read(digest) => object.with("hash", self.hex(digest)),
                Found::Known(hash) | Found::Hash(hash) => {
                    object.with("hash", hash.to_hex().as_str())
                }
                Found::Each(sums) => self.with_digests(object, sums),
            };
            object = object.with_stamp(hashed.stamp.as_ref());
        }
        if let Some(error) = error {
            object = object.with("error", error);
        }
        self.session.output.write(object.line().as_bytes())
    }

    fn hex(&self, digest: &Digest) -> String {
        let args = self.session.args;
        let len = usize::try_from(args.blake3_bytes()).unwrap_or(usize::MAX);
        hex::encode(digest.bytes(args.seek, len))
    }

    /// All of them by their names; and BLAKE3 where it always is.
    fn with_digests(&self, object: json::Object, sums: &[Sum]) -> json::Object {
        let mut digests = serde_json::Map::new();
        let mut hash = None;
        for sum in sums {
            let hex = match sum {
                Sum::Blake3(digest) => hash.insert(self.hex(digest)).clone(),
                Sum::Other(_, bytes) => hex::encode(bytes),
            };
            digests.insert(sum.algorithm().name().to_owned(), hex.into());
        }
        let object = object.with("digests", digests);
        match hash {
            Some(hash) => object.with("hash", hash),
            None => object,
        }
    }

    fn style(&self) -> Style {
        match self.session.args {
            Args { tag: true, .. } => Style::Tag,
            Args { guise: Some(_), binary: true, .. } => Style::Binary,
            _ => Style::Plain,
        }
    }

    /// What stands before and after the digits, the end of the line included.
    fn around(&self, name: &[u8], algorithm: Algorithm, style: Style) -> (Vec<u8>, Vec<u8>) {
        let args = self.session.args;
        let (before, mut after) = match (args.no_names || args.raw, args.zero) {
            (true, _) => (Vec::new(), Vec::new()),
            (false, true) => checkfile::zero_line_around(name, style, algorithm),
            (false, false) => checkfile::line_around(name, style, algorithm),
        };
        let before = self.session.output.name(&before).into_owned();
        after = self.session.output.name(&after).into_owned();
        match (args.raw, args.zero) {
            (true, _) => {}
            (false, true) => after.push(0),
            (false, false) => after.push(b'\n'),
        }
        (before, after)
    }

    fn short_line(&self, name: &[u8], hash: &[u8; 32], style: Style) -> Result<(), OutputError> {
        let mut digits = [0; 64];
        // 64 digits are what 32 bytes are.
        let _ = hex::encode_to_slice(hash, &mut digits);
        let (args, output) = (self.session.args, &self.session.output);
        let escaped = checkfile::escape(name);
        if matches!(escaped, Cow::Borrowed(_))
            && !(args.no_names || args.zero)
            && style == Style::Plain
        {
            // What most lines are, without a detour: there may be millions.
            return output.write_parts(&[&digits, b"  ", &output.name(name), b"\n"]);
        }
        let (before, after) = self.around(name, Algorithm::Blake3, style);
        output.write_parts(&[&before, &digits, &after])
    }

    /// The line of another digest than BLAKE3.
    fn other_line(
        &self,
        name: &[u8],
        algorithm: Algorithm,
        bytes: &[u8],
        style: Style,
    ) -> Result<(), OutputError> {
        let (before, after) = self.around(name, algorithm, style);
        match self.session.args.raw {
            true => self.session.output.write(bytes),
            false => {
                self.session.output.write_parts(&[&before, hex::encode(bytes).as_bytes(), &after])
            }
        }
    }

    fn line(&self, name: &[u8], digest: &Digest, style: Style) -> Result<(), OutputError> {
        let (args, output) = (self.session.args, &self.session.output);
        let mut left = args.blake3_bytes();
        if left == 32 && args.seek == 0 && !args.raw {
            return self.short_line(name, digest.hash().as_bytes(), style);
        }
        let mut reader = digest.reader();
        reader.set_position(args.seek);
        let (mut line, after) = self.around(name, Algorithm::Blake3, style);
        while left > 0 {
            let mut bytes = [0; DIGITS_AT_ONCE / 2];
            let bytes = &mut bytes[..left.min((DIGITS_AT_ONCE / 2) as u64) as usize];
            reader.fill(bytes);
            match args.raw {
                true => line.extend_from_slice(bytes),
                false => line.extend_from_slice(hex::encode(&*bytes).as_bytes()),
            }
            left -= bytes.len() as u64;
            if left > 0 {
                output.write(&line)?;
                line.clear();
            }
        }
        line.extend_from_slice(&after);
        output.write(&line)
    }
}

/// The times of a file as an object has them.
pub(crate) fn mtime_ns(stamp: &Stamp) -> i64 {
    stamp.mtime.0.saturating_mul(1_000_000_000).saturating_add(stamp.mtime.1)
}
