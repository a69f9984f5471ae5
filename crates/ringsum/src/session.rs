//! What hashing and checking share: from a path to its digest, with plan and progress shown.

use std::io;
use std::path::Path;

use blockring::Config;
use ringsum::{Digest, Mode};

use crate::args::Args;
use crate::inputs::{InputError, Inputs};
use crate::output::{Messages, Output};
use crate::progress::Progress;

/// One invocation.
pub(crate) struct Session<'a> {
    pub(crate) args: &'a Args,
    pub(crate) messages: &'a Messages,
    pub(crate) output: Output,
    pub(crate) inputs: Inputs,
    pub(crate) progress: Progress,
    mode: Mode,
    config: Config,
}

/// Why there is no digest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DigestError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Hash(#[from] ringsum::Error),
}

impl DigestError {
    fn blockring(&self) -> Option<&blockring::Error> {
        match self {
            DigestError::Input(InputError::Blockring(error))
            | DigestError::Hash(ringsum::Error::Read(error)) => Some(error),
            _ => None,
        }
    }

    /// What happened, without the path: whoever prints it has that.
    pub(crate) fn reason(&self) -> String {
        match self.blockring() {
            Some(error) => error.kind().to_string(),
            None => self.to_string(),
        }
    }

    /// Whether there is no such file.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(
            self.blockring().map(blockring::Error::kind),
            Some(blockring::ErrorKind::Open(error)) if error.kind() == io::ErrorKind::NotFound
        )
    }
}

impl<'a> Session<'a> {
    /// # Errors
    ///
    /// Standard output is closed, or the key cannot be had.
    pub(crate) fn new(args: &'a Args, messages: &'a Messages) -> anyhow::Result<Session<'a>> {
        let output = Output::new()?;
        let mut inputs = Inputs::new();
        let mode = match &args.derive_key {
            Some(context) => Mode::derive_key(context),
            None if args.keyed => Mode::Keyed(inputs.key()?),
            None => Mode::Hash,
        };
        if args.may_map() {
            #[expect(unsafe_code)]
            // SAFETY: the hash of bytes that change under it is some hash, and is not printed.
            unsafe {
                blockring::allow_mmap()?;
            }
        }
        Ok(Session {
            args,
            messages,
            output,
            inputs,
            progress: Progress::new(args.progress),
            mode,
            config: args.config(),
        })
    }

    /// Hashes one input.
    pub(crate) fn digest(&mut self, path: &Path) -> Result<Digest, DigestError> {
        let source = self.inputs.open(path)?;
        let plan = ringsum::plan(&source, &self.config)?;
        if self.args.explain {
            let name = path.as_os_str().as_encoded_bytes();
            let text = format!("plan\n{plan}");
            self.progress.suspend(|| self.messages.say_of(name, &text));
        }
        let observe = |bytes| self.progress.add(bytes);
        let digest = ringsum::hash_planned(&plan, &self.mode, &observe)?;
        self.inputs.finish(&source, path);
        Ok(digest)
    }
}
