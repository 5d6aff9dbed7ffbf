"""The suites that can be run, and which part of each: the tests around tracker calls that need no server of theirs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """A chosen part of a checkout's tests."""

    name: str
    package: str
    """the distribution that is tested, as it is installed"""
    select: Sequence[str]
    """test files or folders, relative to `folder`"""
    take: Sequence[str]
    """what of the checkout is copied for a session, relative to it; what is not there is left out"""
    folder: str = "."
    """where pytest starts, relative to the checkout"""
    env: Mapping[str, str] = field(default_factory=dict)
    also: Sequence[str] = ()
    """further distributions whose versions say what was tested"""
    arguments: Sequence[str] = ()
    """further arguments of pytest"""
    source: str = ""
    """where a checkout comes from"""


_UNIT = "tests/unit_tests/"
SUITES = {
    s.name: s
    for s in (
        Suite(
            "accelerate",
            "accelerate",
            select=["tests/test_tracking.py"],
            take=["tests/test_tracking.py"],
            env={"MLFLOW_ALLOW_FILE_STORE": "true"},
            also=["wandb", "mlflow", "tensorboard"],
            source="the source distribution on PyPI",
        ),
        Suite(
            "wandb",
            "wandb",
            select=[
                *(
                    f"{_UNIT}test_wandb_{part}.py"
                    for part in (
                        "run",
                        "log",
                        "config",
                        "define_metric",
                        "summary",
                        "init",
                        "save",
                        "settings",
                    )
                ),
                *(
                    f"{_UNIT}test_{part}.py"
                    for part in (
                        "mode_disabled",
                        "torch",
                        "library_public",
                        "import_wandb",
                        "autolog_patch_integration",
                        "run_moment",
                        "tables",
                        "plot",
                        "wb_logging",
                        "wandb_logger_handler",
                    )
                ),
            ],
            take=[
                "tests/__init__.py",
                "tests/conftest.py",
                "tests/fixtures",
                "tests/assets",
                "tests/unit_tests",
                "pyproject.toml",
            ],
            also=["torch"],
            source="github.com/wandb/wandb",
        ),
        Suite(
            "lightning",
            "lightning",
            select=["tests_pytorch/loggers"],
            take=["tests/tests_pytorch", "tests/legacy", "pyproject.toml"],
            folder="tests",
            env={"MLFLOW_ALLOW_FILE_STORE": "true"},
            also=["wandb", "mlflow", "torch"],
            # It trains on two ranks for each of four loggers, which takes a minute each.
            arguments=["--deselect=tests_pytorch/loggers/test_all.py::test_logger_initialization"],
            source="github.com/Lightning-AI/pytorch-lightning",
        ),
    )
}
