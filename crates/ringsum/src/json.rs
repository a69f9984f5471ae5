//! `--json`: one object a line, as `docs/json-format.md` specifies.

use blockring::Stamp;
use serde_json::{Map, Value};

use crate::print::mtime_ns;

/// An object that is being put together.
pub(crate) struct Object(Map<String, Value>);

/// What every object has: a name, in bytes too where it is no UTF-8, and what became of it.
pub(crate) fn object(name: &[u8], status: &str) -> Object {
    Object(Map::new()).with_name("path", name).with("status", status)
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

    pub(crate) fn line(self) -> String {
        format!("{}\n", Value::Object(self.0))
    }
}
