#include "speculate/network/head_tensors.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/backend.h"
#include "quant/blocks.h"

namespace quire {
namespace {

constexpr int kMostRows = 1 << 20;

std::string shape_text(std::span<const uint64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace

HeadTensors::HeadTensors(const std::filesystem::path& path) : file_(Safetensors::open(path)) {}

std::string HeadTensors::identity() const {
  uint64_t hash = 0;
  for (const TensorView& view : file_.tensors()) {
    hash = XXH3_64bits_withSeed(view.name.data(), view.name.size(), hash);
    hash = XXH3_64bits_withSeed(view.bytes.data(), view.bytes.size(), hash);
  }
  return fmt::format("{:016x}", hash);
}

const TensorView& HeadTensors::tensor(const std::string& name) {
  const TensorView* view = file_.find_tensor(name);
  if (!view) throw invalid("{}: tensor {} is missing", file(), name);
  used_.insert(name);
  if (view->type != TensorType::BF16 && view->type != TensorType::F16 && view->type != TensorType::F32)
    throw unsupported("{}: tensor {} has type {}; a head must have BF16, F16 or F32", file(), name,
                      quire::name(view->type));
  return *view;
}

const TensorView& HeadTensors::tensor(const std::string& name, const std::vector<uint64_t>& shape) {
  const TensorView& view = tensor(name);
  if (view.shape != shape)
    throw invalid("{}: tensor {} has shape {}, but for this target it must have {}", file(), name,
                  shape_text(view.shape), shape_text(shape));
  return view;
}

int HeadTensors::rows(const std::string& name, int cols) {
  const TensorView& view = tensor(name);
  if (view.shape.size() != 2 || view.shape[0] < 1 || view.shape[0] > kMostRows ||
      view.shape[1] != static_cast<uint64_t>(cols))
    throw invalid("{}: tensor {} has shape {}, but for this target it must have [1 to {}, {}]", file(), name,
                  shape_text(view.shape), kMostRows, cols);
  return static_cast<int>(view.shape[0]);
}

void HeadTensors::matrix(const std::string& name, int rows, int cols, Linear& to) {
  const TensorView& view = tensor(name, {static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)});
  MatrixJob job{&to.weight, {}, bytes_};
  job.from.source.name = name;
  job.from.file_rows = rows;
  job.from.type = view.type;
  job.from.bytes = view.bytes;
  to.weight = job.from.describe(rows, cols);
  bytes_ += to.weight.bytes();
  matrices_.push_back(std::move(job));
}

void HeadTensors::vector(const std::string& name, int size, Vector& to) {
  vectors_.push_back({&tensor(name, {static_cast<uint64_t>(size)}), &to});
}

void HeadTensors::check_all_used() const {
  for (const TensorView& view : file_.tensors()) {
    if (!used_.contains(view.name)) throw unsupported("{}: unexpected tensor {}", file(), view.name);
  }
}

uint64_t HeadTensors::checked_bytes() const {
  check_all_used();
  uint64_t bytes = bytes_;
  for (const VectorJob& job : vectors_) bytes += job.view->shape[0] * sizeof(float);
  return bytes;
}

BackendMemory HeadTensors::read(Backend& backend, Team& team) try {
  check_all_used();
  for (const VectorJob& job : vectors_) {
    std::vector<float> values(job.view->shape[0]);
    dequantize(job.view->type, job.view->bytes, values);
    const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
    if (bad != values.end())
      throw invalid("{}: tensor {} has the value {} at index {}; the file is damaged", file(), job.view->name, *bad,
                    bad - values.begin());
    *job.to = Vector(backend, values);
  }
  BackendMemory memory(backend, bytes_);
  pack_matrices(matrices_, backend, memory.data(), file(), file_.mappings(), team, {});
  check_unchanged(file_.mappings());
  return memory;
} catch (const Error&) {
  check_unchanged(file_.mappings());  // says it better
  throw;
}

}  // namespace quire
