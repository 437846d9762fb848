#include "quantize/hf/source.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "model/families.h"
#include "model/quantized/input_transforms.h"
#include "model/quantized/quantization.h"
#include "model/quantized/slot_codes.h"
#include "model/tensor_finder.h"
#include "model/weights.h"
#include "quantize/hf/gguf_source.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

bool is_float(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16;
}

// Notes which of the model's matrices and vectors lie in which tensor of the file, and opens those that are codes.
class FindUses : public TensorVisitor {
 public:
  FindUses(const Checkpoint& checkpoint, const ModelConfig& config, const std::optional<Quantization>& quantization)
      : checkpoint_(checkpoint), finder_(checkpoint, config, spelling_of(checkpoint)), quantization_(quantization) {}

  void matrix(const Slot& slot, int rows, int cols, Linear&) override {
    const Source place = source_of_matrix(finder_, slot, quantization_.has_value());
    const SourceTensor::Use use{.slot = slot, .place = place, .rows = rows, .is_matrix = true};
    if (!quantization_ || !add_coded(use, cols)) add(place.name, use);
    if (finder_.find(bias_name(place))) add(bias_name(place), {.slot = slot, .place = place, .rows = rows});
  }
  void vector(const Slot& slot, const std::vector<int>& shape, Vector&, Change change) override {
    const Source place = finder_.source_of(slot);
    for (const std::string& name : vector_names(place, shape))
      add(name, {.slot = slot, .place = place, .rows = shape.front(), .change = change});
  }
  void bias(const Slot& slot, int size, Vector&) override {
    const Source place = finder_.source_of(slot);
    add(bias_name(place), {.slot = slot, .place = place, .rows = size});
  }

  std::map<std::string, std::vector<SourceTensor::Use>> uses;  // by the name in the file
  std::vector<SourceTensor> coded;                             // as the plain tensors that they stand for
  std::set<std::string> parts;                                 // tensors of the file that these are read from

 private:
  void add(const std::string& name, SourceTensor::Use use) {
    if (const TensorView* view = finder_.find(name)) uses[view->name].push_back(std::move(use));
  }

  // The module's name as the file spells it.
  std::string module_in_file(const std::string& module) const {
    for (const std::string_view ending : kCodeEndings) {
      if (const TensorView* view = finder_.find(module + std::string(ending)))
        return std::string(module_of(view->name));
    }
    const TensorView* view = finder_.find(module + ".weight");
    return view ? std::string(module_of(view->name)) : module;
  }

  // False if the matrix has no codes.
  bool add_coded(const SourceTensor::Use& use, int cols) {
    const Source& place = use.place;
    const std::string module(module_of(place.name));
    const std::string name = module_in_file(module) + ".weight";
    const auto known = std::ranges::find(coded, name, &SourceTensor::name);
    if (known != coded.end()) {
      known->uses.push_back(use);
      return true;
    }
    std::set<std::string> found;
    const FindTensor find = [&](const std::string& wanted) {
      const TensorView* view = finder_.find(wanted);
      if (view) found.insert(view->name);
      return view;
    };
    int file_rows = place.rows > 0 ? place.rows : use.rows, file_cols = place.cols > 0 ? place.cols : cols;
    auto codes = open_slot_codes(*quantization_, checkpoint_.file(), find, use.slot, place, file_rows, file_cols);
    if (!codes) return false;
    if (transposes_codes(place)) std::swap(file_rows, file_cols);
    const bool is_moved =
        !is_table(use.slot.tensor) &&
        !read_input_transform(*quantization_, {checkpoint_.file(), find, checkpoint_.tensors()}, module, file_cols)
             .empty();
    if (place.stacked || is_moved)
      throw unsupported("{}: {} is quantized {}, which cannot be quantized anew yet", checkpoint_.file(), module,
                        is_moved ? "for inputs that are scaled or rotated" : "in one tensor with other experts");
    SourceTensor tensor{.name = name,
                        .type = TensorType::F16,
                        .shape = {static_cast<uint64_t>(file_rows), static_cast<uint64_t>(file_cols)}};
    tensor.from = {nullptr, 0, 1, file_rows, file_cols, false, std::make_shared<const CodedMatrix>(std::move(*codes))};
    tensor.uses = {use};
    coded.push_back(std::move(tensor));
    parts.merge(found);
    return true;
  }

  const Checkpoint& checkpoint_;
  const TensorFinder finder_;
  const std::optional<Quantization>& quantization_;
};

