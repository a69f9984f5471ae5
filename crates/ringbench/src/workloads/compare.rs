//! `ringsum` and whichever other programs are installed, as whole commands and in turn.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, bail};

use crate::args::Common;
use crate::cache::{self, Cache};
use crate::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::process::{self, Pipeline, Took};
use crate::runner::Rounds;
use crate::scratch::Scratch;
use crate::session::{Cost, Planned, Session, Work};
use crate::workload::fio;
use crate::workload::limits::{fits_into_memory, thread_counts};
use crate::workload::peers::{self, Digest, Peer};
use crate::workload::target::failed;

/// ringsum and whichever other programs are installed, in turn: time, processor time, memory; and whether
/// those that should agree do.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A file or a block device, or a folder: then all files in it
    #[arg(value_name = "FILE|TREE")]
    path: PathBuf,
    /// With nothing in the page cache only [default: both]
    #[arg(long)]
    cold: bool,
    /// With everything in the page cache only
    #[arg(long, conflicts_with = "cold")]
    warm: bool,
    /// When cold, run each twice in a row, and count the second: in a virtual machine whose host takes free
    /// memory back, a program that fills the page cache otherwise pays for what ran before it
    #[arg(long)]
    primed: bool,
    /// One more command, for a shell; {} stands for the file or folder
    #[arg(long, value_name = "COMMAND")]
    also: Vec<String>,
    /// Only programs whose name begins with one of these, and the commands of --also
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    only: Vec<String>,
    /// The ringsum to measure [default: the one beside this program, then the one in PATH]
    #[arg(long, value_name = "PROGRAM")]
    ringsum: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

const ROUNDS: Rounds = Rounds::Auto { min: 5, max: 15 };

/// Digests by their algorithm, and who found them first.
type Found = Rc<RefCell<BTreeMap<&'static str, (String, String)>>>;

/// What is hashed.
struct Input<'a> {
    path: &'a Path,
    bytes: u64,
    files: u64,
    /// Of a tree: a file with all names, each ended by a zero byte.
    list: Option<&'a Path>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<bool> {
    let is_link = fs::symlink_metadata(&args.path).is_ok_and(|metadata| metadata.is_symlink());
    // A link is followed here, and in a tree nowhere. For other programs, a name that begins with a dash
    // would be an option.
    let path = match args.path.as_os_str().as_bytes().starts_with(b"-") {
        _ if is_link => args.path.canonicalize().unwrap_or_else(|_| args.path.clone()),
        true => Path::new(".").join(&args.path),
        false => args.path.clone(),
    };
    let metadata = fs::metadata(&path).with_context(|| format!("{}", path.display()))?;
    let is_tree = metadata.is_dir();
    let ringsum = find_ringsum(args)?;
    let (mut bytes, mut files, mut names) = (0, 0, Vec::new());
    cache::each_file(std::slice::from_ref(&path), &mut |path, file| {
        bytes += match file.metadata() {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            _ => blockring::Source::open(path).ok().and_then(|source| source.len()).unwrap_or(0),
        };
        files += 1;
        names.extend_from_slice(path.as_os_str().as_bytes());
        names.push(0);
    })?;
    if bytes == 0 {
        bail!("{}: there is nothing in it to be hashed", path.display());
    }
    let mut session = Session::new("compare", &args.common, std::slice::from_ref(&path))?;
    let list = match is_tree {
        true => {
            let scratch = Scratch::create(&std::env::temp_dir())?;
            fs::write(scratch.path(), &names)?;
            Some(scratch)
        }
        false => None,
    };
    let list = list.as_ref().map(Scratch::path);
    let input = Input { path: &path, bytes, files, list };
    let found = Found::default();
    if !session
        .announce(&Work { groups: plan(args, &input, &ringsum, &found), room: Vec::new() })?
    {
        return Ok(true);
    }
    session.measure_all(Work { groups: plan(args, &input, &ringsum, &found), room: Vec::new() })?;
    conclude(&mut session);
    session.finish()
}

fn find_ringsum(args: &Args) -> anyhow::Result<PathBuf> {
    if let Some(path) = &args.ringsum {
        return match path.is_file() {
            true => Ok(path.clone()),
            false => bail!("{}: there is no such program", path.display()),
        };
    }
    let beside = std::env::current_exe().ok().map(|path| path.with_file_name("ringsum"));
    let found = beside.filter(|path| path.is_file()).or_else(|| process::find("ringsum"));
    found.context(
        "ringsum is neither beside this program nor in PATH: build it (cargo build --release) or name it \
         with --ringsum",
    )
}

fn plan<'a>(args: &'a Args, input: &Input<'a>, ringsum: &Path, found: &Found) -> Vec<Planned<'a>> {
    let mut groups = Vec::new();
    if !args.warm {
        groups.push(group(args, input, ringsum, found, Cache::Cold));
    }
    if !args.cold {
        groups.push(group(args, input, ringsum, found, Cache::Warm));
    }
    groups
}

