"""What preflight finds in sources, and what it leaves alone."""

from __future__ import annotations

import pytest
from preflight_kit import findings, mend, rules

FOUND = [
    ("x = torch.zeros(2, device='cuda:1')", "cuda-device"),
    ("d = f'cuda:{rank}'", "cuda-device"),
    ("parser.add_argument('--device', default='cuda')", "cuda-device"),
    ("if args.device == 'cuda': pass", "cuda-device"),
    ("m = torch.load(p, map_location='cuda')", "cuda-device"),
    ("def f(device='cuda'): pass", "cuda-device"),
    ("x = model.cuda()", "cuda-method"),
    ("torch.cuda.synchronize()", "torch-cuda"),
    ("from torch.cuda import synchronize\nsynchronize()", "torch-cuda"),
    ("g = torch.cuda.CUDAGraph()", "torch-cuda"),
    ("ok = torch.cuda.is_available()", "cuda-available"),
    ("from torch.cuda.amp import autocast\nwith autocast(): pass", "cuda-autocast"),
    ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "cuda-visible-devices"),
    ("x = torch.zeros(2, dtype=torch.float64)", "float64"),
    ("x = x.double()", "float64"),
    ("x = x.to(torch.float8_e4m3fn)", "fp8"),
    ("y = torch._scaled_mm(a, b)", "fp8"),
    ("x = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)", "quantized"),
    ("x = x.to(memory_format=torch.channels_last)", "channels-last"),
    ("x = x.to_sparse()", "sparse"),
    ("e = nn.Embedding(2, 2, sparse=True)", "sparse"),
    ("n = torch.nested.nested_tensor([a])", "nested-tensor"),
    ("i = torch.nonzero(x)", "data-dependent-shape"),
    ("i = torch.where(x > 0)", "data-dependent-shape"),
    ("y = x.masked_select(m)", "data-dependent-shape"),
    ("b = tokenizer(text, padding=True)", "varying-length"),
    ("m = torch.compile(m, dynamic=True)", "compile-dynamic"),
    ("m = torch.compile(m, mode='max-autotune')", "compile-mode"),
    ("m = torch.compile(m, backend='inductor')", "compile-backend"),
    ("dist.init_process_group('nccl')", "process-group"),
    ("parser.add_argument('--dist-backend', default='nccl')", "process-group"),
    ("m = nn.DataParallel(m)", "data-parallel"),
    ("torch.multiprocessing.set_start_method('fork')", "fork"),
    ("import deepspeed", "deepspeed"),
    ("import torch_xla.core.xla_model as xm", "torch-xla"),
    ("from flash_attn import flash_attn_func", "flash-attention"),
    ("import bitsandbytes as bnb", "bitsandbytes"),
    ("import triton", "cuda-library"),
    ("from transformers import AutoModel\nm = AutoModel.from_pretrained('x')", "async-weights"),
    ("from torch.utils.cpp_extension import CUDAExtension\nCUDAExtension('x', [])", "cuda-extension"),
    ("from torch.nn.attention.flex_attention import flex_attention\nflex_attention(q, k, v)", "flex-attention"),
    ("def broken(:", "syntax"),
]

LEFT_ALONE = [
    "print('cuda is nice'); names = ['cuda', 'cpu']",
    "title = 'cuda'",
    "x = torch.zeros(2, device='cpu', dtype=torch.float64)",
    "y = x.cpu().double()",
    "if x.dtype == torch.float64: pass",
    "import numpy as np\ni = np.array([1]).nonzero()",
    "y = torch.where(m, a, b)",
    "y = x.is_contiguous(memory_format=torch.channels_last)",
    "m = torch.compile(m, backend='neuron', dynamic=False)",
    "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None",
    "from transformers import AutoTokenizer\nt = AutoTokenizer.from_pretrained('x')",
    "import os\nos.environ['HF_DEACTIVATE_ASYNC_LOAD'] = '1'\n"
    "from transformers import AutoModel\nm = AutoModel.from_pretrained('x')",
    "class A:\n    def double(self, n): return n\na = A().double(2)",
    "x = model.cuda()  # preflight: ignore[cuda-method]",
    "x = model.cuda()  # preflight: ignore",
    "dist.init_process_group('neuron')",
    "if device.type == 'neuron': pass\nelif torch.cuda.is_available(): x = x.cuda()",
]


@pytest.mark.parametrize(("text", "rule"), FOUND, ids=[f"{rule}-{at}" for at, (_, rule) in enumerate(FOUND)])
def test_what_does_not_suit_the_device_is_found_once(text: str, rule: str) -> None:
    assert rules(text) == [rule]


@pytest.mark.parametrize("text", LEFT_ALONE)
def test_what_does_is_left_alone(text: str) -> None:
    assert rules(text) == []


def test_what_runs_beside_cuda_only_is_a_note() -> None:
    found = findings("if torch.cuda.is_available():\n    torch.cuda.synchronize()\n")
    assert [(it.rule.id, it.level.value) for it in found] == [("cuda-available", "error"), ("torch-cuda", "note")]


MENDED = [
    ("x = y.cuda()\n", 'x = y.to("neuron")\n'),
    ("x = y.cuda(0, non_blocking=True)\n", 'x = y.to("neuron:0", non_blocking=True)\n'),
    ("x = y.cuda(non_blocking=True)\n", 'x = y.to("neuron", non_blocking=True)\n'),
    ("x = a.cuda() + b.cuda().c.cuda()\n", 'x = a.to("neuron") + b.to("neuron").c.to("neuron")\n'),
    ("é = 'ü'; x = é.to('cuda')\n", "é = 'ü'; x = é.to('neuron')\n"),
    ("d = f'cuda:{rank}'\n", "d = f'neuron:{rank}'\n"),
    ("d = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n",
     "d = torch.device('neuron' if torch.accelerator.is_available() else 'cpu')\n"),
    ("torch.cuda.set_device(2)\n", "torch.accelerator.set_device_index(2)\n"),
    ("with torch.cuda.amp.autocast(on): pass\n", 'with torch.autocast("neuron", enabled=on): pass\n'),
    ("with torch.cuda.amp.autocast(): pass\n", 'with torch.autocast("neuron"): pass\n'),
    ("dist.init_process_group(backend='nccl')\n", 'dist.init_process_group(backend="neuron")\n'),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), MENDED)
def test_mechanical_mends_are_exact_and_final(text: str, wanted: str) -> None:
    assert mend(text) == wanted
    assert mend(wanted) == wanted


@pytest.mark.parametrize("text", ["x = y.cuda(device)\n", "torch.cuda.mem_get_info()\n", "x = y.double()\n"])
def test_what_needs_judgement_is_not_mended(text: str) -> None:
    assert rules(text)
    assert mend(text) == text


def test_columns_count_characters_from_one() -> None:
    (found,) = findings("é = x.cuda()\n", head="import torch\n")
    assert (found.line, found.column, found.end_column) == (2, 5, 13)
