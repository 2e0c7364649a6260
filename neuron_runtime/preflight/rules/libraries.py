"""Libraries and options of libraries that need CUDA, or are known not to work here."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..finding import Finding, Level, Rule
from ..source import Source, argument, literal
from .base import found, replacing

LIBRARY = Rule("cuda-library", Level.ERROR, "this library has kernels for CUDA only")
DEEPSPEED = Rule("deepspeed", Level.ERROR, "accelerate refuses DeepSpeed on Neuron devices")
XLA = Rule("torch-xla", Level.ERROR, "torch_xla belongs to the XLA build, which ended with torch-neuronx 2.9")
ATTENTION = Rule("flash-attention", Level.ERROR, "flash-attn is for CUDA")
QUANTIZED = Rule("bitsandbytes", Level.ERROR, "bitsandbytes' quantised weights are for CUDA")
ASYNC_LOAD = Rule("async-weights", Level.WARNING, "loading weights asynchronously hangs on the device")
EXTENSION = Rule("cuda-extension", Level.ERROR, "a CUDA extension is no code for a Neuron device")

RULES = (LIBRARY, DEEPSPEED, XLA, ATTENTION, QUANTIZED, ASYNC_LOAD, EXTENSION)

_MODULES = {
    "deepspeed": (DEEPSPEED, "use DistributedDataParallel or FSDP2"),
    "torch_xla": (XLA, 'use plain PyTorch with the device "neuron"'),
    "flash_attn": (ATTENTION, "use `torch.nn.functional.scaled_dot_product_attention`"),
    "bitsandbytes": (QUANTIZED, "use bfloat16 weights and `torch.optim`"),
    **{
        name: (LIBRARY, instead)
        for name, instead in {
            "apex": "use `torch.autocast` and `torch.optim`",
            "xformers": "use `torch.nn.functional.scaled_dot_product_attention`",
            "triton": "write the kernel in NKI, or leave it to `torch.compile`",
            "transformer_engine": "use `torch.nn` in bfloat16",
            "tensorrt": "use `torch.compile`",
            "torch_tensorrt": "use `torch.compile`",
            "cupy": "use torch",
            "pycuda": "write the kernel in NKI",
            "pynvml": "use `neuron-monitor`",
            "nvidia_smi": "use `neuron-monitor`",
        }.items()
    },
}
_NO_WEIGHTS = ("Tokenizer", "TokenizerFast", "Config", "Processor", "FeatureExtractor", "ImageProcessor", "Scheduler")


def check(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _import(source, node)
    loaded = False
    for call, name in source.calls():
        if (
            name
            and name.startswith("torch.utils.cpp_extension.")
            and (name.endswith("CUDAExtension") or argument(call, "cuda_sources"))
        ):
            yield found(source, call, EXTENSION, f"`{name}`", "write the kernel in NKI, or as PyTorch operators")
        attention = argument(call, "attn_implementation")
        if str(literal(attention)).startswith("flash_attention"):
            assert attention is not None
            yield found(
                source, attention, ATTENTION, f"`attn_implementation={literal(attention)!r}`", 'write "sdpa"',
                replacing(attention, '"sdpa"'),
            )  # fmt: skip
        for option in ("load_in_8bit", "load_in_4bit"):
            if literal(argument(call, option)) is True:
                yield found(source, call, QUANTIZED, f"`{option}=True`", "load bfloat16: `dtype=torch.bfloat16`")
        if not loaded and _loads_weights(source, call) and "HF_DEACTIVATE_ASYNC_LOAD" not in source.text:
            loaded = True
            yield found(
                source, call, ASYNC_LOAD, "`from_pretrained`",
                "set HF_DEACTIVATE_ASYNC_LOAD=1 before transformers is imported",
            )  # fmt: skip


def _import(source: Source, node: ast.Import | ast.ImportFrom) -> Iterator[Finding]:
    if isinstance(node, ast.ImportFrom):
        modules = [node.module] if node.module and not node.level else []
    else:
        modules = [alias.name for alias in node.names]
    for module in modules:
        top = module.partition(".")[0]
        rule, instead = _MODULES.get(top, (None, ""))
        if module == "numba.cuda" or (module == "numba" and any(alias.name == "cuda" for alias in node.names)):
            rule, instead = LIBRARY, "write the kernel in NKI"
        if rule is not None and not _optional(source, node):
            yield found(source, node, rule, f"`import {module}`", instead)


def _optional(source: Source, node: ast.AST) -> bool:
    """Whether the program has an answer to the library's absence, or asks for it before."""
    for above, child in source.ancestors(node):
        if isinstance(above, ast.Try) and any(child is it for it in above.body) and above.handlers:
            caught = " ".join(ast.unparse(h.type) if h.type else "Exception" for h in above.handlers)
            if "Import" in caught or "ModuleNotFound" in caught or "Exception" in caught:
                return True
        if isinstance(above, ast.If) and any(
            word in ast.unparse(above.test) for word in ("available", "TYPE_CHECKING")
        ):
            return True
    return False


def _loads_weights(source: Source, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "from_pretrained":
        return False
    name = source.name(call.func.value) or ""
    return name.startswith("transformers.") and not name.endswith(_NO_WEIGHTS)
