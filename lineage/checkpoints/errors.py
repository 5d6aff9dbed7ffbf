"""Why a file of a checkpoint could not be read."""

from __future__ import annotations


class CheckpointError(Exception):
    """A file, or a folder, of a checkpoint cannot be read; the text says why, in words for a person."""


class CutOff(CheckpointError):
    """The file ends before its content does."""


class Damaged(CheckpointError):
    """The bytes are not what the format says."""


class Hostile(CheckpointError):
    """A pickle names code that no checkpoint needs; the text is the name."""


class NotPlain(CheckpointError):
    """A pickle asks for an operation that plain data do not need; the text is its name."""


class Refused(CheckpointError):
    """Reading would leave the folder, follow a link out of it, or unpack far more than there is."""


class TooBig(CheckpointError):
    """A description is larger than the caller has time for."""


class Unreadable(CheckpointError):
    """The file is there and its bytes cannot be had: permission, a file that changes, a pointer instead of it."""


class NoStore(CheckpointError):
    """A URL cannot be read: what reads it is not installed, or the store says no."""
