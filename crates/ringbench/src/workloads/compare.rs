//! `ringbench compare`: ringsum and other installed programs, as whole commands in interleaved rounds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, bail};

use super::fio;
use super::limits::thread_counts;
use super::peers::{self, Peer};
use crate::cli::args::CompareArgs;
use crate::model::case::{Case, Chart, Group, Metric, Missing, Sample};
use crate::model::comparison::SAMPLES_MIN;
use crate::model::environment::fits_into_memory;
use crate::runner::process::{self, Pipeline};
use crate::runner::scratch::Scratch;
use crate::runner::{Cache, Cost, GroupPlan, ROUNDS, Session, each_file};

const FIO: &str = "fio, reading only, 512K x 32";

/// The first digest of each algorithm, and the program that found it.
type Digests = Rc<RefCell<BTreeMap<&'static str, (String, String)>>>;

/// The file or the tree to hash.
#[derive(Default)]
struct Input {
    path: PathBuf,
    bytes: u64,
    files: u64,
    /// Of a tree: a file with all names, each ended by a zero byte.
    list: Option<Scratch>,
}

pub(crate) fn run(args: &CompareArgs) -> anyhow::Result<bool> {
    let input = Input::new(&args.path)?;
    let ringsum = peers::find_ringsum(args.ringsum.as_deref())?;
    let mut session = Session::new("compare", &args.run, std::slice::from_ref(&input.path));
    let comparison = Comparison { args, input: &input, ringsum, digests: Digests::default() };
    if !session.announce(&comparison.plan(), None)? {
        return Ok(true);
    }
    session.measure_all(comparison.plan());
    conclude(&mut session);
    session.finish()
}

impl Input {
    fn new(path: &Path) -> anyhow::Result<Input> {
        let is_link = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink());
        // A link is followed here, and in a tree nowhere. Other programs would take a name that begins
        // with a dash for an option.
        let path = match path.as_os_str().as_bytes().starts_with(b"-") {
            _ if is_link => path.canonicalize().unwrap_or_else(|_| path.to_owned()),
            true => Path::new(".").join(path),
            false => path.to_owned(),
        };
        let metadata = fs::metadata(&path).with_context(|| path.display().to_string())?;
        let (mut input, mut names) = (Input::default(), Vec::new());
        each_file(std::slice::from_ref(&path), &mut |path, file| {
            input.bytes += match file.metadata() {
                Ok(metadata) if metadata.is_file() => metadata.len(),
                _ => blockring::Source::open(path).ok().and_then(|file| file.len()).unwrap_or(0),
            };
            input.files += 1;
            names.extend_from_slice(path.as_os_str().as_bytes());
            names.push(0);
        })?;
        if input.bytes == 0 {
            bail!("{}: there are no bytes to hash", path.display());
        }
        if metadata.is_dir() {
            let list = Scratch::create(&std::env::temp_dir())?;
            fs::write(list.path(), &names)?;
            input.list = Some(list);
        }
        Ok(Input { path, ..input })
    }
}

struct Comparison<'a> {
    args: &'a CompareArgs,
    input: &'a Input,
    ringsum: PathBuf,
    digests: Digests,
}

