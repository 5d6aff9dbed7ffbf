"""W&B's own terminal viewer (`wandb leet`) in a pseudo-terminal, read back as text and as a picture."""

from __future__ import annotations

import fcntl
import html
import os
import pty
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyte

ANSWERS = {
    b"\x1b]11;?": b"\x1b]11;rgb:1414/1616/1a1a\x1b\\",
    b"\x1b[c": b"\x1b[?62;c",
    b"\x1b[6n": b"\x1b[1;1R",
}
"""What a program asks of its terminal, and what a real one answers."""
WANTED = "^lineage/(verdict|advice|status|broken|claims|quarantined|regime$)"
"""What a person searches the run's overview for; the viewer takes a pattern."""


class Leet:
    """One run's local log in `wandb leet`, until `close`."""

    def __init__(self, log: Path, width: int = 190, height: int = 60) -> None:
        self.screen = pyte.Screen(width, height)
        self._stream = pyte.ByteStream(self.screen)
        self._settings = tempfile.TemporaryDirectory(prefix="leet-")
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            # the viewer keeps where panes were dragged to; of xterm's shortcuts pyte knows too few
            os.environ.update(WANDB_CONFIG_DIR=self._settings.name, TERM="vt220", COLORTERM="truecolor")
            os.execvp(sys.executable, [sys.executable, "-m", "wandb", "leet", "run", str(log)])
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, shown: Callable[[str], bool], seconds: float = 120.0) -> str:
        """Read until the screen shows it, and a moment longer; returns the text."""
        end = time.monotonic() + seconds
        while not shown(self.text):
            if time.monotonic() > end:
                raise AssertionError(f"after {seconds:.0f} s the screen shows:\n{self.text}")
            self._read(0.2)
        while self._read(0.5):
            pass
        return self.text

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            os.write(self._fd, key.encode())
            while self._read(0.5):
                pass

    def drag(self, column: int, to: int, row: int = 10) -> None:
        """Drag with the mouse from one column to another, as terminals report it; both count from 1."""
        self.press(f"\x1b[<0;{column};{row}M")
        for x in range(column, to + 1, 10):
            self.press(f"\x1b[<32;{x};{row}M")
        self.press(f"\x1b[<32;{to};{row}M", f"\x1b[<0;{to};{row}m")

    def verdict(self) -> str:
        """Have the screen as a person does who looks for the verdict: the panes drawn wide, the items searched."""
        self.until(lambda text: "lineage/" in text)
        self.press("2")  # the machine's metrics, of which there are none here
        border = next(line.index("│") for line in self.screen.display if "│" in line)
        self.drag(border + 1, self.screen.columns * 2 // 3)
        self.press("o", WANTED, "\r")
        return self.until(lambda text: "filtered from" in text)

    def close(self) -> None:
        """Leave the viewer."""
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._fd)
        self._settings.cleanup()

    def _read(self, seconds: float) -> bool:
        """Read what comes within some seconds; tells whether anything came."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the viewer has ended
            return False
        for asked, answer in ANSWERS.items():
            if asked in data:
                os.write(self._fd, answer)
        self._stream.feed(data)
        return bool(data)


def as_html(screen: pyte.Screen) -> str:
    """The screen as a page, with its colours."""
    rows = [_row([screen.buffer[y][x] for x in range(screen.columns)]) for y in range(screen.lines)]
    style = (
        "body{margin:0;background:#14161a}pre{margin:0;padding:8px;color:#d7dae0;"
        "font:13px/16px 'DejaVu Sans Mono',monospace;width:max-content}"
        "i{display:inline-block;width:1ch;height:16px;overflow:hidden;font-style:normal;vertical-align:top}"
    )
    return f"<!doctype html><meta charset=utf-8><style>{style}</style><pre>{chr(10).join(rows)}</pre>"


def _row(cells: Sequence[Any]) -> str:
    out, start = [], 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or _look(cells[end]) != _look(cells[start]):
            words = "".join(_letter(c.data) for c in cells[start:end])
            out.append(f"<span style='{_css(cells[start])}'>{words}</span>")
            start = end
    return "".join(out)


def _letter(letter: str) -> str:
    """A letter as wide as all: the dots of charts come from another font."""
    told = html.escape(letter)
    return f"<i>{told}</i>" if "\u2800" <= letter <= "\u28ff" else told


def _look(cell: Any) -> tuple[Any, ...]:
    return (cell.fg, cell.bg, cell.bold, cell.reverse)


def _css(cell: Any) -> str:
    front, back = (cell.bg, cell.fg) if cell.reverse else (cell.fg, cell.bg)
    named = {"default": "", "brown": "olive"}
    colours = {"color": named.get(front, _colour(front)), "background": named.get(back, _colour(back))}
    css = ";".join(f"{k}:{v}" for k, v in colours.items() if v)
    return css + (";font-weight:bold" if cell.bold else "")


def _colour(name: str) -> str:
    return f"#{name}" if len(name) == 6 and all(c in "0123456789abcdefABCDEF" for c in name) else name
