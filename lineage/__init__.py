"""Lineage of training runs."""

from ._build import VERSION as __version__
