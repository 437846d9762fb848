// Where the time of a step goes, operation by operation.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace quire {

enum class StepOp : uint8_t {
  kEmbed,         // token embeddings, and the angles of their positions
  kNormQuantize,  // everything before a linear: norms, activations to blocks
  kQkv,
  kRopeStore,
  kAttention,
  kO,
  kGateUp,  // with SiLU and the product
  kDown,
  kHead,
  kSampling,  // not the decoder's: whoever samples marks it
};
inline constexpr std::array<std::string_view, 10> kStepOpNames = {
    "embed", "norm+quantize", "qkv", "rope+store", "attention", "o", "gate/up", "down", "head", "sampling"};
inline constexpr size_t kStepOps = kStepOpNames.size();

// Filled by Decoder::forward while Decoder::profile() names it. One clock read an operation.
class StepProfile {
 public:
  std::array<double, kStepOps> seconds{};
  std::array<int64_t, kStepOps> calls{};

  // What follows begins now.
  void start() { last_ = Clock::now(); }
  // The time since the last mark was spent on `op`.
  void mark(StepOp op) {
    const auto now = Clock::now(), began = std::exchange(last_, now);
    seconds[static_cast<size_t>(op)] += std::chrono::duration<double>(now - began).count();
    ++calls[static_cast<size_t>(op)];
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
};

}  // namespace quire
