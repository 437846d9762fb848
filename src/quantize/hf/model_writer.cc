#include "quantize/hf/model_writer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/files/checksum.h"
#include "base/files/output_folder.h"
#include "format/safetensors_writer.h"
#include "json/field.h"
#include "quant/encode.h"
#include "quantize/hf/online_rotation.h"

namespace quire {
namespace {

constexpr int kUsualGroups[] = {128, 64, 32};
constexpr int kLossRows = 512;  // of a matrix, spread over it, by which the loss of outputs is measured

// Matrices that no method touches: tables, what is small and sensitive, and the output matrix.
bool stays_float(Tensor t) {
  constexpr Tensor kFloat[] = {
      Tensor::kOutput,          Tensor::kRouter,       Tensor::kSharedSwitch, Tensor::kJoin,
      Tensor::kPooled,          Tensor::kPerLayerGate, Tensor::kPerLayerOut,  Tensor::kPerLayerProjection,
      Tensor::kAltUpProjection, Tensor::kAltUpUnembed, Tensor::kAltUpRouter,  Tensor::kAltUpPredict,
      Tensor::kAltUpCorrect,    Tensor::kLaurelLeft,   Tensor::kLaurelRight};
  return is_table(t) || std::ranges::find(kFloat, t) != std::end(kFloat);
}

constexpr std::string_view kWeightEnding = ".weight";

bool is_plain_float(TensorType type) {
  return type == TensorType::F32 || type == TensorType::F16 || type == TensorType::BF16;
}

// A linear as a library sees it: a matrix named MODULE.weight.
bool is_linear(const SourceTensor& tensor) {
  return tensor.is_matrix() && tensor.name.ends_with(kWeightEnding) && is_plain_float(tensor.type);
}
bool is_table_tensor(const SourceTensor& tensor) {
  return std::ranges::any_of(tensor.uses, [](const SourceTensor::Use& use) { return is_table(use.slot.tensor); });
}
// One whose matrices may be quantized.
bool is_candidate(const SourceTensor& tensor) {
  return is_linear(tensor) && !tensor.uses.empty() &&
         std::ranges::all_of(tensor.uses, [](const SourceTensor::Use& use) {
           return use.is_matrix && !use.place.transposed && !use.place.stacked && !stays_float(use.slot.tensor);
         });
}
std::string module_name(const SourceTensor& tensor) {
  return tensor.name.substr(0, tensor.name.size() - kWeightEnding.size());
}

int group_that_divides_all(const ModelSource& source, int wanted) {
  for (const int group : kUsualGroups) {
    if (group > wanted) continue;
    const bool fits = std::ranges::all_of(source.tensors, [&](const SourceTensor& tensor) {
      return !is_candidate(tensor) || tensor.from.cols % group == 0;
    });
    if (fits) return group;
  }
  return wanted;
}

// Matrices that engines join into one, so that they must share what is one for the whole matrix: the layer, the first of
// them, the expert.
using JoinedKey = std::tuple<int, Tensor, int>;
JoinedKey joined_key(const Slot& slot) {
  const auto first = [](Tensor t) {
    switch (t) {
      case Tensor::kK:
      case Tensor::kV:
      case Tensor::kAttentionGate:
        return Tensor::kQ;
      case Tensor::kUp:
        return Tensor::kGate;
      case Tensor::kExpertUp:
        return Tensor::kExpertGate;
      case Tensor::kSharedUp:
        return Tensor::kSharedGate;
      default:
        return t;
    }
  };
  return {slot.layer, first(slot.tensor), slot.item};
}

RotatedModules rotated_modules(const HfPlan& plan) {
  RotatedModules modules;
  for (const HfTensorChange& change : plan.changes) {
    if (change.rotated > 0) modules[change.rotated].push_back(change.module);
  }
  return modules;
}

// Writes one directory.
class Writer {
 public:
  Writer(const ModelSource& source, const HfPlan& plan, const FindInputs& inputs, Team& team, PartialOutput* partial)
      : source_(source),
        plan_(plan),
        inputs_(inputs),
        partial_(partial),
        state_{team},
        quantized_(marked(plan, [](const HfTensorChange& change) { return !change.module.empty(); })),
        rotated_(marked(plan, [](const HfTensorChange& change) { return change.rotated > 0; })),
        edits_(source, *plan.method, plan.settings, quantized_, rotated_, inputs_, team) {}

