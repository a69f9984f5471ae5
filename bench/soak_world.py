"""The environment of the cases of `bench/soak`: file systems, files, watched children, and the right hashes.

It does not judge a case, except that children must end and must not panic.
"""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

# A child that runs for longer hangs: nothing here takes a tenth of it on a busy machine.
PATIENCE_S = 60

# File systems that root may mount: a name, the command that makes it in an image, the size of that in MiB, and the
# options of `mount`.
IMAGES = [
    ("ext4-1k", "mkfs.ext4 -q -F -b 1024", 192, ""),
    ("ext4-journal", "mkfs.ext4 -q -F", 256, "-o data=journal"),
    ("xfs", "mkfs.xfs -q", 384, ""),
    ("btrfs", "mkfs.btrfs -q", 384, ""),
    ("btrfs-zlib", "mkfs.btrfs -q", 384, "-o compress-force=zlib"),
]


class Broken(Exception):
    """A violated invariant. `kind`: wrong hash, hang, leak, or other."""

    def __init__(self, kind, what):
        super().__init__(what)
        self.kind = kind


class Place:
    """A file system: files are written in one folder and read in another, which differ only for an overlay."""

    def __init__(self, name, write, read=None):
        self.name, self.write, self.read = name, write, read or write


class Child:
    """A finished run."""

    def __init__(self, argv, code, out, err):
        self.argv, self.code, self.out, self.err = argv, code, out, err

    def said(self):
        lines = self.err.decode(errors="replace").splitlines()
        return f"{self.argv}\n  ended with {self.code}, printed {lines[:12]}"


