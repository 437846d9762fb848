#include "model/convert/convert.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/mapped_file.h"
#include "model/convert/copy_metadata.h"
#include "model/convert/tensor_writer.h"
#include "model/convert/vocabulary.h"
#include "model/families.h"

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

// Throws for a directory that cannot be written whatever its settings are.
const Family& target_of(const Checkpoint& from) {
  const Family& family = find_family(from);
  const auto* row = std::ranges::find(kConvertibles, family.name, &Convertible::family);
  if (row == std::end(kConvertibles)) {
    throw unsupported("{}: architecture '{}' cannot be written as GGUF yet; these can: {}", from.file(),
                      from.hf()->config.get<std::vector<std::string>>("architectures").front(),
                      fmt::join(convertible_architectures(), ", "));
  }
  return family_of_gguf(row->architecture);
}

// Convert takes directories of plain weights.
void check_convertible(const Checkpoint& from) {
  if (!from.hf())
    throw invalid("{} is a GGUF file already; convert takes a Hugging Face directory (quire quantize takes both)",
                  from.file());
  static_cast<void>(target_of(from));
  constexpr std::string_view kRefusal =
      "{}: the weights are quantized; convert reads F32, F16 and BF16 weights only (quire quantize takes these)";
  for (const char* key : {"quantization_config", "quantization"}) {
    if (from.hf()->config.has(key)) throw unsupported(kRefusal, from.hf()->config.where(key));
  }
  if (from.hf()->quantizer) throw unsupported(kRefusal, from.hf()->quantizer->where());
}

void add_metadata(const Checkpoint& from, FilePlan& plan, const WriteOptions& options, GgufHeader& header) {
  constexpr int kQuantizationVersion = 2;  // of the blocks, since May 2023
  if (from.gguf()) {
    copy_metadata(*from.gguf(), options.file_type, kQuantizationVersion, header);
  } else {
    header.string("general.architecture", plan.architecture);
    header.string("general.type", "model");
    header.string("general.name", plan.name);
    header.u32("general.file_type", options.file_type);
    header.u32("general.quantization_version", kQuantizationVersion);
    add_settings(plan.config, plan.architecture, header);
    add_vocabulary(from, plan.config, header, plan.warnings);
  }
  if (options.describe) options.describe(header);
  for (const RopeTensor& rope : plan.ropes) header.tensor(rope.name, TensorType::F32, {rope.values.size()});
  for (const PlannedTensor& tensor : plan.tensors) header.tensor(tensor.name, tensor.type, tensor.shape);
}

// Tensors of a GGUF file that are settings: the configuration is read from them.
bool is_setting(const PlannedTensor& tensor) { return tensor.matrices.empty() && tensor.name.starts_with("rope_"); }

// Reads the file back as it is before its weights are written.
void check_written(const Checkpoint& from, const std::filesystem::path& file, FilePlan& plan) {
  const Checkpoint written = Checkpoint::open(file);
  const ModelConfig got = read_model_config(written);
  if (from.gguf()) {
    assert(config_identity(plan.config) == config_identity(got) && "the metadata are copied");
    check_weights(written, got);
    return;
  }
  // First, because a setting that is lost can also make other tensors necessary.
  if (const std::string what = difference_between(plan.config, got); !what.empty()) {
    throw unsupported("{}: with these settings the {} model cannot be written as GGUF: the file would lose its {}",
                      from.file(), plan.config.architecture, what);
  }
  check_weights(written, got);
  check_vocabulary_of(from, written, plan.warnings);
  reorder_rotated_rows(plan.config, got, plan.tensors);
}

// Whether the file has the tensor from an earlier call.
bool is_taken_over(const PlannedTensor& planned, const GgufHeader::Tensor& tensor, const GgufFile& file,
                   const WriteOptions& options) {
  const PartialOutput::Part* const part = options.partial ? options.partial->find(planned.name) : nullptr;
  return part && part->checksums.size() == 1 && file.has(tensor, part->checksums.front()) &&
         (!options.accept || options.accept(planned, part->facts));
}

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

TensorType FilePlan::main_type() const {
  std::map<TensorType, uint64_t> elements;
  for (const PlannedTensor& tensor : tensors) elements[tensor.type] += tensor.matrices.empty() ? 0 : tensor.elements();
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  return elements.empty() ? TensorType::F32 : std::ranges::max_element(elements, less)->first;
}

