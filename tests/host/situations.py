"""The machines that people have: each a tree made in a directory, by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from host_kit import AMAZON_2023, GIB, UBUNTU_24, UBUNTU_26, HostTree

Situation = Callable[[Path], HostTree]

SYSTEM_2_33 = {
    "aws-neuronx-dkms": "2.31.7.0",
    "aws-neuronx-runtime-lib": "2.35.30.0-4b6f7a1c2",
    "aws-neuronx-collectives": "2.35.43.0-9f1d3e5a7",
    "aws-neuronx-tools": "2.33.38.0",
}
NO_DRIVER = (
    "RuntimeError: Unable to determine Neuron Driver version. Please check aws-neuronx-dkms package is installed."
)


def _python_2_33(tree: HostTree, torch: str = "2.14.0+cpu", torch_neuronx: str = "2.14.3.0.1523") -> None:
    tree.package("torch", torch)
    tree.package("torch-neuronx", torch_neuronx, tags=["cp314-cp314-linux_x86_64"])
    tree.package("neuronx-cc", "2.28.7631.0+a1b2c3d4")
    tree.package("nki", "0.7.0+g12ab34c")
    tree.program(f"{tree.prefix}/bin/neuronx-cc", "exit 1")


def _machine(root: Path, instance_type: str, *, python: str = "3.14.0") -> HostTree:
    tree = HostTree(root, python=python)
    tree.system(UBUNTU_26, glibc="2.43", instance_type=instance_type)
    tree.dpkg(SYSTEM_2_33)
    return tree


def good_trn2(root: Path) -> HostTree:
    """Everything of SDK 2.33.0, as the AMI has it; caches on FSx."""
    tree = _machine(root, "trn2.3xlarge")
    tree.driver("2.31.7.0")
    tree.devices("trn2.3xlarge", 1, lnc=2, cores=8)
    _python_2_33(tree)
    tree.mounts(
        ("/", "ext4", "/dev/root", "rw"),
        ("/dev/shm", "tmpfs", "tmpfs", "rw,size=65536000k"),
        ("/fsx", "lustre", "10.0.1.5@tcp:/fsx", "rw,flock"),
    )
    tree.variables["TORCH_NEURONX_NEFF_CACHE_DIR"] = "/fsx/neff"
    tree.file("/fsx/neff/ab/cd/abcd0000000000000000000000000000.neff", "x" * 4096, 0o600)
    tree.proof(torch="2.14.0+cpu", devices=1, device="neuron:0", difference=0.0)
    return tree


def good_trn3(root: Path) -> HostTree:
    tree = _machine(root, "trn3.48xlarge")
    tree.driver("2.31.7.0")
    tree.devices("trn3.48xlarge", 4, lnc=2, cores=8, memory=144 * GIB)
    _python_2_33(tree)
    tree.proof(torch="2.14.0+cpu", devices=1, device="neuron:0", difference=0.0)
    return tree


def trn1_native(root: Path) -> HostTree:
    """The native build, which knows Trn2 and Trn3 only, on a Trn1."""
    tree = _machine(root, "trn1.2xlarge")
    tree.driver("2.31.7.0")
    tree.devices("trn1.2xlarge", 1, lnc=1, cores=2, memory=32 * GIB)
    _python_2_33(tree)
    tree.proof(torch="2.14.0+cpu", error="torch.neuron.is_available() is False: there is no device")
    return tree


def no_driver(root: Path) -> HostTree:
    """The kernel was upgraded and the module not rebuilt."""
    tree = _machine(root, "trn2.3xlarge")
    tree.program("/usr/bin/modinfo", "echo 'modinfo: ERROR: Module neuron not found.' >&2; exit 1")
    tree.program("/opt/aws/neuron/bin/neuron-ls", "echo 'ERROR: No neuron devices found.' >&2; exit 1")
    _python_2_33(tree)
    tree.proof(torch="2.14.0+cpu", error=NO_DRIVER)
    return tree


def old_driver(root: Path) -> HostTree:
    """The runtime of SDK 2.33 on the driver of SDK 2.31."""
    tree = _machine(root, "trn2.3xlarge")
    tree.dpkg(SYSTEM_2_33 | {"aws-neuronx-dkms": "2.29.0.0"})
    tree.driver("2.29.0.0")
    tree.devices("trn2.3xlarge", 1, lnc=2, cores=8)
    _python_2_33(tree)
    tree.proof(torch="2.14.0+cpu", error="RuntimeError: This runtime requires Neuron Driver version 2.31 or greater")
    return tree


def container_without_devices(root: Path) -> HostTree:
    """`docker run` without `--device`: the host's driver shows through, its devices do not."""
    tree = HostTree(root)
    tree.system(UBUNTU_26, glibc="2.43", instance_type="trn2.3xlarge")
    tree.dpkg({name: version for name, version in SYSTEM_2_33.items() if name != "aws-neuronx-dkms"})
    tree.file("/.dockerenv", "")
    tree.mounts(("/", "overlay", "overlay", "rw"), ("/dev/shm", "tmpfs", "shm", "rw,size=65536k"))
    tree.file("/sys/module/neuron/version", "2.31.7.0\n")
    tree.file("/sys/fs/cgroup/memory.max", f"{32 * GIB}\n")
    tree.file("/sys/fs/cgroup/cpu.max", "400000 100000\n")
    tree.file("/dev/null", "")
    tree.program("/opt/aws/neuron/bin/neuron-ls", "echo 'ERROR: No neuron devices found.' >&2; exit 1")
    _python_2_33(tree)
    tree.proof(torch="2.14.0+cpu", error="torch.neuron.is_available() is False: there is no device")
    return tree


