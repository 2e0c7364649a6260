"""What a user reads when a graph has no StableHLO form."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")


class Unusual(torch.nn.Module):
    def forward(self, x):
        a = torch.erfinv(x)
        b = torch.relu(a) + 1
        return torch.digamma(b)


def test_every_operator_at_fault_is_named_with_its_line():
    from torch_neuronx import LoweringError, Program

    with pytest.raises(LoweringError, match="2 operators have no StableHLO form") as caught:
        Program.build(Unusual(), (torch.rand(3),))
    first, second = caught.value.unsupported
    assert (first.operator, second.operator) == ("aten.erfinv.default", "aten.digamma.default")
    start = Unusual.forward.__code__.co_firstlineno
    assert first.place == f"{__file__}:{start + 1} in forward: a = torch.erfinv(x)"
    assert second.place.startswith(f"{__file__}:{start + 3} in forward")
    assert first.place in str(caught.value)
    assert caught.value.hint


def test_a_layer_of_pytorch_is_placed_where_the_user_calls_it():
    from torch_neuronx import LoweringError, Program

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bag = torch.nn.EmbeddingBag(4, 2)

        def forward(self, ids):
            return self.bag(ids)

    with pytest.raises(LoweringError) as caught:
        Program.build(Model(), (torch.tensor([[1, 2]]),))
    assert caught.value.unsupported[0].place.endswith("in forward: return self.bag(ids)")


def test_higher_order_operators_are_named():
    from torch_neuronx import LoweringError, Program

    class Branch(torch.nn.Module):
        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))

    with pytest.raises(LoweringError, match="`cond`"):
        Program.build(Branch(), (torch.ones(2),))


def test_a_failure_does_not_spoil_the_next_lowering():
    from torch_neuronx import LoweringError, Program

    with pytest.raises(LoweringError):
        Program.build(Unusual(), (torch.rand(3),))
    assert Program.build(torch.nn.ReLU(), (torch.rand(3),)).stablehlo


def test_an_operator_is_blamed_once_per_signature():
    from torch_neuronx import LoweringError, Program

    class Repeated(torch.nn.Module):
        def forward(self, x, y):
            return torch.erfinv(x) + torch.erfinv(x + 1), torch.erfinv(y)

    with pytest.raises(LoweringError) as caught:
        Program.build(Repeated(), (torch.rand(3), torch.rand(4)))
    assert len(caught.value.unsupported) == 2
