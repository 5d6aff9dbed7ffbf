"""One realistic payload of every kind, with every field set and every id fixed."""

from __future__ import annotations

import hashlib
import math
from datetime import UTC, datetime
from typing import Any, Literal

import schemas as s
from lineage.ledger.files import root_of
from schemas import Scalar

from . import golden_incidents, golden_replays, golden_rungs


def uid(n: int) -> str:
    """A fixed UUIDv7."""
    return f"0197a3c4-{n:04x}-7000-8000-{n:012x}"


def sha(text: str) -> str:
    """A fixed digest."""
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


SEGMENT, BEFORE = uid(2), uid(1)
CHECKPOINT, PARENT, MITIGATION, INCIDENT = uid(0x11), uid(0x10), uid(0x20), uid(0x30)
REGIME_BEFORE, REGIME = sha("regime 0"), sha("regime 1")
PLACE = s.Place(node="node1", local_rank=0, device="GPU-5f0c9a1e-0000-4000-8000-000000000001", pid=4242)
WANDB = s.TrackerAlias(
    tracker="wandb",
    id="3k2j1h0g",
    project="pretrain",
    uri="https://wandb.example",
    url="https://wandb.example/team/pretrain/runs/3k2j1h0g",
)
CLIP = {
    "requested_before": Scalar.of(1.0),
    "requested_after": Scalar.of(0.3),
    "effective_before": Scalar.of(1.0),
    "effective_after": Scalar.of(0.3),
}


def segment() -> s.Segment:
    """The segment that resumes from step 1,000's checkpoint."""
    return s.Segment(
        uid=SEGMENT,
        start="resume",
        parent_checkpoint=PARENT,
        parent_evidence="content",
        parent_step=1000,
        world_size=2,
        place=PLACE,
        identity="launcher",
        step_base=0,
        settings={"fsync": Scalar.of(True), "sample_every": Scalar.of(1)},
    )


def config() -> s.Config:
    """Config values of every type."""
    values = {
        "optim.lr": Scalar.of(3e-4),
        "optim.betas": Scalar.of([0.9, 0.95]),
        "optim.name": Scalar.of("adamw"),
        "data.seed": Scalar.of(1234),
        "data.shuffle": Scalar.of(True),
        "data.note": Scalar.of("NaN"),
        "loss.cap": Scalar.of(math.inf),
        "model.init": Scalar(type="repr", value="<function init at 0x7f00>"),
        "resume": Scalar.of(None),
        "hub.token": s.MASKED,
    }
    argv = ["train.py", "--config", "7b.yaml", "--hub-token", "(masked)"]
    odd = ["the key lr stands 2 times; the last is used: 0.0003; also: 0.001"]
    return s.Config(source="dict", values=values, digest=sha("config"), masked=2, argv=argv, problems=odd)


def effective() -> s.Effective:
    """What the live objects hold."""
    lr = s.EffectiveValue(value=Scalar.of(3e-4), read_from="optimizer.param_groups[0].lr")
    clip = s.EffectiveValue(value=Scalar.of(0.3), read_from="clip_grad_norm_(max_norm)")
    return s.Effective(
        moment="after_first_step",
        values={"learning_rate": lr, "grad_clip": clip},
        unseen={"data_order": "the loader has no sampler that can be read"},
        lr_ahead={2000: [3e-4], 4000: [2.5e-4]},
    )


def code() -> s.CodeState:
    """A dirty work tree."""
    return s.CodeState(
        repository=True,
        revision="8b1d9c3f0e4a5b6c7d8e9f00112233445566778a",
        branch="main",
        remote="https://(masked)@git.example/team/pretrain.git",
        dirty=True,
        diff=sha("diff"),
        diff_bytes=1834,
        diff_replayable=False,
        submodules={"third_party/kernels": "0f1e2d3c4b5a69788796a5b4c3d2e1f001122334"},
        untracked=[s.UntrackedFile(path="notes.txt", size=120, digest=sha("notes"))],
        modules={"utils.py": sha("utils")},
        loaded={"train.py": "sha1:" + "3c" * 20},
        loaded_whole=True,
        entry="train.py",
        note="submodule third_party/kernels is dirty too",
        unread=["diff"],
    )


