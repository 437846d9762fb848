#include "speculate/medusa.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/blocks/blocks.h"
#include "speculate/head_tensors.h"

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
  Rows hidden, logits;
  InputMemory inputs;
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
  const int rows = max_rows * heads;
  const auto rows_of = [&](int cols, size_t stride) {
    auto* data = reinterpret_cast<float*>(part(static_cast<size_t>(rows) * stride * sizeof(float)));
    return Rows{data, cols, stride};
  };
  m.hidden = rows_of(target.hidden, row_stride(target.hidden));
  m.logits = rows_of(target.vocab, static_cast<size_t>(target.vocab));
  const InputMemory::Need need{rows, target.hidden};
  m.inputs = InputMemory(part(InputMemory::bytes({&need, 1}, target.input_forms)), {&need, 1}, target.input_forms);
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

MedusaHeads read_medusa(const std::filesystem::path& path, const ModelConfig& target, Team& team) {
  HeadTensors file(path);
  MedusaHeads read;
  list_heads(file, target, read);
  read.memory = file.read(team);
  return read;
}

MedusaTotals check_medusa(const std::filesystem::path& path, const ModelConfig& target) {
  HeadTensors file(path);
  MedusaHeads unread;
  list_heads(file, target, unread);
  return {static_cast<int>(unread.heads.size()), file.checked_bytes()};
}

Medusa::Medusa(MedusaHeads heads, const ModelConfig& target, const Compute& compute, int max_rows)
    : heads_(std::move(heads)),
      target_(target),
      compute_(compute),
      max_rows_(max_rows),
      memory_(memory_bytes(this->heads(), target, max_rows)) {
  const HeadsMemory m = carve_heads(this->heads(), target, max_rows, memory_.data());
  hidden_ = m.hidden;
  logits_ = m.logits;
  inputs_ = m.inputs;
}

size_t Medusa::memory_bytes(int heads, const ModelConfig& target, int max_rows) {
  return carve_heads(heads, target, max_rows, nullptr).bytes;
}

std::span<float> Medusa::forward(const Rows& features, int rows, int count, const Linear& output) {
  assert(rows > 0 && rows <= max_rows_ && count > 0 && count <= heads() && output.weight.rows <= target_.vocab);
  // Row r * heads + k is head k of feature r, so the rows of one head are far apart.
  const auto of_head = [&](int k) {
    return Rows{hidden_.row(k), hidden_.cols, hidden_.stride * static_cast<size_t>(count)};
  };
  const Inputs in = inputs_.prepare(compute_, features, {}, rows, {&heads_.heads[0]});
  std::array<Projection, kMostHeads> projections;
  for (int k = 0; k < count; ++k) {
    copy(compute_, features, of_head(k), rows);
    const auto head = static_cast<size_t>(k);
    projections[head] = {.w = &heads_.heads[head], .y = of_head(k), .f = Nonlinearity::kSilu, .accumulate = true};
  }
  project(compute_, in, std::span(projections).first(static_cast<size_t>(count)), rows);
  const Inputs hidden = inputs_.prepare(compute_, hidden_, {}, rows * count, {&output});
  return output_logits(compute_, target_, hidden, output, rows * count, logits_.data);
}

}  // namespace quire