  WrittenModel run(OutputFolder& folder,
                   const std::function<void(size_t written, size_t total, const std::string& name)>& progress) {
    const std::unique_ptr<SafetensorsWriter> opened = open(folder);
    SafetensorsWriter& file = *opened;
    size_t next = 0;  // the tensor's first part in the file
    int layer = -1;
    for (size_t i = 0; i < plan_.changes.size(); next += plan_.changes[i++].parts.size()) {
      const SourceTensor& tensor = source_.tensors[i];
      progress(i, plan_.changes.size(), tensor.name);
      if (take_over(i, next, file)) continue;
      const int of = tensor.uses.empty() ? -1 : tensor.uses.front().slot.layer;
      if (of != layer) edits_.open_layer(layer = of, written_.notes);
      PartialOutput::Part part{{}, Json::object()};
      if (quantized_[i]) {
        const EncodedModule module = encode(i, part.facts);
        for (size_t k = 0; k < module.parts.size(); ++k) file.write(next + k, module.parts[k]);
        for (const std::vector<std::byte>& bytes : module.parts) part.checksums.push_back(checksum(bytes));
      } else {
        const std::span<const std::byte> bytes = plain_bytes(i);
        file.write(next, bytes);
        part.checksums.push_back(checksum(bytes));
      }
      if (partial_) keep(tensor.name, std::move(part));
      if (tensor.from.view && tensor.from.view->bytes.size() >= size_t{1} << 20) source_.release();
    }
    for (const auto& [size, modules] : rotated_modules(plan_))
      file.write(next++, rotation_tensor(size, source_.float_type));
    file.finish();
    write_config(folder);
    for (const std::filesystem::path& other : source_.files) folder.copy(other);
    for (const auto& [name, text] : source_.texts) folder.write(name, text);
    // Of layers that were opened in several runs.
    std::set<std::string> seen;
    std::erase_if(written_.notes, [&](const std::string& note) { return !seen.insert(note).second; });
    for (const auto& [note, modules] : noted_) {
      written_.notes.push_back(modules.size() == 1
                                   ? fmt::format("{}: {}", modules.front(), note)
                                   : fmt::format("{} matrices, such as {}: {}", modules.size(), modules.front(), note));
    }
    progress(plan_.changes.size(), plan_.changes.size(), "");
    return std::move(written_);
  }

 private:
  static std::vector<bool> marked(const HfPlan& plan, bool (*mark)(const HfTensorChange& change)) {
    std::vector<bool> marks;
    for (const HfTensorChange& change : plan.changes) marks.push_back(mark(change));
    return marks;
  }

  std::vector<PlannedSafetensor> planned() const {
    std::vector<PlannedSafetensor> all;
    for (const HfTensorChange& change : plan_.changes) {
      for (const ModulePart& part : change.parts) all.push_back({change.module + part.ending, part.type, part.shape});
    }
    // One copy for all modules, as the library stores what they share.
    for (const auto& [size, modules] : rotated_modules(plan_)) {
      const auto side = static_cast<uint64_t>(size);
      all.push_back({rotation_tensor_name(size, modules), source_.float_type, {side, side}});
    }
    return all;
  }

  std::span<const std::byte> plain_bytes(size_t i) {
    const SourceTensor& tensor = source_.tensors[i];
    const TensorEdit* const edit = edits_.find(i);
    if (!edit && tensor.row_order.empty() && tensor.from.view && tensor.from.view->type == tensor.type)
      return tensor.from.view->bytes;
    FloatMatrix values = read_source(source_, tensor);
    if (edit) apply(*edit, values);
    bytes_.resize(values.values.size() * info(tensor.type).block_bytes);
    if (encode_row(tensor.type, values.values, {}, bytes_) != EncodeResult::kDone)
      throw invalid("{}: tensor {} has a value that is too large for {} once its inputs are scaled; use another method",
                    source_.file, tensor.name, name(tensor.type));
    return bytes_;
  }

  std::unique_ptr<SafetensorsWriter> open(const OutputFolder& folder) const {
    if (partial_)
      return std::make_unique<SafetensorsWriter>(SafetensorsWriter::Continue{}, folder.unfinished_path(), planned());
    return std::make_unique<SafetensorsWriter>(folder.unfinished_path(), planned());
  }

  // False if the file does not have the tensor from an earlier run. next: its first part.
  bool take_over(size_t i, size_t next, SafetensorsWriter& file) {
    const PartialOutput::Part* const part = partial_ ? partial_->find(source_.tensors[i].name) : nullptr;
    if (!part || part->checksums.size() != plan_.changes[i].parts.size()) return false;
    for (size_t k = 0; k < part->checksums.size(); ++k) {
      if (!file.accept(next + k, part->checksums[k])) return false;
    }
    const JsonField facts(part->facts, "the journal");
    for (std::string& note : facts.get_or<std::vector<std::string>>("notes", {}))
      written_.notes.push_back(std::move(note));
    kept_notes_ = written_.notes.size();
    if (!quantized_[i]) return true;
    const std::string module = module_name(source_.tensors[i]);
    written_.losses.push_back({module, facts.get<double>("weights_lost"), facts.get<double>("outputs_lost")});
    if (const auto note = facts.optional<std::string>("note")) noted_[*note].push_back(module);
    return true;
  }

