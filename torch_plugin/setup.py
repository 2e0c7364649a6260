"""Builds torch_neuronx._C against the torch that is installed; everything else is in pyproject.toml."""

import os
import shutil
import subprocess
from pathlib import Path

import torch
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

ROOT = Path(__file__).resolve().parent
FLAGS = ["-O2", "-g0", "-Wall", "-fvisibility=hidden"]

os.chdir(ROOT)
# A compiler takes about a gigabyte; more of them at a time is the builder's choice.
os.environ.setdefault("MAX_JOBS", str(min(2, os.cpu_count() or 1)))


class Build(BuildExtension):
    """Reads PyTorch's headers once for all files where the compiler is GCC; they are most of the work."""

    def build_extensions(self) -> None:
        header = Path(self.build_temp).resolve() / "common.h"
        if self._precompile(header):
            for extension in self.extensions:
                extension.extra_compile_args += ["-include", str(header)]
        super().build_extensions()

    def _precompile(self, header: Path) -> bool:
        compiler = [*self.compiler.compiler_so_cxx] if hasattr(self.compiler, "compiler_so_cxx") else []
        if not compiler or "Free Software Foundation" not in _output([compiler[0], "--version"]):
            return False
        source, made = ROOT / "csrc" / "common.h", Path(f"{header}.gch")
        if made.exists() and made.stat().st_mtime > max(source.stat().st_mtime, Path(torch.__file__).stat().st_mtime):
            return True
        header.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, header)
        extension = self.extensions[0]
        include = [f"-I{path}" for path in extension.include_dirs + self.compiler.include_dirs]
        macros = ["-DTORCH_API_INCLUDE_EXTENSION_H", "-DTORCH_EXTENSION_NAME=_C", "-std=c++20"]
        command = [*compiler, *include, *FLAGS, *macros, "-x", "c++-header", str(header), "-o", str(made)]
        return subprocess.run(command, check=False).returncode == 0


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""


setup(
    ext_modules=[
        CppExtension(
            "torch_neuronx._C",
            sorted(str(path) for path in Path("csrc").glob("*.cpp")),
            extra_compile_args=list(FLAGS),
        )
    ],
    cmdclass={"build_ext": Build},
)
