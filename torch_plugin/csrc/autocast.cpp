// `torch.autocast("neuron")`: the lists that PyTorch has for its own accelerators. Matrix products in the lower precision,
// what sums many numbers in float32, the widest of the given types where several meet.
#include <ATen/autocast_mode.h>
#include <ATen/Operators.h>
#include <torch/library.h>

namespace at::autocast { // PyTorch's macros use its names as they are here

namespace {

at::Tensor refuse_binary_cross_entropy(
    const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: the gradient of a "
      "probability near 0 or 1 does not fit float16. Use binary_cross_entropy_with_logits or torch.nn.BCEWithLogitsLoss "
      "on what comes before the sigmoid, or call it within torch.autocast(\"neuron\", enabled=False) on float32");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FLOAT32_UNLESS_ASKED(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
  AT_FORALL_FP32(FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_UNLESS_ASKED)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(WIDEST)
#undef LOWER
#undef FLOAT32
#undef FLOAT32_UNLESS_ASKED
#undef WIDEST
  m.impl("binary_cross_entropy", TORCH_FN(refuse_binary_cross_entropy));
}

} // namespace

} // namespace at::autocast
