#include "model/weights.h"

#include <algorithm>
#include <map>
#include <unordered_set>

#include "base/error.h"
#include "model/families.h"
#include "quant/blocks.h"

namespace quire {
namespace {

std::string with_layer(std::string_view name, int layer) {
  const size_t at = name.find("{}");
  if (at == std::string_view::npos) return std::string(name);
  return std::string(name.substr(0, at)) + std::to_string(layer) + std::string(name.substr(at + 2));
}

std::string shape_text(const std::vector<uint64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// First checks and lists every tensor, reading no data; then allocates once and reads them all.
class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const ModelConfig& config) : checkpoint_(checkpoint), config_(config) {}

  void vector(std::vector<float>& out, const std::string& name, int size) {
    const TensorView& view = tensor(name, {static_cast<uint64_t>(size)});
    vectors_.push_back({&out, &view});
    parameters += static_cast<uint64_t>(size);
  }

  void matrix(PackedMatrix& out, const std::string& name, int rows, int cols) {
    const TensorView& view = tensor(name, {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)});
    out = describe_packed(view.type, rows, cols);
    elements_[view.type] += static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
    parameters += static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
    matrices_.push_back({&out, view.bytes, bytes_});
    bytes_ += out.bytes();
  }

  static std::string bias_of(const std::string& weight) { return weight.substr(0, weight.rfind('.')) + ".bias"; }
  bool has_bias(const std::string& weight) const { return checkpoint_.find_tensor(bias_of(weight)) != nullptr; }

  void linear(Linear& out, const std::string& name, int rows, int cols) {
    matrix(out.weight, name, rows, cols);
    if (has_bias(name)) vector(out.bias, bias_of(name), rows);
  }

  void check_all_used(const TensorNames& names) const {
    std::unordered_set<std::string> ignored;
    for (const std::string_view pattern : names.ignored) {
      for (int layer = 0; layer < config_.layers; ++layer) ignored.insert(with_layer(pattern, layer));
    }
    if (config_.tied_output) ignored.insert(std::string(names.output));
    for (const TensorView& view : checkpoint_.tensors()) {
      if (!used_.contains(view.name) && !ignored.contains(view.name)) {
        throw unsupported("{}: unexpected tensor {}: Quire's {} architecture does not use it", checkpoint_.file(),
                          view.name, config_.architecture);
      }
    }
  }

  // Reads all listed tensors. Matrices go into the returned memory, of at most `limit` bytes.
  LargeBuffer read(Team& team, size_t limit) {
    if (bytes_ > limit) {
      throw no_resource("{}: the weights need {} MiB of memory, but only {} MiB are available (--memory)",
                        checkpoint_.file(), (bytes_ + (1 << 20) - 1) >> 20, limit >> 20);
    }
    for (const VectorJob& job : vectors_) {
      job.values->resize(static_cast<size_t>(job.source->shape[0]));
      dequantize(job.source->type, job.source->bytes, *job.values);
    }
    LargeBuffer memory(bytes_);
    struct Piece {
      const MatrixJob* job;
      int begin, end;  // panels
    };
    std::vector<Piece> pieces;
    constexpr int kPanelsPerPiece = 16;
    for (const MatrixJob& job : matrices_) {
      for (int p = 0; p < job.matrix->panels(); p += kPanelsPerPiece)
        pieces.push_back({&job, p, std::min(p + kPanelsPerPiece, job.matrix->panels())});
    }
    team.for_tiles(static_cast<int>(pieces.size()), [&](int i, int) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      pack_panels(*piece.job->matrix, piece.job->source, memory.data() + piece.job->offset, piece.begin, piece.end);
    });
    for (const MatrixJob& job : matrices_) job.matrix->data = memory.data() + job.offset;
    return memory;
  }

  TensorType main_type() const {
    return std::max_element(elements_.begin(), elements_.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

  uint64_t parameters = 0;

 private:
  struct MatrixJob {
    PackedMatrix* matrix;
    std::span<const std::byte> source;
    size_t offset;
  };
  struct VectorJob {
    std::vector<float>* values;
    const TensorView* source;
  };

  const TensorView& tensor(const std::string& name, const std::vector<uint64_t>& shape) {
    const TensorView* view = checkpoint_.find_tensor(name);
    if (!view && checkpoint_.hf() && checkpoint_.hf()->config.has("quantization_config"))
      throw unsupported("{}: tensor {} is missing; config.json has a quantization_config, which Quire does not support",
                        checkpoint_.file(), name);
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

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  std::vector<MatrixJob> matrices_;
  std::vector<VectorJob> vectors_;
  size_t bytes_ = 0;  // of the packed matrices, each a multiple of 64
  std::unordered_set<std::string> used_;
  std::map<TensorType, uint64_t> elements_;
};

// Lists the tensors of the model with `w` as their destination, and checks that there are no others.
void list_tensors(const Checkpoint& checkpoint, const ModelConfig& c, Loader& load, Weights& w) {
  const Family& family = find_family(checkpoint);
  const TensorNames& names = checkpoint.gguf() ? *family.gguf_names : *family.hf_names;
  w.layers.resize(static_cast<size_t>(c.layers));
  load.matrix(w.embedding, std::string(names.embedding), c.vocab, c.hidden);
  for (int i = 0; i < c.layers; ++i) {
    LayerWeights& layer = w.layers[static_cast<size_t>(i)];
    const auto name = [&](std::string_view pattern) { return with_layer(pattern, i); };
    load.vector(layer.attention_norm, name(names.attention_norm), c.hidden);
    load.linear(layer.q, name(names.q), c.heads * c.head_dim, c.hidden);
    load.linear(layer.k, name(names.k), c.kv_heads * c.head_dim, c.hidden);
    load.linear(layer.v, name(names.v), c.kv_heads * c.head_dim, c.hidden);
    load.linear(layer.o, name(names.o), c.hidden, c.heads * c.head_dim);
    load.vector(layer.ffn_norm, name(names.ffn_norm), c.hidden);
    load.linear(layer.gate, name(names.gate), c.ffn, c.hidden);
    load.linear(layer.up, name(names.up), c.ffn, c.hidden);
    load.linear(layer.down, name(names.down), c.hidden, c.ffn);
    if (is_quantized(layer.gate.weight.type) != is_quantized(layer.up.weight.type) || load.has_bias(name(names.gate)) ||
        load.has_bias(name(names.up))) {
      throw unsupported(
          "{}: layer {}: the gate and up projections must have no bias and be both quantized or both unquantized",
          checkpoint.file(), i);
    }
  }
  load.vector(w.output_norm, std::string(names.output_norm), c.hidden);
  if (!c.tied_output) load.linear(w.output, std::string(names.output), c.vocab, c.hidden);
  load.check_all_used(names);
}

}  // namespace

void check_weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  Loader load(checkpoint, config);
  Weights unread;
  list_tensors(checkpoint, config, load, unread);
}

Weights load_weights(const Checkpoint& checkpoint, const ModelConfig& c, Team& team, size_t memory) {
  Loader load(checkpoint, c);
  Weights w;
  list_tensors(checkpoint, c, load, w);
  w.memory = load.read(team, memory);
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
