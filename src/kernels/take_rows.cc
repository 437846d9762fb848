#include "kernels/take_rows.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/panel_parts.h"

namespace quire {
namespace {

// Moves what belongs to one output of a panel to its place in another panel.
class RowMove {
 public:
  RowMove(const PackedMatrix& m, const std::byte* from, int from_row, std::byte* to, int to_row)
      : m_(m), from_(from), to_(to), source_(static_cast<size_t>(from_row)), target_(static_cast<size_t>(to_row)) {}

  void run() const {
    const PanelLayout& at = m_.layout;
    const PanelCounts counts = panel_counts(m_.format, m_.blocks());
    if (m_.format.scale == ScaleKind::kSuper) lanes(at.supers, counts.supers, 2);
    if (m_.format.zeros == ZeroKind::kSuper) lanes(at.super_minima, counts.supers, 2);
    lanes(at.scales, counts.groups, scale_bytes(m_.format.scale));
    lanes(at.minima, counts.groups, minimum_bytes(m_.format.zeros));
    const size_t blocks = static_cast<size_t>(m_.blocks());
    if (m_.format.codes == Codes::kF16) return lanes(at.codes, blocks * kBlockInputs, 2);
    const int bits = code_bits(m_.format.codes);
    const size_t masks = bits == 3 || bits == 5 ? 64 : 0, lines = (at.block_bytes - masks) / 64;
    for (size_t block = 0; block < blocks; ++block) {
      const size_t begin = at.codes + block * at.block_bytes;
      lanes(begin, lines, 4);  // each line has 4 bytes of an output
      for (size_t byte = 0; byte < masks; byte += kPanel / 2) nibble(begin + lines * 64 + byte);
    }
  }

 private:
  // Entries of `bytes` for each output.
  void lanes(size_t begin, size_t entries, size_t bytes) const {
    const std::byte* from = from_ + begin + source_ * bytes;
    std::byte* to = to_ + begin + target_ * bytes;
    for (size_t i = 0; i < entries; ++i) std::memcpy(to + i * kPanel * bytes, from + i * kPanel * bytes, bytes);
  }
  void nibble(size_t begin) const {
    const std::byte bits = from_[begin + source_ / 2] >> (4 * (source_ % 2)) & std::byte{15};
    to_[begin + target_ / 2] |= bits << (4 * (target_ % 2));
  }

  const PackedMatrix& m_;
  const std::byte* from_;
  std::byte* to_;
  size_t source_, target_;
};

}  // namespace

void take_rows(const PackedMatrix& from, std::span<const int32_t> rows, std::byte* data, int begin, int end) {
  const int count = static_cast<int>(rows.size());
  for (int i = begin * kPanel; i < std::min(count, end * kPanel); ++i) {
    const int row = rows[static_cast<size_t>(i)];
    assert(row >= 0 && row < from.rows);
    std::byte* panel = data + static_cast<size_t>(i / kPanel) * from.layout.bytes;
    RowMove(from, from.panel(row / kPanel), row % kPanel, panel, i % kPanel).run();
  }
}

}  // namespace quire
