// The speed of linears on a device, without a model:
//
//   bench_linear [DEVICE [TYPE[/ACTIVATIONS][,...] [ROWS[,ROWS...] [HIDDEN INNER]]]]
//
// DEVICE: as for --device (cuda); TYPE: as GGUF writes it (BF16, Q4_0), FP8: E4M3 with a scale for 128 inputs, or W8A8: int8 with a scale
// for each output, made for int8 inputs; ACTIVATIONS: as for --activations (bf16). Prints, for the
// linears of a layer of Llama's 8B shape, or of another, the time of a call, the bytes of weights per second and the products. Weights take turns, so that they come from memory. Then
// compares rows that were computed one by one with the same rows in steps of 8, 64 and 300, bit for bit. A device that chooses between kernels
// (Backend::tune()) then measures them, and both is done again with those that it chose.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/team.h"
#include "base/tensor_type.h"
#include "bench/device_bench.h"
#include "engine/device.h"
#include "engine/dtype_names.h"
#include "ops/backend.h"
#include "ops/cpu/cpu_backend.h"
#include "quant/synthetic.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> words(std::string_view list) {
  std::vector<std::string> found;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    found.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return found;
}

struct WeightType {
  std::optional<TensorType> type;  // nullopt: FP8 or W8A8
  Codes codes = Codes::kE4M3;      // of these
};

WeightType type_named(std::string_view name) {
  if (name == "FP8") return {};
  if (name == "W8A8") return {{}, Codes::kI8};
  if (const auto type = tensor_type_from_name(name)) return {type};
  throw invalid("{} is not a type of weights; use FP8, W8A8, or one that GGUF knows, such as BF16 or Q4_0", name);
}

PackedMatrix describe(const WeightType& of, int rows, int cols) {
  if (of.type) return describe_packed(*of.type, rows, cols);
  const int group = of.codes == Codes::kE4M3 ? 128 : cols;
  return describe_packed(PanelFormat{.codes = of.codes, .scale = ScaleKind::kF32, .group = group}, 1, rows, cols);
}

// Random codes; those of FP8 are below 2 in magnitude.
void fill_bytes(const PackedMatrix& w, uint32_t seed, std::span<std::byte> to) {
  std::mt19937 random(seed);
  for (int p = 0; p < w.panels(); ++p) {
    const auto panel = to.subspan(static_cast<size_t>(p) * w.layout.bytes, w.layout.bytes);
    const auto scales = panel.subspan(w.layout.scales, w.layout.codes - w.layout.scales);
    std::ranges::fill(std::span(reinterpret_cast<float*>(scales.data()), scales.size() / sizeof(float)), 0.02f);
    const uint32_t bits = w.format.codes == Codes::kE4M3 ? 0xB7 : 0xFF;
    for (std::byte& code : panel.subspan(w.layout.codes)) code = static_cast<std::byte>(random() & bits);
  }
}

Activations activations_named(std::string_view name) {
  if (const auto activations = find_value(kActivationsNames, name)) return *activations;
  throw invalid("{} is not a type of activations; use bf16, f32, int8 or fp8", name);
}

// One call of project(): matrices of so many outputs that share their inputs.
struct Shape {
  const char* name;
  std::vector<int> outputs;
  int cols;
  bool gated = false;
};

class Bench {
 public:
  Bench(Backend& backend, const WeightType& type, Activations activations, const Shape& shape, int most_rows,
        size_t in_turn)
      : backend_(backend), shape_(shape), most_rows_(most_rows) {
    size_t bytes = 0;
    for (const int outputs : shape.outputs) bytes += describe(type, outputs, shape.cols).bytes();
    weight_bytes_ = bytes * (shape.gated ? 2 : 1);
    const size_t copies = in_turn / weight_bytes_ + 1;
    for (size_t copy = 0; copy < copies; ++copy) {
      for (size_t k = 0; k < shape.outputs.size() * (shape.gated ? 2 : 1); ++k) add_matrix(type, k, copy);
    }
    OperationLimits limits;
    limits.max_rows = most_rows;
    limits.max_positions = most_rows;
    limits.inputs = {{most_rows, shape.cols}};
    limits.forms.int8_rows = linears_[0].int8_rows;
    operations_ = backend.operations(activations, limits);
    x_ = BackendMemory(backend, rows_bytes(shape.cols));
    backend.write(x_.data(), x_.size(), [](std::span<std::byte> host) {
      std::mt19937 random(1);
      std::normal_distribution<float> normal;
      for (float& x : std::span(reinterpret_cast<float*>(host.data()), host.size() / sizeof(float))) x = normal(random);
    });
    for (const int outputs : shape.outputs) y_.emplace_back(backend, rows_bytes(outputs));
  }

