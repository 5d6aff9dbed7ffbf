"""A user's own `schemas` and `trackers` beside the training script, really shadowing ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

THEIR_SCHEMAS = 'OWNER = "the user"\nfrom .tables import TABLE\n'
THEIR_TRACKERS = 'OWNER = "the user"\n'

IMPORT = "import lineage, lineage.schemas"

USE = """
record = lineage.schemas.Alarm(
    code="LIN-A001", phase="onset", signal="loss", scope="rank", abnormal="non_finite",
    value=float("nan"), text="the loss is not a number",
)
assert type(record).__module__ == "lineage.schemas.judgements", type(record).__module__
from lineage._rooms import schemas as ours, trackers
assert ours is lineage.schemas
assert ours.catalogue().claims
assert trackers.__name__ == "lineage.trackers"
assert trackers.adapter("local", ".").alias() == ours.TrackerAlias(tracker="local", id=".")
"""

THEIRS = """
assert schemas.OWNER == trackers.OWNER == "the user"
assert schemas.TABLE == "users"
import schemas.tables
assert schemas.__file__ == {folder!r} + "/schemas/__init__.py", schemas.__file__
assert sys.modules["schemas"] is schemas and sys.modules["trackers"] is trackers
"""


@pytest.fixture
def script_folder(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "__init__.py").write_text(THEIR_SCHEMAS)
    (tmp_path / "schemas" / "tables.py").write_text('TABLE = "users"\n')
    (tmp_path / "trackers.py").write_text(THEIR_TRACKERS)
    return tmp_path


def _train(folder: Path, *parts: str) -> None:
    script = folder / "train.py"
    script.write_text("\n".join(["import sys", *parts, 'print("trained")']))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("trained\n")


@pytest.mark.parametrize("first", ["user", "lineage"])
def test_the_users_modules_stay_theirs_whoever_is_imported_first(script_folder: Path, first: str) -> None:
    theirs = ["import schemas, trackers", THEIRS.format(folder=str(script_folder))]
    ours = [IMPORT, USE]
    order = [*theirs, *ours, *theirs] if first == "user" else [*ours, *theirs]
    _train(script_folder, *order)


def test_one_shadowed_name_is_enough_for_both_to_be_loaded_beside(script_folder: Path) -> None:
    (script_folder / "trackers.py").unlink()
    _train(
        script_folder,
        IMPORT,
        USE,
        'assert "trackers" not in sys.modules and "schemas" not in sys.modules',
    )


def test_no_line_of_the_users_modules_runs_by_importing_lineage(script_folder: Path) -> None:
    boom = 'raise SystemExit("the user\'s module ran")\n'
    (script_folder / "schemas" / "__init__.py").write_text(boom)
    (script_folder / "trackers.py").write_text(boom)
    _train(script_folder, IMPORT, USE)


def test_a_user_module_that_stands_in_for_a_package_is_left_alone(script_folder: Path) -> None:
    _train(
        script_folder,
        "import types",
        'sys.modules["schemas"] = stand_in = types.ModuleType("schemas")',
        IMPORT,
        USE,
        'assert sys.modules["schemas"] is stand_in',
    )


def test_records_pickle_within_a_shadowed_process(script_folder: Path) -> None:
    _train(
        script_folder,
        "import pickle",
        IMPORT,
        "place = lineage.schemas.Place(node='n', pid=1)",
        "assert pickle.loads(pickle.dumps(place)) == place",
    )


def test_without_a_shadow_the_rooms_keep_their_own_names(tmp_path: Path) -> None:
    _train(
        tmp_path,
        "import lineage, schemas, trackers",
        "from lineage import _rooms",
        "assert _rooms.schemas is schemas and _rooms.trackers is trackers",
        'assert "lineage.schemas" not in sys.modules',
    )
