//! The options about reading by name: what `--io KEY=VALUE` accepts, and what `--explain`,
//! statistics and files of measured settings call them.

use std::str::FromStr;

use super::validate::ConfigError;
use super::{CacheMode, Config, Consume, EngineKind, HugePages, IoPriority, Wait};

/// One option about reading that has a name.
#[derive(Debug)]
#[non_exhaustive]
pub struct Knob {
    /// Its name, such as `queue-depth`.
    pub key: &'static str,
    /// Its values: names separated by `|`, or a range.
    pub values: &'static str,
    /// What applies without it.
    pub default: &'static str,
    /// What it does, and when it helps, in one sentence each.
    pub help: &'static str,
    /// Sets it; `None` if the value is not one of its values.
    set: fn(&mut Config, &str) -> Option<()>,
}

/// Every option about reading that has a name.
pub const KNOBS: &[Knob] = &[
    Knob {
        key: "engine",
        values: "io_uring|libaio|pool|pread|stream|mmap",
        default: "detected",
        help: "How reads reach the kernel. Use pread or pool where io_uring is not allowed, mmap for files in the page cache.",
        set: |config, value| {
            // (`null` reads nothing, so that it has no place among the names.)
            let named = |kind: &EngineKind| kind.name() == value && *kind != EngineKind::Null;
            config.io.engine = Some(EngineKind::ALL.into_iter().find(named)?);
            Some(())
        },
    },
    Knob {
        key: "page-cache",
        values: "direct|buffered|dontcache",
        default: "detected",
        help: "How reads use the page cache. Use buffered if the file is read again soon: it then stays in memory.",
        set: |config, value| {
            config.io.cache = Some(CacheMode::ALL.into_iter().find(|mode| mode.name() == value)?);
            Some(())
        },
    },
    Knob {
        key: "block-size",
        values: "512 to 64MiB",
        default: "by device and engine",
        help: "Bytes of one read. Larger blocks help where each request is slow: network file systems, arrays, HDDs.",
        set: |config, value| {
            config.io.block_bytes = Some(parse_size(value)?.try_into().unwrap_or(u32::MAX));
            Some(())
        },
    },
    Knob {
        key: "queue-depth",
        values: "1 to 32768",
        default: "8 MiB in flight",
        help: "Most reads in flight per thread. Deeper queues help on arrays and remote disks.",
        set: |config, value| number(&mut config.io.queue_depth, value),
    },
    Knob {
        key: "slots",
        values: "1 to 32768",
        default: "the queue depth",
        help: "Blocks of memory per thread. More than the queue depth keeps the device busy while hashing is slow.",
        set: |config, value| number(&mut config.io.slots, value),
    },
    Knob {
        key: "workers",
        values: "0 to 1024",
        default: "as many as help",
        help: "Threads besides the first. Use 0 to leave the other processors alone.",
        set: |config, value| number(&mut config.io.workers, value),
    },
    Knob {
        key: "pool-threads",
        values: "1 to 1024",
        default: "8",
        help: "Threads of the engine pool, each with one read in flight.",
        set: |config, value| number(&mut config.io.pool_threads, value),
    },
    Knob {
        key: "order",
        values: "any|in-order",
        default: "any",
        help: "Whether blocks are hashed as they arrive. In order, one after another, only shows what that costs.",
        set: |config, value| {
            config.io.in_order = named(value, [("any", false), ("in-order", true)])?;
            Some(())
        },
    },
    Knob {
        key: "wait",
        values: "sleep|spin",
        default: "sleep",
        help: "What a thread does that has nothing to do. Spinning saves microseconds and takes a processor.",
        set: |config, value| {
            config.io.wait = named(value, [("sleep", Wait::Sleep), ("spin", Wait::Spin)])?;
            Some(())
        },
    },
    Knob {
        key: "consume",
        values: "each|batch",
        default: "each",
        help: "Whether the next read is submitted after each hashed block, or after all that have arrived.",
        set: |config, value| {
            config.io.consume = named(value, [("each", Consume::Each), ("batch", Consume::Batch)])?;
            Some(())
        },
    },
    Knob {
        key: "huge-pages",
        values: "off|advise|hugetlb",
        default: "advise",
        help: "Pages of the blocks. hugetlb takes them from the reserved pool, or fails.",
        set: |config, value| {
            let all = [
                ("off", HugePages::Off),
                ("advise", HugePages::Advise),
                ("hugetlb", HugePages::Hugetlb),
            ];
            config.memory.huge_pages = named(value, all)?;
            Some(())
        },
    },
    Knob {
        key: "tuned",
        values: "on|off",
        default: "on",
        help: "Whether the settings that `ringbench tune` measured on this machine apply.",
        set: |config, value| switch(&mut config.io.tuned, value),
    },
    Knob {
        key: "drain",
        values: "on|off",
        default: "off",
        help: "io_uring: each read waits for all earlier ones (IOSQE_IO_DRAIN). For experiments.",
        set: |config, value| switch(&mut config.uring.drain, value),
    },
    Knob {
        key: "link",
        values: "on|off",
        default: "off",
        help: "io_uring: the reads of one submission run one after another (IOSQE_IO_LINK). For experiments.",
        set: |config, value| switch(&mut config.uring.link, value),
    },
    Knob {
        key: "sqpoll",
        values: "off|0 to 60000",
        default: "off",
        help: "io_uring: a kernel thread polls for reads, and sleeps after this many ms (0: 1000). Saves system calls, takes a processor.",
        set: |config, value| match value {
            "off" => {
                config.uring.sqpoll = None;
                Some(())
            }
            value => number(&mut config.uring.sqpoll, value),
        },
    },
    Knob {
        key: "sqpoll-cpu",
        values: "a processor",
        default: "any",
        help: "io_uring: the processor of that thread.",
        set: |config, value| number(&mut config.uring.sqpoll_cpu, value),
    },
    Knob {
        key: "iopoll",
        values: "on|off",
        default: "off",
        help: "io_uring: completions are polled from the device. Needs direct reads and a device with poll queues.",
        set: |config, value| switch(&mut config.uring.iopoll, value),
    },
    Knob {
        key: "fixed-buffers",
        values: "on|off",
        default: "off",
        help: "io_uring: blocks are registered once. Saves pinning pages for each direct read.",
        set: |config, value| switch(&mut config.uring.fixed_buffers, value),
    },
    Knob {
        key: "fixed-file",
        values: "on|off",
        default: "off",
        help: "io_uring: the file is registered once. Saves looking it up for each read.",
        set: |config, value| switch(&mut config.uring.fixed_file, value),
    },
];