def xla_build(root: Path) -> HostTree:
    """torch-neuronx 2.9, the XLA build, on a Trn2 with SDK 2.31.1."""
    tree = HostTree(root, prefix="/opt/aws_neuronx_venv_pytorch_2_9", python="3.12.3")
    tree.system(UBUNTU_24, glibc="2.39", instance_type="trn2.3xlarge")
    tree.dpkg(
        {
            "aws-neuronx-dkms": "2.29.0.0",
            "aws-neuronx-runtime-lib": "2.33.10.0-aa11bb22c",
            "aws-neuronx-collectives": "2.33.10.0-cc33dd44e",
            "aws-neuronx-tools": "2.31.15.0",
        }
    )
    tree.driver("2.29.0.0")
    tree.devices("trn2.3xlarge", 1, lnc=2, cores=8)
    tree.package("torch", "2.9.1+cpu")
    tree.package("torch-neuronx", "2.9.0.2.15.32035+ab12cd34", tags=["py3-none-any"])
    tree.package("torch-xla", "2.9.0")
    tree.package("libneuronxla", "2.2.17544.0+0123abcd")
    tree.package("neuronx-cc", "2.26.6360.0+9f8e7d6c")
    tree.package("nki", "0.5.0+g1234567")
    tree.proof(torch="2.9.1+cpu", error="torch_neuronx makes no `torch.neuron`: it is not the native build")
    return tree


def placeholder(root: Path) -> HostTree:
    """`pip install torch-neuronx torch` without the vendor's index."""
    tree = _machine(root, "trn2.3xlarge")
    tree.driver("2.31.7.0")
    tree.devices("trn2.3xlarge", 1, lnc=2, cores=8)
    tree.package("torch", "2.14.0+cu130")
    tree.package("torch-neuronx", "1.0")
    tree.proof(torch="2.14.0+cu130", error="torch_neuronx makes no `torch.neuron`: it is not the native build")
    return tree


def two_lnc(root: Path) -> HostTree:
    """The devices are set to LNC 2, the environment asks for 1."""
    tree = good_trn2(root)
    tree.variables["NEURON_LOGICAL_NC_CONFIG"] = "1"
    tree.proof(torch="2.14.0+cpu", error="RuntimeError: NRT Error NRT_INVALID(2): logical NeuronCore configuration")
    return tree


def wrong_wheel(root: Path) -> HostTree:
    """Python 3.11 on Ubuntu 24.04, where 2.33.0 has no native wheel; a second copy hides in the user's directory."""
    tree = HostTree(root, prefix="/usr/local", python="3.11.9")
    tree.system(UBUNTU_24, glibc="2.39", instance_type="trn2.48xlarge", processors=192)
    tree.dpkg(SYSTEM_2_33)
    tree.driver("2.31.7.0")
    tree.devices("trn2.48xlarge", 2, lnc=2, cores=8)
    _python_2_33(tree, torch="2.13.0+cpu")
    tree.package("torch-neuronx", "2.9.0.2.15.32035", site="/usr/local/lib/python3.11/dist-packages")
    tree.proof(error="ImportError: undefined symbol: _ZN3c104impl8GPUTrace13gpuTraceStateE")
    return tree


def amazon_linux(root: Path) -> HostTree:
    """Amazon Linux 2023, whose glibc is too old; nki was forgotten."""
    tree = HostTree(root, prefix="/opt/venv", python="3.12.9")
    tree.system(AMAZON_2023, glibc="2.34", instance_type="trn2.3xlarge")
    tree.file("/var/lib/rpm/rpmdb.sqlite", "")
    tree.prints(
        "/usr/bin/rpm",
        "bash 5.2.15-1.amzn2023\naws-neuronx-dkms 2.31.7.0-dkms\naws-neuronx-runtime-lib 2.35.30.0-1\n"
        "aws-neuronx-collectives 2.35.43.0-1\naws-neuronx-tools 2.33.38.0-0",
    )
    tree.driver("2.31.7.0")
    tree.devices("trn2.3xlarge", 1, lnc=2, cores=8)
    tree.package("torch", "2.14.0+cpu")
    tree.package("torch-neuronx", "2.14.3.0.1523")
    tree.package("neuronx-cc", "2.28.7631.0")
    tree.proof(error="ImportError: /lib64/libc.so.6: version `GLIBC_2.35' not found")
    return tree


def simulated(root: Path) -> HostTree:
    """A laptop with our simulated device."""
    tree = HostTree(root, prefix="/opt/venv", python="3.12.7")
    tree.system(UBUNTU_24, glibc="2.39", instance_type="20Y0S2FK00", processors=8)
    tree.file("/sys/class/dmi/id/sys_vendor", "LENOVO\n")
    tree.dpkg({})
    tree.package("torch", "2.13.0+cpu")
    tree.package(
        "torch-neuronx-sim",
        "2.13.0+sim",
        direct_url={"url": "file:///src/torch_plugin", "dir_info": {"editable": True}},
    )
    tree.package("neuron-env", "0.1.0")
    tree.package("jaxlib", "0.10.2")
    tree.proof(torch="2.13.0+cpu", devices=1, device="neuron:0 (simulated trn2.3xlarge)", difference=0.0)
    return tree


SITUATIONS: dict[str, Situation] = {
    make.__name__: make
    for make in (
        good_trn2,
        good_trn3,
        trn1_native,
        no_driver,
        old_driver,
        container_without_devices,
        xla_build,
        placeholder,
        two_lnc,
        wrong_wheel,
        amazon_linux,
        simulated,
    )
}
