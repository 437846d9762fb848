#include "model/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "base/half.h"
#include "format/gguf.h"
#include "kernels/packed.h"
#include "model/tensors.h"
#include "quant/synthetic.h"
#include "text/tokenizer/byte_alphabet.h"

namespace quire {
namespace {

constexpr size_t kAlignment = 32;

// Writes GGUF's little-endian pieces; text is built in memory, tensors are streamed.
class Header {
 public:
  template <class T>
  void number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view s) {
    number<uint64_t>(s.size());
    bytes_ += s;
  }
  void key(std::string_view name, GgufType type) {
    text(name);
    number(static_cast<uint32_t>(type));
    ++keys;
  }
  void u32(std::string_view name, int64_t value) { key(name, GgufType::U32), number(static_cast<uint32_t>(value)); }
  void f32(std::string_view name, double value) { key(name, GgufType::F32), number(static_cast<float>(value)); }
  void string(std::string_view name, std::string_view value) { key(name, GgufType::STRING), text(value); }
  void flag(std::string_view name, bool value) { key(name, GgufType::BOOL), number(static_cast<uint8_t>(value)); }

  const std::string& bytes() const { return bytes_; }
  uint64_t keys = 0;

 private:
  std::string bytes_;
};

struct FileTensor {
  std::string name;
  TensorType type;
  int items, rows, cols;  // items: matrices in one tensor; rows 0: a vector
  uint64_t offset = 0;

  uint64_t elements() const {
    return static_cast<uint64_t>(items) * static_cast<uint64_t>(std::max(rows, 1)) * static_cast<uint64_t>(cols);
  }
  uint64_t bytes() const { return elements() / info(type).block_elements * info(type).block_bytes; }
};

void add_vocabulary(Header& h, int vocab) {
  const std::string words[] = {"<s>", "</s>", "he", "th"};
  h.string("tokenizer.ggml.model", "gpt2");
  h.string("tokenizer.ggml.pre", "default");
  h.key("tokenizer.ggml.tokens", GgufType::ARRAY);
  h.number(static_cast<uint32_t>(GgufType::STRING));
  h.number(static_cast<uint64_t>(vocab));
  for (int i = 0; i < vocab; ++i)
    h.text(i < 256   ? bytes_to_alphabet(std::string(1, static_cast<char>(i)))
           : i < 260 ? words[i - 256]
                     : fmt::format("<filler_{}>", i));
  h.key("tokenizer.ggml.token_type", GgufType::ARRAY);
  h.number(static_cast<uint32_t>(GgufType::I32));
  h.number(static_cast<uint64_t>(vocab));
  for (int i = 0; i < vocab; ++i) h.number<int32_t>(i == 256 || i == 257 ? 3 : 1);  // control, normal
  h.key("tokenizer.ggml.merges", GgufType::ARRAY);
  h.number(static_cast<uint32_t>(GgufType::STRING));
  h.number<uint64_t>(2);
  h.text("h e");
  h.text("t h");
  h.u32("tokenizer.ggml.bos_token_id", 256);
  h.u32("tokenizer.ggml.eos_token_id", 257);
  h.flag("tokenizer.ggml.add_bos_token", true);
}

ModelConfig config_of(const SynthShape& s) {
  ModelConfig c;
  c.hidden = s.hidden;
  c.vocab = s.vocab;
  c.tied_output = s.tied;
  LayerSpec layer;
  layer.mixer = Attention{.heads = s.heads, .kv_heads = s.kv_heads, .key_dim = s.head_dim, .value_dim = s.head_dim};
  if (s.experts > 0) {
    layer.ffn = Moe{.routing = {.experts = s.experts, .used = s.experts_used}, .size = s.ffn};
  } else {
    layer.ffn = Mlp{.size = s.ffn};
  }
  layer.mixer_in = layer.ffn_in = c.output_norm = {.kind = NormKind::kRms};
  c.layers.assign(static_cast<size_t>(s.layers), layer);
  return c;
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

std::vector<FileTensor> list_tensors(const SynthShape& s, TensorType type) {
  const ModelConfig config = config_of(s);
  TensorList list(config, type);
  Weights unused;
  visit_tensors(config, unused, list);
  uint64_t end = 0;
  for (FileTensor& t : list.tensors) {
    t.offset = end;
    end = (end + t.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }
  return std::move(list.tensors);
}

void write_tensor(std::ofstream& file, const FileTensor& t, uint64_t seed) {
  std::vector<std::byte> bytes;
  if (t.rows == 0) {
    const std::vector<float> ones(static_cast<size_t>(t.cols), 1.0f);
    bytes.resize(t.bytes());
    std::memcpy(bytes.data(), ones.data(), bytes.size());
  } else {
    const float sigma = t.name == "token_embd.weight" ? 0.5f : 1.0f / std::sqrt(static_cast<float>(t.cols));
    bytes = synthetic_matrix(t.type, t.items * t.rows, t.cols, sigma, seed);
  }
  bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace

const std::vector<SynthShape>& synth_shapes() {
  static const std::vector<SynthShape> shapes = {
      {"tiny", 2, 256, 8, 2, 32, 512, 320, 512, 10000, true},
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
  const std::vector<FileTensor> tensors = list_tensors(s, type);
  Header h;
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
  h.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
  if (s.window > 0) h.u32("llama.attention.sliding_window", s.window);
  h.u32("llama.rope.dimension_count", s.head_dim);
  h.f32("llama.rope.freq_base", s.rope_theta);
  h.u32("llama.vocab_size", s.vocab);
  if (s.experts > 0) {
    h.u32("llama.expert_count", s.experts);
    h.u32("llama.expert_used_count", s.experts_used);
  }
  h.u32("general.alignment", kAlignment);
  add_vocabulary(h, s.vocab);
  const uint64_t keys = h.keys;
  for (const FileTensor& t : tensors) {
    h.text(t.name);
    h.number<uint32_t>(t.rows == 0 ? 1 : t.items == 1 ? 2 : 3);
    h.number(static_cast<uint64_t>(t.cols));
    if (t.rows > 0) h.number(static_cast<uint64_t>(t.rows));
    if (t.items > 1) h.number(static_cast<uint64_t>(t.items));
    h.number(static_cast<uint32_t>(info(t.type).ggml_id));
    h.number(t.offset);
  }
  Header start;
  start.number<uint32_t>(0x46554747);  // "GGUF"
  start.number<uint32_t>(3);
  start.number<uint64_t>(tensors.size());
  start.number(keys);
  std::string header = start.bytes() + h.bytes();
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');

  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (size_t i = 0; i < tensors.size() && file; ++i) {
    write_tensor(file, tensors[i], seed * 1'000'003 + i);
    if (progress) progress(i + 1, tensors.size());
  }
  file.close();
  if (!file) throw invalid("cannot write {}", path.string());
}

}  // namespace quire