class World:
    """File systems that stay mounted until `close`."""

    def __init__(self, folder, ringsum, b3sum="b3sum"):
        self.folder, self.ringsum, self.b3sum = pathlib.Path(folder), ringsum, b3sum
        self.undo, self.missing, self.server = [], [], None
        self.fuse, self.fuse_below = None, None
        here = self.folder / "here"
        here.mkdir(parents=True)
        self.places = [Place("disk", here)]
        # Settings that were measured on this machine are ignored.
        self.env = dict(os.environ, XDG_CONFIG_HOME="/nonexistent")

    def shell(self, line):
        done = subprocess.run(line, shell=True, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"{line}: {done.stderr.strip().splitlines()[:1]}")
        return done.stdout.strip()

    def mount(self, name, line):
        """Mounts at a folder of that name, and returns it."""
        place = self.folder / name
        place.mkdir(exist_ok=True)
        self.shell(f"{line} {place}")
        self.undo.append(f"umount {place} || umount --lazy {place}")
        return place

    def attempt(self, name, make):
        try:
            make()
        except OSError as error:
            self.missing.append(f"{name}: {error}")

    def mount_all(self, faulty_fs):
        """Mounts everything that is available; the rest is in `missing`."""
        def add(name, line):
            self.places.append(Place(name, self.mount(name, line)))

        self.attempt("tmpfs", lambda: add("tmpfs", "mount -t tmpfs -o size=2G none"))
        for name, mkfs, mib, options in IMAGES:
            self.attempt(name, lambda: self.image(name, mkfs, mib, options))
        self.attempt("overlayfs", self.overlay)
        self.attempt("FUSE", lambda: self.serve(faulty_fs))
        if self.fuse:
            self.attempt("overlayfs on FUSE", self.overlay_on_fuse)

    def image(self, name, mkfs, mib, options):
        self.shell(f"truncate -s {mib}M {name}.image && {mkfs} {name}.image")
        device = self.shell(f"losetup --find --show {name}.image")
        self.undo.append(f"losetup --detach {device}")
        self.places.append(Place(name, self.mount(name, f"mount {options} {device}")))

    def overlay(self):
        # Volatile: otherwise unmounting took minutes, only to sync data that is thrown away.
        for name in ("lower", "upper", "work"):
            (self.folder / name).mkdir()
        layers = f"lowerdir={self.folder}/lower,upperdir={self.folder}/upper,workdir={self.folder}/work,volatile"
        read = self.mount("overlay", f"mount -t overlay -o {layers} none")
        self.places.append(Place("overlayfs", self.folder / "lower", read))

    def serve(self, faulty_fs):
        place = self.folder / "fuse"
        place.mkdir()
        if not pathlib.Path(faulty_fs).exists():
            raise OSError(f"{faulty_fs} does not exist")
        self.server = subprocess.Popen([faulty_fs, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.server.stdout.readline() != b"mounted\n":
            raise OSError("it cannot be mounted")
        self.fuse = place

    def overlay_on_fuse(self):
        for name in ("fuse-upper", "fuse-work"):
            (self.folder / name).mkdir()
        layers = f"lowerdir={self.fuse},upperdir={self.folder}/fuse-upper,workdir={self.folder}/fuse-work,volatile"
        self.fuse_below = self.mount("overlay-fuse", f"mount -t overlay -o {layers} none")

    def close(self):
        for line in reversed(self.undo):
            self.attempt("undo", lambda: self.shell(line))
        if self.server:
            self.server.stdin.close()
            try:
                self.server.wait(10)
            except subprocess.TimeoutExpired:
                self.server.kill()
        if self.fuse and os.path.ismount(self.fuse):
            self.attempt("undo", lambda: self.shell(f"umount --lazy {self.fuse}"))

    def run(self, argv, stdin=subprocess.DEVNULL, act=None, cwd=None, stdout=None):
        """Runs a command to its end. `act` is called with the child on another thread meanwhile."""
        argv = [str(arg) for arg in argv]
        feed = stdin if isinstance(stdin, bytes) else None
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if feed is not None else stdin,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=self.env,
        )
        # By its descriptor, a signal never reaches another process with the same number.
        child.pidfd = os.pidfd_open(child.pid)
        thread = threading.Thread(target=act, args=(child,)) if act else None
        if thread:
            thread.start()
        try:
            out, err = child.communicate(feed, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            stacks = stacks_of(child.pid)
            child.kill()
            raise Broken("hang", f"{argv}\n  still running after {PATIENCE_S} s:\n{stacks}") from None
        finally:
            if thread:
                thread.join()
            os.close(child.pidfd)
        done = Child(argv, child.returncode, out, err)
        if b"panicked" in err:
            raise Broken("other", f"a panic: {done.said()}")
        return done

    def hashes(self, paths, args=()):
        """The right hashes of files, by `b3sum`."""
        done = subprocess.run([self.b3sum, "--no-names", *args, "--", *paths], capture_output=True, check=True)
        return done.stdout.decode().split()

    def hash_of(self, content, args=()):
        done = subprocess.run([self.b3sum, "--no-names", *args], input=content, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def noise(self, length):
        """The content of a file of that length on the FUSE file system."""
        argv = [self.b3sum, "--raw", "--length", str(length)]
        return subprocess.run(argv, input=str(length).encode(), capture_output=True, check=True).stdout


def stacks_of(pid):
    """The wait states of the threads of a process, as far as the kernel reports them."""
    lines = []
    for thread in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
        for name in ("comm", "wchan", "syscall", "stack"):
            try:
                lines.append(f"    {thread.name} {name}: {(thread / name).read_text().strip()}")
            except OSError as error:
                lines.append(f"    {thread.name} {name}: {error}")
    return "\n".join(lines)


def usage_of(pid):
    """Descriptors, threads, mappings, and resident KiB of a process."""
    process = pathlib.Path(f"/proc/{pid}")
    status = (process / "status").read_text()
    number = lambda name: int(re.search(rf"{name}:\s+(\d+)", status).group(1))
    return {
        "descriptors": len(os.listdir(process / "fd")),
        "threads": number("Threads"),
        "mappings": (process / "maps").read_text().count("\n"),
        "resident": number("VmRSS"),
    }


def send(child, *signals):
    """Sends signals to a child that may have ended."""
    for number in signals:
        try:
            signal.pidfd_send_signal(child.pidfd, number)
        except ProcessLookupError:
            return False
    return child.poll() is None


def storm(child, rng, seconds):
    """Signals that a run must survive, every millisecond or so."""
    end = time.monotonic() + seconds
    kinds = [(signal.SIGSTOP, signal.SIGCONT), (signal.SIGWINCH,), (signal.SIGCHLD,), (signal.SIGURG,)]
    sent = 0
    while time.monotonic() < end and child.poll() is None:
        sent += 1
        if not send(child, *rng.choice(kinds)):
            break
        time.sleep(rng.choice([0, 0.001, 0.005]))
    return sent
