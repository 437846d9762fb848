#include "quantize/allocation/allocation.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/text/quote.h"
#include "quant/encode.h"
#include "quantize/allocation/knapsack.h"
#include "quantize/mixes.h"

namespace quire {
namespace {

double bits_each(uint64_t bytes, uint64_t elements) {
  return 8 * static_cast<double>(bytes) / static_cast<double>(std::max<uint64_t>(1, elements));
}

}  // namespace

uint64_t Allocation::bytes() const {
  uint64_t sum = other_bytes;
  for (const GroupAllocation& group : groups) sum += group.choice().bytes;
  return sum;
}

double Allocation::bits_per_weight() const { return bits_each(bytes(), elements); }

double Allocation::divergence() const {
  double sum = 0;
  for (const GroupAllocation& group : groups) sum += group.choice().divergence;
  return sum;
}

std::map<std::string, TensorType, std::less<>> Allocation::types() const {
  std::map<std::string, TensorType, std::less<>> types;
  for (const GroupAllocation& group : groups) {
    for (const std::string& tensor : group.tensors) types.emplace(tensor, group.choice().type);
  }
  return types;
}

void allocate_bits(Allocation& allocation, double bits_per_weight) {
  std::vector<std::vector<KnapsackItem>> lists;
  uint64_t least = allocation.other_bytes;
  for (const GroupAllocation& group : allocation.groups) {
    std::vector<KnapsackItem>& list = lists.emplace_back();
    for (const TypeChoice& choice : group.choices) list.push_back({choice.bytes, choice.divergence});
    least += std::ranges::min_element(group.choices, {}, &TypeChoice::bytes)->bytes;
  }
  const auto budget = static_cast<uint64_t>(bits_per_weight * static_cast<double>(allocation.elements) / 8);
  const auto chosen =
      budget < allocation.other_bytes ? std::nullopt : choose_within(lists, budget - allocation.other_bytes);
  if (!chosen)
    throw invalid("--target-bpw {:g} is too low: the smallest types of all matrices take {:.4f} bits a weight",
                  bits_per_weight, bits_each(least, allocation.elements) + 5e-5);
  for (size_t i = 0; i < chosen->size(); ++i) allocation.groups[i].chosen = (*chosen)[i];
}

void remove_worse(std::vector<TypeChoice>& choices) {
  std::ranges::stable_sort(choices, [](const TypeChoice& a, const TypeChoice& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.error < b.error;
  });
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(choices, [&](const TypeChoice& choice) {
    if (choice.error >= least) return true;
    least = choice.error;
    return false;
  });
}

std::vector<size_t> choices_to_measure(const GroupAllocation& group, double bits_per_weight) {
  std::vector<size_t> lossy;
  for (size_t i = 0; i < group.choices.size(); ++i) {
    if (group.choices[i].error > 0) lossy.push_back(i);
  }
  if (lossy.size() <= 2) return lossy;
  size_t first = 0;
  while (first + 2 < lossy.size() &&
         bits_each(group.choices[lossy[first + 1]].bytes, group.elements) <= bits_per_weight)
    ++first;
  return {lossy[first], lossy[first + 1]};
}

void scale_divergences(GroupAllocation& group) {
  for (TypeChoice& choice : group.choices) {
    if (choice.measured) continue;
    choice.divergence = 0;
    if (choice.error <= 0) continue;
    double nearest = std::numeric_limits<double>::infinity();
    for (const TypeChoice& measured : group.choices) {
      if (!measured.measured || measured.error <= 0) continue;
      const double ratio = choice.error / measured.error, distance = std::abs(std::log(ratio));
      if (distance >= nearest) continue;
      nearest = distance;
      choice.divergence = measured.divergence * ratio;
    }
    assert(std::isfinite(nearest));
  }
}

void check_allocation(const Allocation& allocation, const FilePlan& file, const std::string& source) {
  const auto types = allocation.types();
  std::set<std::string, std::less<>> unused;
  for (const auto& [name, type] : types) unused.insert(name);
  for (const PlannedTensor& tensor : file.tensors) {
    if (!MixedTypes::may_change(tensor)) continue;
    const auto found = types.find(tensor.name);
    if (found == types.end())
      throw invalid("{} is another model's plan: it has no type for {}", source, quote(tensor.name));
    const TensorType type = found->second;
    if (type != tensor.type && !is_writable(type))
      throw invalid("{}: {} cannot be written as {}", source, quote(tensor.name), name(type));
    if (tensor.cols() % info(type).block_elements != 0)
      throw invalid("{}: {} has rows of {}, which are no whole blocks of {}; {} needs a multiple of {}", source,
                    quote(tensor.name), tensor.cols(), name(type), name(type), info(type).block_elements);
    unused.erase(tensor.name);
  }
  if (!unused.empty())
    throw invalid("{} is another model's plan: {} is no matrix of this one that can be quantized", source,
                  quote(*unused.begin()));
}

}  // namespace quire
