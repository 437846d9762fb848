// Every tensor of a model, declared once: its shape by the configuration, and its usual names in files. Loading,
// inspecting, synthesising, verifying and counting bytes read these declarations.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/weights.h"

namespace quire {

enum class Tensor : uint8_t {
  kEmbedding,
  kPositions,
  kSegments,
  kEmbeddingNorm,
  kOutputNorm,
  kOutput,
  kJoin,  // in layers for multi-token prediction
  kJoinEmbeddingNorm,
  kJoinFeatureNorm,
  kPerLayerEmbedding,
  kPerLayerProjection,
  kPerLayerNorm,
  kAltUpProjection,
  kAltUpUnembed,
  kPooled,
  kPooledNorm,
  // In each layer:
  kMixerNorm,
  kMixerOutNorm,
  kFfnNorm,
  kFfnOutNorm,
  kPerLayerGate,
  kPerLayerOut,
  kPerLayerOutNorm,
  kOutputScale,
  kLaurelLeft,
  kLaurelRight,
  kLaurelNorm,
  kAltUpRouter,
  kAltUpRouterNorm,
  kAltUpPredict,
  kAltUpCorrect,
  kAltUpScale,
  kQ,
  kK,
  kV,
  kO,
  kAttentionGate,
  kQNorm,
  kKNorm,
  kAttentionInnerNorm,
  kSinks,
  kQLatent,
  kQLatentNorm,
  kQOfLatent,
  kKvLatent,
  kKvLatentNorm,
  kKeyOfHead,
  kValueOfHead,
  kMixIn,  // short convolutions and Mamba-2
  kMixOut,
  kMixNorm,
  kConv,
  kDecay,
  kStepBias,
  kSkip,
  kDeltaQ,
  kDeltaK,
  kDeltaV,
  kDeltaGate,
  kDeltaDecay,
  kDeltaBeta,
  kGate,
  kUp,
  kDown,
  kFfnInnerNorm,
  kRouter,
  kRouterNorm,
  kRouterCorrection,
  kExpertScale,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kExpertsOutNorm,
  kSharedNorm,
  kSharedGate,
  kSharedUp,
  kSharedDown,
  kSharedSwitch,
  kSharedOutNorm,
};

// Matrices whose rows are looked up; no linear reads them.
constexpr bool is_table(Tensor t) {
  return t == Tensor::kEmbedding || t == Tensor::kPositions || t == Tensor::kSegments ||
         t == Tensor::kPerLayerEmbedding;
}

// Matrices of the whole model that are read before the layers; the others are read after them.
constexpr bool is_input(Tensor t) {
  return is_table(t) || t == Tensor::kJoin || t == Tensor::kPerLayerProjection || t == Tensor::kAltUpProjection;
}

constexpr bool is_expert(Tensor t) {
  return t == Tensor::kExpertGate || t == Tensor::kExpertUp || t == Tensor::kExpertDown;
}

// What Operations::route() and run_experts() read of a layer.
constexpr bool goes_with_experts(Tensor t) {
  return is_expert(t) || t == Tensor::kRouterCorrection || t == Tensor::kExpertScale;
}

struct Slot {
  Tensor tensor;
  int layer = -1;           // -1: of the whole model
  int item = 0, items = 0;  // one of `items` such matrices in the layer (experts, heads, streams); 0: there is one
};

// What happens to the numbers of a vector at load.
enum class Change : uint8_t {
  kNone,
  kPlusOne,    // 1 + x
  kMinusExp,   // -exp(x)
  kTranspose,  // swaps two dimensions
};
// A number after that.
float changed(float x, Change change);

// What is done for each tensor.
class TensorVisitor {
 public:
  virtual ~TensorVisitor() = default;
  // A matrix of [rows, cols], and its bias [rows] where the file has one.
  virtual void matrix(const Slot& slot, int rows, int cols, Linear& to) = 0;
  // shape: as in the file, outermost first, but for dimensions of 1.
  virtual void vector(const Slot& slot, const std::vector<int>& shape, Vector& to, Change change) = 0;
  // The bias of a norm, named as its weight.
  virtual void bias(const Slot& slot, int size, Vector& to) = 0;
};

// Calls the visitor for every tensor of the model. Adds the layers and experts that `weights` lacks.
void visit_tensors(const ModelConfig& config, Weights& weights, TensorVisitor& visitor);

// Calls f(slot, linear) for each matrix; a tied output matrix is one.
template <class F>
void for_each_matrix(const ModelConfig& config, const Weights& weights, F f) {
  struct Matrices : TensorVisitor {
    explicit Matrices(F& function) : f(function) {}
    void matrix(const Slot& slot, int, int, Linear& to) override { f(slot, std::as_const(to)); }
    void vector(const Slot&, const std::vector<int>&, Vector&, Change) override {}
    void bias(const Slot&, int, Vector&) override {}
    F& f;
  } visitor(f);
  visit_tensors(config, const_cast<Weights&>(weights), visitor);  // changes nothing: all layers are there
  if (config.tied_output) f(Slot{Tensor::kOutput}, weights.output);
}

// Where a tensor lies in a file.
struct Source {
  std::string name;  // the weight's
  std::string bias;  // empty: the name with .bias for .weight
  // Output i is row first + i / run * step + i % run of the file's tensor, which has `rows` rows; run 0: row first + i.
  int first = 0, run = 0, step = 0;
  int rows = 0;                   // 0: as many as the matrix
  int first_col = 0, cols = 0;    // likewise, of inputs
  bool transposed = false;        // the file has [inputs, outputs]: a row above is a column
  Change change = Change::kNone;  // for a vector's numbers, if the layer asks for none
  bool stacked = false;           // the file's tensor holds the matrices of all items, [items, rows, cols]

  int row(int i) const { return first + (run > 0 ? i / run * step + i % run : i); }
};

using TensorName =
    std::pair<Tensor, std::string_view>;  // {}: the layer, {e}: the expert; a name without {e} is stacked

// How a kind of file spells the layer for multi-token prediction that follows a family's models; {}: the layer's number.
struct PredictingSpelling {
  std::span<const TensorName> names;  // for what surrounds its block
  std::string_view block;             // before the names of its block's tensors, in place of "model.layers.{}."
};

// How a kind of file spells a family's tensors, where it differs from most.
struct Spelling {
  std::span<const TensorName> names = {};
  // Changes where `slot` lies: for fused and transposed tensors.
  void (*place)(const ModelConfig& config, const Slot& slot, Source& source) = nullptr;
  std::span<const std::string_view> ignored = {};  // tensors that the model does not need; {}: the layer; a final *
  std::span<const TensorName> alternatives = {};   // for files that lack the tensor of the name above
  std::string_view prefix = {};                    // some files have it before every name
  const PredictingSpelling* predicting = nullptr;  // nullptr: no such layer is known
};

enum class FileKind : uint8_t { kHf, kGguf };
// A vector's name that keeps {e} stands for a tensor for each of its rows: vector_names().
Source find_source(const ModelConfig& config, const Slot& slot, FileKind kind, const Spelling& spelling);
// The tensors that a vector of this shape, outermost first, is joined of.
std::vector<std::string> vector_names(const Source& source, std::span<const int> shape);
// What the names of a layer's tensors begin with; predicting: of a layer for multi-token prediction.
std::string layer_prefix(FileKind kind, int layer, const PredictingSpelling* predicting = nullptr);

}  // namespace quire
