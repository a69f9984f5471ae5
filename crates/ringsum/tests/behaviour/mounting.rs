//! File systems for one test, on loop devices and elsewhere: set up, changed below the page cache,
//! and removed. Most of it needs root; a test whose setup fails is skipped with a message.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

use crate::support::{Scratch, skip};

/// A directory that all paths are relative to, and the commands, last one first, that undo its
/// mounts and loop devices, even if an assertion fails.
pub(crate) struct Setup {
    pub(crate) scratch: Scratch,
    pub(crate) undo: Vec<String>,
}

/// Runs a test, or prints why its setup failed.
pub(crate) fn attempt(what: &str, test: impl FnOnce(&mut Setup) -> Result<(), String>) {
    let mut setup = Setup { scratch: Scratch::new(), undo: Vec::new() };
    if let Err(why) = test(&mut setup) {
        skip(&format!("{what}: {why}"));
    }
}

impl Setup {
    /// Runs a shell command of the setup; returns its output.
    pub(crate) fn tool(&self, line: &str) -> Result<String, String> {
        let output = self.scratch.shell(line);
        match output.code {
            0 => Ok(output.stdout().trim().to_owned()),
            _ => Err(format!("{line}: {}", output.stderr.lines().next().unwrap_or_default())),
        }
    }

    /// Attaches a loop device to a file; `dio`: whether it bypasses that file's page cache, `on` or
    /// `off`.
    pub(crate) fn attach(&mut self, file: &str, dio: &str) -> Result<String, String> {
        let device = self.tool(&format!("losetup --find --show --direct-io={dio} {file}"))?;
        self.undo.push(format!("losetup --detach {device}"));
        Ok(device)
    }

    /// Mounts at `on`, with a command that the mount point is appended to.
    pub(crate) fn mount(&mut self, line: &str) -> Result<(), String> {
        self.mount_at("on", line)
    }

    /// The same at another mount point in the directory.
    pub(crate) fn mount_at(&mut self, place: &str, line: &str) -> Result<(), String> {
        self.tool(&format!("mkdir -p {place} && {line} {place}"))?;
        self.undo.push(format!("{} || umount --lazy {place}", umount(place)));
        Ok(())
    }

    /// Unmounts what is mounted at `on`, to mount it again.
    pub(crate) fn unmount(&self) -> Result<(), String> {
        self.tool(&umount("on")).map(drop)
    }

    /// Makes a file system in the file `backing` and mounts it at `on`; returns its loop device.
    pub(crate) fn make(
        &mut self,
        mkfs: &str,
        mib: u64,
        options: &str,
        dio: &str,
    ) -> Result<String, String> {
        self.tool(&format!("truncate -s {mib}M backing && {mkfs} backing"))?;
        let device = self.attach("backing", dio)?;
        self.mount(&format!("mount -o {options} {device}")).map(|()| device)
    }

    /// Undoes the whole setup.
    pub(crate) fn undo_all(&mut self) -> Result<(), String> {
        while let Some(line) = self.undo.pop() {
            self.tool(&line)?;
        }
        Ok(())
    }

    /// Writes a file whose pages are clean afterwards, and still cached.
    pub(crate) fn write(&self, path: &str, content: &[u8]) {
        File::open(self.scratch.write(path, content)).unwrap().sync_all().unwrap();
    }

    /// Changes the first byte of `content` and one near its end in `backing`, unnoticed by the page
    /// caches above. Returns the new content.
    pub(crate) fn change(&self, content: &[u8]) -> Vec<u8> {
        let path = self.scratch.join("backing");
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let device = fs::read(path).unwrap();
        let mut changed = content.to_vec();
        for at in [0, (content.len() - 1) / 512 * 512] {
            let mark = &content[at..(at + 512).min(content.len())];
            let sectors = (0..device.len()).step_by(512);
            let places: Vec<_> = sectors.filter(|i| device[*i..].starts_with(mark)).collect();
            let [place] = places[..] else { panic!("it is at {places:?}") };
            changed[at] = !content[at];
            file.write_all_at(&changed[at..=at], place as u64).unwrap();
        }
        file.sync_all().unwrap();
        changed
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        while let Some(line) = self.undo.pop() {
            let _ = self.tool(&line);
        }
    }
}

/// A command that unmounts, and tries again for a second: a process that another thread is starting has
/// all open files until its exec.
fn umount(place: &str) -> String {
    format!("for i in 1 2 3 4 5 6 7 8 9 0; do umount {place} && break; sleep .1; false; done")
}

/// Incompressible content, different for each length.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut content = vec![0; len];
    blake3::Hasher::new().update(&len.to_le_bytes()).finalize_xof().fill(&mut content);
    content
}
