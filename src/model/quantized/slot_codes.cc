#include "model/quantized/slot_codes.h"

#include <algorithm>
#include <string_view>

namespace quire {

Source source_of_matrix(const TensorFinder& finder, const Slot& slot, bool quantized) {
  return finder.source_of(slot, [&](const std::string& name) {
    const std::string module(module_of(name));
    const auto has = [&](std::string_view ending) { return finder.find(module + std::string(ending)) != nullptr; };
    return finder.find(name) || (quantized && std::ranges::any_of(kCodeEndings, has));
  });
}

std::optional<CodedMatrix> open_slot_codes(const Quantization& quantization, const std::string& file,
                                           const FindTensor& find, const Slot& slot, const Source& source, int rows,
                                           int cols) {
  const bool transposed = transposes_codes(source);
  return open_coded_matrix(quantization, file, find,
                           {.module = std::string(module_of(source.name)),
                            .rows = transposed ? cols : rows,
                            .cols = transposed ? rows : cols,
                            .item = source.stacked ? slot.item : 0,
                            .items = source.stacked ? slot.items : 0});
}

}  // namespace quire
