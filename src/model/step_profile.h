// Times of a step by operation.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace quire {

enum class StepOp : uint8_t {
  kEmbed,         // token embeddings and the angles of their positions
  kNormQuantize,  // preparing the inputs of linears: norms, quantization to blocks
  kQkv,
  kRopeStore,
  kAttention,
  kRecurrent,  // convolutions and states
  kO,
  kGateUp,  // with SiLU and the product
  kDown,
  kRoute,    // choosing experts
  kExperts,  // their MLPs
  kHead,
  kSampling,  // marked by the caller of the decoder
};
inline constexpr std::array<std::string_view, 13> kStepOpNames = {
    "embed",   "norm+quantize", "qkv",   "rope+store", "attention", "recurrent", "o",
    "gate/up", "down",          "route", "experts",    "head",      "sampling"};
inline constexpr size_t kStepOps = kStepOpNames.size();

// Filled by Decoder::forward() after Decoder::profile() was given it. Costs one clock read per operation.
class StepProfile {
 public:
  std::array<double, kStepOps> seconds{};
  std::array<int64_t, kStepOps> calls{};

  // The next operation begins now.
  void start() { last_ = Clock::now(); }
  // Attributes the time since the last mark to `op`.
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
