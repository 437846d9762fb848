// The tensors of one quantized module, found by the endings of their names, with their types and shapes checked.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/quantized/coded_matrix.h"

namespace quire {

template <class T>
T load_at(std::span<const std::byte> bytes, size_t index) {  // tensors may be unaligned
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

std::string shape_text(std::span<const uint64_t> shape);  // "[64, 128]"

constexpr uint64_t ceil_div(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

class ModuleTensors {
 public:
  using Types = std::initializer_list<TensorType>;
  using Shape = std::vector<uint64_t>;

  ModuleTensors(const std::string& file, const FindTensor& find, const CodedMatrixName& name)
      : file_(file), find_(find), name_(name) {}

  const std::string& file() const { return file_; }
  const CodedMatrixName& name() const { return name_; }
  uint64_t rows() const { return static_cast<uint64_t>(name_.rows); }
  uint64_t cols() const { return static_cast<uint64_t>(name_.cols); }

  // ending: with its dot, ".qweight".
  const TensorView* find(std::string_view ending) const { return find_(name_.module + std::string(ending)); }
  // Throws if the tensor is missing or of another type; its shape may be any of `shapes`.
  const TensorView& get(std::string_view ending, Types types, std::span<const Shape> shapes) const;
  const TensorView& get(std::string_view ending, Types types, std::initializer_list<Shape> shapes) const {
    return get(ending, types, std::span(shapes.begin(), shapes.size()));
  }
  const TensorView& get(std::string_view ending, Types types, const Shape& shape) const {
    return get(ending, types, std::span(&shape, 1));
  }
  const TensorView& get(std::string_view ending) const;  // whatever its type and shape

  // throw module.error(tensor, "has 3 rows, expected {}", n);
  template <class... A>
  Error error(const TensorView& tensor, fmt::format_string<A...> f, A&&... a) const {
    return invalid("{}: tensor {} {}", file_, tensor.name, fmt::format(f, std::forward<A>(a)...));
  }

 private:
  const std::string& file_;
  const FindTensor& find_;
  const CodedMatrixName& name_;
};

// A matrix's tensor for messages of readers, which outlive ModuleTensors.
struct TensorLabel {
  std::string file, tensor;
  TensorLabel(const ModuleTensors& module, const TensorView& view) : file(module.file()), tensor(view.name) {}
  // throw label.damaged("scale", value, row);
  Error damaged(std::string_view what, double value, int row) const {
    return invalid("{}: tensor {} has the {} {} for output {}; the file is damaged", file, tensor, what, value, row);
  }
};

bool is_plain(TensorType type);  // a float that needs no scale

}  // namespace quire
