//! `--json`: one object a line, as `docs/json-format.md` specifies.

use std::io;

use blockring::{BadRange, ErrorKind, Narrowed, Stamp};
use ringsum::many::Failure;
use serde_json::{Map, Value, json};

use crate::output::harmless_json;
use crate::print::mtime_ns;

/// An object that is being put together.
pub(crate) struct Object(Map<String, Value>);

/// What every object has: a name, in bytes too where it is no UTF-8, and what became of it.
pub(crate) fn object(name: &[u8], status: &str) -> Object {
    Object(Map::new()).with_name("path", name).with("status", status)
}

/// The status of a file without a hash: that it changed is no damage.
pub(crate) fn status_of(failure: &Failure, otherwise: &'static str) -> &'static str {
    if failure.change().is_some() { "changed" } else { otherwise }
}

impl Object {
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Object {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// A name, as `KEY_bytes` too where it is no UTF-8.
    pub(crate) fn with_name(self, key: &str, name: &[u8]) -> Object {
        let object = self.with(key, String::from_utf8_lossy(name));
        match std::str::from_utf8(name) {
            Ok(_) => object,
            Err(_) => object.with(&format!("{key}_bytes"), hex::encode(name)),
        }
    }

    /// Size and time, where there are such.
    pub(crate) fn with_stamp(self, stamp: Option<&Stamp>) -> Object {
        match stamp {
            Some(stamp) => self.with("size", stamp.len).with("mtime_ns", mtime_ns(stamp)),
            None => self,
        }
    }

    /// Why a file has no hash, and as much of it as programs can use.
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
            Failure::Read(ErrorKind::Read { offset, len, narrowed, error }) if *len > 0 => {
                let object = object.with("unreadable", vec![bad(offset, len, error)]);
                object.with("narrowed", *narrowed == Narrowed::Units)
            }
            failure => match failure.change() {
                Some(change) => object.with("change", change.name()),
                None => object,
            },
        }
    }

    pub(crate) fn line(self) -> String {
        harmless_json(Value::Object(self.0).to_string()) + "\n"
    }
}
