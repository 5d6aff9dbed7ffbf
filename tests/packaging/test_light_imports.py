"""Recording and reading need no torch, tracker, database or chart library: none of them is in reach here."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = """
import sys

HEAVY = {"torch", "wandb", "mlflow", "duckdb", "jinja2", "altair", "vl_convert", "pandas"}

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY | MORE:
            raise ModuleNotFoundError(f"{name} is blocked in this test", name=name)
        return None
"""

JOURNAL = """
import tempfile, pathlib, schemas, uuid
from lineage.ledger.journal import Journal
uid = "0197a3c4-0000-7000-8000-000000000001"
folder = pathlib.Path(tempfile.mkdtemp()) / "run-1"
journal = Journal(folder, "run-1", uid, 0, schemas.Place(node="n", pid=1))
journal.append(schemas.Run(uid="run-1", name="pretrain"))
journal.close()
ledger = lineage.open_ledger(folder)
assert [r.kind for r in ledger.records] == ["journal_header", "run"], ledger.records
assert ledger.damage == []
"""


# pyarrow asks for numpy itself before 18; from then on nothing of ours brings it.
NUMPY_TOO = int(importlib.metadata.version("pyarrow").partition(".")[0]) >= 18


def _run(code: str, arguments: tuple[str, ...] = ()) -> None:
    block = BLOCK.replace("MORE", repr({"numpy"} if NUMPY_TOO else set()))
    whole = f"{block}\nsys.meta_path.insert(0, Blocked())\n{code}\nprint('done')"
    done = subprocess.run(
        [sys.executable, "-c", whole, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


def test_the_block_is_real() -> None:
    _run("try:\n    import torch\nexcept ModuleNotFoundError:\n    pass\nelse:\n    sys.exit('torch came')")


@pytest.mark.parametrize("module", ["schemas", "trackers", "lineage", "schemas.publish"])
def test_importing_a_room_needs_no_heavy_library(module: str) -> None:
    _run(f"import {module}")


def test_schemas_needs_pydantic_and_no_other_third_party_library() -> None:
    _run(
        "import schemas, schemas.publish, schemas.sidecar\n"
        "tops = {n.partition('.')[0] for n in sys.modules} - sys.stdlib_module_names\n"
        "named = {t for t in tops if not t.startswith('_')}\n"
        "third = {t for t in named if getattr(sys.modules.get(t), '__file__', None)}\n"
        "known = {'schemas', 'pydantic', 'pydantic_core', 'annotated_types', 'typing_extensions',"
        " 'typing_inspection'}\n"
        "assert third <= known, third - known"
    )


def test_importing_lineage_alone_loads_no_arrow_and_no_command_line() -> None:
    _run(
        "import lineage\nassert not {'pyarrow', 'typer', 'rich'} & set(sys.modules), 'import is slow for all'"
    )


def test_a_ledger_is_written_and_read_without_any_of_them() -> None:
    _run("import lineage\n" + JOURNAL)


def test_a_golden_ledger_is_read_without_any_of_them(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "schemas" / "golden" / "1-0-0" / "journal.jsonl"
    folder = tmp_path / "run" / "journal" / "0197a3c4-0000-7000-8000-000000000002"
    folder.mkdir(parents=True)
    (folder / "node-00000-1-1.jsonl").write_bytes(golden.read_bytes())
    _run(
        "import lineage\nledger = lineage.open_ledger(sys.argv[1])\n"
        "assert ledger.damage == [], ledger.damage\nassert ledger.last('checkpoint').payload.step == 2000",
        arguments=(str(tmp_path / "run"),),
    )


def test_steps_without_a_model_need_none_of_them_and_bring_none(tmp_path: Path) -> None:
    """Training in something else than torch: losses are recorded, and no part of the layer fails."""
    _run(
        "import lineage\nrec = lineage.attach(None, dir=sys.argv[1], run_id='r', report=False, quiet=True)\n"
        "for step in (1, 2):\n    with rec.step(step) as st:\n        st.loss(1.0)\n"
        "rec.close()\nledger = lineage.open_ledger(sys.argv[1] + '/r')\n"
        "assert not ledger.of('degraded'), ledger.of('degraded')\n"
        "assert ledger.last('segment_end').payload.last_step == 2",
        arguments=(str(tmp_path),),
    )


def test_batches_without_torch_have_a_fingerprint(tmp_path: Path) -> None:
    """Plain lists, texts and their ids: digests and samples, and no part of the layer fails."""
    _run(
        "import lineage\nrec = lineage.attach(None, dir=sys.argv[1], run_id='r', report=False, quiet=True)\n"
        "for step in (1, 2):\n"
        "    with rec.step(step, {'text': [f'a {step}', 'b'], 'ids': [[1, 2], [3]], 'idx': [step, 9]}) as st:\n"
        "        st.domain_loss({'web': 1.0})\n"
        "rec.close()\nledger = lineage.open_ledger(sys.argv[1] + '/r')\n"
        "assert not ledger.of('degraded'), ledger.of('degraded')\n"
        "rows = ledger.series('samples').to_pylist()\n"
        "assert [r['sample'] for r in rows] == ['1', '9', '2', '9'], rows\n"
        "assert rows[1]['digest'] == rows[3]['digest'] != rows[0]['digest']\n"
        "assert [f.payload.code for f in ledger.of('finding')] == ['LIN-B002']",
        arguments=(str(tmp_path),),
    )
