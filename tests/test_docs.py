"""Documentation that cannot fall behind the code: settings, commands, folders."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("cli", "cache_server", "neuron_runtime", "torch_plugin/torch_neuronx")
VARIABLE = re.compile(r"\b(?:NEURON|TORCH_NEURONX)(?:_[A-Z][A-Z0-9]*)+\b")


def sources() -> str:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return "\n".join(path.read_text() for path in files + sorted((ROOT / "torch_plugin" / "csrc").glob("*.cpp")))


@pytest.mark.parametrize("variable", sorted(set(VARIABLE.findall(sources())) - {"NEURON_ENV", "NEURON_RT"}))
def test_every_variable_that_the_code_reads_is_in_the_settings_page(variable: str) -> None:
    assert f"`{variable}`" in (ROOT / "docs" / "settings.md").read_text()


def test_every_setting_in_the_page_is_one_that_the_code_knows() -> None:
    documented = set(re.findall(r"^\| `([A-Z0-9_]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))
    assert len(documented) > 20
    assert documented <= set(VARIABLE.findall(sources()))


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_names_every_package(package: str) -> None:
    architecture = (ROOT / "ARCHITECTURE.md").read_text()
    for init in (ROOT / package).rglob("__init__.py"):
        assert f"{init.parent.name}/" in architecture, f"ARCHITECTURE.md does not name {init.parent}"


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_rooms_import_only_from_rooms_below() -> None:
    below = {
        "cli": {"cli", "torch_neuronx", "cache_server", "neuron_runtime"},
        "torch_plugin/torch_neuronx": {"torch_neuronx", "cache_server", "neuron_runtime"},
        "cache_server": {"cache_server", "neuron_runtime"},
        "neuron_runtime": {"neuron_runtime"},
    }
    rooms = {"cli", "torch_neuronx", "cache_server", "neuron_runtime"}
    for room, allowed in below.items():
        for path in (ROOT / room).rglob("*.py"):
            imported = set(re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(), re.MULTILINE)) & rooms
            assert imported <= allowed, f"{path.relative_to(ROOT)} imports from {sorted(imported - allowed)}"
