"""What capture makes of parameters, buffers, arguments and results."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")


class Counter(torch.nn.Module):
    """A weight, a buffer that each call overwrites, one that nothing reads, and results of every kind."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("total", torch.zeros(2, 3))
        self.register_buffer("unread", torch.zeros(5))

    def forward(self, x, scale, *, bias=None):
        self.total += x
        y = self.linear(x) * scale
        return {"y": y, "none": bias, "total": self.total, "again": y, "number": 7, "x": x}


def describe(captured):
    return [(entry.source, entry.role.value) for entry in captured.inputs]


def test_weights_come_first_and_unread_ones_not_at_all():
    from torch_neuronx import capture

    captured = capture(Counter(), (torch.ones(2, 3), 2.0))
    assert describe(captured) == [
        ("linear.weight", "parameter"),
        ("linear.bias", "parameter"),
        ("total", "buffer"),
        ("x", "user"),
    ]
    assert [entry.spec.name for entry in captured.inputs] == ["input0", "input1", "input2", "input3"]
    assert captured.inputs[3].spec.shape == (2, 3)


def test_unread_arguments_keep_their_place():
    from torch_neuronx import capture

    class Second(torch.nn.Module):
        def forward(self, first, second):
            return second + 1

    captured = capture(Second(), (torch.ones(2), torch.ones(3)))
    assert describe(captured) == [("first", "user"), ("second", "user")]


def test_weights_are_the_live_tensors_of_the_module():
    from torch_neuronx import Program

    module = torch.nn.Linear(2, 2)
    program = Program.build(module, (torch.ones(1, 2),))
    with torch.no_grad():
        module.weight.fill_(5)
    by_source = {program.inputs[number].source: tensor for number, tensor in program.weights().items()}
    assert by_source["weight"].eq(5).all()
    assert not by_source["weight"].requires_grad


def test_weights_are_contiguous():
    from torch_neuronx import Program

    module = torch.nn.Linear(2, 3)
    module.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    weights = Program.build(module, (torch.ones(1, 2),)).weights()
    assert all(tensor.is_contiguous() for tensor in weights.values())
    assert any(tensor.tolist() == [[0, 3], [1, 4], [2, 5]] for tensor in weights.values())


def test_baked_weights_are_no_inputs_unless_overwritten():
    from torch_neuronx import Program

    program = Program.build(Counter(), (torch.ones(2, 3), 2.0), bake_weights=True)
    assert describe(program) == [("total", "buffer"), ("x", "user")]


def test_programs_that_differ_in_weights_alone_are_one_program():
    from torch_neuronx import Program

    call = (torch.ones(2, 3), 2.0)
    assert Program.build(Counter(), call).stablehlo == Program.build(Counter(), call).stablehlo
    baked = [Program.build(Counter(), call, bake_weights=True).stablehlo for _ in range(2)]
    assert baked[0] != baked[1]