  void keep(const std::string& tensor, PartialOutput::Part part) {
    if (kept_notes_ < written_.notes.size())
      part.facts["notes"] =
          std::vector<std::string>(written_.notes.begin() + static_cast<ptrdiff_t>(kept_notes_), written_.notes.end());
    kept_notes_ = written_.notes.size();
    partial_->add(tensor, std::move(part));
  }

  // facts: what take_over() needs of the matrix.
  EncodedModule encode(size_t i, Json& facts) {
    const SourceTensor& tensor = source_.tensors[i];
    FloatMatrix weights = read_source(source_, tensor);
    MatrixContext context;
    if (inputs_) context.inputs = inputs_(tensor.uses.front().slot);
    if (context.inputs) check_statistics(*context.inputs, weights.cols, tensor.name);
    if (const TensorEdit* edit = edits_.find(i)) {
      apply(*edit, weights);
      if (context.inputs && !edit->columns.empty())
        context.inputs = std::make_shared<const InputStatistics>(divided_inputs(*context.inputs, edit->columns));
    }
    if (const int size = plan_.changes[i].rotated; size > 0) {
      rotate_inputs(size, weights);
      context.inputs = nullptr;  // they are of the inputs before the rotation
    }
    context.largest = plan_.method->joins ? largest_of_joined(tensor) : 0;
    EncodedModule module;
    try {
      module = plan_.method->encode(weights, context, plan_.settings, state_);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: tensor {}: {}", source_.file, tensor.name, error.what()));
    }
    assert(module.parts.size() == plan_.changes[i].parts.size());
    if (!module.note.empty()) noted_[module.note].push_back(module_name(tensor));
    written_.losses.push_back(loss_of(module_name(tensor), weights, module.values, context.inputs.get()));
    facts["weights_lost"] = written_.losses.back().weights;
    facts["outputs_lost"] = written_.losses.back().outputs;
    if (!module.note.empty()) facts["note"] = module.note;
    return module;
  }

  // The greatest magnitude of the matrices that engines join with this one.
  float largest_of_joined(const SourceTensor& tensor) {
    const JoinedKey key = joined_key(tensor.uses.front().slot);
    const auto [found, is_new] = largest_.try_emplace(key, 0.0f);
    if (!is_new) return found->second;
    for (const SourceTensor& other : source_.tensors) {
      if (!is_candidate(other) || joined_key(other.uses.front().slot) != key) continue;
      for (const float w : read_source(source_, other).values) found->second = std::max(found->second, std::fabs(w));
    }
    return found->second;
  }

  ModuleLoss loss_of(std::string module, const FloatMatrix& weights, const FloatMatrix& values,
                     const InputStatistics* inputs) const {
    double lost = 0, all = 0;
    for (size_t i = 0; i < weights.values.size(); ++i) {
      const double w = static_cast<double>(weights.values[i]), d = w - static_cast<double>(values.values[i]);
      lost += d * d;
      all += w * w;
    }
    ModuleLoss loss{.module = std::move(module), .weights = all > 0 ? std::sqrt(lost / all) : 0};
    if (!inputs || inputs->gram.empty() || inputs->rows == 0) return loss;
    const int step = std::max(1, weights.rows / kLossRows);
    FloatMatrix before((weights.rows + step - 1) / step, weights.cols), difference = before;
    for (int r = 0; r < before.rows; ++r) {
      std::ranges::copy(weights.row(r * step), before.row(r).begin());
      for (size_t c = 0; c < before.row(r).size(); ++c)
        difference.row(r)[c] = weights.row(r * step)[c] - values.row(r * step)[c];
    }
    const double outputs = squared_output_error(before, inputs->gram, state_.team);
    if (outputs > 0) {
      const double lost = squared_output_error(difference, inputs->gram, state_.team);
      loss.outputs = std::sqrt(std::max(0.0, lost) / outputs);
    }
    return loss;
  }

  void write_config(const OutputFolder& folder) const {
    Json config = source_.config_json;
    config["quantization_config"] = plan_.method->describe(plan_.settings, plan_.float_modules);
    if (const RotatedModules modules = rotated_modules(plan_); !modules.empty())
      config["quantization_config"]["transform_config"] = transform_config(modules);
    folder.write("config.json", config.dump(2) + "\n");
  }

