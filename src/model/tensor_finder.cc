#include "model/tensor_finder.h"

namespace quire {

const TensorView* TensorFinder::find(const std::string& name) const {
  if (const TensorView* view = checkpoint_.find_tensor(name); view || kind() == FileKind::kGguf) return view;
  if (!spelling_.prefix.empty()) return checkpoint_.find_tensor(std::string(spelling_.prefix) + name);
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return nullptr;
  const std::string rest = name.substr(dot + 1);
  for (const std::string& other : {rest, "model.language_model." + rest, "language_model." + name}) {
    if (const TensorView* view = checkpoint_.find_tensor(other)) return view;
  }
  return nullptr;
}

Source TensorFinder::source_of(const Slot& slot, const std::function<bool(const std::string& name)>& exists) const {
  const Source usual = find_source(config_, slot, kind(), spelling_);
  if (spelling_.alternatives.empty() || exists(usual.name)) return usual;
  Spelling other = spelling_;
  other.names = spelling_.alternatives;
  const Source alternative = find_source(config_, slot, kind(), other);
  return exists(alternative.name) ? alternative : usual;
}

std::string bias_name(const Source& source) {
  return source.bias.empty() ? source.name.substr(0, source.name.rfind('.')) + ".bias" : source.bias;
}

}  // namespace quire
