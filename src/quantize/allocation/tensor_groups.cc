#include "quantize/allocation/tensor_groups.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/error.h"
#include "quantize/mixes.h"

namespace quire {
namespace {

// What matrices of a group have in common. The matrices of kAlone are groups of their own.
enum class GroupPart : uint8_t { kAlone, kKeys, kGate, kExpertGate, kSharedGate };

GroupPart group_part_of(const PlannedTensor& tensor) {
  if (tensor.layer < 0 || tensor.matrices.size() != 1) return GroupPart::kAlone;
  switch (tensor.matrices.front()) {
    case Tensor::kQ:
    case Tensor::kK:
    case Tensor::kDeltaQ:
    case Tensor::kDeltaK:
      return GroupPart::kKeys;
    case Tensor::kGate:
    case Tensor::kUp:
      return GroupPart::kGate;
    case Tensor::kExpertGate:
    case Tensor::kExpertUp:
      return GroupPart::kExpertGate;
    case Tensor::kSharedGate:
    case Tensor::kSharedUp:
      return GroupPart::kSharedGate;
    default:
      return GroupPart::kAlone;
  }
}

}  // namespace

std::string_view name_in_layer(std::string_view name) {
  if (name.ends_with(".weight")) name.remove_suffix(std::string_view(".weight").size());
  if (!name.starts_with("blk.")) return name;
  const size_t dot = name.find('.', std::string_view("blk.").size());
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::vector<TensorGroup> group_tensors(const FilePlan& file) {
  std::vector<TensorGroup> groups;
  std::map<std::pair<int, GroupPart>, size_t> places;
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    const PlannedTensor& tensor = file.tensors[i];
    if (!MixedTypes::may_change(tensor)) continue;
    const GroupPart part = group_part_of(tensor);
    const std::string name(name_in_layer(tensor.name));
    if (part != GroupPart::kAlone) {
      const auto [place, is_new] = places.emplace(std::pair(tensor.layer, part), groups.size());
      if (!is_new) {
        TensorGroup& group = groups[place->second];
        group.name += ", " + name;
        group.tensors.push_back(i);
        continue;
      }
    }
    groups.push_back({tensor.layer < 0 ? name : fmt::format("blk.{} {}", tensor.layer, name), {i}});
  }
  // Files order layers by their names: 1, 10, 11, 2.
  std::ranges::stable_sort(groups, {},
                           [&](const TensorGroup& group) { return file.tensors[group.tensors.front()].layer; });
  return groups;
}

}  // namespace quire
