#include "quantize/rotate/rotation.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/files/output_folder.h"
#include "format/safetensors_writer.h"
#include "model/families.h"
#include "model/weights.h"
#include "quant/encode.h"
#include "quantize/rotate/hadamard.h"

namespace quire {
namespace {

enum class StreamRole : uint8_t { kNone, kReads, kAdds, kTable, kNorm };

// What a tensor does with the residual stream. kNone: nothing.
StreamRole stream_role(Tensor tensor, const ModelConfig& config, int layer) {
  switch (tensor) {
    case Tensor::kEmbedding:
      return StreamRole::kTable;
    case Tensor::kMixerNorm:
    case Tensor::kFfnNorm:
    case Tensor::kOutputNorm:
      return StreamRole::kNorm;
    case Tensor::kQ: {
      // Of MLA, queries may come from a latent instead.
      const auto* mla = std::get_if<Mla>(&config.layers[static_cast<size_t>(layer)].mixer);
      return mla && mla->q_rank > 0 ? StreamRole::kNone : StreamRole::kReads;
    }
    case Tensor::kOutput:
    case Tensor::kK:
    case Tensor::kV:
    case Tensor::kAttentionGate:
    case Tensor::kQLatent:
    case Tensor::kKvLatent:
    case Tensor::kMixIn:
    case Tensor::kDeltaQ:
    case Tensor::kDeltaK:
    case Tensor::kDeltaV:
    case Tensor::kDeltaGate:
    case Tensor::kDeltaDecay:
    case Tensor::kDeltaBeta:
    case Tensor::kGate:
    case Tensor::kUp:
    case Tensor::kRouter:
    case Tensor::kExpertGate:
    case Tensor::kExpertUp:
    case Tensor::kSharedGate:
    case Tensor::kSharedUp:
    case Tensor::kSharedSwitch:
      return StreamRole::kReads;
    case Tensor::kO:
    case Tensor::kMixOut:
    case Tensor::kDown:
    case Tensor::kExpertDown:
    case Tensor::kSharedDown:
      return StreamRole::kAdds;
    default:
      return StreamRole::kNone;
  }
}

// The norm whose results a reading tensor reads.
Slot norm_before(const Slot& slot, const ModelConfig& config) {
  if (slot.layer < 0) return {Tensor::kOutputNorm};
  constexpr Tensor kFfn[] = {Tensor::kGate,     Tensor::kUp,         Tensor::kRouter,   Tensor::kExpertGate,
                             Tensor::kExpertUp, Tensor::kSharedGate, Tensor::kSharedUp, Tensor::kSharedSwitch};
  const bool is_ffn = std::ranges::find(kFfn, slot.tensor) != std::end(kFfn);
  const bool has_own = is_ffn && !config.layers[static_cast<size_t>(slot.layer)].shared_norm;
  return {has_own ? Tensor::kFfnNorm : Tensor::kMixerNorm, slot.layer};
}

bool keeps_rotations(const Norm& norm) {
  return (norm.kind == NormKind::kRms || norm.kind == NormKind::kL2) && !norm.bias;
}

// Of a layer, by its number.
std::string obstacle_in(const LayerSpec& layer) {
  const auto is_after = [](const Norm& norm) { return norm && (norm.weight || !keeps_rotations(norm)); };
  if (layer.norm_sums || is_after(layer.mixer_out) || is_after(layer.ffn_out))
    return "norms after the branches weigh single dimensions";
  const bool has_ffn = !std::holds_alternative<std::monostate>(layer.ffn);
  for (const Norm* norm : {&layer.mixer_in, &layer.ffn_in}) {
    if (norm == &layer.ffn_in && (!has_ffn || layer.shared_norm)) continue;
    if (!*norm) return "a branch reads hidden states that are not normalised";
    if (!keeps_rotations(*norm)) return "layer norms subtract the mean, which rotations do not keep";
  }
  if (layer.laurel_rank > 0) return "low-rank paths besides attention";
  if (const auto* moe = std::get_if<Moe>(&layer.ffn); moe && (moe->router_in || moe->shared_in || moe->experts_out))
    return "experts with norms of their own";
  return "";
}

bool equal_slots(const Slot& a, const Slot& b) {
  return a.tensor == b.tensor && a.layer == b.layer && a.item == b.item;
}

// Computes the tensors of the rotated model.
class Rotator {
 public:
  Rotator(const ModelSource& source, Team& team)
      : source_(source), team_(team), rotation_(source.config.hidden), threads_(static_cast<size_t>(team.size())) {
    for (Scratch& scratch : threads_) {
      scratch.row.resize(static_cast<size_t>(source.config.hidden));
      scratch.sums.resize(scratch.row.size());
    }
  }

