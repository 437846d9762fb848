#include "model/quantized/group_order.h"

#include <algorithm>

namespace quire {

GroupOrder read_group_order(const ModuleTensors& module, std::string_view ending, int group, bool required) {
  if (!required && !module.find(ending)) return {};
  const TensorView& tensor =
      module.get(ending, {TensorType::I32, TensorType::I64}, ModuleTensors::Shape{module.cols()});
  const int cols = module.name().cols, groups = (cols + group - 1) / group;
  // A copy: the file may change after the check.
  std::vector<int64_t> group_of(module.cols());
  for (size_t i = 0; i < group_of.size(); ++i)
    group_of[i] =
        tensor.type == TensorType::I32 ? load_at<int32_t>(tensor.bytes, i) : load_at<int64_t>(tensor.bytes, i);
  // compressed-tensors writes -1 where it did not order.
  if (std::ranges::all_of(group_of, [](int64_t g) { return g == -1; })) return {};
  // A counting sort, which keeps the order within a group.
  std::vector<int> counts(static_cast<size_t>(groups));
  bool in_order = true;
  for (int i = 0; i < cols; ++i) {
    const int64_t g = group_of[static_cast<size_t>(i)];
    if (g < 0 || g >= groups)
      throw module.error(tensor, "has input {} in group {}, but there are {} groups of {}", i, g, groups, group);
    ++counts[static_cast<size_t>(g)];
    in_order = in_order && g == i / group;
  }
  for (int g = 0; g < groups; ++g) {
    const int size = std::min(group, cols - g * group), count = counts[static_cast<size_t>(g)];
    if (count != size) throw module.error(tensor, "has {} inputs in group {}, expected {}", count, g, size);
  }
  if (in_order) return {};
  GroupOrder order;
  order.permutation.resize(static_cast<size_t>(cols));
  order.slots.resize(static_cast<size_t>(cols));
  std::vector<int> next(static_cast<size_t>(groups));
  for (int i = 0; i < cols; ++i) {
    const auto g = static_cast<size_t>(group_of[static_cast<size_t>(i)]);
    const int slot = static_cast<int>(g) * group + next[g]++;
    order.permutation[static_cast<size_t>(slot)] = i;
    order.slots[static_cast<size_t>(i)] = slot;
  }
  return order;
}

}  // namespace quire
