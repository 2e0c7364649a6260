"""Tensors on the device: made, moved, viewed, filled, saved, with nothing computed."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("neuron")]

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64")


def sample(dtype: str, *shape: int) -> Any:
    return (torch.arange(1, 1 + torch.Size(shape).numel()) % 7).reshape(shape).to(getattr(torch, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_comes_back_as_it_went(dtype: str) -> None:
    given = sample(dtype, 3, 5)
    there = given.to("neuron")
    assert (there.device, there.dtype, there.is_neuron) == (torch.device("neuron:0"), given.dtype, True)
    assert torch.equal(there.cpu(), given)


def test_a_tensor_that_is_not_contiguous_keeps_its_values_and_strides() -> None:
    given = sample("float32", 4, 6).t()
    there = given.to("neuron")
    assert there.stride() == given.stride()
    assert torch.equal(there.cpu(), given)
    assert torch.equal(there[1:4:2, ::3].cpu(), given[1:4:2, ::3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_fill_and_zero_reach_only_the_view(dtype: str) -> None:
    value = True if dtype == "bool" else 3
    there, here = sample(dtype, 4, 6).to("neuron"), sample(dtype, 4, 6)
    for tensor in (there, here):
        tensor[1:, ::2].fill_(value)
        tensor[0].zero_()
    assert torch.equal(there.cpu(), here)


def test_strided_copies_within_the_device_run_in_order() -> None:
    given = sample("int32", 8, 8)
    there = given.to("neuron")
    turned = there.t().contiguous()
    there.zero_()
    turned[:, 2:5].copy_(turned[:, 0:1].clone().expand(8, 3))
    wanted = given.t().contiguous()
    wanted[:, 2:5] = wanted[:, 0:1].clone()
    assert torch.equal(turned.cpu(), wanted)
    assert not there.cpu().any()


def test_host_writes_do_not_overtake_queued_reads() -> None:
    there = torch.ones(1 << 16, device="neuron")
    copies = []
    for step in range(20):
        copies.append(there.clone())
        there.copy_(torch.full((1 << 16,), float(step)))
    values = [float(copy[0]) for copy in copies]
    assert values == [1.0, *map(float, range(19))]


def test_views_share_memory() -> None:
    there = torch.zeros(2, 3, 4, device="neuron")
    there.view(6, 4)[5].fill_(1)
    there.permute(2, 0, 1)[0, 0].fill_(2)
    wanted = torch.zeros(2, 3, 4)
    wanted[1, 2] = 1
    wanted[0, :, 0] = 2
    assert torch.equal(there.cpu(), wanted)


def test_resize_keeps_the_contents_and_set_shares_them() -> None:
    there = torch.arange(4, dtype=torch.float32).to("neuron")
    there.resize_(3, 100)
    assert there.cpu().flatten()[:4].tolist() == [0, 1, 2, 3]
    other = torch.empty(0, device="neuron")
    other.set_(there.untyped_storage(), 1, (3,), (1,))
    there.flatten()[2].fill_(9)
    assert other.cpu().tolist() == [1, 9, 3]


def test_tensors_without_elements_or_dimensions() -> None:
    assert torch.empty(0, 3, device="neuron").cpu().shape == (0, 3)
    assert torch.tensor(2.5, device="neuron").item() == 2.5
    assert torch.empty(2, 0, device="neuron").copy_(torch.empty(2, 0)).numel() == 0


def test_saved_tensors_load_where_they_were_and_elsewhere() -> None:
    there = sample("float32", 3, 4).to("neuron")
    buffer = io.BytesIO()
    torch.save({"w": there, "row": there[1]}, buffer)
    for place in (None, "cpu", "neuron"):
        buffer.seek(0)
        loaded = torch.load(buffer, map_location=place)
        assert loaded["w"].device.type == (place or "neuron")
        assert torch.equal(loaded["w"].cpu(), there.cpu())
        assert loaded["row"].untyped_storage().data_ptr() == loaded["w"].untyped_storage().data_ptr()
    buffer = io.BytesIO()
    torch.save(there.cpu(), buffer)
    buffer.seek(0)
    assert torch.load(buffer, map_location="neuron").device.type == "neuron"


def test_pickle_and_deepcopy() -> None:
    import copy

    there = sample("int64", 5).to("neuron")
    for made in (pickle.loads(pickle.dumps(there)), copy.deepcopy(there)):
        assert made.device.type == "neuron"
        assert torch.equal(made.cpu(), there.cpu())


def test_pinned_memory_is_host_memory() -> None:
    pinned = torch.arange(6.0).pin_memory()
    assert pinned.is_pinned()
    assert not torch.arange(6.0).is_pinned()
    assert torch.equal(pinned.to("neuron", non_blocking=True).cpu(), pinned)


def test_channels_last_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Neuron only supports contiguous/preserve memory format"):
        torch.empty(1, 2, 3, 4, device="neuron", memory_format=torch.channels_last)


def test_printing_shows_the_device() -> None:
    assert repr(torch.arange(3).to("neuron")) == "tensor([0, 1, 2], device='neuron:0')"


def test_conjugate_and_negative_views_are_copied_with_their_meaning() -> None:
    there = torch.tensor([1 + 2j, 3 - 4j]).to("neuron")
    assert there.conj().clone().cpu().tolist() == [1 - 2j, 3 + 4j]
    assert there.conj().imag.cpu().tolist() == [-2, 4]
    target = torch.zeros(2, dtype=torch.complex64, device="neuron")
    target.conj().copy_(there)
    assert target.cpu().tolist() == [1 - 2j, 3 + 4j]


def test_dlpack_shares_what_is_on_the_host_and_refuses_the_device() -> None:
    there = torch.arange(6.0).to("neuron")
    here = there.cpu()
    shared = torch.from_dlpack(here)
    assert torch.equal(shared, torch.arange(6.0))
    assert shared.data_ptr() == here.data_ptr()
    # DLPack has no name for this device: the protocol's own question is answered with an error, as by PyTorch for every
    # device of an extension, while a capsule stays within PyTorch and on the device.
    with pytest.raises(ValueError, match="Unknown device type neuron for Dlpack"):
        torch.from_dlpack(there)
    again = torch.utils.dlpack.from_dlpack(there.__dlpack__())
    assert again.device == there.device
    assert again.data_ptr() == there.data_ptr()


def test_storages_move_copy_fill_and_change_their_size() -> None:
    there = torch.arange(3.0).untyped_storage().neuron()
    assert (there.device, there.nbytes(), there.is_neuron) == (torch.device("neuron:0"), 12, True)
    assert there.cpu().tolist() == torch.arange(3.0).untyped_storage().tolist()
    copy = torch.UntypedStorage(12, device="neuron").copy_(there)
    copy.resize_(20)
    copy.resize_(8)
    assert copy.tolist() == there.cpu().tolist()[:8]
    assert torch.UntypedStorage(3, device="neuron").fill_(7).tolist() == [7, 7, 7]
    assert there.clone().data_ptr() != there.data_ptr()


def test_set_and_resize_follow_their_tensors() -> None:
    there = torch.arange(6.0).to("neuron")
    view = there[2:]
    other = torch.empty(0, device="neuron").set_(view)
    other.fill_(9)
    assert there.tolist() == [0, 1, 9, 9, 9, 9]
    assert other.storage_offset() == 2
    other.set_()
    assert (other.numel(), other.device.type) == (0, "neuron")
    view.resize_(8)
    assert view[:4].tolist() == [9, 9, 9, 9]
    assert there.data_ptr() == view.data_ptr() - 8
    small = torch.empty(0, device="neuron").resize_as_(there)
    assert small.shape == (6,)
    there.resize_(2)
    assert there.tolist() == [0, 1]


def test_map_location_moves_what_was_saved_on_either_side(tmp_path: Any) -> None:
    path = tmp_path / "saved.pt"
    model = torch.nn.Linear(3, 2)
    torch.save(model.state_dict(), path)
    for place in (
        "neuron",
        "neuron:0",
        torch.device("neuron"),
        {"cpu": "neuron:0"},
        lambda storage, _: storage.neuron(),
    ):
        loaded = torch.load(path, map_location=place)
        assert {value.device for value in loaded.values()} == {torch.device("neuron:0")}
        assert torch.equal(loaded["weight"].cpu(), model.weight)
    torch.save(model.to("neuron").state_dict(), path)
    for place in ("cpu", {"neuron:0": "cpu"}, lambda storage, _: storage):
        loaded = torch.load(path, map_location=place)
        assert {value.device.type for value in loaded.values()} == {"cpu"}
        assert torch.equal(loaded["weight"], model.weight.cpu())
    with pytest.raises(RuntimeError, match=r"neuron"):
        torch.load(path, map_location="neuron:7")
