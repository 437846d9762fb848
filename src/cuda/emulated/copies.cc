#include "cuda/emulated/copies.h"

#include <cstring>

namespace quire::cuda::emulated {

void AsyncCopies::start(std::byte* to, const std::byte* data, size_t bytes) {
  AsyncCopy& copy = copies_.emplace_back();
  copy = {to, static_cast<uint32_t>(bytes), group_, {}};
  if (data) std::memcpy(copy.data.data(), data, bytes);
}

}  // namespace quire::cuda::emulated
