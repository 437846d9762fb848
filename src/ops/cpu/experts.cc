#include "ops/cpu/experts.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "kernels/kernels.h"
#include "kernels/rows.h"
#include "ops/communicator.h"
#include "ops/cpu/rows.h"

namespace quire {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// The index of the largest number; the lowest of equals. NaN is never chosen while there is a number.
int largest(std::span<const float> x) {
  int best = 0;
  for (size_t i = 1; i < x.size(); ++i) {
    if (x[i] > x[static_cast<size_t>(best)] || x[static_cast<size_t>(best)] != x[static_cast<size_t>(best)])
      best = static_cast<int>(i);
  }
  return best;
}

float group_score(std::span<const float> x, bool by_two) {
  float first = kExcluded, second = kExcluded;
  for (const float value : x) {
    if (value > first) {
      second = first;
      first = value;
    } else if (value > second) {
      second = value;
    }
  }
  return by_two && x.size() > 1 ? first + second : first;
}

// Excludes the experts of all but the best groups.
void limit_groups(const Routing& r, std::span<float> choice) {
  const auto size = static_cast<size_t>(r.experts / r.groups);
  // Groups are few: the best are found by marking one after the other.
  for (int excluded = r.groups - r.groups_used; excluded > 0; --excluded) {
    size_t worst = 0;
    float lowest = std::numeric_limits<float>::infinity();
    for (size_t g = 0; g < static_cast<size_t>(r.groups); ++g) {
      const auto group = choice.subspan(g * size, size);
      const float score = group_score(group, r.group_by_two);
      if (score > kExcluded && score <= lowest) {
        lowest = score;
        worst = g;
      }
    }
    std::ranges::fill(choice.subspan(worst * size, size), kExcluded);
  }
}

// Scores::kSoftmaxOfNear.
void choose_among_near(const KernelSet& kernels, const Routing& r, std::span<const float> scores,
                       std::span<float> choice, int32_t* chosen, float* weights) {
  for (int i = 0; i < r.used; ++i) {
    std::ranges::copy(scores, choice.begin());
    for (int before = 0; before < i; ++before) choice[static_cast<size_t>(chosen[before])] = kExcluded;
    chosen[i] = largest(choice);
    const float best = choice[static_cast<size_t>(chosen[i])];
    for (size_t e = 0; e < choice.size(); ++e) {
      if ((best - scores[e]) / std::max(std::abs(scores[e]), best) > r.nearness) choice[e] = kExcluded;
    }
    kernels.softmax(choice.data(), r.experts);
    weights[i] = choice[static_cast<size_t>(chosen[i])];
  }
}

// One row. choice: memory for `experts` numbers.
void choose(const KernelSet& kernels, const Routing& r, const float* correction, float* scores, std::span<float> choice,
            int32_t* chosen, float* weights) {
  if (r.scores == Routing::Scores::kSoftmaxOfNear)
    return choose_among_near(kernels, r, {scores, choice.size()}, choice, chosen, weights);
  const std::span<float> all(scores, static_cast<size_t>(r.experts));
  if (r.scores == Routing::Scores::kSoftmax) kernels.softmax(scores, r.experts);
  if (r.scores == Routing::Scores::kSigmoid) kernels.sigmoid(scores, r.experts);
  std::ranges::copy(all, choice.begin());
  for (size_t e = 0; correction && e < all.size(); ++e) choice[e] += correction[e];
  if (r.groups_used < r.groups) limit_groups(r, choice);
  for (int i = 0; i < r.used; ++i) {
    const int expert = largest(choice);
    chosen[i] = expert;
    weights[i] = all[static_cast<size_t>(expert)];
    choice[static_cast<size_t>(expert)] = kExcluded;
  }
  if (r.scores == Routing::Scores::kSoftmaxOfChosen) {
    kernels.softmax(weights, r.used);
  } else if (r.normalise) {
    float sum = 0;
    for (int i = 0; i < r.used; ++i) sum += weights[i];
    sum = std::max(sum, std::numeric_limits<float>::min());
    for (int i = 0; i < r.used; ++i) weights[i] /= sum;
  }
  for (int i = 0; i < r.used; ++i) weights[i] *= r.scale;
}

}  // namespace

ExpertRows::ExpertRows(int max_rows, const OperationLimits::Experts& limits) {
  const auto routes = static_cast<size_t>(max_rows) * static_cast<size_t>(limits.used);
  chosen_.resize(routes);
  weights_.resize(routes);
  places_.resize(routes);
  sources_.reserve(static_cast<size_t>(most_gathered(max_rows, limits)));
  counts_.resize(static_cast<size_t>(limits.experts));
  experts_.reserve(static_cast<size_t>(limits.experts));
}