impl Config {
    /// Sets an option by name, as [`KNOBS`] lists them. The range of a number is checked by
    /// [`validate`](Config::validate), which also refuses `engine=mmap` without
    /// [`Config::allow_mmap`].
    ///
    /// ```
    /// let mut config = blockring::Config::default();
    /// config.set("block-size", "1MiB").unwrap();
    /// assert_eq!(config.io.block_bytes, Some(1 << 20));
    /// assert!(config.set("block-size", "large").is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`ConfigError::Key`] and [`ConfigError::Value`].
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let Some(knob) = KNOBS.iter().find(|knob| knob.key == key) else {
            return Err(ConfigError::Key { key: key.to_owned() });
        };
        (knob.set)(self, value).ok_or_else(|| ConfigError::Value {
            key: knob.key,
            value: value.to_owned(),
            values: knob.values,
        })
    }
}

impl FromStr for IoPriority {
    type Err = ConfigError;

    /// Parses `idle`, or `best-effort:N`.
    fn from_str(text: &str) -> Result<IoPriority, ConfigError> {
        let level = match text.split_once(':') {
            None if text == "idle" => return Ok(IoPriority::Idle),
            Some(("best-effort", level)) => level.parse().ok().filter(|level| *level <= 7),
            _ => None,
        };
        level.map(IoPriority::BestEffort).ok_or_else(|| ConfigError::Value {
            key: "io-priority",
            value: text.to_owned(),
            values: "idle, and best-effort:N with N from 0 to 7",
        })
    }
}

fn number(option: &mut Option<u32>, value: &str) -> Option<()> {
    *option = Some(value.parse().ok()?);
    Some(())
}

fn switch(option: &mut bool, value: &str) -> Option<()> {
    *option = named(value, [("on", true), ("off", false)])?;
    Some(())
}

fn named<T, const N: usize>(value: &str, all: [(&str, T); N]) -> Option<T> {
    all.into_iter().find_map(|(name, option)| (name == value).then_some(option))
}

/// Parses a number of bytes with a unit, as in GNU tools: K, M, G, T and KiB, ... are powers of
/// 1024; KB, ... of 1000. Saturates. `None` for anything else.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let (power, base) = match unit.as_str() {
        "" | "b" => (0, 1024),
        "k" | "kib" => (1, 1024),
        "m" | "mib" => (2, 1024),
        "g" | "gib" => (3, 1024),
        "t" | "tib" => (4, 1024),
        "kb" => (1, 1000_u64),
        "mb" => (2, 1000),
        "gb" => (3, 1000),
        "tb" => (4, 1000),
        _ => return None,
    };
    Some(number.saturating_mul(base.pow(power)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let cases = [
            ("512", Some(512)),
            ("512KiB", Some(512 << 10)),
            ("512k", Some(512 << 10)),
            ("1M", Some(1 << 20)),
            ("1MB", Some(1_000_000)),
            ("2 MiB", Some(2 << 20)),
            ("64TiB", Some(64 << 40)),
            ("99999999999T", Some(u64::MAX)),
            ("", None),
            ("M", None),
            ("-1", None),
            ("1.5M", None),
            ("1X", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse_size(text), bytes, "{text:?}");
        }
    }

    #[test]
    fn priorities() {
        assert_eq!("idle".parse(), Ok(IoPriority::Idle));
        assert_eq!("best-effort:0".parse(), Ok(IoPriority::BestEffort(0)));
        for text in ["", "best-effort", "best-effort:", "best-effort:8", "idle:1", "realtime:0"] {
            assert!(text.parse::<IoPriority>().is_err(), "{text}");
        }
    }

    /// The texts and the functions that parse are apart, so each listed value is tried.
    #[test]
    fn every_listed_value_can_be_set_and_others_cannot() {
        for knob in KNOBS {
            let mut config = Config::default();
            for value in knob.values.split('|') {
                // The ends of a range.
                for value in value.split(" to ").filter(|value| *value != "a processor") {
                    config.set(knob.key, value).unwrap_or_else(|error| panic!("{error}"));
                }
            }
            for value in ["", "no such", "-1", "null"] {
                assert!(config.set(knob.key, value).is_err(), "{}={value}", knob.key);
            }
        }
        assert!(matches!(Config::default().set("depth", "1"), Err(ConfigError::Key { .. })));
    }
}
