"""Builds torch_neuronx._C against the torch that is installed; everything else is in pyproject.toml."""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, include_paths

ROOT = Path(__file__).resolve().parent
FLAGS = ["-O2", "-g0", "-Wall", "-fvisibility=hidden"]
# PyTorch's headers are most of the work, so they are read twice and not once a file; twice, for two processors.
PARTS = 2

os.chdir(ROOT)
# A compiler takes about a gigabyte; more of them at a time is the builder's choice.
os.environ.setdefault("MAX_JOBS", str(min(PARTS, os.cpu_count() or 1)))


class Build(BuildExtension):
    """Compiles files that include the real ones. Those share a namespace: names in it must differ."""

    def build_extensions(self) -> None:
        for extension in self.extensions:
            sources = sorted(extension.sources)
            extension.sources = [self._part(number, sources[number::PARTS]) for number in range(PARTS)]
        super().build_extensions()

    def _part(self, number: int, sources: list[str]) -> str:
        part = Path(self.build_temp).resolve() / f"part{number}.cpp"
        text = "".join(f'#include "{(ROOT / source).as_posix()}"\n' for source in sources)
        if not part.exists() or part.read_text() != text:
            part.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text)
        return str(part)


setup(
    ext_modules=[
        CppExtension(
            "torch_neuronx._C",
            sorted(str(path) for path in Path("csrc").glob("*.cpp")),
            # The profiler's headers include one another as if they lay at the top.
            include_dirs=[str(ROOT / "csrc"), *(f"{path}/kineto" for path in include_paths())],
            depends=sorted(str(path) for path in Path("csrc").glob("*")),
            extra_compile_args=list(FLAGS),
        )
    ],
    cmdclass={"build_ext": Build},
)
