//! A FUSE file system in this process, whose files are faulty on request.
//!
//! Each file is registered under a number, which is its name and its inode, and used for one run,
//! so that no run finds cached pages of another; or it is made from its name at the first lookup.
//! The expected outcomes are not known here.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, Request, Session,
};

/// Threads that answer requests, so that a slow one does not delay others.
const THREADS: usize = 6;

/// A faulty file.
#[derive(Default)]
pub(crate) struct File {
    pub(crate) content: Vec<u8>,
    /// The reported length, if it is wrong.
    pub(crate) claims: Option<u64>,
    /// Direct I/O: each read of a program is one request. Otherwise reads go through the page
    /// cache.
    pub(crate) is_direct: bool,
    pub(crate) trouble: Trouble,
    /// A change after a number of reads.
    pub(crate) later: Option<Later>,
    pub(crate) seen: Seen,
}

/// The requests for a file so far.
#[derive(Default)]
pub(crate) struct Seen {
    reads: AtomicU64,
    troubles: AtomicU32,
    served: Mutex<Vec<u8>>,
}

/// The fault of a read.
#[derive(Default)]
pub(crate) enum Trouble {
    #[default]
    None,
    /// Each read takes this long.
    Slow(Duration),
    /// Reads return at most about this many bytes, each a different number.
    Short(usize),
    /// Reads that touch these bytes fail, this many times in all.
    Fails { at: Range<u64>, errno: i32, times: u32 },
    /// Opening it fails.
    Open(i32),
    /// `stat` fails after the first read.
    Status(i32),
}

/// A change of a file that is being read.
pub(crate) struct Later {
    pub(crate) after_reads: u64,
    pub(crate) content: Vec<u8>,
    pub(crate) is_told_by: Told,
}

/// The metadata that shows a change. (The length always does, unless `claims` hides it.)
#[derive(PartialEq)]
pub(crate) enum Told {
    Mtime,
    Ctime,
    Nothing,
}

impl File {
    fn changed(&self) -> Option<&Later> {
        let reads = self.seen.reads.load(Ordering::SeqCst);
        self.later.as_ref().filter(|later| reads >= later.after_reads)
    }

    fn content(&self) -> &[u8] {
        self.changed().map_or(&self.content, |later| &later.content)
    }

    fn attr(&self, ino: INodeNo) -> FileAttr {
        let told = self.changed().map(|later| &later.is_told_by);
        let at =
            |is_later| SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + u64::from(is_later));
        let size = self.claims.unwrap_or(self.content().len() as u64);
        FileAttr {
            size,
            blocks: size.div_ceil(512),
            mtime: at(told == Some(&Told::Mtime)),
            ctime: at(told.is_some_and(|told| *told != Told::Nothing)),
            ..attr(ino, FileType::RegularFile)
        }
    }

    fn read(&self, offset: u64, size: u32) -> Result<Vec<u8>, i32> {
        let content = self.content();
        let count = self.seen.reads.fetch_add(1, Ordering::SeqCst);
        let from = content.len().min(offset as usize);
        let mut to = content.len().min(from + size as usize);
        match &self.trouble {
            Trouble::Slow(latency) => thread::sleep(*latency),
            Trouble::Short(most) => {
                to = to.min(from + 1 + (most * 7 + count as usize * 977) % most)
            }
            Trouble::Fails { at, errno, times }
                if offset < at.end && at.start < offset + u64::from(size) =>
            {
                let more = |n| (n < *times).then_some(n + 1);
                if self.seen.troubles.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
                {
                    return Err(*errno);
                }
            }
            _ => {}
        }
        let mut served = self.seen.served.lock().unwrap();
        let end = served.len().max(to);
        served.resize(end, 0);
        served[from..to].copy_from_slice(&content[from..to]);
        Ok(content[from..to].to_vec())
    }

    /// The bytes that were returned, each by its last read.
    pub(crate) fn served(&self) -> Vec<u8> {
        self.seen.served.lock().unwrap().clone()
    }
}

fn attr(ino: INodeNo, kind: FileType) -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

type Files = Arc<Mutex<HashMap<u64, Arc<File>>>>;

/// Makes a file from its name.
pub(crate) type ByName = fn(&str) -> Option<File>;

struct Faulty {
    files: Files,
    by_name: Option<ByName>,
    numbers: Mutex<HashMap<String, u64>>,
    next: AtomicU64,
}

impl Faulty {
    fn file(&self, ino: u64) -> Option<Arc<File>> {
        self.files.lock().unwrap().get(&ino).cloned()
    }

