// How a Hugging Face checkpoint's matrices are quantized: what quantization_config in config.json says, checked.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "format/hf_config.h"
#include "json/field.h"
#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {

// How the codes of a matrix lie in a file.
enum class CodedForm : uint8_t {
  kGptq,         // qweight [inputs, outputs], packed along the inputs; qzeros, scales, g_idx
  kAwq,          // qweight [inputs, outputs], packed along the outputs; qzeros, scales
  kPackedInt,    // compressed-tensors "pack-quantized": weight_packed [outputs, inputs]
  kInt8,         // compressed-tensors "int-quantized": weight of int8
  kFp8,          // weight of E4M3, with scales of the tensor, its rows or its blocks
  kNvfp4,        // compressed-tensors "nvfp4-pack-quantized"
  kMxfp4,        // compressed-tensors "mxfp4-pack-quantized"
  kMxfp4Blocks,  // gpt-oss: NAME_blocks and NAME_scales, of all experts
  kBnb4,         // bitsandbytes NF4 and FP4
  kBnb8,         // bitsandbytes LLM.int8
  kMxfp8,        // weight of E4M3, with a power of two for every 32 inputs
  kInt4Pairs,    // ModelOpt's int4: weight [outputs / 2, inputs], two outputs in a byte
  kMlx,          // weight of 32-bit words [outputs, inputs * bits / 32]; scales, biases
  kTorchao,      // _weight_qdata, of the form that its type and shape say
  kQuarkInt4,    // Quark's int4: weight [inputs, outputs / 8]; weight_zero_point alike, weight_scale
  kHqq,          // W_q, packed along the groups
};

// The inputs that int8 weights were made for. Other schemes (FP8, FP4, int8 with zero points) are dropped on purpose:
// the inputs that Quire uses instead are closer to the unquantized ones.
struct InputCodes {
  enum class Kind : uint8_t {
    kNone,      // any precision
    kPerToken,  // int8; a token's scale is its greatest magnitude / 127
    kStatic,    // int8, with `scale`
    kOutliers,  // LLM.int8: kPerToken, but inputs of at least `threshold` stay as they are
  };
  Kind kind = Kind::kNone;
  float scale = 0, threshold = 0;

  bool operator==(const InputCodes&) const = default;
};

// What many matrices share.
struct CodedScheme {
  enum class Scales : uint8_t { kTensor, kChannel, kGroup, kBlock };

  CodedForm form = CodedForm::kGptq;
  int bits = 0;
  int group = 0;  // inputs under a scale; 0: all, or as many as the shape of the scales says (kNvfp4, kInt4Pairs)
  bool symmetric = true;
  bool act_order = false;                      // the file must say which group an input is in
  bool zeros_minus_one = false;                // kGptq: the file holds zero points less one
  Scales scales = Scales::kGroup;              // kPackedInt, kInt8, kFp8
  int row_block = 0, col_block = 0;            // for Scales::kBlock
  bool squeezed = false;                       // Scales::kBlock: dimensions of 1 may be missing
  bool signed_codes = false;                   // kQuarkInt4: codes and zero points are two's complement
  bool reordered = false;                      // kQuarkInt4: words have AWQ's order of outputs
  bool by_shape = false;                       // kMlx: tensors of other bits and groups have what their shapes say
  std::string scale_ending = ".weight_scale";  // kFp8: what follows the module in the name of its scales
  InputCodes inputs;                           // kStatic: its scale is in the file
};

// Modules as config.json names them.
struct ModuleSet {
  std::set<std::string, std::less<>> names;
  std::vector<Regex> patterns;  // that match the beginning of a module's name
  bool all = false;             // all linears

  bool has_name(std::string_view module) const;
  bool matches(std::string_view module) const;  // a pattern
};

// A Hadamard rotation of the inputs of linears (compressed-tensors' transform_config).
struct RotationRule {
  std::string name;   // NAME of the tensors MODULE.NAME_input.weight
  std::string where;  // in config.json, for messages
  ModuleSet targets, except;
  int size = 0;           // a block's; 0: all inputs
  bool inverse = false;   // multiply by the transposed matrix
  bool is_known = false;  // Sylvester's matrix is used if the file has no tensor for it

  bool applies_to(std::string_view module) const;
};

struct Quantization {
  // Modules of one scheme; `all`: that no other part has.
  struct Part {
    ModuleSet modules;
    CodedScheme scheme;
  };

  std::string method;  // as config.json spells it
  std::vector<Part> parts;
  std::vector<RotationRule> rotations;
  bool ignores_scales = false;

  // What config.json says of this module; null: nothing. A module may still be left unquantized: its tensors tell.
  const CodedScheme* find_scheme(std::string_view module) const;

  // Scales of quantized caches and outputs, which Quire does not quantize, or not that way.
  bool ignores(std::string_view tensor) const;
};

// What `quire list --formats` says of a method.
struct QuantizationMethod {
  std::string_view name;  // quant_method
  std::string_view loads, refuses, inputs;
};
std::vector<QuantizationMethod> quantization_methods();

// config: config.json. Nothing without a quantization_config or compression_config. Throws Error: the field, its value,
// and which values Quire supports.
std::optional<Quantization> read_quantization(const JsonField& config);
// Likewise; without those, what hf_quant_config.json says.
std::optional<Quantization> read_quantization(const HfConfig& hf);

}  // namespace quire
