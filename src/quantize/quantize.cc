#include "quantize/quantize.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "model/quantized/quantization.h"
#include "quant/encode.h"
#include "quant/gguf_blocks.h"
#include "quantize/encoding_error.h"
#include "quantize/solve/block_feedback.h"
#include "text/tokenizer/pretokenizer_regex.h"

namespace quire {
namespace {

bool is_block_type(TensorType type) { return info(type).block_elements > 1; }

// Patterns of --tensor-type, each with how many tensors it matched.
class Overrides {
 public:
  explicit Overrides(const std::vector<TypeOverride>& overrides) {
    for (const TypeOverride& o : overrides)
      rows_.push_back({Regex(o.pattern, fmt::format("--tensor-type {}", o.pattern)), o.type, 0});
  }

  std::optional<TensorType> find(const std::string& name) {
    std::optional<TensorType> type;
    for (Row& row : rows_) {
      bool found = false;
      matcher_.for_each_match(row.regex, name, [&](size_t, size_t) { found = true; });
      row.matched += found;
      if (found && !type) type = row.type;
    }
    return type;
  }

  void refuse_unused() const {
    for (const Row& row : rows_) {
      if (row.matched == 0)
        throw invalid("--tensor-type {}={}: no tensor that can be quantized has such a name; --dry-run lists them",
                      row.regex.pattern(), quire::name(row.type));
    }
  }

 private:
  struct Row {
    Regex regex;
    TensorType type;
    int matched;
  };
  std::vector<Row> rows_;
  Regex::Matcher matcher_;
};

bool holds(const PlannedTensor& tensor, Tensor matrix) {
  return std::ranges::find(tensor.matrices, matrix) != tensor.matrices.end();
}

// Chooses the types of all tensors.
class TypeChooser {
 public:
  TypeChooser(const QuantizeOptions& options, const FilePlan& file, std::vector<std::string>& warnings)
      : options_(options),
        mixed_(*options.mix, file.config, file.architecture, options.importance != nullptr, file.tensors),
        overrides_(options.overrides),
        is_tied_(file.config.tied_output),
        warnings_(warnings) {}

  void choose(PlannedTensor& tensor) {
    if (!MixedTypes::may_change(tensor)) return;
    const TensorType wanted = wanted_type(tensor);
    tensor.type = fitting_type(wanted, tensor.cols());
    if (tensor.type != wanted) ++misfits_[{tensor.cols(), wanted, tensor.type}];
  }

  void finish() {
    overrides_.refuse_unused();
    for (const auto& [misfit, count] : misfits_) {
      warnings_.push_back(fmt::format("{} tensors with rows of {} become {}: {} needs a multiple of {}", count,
                                      misfit.cols, name(misfit.instead), name(misfit.wanted),
                                      info(misfit.wanted).block_elements));
    }
  }

 private:
  struct Misfit {
    uint64_t cols;
    TensorType wanted, instead;
    auto operator<=>(const Misfit&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 misreads <=>
  };

  TensorType wanted_type(const PlannedTensor& tensor) {
    if (!options_.types.empty()) {
      const auto named = options_.types.find(tensor.name);
      assert(named != options_.types.end());
      return named->second;
    }
    const TensorType mixed = mixed_.type_of(tensor);  // always asked: it counts
    const std::optional<TensorType> named = overrides_.find(tensor.name);
    if (options_.output_type && holds(tensor, Tensor::kOutput)) return *options_.output_type;
    if (options_.embedding_type && holds(tensor, Tensor::kEmbedding)) return *options_.embedding_type;
    if (named) return *named;
    if (options_.pure) return options_.mix->type;
    // With a tied output the embedding is the output matrix.
    if (options_.output_type && is_tied_ && holds(tensor, Tensor::kEmbedding)) return *options_.output_type;
    return mixed;
  }

