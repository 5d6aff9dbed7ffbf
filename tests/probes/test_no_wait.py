"""Nothing waits for a device: no operator that reads a value back, and results arrive when they arrive."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode

from lineage.probes import plain
from lineage.probes.columns import WIDTH
from lineage.probes.probes import Probes, Settings
from lineage.probes.ring import Ring
from lineage.probes.sheet import Sheet

from .models import batch, loss_of, net

READS_BACK = ("aten._local_scalar_dense", "aten.item", "aten.is_nonzero", "aten.equal", "aten.nonzero")


class Operators(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[str(func).rsplit(".", 1)[0]] += 1
        return func(*args, **(kwargs or {}))

    def read_back(self) -> dict[str, int]:
        return {name: n for name, n in self.count.items() if name in READS_BACK}


def steps(probes: Probes | None, model: Any, optimizer: Any, count: int) -> None:
    for step in range(1, count + 1):
        if probes:
            probes.start()
        optimizer.zero_grad()
        loss_of(model, batch(step)).backward()
        optimizer.step()
        if probes:
            probes.finish(step)
            probes.arrived()


def test_a_whole_step_with_all_probes_reads_no_value_back() -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    steps(None, model, optimizer, 1)
    with Operators() as bare:
        steps(None, model, optimizer, 3)
    assert bare.read_back() == {}, "the loop itself reads nothing back, so what is found below is ours"
    probes = Probes(model=model, optimizer=optimizer, settings=Settings(activations=True, state_every=1))
    with Operators() as counted:
        steps(probes, model, optimizer, 3)
    assert counted.read_back() == {}
    assert sum(counted.count.values()) > sum(bare.count.values()), "the count sees our operators"
    probes.remove()


def test_the_count_sees_an_item() -> None:
    with Operators() as counted:
        torch.ones(()).item()
    assert counted.read_back() == {"aten._local_scalar_dense": 1}


def test_the_plain_read_for_other_devices_reads_no_value_back() -> None:
    out = torch.zeros(WIDTH, dtype=torch.float64)
    with Operators() as counted:
        plain.read([torch.randn(5000)], out, digest=True)
    assert counted.read_back() == {}


def test_a_full_ring_drops_and_counts_instead_of_waiting() -> None:
    sheet = Sheet("cpu")
    ring = Ring(sheet, depth=2)
    taken = [ring.push(), ring.push(), ring.push()]
    assert [t is not None for t in taken] == [True, True, False]
    assert ring.dropped == 1
    assert taken[0] is not None
    taken[0].take()
    assert ring.push() is taken[0]


def test_what_was_sent_is_not_changed_by_the_next_step() -> None:
    sheet = Sheet("cpu")
    ring = Ring(sheet)
    (row,) = sheet.rows("gradient", ["w"])
    sheet.buffer[row] = 1.0
    first = ring.push()
    assert sheet.used().tolist() == [[0.0] * WIDTH], "and the sheet is clear for it"
    sheet.buffer[row] = 2.0
    assert first is not None
    assert first.take() == [(("gradient", "w"), [1.0] * WIDTH)]


def test_rows_that_are_added_later_do_not_move_earlier_ones() -> None:
    sheet = Sheet("cpu")
    ring = Ring(sheet)
    rows = sheet.rows("gradient", [f"w{i}" for i in range(60)])
    sheet.buffer[rows[7]] = 7.0
    more = sheet.rows("moment1", [f"w{i}" for i in range(60)])
    sheet.buffer[more[3]] = 3.0
    slot = ring.push()
    assert slot is not None
    found = {key: row[0] for key, row in slot.take() if row[0]}
    assert found == {("gradient", "w7"): 7.0, ("moment1", "w3"): 3.0}


def test_the_host_that_does_not_take_loses_steps_and_is_told_how_many() -> None:
    model = net()
    probes = Probes(model=model)
    for step in range(1, 12):
        probes.start()
        loss_of(model, batch(step)).backward()
        probes.finish(step)
    frames = probes.arrived()
    assert [f.step for f in frames] == list(range(1, 9))
    probes.start()
    probes.finish(12)
    (frame,) = probes.arrived()
    assert frame.facts.dropped == 3
    probes.remove()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_a_whole_step_on_cuda_synchronises_nowhere() -> None:
    model = net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    probes = Probes(model=model, optimizer=optimizer, settings=Settings(activations=True, state_every=1))
    ids = [batch(step).cuda() for step in range(1, 7)]
    for step, x in enumerate(ids, start=1):
        if step == 4:  # kernels are compiled and tables are built by now
            torch.cuda.set_sync_debug_mode("error")
        probes.start()
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()
        probes.finish(step)
        probes.arrived()
    torch.cuda.set_sync_debug_mode("default")
    frames = probes.arrived(wait=True)
    assert probes.trouble == {}
    assert {k.kind for k in frames[-1].found} == {
        "gradient",
        "weight",
        "moment1",
        "moment2",
        "update",
        "activation",
    }
    probes.remove()