int ExpertRows::most_gathered(int max_rows, const OperationLimits::Experts& limits) {
  const int routes = max_rows * limits.used;
  return routes + std::min(limits.experts, routes) * (kRowGroup - 1);
}

size_t ExpertRows::memory_bytes(int max_rows, const OperationLimits::Experts& limits) {
  return static_cast<size_t>(max_rows) * static_cast<size_t>(limits.used) * (2 * sizeof(int32_t) + sizeof(float)) +
         static_cast<size_t>(most_gathered(max_rows, limits)) * sizeof(int32_t) +
         static_cast<size_t>(limits.experts) * (sizeof(int32_t) + sizeof(Expert));
}

void ExpertRows::route(const Compute& compute, const RouteArgs& args, int rows) {
  const Routing& r = args.routing;
  const Rows& scores = args.scores;
  used_ = r.used;
  assert(scores.cols == 2 * r.experts);
  const auto used = static_cast<size_t>(r.used);
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      float* const of_row = scores.row(row);
      const size_t at = static_cast<size_t>(row) * used;
      choose(compute.kernels, r, args.correction, of_row, {of_row + r.experts, static_cast<size_t>(r.experts)},
             &chosen_[at], &weights_[at]);
      for (size_t i = at; args.scales && i < at + used; ++i)
        weights_[i] *= args.scales[static_cast<size_t>(chosen_[i])];
    }
  });

  std::ranges::fill(counts_, 0);
  const auto routes = static_cast<size_t>(rows) * used;
  for (size_t i = 0; i < routes; ++i) ++counts_[static_cast<size_t>(chosen_[i])];
  experts_.clear();
  int begin = 0;
  for (int e = 0; e < r.experts; ++e) {
    int32_t& count = counts_[static_cast<size_t>(e)];
    if (count == 0) continue;
    experts_.push_back({e, begin, begin + count});
    const int end = begin + count;
    count = begin;  // from here on: where the expert's next row goes
    begin = (end + kRowGroup - 1) / kRowGroup * kRowGroup;
  }
  sources_.assign(experts_.empty() ? 0 : static_cast<size_t>(experts_.back().end), -1);
  for (size_t i = 0; i < routes; ++i) {
    places_[i] = counts_[static_cast<size_t>(chosen_[i])]++;
    sources_[static_cast<size_t>(places_[i])] = static_cast<int32_t>(i / used);
  }
}

void ExpertRows::combine(const Compute& compute, const Rows& results, const Target& target, int rows) const {
  const Rows& to = target.to;
  for_row_tiles(compute, rows, [&](int begin, int end) {
    for (int row = begin; row < end; ++row) {
      for (int i = 0; i < used_; ++i) {
        const auto at = static_cast<size_t>(row * used_ + i);
        compute.kernels.normalize({.kind = NormKind::kNone,
                                   .x = results.row(places_[at]),
                                   .x_stride = 0,
                                   .y = to.row(row),
                                   .y_stride = 0,
                                   .size = to.cols,
                                   .scale = weights_[at] * target.scale,
                                   .accumulate = true},
                                  0, 1);
      }
    }
  });
}

ExpertGroup::ExpertGroup(int max_rows, const OperationLimits::Experts& limits) {
  const auto most = static_cast<size_t>(limits.experts);
  numbers.reserve(most);
  experts.reserve(most);
  linears.reserve(most);
  sources.reserve(static_cast<size_t>(ExpertRows::most_gathered(max_rows, limits)));
}

size_t ExpertGroup::memory_bytes(int max_rows, const OperationLimits::Experts& limits) {
  return static_cast<size_t>(limits.experts) * (sizeof(int32_t) + sizeof(ExpertRows::Expert) + sizeof(ExpertLinears)) +
         static_cast<size_t>(ExpertRows::most_gathered(max_rows, limits)) * sizeof(int32_t);
}

