"""``python -m ringsum.cluster``: the command, with the lines, messages and exit status of ``ringsum``."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Generator, Iterator
from typing import Any, NoReturn

import dask.config
from distributed import Client, Security

from .api import Progress, hash_urls, local_client
from .check import Checker, CheckSettings, _lines
from .driver import ClusterLostError
from .engine import Retry
from .lines import harmless, json_line, plain_line
from .objects import Result, printable
from .output import Finished, Output, ResumeError
from .plan import ANY_VERSION, KIB, parse_size

__all__ = ["main"]

PROGRAM = "ringsum.cluster"
PROGRESS_AFTER_S = 1.0
PROGRESS_EVERY_S = 0.2
CONNECT_TIMEOUT_S = 30

DESCRIPTION = """\
Print or check BLAKE3 digests of files and objects of any size, computed by a Dask cluster. The digests are those of
b3sum. Names are paths that the workers can open, or URLs: s3://, https://, gs://, and others that fsspec knows."""

EPILOG = """\
Exit status: 0 on success, 1 if an object could not be read, changed while it was read, or failed a check, 2 for a
wrong command line. Credentials are those of the file system's package on the workers (environment, configuration
files, roles); they appear in no log and no line."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}", description=DESCRIPTION, epilog=EPILOG
    )
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="path or URL; with --check, check files")
    add(
        "-r",
        "--recursive",
        action="store_true",
        help="hash everything below directories and prefixes",
    )
    add("-c", "--check", action="store_true", help="check the digests in the check files")
    add("--files-from", metavar="FILE", help="hash what FILE names, one name a line")
    add(
        "-z",
        "--zero",
        action="store_true",
        help="end lines with NUL, and do not escape names; also of --files-from",
    )
    add("--tag", action="store_true", help="BSD-style lines: BLAKE3 (NAME) = HASH")
    add("--json", action="store_true", help="one JSON object per line")
    add("-o", "--output", metavar="FILE", help="write to FILE instead of standard output")
    add(
        "--resume",
        action="store_true",
        help="with -o: skip the names that FILE has already, and append to it",
    )
    add("--unordered", action="store_true", help="print lines as objects complete")
    checking = parser.add_argument_group("with --check")
    checking.add_argument("--quiet", action="store_true", help="do not print OK")
    checking.add_argument(
        "--status", action="store_true", help="print nothing; the exit status tells"
    )
    checking.add_argument("--warn", action="store_true", help="report every malformed line")
    checking.add_argument(
        "--lenient", action="store_true", help="malformed lines do not fail the check"
    )
    checking.add_argument(
        "--ignore-missing", action="store_true", help="skip objects that do not exist"
    )
    cluster = parser.add_argument_group("cluster")
    cluster.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="tcp://HOST:8786 or tls://...; default: a local cluster",
    )
    cluster.add_argument(
        "--scheduler-file", metavar="FILE", help="file with the address, as Dask writes it"
    )
    cluster.add_argument(
        "--tls-ca-file", metavar="FILE", help="certificate authority of the cluster"
    )
    cluster.add_argument("--tls-cert", metavar="FILE", help="certificate of this client")
    cluster.add_argument("--tls-key", metavar="FILE", help="key of this client")
    cluster.add_argument(
        "--worker-timeout",
        metavar="SECONDS",
        type=float,
        default=300.0,
        help="wait for workers (300)",
    )
    work = parser.add_argument_group("work")
    work.add_argument(
        "--part-size",
        metavar="SIZE",
        default="1GiB",
        help="bytes of one task, a multiple of 1 KiB (1GiB)",
    )
    work.add_argument(
        "--retries", metavar="N", type=int, default=3, help="repeat a failed task up to N times (3)"
    )
    work.add_argument(
        "--max-outstanding", metavar="N", type=int, help="most tasks that the scheduler holds"
    )
    work.add_argument(
        "--storage-options", metavar="FILE", help='JSON for fsspec: {"s3": {"endpoint_url": "..."}}'
    )
    work.add_argument(
        "--progress", choices=("auto", "never"), default="auto", help="show progress on a terminal"
    )
    return parser


class Messages:
    """Standard error: messages, and the line that shows progress on a terminal."""

    def __init__(self, shows_progress: bool):
        self._is_terminal = sys.stderr.isatty()
        self._shows = shows_progress and self._is_terminal
        self._is_shown = False
        self._next = PROGRESS_AFTER_S

    def say(self, name: str | None, text: str) -> None:
        self.hide()
        line = f"{PROGRAM}: {printable(name) + ': ' if name is not None else ''}{text}"
        line = line.replace("\n", "\\n").replace("\r", "\\r")
        print(
            harmless(line) if self._is_terminal else line.encode("utf-8", "replace").decode(),
            file=sys.stderr,
            flush=True,
        )

    def update(self, progress: Progress) -> None:
        if not self._shows or progress.elapsed_s < self._next:
            return
        self._next = progress.elapsed_s + PROGRESS_EVERY_S
        self._is_shown = True
        retries = f", {progress.retries} retries" if progress.retries else ""
        text = (
            f"{_bytes(progress.bytes_done)} of {_bytes(progress.bytes_known)}, {_bytes(progress.bytes_per_s)}/s,"
            f" {progress.objects_done} objects, {progress.tasks_outstanding} tasks{retries}"
        )
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)

    def hide(self) -> None:
        if self._is_shown:
            self._is_shown = False
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < KIB or unit == "TiB":
            break
        count /= KIB
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    args = parser().parse_args(arguments)
    _check_arguments(args)
    # Dask reports what happens to workers and connections on standard error; what matters is reported here.
    dask.config.set({"logging": {"distributed": "critical"}})
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    messages = Messages(args.progress == "auto")
    try:
        with contextlib.ExitStack() as stack:
            output = Output(args.output, args.resume) if not args.resume else None
            finished = None
            if args.resume:
                finished = Finished(args.output, args.json)
                stack.callback(finished.close)
                output = Output(args.output, True)
            assert output is not None
            stack.callback(output.close)
            stack.callback(messages.hide)
            client = stack.enter_context(_client(args))
            run = _check if args.check else _hash
            return run(args, client, output, messages, finished)
    except BrokenPipeError:
        # The reader of standard output has enough; of a check, the rest was not verified.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1 if args.check else 0
    except KeyboardInterrupt:
        _end_by_signal(signal.SIGINT)
    except (ClusterLostError, ResumeError, OSError) as error:
        messages.say(None, _describe(error))
        return 1


def _end_by_signal(number: signal.Signals) -> NoReturn:
    """End as a shell expects it of an interrupted command; finished lines have been written."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    raise SystemExit(128 + number)


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno and error.filename:
        return f"{error.filename}: {error.strerror} (os error {error.errno})"
    return str(error) or type(error).__name__