  const QuantizeOptions& options_;
  MixedTypes mixed_;
  Overrides overrides_;
  const bool is_tied_;
  std::vector<std::string>& warnings_;
  std::map<Misfit, int> misfits_;
};

// The type that a tensor has now, or the method by which it is quantized.
std::string type_before(const PlannedTensor& tensor, const std::string& method) {
  const TensorView* view = tensor.parts.front().from.view;
  return view ? std::string(name(view->type)) : method;
}

// Whether each tensor that becomes blocks has importance. Throws if the matrix is another model's.
void check_importance(const ImportanceMatrix& matrix, QuantizePlan& plan) {
  size_t known = 0, wanted = 0;
  std::vector<std::string> without;
  for (size_t i = 0; i < plan.file.tensors.size(); ++i) {
    const PlannedTensor& tensor = plan.file.tensors[i];
    if (!MixedTypes::may_change(tensor)) continue;
    const auto entry = matrix.entries.find(tensor.name);
    const bool is_table_of_tokens = holds(tensor, Tensor::kEmbedding) || holds(tensor, Tensor::kPerLayerEmbedding);
    if (entry == matrix.entries.end()) {
      // No linear reads a table, so calibration says nothing of it; of an output matrix llama.cpp collects nothing either.
      if (is_table_of_tokens || holds(tensor, Tensor::kOutput)) continue;
      ++wanted;
      without.push_back(tensor.name);
      continue;
    }
    ++known;
    ++wanted;
    if (entry->second.sums.size() != tensor.cols() * stacked_matrices(tensor)) {
      if (is_table_of_tokens) continue;  // of a table's transposed use
      throw invalid("the importance matrix is another model's: {} has {} inputs, its entry {}", tensor.name,
                    tensor.cols() * stacked_matrices(tensor), entry->second.sums.size());
    }
    plan.changes[i].has_importance = is_block_type(tensor.type);
  }
  if (known == 0)
    throw invalid(
        "the importance matrix is another model's: none of its {} entries, such as {}, is a tensor of this one",
        matrix.entries.size(), matrix.entries.begin()->first);
  if (!without.empty())
    plan.warnings.push_back(
        fmt::format("the importance matrix lacks {} of {} tensors, such as {}; all their inputs count "
                    "the same",
                    without.size(), wanted, without.front()));
}

// Types of so few bits that they are of no use without an importance matrix, as llama-quantize has them.
bool needs_importance(TensorType type) {
  constexpr TensorType kTypes[] = {TensorType::IQ3_XXS, TensorType::IQ2_XXS, TensorType::IQ2_XS,
                                   TensorType::IQ2_S,   TensorType::IQ1_M,   TensorType::IQ1_S};
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

void add_warnings(QuantizePlan& plan, const QuantizeOptions& options) {
  size_t again = 0, starved = 0;
  for (size_t i = 0; i < plan.changes.size(); ++i) {
    const TensorChange& change = plan.changes[i];
    const auto before = tensor_type_from_name(change.from);
    const bool was_quantized = !before || is_block_type(*before);
    again += was_quantized && change.from != name(change.to);
    starved += needs_importance(change.to) && !change.has_importance && change.from != name(change.to);
  }
  if (again > 0)
    plan.warnings.push_back(
        fmt::format("{} tensors are quantized already; they are dequantized first, so what was lost "
                    "stays lost",
                    again));
  if (starved > 0 && !options.importance)
    plan.warnings.push_back(
        fmt::format("{} tensors get types below 3.1 bits a weight without an importance matrix; "
                    "expect a much worse model than with --imatrix",
                    starved));
}

// Eight bits lose too little for it to matter, and floats nothing.
bool can_feed_back(TensorType type) { return is_block_type(type) && code_bits(panel_format(type).codes) < 8; }

// Encodes the rows of a tensor with error feedback.
class Feedback {
 public:
  // false: nothing is known of the inputs of one of its matrices.
  bool prepare(const PlannedTensor& tensor, const QuantizeOptions& options, Team& team) {
    std::vector<std::shared_ptr<const InputStatistics>> inputs;
    for (size_t item = 0; item < stacked_matrices(tensor); ++item) {
      inputs.push_back(options.inputs(tensor, item));
      if (!inputs.back() || inputs.back()->gram.empty()) return false;
    }
    encoders_.clear();
    if (inputs != inputs_) {  // tensors that read the same inputs follow each other
      factors_.clear();
      is_starved_ = false;
      for (const auto& of_matrix : inputs) {
        factors_.push_back(factor_inverse(*of_matrix, false, usual_damping(*of_matrix), team));
        is_starved_ |= of_matrix->rows < rows_needed(*of_matrix);
      }
      inputs_ = std::move(inputs);
    }
    for (const InverseFactor& factor : factors_) {
      for (int thread = 0; thread < team.size(); ++thread) encoders_.emplace_back(tensor.type, factor);
    }
    threads_ = static_cast<size_t>(team.size());
    return true;
  }
  // Whether inputs of the prepared tensor had fewer rows than feedback needs.
  bool is_starved() const { return is_starved_; }
  RowEncoding encoding() {
    constexpr int kRows = 32;  // enough to share what is read of the factor
    return {[this](size_t matrix, std::span<float> rows, std::span<std::byte> out, int thread) {
              return encoders_[matrix * threads_ + static_cast<size_t>(thread)].encode(rows, out);
            },
            kRows};
  }

 private:
  std::vector<std::shared_ptr<const InputStatistics>> inputs_;  // what the factors are of
  std::vector<InverseFactor> factors_;                          // of each matrix
  std::vector<BlockFeedback> encoders_;                         // of each matrix and thread
  size_t threads_ = 0;
  bool is_starved_ = false;
};

}  // namespace

uint64_t QuantizePlan::bytes() const {
  return std::accumulate(changes.begin(), changes.end(), uint64_t{0},
                         [](uint64_t sum, const TensorChange& c) { return sum + c.bytes; });
}

double QuantizePlan::bits_per_weight() const {
  const auto elements = std::accumulate(changes.begin(), changes.end(), uint64_t{0},
                                        [](uint64_t sum, const TensorChange& c) { return sum + c.elements; });
  return 8.0 * static_cast<double>(bytes()) / static_cast<double>(std::max<uint64_t>(1, elements));
}

QuantizePlan plan_quantization(const Checkpoint& from, const QuantizeOptions& options) {
  QuantizePlan plan;
  plan.file = plan_file(from, options.name);
  plan.warnings = plan.file.warnings;
  std::vector<PlannedTensor>& tensors = plan.file.tensors;
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return tensors[i].layer; });
  TypeChooser chooser(options, plan.file, plan.warnings);
  for (const size_t i : order) chooser.choose(tensors[i]);
  chooser.finish();
  const auto quantization = from.hf() ? read_quantization(*from.hf()) : std::nullopt;
  for (const PlannedTensor& tensor : tensors) {
    std::string before = type_before(tensor, quantization ? quantization->method : "");
    if (!is_writable(tensor.type) && before != name(tensor.type))
      throw unsupported("type {} cannot be written yet", name(tensor.type));
    plan.changes.push_back({.name = tensor.name,
                            .from = std::move(before),
                            .to = tensor.type,
                            .elements = tensor.elements(),
                            .bytes = tensor_bytes(tensor.type, tensor.shape).value()});
  }
  if (options.importance) check_importance(*options.importance, plan);
  add_warnings(plan, options);
  return plan;
}

void write_quantized(const Checkpoint& from, QuantizePlan& plan, const QuantizeOptions& options,
                     const std::filesystem::path& to, Team& team,
                     const std::function<void(size_t written, size_t total)>& progress, PartialOutput* partial) {
  std::vector<float> means;
  Feedback feedback;
  const auto change_of = [&](const PlannedTensor& tensor) -> TensorChange& {
    return *std::ranges::find(plan.changes, tensor.name, &TensorChange::name);
  };
  size_t starved = 0;       // tensors
  bool is_starved = false;  // the last one
  const auto best_encoding = [&](const PlannedTensor& tensor) {
    is_starved = false;
    if (options.inputs && can_feed_back(tensor.type) && feedback.prepare(tensor, options, team)) {
      is_starved = feedback.is_starved();
      return feedback.encoding();
    }
    means.clear();
    if (change_of(tensor).has_importance)
      means = ImportanceMatrix::mean_squares(options.importance->entries.find(tensor.name)->second);
    return plain_encoding(tensor.type, means);
  };
  EncodingError error(team.size());
  bool is_measured = false;  // the error of the last tensor
  const auto encoding = [&](const PlannedTensor& tensor) {
    RowEncoding best = best_encoding(tensor);
    is_measured = options.measure_errors;
    starved += is_starved;
    return options.measure_errors ? error.watch(std::move(best), tensor.type) : best;
  };
  const auto note = [&](const PlannedTensor&) {
    Json facts = Json::object();
    if (is_starved) facts["starved"] = true;
    if (options.measure_errors) facts["error"] = error.relative();
    return facts;
  };
  const auto accept = [&](const PlannedTensor& tensor, const Json& facts) {
    const auto lost = facts.find("error");
    if (options.measure_errors && (lost == facts.end() || !lost->is_number())) return false;
    is_measured = false;
    if (options.measure_errors) change_of(tensor).error = lost->get<double>();
    starved += facts.contains("starved");
    return true;
  };
  const auto count = [&](size_t written, size_t total) {
    if (is_measured) plan.changes[written - 1].error = error.relative();
    progress(written, total);
  };
  const auto describe = [&](GgufHeader& header) {
    if (!options.importance) return;
    header.string("quantize.imatrix.file", options.importance_file);
    if (!options.importance->datasets.empty())
      header.string("quantize.imatrix.dataset", options.importance->datasets.front());
    header.u32("quantize.imatrix.entries_count", static_cast<int64_t>(options.importance->entries.size()));
    if (options.importance->chunks > 0) header.u32("quantize.imatrix.chunks_count", options.importance->chunks);
  };
  write_file(from, plan.file, to,
             {.file_type = options.mix->file_type,
              .describe = describe,
              .encoding = encoding,
              .progress = count,
              .partial = partial,
              .note = note,
              .accept = accept},
             team);
  if (starved > 0)
    plan.file.warnings.push_back(fmt::format(
        "the inputs of {} tensors have fewer than three tokens for each input in the calibration text; error feedback "
        "fits its accidents, so give a longer one",
        starved));
  for (std::string& warning : plan.file.warnings) {
    if (std::ranges::find(plan.warnings, warning) == plan.warnings.end()) plan.warnings.push_back(std::move(warning));
  }
}

}  // namespace quire
