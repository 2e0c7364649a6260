"""The NEFF file format: read, write, verify, unpack."""

from .errors import NeffAccessError, NeffError
from .findings import Finding
from .header import HEADER_SIZE, NeffHeader
from .layout import MANIFEST_MEMBER, NATIVE_MEMBER, STABLEHLO_MEMBER
from .limits import NeffLimits
from .manifest import NativePart, NeffManifest
from .reader import Neff, read_neff
from .tar import Member
from .unpack import unpack_neff
from .verify import verify_neff
from .writer import write_neff

__all__ = [
    "HEADER_SIZE",
    "MANIFEST_MEMBER",
    "NATIVE_MEMBER",
    "STABLEHLO_MEMBER",
    "Finding",
    "Member",
    "NativePart",
    "Neff",
    "NeffAccessError",
    "NeffError",
    "NeffHeader",
    "NeffLimits",
    "NeffManifest",
    "read_neff",
    "unpack_neff",
    "verify_neff",
    "write_neff",
]
