#include "model/quantized/module_tensors.h"

#include <algorithm>

#include "model/quantized/one_of.h"

namespace quire {
std::string shape_text(std::span<const uint64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

const TensorView& ModuleTensors::get(std::string_view ending) const {
  const TensorView* view = find(ending);
  if (!view)
    throw invalid("{}: tensor {}{} is missing; the quantized module {} needs it", file_, name_.module, ending,
                  name_.module);
  return *view;
}

const TensorView& ModuleTensors::get(std::string_view ending, Types types, std::span<const Shape> shapes) const {
  const TensorView& view = get(ending);
  if (std::ranges::find(types, view.type) == types.end()) {
    std::vector<std::string_view> names;
    for (const TensorType type : types) names.push_back(quire::name(type));
    throw error(view, "has type {}, expected {}", quire::name(view.type), one_of(names));
  }
  if (std::ranges::find(shapes, view.shape) == shapes.end()) {
    std::vector<std::string> texts;
    for (const Shape& shape : shapes) {
      if (std::string text = shape_text(shape); std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
    }
    throw error(view, "has shape {}, expected {}", shape_text(view.shape), one_of(texts));
  }
  return view;
}

bool is_plain(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16;
}

}  // namespace quire