def environment() -> s.Environment:
    """Packages, builds and switches."""
    return s.Environment(
        python="3.11.7",
        platform="Linux-6.8-x86_64",
        packages={"torch": "2.13.0", "wandb": "0.31.0"},
        direct_urls={"kernels": "git+https://(masked)@git.example/team/kernels"},
        builds={"torch": "2.13.0+cu130", "cuda": "13.0", "nccl": "2.28.3", "driver": "580.65"},
        devices=[s.Device(name="NVIDIA H200", uuid=PLACE.device, memory=150754820096, capability="9.0")],
        variables={"NCCL_ALGO": "Ring", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
        switches={"deterministic_algorithms": Scalar.of(False), "float32_matmul": Scalar.of("high")},
        world_size=2,
        digest=sha("environment"),
    )


def checkpoint(status: Literal["pending", "complete"]) -> s.Checkpoint:
    """The checkpoint at step 2,000; `complete` adds what is known once its files are there."""
    files = [
        s.FileEntry(path="model/rank0.pt", size=4096, digest="blake3:" + "1a" * 32),
        s.FileEntry(path="optim.pt", size=8192, digest="blake3:" + "2b" * 32),
    ]
    method = s.Manifest.model_fields["method"].default
    live = [
        s.ComponentDigest(
            component="optimizer_step",
            digest=sha("optimizer step"),
            scope="replicated",
            detail={"step": Scalar.of(2000)},
            note="one skipped update",
        ),
        s.ComponentDigest(component="rng", digest=None, scope="rank", detail={}, note="no CUDA generator"),
    ]
    return s.Checkpoint(
        uid=CHECKPOINT,
        step=2000,
        status=status,
        path="/checkpoints/step-2000",
        parents=[PARENT],
        transformation="merge",
        regime=REGIME,
        samples=512000,
        tokens=1048576000,
        live=live,
        manifest=s.Manifest(root=root_of(files), files=files, method=method)
        if status == "complete"
        else None,
        missing=["loader_position"],
        lr_ahead={2001: [3e-4], 4000: [2.5e-4, 2.5e-5]},
    )


def change() -> s.Change:
    """A changed clip threshold."""
    return s.Change(
        concept="grad_clip",
        cls="R",
        title="gradient clipping",
        keys=["optim.clip"],
        **CLIP,
        read_from="clip_grad_norm_(max_norm)",
        mitigation=MITIGATION,
        text="gradient clipping: 1.0 -> 0.3",
        evidence=[uid(0x104)],
    )


def cell(rank: int) -> s.Cell:
    """A cell of the rank x step grid."""
    return s.Cell(
        segment=SEGMENT,
        rank=rank,
        step=2004,
        signal="grad_norm_local",
        abnormal="non_finite",
        value=math.nan,
        text=f"rank {rank}, step 2,004: the local gradient norm is not a number",
        layer="blocks.3",
        tensor="blocks.3.attn.weight",
        order=7,
        last_good=2000,
    )


def first_half() -> list[tuple[int | None, s.Model]]:
    """What is written up to the checkpoint."""
    unclassified = s.Change(concept="unclassified", cls="unclassified", title="my.key", text="my.key: 1 -> 2")
    return [
        (
            None,
            s.JournalHeader(
                format="lineage-journal/1",
                place=PLACE,
                previous=[s.Head(file=f"{BEFORE}/node1-00000-17-1.jsonl", seq=41, digest=sha("head"))],
                set_aside=[f"{BEFORE}/node1-00001-18-1.jsonl"],
            ),
        ),
        (None, s.Run(uid="pretrain-7b", name="7B", aliases=[WANDB], fork_of="pretrain-1b", source="sidecar")),
        (1000, segment()),
        (1000, config()),
        (1000, effective()),
        (1000, code()),
        (1000, environment()),
        (
            1000,
            s.Coverage(
                recorded=["weights", "optimizer_state"],
                missing={"lr_scheduler": "lineage.attach(run, scheduler=scheduler)"},
                gaps=["attached after the first forward"],
            ),
        ),
        (
            1000,
            s.Restore(
                checkpoint=PARENT,
                components=[
                    s.ComponentRestore(
                        component="optimizer_state",
                        status="absent",
                        saved=sha("moments"),
                        live=sha("zeros"),
                        text="the optimizer's moments are zero after the load: they were not restored",
                        parts={"torch": Scalar.of("9f86d081884c7d65")},
                    )
                ],
            ),
        ),
        (
            1000,
            s.Mitigation(
                uid=MITIGATION,
                concept="grad_clip",
                before=Scalar.of(1.0),
                after=Scalar.of(0.3),
                who="ada",
                why="gradient norm spikes before the loss diverged",
                hypothesis="a few batches give outsized updates",
                smallest_justified="skipping the batches did not help",
            ),
        ),
        (
            1001,
            s.MitigationEffect(
                mitigation=MITIGATION,
                in_effect="yes",
                from_step=1001,
                to_step=2005,
                effective=Scalar.of(0.3),
                text="clip_grad_norm_ was called with 0.3 from step 1,001 on",
                evidence=[uid(0x104)],
            ),
        ),
        (
            1001,
            s.Drift(
                moment="resume",
                parent_checkpoint=PARENT,
                from_step=1001,
                lower_bound="dated 2026-03-24",
                changes=[change()],
                unclassified=[unclassified],
                confounded=True,
                undeclared=["optimizer_state"],
                unproven=["data_skip"],
                not_shown={"lr_scheduler": "lineage.attach(run, scheduler=scheduler)"},
            ),
        ),
        (
            1001,
            s.Regime(
                id=REGIME,
                index=1,
                from_step=1001,
                lower_bound="dated 2026-03-24",
                previous=REGIME_BEFORE,
                values={"grad_clip": Scalar.of(0.3), "learning_rate": Scalar.of(3e-4)},
                because=["gradient clipping: 1.0 -> 0.3"],
            ),
        ),
        (2000, checkpoint("pending")),
    ]


def second_half() -> list[tuple[int | None, s.Model]]:
    """What is written after the checkpoint, up to the seal."""
    link = s.ChainLink(
        code="LIN-D001",
        concept="grad_clip",
        step=1001,
        segment=SEGMENT,
        declared=True,
        effect="broken",
        text="gradient clipping: 1.0 -> 0.3",
        records=[uid(0x10B)],
    )
    broken = s.ClaimVerdict(
        claim="loss_curve", status="broken", reason="gradient clipping changed", chain=[link], show=None
    )
    unshown = s.ClaimVerdict(
        claim="bitwise",
        status="not_shown",
        reason="the loader position was not recorded",
        chain=[],
        show="lineage.attach(run, loader=loader)",
    )
    return [
        (
            2000,
            s.Verdict(
                subject="run:pretrain-7b",
                reference="self",
                status="broken",
                since_step=1001,
                confounded=True,
                claims=[broken, unshown],
                path=[BEFORE, SEGMENT],
                policy=sha("policy"),
            ),
        ),
        (
            2000,
            s.Evaluation(
                checkpoint=CHECKPOINT,
                evaluator="harness",
                evaluator_version="0.4.9",
                data=sha("evaluation data"),
                results={"accuracy": 0.4375, "perplexity": math.inf},
            ),
        ),
        (
            2004,
            s.Alarm(
                code="LIN-A002",
                phase="onset",
                signal="grad_norm_local",
                scope="rank",
                abnormal="non_finite",
                value=math.nan,
                baseline=1.125,
                threshold=8.5,
                tensors=["layers.3.mlp.up.weight"],
                detector={"name": Scalar.of("non_finite")},
                text="the local gradient norm is not a number",
            ),
        ),
        (
            2004,
            s.FirstBad(
                cell=cell(1),
                ties=[cell(0)],
                last_good_step=2003,
                last_good_checkpoint=CHECKPOINT,
                first_bad_checkpoint=uid(0x12),
                place=s.Place(node="n-1", local_rank=1, device="GPU-1", pid=2),
                spread=["rank 1, step 2,004", "all ranks, step 2,005"],
                later=["step 2,005: loss abnormal on ranks 0, 1"],
                samples=[
                    s.BadSample(
                        micro=1,
                        place=5,
                        sample="doc-17",
                        digest="00ff",
                        loss=math.nan,
                        text="sample 5: loss is NaN",
                    )
                ],
                symptoms=[
                    s.Symptom.model_validate(
                        {
                            "class": "one_rank",
                            "reason": "7 of 8 ranks are in range",
                            "evidence": ["on node n-1"],
                            "checks": [
                                {
                                    "text": "its batch on another rank",
                                    "source": "a paper",
                                    "command": "lineage show",
                                }
                            ],
                        }
                    )
                ],
                gaps=["rank 3 recorded nothing"],
                not_shown=["which sample of the batch"],
            ),
        ),
        (
            2004,
            s.Incident(
                uid=INCIDENT,
                status="open",
                title="non-finite gradient on rank 1",
                opened_by="alarm",
                owner="ann",
                concept="loss_scale",
                note="the evidence is being copied",
                first_bad_step=2004,
                first_bad_rank=1,
                last_good_checkpoint=CHECKPOINT,
                code="LIN-A002",
            ),
        ),
        (
            2004,
            s.Preserved(
                what="last good checkpoint",
                source="/checkpoints/step-2000",
                location="evidence/last-good-checkpoint",
                root=sha("preserved"),
                files=2,
                bytes=12288,
                method="copy",
                verified=True,
            ),
        ),
        (
            2004,
            s.CheckpointMark(
                checkpoint=CHECKPOINT,
                mark="last_good",
                why="the latest complete checkpoint before the first bad step",
                evidence=[uid(0x112)],
            ),
        ),
        (
            2004,
            s.Preserved(
                what="checkpoint",
                source="/checkpoints/step-2000",
                location="evidence/checkpoint-a1b2",
                root=sha("preserved"),
                files=2,
                bytes=12288,
                method="moved",
                verified=False,
                at="/checkpoints.kept/step-2000",
            ),
        ),
        (
            2004,
            s.CheckpointMark(
                checkpoint=CHECKPOINT,
                mark="preserved",
                why="it is to be compared with the next run",
                by="person",
                path="/checkpoints.kept/step-2000",
            ),
        ),
        (
            2004,
            s.Degraded(
                code="LIN-L002",
                part="tracker",
                error="ConnectionError: the server did not answer",
                consequence="the page is behind the ledger",
                remedy="lineage sync",
            ),
        ),
        (
            2005,
            s.TrackerNote(
                code="LIN-T003",
                tracker="mlflow",
                text="the run page hides a metric that holds only NaN",
                values={"loss": Scalar.of(math.nan)},
            ),
        ),
        (
            2005,
            s.Load(
                path="/checkpoints/step-2000/model.pt",
                by="torch.load",
                checkpoint=CHECKPOINT,
                run="pretrain-7b",
                step=2000,
                evidence="content",
                components=["model", "optimizer"],
                text="torch.load read /checkpoints/step-2000/model.pt: the checkpoint of step 2,000",
            ),
        ),
        (2006, reported()),
        (
            2006,
            s.ReportedJudgement(
                reported=uid(0x140),
                regime_change="yes",
                concepts=["grad_clip"],
                **{"class": "R"},
                rule="value-changed",
                reason="grad_clip: 1.0 -> 0.3",
                beside=[uid(0x141)],
                effects={"loss_curve": "broken", "throughput": "holds"},
            ),
        ),
        (
            2007,
            s.Finding(
                code="LIN-P001",
                check="optimizer-holds/1",
                severity="warning",
                subject="optimizer",
                text="1 trainable and in no group of the optimizer: never updated",
                names=["head.weight"],
                count=1,
                values={"groups": Scalar.of(2)},
                remedy="give them to the optimizer, or set requires_grad to False",
            ),
        ),
        (None, event()),
        *golden_incidents.payloads(uid, sha),
        *golden_rungs.payloads(uid, sha),
        *golden_replays.payloads(uid, sha),
        *golden_replays.payloads(uid, sha),
        (
            1,
            s.Agreement(
                every=50,
                groups=[
                    s.AgreementGroup(
                        id="27e955333e68",
                        how="ddp",
                        ranks="0-3,8-11",
                        text="under one DistributedDataParallel",
                        tensors=24,
                    )
                ],
                undeclared=2,
                left_out={
                    "norm.running_mean": "each rank keeps running statistics of its own batches (BatchNorm)"
                },
            ),
        ),
    ]


def event() -> Any:
    """An Xid of a kernel log, with every field set."""
    return s.Event(
        key=sha("event"),
        when=datetime(2026, 11, 29, 16, 0, 16, tzinfo=UTC),
        until=datetime(2026, 11, 29, 16, 0, 17, tzinfo=UTC),
        written="Nov 29 16:00:16",
        zone="given",
        clock="node1",
        shift=0.25,
        precision=1.0,
        nodes=["node1"],
        device_uuid="GPU-5f0c9a1e-0000-4000-8000-000000000001",
        device_index=0,
        device_pci="0000:07:00",
        rank=0,
        pid=4242,
        category="xid",
        code="79",
        severity="fault",
        text="NVRM: Xid (PCI:0000:07:00): 79, pid=4242, GPU has fallen off the bus.",
        meaning="the GPU has fallen off the bus",
        values={"xid": Scalar.of(79)},
        count=2,
        source=s.EventSource(format="kernel", file="messages", line=812),
        problems=["its year is not written"],
    )


def reported() -> Any:
    """An entry of a logbook as it was read."""
    return s.Reported(
        uid=uid(0x140),
        order=4,
        step=2000,
        date="2026-03-24",
        restart_from=2000,
        placed_by="step",
        placed_at=2000,
        concept="grad_clip",
        **{"class": "R"},
        comparison=uid(0x142),
        keys=["clip_grad"],
        difference="clip_grad requested 1.0 -> 0.3",
        before=Scalar.of(1.0),
        after=Scalar.of(0.3),
        text="loss spiked twice; clip lowered",
        problems=["step is written as 'about 2k': read as 2000"],
        extra={"shift": Scalar.of("night")},
        source=s.Source(name="logbook.csv", place="logbook.csv, entry 5", authority="person"),
    )


def sidecar() -> Any:
    """The sidecar of the golden checkpoint."""
    return s.Sidecar(
        run="pretrain-7b",
        rank=0,
        segment=segment(),
        checkpoint=checkpoint("complete"),
        ancestors=[PARENT, uid(0xF)],
        config=config(),
        effective=effective(),
        code=code(),
        environment=environment(),
        ledger="/work/lineage-runs/pretrain-7b",
    )
