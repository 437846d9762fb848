#include "engine/step/logits_download.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

namespace quire {
namespace {

// Whether the sampler can do without the whole row: the pick decides the token, and shows no error.
bool suffices(const Pick& pick, const Picked& picked) {
  if (pick.draw && picked.drawn < 0) return false;
  const auto possible = [](float x) { return x <= std::numeric_limits<float>::max(); };  // false for NaN
  if (!picked.best.empty()) {
    const bool found = picked.best[0] >= 0;
    if (found ? !std::isfinite(picked.best_values[0]) : picked.columns.empty()) return false;
  }
  return std::ranges::all_of(picked.column_values, possible);
}

}  // namespace

void LogitsDownload::begin(Operations& ops, const Rows& x, std::span<const std::optional<Pick>> wanted) {
  picks_.clear();
  size_t words = 0;
  for (const std::optional<Pick>& pick : wanted) words += picks_.emplace_back(pick.value_or(Pick{})).words();
  results_ = {};
  if (words == 0) return;
  const size_t bytes = words * sizeof(uint32_t);
  const auto to = host_picked_.room(backend_, std::max(bytes, Backend::kLeastPinned)).first(bytes);
  ops.download(ops.pick(x, picks_), to);
  results_ = to;
}

void LogitsDownload::end(const Rows& x, size_t rows, std::span<const std::optional<Pick>> wanted, bool gone,
                         ForwardOutput& output) {
  assert(std::cmp_equal(x.stride, x.cols));
  output.logits = {};
  output.picked.clear();
  output.logits_bytes = 0;
  if (!wanted.empty()) {
    assert(wanted.size() == rows);
    read_picked(wanted, output);
    if (!gone) read_rows(x, output);
  } else if (rows > 0) {
    output.logits = view_floats(backend_, x.data, rows * x.stride, host_logits_);
    output.logits_bytes = output.logits.size_bytes();
  }
}

void LogitsDownload::read_picked(std::span<const std::optional<Pick>> wanted, ForwardOutput& output) {
  std::span<const std::byte> left = results_;
  output.logits_bytes += left.size();
  for (size_t row = 0; row < wanted.size(); ++row) {
    const size_t bytes = picks_[row].words() * sizeof(uint32_t);
    std::optional<Picked>& picked = output.picked.emplace_back();
    if (wanted[row]) picked.emplace(picks_[row], left.first(bytes));
    if (picked && !suffices(picks_[row], *picked)) picked.reset();
    left = left.subspan(bytes);
  }
}

// The rows that were not picked from, to their places.
void LogitsDownload::read_rows(const Rows& x, ForwardOutput& output) {
  const auto& picked = output.picked;
  const size_t bytes = x.stride * sizeof(float);
  std::span<std::byte> room;
  for (size_t row = 0, end = 0; row < picked.size(); row = end + 1) {
    for (end = row; end < picked.size() && !picked[end]; ++end) {
    }
    if (end == row) continue;
    if (room.empty()) room = host_logits_.room(backend_, picked.size() * bytes);
    auto* const from = reinterpret_cast<std::byte*>(x.row(static_cast<int>(row)));
    backend_.read(from, room.subspan(row * bytes, (end - row) * bytes));
    output.logits_bytes += (end - row) * bytes;
  }
  output.logits = {reinterpret_cast<float*>(room.data()), room.size() / sizeof(float)};
}

}  // namespace quire
