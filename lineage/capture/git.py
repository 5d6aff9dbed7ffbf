"""Running git: bounded in time and output, never asking anything, never running hooks or user programs."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_CHUNK = 1 << 16
_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",  # `git status` must not take the index lock from the user's own git
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    "GIT_PAGER": "cat",
    "LC_ALL": "C",
}
# A file-system monitor is a program of the user's, and prefixes decide whether a patch can be applied.
_SETTINGS = (
    *("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "diff.noprefix=false"),
    *("-c", "diff.mnemonicPrefix=false", "-c", "diff.renames=false", "-c", "color.ui=false"),
)


@dataclass(frozen=True)
class Answer:
    """What a git command gave. `why` says in words why it gave nothing, and is empty if it ended well."""

    output: bytes
    why: str = ""
    cut: bool = False
    """the output was longer than allowed, and git was stopped"""

    @property
    def ok(self) -> bool:
        """Whether git ended well and everything was read."""
        return not self.why and not self.cut

    @property
    def text(self) -> str:
        """The output as text, without the last line end; bytes that are not UTF-8 become surrogates."""
        return self.output.decode("utf-8", "surrogateescape").rstrip("\n")


class Git:
    """Git in one folder, with one deadline for all commands together."""

    def __init__(self, folder: Path, timeout: float) -> None:
        self.folder = folder
        self.timeout = timeout
        self.index: Path | None = None
        """a copy of the index to use, since `git diff` refreshes and rewrites the index that it reads"""
        self._deadline = time.monotonic() + timeout

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def __call__(self, *args: str, limit: int = 64 << 20) -> Answer:
        """Run `git <args>` and return at most `limit` bytes of its output. Never raises."""
        if self.left <= 0:
            return Answer(b"", f"git {args[0]} was not run: {self.timeout:g} s for git had passed")
        try:
            process = subprocess.Popen(
                ["git", "--no-pager", *_SETTINGS, *args],
                cwd=self.folder,
                env={**os.environ, **_QUIET, **({"GIT_INDEX_FILE": str(self.index)} if self.index else {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # so that a hanging helper of git's can be stopped with it
            )
        except FileNotFoundError:
            return Answer(b"", "git is not installed, or not on PATH")
        except OSError as error:
            return Answer(b"", f"git could not be started ({error.strerror})")
        try:
            return self._read(process, args[0], limit)
        finally:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe:
                    pipe.close()

    def _read(self, process: subprocess.Popen[bytes], name: str, limit: int) -> Answer:
        assert process.stdout is not None
        assert process.stderr is not None
        got: dict[str, bytearray] = {"out": bytearray(), "err": bytearray()}
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, "out")
            selector.register(process.stderr, selectors.EVENT_READ, "err")
            while selector.get_map():
                ready = selector.select(max(0.0, self.left))
                if not ready and self.left <= 0:
                    return Answer(bytes(got["out"]), f"git {name} took longer than {self.timeout:g} s")
                for key, _ in ready:
                    data = os.read(key.fd, _CHUNK)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.data == "out" or len(got["err"]) < _CHUNK:
                        got[key.data] += data
                if len(got["out"]) > limit:
                    return Answer(bytes(got["out"][:limit]), cut=True)
        try:
            code = process.wait(max(0.1, self.left))
        except subprocess.TimeoutExpired:
            return Answer(bytes(got["out"]), f"git {name} took longer than {self.timeout:g} s")
        return Answer(bytes(got["out"]), _reason(name, code, got["err"].decode("utf-8", "replace")))


def _reason(name: str, code: int, error: str) -> str:
    if code == 0:
        return ""
    if "dubious ownership" in error:
        return (
            "git refuses this repository because another user owns it (safe.directory): "
            "git config --global --add safe.directory <its path>"
        )
    if "not a git repository" in error:
        return "no git repository here"
    first = next((line for line in error.splitlines() if line.strip()), "")
    return f"git {name} failed ({first.strip()[:200]})" if first else f"git {name} ended with {code}"
