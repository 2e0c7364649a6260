"""What is used of the package `cryptography`, imported only where keys are."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

__all__ = [
    "Ed25519PrivateKey",
    "Ed25519PublicKey",
    "Encoding",
    "InvalidSignature",
    "NoEncryption",
    "PrivateFormat",
    "PublicFormat",
    "UnsupportedAlgorithm",
    "load_pem_private_key",
]
