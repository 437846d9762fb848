// Times of a step by operation.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

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

// Filled by Decoder::forward() after Decoder::profile() was given it. Costs one clock read per operation; on a backend that
// computes asynchronously also what it gains by that, because each operation is finished before the next begins.
class StepProfile {
 public:
  using Clock = std::chrono::steady_clock;
  struct Span {
    StepOp op{};
    int16_t layer = -1;  // -1: outside the layers
    Clock::time_point began, ended;
  };

  std::array<double, kStepOps> seconds{};
  std::array<int64_t, kStepOps> calls{};

  // The next operation begins now.
  void start() { last_ = Clock::now(); }
  // Attributes the time since the last mark to `op`.
  void mark(StepOp op) {
    const auto now = Clock::now(), began = std::exchange(last_, now);
    seconds[static_cast<size_t>(op)] += std::chrono::duration<double>(now - began).count();
    ++calls[static_cast<size_t>(op)];
    if (!spans_) return;
    if (spans_->size() < spans_->capacity()) {
      spans_->push_back({op, layer_, began, now});
    } else {
      ++lost_spans_;
    }
  }
  // The marks that follow are those of this layer; -1: of none.
  void set_layer(int layer) { layer_ = static_cast<int16_t>(layer); }

  // From now on also appends each operation to `spans`, as far as its capacity goes. It must outlive the profile.
  void keep_spans(std::vector<Span>* spans) { spans_ = spans; }
  // How many found no room since the last call.
  uint64_t take_lost_spans() { return std::exchange(lost_spans_, 0); }

 private:
  Clock::time_point last_;
  std::vector<Span>* spans_ = nullptr;
  uint64_t lost_spans_ = 0;
  int16_t layer_ = -1;
};

}  // namespace quire
