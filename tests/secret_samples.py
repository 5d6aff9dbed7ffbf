"""Fifty credentials that look real and are not: made from pieces and a fixed seed, never written out here.

No scanner and no push protection finds one in this file. `SAMPLES` maps a name to a secret. `planted(name)`
gives the text in which somebody would paste it: most secrets are known by their own shape, a few only by
what stands beside them (40 hexadecimal digits are a W&B key beside `wandb login`, else a git revision).
`as_file_name(name)` gives a form that a file's name can have.
"""

from __future__ import annotations

import base64
import random
import string

_HEX = "0123456789abcdef"
_ALNUM = string.ascii_letters + string.digits
_UPPER = string.ascii_uppercase + string.digits


def _body(name: str, alphabet: str, length: int) -> str:
    """A random-looking body that holds a digit and letters of both cases where the alphabet has them."""
    draw = random.Random(f"lineage sample {name}")
    kinds = [
        k for k in (string.digits, string.ascii_lowercase, string.ascii_uppercase) if set(k) & set(alphabet)
    ]
    while True:
        text = "".join(draw.choice(alphabet) for _ in range(length))
        if all(set(k) & set(text) for k in kinds):
            return text


def _hex(name: str, length: int) -> str:
    return _body(name, _HEX, length)


def _any(name: str, length: int) -> str:
    return _body(name, _ALNUM, length)


def _uuid(name: str) -> str:
    h = _hex(name, 32)
    return "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:]))


def _b64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _jwt(name: str) -> str:
    head, body = (
        _b64('{"alg":"HS256","typ":"JWT"}'),
        _b64('{"sub":"' + _any(name, 12) + '","iat":1516239022}'),
    )
    return ".".join((head, body, _any(name + "-sig", 43)))


def _pem(name: str, kind: str) -> str:
    lines = [_body(f"{name}{i}", _ALNUM + "+/", 64) for i in range(6)]
    dashes = "-" * 5
    return "\n".join((f"{dashes}BEGIN {kind}{dashes}", *lines, f"{dashes}END {kind}{dashes}"))


SAMPLES: dict[str, str] = {
    "aws-access-key-id": "AK" + "IA" + _body("aws", _UPPER[:26] + "234567", 16),
    "aws-secret-key": _any("aws-secret", 40),
    "gcp-api-key": "AI" + "za" + _any("gcp", 35),
    "gcp-oauth": "ya" + "29." + _any("gcp-oauth", 60),
    "gcp-private-key": _pem("gcp-pem", "PRIVATE" + " KEY"),
    "azure-storage-key": _any("azure", 86) + "==",
    "azure-sas": _any("azure-sas", 43) + "%3D",
    "azure-client-secret": _any("azure-client", 3) + "8" + "Q~" + _any("azure-client2", 34),
    "github-classic": "gh" + "p_" + _any("ghp", 36),
    "github-oauth": "gh" + "o_" + _any("gho", 36),
    "github-fine-grained": "github" + "_pat_" + _any("ghf1", 22) + "_" + _any("ghf2", 59),
    "gitlab": "gl" + "pat-" + _any("glpat", 20),
    "slack-bot": "xo" + "xb-" + _body("slack1", string.digits, 12) + "-" + _any("slack2", 24),
    "slack-webhook": _any("slackhook", 24),
    "stripe": "sk" + "_live_" + _any("stripe", 24),
    "openai": "s" + "k-" + _any("openai", 48),
    "openai-project": "s" + "k-proj-" + _any("openai-project", 64),
    "anthropic": "s" + "k-ant-" + "api03-" + _any("anthropic", 93),
    "hugging-face": "h" + "f_" + _any("hf", 34),
    "wandb-classic": _hex("wandb", 40),
    "wandb-v1": "wandb" + "_v1_" + _any("wandb-v1", 60),
    "databricks": "da" + "pi" + _hex("databricks", 32),
    "nvidia": "nv" + "api-" + _any("nvidia", 64),
    "pypi": "py" + "pi-AgE" + _any("pypi", 120),
    "npm": "n" + "pm_" + _any("npm", 36),
    "docker": "dckr" + "_pat_" + _any("docker", 27),
    "twilio": "S" + "K" + _hex("twilio", 32),
    "sendgrid": "S" + "G." + _any("sg1", 22) + "." + _any("sg2", 43),
    "mailgun": "ke" + "y-" + _hex("mailgun", 32),
    "telegram": "A" + "A" + _any("telegram", 33),
    "discord-bot": _any("discord1", 6) + "." + _any("discord2", 38),
    "jwt": _jwt("jwt"),
    "ssh-private-key": _pem("ssh", "OPENSSH PRIVATE" + " KEY"),
    "basic-header": base64.b64encode(("robot:" + _any("basic", 15)).encode()).decode(),
    "bearer-header": _any("bearer", 28),
    "postgres-password": _any("pg", 14),
    "vault": "hv" + "s." + _any("vault", 90),
    "terraform-cloud": "." + "atlasv1." + _any("tfc2", 67),
    "linear": "lin" + "_api_" + _any("linear", 40),
    "notion": "nt" + "n_" + _any("notion", 46),
    "replicate": "r" + "8_" + _any("replicate", 37),
    "comet": _any("comet", 25),
    "neptune": _b64('{"api_address":"https://app.example","api_key":"' + _any("neptune", 32) + '"}'),
    "heroku": _uuid("heroku"),
    "onepassword": "op" + "s_ey" + "J" + _any("op", 200),
    "grafana": "gl" + "sa_" + _any("grafana", 32) + "_" + _hex("grafana2", 8),
    "sentry-dsn": _hex("sentry", 32),
    "snyk": _uuid("snyk"),
    "nameless-token": _any("nameless", 44),
    "password": "hunter-" + _any("password", 8),
}

_CONTEXT = {
    "aws-secret-key": "aws_secret_access_key={}",
    "azure-storage-key": "DefaultEndpointsProtocol=https;AccountName=runs;Account"
    + "Key={};EndpointSuffix=core",
    "azure-sas": "https://runs.blob.core.windows.net/c/w.pt?sv=2024-11-04&sp=r&sig={}",
    "slack-webhook": "https://hooks.slack" + ".com/services/T0123ABCD/B0123ABCD/{}",
    "wandb-classic": "wandb login {}",
    "telegram": "123456789:{}",
    "discord-bot": "MTA1NjQ4NzI2MzU0NzUyMTk4" + ".{}",
    "terraform-cloud": "c5Vb7kQ2mR8tXw" + "{}",
    "basic-header": "Authorization: Basic {}",
    "bearer-header": "Authorization: Bearer {}",
    "postgres-password": "postgresql://trainer:{}@db.example.org:5432/runs",
    "comet": "COMET_API_KEY={}",
    "heroku": "HEROKU_API_KEY={}",
    "sentry-dsn": "https://{}@o1234.ingest.sentry.io/5678",
    "snyk": "SNYK_TOKEN={}",
    "password": "password={}",
}


def planted(name: str) -> str:
    """The text in which a sample would be pasted; it holds the sample once, whole."""
    return _CONTEXT.get(name, "{}").format(SAMPLES[name])


def as_file_name(name: str) -> str | None:
    """A form of `planted` that a file's name can have; None where a line end or length rules it out."""
    secret = SAMPLES[name]
    if "\n" in secret or "/" in secret or len(secret) > 180:
        return None
    text = planted(name)
    return f"token={secret}" if "/" in text or len(text) > 200 else text
