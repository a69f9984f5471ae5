//! `--json`: one object per line, as specified by `docs/formats.md`.

use std::io;

use blockring::{BadRange, Change, ErrorKind, Fingerprint, Precision};
use ringsum::files::Failure;
use serde_json::{Map, Value, json};

use super::harmless_json;

/// An object under construction.
pub(crate) struct Object(Map<String, Value>);

/// Creates an object with the common fields: a name, also in hex if it is not UTF-8, and a status.
pub(crate) fn object(name: &[u8], status: &str) -> Object {
    Object(Map::new()).with_name("path", name).with("status", status)
}

/// The status of a file without a hash: "changed" if it changed while being read, unlike damage.
pub(crate) fn status_of(failure: &Failure, otherwise: &'static str) -> &'static str {
    if failure.change().is_some() { "changed" } else { otherwise }
}

/// One word for programs.
fn word_for(change: Change) -> &'static str {
    match change {
        Change::Shrank { .. } => "shrank",
        Change::Grew { .. } => "grew",
        Change::Rewritten => "rewritten",
        Change::StatusChanged => "status",
        Change::Replaced => "replaced",
        Change::Removed => "removed",
        // (None, as long as the library has those above.)
        _ => "other",
    }
}

impl Object {
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Object {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Adds a name; also as `KEY_bytes` if it is not UTF-8.
    pub(crate) fn with_name(self, key: &str, name: &[u8]) -> Object {
        let object = self.with(key, String::from_utf8_lossy(name));
        match std::str::from_utf8(name) {
            Ok(_) => object,
            Err(_) => object.with(&format!("{key}_bytes"), hex::encode(name)),
        }
    }

    /// Adds the size and the modification time, if known.
    pub(crate) fn with_fingerprint(self, fingerprint: Option<&Fingerprint>) -> Object {
        match fingerprint {
            Some(Fingerprint { len, mtime: (seconds, nanos), .. }) => {
                let mtime_ns = seconds.saturating_mul(1_000_000_000).saturating_add(*nanos);
                self.with("size", *len).with("mtime_ns", mtime_ns)
            }
            None => self,
        }
    }

    /// Adds the reason why a file has no hash, with details for programs.
    pub(crate) fn with_failure(self, failure: &Failure) -> Object {
        let object = self.with("error", failure.to_string());
        let bad = |offset: &u64, len: &u64, error: &io::Error| json!({"offset": offset, "len": len, "error": error.to_string()});
        match failure {
            Failure::Unreadable(ranges) => {
                let list = ranges.first.iter();
                let list = list.map(|BadRange { offset, len, error }| bad(offset, len, error));
                let object = object.with("unreadable", list.collect::<Vec<_>>());
                match ranges.count > ranges.first.len() as u64 {
                    true => object.with("unreadable_count", ranges.count),
                    false => object,
                }
            }
            Failure::Read(ErrorKind::Read { offset, len, precision, error }) if *len > 0 => {
                let object = object.with("unreadable", vec![bad(offset, len, error)]);
                object.with("narrowed", *precision == Precision::Units)
            }
            failure => match failure.change() {
                Some(change) => object.with("change", word_for(change)),
                None => object,
            },
        }
    }

    pub(crate) fn line(self) -> String {
        harmless_json(Value::Object(self.0).to_string()) + "\n"
    }
}
