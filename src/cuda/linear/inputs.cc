#include "cuda/linear/inputs.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cuda/kernels/inputs_in_registers.h"
#include "quire/error.h"

namespace quire::cuda {
namespace {

constexpr size_t whole_lines(size_t bytes) { return (bytes + 255) / 256 * 256; }

// What is prepared, but for the target and the transform.
struct PreparedFrom {
  const Rows& x;
  float threshold;  // Linear::threshold
  NormView norm{};
  GatheredRows gathered{};
  int x_step = 0, out_step = 0;
};

NormedRows normed_rows(const Rows& x, const NormView& norm, int x_step) {
  const auto at_sixteen = [](const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; };
  const bool normed = norm.kind != NormKind::kNone;
  return {.x = {x.data, x.stride},
          .weight = normed ? norm.weight : nullptr,
          .bias = normed ? norm.bias : nullptr,
          .cols = x.cols,
          .epsilon = norm.epsilon,
          .norm = norm.kind,
          .aligned = at_sixteen(x.data) && x.stride % 4 == 0 && x_step % 4 == 0 && at_sixteen(norm.weight) &&
                     at_sixteen(norm.bias)};
}

template <Activations kForm, int kHeld>
void launch_held(Stream& stream, const PreparedFrom& from, const Inputs::Entry& to, int rows, int heads) {
  using Kernel = PrepareHeldInputs<kForm, kHeld>;
  const int blocks = (from.x.cols + kBlockInputs - 1) / kBlockInputs;
  stream.launch({.x = rows,
                 .y = heads,
                 .threads = std::min(Kernel::kThreads, (4 * blocks + 31) / 32 * 32),
                 .shared_bytes = kReducedFloats * static_cast<int>(sizeof(float))},
                Kernel{.rows = normed_rows(from.x, from.norm, from.x_step),
                       .x_step = from.x_step,
                       .out_step = from.out_step,
                       .out_stride = static_cast<int32_t>(to.stride),
                       .threshold = from.threshold,
                       .out = reinterpret_cast<uint8_t*>(to.data),
                       .sources = from.gathered.sources,
                       .end = from.gathered.end,
                       .in_place = from.gathered.in_place});
}

template <Activations kForm>
void launch_form(Stream& stream, const PreparedFrom& from, const TransformView& transform, bool rotated, bool by_matrix,
                 const Inputs::Entry& to, int rows, int heads) {
  const bool transformed = transform.size != 0 || transform.order != nullptr || transform.factors != nullptr ||
                           from.gathered.transforms != nullptr;
  const int cols = from.x.cols;
  if (!transformed && cols <= PrepareHeldInputs<kForm, 1>::kMostCols)
    return launch_held<kForm, 1>(stream, from, to, rows, heads);
  if (!transformed && cols <= PrepareHeldInputs<kForm, 2>::kMostCols)
    return launch_held<kForm, 2>(stream, from, to, rows, heads);
  using Kernel = PrepareInputs<kForm>;
  const int shared_bytes = Kernel::shared_bytes(rotated, by_matrix, from.x.cols);
  if (shared_bytes > stream.facts().shared_bytes)
    throw Error(ErrorKind::kUnsupported, "a rotation of " + std::to_string(from.x.cols) + " inputs takes " +
                                             std::to_string(shared_bytes) + " bytes of shared memory, and a block of " +
                                             stream.facts().name + " can have " +
                                             std::to_string(stream.facts().shared_bytes));
  Kernel kernel{.x = from.x.data,
                .x_stride = static_cast<int64_t>(from.x.stride),
                .cols = from.x.cols,
                .x_step = from.x_step,
                .out_step = from.out_step,
                .out_stride = static_cast<int32_t>(to.stride),
                .out = reinterpret_cast<uint8_t*>(to.data),
                .norm = from.norm.kind,
                .epsilon = from.norm.epsilon,
                .weight = from.norm.kind == NormKind::kNone ? nullptr : from.norm.weight,
                .bias = from.norm.kind == NormKind::kNone ? nullptr : from.norm.bias,
                .transform = transform,
                .gathered = from.gathered,
                .threshold = from.threshold};
  stream.launch({.x = rows, .y = heads, .threads = Kernel::kThreads, .shared_bytes = shared_bytes}, kernel);
}

void launch_prepare(Stream& stream, const PreparedFrom& from, const TransformView& transform, bool rotated,
                    bool by_matrix, const Inputs::Entry& to, int rows, int heads = 1) {
  assert(has_input_form(to.form));
  const auto run = [&](const auto& launch) { launch(stream, from, transform, rotated, by_matrix, to, rows, heads); };
  switch (to.form) {
    case Activations::kF32:
      return run(launch_form<Activations::kF32>);
    case Activations::kBf16:
      return run(launch_form<Activations::kBf16>);
    case Activations::kInt8:
      return run(launch_form<Activations::kInt8>);
    case Activations::kFp8:
      return run(launch_form<Activations::kFp8>);
    default:
      return run(launch_form<Activations::kInt8Row>);
  }
}

void launch_prepare(Stream& stream, const PreparedFrom& from, const TransformView& transform, const Inputs::Entry& to,
                    int rows, int heads = 1) {
  launch_prepare(stream, from, transform, transform.size != 0, transform.matrix != nullptr, to, rows, heads);
}

// Whether kernels can prepare these rows themselves, in the order of PrepareHeldInputs.
bool can_be_late(const NormView& norm, int cols, int rows, std::span<const Linear* const> linears,
                 const std::optional<Activations>& as, Activations mode) {
  constexpr int kMostCols = PrepareHeldInputs<Activations::kBf16, 2>::kMostCols;
  return rows <= LateInputs::kMostRows && cols <= kMostCols && norm.kind != NormKind::kLayer &&
         std::ranges::all_of(linears, [&](const Linear* w) {
           return !w->transform && as.value_or(input_form(mode, *w)) == Activations::kBf16;
         });
}

}  // namespace

NormedRows LateInputs::rows() const { return normed_rows(x, norm, 0); }

void LateInputs::launch(Stream& stream) {
  launch_prepare(stream, {.x = x, .threshold = 0, .norm = norm}, {}, to, count);
  to.data = nullptr;
}

InputBuffers::Regions InputBuffers::regions_of(std::span<const Need> needs, const InputForms& forms) {
  Regions r;
  for (const Need& need : needs) {
    const size_t rows = padded_rows(need.rows);
    r.bf16 = std::max(r.bf16, whole_lines(rows * prepared_stride(Activations::kBf16, need.cols)));
    r.floats = std::max(r.floats, whole_lines(rows * prepared_stride(Activations::kF32, need.cols)));
    r.int8 = std::max(r.int8, whole_lines(rows * prepared_stride(Activations::kInt8, need.cols)));
    r.int8_rows = std::max(r.int8_rows, whole_lines(rows * prepared_stride(Activations::kInt8Row, need.cols)));
  }
  if (!forms.int8_rows) r.int8_rows = 0;
  r.transformed = forms.transforms ? r.floats : 0;  // the largest form
  return r;
}

size_t InputBuffers::bytes(std::span<const Need> needs, const InputForms& forms) {
  const Regions r = regions_of(needs, forms);
  return r.bf16 + r.floats + r.int8 + r.int8_rows + r.transformed * kMostTransforms;
}

InputBuffers::InputBuffers(Device& device, std::span<const Need> needs, const InputForms& forms) : device_(device) {
  const size_t all = bytes(needs, forms);
  if (all == 0) return;
  const Regions r = regions_of(needs, forms);
  memory_ = device_.allocate(all);
  bf16_ = memory_;
  floats_ = bf16_ + r.bf16;
  int8_ = floats_ + r.floats;
  int8_rows_ = int8_ + r.int8;
  transformed_ = int8_rows_ + r.int8_rows;
  transformed_bytes_ = r.transformed;
}

InputBuffers::~InputBuffers() {
  for (const auto& [transform, uploaded] : transforms_) device_.free(uploaded.memory);
  if (memory_) device_.free(memory_);
}

std::byte* InputBuffers::region(Activations form) const {
  switch (form) {
    case Activations::kF32:
      return floats_;
    case Activations::kBf16:
      return bf16_;
    case Activations::kInt8:
    case Activations::kFp8:  // no step has both, and these rows are smaller
      return int8_;
    default:
      return int8_rows_;
  }
}

TransformView InputBuffers::view(const std::shared_ptr<const InputTransform>& transform) {
  if (!transform) return {};
  const auto found = transforms_.find(transform.get());
  if (found != transforms_.end()) return found->second.view;
  const InputTransform& t = *transform;
  std::vector<std::byte> bytes;
  const auto add = [&bytes](const auto& values) {
    const size_t at = bytes.size();
    bytes.resize(whole_lines(at + values.size() * sizeof(values[0])));
    if (!values.empty()) std::memcpy(bytes.data() + at, values.data(), values.size() * sizeof(values[0]));
    return at;
  };
  const size_t factors = add(t.factors), order = add(t.order), signs = add(t.rotation.signs),
               matrix = add(t.rotation.matrix);
  Uploaded uploaded{transform, {}, device_.allocate(std::max<size_t>(bytes.size(), 256))};
  std::byte* const memory = uploaded.memory;
  if (!bytes.empty()) device_.upload(memory, bytes.data(), bytes.size());
  TransformView& v = uploaded.view;
  const auto floats = [memory](size_t at) { return reinterpret_cast<const float*>(memory + at); };
  if (!t.factors.empty()) v.factors = floats(factors);
  if (!t.order.empty()) v.order = reinterpret_cast<const int32_t*>(memory + order);
  if (!t.rotation.signs.empty()) v.signs = floats(signs);
  if (!t.rotation.matrix.empty()) v.matrix = floats(matrix);
  v.size = t.rotation.size;
  if (v.size != 0) v.scale = 1.0f / std::sqrt(static_cast<float>(v.size));
  v.signs_last = t.rotation.signs_last ? 1 : 0;
  return transforms_.emplace(transform.get(), std::move(uploaded)).first->second.view;
}

Inputs InputBuffers::prepare(Stream& stream, Activations mode, const Rows& x, const NormView& norm, int rows,
                             std::initializer_list<const Linear*> linears, std::optional<Activations> as,
                             bool may_be_late) {
  Inputs inputs;
  late_ = {};
  if (may_be_late && can_be_late(norm, x.cols, rows, linears, as, mode)) {
    constexpr Activations kForm = Activations::kBf16;
    late_.to = *inputs.add({kForm, nullptr, region(kForm), prepared_stride(kForm, x.cols)});
    late_.x = x, late_.norm = norm, late_.count = rows;
    return inputs;
  }
  size_t transforms = 0;
  for (const Linear* w : linears) {
    const Activations form = as.value_or(input_form(mode, *w));
    const size_t stride = prepared_stride(form, x.cols);
    assert(!w->transform || transforms < kMostTransforms);
    std::byte* const memory = w->transform ? transformed_ + transforms * transformed_bytes_ : region(form);
    const Inputs::Entry* to = inputs.add({form, w->transform.get(), memory, stride});
    if (!to) continue;
    if (w->transform) ++transforms;
    launch_prepare(stream, {.x = x, .threshold = w->threshold, .norm = norm}, view(w->transform), *to, rows);
  }
  return inputs;
}

Inputs InputBuffers::prepare_gathered(Stream& stream, Activations form, const Linear& any, const Rows& x,
                                      const GatheredRows& gathered, int most, bool rotated, bool by_matrix) {
  Inputs inputs;
  late_ = {};
  const Inputs::Entry to = *inputs.add({form, nullptr, region(form), prepared_stride(form, x.cols)});
  launch_prepare(stream, {.x = x, .threshold = any.threshold, .gathered = gathered}, {}, rotated, by_matrix, to, most);
  return inputs;
}

InputBuffers::HeadInputs InputBuffers::prepare_heads(Stream& stream, Activations mode, const HeadProjections& heads,
                                                     int rows) {
  const Linear& any = heads.matrices[0];
  const int cols = any.weight.cols;
  HeadInputs inputs{{}, head_rows(1, rows)};
  late_ = {};
  const Activations form = input_form(mode, any);
  const Inputs::Entry to = *inputs.first.add({form, nullptr, region(form), prepared_stride(form, cols)});
  const Rows columns = heads.x.columns(0, cols);
  const PreparedFrom from{
      .x = columns, .threshold = any.threshold, .x_step = heads.x_step, .out_step = inputs.padded_rows};
  launch_prepare(stream, from, view(any.transform), to, rows, static_cast<int>(heads.matrices.size()));
  return inputs;
}

}  // namespace quire::cuda