def _check_arguments(args: argparse.Namespace) -> None:
    def refuse(why: str) -> NoReturn:
        parser().error(why)

    if not args.names and not args.files_from and not args.check:
        refuse("a NAME is needed, or --files-from")
    if args.resume and not args.output:
        refuse("--resume needs -o")
    if args.resume and args.zero:
        refuse("--resume and --zero exclude each other")
    if args.check and (
        args.output or args.recursive or args.tag or args.files_from or args.unordered
    ):
        refuse("--check excludes -o, -r, --tag, --files-from and --unordered")
    only_check = [
        name
        for name in ("quiet", "status", "warn", "lenient", "ignore_missing")
        if getattr(args, name)
    ]
    if only_check and not args.check:
        refuse(f"--{only_check[0].replace('_', '-')} needs --check")
    if args.tag and args.json:
        refuse("--tag and --json exclude each other")
    if args.scheduler and args.scheduler_file:
        refuse("--scheduler and --scheduler-file exclude each other")
    tls = [args.tls_ca_file, args.tls_cert, args.tls_key]
    if any(tls) and not all(tls):
        refuse("--tls-ca-file, --tls-cert and --tls-key are needed together")
    if any(tls) and not (args.scheduler or args.scheduler_file):
        refuse("--tls-ca-file needs --scheduler")
    if args.max_outstanding is not None and args.max_outstanding < 1:
        refuse("--max-outstanding must be at least 1")
    if args.retries < 0:
        refuse("--retries must be at least 0")
    try:
        size = parse_size(args.part_size)
    except ValueError as error:
        refuse(f"--part-size: {error}")
    if size < KIB or size % KIB:
        refuse("--part-size must be a positive multiple of 1 KiB")
    args.options = _storage_options(args.storage_options, refuse)


