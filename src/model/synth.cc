#include "model/synth.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <future>
#include <span>
#include <thread>

#include "base/error.h"
#include "format/gguf_writer.h"
#include "model/tensors.h"
#include "quant/synthetic.h"
#include "text/tokenizer/byte_alphabet.h"

namespace quire {
namespace {

constexpr float kEpsilon = 1e-5f;  // of norms

struct FileTensor {
  std::string name;
  TensorType type;
  int items, rows, cols;  // items: matrices in one tensor; rows 0: a vector

  std::vector<uint64_t> shape() const {
    std::vector<uint64_t> shape;
    if (items > 1) shape.push_back(static_cast<uint64_t>(items));
    if (rows > 0) shape.push_back(static_cast<uint64_t>(rows));
    shape.push_back(static_cast<uint64_t>(cols));
    return shape;
  }
};

void add_vocabulary(GgufHeader& h, int vocab) {
  const std::string words[] = {"<s>", "</s>", "he", "th"};
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int i = 0; i < vocab; ++i) {
    tokens.push_back(i < 256   ? bytes_to_alphabet(std::string(1, static_cast<char>(i)))
                     : i < 260 ? words[i - 256]
                               : fmt::format("<filler_{}>", i));
    types.push_back(i == 256 || i == 257 ? 3 : 1);  // control, normal
  }
  const std::string merges[] = {"h e", "t h"};
  h.string("tokenizer.ggml.model", "gpt2");
  h.string("tokenizer.ggml.pre", "default");
  h.strings("tokenizer.ggml.tokens", tokens);
  h.numbers("tokenizer.ggml.token_type", types);
  h.strings("tokenizer.ggml.merges", merges);
  h.u32("tokenizer.ggml.bos_token_id", 256);
  h.u32("tokenizer.ggml.eos_token_id", 257);
  h.flag("tokenizer.ggml.add_bos_token", true);
}

// The file's tensors: the model's, under the names of GGUF.
class TensorList : public TensorVisitor {
 public:
  TensorList(const ModelConfig& config, TensorType type) : config_(config), type_(type) {}

  void matrix(const Slot& slot, int rows, int cols, Linear&) override {
    if (slot.item > 0) return;  // one tensor holds the matrices of all experts
    const auto block = static_cast<int>(info(type_).block_elements);
    TensorType fitting = cols % block == 0 ? type_ : cols % 32 == 0 ? TensorType::Q8_0 : TensorType::F16;
    if (slot.tensor == Tensor::kRouter) fitting = TensorType::F32;
    tensors.push_back({name(slot), fitting, std::max(1, slot.items), rows, cols});
  }
  void vector(const Slot& slot, const std::vector<int>& shape, Vector&, Change) override {
    tensors.push_back({name(slot), TensorType::F32, 1, 0, shape.back()});
  }
  void bias(const Slot&, int, Vector&) override {}

  std::vector<FileTensor> tensors;

 private:
  std::string name(const Slot& slot) const { return find_source(config_, slot, FileKind::kGguf, {}).name; }