    /// The number of a file: its name, or the number that was assigned to the name.
    fn number(&self, name: &str) -> Option<u64> {
        let Some(by_name) = self.by_name else { return name.parse().ok() };
        let mut numbers = self.numbers.lock().unwrap();
        if let Some(number) = numbers.get(name) {
            return Some(*number);
        }
        let file = by_name(name)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        numbers.insert(name.to_owned(), number);
        self.files.lock().unwrap().insert(number, Arc::new(file));
        Some(number)
    }
}

/// How long the kernel may cache a reply.
const NOT_AT_ALL: Duration = Duration::ZERO;

impl Filesystem for Faulty {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| self.number(name));
        match number.and_then(|number| Some((number, self.file(number)?))) {
            Some((number, file)) => {
                reply.entry(&NOT_AT_ALL, &file.attr(INodeNo(number)), Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.file(ino.into()) {
            None => reply.attr(&NOT_AT_ALL, &attr(ino, FileType::Directory)),
            Some(file) => match file.trouble {
                Trouble::Status(errno) if file.seen.reads.load(Ordering::SeqCst) > 0 => {
                    reply.error(Errno::from_i32(errno));
                }
                _ => reply.attr(&NOT_AT_ALL, &file.attr(ino)),
            },
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let Some(file) = self.file(ino.into()) else {
            return reply.error(Errno::ENOENT);
        };
        match file.trouble {
            Trouble::Open(errno) => reply.error(Errno::from_i32(errno)),
            _ if file.is_direct => reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO),
            _ => reply.opened(FileHandle(0), FopenFlags::empty()),
        }
    }

    /// Lists the files that were added; those that are made from their names are not listed.
    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut numbers: Vec<_> = self.files.lock().unwrap().keys().copied().collect();
        numbers.sort_unstable();
        // (The offset of an entry is its number, and numbers start at 2.)
        for number in numbers.into_iter().filter(|number| *number > offset) {
            let kind = FileType::RegularFile;
            if reply.add(INodeNo(number), number, kind, number.to_string()) {
                break;
            }
        }
        reply.ok();
    }

    /// A file that was made from its name is made again at its next lookup.
    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let number = name.to_str().and_then(|name| self.numbers.lock().unwrap().remove(name));
        match number.and_then(|number| self.files.lock().unwrap().remove(&number)) {
            Some(_) => reply.ok(),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.file(ino.into()).map(|file| file.read(offset, size)) {
            Some(Ok(bytes)) => reply.data(&bytes),
            Some(Err(errno)) => reply.error(Errno::from_i32(errno)),
            None => reply.error(Errno::ENOENT),
        }
    }
}

/// The mounted file system; dropping it unmounts it.
pub(crate) struct Mounted {
    files: Files,
    next: AtomicU64,
    _session: BackgroundSession,
}

impl Mounted {
    /// Serves files that are [added](Mounted::add).
    pub(crate) fn new(place: &Path) -> Result<Mounted, String> {
        Mounted::serving(place, None)
    }

    /// Serves the files that `by_name` makes from names.
    pub(crate) fn by_name(place: &Path, by_name: ByName) -> Result<Mounted, String> {
        Mounted::serving(place, Some(by_name))
    }

    fn serving(place: &Path, by_name: Option<ByName>) -> Result<Mounted, String> {
        let files = Files::default();
        let faulty = Faulty {
            files: files.clone(),
            by_name,
            numbers: Mutex::default(),
            next: AtomicU64::new(2),
        };
        let mut config = Config::default();
        config.n_threads = Some(THREADS);
        let session = Session::new(faulty, place, &config)
            .and_then(Session::spawn)
            .map_err(|error| format!("no FUSE file system can be mounted: {error}"))?;
        Ok(Mounted { files, next: AtomicU64::new(2), _session: session })
    }

    /// Registers a file until the returned value is dropped.
    pub(crate) fn add(&self, file: File) -> Added<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let file = Arc::new(file);
        self.files.lock().unwrap().insert(number, Arc::clone(&file));
        Added { mounted: self, number, file }
    }
}

/// A registered file.
pub(crate) struct Added<'a> {
    mounted: &'a Mounted,
    number: u64,
    pub(crate) file: Arc<File>,
}

impl Added<'_> {
    pub(crate) fn name(&self) -> String {
        self.number.to_string()
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        self.mounted.files.lock().unwrap().remove(&self.number);
    }
}
