// Storages that change their size, and the hooks of PyTorch's generic code.
#pragma once

#include <c10/core/Storage.h>

namespace neuron {

// Keeps what fits of the contents; in stream order.
void resize_storage(const c10::Storage& storage, size_t bytes);
void register_hooks();

} // namespace neuron
