"""Peak extra memory of choosing a class, measured in a process of its own.

The kernel keeps the highest resident size of a process (`VmHWM`; not `ru_maxrss`, which a child process
inherits from its parent and which then never rises). The process first does everything that is not to be
counted (imports, data, a gradient of eight samples, so that thread pools exist), then one full-batch
gradient, then it chooses a class. Memory that the gradient freed may be used again unnoticed, so both
rises are reported, and the figure is their sum: an upper bound.

`python -m benchmarks.memory K D N` prints both in MB.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path


def peak_extra_megabytes(n_classes: int, width: int, n: int) -> tuple[float, float]:
    """(rise of the peak by choosing, rise of the peak by the gradient before it) in MB."""
    command = [sys.executable, "-m", "benchmarks.memory", str(n_classes), str(width), str(n)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    choosing, gradient = map(float, output.split())
    return choosing, gradient


def peak() -> float:
    """Highest resident size so far, in MB (Linux only)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024 / 1e6


def peak_from_here() -> float:
    """Give back what is free, forget the highest size so far, and return the present one in MB."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak()


def _main() -> None:
    from benchmarks.choosing import Setting

    setting = Setting(*map(int, sys.argv[1:4]))
    setting.tiny_gradient()
    start = peak()
    setting.gradient()
    warm = peak()
    setting.choose()
    print(peak() - warm, warm - start)


if __name__ == "__main__":
    _main()