  // Prints what the device chooses. Whether it has a choice.
  bool tune(Activations activations) {
    if (backend_.tuned_as().empty()) return false;
    std::vector<TunedProjection> projections;
    const size_t matrices = shape_.outputs.size();
    for (size_t first = 0; first < linears_.size(); first += shape_.gated ? 2 : matrices) {
      projections.emplace_back();
      for (size_t k = 0; k < matrices; ++k) projections.back().matrices.push_back(&linears_[first + k]);
      if (shape_.gated) projections.back().up = &linears_[first + 1];
    }
    for (const auto& [kind, kernel] : backend_.tune(projections, activations, most_rows_, {}, {}))
      std::printf("  %s: %s\n", kind.c_str(), kernel.c_str());
    return true;
  }

  void measure(int rows) {
    const int kSteps = 5, calls = rows > 256 ? 4 : 24;
    double best = 1e9;
    for (int step = 0; step < kSteps; ++step) {
      const auto begin = Clock::now();
      const Inputs x = prepare(0, rows);
      for (int call = 0; call < calls; ++call) project(x, 0, rows, call);
      operations_->finish();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count() / calls);
    }
    double products = 0;
    for (const int outputs : shape_.outputs)
      products += double{2} * rows * outputs * shape_.cols * (shape_.gated ? 2 : 1);
    std::printf("%-8s %5d rows: %9.1f us %8.1f GB/s %8.1f Tflop/s\n", shape_.name, rows, best * 1e6,
                static_cast<double>(weight_bytes_) / best * 1e-9, products / best * 1e-12);
    std::fflush(stdout);
  }

  // Whether rows have the same bits alone and with `rows` - 1 others.
  bool same_alone(int rows) {
    clear();
    project(prepare(0, rows), 0, rows, 0);
    operations_->finish();
    const auto together = results();
    clear();
    const int step = rows > 64 ? 7 : 1;
    for (int row = 0; row < rows; row += step) {
      project(prepare(row, 1), row, 1, 0);
      operations_->finish();
    }
    const auto alone = results();
    for (size_t k = 0; k < y_.size(); ++k) {
      const size_t stride = row_stride(shape_.outputs[k]), used = static_cast<size_t>(shape_.outputs[k]);
      for (int row = 0; row < rows; row += step) {
        const size_t at = static_cast<size_t>(row) * stride * sizeof(float);
        if (std::memcmp(&together[k][at], &alone[k][at], used * sizeof(float)) != 0) return false;
      }
    }
    return true;
  }

 private:
  size_t rows_bytes(int cols) const { return static_cast<size_t>(most_rows_) * row_stride(cols) * sizeof(float); }
  static Rows rows_of(const BackendMemory& memory, int cols) {
    return {reinterpret_cast<float*>(memory.data()), cols, row_stride(cols)};
  }

  void add_matrix(const WeightType& type, size_t k, size_t copy) {
    const int outputs = shape_.outputs[k % shape_.outputs.size()];
    Linear linear;
    linear.weight = describe(type, outputs, shape_.cols);
    linear.int8_rows = takes_int8_rows(linear.weight) && !type.type;
    memory_.emplace_back(backend_, linear.weight.bytes());
    linear.weight.data = memory_.back().data();
    if (copy == 0) {
      std::vector<std::byte> source;
      if (type.type) source = synthetic_matrix(*type.type, outputs, shape_.cols, 0.02f, k);
      backend_.write(memory_.back().data(), memory_.back().size(), [&](std::span<std::byte> host) {
        if (!type.type) return fill_bytes(linear.weight, static_cast<uint32_t>(k), host);
        pack_panels(linear.weight, *type.type, source, host.data(), 0, linear.weight.panels());
      });
    } else {
      const size_t like = linears_.size() % (shape_.outputs.size() * (shape_.gated ? 2 : 1));
      backend_.copy(memory_.back().data(), linears_[like].weight.data, memory_.back().size());
    }
    linears_.push_back(linear);
  }

  Inputs prepare(int row, int rows) {
    return operations_->prepare(rows_of(x_, shape_.cols).from(row), {}, rows, {&linears_[0]}, {});
  }
  void project(const Inputs& x, int row, int rows, int call) {
    const size_t matrices = shape_.outputs.size(), each = matrices * (shape_.gated ? 2 : 1);
    const size_t first = static_cast<size_t>(call) * each % linears_.size();
    std::vector<Projection> list;
    for (size_t k = 0; k < matrices; ++k) {
      list.push_back({.w = &linears_[first + k], .y = rows_of(y_[k], shape_.outputs[k]).from(row)});
      if (shape_.gated) list.back().up = &linears_[first + matrices + k], list.back().f = Nonlinearity::kSilu;
    }
    operations_->project(x, list, rows);
  }

  void clear() {
    for (const BackendMemory& y : y_) {
      backend_.write(y.data(), y.size(),
                     [](std::span<std::byte> host) { std::memset(host.data(), 0xFF, host.size()); });
    }
  }
  std::vector<std::vector<std::byte>> results() {
    std::vector<std::vector<std::byte>> all;
    for (const BackendMemory& y : y_) {
      HostCopy copy;
      const auto bytes = backend_.view(y.data(), y.size(), copy);
      all.emplace_back(bytes.begin(), bytes.end());
    }
    return all;
  }

  Backend& backend_;
  const Shape shape_;
  const int most_rows_;
  size_t weight_bytes_ = 0;
  std::vector<BackendMemory> memory_, y_;
  std::vector<Linear> linears_;
  BackendMemory x_;
  std::unique_ptr<Operations> operations_;
};

