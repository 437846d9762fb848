#include "speculate/network/medusa.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/blocks/blocks.h"
#include "ops/discard_on_error.h"
#include "speculate/network/head_tensors.h"

namespace quire {
namespace {

constexpr int kMostHeads = 16;

// One more than the highest head that the file names.
int count_heads(const HeadTensors& file) {
  constexpr std::string_view kPrefix = "heads.";
  int count = 0;
  for (const TensorView& view : file.tensors()) {
    if (!view.name.starts_with(kPrefix)) continue;
    int head = -1;
    std::from_chars(view.name.data() + kPrefix.size(), view.name.data() + view.name.size(), head);
    if (head >= kMostHeads)
      throw unsupported("{}: tensor {}: at most {} heads are supported", file.file(), view.name, kMostHeads);
    count = std::max(count, head + 1);
  }
  if (count == 0) throw invalid("{}: tensor heads.0.weight is missing; these are no Medusa heads", file.file());
  return count;
}

struct HeadsMemory {
  Rows features, hidden, logits;
  size_t bytes = 0;
};
// memory: nullptr to count bytes.
HeadsMemory carve_heads(int heads, const ModelConfig& target, int max_rows, std::byte* memory) {
  HeadsMemory m;
  const auto part = [&](size_t size) {
    const size_t begin = m.bytes;
    m.bytes += (size + 63) / 64 * 64;
    return memory ? memory + begin : nullptr;
  };
  const auto rows_of = [&](int rows, int cols, size_t stride) {
    auto* data = reinterpret_cast<float*>(part(static_cast<size_t>(rows) * stride * sizeof(float)));
    return Rows{data, cols, stride};
  };
  const int all = max_rows * heads;
  m.features = rows_of(max_rows, target.hidden, row_stride(target.hidden));
  m.hidden = rows_of(all, target.hidden, row_stride(target.hidden));
  m.logits = rows_of(all, target.vocab, static_cast<size_t>(target.vocab));
  return m;
}

// Lists the heads' tensors, which read() then fills.
void list_heads(HeadTensors& file, const ModelConfig& target, MedusaHeads& to) {
  to.heads.resize(static_cast<size_t>(count_heads(file)));
  for (size_t k = 0; k < to.heads.size(); ++k) {
    const std::string name = fmt::format("heads.{}", k);
    file.matrix(name + ".weight", target.hidden, target.hidden, to.heads[k]);
    file.vector(name + ".bias", target.hidden, to.heads[k].bias);
  }
}

}  // namespace

MedusaHeads read_medusa(const std::filesystem::path& path, const ModelConfig& target, Backend& backend, Team& team) {
  HeadTensors file(path);
  MedusaHeads read;
  list_heads(file, target, read);
  read.memory = file.read(backend, team);
  return read;
}

MedusaTotals check_medusa(const std::filesystem::path& path, const ModelConfig& target) {
  HeadTensors file(path);
  MedusaHeads unread;
  list_heads(file, target, unread);
  return {static_cast<int>(unread.heads.size()), file.checked_bytes()};
}

Medusa::Medusa(std::shared_ptr<const MedusaHeads> heads, const ModelConfig& target, Backend& backend,
               Activations activations, int max_rows)
    : heads_(std::move(heads)),
      target_(target),
      backend_(backend),
      ops_(backend.operations(activations, limits(this->heads(), target, max_rows))),
      max_rows_(max_rows),
      memory_(backend, memory_bytes(this->heads(), target, max_rows)) {
  const HeadsMemory m = carve_heads(this->heads(), target, max_rows, memory_.data());
  features_ = m.features;
  hidden_ = m.hidden;
  logits_ = m.logits;
}

size_t Medusa::memory_bytes(int heads, const ModelConfig& target, int max_rows) {
  return carve_heads(heads, target, max_rows, nullptr).bytes;
}

OperationLimits Medusa::limits(int heads, const ModelConfig& target, int max_rows) {
  return {.max_rows = max_rows,
          .inputs = {{max_rows * heads, target.hidden}},
          .forms = target.input_forms,
          .heads = {},
          .attention = {},
          .experts = {}};
}

std::span<float> Medusa::forward(const Rows& features, std::span<const int32_t> of, int count, const Linear& output) {
  const auto rows = static_cast<int>(of.size());
  assert(rows > 0 && rows <= max_rows_ && count > 0 && count <= heads() && output.weight.rows <= target_.vocab);
  const DiscardOnError guard(*ops_);
  // Row r * heads + k is head k of feature r, so the rows of one head are far apart.
  const auto of_head = [&](int k) {
    return Rows{hidden_.row(k), hidden_.cols, hidden_.stride * static_cast<size_t>(count)};
  };
  ops_->gather(features, of, features_);
  const Inputs in = ops_->prepare(features_, {}, rows, {&heads_->heads[0]});
  std::array<Projection, kMostHeads> projections;
  for (int k = 0; k < count; ++k) {
    ops_->copy(features_, of_head(k), rows);
    const auto head = static_cast<size_t>(k);
    projections[head] = {.w = &heads_->heads[head], .y = of_head(k), .f = Nonlinearity::kSilu, .accumulate = true};
  }
  ops_->project(in, std::span(projections).first(static_cast<size_t>(count)), rows);
  const Inputs hidden = ops_->prepare(hidden_, {}, rows * count, {&output});
  output_logits(*ops_, target_, hidden, output, rows * count, logits_.data);
  ops_->finish();
  const size_t numbers = static_cast<size_t>(rows * count) * static_cast<size_t>(output.weight.rows);
  return view_floats(backend_, logits_.data, numbers, host_logits_);
}

}  // namespace quire