  const ModelConfig& config_;
  const TensorType type_;
};

std::vector<FileTensor> file_tensors(const SynthShape& s, TensorType type) {
  const ModelConfig config = synth_config(s);
  TensorList list(config, type);
  Weights unused;
  visit_tensors(config, unused, list);
  return std::move(list.tensors);
}

std::vector<std::byte> bytes_of(const FileTensor& t, uint64_t seed) {
  if (t.rows == 0) {
    const std::vector<float> ones(static_cast<size_t>(t.cols), 1.0f);
    const auto bytes = std::as_bytes(std::span(ones));
    return {bytes.begin(), bytes.end()};
  }
  const float sigma = t.name == "token_embd.weight" ? 0.5f : 1.0f / std::sqrt(static_cast<float>(t.cols));
  // Large matrices, such as those of tokens, are made in pieces, so that all cores have work.
  constexpr int kPieceRows = 8192;
  const int rows = t.items * t.rows;
  std::vector<std::future<std::vector<std::byte>>> pieces;
  for (int row = kPieceRows; row < rows; row += kPieceRows)
    pieces.push_back(std::async(std::launch::async, synthetic_matrix, t.type, std::min(kPieceRows, rows - row), t.cols,
                                sigma, seed + static_cast<uint64_t>(row) * 1'000'000'007));
  std::vector<std::byte> bytes = synthetic_matrix(t.type, std::min(kPieceRows, rows), t.cols, sigma, seed);
  bytes.reserve(bytes.size() / static_cast<size_t>(std::min(kPieceRows, rows)) * static_cast<size_t>(rows));
  for (auto& piece : pieces) {
    const std::vector<std::byte> more = piece.get();
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

}  // namespace

ModelConfig synth_config(const SynthShape& s) {
  ModelConfig c;
  c.architecture = "llama";
  c.hidden = s.hidden;
  c.vocab = s.vocab;
  c.max_positions = s.context;
  c.tied_output = s.tied;
  LayerSpec layer;
  layer.mixer = Attention{.heads = s.heads,
                          .kv_heads = s.kv_heads,
                          .key_dim = s.head_dim,
                          .value_dim = s.head_dim,
                          .window = s.window,
                          .scale = 1 / std::sqrt(static_cast<float>(s.head_dim))};
  c.ropes = {{.kind = RopeKind::kNeighbours, .dim = s.head_dim, .theta = s.rope_theta}};
  if (s.experts > 0) {
    layer.ffn = Moe{.routing = {.experts = s.experts, .used = s.experts_used}, .size = s.ffn};
  } else {
    layer.ffn = Mlp{.size = s.ffn};
  }
  layer.mixer_in = layer.ffn_in = c.output_norm = {.kind = NormKind::kRms, .epsilon = kEpsilon};
  c.layers.assign(static_cast<size_t>(s.layers), layer);
  return c;
}

const std::vector<SynthShape>& synth_shapes() {
  static const std::vector<SynthShape> shapes = {
      {"tiny", 2, 256, 8, 2, 32, 512, 320, 512, 10000, true},
      {"tiny-moe", 4, 256, 8, 2, 32, 512, 320, 512, 10000, true, 8, 2},
      {"smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 100000, true},
      {"moe-16x", 12, 1024, 16, 4, 64, 1792, 32768, 8192, 500000, true, 16, 2},
      {"llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 102400, 131072, 500000, true},
      {"llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 102400, 131072, 500000, true},
      {"llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 500000, false},
  };
  return shapes;
}

const SynthShape& find_synth_shape(std::string_view name) {
  std::string names;
  for (const SynthShape& shape : synth_shapes()) {
    if (shape.name == name) return shape;
    names += (names.empty() ? "" : ", ") + std::string(shape.name);
  }
  throw invalid("shape '{}': there are {}", name, names);
}

void write_synthetic_model(const std::filesystem::path& path, const SynthShape& s, TensorType type, uint64_t seed,
                           const std::function<void(size_t written, size_t total)>& progress) {
  if (!info(type).loadable) throw unsupported("type {} cannot be made", name(type));
  const std::vector<FileTensor> tensors = file_tensors(s, type);
  GgufHeader h;
  h.string("general.architecture", "llama");
  h.string("general.name", fmt::format("synthetic {} {}", s.name, name(type)));
  h.u32("llama.block_count", s.layers);
  h.u32("llama.context_length", s.context);
  h.u32("llama.embedding_length", s.hidden);
  h.u32("llama.feed_forward_length", s.ffn);
  h.u32("llama.attention.head_count", s.heads);
  h.u32("llama.attention.head_count_kv", s.kv_heads);
  h.u32("llama.attention.key_length", s.head_dim);
  h.u32("llama.attention.value_length", s.head_dim);
  h.f32("llama.attention.layer_norm_rms_epsilon", kEpsilon);
  if (s.window > 0) h.u32("llama.attention.sliding_window", s.window);
  h.u32("llama.rope.dimension_count", s.head_dim);
  h.f32("llama.rope.freq_base", s.rope_theta);
  h.u32("llama.vocab_size", s.vocab);
  if (s.experts > 0) {
    h.u32("llama.expert_count", s.experts);
    h.u32("llama.expert_used_count", s.experts_used);
  }
  add_vocabulary(h, s.vocab);
  for (const FileTensor& t : tensors) h.tensor(t.name, t.type, t.shape());
  GgufFile file(path, h);
  // Tensors are made on all cores and written in order.
  std::deque<std::future<std::vector<std::byte>>> ahead;
  const size_t most_ahead = std::max(1u, std::thread::hardware_concurrency());
  for (size_t i = 0, next = 0; i < tensors.size(); ++i) {
    for (; next < tensors.size() && next - i < most_ahead; ++next)
      ahead.push_back(std::async(std::launch::async, bytes_of, std::cref(tensors[next]), seed * 1'000'003 + next));
    file.write(h.tensors()[i], ahead.front().get());
    ahead.pop_front();
    if (progress) progress(i + 1, tensors.size());
  }
  file.commit();
}

}  // namespace quire
