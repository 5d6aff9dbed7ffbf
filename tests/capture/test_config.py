"""Configs of every kind become one record: dotted, typed, masked, digested."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import json
import math
import time
import types
from pathlib import Path
from typing import Any

import pydantic
import pytest
import yaml
from omegaconf import OmegaConf

from lineage.capture import config
from schemas import MASKED, Config, Scalar
from tests.secret_samples import SAMPLES, planted

NESTED = {
    "optim": {"lr": 3e-4, "betas": [0.9, 0.95]},
    "model": {"layers": 12, "name": "gpt"},
    "compile": False,
}
FLAT = {
    "optim.lr": 3e-4,
    "optim.betas": [0.9, 0.95],
    "model.layers": 12,
    "model.name": "gpt",
    "compile": False,
}


@dataclasses.dataclass
class Optim:
    lr: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)


@dataclasses.dataclass
class Model:
    layers: int = 12
    name: str = "gpt"


@dataclasses.dataclass
class Training:
    optim: Optim = dataclasses.field(default_factory=Optim)
    model: Model = dataclasses.field(default_factory=Model)
    compile: bool = False


class PydanticTraining(pydantic.BaseModel):
    optim: Optim = Optim()
    model: Model = Model()
    compile: bool = False


class LikeTransformers:
    def to_dict(self) -> dict[str, Any]:
        return NESTED


def values(c: Config) -> dict[str, Any]:
    return {k: v.plain() for k, v in c.values.items()}


def sources(folder: Path) -> dict[str, object]:
    (folder / "c.yaml").write_text(yaml.safe_dump(NESTED))
    (folder / "c.json").write_text(json.dumps(NESTED))
    (folder / "c.toml").write_text(
        'compile = false\n[optim]\nlr = 3e-4\nbetas = [0.9, 0.95]\n[model]\nlayers = 12\nname = "gpt"\n'
    )
    return {
        "dict": NESTED,
        "argparse": argparse.Namespace(**NESTED),
        "namespace": types.SimpleNamespace(**NESTED),
        "dataclass": Training(),
        "pydantic": PydanticTraining(),
        "omegaconf": OmegaConf.create(NESTED),
        "to_dict": LikeTransformers(),
        "yaml": folder / "c.yaml",
        "json": str(folder / "c.json"),
        "toml": folder / "c.toml",
    }


KINDS = [
    "dict",
    "argparse",
    "namespace",
    "dataclass",
    "pydantic",
    "omegaconf",
    "to_dict",
    "yaml",
    "json",
    "toml",
]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_settings_give_the_same_values_and_digest_from_every_source(
    kind: str, tmp_path: Path
) -> None:
    got = config.capture(sources(tmp_path)[kind])
    assert got.source == kind
    assert values(got) == FLAT
    assert got.digest == config.capture(NESTED).digest


def test_a_real_wandb_run_and_its_config_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=tmp_path, config=NESTED)
    try:
        by_config, by_run = config.capture(run.config), config.capture(run)
    finally:
        run.finish()
    assert by_config == by_run
    assert by_config.source == "wandb.config"
    assert values(by_config) == FLAT


def test_the_params_of_a_real_mlflow_run_are_read(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/m.db")
    run = client.create_run(client.create_experiment("e", artifact_location=str(tmp_path)))
    client.log_param(run.info.run_id, "optim.lr", 3e-4)
    client.log_param(run.info.run_id, "hub_token", planted("hugging-face"))
    got = config.capture(client.get_run(run.info.run_id))
    assert (got.source, values(got), got.masked) == ("mlflow", {"optim.lr": "0.0003", "hub_token": None}, 1)
    assert config.capture({"optim.lr": "0.0003"}, name="mlflow").source == "mlflow"


def test_interpolations_are_resolved_and_those_that_cannot_be_keep_their_text() -> None:
    cfg = OmegaConf.create({"a": 1, "b": "${a}", "bad": "${nowhere.x}", "l": [{"x": "${a}"}], "m": "???"})
    assert values(config.capture(cfg)) == {"a": 1, "b": 1, "bad": "${nowhere.x}", "l.0.x": 1, "m": "???"}


def test_what_an_interpolation_takes_from_a_secret_is_masked_under_any_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "plain looking words")
    cfg = OmegaConf.create({"x": "${oc.env:HF_TOKEN}", "db": {"password": "abc"}, "y": "a ${db.password} b"})
    assert set(config.capture(cfg).values.values()) == {MASKED}


def test_not_a_number_and_infinities_are_kept_and_differ_from_their_names() -> None:
    got = config.capture({"a": math.nan, "b": math.inf, "c": -math.inf, "d": "NaN"})
    assert [v.type for v in got.values.values()] == ["float", "float", "float", "str"]
    back = Config.model_validate_json(got.model_dump_json())
    assert math.isnan(back.values["a"].plain())
    assert got.digest == config.capture({"a": math.nan, "b": math.inf, "c": -math.inf, "d": "NaN"}).digest
    assert got.digest != config.capture({"a": "NaN", "b": math.inf, "c": -math.inf, "d": "NaN"}).digest


class Schedule(enum.Enum):
    COSINE = "cosine"


class Opaque:
    pass


class Rude:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def objects() -> dict[str, object]:
    import numpy as np
    import torch

    return {
        "opaque": Opaque(),
        "function": math.sqrt,
        "method": Opaque().__init__,
        "partial": functools.partial(int, base=2),
        "class": Opaque,
        "enum": Schedule.COSINE,
        "path": Path("/data/x"),
        "tensor": torch.full((1000,), 0.5),
        "small": torch.tensor([1.0, 2.0]),
        "array": np.arange(1000),
        "number": np.float32(0.5),
        "count": np.int64(7),
        "dtype": torch.bfloat16,
        "set": {"b", "a"},
        "seed": 2**63,
        "rude": Rude(),
    }


def test_objects_read_alike_in_two_runs_and_hold_no_memory_address() -> None:
    first, second = config.capture(objects()), config.capture(objects())
    assert first == second
    got = values(first)
    assert got["function"] == "math:sqrt"
    assert got["class"] == f"{__name__}:Opaque"
    assert got["partial"] == "functools.partial(builtins:int, base=2)"
    assert (got["enum"], got["path"], got["number"], got["count"]) == ("cosine", "/data/x", 0.5, 7)
    assert got["small"] == [1.0, 2.0]
    assert got["seed"] == 2**63
    assert got["dtype"] == "torch.bfloat16"
    assert got["tensor"] == "Tensor(shape=(1000,), dtype=torch.float32)"
    assert "RuntimeError" in got["rude"]
    assert "0x..." in got["opaque"]


def test_an_array_that_changes_changes_its_text() -> None:
    import numpy as np

    assert config.capture({"a": np.zeros(1000)}).digest != config.capture({"a": np.ones(1000)}).digest


def test_lists_of_values_stay_lists_and_lists_of_sections_are_numbered() -> None:
    got = values(config.capture({"a": [1, [2, None]], "mix": [{"w": 0.5}, {"w": 0.25}], "e": [], "d": {}}))
    assert got == {"a": [1, [2, None]], "mix.0.w": 0.5, "mix.1.w": 0.25, "e": [], "d": "{}"}


def test_a_config_that_holds_itself_is_cut_where_it_comes_back() -> None:
    tree: dict[str, Any] = {"a": {"lr": 1}}
    tree["a"]["up"] = tree
    ring: list[Any] = [1]
    ring.append(ring)
    got = config.capture({**tree, "ring": ring}).values
    assert got["a.lr"] == Scalar.of(1)
    assert got["a.up.a"] == Scalar(type="repr", value="<a cycle back to a: cut>")
    assert got["ring.1"] == Scalar(type="repr", value="<a cycle back to ring: cut>")


def test_a_very_deep_config_is_cut_with_a_word() -> None:
    tree: dict[str, Any] = {}
    for _ in range(200):
        tree = {"x": tree, "y": 1}
    got = config.capture(tree).values
    assert any("deeper than 64" in str(v.value) for v in got.values())


def test_two_leaves_of_one_dotted_name_are_both_kept() -> None:
    got = values(config.capture({"a.b": 1, "a": {"b": 2}}))
    assert got == {"a.b": 1, "a.b#2": 2}


def test_ten_thousand_keys_take_well_under_two_seconds_of_processor_time() -> None:
    big = {f"layer{i}": {"lr": i * 1e-3, "name": f"block_{i}"} for i in range(5000)}
    start = time.thread_time()  # whoever else uses the machine is not in it
    got = config.capture(big)
    assert time.thread_time() - start < 2
    assert len(got.values) == 10_000


@pytest.mark.parametrize("name", SAMPLES)
def test_a_secret_in_a_key_a_value_or_the_command_line_leaves_no_trace(name: str) -> None:
    secret, text = SAMPLES[name], planted(name)
    tree = {
        text: 1,
        "a": text,
        "l": [text, 2],
        "deep": {"api_key": secret, "o": {"x": {text}}},
        "b": text.encode(),
    }
    got = config.capture(tree, argv=["train.py", f"--note={text}", "--api-key", secret, text])
    stored = got.model_dump_json()
    for line in secret.split("\n"):
        if not line.startswith("-----"):
            assert line not in stored
    assert got.masked >= 5
    assert got.values["deep.api_key"] == MASKED
    assert got.values["l"].value[1] == Scalar.of(2)


def test_the_digest_does_not_depend_on_a_masked_value() -> None:
    a = config.capture({"lr": 1, "password": "one"})
    b = config.capture({"lr": 1, "password": "two"})
    assert a.digest == b.digest
    assert a.digest != config.capture({"lr": 1}).digest


def test_a_url_keeps_all_but_its_password() -> None:
    got = config.capture({"store": "postgres://trainer:abc@db:5432/runs"})
    assert got.values["store"].value == "postgres://trainer:[masked]@db:5432/runs"
    assert got.masked == 1


@pytest.mark.parametrize(
    ("content", "suffix", "error", "match"),
    [
        ("a: [1, 2", ".yaml", ValueError, r"c\.yaml is not valid YAML, line 1"),
        ('{"password": "hunter2",,}', ".json", ValueError, r"c\.json is not valid JSON, line 1 column"),
        ("- 1\n- 2\n", ".yaml", ValueError, "holds a list"),
        (None, ".yaml", FileNotFoundError, "no config file at"),
    ],
)
def test_a_bad_file_is_named_without_its_content(
    content: str | None, suffix: str, error: type[Exception], match: str, tmp_path: Path
) -> None:
    path = tmp_path / f"c{suffix}"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error, match=match) as caught:
        config.capture(path)
    assert "hunter2" not in str(caught.value)


def test_an_object_without_a_config_is_refused_with_what_to_pass() -> None:
    with pytest.raises(TypeError, match="cannot read a config from int: pass a dict"):
        config.capture(3)


def test_lone_surrogates_do_not_break_the_record() -> None:
    got = config.capture({"a\udcff": "b\udcff"}, argv=["\udcff"])
    assert Config.model_validate_json(got.model_dump_json()) == got


def test_the_config_yaml_of_a_wandb_run_is_read_as_that_runs_config(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    held = {"wandb_version": 1, "_wandb": {"value": {"cli_version": "0.24"}}, "lr": {"value": 0.1}}
    file.write_text(yaml.safe_dump({**held, "optim": {"desc": None, "value": {"eps": 1e-8}}}))
    got = config.capture(file)
    assert (got.source, values(got)) == ("wandb.config", {"lr": 0.1, "optim.eps": 1e-8})
    file.write_text(yaml.safe_dump({"lr": {"value": 0.1}}))
    assert values(config.capture(file)) == {"lr.value": 0.1}