  // Throws Error if the tensor lies in a way that cannot be rotated.
  StreamRole role(const SourceTensor& tensor) const {
    std::optional<StreamRole> role;
    for (const SourceTensor::Use& use : tensor.uses) {
      const StreamRole of_use = stream_role(use.slot.tensor, source_.config, use.slot.layer);
      if (role && *role != of_use) refuse(tensor);
      role = of_use;
    }
    if (!role || *role == StreamRole::kNone) return StreamRole::kNone;
    if (tensor.is_bias) {
      if (*role != StreamRole::kAdds) return StreamRole::kNone;  // of what is computed, not of what is read
      if (tensor.uses.size() != 1 || tensor.elements() != hidden()) refuse(tensor);
      return StreamRole::kAdds;
    }
    if (*role == StreamRole::kNorm) {
      if (tensor.elements() != hidden()) refuse(tensor);
      return StreamRole::kNorm;
    }
    for (const SourceTensor::Use& use : tensor.uses) {
      const Source& place = use.place;
      if (!tensor.is_matrix() || place.transposed || place.stacked || place.cols != 0) refuse(tensor);
      if (*role == StreamRole::kReads && !equal_slots(norm_of(use), norm_of(tensor.uses.front()))) refuse(tensor);
    }
    const int side = *role == StreamRole::kAdds ? tensor.from.rows : tensor.from.cols;
    if (side != source_.config.hidden || (*role == StreamRole::kAdds && tensor.uses.size() != 1)) refuse(tensor);
    return *role;
  }

  FloatMatrix rotated(const SourceTensor& tensor) {
    FloatMatrix values = read_source(source_, tensor);
    switch (role(tensor)) {
      case StreamRole::kNorm:
        std::ranges::fill(values.values, tensor.uses.front().change == Change::kPlusOne ? 0.0f : 1.0f);
        break;
      case StreamRole::kReads:
        rotate_rows(values, gains(norm_of(tensor.uses.front())));
        break;
      case StreamRole::kTable:
        rotate_rows(values, {});
        break;
      case StreamRole::kAdds:
        if (tensor.is_bias) {
          values.rows = 1;
          values.cols = static_cast<int>(hidden());
          rotate_rows(values, {});
        } else {
          rotate_columns(values);
        }
        break;
      case StreamRole::kNone:
        break;
    }
    return values;
  }

  // The output matrix of a model whose output is tied to the embedding.
  FloatMatrix untied_output(const SourceTensor& embedding) {
    FloatMatrix values = read_source(source_, embedding);
    rotate_rows(values, gains({Tensor::kOutputNorm}));
    return values;
  }

 private:
  struct Scratch {
    std::vector<double> row, sums;
  };

  size_t hidden() const { return static_cast<size_t>(source_.config.hidden); }
  Slot norm_of(const SourceTensor::Use& use) const { return norm_before(use.slot, source_.config); }

  [[noreturn]] void refuse(const SourceTensor& tensor) const {
    throw unsupported("{}: tensor {} cannot be rotated: it holds several matrices, or lies in an unusual way",
                      source_.file, tensor.name);
  }

  // What a norm multiplies by; empty: nothing.
  std::vector<float> gains(const Slot& norm) const {
    for (const SourceTensor& tensor : source_.tensors) {
      for (const SourceTensor::Use& use : tensor.uses) {
        if (tensor.is_bias || !equal_slots(use.slot, norm)) continue;
        std::vector<float> values = read_source(source_, tensor).values;
        if (use.change == Change::kPlusOne) std::ranges::for_each(values, [](float& g) { g += 1; });
        return values;
      }
    }
    return {};
  }

  // Each row w becomes (w * gains) R.
  void rotate_rows(FloatMatrix& matrix, const std::vector<float>& gains) {
    team_.for_tiles(matrix.rows, [&](int r, int thread) {
      Scratch& scratch = threads_[static_cast<size_t>(thread)];
      const std::span<float> row = matrix.row(r);
      for (size_t c = 0; c < row.size(); ++c)
        scratch.row[c] = gains.empty() ? double{row[c]} : double{row[c]} * double{gains[c]};
      rotation_.rotate(scratch.row, scratch.sums);
      std::ranges::transform(scratch.row, row.begin(), [](double x) { return static_cast<float>(x); });
    });
  }

  // Each column w, as a row, becomes w R.
  void rotate_columns(FloatMatrix& matrix) {
    const auto cols = static_cast<size_t>(matrix.cols);
    team_.for_tiles(matrix.cols, [&](int c, int thread) {
      Scratch& scratch = threads_[static_cast<size_t>(thread)];
      float* const column = matrix.values.data() + c;
      for (size_t r = 0; r < scratch.row.size(); ++r) scratch.row[r] = double{column[r * cols]};
      rotation_.rotate(scratch.row, scratch.sums);
      for (size_t r = 0; r < scratch.row.size(); ++r) column[r * cols] = static_cast<float>(scratch.row[r]);
    });
  }

