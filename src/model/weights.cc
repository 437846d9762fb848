#include "model/weights.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/error.h"
#include "quant/blocks.h"

namespace quire {
namespace {

std::string with_layer(std::string_view name, int layer) {
  const size_t at = name.find("{}");
  if (at == std::string_view::npos) return std::string(name);
  return std::string(name.substr(0, at)) + std::to_string(layer) + std::string(name.substr(at + 2));
}

std::string shape_text(const std::vector<uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// First describes every matrix, then allocates once and packs.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config) : checkpoint_(checkpoint), config_(config) {}

  const TensorView& tensor(const std::string& name, std::vector<uint64_t> shape) {
    const TensorView* view = checkpoint_.find_tensor(name);
    if (!view) throw invalid("{}: tensor {} is missing", checkpoint_.file(), name);
    used_.insert(view->name);
    if (view->shape != shape) {
      throw invalid("{}: tensor {} has shape {}, expected {}", checkpoint_.file(), name, shape_text(view->shape),
                    shape_text(shape));
    }
    if (!info(view->type).loadable)
      throw unsupported("{}: tensor {} has type {}, which Quire cannot load", checkpoint_.file(), name,
                        quire::name(view->type));
    return *view;
  }

  std::vector<float> vector(const std::string& name, int size) {
    const TensorView& view = tensor(name, {static_cast<uint64_t>(size)});
    std::vector<float> values(static_cast<size_t>(size));
    dequantize(view.type, view.bytes, values);
    parameters += values.size();
    return values;
  }

  void matrix(PackedMatrix& out, const std::string& name, int rows, int cols) {
    const TensorView& view = tensor(name, {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)});
    out = describe_packed(view.type, rows, cols);
    elements_[view.type] += static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
    parameters += static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
    jobs_.push_back({&out, view.bytes, bytes_});
    bytes_ += out.bytes();
  }

  void linear(Linear& out, const std::string& name, int rows, int cols) {
    matrix(out.weight, name, rows, cols);
    const std::string bias = name.substr(0, name.rfind('.')) + ".bias";
    if (checkpoint_.find_tensor(bias)) out.bias = vector(bias, rows);
  }

  void check_all_used(const Family& family) {
    const TensorNames& names = checkpoint_.gguf() ? *family.gguf_names : *family.hf_names;
    std::unordered_set<std::string> ignored;
    for (const std::string_view pattern : names.ignored) {
      for (int layer = 0; layer < config_.layers; ++layer) ignored.insert(with_layer(pattern, layer));
    }
    if (config_.tied_output) ignored.insert(std::string(names.output));
    for (const TensorView& view : checkpoint_.tensors()) {
      if (!used_.contains(view.name) && !ignored.contains(view.name)) {
        throw unsupported("{}: tensor {} is not part of a {} model as Quire knows it", checkpoint_.file(), view.name,
                          config_.architecture);
      }
    }
  }

  LargeBuffer pack(Team& team, size_t most) {
    if (bytes_ > most) {
      throw no_resource("{}: the weights need {} MiB of memory, there are {} MiB (--memory)", checkpoint_.file(),
                        bytes_ >> 20, most >> 20);
    }
    LargeBuffer memory(bytes_);
    struct Piece {
      const Job* job;
      int begin, end;
    };
    std::vector<Piece> pieces;
    constexpr int kPanelsPerPiece = 16;
    for (const Job& job : jobs_) {
      for (int p = 0; p < job.matrix->panels(); p += kPanelsPerPiece)
        pieces.push_back({&job, p, std::min(p + kPanelsPerPiece, job.matrix->panels())});
    }
    team.for_tiles(static_cast<int>(pieces.size()), [&](int i, int) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      pack_panels(*piece.job->matrix, piece.job->source, memory.data() + piece.job->offset, piece.begin, piece.end);
    });
    for (const Job& job : jobs_) job.matrix->data = memory.data() + job.offset;
    return memory;
  }

  TensorType main_type() const {
    return std::max_element(elements_.begin(), elements_.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  uint64_t parameters = 0;

 private:
  struct Job {
    PackedMatrix* matrix;
    std::span<const std::byte> source;
    size_t offset;
  };

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  std::vector<Job> jobs_;
  size_t bytes_ = 0;  // every packed matrix is a multiple of 64
  std::unordered_set<std::string> used_;
  std::map<TensorType, uint64_t> elements_;
};

}  // namespace

Weights load_weights(const Checkpoint& checkpoint, const Family& family, const ModelConfig& c, Team& team,
                     size_t memory) {
  const TensorNames& names = checkpoint.gguf() ? *family.gguf_names : *family.hf_names;
  Loader load(checkpoint, c);
  Weights w;
  w.layers.resize(static_cast<size_t>(c.layers));
  load.matrix(w.embedding, std::string(names.embedding), c.vocab, c.hidden);
  for (int i = 0; i < c.layers; ++i) {
    LayerWeights& layer = w.layers[static_cast<size_t>(i)];
    const auto name = [&](std::string_view pattern) { return with_layer(pattern, i); };
    layer.attention_norm = load.vector(name(names.attention_norm), c.hidden);
    load.linear(layer.q, name(names.q), c.heads * c.head_dim, c.hidden);
    load.linear(layer.k, name(names.k), c.kv_heads * c.head_dim, c.hidden);
    load.linear(layer.v, name(names.v), c.kv_heads * c.head_dim, c.hidden);
    load.linear(layer.o, name(names.o), c.hidden, c.heads * c.head_dim);
    layer.ffn_norm = load.vector(name(names.ffn_norm), c.hidden);
    load.linear(layer.gate, name(names.gate), c.ffn, c.hidden);
    load.linear(layer.up, name(names.up), c.ffn, c.hidden);
    load.linear(layer.down, name(names.down), c.hidden, c.ffn);
    if (is_quantized(layer.gate.weight.type) != is_quantized(layer.up.weight.type) || !layer.gate.bias.empty() ||
        !layer.up.bias.empty()) {
      throw unsupported("{}: layer {}: gate and up projection must both be quantized or both not, without biases",
                        checkpoint.file(), i);
    }
  }
  w.output_norm = load.vector(std::string(names.output_norm), c.hidden);
  if (!c.tied_output) load.linear(w.output, std::string(names.output), c.vocab, c.hidden);
  load.check_all_used(family);
  w.memory = load.pack(team, memory);
  if (c.tied_output) w.output.weight = w.embedding;
  w.parameters = load.parameters;
  w.main_type = load.main_type();
  return w;
}

size_t Weights::decode_bytes() const {
  size_t bytes = output.weight.bytes();
  for (const LayerWeights& l : layers) {
    for (const Linear* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) bytes += m->weight.bytes();
  }
  return bytes;
}

}  // namespace quire
