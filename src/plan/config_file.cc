// Plans from a config.json without the model's other files.

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "model/families.h"
#include "model/quantized/quantization.h"
#include "plan/planned_model.h"
#include "plan/unknown_family.h"

namespace quire {
namespace {

// As the file says in torch_dtype (transformers 5: dtype).
std::optional<TensorType> stored_type(const HfConfig& files) {
  for (const JsonField& settings : {files.config.find("text_config").value_or(files.config), files.config}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      const auto type = settings.find(key);
      if (!type) continue;
      const std::string& text = type->string();
      if (text.ends_with("bfloat16")) return TensorType::BF16;
      if (text.ends_with("float16")) return TensorType::F16;
      if (text.ends_with("float32")) return TensorType::F32;
      throw type->error("{} is not a type that weights can be planned with; pass --weights", text);
    }
  }
  return std::nullopt;
}

}  // namespace

PlannedModel plan_config_file(const std::string& file, const std::optional<WeightStorage>& storage,
                              const ComputeForm& form) {
  const HfConfig files = HfConfig::of_file(file);
  files.config.object();
  WeightStorage stored = storage.value_or(WeightStorage{});
  std::vector<std::string> assumptions;
  if (!storage) {
    if (const auto quantization = read_quantization(files))
      throw unsupported(
          "{}: the weights are quantized ({}), and without the model's other files it is not known how large they are; "
          "pass --weights with their bits",
          files.config.where("quantization_config"), quantization->method);
    if (const auto type = stored_type(files))
      stored.type = *type;
    else
      assumptions.push_back("The file does not say how weights are stored; BF16 is assumed (--weights)");
  }
  ModelConfig config;
  if (auto known = read_model_config(files, file)) {
    config = std::move(*known);
  } else {
    UnknownFamily found = read_unknown_family(files, file);
    config = std::move(found.config);
    assumptions.insert(assumptions.begin(), found.assumptions.begin(), found.assumptions.end());
  }
  PlannedModel model = plan_config(file, std::move(config), stored, form);
  model.assumptions = std::move(assumptions);
  return model;
}

}  // namespace quire