int run(std::span<char* const> args) {
  Team team(1);
  CpuBackend cpu("auto", team);
  const std::unique_ptr<Backend> device = open_device(args.size() > 1 ? args[1] : "cuda", cpu);
  Backend& backend = device ? *device : static_cast<Backend&>(cpu);
  // On a processor, to see that this program works.
  const int hidden = args.size() > 5 ? std::atoi(args[4]) : device ? 4096 : 256;
  const int inner = args.size() > 5 ? std::atoi(args[5]) : device ? 14336 : 1024;
  std::vector<int> rows;
  for (const std::string& n : words(args.size() > 3 ? args[3] : device ? "1,8,64,512,4096" : "1,8"))
    rows.push_back(std::atoi(n.c_str()));
  const int most = std::max(300, *std::max_element(rows.begin(), rows.end()));
  const std::vector<Shape> shapes = {{"qkv", {hidden, hidden / 4, hidden / 4}, hidden},
                                     {"out", {hidden}, hidden},
                                     {"gate_up", {inner}, hidden, true},
                                     {"down", {hidden}, inner}};
  bool same = true;
  for (const std::string& name : words(args.size() > 2 ? args[2] : "BF16,Q4_0,Q4_0/int8,Q8_0/int8")) {
    std::printf("%s\n", name.c_str());
    const size_t slash = std::min(name.find('/'), name.size());
    const WeightType type = type_named(std::string_view(name).substr(0, slash));
    const Activations activations =
        slash < name.size() ? activations_named(std::string_view(name).substr(slash + 1)) : Activations::kBf16;
    for (const Shape& shape : shapes) {
      Bench bench(backend, type, activations, shape, most, device ? size_t{300} << 20 : 0);
      const auto measure = [&] {
        for (const int n : rows) bench.measure(n);
        for (const int n : {8, 64, 300}) {
          if (bench.same_alone(n)) continue;
          std::printf("%s %s: rows alone and among %d have DIFFERENT bits\n", name.c_str(), shape.name, n);
          same = false;
        }
      };
      measure();
      if (bench.tune(activations)) measure();
    }
  }
  if (same) std::printf("rows alone and together have the same bits\n");
  return same ? 0 : 1;
}

}  // namespace
}  // namespace quire

int main(int count, char** arguments) { return quire::run_bench(count, arguments, quire::run); }
