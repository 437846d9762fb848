// Memory for the parts of 256 weights of any block type.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/panel_format.h"

namespace quire {

class CodedChunk {
 public:
  explicit CodedChunk(const PanelFormat& format) : format_(format) {}

  // The first `elements` of them, in whole groups.
  CodedRow first(size_t elements) {
    const size_t groups = elements / static_cast<size_t>(format_.group);
    return {.codes = std::span(codes_).first(elements),
            .scales = std::span(scales_).first(groups),
            .minima = std::span(minima_).first(has_minima(format_) ? groups : 0),
            .supers = std::span(super_).first(format_.scale == ScaleKind::kSuper),
            .super_minima = std::span(super_minimum_).first(format_.zeros == ZeroKind::kSuper)};
  }

 private:
  static constexpr size_t kSize = kSuperInputs;
  const PanelFormat& format_;
  std::array<uint8_t, kSize> codes_;
  std::array<uint32_t, kSize / 16> scales_, minima_;  // 16: of the smallest group
  std::array<uint16_t, 1> super_, super_minimum_;
};

}  // namespace quire
