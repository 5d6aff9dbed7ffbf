"""Masking of raw text, values, URLs and command lines."""

from __future__ import annotations

import os
import random
import re
import string
import uuid
from pathlib import Path

import pytest

from lineage.capture import entropy, secret_patterns, secrets
from tests.secret_samples import SAMPLES, as_file_name, planted


def leaks(secret: str, text: str) -> bool:
    """Whether any 12 characters in a row of a secret stand in a text."""
    lines = [line for line in secret.split("\n") if not line.startswith("-----")]
    return any(line[i : i + 12] in text for line in lines for i in range(max(1, len(line) - 11)))


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "2026-11-29 INFO ({}) ok",
        '+    x = "{}"',
        "RuntimeError: call failed: {}",
        "[{}, 3]",
        "a\tb {}\n",
    ],
)
def test_no_part_of_a_sample_is_left_in_a_text(name: str, around: str) -> None:
    text, count = secrets.mask(around.format(planted(name)))
    assert count >= 1
    assert not leaks(SAMPLES[name], text)
    assert secrets.MASK in text


@pytest.mark.parametrize("name", SAMPLES)
def test_masking_twice_changes_nothing(name: str) -> None:
    once, _ = secrets.mask(f"x {planted(name)} y")
    assert secrets.mask(once) == (once, 0)


def test_there_are_fifty_samples_and_no_two_are_alike() -> None:
    assert len(SAMPLES) == len(set(SAMPLES.values())) == 50
    assert sum(as_file_name(n) is not None for n in SAMPLES) >= 40


ORDINARY = [
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    str(uuid.UUID(int=0x0192F3A1B2C37D4E8F90A1B2C3D4E5F6)),
    "/mnt/data/Checkpoints/GPT2-Medium-v2/global_step12000/mp_rank_00_model_states.pt",
    "runs/2026-11-29T16-05-01Z/Llama-3.1-70B-Instruct-GPTQ-Int4/step-000123",
    "learning_rate=3e-4, weight_decay: 0.1, betas = (0.9, 0.95), eps 1e-08",
    "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8 Qwen/Qwen2.5-72B DeepSeek-R1-Distill-Llama-70B",
    "Llama4ForConditionalGenerationWithValueHeadAndRotaryEmbeddingV2",
    "torch.nn.parallel.distributed.DistributedDataParallel._rebuild_buckets_after_first_step",
    "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
    "_ZN2at6native12_GLOBAL__N_123nll_loss2d_forward_out_frameIN3c108BFloat16ElEE",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1_SE_K1",
    'tokenizer = AutoTokenizer.from_pretrained("gpt2"); eos_token: "</s>", pad_token="<|endoftext|>"',
    "token = tokenizer.decode(ids); max_tokens=4096 num_tokens: 12345678 token_count=7",
    "api_key=os.environ['WANDB_API_KEY'], password=password, token=self.token",
    "def login(key: str | None = None, password: Optional[str] = None) -> bool:",
    "if password == 'x' or secret is None: raise ValueError('no password given')",
    "git@github.com:org/repo.git https://github.com/org/repo.git ssh://git@host/x",
    "http://localhost:5000/#/experiments/0/runs/0123456789abcdef0123456789abcdef",
    "sqlite:////home/u/mlflow.db postgresql://db.example.org:5432/runs",
    "the author is the secretary; the key idea is a first pass over tokens: next, the rest",
    "password: ${DB_PASSWORD} API_KEY=$API_KEY token: <your-token> secret={{ vault.x }}",
    'headers = {"Authorization": f"Bearer {token}"}',
    "integrity sha512-" + "Ab3" * 28 + "ab==",
    "step 12 loss 2.3456 grad_norm 0.9876 tokens/s 123456.7 mfu 0.412",
    "wandb: run q9twd2zp at git commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "asks sk-learn for sk-based tasks; key-value; ASIA PACIFIC; SK and npm_config_cache",
]


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert secrets.mask(text) == (text, 0)


PLAIN_KEYS = (
    "tokenizer token_count max_tokens num_tokens eos_token bos_token_id key_dim author secretary key "
    "cache_key sort_key n_key_value_heads tokens keys first_pass bypass pass_rate passthrough "
    "pin_memory PWD authors keyboard compass public_key pad_token image_token tokenizer.name "
    "optimizer.lr signature primary_key"
)
SECRET_KEYS = (
    "password DB_PASSWORD db.password hf_token HF_TOKEN token accessToken api_key apiKey APIKey "
    "OPENAI_API_KEY awsSecretAccessKey AWS_ACCESS_KEY_ID client_secret ssh_private_key api-key "
    "api_key_2 wandb.key secrets.wandb credentials connectionString slack_webhook_url DB_PASS "
    "auth_token session.cookie"
)


