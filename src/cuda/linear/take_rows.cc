#include "cuda/linear/take_rows.h"

#include <algorithm>
#include <vector>

#include "kernels/take_rows.h"

namespace quire::cuda {
namespace {

constexpr size_t kMostBytes = size_t{32} << 20;  // of panels that are on the host together

}  // namespace

void take_rows(Device& device, const PackedMatrix& from, std::span<const int32_t> rows, std::byte* to) {
  const size_t panel_bytes = from.layout.bytes;
  const size_t most = std::max<size_t>(kMostBytes / panel_bytes, 1);
  std::vector<std::byte> source, target;
  std::vector<int32_t> local;
  for (size_t begin = 0; begin < rows.size();) {
    // Whole panels of rows, as many as come from `most` neighbouring panels, but at least one.
    const auto first = static_cast<size_t>(rows[begin]) / kPanel;
    size_t end = std::min(rows.size(), begin + kPanel);
    for (size_t next = end; next < rows.size() && static_cast<size_t>(rows[next]) / kPanel - first < most;) {
      next = std::min(rows.size(), next + kPanel);
      if (static_cast<size_t>(rows[next - 1]) / kPanel - first < most) end = next;
    }
    const size_t panels = static_cast<size_t>(rows[end - 1]) / kPanel - first + 1;
    source.resize(panels * panel_bytes);
    device.download(source.data(), from.data + first * panel_bytes, source.size());
    PackedMatrix part = from;
    part.data = source.data();
    part.rows = from.rows - static_cast<int>(first) * kPanel;
    local.assign(rows.begin() + static_cast<ptrdiff_t>(begin), rows.begin() + static_cast<ptrdiff_t>(end));
    for (int32_t& row : local) row -= static_cast<int32_t>(first) * kPanel;
    const size_t taken = (local.size() + kPanel - 1) / kPanel;
    target.assign(taken * panel_bytes, std::byte{0});
    quire::take_rows(part, local, target.data(), 0, static_cast<int>(taken));
    device.upload(to + begin / kPanel * panel_bytes, target.data(), target.size());
    begin = end;
  }
}

}  // namespace quire::cuda