impl<'a> Comparison<'a> {
    fn plan(&self) -> Vec<GroupPlan<'a>> {
        let cold = (!self.args.warm).then(|| self.group(Cache::Cold));
        let warm = (!self.args.cold).then(|| self.group(Cache::Warm));
        cold.into_iter().chain(warm).collect()
    }

    fn group(&self, cache: Cache) -> GroupPlan<'a> {
        let (args, input) = (self.args, self.input);
        let is_cold = cache == Cache::Cold;
        let (name, state) = match is_cold {
            true => ("cold", "with an empty page cache"),
            false => ("warm", "with everything in the page cache"),
        };
        let primed = args.primed && is_cold;
        let second = if primed { "; the second of two runs in a row" } else { "" };
        let files =
            input.list.as_ref().map_or(String::new(), |_| format!("{} files, ", input.files));
        let megabytes = input.bytes / 1_000_000;
        let about =
            format!("The time of whole commands for {files}{megabytes} MB, {state}{second}.");
        let group = Group::new(name, about, Metric::Seconds, Chart::Bars);
        let mut plan = GroupPlan::new(group, std::slice::from_ref(&input.path), ROUNDS);
        let cost = Cost::read(input.bytes);
        for peer in self.peers() {
            let case = Case::new(&peer.name).with("command", peer.pipeline.show());
            let mut case = case.with("cache state", name);
            if input.list.is_some() {
                case = case.with("files", input.files);
            }
            let programs = peer.programs.clone();
            if let Some(program) = programs.iter().find(|program| process::find(program).is_none())
            {
                plan.add_missing(case, format!("{program} is not installed"));
            } else if !is_cold && !fits_into_memory(input.bytes) {
                plan.add_missing(case, "the input does not fit into half of the available memory");
            } else {
                let digests = self.digests.clone();
                let (bytes, operations) = (input.bytes, input.files);
                let planned = plan.add(case, cache, cost, move || {
                    let sample = measure(&peer, &digests)?;
                    Ok(Sample { bytes, operations, ..sample })
                });
                planned.primed = primed;
                planned.prepare = is_cold.then(|| Box::new(move || load(&programs)) as _);
            }
        }
        // fio reads only, and only one file. Its own clock leaves out its start.
        if input.list.is_none() && is_cold && self.is_wanted(FIO) {
            let case = Case::new(FIO).with("cache state", name);
            fio::Job::of(&input.path, input.bytes).add_to(&mut plan, case, cache, cost);
        }
        plan
    }

    fn is_wanted(&self, name: &str) -> bool {
        let only = &self.args.only;
        only.is_empty() || only.iter().any(|only| name.starts_with(only.as_str()))
    }

    fn peers(&self) -> Vec<Peer> {
        let (path, threads) = (&self.input.path, thread_counts());
        let mut peers = match &self.input.list {
            Some(list) => peers::of_tree(&self.ringsum, path, list.path(), &threads),
            None => peers::of_file(&self.ringsum, path, &threads),
        };
        peers.retain(|peer| self.is_wanted(&peer.name));
        peers.extend(self.args.also.iter().map(|command| peers::by_shell(command, path)));
        peers
    }
}

/// Brings programs and their libraries into the page cache, by asking them for their version. (A program
/// that does not understand that is loaded all the same.)
fn load(programs: &[String]) {
    for program in programs {
        let _ = Pipeline::new([program, "--version"]).run();
    }
}

fn measure(peer: &Peer, digests: &Digests) -> Result<Sample, Missing> {
    let (sample, printed) = peer.pipeline.run()?;
    let Some((algorithm, output)) = peer.digest else { return Ok(sample) };
    let digest = output.digest(&printed);
    let digest = digest.ok_or_else(|| Missing::Failed("its output has no digest".to_owned()))?;
    let mut digests = digests.borrow_mut();
    let (first, finder) =
        digests.entry(algorithm).or_insert_with(|| (digest.clone(), peer.name.clone()));
    match *first == digest {
        true => Ok(Sample { digest: Some(digest), ..sample }),
        false => Err(Missing::Failed(format!(
            "it found the {algorithm} digest {digest}, and {finder} found {first}: one of them is wrong, or \
             the input changed"
        ))),
    }
}

fn conclude(session: &mut Session<'_>) {
    for state in ["cold", "warm"] {
        let Some(ours) = session.median(state, "ringsum") else { continue };
        session.result(&format!("ringsum {state} s"), ours);
        let (mut same, mut others, mut too_few) = (Vec::new(), Vec::new(), false);
        for peer in ["b3sum", "b3sum --no-mmap", "xxhsum", "sha256sum", "cat"] {
            let Some(theirs) = session.median(state, peer) else { continue };
            session.result(&format!("{peer} {state} s"), theirs);
            match session.compare(state, "ringsum", peer) {
                Some(ratio) if ratio.differs() => {
                    others.push(format!("{peer} {}", ratio.in_words()))
                }
                Some(_) => same.push(peer),
                None => too_few = true,
            }
        }
        if !same.is_empty() {
            others.push(format!("indistinguishable from it: {}", same.join(", ")));
        }
        if too_few {
            others.push(format!("too few samples for a comparison, which needs {SAMPLES_MIN}"));
        }
        others.insert(0, format!("{state}: ringsum takes {}", Metric::Seconds.show(ours)));
        session.conclude(others.join("; "));
    }
}
