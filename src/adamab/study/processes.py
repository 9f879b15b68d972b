"""What the processes of a study do beside their work."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process
from multiprocessing.process import BaseProcess


def end_with_parent() -> None:
    """End this process when the one that started it is gone: nobody would take what it works out."""
    threading.Thread(target=_end_after, args=(parent_process(),), daemon=True).start()


def _end_after(parent: BaseProcess | None) -> None:
    if parent is not None:
        parent.join()
        os._exit(1)
