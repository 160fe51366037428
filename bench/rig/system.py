"""System calls that the Python library does not wrap, and processes that end with the rig.

Every process that the rig starts is noted with its start time in a file, dies with the rig (PDEATHSIG), and is ended by its
pid: a rig that was killed leaves a note by which the next one ends what survived.
"""

import ctypes
import json
import os
import signal
import subprocess
import time
from pathlib import Path

RUN_DIR = Path("/tmp/trivium-bench")
_NOTE = RUN_DIR / "processes.json"
_PR_SET_PDEATHSIG = 1
_CLONE_NEWNET = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
_children: dict[int, int] = {}


class BenchError(Exception):
    """What failed, with the object's name; shown to the operator as it stands."""


def set_netns(fd: int) -> None:
    """Moves the calling thread into the network namespace behind `fd`."""
    if libc.setns(fd, _CLONE_NEWNET) != 0:
        raise BenchError(f"cannot enter a network namespace: {os.strerror(ctypes.get_errno())}; run as root")


def start_time(pid: int) -> int | None:
    """The process's start in clock ticks since boot (field 22 of /proc/PID/stat), None when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def boost() -> None:
    """Gives the calling process weight over what else runs, alike for every plane and the generator.

    Under autogroup the nice value counts only inside the session, so the session's own value is set too.
    """
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -20)
        Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        pass


def child_setup(cores: set[int] | None = None, netns: int | None = None) -> None:
    """What a child does between fork and exec: die with the rig, own session, priority, cores, namespace."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    boost()
    if cores:
        os.sched_setaffinity(0, cores)
    if netns is not None:
        set_netns(netns)


def forked(work, *, cores: set[int], netns: int) -> int:
    """A child of this process that does `work` and ends; the rig ends it by `end_forked`. Returns its pid."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            child_setup(cores, netns)
            work()
            status = 0
        finally:
            os._exit(status)
    remember(pid)
    return pid


def end_forked(pid: int) -> None:
    """Ends a child of `forked`."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    forget(pid)


def spawn(argv: list[str], *, cores: set[int] | None = None, netns: int | None = None, env: dict | None = None,
          log: Path | None = None, stdin=subprocess.DEVNULL, stdout=None) -> subprocess.Popen:
    """Starts a process that the rig will end; its output goes to `log` unless `stdout` takes it."""
    sink = open(log, "ab") if log else subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout if stdout is not None else sink,
            stderr=sink if log else subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **(env or {})},
            preexec_fn=lambda: child_setup(cores, netns))
    finally:
        if log:
            sink.close()
    remember(process.pid)
    return process


def run(argv: list[str], *, check: bool = True, timeout: float = 30, **kwargs) -> str:
    """Runs a short command and returns what it printed; an error carries the command and its message."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, **kwargs)
    except FileNotFoundError:
        raise BenchError(f"{argv[0]} is not installed; run `ci/setup bench`") from None
    except subprocess.TimeoutExpired:
        raise BenchError(f"`{' '.join(argv)}` did not end within {timeout:g} s") from None
    if check and done.returncode != 0:
        raise BenchError(f"`{' '.join(argv)}` failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout + (done.stderr if not check else "")


def remember(pid: int) -> None:
    """Notes a process of ours, so that it can be ended even by a later run."""
    began = start_time(pid)
    if began is not None:
        _children[pid] = began
        _write_note()


def forget(pid: int) -> None:
    """Removes a process that has ended from the note."""
    _children.pop(pid, None)
    _write_note()


def our_pids() -> set[int]:
    """The rig and the processes it started."""
    return {os.getpid(), *_children}


def end(process: subprocess.Popen | None, grace: float = 3.0) -> None:
    """Ends a process: asks, waits, then insists."""
    if process is None:
        return
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            pipe.close()
    forget(process.pid)


def end_remnants() -> int:
    """Ends what an earlier, killed run left running; a pid that now belongs to another process is left alone."""
    try:
        noted = json.loads(_NOTE.read_text())
    except (OSError, ValueError):
        return 0
    ended = 0
    for pid, began in ((int(p), b) for p, b in noted.items()):
        if pid not in _children and start_time(pid) == began:
            os.kill(pid, signal.SIGKILL)
            ended += 1
    _write_note()
    return ended


def wait_until(condition, what: str, seconds: float = 15.0, step: float = 0.05):
    """Waits for `condition()` to be true and returns its value; says what it waited for when it never is."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise BenchError(f"{what}: not within {seconds:g} s")
        time.sleep(step)


def _write_note() -> None:
    RUN_DIR.mkdir(mode=0o700, exist_ok=True)
    fresh = _NOTE.with_suffix(".new")
    fresh.write_text(json.dumps({str(pid): began for pid, began in _children.items()}))
    fresh.replace(_NOTE)
