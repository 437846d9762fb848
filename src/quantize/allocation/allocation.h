// Types for a model's groups of matrices, chosen by what each choice costs in the model's output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/tensor_type.h"
#include "model/convert/convert.h"
#include "quantize/allocation/tensor_groups.h"

namespace quire {

// A type that a group may get.
struct TypeChoice {
  TensorType type;
  uint64_t bytes = 0;     // of the group's tensors
  double error = 0;       // the squared error of the weights, weighted by the mean squares of their inputs; estimated
  double divergence = 0;  // mean KL of the model's output, in nats a token, if only this group is quantized
  bool measured = false;  // the divergence; otherwise it is that of a measured type, scaled by the errors
};

struct GroupAllocation {
  std::string name;
  std::vector<std::string> tensors;
  uint64_t elements = 0;
  std::vector<TypeChoice> choices;  // not empty; bytes rise and errors fall
  size_t chosen = 0;                // of choices

  const TypeChoice& choice() const { return choices[chosen]; }
};

struct Allocation {
  std::vector<GroupAllocation> groups;
  uint64_t elements = 0, other_bytes = 0;  // of all tensors; of those in no group
  std::string text;                        // that the divergence was measured on; empty: the model's own
  int chunks = 0, context = 0;             // of the text

  uint64_t bytes() const;
  double bits_per_weight() const;                                // of all tensors
  double divergence() const;                                     // the sum of the groups': an estimate of the file's
  std::map<std::string, TensorType, std::less<>> types() const;  // by the names of the tensors
};

// Chooses the types of the least divergence() within bits_per_weight, rounded down to bytes (choose_within). Throws Error
// if that is less than the smallest types take.
void allocate_bits(Allocation& allocation, double bits_per_weight);

// Removes choices that take no fewer bytes than another and lose no less; the rest is in the order of `choices`.
void remove_worse(std::vector<TypeChoice>& choices);

// Which of a group's choices to measure for a target of so many bits a weight: the largest within it and the next, or the
// two smallest; one if there is only one. Choices without error are not measured: nothing is lost.
std::vector<size_t> choices_to_measure(const GroupAllocation& group, double bits_per_weight);

// Sets the divergence of what was not measured: that of the measured choice whose error is nearest by ratio, times the
// ratio of the errors. For small errors the divergence is a quadratic form of the change of the weights, so it grows with
// the squared error of one kind of rounding.
void scale_divergences(GroupAllocation& group);

// Throws Error, which begins with `source`, unless the groups hold exactly the file's tensors whose types may be changed,
// and the chosen types fit them.
void check_allocation(const Allocation& allocation, const FilePlan& file, const std::string& source);

}  // namespace quire
