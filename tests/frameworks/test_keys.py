"""Each key of the catalogue exists in its framework, in the versions it is said for, with the default that is said.

The sources are not installed with the tests. `make test-frameworks` fetches them (about 200 MB, no dependency of
theirs) into `.frameworks/` and runs this file; a version that is not there is skipped.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import schemas
from lineage.judge.values import normal

from .readers import READERS
from .syntax import Keys, Member, Unknown

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("LINEAGE_FRAMEWORKS") or HERE.parents[1] / ".frameworks")
SOURCES: list[dict[str, Any]] = tomllib.loads((HERE / "sources.toml").read_text(encoding="utf-8"))["source"]
NAMES = [f"{s['framework']}-{s['version']}" for s in SOURCES]


def read(source: dict[str, Any]) -> Keys:
    """The keys of a version, or a skip that says how to get it."""
    roots = [FOLDER / folder_of(source)]
    if "beside" in source:
        roots.append(FOLDER / source["beside"].replace("==", "-"))
    for root in roots:
        if not root.is_dir():
            pytest.skip(f"{root.name} is not in {FOLDER}: `make test-frameworks` fetches it")
    found = READERS[source["reader"]](roots[0])
    if len(roots) > 1:
        beside = READERS[source["beside_reader"]](roots[1])
        # A key of both has a default where they agree on it.
        found = {
            k: v if found.get(k, v) == beside.get(k, v) else Unknown() for k, v in (beside | found).items()
        }
    return found


def folder_of(source: dict[str, Any]) -> str:
    if "package" in source:
        return str(source["package"]).replace("==", "-")
    return f"{source['repository'].replace('/', '-')}-{source['commit'][:7]}"


def rows(framework: str) -> list[schemas.Key]:
    return [k for k in schemas.catalogue().keys if k.framework == framework and not k.open]


def exists(key: str, found: Keys, reader: str) -> bool:
    """DeepSpeed's keys are words in its source, read one by one; elsewhere the whole key is there."""
    if key in found or schemas.plain_key(key) in {schemas.plain_key(k) for k in found}:
        return True
    return reader == "deepspeed" and all(part in found for part in re.split(r"\.", key))


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_every_key_exists_in_the_versions_that_it_is_said_for_and_in_no_other(source: dict[str, Any]) -> None:
    found = read(source)
    wrong = []
    for row in rows(source["framework"]):
        there, said = exists(row.name, found, source["reader"]), row.applies(source["version"])
        if source.get("partial") and not there and said:
            continue  # it may stand in the part that this source does not have
        if there != said:
            wrong.append(f"{row.concept}: {row.name} is {'there' if there else 'missing'}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("source", SOURCES, ids=NAMES)
def test_every_default_is_the_one_in_the_source(source: dict[str, Any]) -> None:
    found = read(source)
    if source.get("partial"):
        pytest.skip("the defaults stand in the part that this source does not have")
    concepts = schemas.catalogue().concepts
    wrong = []
    for row in rows(source["framework"]):
        if not row.has_default or not row.applies(source["version"]) or row.name not in found:
            continue
        default = found[row.name]
        if isinstance(default, Unknown):
            continue
        said, held = (normal(schemas.Scalar.of(v)) for v in (row.default, default))
        alike = isinstance(default, Member) and str(said).lower().startswith(str(default).lower()[:6])
        if row.negates and default in (None, False):
            held = True  # a switch that is not set leaves on what it would switch off
        off = [float(v) for v in concepts[row.concept].off]
        said, held = (None if v in off else v for v in (said, held))
        if said != held and not alike:
            wrong.append(f"{row.name}: {said!r} is said, {held!r} is there")
    assert not wrong, "\n".join(wrong)


def test_the_catalogue_names_the_versions_that_these_sources_are() -> None:
    """What docs/catalogue.md says was read is what is compared here."""
    for framework in schemas.catalogue().frameworks.values():
        versions = [s["version"] for s in SOURCES if s["framework"] == framework.id]
        assert list(framework.read) == versions, framework.id