def _storage_options(path: str | None, refuse: Any) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            options = json.load(file)
    except (OSError, ValueError) as error:
        # (Not the text of the file, which may contain secrets.)
        refuse(
            f"--storage-options {path}: {error.strerror if isinstance(error, OSError) else 'it is not JSON'}"
        )
    if not isinstance(options, dict) or not all(
        isinstance(value, dict) for value in options.values()
    ):
        refuse(f'--storage-options {path}: not of the form {{"PROTOCOL": {{...}}}}')
    return dict(options)


@contextlib.contextmanager
def _client(args: argparse.Namespace) -> Iterator[Client]:
    if not args.scheduler and not args.scheduler_file:
        with local_client() as client:
            yield client
        return
    security = None
    if args.tls_ca_file:
        security = Security(
            tls_ca_file=args.tls_ca_file,
            tls_client_cert=args.tls_cert,
            tls_client_key=args.tls_key,
            require_encryption=True,
        )
    where = (
        {"scheduler_file": args.scheduler_file}
        if args.scheduler_file
        else {"address": args.scheduler}
    )
    try:
        client = Client(security=security, timeout=CONNECT_TIMEOUT_S, set_as_default=False, **where)
    except (OSError, ValueError, RuntimeError, TypeError) as error:
        name = args.scheduler or args.scheduler_file
        raise ClusterLostError(f"{name}: the scheduler cannot be reached: {error}") from error
    with client:
        yield client


def _names(args: argparse.Namespace) -> Iterator[str]:
    yield from args.names
    if args.files_from:
        end = b"\0" if args.zero else b"\n"
        with contextlib.ExitStack() as stack:
            file = (
                sys.stdin.buffer
                if args.files_from == "-"
                else stack.enter_context(open(args.files_from, "rb"))
            )
            for line in _lines(file, end):
                name = line.removesuffix(end)
                if name:
                    yield os.fsdecode(name)


def _results(
    args: argparse.Namespace,
    client: Client,
    names: Iterator[str],
    output: Output,
    messages: Messages,
    **more: Any,
) -> Generator[Result, None, None]:
    def report_retry(retry: Retry) -> None:
        others = f" (and {retry.objects - 1} more)" if retry.objects > 1 else ""
        messages.say(retry.name, f"retry {retry.number}{others}: {retry.failure}")

    def update(progress: Progress) -> None:
        output.flush()
        messages.update(progress)

    return hash_urls(
        client,
        names,
        part_size=args.part_size,
        recursive=args.recursive,
        ordered=not args.unordered,
        retries=args.retries,
        max_outstanding=args.max_outstanding,
        storage_options=args.options,
        progress=update,
        on_retry=report_retry,
        worker_timeout_s=args.worker_timeout,
        **more,
    )


def _hash(
    args: argparse.Namespace,
    client: Client,
    output: Output,
    messages: Messages,
    finished: Finished | None,
) -> int:
    failed = skipped = 0

    def known(name: str) -> str | None:
        if args.recursive and output.is_own(name):
            return ANY_VERSION
        return finished.version_of(name) if finished else None

    with contextlib.closing(
        _results(args, client, _names(args), output, messages, known=known)
    ) as results:
        for result in results:
            if result.status == "unchanged":
                skipped += not (args.recursive and output.is_own(result.url))
                continue
            failed += result.digest is None
            if args.json:
                output.write(json_line(result))
            elif result.digest is not None:
                output.write(
                    plain_line(result.url, result.digest.hexdigest(), tag=args.tag, zero=args.zero)
                )
            else:
                output.flush(now=True)
                messages.say(result.url, str(result.failure))
    output.flush(now=True)
    if finished is not None:
        messages.say(
            None,
            f"{args.output}: {skipped} {'name was' if skipped == 1 else 'names were'} there already, and skipped",
        )
    if failed:
        messages.say(None, f"{failed} {'object' if failed == 1 else 'objects'} failed")
    return 1 if failed else 0


def _check(
    args: argparse.Namespace, client: Client, output: Output, messages: Messages, _: Finished | None
) -> int:
    fields = ("json", "zero", "quiet", "status", "warn", "lenient", "ignore_missing")
    settings = CheckSettings(**{field: getattr(args, field) for field in fields})

    def say(name: str | None, text: str) -> None:
        output.flush(now=True)
        messages.say(name, text)

    checker = Checker(settings, output.write, say)
    names = checker.names(args.names or ["-"])
    with contextlib.closing(_results(args, client, names, output, messages)) as results:
        for result in results:
            checker.take(result)
    matches = checker.finish()
    output.flush(now=True)
    return 0 if matches else 1
