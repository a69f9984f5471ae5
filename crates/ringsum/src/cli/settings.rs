//! From the command line, the environment and the limits of the process to the settings of a run.

use std::io;
use std::path::PathBuf;

use blockring::{AllowMmap, Config, EngineKind, Tunings};
use ringsum::files::small_threads_max;
use ringsum::{Mode, Options, tuned};

use super::args::Args;
use super::memory::{self, PROCESS_BYTES, Shares};

/// How to hash and to read.
pub(crate) struct Settings {
    pub(crate) options: Options,
    /// The configuration for files that are hashed one at a time.
    pub(crate) separate: Config,
    /// Settings that `ringbench tune` measured on this machine.
    pub(crate) tunings: Option<Tunings>,
    pub(crate) shares: Shares,
}

/// Why the options cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// They are wrong.
    #[error("{0}")]
    Usage(String),
    /// Mapping is not available.
    #[error("engine mmap: {0}")]
    Mmap(io::Error),
}

impl Settings {
    /// The settings for a command line. The mode is the plain hash.
    ///
    /// # Errors
    ///
    /// The options are out of their ranges, or do not fit in the memory limit.
    pub(crate) fn of(args: &Args) -> Result<Settings, SettingsError> {
        let mut config = args.config();
        if args.engine == Some(EngineKind::Mmap) {
            #[expect(unsafe_code)]
            // SAFETY: the digest of bytes that change meanwhile is some digest, and is not printed.
            let allowed = unsafe { AllowMmap::new() }.map_err(SettingsError::Mmap)?;
            config = config.mmap(allowed);
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
        let usage = |what: String| SettingsError::Usage(what);
        config.validate().map_err(|error| usage(error.to_string()))?;
        let shares = Shares::of(config.memory.limit_bytes);
        let mut separate = config.clone();
        if args.reads_many() {
            separate.memory.limit_bytes = shares.separate_bytes();
            separate.validate().map_err(|error| {
                usage(format!("with many files, each has a part of the memory limit: {error}"))
            })?;
            let most = small_threads_max(&config);
            if args.jobs.is_some_and(|jobs| jobs as usize > most) {
                return Err(usage(format!("the memory limit allows --jobs {most} at most")));
            }
        }
        let options = Options { mode: Mode::Hash, algorithms: args.algorithms(), config };
        Ok(Settings { options, separate, tunings: tunings(args), shares })
    }
}

/// The measured settings, which a plan looks up only if they matter: those of a small file never do, and so
/// cost no system call.
fn tunings(args: &Args) -> Option<Tunings> {
    if args.no_tuned {
        return None;
    }
    let [config_home, home] = ["XDG_CONFIG_HOME", "HOME"].map(std::env::var_os);
    let path: Option<PathBuf> = tuned::default_path(config_home.as_deref(), home.as_deref());
    path.map(tuned::tunings)
}