def test_large_constants_of_the_source_become_weights():
    from torch_neuronx import capture
    from torch_neuronx.flatten import BAKED_CONSTANT_BYTES

    table = torch.rand(BAKED_CONSTANT_BYTES // 4 + 1)

    class Tables(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = table  # a plain attribute: neither parameter nor buffer

        def forward(self, x):
            return x + self.table.sum() + torch.tensor([1.0, 2.0])

    captured = capture(Tables(), (torch.ones(2),))
    assert describe(captured) == [("table", "constant"), ("x", "user")]


def test_the_result_is_rebuilt_as_the_module_gives_it(load):
    module = Counter()
    x = torch.arange(6.0).reshape(2, 3)
    result = load(module, x, 2.0)(x, 2.0)
    expected = module(x, 2.0)
    assert list(result) == list(expected)
    assert result["none"] is None
    assert result["number"] == 7
    assert result["again"] is result["y"]
    torch.testing.assert_close(result, {**expected, "total": x})


def test_overwritten_buffers_keep_their_values_between_calls(load):
    program = load(Counter(), torch.ones(2, 3), 1.0)
    totals = [program(torch.ones(2, 3), 1.0)["total"][0, 0].item() for _ in range(3)]
    assert totals == [1, 2, 3]


def test_overwritten_arguments_are_written_back(load):
    class InPlace(torch.nn.Module):
        def forward(self, x):
            return x.add_(1)

    x = torch.zeros(3)
    program = load(InPlace(), torch.zeros(3))
    assert program(x).tolist() == [1, 1, 1]
    assert x.tolist() == [1, 1, 1]


def test_tied_weights_are_one_input():
    from torch_neuronx import capture

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(5, 4)
            self.head = torch.nn.Linear(4, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids):
            return self.head(self.embed(ids))

    captured = capture(Tied(), (torch.tensor([1, 2]),))
    assert [entry.role.value for entry in captured.inputs] == ["parameter", "user"]


class Overlap(torch.nn.Module):
    """Two buffers of one storage, `part` overwritten by each call."""

    def __init__(self, part):
        super().__init__()
        storage = torch.zeros(4)
        self.register_buffer("whole", storage[:2])
        self.register_buffer("part", storage[part])

    def forward(self, x):
        self.part += x
        return self.whole.sum() + self.part.sum()


@pytest.mark.parametrize("part", [slice(0, 2), slice(1, 3)], ids=["equal", "overlapping"])
def test_overwriting_memory_that_has_two_names_is_refused(part):
    from torch_neuronx import CaptureError, capture

    with pytest.raises(CaptureError, match="overwrites memory that `whole` and `part` share"):
        capture(Overlap(part), (torch.ones(2),))


def test_separate_parts_of_one_storage_are_separate_inputs(load):
    program = load(Overlap(slice(2, 4)), torch.ones(2))
    assert [program(torch.ones(2)).item() for _ in range(2)] == [2, 4]


@pytest.mark.parametrize(
    "body",
    [
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: x * (2 if x.sum() > 0 else 3),
        lambda x: torch.zeros(int(x.sum().item())),
        lambda x: x.sum().item(),
    ],
    ids=["boolean-index", "nonzero", "branch", "size-from-value", "item"],
)
def test_what_depends_on_values_is_refused_with_advice(body):
    from torch_neuronx import CaptureError, capture

    class Dynamic(torch.nn.Module):
        def forward(self, x):
            return body(x)

    with pytest.raises(CaptureError, match="depends on tensor values") as caught:
        capture(Dynamic(), (torch.ones(4),))
    assert "torch.where" in caught.value.hint


def test_a_module_that_fails_is_reported_with_its_own_words():
    from torch_neuronx import CaptureError, capture

    class Broken(torch.nn.Module):
        def forward(self, x):
            raise ValueError("head size must divide width")

    with pytest.raises(CaptureError, match="cannot capture Broken: ValueError: head size must divide width") as caught:
        capture(Broken(), (torch.ones(1),))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_tensor_that_no_neff_can_hold_is_refused():
    from torch_neuronx import CaptureError, capture

    with pytest.raises(CaptureError, match=r"`input` cannot cross .* torch.float8_e4m3fnuz"):
        capture(torch.nn.Identity(), (torch.zeros(2).to(torch.float8_e4m3fnuz),))


@pytest.fixture(scope="module")
def nested():
    """A program with a nested argument, a keyword tensor and a keyword constant."""
    from torch_neuronx import Program

    class Call(torch.nn.Module):
        def forward(self, x, options, *, first, second=1):
            return x + options["shift"] + first * second

    return Program.build(Call(), (torch.ones(2), {"shift": torch.ones(2)}), {"first": torch.ones(2), "second": 3})


def test_tensors_are_found_wherever_they_are_nested(nested):
    tensors = nested.arguments(torch.ones(2), {"shift": torch.zeros(2)}, second=3, first=torch.full((2,), 9.0))
    assert [tensors[number].tolist() for number in sorted(tensors)] == [[1, 1], [0, 0], [9, 9]]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((torch.ones(3), {"shift": torch.ones(2)}), {}, r"argument 0 is a float32 tensor of shape \(3,\)"),
        ((torch.ones(2).long(), {"shift": torch.ones(2)}), {}, "argument 0 is a int64 tensor"),
        ((torch.ones(2), {"shift": 4}), {}, r"argument 1\['shift'\] is a int"),
        ((torch.ones(2), {"shift": torch.ones(2)}), {"second": 4}, "second is 4, but .* 3 as a constant"),
        ((torch.ones(2), {"shift": torch.ones(2)}), {"first": torch.ones(1)}, "first is a float32 tensor"),
        ((torch.ones(2), {"sift": torch.ones(2)}), {}, "nested as"),
        ((torch.ones(2),), {}, "nested as"),
    ],
)
def test_a_call_of_another_form_is_refused(nested, args, kwargs, message):
    from torch_neuronx import InputMismatchError

    with pytest.raises(InputMismatchError, match=message) as caught:
        nested.arguments(*args, **{"first": torch.ones(2), "second": 3, **kwargs})
    assert caught.value.hint


def test_a_wrong_number_of_outputs_is_refused(nested):
    with pytest.raises(ValueError, match="has 1 outputs, not 2"):
        nested.result([1, 2])
