"""Reading JSON and YAML so that nothing is lost in silence: a key that stands twice is kept both times.

Both parsers take the last of several values under one key and say nothing. Here such a mapping is a `Doubled`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any


class Doubled(dict[Any, Any]):
    """A mapping in whose text some keys stand more than once; it holds the last value of each."""

    def __init__(self, entries: Sequence[tuple[Any, Any]] = ()) -> None:
        super().__init__(entries)
        self.again: list[tuple[Any, Any]] = []
        """the values that were written before the last one, with their keys"""


def read_json(text: str) -> Any:
    """Parse JSON. Raises `ValueError` for text that is none."""
    return json.loads(text, object_pairs_hook=mapping)


def mapping(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """A mapping of pairs as they were written: a `Doubled` where a key stands twice."""
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    found = Doubled(pairs)
    last = {key: i for i, (key, _) in enumerate(pairs)}
    found.again = [(key, value) for i, (key, value) in enumerate(pairs) if last[key] != i]
    return found


def read_yaml(text: str) -> Any:
    """Parse YAML. Raises `ValueError` for text that is none, `ImportError` without PyYAML."""
    import yaml

    try:
        return yaml.load(text, _loader())  # a subclass of the safe loader
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


_MOST_MERGED = 1_000
"""Pairs of a section with merges (`<<`) above which those that are overridden are dropped at once."""


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """The safe loader, which also tells of keys that stand twice."""

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            """Merge sections; ten merges of ten merges must not grow tenfold each time."""
            super().flatten_mapping(node)
            if len(node.value) > _MOST_MERGED:
                node.value = list({_name(key): (key, value) for key, value in node.value}.values())

        def construct_yaml_map(self, node: yaml.MappingNode) -> Generator[dict[Any, Any], None, None]:
            earlier = _earlier(node.value)
            data: dict[Any, Any] = Doubled() if earlier else {}
            yield data
            data.update(self.construct_mapping(node))
            if isinstance(data, Doubled):
                data.again = [(self.construct_object(k), self.construct_object(v)) for k, v in earlier]

    def _name(node: Any) -> object:
        return (node.tag, node.value) if isinstance(node, yaml.ScalarNode) else id(node)

    def _earlier(pairs: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        last = {_name(key): i for i, (key, _) in enumerate(pairs)}
        merge = "tag:yaml.org,2002:merge"
        return [p for i, p in enumerate(pairs) if last[_name(p[0])] != i and p[0].tag != merge]

    Loader.add_constructor("tag:yaml.org,2002:map", Loader.construct_yaml_map)
    return Loader
