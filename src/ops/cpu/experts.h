// Mixtures of experts over a team. Rows are gathered by expert, so that the linears of an expert see all its rows at once;
// only the chosen experts' weights are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/cpu/compute.h"
#include "ops/cpu/linear.h"
#include "ops/experts.h"
#include "ops/operation_limits.h"

namespace quire {

// A step's routes, with memory for its largest step.
class ExpertRows {
 public:
  ExpertRows() = default;
  ExpertRows(int max_rows, const OperationLimits::Experts& limits);

  // As Operations::route(): chooses experts for each row and groups the rows by expert.
  void route(const Compute& compute, const RouteArgs& args, int rows);

  // Gathered rows [begin, end) go to the expert; begin is a multiple of kRowGroup.
  struct Expert {
    int expert, begin, end;
  };
  std::span<const Expert> experts() const { return experts_; }
  std::span<const int32_t> sources() const { return sources_; }  // for each gathered row: the row; -1: padding

  // target += the weighted results of each row's experts, in the order of their scores. results: gathered rows.
  void combine(const Compute& compute, const Rows& results, const Target& target, int rows) const;

  static int most_gathered(int max_rows, const OperationLimits::Experts& limits);
  static size_t memory_bytes(int max_rows, const OperationLimits::Experts& limits);

 private:
  int used_ = 0;
  std::vector<int32_t> chosen_;  // [rows][used]
  std::vector<float> weights_;   // [rows][used]
  std::vector<int32_t> places_;  // [rows][used]: gathered rows
  std::vector<int32_t> sources_;
  std::vector<int32_t> counts_;  // [experts]
  std::vector<Expert> experts_;
};

// The experts that an ExpertSource has in memory, with memory for all of a step. Without a source it is not used.
struct ExpertGroup {
  ExpertGroup() = default;
  ExpertGroup(int max_rows, const OperationLimits::Experts& limits);
  static size_t memory_bytes(int max_rows, const OperationLimits::Experts& limits);

  std::vector<int32_t> numbers;  // of all that the step's rows have chosen: what the source is asked for
  std::vector<ExpertRows::Expert> experts;
  std::vector<ExpertLinears> linears;  // of each of them, with the data of its matrices
  std::vector<int32_t> sources;        // as ExpertRows::sources(); -1 for the rows of other experts
};

// As Operations::run_experts(). inner, out: memory for the gathered rows, of the widest layer. Returns the bytes of weights
// that it has read.
uint64_t run_experts(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts,
                     const ExpertRows& routes, ExpertGroup& group, const Rows& inner, const Rows& out,
                     const ExpertArgs& args, int rows);

}  // namespace quire
