#include "model/weights.h"

#include <algorithm>
#include <cassert>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "model/loading/check_gates.h"
#include "model/loading/used_tensors.h"
#include "model/loading/vector_list.h"
#include "model/loading/weight_counts.h"
#include "model/packing/expert_store.h"
#include "model/packing/pack_experts.h"
#include "model/packing/pack_matrices.h"
#include "model/quantized/input_transforms.h"
#include "model/quantized/module_tensors.h"
#include "model/quantized/quantization.h"
#include "model/quantized/slot_codes.h"
#include "model/tensors.h"
#include "ops/backend.h"
#include "quant/gguf_blocks.h"

namespace quire {
namespace {

uint64_t product(std::span<const uint64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

// Converters merge, split and add dimensions of vectors: that changes nothing unless a matrix is to be transposed.
bool same_vector(std::span<const uint64_t> a, std::span<const uint64_t> b, Change change) {
  const auto without_ones = [](std::span<const uint64_t> shape) {
    std::vector<uint64_t> dims(shape.begin(), shape.end());
    std::erase(dims, 1u);
    return dims;
  };
  return change == Change::kTranspose ? without_ones(a) == without_ones(b) : product(a) == product(b);
}

// First checks and lists every tensor, reading no data; then allocates once and reads them all.
class Loader : public TensorVisitor {
 public:
  // apart: experts get jobs of their own, for a file. host_layers: HostExperts::layers.
  Loader(const Checkpoint& checkpoint, const ModelConfig& config, const LoadedLayers& part, bool apart = false,
         const LayerRange& host_layers = {})
      : checkpoint_(checkpoint),
        config_(config),
        tensors_(checkpoint, config),
        counts_(config),
        part_(part),
        apart_(apart),
        host_layers_(host_layers) {
    assert(!apart || host_layers == LayerRange());
  }

  void matrix(const Slot& slot, int rows, int cols, Linear& to) override {
    const Source source = source_of(slot);
    const int file_rows = source.rows > 0 ? source.rows : rows, file_cols = source.cols > 0 ? source.cols : cols;
    std::vector<uint64_t> shape;
    if (source.stacked) shape.push_back(static_cast<uint64_t>(slot.items));
    shape.push_back(static_cast<uint64_t>(source.transposed ? file_cols : file_rows));
    shape.push_back(static_cast<uint64_t>(source.transposed ? file_rows : file_cols));
    MatrixJob job{&to.weight, {source, file_rows, slot.item}, 0};
    if (quantization() && find_codes(slot, file_rows, file_cols, job.from)) {
      take_codes(*job.from.coded, to);
    } else {
      const TensorView& view = tensor(source.name, shape);
      if (source.transposed && has_scales(panel_format(view.type)))
        throw unsupported("{}: tensor {} is transposed, so it cannot have the quantized type {}", checkpoint_.file(),
                          source.name, quire::name(view.type));
      const size_t item_bytes = view.bytes.size() / (source.stacked ? static_cast<size_t>(slot.items) : 1);
      job.from.type = view.type;
      job.from.bytes = view.bytes.subspan(source.stacked ? item_bytes * static_cast<size_t>(slot.item) : 0, item_bytes);
    }
    if (quantization() && !is_table(slot.tensor)) take_transform(job.from, file_cols, to);
    to.weight = job.from.describe(rows, cols);
    to.int8_rows = to.int8_rows && takes_int8_rows(to.weight);
    const uint64_t elements = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols);
    counts_.add_matrix(slot, elements, job.from.coded ? quantization()->method : name(job.from.type),
                       to.weight.bytes());
    if (part_.rank.ranks > 1) job.part = loaded_panels(slot, to.weight);
    if (loads(slot)) add_job(slot, std::move(job));

    const std::string bias = bias_name(source);
    if (!tensors_.find(bias)) return;
    shape.assign(source.stacked ? 1 : 0, static_cast<uint64_t>(slot.items));
    shape.push_back(static_cast<uint64_t>(file_rows));
    const TensorView& bias_view = tensor(bias, shape);
    const size_t bias_begin = source.stacked ? static_cast<size_t>(file_rows) * static_cast<size_t>(slot.item) : 0;
    vectors_.add({&to.bias, &bias_view, source, rows, bias_begin, Change::kNone, 0, is_on_host(slot)});
    counts_.add_vector(slot, static_cast<uint64_t>(rows));
  }

  void vector(const Slot& slot, const std::vector<int>& shape, Vector& to, Change change) override {
    const Source source = source_of(slot);
    const std::vector<std::string> names = vector_names(source, shape);
    const std::span<const int> part = std::span(shape).subspan(names.size() > 1 ? 1 : 0);
    for (const std::string& name : names)
      add_vector(slot, name, {part.begin(), part.end()}, to, change == Change::kNone ? source.change : change);
  }
  void bias(const Slot& slot, int size, Vector& to) override {
    add_vector(slot, bias_name(source_of(slot)), {static_cast<uint64_t>(size)}, to, Change::kNone);
  }

  // Reads all listed tensors. Matrices lie in memory of at most options.memory bytes, or in a file of the pack cache.
  void read(Backend& backend, Team& team, const WeightOptions& options, Weights& to) {
    to.matrix_bytes = own_.bytes + (apart_ ? options.expert_slots * totals_.slot_bytes : 0);
    to.host_bytes = host_.bytes;
    check_fit(to.matrix_bytes, options.memory, "weights", "");
    check_fit(to.host_bytes, options.host_experts.memory, "experts on the CPU", " of the host");
    vectors_.read(checkpoint_.file(), backend, options.host_experts.backend);
    if (apart_) store_experts(backend, team, options, to);
    read_matrices(own_, backend, team, options, to.memory, to.mapped);
    if (host_.matrices.empty()) return;
    read_matrices(host_, *options.host_experts.backend, team, options, to.host_memory, to.host_mapped);
    for (int i = host_layers_.begin; i < host_layers_.end; ++i) {
      MoeWeights& moe = to.layers[static_cast<size_t>(i)].moe;
      moe.on_host = !moe.experts.empty();
    }
  }

  uint64_t matrix_bytes() const { return own_.bytes; }
  uint64_t bytes() const { return own_.bytes + vectors_.bytes(); }
  const ExpertTotals& expert_totals() const { return totals_; }
  const WeightCounts& counts() const { return counts_; }
  const UsedTensors& tensors() const { return tensors_; }

 private:
  // Matrices that lie one after the other in memory of a backend, each at a multiple of 64.
  struct Jobs {
    std::vector<MatrixJob> matrices;
    size_t bytes = 0;

    void add(MatrixJob job) {
      job.offset = bytes;
      bytes += job.bytes();
      matrices.push_back(std::move(job));
    }
  };

  bool is_on_host(const Slot& slot) const {
    return slot.layer >= host_layers_.begin && slot.layer < host_layers_.end && goes_with_experts(slot.tensor);
  }

  bool loads(const Slot& slot) const {
    const LayerRange& own = part_.layers;
    if (own == LayerRange()) return true;
    if (slot.layer >= 0) return own.begin <= slot.layer && slot.layer < own.end;
    const bool last = std::cmp_equal(own.end, config_.layers.size());
    if (slot.tensor == Tensor::kEmbedding && (part_.embedding || (last && config_.tied_output))) return true;
    return is_input(slot.tensor) ? own.begin == 0 : last;
  }

  // The panels that the rank's operations may read. Attention shares its projections by heads or by panels, as the case may be.
  Share loaded_panels(const Slot& slot, const PackedMatrix& m) const {
    const Share all{0, m.panels()};
    if (is_table(slot.tensor)) return all;
    if (slot.tensor == Tensor::kKeyOfHead || slot.tensor == Tensor::kValueOfHead) {
      const Share heads = part_.rank.share(slot.items);
      return heads.begin <= slot.item && slot.item < heads.end ? all : Share{0, 0};
    }
    int kv_heads = 0;
    if (slot.tensor == Tensor::kQ || slot.tensor == Tensor::kK || slot.tensor == Tensor::kV) {
      const auto attention = attention_shape(config_.layers[static_cast<size_t>(slot.layer)]);
      kv_heads = attention ? attention->kv_heads : 0;
    }
    const Share panels = panel_share(part_.rank, m.rows, 0).panels,
                of_heads = panel_share(part_.rank, m.rows, kv_heads).panels;
    return {std::min(panels.begin, of_heads.begin), std::max(panels.end, of_heads.end)};
  }

  // Experts are visited one after the other, each with all its matrices.
  void add_job(const Slot& slot, MatrixJob job) {
    const size_t bytes = job.matrix->bytes();
    if (!is_expert(slot.tensor)) return own_.add(std::move(job));
    const std::pair<int, int> expert{slot.layer, slot.item};
    if (std::exchange(last_expert_, expert) != expert) {
      ++totals_.experts;
      last_bytes_ = 0;
      if (apart_) expert_jobs_.emplace_back();
    }
    const auto& moe = std::get<Moe>(config_.layers[static_cast<size_t>(slot.layer)].ffn);
    totals_.used = std::max(totals_.used, moe.routing.used);
    totals_.bytes += bytes;
    const size_t offset = std::exchange(last_bytes_, last_bytes_ + bytes);
    totals_.slot_bytes = std::max(totals_.slot_bytes, ExpertFile::aligned(last_bytes_));
    if (!apart_) return (is_on_host(slot) ? host_ : own_).add(std::move(job));
    job.offset = offset;
    expert_jobs_.back().bytes = last_bytes_;
    expert_jobs_.back().matrices.push_back(std::move(job));
  }

  void check_fit(size_t bytes, size_t memory, std::string_view what, std::string_view whose) const {
    if (bytes <= memory) return;
    throw no_resource("{}: the {} need {} MiB of memory{}, but only {} MiB are available (--memory)",
                      checkpoint_.file(), what, (bytes + (1 << 20) - 1) >> 20, whose, memory >> 20);
  }

  void read_matrices(const Jobs& jobs, Backend& backend, Team& team, const WeightOptions& options,
                     BackendMemory& memory, std::optional<MappedPack>& mapped) const {
    std::optional<PackFile> file;
    if (!options.pack_cache.empty()) {
      file.emplace(options.pack_cache, pack_identity(checkpoint_, jobs.matrices, backend), jobs.bytes, options.warn);
      if (auto pack = file->load(backend, team, options.report)) {
        memory = std::move(pack->memory);
        mapped = std::move(pack->mapped);
        const std::byte* const begin = mapped ? backend.share(mapped->bytes()) : memory.data();
        for (const MatrixJob& job : jobs.matrices) job.matrix->data = job.data_in(begin);
        return;
      }
    }
    memory = BackendMemory(backend, jobs.bytes);
    pack_matrices(jobs.matrices, backend, memory.data(), checkpoint_.file(), checkpoint_.mappings(), team,
                  options.report);
    checkpoint_.check_unchanged();
    if (file) file->save(backend, memory.data(), team, options.report);
  }

  void store_experts(Backend& backend, Team& team, const WeightOptions& options, Weights& to) const {
    assert(backend.reads_experts());
    to.experts = std::make_shared<ExpertStore>(make_expert_file(checkpoint_, expert_jobs_, backend, team,
                                                                {.pack_cache = options.pack_cache,
                                                                 .memory = options.expert_slots * totals_.slot_bytes,
                                                                 .warn = options.warn,
                                                                 .report = options.report}),
                                               backend, options.expert_slots);
    for (const ExpertJob& expert : expert_jobs_) {
      for (const MatrixJob& job : expert.matrices) job.matrix->data = nullptr;  // packing has set it
    }
    int first = 0;
    for (LayerWeights& layer : to.layers) {
      layer.moe.source = layer.moe.experts.empty() ? nullptr : to.experts.get();
      layer.moe.first_expert = first;
      first += static_cast<int>(layer.moe.experts.size());
    }
  }

  const std::optional<Quantization>& quantization() const { return tensors_.quantization(); }
  Source source_of(const Slot& slot) const { return tensors_.source_of(slot); }
  void add_vector(const Slot& slot, const std::string& name, const std::vector<uint64_t>& shape, Vector& to,
                  Change change) {
    const TensorView& view = tensor(name, shape, change);
    const uint64_t size = product(shape);
    vectors_.add(
        {&to, &view, Source{}, static_cast<int>(size), 0, change, static_cast<int>(shape.back()), is_on_host(slot)});
    counts_.add_vector(slot, size);
  }

  // Whether the checkpoint holds codes for this matrix, which go to `from`.
  bool find_codes(const Slot& slot, int rows, int cols, MatrixSource& from) {
    const Source& source = from.source;
    const bool transposed = transposes_codes(source);
    const FindTensor find_used = [this](const std::string& name) { return tensors_.use(name); };
    auto coded = open_slot_codes(*quantization(), checkpoint_.file(), find_used, slot, source, rows, cols);
    if (!coded) return false;
    from.source.transposed = transposed;
    from.coded = std::make_shared<const CodedMatrix>(std::move(*coded));
    from.coded_cols = transposed ? rows : cols;
    if (source.first_col != 0 && !transposed)
      throw unsupported("{}: tensor {}: Quire cannot take part of the inputs of a quantized matrix", checkpoint_.file(),
                        source.name);
    return true;
  }

  // How the inputs of a coded matrix are rounded.
  void take_codes(const CodedMatrix& coded, Linear& to) {
    assert(!takes_fp8(coded.format) || config_.input_forms.fp8);
    to.int8_rows = coded.inputs.kind != InputCodes::Kind::kNone;
    if (coded.inputs.kind == InputCodes::Kind::kOutliers) to.threshold = coded.inputs.threshold;
  }

  void take_transform(const MatrixSource& from, int cols, Linear& to) {
    const Source& source = from.source;
    const FindTensor find_used = [this](const std::string& name) { return tensors_.use(name); };
    InputTransform transform =
        read_input_transform(*quantization(), {checkpoint_.file(), find_used, checkpoint_.tensors()},
                             std::string(module_of(source.name)), cols);
    if (from.coded && !from.source.transposed) transform.order = from.coded->permutation;
    if (transform.empty()) return;
    if (!config_.input_forms.transforms)
      throw invalid("{}: {} has an order of inputs (g_idx), but config.json has neither desc_act nor actorder",
                    checkpoint_.file(), source.name);
    const bool changed = !transform.factors.empty() || transform.rotation.size != 0;
    if (changed && (source.transposed || source.stacked || source.first_col != 0))
      throw unsupported(
          "{}: tensor {}: Quire cannot transform the inputs of a matrix that is stacked, transposed or split",
          checkpoint_.file(), source.name);
    if (transform.rotation.size != 0 && !transform.order.empty())
      throw unsupported("{}: tensor {}: Quire cannot rotate inputs that have an order (g_idx)", checkpoint_.file(),
                        source.name);
    const auto same = std::ranges::find_if(transforms_, [&](const auto& other) { return *other == transform; });
    to.transform = same != transforms_.end()
                       ? *same
                       : transforms_.emplace_back(std::make_shared<InputTransform>(std::move(transform)));
    constexpr size_t kRecent = 8;  // linears of equal transforms share their inputs, so they lie together
    if (transforms_.size() > kRecent) transforms_.erase(transforms_.begin());
  }

  const TensorView& tensor(const std::string& name, std::span<const uint64_t> shape,
                           std::optional<Change> vector = {}) {
    const TensorView* view = tensors_.use(name);
    if (!view) throw invalid("{}: tensor {} is missing", checkpoint_.file(), name);
    if (!std::ranges::equal(view->shape, shape) && !(vector && same_vector(view->shape, shape, *vector))) {
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
  UsedTensors tensors_;
  WeightCounts counts_;
  Jobs own_, host_;  // host_: of experts on the host
  VectorList vectors_;
  const LoadedLayers part_;
  const bool apart_;
  const LayerRange host_layers_;
  std::vector<ExpertJob> expert_jobs_;
  ExpertTotals totals_;
  std::pair<int, int> last_expert_{-1, -1};                        // layer and number in it
  size_t last_bytes_ = 0;                                          // its bytes so far
  std::vector<std::shared_ptr<const InputTransform>> transforms_;  // the last ones
};

void list_tensors(const Checkpoint& checkpoint, const ModelConfig& config, Loader& load, Weights& w) {
  visit_tensors(config, w, load);
  check_gates(checkpoint, config, w);
  load.tensors().check_all_used();
}

}  // namespace

Weights read_weight_shapes(const Checkpoint& checkpoint, const ModelConfig& config) {
  Loader load(checkpoint, config, {});
  Weights unread;
  list_tensors(checkpoint, config, load, unread);
  return unread;
}

WeightTotals check_weights(const Checkpoint& checkpoint, const ModelConfig& config) {
  Loader load(checkpoint, config, {});
  Weights unread;
  list_tensors(checkpoint, config, load, unread);
  const WeightCounts& counts = load.counts();
  return {.parameters = counts.parameters(),
          .bytes = load.bytes(),
          .matrix_bytes = load.matrix_bytes(),
          .main_type = counts.main_type(),
          .experts = load.expert_totals(),
          .layer_bytes = counts.layer_bytes(),
          .input_bytes = counts.input_bytes(),
          .embedding_bytes = counts.embedding_bytes(),
          .output_bytes = counts.output_bytes(),
          .expert_bytes = counts.expert_layer_bytes(),
          .output = config.tied_output ? unread.embedding.weight : unread.output.weight};
}

uint64_t largest_rank_bytes(const Checkpoint& checkpoint, const ModelConfig& config, int ranks) {
  uint64_t largest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Loader load(checkpoint, config, {.layers = {}, .rank = {rank, ranks}});
    Weights unread;
    list_tensors(checkpoint, config, load, unread);
    largest = std::max(largest, load.matrix_bytes());
  }
  return largest;
}

Weights load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend, Team& team,
                     const WeightOptions& options) {
  Loader load(checkpoint, config, options.part, options.expert_slots > 0, options.host_experts.layers);
  Weights w;
  list_tensors(checkpoint, config, load, w);
  if (const std::string text = load.tensors().ignored_scales(); options.warn && !text.empty()) options.warn(text);
  try {
    load.read(backend, team, options, w);
  } catch (const Error&) {
    checkpoint.check_unchanged();  // says it better
    throw;
  }
  checkpoint.check_unchanged();
  if (config.tied_output) w.output.weight = w.embedding.weight;
  w.parameters = load.counts().parameters();
  w.decode_bytes = load.counts().decode_bytes();
  w.expert_bytes = load.counts().expert_bytes();
  w.main_type = load.counts().main_type();
  return w;
}

}  // namespace quire
