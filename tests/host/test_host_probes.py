"""Probes that hang, crash and lie; programs that do not end; trees that lead out of themselves."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from host_kit import UBUNTU_24, HostTree

from neuron_runtime.host.caches import probe_caches
from neuron_runtime.host.devices import family_of, probe_devices
from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts, NotFoundHere
from neuron_runtime.host.mounts import mount_of, read_mounts
from neuron_runtime.host.packages import read_packages, torch_neuronx_build
from neuron_runtime.host.places import cache_places
from neuron_runtime.host.probes import run_probes
from neuron_runtime.host.pythons import find_python
from neuron_runtime.host.report import collect_host
from neuron_runtime.host.running import Programs
from neuron_runtime.host.text import report_lines, report_markdown

Machine = Callable[[str], HostTree]
ENVIRON = {"PATH": os.environ["PATH"]}


def fine() -> Facts:
    facts = Facts()
    facts.put("value", 1)
    return facts


def test_a_probe_that_hangs_or_crashes_leaves_the_others_alone() -> None:
    release = threading.Event()

    def hangs() -> Facts:
        release.wait()
        return Facts()

    def crashes() -> Facts:
        raise ZeroDivisionError("by zero")

    started = time.monotonic()
    answers = run_probes({"hangs": hangs, "crashes": crashes, "fine": fine}, {"hangs": 0.2}, 5.0)
    release.set()
    assert time.monotonic() - started < 4
    assert list(answers) == ["hangs", "crashes", "fine"]
    assert (answers["hangs"].facts, answers["hangs"].failed) == (None, "timed out")
    assert answers["hangs"].reason == "timed out after 0.2 s"
    assert answers["crashes"].failed == "crashed"
    assert "ZeroDivisionError: by zero" in str(answers["crashes"].reason)
    assert answers["fine"].facts == {"value": 1}


def test_a_program_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    script = tmp_path / "hangs"
    script.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/child\nwait\n")
    script.chmod(0o755)
    with pytest.raises(NotFoundHere, match=r"^`it` timed out after 0.5 s$"):
        Programs().run([str(script)], ENVIRON, 0.5, label="it")
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline, "the program's child outlived it"
        os.sched_yield()


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_no_program_outlives_the_report(machine: Machine) -> None:
    """A proof that was begun and whose time is over, or whose reader was interrupted."""
    tree = machine("good_trn2")
    tree.program(f"{tree.prefix}/bin/python", f"echo $$ > {tree.root}/pid; exec sleep 600")
    programs = Programs()

    def run() -> None:
        with pytest.raises(NotFoundHere, match="ended with signal 9"):
            programs.run([str(tree.root / f"{tree.prefix[1:]}/bin/python")], ENVIRON, 100.0, label="it")

    thread = threading.Thread(target=run)
    thread.start()
    deadline = time.monotonic() + 20
    while not (tree.root / "pid").exists():
        assert time.monotonic() < deadline
        os.sched_yield()
    programs.end()
    thread.join(20)
    assert not thread.is_alive()
    with pytest.raises(NotFoundHere, match="was not started"):
        programs.run(["true"], ENVIRON, 1.0, label="true")


def test_a_program_that_talks_without_end_is_stopped() -> None:
    with pytest.raises(NotFoundHere, match="printed more than 16 MiB"):
        Programs().run(["yes"], ENVIRON, 60.0, label="yes")


def test_a_program_that_fails_is_quoted() -> None:
    with pytest.raises(NotFoundHere, match=r"^`it` ended with status 3: out of order$"):
        Programs().run(["sh", "-c", "echo out of  order >&2; exit 3"], ENVIRON, 10.0, label="it")
    with pytest.raises(NotFoundHere, match="ended with signal 9"):
        Programs().run(["sh", "-c", "kill -9 $$"], ENVIRON, 10.0, label="it")


def test_a_hung_neuron_ls_is_reported_and_the_rest_of_the_devices_stays(machine: Machine) -> None:
    tree = machine("good_trn2")
    tree.program("/opt/aws/neuron/bin/neuron-ls", "sleep 600")
    devices = probe_devices(replace(tree.host(), time_limit=0.3))
    assert (devices.values["neuron_ls"], devices.values["nodes"]) == (None, ["/dev/neuron0"])
    assert devices.reasons["neuron_ls"] == "`neuron-ls --json-output` timed out after 0.3 s"


@pytest.mark.parametrize("printed", ["Segmentation fault", "{}", "[1]", "null"])
def test_what_neuron_ls_prints_may_be_anything(machine: Machine, printed: str) -> None:
    tree = machine("good_trn2")
    tree.prints("/opt/aws/neuron/bin/neuron-ls", printed)
    report = collect_host(tree.host(), proof=False)
    assert "`neuron-ls --json-output` printed" in report.not_found["devices.neuron_ls"]


def test_a_proof_that_hangs_is_ended(machine: Machine) -> None:
    tree = machine("good_trn2")
    tree.program(f"{tree.prefix}/bin/python", "sleep 600")
    report = collect_host(tree.host(), proof_timeout=0.3)
    assert not report.usable
    assert report.verdict == "not usable: `the proof` timed out after 0.3 s"


def test_a_proof_without_an_answer_proves_nothing(machine: Machine) -> None:
    tree = machine("good_trn2")
    tree.prints(f"{tree.prefix}/bin/python", "all is well")
    assert collect_host(tree.host()).verdict == "not usable: the proof ended without an answer"


def test_the_proof_takes_one_core_unless_told(machine: Machine) -> None:
    tree = machine("good_trn2")
    answer = 'NEURON-ENV-PROOF {"torch": "2", "device": "cores \'\'"}'
    tree.program(
        f"{tree.prefix}/bin/python",
        f"""echo "{answer.replace('"', chr(92) + '"')}" | sed "s/''/$NEURON_RT_NUM_CORES/" """,
    )
    assert collect_host(tree.host()).sections["proof"]["device"] == "cores 1"  # type: ignore[index]
    tree.variables["NEURON_RT_NUM_CORES"] = "3"
    assert collect_host(tree.host()).sections["proof"]["device"] == "cores 3"  # type: ignore[index]


def test_another_environment_that_is_active_is_pointed_out(machine: Machine) -> None:
    tree = machine("good_trn2")
    tree.package("neuron-env", "0.1.0", site="/usr/lib/python3/dist-packages")
    tree.variables["VIRTUAL_ENV"] = "/home/ada/venv"
    report = collect_host(tree.host(), python="/usr")
    assert report.verdict.endswith(
        "torch is not installed in /usr; the active environment is another: give `--python /home/ada/venv`"
    )


def test_programs_of_an_image_are_not_run(machine: Machine) -> None:
    tree = machine("good_trn2")
    tree.program("/opt/aws/neuron/bin/neuron-ls", f"touch {tree.root}/ran")
    tree.program(f"{tree.prefix}/bin/python", f"touch {tree.root}/ran")
    report = collect_host(Host.image(tree.root))
    assert not (tree.root / "ran").exists()
    assert report.verdict == "not usable: not tried: the programs of an image are not executed"
    assert "the programs of an image are not executed" in report.not_found["devices.neuron_ls"]
    assert (report.sections["packages"] or {})["torch"]["version"] == "2.14.0+cpu"


def test_links_of_a_tree_do_not_lead_out_of_it(tmp_path: Path) -> None:
    outside = tmp_path / "secret"
    outside.write_text("outside")
    tree = HostTree(tmp_path / "root")
    tree.file("/etc/inside", "inside")
    host = tree.host()
    for name, target in {
        "absolute": "/etc/inside",
        "relative": "inside",
        "up": "../../../../../etc/inside",
        "out": str(outside),
        "climb": "../../secret",
        "loop": "loop",
    }.items():
        (tree.root / "etc" / name).symlink_to(target)
    assert [host.text(f"/etc/{name}") for name in ("absolute", "relative", "up")] == ["inside"] * 3
    assert host.text("/etc/../../etc/inside") == "inside"
    for name in ("out", "climb", "loop"):
        with pytest.raises(NotFoundHere):
            host.text(f"/etc/{name}")


def test_a_python_is_chosen_by_what_it_holds(tmp_path: Path) -> None:
    tree = HostTree(tmp_path, prefix="/opt/b_neuron", python="3.12.3")
    tree.file("/opt/a_other/lib/python3.13/site-packages/x.py", "")
    tree.file("/usr/lib/python3/dist-packages/apt.py", "")
    tree.package("torch-neuronx", "2.14.3.0.1")
    host = Host(root=tmp_path, environ={})
    found = find_python(host)
    assert (found.prefix, found.version, found.series) == ("/opt/b_neuron", "3.12.3", "3.12")
    chosen = find_python(host, "/opt/a_other")
    assert (chosen.version, chosen.executable) == ("3.13", None)
    with pytest.raises(NotFoundHere, match="no package of Neuron"):
        read_packages(host, chosen)
    with pytest.raises(NotFoundHere, match="belongs to no Python environment"):
        find_python(host, "/opt/nothing")
    with pytest.raises(NotFoundHere, match="no Python environment"):
        find_python(Host(root=tmp_path / "etc", environ={}))


def test_where_a_package_came_from(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.package("torch", "2.13.0")
    tree.file(f"{tree.site}/torch/version.py", "__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n")
    tree.package(
        "nki",
        "0.7.0",
        direct_url={"url": "https://example.com/nki.git", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}},
    )
    tree.package("neuronx-cc", "2.28", direct_url={"url": "file:///wheels/neuronx_cc.whl", "archive_info": {}})
    tree.file(f"{tree.site}/nrtpy-2.35.30.dist-info/RECORD", "left behind by an interrupted removal")
    tree.file(f"{tree.site}/jax-0.10.0.dist-info/direct_url.json", "{")
    tree.package("jaxlib", "0.10.2")
    tree.file(f"{tree.site}/jaxlib-0.10.2.dist-info/direct_url.json", "{")
    host = tree.host()
    found = read_packages(host, find_python(host))
    assert set(found) == {"torch", "nki", "neuronx-cc", "jaxlib"}
    assert found["jaxlib"]["origin"] == "unknown: direct_url.json cannot be read"
    assert found["torch"]["build"] == "cu130"
    assert found["torch"]["origin"].startswith("a package index")
    assert found["nki"]["origin"] == "git, https://example.com/nki.git at aaaaaaaaaaaa"
    assert found["neuronx-cc"]["origin"] == "file:///wheels/neuronx_cc.whl"


@pytest.mark.parametrize(
    ("version", "build"),
    [
        ("1.0", "placeholder"),
        ("1.0.0", "placeholder"),
        ("1.13.1.1.8.0", "xla"),
        ("2.9.0.2.15.32035", "xla"),
        ("2.13.3.0.1", "native"),
        ("2.14.3.0.1523+abc", "native"),
        ("3.0", "native"),
    ],
)
def test_what_a_version_of_torch_neuronx_is(version: str, build: str) -> None:
    assert torch_neuronx_build(version) == build


@pytest.mark.parametrize(
    ("instance_type", "family"),
    [
        ("Trn2", "trn2"),
        ("trn2u.48xlarge", "trn2"),
        ("trn1n.32xlarge", "trn1"),
        ("inf2.xlarge", "inf2"),
        ("m7i.large", None),
    ],
)
def test_the_family_of_an_instance_type(instance_type: str, family: str | None) -> None:
    assert family_of(instance_type) == family


def test_large_caches_are_counted_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuron_runtime.host.caches.COUNT_S", 0.0)
    tree = HostTree(tmp_path)
    tree.variables["TORCH_NEURONX_NEFF_CACHE_DIR"] = "/data/neff"
    tree.file("/data/neff/aa/bb/one.neff", "x" * 10)
    cache = probe_caches(tree.host()).values["TorchNeuron NEFF"]
    assert (cache["complete"], cache["setting"]) == (False, "TORCH_NEURONX_NEFF_CACHE_DIR")
    assert cache["mode"] == "0755"


def test_a_cache_on_a_dead_mount_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks at a mount whose server is gone hangs in the kernel; here, in a lock."""
    release = threading.Event()
    look = Host.status

    def status(self: Host, name: str) -> os.stat_result:
        if name == "/dead/neff":
            release.wait(60)
        return look(self, name)

    monkeypatch.setattr(Host, "status", status)
    tree = HostTree(tmp_path)
    tree.mounts(("/", "ext4", "/dev/root", "rw"), ("/dead", "nfs4", "server:/x", "rw,hard"))
    tree.variables |= {"NEURON_ENV_CACHE_URL": "/dead/neff", "TORCH_NEURONX_NEFF_CACHE_DIR": "/live"}
    tree.file("/live/x.neff", "x")
    caches = probe_caches(replace(tree.host(), time_limit=1.0)).values
    release.set()
    dead = caches["neuron-env shared"]
    assert (dead["exists"], dead["filesystem"], dead["reason"]) == (None, "nfs4", "timed out after 1 s")
    assert caches["TorchNeuron NEFF"]["files"] == 1


