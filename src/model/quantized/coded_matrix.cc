#include "model/quantized/coded_matrix.h"

#include "model/quantized/methods.h"

namespace quire {
namespace {

CodedMatrix open_form(const ModuleTensors& module, const CodedScheme& scheme) {
  switch (scheme.form) {
    case CodedForm::kGptq:
      return open_gptq(module, scheme);
    case CodedForm::kAwq:
    case CodedForm::kQuarkInt4:
      return open_awq(module, scheme);
    case CodedForm::kPackedInt:
      return open_packed_int(module, scheme);
    case CodedForm::kInt8:
    case CodedForm::kBnb8:
      return open_int8(module, scheme);
    case CodedForm::kFp8:
    case CodedForm::kMxfp8:
      return open_fp8(module, scheme);
    case CodedForm::kNvfp4:
    case CodedForm::kMxfp4:
    case CodedForm::kMxfp4Blocks:
      return open_fp4(module, scheme);
    case CodedForm::kBnb4:
      return open_bnb4(module, scheme);
    case CodedForm::kInt4Pairs:
      return open_int4_pairs(module, scheme);
    case CodedForm::kMlx:
      return open_mlx(module, scheme);
    case CodedForm::kTorchao:
      return open_torchao(module, scheme);
    case CodedForm::kHqq:
      return open_hqq(module, scheme);
  }
  __builtin_unreachable();
}

// The tensor that shows that a module is quantized; null: it is not.
const TensorView* find_codes(const ModuleTensors& module) {
  for (const std::string_view ending : kCodeEndings) {
    if (const TensorView* codes = module.find(ending)) return codes;
  }
  const TensorView* weight = module.find(".weight");
  if (!weight) return nullptr;
  // bitsandbytes may give codes the type of a float, but not the matrix's shape.
  const bool has_shape = weight->shape == ModuleTensors::Shape{module.rows(), module.cols()};
  return is_plain(weight->type) && (has_shape || !module.find(".weight.quant_map")) ? nullptr : weight;
}

}  // namespace

std::string_view module_of(std::string_view tensor) {
  for (const std::string_view ending : kCodeEndings) {
    if (tensor.ends_with(ending)) return tensor.substr(0, tensor.size() - ending.size());
  }
  return tensor.substr(0, tensor.size() - (tensor.ends_with(".weight") ? std::string_view(".weight").size() : 0));
}

std::optional<CodedMatrix> open_coded_matrix(const Quantization& quantization, const std::string& file,
                                             const FindTensor& find, const CodedMatrixName& name) {
  const ModuleTensors module(file, find, name);
  const TensorView* codes = find_codes(module);
  if (!codes) return std::nullopt;
  std::string_view full_name = codes->name;  // the file may spell it with another prefix
  full_name.remove_suffix(full_name.size() - module_of(full_name).size());
  const CodedScheme* scheme = quantization.find_scheme(full_name);
  if (!scheme && quantization.method == "compressed-tensors")
    throw module.error(*codes, "is quantized, but no group of config_groups in config.json targets {}", full_name);
  if (!scheme)
    throw module.error(*codes, "is quantized, but the settings of {} have none for {}", quantization.method, full_name);
  // Only inputs that are used as they are have one (InputCodes).
  for (const char* unread : {".input_scale", ".input_zero_point", ".input_global_scale", ".activation_scale"})
    module.find(unread);
  return open_form(module, *scheme);
}

}  // namespace quire
