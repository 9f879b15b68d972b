"""One terminal for one page: its folder, its environment, its servers and everything that was printed."""

import importlib.util
import io
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from typer.testing import CliRunner

from docs_runner.output import missing_line

# Commands that stay until the page ends, and the port that they take unless set.
SERVERS = {"python -m adamab.testing": "8377", "adamab serve": "8000"}
OTHERS = ("curl", "sqlite3")  # programs of readers; a machine without them skips the page and says so
PATIENCE = 120.0  # seconds after which a server that says nothing counts as stuck

_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{4,5}\b|(?<=localhost:)\d{4,5}\b|(?<=--port )\d{4,5}\b")
_ASSIGNMENT = re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)=('[^']*'|\"[^\"]*\"|[^\s'\"|&;]*)(?:\s+#.*)?$")
_SHELL_SIGNS = re.compile(r"[|<>;&$`*(){}]")


class Terminal:
    """Executes commands and snippets as a reader would; `printed` is all that they wrote."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.printed = ""
        self._patch = monkeypatch
        self._ports = {}
        self._servers = []
        self._names = {"__name__": "docs_page"}
        monkeypatch.chdir(folder)
        for name in [name for name in os.environ if name.endswith(("_API_KEY", "_BASE_URL"))]:
            monkeypatch.delenv(name)
        settings = {
            "ADAMAB_CACHE": str(folder.parent / f"{folder.name}-cache" / "cache.sqlite"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(sys.path),  # the experiments are not installed
            "HF_HUB_OFFLINE": "1",
            "HF_HUB_CACHE": str(folder / "huggingface"),
            "MPLBACKEND": "Agg",
            "NO_COLOR": "1",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        if importlib.util.find_spec("huggingface_hub"):  # it has read the variable when it was imported
            monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", settings["HF_HUB_CACHE"])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self._servers:
            server.send_signal(signal.SIGTERM)
        for server in self._servers:
            server.wait(PATIENCE)

    def command(self, command, shown, place):
        """Execute one line; a shown line `adamab: …` means that it must fail with exit code 2."""
        here = self._with_ports(command)
        if assignment := _ASSIGNMENT.match(here):
            self._patch.setenv(assignment[1], assignment[2].strip("'\""))
            return
        if any(here.startswith(server) for server in SERVERS):
            self._serve(here, shown, place)
            return
        code, printed = self._inside(here) if _simple(here) else _outside(here)
        printed = self._as_shown(printed)
        self.printed += printed
        expected = 2 if any(line.startswith("adamab: ") for line in shown) else 0
        assert code == expected, f"{place}: exit code {code} of: {command}\n{printed}"
        _compare(shown, printed, f"{place}: {command}")

    def python(self, text, place):
        """Execute a snippet; names live on until the end of the page."""
        written = io.StringIO()
        with redirect_stdout(written), redirect_stderr(written):
            exec(compile(self._with_ports(text), place, "exec"), self._names)
        self.printed += self._as_shown(written.getvalue())

    def output(self, text, place):
        """A block that shows what commands before it have printed."""
        _compare(text.splitlines(), self.printed, place)

    def _inside(self, command):
        """`adamab …` in this process, which has torch loaded already."""
        from adamab.cli.app import app

        command = re.sub(r'"\$(\w+)"', lambda match: shlex.quote(os.environ[match[1]]), command)
        result = CliRunner().invoke(app, shlex.split(command, comments=True)[1:])
        return result.exit_code, result.output

    def _serve(self, command, shown, place):
        """Start a server that stays until the page ends, and wait until it has said what is shown."""
        program = next(server for server in SERVERS if command.startswith(server))
        words = shlex.split(command.removesuffix("&"), comments=True)
        if "--port" not in words:
            words += ["--port", self._port(SERVERS[program])]
        port = int(words[words.index("--port") + 1])
        log = self.folder.parent / f"{self.folder.name}-server-{len(self._servers)}.log"
        with log.open("wb") as file:
            server = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
        self._servers.append(server)
        until = time.monotonic() + PATIENCE
        while True:
            printed = self._as_shown(log.read_text())
            if printed.strip() and missing_line(shown, printed) is None and _answers(port):
                break
            assert server.poll() is None, f"{place}: {command} ended:\n{printed}"
            assert time.monotonic() < until, f"{place}: {command} printed only:\n{printed}"
            time.sleep(0.05)
        self.printed += printed

    def _port(self, shown):
        """A free port in place of the page's: two pages with the same one run at the same time."""
        if shown not in self._ports:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self._ports[shown] = str(probe.getsockname()[1])
        return self._ports[shown]

    def _with_ports(self, text):
        return _PORT.sub(lambda match: self._port(match[0]), text)

    def _as_shown(self, printed):
        for shown, real in self._ports.items():
            printed = re.sub(rf"(?<=:){real}\b", shown, printed)
        return printed


def _simple(command):
    """Can the line be given to the command line's own code, without a shell in between?"""
    unquoted = re.sub(r"'[^']*'|\"[^\"$`]*\"|\"\$\w+\"", "", command.partition(" #")[0])
    return command.startswith("adamab ") and not _SHELL_SIGNS.search(unquoted)


def _outside(command):
    program = command.split()[0]
    if program in OTHERS and shutil.which(program) is None:
        pytest.skip(f"the page needs {program}")
    done = subprocess.run(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120, text=True
    )
    return done.returncode, done.stdout


def _answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _compare(shown, printed, place):
    line = missing_line(shown, printed)
    assert line is None, f"{place}\nshows: {line}\nprinted:\n{printed}"
