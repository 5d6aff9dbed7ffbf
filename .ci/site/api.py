"""Hook of MkDocs: the pages of the API, which mkdocstrings fills from the docstrings."""

from __future__ import annotations

from typing import Any

from mkdocs.structure.files import File, Files

PAGES = {
    "recording": (
        "Recording",
        "What a training loop calls. No call into it raises, waits for a tracker, or issues a collective.",
        ["lineage.attach", "lineage.Recorder", "lineage.recorder.step.Step", "lineage.recorder.saving.Saving",
         "lineage.fingerprinted"],
    ),
    "reading": (
        "Reading a ledger",
        "What a script that reads a ledger imports. It needs neither torch nor a tracker.",
        ["lineage.open_ledger", "lineage.Ledger", "lineage.ledger.reader.SegmentView", "lineage.LedgerNotFound"],
    ),
    "integrations": (
        "Integrations",
        "One line on each framework's own extension points. How each is used: [quick start](../quickstart/index.md).",
        ["lineage.integrations.hf_trainer.LineageCallback", "lineage.integrations.accelerate.attach",
         "lineage.integrations.accelerate.LineageTracker", "lineage.integrations.lightning.LineageCallback",
         "lineage.integrations.lightning.LineageCheckpointIO", "lineage.integrations.deepspeed",
         "lineage.integrations.dcp.Stager"],
    ),
    "schemas": (
        "Reading records",
        "Functions of `lineage.schemas`. The models themselves: [records](../records/index.md).",
        ["schemas.read_line", "schemas.read_payload", "schemas.explained", "schemas.CodePage", "schemas.catalogue",
         "schemas.version_of"],
    ),
}  # fmt: skip


def on_files(files: Files, *, config: Any) -> Files:
    """Add the pages."""
    rows = []
    for name, (title, said, objects) in PAGES.items():
        text = [f"# {title}", "", said, ""]
        for path in objects:
            text += [f"::: {path}", ""]
        files.append(File.generated(config, f"api/{name}.md", content="\n".join(text)))
        rows.append(f"| [{title}]({name}.md) | {said} |")
    head = [
        "# API",
        "",
        "Generated from the docstrings of this version.",
        "",
        "| page | what is on it |",
        "| --- | --- |",
    ]
    files.append(File.generated(config, "api/index.md", content="\n".join([*head, *rows]) + "\n"))
    return files
