#include "model/adapter/adapter.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/quote.h"
#include "model/adapter/adapter_files.h"
#include "model/adapter/changeable.h"
#include "model/adapter/up_matrix.h"
#include "model/families.h"
#include "model/packing/pack_matrices.h"
#include "model/quantized/module_tensors.h"
#include "model/quantized/quantization.h"
#include "model/quantized/slot_codes.h"
#include "model/tensor_finder.h"
#include "model/tensors.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace quire {
namespace {

// A linear that a pair changes. `source` says which of the file's outputs are the linear's.
struct ChangedLinear {
  const Linear* linear;
  const AdapterPair* pair;
  Source source;
  int file_rows, rows, cols;
};

void check_shapes(const AdapterFiles& files, const AdapterPair& pair, int rows, int cols) {
  if (std::cmp_equal(pair.down->shape[1], cols) && std::cmp_equal(pair.up->shape[0], rows)) return;
  throw invalid(
      "{}: {} has matrices of the shapes {} and {}, but the model's has {} inputs and {} outputs; the adapter is of "
      "another model",
      files.file(), quote(pair.module), shape_text(pair.down->shape), shape_text(pair.up->shape), cols, rows);
}

// In the order of the model's linears. weights: of the model, or none.
std::vector<ChangedLinear> find_changes(const AdapterFiles& files, const Checkpoint& checkpoint,
                                        const ModelConfig& config, Weights& weights) {
  if (files.kind() != (checkpoint.gguf() ? FileKind::kGguf : FileKind::kHf))
    throw unsupported(
        "{}: an adapter of a {} needs the model as a {}, but {} is none; llama.cpp's convert_lora_to_gguf.py converts "
        "adapters to GGUF",
        files.file(), files.kind() == FileKind::kGguf ? "GGUF file" : "PEFT directory",
        files.kind() == FileKind::kGguf ? "GGUF file" : "Hugging Face directory", checkpoint.file());
  if (const Gguf* gguf = checkpoint.gguf()) {
    const std::string model(gguf->get_or<std::string>("general.architecture", ""));
    if (files.architecture() != model)
      throw invalid("{}: the adapter is for the architecture {}, but the model has {}", files.file(),
                    quote(files.architecture()), quote(model));
  }

  struct Visitor : TensorVisitor {
    Visitor(const AdapterFiles& f, const ModelConfig& c, const Checkpoint& checkpoint)
        : files(f),
          config(c),
          finder(checkpoint, c, spelling_of(checkpoint)),
          quantized(checkpoint.hf() && read_quantization(*checkpoint.hf())) {
      for (const AdapterPair& pair : files.pairs()) by_module.emplace(pair.module, &pair);
      unused = by_module;
    }
    const AdapterPair* find_pair(const std::string& name) const {
      const auto of = [&](const std::string& weight) -> const AdapterPair* {
        const auto at = by_module.find(weight.substr(0, weight.rfind('.')));
        return at == by_module.end() ? nullptr : at->second;
      };
      if (const AdapterPair* pair = of(name)) return pair;
      for (const std::string& other : finder.other_names(name))
        if (const AdapterPair* pair = of(other)) return pair;
      return nullptr;
    }
    void matrix(const Slot& slot, int rows, int cols, Linear& to) override {
      const Source source = source_of_matrix(finder, slot, quantized);
      const AdapterPair* const pair = find_pair(source.name);
      if (!pair) return;
      if (!is_changeable(config, slot) || source.stacked || source.first_col != 0 || source.cols != 0)
        throw unsupported(
            "{}: the adapter changes {}, but Quire applies adapters only to the projections of attention and of gated "
            "feed-forward layers; merge it into the model",
            files.file(), quote(pair->module));
      const int file_rows = source.rows > 0 ? source.rows : rows;
      check_shapes(files, *pair, file_rows, cols);
      unused.erase(pair->module);
      changes.push_back({&to, pair, source, file_rows, rows, cols});
    }
    void vector(const Slot&, const std::vector<int>&, Vector&, Change) override {}
    void bias(const Slot&, int, Vector&) override {}

    const AdapterFiles& files;
    const ModelConfig& config;
    const TensorFinder finder;
    const bool quantized;
    std::map<std::string, const AdapterPair*> by_module, unused;
    std::vector<ChangedLinear> changes;
  };
  Visitor visitor(files, config, checkpoint);
  visit_tensors(config, weights, visitor);
  if (!visitor.unused.empty())
    throw invalid("{}: the adapter changes {}, which the model {} does not have; it was made for another model",
                  files.file(), quote(visitor.unused.begin()->first), checkpoint.file());
  return std::move(visitor.changes);
}

// B is in float32 if it has the factors of a decomposed weight.
TensorType up_type(const AdapterPair& pair) { return pair.magnitude ? TensorType::F32 : pair.up->type; }

PackedMatrix packed_down(const ChangedLinear& c) { return describe_packed(c.pair->down->type, c.pair->rank(), c.cols); }
PackedMatrix packed_up(const ChangedLinear& c, int folds) {
  return describe_packed(up_type(*c.pair), c.rows / folds, folds > 1 ? kBlockInputs : c.pair->rank());
}

// Gains and offsets of weight decomposition.
constexpr size_t decomposition_bytes(int outputs) { return static_cast<size_t>(outputs) * 2 * sizeof(float); }

void set_decomposition(LowRank& low, std::span<const float> factors, const Linear& linear, Backend& backend) {
  std::vector<float> gain(factors.begin(), factors.end()), offset = linear.bias.values(backend);
  for (float& g : gain) g -= 1;
  for (size_t i = 0; i < offset.size(); ++i) offset[i] *= -gain[i];
  low.gain = Vector(backend, gain);
  low.offset = Vector(backend, offset);
}

std::string identity_of(const AdapterFiles& files) {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  const std::unique_ptr<XXH3_state_t, Free> state(XXH3_createState());
  XXH3_128bits_reset(state.get());
  for (const AdapterPair& pair : files.pairs()) {
    const std::string what = fmt::format("{} {} {} {:a} {} {}\n", pair.module.size(), pair.module, pair.rank(),
                                         pair.scale, name(pair.down->type), name(pair.up->type));
    XXH3_128bits_update(state.get(), what.data(), what.size());
    for (const TensorView* t : {pair.down, pair.up, pair.magnitude})
      if (t) XXH3_128bits_update(state.get(), t->bytes.data(), t->bytes.size());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

AdapterFacts check_adapter(const AdapterFiles& files, const Checkpoint& checkpoint, const ModelConfig& config) {
  Weights none;
  AdapterFacts facts;
  for (const ChangedLinear& change : find_changes(files, checkpoint, config, none)) {
    facts.rank = std::max(facts.rank, change.pair->rank());
    facts.bytes += packed_down(change).bytes() + packed_up(change, 1).bytes();
    if (change.pair->magnitude) facts.bytes += decomposition_bytes(change.rows);
  }
  return facts;
}

size_t largest_adapter_bytes(const ModelConfig& config, int rank) {
  struct Visitor : TensorVisitor {
    Visitor(const ModelConfig& c, int r) : config(c), rank(r) {}
    void matrix(const Slot& slot, int rows, int cols, Linear&) override {
      if (!is_changeable(config, slot)) return;
      bytes += describe_packed(TensorType::F32, rank, cols).bytes() +
               describe_packed(TensorType::F32, rows, rank).bytes() + decomposition_bytes(rows);
    }
    void vector(const Slot&, const std::vector<int>&, Vector&, Change) override {}
    void bias(const Slot&, int, Vector&) override {}

    const ModelConfig& config;
    const int rank;
    size_t bytes = 0;
  };
  Visitor visitor(config, rank);
  Weights none;
  visit_tensors(config, none, visitor);
  return visitor.bytes;
}

Adapter load_adapter(const AdapterFiles& files, const Checkpoint& checkpoint, const ModelConfig& config,
                     const Weights& weights, Backend& backend, Team& team) {
  Adapter adapter;
  std::vector<MatrixJob> jobs;
  std::list<UpMatrix> ups;  // until they are packed
  size_t bytes = 0;
  const auto add = [&](PackedMatrix& matrix, const std::string& name, TensorType type, std::span<const std::byte> from,
                       int rows) {
    MatrixSource of{.source = {.name = name}, .file_rows = rows, .coded = nullptr};
    of.type = type;
    of.bytes = from;
    jobs.push_back({&matrix, std::move(of), bytes});
    bytes += matrix.bytes();
  };
  // Only looks at the weights.
  for (const ChangedLinear& change : find_changes(files, checkpoint, config, const_cast<Weights&>(weights))) {
    if (!change.linear->weight.data) continue;  // another process has the layer
    const AdapterPair& pair = *change.pair;
    LowRank& low = adapter.changes[change.linear];  // references to a map's values stay valid
    low.scale = pair.scale;
    low.folds = backend.folds_low_rank() ? low_rank_folds(change.rows, pair.rank()) : 1;
    low.down.weight = packed_down(change);
    low.up.weight = packed_up(change, low.folds);
    adapter.rank = std::max(adapter.rank, pair.rank());
    std::vector<float> factors;
    if (pair.magnitude) {
      factors = decomposed_factors(pair, change.source, *change.linear, backend, team, files.file());
      set_decomposition(low, factors, *change.linear, backend);
    }
    const UpMatrix& up = ups.emplace_back(fold_up(pair, change.source, change.rows, low.folds, factors, files.file()));
    add(low.down.weight, pair.down->name, pair.down->type, pair.down->bytes, pair.rank());
    add(low.up.weight, pair.up->name, up.type, up.bytes, low.up.weight.rows);
  }
  adapter.memory = BackendMemory(backend, bytes);
  pack_matrices(jobs, backend, adapter.memory.data(), files.file(), files.mappings(), team, {});
  adapter.identity = identity_of(files);
  check_unchanged(files.mappings());
  return adapter;
}

}  // namespace quire