fn group<'a>(
    args: &'a Args,
    input: &Input<'a>,
    ringsum: &Path,
    found: &Found,
    cache: Cache,
) -> Planned<'a> {
    let (name, state) = match cache {
        Cache::Cold => ("cold", "with nothing of it in the page cache"),
        _ => ("warm", "with all of it in the page cache"),
    };
    let primed = args.primed && cache == Cache::Cold;
    let second = if primed { "; of two runs in a row, the second" } else { "" };
    let files =
        if input.list.is_some() { format!("{} files, ", input.files) } else { String::new() };
    let about = format!(
        "Seconds of whole commands for {files}{} MB, {state}{second}.",
        input.bytes / 1_000_000
    );
    let group = Group::new(name, about, Metric::Seconds, Chart::Bars);
    let paths = [input.path.to_owned()];
    let mut planned = Planned::new(group, &paths, ROUNDS);
    let mut peers = match input.list {
        Some(list) => peers::of_tree(ringsum, input.path, list, &core_counts()),
        None => peers::of_file(ringsum, input.path, &core_counts()),
    };
    peers.retain(|peer| is_wanted(args, &peer.name));
    peers.extend(args.also.iter().map(|command| peers::by_shell(command, input.path)));
    for Peer { name, pipeline, digest, needs } in peers {
        let case = Case::new(&name).with("command", pipeline.show());
        let case = case.with("cache state", if cache == Cache::Cold { "cold" } else { "warm" });
        if let Some(missing) = needs.iter().find(|program| process::find(program).is_none()) {
            planned.add_missing(case, format!("{missing} is not installed"));
            continue;
        }
        if cache == Cache::Warm && !fits_into_memory(input.bytes) {
            planned.add_missing(case, "it does not fit into memory");
            continue;
        }
        let (found, bytes, files) = (found.clone(), input.bytes, input.files);
        planned.add(case, cache, Cost::read(bytes), move || {
            let sample = measure(&pipeline, digest, &name, &found)?;
            Ok(Sample { bytes, operations: files, ..sample })
        });
        if primed {
            planned.prime();
        }
        if cache == Cache::Cold {
            planned.get_ready_by(move || load(&needs));
        }
    }
    add_fio(&mut planned, args, input, cache);
    planned
}

/// Brings programs into the page cache, with the libraries that they need: they are asked for their version.
/// (One that does not understand that has been loaded all the same.)
fn load(programs: &[String]) {
    for program in programs {
        let _ = Pipeline::new([program, "--version"]).run();
    }
}

fn is_wanted(args: &Args, name: &str) -> bool {
    args.only.is_empty() || args.only.iter().any(|only| name.starts_with(only.as_str()))
}

fn core_counts() -> Vec<u32> {
    thread_counts(std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32))
}

fn measure(
    pipeline: &Pipeline,
    digest: Option<(&'static str, Digest)>,
    name: &str,
    found: &Found,
) -> Result<Sample, Missing> {
    let took = pipeline.run().map_err(failed)?;
    let mut sample = of_command(&took);
    if let Some((algorithm, digest)) = digest {
        let digest = digest
            .of(&took.output)
            .ok_or_else(|| Missing::Failed("there is no digest in what it printed".to_owned()))?;
        let mut found = found.borrow_mut();
        let (first, who) =
            found.entry(algorithm).or_insert_with(|| (digest.clone(), name.to_owned()));
        if *first != digest {
            return Err(Missing::Failed(format!(
                "it found the {algorithm} {digest}, and {who} found {first}: one of them is wrong, or \
                 the input changed"
            )));
        }
        sample.digest = Some(digest);
    }
    Ok(sample)
}

fn of_command(took: &Took) -> Sample {
    Sample {
        wall_s: took.wall.as_secs_f64(),
        cpu_s: Some(took.cpu.as_secs_f64()),
        rss_bytes: Some(took.rss_bytes),
        operations: 1,
        ..Sample::default()
    }
}

/// fio reads, and no more; of one file.
fn add_fio<'a>(planned: &mut Planned<'a>, args: &Args, input: &Input<'a>, cache: Cache) {
    const NAME: &str = "fio, reading only, 512K x 32";
    if input.list.is_some() || cache == Cache::Warm || !is_wanted(args, NAME) {
        return;
    }
    let (path, bytes) = (input.path, input.bytes);
    let case = Case::new(NAME).with("cache state", "cold");
    match fio::unavailable() {
        Some(why) => planned.add_missing(case, why),
        None => planned.add(case, cache, Cost::read(bytes), move || {
            let job = fio::Job {
                path,
                random: false,
                engine: "io_uring",
                direct: true,
                block_bytes: 512 << 10,
                depth: 32,
                jobs: 1,
                time: None,
                huge_pages: false,
                range_bytes: bytes,
                bytes,
            };
            let took = job.pipeline().run().map_err(failed)?;
            Ok(Sample { bytes, ..of_command(&took) })
        }),
    }
}

fn conclude(session: &mut Session<'_>) {
    for name in ["cold", "warm"] {
        let Some(group) = session.group(name).cloned() else { continue };
        let median = |case: &str| group.median(group.case(case)?);
        let Some(ours) = median("ringsum") else { continue };
        session.result(&format!("ringsum_{name}_s"), ours);
        let mut words = Vec::new();
        for peer in ["b3sum", "b3sum --no-mmap", "xxhsum", "sha256sum", "cat"] {
            if let Some(theirs) = median(peer) {
                words.push(format!("{peer} takes {:.2} times as long", theirs / ours));
                session.result(&format!("{peer} {name} s"), theirs);
            }
        }
        if !words.is_empty() {
            let shown = Metric::Seconds.show(ours);
            session.conclude(format!("{name}: ringsum takes {shown}; {}.", words.join(", ")));
        }
    }
}