FilePlan plan_file(const Checkpoint& from, const std::string& name) {
  FilePlan plan;
  plan.name = name;
  const Family* target = from.gguf() ? nullptr : &target_of(from);
  plan.config = read_model_config(from);
  check_weights(from, plan.config);
  if (from.gguf()) {
    plan.architecture = find_family(from).gguf_architecture;
    plan.tensors = plan_copies(from, plan.config);
    return plan;
  }
  if (!plan.config.pooled.layers.empty())
    throw unsupported("{}: layers on pooled vectors (classifiers, Dense modules) cannot be written as GGUF yet",
                      from.file());
  plan.architecture = target->gguf_architecture;
  plan.tensors = plan_tensors(from, plan.config, *target);
  plan.ropes = rope_tensors(plan.config);
  for (const std::string& difference : llama_cpp_differences(plan.config, plan.architecture))
    plan.warnings.push_back(fmt::format("llama.cpp {}, so its results will differ", difference));
  return plan;
}

void write_file(const Checkpoint& from, FilePlan& plan, const std::filesystem::path& to, const WriteOptions& options,
                Team& team) {
  GgufHeader header;
  add_metadata(from, plan, options, header);
  std::optional<GgufFile> file;
  if (options.partial)
    file.emplace(to, header, options.partial->output());
  else
    file.emplace(to, header);
  for (size_t i = 0; i < plan.ropes.size(); ++i)
    file->write(header.tensors()[i], std::as_bytes(std::span(plan.ropes[i].values)));
  TensorWriter writer(from.file(), team);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const GgufHeader::Tensor& tensor = header.tensors()[plan.ropes.size() + i];
    if (is_setting(plan.tensors[i]))
      file->write(tensor, writer.fill(plan.tensors[i], tensor.bytes, plain_encoding(tensor.type, {})));
  }
  check_written(from, file->unfinished_path(), plan);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& planned = plan.tensors[i];
    const GgufHeader::Tensor& tensor = header.tensors()[plan.ropes.size() + i];
    if (!is_taken_over(planned, tensor, *file, options)) {
      const RowEncoding encoding = options.encoding ? options.encoding(planned) : plain_encoding(planned.type, {});
      const std::span<const std::byte> bytes = writer.fill(planned, tensor.bytes, encoding);
      file->write(tensor, bytes);
      if (options.partial)
        options.partial->add(planned.name,
                             {{checksum(bytes)}, options.note ? options.note(planned) : Json(Json::object())});
      // What was read is not needed again; small tensors wait for a large one.
      if (tensor.bytes >= size_t{1} << 20) std::ranges::for_each(from.mappings(), &MappedFile::release);
    }
    if (options.progress) options.progress(i + 1, plan.tensors.size());
  }
  from.check_unchanged();
  file->commit();
}

Converted convert_checkpoint(const Checkpoint& from, const std::filesystem::path& to, const ConvertOptions& options,
                             Team& team) {
  check_convertible(from);
  FilePlan plan = plan_file(from, options.name);
  for (PlannedTensor& tensor : plan.tensors) {
    if (tensor.matrices.empty() || is_small_table(tensor.matrices.front())) continue;
    tensor.type = fitting_type(options.type.value_or(tensor.type), tensor.cols());
  }
  const TensorType type = plan.main_type();
  write_file(from, plan, to, {.file_type = file_type_of(type), .progress = options.progress}, team);
  return {.type = type, .tensors = plan.tensors.size() + plan.ropes.size(), .warnings = std::move(plan.warnings)};
}

int file_type_of(TensorType type) {
  struct Number {
    TensorType type;
    int number;
  };
  // llama_ftype in llama.h. Of K types, that of the mix without larger tensors.
  constexpr Number kNumbers[] = {
      {TensorType::F16, 1},     {TensorType::Q4_0, 2},     {TensorType::Q4_1, 3},    {TensorType::Q8_0, 7},
      {TensorType::Q5_0, 8},    {TensorType::Q5_1, 9},     {TensorType::Q2_K, 10},   {TensorType::Q3_K, 11},
      {TensorType::Q4_K, 14},   {TensorType::Q5_K, 16},    {TensorType::Q6_K, 18},   {TensorType::IQ2_XXS, 19},
      {TensorType::IQ2_XS, 20}, {TensorType::IQ3_XXS, 23}, {TensorType::IQ1_S, 24},  {TensorType::IQ4_NL, 25},
      {TensorType::IQ3_S, 26},  {TensorType::IQ2_S, 28},   {TensorType::IQ4_XS, 30}, {TensorType::IQ1_M, 31},
      {TensorType::BF16, 32},   {TensorType::TQ1_0, 36},   {TensorType::TQ2_0, 37},  {TensorType::MXFP4, 38},
      {TensorType::NVFP4, 39},  {TensorType::Q1_0, 40},    {TensorType::Q2_0, 41},
  };
  const auto* row = std::ranges::find(kNumbers, type, &Number::type);
  return row == std::end(kNumbers) ? 0 : row->number;
}

}  // namespace quire
