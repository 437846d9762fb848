// Where a checkpoint keeps the tensors of a model, under any of the names that files give them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"
#include "model/tensors.h"

namespace quire {

class TensorFinder {
 public:
  // All must outlive the finder.
  TensorFinder(const Checkpoint& checkpoint, const ModelConfig& config, const Spelling& spelling)
      : checkpoint_(checkpoint), config_(config), spelling_(spelling) {}

  // The tensor of this name. Some HF files leave out the first part of a name ("transformer."), and models that also see
  // or hear add one for their text ("model.language_model."). nullptr: there is none.
  const TensorView* find(const std::string& name) const;
  // Whether a tensor's name begins with `prefix`, under any of those names.
  bool begins_with(std::string_view name, const std::string& prefix) const;
  // Where a slot's tensor is: under the family's other name, if only that exists.
  Source source_of(const Slot& slot) const {
    return source_of(slot, [this](const std::string& name) { return find(name) != nullptr; });
  }
  Source source_of(const Slot& slot, const std::function<bool(const std::string& name)>& exists) const;

  // The other names that files may give a tensor of this name.
  std::vector<std::string> other_names(const std::string& name) const;

 private:
  FileKind kind() const { return checkpoint_.gguf() ? FileKind::kGguf : FileKind::kHf; }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const Spelling& spelling_;
};

// Whether a tensor is a buffer that code computes and old files store all the same: a causal mask, the numbers of
// positions, the frequencies of rope. No model needs one.
bool is_buffer(const TensorView& tensor, FileKind kind);

// The name of a weight's bias.
std::string bias_name(const Source& source);

}  // namespace quire