namespace {

// Some of a step's experts, whose matrices are in memory.
struct ExpertsInMemory {
  std::span<const ExpertRows::Expert> experts;
  std::span<const int32_t> sources;                     // of all gathered rows; -1: of no such expert, or padding
  std::function<const ExpertLinears&(size_t)> linears;  // of the i-th of them
};

// Computes the results of their rows from x to `results`.
void run_group(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts, const ExpertRows& routes,
               const ExpertsInMemory& group, const Rows& hidden, const Rows& results, const ExpertArgs& args) {
  // Inputs depend on the form and transform of linears, not on their data.
  const auto linears_of = [&](int row) -> const ExpertLinears& {  // experts begin at groups of rows
    const auto after = std::ranges::upper_bound(routes.experts(), row, {}, &ExpertRows::Expert::begin);
    return args.experts[static_cast<size_t>(std::prev(after)->expert)];
  };
  // The experts' linears from gathered inputs to gathered results. Ranks share the outputs of each.
  const auto run = [&](const Inputs& in, const Rows& y, const auto& projection_of) {
    parts.parts.clear();
    for (size_t i = 0; i < group.experts.size(); ++i)
      parts.parts.push_back({in, projection_of(group.linears(i)), group.experts[i].begin, group.experts[i].end});
    project_parts(compute, parts, true);
    if (!compute.ranks) return;
    const SharedColumns gathered[] = {{y, (y.cols + kPanel - 1) / kPanel, kPanel}};
    compute.ranks->gather(gathered, static_cast<int>(group.sources.size()));
  };
  const Inputs in = inputs.prepare_gathered(compute, args.x, group.sources, false, [&](int row) -> const Linear& {
    return args.gated ? linears_of(row).gate : linears_of(row).up;
  });
  run(in, hidden, [&](const ExpertLinears& expert) {
    return Projection{.w = args.gated ? &expert.gate : &expert.up,
                      .y = hidden,
                      .up = args.gated ? &expert.up : nullptr,
                      .f = args.f,
                      .alpha = args.alpha,
                      .limit = args.limit};
  });
  const Inputs mixed = inputs.prepare_gathered(compute, hidden, group.sources, true,
                                               [&](int row) -> const Linear& { return linears_of(row).down; });
  run(mixed, results, [&](const ExpertLinears& expert) { return Projection{.w = &expert.down, .y = results}; });
}

// The linears of an expert whose packed matrices lie at `data`.
ExpertLinears place(const ExpertLinears& expert, const std::byte* data) {
  ExpertLinears placed = expert;
  for (Linear* const w : {&placed.gate, &placed.up, &placed.down}) {
    w->weight.data = data;
    data += w->weight.bytes();
  }
  return placed;
}

// As the source has them in memory, some experts after the others. A row's results do not depend on the order.
void run_groups(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts, const ExpertRows& routes,
                ExpertGroup& group, const Rows& hidden, const Rows& results, const ExpertArgs& args) {
  group.numbers.clear();
  for (const ExpertRows::Expert& e : routes.experts()) group.numbers.push_back(args.first + e.expert);
  args.source->begin(group.numbers);
  for (auto ready = args.source->next(); !ready.empty(); ready = args.source->next()) {
    group.experts.clear();
    group.linears.clear();
    group.sources.assign(routes.sources().size(), -1);
    for (const ExpertSource::Ready& one : ready) {
      const ExpertRows::Expert& e = routes.experts()[static_cast<size_t>(one.index)];
      group.experts.push_back(e);
      group.linears.push_back(place(args.experts[static_cast<size_t>(e.expert)], one.data));
      std::copy(routes.sources().begin() + e.begin, routes.sources().begin() + e.end, group.sources.begin() + e.begin);
    }
    run_group(compute, inputs, parts, routes,
              {.experts = group.experts,
               .sources = group.sources,
               .linears = [&](size_t i) -> const ExpertLinears& { return group.linears[i]; }},
              hidden, results, args);
  }
}

}  // namespace

uint64_t run_experts(const Compute& compute, const InputMemory& inputs, ProjectionParts& parts,
                     const ExpertRows& routes, ExpertGroup& group, const Rows& inner, const Rows& out,
                     const ExpertArgs& args, int rows) {
  const Rows hidden = inner.columns(0, args.experts[0].up.weight.rows), results = out.columns(0, args.x.cols);
  if (args.source) {
    run_groups(compute, inputs, parts, routes, group, hidden, results, args);
  } else {
    run_group(compute, inputs, parts, routes,
              {.experts = routes.experts(),
               .sources = routes.sources(),
               .linears = [&](size_t i) -> const ExpertLinears& {
                 return args.experts[static_cast<size_t>(routes.experts()[i].expert)];
               }},
              hidden, results, args);
  }
  if (!args.target.accumulate) clear(compute, args.target.to, rows);
  routes.combine(compute, results, args.target, rows);
  const ExpertLinears& any = args.experts[0];
  return routes.experts().size() * (any.gate.weight.bytes() + any.up.weight.bytes() + any.down.weight.bytes());
}

}  // namespace quire
