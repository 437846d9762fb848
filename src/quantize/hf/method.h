// A method of quantizing the linears of a Hugging Face directory: how codes are found, and how files hold them. Each has a file
// and a row in hf_methods().
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/team.h"
#include "base/tensor_type.h"
#include "json/parse.h"
#include "quantize/input_statistics.h"
#include "quantize/solve/awq.h"
#include "quantize/solve/float_matrix.h"
#include "quantize/solve/input_algebra.h"

namespace quire {

// What flags set. Each method takes some of them (MethodFlag).
struct MethodSettings {
  int bits = 4;
  int group = 0;  // inputs under a scale; 0: all
  bool symmetric = true;
  bool least_squares = true;  // how ranges are found: by the least error, or by the extreme weights
  bool act_order = false, static_groups = false;
  std::optional<double> damping;    // share of the Gram matrix's mean diagonal; nothing: by the rows of inputs
  bool double_quantization = true;  // of bitsandbytes' magnitudes
  std::optional<float> alpha;       // SmoothQuant's; nothing: searched
  TensorType float_type =
      TensorType::BF16;  // of most weights before: how scales are stored, where the format lets choose
};

enum class MethodFlag : uint8_t {
  kBits = 1,
  kGroup = 2,
  kSymmetric = 4,
  kObserver = 8,
  kOrder = 16,  // act_order, static_groups, damping
  kDouble = 32,
  kAlpha = 64,
};
constexpr unsigned flags_of(std::initializer_list<MethodFlag> flags) {
  unsigned set = 0;
  for (const MethodFlag flag : flags) set |= static_cast<unsigned>(flag);
  return set;
}

// A tensor of a module: its name is the module's with the ending.
struct ModulePart {
  std::string ending;  // ".qweight"
  TensorType type;
  std::vector<uint64_t> shape;
};

struct EncodedModule {
  std::vector<std::vector<std::byte>> parts;  // the bytes of what parts() promised, in its order
  FloatMatrix values;                         // what the codes stand for
  std::string note;                           // what the user should know of this matrix; empty: nothing
};

// What a method knows of a matrix besides its weights.
struct MatrixContext {
  std::shared_ptr<const InputStatistics> inputs;  // null: nothing
  float largest = 0;                              // the greatest magnitude of all matrices that read the same inputs
};

// What stays between matrices: those that read the same inputs share a factor.
struct SolverState {
  Team& team;
  std::shared_ptr<const InputStatistics> factored = nullptr;  // what `factor` is of
  InverseFactor factor = {};
};

enum class NeededInputs : uint8_t { kNone, kGram, kSample };

struct HfMethod {
  std::string_view name;    // --method
  std::string_view layout;  // quant_method in config.json
  std::string_view about;   // for help
  NeededInputs needs;
  bool joins = false;          // wants MatrixContext::largest
  bool rounds_inputs = false;  // the layout asks readers to quantize inputs, too
  unsigned flags;              // of MethodFlag
  std::span<const int> bits;   // that it can have
  MethodSettings defaults;
  // Why a matrix cannot be quantized so; empty: it can.
  std::string (*misfit)(int rows, int cols, const MethodSettings& settings);
  std::vector<ModulePart> (*parts)(int rows, int cols, const MethodSettings& settings);
  // Weights are finite. Throws Error for weights that the format cannot hold.
  EncodedModule (*encode)(const FloatMatrix& weights, const MatrixContext& context, const MethodSettings& settings,
                          SolverState& state);
  // Factors of inputs that are folded into what computes them; null: the method has none. As search_awq_scales().
  InputScales (*scales)(const FloatMatrix& weights, std::span<const float> largest_weights,
                        const InputStatistics& inputs, std::span<const int> tied, const MethodSettings& settings,
                        Team& team);
  // quantization_config. float_modules: linears that stay as they were.
  Json (*describe)(const MethodSettings& settings, std::span<const std::string> float_modules);
};

std::span<const HfMethod* const> hf_methods();
// Throws Error that lists them.
const HfMethod& find_hf_method(std::string_view name);

}  // namespace quire