@pytest.mark.parametrize("name", PLAIN_KEYS.split())
def test_a_name_of_training_is_no_secret_name(name: str) -> None:
    assert not secrets.is_secret_key(name)


@pytest.mark.parametrize("name", SECRET_KEYS.split())
def test_a_name_of_a_credential_is_a_secret_name(name: str) -> None:
    assert secrets.is_secret_key(name)


FORMS = [
    'password = "{}"',
    "password: {}",
    "PASSWORD={}",
    "export DB_PASSWORD={}",
    "--password {} --lr 1e-3",
    "--password={}",
    "--api-key {}",
    "['--api-key', '{}']",
    '{{"api_key": "{}", "lr": 1}}',
    '{{\\"api_key\\": \\"{}\\"}}',
    "    password: str = '{}',",
    'os.environ["WANDB_API_KEY"] = "{}"',
    'os.environ.setdefault("WANDB_API_KEY", "{}1234")',
    "secret: |\n    {}",
    "url?access_token={}12345&y=2",
    "postgres://u:{}@h/db",
    "machine api.wandb.ai\n  login user\n  password {}",
    "curl -u bob:{} http://h",
    '-H "X-Api-Key: {}"',
    "client = Client(api_key={}, lr=1)",
    "password := '{}'",
    "[db]\npassword = {}",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", ["hunter2", "tr0ub4dor-and-3"])
def test_a_short_password_is_masked_in_every_form_of_assignment(form: str, value: str) -> None:
    text, count = secrets.mask(form.format(value))
    assert count == 1
    assert value not in text


def test_an_env_file_line_is_masked_to_its_end_and_yaml_keeps_its_comment() -> None:
    assert secrets.mask("PASSWORD=a,b;c\nLR=1")[0] == "PASSWORD=[masked]\nLR=1"
    assert secrets.mask("password: my pass phrase # why\nlr: 1")[0] == "password: [masked] # why\nlr: 1"


def test_every_rule_can_match_and_none_but_known_ones_lacks_an_anchor() -> None:
    for rule in secret_patterns.rules():
        assert rule.compiled.pattern
        assert all(rule.anchors), rule.name
        assert not rule.any_case or all(a == a.lower() for a in rule.anchors), rule.name


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://u:p@h/x.git", "https://u:[masked]@h/x.git"),
        ("https://:p@h/x", "https://:[masked]@h/x"),
        ("https://oauth2:abc@gitlab.com/a/b", "https://oauth2:[masked]@gitlab.com/a/b"),
        ("git@github.com:o/r.git", "git@github.com:o/r.git"),
        ("ssh://git@github.com/o/r", "ssh://git@github.com/o/r"),
        ("bob:tok@host.org:o/r.git", "bob:[masked]@host.org:o/r.git"),
        ("https://h/x?token=a&page=2&sig=b", "https://h/x?token=[masked]&page=2&sig=[masked]"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("databricks://profile", "databricks://profile"),
        ("s3://KEY:SECRET@bucket/x", "s3://KEY:[masked]@bucket/x"),
        ("sqlite:////tmp/mlflow.db", "sqlite:////tmp/mlflow.db"),
        ("", ""),
        ("postgresql://u:p@ss@h/db", "postgresql://u:[masked]@h/db"),
    ],
)
def test_credentials_of_a_url_are_masked_and_the_rest_stays(url: str, masked: str) -> None:
    assert secrets.mask_url(url) == masked


@pytest.mark.parametrize("name", [n for n in SAMPLES if "\n" not in SAMPLES[n]])
@pytest.mark.parametrize(
    "form", ["https://user:{}@h.org/x", "postgresql://u:{}@h/mlflow", "http://h?api_key={}&p=1"]
)
def test_no_sample_is_left_in_the_address_of_a_tracker(name: str, form: str) -> None:
    assert not leaks(SAMPLES[name], secrets.mask_url(form.format(SAMPLES[name])))


