"""What a report must not give away."""

from __future__ import annotations

import pytest

from neuron_runtime.host.redaction import hide_secrets, redact
from neuron_runtime.host.variables import is_secret


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("AKIAIOSFODNN7EXAMPLE", "(hidden)"),
        ("HF: hf_abcdefghijklmnopqrstuvwx.", "HF: (hidden)."),
        (f"token nec_{'0a' * 8}_{'0a' * 32}", "token (hidden)"),
        ("https://user:pass@host/x", "https://(hidden)@host/x"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer (hidden)"),
        ("python train.py --hf-token abc123 --lr 1", "python train.py --hf-token (hidden) --lr 1"),
        ("train --api_key=abc --x", "train --api_key=(hidden) --x"),
        ("s3://b/k?X-Amz-Signature=abcd&y=1", "s3://b/k?X-Amz-Signature=(hidden)&y=1"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM", "(hidden)"),
        ("neuronx-cc 2.28.7631.0", "neuronx-cc 2.28.7631.0"),
        ("HF_TOKEN=abc train.py", "HF_TOKEN=(hidden) train.py"),
        ("train.py --tokenizer llama", "train.py --tokenizer llama"),
        ("the tokenizer of /data/token.txt", "the tokenizer of /data/token.txt"),
    ],
)
def test_secrets_are_hidden_wherever_they_stand(text: str, shown: str) -> None:
    assert hide_secrets({"a": [{"b": text}]}) == {"a": [{"b": shown}]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ada/.cache/x", "~/.cache/x"),
        ("/home/ada", "~"),
        ("/home/adam/x", "/home/USER/x"),
        ("arn:aws:iam::123456789012:role/x", "arn:aws:iam::ACCOUNT:role/x"),
        ("123456789012.dkr.ecr.us-east-1.amazonaws.com/x", "ACCOUNT.dkr.ecr.us-east-1.amazonaws.com/x"),
        ("i-0123456789abcdef0 of ami-0123456789abcdef0", "i-ID of ami-ID"),
        ("10.0.1.5:46820", "ADDRESS:46820"),
        ("ip-10-0-1-5.ec2.internal", "ip-ADDRESS.ec2.internal"),
        ("ada@example.com", "EMAIL"),
        ("driver 2.31.7.0 of 103079215104 bytes", "driver 2.31.7.0 of ACCOUNT bytes"),
        ("2.9.0.2.15.32035", "2.9.0.2.15.32035"),
    ],
)
def test_people_and_accounts_are_hidden_when_asked(text: str, shown: str) -> None:
    assert redact(text, "/home/ada") == shown


def test_numbers_and_keys_stay() -> None:
    document = {"memory_size": 103079215104, "runtime": {"aws-neuronx-tools": "2.33.38.0"}, "none": None}
    assert redact(document, "/home/ada") == document


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "NEURON_ENV_CACHE_TOKEN", "AWS_SECRET_ACCESS_KEY", "X_API_KEY", "DB_PASSWORD"]
)
def test_a_variable_of_such_a_name_is_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["NEURON_ENV_CACHE_TOKEN_FILE", "NEURON_RT_NUM_CORES", "TOKENIZERS_PATH", "HF_TOKEN_PATH"]
)
def test_the_name_of_a_file_is_no_secret(name: str) -> None:
    assert not is_secret(name)