  const ModelSource& source_;
  const HfPlan& plan_;
  const FindInputs inputs_;
  PartialOutput* const partial_;
  SolverState state_;
  const std::vector<bool> quantized_, rotated_;  // of each of the source's tensors
  LayerEdits edits_;
  std::map<JoinedKey, float> largest_;
  std::map<std::string, std::vector<std::string>> noted_;  // modules by what is to be said of them
  std::vector<std::byte> bytes_;
  WrittenModel written_;
  size_t kept_notes_ = 0;  // of written_.notes, that the journal has
};

}  // namespace

uint64_t HfTensorChange::bytes() const {
  uint64_t sum = 0;
  for (const ModulePart& part : parts) sum += PlannedSafetensor{"", part.type, part.shape}.bytes();
  return sum;
}

size_t HfPlan::quantized() const {
  return static_cast<size_t>(std::ranges::count_if(changes, [](const auto& c) { return !c.module.empty(); }));
}
uint64_t HfPlan::bytes() const {
  uint64_t sum = 0;
  for (const HfTensorChange& change : changes) sum += change.bytes();
  return sum;
}

HfPlan plan_hf_model(const ModelSource& source, const HfMethod& method, MethodSettings settings, bool chooses_group,
                     bool rotates) {
  HfPlan plan{.method = &method, .settings = settings, .warnings = source.warnings};
  plan.settings.float_type = source.float_type;
  if (chooses_group && settings.group > 0 && (method.flags & static_cast<unsigned>(MethodFlag::kGroup))) {
    plan.settings.group = group_that_divides_all(source, settings.group);
    if (plan.settings.group != settings.group)
      plan.warnings.push_back(fmt::format("groups have {} inputs, because {} do not divide the inputs of all matrices",
                                          plan.settings.group, settings.group));
  }
  std::map<std::string, std::vector<std::string>> misfits;  // modules by reason
  for (size_t i = 0; i < source.tensors.size(); ++i) {
    const SourceTensor& tensor = source.tensors[i];
    HfTensorChange change{.tensor = i};
    std::string why;
    if (is_candidate(tensor)) {
      why = method.misfit(tensor.from.rows, tensor.from.cols, plan.settings);
      if (why.empty()) {
        change.module = module_name(tensor);
        change.parts = method.parts(tensor.from.rows, tensor.from.cols, plan.settings);
        if (rotates) change.rotated = rotatable_block(tensor, method);
      } else {
        misfits[why].push_back(module_name(tensor));
      }
    }
    if (change.module.empty()) {
      change.parts.push_back({tensor.name, tensor.type, tensor.shape});
      if (is_linear(tensor) && !is_table_tensor(tensor)) plan.float_modules.push_back(module_name(tensor));
    }
    plan.changes.push_back(std::move(change));
  }
  if (std::ranges::find(plan.float_modules, "lm_head") == plan.float_modules.end())
    plan.float_modules.push_back("lm_head");  // libraries make one even of a tied embedding
  if (const auto count = std::ranges::count_if(plan.changes, [](const auto& c) { return c.rotated > 0; }); count > 0)
    plan.warnings.push_back(
        fmt::format("the inputs of {} matrices are rotated at run time, as transform_config says; programs that ignore "
                    "it, such as transformers 5, compute nonsense",
                    count));
  for (const auto& [why, modules] : misfits)
    plan.warnings.push_back(
        fmt::format("{} matrices stay in float, such as {}: {}", modules.size(), modules.front(), why));
  if (plan.quantized() == 0) {
    if (misfits.empty()) throw unsupported("{} has no linears that {} can quantize", source.file, method.name);
    throw unsupported("{}: {} can quantize no matrix: {}; choose another --group-size, --bits or --method", source.file,
                      method.name, misfits.begin()->first);
  }
  return plan;
}

WrittenModel write_hf_model(const ModelSource& source, const HfPlan& plan, const FindInputs& inputs,
                            const std::filesystem::path& to, bool replace, Team& team,
                            const std::function<void(size_t written, size_t total, const std::string& name)>& progress,
                            PartialOutput* partial) {
  assert(inputs || plan.method->needs == NeededInputs::kNone);
  std::optional<OutputFolder> folder;
  if (partial)
    folder.emplace(to, replace, partial->output());
  else
    folder.emplace(to, replace);
  WrittenModel written = Writer(source, plan, inputs, team, partial).run(*folder, progress);
  source.check_unchanged();
  folder->commit();
  return written;
}

}  // namespace quire
