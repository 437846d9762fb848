#include "model/convert/convert.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "base/error.h"
#include "model/convert/settings.h"
#include "model/convert/tensor_plan.h"
#include "model/convert/vocabulary.h"
#include "model/families.h"
#include "quant/encode.h"

namespace quire {
namespace {

// Families whose GGUF files hold nothing but the usual tensors and settings, and the architecture that llama.cpp gives
// them.
struct Convertible {
  std::string_view family, architecture;
};
// clang-format off
constexpr Convertible kConvertibles[] = {
    {"llama", "llama"},
    {"mistral", "llama"},
    {"mixtral", "llama"},
    {"ministral3", "mistral3"},
    {"smollm3", "smollm3"},
    {"seed_oss", "seed_oss"},
    {"internlm2", "internlm2"},
    {"arcee", "arcee"},
    {"qwen2", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen2_moe", "qwen2moe"},
    {"qwen3_moe", "qwen3moe"},
    {"gemma", "gemma"},
    {"gemma2", "gemma2"},
    {"gemma3", "gemma3"},
    {"phi", "phi2"},
    {"phi3", "phi3"},
    {"glm", "chatglm"},
    {"glm4", "glm4"},
    {"glm4_moe", "glm4moe"},
    {"hunyuan", "hunyuan-dense"},
    {"hunyuan_moe", "hunyuan-moe"},
    {"ernie4_5", "ernie4_5"},
    {"ernie4_5_moe", "ernie4_5-moe"},
    {"minimax_m2", "minimax-m2"},
    {"deepseek_v2", "deepseek2"},
    {"deepseek_v3", "deepseek2"},
    {"gpt2", "gpt2"},
    {"gpt_neox", "gptneox"},
    {"falcon", "falcon"},
    {"bloom", "bloom"},
    {"mpt", "mpt"},
    {"cohere", "command-r"},
    {"cohere2", "cohere2"},
    {"olmo", "olmo"},
    {"olmo2", "olmo2"},
    {"olmo3", "olmo2"},
    {"olmoe", "olmoe"},
    {"exaone4", "exaone4"},
    {"granite", "granite"},
    {"starcoder2", "starcoder2"},
    {"stablelm", "stablelm"},
    {"bert", "bert"},
    {"roberta", "bert"},
    {"distilbert", "bert"},
    {"nomic_bert", "nomic-bert"},
};
// clang-format on

const Family& family_of_gguf(std::string_view architecture) {
  return **std::ranges::find(families(), architecture, &Family::gguf_architecture);
}

// Throws for a checkpoint that cannot be written whatever its settings are.
const Family& target_of(const Checkpoint& from) {
  if (!from.hf()) throw invalid("{} is a GGUF file already; convert takes a Hugging Face directory", from.file());
  const Family& family = find_family(from);
  for (const char* key : {"quantization_config", "quantization"}) {
    if (from.hf()->config.has(key))
      throw unsupported("{}: the weights are quantized; convert reads F32, F16 and BF16 weights only",
                        from.hf()->config.where(key));
  }
  if (from.hf()->quantizer)
    throw unsupported("{}: the weights are quantized; convert reads F32, F16 and BF16 weights only",
                      from.hf()->quantizer->where());
  const auto* row = std::ranges::find(kConvertibles, family.name, &Convertible::family);
  if (row == std::end(kConvertibles)) {
    throw unsupported("{}: architecture '{}' cannot be written as GGUF yet; these can: {}", from.file(),
                      from.hf()->config.get<std::vector<std::string>>("architectures").front(),
                      fmt::join(convertible_architectures(), ", "));
  }
  return family_of_gguf(row->architecture);
}

// llama.cpp's number for files whose matrices mostly have this type (general.file_type).
int file_type(TensorType type) {
  switch (type) {
    case TensorType::F16:
      return 1;
    case TensorType::Q8_0:
      return 7;
    case TensorType::BF16:
      return 32;
    default:
      return 0;
  }
}

TensorType main_type(const std::vector<PlannedTensor>& tensors) {
  std::map<TensorType, uint64_t> elements;
  for (const PlannedTensor& tensor : tensors) {
    for (const PlannedPart& part : tensor.parts)
      elements[tensor.type] += part.cols > 1 ? static_cast<uint64_t>(part.rows) * static_cast<uint64_t>(part.cols) : 0;
  }
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  return std::ranges::max_element(elements, less)->first;
}

float changed(float x, Change change) {
  if (change == Change::kPlusOne) return x + 1;
  // By way of double, so that no C library's rounding changes a bit.
  return change == Change::kMinusExp ? -static_cast<float>(std::exp(static_cast<double>(x))) : x;
}

// Fills a tensor with rows of the checkpoint, on all threads.
class TensorWriter {
 public:
  TensorWriter(const Checkpoint& from, Team& team)
      : from_(from), team_(team), rows_(static_cast<size_t>(team.size())) {}

  std::span<const std::byte> fill(const PlannedTensor& tensor, size_t bytes) {
    bytes_.assign(bytes, std::byte{0});
    for (const PlannedPart& part : tensor.parts) fill(tensor, part);
    return bytes_;
  }

 private:
  void fill(const PlannedTensor& tensor, const PlannedPart& part) {
    // Tiles of some 64 KiB: large enough to be worth a thread's while, and many of them even in small tensors.
    const int rows_per_tile = std::max(1, (1 << 14) / part.cols),
              tiles = (part.rows + rows_per_tile - 1) / rows_per_tile;
    for (std::vector<float>& row : rows_) row.resize(static_cast<size_t>(part.cols));
    std::vector<std::pair<EncodeResult, int>> results(static_cast<size_t>(tiles));  // of the first bad row
    const TensorTypeInfo& type = info(tensor.type);
    const size_t row_bytes = static_cast<size_t>(part.cols) / type.block_elements * type.block_bytes;
    team_.for_tiles(tiles, [&](int tile, int thread) {
      const std::span<float> row = rows_[static_cast<size_t>(thread)];
      const int end = std::min(part.rows, (tile + 1) * rows_per_tile);
      for (int i = tile * rows_per_tile; i < end; ++i) {
        read_row(part.from, part.row_from(i), part.rows_from.first_col, row);
        for (float& x : row) x = changed(x, part.change);
        const auto out = std::span(bytes_).subspan(static_cast<size_t>(part.row_to(i)) * row_bytes, row_bytes);
        const EncodeResult result = encode_row(tensor.type, row, {}, out);
        auto& first = results[static_cast<size_t>(tile)];
        if (result != EncodeResult::kDone && first.first == EncodeResult::kDone) first = {result, part.row_from(i)};
      }
    });
    const auto bad = std::ranges::find_if(results, [](const auto& r) { return r.first != EncodeResult::kDone; });
    if (bad == results.end()) return;
    const std::string where = fmt::format("{}: tensor {}, row {}", from_.file(), part.from.view->name, bad->second);
    if (bad->first == EncodeResult::kNotFinite)
      throw invalid("{} has a value that is not finite; the file is damaged", where);
    throw invalid("{} has a value that is too large for {}; use bf16", where, quire::name(tensor.type));
  }

  const Checkpoint& from_;
  Team& team_;
  std::vector<std::vector<float>> rows_;  // one set for each thread
  std::vector<std::byte> bytes_;
};

}  // namespace

std::vector<std::string_view> convertible_architectures() {
  std::vector<std::string_view> names;
  for (const Convertible& row : kConvertibles) {
    const Family& family = **std::ranges::find(families(), row.family, &Family::name);
    std::ranges::copy_if(family.hf_architectures, std::back_inserter(names),
                         [](std::string_view name) { return !name.ends_with("ForSequenceClassification"); });
  }
  return names;
}

Converted convert_checkpoint(const Checkpoint& from, const std::filesystem::path& to, const ConvertOptions& options,
                             Team& team) {
  const Family& target = target_of(from);
  const ModelConfig config = read_model_config(from);
  check_weights(from, config);
  if (!config.pooled.layers.empty())
    throw unsupported("{}: layers on pooled vectors (classifiers, Dense modules) cannot be written as GGUF yet",
                      from.file());
  std::vector<PlannedTensor> tensors = plan_tensors(from, config, target, options.type);
  const std::vector<RopeTensor> ropes = rope_tensors(config);

  Converted result{.type = main_type(tensors), .tensors = tensors.size() + ropes.size(), .warnings = {}};
  for (const std::string& difference : llama_cpp_differences(config, target.gguf_architecture))
    result.warnings.push_back(fmt::format("llama.cpp {}, so its results will differ", difference));
  GgufHeader header;
  header.string("general.architecture", target.gguf_architecture);
  header.string("general.type", "model");
  header.string("general.name", options.name);
  header.u32("general.file_type", file_type(result.type));
  header.u32("general.quantization_version", 2);
  add_settings(config, target.gguf_architecture, header);
  add_vocabulary(from, config, header, result.warnings);
  for (const RopeTensor& rope : ropes) header.tensor(rope.name, TensorType::F32, {rope.values.size()});
  for (const PlannedTensor& tensor : tensors) header.tensor(tensor.name, tensor.type, tensor.shape);

  GgufFile file(to, header);
  for (size_t i = 0; i < ropes.size(); ++i) file.write(header.tensors()[i], std::as_bytes(std::span(ropes[i].values)));
  {
    const Checkpoint written = Checkpoint::open(file.unfinished_path());
    const ModelConfig got = read_model_config(written);
    if (const std::string what = difference_between(config, got); !what.empty()) {
      throw unsupported("{}: with these settings the {} model cannot be written as GGUF: the file would lose its {}",
                        from.file(), config.architecture, what);
    }
    check_weights(written, got);
    check_vocabulary_of(from, written, result.warnings);
    reorder_rotated_rows(config, got, tensors);
  }
  TensorWriter writer(from, team);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const GgufHeader::Tensor& tensor = header.tensors()[ropes.size() + i];
    file.write(tensor, writer.fill(tensors[i], tensor.bytes));
    if (options.progress) options.progress(i + 1, tensors.size());
  }
  from.check_unchanged();
  file.commit();
  return result;
}

}  // namespace quire
