//! Resolves the command line, the environment and process limits to the settings of a run.

use std::path::PathBuf;
use std::sync::OnceLock;

use blockring::{AllowMmap, Config, Source, Tuning};
use ringsum::files::small_threads_max;
use ringsum::{Mode, Options, tuned};

use super::args::Args;
use super::memory::{self, PROCESS_BYTES, Shares};

/// Finds the settings that `ringbench tune` measured on a device.
type FindTuning = dyn Fn(u64) -> Option<Result<Tuning, String>> + Send + Sync;

/// Longest file that is read without looking at the memory of the control group, in bytes: looking
/// takes 40 us, and reading a shorter one takes no more memory than this. (A stream takes 1 MiB.)
const UNLIMITED_BYTES_MAX: u64 = 2 << 20;

/// How to hash and how to read.
pub(crate) struct Settings {
    pub(crate) options: Options,
    /// The configuration for files that are hashed one at a time.
    separate: Config,
    /// The same within the memory of the machine or control group. Determined when first needed.
    bounded: OnceLock<Config>,
    /// Settings that `ringbench tune` measured on this machine.
    pub(crate) tuning: Option<Box<FindTuning>>,
    pub(crate) shares: Shares,
}

impl Settings {
    /// Returns the settings for a command line. The mode is the regular hash.
    ///
    /// # Errors
    ///
    /// If the options are out of range, or do not fit in the memory limit.
    pub(crate) fn of(args: &Args) -> Result<Settings, String> {
        let mut config = args.config();
        if !args.no_mmap {
            #[expect(unsafe_code)]
            // SAFETY: bytes that change while hashed give a wrong digest, which is not printed.
            let allowed = unsafe { AllowMmap::new() };
            config = config.allow_mmap(allowed);
        }
        let io = &mut config.io;
        io.threads_max = io.threads_max.or_else(|| {
            let threads = std::env::var("RAYON_NUM_THREADS").ok()?.parse().ok();
            threads.filter(|threads| *threads > 0)
        });
        let explicit = args.memory.map(|bytes| bytes - PROCESS_BYTES);
        config.memory.limit_bytes = match args.reads_many() {
            true => memory::limit(explicit),
            false => explicit,
        };
        config.validate().map_err(|error| error.to_string())?;
        let shares = Shares::of(config.memory.limit_bytes);
        let mut separate = config.clone();
        if args.reads_many() {
            separate.memory.limit_bytes = shares.separate_bytes();
            separate.validate().map_err(|error| {
                format!("with many files, each has a part of the memory limit: {error}")
            })?;
            let most = small_threads_max(&config);
            if args.jobs.is_some_and(|jobs| jobs as usize > most) {
                return Err(format!("the memory limit allows --jobs {most} at most"));
            }
        }
        let options = Options { mode: Mode::Hash, algorithms: args.algorithms(), config };
        let bounded = OnceLock::new();
        Ok(Settings { options, separate, bounded, tuning: tuning(), shares })
    }

    /// Returns the configuration for a file that is hashed alone.
    pub(crate) fn config_for(&self, source: &Source) -> &Config {
        let is_short = source.len().is_none_or(|len| len <= UNLIMITED_BYTES_MAX);
        if is_short || self.separate.memory.limit_bytes.is_some() {
            return &self.separate;
        }
        self.bounded.get_or_init(|| {
            let mut bounded = self.separate.clone();
            bounded.memory.limit_bytes = memory::limit(None);
            // An explicit shape counts for more than an estimate.
            if bounded.validate().is_ok() { bounded } else { self.separate.clone() }
        })
    }
}

/// Returns the measured settings. A plan looks them up only if they matter: never for a small file,
/// which therefore costs no system call.
fn tuning() -> Option<Box<FindTuning>> {
    let [config_home, home] = ["XDG_CONFIG_HOME", "HOME"].map(std::env::var_os);
    let path: Option<PathBuf> = tuned::default_path(config_home.as_deref(), home.as_deref());
    Some(Box::new(tuned::tunings(path?)))
}
