//! Lost pieces from what is left of their columns.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, anyhow};
use blockring::ErrorKind;

use crate::code::{self, Coder, Solver, Sums};
use crate::data::Piece;
use crate::diagnosis::{Diagnosis, Examination, Loss, hash_piece};
use crate::geometry::{Column, Run, Step};
use crate::lock;
use crate::sidecar::Unusable;

pub(crate) type Solvers = Mutex<HashMap<(Vec<u32>, Vec<u32>), Arc<Solver>>>;

/// Takes pieces, by the number of the first one.
pub(crate) type Take<'a> = &'a (dyn Fn(u64, &[u8]) -> Result<()> + Sync);

/// What to do with pieces. Both are called on several threads, each piece once (again if the reads have
/// to start again on fewer threads).
pub(crate) struct Sink<'a> {
    /// Gets adjacent intact pieces, by the number of the first one. `None`: they are not needed, and
    /// columns without damage are not read.
    pub(crate) intact: Option<Take<'a>>,
    /// Gets a recovered piece, whose hash was checked.
    pub(crate) recovered: Take<'a>,
}

/// Most runs that are read in one go, so that their list needs little memory.
pub(crate) const RUNS_MAX: usize = 1 << 14;

/// Reads what is intact, and computes what is lost.
pub(crate) fn recover(
    examination: &Examination<'_>,
    diagnosis: &Diagnosis,
    sink: &Sink<'_>,
) -> Result<()> {
    if examination.sidecar.head.is_set {
        return recover_on(examination, diagnosis, sink);
    }
    let reading = examination.reading.recovering(sink.intact.is_some());
    match recover_on(&Examination { reading: &reading, ..*examination }, diagnosis, sink) {
        // A thread could not be started: fewer do as well.
        Err(error) if is_refused(&error) => recover_on(examination, diagnosis, sink),
        result => result,
    }
}

/// Whether a thread could not be started.
fn is_refused(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<blockring::Error>();
    error.is_some_and(|error| matches!(error.kind, ErrorKind::Resource { .. }))
}

fn recover_on(examination: &Examination<'_>, diagnosis: &Diagnosis, sink: &Sink<'_>) -> Result<()> {
    let data = examination.data();
    let geometry = data.geometry;
    let solvers = Solvers::default();
    let finish = |step: Step, sums: Sums<'_>| {
        for place in 0..step.count {
            let column = Column { window: step.window, column: step.column + u64::from(place) };
            if let Some(loss) = diagnosis.columns.get(&column) {
                solve(examination, loss, &solvers, (column, place), &sums, sink.recovered)?;
            }
        }
        Ok(())
    };
    let columns = geometry.columns_at_once(data.reading.run_bytes)?;
    let coder = (!diagnosis.columns.is_empty()).then(|| {
        code::prepare(geometry.m);
        Coder::new(geometry, columns, finish)
    });
    let mut steps = geometry
        .steps(columns)
        .filter(|step| sink.intact.is_some() || is_affected(diagnosis, step))
        .peekable();
    while steps.peek().is_some() {
        let mut runs = Vec::new();
        while runs.len() < RUNS_MAX
            && let Some(step) = steps.next()
        {
            runs.extend(geometry.runs(step));
        }
        // Runs of which nothing is intact need not be read.
        let is_lost = |first: u64, count: u32| {
            (first..first + u64::from(count)).all(|piece| diagnosis.bad.contains(&piece))
        };
        let (lost, some): (Vec<_>, Vec<_>) =
            runs.into_iter().partition(|run| is_lost(run.first, run.count));
        let lost = LostRuns::new(lost);
        data.read(&some, true, &|piece: Piece<'_>| {
            (examination.progress)(piece.bytes.len() as u64);
            if let Some(coder) = &coder {
                lost.add_to(coder, Some(piece.run.step))?;
            }
            consume(diagnosis, coder.as_ref(), sink, u64::from(geometry.piece_bytes), &piece)
        })?;
        if let Some(coder) = &coder {
            // Steps of which nothing is intact.
            lost.add_to(coder, None)?;
        }
    }
    Ok(())
}

/// Whether a piece of the step is lost.
fn is_affected(diagnosis: &Diagnosis, step: &Step) -> bool {
    let first = Column { window: step.window, column: step.column };
    let end = Column { window: step.window, column: step.column + u64::from(step.count) };
    diagnosis.columns.range(first..end).next().is_some()
}

/// Runs that are not read. They are added with the first other run of their step, so that few steps
/// are open at once.
struct LostRuns(Mutex<HashMap<Step, Vec<Run>>>);