// The files next to the weights that the written directory needs, too.
bool is_copied(const fs::path& file) {
  const std::string name = file.filename().string();
  if (name.starts_with('.') || name == "config.json" || name == "hf_quant_config.json" ||
      name == "quantize_config.json" || name.ends_with(".index.json"))
    return false;
  constexpr std::string_view kWeights[] = {".safetensors", ".bin", ".pt",   ".pth",     ".gguf",
                                           ".onnx",        ".h5",  ".ckpt", ".msgpack", ".tmp"};
  return std::ranges::none_of(kWeights, [&](std::string_view ending) { return name.ends_with(ending); });
}

std::vector<fs::path> other_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && is_copied(entry.path())) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

FileMatrix whole_tensor(const TensorView& view, uint64_t elements) {
  const bool is_matrix = view.shape.size() == 2;
  return {.view = &view,
          .item = 0,
          .items = 1,
          .rows = is_matrix ? static_cast<int>(view.shape[0]) : 1,
          .cols = static_cast<int>(is_matrix ? view.shape[1] : elements),
          .transposed = false};
}

Json without_quantization(Json config) {
  for (const char* key : {"quantization_config", "compression_config", "quantization"}) {
    config.erase(key);
    if (config.contains("text_config") && config["text_config"].is_object()) config["text_config"].erase(key);
  }
  return config;
}

}  // namespace

uint64_t SourceTensor::elements() const {
  uint64_t product = 1;
  for (const uint64_t extent : shape) product *= extent;
  return product;
}

ModelSource open_model_source(const Checkpoint& checkpoint) {
  if (checkpoint.gguf()) return open_gguf_source(checkpoint);
  const std::optional<Quantization> quantization = read_quantization(*checkpoint.hf());
  ModelSource source;
  source.checkpoint = &checkpoint;
  source.file = checkpoint.file();
  source.config = read_model_config(checkpoint);
  check_weights(checkpoint, source.config);
  source.config_json = without_quantization(checkpoint.hf()->config.json());
  source.files = other_files(checkpoint.path());
  FindUses finder(checkpoint, source.config, quantization);
  Weights unused;
  visit_tensors(source.config, unused, finder);
  for (const TensorView& view : checkpoint.tensors()) {
    if (finder.parts.contains(view.name) || (quantization && quantization->ignores(view.name))) continue;
    SourceTensor tensor{.name = view.name, .type = view.type, .shape = view.shape};
    tensor.from = whole_tensor(view, tensor.elements());
    if (const auto found = finder.uses.find(view.name); found != finder.uses.end()) {
      tensor.uses = found->second;
      tensor.is_bias = !view.name.ends_with(".weight") && view.name.ends_with("bias");
    }
    source.tensors.push_back(std::move(tensor));
  }
  source.float_type = main_float_type(source.tensors);
  if (!finder.coded.empty())
    source.warnings.push_back(
        "the weights are quantized already; they are dequantized first, so what was lost stays lost");
  for (SourceTensor& tensor : finder.coded) {
    tensor.type = source.float_type;
    source.tensors.push_back(std::move(tensor));
  }
  std::ranges::stable_sort(source.tensors, {},
                           [](const SourceTensor& t) { return t.uses.empty() ? -1 : t.uses.front().slot.layer; });
  return source;
}

TensorType main_float_type(std::span<const SourceTensor> tensors) {
  std::map<TensorType, uint64_t> elements;
  for (const SourceTensor& tensor : tensors) {
    if (tensor.is_matrix() && is_float(tensor.type)) elements[tensor.type] += tensor.elements();
  }
  const auto most = std::ranges::max_element(elements, {}, [](const auto& row) { return row.second; });
  return most == elements.end() ? TensorType::BF16 : most->first;
}

void ModelSource::release() const {
  for (const MappedFile& file : checkpoint->mappings()) file.release();
}

FloatMatrix read_source(const ModelSource& source, const SourceTensor& tensor) {
  FloatMatrix all(tensor.from.rows, tensor.from.cols);
  for (int r = 0; r < all.rows; ++r) {
    const int from = tensor.row_order.empty() ? r : tensor.row_order[static_cast<size_t>(r)];
    read_row(tensor.from, from, 0, all.row(r));
    const auto row = all.row(r);
    const auto bad = std::ranges::find_if(row, [](float x) { return !std::isfinite(x); });
    if (bad != row.end())
      throw invalid("{}: tensor {}, row {} has the value {} that is not finite; the file is damaged", source.file,
                    tensor.name, from, *bad);
  }
  return all;
}

}  // namespace quire
