"""Every setting of ours: its variable and its default, as docs/settings.md says them; a test compares the two."""

from __future__ import annotations

PREFIX = "NEURON_ENV_"

DEFAULTS: dict[str, str] = {
    "NEURON_ENV_RUNTIME_DIR": "$XDG_RUNTIME_DIR/neuron-env, else ~/.cache/neuron-env/run",
    "NEURON_ENV_RUNTIME_AUTOSTART": "1",
    "NEURON_ENV_RUNTIME_IDLE_TIMEOUT": "300",
    "NEURON_ENV_RUNTIME_WARM": "1",
    "NEURON_ENV_RUNTIME_NATIVE": "auto",
    "NEURON_ENV_INSTANCE_TYPE": "trn2.3xlarge",
    "NEURON_ENV_CACHE_URL": "~/.cache/neuron-env/shared",
    "NEURON_ENV_CACHE_LOCAL_DIR": "~/.cache/neuron-env/local",
    "NEURON_ENV_CACHE_NAMESPACE": "default",
    "NEURON_ENV_CACHE_PERMISSIONS": "group for a named store, else private",
    "NEURON_ENV_CACHE_LEASE_SECONDS": "12",
    "NEURON_ENV_CACHE_WAIT_SECONDS": "3600",
    "NEURON_ENV_CACHE_FAILURE_TTL_SECONDS": "3600",
    "NEURON_ENV_CACHE_RETRY_FAILURES": "0",
    "NEURON_ENV_CACHE_VERIFY": "digest",
    "NEURON_ENV_CACHE_TRUSTED_KEYS": "none",
    "NEURON_ENV_CACHE_REQUIRE_SIGNATURE": "0",
    "NEURON_ENV_CACHE_SIGNING_KEY": "none",
    "NEURON_ENV_CACHE_S3_ENDPOINT": "AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL, else Amazon's",
    "NEURON_ENV_CACHE_S3_ADDRESSING": "path with an endpoint, else virtual",
    "NEURON_ENV_CACHE_S3_TIMEOUT": "5",
    "NEURON_ENV_JOB": "none",
    "NEURON_ENV_LOWERING_TIMEOUT": "120",
    "NEURON_ENV_COMPILE_SLOTS": "auto",
    "NEURON_ENV_COMPILE_MEMORY": "8GiB",
    "NEURON_ENV_CACHE_MODE": "read-write, or overlay where a base is set",
    "NEURON_ENV_CACHE_OVERLAY": "none",
    "NEURON_ENV_CACHE_REQUIRE_HIT": "0",
    "NEURON_ENV_CACHE_LOCAL_MAX_BYTES": "none",
    "NEURON_ENV_CACHE_BUDGET_SECONDS": "5",
    "NEURON_ENV_CACHE_TOKEN": "none",
    "NEURON_ENV_CACHE_TOKEN_FILE": "none",
    "NEURON_ENV_CACHE_CA_FILE": "the system's",
    "NEURON_ENV_CACHE_CLIENT_CERT": "none",
    "NEURON_ENV_CACHE_CLIENT_KEY": "in the certificate's file",
    "NEURON_ENV_CACHE_HTTP_TIMEOUT": "2",
    "NEURON_ENV_SERVER_STORE": "none",
    "NEURON_ENV_SERVER_LISTEN": "127.0.0.1:7878",
    "NEURON_ENV_SERVER_STATE_DIR": "none",
    "NEURON_ENV_SERVER_CAPACITY": "none",
    "NEURON_ENV_SERVER_QUOTA": "none",
    "NEURON_ENV_SERVER_QUOTAS": "none",
    "NEURON_ENV_SERVER_MAX_AGE": "none",
    "NEURON_ENV_SERVER_MAX_AGES": "none",
    "NEURON_ENV_SERVER_KEEP_FREE": "a fiftieth of the disk, 1 GiB at most",
    "NEURON_ENV_SERVER_TLS_CERT": "none",
    "NEURON_ENV_SERVER_TLS_KEY": "none",
    "NEURON_ENV_SERVER_CLIENT_CA": "none",
    "NEURON_ENV_SERVER_CLIENT_SCOPES": "none",
    "NEURON_ENV_SERVER_CLIENT_SCOPE": "none",
    "NEURON_ENV_SERVER_ANONYMOUS": "write on a loopback address until the store has a token, else none",
    "NEURON_ENV_SERVER_SIGNING_KEY": "none",
    "NEURON_ENV_SERVER_PERMISSIONS": "group",
    "NEURON_ENV_SERVER_AUDIT_LOG": "none",
    "NEURON_ENV_SERVER_LOG_FORMAT": "text on a terminal, else json",
    "NEURON_ENV_SERVER_LOG_REQUESTS": "1",
    "NEURON_ENV_SERVER_MEMORY": "256MiB",
    "NEURON_ENV_SERVER_BLOB_LIMIT": "16TiB",
    "NEURON_ENV_SERVER_BODY_LIMIT": "4MiB",
    "NEURON_ENV_SERVER_RATE_LIMIT": "none",
    "NEURON_ENV_SERVER_UPLOAD_LIMIT": "none",
    "NEURON_ENV_SERVER_REDIRECT": "1",
    "NEURON_ENV_SERVER_POLL_SECONDS": "0.25",
    "NEURON_ENV_SERVER_DRAIN_SECONDS": "30",
    "NEURON_ENV_SERVER_DRAIN_DELAY": "0",
    "NEURON_ENV_SERVER_THREADS": "16",
    "NEURON_ENV_COLOR": "auto",
    "NEURON_ENV_DEBUG": "0",
    "NEURON_ENV_NO_PROGRESS": "none",
}

# Where the files are, and what a shell script reads, which knows of none.
FROM_THE_ENVIRONMENT_ONLY = frozenset(
    {"NEURON_ENV_RECOMPILES_DIR", "NEURON_ENV_CONFIG", "NEURON_ENV_LAUNCHER", "NEURON_ENV_LAUNCHER_RAN"}
)

# Only where others cannot read the file.
SECRET = frozenset({"NEURON_ENV_CACHE_TOKEN"})

# Whose code may run here, and as whom this user speaks: not for a file that comes with somebody's repository.
NOT_FROM_A_PROJECT = frozenset(
    {
        "NEURON_ENV_CACHE_TOKEN",
        "NEURON_ENV_CACHE_TOKEN_FILE",
        "NEURON_ENV_CACHE_TRUSTED_KEYS",
        "NEURON_ENV_CACHE_REQUIRE_SIGNATURE",
        "NEURON_ENV_CACHE_SIGNING_KEY",
        "NEURON_ENV_CACHE_CA_FILE",
        "NEURON_ENV_CACHE_CLIENT_CERT",
        "NEURON_ENV_CACHE_CLIENT_KEY",
        "NEURON_ENV_RUNTIME_DIR",
    }
) | {name for name in DEFAULTS if name.startswith("NEURON_ENV_SERVER_")}

# First words of variables that are tables in a file.
TABLES = ("cache", "compile", "runtime", "server")


def file_key(variable: str) -> str:
    """How a file calls a setting: `cache.url` for `NEURON_ENV_CACHE_URL`, `job` for `NEURON_ENV_JOB`."""
    name = variable.removeprefix(PREFIX).lower()
    table, _, rest = name.partition("_")
    return f"{table}.{rest}" if table in TABLES and rest else name