impl LostRuns {
    fn new(runs: Vec<Run>) -> LostRuns {
        let mut by_step: HashMap<Step, Vec<Run>> = HashMap::new();
        for run in runs {
            by_step.entry(run.step).or_default().push(run);
        }
        LostRuns(Mutex::new(by_step))
    }

    /// Adds those of a step, or all that are left.
    fn add_to(&self, coder: &Coder<'_>, step: Option<Step>) -> Result<()> {
        let runs: Vec<_> = match step {
            Some(step) => lock(&self.0).remove(&step).into_iter().flatten().collect(),
            None => lock(&self.0).drain().flat_map(|(_, runs)| runs).collect(),
        };
        runs.iter().try_for_each(|run| coder.add(run, &[]))
    }
}

/// Passes what is intact of a run to the sink, and to the code with zeros for what is not.
fn consume(
    diagnosis: &Diagnosis,
    coder: Option<&Coder<'_>>,
    sink: &Sink<'_>,
    size: u64,
    piece: &Piece<'_>,
) -> Result<()> {
    let all = piece.run.first..piece.run.first + u64::from(piece.run.count);
    let mut bad: BTreeSet<_> = diagnosis.bad.range(all.clone()).copied().collect();
    if let Some(unread) = piece.unread.iter().find(|unread| !bad.contains(unread)) {
        return Err(anyhow!(
            "the bytes at {} of the data could be read before, and cannot now",
            unread * size
        ));
    }
    bad.extend(piece.unread);
    if let Some(intact) = sink.intact {
        let bytes_of = |from: u64, to: u64| {
            let (from, to) = ((from - all.start) * size, (to - all.start) * size);
            let end = (to as usize).min(piece.bytes.len());
            &piece.bytes[(from as usize).min(end)..end]
        };
        let mut start = all.start;
        for end in bad.iter().copied().chain([all.end]) {
            if start < end {
                intact(start, bytes_of(start, end))?;
            }
            start = end + 1;
        }
    }
    let Some(coder) = coder.filter(|_| is_affected(diagnosis, &piece.run.step)) else {
        return Ok(());
    };
    if bad.is_empty() {
        return coder.add(&piece.run, piece.bytes);
    }
    let mut bytes = piece.bytes.to_vec();
    bytes.resize(piece.run.count as usize * size as usize, 0);
    for number in &bad {
        let place = ((number - all.start) * size) as usize;
        bytes[place..place + size as usize].fill(0);
    }
    coder.add(&piece.run, &bytes)
}

/// Computes the lost pieces of a column, which has the place `place` in its step.
pub(crate) fn solve(
    examination: &Examination<'_>,
    loss: &Loss,
    solvers: &Solvers,
    (column, place): (Column, u32),
    sums: &Sums<'_>,
    recovered: Take<'_>,
) -> Result<()> {
    let (sidecar, data) = (examination.sidecar, examination.data());
    let unusable = |what: &str| Unusable(format!("{}: {what}", sidecar.path.display()));
    let mut differences = Vec::with_capacity(loss.lost.len());
    for parity in &loss.parities {
        let mut sum = Vec::new();
        sums.read(*parity, place, 1, &mut sum);
        let stored = sidecar.parity(column, *parity);
        let stored =
            stored.ok_or_else(|| unusable("its parity was intact before, and is not now"))?;
        differences.push(code::difference(&sum, &stored));
    }
    let key = (loss.lost.clone(), loss.parities.clone());
    let known = lock(solvers).get(&key).map(Arc::clone);
    let solver = match known {
        Some(solver) => solver,
        None => {
            let solver = Solver::new(data.geometry.m, &loss.lost, &loss.parities);
            let solver = Arc::new(solver.context("the parity does not suffice; this is a bug")?);
            let mut solvers = lock(solvers);
            // Random damage has as many patterns as columns.
            if solvers.len() < 64 {
                solvers.insert(key, Arc::clone(&solver));
            }
            solver
        }
    };
    for (i, shard) in loss.lost.iter().enumerate() {
        let piece = data.geometry.piece(column, *shard).context("a piece beyond the end")?;
        let bytes = solver.solve(i, &differences);
        if !sidecar.is_good(piece, &hash_piece(&data, piece, &bytes)) {
            return Err(unusable(
                "a recovered piece does not have its hash: the sidecar contradicts itself",
            )
            .into());
        }
        recovered(piece, &bytes)?;
    }
    Ok(())
}
