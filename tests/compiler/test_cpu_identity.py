"""Which hosts may run which native code."""

from __future__ import annotations

from pathlib import Path

from neuron_runtime.cpu import CpuIdentity, host_cpu, parse_cpuinfo

X86 = """processor\t: 0
flags\t\t: fpu sse sse2 avx2 fma avx512f ibpb hypervisor
processor\t: 1
flags\t\t: fpu sse sse2 avx2 fma md_clear
"""
ARM = "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd sve\n"


def test_only_instruction_sets_that_every_processor_has():
    assert parse_cpuinfo(X86, "x86_64") == CpuIdentity("x86_64", ("avx2", "fma", "sse", "sse2"))


def test_arm_features_are_taken_whole():
    assert parse_cpuinfo(ARM, "aarch64") == CpuIdentity("aarch64", ("asimd", "fp", "sve"))


def test_code_runs_where_its_features_are():
    small, large = CpuIdentity("x86_64", ("avx2",)), CpuIdentity("x86_64", ("avx2", "avx512f"))
    assert large.supports(small)
    assert not small.supports(large)
    assert small.missing(large.features) == ("avx512f",)
    assert not CpuIdentity("aarch64", ("avx2",)).supports(small)


def test_this_host_supports_itself_and_has_features():
    assert host_cpu().supports(host_cpu())
    assert host_cpu().features


def test_unreadable_cpuinfo_gives_no_features(tmp_path: Path):
    assert host_cpu(tmp_path / "absent").features == ()
