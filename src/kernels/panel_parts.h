// How many entries the parts of a panel have (PanelLayout, kernels/packed.h), and their sizes.
#pragma once

#include <cstddef>

#include "kernels/packed.h"

namespace quire {

constexpr size_t scale_bytes(ScaleKind kind) {
  switch (kind) {
    case ScaleKind::kNone:
      return 0;
    case ScaleKind::kF16:
      return 2;
    case ScaleKind::kF32:
      return 4;
    case ScaleKind::kE8M0:
    case ScaleKind::kE4M3:
    case ScaleKind::kSuper:
      return 1;
  }
  return 0;
}
constexpr size_t minimum_bytes(ZeroKind kind) {
  switch (kind) {
    case ZeroKind::kConstant:
      return 0;
    case ZeroKind::kF16:
      return 2;
    case ZeroKind::kF32:
      return 4;
    case ZeroKind::kSuper:
    case ZeroKind::kInteger:
      return 1;
  }
  return 0;
}

struct PanelCounts {
  size_t supers, groups;
};
constexpr PanelCounts panel_counts(const PanelFormat& format, int blocks) {
  const auto entries = [&](int inputs) { return static_cast<size_t>((blocks * kBlockInputs + inputs - 1) / inputs); };
  return {entries(kSuperInputs), format.group == 0 ? 0 : entries(format.group)};
}

}  // namespace quire
