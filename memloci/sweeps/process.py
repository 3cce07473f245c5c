"""Processes that can be told apart from later ones, and that end with the one that started them.

A process is named by host, number and birth: numbers are used again, after a restart of the machine even soon.
"""

import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG = 1
PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    host: str
    pid: int
    birth: str  # empty where the system does not tell

    @classmethod
    def this(cls) -> "Process":
        return cls(_host(), os.getpid(), _birth(os.getpid()) or "")

    def dead(self) -> bool:
        """Whether it has surely ended; never of a process on another host."""
        if self.host != _host():
            return False
        if self.birth:
            return _birth(self.pid) != self.birth
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False


def _host() -> str:
    """Numbers of processes mean something within one of these only: containers may share a name and a store."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def _birth(pid: int) -> str | None:
    """Which boot, and the clock ticks after it; None for a process that is gone, or dead but not yet buried."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{boot} {ticks}"


def resident() -> int:
    """Bytes of memory that this process has now; the most that it ever had, where the system tells nothing else."""
    try:
        return int((PROC / "self" / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def end_with_parent() -> None:
    """End this process when the one that holds the other end of standard input ends, however it does."""
    if sys.platform == "linux":  # at once, even while compiled code runs
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_after_input, daemon=True).start()


def _end_after_input() -> None:
    os.read(0, 1)  # nothing is ever sent
    os.kill(os.getpid(), signal.SIGKILL)
