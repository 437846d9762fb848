#include "ops/local_stages.h"

#include <cassert>
#include <cstring>
#include <utility>

#include "base/spin.h"
#include "ops/communicator.h"

namespace quire {

// The buffer has room for all rows of a step. All stages end a step before any begins the next, so no row is overwritten
// before it was taken.
struct LocalStages::Border {
  int width;
  std::vector<float> rows;                    // [max_rows, width]
  alignas(64) std::atomic<uint32_t> sent{0};  // parts of steps, or more once a stage has given up
  uint32_t received = 0;                      // the receiver's
};

class LocalStages::LocalLink final : public StageLink {
 public:
  LocalLink(Backend& backend, const std::atomic<bool>& gone, bool spins, Border* before, Border* after)
      : backend_(backend), gone_(gone), spins_(spins), before_(before), after_(after) {}

  void send(std::span<const Rows> parts, int first_row, int rows) override {
    if (gone_.load(std::memory_order_acquire)) throw RankGone();
    for_each_part(*after_, parts, first_row, [&](const Rows& part, float* kept) {
      const std::span<const float> host = view_floats(backend_, part.data, floats_of(part, rows), copy_);
      for_each_row(part, rows, [&](size_t at, size_t row, size_t bytes) {
        std::memcpy(kept + row * static_cast<size_t>(after_->width), host.data() + at, bytes);
      });
    });
    sent_bytes_ += static_cast<size_t>(rows) * static_cast<size_t>(after_->width) * sizeof(float);
    after_->sent.fetch_add(1, std::memory_order_release);
    after_->sent.notify_all();
  }

  void receive(std::span<const Rows> parts, int first_row, int rows) override {
    const auto has_come = [&] { return before_->sent.load(std::memory_order_acquire) != before_->received; };
    while (!has_come()) {
      if (!spins_ || !spin_until(has_come)) before_->sent.wait(before_->received, std::memory_order_acquire);
    }
    if (gone_.load(std::memory_order_acquire)) throw RankGone();
    ++before_->received;
    for_each_part(*before_, parts, first_row, [&](const Rows& part, const float* kept) {
      auto* const to = reinterpret_cast<std::byte*>(part.data);
      backend_.write(to, floats_of(part, rows) * sizeof(float), [&](std::span<std::byte> host) {
        for_each_row(part, rows, [&](size_t at, size_t row, size_t bytes) {
          std::memcpy(host.data() + at * sizeof(float), kept + row * static_cast<size_t>(before_->width), bytes);
        });
      });
    });
  }

 private:
  // f(part, where its first row begins in the buffer) for each part.
  template <class F>
  static void for_each_part(Border& border, std::span<const Rows> parts, int first_row, const F& f) {
    float* kept = border.rows.data() + static_cast<size_t>(first_row) * static_cast<size_t>(border.width);
    [[maybe_unused]] const float* const row_end = kept + border.width;
    for (const Rows& part : parts) {
      f(part, kept);
      kept += part.cols;
    }
    assert(kept == row_end);
  }

  // From the first number of a part to its last.
  static size_t floats_of(const Rows& part, int rows) {
    return static_cast<size_t>(rows - 1) * part.stride + static_cast<size_t>(part.cols);
  }

  // f(first float in the part, row, bytes) for each row.
  template <class F>
  static void for_each_row(const Rows& part, int rows, const F& f) {
    for (size_t row = 0; std::cmp_less(row, rows); ++row)
      f(row * part.stride, row, static_cast<size_t>(part.cols) * sizeof(float));
  }

  Backend& backend_;
  const std::atomic<bool>& gone_;
  const bool spins_;
  Border *const before_, *const after_;  // nullptr: it is the first, or the last
  HostCopy copy_;
};

LocalStages::LocalStages(std::span<Backend* const> backends, std::span<const int> widths, int max_rows, bool spins) {
  assert(backends.size() == widths.size() + 1);
  for (const int width : widths) {
    borders_.push_back(std::make_unique<Border>());
    borders_.back()->width = width;
    borders_.back()->rows.resize(static_cast<size_t>(max_rows) * static_cast<size_t>(width));
  }
  for (size_t stage = 0; stage <= borders_.size(); ++stage)
    stages_.push_back(std::make_unique<LocalLink>(*backends[stage], gone_, spins,
                                                  stage > 0 ? borders_[stage - 1].get() : nullptr,
                                                  stage < borders_.size() ? borders_[stage].get() : nullptr));
}
LocalStages::~LocalStages() = default;

StageLink& LocalStages::of(int stage) const { return *stages_[static_cast<size_t>(stage)]; }

size_t LocalStages::memory_bytes(std::span<const int> widths, int max_rows) {
  size_t floats = 0;
  for (const int width : widths) floats += static_cast<size_t>(max_rows) * static_cast<size_t>(width);
  return floats * sizeof(float);
}

void LocalStages::give_up() {
  gone_.store(true, std::memory_order_release);
  for (const auto& border : borders_) {
    border->sent.fetch_add(1, std::memory_order_release);
    border->sent.notify_all();
  }
}

void LocalStages::reset() {
  gone_.store(false, std::memory_order_relaxed);
  for (const auto& border : borders_) border->received = border->sent.load(std::memory_order_relaxed);
}

}  // namespace quire