def test_a_command_line_is_masked_by_flag_by_assignment_and_by_shape() -> None:
    argv = [
        "t.py",
        "--password",
        "x",
        "--lr=1",
        "--api-key=abc",
        "+db.password=zz",
        "--verbose",
        "y",
        planted("npm"),
    ]
    masked, count = secrets.mask_argv(argv)
    assert masked == [
        *("t.py", "--password", "[masked]", "--lr=1", "--api-key=[masked]"),
        *("+db.password=[masked]", "--verbose", "y", "[masked]"),
    ]
    assert count == 4
    assert secrets.mask_argv(["--no-password", "--lr", "1"]) == (["--no-password", "--lr", "1"], 0)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("db.password", "x", ("[masked]", True)),
        ("db.password", 12345678, ("[masked]", True)),
        ("use_auth_token", True, (True, False)),
        ("token", "</s>", ("</s>", False)),
        ("auth", "none", ("none", False)),
        ("lr", 0.1, (0.1, False)),
        ("hosts", ["a", "https://u:p@h"], (["a", "https://u:[masked]@h"], True)),
        ("wandb.key", SAMPLES["wandb-classic"], ("[masked]", True)),
        ("revision", SAMPLES["wandb-classic"], (SAMPLES["wandb-classic"], False)),
        ("password", None, (None, False)),
    ],
)
def test_a_value_is_judged_with_its_name(key: str, value: object, expected: object) -> None:
    assert secrets.mask_value(key, value) == expected


def test_many_texts_at_once_name_the_same_suspects_as_one_by_one() -> None:
    texts = [
        planted(n) if i % 3 == 0 else f"layer {i} of {n}"
        for i, n in enumerate(SAMPLES)
        if "\n" not in planted(n)
    ]
    alone = {i for i, t in enumerate(texts) if secrets.mask(t)[1]}
    assert alone
    assert alone <= secrets.suspects(texts) <= {j for i in alone for j in (i - 1, i, i + 1)}


def test_a_secret_at_the_end_of_a_megabyte_of_diff_is_masked() -> None:
    """Code full of the words that the rules look for, not an easy text."""
    line = "+    token = self.tokenizer(key, pass_through=True)  # api: https://host/a.b.c, auth, sk- hf_\n"
    text = (line * (2**20 // len(line) + 1))[: 2**20]
    text += planted("github-classic")
    assert secrets.mask(text)[0].endswith("[masked]")


HOSTILE = [
    "a" * 300_000,
    "password=" * 30_000,
    "://" * 100_000,
    '"' * 100_000,
    "-----BEGIN RSA PRIVATE KEY-----" * 3_000,
    "eyJ" * 100_000,
    "sk-" * 100_000,
    "authorization:" * 20_000,
    "token: " * 40_000,
    "\x00\ud800\U0001f600İ" * 10_000,
    "wandb key " * 20_000,
    "login a password " * 10_000,
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: repr(t[:12]))
def test_no_text_makes_masking_raise_or_hang(text: str) -> None:
    masked, count = secrets.mask(text)
    assert isinstance(masked, str)
    assert count >= 0


def test_characters_that_grow_in_lower_case_do_not_shift_the_mask() -> None:
    text, count = secrets.mask("İİİİ password='hunter2' İ end")
    assert (text, count) == ("İİİİ password='[masked]' İ end", 1)


def test_a_failing_rule_masks_the_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(entropy, "find", broken)
    assert secrets.mask("a harmless text") == ("[masked]", 1)


def test_random_tokens_without_a_name_are_found() -> None:
    draw = random.Random(7)
    tokens = [
        "".join(draw.choice(string.ascii_letters + string.digits) for _ in range(40)) for _ in range(500)
    ]
    assert sum(secrets.mask(f"x {t} y")[1] == 0 for t in tokens) <= 10


def test_nothing_in_the_standard_library_looks_random_and_hardly_anything_looks_like_a_credential() -> None:
    folder = Path(os.__file__).parent
    text = "\n".join(p.read_text(errors="replace") for p in sorted(folder.glob("[a-z]*.py")))
    assert len(text) > 2**22
    assert entropy.find(text) == []
    assert secrets.mask(text)[1] <= 15


def test_binary_data_is_searched_in_one_and_two_byte_characters() -> None:
    secret = planted("github-classic")
    assert secrets.has_known_secret(b"\x00\x01" + secret.encode() + b"\x00")
    assert secrets.has_known_secret(b"\xff\xfe" + secret.encode("utf-16-le"))
    assert not secrets.has_known_secret(bytes(range(256)) * 20)


def test_the_samples_file_itself_holds_no_sample() -> None:
    with open(re.sub(r"capture/test_secrets\.py$", "secret_samples.py", __file__), encoding="utf-8") as f:
        text = f.read()
    assert not [n for n, s in SAMPLES.items() if s in text]
