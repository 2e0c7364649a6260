"""NRT status codes, and the two exceptions that carry the runtime's refusals.

Codes and names are those of the vendor's `nrt_status.h`; the exception classes mirror nrtpy's, so that
`except RuntimeError` catches both.
"""

from __future__ import annotations

from enum import IntEnum

from neuron_runtime.errors import NeuronEnvError


class NrtStatus(IntEnum):
    """Status of a runtime call. `NrtStatus(4).label` is "NRT_RESOURCE"."""

    SUCCESS = 0
    FAILURE = 1
    INVALID = 2
    INVALID_HANDLE = 3
    RESOURCE = 4
    TIMEOUT = 5
    HW_ERROR = 6
    QUEUE_FULL = 7
    LOAD_NOT_ENOUGH_NC = 9
    UNSUPPORTED_NEFF_VERSION = 10
    FAIL_HOST_MEM_ALLOC = 11
    UNINITIALIZED = 13
    CLOSED = 14
    QUEUE_EMPTY = 15
    EXEC_UNIT_UNRECOVERABLE = 101
    EXEC_BAD_INPUT = 1002
    EXEC_COMPLETED_WITH_NUM_ERR = 1003
    EXEC_COMPLETED_WITH_ERR = 1004
    EXEC_NC_BUSY = 1005
    EXEC_OOB = 1006
    COLL_PENDING = 1100
    EXEC_HW_ERR_COLLECTIVES = 1200
    EXEC_HW_ERR_HBM_UE = 1201
    EXEC_HW_ERR_NC_UE = 1202
    EXEC_HW_ERR_DMA_ABORT = 1203
    EXEC_SW_NQ_OVERFLOW = 1204
    EXEC_HW_ERR_REPAIRABLE_HBM_UE = 1205
    NETWORK_PROXY_FAILURE = 1206

    @property
    def label(self) -> str:
        return f"NRT_{self.name}"


class NrtError(NeuronEnvError, RuntimeError):
    """The runtime refused or failed a call; `status` says how. Text: `NRT Error NRT_RESOURCE(4): …`."""

    def __init__(self, status: NrtStatus, detail: str, *, hint: str | None = None) -> None:
        super().__init__(f"NRT Error {status.label}({status.value}): {detail}", hint=hint)
        self.status = status
        self.detail = detail


class NrtpyError(NeuronEnvError, RuntimeError):
    """The client library was used wrongly: a freed tensor, a closed runtime, a configuration set too late."""