  const ModelSource& source_;
  Team& team_;
  const RandomHadamard rotation_;
  std::vector<Scratch> threads_;
};

// The tied embedding; null: the model has an output matrix of its own.
const SourceTensor* tied_embedding(const ModelSource& source) {
  if (!source.config.tied_output) return nullptr;
  for (const SourceTensor& tensor : source.tensors) {
    for (const SourceTensor::Use& use : tensor.uses) {
      if (use.slot.tensor == Tensor::kEmbedding) return &tensor;
    }
  }
  assert(false && "a model has an embedding");
  return nullptr;
}

// The name of a family's output matrix in directories.
std::string output_name(const ModelSource& source) {
  const auto family = std::ranges::find(families(), std::string_view(source.config.architecture), &Family::name);
  return find_source(source.config, {Tensor::kOutput}, FileKind::kHf, (*family)->hf).name;
}

Json untied(Json config) {
  constexpr const char* kKey = "tie_word_embeddings";
  config[kKey] = false;
  if (config.contains("text_config") && config["text_config"].contains(kKey)) config["text_config"][kKey] = false;
  return config;
}

}  // namespace

std::string rotation_obstacle(const ModelConfig& c) {
  if (!c.has_logits || !c.pooled.layers.empty()) return "hidden states are its result";
  if (c.learned_positions || c.segments > 0) return "positions or segments are added to the embeddings";
  if (c.embedding_norm) return "embeddings are normalised";
  if (c.altup.streams > 0 || c.per_layer_dim > 0) return "the layers have further inputs";
  if (c.predicting_layers > 0) return "it has layers for multi-token prediction, which read hidden states, too";
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (std::string obstacle = obstacle_in(c.layers[i]); !obstacle.empty())
      return fmt::format("{} (layer {})", obstacle, i);
  }
  return keeps_rotations(c.output_norm) ? "" : "the last norm is no RMS norm";
}

void write_rotated_model(const ModelSource& source, const std::filesystem::path& to, Team& team,
                         const std::function<void(size_t written, size_t total, const std::string& name)>& progress) {
  if (const std::string obstacle = rotation_obstacle(source.config); !obstacle.empty())
    throw unsupported("{}: --rotate does not work for this {} model: {}", source.file, source.config.architecture,
                      obstacle);
  Rotator rotator(source, team);
  std::vector<PlannedSafetensor> planned;
  for (const SourceTensor& tensor : source.tensors) {
    static_cast<void>(rotator.role(tensor));  // refuses before anything is written
    planned.push_back({tensor.name, tensor.type, tensor.shape});
  }
  const SourceTensor* const tied = tied_embedding(source);
  if (tied) planned.push_back({output_name(source), tied->type, tied->shape});
  OutputFolder folder(to, false);
  SafetensorsWriter file(folder.unfinished_path(), planned);
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < planned.size(); ++i) {
    progress(i, planned.size(), planned[i].name);
    const bool is_output = i == source.tensors.size();
    const SourceTensor& tensor = is_output ? *tied : source.tensors[i];
    if (!is_output && rotator.role(tensor) == StreamRole::kNone && tensor.row_order.empty() && tensor.from.view &&
        tensor.from.view->type == tensor.type) {
      file.write(i, tensor.from.view->bytes);
      continue;
    }
    const FloatMatrix values = is_output ? rotator.untied_output(tensor) : rotator.rotated(tensor);
    bytes.resize(planned[i].bytes());
    if (encode_row(planned[i].type, values.values, {}, bytes) != EncodeResult::kDone)
      throw invalid("{}: tensor {} has a value that is too large for {} once it is rotated", source.file,
                    planned[i].name, name(planned[i].type));
    file.write(i, bytes);
    if (tensor.from.view && tensor.from.view->bytes.size() >= size_t{1} << 20) source.release();
  }
  file.finish();
  const Json config = tied ? untied(source.config_json) : source.config_json;
  folder.write("config.json", config.dump(2) + "\n");
  for (const std::filesystem::path& other : source.files) folder.copy(other);
  for (const auto& [name, text] : source.texts) folder.write(name, text);
  source.check_unchanged();
  const Checkpoint written = Checkpoint::open(folder.unfinished_path());
  const ModelConfig got = read_model_config(written);
  check_weights(written, got);
  if (got.tied_output)
    throw unsupported("{}: --rotate does not work for this {} model: its output matrix is always the embedding",
                      source.file, source.config.architecture);
  folder.commit();
}

}  // namespace quire