def test_a_cache_that_is_a_url_is_not_looked_at(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.variables["NEURON_ENV_CACHE_URL"] = "s3://bucket/neffs"
    assert probe_caches(tree.host()).values["neuron-env shared"] == {
        "place": "s3://bucket/neffs",
        "setting": "NEURON_ENV_CACHE_URL",
        "kind": "url",
    }


@pytest.mark.parametrize(
    ("environ", "name", "place", "setting"),
    [
        ({}, "libneuronxla", "/var/tmp/neuron-compile-cache", None),
        ({"NEURON_COMPILE_CACHE_URL": "s3://b/x"}, "libneuronxla", "s3://b/x", "NEURON_COMPILE_CACHE_URL"),
        ({"NEURON_COMPILE_CACHE_URL": "s3://b/x"}, "neuron-env shared", "/h/.cache/neuron-env/shared", None),
        ({"NEURON_COMPILE_CACHE_URL": "/fsx"}, "neuron-env shared", "/fsx", "NEURON_COMPILE_CACHE_URL"),
        ({"NEURON_CC_FLAGS": "-O1 --cache_dir=/c --lnc 2"}, "libneuronxla", "/c", "NEURON_CC_FLAGS"),
        ({"NEURON_ENV_CACHE_URL": "None"}, "neuron-env shared", "none", "NEURON_ENV_CACHE_URL"),
        ({"NEURON_ENV_CACHE_LOCAL_DIR": "~/l"}, "neuron-env local", "/h/l", "NEURON_ENV_CACHE_LOCAL_DIR"),
        ({"XDG_CACHE_HOME": "/x"}, "neuron-env local", "/x/neuron-env/local", None),
        ({"NKI_TRACE_CACHE_URL": "/nki"}, "NKI trace", "/nki", "NKI_TRACE_CACHE_URL"),
    ],
)
def test_where_a_cache_is(environ: dict[str, str], name: str, place: str, setting: str | None) -> None:
    places = {found.name: found for found in cache_places({"HOME": "/h", **environ})}
    assert (places[name].place, places[name].setting) == (place, setting)
    assert ("NKI trace" in places) is ("NKI_TRACE_CACHE_URL" in environ)


def test_a_cache_that_is_switched_off(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.variables["NEURON_ENV_CACHE_URL"] = "none"
    report = collect_host(tree.host(), proof=False)
    assert report.sections["caches"]["neuron-env shared"]["kind"] == "off"  # type: ignore[index]
    assert any("switched off" in line for line in report_lines(report.to_json()))


def test_the_deepest_and_last_mount_counts(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.mounts(
        ("/", "ext4", "/dev/root", "rw"),
        ("/a\\040b", "nfs4", "server:/x", "rw"),
        ("/data", "ext4", "/dev/sda", "rw"),
        ("/data", "lustre", "server@tcp:/fsx", "ro"),
    )
    mounts = read_mounts(tree.host())
    for name, kind in {"/etc": "ext4", "/a b/c": "nfs4", "/data/x": "lustre", "/database": "ext4"}.items():
        found = mount_of(mounts, name)
        assert found is not None
        assert found.filesystem == kind


def test_the_environment_of_a_report_holds_no_secret(machine: Machine) -> None:
    tree = machine("good_trn2")
    tree.variables |= {"NEURON_ENV_CACHE_TOKEN": "s3cret", "HF_TOKEN": "s3cret", "HF_HOME": "/data/hf", "EDITOR": "vi"}
    document = collect_host(tree.host(), proof=False).to_json()
    assert document["sections"]["variables"]["HF_TOKEN"] == "(set; not shown)"
    assert document["sections"]["variables"]["HF_HOME"] == "/data/hf"
    assert "EDITOR" not in document["sections"]["variables"]
    assert "s3cret" not in str(document)
    assert "s3cret" not in "\n".join(report_lines(document))


def test_markdown_cannot_be_broken_out_of(machine: Machine) -> None:
    tree = machine("good_trn2")
    tree.variables["NEURON_CC_FLAGS"] = "``` </details> ````"
    text = report_markdown(collect_host(tree.host(), proof=False).to_json())
    assert "\n`````text\n" in text
    assert text.count("\n`````\n") == 1


def test_this_machine_is_collected_in_time() -> None:
    report = collect_host(Host.here(), proof=False)
    assert report.sections["system"] is not None
    assert report.sections["system"]["kernel"] == os.uname().release
    assert report.sections["python"] is not None
    assert not report.usable
    assert report.failed == {}


def test_an_old_system_is_told_by_its_files(tmp_path: Path) -> None:
    tree = HostTree(tmp_path)
    tree.system(UBUNTU_24, glibc="2.39", instance_type="trn2.3xlarge")
    tree.file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824")
    (tree.root / "etc/os-release").unlink()
    tree.file("/usr/lib/os-release", "ID=debian\nVERSION_ID='12'\n# a comment = x\n")
    tree.file("/proc/1/cgroup", "4:memory:/docker/0123456789abcdef\n")
    report = collect_host(tree.host(), proof=False)
    system, around = report.sections["system"], report.sections["surroundings"]
    assert system is not None
    assert around is not None
    assert (system["os_id"], system["os_version"]) == ("debian", "12")
    assert (around["container"], around["memory_limit_bytes"]) == ("docker", 1 << 30)
